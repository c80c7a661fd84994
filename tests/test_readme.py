"""The commands of README.md are run as they stand, but for their budgets of time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pages import ROOT, Block, Page, blocks, lines

README = (ROOT / "README.md").read_text(encoding="utf-8")
HOUSEHOLD = ("make", "pip", "seriatim demo")  # run by people and by CI, not from within a test


def test_commands(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("README.md", capsys, monkeypatch)
    commands = [line for block in blocks(README, "sh") for line in lines(block) if not line.startswith(HOUSEHOLD)]
    assert len(commands) >= 12
    for line in commands:
        page.command(line)


def test_python(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks(README, "python")
    page = Page("README.md", capsys, monkeypatch)
    page.run(block)
    assert (desk / "curves.svg").stat().st_size > 1_000
    assert [row["model"] for row in page.known["both"].table()] == ["ngram", "gpt"]


def test_reference_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "make.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_is_documented() -> None:
    shown = {line.split()[1] for block in blocks(README, "sh") for line in lines(block) if line.startswith("seriatim ")}
    assert {
        "train",
        "resume",
        "evaluate",
        "predict",
        "generate",
        "next",
        "score",
        "compare",
        "translate",
        "reproduce",
        "runs",
        "list",
        "data",
    } <= shown


def test_what_is_a_block() -> None:
    text = "a\n\n```sh\nseriatim x \\\n  --y\n```\n\n<!-- not run: hours -->\n```python\nb\n```\n"
    assert blocks(text) == [Block(3, "sh", "seriatim x \\\n  --y\n", ""), Block(8, "python", "b\n", "hours")]
    assert lines(blocks(text)[0]) == ["seriatim x --y"]
