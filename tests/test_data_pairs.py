"""Pairs of texts: every accepted form gives the same pairs, every bad one a clear answer, no source is in two parts."""

from __future__ import annotations

import gettext as standard
import gzip
import io
import json
import os
import random
import re
import struct
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from seriatim.cli.data import app
from seriatim.core.errors import SeriatimError
from seriatim.data import catalogue, gettext
from seriatim.data._pair_columns import well_known
from seriatim.data._pair_texts import keys_of, normalise
from seriatim.data.dates import dates
from seriatim.data.decoding import Facts
from seriatim.data.numerals import (
    digits_ordinal,
    english,
    english_ordinal,
    english_year,
    french,
    french_ordinal,
    french_year,
)
from seriatim.data.pair_doctor import check_pairs, holds_pairs
from seriatim.data.pairs import PairSettings, normalised, read, read_inputs, read_single
from seriatim.data.sequences import Parts
from seriatim.data.sources import find_path

MIRROR = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))
PAIRS = [("Go.", "Va !"), ("I see.", "Je vois."), ("I see.", "Aha."), ("Wait!", "Attendez !"), ("Ça va?", "Ça va ?")]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def single(source: Path | str, notes: list[str] | None = None, **options: Any) -> list[tuple[str, str]]:
    notify = None if notes is None else notes.append
    found = read_single(str(source), PairSettings(source="x", **options), notify=notify)
    return list(zip(found.inputs, found.targets, strict=True))  # type: ignore[arg-type]


def everything(found: Parts) -> dict[str, list[tuple[str, str]]]:
    return {
        name: list(zip(found.part(name).inputs, found.part(name).targets, strict=True))  # type: ignore[arg-type]
        for name in ("train", "valid", "test")
    }


