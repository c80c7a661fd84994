"""The configuration from names, short options and nested settings, and its JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from seriatim.core import registry
from seriatim.core.config import dump_yaml, override
from seriatim.core.errors import SeriatimError
from seriatim.runs.configure import COLUMN_NAMES, config_schema, configure, short_settings
from seriatim.tasks import NAMES, load

VALUES: dict[str, Any] = {
    "steps": 7,
    "epochs": 2.5,
    "tokens": 5_000,
    "flops": 1e9,
    "minutes": 3.0,
    "batch_size": 5,
    "lr": 0.25,
    "device": "cpu",
    "context_length": 9,
    "tokenizer": "word",
    "vocab_size": 300,
    "pooling": "max",
    "horizon": 4,
    "crf": True,
    "encoding": "cp1252",
    "validation": "v.csv",
    "test": "t.csv",
    "params": 1000,
    "seed": 11,
    "teacher": "runs/teacher",
    "temperature": 3.0,
    "distillation_weight": 0.25,
    "unlabeled_data": "more.csv",
}


@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_short_name_is_a_setting(name: str) -> None:
    task, model = {"horizon": "forecast", "crf": "tag"}.get(name, "classify"), "gru"
    more = {} if name not in ("temperature", "distillation_weight", "unlabeled_data") else {"teacher": "runs/teacher"}
    value: Any = configure(task, "data.csv", model, **{name: VALUES[name]}, **more)
    for part in short_settings()[name].path.split("."):
        value = getattr(value, part)
    assert value == VALUES[name]


def test_all_short_names_are_tested() -> None:
    assert {*VALUES, "start"} == {*short_settings()}


def test_precedence() -> None:
    """Short options over names, names over nested settings, those over the defaults of model and task."""
    settings = {"model": {"name": "lstm", "width": 12}, "train": {"steps": 3, "batch_size": 9}, "data": "other.csv"}
    config = configure("classify", "data.csv", "gru", settings, steps=5)
    assert (config.model.name, config.model.width) == ("gru", 12)
    assert (config.train.steps, config.train.batch_size) == (5, 9)
    assert config.data.source == "data.csv"


@pytest.mark.parametrize("task", NAMES)
def test_a_task_alone_is_complete(task: str) -> None:
    config = configure(task, "data")
    assert config.model.name == load(task).default_model
    assert load(task).default_model_reason
    again = configure(settings=config.model_dump(mode="json"))
    assert again.model_dump() == config.model_dump()
    assert dump_yaml(again) == dump_yaml(config)


@pytest.mark.parametrize(
    ("task", "roles"),
    [("classify", ("input", "target")), ("regress", ("input", "target")), ("translate", ("source", "target"))],
)
def test_columns_by_role(task: str, roles: tuple[str, str]) -> None:
    config = configure(task, "data.csv", column="a", target="b")
    assert config.data.columns == dict(zip(roles, ("a", "b"), strict=True))
    assert COLUMN_NAMES == ("column", "target")


def test_a_target_of_a_task_without_one() -> None:
    with pytest.raises(SeriatimError, match="the task language has no --target"):
        configure("language", "data.csv", target="b")
    with pytest.raises(SeriatimError, match="--column needs a task"):
        configure(None, "data.csv", column="a")


def test_unknown_settings_get_a_suggestion() -> None:
    with pytest.raises(SeriatimError, match='no setting "stepz"') as caught:
        configure("classify", "data.csv", stepz=3)
    assert "steps" in caught.value.remedy
    with pytest.raises(SeriatimError, match=r"train\.stepz") as caught:
        configure("classify", "data.csv", settings={"train": {"stepz": 3}})
    assert 'did you mean "steps"?' in caught.value.cause


def test_two_ends_are_refused() -> None:
    with pytest.raises(SeriatimError, match=r"train\.epochs: set steps or epochs, not both"):
        configure("classify", "data.csv", "gru", steps=3, epochs=2)


def test_defaults_of_a_task_give_way_to_any_end(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = classmethod(lambda cls, values: {"epochs": 3.0, "batch_size": 16})
    monkeypatch.setattr(load("classify"), "train_defaults", defaults)
    assert configure("classify", "data.csv").train.epochs == 3
    for name, value in {"steps": 5, "minutes": 1.0, "epochs": 2.0}.items():
        train = configure("classify", "data.csv", **{name: value}).train
        assert (getattr(train, name), train.batch_size) == (value, 16)
        assert name == "epochs" or train.epochs is None


@pytest.mark.parametrize("separator", ["|", ">", "#", "-", ";"])
def test_any_character_can_separate_labels(separator: str) -> None:
    values = override({}, [f"data.label_separator={separator}"])
    assert configure("classify", "data.csv", settings=values).data.label_separator == separator


@pytest.mark.parametrize("section", ["train", "data", "distill", "task.tokenizer"])
def test_a_section_that_is_a_number(section: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        configure("classify", None if section == "data" else "data.csv", settings=override({}, [f"{section}=5"]))
    assert caught.value.code in ("config.invalid", "config.incomplete")
    assert section in caught.value.cause


# The JSON Schema


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_it_is_json() -> None:
    schema = config_schema()
    assert json.loads(json.dumps(schema)) == schema
    references = json.dumps(schema).count('"$ref"')
    assert references >= len(NAMES) + len(registry.models.names())


@pytest.mark.parametrize("task", NAMES)
def test_the_settings_of_every_task_are_valid(validator: Any, task: str) -> None:
    values = configure(task, "data.csv").model_dump(mode="json")
    validator.validate({"format": 1, **values})
    validator.validate({"task": task, "data": {"source": "data.csv"}, "model": values["model"]["name"]})


@pytest.mark.parametrize("model", registry.models.names())
def test_the_settings_of_every_model_are_valid(validator: Any, model: str) -> None:
    settings = registry.models.load(model).Settings(name=model).model_dump(mode="json")
    validator.validate({"task": "classify", "data": {"source": "data.csv"}, "model": settings})


@pytest.mark.parametrize(
    "values",
    [
        {"task": "clasify"},
        {"model": {"name": "lstm", "widht": 8}},
        {"model": {"name": "lstm", "width": "wide"}},
        {"train": {"stepz": 3}},
        {"train": {"batch_size": 0}},
        {"trian": {}},
        {"seed": "none"},
    ],
)
def test_mistakes_are_invalid(validator: Any, values: dict[str, Any]) -> None:
    valid = {"task": "classify", "data": {"source": "data.csv"}, "model": "lstm"}
    assert validator.is_valid(valid)
    assert not validator.is_valid(valid | values)


def test_one_task_alone() -> None:
    schema = config_schema("tag")
    definitions = [name for name in schema["$defs"] if name.startswith("task.")]
    assert definitions == ["task.tag"]


def test_descriptions_are_there_for_editors() -> None:
    properties = config_schema()["$defs"]["TrainSettings"]["properties"]
    assert all("description" in value or "$ref" in value or "default" in value for value in properties.values()), (
        properties
    )
