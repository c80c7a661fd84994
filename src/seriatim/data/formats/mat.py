"""MATLAB files of level 5 (`save -v6`, `-v7`, scipy's `savemat`): numeric arrays, and cell arrays of them.

A file is a header of 128 bytes and a row of elements, each with a tag (type and size), padded to eight bytes. An
element is a matrix, or a matrix compressed by zlib. A matrix is a row of elements again: flags, shape, name, numbers.

The reader is our own, with every size checked: `scipy.io.loadmat` 1.17 ended the process by a segmentation fault on 44
of 1,500 files with one to four changed bytes. The tests compare both on undamaged files.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from ...core.errors import SeriatimError

HEADER_SIZE = 128
MATRIX, COMPRESSED = 14, 15
NUMBER_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CELL_CLASS = 1
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
OTHER_CLASSES = {2: "a struct", 3: "an object", 4: "text", 5: "a sparse matrix", 16: "a function", 17: "an object"}
LOGICAL_FLAG, COMPLEX_FLAG = 2, 8


@dataclass(frozen=True)
class MatFile:
    """The variables of a file by name; a cell array is a list. `others` tells what each other variable is."""

    arrays: dict[str, np.ndarray | list[np.ndarray]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Element:
    type: int
    position: int  # of its first byte, in the file or in the decompressed data
    data: memoryview


class _OtherVariableError(Exception):
    """A variable that is neither numbers nor a cell array of numbers."""


def read_mat(name: str, data: bytes) -> MatFile:
    """Returns the variables of a file; `name` is for messages."""
    order = _byte_order(name, data)
    content = MatFile()
    for element in _elements(name, memoryview(data), HEADER_SIZE, order):
        where = f"{name}, byte {element.position}"
        if element.type == COMPRESSED:
            where += ", decompressed"
            element = _next(where, _elements(where, _decompress(where, element.data), 0, order))
        if element.type != MATRIX:
            _damaged(where, f"an element of type {element.type} instead of a variable")
        variable, value = _variable(where, element.data, order)
        if isinstance(value, str):
            content.others[variable] = value
        else:
            content.arrays[variable] = value
    content.others.pop("", None)  # where functions and objects store their own data
    return content


def _byte_order(name: str, data: bytes) -> str:
    """Returns "<" or ">"."""
    hdf5 = b"\x89HDF\r\n\x1a\n"
    if data[:10] == b"MATLAB 7.3" or data[512:520] == hdf5 or data[:8] == hdf5:
        cause = f"{name}: a MATLAB file of level 7.3 (HDF5), which is not supported"
        raise SeriatimError("data.mat", cause, "save it with -v7, or with numpy.savez")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or struct.unpack(f"{order}H", data[124:126]) != (0x100,):
        cause = f"{name}: not a MATLAB file of level 5"
        raise SeriatimError("data.mat", cause, "save it with -v7, or with numpy.savez")
    return order


def _variable(where: str, data: memoryview, order: str) -> tuple[str, np.ndarray | list[np.ndarray] | str]:
    """Returns the name of a matrix with its numbers, with those of its cells, or with what it is instead."""
    elements = _elements(where, data, 0, order)
    flags = _numbers(where, next(elements, None), order)
    shape = [int(length) for length in _numbers(where, next(elements, None), order)]
    name = _next(where, elements).data.tobytes().decode("latin-1")
    if len(flags) < 1 or len(shape) < 2 or min(shape) < 0:
        _damaged(where, "a variable without a shape")
    class_code, marks = int(flags[0]) & 0xFF, int(flags[0]) >> 8
    try:
        if class_code == CELL_CLASS:
            cells = [_cell(where, element, order) for element in elements]
            if len(cells) != math.prod(shape):
                _damaged(where, f'"{name}" has {len(cells)} cells, but its shape needs {math.prod(shape)}')
            return name, cells
        if class_code not in CLASSES:
            raise _OtherVariableError(OTHER_CLASSES.get(class_code, f"of the unknown class {class_code}"))
        if marks & COMPLEX_FLAG:
            raise _OtherVariableError("of complex numbers")
    except _OtherVariableError as other:
        return name, str(other)
    numbers = _numbers(where, next(elements, None), order)
    if len(numbers) != math.prod(shape):
        _damaged(where, f'"{name}" has {len(numbers)} numbers, but its shape needs {math.prod(shape)}')
    dtype = np.bool_ if marks & LOGICAL_FLAG else np.dtype(CLASSES[class_code])
    with np.errstate(invalid="ignore", over="ignore"):  # damaged numbers may not fit their class
        return name, numbers.astype(dtype).reshape(shape, order="F")


def _cell(where: str, element: _Element, order: str) -> np.ndarray:
    if element.type != MATRIX:
        _damaged(where, f"an element of type {element.type} instead of a cell")
    if not len(element.data):
        return np.zeros((0, 0))
    _, value = _variable(f"{where}, cell at {element.position}", element.data, order)
    if isinstance(value, str):
        raise _OtherVariableError(f"a cell array that holds {value}")
    if isinstance(value, list):
        raise _OtherVariableError("a cell array of cell arrays")
    return value


def _elements(where: str, data: memoryview, position: int, order: str) -> Iterator[_Element]:
    """Yields the elements that follow one another. Up to four bytes of data are stored within the tag."""
    while position < len(data):
        if len(data) - position < 8:
            _damaged(where, f"ends within a tag at byte {position}")
        first, size = struct.unpack_from(f"{order}II", data, position)
        type_code, start = first, position + 8
        short = bool(first >> 16)
        if short:
            type_code, size, start = first & 0xFFFF, first >> 16, position + 4
            if size > 4:
                _damaged(where, f"a short element of {size} bytes at byte {position}")
        if start + size > len(data):
            _damaged(where, f"ends at byte {len(data)}, within an element of {size} bytes that begins at byte {start}")
        yield _Element(type_code, position, data[start : start + size])
        position = position + 8 if short else start + size
        if type_code != COMPRESSED:
            position += -position % 8


def _next(where: str, elements: Iterator[_Element]) -> _Element:
    element = next(elements, None)
    if element is None:
        _damaged(where, "ends within a variable")
    return element


def _numbers(where: str, element: _Element | None, order: str) -> np.ndarray:
    if element is None:
        _damaged(where, "ends within a variable")
    if element.type not in NUMBER_TYPES:
        _damaged(where, f"an element of type {element.type} instead of numbers")
    dtype = np.dtype(order + NUMBER_TYPES[element.type])
    if len(element.data) % dtype.itemsize:
        _damaged(where, f"{len(element.data)} bytes of numbers of {dtype.itemsize} bytes each")
    return np.frombuffer(element.data, dtype)


def _decompress(where: str, data: memoryview) -> memoryview:
    try:
        return memoryview(zlib.decompress(data))
    except zlib.error as error:
        _damaged(where, str(error))


def _damaged(where: str, reason: str) -> NoReturn:
    raise SeriatimError("data.mat", f"{where}: the file is damaged: {reason}", "download or save it again")
