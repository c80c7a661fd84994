"""HTML in labels, tokens, column names, file names and names of models is text in every page, never markup."""

from __future__ import annotations

import csv
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.report import write_comparison_report

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
