"""The predictor of `translate`: translations, scores of given translations, and alignments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...core.config import Settings
from ...core.errors import Diagnostics, SeriatimError
from ...core.text import listed
from ...data.dataset import Dataset
from ...data.source import DataInput
from ...data.tokenizers import UNK
from ...decode.sampling import Hypothesis
from ...decode.seq2seq import TargetScores
from ...decode.settings import BeamSettings
from ...embedding.reader import TextReader
from ...nn.encoder_decoder import EncoderDecoder
from ...report.charts import View
from ..batching import Batch
from ..capability import Call, NoOptions, Record, capability
from ..decoding import nbest_record, score_record
from ..encoder_decoder import EncoderDecoderPredictor, eos_of
from ..inspection import Aligner, Alignment, EmbeddingTable
from ..predictor import Usage
from ..text_predictor import EmbeddingPredictor
from ..values import Encoded
from .processor import Pairs
from .spec import ALIGN, ALIGNED, SCORE, TRANSLATE, AlignOptions
from .translator import Translator

if TYPE_CHECKING:
    from .task import TranslateTask

MAX_SOURCE = 16_384  # tokens of a source, if the model has no limit: time grows with the square


class TranslationPredictor(EncoderDecoderPredictor["TranslateTask", Pairs], EmbeddingPredictor):
    def __init__(self, task: TranslateTask, network: EncoderDecoder, others: Sequence[EncoderDecoder] = ()) -> None:
        super().__init__(task, network, others)
        self.translator = Translator(task.processor, self.decoder, task.settings.normalize)

    @capability(TRANSLATE)
    def translate(self, call: Call[BeamSettings]) -> Iterator[Record]:
        texts, sources = list(call.rows["source"]), self.task.encode(call.rows, call.diagnostics).inputs
        self.check_lengths(call.rows, sources.lengths, np.flatnonzero([bool(text.strip()) for text in texts]))
        known = self.task.processor.source
        if unknown := list(dict.fromkeys(word for text in texts for word in known.unknown(text))):
            shown = listed([f'"{word}"' for word in unknown])
            call.note(f"not in the vocabulary, read as {UNK}: {shown}")
        for group in self.translator.translate(texts, sources, call.options):
            yield nbest_record([{"translation": one.text, "score": one.score} for one in group], call.options.nbest)

    @capability(SCORE)
    def score(self, call: Call[NoOptions]) -> Iterator[Record]:
        pairs = self.task.encode(call.rows, call.diagnostics)
        assert pairs.targets is not None
        for side in (pairs.inputs, pairs.targets):
            self.check_lengths(call.rows, side.lengths)
        for item, scores in enumerate(self.translator.score(pairs)):
            yield score_record(self.task.processor.target, pairs.targets[item].tolist(), scores.log_probs)

    @capability(ALIGN)
    def align(self, call: Call[AlignOptions]) -> Iterator[Record]:
        for alignment in self.alignments(call.rows, call.options):
            yield {
                "alignment": alignment.lines(),
                "target": alignment.target,
                "source": alignment.source,
                "weights": alignment.weights.round(6).tolist(),
            }

    def alignments(self, rows: Dataset, options: AlignOptions) -> list[Alignment]:
        """Returns the attention of each target over its source; of rows without target, of the translation."""
        self.decoder.require_alignment("there is no alignment")
        _, targets = self.complete_targets(rows, options)
        return self.translator.align(list(rows["source"]), targets, by_words=not options.tokens)

    def complete_targets(self, rows: Dataset, options: BeamSettings) -> tuple[Pairs, list[str]]:
        """Returns the sources, and the target of each row: its own, else the translation."""
        sources = list(rows["source"])
        encoded = self.task.processor.encode_texts(self.task.processor.source, sources)
        self.check_lengths(rows, encoded.lengths)
        targets = list(rows["target"]) if "target" in rows else [""] * len(sources)
        missing = [row for row, text in enumerate(targets) if not text.strip()]
        if missing:
            texts = [sources[row] for row in missing]
            translations = self.translator.translate(texts, encoded.take(missing), options)
            for row, group in zip(missing, translations, strict=True):
                targets[row] = group[0].text
        return Pairs(encoded), targets

    def check_lengths(self, rows: Dataset, lengths: np.ndarray, read: np.ndarray | None = None) -> None:
        """Raises an error that names the first text that is too long, of all or of those that are read."""
        limit = self.decoder.context_length
        remedy = "split it into sentences" if limit is None else "shorten it, or train another model"
        limit = MAX_SOURCE if limit is None else limit
        read = np.arange(len(lengths)) if read is None else read
        for row in read[lengths[read] > limit][:1].tolist():
            cause = f"{rows.locations[row]} has {lengths[row]:,} tokens, the model takes {limit:,}"
            raise SeriatimError("predict.long", cause, remedy)

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        """Returns a heat map of the alignment of each row."""
        if name == "translate":
            self.decoder.require_alignment("there is no alignment to draw")
            cells = [row["translation"] for row in predictions]
            texts = [cell if isinstance(cell, str) else cell[0] for cell in cells]
            alignments = self.translator.align(list(dataset["source"]), texts)
            return [alignment.chart(text) for alignment, text in zip(alignments, texts, strict=True)]
        if name == "align":
            parts = [(list(row["source"]), list(row["target"]), np.asarray(row["weights"])) for row in predictions]
            return [Alignment(*part).chart(" ".join(part[1])) for part in parts]
        return []

    # Embeddings

    def text_batch(self, items: Encoded, rows: np.ndarray) -> Batch:
        batch = super().text_batch(items, rows)
        return replace(batch, inputs=(batch.inputs,))

    def text_reader(self) -> TextReader:
        processor = self.task.processor
        end = () if processor.framed else (eos_of(processor.source),)
        return TextReader(
            self,
            processor.source,
            self.decoder.context_length,
            suffix=end,
            cls_sep=processor.framed,
            prepare=self.translator.clean,
            table=self.network.source,
        )

    def embedding_tables(self) -> list[EmbeddingTable]:
        source = EmbeddingTable("source", self.task.processor.source, self.network.source)
        target = EmbeddingTable("target", self.task.processor.target, self.network.target)
        return [source] if target.module.weight is source.module.weight else [source, target]

    # Inspection and usage

    def search(self, items: Pairs, options: BeamSettings) -> list[list[Hypothesis]]:
        return self.translator.search(items.inputs, options, lambda item: "")

    def score_targets(self, items: Pairs) -> list[TargetScores]:
        return self.translator.score(items)

    def complete(self, inputs: DataInput) -> Pairs:
        pairs, targets = self.complete_targets(self.task.read(inputs, Diagnostics(), ALIGNED), BeamSettings())
        return replace(pairs, targets=self.task.processor.encode_texts(self.task.processor.target, targets))

    def with_target(self, encoded: Pairs, target: str | None = None, max_tokens: int | None = None) -> Pairs:
        return super().with_target(encoded, None if target is None else self.translator.clean(target), max_tokens)

    def aligner(self) -> Aligner | None:
        return self.align_pair if self.decoder.has_alignment else None

    def align_pair(self, source: str, target: str | None, by_words: bool) -> Alignment:
        """Returns the attention of a target over its source; by default of the translation."""
        rows = self.task.read([(source,) if target is None else (source, target)], Diagnostics(), ALIGNED)
        return self.alignments(rows, AlignOptions(tokens=not by_words))[0]

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        texts = ["a text"] if rows is None else rows["source"][:100]
        text = min(texts, key=lambda text: abs(len(text) - 30)).replace('"', "'")
        usage = [
            Usage(f'seriatim translate {run} "{text}"', f'run.translate("{text}")'),
            Usage(f'seriatim translate {run} "{text}" --nbest 3', f'run.translate("{text}", nbest=3)'),
            Usage(
                f"seriatim translate {run} --data texts.txt --out translations.tsv", 'run.translate(Path("texts.txt"))'
            ),
        ]
        if self.decoder.has_alignment:
            usage.append(Usage(f'seriatim align {run} "{text}" --chart alignment.svg', f'run.align("{text}")'))
        return usage
