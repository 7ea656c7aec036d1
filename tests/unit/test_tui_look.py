"""Themes and characters."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.tui import palette, roles
from memtui.tui.glyphs import ASCII, UNICODE, detect, plain
from memtui.tui.look import choose, make
from memtui.tui.palette import contrast
from memtui.tui.rows import Row, Span
from memtui.tui.styles import styles
from memtui.tui.widgets.figures import WIDE, Figures
from memtui.wire.frames import CATEGORIES, PHASES

ROLES = [value for name, value in vars(roles).items() if name.isupper() and isinstance(value, str)]


@pytest.mark.parametrize("colors", palette.BY_NAME.values(), ids=lambda colors: colors.name)
def test_every_role_has_a_style(colors: palette.Colors) -> None:
    table = styles(colors)
    wanted = [" ", *ROLES, *map(roles.ink, roles.TENANTS), *map(roles.fill, roles.TENANTS), *map(roles.phase, PHASES)]
    assert [role for role in wanted if role not in table] == []


def test_every_category_is_a_tenant_with_a_colour_of_its_own() -> None:
    assert set(CATEGORIES) <= set(roles.TENANTS)
    for colors in (palette.DARK, palette.LIGHT, palette.SAFE, palette.CONTRAST):
        mine = [colors.tenant(key) for key in CATEGORIES]
        assert len(set(mine)) == len(mine), colors.name


@pytest.mark.parametrize("colors", [c for c in palette.THEMES if not c.mono], ids=lambda colors: colors.name)
def test_text_is_readable(colors: palette.Colors) -> None:
    """WCAG's 4.5 to 1 for text, 3 to 1 for what is large or only beside a word."""
    for colour in (colors.text, colors.bright, colors.good, colors.warning, colors.bad, colors.dim):
        assert contrast(colour, colors.background) >= 4.5, colour
    for colour in (colors.allocated, colors.envelope, colors.reserved, colors.device, colors.accent):
        assert contrast(colour, colors.background) >= 3, colour


def test_no_theme_without_colour_has_one() -> None:
    for style in styles(palette.MONO).values():
        assert style.color is None
        assert style.bgcolor is None
    look = make(palette.DARK, UNICODE, None)
    assert look.colors.mono
    assert all(not code.foreground and not code.background for code in look.codes.values())


def test_sixteen_colours_are_used_as_such() -> None:
    look = make(palette.DARK, UNICODE, "standard")
    assert look.colors is palette.SIXTEEN
    assert not [code for code in look.codes.values() if ";" in code.foreground + code.background]


@pytest.mark.parametrize(
    ("environment", "wanted", "name"),
    [
        ({}, None, "dark"),
        ({"COLORFGBG": "0;15"}, None, "light"),
        ({"COLORFGBG": "15;0"}, None, "dark"),
        ({"COLORFGBG": "0;default"}, None, "dark"),
        ({"COLORFGBG": "0;15"}, "dark", "dark"),
        ({}, "auto", "dark"),
        ({"NO_COLOR": "1"}, "light", "no-colour"),
        ({"NO_COLOR": ""}, "light", "light"),
    ],
)
def test_the_theme_to_begin_with(environment: dict[str, str], wanted: str | None, name: str) -> None:
    assert choose(wanted, environment).name == name


def test_an_unknown_theme_is_told_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no theme 'pink': dark, light"):
        choose("pink", {})


@pytest.mark.parametrize(
    ("environment", "encoding", "glyphs"),
    [
        ({"LANG": "en_US.UTF-8"}, "utf-8", UNICODE),
        ({"LANG": "C.UTF-8"}, "utf-8", UNICODE),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", ASCII),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8", ASCII),
        ({"LANG": "en_US.UTF-8"}, "iso8859-1", ASCII),
        ({}, "ascii", ASCII),
        ({}, "utf-8", UNICODE),
    ],
)
def test_ascii_where_the_terminal_has_no_more(environment: dict[str, str], encoding: str, glyphs: object) -> None:
    assert detect(environment, encoding) is glyphs


def test_plain_text_is_ascii() -> None:
    assert plain("peak ≥ 66.4 GiB · 64 °C — naïve") == "peak >= 66.4 GiB | 64 C - na?ve"


def test_glyphs_are_one_cell_wide() -> None:
    for glyphs in (UNICODE, ASCII):
        for name, value in vars(glyphs).items():
            if isinstance(value, str) and name not in ("name", "ellipsis"):
                assert len(value) == 1, name


ROW = st.lists(st.tuples(st.sampled_from("ab ⣿"), st.sampled_from([" ", *ROLES])), min_size=1, max_size=40)


@pytest.mark.parametrize("system", [None, "standard", "256", "truecolor"])
@given(rows=st.lists(ROW, min_size=1, max_size=4))
def test_what_is_written_is_what_was_meant(system: str | None, rows: list[list[tuple[str, str]]]) -> None:
    """GIVEN rows of any roles WHEN a terminal reads their sequence THEN each cell has its own character and style."""
    look = make(palette.DARK, UNICODE, system)
    made = [Row("".join(cell[0] for cell in row), "".join(cell[1] for cell in row)) for row in rows]
    screen = pyte.Screen(60, 6)
    stream = pyte.Stream(screen)
    alone = pyte.Screen(60, 6)
    stream.feed(look.sequence([(Span(y, 2, 2 + len(row.text)), row) for y, row in enumerate(made)]))
    for y, row in enumerate(made):
        for x, (text, role) in enumerate(zip(*row)):
            pyte.Stream(alone).feed("\x1b[0m" + look.sequence([(Span(y, 2 + x, 3 + x), Row(text, role))]))
    for y in range(6):
        for x in range(60):
            shown, meant = screen.buffer[y][x], alone.buffer[y][x]
            assert shown.data == meant.data
            assert (shown.bg, shown.reverse) == (meant.bg, meant.reverse)
            if shown.data != " ":
                assert shown == meant


@pytest.mark.parametrize("colors", [c for c in palette.BY_NAME.values() if not c.mono], ids=lambda colors: colors.name)
def test_every_phase_has_a_letter_and_a_colour_of_its_own(colors: palette.Colors) -> None:
    table = styles(colors)
    named = [name for name in PHASES if name not in ("between", "startup")]
    assert len({table[roles.phase(name)].color for name in named}) == len(named)
    for glyphs in (UNICODE, ASCII):
        assert len({glyphs.phase(name) for name in PHASES}) == len(PHASES)


def test_the_legend_of_phases_names_those_that_there_are() -> None:
    figures = Figures(make(palette.DARK, UNICODE, None))
    assert [row.text.split() for row in figures._legend((), WIDE)] == [
        ["f", "forward", "b", "backward", "o", "optimizer"]
    ]
    rows = figures._legend(("evaluation", "checkpoint", "compilation"), WIDE)
    letters = "f forward b backward o optimizer e evaluation c checkpoint m compilation"
    assert " ".join(row.text.strip() for row in rows).split() == letters.split()
    assert all(len(row.text) == WIDE for row in rows)
