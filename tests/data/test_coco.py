"""Captions of images: every form gives the same rows, every bad one a clear error, no image is in two splits."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from seriatim.core import registry
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats.coco import find_image_folder
from seriatim.data.images.store import write_image_set
from seriatim.data.source import open_source
from seriatim.lab.synthetic import scenes
from seriatim.tasks.base import DataSettings, TaskConfig
from seriatim.tasks.caption.processor import EncodedCaptions
from seriatim.tasks.caption.spec import CaptionSettings
from seriatim.tasks.caption.task import CaptionTask
from seriatim.tasks.reading import prepare, read_rows
from seriatim.tasks.values import Splits

CAPTIONS = {
    "a.png": ["a red dog", "a dog, on the left"],
    "b.png": ["two cats"],
    "c.png": ['he says "hi"', "a man , smiling .", "a man"],
}
ROWS = [(name, text) for name, texts in CAPTIONS.items() for text in texts]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path_factory.mktemp("cache")))


def shade(name: str) -> int:
    """Returns the gray of an image, by which it is recognized."""
    return sum(ord(character) * (7 + n) for n, character in enumerate(Path(name).stem)) % 251


def paint(folder: Path, names: Iterable[str] = tuple(CAPTIONS)) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), shade(name)).save(path)
    return folder


def write(path: Path, data: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data, encoding="utf-8")
    return path


def make_config(source: Any, task: dict[str, Any] | None = None, **data: Any) -> TaskConfig:
    model = registry.models.load("show_tell").Settings(name="show_tell", width=6)
    settings = CaptionSettings(**({"channels": 4} | (task or {})))  # type: ignore[arg-type]
    return TaskConfig(task=settings, data=DataSettings(source=str(source), **data), model=model)


def gray(value: Any) -> int:
    return int(np.asarray(Image.open(value))[0, 0])


def read(source: Any, notes: list[str] | None = None, task: Any = None, **data: Any) -> list[tuple[int, str]]:
    """Returns the gray and the caption of each row, as training reads them."""
    diagnostics = Diagnostics(None if notes is None else notes.append)
    opened = open_source(str(source))
    config = make_config(source, task, **data)
    parts = list(opened.splits.values()) or [opened]
    datasets = [read_rows(CaptionTask, config, part, diagnostics) for part in parts]
    return [(gray(i), t) for rows in datasets for i, t in zip(rows["image"], rows["caption"], strict=True)]


def split_data(
    source: Any, task: Any = None, diagnostics: Diagnostics | None = None, **data: Any
) -> Splits[EncodedCaptions]:
    return prepare(CaptionTask, make_config(source, task, **data), diagnostics=diagnostics)[1]


def refused(code: str, source: Any, task: Any = None, **data: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        split_data(source, task, **data)
    assert caught.value.code == code, caught.value
    return caught.value


def table(rows: Iterable[Iterable[Any]], header: list[str] | None, delimiter: str = ",") -> str:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows([*([header] if header else []), *rows])
    return buffer.getvalue()


def coco() -> str:
    ids = {name: 10 + n for n, name in enumerate(CAPTIONS)}
    images = [{"id": number, "file_name": name} for name, number in ids.items()]
    annotations = [{"id": n, "image_id": ids[name], "caption": text} for n, (name, text) in enumerate(ROWS)]
    return json.dumps({"images": images, "annotations": annotations, "info": {}})


def karpathy() -> str:
    images = [
        {"filename": name, "split": "train", "sentences": [{"raw": text, "tokens": text.split()} for text in texts]}
        for name, texts in CAPTIONS.items()
    ]
    return json.dumps({"images": images, "dataset": "small"})


WIDE = [[name, *[*texts, "", ""][:3]] for name, texts in CAPTIONS.items()]
FORMS = {
    "captions.csv": table(ROWS, ["image", "caption"]),
    "semicolons.csv": table(ROWS, ["file_name", "text"], ";"),
    "numbered.csv": table(WIDE, ["filename", "caption_1", "caption_2", "caption_3"]),
    "results.csv": "image_name|comment_number|comment\n"
    + "".join(f"{name}|{number}|{text}\n" for number, (name, text) in enumerate(ROWS)),
    "other.csv": table([(text, 3, name) for name, text in ROWS], ["words", "stars", "which"]),
    "headless.csv": table(ROWS, None),
    "headless.tsv": "".join(f"{name}\t{text}\n" for name, text in ROWS),
    "Flickr8k.token.txt": "".join(f"{name}#{number}\t{text}\n" for number, (name, text) in enumerate(ROWS)),
    "metadata.jsonl": "".join(json.dumps({"file_name": name, "text": text}) + "\n" for name, text in ROWS),
    "lists.jsonl": "".join(json.dumps({"image": name, "captions": texts}) + "\n" for name, texts in CAPTIONS.items()),
    "list.json": json.dumps([{"image": name, "captions": texts} for name, texts in CAPTIONS.items()]),
    "names.json": json.dumps(CAPTIONS),
    "captions_val2014.json": coco(),
    "dataset_small.json": karpathy(),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    file = write(paint(tmp_path / "data") / name, FORMS[name])
    expected = sorted((shade(image), text) for image, text in ROWS)
    assert sorted(read(file)) == expected
    assert sorted(read(file.parent)) == expected


@pytest.mark.parametrize("lists", [False, True])
def test_parquet(lists: bool, tmp_path: Path) -> None:
    columns = (
        {"image": list(CAPTIONS), "captions": list(CAPTIONS.values())}
        if lists
        else {"image": [name for name, _ in ROWS], "caption": [text for _, text in ROWS]}
    )
    file = paint(tmp_path / "data") / "some.parquet"
    pq.write_table(pa.table(columns), file)
    assert read(file) == [(shade(name), text) for name, text in ROWS]


def test_columns_by_name_and_number(tmp_path: Path) -> None:
    rows = [(name, "x", text, text.upper()) for name, text in ROWS]
    file = write(paint(tmp_path) / "t.csv", table(rows, ["one", "two", "three", "four"]))
    expected = [(shade(name), caption) for name, text in ROWS for caption in (text, text.upper())]
    for image, captions in (("one", "three,four"), ("1", "3,4")):
        assert read(file, columns={"image": image, "caption": captions}) == expected
    error = refused("data.column", file)
    assert "three" in error.cause
    assert "t.csv" in refused("data.column", file, columns={"image": "five"}).cause


# Where the images are


@pytest.mark.parametrize("inside", ["images", "Images", "Flicker8k_Dataset", "val2014", "images/val2014"])
def test_usual_folders(inside: str, tmp_path: Path) -> None:
    paint(tmp_path / inside)
    for folder in (tmp_path, tmp_path / "annotations"):
        file = write(folder / "captions_val2014.json", coco())
        assert len(read(file)) == len(ROWS)
        file.unlink()


def test_the_folder_of_the_images(tmp_path: Path) -> None:
    far = paint(tmp_path / "far" / "away")
    file = write(tmp_path / "here" / "captions.csv", FORMS["captions.csv"])
    refused("image.missing", file)
    assert len(read(file, task={"image_folder": str(far)})) == len(ROWS)
    assert "task.image_folder" in refused("data.missing", file, {"image_folder": "nowhere"}).remedy
    absolute = [(str(far / name), text) for name, text in ROWS]
    assert len(read(write(tmp_path / "absolute.csv", table(absolute, ["image", "caption"])))) == len(ROWS)
    usual = write(tmp_path / "table" / "captions.csv", FORMS["captions.csv"])
    paint(tmp_path / "table" / "images")
    assert len(read(usual)) == len(ROWS)
    assert find_image_folder(["a.png"], [tmp_path, tmp_path / "far"]) == tmp_path


def test_missing_images_are_listed_by_name_and_line(tmp_path: Path) -> None:
    rows = [*ROWS, ("gone.png", "a ghost"), ("gone.png", "again")]
    file = write(paint(tmp_path) / "t.csv", table(rows, ["image", "caption"]))
    error = refused("image.missing", file)
    assert "1 of 4 images" in error.cause
    assert "t.csv, line 8: gone.png" in error.cause
    assert "task.images.broken=skip" in error.remedy
    notes: list[str] = []
    assert len(read(file, notes, {"images": {"broken": "skip"}})) == len(ROWS)
    assert any("1 images are missing and left out (the first: gone.png; t.csv, line 8)" in note for note in notes)


def test_broken_images(tmp_path: Path) -> None:
    rows = [*many(tmp_path, 10, 2), ("d.png", "a hole")]
    file = write(tmp_path / "t.csv", table(rows, ["image", "caption"]))
    write(tmp_path / "d.png", "no image at all")
    assert "d.png" in refused("image.broken", file).cause
    splits = split_data(file, {"images": {"broken": "skip"}})
    assert sum(len(splits[name].items) for name in splits) == 20
    for split in splits.parts.values():
        items = split.items
        assert items.groups is not None
        assert len(items.groups.values) == len(items)
        for number in range(len(items.groups)):
            members = items.groups[number]
            texts = [split.rows["caption"][row] for row in items.row_numbers(members)]
            assert {text.rpartition(" ")[2] for text in texts} == {f"p{int(items.inputs[members[0]][0, 0, 0]):03}"}


# Splits


def many(folder: Path, count: int = 40, each: int = 3) -> list[tuple[str, str]]:
    names = [f"p{number:03}.png" for number in range(count)]
    for number, name in enumerate(names):
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(folder / name)
    return [(name, f"caption {number} of {name[:-4]}") for number in range(each) for name in names]


def images_of(splits: Splits[EncodedCaptions]) -> dict[str, set[int]]:
    return {name: {gray(value) for value in splits[name].rows["image"]} for name in splits}


def sizes_of(source: Any, **data: Any) -> dict[str, int]:
    return {name: len(split.rows) for name, split in split_data(source, **data).parts.items()}


def test_splits_by_image_whatever_the_order(tmp_path: Path) -> None:
    rows = many(tmp_path)
    write(tmp_path / "one.csv", table(rows, ["image", "caption"]))
    write(tmp_path / "two.csv", table(rows[::-1][:70], ["image", "caption"]))
    one, two = (split_data(tmp_path / name) for name in ("one.csv", "two.csv"))
    assert {name: len(images) for name, images in images_of(one).items()} == {"train": 32, "validation": 4, "test": 4}
    assert images_of(one) == images_of(two)
    assert {name: len(one[name].rows) for name in one} == {"train": 96, "validation": 12, "test": 12}
    assert sorted(images_of(one)["test"]) == FROZEN  # the same images on every machine and in every version
    assert one.fingerprint != two.fingerprint


FROZEN = [12, 14, 28, 35]


def test_the_same_image_under_two_names_is_in_one_split(tmp_path: Path) -> None:
    rows = many(tmp_path, count=20, each=1)
    for name, _ in rows[:]:
        (tmp_path / f"z{name}").write_bytes((tmp_path / name).read_bytes())
        rows.append((f"z{name}", "again"))
    file = write(tmp_path / "one.csv", table(rows, ["image", "caption"]))
    images = images_of(split_data(file, fractions=(0.5, 0.25, 0.25)))
    assert sum(map(len, images.values())) == 20 == len(set.union(*images.values()))


def test_a_column_of_splits(tmp_path: Path) -> None:
    splits = {"a.png": "train", "b.png": "val", "c.png": "Test"}
    rows = [(name, text, splits[name]) for name, text in ROWS]
    file = write(paint(tmp_path) / "t.csv", table(rows, ["image", "caption", "split"]))
    assert sizes_of(file) == {"train": 2, "validation": 1, "test": 3}
    rows[1] = (*rows[1][:2], "half")
    error = refused("data.split", write(file, table(rows, ["image", "caption", "split"])))
    assert "t.csv, line 3" in error.cause


def test_an_image_in_two_splits_is_not_trained_on(tmp_path: Path) -> None:
    splits = ["train", "test", "validation", "train", "train", "train"]
    rows = [(name, text, split) for (name, text), split in zip(ROWS, splits, strict=True)]
    file = write(paint(tmp_path) / "t.csv", table(rows, ["image", "caption", "split"]))
    diagnostics = Diagnostics()
    parts = split_data(file, diagnostics=diagnostics).parts
    assert {name: len(part.rows) for name, part in parts.items()} == {"train": 3, "validation": 1, "test": 1}
    assert {name: len(part.items) for name, part in parts.items()} == {"train": 3, "validation": 1, "test": 1}
    assert any("1 images of the train split are left out" in note for note in diagnostics.notes)


def test_files_of_validation_and_test(tmp_path: Path) -> None:
    rows = many(tmp_path, count=10, each=2)
    for name, part in {"train": rows, "valid": rows[:1], "test": rows[1:3]}.items():
        write(tmp_path / f"{name}.csv", table(part, ["image", "caption"]))
    files = {"validation": str(tmp_path / "valid.csv"), "test": str(tmp_path / "test.csv")}
    assert sizes_of(tmp_path / "train.csv", **files) == {"train": 14, "validation": 1, "test": 2}
    assert sizes_of(tmp_path) == {"train": 14, "validation": 1, "test": 2}  # the files of the folder
    refused("data.split", tmp_path / "train.csv", validation=str(tmp_path / "train.csv"))


def test_lists_of_flickr(tmp_path: Path) -> None:
    write(paint(tmp_path / "Flicker8k_Dataset").parent / "Flickr8k.token.txt", FORMS["Flickr8k.token.txt"])
    with open(tmp_path / "Flickr8k.token.txt", "a", encoding="utf-8") as file:
        file.write("lost.jpg.1#0\tis in no list , and not there\n")
    write(tmp_path / "Flickr_8k.trainImages.txt", "a.png\n")
    write(tmp_path / "Flickr_8k.devImages.txt", "c.png\n")
    for source in (tmp_path, tmp_path / "Flickr8k.token.txt"):
        diagnostics = Diagnostics()
        parts = split_data(source, diagnostics=diagnostics).parts
        captions = {name: list(part.rows["caption"]) for name, part in parts.items()}
        assert captions == {"train": CAPTIONS["a.png"], "validation": CAPTIONS["c.png"]}
        assert any("2 images are in none of them" in note for note in diagnostics.notes)


def test_folders_of_coco(tmp_path: Path) -> None:
    for split, names in {"train2014": ["a.png"], "val2014": ["b.png", "c.png"]}.items():
        paint(tmp_path / split, names)
        images = [{"id": n, "file_name": name} for n, name in enumerate(names)]
        annotations = [{"image_id": n, "caption": CAPTIONS[name][0]} for n, name in enumerate(names)]
        text = json.dumps({"images": images, "annotations": annotations})
        write(tmp_path / "annotations" / f"captions_{split}.json", text)
        write(tmp_path / "annotations" / f"instances_{split}.json", "{}")
    sizes = sizes_of(tmp_path)
    assert (sizes["train"], sizes["validation"]) == (1, 2)


def test_image_folders_with_splits(tmp_path: Path) -> None:
    for split, name in {"train": "a.png", "validation": "b.png", "test": "c.png"}.items():
        paint(tmp_path / split, [name])
        lines = [json.dumps({"file_name": name, "text": text}) for text in CAPTIONS[name]]
        write(tmp_path / split / "metadata.jsonl", "\n".join(lines))
    assert sizes_of(tmp_path) == {"train": 2, "validation": 1, "test": 3}


# Captions


def test_empty_captions_are_noted_and_texts_normalized(tmp_path: Path) -> None:
    rows = [*ROWS, ("b.png", "  "), ("b.png", "two  little\tcats "), ("b.png", "cafe\u0301")]
    file = write(paint(tmp_path) / "t.csv", table(rows, ["image", "caption"]))
    notes: list[str] = []
    assert [text for _, text in read(file, notes)][-2:] == ["two little cats", "caf\u00e9"]
    assert any("1 row without a caption is left out (the first: t.csv, line 8)" in note for note in notes)
    assert read(file, task={"normalize": False})[-2][1] == "two  little\tcats "
    whole = json.loads(coco())
    whole["annotations"] = [one for one in whole["annotations"] if one["image_id"] != 11]
    notes = []
    assert len(read(write(tmp_path / "captions_x.json", json.dumps(whole)), notes)) == 5
    assert any("captions_x.json, image 2" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "text", "code", "cause"),
    [
        ("short.tsv", "a.png\ta dog\nb.png\n", "data.csv", "short.tsv, line 2"),
        ("bad.jsonl", '{"image": "a.png", "caption": "x"}\n{"image": "a.png"}\n', "data.column", "bad.jsonl, line 2"),
        ("odd.jsonl", '{"image": "a.png", "caption": "x"}\n{"image": "a.png", "caption": 7}\n', "data.", "odd.jsonl"),
        ("no.json", '{"images": 1, "annotations": []}', "data.json", "no.json"),
        (
            "orphan.json",
            '{"images": [{"id": 1, "file_name": "a.png"}], "annotations": [{"image_id": 2, "caption": "x"}]}',
            "data.json",
            "orphan.json, annotation 1: there is no image 2",
        ),
        (
            "boxes.json",
            '{"images": [{"id": 1, "file_name": "a.png"}], "annotations": [{"image_id": 1, "bbox": []}]}',
            "data.json",
            "boxes.json, annotation 1: has no image_id or no caption",
        ),
        ("quote.csv", 'image,caption\na.png,"open\n', "data.csv", "quote.csv, line 2"),
        ("silent.csv", "image,caption\na.png,x\n", "data.too-short", "1 images"),
        ("plain.txt", "just some text\nand more\n", "data.column", "plain.txt"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, code: str, cause: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        split_data(write(paint(tmp_path) / name, text))
    assert caught.value.code.startswith(code)
    assert cause in caught.value.cause


def test_folders_with_several_files_of_captions(tmp_path: Path) -> None:
    paint(tmp_path)
    for name in ("captions.csv", "captions.tsv"):
        write(tmp_path / name, "image,caption\n")
    assert "2 files of captions" in refused("data.several", tmp_path).cause


# Regions, and built-in sets as files


def test_regions_go_with_their_images(tmp_path: Path) -> None:
    """A square in a larger image: however the image is cropped, the box is around it."""
    regions = [{"noun": "square", "place": 1, "box": [36, 20, 60, 44]}]
    line = json.dumps({"image": "p.png", "caption": "a square", "boxes": regions}) + "\n"
    file = write(tmp_path / "t.jsonl", line * 3)
    pixels = np.zeros((96, 64, 3), np.uint8)
    pixels[20:44, 36:60] = 255
    Image.fromarray(pixels).save(tmp_path / "p.png")
    for fit in ("crop", "pad", "stretch"):
        config = make_config(file, {"images": {"fit": fit, "size": 32, "max_shift": 0}})
        rows = read_rows(CaptionTask, config, open_source(str(file)), Diagnostics())
        encoded = CaptionTask.processor_type.fit(rows, config, {}, Diagnostics()).encode(rows, Diagnostics())
        assert encoded.regions is not None
        ((region,), *_) = encoded.regions
        assert (region.position, region.noun) == (1, "square")
        across, down = (np.flatnonzero((encoded.inputs[0][..., 0] > 127).any(axis=axis)) for axis in (0, 1))
        around = across.min(), down.min(), across.max() + 1, down.max() + 1
        assert max(abs(a - b) for a, b in zip(region.box, around, strict=True)) <= 1


def test_unreadable_regions(tmp_path: Path) -> None:
    rows = [
        {"image": "a.png", "caption": "a dog", "boxes": [{"noun": "dog", "place": 1, "box": box}]}
        for box in ([0, 0, 1, 1], [0])
    ]
    file = write(paint(tmp_path) / "t.jsonl", "".join(json.dumps(row) + "\n" for row in [rows[0], rows[0], rows[1]]))
    with pytest.raises(SeriatimError, match=r"t\.jsonl, line 3"):
        read(file)


def test_scenes_as_files_are_the_same_scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "SPLIT_SIZES", dict.fromkeys(scenes.SPLIT_SIZES, 20))
    folder, source = tmp_path / "scenes", open_source("scenes")
    assert write_image_set(source, folder, 12) == 36
    original = source.splits["test"].columns
    assert original is not None
    test = split_data(folder)["test"]
    rows, encoded = test.rows, test.items
    count = len(rows)
    assert list(rows["caption"]) == list(original["caption"][:count])
    assert encoded.groups is not None
    counts = np.unique(original["image_id"][:count], return_counts=True)[1]
    assert encoded.groups.lengths.tolist() == counts.tolist()
    assert encoded.regions is not None
    for row in range(count):
        assert np.array_equal(encoded.inputs[row], original["image"][row])
        assert [tuple(region) for region in encoded.regions[row]] == [tuple(r) for r in original["regions"][row]]
    with pytest.raises(SeriatimError, match="exists"):
        write_image_set(source, folder)
    with pytest.raises(SeriatimError, match="not a built-in set of images"):
        write_image_set("dates", tmp_path / "x")


def test_small_drawings_are_not_shifted_unless_asked(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", table(many(tmp_path, 12, 1), ["image", "caption"]))
    margins = {}
    for shift in (None, 2):
        task, _ = prepare(CaptionTask, make_config(file, {"images": {"max_shift": shift}}))
        margins[shift] = task.processor.image.margin
    assert margins == {None: 0, 2: 2}
    assert not task.processor.image.flip
    flipped, _ = prepare(CaptionTask, make_config(file, {"images": {"flip": True}}))
    assert flipped.processor.image.flip
