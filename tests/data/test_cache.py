"""The cache: made once among processes, explained when it cannot be written, removed by age and size."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from data_schemas import write
from seriatim.core.errors import SeriatimError
from seriatim.core.files import locked
from seriatim.data.cache import DAY, cache_entries, cache_errors, make_once, remove_entries


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_is_made_once_by_several_threads(tmp_path: Path) -> None:
    made: list[int] = []

    def make(folder: Path) -> None:
        made.append(1)
        time.sleep(0.05)
        (folder / "a.txt").write_text("x")

    threads = [threading.Thread(target=make_once, args=(tmp_path / "target", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert (tmp_path / "target/a.txt").read_text() == "x"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "a.txt").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_once(tmp_path / "target", fail)
    assert not (tmp_path / "target").exists()
    with locked(tmp_path / "target.lock"):
        pass  # the lock is free again


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_cache_that_cannot_be_written(code: int) -> None:
    with pytest.raises(SeriatimError, match="the cache cannot be written") as caught, cache_errors():
        raise OSError(code, os.strerror(code), "/cache/x")
    assert "SERIATIM_CACHE" in caught.value.remedy
    with pytest.raises(OSError, match="other"), cache_errors():
        raise OSError(errno.EIO, "other")


def make_entries(cache: Path) -> None:
    for days, name, size in ((9, "tables/old", 100), (5, "tokens/middle", 200), (0, "tables/new", 300)):
        path = write(cache / name / "data", b"x" * size)
        used = time.time() - days * DAY
        os.utime(path, (used, used))


def test_entries_are_listed_and_removed_by_age(cache: Path) -> None:
    make_entries(cache)
    write(cache / "kernels/compiled", b"x")
    assert [(entry.name, entry.size) for entry in cache_entries()] == [
        ("tables/old", 100),
        ("tokens/middle", 200),
        ("tables/new", 300),
    ]
    assert [entry.name for entry in remove_entries(max_age=7)] == ["tables/old"]
    assert not (cache / "tables/old").exists()


@pytest.mark.parametrize(("limit", "removed"), [(600, 0), (500, 1), (300, 2), (0, 3)])
def test_entries_are_removed_by_size(cache: Path, limit: int, removed: int) -> None:
    make_entries(cache)
    assert len(remove_entries(max_bytes=limit)) == removed
    assert sum(entry.size for entry in cache_entries()) <= limit
