"""What `inspect` asks of a predictor: values and functions that its hooks return, such as alignments."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..core.errors import SeriatimError, did_you_mean
from ..core.text import UNSPACED, format_number, listed, text_width
from ..data.tokenizers import UNK, Tokenizer
from ..report.charts import Heatmap, Image, ImageOverlay, matrix
from .batching import Batch

MAX_LISTED = 20  # names in an error
SPACE = "␣"  # as `Tokenizer.token` shows it


# Tokens and outputs


@dataclass(frozen=True)
class ScoredTokens:
    """The tokens of a text as a model rates them.

    Args:
        tokenizer: Of the tokens.
        ids: The tokens (T,).
        log_probs: The log-probability of each (T,), as the capability `score` returns it.
        distributions: Log-probabilities (n,V) of all tokens at n consecutive positions, then at the next ones.
        characters: The number of characters of the text.
        context: The tokens before the first one that is rated.
    """

    tokenizer: Tokenizer
    ids: np.ndarray
    log_probs: np.ndarray
    distributions: Iterable[Tensor]
    characters: int
    context: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


TokenScorer = Callable[[str, str | None], ScoredTokens]  # (text, target of an encoder–decoder)


@dataclass(frozen=True)
class TokenReadout:
    """How the scores of tokens follow from the outputs of the backbone.

    Args:
        tokenizer: Of the scored tokens.
        scores: From outputs (…,D) to the scores of all tokens (…,V).
        targets: The true token at each element of a batch of one item (T,), −1 if it is not known.
        predicts_next: Whether that is the next token, not the one at the element.
    """

    tokenizer: Tokenizer
    scores: Callable[[Tensor], Tensor]
    targets: Callable[[Batch], Tensor]
    predicts_next: bool


@dataclass(frozen=True)
class ExplainedOutput:
    """A number in the output of a network, whose dependence on the input is explained.

    Args:
        name: Such as "the log-odds of positive".
        value: From the outputs for n inputs to (n,).
        prediction: What the model predicts, in a few words.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    prediction: str = ""


# (encoded, item, output of the network for it (1,…), label or name, position of a word) → what is explained
Explainer = Callable[[Any, int, Tensor, str | None, int | None], ExplainedOutput]


@dataclass(frozen=True)
class EmbeddingTable:
    """The vectors of all tokens at the input; `side` is source or target, "" if there is one table."""

    side: str
    tokenizer: Tokenizer
    module: nn.Embedding

    @property
    def vectors(self) -> np.ndarray:
        """The vectors (V,E)."""
        vectors: np.ndarray = self.module.weight.detach().float().cpu().numpy()
        return vectors


def log_odds(scores: Tensor, index: int) -> Tensor:
    """Returns log p / (1 − p) of one of the outputs (n,K) of a softmax, (n,)."""
    others = [output for output in range(scores.shape[1]) if output != index]
    return scores[:, index] - scores[:, others].logsumexp(dim=-1)


def explain_label(labels: Sequence[str], probabilities: Tensor, target: str | None) -> tuple[int, str]:
    """Returns the label to explain, by default the likeliest of probabilities (K,), and the prediction in words."""
    values = probabilities.tolist()
    best = int(probabilities.argmax())
    index = best if target is None else find_name(labels, target, "there is no label")
    shares = [f"{labels[n]} {format_number(100 * values[n])} %" for n in dict.fromkeys((best, index))]
    return index, f"predicted: {', '.join(shares)}"


def find_name(names: Sequence[str], name: str, problem: str) -> int:
    """Returns the index of a name, or raises an error with candidates; `problem` completes "… "name"."."""
    if name not in names:
        remedy = did_you_mean(name, names) or f"choose from: {listed(names, MAX_LISTED)}"
        raise SeriatimError("inspect.target", f'{problem} "{name}"', remedy)
    return list(names).index(name)


def check_position(position: int, count: int, noun: str = "position") -> int:
    """Returns a number from 0 to count − 1, or raises an error."""
    if not 0 <= position < count:
        remedy = f"choose from 0 to {count - 1}" if count > 1 else f"omit --{noun}"
        raise SeriatimError(f"inspect.{noun.replace(' ', '-')}", f"there is no {noun} {position}", remedy)
    return position


# Alignments: the attention weights with which each token or word of a target read the elements of its source


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
    encoding = tokenizer.encoding(text)
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
        width = max((text_width(name) for name, _ in rows), default=0)
        return "\n".join(
            f"{name}{' ' * (width - text_width(name))}  "
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


Aligner = Callable[[str, str | None, bool], Alignment]  # (source, target, by words)


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
