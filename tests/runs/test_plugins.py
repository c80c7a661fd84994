"""A task and a model of the user's own: from a file, and from an installed package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import RUNNING_MEAN
from seriatim.cli import run as cli
from seriatim.core import registry

RANK = Path(__file__).parents[1] / "plugins" / "rank.py"
PAIRS = [(f"a fine film {number}", f"a dull film {number}") for number in range(30)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "pairs.csv").write_text("better,worse\n" + "\n".join(f"{a},{b}" for a, b in PAIRS) + "\n")
    (folder / "runningmean.py").write_text(RUNNING_MEAN)
    return folder


def run_commands(folder: Path, *commands: list[Any]) -> list[str]:
    """Runs commands in a process of their own, where no plug-in is registered, and returns what each prints."""
    code = (
        "import contextlib, io, json, sys\n"
        "from seriatim.cli import run\n"
        "printed = []\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        assert run(command) == 0, command\n"
        "    printed.append(out.getvalue())\n"
        "print(json.dumps(printed))\n"
    )
    arguments = json.dumps([[str(argument) for argument in command] for command in commands])
    process = [sys.executable, "-c", code, arguments]
    result = subprocess.run(process, cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_task_and_a_model_from_files(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train and compare in one process; resume, use, evaluate, inspect and report in another one."""
    plugins = ["--plugin", RANK, "--plugin", desk / "runningmean.py"]
    small = ["--data", "pairs.csv", "--set", "model.width=8", "--batch-size", "4", "--quiet", *plugins]
    _, table = run_commands(
        desk,
        ["train", "rank", "--model", "runningmean", "--steps", "4", "-o", "r", *small],
        ["compare", "rank", "--models", "runningmean,gru", "--steps", "2", "-o", "c", *small],
    )
    assert "runningmean" in table
    assert "gru" in table
    _, scores, metrics, views, page = run_commands(
        desk,
        ["resume", "r", "--steps", "110", "--quiet", *plugins],
        ["rank", "r", "a fine film 3", "a dull film 3", *plugins],
        ["evaluate", "r", "--quiet", *plugins],
        ["inspect", "r", *plugins],
        ["report", "r"],
    )
    better, worse = map(float, scores.split())
    assert better > worse
    assert "Error" in metrics
    assert "gradients" in views
    assert "rank" in (desk / page.strip()).read_text()
    assert cli(["rank", str(desk / "r"), "--help"]) == 0  # without the plug-in: the run folder has its capabilities
    assert "score" in capsys.readouterr().out


def test_check_knows_the_task_of_a_plugin(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["data", "check", str(desk / "pairs.csv"), "--task", "rank", "--plugin", str(RANK)]) == 0
    assert "30" in capsys.readouterr().out


def test_a_file_that_is_no_plugin(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "broken.py").write_text("class RankTask(:\n")
    (desk / "empty.py").write_text("x = 1\n")
    for name, code in (
        ("missing.py", "plugin.missing"),
        ("broken.py", "plugin.broken"),
        ("empty.py", "plugin.incomplete"),
    ):
        assert cli(["train", "rank", "--data", "x", "--plugin", str(desk / name)]) == 2
        assert code in capsys.readouterr().err


def test_installed_packages_by_entry_points(desk: Path) -> None:
    """A package with the entry points seriatim.tasks and seriatim.models, as pip would install it."""
    site = desk / "site"
    info = site / "ranking-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "ranking.py").write_text(RANK.read_text().replace('"rank"', '"ranking"'))
    (site / "means.py").write_text(RUNNING_MEAN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ranking\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[seriatim.tasks]\nranking = ranking:RankTask\n[seriatim.models]\nmeans = means\n"
    )
    code = (
        "import seriatim\n"
        "small = {'model': {'width': 8}}\n"
        "run = seriatim.train('ranking', 'pairs.csv', 'means', steps=2, out='e', report=False, settings=small)\n"
        "opened = seriatim.load('e')\n"
        "print(opened.config.task.name, opened.config.model.name, len(opened.rank(['a', 'b'])))\n"
        "seriatim.resume('e', steps=4, report=False)\n"
    )
    environment = {"PYTHONPATH": str(site), "SERIATIM_CACHE": str(desk / "cache"), "PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=desk, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[-3:] == ["ranking", "means", "2"]


@pytest.fixture
def running_mean(desk: Path) -> Iterator[Path]:
    """A model in a file, registered in this process for one test."""
    yield desk / "runningmean.py"
    registry.models._files.clear()


def test_a_model_from_a_file_serves_every_task(running_mean: Path, tmp_path: Path) -> None:
    rows = [f"a {word} film {n},{label}" for n in range(20) for word, label in (("fine", "good"), ("dull", "bad"))]
    (tmp_path / "classify.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    lengths = [f"{'ab' * (1 + n % 5)},{n % 5}" for n in range(40)]
    (tmp_path / "regress.csv").write_text("\n".join(["text,value", *lengths]), encoding="utf-8")
    (tmp_path / "tag.conll").write_text("the\tD\ncat\tN\nsat\tV\n\n" * 30, encoding="utf-8")
    (tmp_path / "forecast.csv").write_text("value\n" + "\n".join(f"{n % 7}" for n in range(200)), encoding="utf-8")
    common = ["--model", "runningmean", "--steps", "3", "--batch-size", "4", "--quiet", "--no-report"]
    plugin = ["--plugin", str(running_mean)]
    for task in ("classify", "regress", "tag", "forecast"):
        (data,) = tmp_path.glob(f"{task}.*")
        run, out = str(tmp_path / "runs" / task), tmp_path / f"{task}-predictions.csv"
        assert cli(["train", task, "--data", str(data), "--out", run, *common, *plugin]) == 0
        assert cli(["predict", run, "--data", str(data), "--out", str(out), "--quiet", *plugin]) == 0
        assert out.read_text(encoding="utf-8").count("\n") > 1


def test_a_language_model_from_a_file(
    running_mean: Path, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Budget, training, generation and scores; without the file there is a clear message."""
    run, plugin = str(tmp_path / "run"), ["--plugin", str(running_mean)]
    train = ["train", "language", "--data", str(book), "--model", "runningmean", "--params", "5k", "--steps", "3"]
    assert cli([*train, "--context-length", "16", "--out", run, "--quiet", "--json", "--no-report", *plugin]) == 0
    assert 4_900 <= json.loads(capsys.readouterr().out)["parameters"] <= 5_000
    for command in (["generate", run, "the ", "--max-tokens", "5"], ["next", run, "the "], ["score", run, "the cat"]):
        assert cli([*command, *plugin]) == 0
        assert capsys.readouterr().out
    assert cli(["list", "models", *plugin]) == 0
    assert "A running mean" in capsys.readouterr().out
    registry.models._files.clear()
    assert cli(["generate", run, "the "]) == 2
    assert "model.unknown" in capsys.readouterr().err
