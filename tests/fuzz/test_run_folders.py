"""Run folders with damaged or hostile files: each command works or ends with exit code 2 and a message."""

from __future__ import annotations

import json
import math
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example
from hypothesis import strategies as st

import seriatim
from fuzzing import dump_json, fuzz, mutated, mutated_bytes, run_command
from seriatim import cli
from seriatim.core.errors import SeriatimError

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = ("answer", "classify", "forecast", "language", "music", "ngram", "pretrain", "regress", "tag", "translate")
Change = tuple[str, str, bytes]  # a run, a file, its contents


@cache
def stored(run: str) -> dict[str, bytes]:
    """Returns the files of a golden run."""
    folder = GOLDEN / "runs" / run
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "expected.json")
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@st.composite
def damaged_run(draw: Any, endings: tuple[str, ...] = ("",)) -> Change:
    """Draws a golden run and a file of it with other contents."""
    run = draw(st.sampled_from(NAMES))
    name = draw(st.sampled_from([name for name in stored(run) if name.endswith(endings)] or ["config.yaml"]))
    data = stored(run)[name]
    how = draw(st.sampled_from(["values", "values", "values", "bytes", "empty"]))
    if how == "values" and name.endswith(".json"):
        return run, name, dump_json(draw(mutated(json.loads(data))))
    if how == "values" and name.endswith(".yaml"):
        text = yaml.dump(draw(mutated(yaml.safe_load(data))), allow_unicode=True)
        return run, name, text.encode("utf-8", "surrogatepass")
    if how == "values" and name.endswith(".jsonl"):
        values = draw(mutated([json.loads(line) for line in data.splitlines()[:5]]))
        lines = values if isinstance(values, list) else [values]
        return run, name, b"".join(dump_json(line) + b"\n" for line in lines)
    return run, name, b"" if how == "empty" else draw(mutated_bytes(data))


def write_run(base: Path, change: Change) -> Path:
    """Writes a golden run with one changed file, and the data it was trained on, into a folder; works there."""
    run, name, data = change
    folder = base / "fuzzed" / "runs" / run
    shutil.rmtree(base / "fuzzed", ignore_errors=True)
    shutil.copytree(GOLDEN / "data", base / "fuzzed" / "data")
    shutil.copytree(GOLDEN / "runs" / run, folder)
    (folder / name).write_bytes(data)
    os.chdir(base / "fuzzed")
    return Path("runs", run)


@pytest.fixture(autouse=True)
def _work_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path.cwd())  # and come back afterwards


@fuzz(weight=0.5, change=damaged_run())
def test_runs(change: Change, tmp_path_factory: pytest.TempPathFactory) -> None:
    write_run(tmp_path_factory.getbasetemp(), change)
    run_command("runs")
    run_command("runs", "--json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("created", None),
        ("created", 7),
        ("reason", ["finished"]),
        ("monitor", {}),
        ("parameters", "many"),
        ("parameters", 10**400),
        ("seconds", math.nan),
        ("seconds", {}),
        ("metrics", []),
        ("metrics.validation", {"validation": 1}),
        ("metrics.validation.loss", {"validation": {"loss": 10**400}}),
        ("metrics.validation.loss", {"validation": {"loss": [2.0]}}),
    ],
)
def test_one_damaged_summary_does_not_hide_the_other_runs(
    key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads(stored("language")["summary.json"]) | {key.partition(".")[0]: value}
    run = write_run(tmp_path, ("language", "summary.json", dump_json(values)))
    shutil.copytree(GOLDEN / "runs" / "ngram", "runs/ngram")
    assert cli.run(["runs"]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("runs/ngram")
    assert len(out.splitlines()) == 2
    assert f"{run / 'summary.json'} is damaged: {key} is not" in err
    assert cli.run(["runs", "--json"]) == 2
    assert [record["run"] for record in json.loads(capsys.readouterr().out)] == ["runs/ngram"]
    assert cli.run(["report", str(run)]) == 2
    assert f"{run / 'summary.json'} is damaged: {key} is not" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"step": 10**400}, {"loss": 10**400}, {"step": "one"}, {"step": None}, {"lr": {}}])
