"""Generated problems, and arrays from files: .npy, .npz, .mat against scipy, IDX; and that damage is told."""

import gzip
import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seriatim.core.errors import SeriatimError
from seriatim.data import arrays, catalogue, generated
from seriatim.data.array_files import is_arrays, load_arrays
from seriatim.data.arrays import permuted, read_arrays
from seriatim.data.mat import read_mat
from seriatim.data.sequences import Examples, Sequences

NUMBERS = st.sampled_from(["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
IN_PLACE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def digest(*some: np.ndarray) -> str:
    return hashlib.sha256(b"".join(one.tobytes() for one in some)).hexdigest()[:16]


def steps(examples: Examples) -> np.ndarray:
    """(n,T,F) or (n,T) of sequences of one length."""
    assert isinstance(examples.inputs, Sequences)
    values = examples.inputs.values
    return values.reshape(len(examples), -1, *values.shape[1:])


def test_adding_is_the_sum_of_one_marked_number_in_each_half() -> None:
    made = generated.parts("adding:7")
    assert made is not None
    assert [len(made.train), len(made.valid), len(made.test)] == [50_000, 1_000, 1_000]
    assert made.features == ("value", "marker")
    for part in (made.train, made.valid, made.test):
        block = steps(part)
        assert block.shape[1:] == (7, 2)
        assert (block[:, :3, 1].sum(axis=1) == 1).all()
        assert (block[:, 3:, 1].sum(axis=1) == 1).all()
        assert np.isin(block[..., 1], (0, 1)).all()
        assert block[..., 0].min() >= 0
        assert block[..., 0].max() < 1
        np.testing.assert_allclose(part.targets, (block[..., 0] * block[..., 1]).sum(axis=1), atol=1e-6)
    marked = steps(made.train)[..., 1].sum(axis=0)  # each place of a half as often as the others
    np.testing.assert_allclose(marked[:3], 50_000 / 3, rtol=0.03)
    np.testing.assert_allclose(marked[3:], 50_000 / 4, rtol=0.03)
    assert np.var(made.train.targets) == pytest.approx(1 / 6, rel=0.02)
    assert made.train.place(6) == "adding:7, train, example 7"


def test_copy_is_ten_symbols_to_say_again() -> None:
    made = generated.parts("copy:5")
    assert made is not None
    assert [len(made.train), len(made.valid), len(made.test)] == [10_000, 500, 1_000]
    assert made.symbols == tuple("0123456789")
    block = steps(made.test)
    assert isinstance(made.test.targets, Sequences)
    wanted = made.test.targets.values.reshape(1_000, 25)
    assert block.dtype == wanted.dtype == np.int64
    assert set(np.unique(block[:, :10])) == set(range(1, 9))
    assert (block[:, 10:14] == 0).all()
    assert (block[:, 14:] == 9).all()
    assert (wanted[:, :15] == 0).all()
    assert (wanted[:, 15:] == block[:, :10]).all()


def test_default_lengths_are_those_of_the_paper() -> None:
    copied = generated.parts("copy")
    assert copied is not None
    assert steps(copied.valid).shape == (500, 1_020)
    assert "600" in catalogue.ENTRIES["adding"].summary


def test_generated_numbers_are_the_same_everywhere() -> None:
    adding, copied = generated.parts("adding:10"), generated.parts("copy:10")
    assert adding is not None
    assert copied is not None
    assert digest(steps(adding.train), steps(adding.valid), steps(adding.test)) == "30406cc2335351c7"
    assert digest(steps(copied.train), steps(copied.valid), steps(copied.test)) == "68c2c9ec1befe593"
    assert not np.array_equal(steps(adding.valid), steps(adding.test))
    assert generated.parts("adding:10").fingerprint == adding.fingerprint  # type: ignore[union-attr]
    assert generated.parts("adding:11").fingerprint != adding.fingerprint  # type: ignore[union-attr]
    np.testing.assert_allclose(
        generated.sine()[[0, 0, 9_999], [0, 50, 25]], [0.36213502, -0.1428908, -0.1648166], atol=1e-6
    )


def test_sine_is_two_waves_and_small_noise() -> None:
    series = generated.sine()
    assert series.shape == (10_000, 51)
    assert series.dtype == np.float32
    assert np.array_equal(series, generated.sine())
    # Waves of at most 20 and 40 radians a unit of time are smooth; what second differences of them leave is noise.
    assert np.abs(series).max() < 0.75
    assert series.std() == pytest.approx(np.sqrt(0.5**2 / 2 + 0.2**2 / 2 + 0.01 / 12), rel=0.01)
    fourth = np.diff(generated.sine(steps=5_001, count=20), n=4, axis=1)
    assert (fourth**2).mean() / 70 == pytest.approx(0.01 / 12, rel=0.02)  # 1+16+36+16+1 = 70


@pytest.mark.parametrize("name", ["adding:x", "adding:", "adding:1", "copy:0", "copy:99999999999999", "adding:²"])
def test_wrong_length(name: str) -> None:
    with pytest.raises(SeriatimError, match="length") as caught:
        generated.parts(name)
    assert caught.value.code == "data.length"


def test_other_names_are_not_generated() -> None:
    assert generated.parts("names") is None
    assert generated.parts("reviews.csv") is None
    with pytest.raises(SeriatimError, match="seriatim train regress --data adding"):
        catalogue.get("adding")


# ---------------------------------------------------------------------------------------------------- files of arrays


@IN_PLACE
@given(
    array=hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=2, max_dims=3, max_side=5)).filter(
        lambda array: bool((np.abs(array.astype(np.float64)) < 1e38).all())
    ),
    fortran=st.booleans(),
    packed=st.booleans(),
)
def test_npy_becomes_sequences(array: np.ndarray, fortran: bool, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.asfortranarray(array) if fortran else array)
    if packed:
        path = tmp_path / "x.npy.gz"
        path.write_bytes(gzip.compress((tmp_path / "x.npy").read_bytes()))
    found, none = read_arrays(path)
    assert none is None
    assert found.values.dtype == np.float32
    assert found.lengths.tolist() == [array.shape[1]] * len(array)
    for row, wanted in enumerate(array):
        assert np.array_equal(found[row], wanted.reshape(array.shape[1], -1).astype(np.float32))


