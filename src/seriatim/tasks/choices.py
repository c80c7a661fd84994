"""Multiple choice: the columns of questions with choices in their usual layouts, and how a model reads them.

    COPA            premise, question ("cause" or "effect"), choice1, choice2, label
    SWAG            sent1, sent2, ending0 … ending3, label: a choice is sent2 with an ending
    lists           question, choices (a list of texts, its JSON, or {"text": […]}), label

A label is the number of a choice from 0 or from 1, a letter, or the text of the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.errors import Diagnostics, SeriatimError
from ..data.dataset import Column, Dataset
from .capability import Record
from .choose.spec import CHOICES, check_choices, choice_rows, parse_choices

COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
COPA_CONNECTORS = {"cause": "because", "effect": "so"}  # between the premise and a choice, for a language model
FIRST_LETTER = "A"
UNKNOWN_LABELS = ("", "-1")  # of the test splits of benchmarks


def with_choices(dataset: Dataset, choices: Sequence[str]) -> Dataset:
    """Returns questions with the same choices for all, or with their own if none are given; raises if a row has none.

    Args:
        dataset: Questions, with a role `choices` or without.
        choices: At least two texts, or nothing.
    """
    if choices:
        column = Column("choices", CHOICES, CHOICES.store([parse_choices(list(choices))] * len(dataset)))
        dataset = replace(dataset, columns={**dataset.columns, "choices": (column,)})
    if "choices" not in dataset:
        cause = f"{dataset.name}: the questions have no choices"
        raise SeriatimError("predict.choices", cause, 'pass them: --choices "one" --choices "another", or choices=[…]')
    problems = Diagnostics()
    check_choices(dataset, problems)
    problems.raise_problems()
    return dataset


def _role(dataset: Dataset, role: str) -> Sequence[str]:
    return [text.strip() for text in dataset[role]] if role in dataset else [""] * len(dataset)


def _join(*texts: str) -> str:
    return " ".join(text for text in texts if text)


def text_pairs(dataset: Dataset) -> tuple[list[str], list[str], np.ndarray]:
    """Returns the two texts of every choice of every question, and the number of choices of each question (rows,).

    The first text is the context with the question, the second one is the choice with its stem before it.
    """
    first, second, counts = [], [], []
    roles = zip(*(_role(dataset, role) for role in ("context", "question", "stem")), strict=True)
    for (context, question, stem), choices in zip(roles, choice_rows(dataset), strict=True):
        first += [_join(context, COPA_QUESTIONS.get(question, question))] * len(choices)
        second += [_join(stem, choice) for choice in choices]
        counts.append(len(choices))
    return first, second, np.array(counts, np.int64)


def continuations(dataset: Dataset) -> list[tuple[str, list[str]]]:
    """Returns for each question the text that a language model reads, and its continuation by each choice."""
    rows = []
    roles = zip(*(_role(dataset, role) for role in ("context", "question", "stem")), strict=True)
    for (context, question, stem), choices in zip(roles, choice_rows(dataset), strict=True):
        if question in COPA_CONNECTORS:
            prompt = f"{context.rstrip(' .')} {COPA_CONNECTORS[question]}"
            rows.append((prompt, [f" {choice[:1].lower()}{choice[1:]}" for choice in choices]))
        else:
            rows.append((_join(context, question, stem), [f" {choice}" for choice in choices]))
    return rows


# Labels


@dataclass(frozen=True)
class Labels:
    """How labels name choices: `first` is the label of the first one, "0", "1" or "A"; "" if they are the texts."""

    first: str

    @classmethod
    def detect(cls, labels: Sequence[str], choices: Sequence[tuple[str, ...]]) -> Labels:
        """Returns the style of the labels of a data set."""
        if all(label.isdecimal() for label in labels):
            last = any(int(label) == len(row) for label, row in zip(labels, choices, strict=True))
            return cls("1" if last and "0" not in labels else "0")
        letters = all(len(label) == 1 and label.isascii() and label.isalpha() for label in labels)
        return cls(FIRST_LETTER if letters else "")

    def index(self, label: str, choices: tuple[str, ...]) -> int | None:
        """Returns the number of the choice from 0 on that a label names; None if it names none."""
        index = -1
        if self.first == "":
            index = choices.index(label) if label in choices else -1
        elif self.first == FIRST_LETTER:
            index = ord(label.upper()) - ord(FIRST_LETTER) if len(label) == 1 else -1
        elif label.isdecimal():
            index = int(label) - int(self.first)
        return index if 0 <= index < len(choices) else None

    def name(self, index: int) -> str | int:
        """Returns the label of a choice; its number from 0 on if labels are texts."""
        return chr(ord(FIRST_LETTER) + index) if self.first == FIRST_LETTER else index + int(self.first or "0")


def answer_record(choices: tuple[str, ...], scores: np.ndarray, labels: Labels, probabilities: bool) -> Record:
    """Returns the record of an answer.

    Args:
        choices: The texts (C,).
        scores: Their scores (C,); their softmax gives the probabilities.
        labels: How choices are named.
        probabilities: Whether the record has the probability of each choice.
    """
    if not np.isfinite(scores).any():  # an n-gram without smoothing may exclude all of them
        scores = np.zeros(len(choices))
    shares = np.exp(scores.astype(np.float64) - scores.max())
    shares /= shares.sum()
    best = int(scores.argmax())
    record: Record = {"answer": choices[best], "choice": labels.name(best), "probability": float(shares[best])}
    return record | ({"probabilities": shares.tolist()} if probabilities else {})


def chance(counts: np.ndarray) -> Mapping[str, float]:
    """Returns the expected metrics of a choice at random, for questions with these numbers of choices (n,)."""
    accuracy = float(np.mean(1 / counts))
    return {"loss": float(np.log(counts).mean()), "accuracy": accuracy, "error": 1 - accuracy}
