"""Questions and passages as rows of tokens, and where in them the answers stand.

    [CLS] question [SEP] window of the passage [SEP]        question <eos> window of the passage <eos>

A passage is encoded once, however many questions are about it, and rows are put together when they are wanted. One that
is longer than a row can take is read in windows that overlap. Each span of it belongs to the window in which it stands
nearest to the middle, and is scored there alone, so that no span counts twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..core.files import write_json
from ..data.questions import Questions
from ..data.sequences import Sequences
from ..data.tokenizers import Tokenizer
from ._coder import FILE
from ._spans_text import Passages
from ._task import Batch

UNKNOWN = -1  # the target of a row whose answer is not known, or not in it where every question has one
FAR = np.iinfo(np.int64).max // 4


@dataclass(frozen=True)
class Windows:
    """Rows of tokens that are put together when they are wanted."""

    questions: Sequences
    passages: Sequences
    question: np.ndarray  # (rows,) of each row …
    passage: np.ndarray
    first: np.ndarray  # … the place of its window in the passage …
    size: np.ndarray  # … and the tokens of it
    frame: tuple[int | None, int, int]  # what stands before the question, behind it and behind the window

    def __len__(self) -> int:
        return len(self.question)

    @cached_property
    def lead(self) -> np.ndarray:
        """(rows,) where the window begins in its row."""
        found: np.ndarray = self.questions.lengths[self.question] + 1 + (self.frame[0] is not None)
        return found

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.lead + self.size + 1

    @cached_property
    def bases(self) -> np.ndarray:
        """(rows,2) where the question and the window begin among all tokens of their kind."""
        passages = self.passages.starts[self.passage] + self.first
        return np.stack([self.questions.starts[self.question], passages], axis=1)

    def padded(self, rows: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Some rows side by side (n,longest), and where real elements stand."""
        rows = np.asarray(rows, dtype=np.int64)
        lead, size, bases = self.lead[rows][:, None], self.size[rows][:, None], self.bases[rows]
        steps = np.arange(int((lead + size).max(initial=0)) + 1)
        begin, between, end = self.frame
        before = int(begin is not None)
        asked = _taken(self.questions.values, bases[:, :1], steps - before, lead - before - 1)
        block = np.where(steps < lead, asked, _taken(self.passages.values, bases[:, 1:], steps - lead, size))
        block[np.arange(len(rows)), lead[:, 0] - 1] = between
        block[np.arange(len(rows)), (lead + size)[:, 0]] = end
        if begin is not None:
            block[:, 0] = begin
        return block, steps <= lead + size

    def inside(self, rows: np.ndarray, sayable: np.ndarray) -> np.ndarray:
        """(n,longest) where tokens of the passage stand that an answer may begin or end with."""
        lead, size = self.lead[rows][:, None], self.size[rows][:, None]
        steps = np.arange(int((lead + size).max(initial=0)) + 1)
        return _taken(sayable, self.bases[rows, 1:], steps - lead, size)


