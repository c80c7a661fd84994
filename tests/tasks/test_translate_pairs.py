"""Pairs of texts: every accepted form gives the same pairs, every bad one a clear error, no source is in two splits."""

from __future__ import annotations

import gzip
import io
import json
import random
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seriatim.core import registry
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.source import open_source
from seriatim.tasks.base import DataSettings, Splits, TaskConfig
from seriatim.tasks.codecs import normalize_text, text_key
from seriatim.tasks.reading import Layout, prepare, read_rows, read_split
from seriatim.tasks.translate.pairs import TranslationMemory
from seriatim.tasks.translate.processor import Pairs, source_groups
from seriatim.tasks.translate.spec import TranslateSettings, find_sides
from seriatim.tasks.translate.task import TranslateTask
from seriatim.training.objective import TaskObjective

PAIRS = [("Go.", "Va !"), ("I see.", "Je vois."), ("I see.", "Aha."), ("Wait!", "Attendez !"), ("Ça va?", "Ça va ?")]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def make_config(source: Any = "x", task: dict[str, Any] | None = None, **data: Any) -> TaskConfig:
    settings = TranslateSettings(**(task or {}))
    model = registry.models.load("gru").Settings(name="gru", width=8)
    return TaskConfig(task=settings, data=DataSettings(source=str(source), **data), model=model)


def read(source: Any, notes: list[str] | None = None, task: Any = None, **data: Any) -> list[tuple[str, str]]:
    """Returns the pairs of a source as training reads them."""
    diagnostics = Diagnostics(None if notes is None else notes.append)
    config = make_config(source, task, **data)
    rows = read_rows(TranslateTask, config, open_source(str(source)), diagnostics)
    return list(zip(rows["source"], rows["target"], strict=True))


# Forms


