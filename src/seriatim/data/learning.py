"""Learning a vocabulary: the text in parts that trainers like, and what they refuse told as an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from seriatim.core.errors import SeriatimError

from .pieces import Piece, stretches, whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# The trainer takes 256 texts at a time, so small ones keep the memory small.
TRAIN_PIECE = 1 << 15
# The time of the BPE trainer grows with the square of a word's length: a gene is a word of millions of letters.
TRAIN_WORD = 256


def learn(learner: Backend, trainer: Any, texts: Iterable[str]) -> None:
    try:
        learner.train_from_iterator(small(texts), trainer)
    except Exception as error:  # the package raises nothing narrower
        raise SeriatimError(
            "tokenizer.train", f"the tokenizer could not learn from this text ({error})", "use tokenizer.kind=char"
        ) from None


def small(texts: Iterable[str]) -> Iterator[str]:
    """The text in the small parts that trainers like, cut at places that depend on the text alone."""
    group: list[str] = []
    size = 0
    for piece in whole(Piece(text, False) for text in texts):
        for stretch in stretches(piece.text):
            if len(stretch) > TRAIN_WORD:
                yield from (stretch[i : i + TRAIN_WORD] for i in range(0, len(stretch), TRAIN_WORD))
                continue
            group.append(stretch)
            size += len(stretch)
            if size >= TRAIN_PIECE:
                yield "".join(group)
                group, size = [], 0
    yield "".join(group)
