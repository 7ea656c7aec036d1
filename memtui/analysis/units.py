"""The one place where bytes, times and percentages become text. Units are IEC."""

from __future__ import annotations

from typing import Optional

UNKNOWN = "–"
_STEPS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def unit_of(value: int) -> str:
    """The IEC unit in which `value` bytes has one to four digits before the point."""
    size: float = abs(value)
    index = 0
    # 1023.96 KiB would print as 1024.0 KiB: the next unit starts where rounding would reach it.
    while index + 1 < len(_STEPS) and size >= (1024 if index == 0 else 1023.95):
        size, index = size / 1024, index + 1
    return _STEPS[index]


def number(value: Optional[int], unit: str) -> str:
    """`value` bytes in `unit`, without it: one decimal, whole bytes; – where unknown."""
    if value is None:
        return UNKNOWN
    if unit == "B":
        return f"{value:,}"
    return f"{value / 1024 ** _STEPS.index(unit):,.1f}"


def size(value: Optional[int]) -> str:
    """`value` bytes with its unit, "66.4 GiB"; – where unknown."""
    if value is None:
        return UNKNOWN
    unit = unit_of(value)
    return f"{number(value, unit)} {unit}"


def percent(part: Optional[int], whole: Optional[int]) -> str:
    """`part` of `whole` as "76 %"; – where either is unknown or the whole is nothing."""
    if part is None or not whole:
        return UNKNOWN
    return f"{100 * part / whole:.0f} %"


def times(part: int, whole: int) -> str:
    """`part` as a multiple of `whole`: "2 x", "1.5 x", "0.13 x"."""
    return f"{part / whole:.2f}".rstrip("0").rstrip(".") + " x"


def duration(nanoseconds: Optional[int]) -> str:
    """A length of time as "850 ms", "20.4 s", "12 m 05 s", "3 h 07 m" or "9 d 4 h"; – where unknown."""
    if nanoseconds is None:
        return UNKNOWN
    seconds = nanoseconds / 1e9
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.00995 else f"{seconds * 1e3:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(microseconds: Optional[int]) -> str:
    """A place within a step as "0.4 ms", "12.3 ms", "1.204 s"; – where unknown."""
    if microseconds is None:
        return UNKNOWN
    if abs(microseconds) < 999_950:
        return f"{microseconds / 1e3:.1f} ms"
    return f"{microseconds / 1e6:,.3f} s" if abs(microseconds) < 99_999_500 else f"{microseconds / 1e6:,.1f} s"


def parse_size(text: str) -> int:
    """Bytes of "24GiB", "24 GB" (read as IEC, as people mean it), "512m" or "1048576"; raises ValueError."""
    compact = text.replace(" ", "").replace(",", "").lower()
    digits = compact.rstrip("kmgtpib")
    suffix = compact[len(digits) :]
    powers = {"": 0, "b": 0}
    for power, letter in enumerate("kmgtp", start=1):
        powers.update({letter: power, f"{letter}b": power, f"{letter}ib": power})
    try:
        result = float(digits) * 1024 ** powers[suffix]
    except (KeyError, ValueError):
        result = -1.0
    if not 0 <= result < 2**63:
        raise ValueError(f"not a size: {text!r}; write it as 24GiB or 512MiB")
    return int(result)
