"""The codec of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, cast

import numpy as np
import torch
from torch import nn

from ...core.device import numpy_stream
from ...core.errors import Diagnostics, SeriatimError
from ...data.dataset import Dataset
from ...data.images import ImageLayout, ImageValue
from ...data.images.batches import Images
from ...data.settings import Fit, ImageSettings
from ...nn.backbone import BackboneSettings
from ...nn.settings import ModelSettings
from ...report.charts import Image
from ..inputs import IMAGES, Modality, SequenceSettings
from ..processor import Tokenizers, Values
from ..spec import TaskConfig
from .base import InputCodec

if TYPE_CHECKING:
    from ...nn.images import ImageInput
    from ..capability import Record

AUGMENTATION_STREAM = "pictures"  # name of the random numbers of shifts and flips: trained weights depend on it
ELEMENTS_PER_IMAGE = 100  # that an image counts for in a sample


@dataclass(frozen=True)
class ImageCodec(InputCodec[Images]):
    """Images of one size; standardized by the training split, and augmented in training."""

    modality: ClassVar[Modality] = IMAGES
    slow: ClassVar[bool] = True
    sequential: ClassVar[bool] = False

    height: int
    width: int
    channels: int
    fit_mode: Fit
    margin: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool = False  # whether training mirrors every other image
    skip_broken: bool = False  # whether rows with targets whose image cannot be read are left out
    max_megapixels: float = 64.0
    longest: int = 1

    @classmethod
    def fit(
        cls, train: Dataset, role: str, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> Self:
        from ...data.images.store import choose_layout, read_headers  # imports Pillow

        settings: SequenceSettings = config.task
        if settings.context_length is not None:
            cause = f"images have one size, not a length of at most {settings.context_length}"
            raise SeriatimError("task.images", cause, "omit --context-length, or set task.images.size")
        images = settings.images
        headers = read_headers(train[role], images, diagnostics.on_note)
        layout, notes = choose_layout([header for header in headers if not isinstance(header, SeriatimError)], images)
        for note in notes:
            diagnostics.note(note)
        flip = layout.channels == 3 if images.flip is None else images.flip
        if flip:
            diagnostics.note("training mirrors every other image (task.images.flip)")
        size = (layout.height, layout.width, layout.channels, layout.fit, layout.margin)
        skip = images.broken == "skip"
        codec = cls(*size, (), (), flip, skip, images.max_megapixels)
        mean, std = np.zeros(layout.channels), np.ones(layout.channels)
        if settings.scaling == "standard":
            mean, std = codec.encode(train, role, diagnostics).mean_and_std()
        return replace(codec, mean=tuple(map(float, mean)), std=tuple(map(float, std)))

    @classmethod
    def from_pretrained(cls, tokenizers: Tokenizers, max_length: int, config: Values) -> Self | None:
        image = config.get("image")
        if image is None:
            return None
        return cls(image["height"], image["width"], image["channels"], image["fit"], 0, image["mean"], image["std"])

    @property
    def layout(self) -> ImageLayout:
        return ImageLayout(self.height, self.width, self.channels, self.fit_mode, self.margin)

    def encode(self, dataset: Dataset, role: str, diagnostics: Diagnostics | None = None) -> Images:
        """Returns the images; rows that cannot be read are reported, or left out and noted (`Images.source_rows`)."""
        problems = Diagnostics() if diagnostics is None else diagnostics
        images, broken = self.load(dataset[role], problems.on_note)
        with_targets = len(dataset.columns) > 1  # else there is one prediction for each row
        if broken and self.skip_broken and with_targets and len(broken) < len(dataset):
            first = next(iter(broken.values())).cause
            problems.note(f"{len(broken):,} of {len(dataset):,} images are left out, the first: {first}")
            readable = np.setdiff1d(np.arange(len(dataset)), list(broken))
            return replace(images.take(readable), source_rows=readable)
        for row, error in broken.items():
            skip = "; to leave it out: task.images.broken=skip" if with_targets else ""
            problems.report(error.code, f"{dataset.locations[row]}: {error.cause}", error.remedy + skip)
        if diagnostics is None:
            problems.raise_problems()
        return images

    def load(
        self, values: Sequence[ImageValue], on_note: Callable[[str], None] | None = None
    ) -> tuple[Images, dict[int, SeriatimError]]:
        """Returns the images that can be read, in the layout of the codec, and the errors of the others by row."""
        from ...data.images.store import load_images  # imports Pillow

        return load_images(values, self.layout, ImageSettings(max_megapixels=self.max_megapixels), on_note)

    @classmethod
    def check_model(cls, model: ModelSettings, name: str) -> None:
        if model.gradient_free or model.encoder_decoder:
            raise SeriatimError("task.images", f"{model.name} cannot read images", "choose resnet, vit or lstm")
        super().check_model(model, name)

    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        module = model.image_input(self.layout.shape)
        self.standardize(module)
        return module, module.width

    def standardize(self, module: ImageInput) -> None:
        """Sets the mean and the standard deviation that a module takes from its images and divides them by."""
        module.mean.copy_(torch.tensor(self.mean))
        module.std.copy_(torch.tensor(self.std))

    def sequence_length(self, module: nn.Module) -> int:
        rows, columns = cast("ImageInput", module).grid
        return rows * columns

    def element_names(self, item: np.ndarray) -> list[str]:
        return [f"{item.shape[1]} × {item.shape[0]} pixels"]

    @property
    def hub_layout(self) -> Values:
        layout = {"height": self.height, "width": self.width, "channels": self.channels, "fit": self.fit_mode}
        return {"image": layout}

    def candidates(self, models: tuple[str, ...]) -> tuple[str, ...]:
        return "resnet", "vit", "gru"

    @classmethod
    def clean(cls, rows: Dataset, settings: SequenceSettings, diagnostics: Diagnostics) -> Dataset:
        return rows if settings.images.broken == "error" else skip_broken(rows, diagnostics)

    @classmethod
    def drops_empty(cls, rows: Dataset) -> bool:
        """Images are never empty."""
        return False

    def kept_rows(self, inputs: Images) -> np.ndarray | None:
        return inputs.source_rows

    def augment(
        self, inputs: Images, items: np.ndarray, share: slice, seed: int, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        pixels = inputs.augmented(items, numpy_stream(seed, AUGMENTATION_STREAM, step), self.flip, share)
        return pixels, np.ones((len(pixels), 1), dtype=bool)

    def row_sizes(self, rows: Dataset, sizes: np.ndarray) -> np.ndarray:
        return np.full(len(rows), ELEMENTS_PER_IMAGE)

    def grid_names(self, item: np.ndarray, network: nn.Module) -> list[str]:
        rows, columns = cast("ImageInput", network.get_submodule("input")).grid
        return [f"row {row + 1}, column {column + 1}" for row in range(rows) for column in range(columns)]

    def describe(self, rows: Dataset, row: int) -> str:
        return str(rows.locations[row])

    def cell(self, rows: Dataset, row: int, inputs: Images, item: int) -> Image:
        from ...data.images.decode import thumbnail  # imports Pillow

        return Image(thumbnail(inputs[item]))

    def add_names(self, rows: Dataset, records: list[Record]) -> list[Record]:
        for value, record in zip(rows["input"], records, strict=True):
            if isinstance(value, Path):
                record["image"] = str(value)
        return records

    def example(self) -> tuple[str, str]:
        return "photo.png", '["photo.png"]'


def skip_broken(rows: Dataset, diagnostics: Diagnostics) -> Dataset:
    """Returns the rows whose image has a readable header; notes how many are left out."""
    from ...data.images.store import read_headers  # imports Pillow

    errors = [header if isinstance(header, SeriatimError) else None for header in read_headers(rows["input"])]
    broken = [error for error in errors if error is not None]
    if not broken or len(broken) == len(rows):
        return rows
    diagnostics.note(f"{len(broken):,} of {len(rows):,} images are left out, the first: {broken[0].cause}")
    return rows.take(np.flatnonzero([error is None for error in errors]))
