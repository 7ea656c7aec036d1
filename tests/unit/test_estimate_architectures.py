"""Parameter counts: the published ones, and those of models that torch builds."""

from __future__ import annotations

from typing import Any

import pytest

from memtui.analysis.estimate.architecture import Transformer, count, weights
from memtui.analysis.estimate.configs import UnknownArchitecture, read_config
from memtui.analysis.estimate.convolutional import CONVNETS, find_convnet
from memtui.analysis.estimate.named import CONFIGS, find_named
from tests.support.programs import require_torch

#: As the publishers' files count them (safetensors' totals, torchvision's tables of weights).
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "tinyllama-1.1b": 1_100_048_384,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "phi-3-mini": 3_821_079_552,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-1b": 1_011_781_632,
    "pythia-6.9b": 6_857_302_016,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
}
PUBLISHED_CONVNETS = {
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
}


def named(name: str) -> Transformer:
    found = find_named(name)
    assert found is not None
    return found


def test_every_named_architecture_has_its_published_count() -> None:
    """Exactly, and none is without one."""
    assert {name: count(weights(named(name))) for name in CONFIGS} == PUBLISHED
    found = {name: find_convnet(name) for name in CONVNETS}
    assert {name: count(model.weights) for name, model in found.items() if model} == PUBLISHED_CONVNETS


def test_names_as_people_write_them() -> None:
    """Capitals, dashes and publishers make no difference; a near miss is not taken for a hit."""
    assert named("meta-llama/Llama-3.2-1B").name == "llama-3.2-1b"
    assert named("GPT2_medium").name == "gpt2-medium"
    assert named("Llama-2-7b-hf").name == "llama-2-7b"
    assert find_named("llama") is None
    assert find_named("gpt2-x") is None


def test_a_bert_is_counted_as_the_class_that_is_built() -> None:
    """The plain model has a pooler and no head; a classifier has both a pooler and a classifier."""
    config = CONFIGS["bert-base"]

    plain = read_config({**config, "architectures": ["BertModel"]})
    classifier = read_config({**config, "architectures": ["BertForSequenceClassification"], "num_labels": 3})

    assert count(weights(plain)) == 109_482_240
    assert count(weights(classifier)) == 109_482_240 + 3 * 768 + 3


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 100,
}


@pytest.mark.torch
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"num_key_value_heads": 8},
        {"head_dim": 24},
        {"tie_word_embeddings": True},
        {"attention_bias": True, "mlp_bias": True},
        {"model_type": "qwen2"},
        {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    ],
)
def test_llamas_are_counted_as_torch_builds_them(changed: dict[str, Any]) -> None:
    """Grouped keys, wider heads, ties, biases and experts, against modules on the meta device."""
    require_torch()
    config = {**LLAMA, **changed}

    assert count(weights(read_config(config))) == _built_llama(config)


def _built_llama(config: dict[str, Any]) -> int:
    import torch
    from torch import nn

    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
    width = config.get("head_dim", hidden // heads)
    bias = config.get("attention_bias", False)
    experts = config.get("num_local_experts", 1)
    with torch.device("meta"):
        embedding = nn.Embedding(config["vocab_size"], hidden)
        modules: list[nn.Module] = [embedding, nn.RMSNorm(hidden)]
        if not config.get("tie_word_embeddings"):
            modules.append(nn.Linear(hidden, config["vocab_size"], bias=False))
        for _ in range(config["num_hidden_layers"]):
            modules += [nn.RMSNorm(hidden), nn.RMSNorm(hidden)]
            for outputs in (heads * width, keys * width, keys * width):
                modules.append(nn.Linear(hidden, outputs, bias=bias or config["model_type"] == "qwen2"))
            modules.append(nn.Linear(heads * width, hidden, bias=bias))
            for _ in range(experts):
                mlp_bias = config.get("mlp_bias", False)
                modules += [nn.Linear(hidden, inner, bias=mlp_bias) for _ in range(2)]
                modules.append(nn.Linear(inner, hidden, bias=mlp_bias))
            if experts > 1:
                modules.append(nn.Linear(hidden, experts, bias=False))
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.torch
def test_a_vision_transformer_is_counted_as_torch_builds_it() -> None:
    """Its blocks are nn.TransformerEncoderLayer's."""
    require_torch()
    import torch
    from torch import nn

    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(768, 12, 3072)
    blocks = count(weight for weight in weights(named("vit-b-16")) if weight.part == "block")

    assert blocks == 12 * sum(parameter.numel() for parameter in layer.parameters())


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ([], "one JSON object"),
        ({}, "no model_type"),
        ({"model_type": "t5"}, "'t5' is not among bert, gemma"),
        ({**LLAMA, "hidden_size": None}, "no hidden_size"),
        ({**LLAMA, "hidden_size": "64"}, "hidden_size must be a whole number"),
        ({**LLAMA, "hidden_size": True}, "hidden_size must be a whole number"),
        ({**LLAMA, "hidden_size": 65}, "65 does not divide into 8 heads"),
        ({**LLAMA, "num_key_value_heads": 3}, "8 heads cannot share 3"),
        ({**LLAMA, "attention_dropout": 2}, "attention_dropout must be from 0 to 1"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false"),
        ({**LLAMA, "model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "3, of 2 experts"),
        ({**CONFIGS["vit-b-16"], "patch_size": 300}, "do not fit into an image"),
    ],
)
def test_configurations_that_cannot_be_read(config: object, part: str) -> None:
    """The message names the field."""
    with pytest.raises(UnknownArchitecture, match=part):
        read_config(config)
