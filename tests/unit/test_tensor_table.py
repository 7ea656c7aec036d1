"""The table of live tensors: sorted, filtered, and always adding up."""

from __future__ import annotations

import pytest

from memtui.analysis.tensors import COLUMNS, Choice, build_table, categories_of
from memtui.wire.frames import Tensor, Tensors

MIB = 1 << 20
ROWS = (
    Tensor("activations", 24 * MIB, phase="forward", count=12),
    Tensor("parameters", 9 * MIB, "layers.10.weight", (3072, 768), "float32"),
    Tensor("gradients", 9 * MIB, "layers.2.weight (gradient)", (3072, 768), "bfloat16"),
    Tensor("optimizer_state", 6 * MIB, "layers.2.weight exp_avg", (2304, 768), "float32"),
    Tensor("unattributed", 512),
    Tensor("optimizer_state", 512, "layers.2.weight step", (), "float32"),
)
ALLOCATED = 50 * MIB
TENSORS = Tensors(
    1, 1204, "backward", "cuda:0", ALLOCATED, ROWS, 30, ALLOCATED - sum(row.size_bytes for row in ROWS), 1
)


def names(choice: Choice) -> list[str]:
    return [row.name for row in build_table(TENSORS, choice).rows]


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("text", ["", "layers", "3072x768", "nothing like it"])
@pytest.mark.parametrize("category", [None, "optimizer_state", "inputs"])
def test_every_table_adds_up(column: str, text: str, category: str | None) -> None:
    table = build_table(TENSORS, Choice(column, False, category, text))  # type: ignore[arg-type]
    assert table.rows_bytes + table.left_out_bytes + table.others_bytes == table.allocated_bytes == ALLOCATED
    assert table.listed_count == len(ROWS)


def test_rows_in_words() -> None:
    table = build_table(TENSORS, Choice())
    group, weight, *_, unknown, scalar = table.rows
    assert (group.name, group.shape, group.share) == ("no name, born in forward", "12 × 2.0 MiB", "48.0 %")
    assert (weight.letter, weight.shape, weight.dtype, weight.share) == ("P", "3072 × 768", "float32", "18.0 %")
    assert (unknown.letter, unknown.name, unknown.share) == ("?", "nobody known owns it", "<0.1 %")
    assert scalar.shape == "scalar"
    assert table.moment == "as backward began, step 1,205"


def test_sorting() -> None:
    assert names(Choice())[0] == "no name, born in forward"
    assert names(Choice(reverse=True)) == names(Choice())[::-1]
    # Numbers in names count as numbers, and what has no name comes last.
    by_name = names(Choice("name"))
    assert by_name[0] == "layers.2.weight (gradient)"
    assert by_name[3] == "layers.10.weight"
    assert [row.category for row in build_table(TENSORS, Choice("category")).rows][:2] == ["parameters", "gradients"]
    assert build_table(TENSORS, Choice("dtype")).rows[0].dtype == "bfloat16"


@pytest.mark.parametrize(
    ("text", "count"), [("LAYERS.2", 3), ("3072 × 768", 2), ("3072x768", 2), ("bfloat", 1), ("gradient", 1), ("", 6)]
)
def test_filtering_by_text(text: str, count: int) -> None:
    assert len(names(Choice(text=text))) == count


def test_filtering_by_category() -> None:
    assert names(Choice(category="gradients")) == ["layers.2.weight (gradient)"]
    assert categories_of(TENSORS) == ("parameters", "gradients", "optimizer_state", "activations", "unattributed")


def test_names_are_made_harmless() -> None:
    evil = Tensors(1, 1, "forward", "cuda:0", 8, (Tensor("new\x1b[2J kind", 8, "a\x1b[31mb\n\u202ec", (1,), "x\x07"),))
    row = build_table(evil, Choice()).rows[0]
    for text in (row.name, row.dtype, row.label, row.letter):
        assert text.isprintable()
    assert row.name == "ab c"


def test_nothing_allocated() -> None:
    table = build_table(Tensors(1, 0, "", "host", 0, ()), Choice())
    assert (table.rows, table.largest_bytes, table.moment) == ((), 0, "phase unknown, step 1")
