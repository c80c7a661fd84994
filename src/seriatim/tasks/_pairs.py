"""Pairs of texts as pairs of sequences of tokens, each closed by `<eos>`, and batches of them by their tokens.

A batch has about as many tokens as `train.batch` pairs of mean length: of long pairs fewer, of short ones more. Pairs
are sorted by the length of the target, then of the source, so that little is padded; of pairs that are as long, and of
their neighbours, which come together is drawn for each epoch.
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
from ..core.random import numpy_stream
from ..data.sequences import Examples, Sequences
from ..data.tokenizers import Tokenizer
from ._task import Batch

SOURCE, TARGET, ABOUT = "source-tokenizer.json", "tokenizer.json", "data.json"  # files of a run folder
NO_TOKEN = -1  # the target of a place that is padding
NEAR = 2.0  # by how much less the length of a source may be off in the order


@dataclass(frozen=True)
class PairCoder:
    """From texts to tokens and back. A run keeps it."""

    source: Tokenizer
    target: Tokenizer  # the same object where the vocabulary is one
    longest: int  # tokens of a source or target in training; what learned positions are made for
    start: int | None = None  # what a decoder begins with, where that is another token than `<eos>`

    @property
    def begin(self) -> int:
        return end_of(self.target) if self.start is None else self.start

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def sources(self, texts: Sequence[str]) -> Sequences:
        return closed(self.source, texts)

    def targets(self, texts: Sequence[str]) -> Sequences:
        return closed(self.target, texts)

    def same(self, other: PairCoder) -> bool:
        """Whether both give the same numbers to the same texts."""
        pairs = ((self.source, other.source), (self.target, other.target))
        return all(one.to_json() == another.to_json() for one, another in pairs)

    def save(self, folder: Path) -> None:
        self.target.save(folder / TARGET)
        if not self.joint:
            self.source.save(folder / SOURCE)
        write_json(folder / ABOUT, {"longest": self.longest} | ({} if self.start is None else {"start": self.start}))

    @classmethod
    def load(cls, folder: Path) -> PairCoder:
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            longest, start = int(about["longest"]), int(about["start"]) if "start" in about else None
        except (OSError, ValueError, KeyError, TypeError):
            cause = f"{folder / ABOUT} does not say how long the pairs are"
            raise SeriatimError("run.damaged", cause, "restore the file") from None
        target = Tokenizer.load(folder / TARGET)
        source = Tokenizer.load(folder / SOURCE) if (folder / SOURCE).exists() else target
        return cls(source, target, longest, start)


def end_of(tokenizer: Tokenizer) -> int:
    """`<eos>`: the last token of every sequence."""
    if tokenizer.eos is None:
        raise SeriatimError("tokenizer.eos", "the tokenizer has no token for the end", "choose another tokenizer")
    return tokenizer.eos


def closed(tokenizer: Tokenizer, texts: Sequence[str]) -> Sequences:
    end = np.array([end_of(tokenizer)])
    return Sequences.of([np.concatenate([ids, end]) for ids in tokenizer.encode_many(texts, strict=False)])


@dataclass(frozen=True)
class PairPart:
    """Encoded pairs."""

    inputs: Sequences
    targets: Sequences
    examples: Examples  # as they came

    def __len__(self) -> int:
        return len(self.inputs)

    @classmethod
    def of(cls, examples: Examples, coder: PairCoder) -> PairPart:
        texts: Sequence[str] = examples.targets  # type: ignore[assignment]
        return cls(coder.sources(examples.inputs), coder.targets(texts), examples)  # type: ignore[arg-type]

    def collate(self, rows: np.ndarray, begin: int, most: int | None = None) -> Batch:
        """Sources and targets shifted by one: the decoder begins with a token and sees what came before. Of either
        only the first `most` tokens, where a model takes no more."""
        source, real = (block[:, :most] for block in self.inputs.padded(rows))
        batch = self.told(rows, begin, most)
        mask = None if real.all() else torch.from_numpy(real)
        return replace(batch, inputs=(torch.from_numpy(source), batch.inputs), mask=mask)

    def told(self, rows: np.ndarray, begin: int, most: int | None = None) -> Batch:
        """The side of the targets alone: what came before each token, and the tokens."""
        wanted = self.targets.padded(rows, fill=NO_TOKEN)[0][:, :most]
        given = np.empty_like(wanted)
        given[:, 0] = begin
        given[:, 1:] = np.maximum(wanted[:, :-1], 0)
        return Batch(torch.from_numpy(given), torch.from_numpy(wanted), int((wanted != NO_TOKEN).sum()))


class Batches:
    """Which pairs come together, epoch by epoch: as many batches, of the same lengths, in each."""

    def __init__(self, part: PairPart, rows: int, seed: int) -> None:
        self.seed = seed
        self.sources, self.targets = part.inputs.lengths, part.targets.lengths
        self.room = max(float(rows * self.targets.mean()), float(rows * self.sources.mean())), rows
        self._kept: dict[int, np.ndarray] = {}

    @cached_property
    def starts(self) -> np.ndarray:
        """Where in the sorted order each batch begins, and where the last one ends."""
        longest, targets = 0.0, np.sort(self.targets)
        order = np.lexsort((self.sources, self.targets))
        lengths = np.maximum(self.sources[order], targets)
        starts, room = [0], self.room[0]
        for place, length in enumerate(lengths.tolist()):
            longest = max(longest, length)
            if place > starts[-1] and (place - starts[-1] + 1) * longest > room:
                starts.append(place)
                longest = length
        return np.array([*starts, len(lengths)])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows(self, step: int) -> np.ndarray:
        """The pairs of a step."""
        epoch, place = divmod(step, len(self))
        if epoch not in self._kept:
            draw = numpy_stream(self.seed, "shuffle", epoch)
            near = self.sources + NEAR * draw.random(len(self.sources))
            self._kept = {epoch: np.lexsort((near, self.targets))}
        which = numpy_stream(self.seed, "batches", epoch).permutation(len(self))[place]
        return self._kept[epoch][self.starts[which] : self.starts[which + 1]]
