"""The task caption: network, loss, evaluation and what a report shows.

A residual network (or patches) turns the image into a grid of vectors, which is the memory of an encoder–decoder like
that of a sentence. If the model attends, each word shows where; `penalty` asks that every cell gets about the same
attention in the end (Xu et al. 2015):

    loss = Σ_t −log p(y_t) + λ Σ_i (1 − Σ_t α_{t,i})²
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.errors import Diagnostics, SeriatimError
from ...core.state import State
from ...core.text import evenly_spaced
from ...data.dataset import Dataset
from ...data.source import Source
from ...decode.seq2seq import ALIGNMENT, Seq2Seq, TargetScores, encode_sources
from ...decode.settings import BeamSettings
from ...models.resnet import Settings as ResNetSettings
from ...nn.backbone import BackboneSettings, NamedTrace
from ...nn.encoder_decoder import EncoderDecoder
from ...nn.images import (
    FeatureMapInput,
    ImageEncoderDecoder,
    ImageInput,
    ImageShape,
    ResNet,
    image_encoder_decoder_network,
)
from ...nn.loss import TokenScores
from ...report.charts import View
from ..base import IGNORED, SAMPLED_SIZE, Progress
from ..batching import Batch, LengthSampler, Sampler
from ..encoder_decoder import SAMPLED_SOURCES, SHOWN_SAMPLES, EncoderDecoderTask, shift_targets
from ..inspection import ImageAttention, TokenizedText
from ..metrics import Scoring, caption_metrics, token_metrics
from ..predictor import Predictor
from ..processor import tokenizer_mismatches
from ..spec import TaskConfig
from ..values import Evaluation, Metrics, Output, Split, Splits
from .captioner import Captioner
from .predictor import CaptionPredictor
from .processor import SMALL_IMAGE, CaptionProcessor, EncodedCaptions, collate_captions, image_groups
from .rows import (
    BY_IMAGE,
    MissingFiles,
    PointedNoun,
    expand_captions,
    held_out_rows,
    locate_images,
    point,
    pointing_metrics,
)
from .spec import SPEC, CaptionSettings, EncoderName
from .views import wrong_captions

__all__ = ["CaptionPredictor", "CaptionProcessor", "CaptionSettings", "CaptionTask"]

CHANNELS = {"local": (64, 16), "resnet": (64, 32)}  # of the first stage, for photographs and for small images
IMAGE_SIZE = 1_000  # what an image counts for in a sample: 200 images by default
MAX_TRAIN_IMAGES = 1_000  # of the training split, that are evaluated
SHOWN_IMAGES = 4  # with the attention of each word
MAX_WORDS = 20  # of a caption whose attention is shown


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
class CaptionOutput(Output[TokenScores]):
    """The scores of all tokens, and the attention that a penalty is for."""

    attention: Tensor | None = None  # (B,T,S) over the cells


@dataclass(frozen=True, eq=False)
class Captions:
    """What an evaluation has generated: the best caption and the references of each image."""

    names: list[str]  # of the images
    shown: np.ndarray  # an item of each image (n,)
    hypotheses: list[str]
    references: list[list[str]]
    attentions: list[tuple[str, ImageAttention]]  # of a few captions


class CaptionTask(EncoderDecoderTask[CaptionSettings, CaptionProcessor, EncodedCaptions, Captions]):
    spec = SPEC
    split_policy = BY_IMAGE
    processor_type = CaptionProcessor
    predictor_type = CaptionPredictor

    # Reading

    @classmethod
    def clean(
        cls,
        rows: Dataset,
        source: Source,
        config: TaskConfig[CaptionSettings],
        diagnostics: Diagnostics,
        predicting: bool,
        train: Dataset | None = None,
    ) -> Dataset:
        settings = config.task
        missing_files: MissingFiles = "keep" if predicting else settings.images.broken
        rows = locate_images(rows, source, settings.image_folder, missing_files, diagnostics)
        if "caption" in rows:
            rows = expand_captions(rows, settings.normalize, not predicting, diagnostics)
        if not len(rows) and not predicting:
            raise SeriatimError("data.empty", f"{source.name} has no captions", "pass images with captions")
        return rows

    def link(self, splits: Splits[EncodedCaptions], diagnostics: Diagnostics) -> Splits[EncodedCaptions]:
        """Returns the splits without images that another split holds out, with the captions of each image."""
        kept = held_out_rows({name: split.rows for name, split in splits.parts.items()}, diagnostics)
        parts = {name: split.take(kept[name]) if name in kept else split for name, split in splits.parts.items()}
        judged = next(parts[name] for name in ("validation", "test", "train") if name in parts)
        scoring, limit = Scoring.of(list(judged.rows["caption"])), self.settings.context_length
        for name, split in parts.items():
            groups = image_groups(split.rows, split.items, limit if name == "train" else None)
            if (shown := len(groups.values)) < len(split.items):
                diagnostics.note(
                    f"{len(split.items) - shown:,} of {len(split.items):,} captions have more than {limit} tokens and "
                    "are not trained on"
                )
            parts[name] = replace(split, items=replace(split.items, groups=groups, scoring=scoring))
        return Splits(parts)

    # Network and training

    def network(self, model: BackboneSettings) -> ImageEncoderDecoder:
        settings, shape = self.settings, self.processor.image.layout.shape
        image = image_encoder(settings.encoder, model, shape, settings.layers, settings.channels)
        self.processor.image.standardize(image)
        sizes = self.processor.target.vocab_size, self.processor.context_length
        return image_encoder_decoder_network(model, image, shape, *sizes, settings.score, settings.learned_values)

    @property
    def prefetch(self) -> bool:
        return self.processor.image.slow

    def sampler(self, train: EncodedCaptions, diagnostics: Diagnostics) -> Sampler:
        """Images in random order, each with all its captions, whatever their lengths: batch norm needs a mixture."""
        assert train.groups is not None
        count = len(train.groups)
        return LengthSampler(np.arange(count), np.ones(count, dtype=np.int64), self.config.seed)

    def training_batch(self, train: EncodedCaptions, chosen: np.ndarray, share: slice, step: int) -> Batch:
        """Returns augmented images (B,C,H,W), decoder inputs of all their captions, and the image of each caption."""
        assert train.groups is not None
        assert train.targets is not None
        groups = [train.groups[image] for image in chosen.tolist()]
        images = np.array([items[0] for items in groups])
        shown, _ = self.processor.image.augment(train.inputs, images, share, self.config.seed, step)
        owners = np.repeat(np.arange(len(shown)), [len(items) for items in groups[share]])
        captions = np.concatenate(groups[share])
        decoder_inputs, targets, count = shift_targets(train.targets, captions, self.processor.tokens.start)
        return Batch((torch.from_numpy(shown), decoder_inputs, torch.from_numpy(owners)), targets, count)

    def collate(self, items: EncodedCaptions, chosen: np.ndarray) -> Batch:
        """Returns images (B,C,H,W), decoder inputs (B,T) and targets (B,T)."""
        return collate_captions(items, chosen, self.processor.tokens.start)

    def forward(self, network: EncoderDecoder, batch: Batch, state: State = None) -> Output[TokenScores]:
        if not self.settings.penalty:
            return super().forward(network, batch)
        trace = NamedTrace(ALIGNMENT)
        hidden, _ = network.decode(batch.inputs[1], encode_sources(network, batch), None, trace)
        vectors = hidden[batch.targets != IGNORED]  # (N,D)
        scores = TokenScores(vectors, network.head.weight, network.head.bias)
        return CaptionOutput(scores, vectors, attention=trace.get(ALIGNMENT))

    def loss(self, output: Output[TokenScores], batch: Batch, smoothing: float = 0.0) -> Tensor:
        loss = super().loss(output, batch, smoothing)
        if isinstance(output, CaptionOutput) and output.attention is not None:
            loss = loss + self.settings.penalty * uneven_attention(output.attention, batch.targets != IGNORED).sum()
        return loss

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        assert isinstance(teacher, CaptionPredictor)
        ours, theirs = self.processor, teacher.task.processor
        mismatches = tokenizer_mismatches(ours.target, theirs.target)
        shape, other = ours.image.layout.shape, theirs.image.layout.shape
        if shape != other:
            mismatches.append(f"images have the shape {shape}, the teacher's {other}")
        return mismatches

    # Evaluation

    def sample_split(self, split: Split[EncodedCaptions], limit: int | None = None) -> Split[EncodedCaptions]:
        """Returns evenly spaced images with all their captions, some of which are captioned."""
        groups = split.items.groups
        assert groups is not None
        most = max((SAMPLED_SIZE if limit is None else limit) // IMAGE_SIZE, 1)
        if most < len(groups):
            items = np.concatenate([groups[number] for number in evenly_spaced(len(groups), most).tolist()])
            split = split.take(np.sort(split.items.row_numbers(items)))
        captioned = np.unique(evenly_spaced(min(most, len(groups)), SAMPLED_SOURCES))
        return replace(split, items=replace(split.items, captioned=captioned))

    def evaluate(
        self, network: EncoderDecoder, split: Split[EncodedCaptions], progress: Progress | None = None
    ) -> Evaluation[EncodedCaptions, Captions]:
        """Returns the metrics of captions, loss, perplexity and accuracy of the true tokens, and of the attention."""
        decoder, items = Seq2Seq((network.eval(),), self.processor.tokens), split.items
        captioner = Captioner(self.processor, decoder)
        assert items.groups is not None
        assert items.scoring is not None
        most = MAX_TRAIN_IMAGES if split.name == "train" else len(items.groups)
        groups = [items.groups[number] for number in evenly_spaced(len(items.groups), most).tolist()]
        captions = split.rows["caption"]
        chosen = groups if items.captioned is None else [groups[number] for number in items.captioned.tolist()]
        references = [[captions[row] for row in items.row_numbers(group).tolist()] for group in chosen]
        shown = np.array([group[0] for group in chosen])
        images, options = items.inputs.take(shown), BeamSettings(beams=self.settings.beams)
        hypotheses = [group[0].text for group in captioner.caption(images, options, progress)]
        quality = caption_metrics(hypotheses, references, items.scoring.closed)

        evaluated = np.concatenate(groups)
        alignment = items.regions is not None and decoder.has_alignment
        scores = captioner.score(items.take(evaluated), alignment, max_length=decoder.context_length)
        pointing = self.point(split, evaluated, scores, captioner.grid) if alignment else {}
        attentions: list[tuple[str, ImageAttention]] = []
        if decoder.has_alignment:
            short = [n for n, text in enumerate(hypotheses) if 0 < len(text.split()) <= MAX_WORDS]
            drawn = [short[n] for n in evenly_spaced(len(short), SHOWN_IMAGES).tolist()]
            texts = [hypotheses[n] for n in drawn]
            attentions = list(zip(texts, captioner.attend(images.take(drawn), texts), strict=True)) if drawn else []
        names = [self.describe_image(split, int(item)) for item in shown]
        outputs = Captions(names, shown, hypotheses, references, attentions)
        metrics = {**quality, **pointing, **token_metrics(scores)}
        return Evaluation(split, metrics, outputs, quality.examples, quality.signatures)

    def point(
        self,
        split: Split[EncodedCaptions],
        evaluated: np.ndarray,
        scores: Sequence[TargetScores],
        grid: tuple[int, int],
    ) -> Metrics:
        """Returns how often the attention of a noun points at its box.

        Args:
            split: With regions.
            evaluated: Some of its items.
            scores: Of their captions, with the weights over the cells.
            grid: Rows and columns of the cells.
        """
        items, captions = split.items, split.rows["caption"]
        assert items.regions is not None
        assert items.targets is not None
        _, height, width = self.processor.image.layout.shape
        nouns: list[PointedNoun] = []
        rows = items.row_numbers(evaluated)
        for item, row, one in zip(evaluated.tolist(), rows.tolist(), scores, strict=True):
            assert one.weights is not None
            words = TokenizedText.of(self.processor.target, items.targets[item].tolist(), captions[row])
            nouns += point(one.weights, words.groups, grid, (height, width), items.regions[item])
        return pointing_metrics(nouns)

    def describe_image(self, split: Split[EncodedCaptions], item: int) -> str:
        """Returns the name of the image of an item, or its location."""
        image = split.rows["image"][int(split.items.row_numbers(np.array([item]))[0])]
        return split.location(item) if isinstance(image, (bytes, np.ndarray)) else str(image.name)

    def baselines(self, splits: Splits[EncodedCaptions], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of the most frequent training caption, whatever the image shows."""
        ((caption, _),) = Counter(splits.train.rows["caption"]).most_common(1)
        metrics = {}
        for name in names:
            items, captions = splits[name].items, splits[name].rows["caption"]
            assert items.groups is not None
            assert items.scoring is not None
            groups = [items.row_numbers(items.groups[number]) for number in range(len(items.groups))]
            references = [[captions[row] for row in rows.tolist()] for rows in groups]
            quality = caption_metrics([caption] * len(groups), references, items.scoring.closed)
            metrics[name] = {"most frequent caption": dict(quality)}
        return metrics

    def sample(self, evaluation: Evaluation[EncodedCaptions, Captions]) -> str:
        """Returns a few images with their captions, and a reference of each."""
        outputs = evaluation.outputs
        spaced = evenly_spaced(len(outputs.names), SHOWN_SAMPLES + 2)[1:-1].tolist()
        return "\n".join(
            f"{outputs.names[n]}\n  → {outputs.hypotheses[n]}\n  = {outputs.references[n][0]}" for n in spaced
        )

    def views(self, evaluation: Evaluation[EncodedCaptions, Captions]) -> list[View]:
        outputs = evaluation.outputs
        texts = outputs.hypotheses, outputs.references
        return [
            *(attention.chart(f"Attention: {text}") for text, attention in outputs.attentions),
            *wrong_captions(evaluation.split.items, outputs.shown, outputs.names, *texts),
        ]


def uneven_attention(weights: Tensor, mask: Tensor) -> Tensor:
    """Returns Σ_i (1 − Σ_t α_{t,i})² of each row (B,), from weights (B,T,S) and a mask (B,T) of the tokens."""
    total = torch.where(mask[:, :, None], weights, 0.0).sum(dim=1)  # (B,S)
    return (1 - total).square().sum(dim=1)
