"""Images with captions: the items of a split, their batches, and the processor that encodes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from ...core.errors import Diagnostics, SeriatimError
from ...data.dataset import Dataset
from ...data.images.batches import Images
from ...data.sequences import Sequences
from ...data.settings import ImageSettings
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ..batching import Batch
from ..codecs import ImageCodec, train_tokenizer
from ..encoder_decoder import Paired, TargetProcessor, encode_with_eos, shift_targets
from ..inputs import SequenceSettings
from ..metrics import Scoring
from ..processor import Tokenizers
from ..spec import TaskConfig
from .spec import Region

WORDS = 10_000  # tokens of a vocabulary whose size is not set
MANY_CAPTIONS = 10_000  # from which on words that occur once are left out
SMALL_IMAGE = 64  # pixels of a side, at most


@dataclass(frozen=True, eq=False)
class EncodedCaptions(Paired):
    """An item for each caption; several may show one image.

    Args:
        inputs: The image of each caption.
        targets: The captions, each with `<eos>`; None in prediction.
        regions: The nouns of each caption with their boxes, in pixels of the visible part.
        groups: The captions of each image that is trained or evaluated on; None in prediction.
        captioned: The images, by the number of their group, that an evaluation captions; None: all.
        scoring: How captions are scored, the same for all splits; None in prediction.
    """

    inputs: Images
    targets: Sequences | None = None
    regions: tuple[tuple[Region, ...], ...] | None = field(default=None, kw_only=True)
    groups: Sequences | None = field(default=None, kw_only=True)
    captioned: np.ndarray | None = field(default=None, kw_only=True)
    scoring: Scoring | None = field(default=None, kw_only=True)

    def take(self, items: np.ndarray) -> Self:
        groups = self.groups
        if groups is not None:
            numbers = np.full(len(self), -1)
            numbers[items] = np.arange(len(items))
            kept = [numbers[groups[group]] for group in range(len(groups))]
            groups = Sequences.of([members[members >= 0] for members in kept if (members >= 0).any()])
        return replace(
            self,
            inputs=self.inputs.take(items),
            targets=None if self.targets is None else self.targets.take(items),
            rows=None if self.rows is None else self.rows[items],
            regions=None if self.regions is None else tuple(self.regions[item] for item in items.tolist()),
            groups=groups,
        )


def collate_captions(items: EncodedCaptions, chosen: np.ndarray, start: int, max_length: int | None = None) -> Batch:
    """Returns images (B,C,H,W), decoder inputs (B,T) and targets (B,T) with `IGNORED` for padding.

    Args:
        items: All captions; without targets there are no decoder inputs.
        chosen: Those of the batch.
        start: The token that the decoder reads first.
        max_length: Truncates captions, for models with a limited context.
    """
    images = torch.from_numpy(items.inputs.padded(chosen)[0])
    if items.targets is None:
        return Batch((images, None, None), None, len(chosen))
    decoder_inputs, targets, count = shift_targets(items.targets, chosen, start, max_length)
    return Batch((images, decoder_inputs, None), targets, count)


def image_groups(rows: Dataset, items: EncodedCaptions, longest: int | None = None) -> Sequences:
    """Returns the items of each image, in order; of captions, those with at most `longest` tokens."""
    ids = rows.group_ids(["image"])
    ids = ids if items.rows is None else ids[items.rows]
    chosen = np.arange(len(ids))
    if longest is not None and items.targets is not None:
        chosen = np.flatnonzero(items.targets.lengths <= longest)
    _, first, inverse = np.unique(ids[chosen], return_index=True, return_inverse=True)
    members = np.split(chosen[np.argsort(inverse, kind="stable")], np.cumsum(np.bincount(inverse))[:-1])
    return Sequences.of([members[number] for number in np.argsort(first, kind="stable")])


@dataclass(frozen=True)
class CaptionProcessor(TargetProcessor[EncodedCaptions]):
    target: Tokenizer
    context_length: int  # tokens of the longest caption
    image: ImageCodec

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        settings = config.task
        captions = list(train["caption"])
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            min_count = 1 if len(captions) < MANY_CAPTIONS else 2
            default = TokenizerSettings(kind="word", vocab_size=WORDS, lowercase=True, min_count=min_count)
            lines = (f"{text}\n" for text in captions)
            tokenizer = train_tokenizer(settings.tokenizer or default, lines, diagnostics)
        lengths = encode_with_eos(tokenizer, captions).lengths
        if settings.context_length is not None:
            train = train.take(np.flatnonzero(lengths <= settings.context_length))
            if not len(train):
                cause = f"all captions have more than {settings.context_length} tokens"
                raise SeriatimError("data.long", cause, "raise task.context_length")
        images = settings.images
        if images.max_shift is None and is_small(train, images):  # what a caption names may be at the edge
            images = images.model_copy(update={"max_shift": 0})
        images = images.model_copy(update={"flip": images.flip is True})  # captions may tell left from right
        image_config = config.model_copy(update={"task": SequenceSettings(images=images)})
        codec = ImageCodec.fit(train, "image", image_config, {}, diagnostics)
        return cls(tokenizer, int(lengths.max()), codec)

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> EncodedCaptions:
        images = self.image.encode(dataset, "image", diagnostics)
        rows = images.source_rows
        kept = dataset if rows is None else dataset.take(rows)
        if "caption" not in kept:
            return EncodedCaptions(images, None, rows=rows)
        targets = encode_with_eos(self.target, list(kept["caption"]))
        return EncodedCaptions(images, targets, rows=rows, regions=self.visible_regions(kept))

    def visible_regions(self, dataset: Dataset) -> tuple[tuple[Region, ...], ...] | None:
        """Returns the regions of each row in pixels of the visible part; those outside of it are left out."""
        if "regions" not in dataset or not any(dataset["regions"]):
            return None
        from ...data.images.decode import visible_box
        from ...data.images.store import read_headers

        headers = read_headers(dataset["image"])
        visible = []
        for header, regions in zip(headers, dataset["regions"], strict=True):
            assert not isinstance(header, SeriatimError)  # such rows were left out
            boxes = [visible_box(region.box, (header.height, header.width), self.image.layout) for region in regions]
            pairs = zip(regions, boxes, strict=True)
            visible.append(tuple(region._replace(box=box) for region, box in pairs if box is not None))
        return tuple(visible)

    def compatible(self, other: object) -> bool:
        return (
            isinstance(other, CaptionProcessor)
            and self.target.to_json() == other.target.to_json()
            and self.image.layout == other.image.layout
        )


def is_small(dataset: Dataset, settings: ImageSettings) -> bool:
    """Returns whether images are shown small, judged by the settings or the first files: drawings, not photographs."""
    from ...data.images.store import read_headers

    if settings.size is not None:
        return settings.size <= SMALL_IMAGE
    headers = read_headers(dataset["image"][:100], settings)
    return all(
        max(header.height, header.width) <= SMALL_IMAGE for header in headers if not isinstance(header, SeriatimError)
    )