def refused(source: Path | str, code: str, *words: str, **options: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        read(PairSettings(source=str(source), **options))
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    for word in words:
        assert word in f"{caught.value.cause} {caught.value.remedy}"
    return caught.value


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def forms(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """The same pairs in every form."""
    rows = [{"source": a, "target": b} for a, b in PAIRS]
    hub = [{"id": "1", "translation": {"en": a, "fr": b}} for a, b in PAIRS]
    table = pa.table({"en": [a for a, _ in PAIRS], "fr": [b for _, b in PAIRS]})
    nested = pa.table({"translation": [one["translation"] for one in hub]})
    for name, one in (("a.parquet", table), ("n.parquet", nested)):
        buffer = io.BytesIO()
        pq.write_table(one, buffer)
        write(folder / name, buffer.getvalue())
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.writestr("in/fra.txt", TSV)
        archive.writestr("__MACOSX/in/._fra.txt", b"\0")
    quoted = "".join(f'"{a}","{b}"\r\n' for a, b in PAIRS)
    po = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    files: dict[str, str | bytes] = {
        "t.txt": TSV,
        "t.tsv": TSV,
        "bom.tsv": b"\xef\xbb\xbf" + TSV.encode(),
        "crlf.tsv": TSV.replace("\n", "\r\n"),
        "head.tsv": f"en\tfr\n{TSV}",
        "wide.tsv": TSV.replace("\n", "\tCC-BY 2.0 (France) #1 (CM)\n"),
        "sides.tsv": "id\ttarget\tsource\n" + "".join(f"7\t{b}\t{a}\n" for a, b in PAIRS),
        "named.tsv": "n\tleft\tright\n" + "".join(f"7\t{a}\t{b}\n" for a, b in PAIRS),
        "far.tsv": "".join(f"{b}\tx\t{a}\n" for a, b in PAIRS),
        "gz.tsv.gz": gzip.compress(TSV.encode()),
        "a.csv": f"source,target\r\n{quoted}",
        "headless.csv": quoted,
        "utf16.tsv": TSV.encode("utf-16"),
        "a.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "two.jsonl": "".join(json.dumps({"n": 1, "q": a, "r": b}) + "\n" for a, b in PAIRS),
        "hub.jsonl": "".join(json.dumps(row) + "\n" for row in hub),
        "a.en": "".join(f"{a}\n" for a, _ in PAIRS),
        "a.fr": "\n".join(b for _, b in PAIRS),
        "a.po": po + "".join(f'msgctxt "{n}"\nmsgid "{a}"\nmsgstr "{b}"\n\n' for n, (a, b) in enumerate(PAIRS)),
    }
    for name, data in files.items():
        write(folder / name, data)
    options: dict[str, dict[str, Any]] = {
        "named.tsv": {"column": "left", "target": "right"},
        "far.tsv": {"column": 3, "target": 1},
        "utf16.tsv": {"encoding": "utf-16"},
    }
    names = [name for name in (*files, "a.parquet", "n.parquet", "z.zip") if name not in ("a.en", "a.fr")]
    found = {name: (str(folder / name), options.get(name, {})) for name in names}
    found["member"] = (str(folder / "z.zip/in/fra.txt"), {})
    found["aligned"] = (f"{folder / 'a.en'},{folder / 'a.fr'}", {})
    return found


def test_every_form_gives_the_same_pairs(tmp_path: Path) -> None:
    for name, (source, options) in forms(tmp_path).items():
        assert single(source, **options) == PAIRS, name
        assert single(source, reverse=True, **options) == [(b, a) for a, b in PAIRS], name


@pytest.mark.parametrize(
    ("given", "kind", "size"),
    [
        ({"size": 8000}, "bpe", 8000),
        ({"lowercase": True}, "bpe", 4000),
        ({"kind": "char", "size": 8000}, "char", 8000),
        ({"kind": "word"}, "word", 8192),
    ],
)
def test_a_vocabulary_of_so_many_is_of_parts_of_words(given: dict[str, Any], kind: str, size: int) -> None:
    found = PairSettings.model_validate({"source": "x", "tokenizer": given}).tokenizer
    assert found is not None
    assert (found.kind, found.size) == (kind, size)


def test_places_and_notes(tmp_path: Path) -> None:
    made = forms(tmp_path)
    found = read_single(made["crlf.tsv"][0], PairSettings(source="x"))
    assert [found.place(0), found.place(4)] == ["crlf.tsv, line 1", "crlf.tsv, line 5"]
    found = read_single(made["head.tsv"][0], PairSettings(source="x"))
    assert found.place(0) == "head.tsv, line 2"
    for name, told in (
        ("wide.tsv", "5 lines have more than two columns; only the first two are read"),
        ("head.tsv", "head.tsv: en → fr, by its heading"),
        ("sides.tsv", "sides.tsv: source → target, by its heading"),
        ("headless.csv", "its first line is taken for a pair"),
        ("crlf.tsv", "turned 5 Windows line ends"),
    ):
        notes: list[str] = []
        single(made[name][0], notes)
        assert any(told in note for note in notes), (name, notes)


def test_headings_are_told_from_pairs() -> None:
    for row in (("source", "target"), ("en", "fr"), ("English", "French"), ("en_US", "pt-BR"), ("x", "src", "tgt")):
        assert well_known(row) is not None, row
    for row in (("No", "Non"), ("no", "no"), ("Go.", "Va !"), ("source", "la source"), ("It", "Es"), ("en",)):
        assert well_known(row) is None, row


def test_longest_lines_and_unknown_characters(tmp_path: Path) -> None:
    long = " ".join(f"word{n}" for n in range(1000))
    odd = "\U0001f600 \ue000 \u200b\u2028x"
    path = write(tmp_path / "a.tsv", f"{long}\t{long}\n{odd}\tva\u202f!\n")
    assert single(path) == [(long, long), ("\U0001f600 \ue000 \u200b x", "va\u202f!")]
    assert single(path, normalise=False)[1] == (odd, "va\u202f!")


# ── normalisation ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_normalisation_is_stated_and_keeps_typographic_spaces(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "été")
    path = write(tmp_path / "a.tsv", f" a  b \t{decomposed}\u00a0!\nplain\tva\u2009?\n")
    notes: list[str] = []
    assert single(path, notes) == [("a b", "été\u00a0!"), ("plain", "va\u2009?")]
    assert any(note.startswith("1 text brought to Unicode NFC") for note in notes)
    assert any(note.startswith("1 text: spaces at the ends") for note in notes)
    notes = []
    assert single(path, notes, normalise=False) == [(" a  b ", f"{decomposed}\u00a0!"), ("plain", "va\u2009?")]
    assert notes == ["pairs: 2"]


def test_all_at_once_is_as_one_by_one() -> None:
    draw = random.Random(3)
    signs = "aÀßİ e\u0301\u00a0\u202f\u3000 \t\n\u2028.!ﬁ"
    texts = ["".join(draw.choice(signs) for _ in range(draw.randrange(6))) for _ in range(2000)]
    found, forms_changed, spaces_changed = normalise(texts)
    assert found == [normalised(text) for text in texts]
    assert forms_changed == sum(not unicodedata.is_normalized("NFC", text) for text in texts)
    assert spaces_changed >= sum(text != text.strip() and text.isascii() for text in texts)
    nfc = unicodedata.normalize
    assert keys_of(texts) == [" ".join(nfc("NFC", text.casefold()).split()) for text in texts]
    assert keys_of([]) == []
    assert normalise([]) == ([], 0, 0)


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def many(number: int = 200) -> list[str]:
    lines = [f"Sentence number {n}!\tPhrase {n}" for n in range(number)]
    lines += [f"sentence  NUMBER {n}!\tEncore {n}" for n in range(0, number, 3)]
    return lines + [f"Sentence number {n}!\tAutrement {n}" for n in range(0, number, 5)]


def test_no_source_in_two_parts_whatever_the_order(tmp_path: Path) -> None:
    lines = many()
    first = everything(read(PairSettings(source=str(write(tmp_path / "a.tsv", "\n".join(lines))))))
    random.Random(1).shuffle(lines)
    second = everything(read(PairSettings(source=str(write(tmp_path / "b.tsv", "\n".join(lines))))))
    keys = {name: set(keys_of([source for source, _ in part])) for name, part in first.items()}
    assert {name: len(found) for name, found in keys.items()} == {"train": 160, "valid": 20, "test": 20}
    assert len(keys["train"] | keys["valid"] | keys["test"]) == 200
    assert {name: sorted(part) for name, part in first.items()} == {name: sorted(part) for name, part in second.items()}
    assert sum(len(part) for part in first.values()) == len(lines)


def test_held_out(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.tsv", "\n".join(many())))
    sizes = {}
    for held in (0, 1, 99):
        parts = everything(read(PairSettings(source=path, held_out=held)))
        sizes[held] = [len(set(keys_of([source for source, _ in part]))) for part in parts.values()]
    assert sizes == {0: [200, 0, 0], 1: [198, 1, 1], 99: [2, 99, 99]}
    refused(path, "data.too-short", "hold out 100", "200 distinct sources", held_out=100)
    refused(write(tmp_path / "two.tsv", "a\tb\nc\td\n"), "data.too-short", "2 distinct sources")


def test_files_for_validation_and_test(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", "\n".join(many()))
    valid = write(tmp_path / "valid.tsv", "New one\tNouveau\nSENTENCE number 3!\tPhrase 3\n")
    test = write(tmp_path / "t.en", "Test\n\n").parent / "t.fr"
    write(test, "Essai\nVide\n")
    notes: list[str] = []
    settings = PairSettings(source=str(train), valid=str(valid), test=f"{tmp_path / 't.en'},{test}")
    found = read(settings, notify=notes.append)
    assert [len(found.part(name)) for name in ("train", "valid", "test")] == [len(many()), 2, 1]
    assert "1 of 2 valid pairs have a source that is in the training part too" in notes
    assert any("left out 1 pair with an empty side (the first: t.en, line 2)" in note for note in notes)
    only = read(PairSettings(source=str(train), test=str(valid)))
    assert len(only.test) == 2
    assert len(set(keys_of(only.valid.inputs))) == 20  # type: ignore[arg-type]
    none = read(PairSettings(source=str(train), valid=str(valid)))
    assert len(none.test) == 0
    assert "no test part is given, so it is empty" in none.notes


def test_empty_sides_repeats_and_fingerprint(tmp_path: Path) -> None:
    lines = [*many(40), "no target\t ", "\tno source", "", many(40)[0]]
    path = write(tmp_path / "a.tsv", "\n".join(lines) + "\n")
    found = read(PairSettings(source=str(path)))
    note = f"left out 3 pairs with an empty side (the first: a.tsv, line {len(many(40)) + 1})"
    assert note in found.notes
    assert "1 pair repeats another; all are kept" in found.notes
    assert "length: source 3.0 words on average, 3 at most; target 2.0 words on average, 2 at most" in found.notes
    assert sum(len(found.part(name)) for name in ("train", "valid", "test")) == len(many(40)) + 1
    assert read(PairSettings(source=str(path))).fingerprint == found.fingerprint
    assert read(PairSettings(source=str(path), reverse=True)).fingerprint != found.fingerprint


# ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def inputs(source: Path | str, **options: Any) -> list[str]:
    return list(read_inputs(str(source), PairSettings(source="x", **options)).inputs)


def test_inputs_keep_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\n\n  two\tx \n\nlast")
    assert inputs(path) == ["one", "", "two x", "", "last"]
    assert inputs(path, reverse=True) == ["one", "", "two x", "", "last"]
    assert inputs(write(tmp_path / "b.txt", "a\tb\n\nc\td\n")) == ["a", "", "c"]
    assert inputs(write(tmp_path / "c.tsv", "a\nb\n\n")) == ["a", "b", ""]
    assert inputs(tmp_path / "b.txt", reverse=True) == ["b", "", "d"]
    assert inputs(write(tmp_path / "a.jsonl", '{"text": "x"}\n{"text": ""}\n')) == ["x", ""]
    assert inputs(write(tmp_path / "latin.txt", "été\n".encode("latin-1")), encoding="latin-1") == ["été"]
    assert inputs(write(tmp_path / "utf8.txt", "été\n"), encoding="latin-1") == ["été"]
    assert inputs(write(tmp_path / "none.txt", "")) == []
    assert inputs(write(tmp_path / "m.po", 'msgid "a"\nmsgstr ""\n\n#, fuzzy\nmsgid "b"\nmsgstr "x"\n')) == ["a", "b"]
    for name, (source, options) in forms(tmp_path / "forms").items():
        assert inputs(source, **options) == [a for a, _ in PAIRS], name
        assert inputs(source, reverse=True, **options) == [b for _, b in PAIRS], name


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "data", "code", "words", "options"),
    [
        ("a.tsv", "a\tb\nc\n", "data.pair", ("a.tsv, line 2: no target", "1 column"), {}),
        ("a.txt", "no tab here\n", "data.pair", ("a.txt, line 1: no target",), {}),
        ("a.tsv", "a\tb\nc\td\n", "data.pair", ("a.tsv, line 1: no target", "column 3"), {"column": 1, "target": 3}),
        ("a.csv", "source,target\na,b\nc\n", "data.pair", ("a.csv, line 3: no target",), {}),
        ("a.csv", 'a,"b\n', "data.csv", ("a.csv, line 1",), {}),
        ("a.tsv", "x\ty\na\tb\n", "data.column", ('a.tsv, line 1: has no column "en"',), {"column": "en"}),
        ("a.tsv", "a\tb\n", "data.column", ("columns 1 and 1",), {"column": 1, "target": 1}),
        ("a.tsv", b"a\tb\n\xe9\tc\n", "data.encoding", ("a.tsv, line 2", "--encoding"), {}),
        ("a.tsv", b"a\tb\n\0\tc\n", "data.binary", ("a.tsv, line 2",), {}),
        ("a.jsonl", '{"a": "x", "b": "y", "c": "z"}\n', "data.column", ("which columns", "a, b, c"), {}),
        ("a.jsonl", '{"a": "x", "b": "y"}\n{"a": "x"}\n', "data.column", ('line 2: has no column "b"',), {}),
        ("a.jsonl", '{"a": "x", "b": "y"}\n{"a": 1, "b": "y"}\n', "data.column", ("line 2", "holds int"), {}),
        ("a.jsonl", '{"translation": {"en": "x", "fr": "y"}}\n{"translation": {"en": "x"}}\n', "data.column",
         ("line 2", "translation.fr"), {}),
        ("a.jsonl", "{\n", "data.jsonl", ("a.jsonl, line 1",), {}),
        ("a.tsv", "\n\n", "data.empty", ("a.tsv",), {}),
        ("a.tsv", "a\t\n", "data.empty", ("no pair with text on both sides",), {}),
        ("a.tsv", "a\tb\n", "data.encoding-name", ("utf-9",), {"encoding": "utf-9"}),
        ("a.po", 'msgid "a"\nmsgstr "b\n', "data.gettext", ("a.po, line 2: a string that is not closed",), {}),
        ("a.po", 'msgstr "b"\n', "data.gettext", ("a.po, line 1: msgstr before any msgid",), {}),
        ("a.po", 'msgid "a"\nmsgstr "\\q"\n', "data.gettext", ("a.po, line 2", "no escape"), {}),
        ("a.po", 'msgid "a"\nhello\n', "data.gettext", ("a.po, line 2: neither",), {}),
        ("a.mo", b"hello, I am no catalogue", "data.gettext", ("a.mo",), {}),
        ("a.mo", struct.pack("<7I", 0x950412DE, 0, 9, 28, 28, 0, 28), "data.gettext", ("beyond its end",), {}),
        ("a.mo", struct.pack("<9I", 0x950412DE, 0, 1, 28, 28, 0, 28, 99, 0), "data.gettext", ("message 1",), {}),
    ],
)  # fmt: skip
def test_bad_files(
    tmp_path: Path, name: str, data: str | bytes, code: str, words: tuple[str, ...], options: dict[str, Any]
) -> None:
    refused(write(tmp_path / name, data), code, *words, **options)


def test_aligned_files_must_agree(tmp_path: Path) -> None:
    write(tmp_path / "a.en", "one\ntwo\nthree\n")
    write(tmp_path / "a.fr", "un\ndeux\n")
    refused(f"{tmp_path / 'a.en'},{tmp_path / 'a.fr'}", "data.pair", "a.en has 3 lines and a.fr has 2")
    refused(f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}", "data.missing", "a.de")
    refused(tmp_path / "nothing.tsv", "data.missing", "nothing.tsv")
    write(tmp_path / "b,c.tsv", TSV)
    assert single(tmp_path / "b,c.tsv") == PAIRS
    write(tmp_path / "b,c.en", "one\n")
    write(tmp_path / "b,c.fr", "un\n")
    assert single(f"{tmp_path / 'b,c.en'},{tmp_path / 'b,c.fr'}") == [("one", "un")]


# ── gettext ───────────────────────────────────────────────────────────────────────────────────────────────────────

HEADER = "Content-Type: text/plain; charset=UTF-8\nLanguage: fr\nPlural-Forms: nplurals=2; plural=(n > 1);\n"
MESSAGES = {
    "": HEADER,
    "Open": "Ouvrir",
    "menu\x04Open": "Ouvre",
    "a long\nmessage\twith \"quotes\" and \\n": "un long\nmessage\tavec « guillemets » et \\n",
    "%d file\0%d files": "%d fichier\0%d fichiers",
    "untranslated": "",
}  # fmt: skip


def compiled(messages: dict[str, str], order: str = "<", codec: str = "utf-8") -> bytes:
    """A .mo file as the manual describes it."""
    items = sorted((key.encode(codec), value.encode(codec)) for key, value in messages.items())
    start = 28 + 16 * len(items)
    tables, body = [b"", b""], b""
    for side in (0, 1):
        for item in items:
            tables[side] += struct.pack(f"{order}2I", len(item[side]), start + len(body))
            body += item[side] + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, len(items), 28, 28 + 8 * len(items), 0, start)
    return head + tables[0] + tables[1] + body


def quoted(text: str) -> str:
    escapes = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escapes}"'


