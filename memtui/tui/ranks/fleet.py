"""The table of ranks whose charts come from a server, not from sessions."""

from __future__ import annotations

from collections.abc import Mapping

from memtui.ranks.row import RankRow
from memtui.tui.look import Look
from memtui.tui.plot.track import Column as Sample
from memtui.tui.rows import clip

from .table import RanksTable

#: A figure stands in a chart until the next one comes, for so many times as they usually are apart.
_HOLD = 2.5
#: From this width on there is room for hosts; for a host and a device at most; for a device alone.
_WIDE, _LONGEST, _DEVICE_ALONE = 110, 24, 10


def _short(host: str) -> str:
    """A host's name without its domain."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0]


class FleetTable(RanksTable):
    """As the table of ranks; `tracks` are what each has allocated, as (Unix time, bytes), by rank and life."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.tracks: Mapping[tuple[int, int], list[tuple[float, float]]] = {}

    def _device_width(self, width: int) -> int:
        """Where there are several hosts and there is room, a rank's is named."""
        hosts = {row.host for row in self.rows}
        if len(hosts) < 2 or width < _WIDE:
            return 0
        devices = max(len(row.device) for row in self.rows)
        return min(_LONGEST, max(len(_short(host)) for host in hosts) + 1 + devices)

    def _device_head(self, width: int) -> str:
        return "host, device" if width > _DEVICE_ALONE else "device"

    def _device_text(self, row: RankRow, width: int) -> str:
        if width <= _DEVICE_ALONE:
            return row.device
        host = clip(_short(row.host), width - 1 - len(row.device), self.look.glyphs.ellipsis)
        return f"{host} {row.device}"

    def _track(self, row: RankRow, columns: int) -> list[Sample]:
        points = self.tracks.get((row.rank, row.life), ())
        if self.view is None or columns <= 0:
            return []
        found: list[Sample] = [None] * columns
        width_s = self.span_ns / columns / 1e9
        start_s = self.view.now_ns / 1e9 - self.span_ns / 1e9
        gaps = sorted(later[0] - earlier[0] for earlier, later in zip(points, points[1:]))
        hold = max(1, int(_HOLD * (gaps[len(gaps) // 4] if gaps else 0.0) / width_s) + 1)
        last = -hold - 1
        for time_s, value in points:
            place = min(columns - 1, int((time_s - start_s) / width_s))
            if place < 0:
                continue
            before = found[last] if 0 <= last < columns else None
            if before is not None and place - last <= hold:
                for between in range(last + 1, place):
                    found[between] = (before[1], before[1])
            held = found[place]
            size = int(value)
            found[place] = (size, size) if held is None else (min(held[0], size), max(held[1], size))
            last = place
        newest = found[last] if 0 <= last < columns else None
        if newest is not None:
            for place in range(last + 1, min(columns, last + hold)):
                found[place] = (newest[1], newest[1])
        return found
