"""From what the user names to streams of bytes: a file, a folder, an archive, or an entry of the catalogue."""

from __future__ import annotations

import contextlib
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from seriatim.core.errors import SeriatimError, did_you_mean

from . import catalogue
from .catalogue import Located
from .decoding import BLOCK, Raw
from .fetch import Progress

KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
# fmt: off
BINARY = frozenset({
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".db", ".dll", ".doc", ".docx", ".dylib", ".epub",
    ".exe", ".gif", ".h5", ".ico", ".jar", ".jpeg", ".jpg", ".m4a", ".mat", ".mkv", ".mov", ".mp3", ".mp4",
    ".npy", ".npz", ".o", ".ogg", ".onnx", ".otf", ".pdf", ".pickle", ".pkl", ".png", ".ppt", ".pptx", ".pt",
    ".pth", ".pyc", ".rar", ".safetensors", ".so", ".sqlite", ".tar", ".tgz", ".tif", ".tiff", ".ttf", ".wav",
    ".webm", ".webp", ".whl", ".woff", ".woff2", ".xls", ".xlsx", ".xz", ".zip", ".zst",
})
# fmt: on


@dataclass(frozen=True)
class Found:
    """The streams of one source, in order, and the files whose change makes the source another."""

    title: str
    raws: list[Raw]
    files: list[Path]
    folder: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def documents(self) -> bool:
        """Whether it holds documents to keep apart; a single text file is one stream."""
        return self.folder or any(raw.kind != "text" for raw in self.raws)


def locate(source: str | Path, data_dir: str | None = None, progress: Progress | None = None) -> Located | None:
    """The catalogue's files for a name; None for a path. A path that exists wins over a name of the catalogue."""
    path = Path(source).expanduser()
    if _exists(path) or _inside(path):
        return None
    if str(source) in catalogue.ENTRIES:
        return catalogue.get(str(source), data_dir, progress)
    raise _missing(str(source), path)


def find(source: str | Path, data_dir: str | None = None) -> Found:
    located = locate(source, data_dir)
    if located is None:
        return find_path(Path(source).expanduser())
    found = find_path(located.train)
    return replace(found, notes=[f"{source}: {located.source}", *found.notes])


def find_path(path: Path) -> Found:
    try:
        if inside := _inside(path):
            return _archive(*inside)
        return _folder(path) if path.is_dir() else _file(path)
    except PermissionError as error:
        raise _forbidden(str(error.filename or path)) from None


