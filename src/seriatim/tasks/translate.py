"""Translate: from one sequence to another, for any pairs of texts.

    p(target | source) = Π_t p(y_t | y_1 … y_{t−1}, source)

Trained by teacher forcing: the decoder is given the true words before each. What is said is searched for word by word
(`decode/`). Every encoder–decoder serves (seq2seq, bahdanau, transformer); of any other causal model an encoder and a
decoder are made, with attention after the decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
from ..core.random import derive
from ..data import pairs, partition
from ..data.notes import Notes
from ..data.sequences import Examples
from ..data.tokenizers import Tokenizer, TokenizerSettings
from ..decode.options import TranslateSettings
from ..nn.backbone import BackboneSettings
from ..nn.loss import token_loss, token_scores
from ..nn.pair import Translator, pair_network
from ..nn.scores import ScoreName
from ..nn.soft import TokenScores, soft_loss
from ._bleu import Manner, Wanted, judged
from ._examples import ELEMENTS, ExampleTask, digest, mismatch, refuse_counting, restore, spread_over
from ._nearest import Memory
from ._pairs import NO_TOKEN, Batches, PairCoder, PairPart
from ._task import Batch
from ._translate_views import answers, views
from ._translator import Interpreter
from ._unlike import unlike_tokens

__all__ = ["DataSettings", "Settings", "mismatch", "open_run", "prepare", "reopen", "reopen_on", "train_defaults"]

DataSettings = pairs.PairSettings
LONGEST = 256  # tokens of a pair that is trained on, where nothing is said
SHOWN = 4  # translations of a sample
JUDGED = 200  # sentences that are translated along the way
TRAINED = 2_000  # sentences of the training part that are translated
PARTS = ("train", "valid", "test")
PAIRS = True  # encoder–decoders are at home here
SAME_TOKENS = True  # as its teacher a student must have: each is an answer


class Settings(config.Settings):
    name: str = Field("translate", description="the task: see `seriatim list tasks`")
    score: ScoreName = Field(
        "general", description="how attention judges a place of the source, where it comes after the model"
    )
    beams: int = Field(5, ge=1, le=1_024, description="hypotheses of the beam search with which it is evaluated")


def train_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Short sequences, so many in a batch; targets that could be said otherwise as well, so smoothed."""
    return {"batch": 96, "label_smoothing": 0.1}