def write_forms(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Returns the same pairs in every form: name → source and data settings."""
    rows = [{"source": a, "target": b} for a, b in PAIRS]
    hub = [{"id": "1", "translation": {"en": a, "fr": b}} for a, b in PAIRS]
    tables = {
        "a.parquet": pa.table({"en": [a for a, _ in PAIRS], "fr": [b for _, b in PAIRS]}),
        "n.parquet": pa.table({"translation": [row["translation"] for row in hub]}),
    }
    for name, table in tables.items():
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
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
        "named.tsv": {"columns": {"source": "left", "target": "right"}},
        "far.tsv": {"columns": {"source": "3", "target": "1"}},
        "utf16.tsv": {"encoding": "utf-16"},
    }
    names = [name for name in (*files, *tables, "z.zip") if name not in ("a.en", "a.fr")]
    forms = {name: (str(folder / name), options.get(name, {})) for name in names}
    return forms | {
        "member": (str(folder / "z.zip/in/fra.txt"), {}),
        "aligned": (f"{folder / 'a.en'},{folder / 'a.fr'}", {}),
    }


def test_every_form_gives_the_same_pairs(tmp_path: Path) -> None:
    for name, (source, options) in write_forms(tmp_path).items():
        assert read(source, **options) == PAIRS, name
        assert read(source, task={"reverse": True}, **options) == [(b, a) for a, b in PAIRS], name


def test_inputs_of_every_form(tmp_path: Path) -> None:
    """Prediction reads the sources alone, by the columns of the training data if the file has them."""
    forms = write_forms(tmp_path)
    write(tmp_path / "lines.txt", "one\n\n  two x \n\nlast")
    write(tmp_path / "one.jsonl", '{"text": "x"}\n{"text": ""}\n')
    for reverse in (False, True):
        task = TranslateTask(make_config(task={"reverse": reverse}), make_processor(), Layout())
        for name, (source, options) in forms.items():
            if "encoding" not in options:
                schema = task.schema.inputs()
                rows = task.read(source, Diagnostics(), schema, columns=trained_columns(options, reverse))
                assert list(rows["source"]) == [pair[reverse] for pair in PAIRS], (name, reverse)
        assert list(task.read(str(tmp_path / "lines.txt"), Diagnostics(), schema)["source"]) == [
            "one",
            "",
            "two x",
            "",
            "last",
        ]
        assert list(task.read(str(tmp_path / "one.jsonl"), Diagnostics(), schema)["source"]) == ["x", ""]


def trained_columns(options: dict[str, Any], reverse: bool) -> dict[str, str] | None:
    columns = options.get("columns")
    return None if columns is None else {"source": columns["target" if reverse else "source"]}


def make_processor() -> Any:
    config, rows = make_config(), [{"source": "a b", "target": "c d"}] * 9
    dataset = read_rows(TranslateTask, config, open_source(rows), Diagnostics())
    return TranslateTask.processor_type.fit(dataset, config, {}, Diagnostics())


def test_locations_and_notes(tmp_path: Path) -> None:
    forms = write_forms(tmp_path)
    rows = read_rows(TranslateTask, make_config(), open_source(forms["head.tsv"][0]), Diagnostics())
    assert str(rows.locations[0]) == "head.tsv, line 2"
    for name, expected in (
        ("wide.tsv", "of 3 columns 1 are not read"),
        ("head.tsv", "head.tsv: en → fr"),
        ("sides.tsv", "sides.tsv: source → target"),
        ("headless.csv", "the first line is taken for a row"),
    ):
        notes: list[str] = []
        read(forms[name][0], notes)
        assert any(expected in note for note in notes), (name, notes)


@pytest.mark.parametrize(
    "names", [("source", "target"), ("en", "fr"), ("English", "French"), ("en_US", "pt-BR"), ("x", "src", "tgt")]
)
def test_headers(names: tuple[str, ...]) -> None:
    assert find_sides(names) is not None


@pytest.mark.parametrize(
    "cells", [("No", "Non"), ("no", "no"), ("Go.", "Va !"), ("source", "la source"), ("It", "Es"), ("en",)]
)
def test_sentences_are_no_headers(cells: tuple[str, ...]) -> None:
    assert find_sides(cells) is None


# Normalization


def test_normalization_is_noted_and_keeps_typographic_spaces(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "été")
    path = write(tmp_path / "a.tsv", f" a  b \t{decomposed}\u00a0!\nplain\tva\u2009?\n")
    notes: list[str] = []
    assert read(path, notes) == [("a b", "été\u00a0!"), ("plain", "va\u2009?")]
    assert any(note.startswith("1 text normalized to Unicode NFC") for note in notes)
    assert any(note.startswith("1 text: spaces at the ends") for note in notes)
    unchanged = [(" a  b ", f"{decomposed}\u00a0!"), ("plain", "va\u2009?")]
    assert read(path, task={"normalize": False}) == unchanged
    odd = "\U0001f600 \ue000 \u200b\u2028x"
    assert normalize_text(odd) == "\U0001f600 \ue000 \u200b x"
    generator = random.Random(3)
    for _ in range(500):
        text = "".join(generator.choice("aÀßİ e\u0301\u00a0\u202f\u3000 \t\n\u2028.!ﬁ") for _ in range(6))
        assert text_key(text) == " ".join(unicodedata.normalize("NFC", text.casefold()).split())
        assert normalize_text(normalize_text(text)) == normalize_text(text)


# Splits


def many(number: int = 200) -> list[str]:
    lines = [f"Sentence number {n}!\tPhrase {n}" for n in range(number)]
    lines += [f"sentence  NUMBER {n}!\tEncore {n}" for n in range(0, number, 3)]
    return lines + [f"Sentence number {n}!\tAutrement {n}" for n in range(0, number, 5)]


def split_data(source: Path | str, diagnostics: Diagnostics | None = None, **data: Any) -> Splits[Pairs]:
    config = make_config(source, {"tokenizer": {"kind": "word"}}, **data)
    return prepare(TranslateTask, config, diagnostics=diagnostics)[1]


def pairs_of(splits: Splits[Pairs]) -> dict[str, list[tuple[str, str]]]:
    rows = {name: splits[name].rows for name in splits}
    return {name: list(zip(part["source"], part["target"], strict=True)) for name, part in rows.items()}


def test_no_source_in_two_splits_whatever_the_order(tmp_path: Path) -> None:
    lines = many()
    first = pairs_of(split_data(write(tmp_path / "a.tsv", "\n".join(lines))))
    random.Random(1).shuffle(lines)
    second = pairs_of(split_data(write(tmp_path / "b.tsv", "\n".join(lines))))
    keys = {name: {text_key(source) for source, _ in pairs} for name, pairs in first.items()}
    assert {name: len(group) for name, group in keys.items()} == {"train": 160, "validation": 20, "test": 20}
    assert len(set.union(*keys.values())) == 200
    assert {name: sorted(pairs) for name, pairs in first.items()} == {n: sorted(p) for n, p in second.items()}
    # frozen: the same sources are held out on every machine and in every version
    assert sorted(keys["test"])[:3] == ["sentence number 1!", "sentence number 101!", "sentence number 107!"]


def test_fractions(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "\n".join(many()))
    splits = split_data(path, fractions=(0.5, 0.25, 0.25))
    sizes = [len({text_key(source) for source, _ in pairs}) for pairs in pairs_of(splits).values()]
    assert sizes == [100, 50, 50]
    with pytest.raises(SeriatimError, match="2 distinct values") as caught:
        split_data(write(tmp_path / "two.tsv", "a b\tb\nc d\td\n"))
    assert caught.value.code == "data.too-short"


def test_files_of_validation_and_test(tmp_path: Path) -> None:
    train = write(tmp_path / "pairs.tsv", "\n".join(many()))
    validation = write(tmp_path / "more.tsv", "New one\tNouveau\nSENTENCE number 3!\tPhrase 3\n")
    write(tmp_path / "t.en", "Test it\n\n"), write(tmp_path / "t.fr", "Essai\nVide\n")
    diagnostics, test = Diagnostics(), f"{tmp_path / 't.en'},{tmp_path / 't.fr'}"
    splits = split_data(train, diagnostics, validation=str(validation), test=test)
    assert [len(splits[name].rows) for name in splits] == [len(many()), 2, 1]
    assert any("left out 1 pair with an empty side (the first: t.en, line 2)" in n for n in diagnostics.notes)
    only = split_data(train, test=str(validation))
    assert len({text_key(source) for source in only["validation"].rows["source"]}) == 20


def test_named_columns_are_reversed_in_every_split(tmp_path: Path) -> None:
    """The columns that the settings name are read in the other order, and so are those of further data."""
    header = "en\tfr\n"
    train = write(tmp_path / "pairs.tsv", header + "\n".join(many()))
    validation = write(tmp_path / "more.tsv", header + "New one\tNouveau\n")
    columns = {"source": "en", "target": "fr"}
    config = make_config(
        train, {"tokenizer": {"kind": "word"}, "reverse": True}, columns=columns, validation=str(validation)
    )
    task, splits = prepare(TranslateTask, config)
    assert pairs_of(splits)["validation"] == [("Nouveau", "New one")]
    assert all(target.lower().startswith("sentence") for _, target in pairs_of(splits)["train"])
    assert dict(task.layout.columns) == {"source": "fr", "target": "en"}
    assert list(task.read(str(validation), Diagnostics(), task.schema.inputs())["source"]) == ["Nouveau"]
    assert pairs_of(Splits({"test": read_split(task, str(validation))})) == {"test": [("Nouveau", "New one")]}


def test_empty_sides_and_fingerprint(tmp_path: Path) -> None:
    lines = [*many(40), "no target\t ", "\tno source", "", many(40)[0]]
    path = write(tmp_path / "a.tsv", "\n".join(lines) + "\n")
    diagnostics = Diagnostics()
    splits = split_data(path, diagnostics)
    note = f"left out 3 pairs with an empty side (the first: a.tsv, line {len(many(40)) + 1})"
    assert note in diagnostics.notes
    assert sum(len(splits[name].rows) for name in splits) == len(many(40)) + 1
    assert split_data(path).fingerprint == splits.fingerprint


def test_synthetic_pairs() -> None:
    splits = split_data("reverse-pairs:6")
    assert {name: len(splits[name].rows) for name in splits} == {"train": 20_000, "validation": 500, "test": 1_000}
    for source, target in pairs_of(splits)["test"][:50]:
        assert target == " ".join(source.split(" ")[::-1])
    reverse = make_config("sort-pairs:6", {"reverse": True})
    rows = read_rows(TranslateTask, reverse, open_source("sort-pairs:6").splits["test"], Diagnostics())
    assert rows["source"][0].split() == sorted(rows["target"][0].split())


# Errors


@pytest.mark.parametrize(
    ("name", "data", "code", "words", "options"),
    [
        ("a.tsv", "a\tb\nc\n", "data.csv", "a.tsv, line 2: no target: it has 1 column", {}),
        ("a.csv", "source,target\na,b\nc\n", "data.csv", "a.csv, line 3", {}),
        ("a.csv", 'a,"b\n', "data.csv", "a.csv, line 1", {}),
        ("a.tsv", "x\ty\na\tb\n", "data.column", 'no column "en"', {"columns": {"source": "en"}}),
        ("a.tsv", "a\tb\n", "data.column", "column 1", {"columns": {"source": "1", "target": "1"}}),
        ("a.tsv", b"a\tb\n\xe9\tc\n", "data.encoding", "a.tsv, line 2", {}),
        ("a.jsonl", '{"a": "x", "b": "y", "c": "z"}\n', "data.column", "which columns are the source", {}),
        ("a.jsonl", '{"a": "x", "b": "y"}\n{"a": "x"}\n', "data.column", 'line 2: has no column "b"', {}),
        ("a.jsonl", '{"a": "x", "b": "y"}\n{"a": 1, "b": "y"}\n{"a": "z", "b": "y"}\n', "data.cell", "line 2", {}),
        ("a.jsonl", "{\n", "data.jsonl", "a.jsonl, line 1", {}),
        ("a.tsv", "a\t\nb\t\n\tc\n", "data.empty", "no pair with text on both sides", {}),
    ],
)
def test_bad_files(
    tmp_path: Path, name: str, data: str | bytes, code: str, words: str, options: dict[str, Any]
) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(SeriatimError) as caught:
        read(path, **options)
    assert (caught.value.code, words in caught.value.cause) == (code, True), caught.value


def test_aligned_files_must_agree(tmp_path: Path) -> None:
    write(tmp_path / "a.en", "one\ntwo\nthree\n")
    write(tmp_path / "a.fr", "un\ndeux\n")
    with pytest.raises(SeriatimError, match=r"a\.en has 3 lines and a\.fr has 2"):
        read(f"{tmp_path / 'a.en'},{tmp_path / 'a.fr'}")
    with pytest.raises(SeriatimError, match=r"a\.de"):
        read(f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}")
    write(tmp_path / "b,c.en", "one\n"), write(tmp_path / "b,c.fr", "un\n")
    assert read(f"{tmp_path / 'b,c.en'},{tmp_path / 'b,c.fr'}") == [("one", "un")]


@pytest.mark.parametrize(
    ("values", "kind", "size"),
    [
        ({"vocab_size": 8000}, "bpe", 8000),
        ({"lowercase": True}, "bpe", 4000),
        ({"kind": "char", "vocab_size": 8000}, "char", 8000),
    ],
)
def test_a_vocabulary_is_of_subwords_unless_named(values: dict[str, Any], kind: str, size: int) -> None:
    tokenizer = TranslateSettings(tokenizer=values).tokenizer  # type: ignore[arg-type]
    assert tokenizer is not None
    assert (tokenizer.kind, tokenizer.vocab_size) == (kind, size)


def test_long_pairs_are_not_trained_on(tmp_path: Path) -> None:
    lines = [f"{'a ' * n}b{n}\tc d{n}" for n in range(1, 41)]
    path = write(tmp_path / "a.tsv", "\n".join(lines))
    notes: list[str] = []
    config = make_config(path, {"tokenizer": {"kind": "word"}, "context_length": 20})
    task, splits = prepare(TranslateTask, config, diagnostics=Diagnostics(notes.append))
    pairs = splits.train.items
    sampler = task.sampler(pairs, Diagnostics())
    trained = np.concatenate([sampler.items(step, 8) for step in range(sampler.steps_per_epoch(8))])
    assert sorted(trained) == np.flatnonzero(pairs.pair_lengths <= 20).tolist()
    assert any("pairs have more than 20 tokens (up to" in note for note in notes)
    with pytest.raises(SeriatimError, match="all pairs have more than 2 tokens"):
        TaskObjective.of(
            *prepare(TranslateTask, make_config(path, {"tokenizer": {"kind": "word"}, "context_length": 2}))
        )


def test_several_targets_are_references_of_one_source(tmp_path: Path) -> None:
    train = split_data(write(tmp_path / "a.tsv", "\n".join(many(40)))).train.rows
    groups = source_groups(train)
    sources = [train["source"][group[0]] for group in groups]
    assert len(sources) == len(set(sources)) < len(train)
    references = [{train["target"][row] for row in group} for group in groups]
    assert max(map(len, references)) == 2
    assert sum(map(len, references)) == len(train)


def test_a_translation_memory_finds_the_most_similar_source() -> None:
    memory = TranslationMemory(["the cat sleeps", "the dog sleeps", "the cat sleeps", "no one"], ["A", "B", "C", "D"])
    targets = {"The dog!": "B", "a cat": "A", "xyz": "xyz", "": ""}
    assert {text: memory.nearest_target(text) for text in targets} == targets
    assert TranslationMemory(["我睡觉", "他走路"], ["I sleep", "he walks"]).nearest_target("她走路") == "he walks"
