"""The files of a run: what is written is read, damage is named, names are claimed once."""

from __future__ import annotations

import errno
import json
import os
import platform
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from seriatim.core.errors import SeriatimError
from seriatim.core.files import append_json, read_json_lines, write_json
from seriatim.core.findings import Finding
from seriatim.core.run_folder import FORMAT, RunFolder, fresh_folder, list_runs, locked_folder
from seriatim.core.run_summary import RunSummary, mean_costs

GOLDEN = Path(__file__).parents[1] / "golden" / "runs"
CONFIG = {"task": {"name": "language"}, "model": {"name": "gru"}, "seed": 3}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a", CONFIG)
    assert (run.settings, run.summary, run.capabilities, run.history(), run.samples()) == (CONFIG, {}, {}, [], [])
    assert (run.evaluation(), run.inspection(), run.findings(), run.notes) == ({}, [], [], [])
    views = [{"kind": "table", "title": "t", "columns": ["a"], "rows": [["ü"]]}]
    metrics = {"test": {"loss": float("nan")}}
    run.write_results(RunSummary(step=4, notes=["two labels"], sample="\ud800", metrics=metrics))
    write_json(run.path / "capabilities.json", {"classify": {"summary": "s"}})
    findings = [Finding("gave much", "7 of 8", "Look."), Finding("gave little", "1", part="the head")]
    run.write_evaluation({"test": views}, findings)
    run.write_inspection(views)
    again = RunFolder(tmp_path / "a")
    assert again.settings == CONFIG
    assert (again.summary["step"], again.summary["sample"], again.notes) == (4, "?", ["two labels"])
    assert again.capabilities == {"classify": {"summary": "s"}}
    assert (again.evaluation(), again.inspection(), again.findings()) == ({"test": views}, views, findings)
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_inspection([{"values": [float("nan")]}])
    assert again.inspection() == views


def test_events_are_filtered_and_half_a_line_is_ignored(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    lines = [{"event": "stepped", "step": 1}, {"event": "evaluated", "step": 1, "val_loss": 2.0}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"event": "step')
    assert run.history() == lines
    assert run.history("evaluated") == lines[1:]
    assert run.notes == []
    (tmp_path / "metrics.jsonl").write_text("{\n" + text + "[]\n")
    assert run.history() == lines
    assert run.notes == [f"{tmp_path / 'metrics.jsonl'}, line 1: 2 damaged lines are ignored"]


def test_a_line_ends_with_a_line_feed_only(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    records = [{"step": 1, "text": "a\u2028b\u2029c\x85d\x0ce\rf"}, {"step": 2, "text": "\ud800"}]
    for record in records:
        append_json(file, record)
    assert read_json_lines(file) == ([records[0], {"step": 2, "text": "?"}], "")
    assert RunFolder.create(tmp_path, CONFIG).samples()[0] == records[0]


@pytest.mark.parametrize("text", ["[1", "[]", "7"])
def test_damaged_files_are_named(text: str, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(SeriatimError, match=r"summary\.json is damaged") as caught:
        _ = run.summary
    assert (caught.value.code, caught.value.remedy) == ("run.damaged", "restore the file, or remove it")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"created": None}, "created is not a text"),
        ({"reason": ["finished"]}, "reason is not a text"),
        ({"monitor": {}}, "monitor is not a text"),
        ({"parameters": "many"}, "parameters is not a finite number"),
        ({"parameters": 10**400}, "parameters is not a finite number"),
        ({"seconds": float("inf")}, "seconds is not a finite number"),
        ({"step": True}, "step is not a finite number"),
        ({"notes": "one"}, "notes is not a list"),
        ({"data": 1}, "data is not an object"),
        ({"metrics": None}, "metrics is not an object"),
        ({"metrics": {"validation": [1]}}, "metrics.validation is not an object"),
        ({"metrics": {"validation": {"loss": "low"}}}, "metrics.validation.loss is not a number"),
        ({"metrics": {"validation": {"loss": 10**400}}}, "metrics.validation.loss is not a number"),
        ({"baselines": {"test": 1}}, "baselines.test is not an object"),
        ({"baselines": {"test": {"mean": {"mae": []}}}}, "baselines.test.mean.mae is not a number"),
        ({"teacher": {"parameters": "x"}}, "teacher.parameters is not a finite number"),
        ({"teacher": []}, "teacher is not an object"),
        ({"usage": [{"shell": 1}]}, "usage.0.shell is not a text"),
        ({"averaged": {"weights": ["x"]}}, "averaged.weights.0 is not a finite number"),
        ({"times": {"training": None}}, "times.training is not a finite number"),
        ({"gradient_free": 1}, "gradient_free is not true or false"),
        ({"model_info": {"history": 3}}, "model_info.history is not valid: Input should be '', 'sequences' or 'pairs'"),
        ({"format": "1"}, "format is not an integer"),
    ],
)
def test_values_of_other_types_are_named(values: dict[str, Any], problem: str, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    (tmp_path / "summary.json").write_text(json.dumps({"step": 4} | values))
    with pytest.raises(SeriatimError) as caught:
        _ = run.summary
    assert caught.value.cause == f"{tmp_path / 'summary.json'} is damaged: {problem}"
    assert caught.value.code == "run.damaged"


def test_a_summary_may_lack_values_and_have_others(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    values = {"flops": None, "own": [10**400], "metrics": {"test": {"loss": float("inf"), "accuracy": None}}}
    run.write_results(RunSummary.model_validate(values))
    assert run.summary == values
    assert (run.results.flops, run.results.step, run.results.teacher) == (None, None, None)


@pytest.mark.parametrize("task", sorted(path.name for path in GOLDEN.iterdir()))
def test_the_summaries_of_format_1_are_read_and_written_alike(task: str, tmp_path: Path) -> None:
    values = (GOLDEN / task / "summary.json").read_bytes()
    run = RunFolder.create(tmp_path, CONFIG)
    (tmp_path / "summary.json").write_bytes(values)
    assert run.summary == json.loads(values)
    assert (run.results.format, run.results.finished, run.results.signal) == (FORMAT, True, "")
    run.write_results(run.results)
    assert (tmp_path / "summary.json").read_bytes() == values
    changed = run.results.replace(reason="SIGTERM", metrics={})
    assert (changed.finished, changed.signal, changed.step) == (False, "SIGTERM", run.results.step)


def test_costs_of_several_seeds_are_means() -> None:
    runs = [RunSummary(step=4, seconds=1.0), RunSummary(step=7, seconds=2.5, flops=3.0), RunSummary()]
    means = mean_costs(runs)
    assert (means["step"], means["seconds"], means["flops"], means["memory"]) == (6, 1.75, 3.0, None)
    assert isinstance(means["step"], int)


@pytest.mark.parametrize("findings", [3, [3], [{}], [{"claim": "a"}], [{"claim": "a", "detail": ["b"]}]])
def test_damaged_findings_are_named(findings: object, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, CONFIG)
    (tmp_path / "evaluation.json").write_text(json.dumps({"test": [], "findings": findings}))
    assert run.evaluation() == {"test": []}
    with pytest.raises(SeriatimError, match=r"evaluation\.json is damaged") as caught:
        run.findings()
    assert caught.value.code == "run.damaged"


@pytest.mark.parametrize(
    ("line", "cause"),
    [("", "before format 1"), (f"format: {FORMAT + 1}\n", "newer seriatim"), ("format: x\n", "before")],
)
def test_other_formats_are_refused(line: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"{line}task: language\n")
    with pytest.raises(SeriatimError, match=cause) as caught:
        _ = RunFolder(tmp_path).settings
    assert caught.value.code == "run.format"


def test_a_missing_run_has_a_suggestion(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "language-gru", CONFIG)
    with pytest.raises(SeriatimError, match="is not the folder of a run") as caught:
        RunFolder(tmp_path / "langage-gru")
    assert caught.value.code == "run.missing"
    assert "language-gru" in caught.value.remedy
    with pytest.raises(SeriatimError) as caught:
        RunFolder(tmp_path / "nowhere" / "x")
    assert "seriatim runs" in caught.value.remedy


def test_runs_are_listed_newest_first_with_those_of_comparisons(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "compare/a", "old")):
        RunFolder.create(tmp_path / name, CONFIG)
        os.utime(tmp_path / name / "config.yaml", (1_000 - age, 1_000 - age))
    assert [run.path.relative_to(tmp_path).as_posix() for run in list_runs(tmp_path)] == ["new", "compare/a", "old"]
    assert list_runs(tmp_path / "nothing") == []


def test_a_fresh_folder_belongs_to_one_caller(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: fresh_folder(tmp_path / "runs", "x"), range(40)))
    assert len(set(folders)) == 40
    assert {folder.name for folder in folders} == {"x", *(f"x-{number}" for number in range(2, 41))}
    assert all(folder.is_dir() for folder in folders)