@IN_PLACE
@given(
    whole=hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)),
    cells=st.lists(hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4)), max_size=4),
    packed=st.booleans(),
    logical=st.booleans(),
)
def test_mat_is_what_scipy_reads(
    whole: np.ndarray, cells: list[np.ndarray], packed: bool, logical: bool, tmp_path: Path
) -> None:
    path = tmp_path / "x.mat"
    boxes = np.empty((1, len(cells)), object)
    for number, cell in enumerate(cells):
        boxes[0, number] = cell
    written: dict[str, Any] = {"whole": whole > 0 if logical else whole, "a_rather_long_name": boxes, "text": "abc"}
    scipy.io.savemat(path, written, do_compression=packed)
    wanted = scipy.io.loadmat(path, mat_dtype=True)
    found = read_mat("x.mat", path.read_bytes())
    assert found.others == {"text": "text"}
    same(found.arrays["whole"], wanted["whole"])
    for mine, theirs in zip(found.arrays["a_rather_long_name"], wanted["a_rather_long_name"].ravel(), strict=True):
        same(mine, theirs)


def same(mine: Any, theirs: np.ndarray) -> None:
    assert mine.dtype == theirs.dtype.newbyteorder("=")
    assert mine.shape == theirs.shape
    assert np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f")


@pytest.mark.parametrize(
    ("kind", "code", "value"),
    [("b", 1, -5), ("B", 2, 250), ("h", 3, -500), ("H", 4, 65_000), ("i", 5, -70_000), ("I", 6, 4e9), ("f", 7, 2.5),
     ("d", 9, 0.1), ("q", 12, -(2**40)), ("Q", 13, 2**40)],
)  # fmt: skip
@pytest.mark.parametrize("order", ["<", ">"])
def test_mat_of_any_machine_and_kind_of_numbers(kind: str, code: int, value: float, order: str, tmp_path: Path) -> None:
    """A matrix (1,1) of doubles, kept in a smaller kind of numbers as MATLAB does, by machines of both orders."""
    number = struct.pack(order + kind, value if kind in "fd" else int(value))
    body = struct.pack(f"{order}IIII", 6, 8, 6, 0) + struct.pack(f"{order}IIii", 5, 8, 1, 1)
    body += struct.pack(f"{order}I", 1 << 16 | 1) + b"x\0\0\0"  # a name short enough for the tag
    body += struct.pack(f"{order}II", code, len(number)) + number.ljust(8, b"\0")
    mark = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
    data = b"MATLAB 5.0".ljust(124) + mark + struct.pack(f"{order}II", 14, len(body)) + body
    (tmp_path / "x.mat").write_bytes(data)
    same(read_mat("x.mat", data).arrays["x"], scipy.io.loadmat(tmp_path / "x.mat", mat_dtype=True)["x"])
    assert read_mat("x.mat", data).arrays["x"] == [[value]]


