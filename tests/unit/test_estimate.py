"""The closed forms: published formulas and figures, and what must hold whatever the model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.estimate.accuracy import PUBLISHED
from memtui.analysis.estimate.activations import Setting, block, token_bytes
from memtui.analysis.estimate.architecture import Transformer
from memtui.analysis.estimate.build import estimate
from memtui.analysis.estimate.configs import read_config
from memtui.analysis.estimate.convolutional import find_convnet
from memtui.analysis.estimate.device import Device, fit
from memtui.analysis.estimate.levers import levers
from memtui.analysis.estimate.named import find_named
from memtui.analysis.estimate.optimizers import IMPLEMENTATIONS, RECIPES
from memtui.analysis.estimate.precision import PRECISIONS
from memtui.analysis.estimate.request import CHECKPOINTING, Contradiction, Freeze, Request
from memtui.analysis.estimate.terms import BLOCKS, CATEGORIES, END, FORWARD, LAST, LOSS, STEP, Estimate, category_bytes

MIB = 2**20
EVERY = frozenset(("qkv", "q", "k", "v", "o", "gate", "up", "down", "norm"))


def named(name: str) -> Transformer:
    found = find_named(name)
    assert found is not None
    return found


def bytes_of(found: Estimate, phase: str) -> int:
    return next(each.bytes for each in found.phases if each.name == phase)


def stored(found: Estimate) -> int:
    return sum(category_bytes(found.terms, name) for name in ("parameters", "gradients", "optimizer state"))


# ---- published formulas and figures ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "precision", "each"),
    [
        ("sgd", "fp32", 8),
        ("momentum", "fp32", 12),
        ("adam", "fp32", 16),
        ("adamw", "tf32", 16),
        ("adamw", "amp-bf16", 16),
        ("adamw", "bf16-mixed", 16),
        ("adamw", "bf16", 8),
        ("lion", "fp32", 12),
        ("amsgrad", "fp32", 20),
        ("rmsprop", "fp32", 12),
        ("adagrad", "fp32", 12),
    ],
)
def test_bytes_a_trained_parameter(optimizer: str, precision: str, each: int) -> None:
    """Weights, gradients and state of a million parameters."""
    request = Request(parameters=10**6, optimizer=RECIPES[optimizer], precision=PRECISIONS[precision])

    assert stored(estimate(request)) == each * 10**6


def test_gradients_wider_than_the_weights() -> None:
    """bf16 weights with fp32 gradients, as Megatron keeps them: 18, and no second fp32 copy for the step."""
    request = Request(parameters=10**6, precision=PRECISIONS["bf16-mixed"], gradient_width=4)
    found = estimate(request)

    assert stored(found) == 18 * 10**6
    assert not any("fp32 for the step" in term.name for term in found.terms)


@pytest.mark.parametrize(("stage", "published"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_as_its_paper_has_it(stage: int, published: float) -> None:
    """7.5 B parameters on 64 devices: the paper's first figure, in GB."""
    request = Request(parameters=7_500_000_000, precision=PRECISIONS["bf16-mixed"], zero=stage, gpus=64)

    assert stored(estimate(request)) / 1e9 == pytest.approx(published, abs=0.06)


@pytest.mark.parametrize(("batch", "sequence"), [(1, 512), (4, 1024)])
def test_a_gpt_block_in_16_bits_is_the_papers(batch: int, sequence: int) -> None:
    """s b h (34 + 5 a s / h), plus the two norms' means and deviations, which the paper leaves out."""
    model = replace(named("gpt2"), activation="gelu")
    setting = Setting(PRECISIONS["bf16"], sequence, False, True, EVERY)
    tokens, heads, hidden = batch * sequence, model.heads, model.hidden

    written = tokens * token_bytes(block(model, setting))
    flash = tokens * token_bytes(block(model, replace(setting, flash=True)))

    assert written == tokens * (34 * hidden + 5 * heads * sequence + 16)
    assert flash == tokens * (34 * hidden + 4 * heads + 16)


