"""Tasks that read one input (text, two texts, numbers or an image) and predict one output: classify and regress.

    input ──► backbone ──► pooling over the elements ──► linear layer ──► labels or numbers

The kind of the input column selects the codec. What differs between the tasks is the meaning of the outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from pydantic import Field as Setting
from torch import Tensor, nn

from ..core.device import numpy_stream
from ..core.errors import Diagnostics, SeriatimError
from ..core.state import State
from ..data.dataset import Column, Dataset
from ..data.images import IMAGE
from ..data.images.batches import Images
from ..data.kinds import NUMBER, NUMBERS, TEXT, Kind
from ..data.reader import read_dataset
from ..data.schema import Field, Schema
from ..data.sequences import Sequences
from ..data.source import DataInput, Source, open_source
from ..nn.backbone import Backbone, BackboneSettings, ModelSettings
from ..nn.names import Pooling
from ..nn.network import Network, VectorHead, as_float32, assemble
from ..report.charts import Image, Lines, Series, View
from .batching import Batch, evenly_spaced
from .capability import Capability, Record
from .codecs import CODECS, ImageCodec, InputCodec, NumberCodec, SequenceSettings, TextCodec
from .embedding import EmbeddingPredictor, TextReader, no_vectors
from .inspection import ExplainedOutput, Explainer
from .old import Metrics, Output
from .old import OldTask as Task
from .predictor import Usage
from .processor import Encoded, Processor, TaskConfig, Tokenizers
from .tfidf import Loss, TfidfModel

AUGMENTATION_STREAM = "pictures"  # name of the random numbers of shifts and flips: trained weights depend on it
ELEMENTS_PER_IMAGE = 100  # that an image counts for if an evaluation is limited
SAMPLED_ROWS = 4  # validation rows shown during training
MAX_CHARACTERS = 200  # of an input in a table
MAX_LISTED = 5  # rows in an error
REACH_SEQUENCES = 32  # whose gradients are averaged
MIN_REACH_LENGTH = 20  # elements below which a sequence is too short for it
REACH_POINTS = 100  # of a curve
ANY_NUMBERS = replace(NUMBERS, guessed=None)  # also texts such as "0.1 0.2", which nobody would guess to be numbers
KIND_BY_SETTING: Mapping[str, tuple[Kind, ...]] = {"text": (TEXT,), "numbers": (ANY_NUMBERS, NUMBER), "image": (IMAGE,)}

TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("query", "passage"),
)
INPUT = Field(
    "input",
    (NUMBERS, IMAGE, TEXT, NUMBER),
    ("text", "sentence", "review", "sequence", "primary", "image", "inputs"),  # "primary": proteins in TAPE
    TEXT_PAIRS,
    max_columns=None,
)
TARGET_NAMES = ("label", "labels", "class", "sentiment", "targets", "y")


class PooledSettings(SequenceSettings):
    """Settings of tasks that pool the outputs of all elements."""

    pooling: Pooling = Setting("mean", description="how the outputs of all elements become one vector")


# Processor


@dataclass(frozen=True)
class SequenceProcessor(Processor[Encoded]):
    """Encodes inputs by the codec of their kind. Subclasses add the targets."""

    input: InputCodec

    @classmethod
    def fit_input(
        cls, train: Dataset, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> InputCodec:
        """Returns the codec of the input, fitted on the training split, or an error if the model cannot read it."""
        model: ModelSettings = config.model
        kind = train.kind("input")
        if model.images_only and kind is not IMAGE:
            cause = f"{model.name} reads images, and {train.name} has none"
            raise SeriatimError("task.images", cause, "choose another --model, or pass images")
        if kind is IMAGE and (model.gradient_free or model.encoder_decoder):
            raise SeriatimError("task.images", f"{model.name} cannot read images", "choose resnet, vit or lstm")
        codec = CODECS[kind].fit(train, "input", config, pretrained, diagnostics)
        diagnostics.raise_problems()
        return codec

    @abstractmethod
    def encode_targets(self, dataset: Dataset, diagnostics: Diagnostics) -> np.ndarray:
        """Returns the targets (rows,…); reports those that the model does not know."""

    @property
    def image_layout(self) -> dict[str, Any] | None:
        codec = self.input
        if not isinstance(codec, ImageCodec):
            return None
        return {"height": codec.height, "width": codec.width, "channels": codec.channels, "fit": codec.fit_mode}

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs of the network."""

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Encoded:
        inputs = self.input.encode(dataset, "input", diagnostics)
        targets = self.encode_targets(dataset, diagnostics) if "target" in dataset else None
        rows = inputs.source_rows if isinstance(inputs, Images) else None
        if rows is not None and targets is not None:
            targets = targets[rows]
        return Encoded(cast(Sequences, inputs), targets, rows)


