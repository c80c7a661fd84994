"""The Vision Transformer: a picture is a sequence of patches, read by the blocks that read texts.

Dosovitskiy et al., "An image is worth 16x16 words: Transformers for image recognition at scale" (2021):

    x = [class; E·patch₁; …; E·patch_n] + positions
    x ← x + Attention(norm x)    x ← x + W₂ gelu(W₁ norm x)    y = norm x

New since ResNet: nothing says that neighbouring pixels belong together but what is learned, positions included; from
the first block on every patch sees all others. With little data this is a disadvantage, with much an advantage. The
first element, which is no patch, gathers what stands for the whole, as in BERT. Positions are learned for one size of
pictures.
Initialisation: normal, 0.02.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.exchange import ACTIVATIONS, Entry, Form, Head, Row, Squares, choose, inverse, layer, whole
from ..nn.backbone import Backbone
from ..nn.dropout import Dropout
from ..nn.heads import VectorHead
from ..nn.linear import Activation
from ..nn.pictures import Patches, Shape, patch_side
from ..nn.positions import Learned
from ..nn.trace import Trace, inside, show
from ..nn.transformer import Block, HeadedSettings

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"width": 128, "layers": 4, "heads": 4},
    "small": {"width": 384, "layers": 12, "heads": 6, "patch": 16},
    "base": {"width": 768, "layers": 12, "heads": 12, "patch": 16},
}
SPREAD = 0.02


class ViT(Backbone):
    """Its outputs are one more than its inputs: the first stands for the whole."""

    causal = False

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        heads: int,
        length: int,
        feedforward: int | None = None,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        epsilon: float = 1e-12,
    ) -> None:
        super().__init__()
        self.width = width
        self.context: int = length
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.whole = nn.Parameter(torch.empty(width))  # what the first element is before it has seen anything
        self.positions = Learned(width, 1 + length)
        self.dropout = Dropout(dropout)
        hidden = 4 * width if feedforward is None else feedforward
        shape = (width, heads, hidden, dropout, activation)
        self.blocks = nn.ModuleList(Block(*shape, epsilon=epsilon) for _ in range(layers))
        self.norm = nn.LayerNorm(width, epsilon)
        nn.init.normal_(self.whole, std=SPREAD)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=SPREAD)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        x = self._placed(x)
        show(trace, "embedded", x)
        return self.norm(self._through(self.blocks, x, trace)), None

    def first(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """What stands for the whole picture: of the last block no other element is needed."""
        x = self._through(self.blocks[:-1], self._placed(x))
        y: Tensor = self.norm(self.blocks[-1].first(x, None))[:, 0]  # type: ignore[operator]
        return y

    @staticmethod
    def _through(blocks: Iterable[Any], x: Tensor, trace: Trace | None = None) -> Tensor:
        for index, block in enumerate(blocks):
            x, _ = block(x, None, None, False, inside(trace, f"layer{index}"))
        return x

    def _placed(self, x: Tensor) -> Tensor:
        """Patches behind the element for the whole, all with their places, (B,1+T,D)."""
        if x.shape[1] != self.context:
            cause = f"a picture has {x.shape[1]} patches; positions were learned for {self.context}"
            raise SeriatimError("model.context", cause, "give pictures of the size it was trained on")
        x = self.project(x)
        x = torch.cat([self.whole.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        placed: Tensor = self.dropout(x + self.positions(0, x))
        return placed


class Settings(HeadedSettings):
    causal: ClassVar[bool] = False
    pictures: ClassVar[bool] = True
    pooler: ClassVar[bool] = False
    spread: ClassVar[float | None] = SPREAD
    suits: ClassVar[Mapping[str, Any]] = {"pooling": "first"}

    preset: Literal["tiny", "small", "base"] = Field(
        "tiny", description="sizes for what is not named: tiny for a CPU, base is the paper's"
    )
    width: int = Field(128, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    layers: int = Field(4, ge=1, le=200, description="Transformer blocks")
    patch: int | None = Field(
        None, ge=1, le=4_096, description="pixels a side of a patch (default: so that a row has about eight)"
    )
    activation: Activation = Field("gelu", description="between the two products of the element-wise network")
    epsilon: float = Field(1e-12, gt=0, le=1, description="what keeps a layer norm from dividing by zero")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return PRESETS.get(str(values.get("preset", "tiny")), {}) | dict(values)

    def picture_input(self, shape: Shape) -> Patches:
        return Patches(shape, patch_side(shape) if self.patch is None else self.patch, self.input_width(tied=False))

    def build(self, inputs: int, length: int) -> ViT:
        self.check_heads()
        sizes = (inputs, self.width, self.layers, self.heads, length, self.feedforward, self.dropout)
        return ViT(*sizes, self.activation, self.epsilon)


# The same in the format of `transformers`

SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feedforward",
    "patch_size": "patch",
}
DEFAULTS = {"patch_size": 16, "image_size": 224, "num_channels": 3}  # of a config.json that does not say


def _from_hub(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    choose(problems, "qkv_bias", config.get("qkv_bias", True), {True: 0})
    known = DEFAULTS | dict(config)
    whole(problems, known, ("image_size", "num_channels"))
    sizes = whole(problems, known, SIZES)
    return {SIZES[name]: value for name, value in sizes.items()} | {
        "name": "vit",
        "dropout": config.get("hidden_dropout_prob", 0.0),
        "activation": choose(problems, "hidden_act", config.get("hidden_act", "gelu"), ACTIVATIONS),
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }


def _to_hub(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    patches = Squares("", ("",)).write(tensors["input.project.weight"])[""]  # (D,C,s,s)
    rows = math.isqrt(len(tensors["backbone.positions.weight"]) - 1)
    if len(patches) != settings.width:
        problems.append(f"vectors of {len(patches)} for a width of {settings.width}: model.embedding")
    sizes: dict[str, Any] = {name: getattr(settings, ours) for name, ours in SIZES.items()}
    sizes["intermediate_size"] = 4 * settings.width if settings.feedforward is None else settings.feedforward
    return sizes | {
        "patch_size": patches.shape[-1],
        "image_size": rows * patches.shape[-1],
        "num_channels": patches.shape[1],
        "qkv_bias": True,
        "hidden_act": inverse(ACTIVATIONS)[settings.activation],
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": settings.epsilon,
        "initializer_range": SPREAD,
    }


def _body(settings: Settings) -> list[Entry]:
    patches = "embeddings.patch_embeddings.projection"
    found = [
        Squares("input.project.weight", (f"{patches}.weight",)),
        Entry("input.project.bias", (f"{patches}.bias",)),
        Row("backbone.whole", ("embeddings.cls_token",), depth=2),
        Row("backbone.positions.weight", ("embeddings.position_embeddings",)),
        *layer("backbone.norm", "layernorm"),
    ]
    for index in range(settings.layers):
        ours, theirs = f"backbone.blocks.{index}", f"encoder.layer.{index}"
        looks = [f"{theirs}.attention.attention.{part}" for part in ("query", "key", "value")]
        found += layer(f"{ours}.attention.inputs", *looks)
        found += layer(f"{ours}.attention.output", f"{theirs}.attention.output.dense")
        found += layer(f"{ours}.attention_norm", f"{theirs}.layernorm_before")
        found += layer(f"{ours}.feedforward.hidden", f"{theirs}.intermediate.dense")
        found += layer(f"{ours}.feedforward.output", f"{theirs}.output.dense")
        found += layer(f"{ours}.feedforward_norm", f"{theirs}.layernorm_after")
    return found


def _modules(settings: Settings, config: Mapping[str, Any], vocabulary: int) -> dict[str, nn.Module]:
    known = DEFAULTS | dict(config)
    inputs = settings.picture_input((known["num_channels"], known["image_size"], known["image_size"]))
    return {"input": inputs, "backbone": settings.build(inputs.width, math.prod(inputs.grid))}


def _first(settings: Settings, inputs: nn.Module, outputs: int) -> VectorHead:
    return VectorHead(settings.width, outputs, "first", pooler=False)


_LABELS = tuple(layer("head.output", "classifier"))
_FIRST: dict[str, Any] = {"options": {"pooling": "first"}, "make": _first}
HUB = (
    Form(
        "vit",
        "vit.",
        _from_hub,
        _to_hub,
        _body,
        (
            Head("ViTForImageClassification", "classify", _LABELS, **_FIRST),
            Head("ViTModel", "classify", optional=_LABELS, prefixed=False, **_FIRST),
        ),
        (r"(vit\.)?pooler\..*",),
        tables=(),
        modules=_modules,
        pictures=True,
        sizes=(),
    ),
)
