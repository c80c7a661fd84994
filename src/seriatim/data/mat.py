"""MATLAB files of level 5 (`save -v6`, `-v7`, scipy's `savemat`): numeric arrays, and cells that hold them.

A file is a header of 128 bytes and a row of elements, each with a tag (kind and size), padded to eight bytes. An
element is a matrix, or a matrix packed by zlib. A matrix is a row of elements again: flags, shape, name, numbers.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from seriatim.core.errors import SeriatimError

HEADER = 128
MATRIX, PACKED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CELL = 1
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
OTHERS = {2: "a struct", 3: "an object", 4: "text", 5: "a sparse matrix", 16: "a function", 17: "an object"}
LOGICAL, COMPLEX = 2, 8


@dataclass(frozen=True)
class Mat:
    """The variables of a file by name; a cell is a list. `others` says of the rest what each is."""

    arrays: dict[str, np.ndarray | list[np.ndarray]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Element:
    kind: int
    place: int  # of its first byte, in the file or in what was unpacked
    data: memoryview


class _OtherError(Exception):
    """A variable that is neither numbers nor a cell of numbers."""


def read_mat(name: str, data: bytes) -> Mat:
    """The variables of the file whose bytes are `data`; `name` is for messages."""
    order = _order(name, data)
    found = Mat()
    for element in _elements(name, memoryview(data), HEADER, order):
        where = f"{name}, byte {element.place}"
        if element.kind == PACKED:
            where += ", unpacked"
            element = _single(where, _unpacked(where, element.data), order)
        if element.kind != MATRIX:
            _damaged(where, f"an element of kind {element.kind} where a variable should be")
        variable, value = _variable(where, element.data, order)
        if isinstance(value, str):
            found.others[variable] = value
        else:
            found.arrays[variable] = value
    found.others.pop("", None)  # where functions and objects keep what is theirs
    return found


def _order(name: str, data: bytes) -> str:
    """ "<" or ">": which byte of a number comes first."""
    if data[:10] == b"MATLAB 7.3" or data[512:520] == b"\x89HDF\r\n\x1a\n" or data[:8] == b"\x89HDF\r\n\x1a\n":
        cause = f"{name}: a MATLAB file of level 7.3 (HDF5), which is not read here"
        raise SeriatimError("data.mat", cause, "save it with -v7, or with numpy.savez")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or struct.unpack(f"{order}H", data[124:126]) != (0x100,):
        cause = f"{name}: not a MATLAB file of level 5"
        raise SeriatimError("data.mat", cause, "save it with -v7, or with numpy.savez")
    return order


def _variable(where: str, data: memoryview, order: str) -> tuple[str, np.ndarray | list[np.ndarray] | str]:
    """The name of a matrix, and its numbers, or those of its cells, or what it is instead."""
    inner = _elements(where, data, 0, order)
    flags = _numbers(where, next(inner, None), order)
    shape = [int(length) for length in _numbers(where, next(inner, None), order)]
    name = _next(where, inner).data.tobytes().decode("latin-1")
    if len(flags) < 1 or len(shape) < 2 or min(shape) < 0:
        _damaged(where, "a variable without a shape")
    kind, marks = int(flags[0]) & 0xFF, int(flags[0]) >> 8
    try:
        if kind == CELL:
            cells = [_cell(where, element, order) for element in inner]
            if len(cells) != math.prod(shape):
                _damaged(where, f'"{name}" has {len(cells)} cells where its shape says {math.prod(shape)}')
            return name, cells
        if kind not in CLASSES:
            raise _OtherError(OTHERS.get(kind, f"of the unknown class {kind}"))
        if marks & COMPLEX:
            raise _OtherError("of complex numbers")
    except _OtherError as other:
        return name, str(other)
    numbers = _numbers(where, next(inner, None), order)
    if len(numbers) != math.prod(shape):
        _damaged(where, f'"{name}" has {len(numbers)} numbers where its shape says {math.prod(shape)}')
    dtype = np.bool_ if marks & LOGICAL else np.dtype(CLASSES[kind])
    return name, numbers.astype(dtype).reshape(shape, order="F")


def _cell(where: str, element: _Element, order: str) -> np.ndarray:
    if element.kind != MATRIX:
        _damaged(where, f"an element of kind {element.kind} where a cell should be")
    if not len(element.data):
        return np.zeros((0, 0))
    _, value = _variable(f"{where}, cell at {element.place}", element.data, order)
    if isinstance(value, str):
        raise _OtherError(f"a cell that holds {value}")
    if isinstance(value, list):
        raise _OtherError("a cell of cells")
    return value


def _elements(where: str, data: memoryview, place: int, order: str) -> Iterator[_Element]:
    """The elements that follow one another. Up to four bytes of data are kept within the tag."""
    while place < len(data):
        if len(data) - place < 8:
            _damaged(where, f"ends within a tag at byte {place}")
        first, size = struct.unpack_from(f"{order}II", data, place)
        kind, start = first, place + 8
        if first >> 16:
            kind, size, start = first & 0xFFFF, first >> 16, place + 4
            if size > 4:
                _damaged(where, f"a short element of {size} bytes at byte {place}")
        if start + size > len(data):
            _damaged(where, f"ends at byte {len(data)}, within an element of {size} bytes that begins at byte {start}")
        yield _Element(kind, place, data[start : start + size])
        place = place + 8 if first >> 16 else start + size
        if kind != PACKED:
            place += -place % 8


def _single(where: str, data: memoryview, order: str) -> _Element:
    return _next(where, _elements(where, data, 0, order))


def _next(where: str, elements: Iterator[_Element]) -> _Element:
    element = next(elements, None)
    if element is None:
        _damaged(where, "ends within a variable")
    return element


def _numbers(where: str, element: _Element | None, order: str) -> np.ndarray:
    if element is None:
        _damaged(where, "ends within a variable")
    if element.kind not in NUMBERS:
        _damaged(where, f"an element of kind {element.kind} where numbers should be")
    dtype = np.dtype(order + NUMBERS[element.kind])
    if len(element.data) % dtype.itemsize:
        _damaged(where, f"{len(element.data)} bytes of numbers of {dtype.itemsize} bytes each")
    return np.frombuffer(element.data, dtype)


def _unpacked(where: str, data: memoryview) -> memoryview:
    try:
        return memoryview(zlib.decompress(data))
    except zlib.error as error:
        _damaged(where, str(error))


def _damaged(where: str, why: str) -> NoReturn:
    raise SeriatimError("data.mat", f"{where}: the file is damaged: {why}", "fetch or save it again")
