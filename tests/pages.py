"""Runs the commands and Python blocks of a page of the documentation, from top to bottom, in a folder with small files.

Budgets of time become two steps, and data sets of the catalogue small files of the same task.
"""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seriatim import tasks
from seriatim.cli import run as cli
from seriatim.data.source import known_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>not run|slow): (?P<reason>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)

# The small file that replaces a data set of the catalogue, by task; those that are generated at once stay.
REPLACEMENTS = {
    "language": "book.txt", "classify": "reviews.csv", "regress": "proteins.csv", "tag": "words.conll",
    "translate": "pairs.tsv", "answer": "squad.json", "forecast": "hours.csv", "music": "chorales",
    "caption": "photos", "pretrain": "book.txt", "choose": "copa.jsonl",
}  # fmt: skip
GENERATED_AT_ONCE = {"curve"}


@dataclass(frozen=True)
class Block:
    """A fenced block. `mark` is "not run" or "slow" if it has such a comment, which gives the `reason`."""

    line: int
    language: str
    text: str
    mark: str = ""
    reason: str = ""


def blocks(text: str, language: str = "") -> list[Block]:
    """Returns the fenced blocks of a page, all or those of a language."""
    matches = [
        Block(text.count("\n", 0, m.start()) + 1, m["language"], m["text"], m["mark"] or "", m["reason"] or "")
        for m in FENCE.finditer(text)
    ]
    return [block for block in matches if language in ("", block.language)]


def lines(block: Block) -> list[str]:
    """Returns the commands of a block, each on one line."""
    return [line for line in re.sub(r"\\\n\s*", "", block.text).splitlines() if line.strip()]


def shorten(line: str) -> str:
    """Returns a command with a few steps instead of minutes, and without downloads."""
    verb, _, rest = line.removeprefix("seriatim ").partition(" ")
    if "--print-config" in line:
        return line
    if verb == "reproduce":
        return re.sub(r"--minutes [\d.]+", "--minutes 0.01", line)
    if verb == "resume":
        return re.sub(r"--minutes [\d.]+", "--steps 4", line)
    if verb not in ("train", "compare", "distill"):
        return re.sub(r"--lengths [\d,]+", "--lengths 8,16", line)
    task = rest.partition(" ")[0]
    line = re.sub(r"--data (\S+)", lambda match: f"--data {replace_data(match[1], task)}", line)
    if re.search(r"--model (resnet|vit)\b", line):
        line = line.replace(f"--data {REPLACEMENTS['classify']}", "--data images")
    if "--model auto" in line:
        return re.sub(r"--minutes [\d.]+", "--minutes 0.003", line) + " --params 10k --batch-size 2 --no-report"
    line = re.sub(r" --(minutes|steps|epochs|batch-size|context-length) [\d.]+", "", line)
    line = re.sub(r"--params \S+", "--params 50k", line)
    if re.search(r"--model (bert|transformer)\b", line) and "model.preset" not in line:
        line += " --set model.preset=tiny"
    line += f" --steps {6 if 'keep_checkpoints' in line else 2}"  # as many checkpoints as are averaged
    if verb != "distill":
        line += " --batch-size 2"
    if task in ("language", "pretrain"):
        line += " --context-length 32"
    return f"{line} --no-report" if verb == "train" else line


def replace_data(source: str, task: str) -> str:
    """Returns the small file that replaces a data set of the catalogue; other sources stay."""
    name = source.partition(":")[0]
    if name not in known_names() or name in GENERATED_AT_ONCE:
        return source
    return REPLACEMENTS[task]


class Page:
    """A page that is being run: its Python blocks share their variables."""

    def __init__(self, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.capsys, self.monkeypatch = name, capsys, monkeypatch
        self.variables: dict[str, Any] = {}
        skip_reports(monkeypatch)

    def run(self, block: Block) -> None:
        if block.language == "python":
            code = re.sub(r"minutes=[\d.]+", "steps=2, batch_size=2", block.text)
            exec(compile(code, f"{self.name}, line {block.line}", "exec"), self.variables)
        else:
            for line in lines(block):
                self.command(line)

    def command(self, line: str) -> str:
        """Returns what a command prints. Of the shell's language only `>` and `<` are known."""
        program, *arguments = shlex.split(shorten(line), comments=True)
        assert program == "seriatim", f"{self.name}: {line}"
        if "<" in arguments:
            stdin = io.BytesIO(Path(take_file(arguments, "<")).read_bytes())
            self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stdin, encoding="utf-8"))
        redirect = take_file(arguments, ">") if ">" in arguments else None
        self.capsys.readouterr()
        status = cli(arguments)
        printed = self.capsys.readouterr()
        assert status == 0, f"{self.name}: {line}\n{printed.out}\n{printed.err}"
        assert printed.out or {"--out", "--chart"} & set(arguments), f"{self.name}: {line} prints nothing"
        if redirect is not None:
            Path(redirect).write_text(printed.out, encoding="utf-8")
        return printed.out


def take_file(arguments: list[str], sign: str) -> str:
    """Removes a redirection from the arguments and returns its file."""
    position = arguments.index(sign)
    file = arguments[position + 1]
    del arguments[position : position + 2]
    return file


def skip_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains without reports and distills without timing: both have tests of their own and take most of the time."""
    for name in ("write_run_report", "write_card", "write_comparison_report", "write_distillation_report"):
        monkeypatch.setattr(f"seriatim.report.{name}", lambda *arguments, **options: None)
    monkeypatch.setattr("seriatim.runs.session.Session._write_inspection", lambda *arguments: None)
    for name, value in {"MIN_ROUNDS": 1, "MAX_ROUNDS": 1, "TURN_SECONDS": 0.0}.items():
        monkeypatch.setattr(f"seriatim.runs.distill.{name}", value)


def task_names() -> list[str]:
    """Returns the names of the built-in tasks."""
    return list(tasks.NAMES)
