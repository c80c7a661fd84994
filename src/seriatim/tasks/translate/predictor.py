"""The predictor of `translate`: translations, scores of given translations, and alignments.

The score of a translation is what the capability `score` returns for its text: where its tokens differ from those that
the tokenizer makes of the text, or the end is missing, it is computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field as Setting

from ...core.config import Settings
from ...core.errors import SeriatimError
from ...data.dataset import Dataset
from ...data.kinds import NUMBER, NUMBERS, TEXT, TOKENS
from ...data.sequences import Sequences
from ...data.tokenizers import UNK
from ...decode.sampling import Hypothesis
from ...decode.settings import BeamSettings
from ...report.charts import View
from ..alignment import Alignment, TokenizedText, written_words
from ..base import Encoded
from ..batching import Batch
from ..decoding import Generated, nbest_record
from ..embedding import EmbeddingPredictor, TextReader
from ..encoder_decoder import EncoderDecoderPredictor, encode_with_eos, eos_of
from ..inspection import Aligner, EmbeddingTable
from ..predictor import ModelInput, NoOptions, Usage, capability
from .pairs import ALIGNED, SCORED, normalize

if TYPE_CHECKING:
    from .task import TranslateTask, TranslationProcessor

MAX_SOURCE = 16_384  # tokens of a source, if the model has no limit: time grows with the square
SHOWN_UNKNOWN = 10


class AlignOptions(BeamSettings):
    """The settings of the translation that is aligned if no target is given."""

    tokens: bool = Setting(False, description="align tokens, not words")


EMPTY = Generated("", 0.0, [], True)


class SourceReader(TextReader):
    """Reads texts as sources, with `<eos>` behind each; their vectors are the outputs of the encoder."""

    def batch(self, encoded: Encoded, items: np.ndarray) -> Batch:
        batch = super().batch(encoded, items)
        return replace(batch, inputs=(batch.inputs,))


class TranslationPredictor(EncoderDecoderPredictor, EmbeddingPredictor):
    processor: TranslationProcessor
    task: TranslateTask

    @capability(outputs={"translation": TEXT, "score": NUMBER}, options=BeamSettings, scalar=True)
    def translate(self, dataset: Dataset, options: BeamSettings) -> list[dict[str, Any]]:
        """Translate each text, with the log-probability of the translation; lists of both for nbest > 1."""
        texts, encoded = list(dataset["source"]), self.task.encode(dataset)
        items = np.flatnonzero([bool(text.strip()) for text in texts])
        self.check_lengths(encoded.lengths, items, dataset.locations)
        if unknown := self.unknown_words(texts):
            shown = ", ".join(f'"{word}"' for word in unknown[:SHOWN_UNKNOWN])
            more = f" and {len(unknown) - SHOWN_UNKNOWN:,} more" if len(unknown) > SHOWN_UNKNOWN else ""
            self.task.diagnostics.note(f"not in the vocabulary, read as {UNK}: {shown}{more}")
        return [
            nbest_record(("translation", "score"), [(one.text, one.score) for one in group], options.nbest)
            for group in self.translations(texts, encoded, options, items)
        ]

    @capability(
        outputs={"log_probability": NUMBER, "tokens": NUMBER, "perplexity": NUMBER, "token_log_probabilities": NUMBERS},
        inputs=SCORED,
    )
    def score(self, dataset: Dataset, options: NoOptions) -> list[dict[str, Any]]:
        """Return the log-probability of a target given its source, as a whole and token by token."""
        encoded = self.task.encode(dataset)
        for lengths in (encoded.inputs.lengths, encoded.targets.lengths):
            self.check_lengths(lengths, np.arange(len(lengths)), dataset.locations)
        return self.score_records(encoded)

    @capability(
        outputs={"alignment": TEXT, "target": TOKENS, "source": TOKENS, "weights": NUMBERS},
        options=AlignOptions,
        inputs=ALIGNED,
    )
    def align(self, dataset: Dataset, options: AlignOptions) -> list[dict[str, Any]]:
        """Return the attention weights of each target word over the source words; without targets, of translations."""
        return [
            {
                "alignment": alignment.lines(),
                "target": alignment.target,
                "source": alignment.source,
                "weights": alignment.weights.round(6).tolist(),
            }
            for alignment in self.alignments(dataset, options)
        ]

    def text_reader(self) -> TextReader:
        source = self.processor.source
        prepare = normalize if self.task.settings.normalize else None
        table, eos = self.network.source, eos_of(source)
        return SourceReader(
            self, source, self.context_length, suffix=(eos,), cls_sep=False, prepare=prepare, table=table
        )

    # Translations

    def translations(
        self, texts: Sequence[str], encoded: Encoded, options: BeamSettings, items: np.ndarray | None = None
    ) -> list[list[Generated]]:
        """Returns the `nbest` translations of each text, best first.

        Args:
            texts: The sources.
            encoded: The sources, encoded.
            options: Beam size, length limits and so on.
            items: Those to translate; the others have an empty translation. By default all that are not empty.
        """
        if items is None:
            items = np.flatnonzero([bool(text.strip()) for text in texts])
        groups = self.search(encoded, options, lambda item: texts[item], items)
        rows = np.array([item for item, group in zip(items, groups, strict=True) for _ in group], dtype=np.int64)
        finished = self._finish(texts, encoded.inputs, rows, [one for group in groups for one in group], options)
        results: list[list[Generated]] = [[EMPTY] for _ in texts]
        position = 0
        for item, group in zip(items.tolist(), groups, strict=True):
            results[item] = finished[position : position + len(group)]
            position += len(group)
        return results

    def _finish(
        self,
        texts: Sequence[str],
        sources: Sequences,
        rows: np.ndarray,
        hypotheses: Sequence[Hypothesis],
        options: BeamSettings,
    ) -> list[Generated]:
        """Returns the text and the score of each hypothesis; `rows` are the sources they translate."""
        clean = normalize if self.task.settings.normalize else str
        decoded = [clean(self.processor.target.decode(self.without_eos(one.tokens))) for one in hypotheses]
        targets = encode_with_eos(self.processor.target, decoded)
        fits = targets.lengths <= (self.context_length or np.inf)
        same = np.array([one.tokens == targets[n].tolist() for n, one in enumerate(hypotheses)], dtype=bool)
        scores = [one.score for one in hypotheses]
        changed = np.flatnonzero(fits & ~same)
        rescored = Encoded(sequences_of(sources, rows[changed]), targets.take(changed))
        for number, forced in zip(changed.tolist(), self.force(rescored), strict=True):
            scores[number] = float(forced.log_probs.sum())
        if self.replaces_unknown(options):
            unknown = [n for n in np.flatnonzero(fits).tolist() if self.processor.target.unk in targets[n]]
            pairs = Encoded(sequences_of(sources, rows[unknown]), targets.take(unknown))
            for number, forced in zip(unknown, self.force(pairs, alignment=True), strict=True):
                assert forced.weights is not None
                words = written_words(self.processor.source, texts[int(rows[number])])
                positions = np.flatnonzero(targets[number] == self.processor.target.unk)
                copied = [words[int(forced.weights[position, : len(words)].argmax())] for position in positions]
                first, *rest = decoded[number].split(UNK)
                decoded[number] = first + "".join(word + part for word, part in zip(copied, rest, strict=True))
        return [
            Generated(text, score, one.tokens, one.finished, one.normalized_score)
            for text, score, one in zip(decoded, scores, hypotheses, strict=True)
        ]

    def replaces_unknown(self, options: BeamSettings) -> bool:
        """Returns whether `<unk>` may be generated, because the attended source word replaces it."""
        kinds = {self.processor.target.kind, self.processor.source.kind}
        if kinds != {"word"} or options.replace_unknown is False:
            return False
        if options.replace_unknown:
            self.require_alignment("unknown words cannot be replaced")
        return self.has_alignment

    def forbidden_tokens(self, options: BeamSettings) -> list[int]:
        unk = self.processor.target.unk if self.replaces_unknown(options) else None
        return [token for token in super().forbidden_tokens(options) if token != unk]

    def length_limits(
        self, encoded: Encoded, items: np.ndarray, options: BeamSettings, prefix_length: int
    ) -> list[int]:
        limits = options.limits(encoded.lengths[items].tolist(), prefix_length)
        return [min(limit, self.context_length or limit) for limit in limits]

    def check_lengths(self, lengths: np.ndarray, items: np.ndarray, locations: Any) -> None:
        """Raises an error that names the first text that is too long."""
        limit = MAX_SOURCE if self.context_length is None else self.context_length
        remedy = "split it into sentences" if self.context_length is None else "shorten it, or train another model"
        for item in items[lengths[items] > limit][:1].tolist():
            cause = f"{locations[item]} has {lengths[item]:,} tokens, the model takes {limit:,}"
            raise SeriatimError("predict.long", cause, remedy)

    def unknown_words(self, texts: Sequence[str]) -> list[str]:
        """Returns the words or characters that are not in the vocabulary of the source, each once."""
        return list(dict.fromkeys(word for text in texts for word in self.processor.source.unknown(text)))

    # Alignments

    def alignments(self, dataset: Dataset, options: AlignOptions) -> list[Alignment]:
        """Returns the attention of each target over its source; of rows without target, of the translation."""
        self.require_alignment("there is no alignment")
        _, targets = self.complete_targets(dataset, options)
        return self.align_texts(list(dataset["source"]), targets, by_words=not options.tokens)

    def complete_targets(self, dataset: Dataset, options: BeamSettings) -> tuple[Sequences, list[str]]:
        """Returns the encoded sources, and the target of each row: the given one, else the translation."""
        sources = list(dataset["source"])
        inputs = encode_with_eos(self.processor.source, sources)
        self.check_lengths(inputs.lengths, np.arange(len(inputs)), dataset.locations)
        targets = list(dataset["target"]) if "target" in dataset else [""] * len(sources)
        missing = np.flatnonzero([not text.strip() for text in targets])
        texts = [sources[row] for row in missing]
        translated = self.translations(texts, Encoded(sequences_of(inputs, missing)), options) if texts else []
        for row, group in zip(missing.tolist(), translated, strict=True):
            targets[row] = group[0].text
        return inputs, targets

    def align_texts(self, sources: Sequence[str], targets: Sequence[str], by_words: bool = True) -> list[Alignment]:
        """Returns the attention of each target over its source."""
        processor = self.processor
        encoded = Encoded(encode_with_eos(processor.source, sources), encode_with_eos(processor.target, targets))
        alignments = []
        for item, forced in enumerate(self.force(encoded, alignment=True)):
            assert forced.weights is not None
            source = TokenizedText.of(processor.source, encoded.inputs[item].tolist(), sources[item])
            target = TokenizedText.of(processor.target, encoded.targets[item].tolist(), targets[item])
            if by_words:
                alignments.append(Alignment.by_words(source, target, forced.weights))
            else:
                alignments.append(Alignment(source.tokens, target.tokens, forced.weights))
        return alignments

    def charts(
        self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Mapping[str, Any]]
    ) -> list[View]:
        """Returns a heat map of the alignment of each row."""
        if name == "translate":
            self.require_alignment("there is no alignment to draw")
            cells = [row["translation"] for row in predictions]
            texts = [cell if isinstance(cell, str) else cell[0] for cell in cells]
            alignments = self.align_texts(list(dataset["source"]), texts)
            return [alignment.chart(text) for alignment, text in zip(alignments, texts, strict=True)]
        if name == "align":
            parts = [(list(row["source"]), list(row["target"]), np.asarray(row["weights"])) for row in predictions]
            return [Alignment(*part).chart(" ".join(part[1])) for part in parts]
        return []

    # Inspection and usage

    def model_input(self, inputs: Any) -> ModelInput:
        """Returns sources with their targets as the network reads them; a missing target is the translation."""
        dataset = self.task.read(inputs, ALIGNED)
        sources, targets = self.complete_targets(dataset, BeamSettings())
        encoded = Encoded(sources, encode_with_eos(self.processor.target, targets))
        batch = self.task.collate(encoded, np.arange(len(encoded)))
        return ModelInput(batch, [self.sequences(encoded, item) for item in range(len(encoded))])

    def sequences(self, encoded: Encoded, item: int) -> dict[str, list[str]]:
        axes = {"source": [self.processor.source.token(int(token)) for token in encoded.inputs[item]]}
        if encoded.targets is not None:
            axes["target"] = [self.processor.target.token(int(token)) for token in encoded.targets[item]]
        return axes

    def with_target(self, encoded: Any, target: str | None = None, max_tokens: int | None = None) -> Any:
        clean = normalize if self.task.settings.normalize else str
        return super().with_target(encoded, None if target is None else clean(target), max_tokens)

    def aligner(self) -> Aligner | None:
        return self.align_pair if self.has_alignment else None

    def align_pair(self, source: str, target: str | None, by_words: bool) -> Alignment:
        """Returns the attention of a target over its source; by default of the translation."""
        rows = [(source,) if target is None else (source, target)]
        return self.alignments(self.task.read(rows, ALIGNED), AlignOptions(tokens=not by_words))[0]

    def embedding_tables(self) -> list[EmbeddingTable]:
        source = EmbeddingTable("source", self.processor.source, self.network.source)
        target = EmbeddingTable("target", self.processor.target, self.network.target)
        return [source] if target.module.weight is source.module.weight else [source, target]

    def usage(self, run: str) -> list[Usage]:
        texts = self.task.datasets["validation"]["source"] if "validation" in self.task.datasets else ["a text"]
        text = min(texts[:100], key=lambda text: abs(len(text) - 30)).replace('"', "'")
        usage = [
            Usage(f'seriatim translate {run} "{text}"', f'run.translate("{text}")'),
            Usage(f'seriatim translate {run} "{text}" --nbest 3', f'run.translate("{text}", nbest=3)'),
            Usage(
                f"seriatim translate {run} --data texts.txt --out translations.tsv", 'run.translate(Path("texts.txt"))'
            ),
        ]
        if self.has_alignment:
            usage.append(Usage(f'seriatim align {run} "{text}" --chart alignment.svg', f'run.align("{text}")'))
        return usage


def sequences_of(sequences: Any, rows: Any) -> Sequences:
    """Returns some of the sequences, in memory."""
    if isinstance(sequences, Sequences):
        return sequences.take(rows)
    return Sequences.of([np.asarray(sequences[int(row)]) for row in rows])
