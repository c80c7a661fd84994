"""Values of charts: rows of numbers, images, texts with highlighted spans, and cells of tables with their format."""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Self, TypeVar, get_args

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, GetPydanticSchema, model_validator
from pydantic.dataclasses import dataclass

from ..core.metrics import METRICS, finite, format_metric
from ..core.text import format_number

STRICT = ConfigDict(extra="forbid")
T = TypeVar("T")


def finite_or_none(value: object) -> object:
    """Returns None for a float that JSON cannot hold, everything else unchanged; numpy scalars become plain."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def png_base64(text: str) -> str:
    """Returns the text if it is base64 of a PNG; raises ValueError otherwise."""
    try:
        is_png = base64.b64decode(text, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    except binascii.Error:
        is_png = False
    if not is_png:
        raise ValueError("the image is not base64 of a PNG")
    return text


# A field that accepts any sequence and stores it as a tuple
AnySequence = Annotated[Sequence[T], GetPydanticSchema(lambda kind, handler: handler(tuple[get_args(kind)[0], ...]))]  # type: ignore[misc]
Row = Annotated[
    AnySequence[float | None],
    BeforeValidator(lambda values: tuple(map(finite_or_none, values)) if isinstance(values, Iterable) else values),
]  # None for a missing value
Matrix = AnySequence[Row]
Labels = AnySequence[str]
Point = tuple[float, float]
Png = Annotated[str, AfterValidator(png_base64)]


@dataclass(frozen=True, config=STRICT)
class Image:
    """An image as base64 of a PNG, with a caption: a cell of a table or a part of an `ImageGrid`."""

    png: Png
    caption: str = ""

    @classmethod
    def from_array(cls, pixels: np.ndarray, caption: str = "") -> Self:
        """Returns the image of an array (height, width) or (height, width, 1 or 3) of uint8."""
        from PIL import Image as PillowImage

        file = io.BytesIO()
        PillowImage.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(file, "PNG")
        return cls(base64.b64encode(file.getvalue()).decode("ascii"), caption)


@dataclass(frozen=True, config=STRICT)
class Span:
    """Characters from `start` to before `end` of a text, such as an entity or an answer; `wrong` marks an error."""

    start: int
    end: int
    label: str = ""
    wrong: bool = False


@dataclass(frozen=True, config=STRICT)
class SpanText:
    """A text with highlighted spans, which are in order and do not overlap."""

    text: str
    spans: AnySequence[Span] = ()

    @model_validator(mode="after")
    def check_spans(self) -> Self:
        """Raises ValueError if spans overlap or leave the text."""
        ends = [0, *(bound for span in self.spans for bound in (span.start, span.end)), len(self.text)]
        if ends != sorted(ends):
            raise ValueError(f"spans of a text of {len(self.text)} characters overlap or leave it")
        return self

    def pieces(self) -> list[tuple[str, Span | None]]:
        """Returns the text in pieces, each with its span or None."""
        pieces: list[tuple[str, Span | None]] = []
        end = 0
        for span in self.spans:
            pieces += [(self.text[end : span.start], None), (self.text[span.start : span.end], span)]
            end = span.end
        return [(text, span) for text, span in [*pieces, (self.text[end:], None)] if text]

    def __str__(self) -> str:
        """The text with its spans in brackets: "[Ada: PER] wrote"."""
        return "".join(
            text if span is None else f"[{text}{f': {span.label}' if span.label else ''}]"
            for text, span in self.pieces()
        )


Cell = Annotated[str | bool | int | float | SpanText | Image | None, BeforeValidator(finite_or_none)]


def format_column(name: str, cells: Sequence[object]) -> list[str]:
    """Returns the cells of a column as texts.

    A column named like a metric, by its name or its label, has that metric's format; other numbers of a column have
    the same decimals: none if all are integers, else as many as give the largest four digits.
    """
    metric = next((key for key, known in METRICS.items() if name.lower() in (key, known.label.lower())), "")
    numbers = [abs(number) for cell in cells if (number := finite(cell)) is not None]
    largest, smallest = max(numbers, default=0.0), min((number for number in numbers if number), default=0.0)
    fractions = any(not float(number).is_integer() for number in numbers)
    decimals = max(0, 3 - max(0, math.floor(math.log10(largest)))) if fractions else 0
    uniform = largest < 1e6 and (not fractions or smallest >= 10**-decimals)

    def text(cell: object) -> str:
        if cell is None or isinstance(cell, str | bool | SpanText):
            return "" if cell is None and not numbers else format_number(cell)
        if isinstance(cell, Image):
            return cell.caption or "(image)"
        if metric:
            return format_metric(metric, cell)
        if finite(cell) is None or not uniform:
            return format_number(cell, 4)
        return f"{cell:,.{decimals}f}".replace("-", "−")

    return [text(cell) for cell in cells]


def is_numeric(cells: Sequence[object]) -> bool:
    """Returns whether a column holds numbers and missing values only."""
    return bool(cells) and all(cell is None or finite(cell) is not None for cell in cells)
