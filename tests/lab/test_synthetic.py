"""Synthetic sets: frozen values, correct answers, disjoint splits, and captions that agree with boxes and pixels."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.data.catalogue.generated import SETS, parse_name, read_image_splits
from seriatim.data.source import Source, open_source, synthetic_source
from seriatim.lab.synthetic import scenes, sequences
from seriatim.lab.synthetic.scenes import COLORS, QUARTERS, SHAPES, SIDE, SIZES, Shape, captions
from seriatim.lab.synthetic.translation import (
    date_pairs,
    digits_ordinal,
    english,
    english_ordinal,
    english_year,
    french,
    french_ordinal,
)

COLOR_NAMES = tuple(COLORS)
MIRROR = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))


def open_set(spec: str) -> Source:
    source = synthetic_source(spec)
    assert source is not None
    return source


def digest(*parts: Any) -> str:
    result = hashlib.sha256()
    for part in parts:
        result.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return result.hexdigest()


# ── names and frozen values ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spec", ["adding:1", "copy:0", "copy-pairs:1", "copy-pairs:1001", "curve:1", "scenes:4"])
def test_options_out_of_range(spec: str) -> None:
    with pytest.raises(SeriatimError, match=r"not between [12] and [\d,]+") as caught:
        synthetic_source(spec)
    assert caught.value.code == "data.length"


def test_names() -> None:
    with pytest.raises(SeriatimError, match="not a length") as caught:
        parse_name("adding:x")
    assert (caught.value.code, caught.value.remedy) == ("data.length", "write for example adding:600")
    assert parse_name("adding:200") == (SETS["adding"], 200)
    assert parse_name("adding") == (SETS["adding"], 600)
    assert parse_name("dates") == (SETS["dates"], None)
    assert parse_name("dates:5") is None
    assert synthetic_source("reviews.csv") is None
    assert all(entry.name == name and entry.summary for name, entry in SETS.items())


@pytest.mark.parametrize(
    ("spec", "sizes", "expected"),
    [
        ("adding:20", (50_000, 1_000, 1_000), "0235256572d1749dc67dfa1dc46e9bdb6f47a61b04553b9d19119b723b6d9f59"),
        ("copy:5", (10_000, 500, 1_000), "0610cc16144414ae6bb5c0bc65fac12bff348fedc7fb03fe7db7f989f0a9de7d"),
        ("curve:30", (30, 100, 200), "b6c888d74c3be597542229bc761e153ebc1f49e79665c6399999bc881520401c"),
        ("reverse-pairs", (20_000, 500, 1_000), "ea3131e6da4dce7158408847cdf0734eb5932f7981546114d369cac6067ffbf4"),
    ],
)
def test_sets_are_the_same_everywhere(spec: str, sizes: tuple[int, ...], expected: str) -> None:
    """Results on these sets are compared across machines and versions."""
    source = open_set(spec)
    assert list(source.splits) == ["train", "validation", "test"]
    assert tuple(len(next(iter((part.columns or {}).values()))) for part in source.splits.values()) == sizes
    assert all(len({len(values) for values in (part.columns or {}).values()}) == 1 for part in source.splits.values())
    values = [values for part in source.splits.values() for values in (part.columns or {}).values()]
    assert digest(*values) == expected


def test_texts_are_the_same_everywhere() -> None:
    expected = {
        "brackets": "1f0e3d4392166ef609a30cb80224d0aacf06f4bd4a8864de0c0100b8a3ca2895",
        "copying": "82a8bea59da4b2c7fe692aba64afdd655b4ba69f70f5167895f8892669bc5fc1",
    }
    for name, value in expected.items():
        (stream,) = open_set(name).streams
        assert hashlib.sha256(stream.open().read()).hexdigest() == value
    assert sequences.brackets(seed=2) != sequences.brackets(seed=1)
    (stream,) = open_set("pydoc").streams
    assert (stream.name, stream.extension) == ("pydoc.txt", "txt")
    assert "statement" in stream.read_text()


# ── sequences ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_brackets_are_closed_and_copies_repeat() -> None:
    for line in sequences.brackets(lines=200).splitlines():
        while (shorter := re.sub(r"\(\)|\[\]|\{\}|<>", "", line)) != line:
            line = shorter
        assert line == ""
    for line in sequences.copying(lines=200).splitlines():
        first, second = line.split("=")
        assert first == second


def test_adding_copying_and_curve() -> None:
    for length in (2, 7):
        for columns in sequences.adding(length).values():
            block = np.asarray(columns["sequence"])
            assert block.shape[1:] == (length, 2)
            assert (block[:, : length // 2, 1].sum(axis=1) == 1).all()
            assert (block[:, length // 2 :, 1].sum(axis=1) == 1).all()
            np.testing.assert_allclose((block[..., 0] * block[..., 1]).sum(axis=1), columns["target"], rtol=1e-6)
            assert 0 <= block[..., 0].min() <= block[..., 0].max() < 1
    columns = sequences.copy_memory(3)["test"]
    for tokens, tags in zip(columns["tokens"], columns["tags"], strict=True):
        assert tokens[10:12] == ["0", "0"]
        assert (tokens[-11:], tags[:-10]) == (["9"] * 11, ["0"] * 13)
        assert tokens[:10] == tags[-10:]
        assert set(tokens[:10]) <= set("12345678")
    columns = sequences.curve(10_000)["train"]
    x, y = np.asarray(columns["x"]), np.asarray(columns["y"])
    noise = y - 2 * np.sin(x) - x**0.8
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 0.5) < 0.02
    assert np.asarray(sequences.sine()["train"]["value"]).shape == (10_000, 51)


@pytest.mark.parametrize(
    ("name", "answer"), [("copy-pairs", list), ("reverse-pairs", lambda word: word[::-1]), ("sort-pairs", sorted)]
)
def test_letter_pairs(name: str, answer: Callable[[list[str]], list[str]]) -> None:
    splits = {split: part.columns or {} for split, part in open_set(f"{name}:6").splits.items()}
    words = {split: set(columns["source"]) for split, columns in splits.items()}
    assert not words["train"] & (words["test"] | words["validation"])
    assert not words["validation"] & words["test"]
    for source, target in zip(splits["test"]["source"], splits["test"]["target"], strict=True):
        assert target == " ".join(answer(source.split(" ")))
        assert 1 <= len(source.split(" ")) <= 6
    lengths = [len(source.split(" ")) for source in splits["train"]["source"]]
    assert all(3000 < lengths.count(length) < 3700 for length in range(1, 7))


# ── English and French ────────────────────────────────────────────────────────────────────────────────────────────

NUMERALS = {
    0: "zéro", 1: "un", 7: "sept", 16: "seize", 17: "dix-sept", 20: "vingt", 21: "vingt et un", 22: "vingt-deux",
    31: "trente et un", 61: "soixante et un", 69: "soixante-neuf", 70: "soixante-dix", 71: "soixante et onze",
    72: "soixante-douze", 79: "soixante-dix-neuf", 80: "quatre-vingts", 81: "quatre-vingt-un",
    90: "quatre-vingt-dix", 91: "quatre-vingt-onze", 99: "quatre-vingt-dix-neuf", 100: "cent", 101: "cent un",
    111: "cent onze", 171: "cent soixante et onze", 180: "cent quatre-vingts", 200: "deux cents",
    201: "deux cent un", 280: "deux cent quatre-vingts", 999: "neuf cent quatre-vingt-dix-neuf", 1000: "mille",
    1001: "mille un", 1100: "mille cent", 1200: "mille deux cents", 2000: "deux mille", 2021: "deux mille vingt et un",
    21_000: "vingt et un mille", 80_000: "quatre-vingt mille", 80_080: "quatre-vingt mille quatre-vingts",
    100_000: "cent mille", 200_000: "deux cent mille", 200_200: "deux cent mille deux cents",
    300_081: "trois cent mille quatre-vingt-un", 999_999:
    "neuf cent quatre-vingt-dix-neuf mille neuf cent quatre-vingt-dix-neuf",
}  # fmt: skip


def test_french_numbers() -> None:
    assert {number: french(number) for number in NUMERALS} == NUMERALS
    feminine = {1: "une", 21: "vingt et une", 71: "soixante et onze", 81: "quatre-vingt-une", 101: "cent une",
                80: "quatre-vingts", 1001: "mille une", 11: "onze"}  # fmt: skip
    assert {number: french(number, feminine=True) for number in feminine} == feminine
    years = {1980: "mille neuf cent quatre-vingt", 1800: "mille huit cent", 1987: "mille neuf cent quatre-vingt-sept",
             2000: "deux mille", 1971: "mille neuf cent soixante et onze"}  # fmt: skip
    assert {year: french(year, rank=True) for year in years} == years
    ranks = {1: "premier", 2: "deuxième", 4: "quatrième", 5: "cinquième", 9: "neuvième", 11: "onzième",
             21: "vingt et unième", 71: "soixante et onzième", 80: "quatre-vingtième", 81: "quatre-vingt-unième",
             100: "centième"}  # fmt: skip
    assert {rank: french_ordinal(rank) for rank in ranks} == ranks
    assert french_ordinal(1, feminine=True) == "première"


def parse_french(words: str) -> int:
    """Returns the value of a French number, read from left to right."""
    simple = {"un": 1, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "six": 6, "sept": 7, "huit": 8, "neuf": 9,
              "dix": 10, "onze": 11, "douze": 12, "treize": 13, "quatorze": 14, "quinze": 15, "seize": 16,
              "vingt": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60, "zéro": 0}  # fmt: skip
    total = part = 0
    words = words.replace("quatre-vingts", "quatre-vingt").replace("quatre-vingt", "octante")
    for word in words.replace("-", " ").split():
        if word == "mille":
            total, part = total + max(1, part) * 1000, 0
        elif word in ("cent", "cents"):
            part = max(1, part) * 100
        elif word != "et":
            part += 80 if word == "octante" else simple[word]
    return total + part


def test_french_numbers_have_their_values() -> None:
    numbers = [*range(2000), *range(2000, 1_000_000, 997)]
    assert [parse_french(french(number)) for number in numbers] == numbers
    for number in numbers:
        words = french(number)
        assert "mille" not in words.replace(" mille", "").removeprefix("mille")
        assert "cents mille" not in words
        assert "vingts mille" not in words


def test_english_numbers() -> None:
    known = {0: "zero", 13: "thirteen", 40: "forty", 85: "eighty-five", 100: "one hundred",
             201: "two hundred and one", 1000: "one thousand", 1005: "one thousand and five",
             1200: "one thousand two hundred", 80_300: "eighty thousand three hundred"}  # fmt: skip
    assert {number: english(number) for number in known} == known
    ranks = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth", 20: "twentieth",
             21: "twenty-first", 100: "one hundredth"}  # fmt: skip
    assert {rank: english_ordinal(rank) for rank in ranks} == ranks
    years = {1987: "nineteen eighty-seven", 1905: "nineteen oh five", 1900: "nineteen hundred", 2000: "two thousand",
             2004: "two thousand and four", 2014: "twenty fourteen"}  # fmt: skip
    assert {year: english_year(year) for year in years} == years
    short = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 31: "31st"}
    assert {rank: digits_ordinal(rank) for rank in short} == short


def test_dates_are_grammatical() -> None:
    columns = open_set("dates").columns or {}
    pairs = dict(zip(columns["source"], columns["target"], strict=True))
    assert len(pairs) == len(columns["source"]) == 20_000
    assert all(3 <= len(side.split()) <= 15 for pair in pairs.items() for side in pair)
    french_side = "\n".join(pairs.values())
    for wrong in ("le arbre", "la île", "le oiseau", "de avril", "de août", "de octobre", "beau arbre", "vieux arbre",
                  "nouveau arbre", "vieux oiseau", "le 1", "le un", "du un", "chevals", "bateaus", "blancs îles",
                  "un heure", "de le", "de les", "Mars", "Lundi"):  # fmt: skip
        assert not re.search(rf"\b{wrong}\b", french_side), wrong
    for right in ("l'arbre", "l'île", "vieil oiseau", "bel oiseau", "nouvel arbre", "d'avril", "le 1er ",
                  "vieilles voitures", "du premier au", "une heure", "est née", "est né "):  # fmt: skip
        assert right in french_side, right
    translations = {
        "the old green island": "la vieille île verte",
        "the queen's blue tree": "l'arbre bleu de la reine",
        "four hundred and one black cows": "quatre cent une vaches noires",
        "our uncle's seventy-first letter": "la soixante et onzième lettre de notre oncle",
        "the twelfth of January, nineteen eighty": "le douze janvier mille neuf cent quatre-vingt",
        "from the first to the twenty-second of April": "du premier au vingt-deux avril",
        "It is ten to one in the afternoon.": "Il est une heure moins dix de l'après-midi.",
        "Paul is eighty years old.": "Paul a quatre-vingts ans.",
        "The town has two hundred thousand inhabitants.": "La ville compte deux cent mille habitants.",
        "The farmer did not buy the white bird.": "Le fermier n'a pas acheté l'oiseau blanc.",
    }
    assert {source: pairs[source] for source in translations} == translations


def test_dates_are_the_same_everywhere() -> None:
    assert date_pairs(2)["train"] == {
        "source": [
            "December 10th, 1950",
            "They found three beautiful yellow boxes on the twenty-eighth of February, seventeen seventy-five.",
        ],
        "target": [
            "le 10 décembre 1950",
            "Le vingt-huit février mille sept cent soixante-quinze, ils ont trouvé trois belles boîtes jaunes.",
        ],
    }


# ── scenes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[list[tuple[Shape, ...]], np.ndarray, list[list[scenes.Thing]]]]:
    """Scenes, images and things of each split."""
    splits = {}
    for number, (split, shapes) in enumerate(scenes.split_scenes(2).items()):
        images = scenes.paper(np.random.PCG64([1, 1, number]), len(shapes))
        things = [scenes.draw_scene(image, scene) for image, scene in zip(images, shapes, strict=True)]
        splits[split] = shapes, images, things
    return splits


@pytest.fixture(scope="module")
def splits() -> Mapping[str, Mapping[str, Any]]:
    return {split: part.columns or {} for split, part in open_set("scenes").splits.items()}


def shape(size: str, color: str, form: str, x: int, y: int) -> tuple[list[str], tuple[int, int]]:
    return [size, color, form], (QUARTERS * x, QUARTERS * y)


def texts(*shapes: tuple[list[str], tuple[int, int]]) -> set[str]:
    return {text for text, _ in captions(*map(list, zip(*shapes, strict=True)))}


def test_captions() -> None:
    circle, star = shape("large", "red", "circle", 32, 45), shape("small", "blue", "star", 30, 15)
    ring = shape("small", "orange", "ring", 54, 14)
    assert texts(circle) == {"a large red circle"}
    assert texts(circle, star) == {
        "a large red circle below a small blue star",
        "a small blue star above a large red circle",
    }
    assert texts(star, ring) == {
        "a small blue star to the left of a small orange ring",
        "a small orange ring to the right of a small blue star",
    }
    assert texts(star, ring, circle) == {
        "a small blue star to the left of a small orange ring and above a large red circle",
        "a small blue star above a large red circle and to the left of a small orange ring",
        "a small orange ring to the right of a small blue star and above a large red circle",
        "a small orange ring above a large red circle and to the right of a small blue star",
        "a large red circle below a small blue star and a small orange ring",
        "a large red circle below a small orange ring and a small blue star",
    }
    assert captions([["orange", "ring"]], [(0, 0)]) == [("an orange ring", [2])]


def test_images_are_the_same_everywhere(drawn: Any) -> None:
    result = hashlib.sha256()
    for shapes, images, _ in drawn.values():
        result.update(images.tobytes())
        result.update(repr(shapes).replace("Shape(form=", "Object(shape=").replace("color=", "colour=").encode())
    assert result.hexdigest() == "ebf46fde0e0293612ba1b745484a6cc44f31373cd8c21b6fc7e042a6eae8abae"


def test_boxes_hold_exactly_the_pixels_of_a_shape(drawn: Any) -> None:
    shapes, _, things = drawn["test"]
    for scene, objects in zip(shapes[:300], things[:300], strict=True):
        for drawn_shape, thing in zip(scene, objects, strict=True):
            for background in (0, 255):  # a shape as light as the paper is invisible on one of them
                image = np.full((SIDE, SIDE, 3), background, np.uint8)
                assert [other.box for other in scenes.draw_scene(image, (drawn_shape,))] == [thing.box]
                rows, columns = np.nonzero((image != background).any(axis=2))
                if background == 0 and min(drawn_shape.shade) < 8:  # a sixteenth of it is invisible
                    continue
                assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == thing.box


def test_shapes_have_their_colors_do_not_touch_and_differ(drawn: Any) -> None:
    shapes, images, things = drawn["validation"]
    centers = {(form.x % QUARTERS, form.y % QUARTERS) for scene in shapes for form in scene}
    assert len(centers) == QUARTERS**2  # not on a grid
    for scene, image, objects in zip(shapes, images, things, strict=True):
        assert len({(form.form, form.color, form.size) for form in scene}) == len(scene)
        for index, (form, thing) in enumerate(zip(scene, objects, strict=True)):
            left, top, right, bottom = thing.box
            assert 0 <= left < right <= SIDE
            assert 0 <= top < bottom <= SIDE
            near = (np.abs(image.astype(int) - form.shade) <= 1).all(axis=2)
            inside = near[top:bottom, left:right]
            assert inside.mean() > 0.1
            assert inside.sum() == near.sum() or any(o != form and o.color == form.color for o in scene)
            for other, other_thing in zip(scene[:index], objects, strict=False):
                across, down = abs(form.x - other.x), abs(form.y - other.y)
                assert max(across, down) >= 2 * min(across, down)
                axis = 0 if across > down else 1
                first, second = sorted([thing.box, other_thing.box], key=lambda box: box[axis])
                assert first[axis + 2] < second[axis]


def test_relations_sizes_and_boxes_agree(splits: Mapping[str, Mapping[str, Any]]) -> None:
    """A caption is read back: the box of the first noun lies where the words say, seen from each of the others."""
    relations = re.compile(r"(to the left of|to the right of|above|below)")
    extents: dict[str, list[int]] = {"small": [], "large": []}
    for text, regions in zip(splits["test"]["caption"], splits["test"]["regions"], strict=True):
        words = text.split()
        for region in regions:
            left, top, right, bottom = region.box
            assert words[region.position] == region.noun
            extents[words[region.position - 2]].append(max(right - left, bottom - top))
        order = sorted(regions)
        first, relation = order[0].box, ""
        for before, region in itertools.pairwise(order):
            between = relations.findall(" ".join(words[before.position + 1 : region.position]))
            relation = between[0] if between else relation
            left, top, right, bottom = region.box
            assert {
                "to the left of": first[2] < left, "to the right of": first[0] > right,
                "above": first[3] < top, "below": first[1] > bottom,
            }[relation]  # fmt: skip
    assert max(extents["small"]) * 4 < min(extents["large"]) * 3.5


def test_splits_of_scenes_are_disjoint(splits: Mapping[str, Mapping[str, Any]]) -> None:
    texts = {split: set(columns["caption"]) for split, columns in splits.items()}
    images = {split: {image.tobytes() for image in columns["image"]} for split, columns in splits.items()}
    for split, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert all(len(text.split()) == 4 for text in texts[split] & texts[other])  # of a single shape
        assert not images[split] & images[other]
    assert {split: len(values) for split, values in images.items()} == scenes.SPLIT_SIZES
    assert {split: max(columns["image_id"]) for split, columns in splits.items()} == scenes.SPLIT_SIZES
    words = {word for text in texts["train"] for word in text.split()}
    assert words == {"a", "above", "below", "to", "the", "left", "right", "of", *SHAPES, *COLOR_NAMES, *SIZES}


# ── digits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_digits_have_their_colors_and_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digit is a block of its own height, and each split has blocks of its own width."""
    mnist: dict[str, dict[str, Any]] = {}
    for offset, split in enumerate(("train", "validation", "test")):
        images = np.zeros((100, 28, 28), np.uint8)
        for row in range(100):
            images[row, 3 : 8 + row % 10, 5 : 11 + offset] = 255
        mnist[split] = {"image": images, "label": [str(row % 10) for row in range(100)]}
    monkeypatch.setattr(scenes, "SPLIT_SIZES", {"train": 40, "validation": 30, "test": 30})
    source = synthetic_source("digits", lambda name: mnist)
    assert source is not None
    for offset, part in enumerate(source.splits.values()):
        columns = part.columns or {}
        for image, text, regions in zip(columns["image"], columns["caption"], columns["regions"], strict=True):
            words = text.split()
            for region in regions:
                left, top, right, bottom = region.box
                assert words[region.position] == region.noun
                assert bottom - top == 5 + scenes.DIGITS.index(region.noun)
                assert right - left == 6 + offset
                inside = image[top:bottom, left:right].astype(int)
                assert len(np.unique(inside.reshape(-1, 3), axis=0)) == 1
                assert np.abs(inside[0, 0] - COLORS[words[region.position - 1]]).max() <= 10
    texts = (source.columns or {})["caption"]
    assert any(text.startswith("an orange ") for text in texts)
    assert not any("a orange" in text for text in texts)
    mnist["train"]["image"][0] = 0
    with pytest.raises(SeriatimError, match="mnist, train, image 1: holds no digit"):
        synthetic_source("digits", lambda name: mnist)
    with pytest.raises(SeriatimError, match="made of the data set mnist"):
        synthetic_source("digits")


