"""The command line as a whole: help without torch, options that stay, a story from training to comparing, signals.

`python tests/test_cli.py` writes tests/golden/cli_options.json anew, for when options are changed on purpose.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from seriatim import cli
from seriatim._version import __version__

GOLDEN = Path(__file__).parent / "golden" / "cli_options.json"
UNIX = pytest.mark.skipif(os.name == "nt", reason="neither pseudo-terminals nor signals")
SMALL = ("--length", "16", "--batch", "4")
DEADLINE = 120.0  # seconds until a process that was started counts as stuck


def seriatim(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "seriatim", *arguments]
    env = os.environ | environment
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, encoding="utf-8", timeout=DEADLINE)


def not_json(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


Say = Callable[..., Any]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """A command in this process that must succeed; gives what it printed, read as JSON with `--json`."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        status = cli.run(list(arguments))
        out, err = capsys.readouterr()
        assert status == 0, err
        return json.loads(out, parse_constant=not_json) if "--json" in arguments else out

    return run


# ── help, and what it costs ───────────────────────────────────────────────────────────────────────────────────────


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and sub-command with the words that call it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


LIGHT = """
import contextlib, io, json, sys
from typer.main import get_command
from seriatim import cli

def walk(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))

def run(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = cli.run(list(arguments))
    return [" ".join(arguments), status, out.getvalue()]

helps = [run(*path, "--help") for path in walk(get_command(cli.app))]
others = [run(*line.split()) for line in ("list", "list --json", "runs", "runs --json", "data list", "--version")]
heavy = ("torch", "pyarrow", "transformers", "altair", "tokenizers")
print(json.dumps({"helps": helps, "others": others, "heavy": [name for name in heavy if name in sys.modules]}))
"""


def test_help_and_lists_are_light(trained: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], cwd=trained, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["heavy"] == []
    helps = {called: text for called, status, text in found["helps"] if status == 0}
    assert helps.keys() == {" ".join([*path, "--help"]) for path, _ in walk(get_command(cli.app))}
    for called, text in helps.items():
        assert text.startswith(f"Usage: seriatim {called.removesuffix('--help')}".rstrip()), called
    answers = {called: text for called, status, text in found["others"] if status == 0}
    assert {"lstm", "ngram", "gpt"} <= json.loads(answers["list --json"])["models"].keys()
    assert "language" in answers["list"]
    assert "runs/lstm" in answers["runs"]
    assert json.loads(answers["runs --json"])[0]["model"] == "lstm"
    assert "tiny-shakespeare" in answers["data list"]
    assert answers["--version"] == f"seriatim {__version__}\n"


# ── the options that there are ────────────────────────────────────────────────────────────────────────────────────


def options() -> dict[str, dict[str, list[str]]]:
    """Command → its arguments in their order, and its options."""
    found = {}
    for path, command in walk(get_command(cli.app)):
        arguments = [one.name for one in command.params if one.param_type_name == "argument"]
        flags = [flag for one in command.params for flag in (*one.opts, *one.secondary_opts) if flag.startswith("-")]
        own = sorted(flag for flag in flags if "completion" not in flag)  # those are the library's
        found[" ".join(("seriatim", *path))] = {"arguments": arguments, "options": own}
    return found


def test_options_are_frozen() -> None:
    known = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert options() == known, "scripts of users name these: if the change is meant, run `python tests/test_cli.py`"


def test_every_option_is_explained() -> None:
    silent = [
        f"{' '.join(path)} {one.opts[0]}"
        for path, command in walk(get_command(cli.app))
        for one in command.params
        if not one.help and one.name != "help"
    ]
    assert silent == []


def test_version() -> None:
    done = seriatim("--version", cwd=Path.cwd())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"seriatim {__version__}\n", "")


# ── a story ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def trained(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three texts, the run runs/lstm, and what its training printed."""
    folder = tmp_path_factory.mktemp("story")
    lines = book.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, part in (("book", lines[:-40]), ("valid", lines[-40:-20]), ("test", lines[-20:])):
        (folder / f"{name}.txt").write_text("".join(part), encoding="utf-8")
    options = ("--steps", "60", "--set", "model.width=16", "--valid", "valid.txt", "--test", "test.txt", *SMALL)
    story = ("train", "language", "--data", "book.txt", "--model", "lstm", "--out", "runs/lstm", *options)
    done = seriatim(*story, "--quiet", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "printed.json").write_text(done.stdout, encoding="utf-8")
    assert done.stderr == ""
    return folder


