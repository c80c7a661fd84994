"""ResNet: a deep stack of convolutions with skip connections, for images.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2016); the network itself is nn/images.py:

    block(x) = relu(F(x) + x)        F = norm(W₂ * relu(norm(W₁ * x)))

The network is the input module: it gives a grid of vectors, a sequence row by row, which the head pools. There are the
paper's two forms: for small images three stages after a 3×3 stem, 6n+2 layers (8, 14, 20, … 56, 110); for photographs
four stages after a 7×7 stem and a pool, 18 or 34 layers. If shapes change, the skip is a projection (the paper's option
B). `skips: false` is the paper's plain network, which shows what skips are for.
Initialization: He's; the scale of each block's last norm starts at 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.state import State
from ..nn.backbone import Backbone, BackboneSettings, Trace, record
from ..nn.images import FeatureMapInput, ImageShape, ResNet, Stem
from ..nn.layers import Dropout

PRESETS: dict[str, dict[str, object]] = {
    "small": {"stem": "small", "layers": 8, "width": 32},
    "18": {"stem": "photographs", "layers": 18, "width": 64},
    "34": {"stem": "photographs", "layers": 34, "width": 64},
}
SMALL_SIDE = 64  # pixels, at most, of a small image
FULL_RESOLUTION_SIDE = 32  # up to here the stem has stride 1, above stride 2
DEPTHS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # blocks of each stage, for photographs


class DropoutBackbone(Backbone):
    """Returns its inputs with dropout: the input module is the network."""

    causal = False

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        y: Tensor = self.dropout(x)
        record(trace, "hidden", y, mask)
        return y, None


class Settings(BackboneSettings):
    title: ClassVar[str] = "ResNet"
    causal: ClassVar[bool] = False
    modality: ClassVar[str | None] = "image"
    budget_field: ClassVar[str] = "width"  # there is no second size

    preset: Literal["small", "18", "34"] | None = Field(
        None, description="default sizes: small images, or the paper's 18 or 34 layers for photographs"
    )
    width: int = Field(
        32,
        ge=1,
        le=65_536,
        description="channels of the first stage, doubled by each later one; `--params` solves for it",
    )
    layers: int | None = Field(
        None, ge=8, le=1_202, description="6n+2 for small images; 10, 18 or 34 for photographs (default: 8 or 18)"
    )
    stem: Stem | None = Field(
        None, description="for which images (default: small up to 64 pixels a side, else photographs)"
    )
    skips: bool = Field(True, description="skip connections; without them deep networks hardly train")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        if not isinstance(values, Mapping) or values.get("preset") is None:
            return values
        preset = str(values["preset"])  # 18 is a number in YAML
        return PRESETS.get(preset, {}) | dict(values) | {"preset": preset}

    def image_input(self, shape: ImageShape) -> FeatureMapInput:
        return FeatureMapInput(shape, self.resnet(shape))

    def resnet(self, shape: ImageShape) -> ResNet:
        """Returns the network for images of one shape."""
        side = max(shape[1:])
        small = side <= SMALL_SIDE if self.stem is None else self.stem == "small"
        depths = self._small_depths() if small else self._photograph_depths()
        widths = [self.width * 2**stage for stage in range(len(depths))]
        stem: Stem = "small" if small else "photographs"
        return ResNet(shape[0], widths, depths, stem, 1 if side <= FULL_RESOLUTION_SIDE else 2, self.skips)

    def _small_depths(self) -> tuple[int, ...]:
        layers = 8 if self.layers is None else self.layers
        if (layers - 2) % 6:
            cause = f"{layers} layers cannot be divided among three stages"
            raise SeriatimError("model.layers", cause, "choose 8, 14, 20, 56 or another 6n+2")
        return ((layers - 2) // 6,) * 3

    def _photograph_depths(self) -> tuple[int, ...]:
        layers = 18 if self.layers is None else self.layers
        if layers not in DEPTHS:
            cause = f"there is no form of {layers} layers for photographs"
            raise SeriatimError("model.layers", cause, "choose 10, 18 or 34, or model.stem=small")
        return DEPTHS[layers]

    def build(self, inputs: int, length: int) -> DropoutBackbone:
        return DropoutBackbone(inputs, self.dropout)
