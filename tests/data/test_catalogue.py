"""The catalogue: local copies, and downloads from a server of our own that misbehaves on demand."""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from data_schemas import LABELED, SCORED, read, values, write
from seriatim.core.errors import SeriatimError
from seriatim.data import catalogue
from seriatim.data.catalogue import Entry, File, entries, find_entry, locate
from seriatim.data.catalogue.download import download
from seriatim.data.reader import read_dataset
from seriatim.data.source import known_names, open_source

CONTENT = bytes(range(256)) * 2000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
MIRROR = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))
# Public data sets are not part of the repository: their files are megabytes, and some may not be redistributed.
needs_public_data = pytest.mark.skipif(
    not (MIRROR / "rt_polarity").is_dir(),
    reason="needs copies of public data sets: SERIATIM_REAL_DATA names their folder",
)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")


class Server(ThreadingHTTPServer):
    """Knows byte ranges; `cut` ends the next answers early, `ranges=False` ignores ranges."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.cut: list[int] = []
        self.ranges = True
        self.requests: list[str | None] = []

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        requested = self.headers.get("Range")
        self.server.requests.append(requested)
        data = self.server.files.get(self.path.lstrip("/"))
        if data is None:
            self.send_error(404)
            return
        start = int(re.findall(r"\d+", requested)[0]) if requested and self.server.ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        self.wfile.write(body[: self.server.cut.pop(0)] if self.server.cut else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server({"data.bin": CONTENT})
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def fetch(server: Server, tmp_path: Path, digest: str = DIGEST, **options: Any) -> Path:
    folder = tmp_path / "got"
    folder.mkdir(exist_ok=True)
    return download((server.address("data.bin"),), folder / "data.bin", digest, **options)


# Downloads


def test_download_reports_progress_and_is_verified(server: Server, tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    path = fetch(server, tmp_path, progress=lambda *step: steps.append(step))
    assert path.read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert len(steps) > 2
    fetch(server, tmp_path, hashlib.sha1(CONTENT).hexdigest())
    assert len(server.requests) == 1  # what is there is not downloaded again


def test_interrupted_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut = [len(CONTENT) // 2]
    assert fetch(server, tmp_path, hashlib.sha1(CONTENT).hexdigest()).read_bytes() == CONTENT
    assert server.requests == [None, f"bytes={len(CONTENT) // 2}-"]


def test_download_resumes_in_another_call(server: Server, tmp_path: Path) -> None:
    server.cut = [1000, 1000, 1000]
    with pytest.raises(SeriatimError, match="the connection ended early") as caught:
        fetch(server, tmp_path)
    assert caught.value.code == "data.offline"
    assert (tmp_path / "got/data.bin.part").stat().st_size == 3000
    assert not (tmp_path / "got/data.bin").exists()
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=3000-"


def test_server_without_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cut = [5000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"something else", b"x" * (len(CONTENT) + 5)])
def test_stale_beginning_is_thrown_away(server: Server, tmp_path: Path, stale: bytes) -> None:
    write(tmp_path / "got/data.bin.part", stale)
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match="other than that of the catalogue") as caught:
        fetch(server, tmp_path, digest="0" * 64)
    assert caught.value.code == "data.hash"
    assert DIGEST in caught.value.cause
    assert {file.name for file in (tmp_path / "got").iterdir()} <= {"data.bin.lock"}


def test_missing_on_the_server_and_second_address(server: Server, tmp_path: Path) -> None:
    gone = server.address("gone.bin")
    with pytest.raises(SeriatimError, match="answers 404") as caught:
        download((gone,), tmp_path / "gone.bin", DIGEST)
    assert caught.value.code == "data.fetch"
    assert gone in caught.value.cause
    assert download((gone, server.address("data.bin")), tmp_path / "data.bin", DIGEST).read_bytes() == CONTENT


def test_offline_names_the_address_and_the_local_copy(tmp_path: Path) -> None:
    address = "http://127.0.0.1:9/data.bin"
    with pytest.raises(SeriatimError, match=re.escape(address)) as caught:
        download((address,), tmp_path / "data.bin", DIGEST)
    assert caught.value.code == "data.offline"
    assert "SERIATIM_DATA" in caught.value.remedy
    assert caught.value.exit_code == 1


# Entries


def add(monkeypatch: pytest.MonkeyPatch, *files: File, **options: Any) -> None:
    monkeypatch.setitem(entries(), "toy", Entry("toy", "classify", "a toy", "CC0", 10, files, **options))


def test_entry_is_read_locally_then_downloaded(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a toy text\n" * 100
    digest = hashlib.sha256(text).hexdigest()
    server.files["toy.txt"] = text
    add(monkeypatch, File("toy/toy.txt", digest, urls=(server.address("toy.txt"),)))
    local = write(tmp_path / "local/toy/toy.txt", text)
    assert locate("toy", str(tmp_path / "local")).files["train"][0].path == local
    monkeypatch.setenv("SERIATIM_DATA", str(tmp_path / "local"))
    assert locate("toy").origin == f"local copy in {tmp_path / 'local'}"
    assert server.requests == []
    write(local, text + b"changed")
    with pytest.raises(SeriatimError, match="is not the file of the catalogue"):
        locate("toy")
    monkeypatch.delenv("SERIATIM_DATA")
    source = open_source("toy")
    assert source.streams[0].read_text().encode() == text
    assert "toy: downloaded from http" in source.notes[0]
    with pytest.raises(SeriatimError, match=r"no folder .*\n.*--data-dir"):
        locate("toy", str(tmp_path / "nowhere"))
    monkeypatch.setenv("SERIATIM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SeriatimError, match=r"no folder .*\n.*SERIATIM_DATA"):
        locate("toy")


def test_archive_with_splits(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    splits = ("train", "validation", "test")
    with zipfile.ZipFile(packed, "w") as archive:
        for split in splits:
            archive.writestr(f"toy/{split}.txt", f"{split} text\n" * 10)
    server.files["toy.zip"] = packed.getvalue()
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    urls = (server.address("toy.zip"),)
    add(monkeypatch, *(File(f"toy/{s}.txt", "0" * 64, s, "", urls, digest, f"toy/{s}.txt") for s in splits))
    source = open_source("toy")
    assert {split: part.streams[0].read_text() for split, part in source.splits.items()} == {
        split: f"{split} text\n" * 10 for split in splits
    }
    assert len(server.requests) == 1


def test_entry_without_address_and_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, File("toy/toy.txt", DIGEST))
    with pytest.raises(SeriatimError, match="no public address") as caught:
        locate("toy")
    assert caught.value.code == "data.local-only"
    with pytest.raises(SeriatimError, match='did you mean "names"') as caught:
        locate("nams")
    assert caught.value.code == "data.unknown"


def test_synthetic_sets_by_name() -> None:
    located = locate("copying")
    assert located.origin == "generated"
    assert located.files["train"][0].path == locate("copying").files["train"][0].path
    assert "=" in located.files["train"][0].path.read_text()
    with pytest.raises(SeriatimError, match="it is generated") as caught:
        locate("adding:20")
    assert (caught.value.code, "train regress --data adding:20" in caught.value.remedy) == ("data.built-in", True)


def test_entries_are_complete() -> None:
    for name, entry in entries().items():
        assert entry.name == name
        assert entry.summary
        assert entry.license
        assert entry.task
        assert any(file.split == "train" for file in entry.files)
        for file in entry.files:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert re.fullmatch("|[0-9a-f]{40}|[0-9a-f]{64}", file.url_sha256)
    assert find_entry("tinyshakespeare") is entries()["tiny-shakespeare"]
    assert find_entry("Wiki_Text2") is entries()["wikitext2"]
    assert find_entry("nothing") is None
    assert {"mnist", "adding", "pydoc", "fra-eng"} <= set(known_names())


def test_the_catalogue_knows_how_to_read_its_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def file(path: str, data: bytes, **more: Any) -> File:
        write(tmp_path / "local" / path, data)
        return File(path, hashlib.sha256(data).hexdigest(), **more)

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("in/a.csv", "words,stars,n\n" + "x,2,1\ny,3,1\n" * 10)
        archive.writestr("in/b.csv", "no,table\n")
    where = str(tmp_path / "local")
    add(monkeypatch, file("toy/t.neg", b"caf\xe9\n" * 10), file("toy/t.pos", b"bar\n" * 10), encoding="cp1252")
    dataset = read_dataset(open_source("toy", where), LABELED)
    assert set(zip(values(dataset, "input"), values(dataset, "target"), strict=True)) == {
        ("café", "neg"),
        ("bar", "pos"),
    }
    table = Entry("stars", "regress", "a toy", "CC0", 1, (file("zip/a.zip", packed.getvalue(), member="in/a.csv"),))
    monkeypatch.setitem(
        entries(), "stars", replace(table, columns={"input": "words", "target": "stars"}, rows={"train": (0, 15)})
    )
    stars = read_dataset(open_source("stars", where), SCORED)
    assert (len(stars), set(values(stars, "target"))) == (15, {2.0, 3.0})
    assert set(values(read_dataset(open_source("stars", where), SCORED, {"target": "n"}), "target")) == {1.0}
    # What the catalogue knows of one set does not apply to a file of the user's.
    assert values(read(write(tmp_path / "mine.txt", "café\n"), LABELED.inputs()), "input") == ["café"]
    write(tmp_path / "local/toy/t.pos", b"another\n")
    with pytest.raises(SeriatimError, match="is not the file of the catalogue"):
        open_source("toy", where)


@needs_public_data
def test_real_sets() -> None:
    reviews = read_dataset(open_source("rt-polarity", str(MIRROR)), LABELED)
    assert len(reviews) == 10_662
    expected = (MIRROR / "rt_polarity/rt-polarity.neg").read_bytes().decode("cp1252").split("\n")[:-1]
    assert [text for text, label in zip(reviews["input"], reviews["target"], strict=True) if label == "neg"] == expected
    fitness = read_dataset(open_source("gb1", str(MIRROR)), SCORED)
    assert len(fitness) == 8_733
    assert str(fitness.locations[1]) == "splits.zip/splits/sampled.csv, line 3"
    assert {split: len(part.streams) for split, part in open_source("wnut17", str(MIRROR)).splits.items()} == {
        "train": 1,
        "validation": 1,
        "test": 1,
    }


@needs_public_data
def test_all_entries_can_be_opened_from_a_local_copy() -> None:
    entries = catalogue.entries().items()
    present = [name for name, entry in entries if all((MIRROR / file.path).is_file() for file in entry.files)]
    assert "rt-polarity" in present
    for name in present:
        assert all(stream.size for stream in open_source(name, str(MIRROR)).streams), name
