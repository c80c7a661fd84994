"""What is told of tagged data, and what a report shows of a tagger: by tag, by type, its surest mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data import entities
from . import _scores
from ._tagger import Tagging
from ._words import NO_TAG, WordCoder, WordPart

MISTAKES = 20
AROUND = 8  # words shown on each side of a mistake
MOST_LABELS = 60  # of a confusion matrix that can still be read


def tags_of(coder: WordCoder, part: WordPart, said: Tagging) -> tuple[list[list[str]], list[list[str]]]:
    """True and predicted tags of the sentences that were tagged."""
    best = np.full(len(part.forms), NO_TAG)
    best[said.words] = said.best
    true: list[list[str]] = []
    predicted: list[list[str]] = []
    for index, (first, end) in enumerate(part.bounds):
        if end > first and best[first] != NO_TAG:
            true.append(part.source.tags[index])
            predicted.append([coder.labels[tag] for tag in best[first:end].tolist()])
    return true, predicted


def views(coder: WordCoder, part: WordPart, said: Tagging, known: set[str] | None) -> list[dict[str, Any]]:
    """`known` are the words of the training part, where it is there."""
    true, labels = part.targets[said.words], coder.labels
    sayable = true != NO_TAG
    counts = _scores.confusion(true[sayable], said.best[sayable], len(labels))
    found: list[dict[str, Any]] = []
    if coder.scheme != "none":
        found.append(_types(*tags_of(coder, part, said)))
    found.append(_tags(labels, counts))
    if len(labels) <= MOST_LABELS:
        title = "What was taken for what"
        found.append({"kind": "confusion", "title": title, "labels": list(labels), "counts": counts.tolist()})
    if part.source is not None and known is not None:
        found.append(_unknown(part, said, known))
    if part.source is not None:  # words, not symbols
        found += _mistakes(labels, part, said)
    return found


def oddities(coder: WordCoder, part: WordPart, split: str) -> Iterator[str]:
    """New words, and tags that can never be right."""
    if coder.tokenizer is not None and coder.tokenizer.kind == "word" and len(part.forms):
        share = float((part.inputs.values == coder.tokenizer.unk).mean())
        yield f"{split}: {100 * share:.1f} % of the words are not in the vocabulary"
    strange = np.flatnonzero(part.targets == NO_TAG)
    if len(strange):
        sentence, word = _place(part, int(strange[0]))
        tag, place = part.source.tags[sentence][word], part.source.place(sentence, word)
        words = "1 word has a tag" if len(strange) == 1 else f"{len(strange):,} words have tags"
        yield f'{split}: {words} that the training part does not have, such as "{tag}" ({place}): always counted wrong'


def _place(part: WordPart, index: int) -> tuple[int, int]:
    """The sentence of a word, and its place in it."""
    sentence = int(np.searchsorted(part.ends, index, side="right"))
    return sentence, index - part.bounds[sentence][0]


def _types(true: list[list[str]], predicted: list[list[str]]) -> dict[str, Any]:
    whole, types = entities.score(true, predicted)
    rows = [[name, *_rounded(one.precision, one.recall, one.f1), one.there] for name, one in types.items()]
    rows.append(["all", *_rounded(whole.precision, whole.recall, whole.f1), whole.there])
    columns = ["type", "precision", "recall", "F1", "entities"]
    note = "An entity is right where its type, its first and its last word are."
    return {"kind": "table", "title": "Entities, type by type", "columns": columns, "rows": rows, "note": note}


def _tags(labels: tuple[str, ...], counts: np.ndarray) -> dict[str, Any]:
    hits, given, true = np.diagonal(counts), counts.sum(axis=0), counts.sum(axis=1)
    measures = np.stack(_scores.precision_recall(hits, given, true), axis=1).tolist()
    rows = [[label, *_rounded(*row), int(n)] for label, row, n in zip(labels, measures, true, strict=True)]
    columns = ["tag", "precision", "recall", "F1", "words"]
    return {"kind": "table", "title": "Tag by tag", "columns": columns, "rows": rows}


def _unknown(part: WordPart, said: Tagging, known: set[str]) -> dict[str, Any]:
    seen = np.array([name in known for name in part.names], dtype=bool)[part.forms[said.words]]
    right = part.targets[said.words] == said.best
    rows = [
        [name, _rounded(float(right[some].mean()))[0] if some.any() else None, int(some.sum())]
        for name, some in (("in the training part", seen), ("new", ~seen))
    ]
    columns = ["words", "accuracy", "number"]
    return {"kind": "table", "title": "Known and new words", "columns": columns, "rows": rows}


def _mistakes(labels: tuple[str, ...], part: WordPart, said: Tagging) -> list[dict[str, Any]]:
    """The wrong answers that the model was surest of, with the words around them."""
    wrong = np.flatnonzero(part.targets[said.words] != said.best)
    worst = wrong[np.argsort(-said.sure[wrong], kind="stable")][:MISTAKES]
    rows = []
    for index in worst.tolist():
        sentence, word = _place(part, int(said.words[index]))
        words = part.source.words[sentence]
        before, after = words[max(word - AROUND, 0) : word], words[word + 1 : word + 1 + AROUND]
        text = " ".join([*before, f"[{words[word]}]", *after])
        true, given = part.source.tags[sentence][word], labels[int(said.best[index])]
        rows.append([part.source.place(sentence, word), text, true, given, round(float(said.sure[index]), 3)])
    columns = ["where", "words", "true", "given", "confidence"]
    title = "The mistakes it was surest of"
    return [{"kind": "table", "title": title, "columns": columns, "rows": rows}] if rows else []


def _rounded(*values: float) -> list[float]:
    return [round(float(value), 4) for value in values]
