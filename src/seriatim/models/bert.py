"""BERT: a stack of bidirectional Transformer blocks, pretrained once and fine-tuned for many tasks.

Devlin et al., "BERT: pre-training of deep bidirectional Transformers for language understanding" (2019):

    x = norm(tokens + segments + positions)    x ← norm(x + Attention(x))    x ← norm(x + W_2 gelu(W_1 x))

New since GPT: every element attends to all others, so that its vector depends on both sides of the context; the
pretraining task is to predict masked elements (the task `pretrain`). A text begins with [CLS], whose vector represents
the whole text, and ends with [SEP]; a second text may follow, marked by its segment. The norm is after each part, as in
the paper, so the learning rate needs a warm-up.

Other encoders have the same blocks (`variant`), and differ in how they were pretrained and in

    roberta, xlm-roberta    no segments; the table of positions begins with unused rows    Liu 2019, Conneau 2020
    distilbert              no segments; no pooler in pretraining, relu in its place       Sanh et al. 2019
    electra                 tokens, positions and first norm may be smaller than blocks    Clark et al. 2020

Initialization: normal, 0.02, tokens 1/√width; some heads begin with useful attention patterns (`initialize_heads`),
if positions are learned. Without positions (`positions: none`) a text is a set: outputs are permuted with the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.state import State
from ..nn.backbone import Backbone, Trace, record, trace_scope
from ..nn.layers import Activation, Dropout, LearnedPositions, Positions, SegmentedInput, TokenInput, make_positions
from ..nn.names import Pooler
from ..nn.settings import BackboneTraits
from ..nn.transformer import Block, Packing, TransformerSettings, initialize_normal, stack_outputs

PRESETS: dict[str, dict[str, object]] = {
    "tiny": {"width": 128, "layers": 2, "heads": 2},
    "mini": {"width": 256, "layers": 4, "heads": 4},
    "small": {"width": 512, "layers": 4, "heads": 8},
    "base": {"width": 768, "layers": 12, "heads": 12},
    "large": {"width": 1024, "layers": 24, "heads": 16},
}
Variant = Literal["bert", "roberta", "xlm-roberta", "distilbert", "electra"]
# Positions of RoBERTa begin after the id of the padding token: 2 in the published models, 1 with tokenizers of ours.
VARIANTS: dict[str, dict[str, object]] = {
    "bert": {},
    "roberta": {"segments": 1, "position_offset": 1, "eps": 1e-5},
    "xlm-roberta": {"segments": 1, "position_offset": 1, "eps": 1e-5},
    "distilbert": {"segments": 0},
    "electra": {},
}
INIT_STD = 0.02
# Of `initialize_heads`: amplitudes of vectors in units of the std of token vectors, and attention scores.
WAVE, SEGMENT, FIRST = 2.25, 3.4, 11.3  # of a sinusoid, of the mark of a text, of the mark of the first element
NEIGHBOR_SCORE, SAME_SCORE, OTHER_TEXT_SCORE, FIRST_SCORE = 17.0, 15.5, 2.2, 12.5
MIN_HEAD_SIZE = 16  # numbers of a head that the patterns need


def sinusoid_scale(width: int) -> float:
    """Returns the amplitude of sinusoids with the standard deviation of token vectors."""
    return math.sqrt(2 / width)


class Bert(Backbone):
    causal = False

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        heads: int,
        context_length: int,
        feedforward: int | None = None,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        eps: float = 1e-12,
        position_offset: int = 0,
        project_last: bool = False,
        positions: Positions = "learned",
    ) -> None:
        super().__init__()
        self.width = width
        self.context_length: int = context_length
        self.project_last = project_last
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        embedded = inputs if project_last else width
        scale, std = sinusoid_scale(embedded), embedded**-0.5
        self.positions = make_positions(positions, embedded, context_length, scale, std, position_offset)
        self.norm = nn.LayerNorm(embedded, eps)
        self.dropout = Dropout(dropout)
        hidden = 4 * width if feedforward is None else feedforward
        self.blocks = nn.ModuleList(
            Block(width, heads, hidden, dropout, activation, norm="after", eps=eps) for _ in range(layers)
        )
        initialize_normal(self, INIT_STD)
        initialize_heads(self, heads)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        x, attention_mask = self._embed(x, mask)
        record(trace, "embedded", x, mask)
        return self._run_blocks(list(self.blocks), x, mask, attention_mask, trace), None

    def final_norm(self) -> nn.Module:
        return nn.Identity()  # each block ends with a norm

    def first_output(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the vector of the whole text (B,D); the last block computes no other element."""
        x, attention_mask = self._embed(x, mask)
        x = self._run_blocks(list(self.blocks)[:-1], x, mask, attention_mask)
        y: Tensor = self.blocks[-1].first_output(x, attention_mask)[:, 0]  # type: ignore[operator]
        return y

    @staticmethod
    def _run_blocks(
        blocks: Sequence[Any],
        x: Tensor,
        mask: Tensor | None,
        attention_mask: Tensor | None,
        trace: Trace | None = None,
    ) -> Tensor:
        """Returns the output of the blocks; with much padding, only attention is computed with it, or nothing."""
        if trace is None:
            y = stack_outputs(blocks, x, mask, causal=False, packs=True)
            if y is not None:
                return y
        packing = None if mask is None else Packing(mask)
        if packing is None or attention_mask is None or not packing.is_faster:
            for index, block in enumerate(blocks):
                x, _ = block(x, None, attention_mask, False, trace_scope(trace, f"layer{index}", mask))
            return x
        x = packing.pack(x)
        for index, block in enumerate(blocks):
            x = block.forward_packed(x, packing, attention_mask, trace_scope(trace, f"layer{index}", mask))
        return packing.unpack(x)

    def _embed(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Returns the elements with positions, and the attention mask (B,1,1,T)."""
        if x.shape[1] > self.context_length:
            raise SeriatimError(
                "model.context",
                f"an input has {x.shape[1]} elements, the model accepts {self.context_length}",
                "shorten it, or train with a larger model.context_length",
            )
        x = x if self.project_last else self.project(x)
        x = self.dropout(self.norm(x + self.positions(0, x)))
        x = self.project(x) if self.project_last else x
        return x, None if mask is None else mask[:, None, None]


class Settings(TransformerSettings):
    title: ClassVar[str] = "BERT"
    lr_updates: ClassVar[int] = 4_000
    dropout_onset: ClassVar[float] = 30.0
    causal: ClassVar[bool] = False
    muon_lr: ClassVar[float | None] = None  # with norms after each part, orthogonal updates do not train it
    embedding_std: ClassVar[float | None] = INIT_STD
    task_defaults: ClassVar[Mapping[str, object]] = {"pooling": "first", "pairs_first": 400}
    tokenizer_defaults: ClassVar[Mapping[str, object]] = {"kind": "bert", "lowercase": True}

    preset: Literal["tiny", "mini", "small", "base", "large"] = Field(
        "tiny", description="default sizes: tiny to small for a CPU, base and large are the paper's"
    )
    variant: Variant = Field("bert", description="an encoder with the same blocks: other positions, segments and heads")
    width: int = Field(128, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    layers: int = Field(2, ge=1, le=200, description="Transformer blocks")
    context_length: int = Field(512, ge=1, le=1_000_000, description="largest number of elements")
    segments: int = Field(2, ge=0, le=1_000, description="texts of one input that have a vector each; 0: none has")
    position_offset: int = Field(
        0, ge=0, le=1_000, description="unused rows before the first position; of RoBERTa the id of padding + 1"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped in training")
    activation: Activation = Field("gelu", description="of the feed-forward network")
    eps: float = Field(1e-12, gt=0, le=1, description="added to the variance in layer norms")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        preset, variant = str(values.get("preset", "tiny")), str(values.get("variant", "bert"))
        return PRESETS.get(preset, {}) | VARIANTS.get(variant, {}) | dict(values)

    @property
    def pooler(self) -> Pooler:
        return {"distilbert": "relu", "electra": "gelu"}.get(self.variant, "tanh")  # type: ignore[return-value]

    @property
    def pretrain_head(self) -> dict[str, Any]:
        activation = self.activation if self.variant in ("bert", "distilbert") else "gelu"
        return {"activation": activation, "eps": self.eps, "pooler": self.pooler == "tanh"}

    @property
    def traits(self) -> BackboneTraits:
        return BackboneTraits(causal=False, bounded=True, context_length=self.context_length)

    def default_lr(self) -> float:
        """Smaller than GPT's, because of the norm after each part: 1e-3 at width 128, the paper's 1e-4 at 768."""
        return min(1e-3, 0.096 / self.width)

    def position_scale(self) -> float:
        return sinusoid_scale(self.width)

    def fine_tuning_lr(self) -> float:
        """5e-5 at width 384, 2.5e-5 at 768, where the paper tried 2e-5 to 5e-5."""
        return min(self.default_lr() / 4, 0.0192 / self.width)

    def token_input(self, vocab_size: int, separator: int | None = None, tied: bool = False) -> TokenInput:
        width = self.input_width(tied)
        if not self.segments:
            return TokenInput(vocab_size, width)
        paired = self.variant in ("bert", "electra")  # RoBERTa reads a second text in the same segment
        inputs = SegmentedInput(vocab_size, width, self.segments, separator if paired else None)
        nn.init.normal_(inputs.segments.weight, std=INIT_STD)
        if width == self.width and self.positions == "learned":
            mark_segments(inputs.segments.weight, self.heads)
        return inputs

    def build(self, inputs: int, length: int) -> Bert:
        self.check_heads()
        if self.context_length < length:
            raise SeriatimError(
                "model.context",
                f"sequences of {length} do not fit into a context of {self.context_length}",
                "raise model.context_length, or lower --context-length",
            )
        sizes = (inputs, self.width, self.layers, self.heads, self.context_length, self.feedforward, self.dropout)
        variant = (self.position_offset, self.variant == "electra")
        return Bert(*sizes, self.activation, self.eps, *variant, self.positions)


# Initial attention patterns


@torch.no_grad()
def initialize_heads(bert: Bert, heads: int) -> None:
    """Initializes positions and the first heads of a new network with useful attention patterns.

    A masked token carries no information: until some head attends to its neighbors there is nothing to learn but
    frequencies, and with uniform attention a small model needs thousands of steps to get beyond them. Whether a text
    follows another depends on words in both, a comparison that gradients find later still. So these heads begin with:

        block 1, head 1    the previous element          block 2, head 1    the next element
        block 1, head 2    the same word in the other text, else the first element

    Positions are sinusoids, sin ωi and cos ωi: rotated by ω they equal the neighbor's, so that a linear map can
    query for it. Two more dimensions mark the second text and the first element. All weights are trained from there,
    and the format stays BERT's. docs/results.md has the gain on WikiText-2.
    """
    width, count = bert.width, _frequency_count(bert.width, heads)
    if not count or not isinstance(bert.project, nn.Identity) or not isinstance(bert.positions, LearnedPositions):
        return
    std, size, table = width**-0.5, width // heads, bert.positions.weight[bert.positions.offset :]
    frequencies = [(index + 0.5) * math.pi / count for index in range(count)]  # ω
    angles = torch.arange(len(table))[:, None] * torch.tensor(frequencies)
    table.zero_()
    table[:, : 2 * count] = WAVE * std * torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    table[0, 2 * count + 1] = FIRST * std
    norm = math.sqrt(1 + WAVE**2 * count / width)  # divisor of the first layer norm, in units of std
    blocks: list[Block] = list(bert.blocks)  # type: ignore[arg-type]
    for block, offset in zip(blocks, (-1, 1), strict=False):
        inputs = block.attention.inputs
        for weight in (inputs.weight[2 * width :], block.attention.output.weight):
            nn.init.normal_(weight, std=std)
        query, key = inputs.weight[:size], inputs.weight[width : width + size]
        scale = math.sqrt(NEIGHBOR_SCORE * math.sqrt(size) / count) * norm / WAVE
        _attend_to_neighbor(query, key, frequencies, offset, scale)
    inputs = blocks[0].attention.inputs
    query, key = inputs.weight[size : 2 * size], inputs.weight[width + size : width + 2 * size]
    rows, mark = size - 2, 2 * count
    similarity = SAME_SCORE * math.sqrt(size) * norm**2 / (rows * (width - mark - 2))
    query.zero_()
    query[:rows, mark + 2 :].normal_(std=math.sqrt(similarity))
    key.copy_(query)
    apart = math.sqrt(OTHER_TEXT_SCORE * math.sqrt(size)) * norm / SEGMENT
    query[rows, mark], key[rows, mark] = -apart, apart
    strength = math.sqrt(FIRST_SCORE * math.sqrt(size) * norm / FIRST)
    inputs.bias[size + rows + 1], key[rows + 1, mark + 1] = strength, strength


@torch.no_grad()
def mark_segments(segments: Tensor, heads: int) -> None:
    """Marks the first two segment vectors (n,width) in the dimension that `initialize_heads` reads."""
    width = segments.shape[1]
    if (count := _frequency_count(width, heads)) and len(segments) > 1:
        segments[0, 2 * count], segments[1, 2 * count] = SEGMENT * width**-0.5, -SEGMENT * width**-0.5


def _frequency_count(width: int, heads: int) -> int:
    """Returns the number of frequencies of the positions; 0 if the heads are too small for the patterns."""
    size = width // heads
    return 0 if heads < 2 or size < MIN_HEAD_SIZE else size // 2 - 1


def _attend_to_neighbor(query: Tensor, key: Tensor, frequencies: Sequence[float], offset: int, scale: float) -> None:
    """Adds to query and key weights so that an element attends to the one `offset` positions further."""
    for index, frequency in enumerate(frequencies):
        sine, cosine = 2 * index, 2 * index + 1
        query[sine, sine] += scale * math.cos(frequency * offset)
        query[sine, cosine] += scale * math.sin(frequency * offset)
        query[cosine, cosine] += scale * math.cos(frequency * offset)
        query[cosine, sine] -= scale * math.sin(frequency * offset)
        key[sine, sine] += scale
        key[cosine, cosine] += scale
