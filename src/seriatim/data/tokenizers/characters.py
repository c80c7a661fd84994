"""Characters to ids by table lookup: the same ids as the `tokenizers` package gives, a hundred times as fast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from seriatim.core.errors import SeriatimError

UNSEEN = -1
CODE_POINTS = 0x110000


def codes(text: str) -> np.ndarray:
    """The code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def count(texts: Iterable[str]) -> dict[str, int]:
    """How often each character occurs, by code point."""
    total = np.zeros(CODE_POINTS, dtype=np.int64)
    for text in texts:
        found = np.bincount(codes(text))
        total[: len(found)] += found
    return {chr(code): int(total[code]) for code in np.flatnonzero(total)}


def byte_name(byte: int) -> str:
    return f"<0x{byte:02X}>"


def check(text: str) -> None:
    """Refuses what is no text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SeriatimError(
            "tokenizer.text",
            f"character {error.start + 1} of the text is half a surrogate pair, which is no character",
            "check the encoding the text was read with",
        ) from None


def visible(character: str) -> str:
    """A character in a form fit to be shown."""
    if character == " ":
        return "␣"
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


class CharacterTable:
    def __init__(self, names: Mapping[str, int]) -> None:
        known = {ord(name): index for name, index in names.items() if len(name) == 1}
        # One place more than the highest known code point stands for all that lie above it.
        self.ids = np.full(max(known, default=0) + 2, UNSEEN, dtype=np.int64)
        self.ids[list(known)] = list(known.values())
        self.unk = names["<unk>"]
        has_bytes = byte_name(0) in names
        self.bytes = np.array([names[byte_name(byte)] for byte in range(256)]) if has_bytes else None

    def lookup(self, text: str) -> np.ndarray:
        found: np.ndarray = self.ids[np.minimum(codes(text), len(self.ids) - 1)]
        return found

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """The ids of each text; all are looked up at once."""
        if not texts:
            return []
        joined = "".join(texts)
        found = self.lookup(joined)
        ends = np.cumsum([len(text) for text in texts])[:-1]
        unseen = found == UNSEEN
        if not unseen.any():
            return np.split(found, ends)
        if self.bytes is None:
            found[unseen] = self.unk
            return np.split(found, ends)
        point = codes(joined)
        width = 1 + ((point >= 0x80).astype(np.int64) + (point >= 0x800) + (point >= 0x10000)) * unseen
        data = point[unseen].tobytes().decode("utf-32-le").encode("utf-8")
        spread = np.repeat(unseen, width)
        result = np.empty(len(spread), dtype=np.int64)
        result[~spread] = found[~unseen]
        result[spread] = self.bytes[np.frombuffer(data, dtype=np.uint8)]
        lengths = np.concatenate([[0], np.cumsum(width)])
        return np.split(result, lengths[ends])

    def unknown(self, text: str) -> list[str]:
        where = np.flatnonzero(self.lookup(text) == UNSEEN)
        return list(dict.fromkeys(chr(code) for code in codes(text)[where])) if len(where) else []
