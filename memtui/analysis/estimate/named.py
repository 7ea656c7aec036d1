"""Architectures by name, as their publishers' configurations give them."""

from __future__ import annotations

from typing import Any

from .architecture import Transformer
from .configs import read_config


def _gpt2(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    shape = {"n_layer": layers, "n_embd": hidden, "n_head": heads, "n_positions": 1024, "vocab_size": 50257}
    return {"model_type": "gpt2", **shape}


def _llama(
    family: str, layers: int, hidden: int, heads: int, kv_heads: int, inner: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": family,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        **more,
    }


def _bert(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    return _llama("bert", layers, hidden, heads, heads, 4 * hidden, 30522, max_position_embeddings=512)


def _vit(layers: int, hidden: int, heads: int, patch: int) -> dict[str, Any]:
    shape = {"image_size": 224, "patch_size": patch, "fused_qkv": True}
    return _llama("vit", layers, hidden, heads, heads, 4 * hidden, 1, **shape)


_TIED = {"tie_word_embeddings": True}
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}

CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "llama-2-7b": _llama("llama", 32, 4096, 32, 32, 11008, 32000),
    "llama-2-13b": _llama("llama", 40, 5120, 40, 40, 13824, 32000),
    "llama-2-70b": _llama("llama", 80, 8192, 64, 8, 28672, 32000),
    "llama-3-8b": _llama("llama", 32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b": _llama("llama", 80, 8192, 64, 8, 28672, 128256),
    "llama-3.1-405b": _llama("llama", 126, 16384, 128, 8, 53248, 128256),
    "llama-3.2-1b": _llama("llama", 16, 2048, 32, 8, 8192, 128256, head_dim=64, **_TIED),
    "llama-3.2-3b": _llama("llama", 28, 3072, 24, 8, 8192, 128256, head_dim=128, **_TIED),
    "tinyllama-1.1b": _llama("llama", 22, 2048, 32, 4, 5632, 32000),
    "mistral-7b": _llama("mistral", 32, 4096, 32, 8, 14336, 32000),
    "mixtral-8x7b": _llama("mixtral", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
    "phi-3-mini": _llama("phi3", 32, 3072, 32, 32, 8192, 32064),
    "qwen2.5-0.5b": _llama("qwen2", 24, 896, 14, 2, 4864, 151936, **_TIED),
    "qwen2.5-1.5b": _llama("qwen2", 28, 1536, 12, 2, 8960, 151936, **_TIED),
    "qwen2.5-3b": _llama("qwen2", 36, 2048, 16, 2, 11008, 151936, **_TIED),
    "qwen2.5-7b": _llama("qwen2", 28, 3584, 28, 4, 18944, 152064),
    "qwen2.5-14b": _llama("qwen2", 48, 5120, 40, 8, 13824, 152064),
    "qwen2.5-32b": _llama("qwen2", 64, 5120, 40, 8, 27648, 152064),
    "qwen2.5-72b": _llama("qwen2", 80, 8192, 64, 8, 29568, 152064),
    "gemma-2b": _llama("gemma", 18, 2048, 8, 1, 16384, 256000, head_dim=256),
    "gemma-7b": _llama("gemma", 28, 3072, 16, 16, 24576, 256000, head_dim=256),
    "gemma-2-2b": _llama("gemma2", 26, 2304, 8, 4, 9216, 256000, head_dim=256, **_CAPS),
    "gemma-2-9b": _llama("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256, **_CAPS),
    "gemma-2-27b": _llama("gemma2", 46, 4608, 32, 16, 36864, 256000, head_dim=128, **_CAPS),
    "gpt-neox-20b": _llama("gpt_neox", 44, 6144, 64, 64, 24576, 50432),
    "pythia-1b": _llama("gpt_neox", 16, 2048, 8, 8, 8192, 50304),
    "pythia-6.9b": _llama("gpt_neox", 32, 4096, 32, 32, 16384, 50432),
    "bert-base": _bert(12, 768, 12),
    "bert-large": _bert(24, 1024, 16),
    "vit-b-16": _vit(12, 768, 12, 16),
    "vit-l-16": _vit(24, 1024, 16, 16),
}


def find_named(name: str) -> Transformer | None:
    """The architecture of that name, whatever its capitals, dashes and publisher in front; None if not here."""
    wanted = _plain(name.rpartition("/")[2])
    for known, config in CONFIGS.items():
        if wanted in (_plain(known), _plain(known) + "hf"):
            return read_config(config, known)
    return None


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum() or character == ".")