def test_mat_says_what_it_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    box = np.empty((1, 1), object)
    box[0, 0] = {"a": 1}
    nest = np.empty((1, 1), object)
    nest[0, 0] = np.empty((1, 1), object)
    nest[0, 0][0, 0] = np.ones((1, 1))
    sparse = scipy.sparse.csc_matrix(np.eye(2))
    written = {"s": {"a": 1}, "c": np.ones((1, 1)) * 1j, "box": box, "nest": nest, "sparse": sparse}
    scipy.io.savemat(path, written)
    assert read_mat("x.mat", path.read_bytes()).others == {
        "s": "a struct",
        "c": "of complex numbers",
        "box": "a cell that holds a struct",
        "nest": "a cell of cells",
        "sparse": "a sparse matrix",
    }
    with pytest.raises(SeriatimError, match=r"holds no numbers .*s is a struct"):
        load_arrays(path)


REAL = os.environ.get("SERIATIM_REAL_DATA")


@pytest.mark.skipif(REAL is None, reason="needs a local copy of the data sets")
@pytest.mark.parametrize("name", ["JSB_Chorales", "Nottingham"])
def test_real_mat_is_what_scipy_reads(name: str) -> None:
    path = Path(str(REAL), "polyphonic", f"{name}.mat")
    wanted = scipy.io.loadmat(path, mat_dtype=True)
    found = read_mat(path.name, path.read_bytes()).arrays
    assert set(found) == {"traindata", "validdata", "testdata"}
    for key, cells in found.items():
        for mine, theirs in zip(cells, wanted[key].ravel(), strict=True):
            same(mine, theirs)


@pytest.mark.skipif(REAL is None, reason="needs a local copy of the data sets")
def test_real_mnist() -> None:
    plain, other = arrays.parts("mnist", REAL), arrays.parts("pmnist", REAL)
    assert plain is not None
    assert other is not None
    assert [len(plain.train), len(plain.valid), len(plain.test)] == [55_000, 5_000, 10_000]
    assert np.bincount([int(label) for label in plain.test.targets or []]).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert steps(plain.test).shape == (10_000, 784, 1)
    assert steps(plain.train).max() == 1
    assert np.array_equal(np.sort(steps(plain.test), axis=1), np.sort(steps(other.test), axis=1))
    assert not np.array_equal(steps(plain.test), steps(other.test))


