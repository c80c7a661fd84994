"""Engines: log-probabilities of the next token, for prompts, step by step and along a text, of networks and n-grams.

A network with a limited context forgets by half: when its window is full, it continues from the later half of it, in
generation and in scoring alike, so that the score of a text is the one that generating it reports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from ...core.state import State, append
from ...data.sequences import Sequences
from ...decode.sampling import MultiStep
from ...decode.settings import GenerationSettings
from ...models.ngram import NGram
from ...nn.loss import token_log_probs
from ...nn.native import Stepper, TokenChoice, make_stepper, quantize_weights
from ...nn.network import Network, TokenHead, as_float32
from .stream import Stream, stack_spans

CHUNK = 512  # tokens of a long text that the network reads at once
EVALUATION_ROWS = 16  # parts of a split that are evaluated side by side
MIN_CHUNK = 128  # tokens at a time in evaluation, of models that carry a state


class Engine(ABC):
    """A language model over token ids."""

    model: nn.Module
    network: Network | None = None  # if it is one
    context_length: int | None = None  # tokens that it reads at once; None: any number

    @abstractmethod
    def quantize(self) -> Engine:
        """Returns an engine with int8 weights."""

    @abstractmethod
    def prefill(self, prompts: list[np.ndarray]) -> tuple[Tensor, State]:
        """Returns log-probabilities (N,V) of the token after each prompt of ids, and the state there."""

    @abstractmethod
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns log-probabilities (N,V) and the state after one more token of each row (N,)."""

    def multi_step(self, options: GenerationSettings, eos: int | None, forbidden: list[int]) -> MultiStep | None:
        """Returns a function that generates several tokens at once; None if model or options do not allow it."""
        return None

    @abstractmethod
    def log_probs(self, tokens: np.ndarray) -> Iterator[Tensor]:
        """Yields log-probabilities (n,V) of the token after each token but the last, some positions at a time."""

    @abstractmethod
    def score(self, tokens: np.ndarray) -> np.ndarray:
        """Returns the log-probability of each token but the first (T−1,), in double precision."""

    @abstractmethod
    def stream_loss(self, stream: Stream) -> float:
        """Returns the mean loss of all tokens of a stream but the first, or of all but the first of each part."""

    @abstractmethod
    def last_word_loss(self, lines: list[np.ndarray], eos: int) -> float:
        """Returns the mean loss of the last word of each line, given the words before it in the line and nothing else.

        Args:
            lines: The tokens of each line without its end, from short to long.
            eos: The token of a line end.
        """


