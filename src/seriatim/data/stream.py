"""Streams: files, compressed files and members of archives, and their decoding to text; and places in them.

Nothing is lost or changed silently: the only changes are CRLF to LF and the removal of a byte order mark. A line ends
at `\\n` and nowhere else; U+2028, U+0085 and the separators 0x1C to 0x1E are characters like others. What is read is
within the limits of `core.limits`: a line, a file that is read whole, and what a compressed file decompresses to.
"""

from __future__ import annotations

import codecs
import contextlib
import encodings.aliases
import io
import json
import lzma
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..core import limits
from ..core.errors import Diagnostics, SeriatimError, did_you_mean

HEAD_SIZE = 4096  # bytes of a file read to recognize its format
BLOCK_SIZE = 1 << 24  # bytes of a file that are decoded at once
COMPRESSED = (".gz", ".bz2", ".xz")
SMALL_BYTES = 1 << 26  # that a compressed file may decompress to, whatever its ratio
MIXED_SHARE = 2  # mixed encodings: at least one multi-byte character of UTF-8 per 2 undecodable bytes
PIECE_BYTES = 1 << 20  # of a file that are read at once, if the whole of it is
BYTE_ORDER_MARKS = (  # UTF-32 first: its marks begin like the marks of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8", "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16-be"),
)
# fmt: off
BINARY_EXTENSIONS = frozenset((
    "7z", "a", "avi", "bin", "bmp", "class", "db", "dll", "doc", "docx", "dylib", "epub", "exe", "gif", "h5", "ico",
    "jar", "jpeg", "jpg", "m4a", "mat", "mid", "midi", "mkv", "mo", "mov", "mp3", "mp4", "npy", "npz", "o", "ogg",
    "onnx", "otf", "pdf", "pickle", "pkl", "png", "ppt", "pptx", "pt", "pth", "pyc", "rar", "safetensors", "so",
    "sqlite", "tar", "tgz", "tif", "tiff", "ttf", "wav", "webm", "webp", "whl", "woff", "woff2", "xls", "zip", "zst",
))
# fmt: on
Errors = Literal["strict", "replace"]
# What `zipfile` and the decompressors raise on damaged or encrypted data, besides OSError.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, struct.error)


class Location(NamedTuple):
    """The place of a record in its source, for messages."""

    file: str
    number: int
    unit: str = "line"
    path: str = ""  # of a record inside a JSON file, such as data[0].paragraphs[2]; replaces the number
    lines: tuple[int, ...] = ()  # of the elements of the record, if each has a line of its own

    def __str__(self) -> str:
        if not self.unit and not self.path:
            return self.file  # the record is the whole file
        return f"{self.file}, {self.path or f'{self.unit} {self.number}'}"

    def element(self, index: int) -> Location:
        """Returns the location of an element of the record, such as a word of a sentence."""
        return self._replace(number=self.lines[index], lines=()) if self.lines else self


