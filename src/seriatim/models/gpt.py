"""GPT: a stack of Transformer blocks that see only what came before.

Radford et al., "Improving language understanding by generative pre-training" (2018), in the form of its
successor (GPT-2, 2019): layer norm before each part, and once more at the end (`norm: after` is the first GPT's).
Every element looks at all the earlier ones at once, wherever they stand:

    x = tokens + positions    x ← x + Attention(norm x)    x ← x + W_2 gelu(W_1 norm x)    y = norm x

New since the TCN and the recurrent networks: the way between any two elements is one step, and what is looked
at depends on the content. What it costs: time and memory grow with the square of the length, and positions are
learned up to `context` only.
Initialisation: normal, 0.02; the products that write into the residual stream smaller by √(2·layers), so that
its size does not grow with depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.exchange import ACTIVATIONS, Entry, Form, Head, choose, inverse, layer, whole
from ..core.room import append
from ..nn.attention import causal_mask
from ..nn.backbone import Backbone
from ..nn.dropout import Dropout
from ..nn.linear import Activation
from ..nn.native import transformer_parts
from ..nn.trace import Trace, inside, show
from ..nn.transformer import Block, HeadedSettings

SPREAD = 0.02


class GPT(Backbone):
    """The state: keys and values of every layer, which of their places are real (None: all), elements read (B,)."""

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        heads: int,
        context: int,
        feedforward: int | None = None,
        dropout: float = 0.0,
        norm: Literal["before", "after"] = "before",
        activation: Activation = "gelu-tanh",
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.width = width
        self.context: int = context
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = Dropout(dropout)
        hidden = 4 * width if feedforward is None else feedforward
        shape = (width, heads, hidden, dropout, activation, norm)
        blocks = [Block(*shape, epsilon=epsilon) for _ in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, epsilon) if norm == "before" else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=SPREAD)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for block in blocks:
            for writer in (block.attention.output, block.feedforward.output):
                nn.init.normal_(writer.weight, std=SPREAD / math.sqrt(2 * layers))

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        steps = x.shape[1]
        caches, seen, read = state if state is not None else ([None] * len(self.blocks), None, None)
        places = torch.arange(steps, device=x.device).expand(len(x), steps)  # (B,T)
        if read is not None:
            places = places + read[:, None]
        places = places.clamp(max=self.context - 1)  # only padding can stand beyond: the caller minds the context
        x = self.dropout(self.project(x) + self.positions(places))

        show(trace, "embedded", x, mask)
        visible, real = self._visible(x, mask, seen, caches[0])
        after = []
        for index, (block, cache) in enumerate(zip(self.blocks, caches, strict=True)):
            x, cache = block(x, cache, visible, caches[0] is None, inside(trace, f"layer{index}", mask))
            after.append(cache)
        added = torch.full((len(x),), steps, device=x.device) if mask is None else mask.sum(dim=1)
        return self.norm(x), (after, real, added if read is None else read + added)

    def native(self, tokens: Tensor, head: Any) -> Any:
        return transformer_parts(self.project(tokens), self.positions.weight, list(self.blocks), self.norm, head)  # type: ignore[arg-type]

    def kept(self, state: Any) -> tuple[list[Tensor], Tensor | None]:
        caches, real, _ = state
        return caches, real

    def _visible(
        self, x: Tensor, mask: Tensor | None, seen: Tensor | None, cache: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Which keys each query sees (B,1,T,S+T), and which of the places read so far are real (B,S+T)."""
        steps, past = x.shape[1], 0 if cache is None else cache.shape[2]
        if mask is None and seen is None:
            causal_is_enough = past == 0 or steps == 1
            return None if causal_is_enough else causal_mask(steps, past + steps, x.device), None
        ones = torch.ones(len(x), 1, dtype=torch.bool, device=x.device)
        before = ones.expand(-1, past) if seen is None else seen
        real = append(before, ones.expand(-1, steps) if mask is None else mask, dim=1)
        if past == 0:
            return None, real  # padding stands to the right of what is real: the causal mask hides it
        look = causal_mask(steps, past + steps, x.device)[None, None]
        keys = real if mask is None else torch.cat([before, ones.expand(-1, steps)], dim=1)
        return look & keys[:, None, None], real


