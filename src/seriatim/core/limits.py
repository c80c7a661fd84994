"""Limits: how large what is read from files, options and configurations may be, each declared once.

A limit protects from files that are damaged or made to do harm: a few bytes that claim 10**12 numbers, an archive that
decompresses to terabytes. The defaults are far above what data sets need. The environment variable of a limit changes
it for every command alike: SERIATIM_MAX_COLUMNS=1M.

    COLUMNS.check(len(names), stream.name)

To add a limit, declare a constant here; `seriatim doctor` and the docs list it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .errors import SeriatimError
from .text import format_whole


@dataclass(frozen=True)
class Limit:
    """A largest amount.

    Args:
        name: The environment variable is SERIATIM_MAX_ and this.
        default: Unless the environment variable is set.
        unit: What is counted, in the plural.
        description: What it limits, for the documentation.
    """

    name: str
    default: int
    unit: str
    description: str

    @property
    def variable(self) -> str:
        return f"SERIATIM_MAX_{self.name}"

    @property
    def value(self) -> int:
        """The largest amount that is accepted."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        from .config import parse_count  # imports pydantic

        value = parse_count(text)
        if not isinstance(value, int) or value < 1:
            cause = f'the environment variable {self.variable} is "{text[:40]}", not a number of {self.unit}'
            raise SeriatimError("limit.value", cause, f"write a whole number such as {self.default} or 2M, or unset it")
        return value

    def check(self, amount: float, subject: str) -> None:
        """Raises an error if an amount is above the limit; `subject` begins the message, such as a file and line."""
        if amount > self.value:
            raise self.error(amount, subject)

    def error(self, amount: float, subject: str) -> SeriatimError:
        """Returns the error for an amount above the limit."""
        cause = f"{subject}: {format_whole(amount)} {self.unit}, but the limit is {format_whole(self.value)}"
        remedy = f"correct it; or set the environment variable {self.variable} to a larger number"
        return SeriatimError("limit.exceeded", cause, remedy)


DECOMPRESSED_BYTES = Limit(
    "DECOMPRESSED_BYTES", 1 << 36, "bytes when decompressed", "a compressed file, or all files of an archive"
)
COMPRESSION_RATIO = Limit(
    "COMPRESSION_RATIO", 200, "times the bytes of the compressed file", "what decompresses to more than 64 MiB"
)
FILE_BYTES = Limit(
    "FILE_BYTES", 1 << 34, "bytes", "a file that is read into memory as a whole: arrays, JSON, workbooks, music"
)
LINE_CHARACTERS = Limit("LINE_CHARACTERS", 1 << 28, "characters in a line", "a line of text, or a row of CSV")
TOKEN_IDS = Limit("TOKEN_IDS", 10_000_000, "token ids", "a tokenizer")
TOKENIZER_STEPS = Limit("TOKENIZER_STEPS", 200, "steps", "the normalizers, splits and decoders of a tokenizer")
TEXT_GROWTH = Limit("TEXT_GROWTH", 1_000, "times as long a text", "what the replacements of a tokenizer make of a text")
FILES = Limit("FILES", 10_000_000, "files", "a folder or an archive")
COLUMNS = Limit("COLUMNS", 100_000, "columns", "a table, or the members of a JSON object")
CELLS = Limit("CELLS", 500_000_000, "cells", "all rows of a table that is read into memory, or of its Parquet file")
JSON_DEPTH = Limit("JSON_DEPTH", 100, "levels of nested lists and objects", "JSON")
DIGITS = Limit("DIGITS", 4_300, "digits of a whole number", "JSON")
LABELS = Limit("LABELS", 1_000_000, "different labels", "the classes of a model")
IMAGE_PIXELS = Limit("IMAGE_PIXELS", 178_000_000, "pixels", "an image, whatever `task.images.max_megapixels` is")
MIDI_EVENTS = Limit("MIDI_EVENTS", 1_000_000, "events, by its size", "a MIDI file")
FRAMES = Limit("FRAMES", 1_000_000, "frames", "a piece of music")
LIMITS = tuple(value for value in list(globals().values()) if isinstance(value, Limit))