@dataclass(frozen=True)
class Stream:
    """A file, or a member of an archive, that can be opened any number of times."""

    name: str  # as messages show it
    extension: str  # such as "csv", without that of the compression; "txt" if there is none
    open: Callable[[], io.BufferedIOBase]
    size: int = 0  # bytes, of a compressed file about four times those on disk; 0 if unknown
    stamp: tuple[str, int, int] | None = None  # path, bytes and time of the last change of the file; None in memory

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders and the file of its name."""
        return tuple(part for part in self.name.split("/") if part not in ("", ".")) or ("",)

    @property
    def path(self) -> Path | None:
        """The path of the file, or of the archive that holds it; None in memory."""
        return Path(self.stamp[0]) if self.stamp is not None else None

    def text_blocks(
        self, encoding: str = "utf-8", errors: Errors = "strict", diagnostics: Diagnostics | None = None
    ) -> Iterator[str]:
        """Yields the decoded contents in blocks of some megabytes, without byte order mark and with `\\n` as line end.

        Args:
            encoding: Of the file. A byte order mark takes precedence over UTF-8, which is the default; that of another
                encoding than the user names is an error.
            errors: "strict" raises an error for bytes that cannot be decoded, "replace" reads them as U+FFFD.
            diagnostics: Receives a note about line ends that were changed.
        """
        with reading(self.name), self.open() as file:
            block = file.read(BLOCK_SIZE)
            codec, skipped = self._choose_codec(block, check_encoding(encoding), errors)
            if skipped and not codec.startswith("utf-8") and diagnostics is not None:
                diagnostics.note(f"{self.name}: its byte order mark says that it is {codec.upper()}")
            decoder = codecs.getincrementaldecoder(codec)(errors)
            block, offset, line, pending_return, changed = block[skipped:], skipped, 1, "", 0
            while True:
                following = file.read(BLOCK_SIZE)
                undecoded = len(decoder.getstate()[0])
                try:
                    text = pending_return + decoder.decode(block, final=not following)
                except UnicodeDecodeError as error:
                    raise self.encoding_error(error, codec, line, offset - undecoded) from None
                if "\0" in text:
                    if errors == "strict":
                        raise self.binary_error(line + text.count("\n", 0, text.index("\0")))
                    text = text.replace("\0", "\ufffd")
                offset += len(block)
                pending_return = "\r" if following and text.endswith("\r") else ""  # its \n may come in the next block
                if "\r" in text:
                    text = text.removesuffix(pending_return)
                    changed += text.count("\r\n")
                    text = text.replace("\r\n", "\n")
                line += text.count("\n")
                if text:
                    yield text
                if not following:
                    break
                block = following
        if changed and diagnostics is not None:
            diagnostics.note(f"{self.name}: {changed:,} Windows line ends (CRLF) are read as \\n")

    def lines(
        self, encoding: str = "utf-8", errors: Errors = "strict", diagnostics: Diagnostics | None = None
    ) -> Iterator[str]:
        """Yields the decoded lines with `\\n` at their ends, which the last one may lack; see `text_blocks`."""
        number, rest, size, limit = 1, [""], 0, limits.LINE_CHARACTERS.value  # rest: the parts of an open line
        for text in self.text_blocks(encoding, errors, diagnostics):
            end = text.rfind("\n") + 1
            if end:
                for line in io.StringIO("".join([*rest, text[:end]]), newline="\n"):
                    if len(line) > limit:
                        raise limits.LINE_CHARACTERS.error(len(line), f"{self.name}, line {number}")
                    yield line
                    number += 1
                rest, size = [""], 0
            rest.append(text[end:])
            size += len(rest[-1])
            limits.LINE_CHARACTERS.check(size, f"{self.name}, line {number}")
        if size:
            yield "".join(rest)

    def read_text(self, encoding: str = "utf-8", errors: Errors = "strict") -> str:
        """Returns the decoded contents; see `text_blocks`."""
        parts, size = [], 0
        for text in self.text_blocks(encoding, errors):
            parts.append(text)
            size += len(text)
            limits.FILE_BYTES.check(size, self.name)
        return "".join(parts)

    def read_bytes(self) -> bytes:
        """Returns the contents, decompressed."""
        with reading(self.name), self.open() as file:
            if not isinstance(file, Decompressed):  # which checks what it reads
                limits.FILE_BYTES.check(self.size, self.name)
            return file.read()

    def first_bytes(self, size: int = HEAD_SIZE) -> bytes:
        with reading(self.name), self.open() as file:
            return file.read(size)

    def read_head(self) -> str:
        """Returns the first characters, to recognize a format by."""
        head = self.first_bytes()
        mark, _, codec = find_byte_order_mark(head)
        return head.removeprefix(mark).decode(codec or "utf-8", "replace")

    def is_binary(self) -> bool:
        """Returns whether a file does not hold text, by its extension or by a NUL byte near its beginning."""
        if self.has_binary_extension():
            return True
        try:
            head = self.first_bytes()
        except SeriatimError:
            return False  # the reader of the stream reports the problem
        return b"\0" in head and not find_byte_order_mark(head)[0]

    def has_binary_extension(self) -> bool:
        return self.extension in BINARY_EXTENSIONS

    def is_utf8(self) -> bool:
        """Returns whether the whole file is text in UTF-8."""
        head = self.first_bytes()
        marked = find_byte_order_mark(head)[1] not in ("", "utf-8")
        return not marked and b"\0" not in head and self.count_undecodable("utf-8", limit=1) == 0

    def suggest_encoding(self) -> str | None:
        """Returns an encoding that decodes the whole file, the likeliest first, or None."""
        try:
            head = self.first_bytes(1 << 16)
        except SeriatimError:
            return None
        text = head.decode("utf-8", "replace")
        undecodable = text.count("\ufffd")
        if MIXED_SHARE * (len(text) - len(text.encode("ascii", "ignore")) - undecodable) >= undecodable > 0:
            return None  # characters of UTF-8 are no chance: the file mixes encodings
        asian = sum(byte >= 0x80 for byte in head) * 3 > len(head)
        candidates = (*(("shift-jis", "gb18030", "big5", "euc-kr") if asian else ()), "cp1252", "latin-1")
        return next((name for name in candidates if self.count_undecodable(name, limit=1) == 0), None)

    def count_undecodable(self, encoding: str, limit: int | None = None) -> int:
        """Returns the number of places that cannot be decoded, at most `limit`."""
        count = 0
        with reading(self.name), self.open() as file:
            block = file.read(BLOCK_SIZE)
            mark, _, exact = find_byte_order_mark(block)
            decoder = codecs.getincrementaldecoder(exact or encoding)("replace")
            block = block.removeprefix(mark)
            while True:
                text = decoder.decode(block, final=not block)
                written = "\ufffd".encode(encoding, "ignore")  # replacement characters in the file itself
                count += text.count("\ufffd") - (block.count(written) if written else 0)
                if not block or (limit is not None and count >= limit):
                    return max(count, 0) if limit is None else min(max(count, 0), limit)
                block = file.read(BLOCK_SIZE)

    def _choose_codec(self, head: bytes, codec: str, errors: Errors) -> tuple[str, int]:
        """Returns the codec that decodes the file, and the length of its byte order mark."""
        mark, family, exact = find_byte_order_mark(head)
        codec = "utf-8" if codec == "utf-8-sig" else codec
        if family and codec not in (family, exact, "utf-8") and errors == "strict":
            cause = f"{self.name}: begins with the byte order mark of {family.upper()}, but is read as {codec}"
            raise SeriatimError("data.encoding", cause, f"pass --encoding {family}")
        if family:
            return exact, len(mark)
        return {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(codec, codec), 0

    def encoding_error(self, error: UnicodeDecodeError, codec: str, line: int = 1, offset: int = 0) -> SeriatimError:
        """Returns the error for bytes that cannot be decoded; they begin at this line and byte of the file."""
        if self.is_binary() and not codec.startswith(("utf-16", "utf-32")):
            return self.binary_error(1)  # a program or an image has no other encoding
        line += error.object[: error.start].decode(codec, "ignore").count("\n")
        other = self.suggest_encoding()
        hint = f": --encoding {other} decodes the file" if other else " with --encoding; a file has one encoding only"
        return SeriatimError(
            "data.encoding",
            f"{self.name}, line {line}, byte offset {offset + error.start}: 0x{error.object[error.start]:02x} is not "
            f"{codec} ({error.reason})",
            f"if the text has another encoding, name it{hint}",
        )

    def binary_error(self, line: int) -> SeriatimError:
        cause = f"{self.name}, line {line}: a NUL byte, so this is not plain text"
        return SeriatimError(
            "data.binary", cause, "pass a text file; for UTF-16 without a byte order mark --encoding utf-16-le"
        )


def find_byte_order_mark(head: bytes) -> tuple[bytes, str, str]:
    """Returns the byte order mark at the beginning of a file, its encoding, and that with the order; or nothing."""
    return next((mark for mark in BYTE_ORDER_MARKS if head.startswith(mark[0])), (b"", "", ""))


def check_encoding(encoding: str) -> str:
    """Returns the name that Python has for an encoding of text, or raises an error with the nearest name."""
    try:
        info = codecs.lookup(encoding)
    except (LookupError, ValueError, UnicodeError):
        info = None
    if info is None or not getattr(info, "_is_text_encoding", True):
        names = {name.replace("_", "-") for name in {*encodings.aliases.aliases, *encodings.aliases.aliases.values()}}
        hint = did_you_mean(encoding.lower().replace("_", "-"), names)
        common = "common ones are utf-8, utf-16, cp1252, latin-1, gb18030 and shift-jis"
        cause = f'there is no text encoding "{encoding}"'
        raise SeriatimError("data.encoding-name", cause, hint if hint.startswith("did") else common)
    return info.name


class Decompressed(io.BufferedIOBase):
    """A file that is decompressed while it is read; beyond the limits, reading raises an error.

    Args:
        name: As messages show it.
        file: Yields the decompressed bytes, as many as asked for.
        compressed_size: The bytes that it decompresses.
    """

    def __init__(self, name: str, file: io.BufferedIOBase, compressed_size: int) -> None:
        self.name, self.file, self.compressed_size, self.size = name, file, compressed_size, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            pieces = []
            while piece := self.read(PIECE_BYTES):
                pieces.append(piece)
                limits.FILE_BYTES.check(self.size, self.name)
            return b"".join(pieces)
        data = self.file.read(size)
        self.size += len(data)
        check_decompressed(self.name, self.size, self.compressed_size)
        return data

    def close(self) -> None:
        self.file.close()
        super().close()


def check_decompressed(name: str, size: int, compressed_size: int) -> None:
    """Raises an error if a file decompresses to more than the limits allow."""
    limits.DECOMPRESSED_BYTES.check(size, name)
    if size > SMALL_BYTES:
        limits.COMPRESSION_RATIO.check(size // max(compressed_size, 1), name)


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns the errors of opening and decompressing a file into errors that name it."""
    try:
        yield
    except PermissionError:
        cause = f"{name}: reading it is not permitted"
        raise SeriatimError("data.permission", cause, "check the permissions of the file") from None
    except OSError as error:
        if error.errno is not None:  # else of a decompressor
            cause = f"{name}: cannot be read ({error.strerror})"
            raise SeriatimError("data.unreadable", cause, "check the path") from None
        raise _damaged(name, error) from None
    except (*ZIP_ERRORS, lzma.LZMAError) as error:
        raise _damaged(name, error) from None
    except MemoryError:
        cause = f"{name}: reading it takes more memory than there is"
        raise SeriatimError("data.memory", cause, "pass a smaller file") from None


