"""The predictor of `caption`: captions, scores of given captions, and the attention of each word to the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import Field as Setting

from ...core.config import Settings
from ...core.diagnostics import Diagnostics
from ...data.dataset import Dataset
from ...data.images import IMAGE, ImageSettings
from ...data.kinds import NUMBER, NUMBERS, TEXT, TOKENS
from ...data.sequences import Sequences
from ...decode.settings import BeamSettings
from ...nn.images import ImageEncoderDecoder
from ...report.charts import View
from ..alignment import ImageAttention, TokenizedText
from ..decoding import Generated, nbest_record
from ..encoder_decoder import EncoderDecoderPredictor, encode_with_eos
from ..predictor import ModelInput, NoOptions, Usage, capability
from .rows import ALIGNED, SCORED

if TYPE_CHECKING:
    from .task import CaptionProcessor, CaptionTask, EncodedCaptions

MAX_TOKENS = 100  # of a caption, if the options set no limit and training captions are shorter


class CaptionOptions(BeamSettings):
    """The settings of decoding captions."""

    skip_broken: bool = Setting(False, description="leave images that cannot be read without a caption")


class CaptionPredictor(EncoderDecoderPredictor):
    processor: CaptionProcessor
    task: CaptionTask

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the cells that the decoder attends to."""
        return cast(ImageEncoderDecoder, self.networks[0]).source.image.grid

    @capability(outputs={"caption": TEXT, "score": NUMBER}, options=CaptionOptions, scalar=True)
    def caption(self, dataset: Dataset, options: CaptionOptions) -> list[dict[str, Any]]:
        """Describe each image, with the log-probability of the caption; lists of both for nbest > 1."""
        encoded, readable = self.load_images(dataset, options.skip_broken)
        records: list[dict[str, Any]] = [{"caption": None, "score": None} for _ in range(len(dataset))]
        for row, group in zip(readable.tolist(), self.captions(encoded, options, readable), strict=True):
            rows = [(one.text, one.score) for one in group]
            records[row] = nbest_record(("caption", "score"), rows, options.nbest)
        return records

    @capability(
        outputs={"log_probability": NUMBER, "tokens": NUMBER, "perplexity": NUMBER, "token_log_probabilities": NUMBERS},
        inputs=SCORED,
    )
    def score(self, dataset: Dataset, options: NoOptions) -> list[dict[str, Any]]:
        """Return the log-probability of a caption given its image, as a whole and token by token."""
        return self.score_records(self.task.encode(dataset))

    @capability(
        outputs={"attention": TEXT, "words": TOKENS, "grid": NUMBERS, "weights": NUMBERS},
        options=BeamSettings,
        inputs=ALIGNED,
    )
    def align(self, dataset: Dataset, options: BeamSettings) -> list[dict[str, Any]]:
        """Return the attention of each word of a caption to the cells of its image; by default, of a generated one."""
        return [
            {
                "attention": one.lines(),
                "words": one.words,
                "grid": list(one.grid),
                "weights": one.weights.round(6).tolist(),
            }
            for one in self.attentions(dataset, options)
        ]

    def load_images(self, dataset: Dataset, skip_broken: bool = False) -> tuple[EncodedCaptions, np.ndarray]:
        """Returns the images of all rows, and the rows that could be read.

        Args:
            dataset: With the role "image".
            skip_broken: Whether files that cannot be read are noted instead of raised as errors.
        """
        from ...data.images.store import load_images  # imports Pillow
        from .task import EncodedCaptions

        codec, diagnostics = self.processor.image, Diagnostics(self.task.diagnostics.on_note)
        settings = ImageSettings(max_megapixels=codec.max_megapixels)
        images, broken = load_images(dataset["image"], codec.layout, settings)
        for row, error in broken.items():
            cause = f"{dataset.locations[row]}: {error.cause}"
            if skip_broken and len(broken) < len(dataset):
                diagnostics.note(cause)
            else:
                diagnostics.report(error.code, cause, f"{error.remedy}; or leave it out: --skip-broken")
        diagnostics.raise_problems()
        rows = np.setdiff1d(np.arange(len(dataset)), list(broken))
        return EncodedCaptions(cast(Sequences, images)), rows

    def captions(
        self, encoded: EncodedCaptions, options: BeamSettings, items: np.ndarray | None = None
    ) -> list[list[Generated]]:
        """Returns the `nbest` captions of each image, best first."""

        def key(item: int) -> str:
            return str(IMAGE.key(np.ascontiguousarray(encoded.inputs[item])))

        tokenizer = self.processor.target
        return [
            [
                Generated(
                    tokenizer.decode(self.without_eos(one.tokens)),
                    one.score,
                    one.tokens,
                    one.finished,
                    one.normalized_score,
                )
                for one in group
            ]
            for group in self.search(encoded, options, key, items)
        ]

    def attentions(self, dataset: Dataset, options: BeamSettings) -> list[ImageAttention]:
        """Returns the attention of each caption; of rows without one, of a generated one."""
        encoded, texts = self.complete_captions(dataset, options)
        return self.attend(encoded, np.arange(len(encoded)), texts)

    def complete_captions(self, dataset: Dataset, options: BeamSettings) -> tuple[EncodedCaptions, list[str]]:
        """Returns the images, and the caption of each row: the given one, else a generated one."""
        encoded, _ = self.load_images(dataset)
        texts = list(dataset["caption"]) if "caption" in dataset else [""] * len(encoded)
        missing = np.flatnonzero([not text.strip() for text in texts])
        for row, group in zip(missing.tolist(), self.captions(encoded, options, missing), strict=True):
            texts[row] = group[0].text
        return encoded, texts

    def attend(self, encoded: EncodedCaptions, items: np.ndarray, texts: Sequence[str]) -> list[ImageAttention]:
        """Returns the attention of a text to each of some images, averaged over the tokens of each word."""
        self.require_alignment("there is no attention to show")
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

    def charts(
        self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Mapping[str, Any]]
    ) -> list[View]:
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
        return [min(limit, self.context_length or limit)] * len(items)

    def model_input(self, inputs: Any) -> ModelInput:
        """Returns images with their captions as the network reads them; a missing caption is generated."""
        encoded, texts = self.complete_captions(self.task.read(inputs, ALIGNED), BeamSettings())
        encoded = replace(encoded, targets=encode_with_eos(self.processor.target, texts))
        batch = self.task.collate(encoded, np.arange(len(encoded)))
        return ModelInput(batch, [self.sequences(encoded, item) for item in range(len(encoded))])

    def sequences(self, encoded: EncodedCaptions, item: int) -> dict[str, list[str]]:
        rows, columns = self.grid
        axes = {"source": [f"{row},{column}" for row in range(rows) for column in range(columns)]}
        if encoded.targets is not None:
            axes["target"] = [self.processor.target.token(int(token)) for token in encoded.targets[item]]
        return axes

    def usage(self, run: str) -> list[Usage]:
        values = self.task.datasets["validation"]["image"] if "validation" in self.task.datasets else []
        image = str(values[0]) if len(values) and isinstance(values[0], Path) else "photo.jpg"
        usage = [Usage(f"seriatim caption {run} {image}", f'run.caption("{image}")')]
        if self.has_alignment:
            usage.append(Usage(f"seriatim caption {run} {image} --chart attention.html", f'run.align("{image}")'))
        return usage

    # Inspection

    def encode_inputs(self, inputs: Any) -> EncodedCaptions:
        return self.load_images(self.task.read(inputs, self.task.schema.inputs()))[0]

    def image_attention(self, encoded: EncodedCaptions, item: int) -> ImageAttention | None:
        if not self.has_alignment:
            return None
        text = self.processor.target.decode(self.without_eos(list(encoded.targets[item])))
        return self.attend(encoded, np.array([item]), [text])[0]
