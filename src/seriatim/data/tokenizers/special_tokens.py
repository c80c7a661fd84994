"""Special tokens: their ids in a tokenizer, the sequences they delimit, and which tokens continue a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.errors import SeriatimError

UNK, EOS = "<unk>", "<eos>"
SPECIAL_TOKENS = [UNK, EOS]  # ids 0 and 1 of every tokenizer trained here, except those of kind bert
# By their use, in the order of their ids in a BERT vocabulary trained here.
BERT_SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
EOS_ALIASES = (EOS, "<|endoftext|>", "</s>", "[SEP]")  # ends of a text in tokenizers made elsewhere
ALIASES = {  # a token is special only where its tokenizer declares it
    "cls": (BERT_SPECIAL_TOKENS["cls"],),
    "sep": (BERT_SPECIAL_TOKENS["sep"],),
    "mask": (BERT_SPECIAL_TOKENS["mask"], "<mask>"),
    "pad": (BERT_SPECIAL_TOKENS["pad"], "<pad>"),
}


def special_token_ids(description: Mapping[str, Any], kind: str, vocab: Mapping[str, int]) -> dict[str, int | None]:
    """Returns the ids of cls, sep, mask and pad in a `tokenizer.json`; None for those it lacks."""
    added = {token["content"] for token in description["added_tokens"]}
    declared = vocab.keys() if kind == "bert" else vocab.keys() & added
    ids = {use: next((vocab[name] for name in names if name in declared), None) for use, names in ALIASES.items()}
    delimiters = _template_delimiters(description["post_processor"] or {}) if kind == "bert" else ()
    if len(delimiters) == 2 and all(name in vocab for name in delimiters):
        ids |= {"cls": vocab[delimiters[0]], "sep": vocab[delimiters[1]]}
    return ids


def _template_delimiters(step: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the tokens before and after a single text in a post-processor; () if it has another form."""
    if step.get("type") == "BertProcessing":
        return step["cls"][0], step["sep"][0]
    single = step.get("single", []) if step.get("type") == "TemplateProcessing" else []
    if [next(iter(part)) for part in single] != ["SpecialToken", "Sequence", "SpecialToken"]:
        return ()
    return single[0]["SpecialToken"]["id"], single[2]["SpecialToken"]["id"]


def join_texts(
    first: np.ndarray,
    second: np.ndarray | None,
    before: Sequence[int],
    between: Sequence[int],
    after: Sequence[int],
    limit: int | None,
) -> np.ndarray:
    """Returns one text or two with special tokens around them, truncated to `limit` tokens in all."""
    around = len(before) + len(after) + (0 if second is None else len(between))
    if limit is not None:
        if limit < around:
            texts = "a text" if second is None else "two texts"
            cause = f"{limit} tokens have no room for the {around} special tokens around {texts}"
            raise SeriatimError("tokenizer.limit", cause, "allow longer sequences: --context-length")
        lengths = truncated_lengths(len(first), 0 if second is None else len(second), limit - around)
        first, second = first[: lengths[0]], None if second is None else second[: lengths[1]]
    parts = [before, first, after] if second is None else [before, first, between, second, after]
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns the lengths of two texts within `room`: the longer one is truncated until both are equal, then both."""
    if first > second:
        return truncated_lengths(second, first, room)[::-1]
    if first + second <= room:
        return first, second
    if room - first >= first:
        return first, room - first
    return room // 2, room - room // 2


def continues_word(kind: str, texts: Sequence[str]) -> np.ndarray:
    """Returns for each token, by the text it stands for, whether it continues the word of the token before it.

    Where blanks belong to tokens, what begins with a letter or digit (or within one) continues: without a blank, it
    begins a word only after a line end or punctuation. If a text does not show it, no token continues.
    """
    if kind in ("wordpiece", "bert"):
        return np.array([text.startswith("##") and len(text) > 2 for text in texts], dtype=bool)
    if kind in ("bpe", "byte-bpe", "unigram") or (kind == "other" and any(text.startswith("▁") for text in texts)):
        return np.array([text[:1].isalnum() or text[:1] == "\ufffd" for text in texts], dtype=bool)
    return np.zeros(len(texts), dtype=bool)
