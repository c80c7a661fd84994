"""A trained tagger that answers: tags for words, sentence by sentence, and files with one more column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core.errors import SeriatimError
from ..data import conll, entities
from ..data.decoding import Facts, Raw
from ..data.sources import find
from ..data.vocabulary import WORDS
from ..data.writing import Table
from ..nn.network import full
from ._examples import ELEMENTS
from ._words import NO_TAG, WordCoder, WordPart


@dataclass(frozen=True)
class Tagging:
    """What a network says about words: (n,) each."""

    words: np.ndarray  # their places in the part, in order
    best: np.ndarray  # the likeliest tag
    sure: np.ndarray  # its probability
    loss: np.ndarray  # −log p of the true tag; NaN where it is not known


def spells(network: nn.Module) -> bool:
    """Whether it wants to see how words are spelled."""
    return getattr(network.get_submodule("input"), "characters", None) is not None


@torch.inference_mode()
def tagging(network: nn.Module, part: WordPart, rows: np.ndarray) -> Tagging:
    """Some rows of a part through a network, like lengths together, put together again in the order of the words."""
    network.eval()
    device = next(network.parameters()).device
    lengths = part.inputs.lengths
    rows = rows[lengths[rows] > 0]
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    found: list[tuple[np.ndarray, ...]] = []
    while len(rows):
        some = rows[: max(ELEMENTS // int(lengths[rows[0]]), 1)]
        rows = rows[len(some) :]
        batch = part.collate(some, spells(network)).to(device)
        scores, _ = network(batch.inputs, batch.mask)
        log_probs = full(scores).log_softmax(dim=-1)
        sure, best = log_probs.max(dim=-1)
        true = log_probs.gather(-1, batch.targets.clamp(min=0)[..., None])[..., 0]
        loss = torch.where(batch.targets == NO_TAG, torch.nan, -true)
        where, _ = type(part.inputs)(part.where, part.inputs.ends).padded(some, fill=-1)
        here = where >= 0
        found.append((where[here], *(one.cpu().numpy()[here] for one in (best, sure.exp(), loss))))
    if not found:
        nothing = np.zeros(0)
        return Tagging(nothing.astype(np.int64), nothing.astype(np.int64), nothing, nothing)
    words, best_ones, sure_ones, losses = (np.concatenate(one) for one in zip(*found, strict=True))
    order = np.argsort(words)
    return Tagging(words[order], best_ones[order], sure_ones[order], losses[order])


class Tagger:
    questions = ("predict",)

    def __init__(self, network: nn.Module, coder: WordCoder, data: Any = None) -> None:
        self.model = network
        self.coder = coder
        self.data = data  # the settings by which a file is read

    def predict(self, items: Sequence[str | Sequence[str]]) -> list[dict[str, Any]]:
        """For each sentence (a text, or a list of words) its words, their tags and how sure each is."""
        sentences = [self.words(item) for item in items]
        part = self.coder.encode(sentences)
        said = tagging(self.model, part, np.arange(len(part)))
        labels = self.coder.labels
        answers = []
        for words, (first, end) in zip(sentences, part.bounds, strict=True):
            tags = [labels[index] for index in said.best[first:end].tolist()]
            answer: dict[str, Any] = {
                "words": words,
                "prediction": tags,
                "confidence": [round(value, 6) for value in said.sure[first:end].tolist()],
            }
            if self.coder.scheme != "none":
                answer["entities"] = [
                    {"type": kind, "text": " ".join(words[one:last]), "first": one, "last": last - 1}
                    for kind, one, last in entities.spans(tags)
                ]
            answers.append(answer)
        return answers

    def words(self, item: str | Sequence[str]) -> list[str]:
        """A text is split at blanks, its punctuation apart; a list of words is taken as it is."""
        if isinstance(item, str):
            return item.split() if self.coder.kind == "symbols" else re.findall(WORDS, item)
        if not isinstance(item, list | tuple) or not all(isinstance(word, str) and word for word in item):
            raise SeriatimError(
                "predict.input", f"{item!r} is neither a text nor a list of words", 'give "a text" or ["a", "text"]'
            )
        return list(item)

    def table(self, answers: list[dict[str, Any]]) -> Table:
        rows: list[list[Any]] = []
        for answer in answers:
            words = zip(answer["words"], answer["prediction"], answer["confidence"], strict=True)
            rows += [*(list(row) for row in words), []]
        return Table(["word", "prediction", "confidence"], rows[:-1], ".conll")

    def predict_file(self, source: str, data_dir: str | None = None) -> Table:
        """The lines of a file with one more column, line N for line N; `_` where a line holds no word."""
        facts = Facts()
        columns: dict[str, None] = {}
        rows: list[Any] = []
        for raw in find(source, data_dir).raws:
            parsed, kind = conll.parse(raw, self.data.encoding, facts)
            lines = list(parsed)
            if not any(line.word for line in lines):
                raise SeriatimError("data.empty", f"{raw.name}: holds no sentences", "give a file with a word a line")
            if kind == "JSONL":
                records = self._records(raw, lines)
                columns |= dict.fromkeys(name for record in records for name in record)
                rows += records
            else:
                width = max(len(line.cells) for line in lines if line.word)
                names = conll.FIELDS if kind == "CoNLL-U" else [f"column{number}" for number in range(1, width + 1)]
                columns |= dict.fromkeys([*names, "prediction"])
                rows += self._lines(raw, lines, kind)
        table = [[row.get(name) for name in columns] if isinstance(row, dict) else row for row in rows]
        return Table(list(columns), table, ".jsonl" if rows and isinstance(rows[0], dict) else ".conll")

    def _lines(self, raw: Raw, lines: list[conll.Line], kind: str) -> list[list[str]]:
        sentences: list[list[str]] = [[]]
        at = -1
        for line in lines:
            if line.word:
                if at < 0:
                    at = conll.column_index(raw, self.data.column, kind, len(line.cells), "form", 1)
                sentences[-1].append(line.cells[at])
            elif not line.cells:
                sentences.append([])
        tags = iter([tag for answer in self.predict(sentences) for tag in answer["prediction"]])
        return [
            [*line.cells, next(tags)] if line.word else [*line.cells, "_"] if len(line.cells) > 1 else line.cells
            for line in lines
        ]

    def _records(self, raw: Raw, lines: list[conll.Line]) -> list[dict[str, Any]]:
        records = [conll.json_object(raw, line) for line in lines if line.word]
        places = [f"{raw.name}, line {line.number}" for line in lines if line.word]
        words = [
            conll.json_list(record, self.data.column, "tokens", place)
            for record, place in zip(records, places, strict=True)
        ]
        answers = self.predict(words)
        return [record | {"prediction": one["prediction"]} for record, one in zip(records, answers, strict=True)]
