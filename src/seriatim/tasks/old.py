"""The base class of the tasks that are not migrated yet, and the bridge by which everything else sees them as new ones.

It goes with the last of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..core.config import Settings
from ..core.device import derive
from ..core.errors import Diagnostics, SeriatimError
from ..core.findings import Finding
from ..core.metrics import example_scores, metric_signatures
from ..core.state import State
from ..data.catalogue import data_folder, remembered_folder
from ..data.check import check
from ..data.dataset import Dataset
from ..data.kinds import Kind
from ..data.reader import options_of_source, read_dataset, read_header
from ..data.schema import Schema, normalize_name
from ..data.settings import DataSettings
from ..data.source import DataInput, Source, open_source
from ..data.split import Fractions, SplitPolicy, Stratified, split
from ..nn.backbone import BackboneSettings
from ..nn.network import weights, weights_digest
from ..report.charts import View
from .base import IGNORED, Progress, Task, declare
from .batching import (
    LARGE_COUNT,
    Batch,
    LengthSampler,
    PoolSampler,
    Sampler,
    device_of,
    evenly_spaced,
    padding_mask,
    run_batches,
)
from .predictor import Predictor
from .processor import Encoded, Processor, Tokenizers, Values
from .reading import Layout
from .spec import TaskConfig, TaskSpec
from .values import Evaluation, Metrics, Output, Split, Splits

# What the file of a task imports
__all__ = [
    "IGNORED",
    "Batch",
    "DataSettings",
    "Encoded",
    "Metrics",
    "OldTask",
    "Output",
    "Processor",
    "TaskConfig",
    "padding_mask",
    "weights_digest",
]


E = TypeVar("E", bound=Encoded)


class OldTask(ABC, Generic[E]):
    """A task: its declarations, and its computations on data and networks.

    It is used with data in training, and without data (`datasets` empty) in prediction.

    Args:
        config: The settings of the task, the data and the model, and the seed.
        processor: Fitted on the training split.
        columns: Role → column names of the training data.
        kinds: Role → kind of the training data.
        datasets: Split → rows.
        diagnostics: Receives the notes and problems of encoding.
    """

    # Declarations of a subclass
    spec: ClassVar[TaskSpec]
    name: ClassVar[str]
    schema: ClassVar[Schema]
    split_policy: ClassVar[SplitPolicy] = Stratified()
    settings_type: ClassVar[type[Settings]]
    processor_type: ClassVar[type[Processor[Any]]]
    predictor_type: ClassVar[type[Predictor]]
    monitor: ClassVar[str] = "loss"  # the metric that selects the best weights; lower is better
    batch_size: ClassVar[int] = 32  # rows of a batch, if the settings name no number and the time is enough
    unit: ClassVar[str] = "examples"  # what the loss is averaged over
    muon: ClassVar[bool] = False  # whether Muon is the default optimizer of models that declare a rate for it
    fitted_models: ClassVar[tuple[str, ...]] = ()  # gradient-free models that `fit` supports
    prefetch: ClassVar[bool] = False  # whether batches are made in a background thread
    encoder_decoder: ClassVar[bool] = False  # whether it accepts encoder–decoder models
    modality: ClassVar[str | None] = "text"  # of its inputs; None: that of the data
    teacher_tokenizer: ClassVar[bool] = False  # whether a student must use the tokenizer of its teacher
    default_fractions: ClassVar[tuple[float, float, float]] = (0.8, 0.1, 0.1)  # of train, validation and test
    default_model: ClassVar[str] = TaskSpec.default_model  # that `train` takes if none is named
    default_model_reason: ClassVar[str] = TaskSpec.default_model_reason
    compared_models: ClassVar[tuple[str, ...]] = TaskSpec.compared_models  # of `compare` by default
    hub_head: ClassVar[str | None] = None  # the head of a `transformers` model that the network corresponds to

    @classmethod
    def model_defaults(cls, values: Values) -> Values:
        """Returns settings of the model that suit the task; those that the user names take precedence.

        Args:
            values: The user's configuration, as nested plain values.
        """
        return {}

    @classmethod
    def resolve_settings(cls, settings: Settings, values: Values) -> Settings:
        """Returns the validated settings of the task, changed where they depend on other sections.

        Args:
            settings: An instance of `settings_type`.
            values: The whole configuration, as nested plain values.
        """
        return settings

    @classmethod
    def hub_settings(cls, config: Values) -> Values:
        """Returns settings of the task for a model of `transformers` with this config.json."""
        return {}

    def hub_config(self) -> Values:
        """Returns entries of config.json that `hub_settings` and `Processor.from_pretrained` read."""
        return {}

    @classmethod
    def train_defaults(cls, values: Values) -> Values:
        """Returns settings of the training loop that suit the task; see `model_defaults`."""
        return {}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        declare(cls)  # type: ignore[arg-type]

    def __init__(
        self,
        config: TaskConfig,
        processor: Processor[E],
        columns: Mapping[str, str],
        kinds: Mapping[str, Kind],
        datasets: Mapping[str, Dataset] | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self.config, self.settings, self.processor = config, config.task, processor
        self.columns, self.kinds = dict(columns), dict(kinds)
        self.diagnostics = Diagnostics() if diagnostics is None else diagnostics
        self.datasets = self.select_rows(dict(datasets or {}))
        self.encoded: dict[str, E] = {name: self.encode(rows) for name, rows in self.datasets.items() if len(rows)}
        self.data_dir: str | None = None  # the folder with local copies of catalogue data sets that it was read from
        self.on_progress: Callable[[int, int], None] | None = None  # called with (done, total) by long evaluations
        self._sampler = self.make_sampler(self.encoded["train"]) if "train" in self.encoded else None
        for name, encoded in self.encoded.items():
            self.note_encoded(name, encoded)

    @property
    def layout(self) -> Layout:
        return Layout(self.columns, self.kinds, self.data_dir)

    # Data

    @classmethod
    def prepare(
        cls,
        config: TaskConfig,
        data: DataInput | None = None,
        validation: DataInput | None = None,
        test: DataInput | None = None,
        processor: Processor[E] | None = None,
        pretrained: Tokenizers | None = None,
        diagnostics: Diagnostics | None = None,
        data_dir: str | None = None,
    ) -> Self:
        """Reads, checks, splits and encodes the data, and returns the task ready for training.

        Args:
            config: The settings.
            data: A source that replaces `config.data.source`, such as a DataFrame.
            validation: A source of the validation split that replaces `config.data.validation`.
            test: A source of the test split that replaces `config.data.test`.
            processor: That of an existing run; by default one is fitted.
            pretrained: Tokenizers for the fit, by the name of their field.
            diagnostics: Receives notes; problems are raised after each stage.
            data_dir: The folder of catalogue data sets.
        """
        diagnostics = Diagnostics() if diagnostics is None else diagnostics
        settings = config.data
        source = open_source(settings.source if data is None else data, data_dir)
        specs = {
            "validation": settings.validation if validation is None else validation,
            "test": settings.test if test is None else test,
        }
        named = {name: open_source(spec, data_dir) for name, spec in specs.items() if spec is not None}
        named = {**source.splits, **named}  # a file that is named replaces only the split of its name
        source = named.pop("train", source)
        rows = cls.read_training_data(source, config, diagnostics)
        if "test" in named and specs["test"] is None and cls._lacks_targets(named["test"], config, rows):
            diagnostics.note(f"{named['test'].name}: has no targets, and is left out")
            del named["test"]
        predefined = {name: cls.read_training_data(part, config, diagnostics, rows) for name, part in named.items()}
        for dataset in (rows, *predefined.values()):
            check(dataset, cls.schema, diagnostics)
        diagnostics.raise_problems()
        policy, fractions = cls.choose_split(config, rows)
        datasets = split(rows, policy, fractions, diagnostics, predefined, cls.schema)
        fitted = processor is None
        if processor is None:
            processor = cls.processor_type.fit(datasets["train"], config, pretrained or {}, diagnostics)
        kinds = cls.stored_kinds(rows, source)
        task = cls(config, processor, rows.column_names, kinds, datasets, diagnostics)
        task.data_dir = data_folder([settings.source if data is None else data, *specs.values()], data_dir)
        diagnostics.raise_problems()
        if fitted:
            task.select()
        return task

    @classmethod
    def _lacks_targets(cls, source: Source, config: TaskConfig, like: Dataset) -> bool:
        """Returns whether a table has no column that could be a target, as the test splits of some benchmarks."""
        roles = [field.role for field in cls.schema.fields if field.target and field.required and field.role in like]
        options = options_of_source(source, config.data.read_options(), config.data.columns, trained=False)
        header, _ = read_header(source, cls.schema, options, Diagnostics())
        present = set(map(normalize_name, header.columns))
        trained = {normalize_name(column.name) for role in roles for column in like.columns[role]}
        usual = any(cls.schema.has_usual_name(role, header) for role in roles)
        return bool(roles) and bool(present) and not (usual or trained & present)

    def with_data(
        self,
        source: DataInput,
        split: str = "test",
        data_dir: str | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Self:
        """Returns the task with the same processor and one split, read from another source.

        Args:
            source: Whatever `open_source` takes, targets included.
            split: The name of the split.
            data_dir: The folder of catalogue data sets.
            columns: Role → column names that differ from those of the training data.
        """
        diagnostics = Diagnostics(self.diagnostics.on_note)
        rows = self.without_empty(self.read(open_source(source, data_dir), columns=columns), diagnostics)
        if not len(rows):
            raise SeriatimError("data.empty", f"{rows.name} has no rows with an input", "pass a file with data")
        check(rows, self.schema, diagnostics)
        diagnostics.raise_problems()
        return self.with_rows(rows, split)

    def with_rows(self, dataset: Dataset, split: str = "test") -> Self:
        """Returns the task with the same processor and the rows of a data set as its only split."""
        diagnostics = Diagnostics(self.diagnostics.on_note)
        task = type(self)(self.config, self.processor, self.columns, self.kinds, {split: dataset}, diagnostics)
        diagnostics.raise_problems()
        return task

    @classmethod
    def read_training_data(
        cls, source: Source, config: TaskConfig, diagnostics: Diagnostics, like: Dataset | None = None
    ) -> Dataset:
        """Returns the rows of a source; rows whose inputs are all empty are left out, with a note.

        Args:
            source: The files or columns of a split, or of all rows.
            config: The settings.
            diagnostics: Receives notes and problems.
            like: The training rows, whose columns and kinds a validation or test source has, too.
        """
        return cls.without_empty(cls.read_rows(source, config, diagnostics, like), diagnostics)

    @classmethod
    def without_empty(cls, rows: Dataset, diagnostics: Diagnostics) -> Dataset:
        """Returns the rows without those whose inputs are all empty, with a note; in training and evaluation alike."""
        inputs = [field.role for field in cls.schema.fields if field.required and not field.target]
        columns = [column for role in inputs for column in rows.columns.get(role, ())]
        empty = np.max([column.sizes for column in columns], axis=0) == 0 if columns else np.zeros(len(rows), bool)
        if not empty.any():
            return rows
        first = rows.locations[int(empty.argmax())]
        diagnostics.note(f"{rows.name}: {empty.sum():,} rows with an empty input are left out, the first at {first}")
        return rows.take(np.flatnonzero(~empty))

    @classmethod
    def read_rows(
        cls,
        source: Source,
        config: TaskConfig,
        diagnostics: Diagnostics,
        like: Dataset | None = None,
        schema: Schema | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Dataset:
        """Returns all rows of a source; see `read_training_data`. Schema and columns are by default those declared."""
        names = None if like is None else like.column_names
        kinds = None if like is None else {role: like.kind(role) for role in like.columns}
        columns, options = config.data.columns if columns is None else columns, config.data.read_options()
        rows = read_dataset(source, schema or cls.schema, columns, options, diagnostics, names, kinds)
        diagnostics.raise_problems()
        return rows

    @classmethod
    def stored_kinds(cls, dataset: Dataset, source: Source) -> dict[str, Kind]:
        """Returns the kinds by role that a run stores, by which further data is read: those of the training data."""
        return {role: dataset.kind(role) for role in dataset.columns}

    @classmethod
    def choose_split(cls, config: TaskConfig, dataset: Dataset) -> tuple[SplitPolicy, Fractions]:
        """Returns how a data set without predefined splits is divided, and the fractions of its splits."""
        return cls.split_policy, config.data.fractions or cls.default_fractions

    def read_own_data(self, data_dir: str | None = None) -> Dataset:
        """Returns the data the run was trained on, for capabilities with `own_data` that are called without inputs."""
        self.check_stored_source()
        with remembered_folder(self.data_dir, data_dir) as folder:
            return self.read(open_source(self.config.data.source, folder))

    def check_stored_source(self) -> None:
        """Raises an error if the run was trained on data in memory, which cannot be read again."""
        if self.config.data.source.startswith("<"):
            cause = f"the run was trained on data in memory ({self.config.data.source})"
            raise SeriatimError("data.memory", cause, "pass the data")

    def read(
        self, source: DataInput, schema: Schema | None = None, columns: Mapping[str, str] | None = None
    ) -> Dataset:
        """Returns further data, read with the columns and kinds of the training data.

        Args:
            source: Whatever `open_source` takes.
            schema: The fields to read; by default all, targets included.
            columns: Role → column names that differ from those of the training data.
        """
        diagnostics, predicts = Diagnostics(self.diagnostics.on_note), schema is not None
        schema = self.schema if schema is None else schema
        options = self.config.data.read_options()
        rows = read_dataset(
            open_source(source), schema, columns, options, diagnostics, self.columns, self.kinds, predicts
        )
        diagnostics.raise_problems()
        return rows

    def select_rows(self, datasets: dict[str, Dataset]) -> dict[str, Dataset]:
        """Returns the splits without rows that must not be trained or evaluated on; by default all rows."""
        return datasets

    def encode(self, dataset: Dataset) -> E:
        return self.processor.encode(dataset, self.diagnostics)

    def note_encoded(self, split: str, encoded: E) -> None:
        """Notes what a user should know of an encoded split, such as how many sequences are truncated."""

    def select(self) -> None:
        """Chooses what the validation split decides of a processor that was just fitted; by default nothing."""

    def require_split(self, split: str) -> E:
        """Returns an encoded split, or raises an error that names those that there are."""
        if split not in self.encoded:
            cause = f"there is no {split} split to evaluate on"
            raise SeriatimError("data.no-split", cause, f"the splits are: {', '.join(self.encoded) or 'none'}")
        return self.encoded[split]

    def fingerprint(self) -> str:
        """Returns a hash of the training split: a run that is resumed must have the same."""
        return self.datasets["train"].fingerprint()

    def share_data(self, other: OldTask[E]) -> bool:
        """Uses the data of a task with the same processor and data set instead of its own; returns whether it is."""
        if type(self) is not type(other) or self.fingerprint() != other.fingerprint():
            return False
        if not self.processor.equals(other.processor):
            return False
        self.processor, self.datasets, self.encoded = other.processor, other.datasets, other.encoded
        self._sampler = self.make_sampler(self.encoded["train"])
        return True

    def findings(self, metrics: Mapping[str, Mapping[str, float]]) -> list[Finding]:
        """Returns what a reader of the report should notice and only the task can know, from metrics by split."""
        return []

    def candidates(self) -> tuple[str, ...]:
        """Returns the models worth trying on this data, for `--model auto`."""
        return self.compared_models

    # Network

    @abstractmethod
    def network(self, model: BackboneSettings) -> nn.Module:
        """Returns input, backbone and head with random weights. Depends on the processor, never on data."""

    def initialize(self, network: nn.Module) -> None:
        """Sets parameters that follow from the training split, such as an output bias."""

    def fit(self, model: BackboneSettings, limit: int | None = None) -> Any:
        """Returns a gradient-free model (`model.gradient_free`), fitted to the training split.

        Args:
            model: Its settings.
            limit: Only the first so many elements of the split (`unit`) are used.
        """
        raise self.unsupported_model(model)

    def resize(self, model: BackboneSettings, parameters: int, limit: int | None = None) -> BackboneSettings:
        """Returns the settings of a gradient-free model with at most this many parameters; see `fit`."""
        return model

    def interpolate(self, models: Sequence[Any]) -> Any:
        """Returns a gradient-free model that mixes others by `weights` that suit the validation split; see `fit`."""
        name = self.config.model.name
        raise SeriatimError("average.model", f"models of the kind {name} cannot be averaged", "name other runs")

    @classmethod
    def unsupported_model(cls, model: Any) -> SeriatimError:
        """Returns the error of a gradient-free model that the task has no `fit` for."""
        cause = f"model {model.name} is not trained by gradient descent and does not support task {cls.name}"
        return SeriatimError("task.model", cause, f"choose another --model, such as {cls.default_model}")

    def build(self) -> nn.Module:
        """Returns the network of the configured model, initialized from the seed."""
        torch.manual_seed(derive(self.config.seed, "init"))
        network = self.network(self.config.model)  # type: ignore[arg-type]
        self.initialize(network)
        return network

    # Training

    def make_sampler(self, train: E) -> Sampler:
        """Returns the sampler of training items; by default batches of similar length."""
        if len(train) >= LARGE_COUNT:
            return PoolSampler(len(train), train.lengths, self.config.seed)
        return LengthSampler(np.arange(len(train)), train.lengths, self.config.seed)

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            raise SeriatimError("data.no-split", "the task has no training split", "prepare the task with data")
        return self._sampler

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        """Returns rows first…last−1 of the global batch of a step: the same on every rank, resumed or not."""
        items = self.sampler.items(step, batch_size)
        share = slice(first * len(items) // batch_size, last * len(items) // batch_size)
        return self.collate(self.encoded["train"], items[share])

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.sampler.steps_per_epoch(batch_size)

    def collate(self, encoded: E, items: np.ndarray) -> Batch:
        """Returns a batch of items: padded inputs (B,T,…), targets, and a mask (B,T), None without padding."""
        inputs, mask = encoded.inputs.padded(items)
        targets = None if encoded.targets is None else torch.from_numpy(encoded.targets[items])
        return Batch(torch.from_numpy(inputs), targets, len(items), padding_mask(mask))

    def consecutive_batch(self, encoded: E, first: int, count: int) -> Batch:
        """Returns a batch of `count` examples from the number `first` on, over and over, to measure speed."""
        return self.collate(encoded, np.arange(first, first + count) % len(encoded))

    @abstractmethod
    def forward(self, network: Any, batch: Batch, state: State = None) -> Output:
        """Returns the scores of a batch; `state` is that of the batch before, if states are carried."""

    @abstractmethod
    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        """Returns the sum of the losses over the targets of a batch, with label smoothing where it applies."""

    def distillation_loss(self, output: Output, teacher: Output, temperature: float) -> Tensor:
        """Returns the sum of the distances between the scores of student and teacher."""
        raise SeriatimError("distill.task", f"the task {self.name} has no distillation", "omit --teacher")

    def teacher_scores(self, output: Output) -> Tensor:
        """Returns the scores (N,C) of a teacher's output, whose softmax its students learn."""
        scores: Tensor = output.scores
        return scores

    def teacher_mismatches(self, teacher: Predictor) -> list[str]:
        """Returns a sentence for each reason why another run cannot be the teacher."""
        return []

    def read_unlabeled(self, source: DataInput, data_dir: str | None = None) -> Dataset:
        """Returns the rows of a source without targets, for distillation."""
        return self.read(open_source(source, data_dir), self.schema.inputs())

    def hidden_states(self, network: Any, batch: Batch) -> Tensor:
        """Returns the backbone's output for every element (B,T,D), for `embed` and `inspect`."""
        return network.hidden(batch.inputs, batch.mask)[0]

    def stream(self, split: str) -> np.ndarray | None:
        """Returns the tokens of a split (T,) if it is one running text whose next token is predicted, else None."""
        return None

    def examples(self, split: str) -> E:
        """Returns the items of a split of which `inspect` shows one; by default all."""
        return self.encoded[split]

    # Evaluation

    def evaluate(self, network: nn.Module, split: str = "validation", limit: int | None = None) -> Metrics:
        """Returns the loss and the metrics on a split.

        Args:
            network: The network; it is set to evaluation mode.
            split: The name of the split.
            limit: Evaluates on evenly spaced rows with about this many elements; by default on all rows.
        """
        encoded = self.require_split(split)
        rows = np.arange(len(encoded)) if encoded.rows is None else encoded.rows
        count, elements = int(rows.max()) + 1, max(int(encoded.lengths.sum()), 1)
        if limit is not None:
            count = max(int(count * min(limit / elements, 1.0)), 1)
        sampled_rows = evenly_spaced(int(rows.max()) + 1, count)
        items = np.flatnonzero(np.isin(rows, sampled_rows))  # all windows of a sampled row
        total_loss, targets, device = 0.0, 0, device_of(network)

        def run(batch_items: np.ndarray) -> Sequence[np.ndarray]:
            nonlocal total_loss, targets
            batch = self.collate(encoded, items[batch_items]).to(device)
            output = self.forward(network, batch)
            total_loss += float(self.loss(output, batch))
            targets += batch.count
            return self.unbatch(output, batch)

        network.eval()
        scores = run_batches(encoded.lengths[items], run)
        return {"loss": total_loss / max(targets, 1)} | self.metrics(network, split, items, scores)

    def unbatch(self, output: Output, batch: Batch) -> Sequence[np.ndarray]:
        """Returns the scores of each item of a batch."""
        return list(output.scores.float().cpu().numpy())

    def metrics(self, network: nn.Module, split: str, items: np.ndarray, scores: Sequence[np.ndarray]) -> Metrics:
        """Returns the metrics besides the loss.

        Args:
            network: For metrics that need other outputs than the scores, such as free decoding.
            split: The name of the split.
            items: The evaluated items (n,).
            scores: The scores of each of them, from `unbatch`.
        """
        return {}

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Returns the metrics of trivial predictions, by their name."""
        return {}

    def finish(self, network: Any) -> bool:
        """Adapts the trained weights and the processor to the validation split, such as a calibration.

        Called with the best weights before they are evaluated. Returns whether anything changed, to be stored.
        """
        return False

    def views(self, predictor: Predictor, split: str) -> list[View]:
        """Returns charts and tables of the predictions on a split, for the report."""
        return []

    def sample(self, network: nn.Module) -> str:
        """Returns a few predictions beside their references, to be shown during training."""
        return ""

    # Prediction

    def predictor(self, network: Any) -> Predictor:
        """Returns the predictor of a trained network, or of a model that `fit` returned."""
        return self.predictor_type(self, network.eval())


@dataclass(frozen=True, eq=False)
class OldSplit(Split[Any]):
    """A split of a task that holds its data."""

    old: Any = None
    limit: int | None = None


DECLARED = [
    "schema",
    "split_policy",
    "settings_type",
    "processor_type",
    "predictor_type",
    "monitor",
    "batch_size",
    "unit",
    "muon",
    "fitted_models",
    "prefetch",
    "encoder_decoder",
    "modality",
    "teacher_tokenizer",
    "default_fractions",
    "default_model",
    "default_model_reason",
    "compared_models",
    "hub_head",
]


@dataclass(frozen=True, eq=False)
class Bridge(Task[Any, Any, Any, Any]):
    """A task that is not migrated yet, behind the methods of `Task`."""

    old: Any = None

    def with_model(self, model: Any) -> Self:
        task = super().with_model(model)
        self.old.config = task.config
        return task

    def hub_config(self) -> Values:
        return self.old.hub_config()

    def read(self, source, diagnostics, schema=None, columns=None):
        self.old.diagnostics.on_note = diagnostics.on_note
        rows = self.old.read(open_source(source), schema, columns)
        return rows if schema is not None else self.old.without_empty(rows, diagnostics)

    def read_own_data(self, diagnostics: Diagnostics, data_dir: str | None = None) -> Dataset:
        return self.old.read_own_data(data_dir)

    def encode(self, rows: Dataset, diagnostics: Diagnostics) -> Any:
        encoded = self.old.processor.encode(rows, diagnostics)
        diagnostics.raise_problems()
        return encoded

    def link(self, splits: Splits[Any], diagnostics: Diagnostics) -> Splits[Any]:
        parts = {}
        for name, part in splits.parts.items():
            old = self.old.with_rows(part.rows, name)
            parts[name] = OldSplit(name, old.datasets[name], old.encoded[name], old)
        return Splits(parts)

    def network(self, model: Any) -> Any:
        return self.old.network(model)

    def build(self, train: Split[Any]) -> nn.Module:
        return self.old.build()

    def fit(self, model: Any, train: Split[Any], diagnostics: Diagnostics, limit: int | None = None) -> Any:
        return self.old.fit(model, limit)

    def resize(self, model: Any, train: Split[Any], parameters: int, limit: int | None = None) -> Any:
        return self.old.resize(model, parameters, limit)

    def interpolate(self, models: Sequence[Any], validation: Any) -> Any:
        return validation.old.interpolate(models)

    def candidates(self, train: Any) -> tuple[str, ...]:
        return self.old.candidates()

    def sampler(self, train: Any, diagnostics: Diagnostics) -> Sampler:
        return self.old.make_sampler(train)

    def collate(self, items: Any, chosen: np.ndarray) -> Batch:
        return self.old.collate(items, chosen)

    def training_batch(self, train: Any, chosen: np.ndarray, share: slice, step: int) -> Batch:
        return self.old.consecutive_batch(train, int(chosen[share][0]), len(chosen[share]))

    def forward(self, network: Any, batch: Batch, state: State = None) -> Output[Any]:
        return self.old.forward(network, batch, state)

    def loss(self, output: Output[Any], batch: Batch, smoothing: float = 0.0) -> Tensor:
        return self.old.loss(output, batch, smoothing)

    def hidden_states(self, network: Any, batch: Batch) -> Tensor:
        return self.old.hidden_states(network, batch)

    def shown_items(self, items: Any) -> Any:
        return next((self.old.examples(name) for name, own in self.old.encoded.items() if own is items), items)

    def stream(self, items: Any) -> np.ndarray | None:
        return next((self.old.stream(name) for name, own in self.old.encoded.items() if own is items), None)

    def distillation_loss(self, output: Output[Any], teacher: Output[Any], temperature: float) -> Tensor:
        return self.old.distillation_loss(output, teacher, temperature)

    def teacher_scores(self, output: Output[Any]) -> Tensor:
        return self.old.teacher_scores(output)

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        return self.old.teacher_mismatches(teacher)

    def with_unlabeled(self, train: Any, unlabeled: Any) -> Any:
        return train.with_unlabeled(unlabeled)

    def sample_split(self, split: Any, limit: int | None = None) -> Any:
        return replace(split, limit=200_000 if limit is None else limit)

    def evaluate(self, network: Any, split: Any, progress: Progress | None = None) -> Evaluation[Any, Any]:
        split.old.on_progress = progress
        values = split.old.evaluate(network, split.name, split.limit)
        split.old.on_progress = None
        return Evaluation(split, dict(values), network, example_scores(values), metric_signatures(values))

    def baselines(self, splits: Splits[Any], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        return {name: values for name in names if (values := self.old.baselines(name))}

    def calibrate(self, network: Any, validation: Any, diagnostics: Diagnostics) -> tuple[Self, Mapping[str, Tensor]]:
        if not self.old.finish(network):
            return self, {}
        return replace(self, processor=self.old.processor), weights(network)

    def views(self, evaluation: Evaluation[Any, Any]) -> list[View]:
        split: Any = evaluation.split
        return split.old.views(split.old.predictor(evaluation.outputs), split.name)

    def findings(self, evaluations: Mapping[str, Evaluation[Any, Any]]) -> list[Finding]:
        return self.old.findings({name: evaluation.metrics for name, evaluation in evaluations.items()})

    def sample(self, evaluation: Evaluation[Any, Any]) -> str:
        split: Any = evaluation.split
        return split.old.sample(evaluation.outputs)

    def predictor(self, network: Any) -> Predictor[Any]:
        return self.old.predictor(network)


@cache
def bridge_type(old: type[OldTask[Any]]) -> type[Bridge]:
    """Returns the class of the bridge of a task."""
    members = {name: getattr(old, name) for name in DECLARED}
    bridge = type(f"{old.__name__}Bridge", (Bridge,), {**members, "__module__": old.__module__})
    bridge.name, bridge.spec = old.name, old.spec  # type: ignore[attr-defined]
    return bridge


def bridge_of(old: OldTask[Any]) -> Bridge:
    """Returns a task that is not migrated yet as a new one."""
    return bridge_type(type(old))(old.config, old.processor, old.layout, old)


def prepare_bridge(task_type: type[OldTask[Any]], **arguments: Any) -> tuple[Bridge, Splits[Any]]:
    """Returns what `reading.prepare` does, for a task that is not migrated yet."""
    old = task_type.prepare(**arguments)
    parts = {name: OldSplit(name, old.datasets[name], items, old) for name, items in old.encoded.items()}
    return bridge_of(old), Splits(parts)


def as_task(task: Any) -> Any:
    """Returns a task that is not migrated yet behind its bridge; others as they are."""
    return bridge_of(task) if isinstance(task, OldTask) else task