class TranslateTask(ExampleTask):
    unit = "tokens"
    objective = "loss"
    coder: PairCoder  # type: ignore[assignment]
    parts: dict[str, PairPart]  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._batches: dict[int, Batches] = {}
        self._said: dict[str, tuple[Any, list[str]]] = {}  # what was translated last of each part, by which weights

    def build(self, model: BackboneSettings) -> Translator:  # type: ignore[override]
        torch.manual_seed(derive(self.seed, "init"))
        return self.shape(model)

    def shape(self, model: BackboneSettings) -> Translator:  # type: ignore[override]
        return network(model, self.coder, self.settings)

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        """The pairs of a step are shared by its rows: row r of R has the r-th part of them."""
        chosen = self._grouped(rows).rows(step)
        mine = chosen[first * len(chosen) // rows : last * len(chosen) // rows]
        if len(mine):
            return self.collate("train", mine)
        empty = self.collate("train", chosen[:1])  # fewer pairs than processes: one without targets
        return Batch(empty.inputs, torch.full_like(empty.targets, NO_TOKEN), 0, empty.mask)

    def steps_per_epoch(self, rows: int) -> int:
        return len(self._grouped(rows))

    def _grouped(self, rows: int) -> Batches:
        if rows not in self._batches:
            self._batches = {rows: Batches(self.parts["train"], rows, self.seed)}
        return self._batches[rows]

    def collate(self, split: str, rows: np.ndarray, most: int | None = None) -> Batch:
        return self.parts[split].collate(rows, self.coder.begin, most)

    def read(self, network: Any, batch: Batch, state: Any = None) -> tuple[TokenScores, Tensor, None]:
        vectors, _ = _taught(network, batch)
        return TokenScores(vectors, network.head.weight, network.head.bias), vectors, None

    def hard(self, network: nn.Module, scores: TokenScores, batch: Batch, smoothing: float) -> Tensor:
        return token_loss(*scores, batch.targets[batch.targets != NO_TOKEN], smoothing)

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        scores, _, _ = self.read(network, batch)
        return self.hard(network, scores, batch, smoothing), None

    def soft(self, network: nn.Module, scores: TokenScores, taught: TokenScores, temperature: float) -> Tensor:
        return soft_loss(scores, taught, temperature)

    def some(self, split: str, count: int) -> list[Any]:
        return spread_over(self.parts[split].examples.inputs, count)

    def unlike(self, teacher: Any) -> list[str]:
        found = unlike_tokens(self.coder.source, teacher.coder.source, "source")
        found += unlike_tokens(self.coder.target, teacher.coder.target, "target")
        context = teacher.model.backbone.context
        if context is not None and context < self.coder.longest:
            found.append(f"pairs have up to {self.coder.longest} tokens, the teacher takes {context} (data.longest)")
        return found

    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        rows = self.chosen(split, limit)
        wanted, said = self.translated(model, split, limit)
        quality = judged(said, wanted, self.manner)
        likely, right = self._forced(model, split, rows)
        loss = -float(likely.mean(dtype=np.float64))
        found = {"accuracy": float(right.mean()), "loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        return Measured(quality | found | {"tokens": float(len(likely))}, quality.signatures)

    @cached_property
    def manner(self) -> Manner:
        """How translations are judged: for all parts alike."""
        part = self.parts["valid" if self.has("valid") else "test"]
        return Manner.of(part.examples.targets, self.coder.target.kind == "char")  # type: ignore[arg-type]

    def translated(self, model: nn.Module, split: str, limit: int | None = None) -> tuple[Wanted, list[str]]:
        """The sources of a part, each once, and what they become: all by beam search, or some, greedily."""
        part = self.parts[split].examples
        wanted = Wanted.of(part.inputs, part.targets)  # type: ignore[arg-type]
        if limit is not None or split == "train":
            wanted = wanted.spread(JUDGED if limit is not None else TRAINED)
        asked = (digest(model), limit is None)
        if split not in self._said or self._said[split][0] != asked:
            options = TranslateSettings(beams=self.settings.beams if limit is None else 1)
            self._said[split] = asked, answers(Interpreter([model], self.coder), wanted.sources, options)  # type: ignore[list-item]
        return wanted, self._said[split][1]

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """The source as it is, and the target of the most similar source of the training part."""
        if not self.has("train"):  # another file than that of the training
            return {}
        part, train = self.parts[split].examples, self.parts["train"].examples
        wanted = Wanted.of(part.inputs, part.targets)  # type: ignore[arg-type]
        memory = Memory(train.inputs, train.targets)  # type: ignore[arg-type]
        said = {
            "the source itself": wanted.sources,
            "most similar source": [memory.answer(one) for one in wanted.sources],
        }
        return {name: dict(judged(texts, wanted, self.manner)) for name, texts in said.items()}

    def details(self, model: nn.Module, split: str) -> list[dict[str, Any]]:
        wanted, said = self.translated(model, split)
        return views(said, wanted, self.manner, Interpreter([model], self.coder))  # type: ignore[list-item]

    @torch.inference_mode()
    def _forced(self, model: nn.Module, split: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log-probability of every target token, and whether it was the likeliest. A model with a limited context
        is asked about the beginning of what is longer."""
        model.eval()
        device = next(model.parameters()).device
        most: int | None = model.get_submodule("backbone").context  # type: ignore[assignment]
        part, found = self.parts[split], []
        order = rows[np.lexsort((part.inputs.lengths[rows], part.targets.lengths[rows]))][::-1]
        lengths = np.maximum(part.inputs.lengths, part.targets.lengths)
        while len(order):
            some = order[: max(ELEMENTS // int(lengths[order].max()), 1)]
            order = order[len(some) :]
            hidden, targets = _taught(model, self.collate(split, some, most).to(device))
            head = model.head
            likely, best = token_scores(hidden, head.weight, head.bias, targets)  # type: ignore[union-attr,arg-type]
            found.append((likely.double().cpu().numpy(), (best == targets).cpu().numpy()))
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])

    def sample(self, model: nn.Module, step: int) -> str:
        """A few sentences of the validation part, what they become, and what was wanted."""
        examples = self.parts["valid"].examples
        some = np.unique(np.linspace(0, len(examples) - 1, SHOWN + 2).astype(np.int64))[1:-1].tolist()
        texts = [str(examples.inputs[index]) for index in some]
        said = answers(Interpreter([model], self.coder), texts, TranslateSettings(beams=1))  # type: ignore[list-item]
        wanted: Any = examples.targets
        lines = zip(texts, said, (wanted[index] for index in some), strict=True)
        return "\n".join(f"{text}\n  → {one}\n  = {true}" for text, one, true in lines)


def _taught(network: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """What the decoder gives at every real place of the targets (N,D), and the tokens that stand there (N)."""
    source, given = batch.inputs
    hidden, _ = network.decode(given, network.encode(source, batch.mask))
    real = batch.targets != NO_TOKEN
    return hidden[real], batch.targets[real]


def network(model: BackboneSettings, coder: PairCoder, settings: Settings) -> Translator:
    return pair_network(model, coder.source.size, coder.target.size, coder.joint, coder.longest, settings.score)


def prepare(
    config: Any,
    data_dir: str | None = None,
    notify: Callable[[str], None] | None = None,
    coder: PairCoder | None = None,
    tokenizer: Tokenizer | None = None,
    source_tokenizer: Tokenizer | None = None,
    start: int | None = None,
) -> TranslateTask:
    refuse_counting(config.model, config.task.name)
    notes = Notes(notify)
    data = pairs.read(config.data, data_dir, notes)
    if coder is None and tokenizer is not None:
        longest = LONGEST if config.data.longest is None else config.data.longest
        coder = PairCoder(source_tokenizer or tokenizer, tokenizer, longest, None if start == tokenizer.eos else start)
    elif coder is None:
        coder = _learn(config, data.train, notes)
    parts = {split: PairPart.of(data.part(split), coder) for split in PARTS}
    parts["train"] = _short_enough(parts["train"], coder, notes)
    _told_long(parts, coder, notes)
    return TranslateTask(config.task, coder, parts, config.seed, list(notes), data.fingerprint)  # type: ignore[arg-type]


def _learn(config: Any, train: Examples, notes: Notes) -> PairCoder:
    """The vocabularies, from the training part."""
    chosen = config.data.tokenizer or TokenizerSettings(kind="bpe", size=pairs.TOKENS)
    joint = config.data.joint if config.data.joint is not None else chosen.kind not in ("word", "char")
    sources: Any = train.inputs
    targets: Any = train.targets
    longest = LONGEST if config.data.longest is None else config.data.longest
    if joint:
        tokenizer = Tokenizer.train(chosen, (f"{one}\n" for side in (sources, targets) for one in side))
        notes(
            f"{tokenizer.kind} tokenizer with {tokenizer.size:,} tokens for both sides, learnt from the training part"
        )
        return PairCoder(tokenizer, tokenizer, longest)
    source, target = (Tokenizer.train(chosen, (f"{one}\n" for one in side)) for side in (sources, targets))
    notes(f"{source.kind} tokenizers with {source.size:,} and {target.size:,} tokens, learnt from the training part")
    return PairCoder(source, target, longest)


def _short_enough(part: PairPart, coder: PairCoder, notes: Notes) -> PairPart:
    lengths = np.maximum(part.inputs.lengths, part.targets.lengths)
    long = lengths > coder.longest
    if not long.any():
        return part
    notes(
        f"{int(long.sum()):,} of {len(part):,} pairs have more than {coder.longest} tokens (up to {lengths.max():,}) "
        "and are not trained on: data.longest"
    )
    kept = np.flatnonzero(~long)
    if not len(kept):
        raise SeriatimError("data.long", f"all pairs have more than {coder.longest} tokens", "raise data.longest")
    return PairPart(part.inputs.take(kept), part.targets.take(kept), partition.take(part.examples, kept))


def _told_long(parts: dict[str, PairPart], coder: PairCoder, notes: Notes) -> None:
    """Pairs beyond the length of the training, in the parts that are only measured on."""
    for split in PARTS[1:]:
        part = parts[split]
        count = int((np.maximum(part.inputs.lengths, part.targets.lengths) > coder.longest).sum())
        if count:
            notes(
                f"{count:,} of {len(part):,} {split} pairs have more than {coder.longest} tokens; a model that takes "
                "no more is measured on their beginnings"
            )


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> TranslateTask:
    return prepare(config, data_dir, notify, PairCoder.load(path))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> TranslateTask:
    notes, coder = Notes(notify), PairCoder.load(path)
    examples = pairs.read_single(source, config.data, data_dir, notes)
    parts = {"test": PairPart.of(examples, coder)}
    return TranslateTask(config.task, coder, parts, config.seed, list(notes), "")  # type: ignore[arg-type]


def adopt(
    folder: Path,
    tokenizer: Tokenizer,
    labels: tuple[str, ...],
    longest: int | None,
    several: bool,
    source: Tokenizer | None = None,
    start: int | None = None,
) -> None:
    """What a run keeps besides weights, for a model that was trained elsewhere; its decoder begins with `start`."""
    begins = None if start == tokenizer.eos else start
    PairCoder(source or tokenizer, tokenizer, LONGEST if longest is None else longest, begins).save(folder)


def open_run(path: Path, config: Any) -> Interpreter:
    coder = PairCoder.load(path)
    opened = restore(network(config.model, coder, config.task), path)  # type: ignore[arg-type]
    return Interpreter([opened], coder, config.data)  # type: ignore[list-item]