def test_the_step_of_foreach_adam_holds_five_copies() -> None:
    """The MLP of 25,175,040 parameters whose measured peak was 504.4 MiB with 24 of data: 5 N P, not 4."""
    found = estimate(Request(parameters=25_175_040))
    workspaces = 2 * 8_519_680

    assert category_bytes(found.terms, "parameters") / MIB == pytest.approx(96.0, abs=0.05)
    assert stored(found) / MIB == pytest.approx(384.1, abs=0.05)
    assert found.peak.name == STEP
    assert found.peak.bytes - workspaces == 5 * 4 * 25_175_040
    fused = estimate(Request(parameters=25_175_040, implementation="fused"))
    assert bytes_of(fused, STEP) - workspaces == 4 * 4 * 25_175_040


def test_the_loss_of_a_large_vocabulary() -> None:
    """Gemma 2's head in 16 bits over 8,192 tokens: 24,000 MiB forward and 28,000 in all were published."""
    request = Request(named("gemma-2-2b"), 0, 1, 8192, PRECISIONS["bf16"], released_logits=True)
    terms = estimate(request).terms
    loss = [term for term in terms if term.name.startswith(("logits", "log-softmax", "gradients of the loss"))]

    assert sum(term.bytes or 0 for term in loss if FORWARD in term.phases) == 24_000 * MIB
    assert sum(term.bytes or 0 for term in loss if LOSS in term.phases) == 28_000 * MIB


def test_the_linear_fit_says_that_it_is_one() -> None:
    """4.6894e-4 N + 1.8494e6 elements a token, with an error of its own, far larger."""
    found = estimate(Request(parameters=1_500_000_000, batch=2, sequence=100, precision=PRECISIONS["bf16"]))
    term = next(term for term in found.terms if term.category == "activations")

    assert term.bytes == pytest.approx(2 * 200 * (4.6894e-4 * 1.5e9 + 1.8494e6), abs=1)
    assert "a linear fit" in term.name
    assert found.error.median > 5 * PUBLISHED.median
    assert any("gives half of it" in sentence for sentence in found.disagreements)


def test_what_a_residual_network_keeps() -> None:
    """Outputs of convolutions for the norms, and of ReLUs for the next convolution: a known figure of ResNet-50."""
    model = find_convnet("resnet-50")
    assert model is not None
    found = estimate(Request(model, batch=1, optimizer=RECIPES["sgd"]))

    assert model.convolved == 11_113_984  # 11.1 M in the tables of Radosavovic et al. 2020
    assert category_bytes(found.terms, "activations") == 4 * (model.convolved + model.activated + 150_528) + 8 * 200_704


def test_optimizers_that_need_shapes() -> None:
    """One matrix of 3 x 5 and a vector of 5, by hand; without shapes their state is unknown, not nothing."""
    tiny = read_config(
        {
            "model_type": "llama",
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 12,
            "vocab_size": 16,
        }
    )

    def state(name: str) -> int:
        found = estimate(Request(tiny, optimizer=RECIPES[name]))
        return category_bytes(found.terms, "optimizer state")

    rows_and_columns = 2 * (16 + 8) + 4 * (8 + 8) + 3 * (12 + 8)
    assert state("adafactor") == 4 * (rows_and_columns + 3 * 8)
    squares = 2 * (16**2 + 8**2) + 4 * (8**2 + 8**2) + 3 * (12**2 + 8**2)
    assert state("shampoo") == 4 * (2 * squares + 3 * 8)
    matrices = 4 * 64 + 3 * 96
    assert state("muon") == 4 * (matrices + 2 * (2 * 128 + 24))
    assert state("adamw8bit") == 2 * 4 * (matrices + 2 * 128 + 24)  # all under 4,096 elements: fp32
    for name in ("adafactor", "shampoo", "muon"):
        unknown = estimate(Request(parameters=10**6, optimizer=RECIPES[name]))
        assert not unknown.complete
        assert any(term.bytes is None and term.category == "optimizer state" for term in unknown.terms)


