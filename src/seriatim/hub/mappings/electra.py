"""ELECTRA: the encoder of the discriminator or of the generator.

Tokens, positions and their norm may be of a smaller size than the blocks, with a linear layer between them. The head of
the discriminator, which detects replaced tokens, is not read.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ...core.files import Json
from ...models.bert import Settings
from ..mapping import Config, HubHead, ModelMapping, TensorMap, layer_maps, read_sizes
from .bert import (
    TOKEN_TABLES,
    encoder_body,
    masked_maps,
    position_table,
    pretraining,
    read_encoder,
    supports_variant,
    task_heads,
    write_encoder,
)

DEFAULTS = {"embedding_size": 128}


def _read(config: Config, problems: list[str]) -> Json:
    size = read_sizes(problems, {**DEFAULTS, **config}, ("embedding_size",))["embedding_size"]
    return read_encoder(config, problems, "electra") | {"embedding": size}


def _write(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    return write_encoder(settings, tensors, problems) | {"embedding_size": tensors["input.weight"].shape[1]}


def _summarizes(config: Config) -> bool:
    """Returns whether the vector for multiple choice is made as usual: a linear layer on the first token, and gelu."""
    values = (config.get("summary_type", "first"), config.get("summary_use_proj", True))
    return values == ("first", True) and config.get("summary_activation", "gelu") == "gelu"


def _body(settings: Settings) -> list[TensorMap]:
    projected = settings.embedding not in (None, settings.width)
    return encoder_body(settings) + (layer_maps("backbone.project", "embeddings_project") if projected else [])


MAPPINGS = (
    ModelMapping(
        "electra",
        "bert",
        "electra.",
        _read,
        _write,
        _body,
        (
            HubHead("ElectraModel", prefixed=False, **pretraining(False, False)),
            HubHead("ElectraForPreTraining", **pretraining(False, False)),
            HubHead(
                "ElectraForMaskedLM",
                maps=masked_maps(
                    "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
                ),
                copies=(("electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"),),
                **pretraining(True, False),
            ),
            *task_heads("Electra", "classifier.dense", "classifier.out_proj", "sequence_summary.summary", _summarizes),
        ),
        (r".*position_ids", r"generator_lm_head\.weight"),
        supports_variant("electra"),
        TOKEN_TABLES,
        constants=position_table,
    ),
)
