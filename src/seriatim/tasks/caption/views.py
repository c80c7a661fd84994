"""Views of captions: a table of those that equal no reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.text import evenly_spaced
from ...report.charts import Image, Table
from ..metrics import References, exact_matches
from .processor import EncodedCaptions

SHOWN_CAPTIONS = 20


def wrong_captions(
    items: EncodedCaptions,
    shown: np.ndarray,
    names: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
) -> list[Table]:
    """Returns a table of captions that equal no reference, if there are any.

    Args:
        items: The images of a split.
        shown: An item of each image (n,).
        names: The name of each image.
        hypotheses: The generated caption of each image.
        references: The references of each image.
    """
    wrong = [n for n, correct in enumerate(exact_matches(hypotheses, references)) if not correct]
    if not wrong:
        return []
    chosen = [wrong[n] for n in evenly_spaced(len(wrong), SHOWN_CAPTIONS).tolist()]
    images = [Image.from_array(np.asarray(items.inputs[int(shown[n])])) for n in chosen]
    return [
        Table(
            title="Captions that equal no reference",
            note=f"{len(wrong):,} of {len(hypotheses):,} captions equal no reference; evenly spaced examples.",
            columns=("image", "name", "caption", "references"),
            rows=tuple(
                (image, names[n], hypotheses[n], "\n".join(dict.fromkeys(references[n])))
                for n, image in zip(chosen, images, strict=True)
            ),
        )
    ]
