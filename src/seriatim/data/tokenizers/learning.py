"""Learning a vocabulary: the text in parts that trainers like, and what they refuse told as an error."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from seriatim.core.errors import SeriatimError

from . import blanks
from .blanks import Parts
from .pieces import Piece, batches, stretches, whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# The trainer takes 256 texts at a time, so small ones keep the memory small.
TRAIN_PIECE = 1 << 15
# The time of the BPE trainer grows with the square of a word's length: a gene is a word of millions of letters.
TRAIN_WORD = 256
COUNT = 1 << 20  # characters counted at a time


def learn(learner: Backend, trainer: Any, texts: Iterable[str]) -> None:
    try:
        learner.train_from_iterator(small(texts), trainer)
    except Exception as error:  # the package raises nothing narrower
        raise SeriatimError(
            "tokenizer.train", f"the tokenizer could not learn from this text ({error})", "use tokenizer.kind=char"
        ) from None


def small(texts: Iterable[str]) -> Iterator[str]:
    """The text in the small parts that trainers like, cut at places that depend on the text alone."""
    pieces = whole(Piece(text, False) for text in texts)
    return _joined((stretch for piece in pieces for stretch in stretches(piece.text)), "")


def count_words(
    splitter: Backend, texts: Iterable[str], single: re.Pattern[str] | None = None, parts: Parts | None = None
) -> Counter[str]:
    """How often each word comes that `splitter` finds: what the package's trainer counts, but each part of the text
    that differs is split once only. What `single` matches is one word, which need not be asked for; `parts` are those
    of all texts together, where somebody told them apart already."""
    counts = parts.counts() if parts is not None and parts.longest <= TRAIN_WORD else _count_parts(texts)
    words, others = Counter[str](), counts
    if single is not None:
        words.update({part: counts[part] for part in counts if len(part) <= TRAIN_WORD and single.fullmatch(part)})
        others = {part: counts[part] for part in counts.keys() - words.keys()}
    alike = defaultdict[int, list[str]](list)
    for part, number in others.items():
        alike[number].append(part)
    for number, same in alike.items():
        for text in _joined(same, " "):
            for word, _ in splitter.pre_tokenizer.pre_tokenize_str(splitter.normalizer.normalize_str(text)):
                words[word] += number
    return words


def _count_parts(texts: Iterable[str]) -> Mapping[str, int]:
    seen = Counter[str]()
    for group in batches(whole(Piece(text, False) for text in texts), COUNT):
        together = [piece.text for piece in group]
        found = blanks.parts(together, TRAIN_WORD)
        seen.update(chain.from_iterable(map(stretches, together)) if found is None else found.counts())
    return seen


def _joined(parts: Iterable[str], between: str) -> Iterator[str]:
    """Parts together as far as trainers like it, and those that are too long for them in pieces."""
    group: list[str] = []
    size = 0
    for part in parts:
        if len(part) > TRAIN_WORD:
            yield from (part[i : i + TRAIN_WORD] for i in range(0, len(part), TRAIN_WORD))
            continue
        group.append(part)
        size += len(part)
        if size >= TRAIN_PIECE:
            yield between.join(group)
            group, size = [], 0
    yield between.join(group)