def idx(array: np.ndarray, code: int = 8) -> bytes:
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def images(folder: Path, count: int = 60, packed: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The four files of MNIST in small."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (count + 6, 3, 2), dtype=np.uint8)
    labels = draw.integers(0, 10, count + 6, dtype=np.uint8)
    for part, rows in (("train", slice(0, count)), ("t10k", slice(count, None))):
        for name, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            data = idx(array[rows])
            path = folder / f"{part}-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)
    return pixels, labels


@pytest.mark.parametrize("packed", [True, False])
def test_folder_of_idx_files(packed: bool, tmp_path: Path) -> None:
    pixels, labels = images(tmp_path / "digits", packed=packed)
    made = arrays.parts(tmp_path / "digits")
    assert made is not None
    assert [len(made.train), len(made.valid), len(made.test)] == [55, 5, 6]
    rows = np.concatenate([steps(part) for part in (made.train, made.valid, made.test)])
    assert np.array_equal(rows, (pixels / np.float32(255)).reshape(66, 6, 1))
    told = [label for part in (made.train, made.valid, made.test) for label in part.targets or []]
    assert told == [str(label) for label in labels]
    assert made.valid.place(0) == f"train-images-idx3-ubyte{'.gz' if packed else ''}, image 56"
    assert arrays.parts(tmp_path) is None
    assert arrays.parts("names") is None


def test_mnist_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, _ = images(tmp_path / "mnist")
    monkeypatch.setattr(catalogue, "_verify", lambda path, file: None)
    plain, other = arrays.parts("mnist", str(tmp_path)), arrays.parts("pmnist", str(tmp_path))
    assert plain is not None
    assert other is not None
    assert plain.notes[0] == f"mnist: local copy in {tmp_path}"
    assert plain.fingerprint != other.fingerprint
    order = permuted(Sequences.equal(np.arange(6.0).reshape(1, 6, 1))).values[:, 0].astype(int)
    assert order.tolist() != sorted(order)
    for part in ("train", "valid", "test"):
        assert np.array_equal(steps(other.part(part)), steps(plain.part(part))[:, order])
    assert np.array_equal(steps(plain.test)[:, :, 0], pixels[60:].reshape(6, 6) / np.float32(255))


def test_the_same_order_for_all_and_for_each_call() -> None:
    block = np.arange(2 * 784, dtype=np.float32).reshape(2, 784, 1)
    first, again, other = (permuted(Sequences.equal(block), seed) for seed in (1, 1, 2))
    assert np.array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)
    assert np.array_equal(first[0] + 784, first[1])
    assert sorted(first[0].ravel()) == list(range(784))
    assert digest(first.values) == "647f020ed1912829"
    with pytest.raises(SeriatimError, match="unequal length"):
        permuted(Sequences.of([np.ones((2, 1)), np.ones((3, 1))]))


def test_names_of_files() -> None:
    good = ["x.npy", "x.NPZ", "x.mat.gz", "train-images-idx3-ubyte", "t10k-labels.idx1-ubyte.gz", "x.idx"]
    assert all(map(is_arrays, good))
    assert not any(map(is_arrays, ["x.csv", "npy", "x.txt.gz", "ubyte"]))


# ------------------------------------------------------------------------------------------------------------ targets

X = np.arange(12.0).reshape(3, 4)


def read(tmp_path: Path, y: Any, x: Any = X, **options: Any) -> tuple[Sequences, Any]:
    np.savez(tmp_path / "both.npz", x=x, y=y)
    return read_arrays(tmp_path / "both.npz", **options)


@pytest.mark.parametrize(
    ("given_targets", "wanted"),
    [
        (np.array([2, 0, 1]), ["2", "0", "1"]),
        (np.array([[2], [0], [1]], np.uint8), ["2", "0", "1"]),
        (np.array([[2, 0, 1]]), ["2", "0", "1"]),
        (np.array(["b", "a", "ü"]), ["b", "a", "ü"]),
        (np.array([0.5, 1, 2]), [0.5, 1.0, 2.0]),
        (np.array([[0.5, 1], [2, 3], [4, 5]]), [(0.5, 1.0), (2.0, 3.0), (4.0, 5.0)]),
        (np.array([[0, 1], [1, 1], [0, 0]]), [("1",), ("0", "1"), ()]),
        (np.array([[0, 7], [1, 1], [0, 0]]), [(0.0, 7.0), (1.0, 1.0), (0.0, 0.0)]),
    ],
)
def test_targets_by_kind_and_shape(given_targets: np.ndarray, wanted: list[Any], tmp_path: Path) -> None:
    assert read(tmp_path, given_targets)[1] == wanted


