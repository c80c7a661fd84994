"""The preprocessing of images for a model of `transformers`: preprocessor_config.json, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..core.files import write_json
from .folder import read_json_object

FILE = "preprocessor_config.json"
DEFAULT_SIDE = 224  # pixels, if no file has a size
DEFAULT_NORMALIZATION = 0.5  # mean and std, if no file has them: pixels between -1 and 1
BILINEAR = 2  # Pillow's number of the filter


@dataclass(frozen=True)
class HubImage:
    """The images that a model reads."""

    height: int
    width: int
    channels: int
    fit: Literal["stretch", "crop"]
    mean: tuple[float, ...]  # of each channel, pixels between 0 and 1
    std: tuple[float, ...]


def read_preprocessor(path: Path, config: Mapping[str, Any], problems: list[str], notes: list[str]) -> HubImage:
    """Returns the images of a model folder; adds unsupported preprocessing to the problems."""
    channels = int(config.get("num_channels", 3))
    values = read_json_object(path / FILE) if (path / FILE).is_file() else {}
    if not values:
        notes.append(f"there is no {FILE}: pixels are scaled between -1 and 1")
    factor = values.get("rescale_factor", 1 / 255)
    if not _is_number(factor) or abs(factor * 255 - 1) > 1e-3 or values.get("do_rescale", True) is False:
        problems.append(f"{FILE}: pixels are not divided by 255: do_rescale, rescale_factor")
    unnormalized = values.get("do_normalize", True) is False
    statistics = []
    for key, neutral in (("image_mean", 0.0), ("image_std", 1.0)):
        numbers = [neutral] * channels if unnormalized else values.get(key, [DEFAULT_NORMALIZATION] * channels)
        if not isinstance(numbers, list) or len(numbers) != channels or not all(map(_is_number, numbers)):
            problems.append(f"{FILE}: {key} is {numbers}, not {channels} numbers")
            numbers = [1.0] * channels
        statistics.append(tuple(float(number) for number in numbers))
    size, crop = _sides(values.get("size")), _sides(values.get("crop_size"))
    cropped = bool(values.get("do_center_crop", crop is not None)) and crop is not None
    side = config.get("image_size")
    height, width = (
        (side, side) if isinstance(side, int) else (crop if cropped else size) or (DEFAULT_SIDE, DEFAULT_SIDE)
    )
    stretched = isinstance(values.get("size"), dict) and "height" in values["size"] and not cropped
    return HubImage(height, width, channels, "stretch" if stretched else "crop", *statistics)


def write_preprocessor(path: Path, image: HubImage) -> None:
    sides = {"height": image.height, "width": image.width}
    values = {
        "do_resize": True,
        "resample": BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(image.mean),
        "image_std": list(image.std),
        "do_convert_rgb": image.channels == 3,
    }
    if image.fit == "stretch":
        values |= {"image_processor_type": "ViTImageProcessor", "size": sides}
    else:
        shortest = {"shortest_edge": min(sides.values())}
        values |= {"image_processor_type": "CLIPImageProcessor", "size": shortest, "do_center_crop": True}
        values["crop_size"] = sides
    write_json(path / FILE, values)


def _sides(value: Any) -> tuple[int, int] | None:
    """Returns height and width, in any of the notations."""
    sides = value if isinstance(value, dict) else {"shortest_edge": value}
    height, width = (sides.get(key, sides.get("shortest_edge")) for key in ("height", "width"))
    if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
        return None
    return height, width


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
