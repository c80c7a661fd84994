"""Questions and passages as windows of tokens, and the answers as positions in them.

    [CLS] question [SEP] window of the passage [SEP]        question <eos> window of the passage <eos>

A passage is encoded once, however many questions there are, and windows are assembled when a batch needs them. A
passage longer than the model reads has several windows, which overlap. Each span belongs to the window in which it is
nearest to the middle and is scored there alone, so that no span counts twice.

The best spans are searched by the scores of their start and end, over all windows of a passage:

    score(i, j) = start_i + end_j        i ≤ j < i + answer_length        p(i, j) = exp(score) / Σ exp(scores)

All spans are compared, not only those between the best starts and the best ends. If a question may have no answer, the
null element takes part with its score: the lowest over the windows, as in BERT.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.errors import Diagnostics, SeriatimError
from ...data.dataset import Dataset
from ...data.sequences import Sequences
from ...data.tokenizers import Tokenizer
from ...nn.inference import run_batches
from ..base import IGNORED
from ..codecs import fit_tokenizer, model_tokenizer
from ..processor import Processor, Tokenizers, Values
from ..spec import TaskConfig
from ..values import Encoded
from .questions import Answer, locate_answers
from .spec import MIN_LENGTH, AnswerSettings

ANSWER_LENGTH = 30  # tokens, unless many training answers are longer
UNANSWERABLE_KEY = "seriatim_unanswerable"  # in config.json of an exported model
FAR = np.iinfo(np.int64).max // 4
MAX_SPANS = 1 << 22  # of a batch that is searched at once


# Encoding


@dataclass(frozen=True)
class Passages:
    """Texts as tokens. Token i stands for the characters starts[i] … ends[i]−1 of its text, without white space around
    them; a token of white space alone has ends[i] = starts[i]."""

    tokens: Sequences
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def encode(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Passages:
        encoded = [encode_passage(tokenizer, text) for text in texts]
        starts, ends = (np.concatenate([part[i] for part in encoded] or [np.zeros(0, np.int64)]) for i in (1, 2))
        return cls(Sequences.of([ids for ids, _, _ in encoded]), starts, ends)

    @cached_property
    def selectable(self) -> np.ndarray:
        """The tokens that an answer may start and end with."""
        return self.starts < self.ends

    def find_tokens(self, passage: int, start: int, end: int) -> tuple[int, int]:
        """Returns the first and last token of characters; the last is before the first if no token stands for them."""
        first, stop = self.tokens.starts[passage], self.tokens.ends[passage]
        starts, ends = self.starts[first:stop], self.ends[first:stop]
        return int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end, side="left")) - 1


def encode_passage(tokenizer: Tokenizer, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the tokens of a text, and the start and end characters of each.

    Accents that a tokenizer leaves out belong to the letter before them.
    """
    ids, spans = tokenizer.encode_spans(text)
    begins, ends = spans.T
    blank = np.append(np.fromiter(map(str.isspace, text), bool, len(text)), False)
    starts = np.where(blank[begins], ends, begins)  # only a token of white space alone has some at its edge
    if not text.isascii():
        positions = np.arange(len(text) + 1)
        accents = np.append([unicodedata.category(character)[0] == "M" for character in text], False)
        following = np.minimum.accumulate(np.where(accents, len(text), positions)[::-1])[::-1]  # the next non-accent
        reached = np.minimum(following[ends], np.append(begins[1:], len(text)))
        ends = np.where(starts < ends, np.maximum(reached, ends), ends)
    return ids, starts, ends