def written(messages: dict[str, str]) -> str:
    """The same as .po, its longer strings over several lines."""
    found = []
    for key, value in messages.items():
        context, sign, text = key.rpartition("\x04")
        one, _, plural = text.partition("\0")
        lines = [f"msgctxt {quoted(context)}"] if sign else []
        lines.append(f'msgid ""\n{quoted(one[:6])}\n{quoted(one[6:])}')
        if plural:
            lines.append(f"msgid_plural {quoted(plural)}")
            lines += [f"msgstr[{n}] {quoted(form)}" for n, form in enumerate(value.split("\0"))]
        else:
            lines.append(f"msgstr {quoted(value)}")
        found.append("\n".join(lines))
    return "\n\n".join(found) + "\n"


def found_in(path: Path, notes: list[str] | None = None) -> list[tuple[str, str]]:
    facts = Facts()
    found = [(source, target) for source, target, _ in gettext.pairs(find_path(path).raws, "utf-8", facts)]
    if notes is not None:
        notes.extend(facts.notes)
    return found


def test_catalogues_against_the_standard_library(tmp_path: Path) -> None:
    for order in "<>":
        data = compiled(MESSAGES, order)
        oracle = standard.GNUTranslations(io.BytesIO(data))
        binary = found_in(write(tmp_path / "a.mo", data))
        text = found_in(write(tmp_path / "a.po", written(MESSAGES)))
        assert sorted(binary) == sorted(text)
        expected = [
            ("Open", oracle.gettext("Open")),
            ("Open", oracle.pgettext("menu", "Open")),
            (long := 'a long\nmessage\twith "quotes" and \\n', oracle.gettext(long)),
            ("%d file", oracle.ngettext("%d file", "%d files", 1)),
            ("%d files", oracle.ngettext("%d file", "%d files", 5)),
        ]
        assert sorted(text) == sorted(expected)
        assert len({target for _, target in expected}) == 5


