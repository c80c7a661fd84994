"""Parts of captions by their pictures: whatever is said of a picture stays in one part."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator

from seriatim.core.errors import SeriatimError

from . import _pair_texts as texts
from ._caption_rows import Rows
from .fractions import Fractions
from .partition import NAMES


def complete(rows: Rows) -> tuple[Rows, list[str]]:
    """Without rows in which nothing is said, and a note about them."""
    empty = {row for row, text in enumerate(rows.captions) if not text.strip()}
    if not empty:
        return rows, []
    many = "1 empty caption" if len(empty) == 1 else f"{len(empty):,} empty captions"
    note = f"left out {many} (the first: {rows.places[min(empty)]})"
    return rows.take([row for row in range(len(rows)) if row not in empty]), [note]


def normalise(rows: Rows) -> Iterator[str]:
    rows.captions, forms, spaces = texts.normalise(rows.captions)
    return texts.changes(forms, spaces)


def by_name(rows: Rows) -> dict[str, Rows]:
    """As the source says."""
    chosen: dict[str, list[int]] = {name: [] for name in NAMES}
    for row, part in enumerate(rows.parts):
        if part:
            chosen[part].append(row)
    return {name: rows.take(some) for name, some in chosen.items() if some}


def drawn(rows: Rows, fractions: Fractions) -> dict[str, Rows]:
    """By the names of pictures alone, so that their order and what is said of them do not matter."""
    pictures = sorted(dict.fromkeys(rows.pictures), key=_mark)
    count = len(pictures)
    wanted = [min(max(round(count * share), 1), count) if share else 0 for share in fractions[1:]]
    if sum(wanted) >= count:
        shares = " / ".join(f"{100 * share:g}" for share in fractions)
        raise SeriatimError(
            "data.too-short",
            f"too few to split {shares} %: {count:,} pictures",
            "give more, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0",
        )
    part_of = dict.fromkeys(pictures[: wanted[0]], "valid")
    part_of |= dict.fromkeys(pictures[wanted[0] : sum(wanted)], "test")
    chosen: dict[str, list[int]] = {name: [] for name in NAMES}
    for row, picture in enumerate(rows.pictures):
        chosen[part_of.get(picture, "train")].append(row)
    return {name: rows.take(some) for name, some in chosen.items() if some}


def _mark(picture: str) -> tuple[bytes, str]:
    """Of the file's name: the same pictures in another folder have the same parts."""
    name = os.path.basename(picture).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(name, digest_size=16).digest(), picture


def without_held_out(parts: dict[str, Rows]) -> list[str]:
    """Takes from the training part what is in the others, and from the validation part what is in the test part."""
    notes = []
    for name, later in (("valid", ("test",)), ("train", ("valid", "test"))):
        if name not in parts:
            continue
        held = {picture for other in later if other in parts for picture in parts[other].pictures}
        kept = [row for row, picture in enumerate(parts[name].pictures) if picture not in held]
        if len(kept) == len(parts[name]):
            continue
        lost = len(set(parts[name].pictures) & held)
        if not kept:
            cause = f"all {lost:,} pictures of the {name} part are held out to measure on, too"
            raise SeriatimError("data.split", cause, "give other pictures for validation and test")
        parts[name] = parts[name].take(kept)
        notes.append(f"left out {lost:,} pictures of the {name} part that are held out to measure on, too")
    return notes


def told(parts: dict[str, Rows]) -> Iterator[str]:
    pictures = {name: Counter(rows.pictures) for name, rows in parts.items()}
    yield "pictures: " + ", ".join(f"{len(some):,} {name}" for name, some in pictures.items())
    counts = [count for some in pictures.values() for count in some.values()]
    few, most = min(counts), max(counts)
    many = f"{few}" if few == most else f"{few} to {most}"
    words = [text.count(" ") + 1 for text in parts["train"].captions]
    yield (
        f"captions: {', '.join(f'{len(rows):,} {name}' for name, rows in parts.items())}; {many} a picture, "
        f"{sum(words) / len(words):.1f} words on average, {max(words):,} at most"
    )


def divided(whole: Rows, given: dict[str, Rows], fractions: Fractions) -> tuple[dict[str, Rows], list[str]]:
    """As files say, else as the source says, else drawn. Where only the validation part is missing, it is drawn."""
    shares = " / ".join(f"{100 * share:g}" for share in fractions)
    if not given and not whole.divided:
        return drawn(whole, fractions), [f"split {shares} % by picture, in the same way each time"]
    parts = (by_name(whole) if whole.divided else {"train": whole}) | given
    if "train" not in parts:
        raise SeriatimError("data.empty", "no picture is in the training part", "name the part train for some of them")
    notes = without_held_out(parts)
    if "valid" not in parts and fractions[1] > 0:
        share = fractions[1] / (fractions[0] + fractions[1])
        parts |= drawn(parts["train"], (1 - share, share, 0.0))
        notes.append(f"no validation part is given: drew {100 * share:.3g} % of the training pictures for it")
    if "test" not in parts:
        notes.append("no test part is given, so it is empty")
    return {name: parts[name] for name in NAMES if name in parts}, notes
