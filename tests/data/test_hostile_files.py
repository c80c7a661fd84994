"""Hostile files: each attack that was possible or is likely, as an explicit case, with bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_schemas import LABELED, LINES, PAIRS, read, refuse, write
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats.coco import read_coco
from seriatim.data.formats.midi import parse_midi
from seriatim.data.series.schema import SCHEMA as SERIES
from seriatim.data.source import open_source
from seriatim.data.stream import parse_json

CHILD = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from data_schemas import LABELED, LINES, read
import pyarrow.parquet, scipy.io, seriatim.data.formats.arrays, openpyxl
from seriatim.core.errors import SeriatimError
present = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (present + {room}, resource.RLIM_INFINITY))
try:
    read({path!r}, {schema})
except SeriatimError as error:
    print(error)
"""


def read_in_child(path: Path, room: int = 400 << 20, schema: str = "LABELED") -> str:
    """Returns the error of reading a file in a process that may use `room` bytes more than its start."""
    code = CHILD.format(tests=str(Path(__file__).parents[1]), room=room, path=str(path), schema=schema)
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def zeros(size: int) -> bytes:
    """Returns zeros of any size, compressed by zlib block by block."""
    compressor, block = zlib.compressobj(9), bytes(1 << 20)
    return b"".join(compressor.compress(block) for _ in range(size >> 20)) + compressor.flush()


def gzip_bomb(path: Path) -> Path:
    with gzip.open(path, "wb") as file:
        for _ in range(1 << 10):
            file.write(b"a" * (1 << 20))
    return path


