"""The documentation: commands and Python blocks run, links are right, every task, model and view has its page."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_command

from pages import DOCS, ROOT, Page, blocks, task_names
from seriatim import cli
from seriatim.core import registry
from seriatim.inspect import VIEWS

PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
TEXTS = {page: (DOCS / page).read_text(encoding="utf-8") for page in PAGES}

# Blocks that cannot be run from within a test. A new one needs a reason here.
NOT_RUN = {
    ("compare.md", "texts of your own"),
    ("index.md", "installs"),
    ("index.md", "minutes of training"),
    ("config.md", "several processes"),
    ("data.md", "fetches"),
    ("adding.md", "a file"),
    ("performance.md", "minutes of measuring"),
    ("performance.md", "needs a run of your own"),
    ("results.md", "hours"),
    ("results.md", "minutes"),
}
# Pages that `make test` runs; the others, which train the same tasks once more, are run by `make test-slow`.
FAST = {
    "index.md",
    "adding.md",
    "config.md",
    "data.md",
    "embeddings.md",
    "run_folder.md",
    *(f"tasks/{name}.md" for name in task_names()),
}
ENCODERS = ("all-MiniLM-L6-v2", "bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2")
CODE_LINK = re.compile(r"\[`([^`]+)`\]\(((?:\.\./)*)((?:src|tests)/[^)#]+)(?:#L(\d+))?\)")


def has_blocks(page: str) -> bool:
    return any(block.language in ("sh", "python") and block.mark != "not run" for block in blocks(TEXTS[page]))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    """A tiny BERT in the format of `transformers`, in place of those that the documentation names."""
    folder = tmp_path_factory.mktemp("encoder")
    train = (
        f"train pretrain --data {book} --model bert --set model.preset=tiny --set model.width=16 --set model.layers=1"
    )
    short = f"--steps 1 --batch-size 2 --context-length 32 --no-report -q --out {folder / 'run'}"
    assert cli.run([*train.split(), *short.split()]) == 0
    assert cli.run(["export", str(folder / "run"), "--format", "transformers", "--out", str(folder / "bert")]) == 0
    return folder / "bert"


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in FAST else pytest.mark.slow) for page in PAGES if has_blocks(page)]
)
def test_page(
    page: str,
    desk: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs a page from top to bottom, as a reader would; blocks marked as slow only with the other slow tests."""
    for name in ENCODERS:
        if name in TEXTS[page]:
            shutil.copytree(request.getfixturevalue("encoder"), desk / name)
    running = Page(page, capsys, monkeypatch)
    for block in blocks(TEXTS[page]):
        if (
            block.language in ("sh", "python")
            and block.mark != "not run"
            and (page not in FAST or block.mark != "slow")
        ):
            running.run(block)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in sorted(FAST) if any(block.mark == "slow" for block in blocks(TEXTS[page]))]
)
def test_slow_blocks(
    page: str, desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Page(page, capsys, monkeypatch)
    for block in blocks(TEXTS[page]):
        if block.mark == "slow":
            running.run(block)


def test_all_blocks_are_known() -> None:
    """Blocks that are not run are listed, commands and Python are in blocks that are, and all fences are closed."""
    marked = {(page, block.reason) for page in PAGES for block in blocks(TEXTS[page]) if block.mark == "not run"}
    assert marked == NOT_RUN
    for page, text in TEXTS.items():
        assert {block.language for block in blocks(text)} <= {"sh", "python", "text"}, page
        assert text.count("\n```") == 2 * len(blocks(text)), f"{page}: a fence that is not closed"
        if page.startswith("reference/"):
            continue  # its usage lines are not examples
        outside = [block.text for block in blocks(text, "text")] + re.findall(r"(?m)^(?: {4}|\t).+$", text)
        hidden = [line for part in outside for line in part.splitlines() if re.match(r"\s*(seriatim |run\.)", line)]
        in_blocks = [line for block in blocks(text, "python") for line in block.text.splitlines()]
        assert [line for line in hidden if line not in in_blocks] == [], page


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every command with its path."""
    yield path, command
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*path, name))


def test_commands_within_sentences_exist() -> None:
    known = {path: {name for p in command.params for name in p.opts} for path, command in walk(get_command(cli.app))}
    texts = {**TEXTS, "README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    for page, text in texts.items():
        for span in re.findall(r"(?<!`)`seriatim ([a-z][^`\n]*)`", re.sub(r"(?ms)^```.*?^```$", "", text)):
            words = span.split()
            path = tuple(words[:2]) if tuple(words[:2]) in known else tuple(words[:1])
            assert path in known or words[0] == "rank", f"{page}: seriatim {span}"
            options = {word for word in words if word.startswith("--")}
            assert options <= known.get(path, set()), f"{page}: seriatim {span}"


def test_settings_within_sentences_exist() -> None:
    """Paths such as `task.images.size` in the pages are settings."""
    known = set(re.findall(r"\| `([a-z_.]+)` \|", TEXTS["reference/settings.md"]))
    for name in registry.models.names():
        known |= set(re.findall(r"\| `(model\.[a-z_.]+)` \|", TEXTS[f"models/{name}.md"]))
    sections = {path.rpartition(".")[0] for path in known} | {
        "data.json",
        "task.py",
        "model.safetensors",
        "train.conllu",
        "train.en",
        "train.fr",
    }
    for page, text in TEXTS.items():
        text = text.replace("model.widht", "")  # the example of a misspelled key
        for path in re.findall(r"[ `]((?:task|data|train|model|distill)\.[a-z_.]+[a-z])\b(?!\()", text):
            assert path in known | sections or path.startswith("data.columns."), f"{page}: {path}"


def pages_of(entries: Any) -> Iterator[str]:
    """Yields the pages of the navigation in order."""
    for entry in entries:
        (value,) = entry.values()
        if isinstance(value, str):
            yield value
        else:
            yield from pages_of(value)


def test_navigation_has_every_page_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(pages_of(navigation)) == PAGES


def test_every_task_model_and_view_is_documented() -> None:
    sections = {page: re.findall(r"<!-- generated: (\w+) ?(\S*) -->", text) for page, text in TEXTS.items()}
    for name in task_names():
        assert ("task", name) in sections[f"tasks/{name}.md"]
    for name in registry.models.names():
        assert sections[f"models/{name}.md"] == [("model", name), ("settings", name)]
        assert "](../images/" in TEXTS[f"models/{name}.md"], name
    assert all(f"--{name}" in TEXTS["inspect.md"] for name in VIEWS)


def test_links_within_the_pages() -> None:
    """Links to other pages and to their headings lead somewhere."""
    texts = {DOCS / page: text for page, text in TEXTS.items()}
    texts |= {ROOT / name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")}
    for path, text in texts.items():
        text = re.sub(r"(?ms)^```.*?^```$", "", text)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?://", target):
                continue
            file, _, anchor = target.partition("#")
            linked = (path.parent / file).resolve() if file else path
            assert linked.is_file(), f"{path.name}: {target}"
            if anchor and linked.suffix == ".md":
                assert anchor in anchors(linked.read_text(encoding="utf-8")), f"{path.name}: {target}"


def anchors(text: str) -> set[str]:
    """Returns the anchors of the headings of a page, as Python-Markdown makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", text))
    plain = [
        re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower() for heading in headings
    ]
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


def test_links_to_code_name_what_is_there() -> None:
    """The line of each link to the code defines what the link names."""
    links = [(page, *match) for page, text in TEXTS.items() for match in CODE_LINK.findall(text)]
    assert len([link for link in links if link[0] == "walkthrough.md"]) >= 40
    for page, name, _, file, line in links:
        nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        definitions = {node.lineno: node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        expected = name.removesuffix("()").rpartition(".")[2]
        assert definitions.get(int(line)) == expected, f"{page}: {file}#L{line} is not {name}"


def test_images_exist_and_are_small() -> None:
    shown = {
        (DOCS / page).parent.joinpath(path).resolve()
        for page, text in TEXTS.items()
        for path in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    }
    for image in shown:
        assert image.is_file(), image
    images = set((DOCS / "images").glob("*.svg"))
    assert {image for image in images if not image.name.endswith(".dark.svg")} == shown
    assert all(image.stat().st_size < 125_000 for image in images)


@pytest.mark.slow
def test_site_is_built(tmp_path: Path) -> None:
    """The build is strict: a dead link, or anything a browser would fetch from another host, is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: ./setup docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "site" / "models" / "lstm.html").is_file()