# ---- what must hold whatever the model ---------------------------------------------------------------

MODELS = st.builds(
    lambda family, layers, heads, groups, width, inner, vocabulary: read_config(
        {
            "model_type": family,
            "num_hidden_layers": layers,
            "hidden_size": heads * groups * width,
            "num_attention_heads": heads * groups,
            "num_key_value_heads": heads,
            "intermediate_size": inner,
            "vocab_size": vocabulary,
            "max_position_embeddings": 4096,
            "n_positions": 4096,
        }
    ),
    st.sampled_from(["llama", "gemma2", "qwen2", "mixtral", "gpt2", "bert", "gpt_neox"]),
    *(st.integers(1, most) for most in (6, 4, 4, 32, 300, 5000)),
)
REQUESTS = st.builds(
    Request,
    model=MODELS,
    batch=st.integers(1, 16),
    sequence=st.integers(1, 2048),
    precision=st.sampled_from(list(PRECISIONS.values())),
    optimizer=st.sampled_from(list(RECIPES.values())),
    implementation=st.sampled_from([None, *IMPLEMENTATIONS]),
    accumulation=st.integers(1, 3),
    flash=st.booleans(),
    checkpointing=st.sampled_from(CHECKPOINTING),
    dropout=st.booleans(),
    kept_gradients=st.booleans(),
    released_logits=st.booleans(),
)


@given(REQUESTS)
def test_categories_add_up_and_the_peak_is_a_phase(request: Request) -> None:
    """A phase is the sum of its categories, a category that of its terms; the peak is no more than any phase's."""
    found = estimate(request)

    for phase in found.phases:
        alive = [term for term in found.terms if phase.name in term.phases]
        assert phase.bytes == sum(phase.bytes_by_category.values()) == sum(term.bytes or 0 for term in alive)
    assert found.peak.bytes == max(phase.bytes for phase in found.phases)
    assert {term.category for term in found.terms} <= set(CATEGORIES)
    assert found.complete
    assert all(term.bytes for term in found.terms)


@given(REQUESTS, st.integers(1, 8), st.integers(1, 512))
def test_more_samples_or_tokens_never_take_less(request: Request, samples: int, tokens: int) -> None:
    """In every phase."""
    assert request.batch is not None
    assert request.sequence is not None
    here = estimate(request).phases
    larger = estimate(replace(request, batch=request.batch + samples)).phases
    longer = estimate(replace(request, sequence=request.sequence + tokens)).phases

    for one, two, three in zip(here, larger, longer):
        assert one.bytes <= two.bytes
        assert one.bytes <= three.bytes


@given(REQUESTS, st.integers(2, 64))
def test_zero_3_divides_what_it_shards(request: Request, gpus: int) -> None:
    """Parameters, gradients and state are an even share, up to a byte a term; stages never take more than the last."""
    whole = estimate(request)
    stages = [estimate(replace(request, zero=stage, gpus=gpus)) for stage in range(4)]

    for category in ("parameters", "gradients", "optimizer state"):
        terms = sum(term.category == category for term in whole.terms)
        all_of_it, part = category_bytes(whole.terms, category), category_bytes(stages[3].terms, category)
        assert all_of_it <= gpus * part <= all_of_it + gpus * terms
    kept = [stored(found) for found in stages]
    assert kept == sorted(kept, reverse=True)


