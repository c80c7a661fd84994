"""Charts and tables of tagged sentences for the report."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ...data.dataset import Dataset
from ...data.entities import EntityScore, find_spans, score_entities
from ...report.charts import Bars, Span, SpanText, Table, View
from .processor import TagEncoded

MAX_MISTAKES = 20
CONTEXT_WORDS = 8  # shown on each side of a mistake
EXAMPLES = 10  # sentences with entities


def entity_views(tags: Sequence[str], encoded: TagEncoded, dataset: Dataset, best: np.ndarray) -> list[View]:
    """Returns the scores of entities by type, and sentences with their entities."""
    references = encoded.references or []
    predictions = [[tags[index] for index in best[first:end].tolist()] for first, end in encoded.bounds]
    total, types = score_entities(references, predictions)

    def cells(name: str, score: EntityScore) -> tuple[str, float, float, float, int]:
        return name, score.precision, score.recall, score.f1, score.reference

    table = Table(
        title="Entities by type",
        note="An entity is correct if its type, its first and its last word are.",
        columns=("type", "precision", "recall", "f1", "entities"),
        rows=(*(cells(name, score) for name, score in types.items()), cells("all", total)),
    )
    views: list[View] = [table]
    if types:
        scores = tuple(score.f1 for score in types.values())
        views.append(Bars(title="F1 by entity type", labels=tuple(types), values=scores, x="F1", metric="f1"))
    examples: list[tuple[str, SpanText, SpanText]] = []
    for row, (first, end) in enumerate(encoded.bounds):
        if len(examples) == EXAMPLES:
            break
        if find_spans(references[row]):
            words = [encoded.forms[form] for form in encoded.word_forms[first:end].tolist()]
            examples.append(
                (
                    str(dataset.locations[row]),
                    highlight(words, predictions[row], references[row]),
                    highlight(words, references[row], references[row]),
                )
            )
    if examples:
        columns = ("location", "prediction", "reference")
        views.append(Table(title="Sentences with their entities", columns=columns, rows=tuple(examples)))
    return views


def highlight(words: Sequence[str], tags: Sequence[str], references: Sequence[str]) -> SpanText:
    """Returns a sentence with its entities highlighted; those that are not in the reference are marked wrong."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    expected = set(find_spans(references))
    spans = [
        Span(starts[first], starts[end] - 1, kind, (kind, first, end) not in expected)
        for kind, first, end in find_spans(tags)
    ]
    return SpanText(" ".join(words), tuple(spans))


def known_words(encoded: TagEncoded, best: np.ndarray, train_forms: Collection[str]) -> Table:
    """Returns the accuracy on words that occur in the training split and on new ones."""
    known = np.array([form in train_forms for form in encoded.forms], dtype=bool)[encoded.word_forms]
    correct = encoded.labels == best
    rows = tuple(
        (name, float(correct[mask].mean()) if mask.any() else None, int(mask.sum()))
        for name, mask in (("in the training split", known), ("new", ~known))
    )
    return Table(title="Known and new words", columns=("words", "accuracy", "number"), rows=rows)


def mistakes(
    tags: tuple[str, ...], encoded: TagEncoded, dataset: Dataset, best: np.ndarray, confidence: np.ndarray
) -> list[View]:
    """Returns a table of the wrong predictions with the highest confidence, with the words around them."""
    wrong = np.flatnonzero(encoded.labels != best)
    rows = []
    for word in wrong[np.argsort(-confidence[wrong], kind="stable")][:MAX_MISTAKES].tolist():
        sentence, position = encoded.locate(word)
        first, end = encoded.bounds[sentence]
        forms = [encoded.forms[form] for form in encoded.word_forms[first:end].tolist()]
        start = max(position - CONTEXT_WORDS, 0)
        shown = forms[start : position + 1 + CONTEXT_WORDS]
        begin = len(" ".join([*shown[: position - start], ""]))
        text = SpanText(" ".join(shown), (Span(begin, begin + len(forms[position]), wrong=True),))
        reference = (encoded.references or [])[sentence][position]
        location = str(dataset.locations[sentence].element(position))
        rows.append((location, text, reference, tags[int(best[word])], round(float(confidence[word]), 3)))
    columns = ("location", "words", "reference", "prediction", "confidence")
    return [Table(title="Most confident mistakes", columns=columns, rows=tuple(rows))] if rows else []
