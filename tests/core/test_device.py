"""Devices and memory of the process."""

from __future__ import annotations

import pytest

from seriatim.core.device import pick_device, retain_freed_memory
from seriatim.core.errors import SeriatimError


def test_memory_is_retained_only_where_glibc_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows ctypes refuses an empty name of a library by a TypeError: no training would start."""

    def refuse(name: str | None) -> None:
        raise TypeError("argument of type 'NoneType' is not iterable")

    monkeypatch.setattr("seriatim.core.device.sys.platform", "win32")
    monkeypatch.setattr("seriatim.core.device.ctypes.CDLL", refuse)
    retain_freed_memory()


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
    assert pick_device("cpu").type == "cpu"
    for name in ("cuda", "cuda:1", "mps", "cup"):
        with pytest.raises(SeriatimError) as caught:
            pick_device(name)
        assert caught.value.code == "device.missing"