def _damaged(name: str, error: Exception) -> SeriatimError:
    cause = f"{name}: the compressed file is damaged ({error})"
    return SeriatimError("data.broken", cause, "download or compress it again")


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text; raises ValueError with the reason if it is not one, or exceeds a limit."""
    shortest = sys.int_info.str_digits_check_threshold  # digits that Python limits
    if len(text) > shortest and sys.get_int_max_str_digits() != limits.DIGITS.value:
        sys.set_int_max_str_digits(max(limits.DIGITS.value, shortest))
    try:
        value = json.loads(text)
        brackets = text.count("[") + text.count("{")
        if brackets > 1 and brackets > limits.JSON_DEPTH.value:  # lines with one object are quick
            _check_depth(value, limits.JSON_DEPTH.value)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        limit = limits.JSON_DEPTH
        cause = f"nested more than {limit.value:,} levels deep, the limit of {limit.variable}"
        raise ValueError(cause) from None
    except ValueError:
        limit = limits.DIGITS
        raise ValueError(f"a whole number of more than {limit.value:,} digits, the limit of {limit.variable}") from None
    return value


def _check_depth(value: object, depth: int) -> None:
    """Raises RecursionError if lists and objects are nested more than `depth` levels deep."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        inner = (item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer))
        level = [item for item in inner if isinstance(item, (dict, list))]
        if not level:
            return
    raise RecursionError


def shorten_error(error: BaseException) -> str:
    """Returns the message of another program's error on one line of at most 100 characters."""
    text = " ".join(str(error).split()).encode("utf-8", "backslashreplace").decode() or type(error).__name__
    return text if len(text) <= 100 else text[:100] + " …"


def expand_user(path: str | Path) -> Path:
    """Returns a path with "~" as the home folder; that of an unknown user stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def file_extension(name: str) -> str:
    """Returns the extension of a file name in lower case, without that of a compression; "txt" if it has none."""
    stem, suffix = os.path.splitext(name.lower())
    suffix = os.path.splitext(stem)[1] if suffix in COMPRESSED else suffix
    return suffix.removeprefix(".") or "txt"
