"""DistilBERT: BERT with half of the layers, without segments and without a pooler in pretraining."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ...core.files import Json
from ...models.bert import INIT_STD, Settings
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
from .bert import (
    TOKEN_TABLES,
    feedforward_size,
    masked_maps,
    position_table,
    pretraining,
    supports_variant,
    task_heads,
)

SIZES = {
    "dim": "width",
    "n_layers": "layers",
    "n_heads": "heads",
    "hidden_dim": "feedforward",
    "max_position_embeddings": "context_length",
}
DEFAULTS = {"max_position_embeddings": 512}
EPS = 1e-12  # of all norms


def _read(config: Config, problems: list[str]) -> Json:
    sizes = read_sizes(problems, {**DEFAULTS, **config}, SIZES)
    return {SIZES[key]: value for key, value in sizes.items()} | {
        "name": "bert",
        "variant": "distilbert",
        "segments": 0,
        "dropout": config.get("dropout", 0.1),
        "activation": map_value(problems, "activation", config.get("activation", "gelu"), ACTIVATIONS),
        "eps": EPS,
    }


def _write(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    embeddings = tensors["input.weight"]
    if embeddings.shape[1] != settings.width:
        problems.append(f"token vectors of {embeddings.shape[1]} for a width of {settings.width}: model.embedding")
    for name, expected in {"eps": EPS, "segments": 0, "position_offset": 0}.items():
        if (value := getattr(settings, name)) != expected:
            problems.append(f"model.{name} is {value}, there it is {expected}")
    sizes: Json = {key: getattr(settings, name) for key, name in SIZES.items()}
    return sizes | {
        "hidden_dim": feedforward_size(settings),
        "vocab_size": len(embeddings),
        "activation": inverse(ACTIVATIONS)[settings.activation],
        "dropout": settings.dropout,
        "attention_dropout": settings.dropout,
        "qa_dropout": settings.dropout,
        "seq_classif_dropout": settings.dropout,
        "sinusoidal_pos_embds": False,
        "initializer_range": INIT_STD,
    }


def _body(settings: Settings) -> list[TensorMap]:
    entries = [
        TensorMap("input.weight", ("embeddings.word_embeddings.weight",)),
        TensorMap("backbone.positions.weight", ("embeddings.position_embeddings.weight",)),
        *layer_maps("backbone.norm", "embeddings.LayerNorm"),
    ]
    for index in range(settings.layers):
        block, hub_block = f"backbone.blocks.{index}", f"transformer.layer.{index}"
        entries += layer_maps(f"{block}.attention.inputs", *(f"{hub_block}.attention.{part}_lin" for part in "qkv"))
        entries += layer_maps(f"{block}.attention.output", f"{hub_block}.attention.out_lin")
        entries += layer_maps(f"{block}.attention_norm", f"{hub_block}.sa_layer_norm")
        entries += layer_maps(f"{block}.feedforward.hidden", f"{hub_block}.ffn.lin1")
        entries += layer_maps(f"{block}.feedforward.output", f"{hub_block}.ffn.lin2")
        entries += layer_maps(f"{block}.feedforward_norm", f"{hub_block}.output_layer_norm")
    return entries


MAPPINGS = (
    ModelMapping(
        "distilbert",
        "bert",
        "distilbert.",
        _read,
        _write,
        _body,
        (
            HubHead("DistilBertModel", prefixed=False, **pretraining(False, False)),
            HubHead(
                "DistilBertForMaskedLM",
                maps=masked_maps("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
                copies=(("distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight"),),
                **pretraining(True, False),
            ),
            *task_heads("DistilBert", "pre_classifier", "classifier", "pre_classifier"),
        ),
        (r".*position_ids", r"vocab_projector\.weight"),
        supports_variant("distilbert"),
        TOKEN_TABLES,
        constants=position_table,
    ),
)