@pytest.mark.skipif(not (MIRROR / "mnist").is_dir(), reason="needs the files of MNIST")
def test_digits_of_mnist() -> None:
    result = hashlib.sha256()
    for part in open_source("digits", str(MIRROR)).splits.values():
        columns = part.columns or {}
        _, first = np.unique(np.asarray(columns["image_id"]), return_index=True)
        for row in first:
            result.update(columns["image"][row].tobytes())
        result.update("\n".join(columns["caption"]).encode())
    assert result.hexdigest() == "08795c8dd3ca9ce06938ed447eeefa7a2d42b1764c53e71a6275c15aa46e7130"


def test_files_of_mnist_become_splits() -> None:
    """Headers of 16 bytes before images and of 8 before labels; the last twelfth of train is for validation."""

    class File:
        def __init__(self, name: str, header: int, values: np.ndarray) -> None:
            self.name, self.data = name, bytes(header) + values.tobytes()

        def read_bytes(self) -> bytes:
            return self.data

    images, labels = np.arange(36 * 784).astype(np.uint8).reshape(36, 28, 28), np.arange(36, dtype=np.uint8)
    files: Any = [
        File("train-images-idx3-ubyte", 16, images[:24]),
        File("train-labels-idx1-ubyte", 8, labels[:24]),
        File("t10k-images-idx3-ubyte", 16, images[24:]),
        File("t10k-labels-idx1-ubyte", 8, labels[24:]),
    ]
    splits = read_image_splits(files)
    for split, rows in {"train": slice(22), "validation": slice(22, 24), "test": slice(24, 36)}.items():
        np.testing.assert_array_equal(splits[split]["image"], images[rows])
        np.testing.assert_array_equal(splits[split]["label"], labels[rows])
