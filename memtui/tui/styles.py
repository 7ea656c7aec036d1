"""The style of every role, in a theme with colours and in one without."""

from __future__ import annotations

from rich.color import Color
from rich.style import Style

from memtui.wire.frames import PHASES

from . import roles
from .palette import Colors, letter_on, mix

_PHASE_TENANTS = {
    "startup": "other_tenant",
    "forward": "activations",
    "backward": "gradients",
    "optimizer": "optimizer_state",
    "evaluation": "inputs",
    "checkpoint": "workspaces",
    "compilation": "temporaries",
}


def styles(colors: Colors) -> dict[str, Style]:
    """The style of every role in a theme."""
    return _mono_styles() if colors.mono else _colour_styles(colors)


def _colour_styles(colors: Colors) -> dict[str, Style]:
    background = Color.parse(colors.background)

    def style(colour: str, on: str | None = None, **attributes: bool) -> Style:
        below = background if on is None else Color.parse(on)
        return Style(color=Color.parse(colour), bgcolor=below, **attributes)  # type: ignore[arg-type]

    table = {
        " ": style(colors.text),
        roles.TEXT: style(colors.text),
        roles.BRIGHT: style(colors.bright, bold=True),
        roles.DIM: style(colors.dim),
        roles.FAINT: style(colors.faint),
        roles.TITLE: style(colors.accent, bold=True),
        roles.FRESH: style(colors.bright),
        roles.PREDICTED: style(colors.forecast, italic=True),
        roles.KEY: style(colors.accent),
        roles.ACTIVE: style(colors.background, colors.accent, bold=True),
        roles.GOOD: style(colors.good),
        roles.WARNING: style(colors.warning),
        roles.BAD: style(colors.bad, bold=True),
        roles.UNKNOWN: style(colors.dim),
        roles.GOOD_CHIP: style(letter_on(colors.good), colors.good, bold=True),
        roles.WARNING_CHIP: style(letter_on(colors.warning), colors.warning, bold=True),
        roles.BAD_CHIP: style(letter_on(colors.bad), colors.bad, bold=True),
        roles.UNKNOWN_CHIP: style(letter_on(colors.dim), colors.dim, bold=True),
        roles.NOTE: style(colors.warning),
        roles.SELECTED: style(colors.bright, mix(colors.background, colors.accent, 0.3)),
        roles.ALLOCATED: style(colors.allocated),
        roles.ENVELOPE: style(colors.envelope),
        roles.RESERVED: style(colors.reserved),
        roles.DEVICE: style(colors.device),
        roles.PROCESS: style(colors.tenant("process")),
        roles.CAPACITY: style(colors.capacity),
        roles.FORECAST: style(colors.forecast, italic=True),
        roles.CURSOR: style(colors.bright, bold=True),
        roles.AXIS: style(colors.faint),
    }
    for tenant in roles.TENANTS:
        colour = colors.tenant(tenant)
        if tenant == "device_free":
            table[roles.ink(tenant)] = style(colors.dim)
            table[roles.fill(tenant)] = style(colors.faint, colour)
            table[roles.pin(tenant)] = style(colors.dim, underline=True)
            continue
        letter = letter_on(colour)
        table[roles.ink(tenant)] = style(letter, colour)
        table[roles.pin(tenant)] = style(letter, colour, bold=True, underline=True)
        # In the bar the letter stands in every cell: a quieter one, so that the colour is what is seen first.
        table[roles.fill(tenant)] = style(mix(colour, letter, 0.6), colour)
    for lower in roles.STACKED:
        for upper in roles.STACKED:
            below = colors.tenant(lower) if lower else colors.background
            table[roles.pair(lower, upper)] = style(below, colors.tenant(upper) if upper else None)
    for name in PHASES:
        likeness = _PHASE_TENANTS.get(name)
        table[roles.phase(name)] = style(colors.tenant(likeness) if likeness else colors.faint)
    return table


def _mono_styles() -> dict[str, Style]:
    plain, dim, bold = Style(), Style(dim=True), Style(bold=True)
    reverse, italic = Style(reverse=True, bold=True), Style(italic=True)
    underlined = Style(bold=True, underline=True)
    table = {
        " ": plain,
        roles.TEXT: plain,
        roles.BRIGHT: bold,
        roles.DIM: plain,
        roles.FAINT: dim,
        roles.TITLE: bold,
        roles.FRESH: bold,
        roles.PREDICTED: italic,
        roles.KEY: bold,
        roles.ACTIVE: reverse,
        roles.GOOD: plain,
        roles.WARNING: bold,
        roles.BAD: bold,
        roles.UNKNOWN: dim,
        roles.GOOD_CHIP: reverse,
        roles.WARNING_CHIP: reverse,
        roles.BAD_CHIP: reverse,
        roles.UNKNOWN_CHIP: reverse,
        roles.NOTE: bold,
        roles.SELECTED: Style(reverse=True),
        roles.ALLOCATED: dim,
        roles.ENVELOPE: plain,
        roles.RESERVED: bold,
        roles.DEVICE: plain,
        roles.PROCESS: plain,
        roles.CAPACITY: plain,
        roles.FORECAST: italic,
        roles.CURSOR: bold,
        roles.AXIS: dim,
    }
    for place, tenant in enumerate(roles.TENANTS):
        table[roles.ink(tenant)] = bold
        table[roles.pin(tenant)] = underlined
        # Neighbours are told apart by their letters; every other one is bold, so that a border is seen too.
        table[roles.fill(tenant)] = dim if tenant == "device_free" else bold if place % 2 else plain
    for lower in roles.STACKED:
        for upper in roles.STACKED:
            table[roles.pair(lower, upper)] = plain  # not drawn: without colours a cell is its larger part's
    for name in PHASES:
        table[roles.phase(name)] = plain
    return table
