"""The predictor of `caption`: captions, scores of given ones, and the attention of words to the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.config import Settings
from ...core.errors import Diagnostics
from ...data.dataset import Dataset
from ...data.source import DataInput
from ...decode.sampling import Hypothesis
from ...decode.seq2seq import TargetScores
from ...decode.settings import BeamSettings
from ...nn.encoder_decoder import EncoderDecoder
from ...report.charts import View
from ..capability import Call, NoOptions, Record, capability
from ..decoding import nbest_record, score_record
from ..encoder_decoder import EncoderDecoderPredictor, encode_with_eos
from ..inspection import ImageAttention
from ..predictor import Usage
from .captioner import Captioner
from .processor import EncodedCaptions
from .spec import ALIGN, ALIGNED, CAPTION, SCORE, CaptionOptions

if TYPE_CHECKING:
    from .task import CaptionTask


class CaptionPredictor(EncoderDecoderPredictor["CaptionTask", EncodedCaptions]):
    def __init__(self, task: CaptionTask, network: EncoderDecoder, others: Sequence[EncoderDecoder] = ()) -> None:
        super().__init__(task, network, others)
        self.captioner = Captioner(task.processor, self.decoder)

    @capability(CAPTION)
    def caption(self, call: Call[CaptionOptions]) -> list[Record]:
        options = call.options
        items, readable = self.load_images(call.rows, call.diagnostics, options.skip_broken)
        groups = self.captioner.caption(items.inputs.take(readable), options)
        records: list[Record] = [{"caption": None, "score": None} for _ in range(len(call.rows))]
        for row, group in zip(readable.tolist(), groups, strict=True):
            records[row] = nbest_record([{"caption": one.text, "score": one.score} for one in group], options.nbest)
        return records

    @capability(SCORE)
    def score(self, call: Call[NoOptions]) -> Iterator[Record]:
        items = self.task.encode(call.rows, call.diagnostics)
        assert items.targets is not None
        for item, scores in enumerate(self.captioner.score(items)):
            yield score_record(self.task.processor.target, items.targets[item].tolist(), scores.log_probs)

    @capability(ALIGN)
    def align(self, call: Call[BeamSettings]) -> Iterator[Record]:
        items, texts = self.complete_targets(call.rows, call.options, call.diagnostics)
        for attention in self.captioner.attend(items.inputs, texts):
            yield {
                "attention": attention.lines(),
                "words": attention.words,
                "grid": list(attention.grid),
                "weights": attention.weights.round(6).tolist(),
            }

    def load_images(
        self, rows: Dataset, diagnostics: Diagnostics, skip_broken: bool = False
    ) -> tuple[EncodedCaptions, np.ndarray]:
        """Returns the images of all rows, and the rows that could be read.

        Args:
            rows: With the role "image".
            diagnostics: Receives notes; problems are raised.
            skip_broken: Whether files that cannot be read are noted instead of raised as errors.
        """
        images, broken = self.task.processor.image.load(rows["image"])
        for row, error in broken.items():
            cause = f"{rows.locations[row]}: {error.cause}"
            if skip_broken and len(broken) < len(rows):
                diagnostics.note(cause)
            else:
                remedy = error.remedy if skip_broken else f"{error.remedy}; or leave it out: --skip-broken"
                diagnostics.report(error.code, cause, remedy)
        diagnostics.raise_problems()
        return EncodedCaptions(images), np.setdiff1d(np.arange(len(rows)), list(broken))

    def complete_targets(
        self, rows: Dataset, options: BeamSettings, diagnostics: Diagnostics
    ) -> tuple[EncodedCaptions, list[str]]:
        """Returns the images, and the caption of each row: its own, else a generated one."""
        items, _ = self.load_images(rows, diagnostics)
        texts = list(rows["caption"]) if "caption" in rows else [""] * len(items)
        missing = [row for row, text in enumerate(texts) if not text.strip()]
        if missing:
            groups = self.captioner.caption(items.inputs.take(missing), options)
            for row, group in zip(missing, groups, strict=True):
                texts[row] = group[0].text
        return items, texts

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        """Returns an overlay of the attention on each image, one for each word."""
        if name not in ("caption", "align"):
            return []
        if name == "align":
            texts = [" ".join(row["words"]) for row in predictions]
        else:
            texts = [row["caption"] if isinstance(row["caption"], str) else row["caption"][0] for row in predictions]
        items, rows = self.load_images(dataset, Diagnostics(), getattr(options, "skip_broken", False))
        attentions = self.captioner.attend(items.inputs.take(rows), [texts[row] for row in rows])
        return [one.chart(texts[row]) for one, row in zip(attentions, rows.tolist(), strict=True)]

    # Usage and inspection

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        image, example = "photo.jpg", None if rows is None or not len(rows) else rows["image"][0]
        if isinstance(example, Path):
            inside = example.is_relative_to(Path.cwd())
            image = str(example.relative_to(Path.cwd()) if inside else example)
        usage = [Usage(f"seriatim caption {run} {image}", f'run.caption("{image}")')]
        if self.decoder.has_alignment:
            usage.append(Usage(f"seriatim caption {run} {image} --chart attention.html", f'run.align("{image}")'))
        return usage

    def element_names(self, encoded: EncodedCaptions, item: int) -> list[str]:
        rows, columns = self.captioner.grid
        return [f"{row},{column}" for row in range(rows) for column in range(columns)]

    def encode_inputs(self, inputs: DataInput) -> EncodedCaptions:
        diagnostics = Diagnostics()
        return self.load_images(self.task.read(inputs, diagnostics, self.task.schema.inputs()), diagnostics)[0]

    def search(self, items: EncodedCaptions, options: BeamSettings) -> list[list[Hypothesis]]:
        return self.captioner.search(items.inputs, options, lambda item: "")

    def score_targets(self, items: EncodedCaptions) -> list[TargetScores]:
        return self.captioner.score(items)

    def complete(self, inputs: DataInput) -> EncodedCaptions:
        diagnostics = Diagnostics()
        rows = self.task.read(inputs, diagnostics, ALIGNED)
        items, texts = self.complete_targets(rows, BeamSettings(), diagnostics)
        return replace(items, targets=encode_with_eos(self.task.processor.target, texts))

    def image_attention(self, encoded: EncodedCaptions, item: int) -> ImageAttention | None:
        if not self.decoder.has_alignment:
            return None
        assert encoded.targets is not None
        text = self.task.processor.decode_text(encoded.targets[item].tolist())
        return self.captioner.attend(encoded.inputs.take([item]), [text])[0]
