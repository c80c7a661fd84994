"""Tasks that read one input (text, two texts, numbers or an image) and predict one output: classify and regress.

    input ──► backbone ──► pooling over the elements ──► linear layer ──► labels or numbers

The kind of the input column selects the codec. What differs between the tasks is the meaning of the outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import Diagnostics, SeriatimError
from ..core.state import State
from ..data.dataset import Dataset
from ..data.reader import read_dataset
from ..data.schema import Schema
from ..data.sequences import Sequences
from ..data.source import DataInput, Source, open_source
from ..nn.backbone import Backbone, BackboneSettings
from ..nn.network import Network, VectorHead, as_float32, assemble
from ..report.charts import Image, Lines, Series, View
from .batching import Batch, evenly_spaced, padding_mask
from .capability import Capability
from .codecs import CODECS, InputCodec, TrainedColumns
from .embedding import EmbeddingPredictor, TextReader, no_vectors
from .inputs import INPUT, MODALITIES, PooledSettings
from .inspection import ExplainedOutput, Explainer
from .old import Metrics, Output
from .old import OldTask as Task
from .predictor import Usage
from .processor import Encoded, Processor, TaskConfig, Tokenizers, Values
from .tfidf import Loss, TfidfModel

SAMPLED_ROWS = 4  # validation rows shown during training
REACH_SEQUENCES = 32  # whose gradients are averaged
MIN_REACH_LENGTH = 20  # elements below which a sequence is too short for it
REACH_POINTS = 100  # of a curve


# Processor


@dataclass(frozen=True)
class SequenceProcessor(Processor[Encoded]):
    """Encodes inputs by the codec of their kind. Subclasses add the targets."""

    input: InputCodec[Any]

    @classmethod
    def fit_input(
        cls, train: Dataset, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> InputCodec[Any]:
        """Returns the codec of the input, fitted on the training split, or an error if the model cannot read it."""
        codec = CODECS[train.kind("input")]
        codec.check_model(config.model, train.name)
        fitted = codec.fit(train, "input", config, pretrained, diagnostics)
        diagnostics.raise_problems()
        return fitted

    @abstractmethod
    def encode_targets(self, dataset: Dataset, diagnostics: Diagnostics) -> np.ndarray:
        """Returns the targets (rows,…); reports those that the model does not know."""

    @property
    def hub_layout(self) -> Values:
        return self.input.hub_layout

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs of the network."""

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Encoded:
        inputs = self.input.encode(dataset, "input", diagnostics)
        targets = self.encode_targets(dataset, diagnostics) if "target" in dataset else None
        rows = self.input.kept_rows(inputs)
        if rows is not None and targets is not None:
            targets = targets[rows]
        return Encoded(cast(Sequences, inputs), targets, rows)


# Task


