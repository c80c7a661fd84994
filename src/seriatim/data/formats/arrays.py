"""Array files: NumPy's `.npy` and `.npz`, MATLAB's `.mat`, and IDX, the format of MNIST; compressed or not.

The first axis of an array is the row. (N,T) are N sequences of T numbers, (N,T,F) of T vectors of F numbers, uint8 of
the shape (N,H,W,C) are images, (N,) are labels or numbers; a cell array of MATLAB holds sequences of unequal length.
Object arrays, which are pickles, are refused: nothing here can run code of a file.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, NoReturn

import numpy as np

from ...core import limits
from ...core.errors import Diagnostics, SeriatimError
from ..images import PixelSequence
from ..kinds import Cell
from ..source import Source
from ..stream import COMPRESSED, PIECE_BYTES, ZIP_ERRORS, Location, Stream, check_decompressed, shorten_error
from .base import Format, ReadOptions, Record

EXTENSIONS = ("npy", "npz", "mat", "idx")
IDX_FILE = re.compile(r"idx\d[-_.]u?byte$")
IDX_ROLE = re.compile(r"(?:(train|valid|t10k|test)[-_.])?(images|labels)[-_.]idx\d[-_.]u?byte$")
IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
IDX_SPLITS = {None: "", "train": "train", "valid": "validation", "t10k": "test", "test": "test"}
INPUT_NAMES = ("inputs", "input", "x", "data")
TARGET_NAMES = ("targets", "target", "y", "labels", "label")
PERMUTATION_SEED = 1  # of permuted MNIST
COLORS = (1, 3)  # channels of an image
MAX_AXES = 32

Array = np.ndarray | list[np.ndarray]  # a list is a cell array of MATLAB
Columns = dict[str, Sequence[Cell]]  # column → cells


def is_array_file(stream: Stream) -> bool:
    """Returns whether a file holds arrays, by its name."""
    return stream.extension in EXTENSIONS or IDX_FILE.search(plain_name(stream)) is not None


def plain_name(stream: Stream) -> str:
    """Returns the name of a file in lower case, without folders and the extension of a compression."""
    path = PurePosixPath(stream.name.lower())
    return path.stem if path.suffix in COMPRESSED else path.name


class Arrays(Format):
    """Arrays as columns, one record for each row. Targets may be in a file of their own: `x.npy,y.npy`, or the images
    and labels of IDX. The last twelfth of IDX training images is the validation split if there is none."""

    def sniff(self, source: Source) -> bool:
        return any(is_array_file(stream) for stream in source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        streams = [stream for stream in source.streams if is_array_file(stream)]
        roles = [IDX_ROLE.search(plain_name(stream)) for stream in streams]
        parts: dict[str, list[Stream]] = {}
        for stream, role in zip(streams, roles, strict=True):
            parts.setdefault(IDX_SPLITS[role[1]] if role else "", []).append(stream)
        for split in sorted(parts, key=("", "train", "validation", "test").index):
            columns = self._columns(source, parts[split], diagnostics)
            count = len(next(iter(columns.values())))
            if split and len(parts) > 1:
                columns["split"] = [split] * count
            if split == "train" and "validation" not in parts and source.rows is None and count >= 12:
                held_out = count // 12
                diagnostics.note(f"validation on the last {held_out:,} of the {count:,} training images")
                columns["split"] = ["train"] * (count - held_out) + ["validation"] * held_out
            first, last = (0, count) if source.rows is None else source.rows
            name = parts[split][0].name
            for row in range(first, min(last, count)):
                values = {column: cells[row] for column, cells in columns.items()}
                yield Record(values, Location(name, row + 1, "row"))

    def _columns(self, source: Source, streams: list[Stream], diagnostics: Diagnostics) -> Columns:
        """Returns the columns of files that belong together, all of one length."""
        arrays: dict[str, tuple[str, Array]] = {}  # column → its place in messages, and the array
        for number, stream in enumerate(streams):
            for name, array in load_arrays(stream).items():
                if not name:
                    role = IDX_ROLE.search(plain_name(stream))
                    stem = PurePosixPath(plain_name(stream)).stem if len(streams) > 1 else "inputs"
                    name = {"images": "image", "labels": "label"}[role[2]] if role else stem
                    name = ("inputs", "targets")[min(number, 1)] if source.aligned else name
                    arrays[name] = stream.name, array
                else:
                    arrays[name] = f"{stream.name}/{name}", array
        if "image" in arrays and "label" not in arrays and any(IDX_ROLE.search(plain_name(s)) for s in streams):
            diagnostics.note(f"{streams[0].name}: there are no labels beside it")
        main = self._main_column(arrays)
        where, array = arrays.pop(main)
        count = len(array)
        if not count:
            raise SeriatimError("data.empty", f"{where}: holds no rows", "pass at least one")
        limits.CELLS.check(count, where)
        columns: Columns = {main: input_cells(where, array, bool(source.options.get("permuted")))}
        lengths = {len(cell) for cell in columns[main]} if isinstance(columns[main][0], np.ndarray) else set()
        for name, (place, other) in arrays.items():
            # A vector of MATLAB is (1,N)
            if len(other) == count or (isinstance(other, np.ndarray) and other.shape == (1, count)):
                columns[name] = other_cells(place, other, count, lengths)
            elif name.lower() in TARGET_NAMES or len(arrays) == 1:
                shape = f"{len(other):,} cells" if isinstance(other, list) else f"the shape {other.shape}"
                cause = f"{place}: has {shape}, where {where} has {count:,} rows"
                raise SeriatimError("data.arrays", cause, "give a target for each row")
            else:
                diagnostics.note(f"{place} is left out: it does not have {count:,} rows")
        return columns

    @staticmethod
    def _main_column(arrays: Mapping[str, tuple[str, Array]]) -> str:
        """Returns the column that defines the number of rows: chosen by name, else the first with sequences."""
        named = [name for name in arrays if name.lower() in (*INPUT_NAMES, "image")]
        others = [name for name in arrays if name.lower() not in TARGET_NAMES] or list(arrays)
        sequences = [name for name in others if isinstance(array := arrays[name][1], list) or array.ndim > 1]
        return (named or sequences or others)[0]


# From arrays to cells


def input_cells(where: str, array: Array, permute: bool = False) -> Sequence[Cell]:
    """Returns the rows of an array of inputs: sequences (T,) or (T,F), images (H,W,C), or single numbers."""
    if isinstance(array, list):
        return sequence_cells(where, array)
    if array.dtype.kind in "US":
        return array.reshape(len(array), -1)[:, 0].tolist()
    if array.dtype.kind not in "biuf":
        raise SeriatimError("data.arrays", f"{where}: holds {array.dtype}, not numbers", "pass an array of numbers")
    if array.ndim == 4:
        return image_cells(where, array)
    if array.ndim > 3 or not array.ndim:
        cause = f"{where}: has the shape {array.shape}, where (N,T), (N,T,F) or images (N,H,W,C) are expected"
        raise SeriatimError("data.arrays", cause, "give one row for each sequence")
    if array.ndim == 3 and array.dtype == np.uint8 and IDX_FILE.search(where.lower().partition(".gz")[0]):
        if not permute:
            return [PixelSequence(image) for image in array]
        order = np.argsort(np.random.PCG64(PERMUTATION_SEED).random_raw(array[0].size), kind="stable")
        return list((array.reshape(len(array), -1) / np.float32(255))[:, order, None])
    return array.tolist() if array.ndim == 1 else list(array)


def image_cells(where: str, array: np.ndarray) -> Sequence[np.ndarray]:
    """Returns the images of an array (N,H,W,C) of uint8."""
    if array.dtype != np.uint8:
        cause = (
            f"{where}: holds {array.dtype} of the shape {array.shape}, where images are uint8 of (N,H,W) or (N,H,W,3)"
        )
        raise SeriatimError("data.arrays", cause, "convert and save it again")
    if array.shape[3] not in COLORS:
        cause = f"{where}: has the shape {array.shape}: {array.shape[3]} channels, where 1 or 3 are expected"
        last = "channels come last: array.transpose(0, 2, 3, 1)"
        raise SeriatimError("data.arrays", cause, last if array.shape[1] in COLORS else "pass gray or RGB images")
    return list(array)


def sequence_cells(where: str, cells: list[np.ndarray]) -> list[np.ndarray]:
    """Returns the arrays of a cell array as (T,F); if all are vectors, rows or columns, F is 1."""
    for number, cell in enumerate(cells, 1):
        if cell.dtype.kind not in "biuf":
            cause = f"{where}, cell {number}: holds {cell.dtype}, not numbers"
            raise SeriatimError("data.arrays", cause, "pass cells of numbers")
    if all(cell.ndim == 2 and (min(cell.shape) == 1 or not cell.size) for cell in cells):
        return [cell.reshape(-1, 1) for cell in cells]
    width = cells[0].shape[-1]
    for number, cell in enumerate(cells, 1):
        if cell.ndim != 2 or (cell.size and cell.shape[1] != width):
            cause = f"{where}, cell {number}: has the shape {cell.shape}, where (T,{width}) is expected as in the first"
            raise SeriatimError("data.arrays", cause, "pass cells of one width")
    return [cell.reshape(-1, width) for cell in cells]


def other_cells(where: str, array: Array, count: int, lengths: set[int]) -> Sequence[Cell]:
    """Returns the rows of an array beside the inputs, by its dtype and shape: a label or number, or several.

    Integers of the shape (N,K) are labels: one for each element if all inputs have K elements (`lengths` are those of
    the inputs), else, if they are 0 or 1, the numbers of the columns that hold 1. Floats are numbers.
    """
    if isinstance(array, list):
        return [[str(label) for label in cell[:, 0].tolist()] for cell in sequence_cells(where, array)]
    if array.shape in ((1, count), (count, 1)):
        array = array.reshape(count)
    if array.ndim not in (1, 2) or array.dtype.kind not in "biufUS":
        cause = f"{where}: holds {array.dtype} of the shape {array.shape}, where targets are (N,) or (N,K)"
        raise SeriatimError("data.arrays", cause, "pass labels or numbers")
    if array.ndim == 1 or array.dtype.kind in "fUS":
        return array.astype(str).tolist() if array.dtype.kind in "US" else array.tolist()
    if lengths == {array.shape[1]}:
        return [[str(label) for label in row] for row in array.tolist()]
    if array.min(initial=0) >= 0 and array.max(initial=0) <= 1:
        return [[str(label) for label in np.flatnonzero(row)] for row in array]
    return array.astype(np.float64).tolist()


# Files


def load_arrays(stream: Stream) -> dict[str, Array]:
    """Returns the arrays of a file by name; the only one of `.npy` and IDX has the name ""."""
    data = stream.read_bytes()
    if stream.extension == "npz":
        arrays = load_npz(stream.name, data)
    elif stream.extension == "mat":
        arrays = load_mat(stream.name, data)
    else:
        arrays = {"": load_npy(stream.name, data) if stream.extension == "npy" else load_idx(stream.name, data)}
    for name, array in arrays.items():
        where = f"{stream.name}/{name}" if name else stream.name
        if isinstance(array, list):
            continue
        if not array.ndim:
            raise SeriatimError("data.arrays", f"{where}: holds a single value, no rows", "pass an array of rows")
        if not array.size:
            raise SeriatimError(
                "data.empty", f"{where}: holds no rows with numbers: its shape is {array.shape}", "save some"
            )
        if array.dtype.kind in "US":
            arrays[name] = decode_strings(where, array)
    return arrays


def decode_strings(where: str, array: np.ndarray) -> np.ndarray:
    """Returns an array of bytes or characters as an array of texts, after a check that they are characters."""
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        texts.tolist()
    except (ValueError, SystemError) as error:  # the latter for numbers beyond all characters
        cause = f"{where}: holds texts that are not Unicode ({shorten_error(error)})"
        raise SeriatimError("data.arrays", cause, "save them again") from None
    return texts


def load_npy(name: str, data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # invalid Python literals and dtypes raise many types
        cause = f"{name}: not a .npy file ({shorten_error(error)})"
        raise SeriatimError("data.npy", cause, "save it with numpy.save") from None
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        content = "Python objects (a pickle)" if dtype.hasobject else "records of several fields, or of none"
        raise SeriatimError("data.npy", f"{name}: holds {content}, not numbers", "save arrays of one type of numbers")
    size, needed = len(data) - file.tell(), math.prod(shape) * dtype.itemsize
    if size < needed or min(shape, default=0) < 0 or len(shape) > MAX_AXES or max(shape, default=0) > 1 << 62:
        cause = f"{name}: truncated: {size:,} bytes of numbers, but its shape {shape} needs {needed:,}"
        raise SeriatimError("data.broken", cause, "download or save it again")
    flat = np.frombuffer(data, dtype, math.prod(shape), file.tell())
    return reshape(name, flat, shape, "F" if fortran else "C")


def reshape(where: str, flat: np.ndarray, shape: Sequence[int], order: Literal["C", "F"] = "C") -> np.ndarray:
    """Returns an array in a shape of its size; raises an error if one axis is empty and the others are huge."""
    try:
        return flat.reshape(tuple(shape), order=order)
    except ValueError as error:
        cause = f"{where}: the shape {tuple(shape)} is not possible ({error})"
        raise SeriatimError("data.broken", cause, "download or save it again") from None


def load_npz(name: str, data: bytes) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            size = sum(info.file_size for info in infos)
            check_decompressed(name, size, len(data))
            limits.FILE_BYTES.check(size, name)
            members = {info.filename: archive.read(info) for info in infos}
    except (*ZIP_ERRORS, OSError) as error:
        raise SeriatimError("data.broken", f"{name}: not a readable .npz file ({error})", "save it again") from None
    if not members:
        raise SeriatimError("data.npz", f"{name}: holds no arrays", "save it with numpy.savez")
    return {member[:-4]: load_npy(f"{name}/{member[:-4]}", content) for member, content in members.items()}


def load_idx(name: str, data: bytes) -> np.ndarray:
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX_DTYPES or not 1 <= data[3] <= 4:
        begin = data[:4].hex() or "nothing"
        cause = f"{name}: not an IDX file: begins with {begin}, not with 00000803 (images) or 00000801 (labels)"
        raise SeriatimError("data.idx", cause, "pass a .npy, .npz, .mat or IDX file")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise SeriatimError("data.broken", f"{name}: truncated within its shape", "download it again")
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    dtype = np.dtype(IDX_DTYPES[data[2]])
    needed = math.prod(shape) * dtype.itemsize
    if len(data) - start != needed:
        cause = f"{name}: {len(data) - start:,} bytes of numbers, but its shape {shape} needs {needed:,}"
        raise SeriatimError("data.broken", cause, "download it again")
    return reshape(name, np.frombuffer(data, dtype, offset=start), shape)


def load_mat(name: str, data: bytes) -> dict[str, Array]:
    """Returns the numeric arrays of a MATLAB file of level 5, and its cell arrays of numbers as lists."""
    content = read_mat(name, data)
    if not content.arrays:
        others = ", ".join(f"{variable} is {kind}" for variable, kind in content.others.items()) or "it is empty"
        raise SeriatimError("data.mat", f"{name}: holds no numbers ({others})", "save the numbers as a matrix")
    return dict(content.arrays)


# MATLAB files of level 5 (`save -v6`, `-v7`, scipy's `savemat`): numeric arrays, and cell arrays of them.
#
# A file is a header of 128 bytes and a row of elements, each with a tag (type and size), padded to eight bytes. An
# element is a matrix, or a matrix compressed by zlib. A matrix is a row of elements again: flags, shape, name, numbers.
#
# The reader is our own, with every size checked: `scipy.io.loadmat` 1.17 ended the process by a segmentation fault on
# 44 of 1,500 files with one to four changed bytes. The tests compare both on undamaged files.

HEADER_SIZE = 128
MATRIX, COMPRESSED_MATRIX = 14, 15
NUMBER_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CELL_CLASS = 1
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
OTHER_CLASSES = {2: "a struct", 3: "an object", 4: "text", 5: "a sparse matrix", 16: "a function", 17: "an object"}
LOGICAL_FLAG, COMPLEX_FLAG = 2, 8


@dataclass(frozen=True)
class MatFile:
    """The variables of a file by name; a cell array is a list. `others` describes each other variable."""

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
        if element.type == COMPRESSED_MATRIX:
            where += ", decompressed"
            content_bytes = memoryview(_decompress(name, where, element.data, len(data)))
            element = _next(where, _elements(where, content_bytes, 0, order))
        if element.type != MATRIX:
            _damaged(where, f"an element of type {element.type} instead of a variable")
        variable, value = _variable(where, element.data, order)
        if isinstance(value, str):
            content.others[variable] = value
        else:
            content.arrays[variable] = value
    content.others.pop("", None)  # where functions and objects store their own data
    return content


def _decompress(name: str, where: str, data: memoryview, size: int) -> bytes:
    """Returns the decompressed contents of an element of a file of `size` bytes, within the limits."""
    decompressor, pieces, total = zlib.decompressobj(), [], 0
    try:
        while not decompressor.eof:
            piece = decompressor.decompress(data, PIECE_BYTES)
            data = memoryview(decompressor.unconsumed_tail)
            if not piece and not data:
                _damaged(where, "its compressed data is incomplete")
            pieces.append(piece)
            total += len(piece)
            check_decompressed(name, total, size)
            limits.FILE_BYTES.check(total, name)
    except zlib.error as error:
        _damaged(where, str(error))
    return b"".join(pieces)


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


def _variable(
    where: str, data: memoryview, order: str, is_cell: bool = False
) -> tuple[str, np.ndarray | list[np.ndarray] | str]:
    """Returns the name of a matrix with its size, the sizes of its cells, or its type."""
    elements = _elements(where, data, 0, order)
    flags = _numbers(where, next(elements, None), order)
    shape = [int(length) for length in _numbers(where, next(elements, None), order)]
    name = _next(where, elements).data.tobytes().decode("latin-1")
    if len(flags) < 1 or not 2 <= len(shape) <= MAX_AXES or min(shape) < 0:
        _damaged(where, "a variable without a shape")
    class_code, marks = int(flags[0]) & 0xFF, int(flags[0]) >> 8
    try:
        if class_code == CELL_CLASS and is_cell:
            raise _OtherVariableError("a cell array")
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
        return name, reshape(where, numbers.astype(dtype), shape, "F")


def _cell(where: str, element: _Element, order: str) -> np.ndarray:
    if element.type != MATRIX:
        _damaged(where, f"an element of type {element.type} instead of a cell")
    if not len(element.data):
        return np.zeros((0, 0))
    _, value = _variable(f"{where}, cell at {element.position}", element.data, order, is_cell=True)
    if not isinstance(value, np.ndarray):
        raise _OtherVariableError(f"a cell array that holds {value}")
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
        if type_code != COMPRESSED_MATRIX:
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


def _damaged(where: str, reason: str) -> NoReturn:
    raise SeriatimError("data.mat", f"{where}: the file is damaged: {reason}", "download or save it again")
