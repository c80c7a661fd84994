"""How pictures become numbers for a model of `transformers`: its preprocessor_config.json, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.files import write_json
from .folder import read_object

FILE = "preprocessor_config.json"
SIDE = 224  # pixels, where neither file names a size
MIDDLE = 0.5  # mean and deviation, where no file names them: pixels between -1 and 1
BILINEAR = 2  # as Pillow numbers its filters


def read_preprocessor(
    path: Path, config: Mapping[str, Any], problems: list[str], notes: list[str]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The form of the pictures that a model knows, and the spread of their colours, by our names."""
    channels = int(config.get("num_channels", 3))
    known = read_object(path / FILE) if (path / FILE).is_file() else {}
    if not known:
        notes.append(f"there is no {FILE}: pixels are taken between -1 and 1")
    factor = known.get("rescale_factor", 1 / 255)
    if not _number(factor) or abs(factor * 255 - 1) > 1e-3 or known.get("do_rescale", True) is False:
        problems.append(f"{FILE}: pixels are not divided by 255, as they are here: do_rescale, rescale_factor")
    plain = known.get("do_normalize", True) is False
    found = {}
    for ours, theirs, none in (("mean", "image_mean", 0.0), ("deviation", "image_std", 1.0)):
        values = [none] * channels if plain else known.get(theirs, [MIDDLE] * channels)
        if not isinstance(values, list) or len(values) != channels or not all(_number(one) for one in values):
            problems.append(f"{FILE}: {theirs} is {values}, not {channels} numbers")
            values = [1.0] * channels
        found[f"input.{ours}"] = torch.tensor(values, dtype=torch.float32)
    size, crop = _sides(known.get("size")), _sides(known.get("crop_size"))
    cut = bool(known.get("do_center_crop", crop is not None)) and crop is not None
    own = config.get("image_size")
    height, width = (own, own) if isinstance(own, int) else (crop if cut else size) or (SIDE, SIDE)
    stretched = isinstance(known.get("size"), dict) and "height" in known["size"] and not cut
    form = {"height": height, "width": width, "channels": channels, "fit": "stretch" if stretched else "crop"}
    return form, found


def write_preprocessor(path: Path, form: Mapping[str, Any], mean: Tensor, deviation: Tensor) -> None:
    sides = {"height": form["height"], "width": form["width"]}
    about = {
        "do_resize": True,
        "resample": BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean.tolist(),
        "image_std": deviation.tolist(),
        "do_convert_rgb": form["channels"] == 3,
    }
    if form["fit"] == "stretch":
        about |= {"image_processor_type": "ViTImageProcessor", "size": sides}
    else:
        shortest = {"shortest_edge": min(sides.values())}
        about |= {"image_processor_type": "CLIPImageProcessor", "size": shortest, "do_center_crop": True}
        about["crop_size"] = sides
    write_json(path / FILE, about)


def _sides(value: Any) -> tuple[int, int] | None:
    """Height and width, however they are written."""
    sides = value if isinstance(value, dict) else {"shortest_edge": value}
    height, width = (sides.get(name, sides.get("shortest_edge")) for name in ("height", "width"))
    if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
        return None
    return height, width


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
