"""A task and a model of the user's own: from a file, and from an installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import RUNNING_MEAN
from seriatim.cli import run as cli

RANK = Path(__file__).parents[1] / "plugins" / "rank.py"
PAIRS = [(f"a fine film {number}", f"a dull film {number}") for number in range(30)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "pairs.csv").write_text("better,worse\n" + "\n".join(f"{a},{b}" for a, b in PAIRS) + "\n")
    (folder / "runningmean.py").write_text(RUNNING_MEAN)
    return folder


def seriatim(folder: Path, *arguments: Any) -> str:
    """Runs a command in a process of its own, where no plug-in is registered, and returns what it prints."""
    command = [sys.executable, "-m", "seriatim", *map(str, arguments)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_task_and_a_model_from_files(desk: Path) -> None:
    """Train, resume, use, evaluate, compare, inspect and report, each in a new process."""
    plugins = ["--plugin", RANK, "--plugin", desk / "runningmean.py"]
    short = ["--set", "model.width=8", "--batch-size", "4", "--quiet"]
    seriatim(
        desk,
        "train",
        "rank",
        "--data",
        "pairs.csv",
        "--model",
        "runningmean",
        "--steps",
        "4",
        "-o",
        "r",
        *short,
        *plugins,
    )
    seriatim(desk, "resume", "r", "--steps", "110", "--quiet", *plugins)
    scores = seriatim(desk, "rank", "r", "a fine film 3", "a dull film 3", *plugins).split()
    assert float(scores[0]) > float(scores[1])
    assert "Error" in seriatim(desk, "evaluate", "r", "--quiet", *plugins)
    assert "score" in seriatim(desk, "rank", "r", "--help")  # without the plug-in: the run folder has its capabilities
    table = seriatim(
        desk,
        "compare",
        "rank",
        "--data",
        "pairs.csv",
        "--models",
        "runningmean,gru",
        "--steps",
        "2",
        "-o",
        "c",
        *short,
        *plugins,
    )
    assert "runningmean" in table
    assert "gru" in table
    assert "gradients" in seriatim(desk, "inspect", "r", *plugins)
    page = Path(desk / seriatim(desk, "report", "r").strip()).read_text()
    assert "rank" in page


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
