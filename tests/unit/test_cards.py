"""The table of GPUs, how one is found by name, and how the table is listed."""

from __future__ import annotations

import pytest

from memtui.virtual_gpu import VirtualGpuError
from memtui.virtual_gpu.card import GIB, MIB, Card, Figure
from memtui.virtual_gpu.card_list import list_lines
from memtui.virtual_gpu.cards import card_for, cards, find_card, profile_for

CAPABILITIES = {"6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.0"}


def _id(card: Card) -> str:
    return card.name


def _refused(text: str) -> VirtualGpuError:
    with pytest.raises(VirtualGpuError) as refused:
        find_card(text)
    return refused.value


# ---- the table ------------------------------------------------------------------------------


def test_names_are_unique() -> None:
    names = [card.name for card in cards()]
    assert len(set(names)) == len(names) > 100


@pytest.mark.parametrize("card", cards(), ids=_id)
def test_a_card_is_plausible(card: Card) -> None:
    assert card.box_bytes is not None
    assert 0.85 * card.box_bytes < card.total_bytes <= card.box_bytes
    assert "{}.{}".format(*card.compute_capability) in CAPABILITIES
    assert 8 <= card.multiprocessors <= 188
    if card.nvml_total_bytes is not None:
        assert card.total_bytes <= card.nvml_total_bytes <= card.box_bytes
    if card.driver_reserved_bytes is not None:
        assert 64 * MIB <= card.driver_reserved_bytes <= 0.06 * card.box_bytes


@pytest.mark.parametrize("card", cards(), ids=_id)
def test_a_figure_is_known_exactly_where_it_says_how(card: Card) -> None:
    for figure in (card.total, card.driver_reserved, card.context, card.eager_context):
        assert (figure.value_bytes is None) == (figure.kind == "unknown")
        assert figure.kind != "measured", "nobody has measured one for this table yet"
        assert figure.source
        if figure.value_bytes is not None:
            assert figure.value_bytes > 0
    for context in (card.context, card.eager_context):
        assert context.value_bytes is None or 200 * MIB < context.value_bytes < 2 * GIB


@pytest.mark.parametrize(("name", "reserved_mib"), [("a40", 665), ("l4", 471), ("a100-40g", 520), ("gh200", 1103)])
def test_the_drivers_share_is_what_nvml_calls_reserved(name: str, reserved_mib: int) -> None:
    # As nvidia-smi -q showed them of such cards; totals are in whole MiB.
    assert find_card(name).driver_reserved_bytes == pytest.approx(reserved_mib * MIB, abs=MIB)


# ---- by name --------------------------------------------------------------------------------


@pytest.mark.parametrize("card", cards(), ids=_id)
def test_a_card_is_found_by_its_name(card: Card) -> None:
    assert find_card(card.name) is card
    assert find_card(card.name.upper().replace("-", " ")) is card


@pytest.mark.parametrize("card", cards(), ids=_id)
def test_a_card_is_found_by_what_torch_calls_it_where_only_one_is_called_so(card: Card) -> None:
    called_so = [other.name for other in cards() if other.full_name == card.full_name]
    if len(called_so) == 1:
        assert find_card(card.full_name) is card
    else:
        fix = _refused(card.full_name).fix
        assert all(name in fix for name in called_so)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-80G", "a100-80g"),
        ("a100 80gb", "a100-80g"),
        ("A100 80GiB", "a100-80g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("nvidia a100 80gb pcie", "a100-pcie-80g"),
        ("H100 SXM5 80GB", "h100-80g"),
        ("rtx4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("GeForce RTX 3090", "rtx-3090"),
        ("3090 Ti", "rtx-3090-ti"),
        ("1080ti", "gtx-1080-ti"),
        ("4060 ti 16gb", "rtx-4060-ti-16g"),
        ("RTX 3060 12GB", "rtx-3060"),
        ("a6000", "rtx-a6000"),
        ("6000 ada", "rtx-6000-ada"),
        ("T4", "t4"),
        ("Tesla P40 24 GB", "p40"),
        ("L40", "l40"),
        ("a10", "a10"),
        ("h200", "h200"),
        ("b200", "b200"),
        ("orin nano", "jetson-orin-nano-8g"),
        ("1g.5gb", "a100-40g-1g.5gb"),
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", "h100-80g-2g.20gb"),
    ],
)
def test_ways_to_write_a_name(text: str, name: str) -> None:
    assert find_card(text).name == name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a100", "a100-40g, a100-pcie-40g, a100-80g, a100-pcie-80g"),
        ("RTX 6000", "quadro-rtx-6000, rtx-6000-ada"),
        ("3080", "rtx-3080-10g, rtx-3080-12g"),
        ("MIG 1g.10gb", "a100-40g-1g.10gb, a100-80g-1g.10gb, h100-80g-1g.10gb"),
    ],
)
def test_several_cards_of_a_name(text: str, names: str) -> None:
    refused = _refused(text)
    assert refused.problem == f"{text!r} may be one of several GPUs"
    assert refused.fix == f"name one of {names}"


def test_many_cards_of_a_name() -> None:
    assert _refused("rtx").fix.endswith("more (--list shows all)")
    assert _refused("rtx").fix.count(",") == 5


