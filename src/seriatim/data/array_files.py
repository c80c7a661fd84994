"""Files of arrays: NumPy's `.npy` and `.npz`, MATLAB's `.mat`, and IDX, the form of MNIST; each also as `.gz`.

Nothing here can run code of the file's: object arrays, which are pickles, are refused.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from seriatim.core.errors import SeriatimError

from .mat import read_mat
from .sources import reading

IDX = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
# What the reader of archives may raise at a damaged one, besides its own error.
PACKED_WRONG = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)

Array = np.ndarray | list[np.ndarray]  # a list is a cell of MATLAB's


def is_arrays(path: str | Path) -> bool:
    """Whether a file is one of arrays, by its name."""
    name = Path(path).name.lower().removesuffix(".gz")
    return name.endswith((".npy", ".npz", ".mat", ".idx")) or re.search(r"idx\d[-_.]u?byte$", name) is not None


def load_arrays(path: Path, pixels: bool = False) -> dict[str, Array]:
    """The arrays of a file by name; the only one of `.npy` and IDX has the name "". `pixels`: images stay images."""
    try:
        with reading(str(path)):
            data = gzip.decompress(path.read_bytes()) if path.suffix.lower() == ".gz" else path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise SeriatimError("data.missing", f"there is no file {path}", "check the path") from None
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".npz"):
        return _npz(path.name, data)
    if name.endswith(".mat"):
        found = read_mat(path.name, data)
        if not found.arrays:
            what = ", ".join(f"{key} is {kind}" for key, kind in found.others.items()) or "it is empty"
            raise SeriatimError("data.mat", f"{path.name}: holds no numbers ({what})", "save the numbers as a matrix")
        return dict(found.arrays)
    return {"": _npy(path.name, data) if name.endswith(".npy") else _idx(path.name, data, pixels)}


def _npy(name: str, data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(stream)
    except (ValueError, EOFError, TypeError, SyntaxError, tokenize.TokenError) as error:
        raise SeriatimError("data.npy", f"{name}: not a .npy file ({error})", "save it with numpy.save") from None
    if dtype.hasobject or dtype.names:
        kind = "Python objects (a pickle)" if dtype.hasobject else "records of several fields"
        raise SeriatimError("data.npy", f"{name}: holds {kind}, not numbers", "save arrays of one kind of numbers")
    here, wanted = len(data) - stream.tell(), math.prod(shape) * dtype.itemsize
    if here < wanted or min(shape, default=0) < 0:
        cause = f"{name}: breaks off: {here:,} bytes of numbers where its shape {shape} needs {wanted:,}"
        raise SeriatimError("data.broken", cause, "fetch or save it again")
    flat = np.frombuffer(data, dtype, math.prod(shape), stream.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def _npz(name: str, data: bytes) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {member: archive.read(member) for member in archive.namelist() if member.endswith(".npy")}
    except PACKED_WRONG as error:
        raise SeriatimError("data.broken", f"{name}: not a readable .npz file ({error})", "save it again") from None
    if not members:
        raise SeriatimError("data.npz", f"{name}: holds no arrays", "save it with numpy.savez")
    return {member[:-4]: _npy(f"{name}/{member[:-4]}", content) for member, content in members.items()}


def _idx(name: str, data: bytes, pixels: bool) -> np.ndarray:
    """An image becomes a row of its pixels from 0 to 1, or stays one of 8 bits."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX or not 1 <= data[3] <= 4:
        begin = data[:4].hex() or "nothing"
        cause = f"{name}: not an IDX file: begins with {begin}, not with 00000803 (images) or 00000801 (labels)"
        raise SeriatimError("data.idx", cause, "give a .npy, .npz, .mat or IDX file")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise SeriatimError("data.broken", f"{name}: breaks off within its shape", "fetch it again")
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    dtype = np.dtype(IDX[data[2]])
    if len(data) - start != math.prod(shape) * dtype.itemsize:
        wanted = math.prod(shape) * dtype.itemsize
        cause = f"{name}: {len(data) - start:,} bytes of numbers where its shape {shape} needs {wanted:,}"
        raise SeriatimError("data.broken", cause, "fetch it again")
    numbers = np.frombuffer(data, dtype, offset=start).reshape(shape)
    if len(shape) == 3 and dtype == np.uint8 and not pixels:
        return numbers.reshape(shape[0], -1) / np.float32(255)
    return numbers
