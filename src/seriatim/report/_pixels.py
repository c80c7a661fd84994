"""Pictures within pictures: a photograph made fit for its panel, the grey beneath it, and the light of the attention.

All are PNG inside the file that shows them. A small picture is enlarged by whole numbers, so that its pixels stay what
they are, and a large one made smaller; where a weight lies between two cells it is smoothed over, as light would be.
"""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

SMALLEST, LARGEST = 192, 480  # pixels of the longer side as it is stored
PIXELS = 50_000_000  # of a picture that is opened
GREY, LEFT = 128, 0.3  # what a picture fades to where nobody looks, and how much of it is left there
FINE = 160  # pixels of the longer side of the light, which is smooth


@dataclass(frozen=True)
class Picture:
    width: int  # in its own pixels, which boxes are told in
    height: int
    shown: str  # as it is drawn, …
    faded: str  # … and as it fades into grey


def opened(text: str) -> Picture:
    """From base64 of a PNG."""
    from PIL import Image, UnidentifiedImageError

    try:
        data = base64.b64decode(text, validate=True)
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if image.width * image.height > PIXELS:
                raise ValueError(f"a picture of {image.width} × {image.height} pixels is too large to be drawn")
            found = image.convert("RGB")
    except (binascii.Error, UnidentifiedImageError, OSError):
        raise ValueError("the picture is no PNG as base64") from None
    fitted = _fitted(found)
    pale = Image.blend(fitted, fitted.convert("L").convert("RGB"), 0.5)
    faded = np.asarray(pale, dtype=np.float64) * LEFT + GREY * (1 - LEFT)
    return Picture(found.width, found.height, _stored(fitted), _stored(Image.fromarray(faded.astype(np.uint8))))


def _fitted(image: Image) -> Image:
    from PIL.Image import Resampling

    longer = max(image.size)
    if longer > LARGEST:
        sizes = [max(round(side * LARGEST / longer), 1) for side in image.size]
        return image.resize((sizes[0], sizes[1]), Resampling.LANCZOS)
    times = -(-SMALLEST // longer)
    return image.resize((image.width * times, image.height * times), Resampling.NEAREST) if times > 1 else image


def light(weights: np.ndarray, ratio: float) -> str:
    """Weights (h,w) as light, white where they are largest; `ratio` is width by height of the picture."""
    from PIL import Image

    most = weights.max()
    shares = weights / most if most > 0 else np.zeros_like(weights)
    across, down = (FINE, FINE / ratio) if ratio >= 1 else (FINE * ratio, FINE)
    size = max(round(across), weights.shape[1]), max(round(down), weights.shape[0])
    smooth = Image.fromarray(shares.astype(np.float32)).resize(size, Image.Resampling.BICUBIC)
    # so few steps that nobody sees them and the file stays small
    steps = np.clip(np.asarray(smooth) * 63, 0, 63).round() * (255 / 63)
    return _stored(Image.fromarray(steps.astype(np.uint8)))


def _stored(image: Image) -> str:
    held = io.BytesIO()
    image.save(held, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode("ascii")
