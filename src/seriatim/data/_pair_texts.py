"""What is done to the texts of pairs: normalised, compared, counted, and divided into parts by the source.

Many texts are looked at as one, joined by a sign that no text holds, since most of them need no change at all.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence

from seriatim.core.errors import SeriatimError

from ._pair_rows import Rows

MOST_HELD_OUT = 2000
TITLES = {"valid": "validation", "test": "the test"}
BETWEEN = "\0"

# Blanks, tabs and ends of lines become one blank. No-break, thin and other typographic spaces are part of the text.
ENDS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
TYPOGRAPHIC = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
SPACE = re.compile(f"[ {ENDS}]+")
ODD_SPACE = (*ENDS, "  ", f"{BETWEEN} ", f" {BETWEEN}")


def normalised(text: str) -> str:
    """Unicode NFC, one blank for each run of blanks, tabs and ends of lines, none at the ends."""
    return SPACE.sub(" ", unicodedata.normalize("NFC", text)).strip(" ")


def normalise(texts: list[str]) -> tuple[list[str], int, int]:
    """All texts so, how many were not in NFC, and how many had other spaces than single blanks."""
    joined = f"{BETWEEN}{BETWEEN.join(texts)}{BETWEEN}"
    if unicodedata.is_normalized("NFC", joined) and not any(odd in joined for odd in ODD_SPACE):
        return texts, 0, 0
    found, forms, spaces = [], 0, 0
    for text in texts:
        changed = normalised(text)
        if changed != text:
            form = not unicodedata.is_normalized("NFC", text)
            forms += form
            spaces += not form or changed != unicodedata.normalize("NFC", text)
        found.append(changed)
    return found, forms, spaces


def changes(forms: int, spaces: int) -> Iterator[str]:
    if forms:
        yield f"{_texts(forms)} brought to Unicode NFC (data.normalise=false keeps what is written)"
    if spaces:
        yield f"{_texts(spaces)}: spaces at the ends, tabs, line ends and several blanks became single blanks"


def _texts(number: int) -> str:
    return "1 text" if number == 1 else f"{number:,} texts"


def keys_of(texts: Sequence[str]) -> list[str]:
    """What sources have in common that must not be in two parts: they differ in letter case or in spaces only."""
    joined = unicodedata.normalize("NFC", f"{BETWEEN}{BETWEEN.join(texts)}{BETWEEN}".casefold())
    for space in ENDS + TYPOGRAPHIC:
        joined = joined.replace(space, " ")
    while any(odd in joined for odd in ODD_SPACE[-3:]):
        joined = joined.replace("  ", " ").replace(f" {BETWEEN}", BETWEEN).replace(f"{BETWEEN} ", BETWEEN)
    found = joined[1:-1].split(BETWEEN) if texts else []
    return found if len(found) == len(texts) else [one for text in texts for one in keys_of([text.replace("\0", " ")])]


def complete(rows: Rows) -> tuple[Rows, list[str]]:
    """Without pairs of which a side is empty, and a note about them."""
    both = zip(rows.sources, rows.targets, strict=True)
    empty = [row for row, (source, target) in enumerate(both) if not source.strip() or not target.strip()]
    if not empty:
        return rows, []
    absent = set(empty)
    note = f"left out {pairs_of(len(empty))} with an empty side (the first: {rows.places[empty[0]]})"
    return rows.take([row for row in range(len(rows)) if row not in absent]), [note]


def divide(rows: Rows, keys: list[str], wanted: list[str], held: int | None) -> tuple[dict[str, Rows], list[str]]:
    """`wanted` parts drawn by the source alone, `held` distinct sources each, and the rest for training."""
    distinct = sorted(set(keys), key=_mark)
    if held is None:
        held = min(MOST_HELD_OUT, max(1, len(distinct) // 10))
    if not held or not wanted:
        return {"train": rows}, []
    if held * len(wanted) >= len(distinct):
        raise SeriatimError(
            "data.too-short",
            f"too few to hold out {held:,} for {_and(wanted)}: {len(distinct):,} distinct sources",
            "give more pairs, lower data.held_out, or name files with --valid and --test",
        )
    part_of = {key: name for place, name in enumerate(wanted) for key in distinct[place * held : (place + 1) * held]}
    chosen: dict[str, list[int]] = {name: [] for name in ("train", *wanted)}
    for row, key in enumerate(keys):
        chosen[part_of.get(key, "train")].append(row)
    note = f"held out {held:,} distinct sources for {_and(wanted)}, drawn by their text, in the same way each time"
    return {name: rows.take(some) for name, some in chosen.items()}, [note]


def _and(names: list[str]) -> str:
    return " and as many for ".join(TITLES[name] for name in names)


def _mark(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).digest()


def told(rows: Rows, keys: list[str]) -> Iterator[str]:
    yield f"pairs: {len(rows):,}, of {len(set(keys)):,} distinct sources"
    if again := len(rows) - len(set(zip(rows.sources, rows.targets, strict=True))):
        yield f"{pairs_of(again)} {'repeats' if again == 1 else 'repeat'} another; all are kept"
    yield f"length: source {_lengths(rows.sources)}; target {_lengths(rows.targets)}"


def pairs_of(number: int) -> str:
    return "1 pair" if number == 1 else f"{number:,} pairs"


def _lengths(texts: list[str]) -> str:
    """In words, or in characters where hardly a text has blanks between words."""
    blanks = [text.count(" ") for text in texts]
    words = sum(number > 0 for number in blanks) * 10 >= len(texts)
    lengths = [number + 1 for number in blanks] if words else [len(text) for text in texts]
    unit = "words" if words else "characters"
    return f"{sum(lengths) / len(lengths):.1f} {unit} on average, {max(lengths):,} at most"


def seen(parts: dict[str, Rows]) -> Iterator[str]:
    """How much of the parts that files gave is in the training part already."""
    known = set(keys_of(parts["train"].sources))
    for name in ("valid", "test"):
        if name in parts and (again := sum(key in known for key in keys_of(parts[name].sources))):
            yield f"{again:,} of {len(parts[name]):,} {name} pairs have a source that is in the training part too"
