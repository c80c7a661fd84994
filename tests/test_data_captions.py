"""Captions of pictures: every accepted form gives the same rows, every bad one a clear answer, no picture is in two
parts."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from seriatim.cli.data import app
from seriatim.core.errors import SeriatimError
from seriatim.data.caption_doctor import holds_captions
from seriatim.data.captions import CaptionSettings, flips, read, read_inputs, read_single, sided

SAID = {
    "a.png": ["a red dog", "a dog, on the left"],
    "b.png": ["two cats"],
    "c.png": ['he says "hi"', "a man , smiling .", "a man"],
}
ROWS = [(name, text) for name, some in SAID.items() for text in some]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)


def shade(name: str) -> int:
    """The grey of a picture, by which it is known again."""
    return sum(ord(sign) * (7 + place) for place, sign in enumerate(Path(name).stem)) % 251


def paint(folder: Path, names: Any = SAID) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), shade(name)).save(path)
    return folder


def write(path: Path, data: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data, encoding="utf-8")
    return path


def rows_of(examples: Any) -> list[tuple[int, str]]:
    return [(int(examples.pictures[row][0, 0, 0]), text) for row, text in enumerate(examples.targets)]


def refused(code: str, source: Any, **settings: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        read(CaptionSettings(source=str(source), **settings))
    assert caught.value.code == code
    return caught.value


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def comma_separated(rows: Any, heading: list[str] | None, delimiter: str = ",") -> str:
    held = io.StringIO()
    csv.writer(held, delimiter=delimiter, lineterminator="\n").writerows([*([heading] if heading else []), *rows])
    return held.getvalue()


def coco() -> str:
    images = [{"id": 10 + place, "file_name": name} for place, name in enumerate(SAID)]
    ids = {name: 10 + place for place, name in enumerate(SAID)}
    notes = [{"id": n, "image_id": ids[name], "caption": text} for n, (name, text) in enumerate(ROWS)]
    return json.dumps({"images": images, "annotations": notes, "info": {}})


def karpathy() -> str:
    sentences = [
        {"filename": name, "split": "train", "sentences": [{"raw": text, "tokens": text.split()} for text in some]}
        for name, some in SAID.items()
    ]
    return json.dumps({"images": sentences, "dataset": "small"})


WIDE = [[name, *[*some, "", ""][:3]] for name, some in SAID.items()]
FORMS = {
    "captions.csv": comma_separated(ROWS, ["image", "caption"]),
    "semicolons.csv": comma_separated(ROWS, ["file_name", "text"], ";"),
    "numbered.csv": comma_separated(WIDE, ["filename", "caption_1", "caption_2", "caption_3"]),
    "results.csv": "image_name| comment_number| comment\n"
    + "".join(f"{name}| {number}| {text}\n" for number, (name, text) in enumerate(ROWS)),
    "other.csv": comma_separated([(text, 3, name) for name, text in ROWS], ["words", "stars", "which"]),
    "headless.csv": comma_separated(ROWS, None),
    "headless.tsv": "".join(f"{name}\t{text}\n" for name, text in ROWS),
    "wide.tsv": "".join("\t".join(row).rstrip("\t") + "\t" * row.count("") + "\n" for row in WIDE),
    "captions.txt": "image,caption\n" + "".join(f'{name},{text}\n' for name, text in ROWS),
    "Flickr8k.token.txt": "".join(f"{name}#{number}\t{text}\n" for number, (name, text) in enumerate(ROWS)),
    "metadata.jsonl": "".join(json.dumps({"file_name": name, "text": text}) + "\n" for name, text in ROWS),
    "lists.jsonl": "".join(json.dumps({"image": name, "captions": some}) + "\n" for name, some in SAID.items()),
    "list.json": json.dumps([{"image": name, "captions": some} for name, some in SAID.items()]),
    "names.json": json.dumps(SAID),
    "captions_val2014.json": coco(),
    "dataset_small.json": karpathy(),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    file = write(paint(tmp_path / "data") / name, FORMS[name])
    wanted = sorted((shade(picture), text) for picture, text in ROWS)
    assert sorted(rows_of(read_single(str(file), CaptionSettings(source="x")))) == wanted
    assert sorted(rows_of(read_single(str(file.parent), CaptionSettings(source="x")))) == wanted
    inputs = read_inputs(str(file), CaptionSettings(source="x"))
    assert [int(inputs.pictures[row][0, 0, 0]) for row in range(3)] == [shade(picture) for picture in SAID]
    assert inputs.targets is None


@pytest.mark.parametrize("lists", [False, True])
def test_parquet(lists: bool, tmp_path: Path) -> None:
    table = (
        {"image": list(SAID), "captions": list(SAID.values())}
        if lists
        else {"image": [name for name, _ in ROWS], "caption": [text for _, text in ROWS]}
    )
    file = paint(tmp_path / "data") / "some.parquet"
    pq.write_table(pa.table(table), file)
    found = rows_of(read_single(str(file), CaptionSettings(source="x")))
    assert found == [(shade(name), text) for name, text in ROWS]


def test_columns_by_name_and_number(tmp_path: Path) -> None:
    rows = [(name, "x", text, text.upper()) for name, text in ROWS]
    file = write(paint(tmp_path) / "t.csv", comma_separated(rows, ["one", "two", "three", "four"]))
    wanted = [(shade(name), one) for name, text in ROWS for one in (text, text.upper())]
    for column, target in (("one", "three,four"), (1, "3,4")):
        settings = CaptionSettings(source=str(file), column=column, target=target)
        assert rows_of(read_single(str(file), settings)) == wanted
    error = refused("data.column", file)
    assert "three" in error.cause
    assert "--target" in error.remedy
    assert "t.csv" in refused("data.column", file, column="five").cause


def test_another_file_may_name_its_columns_otherwise(tmp_path: Path) -> None:
    file = write(paint(tmp_path) / "t.csv", comma_separated(ROWS, ["image", "caption"]))
    settings = CaptionSettings(source="x", column="bild", target="text")
    assert len(read_single(str(file), settings)) == len(ROWS)


# ── where the pictures are ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("inside", ["images", "Images", "Flicker8k_Dataset", "val2014", "images/val2014"])
def test_usual_folders(inside: str, tmp_path: Path) -> None:
    paint(tmp_path / inside)
    for home in (tmp_path, tmp_path / "annotations"):
        file = write(home / "captions_val2014.json", coco())
        assert len(read_single(str(file), CaptionSettings(source="x"))) == len(ROWS)
        file.unlink()


def test_a_folder_that_is_named(tmp_path: Path) -> None:
    paint(tmp_path / "far" / "away")
    file = write(tmp_path / "here" / "captions.csv", FORMS["captions.csv"])
    refused("picture.missing", file)
    settings = CaptionSettings(source=str(file), folder=str(tmp_path / "far" / "away"))
    assert len(read_single(str(file), settings)) == len(ROWS)
    assert "data.folder" in refused("data.missing", file, folder="nowhere").remedy
    absolute = [(str(tmp_path / "far" / "away" / name), text) for name, text in ROWS]
    file = write(tmp_path / "absolute.csv", comma_separated(absolute, ["image", "caption"]))
    assert len(read_single(str(file), CaptionSettings(source="x"))) == len(ROWS)


def test_missing_pictures_are_told_by_name_and_line(tmp_path: Path) -> None:
    rows = [*ROWS, ("gone.png", "a ghost"), ("", "nothing"), ("gone.png", "again")]
    file = write(paint(tmp_path) / "t.csv", comma_separated(rows, ["image", "caption"]))
    error = refused("picture.missing", file)
    assert "2 of 5" in error.cause
    assert "t.csv, line 8: gone.png" in error.cause
    assert "t.csv, line 9: names no picture" in error.cause
    assert "data.pictures.broken=skip" in error.remedy
    notes: list[str] = []
    settings = CaptionSettings(source="x", pictures={"broken": "skip"})
    assert len(read_single(str(file), settings, None, notes.append)) == len(ROWS)
    assert any("left out 2 pictures that are not there (the first: gone.png; t.csv, line 8)" in one for one in notes)


def test_broken_pictures(tmp_path: Path) -> None:
    file = write(paint(tmp_path) / "t.csv", comma_separated([*ROWS, ("d.png", "a hole")], ["image", "caption"]))
    write(tmp_path / "d.png", "no picture at all")
    assert "d.png" in refused("picture.broken", file).cause
    settings = CaptionSettings(source="x", pictures={"broken": "skip"})
    assert len(read_single(str(file), settings)) == len(ROWS)


def test_the_form_of_a_model(tmp_path: Path) -> None:
    file = write(paint(tmp_path) / "t.csv", FORMS["captions.csv"])
    found = read_single(str(file), CaptionSettings(source="x"), shape=(3, 4, 6))
    assert found.pictures.shape == (3, 4, 6)
    assert read_inputs(str(file), CaptionSettings(source="x"), shape=(1, 5, 5)).pictures.shape == (1, 5, 5)


def test_inputs_of_a_folder_and_of_a_picture(tmp_path: Path) -> None:
    paint(tmp_path / "some", ["b.png", "x/a.png"])
    found = read_inputs(str(tmp_path / "some"), CaptionSettings(source="x"))
    assert list(found.places) == ["b.png", "x/a.png"]
    one = read_inputs(str(tmp_path / "some" / "b.png"), CaptionSettings(source="x"))
    assert int(one.pictures[0][0, 0, 0]) == shade("b.png")
    listed = write(tmp_path / "some" / "list.txt", "b.png\nx/a.png\n")
    assert len(read_inputs(str(listed), CaptionSettings(source="x"))) == 2


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def many(folder: Path, count: int = 40, each: int = 3) -> list[tuple[str, str]]:
    names = [f"p{number:03}.png" for number in range(count)]
    for number, name in enumerate(names):
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(folder / name)
    return [(name, f"caption {number} of {name[:-4]}") for number in range(each) for name in names]


def pictures_of(part: Any) -> set[int]:
    return {value for value, _ in rows_of(part)}


def test_parts_are_drawn_by_picture_whatever_the_order(tmp_path: Path) -> None:
    rows = many(tmp_path)
    write(tmp_path / "one.csv", comma_separated(rows, ["image", "caption"]))
    write(tmp_path / "two.csv", comma_separated(rows[::-1][:70], ["image", "caption"]))
    one, two = (read(CaptionSettings(source=str(tmp_path / name))) for name in ("one.csv", "two.csv"))
    sizes = {name: len(pictures_of(one.part(name))) for name in ("train", "valid", "test")}
    assert sizes == {"train": 32, "valid": 4, "test": 4}
    assert sum(len(one.part(name)) for name in sizes) == len(rows)
    for name in sizes:
        assert pictures_of(two.part(name)) == pictures_of(one.part(name))
        assert len(one.part(name)) == 3 * sizes[name]
    assert one.fingerprint != two.fingerprint


def test_the_same_picture_under_two_names_is_in_one_part(tmp_path: Path) -> None:
    rows = many(tmp_path, count=20, each=1)
    for name, _ in rows[:]:
        (tmp_path / f"z{name}").write_bytes((tmp_path / name).read_bytes())
        rows.append((f"z{name}", "again"))
    file = write(tmp_path / "one.csv", comma_separated(rows, ["image", "caption"]))
    parts = read(CaptionSettings(source=str(file), fractions=(0.5, 0.25, 0.25)))
    found = [pictures_of(parts.part(name)) for name in ("train", "valid", "test")]
    assert sum(map(len, found)) == 20 == len(set.union(*found))
    assert any("20 pictures are there under another name" in note for note in parts.notes)


def test_a_column_of_parts(tmp_path: Path) -> None:
    words = {"a.png": "train", "b.png": "val", "c.png": "Test"}
    rows = [(name, text, words[name]) for name, text in ROWS]
    file = write(paint(tmp_path) / "t.csv", comma_separated(rows, ["image", "caption", "split"]))
    parts = read(CaptionSettings(source=str(file)))
    assert [len(parts.part(name)) for name in ("train", "valid", "test")] == [2, 1, 3]
    rows[1] = (*rows[1][:2], "half")
    write(file, comma_separated(rows, ["image", "caption", "split"]))
    assert 't.csv, line 3: "half" is no part' in refused("data.split", file).cause


def test_a_picture_that_is_said_to_be_in_two_parts_is_not_learnt_from(tmp_path: Path) -> None:
    words = ["train", "test", "valid", "train", "train", "train"]
    rows = [(name, text, word) for (name, text), word in zip(ROWS, words, strict=True)]
    file = write(paint(tmp_path) / "t.csv", comma_separated(rows, ["image", "caption", "split"]))
    parts = read(CaptionSettings(source=str(file)))
    assert [len(parts.part(name)) for name in ("train", "valid", "test")] == [3, 1, 1]
    assert any("left out 1 pictures of the train part" in note for note in parts.notes)


def test_files_for_validation_and_test(tmp_path: Path) -> None:
    rows = many(tmp_path, count=10, each=2)
    for name, some in {"train": rows, "valid": rows[:1], "test": rows[1:3]}.items():
        write(tmp_path / f"{name}.csv", comma_separated(some, ["image", "caption"]))
    named = {name: str(tmp_path / f"{name}.csv") for name in ("valid", "test")}
    parts = read(CaptionSettings(source=str(tmp_path / "train.csv"), **named))
    assert [len(parts.part(name)) for name in ("train", "valid", "test")] == [14, 1, 2]
    whole = read(CaptionSettings(source=str(tmp_path)))  # the folder's own files
    assert [len(whole.part(name)) for name in ("train", "valid", "test")] == [14, 1, 2]
    again = str(tmp_path / "train.csv")
    refused("data.split", again, valid=again)


def test_flickr_lists_say_the_parts(tmp_path: Path) -> None:
    write(paint(tmp_path / "Flicker8k_Dataset").parent / "Flickr8k.token.txt", FORMS["Flickr8k.token.txt"])
    with open(tmp_path / "Flickr8k.token.txt", "a", encoding="utf-8") as file:
        file.write("lost.jpg.1#0\tis in no list , and not there\n")
    write(tmp_path / "Flickr_8k.trainImages.txt", "a.png\n")
    write(tmp_path / "Flickr_8k.devImages.txt", "c.png\n")
    parts = read(CaptionSettings(source=str(tmp_path)))
    assert [rows_of(parts.part(name)) for name in ("train", "valid", "test")] == [
        [(shade("a.png"), text) for text in SAID["a.png"]],
        [(shade("c.png"), text) for text in SAID["c.png"]],
        [],
    ]
    assert any("2 pictures are in none of them" in note for note in parts.notes)


def test_coco_folders_say_the_parts(tmp_path: Path) -> None:
    for part, names in {"train2014": ["a.png"], "val2014": ["b.png", "c.png"]}.items():
        paint(tmp_path / part, names)
        images = [{"id": place, "file_name": name} for place, name in enumerate(names)]
        notes = [{"image_id": place, "caption": SAID[name][0]} for place, name in enumerate(names)]
        text = json.dumps({"images": images, "annotations": notes})
        write(tmp_path / "annotations" / f"captions_{part}.json", text)
        write(tmp_path / "annotations" / f"instances_{part}.json", "{}")
    parts = read(CaptionSettings(source=str(tmp_path)))
    assert [len(parts.part(name)) for name in ("train", "valid", "test")] == [1, 2, 0]


def test_image_folders_say_the_parts(tmp_path: Path) -> None:
    for part, name in {"train": "a.png", "validation": "b.png", "test": "c.png"}.items():
        paint(tmp_path / part, [name])
        lines = [json.dumps({"file_name": name, "text": text}) for text in SAID[name]]
        write(tmp_path / part / "metadata.jsonl", "\n".join(lines))
    parts = read(CaptionSettings(source=str(tmp_path)))
    assert [len(parts.part(name)) for name in ("train", "valid", "test")] == [2, 1, 3]


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_empty_captions_are_told_and_texts_normalised(tmp_path: Path) -> None:
    rows = [*ROWS, ("b.png", "  "), ("b.png", "two  little\tcats "), ("b.png", "cafe\u0301")]
    file = write(paint(tmp_path) / "t.csv", comma_separated(rows, ["image", "caption"]))
    notes: list[str] = []
    found = read_single(str(file), CaptionSettings(source="x"), None, notes.append)
    assert found.targets[-2:] == ["two little cats", "caf\u00e9"]
    assert any("left out 1 empty caption (the first: t.csv, line 8)" in note for note in notes)
    kept = read_single(str(file), CaptionSettings(source="x", normalise=False))
    assert kept.targets[-2] == "two  little\tcats "


def test_pictures_without_captions_are_told(tmp_path: Path) -> None:
    whole = json.loads(coco())
    whole["annotations"] = [one for one in whole["annotations"] if one["image_id"] != 11]
    file = write(paint(tmp_path) / "captions_x.json", json.dumps(whole))
    notes: list[str] = []
    assert len(read_single(str(file), CaptionSettings(source="x"), None, notes.append)) == 5
    assert any("captions_x.json, image 2" in note for note in notes)


def test_mirrored_rows(tmp_path: Path) -> None:
    file = write(paint(tmp_path) / "t.csv", FORMS["captions.csv"])
    assert read_single(str(file), CaptionSettings(source="x")).mirrored.tolist() == [
        True,
        False,
        True,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a cat to the LEFT of a dog", "a right-handed batter", "the left-most chair", "Ein Hund links von der Katze",
        "die rechte Hand", "ein rechtshändiger Spieler", "un chat à gauche", "la main droite", "un perro a la derecha",
        "mano izquierda", "alla sinistra", "à direita", "een hond rechts", "till vänster", "слева от дома", "在左边",
        "右側の犬", "왼쪽에 있는 개", "solunda bir kedi", "runs counterclockwise", "lewa ręka", "على اليسار",
    ],
)  # fmt: skip
def test_what_tells_left_from_right(text: str) -> None:
    assert sided(text)


@pytest.mark.parametrize(
    "text",
    [
        "a cat above a dog", "leftovers on a plate", "a bright light", "a frightened girl", "ein rechteckiger Tisch",
        "ein Link auf der Seite", "un chien sous la table", "un perro en la playa", "a copyright sign", "une adroite",
        "", "gerechnet", "dos perros", "a downright mess",
    ],
)  # fmt: skip
def test_what_does_not(text: str) -> None:
    assert not sided(text)


def test_flips_of_photographs_only() -> None:
    assert flips(CaptionSettings(source="x"), (3, 224, 224))
    assert not flips(CaptionSettings(source="x"), (3, 64, 64))
    assert not flips(CaptionSettings(source="x"), (1, 224, 224))
    assert flips(CaptionSettings(source="x", pictures={"flips": True}), (1, 8, 8))
    assert not flips(CaptionSettings(source="x", pictures={"flips": False}), (3, 224, 224))


# ── what is wrong ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_errors_name_the_file_and_the_line(tmp_path: Path) -> None:
    paint(tmp_path)
    wrong = {
        "short.tsv": ("a.png\ta dog\nb.png\n", "data.caption", "short.tsv, line 2: has 1 column"),
        "bad.jsonl": ('{"image": "a.png", "caption": "x"}\n{"image": "a.png"}\n', "data.column", "bad.jsonl, line 2"),
        "odd.jsonl": (
            '{"image": "a.png", "caption": "x"}\n{"image": "a.png", "caption": 7}\n',
            "data.column",
            "line 2",
        ),
        "broken.json": ("{", "data.json", "broken.json: not JSON"),
        "no.json": ('{"a": 1}', "data.json", "no.json: holds no captions"),
        "orphan.json": (
            '{"images": [{"id": 1, "file_name": "a.png"}], "annotations": [{"image_id": 2, "caption": "x"}]}',
            "data.json",
            "orphan.json, annotation 1: there is no image 2",
        ),
        "boxes.json": (
            '{"images": [{"id": 1, "file_name": "a.png"}], "annotations": [{"image_id": 1, "bbox": []}]}',
            "data.json",
            "boxes.json, annotation 1: has no image_id or no caption",
        ),
        "quote.csv": ('image,caption\na.png,"open\n', "data.csv", "quote.csv, line 2"),
        "empty.csv": ("", "data.empty", "holds no captions"),
        "silent.csv": ("image,caption\na.png,\n", "data.empty", "holds no captions"),
        "plain.txt": ("just some text\nand more\n", "data.column", "plain.txt, line 1"),
    }
    for name, (text, code, cause) in wrong.items():
        assert cause in refused(code, write(tmp_path / name, text)).cause


def test_sources_that_hold_no_captions(tmp_path: Path) -> None:
    assert "captions.csv" in refused("data.caption", paint(tmp_path / "bare")).remedy
    for name in ("captions.csv", "captions.tsv"):
        write(tmp_path / "two" / name, "image,caption\n")
    assert "2 files of captions" in refused("data.several", tmp_path / "two").cause
    refused("data.missing", tmp_path / "nowhere.csv")
    assert "the task translate" in refused("data.caption", "dates").cause
    refused("data.too-short", write(paint(tmp_path) / "t.csv", "image,caption\na.png,a dog\n"))


# ── boxes, and built-in sets as files ─────────────────────────────────────────────────────────────────────────────


def test_boxes_go_with_their_pictures(tmp_path: Path) -> None:
    """A square of one colour in a larger picture: wherever it is shown, the box is around it."""
    boxes = [{"noun": "square", "place": 1, "box": [36, 20, 60, 44]}]
    write(tmp_path / "t.jsonl", json.dumps({"image": "p.png", "caption": "a square", "boxes": boxes}) + "\n")
    for size in ((96, 64), (64, 96), (80, 80)):
        whole = np.zeros((*size, 3), np.uint8)
        whole[20:44, 36:60] = 255
        Image.fromarray(whole).save(tmp_path / "p.png")
        for fit, shape in ((fit, shape) for fit in ("crop", "pad", "stretch") for shape in ((3, 32, 32), (3, 40, 24))):
            found = read_single(
                str(tmp_path / "t.jsonl"), CaptionSettings(source="x", pictures={"fit": fit}), shape=shape
            )
            rows, columns = np.nonzero(found.pictures[0][..., 0] > 127)
            ((one,),) = found.boxes
            assert (one.place, one.noun) == (1, "square")
            around = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            assert max(abs(a - b) for a, b in zip(one.box, around, strict=True)) <= 1


def test_boxes_that_are_not_shown_and_those_that_cannot_be_read(tmp_path: Path) -> None:
    Image.new("L", (8, 32), 9).save(tmp_path / "p.png")
    line = {"image": "p.png", "caption": "a dog", "boxes": [{"noun": "dog", "place": 1, "box": [0, 0, 8, 4]}]}
    file = write(tmp_path / "t.jsonl", json.dumps(line) + "\n")
    assert read_single(str(file), CaptionSettings(source="x"), shape=(1, 8, 8)).boxes == [[]]
    assert read_single(str(file), CaptionSettings(source="x"), shape=(1, 32, 8)).boxes[0][0].box == (0, 0, 8, 4)
    line["boxes"] = [{"noun": "dog", "box": [0, 0]}]
    assert "t.jsonl, line 1" in refused("data.boxes", write(file, json.dumps(line))).cause


def test_scenes_as_files_are_the_same_scenes(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["write", "scenes", str(tmp_path / "scenes"), "--count", "12"])
    assert shown.exit_code == 0
    made, found = read(CaptionSettings(source="scenes")), read(CaptionSettings(source=str(tmp_path / "scenes")))
    for name in ("train", "valid", "test"):
        wanted, part = made.part(name), found.part(name)
        rows = np.flatnonzero(wanted.pictures.rows < 12)
        some = wanted.take(rows)
        assert part.targets == some.targets
        assert part.boxes == some.boxes
        assert part.mirrored.tolist() == some.mirrored.tolist()
        assert np.array_equal(part.pictures.padded(rows)[0], some.pictures.padded(rows)[0])
    again = CliRunner().invoke(app, ["write", "scenes", str(tmp_path / "scenes")])
    assert again.exception.code == "data.exists"
    assert CliRunner().invoke(app, ["write", "mnist", str(tmp_path / "x")]).exception.code == "data.write"


def test_small_drawings_are_not_moved_unless_asked(tmp_path: Path) -> None:
    file = write(paint(tmp_path) / "t.csv", FORMS["captions.csv"])
    three = (0.4, 0.3, 0.3)
    assert read(CaptionSettings(source=str(file), fractions=three)).train.pictures.margin == 0
    asked = CaptionSettings(source=str(file), fractions=three, pictures={"crops": 2})
    assert read(asked).train.pictures.margin == 2
    Image.new("L", (100, 90)).save(tmp_path / "a.png")
    assert read(CaptionSettings(source=str(file), fractions=three)).train.pictures.margin > 0


def test_pictures_of_a_built_in_set_are_as_they_are() -> None:
    refused("data.pictures", "scenes", pictures={"side": 32})
    assert len(read_inputs("scenes", CaptionSettings(source="scenes"))) == 1_000


# ── the doctor ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_doctor_finds_all_at_once(tmp_path: Path) -> None:
    rows = [*ROWS, ("gone.png", "a ghost"), ("d.png", "a hole"), ("b.png", " "), ("b.png", "a man")]
    file = write(paint(tmp_path) / "t.csv", comma_separated(rows, ["image", "caption"]))
    write(tmp_path / "d.png", "no picture at all")
    shown = CliRunner().invoke(app, ["check", str(file), "--json"])
    assert shown.exit_code == 2
    report = json.loads(shown.stdout)
    assert {one["code"] for one in report["problems"]} == {"picture.missing", "picture.broken"}
    assert "t.csv, line 8: gone.png" in report["problems"][0]["examples"][0]
    assert (report["pictures"], report["captions"], report["empty"]) == (4, 8, 1)
    assert (report["sided"], report["repeated"], report["most"]) == (1, 1, 3)
    assert report["sides"]["caption"]["longest"] == 5


def test_the_doctor_tells_what_it_found(tmp_path: Path) -> None:
    file = write(paint(tmp_path) / "captions.csv", FORMS["captions.csv"])
    for source in (file, tmp_path):
        shown = CliRunner().invoke(app, ["check", str(source)])
        assert shown.exit_code == 0
        assert "captions that tell left from right" in shown.stdout
        assert "lengths of the caption (words)" in shown.stdout


@pytest.mark.parametrize("name", FORMS)
def test_the_doctor_knows_captions(name: str, tmp_path: Path) -> None:
    assert holds_captions(str(write(paint(tmp_path / "data") / name, FORMS[name])))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "image,label\na.png,dog\nb.png,cat\n"),
        ("pairs.tsv", "Go.\tVa !\nStop.\tArrête.\n"),
        ("prose.txt", "The file a.png is a picture,\nand b.jpg is another.\n"),
        ("data.json", '{"data": [{"paragraphs": []}]}'),
        ("reviews.csv", "text,label\na fine film,1\nsee poster.png,0\n"),
    ],
)
def test_the_doctor_does_not_take_other_files_for_captions(name: str, text: str, tmp_path: Path) -> None:
    assert not holds_captions(str(write(tmp_path / name, text)))
