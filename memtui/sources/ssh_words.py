"""What ssh says when there is no connection: which of its lines is the reason, and what helps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from .ssh_address import Address

#: Of a host key that ssh does not take, whichever the reason is.
REFUSED_KEY = "Host key verification failed"
_CHANGED = "HOST IDENTIFICATION HAS CHANGED"
#: As ssh says it; a jump host may say anything, and users are told to run this.
_FORGETS = re.compile(r"""ssh-keygen -f (["'])[\w./~@+ -]+\1 -R (["'])[\w.:\[\]-]+\2""")
#: How lines begin that are no reasons: "Warning: Permanently added …", "** WARNING: connection is not …".
_WARNINGS = ("warning:", "** ")


def last_reason(lines: Sequence[str]) -> str:
    """The last line that is no warning; "" where there is none."""
    return next((line for line in reversed(lines) if not line.lower().startswith(_WARNINGS)), "")


def key_words(lines: Sequence[str], address: Address, ssh: Sequence[str], *, asked: bool) -> str:
    """What to do about a host key that was not taken: one that has changed is another matter than one never seen.

    `ssh` is the user's command; where somebody was `asked` a new key was not wanted, and there is nothing to say.
    """
    if any(_CHANGED in line for line in lines):
        name = address.host if address.port is None else f"[{address.host}]:{address.port}"
        forgets = next(filter(_FORGETS.fullmatch, lines), f"ssh-keygen -R {shlex.quote(name)}")
        return (
            "the host's key is not the one that is known: it was set up anew, or somebody else answers in its place; "
            f"where the new key is right, {forgets} forgets the old one"
        )
    if asked:
        return ""
    port = () if address.port is None else ("-p", str(address.port))
    return f"the host's key is not known yet: {shlex.join([*ssh, *port, address.destination])} shows it, and asks"
