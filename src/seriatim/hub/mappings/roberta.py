"""RoBERTa and XLM-RoBERTa: BERT without pairs of texts in pretraining.

The first position is that after the id of the padding token, so the table of positions begins with unused rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ...core.files import Json
from ...models.bert import Settings
from ..mapping import Config, HubHead, ModelMapping
from .bert import (
    POOLER,
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

PADDING = 1  # its id, if config.json has none


def _read(variant: str) -> Callable[[Config, list[str]], Json]:
    def settings(config: Config, problems: list[str]) -> Json:
        values = read_encoder(config, problems, variant)
        padding = config.get("pad_token_id", PADDING)
        if type(padding) is not int or not 0 <= padding < values["context_length"] - 1:
            length = values["context_length"]
            problems.append(f"config.json: pad_token_id is {str(padding)[:100]}, of {length} positions")
            padding = 0
        offset = padding + 1
        return values | {"context_length": values["context_length"] - offset, "position_offset": offset}

    return settings


def _write(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    if not settings.position_offset:
        problems.append("positions begin after the id of the padding token: model.position_offset")
    return write_encoder(settings, tensors, problems) | {
        "max_position_embeddings": settings.position_offset + settings.context_length,
        "pad_token_id": settings.position_offset - 1,
    }


def _mapping(variant: str, family: str) -> ModelMapping:
    return ModelMapping(
        variant,
        "bert",
        "roberta.",
        _read(variant),
        _write,
        encoder_body,
        (
            HubHead(f"{family}Model", optional=POOLER, prefixed=False, **pretraining(False, False)),
            HubHead(
                f"{family}ForMaskedLM",
                maps=masked_maps("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
                copies=(("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),),
                **pretraining(True, False),
            ),
            *task_heads(family, "classifier.dense", "classifier.out_proj", "roberta.pooler.dense"),
        ),
        (r".*position_ids", r"lm_head\.decoder\..*"),
        supports_variant(variant),
        TOKEN_TABLES,
        constants=position_table,
    )


MAPPINGS = (_mapping("roberta", "Roberta"), _mapping("xlm-roberta", "XLMRoberta"))
