"""Files are written whole or not at all, errors of writing say why, and tensors are verified."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from seriatim.core.errors import SeriatimError
from seriatim.core.files import (
    WriteError,
    append_json,
    atomic_folder,
    load_tensors,
    remove_partial,
    save_tensors,
    write_text,
)
from seriatim.data.cache import make_once

CODES = {
    errno.ENOSPC: "disk.full",
    errno.EDQUOT: "disk.quota",
    errno.EROFS: "disk.read-only",
    errno.EACCES: "disk.permission",
    errno.EIO: "disk.failed",
}
TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "b": torch.tensor(7, dtype=torch.int64),
    "c": torch.zeros(0, 4, dtype=torch.bfloat16),
    "d": torch.tensor([True, False]),
}


def failing(number: int) -> Any:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", CODES)
def test_errors_of_writing(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")
    monkeypatch.setattr(os, "fsync", failing(number))
    with pytest.raises(WriteError) as caught:
        write_text(file, "new")
    error = caught.value
    assert (error.code, error.errno, error.exit_code) == (CODES[number], number, 1)
    assert str(file) in error.cause
    assert error.remedy
    assert file.read_text() == "old"
    with pytest.raises(WriteError) as caught, atomic_folder(tmp_path / "b") as folder:
        write_text(folder / "inside.txt", "new")
    assert str(tmp_path / "b") in caught.value.cause
    assert "partial" not in caught.value.cause
    with pytest.raises(WriteError):
        append_json(tmp_path / "c.jsonl", {"a": 1}, durable=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "c.jsonl"]


def test_errors_of_other_files_are_their_own(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(FileNotFoundError) as caught, atomic_folder(tmp_path / "out" / "a"):
        (tmp_path / "in" / "missing.txt").read_text()
    assert not isinstance(caught.value, WriteError)


def test_a_cache_that_cannot_be_written_has_its_own_remedy(tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match="the cache cannot be written") as caught:
        make_once(tmp_path / "x", lambda folder: failing(errno.ENOSPC)())
    assert (caught.value.code, "SERIATIM_CACHE" in caught.value.remedy) == ("data.cache", True)


def test_a_full_disk_while_tensors_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    def fail(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    save_tensors(tmp_path / "a.safetensors", TENSORS)
    before = (tmp_path / "a.safetensors").read_bytes()
    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(WriteError) as caught:
        save_tensors(tmp_path / "a.safetensors", {"a": torch.ones(3)})
    assert caught.value.code == "disk.full"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_tensors(tmp_path / name, TENSORS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded = load_tensors(tmp_path / "a", finite=True)
    assert loaded.keys() == TENSORS.keys()
    assert all(
        torch.equal(loaded[name], tensor) and loaded[name].dtype == tensor.dtype for name, tensor in TENSORS.items()
    )


def test_no_flipped_bit_changes_a_tensor(tmp_path: Path) -> None:
    """Every bit of the file: it is refused, or what is read is what was written (a bit of the digest's own name)."""
    file = tmp_path / "a.safetensors"
    save_tensors(file, TENSORS)
    content, refused = file.read_bytes(), 0
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        file.write_bytes(damaged)
        try:
            loaded = load_tensors(file)
        except SeriatimError:
            refused += 1
            continue
        assert loaded.keys() == TENSORS.keys()
        assert all(torch.equal(loaded[name], TENSORS[name]) for name in TENSORS)
    assert refused > 0.95 * 8 * len(content)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_tensors(file, {"w": torch.tensor([1.0, float("nan"), float("inf")]), "n": torch.ones(2)})
    assert load_tensors(file)["n"].tolist() == [1.0, 1.0]
    with pytest.raises(SeriatimError, match="2 of 3 weights of w are not finite") as caught:
        load_tensors(file, finite=True)
    assert caught.value.code == "weights.not-finite"
    save_tensors(file, {"w": torch.full((4,), 3e38)})  # their sum is not finite
    assert len(load_tensors(file, finite=True)["w"]) == 4


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.txt.12345678.partial").write_text("half")
    (tmp_path / ".b.12345678.partial").mkdir()
    (tmp_path / ".b.12345678.partial" / "c").write_text("half")
    (tmp_path / ".mine").write_text("whole")
    remove_partial(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mine"]
