"""What was found out by setting ranks side by side: one line with its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.analysis.view import Level


@dataclass(frozen=True)
class Finding:
    """`key` is what kind it is of; `ranks` are those that it is about. Bad ones stop a training or are its end."""

    key: str
    level: Level
    ranks: tuple[int, ...]
    text: str
