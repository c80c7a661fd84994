"""Declarations of tasks: complete, imported without torch, and what the classes of tasks and predictors refer to."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seriatim.core.config import Settings
from seriatim.data.kinds import LABEL
from seriatim.data.schema import Field, Schema
from seriatim.tasks import NAMES, load, load_spec
from seriatim.tasks.base import Task
from seriatim.tasks.capability import Record, capability
from seriatim.tasks.classify.task import ClassifyTask
from seriatim.tasks.predictor import Predictor
from seriatim.tasks.spec import TaskSpec

HEAVY = ("torch", "numpy", "pyarrow", "pandas", "yaml", "tokenizers")


def test_specs_import_nothing_heavy() -> None:
    """Each by itself, so that a task cannot hide behind another one."""
    for name in NAMES:
        code = f"import sys, seriatim.tasks.{name}.spec; print([m for m in {HEAVY} if m in sys.modules])"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == "[]", name


@pytest.mark.parametrize("name", NAMES)
def test_the_class_of_a_task_refers_to_its_spec(name: str) -> None:
    spec, task = load_spec(name), load(name)
    assert task.spec is spec
    assert spec.name == name
    assert spec.summary[-1] != "."
    assert (task.name, task.schema, task.settings_type) == (spec.name, spec.schema, spec.settings_type)
    assert task.default_model == spec.default_model
    assert spec.settings_type.model_fields["name"].default == name


@pytest.mark.parametrize("name", NAMES)
def test_each_capability_is_bound_to_a_method(name: str) -> None:
    """In the order of the declaration, of which `predict` runs the first."""
    declared = load_spec(name).capabilities
    bound = [method.capability for method in load(name).predictor_type.methods.values()]
    assert list(map(id, bound)) == list(map(id, declared))
    assert all(one.summary[-1] == "." and one.outputs for one in declared)


class StampOptions(Settings):
    upper: bool = False


class StampPredictor(Predictor):
    @capability(outputs={"stamp": LABEL}, options=StampOptions)
    def stamp(self, dataset: object, options: StampOptions) -> list[Record]:
        """Return a stamp."""
        return []


def test_a_spec_is_made_from_the_class_variables_of_a_plug_in() -> None:
    schema = Schema((*ClassifyTask.schema.fields[:1], Field("stamp", (LABEL,), target=True)))
    declarations = {"__module__": __name__, "name": "stamp", "schema": schema, "default_model": "rnn"}
    try:
        task = type("StampTask", (ClassifyTask,), declarations | {"predictor_type": StampPredictor})
        spec: TaskSpec = task.spec
        assert (spec.name, spec.schema, spec.default_model) == ("stamp", schema, "rnn")
        assert spec.settings_type is ClassifyTask.settings_type
        assert spec.summary == __doc__.removesuffix(".")  # of the module
        (declared,) = spec.capabilities
        assert (declared.name, declared.summary) == ("stamp", "Return a stamp.")
        assert (declared.inputs, declared.options) == (schema.inputs(), StampOptions)
        assert load_spec("stamp") is spec
        assert ClassifyTask.spec.name == "classify"
    finally:
        Task.registry.pop("stamp", None)
