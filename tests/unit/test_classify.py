"""Categories of blocks: by owner, else by birth, and always adding up."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memtui.agent.blocks import Blocks
from memtui.agent.classify import Births, host_categories

WORKSPACE = 8_519_680


def blocks(*sizes: int, address: int = 1 << 40, free: int = 0) -> Blocks:
    found = Blocks()
    states: list[dict[str, Any]] = [{"size": size, "state": "active_allocated"} for size in sizes]
    if free:
        states.append({"size": free, "state": "inactive"})
    found.add({"address": address, "blocks": states, "segment_pool_id": (0, 0)})
    return found


def classify(births: Births, found: Blocks, owned: Any, phase: str, **options: bool) -> dict[str, int]:
    chosen = {"certain": True, "step_ended": False, **options}
    totals = births.classify(found, owned, phase, **chosen)
    assert sum(totals.values()) == found.allocated_bytes
    return {name: size for name, size in totals.items() if size}


def test_owners_anywhere_in_a_block_and_births_elsewhere() -> None:
    births = Births(frozenset())
    found = blocks(1024, 2048, 512)
    start = 1 << 40
    owned = {start + 100: "parameters", start + 1024: "gradients", start + 1500: "optimizer_state"}
    assert classify(births, found, owned, "forward") == {"parameters": 1024, "gradients": 2048, "activations": 512}


def test_a_block_keeps_the_phase_it_was_born_in() -> None:
    births = Births(frozenset())
    classify(births, blocks(512), {}, "between")
    classify(births, blocks(512, 1024), {}, "forward")
    assert classify(births, blocks(512, 1024, 2048), {}, "backward") == {
        "inputs": 512,
        "activations": 1024,
        "temporaries": 2048,
    }
    # The same address with another size is another block.
    assert classify(births, blocks(640), {}, "optimizer") == {"temporaries": 640}


def test_an_uncertain_birth_is_unattributed_and_stays_so() -> None:
    births = Births(frozenset())
    assert classify(births, blocks(512), {}, "forward", certain=False) == {"unattributed": 512}
    assert classify(births, blocks(512), {}, "forward") == {"unattributed": 512}


def test_what_backward_is_making_is_not_told_apart_before_its_end() -> None:
    births = Births(frozenset())
    start = 1 << 40
    classify(births, blocks(512), {start: "parameters"}, "forward")
    assert classify(births, blocks(512, 1024), None, "backward") == {"parameters": 512, "unattributed": 1024}
    owned = {start: "parameters", start + 512: "gradients"}
    assert classify(births, blocks(512, 1024), owned, "backward") == {"parameters": 512, "gradients": 1024}


def test_gradients_stay_untold_until_they_can_be_read() -> None:
    """Also at a second look in mid-phase; what then is no gradient is a temporary."""
    births = Births(frozenset())
    start = 1 << 40
    classify(births, blocks(512), {start: "parameters"}, "forward")
    for _ in range(3):
        assert classify(births, blocks(512, 1024, 256), None, "backward") == {"parameters": 512, "unattributed": 1280}
    owned = {start: "parameters", start + 512: "gradients"}
    assert classify(births, blocks(512, 1024, 256), owned, "between") == {
        "parameters": 512,
        "gradients": 1024,
        "temporaries": 256,
    }


def test_a_workspace_is_one_that_outlives_its_step() -> None:
    births = Births(frozenset({WORKSPACE}))
    assert classify(births, blocks(WORKSPACE), {}, "forward") == {"activations": WORKSPACE}
    assert classify(births, blocks(WORKSPACE), {}, "optimizer", step_ended=True) == {"workspaces": WORKSPACE}
    assert classify(births, blocks(WORKSPACE), {}, "between") == {"workspaces": WORKSPACE}


def test_free_blocks_tell_fragmentation() -> None:
    found = blocks(512, 512, free=4096)
    found.add({"address": 1, "blocks": [{"size": 1 << 20, "state": "inactive"}]})
    found.add({"address": 1 << 30, "blocks": [{"size": 2048, "state": "inactive"}], "segment_pool_id": (0, 1)})
    found.add({"address": 1 << 50, "blocks": [{"size": 256, "state": "active_awaiting_free"}]})
    summary = found.summary(7)
    assert summary.inactive_split_bytes == 4096
    assert summary.reusable_cache_bytes == summary.largest_free_block_bytes == 1 << 20
    assert summary.private_pool_idle_bytes == 2048
    assert summary.active_pending_free_bytes == 256
    assert (summary.num_segments, summary.num_pinned_segments, summary.age_ns) == (4, 1, 7)


@given(
    st.lists(st.integers(1, 1 << 30), max_size=30),
    st.dictionaries(st.integers(0, 1 << 34), st.sampled_from(("parameters", "gradients", "buffers"))),
    st.sampled_from(("startup", "forward", "backward", "optimizer", "between", "anything")),
    st.booleans(),
    st.booleans(),
)
def test_categories_always_add_up(
    sizes: list[int], owned: dict[int, str], phase: str, certain: bool, ended: bool
) -> None:
    births = Births(frozenset({WORKSPACE}))
    start = 1 << 40
    moved = {start + address: category for address, category in owned.items()}
    for now in (moved, None, {}):
        classify(births, blocks(*sizes), now, phase, certain=certain, step_ended=ended)


def test_the_host_rest_is_a_rest() -> None:
    figures = host_categories(1000, {"parameters": 300, "gradients": 100}, 50)
    assert figures["unattributed"] == 550
    assert sum(figures.values()) == 1000
    assert host_categories(100, {"parameters": 300}, -5)["unattributed"] == -200
