"""The predictor of `translate`: translations, scores of given translations, alignments, and what a report shows.

The score of a translation is what the capability `score` returns for its text: where its tokens differ from those that
the tokenizer makes of the text, or the end is missing, it is computed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...core.config import Settings
from ...core.errors import SeriatimError
from ...core.metrics import metric_label
from ...data.dataset import Dataset
from ...data.sequences import Sequences
from ...data.tokenizers import UNK
from ...decode.sampling import Hypothesis
from ...decode.settings import BeamSettings
from ...report.charts import BinnedMetric, Table, View
from ..batching import Batch
from ..capability import NoOptions, Record, capability
from ..codecs import normalize_text
from ..decoding import Generated, nbest_record
from ..embedding import EmbeddingPredictor, TextReader
from ..encoder_decoder import EncoderDecoderPredictor, eos_of
from ..inspection import Aligner, Alignment, EmbeddingTable, TokenizedText, written_words
from ..metrics import (
    MAX_ORDER,
    References,
    Scoring,
    bleu,
    chrf,
    exact_matches,
    is_unspaced,
    longest_ngram,
    sentence_chrf,
)
from ..predictor import Usage
from ..processor import Encoded
from .spec import ALIGN, ALIGNED, SCORE, TRANSLATE, AlignOptions

if TYPE_CHECKING:
    from .task import TranslateTask, TranslationProcessor

MAX_SOURCE = 16_384  # tokens of a source, if the model has no limit: time grows with the square
SHOWN_UNKNOWN = 10
# The fraction of all sentences up to which each bin goes: many bins where most are, few where they are long and rare.
BIN_ENDS = (0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0)
MIN_BIN = 20  # sentences in a bin
SHOWN_SENTENCES = 10
SHOWN_REFERENCES = 3
ALIGNED_QUANTILES = (0.5, 0.8)  # of the lengths of the sentences whose alignment is shown
MAX_ALIGNED = 30  # tokens of such a sentence


EMPTY = Generated([], 0.0, True, 0.0)


class TranslationPredictor(EncoderDecoderPredictor[Encoded], EmbeddingPredictor):
    processor: TranslationProcessor
    task: TranslateTask
    aligned = ALIGNED

    @capability(TRANSLATE)
    def translate(self, dataset: Dataset, options: BeamSettings) -> list[Record]:
        texts, encoded = list(dataset["source"]), self.task.encode(dataset)
        items = np.flatnonzero([bool(text.strip()) for text in texts])
        self.check_lengths(dataset, encoded.lengths, items)
        if unknown := self.unknown_words(texts):
            shown = ", ".join(f'"{word}"' for word in unknown[:SHOWN_UNKNOWN])
            more = f" and {len(unknown) - SHOWN_UNKNOWN:,} more" if len(unknown) > SHOWN_UNKNOWN else ""
            self.task.diagnostics.note(f"not in the vocabulary, read as {UNK}: {shown}{more}")
        return [
            nbest_record([{"translation": one.text, "score": one.score} for one in group], options.nbest)
            for group in self.translations(texts, encoded, options, items)
        ]

    @capability(SCORE)
    def score(self, dataset: Dataset, options: NoOptions) -> list[Record]:
        encoded = self.task.encode(dataset)
        for lengths in (encoded.inputs.lengths, encoded.targets.lengths):
            self.check_lengths(dataset, lengths)
        return self.score_records(encoded)

    @capability(ALIGN)
    def align(self, dataset: Dataset, options: AlignOptions) -> list[Record]:
        return [
            {
                "alignment": alignment.lines(),
                "target": alignment.target,
                "source": alignment.source,
                "weights": alignment.weights.round(6).tolist(),
            }
            for alignment in self.alignments(dataset, options)
        ]

    def text_batch(self, items: Encoded, rows: np.ndarray) -> Batch:
        batch = super().text_batch(items, rows)
        return replace(batch, inputs=(batch.inputs,))

    def text_reader(self) -> TextReader:
        source, table, limit = self.processor.source, self.network.source, self.decoder.context_length
        framed = self.processor.framed
        end = () if framed else (eos_of(source),)
        return TextReader(self, source, limit, suffix=end, cls_sep=framed, prepare=self.clean, table=table)

    def clean(self, text: str) -> str:
        """Returns a text as those of the training were normalized."""
        return normalize_text(text) if self.task.settings.normalize else text

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
        decoded = [self.clean(self.decode_text(one.tokens)) for one in hypotheses]
        targets = self.processor.encode_texts(self.processor.target, decoded)
        fits = targets.lengths <= (self.decoder.context_length or np.inf)
        own = [one.finished and one.tokens == targets[n].tolist() for n, one in enumerate(hypotheses)]
        same = np.array(own, dtype=bool)
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
            Generated(one.tokens, score, one.finished, one.normalized_score, text)
            for text, score, one in zip(decoded, scores, hypotheses, strict=True)
        ]

    def replaces_unknown(self, options: BeamSettings) -> bool:
        """Returns whether `<unk>` may be generated, because the attended source word replaces it."""
        kinds = {self.processor.target.kind, self.processor.source.kind}
        if kinds != {"word"} or options.replace_unknown is False:
            return False
        if options.replace_unknown:
            self.decoder.require_alignment("unknown words cannot be replaced")
        return self.decoder.has_alignment

    # Hooks of the base class

    def encode_rows(self, dataset: Dataset) -> Encoded:
        encoded = Encoded(self.processor.encode_texts(self.processor.source, list(dataset["source"])))
        self.check_lengths(dataset, encoded.lengths)
        return encoded

    def generate_targets(
        self, dataset: Dataset, encoded: Encoded, options: BeamSettings, items: np.ndarray
    ) -> list[str]:
        texts = [dataset["source"][int(item)] for item in items]
        sources = Encoded(sequences_of(encoded.inputs, items))
        readable = np.array([bool(text.strip()) for text in texts], dtype=bool)
        if self.decoder.context_length is not None:
            readable &= sources.lengths <= self.decoder.context_length
        return [group[0].text for group in self.translations(texts, sources, options, np.flatnonzero(readable))]

    def forbidden_tokens(self, options: BeamSettings) -> list[int]:
        unk = self.processor.target.unk if self.replaces_unknown(options) else None
        return [token for token in super().forbidden_tokens(options) if token != unk]

    def length_limits(
        self, encoded: Encoded, items: np.ndarray, options: BeamSettings, prefix_length: int
    ) -> list[int]:
        limits = options.limits(encoded.lengths[items].tolist(), prefix_length)
        return [min(limit, self.decoder.context_length or limit) for limit in limits]

    def check_lengths(self, dataset: Dataset, lengths: np.ndarray, items: np.ndarray | None = None) -> None:
        """Raises an error that names the first text that is too long."""
        limit = MAX_SOURCE if self.decoder.context_length is None else self.decoder.context_length
        remedy = (
            "split it into sentences" if self.decoder.context_length is None else "shorten it, or train another model"
        )
        items = np.arange(len(lengths)) if items is None else items
        for item in items[lengths[items] > limit][:1].tolist():
            cause = f"{dataset.locations[item]} has {lengths[item]:,} tokens, the model takes {limit:,}"
            raise SeriatimError("predict.long", cause, remedy)

    def unknown_words(self, texts: Sequence[str]) -> list[str]:
        """Returns the words or characters that are not in the vocabulary of the source, each once."""
        return list(dict.fromkeys(word for text in texts for word in self.processor.source.unknown(text)))

    # Alignments

    def alignments(self, dataset: Dataset, options: AlignOptions) -> list[Alignment]:
        """Returns the attention of each target over its source; of rows without target, of the translation."""
        self.decoder.require_alignment("there is no alignment")
        _, targets = self.complete_targets(dataset, options)
        return self.align_texts(list(dataset["source"]), targets, by_words=not options.tokens)

    def align_texts(self, sources: Sequence[str], targets: Sequence[str], by_words: bool = True) -> list[Alignment]:
        """Returns the attention of each target over its source."""
        processor = self.processor
        inputs = processor.encode_texts(processor.source, sources)
        encoded = Encoded(inputs, processor.encode_texts(processor.target, targets))
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

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        """Returns a heat map of the alignment of each row."""
        if name == "translate":
            self.decoder.require_alignment("there is no alignment to draw")
            cells = [row["translation"] for row in predictions]
            texts = [cell if isinstance(cell, str) else cell[0] for cell in cells]
            alignments = self.align_texts(list(dataset["source"]), texts)
            return [alignment.chart(text) for alignment, text in zip(alignments, texts, strict=True)]
        if name == "align":
            parts = [(list(row["source"]), list(row["target"]), np.asarray(row["weights"])) for row in predictions]
            return [Alignment(*part).chart(" ".join(part[1])) for part in parts]
        return []

    # Inspection and usage

    def with_target(self, encoded: Encoded, target: str | None = None, max_tokens: int | None = None) -> Encoded:
        return super().with_target(encoded, None if target is None else self.clean(target), max_tokens)

    def aligner(self) -> Aligner | None:
        return self.align_pair if self.decoder.has_alignment else None

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
        if self.decoder.has_alignment:
            usage.append(Usage(f'seriatim align {run} "{text}" --chart alignment.svg', f'run.align("{text}")'))
        return usage


def sequences_of(sequences: Sequences, rows: np.ndarray) -> Sequences:
    """Returns some of the sequences, in memory."""
    if isinstance(sequences, Sequences):
        return sequences.take(rows)
    return Sequences.of([np.asarray(sequences[int(row)]) for row in rows])


# Charts and tables


def translation_views(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
    scoring: Scoring,
    predictor: TranslationPredictor,
) -> list[View]:
    """Returns the charts and tables of translations, one of each source."""
    metrics = ["exact_match", "bleu"] if scoring.closed else ["bleu", "chrf"]
    charts = [metric_by_length(sources, hypotheses, references, scoring, name) for name in metrics]
    views: list[View] = [chart for chart in charts if chart is not None]
    return [
        *views,
        *alignment_charts(sources, hypotheses, predictor),
        *sentence_tables(sources, hypotheses, references),
    ]


def source_lengths(sources: Sequence[str]) -> tuple[list[int], str]:
    """Returns the length of each source and its unit: words, or characters in scripts without spaces."""
    if is_unspaced(sources):
        return [len(source.strip()) for source in sources], "characters"
    return [len(source.split()) for source in sources], "words"


def length_bins(lengths: Sequence[int], least: int = MIN_BIN) -> list[tuple[int, int]]:
    """Returns the smallest and largest length of each bin. Equal lengths share a bin; none has fewer than `least`."""
    values, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    bins: list[tuple[int, int]] = []
    first, inside, reached, share = 0, 0, 0, 0
    for position, (value, count) in enumerate(zip(values.tolist(), counts.tolist(), strict=True)):
        inside, reached = inside + count, reached + count
        rest = len(lengths) - reached
        is_full = reached >= BIN_ENDS[share] * len(lengths) and inside >= least and rest >= least
        if position + 1 == len(values) or is_full:
            bins.append((int(values[first]), value))
            first, inside = position + 1, 0
            while share + 1 < len(BIN_ENDS) and BIN_ENDS[share] * len(lengths) <= reached:
                share += 1
    return bins


def metric_by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: References, scoring: Scoring, name: str
) -> BinnedMetric | None:
    """Returns BLEU, chrF or exact matches over the length of the source, if the lengths fill several bins.

    The BLEU of a bin whose references are all shorter than four words has n-grams of their length, and the note says
    so: by four it would be 0 for translations that are all correct.
    """
    lengths, unit = source_lengths(sources)
    bins = length_bins(lengths)
    if len(bins) < 2:
        return None
    names = [str(low) if low == high else f"{low}–{high}" for low, high in bins]
    note, shorter, values, counts = "fraction of translations that equal a reference", [], [], []
    for (low, high), label in zip(bins, names, strict=True):
        rows = [row for row, length in enumerate(lengths) if low <= length <= high]
        texts, groups = [hypotheses[row] for row in rows], [references[row] for row in rows]
        first = [group[:1] for group in groups]
        if name == "bleu":
            order = longest_ngram(first, scoring.tokenize)
            value, signature = bleu(texts, first, scoring.tokenize, order)
            note = f"sacreBLEU {signature}"
            shorter += [f"length {label}: n-grams of up to {order}, the longest reference"] if order < MAX_ORDER else []
        elif name == "chrf":
            value, signature = chrf(texts, first)
            note = f"sacreBLEU {signature}"
        else:
            value = float(np.mean(exact_matches(texts, groups)))
        values.append(round(value, 4))
        counts.append(len(rows))
    return BinnedMetric(
        title=f"{metric_label(name)} by length of the source",
        note="; ".join([note, *shorter]),
        metric=name,
        x=f"{unit} of the source",
        unit="sentences",
        bins=tuple(names),
        counts=tuple(counts),
        series={"": tuple(values)},
        join=f"{name} by length",
    )


def sentence_tables(sources: Sequence[str], hypotheses: Sequence[str], references: References) -> list[Table]:
    """Returns the worst translations, and those in the middle of the order from worst to best, by chrF."""
    scores = sentence_chrf(hypotheses, references)
    order = np.argsort(scores, kind="stable").tolist()
    middle = max((len(order) - SHOWN_SENTENCES) // 2, 0)
    parts = {"Worst translations": order[:SHOWN_SENTENCES]}
    if len(order) > 2 * SHOWN_SENTENCES:
        parts["Translations of median quality"] = order[middle : middle + SHOWN_SENTENCES]
    several = any(len(group) > 1 for group in references)
    return [
        Table(
            title=title,
            note=f"chrF of each sentence{', with its nearest reference' if several else ''}, from 0 to 100.",
            columns=("source", "translation", "references" if several else "reference", "chrF"),
            rows=tuple(
                (sources[row], hypotheses[row], list_references(references[row]), round(scores[row], 1)) for row in rows
            ),
        )
        for title, rows in parts.items()
    ]


def list_references(references: Sequence[str]) -> str:
    """Returns references as a cell of a table: the first few, one a line."""
    if len(references) == 1:
        return references[0]
    more = [f"… and {len(references) - SHOWN_REFERENCES} more"] if len(references) > SHOWN_REFERENCES else []
    return "\n".join([*(f"• {text}" for text in references[:SHOWN_REFERENCES]), *more])


def alignment_charts(sources: Sequence[str], hypotheses: Sequence[str], predictor: TranslationPredictor) -> list[View]:
    """Returns the attention while translating a sentence of medium length and a longer one."""
    if not predictor.decoder.has_alignment:
        return []
    pairs = [(source, text) for source, text in zip(sources, hypotheses, strict=True) if text.strip()]
    processor = predictor.processor
    tokenizers = processor.source, processor.target
    sides = [processor.encode_texts(one, [pair[n] for pair in pairs]).lengths for n, one in enumerate(tokenizers)]
    lengths = np.maximum(*sides)
    limit = lengths.max(initial=0) if predictor.decoder.context_length is None else predictor.decoder.context_length
    order = [row for row in np.argsort(lengths, kind="stable").tolist() if lengths[row] <= limit]
    order = [row for row in order if lengths[row] <= MAX_ALIGNED] or order[:1]
    rows = list(dict.fromkeys(order[int(share * (len(order) - 1))] for share in ALIGNED_QUANTILES)) if order else []
    alignments = predictor.align_texts([pairs[row][0] for row in rows], [pairs[row][1] for row in rows])
    return [alignment.chart("Attention while translating") for alignment in alignments]
