"""Predictors: trained networks with declared capabilities, and the one function that executes them.

    answer = predictor.execute(Request("translate", ["the red cat"], {"beams": 3}))
    for part in answer: …            records as they are made; of a streamed request, pieces of each output
    answer.predictions()             all of them
    answer.value()                   what Python users get: a text for a text, a DataFrame for a DataFrame
    answer.notes                     of this request

`Run`, the command line and a server call the same function. Whatever is wrong with a request (its capability, its
options, a path that is not allowed) is raised by `execute`, before the first prediction.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from ..core.config import Settings, validate
from ..core.errors import Diagnostics, SeriatimError, did_you_mean
from ..core.files import path_exists
from ..data.dataset import Dataset
from ..data.source import DataInput, Source, open_source
from ..nn.inference import device_of, run_batches
from ..nn.native import quantize_weights
from ..report.charts import View
from .batching import Batch
from .capability import Call, Capability, CapabilityMethod, Record, capability
from .inspection import Aligner, EmbeddingTable, Explainer, ImageAttention, TokenReadout, TokenScorer
from .reading import refuse_paths, restore_kinds

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from ..embedding.reader import TextReader
    from .base import AnyTask

T = TypeVar("T", bound="AnyTask")
# What the file of a new task imports
__all__ = ["Call", "Predictions", "Predictor", "Record", "Request", "Usage", "capability"]


def flatten(record: Mapping[str, object]) -> Record:
    """Returns a record with a column `column.key` for each entry of a mapping, as of probabilities by label."""
    cells: Record = {}
    for column, value in record.items():
        cells |= (
            {f"{column}.{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {column: value}
        )
    return cells


class Predictions(list[Record]):
    """Predictions as records, one or more per input row."""

    source: Source | None = None  # the input, if there is one record per row of it

    def like(self, inputs: Any) -> Predictions | pd.DataFrame | pl.DataFrame:
        """Returns a pandas or polars DataFrame if the inputs are one, else the predictions themselves."""
        package = type(inputs).__module__.partition(".")[0]
        if package == "pandas":
            if self.source is None:
                return self.to_frame()
            import pandas as pd

            frame = inputs if hasattr(inputs, "columns") else inputs.to_frame()
            predictions = pd.DataFrame([flatten(record) for record in self], index=frame.index)
            return pd.concat([frame.drop(columns=predictions.columns, errors="ignore"), predictions], axis=1)
        if package == "polars":
            predictions = type(inputs)(self.to_arrow())
            if self.source is None:
                return predictions
            return inputs.drop(predictions.columns, strict=False).hstack(predictions)
        return self

    def to_arrow(self) -> pa.Table:
        """Returns an Arrow table, which polars, DuckDB and others read without a copy."""
        return pa.Table.from_pylist(list(self))

    def to_frame(self) -> pd.DataFrame:
        """Returns a pandas DataFrame; if the input was one, with its index and its columns before the predictions."""
        import pandas as pd

        records = [flatten(record) for record in self]
        if self.source is None or self.source.columns is None or self.source.index is None:
            return pd.DataFrame(records)
        predictions = pd.DataFrame(records, index=self.source.index)
        inputs = pd.DataFrame(dict(self.source.columns), index=self.source.index)
        return pd.concat([inputs.drop(columns=predictions.columns, errors="ignore"), predictions], axis=1)


# Requests and answers


@dataclass(frozen=True)
class Request:
    """A question to a predictor.

    Args:
        name: The capability; "predict" is the first one, with its main output named "prediction".
        inputs: A path, a table, a list of inputs, or a single input.
        options: Fields of the capability's options.
        columns: Role → column names that differ from those of the training data.
        stream: Whether outputs are wanted in pieces, if the capability has any.
        paths: Whether inputs, cells and options may name local files. A server says no.
        part: How many rows are predicted at a time; by default all.
        on_note: Called with each note as it is made.
        data_dir: The folder of catalogue data sets.
    """

    name: str
    inputs: DataInput | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    columns: Mapping[str, str] | None = None
    stream: bool = False
    paths: bool = True
    part: int | None = None
    on_note: Callable[[str], None] | None = None
    data_dir: str | None = None


@dataclass(frozen=True)
class Part:
    """Consecutive predictions of an answer.

    Args:
        first: The number of the first input row.
        rows: The input rows.
        records: Their predictions.
        complete: False for a piece: the main output of its record continues that of the piece before.
    """

    first: int
    rows: Dataset
    records: list[Record]
    complete: bool = True

    def cells(self) -> Iterator[Record]:
        """Yields the cells of each input row by column."""
        columns = [column for columns in self.rows.columns.values() for column in columns]
        for row in range(len(self.rows)):
            yield {column.name: column.values[row] for column in columns}


class Answer:
    """The answer to a request. It is computed while it is iterated over, once.

    Args:
        request: The request.
        capability: The capability that it names.
        source: The inputs; None if they are the data of the run.
        single: Whether the inputs are a single one.
        count: The number of input rows.
        diagnostics: Receives the notes.
        parts: The predictions.
    """

    def __init__(
        self,
        request: Request,
        capability: Capability,
        source: Source | None,
        single: bool,
        count: int,
        diagnostics: Diagnostics,
        parts: Iterator[Part],
    ) -> None:
        self.request, self.capability, self.diagnostics = request, capability, diagnostics
        self.main = "prediction" if request.name == "predict" else capability.main
        self.count = count
        self._source, self._single, self._parts = source, single, parts

    def __iter__(self) -> Iterator[Part]:
        return self._parts

    def rename_main(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yields records with the main output under the name that the request gives it."""
        own = self.capability.main
        if self.main == own:
            return iter(records)
        return ({self.main if key == own else key: value for key, value in record.items()} for record in records)

    @property
    def notes(self) -> list[str]:
        """The notes so far."""
        return self.diagnostics.notes

    def predictions(self) -> Predictions:
        """Returns all records; the pieces of a streamed output are joined."""
        records: list[Record] = []
        begun = -1  # the row whose output the next piece continues
        for part in self:
            own = list(self.rename_main(part.records))
            if not part.complete and part.first == begun:
                own = [{**own[0], self.main: records.pop()[self.main] + own[0][self.main]}]
            begun = -1 if part.complete else part.first
            records += own
        predictions = Predictions(records)
        predictions.source = self._source if self.capability.per_row else None
        return predictions

    def value(self) -> Any:
        """Returns the records, or a DataFrame if the input is one; of a single input its record or main output."""
        predictions = self.predictions()
        if self._single and self.capability.per_row and predictions:  # an empty tuple has no prediction
            scalar = self.capability.scalar and self.request.name != "predict"
            return predictions[0][self.main] if scalar else predictions[0]
        return predictions.like(self.request.inputs)


