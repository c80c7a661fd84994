"""The configuration of a run: defaults of task and model, and all problems at once."""

from __future__ import annotations

from typing import Any

import pytest

from seriatim.core.config import dump_yaml
from seriatim.core.errors import SeriatimError
from seriatim.tasks.base import TaskConfig
from seriatim.training.config import make_config


def make(**sections: Any) -> Any:
    return make_config({"task": "language", "data": "book.txt", "model": "lstm", **sections})


def test_names_are_sections_and_the_rest_has_defaults() -> None:
    config = make()
    assert (config.task.name, config.data.source, config.model.name, config.seed) == ("language", "book.txt", "lstm", 0)
    assert (config.train.batch_size, config.train.optimizer.lr) == (32, None)
    task_config = config.task_config()
    assert type(task_config) is TaskConfig
    assert task_config.model is config.model


def test_defaults_of_tasks_and_models() -> None:
    tagger = make_config({"task": "tag", "data": "words.conll", "model": "lstm"})
    assert tagger.model.bidirectional
    assert not make_config(
        {"task": "tag", "data": "x", "model": {"name": "lstm", "bidirectional": False}}
    ).model.bidirectional
    assert make_config({"task": "classify", "data": "x", "model": "bert"}).task.pooling == "first"
    translate = {"task": "translate", "data": "x", "model": "transformer"}
    assert make_config(translate).train.batch_size == 96
    assert make_config({**translate, "train": {"batch_size": 7}}).train.batch_size == 7


def test_a_vocabulary_size_alone_is_that_of_the_models_tokenizer() -> None:
    values = {"task": {"name": "classify", "tokenizer": {"vocab_size": 500}}, "data": "x", "model": "bert"}
    tokenizer = make_config(values).task.tokenizer
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.lowercase) == ("bert", 500, True)
    values["task"] = {"name": "classify", "tokenizer": {"kind": "word", "vocab_size": 500}}
    assert make_config(values).task.tokenizer.kind == "word"


def test_all_problems_at_once_with_suggestions() -> None:
    train = {"optimizer": {"lrr": 1}, "batch_size": 0, "steps": 5, "epochs": 2}
    with pytest.raises(SeriatimError) as caught:
        make(train=train, model={"name": "lstm", "width": "wide"})
    for text in ('did you mean "lr"?', "train.batch_size", "steps or epochs", "model.width"):
        assert text in caught.value.cause, text


@pytest.mark.parametrize("section", ["task", "data"])
def test_missing_names(section: str) -> None:
    with pytest.raises(SeriatimError, match=f"{section} is not named") as caught:
        make(**{section: {}})
    assert caught.value.code == "config.incomplete"


def test_a_task_has_a_default_model() -> None:
    assert make_config({"task": "language", "data": "x"}).model.name == "lstm"


def test_a_stored_configuration_is_read_again() -> None:
    import yaml

    config = make(params="10k", distill={"teacher": "runs/a", "weight": 0.7})
    values = yaml.safe_load(dump_yaml(config))
    assert make_config({"format": 1, **values}).model_dump() == config.model_dump()
