"""Segments: the places where a text may be cut without changing its tokens, and fast look-up of what lies between.

No tokenizer of this package has a token that goes from a character that is not white space to one that is. A text is
therefore a sequence of *segments*, each white space and what follows it up to the next white space, and the tokens of
a text are the ids of its segments. A segment longer than `SEGMENT_LIMIT` is cut at multiples of it. All cuts depend on
the text alone, never on the blocks in which it was read.

Some white space is a control character as well. BERT's tokenizer deletes it, which joins the words on both sides: no
segment begins with such a character, except at the beginning or end of a text.

Kinds that drop white space (words) allow a faster way: `distinct_words` splits at blanks and line ends by pyarrow,
without a Python object per word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SEGMENT_LIMIT = 1 << 16  # characters
MIN_BYTES = 1 << 12  # of text for `distinct_words`; with less, segments are as fast
MAX_BYTES = 1 << 31  # pyarrow's offsets have 32 bits
MAX_DISTINCT = 1 << 18  # distinct words; with more, segments in batches are better

# The white space of Unicode, as the `tokenizers` package has it; Python's \s also contains 0x1C to 0x1F.
CONTROL_SPACE = "\\x0b\\x0c\\x85"
PLAIN_SPACE = "\\t\\n\\r \\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
SPACE = PLAIN_SPACE + CONTROL_SPACE
SEGMENT = re.compile(f"[{SPACE}]*[^{SPACE}]+(?:[{CONTROL_SPACE}][{SPACE}]*[^{SPACE}]+)*|[{SPACE}]+")
SEGMENT_END = re.compile(f"(?<=[^{SPACE}])(?=[{PLAIN_SPACE}])")
JOINS_WORDS = re.compile(f"[{CONTROL_SPACE}]")

UNKNOWN = -1  # in a table of characters
CODE_POINTS = 0x110000


class TextBlock(NamedTuple):
    """A part of a stream of documents."""

    text: str
    ends_document: bool = False


def split_segments(text: str) -> list[str]:
    """Returns the segments of a text, in order."""
    segments = SEGMENT.findall(text)
    if any(len(segment) > SEGMENT_LIMIT for segment in segments):
        return [segment[i : i + SEGMENT_LIMIT] for segment in segments for i in range(0, len(segment), SEGMENT_LIMIT)]
    return segments


def align_blocks(blocks: Iterable[TextBlock]) -> Iterator[TextBlock]:
    """Yields the same documents in blocks that begin and end where segments do."""
    pending: list[str] = []
    size = 0
    for text, ends_document in blocks:
        pending.append(text)
        size += len(text)
        if not ends_document and size < SEGMENT_LIMIT:
            continue
        joined = "".join(pending)
        cut = len(joined) if ends_document else _last_segment_end(joined)
        if cut or ends_document:
            yield TextBlock(joined[:cut], ends_document)
        pending, size = [joined[cut:]], len(joined) - cut
    if size:  # the stream ends within a document
        yield TextBlock("".join(pending))


def _last_segment_end(text: str) -> int:
    """Returns the last position in `text` that ends a segment whatever follows; 0 if there is none."""
    for start in (max(0, len(text) - 64), max(0, len(text) - 4096), 0):
        if ends := [match.start() for match in SEGMENT_END.finditer(text, start)]:
            return ends[-1] + (len(text) - ends[-1]) // SEGMENT_LIMIT * SEGMENT_LIMIT
    return len(text) // SEGMENT_LIMIT * SEGMENT_LIMIT


def batch_blocks(blocks: Iterable[TextBlock], size: int) -> Iterator[list[TextBlock]]:
    """Yields groups of blocks with about `size` characters, and at most `size` / 16 blocks, together."""
    group: list[TextBlock] = []
    total = 0
    for block in blocks:
        group.append(block)
        total += len(block.text)
        if total >= size or len(group) >= size // 16:
            yield group
            group, total = [], 0
    if group:
        yield group


@dataclass(frozen=True)
class DistinctWords:
    """Texts as indices into their distinct words: what lies between blanks, and each line end by itself."""

    words: list[str]
    indices: np.ndarray  # (n,) of every word of all texts, in order
    lengths: np.ndarray  # (texts,) words of each text

    def counts(self) -> dict[str, int]:
        """Returns how often each word occurs."""
        counts = np.bincount(self.indices, minlength=len(self.words))
        return dict(zip(self.words, counts.tolist(), strict=True))


def distinct_words(texts: Sequence[str], limit: int) -> DistinctWords | None:
    """Returns the distinct words of texts; None if a segment may be longer than `limit`, or segments are as fast."""
    encoded = [text.encode() for text in texts]
    data = b"".join(encoded)
    if not MIN_BYTES <= len(data) < MAX_BYTES:
        return None
    import pyarrow as pa
    from pyarrow import compute

    text_ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    octets = np.frombuffer(data, np.uint8)
    line_ends = octets == ord("\n")
    is_edge = np.zeros(len(data) + 1, bool)  # at first, the blank after a word belongs to it
    is_edge[1:] = (octets == ord(" ")) | line_ends
    is_edge[:-1] |= line_ends
    is_edge[0] = is_edge[text_ends] = True
    edges = np.flatnonzero(is_edge).astype(np.int32)
    spaced = pa.StringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), pa.py_buffer(data)).dictionary_encode()
    bare = compute.utf8_rtrim(spaced.dictionary, " ").dictionary_encode()
    if len(bare.dictionary) > MAX_DISTINCT:
        return None
    words = bare.dictionary.to_pylist()
    if JOINS_WORDS.search("".join(words)):
        return None
    indices = bare.indices.to_numpy()[spaced.indices.to_numpy()]
    # A segment has at most the word that ends it, the one before that is not white space, and what lies between them.
    white = compute.or_(compute.utf8_is_space(bare.dictionary), compute.equal(bare.dictionary, ""))
    solid_ends = np.append(0, edges[1:][~white.to_numpy(zero_copy_only=False)[indices]])
    longest = 2 * int(max(np.diff(solid_ends).max(initial=0), len(data) - solid_ends[-1]))  # bytes ≥ characters
    if longest > limit:
        return None
    return DistinctWords(words, indices, np.diff(np.searchsorted(edges[1:], text_ends, side="right"), prepend=0))


def code_points(text: str) -> np.ndarray:
    """Returns the code points of a text (n,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def count_characters(texts: Iterable[str]) -> dict[str, int]:
    """Returns how often each character occurs, in the order of code points."""
    total = np.zeros(CODE_POINTS, dtype=np.int64)
    for text in texts:
        counts = np.bincount(code_points(text))
        total[: len(counts)] += counts
    return {chr(code): int(total[code]) for code in np.flatnonzero(total)}


def byte_token(byte: int) -> str:
    """Returns the token of a byte of an unknown character, such as <0xE2>."""
    return f"<0x{byte:02X}>"


class CharacterTable:
    """Ids of characters by table look-up: equal to the `tokenizers` package, a hundred times as fast.

    Args:
        vocab: Token → id, with `<unk>`, and with all byte tokens or none.
    """

    def __init__(self, vocab: Mapping[str, int]) -> None:
        known = {ord(token): index for token, index in vocab.items() if len(token) == 1}
        # The last entry stands for all code points above the highest known one.
        self.ids = np.full(max(known, default=0) + 2, UNKNOWN, dtype=np.int64)
        self.ids[list(known)] = list(known.values())
        self.unk = vocab["<unk>"]
        has_bytes = byte_token(0) in vocab
        self.byte_ids = np.array([vocab[byte_token(byte)] for byte in range(256)]) if has_bytes else None

    def look_up(self, points: np.ndarray) -> np.ndarray:
        """Returns the id of each code point, or UNKNOWN."""
        ids: np.ndarray = self.ids[np.minimum(points, len(self.ids) - 1)]
        return ids

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns the ids of each text; unknown characters are `<unk>`, or their bytes in UTF-8."""
        if not texts:
            return []
        points = code_points("".join(texts))
        ids = self.look_up(points)
        ends = np.cumsum([len(text) for text in texts])[:-1]
        unknown = ids == UNKNOWN
        if self.byte_ids is None or not unknown.any():
            ids[unknown] = self.unk
            return np.split(ids, ends)
        widths = 1 + ((points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)) * unknown
        data = points[unknown].tobytes().decode("utf-32-le").encode("utf-8")
        is_byte = np.repeat(unknown, widths)
        result = np.empty(len(is_byte), dtype=np.int64)
        result[~is_byte] = ids[~unknown]
        result[is_byte] = self.byte_ids[np.frombuffer(data, dtype=np.uint8)]
        return np.split(result, np.concatenate([[0], np.cumsum(widths)])[ends])

    def unknown(self, text: str) -> list[str]:
        """Returns the characters without an id, each once, in order."""
        points = code_points(text)
        return list(dict.fromkeys(map(chr, points[self.look_up(points) == UNKNOWN])))
