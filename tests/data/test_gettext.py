"""gettext catalogs are read as the standard library reads them."""

from __future__ import annotations

import gettext as standard
import io
import struct
from pathlib import Path

import pytest

from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats import ReadOptions, read_records
from seriatim.data.formats.gettext import Gettext
from seriatim.data.source import open_source

HEADER = "Content-Type: text/plain; charset=UTF-8\nLanguage: fr\nPlural-Forms: nplurals=2; plural=(n > 1);\n"
MESSAGES = {
    "": HEADER,
    "Open": "Ouvrir",
    "menu\x04Open": "Ouvre",
    'a long\nmessage\twith "quotes" and \\n': "un long\nmessage\tavec « guillemets » et \\n",
    "%d file\0%d files": "%d fichier\0%d fichiers",
    "untranslated": "",
}


def compile_catalog(messages: dict[str, str], order: str = "<", encoding: str = "utf-8") -> bytes:
    """Returns a .mo file as the manual describes it."""
    items = sorted((key.encode(encoding), value.encode(encoding)) for key, value in messages.items())
    start = 28 + 16 * len(items)
    tables, body = [b"", b""], b""
    for side in (0, 1):
        for item in items:
            tables[side] += struct.pack(f"{order}2I", len(item[side]), start + len(body))
            body += item[side] + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, len(items), 28, 28 + 8 * len(items), 0, start)
    return head + tables[0] + tables[1] + body


def quote(text: str) -> str:
    escapes = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escapes}"'


def write_catalog(messages: dict[str, str]) -> str:
    """Returns the same as .po, its sources over several lines."""
    entries = []
    for key, value in messages.items():
        context, sign, text = key.rpartition("\x04")
        singular, _, plural = text.partition("\0")
        lines = [f"msgctxt {quote(context)}"] if sign else []
        lines.append(f'msgid ""\n{quote(singular[:6])}\n{quote(singular[6:])}')
        if plural:
            lines.append(f"msgid_plural {quote(plural)}")
            lines += [f"msgstr[{n}] {quote(form)}" for n, form in enumerate(value.split("\0"))]
        else:
            lines.append(f"msgstr {quote(value)}")
        entries.append("\n".join(lines))
    return "\n\n".join(entries) + "\n"


def read(path: Path, notes: list[str] | None = None) -> list[tuple[str, str]]:
    """Returns the translated pairs of a file or folder."""
    diagnostics = Diagnostics(None if notes is None else notes.append)
    records = list(read_records(open_source(str(path)), ReadOptions(), diagnostics))
    diagnostics.raise_problems()
    return [(values["source"], values["target"]) for values, _ in records if values["target"]]


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize("order", "<>")
def test_catalogs_are_those_of_the_standard_library(tmp_path: Path, order: str) -> None:
    data = compile_catalog(MESSAGES, order)
    oracle = standard.GNUTranslations(io.BytesIO(data))
    binary = read(write(tmp_path / "a.mo", data))
    text = read(write(tmp_path / "b.po", write_catalog(MESSAGES)))
    long = 'a long\nmessage\twith "quotes" and \\n'
    expected = [
        ("Open", oracle.gettext("Open")),
        ("Open", oracle.pgettext("menu", "Open")),
        (long, oracle.gettext(long)),
        ("%d file", oracle.ngettext("%d file", "%d files", 1)),
        ("%d files", oracle.ngettext("%d file", "%d files", 5)),
    ]
    assert len({target for _, target in expected}) == 5
    assert sorted(binary) == sorted(text) == sorted(expected)


def test_charset_of_the_header(tmp_path: Path) -> None:
    messages = {"": HEADER.replace("UTF-8", "ISO-8859-15"), "sum": "été €"}
    assert read(write(tmp_path / "a.mo", compile_catalog(messages, ">", "iso8859-15"))) == [("sum", "été €")]
    assert read(write(tmp_path / "b.po", write_catalog(messages).encode("iso8859-15"))) == [("sum", "été €")]
    template = {"": "Content-Type: text/plain; charset=CHARSET\n", "sum": "été €"}
    assert read(write(tmp_path / "c.po", write_catalog(template))) == [("sum", "été €")]


def test_plural_forms_of_other_languages(tmp_path: Path) -> None:
    arabic = "Plural-Forms: nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2;\n"
    pairs = read(write(tmp_path / "a.mo", compile_catalog({"": arabic, "one\0many": "zero\0single\0several"})))
    assert pairs == [("many", "zero"), ("one", "single"), ("many", "several")]
    japanese = {"": "Plural-Forms: nplurals=1; plural=0;\n", "one\0many": "only"}
    assert read(write(tmp_path / "b.mo", compile_catalog(japanese))) == [("one", "only"), ("many", "only")]


def test_messages_without_a_translation(tmp_path: Path) -> None:
    """Training leaves them out, since the target is empty; prediction reads their sources."""
    text = (
        '# a comment\n#: file.c:7\n#, fuzzy, c-format\nmsgid "maybe"\nmsgstr "peut-être"\n\n'
        'msgid "later"\nmsgstr ""\n\n#, c-format\nmsgid "sure"\nmsgstr "sûr"\n\n'
        '#~ msgid "old"\n#~ msgstr "vieux"\n\n#~ msgid "older"\n#~ msgstr ""\n#~ "plus vieux"\n'
    )
    notes: list[str] = []
    path = write(tmp_path / "a.po", text)
    assert read(path, notes) == [("sure", "sûr")]
    assert notes == ["messages without a translation: 1 fuzzy, 1 untranslated, 2 obsolete"]
    records = list(Gettext().records(open_source(str(path)), ReadOptions(), Diagnostics()))
    assert [values["source"] for values, _ in records] == ["maybe", "later", "sure"]
    assert str(records[1].location) == "a.po, line 7"


def test_a_folder_of_catalogs(tmp_path: Path) -> None:
    write(tmp_path / "fr/a.po", write_catalog(MESSAGES))
    write(tmp_path / "fr/a.mo", compile_catalog(MESSAGES))
    write(tmp_path / "fr/b.mo", compile_catalog({"": HEADER.replace("fr", "fr_CA"), "Close": "Fermer"}))
    write(tmp_path / "fr/notes.txt", "nothing of this")
    notes: list[str] = []
    pairs = read(tmp_path / "fr", notes)
    assert len(pairs) == 6
    assert ("Close", "Fermer") in pairs
    assert any("their .po files are beside them" in note for note in notes)
    write(tmp_path / "fr/c.po", write_catalog({"": HEADER.replace("fr", "de"), "Close": "Schließen"}))
    with pytest.raises(SeriatimError, match="one model learns one language"):
        read(tmp_path / "fr")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.po", 'msgid "a"\nmsgstr "b\n', "a.po, line 2"),
        ("a.po", 'msgstr "b"\n', "a.po"),
        ("a.po", 'msgid "a"\nhello\n', "a.po, line 2"),
        ("a.mo", b"hello, I am no catalogue", "a.mo"),
        ("a.mo", struct.pack("<7I", 0x950412DE, 0, 9, 28, 28, 0, 28), "a.mo"),
        ("a.mo", b"", "a.mo"),
    ],
)
def test_broken_catalogs(tmp_path: Path, name: str, data: str | bytes, words: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        read(write(tmp_path / name, data))
    assert caught.value.code == "data.gettext"
    assert words in caught.value.cause