def test_charset_of_the_header(tmp_path: Path) -> None:
    messages = {"": HEADER.replace("UTF-8", "ISO-8859-15"), "sum": "été €"}
    assert found_in(write(tmp_path / "a.mo", compiled(messages, ">", "iso8859-15"))) == [("sum", "été €")]
    assert found_in(write(tmp_path / "a.po", written(messages).encode("iso8859-15"))) == [("sum", "été €")]
    template = {"": "Content-Type: text/plain; charset=CHARSET\n", "sum": "été €"}
    assert found_in(write(tmp_path / "b.po", written(template))) == [("sum", "été €")]


def test_plural_forms_of_other_languages(tmp_path: Path) -> None:
    arabic = "Plural-Forms: nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2;\n"
    many_forms = {"": arabic, "one\0many": "zero\0single\0several"}
    assert found_in(write(tmp_path / "a.mo", compiled(many_forms))) == [
        ("many", "zero"), ("one", "single"), ("many", "several"),
    ]  # fmt: skip
    japanese = {"": "Plural-Forms: nplurals=1; plural=0;\n", "one\0many": "only"}
    assert found_in(write(tmp_path / "b.mo", compiled(japanese))) == [("one", "only"), ("many", "only")]


def test_what_is_left_out_of_catalogues(tmp_path: Path) -> None:
    text = (
        '# a comment\n#: file.c:7\n#, fuzzy, c-format\nmsgid "maybe"\nmsgstr "peut-être"\n\n'
        'msgid "later"\nmsgstr ""\n\n#, c-format\nmsgid "sure \\x41\\101\\303\\251"\nmsgstr "sûr"\n'
        '#~ msgid "old"\n#~ msgstr "vieux"\n\n#~ msgid "older"\n#~ msgstr ""\n#~ "plus vieux"\n'
    )
    notes: list[str] = []
    assert found_in(write(tmp_path / "a.po", text), notes) == [("sure AAé", "sûr")]
    assert notes == ["left out messages: 1 fuzzy, 1 untranslated, 2 obsolete"]


