"""Which of torch's versions chooses how among free blocks that are equally large."""

from __future__ import annotations

import re

#: The last that is known to take the one at the lowest address, and the first known to take that of the oldest segment.
_LAST_BY_ADDRESS, _FIRST_BY_AGE = (2, 11), (2, 14)


def tie_rules(torch: str) -> tuple[bool, ...]:
    """Whether the age of segments decides, in the torch of this version; both, the newer first, where that is unknown.

    Read from the libraries themselves: the comparator of blocks is BlockComparatorSize in torch 2.1.0, 2.4.1, 2.6.0 and
    2.11.0, and BlockComparatorSizeCounterAddress in 2.14.1. Between them it was changed three times, by pytorch's pull
    requests 178362 (March 2026), 183489 and 183591 (May 2026), and which of these 2.12 and 2.13 have was not seen.
    """
    found = re.match(r"(\d+)\.(\d+)", torch)
    version = (int(found[1]), int(found[2])) if found else None
    if version is None or _LAST_BY_ADDRESS < version < _FIRST_BY_AGE:
        return True, False
    return (version >= _FIRST_BY_AGE,)