def test_targets_for_each_step(tmp_path: Path) -> None:
    labels = np.arange(12).reshape(3, 4)
    found = read(tmp_path, labels)[1]
    assert isinstance(found, Sequences)
    assert found.values.tolist() == list(range(12))
    assert found.ends.tolist() == [4, 8, 12]


def test_targets_from_another_file_and_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "more.npz", a=X, b=np.array([1.0, 2.0, 3.0]))
    assert read_arrays(tmp_path / "x.npy", tmp_path / "more.npz", targets="b")[1] == [1.0, 2.0, 3.0]
    assert read_arrays(tmp_path / "more.npz", inputs="a", targets="b", labels=True)[1] == ["1", "2", "3"]
    assert read_arrays(tmp_path / "more.npz", inputs="a")[1] is None
    values = read(tmp_path, np.array([2, 0, 1]), labels=False)[1]
    assert [type(value) for value in values] == [float] * 3
    with pytest.raises(SeriatimError, match="which of its arrays is meant: a, b"):
        read_arrays(tmp_path / "more.npz")
    with pytest.raises(SeriatimError, match='has no array "c"'):
        read_arrays(tmp_path / "more.npz", inputs="c")


def test_cells_are_sequences_of_unequal_length(tmp_path: Path) -> None:
    for cells, lengths, width in (
        ([np.ones((1, 3)), np.ones((5, 1))], [3, 5], 1),
        ([np.ones((3, 2)), np.ones((1, 2)), np.zeros((0, 0))], [3, 1, 0], 2),
    ):
        boxes = np.empty((1, len(cells)), object)
        boxes[0, :] = cells
        scipy.io.savemat(tmp_path / "x.mat", {"x": boxes, "y": np.arange(len(cells))})
        found, targets = read_arrays(tmp_path / "x.mat")
        assert found.lengths.tolist() == lengths
        assert found.values.shape == (sum(lengths), width)
        assert targets == [str(number) for number in range(len(cells))]


def test_symbols(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2], [30_000_001, 0]]))
    found, _ = read_arrays(tmp_path / "x.npy", symbols=True)
    assert found.values.tolist() == [1, 2, 30_000_001, 0]
    assert not found.numeric
    np.save(tmp_path / "x.npy", np.array([[1, 2.5]]))
    with pytest.raises(SeriatimError, match="symbols are whole numbers"):
        read_arrays(tmp_path / "x.npy", symbols=True)


# -------------------------------------------------------------------------------------------------------------- errors

BAD = np.ones((2, 3, 2))
BAD[1, 2, 0] = np.nan


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (BAD, [1, 2], r"both.npz/x, sequence 2, step 3, number 1: not a number, or too large \(1 in all\)"),
        (np.full((2, 3), 1e300), [1, 2], "sequence 1, step 1, number 1: not a number, or too large"),
        (X, [1, 2], r"both.npz/y: targets of the shape \(2,\), where both.npz/x has 3 sequences"),
        (X, [1, 2, np.nan], "both.npz/y, row 3: not a number"),
        (X[0], [1, 2, 3], r"has the shape \(4,\), where \(N,T\) or \(N,T,F\) is wanted"),
        (X[None, None], [1, 2, 3], "is wanted"),
        (X[:0], [], "holds no numbers"),
        (X[:, :0], [1, 2, 3], "holds no numbers"),
        (X * 1j, [1, 2, 3], "holds complex128, not numbers"),
        (X, np.ones(3) * 1j, "holds complex128, not numbers"),
        (np.array([["a"]]), [1], "not numbers"),
        (np.array([{}, 1]), [1], r"both.npz/x: holds Python objects \(a pickle\)"),
        (np.zeros(2, [("a", "f4")]), [1], "records of several fields"),
    ],
)
def test_bad_arrays(x: Any, y: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match=message) as caught:
        read(tmp_path, y, x)
    assert caught.value.exit_code == 2
    assert caught.value.remedy


