"""Folders of classes: texts and images, splits by folders, archives, and files without a class."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seriatim.core.errors import Diagnostics
from seriatim.data.formats import ReadOptions, find_format
from seriatim.data.formats.text import ClassFolders
from seriatim.data.images import IMAGE
from seriatim.data.source import open_source
from task_helpers import prepare_splits, refused


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def save_image(path: Path, number: int, size: tuple[int, int] = (12, 10)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def image_folder(root: Path, count: int) -> Path:
    for number in range(count):
        save_image(root / ("odd" if number % 2 else "even") / f"{number:03}.png", number)
    return root


def rows_of(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Returns the rows of each split."""
    _, splits = prepare_splits(*arguments, **options)
    return {name: split.rows for name, split in splits.parts.items()}


@pytest.mark.parametrize("archived", [False, True])
def test_texts_with_splits_above_the_classes(tmp_path: Path, archived: bool) -> None:
    for split, count in (("train", 8), ("test", 2)):
        for label in ("neg", "pos"):
            for number in range(count):
                write(tmp_path / f"d/imdb/{split}/{label}/{number}.txt", f"{split} {label}\n{number}\n")
        write(tmp_path / f"d/imdb/{split}/urls.txt", "no example")
        write(tmp_path / f"d/imdb/{split}/labeledBow.feat", "9 0:9 1:1")
    write(tmp_path / "d/imdb/imdb.vocab", "the")
    write(tmp_path / "d/imdb/README", "about")
    write(tmp_path / "d/imdb/train/unsup/0.txt", "nobody knows")
    source = tmp_path / "d"
    if archived:
        source = tmp_path / "d.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for path in sorted(file for file in (tmp_path / "d").rglob("*") if file.is_file()):
                archive.write(path, path.relative_to(tmp_path / "d"))
    diagnostics = Diagnostics()
    splits = rows_of("classify", source, diagnostics=diagnostics)
    assert Counter(splits["test"]["target"]) == {"neg": 2, "pos": 2}
    expected = sorted(f"test {label}\n{number}" for label in ("neg", "pos") for number in range(2))
    assert sorted(splits["test"]["input"]) == expected
    assert Counter([*splits["train"]["target"], *splits["validation"]["target"]]) == {"neg": 8, "pos": 8}
    assert Counter(splits["validation"]["target"]) == {"neg": 1, "pos": 1}
    assert all(text.startswith("train") for text in splits["train"]["input"])
    assert any("3 files without a class are left out" in note for note in diagnostics.notes)
    assert any("outside of them are left out" in note and "imdb.vocab" in note for note in diagnostics.notes)
    assert {str(place).removeprefix(f"{source.name}/") for place in splits["test"].locations} == {
        f"imdb/test/{label}/{number}.txt" for label in ("neg", "pos") for number in range(2)
    }


def test_other_tasks_read_the_files_as_text(tmp_path: Path) -> None:
    write(tmp_path / "d/a/1.txt", "one")
    write(tmp_path / "d/b/2.txt", "two")
    source = open_source(str(tmp_path / "d"))
    known = ReadOptions(header_names=frozenset(["label"]))
    assert isinstance(find_format(source, known), ClassFolders)
    for options in (ReadOptions(), ReadOptions(text_unit="block", header_names=frozenset(["label"]))):
        assert not isinstance(find_format(source, options), ClassFolders)


def test_images_of_classes(tmp_path: Path) -> None:
    splits = rows_of("classify", image_folder(tmp_path / "images", 40), {"name": "gru"})
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [32, 4, 4]
    assert splits["train"].kind("input") is IMAGE
    assert [Path(path).parent.name for path in splits["train"]["input"]] == list(splits["train"]["target"])
    assert str(splits["test"].locations[0]).startswith("images/")
    assert str(splits["test"].locations[0]).endswith(".png")


def test_splits_by_folders_of_images(tmp_path: Path) -> None:
    for split, count in (("train", 10), ("val", 4), ("test", 6)):
        image_folder(tmp_path / "images" / split, count)
    save_image(tmp_path / "images" / "stray.png", 99)
    diagnostics = Diagnostics()
    splits = rows_of("classify", tmp_path / "images", diagnostics=diagnostics)
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [10, 4, 6]
    assert any("stray.png" in note for note in diagnostics.notes)
    assert any("4 of 4 validation" in note for note in diagnostics.notes)  # they are in the training split, too


def test_images_in_an_archive(tmp_path: Path) -> None:
    image_folder(tmp_path / "images", 20)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in sorted((tmp_path / "images").rglob("*.png")):
            archive.write(path, path.relative_to(tmp_path))
    _, archived = prepare_splits("classify", tmp_path / "images.zip")
    _, plain = prepare_splits("classify", tmp_path / "images")
    assert archived.fingerprint == plain.fingerprint
    assert np.array_equal(archived.train.items.inputs[3], plain.train.items.inputs[3])


def test_images_without_classes(tmp_path: Path) -> None:
    save_image(tmp_path / "flat" / "a.png", 1)
    refused("data.column", "have no labels", "a folder for each class", name="classify", data=tmp_path / "flat")
    refused("data.column", name="regress", data=image_folder(tmp_path / "images", 8))


def test_a_table_beside_its_images(tmp_path: Path) -> None:
    image_folder(tmp_path / "set", 20)
    rows = [f"{path.parent.name}/{path.name},{path.parent.name}" for path in sorted((tmp_path / "set").rglob("*.png"))]
    write(tmp_path / "set" / "labels.csv", "\n".join(["path,kind", *rows]) + "\n")
    splits = rows_of("classify", tmp_path / "set", columns={"target": "kind"})
    assert splits["train"].kind("input") is IMAGE
    assert len(splits["train"]) == 16
