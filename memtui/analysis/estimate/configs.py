"""Architectures as Hugging Face's config.json describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from .architecture import Transformer

_Config = Mapping[str, Any]


class UnknownArchitecture(ValueError):
    """A configuration that cannot be read; the message says which field, and what to do."""


class _Fields:
    """A configuration's fields by their types, or an UnknownArchitecture that names the field."""

    def __init__(self, config: _Config) -> None:
        self._config = config

    def whole(self, *names: str, default: int | None = None) -> int:
        """The first of `names` that is there: a whole number of at least 1."""
        for name in names:
            value = self._config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**40:
                raise UnknownArchitecture(f"{name} must be a whole number of at least 1, not {value!r:.40}")
            return value
        if default is None:
            raise UnknownArchitecture(f"the configuration has no {names[0]}")
        return default

    def share(self, name: str, default: float) -> float:
        """A dropout: 0 to 1."""
        value = self._config.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise UnknownArchitecture(f"{name} must be from 0 to 1, not {value!r:.40}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._config.get(name, default)
        if not isinstance(value, bool):
            raise UnknownArchitecture(f"{name} must be true or false, not {value!r:.40}")
        return value

    def word(self, name: str, default: str) -> str:
        """Some text."""
        value = self._config.get(name, default)
        return value if isinstance(value, str) else default

    def has(self, name: str) -> bool:
        """Whether the field is there and says something."""
        return self._config.get(name) is not None

    def head_of(self, kind: str) -> bool:
        """Whether the class that is to be built is, say, one ForSequenceClassification."""
        classes = self._config.get("architectures")
        return isinstance(classes, list) and any(isinstance(name, str) and name.endswith(kind) for name in classes)


def read_config(config: object, name: str = "") -> Transformer:
    """The architecture of a config.json's content; raises UnknownArchitecture, with one line."""
    if not isinstance(config, Mapping):
        raise UnknownArchitecture("a configuration is one JSON object with a model_type")
    family = config.get("model_type")
    if not isinstance(family, str):
        raise UnknownArchitecture("the configuration has no model_type")
    if family not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise UnknownArchitecture(f"model_type {family!r:.40} is not among {known}: give --params instead")
    model = _FAMILIES[family](_Fields(config), name or family)
    if model.heads % model.kv_heads:
        raise UnknownArchitecture(f"{model.heads} heads cannot share {model.kv_heads} of keys and values")
    return model


def _head_dim(fields: _Fields, hidden: int, heads: int) -> int:
    if not fields.has("head_dim") and hidden % heads:
        raise UnknownArchitecture(f"a width of {hidden} does not divide into {heads} heads")
    return fields.whole("head_dim", default=hidden // heads)


def _gpt2(fields: _Fields, name: str) -> Transformer:
    hidden, heads = fields.whole("n_embd", "hidden_size"), fields.whole("n_head", "num_attention_heads")
    return Transformer(
        name,
        layers=fields.whole("n_layer", "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=_head_dim(fields, hidden, heads),
        inner=fields.whole("n_inner", default=4 * hidden),
        vocabulary=fields.whole("vocab_size"),
        positions=fields.whole("n_positions", "n_ctx", "max_position_embeddings"),
        activation=fields.word("activation_function", "gelu_new"),
        fused_qkv=True,
        tied=fields.flag("tie_word_embeddings", True),
        loss_fp32=True,
        hidden_dropout=fields.share("resid_pdrop", 0.1),
        attention_dropout=fields.share("attn_pdrop", 0.1),
        embedding_dropout=fields.share("embd_pdrop", 0.1),
    )


def _gpt_neox(fields: _Fields, name: str) -> Transformer:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    return Transformer(
        name,
        layers=fields.whole("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=_head_dim(fields, hidden, heads),
        inner=fields.whole("intermediate_size"),
        vocabulary=fields.whole("vocab_size"),
        activation=fields.word("hidden_act", "gelu"),
        qkv_bias=fields.flag("attention_bias", True),
        output_bias=fields.flag("attention_bias", True),
        fused_qkv=True,
        tied=fields.flag("tie_word_embeddings", False),
        softmax_fp32=True,
        loss_fp32=True,
        hidden_dropout=fields.share("hidden_dropout", 0.0),
        attention_dropout=fields.share("attention_dropout", 0.0),
        embedding_dropout=fields.share("hidden_dropout", 0.0),
    )


def _llama(fields: _Fields, name: str, **special: Any) -> Transformer:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    chosen: dict[str, Any] = {
        "qkv_bias": fields.flag("attention_bias", False),
        "output_bias": fields.flag("attention_bias", False),
        "mlp_bias": fields.flag("mlp_bias", False),
        "tied": fields.flag("tie_word_embeddings", False),
        "activation": fields.word("hidden_act", "silu"),
        **special,
    }
    return Transformer(
        name,
        layers=fields.whole("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads", default=heads),
        head_dim=_head_dim(fields, hidden, heads),
        inner=fields.whole("intermediate_size"),
        vocabulary=fields.whole("vocab_size"),
        gated=True,
        norm=chosen.pop("norm", "rms"),
        norm_vectors=1,
        attention_dropout=fields.share("attention_dropout", 0.0),
        softmax_fp32=True,
        loss_fp32=True,
        **chosen,
    )


def _mistral(fields: _Fields, name: str) -> Transformer:
    return _llama(fields, name, qkv_bias=False, output_bias=False, mlp_bias=False)


def _qwen2(fields: _Fields, name: str) -> Transformer:
    return _llama(fields, name, qkv_bias=True, output_bias=False, mlp_bias=False)


def _qwen3(fields: _Fields, name: str) -> Transformer:
    if not fields.has("head_dim"):
        return _llama(fields, name, qk_norm=True, head_dim=128)
    return _llama(fields, name, qk_norm=True)


def _gemma(fields: _Fields, name: str) -> Transformer:
    activation = fields.word("hidden_activation", "gelu_pytorch_tanh")
    return _llama(fields, name, norm="gemma", tied=fields.flag("tie_word_embeddings", True), activation=activation)


def _gemma2(fields: _Fields, name: str) -> Transformer:
    return _llama(
        fields,
        name,
        norm="gemma",
        norms=4,
        tied=fields.flag("tie_word_embeddings", True),
        activation=fields.word("hidden_activation", "gelu_pytorch_tanh"),
        score_cap=fields.has("attn_logit_softcapping"),
        logit_cap=fields.has("final_logit_softcapping"),
    )


def _mixtral(fields: _Fields, name: str) -> Transformer:
    experts, chosen = fields.whole("num_local_experts", default=8), fields.whole("num_experts_per_tok", default=2)
    if chosen > experts:
        raise UnknownArchitecture(f"num_experts_per_tok is {chosen}, of {experts} experts")
    return _llama(
        fields, name, qkv_bias=False, output_bias=False, mlp_bias=False, experts=experts, experts_per_token=chosen
    )


def _bert(fields: _Fields, name: str) -> Transformer:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    classifier = fields.head_of("ForSequenceClassification")
    masked = not classifier and not fields.head_of("Model")
    return Transformer(
        name,
        layers=fields.whole("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=_head_dim(fields, hidden, heads),
        inner=fields.whole("intermediate_size"),
        vocabulary=fields.whole("vocab_size"),
        positions=fields.whole("max_position_embeddings"),
        segments=fields.whole("type_vocab_size", default=2),
        activation=fields.word("hidden_act", "gelu"),
        tied=True,
        classes=fields.whole("num_labels", default=2) if classifier else None if masked else 0,
        pooler=not masked,
        masked_head=masked,
        embedding_norm=True,
        final_norm=False,
        hidden_dropout=fields.share("hidden_dropout_prob", 0.1),
        attention_dropout=fields.share("attention_probs_dropout_prob", 0.1),
        embedding_dropout=fields.share("hidden_dropout_prob", 0.1),
    )


def _vit(fields: _Fields, name: str) -> Transformer:
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    image, patch = fields.whole("image_size"), fields.whole("patch_size")
    if patch > image:
        raise UnknownArchitecture(f"patches of {patch} do not fit into an image of {image}")
    return Transformer(
        name,
        layers=fields.whole("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=_head_dim(fields, hidden, heads),
        inner=fields.whole("intermediate_size"),
        vocabulary=0,
        positions=(image // patch) ** 2 + 1,
        activation=fields.word("hidden_act", "gelu"),
        # Those by name are torchvision's, built on nn.MultiheadAttention.
        fused_qkv=fields.flag("fused_qkv", False),
        output_copy=fields.flag("fused_qkv", False),
        classes=fields.whole("num_labels", default=1000),
        hidden_dropout=fields.share("hidden_dropout_prob", 0.0),
        attention_dropout=fields.share("attention_probs_dropout_prob", 0.0),
        embedding_dropout=fields.share("hidden_dropout_prob", 0.0),
        patch=patch,
        image=image,
    )


_FAMILIES: dict[str, Callable[[_Fields, str], Transformer]] = {
    "bert": _bert,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "phi3": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "vit": _vit,
}