@given(REQUESTS)
def test_levers_do_not_make_it_worse(request: Request) -> None:
    """Checkpoints keep less for backward, flash attention no more than written-out scores, no dropout no masks."""
    plain = replace(request, checkpointing="none")

    def kept(changed: Request) -> int:
        found = estimate(changed)
        return next(phase.bytes_by_category["activations"] for phase in found.phases if phase.name == FORWARD)

    assert kept(replace(plain, checkpointing="full")) <= kept(plain)
    assert kept(replace(plain, checkpointing="selective")) <= kept(plain)
    assert kept(replace(plain, dropout=False)) <= kept(plain)
    long = replace(plain, sequence=2048)
    assert kept(replace(long, flash=True)) <= kept(replace(long, flash=False)) + 16 * 2048 * 512


@given(REQUESTS, st.integers(1, 6))
def test_frozen_blocks_take_no_gradients_and_keep_nothing(request: Request, blocks: int) -> None:
    """The more of them, the less of each; no more than there are."""
    assert isinstance(request.model, Transformer)
    if blocks > request.model.layers:
        with pytest.raises(Contradiction):
            estimate(replace(request, freeze=Freeze(blocks=blocks)))
        return
    free = estimate(request)
    frozen = estimate(replace(request, freeze=Freeze(blocks=blocks)))

    assert frozen.trained < free.trained
    assert frozen.parameters == free.parameters
    for category in ("gradients", "optimizer state", "activations"):
        assert category_bytes(frozen.terms, category) <= category_bytes(free.terms, category)


# ---- what an option does -----------------------------------------------------------------------------

GPT = Request(named("gpt2-medium"), batch=8, sequence=1024, precision=PRECISIONS["amp-bf16"])


def test_adapters_alone_are_trained() -> None:
    """Rank 8 on q and v of Llama 3 8B: the count that the paper's rule gives, and little else than the weights."""
    request = Request(named("llama-3-8b"), 0, 1, 512, PRECISIONS["bf16"], lora_rank=8)
    found = estimate(request)

    assert found.trained == 32 * 8 * ((4096 + 4096) + (4096 + 1024))
    assert found.parameters == 8_030_261_248 + found.trained
    assert stored(found) == 2 * 8_030_261_248 + 8 * found.trained
    whole = estimate(replace(request, lora_rank=0))
    assert category_bytes(found.terms, "activations") < category_bytes(whole.terms, "activations")
    fused = estimate(Request(named("gpt2"), lora_rank=4))
    assert fused.trained == 12 * 4 * (768 + 3 * 768)


def test_gradients_that_are_kept_are_there_in_forward() -> None:
    """With micro-batches, and with zeroed gradients; not in a plain loop before backward."""
    plain, several = estimate(GPT), estimate(replace(GPT, accumulation=4))
    zeroed = estimate(replace(GPT, kept_gradients=True))
    gradients = 4 * 354_823_168

    assert plain.phases[0].bytes_by_category["gradients"] == 0
    assert several.phases[0].bytes_by_category["gradients"] == gradients
    assert zeroed.phases[0].bytes_by_category["gradients"] == gradients
    assert category_bytes(several.terms, "activations") == category_bytes(plain.terms, "activations")


def test_buckets_of_ddp_are_a_copy_unless_they_are_views() -> None:
    """Four bytes a parameter, in every phase."""
    copied = estimate(replace(GPT, gpus=4))
    viewed = estimate(replace(GPT, gpus=4, bucket_view=True))

    assert [phase.bytes_by_category["communication"] for phase in copied.phases] == [4 * 354_823_168] * 6
    assert category_bytes(viewed.terms, "communication") == 0


def test_autocast_copies_live_until_backward() -> None:
    """Two bytes for what linear layers hold, the tied head among them; none in the step, none of FSDP's own."""
    matrices = 24 * 12 * 1024**2 + 50257 * 1024
    term = next(term for term in estimate(GPT).terms if term.name == "autocast's copies of weights")

    assert term.bytes == 2 * matrices
    assert term.phases == {LAST, FORWARD, LOSS, BLOCKS}
    sharded = estimate(replace(GPT, zero=3, gpus=8))
    assert not any("copies of weights" in term.name for term in sharded.terms)


