"""Readers: a damaged or hostile file of any format gives rows or an error of ours, within bounds of memory and time.

Each case takes valid files of a format, changes their structure or their bytes, and reads them by the schema of a task.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import mido
import numpy as np
import openpyxl
import polib
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
from hypothesis import strategies as st
from PIL import Image

from data_schemas import DOCUMENTS, LABELED, LINES, PAIRS, SCORED, STREAM
from fuzzing import fuzz
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats.midi import sample_roll
from seriatim.data.images import IMAGE
from seriatim.data.images.decode import read_header, read_image
from seriatim.data.kinds import LABEL, TEXT, TOKENS
from seriatim.data.music import ROLL
from seriatim.data.reader import read_dataset
from seriatim.data.schema import Field, Schema
from seriatim.data.series.schema import SCHEMA as SERIES
from seriatim.data.series.table import make_series
from seriatim.data.settings import ImageSettings
from seriatim.data.source import open_source
from seriatim.data.vectors import VectorWriter, open_vectors

CAPTIONS = Schema((Field("image", (IMAGE,)), Field("caption", (TEXT,), ("captions",), target=True)))
MUSIC = Schema((Field("roll", (ROLL,)),))
TAGS = Schema((Field("tokens", (TOKENS,), ("form",)), Field("tags", (TOKENS,), ("upos",), target=True)))
ANSWERS = Schema(
    (Field("question", (TEXT,)), Field("context", (TEXT,)), Field("id", (LABEL,), required=False)),
)
SCHEMAS = [DOCUMENTS, LABELED, LINES, PAIRS, SCORED, STREAM, CAPTIONS, TAGS, ANSWERS, SERIES]


@contextmanager
def written(files: dict[str, bytes]) -> Iterator[Path]:
    """Writes files to a folder and yields the only file, or the folder."""
    folder = Path(tempfile.mkdtemp(prefix="seriatim-fuzz-"))
    try:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        yield folder / next(iter(files)) if len(files) == 1 else folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read(path: Path, schema: Schema) -> None:
    """Reads a file as training does, up to the series of a table and the frames of a piece."""
    diagnostics = Diagnostics()
    dataset = read_dataset(open_source(str(path)), schema, diagnostics=diagnostics)
    diagnostics.raise_problems()
    assert all(len(column.values) == len(dataset) for columns in dataset.columns.values() for column in columns)
    str(list(dataset.locations[:3]))
    if schema is SERIES:
        make_series(dataset, False, diagnostics)
    if schema is MUSIC:
        for piece in dataset["roll"]:
            if not isinstance(piece, np.ndarray):
                sample_roll(piece)


# Changes of bytes

EXTREME_BYTES = [
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0" * 8,
    b"\xff" * 8,
    b"\xed\xa0\x80",
    b'"',
]


@st.composite
def damaged(draw: st.DrawFn, data: bytes, most: int = 4) -> bytes:
    """Draws a file with some bytes changed, removed, repeated or inserted, or cut off."""
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.sampled_from([1, 1, 2, 4, 8, 64]))
        how = draw(st.sampled_from(["set", "set", "remove", "insert", "repeat", "truncate"]))
        if how == "set":
            change = draw(st.sampled_from(EXTREME_BYTES) | st.binary(min_size=1, max_size=8))
            data = data[:start] + change + data[start + len(change) :]
        elif how == "remove":
            data = data[:start] + data[start + size :]
        elif how == "insert":
            data = data[:start] + draw(st.sampled_from(EXTREME_BYTES)) + data[start:]
        elif how == "repeat":
            data = data[:start] + data[start : start + size] * draw(st.sampled_from([2, 3, 50])) + data[start + size :]
        else:
            data = data[:start]
    return data


# Values of cells

NUMBERS = ["1", "-2.5", "", "nan", "inf", "1e400", "-1e308", "9" * 5_000, "0x10", "1_000", "١٢", "1,5", "1e-400", "--1"]
TEXTS = [
    "a",
    "good film",
    "",
    " ",
    "\ufeff",
    "\u2028",
    "é",
    "x" * 300,
    '"',
    "a,b",
    "\t",
    "\r",
    "[1, 2]",
    "[[1], [2, 3]]",
]
HOSTILE = [
    "~nobody/x.png",
    "../../x.png",
    "a.png",
    "/dev/zero",
    "\x1b[0m",
    "[" * 500,
    "{}",
    "true",
    "train",
    "𝄞",
    "-DOCSTART-",
]
DATES = [
    "2020-01-01",
    "2020-02-30",
    "1.2.2020",
    "20200131",
    "9999-12-31",
    "0001-01-01",
    "2020-Q1",
    "12:00",
    "1e30",
    "Jan 2020",
]
WORDS = st.sampled_from(NUMBERS + TEXTS + HOSTILE + DATES) | st.text(max_size=6)
SCALARS = st.one_of(
    WORDS,
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.sampled_from([10**30, -(10**400), 2**63, 2**64, 10**4_000, "\ud800", "\0", "a\0b"]),
)
NAMES = st.sampled_from(
    ["text", "label", "source", "target", "input", "date", "series", "value", "tokens", "tags", "split", "image", "id",
     "caption", "question", "context", "answers", "validation", "column 1", "", "0", "translation"]
) | st.text(max_size=4)  # fmt: skip
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=10
)


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, default=str).encode()


# Text: tables, lines, CoNLL, JSON

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252", "gb18030"]


@fuzz(
    rows=st.lists(st.lists(WORDS, max_size=5), max_size=6),
    header=st.lists(NAMES, max_size=5),
    delimiter=st.sampled_from([",", "\t", ";", "|", " "]),
    end=st.sampled_from(["\n", "\r\n", "\r", ""]),
    encoding=st.sampled_from(ENCODINGS),
    extension=st.sampled_from(["csv", "tsv", "txt", "conll", "iob", "jsonl", "json", "dat"]),
    schema=st.sampled_from(SCHEMAS),
    data=st.data(),
)
def test_tables_of_text(
    rows: list[list[str]],
    header: list[str],
    delimiter: str,
    end: str,
    encoding: str,
    extension: str,
    schema: Schema,
    data: st.DataObject,
) -> None:
    text = end.join(delimiter.join(cells) for cells in [header, *rows])
    contents = data.draw(damaged(text.encode(encoding, "replace"), most=2))
    with written({f"a.{extension}": contents}) as path:
        read(path, schema)


@fuzz(
    records=st.lists(st.dictionaries(NAMES, SCALARS | TREES, max_size=4) | TREES, max_size=4),
    form=st.sampled_from(["lines", "array", "data"]),
    extension=st.sampled_from(["jsonl", "json", "txt"]),
    schema=st.sampled_from(SCHEMAS),
    data=st.data(),
)
def test_json(records: list[Any], form: str, extension: str, schema: Schema, data: st.DataObject) -> None:
    lines = b"\n".join(to_json(record) for record in records)
    contents = {"lines": lines, "array": to_json(records), "data": to_json({"data": records})}[form]
    with written({f"a.{extension}": data.draw(damaged(contents, most=1))}) as path:
        read(path, schema)


SQUAD = {
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "a b",
                    "qas": [{"id": "1", "question": "q", "answers": [{"text": "a", "answer_start": 0}]}],
                }
            ],
        }
    ]
}
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
    "annotations": [{"image_id": 1, "caption": "a"}, {"image_id": 2, "caption": "b"}],
}
KARPATHY = {"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "a"}]}]}
FORMS = [(SQUAD, ANSWERS), (COCO, CAPTIONS), (KARPATHY, CAPTIONS), ({"a.jpg": ["x", "y"]}, CAPTIONS)]


@st.composite
def altered(draw: st.DrawFn, tree: Any) -> Any:
    """Draws a tree of JSON with some of its values replaced, removed or renamed."""
    if draw(st.integers(0, 9)) == 0:
        return draw(TREES)
    if isinstance(tree, dict):
        items = [(key, draw(altered(value))) for key, value in tree.items() if draw(st.integers(0, 14))]
        return {key if draw(st.integers(0, 14)) else draw(NAMES): value for key, value in items}
    return [draw(altered(value)) for value in tree] if isinstance(tree, list) else tree


@fuzz(form=st.sampled_from(FORMS), data=st.data())
def test_forms_of_json(form: tuple[Any, Schema], data: st.DataObject) -> None:
    tree, schema = form
    with written({"a.json": to_json(data.draw(altered(tree)))}) as path:
        read(path, schema)


@fuzz(lines=st.lists(WORDS, max_size=4), lists=st.lists(WORDS, max_size=3), weight=0.5)
def test_folders_of_captions(lines: list[str], lists: list[str]) -> None:
    captions = "a.jpg#0\ta dog\n" + "".join(f"{line}#1\tx\n" for line in lines)
    files = {
        "Flickr8k.token.txt": captions.encode("utf-8", "replace"),
        "Flickr_8k.trainImages.txt": "\n".join(["a.jpg", *lists]).encode("utf-8", "replace"),
        "images/a.jpg": b"no image",
    }
    with written(files) as path:
        read(path, CAPTIONS)


PO = b"""msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: fr\\nPlural-Forms: nplurals=2; plural=(n > 1);\\n"

