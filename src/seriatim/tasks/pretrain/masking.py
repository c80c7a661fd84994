"""Masked tokens: which ones a model has to predict, what it reads in their place, and tables of its predictions.

    15 % of the tokens are selected, at least one in every sequence; of these
    80 % become [MASK], 10 % a random token, 10 % stay as they are                         Devlin et al. 2019

Tokens that stay or are replaced must be predicted, too, so that the model cannot trust what it reads. With whole-word
masking all tokens of a word are selected together, so that none gives the others away.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from ...core.device import numpy_stream
from ...data.tokenizers import Tokenizer
from ...report.charts import Confusion, Table, View
from ..batching import Batch
from .processor import Passages

MASKED, REPLACED = 0.8, 0.1  # shares of the selected tokens
RANK_BOUNDS = (10, 100, 1_000, 10_000, 100_000)  # the last frequency rank of each range
PAIR_LABELS = ("follows", "unrelated")


@dataclass(frozen=True)
class Masking:
    """Selects and replaces tokens.

    Args:
        mask: The id of [MASK].
        ordinary: Whether each id (V,) is not a special token.
        rate: The share of tokens that are selected.
        continues_word: Whether each id (V,) continues a word; None if tokens are selected independently.
    """

    mask: int
    ordinary: np.ndarray
    rate: float = 0.15
    continues_word: np.ndarray | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer, rate: float, whole_word: bool) -> Masking:
        """Returns the masking for the tokens of a tokenizer."""
        ordinary = np.ones(tokenizer.vocab_size, dtype=bool)
        specials = (tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk)
        ordinary[[token for token in specials if token is not None]] = False
        mask = -1 if tokenizer.mask is None else tokenizer.mask
        return cls(mask, ordinary, rate, tokenizer.continues_word if whole_word else None)

    def select(self, tokens: np.ndarray, text: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Returns which tokens are to be predicted (B,T).

        Args:
            tokens: The token ids (B,T).
            text: Which of them belong to a text (B,T), not to its frame or padding.
            random: Draws.
        """
        free = text & self.ordinary[tokens]
        free |= text & ~free.any(axis=1, keepdims=True)  # a sequence of unknown tokens has a target, too
        counts = np.maximum(np.rint(self.rate * free.sum(axis=1)), 1).astype(np.int64)  # (B,)
        keys = random.random(tokens.shape, dtype=np.float32)
        if self.continues_word is None:
            order = np.where(free, keys, np.inf).argsort(axis=1)
            first = np.arange(tokens.shape[1]) < counts[:, None]
        else:
            words = np.cumsum(~self.continues_word[tokens], axis=1)  # the same number for all tokens of a word
            words = np.where(free, words, -1)
            keys = np.where(free, np.take_along_axis(keys, np.minimum(words, keys.shape[1] - 1), axis=1), np.inf)
            order = keys.argsort(axis=1, kind="stable")
            first = first_whole_words(np.take_along_axis(words, order, axis=1), counts)
        selected = np.zeros(tokens.shape, dtype=bool)
        np.put_along_axis(selected, order, first, axis=1)
        return selected & free

    def replace(self, tokens: np.ndarray, selected: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Returns what the model reads (B,T)."""
        numbers = random.random(tokens.shape, dtype=np.float32)
        ordinary = np.flatnonzero(self.ordinary)
        inputs = tokens.copy()
        inputs[selected & (numbers < MASKED)] = self.mask
        replaced = selected & (numbers >= MASKED) & (numbers < MASKED + REPLACED)
        inputs[replaced] = ordinary[random.integers(0, len(ordinary), int(replaced.sum()))]
        return inputs


def first_whole_words(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns which tokens belong to the first words that fit into `counts` (B,) tokens, at least to one word.

    Args:
        words: The word of each token (B,T), the tokens of a word side by side.
        counts: The largest number of tokens of each row (B,).
    """
    rows, length = np.arange(len(words)), words.shape[1]
    last = words[rows, np.minimum(counts, length) - 1]
    broken = (counts < length) & (words[rows, np.minimum(counts, length - 1)] == last)  # it does not fit as a whole
    first = (np.arange(length) < counts[:, None]) & ~(broken[:, None] & (words == last[:, None]))
    return first | (words == words[:, :1])


# Batches and predictions


@dataclass(frozen=True)
class MaskedBatch:
    """Drawn passages with masks."""

    tokens: np.ndarray  # (B,T) the true tokens
    inputs: np.ndarray  # (B,T) what the model reads
    selected: np.ndarray  # (B,T) which tokens it must predict
    lengths: np.ndarray  # (B,)
    unrelated: np.ndarray  # (B,)

    @classmethod
    def draw(
        cls, passages: Passages, spans: np.ndarray, masking: Masking | None, seed: int, name: str, number: int
    ) -> MaskedBatch:
        """Draws passages of spans, and masks, from the random streams of a name and a number."""
        pairs = passages.draw(spans, numpy_stream(seed, f"{name} pairs", number))
        if masking is None:
            nothing = np.zeros(pairs.tokens.shape, dtype=bool)
            return cls(pairs.tokens, pairs.tokens, nothing, pairs.lengths, pairs.unrelated)
        random = numpy_stream(seed, f"{name} masks", number)
        selected = masking.select(pairs.tokens, pairs.text, random)
        inputs = masking.replace(pairs.tokens, selected, random)
        return cls(pairs.tokens, inputs, selected, pairs.lengths, pairs.unrelated)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def pair_weight(self) -> float:
        """Masked tokens per pair."""
        return float(self.selected.sum() / len(self)) if self.selected.any() else 1.0

    def take(self, rows: slice | np.ndarray) -> MaskedBatch:
        """Returns some rows, padded to the longest of them."""
        longest = int(self.lengths[rows].max())
        tokens, inputs, selected = (block[rows, :longest] for block in (self.tokens, self.inputs, self.selected))
        return MaskedBatch(tokens, inputs, selected, self.lengths[rows], self.unrelated[rows])

    def to_batch(self, pair_weight: float) -> Batch:
        """Returns the tensors; `pair_weight` is that of the whole step."""
        steps = self.inputs.shape[1]
        mask = None if int(self.lengths.min()) == steps else torch.from_numpy(np.arange(steps) < self.lengths[:, None])
        positions = np.flatnonzero(self.selected)
        targets = {
            "positions": torch.from_numpy(positions),  # (M,) among all B·T
            "tokens": torch.from_numpy(self.tokens.reshape(-1)[positions]),  # (M,)
            "unrelated": torch.from_numpy(self.unrelated),  # (B,)
            "pair_weight": torch.tensor(pair_weight),
        }
        return Batch(torch.from_numpy(self.inputs), targets, len(positions) or len(self), mask)


@dataclass(frozen=True)
class PretrainPredictions:
    """Predictions of masked tokens (M,) and pairs (R,)."""

    row: np.ndarray  # of each token
    position: np.ndarray  # in its row
    token: np.ndarray  # the true one
    shown: np.ndarray  # what the model read instead
    best: np.ndarray  # the most likely one
    log_prob: np.ndarray  # of the true token
    unrelated: np.ndarray  # whether a pair is from two documents
    predicted: np.ndarray  # whether it was taken for one
    pair_log_prob: np.ndarray  # of the truth

    def take(self, rows: np.ndarray) -> PretrainPredictions:
        """Returns the predictions of some rows, in ascending order."""
        inside = np.isin(self.row, rows)
        tokens = (self.position, self.token, self.shown, self.best, self.log_prob)
        pairs = (self.unrelated, self.predicted, self.pair_log_prob)
        return PretrainPredictions(
            np.searchsorted(rows, self.row[inside]), *(part[inside] for part in tokens), *(part[rows] for part in pairs)
        )


# Charts and tables


def filled_text(tokenizer: Tokenizer, tokens: np.ndarray, result: PretrainPredictions, row: int) -> str:
    """Returns a passage with its masked tokens in brackets: as predicted, and as they were if that is wrong."""
    inside = result.row == row
    predicted = dict(zip(result.position[inside].tolist(), result.best[inside].tolist(), strict=True))
    text = ""
    for position, token in enumerate(tokens.tolist()):
        if token in (tokenizer.cls, tokenizer.pad):
            continue
        name = "|" if token == tokenizer.sep else bare_name(tokenizer.piece(token))
        if position in predicted:
            guess = predicted[position]
            name = f"[{name}]" if guess == token else f"[{bare_name(tokenizer.piece(guess))}, was {name}]"
        text += name if tokenizer.continues_word[token] or not text else f" {name}"
    return text.removesuffix(" |")


def bare_name(name: str) -> str:
    return name.removeprefix("##").strip(" ") if len(name) > 2 else name


def filled_passages(tokenizer: Tokenizer, rows: list[np.ndarray], result: PretrainPredictions, paired: bool) -> Table:
    """Returns a table of passages with the masks filled."""
    cells = []
    for number, tokens in enumerate(rows):
        labels = (PAIR_LABELS[result.unrelated[number]], PAIR_LABELS[result.predicted[number]]) if paired else ()
        cells.append((filled_text(tokenizer, tokens, result, number), *labels))
    columns = ("passage", *(("second passage", "predicted") if paired else ()))
    note = "Masked tokens are in brackets, as the model predicts them, and as they were if that is wrong."
    return Table(title="Filled masks", columns=columns, rows=tuple(cells), note=note)


def prediction_views(
    tokenizer: Tokenizer, result: PretrainPredictions, counts: np.ndarray | None, masked: bool, paired: bool
) -> list[View]:
    """Returns tables of masked tokens by frequency, kind and replacement, and the confusion of pairs.

    Args:
        tokenizer: Names the tokens.
        result: The predictions.
        counts: The occurrences of each token (V,) in the training split, None if it is not there.
        masked: Whether tokens are predicted.
        paired: Whether pairs are.
    """
    views: list[View] = []
    if masked:
        views = [] if counts is None else [table_by_frequency(result, counts)]
        views += [table_by_kind(tokenizer, result), table_by_replacement(tokenizer, result)]
    if paired:
        confusion = np.bincount(2 * result.unrelated + result.predicted, minlength=4).reshape(2, 2)
        rows = tuple(tuple(row) for row in confusion.tolist())
        views.append(Confusion(title="Does the second passage follow?", labels=PAIR_LABELS, counts=rows))
    return views


def table_by_frequency(result: PretrainPredictions, counts: np.ndarray) -> Table:
    """Returns accuracy and loss by ranges of frequency rank, beside the loss of token frequencies alone."""
    order = np.argsort(-counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(1, len(order) + 1)
    ranks = rank[result.token]
    bounds = [0, *(bound for bound in RANK_BOUNDS if bound < len(order)), len(order)]
    groups = {f"{low + 1:,} to {high:,}": (ranks > low) & (ranks <= high) for low, high in itertools.pairwise(bounds)}
    unigram = np.log((counts + 0.5) / (counts + 0.5).sum())[result.token]
    return metrics_table("Masked tokens by frequency", "frequency rank", result, groups, unigram)


def table_by_kind(tokenizer: Tokenizer, result: PretrainPredictions) -> Table:
    names = [bare_name(tokenizer.piece(index)) for index in range(tokenizer.vocab_size)]
    number = np.array([any(character.isdigit() for character in name) for name in names], dtype=bool)
    symbol = np.array([not any(character.isalnum() for character in name) for name in names], dtype=bool)
    inner = tokenizer.continues_word & ~number & ~symbol
    kinds = {
        "words and word beginnings": ~(inner | number | symbol),
        "parts within words": inner,
        "numbers": number,
        "punctuation and symbols": symbol,
    }
    groups = {name: members[result.token] for name, members in kinds.items()}
    return metrics_table("Masked tokens by kind", "token", result, groups)


def table_by_replacement(tokenizer: Tokenizer, result: PretrainPredictions) -> Table:
    mask, same = result.shown == tokenizer.mask, result.shown == result.token
    groups = {"[MASK]": mask, "another token": ~mask & ~same, "the token itself": same & ~mask}
    return metrics_table("Masked tokens by what the model read instead", "read instead", result, groups)


def metrics_table(
    title: str,
    column: str,
    result: PretrainPredictions,
    groups: dict[str, np.ndarray],
    unigram: np.ndarray | None = None,
) -> Table:
    """Returns a row with accuracy, loss and number of tokens for each group that has any.

    Args:
        title: Of the table.
        column: What the groups are.
        result: The predictions.
        groups: Name → whether each token (M,) belongs to it.
        unigram: Log-probabilities (M,) by token frequencies, for a column beside the loss.
    """

    def mean_loss(log_probs: np.ndarray) -> float:
        return round(-float(log_probs.mean(dtype=np.float64)), 3)

    rows = []
    for name, inside in groups.items():
        if inside.any():
            accuracy = round(float((result.best[inside] == result.token[inside]).mean()), 4)
            baseline = () if unigram is None else (mean_loss(unigram[inside]),)
            rows.append((name, accuracy, mean_loss(result.log_prob[inside]), *baseline, int(inside.sum())))
    columns = (column, "accuracy", "loss", *(() if unigram is None else ("unigram loss",)), "number")
    return Table(title=title, columns=columns, rows=tuple(rows))