def test_a_folder_of_catalogues(tmp_path: Path) -> None:
    write(tmp_path / "fr/a.po", written(MESSAGES))
    write(tmp_path / "fr/a.mo", compiled(MESSAGES))
    write(tmp_path / "fr/b.mo", compiled({"": HEADER.replace("fr", "fr_CA"), "Close": "Fermer"}))
    write(tmp_path / "fr/notes.txt", "nothing of this")
    notes: list[str] = []
    found = single(tmp_path / "fr", notes)
    assert len(found) == 6
    assert ("Close", "Fermer") in found
    assert any("have their .po beside them" in note for note in notes)
    write(tmp_path / "fr/c.po", written({"": HEADER.replace("fr", "de"), "Close": "Schließen"}))
    refused(tmp_path / "fr", "data.pair", "one model learns one language")


# ── what is built in ──────────────────────────────────────────────────────────────────────────────────────────────

NUMERALS = {
    0: "zéro", 1: "un", 7: "sept", 16: "seize", 17: "dix-sept", 20: "vingt", 21: "vingt et un", 22: "vingt-deux",
    31: "trente et un", 61: "soixante et un", 69: "soixante-neuf", 70: "soixante-dix", 71: "soixante et onze",
    72: "soixante-douze", 79: "soixante-dix-neuf", 80: "quatre-vingts", 81: "quatre-vingt-un",
    90: "quatre-vingt-dix", 91: "quatre-vingt-onze", 99: "quatre-vingt-dix-neuf", 100: "cent", 101: "cent un",
    111: "cent onze", 171: "cent soixante et onze", 180: "cent quatre-vingts", 200: "deux cents",
    201: "deux cent un", 280: "deux cent quatre-vingts", 999: "neuf cent quatre-vingt-dix-neuf", 1000: "mille",
    1001: "mille un", 1100: "mille cent", 1200: "mille deux cents", 2000: "deux mille", 2021: "deux mille vingt et un",
    21_000: "vingt et un mille", 80_000: "quatre-vingt mille", 80_080: "quatre-vingt mille quatre-vingts",
    100_000: "cent mille", 200_000: "deux cent mille", 200_200: "deux cent mille deux cents",
    300_081: "trois cent mille quatre-vingt-un", 999_999:
    "neuf cent quatre-vingt-dix-neuf mille neuf cent quatre-vingt-dix-neuf",
}  # fmt: skip


