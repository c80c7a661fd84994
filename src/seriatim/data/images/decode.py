"""One image from one file, as 8-bit gray or RGB pixels, upright.

Handles what cameras, scanners and web pages leave in files: EXIF orientation, CMYK, palettes, transparency (over
white), 16 bits (scaled to 8), several frames (the first). The size is read before any pixel is decoded, and too large
an image is refused there; so are truncated files. Whatever Pillow raises on damaged bytes becomes one error with the
name of the file.
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

from ...core import limits
from ...core.errors import SeriatimError
from ..settings import ImageSettings
from ..stream import shorten_error
from . import ImageLayout, ImageValue

# No others: some formats that Pillow knows start other programs, or allocate memory before they are checked.
FORMATS = ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM")
DEEP_MODES = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})  # more than 8 bits
GRAY_MODES = DEEP_MODES | {"1", "L", "LA", "La"}
THUMBNAIL_SIZE = 96  # pixels of a side
ORIENTATION_TAG = 0x0112  # of EXIF
TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
DEFAULT_SETTINGS = ImageSettings()


@dataclass(frozen=True)
class Header:
    """The header of an image file: the upright size, whether it is gray, whether it has several frames."""

    height: int
    width: int
    gray: bool
    animated: bool


def read_header(image: ImageValue, settings: ImageSettings = DEFAULT_SETTINGS) -> Header:
    """Returns the header of a file, of encoded bytes or of pixels."""
    if isinstance(image, np.ndarray):
        height, width = image.shape[:2]
        return Header(height, width, image.ndim == 2 or image.shape[2] == 1, animated=False)
    with _open(image, settings) as opened:
        height, width = _upright_size(opened)
        return Header(height, width, opened.mode in GRAY_MODES, bool(getattr(opened, "is_animated", False)))


def read_image(
    image: ImageValue, settings: ImageSettings = DEFAULT_SETTINGS, layout: ImageLayout | None = None
) -> np.ndarray:
    """Returns an image (H,W,C) of uint8: in its own size, or in that of a layout, with the layout's margin."""
    with quiet():
        return decode(image, settings, layout)


def decode(
    image: ImageValue, settings: ImageSettings = DEFAULT_SETTINGS, layout: ImageLayout | None = None
) -> np.ndarray:
    """Returns the same as `read_image`, for callers that use several threads and have entered `quiet` before."""
    if isinstance(image, np.ndarray):
        return image if layout is None else fit_array(image, layout)
    with _open(image, settings) as opened:
        if layout is None:
            gray = settings.color == "gray" or (settings.color == "auto" and opened.mode in GRAY_MODES)
        else:
            gray = layout.channels == 1
            _draft(opened, layout)
        opened.load()
        orientation = opened.getexif().get(ORIENTATION_TAG, 1)
        upright = opened.transpose(TRANSPOSITIONS[orientation]) if orientation in TRANSPOSITIONS else opened
        plain = _to_8_bits(upright, gray)
        if layout is not None:
            plain = _resize(plain, layout)
        pixels = np.asarray(plain).reshape(plain.height, plain.width, 1 if gray else 3)
        return pixels if layout is None else _pad(pixels, layout)


def fit_array(pixels: np.ndarray, layout: ImageLayout) -> np.ndarray:
    """Returns pixels (H,W) or (H,W,C) of uint8 in the size and channels of a layout, with its margin."""
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3, 4))):
        cause = f"an array of {pixels.dtype} with the shape {pixels.shape} is not an image"
        raise SeriatimError("image.array", cause, "pass uint8 of the shape (height, width) or (height, width, 3)")
    if not pixels.size:
        raise SeriatimError("image.array", "an image without pixels", "pass at least one pixel")
    flat = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    plain = _resize(_to_8_bits(Image.fromarray(flat), layout.channels == 1), layout)
    return _pad(np.asarray(plain).reshape(plain.height, plain.width, layout.channels), layout)


def visible_box(
    box: tuple[float, float, float, float], size: tuple[int, int], layout: ImageLayout
) -> tuple[int, int, int, int] | None:
    """Returns where a box (left, top, right, bottom) of an image is in the visible part of its layout; None if outside.

    `size` is height and width of the image.
    """
    target_size, center_size = _target_size(size, layout)
    bounds = []
    for axis, (first, last) in enumerate(((box[1], box[3]), (box[0], box[2]))):
        cropped = (size[axis] - center_size[axis]) / 2
        padding = (layout.stored_shape[axis] - target_size[axis]) // 2 - layout.margin
        low, high = ((edge - cropped) * target_size[axis] / center_size[axis] + padding for edge in (first, last))
        limit = (layout.height, layout.width)[axis]
        bounds.append((max(math.floor(low + 1e-6), 0), min(math.ceil(high - 1e-6), limit)))
    (top, bottom), (left, right) = bounds
    return (left, top, right, bottom) if left < right and top < bottom else None


def thumbnail(pixels: np.ndarray, size: int = THUMBNAIL_SIZE) -> str:
    """Returns pixels (H,W,C) of uint8 as a PNG in base64, no side larger than `size`."""
    small = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    small.thumbnail((size, size))
    buffer = io.BytesIO()
    small.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the warnings of Pillow. Must not be entered in several threads at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Opening


