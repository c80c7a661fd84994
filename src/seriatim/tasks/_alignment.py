"""Where a translator looked: the weights with which each word of a target read the words of its source."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.tokenizers import UNK, Tokenizer

# Writing without blanks between words (Thai, Burmese, Khmer, Japanese, Chinese): each token stands by itself.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
BLANK = "␣"


@dataclass(frozen=True)
class Side:
    """Tokens as they can be shown, and which of them are one word."""

    tokens: list[str]
    words: list[str]
    groups: list[list[int]]  # for each word its tokens

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int], text: str) -> Side:
        """Of a text whose ids, its end among them, are known. Words that the vocabulary lacks are shown as written."""
        tokens = [tokenizer.token(index) for index in ids]
        if tokenizer.kind == "word":
            written = words_of(tokenizer, text)
            tokens = [written[place] if place < len(written) else name for place, name in enumerate(tokens)]
        groups: list[list[int]] = []
        for place, name in enumerate(tokens):
            before = tokens[place - 1] if place else ""
            if place and ids[place] != tokenizer.eos and _goes_on(tokenizer.kind, before, name):
                groups[-1].append(place)
            else:
                groups.append([place])
        whole = [tokens[some[0]] if len(some) == 1 else tokenizer.decode([ids[one] for one in some]) for some in groups]
        return cls(tokens, [word.strip(f" {BLANK}") or word for word in whole], groups)


def words_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text as they are written, one for each id of a tokenizer that splits words."""
    found = tokenizer.backend.encode(text, add_special_tokens=False)
    return [text[first:last] for first, last in found.offsets]


def _goes_on(kind: str, before: str, name: str) -> bool:
    """Whether a token is one word with the token before it: no blank between, and both letters or both digits."""
    if kind in ("wordpiece", "bert"):
        return name.startswith("##")
    if kind not in ("bpe", "byte-bpe", "unigram") or name.startswith(BLANK) or UNK in (before, name):
        return False
    if not before.strip(BLANK):  # a blank that found no word to stand with
        return True
    if UNSPACED.search(before) or UNSPACED.search(name):
        return False
    return _class(before[-1:]) == _class(name[:1])


def _class(character: str) -> str:
    return unicodedata.category(character)[0].replace("M", "L") if character else ""


@dataclass(frozen=True)
class Alignment:
    """`weights` (T,S): row t says how token t of the target was read from those of the source; it sums to one."""

    source: list[str]
    target: list[str]
    weights: np.ndarray

    def best(self, most: int = 3, least: float = 0.1) -> list[tuple[str, list[tuple[str, float]]]]:
        """For each token of the target what it looked at most, the first whatever its weight."""
        found = []
        for name, row in zip(self.target, self.weights, strict=True):
            order = np.argsort(-row, kind="stable")[:most].tolist()
            kept = [place for rank, place in enumerate(order) if rank == 0 or row[place] >= least]
            found.append((name, [(self.source[place], float(row[place])) for place in kept]))
        return found

    def record(self) -> dict[str, Any]:
        return {"source": self.source, "target": self.target, "weights": self.weights.round(6).tolist()}

    def view(self, title: str = "Where each word looked") -> dict[str, Any]:
        """As the figures of a picture (kind heat)."""
        names = {"rows": self.target, "columns": self.source, "x": "source", "y": "translation"}
        return {"kind": "heat", "title": title, **names, "values": self.weights.tolist()}


@dataclass(frozen=True)
class Looked(Alignment):
    """The same token by token, from which that of whole words follows."""

    sides: tuple[Side, Side]

    @classmethod
    def of(cls, source: Side, target: Side, weights: np.ndarray) -> Looked:
        return cls(source.tokens, target.tokens, weights, (source, target))

    def words(self) -> Alignment:
        """A word is looked at with the sum of the weights of its tokens, and looks with their mean."""
        source, target = self.sides
        added = np.stack([self.weights[:, some].sum(axis=1) for some in source.groups], axis=1)
        means = np.stack([added[some].mean(axis=0) for some in target.groups])
        return Alignment(source.words, target.words, means)