def zip_bomb(path: Path, member: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(member, "w") as file:
        for _ in range(1 << 10):
            file.write(bytes(1 << 20))
    return path


def mat_bomb(path: Path) -> Path:
    compressed = zeros(1 << 30)
    element = struct.pack("<II", 15, len(compressed)) + compressed
    return write(path, b"MATLAB 5.0".ljust(124) + b"\0\x01IM" + element)


def parquet_rows(path: Path) -> Path:
    """A file of some kilobytes with 10⁹ rows."""
    schema = pa.schema([("text", pa.int8()), ("label", pa.int8())])
    block = pa.table({"text": pa.array(np.zeros(1 << 24, np.int8)), "label": pa.array(np.zeros(1 << 24, np.int8))})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(block, row_group_size=1 << 24)
    return path


def parquet_texts(path: Path) -> Path:
    """A text of a megabyte that stands once in the file, as the cell of each of 5,000 rows."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5_000, np.int32)), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"text": text, "label": pa.array(["a"] * 5_000)}), path, compression="gzip")
    return path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by RLIMIT_AS")
@pytest.mark.parametrize(
    ("make", "schema", "variable"),
    [
        (lambda folder: gzip_bomb(folder / "a.csv.gz"), "LABELED", "COMPRESSION_RATIO"),
        (lambda folder: zip_bomb(folder / "a.zip", "a.csv"), "LINES", "COMPRESSION_RATIO"),
        (lambda folder: zip_bomb(folder / "a.npz", "x.npy"), "LABELED", "COMPRESSION_RATIO"),
        (lambda folder: zip_bomb(folder / "a.xlsx", "xl/sharedStrings.xml"), "LABELED", "COMPRESSION_RATIO"),
        (lambda folder: mat_bomb(folder / "a.mat"), "LABELED", "COMPRESSION_RATIO"),
        (lambda folder: parquet_rows(folder / "a.parquet"), "LABELED", "CELLS"),
        (lambda folder: parquet_texts(folder / "a.parquet"), "LABELED", "COMPRESSION_RATIO"),
    ],
    ids=["gzip", "zip", "npz", "xlsx", "mat", "parquet rows", "parquet texts"],
)
def test_bombs_are_refused_within_400_megabytes(
    make: Callable[[Path], Path], schema: str, variable: str, tmp_path: Path
) -> None:
    path = make(tmp_path)
    assert path.stat().st_size < 3 << 20
    assert f"SERIATIM_MAX_{variable}" in read_in_child(path, schema=schema)


def npy(shape: tuple[int, ...], dtype: str = "<f8", content: bytes = b"") -> bytes:
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (npy((10**12,)), "data.broken"),
        (npy((10**12, 0)), "data.empty"),
        (npy((0, 10**12, 10**12)), "data.broken"),
        (npy((2**63,), "|V0"), "data.npy"),
        (npy((1,) * 70, content=bytes(8)), "data.broken"),
        (npy((), content=bytes(8)), "data.arrays"),
        (npy((2,), "<U1", b"\xff" * 8), "data.arrays"),
        (npy((2,), "|S1", b"\xff\xfe"), "data.arrays"),
    ],
    ids=["elements", "rows of nothing", "nothing of rows", "no size", "axes", "scalar", "characters", "bytes"],
)
def test_headers_of_arrays_that_claim_too_much(data: bytes, code: str, tmp_path: Path) -> None:
    refuse(write(tmp_path / "x.npy", data), LABELED, code, "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", data)
    refuse(tmp_path / "x.npz", LABELED, code, "x.npz/x")


def test_cells_within_cells_of_mat_files(tmp_path: Path) -> None:
    def element(kind: int, content: bytes) -> bytes:
        return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)

    def cell(content: bytes) -> bytes:
        parts = element(6, struct.pack("<II", 1, 0)) + element(5, struct.pack("<ii", 1, 1)) + element(1, b"x")
        return element(14, parts + content)

    nested = element(14, b"")
    for _ in range(2_000):
        nested = cell(nested)
    path = write(tmp_path / "a.mat", b"MATLAB 5.0".ljust(124) + b"\0\x01IM" + nested)
    refuse(path, LABELED, "data.mat", "a cell array that holds a cell array")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 200 + "]" * 200, "SERIATIM_MAX_JSON_DEPTH"),
        ("[" * 100_000, "SERIATIM_MAX_JSON_DEPTH"),
        ('{"text": ' + "9" * 5_000 + "}", "SERIATIM_MAX_DIGITS"),
        ("{", "Expecting"),
    ],
    ids=["deep", "deeper than the stack", "digits", "invalid"],
)
def test_json_is_limited(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)
    refuse(
        write(tmp_path / "a.jsonl", f'{{"text": "a", "label": "b"}}\n{text}\n'),
        LABELED,
        "data.jsonl",
        "a.jsonl, line 2",
    )
    refuse(write(tmp_path / "a.json", f'[{{"text": {text}}}]'), LABELED, "data.json", "a.json")


def test_json_within_the_limits() -> None:
    deep = "[" * 100 + "]" * 100
    assert json.dumps(parse_json(deep)) == deep
    assert parse_json(json.dumps("[" * 500)) == "[" * 500  # brackets in a text are not nested
    assert parse_json("1" * 4_300) == int("1" * 4_300)


def test_tables_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "good,a\nbad,b\n" * 3)
    assert len(read(path, LABELED)) == 6
    monkeypatch.setenv("SERIATIM_MAX_CELLS", "11")
    refuse(path, LABELED, "limit.exceeded", "a.csv, line 7: 12 cells", "SERIATIM_MAX_CELLS")
    monkeypatch.setenv("SERIATIM_MAX_COLUMNS", "1")
    refuse(path, LABELED, "limit.exceeded", "a.csv, line 1: 2 columns", "SERIATIM_MAX_COLUMNS")
    tabs = write(tmp_path / "b.tsv", "text\tlabel\n" + "\t" * 50 + "\n")
    monkeypatch.setenv("SERIATIM_MAX_COLUMNS", "2")
    refuse(tabs, LABELED, "limit.exceeded", "b.tsv, line 2: 51 columns")
    monkeypatch.setenv("SERIATIM_MAX_LINE_CHARACTERS", "20")
    quoted = write(tmp_path / "c.csv", 'text,label\n"' + "x\n" * 40)
    refuse(quoted, LABELED, "limit.exceeded", "c.csv, line 2", "SERIATIM_MAX_LINE_CHARACTERS")


def test_parquet_with_broken_texts(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    pq.write_table(pa.table({"text": broken, "label": ["a"]}), tmp_path / "a.parquet")
    refuse(tmp_path / "a.parquet", LABELED, "data.parquet", "a.parquet", "utf-8")


def test_parquet_dictionaries_give_the_same_cells(tmp_path: Path) -> None:
    texts = ["a", None, "b", "a", "é"] * 300
    plain = pa.table({"source": pa.array(texts), "target": pa.array([text or "x" for text in texts])})
    for number, table in enumerate((plain, plain.set_column(0, "source", plain["source"].dictionary_encode()))):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=700)
        assert read(tmp_path / f"{number}.parquet", PAIRS)["source"].tolist() == [text or "" for text in texts]


def test_rows_far_below_in_a_workbook(tmp_path: Path) -> None:
    book, file = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["text", "label"])
    book.active.append(["good", "a"])
    book.save(file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as new:
        for name in old.namelist():
            contents = old.read(name)
            if name.endswith("sheet1.xml"):
                far = b'<row r="1000000000000"><c r="A1000000000000"><v>1</v></c></row></sheetData>'
                contents = contents.replace(b"</sheetData>", far)
            new.writestr(name, contents)
    assert len(read(tmp_path / "a.xlsx", LABELED)) == 1


def test_annotations_of_wrong_types() -> None:
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": [], "file_name": "b.jpg"}, 3]
    annotations = [
        {"image_id": 1, "caption": "a"},
        {"image_id": [1], "caption": "b"},
        {"image_id": {}, "caption": 4},
        None,
    ]
    diagnostics = Diagnostics()
    records = list(read_coco("a.json", images, annotations, diagnostics))
    assert [record.values for record in records] == [{"image": "a.jpg", "caption": "a"}]
    assert len(diagnostics.problems) == 5


def test_midi_events_are_limited_and_released_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    strokes = 20_000
    events = b"\0\x90\x3c\x40" + b"\0\x3c\x40" * (strokes - 1) + b"\1\x3c\0" * strokes + b"\0\xff\x2f\0"
    data = b"MThd" + struct.pack(">IHHH", 6, 0, 1, 480) + b"MTrk" + struct.pack(">I", len(events)) + events
    assert len(parse_midi("a.mid", data).notes) == strokes
    monkeypatch.setenv("SERIATIM_MAX_MIDI_EVENTS", "1000")
    with pytest.raises(SeriatimError, match=r"a\.mid: 40,\d+ events"):
        parse_midi("a.mid", data)


def test_mixed_encodings_have_no_other_encoding(tmp_path: Path) -> None:
    mixed = "é\n".encode() * 20 + b"\xe9\xe9\xe9\xe9\n" * 3
    error = refuse(write(tmp_path / "a.txt", mixed), LINES, "data.encoding", "one encoding only")
    assert "gb18030" not in str(error)
    assert "cp1252" not in str(error)
    chinese = "这是一个用于测试的中文句子。\n".encode("gb18030") * 5
    refuse(write(tmp_path / "b.txt", chinese), LINES, "data.encoding", "--encoding gb18030")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "a\0b", "x" * 5_000, ",".join("abc" * 4_000), "/dev/zero"])
def test_names_that_are_no_files(name: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        open_source(name)
    assert caught.value.code in ("data.missing", "data.unreadable")


def test_loops_and_dangling_links(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write(folder / "a.txt", "hello\n")
    (folder / "loop").symlink_to(folder)
    (folder / "self.txt").symlink_to(folder / "self.txt")
    (folder / "nowhere.txt").symlink_to(tmp_path / "nowhere")
    assert [stream.name for stream in open_source(folder).streams] == ["data/a.txt"]
    with pytest.raises(SeriatimError):
        open_source(folder / "self.txt")


def test_members_of_archives_stay_in_the_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../outside.txt", "hidden\n")
        archive.writestr("/outside.txt", "inside\n")
    (stream,) = open_source(tmp_path / "a.zip").streams
    assert stream.read_text() == "inside\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_damaged_members_of_archives(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "hello hello\n")
    refuse(
        write(tmp_path / "a.zip", file.getvalue().replace(b"hello hello", b"hello_hello", 1)),
        LINES,
        "data.broken",
        "CRC",
    )


def test_times_beyond_all_numbers() -> None:
    refuse({"time": [1, 2, 10**400], "value": [1.0, 2.0, 3.0]}, SERIES, "data.cell", "row 2")


def test_compiled_catalogs_whose_strings_overlap(tmp_path: Path) -> None:
    count, text = 1_000, b"x" * 1_000
    tables = 28 + 16 * count
    entries = struct.pack("<II", len(text), tables) * (2 * count)
    header = struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0)
    refuse(write(tmp_path / "a.mo", header + entries + text), PAIRS, "data.gettext", "2,000,000 bytes of strings")
