"""ResNet: a deep stack of convolutions with ways around them, for pictures.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2016); the network itself is nn/resnet.py:

    block(x) = relu(F(x) + x)        F = norm(W₂ * relu(norm(W₁ * x)))

It stands in the input: what it gives is a grid of vectors, a sequence like any other, row by row; the head pools them.
The paper's two forms are here: for small pictures three stages behind a 3×3 stem, 6n+2 layers (8, 14, 20, … 56, 110);
for photographs four stages behind a 7×7 stem and a pool, 18 or 34 layers. Where shapes change, the skip is a projection
(the paper's option B). `skips: false` is the paper's plain network, which shows what skips are for.
Initialisation: He's, and the scale of each block's last norm starts at 1 like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.exchange import Entry, Form, Head, choose, layer, whole
from ..nn.backbone import Backbone, BackboneSettings
from ..nn.dropout import Dropout
from ..nn.heads import VectorHead
from ..nn.pictures import Grid, Shape
from ..nn.resnet import ResNet, Stem
from ..nn.trace import Trace, show

PRESETS: dict[str, dict[str, Any]] = {
    "small": {"stem": "small", "layers": 8, "width": 32},
    "18": {"stem": "photographs", "layers": 18, "width": 64},
    "34": {"stem": "photographs", "layers": 34, "width": 64},
}
SMALL = 64  # pixels a side, at most, of a small picture
FULL = 32  # up to here its first stage sees every pixel; above, every second of a row and of a column
DEPTHS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # blocks of each stage, for photographs


class Still(Backbone):
    """Gives on what it gets: all was done by the input."""

    causal = False

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        y: Tensor = self.dropout(x)
        show(trace, "hidden", y, mask)
        return y, None


class Settings(BackboneSettings):
    causal: ClassVar[bool] = False
    pictures: ClassVar[bool] = True
    fine: ClassVar[str] = "width"  # there is no second size

    preset: Literal["small", "18", "34"] | None = Field(
        None, description="sizes for what is not named: small pictures, or the paper's 18 or 34 layers for photographs"
    )
    width: int = Field(
        32,
        ge=1,
        le=65_536,
        description="channels of the first stage, doubled by each later one; `--params` solves for it",
    )
    layers: int | None = Field(
        None, ge=8, le=1_202, description="6n+2 for small pictures; 10, 18 or 34 for photographs (default: 8 or 18)"
    )
    stem: Stem | None = Field(
        None, description="what pictures it is made for (default: small up to 64 pixels a side, else photographs)"
    )
    skips: bool = Field(True, description="ways around the convolutions; without, deep networks hardly learn")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("preset") is None:
            return values
        preset = str(values["preset"])  # 18 is a number where nobody quotes it
        return PRESETS.get(preset, {}) | dict(values) | {"preset": preset}

    def picture_input(self, shape: Shape) -> Grid:
        return Grid(shape, self.resnet(shape))

    def resnet(self, shape: Shape) -> ResNet:
        """The network for pictures of one shape."""
        side = max(shape[1:])
        small = side <= SMALL if self.stem is None else self.stem == "small"
        depths = self._small_depths() if small else self._photograph_depths()
        widths = [self.width * 2**stage for stage in range(len(depths))]
        stem: Stem = "small" if small else "photographs"
        return ResNet(shape[0], widths, depths, stem, 1 if side <= FULL else 2, self.skips)

    def _small_depths(self) -> tuple[int, ...]:
        layers = 8 if self.layers is None else self.layers
        if (layers - 2) % 6:
            cause = f"{layers} layers cannot be shared evenly among three stages"
            raise SeriatimError("model.layers", cause, "choose 8, 14, 20, 56 or another 6n+2")
        return ((layers - 2) // 6,) * 3

    def _photograph_depths(self) -> tuple[int, ...]:
        layers = 18 if self.layers is None else self.layers
        if layers not in DEPTHS:
            cause = f"there is no form of {layers} layers for photographs"
            raise SeriatimError("model.layers", cause, "choose 10, 18 or 34, or model.stem=small")
        return DEPTHS[layers]

    def build(self, inputs: int, length: int) -> Still:
        return Still(inputs, self.dropout)


# The same in the format of `transformers`: what it calls basic layers, for photographs

PLAIN = {"hidden_act": "relu", "layer_type": "basic", "downsample_in_first_stage": False}
DEFAULTS = {"num_channels": 3, "embedding_size": 64, "layer_type": "bottleneck"}  # of a config.json that does not say


def _from_hub(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    known: dict[str, Any] = DEFAULTS | dict(config)
    for name, value in PLAIN.items():
        choose(problems, name, known.get(name, value), {value: 0})
    sizes = whole(problems, known, ("embedding_size", "num_channels"))
    layers = next((count for count, depths in DEPTHS.items() if list(depths) == known.get("depths")), None)
    if layers is None:
        each = ", ".join(str(list(depths)) for depths in DEPTHS.values())
        problems.append(f"depths are {known.get('depths')}; what is known here: {each}")
    width = sizes["embedding_size"]
    if known.get("hidden_sizes") != (doubled := [width * 2**stage for stage in range(4)]):
        problems.append(f"hidden_sizes are {known.get('hidden_sizes')}; here they double: {doubled}")
    return {"name": "resnet", "stem": "photographs", "width": width, "layers": layers}


def _to_hub(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    stem = tensors["input.resnet.stem.convolution.weight"]
    if stem.shape[-1] != 7:
        problems.append("a stem for small pictures; that of photographs is known there: model.stem")
    if not settings.skips:
        problems.append("a network without skips: model.skips")
    return PLAIN | {
        "num_channels": stem.shape[1],
        "embedding_size": settings.width,
        "hidden_sizes": [settings.width * 2**stage for stage in range(4)],
        "depths": list(_depths(settings)),
        "downsample_in_bottleneck": False,
    }


def _depths(settings: Settings) -> tuple[int, ...]:
    return DEPTHS.get(settings.layers or 18, DEPTHS[18])


def _normed(ours: str, theirs: str) -> list[Entry]:
    ours, norm = f"input.resnet.{ours}", f"{theirs}.normalization"
    return [
        Entry(f"{ours}.convolution.weight", (f"{theirs}.convolution.weight",)),
        *layer(f"{ours}.norm", norm),
        Entry(f"{ours}.norm.mean", (f"{norm}.running_mean",)),
        Entry(f"{ours}.norm.variance", (f"{norm}.running_var",)),
    ]


def _body(settings: Settings) -> list[Entry]:
    found, block = _normed("stem", "embedder.embedder"), 0
    for stage, depth in enumerate(_depths(settings)):
        for index in range(depth):
            theirs = f"encoder.stages.{stage}.layers.{index}"
            found += _normed(f"blocks.{block}.first", f"{theirs}.layer.0")
            found += _normed(f"blocks.{block}.second", f"{theirs}.layer.1")
            if stage and index == 0:
                found += _normed(f"blocks.{block}.project", f"{theirs}.shortcut")
            block += 1
    return found


def _modules(settings: Settings, config: Mapping[str, Any], vocabulary: int) -> dict[str, nn.Module]:
    side = SMALL + 1  # any size of a photograph gives the same tensors
    inputs = settings.picture_input((int(config.get("num_channels", 3)), side, side))
    return {"input": inputs, "backbone": settings.build(inputs.width, 1)}


def _pooled(settings: Settings, inputs: Any, outputs: int) -> VectorHead:
    return VectorHead(inputs.width, outputs, "mean")


_LABELS = tuple(layer("head.output", "classifier.1"))
_POOLED: dict[str, Any] = {"options": {"pooling": "mean"}, "make": _pooled}
HUB = (
    Form(
        "resnet",
        "resnet.",
        _from_hub,
        _to_hub,
        _body,
        (
            Head("ResNetForImageClassification", "classify", _LABELS, **_POOLED),
            Head("ResNetModel", "classify", optional=_LABELS, prefixed=False, **_POOLED),
        ),
        (r".*num_batches_tracked",),
        tables=(),
        modules=_modules,
        pictures=True,
        sizes=(),
    ),
)
