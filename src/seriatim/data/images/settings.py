"""How images are brought to one size and augmented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from ...core.config import Settings

MAX_MEGAPIXELS = 178  # beyond, Pillow takes an image for an attack

Fit = Literal["crop", "pad", "stretch"]


class ImageSettings(Settings):
    """How images are read, resized and augmented."""

    size: int | None = Field(
        None,
        ge=1,
        le=2_048,
        description="pixels of a side (default: that of the images if all are alike and at most 64, else 32, 64 or "
        "224, by their shorter sides)",
    )
    fit: Fit = Field("crop", description="how images become square: crop the center, pad the edges, or stretch")
    color: Literal["auto", "gray", "rgb"] = Field("auto", description="color mode (default: gray if all files are)")
    broken: Literal["error", "skip"] = Field(
        "error", description="what to do with files that cannot be read: report them, or train without them"
    )
    max_shift: int | None = Field(
        None,
        ge=0,
        le=512,
        description="pixels by which training shifts images at random (default: a fourteenth of the side, an eighth "
        "of small images)",
    )
    flip: bool | None = Field(
        None, description="whether training mirrors every other image (default: color images only)"
    )
    max_megapixels: float = Field(64.0, gt=0, le=MAX_MEGAPIXELS, description="larger images are not read")


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
