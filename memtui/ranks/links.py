"""Machines that nothing is heard from: what is shown of them is as old as the link's end."""

from __future__ import annotations

from collections.abc import Sequence

from memtui.analysis.text import clean
from memtui.session.members import Member

from .finding import Finding


def link_findings(members: Sequence[Member]) -> list[Finding]:
    """One for each link that is down, of those whose ranks may go on there."""
    cut: dict[str, list[int]] = {}
    for member in members:
        session = member.session
        if member.host and not member.over and session.connection == "lost" and session.hello is not None:
            cut.setdefault(clean(session.connection_text, 300), []).append(member.rank or 0)
    return [Finding("link", "warning", tuple(numbers), text) for text, numbers in cut.items()]
