"""BERT: a stack of Transformer blocks that look in both directions, to be pre-trained once and fitted to many tasks.

Devlin et al., "BERT: pre-training of deep bidirectional Transformers for language understanding" (2019):

    x = norm(tokens + segments + positions)    x ← norm(x + Attention(x))    x ← norm(x + W_2 gelu(W_1 x))

New since GPT: every element sees all others, before and behind, so that its vector says what it means here; what is
predicted are elements that were hidden (the task `pretrain`), as there is no next one to ask for. A text begins with
[CLS], whose vector stands for the whole, and ends with [SEP]; a second text may follow, told apart by its segment.
Initialisation: normal, 0.02, tokens 1/√width; a few heads begin with something to look at (see `_bert_start`). The norm
stands after each part, as in the paper, so the learning rate wants a warm-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.exchange import ACTIVATIONS, Entry, Form, Head, choose, inverse, layer, whole
from ..nn.backbone import Backbone
from ..nn.dropout import Dropout
from ..nn.heads import PretrainHead, Scaled, SpanHead, StepHead, VectorHead
from ..nn.inputs import SegmentedInput
from ..nn.linear import Activation
from ..nn.positions import Learned
from ..nn.trace import Trace, inside, show
from ..nn.transformer import Block, HeadedSettings, Packing
from . import _bert_start

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"width": 128, "layers": 2, "heads": 2},
    "mini": {"width": 256, "layers": 4, "heads": 4},
    "small": {"width": 512, "layers": 4, "heads": 8},
    "base": {"width": 768, "layers": 12, "heads": 12},
    "large": {"width": 1024, "layers": 24, "heads": 16},
}
SPREAD = 0.02


class Bert(Backbone):
    causal = False

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        heads: int,
        context: int,
        feedforward: int | None = None,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        epsilon: float = 1e-12,
    ) -> None:
        super().__init__()
        self.width = width
        self.context: int = context
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.positions = Learned(width, context)
        self.norm = nn.LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)
        hidden = 4 * width if feedforward is None else feedforward
        self.blocks = nn.ModuleList(
            Block(width, heads, hidden, dropout, activation, norm="after", epsilon=epsilon) for _ in range(layers)
        )
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=SPREAD)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        _bert_start.begin(self, heads)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        x, visible = self._placed(x, mask)
        show(trace, "embedded", x, mask)
        return self._through(self.blocks, x, mask, visible, trace), None

    def first(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """What stands for the whole text: of the last block no other element is needed."""
        x, visible = self._placed(x, mask)
        x = self._through(self.blocks[:-1], x, mask, visible)
        y: Tensor = self.blocks[-1].first(x, visible)[:, 0]  # type: ignore[operator]
        return y

    @staticmethod
    def _through(
        blocks: Iterable[Any], x: Tensor, mask: Tensor | None, visible: Tensor | None, trace: Trace | None = None
    ) -> Tensor:
        """Block after block; where much is padding, it is left out of all but attention."""
        real = None if mask is None else Packing(mask)
        if real is None or visible is None or not real.pays:
            for index, block in enumerate(blocks):
                x, _ = block(x, None, visible, False, inside(trace, f"layer{index}", mask))
            return x
        x = real.pack(x)
        for index, block in enumerate(blocks):
            x = block.packed(x, real, visible, inside(trace, f"layer{index}", mask))
        return real.unpack(x)

    def _placed(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Elements with their places, and which of them may be looked at (B,1,1,T)."""
        if x.shape[1] > self.context:
            raise SeriatimError(
                "model.context",
                f"an input has {x.shape[1]} elements, the model takes {self.context}",
                "shorten it, or train with a larger model.context",
            )
        x = self.project(x)
        x = self.dropout(self.norm(x + self.positions(0, x)))
        return x, None if mask is None else mask[:, None, None]


class Settings(HeadedSettings):
    causal: ClassVar[bool] = False
    spread: ClassVar[float | None] = SPREAD
    suits: ClassVar[Mapping[str, Any]] = {"pooling": "first", "pairs_first": 400}
    tokens: ClassVar[Mapping[str, Any]] = {"kind": "bert", "lowercase": True}

    preset: Literal["tiny", "mini", "small", "base", "large"] = Field(
        "tiny", description="sizes for what is not named: tiny to small for a CPU, base and large are the paper's"
    )
    width: int = Field(128, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    layers: int = Field(2, ge=1, le=200, description="Transformer blocks")
    context: int = Field(512, ge=1, le=1_000_000, description="elements it can take in")
    segments: int = Field(2, ge=1, le=1_000, description="texts that one input may hold")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped while training")
    activation: Activation = Field("gelu", description="between the two products of the element-wise network")
    epsilon: float = Field(1e-12, gt=0, le=1, description="what keeps a layer norm from dividing by zero")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return PRESETS.get(str(values.get("preset", "tiny")), {}) | dict(values)

    def rate(self) -> float:
        """The norm after each part wants smaller steps than GPT's: 1e-3 at width 128, the paper's 1e-4 at 768."""
        return min(1e-3, 0.096 / self.width)

    def tuning_rate(self) -> float:
        """5e-5 at width 384, 2.5e-5 at 768: the paper tried 2e-5 to 5e-5 there."""
        return min(self.rate() / 4, 0.0192 / self.width)

    def token_input(self, vocabulary: int, separator: int | None = None, tied: bool = False) -> SegmentedInput:
        width = self.input_width(tied)
        inputs = SegmentedInput(vocabulary, width, self.segments, separator)
        nn.init.normal_(inputs.segments.weight, std=SPREAD)
        if width == self.width:
            _bert_start.mark(inputs.segments.weight, self.heads)
        return inputs

    def build(self, inputs: int, length: int) -> Bert:
        self.check_heads()
        if self.context < length:
            raise SeriatimError(
                "model.context",
                f"sequences of {length} do not fit into a context of {self.context}",
                "raise model.context, or lower --length",
            )
        sizes = (inputs, self.width, self.layers, self.heads, self.context, self.feedforward, self.dropout)
        return Bert(*sizes, self.activation, self.epsilon)


# The same in the format of `transformers`

SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feedforward",
    "max_position_embeddings": "context",
    "type_vocab_size": "segments",
}


