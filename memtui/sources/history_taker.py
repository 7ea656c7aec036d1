"""Puts an allocator history together again that an agent sends in parts: plain containers, as torch's `_snapshot`."""

from __future__ import annotations

from typing import Any

from memtui.wire.histories import HistoryPart

#: More than an agent keeps, many times; whoever sends more is none.
_MOST_ROWS, _MOST_DEVICES = 4_000_000, 1024


class HistoryTaker:
    """Takes parts in their order; raises ValueError where they do not belong together."""

    def __init__(self) -> None:
        self.rows = 0
        self._shapes: list[tuple[str, ...]] = []
        self._frames: list[dict[str, Any]] = []
        self._stacks: list[list[dict[str, Any]]] = []
        self._segments: list[dict[str, Any]] = []
        self._traces: dict[int, list[dict[str, Any]]] = {}
        self._rest: dict[str, Any] = {}
        self._whole = False

    def take(self, part: HistoryPart) -> None:
        """Adds a part."""
        self.rows += len(part.rows)
        if self.rows > _MOST_ROWS:
            raise ValueError(f"a history of more than {_MOST_ROWS:,} events")
        self._shapes += part.shapes
        try:
            self._frames += [self._dict(frame) for frame in part.frames]
            self._stacks += [[self._frames[number] for number in stack] for stack in part.stacks]
            self._add(part)
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"a part of a history ({part.name}) that does not fit the others") from None

    def _add(self, part: HistoryPart) -> None:
        if part.name == "segments":
            for row in part.rows:
                made = self._dict(row)
                if "blocks" in made:
                    made["blocks"] = []
                    self._segments.append(made)
                else:
                    self._segments[-1]["blocks"].append(made)
        elif part.name == "trace":
            # Without stacks torch leaves the key out, which some readers look for.
            self._traces.setdefault(part.device, []).extend({"frames": [], **self._dict(row)} for row in part.rows)
        elif part.name == "rest":
            (rest,) = part.rows
            if type(rest) is not dict:
                raise TypeError
            self._rest, self._whole = rest, True

    def _dict(self, row: Any) -> dict[str, Any]:
        shape, *values = row
        if type(shape) is not int or shape < 0:
            raise TypeError
        keys = self._shapes[shape]
        if len(keys) != len(values):
            raise TypeError
        made: dict[str, Any] = {key: tuple(value) if type(value) is list else value for key, value in zip(keys, values)}
        if "frames" in made:
            number = made["frames"]
            made["frames"] = self._stacks[number] if number >= 0 else []
        return made

    def snapshot(self) -> dict[str, Any]:
        """All of it, as torch has it; raises ValueError where parts are missing."""
        count = self._rest.get("device_traces")
        if (
            not self._whole
            or type(count) is not int
            or not 0 <= count <= 1024
            or max(self._traces, default=-1) >= count
        ):
            raise ValueError("a history without an end")
        traces = [self._traces.get(device, []) for device in range(count)]
        return {"segments": self._segments, **{**self._rest, "device_traces": traces}}
