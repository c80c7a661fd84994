"""Where a text may be cut without changing its tokens.

No tokenizer of ours lets a token go from a character that is not white space to one that is. So a text is a
row of *stretches*, each white space and then what follows it up to the next white space, and the tokens of the
text are the tokens of its stretches. Only a stretch longer than LIMIT is cut in its middle, at multiples of LIMIT
from its beginning. These places depend on the text alone, never on how a reader happened to cut it.

Some white space is a control character as well. BERT's tokenizer takes it away, so that the words on both sides are
one: no stretch begins with such a character, but at the beginning or the end of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LIMIT = 1 << 16

# The white space of Unicode, as the `tokenizers` package has it; Python's \s also takes 0x1C to 0x1F.
CONTROL = "\\x0b\\x0c\\x85"
BLANK = "\\t\\n\\r \\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
SPACE = BLANK + CONTROL
STRETCH = re.compile(f"[{SPACE}]*[^{SPACE}]+(?:[{CONTROL}][{SPACE}]*[^{SPACE}]+)*|[{SPACE}]+")
CUT = re.compile(f"(?<=[^{SPACE}])(?=[{BLANK}])")


class Piece(NamedTuple):
    """A part of a document; `last` where the document ends with it."""

    text: str
    last: bool


def stretches(text: str) -> list[str]:
    found = STRETCH.findall(text)
    if any(len(stretch) > LIMIT for stretch in found):
        return [stretch[i : i + LIMIT] for stretch in found for i in range(0, len(stretch), LIMIT)]
    return found


def whole(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same documents, in pieces that begin and end where stretches do."""
    held: list[str] = []
    size = 0
    for text, last in pieces:
        held.append(text)
        size += len(text)
        if not last and size < LIMIT:
            continue
        joined = "".join(held)
        cut = len(joined) if last else last_cut(joined)
        if cut or last:
            yield Piece(joined[:cut], last)
        held, size = [joined[cut:]], len(joined) - cut
    if size:  # the text ends in the middle of a document
        yield Piece("".join(held), False)


def last_cut(text: str) -> int:
    """The last place in `text` that is sure to end a stretch, whatever follows; 0 where there is none."""
    for start in (max(0, len(text) - 64), max(0, len(text) - 4096), 0):
        cuts = [match.start() for match in CUT.finditer(text, start)]
        if cuts:
            # What remains may itself be longer than a stretch may be.
            return cuts[-1] + (len(text) - cuts[-1]) // LIMIT * LIMIT
    return len(text) // LIMIT * LIMIT


def batches(pieces: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Pieces in groups of about `size` characters, so that a million short documents are not a million calls."""
    group: list[Piece] = []
    total = 0
    for piece in pieces:
        group.append(piece)
        total += len(piece.text)
        # A document without text costs too: the number of pieces is bounded as well.
        if total >= size or len(group) >= size // 16:
            yield group
            group, total = [], 0
    if group:
        yield group