@dataclass(frozen=True)
class Windows:
    """Sequences of a question and a window of its passage, assembled on demand."""

    questions: Sequences
    passages: Sequences
    question: np.ndarray  # (items,) the question of each item
    passage: np.ndarray  # (items,) its passage
    first: np.ndarray  # (items,) the first passage token of the window
    size: np.ndarray  # (items,) its number of passage tokens
    special_tokens: tuple[Sequence[int], Sequence[int], int]  # before the question, after it, and after the window

    def __len__(self) -> int:
        return len(self.question)

    def __getitem__(self, item: int) -> np.ndarray:
        tokens, mask = self.padded([item])
        return tokens[0][mask[0]]

    @cached_property
    def offsets(self) -> np.ndarray:
        """The position of the first passage token in each item (items,)."""
        offsets: np.ndarray = self.questions.lengths[self.question] + sum(map(len, self.special_tokens[:2]))
        return offsets

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.offsets + self.size + 1

    @cached_property
    def _starts(self) -> np.ndarray:
        """(items,2) where question and window start among the tokens of all questions and passages."""
        passages = self.passages.starts[self.passage] + self.first
        return np.stack([self.questions.starts[self.question], passages], axis=1)

    def padded(self, items: Sequence[int] | np.ndarray, fill: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens of items, padded to the longest (n,longest), and a mask, True for tokens."""
        items = np.asarray(items, dtype=np.int64)
        offset, size, starts = self.offsets[items][:, None], self.size[items][:, None], self._starts[items]
        steps = np.arange(int((offset + size).max(initial=0)) + 1)
        begin, between, end = self.special_tokens
        length = offset - len(begin) - len(between)
        question = gather(self.questions.values, starts[:, :1], steps - len(begin), length)
        tokens = np.where(steps < offset, question, gather(self.passages.values, starts[:, 1:], steps - offset, size))
        for position, token in enumerate(between):
            tokens[np.arange(len(items)), offset[:, 0] - len(between) + position] = token
        tokens[np.arange(len(items)), (offset + size)[:, 0]] = end
        tokens[:, : len(begin)] = begin
        mask = steps <= offset + size
        return np.where(mask, tokens, fill), mask

    def select(self, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Returns a boolean value of each passage token at its position in the items (n,longest), False elsewhere."""
        offset, size = self.offsets[items][:, None], self.size[items][:, None]
        steps = np.arange(int((offset + size).max(initial=0)) + 1)
        return gather(values, self._starts[items, 1:], steps - offset, size)


def gather(values: np.ndarray, starts: np.ndarray, positions: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Returns values at positions (n,T) after starts (n,1); 0 if the position is not within 0 … stop−1."""
    valid = (positions >= 0) & (positions < stop)
    if not len(values):
        return np.zeros(valid.shape, values.dtype)
    gathered: np.ndarray = np.where(valid, values[np.where(valid, starts + positions, 0)], values.dtype.type(0))
    return gathered


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerEncoded(Encoded):
    """Windows of passages, each after its question. Targets (items,2) are the first and last token of the answer in the
    window, the null element if it has none, IGNORED if there is nothing to train on."""

    inputs: Windows
    targets: np.ndarray | None = None  # (items,2); None at prediction
    rows: np.ndarray  # (items,) the question
    passages: Passages
    owned: np.ndarray  # (items,2) the window scores spans whose first and last token add up to this range
    null: np.ndarray  # (items,) the element that stands for no answer
    spans: np.ndarray  # (questions,2) first and last token of the first answer; IGNORED if there is none
    answers: list[list[Answer]]  # of each question; empty at prediction
    unanswerable: bool
    truncated: int  # questions

    @property
    def inexact(self) -> int:
        """The number of first answers that start or end inside of a token and cannot be predicted exactly."""
        passage = np.zeros(len(self.answers), np.int64)
        passage[self.rows] = self.inputs.passage
        rows = np.flatnonzero([len(answers) > 0 for answers in self.answers])
        expected = [(start, start + len(text)) for text, start in (self.answers[row][0] for row in rows.tolist())]
        first, last = (self.spans[rows] + self.inputs.passages.starts[passage[rows]][:, None]).T
        exact = np.stack([self.passages.starts[first], self.passages.ends[last]], axis=1)
        wrong = (exact != np.array(expected, dtype=np.int64).reshape(-1, 2)).any(axis=1)
        return int((wrong | (self.spans[rows, 0] == IGNORED)).sum())

    def selectable(self, items: np.ndarray) -> np.ndarray:
        """Returns a mask of the elements that an answer may start and end with (n,T)."""
        return self.inputs.select(items, self.passages.selectable)

    def choices(self, items: np.ndarray) -> np.ndarray:
        """Returns a mask of the elements that scores are compared over (n,T), with the null element if there is one."""
        choices = self.selectable(items)
        if self.unanswerable:
            choices[np.arange(len(items)), self.null[items]] = True
        return choices


@dataclass(frozen=True)
class AnswerProcessor(Processor[AnswerEncoded]):
    tokenizer: Tokenizer
    unanswerable: bool  # questions may have no answer
    max_length: int  # elements of a window at most
    stride: int
    question_length: int
    answer_length: int
    null_last: bool  # the last element stands for no answer, not the first
    longest: int = 1  # elements of the longest training window

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        settings: AnswerSettings = config.task
        if config.model.traits.directions == 2:
            diagnostics.note(f"{config.model.name} reads in both directions (model.bidirectional)")
        unanswerable = settings.unanswerable
        if unanswerable is None:
            unanswerable = any(not answers for answers in train["answers"])
            if unanswerable:
                diagnostics.note("questions may have no answer (task.unanswerable)")
        train = train if unanswerable else answered_rows(train)
        if not len(train):
            raise SeriatimError("data.empty", "no question of the training split has an answer", "add answers")
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            texts = [*dict.fromkeys(train["context"]), *train["question"]]
            tokenizer = fit_tokenizer(texts, settings.tokenizer or model_tokenizer(config.model, texts), diagnostics)
        traits = config.model.traits
        max_length = min(settings.context_length, traits.context_length or settings.context_length)
        if max_length < MIN_LENGTH:
            cause = f"a model that reads {max_length} elements has no room for a question and a passage"
            raise SeriatimError("task.length", cause, f"raise model.context_length to {MIN_LENGTH} or more")
        question_length = min(settings.question_length, (max_length - 2) // 2)
        null_last = traits.causal or not tokenizer.has_cls_sep  # the first element of a causal model has read nothing
        processor = cls(tokenizer, unanswerable, max_length, settings.stride, question_length, ANSWER_LENGTH, null_last)
        encoded = processor.encode(train, Diagnostics())
        if np.all(encoded.targets == IGNORED):
            remedy = "raise --context-length, or choose another tokenizer: task.tokenizer"
            raise SeriatimError("data.answers", "no answer of the training split lies inside of a window", remedy)
        lengths = (encoded.spans[:, 1] - encoded.spans[:, 0] + 1)[encoded.spans[:, 0] != IGNORED]
        answer_length = settings.answer_length
        if answer_length is None:
            quantile = int(np.quantile(lengths, 0.99, method="higher")) if len(lengths) else 0
            answer_length = max(ANSWER_LENGTH, quantile)
        longest = int(encoded.lengths.max())
        if traits.bounded and traits.context_length is None:  # the model is built for the longest training window
            max_length = longest
        return replace(processor, answer_length=answer_length, longest=longest, max_length=max_length)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        unanswerable = bool((config or {}).get(UNANSWERABLE_KEY))
        tokenizer, settings = tokenizers["tokenizer"], AnswerSettings()
        window = min(settings.context_length, max_length)
        question_length = min(settings.question_length, (window - 2) // 2)
        sizes = (window, settings.stride, question_length, ANSWER_LENGTH)
        return cls(tokenizer, unanswerable, *sizes, not tokenizer.has_cls_sep, max_length)

    @property
    def special_tokens(self) -> tuple[list[int], list[int], int]:
        """The tokens before the question, after it and after the passage."""
        tokenizer = self.tokenizer
        if tokenizer.cls is not None and tokenizer.sep is not None:
            return [tokenizer.cls], [tokenizer.sep] * tokenizer.separators, tokenizer.sep
        end = 0 if tokenizer.eos is None else tokenizer.eos
        return [], [end], end

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> AnswerEncoded:
        numbers: dict[str, int] = {}
        passage = np.array([numbers.setdefault(text, len(numbers)) for text in dataset["context"]], dtype=np.int64)
        passages = Passages.encode(self.tokenizer, list(numbers))
        texts = [" ".join(text.split()) for text in dataset["question"]]
        ids = self.tokenizer.encode_many(texts, strict=False)
        questions = Sequences.of([question[: self.question_length] for question in ids])
        rows, first, size, owned = self.make_windows(questions.lengths, passages.tokens.lengths[passage])
        windows = Windows(questions, passages.tokens, rows, passage[rows], first, size, self.special_tokens)
        null = windows.lengths - 1 if self.null_last else np.zeros(len(windows), np.int64)
        answers = [locate_answers(dataset, row) if "answers" in dataset else [] for row in range(len(dataset))]
        spans = find_answer_tokens(answers, passages, passage)
        targets = None
        if "answers" in dataset:
            targets = self._find_targets(windows, spans, np.array([not texts for texts in answers], dtype=bool), null)
        return AnswerEncoded(
            inputs=windows,
            targets=targets,
            rows=rows,
            passages=passages,
            owned=owned,
            null=null,
            spans=spans[0],
            answers=answers,
            unanswerable=self.unanswerable,
            truncated=sum(len(question) > self.question_length for question in ids),
        )

    def make_windows(self, question_lengths: np.ndarray, passage_lengths: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns of each window its question, first token and size (items,), and the sums of first and last tokens of
        the spans that belong to it (items,2)."""
        room = self.max_length - question_lengths - sum(map(len, self.special_tokens[:2])) - 1
        stride = np.minimum(self.stride, np.maximum(room // 2, 1))
        excess = np.maximum(passage_lengths - room, 0)
        counts = 1 + -(-excess // stride)
        rows = np.repeat(np.arange(len(counts)), counts)
        index = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.minimum(index * stride[rows], excess[rows])
        size = np.minimum(passage_lengths, room)[rows]
        middle = 2 * first + size - 1
        between = (middle[:-1] + middle[1:] + 1) // 2
        owned = np.zeros((0, 2), dtype=np.int64)
        if len(rows):
            owned = np.stack([np.append(-FAR, between), np.append(between, FAR)], axis=1)
        owned[index == 0, 0] = -FAR
        owned[index == counts[rows] - 1, 1] = FAR
        return rows, first, size, owned

    def _find_targets(
        self, windows: Windows, spans: list[np.ndarray], without: np.ndarray, null: np.ndarray
    ) -> np.ndarray:
        """Returns the elements (items,2) of the first answer that lies inside of the window, else the null element if
        questions may have no answer.

        Args:
            windows: The items.
            spans: First and last tokens (questions,2) of the first, second, … answers.
            without: Whether a question has no answer (questions,).
            null: The null element of each item.
        """
        targets = np.full((len(windows), 2), IGNORED, dtype=np.int64)
        for answer_spans in spans:
            first, last = answer_spans[windows.question].T
            inside = (first >= windows.first) & (last < windows.first + windows.size)
            new = inside & (targets[:, 0] == IGNORED)
            targets[new] = (np.stack([first, last], axis=1) + (windows.offsets - windows.first)[:, None])[new]
        if self.unanswerable:
            known = without | np.any([answer_spans[:, 0] != IGNORED for answer_spans in spans], axis=0)
            empty = known[windows.question] & (targets[:, 0] == IGNORED)
            targets[empty] = null[empty, None]
        return targets


def answered_rows(dataset: Dataset) -> Dataset:
    """Returns the questions that have an answer."""
    return dataset.take(np.flatnonzero([len(answers) > 0 for answers in dataset["answers"]]))


def find_answer_tokens(answers: list[list[Answer]], passages: Passages, passage: np.ndarray) -> list[np.ndarray]:
    """Returns first and last tokens (questions,2) of the first answers, of the second ones and so on; IGNORED: none."""
    count = max((len(texts) for texts in answers), default=0)
    spans = [np.full((len(answers), 2), IGNORED, dtype=np.int64) for _ in range(max(count, 1))]
    for row, texts in enumerate(answers):
        for answer_spans, (text, start) in zip(spans, texts, strict=False):
            first, last = passages.find_tokens(int(passage[row]), start, start + len(text))
            if first <= last:
                answer_spans[row] = first, last
    return spans


# Search


@dataclass(frozen=True)
class BestSpans:
    """The k best spans of n questions, best first."""

    rows: np.ndarray  # (n,) the questions, in order
    spans: np.ndarray  # (n,k,2) first and last token among those of all passages; IGNORED: there are no more
    scores: np.ndarray  # (n,k) −∞ there
    null: np.ndarray  # (n,) the score of no answer
    total: np.ndarray  # (n,) log Σ exp(score) over all spans, and no answer if that is possible

    def characters(self, encoded: AnswerEncoded, rank: int = 0) -> list[tuple[int, int]]:
        """Returns start and end characters of the spans of a rank; (0, 0) if there is none."""
        first, last = self.spans[:, rank].T
        exists = first != IGNORED
        characters = np.zeros((len(first), 2), np.int64)
        passages = encoded.passages
        characters[exists] = np.stack([passages.starts[first[exists]], passages.ends[last[exists]]], axis=1)
        return [(start, end) for start, end in characters.tolist()]

    def is_null(self, threshold: float) -> np.ndarray:
        """Returns whether no answer is better than the best span by more than the threshold (n,)."""
        missing = self.scores[:, 0] == -np.inf
        with np.errstate(invalid="ignore"):
            null: np.ndarray = missing | (self.null - self.scores[:, 0] > threshold)
        return null


def search_spans(
    encoded: AnswerEncoded, items: np.ndarray, scores: Sequence[np.ndarray], answer_length: int, count: int = 1
) -> BestSpans:
    """Returns the `count` best spans of each question.

    Args:
        encoded: The windows.
        items: Those that were scored (n,), all windows of each of their questions.
        scores: Start and end scores (2,T) of each of them, −∞ outside of its choices.
        answer_length: The longest span, in tokens.
        count: The number of spans.
    """
    lengths = encoded.lengths[items]

    def run(batch: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        padded = np.full((len(batch), 2, int(lengths[batch].max())), -np.inf, dtype=scores[0].dtype)
        for n, item in enumerate(batch.tolist()):
            padded[n, :, : lengths[item]] = scores[item][:, : lengths[item]]
        columns = search_windows(encoded, items[batch], torch.from_numpy(padded), answer_length, count)
        return list(zip(*columns, strict=True))

    results = run_batches(lengths, run, max_elements=MAX_SPANS // answer_length)
    tokens, values, totals, nulls = (np.stack(column) for column in zip(*results, strict=True))
    rows, index = np.unique(encoded.rows[items], return_inverse=True)
    null = np.full(len(rows), np.inf)
    np.minimum.at(null, index, nulls)
    total = np.full(len(rows), -np.inf)
    np.logaddexp.at(total, index, totals)
    if encoded.unanswerable:
        total = np.logaddexp(total, null)
    flat_rows = np.repeat(index, count)
    order = np.lexsort((-values.ravel(), flat_rows))
    flat_rows = flat_rows[order]
    rank = np.arange(len(flat_rows)) - np.searchsorted(flat_rows, flat_rows)
    selected = (rank < count) & (values.ravel()[order] > -np.inf)
    spans = np.full((len(rows), count, 2), IGNORED, dtype=np.int64)
    best = np.full((len(rows), count), -np.inf)
    spans[flat_rows[selected], rank[selected]] = tokens.reshape(-1, 2)[order][selected]
    best[flat_rows[selected], rank[selected]] = values.ravel()[order][selected]
    return BestSpans(rows, spans, best, null, total)


def search_windows(
    encoded: AnswerEncoded, items: np.ndarray, scores: Tensor, answer_length: int, count: int
) -> tuple[np.ndarray, ...]:
    """Returns the best spans (B,k,2) of windows, their scores (B,k), the log sum of all spans (B,) and the score of no
    answer (B,), from start and end scores (B,2,T)."""
    steps = scores.shape[2]
    selectable = torch.from_numpy(encoded.selectable(items))[:, :steps]
    start, end = scores.masked_fill(~selectable[:, None], -torch.inf).unbind(dim=1)  # (B,T)
    reach = min(answer_length, steps)
    ends = F.pad(end, (0, reach - 1), value=-torch.inf).unfold(1, reach, 1)  # (B,T,L): of spans of length 1 … L
    sums = start[..., None] + ends
    windows = encoded.inputs
    offset = windows.first[items] - windows.offsets[items]  # from an element to its position in the passage
    if (np.abs(encoded.owned[items]) < FAR).any():  # a passage has several windows
        middles = torch.arange(steps)[:, None] * 2 + torch.arange(reach)  # first + last element
        owned = torch.from_numpy(encoded.owned[items] - 2 * offset[:, None])[:, None, None]  # (B,1,1,2)
        sums = sums.masked_fill((middles < owned[..., 0]) | (middles >= owned[..., 1]), -torch.inf)
    flat = F.pad(sums.flatten(1), (0, max(count - steps * reach, 0)), value=-torch.inf)
    values, positions = flat.topk(count, dim=1)
    tokens = torch.stack([positions // reach, positions // reach + positions % reach], dim=-1).numpy()  # (B,k,2)
    tokens = tokens + (offset + windows.passages.starts[windows.passage[items]])[:, None, None]
    null = scores[torch.arange(len(items)), :, torch.from_numpy(encoded.null[items])].sum(dim=-1)
    return tokens, values.double().numpy(), flat.logsumexp(dim=1).double().numpy(), null.double().numpy()
