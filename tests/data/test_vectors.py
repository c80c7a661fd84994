"""Files of vectors, complete or not there at all, and nearest neighbors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.data.vectors import VectorWriter, nearest, nearest_to_each, open_vectors

TEXTS = ["a", "", "ccc", "a"]
VECTORS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
DESCRIPTION = {"run": "runs/x", "model": "abc", "pooling": "max"}


def write(path: Path, blocks: int = 2) -> None:
    with VectorWriter(path, 3, DESCRIPTION) as writer:
        for start in range(0, 4, 4 // blocks):
            writer.write(TEXTS[start : start + 4 // blocks], VECTORS[start : start + 4 // blocks])
    assert writer.rows == 4


def test_vectors_are_written_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "v.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), VECTORS)
    monkeypatch.setattr("seriatim.data.vectors.BLOCK_ROWS", 3)
    write(tmp_path / "v.parquet", 4)
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == TEXTS
    assert table.schema.field("vector").type.list_size == 3
    stored = open_vectors(tmp_path / "v.parquet")
    assert stored is not None
    assert (stored.width, stored.description) == (3, DESCRIPTION)
    blocks = list(stored)
    assert [text for texts, _ in blocks for text in texts] == TEXTS
    assert len(blocks) == 2
    np.testing.assert_array_equal(np.concatenate([vectors for _, vectors in blocks]), VECTORS)


def test_other_files_are_not_vectors(tmp_path: Path) -> None:
    write(tmp_path / "v.npy")
    (tmp_path / "broken.parquet").write_bytes(b"no")
    pq.write_table(pq.read_table(_stored(tmp_path)).replace_schema_metadata(None), tmp_path / "plain.parquet")
    for name in ("v.npy", "broken.parquet", "plain.parquet", "none.parquet"):
        assert open_vectors(tmp_path / name) is None
    with pytest.raises(SeriatimError) as caught:
        VectorWriter(tmp_path / "v.csv", 3, {})
    assert caught.value.code == "output.format"


def _stored(folder: Path) -> Path:
    write(folder / "v.parquet")
    return folder / "v.parquet"


def test_vectors_of_another_model_or_pooling_are_refused(tmp_path: Path) -> None:
    stored = open_vectors(_stored(tmp_path))
    assert stored is not None
    assert stored.check_model("abc", None) == stored.check_model("abc", "max") == "max"
    for model, pooling in (("xyz", None), ("abc", "mean")):
        with pytest.raises(SeriatimError, match=r"holds vectors of runs/x \(max\)") as caught:
            stored.check_model(model, pooling)
        assert caught.value.code == "embed.vectors"


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_an_interruption_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"old")

    def interrupt() -> None:
        with VectorWriter(tmp_path / name, 3, DESCRIPTION) as writer:
            writer.write(TEXTS, VECTORS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert (tmp_path / name).read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_neighbors_have_the_largest_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.data.vectors.MAX_SIMILARITIES", 64)
    random = np.random.default_rng(0)
    vectors, queries = random.normal(size=(57, 5)), random.normal(size=(3, 5))
    texts = [str(row) for row in range(57)]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ unit.T
    blocks = [(texts[first : first + 10], vectors[first : first + 10]) for first in range(0, 57, 10)]
    for expected, neighbors in zip(cosines, nearest(queries, blocks, 4), strict=True):
        assert [neighbor.row for neighbor in neighbors] == np.argsort(-expected)[:4].tolist()
        assert [neighbor.similarity for neighbor in neighbors] == pytest.approx(-np.sort(-expected)[:4])
        assert all(neighbor.text == str(neighbor.row) for neighbor in neighbors)
    others = unit @ unit.T - 3 * np.eye(57)
    each = nearest_to_each(blocks, 2)
    assert [[n.row for n in neighbors] for _, neighbors in each] == np.argsort(-others, axis=1)[:, :2].tolist()
    assert [text for text, _ in each] == texts
    assert len(nearest(queries, [(texts[:2], vectors[:2])], 9)[0]) == 2
