"""A folder with texts and runs for the tests of the command line, and commands in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seriatim.cli import run as cli

Call = Callable[..., Any]


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Returns a function that runs a command, which must succeed, and returns what it prints; JSON with --json."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        code = cli(list(arguments))
        out, err = capsys.readouterr()
        assert code == 0, err
        if "--json" not in arguments:
            return out
        try:
            return json.loads(out, parse_constant=refuse_constant)
        except json.JSONDecodeError:  # an object per line
            return [json.loads(line, parse_constant=refuse_constant) for line in out.splitlines()]

    return run


@pytest.fixture(scope="session")
def trained(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with texts in three files, the runs runs/lstm and other/ngram, and a classifier, films/run."""
    folder = tmp_path_factory.mktemp("story")
    lines = book.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, part in (("book", lines[:-40]), ("validation", lines[-40:-20]), ("test", lines[-20:])):
        (folder / f"{name}.txt").write_text("".join(part), encoding="utf-8")
    (folder / "films").mkdir()
    texts = {"good": ["a fine film", "warm and fine", "what a fine warm day"], "bad": ["a dull film", "dull and long"]}
    rows = [f"{text} {n},{label}" for n in range(12) for label, some in texts.items() for text in some]
    (folder / "films" / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    small = ["--batch-size", "4", "--quiet", "--no-report"]
    files = ["--validation", "validation.txt", "--test", "test.txt", "--context-length", "16"]
    commands = [
        ["language", "--data", "book.txt", "--model", "lstm", "-o", "runs/lstm", "--steps", "40", *files],
        ["language", "--data", "book.txt", "--model", "ngram", "-o", "other/ngram"],
        ["classify", "--data", "films/films.csv", "--model", "gru", "-o", "films/run", "--steps", "60"],
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in commands:
            width = [] if "ngram" in command else ["--set", "model.width=16"]
            assert cli(["train", *command, *small, *width]) == 0
    return folder


@pytest.fixture
def story(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the folder of the runs the working folder."""
    monkeypatch.chdir(trained)
    return trained
