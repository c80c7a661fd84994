"""The predictor of `caption`: captions, scores of given ones, attention of words to the image, and report views."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...core.config import Settings
from ...core.errors import Diagnostics
from ...data.dataset import Dataset
from ...data.images import IMAGE
from ...data.sequences import Sequences
from ...data.source import DataInput
from ...decode.settings import BeamSettings
from ...nn.images import ImageEncoderDecoder
from ...report.charts import Image, Table, View
from ..batching import evenly_spaced
from ..capability import NoOptions, Record, capability
from ..decoding import Generated, nbest_record
from ..encoder_decoder import EncoderDecoderPredictor, encode_with_eos
from ..inspection import ImageAttention, TokenizedText
from ..metrics import References, exact_matches
from ..predictor import Usage
from .rows import EncodedCaptions
from .spec import ALIGN, ALIGNED, CAPTION, SCORE, CaptionOptions

if TYPE_CHECKING:
    from .task import CaptionProcessor, CaptionTask

MAX_TOKENS = 100  # of a caption, if the options set no limit and training captions are shorter
SHOWN_CAPTIONS = 20
SHOWN_IMAGES = 4  # with the attention of each word
MAX_WORDS = 20  # of a caption whose attention is shown


class CaptionPredictor(EncoderDecoderPredictor[EncodedCaptions]):
    processor: CaptionProcessor
    task: CaptionTask
    aligned = ALIGNED

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the cells that the decoder attends to."""
        return cast(ImageEncoderDecoder, self.decoder.networks[0]).source.image.grid

    @capability(CAPTION)
    def caption(self, dataset: Dataset, options: CaptionOptions) -> list[Record]:
        encoded, readable = self.load_images(dataset, options.skip_broken)
        records: list[Record] = [{"caption": None, "score": None} for _ in range(len(dataset))]
        for row, group in zip(readable.tolist(), self.captions(encoded, options, readable), strict=True):
            records[row] = nbest_record([{"caption": one.text, "score": one.score} for one in group], options.nbest)
        return records

    @capability(SCORE)
    def score(self, dataset: Dataset, options: NoOptions) -> list[Record]:
        return self.score_records(self.task.encode(dataset))

    @capability(ALIGN)
    def align(self, dataset: Dataset, options: BeamSettings) -> list[Record]:
        encoded, texts = self.complete_targets(dataset, options)
        return [
            {
                "attention": one.lines(),
                "words": one.words,
                "grid": list(one.grid),
                "weights": one.weights.round(6).tolist(),
            }
            for one in self.attend(encoded, np.arange(len(encoded)), texts)
        ]

    def load_images(self, dataset: Dataset, skip_broken: bool = False) -> tuple[EncodedCaptions, np.ndarray]:
        """Returns the images of all rows, and the rows that could be read.

        Args:
            dataset: With the role "image".
            skip_broken: Whether files that cannot be read are noted instead of raised as errors.
        """
        diagnostics = Diagnostics(self.task.diagnostics.on_note)
        images, broken = self.processor.image.load(dataset["image"])
        for row, error in broken.items():
            cause = f"{dataset.locations[row]}: {error.cause}"
            if skip_broken and len(broken) < len(dataset):
                diagnostics.note(cause)
            else:
                remedy = error.remedy if skip_broken else f"{error.remedy}; or leave it out: --skip-broken"
                diagnostics.report(error.code, cause, remedy)
        diagnostics.raise_problems()
        rows = np.setdiff1d(np.arange(len(dataset)), list(broken))
        return EncodedCaptions(cast(Sequences, images)), rows

    def captions(
        self, encoded: EncodedCaptions, options: BeamSettings, items: np.ndarray | None = None
    ) -> list[list[Generated]]:
        """Returns the `nbest` captions of each image, best first."""

        def key(item: int) -> str:
            return str(IMAGE.key(np.ascontiguousarray(encoded.inputs[item])))

        return [
            [Generated(**vars(hypothesis), text=self.decode_text(hypothesis.tokens)) for hypothesis in group]
            for group in self.search(encoded, options, key, items)
        ]

    def attend(self, encoded: EncodedCaptions, items: np.ndarray, texts: Sequence[str]) -> list[ImageAttention]:
        """Returns the attention of a text to each of some images, averaged over the tokens of each word."""
        self.decoder.require_alignment("there is no attention to show")
        targets = encode_with_eos(self.processor.target, texts)
        images = cast(Any, encoded.inputs).take(items)
        chosen = type(encoded)(images, targets)
        attentions = []
        for item, forced in enumerate(self.force(chosen, alignment=True)):
            assert forced.weights is not None
            words = TokenizedText.of(self.processor.target, targets[item].tolist(), texts[item])
            means = np.stack([forced.weights[group].mean(axis=0) for group in words.groups])
            count = len(words.words) - 1  # <eos> is not a word
            attentions.append(ImageAttention(images[item], self.grid, words.words[:count], means[:count]))
        return attentions

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        """Returns an overlay of the attention on each image, one for each word."""
        if name not in ("caption", "align"):
            return []
        if name == "align":
            texts = [" ".join(row["words"]) for row in predictions]
        else:
            texts = [row["caption"] if isinstance(row["caption"], str) else row["caption"][0] for row in predictions]
        encoded, rows = self.load_images(dataset, getattr(options, "skip_broken", False))
        attentions = self.attend(encoded, rows, [texts[row] for row in rows])
        return [one.chart(texts[row]) for one, row in zip(attentions, rows.tolist(), strict=True)]

    # Hooks of the base class

    def length_limits(
        self, encoded: EncodedCaptions, items: np.ndarray, options: BeamSettings, prefix_length: int
    ) -> list[int]:
        limit = options.max_tokens
        if "max_tokens" not in options.model_fields_set:
            limit = min(limit, max(MAX_TOKENS, 2 * self.processor.context_length))
        return [min(limit, self.decoder.context_length or limit)] * len(items)

    def encode_rows(self, dataset: Dataset) -> EncodedCaptions:
        return self.load_images(dataset)[0]

    def generate_targets(
        self, dataset: Dataset, encoded: EncodedCaptions, options: BeamSettings, items: np.ndarray
    ) -> list[str]:
        return [group[0].text for group in self.captions(encoded, options, items)]

    def element_names(self, encoded: EncodedCaptions, item: int) -> list[str]:
        rows, columns = self.grid
        return [f"{row},{column}" for row in range(rows) for column in range(columns)]

    def usage(self, run: str) -> list[Usage]:
        values = self.task.datasets["validation"]["image"] if "validation" in self.task.datasets else []
        image = "photo.jpg"
        if len(values) and isinstance(values[0], Path):
            inside = values[0].is_relative_to(Path.cwd())
            image = str(values[0].relative_to(Path.cwd()) if inside else values[0])
        usage = [Usage(f"seriatim caption {run} {image}", f'run.caption("{image}")')]
        if self.decoder.has_alignment:
            usage.append(Usage(f"seriatim caption {run} {image} --chart attention.html", f'run.align("{image}")'))
        return usage

    # Inspection

    def encode_inputs(self, inputs: DataInput) -> EncodedCaptions:
        return self.encode_rows(self.task.read(inputs, self.task.schema.inputs()))

    def image_attention(self, encoded: EncodedCaptions, item: int) -> ImageAttention | None:
        if not self.decoder.has_alignment:
            return None
        return self.attend(encoded, np.array([item]), [self.decode_text(list(encoded.targets[item]))])[0]


# Charts and tables


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
    if predictor.decoder.has_alignment:
        short = [n for n, text in enumerate(hypotheses) if 0 < len(text.split()) <= MAX_WORDS]
        chosen = [short[n] for n in evenly_spaced(len(short), SHOWN_IMAGES).tolist()]
        attentions = predictor.attend(encoded, items[chosen], [hypotheses[n] for n in chosen]) if chosen else []
        views += [one.chart(f"Attention: {hypotheses[n]}") for n, one in zip(chosen, attentions, strict=True)]
    wrong = [n for n, correct in enumerate(exact_matches(hypotheses, references)) if not correct]
    if wrong:
        chosen = [wrong[n] for n in evenly_spaced(len(wrong), SHOWN_CAPTIONS).tolist()]
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
