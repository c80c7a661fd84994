"""The commands of README.md and docs/models.md are run as they stand, but for their budgets of time."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seriatim.cli import run as cli
from seriatim.core import registry
from seriatim.data.midi import write_midi

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOUSEHOLD = ("make", "pip", "seriatim demo")  # run by people and by CI, not from within a test


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def commands() -> list[str]:
    lines = [line for block in blocks(README, "sh") for line in block.splitlines()]
    return [line for line in lines if not line.startswith(HOUSEHOLD)]


def quick(line: str) -> str:
    """A few steps instead of minutes."""
    if "reproduce" in line:
        return re.sub(r"--minutes [\d.]+", "--minutes 0.01", line)
    if re.search(r"(train|compare) (forecast|music|tag|classify|regress|translate)", line):
        return re.sub(r"--minutes [\d.]+", "--steps 4 --batch 2", line)
    steps = 6 if "resume" in line else 4
    return re.sub(r"--minutes [\d.]+", f"--steps {steps} --batch 2 --length 16" if steps == 4 else "--steps 6", line)


@pytest.fixture
def desk(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    shutil.copy(book, tmp_path / "book.txt")
    text = (tmp_path / "book.txt").read_text() + "the students opened their books.\n" * 40
    (tmp_path / "book.txt").write_text(text)
    _sequences(tmp_path)
    model = blocks((ROOT / "docs" / "models.md").read_text(encoding="utf-8"), "python")[0]
    (tmp_path / "mymodel.py").write_text(model)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    registry.models._files.clear()


def _sequences(folder: Path) -> None:
    """Small files of the kinds that the commands name."""
    texts = [f"a {word} film number {n}" for n in range(20) for word in ("fine", "dull")]
    rows = [f"{text},{'good' if 'fine' in text else 'bad'}" for text in texts]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (folder / "new.csv").write_text("text\na fine film\n")
    proteins = [f"{'MKV' * (1 + n % 5)},{n % 5}" for n in range(40)]
    (folder / "proteins.csv").write_text("\n".join(["sequence,fitness", *proteins]) + "\n")
    words = ["Mary\tB-PER", "Smith\tI-PER", "lives\tO", "in\tO", "Oslo\tB-LOC", ".\tO", ""]
    (folder / "words.conll").write_text("\n".join(words * 20))
    numbers = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    pairs = [f"They see {a} and {b} .\tIls voient {b} et {a} ." for a in numbers for b in numbers]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    months = [f"{1949 + n // 12}-{1 + n % 12:02},{100 + n + 10 * (n % 12)}" for n in range(144)]
    (folder / "passengers.csv").write_text("\n".join(["Month,Passengers", *months]) + "\n")
    (folder / "chorales").mkdir()
    for piece in range(10):
        roll = np.zeros((20, 88), np.float32)
        roll[np.arange(20), 30 + (np.arange(20) + piece) % 12] = 1
        write_midi(folder / "chorales" / f"{piece}.mid", roll)


def test_commands(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = commands()
    assert len(lines) >= 12
    for line in lines:
        program, *arguments = shlex.split(quick(line))
        assert program == "seriatim"
        status = cli(arguments)
        shown = capsys.readouterr()
        assert status == 0, f"{line}\n{shown.out}\n{shown.err}"
        assert shown.out or "--out" in line, line


def test_python(desk: Path) -> None:
    (code,) = blocks(README, "python")
    namespace: dict[str, Any] = {}
    exec(re.sub(r"minutes=[\d.]+", "steps=4, batch=2, length=16", code), namespace)
    assert (desk / "curves.svg").stat().st_size > 1_000
    assert [row["model"] for row in namespace["both"].table()] == ["ngram", "gpt"]


def test_reference_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "make.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_model_and_command_is_documented() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert all(f"## `{name}`" in reference for name in registry.models.names())
    shown = set(re.findall(r"^seriatim (\w+)", "\n".join(blocks(README, "sh")), flags=re.M))
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
