"""Images as data: the kind of their cells, decoding, the store of decoded images, and augmentation.

    IMAGE          the kind: paths, encoded bytes or uint8 arrays (H,W) or (H,W,C)
    ImageSettings  how images are read and augmented
    read_image     one file as an array of one layout                                     decode.py
    load_images    many files, decoded once and mapped from the cache                     store.py
    Images         rows of one size: batches, random crops and flips                      batches.py

Pillow is imported by decode.py only, which the others import when the first image is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...core.errors import SeriatimError
from ..kinds import KINDS, MOST_SPECIFIC_FIRST, TEXT, Cell, Kind
from ..settings import Fit, ImageSettings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


EXTENSIONS = frozenset(  # of `decode.FORMATS`
    ("png", "apng", "jpg", "jpeg", "jpe", "jfif", "gif", "tif", "tiff", "bmp", "webp", "ppm", "pgm", "pbm")
)
ImageValue: TypeAlias = "Path | bytes | np.ndarray"  # a file, an encoded image, or pixels (H,W) or (H,W,C) of uint8


@dataclass(frozen=True)
class ImageLayout:
    """The size and channels that all images are brought to, with a margin around the visible part for random shifts."""

    height: int
    width: int
    channels: int  # 1 or 3
    fit: Fit = "crop"
    margin: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the visible part."""
        return self.channels, self.height, self.width

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Height, width and channels with the margin."""
        return self.height + 2 * self.margin, self.width + 2 * self.margin, self.channels


class PixelSequence(NamedTuple):
    """A gray image of an array file: of the kind "list of numbers" it is the sequence of its pixels, from 0 to 1."""

    pixels: np.ndarray  # (H,W) of uint8

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        import numpy as np

        return (self.pixels.reshape(-1, 1) / np.float32(255)).astype(dtype, copy=False)


def is_image_name(name: str | Path) -> bool:
    """Returns whether a file is an image, by its extension."""
    return os.path.splitext(name)[1].lower().removeprefix(".") in EXTENSIONS


def _parse_image(cell: Cell) -> ImageValue:
    """Returns a path, encoded bytes or pixels, from these, from a Pillow image, or from a record of `datasets`."""
    if isinstance(cell, Mapping) and {"bytes", "path"} >= cell.keys():
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, (str, Path)):
        if not is_image_name(str(cell).strip()):
            raise ValueError("not the name of an image file")
        from ..stream import expand_user

        return expand_user(str(cell).strip())
    if isinstance(cell, bytes) and cell:
        return cell
    if isinstance(cell, PixelSequence):
        return cell.pixels
    import numpy as np

    if hasattr(cell, "getbands") and not isinstance(cell, np.ndarray):  # an image of Pillow
        cell = np.asarray(cell.convert("L" if cell.mode in ("1", "L", "I;16") else "RGB"))
    if not isinstance(cell, np.ndarray) or cell.dtype != np.uint8 or not cell.size:
        raise ValueError("not an image")
    if cell.ndim == 2 or (cell.ndim == 3 and cell.shape[2] in (1, 3, 4)):
        return cell
    raise ValueError("not an image")


def _key(value: ImageValue) -> Hashable:
    """Returns a hash of the contents; a file that cannot be read is compared by its name."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=16).hexdigest()
    if isinstance(value, bytes):
        return hashlib.blake2b(value, digest_size=16).hexdigest()
    try:
        status = value.stat()
        return _file_key(value, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError):  # also a name that no file can have
        return str(value)


@lru_cache(maxsize=1 << 20)
def _file_key(path: Path, size: int, changed: int) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _examine(values: Sequence[ImageValue]) -> tuple[list[str], dict[int, SeriatimError]]:
    """Returns the sizes and color modes of images for the data check, and the errors of unreadable images."""
    from .decode import Header  # imports Pillow
    from .store import choose_layout, read_headers

    results = read_headers(values)
    headers = [header for header in results if isinstance(header, Header)]
    errors = {row: header for row, header in enumerate(results) if isinstance(header, SeriatimError)}
    if not headers:
        return [], errors
    by_area = sorted(headers, key=lambda header: header.height * header.width)
    chosen = {"smallest": by_area[0], "median": by_area[len(by_area) // 2], "largest": by_area[-1]}
    sizes = ", ".join(f"{name} {header.width} × {header.height}" for name, header in chosen.items())
    gray = sum(header.gray for header in headers)
    lines = [f"{len(headers):,} images: {sizes} pixels", *choose_layout(headers, ImageSettings())[1]]
    if 0 < gray < len(headers):
        lines.append(f"{gray:,} are gray, the others in color: all are read in color")
    return lines, errors


IMAGE = Kind("image", _parse_image, key=_key, is_path=True, examine=_examine)
KINDS[IMAGE.name] = IMAGE
if IMAGE not in MOST_SPECIFIC_FIRST:
    MOST_SPECIFIC_FIRST.insert(MOST_SPECIFIC_FIRST.index(TEXT), IMAGE)
