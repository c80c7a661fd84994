"""Array files: .npy, .npz, .mat and IDX as columns, targets by dtype and shape, and damaged files."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats import ReadOptions, read_records
from seriatim.data.formats.arrays import is_array_file, load_arrays, read_mat
from seriatim.data.images import PixelSequence
from seriatim.data.source import Stream, open_source
from task_helpers import prepare_splits, refused

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = st.sampled_from([np.uint8, np.int8, np.int16, np.uint16, np.int32, np.float32, np.float64])
X = np.arange(12.0).reshape(3, 4)


def records(source: Any, **options: Any) -> list[dict[str, Any]]:
    opened = open_source(str(source))
    return [record.values for record in read_records(opened, ReadOptions(**options), Diagnostics())]


def load(path: Path) -> dict[str, Any]:
    (stream,) = open_source(str(path)).streams
    return load_arrays(stream)


# Arrays as cells


@FUZZ
@given(
    array=hnp.arrays(DTYPES, hnp.array_shapes(min_dims=2, max_dims=3, max_side=5)),
    fortran=st.booleans(),
    compressed=st.booleans(),
)
def test_npy_rows(array: np.ndarray, fortran: bool, compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.asfortranarray(array) if fortran else array)
    if compressed:
        path = tmp_path / "x.npy.gz"
        path.write_bytes(gzip.compress((tmp_path / "x.npy").read_bytes()))
    rows = records(path)
    assert len(rows) == len(array)
    for row, values in zip(array, rows, strict=True):
        np.testing.assert_array_equal(values["inputs"], row)


@pytest.mark.parametrize(
    ("targets", "cells"),
    [
        (np.array([2, 0, 1]), [2, 0, 1]),
        (np.array([[2], [0], [1]], np.uint8), [2, 0, 1]),
        (np.array([[2, 0, 1]]), [2, 0, 1]),
        (np.array(["b", "a", "ü"]), ["b", "a", "ü"]),
        (np.array([0.5, 1, 2]), [0.5, 1.0, 2.0]),
        (np.array([[0.5, 1], [2, 3], [4, 5]]), [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]),
        (np.array([[0, 1], [1, 1], [0, 0]]), [["1"], ["0", "1"], []]),  # the labels that apply
        (np.array([[0, 7], [1, 1], [0, 0]]), [[0.0, 7.0], [1.0, 1.0], [0.0, 0.0]]),
        (np.arange(12).reshape(3, 4), [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9", "10", "11"]]),
    ],
)
def test_targets_by_dtype_and_shape(targets: np.ndarray, cells: list[Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", x=X, y=targets)
    rows = records(tmp_path / "both.npz")
    assert [row["y"] for row in rows] == cells
    np.testing.assert_array_equal(np.stack([row["x"] for row in rows]), X)


def test_targets_in_a_file_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(240.0).reshape(40, 6))
    np.save(tmp_path / "y.npy", np.arange(40) % 2)
    task, _ = prepare_splits("classify", f"{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}")
    assert task.processor.labels == ("0", "1")
    assert task.processor.input.longest == 6
    np.savez(tmp_path / "both.npz", a=np.arange(240.0).reshape(40, 6), b=np.arange(40.0))
    _, splits = prepare_splits("regress", tmp_path / "both.npz", columns={"input": "a", "target": "b"})
    assert splits["train"].items.targets.shape == (32, 1)
    refused("data.column", name="classify", data=tmp_path / "x.npy")


def test_cells_are_sequences_of_unequal_length(tmp_path: Path) -> None:
    for cells, lengths, width in (
        ([np.ones((1, 3)), np.ones((5, 1))], [3, 5], 1),
        ([np.ones((3, 2)), np.ones((1, 2)), np.zeros((0, 0))], [3, 1, 0], 2),
    ):
        boxes = np.empty((1, len(cells)), object)
        boxes[0, :] = cells
        scipy.io.savemat(tmp_path / "x.mat", {"x": boxes, "y": np.arange(len(cells))})
        rows = records(tmp_path / "x.mat")
        assert [row["x"].shape for row in rows] == [(length, width) for length in lengths]
        assert [row["y"] for row in rows] == list(range(len(cells)))


def test_arrays_of_images(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (40, 10, 12, 3), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", x=values, y=np.arange(40) % 2)
    _, splits = prepare_splits("classify", tmp_path / "set.npz")
    images = splits["train"].items.inputs
    assert images.shape == (3, 10, 12)
    row = splits["train"].rows.locations[0].number - 1
    assert np.array_equal(images[0], values[row])
    np.savez(tmp_path / "gray.npz", x=values[..., 0], y=np.arange(40) % 2)
    _, splits = prepare_splits("classify", tmp_path / "gray.npz", settings={"input_kind": "image"})
    assert splits["train"].items.inputs.shape == (1, 10, 12)
    assert (
        prepare_splits("classify", tmp_path / "gray.npz")[0].processor.input.width == 12
    )  # ten steps of twelve numbers
    np.savez(tmp_path / "first.npz", x=values.transpose(0, 3, 1, 2), y=np.arange(40) % 2)
    refused("data.arrays", "12 channels", "transpose", name="classify", data=tmp_path / "first.npz")


# IDX


def idx(array: np.ndarray, code: int = 8) -> bytes:
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_digits(folder: Path, count: int = 60, compressed: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Writes the four files of MNIST in small."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count + 6, 3, 2), dtype=np.uint8)
    labels = np.arange(count + 6, dtype=np.uint8) % 5
    for split, rows in (("train", slice(0, count)), ("t10k", slice(count, None))):
        for name, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            data = idx(array[rows])
            path = folder / f"{split}-{name}-ubyte{'.gz' if compressed else ''}"
            path.write_bytes(gzip.compress(data) if compressed else data)
    return pixels, labels


@pytest.mark.parametrize("compressed", [True, False])
def test_folder_of_idx_files(compressed: bool, tmp_path: Path) -> None:
    pixels, labels = write_digits(tmp_path / "digits", compressed=compressed)
    diagnostics = Diagnostics()
    _, parts = prepare_splits("classify", tmp_path / "digits", diagnostics=diagnostics)
    splits = [parts[name].rows for name in ("train", "validation", "test")]
    assert [len(split) for split in splits] == [55, 5, 6]
    rows = np.concatenate([cell for split in splits for cell in split["input"]]).reshape(66, 6)
    assert np.array_equal(rows, (pixels / np.float32(255)).reshape(66, 6))
    assert [label for split in splits for label in split["target"]] == [str(label) for label in labels]
    assert any("validation on the last 5 of the 60 training images" in note for note in diagnostics.notes)
    name = f"train-images-idx3-ubyte{'.gz' if compressed else ''}"
    assert str(splits[1].locations[0]) == f"digits/{name}, row 56"


def test_images_or_sequences_of_pixels(tmp_path: Path) -> None:
    write_digits(tmp_path / "digits")
    _, splits = prepare_splits("classify", tmp_path / "digits")
    sequences = splits.train.items.inputs
    _, splits = prepare_splits("classify", tmp_path / "digits", {"name": "resnet", "width": 4})
    images = splits.train.items.inputs
    assert images.shape == (1, 3, 2)
    assert np.allclose(images[3].ravel() / np.float32(255), sequences[3].ravel())
    _, splits = prepare_splits("classify", tmp_path / "digits", settings={"input_kind": "image"})
    assert splits["train"].items.inputs.shape == (1, 3, 2)


def test_permuted_pixels(tmp_path: Path) -> None:
    write_digits(tmp_path / "digits")
    plain = open_source(str(tmp_path / "digits"))
    from dataclasses import replace

    permuted = replace(plain, options={"permuted": "true"})
    options, diagnostics = ReadOptions(), Diagnostics()
    pairs = zip(read_records(plain, options, diagnostics), read_records(permuted, options, diagnostics), strict=True)
    order = np.argsort(np.random.PCG64(1).random_raw(6), kind="stable")
    assert order.tolist() != sorted(order)
    for record, other in pairs:
        assert isinstance(record.values["image"], PixelSequence)
        np.testing.assert_array_equal(np.asarray(record.values["image"])[order], other.values["image"])


def test_labels_must_be_beside_the_images(tmp_path: Path) -> None:
    write_digits(tmp_path / "digits")
    for path in (tmp_path / "digits").glob("*labels*"):
        path.unlink()
    refused("data.column", "target", name="classify", data=tmp_path / "digits")


# Files


def test_names_of_array_files() -> None:
    def stream(name: str) -> Stream:
        (opened,) = open_source_stub(name)
        return opened

    def open_source_stub(name: str) -> list[Stream]:
        from seriatim.data.stream import file_extension

        return [Stream(name, file_extension(name), lambda: None)]  # type: ignore[arg-type, return-value]

    for name in ("x.npy", "x.NPZ", "x.mat.gz", "train-images-idx3-ubyte", "t10k-labels.idx1-ubyte.gz", "x.idx"):
        assert is_array_file(stream(name)), name
    for name in ("x.csv", "npy", "x.txt.gz", "ubyte"):
        assert not is_array_file(stream(name)), name


def assert_same(ours: Any, theirs: np.ndarray) -> None:
    assert ours.dtype == theirs.dtype.newbyteorder("=")
    assert ours.shape == theirs.shape
    assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")


@FUZZ
@given(
    whole=hnp.arrays(DTYPES, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)),
    cells=st.lists(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4)), max_size=4),
    compressed=st.booleans(),
    logical=st.booleans(),
)
def test_mat_as_scipy_reads_it(
    whole: np.ndarray, cells: list[np.ndarray], compressed: bool, logical: bool, tmp_path: Path
) -> None:
    boxes = np.empty((1, len(cells)), object)
    for number, cell in enumerate(cells):
        boxes[0, number] = cell
    content: dict[str, Any] = {"whole": whole > 0 if logical else whole, "a_rather_long_name": boxes, "text": "abc"}
    scipy.io.savemat(tmp_path / "x.mat", content, do_compression=compressed)
    expected = scipy.io.loadmat(tmp_path / "x.mat", mat_dtype=True)
    result = read_mat("x.mat", (tmp_path / "x.mat").read_bytes())
    assert result.others == {"text": "text"}
    assert_same(result.arrays["whole"], expected["whole"])
    theirs = expected["a_rather_long_name"].ravel()
    for ours, other in zip(result.arrays["a_rather_long_name"], theirs, strict=True):
        assert_same(ours, other)


@pytest.mark.parametrize(
    ("kind", "code", "value"),
    [
        ("b", 1, -5),
        ("B", 2, 250),
        ("h", 3, -500),
        ("H", 4, 65_000),
        ("i", 5, -70_000),
        ("I", 6, 4e9),
        ("f", 7, 2.5),
        ("d", 9, 0.1),
        ("q", 12, -(2**40)),
        ("Q", 13, 2**40),
    ],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_mat_of_any_byte_order_and_number_type(kind: str, code: int, value: float, order: str, tmp_path: Path) -> None:
    """A matrix (1,1) of doubles, stored in a smaller type as MATLAB does, by machines of both byte orders."""
    number = struct.pack(order + kind, value if kind in "fd" else int(value))
    body = struct.pack(f"{order}IIII", 6, 8, 6, 0) + struct.pack(f"{order}IIii", 5, 8, 1, 1)
    body += struct.pack(f"{order}I", 1 << 16 | 1) + b"x\0\0\0"  # a name short enough for the tag
    body += struct.pack(f"{order}II", code, len(number)) + number.ljust(8, b"\0")
    mark = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
    data = b"MATLAB 5.0".ljust(124) + mark + struct.pack(f"{order}II", 14, len(body)) + body
    (tmp_path / "x.mat").write_bytes(data)
    result = read_mat("x.mat", data).arrays["x"]
    assert_same(result, scipy.io.loadmat(tmp_path / "x.mat", mat_dtype=True)["x"])
    assert result == [[value]]


def test_variables_of_mat_files_that_are_no_numbers(tmp_path: Path) -> None:
    box, nest = np.empty((1, 1), object), np.empty((1, 1), object)
    box[0, 0] = {"a": 1}
    nest[0, 0] = np.empty((1, 1), object)
    nest[0, 0][0, 0] = np.ones((1, 1))
    sparse = scipy.sparse.csc_matrix(np.eye(2))
    content = {"s": {"a": 1}, "c": np.ones((1, 1)) * 1j, "box": box, "nest": nest, "sparse": sparse}
    scipy.io.savemat(tmp_path / "x.mat", content)
    assert read_mat("x.mat", (tmp_path / "x.mat").read_bytes()).others == {
        "s": "a struct",
        "c": "of complex numbers",
        "box": "a cell array that holds a struct",
        "nest": "a cell array that holds a cell array",
        "sparse": "a sparse matrix",
    }
    with pytest.raises(SeriatimError, match=r"holds no numbers .*s is a struct") as error:
        load(tmp_path / "x.mat")
    assert error.value.code == "data.mat"


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, [1, 2], r"both.npz/y: has the shape \(2,\), where both.npz/x has 3 rows"),
        (X[:0], [], "holds no rows"),
        (X * 1j, [1, 2, 3], "holds complex128, not numbers"),
        (X, np.ones(3) * 1j, "holds complex128"),
        (np.ones((2, 3, 2, 2, 2)), [1, 2], "has the shape"),
        (np.ones((2, 3, 2, 3)), [1, 2], "images are uint8"),
        (np.array([{}, 1]), [1], r"both.npz/x: holds Python objects \(a pickle\)"),
        (np.zeros(2, [("a", "f4")]), [1], "records of several fields"),
    ],
)
def test_bad_arrays(x: Any, y: Any, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", x=x, y=y)
    with pytest.raises(SeriatimError, match=message) as caught:
        records(tmp_path / "both.npz")
    assert caught.value.remedy


def test_missing_numbers_are_named(tmp_path: Path) -> None:
    values = np.ones((20, 3, 2))
    values[1, 2, 0] = np.nan
    np.savez(tmp_path / "x.npz", x=values, y=np.arange(20) % 2)
    refused("data.number", "x.npz, row 2", "step 3", name="classify", data=tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", x=np.ones((20, 3)), y=np.where(np.arange(20) == 2, np.nan, 1.0))
    refused("data.number", "y.npz, row 3", "missing", name="regress", data=tmp_path / "y.npz")


def make_mat(folder: Path, **options: Any) -> bytes:
    boxes = np.empty((1, 2), object)
    boxes[0, :] = [np.eye(3), np.ones((2, 3))]
    scipy.io.savemat(folder / "good.mat", {"x": boxes, "y": np.arange(2)}, **options)
    return (folder / "good.mat").read_bytes()


def make_npy(folder: Path) -> bytes:
    np.save(folder / "good.npy", X)
    return (folder / "good.npy").read_bytes()


def make_npz(folder: Path) -> bytes:
    np.savez_compressed(folder / "good.npz", x=X, y=np.arange(3))
    return (folder / "good.npz").read_bytes()


MAKERS: dict[str, Callable[[Path], bytes]] = {
    "x.npy": make_npy,
    "x.npz": make_npz,
    "x.mat": make_mat,
    "compressed.mat": lambda folder: make_mat(folder, do_compression=True),
    "x.npy.gz": lambda folder: gzip.compress(make_npy(folder)),
    "x-idx3-ubyte": lambda folder: idx(np.ones((3, 2, 2), np.uint8)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_truncated_files(name: str, tmp_path: Path) -> None:
    whole, path = MAKERS[name](tmp_path), tmp_path / name
    path.write_bytes(whole)
    expected = load(path)
    for size in range(0, len(whole), 3):
        path.write_bytes(whole[:size])
        try:
            arrays = load(path)
        except SeriatimError as error:
            assert name in error.cause  # noqa: PT017
        else:  # truncated between two variables, or behind the numbers
            assert name.endswith((".mat", ".gz"))
            first = next(iter(arrays))
            np.testing.assert_array_equal(np.concatenate(arrays[first]), np.concatenate(expected[first]))


@FUZZ
@given(name=st.sampled_from(sorted(MAKERS)), changes=st.dictionaries(st.integers(0, 9_999), st.integers(0, 255)))
def test_changed_bytes(name: str, changes: dict[int, int], tmp_path: Path) -> None:
    data = bytearray(MAKERS[name](tmp_path))
    for position, value in changes.items():
        data[position % len(data)] = value
    (tmp_path / name).write_bytes(data)
    try:
        records(tmp_path / name)
    except SeriatimError as error:
        assert error.cause  # noqa: PT017


def test_files_of_other_formats(tmp_path: Path) -> None:
    for name, data, message in (
        ("a.mat", b"MATLAB 7.3 MAT-file".ljust(600), "level 7.3"),
        ("b.mat", b"\0\0\0\0" * 100, "not a MATLAB file of level 5"),
        ("c.idx", b"\0\0\x07\x03" + bytes(20), "c.idx: not an IDX file: begins with 00000703"),
        ("d.idx", idx(np.ones((3, 2, 2), np.uint8)) + b"\0", "13 bytes of numbers, but its shape"),
        ("e.npy", b"PK", "not a .npy file"),
        ("f.npy.gz", b"plain", "damaged"),
        ("g.npz", b"plain", "not a readable .npz file"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(SeriatimError, match=message):
            load(tmp_path / name)
    with pytest.raises(SeriatimError, match="there is no file"):
        records(tmp_path / "nowhere.npy")
