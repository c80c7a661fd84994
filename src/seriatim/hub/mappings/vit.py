"""The Vision Transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn

from ...core.files import Json
from ...models.vit import INIT_STD, Settings
from ...nn.network import VectorHead
from ..mapping import (
    ACTIVATIONS,
    Config,
    HubHead,
    ModelMapping,
    PatchMap,
    TensorMap,
    UnsqueezedMap,
    inverse,
    layer_maps,
    map_value,
    read_sizes,
    require_values,
)

SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feedforward",
    "patch_size": "patch",
}
DEFAULTS = {"patch_size": 16, "image_size": 224, "num_channels": 3}  # of a config.json without them


def _settings(config: Config, problems: list[str]) -> Json:
    require_values(problems, config, {"qkv_bias": True})
    values = DEFAULTS | dict(config)
    read_sizes(problems, values, ("image_size", "num_channels"))
    sizes = read_sizes(problems, values, SIZES)
    return {SIZES[key]: value for key, value in sizes.items()} | {
        "name": "vit",
        "dropout": config.get("hidden_dropout_prob", 0.0),
        "activation": map_value(problems, "hidden_act", config.get("hidden_act", "gelu"), ACTIVATIONS),
        "eps": config.get("layer_norm_eps", 1e-12),
    }


def _config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    patches = PatchMap("", ("",)).write(tensors["input.project.weight"])[""]  # (D,C,s,s)
    if settings.positions != "learned":
        problems.append(f"positions are not learned: model.positions={settings.positions}")
    rows = math.isqrt(len(tensors.get("backbone.positions.weight", ())) - 1) if not problems else 1
    if len(patches) != settings.width:
        problems.append(f"vectors of {len(patches)} for a width of {settings.width}: model.embedding")
    sizes: Json = {key: getattr(settings, name) for key, name in SIZES.items()}
    sizes["intermediate_size"] = 4 * settings.width if settings.feedforward is None else settings.feedforward
    return sizes | {
        "patch_size": patches.shape[-1],
        "image_size": rows * patches.shape[-1],
        "num_channels": patches.shape[1],
        "qkv_bias": True,
        "hidden_act": inverse(ACTIVATIONS)[settings.activation],
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": settings.eps,
        "initializer_range": INIT_STD,
    }


def _body(settings: Settings) -> list[TensorMap]:
    patches = "embeddings.patch_embeddings.projection"
    entries: list[TensorMap] = [
        PatchMap("input.project.weight", (f"{patches}.weight",)),
        TensorMap("input.project.bias", (f"{patches}.bias",)),
        UnsqueezedMap("backbone.class_token", ("embeddings.cls_token",), depth=2),
        UnsqueezedMap("backbone.positions.weight", ("embeddings.position_embeddings",)),
        *layer_maps("backbone.norm", "layernorm"),
    ]
    for index in range(settings.layers):
        block, hub_block = f"backbone.blocks.{index}", f"encoder.layer.{index}"
        inputs = [f"{hub_block}.attention.attention.{part}" for part in ("query", "key", "value")]
        entries += layer_maps(f"{block}.attention.inputs", *inputs)
        entries += layer_maps(f"{block}.attention.output", f"{hub_block}.attention.output.dense")
        entries += layer_maps(f"{block}.attention_norm", f"{hub_block}.layernorm_before")
        entries += layer_maps(f"{block}.feedforward.hidden", f"{hub_block}.intermediate.dense")
        entries += layer_maps(f"{block}.feedforward.output", f"{hub_block}.output.dense")
        entries += layer_maps(f"{block}.feedforward_norm", f"{hub_block}.layernorm_after")
    return entries


def _modules(settings: Settings, config: Config, vocab_size: int) -> dict[str, nn.Module]:
    values = DEFAULTS | dict(config)
    inputs = settings.image_input((values["num_channels"], values["image_size"], values["image_size"]))
    return {"input": inputs, "backbone": settings.build(inputs.width, math.prod(inputs.grid))}


def _class_token_head(settings: Settings, inputs: nn.Module, outputs: int) -> VectorHead:
    return VectorHead(settings.width, outputs, "first", pooler=None)


_CLASSIFIER = tuple(layer_maps("head.output", "classifier"))
_FIRST: Json = {"task_settings": {"pooling": "first"}, "make": _class_token_head}
MAPPINGS = (
    ModelMapping(
        "vit",
        "vit",
        "vit.",
        _settings,
        _config,
        _body,
        (
            HubHead("ViTForImageClassification", "classification", _CLASSIFIER, **_FIRST),
            HubHead("ViTModel", "classification", optional=_CLASSIFIER, prefixed=False, **_FIRST),
        ),
        (r"(vit\.)?pooler\..*",),
        token_tables=(),
        modules=_modules,
        images=True,
        sizes=(),
    ),
)