def test_french_numbers() -> None:
    assert {number: french(number) for number in NUMERALS} == NUMERALS
    feminine = {1: "une", 21: "vingt et une", 71: "soixante et onze", 81: "quatre-vingt-une", 101: "cent une",
                80: "quatre-vingts", 1001: "mille une", 11: "onze"}  # fmt: skip
    assert {number: french(number, feminine=True) for number in feminine} == feminine
    years = {1980: "mille neuf cent quatre-vingt", 1800: "mille huit cent", 1987: "mille neuf cent quatre-vingt-sept",
             2000: "deux mille", 1971: "mille neuf cent soixante et onze"}  # fmt: skip
    assert {year: french_year(year) for year in years} == years
    ranks = {1: "premier", 2: "deuxième", 4: "quatrième", 5: "cinquième", 9: "neuvième", 11: "onzième",
             21: "vingt et unième", 71: "soixante et onzième", 80: "quatre-vingtième", 81: "quatre-vingt-unième",
             100: "centième"}  # fmt: skip
    assert {rank: french_ordinal(rank) for rank in ranks} == ranks
    assert french_ordinal(1, feminine=True) == "première"


def value(words: str) -> int:
    """What a French number says, read from left to right: a reader of its own, not the writer turned round."""
    simple = {"un": 1, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "six": 6, "sept": 7, "huit": 8, "neuf": 9,
              "dix": 10, "onze": 11, "douze": 12, "treize": 13, "quatorze": 14, "quinze": 15, "seize": 16,
              "vingt": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60, "zéro": 0}  # fmt: skip
    total = part = 0
    words = words.replace("quatre-vingts", "quatre-vingt").replace("quatre-vingt", "octante")
    for word in words.replace("-", " ").split():
        if word == "mille":
            total, part = total + max(1, part) * 1000, 0
        elif word in ("cent", "cents"):
            part = max(1, part) * 100
        elif word != "et":
            part += 80 if word == "octante" else simple[word]
    return total + part


