"""Alignments: the attention weights with which each token or word of a target read the elements of its source."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data.tokenizers import UNK, Tokenizer
from ..report.charts import Heatmap, Image, ImageOverlay, matrix

# Scripts without spaces between words (Thai, Burmese, Khmer, Japanese, Chinese): a word may be next to other letters.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
SPACE = "␣"  # as `Tokenizer.token` shows it


@dataclass(frozen=True)
class TokenizedText:
    """A tokenized text with the names of its tokens, and the tokens of each word."""

    tokens: list[str]
    words: list[str]
    groups: list[list[int]]  # the positions of the tokens of each word

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int], text: str) -> TokenizedText:
        """Returns the words of a text with these token ids; words that are not in the vocabulary appear as written."""
        tokens = [tokenizer.token(index) for index in ids]
        if tokenizer.kind == "word":
            written = written_words(tokenizer, text)
            tokens = [written[n] if n < len(written) else name for n, name in enumerate(tokens)]
        groups: list[list[int]] = []
        for position, name in enumerate(tokens):
            continues = position > 0 and ids[position] != tokenizer.eos
            if continues and continues_word(tokenizer.kind, tokens[position - 1], name):
                groups[-1].append(position)
            else:
                groups.append([position])
        whole = [
            tokens[group[0]] if len(group) == 1 else tokenizer.decode([ids[position] for position in group])
            for group in groups
        ]
        return cls(tokens, [word.strip(f" {SPACE}") or word for word in whole], groups)


def written_words(tokenizer: Tokenizer, text: str) -> list[str]:
    """Returns the words of a text as they are written, one for each id of a word tokenizer."""
    encoding = tokenizer.backend.encode(text, add_special_tokens=False)
    return [text[first:last] for first, last in encoding.offsets]


def continues_word(kind: str, previous: str, name: str) -> bool:
    """Returns whether a token belongs to the word of the previous one: both letters or both digits, and no space."""
    if kind in ("wordpiece", "bert"):
        return name.startswith("##")
    if kind not in ("bpe", "byte-bpe", "unigram") or name.startswith(SPACE) or UNK in (previous, name):
        return False
    if not previous.strip(SPACE):  # a space token of its own belongs to what follows
        return True
    if UNSPACED.search(previous) or UNSPACED.search(name):
        return False
    categories = [unicodedata.category(character)[0].replace("M", "L") for character in (previous[-1], name[0])]
    return categories[0] == categories[1]


def display_width(text: str) -> int:
    """Returns the columns of a terminal that a text takes: East Asian letters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


@dataclass(frozen=True)
class Alignment:
    """Attention weights (T,S) of target elements over source elements; each row sums to one."""

    source: list[str]
    target: list[str]
    weights: np.ndarray

    @classmethod
    def by_words(cls, source: TokenizedText, target: TokenizedText, weights: np.ndarray) -> Alignment:
        """Returns the alignment of words: the sum of the weights of a source word's tokens, the mean of a target's."""
        summed = np.stack([weights[:, group].sum(axis=1) for group in source.groups], axis=1)
        return cls(source.words, target.words, np.stack([summed[group].mean(axis=0) for group in target.groups]))

    def strongest(self, count: int = 3, least: float = 0.1) -> list[tuple[str, list[tuple[str, float]]]]:
        """Returns for each target element the source elements with the largest weights: the first one always, up to
        `count` if their weights are at least `least`."""
        rows = []
        for name, row in zip(self.target, self.weights, strict=True):
            order = np.argsort(-row, kind="stable")[:count].tolist()
            kept = [position for rank, position in enumerate(order) if rank == 0 or row[position] >= least]
            rows.append((name, [(self.source[position], float(row[position])) for position in kept]))
        return rows

    def lines(self) -> str:
        """Returns a line per target element with the source elements it attends to most, for terminals."""
        rows = self.strongest()
        width = max((display_width(name) for name, _ in rows), default=0)
        return "\n".join(
            f"{name}{' ' * (width - display_width(name))}  "
            + "   ".join(f"{source} {weight:.2f}" for source, weight in strongest)
            for name, strongest in rows
        )

    def chart(self, title: str = "Attention of each word") -> Heatmap:
        return Heatmap(
            title=title,
            rows=tuple(self.target),
            columns=tuple(self.source),
            values=matrix(self.weights),
            x="source",
            y="translation",
        )


@dataclass(frozen=True)
class ImageAttention:
    """The attention weights (words, cells) of each word over the grid (rows, columns) of an image."""

    image: np.ndarray  # (H,W,C) of uint8
    grid: tuple[int, int]
    words: list[str]
    weights: np.ndarray

    def lines(self) -> str:
        """Returns a line per word with the cells (row,column) it attends to most, for terminals."""
        cells = [f"{row},{column}" for row in range(self.grid[0]) for column in range(self.grid[1])]
        return Alignment(cells, self.words, self.weights).lines()

    def chart(self, title: str) -> ImageOverlay:
        return ImageOverlay(
            title=title,
            image=Image.from_array(self.image).png,
            words=tuple(self.words),
            grid=self.grid,
            weights=matrix(self.weights),
        )