@dataclass(frozen=True)
class ModelInput:
    """Inputs as the network reads them, with what `inspect` and `embed` show beside them."""

    batch: Batch
    sequences: list[dict[str, list[str]]]  # of each item: axis (source, target) → the text of each element


@dataclass(frozen=True)
class Usage:
    """An example of use for the model card: the same in the shell and in Python."""

    shell: str
    python: str


class Predictor(Generic[T]):
    """A trained network with the capabilities of its task.

    Args:
        task: The task.
        network: The network, or the model that `Task.fit` returned.
    """

    methods: ClassVar[dict[str, CapabilityMethod]] = {}  # name → capability, those of the base classes last
    file_extensions: ClassVar[tuple[str, ...]] = ()  # of output files in a format of the task, such as ".conll"

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        names = dict.fromkeys(name for base in cls.__mro__ for name in vars(base))
        members = ((name, inspect.getattr_static(cls, name)) for name in names)  # what attribute access finds
        cls.methods = {name: value for name, value in members if isinstance(value, CapabilityMethod)}

    def __init__(self, task: T, network: Any) -> None:
        self.task, self.network, self.processor = task, network, task.processor

    @classmethod
    def offers(cls, task: Any, name: str) -> bool:
        """Returns whether a task has a capability of the class, such as embeddings if it reads text."""
        return True

    @classmethod
    def describe(cls, task: AnyTask) -> dict[str, Capability]:
        """Returns the capabilities of a task by name. No network is needed."""
        inputs = task.schema.inputs()
        return {name: method.resolve(inputs) for name, method in cls.methods.items() if cls.offers(task, name)}

    @property
    def capabilities(self) -> dict[str, Capability]:
        return self.describe(self.task)

    # Execution

    def execute(self, request: Request) -> Answer:
        """Returns the answer to a request, which is computed as it is read; raises what is wrong with the request."""
        known = self.capabilities
        name = next(iter(known)) if request.name == "predict" else request.name
        if name not in known:
            cause = f'the task {self.task.name} has no capability "{name}"'
            raise SeriatimError("predict.capability", cause, did_you_mean(name, known))
        chosen, method = known[name], self.methods[name]
        options = validate(chosen.options, request.options, f"the options of {name}")
        if request.stream and not chosen.streams:
            raise SeriatimError("predict.stream", f"{name} has no pieces", "omit stream")
        if not request.paths:
            refuse_files(request, chosen)
        diagnostics = Diagnostics(request.on_note)
        single, source, rows = self._read(request, chosen, diagnostics)
        call = Call(rows, options, diagnostics)
        parts = (
            self._stream(method, call)
            if request.stream
            else self._parts(method, call, request.part, request.inputs is None)
        )
        return Answer(request, chosen, source, single, len(rows), diagnostics, parts)

    def call(
        self, name: str, inputs: DataInput | None = None, data_dir: str | None = None, **options: object
    ) -> Predictions:
        """Returns the predictions of a capability as records.

        Args:
            name: The capability.
            inputs: A path, a table, or a list of texts, tuples or records.
            data_dir: The folder of catalogue data sets.
            options: Fields of the capability's options.
        """
        return self.execute(Request(name, inputs, options, data_dir=data_dir)).predictions()

    def predict(self, inputs: DataInput, **options: Any) -> Predictions:
        """Returns the predictions of the first capability, with its main output named "prediction"; see `call`."""
        return self.call("predict", inputs, **options)

    def _read(
        self, request: Request, chosen: Capability, diagnostics: Diagnostics
    ) -> tuple[bool, Source | None, Dataset]:
        """Returns whether there is a single input, the source, and its rows."""
        inputs, task = request.inputs, self.task
        if inputs is None:
            if not chosen.own_data:
                raise SeriatimError("input.missing", f"{chosen.name} needs inputs", "pass a text, a list or a table")
            return False, None, task.read_own_data(diagnostics, request.data_dir)
        single = is_single(inputs) and not (request.paths and self._is_file(chosen, inputs))
        source = open_source([inputs] if single else inputs, request.data_dir)
        if request.paths:
            return single, source, task.read(source, diagnostics, chosen.inputs, request.columns)
        schema, layout = refuse_paths(chosen.inputs, task.layout)
        rows = replace(task, layout=layout).read(source, diagnostics, schema, request.columns)
        return single, source, restore_kinds(rows, task.layout)

    def _is_file(self, chosen: Capability, inputs: DataInput) -> bool:
        """Returns whether a string names a file, since it cannot be an input itself, as "new.csv" of a forecast."""
        role = chosen.inputs.input_role
        kind = self.task.layout.kinds.get(str(role))
        if not isinstance(inputs, str) or role is None or kind is None or kind not in chosen.inputs[role].kinds:
            return False
        try:
            kind.parse(inputs)
        except (ValueError, SeriatimError):  # a file that does not exist is then reported as such
            return Path(inputs).suffix[1:].isalpha() or path_exists(inputs)
        return False

    def _parts(self, method: CapabilityMethod, call: Call[Any], size: int | None, own_data: bool) -> Iterator[Part]:
        count = len(call.rows)
        if size is None or not method.capability.per_row or count <= size:
            if count or own_data:  # a capability may need no rows, as a composition without an opening
                yield Part(0, call.rows, method.run(self, call))
            return
        for first in range(0, count, size):
            rows = call.rows.take(np.arange(first, min(first + size, count)))
            yield Part(first, rows, method.run(self, replace(call, rows=rows)))

    def _stream(self, method: CapabilityMethod, call: Call[Any]) -> Iterator[Part]:
        assert method.pieces is not None
        rows = [call.rows.take(np.array([row])) for row in range(len(call.rows))]
        answers = [method.pieces(self, replace(call, rows=row)) for row in rows]  # which refuses options at once
        return (
            Part(first, row, [record], complete=False)
            for first, (row, records) in enumerate(zip(rows, answers, strict=True))
            for record in records
        )

    def ensemble(self, others: Sequence[Predictor[T]]) -> Predictor[T]:
        """Returns a predictor that averages the probabilities of this one and others."""
        raise SeriatimError("predict.ensemble", f"the task {self.task.name} has no ensembles", "name one run")

    def quantize(self) -> Predictor[T]:
        """Returns a predictor whose network has int8 weights: faster where memory is the limit, nearly as accurate."""
        return type(self)(self.task, quantize_weights(self.network))

    def scores(self, encoded: Any) -> list[np.ndarray]:
        """Returns the network's scores of each item."""

        device = device_of(self.network)

        def run(items: np.ndarray) -> Sequence[np.ndarray]:
            batch = self.task.collate(encoded, items).to(device)
            return self.task.unbatch(self.task.forward(self.network, batch), batch)

        return run_batches(encoded.lengths, run)

    def encode_inputs(self, inputs: DataInput) -> Any:
        """Returns inputs of the user as items of the network, without targets."""
        task, diagnostics = self.task, Diagnostics()
        return task.encode(task.read(inputs, diagnostics, task.schema.inputs()), diagnostics)

    def model_input(self, inputs: DataInput) -> ModelInput:
        """Returns the batch that the network reads for these inputs, with the text of each element."""
        encoded = self.encode_inputs(inputs)
        batch = self.task.collate(encoded, np.arange(len(encoded)))
        return ModelInput(batch, [self.sequences(encoded, item) for item in range(len(encoded))])

    def sequences(self, encoded: Any, item: int) -> dict[str, list[str]]:
        """Returns the text of each element of each sequence the network reads, by axis; the encoder's comes first."""
        return {"element": self.element_names(encoded, item)}

    def element_names(self, encoded: Any, item: int) -> list[str]:
        """Returns the text of each element of an item; by default its position."""
        return [str(position) for position in range(int(encoded.lengths[item]))]

    # Inspection: a hook returns None if the model has nothing of the kind

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        """The numbers of texts that an input may have; empty if inputs cannot be typed."""
        fields = self.task.schema.inputs().fields
        return (sum(field.required for field in fields),)

    def with_target(self, encoded: Any, target: str | None = None, max_tokens: int | None = None) -> Any:
        """Returns one item with the target that a decoder reads.

        Args:
            encoded: One item without targets.
            target: Its text; by default the model generates it.
            max_tokens: The largest number of generated tokens.
        """
        if target is not None:
            raise SeriatimError("inspect.target", f"the task {self.task.name} has no target texts", "omit --target")
        return encoded

    def generate_input(self, text: str, tokens: int, seed: int) -> tuple[Any, int] | None:
        """Returns one item that ends with up to `tokens` generated tokens, and the number of elements before them."""
        return None

    def token_scorer(self) -> TokenScorer | None:
        """Returns a function that rates the tokens of a text; see `ScoredTokens`."""
        return None

    def token_readout(self) -> TokenReadout | None:
        """Returns how scores of tokens follow from the outputs of the backbone."""
        return None

    def explainer(self) -> Explainer | None:
        """Returns a function that selects the output whose dependence on a text is explained."""
        return None

    def aligner(self) -> Aligner | None:
        """Returns a function from a source and a target to their alignment; see `Alignment`."""
        return None

    def image_attention(self, encoded: Any, item: int) -> ImageAttention | None:
        """Returns the attention of each word of an item's target to the cells of its image."""
        return None

    def text_reader(self) -> TextReader:
        """Returns the encoder of single texts, or raises an error if inputs are not text."""
        cause = f"a model of the task {self.task.name} does not read text"
        raise SeriatimError("predict.capability", cause, "use a network that was trained on text")

    def embedding_tables(self) -> list[EmbeddingTable]:
        """Returns the tables of token vectors, that of the source first; empty if there are none."""
        try:
            reader = self.text_reader()
        except SeriatimError:
            return []
        return [EmbeddingTable("", reader.tokenizer, reader.embedding_table)]

    # Files and documentation

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        """Returns charts of the predictions of a capability, such as an alignment; by default none."""
        return []

    def open_writer(
        self, name: str, options: Settings, path: Path, run: str
    ) -> AbstractContextManager[Callable[[Sequence[Record]], None]] | None:
        """Returns a function that writes records of a capability to a file as they come; None for the usual formats.

        Args:
            name: The capability.
            options: Its options.
            path: The file.
            run: The run folder, as a description of the model.
        """
        return None

    def format_file(self, extension: str, predictions: Predictions) -> str | bytes:
        """Returns all predictions as the contents of a file with one of the `file_extensions`."""
        raise SeriatimError("output.format", f"{extension}: unknown format", "use .csv, .tsv, .jsonl or .parquet")

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        """Returns lines for the model card that use the capabilities of this run on an example.

        Args:
            run: The run folder, as commands name it.
            rows: The validation split, from which the example may be taken.
        """
        return []


