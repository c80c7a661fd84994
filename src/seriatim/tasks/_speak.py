"""What one asks of a language model: what comes next, go on, how likely is this. The same for every model.

An engine gives log-probabilities for token ids; the speaker turns text into ids and back. Every text is taken to
begin a new line: a newline token stands before it. A model with a limited context forgets by half: once its
window is full it goes on from the later half of it, when generating and when scoring alike, so that the score of
a text is what generating it reports.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.random import numpy_stream
from ..decode.beam import beam
from ..decode.constraints import padded
from ..decode.options import DecodeSettings
from ..decode.sampling import Hypothesis, Stopped, sample
from ..nn.network import full

ROWS = 64  # prompts that go through the model together
CHUNK = 512  # tokens of a long text that go through at once


class Engine(Protocol):
    model: Any

    def prompt(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        """Log-probabilities (N,V) of what follows each row of ids, and the state behind it."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The same after one more token of each row (N,)."""

    def along(self, row: np.ndarray) -> Iterator[Tensor]:
        """Log-probabilities (n,V) of what follows each token of the row but the last, some tokens at a time."""

    def score(self, row: np.ndarray) -> np.ndarray:
        """The log-probability of each token of the row but the first."""


class Neural:
    """A network. With a limited context, the state also holds the last tokens (N,L; −1 is nothing) and how many
    places of the window each row has used (N,)."""

    def __init__(self, network: nn.Module, length: int) -> None:
        self.model = self.network = network.eval()
        limit: int | None = network.get_submodule("backbone").context  # type: ignore[assignment]
        self.context = None if limit is None else min(limit, length)  # places beyond were never trained
        self.device = next(network.parameters()).device

    @torch.inference_mode()
    def prompt(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        tails = [row[len(row) - self._used(len(row)) :] for row in rows]
        log_probs, inner = self._read(tails)
        if self.context is None:
            return log_probs, inner
        history = torch.full((len(rows), self.context), -1)
        for history_row, row in zip(history, rows, strict=True):
            kept = torch.from_numpy(row[-self.context :].astype(np.int64))
            history_row[len(history_row) - len(kept) :] = kept
        used = torch.tensor([len(tail) for tail in tails])
        return log_probs, (history.to(self.device), used.to(self.device), inner)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        if self.context is None:
            logits, state = self.network(tokens[:, None], None, state)
            return full(logits[:, 0]).log_softmax(dim=-1), state
        history, used, inner = state
        history = torch.cat([history[:, 1:], tokens[:, None]], dim=1)
        overflows = used == self.context
        used = torch.where(overflows, self.context // 2, used) + 1
        if not bool(overflows.any()):
            logits, inner = self.network(tokens[:, None], None, inner)
            log_probs = full(logits[:, 0]).log_softmax(dim=-1)
        else:
            tails = [row[len(row) - n :].numpy() for row, n in zip(history.cpu(), used.tolist(), strict=True)]
            log_probs, inner = self._read(tails)
        return log_probs, (history, used, inner)

    @torch.inference_mode()
    def along(self, row: np.ndarray) -> Iterator[Tensor]:
        tokens = torch.from_numpy(row.astype(np.int64))
        asked, done = len(tokens) - 1, 0
        state: Any = None
        while done < asked:
            if self.context is None:
                part = tokens[done : min(done + CHUNK, asked)]
                logits, state = self.network(part[None].to(self.device), None, state)
                found = logits[0]
            else:
                start = 0 if done == 0 else done - self.context // 2
                logits, _ = self.network(tokens[None, start : start + self.context].to(self.device))
                found = logits[0, done - start :][: asked - done]
            yield full(found).log_softmax(dim=-1)
            done += len(found)

    def score(self, row: np.ndarray) -> np.ndarray:
        wanted = torch.from_numpy(row[1:].astype(np.int64))
        parts: list[Tensor] = []
        for log_probs in self.along(row):
            some, wanted = wanted[: len(log_probs)], wanted[len(log_probs) :]
            parts.append(log_probs.cpu().gather(1, some[:, None])[:, 0])
        return torch.cat(parts).double().numpy() if parts else np.empty(0)

    def _used(self, length: int) -> int:
        """How many of the last tokens stand in the window behind a text of some length."""
        if self.context is None or length <= self.context:
            return length
        kept = self.context // 2
        return kept + 1 + (length - self.context - 1) % (self.context - kept)

    def _read(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        """Reads rows of different lengths from the start, chunk after chunk."""
        lengths = torch.tensor([len(row) for row in rows])
        padded = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for padded_row, row in zip(padded, rows, strict=True):
            padded_row[: len(row)] = torch.from_numpy(row.astype(np.int64))
        ragged = bool((lengths != lengths[0]).any())
        mask = (torch.arange(padded.shape[1]) < lengths[:, None]).to(self.device) if ragged else None
        size = padded.shape[1] if self.context is not None else CHUNK
        last: Tensor | None = None
        state: Any = None
        for first in range(0, padded.shape[1], size):
            part = None if mask is None else mask[:, first : first + size]
            logits, state = self.network(padded[:, first : first + size].to(self.device), part, state)
            ends = (lengths - 1 - first).clamp(0, logits.shape[1] - 1).to(self.device)
            here = logits[torch.arange(len(rows), device=self.device), ends]
            inside = ((lengths > first) & (lengths <= first + size)).to(self.device)[:, None]
            last = here if last is None else torch.where(inside, here, last)
        assert last is not None  # rows are never empty: a newline stands before every text
        return full(last).log_softmax(dim=-1), state


class Counted:
    """A model that counts. Its state is the last few tokens (N,order−1), −1 where there are none."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.places: int = model.settings.order - 1

    def prompt(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        contexts = np.full((len(rows), self.places), -1, dtype=np.int64)
        for context, row in zip(contexts, rows, strict=True):
            kept = row[max(len(row) - self.places, 0) :]
            context[self.places - len(kept) :] = kept
        return self._next(torch.from_numpy(contexts))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self._next(torch.cat([state, tokens[:, None]], dim=1)[:, 1:])

    def along(self, row: np.ndarray) -> Iterator[Tensor]:
        line = np.concatenate([np.full(self.places, -1), row]).astype(np.int64)
        for first in range(1, len(row), CHUNK):
            places = np.arange(first, min(first + CHUNK, len(row)))
            yield self._next(torch.from_numpy(line[places[:, None] + np.arange(self.places)]))[0]

    def score(self, row: np.ndarray) -> np.ndarray:
        scores: np.ndarray = self.model.log_probs(row[1:], context=row[:1])
        return scores

    def _next(self, contexts: Tensor) -> tuple[Tensor, Any]:
        log_probs = self.model.next_log_probs(contexts.numpy())
        return torch.from_numpy(np.asarray(log_probs, dtype=np.float64)), contexts


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
        hypotheses = sample(self.engine.step, log_probs, state, options, streams, eos, stopped, history, self.forbidden)
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
