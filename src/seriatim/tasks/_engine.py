"""Language models as engines: log-probabilities of what follows, for prompts, step by step and along a text.

A model with a limited context forgets by half: once its window is full it goes on from the later half of it, when
generating and when scoring alike, so that the score of a text is what generating it reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.room import append
from ..decode.options import DecodeSettings
from ..decode.sampling import Ahead
from ..nn.native import Choice, Stepper, stepper
from ..nn.network import full
from ..nn.rounding import round_weights

CHUNK = 512  # tokens of a long text that go through at once


class Engine(Protocol):
    model: Any

    def rounded(self) -> Engine:
        """The same with weights of 8 bits."""

    def prompt(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        """Log-probabilities (N,V) of what follows each row of ids, and the state behind it."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The same after one more token of each row (N,)."""

    def ahead(self, options: DecodeSettings, eos: int | None, forbidden: list[int]) -> Ahead | None:
        """What makes several steps at once, where the model and the options allow it."""

    def along(self, row: np.ndarray) -> Iterator[Tensor]:
        """Log-probabilities (n,V) of what follows each token of the row but the last, some tokens at a time."""

    def score(self, row: np.ndarray) -> np.ndarray:
        """The log-probability of each token of the row but the first."""


class Neural:
    """A network. With a limited context, the state also holds the last tokens (N,L; −1 is nothing) and how many
    places of the window each row has used (N,). Prompts are read by the network itself unless they are short; from
    there on the native step goes on, where there is one for it. With `bytes` it keeps its weights so: they must be
    rounded (nn/rounding.py)."""

    def __init__(self, network: nn.Module, length: int, bytes: bool = False) -> None:
        self.model = self.network = network.eval()
        self.stepper = stepper(network, bytes)
        limit: int | None = network.get_submodule("backbone").context  # type: ignore[assignment]
        self.context = None if limit is None else min(limit, length)  # places beyond were never trained
        self.device = next(network.parameters()).device
        self.length = length

    def rounded(self) -> Neural:
        return Neural(round_weights(self.network), self.length, bytes=True)

    @torch.inference_mode()
    def prompt(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        tails = [row[len(row) - self._used(len(row)) :] for row in rows]
        log_probs, inner = self._begun(tails)
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
            return self._next(tokens, state)
        history, used, inner = state
        history = append(history, tokens[:, None], dim=1)
        overflows = used == self.context
        used = torch.where(overflows, self.context // 2, used) + 1
        if not bool(overflows.any()):
            log_probs, inner = self._next(tokens, inner)
        else:
            tails = [row[len(row) - n :].numpy() for row, n in zip(history.cpu(), used.tolist(), strict=True)]
            log_probs, inner = self._begun(tails)
            history = history[:, history.shape[1] - self.context :]
        return log_probs, (history, used, inner)

    def ahead(self, options: DecodeSettings, eos: int | None, forbidden: list[int]) -> Ahead | None:
        if self.stepper is None or options.repetition_penalty != 1 or options.no_repeat_ngram:
            return None
        plain = Choice(eos, 0, tuple(forbidden), options.temperature, options.top_k, options.top_p)
        return partial(self._ahead, self.stepper, plain)

    @torch.inference_mode()
    def _ahead(
        self,
        stepper: Stepper,
        choice: Choice,
        tokens: Tensor,
        state: Any,
        steps: int,
        limits: list[int],
        least: int,
        uniforms: Tensor | None,
    ) -> tuple[Tensor, Tensor, Any] | None:
        history, used, inner = (None, None, state) if self.context is None else state
        if used is not None and self.context is not None:
            steps = min(steps, self.context - int(used.max()))
            if steps == 0:
                return None
        most = torch.tensor(limits)
        drawn = None if uniforms is None else uniforms[:, :steps]
        found, gains, inner = stepper.go(tokens, inner, steps, most, replace(choice, least=least), drawn)
        if history is None or used is None:
            return found, gains, inner
        last = found[:, -1]
        rows = ((last >= 0) & (last != (-1 if choice.end is None else choice.end)) & (most > steps)).nonzero()[:, 0]
        read = torch.cat([tokens[rows, None], found[rows, :-1]], dim=1)
        return found, gains, (torch.cat([history[rows], read], dim=1), used[rows] + steps, inner)

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

    def _next(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        if self.stepper is not None:
            return self.stepper.step(tokens, state)
        logits, state = self.network(tokens[:, None], None, state)
        return full(logits[:, 0]).log_softmax(dim=-1), state

    def _begun(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        alike = all(len(row) == len(rows[0]) for row in rows)
        if self.stepper is not None and alike and self.stepper.quick(len(rows) * len(rows[0])):
            return self.stepper.read(torch.from_numpy(np.stack(rows).astype(np.int64)))
        log_probs, state = self._read(rows)
        return log_probs, state if self.stepper is None else self.stepper.begin(state)

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

    def rounded(self) -> Counted:
        raise SeriatimError("run.counts", "a model that counts has no weights to round", "leave int8 away")

    def prompt(self, rows: list[np.ndarray]) -> tuple[Tensor, Any]:
        contexts = np.full((len(rows), self.places), -1, dtype=np.int64)
        for context, row in zip(contexts, rows, strict=True):
            kept = row[max(len(row) - self.places, 0) :]
            context[self.places - len(kept) :] = kept
        return self._next(torch.from_numpy(contexts))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self._next(torch.cat([state, tokens[:, None]], dim=1)[:, 1:])

    def ahead(self, options: DecodeSettings, eos: int | None, forbidden: list[int]) -> Ahead | None:
        return None

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
