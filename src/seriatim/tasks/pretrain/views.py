"""What a report shows of a pretrained encoder: which tokens it predicts, and passages with the masks filled."""

from __future__ import annotations

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
    unigram = np.log((counts + 0.5) / (counts + 0.5).sum())[result.token]
    rows, before = [], 0
    for last in [*(last for last in RANK_BOUNDS if last < len(order)), len(order)]:
        inside = (rank[result.token] > before) & (rank[result.token] <= last)
        if inside.any():
            accuracy, loss, number = token_metrics(result, inside)
            baseline = round(-float(unigram[inside].mean(dtype=np.float64)), 3)
            rows.append((f"{before + 1:,} to {last:,}", accuracy, loss, baseline, number))
        before = last
    columns = ("frequency rank", "accuracy", "loss", "unigram loss", "number")
    return Table(title="Masked tokens by frequency", columns=columns, rows=tuple(rows))


def table_by_kind(tokenizer: Tokenizer, result: PretrainPredictions) -> Table:
    names = [bare_name(name) for name in tokenizer.names]
    number = np.array([any(character.isdigit() for character in name) for name in names], dtype=bool)
    sign = np.array([not any(character.isalnum() for character in name) for name in names], dtype=bool)
    inner = tokenizer.continues_word & ~number & ~sign
    kinds = {
        "words and word beginnings": ~(inner | number | sign),
        "parts within words": inner,
        "numbers": number,
        "punctuation and symbols": sign,
    }
    return metrics_table(
        "Masked tokens by kind", "token", result, {name: members[result.token] for name, members in kinds.items()}
    )


def table_by_replacement(tokenizer: Tokenizer, result: PretrainPredictions) -> Table:
    mask, same = result.shown == tokenizer.mask, result.shown == result.token
    groups = {"[MASK]": mask, "another token": ~mask & ~same, "the token itself": same & ~mask}
    return metrics_table("Masked tokens by what the model read instead", "read instead", result, groups)


def metrics_table(title: str, column: str, result: PretrainPredictions, groups: dict[str, np.ndarray]) -> Table:
    rows = tuple((name, *token_metrics(result, inside)) for name, inside in groups.items() if inside.any())
    return Table(title=title, columns=(column, "accuracy", "loss", "number"), rows=rows)


def token_metrics(result: PretrainPredictions, inside: np.ndarray) -> tuple[float, float, int]:
    """Returns accuracy, loss and number of some tokens."""
    accuracy = float((result.best[inside] == result.token[inside]).mean())
    return round(accuracy, 4), round(-float(result.log_prob[inside].mean(dtype=np.float64)), 3), int(inside.sum())
