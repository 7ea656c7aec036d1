"""Categories of blocks: by owner, else by birth, and always adding up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Optional

from hypothesis import given
from hypothesis import strategies as st

from memtui.agent.blocks import Blocks
from memtui.agent.classify import Births, host_categories
from memtui.agent.identity import Addresses

WORKSPACE = 8_519_680
#: From what counts least to what counts most.
_ORDER = ("optimizer_state", "buffers", "gradients", "parameters")


def segment(*sizes: int, address: int = 1 << 40, free: int = 0, state: str = "active_allocated") -> dict[str, Any]:
    states: list[dict[str, Any]] = [{"size": size, "state": state} for size in sizes]
    if free:
        states.append({"size": free, "state": "inactive"})
    active = sum(sizes)
    sums = {
        "allocated_size": active if state == "active_allocated" else 0,
        "active_size": active,
        "total_size": active + free,
    }
    return {"address": address, "blocks": states, "segment_pool_id": (0, 0), **sums}


def blocks(*sizes: int) -> Blocks:
    return Blocks([segment(*sizes)])


def at(owned: Iterable[tuple[int, str]]) -> Addresses:
    """Tensors by address, as a walk finds them."""
    found: dict[str, list[int]] = {category: [] for category in _ORDER}
    for address, category in owned:
        found[category].append(address)
    gradients, parameters = found.pop("gradients"), found.pop("parameters")
    return Addresses(list(found.items()), gradients, [("parameters", parameters)])


def classify(
    births: Births, found: Blocks, owned: Optional[dict[int, str]], phase: str, **options: bool
) -> dict[str, int]:
    return looked(births, found, None if owned is None else at(owned.items()), phase, **options)


def looked(
    births: Births, found: Blocks, addresses: Optional[Addresses], phase: str, **options: bool
) -> dict[str, int]:
    chosen = {"certain": True, "step_ended": False, **options}
    totals = births.classify(found, addresses, phase, **chosen)
    assert sum(totals.values()) == found.allocated_bytes
    return {name: size for name, size in totals.items() if size}


def test_what_backward_makes_is_undecided_where_no_gradient_was_read() -> None:
    """GIVEN threads that all train, THEN neither gradients nor temporaries are said; once some are read, they are."""
    births = Births(frozenset())
    classify(births, blocks(512), {}, "between")
    found, nothing = blocks(512, 1024, 256), at([])
    nothing.reads_gradients = False
    assert looked(births, found, nothing, "backward") == {"unattributed": 1280, "inputs": 512}
    assert looked(births, found, nothing, "optimizer") == {"unattributed": 1280, "inputs": 512}
    gradient = {(1 << 40) + 512: "gradients"}
    assert classify(births, found, gradient, "between") == {"inputs": 512, "gradients": 1024, "temporaries": 256}


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


def test_what_a_private_pool_holds_is_born_only_where_it_was_not_before() -> None:
    """Gradients that a graph keeps are no inputs and no activations of the step that no longer calls them so."""
    start = 1 << 40

    def look(*sizes: int) -> Blocks:
        return Blocks([{**segment(*sizes), "segment_pool_id": (1, 0)}])

    births = Births(frozenset())
    assert classify(births, look(512), {start: "gradients"}, "optimizer") == {"gradients": 512}
    assert classify(births, look(512), {}, "forward") == {"private_pools": 512}
    assert classify(births, look(512, 1024), {}, "forward") == {"private_pools": 512, "activations": 1024}
    assert classify(births, look(512, 1024, 2048), {}, "between") == {"private_pools": 2560, "activations": 1024}
    unseen = Births(frozenset())
    assert classify(unseen, look(512), {}, "forward", certain=False) == {"private_pools": 512}


def test_free_blocks_tell_fragmentation() -> None:
    segments = [
        *(segment(512, 512, free=4096), segment(free=1 << 20, address=1)),
        {**segment(free=2048, address=1 << 30), "segment_pool_id": (0, 1)},
        segment(256, address=1 << 50, state="active_awaiting_free"),
    ]
    summary = Blocks(segments).summary(7)
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


#: Where in a block of 512 bytes a tensor begins, and whose it is.
_TENSORS = st.lists(st.tuples(st.sampled_from((0, 0, 128, 256)), st.sampled_from(_ORDER)), max_size=2)


@given(st.lists(st.lists(_TENSORS, min_size=1, max_size=6), min_size=2, max_size=6))
def test_what_is_remembered_says_what_looking_afresh_says(heaps: list[list[list[tuple[int, str]]]]) -> None:
    """Each heap's blocks are in two segments, so that one, the other, both or none can be as it was."""
    remembering = Births(frozenset())
    for heap in heaps:
        starts = [(1 + place % 2 << 40) + 512 * place for place in range(len(heap))]
        owned = [(start + inside, category) for start, held in zip(starts, heap) for inside, category in held]
        segments = []
        for address in (1 << 40, 2 << 40):
            there = [start for start in starts if address <= start < address + (1 << 40)]
            here = [{"address": start, "size": 512, "state": "active_allocated"} for start in there]
            segments.append({"address": address, "blocks": here, "allocated_size": 512 * len(here)})
        by_hand: dict[str, int] = {}
        for held in heap:
            # Who begins at the block's beginning, else who counts most.
            first = [category for inside, category in held if not inside] or [category for _, category in held]
            category = max(first, key=_ORDER.index, default="unattributed")
            by_hand[category] = by_hand.get(category, 0) + 512
        assert looked(remembering, Blocks(segments), at(owned), "forward", certain=False) == by_hand
        assert looked(Births(frozenset()), Blocks(segments), at(owned), "forward", certain=False) == by_hand


