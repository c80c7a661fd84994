"""ResNet with basic layers, for photographs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ...core.files import Json
from ...models.resnet import DEPTHS, SMALL_SIDE, Settings
from ...nn.network import VectorHead
from ..mapping import Config, HubHead, ModelMapping, TensorMap, layer_maps, read_sizes, require_values

REQUIRED = {"hidden_act": "relu", "layer_type": "basic", "downsample_in_first_stage": False}
DEFAULTS = {"num_channels": 3, "embedding_size": 64, "layer_type": "bottleneck"}  # of a config.json without them


def _settings(config: Config, problems: list[str]) -> Json:
    values: Json = DEFAULTS | dict(config)
    require_values(problems, values, REQUIRED)
    sizes = read_sizes(problems, values, ("embedding_size", "num_channels"))
    layers = next((count for count, depths in DEPTHS.items() if list(depths) == values.get("depths")), None)
    if layers is None:
        supported = ", ".join(str(list(depths)) for depths in DEPTHS.values())
        problems.append(f"depths are {values.get('depths')}; supported: {supported}")
    width = sizes["embedding_size"]
    if values.get("hidden_sizes") != (doubled := [width * 2**stage for stage in range(4)]):
        problems.append(f"hidden_sizes are {values.get('hidden_sizes')}; here they double: {doubled}")
    return {"name": "resnet", "stem": "photographs", "width": width, "layers": layers}


def _config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    stem = tensors["input.resnet.stem.convolution.weight"]
    if stem.shape[-1] != 7:
        problems.append("a stem for small images; `transformers` has that for photographs: model.stem")
    if not settings.skips:
        problems.append("a network without skips: model.skips")
    return REQUIRED | {
        "num_channels": stem.shape[1],
        "embedding_size": settings.width,
        "hidden_sizes": [settings.width * 2**stage for stage in range(4)],
        "depths": list(_depths(settings)),
        "downsample_in_bottleneck": False,
    }


def _depths(settings: Settings) -> tuple[int, ...]:
    return DEPTHS.get(settings.layers or 18, DEPTHS[18])


def _normed_convolution(name: str, hub_name: str) -> list[TensorMap]:
    name, norm = f"input.resnet.{name}", f"{hub_name}.normalization"
    return [
        TensorMap(f"{name}.convolution.weight", (f"{hub_name}.convolution.weight",)),
        *layer_maps(f"{name}.norm", norm),
        TensorMap(f"{name}.norm.mean", (f"{norm}.running_mean",)),
        TensorMap(f"{name}.norm.variance", (f"{norm}.running_var",)),
    ]


def _body(settings: Settings) -> list[TensorMap]:
    entries, block = _normed_convolution("stem", "embedder.embedder"), 0
    for stage, depth in enumerate(_depths(settings)):
        for index in range(depth):
            hub_block = f"encoder.stages.{stage}.layers.{index}"
            entries += _normed_convolution(f"blocks.{block}.first", f"{hub_block}.layer.0")
            entries += _normed_convolution(f"blocks.{block}.second", f"{hub_block}.layer.1")
            if stage and index == 0:
                entries += _normed_convolution(f"blocks.{block}.project", f"{hub_block}.shortcut")
            block += 1
    return entries


def _modules(settings: Settings, config: Config, vocab_size: int) -> dict[str, nn.Module]:
    side = SMALL_SIDE + 1  # the tensors do not depend on the size of a photograph
    inputs = settings.image_input((int(config.get("num_channels", 3)), side, side))
    return {"input": inputs, "backbone": settings.build(inputs.width, 1)}


def _pooled(settings: Settings, inputs: Any, outputs: int) -> VectorHead:
    return VectorHead(inputs.width, outputs, "mean")


_CLASSIFIER = tuple(layer_maps("head.output", "classifier.1"))
_POOLED: Json = {"task_settings": {"pooling": "mean"}, "make": _pooled}
MAPPINGS = (
    ModelMapping(
        "resnet",
        "resnet",
        "resnet.",
        _settings,
        _config,
        _body,
        (
            HubHead("ResNetForImageClassification", "classification", _CLASSIFIER, **_POOLED),
            HubHead("ResNetModel", "classification", optional=_CLASSIFIER, prefixed=False, **_POOLED),
        ),
        (r".*num_batches_tracked",),
        token_tables=(),
        modules=_modules,
        images=True,
        sizes=(),
    ),
)
