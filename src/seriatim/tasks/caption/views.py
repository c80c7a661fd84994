"""What a report shows of captions: where the model attended, and captions that differ from all references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...report.charts import Image, Table, View
from ..text_metrics import References, exact_matches

if TYPE_CHECKING:
    from .predictor import CaptionPredictor
    from .task import EncodedCaptions

SHOWN_CAPTIONS = 20
SHOWN_IMAGES = 4  # with the attention of each word
MAX_WORDS = 20  # of a caption whose attention is shown


def caption_views(
    predictor: CaptionPredictor,
    encoded: EncodedCaptions,
    items: np.ndarray,
    names: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
) -> list[View]:
    """Returns overlays of the attention on a few images, and a table of captions that equal no reference.

    Args:
        predictor: The predictor.
        encoded: The images of a split.
        items: The item of each image (n,).
        names: The name of each image.
        hypotheses: The generated caption of each image.
        references: The references of each image.
    """
    views: list[View] = []
    if predictor.has_alignment:
        short = [n for n, text in enumerate(hypotheses) if 0 < len(text.split()) <= MAX_WORDS]
        chosen = [short[n] for n in evenly_spaced(len(short), SHOWN_IMAGES)]
        attentions = predictor.attend(encoded, items[chosen], [hypotheses[n] for n in chosen]) if chosen else []
        views += [one.chart(f"Attention: {hypotheses[n]}") for n, one in zip(chosen, attentions, strict=True)]
    wrong = [n for n, correct in enumerate(exact_matches(hypotheses, references)) if not correct]
    if wrong:
        chosen = [wrong[n] for n in evenly_spaced(len(wrong), SHOWN_CAPTIONS)]
        images = [Image.from_array(np.asarray(encoded.inputs[int(items[n])])) for n in chosen]
        views.append(
            Table(
                title="Captions that equal no reference",
                note=f"{len(wrong):,} of {len(hypotheses):,} captions equal no reference; evenly spaced examples.",
                columns=("image", "name", "caption", "references"),
                rows=tuple(
                    (image, names[n], hypotheses[n], "\n".join(dict.fromkeys(references[n])))
                    for n, image in zip(chosen, images, strict=True)
                ),
            )
        )
    return views


def evenly_spaced(count: int, most: int) -> list[int]:
    """Returns at most `most` of `count` positions, at even distances."""
    return np.linspace(0, count - 1, min(most, count)).astype(int).tolist() if count else []
