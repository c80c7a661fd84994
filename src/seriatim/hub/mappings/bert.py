"""BERT with its heads: pretraining, classification, regression, tagging, question answering and multiple choice.

The mappings of RoBERTa, DistilBERT and ELECTRA, whose blocks are the same, are made of the functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional as F

from ...core.files import Json
from ...models.bert import INIT_STD, Settings
from ...nn.network import PretrainHead, ScaledHead, SpanHead, StepHead, VectorHead
from ..mapping import (
    ACTIVATIONS,
    Config,
    HubHead,
    ModelMapping,
    TensorMap,
    inverse,
    layer_maps,
    map_value,
    read_sizes,
)

SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feedforward",
    "max_position_embeddings": "context_length",
    "type_vocab_size": "segments",
}
DEFAULTS = {"type_vocab_size": 2, "max_position_embeddings": 512}  # of a config.json without them


# Settings


def read_encoder(config: Config, problems: list[str], variant: str = "bert") -> Json:
    """Returns our settings of a config.json; adds unsupported values to the problems."""
    positions = config.get("position_embedding_type") or "absolute"
    map_value(problems, "position_embedding_type", positions, {"absolute": 0})
    for key in ("is_decoder", "add_cross_attention"):
        map_value(problems, key, bool(config.get(key)), {False: 0})
    sizes = read_sizes(problems, {**DEFAULTS, **config}, SIZES)
    return {SIZES[key]: value for key, value in sizes.items()} | {
        "name": "bert",
        "variant": variant,
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "activation": map_value(problems, "hidden_act", config.get("hidden_act", "gelu"), ACTIVATIONS),
        "eps": config.get("layer_norm_eps", 1e-12),
    }


def write_encoder(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    """Returns the entries of config.json; adds settings that have no counterpart there to the problems."""
    embeddings = tensors["input.weight"]
    if embeddings.shape[1] != settings.width and settings.variant != "electra":
        problems.append(f"token vectors of {embeddings.shape[1]} for a width of {settings.width}: model.embedding")
    if not settings.segments:
        problems.append("texts have no segments: model.segments")
    if settings.position_offset and settings.variant not in ("roberta", "xlm-roberta"):
        problems.append("the table of positions has unused rows: model.position_offset")
    sizes: Json = {key: getattr(settings, name) for key, name in SIZES.items()}
    sizes["intermediate_size"] = feedforward_size(settings)
    return sizes | {
        "vocab_size": len(embeddings),
        "hidden_act": inverse(ACTIVATIONS)[settings.activation],
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "layer_norm_eps": settings.eps,
        "initializer_range": INIT_STD,
    }


def feedforward_size(settings: Settings) -> int:
    return 4 * settings.width if settings.feedforward is None else settings.feedforward


def supports_variant(variant: str) -> Callable[[Settings], bool]:
    return lambda settings: settings.variant == variant


# Tensors


def encoder_body(settings: Settings) -> list[TensorMap]:
    """Returns the tensors of the encoder, with their names in BERT and its relatives."""
    entries = [
        TensorMap("input.weight", ("embeddings.word_embeddings.weight",)),
        TensorMap("input.segments.weight", ("embeddings.token_type_embeddings.weight",)),
        TensorMap("backbone.positions.weight", ("embeddings.position_embeddings.weight",)),
        *layer_maps("backbone.norm", "embeddings.LayerNorm"),
    ]
    for index in range(settings.layers):
        block, hub_block = f"backbone.blocks.{index}", f"encoder.layer.{index}"
        inputs = [f"{hub_block}.attention.self.{part}" for part in ("query", "key", "value")]
        entries += layer_maps(f"{block}.attention.inputs", *inputs)
        entries += layer_maps(f"{block}.attention.output", f"{hub_block}.attention.output.dense")
        entries += layer_maps(f"{block}.attention_norm", f"{hub_block}.attention.output.LayerNorm")
        entries += layer_maps(f"{block}.feedforward.hidden", f"{hub_block}.intermediate.dense")
        entries += layer_maps(f"{block}.feedforward.output", f"{hub_block}.output.dense")
        entries += layer_maps(f"{block}.feedforward_norm", f"{hub_block}.output.LayerNorm")
    return entries


def position_table(settings: Settings) -> dict[str, Tensor]:
    """Returns the table of positions that are not learned; what is read again has it as learned ones."""
    size = settings.embedding if settings.variant == "electra" else None
    sized = settings.model_copy(update={"width": settings.width if size is None else size})
    table = sized.fixed_positions(settings.context_length)
    return {} if table is None else {"backbone.positions.weight": F.pad(table, (0, 0, settings.position_offset, 0))}


def masked_maps(dense: str, norm: str, bias: str) -> tuple[TensorMap, ...]:
    """Returns the tensors of the head of masked tokens, without the vectors of the tokens, which it shares."""
    maps = (*layer_maps("head.masked.dense", dense), *layer_maps("head.masked.norm", norm))
    return (*maps, TensorMap("head.masked.bias", (bias,)))


# Heads


def pretraining(masked: bool, next: bool) -> Json:
    """Returns the arguments of a `HubHead` of the task `pretrain`."""

    def make(settings: Settings, inputs: nn.Embedding, outputs: int) -> nn.Module:
        return PretrainHead(settings.width, inputs, masked, next, **settings.pretrain_head)

    return {"kind": "pretraining", "task_settings": {"masked": masked, "next": next}, "make": make}


def task_heads(
    family: str, pooler: str, output: str, choice_pooler: str, chooses: Callable[[Config], bool] = lambda config: True
) -> tuple[HubHead, ...]:
    """Returns the architectures of other tasks than pretraining.

    Args:
        family: The beginning of their names.
        pooler: The layer on the vector of the first token, for outputs of the whole text.
        output: The layer after it.
        choice_pooler: The same as `pooler`, for multiple choice.
        chooses: Whether a config.json is supported for multiple choice.
    """
    classifier = (*layer_maps("head.pooler", pooler), *layer_maps("head.output", output))
    scaled = tuple(replace(entry, name=entry.name.replace("head.", "head.head.")) for entry in classifier)
    return (
        HubHead(
            f"{family}ForSequenceClassification",
            "regression",
            scaled,
            task_settings={"pooling": "first"},
            matches=_is_regression,
            make=lambda settings, inputs, outputs: ScaledHead(_pooled(settings, inputs, outputs), outputs),
        ),
        HubHead(
            f"{family}ForSequenceClassification",
            "classification",
            classifier,
            task_settings={"pooling": "first"},
            make=_pooled,
        ),
        HubHead(
            f"{family}ForTokenClassification",
            "token-classification",
            tuple(layer_maps("head", "classifier")),
            make=lambda settings, inputs, outputs: StepHead(settings.width, outputs),
        ),
        HubHead(
            f"{family}ForQuestionAnswering",
            "question-answering",
            tuple(layer_maps("head.output", "qa_outputs")),
            make=lambda settings, inputs, outputs: SpanHead(settings.width),
        ),
        HubHead(
            f"{family}ForMultipleChoice",
            "multiple-choice",
            (*layer_maps("head.pooler", choice_pooler), *layer_maps("head.output", "classifier")),
            task_settings={"pooling": "first"},
            matches=chooses,
            make=lambda settings, inputs, outputs: _pooled(settings, inputs, 1),
        ),
    )


def _is_regression(config: Config) -> bool:
    """Returns whether the outputs are numbers; a single output without `problem_type` is a number."""
    labels = config.get("id2label")
    single = config.get("num_labels") == 1 or (isinstance(labels, dict) and len(labels) == 1)
    return config.get("problem_type") == "regression" or (config.get("problem_type") is None and single)


def _pooled(settings: Settings, inputs: nn.Module, outputs: int) -> VectorHead:
    return VectorHead(settings.width, outputs, "first", pooler=settings.pooler)


POOLER = tuple(layer_maps("head.pooler", "pooler.dense"))
_POOLER = tuple(layer_maps("head.pooler", "bert.pooler.dense"))
_NEXT = tuple(layer_maps("head.next", "cls.seq_relationship"))
_MASKED = masked_maps("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias")
_COPIES = (("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),)
TOKEN_TABLES = ("input.weight", "head.masked.bias")

MAPPINGS = (
    ModelMapping(
        "bert",
        "bert",
        "bert.",
        read_encoder,
        write_encoder,
        encoder_body,
        (
            HubHead("BertModel", optional=POOLER, prefixed=False, **pretraining(False, False)),
            HubHead("BertForPreTraining", maps=(*_POOLER, *_MASKED, *_NEXT), copies=_COPIES, **pretraining(True, True)),
            HubHead("BertForMaskedLM", maps=_MASKED, copies=_COPIES, **pretraining(True, False)),
            *task_heads("Bert", "bert.pooler.dense", "classifier", "bert.pooler.dense"),
        ),
        (r".*position_ids", r"cls\.predictions\.decoder\..*"),
        supports_variant("bert"),
        TOKEN_TABLES,
        constants=position_table,
    ),
)
