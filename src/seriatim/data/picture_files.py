"""One picture from one file, whatever its bytes are: as 8 bits, upright, in one of a few plain forms.

What a camera, a scanner or a web page may leave in a file is settled here: turned by a note in the file (EXIF), ink
instead of light (CMYK), a palette, transparency (over white), 16 bits (the upper eight of them), several frames (the
first). A file says its size before any pixel is decoded, and one that says too much is refused there; so are those
that break off. Whatever Pillow makes of damaged bytes, here it becomes one error with the file's name.
"""

from __future__ import annotations

import base64
import contextlib
import io
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from seriatim.core.errors import SeriatimError

from .picture_settings import LARGEST, PictureSettings

# No others: some formats that Pillow knows start other programs, or allocate before they are checked.
FORMATS = ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM")
ENDINGS = frozenset({
    ".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".pgm", ".pbm",
})  # fmt: skip
GREY = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
DEEP = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
THUMB = 96  # pixels of a side
ORIENTATION = 0x0112  # of EXIF
TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Form:
    """What all pictures of a source are brought to: what is shown, and a margin around it for moving."""

    height: int
    width: int
    channels: int  # 1 or 3
    fit: str = "crop"
    margin: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of what is shown, colours first."""
        return self.channels, self.height, self.width

    @property
    def stored(self) -> tuple[int, int, int]:
        return self.height + 2 * self.margin, self.width + 2 * self.margin, self.channels


@dataclass(frozen=True)
class Header:
    """What a file says before its pixels: upright size, whether it has colours, whether there are more frames."""

    height: int
    width: int
    grey: bool
    animated: bool


def is_picture(path: str | Path) -> bool:
    """Whether a file is a picture, by its name."""
    return Path(path).suffix.lower() in ENDINGS


def read_picture(path: Path, settings: PictureSettings, form: Form | None = None) -> np.ndarray:
    """A picture (H,W,C) of 8 bits: in its own size, or in that of a form, its margin included."""
    with quiet():
        return decode(path, settings, form)


def read_header(path: Path, settings: PictureSettings) -> Header:
    with _opened(path, settings) as picture:
        height, width = _upright(picture)
        return Header(height, width, picture.mode in GREY, bool(getattr(picture, "is_animated", False)))


def decode(path: Path, settings: PictureSettings, form: Form | None = None) -> np.ndarray:
    """As `read_picture`, for those who work in several threads and have called `quiet` before."""
    with _opened(path, settings) as picture:
        if form is None:
            grey = settings.colours == "grey" or (settings.colours == "auto" and picture.mode in GREY)
        else:
            grey = form.channels == 1
            _draft(picture, form)
        picture.load()
        turn = picture.getexif().get(ORIENTATION, 1)
        plain = _plain(picture.transpose(TURNED[turn]) if turn in TURNED else picture, grey)
        if form is not None:
            plain = _resized(plain, form)
        block = np.asarray(plain).reshape(plain.height, plain.width, 1 if grey else 3)
        return block if form is None else _framed(block, form)


def fitted(picture: np.ndarray, form: Form) -> np.ndarray:
    """A picture in memory (H,W) or (H,W,C), brought to a form."""
    if picture.dtype != np.uint8 or not (picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] in (1, 3, 4))):
        cause = f"an array of {picture.dtype} of the shape {picture.shape} is no picture"
        raise SeriatimError("picture.array", cause, "give 8 bits (uint8) as (height, width) or (height, width, 3)")
    if not picture.size:
        raise SeriatimError("picture.array", "a picture without pixels", "give at least one pixel")
    flat = picture[..., 0] if picture.ndim == 3 and picture.shape[2] == 1 else picture
    plain = _resized(_plain(Image.fromarray(flat), form.channels == 1), form)
    return _framed(np.asarray(plain).reshape(plain.height, plain.width, form.channels), form)


def shown_box(
    box: tuple[float, float, float, float], size: tuple[int, int], form: Form
) -> tuple[int, int, int, int] | None:
    """Where a box (left, top, right, bottom) of a picture (height, width) is in what is shown of it, if it is."""
    wanted, middle = _scaled(size, form)
    found = []
    for axis, (first, last) in enumerate(((box[1], box[3]), (box[0], box[2]))):
        aside = (size[axis] - middle[axis]) / 2
        added = (form.stored[axis] - wanted[axis]) // 2 - form.margin
        low, high = ((place - aside) * wanted[axis] / middle[axis] + added for place in (first, last))
        most = (form.height, form.width)[axis]
        found.append((max(math.floor(low + 1e-6), 0), min(math.ceil(high - 1e-6), most)))
    (top, bottom), (left, right) = found
    return (left, top, right, bottom) if left < right and top < bottom else None


def thumbnail(picture: np.ndarray, most: int = THUMB) -> str:
    """A picture (H,W,C) of 8 bits as base64 of a PNG, small ones as they are, none larger than some pixels a side."""
    small = Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)
    small.thumbnail((most, most))
    held = io.BytesIO()
    small.save(held, "PNG")
    return base64.b64encode(held.getvalue()).decode("ascii")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block Pillow does not talk about what it finds odd. Not to be entered in several threads at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _opened(path: Path, settings: PictureSettings) -> Iterator[Image.Image]:
    """The file with its header read, and no more; all that goes wrong with it becomes one kind of error."""
    try:
        with Image.open(path, formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > settings.megapixels * 1e6:
                raise _too_large(path, f"has {width:,} × {height:,} pixels", settings)
            if not width * height:
                raise _broken(path, "holds no pixels")
            yield picture
    except SeriatimError:
        raise
    except Image.DecompressionBombError:
        cause = f"{path}: has more than {LARGEST} megapixels"
        raise SeriatimError("picture.large", cause, "make it smaller, or leave it out") from None
    except Image.UnidentifiedImageError:
        what = "is no picture of a known kind" if path.stat().st_size else "is empty"
        raise _broken(path, what) from None
    except FileNotFoundError:
        raise SeriatimError("picture.missing", f"{path}: there is no such file", "check the path") from None
    except (PermissionError, IsADirectoryError) as error:
        raise SeriatimError(
            "picture.unreadable", f"{path}: {error.strerror}", "check the path and its rights"
        ) from None
    except Exception as error:  # the many ways in which decoders of eight formats fail at damaged bytes
        raise _broken(path, f"cannot be read ({_reason(error)})") from None


def _too_large(path: Path, what: str, settings: PictureSettings) -> SeriatimError:
    cause = f"{path}: {what}, more than {settings.megapixels:g} megapixels"
    return SeriatimError("picture.large", cause, "make it smaller, or raise data.pictures.megapixels")


def _broken(path: Path, what: str) -> SeriatimError:
    return SeriatimError("picture.broken", f"{path}: {what}", "mend or remove the file")


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory"
    text = " ".join(str(error).split())
    return (text if len(text) <= 100 else text[:100] + " …") or type(error).__name__


def _upright(picture: Image.Image) -> tuple[int, int]:
    """Height and width as it is to be looked at."""
    width, height = picture.size
    return (width, height) if picture.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8) else (height, width)


# ── colours ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _plain(picture: Image.Image, grey: bool) -> Image.Image:
    """In 8 bits, grey or with colours, nothing transparent."""
    if picture.mode in DEEP:
        picture = Image.fromarray(_eight_bits(np.asarray(picture), picture.mode))
    if picture.has_transparency_data:
        clear = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    elif picture.mode not in ("L", "RGB"):
        picture = picture.convert("L" if picture.mode in GREY else "RGB")
    return picture.convert("L" if grey else "RGB")


def _eight_bits(values: np.ndarray, mode: str) -> np.ndarray:
    """Of deeper pictures: the range of 16 bits becomes that of 8; numbers with fractions go from 0 to 1."""
    low, high = float(values.min()), float(values.max())
    fractions = mode == "F" and high <= 1
    if not (low >= 0 and high <= 65_535):
        raise ValueError(f"its values go from {low:g} to {high:g}, beyond 16 bits")
    return np.round(values.astype(np.float32) * np.float32(255 if fractions else 255 / 65_535)).astype(np.uint8)


# ── size ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _scaled(size: tuple[int, int], form: Form) -> tuple[tuple[int, int], tuple[float, float]]:
    """Of a picture (height, width): the size it gets before anything is added, and how much of it in the middle gets
    that size. What is not shown is cut off first: a line of pixels may be as long as it likes."""
    height, width = size
    if size == (form.height, form.width) or form.fit == "stretch":
        return (form.height, form.width), (height, width)
    if form.fit == "pad":
        scale = min(form.height / height, form.width / width)
        tall, wide = (
            min(max(round(length * scale), 1), most) for length, most in ((height, form.height), (width, form.width))
        )
        return (tall, wide), (height, width)
    tall, wide, _ = form.stored
    scale = max(tall / height, wide / width)
    return (tall, wide), (min(tall / scale, height), min(wide / scale, width))


def _draft(picture: Image.Image, form: Form) -> None:
    """Has a JPEG decoded at a half, a quarter or an eighth where that is still as large as wanted."""
    upright = _upright(picture)
    wanted, middle = _scaled(upright, form)
    tall, wide = (math.ceil(size * want / part) for size, want, part in zip(upright, wanted, middle, strict=True))
    lying = upright != picture.size[::-1]
    picture.draft("L" if form.channels == 1 else None, (tall, wide) if lying else (wide, tall))


def _resized(picture: Image.Image, form: Form) -> Image.Image:
    (tall, wide), (height, width) = _scaled(picture.size[::-1], form)
    if (wide, tall) == picture.size:
        return picture
    left, top = (picture.width - width) / 2, (picture.height - height) / 2
    box = (left, top, left + width, top + height)
    return picture.resize((wide, tall), Image.Resampling.BILINEAR, box, reducing_gap=2.0)


def _framed(block: np.ndarray, form: Form) -> np.ndarray:
    """With its edge repeated all around, up to the size of the form."""
    tall, wide, _ = form.stored
    down, right = tall - block.shape[0], wide - block.shape[1]
    around = ((down // 2, down - down // 2), (right // 2, right - right // 2), (0, 0))
    return np.pad(block, around, mode="edge") if down or right else block
