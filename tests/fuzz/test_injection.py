"""HTML in labels, tokens, column names, file names, settings and names is text in every page, never markup."""

from __future__ import annotations

import csv
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

import seriatim
from seriatim.core.run_folder import RunFolder
from seriatim.report import write_card, write_comparison_report, write_distillation_report, write_run_report

PAYLOAD = "\"'></script></style></title></textarea><xss onload=alert(1)>&lt;xss&gt;]]>-->{{7*7}}${x}"


class Tags(HTMLParser):
    """Collects the tags of a page, as a browser would find them: also those after a script that was closed early."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {f"{name}={value}" for name, value in attrs if name.startswith("on")}


def assert_no_markup(page: str) -> None:
    parser = Tags()
    parser.feed(page)
    assert "body" in parser.tags
    assert "xss" not in parser.tags
    assert not [attribute for attribute in parser.attributes if "alert" in attribute]
    assert "49${x}" not in page


def test_the_parser_finds_markup() -> None:
    for page in (f"<body><p>{PAYLOAD}</p>", f"<body><script>x = {PAYLOAD!r}</script>", f'<body><img alt="{PAYLOAD}">'):
        with pytest.raises(AssertionError, match="xss"):
            assert_no_markup(page)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A classifier whose file, columns, labels and texts are markup."""
    folder = tmp_path_factory.mktemp("injection")
    file = folder / f"{PAYLOAD.replace('/', '')}.csv"
    with open(file, "w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow([f"text {PAYLOAD}", f"label {PAYLOAD}"])
        for number in range(15):
            writer.writerows([f"{word} {PAYLOAD} {number}", f"{word} {PAYLOAD}"] for word in ("good", "bad"))
    columns = {"data": {"columns": {"input": f"text {PAYLOAD}", "target": f"label {PAYLOAD}"}}}
    settings = columns | {"model": {"width": 4}, "train": {"batch_size": 4}}
    return seriatim.train("classify", str(file), "gru", out=folder / "<xss>", steps=110, settings=settings)


def test_report(run: Any) -> None:
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "&lt;xss" in page
    assert_no_markup(page)


def test_comparison(run: Any, tmp_path: Path) -> None:
    page = write_comparison_report(tmp_path / "<xss>", [run, run], {PAYLOAD: PAYLOAD})
    assert_no_markup(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def named(run: Any, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run with markup in every text of its settings, summary and events, and in the names of metrics."""
    folder = tmp_path_factory.mktemp("names") / "<xss>"
    shutil.copytree(run.path, folder)
    settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    settings = with_markup(settings) | {"distill": dict.fromkeys(["teacher", "weight", "temperature"], PAYLOAD)}
    (folder / "config.yaml").write_text(yaml.dump(settings), encoding="utf-8")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["teacher"] = {"path": "runs/big", "model": "gpt", "parameters": 9, "metrics": summary["metrics"]}
    summary["signatures"], summary["evaluation_notes"] = {"bleu": "nrefs:1"}, ["by beam search"]
    for split in summary["metrics"]:
        summary["metrics"][split][PAYLOAD] = 0.5
        summary["baselines"].setdefault(split, {})[PAYLOAD] = {PAYLOAD: 0.5}
    info = {"title": PAYLOAD, "history": "sequences", "predecessors": [PAYLOAD], "novelty": PAYLOAD.partition("{{")[0]}
    checked = {"monitor": summary["monitor"], "model_info": info}  # texts with braces are no novelties
    (folder / "summary.json").write_text(json.dumps(with_markup(summary) | checked), encoding="utf-8")
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    text = "".join(json.dumps(event | {"unit": PAYLOAD, f"val_{PAYLOAD}": 0.5}) + "\n" for event in events)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    sample = {"step": 1, "tokens": 1, "text": PAYLOAD, PAYLOAD: PAYLOAD}
    (folder / "samples.jsonl").write_text(json.dumps(sample) + "\n", encoding="utf-8")
    return RunFolder(folder)


def with_markup(value: Any) -> Any:
    """Returns a JSON value with markup after each of its texts."""
    if isinstance(value, dict):
        return {key: with_markup(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_markup(inner) for inner in value]
    return f"{value} {PAYLOAD}" if isinstance(value, str) else value


def test_names_in_a_report(named: RunFolder) -> None:
    page = write_run_report(named).read_text(encoding="utf-8")
    assert page.count("&lt;xss") > 20
    assert_no_markup(page)


def test_names_in_a_model_card(named: RunFolder) -> None:
    text = write_card(named).read_text(encoding="utf-8")
    front_matter, _, body = text.removeprefix("---\n").partition("---\n")
    assert set(yaml.safe_load(front_matter)) == {"library_name", "tags"}
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
    assert page.count("&lt;xss") > 20
    assert page.count("<table>") == 2
    assert_no_markup(f"<body>{page}")


def test_names_in_a_comparison(named: RunFolder, run: Any, tmp_path: Path) -> None:
    page = write_comparison_report(tmp_path, [named, run, named], {PAYLOAD: PAYLOAD})
    assert_no_markup(page.read_text(encoding="utf-8"))


def test_names_in_a_distillation(named: RunFolder, tmp_path: Path) -> None:
    metrics = named.summary["metrics"]["test"]
    row = {
        "model": PAYLOAD, "monitor": "error", "split": "test", "metrics": metrics, "parameters": 9, "seconds": 2.0,
        "speed": {"32": 3.0, "1": 1.0}, "bytes": 36,
    }  # fmt: skip
    folders = {f"{label} {PAYLOAD}": named for label in ("teacher", "alone", "distilled")}
    page = write_distillation_report(tmp_path, folders, [row] * 3)
    assert_no_markup(page.read_text(encoding="utf-8"))
