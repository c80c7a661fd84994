"""Words as numbers: pieces of words, spellings, and which step answers for which word.

A word is read as one piece or several. Its tag is learnt and read at the first of them, so that words and answers
stay in step whatever the tokenizer does. What is longer than a model can take in is cut into windows that overlap by
half; each word is answered in the window where it stands nearest to the middle, and only there. Where the tokenizer
frames texts, every row stands between [CLS] and [SEP], which answer for no word.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..core.files import write_json
from ..data.sequences import Sequences
from ..data.tokenizers import BY_WORDS, Tokenizer
from ..nn.characters import BEGIN, END, KERNEL, PADDING, UNSEEN
from ._coder import FILE
from ._task import Batch

SPELLED = 32  # characters of a word that are looked at: of a longer one, the first and the last
NO_TAG = -1  # the target of a step that answers for no word, or for one whose tag training does not have


@dataclass(frozen=True)
class WordPart:
    """Encoded sentences. A row is a window (mostly a whole sentence), a step is a piece of a word."""

    inputs: Sequences  # (steps,) of rows
    where: np.ndarray  # (steps,) the word that a step answers for, or −1: the others of a word, and a frame
    sentence: np.ndarray  # (rows,) the sentence of a row
    ends: np.ndarray  # (sentences,) where each stops among the words
    forms: np.ndarray  # (words,) each as the number of a distinct word
    names: Sequence[str]  # (distinct,) distinct words as they are written
    steps: np.ndarray  # (steps,) the distinct word that a step belongs to
    spelled: np.ndarray  # (distinct,L) characters of distinct words
    targets: np.ndarray  # (words,) tags; −1 for one that training does not have
    source: Any = None  # what was encoded

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Of the sentences among the words."""
        ends = self.ends.tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []

    def words(self) -> list[list[str]]:
        """The sentences, word by word."""
        return [[self.names[form] for form in self.forms[first:end].tolist()] for first, end in self.bounds]

    def collate(self, rows: np.ndarray, spelled: bool) -> Batch:
        """Some rows side by side. With `spelled` the inputs are the `Words` of nn.characters."""
        ends = self.inputs.ends
        block, real = self.inputs.padded(rows)
        where, _ = Sequences(self.where, ends).padded(rows, fill=-1)
        targets = np.where(where >= 0, self.targets[where], NO_TAG)
        inputs: Any = torch.from_numpy(block)
        if spelled:
            steps, _ = Sequences(self.steps, ends).padded(rows)
            distinct, which = np.unique(steps, return_inverse=True)
            letters = self.spelled[distinct]
            letters = letters[:, : max(int((letters != PADDING).any(axis=0).sum()), KERNEL)]
            inputs = (inputs, torch.from_numpy(which.reshape(block.shape)), torch.from_numpy(letters))
        mask = None if real.all() else torch.from_numpy(real)
        return Batch(inputs, torch.from_numpy(targets), count=int((targets != NO_TAG).sum()), mask=mask)


