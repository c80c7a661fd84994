"""Run folders of format 1 open, predict, evaluate and resume: tests/golden/runs holds one of every task."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import seriatim

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = sorted(path.name for path in (GOLDEN / "runs").glob("*"))


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    for name in ("runs", "data"):
        shutil.copytree(GOLDEN / name, folder / name)
    return folder


def assert_close(actual: Any, expected: Any) -> None:
    """Asserts that JSON values are equal, numbers up to what another processor's rounding changes."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_close(actual[key], expected[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected, strict=True):
            assert_close(*pair)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-3, abs=1e-5)
    else:
        assert actual == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_format_1(copies: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copies)
    folder = Path("runs", name)
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    run, inputs = seriatim.load(folder), expected["inputs"]
    if isinstance(inputs, list):
        inputs = [tuple(item) if isinstance(item, list) else item for item in inputs]
    predictions = run.call(expected["capability"], Path(inputs) if isinstance(inputs, str) else inputs)
    plain = json.dumps(predictions, default=lambda item: item.tolist() if hasattr(item, "tolist") else str(item))
    assert_close(json.loads(plain), expected["predictions"])
    split = list(expected["metrics"])[-1]
    metrics = run.evaluate(split=split)  # later versions may add some
    assert_close({name: metrics[name] for name in expected["metrics"][split]}, expected["metrics"][split])
    if "resumed_losses" in expected:
        resumed = seriatim.resume(folder, steps=6, report=False)
        losses = [event["loss"] for event in resumed.history("stepped")]
        assert losses == pytest.approx(expected["resumed_losses"], rel=1e-3)


def test_every_task_has_a_golden_run() -> None:
    from seriatim.tasks import NAMES as TASKS

    assert set(TASKS) <= {seriatim.load(GOLDEN / "runs" / name).settings["task"]["name"] for name in NAMES}


@pytest.mark.parametrize("int8", [False, True], ids=["float32", "int8"])
def test_a_run_that_is_loaded_in_inference_mode(int8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors made there have no version, by which packed weights notice changes."""
    monkeypatch.setattr("seriatim.nn.layers.MIN_PACKED", 1)

    def translate() -> Any:
        run = seriatim.load(GOLDEN / "runs/translate")
        return (run.int8 if int8 else run).translate(["the red cat", "a dog"])

    expected = translate()
    with torch.inference_mode():
        assert list(translate()) == list(expected)
