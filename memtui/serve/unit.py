"""A systemd user unit for the daemon."""

from __future__ import annotations

from collections.abc import Sequence

_TEXT = """\
# memtui serve for this user. To have it run from now on:
#   memtui serve --unit > ~/.config/systemd/user/memtui-serve.service
#   systemctl --user daemon-reload
#   systemctl --user enable --now memtui-serve
#   loginctl enable-linger    # also while you are not logged in

[Unit]
Description=memtui serve: memory of PyTorch trainings for Prometheus

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
Nice=5
UMask=0077
MemoryMax=512M
TasksMax=64
# Sockets of agents are in /run/user and /tmp, devices in /dev, processes in /proc: none of them is hidden, and there is
# no user namespace, from which no other process could be attached to.
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def unit(command: Sequence[str]) -> str:
    """The unit's text; `command` begins with an absolute path."""
    return _TEXT.format(command=" ".join(map(_quoted, command)))


def _quoted(word: str) -> str:
    """As systemd reads it: % and $ stand for themselves when doubled."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = plain.replace("\n", "\\n").replace("\t", "\\t")
    return f'"{plain}"' if plain != word or not word or any(each in word for each in " ';") else plain
