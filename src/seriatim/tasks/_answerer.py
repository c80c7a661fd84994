"""A trained model that answers questions about passages, and says where in them the answers stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..core.errors import SeriatimError
from ..core.files import write_json
from ..data.cells import shown
from ..data.questions import Question, Questions, read_single, unreadable
from ..data.writing import Table
from ._answer_search import NOWHERE, search
from ._predict import short
from ._spans import SpanCoder

EXAMPLE = '{"question": "…", "context": "…"}'


@dataclass(frozen=True)
class Answer:
    """passage[start:end] is the text; no answer is "", from 0 to 0."""

    text: str
    start: int
    end: int
    score: float  # of its begin and its end together
    probability: float  # among all spans of the passage, and no answer where that is possible


class Predictions(Table):
    """Answers as a table; written as .json they are {id: answer}, as the official programs of SQuAD read them."""

    def write(self, path: str | Path) -> None:
        if Path(path).suffix.lower() != ".json":
            super().write(path)
            return
        keys, texts = (self.columns.index(name) for name in ("id", "prediction"))
        found = {row[keys]: row[texts] for row in self.rows}
        if len(found) < len(self.rows):
            cause = f"{path}: {len(self.rows) - len(found):,} questions have the id of another"
            raise SeriatimError("output.ids", cause, "give each question an id of its own, or write a .jsonl file")
        write_json(path, found)


class Answerer:
    questions = ("predict", "answer")
    pairs = True  # an input is a question and a passage

    def __init__(self, network: nn.Module, coder: SpanCoder, threshold: float, encoding: str = "utf-8") -> None:
        self.model = network
        self.coder = coder
        self.threshold = threshold
        self.encoding = encoding  # by which a file is read

    def answer(
        self, passage: str, questions: Sequence[str], nbest: int = 1, threshold: float | None = None
    ) -> list[list[Answer]]:
        """For each question about a passage its likeliest answers, best first: `nbest` of them, or as many as are.

        Who names a threshold asks a model that may be silent, whether the run says so or not.
        """
        if nbest < 1:
            raise SeriatimError("answer.nbest", f"{nbest} answers are none", "ask for 1 or more")
        return self._answers(questions_of([(text, passage) for text in questions]), nbest, threshold)

    def predict(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """An answer for each input: a dictionary with "question" and "context", or a pair of both."""
        found = self._answers(questions_of([_pair(item, number) for number, item in enumerate(items, 1)]), 1)
        return [_named(best) for best, *_ in found]

    def predict_file(self, source: str, data_dir: str | None = None) -> Predictions:
        """A row for each question of a SQuAD or JSONL file."""
        asked, _ = read_single(source, self.encoding, data_dir, answers=False)
        answers = [_named(best) for best, *_ in self._answers(asked, 1)]
        rows = [[one.key, one.text, *answer.values()] for one, answer in zip(asked.asked, answers, strict=True)]
        return Predictions(["id", "question", *COLUMNS], rows, ".jsonl")

    def table(self, answers: list[dict[str, Any]]) -> Table:
        return Table(COLUMNS, [list(answer.values()) for answer in answers])

    def _answers(self, asked: Questions, nbest: int, threshold: float | None = None) -> list[list[Answer]]:
        if not len(asked):
            return []
        coder = replace(self.coder, unanswerable=self.coder.unanswerable or threshold is not None)
        threshold = self.threshold if threshold is None else threshold
        part = coder.encode(asked)
        found = search(self.model, part, np.arange(len(part)), coder.answer, nbest)
        places = [found.places(part, rank) for rank in range(nbest)]
        answers: list[list[Answer]] = []
        for index, one in enumerate(asked.asked):
            text, some = asked.passages[one.passage], []
            for rank in np.flatnonzero(found.spans[index, :, 0] != NOWHERE).tolist():
                start, end = places[rank][index]
                weighed = _weighed(found.scores[index, rank], found.total[index])
                some.append(Answer(text[start:end], start, end, *weighed))
            if coder.unanswerable or not some:  # no answer has its place among the others
                none = Answer("", 0, 0, *_weighed(found.null[index], found.total[index]))
                before = sum(none.score - better.score <= threshold for better in some)
                some.insert(before, none)
            answers.append(some[:nbest])
        return answers


COLUMNS = ["prediction", "start", "end", "score", "probability"]


def _weighed(score: float, total: float) -> tuple[float, float]:
    return short(float(score)), short(float(np.exp(score - total))) if np.isfinite(total) else 0.0


def _named(answer: Answer) -> dict[str, Any]:
    return dict(zip(COLUMNS, asdict(answer).values(), strict=True))


def _pair(item: Any, number: int) -> tuple[str, str]:
    if isinstance(item, dict) and "question" in item:
        item = (item["question"], next((item[name] for name in ("context", "passage") if name in item), None))
    if not isinstance(item, list | tuple) or len(item) != 2:
        cause = f"input {number} is {shown(item)}, no question with its passage"
        raise SeriatimError("predict.input", cause, f'give {EXAMPLE}; or `seriatim answer RUN --passage FILE "…?"`')
    return item[0], item[1]


def questions_of(pairs: Sequence[tuple[str, str]]) -> Questions:
    asked = Questions("")
    known: dict[str, int] = {}
    for number, pair in enumerate(pairs, 1):
        for name, text in zip(("question", "passage"), pair, strict=True):
            bad = unreadable(text) if isinstance(text, str) else f"is {shown(text)}, no text"
            if bad:
                raise SeriatimError("predict.input", f"the {name} of input {number} {bad}", f"give {EXAMPLE}")
        question, passage = pair
        place = known.setdefault(passage, len(known))
        asked.asked.append(Question(str(number), question, place, (), f"input {number}"))
    return replace(asked, passages=list(known))