def test_french_numbers_say_what_they_are() -> None:
    numbers = [*range(2000), *range(2000, 1_000_000, 997)]
    assert [value(french(number)) for number in numbers] == numbers
    for number in numbers:
        words = french(number)
        assert "mille" not in words.replace(" mille", "").removeprefix("mille")
        assert "cents mille" not in words
        assert "vingts mille" not in words


def test_english_numbers() -> None:
    known = {0: "zero", 13: "thirteen", 40: "forty", 85: "eighty-five", 100: "one hundred",
             201: "two hundred and one", 1000: "one thousand", 1005: "one thousand and five",
             1200: "one thousand two hundred", 80_300: "eighty thousand three hundred"}  # fmt: skip
    assert {number: english(number) for number in known} == known
    ranks = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth", 20: "twentieth",
             21: "twenty-first", 100: "one hundredth"}  # fmt: skip
    assert {rank: english_ordinal(rank) for rank in ranks} == ranks
    years = {1987: "nineteen eighty-seven", 1905: "nineteen oh five", 1900: "nineteen hundred", 2000: "two thousand",
             2004: "two thousand and four", 2014: "twenty fourteen"}  # fmt: skip
    assert {year: english_year(year) for year in years} == years
    short = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 31: "31st"}
    assert {rank: digits_ordinal(rank) for rank in short} == short


def test_dates_are_made_with_their_grammar() -> None:
    lines = dates().splitlines()
    pairs = dict(line.split("\t") for line in lines)
    assert len(lines) == len(pairs) == 20_000
    assert all(3 <= len(side.split()) <= 15 for pair in pairs.items() for side in pair)
    french_side = "\n".join(pairs.values())
    for wrong in ("le arbre", "la île", "le oiseau", "de avril", "de août", "de octobre", "beau arbre", "vieux arbre",
                  "nouveau arbre", "vieux oiseau", "le 1", "le un", "du un", "chevals", "bateaus", "blancs îles",
                  "un heure", "de le", "de les", "Mars", "Lundi"):  # fmt: skip
        assert not re.search(rf"\b{wrong}\b", french_side), wrong
    for right in ("l'arbre", "l'île", "vieil oiseau", "bel oiseau", "nouvel arbre", "d'avril", "le 1er ",
                  "vieilles voitures", "du premier au", "une heure", "est née", "est né "):  # fmt: skip
        assert right in french_side, right
    truths = {
        "the old green island": "la vieille île verte",
        "the queen's blue tree": "l'arbre bleu de la reine",
        "four hundred and one black cows": "quatre cent une vaches noires",
        "our uncle's seventy-first letter": "la soixante et onzième lettre de notre oncle",
        "the twelfth of January, nineteen eighty": "le douze janvier mille neuf cent quatre-vingt",
        "from the first to the twenty-second of April": "du premier au vingt-deux avril",
        "It is ten to one in the afternoon.": "Il est une heure moins dix de l'après-midi.",
        "Paul is eighty years old.": "Paul a quatre-vingts ans.",
        "The town has two hundred thousand inhabitants.": "La ville compte deux cent mille habitants.",
        "The farmer did not buy the white bird.": "Le fermier n'a pas acheté l'oiseau blanc.",
    }
    assert {source: pairs[source] for source in truths} == truths