def blocks(raw: Raw) -> Iterator[bytes]:
    """The bytes of a stream, a block at a time, with the troubles of packed files named."""
    with reading(raw.name), raw.open() as file:
        while block := file.read(BLOCK):
            yield block


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns what can happen while a file is read into errors that name the file."""
    try:
        yield
    except PermissionError:
        raise _forbidden(name) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
        raise SeriatimError(
            "data.broken", f"{name}: the packed file is damaged ({error})", "fetch or pack it again"
        ) from None


def _file(path: Path) -> Found:
    if path.suffix.lower() == ".zip":
        return _archive(path)
    if path.suffix.lower() in BINARY:
        raise SeriatimError(
            "data.binary",
            f"{path}: a {path.suffix} file holds no plain text",
            "give text, .gz, .zip, JSONL, CSV, TSV or Parquet",
        )
    return Found(path.name, [_raw(path, path.name)], [path])


def _folder(path: Path) -> Found:
    files: list[Path] = []
    skipped: list[Path] = []
    for file in sorted(path.rglob("*"), key=lambda file: file.relative_to(path).as_posix()):
        inner = file.relative_to(path)
        if any(part.startswith(".") for part in inner.parts) or not file.is_file():
            continue
        (skipped if _looks_binary(file) else files).append(file)
    if not files:
        reason = f"only binary files ({_some(skipped, path)})" if skipped else "no files"
        raise SeriatimError("data.empty", f"the folder {path} holds {reason}", "name a folder with text files")
    notes = [f"skipped {_count(len(skipped), 'binary file')}: {_some(skipped, path)}"] if skipped else []
    raws = [_raw(file, str(Path(path.name, file.relative_to(path)))) for file in files]
    return Found(f"{_count(len(files), 'file')} of {path.name}/", raws, files, folder=True, notes=notes)


def _inside(path: Path) -> tuple[Path, str] | None:
    """The archive and the member (or folder of members) that a path such as a.zip/inner/b.csv names."""
    for archive in path.parents:
        if archive.suffix.lower() == ".zip":
            return (archive, path.relative_to(archive).as_posix()) if archive.is_file() else None
    return None


def _archive(path: Path, inner: str = "") -> Found:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
    except zipfile.BadZipFile as error:
        raise SeriatimError("data.broken", f"{path}: not a ZIP archive ({error})", "fetch or pack it again") from None
    shown = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in Path(name).parts)]
    if inner:
        within = [name for name in shown if name == inner or name.startswith(f"{inner}/")]
        if not within:
            hint = did_you_mean(f"{path}/{inner}", [f"{path}/{name}" for name in shown])
            raise SeriatimError("data.missing", f'the archive {path} holds no "{inner}"', hint)
        shown = within
    usable = [name for name in shown if Path(name).suffix.lower() not in BINARY]
    if not usable:
        raise SeriatimError("data.empty", f"the archive {path} holds no text files", "name an archive of text files")
    skipped = len(shown) - len(usable)
    notes = [f"{path.name}: skipped {_count(skipped, 'binary file')}"] if skipped else []
    raws = [Raw(f"{path.name}/{name}", kind_of(name), partial(_member, path, name)) for name in usable]
    title = f"{path.name}/{inner}" if inner in usable else f"{_count(len(usable), 'file')} of {path.name}"
    return Found(title, raws, [path], folder=len(usable) > 1, notes=notes)


def _member(path: Path, name: str) -> BinaryIO:
    archive = zipfile.ZipFile(path)
    member = archive.open(name)
    archive.close()  # the open member keeps the file alive and closes it with itself
    return cast(BinaryIO, gzip.GzipFile(fileobj=member) if name.lower().endswith(".gz") else member)


def kind_of(name: str) -> str:
    return KINDS.get(Path(name.lower().removesuffix(".gz")).suffix, "text")


def _raw(path: Path, name: str) -> Raw:
    if path.suffix.lower() == ".gz":
        return Raw(name, kind_of(name), lambda: cast(BinaryIO, gzip.open(path, "rb")))
    return Raw(name, kind_of(name), lambda: cast(BinaryIO, io.BufferedReader(io.FileIO(path))))


def _looks_binary(path: Path) -> bool:
    """By its ending, or by a NUL byte near its beginning; UTF-16 and UTF-32 are text with many of them."""
    if kind_of(path.name) != "text":
        return False
    if path.suffix.lower() in BINARY:
        return True
    try:
        with _raw(path, path.name).open() as file:
            head = file.read(8192)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False  # reading it will say what is wrong
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for the file system is certainly not there
        return False


def _missing(source: str, path: Path) -> SeriatimError:
    try:
        neighbours = [path.with_name(file.name) for file in path.parent.iterdir() if not file.name.startswith(".")]
    except OSError:
        neighbours = []
    names = [str(file) for file in neighbours] + list(catalogue.ENTRIES)
    hint = did_you_mean(source, names)
    if not hint.startswith("did"):
        hint = f"give a path, or a name of the catalogue: {', '.join(sorted(catalogue.ENTRIES))}"
    return SeriatimError("data.missing", f'there is no file or data set "{source}"', hint)


def _forbidden(name: str) -> SeriatimError:
    return SeriatimError("data.permission", f"{name}: reading it is not permitted", "check the file's permissions")


def _some(files: list[Path], root: Path) -> str:
    names = [str(file.relative_to(root)) for file in files[:3]]
    return ", ".join(names) + (", …" if len(files) > 3 else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
