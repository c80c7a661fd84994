"""Charts and tables of translations: metrics by the length of the source, the worst and the median sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.metrics import metric_label
from ...core.text import listed
from ...report.charts import BinnedMetric, Table, View
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

# The fraction of all sentences up to which each bin goes: many bins where most are, few where they are long and rare.
BIN_ENDS = (0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0)
MIN_BIN = 20  # sentences in a bin
SHOWN_SENTENCES = 10
SHOWN_REFERENCES = 3


def metrics_by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: References, scoring: Scoring
) -> list[View]:
    """Returns a chart for each of the two main metrics, if the lengths of the sources fill several bins."""
    metrics = ["exact_match", "bleu"] if scoring.closed else ["bleu", "chrf"]
    charts = [metric_by_length(sources, hypotheses, references, scoring, name) for name in metrics]
    return [chart for chart in charts if chart is not None]


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
    return listed([f"• {text}" for text in references], SHOWN_REFERENCES, "\n")