def test_symbols_copied_reversed_and_sorted() -> None:
    for name, answer in (
        ("copy-pairs", lambda word: word),
        ("reverse-pairs", lambda word: word[::-1]),
        ("sort-pairs", sorted),
    ):
        found = read(PairSettings(source=f"{name}:6"))
        parts = everything(found)
        assert [len(part) for part in parts.values()] == [20_000, 500, 1_000]
        words = {part: {source for source, _ in pairs} for part, pairs in parts.items()}
        assert not words["train"] & words["test"]
        assert not words["train"] & words["valid"]
        assert not words["valid"] & words["test"]
        for source, target in parts["test"]:
            assert target == " ".join(answer(source.split(" ")))
            assert 1 <= len(source.split(" ")) <= 6
        lengths = [len(source.split(" ")) for source, _ in parts["train"]]
        assert all(3000 < lengths.count(length) < 3700 for length in range(1, 7))
    turned = everything(read(PairSettings(source="sort-pairs:6", reverse=True)))
    assert turned["test"] == [(target, source) for source, target in parts["test"]]
    assert inputs("sort-pairs:6") == [source for source, _ in parts["test"]]
    assert max(len(source.split(" ")) for source in inputs("copy-pairs")) == 20
    refused("copy-pairs:1", "data.length", "between 2 and 1,000")
    refused("copy-pairs:x", "data.length", "not a length")


def test_the_sets_are_the_same_everywhere() -> None:
    """Frozen: results on these sets are compared across machines and versions."""
    assert read(PairSettings(source="reverse-pairs")).test.inputs[:2] == [
        "k x e a y",
        "z l y y f t v r n h i f b p h v b x",
    ]
    assert dates(2) == (
        "December 10th, 1950\tle 10 décembre 1950\n"
        "They found three beautiful yellow boxes on the twenty-eighth of February, seventeen seventy-five.\t"
        "Le vingt-huit février mille sept cent soixante-quinze, ils ont trouvé trois belles boîtes jaunes.\n"
    )


# ── the catalogue and the doctor ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not (MIRROR / "fra_eng").is_dir(), reason="needs the local copy of the data")
def test_fra_eng() -> None:
    found = read(PairSettings(source="fra-eng"), data_dir=str(MIRROR))
    parts = everything(found)
    assert sum(len(part) for part in parts.values()) == 167_130
    keys = {name: set(keys_of([source for source, _ in part])) for name, part in parts.items()}
    assert [len(keys[name]) for name in ("valid", "test")] == [2000, 2000]
    assert not keys["train"] & (keys["valid"] | keys["test"])
    assert not keys["valid"] & keys["test"]
    assert ("Hi.", "Salut\u202f!") in parts["train"] or ("Hi.", "Salut !") in parts["train"]
    assert not [note for note in found.notes if "NFC" in note or "blanks" in note]


def test_catalogue_entries() -> None:
    for name in ("fra-eng", "dates", "copy-pairs", "reverse-pairs", "sort-pairs"):
        assert catalogue.ENTRIES[name].task == "translate"
    made = read(PairSettings(source="dates"))
    assert [len(made.part(name)) for name in ("train", "valid", "test")] == [16_000, 2000, 2000]
    with pytest.raises(SeriatimError, match="its pairs are made for the task translate"):
        catalogue.get("copy-pairs")


def test_doctor_of_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "\n".join([*many(40), "same thing\tsame thing", "x\t"]) + "\n")
    report = check_pairs(str(path))
    assert report.usable
    assert (report.pairs, report.empty, report.distinct_sources) == (len(many(40)) + 1, 1, 41)
    assert (report.most_targets, report.identical, report.duplicates) == (3, 1, 0)
    assert report.sides["source"].longest == 3
    assert report.split == {"train": report.pairs - sum(list(report.split.values())[1:])} | {
        name: report.split[name] for name in ("valid", "test")
    }
    bad = write(tmp_path / "b.tsv", "a\tb\nc\nd\te\nf\n" + "\n".join(many(40)) + "\nvery short\t" + "long " * 60)
    report = check_pairs(str(bad))
    assert [(one.code, one.count) for one in report.problems] == [("data.pair", 2)]
    assert report.problems[0].examples[0].startswith("b.tsv, line 2: no target")
    assert report.far == 1
    assert any("much longer than the other: 1 pair" in remark for remark in report.remarks)


def test_data_check_finds_out_that_these_are_pairs(tmp_path: Path) -> None:
    made = forms(tmp_path)
    unknown = {name for name, (source, _) in made.items() if not holds_pairs(source)}
    assert unknown == {"headless.csv", "two.jsonl", "z.zip", "member"}
    assert not holds_pairs(str(write(tmp_path / "book.txt", "It was\ta dark\nand stormy night\n")))
    runner = CliRunner()
    shown = runner.invoke(app, ["check", made["aligned"][0]])
    assert shown.exit_code == 0
    assert "distinct sources" in shown.stdout
    asked = runner.invoke(app, ["check", made["two.jsonl"][0], "--column", "q", "--target", "r", "--json"])
    assert json.loads(asked.stdout)["pairs"] == 5
    broken = write(tmp_path / "broken.tsv", "a\tb\n" * 200 + "c\n")
    assert runner.invoke(app, ["check", str(broken), "--quiet"]).exit_code == 2