def _taken(values: np.ndarray, bases: np.ndarray, places: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Values at some places (n,T) behind bases (n,1); 0 where the place is not within 0 … stop−1."""
    fine = (places >= 0) & (places < stop)
    if not len(values):
        return np.zeros(fine.shape, values.dtype)
    found: np.ndarray = np.where(fine, values[np.where(fine, bases + places, 0)], values.dtype.type(0))
    return found


@dataclass(frozen=True)
class SpanPart:
    """Encoded questions. A row is a window of a passage (mostly all of it) with a question before it."""

    inputs: Windows  # those that have a target come first
    asked: Questions
    passages: Passages
    targets: np.ndarray  # (rows,2) the elements where the answer begins and ends; UNKNOWN: there is no target
    owned: np.ndarray  # (rows,2) the window answers for spans whose first and last token add up to that; else others do
    null: np.ndarray  # (rows,) the element that stands for no answer
    true: np.ndarray  # (questions,2) the first and the last token of the first answer; UNKNOWN: there is none
    unanswerable: bool
    learnt: int = 0  # rows with a target
    cut: int = 0  # questions that are longer than what is read of them

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def inexact(self) -> int:
        """Questions whose first answer begins or ends within a token, so that it cannot be given to the letter."""
        passage = np.zeros(len(self.asked), np.int64)
        passage[self.inputs.question] = self.inputs.passage
        there = np.flatnonzero([len(one.answers) > 0 for one in self.asked.asked])
        answers = [self.asked.asked[index].answers[0] for index in there.tolist()]
        wanted = np.array([(start, start + len(text)) for text, start in answers], dtype=np.int64).reshape(-1, 2)
        first, last = (self.true[there] + self.inputs.passages.starts[passage[there]][:, None]).T
        given = np.stack([self.passages.starts[first], self.passages.ends[last]], axis=1)
        return int(((given != wanted).any(axis=1) | (self.true[there, 0] == UNKNOWN)).sum())

    def sayable(self, rows: np.ndarray) -> np.ndarray:
        """(n,T) the elements that an answer may begin and end with."""
        return self.inputs.inside(rows, self.passages.sayable)

    def collate(self, rows: np.ndarray) -> Batch:
        """Some rows side by side. The targets are those of the part, and which elements they are chosen from."""
        block, real = self.inputs.padded(rows)
        choice = self.sayable(rows)
        if self.unanswerable:
            choice[np.arange(len(rows)), self.null[rows]] = True
        targets = self.targets[rows]
        mask = None if real.all() else torch.from_numpy(real)
        known = int((targets[:, 0] != UNKNOWN).sum())
        return Batch(
            torch.from_numpy(block), (torch.from_numpy(targets), torch.from_numpy(choice)), count=known, mask=mask
        )


@dataclass(frozen=True)
class SpanCoder:
    """From questions and passages to `SpanPart`. A run keeps it."""

    tokenizer: Tokenizer
    unanswerable: bool  # a question may have no answer
    window: int  # elements of a row at most
    stride: int  # tokens from the beginning of a window to that of the next
    question: int  # tokens of a question at most
    answer: int  # tokens of an answer at most
    closing: bool  # the last element stands for no answer, not the first
    longest: int = 1  # elements of the longest row

    @property
    def frame(self) -> tuple[int | None, int, int]:
        """What stands before the question, behind it and behind the passage."""
        if self.tokenizer.framed:
            return self.tokenizer.cls, self.tokenizer.sep, self.tokenizer.sep  # type: ignore[return-value]
        end = self.tokenizer.eos or 0
        return None, end, end

    def encode(self, asked: Questions) -> SpanPart:
        used = sorted({one.passage for one in asked.asked})
        passages = Passages.of(self.tokenizer, [asked.passages[index] for index in used])
        number = {passage: index for index, passage in enumerate(used)}
        of = np.array([number[one.passage] for one in asked.asked], dtype=np.int64)
        texts = [" ".join(one.text.split()) for one in asked.asked]
        ids = self.tokenizer.encode_many(texts, strict=False)
        questions = Sequences.of([one[: self.question] for one in ids])
        row, first, size, owned = self._windows(questions.lengths, passages.tokens.lengths[of])
        windows = Windows(questions, passages.tokens, row, of[row], first, size, self.frame)
        null = windows.lengths - 1 if self.closing else np.zeros(len(windows), np.int64)
        answers = _answers(asked, passages, of)
        targets = self._targets(windows, answers, np.array([not one.answers for one in asked.asked], dtype=bool), null)
        order = np.argsort(targets[:, 0] == UNKNOWN, kind="stable")
        names = ("question", "passage", "first", "size")
        return SpanPart(
            replace(windows, **{name: getattr(windows, name)[order] for name in names}),
            asked,
            passages,
            targets[order],
            owned[order],
            null[order],
            answers[0],
            self.unanswerable,
            learnt=int((targets[:, 0] != UNKNOWN).sum()),
            cut=sum(len(one) > self.question for one in ids),
        )

    def _windows(self, questions: np.ndarray, passages: np.ndarray) -> tuple[np.ndarray, ...]:
        """(rows,) the question, the beginning, the size and the sums of first and last tokens of each window."""
        room = self.window - questions - 2 - (self.frame[0] is not None)
        step = np.minimum(self.stride, np.maximum(room // 2, 1))
        more = np.maximum(passages - room, 0)
        counts = 1 + -(-more // step)
        row = np.repeat(np.arange(len(counts)), counts)
        index = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.minimum(index * step[row], more[row])
        size = np.minimum(passages, room)[row]
        middle = 2 * first + size - 1
        between = (middle[:-1] + middle[1:] + 1) // 2
        owned = np.stack([np.append(-FAR, between), np.append(between, FAR)], axis=1) if len(row) else np.zeros((0, 2))
        owned[index == 0, 0] = -FAR
        owned[index == counts[row] - 1, 1] = FAR
        return row, first, size, owned

    def _targets(
        self, windows: Windows, answers: list[np.ndarray], without: np.ndarray, null: np.ndarray
    ) -> np.ndarray:
        """(rows,2) the elements of the first answer that lies within the window; else that of no answer, if there is
        such: in a window without the answer as in all windows of a question `without` one."""
        targets = np.full((len(windows), 2), UNKNOWN, dtype=np.int64)
        for spans in answers:
            first, last = spans[windows.question].T
            inside = (first >= windows.first) & (last < windows.first + windows.size)
            fresh = inside & (targets[:, 0] == UNKNOWN)
            targets[fresh] = (np.stack([first, last], axis=1) + (windows.lead - windows.first)[:, None])[fresh]
        if self.unanswerable:
            known = without | np.any([spans[:, 0] != UNKNOWN for spans in answers], axis=0)
            none = known[windows.question] & (targets[:, 0] == UNKNOWN)
            targets[none] = null[none, None]
        return targets

    def save(self, folder: Path) -> None:
        names = ("unanswerable", "window", "stride", "question", "answer", "closing", "longest")
        write_json(folder / FILE, {"kind": "spans"} | {name: getattr(self, name) for name in names})
        self.tokenizer.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path) -> SpanCoder:
        try:
            values = json.loads((folder / FILE).read_text(encoding="utf-8"))
            values.pop("kind")
            return cls(tokenizer=Tokenizer.load(folder), **values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SeriatimError("run.damaged", f"{folder / FILE} is not whole: {error}", "restore the file") from None


def _answers(asked: Questions, passages: Passages, of: np.ndarray) -> list[np.ndarray]:
    """First and last tokens (questions,2) of the first answers, of the second ones and so on; UNKNOWN: none."""
    most = max((len(one.answers) for one in asked.asked), default=0)
    found = [np.full((len(asked), 2), UNKNOWN, dtype=np.int64) for _ in range(max(most, 1))]
    for index, one in enumerate(asked.asked):
        for spans, (text, start) in zip(found, one.answers, strict=False):
            first, last = passages.span(int(of[index]), start, start + len(text))
            if first <= last:
                spans[index] = first, last
    return found