class NetworkEngine(Engine):
    """A network. Short prompts and further tokens are read by the native step if there is one for it.

    With a limited context, the state also holds the last tokens (N,L; −1: none) and the used length of each row's
    window (N,).

    Args:
        network: The network.
        length: Of its training sequences; a limited context does not exceed it.
        int8: Whether the native step stores weights in 8 bits: they must be quantized.
    """

    network: Network

    def __init__(self, network: Network, length: int, int8: bool = False) -> None:
        self.model = self.network = network.eval()
        self.length, self.int8 = length, int8
        self.context_length = network.backbone.stream_window(length)
        self.device = next(network.parameters()).device

    @cached_property
    def stepper(self) -> Stepper | None:
        """The native step, which holds weights of its own; None if there is none for the network."""
        return make_stepper(self.network, self.int8)

    def quantize(self) -> NetworkEngine:
        return NetworkEngine(quantize_weights(self.network), self.length, int8=True)

    @torch.inference_mode()
    def prefill(self, prompts: list[np.ndarray]) -> tuple[Tensor, State]:
        windows = [prompt[len(prompt) - self._window_length(len(prompt)) :] for prompt in prompts]
        log_probs, inner = self._read_windows(windows)
        if self.context_length is None:
            return log_probs, inner
        history = torch.full((len(prompts), self.context_length), -1)
        for history_row, prompt in zip(history, prompts, strict=True):
            last = torch.from_numpy(prompt[-self.context_length :].astype(np.int64))
            history_row[len(history_row) - len(last) :] = last
        used = torch.tensor([len(window) for window in windows])
        return log_probs, (history.to(self.device), used.to(self.device), inner)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        if self.context_length is None:
            return self._next(tokens, state)
        history, used, inner = state
        history = append(history, tokens[:, None], dim=1)
        overflows = used == self.context_length
        used = torch.where(overflows, self.context_length // 2, used) + 1
        if not bool(overflows.any()):
            log_probs, inner = self._next(tokens, inner)
        else:
            rows = zip(history.cpu(), used.tolist(), strict=True)
            log_probs, inner = self._read_windows([row[len(row) - count :].numpy() for row, count in rows])
            history = history[:, history.shape[1] - self.context_length :]
        return log_probs, (history, used, inner)

    def multi_step(self, options: GenerationSettings, eos: int | None, forbidden: list[int]) -> MultiStep | None:
        if self.stepper is None or options.repetition_penalty != 1 or options.no_repeat_ngram:
            return None
        choice = TokenChoice(eos, 0, tuple(forbidden), options.temperature, options.top_k, options.top_p)
        return partial(self._generate, self.stepper, choice)

    @torch.inference_mode()
    def _generate(
        self,
        stepper: Stepper,
        choice: TokenChoice,
        tokens: Tensor,
        state: State,
        steps: int,
        limits: list[int],
        min_tokens: int,
        uniforms: Tensor | None,
    ) -> tuple[Tensor, Tensor, State] | None:
        """Generates up to `steps` tokens of each row natively; see `MultiStep`. None if a window is full."""
        history, used, inner = (None, None, state) if self.context_length is None else state
        if used is not None and self.context_length is not None:
            steps = min(steps, self.context_length - int(used.max()))
            if steps == 0:
                return None
        most = torch.tensor(limits)
        numbers = None if uniforms is None else uniforms[:, :steps]
        choice = replace(choice, min_tokens=min_tokens)
        generated, log_probs, inner = stepper.generate(tokens, inner, steps, most, choice, numbers)
        if history is None or used is None:
            return generated, log_probs, inner
        last = generated[:, -1]
        continued = (last >= 0) & (last != (-1 if choice.eos is None else choice.eos)) & (most > steps)
        rows = continued.nonzero()[:, 0]
        read = torch.cat([tokens[rows, None], generated[rows, :-1]], dim=1)
        return generated, log_probs, (torch.cat([history[rows], read], dim=1), used[rows] + steps, inner)

    @torch.inference_mode()
    def log_probs(self, tokens: np.ndarray) -> Iterator[Tensor]:
        ids = torch.from_numpy(tokens.astype(np.int64))
        count, done = len(ids) - 1, 0
        state: State = None
        while done < count:
            if self.context_length is None:
                chunk = ids[done : min(done + CHUNK, count)]
                logits, state = self.network(chunk[None].to(self.device), None, state)
                scores = logits[0]
            else:
                start = 0 if done == 0 else done - self.context_length // 2
                logits, _ = self.network(ids[None, start : start + self.context_length].to(self.device))
                scores = logits[0, done - start :][: count - done]
            yield as_float32(scores).log_softmax(dim=-1)
            done += len(scores)

    def score(self, tokens: np.ndarray) -> np.ndarray:
        targets = torch.from_numpy(tokens[1:].astype(np.int64))
        parts: list[Tensor] = []
        for log_probs in self.log_probs(tokens):
            chunk, targets = targets[: len(log_probs)], targets[len(log_probs) :]
            parts.append(log_probs.cpu().gather(1, chunk[:, None])[:, 0])
        return torch.cat(parts).double().numpy() if parts else np.empty(0)

    @torch.inference_mode()
    def stream_loss(self, stream: Stream) -> float:
        """Returns the mean loss of all tokens of a stream but the first, or of all but the first of each part.

        A backbone that reads streams carries its state from chunk to chunk; another one starts again at every chunk of
        its training length. Parts are read side by side; a whole stream is divided into rows.
        """
        head, tokens = cast(TokenHead, self.network.head), stream.tokens
        unlimited = self.context_length is None
        chunk = max(self.length, MIN_CHUNK) if unlimited else self.length
        if stream.spans is None:
            rows = divide(len(tokens) - 1, chunk)
        else:
            rows = stream.spans - np.array([0, 1])  # the last token of a part predicts nothing
        longest = -(-int(np.diff(rows).max()) // chunk) * chunk  # rounded up to whole chunks; the last may be padded
        total, state = 0.0, None
        for offset in range(0, longest, chunk):
            starts = rows[:, 0] + offset
            mask = torch.from_numpy(starts[:, None] + np.arange(chunk) < rows[:, 1:]).to(self.device)
            spans = torch.from_numpy(stack_spans(tokens, starts, chunk + 1)).to(self.device)
            padding = None if bool(mask.all()) else mask
            hidden, state = self.network.hidden(spans[:, :-1], padding, state if unlimited else None)
            log_probs = token_log_probs(hidden.flatten(0, 1), head.weight, head.bias, spans[:, 1:].flatten())
            total -= float((log_probs.cpu().double() * mask.cpu().flatten()).sum())
        return total / stream.targets

    @torch.inference_mode()
    def last_word_loss(self, lines: list[np.ndarray], eos: int) -> float:
        head, limit = cast(TokenHead, self.network.head), self.network.backbone.context_length
        total = 0.0
        for first in range(0, len(lines), EVALUATION_ROWS):
            batch = lines[first : first + EVALUATION_ROWS]  # of similar lengths
            contexts = Sequences.of([np.concatenate([[eos], line[:-1]])[-limit if limit else None :] for line in batch])
            inputs, mask = (torch.from_numpy(part).to(self.device) for part in contexts.padded(range(len(batch))))
            hidden, _ = self.network.hidden(inputs, mask, None)  # (B,T,D)
            last = hidden[torch.arange(len(batch), device=self.device), mask.sum(dim=1) - 1]
            targets = torch.tensor([int(line[-1]) for line in batch], device=self.device)
            total -= float(token_log_probs(last, head.weight, head.bias, targets).double().sum())
        return total / len(lines)

    def _window_length(self, length: int) -> int:
        """Returns how many of the last tokens of a text are in the window after it."""
        if self.context_length is None or length <= self.context_length:
            return length
        half = self.context_length // 2
        return half + 1 + (length - self.context_length - 1) % (self.context_length - half)

    def _next(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        if self.stepper is not None:
            return self.stepper.step(tokens, state)
        logits, state = self.network(tokens[:, None], None, state)
        return as_float32(logits[:, 0]).log_softmax(dim=-1), state

    def _read_windows(self, rows: list[np.ndarray]) -> tuple[Tensor, State]:
        """Reads rows of ids from the start; returns log-probabilities after them (N,V) and the state."""
        equal = all(len(row) == len(rows[0]) for row in rows)
        if self.stepper is not None and equal and self.stepper.prefills_faster(len(rows) * len(rows[0])):
            return self.stepper.prefill(torch.from_numpy(np.stack(rows).astype(np.int64)))
        lengths = torch.tensor([len(row) for row in rows])
        padded = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for padded_row, row in zip(padded, rows, strict=True):
            padded_row[: len(row)] = torch.from_numpy(row.astype(np.int64))
        mask = None if equal else (torch.arange(padded.shape[1]) < lengths[:, None]).to(self.device)
        size = padded.shape[1] if self.context_length is not None else CHUNK
        last, state = torch.empty(0), None
        for first in range(0, padded.shape[1], size):
            chunk_mask = None if mask is None else mask[:, first : first + size]
            logits, state = self.network(padded[:, first : first + size].to(self.device), chunk_mask, state)
            ends = (lengths - 1 - first).clamp(0, logits.shape[1] - 1).to(self.device)
            scores = logits[torch.arange(len(rows), device=self.device), ends]
            inside = ((lengths > first) & (lengths <= first + size)).to(self.device)[:, None]
            last = scores if first == 0 else torch.where(inside, scores, last)
        return as_float32(last).log_softmax(dim=-1), state if self.stepper is None else self.stepper.from_state(state)


class NGramEngine(Engine):
    """An n-gram model. Its state is the last tokens (N,order−1), −1 if there are none."""

    model: NGram

    def __init__(self, model: NGram) -> None:
        self.model, self.scorer = model, model.scorer
        self.history = self.scorer.order - 1

    def quantize(self) -> NGramEngine:
        return NGramEngine(quantize_weights(self.model))

    def prefill(self, prompts: list[np.ndarray]) -> tuple[Tensor, State]:
        contexts = np.full((len(prompts), self.history), -1, dtype=np.int64)
        for context, prompt in zip(contexts, prompts, strict=True):
            last = prompt[max(len(prompt) - self.history, 0) :]
            context[self.history - len(last) :] = last
        return self._next(torch.from_numpy(contexts))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self._next(torch.cat([state, tokens[:, None]], dim=1)[:, 1:])

    def log_probs(self, tokens: np.ndarray) -> Iterator[Tensor]:
        line = np.concatenate([np.full(self.history, -1), tokens]).astype(np.int64)
        for first in range(1, len(tokens), CHUNK):
            positions = np.arange(first, min(first + CHUNK, len(tokens)))
            yield self._next(torch.from_numpy(line[positions[:, None] + np.arange(self.history)]))[0]

    def score(self, tokens: np.ndarray) -> np.ndarray:
        return self.scorer.log_probs(tokens[1:], context=tokens[:1])

    def stream_loss(self, stream: Stream) -> float:
        parts = [self.scorer.log_probs(part[1:], part[:1].astype(np.int64)) for part in stream.parts()]
        return float(-np.concatenate(parts).mean())

    def last_word_loss(self, lines: list[np.ndarray], eos: int) -> float:
        start = np.array([eos], np.int64)
        return float(-np.mean([self.scorer.log_probs(line, start)[-1] for line in lines]))

    def _next(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self.scorer.next_log_probs(contexts.numpy())
        return torch.from_numpy(np.asarray(log_probs, dtype=np.float64)), contexts


def open_engine(network: nn.Module, length: int) -> Engine:
    """Returns the engine of a network or n-gram model; `length` is that of the training sequences."""
    return NGramEngine(network) if isinstance(network, NGram) else NetworkEngine(cast(Network, network), length)


def divide(targets: int, chunk: int) -> np.ndarray:
    """Returns the first position and the end of the rows (n,2) that a stream is divided into."""
    rows = min(EVALUATION_ROWS, max(targets // chunk, 1))
    size = -(-targets // (rows * chunk)) * chunk  # rounded up to whole chunks; the last rows may be padded
    starts = np.arange(rows) * size
    return np.stack([starts, np.clip(starts + size, starts, targets)], axis=1)
