"""What a report shows of translations: quality by the length of the source, alignments, the worst and median ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...core.metrics import metric_label
from ...report.charts import BinnedMetric, Table, View
from ..encoder_decoder import encode_with_eos
from ..text_metrics import References, Scoring, bleu, exact_matches, is_unspaced, sentence_chrf

if TYPE_CHECKING:
    from .predictor import TranslationPredictor

# The fraction of all sentences up to which each bin goes: many bins where most are, few where they are long and rare.
BIN_ENDS = (0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0)
MIN_BIN = 20  # sentences in a bin
SHOWN_SENTENCES = 10
SHOWN_REFERENCES = 3
ALIGNED_QUANTILES = (0.5, 0.8)  # of the lengths of the sentences whose alignment is shown
MAX_ALIGNED = 30  # tokens of such a sentence


def translation_views(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
    scoring: Scoring,
    predictor: TranslationPredictor,
) -> list[View]:
    """Returns the charts and tables of translations, one of each source."""
    metrics = ["exact_match", "bleu"] if scoring.closed else ["bleu"]
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
    """Returns BLEU or exact matches over the length of the source, if the lengths fill several bins."""
    lengths, unit = source_lengths(sources)
    bins = length_bins(lengths)
    if len(bins) < 2:
        return None
    note, values, counts = "fraction of translations that equal a reference", [], []
    for low, high in bins:
        rows = [row for row, length in enumerate(lengths) if low <= length <= high]
        texts, groups = [hypotheses[row] for row in rows], [references[row] for row in rows]
        if name == "bleu":
            value, signature = bleu(texts, [group[:1] for group in groups], scoring.tokenize)
            note = f"sacreBLEU {signature}"
        else:
            value = float(np.mean(exact_matches(texts, groups)))
        values.append(round(value, 4))
        counts.append(len(rows))
    return BinnedMetric(
        title=f"{metric_label(name)} by length of the source",
        note=note,
        metric=name,
        x=f"{unit} of the source",
        unit="sentences",
        bins=tuple(str(low) if low == high else f"{low}–{high}" for low, high in bins),
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
    if not predictor.has_alignment:
        return []
    pairs = [(source, text) for source, text in zip(sources, hypotheses, strict=True) if text.strip()]
    tokenizers = predictor.processor.source, predictor.processor.target
    sides = [encode_with_eos(tokenizer, [pair[n] for pair in pairs]).lengths for n, tokenizer in enumerate(tokenizers)]
    lengths = np.maximum(*sides)
    limit = lengths.max(initial=0) if predictor.context_length is None else predictor.context_length
    order = [row for row in np.argsort(lengths, kind="stable").tolist() if lengths[row] <= limit]
    order = [row for row in order if lengths[row] <= MAX_ALIGNED] or order[:1]
    rows = list(dict.fromkeys(order[int(share * (len(order) - 1))] for share in ALIGNED_QUANTILES)) if order else []
    alignments = predictor.align_texts([pairs[row][0] for row in rows], [pairs[row][1] for row in rows])
    return [alignment.chart("Attention while translating") for alignment in alignments]