# Task


class SequenceTask(Task[Encoded]):
    """The base of tasks with one input and one output per row."""

    images = True
    processor: SequenceProcessor
    settings: PooledSettings

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for split, dataset in self.datasets.items():
            if split != "train" and split in self.encoded:  # `InputCodec.fit` notes those of the training split
                self._note_truncated(split, dataset)

    # Data

    def _note_truncated(self, split: str, dataset: Dataset) -> None:
        """Notes how many sequences of a split are longer than the model reads: it is built for the training split."""
        codec, inputs = self.processor.input, self.encoded[split].inputs
        if (
            not isinstance(codec, (TextCodec, NumberCodec))
            or codec.max_length is None
            or not isinstance(inputs, Sequences)
        ):
            return
        rows = np.flatnonzero(inputs.lengths == codec.max_length)
        whole = replace(codec, max_length=None).encode(dataset.take(rows), "input")
        if truncated := int((whole.lengths > codec.max_length).sum()):
            count = f"{truncated:,} of {len(dataset):,} {split} sequences"
            self.diagnostics.note(f"{count} are truncated to {codec.max_length:,} elements (task.context_length)")

    @classmethod
    def training_schema(cls, config: TaskConfig) -> Schema:
        """Returns the schema with the kinds that the settings or the model allow for the input."""
        requested = "image" if config.model.images_only else config.task.input_kind
        if requested == "auto":
            return cls.schema
        field = replace(INPUT, kinds=KIND_BY_SETTING[requested])
        return replace(cls.schema, fields=(field, *cls.schema.fields[1:]))

    @classmethod
    def read_training_data(
        cls, source: Source, config: TaskConfig, diagnostics: Diagnostics, like: Dataset | None = None
    ) -> Dataset:
        """Returns the rows of a source without those whose input is empty, or cannot be read and should be skipped."""
        settings = config.data
        if "split" in settings.columns and (settings.validation or settings.test):
            cause = f'two sources of splits: the column "{settings.columns["split"]}" and files'
            raise SeriatimError("data.split", cause, "omit data.columns.split, or --validation and --test")
        schema = cls.training_schema(config)
        rows = cls.read_rows(source, config, diagnostics, like, schema)
        columns = rows.columns["input"]
        if rows.kind("input") is ANY_NUMBERS:
            columns = tuple(replace(column, kind=NUMBERS) for column in columns)
            rows = replace(rows, columns={**rows.columns, "input": columns})
        if rows.kind("input") is IMAGE:
            return rows if config.task.images.broken == "error" else skip_broken(rows, diagnostics)
        sizes = np.stack([column.sizes for column in columns])  # (columns, rows)
        if rows.kind("input") is TEXT and ((partly := (sizes == 0).any(axis=0) & (sizes > 0).any(axis=0)).any()):
            first = rows.locations[int(partly.argmax())]
            diagnostics.note(f"{rows.name}: {partly.sum():,} rows have one of two texts, the first at {first}")
        return cls.without_empty(rows, diagnostics)

    @classmethod
    def without_empty(cls, rows: Dataset, diagnostics: Diagnostics) -> Dataset:
        """Missing numbers of a sequence in several columns are errors, and images are never empty."""
        return rows if rows.kind("input") in (NUMBER, IMAGE) else super().without_empty(rows, diagnostics)

    def read(
        self, source: DataInput, schema: Schema | None = None, columns: Mapping[str, str] | None = None
    ) -> Dataset:
        schema = self.schema if schema is None else schema
        if "input" not in schema.roles:
            return super().read(source, schema, columns)
        opened, overrides, codec = open_source(source), dict(columns or {}), self.processor.input
        if "target" not in schema.roles and isinstance(codec, TextCodec) and codec.texts != 1:
            opened = unpack_pairs(opened)
            if not overrides and list(opened.columns or ()) == ["column 1", "column 2"]:
                overrides["input"] = "column 1,column 2"
        kinds = self.kinds
        if kinds.get("input") is NUMBER and "input" not in overrides and not self._has_columns(opened):
            kinds = {**kinds, "input": NUMBERS}  # a list instead of a number in each of several columns
        options, diagnostics = self.config.data.read_options(), Diagnostics(self.diagnostics.on_note)
        texts = [stream for stream in opened.streams if not stream.has_binary_extension()]
        if options.encoding != "utf-8" and not any(stream.count_undecodable("utf-8", limit=1) for stream in texts):
            options = replace(options, encoding="utf-8")  # whatever the encoding of the training data
        rows = read_dataset(opened, schema, overrides, options, diagnostics, self.columns, kinds)
        diagnostics.raise_problems()
        if not isinstance(codec, TextCodec) or codec.texts == 1 or len(rows.columns["input"]) > 1:
            return rows
        if codec.texts is None and not (len(rows) and all(text.count("\t") == 1 for text in rows["input"])):
            return rows  # a model trained elsewhere reads both, and these are single texts
        return split_pairs(rows)

    def _has_columns(self, source: Source) -> bool:
        """Returns whether a source may have the input columns of the training data: not lines, not a list of inputs."""
        if source.columns is None:
            return any(stream.extension != "txt" for stream in source.streams)
        return set(self.columns["input"].split(",")) <= set(source.columns)

    def encode(self, dataset: Dataset) -> Encoded:
        encoded = super().encode(dataset)
        if "target" not in dataset:  # training raises the problems of all splits together
            self.diagnostics.raise_problems()
        return encoded

    def candidates(self) -> tuple[str, ...]:
        return ("resnet", "vit", "gru") if isinstance(self.processor.input, ImageCodec) else super().candidates()

    # Network

    def head(self, backbone: Backbone, model: BackboneSettings) -> nn.Module:
        """Returns the head: pooling and a linear layer."""
        pooling = self.settings.pooling
        if pooling == "first" and backbone.causal:
            cause = f"{model.name} is causal: the output of the first element depends on nothing but this element"
            raise SeriatimError("task.pooling", cause, "choose last, mean, max or attention: --pooling")
        dropout = model.dropout if pooling == "first" else 0.0
        outputs = len(self.processor.outputs)
        return VectorHead(backbone.width, outputs, pooling, backbone.directions, dropout, model.pooler)

    def network(self, model: BackboneSettings) -> nn.Module:
        codec = self.processor.input
        module, width = codec.input_module(model)
        length = codec.sequence_length(module)
        return assemble(model, module, width, length, lambda backbone: self.head(backbone, model))

    # Training

    @property
    def prefetch(self) -> bool:  # type: ignore[override]
        """Whether the next batch is made in a background thread: images take time."""
        return isinstance(self.processor.input, ImageCodec)

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        codec, encoded = self.processor.input, self.encoded["train"]
        if not isinstance(codec, ImageCodec):
            return super().batch(step, first, last, batch_size)
        items = self.sampler.items(step, batch_size)
        share = slice(first * len(items) // batch_size, last * len(items) // batch_size)
        generator = numpy_stream(self.config.seed, AUGMENTATION_STREAM, step)
        pixels = cast(Images, encoded.inputs).augmented(items, generator, codec.flip, share)
        targets = torch.from_numpy(encoded.targets[items[share]])
        return Batch(torch.from_numpy(pixels), targets, len(targets))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output:
        hidden, mask, _ = network.head_input(batch.inputs, batch.mask)
        head = cast(VectorHead, network.head)
        pooled = head.pooled(hidden, mask)  # (B,D)
        return Output(as_float32(head.outputs(pooled)), pooled)  # (B,outputs)

    def read_unlabeled(self, source: DataInput, data_dir: str | None = None) -> Dataset:
        if isinstance(self.processor.input, ImageCodec):
            raise SeriatimError("distill.unlabeled", "unlabeled images are not supported", "omit --unlabeled-data")
        rows = self.read(open_source(source, data_dir), self.schema.inputs())
        sizes = np.stack([column.sizes for column in rows.columns["input"]])
        rows = rows.take(np.flatnonzero(sizes.max(axis=0) > 0))
        self.diagnostics.note(f"{rows.name}: {len(rows):,} unlabeled rows")
        unlabeled = set(input_keys(rows))
        for split in ("validation", "test"):
            if split in self.datasets:
                repeated = sum(key in unlabeled for key in input_keys(self.datasets[split]))
                if repeated:
                    share = f"{repeated:,} of {len(self.datasets[split]):,} {split} rows"
                    self.diagnostics.note(f"{share} are among the unlabeled rows: their metrics are too optimistic")
        return rows

    # Evaluation

    @abstractmethod
    def linear_targets(self, split: str) -> tuple[np.ndarray, Loss]:
        """Returns the targets of a split and the loss for a linear model; see `TfidfModel.fit`."""

    @cached_property
    def tfidf(self) -> TfidfModel | None:
        """A linear model of TF-IDF vectors, fitted to the training split; None if the input is not text."""
        if not isinstance(self.processor.input, TextCodec):
            return None
        targets, loss = self.linear_targets("train")
        validation = None
        if "validation" in self.encoded:
            validation = self.datasets["validation"], self.linear_targets("validation")[0]
        return TfidfModel.fit(self.datasets["train"], targets, loss, validation)

    def evaluate(self, network: nn.Module, split: str = "validation", limit: int | None = None) -> Metrics:
        if limit is not None and isinstance(self.processor.input, ImageCodec) and split in self.encoded:
            limit = limit * int(self.encoded[split].lengths.max(initial=1)) // ELEMENTS_PER_IMAGE
        return super().evaluate(network, split, limit)

    def sample(self, network: nn.Module) -> str:
        """Returns a few validation inputs with their predictions and references."""
        dataset, encoded = self.datasets["validation"], self.encoded["validation"]
        items = evenly_spaced(len(encoded), SAMPLED_ROWS)
        rows = items if encoded.rows is None else encoded.rows[items]
        few = Encoded(encoded.inputs.take(items), encoded.targets[items])
        predictions = self.describe_predictions(self.predictor(network).scores(few))
        references = self.describe_references(few.targets)
        lines = zip(rows.tolist(), predictions, references, strict=True)
        return "\n".join(
            f"{describe_input(dataset, row)} → {prediction} (is {reference})" for row, prediction, reference in lines
        )

    @abstractmethod
    def describe_predictions(self, scores: Sequence[np.ndarray]) -> list[str]:
        """Returns the predictions as short texts."""

    @abstractmethod
    def describe_references(self, targets: np.ndarray) -> list[str]:
        """Returns the encoded targets as short texts."""

    def gradient_reach(self, network: nn.Module, split: str) -> list[View]:
        """Returns a chart of the gradient of the loss by distance from the last element: how far back training reaches.

        Sequences of one length are averaged, the longest that is frequent; before training and after it.
        """
        encoded = self.encoded[split]
        lengths = encoded.lengths
        length = int(np.quantile(lengths, 0.75, method="nearest"))
        if isinstance(encoded.inputs, Images) or length < MIN_REACH_LENGTH:
            return []
        items = np.flatnonzero(lengths == length)[:REACH_SEQUENCES]
        batch = self.collate(encoded, items)
        curves = (self._gradient_norms(self.build(), batch), self._gradient_norms(network, batch))
        return [
            Lines(
                title="How far back training reaches",
                note=f"mean over {len(items)} sequences of {length} elements",
                x="elements before the last",
                y="gradient of the loss by the input",
                log_y=True,
                join="reach",
                series=(
                    Series("before training", *curves[0], dashed=True),
                    Series("after training", *curves[1]),
                ),
            )
        ]

    def _gradient_norms(self, network: Any, batch: Batch) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Returns distances from the last element, and the root mean square of the gradient there."""
        batch = batch.to(next(network.parameters()).device)
        vectors = network.eval().input(batch.inputs).detach().requires_grad_()  # (B,T,D)
        tail = Network(nn.Identity(), network.backbone, network.head)
        batch = replace(batch, inputs=vectors)
        (gradient,) = torch.autograd.grad(self.loss(self.forward(tail, batch), batch), vectors)
        squares = gradient.cpu().double().square().sum(dim=-1).mean(dim=0).numpy()  # (T,)
        bins = np.array_split(np.arange(len(squares)), min(len(squares), REACH_POINTS))
        distances = tuple(len(squares) - 1 - float(positions.mean()) for positions in bins)
        return distances, tuple(float(np.sqrt(squares[positions].mean())) for positions in bins)

    def input_cell(self, split: str, item: int) -> str | Image:
        """Returns an input for a table of the report: an image, or a short text."""
        encoded, dataset = self.encoded[split], self.datasets[split]
        if isinstance(encoded.inputs, Images):
            from ..data.images.decode import thumbnail  # imports Pillow

            return Image(thumbnail(encoded.inputs[item]))
        return describe_input(dataset, item)

    def location(self, split: str, item: int) -> str:
        """Returns the location of an item, as the report shows it."""
        rows = self.encoded[split].rows
        return str(self.datasets[split].locations[item if rows is None else int(rows[item])])


# Prediction


class SequencePredictor(EmbeddingPredictor):
    """The base of predictors with one input per row; those that read text have embeddings."""

    processor: SequenceProcessor

    @property
    def capabilities(self) -> dict[str, Capability]:
        """The declared capabilities, without embeddings if the model does not read text."""
        if isinstance(self.processor.input, TextCodec):
            return super().capabilities
        return {name: value for name, value in super().capabilities.items() if name not in EmbeddingPredictor.methods}

    def text_reader(self) -> TextReader:
        codec = self.processor.input
        if not isinstance(codec, TextCodec):
            raise no_vectors(self, "does not read text")
        return TextReader(self, codec.tokenizer, codec.max_length)

    def element_names(self, encoded: Encoded, item: int) -> list[str]:
        if isinstance(self.processor.input, ImageCodec):
            rows, columns = self.network.get_submodule("input").grid
            return [f"row {row + 1}, column {column + 1}" for row in range(rows) for column in range(columns)]
        return self.processor.input.element_names(encoded.inputs[item])

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        codec = self.processor.input
        texts = codec.texts if isinstance(codec, TextCodec) else 1
        return (1, 2) if texts is None else (texts,)

    def explainer(self) -> Explainer | None:
        readable = isinstance(self.processor.input, TextCodec)
        return self.explain_output if readable else None

    def explain_output(
        self, encoded: Encoded, item: int, output: Tensor, target: str | None, position: int | None
    ) -> ExplainedOutput:
        """Returns the output to explain: that of a name, by default of the prediction; see `Explainer`."""
        if position is not None:
            raise SeriatimError("inspect.position", "the prediction is for the whole input", "omit --position")
        return self.explained(output, target)

    def explained(self, output: Tensor, target: str | None) -> ExplainedOutput:
        """Returns one of the outputs of the network (1,outputs)."""
        raise TypeError(f"{type(self).__name__} has no explained")

    def add_file_names(self, dataset: Dataset, predictions: list[Record]) -> list[Record]:
        """Returns the predictions, those of image files with their name."""
        if dataset.kind("input") is not IMAGE:
            return predictions
        for value, prediction in zip(dataset["input"], predictions, strict=True):
            if isinstance(value, Path):
                prediction["image"] = str(value)
        return predictions

    def usage(self, run: str) -> list[Usage]:
        capability, codec = next(iter(self.methods)), self.processor.input
        if isinstance(codec, ImageCodec):
            shell, python = "photo.png", '["photo.png"]'
        elif isinstance(codec, TextCodec) and codec.texts == 2:
            shell, python = "$'a text\\tanother text'", '[("a text", "another text")]'
        elif isinstance(codec, TextCodec):
            shell, python = '"a text"', '["a text"]'
        elif isinstance(codec, NumberCodec) and codec.width > 1:
            step = f"[{', '.join(f'0.{number}' for number in range(1, min(codec.width, 9) + 1))}]"
            shell, python = f'"[{step}, {step}]"', f"[[{step}, {step}]]"
        else:
            shell, python = '"0.1 0.2 0.3"', "[[0.1, 0.2, 0.3]]"
        return [
            Usage(f"seriatim {capability} {run} {shell}", f"print(run.{capability}({python}))"),
            Usage(
                f"seriatim {capability} {run} --data FILE --out predictions.csv",
                f'print(run.{capability}(Path("FILE")).to_frame())',
            ),
        ]


# Inputs


def skip_broken(rows: Dataset, diagnostics: Diagnostics) -> Dataset:
    """Returns the rows whose image has a readable header; notes how many are left out."""
    from ..data.images.store import read_headers  # imports Pillow

    errors = [header if isinstance(header, SeriatimError) else None for header in read_headers(rows["input"])]
    broken = [error for error in errors if error is not None]
    if not broken or len(broken) == len(rows):
        return rows
    diagnostics.note(f"{len(broken):,} of {len(rows):,} images are left out, the first: {broken[0].cause}")
    return rows.take(np.flatnonzero([error is None for error in errors]))


def unpack_pairs(source: Source) -> Source:
    """Returns a source of pairs, such as lists from JSON, as two columns; any other source as it is."""
    if source.columns is None or len(source.columns) != 1:
        return source
    (cells,) = source.columns.values()
    if not len(cells) or not all(isinstance(cell, (list, tuple)) and len(cell) == 2 for cell in cells):
        return source
    return replace(source, columns={f"column {side + 1}": [cell[side] for cell in cells] for side in (0, 1)})


def split_pairs(rows: Dataset) -> Dataset:
    """Returns rows of one text each as rows of two, written with a tab between them."""
    texts = rows["input"]
    wrong = [row for row, text in enumerate(texts) if text.count("\t") != 1]
    if wrong:
        shown = "; ".join(f"{rows.locations[row]}: {texts[row][:40]!r}" for row in wrong[:MAX_LISTED])
        more = f" (and {len(wrong) - MAX_LISTED:,} more)" if len(wrong) > MAX_LISTED else ""
        raise SeriatimError(
            "data.pair",
            f"the model was trained on two texts, and not every row has two: {shown}{more}",
            "separate both texts by one tab (in bash $'a text\\tanother'), or pass a table with both columns",
        )
    sides = zip(*(text.split("\t") for text in texts), strict=True) if len(texts) else ((), ())
    columns = tuple(Column(f"text {number}", TEXT, TEXT.store(side)) for number, side in enumerate(sides, 1))
    return replace(rows, columns={**rows.columns, "input": columns})


def input_keys(rows: Dataset) -> list[tuple[Hashable, ...]]:
    """Returns a hashable for the input of each row."""
    columns = rows.columns["input"]
    return list(zip(*(map(column.kind.key, column.values) for column in columns), strict=True))


def describe_input(dataset: Dataset, row: int) -> str:
    """Returns the input of a row as a short text; of an image its location."""
    values = [column.values[row] for column in dataset.columns["input"]]
    if dataset.kind("input") is IMAGE:
        return str(dataset.locations[row])
    if dataset.kind("input") is TEXT:
        limit = MAX_CHARACTERS // len(values)
        return " ⇥ ".join(text if len(text) <= limit else text[:limit] + " …" for text in values)
    numbers = np.concatenate([np.reshape(value, -1) for value in values])
    steps = len(values) if dataset.kind("input") is NUMBER else len(values[0])
    return f"{steps} steps: " + " ".join(f"{value:.3g}" for value in numbers[:12]) + (" …" if len(numbers) > 12 else "")
