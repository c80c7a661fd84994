"""Formats: in which order they are tried, and when their libraries are imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from data_schemas import LINES, read, values, write
from seriatim.core.errors import Diagnostics
from seriatim.data import formats
from seriatim.data.formats import FORMATS, Format, LazyFormat, ReadOptions, Record, find_format
from seriatim.data.source import Source, open_source
from seriatim.data.stream import Location


class Shouted(Format):
    """A format of a plug-in: words in capitals, one per line."""

    def sniff(self, source: Source) -> bool:
        return all(stream.read_head().isupper() for stream in source.streams)

    def usable(self, options: ReadOptions) -> bool:
        return "text" in options.header_names

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        for number, word in enumerate(source.streams[0].read_text().split(), 1):
            yield Record({"text": word.lower()}, Location(source.name, number))


def test_plain_text_comes_last() -> None:
    names = [format.name if isinstance(format, LazyFormat) else type(format).__name__ for format in FORMATS]
    assert names[0] == "Memory"
    assert names[-1] == "Text"
    assert names.index("Squad") < names.index("JsonLines") < names.index("Json")


def test_a_plug_in_adds_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.shout", "HELLO\nWORLD\n")
    monkeypatch.setattr(formats, "FORMATS", [Shouted(), *FORMATS])
    assert values(read(path, LINES), "text") == ["hello", "world"]
    assert type(find_format(open_source(path))).__name__ == "Text"  # it is not usable without the column


def test_lazy_formats_are_imported_when_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("plugin.shouted")
    module.Shouted = Shouted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plugin.shouted", module)
    lazy, options = LazyFormat("plugin.shouted", "Shouted", r"\.shout$"), ReadOptions(header_names=frozenset({"text"}))
    assert not lazy.matches(open_source(write(tmp_path / "a.txt", "HELLO\n")), options)
    assert lazy.matches(open_source(write(tmp_path / "a.shout", "HELLO\n")), options)
    assert not lazy.matches(open_source(tmp_path / "a.shout"), ReadOptions())
    broken = LazyFormat("no.such.module", "Nothing", r"\.shout$")
    assert not broken.matches(open_source(tmp_path / "a.txt"), options)
    with pytest.raises(ModuleNotFoundError):
        broken.matches(open_source(write(tmp_path / "b.shout.gz", b"")), options)


def test_a_table_imports_no_library_of_other_formats(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,y\n")
    code = (
        "import sys; from seriatim.data.source import open_source; from seriatim.data.formats import find_format;"
        f"find_format(open_source({str(path)!r}));"
        "print([name for name in ('torch', 'pandas', 'PIL', 'scipy', 'mido', 'polib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