@dataclass(frozen=True)
class WordCoder:
    """From words (or symbols) to `WordPart`. A run keeps it."""

    kind: str  # words or symbols
    labels: tuple[str, ...] = ()  # the tags
    scheme: str = "none"  # how they mark entities
    longest: int = 1  # steps of the longest row
    window: int | None = None  # steps of a row at most
    alphabet: str = ""
    symbols: tuple[str, ...] = ()
    tokenizer: Tokenizer | None = None

    @property
    def characters(self) -> int:
        """Distinct characters of spellings, the marks among them."""
        return len(self.alphabet) + 1 + max(PADDING, UNSEEN, BEGIN, END)

    @property
    def framed(self) -> bool:
        return self.tokenizer is not None and self.tokenizer.framed

    def encode(self, words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]] | None = None) -> WordPart:
        """Sentences of words in rows that a model can take; without tags (to be answered) all targets are −1."""
        return self.cut(self.read(words, tags))

    def read(self, words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]] | None = None) -> WordPart:
        """Whole sentences, a row each, not yet framed."""
        if self.tokenizer is None:
            words = [self._known(sentence) for sentence in words]
        numbers: dict[str, int] = {}
        forms = np.array([numbers.setdefault(word, len(numbers)) for one in words for word in one], dtype=np.int64)
        names = list(numbers)
        pieces = self._pieces(names)
        counts = pieces.lengths[forms]
        ends = np.cumsum([len(one) for one in words], dtype=np.int64)
        last = np.cumsum(counts)
        steps = int(last[-1]) if len(last) else 0
        where = np.full(steps, -1, dtype=np.int64)
        where[last - counts] = np.arange(len(forms))
        inputs = Sequences(pieces.take(forms).values, np.concatenate([[0], last])[ends].astype(np.int64))
        known = {label: index for index, label in enumerate(self.labels)}
        given = [] if tags is None else [known.get(tag, NO_TAG) for one in tags for tag in one]
        targets = np.array(given, dtype=np.int64) if tags is not None else np.full(len(forms), NO_TAG)
        sentence = np.arange(len(ends))
        by_step = np.repeat(forms, counts)
        return WordPart(inputs, where, sentence, ends, forms, names, by_step, self._spelled(names), targets)

    def encode_symbols(self, inputs: Sequences, targets: Sequences | None = None) -> WordPart:
        """Symbols that are numbers already, each with a target."""
        count = len(inputs.values)
        given = targets.values if targets is not None else np.full(count, NO_TAG)
        spelled = np.zeros((0, KERNEL), np.int64)
        symbols, sentence = inputs.values, np.arange(len(inputs))
        part = WordPart(inputs, np.arange(count), sentence, inputs.ends, symbols, self.symbols, symbols, spelled, given)
        return self.cut(part)

    def cut(self, part: WordPart) -> WordPart:
        """Rows of whole sentences as a model takes them: in windows where they are too long, and framed."""
        room = None if self.window is None else self.window - 2 * self.framed
        if room is not None and part.inputs.lengths.max(initial=0) > room:
            part = self._windows(part, room)
        return self._framed(part, self.tokenizer) if self.tokenizer is not None and self.framed else part

    def _windows(self, part: WordPart, size: int) -> WordPart:
        """Windows of rows; those that would answer for nothing are left out."""
        rows = [
            (row, start + int(first), *span)
            for row, (first, length) in enumerate(zip(part.inputs.starts, part.inputs.lengths, strict=True))
            for start, *span in windows(int(length), size)
        ]
        of, starts, lengths, owned, end = np.array(rows, dtype=np.int64).T
        stops = np.cumsum(lengths)
        inside = np.arange(int(stops[-1])) - np.repeat(stops - lengths, lengths)
        places = inside + np.repeat(starts, lengths)
        mine = (inside >= np.repeat(owned, lengths)) & (inside < np.repeat(end, lengths))
        where = np.where(mine, part.where[places], -1)
        row = np.repeat(np.arange(len(of)), lengths)
        useful = np.bincount(row[where >= 0], minlength=len(of)) > 0
        kept = useful[row]
        return replace(
            part,
            inputs=Sequences(part.inputs.values[places[kept]], np.cumsum(lengths[useful])),
            where=where[kept],
            steps=part.steps[places[kept]],
            sentence=part.sentence[of[useful]],
        )

    def _framed(self, part: WordPart, tokenizer: Tokenizer) -> WordPart:
        """Every row between [CLS] and [SEP]."""
        rows = part.inputs
        places = np.stack([rows.starts, rows.ends], axis=1).ravel()  # of the frame of each row, one behind the other
        values = np.insert(rows.values, places, np.tile(tokenizer.frame([]), len(rows)))
        return replace(
            part,
            inputs=Sequences(values, rows.ends + 2 * np.arange(1, len(rows) + 1)),
            where=np.insert(part.where, places, -1),
            steps=np.insert(part.steps, places, 0),  # of no use: what is framed is not spelled
        )

    def _known(self, words: Sequence[str]) -> list[str]:
        for word in words:
            if word not in self.symbols:
                few = ", ".join(self.symbols[:20]) + (" …" if len(self.symbols) > 20 else "")
                raise SeriatimError("data.symbol", f'"{word}" is no symbol of the model', f"it knows {few}")
        return list(words)

    def _pieces(self, names: list[str]) -> Sequences:
        """The pieces of distinct words: those they have in running text, one at least."""
        if self.tokenizer is None:
            return Sequences.of([[self.symbols.index(name)] for name in names])
        unknown = np.array([self.tokenizer.unk or 0])
        found = self.tokenizer.encode_many([in_text(name, self.tokenizer.kind) for name in names], strict=False)
        return Sequences.of([ids if len(ids) else unknown for ids in found])

    def _spelled(self, names: list[str]) -> np.ndarray:
        """Spellings (distinct,L) between the marks of beginning and end."""
        known = {character: index for index, character in enumerate(self.alphabet, 1 + max(UNSEEN, BEGIN, END))}
        half = SPELLED // 2
        cut = [name if len(name) <= SPELLED else name[:half] + name[-half:] for name in names]
        block = np.full((len(cut), 2 + max(map(len, cut), default=1)), PADDING, dtype=np.int64)
        for row, name in zip(block, cut, strict=True):
            row[: len(name) + 2] = [BEGIN, *(known.get(character, UNSEEN) for character in name), END]
        return block

    def save(self, folder: Path) -> None:
        names = ("kind", "labels", "scheme", "longest", "window", "alphabet", "symbols")
        write_json(folder / FILE, {name: getattr(self, name) for name in names})
        if self.tokenizer is not None:
            self.tokenizer.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path) -> WordCoder:
        try:
            values = json.loads((folder / FILE).read_text(encoding="utf-8"))
            coder = cls(**values | {name: tuple(values[name]) for name in ("labels", "symbols")})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SeriatimError("run.damaged", f"{folder / FILE} is not whole: {error}", "restore the file") from None
        return replace(coder, tokenizer=Tokenizer.load(folder)) if coder.kind == "words" else coder


def in_text(word: str, kind: str) -> str:
    """A word as the tokenizers that keep blanks meet it in running text."""
    return word if kind in (*BY_WORDS, "other") else f" {word}"


def windows(length: int, size: int) -> list[tuple[int, int, int, int]]:
    """Windows over `length` steps: start, size, and from where to where (within it) each answers.

    They overlap by half, the last ends where the sequence ends, and where two overlap each answers up to the middle.
    """
    if length <= size:
        return [(0, length, 0, length)]
    starts = [*range(0, length - size, max(size // 2, 1)), length - size]
    middles = [(after + before + size) // 2 for before, after in pairwise(starts)]
    bounds = [0, *middles, length]
    return [(start, size, bounds[i] - start, bounds[i + 1] - start) for i, start in enumerate(starts)]


def alphabet(words: Iterable[Sequence[str]], least: int = 2) -> str:
    """The characters of words; rare ones are left out, so that the sign for unseen ones is learnt from them."""
    counts = Counter[str]()
    for word, count in Counter(word for sentence in words for word in sentence).items():
        for character in word:
            counts[character] += count
    return "".join(sorted(character for character, count in counts.items() if count >= least))
