"""The catalogue: built-in texts, local copies, and fetching from a server of our own that misbehaves on demand."""

import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from seriatim.core.errors import SeriatimError
from seriatim.data import catalogue, fetch, generated
from seriatim.data.catalogue import Entry, File, Remote, get
from seriatim.data.corpus import prepare
from seriatim.data.text import TextSettings

CONTENT = bytes(range(256)) * 2000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")


class Server(ThreadingHTTPServer):
    """Knows byte ranges; `cut` ends the next answers early, `ranges=False` forgets about ranges."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.cut: list[int] = []
        self.ranges = True
        self.asked: list[str | None] = []

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        data = self.server.files.get(self.path.lstrip("/"))
        if data is None:
            self.send_error(404)
            return
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and self.server.ranges else 0
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
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def fetched(server: Server, tmp_path: Path, digest: str = DIGEST, **options: object) -> Path:
    return fetch.fetch((server.address("data.bin"),), tmp_path / "got" / "data.bin", digest, **options)  # type: ignore[arg-type]


def test_fetch_reports_progress_and_is_verified(server: Server, tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    path = fetched(server, tmp_path, progress=lambda *step: steps.append(step))
    assert path.read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert len(steps) > 2
    fetched(server, tmp_path)
    assert len(server.asked) == 1  # what is there is not fetched again
    assert sorted(file.suffix for file in path.parent.iterdir()) == [".bin", ".lock"]


def test_interrupted_fetch_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut = [len(CONTENT) // 2]
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={len(CONTENT) // 2}-"]


def test_fetch_resumes_in_another_call(server: Server, tmp_path: Path) -> None:
    server.cut = [1000, 1000, 1000]
    with pytest.raises(SeriatimError, match="the connection ended early") as caught:
        fetched(server, tmp_path)
    assert caught.value.code == "data.offline"
    assert (tmp_path / "got/data.bin.part").stat().st_size == 3000
    assert not (tmp_path / "got/data.bin").exists()
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=3000-"


def test_server_without_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cut = [5000]
    assert fetched(server, tmp_path).read_bytes() == CONTENT


def test_stale_part_is_thrown_away(server: Server, tmp_path: Path) -> None:
    for stale in (b"something else", b"x" * (len(CONTENT) + 5)):
        part = tmp_path / "got/data.bin.part"
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(stale)
        path = fetched(server, tmp_path)
        assert path.read_bytes() == CONTENT
        path.unlink()


def test_wrong_hash_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match="another file than the catalogue knows") as caught:
        fetched(server, tmp_path, digest="0" * 64)
    assert caught.value.code == "data.hash"
    assert DIGEST in caught.value.cause
    assert [file.name for file in (tmp_path / "got").iterdir()] == ["data.bin.lock"]


def test_missing_on_the_server_and_second_address(server: Server, tmp_path: Path) -> None:
    gone = server.address("gone.bin")
    with pytest.raises(SeriatimError, match="answers 404") as caught:
        fetch.fetch((gone,), tmp_path / "gone.bin", DIGEST)
    assert caught.value.code == "data.fetch"
    assert gone in caught.value.cause
    path = fetch.fetch((gone, server.address("data.bin")), tmp_path / "data.bin", DIGEST)
    assert path.read_bytes() == CONTENT


def test_offline_names_the_address_and_the_local_copy(tmp_path: Path) -> None:
    address = "http://127.0.0.1:9/data.bin"
    with pytest.raises(SeriatimError, match=re.escape(address)) as caught:
        fetch.fetch((address,), tmp_path / "data.bin", DIGEST)
    assert caught.value.code == "data.offline"
    assert "SERIATIM_DATA" in caught.value.remedy
    assert caught.value.exit_code == 1


def add(monkeypatch: pytest.MonkeyPatch, **files: File) -> None:
    monkeypatch.setitem(catalogue.ENTRIES, "toy", Entry("toy", "language", "a toy", "CC0", 10, files))


def test_entry_is_found_locally_then_fetched(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a toy text\n" * 100
    digest = hashlib.sha256(text).hexdigest()
    server.files["toy.txt"] = text
    add(monkeypatch, train=File("toy/toy.txt", digest, Remote((server.address("toy.txt"),), digest)))
    local = tmp_path / "local/toy/toy.txt"
    local.parent.mkdir(parents=True)
    local.write_bytes(text)
    assert get("toy", str(tmp_path / "local")).train == local
    monkeypatch.setenv("SERIATIM_DATA", str(tmp_path / "local"))
    assert get("toy").source == f"local copy in {tmp_path / 'local'}"
    assert server.asked == []
    local.write_bytes(text + b"changed")
    with pytest.raises(SeriatimError, match="another file than the catalogue knows"):
        get("toy")
    monkeypatch.delenv("SERIATIM_DATA")
    located = get("toy")
    assert located.train.read_bytes() == text
    assert "fetched from http" in located.source
    told: list[str] = []
    corpus = prepare(TextSettings(source="toy"), notify=told.append)
    assert len(corpus.train) == 990
    assert told[0] == f"toy: {located.source}"
    with pytest.raises(SeriatimError, match=r"no folder .*\n.*--data-dir"):
        get("toy", str(tmp_path / "nowhere"))
    monkeypatch.setenv("SERIATIM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SeriatimError, match=r"no folder .*\n.*SERIATIM_DATA"):
        get("toy")


def test_archive_with_given_parts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for part in ("train", "valid", "test"):
            archive.writestr(f"toy/{part}.txt", f"{part} text\n" * 10)
    server.files["toy.zip"] = packed.getvalue()
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    parts = ("train", "valid", "test")
    remotes = {part: Remote((server.address("toy.zip"),), digest, f"toy/{part}.txt") for part in parts}
    add(monkeypatch, **{part: File(f"toy/{part}.txt", "0" * 64, remotes[part]) for part in parts})
    corpus = prepare(TextSettings(source="toy"))
    assert corpus.tokenizer.decode(corpus.train) == "train text\n" * 10
    assert corpus.characters == {"train": 110, "valid": 110, "test": 100}
    assert len(server.asked) == 1


def test_entry_without_address(monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, train=File("toy/toy.txt", DIGEST))
    with pytest.raises(SeriatimError, match="no public address") as caught:
        get("toy")
    assert caught.value.code == "data.local-only"


def test_unknown_name() -> None:
    with pytest.raises(SeriatimError, match='did you mean "names"') as caught:
        get("nams")
    assert caught.value.code == "data.unknown"


def test_entries_are_complete() -> None:
    for name, entry in catalogue.ENTRIES.items():
        assert entry.name == name
        assert entry.summary
        assert entry.licence
        assert [bool(entry.make), bool(entry.files), entry.numbers].count(True) == 1
        for file in entry.files.values():
            assert re.fullmatch("[0-9a-f]{64}", file.sha256)


def test_generated_texts_are_the_same_everywhere() -> None:
    known = {
        generated.brackets: "1f0e3d4392166ef609a30cb80224d0aacf06f4bd4a8864de0c0100b8a3ca2895",
        generated.copying: "82a8bea59da4b2c7fe692aba64afdd655b4ba69f70f5167895f8892669bc5fc1",
    }
    for make, digest in known.items():
        assert hashlib.sha256(make().encode()).hexdigest() == digest
    assert generated.brackets(seed=2) != generated.brackets(seed=1)


def test_brackets_are_well_closed() -> None:
    for line in generated.brackets(lines=200).splitlines():
        while (shorter := re.sub(r"\(\)|\[\]|\{\}|<>", "", line)) != line:
            line = shorter
        assert line == ""


def test_copies_repeat() -> None:
    for line in generated.copying(lines=200).splitlines():
        first, second = line.split("=")
        assert first == second


def test_pydoc_is_deterministic_prose() -> None:
    assert generated.pydoc() == generated.pydoc()
    assert get("pydoc").train == get("pydoc").train
    assert "statement" in get("pydoc").train.read_text(encoding="utf-8")