def _from_hub(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    choose(problems, "position_embedding_type", config.get("position_embedding_type") or "absolute", {"absolute": 0})
    for name in ("is_decoder", "add_cross_attention"):
        choose(problems, name, bool(config.get(name)), {False: 0})
    sizes = whole(problems, {"type_vocab_size": 2, "max_position_embeddings": 512, **config}, SIZES)
    return {SIZES[name]: value for name, value in sizes.items()} | {
        "name": "bert",
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "activation": choose(problems, "hidden_act", config.get("hidden_act", "gelu"), ACTIVATIONS),
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }


def _to_hub(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    table = tensors["input.weight"]
    if table.shape[1] != settings.width:
        problems.append(f"token vectors of {table.shape[1]} for a width of {settings.width}: model.embedding")
    sizes: dict[str, Any] = {name: getattr(settings, ours) for name, ours in SIZES.items()}
    sizes["intermediate_size"] = 4 * settings.width if settings.feedforward is None else settings.feedforward
    return sizes | {
        "vocab_size": len(table),
        "hidden_act": inverse(ACTIVATIONS)[settings.activation],
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "layer_norm_eps": settings.epsilon,
        "initializer_range": SPREAD,
    }


def _body(settings: Settings) -> list[Entry]:
    found = [
        Entry("input.weight", ("embeddings.word_embeddings.weight",)),
        Entry("input.segments.weight", ("embeddings.token_type_embeddings.weight",)),
        Entry("backbone.positions.weight", ("embeddings.position_embeddings.weight",)),
        *layer("backbone.norm", "embeddings.LayerNorm"),
    ]
    for index in range(settings.layers):
        ours, theirs = f"backbone.blocks.{index}", f"encoder.layer.{index}"
        looks = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        found += layer(f"{ours}.attention.inputs", *looks)
        found += layer(f"{ours}.attention.output", f"{theirs}.attention.output.dense")
        found += layer(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        found += layer(f"{ours}.feedforward.hidden", f"{theirs}.intermediate.dense")
        found += layer(f"{ours}.feedforward.output", f"{theirs}.output.dense")
        found += layer(f"{ours}.feedforward_norm", f"{theirs}.output.LayerNorm")
    return found


_POOLER = tuple(layer("head.pooler", "bert.pooler.dense"))
_MASKED = (
    *layer("head.masked.dense", "cls.predictions.transform.dense"),
    *layer("head.masked.norm", "cls.predictions.transform.LayerNorm"),
    Entry("head.masked.bias", ("cls.predictions.bias",)),
)
_NEXT = tuple(layer("head.next", "cls.seq_relationship"))
_LABELS = (*_POOLER, *layer("head.output", "classifier"))
_VALUES = tuple(Entry(one.ours.replace("head.", "head.head."), one.theirs) for one in _LABELS)


def _is_regression(config: Mapping[str, Any]) -> bool:
    """It need not say so: a single output is no choice between labels."""
    alone = config.get("num_labels") == 1 or len(config.get("id2label") or ()) == 1
    return config.get("problem_type") == "regression" or (config.get("problem_type") is None and alone)


def _pretraining(masked: bool, next: bool) -> dict[str, Any]:
    return {
        "options": {"masked": masked, "next": next},
        "make": lambda settings, inputs, outputs: PretrainHead(settings.width, inputs, masked, next),
    }


def _pooled(settings: Settings, inputs: nn.Module, outputs: int) -> VectorHead:
    return VectorHead(settings.width, outputs, "first")


HUB = (
    Form(
        "bert",
        "bert.",
        _from_hub,
        _to_hub,
        _body,
        (
            Head(
                "BertModel",
                "pretrain",
                optional=tuple(layer("head.pooler", "pooler.dense")),
                prefixed=False,
                **_pretraining(False, False),
            ),
            Head("BertForPreTraining", "pretrain", (*_POOLER, *_MASKED, *_NEXT), **_pretraining(True, True)),
            Head("BertForMaskedLM", "pretrain", _MASKED, **_pretraining(True, False)),
            Head(
                "BertForSequenceClassification",
                "regress",
                _VALUES,
                options={"pooling": "first"},
                fits=_is_regression,
                make=lambda settings, inputs, outputs: Scaled(_pooled(settings, inputs, outputs), outputs),
            ),
            Head("BertForSequenceClassification", "classify", _LABELS, options={"pooling": "first"}, make=_pooled),
            Head(
                "BertForTokenClassification",
                "tag",
                tuple(layer("head", "classifier")),
                make=lambda settings, inputs, outputs: StepHead(settings.width, outputs),
            ),
            Head(
                "BertForQuestionAnswering",
                "answer",
                tuple(layer("head.output", "qa_outputs")),
                make=lambda settings, inputs, outputs: SpanHead(settings.width),
            ),
        ),
        (r".*position_ids", r"cls\.predictions\.decoder\..*"),
        tables=("input.weight", "head.masked.bias"),
    ),
)
