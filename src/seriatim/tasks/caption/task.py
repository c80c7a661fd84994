"""The task caption: network, loss, evaluation and what a report shows.

A residual network (or patches) turns the image into a grid of vectors, which is the memory of an encoder–decoder like
that of a sentence. If the model attends, each word shows where; `penalty` asks that every cell gets about the same
attention in the end (Xu et al. 2015):

    loss = Σ_t −log p(y_t) + λ Σ_i (1 − Σ_t α_{t,i})²
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from ...core.errors import Diagnostics, SeriatimError
from ...core.metrics import MetricValues
from ...core.state import State
from ...data.dataset import Dataset
from ...data.images.batches import Images
from ...data.schema import Schema
from ...data.sequences import Sequences
from ...data.settings import ImageSettings
from ...data.source import DataInput, Source, open_source
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...decode.seq2seq import ALIGNMENT, TargetScores
from ...models.resnet import Settings as ResNetSettings
from ...nn.backbone import BackboneSettings, NamedTrace, Trace
from ...nn.encoder_decoder import EncoderDecoder
from ...nn.images import (
    FeatureMapInput,
    ImageEncoderDecoder,
    ImageInput,
    ImageShape,
    ResNet,
    image_encoder_decoder_network,
)
from ...report.charts import View
from ..batching import MAX_ELEMENTS, Batch, LengthSampler, Sampler
from ..codecs import ImageCodec, train_tokenizer
from ..encoder_decoder import (
    MAX_ROWS,
    EncoderDecoderPredictor,
    EncoderDecoderProcessor,
    EncoderDecoderTask,
    encode_with_eos,
)
from ..inputs import SequenceSettings
from ..inspection import TokenizedText
from ..metrics import Scoring, caption_metrics
from ..old import IGNORED, Metrics, Output
from ..predictor import Predictor
from ..processor import TaskConfig, Tokenizers, tokenizer_mismatches
from .predictor import CaptionPredictor, caption_views
from .rows import (
    BY_IMAGE,
    EncodedCaptions,
    MissingFiles,
    PointedNoun,
    drop_held_out,
    locate_images,
    one_caption_a_row,
    point,
    pointing_metrics,
)
from .spec import SPEC, CaptionSettings, EncoderName, Region

__all__ = ["CaptionPredictor", "CaptionProcessor", "CaptionSettings", "CaptionTask"]

WORDS = 10_000  # tokens of a vocabulary whose size is not set
MANY_CAPTIONS = 10_000  # from which on words that occur once are left out
SMALL_IMAGE = 64  # pixels of a side, at most
CHANNELS = {"local": (64, 16), "resnet": (64, 32)}  # of the first stage, for photographs and for small images


@dataclass(frozen=True)
class CaptionProcessor(EncoderDecoderProcessor[EncodedCaptions]):
    target: Tokenizer
    context_length: int  # tokens of the longest caption
    image: ImageCodec

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        settings: CaptionSettings = config.task
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
            return EncodedCaptions(cast(Sequences, images), None, rows)
        targets = encode_with_eos(self.target, list(kept["caption"]))
        return EncodedCaptions(cast(Sequences, images), targets, rows, self.visible_regions(kept))

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


def image_encoder(
    name: EncoderName | None, model: BackboneSettings, shape: ImageShape, layers: int | None, channels: int | None
) -> ImageInput:
    """Returns the input that turns an image into a grid of vectors.

    A cell of a deep residual network sees far beyond itself (47 of 64 pixels with the eight layers for small images): a
    decoder can read an object from any cell nearby, and attention says little. So the default for small images is a
    network with a small receptive field: full resolution first, and cells that are means of four, of which each sees
    21 pixels. For photographs it is the first three stages of four.
    """
    if name == "patches":
        return model.image_input(shape)
    small = max(shape[1:]) <= SMALL_IMAGE
    chosen = name or ("local" if small else "resnet")
    width = CHANNELS[chosen][small] if channels is None else channels
    if chosen == "resnet":
        return ResNetSettings(name="resnet", width=width, layers=layers).image_input(shape)
    count = 8 if layers is None else layers
    if small and (count - 2) % 6:
        cause = f"{count} layers cannot be divided evenly among three stages"
        raise SeriatimError("task.layers", cause, "choose 8, 14, 20 or another 6n+2")
    blocks = ((count - 2) // 6,) * 3 if small else (2, 2, 2)
    widths = [width * 2**stage for stage in range(3)]
    resnet = ResNet(shape[0], widths, blocks, "small" if small else "photographs", local=small)
    return FeatureMapInput(shape, resnet, pool=2 if small else 1)


@dataclass(frozen=True)
class CaptionOutput(Output):
    attention: Tensor | None = None  # (B,T,S) over the cells, if it is penalized


class CaptionTask(EncoderDecoderTask[EncodedCaptions]):
    spec = SPEC
    split_policy = BY_IMAGE
    processor_type = CaptionProcessor
    predictor_type = CaptionPredictor
    prefetch = ImageCodec.slow
    max_train_groups = 1_000
    processor: CaptionProcessor

    def select_rows(self, datasets: dict[str, Dataset]) -> dict[str, Dataset]:
        return drop_held_out(datasets, self.diagnostics)

    # Data

    @classmethod
    def read_training_data(
        cls, source: Source, config: TaskConfig, diagnostics: Diagnostics, like: Dataset | None = None
    ) -> Dataset:
        settings: CaptionSettings = config.task
        rows = cls.read_rows(source, config, diagnostics, like)
        rows = locate_images(rows, source, settings.image_folder, settings.images.broken, diagnostics)
        rows = one_caption_a_row(rows, settings.normalize, True, diagnostics)
        if not len(rows):
            raise SeriatimError("data.empty", f"{source.name} has no captions", "pass images with captions")
        return rows

    def read(
        self, source: DataInput, schema: Schema | None = None, columns: Mapping[str, str] | None = None
    ) -> Dataset:
        opened = open_source(source)
        rows = super().read(opened, schema, columns)
        diagnostics = Diagnostics(self.diagnostics.on_note)
        missing_files: MissingFiles = self.settings.images.broken if schema is None else "keep"
        rows = locate_images(rows, opened, self.settings.image_folder, missing_files, diagnostics)
        if "caption" not in rows:
            return rows
        return one_caption_a_row(rows, self.settings.normalize, schema is None, diagnostics)

    @cached_property
    def _groups(self) -> dict[str, list[np.ndarray]]:
        return {}

    def groups(self, split: str) -> list[np.ndarray]:
        """Returns the items of each image, in order; of the training split, those that are not too long."""
        if split not in self._groups:
            encoded = self.encoded[split]
            ids = self.datasets[split].group_ids(["image"])
            ids = ids if encoded.rows is None else ids[encoded.rows]
            items = np.arange(len(ids))
            if split == "train" and self.settings.context_length is not None:
                items = np.flatnonzero(encoded.targets.lengths <= self.settings.context_length)
                if len(items) < len(ids):
                    self.diagnostics.note(
                        f"{len(ids) - len(items):,} of {len(ids):,} captions have more than "
                        f"{self.settings.context_length} tokens and are not trained on"
                    )
            _, first, inverse = np.unique(ids[items], return_index=True, return_inverse=True)
            members = np.split(items[np.argsort(inverse, kind="stable")], np.cumsum(np.bincount(inverse))[:-1])
            self._groups[split] = [members[n] for n in np.argsort(first, kind="stable")]
        return self._groups[split]

    def make_sampler(self, train: EncodedCaptions) -> Sampler:
        """Images in random order, each with all its captions, whatever their lengths: batch norm needs a mixture."""
        count = len(self.groups("train"))
        return LengthSampler(np.arange(count), np.ones(count, dtype=np.int64), self.config.seed)

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        """Returns augmented images (B,C,H,W), decoder inputs of all their captions, and the image of each caption."""
        encoded, groups = self.encoded["train"], self.groups("train")
        chosen = [groups[n] for n in self.sampler.items(step, batch_size).tolist()]
        images, share = np.array([items[0] for items in chosen]), slice(first, last)
        shown, _ = self.processor.image.augment(cast(Images, encoded.inputs), images, share, self.config.seed, step)
        owners = np.repeat(np.arange(len(shown)), [len(items) for items in chosen[share]])
        decoder_inputs, targets, count = self.shift_targets(encoded.targets, np.concatenate(chosen[share]))
        return Batch((torch.from_numpy(shown), decoder_inputs, torch.from_numpy(owners)), targets, count)

    def collate(self, encoded: EncodedCaptions, items: np.ndarray, max_length: int | None = None) -> Batch:
        images = torch.from_numpy(encoded.inputs.padded(items)[0])
        if encoded.targets is None:
            return Batch((images, None, None), None, len(items))
        decoder_inputs, targets, count = self.shift_targets(encoded.targets, items, max_length)
        return Batch((images, decoder_inputs, None), targets, count)

    def item_lengths(self, encoded: EncodedCaptions) -> np.ndarray:
        return np.full(len(encoded), MAX_ELEMENTS // MAX_ROWS)  # by which batches have MAX_ROWS captions

    # Network and training

    def network(self, model: BackboneSettings) -> ImageEncoderDecoder:
        settings, shape = self.settings, self.processor.image.layout.shape
        image = image_encoder(settings.encoder, model, shape, settings.layers, settings.channels)
        self.processor.image.standardize(image)
        sizes = self.processor.target.vocab_size, self.processor.context_length
        return image_encoder_decoder_network(model, image, shape, *sizes, settings.score, settings.learned_values)

    def forward(self, network: EncoderDecoder, batch: Batch, state: State = None, trace: Trace | None = None) -> Output:
        if not self.settings.penalty:
            return super().forward(network, batch, trace=trace)
        trace = NamedTrace(ALIGNMENT)
        output = super().forward(network, batch, trace=trace)
        return CaptionOutput(output.scores, output.features, attention=trace.get(ALIGNMENT))

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        loss = super().loss(output, batch, smoothing)
        if isinstance(output, CaptionOutput) and output.attention is not None:
            loss = loss + self.settings.penalty * uneven_attention(output.attention, batch.targets != IGNORED).sum()
        return loss

    def teacher_mismatches(self, teacher: Predictor) -> list[str]:
        assert isinstance(teacher, CaptionPredictor)
        mismatches = tokenizer_mismatches(self.processor.target, teacher.processor.target)
        shape, theirs = self.processor.image.layout.shape, teacher.processor.image.layout.shape
        if shape != theirs:
            mismatches.append(f"images have the shape {shape}, the teacher's {theirs}")
        return mismatches

    # Evaluation

    def evaluated_items(self, split: str, groups: Sequence[np.ndarray], limit: int | None) -> np.ndarray:
        return np.concatenate(groups)

    def rows_of(self, split: str, items: np.ndarray) -> np.ndarray:
        """Returns the rows of the data set of these items."""
        rows = self.encoded[split].rows
        return items if rows is None else rows[items]

    def references(self, split: str, groups: Sequence[np.ndarray]) -> list[list[str]]:
        captions = self.datasets[split]["caption"]
        return [[captions[row] for row in self.rows_of(split, items).tolist()] for items in groups]

    @cached_property
    def scoring(self) -> Scoring:
        """How captions are scored: the same for all splits."""
        split = next(name for name in ("validation", "test", "train") if name in self.datasets)
        return Scoring.of(list(self.datasets[split]["caption"]))

    def quality(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> MetricValues:
        return caption_metrics(hypotheses, references, self.scoring.closed)

    def needs_alignment(self, predictor: EncoderDecoderPredictor[EncodedCaptions], split: str) -> bool:
        return self.encoded[split].regions is not None and predictor.decoder.has_alignment

    def forced_metrics(
        self,
        predictor: EncoderDecoderPredictor[EncodedCaptions],
        split: str,
        items: np.ndarray,
        forced: Sequence[TargetScores],
    ) -> Metrics:
        """Returns how often the attention of a noun points at its box."""
        regions = self.encoded[split].regions
        if regions is None or not forced or forced[0].weights is None:
            return {}
        captions, targets = self.datasets[split]["caption"], self.encoded[split].targets
        _, height, width = self.processor.image.layout.shape
        grid = cast(CaptionPredictor, predictor).grid
        nouns: list[PointedNoun] = []
        for item, row, one in zip(items.tolist(), self.rows_of(split, items).tolist(), forced, strict=True):
            assert one.weights is not None
            words = TokenizedText.of(self.processor.target, targets[item].tolist(), captions[row])
            nouns += point(one.weights, words.groups, grid, (height, width), regions[item])
        return pointing_metrics(nouns)

    def describe_input(self, split: str, row: int) -> str:
        rows = self.datasets[split]
        row = int(self.rows_of(split, np.array([row]))[0])
        image = rows["image"][row]
        return str(rows.locations[row]) if isinstance(image, (bytes, np.ndarray)) else image.name

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Returns the metrics of the most frequent training caption, whatever the image shows."""
        if "train" not in self.datasets:
            return {}
        ((caption, _),) = Counter(self.datasets["train"]["caption"]).most_common(1)
        groups = self.evaluated_groups(split)
        metrics = self.quality([caption] * len(groups), self.references(split, groups))
        return {"most frequent caption": dict(metrics)}

    def views(self, predictor: Predictor, split: str) -> list[View]:
        assert isinstance(predictor, CaptionPredictor)
        groups = self.evaluated_groups(split)
        names = [self.describe_input(split, int(items[0])) for items in groups]
        images = replace(self.encoded[split], targets=None, regions=None)
        hypotheses = self.generate_split(predictor.network, split)
        items = np.array([items[0] for items in groups])
        return caption_views(predictor, images, items, names, hypotheses, self.references(split, groups))


def uneven_attention(weights: Tensor, mask: Tensor) -> Tensor:
    """Returns Σ_i (1 − Σ_t α_{t,i})² of each row (B,), from weights (B,T,S) and a mask (B,T) of the tokens."""
    total = torch.where(mask[:, :, None], weights, 0.0).sum(dim=1)  # (B,S)
    return (1 - total).square().sum(dim=1)
