"""What a report shows of a pretrained encoder: which tokens it predicts, and passages with the masks filled."""

from __future__ import annotations

import itertools

import numpy as np

from ...data.tokenizers import Tokenizer
from ...report.charts import Confusion, Table, View
from .masking import PretrainPredictions

RANK_BOUNDS = (10, 100, 1_000, 10_000, 100_000)  # the last frequency rank of each range
PAIR_LABELS = ("follows", "unrelated")


def filled_text(tokenizer: Tokenizer, tokens: np.ndarray, result: PretrainPredictions, row: int) -> str:
    """Returns a passage with its masked tokens in brackets: as predicted, and as they were if that is wrong."""
    inside = result.row == row
    predicted = dict(zip(result.position[inside].tolist(), result.best[inside].tolist(), strict=True))
    names, text = tokenizer.names, ""
    for position, token in enumerate(tokens.tolist()):
        if token in (tokenizer.cls, tokenizer.pad):
            continue
        name = "|" if token == tokenizer.sep else bare_name(names[token])
        if position in predicted:
            guess = predicted[position]
            name = f"[{name}]" if guess == token else f"[{bare_name(names[guess])}, was {name}]"
        text += name if tokenizer.continues_word[token] or not text else f" {name}"
    return text.removesuffix(" |")


def bare_name(name: str) -> str:
    return name.removeprefix("##") if len(name) > 2 else name


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
    names = [bare_name(name) for name in tokenizer.names]
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