@contextlib.contextmanager
def _open(image: Path | bytes, settings: ImageSettings) -> Iterator[Image.Image]:
    """Opens a file and reads its header; whatever goes wrong in the block becomes a `SeriatimError`."""
    name = str(image) if isinstance(image, Path) else "an image in memory"
    most = limits.IMAGE_PIXELS.value
    Image.MAX_IMAGE_PIXELS = max(most // 2, 1)  # Pillow refuses twice as many
    try:
        with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image, formats=FORMATS) as opened:
            width, height = opened.size
            limits.IMAGE_PIXELS.check(width * height, name)
            if width * height > settings.max_megapixels * 1e6:
                cause = f"{name} has {width:,} × {height:,} pixels, more than {settings.max_megapixels:g} megapixels"
                raise SeriatimError("image.large", cause, "reduce it, or raise task.images.max_megapixels")
            if not width * height:
                raise _broken(name, "has no pixels")
            yield opened
    except SeriatimError:
        raise
    except Image.DecompressionBombError:
        cause = f"{name} has more than {most:,} pixels"
        remedy = f"reduce it, leave it out, or set the environment variable {limits.IMAGE_PIXELS.variable}"
        raise SeriatimError("image.large", cause, remedy) from None
    except Image.UnidentifiedImageError:
        size = len(image) if isinstance(image, bytes) else image.stat().st_size
        raise _broken(name, "is not an image of a known format" if size else "is empty") from None
    except FileNotFoundError:
        raise SeriatimError("image.missing", f"there is no file {name}", "check the path") from None
    except (PermissionError, IsADirectoryError) as error:
        remedy = "check the path and its permissions"
        raise SeriatimError("image.unreadable", f"{name}: {error.strerror}", remedy) from None
    except Exception as error:  # decoders of seven formats raise many types for damaged bytes
        reason = "not enough memory" if isinstance(error, MemoryError) else shorten_error(error)
        raise _broken(name, f"cannot be read ({reason})") from None


def _broken(name: str, problem: str) -> SeriatimError:
    return SeriatimError("image.broken", f"{name} {problem}", "repair or remove the file")


def _upright_size(image: Image.Image) -> tuple[int, int]:
    """Returns height and width after the rotation that EXIF demands."""
    width, height = image.size
    return (width, height) if image.getexif().get(ORIENTATION_TAG, 1) in (5, 6, 7, 8) else (height, width)


# Color


def _to_8_bits(image: Image.Image, gray: bool) -> Image.Image:
    """Returns an opaque image of 8 bits per channel, gray or RGB."""
    if image.mode in DEEP_MODES:
        image = Image.fromarray(_scale_to_8_bits(np.asarray(image), image.mode))
    if image.has_transparency_data:
        transparent = image.convert("RGBA")
        white = Image.new("RGBA", transparent.size, "white")
        image = Image.alpha_composite(white, transparent).convert("RGB")
    elif image.mode not in ("L", "RGB"):
        image = image.convert("L" if image.mode in GRAY_MODES else "RGB")
    return image.convert("L" if gray else "RGB")


def _scale_to_8_bits(values: np.ndarray, mode: str) -> np.ndarray:
    """Maps the range of 16 bits to that of 8; floats of at most 1 are fractions."""
    low, high = float(values.min()), float(values.max())
    fractions = mode == "F" and high <= 1
    if not (low >= 0 and high <= 65_535):
        raise ValueError(f"values from {low:g} to {high:g} exceed 16 bits")
    return np.round(values.astype(np.float32) * np.float32(255 if fractions else 255 / 65_535)).astype(np.uint8)


# Size


def _target_size(size: tuple[int, int], layout: ImageLayout) -> tuple[tuple[int, int], tuple[float, float]]:
    """Returns the size after resizing, before padding, and the size of the center of the image that is resized.

    What is not visible is cropped first: a line of pixels may have any length.
    """
    height, width = size
    if size == (layout.height, layout.width) or layout.fit == "stretch":
        return (layout.height, layout.width), (height, width)
    if layout.fit == "pad":
        scale = min(layout.height / height, layout.width / width)
        limits = ((height, layout.height), (width, layout.width))
        new_height, new_width = (min(max(round(length * scale), 1), limit) for length, limit in limits)
        return (new_height, new_width), (height, width)
    new_height, new_width, _ = layout.stored_shape
    scale = max(new_height / height, new_width / width)
    return (new_height, new_width), (min(new_height / scale, height), min(new_width / scale, width))


def _draft(image: Image.Image, layout: ImageLayout) -> None:
    """Lets a JPEG be decoded at a half, a quarter or an eighth if that is still as large as needed."""
    upright = _upright_size(image)
    sizes = zip(upright, *_target_size(upright, layout), strict=True)
    height, width = (math.ceil(size * target / center) for size, target, center in sizes)
    rotated = upright != image.size[::-1]
    image.draft("L" if layout.channels == 1 else None, (height, width) if rotated else (width, height))


def _resize(image: Image.Image, layout: ImageLayout) -> Image.Image:
    (new_height, new_width), (height, width) = _target_size(image.size[::-1], layout)
    if (new_width, new_height) == image.size:
        return image
    left, top = (image.width - width) / 2, (image.height - height) / 2
    box = (left, top, left + width, top + height)
    return image.resize((new_width, new_height), Image.Resampling.BILINEAR, box, reducing_gap=2.0)


def _pad(pixels: np.ndarray, layout: ImageLayout) -> np.ndarray:
    """Repeats the edges up to the stored size of a layout."""
    height, width, _ = layout.stored_shape
    down, right = height - pixels.shape[0], width - pixels.shape[1]
    padding = ((down // 2, down - down // 2), (right // 2, right - right // 2), (0, 0))
    return np.pad(pixels, padding, mode="edge") if down or right else pixels
