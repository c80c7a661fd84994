"""The commands and the Python code of README.md run, with small data and few steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pages import ROOT, Block, Page, blocks, lines

README = (ROOT / "README.md").read_text(encoding="utf-8")
MANUAL = ("make", "pip", "seriatim demo")  # run by people and by CI, not from within a test


def commands(mark: str) -> list[str]:
    found = [line for block in blocks(README, "sh") if block.mark == mark for line in lines(block)]
    return [line for line in found if not line.startswith(MANUAL)]


def test_commands(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("README.md", capsys, monkeypatch)
    assert len(commands("")) >= 12
    for line in commands(""):
        page.command(line)


@pytest.mark.slow
def test_slow_commands(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("README.md", capsys, monkeypatch)
    for line in commands("slow"):
        page.command(line)


def test_python(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks(README, "python")
    page = Page("README.md", capsys, monkeypatch)
    page.run(block)
    assert [row["model"] for row in page.variables["comparison"].table()] == ["mlp", "gru"]
    assert page.variables["again"].path == page.variables["run"].path


def test_generated_sections_are_current() -> None:
    """What is generated from the code, the references and the line numbers of links are up to date."""
    result = subprocess.run([sys.executable, str(ROOT / "docs" / "make.py"), "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_main_commands_are_in_the_readme() -> None:
    names = {line.split()[1] for line in commands("") + commands("slow")}
    assert {"train", "resume", "evaluate", "predict", "compare", "distill", "inspect", "reproduce", "data"} <= names
    assert {"classify", "tag", "forecast", "translate", "align", "caption", "generate", "next", "score"} <= names
    assert {"import", "export", "nearest", "runs", "list", "schema"} <= names


def test_blocks_are_recognized() -> None:
    text = "a\n\n```sh\nseriatim x \\\n  --y\n```\n\n<!-- not run: hours -->\n```python\nb\n```\n"
    assert blocks(text) == [
        Block(3, "sh", "seriatim x \\\n  --y\n"),
        Block(8, "python", "b\n", "not run", "hours"),
    ]
    assert lines(blocks(text)[0]) == ["seriatim x --y"]
