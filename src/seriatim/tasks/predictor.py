"""Predictors: trained networks with declared capabilities; see `capability.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from ..core.config import Settings, validate
from ..core.errors import SeriatimError, did_you_mean
from ..data.dataset import Dataset
from ..data.source import DataInput, Source, open_source
from ..nn.native import quantize_weights
from ..report.charts import View
from .batching import Batch, device_of, run_batches
from .capability import Capability, CapabilityMethod, Record, capability
from .inspection import Aligner, EmbeddingTable, Explainer, ImageAttention, TokenReadout, TokenScorer

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from ..embedding.reader import TextReader
    from .base import Task

# What the file of a new task imports
__all__ = ["Predictions", "Predictor", "Record", "Usage", "capability"]


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


class Predictor:
    """A trained network with the capabilities of its task. `predict` runs the first one.

    Args:
        task: With or without data.
        network: The network, or the model that `Task.fit` returned.
    """

    methods: ClassVar[dict[str, CapabilityMethod]] = {}  # name → capability, those of the base classes last
    file_extensions: ClassVar[tuple[str, ...]] = ()  # of output files in a format of the task, such as ".conll"

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        found: dict[str, object] = {}
        for base in cls.__mro__:  # what attribute access finds: a method that is declared again, or None, replaces it
            for name, value in vars(base).items():
                found.setdefault(name, value)
        cls.methods = {name: value for name, value in found.items() if isinstance(value, CapabilityMethod)}

    def __init__(self, task: Task[Any], network: Any) -> None:
        self.task, self.network, self.processor = task, network, task.processor

    @property
    def capabilities(self) -> dict[str, Capability]:
        """The declared capabilities of this predictor, by name."""
        inputs = self.task.schema.inputs()
        return {name: declared.resolve(inputs) for name, declared in self.methods.items()}

    def call(self, name: str, inputs: DataInput, data_dir: str | None = None, **options: object) -> Predictions:
        """Returns the predictions of a capability.

        Args:
            name: The capability.
            inputs: A path, a table, or a list of texts, tuples or records.
            data_dir: The folder of catalogue data sets.
            options: Fields of the capability's options.
        """
        if name not in self.capabilities:
            cause = f'the task {self.task.name} has no capability "{name}"'
            raise SeriatimError("predict.capability", cause, did_you_mean(name, self.capabilities))
        capability = self.capabilities[name]
        own_data = capability.own_data and inputs is None
        source = None if own_data else open_source(inputs, data_dir)
        dataset = self.task.read_own_data(data_dir) if source is None else self.task.read(source, capability.inputs)
        checked = validate(capability.options, options, f"the options of {name}")
        if not len(dataset) and not own_data:
            return Predictions()
        predictions = Predictions(self.methods[name].method(self, dataset, checked))
        predictions.source = source if capability.per_row else None
        return predictions

    def predict(self, inputs: DataInput, **options: Any) -> Predictions:
        """Returns the predictions of the first capability, its first output named "prediction"; see `call`."""
        name, declared = next(iter(self.methods.items()))
        predictions = self.call(name, inputs, **options)
        first = next(iter(declared.capability.outputs))
        renamed = Predictions(
            {"prediction" if key == first else key: value for key, value in row.items()} for row in predictions
        )
        renamed.source = predictions.source
        return renamed

    def ensemble(self, others: Sequence[Predictor]) -> Predictor:
        """Returns a predictor that averages the probabilities of this one and others."""
        raise SeriatimError("predict.ensemble", f"the task {self.task.name} has no ensembles", "name one run")

    def quantize(self) -> Predictor:
        """Returns a predictor whose network has int8 weights: faster where memory is the limit, nearly as accurate."""
        if self.task.config.model.gradient_free:
            raise SeriatimError("run.gradient-free", f"{self.task.name}: the model has no weights", "omit --int8")
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
        return self.task.encode(self.task.read(inputs, self.task.schema.inputs()))

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

    def usage(self, run: str) -> list[Usage]:
        """Returns lines for the model card that use the capabilities of this run on an example."""
        return []
