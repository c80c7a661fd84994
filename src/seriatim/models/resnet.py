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
from torch import Tensor

from ..core.errors import SeriatimError
from ..nn.backbone import Backbone, BackboneSettings
from ..nn.dropout import Dropout
from ..nn.pictures import Grid, Shape
from ..nn.resnet import ResNet, Stem
from ..nn.trace import Trace

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
        return self.dropout(x), None


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
