"""The sentences that tests freeze are in files of their own, tests/golden/prose/<module of the test>.txt.

A test asserts codes, numbers and structure, and passes its sentences to the fixture `prose`, which compares them with
the section of the test. Whoever improves a sentence rewrites the files and reads the difference:

    python -m pytest tests/report --rewrite-prose && git diff tests/golden/prose
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent / "golden" / "prose"
HEADING = "## "  # of a section: the name of a test, and of one of several texts in it


def read_sections(file: Path) -> dict[str, str]:
    """Returns the text of each section by its heading."""
    if not file.is_file():
        return {}
    parts = f"\n{file.read_text(encoding='utf-8')}".split(f"\n{HEADING}")[1:]
    return {heading: text.strip("\n") for heading, _, text in (part.partition("\n") for part in parts)}


def check_prose(module: str, heading: str, texts: Sequence[str], rewrite: bool = False) -> None:
    """Raises AssertionError unless texts, one a line, are those of a section; or writes them there."""
    file, text = FOLDER / f"{module}.txt", "\n".join(texts)
    sections = read_sections(file)
    if rewrite:
        sections[heading] = text
        file.parent.mkdir(exist_ok=True)
        written = [f"{HEADING}{name}\n\n{sections[name]}\n" for name in sorted(sections)]
        file.write_text("\n".join(written), encoding="utf-8")
    else:
        assert sections.get(heading, "").splitlines() == text.splitlines(), f"rewrite {file.name}: --rewrite-prose"