@pytest.mark.parametrize(("text", "nearest"), [("rtx 4099", "rtx-4090"), ("h10-80g", "h100-80g"), ("a50", "a40")])
def test_a_near_miss(text: str, nearest: str) -> None:
    refused = _refused(text)
    assert refused.problem == f"there is no GPU {text!r} in the table"
    assert refused.fix.startswith("the nearest are ")
    assert nearest in refused.fix.partition(";")[0].removeprefix("the nearest are ").split(", ")
    assert refused.fix.endswith("; --list shows all; or name a size such as 24GiB")


@pytest.mark.parametrize("text", ["", "---", "é", "instinct mi300x"])
def test_nothing_like_it(text: str) -> None:
    assert _refused(text).fix == "--list shows all; or name a size such as 24GiB"


# ---- the virtual GPUs of one -----------------------------------------------------------------


def test_the_profile_of_a_card() -> None:
    card = find_card("rtx-6000-ada")
    profile = profile_for("RTX 6000 Ada", 2, report=True)
    assert (profile.count, profile.report) == (2, True)
    assert profile.name == "NVIDIA RTX 6000 Ada Generation"
    assert profile.memory_bytes == (49140 * MIB,)
    assert profile.memory_bytes[0] - profile.driver_reserved_bytes == card.total_bytes == 50_865_307_648
    assert (profile.compute_capability, profile.multiprocessors) == ((8, 9), 142)
    assert profile.context_bytes == card.context_bytes == 426 * MIB
    assert profile_for("RTX 6000 Ada", context="1GiB").context_bytes == GIB


def test_what_is_not_known_of_a_card_is_not_charged() -> None:
    card = find_card("a100-40g-3g.20gb")
    assert card.context_bytes is card.driver_reserved_bytes is None
    profile = profile_for(card.name)
    assert (profile.context_bytes, profile.driver_reserved_bytes) == (0, 0)
    assert profile.memory_bytes == (card.total_bytes,)


@pytest.mark.parametrize(("text", "size_bytes"), [("24GiB", 24 * GIB), (" 500m ", 500 * MIB), ("1.5 TiB", 3 << 39)])
def test_a_plain_size(text: str, size_bytes: int) -> None:
    card = card_for(text)
    assert (card.total_bytes, card.total.kind, card.context.kind) == (size_bytes, "given", "unknown")
    profile = profile_for(text, 3)
    assert (profile.name, profile.count, profile.memory_bytes) == ("virtual GPU", 3, (size_bytes,))
    assert (profile.compute_capability, profile.context_bytes) == ((8, 6), 0)


def test_a_size_that_is_none() -> None:
    # Whether 10^9 is meant is for its writer to say; a plain number is looked for in the table.
    with pytest.raises(VirtualGpuError, match="'24GB' is not a size"):
        card_for("24GB")
    with pytest.raises(VirtualGpuError, match="there is no GPU '123456789'"):
        card_for("123456789")


# ---- the list -------------------------------------------------------------------------------


def _some() -> list[Card]:
    return [
        find_card(name) for name in ("v100-16g", "a100-40g", "t4", "rtx-2000-ada", "rtx-4090", "jetson-orin-nano-8g")
    ]


def test_the_list_at_80_columns() -> None:
    assert list_lines(_some(), 80) == [
        "data centre          memory GiB   cc  SMs  context MiB",
        "v100-16g                 15.8 c  7.0   80    ≤ 1,343 c",
        "a100-40g                 39.5 c  8.0  108        922 d",
        "t4                       14.6 c  7.5   40          –",
        "",
        "workstation          memory GiB   cc  SMs  context MiB",
        "rtx-2000-ada             16.0 d  8.9   22          –",
        "",
        "consumer             memory GiB   cc  SMs  context MiB",
        "rtx-4090                 23.5 c  8.9  128        426 d",
        "",
        "Jetson               memory GiB   cc  SMs  context MiB",
        "jetson-orin-nano-8g       7.4 c  8.7    8          –",
        "",
        "memory: what torch calls the total.  context: what a process takes besides its",
        "tensors.",
        "m measured here, c cited, d derived, – unknown.",
        "≤ with all kernels loaded at once, as by torch before 1.13; today's is less.",
        "Jetson: the memory is the computer's, and what other programs use of it is",
        "missing as well.",
    ]


def test_a_wide_list_has_torchs_names() -> None:
    assert list_lines(_some(), 90)[1] == "v100-16g                 15.8 c  7.0   80    ≤ 1,343 c  Tesla V100-SXM2-16GB"


@pytest.mark.parametrize("width", [1, 40, 57, 80, 200])
def test_no_line_is_too_long(width: int) -> None:
    lines = list_lines(cards(), width)
    assert max(map(len, lines)) <= width
    assert width < 57 or all(any(line.startswith(card.name) for line in lines) for card in cards())


def test_figures_of_every_kind_are_marked() -> None:
    measured = Card(
        "x", "X", "size", None, (9, 0), 1, Figure(GIB, "measured", "here"), context=Figure(MIB, "given", "")
    )
    assert list_lines([measured], 80)[:2] == [
        "size  memory GiB   cc  SMs  context MiB  as torch names it",
        "x          1.0 m  9.0    1          1 g  X",
    ]
