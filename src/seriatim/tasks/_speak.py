"""What one asks of a language model: what comes next, go on, how likely is this. The same for every model.

An engine gives log-probabilities for token ids (see `_engine.py`); the speaker turns text into ids and back. Every text
is taken to begin a new line: a newline token stands before it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import SeriatimError
from ..core.random import numpy_stream
from ..decode.beam import beam
from ..decode.constraints import padded
from ..decode.options import DecodeSettings
from ..decode.sampling import Hypothesis, Stopped, sample
from ._engine import Engine

ROWS = 64  # prompts that go through the model together


@dataclass(frozen=True)
class Continuation:
    token: str
    probability: float


@dataclass(frozen=True)
class Generation:
    """A continuation of a prompt; `score` is the log-probability of exactly `tokens` tokens behind the prompt."""

    prompt: str
    text: str
    score: float
    tokens: int
    finished: bool


@dataclass(frozen=True)
class Score:
    text: str
    log_probability: float
    tokens: int
    pieces: list[tuple[str, float]]

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.log_probability / max(self.tokens, 1)))


class Speaker:
    questions = ("next", "generate", "score")

    def __init__(self, engine: Engine, tokenizer: Any, opening: bool = True) -> None:
        self.engine = engine
        self.opening = opening  # texts are read behind what they begin with; else as they stand
        self.model = engine.model
        self.tokenizer = tokenizer
        self.forbidden = [] if tokenizer.unk is None else [tokenizer.unk]  # `<unk>` is no text
        newline = tokenizer.encode("\n", strict=False)
        usable = len(newline) > 0 and newline[-1] != tokenizer.unk
        other = tokenizer.unk or 0 if tokenizer.eos is None else tokenizer.eos  # the first GPT has no token for an end
        self.start = newline[-1:].astype(np.int64) if usable else np.array([other], dtype=np.int64)

    def rounded(self) -> Speaker:
        """The same with weights of 8 bits."""
        return Speaker(self.engine.rounded(), self.tokenizer, self.opening)

    def encode(self, text: str) -> np.ndarray:
        ids = self._ids(text)
        return ids if len(ids) and not self.opening else np.concatenate([self.start, ids])

    def _ids(self, text: str) -> np.ndarray:
        """Where every character counts, an unknown one is an error; an unknown word is `<unk>`, as in training."""
        ids: np.ndarray = self.tokenizer.encode(text, strict=not self.tokenizer.by_words).astype(np.int64)
        return ids

    def row(self, text: str) -> np.ndarray:
        """The ids that are scored, and before them one that is not: a token is likely or not only behind another."""
        row = self.encode(text)
        return np.concatenate([self.start, row]) if len(row) == 1 and not self.opening else row

    def next(self, prompt: str, top: int = 10) -> list[Continuation]:
        """The likeliest tokens behind a prompt."""
        log_probs, _ = self.engine.prompt([self.encode(prompt)])
        if not bool(log_probs.isfinite().any()):
            raise SeriatimError(
                "model.no-distribution",
                "this context was never seen, and without smoothing nothing is known about what follows it",
                "train with another smoothing: --set model.smoothing=modified-kneser-ney",
            )
        best = log_probs[0].topk(min(top, log_probs.shape[1]))
        pairs = zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
        return [Continuation(self.tokenizer.token(token), probability) for token, probability in pairs]

    def score(self, text: str) -> Score:
        """How likely a text is, altogether and piece by piece."""
        row = self.row(text)
        values = self.engine.score(row)
        pieces = [
            (self.tokenizer.token(int(token)), float(value)) for token, value in zip(row[1:], values, strict=True)
        ]
        return Score(text, float(values.sum()), len(values), pieces)

    def generate(self, prompts: list[str], options: DecodeSettings) -> list[list[Generation]]:
        """For each prompt its `nbest` continuations, best first where beams rank them."""
        copies = 1 if options.beams > 1 else options.nbest
        jobs = [prompt for prompt in prompts for _ in range(copies)]
        rows = [self.encode(prompt) for prompt in jobs]
        streams = own_streams(jobs, options.seed)
        found: list[list[Generation]] = [[] for _ in jobs]
        order = sorted(range(len(jobs)), key=lambda index: len(rows[index]))  # like lengths together: little padding
        for first in range(0, len(order), ROWS):
            part = order[first : first + ROWS]
            answers = self._decode([rows[i] for i in part], options, [streams[i] for i in part])
            for index, hypotheses in zip(part, answers, strict=True):
                found[index] = [self._generation(jobs[index], one, options) for one in hypotheses]
        groups = (found[first : first + copies] for first in range(0, len(found), copies))
        return [[one for answers in group for one in answers] for group in groups]

    def continued(self, prompt: str, options: DecodeSettings) -> tuple[np.ndarray, list[int]]:
        """The tokens of a prompt, and those that `generate` writes behind it first."""
        row = self.encode(prompt)
        return row, self._decode([row], options, own_streams([prompt], options.seed))[0][0].tokens

    def _decode(
        self, rows: list[np.ndarray], options: DecodeSettings, streams: list[np.random.Generator]
    ) -> list[list[Hypothesis]]:
        log_probs, state = self.engine.prompt(rows)
        eos = self.tokenizer.eos
        stopped = self._stopper(options)
        history = padded([row[1 if self.opening else 0 :].tolist() for row in rows], left=True)
        if options.beams > 1:
            return beam(self.engine.step, log_probs, state, options, eos, stopped, history, self.forbidden)
        ahead = self.engine.ahead(options, eos, self.forbidden)
        banned = self.forbidden
        hypotheses = sample(
            self.engine.step, log_probs, state, options, streams, eos, stopped, history, banned, ahead=ahead
        )
        return [[one] for one in hypotheses]

    def _stopper(self, options: DecodeSettings) -> Stopped | None:
        """Ends a row when a stop string shows in the last tokens; a token has at least one byte."""
        if not options.stop:
            return None
        reach = max(len(stop.encode()) for stop in options.stop) + 1
        return lambda row, tokens: any(stop in self.tokenizer.decode(tokens[-reach:]) for stop in options.stop)

    def _behind(self, prompt: str, tokens: list[int]) -> str:
        """The text of tokens that follow a prompt: words need the space between them."""
        before = self._ids(prompt).tolist()
        prefix, whole = str(self.tokenizer.decode(before)), str(self.tokenizer.decode(before + tokens))
        return whole[len(prefix) :] if whole.startswith(prefix) else str(self.tokenizer.decode(tokens))

    def _generation(self, prompt: str, found: Hypothesis, options: DecodeSettings) -> Generation:
        visible = found.tokens[:-1] if found.finished and found.tokens[-1] == self.tokenizer.eos else found.tokens
        text = self._behind(prompt, visible)
        ends = [place for stop in options.stop if (place := text.find(stop)) >= 0]
        return Generation(prompt, text[: min(ends)] if ends else text, found.score, len(found.tokens), found.finished)


def own_streams(prompts: list[str], seed: int) -> list[np.random.Generator]:
    """A stream for each prompt that depends on nothing but the prompt and how often it came before."""
    before: Counter[str] = Counter()
    streams = []
    for prompt in prompts:
        streams.append(numpy_stream(seed, "sample", zlib.crc32(prompt.encode()), before[prompt]))
        before[prompt] += 1
    return streams
