"""Caption: from a picture to a text that says what is to be seen.

    p(text | picture) = Π_t p(y_t | y_1 … y_{t−1}, picture)

A residual network (or patches) turns the picture into a grid of vectors, which is a memory like that of a sentence: any
encoder–decoder writes from it. Trained by teacher forcing, searched for word by word (`decode/`). Where the model
attends, each word shows where it looked; `penalty` asks that in the end every place was looked at (Xu et al. 2015):

    loss = Σ_t −log p(y_t) + λ Σ_i (1 − Σ_t α_{t,i})²
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..core import config
from ..core.errors import SeriatimError
from ..core.measures import Measured
from ..core.random import derive, numpy_stream
from ..core.state import select
from ..data import captions
from ..data.notes import Notes
from ..data.tokenizers import Tokenizer, TokenizerSettings
from ..decode.options import TranslateSettings
from ..nn.backbone import BackboneSettings
from ..nn.captioner import Captioner as Network
from ..nn.captioner import picture_network
from ..nn.loss import token_loss
from ..nn.scores import ScoreName
from ..nn.soft import TokenScores, soft_loss
from ..nn.trace import Only
from ._bleu import Manner
from ._caption_scores import judged
from ._caption_views import Known, views
from ._captioner import Captioner
from ._captions import CaptionCoder, CaptionPart
from ._encoders import EncoderName, encoder
from ._examples import ExampleTask, digest, mismatch, refuse_counting, restore, spread_over
from ._pair_engine import ALIGNMENT
from ._pairs import NO_TOKEN
from ._picture_coder import form_of
from ._pointing import pointing
from ._task import Batch
from ._unlike import unlike_tokens

__all__ = ["DataSettings", "Settings", "mismatch", "open_run", "prepare", "reopen", "reopen_on", "train_defaults"]

DataSettings = captions.CaptionSettings
WORDS = 10_000  # of a vocabulary that was not asked for
SHOWN = 4  # captions of a sample
JUDGED = 200  # pictures that are described along the way
TRAINED = 1_000  # pictures of the training part that are described
PARTS = ("train", "valid", "test")
PAIRS = True  # encoder–decoders are at home here
PICTURES = True  # are what it describes
SAME_TOKENS = True  # as its teacher a student must have: each is an answer


class Settings(config.Settings):
    name: str = Field("caption", description="the task: see `seriatim list tasks`")
    encoder: EncoderName | None = Field(
        None,
        description="what it sees of a picture: the grid of a residual network whose places see near (local) or far "
        "(resnet), or patches as they are (default: local for small pictures, else resnet)",
    )
    layers: int | None = Field(None, ge=8, description="of the residual network (default: 8, of photographs 18)")
    channels: int | None = Field(
        None, ge=1, le=4_096, description="of its first stage (default: 16, of photographs and far around more)"
    )
    penalty: float = Field(
        0.0, ge=0, le=100, description="what it costs to look at some places more than at others in all (λ)"
    )
    score: ScoreName = Field(
        "general", description="how attention judges a place of the picture, where it comes after the model"
    )
    beams: int = Field(5, ge=1, le=1_024, description="hypotheses of the beam search with which it is evaluated")


def train_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"batch": 32}


class CaptionTask(ExampleTask):
    unit = "tokens"
    objective = "loss"
    coder: CaptionCoder  # type: ignore[assignment]
    parts: dict[str, CaptionPart]  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._said: dict[str, tuple[Any, list[str]]] = {}  # what was said last of each part, by which weights

    def build(self, model: BackboneSettings) -> Network:  # type: ignore[override]
        torch.manual_seed(derive(self.seed, "init"))
        network = self.shape(model)
        mean, deviation = self.parts["train"].inputs.spread()
        network.source.picture.mean.copy_(torch.from_numpy(mean))
        network.source.picture.deviation.copy_(torch.from_numpy(deviation))
        return network

    def shape(self, model: BackboneSettings) -> Network:  # type: ignore[override]
        return network(model, self.coder, self.settings)

    @property
    def size(self) -> int:
        """Pictures: an epoch shows each once, with all that was said of it."""
        return len(self.parts["train"].groups)

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        draw, some = numpy_stream(self.seed, "pictures", step), slice(first, last)
        return self.parts["train"].drawn(self.rows(step, rows), some, self.coder.begin, draw, self.flips)

    def _order(self, epoch: int, rows: int) -> np.ndarray:
        """Whatever the length of their captions: a batch norm wants pictures of all kinds."""
        if (epoch, rows) not in self._orders:
            self._orders = {(epoch, rows): numpy_stream(self.seed, "shuffle", epoch).permutation(self.size)}
        return self._orders[epoch, rows]

    def collate(self, split: str, rows: np.ndarray) -> Batch:
        return self.parts[split].collate(rows, self.coder.begin)

    # Learning, also from a teacher

    def read(self, network: Any, batch: Batch, state: Any = None) -> tuple[TokenScores, Tensor, None]:
        vectors = self._taught(network, batch)[0]
        return TokenScores(vectors, network.head.weight, network.head.bias), vectors, None

    def hard(self, network: nn.Module, scores: TokenScores, batch: Batch, smoothing: float) -> Tensor:
        return token_loss(*scores, batch.targets[batch.targets != NO_TOKEN], smoothing)

    def loss(self, network: Any, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        trace = Only(ALIGNMENT) if self.settings.penalty else None
        vectors, weights = self._taught(network, batch, trace)
        scores = TokenScores(vectors, network.head.weight, network.head.bias)
        loss = self.hard(network, scores, batch, smoothing)
        if weights is not None:
            loss = loss + self.settings.penalty * unevenness(weights, batch.targets != NO_TOKEN).sum()
        return loss, None

    @staticmethod
    def _taught(network: Any, batch: Batch, trace: Only | None = None) -> tuple[Tensor, Tensor | None]:
        """What the decoder gives at every real place of the targets (N,D), and where it looked (B,T,S), if asked."""
        pictures, given, owners = batch.inputs
        hidden, _ = network.decode(given, select(network.encode(pictures), owners), None, trace)
        return hidden[batch.targets != NO_TOKEN], None if trace is None else trace.get(ALIGNMENT)

    def soft(self, network: nn.Module, scores: TokenScores, taught: TokenScores, temperature: float) -> Tensor:
        return soft_loss(scores, taught, temperature)

    def some(self, split: str, count: int) -> list[Any]:
        return spread_over(self.parts[split].inputs, count)

    def unlike(self, teacher: Any) -> list[str]:
        found = unlike_tokens(self.coder.target, teacher.coder.target, "target")
        if self.coder.shape != teacher.coder.shape:
            found.append(f"pictures of the shape {self.coder.shape}, the teacher's of {teacher.coder.shape}")
        return found

    # Evaluation

    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        groups = self._pictures(split, limit)
        quality = judged(self.described(model, split, limit), self._wanted(split, groups), self.manner.closed)
        known = Known.of(self._captioner(model), self.parts[split], np.concatenate(groups))
        found = {"loss": known.loss, "perplexity": math.exp(min(known.loss, 700.0))}
        return Measured(quality | pointing(known.nouns) | found, quality.signatures)

    def _wanted(self, split: str, groups: list[np.ndarray]) -> list[list[str]]:
        """What was said of each picture."""
        texts: Any = self.parts[split].examples.targets
        return [[texts[row] for row in rows.tolist()] for rows in groups]

    @cached_property
    def manner(self) -> Manner:
        """How captions are judged: for all parts alike."""
        part = self.parts["valid" if self.has("valid") else "test"]
        return Manner.of(part.examples.targets)  # type: ignore[arg-type]

    def _captioner(self, model: Any) -> Captioner:
        return Captioner([model], self.coder)

    def _pictures(self, split: str, limit: int | None) -> list[np.ndarray]:
        """The rows of every picture of a part, or of some of them."""
        self.chosen(split, None)  # tells where there is no such part
        groups = self.parts[split].groups
        most = JUDGED if limit is not None else TRAINED if split == "train" else len(groups)
        if most >= len(groups):
            return groups
        return [groups[place] for place in np.linspace(0, len(groups) - 1, most).astype(np.int64).tolist()]

    def described(self, model: nn.Module, split: str, limit: int | None = None) -> list[str]:
        """The captions of the pictures of a part: of all by beam search, or of some, greedily."""
        asked = (digest(model), limit is None)
        if split not in self._said or self._said[split][0] != asked:
            rows = [some[0] for some in self._pictures(split, limit)]
            options = TranslateSettings(beams=self.settings.beams if limit is None else 1)
            found = self._captioner(model).caption(self.parts[split].inputs.take(rows), options)
            self._said[split] = asked, [answers[0].text for answers in found]
        return self._said[split][1]

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """The caption that the training part has most often, whatever the picture shows."""
        if not self.has("train"):  # another file than that of the training
            return {}
        texts: Any = self.parts["train"].examples.targets
        ((often, _),) = Counter(texts).most_common(1)
        groups = self._pictures(split, None)
        found = judged([often] * len(groups), self._wanted(split, groups), self.manner.closed)
        return {"most frequent caption": dict(found)}

    def details(self, model: Any, split: str) -> list[dict[str, Any]]:
        return views(
            self._captioner(model), self.parts[split], self._pictures(split, None), self.described(model, split)
        )

    def sample(self, model: nn.Module, step: int) -> str:
        """A few pictures of the validation part by name, what is said of them, and what was wanted."""
        part, groups = self.parts["valid"], self._pictures("valid", None)
        some = [groups[place] for place in np.linspace(0, len(groups) - 1, SHOWN + 2).astype(np.int64).tolist()][1:-1]
        rows = [rows[0] for rows in some]
        found = self._captioner(model).caption(part.inputs.take(rows), TranslateSettings(beams=1))
        wanted: Any = part.examples.targets
        lines = zip(rows, found, strict=True)
        return "\n".join(f"{part.examples.place(row)}\n  → {one[0].text}\n  = {wanted[row]}" for row, one in lines)


def unevenness(weights: Tensor, real: Tensor) -> Tensor:
    """Σ_i (1 − Σ_t α_{t,i})² of each row (B,), from weights (B,T,S), of the real tokens alone."""
    looked = torch.where(real[:, :, None], weights, 0.0).sum(dim=1)  # (B,S)
    return (1 - looked).square().sum(dim=1)


def network(model: BackboneSettings, coder: CaptionCoder, settings: Settings) -> Network:
    picture = encoder(settings.encoder, model, coder.shape, settings.layers, settings.channels)
    return picture_network(model, picture, coder.shape, coder.target.size, coder.longest, settings.score)


def prepare(
    config: Any,
    data_dir: str | None = None,
    notify: Callable[[str], None] | None = None,
    coder: CaptionCoder | None = None,
    tokenizer: Tokenizer | None = None,
) -> CaptionTask:
    refuse_counting(config.model, config.task.name)
    notes = Notes(notify)
    data = captions.read(config.data, data_dir, notes)
    if coder is None:
        tokenizer = _learn(config, data.train.targets, notes) if tokenizer is None else tokenizer
        coder = CaptionCoder(tokenizer, 1, form_of(data.train.pictures, config.data.pictures))
    parts = {split: coder.part(data.part(split)) for split in PARTS}
    parts["train"] = _short_enough(parts["train"], config.data.longest, notes)
    longest = max(int(part.targets.lengths.max(initial=1)) for part in parts.values())
    coder = replace(coder, longest=max(coder.longest, longest))
    return _task(config, coder, parts, notes, data.fingerprint)


def _short_enough(part: CaptionPart, longest: int | None, notes: Notes) -> CaptionPart:
    kept = np.flatnonzero(part.targets.lengths <= (np.inf if longest is None else longest))
    if len(kept) == len(part):
        return part
    if not len(kept):
        raise SeriatimError("data.long", f"all captions have more than {longest} tokens", "raise data.longest")
    notes(f"{len(part) - len(kept):,} of {len(part):,} captions have more than {longest} tokens and are not trained on")
    return part.take(kept)


def _task(config: Any, coder: CaptionCoder, parts: dict[str, CaptionPart], notes: Notes, mark: str) -> CaptionTask:
    for part in parts.values():
        if len(part) and part.inputs.shape != coder.shape:
            cause = f"pictures of the shape {part.inputs.shape}, where the model takes {coder.shape}"
            raise SeriatimError("data.pictures", cause, "set data.pictures.side and data.pictures.colours")
    flips = captions.flips(config.data, coder.shape)
    return CaptionTask(config.task, coder, parts, config.seed, list(notes), mark, flips=flips)  # type: ignore[arg-type]


def _learn(config: Any, texts: Any, notes: Notes) -> Tokenizer:
    """The vocabulary, from the training part: words in small letters, those that come but once left out of many."""
    few = 1 if len(texts) < 10_000 else 2
    usual = TokenizerSettings(kind="word", size=WORDS, lowercase=True, min_count=few)
    tokenizer = Tokenizer.train(config.data.tokenizer or usual, (f"{text}\n" for text in texts))
    notes(f"{tokenizer.kind} tokenizer with {tokenizer.size:,} tokens, learnt from the training part")
    return tokenizer


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> CaptionTask:
    return prepare(config, data_dir, notify, CaptionCoder.load(path))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> CaptionTask:
    notes, coder = Notes(notify), CaptionCoder.load(path)
    examples = captions.read_single(source, config.data, data_dir, notes, coder.shape)
    return _task(config, coder, {"test": coder.part(examples)}, notes, "")


def open_run(path: Path, config: Any) -> Captioner:
    coder = CaptionCoder.load(path)
    opened: Any = restore(network(config.model, coder, config.task), path)  # type: ignore[arg-type]
    return Captioner([opened], coder, config.data)
