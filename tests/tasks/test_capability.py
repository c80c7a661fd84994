"""Capabilities: bound to methods of predictors, declared again or removed by subclasses."""

from __future__ import annotations

import numpy as np
import pytest

from seriatim.core.config import Settings
from seriatim.data.dataset import Column, Dataset
from seriatim.data.kinds import LABEL, NUMBER, TEXT
from seriatim.data.schema import Field, Schema
from seriatim.runs.capabilities import example_inputs
from seriatim.tasks.capability import Capability, NoOptions, Record, capability
from seriatim.tasks.predictor import Predictor

INPUTS = Schema((Field("text", (TEXT,)),))
COUNT = Capability("count", "Count the characters of each text.", INPUTS, {"characters": NUMBER})


class Base(Predictor):
    @capability(outputs={"letter": LABEL})
    def first(self, dataset: Dataset, options: Settings) -> list[Record]:
        """Return the first letter of each text.

        Of an empty text, nothing.
        """
        return [{"letter": "base"}]

    @capability(outputs={"letter": LABEL}, inputs=INPUTS, per_row=False)
    def last(self, dataset: Dataset, options: Settings) -> list[Record]:
        """Return the last letter."""
        return []


class Derived(Base):
    @capability(COUNT)
    def count(self, dataset: Dataset, options: NoOptions) -> list[Record]:
        return []

    @capability(outputs={"letter": LABEL, "position": NUMBER})
    def first(self, dataset: Dataset, options: Settings) -> list[Record]:
        """Return the first letter, and where it is."""
        return [{"letter": "derived"}]


class Without(Derived):
    last = None


class Between(Derived):
    """Declares nothing."""


def test_what_attribute_access_finds_is_run() -> None:
    """A subclass that declares a capability again replaces the method of its base; None removes it."""
    assert list(Base.methods) == ["first", "last"]
    assert list(Derived.methods) == ["count", "first", "last"]  # its own ones first
    assert list(Without.methods) == ["count", "first"]
    for predictor in (Base, Derived, Between):
        assert all(bound is getattr(predictor, name) for name, bound in predictor.methods.items())
    assert Derived.methods["first"].method(None, None, None) == [{"letter": "derived"}]
    assert list(Derived.methods["first"].capability.outputs) == ["letter", "position"]
    assert Derived.methods["last"] is Base.methods["last"]
    assert Between.methods == Derived.methods


def test_a_method_declares_itself_or_is_bound_to_a_declaration() -> None:
    task_inputs = Schema((Field("other", (TEXT,)),))
    first, last = Base.methods["first"].resolve(task_inputs), Base.methods["last"].resolve(task_inputs)
    summary = "Return the first letter of each text."
    assert first == Capability("first", summary, task_inputs, {"letter": LABEL})
    assert last == Capability("last", "Return the last letter.", INPUTS, {"letter": LABEL}, per_row=False)
    assert Derived.methods["count"].resolve(task_inputs) is COUNT


def test_a_declaration_is_bound_to_the_method_of_its_name() -> None:
    def other(predictor: Predictor, dataset: Dataset, options: Settings) -> list[Record]:
        return []

    with pytest.raises(TypeError):
        capability(COUNT)(other)
    with pytest.raises(TypeError):
        capability()(other)


class TopOptions(Settings):
    top: int = 5
    among: str = ""


def test_a_presentation_has_its_columns_and_options_are_those_of_the_class() -> None:
    outputs = {"text": TEXT, "completion": TEXT, "probability": NUMBER}
    declared = {"presentation": "candidates", "common": ("top",), "sources": ("among",)}
    assert Capability("next", "", INPUTS, outputs, TopOptions, **declared).presentation == "candidates"
    for wrong in ({"presentation": "label"}, {"presentation": "cloud"}, {"common": ("topp",)}, {"sources": ("file",)}):
        with pytest.raises(TypeError):
            Capability("next", "", INPUTS, outputs, TopOptions, **wrong)


def test_examples_are_from_the_data_of_a_run() -> None:
    schema = Schema((Field("input", (TEXT,)), Field("target", (LABEL,), target=True)))
    texts = [f"film {number}\nand more" for number in range(9)]
    texts[-1] = "long " * 100
    columns = {"input": TEXT, "target": LABEL}
    values = {"input": texts, "target": ["good"] * 9}
    rows = Dataset(
        "films",
        {role: (Column(role, kind, kind.store(values[role])),) for role, kind in columns.items()},
        np.array(range(9), dtype=object),
    )
    classify = Capability("classify", "", schema.inputs(), {"prediction": LABEL})
    examples = example_inputs(classify, rows, schema)
    assert [example["input"] for example in examples[:2]] == ["film 0", "film 4"]
    assert examples[2]["input"] == ("long " * 40).rstrip()
    assert [example["text"] for example in example_inputs(COUNT, rows, schema)] == [one["input"] for one in examples]
    two = Schema((Field("input", (TEXT,)), Field("question", (TEXT,))))
    assert example_inputs(Capability("answer", "", two, {"answer": TEXT}), rows, schema) == ()