def test_a_report_omits_events_with_odd_values(change: dict[str, Any], tmp_path: Path) -> None:
    event = {"event": "stepped", "step": 3, "seconds": 1.0, "loss": 3.0, "lr": 0.1, "tokens": 9} | change
    data = stored("language")["metrics.jsonl"] + dump_json(event) + b"\n"
    run = write_run(tmp_path, ("language", "metrics.jsonl", data))
    run_command("report", str(run))
    assert (run / "report.html").is_file()


@fuzz(
    weight=0.1,
    memory=None,
    change=damaged_run(("summary.json", "metrics.jsonl", "evaluation.json", "samples.jsonl", ".yaml")),
)
def test_report(change: Change, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = write_run(tmp_path_factory.getbasetemp(), change)
    run_command("report", str(run))


@fuzz(
    weight=0.2,
    change=damaged_run(("config.yaml", "data.json", "tokenizer.json", "model.safetensors", "capabilities.json")),
)
@example(change=("forecast", "data.json", dump_json(json.loads(stored("forecast")["data.json"]) | {"columns": "R"})))
def test_predict(change: Change, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = write_run(tmp_path_factory.getbasetemp(), change)
    expected = json.loads((run / "expected.json").read_text(encoding="utf-8"))
    inputs = expected["inputs"]
    if isinstance(inputs, list):
        inputs = [tuple(item) if isinstance(item, list) else item for item in inputs]
    seriatim.load(run).call(expected["capability"], Path(inputs) if isinstance(inputs, str) else inputs)


@pytest.mark.parametrize("value", [0, None, "a", [], json.loads(stored("language")["data.json"])["processor"]])
def test_a_processor_of_another_type_is_named(value: Any, tmp_path: Path) -> None:
    values = json.loads(stored("pretrain")["data.json"]) | {"processor": value}
    folder = write_run(tmp_path, ("pretrain", "data.json", dump_json(values)))
    with pytest.raises(SeriatimError, match="the processor is no PretrainProcessor") as raised:
        _ = seriatim.load(folder).predictor
    assert raised.value.code == "run.damaged"


@pytest.mark.parametrize(
    ("run", "key", "value", "problem"),
    [
        ("pretrain", "tokenizer", 0, "PretrainProcessor.tokenizer is 0, not Tokenizer"),
        ("classify", "labels", [1, 2], r"ClassifyProcessor.labels is \(1, 2\), not tuple"),
        ("classify", "input", None, "ClassifyProcessor.input is None, not InputCodec"),
        ("forecast", "shifts", [[]], "shifts is not of 1 × 1 numbers"),
        ("forecast", "scales", [[1.0], [2.0]], "scales is not of 1 × 1 numbers"),
        ("forecast", "scales", [["a"]], "scales has values that are no numbers"),
        ("forecast", "naive_maes", [], "naive_maes is not of 1 × 1 numbers"),
        ("regress", "std", [], "mean and std is not of 2 × 1 numbers"),
    ],
)
def test_statistics_of_another_shape_are_named(run: str, key: str, value: Any, problem: str, tmp_path: Path) -> None:
    values = json.loads(stored(run)["data.json"])
    values["processor"][key] = value
    folder = write_run(tmp_path, (run, "data.json", dump_json(values)))
    with pytest.raises(SeriatimError, match=problem) as raised:
        _ = seriatim.load(folder).predictor
    assert raised.value.code == "run.damaged"


@pytest.mark.parametrize("value", [-1, 2**31, 10**400, True, 1.5, "4", [4], None])
def test_a_count_of_the_processor_that_is_none_is_named(value: Any, tmp_path: Path) -> None:
    values = json.loads(stored("answer")["data.json"])
    values["processor"]["answer_length"] = value
    run = write_run(tmp_path, ("answer", "data.json", dump_json(values)))
    with pytest.raises(SeriatimError, match=r"data\.json is damaged: .*AnswerProcessor\.answer_length is") as raised:
        _ = seriatim.load(run).predictor
    assert raised.value.code == "run.damaged"


@fuzz(weight=0.05, change=damaged_run(("config.yaml", "data.json", "tokenizer.json", "model.safetensors")))
def test_evaluate(change: Change, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = write_run(tmp_path_factory.getbasetemp(), change)
    run_command("evaluate", str(run), "--split", "validation", "--quiet")


@fuzz(weight=0.05, change=damaged_run())
@example(change=("language", "checkpoints/4/x.json", b""))
def test_resume(change: Change, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = write_run(tmp_path_factory.getbasetemp(), change)
    seriatim.resume(run, steps=5, report=False)
