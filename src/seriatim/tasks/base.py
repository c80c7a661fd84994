"""The base class of tasks: declarations, and pure functions of data, networks and evaluations. It holds no data.

task, splits = prepare(ClassifyTask, config)                     reading.py
network      = task.build(splits.train)
evaluation   = task.evaluate(network, splits["validation"])
views        = task.views(evaluation)
predictor    = task.predictor(network)                           predictor.py
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..core.config import Settings
from ..core.device import derive
from ..core.errors import Diagnostics, SeriatimError
from ..core.findings import Finding
from ..core.metrics import Measured
from ..core.state import State
from ..data.catalogue import remembered_folder
from ..data.dataset import Dataset
from ..data.kinds import Kind
from ..data.schema import Schema
from ..data.settings import DataSettings
from ..data.source import DataInput, Source, open_source
from ..data.split import Fractions, SplitPolicy, Stratified
from ..nn.inference import device_of, run_batches
from ..nn.settings import ModelSettings
from ..report.charts import View
from .batching import LARGE_COUNT, Batch, LengthSampler, PoolSampler, Sampler, padding_mask
from .predictor import Predictor
from .processor import Processor, Values
from .reading import Layout, check_stored_source, read_rows, without_empty
from .spec import S, TaskConfig, TaskSpec
from .values import E, Encoded, Evaluation, Labeled, Metrics, Output, R, Split, Splits

# What the file of a new task imports
__all__ = [
    "AnyTask",
    "Batch",
    "DataSettings",
    "Encoded",
    "Evaluation",
    "Labeled",
    "Measured",
    "Metrics",
    "Output",
    "Processor",
    "Progress",
    "Split",
    "Splits",
    "Task",
    "TaskConfig",
    "padding_mask",
    "run_items",
]

# The class variables that a `TaskSpec` declares
DECLARED = tuple(field.name for field in fields(TaskSpec) if field.name not in ("summary", "capabilities"))
IGNORED = -1  # the target of elements that have none, such as padding
SAMPLED_SIZE = 65_536  # of a split that is evaluated during training, unless `train.evaluate_limit` says otherwise

Progress = Callable[[int, int], None]  # (done, total) of a long evaluation
P = TypeVar("P", bound=Processor[Any])


@dataclass(frozen=True, eq=False)
class Task(ABC, Generic[S, P, E, R]):
    """A task: what is read, computed, evaluated and predicted.

    It is generic in its settings, its processor, the items of its splits and the outputs of its evaluations.

    Args:
        config: The settings of the task, the data and the model, and the seed.
        processor: Fitted on the training split.
        layout: Columns and kinds of the training data, by which further data is read.
    """

    config: TaskConfig[S]
    processor: P
    layout: Layout

    registry: ClassVar[dict[str, type[AnyTask]]] = {}

    # Declarations of a subclass: a `TaskSpec`, or in its place the class variables of the same names
    spec: ClassVar[TaskSpec]
    name: ClassVar[str]
    schema: ClassVar[Schema]
    split_policy: ClassVar[SplitPolicy] = Stratified()
    settings_type: ClassVar[type[Settings]]
    processor_type: ClassVar[type[Processor[Any]]]
    predictor_type: ClassVar[type[Predictor[Any]]]
    monitor: ClassVar[str] = "loss"  # the metric that selects the best weights; lower is better
    batch_size: ClassVar[int] = 32  # rows of a batch, if the settings name no number and the time is enough
    unit: ClassVar[str] = "examples"  # what the loss is averaged over
    muon: ClassVar[bool] = False  # whether Muon is the default optimizer of models that declare a rate for it
    fitted_models: ClassVar[tuple[str, ...]] = ()  # gradient-free models that `fit` supports
    encoder_decoder: ClassVar[bool] = False  # whether it accepts encoder–decoder models
    modality: ClassVar[str | None] = "text"  # of its inputs; None: that of the data
    teacher_tokenizer: ClassVar[bool] = False  # whether a student must use the tokenizer of its teacher
    default_fractions: ClassVar[Fractions] = (0.8, 0.1, 0.1)  # of train, validation and test
    default_model: ClassVar[str] = TaskSpec.default_model  # that `train` takes if none is named
    default_model_reason: ClassVar[str] = TaskSpec.default_model_reason
    compared_models: ClassVar[tuple[str, ...]] = TaskSpec.compared_models  # of `compare` by default
    hub_head: ClassVar[str | None] = None  # the head of a `transformers` model that the network corresponds to

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        declare(cls)

    @property
    def settings(self) -> S:
        """The settings of the task."""
        return self.config.task

    def with_model(self, model: ModelSettings) -> Self:
        """Returns the task with other settings of the model, such as a width that a budget decided."""
        return replace(self, config=self.config.model_copy(update={"model": model}))

    def with_processor(self, processor: P) -> Self:
        """Returns the task with another processor, such as one with calibrated intervals."""
        return replace(self, processor=processor)

    # Configuration

    @classmethod
    def model_defaults(cls, values: Values) -> Values:
        """Returns settings of the model that suit the task; those that the user names take precedence.

        Args:
            values: The user's configuration, as nested plain values.
        """
        return {}

    @classmethod
    def train_defaults(cls, values: Values) -> Values:
        """Returns settings of the training loop that suit the task; see `model_defaults`."""
        return {}

    @classmethod
    def resolve_settings(cls, settings: S, values: Values) -> S:
        """Returns the settings of the task, changed where they depend on other sections of the configuration."""
        return settings

    @classmethod
    def hub_settings(cls, config: Values) -> Values:
        """Returns settings of the task for a model of `transformers` with this config.json."""
        return {}

    def hub_config(self) -> Values:
        """Returns entries of config.json that `hub_settings` and `Processor.from_pretrained` read."""
        return {}

    # Reading

    @classmethod
    def schema_for(cls, schema: Schema, config: TaskConfig[S], training: bool) -> Schema:
        """Returns a schema, that of the task or of a capability, as the settings demand it.

        Args:
            schema: The fields to read.
            config: The settings.
            training: Whether it is for the training data: kinds of further data are known.
        """
        return schema

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
        """Returns rows without those that are not used, with a note; at prediction each row has an answer.

        Args:
            rows: As they were read.
            source: Where they are from.
            config: The settings.
            diagnostics: Receives notes and problems.
            predicting: Whether they are the inputs of a prediction, not data with targets.
            train: The training rows, if these are of a validation or test file.
        """
        return rows if predicting else without_empty(rows, cls.schema, diagnostics)

    @classmethod
    def held_out(cls, rows: Dataset, diagnostics: Diagnostics) -> Dataset:
        """Returns the rows of a file of a held-out split that can be evaluated on: benchmarks keep some labels."""
        return rows

    @classmethod
    def choose_split(cls, config: TaskConfig[S], rows: Dataset) -> tuple[SplitPolicy, Fractions]:
        """Returns how a data set without predefined splits is divided, and the fractions of its splits."""
        return cls.split_policy, config.data.fractions or cls.default_fractions

    @classmethod
    def stored_kinds(cls, rows: Dataset, source: Source) -> dict[str, Kind]:
        """Returns the kinds by role that a run stores, by which further data is read."""
        return {role: rows.kind(role) for role in rows.columns}

    def read(
        self,
        source: DataInput,
        diagnostics: Diagnostics,
        schema: Schema | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Dataset:
        """Returns further data, read with the columns and kinds of the training data.

        Args:
            source: Whatever `open_source` takes.
            diagnostics: Receives notes; problems are raised.
            schema: The fields to read at prediction; by default all, targets included.
            columns: Role → column names that differ from those of the training data.
        """
        return read_rows(type(self), self.config, open_source(source), diagnostics, self.layout, schema, columns)

    def read_own_data(self, diagnostics: Diagnostics, data_dir: str | None = None) -> Dataset:
        """Returns the data the run was trained on, for capabilities with `own_data` that are called without inputs."""
        check_stored_source(self.config)
        with remembered_folder(self.layout.data_dir, data_dir) as folder:
            return self.read(open_source(self.config.data.source, folder), diagnostics)

    def encode(self, rows: Dataset, diagnostics: Diagnostics) -> E:
        """Returns the items of a data set; problems are raised."""
        items: E = self.processor.encode(rows, diagnostics)
        diagnostics.raise_problems()
        return items

    def encode_split(self, name: str, rows: Dataset, diagnostics: Diagnostics) -> E:
        """Returns the items of a split, whose name messages may use; problems are collected."""
        items: E = self.processor.encode(rows, diagnostics)
        return items

    def link(self, splits: Splits[E], diagnostics: Diagnostics) -> Splits[E]:
        """Returns encoded splits with what one must know of another, such as the words of the training split.

        Also notes what a user should know of them, such as how many sequences are truncated. Other data than that of
        the run is one split without the others.
        """
        return splits

    def select(self, splits: Splits[E], diagnostics: Diagnostics) -> tuple[Self, Splits[E]]:
        """Returns the task with what the validation split decides of a processor that was just fitted, and the splits.

        Such as the simple forecast that the network is to improve.
        """
        return self, splits

    # Network

    @abstractmethod
    def network(self, model: Any) -> nn.Module:
        """Returns input, backbone and head with random weights. Depends on the processor, never on data."""

    def initialize(self, network: nn.Module, train: Split[E]) -> None:
        """Sets parameters that follow from the training split, such as an output bias."""

    def build(self, train: Split[E]) -> nn.Module:
        """Returns the network of the configured model, initialized from the seed."""
        torch.manual_seed(derive(self.config.seed, "init"))
        network = self.network(self.config.model)
        self.initialize(network, train)
        return network

    def fit(self, model: ModelSettings, train: Split[E], diagnostics: Diagnostics, limit: int | None = None) -> Any:
        """Returns a gradient-free model (`model.gradient_free`), fitted to the training split.

        Args:
            model: Its settings.
            train: The training split.
            diagnostics: Receives notes, such as the progress.
            limit: The number of elements that are used, from the first one on; by default all.
        """
        raise self.unsupported_model(model)

    def resize(self, model: ModelSettings, train: Split[E], parameters: int, limit: int | None = None) -> ModelSettings:
        """Returns the settings of a gradient-free model with at most this many parameters; see `fit`."""
        return model

    def interpolate(self, models: Sequence[Any], validation: Split[E]) -> Any:
        """Returns a gradient-free model that mixes others by weights that suit the validation split; see `fit`."""
        name = self.config.model.name
        raise SeriatimError("average.model", f"models of the kind {name} cannot be averaged", "name other runs")

    @classmethod
    def unsupported_model(cls, model: ModelSettings) -> SeriatimError:
        """Returns the error of a gradient-free model that the task has no `fit` for."""
        cause = f"model {model.name} is not trained by gradient descent and does not support task {cls.name}"
        return SeriatimError("task.model", cause, f"choose another --model, such as {cls.default_model}")

    def candidates(self, train: Split[E]) -> tuple[str, ...]:
        """Returns the models worth trying on this data, for `--model auto`."""
        return self.compared_models

    # Training

    @property
    def prefetch(self) -> bool:
        """Whether batches are made in a background thread, because they take time."""
        return False

    def sampler(self, train: E, diagnostics: Diagnostics) -> Sampler:
        """Returns the sampler of training items; by default batches of similar length."""
        if len(train) >= LARGE_COUNT:
            return PoolSampler(len(train), train.lengths, self.config.seed)
        return LengthSampler(np.arange(len(train)), train.lengths, self.config.seed)

    @abstractmethod
    def collate(self, items: E, chosen: np.ndarray) -> Batch:
        """Returns a batch of the chosen items: padded inputs (B,T,…), targets, and a mask (B,T)."""

    def training_batch(self, train: E, chosen: np.ndarray, share: slice, step: int) -> Batch:
        """Returns the share of this process of the items of a step; by default as in evaluation."""
        return self.collate(train, chosen[share])

    @abstractmethod
    def forward(self, network: Any, batch: Batch, state: State = None) -> Output[Any]:
        """Returns the scores of a batch; `state` is that of the batch before, if states are carried."""

    @abstractmethod
    def loss(self, output: Output[Any], batch: Batch, smoothing: float = 0.0) -> Tensor:
        """Returns the sum of the losses over the targets of a batch, with label smoothing where it applies."""

    # What `inspect` shows

    def hidden_states(self, network: Any, batch: Batch) -> Tensor:
        """Returns the backbone's output for every element (B,T,D), for `embed` and `inspect`."""
        hidden: Tensor = network.hidden(batch.inputs, batch.mask)[0]
        return hidden

    def shown_items(self, items: E) -> E:
        """Returns the items of which `inspect` shows one; by default all."""
        return items

    def stream(self, items: E) -> np.ndarray | None:
        """Returns the tokens (T,) if items are one running text whose next token is predicted, else None."""
        return None

    # Distillation

    def distillation_loss(self, output: Output[Any], teacher: Output[Any], temperature: float) -> Tensor:
        """Returns the sum of the distances between the scores of student and teacher."""
        raise SeriatimError("distill.task", f"the task {self.name} has no distillation", "omit --teacher")

    def teacher_scores(self, output: Output[Any]) -> Tensor:
        """Returns the scores (N,C) of a teacher's output, whose softmax its students learn."""
        scores: Tensor = output.scores
        return scores

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        """Returns a sentence for each reason why another run cannot be the teacher."""
        return []

    def with_unlabeled(self, train: E, unlabeled: E) -> E:
        """Returns training items with unlabeled ones behind them, whose targets are not read."""
        cause = f"the task {self.name} does not support unlabeled data"
        raise SeriatimError("distill.unlabeled", cause, "omit --unlabeled-data; classify and regress support it")

    # Evaluation

    def row_sizes(self, rows: Dataset) -> np.ndarray:
        """Returns what each row counts for in a sample (rows,): by default the characters or numbers of its inputs."""
        roles = [field.role for field in self.schema.fields if field.required and not field.target]
        columns = [column for role in roles for column in rows.columns.get(role, ())]
        return np.sum([column.sizes for column in columns], axis=0) if columns else np.ones(len(rows), np.int64)

    def sample_split(self, split: Split[E], limit: int | None = None) -> Split[E]:
        """Returns the part of a split that is evaluated during training: the same for all models and tokenizers."""
        return split.spaced(self.row_sizes(split.rows), SAMPLED_SIZE if limit is None else limit)

    def evaluate(self, network: Any, split: Split[E], progress: Progress | None = None) -> Evaluation[E, R]:
        """Returns metrics, and what the model produced on a split or a sample of it: by default scores of each item.

        Args:
            network: The network, which is set to evaluation mode, or the model that `fit` returned.
            split: What is evaluated.
            progress: Called by long evaluations.
        """
        scores: Any
        loss, scores = self.score_items(network, split.items, progress)
        measured = self.measure(split.items, scores)
        return Evaluation(split, {"loss": loss, **measured}, scores, measured.examples, measured.signatures)

    def score_items(self, network: Any, items: E, progress: Progress | None = None) -> tuple[float, list[np.ndarray]]:
        """Returns the mean loss of a network on items, and the scores of each; see `unbatch`."""
        total_loss, targets = 0.0, 0

        def unbatch(output: Output[Any], batch: Batch) -> Sequence[np.ndarray]:
            nonlocal total_loss, targets
            total_loss += float(self.loss(output, batch))
            targets += batch.count
            return self.unbatch(output, batch)

        scores = run_items(self, network, items, unbatch, progress)
        return total_loss / max(targets, 1), scores

    def unbatch(self, output: Output[Any], batch: Batch) -> Sequence[np.ndarray]:
        """Returns the scores of each item of a batch, for `measure`."""
        return list(output.scores.float().cpu().numpy())

    def measure(self, items: E, scores: Sequence[np.ndarray]) -> Measured:
        """Returns the metrics besides the loss, from the scores of each item; see `unbatch`."""
        return Measured()

    def baselines(self, splits: Splits[E], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of trivial predictions, by split and name."""
        return {}

    def calibrate(
        self, network: Any, validation: Split[E], diagnostics: Diagnostics
    ) -> tuple[Self, Mapping[str, Tensor]]:
        """Returns the task with a processor, and weights by name, that the validation split adapts after training.

        Such as calibrated intervals, or another bias of a label. The network itself stays as it is.
        """
        return self, {}

    def views(self, evaluation: Evaluation[E, R]) -> list[View]:
        """Returns charts and tables of an evaluation, for the report."""
        return []

    def network_views(self, network: nn.Module, evaluation: Evaluation[E, R]) -> list[View]:
        """Returns charts of the network for the report: gradients before training and after it."""
        return []

    def sample(self, evaluation: Evaluation[E, R]) -> str:
        """Returns a few predictions beside their references, to be shown during training."""
        return ""

    def findings(self, evaluations: Mapping[str, Evaluation[E, R]]) -> list[Finding]:
        """Returns what a reader of the report should notice and only the task can know, from evaluations by split."""
        return []

    # Prediction

    def predictor(self, network: Any) -> Predictor[Any]:
        """Returns the predictor of a trained network, or of a model that `fit` returned."""
        return self.predictor_type(self, network.eval())


AnyTask = Task[Any, Any, Any, Any]


def run_items(
    task: AnyTask,
    network: nn.Module,
    items: Any,
    use: Callable[[Output[Any], Batch], Iterable[Any]],
    progress: Progress | None = None,
) -> list[Any]:
    """Runs a network on all items, and returns what `use` makes of each of them, in their order.

    Args:
        task: Makes the batches.
        network: The network; it is set to evaluation mode.
        items: The items.
        use: From the output for a batch to one result per item of it.
        progress: Called after each batch.
    """
    device = device_of(network)

    def run(chosen: np.ndarray) -> list[Any]:
        batch = task.collate(items, chosen).to(device)
        return list(use(task.forward(network, batch), batch))

    network.eval()
    return run_batches(items.lengths, run, progress=progress)


def declare(task: type[AnyTask]) -> None:
    """Registers a task by its name: one with a `TaskSpec`, or with class variables from which that is made."""
    if "spec" in vars(task):
        for field in DECLARED:
            setattr(task, field, getattr(task.spec, field))
    elif "name" in vars(task):
        summary = (sys.modules[task.__module__].__doc__ or "").partition("\n")[0].rstrip(".")
        inputs = task.schema.inputs()
        capabilities = tuple(method.resolve(inputs) for method in task.predictor_type.methods.values())
        declared = {field: getattr(task, field) for field in DECLARED}
        task.spec = TaskSpec(summary=summary, capabilities=capabilities, **declared)
    else:
        return
    Task.registry[task.name] = task
