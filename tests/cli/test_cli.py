"""The command line from end to end: training, using, comparing, signals, terminals."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from seriatim import cli

UNIX = pytest.mark.skipif(os.name == "nt", reason="neither pseudo-terminals nor signals")
SMALL = ("--context-length", "16", "--batch-size", "4")
DEADLINE = 120.0  # seconds until a process that was started counts as stuck
Call = Callable[..., Any]


# Training


def test_train_prints_json_and_nothing_else(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "language", "--data", "book.txt", "--model", "rnn", "--steps", "2", "--no-report", *SMALL]
    assert cli.run([*command, "--out", "other/rnn", "--quiet", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    printed, summary = json.loads(out), json.loads(Path("other/rnn/summary.json").read_text(encoding="utf-8"))
    assert printed == {"run": "other/rnn", **summary}
    assert (printed["reason"], printed["step"]) == ("finished", 2)
    assert not Path("other/rnn/report.html").exists()


def test_train_without_a_terminal(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "language", "--data", "book.txt", "--model", "ngram", "--out", "other/again"]) == 0
    out, err = capsys.readouterr()
    first, *_, last = out.splitlines()
    assert first.split() == ["split", "loss", "(nats/token)", "perplexity", "bits/character"]
    assert last == "run: other/again   report: other/again/report.html"
    assert "ngram: done after 1 step" in err
    assert "\033" not in out + err
    assert "\r" not in out + err


def on_terminal(*arguments: str, **environment: str) -> bytes:
    """Returns what a command writes to a terminal."""
    import pty

    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | environment
    command = [sys.executable, "-m", "seriatim", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 4096):
                parts.append(part)
        except OSError:  # on Linux, the other end is closed
            pass
        process.wait(DEADLINE)
    os.close(ours)
    return b"".join(parts)


@UNIX
def test_colors_are_for_terminals_that_show_them() -> None:
    assert b"\033[" in on_terminal("list", "tasks")
    assert b"\033[" not in on_terminal("list", "tasks", NO_COLOR="1")


def test_printed_config_is_a_config(story: Path, call: Call) -> None:
    options = ("--data", "book.txt", "--model", "gpt", "--set", "model.heads=2", "--lr", "1e-3", "--steps", "1k")
    printed = call("train", "language", *options, "--vocab-size", "300", "--print-config")
    Path("again.yaml").write_text(printed, encoding="utf-8")
    assert call("train", "--config", "again.yaml", "--print-config") == printed
    values = yaml.safe_load(printed)
    assert (values["train"]["steps"], values["train"]["optimizer"]["lr"]) == (1000, 0.001)
    assert (values["model"]["heads"], values["task"]["tokenizer"]["vocab_size"]) == (2, 300)
    assert printed.startswith("# yaml-language-server: $schema=")
    assert not list(story.glob("runs/*gpt*"))


def test_a_run_holds_its_whole_config(story: Path, call: Call) -> None:
    printed = call("train", "--config", "runs/lstm/config.yaml", "--print-config")
    assert yaml.safe_load(printed) == {
        name: value
        for name, value in yaml.safe_load(Path("runs/lstm/config.yaml").read_text(encoding="utf-8")).items()
        if name != "format"
    }


def test_resume_moves_the_end(story: Path, call: Call) -> None:
    options = ("--model", "mlp", "--steps", "2", "--out", "other/mlp", "--quiet", "--no-report", *SMALL)
    call("train", "language", "--data", "book.txt", *options)
    summary = call("resume", "other/mlp", "--steps", "4", "--quiet", "--json")
    assert (summary["reason"], summary["step"]) == ("finished", 4)


# Evaluating


def test_evaluate_repeats_the_metrics_of_the_training(story: Path, call: Call) -> None:
    metrics = json.loads(Path("runs/lstm/summary.json").read_text(encoding="utf-8"))["metrics"]
    for split in ("validation", "test"):
        own = call("evaluate", "runs/lstm", "--split", split, "--quiet", "--json")
        other = call("evaluate", "runs/lstm", "--data", f"{split}.txt", "--quiet", "--json")
        for name, value in metrics[split].items():
            assert own[name] == pytest.approx(value, rel=1e-6)
            assert other[name] == pytest.approx(value, rel=1e-6)
    assert f"{own['perplexity']:,.6g}" in call("evaluate", "runs/lstm", "--quiet")


def test_evaluate_with_int8_beside(story: Path, call: Call) -> None:
    values = call("evaluate", "runs/lstm", "--int8", "--quiet", "--json")
    assert values["int8"]["loss"] == pytest.approx(values["loss"], rel=0.05)
    heading, *rows = call("evaluate", "runs/lstm", "--int8", "--quiet").splitlines()
    assert heading.split() == ["metric", "float32", "int8", "change"]
    assert len(rows) == len(values["int8"])


def test_another_file_is_evaluated(story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text("label,text\ngood,a fine film\nbad,so dull\n", encoding="utf-8")
    assert cli.run(["evaluate", "films/run", "--data", str(other), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0
    other.write_text("label,text\ngood,a fine film\nmiddling,so dull\n", encoding="utf-8")
    assert cli.run(["evaluate", "films/run", "--data", str(other)]) == 2
    err = capsys.readouterr().err
    for words in ("line 3", '"middling"', "bad, good"):
        assert words in err
    other.write_text("title,review,stars\nx,a fine film,good\ny,so dull,bad\n", encoding="utf-8")
    columns = ["--column", "review", "--target", "stars"]
    assert cli.run(["evaluate", "films/run", "--data", str(other), "--json", *columns]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0


# Language models


def test_same_seed_same_text(story: Path, call: Call) -> None:
    command = ("generate", "runs/lstm", "the ", "--max-tokens", "60", "--seed")
    assert call(*command, "1") == call(*command, "1") != call(*command, "2")
    assert len(set(call(*command, "1", "--nbest", "3", "--json")["text"])) == 3


@pytest.mark.parametrize("run", ["runs/lstm", "other/ngram"])
@pytest.mark.parametrize("how", [("--temperature", "0"), ("--top-k", "3"), ("--beams", "3", "--length-penalty", "0")])
def test_generation_and_score_agree(story: Path, call: Call, run: str, how: tuple[str, ...]) -> None:
    for prompt in ("the old ", ""):
        generated = call("generate", run, prompt, "--max-tokens", "25", "--json", *how)
        whole, before = (call("score", run, text, "--json") for text in (prompt + generated["text"], prompt))
        assert whole["tokens"] - before["tokens"] == generated["tokens"] == 25
        difference = whole["log_probability"] - before["log_probability"]
        assert difference == pytest.approx(generated["log_probability"], abs=1e-4)


def test_scores_of_tokens_add_up(story: Path, call: Call) -> None:
    score = call("score", "runs/lstm", "the old cat", "--json")
    assert "".join(token for token, _ in score["token_log_probabilities"]) == "the␣old␣cat"
    assert sum(value for _, value in score["token_log_probabilities"]) == pytest.approx(
        score["log_probability"], abs=1e-6
    )
    assert score["perplexity"] == pytest.approx(math.exp(-score["log_probability"] / 11))
    Path("lines.txt").write_text("the old cat\n\nthe\n", encoding="utf-8")
    three = call("score", "runs/lstm", "--data", "lines.txt", "--json")
    assert three[0]["log_probability"] == pytest.approx(score["log_probability"], abs=1e-6)
    assert (three[1]["log_probability"], three[1]["tokens"]) == (0, 0)


@pytest.mark.parametrize("run", ["runs/lstm", "other/ngram"])
def test_next_is_a_distribution(story: Path, call: Call, run: str) -> None:
    values = [row["probability"] for row in call("next", run, "the ", "--unit", "token", "--top", "4", "--json")]
    assert len(values) == 4
    assert values == sorted(values, reverse=True)
    everything = call("next", run, "the ", "--unit", "token", "--top", "1000", "--json")
    assert sum(row["probability"] for row in everything) == pytest.approx(1, abs=1e-5)
    generated = call("generate", run, "the ", "--temperature", "0", "--max-tokens", "1", "--json")
    assert math.exp(generated["log_probability"]) == pytest.approx(everything[0]["probability"], abs=1e-5)


def test_next_words_are_a_table(story: Path, call: Call) -> None:
    header, *rows = call("next", "other/ngram", "the ol", "--top", "3").splitlines()
    assert header.split("\t") == ["text", "completion", "probability", "unaccounted"]
    assert rows[0].split("\t")[:2] == ["old", "d"]
    tokens = call("next", "other/ngram", "hat.", "--unit", "token", "--top", "3")
    assert "↵" in tokens
    assert "\\\\" not in tokens
    phrase = call("next", "other/ngram", "the ", "--words", "2", "--top", "1", "--json")
    assert len(re.findall(r"\w+|[^\w\s]", phrase["text"])) == 2


def test_what_is_impossible_is_null(story: Path, call: Call) -> None:
    options = ("--model", "ngram", "--set", "model.smoothing=none", "--out", "other/none", "--no-report")
    call("train", "language", "--data", "book.txt", *options, "--quiet", "--json")
    score = call("score", "other/none", "ttt", "--json")
    assert (score["log_probability"], score["perplexity"], score["tokens"]) == (None, None, 3)


# Exchange, lists, machine


@pytest.mark.parametrize("kind", ["char", "word"])
def test_an_arpa_file_goes_out_and_comes_in(story: Path, call: Call, tmp_path: Path, kind: str) -> None:
    run, arpa, other = (str(tmp_path / name) for name in ("own", "own.arpa", "other"))
    options = ("--model", "ngram", "--tokenizer", kind, "--out", run, "--no-report", "--quiet")
    call("train", "language", "--data", "book.txt", *options)
    assert call("export", run, "--format", "arpa", "--out", arpa).strip() == arpa
    assert Path(arpa).read_text(encoding="utf-8").startswith("\\data\\\n")
    assert call("import", arpa, "--out", other).strip() == other
    for text in ("the old cat saw the hat", "the new dog"):
        before, after = (call("score", path, text, "--json")["log_probability"] for path in (run, other))
        assert after == pytest.approx(before, rel=1e-4)
    tokens = [{row["text"] for row in call("next", path, "the ", "--top", "3", "--json")} for path in (run, other)]
    assert tokens[0] == tokens[1]
    assert "other" in call("runs", str(tmp_path))


def test_a_text_is_no_arpa_file(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["import", "book.txt"]) == 2
    assert "arpa.malformed" in capsys.readouterr().err


def test_runs_in_a_folder(story: Path, call: Call) -> None:
    (row,) = call("runs", "--json")
    assert row == {"run": "runs/lstm", **json.loads(Path("runs/lstm/summary.json").read_text(encoding="utf-8"))}
    heading, line = call("runs").splitlines()
    assert heading.split()[:4] == ["run", "task", "model", "state"]
    assert line.split()[:4] == ["runs/lstm", "language", "lstm", "finished"]
    assert call("runs", "nowhere", "--json") == []


def test_card_and_report_are_written_anew(story: Path, call: Call) -> None:
    assert call("card", "films/run").strip() == "films/run/README.md"
    assert "seriatim classify" in Path("films/run/README.md").read_text(encoding="utf-8")
    assert call("report", "films/run").strip() == "films/run/report.html"
    assert "<html" in Path("films/run/report.html").read_text(encoding="utf-8")


def test_doctor(call: Call) -> None:
    values = call("doctor", "--json")
    assert values["package"]["torch"]
    assert "cpu" in values["device"]
    assert values["limit"]["SERIATIM_MAX_COMPRESSION_RATIO"].startswith("200 times")
    assert "seriatim" in call("doctor")


def test_doctor_says_that_the_cache_cannot_be_made(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Path, "mkdir", refuse)
    values = call("doctor", "--json")
    assert "SERIATIM_CACHE" in values["cache"]
    assert values["kernels"]["reason"]


def test_schema_is_written(story: Path, call: Call) -> None:
    assert call("schema", "language", "--out", "schema.json").strip() == "schema.json"
    assert json.loads(Path("schema.json").read_text(encoding="utf-8")) == json.loads(call("schema", "language"))


def test_cache_is_listed(call: Call) -> None:
    values = call("data", "cache", "--json")
    assert isinstance(values["entries"], list)
    assert values["removed"] == []
    assert "entries" in call("data", "cache")


def test_inspect_lists_and_shows(story: Path, call: Call) -> None:
    available = call("inspect", "runs/lstm", "--json")
    assert "surprise" in available
    assert call("inspect", "runs/lstm", "--surprise", "the old cat")


# Comparing


def test_compare_where_nothing_trains(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--models", "rnn,gru", "--context-length", "90000", "--out", "none", "--quiet"]
    assert cli.run(["compare", "language", "--data", "book.txt", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "[data.too-short]" in err
    assert not (story / "none").exists()


def test_compare_two(story: Path, call: Call) -> None:
    options = ("--models", "ngram,rnn", "--params", "2k", "--steps", "3", "--out", "pair", "--quiet", "--json")
    first = call("compare", "language", "--data", "book.txt", *SMALL, *options)
    assert (first["path"], first["failed"]) == ("pair", {})
    assert [row["model"] for row in first["table"]] == ["ngram", "rnn"]
    sizes = [row["parameters"] for row in first["table"]]
    assert max(sizes) <= 2_000
    assert sizes[1] > 1_500
    assert "<html" in Path("pair/report.html").read_text(encoding="utf-8")
    # Started again, everything is done.
    written = Path("pair/rnn/model.safetensors").stat().st_mtime_ns
    assert call("compare", "language", "--data", "book.txt", *SMALL, *options)["table"] == first["table"]
    assert Path("pair/rnn/model.safetensors").stat().st_mtime_ns == written
    printed = call("compare", "language", "--data", "book.txt", *SMALL, *options[:-1])
    assert [line.split()[0] for line in printed.splitlines()[:3]] == ["model", "ngram", "rnn"]
    assert "one seed cannot tell" in printed
    seeds = call("compare", "language", "--data", "book.txt", *SMALL, *options[:-1], "--seeds", "2")
    assert Path("pair/rnn-seed1/model.safetensors").is_file()
    assert Path("pair/rnn/model.safetensors").stat().st_mtime_ns == written
    ngram, rnn = (line for line in seeds.splitlines() if line.startswith(("ngram ", "rnn ")))
    assert "±" in rnn
    assert "±" not in ngram


# Signals


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, "it ended before the signal"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def recorded(run: Path) -> list[dict[str, Any]]:
    """Returns the complete lines of metrics.jsonl."""
    file = run / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@UNIX
@pytest.mark.parametrize(
    ("number", "status", "after"),
    [(signal.SIGINT, 130, "stepped"), (signal.SIGTERM, 143, "saved")],
    ids=["SIGINT before any evaluation", "SIGTERM after one"],
)
def test_a_signal_ends_in_good_order(
    story: Path,
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
    after: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    often = ("--set", "train.evaluate_steps=40") if after == "saved" else ()
    tiny = ("--set", "model.width=4", "--context-length", "8", "--batch-size", "1", "--steps", "1M")
    data = ("--data", str(story / "book.txt"), "--model", "rnn", "--out", "run", "--quiet", "--no-report")
    command = [sys.executable, "-m", "seriatim", "train", "language", *data, *tiny, *often]
    run = Path("run")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_for(lambda: any(line["event"] == after for line in recorded(run)), process)
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert process.returncode == status, err
    assert out == b""
    assert err.decode() == "`seriatim resume run` continues it\n"
    stopped = recorded(run)[-1]
    assert (stopped["event"], stopped["reason"]) == ("stopped", number.name)
    assert (run / "checkpoints" / str(stopped["step"]) / "checksums.json").is_file()
    assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["reason"] == number.name

    end = stopped["step"] + 30
    summary = call("resume", "run", "--steps", str(end), "--quiet", "--json")
    assert (summary["reason"], summary["step"]) == ("finished", end)
    for event in ("stepped", "evaluated"):
        steps = [line["step"] for line in recorded(run) if line["event"] == event]
        assert steps == sorted(set(steps)), event
    assert [line["step"] for line in recorded(run) if line["event"] == "stopped"] == [end]


def test_a_prediction_is_beside_its_own_input(story: Path, call: Call, tmp_path: Path) -> None:
    lines = ["a fine film\t1", "a dull film\t2", "warm and fine\t3"]
    (tmp_path / "tabs.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = call("predict", "films/run", "--data", str(tmp_path / "tabs.txt"), "--json", "--quiet")
    assert [row["text"] for row in rows] == lines
    assert [row["prediction"] for row in rows] == ["good", "bad", "good"]


def test_a_failed_training_leaves_no_folder(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path("runs").iterdir())
    assert cli.run(["train", "classify", "--data", "none.csv", "--quiet"]) == 2
    assert sorted(Path("runs").iterdir()) == before


@pytest.mark.parametrize("size", ["abc", "1.5"])
def test_the_size_of_the_cache_is_a_number(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["data", "cache", f"--max-size={size}"]) == 2
    assert "2G" in capsys.readouterr().err


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("runs/lstm", tmp_path / "lstm")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.yaml").write_text("task: {name: language}\n", encoding="utf-8")
    assert cli.run(["runs", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert str(tmp_path / "lstm") in out
    assert str(tmp_path / "broken") in err


def test_a_count_that_is_none_says_how_to_write_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "language", "--data", "book.txt", "--params", "20kk"]) == 2
    assert "params: a number, which may end in k, M or G: 20000, 20k, 1.5M (got '20kk')" in capsys.readouterr().err


def test_an_option_of_training_at_prediction_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["forecast", "runs/none", "--horizon", "5"]) == 2
    error = capsys.readouterr().err
    assert "No such option: --horizon" in error
    assert "--horizon belongs to `train`, and a run keeps its value: train again for another one" in error