def test_logits_stay_as_long_as_the_program_holds_them() -> None:
    """To the end of the backward pass, or of the forward pass."""
    held = next(term for term in estimate(GPT).terms if term.name == "logits")
    released = next(term for term in estimate(replace(GPT, released_logits=True)).terms if term.name == "logits")

    assert held.phases == {FORWARD, LOSS, BLOCKS, END}
    assert released.phases == {FORWARD}


@given(REQUESTS)
def test_a_lever_lowers_the_peak(request: Request) -> None:
    """By the share that makes it worth a line; the strongest is first."""
    before = estimate(request).peak.bytes
    found = levers(request)

    assert all(lever.peak_bytes <= 0.98 * before for lever in found)
    assert [lever.peak_bytes for lever in found] == sorted(lever.peak_bytes for lever in found)


def test_levers_are_those_of_what_dominates() -> None:
    """Activations: checkpoints, fewer samples. State: less of it, or more devices; nothing that needs a batch."""
    activations = [lever.words for lever in levers(GPT)]
    state = levers(Request(parameters=7 * 10**9))

    assert activations[0] == "full checkpointing"
    assert "micro-batches of 4, twice as many" in activations
    assert [lever.words for lever in state] == ["ZeRO-2 on 8 devices", "8-bit AdamW", "fused optimizer"]
    assert all(lever.lower_bound for lever in state)


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"zero": 2}, "--gpus"),
        ({"sequence": 2048}, "1,024 positions"),
        ({"freeze": Freeze(blocks=25)}, "has 24 blocks"),
        ({"freeze": Freeze(parameters=10**9)}, "354,823,168 parameters"),
        ({"lora_rank": 8, "lora_targets": ("gate",)}, "has qkv, o, up, down"),
        ({"lora_rank": 8, "freeze": Freeze(embeddings=True)}, "leave --freeze out"),
        ({"model": None, "parameters": 10**6, "lora_rank": 8}, "name an architecture"),
        ({"model": None, "parameters": 10**6, "freeze": Freeze(blocks=1)}, "a number of parameters"),
        ({"model": named("vit-b-16"), "sequence": 10}, "197 tokens an image"),
        ({"model": find_convnet("resnet-18"), "checkpointing": "full"}, "for transformers"),
    ],
)
def test_what_does_not_go_together(changed: dict[str, object], part: str) -> None:
    """The message says what mends it."""
    with pytest.raises(Contradiction, match=part):
        estimate(replace(GPT, **changed))  # type: ignore[arg-type]


def test_without_a_batch_the_peak_is_a_lower_bound() -> None:
    """Activations are unknown, not nothing."""
    found = estimate(replace(GPT, batch=None))

    assert not found.complete
    assert [term.formula for term in found.terms if term.bytes is None] == ["needs --batch"]


def test_a_device_fits_only_beyond_the_known_error() -> None:
    """With the margin on both sides; a lower bound never fits; the context counts where it is known."""
    gib = 2**30

    def answer(peak: int, capacity: int, least: int = 0, context: int | None = None, complete: bool = True) -> str:
        found = fit(peak, least, Device("", capacity, context), PUBLISHED, complete=complete)
        assert found is not None
        return found.answer

    assert answer(10 * gib, 80 * gib) == "fits"
    assert answer(75 * gib, 80 * gib) == "cannot be told"
    assert answer(90 * gib, 80 * gib) == "cannot be told"
    assert answer(90 * gib, 80 * gib, least=81 * gib) == "does not fit"
    assert answer(120 * gib, 80 * gib) == "does not fit"
    assert answer(10 * gib, 80 * gib, complete=False) == "cannot be told"
    assert answer(60 * gib, 80 * gib) == "fits"
    assert answer(60 * gib, 80 * gib, context=6 * gib) == "cannot be told"
    assert fit(1, 1, Device(""), PUBLISHED, complete=True) is None