@pytest.fixture
def story(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


@pytest.fixture(scope="module")
def counted(trained: Path) -> subprocess.CompletedProcess[str]:
    """A training that is neither quiet nor on a terminal."""
    return seriatim("train", "language", "--data", "book.txt", "--model", "ngram", "--out", "other/ngram", cwd=trained)


def test_train_prints_json_and_nothing_else(story: Path) -> None:
    printed = json.loads((story / "printed.json").read_text(encoding="utf-8"))
    summary = json.loads(Path("runs/lstm/summary.json").read_text(encoding="utf-8"))
    assert printed == {"run": "runs/lstm", **summary}
    assert printed["reason"] == "finished"
    assert printed["step"] == 60


def test_train_without_a_terminal(counted: subprocess.CompletedProcess[str]) -> None:
    assert counted.returncode == 0, counted.stderr
    first, *_, last = counted.stdout.splitlines()
    assert first.split() == ["part", "loss", "(nats/token)", "perplexity", "bits/character"]
    assert last == "run: other/ngram   report: other/ngram/report.html"
    assert "read " in counted.stderr
    assert "ngram: done after 1 steps" in counted.stderr
    assert "\033" not in counted.stdout + counted.stderr
    assert "\r" not in counted.stdout + counted.stderr


def on_terminal(*arguments: str, **environment: str) -> bytes:
    """What a command writes to a terminal."""
    import pty

    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | environment
    with subprocess.Popen([sys.executable, "-m", "seriatim", *arguments], stdout=theirs, stderr=theirs, env=env) as one:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 4096):
                parts.append(part)
        except OSError:  # how Linux says that the other end is closed
            pass
        one.wait(DEADLINE)
    os.close(ours)
    return b"".join(parts)


@UNIX
@pytest.mark.parametrize("arguments", [("list",), ("data", "list"), ("train", "langauge", "--modle", "lstm")])
def test_colours_are_for_terminals_that_want_them(arguments: tuple[str, ...]) -> None:
    assert b"\033[" in on_terminal(*arguments)
    assert b"\033[" not in on_terminal(*arguments, NO_COLOR="1")


def test_printed_config_is_a_config(story: Path, say: Say) -> None:
    given = ("--data", "book.txt", "--model", "gpt", "--set", "model.heads=2", "--rate", "1e-3", "--steps", "1k")
    printed = say("train", "language", *given, "--vocabulary", "300", "--print-config")
    Path("again.yaml").write_text(printed, encoding="utf-8")
    assert say("train", "--config", "again.yaml", "--print-config") == printed
    values = yaml.safe_load(printed)
    assert (values["train"]["steps"], values["train"]["optimiser"]["rate"]) == (1000, 0.001)
    assert (values["model"]["heads"], values["data"]["tokenizer"]["size"]) == (2, 300)
    assert not list(story.glob("runs/*gpt*"))


def test_a_run_holds_its_whole_config(story: Path, say: Say) -> None:
    stored = Path("runs/lstm/config.yaml").read_text(encoding="utf-8")
    assert say("train", "--config", "runs/lstm/config.yaml", "--print-config") == stored


def test_evaluate_tells_what_training_told(story: Path, say: Say) -> None:
    measures = json.loads((story / "printed.json").read_text(encoding="utf-8"))["measures"]
    for split in ("valid", "test"):
        own = say("evaluate", "runs/lstm", "--split", split, "--quiet", "--json")
        other = say("evaluate", "runs/lstm", "--data", f"{split}.txt", "--quiet", "--json")
        for name, value in measures[split].items():
            assert own[name] == pytest.approx(value, rel=1e-6)
            assert other[name] == pytest.approx(value, rel=1e-6)
    assert f"{own['perplexity']:,.6g}" in say("evaluate", "runs/lstm", "--quiet")


