"""The codec of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import nn

from ...core.errors import Diagnostics
from ...data.dataset import Dataset
from ...data.kinds import NUMBER, NUMBERS
from ...data.schema import Schema
from ...data.sequences import Sequences
from ...data.source import Source
from ...nn.backbone import BackboneSettings
from ...nn.layers import NumberInput
from ..inputs import NUMERIC, Modality, SequenceSettings
from ..metrics import mean_and_std
from ..processor import Tokenizers, check_numbers
from ..reading import Layout
from ..spec import TaskConfig
from .base import MAX_PROBLEMS, NumberLayout, SequenceCodec, limit_length

MAX_SHOWN = 12  # numbers of an input in a table


@dataclass(frozen=True)
class NumberCodec(SequenceCodec):
    """A list of numbers per cell, or one number in each of several columns; standardized by the training split."""

    modality: ClassVar[Modality] = NUMERIC

    features: tuple[str, ...]  # the names of the numbers of a step
    mean: tuple[float, ...]
    std: tuple[float, ...]
    longest: int
    max_length: int | None = None

    def __post_init__(self) -> None:
        check_numbers("mean and std", (self.mean, self.std), 2, len(self.features))

    @classmethod
    def fit(
        cls, train: Dataset, role: str, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics
    ) -> Self:
        columns = train.columns[role]
        name, width = columns[0].name, 1
        if columns[0].kind is NUMBERS:
            width = next((values.shape[1] for values in columns[0].values if len(values)), 1)
        elif len(columns) > 1:
            name = "value"
            diagnostics.note(f"{len(columns)} columns are a sequence of {len(columns)} numbers")
        features = (name,) if width == 1 else tuple(f"{name}.{number}" for number in range(1, width + 1))
        codec = cls(features, (0.0,) * width, (1.0,) * width, 1)
        longest, limit = limit_length(codec.encode(train, role).lengths, config, diagnostics)
        codec = replace(codec, longest=longest, max_length=limit)
        if config.task.scaling == "standard":
            mean, std = mean_and_std(codec.encode(train, role).values)
            codec = replace(codec, mean=tuple(map(float, mean)), std=tuple(map(float, std)))
        return codec

    def encode(self, dataset: Dataset, role: str, diagnostics: Diagnostics | None = None) -> Sequences:
        problems = Diagnostics() if diagnostics is None else diagnostics
        if dataset.kind(role) is NUMBER:
            matrix = dataset.matrix(role)
            for row, column in np.argwhere(np.isnan(matrix))[:MAX_PROBLEMS].tolist():
                name = dataset.columns[role][column].name
                cause = f'{dataset.locations[row]}: column "{name}": the number is missing'
                problems.report("data.number", cause, "fill it in, or remove the row")
            sequences = Sequences.equal(matrix.astype(np.float32)[..., None])
        else:
            sequences = self._join_lists(dataset, role, problems)
        if diagnostics is None:
            problems.raise_problems()
        if self.max_length is None or sequences.lengths.max(initial=0) <= self.max_length:
            return sequences
        return Sequences.of((sequences[row][: self.max_length] for row in range(len(sequences))), width=self.width)

    def _join_lists(self, dataset: Dataset, role: str, diagnostics: Diagnostics) -> Sequences:
        """Returns the lists of all columns, one behind the other; steps of another width are problems."""
        columns = [column.values for column in dataset.columns[role]]
        arrays = columns[0] if len(columns) == 1 else [np.concatenate(row) for row in zip(*columns, strict=True)]
        joined = []
        for row, array in enumerate(arrays):
            if len(array) and array.shape[1] != self.width:
                cause = f"{dataset.locations[row]}: a step has {array.shape[1]} numbers, the model has {self.width}"
                diagnostics.report("data.features", cause, f"pass {', '.join(self.features)}")
            joined.append(array if len(array) and array.shape[1] == self.width else np.zeros((0, self.width)))
        return Sequences.of(joined, width=self.width)

    @property
    def width(self) -> int:
        return len(self.features)

    def input_module(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        module = NumberInput(self.width, model.embedding)
        module.mean.copy_(torch.tensor(self.mean))
        module.std.copy_(torch.tensor(self.std))
        return module, module.width

    def element_names(self, item: np.ndarray) -> list[str]:
        return [" ".join(f"{value:.3g}" for value in step) for step in item]

    @property
    def number_layout(self) -> NumberLayout:
        return NumberLayout(self.features, self.std)

    @classmethod
    def clean(cls, rows: Dataset, settings: SequenceSettings, diagnostics: Diagnostics) -> Dataset:
        columns = rows.columns["input"]
        if columns[0].kind is NUMBER:
            return rows
        columns = tuple(replace(column, kind=NUMBERS) for column in columns)  # however they were recognized
        return replace(rows, columns={**rows.columns, "input": columns})

    @classmethod
    def drops_empty(cls, rows: Dataset) -> bool:
        """A missing number of a sequence in several columns is an error."""
        return rows.kind("input") is not NUMBER

    def adapt(
        self, source: Source, schema: Schema, columns: Mapping[str, str], layout: Layout
    ) -> tuple[Source, Mapping[str, str], Layout]:
        if source.columns is None:  # lines, and a list of inputs, have no columns of the training data
            has_columns = any(stream.extension != "txt" for stream in source.streams)
        else:
            has_columns = set(layout.columns["input"].split(",")) <= set(source.columns)
        if layout.kinds.get("input") is NUMBER and "input" not in columns and not has_columns:
            layout = replace(layout, kinds={**layout.kinds, "input": NUMBERS})  # not a number in each column
        return source, columns, layout

    def describe(self, rows: Dataset, row: int) -> str:
        values = [column.values[row] for column in rows.columns["input"]]
        numbers = np.concatenate([np.reshape(value, -1) for value in values])
        steps = len(values) if rows.kind("input") is NUMBER else len(values[0])
        shown = " ".join(f"{value:.3g}" for value in numbers[:MAX_SHOWN])
        return f"{steps} steps: {shown}" + (" …" if len(numbers) > MAX_SHOWN else "")

    def example(self) -> tuple[str, str]:
        if self.width == 1:
            return '"0.1 0.2 0.3"', "[[0.1, 0.2, 0.3]]"
        step = f"[{', '.join(f'0.{number}' for number in range(1, min(self.width, 9) + 1))}]"
        return f'"[{step}, {step}]"', f"[[{step}, {step}]]"
