"""The mappings of `transformers` models, a module for each of our architectures."""

from __future__ import annotations

from ..mapping import ModelMapping
from . import bert, distilbert, electra, gpt2, marian, resnet, roberta, t5, vit

MAPPINGS: tuple[ModelMapping, ...] = (
    *gpt2.MAPPINGS,
    *bert.MAPPINGS,
    *roberta.MAPPINGS,
    *distilbert.MAPPINGS,
    *electra.MAPPINGS,
    *marian.MAPPINGS,
    *t5.MAPPINGS,
    *resnet.MAPPINGS,
    *vit.MAPPINGS,
)


def by_model_type() -> dict[str, ModelMapping]:
    """Returns all mappings by the `model_type` of config.json."""
    return {mapping.model_type: mapping for mapping in MAPPINGS}