def test_labels_must_be_whole(tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match=r"row 2: 1.5 is no label"):
        read(tmp_path, np.array([1, 1.5, 2]), labels=True)


def mat_bytes(tmp_path: Path, **options: Any) -> bytes:
    boxes = np.empty((1, 2), object)
    boxes[0, :] = [np.eye(3), np.ones((2, 3))]
    scipy.io.savemat(tmp_path / "good.mat", {"x": boxes, "y": np.arange(2)}, **options)
    return (tmp_path / "good.mat").read_bytes()


def npy_bytes(tmp_path: Path) -> bytes:
    np.save(tmp_path / "good.npy", X)
    return (tmp_path / "good.npy").read_bytes()


def npz_bytes(tmp_path: Path) -> bytes:
    np.savez_compressed(tmp_path / "good.npz", x=X, y=np.arange(3))
    return (tmp_path / "good.npz").read_bytes()


MAKERS: dict[str, Callable[[Path], bytes]] = {
    "x.npy": npy_bytes,
    "x.npz": npz_bytes,
    "x.mat": mat_bytes,
    "packed.mat": lambda path: mat_bytes(path, do_compression=True),
    "x.npy.gz": lambda path: gzip.compress(npy_bytes(path)),
    "x-idx3-ubyte": lambda path: idx(np.ones((3, 2, 2), np.uint8)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_truncation_is_told(name: str, tmp_path: Path) -> None:
    whole = MAKERS[name](tmp_path)
    path = tmp_path / name
    path.write_bytes(whole)
    wanted = read_arrays(path)[0]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            found = read_arrays(path)[0]
        except SeriatimError as error:
            assert name in error.cause  # noqa: PT017
        else:  # cut between two variables, or within what follows the numbers
            assert name.endswith((".mat", ".gz"))
            assert np.array_equal(found.values, wanted.values)


@IN_PLACE
@given(name=st.sampled_from(sorted(MAKERS)), changes=st.dictionaries(st.integers(0, 9_999), st.integers(0, 255)))
def test_damage_never_ends_in_a_traceback(name: str, changes: dict[int, int], tmp_path: Path) -> None:
    data = bytearray(MAKERS[name](tmp_path))
    for place, value in changes.items():
        data[place % len(data)] = value
    path = tmp_path / name
    path.write_bytes(data)
    try:
        read_arrays(path)
    except SeriatimError as error:
        assert error.remedy  # noqa: PT017


def test_files_of_other_kinds(tmp_path: Path) -> None:
    for name, data, message in (
        ("a.mat", b"MATLAB 7.3 MAT-file".ljust(600), "level 7.3"),
        ("b.mat", b"\0\0\0\0" * 100, "not a MATLAB file of level 5"),
        ("c.idx", b"\0\0\x07\x03" + bytes(20), "c.idx: not an IDX file: begins with 00000703"),
        ("d.idx", idx(np.ones((3, 2, 2), np.uint8)) + b"\0", "13 bytes of numbers where its shape"),
        ("e.npy", b"PK", "not a .npy file"),
        ("f.npy.gz", b"plain", "the packed file is damaged"),
        ("g.npz", b"plain", "not a readable .npz file"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(SeriatimError, match=message):
            read_arrays(path)
    with pytest.raises(SeriatimError, match="there is no file"):
        read_arrays(tmp_path / "nowhere.npy")


def test_labels_must_lie_beside_the_images(tmp_path: Path) -> None:
    images(tmp_path / "digits")
    (tmp_path / "digits/train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(SeriatimError, match="there are no labels beside it"):
        arrays.parts(tmp_path / "digits")
