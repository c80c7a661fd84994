"""Pictures from arrays: (N,H,W) or (N,H,W,C) of 8 bits, as IDX, .npy and .npz files hold them."""

from __future__ import annotations

import numpy as np

from seriatim.core.errors import SeriatimError

from .array_files import Array
from .picture_files import Header, fitted
from .picture_settings import PictureSettings
from .picture_store import choose_form
from .pictures import Pictures

COLOURS = (1, 3)


def looks_like_pictures(array: Array) -> bool:
    """Whether an array can be nothing else: rows of rows of pixels with their colours."""
    return isinstance(array, np.ndarray) and array.ndim == 4 and array.dtype == np.uint8


def pictures_of(where: str, array: Array, settings: PictureSettings) -> tuple[Pictures, list[str]]:
    """The pictures of an array in the form that the settings say, and what is worth telling."""
    block = _checked(where, array)
    count, height, width, channels = block.shape
    form, notes = choose_form([Header(height, width, channels == 1, animated=False)], settings)
    if (height, width, channels) == (form.height, form.width, form.channels):
        margin = (form.margin, form.margin)
        return Pictures.of(np.pad(block, ((0, 0), margin, margin, (0, 0)), mode="edge"), form.margin), notes
    found = np.empty((count, *form.stored), np.uint8)
    for row, picture in enumerate(block):
        found[row] = fitted(picture, form)
    return Pictures.of(found, form.margin), notes


def _checked(where: str, array: Array) -> np.ndarray:
    if isinstance(array, list) or array.dtype != np.uint8 or array.ndim not in (3, 4):
        kind = "a cell" if isinstance(array, list) else f"{array.dtype} of the shape {array.shape}"
        cause = f"{where}: holds {kind}, where pictures are 8 bits (uint8) of the shape (N,H,W) or (N,H,W,3)"
        raise SeriatimError("data.arrays", cause, "convert and save it again")
    block = array[..., None] if array.ndim == 3 else array
    if block.shape[3] not in COLOURS:
        first = block.shape[1] in COLOURS
        cause = f"{where}: has the shape {array.shape}: {block.shape[3]} colours of a pixel, where 1 or 3 are known"
        remedy = (
            "colours stand last: array.transpose(0, 2, 3, 1)" if first else "give grey pictures or red, green, blue"
        )
        raise SeriatimError("data.arrays", cause, remedy)
    if not block.size:
        raise SeriatimError("data.empty", f"{where}: holds no pictures", "give at least one")
    return block