#, fuzzy
msgctxt "menu"
msgid "cat"
msgstr "chat"

msgid "dog"
msgid_plural "dogs"
msgstr[0] "chien"
msgstr[1] "chiens"

#~ msgid "old"
#~ msgstr "vieux"
"""


@cache
def compiled_catalog() -> bytes:
    contents: bytes = polib.pofile(PO.decode()).to_binary()
    return contents


@fuzz(compiled=st.booleans(), data=st.data(), weight=0.5)
def test_gettext(compiled: bool, data: st.DataObject) -> None:
    contents = compiled_catalog() if compiled else PO
    with written({"a.mo" if compiled else "a.po": data.draw(damaged(contents))}) as path:
        read(path, PAIRS)


# Binary files


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


@cache
def array_files() -> dict[str, bytes]:
    """Valid files of arrays by name."""
    cells = np.empty((1, 2), object)
    cells[0, 0], cells[0, 1] = np.ones((3, 2)), np.zeros((2, 2))
    nest = np.empty((1, 1), object)
    nest[0, 0] = cells
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])
    mat = {"x": x, "y": y, "cells": cells, "nest": nest, "text": "a", "flag": np.array([True])}
    return {
        "x.npy": saved(lambda file: np.save(file, x)),
        "s.npy": saved(lambda file: np.save(file, np.array(["a", "é"]))),
        "b.npy": saved(lambda file: np.save(file, np.array([b"a", b"\xe9"]))),
        "both.npz": saved(lambda file: np.savez(file, x=x, y=y)),
        "packed.npz": saved(lambda file: np.savez_compressed(file, x=x, y=y)),
        "x.mat": saved(lambda file: scipy.io.savemat(file, mat)),
        "packed.mat": saved(lambda file: scipy.io.savemat(file, mat, do_compression=True)),
        "x.idx": b"\0\0\x08\x02" + struct.pack(">II", 2, 3) + bytes(6),
        "train-images-idx3-ubyte": b"\0\0\x08\x03" + struct.pack(">III", 2, 2, 2) + bytes(8),
    }


@fuzz(
    name=st.sampled_from(sorted(array_files())),
    schema=st.sampled_from([LABELED, SCORED, SERIES, MUSIC]),
    data=st.data(),
)
def test_arrays(name: str, schema: Schema, data: st.DataObject) -> None:
    with written({name: data.draw(damaged(array_files()[name]))}) as path:
        read(path, schema)


SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 10**12, 2**63, 10**30, -1]), max_size=4) | st.just([1] * 70)
DTYPES = ["<f8", ">f4", "|u1", "<i8", "|b1", "<U3", "|S2", "|V0", "<U0", "|O", "<c16", "<M8[s]", "|V8", "zz", "<f2"]


@fuzz(
    shape=SHAPES,
    dtype=st.sampled_from(DTYPES) | st.sampled_from([[("a", "<f8")], [("a", "<f8", (2,))], {}, 1, None]),
    fortran=st.booleans() | st.none(),
    content=st.binary(max_size=96),
    packed=st.booleans(),
    schema=st.sampled_from([LABELED, SCORED, SERIES, MUSIC]),
)
def test_headers_of_arrays(
    shape: list[int], dtype: Any, fortran: bool | None, content: bytes, packed: bool, schema: Schema
) -> None:
    header = repr({"descr": dtype, "fortran_order": fortran, "shape": tuple(shape)}).encode("latin-1") + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", array)
        archive.writestr("y.npy", array_files()["x.npy"])
    with written({"x.npz": file.getvalue()} if packed else {"x.npy": array}) as path:
        read(path, schema)


def mat_element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


@fuzz(
    depth=st.sampled_from([0, 1, 3, 300]),
    shape=st.lists(st.sampled_from([0, 1, 2, 2**31 - 1, -1]), max_size=5) | st.just([1] * 70),
    kind=st.sampled_from([1, 2, 6, 9, 14]),
    marks=st.sampled_from([0, 2, 8]),
    numbers=st.binary(max_size=24),
    packed=st.booleans(),
    data=st.data(),
)
def test_elements_of_mat_files(
    depth: int, shape: list[int], kind: int, marks: int, numbers: bytes, packed: bool, data: st.DataObject
) -> None:
    def matrix(code: int, axes: list[int], content: bytes) -> bytes:
        parts = [struct.pack("<II", code | marks << 8, 0), struct.pack(f"<{len(axes)}i", *axes), b"x"]
        kinds = (6, 5, 1)
        return mat_element(14, b"".join(map(mat_element, kinds, parts)) + content)

    element = matrix(kind, shape, mat_element(data.draw(st.sampled_from([2, 9, 12, 99])), numbers))
    for _ in range(depth):
        element = matrix(1, [1, 1], element)
    if packed:
        compressed = zlib.compress(element)
        element = struct.pack("<II", 15, len(compressed)) + compressed
    header = b"MATLAB 5.0".ljust(124) + b"\0\x01IM"
    with written({"x.mat": data.draw(damaged(header + element, most=1))}) as path:
        read(path, data.draw(st.sampled_from([LABELED, SERIES, MUSIC])))


@st.composite
def parquet_files(draw: st.DrawFn) -> bytes:
    """Draws a Parquet file of columns of several types, with nulls."""
    rows = draw(st.integers(0, 4))
    columns, names = [], draw(st.lists(NAMES, min_size=1, max_size=3))
    for _ in names:
        pool = draw(
            st.sampled_from(
                [
                    pa.array(["a", None, "é", "a"][:rows], pa.string()),
                    pa.array([b"a", b"\xff\xfe", None, b""][:rows], pa.binary()),
                    pa.array([1, None, 2**62, -1][:rows], pa.int64()),
                    pa.array([0.5, float("nan"), float("inf"), None][:rows], pa.float64()),
                    pa.array([["a"], None, [], ["b", None]][:rows], pa.list_(pa.string())),
                    pa.array([[1.0], None, [], [2.0, None]][:rows], pa.list_(pa.float64())),
                    pa.array([0, None, 2**62, -(2**62)][:rows], pa.timestamp("us")),
                    pa.array([{"en": "a"}, None, {"en": None}, {"en": "b"}][:rows]),
                    pa.array([0, 1, None, 2**31 - 1][:rows], pa.date32()),
                    pa.array(["x", "x", None, "y"][:rows]).dictionary_encode(),
                    pa.array([None] * rows, pa.null()),
                ]
            )
        )
        if pool.type == pa.string() and draw(st.booleans()):  # broken UTF-8
            broken = pa.array([b"\xff", b"a", b"\xed\xa0\x80", b""][:rows], pa.binary())
            pool = pa.Array.from_buffers(pa.string(), rows, broken.buffers())
        columns.append(pool)
    table = pa.Table.from_arrays(columns, names=names)
    compression = draw(st.sampled_from(["none", "snappy", "gzip"]))
    return saved(
        lambda file: pq.write_table(table, file, compression=compression, row_group_size=draw(st.sampled_from([1, 9])))
    )


@fuzz(data=st.data(), schema=st.sampled_from(SCHEMAS))
def test_parquet(data: st.DataObject, schema: Schema) -> None:
    contents = data.draw(parquet_files())
    with written({"a.parquet": data.draw(damaged(contents))}) as path:
        read(path, schema)


@cache
def vector_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "v.parquet")
        with VectorWriter(path, 2, {"model": "m", "pooling": "mean"}) as writer:
            writer.write(["a", "b"], np.ones((2, 2), np.float32))
        return path.read_bytes()


@fuzz(data=st.data(), weight=0.5)
def test_vectors(data: st.DataObject) -> None:
    with written({"v.parquet": data.draw(damaged(vector_file()))}) as path:
        vectors = open_vectors(path)
        for texts, block in vectors or []:
            assert len(texts) == len(block)


@cache
def workbook() -> bytes:
    book = openpyxl.Workbook()
    book.active.append(["text", "label", "when"])
    book.active.append(["good", 1, 2.5])
    book.create_sheet("other")
    return saved(book.save)


@fuzz(data=st.data(), inside=st.booleans(), schema=st.sampled_from([LABELED, PAIRS, SERIES]), weight=0.5)
def test_excel(data: st.DataObject, inside: bool, schema: Schema) -> None:
    contents = workbook()
    if inside:  # the XML within the archive is damaged, the archive is not
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(contents)) as old, zipfile.ZipFile(file, "w") as new:
            chosen = data.draw(st.sampled_from(old.namelist()))
            for name in old.namelist():
                new.writestr(name, data.draw(damaged(old.read(name))) if name == chosen else old.read(name))
        contents = file.getvalue()
    else:
        contents = data.draw(damaged(contents))
    with written({"a.xlsx": contents}) as path:
        read(path, schema)


@cache
def midi_file() -> bytes:
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=500_000)])
    for pitch in (60, 64, 60):
        track += [mido.Message("note_on", note=pitch, time=10), mido.Message("note_off", note=pitch, time=480)]
    return saved(lambda file: mido.MidiFile(type=1, tracks=[track, track]).save(file=file))


@fuzz(data=st.data(), weight=0.5)
def test_midi(data: st.DataObject) -> None:
    with written({"a.mid": data.draw(damaged(midi_file()))}) as path:
        read(path, MUSIC)


@cache
def image_files() -> dict[str, bytes]:
    pixels = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    formats = ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM")
    return {format: saved(lambda file, format=format: pixels.save(file, format)) for format in formats}  # type: ignore[misc]


@fuzz(format=st.sampled_from(sorted(image_files())), as_bytes=st.booleans(), data=st.data())
def test_images(format: str, as_bytes: bool, data: st.DataObject) -> None:
    contents = data.draw(damaged(image_files()[format]))
    with written({"a.png": contents}) as path:
        value = contents if as_bytes else path
        read_header(value, ImageSettings(max_megapixels=1))
        assert read_image(value, ImageSettings(max_megapixels=1)).dtype == np.uint8


# Archives and compressed files

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@fuzz(suffix=st.sampled_from(sorted(COMPRESSORS)), schema=st.sampled_from(SCHEMAS), data=st.data(), weight=0.5)
def test_compressed_files(suffix: str, schema: Schema, data: st.DataObject) -> None:
    contents = COMPRESSORS[suffix](b"text,label\ngood film,a\nbad film,b\n" * 3)
    with written({f"a.csv.{suffix}": data.draw(damaged(contents))}) as path:
        read(path, schema)


MEMBERS = ["a.csv", "train/a.txt", "test/b.txt", "../up.txt", "/etc/x.csv", "a/../b.csv", "x.csv.gz", "a\\b.txt", "é",
           "", "neg/1.txt", "pos/2.txt", "a.npy", ".hidden", "x" * 300, "con", "a.json"]  # fmt: skip


@fuzz(
    members=st.lists(st.tuples(st.sampled_from(MEMBERS), WORDS), max_size=4),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]),
    schema=st.sampled_from(SCHEMAS),
    data=st.data(),
)
def test_archives(members: list[tuple[str, str]], method: int, schema: Schema, data: st.DataObject) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, text in members:
            if name not in archive.namelist():
                archive.writestr(name or "empty", f"text,label\n{text},a\n".encode("utf-8", "replace"))
    with written({"a.zip": data.draw(damaged(file.getvalue(), most=3))}) as path:
        read(path, schema)


@fuzz(
    name=st.text(max_size=20)
    | st.sampled_from(["~nobody/x", "a\0b", "," * 50, "x" * 5_000, "/dev/null", "a.zip/b", "//"])
)
def test_names_of_sources(name: str) -> None:
    try:
        source = open_source(name)
    except SeriatimError:
        return
    assert source.name


# Series


@fuzz(
    rows=st.lists(
        st.tuples(
            st.sampled_from(DATES + NUMBERS) | st.dates().map(str) | st.datetimes().map(str) | st.floats().map(str),
            st.sampled_from(["a", "b", "", "1"]),
            st.sampled_from(NUMBERS) | st.floats().map(str),
        ),
        min_size=1,
        max_size=8,
    ),
    header=st.sampled_from(["date,series,value", "time,id,y", "a,b,c", "value,future,x"]),
    weight=2.0,
)
def test_series(rows: list[tuple[str, str, str]], header: str) -> None:
    with written({"a.csv": "\n".join([header, *(",".join(row) for row in rows)]).encode()}) as path:
        read(path, SERIES)


@fuzz(
    times=st.lists(
        st.one_of(st.floats(), st.integers(), st.sampled_from([10**400, -(10**30), 1e308, -1e308])), max_size=6
    ),
    values=st.lists(SCALARS, min_size=6, max_size=6),
)
def test_series_in_memory(times: list[Any], values: list[Any]) -> None:
    columns = {"time": times, "value": values[: len(times)]}
    diagnostics = Diagnostics()
    dataset = read_dataset(open_source(columns), SERIES, diagnostics=diagnostics)
    diagnostics.raise_problems()
    make_series(dataset, False, diagnostics)