def test_the_host_rest_is_a_rest() -> None:
    figures, tagged = host_categories(1000, {"parameters": 300, "gradients": 100}, 50)
    assert figures["unattributed"] == 550
    assert (sum(figures.values()), tagged) == (1000, {})
    assert host_categories(100, {"parameters": 300}, -5)[0]["unattributed"] == -200


def test_what_the_program_has_named_is_told_apart() -> None:
    """In the category it was given, beside what is in that by itself."""
    figures, tagged = host_categories(1000, {"buffers": 100, "tagged buffers": 20, "tagged activations": 30}, 50)
    assert (figures["buffers"], figures["activations"], figures["unattributed"]) == (120, 80, 800)
    assert tagged == {"buffers": 20, "activations": 30}
    births = Births(frozenset())
    addresses = Addresses([("tagged inputs", [1 << 40]), ("buffers", [])], [], [])
    for known in (addresses, None):
        totals = births.classify(blocks(512, 1024), known, "between", certain=True, step_ended=False)
        assert {name: size for name, size in totals.items() if size} == {"inputs": 1536}
        assert births.tagged == {"inputs": 512}


def bucket_and(*others: int, number: int = 1) -> Blocks:
    """A bucket at the beginning of a segment, and blocks as large behind it: `number` buckets are looked for."""
    start = 1 << 40
    held = [
        {"address": start + 4096 * place, "size": 4096, "requested_size": size, "state": "active_allocated"}
        for place, size in enumerate((4000, *others))
    ]
    segment = {"address": start, "blocks": held, "allocated_size": 4096 * len(held)}
    return Blocks([segment], Counter({4000: number}))


def test_a_bucket_stays_one_while_gradients_lie_in_it() -> None:
    """GIVEN sizes that may be past, THEN DDP's buckets are told by them once they have outlived a step."""
    births, start = Births(frozenset()), 1 << 40
    assert classify(births, bucket_and(number=0), {}, "backward") == {"temporaries": 4096}
    in_it = {start + 512: "gradients"}
    assert classify(births, bucket_and(number=0), in_it, "optimizer", step_ended=True) == {"gradients": 4096}
    assert classify(births, bucket_and(number=0), {}, "between") == {"communication": 4096}
    assert classify(births, blocks(1024), {}, "forward") == {"activations": 1024}


def test_a_bucket_without_a_double_is_one_at_once() -> None:
    """GIVEN buckets that are there, THEN blocks of their size are these where there are no more than that."""
    births = Births(frozenset())
    assert classify(births, bucket_and(4000), {}, "forward") == {"activations": 8192}
    assert classify(births, bucket_and(4000, number=2), {}, "forward") == {"communication": 8192}
    births = Births(frozenset())
    assert classify(births, bucket_and(3000), {}, "backward") == {"communication": 4096, "temporaries": 4096}
    in_it = {(1 << 40) + 512: "gradients"}
    assert classify(births, bucket_and(), in_it, "optimizer") == {"gradients": 4096}
    assert classify(births, bucket_and(), {}, "between") == {"communication": 4096}
