"""From bytes to text, in blocks: no character is lost or changed without a word about it.

The only change ever made is CRLF to LF (and a byte-order mark taken off), and both are counted and told.
A line ends at "\\n" and nowhere else: U+2028, U+0085 and the separators 0x1C to 0x1E are characters like others.
"""

from __future__ import annotations

import codecs
import encodings.aliases
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from seriatim.core.errors import SeriatimError, did_you_mean

BLOCK = 1 << 20
LONG_LINE = 1 << 20

BOMS = [  # the marks of UTF-32 begin like those of UTF-16, so they are looked at first
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8", "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16-be"),
]


@dataclass(frozen=True)
class Raw:
    """One stream of bytes: a file, an unpacked file, or a member of an archive."""

    name: str
    kind: str  # "text", "jsonl", "csv", "tsv" or "parquet"
    open: Callable[[], BinaryIO]


def refuse(error: SeriatimError) -> None:
    raise error


@dataclass
class Facts:
    """What was met while reading.

    `trouble` decides about what is wrong: raise, as training does, or count and go on, as the doctor does.
    """

    trouble: Callable[[SeriatimError], None] = refuse
    notes: list[str] = field(default_factory=list)
    characters: int = 0
    broken: int = 0  # places that could not be decoded
    crlf: int = 0
    boms: int = 0
    blank: bool = True
    empty: int = 0
    longest: tuple[int, str, int] = (0, "", 0)  # characters, file, line; only lines longer than a block are sure


def check_encoding(encoding: str) -> str:
    """The codec's own name, or an error with the nearest name."""
    try:
        info = codecs.lookup(encoding)
    except (LookupError, ValueError, UnicodeError):
        info = None
    if info is None or not getattr(info, "_is_text_encoding", True):
        names = {name.replace("_", "-") for name in {*encodings.aliases.aliases, *encodings.aliases.aliases.values()}}
        hint = did_you_mean(encoding.lower().replace("_", "-"), names)
        raise SeriatimError(
            "data.encoding-name",
            f'there is no text encoding "{encoding}"',
            hint if hint.startswith("did") else "utf-8, utf-16, cp1252, latin-1, gb18030 and shift-jis are common ones",
        )
    return info.name


def decode(raw: Raw, blocks: Iterable[bytes], encoding: str, facts: Facts) -> Iterator[str]:
    """The text of `raw` in pieces of at most a block, with "\\n" as the line end."""
    line = 1
    since = 0  # characters since the last line end
    for text in _normalised(_decoded(raw, blocks, encoding, facts), facts):
        if "\0" in text:
            facts.trouble(_nul(raw, line + text.count("\n", 0, text.index("\0"))))
        first = text.find("\n")
        _measure(facts, raw.name, line, since + (len(text) if first < 0 else first))
        since = since + len(text) if first < 0 else len(text) - 1 - text.rfind("\n")
        line += text.count("\n")
        yield text


def normalise(text: str, facts: Facts) -> str:
    """The same for a text that is already in memory, such as a field of a table."""
    return "".join(_normalised([text], facts))


def suggest(raw: Raw) -> str | None:
    """An encoding that decodes the whole stream, the likeliest first."""
    try:
        with raw.open() as file:
            head = file.read(1 << 16)
        high = sum(byte >= 0x80 for byte in head)
        single = ["cp1252", "latin-1"]
        asian = ["shift_jis", "gb18030", "big5", "euc_kr"]
        names = asian + single if high * 3 > len(head) else single
        return next((name.replace("_", "-") for name in names if decodes(raw, name)), None)
    except (OSError, EOFError, zlib.error):  # a damaged file; reading it says so
        return None


def decodes(raw: Raw, codec: str) -> bool:
    """Whether the whole stream is text in this encoding."""
    decoder = codecs.getincrementaldecoder(codec)()
    try:
        with raw.open() as file:
            while block := file.read(BLOCK):
                decoder.decode(block)
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        return False
    return True


def _decoded(raw: Raw, blocks: Iterable[bytes], encoding: str, facts: Facts) -> Iterator[str]:
    waiting = iter(blocks)
    head = next(waiting, b"")
    codec, skip = _begin(raw, head, check_encoding(encoding), facts)
    make = codecs.getincrementaldecoder(codec)
    decoder = make()
    carry, consumed, line = b"", skip, 1
    for block, last in _flagged(head[skip:], waiting):
        data = carry + block
        held = len(decoder.getstate()[0])
        carry = b""
        try:
            text = decoder.decode(data, last)
        except UnicodeDecodeError as error:
            facts.trouble(_broken(raw, error, codec, line, consumed - held))
            # Only the doctor comes here: it goes on with U+FFFD in the place of what is broken.
            loose = make("replace")
            text = loose.decode(error.object, last)
            facts.broken += text.count("\ufffd") - _marks(error.object, codec)
            decoder, carry = make(), loose.getstate()[0]
        consumed += len(data) - len(carry)
        line += text.count("\n")
        if text:
            yield text


def _marks(data: bytes, codec: str) -> int:
    """How many U+FFFD the bytes themselves hold."""
    mark = "\ufffd".encode(codec, "ignore")
    return data.count(mark) if mark else 0


def _begin(raw: Raw, head: bytes, codec: str, facts: Facts) -> tuple[str, int]:
    """The codec that really decodes the stream, and how many bytes of mark to leave out."""
    mark, family, exact = next((bom for bom in BOMS if head.startswith(bom[0])), (b"", "", ""))
    wanted = "utf-8" if codec == "utf-8-sig" else codec
    if family and wanted not in (family, exact):
        facts.trouble(
            SeriatimError(
                "data.encoding",
                f"{raw.name}: begins with the byte-order mark of {family.upper()}, but is read as {wanted}",
                f"pass --encoding {family}",
            )
        )
        return exact, len(mark)
    if family == "utf-8":
        facts.boms += 1
    if family:
        return exact, len(mark)
    return {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(wanted, wanted), 0


def _flagged(head: bytes, rest: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each block with whether it is the last, which the decoder must know to find a cut-off character."""
    for following in rest:
        yield head, False
        head = following
    yield head, True


def _normalised(texts: Iterable[str], facts: Facts) -> Iterator[str]:
    """CRLF becomes LF. A CR at the end of a piece waits for the next, where its LF may be."""
    held = ""
    for text in texts:
        text = held + text
        held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix(held)
        count = text.count("\r\n") if "\r" in text else 0
        facts.crlf += count
        if text:
            yield text.replace("\r\n", "\n") if count else text
    if held:
        yield held


def _measure(facts: Facts, name: str, line: int, length: int) -> None:
    if length > facts.longest[0]:
        facts.longest = (length, name, line)


def _broken(raw: Raw, error: UnicodeDecodeError, codec: str, line: int, start: int) -> SeriatimError:
    before = error.object[: error.start].decode(codec, "ignore")
    byte = error.object[error.start]
    other = suggest(raw)
    remedy = f"if the text is of another encoding, name it: --encoding {other} decodes the file" if other else ""
    return SeriatimError(
        "data.encoding",
        f"{raw.name}, line {line + before.count(chr(10))}, byte offset {start + error.start}: "
        f"0x{byte:02x} is not {codec.upper()} ({error.reason})",
        remedy or "name the encoding with --encoding",
    )


def _nul(raw: Raw, line: int) -> SeriatimError:
    return SeriatimError(
        "data.binary",
        f"{raw.name}, line {line}: a NUL byte, so this is not plain text",
        "give a text file; for UTF-16 without a byte-order mark pass --encoding utf-16-le",
    )