class SequenceTask(Task[Encoded]):
    """The base of tasks with one input and one output per row."""

    modality = None
    processor: SequenceProcessor
    settings: PooledSettings

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for split, dataset in self.datasets.items():
            if split != "train" and split in self.encoded:  # `InputCodec.fit` notes those of the training split
                self.processor.input.note_truncated(split, dataset, self.encoded[split].inputs, self.diagnostics)

    # Data

    @classmethod
    def training_schema(cls, config: TaskConfig) -> Schema:
        """Returns the schema with the kinds that the settings or the model allow for the input."""
        requested = config.model.modality or config.task.input_kind
        if requested not in MODALITIES:
            return cls.schema
        field = replace(INPUT, kinds=MODALITIES[requested].kinds_if_named)
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
        rows = CODECS[rows.kind("input")].clean(rows, config.task, diagnostics)
        return cls.without_empty(rows, diagnostics)

    @classmethod
    def without_empty(cls, rows: Dataset, diagnostics: Diagnostics) -> Dataset:
        dropped = CODECS[rows.kind("input")].drops_empty(rows)
        return super().without_empty(rows, diagnostics) if dropped else rows

    def read(
        self, source: DataInput, schema: Schema | None = None, columns: Mapping[str, str] | None = None
    ) -> Dataset:
        schema = self.schema if schema is None else schema
        if "input" not in schema.roles:
            return super().read(source, schema, columns)
        codec, trained = self.processor.input, TrainedColumns(self.columns, self.kinds)
        opened, overrides, trained = codec.adapt(open_source(source), schema, columns or {}, trained)
        options, diagnostics = self.config.data.read_options(), Diagnostics(self.diagnostics.on_note)
        texts = [stream for stream in opened.streams if not stream.has_binary_extension()]
        if options.encoding != "utf-8" and not any(stream.count_undecodable("utf-8", limit=1) for stream in texts):
            options = replace(options, encoding="utf-8")  # whatever the encoding of the training data
        rows = read_dataset(opened, schema, overrides, options, diagnostics, *trained)
        diagnostics.raise_problems()
        return codec.adapt_rows(rows)

    def encode(self, dataset: Dataset) -> Encoded:
        encoded = super().encode(dataset)
        if "target" not in dataset:  # training raises the problems of all splits together
            self.diagnostics.raise_problems()
        return encoded

    def candidates(self) -> tuple[str, ...]:
        return self.processor.input.candidates(super().candidates())

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
        return self.processor.input.slow

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        encoded, items = self.encoded["train"], self.sampler.items(step, batch_size)
        share = slice(first * len(items) // batch_size, last * len(items) // batch_size)
        inputs, mask = self.processor.input.augment(encoded.inputs, items, share, self.config.seed, step)
        targets = torch.from_numpy(encoded.targets[items[share]])
        return Batch(torch.from_numpy(inputs), targets, len(targets), padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output:
        hidden, mask, _ = network.head_input(batch.inputs, batch.mask)
        head = cast(VectorHead, network.head)
        pooled = head.pooled(hidden, mask)  # (B,D)
        return Output(as_float32(head.outputs(pooled)), pooled)  # (B,outputs)

    def read_unlabeled(self, source: DataInput, data_dir: str | None = None) -> Dataset:
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
        if self.processor.input.text_input is None:
            return None
        targets, loss = self.linear_targets("train")
        validation = None
        if "validation" in self.encoded:
            validation = self.datasets["validation"], self.linear_targets("validation")[0]
        return TfidfModel.fit(self.datasets["train"], targets, loss, validation)

    def evaluate(self, network: nn.Module, split: str = "validation", limit: int | None = None) -> Metrics:
        if limit is not None and split in self.encoded:
            encoded = self.encoded[split]
            elements = int(self.processor.input.sizes(encoded.inputs).sum())
            limit = limit * int(encoded.lengths.sum()) // max(elements, 1)
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
            f"{self.processor.input.describe(dataset, row)} → {prediction} (is {reference})"
            for row, prediction, reference in lines
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
        if not self.processor.input.sequential or length < MIN_REACH_LENGTH:
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
        return self.processor.input.cell(self.datasets[split], item, self.encoded[split].inputs, item)

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
        if self.processor.input.text_input is not None:
            return super().capabilities
        return {name: value for name, value in super().capabilities.items() if name not in EmbeddingPredictor.methods}

    def text_reader(self) -> TextReader:
        texts = self.processor.input.text_input
        if texts is None:
            raise no_vectors(self, "does not read text")
        return TextReader(self, *texts)

    def element_names(self, encoded: Encoded, item: int) -> list[str]:
        return self.processor.input.grid_names(encoded.inputs[item], self.network)

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return self.processor.input.texts_per_input

    def explainer(self) -> Explainer | None:
        readable = self.processor.input.text_input is not None
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

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        capability, (shell, python) = next(iter(self.methods)), self.processor.input.example()
        return [
            Usage(f"seriatim {capability} {run} {shell}", f"print(run.{capability}({python}))"),
            Usage(
                f"seriatim {capability} {run} --data FILE --out predictions.csv",
                f'print(run.{capability}(Path("FILE")).to_frame())',
            ),
        ]


def input_keys(rows: Dataset) -> list[tuple[Hashable, ...]]:
    """Returns a hashable for the input of each row."""
    columns = rows.columns["input"]
    return list(zip(*(map(column.kind.key, column.values) for column in columns), strict=True))
