"""How pictures are brought to one size, and what is done with those that cannot be read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seriatim.core.config import Settings

LARGEST = 178  # megapixels; beyond, Pillow itself takes a picture for an attack


class PictureSettings(Settings):
    side: int | None = Field(
        None,
        ge=1,
        le=2_048,
        description="pixels of a side that are shown (default: their own where all are alike and at most 64, else 32, "
        "64 or 224, by the shorter sides of the pictures)",
    )
    fit: Literal["crop", "pad", "stretch"] = Field(
        "crop", description="to one size: cut the middle out, leave the edges free, or stretch"
    )
    colours: Literal["auto", "grey", "colour"] = Field(
        "auto", description="grey or with colours (default: grey where all files are)"
    )
    broken: Literal["refuse", "skip"] = Field(
        "refuse", description="what to do where pictures cannot be read: stop and name them, or leave them out"
    )
    crops: int | None = Field(
        None,
        ge=0,
        le=512,
        description="pixels by which a picture may be moved while training (default: a fourteenth of the side, of "
        "small pictures an eighth)",
    )
    flips: bool | None = Field(
        None, description="show every other picture mirrored while training (default: photographs in colour only)"
    )
    megapixels: float = Field(64.0, gt=0, le=LARGEST, description="pictures beyond this are not read at all")
