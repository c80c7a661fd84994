"""BERT with its heads: pretraining, classification, regression, tagging, question answering and multiple choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

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


def _settings(config: Config, problems: list[str]) -> Json:
    positions = config.get("position_embedding_type") or "absolute"
    map_value(problems, "position_embedding_type", positions, {"absolute": 0})
    for key in ("is_decoder", "add_cross_attention"):
        map_value(problems, key, bool(config.get(key)), {False: 0})
    sizes = read_sizes(problems, {**DEFAULTS, **config}, SIZES)
    return {SIZES[key]: value for key, value in sizes.items()} | {
        "name": "bert",
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "activation": map_value(problems, "hidden_act", config.get("hidden_act", "gelu"), ACTIVATIONS),
        "eps": config.get("layer_norm_eps", 1e-12),
    }


def _config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    embeddings = tensors["input.weight"]
    if embeddings.shape[1] != settings.width:
        problems.append(f"token vectors of {embeddings.shape[1]} for a width of {settings.width}: model.embedding")
    sizes: Json = {key: getattr(settings, name) for key, name in SIZES.items()}
    sizes["intermediate_size"] = 4 * settings.width if settings.feedforward is None else settings.feedforward
    return sizes | {
        "vocab_size": len(embeddings),
        "hidden_act": inverse(ACTIVATIONS)[settings.activation],
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "layer_norm_eps": settings.eps,
        "initializer_range": INIT_STD,
    }


def _body(settings: Settings) -> list[TensorMap]:
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


_POOLER = tuple(layer_maps("head.pooler", "bert.pooler.dense"))
_MASKED = (
    *layer_maps("head.masked.dense", "cls.predictions.transform.dense"),
    *layer_maps("head.masked.norm", "cls.predictions.transform.LayerNorm"),
    TensorMap("head.masked.bias", ("cls.predictions.bias",)),
)
_NEXT = tuple(layer_maps("head.next", "cls.seq_relationship"))
_CLASSIFIER = (*_POOLER, *layer_maps("head.output", "classifier"))
_REGRESSOR = tuple(replace(entry, name=entry.name.replace("head.", "head.head.")) for entry in _CLASSIFIER)


def _is_regression(config: Config) -> bool:
    """Returns whether the outputs are numbers; a single output without `problem_type` is a number."""
    labels = config.get("id2label")
    single = config.get("num_labels") == 1 or (isinstance(labels, dict) and len(labels) == 1)
    return config.get("problem_type") == "regression" or (config.get("problem_type") is None and single)


def _pretraining(masked: bool, next: bool) -> Json:
    return {
        "task_settings": {"masked": masked, "next": next},
        "make": lambda settings, inputs, outputs: PretrainHead(settings.width, inputs, masked, next),
    }


def _pooled(settings: Settings, inputs: nn.Module, outputs: int) -> VectorHead:
    return VectorHead(settings.width, outputs, "first")


MAPPINGS = (
    ModelMapping(
        "bert",
        "bert",
        "bert.",
        _settings,
        _config,
        _body,
        (
            HubHead(
                "BertModel",
                "pretraining",
                optional=tuple(layer_maps("head.pooler", "pooler.dense")),
                prefixed=False,
                **_pretraining(False, False),
            ),
            HubHead("BertForPreTraining", "pretraining", (*_POOLER, *_MASKED, *_NEXT), **_pretraining(True, True)),
            HubHead("BertForMaskedLM", "pretraining", _MASKED, **_pretraining(True, False)),
            HubHead(
                "BertForSequenceClassification",
                "regression",
                _REGRESSOR,
                task_settings={"pooling": "first"},
                matches=_is_regression,
                make=lambda settings, inputs, outputs: ScaledHead(_pooled(settings, inputs, outputs), outputs),
            ),
            HubHead(
                "BertForSequenceClassification",
                "classification",
                _CLASSIFIER,
                task_settings={"pooling": "first"},
                make=_pooled,
            ),
            HubHead(
                "BertForTokenClassification",
                "token-classification",
                tuple(layer_maps("head", "classifier")),
                make=lambda settings, inputs, outputs: StepHead(settings.width, outputs),
            ),
            HubHead(
                "BertForQuestionAnswering",
                "question-answering",
                tuple(layer_maps("head.output", "qa_outputs")),
                make=lambda settings, inputs, outputs: SpanHead(settings.width),
            ),
            HubHead(
                "BertForMultipleChoice",
                "multiple-choice",
                _CLASSIFIER,
                task_settings={"pooling": "first"},
                make=lambda settings, inputs, outputs: _pooled(settings, inputs, 1),
            ),
        ),
        (r".*position_ids", r"cls\.predictions\.decoder\..*"),
        token_tables=("input.weight", "head.masked.bias"),
    ),
)
