"""Running what a page of the documentation says: its commands and its Python, from top to bottom, in a folder with
small files of the names that it uses. Budgets of time become a few steps, public data sets small files of their kind.
"""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seriatim.cli import run as cli
from seriatim.data.catalogue import ENTRIES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)

# What stands on the desk for the data sets of the catalogue, by their tasks; those that are made in no time stay.
STAND_IN = {
    "language": "book.txt", "classify": "reviews.csv", "regress": "proteins.csv", "tag": "words.conll",
    "translate": "pairs.tsv", "answer": "squad.json", "forecast": "hours.csv", "music": "chorales",
    "caption": "photos",
}  # fmt: skip
MADE_IN_NO_TIME = {"curve"}


@dataclass(frozen=True)
class Block:
    """A fenced block; `reason` says why it is not run, "" where it is."""

    line: int
    language: str
    text: str
    reason: str


def blocks(text: str, language: str = "") -> list[Block]:
    found = [
        Block(text.count("\n", 0, one.start()) + 1, one["language"], one["text"], one["reason"] or "")
        for one in FENCE.finditer(text)
    ]
    return [one for one in found if language in ("", one.language)]


def lines(block: Block) -> list[str]:
    """The commands of a block, each on one line."""
    return [line for line in re.sub(r"\\\n\s*", "", block.text).splitlines() if line.strip()]


def quick(line: str) -> str:
    """A few steps instead of minutes, and nothing that would have to be fetched."""
    verb, _, asked = line.removeprefix("seriatim ").partition(" ")
    if "--print-config" in line or "--config" in line:
        return line
    if verb == "reproduce":
        return re.sub(r"--minutes [\d.]+", "--minutes 0.01", line)
    if verb == "resume":
        return re.sub(r"--minutes [\d.]+", "--steps 4", line)
    if verb not in ("train", "compare", "distil"):
        return re.sub(r"--lengths [\d,]+", "--lengths 8,16", line)
    task = asked.partition(" ")[0]
    line = re.sub(r"--data (\S+)", lambda found: f"--data {stand_in(found[1], task)}", line)
    if re.search(r"--model (resnet|vit)\b", line):
        line = line.replace(f"--data {STAND_IN['classify']}", "--data images")
    line = re.sub(r" --(minutes|steps|epochs|batch|length) [\d.]+", "", line)
    line = re.sub(r"--params \S+", "--params 50k", line)
    if re.search(r"--model (bert|transformer)\b", line) and "model.preset" not in line:
        line += " --set model.preset=tiny"
    steps = 6 if "train.keep" in line else 2  # as many checkpoints as are kept
    return f"{line} --steps {steps} --batch 2" + (" --length 32" if task in ("language", "pretrain") else "")


def stand_in(source: str, task: str) -> str:
    name = source.partition(":")[0]
    if name not in ENTRIES or name in MADE_IN_NO_TIME:
        return source
    return STAND_IN[task if task in STAND_IN else ENTRIES[name].task]


class Page:
    """A page that is being run: what its Python blocks define is known to those below."""

    def __init__(self, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.capsys, self.monkeypatch = name, capsys, monkeypatch
        self.known: dict[str, Any] = {}

    def run(self, block: Block) -> None:
        if block.language == "python":
            length = "" if '"caption"' in block.text else ", length=16"  # pictures have none
            code = re.sub(r"minutes=[\d.]+", f"steps=2, batch=2{length}", block.text)
            exec(compile(code, f"{self.name}, line {block.line}", "exec"), self.known)
        else:
            for line in lines(block):
                self.command(line)

    def command(self, line: str) -> str:
        """What a command prints. Of the shell's own language `>`, `<` and $'…' are understood."""
        plain = re.sub(
            r"\$'([^']*)'", lambda found: shlex.quote(found[1].encode().decode("unicode_escape")), quick(line)
        )
        program, *arguments = shlex.split(plain, comments=True)
        assert program == "seriatim", f"{self.name}: {line}"
        if "<" in arguments:
            given = io.BytesIO(Path(_taken(arguments, "<")).read_bytes())
            self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given, encoding="utf-8"))
        into = _taken(arguments, ">") if ">" in arguments else None
        self.capsys.readouterr()
        status = cli(arguments)
        shown = self.capsys.readouterr()
        assert status == 0, f"{self.name}: {line}\n{shown.out}\n{shown.err}"
        assert shown.out or {"--out", "--picture"} & set(arguments), f"{self.name}: {line} shows nothing"
        if into is not None:
            Path(into).write_text(shown.out, encoding="utf-8")
        return shown.out


def _taken(arguments: list[str], sign: str) -> str:
    """The file behind a sign; both are taken out."""
    place = arguments.index(sign)
    file = arguments[place + 1]
    del arguments[place : place + 2]
    return file
