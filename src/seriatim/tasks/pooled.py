"""Tasks that read one input (text, two texts, numbers or an image) and predict one output: classify and regress.

    input ──► backbone ──► pooling over the elements ──► linear layer ──► labels or numbers

The kind of the input column selects the codec. What differs between the tasks is the meaning of the outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..core.device import derive
from ..core.errors import Diagnostics, SeriatimError
from ..core.state import State
from ..core.text import evenly_spaced
from ..data.dataset import Dataset
from ..data.schema import Schema
from ..data.sequences import Sequences
from ..data.source import DataInput, Source, open_source
from ..embedding.reader import TextReader
from ..nn.backbone import Backbone, BackboneSettings
from ..nn.inference import device_of
from ..nn.network import Network, VectorHead, as_float32, assemble
from ..report.charts import Lines, Series, View
from .base import AnyTask, Progress, Task
from .batching import Batch, padding_mask
from .codecs import CODECS, InputCodec
from .inputs import INPUT, MODALITIES, PooledSettings
from .inspection import ExplainedOutput, Explainer
from .predictor import Usage
from .processor import Processor, Tokenizers, Values
from .reading import read_rows, without_empty
from .spec import TaskConfig
from .text_predictor import EmbeddingPredictor, no_vectors
from .tfidf import Loss, TfidfModel
from .values import Evaluation, Labeled, Output, Split, Splits

SAMPLED_ROWS = 4  # validation rows shown during training
REACH_SEQUENCES = 32  # whose gradients are averaged
MIN_REACH_LENGTH = 20  # elements below which a sequence is too short for it
REACH_POINTS = 100  # of a curve

S = TypeVar("S", bound=PooledSettings)
P = TypeVar("P", bound="PooledProcessor[Any]")
L = TypeVar("L", bound=Labeled)
Q = TypeVar("Q", bound="Scores")


@dataclass(frozen=True, eq=False)
class Scores:
    """The outputs of the network for all items of a split (items,…)."""

    values: np.ndarray


# Processor


@dataclass(frozen=True)
class PooledProcessor(Processor[L], Generic[L]):
    """Encodes inputs by the codec of their kind. Subclasses add the targets."""

    items_type: ClassVar[type[Any]] = Labeled

    input: InputCodec[Any]

    @classmethod
    def fit_input(
        cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics
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

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> L:
        inputs = self.input.encode(dataset, "input", diagnostics)
        targets = self.encode_targets(dataset, diagnostics) if "target" in dataset else None
        rows = self.input.kept_rows(inputs)
        if rows is not None and targets is not None:
            targets = targets[rows]
        items: L = self.items_type(inputs, targets, rows=rows)
        return items


# Task


class PooledTask(Task[S, P, L, Q], Generic[S, P, L, Q]):
    """The base of tasks with one input and one output per row."""

    modality = None

    # Reading

    @classmethod
    def schema_for(cls, schema: Schema, config: TaskConfig[S], training: bool) -> Schema:
        """Returns the schema with the kinds that the settings or the model allow for the input."""
        requested = config.model.modality or config.task.input_kind
        if requested not in MODALITIES or not training:
            return schema
        field = replace(INPUT, kinds=MODALITIES[requested].kinds_if_named)
        return replace(schema, fields=(field, *schema.fields[1:]))

    @classmethod
    def clean(
        cls,
        rows: Dataset,
        source: Source,
        config: TaskConfig[S],
        diagnostics: Diagnostics,
        predicting: bool,
        train: Dataset | None = None,
    ) -> Dataset:
        """Returns the rows without those whose input is empty, or cannot be read and should be skipped."""
        if predicting:
            return rows
        settings, codec = config.data, CODECS[rows.kind("input")]
        if "split" in settings.columns and (settings.validation or settings.test):
            cause = f'two sources of splits: the column "{settings.columns["split"]}" and files'
            raise SeriatimError("data.split", cause, "omit data.columns.split, or --validation and --test")
        rows = codec.clean(rows, config.task, diagnostics)
        return without_empty(rows, cls.schema, diagnostics) if codec.drops_empty(rows) else rows

    def read(
        self,
        source: DataInput,
        diagnostics: Diagnostics,
        schema: Schema | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Dataset:
        fields, codec = self.schema if schema is None else schema, self.processor.input
        if "input" not in fields.roles:
            return super().read(source, diagnostics, schema, columns)
        opened, columns, layout = codec.adapt(open_source(source), fields, columns or {}, self.layout)
        return codec.adapt_rows(read_rows(type(self), self.config, opened, diagnostics, layout, schema, columns))

    def link(self, splits: Splits[L], diagnostics: Diagnostics) -> Splits[L]:
        for name, split in splits.parts.items():
            if name != "train":  # `InputCodec.fit` notes those of the training split
                self.processor.input.note_truncated(name, split.rows, split.items.inputs, diagnostics)
        return splits

    def candidates(self, train: Split[L]) -> tuple[str, ...]:
        return self.processor.input.candidates(self.compared_models)

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
    def prefetch(self) -> bool:
        return self.processor.input.slow

    def collate(self, items: L, chosen: np.ndarray) -> Batch:
        inputs, mask = items.inputs.padded(chosen)
        targets = None if items.targets is None else torch.from_numpy(items.targets[chosen])
        return Batch(torch.from_numpy(inputs), targets, len(chosen), padding_mask(mask))

    def training_batch(self, train: L, chosen: np.ndarray, share: slice, step: int) -> Batch:
        inputs, mask = self.processor.input.augment(train.inputs, chosen, share, self.config.seed, step)
        targets = torch.from_numpy(train.labels[chosen[share]])
        return Batch(torch.from_numpy(inputs), targets, len(targets), padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[Tensor]:
        hidden, mask, _ = network.head_input(batch.inputs, batch.mask)
        head = cast(VectorHead, network.head)
        pooled = head.pooled(hidden, mask)  # (B,D)
        return Output(as_float32(head.outputs(pooled)), pooled)  # (B,outputs)

    def with_unlabeled(self, train: L, unlabeled: L) -> L:
        targets = np.zeros((len(unlabeled), *train.labels.shape[1:]), train.labels.dtype)
        inputs = self.processor.input.join(train.inputs, unlabeled.inputs)
        return replace(train, inputs=inputs, targets=np.concatenate([train.labels, targets]))

    # Evaluation

    def row_sizes(self, rows: Dataset) -> np.ndarray:
        return self.processor.input.row_sizes(rows, super().row_sizes(rows))

    def evaluate(self, network: Any, split: Split[L], progress: Progress | None = None) -> Evaluation[L, Q]:
        evaluation = super().evaluate(network, split, progress)
        return replace(
            evaluation, outputs=self.outputs_of(network, split, np.stack(cast("list[np.ndarray]", evaluation.outputs)))
        )

    @abstractmethod
    def outputs_of(self, network: Any, split: Split[L], values: np.ndarray) -> Q:
        """Returns the outputs of an evaluation, whose first part are the outputs of the network for all items."""

    def sample(self, evaluation: Evaluation[L, Q]) -> str:
        """Returns a few inputs with their predictions and references."""
        split = evaluation.split
        items = evenly_spaced(len(split.items), SAMPLED_ROWS)
        predictions = self.describe_predictions(evaluation.outputs.values[items])
        references = self.describe_references(split.items.labels[items])
        lines = zip(split.items.row_numbers(items).tolist(), predictions, references, strict=True)
        return "\n".join(
            f"{self.processor.input.describe(split.rows, row)} → {prediction} (is {reference})"
            for row, prediction, reference in lines
        )

    @abstractmethod
    def describe_predictions(self, values: np.ndarray) -> list[str]:
        """Returns the predictions as short texts."""

    @abstractmethod
    def describe_references(self, targets: np.ndarray) -> list[str]:
        """Returns the encoded targets as short texts."""

    def linear_model(self, splits: Splits[L]) -> TfidfModel | None:
        """Returns a linear model of TF-IDF vectors, fitted to the training split; None if the input is not text."""
        if self.processor.input.text_input is None:
            return None
        targets, loss = self.linear_targets(splits.train.items.labels)
        validation = None
        if "validation" in splits:
            held_out = splits["validation"]
            validation = held_out.rows, self.linear_targets(held_out.items.labels)[0]
        return TfidfModel.fit(splits.train.rows, targets, loss, validation)

    @abstractmethod
    def linear_targets(self, targets: np.ndarray) -> tuple[np.ndarray, Loss]:
        """Returns targets as a linear model learns them, and its loss; see `TfidfModel.fit`."""

    # Report

    def network_views(self, network: nn.Module, evaluation: Evaluation[L, Q]) -> list[View]:
        if not self.processor.input.sequential or self.config.model.gradient_free:
            return []
        torch.manual_seed(derive(self.config.seed, "init"))
        untrained = cast(Network, self.network(cast(BackboneSettings, self.config.model)))
        return gradient_reach(self, untrained, cast(Network, network), evaluation.split)

    def input_cell(self, split: Split[L], item: int) -> Any:
        """Returns an input for a table of the report: an image, or a short text."""
        row = int(split.items.row_numbers(np.array([item]))[0])
        return self.processor.input.cell(split.rows, row, split.items.inputs, item)


# How far back training reaches


def gradient_reach(task: AnyTask, untrained: Network, network: Network, split: Split[Any]) -> list[View]:
    """Returns a chart of the gradients of sequences of one length, the longest that is frequent; [] if all are short.

    Args:
        task: A task whose inputs are sequences.
        untrained: The network before the training.
        network: The network after it.
        split: The sequences.
    """
    lengths = split.items.lengths
    length = int(np.quantile(lengths, 0.75, method="nearest"))
    if length < MIN_REACH_LENGTH:
        return []
    items = np.flatnonzero(lengths == length)[:REACH_SEQUENCES]
    batch = task.collate(split.items, items)
    before, after = (gradient_norms(task, one, batch) for one in (untrained, network))
    return [
        Lines(
            title="How far back training reaches",
            note=f"mean over {len(items)} sequences of {length} elements",
            x="elements before the last",
            y="gradient of the loss by the input",
            log_y=True,
            join="reach",
            series=(Series("before training", *before, dashed=True), Series("after training", *after)),
        )
    ]


def gradient_norms(task: AnyTask, network: Network, batch: Batch) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns distances from the last element, and the root mean square of the gradient there."""
    batch = batch.to(device_of(network))
    vectors = network.eval().input(batch.inputs).detach().requires_grad_()  # (B,T,D)
    tail = Network(nn.Identity(), network.backbone, network.head)
    batch = replace(batch, inputs=vectors)
    (gradient,) = torch.autograd.grad(task.loss(task.forward(tail, batch), batch), vectors)
    squares = gradient.cpu().double().square().sum(dim=-1).mean(dim=0).numpy()  # (T,)
    bins = np.array_split(np.arange(len(squares)), min(len(squares), REACH_POINTS))
    distances = tuple(len(squares) - 1 - float(positions.mean()) for positions in bins)
    return distances, tuple(float(np.sqrt(squares[positions].mean())) for positions in bins)


# Prediction


class PooledPredictor(EmbeddingPredictor[Any]):
    """The base of predictors with one input per row; those that read text have embeddings."""

    @classmethod
    def offers(cls, task: Any, name: str) -> bool:
        return name not in EmbeddingPredictor.methods or task.processor.input.text_input is not None

    def text_reader(self) -> TextReader:
        texts = self.processor.input.text_input
        if texts is None:
            raise no_vectors(self, "does not read text")
        return TextReader(self, *texts)

    def text_items(self, ids: Sequences) -> Labeled:
        return Labeled(ids)

    def element_names(self, encoded: Labeled, item: int) -> list[str]:
        names: list[str] = self.processor.input.grid_names(encoded.inputs[item], self.network)
        return names

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        counts: tuple[int, ...] = self.processor.input.texts_per_input
        return counts

    def explainer(self) -> Explainer | None:
        readable = self.processor.input.text_input is not None
        return self.explain_output if readable else None

    def explain_output(
        self, encoded: Labeled, item: int, output: Tensor, target: str | None, position: int | None
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
