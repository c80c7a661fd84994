"""Special tokens and what they are for: where a text begins and ends, where a second one does, what is hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError

from .wordpiece import SPECIALS

# What others call them; a token counts as special only where its tokenizer says so.
NAMES = {
    "cls": (SPECIALS["cls"],),
    "sep": (SPECIALS["sep"],),
    "mask": (SPECIALS["mask"], "<mask>"),
    "pad": (SPECIALS["pad"], "<pad>"),
}


def special_ids(description: Mapping[str, Any], kind: str, vocab: Mapping[str, int]) -> dict[str, int | None]:
    """The ids of the special tokens of a `tokenizer.json` by what they are for; None where it has no such token."""
    added = {token["content"] for token in description["added_tokens"]}
    known = vocab.keys() if kind == "bert" else vocab.keys() & added
    found = {use: next((vocab[name] for name in names if name in known), None) for use, names in NAMES.items()}
    ends = _template(description["post_processor"] or {}) if kind == "bert" else ()
    if len(ends) == 2 and all(name in vocab for name in ends):
        found |= {"cls": vocab[ends[0]], "sep": vocab[ends[1]]}
    return found


def _template(step: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of what is put before and behind a single text."""
    if step.get("type") == "BertProcessing":
        return step["cls"][0], step["sep"][0]
    single = step.get("single", []) if step.get("type") == "TemplateProcessing" else []
    if [next(iter(part)) for part in single] != ["SpecialToken", "Sequence", "SpecialToken"]:
        return ()
    return single[0]["SpecialToken"]["id"], single[2]["SpecialToken"]["id"]


def join(
    first: np.ndarray,
    second: np.ndarray | None,
    before: list[int],
    between: list[int],
    behind: list[int],
    limit: int | None,
) -> np.ndarray:
    """One text or two with what stands around them, of `limit` elements at most."""
    around = len(before) + len(behind) + (0 if second is None else len(between))
    if limit is not None and limit < around:
        raise SeriatimError(
            "tokenizer.limit",
            f"{limit} elements have no room for the {around} that stand around "
            + ("a text" if second is None else "two texts"),
            "allow for more elements: --length",
        )
    if limit is not None:
        kept = cut(len(first), 0 if second is None else len(second), limit - around)
        first, second = first[: kept[0]], None if second is None else second[: kept[1]]
    parts = [before, first, behind] if second is None else [before, first, between, second, behind]
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


def cut(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of two texts to keep: the longer one loses until both are equal, then both."""
    if first > second:
        return cut(second, first, room)[::-1]
    if first + second <= room:
        return first, second
    if room - first >= first:
        return first, room - first
    return room // 2, room - room // 2


def continues(kind: str, names: list[str]) -> np.ndarray:
    """For each token whether it goes on with the word of the token before it. `names` are what tokens stand for.

    Where blanks belong to tokens, what begins with a letter or a digit (or in the middle of one) goes on: without a
    blank it begins a word only behind a line end or a sign. Where a name does not tell, no token goes on.
    """
    if kind in ("wordpiece", "bert"):
        return np.array([name.startswith("##") and len(name) > 2 for name in names], dtype=bool)
    if kind in ("bpe", "byte-bpe", "unigram") or (kind == "other" and any(name.startswith("▁") for name in names)):
        return np.array([name[:1].isalnum() or name[:1] == "\ufffd" for name in names], dtype=bool)
    return np.zeros(len(names), dtype=bool)
