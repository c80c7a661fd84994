"""What a report shows of a pre-trained encoder: which tokens it guesses, and passages with the gaps filled in."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.tokenizers import Tokenizer
from ._pretrain_rows import Said

RANKS = (10, 100, 1_000, 10_000, 100_000)  # the last of each band of frequency


def filled(tokenizer: Tokenizer, tokens: np.ndarray, said: Said, row: int) -> str:
    """A row of tokens, where those that were hidden stand in brackets: as guessed, and as they were where wrong."""
    here = said.row == row
    guesses = dict(zip(said.place[here].tolist(), said.best[here].tolist(), strict=True))
    names, text = tokenizer.names, ""
    for place, index in enumerate(tokens.tolist()):
        if index in (tokenizer.cls, tokenizer.pad):
            continue
        goes_on = bool(tokenizer.continues[index])
        name = "|" if index == tokenizer.sep else _bare(names[index])
        if place in guesses:
            guess = guesses[place]
            name = f"[{name}]" if guess == index else f"[{_bare(names[guess])}, was {name}]"
        text += name if goes_on or not text else f" {name}"
    return text.removesuffix(" |")


def _bare(name: str) -> str:
    return name.removeprefix("##") if len(name) > 2 else name


def views(
    tokenizer: Tokenizer, said: Said, counts: np.ndarray | None, masked: bool, next: bool
) -> list[dict[str, Any]]:
    """`counts` are those of the tokens in the training part, where it is there."""
    found: list[dict[str, Any]] = []
    if masked and counts is not None:
        found.append(_by_frequency(said, counts))
    if masked:
        found += [_by_kind(tokenizer, said), _by_cover(tokenizer, said)]
    if next:
        pairs = np.bincount(2 * said.elsewhere + said.guessed, minlength=4).reshape(2, 2).tolist()
        labels = ["follows", "from elsewhere"]
        found.append(
            {"kind": "confusion", "title": "Does the second passage follow?", "labels": labels, "counts": pairs}
        )
    return found


def passages(tokenizer: Tokenizer, rows: list[np.ndarray], said: Said, next: bool) -> dict[str, Any]:
    """Whole rows as they are read and filled in."""
    names = ("follows", "from elsewhere")
    lines = []
    for index, tokens in enumerate(rows):
        judged = [names[said.elsewhere[index]], names[said.guessed[index]]] if next else []
        lines.append([filled(tokenizer, tokens, said, index), *judged])
    columns = ["passage", *(["second passage", "taken for"] if next else [])]
    note = "Hidden tokens stand in brackets, as the model guessed them, and as they were where it was wrong."
    return {"kind": "table", "title": "Gaps filled in", "columns": columns, "rows": lines, "note": note}


def _by_frequency(said: Said, counts: np.ndarray) -> dict[str, Any]:
    """In bands of rank, beside what the frequencies alone would say."""
    order = np.argsort(-counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(1, len(order) + 1)
    likely = np.log((counts + 0.5) / (counts + 0.5).sum())[said.token]
    rows, before = [], 0
    for last in [*(last for last in RANKS if last < len(order)), len(order)]:
        here = (rank[said.token] > before) & (rank[said.token] <= last)
        if here.any():
            unigram = round(-float(likely[here].mean(dtype=np.float64)), 3)
            rows.append([f"{before + 1:,} to {last:,}", *_figures(said, here)[:2], unigram, int(here.sum())])
        before = last
    columns = ["frequency rank", "accuracy", "loss", "unigram loss", "number"]
    return {"kind": "table", "title": "Hidden tokens, by how frequent they are", "columns": columns, "rows": rows}


def _by_kind(tokenizer: Tokenizer, said: Said) -> dict[str, Any]:
    names = tokenizer.names
    plain = [_bare(name) for name in names]
    number = np.array([any(sign.isdigit() for sign in name) for name in plain], dtype=bool)
    sign = np.array([not any(sign.isalnum() for sign in name) for name in plain], dtype=bool)
    goes_on = tokenizer.continues & ~number & ~sign
    kinds = {"words and beginnings": ~(goes_on | number | sign), "parts within words": goes_on}
    kinds |= {"numbers": number, "punctuation and signs": sign}
    rows = [[name, *_figures(said, here)] for name, some in kinds.items() if (here := some[said.token]).any()]
    columns = ["token", "accuracy", "loss", "number"]
    return {"kind": "table", "title": "Hidden tokens, by what they are", "columns": columns, "rows": rows}


def _by_cover(tokenizer: Tokenizer, said: Said) -> dict[str, Any]:
    hidden, same = said.shown == tokenizer.mask, said.shown == said.token
    covers = {"[MASK]": hidden, "another token": ~hidden & ~same, "the token itself": same & ~hidden}
    rows = [[name, *_figures(said, here)] for name, here in covers.items() if here.any()]
    columns = ["shown instead", "accuracy", "loss", "number"]
    return {"kind": "table", "title": "Hidden tokens, by what stood in their place", "columns": columns, "rows": rows}


def _figures(said: Said, here: np.ndarray) -> list[float]:
    """Accuracy, loss and number of some tokens."""
    right = float((said.best[here] == said.token[here]).mean())
    return [round(right, 4), round(-float(said.likely[here].mean(dtype=np.float64)), 3), int(here.sum())]