class Settings(HeadedSettings):
    spread: ClassVar[float | None] = SPREAD
    output_bias: ClassVar[bool] = False

    width: int = Field(128, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    tie: bool | None = Field(True, description="share the weights of input and output tokens")
    layers: int = Field(4, ge=1, le=200, description="Transformer blocks")
    context: int | None = Field(
        None, ge=1, le=1_000_000, description="elements it can look back on (default: the length it is trained with)"
    )
    norm: Literal["before", "after"] = Field("before", description="layer norm before each part, or after it")
    activation: Activation = Field("gelu-tanh", description="between the two products of the element-wise network")
    epsilon: float = Field(1e-5, gt=0, le=1, description="what keeps a layer norm from dividing by zero")

    def build(self, inputs: int, length: int) -> GPT:
        self.check_heads()
        context = length if self.context is None else self.context
        if context < length:
            raise SeriatimError(
                "model.context",
                f"sequences of {length} do not fit into a context of {context}",
                "raise model.context, or lower --length",
            )
        sizes = (inputs, self.width, self.layers, self.heads, context, self.feedforward, self.dropout)
        return GPT(*sizes, self.norm, self.activation, self.epsilon)


# The same in the format of `transformers`: GPT-2 and the first GPT

SIZES = {"n_embd": "width", "n_layer": "layers", "n_head": "heads", "n_positions": "context"}
FIRST_ACTIVATIONS = {"gelu": "gelu-tanh", "relu": "relu", "silu": "silu", "swish": "silu"}  # its gelu is that of GPT-2
PLAIN = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def _from_hub(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    for name, value in PLAIN.items():
        choose(problems, name, config.get(name, value), {value: 0})
    sizes = whole(problems, config, SIZES)
    return {SIZES[name]: value for name, value in sizes.items()} | {
        "name": "gpt",
        "tie": True,
        "dropout": config.get("resid_pdrop", 0.1),
        "epsilon": config.get("layer_norm_epsilon", 1e-5),
    }


def _from_second(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    named = config.get("activation_function", "gelu_new")
    inner = config.get("n_inner")
    return _from_hub(config, problems) | {
        "norm": "before",
        "activation": choose(problems, "activation_function", named, ACTIVATIONS),
        "feedforward": None if inner is None else whole(problems, config, ("n_inner",))["n_inner"],
    }


def _from_first(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    named = config.get("afn", "gelu")
    return _from_hub(config, problems) | {
        "norm": "after",
        "activation": choose(problems, "afn", named, FIRST_ACTIVATIONS),
    }


def _to_hub(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    table, places = tensors["input.weight"], tensors["backbone.positions.weight"]
    if table.shape[1] != settings.width:
        problems.append(f"token vectors of {table.shape[1]} for a width of {settings.width}: model.embedding")
    if "head.weight" in tensors:
        problems.append("input and output tokens have weights of their own: model.tie")
    return {name: getattr(settings, ours) for name, ours in SIZES.items()} | {
        "vocab_size": len(table),
        "n_positions": len(places),
        "resid_pdrop": settings.dropout,
        "embd_pdrop": settings.dropout,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": settings.epsilon,
        "initializer_range": SPREAD,
    }


def _to_second(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    name = inverse(ACTIVATIONS)[settings.activation]
    return _to_hub(settings, tensors, problems) | {"activation_function": name, "n_inner": settings.feedforward}


def _to_first(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    if settings.feedforward not in (None, 4 * settings.width):
        problems.append(f"an element-wise network of {settings.feedforward}, not 4·width: model.feedforward")
    names = inverse(FIRST_ACTIVATIONS)
    name = choose(problems, "model.activation", settings.activation, names)
    return _to_hub(settings, tensors, problems) | {"afn": name}


def _body(tokens: str, positions: str, last: str | None) -> Callable[[Settings], list[Entry]]:
    """Their products are kept the other way round."""
    parts = {
        "attention.inputs": "attn.c_attn",
        "attention.output": "attn.c_proj",
        "feedforward.hidden": "mlp.c_fc",
        "feedforward.output": "mlp.c_proj",
    }

    def entries(settings: Settings) -> list[Entry]:
        found = [
            Entry("input.weight", (f"{tokens}.weight",)),
            Entry("backbone.positions.weight", (f"{positions}.weight",)),
            *(layer("backbone.norm", last) if last else []),
        ]
        for index in range(settings.layers):
            ours, theirs = f"backbone.blocks.{index}", f"h.{index}"
            for part, name in parts.items():
                found += layer(f"{ours}.{part}", f"{theirs}.{name}", transposed=True)
            found += layer(f"{ours}.attention_norm", f"{theirs}.ln_1")
            found += layer(f"{ours}.feedforward_norm", f"{theirs}.ln_2")
        return found

    return entries


_CONSTANT = (r".*\.attn\.(bias|masked_bias)", r"(transformer\.)?position_ids", r"lm_head\.weight")
HUB = (
    Form(
        "gpt2",
        "transformer.",
        _from_second,
        _to_second,
        _body("wte", "wpe", "ln_f"),
        (Head("GPT2LMHeadModel", "language"), Head("GPT2Model", "language", prefixed=False)),
        _CONSTANT,
        suits=lambda settings: settings.norm == "before",
    ),
    Form(
        "openai-gpt",
        "transformer.",
        _from_first,
        _to_first,
        _body("tokens_embed", "positions_embed", None),
        (Head("OpenAIGPTLMHeadModel", "language"), Head("OpenAIGPTModel", "language", prefixed=False)),
        _CONSTANT,
        suits=lambda settings: settings.norm == "after",
    ),
)
