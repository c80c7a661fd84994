"""Fine-tuning: passes over the data, rates that fall with depth, frozen parts, warm-up by share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.api import configure
from seriatim.core import registry
from seriatim.core.errors import SeriatimError


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 texts of unequal length: 48 of them to learn from."""
    draw = np.random.default_rng(0)
    moods = {"good": ["fine", "lovely", "great"], "bad": ["dull", "awful", "poor"]}
    rows = [
        f"{' '.join(draw.choice([*moods[label], 'the', 'film', 'was'], draw.integers(2, 9)))},{label}"
        for label in ["good", "bad"] * 30
    ]
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    path.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(1)
    words = ["one", "two", "three", "four"]
    lines = [" ".join(draw.choice(words, draw.integers(1, 7))) for _ in range(60)]
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("\n".join(f"{line}\t{' '.join(reversed(line.split()))}" for line in lines) + "\n", encoding="utf-8")
    return path


def prepared(name: str, data: Path, model: str = "gru", **settings: Any) -> Any:
    config = configure(name, str(data), model, settings)
    return registry.tasks.load(name).prepare(config)


# Epochs


def test_epochs_visit_every_example_as_often(reviews: Path, tmp_path: Path) -> None:
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", epochs=2.5, batch=8)
    assert run.summary["step"] == 15, "48 examples are 6 batches of 8"
    task = prepared("classify", reviews)
    assert task.size == 48
    seen = Counter(row for step in range(12) for row in task.rows(step, 8).tolist())
    assert seen == dict.fromkeys(range(48), 2)


def test_epochs_of_pairs_are_their_batches(pairs: Path) -> None:
    task = prepared("translate", pairs)
    steps = task.steps_per_epoch(8)
    for epoch in range(2):
        batches = [task._grouped(8).rows(step) for step in range(epoch * steps, (epoch + 1) * steps)]
        assert sorted(np.concatenate(batches).tolist()) == list(range(task.size))


def test_an_epoch_of_a_text_reads_as_many_tokens(book: Path) -> None:
    task = prepared("language", book, task={"length": 12})
    read = task.steps_per_epoch(4) * 4 * 12
    assert task.size - 48 < read <= task.size


def test_epochs_count_whole_global_batches(reviews: Path, tmp_path: Path) -> None:
    settings = {"train": {"accumulate": 3}}
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", epochs=2, batch=8, settings=settings)
    assert run.summary["step"] == 4, "48 examples are 2 times 3 batches of 8"


def test_epochs_move_the_end(reviews: Path, tmp_path: Path) -> None:
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", epochs=1, batch=8)
    more = seriatim.resume(run.path, epochs=1.5)
    assert more.summary["step"] == 9
    assert more.settings["train"]["epochs"] == 1.5
    assert seriatim.resume(run.path, steps=10).settings["train"]["epochs"] is None


def test_two_ends_are_refused(reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        configure("classify", str(reviews), "gru", steps=3, epochs=2)
    assert "train.epochs: steps or epochs say how long, not both" in caught.value.cause
    run = seriatim.train("classify", str(reviews), "gru", out=tmp_path / "r", steps=1, batch=8)
    with pytest.raises(SeriatimError, match="not both"):
        seriatim.resume(run.path, steps=3, epochs=2)


def test_what_suits_a_task_gives_way_to_any_end_that_is_said(monkeypatch: pytest.MonkeyPatch, reviews: Path) -> None:
    module = registry.tasks.load("classify")
    monkeypatch.setattr(module, "train_defaults", lambda values: {"epochs": 3.0, "batch": 16}, raising=False)
    assert configure("classify", str(reviews), "gru").train.epochs == 3
    for name, value in {"steps": 5, "minutes": 1.0, "epochs": 2.0}.items():
        train = configure("classify", str(reviews), "gru", **{name: value}).train
        assert (getattr(train, name), train.batch) == (value, 16)
        assert name == "epochs" or train.epochs is None
