"""One series as columns that are aligned to time, so that a live picture moves in whole columns and never shimmers."""

from __future__ import annotations

from typing import Optional

from memtui.session.history import Series

Column = Optional[tuple[int, int]]

#: Pieces of a column in which the newest ones are asked for.
PIECES = 8

#: A figure is taken to hold until the next sample for so long; after that there is a gap to see. Of what is known to
#: be sampled seldom, for so many times as samples are apart.
HOLD_NS, HOLD_SAMPLES = 2_500_000_000, 2.5


class Track:
    """The columns of one series; asks it only for what is new since the last time."""

    def __init__(self) -> None:
        self._series: Series | None = None
        self._step = 0
        self._first = 0
        self._raw: list[Column] = []
        self._newest_ns: int | None = None
        self._held: tuple[int, int | None] = (0, None)

    def columns(
        self, series: Series | None, first: int, count: int, step_ns: int, now_ns: int, *, close: bool = False
    ) -> list[Column]:
        """(min, max) of columns `first` to `first + count` of `step_ns` each; column n begins at n * step_ns.

        Short gaps between samples, and from the last one until now, are bridged with the value that held; long ones
        are None. `close` is for columns that are mostly gaps: each has the last value before it.
        """
        if series is None:
            self._raw = [None] * count
            self._series = None
            return self._raw
        self._update(series, first, count, step_ns)
        if close:
            return _last_values(self._raw, series, first, step_ns, now_ns)
        return bridge(self._raw, max(1, hold_ns(series) // step_ns), now_ns // step_ns - first, series.last_value)

    def sampled(self) -> list[bool]:
        """Which of the columns asked for last have a sample of their own."""
        return [column is not None for column in self._raw]

    def _update(self, series: Series, first: int, count: int, step_ns: int) -> None:
        held = (len(series), series.first_time_ns)
        same = series is self._series and step_ns == self._step and held[1] == self._held[1]
        shift = first - self._first
        if not same or not 0 <= shift < count or len(self._raw) != count or self._newest_ns is None:
            self._raw = series.window(first * step_ns, (first + count) * step_ns, count)
        else:
            # Samples only ever come after the newest one; its own column may have grown. What the window did not
            # reach before is asked for too: it may have ended before the newest sample.
            changed = max(0, min(self._newest_ns // step_ns - first, count - shift))
            del self._raw[:shift]
            if changed < count:
                start = first + changed
                self._raw[changed:] = _fine_window(series, start * step_ns, (first + count) * step_ns, count - changed)
        self._series, self._step, self._first, self._held = series, step_ns, first, held
        self._newest_ns = series.last_time_ns


def hold_ns(series: Series) -> int:
    """How long a figure of a series is taken to hold."""
    return max(HOLD_NS, int(HOLD_SAMPLES * series.apart_ns))


def _fine_window(series: Series, start_ns: int, end_ns: int, columns: int) -> list[Column]:
    """A window asked for in smaller pieces: for few columns a series would take coarse buckets, which reach beyond."""
    pieces = series.window(start_ns, end_ns, columns * PIECES)
    result: list[Column] = []
    for start in range(0, len(pieces), PIECES):
        known = [piece for piece in pieces[start : start + PIECES] if piece is not None]
        result.append((min(low for low, _ in known), max(high for _, high in known)) if known else None)
    return result


def _last_values(raw: list[Column], series: Series, first: int, step_ns: int, now_ns: int) -> list[Column]:
    """Columns without a sample with the value of the last one before them, if that is not too old; none after now."""
    result = list(raw)
    held: tuple[int, int] | None = None
    in_gap = False
    for place, column in enumerate(raw):
        if column is not None:
            in_gap = False
            continue
        begins_ns = (first + place) * step_ns
        if not in_gap:
            held, in_gap = series.around(begins_ns)[0], True
        if held is not None and begins_ns - held[0] <= hold_ns(series) and begins_ns <= now_ns:
            result[place] = (held[1], held[1])
    return result


def bridge(columns: list[Column], longest: int, last_place: int, last_value: int | None) -> list[Column]:
    """Columns with gaps of at most `longest` filled by what must have held there; none after `last_place`, now.

    The value at the end of a bucket is not known, only its range: of that range the value nearest to the next bucket's,
    and where there is no next one the newest figure of all.
    """
    if None not in columns:
        return columns
    result = list(columns)
    last = -1
    for place, column in enumerate(columns):
        if column is None:
            continue
        if last >= 0 and 1 < place - last <= longest + 1:
            before = columns[last]
            assert before is not None
            value = min(max(column[0], before[0]), before[1])
            result[last + 1 : place] = [(value, value)] * (place - last - 1)
        last = place
    end = min(len(columns), last_place + 1)
    if last >= 0 and last + 1 < end <= last + 1 + longest:
        low, high = columns[last] or (0, 0)
        value = high if last_value is None else min(max(last_value, low), high)
        result[last + 1 : end] = [(value, value)] * (end - last - 1)
    return result