def is_single(inputs: DataInput) -> bool:
    """Returns whether this is one input, not a table or a list: a text, a record, a tuple of texts, an image array."""
    if isinstance(inputs, np.ndarray):  # (H,W) or (H,W,C); gray images (N,H,W) are several
        channels = inputs.shape[2] if inputs.ndim == 3 else 1
        return inputs.dtype == np.uint8 and inputs.ndim in (2, 3) and channels in (1, 3, 4)
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    if isinstance(inputs, tuple):
        return all(isinstance(value, str | Path | int | float) for value in inputs)
    return isinstance(inputs, str)


def refuse_files(request: Request, chosen: Capability) -> None:
    """Raises SeriatimError if inputs or options name a file; `refuse_paths` sees to the cells."""
    inputs = request.inputs
    named = isinstance(inputs, Path | Source) or (isinstance(inputs, str) and not is_single(inputs))
    if isinstance(inputs, Mapping) and not is_single(inputs):  # columns by name, not sources by split
        named = any(isinstance(cells, str | Path | Source | Mapping) for cells in inputs.values())
    options = [name for name in chosen.sources if isinstance(request.options.get(name), str | Path)]
    if named or options or (inputs is None and not chosen.own_data):
        what = f"the option {options[0]} names a file" if options else "the input is no list of inputs"
        raise SeriatimError("input.path", f"{what}, and files are not read here", "send the contents of the file")