def test_it_needs_neither_torch_nor_charts() -> None:
    heavy = "{'torch', 'altair', 'jinja2', 'pandas', 'seriatim.report'} & set(sys.modules)"
    code = f"import sys, seriatim.core.run_folder; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_system_without_locks_and_without_syncing_of_folders_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr(os, "fsync", refuse_folders)
    with locked_folder(tmp_path / "a"):
        assert RunFolder.create(tmp_path / "a", CONFIG).settings == CONFIG
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_into_which_nothing_was_written_is_removed(tmp_path: Path) -> None:
    with pytest.raises(SeriatimError), locked_folder(fresh_folder(tmp_path / "runs", "a")):
        raise SeriatimError("data.missing", "there is no file", "name one")
    assert list((tmp_path / "runs").iterdir()) == []
    with locked_folder(tmp_path / "runs" / "b"):
        RunFolder.create(tmp_path / "runs" / "b", CONFIG)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["b"]


def test_the_state_and_the_writer_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "a"
    run = RunFolder.create(path, CONFIG)
    assert (run.state, run.writer) == ("stopped", None)
    with locked_folder(path):
        writer = run.writer
        assert writer is not None
        assert (writer.process, writer.host, writer.ended) == (os.getpid(), platform.node(), False)
        assert datetime.fromisoformat(writer.since).tzinfo is not None
        states = []
        for event in ("started", "stepped", "stopped", "evaluating", "started"):
            append_json(path / "metrics.jsonl", {"event": event, "step": 1})
            states.append(run.state)
        assert states == ["training", "training", "evaluating", "evaluating", "training"]
    run.write_results(RunSummary(metrics={"validation": {"loss": 1.0}}))
    assert (run.state, run.writer) == ("finished", None)


def test_a_lock_of_a_process_that_has_ended_names_no_writer(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a", CONFIG)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    values = {"process": ended.pid, "host": platform.node(), "since": "2026-01-01 00:00:00+00:00"}
    for content in (json.dumps(values), "", "[]", "{}", '{"process": "x"}'):
        (tmp_path / ".a.lock").write_text(content)
        assert run.writer is None
    (tmp_path / ".a.lock").write_text(json.dumps(values | {"host": "elsewhere"}))
    assert run.writer is not None, "what runs on another machine cannot be asked"
