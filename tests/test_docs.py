"""Every command and every Python block of the documentation is run; every task and every model has its page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from pages import DOCS, ROOT, Page, blocks
from seriatim import cli
from seriatim.core import registry
from seriatim.inspect import VIEWS

PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
TEXTS = {page: (DOCS / page).read_text(encoding="utf-8") for page in PAGES}

# What cannot be run from within a test, all of it: whoever adds to it says why.
NOT_RUN = {
    ("index.md", "installs"),
    ("index.md", "minutes of training"),
    ("index.md", "several processes"),
    ("data.md", "fetches"),
    ("performance.md", "minutes of measuring"),
    ("performance.md", "needs a run of your own"),
    ("results.md", "hours"),
}
SLOW = {"results.md"}  # models of the sizes that were measured
ENCODERS = ("all-MiniLM-L6-v2", "bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2")


def runs(page: str) -> bool:
    return any(block.language in ("sh", "python") and not block.reason for block in blocks(TEXTS[page]))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    """A BERT of next to nothing, in the format of `transformers`, where the documentation names one of the hub's."""
    folder = tmp_path_factory.mktemp("encoder")
    asked = (
        f"train pretrain --data {book} --model bert --set model.preset=tiny --set model.width=16 --set model.layers=1"
    )
    assert (
        cli.run([*asked.split(), "--steps", "1", "--batch", "2", "--length", "32", "-q", "--out", str(folder / "run")])
        == 0
    )
    assert cli.run(["export", str(folder / "run"), "--to", "transformers", "--out", str(folder / "bert")]) == 0
    return folder / "bert"


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in PAGES if runs(page)]
)
def test_page(
    page: str,
    desk: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From top to bottom, as somebody would who follows it. Reports have tests of their own and take the most time of a
    training of two steps."""
    monkeypatch.setattr("seriatim.report.write_run_report", lambda run: None)
    monkeypatch.setattr("seriatim.report.write_comparison_report", lambda path, runs, failed=None: None)
    for name in ENCODERS:
        if name in TEXTS[page]:
            shutil.copytree(request.getfixturevalue("encoder"), desk / name)
    running = Page(page, capsys, monkeypatch)
    for block in blocks(TEXTS[page]):
        if block.language in ("sh", "python") and not block.reason:
            running.run(block)


def test_nothing_is_passed_over() -> None:
    """Blocks that are not run are known, commands and Python stand in blocks that are, and all fences are of a kind."""
    assert {(page, block.reason) for page in PAGES for block in blocks(TEXTS[page]) if block.reason} == NOT_RUN
    for page, text in TEXTS.items():
        assert {block.language for block in blocks(text)} <= {"sh", "python", "text"}, page
        assert text.count("\n```") == 2 * len(blocks(text)), (
            f"{page}: a fence that is not closed, or not at a line's start"
        )
        shown = [block.text for block in blocks(text, "text")] + re.findall(r"(?m)^(?: {4}|\t).+$", text)
        hidden = [
            line for part in shown for line in part.splitlines() if re.match(r"\s*(seriatim |import |run\.)", line)
        ]
        in_blocks = [line for block in blocks(text, "python") for line in block.text.splitlines()]
        assert [line for line in hidden if line not in in_blocks] == [], page


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


def test_commands_within_sentences() -> None:
    """They are not run, but what they name exists."""
    known = {
        path: {name for one in command.params for name in one.opts} for path, command in walk(get_command(cli.app))
    }
    for page, text in TEXTS.items():
        for span in re.findall(r"(?<!`)`seriatim ([a-z][^`\n]*)`", re.sub(r"(?ms)^```.*?^```$", "", text)):
            words = span.split()
            path = tuple(words[:2]) if tuple(words[:2]) in known else tuple(words[:1])
            assert path in known, f"{page}: seriatim {span}"
            assert {word for word in words if word.startswith("--")} <= known[path], f"{page}: seriatim {span}"


def nav(entries: Any) -> Iterator[str]:
    """The pages of the navigation, in order."""
    for entry in entries:
        (value,) = entry.values()
        if isinstance(value, str):
            yield value
        else:
            yield from nav(value)


def test_navigation_names_every_page_once() -> None:
    named = list(nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(named) == PAGES


def test_every_task_model_and_view_has_its_place() -> None:
    made = {page: re.findall(r"<!-- made: (\w+) ?(\S*) -->", text) for page, text in TEXTS.items()}
    tasks = [name for parts in made.values() for kind, name in parts if kind == "task"]
    assert sorted(tasks) == registry.tasks.names()
    for name in registry.models.names():
        assert made[f"models/{name}.md"] == [("idea", name), ("settings", name)]
        assert "](../pictures/" in TEXTS[f"models/{name}.md"], name
    assert all(f"--{name}" in TEXTS["inspecting.md"] for name in VIEWS)


def test_pictures_are_there_and_small() -> None:
    shown = {
        (DOCS / page).parent.joinpath(path).resolve()
        for page, text in TEXTS.items()
        for path in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    }
    for picture in shown:
        assert picture.is_file(), picture
    drawn = set((DOCS / "pictures").glob("*.svg"))
    assert {picture for picture in drawn if not picture.name.endswith(".dark.svg")} == shown
    assert all(picture.stat().st_size < 125_000 for picture in drawn)


@pytest.mark.slow
def test_site_is_built(tmp_path: Path) -> None:
    """Strictly: a link that leads nowhere, or anything that a browser would fetch from elsewhere, is an error."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "models" / "lstm.html").is_file()