def test_line_n_in_line_n_out(story: Path, say: Say) -> None:
    prompts = ["the ", "", "the old cat", "the ", "", "a"]
    Path("prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    common = ("generate", "runs/lstm", "--max-tokens", "30", "--greedy")
    lines = say(*common, "--prompts", "prompts.txt").split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(prompts)
    for prompt, line in zip(prompts, lines, strict=True):
        alone = say(*common, "--prompt", prompt)
        assert alone == prompt + line.replace("\\n", "\n") + "\n"
    whole = say(*common, "--prompts", "prompts.txt", "--json")
    assert [row[0]["prompt"] for row in whole] == prompts
    assert [row[0]["text"].replace("\n", "\\n") for row in whole] == lines


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_prompts_from_stdin(story: Path, say: Say, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    data = b"\xef\xbb\xbfthe \r\n\r\na" + end.encode()  # as an editor of Windows writes it
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))
    answers = say("generate", "runs/lstm", "--max-tokens", "2", "--prompts", "-", "--json")
    assert [row[0]["prompt"] for row in answers] == ["the ", "", "a"]


def test_stdin_that_is_not_utf8(
    story: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the\n\xff\n"), encoding="utf-8"))
    assert cli.run(["score", "runs/lstm", "--file", "-"]) == 2
    assert "[file.encoding] stdin, line 2" in capsys.readouterr().err


def test_same_seed_same_text(story: Path, say: Say) -> None:
    draw = ("generate", "runs/lstm", "--prompt", "the ", "--max-tokens", "60", "--seed")
    assert say(*draw, "1") == say(*draw, "1") != say(*draw, "2")
    three = say(*draw, "1", "--nbest", "3", "--json")[0]
    assert len({one["text"] for one in three}) == 3


@pytest.mark.parametrize("run", ["runs/lstm", "other/ngram"])
@pytest.mark.parametrize("prompt", ["the old ", ""])
@pytest.mark.parametrize("how", [("--greedy",), ("--top-k", "3"), ("--beams", "3", "--length-penalty", "0")])
def test_generation_and_score_agree(
    story: Path, say: Say, counted: object, run: str, prompt: str, how: tuple[str, ...]
) -> None:
    made = say("generate", run, "--prompt", prompt, "--max-tokens", "25", "--json", *how)[0][0]
    (whole,) = say("score", run, prompt + made["text"], "--json")
    (before,) = say("score", run, prompt, "--json")
    assert whole["tokens"] - before["tokens"] == made["tokens"] == 25
    assert whole["log_probability"] - before["log_probability"] == pytest.approx(made["score"], abs=1e-4)


def test_score_of_tokens_adds_up(story: Path, say: Say) -> None:
    (one,) = say("score", "runs/lstm", "the old cat", "--tokens", "--json")
    assert "".join(piece for piece, _ in one["pieces"]) == "the␣old␣cat"
    assert sum(value for _, value in one["pieces"]) == pytest.approx(one["log_probability"], abs=1e-6)
    assert one["perplexity"] == pytest.approx(math.exp(-one["log_probability"] / 11))
    Path("lines.txt").write_text("the old cat\n\nthe\n", encoding="utf-8")
    three = say("score", "runs/lstm", "--file", "lines.txt", "--json")
    assert [row["text"] for row in three] == ["the old cat", "", "the"]
    assert three[0]["log_probability"] == pytest.approx(one["log_probability"], abs=1e-6)
    assert (three[1]["log_probability"], three[1]["tokens"]) == (0, 0)


@pytest.mark.parametrize("run", ["runs/lstm", "other/ngram"])
def test_next_is_a_distribution(story: Path, say: Say, counted: object, run: str) -> None:
    values = [one["probability"] for one in say("next", run, "the ", "--top", "4", "--json")]
    assert len(values) == 4
    assert values == sorted(values, reverse=True)
    assert 0 < sum(values) <= 1
    everything = say("next", run, "the ", "--top", "1000", "--json")
    assert sum(one["probability"] for one in everything) == pytest.approx(1, abs=1e-5)
    (likeliest, *_) = everything
    (made,) = say("generate", run, "--prompt", "the ", "--greedy", "--max-tokens", "1", "--json")[0]
    assert made["text"].replace(" ", "␣").replace("\n", "\\n") == likeliest["token"]
    assert math.exp(made["score"]) == pytest.approx(likeliest["probability"], abs=1e-5)


def test_arpa_of_ngrams(story: Path, say: Say, counted: object) -> None:
    path = say("export", "other/ngram", "--to", "arpa").strip()
    assert path == "other/ngram/model.arpa"
    assert Path(path).read_text(encoding="utf-8").startswith("\\data\\\n")


def test_impossible_is_null(story: Path, say: Say) -> None:
    common = ("--data", "book.txt", "--model", "ngram", "--set", "model.smoothing=none", "--out", "other/none")
    say("train", "language", *common, "--quiet", "--json")
    (one,) = say("score", "other/none", "ttt", "--json")
    assert (one["log_probability"], one["perplexity"], one["tokens"]) == (None, None, 3)


def test_compare_where_nothing_trains(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--models", "rnn,gru", "--length", "90000", "--out", "none", "--quiet")
    assert cli.run(["compare", "language", "--data", "book.txt", *common]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "[data.too-short]" in err
    assert not (story / "none").exists()


def test_compare_two(story: Path, say: Say) -> None:
    common = ("--models", "ngram,rnn", "--params", "2k", "--steps", "3", "--out", "pair", "--quiet", "--json")
    first = say("compare", "language", "--data", "book.txt", *SMALL, *common)
    assert (first["path"], first["failed"]) == ("pair", {})
    assert [row["model"] for row in first["table"]] == ["ngram", "rnn"]
    sizes = [row["parameters"] for row in first["table"]]
    assert max(sizes) <= 2_000
    assert sizes[1] > 1_500
    assert "<html" in Path("pair/report.html").read_text(encoding="utf-8")
    # Started again, it finds everything done.
    written = Path("pair/rnn/model.safetensors").stat().st_mtime_ns
    assert say("compare", "language", "--data", "book.txt", *SMALL, *common)["table"] == first["table"]
    assert Path("pair/rnn/model.safetensors").stat().st_mtime_ns == written


def test_runs_in_a_folder(story: Path, say: Say) -> None:
    (one,) = say("runs", "--json")
    assert one == json.loads((story / "printed.json").read_text(encoding="utf-8"))
    heading, row = say("runs").splitlines()
    assert heading.split()[:4] == ["run", "task", "model", "state"]
    assert row.split()[:4] == ["runs/lstm", "language", "lstm", "finished"]
    assert say("runs", "nowhere", "--json") == []


# ── signals ───────────────────────────────────────────────────────────────────────────────────────────────────────


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, "it ended before the signal"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def recorded(run: Path) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl."""
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
    book: Path,
    tmp_path: Path,
    say: Say,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
    after: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    often = ("--set", "train.evaluate_steps=40") if after == "saved" else ()
    tiny = ("--set", "model.width=4", "--length", "8", "--batch", "1", "--steps", "1M")
    command = ("train", "language", "--data", str(book), "--model", "rnn", "--out", "run", "--quiet", *tiny, *often)
    run = Path("run")
    with subprocess.Popen(
        [sys.executable, "-m", "seriatim", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            wait_for(lambda: any(line["event"] == after for line in recorded(run)), process)
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert process.returncode == status, err
    assert out == b""
    assert err.decode() == "`seriatim resume run` goes on from here\n"
    stopped = recorded(run)[-1]
    assert (stopped["event"], stopped["reason"]) == ("stopped", number.name)
    assert (run / "checkpoints" / str(stopped["step"]) / "checksums.json").is_file()
    assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["reason"] == number.name

    end = stopped["step"] + 30
    summary = say("resume", "run", "--steps", str(end), "--quiet", "--json")
    assert (summary["reason"], summary["step"]) == ("finished", end)
    for event in ("stepped", "evaluated", "saved"):
        steps = [line["step"] for line in recorded(run) if line["event"] == event]
        assert steps == sorted(set(steps)), event
    assert [line["step"] for line in recorded(run) if line["event"] == "stopped"] == [end]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(options(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {GOLDEN}")
