"""Predict the next element of a text.

A language model gives every continuation a probability; trained on a text, it is measured on another part of it:

    loss = −mean log p(token | all before it)    perplexity = e^loss    bits per character = Σ −log₂ p / characters

Training rows begin anywhere in the text. Those of recurrent networks then go on for a stretch of steps, each where
the one before it stopped, with the state carried over and cut from the graph (truncated back-propagation through
time); a stretch ends after a while because a model that never began anew could not begin a text either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..core import config, registry
from ..core.errors import SeriatimError
from ..core.random import derive, numpy_stream
from ..core.tensors import load_tensors
from ..data.corpus import Corpus, prepare_single
from ..data.corpus import prepare as prepare_corpus
from ..data.text import TextSettings
from ..data.tokenizers import Tokenizer
from ..decode.options import DecodeSettings
from ..nn.backbone import BackboneSettings
from ..nn.loss import token_log_probs, token_loss
from ..nn.network import Network, load_weights, token_network
from ..nn.soft import TokenScores, soft_loss
from ._engine import Counted, Neural
from ._examples import refuse_counting
from ._speak import Speaker
from ._task import Batch
from ._unlike import unlike_tokens

STRETCH = 16  # training sequences that one row reads on for
EVALUATION_ROWS = 16
SAME_TOKENS = True  # as its teacher a student must have: each is an answer

DataSettings = TextSettings  # the section `data` of a configuration


class Settings(config.Settings):
    name: str = Field("language", description="the task: see `seriatim list tasks`")
    length: int = Field(128, ge=1, le=1_000_000, description="tokens of a training sequence")
    opening: bool = Field(
        True, description="texts are read as what follows a line end; false: as they stand, as `transformers` does"
    )


@dataclass
class LanguageTask:
    """Batches, loss and measures over a corpus of tokens."""

    settings: Settings
    corpus: Corpus
    seed: int
    carry: bool = False  # rows go on where they stopped, for a stretch

    objective = "loss"
    unit = "tokens"

    @property
    def notes(self) -> list[str]:
        """What was inferred about the data."""
        return self.corpus.notes

    @property
    def fingerprint(self) -> str:
        """Of the data as the model sees it."""
        return self.corpus.fingerprint

    @property
    def size(self) -> int:
        """Tokens of the training part."""
        return len(self.corpus.train)

    def has(self, split: str) -> bool:
        """Whether a split is there to evaluate on."""
        return len(getattr(self.corpus, split)) > 1

    def save(self, folder: Path) -> None:
        """What a run needs besides its weights."""
        self.corpus.tokenizer.save(folder / "tokenizer.json")

    def build(self, model: BackboneSettings) -> Network:
        """The network with fresh weights, the same for the same seed."""
        torch.manual_seed(derive(self.seed, "init"))
        network = self.shape(model)
        self.carry = network.backbone.carries
        if not network.backbone.causal:
            off = "leave model.bidirectional off, or " if hasattr(model, "bidirectional") else ""
            raise SeriatimError(
                "task.not-causal",
                f"a bidirectional {model.name} sees the token that it is to predict",
                f"{off}choose a model that looks back, such as gpt or lstm",
            )
        return network

    def shape(self, model: BackboneSettings) -> Network:
        return token_network(model, self.corpus.tokenizer.size, self.settings.length)

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        tokens, length = self.corpus.train, self.settings.length
        if len(tokens) <= length:
            raise SeriatimError(
                "data.too-short",
                f"the training part has {len(tokens):,} tokens, sequences of {length} need {length + 1:,}",
                "give more text, or lower --length",
            )
        stretch = min(STRETCH, (len(tokens) - 1) // length) if self.carry else 1
        number, place = divmod(step, stretch)
        starts = numpy_stream(self.seed, "shuffle", number).integers(0, len(tokens) - stretch * length, rows)
        starts = starts[first:last] + place * length
        pair = torch.from_numpy(np.stack([tokens[start : start + length + 1] for start in starts]).astype(np.int64))
        return Batch(pair[:, :-1], pair[:, 1:], count=(last - first) * length, fresh=place == 0)

    def steps_per_epoch(self, rows: int) -> int:
        """Rows begin anywhere: an epoch reads as many tokens as there are."""
        return max(self.size // (rows * self.settings.length), 1)

    def read(self, network: Any, batch: Batch, state: Any) -> tuple[TokenScores, Tensor, Any]:
        hidden, state = network.hidden(batch.inputs, batch.mask, state)
        vectors = hidden.flatten(0, 1)
        return TokenScores(vectors, network.head.weight, network.head.bias), vectors, state

    def hard(self, network: nn.Module, scores: TokenScores, batch: Batch, smoothing: float) -> Tensor:
        return token_loss(*scores, batch.targets.flatten(), smoothing)

    def loss(self, network: Any, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        scores, _, state = self.read(network, batch, state)
        return self.hard(network, scores, batch, smoothing), state

    def soft(self, network: nn.Module, scores: TokenScores, taught: TokenScores, temperature: float) -> Tensor:
        return soft_loss(scores, taught, temperature)

    def unlike(self, teacher: Any) -> list[str]:
        found = unlike_tokens(self.corpus.tokenizer, teacher.tokenizer)
        context = teacher.model.backbone.context
        if context is not None and context < self.settings.length:
            found.append(f"sequences have {self.settings.length} tokens, the teacher takes {context} (--length)")
        return found

    def count(self, model: Any, progress: Callable[[str], None]) -> Any:
        """A model that counts, made from the training part."""
        size = self.corpus.tokenizer.size
        return _counter(model).fit(self.corpus.train, size, model, self._boundary(), progress)

    def within(self, model: Any, entries: int) -> Any:
        """The settings of a model that counts, for a budget of numbers to store."""
        return model.within(entries, self.corpus.train, self.corpus.tokenizer.size, self._boundary())

    def _boundary(self) -> int | None:
        """What separates texts, where there are several."""
        eos = self.corpus.tokenizer.eos
        return eos if bool((self.corpus.train == eos).any()) else None

    def evaluate(self, model: Any, split: str, limit: int | None = None) -> dict[str, float]:
        tokens = getattr(self.corpus, split)
        part = tokens[:limit]
        if len(part) < 2:
            there = [name for name in ("train", "valid", "test") if self.has(name)]
            raise SeriatimError(
                "data.no-split", f"there is no {split} part to evaluate on", f"there is: {', '.join(there) or 'none'}"
            )
        neural = isinstance(model, nn.Module)
        loss = network_loss(model, part, self.settings.length) if neural else counted_loss(model, part)
        found = {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        if characters := self.corpus.characters.get(split, 0):
            found["bits_per_character"] = loss / math.log(2) * len(tokens) / characters
        return found | {"tokens": float(len(part) - 1)}

    def sample(self, model: Any, step: int) -> str:
        """A little text, for people to see what the model has learned."""
        options = DecodeSettings(max_tokens=160, temperature=0.8, seed=self.seed)
        return speaker(model, self.corpus.tokenizer, self.settings.length).generate([""], options)[0][0].text


@torch.inference_mode()
def network_loss(network: Any, tokens: np.ndarray, length: int) -> float:
    """The mean loss of all tokens but the first.

    A backbone that can take in any number of elements reads on from chunk to chunk; one with a limited context
    starts anew at every chunk of its training length.
    """
    network.eval()
    head = network.head
    device = next(network.parameters()).device
    reads_on = network.backbone.context is None
    chunk = max(length, 128) if reads_on else length
    targets = len(tokens) - 1
    rows = min(EVALUATION_ROWS, max(targets // chunk, 1))
    per_row = -(-targets // (rows * chunk)) * chunk  # rounded up to whole chunks; the last rows may be padded
    total = 0.0
    state = None
    starts = np.arange(rows)[:, None] * per_row
    for offset in range(0, per_row, chunk):
        places = starts + offset + np.arange(chunk)  # (rows,chunk)
        real = torch.from_numpy(places < targets).to(device)
        places = np.minimum(places, targets - 1)
        inputs = torch.from_numpy(tokens[places].astype(np.int64)).to(device)
        wanted = torch.from_numpy(tokens[places + 1].astype(np.int64)).to(device)
        mask = None if bool(real.all()) else real
        hidden, state = network.hidden(inputs, mask, state if reads_on else None)
        log_probs = token_log_probs(hidden.flatten(0, 1), head.weight, head.bias, wanted.flatten())
        total -= float((log_probs.cpu().double() * real.cpu().flatten()).sum())
    return total / targets


def counted_loss(model: Any, tokens: np.ndarray) -> float:
    """The same for a model that counts."""
    context = np.asarray(tokens[:1]).astype(np.int64)
    return float(-model.log_probs(np.asarray(tokens[1:]), context=context).mean())


def speaker(model: Any, tokenizer: Tokenizer, length: int, opening: bool = True) -> Speaker:
    """What answers questions, whichever kind of model it is, trained on sequences of some length."""
    return Speaker(Neural(model, length) if isinstance(model, nn.Module) else Counted(model), tokenizer, opening)


def _counter(settings: Any) -> Any:
    """The class behind the settings of a model that counts."""
    return registry.models.load(settings.name).NGram


def prepare(
    config: Any,
    data_dir: str | None = None,
    notify: Callable[[str], None] | None = None,
    tokenizer: Tokenizer | None = None,
) -> LanguageTask:
    """Reads and tokenises the data of a configuration; a tokenizer is trained where none is given."""
    if config.model.counts and not hasattr(registry.models.load(config.model.name), "NGram"):
        refuse_counting(config.model, config.task.name)
    return LanguageTask(config.task, prepare_corpus(config.data, data_dir, notify, tokenizer), config.seed)


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> LanguageTask:
    """The same for a run that exists: with its own tokenizer."""
    return prepare(config, data_dir, notify, Tokenizer.load(path / "tokenizer.json"))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> LanguageTask:
    """The same on another file, all of which becomes the test part."""
    tokenizer = Tokenizer.load(path / "tokenizer.json")
    found = prepare_single(source, tokenizer, config.data.column, config.data.encoding, data_dir, notify)
    if len(found.ids) < 2:
        raise SeriatimError("data.too-short", f"{source} has fewer than 2 tokens", "give more text")
    nothing = found.ids[:0]
    corpus = Corpus(
        train=nothing,
        valid=nothing,
        test=found.ids,
        tokenizer=tokenizer,
        notes=found.notes,
        fingerprint=found.fingerprint,
        characters={"test": found.characters},
        bytes={"test": found.bytes},
        unknown={"test": found.unknown},
    )
    return LanguageTask(config.task, corpus, config.seed)


def adopt(folder: Path, tokenizer: Tokenizer, labels: tuple[str, ...], longest: int, several: bool) -> None:
    """What a run keeps besides weights, for a model that was trained elsewhere."""
    tokenizer.save(folder / "tokenizer.json")


def open_run(path: Path, config: Any) -> Speaker:
    """The trained model of a run folder, ready to answer."""
    tokenizer = Tokenizer.load(path / "tokenizer.json")
    evaluated = (path / "samples.jsonl").exists()
    if not evaluated and not (path / "model.safetensors").exists():
        raise SeriatimError(
            "run.unfinished", f"{path} was stopped before its first evaluation", f"`seriatim resume {path}`"
        )
    stored = load_tensors(path / "model.safetensors")
    try:
        if config.model.counts:
            arrays = {name: tensor.numpy() for name, tensor in stored.items()}
            return speaker(_counter(config.model).from_tensors(arrays, config.model, tokenizer.size), tokenizer, 0)
        network = token_network(config.model, tokenizer.size, config.task.length)
        load_weights(network, stored)
    except (KeyError, ValueError, SeriatimError) as error:
        raise mismatch(path, error) from None
    return speaker(network, tokenizer, config.task.length, config.task.opening)


def mismatch(path: Path, error: Exception) -> SeriatimError:
    return SeriatimError("run.mismatch", f"{path}: weights and config.yaml do not fit: {error}", "restore config.yaml")
