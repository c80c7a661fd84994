"""Small files of the names and kinds that the documentation uses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from seriatim.data.midi import write_midi

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def lay(folder: Path, book: str) -> None:
    """Puts all of them into a folder."""
    _texts(folder, book)
    _tables(folder)
    _words(folder)
    _pairs(folder)
    _questions(folder)
    _series(folder)
    _music(folder)
    _photos(folder)
    _images(folder)


def _write(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _texts(folder: Path, book: str) -> None:
    (folder / "book.txt").write_text(book + "the students opened their books.\n" * 40, encoding="utf-8")
    _write(folder / "more.txt", ["The dog saw the old man. The cat bit the hat. The new dog bit the man.", ""] * 60)
    texts = ["a touching love story", "a film about war", "they fall in love", "the bank gave me cash"]
    _write(folder / "texts.txt", texts)
    _write(folder / "texts.csv", ["review", *texts])
    _write(folder / "texts.jsonl", [json.dumps({"text": text}) for text in texts])
    films = folder / "films"
    films.mkdir()
    for word, name in (("fine café", "pos"), ("dull café", "neg")):
        lines = [f"a {word} film number {n}" for n in range(30)]
        (films / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="cp1252")


def _tables(folder: Path) -> None:
    texts = [f"a {word} film number {n}" for n in range(20) for word in ("fine", "dull")]
    _write(folder / "reviews.csv", ["text,label", *(f"{text},{'good' if 'fine' in text else 'bad'}" for text in texts)])
    _write(folder / "new.csv", ["text", "a fine film"])
    _write(folder / "proteins.csv", ["sequence,fitness", *(f"{'MKV' * (1 + n % 5)},{n % 5}" for n in range(40))])
    _write(folder / "points.csv", ["x,y", *(f"{n / 10},{n % 7}" for n in range(60))])
    labels = ("entailment", "contradiction")
    pairs = [f"A man sees {n} dogs.,There are {n + k} dogs.,{labels[k]}" for n in range(30) for k in (0, 1)]
    _write(folder / "nli.csv", ["premise,hypothesis,label", *pairs])
    _write(folder / "new-pairs.csv", ["premise,hypothesis", "It rains.,It is wet."])
    _write(folder / "others.csv", ["a,b,gold", *(pairs[:6])])
    _write(folder / "lines.txt", ["It rains.\tIt is wet.", "A man sleeps.\tA man is awake."])
    alike = [{"sentence1": f"a dog {n}", "sentence2": f"a cat {n}", "score": n % 5} for n in range(40)]
    _write(folder / "sts.jsonl", [json.dumps(one) for one in alike])
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.standard_normal((40, 12)).astype(np.float32))
    np.save(folder / "labels.npy", np.arange(40) % 2)


def _words(folder: Path) -> None:
    words = ["Mary\tB-PER", "Smith\tI-PER", "lives\tO", "in\tO", "Oslo\tB-LOC", ".\tO", ""]
    (folder / "words.conll").write_text("\n".join(words * 20), encoding="utf-8")
    (folder / "new.conll").write_text("Mary\nlives\n.\n\n", encoding="utf-8")
    classes = ("Mary PROPN", "sees NOUN", "Oslo PROPN", ". PUNCT")
    rows = [f"{n}\t{word}\t_\t{tag}" + "\t_" * 6 for n, (word, tag) in enumerate(map(str.split, classes), start=1)]
    for name, sentences in (("train", 30), ("dev", 5), ("test", 5)):
        (folder / f"{name}.conllu").write_text("\n".join([*rows, ""] * sentences) + "\n", encoding="utf-8")


def _pairs(folder: Path) -> None:
    both = [(f"They see {a} and {b} .", f"Ils voient {b} et {a} .") for a in NUMBERS for b in NUMBERS]
    _write(folder / "pairs.tsv", [f"{source}\t{target}" for source, target in both])
    _write(folder / "new.tsv", [f"{source}\t{target}" for source, target in both[:3]])
    _write(folder / "in.txt", [source for source, _ in both[:3]])
    _write(folder / "train.en", [source for source, _ in both])
    _write(folder / "train.fr", [target for _, target in both])


def _questions(folder: Path) -> None:
    towns = ("Oslo", "Rome", "Paris", "Bonn", "Cairo", "Lima", "Bern", "Kyiv", "Riga", "Quito", "Delhi", "Seoul")
    articles = []
    for town in towns:
        passage = f"{town} is a town. {town} has a river, and {town} has seven hills."
        asked = [("What is a town?", town), ("How many hills are there?", "seven")]
        answered = [
            {"id": f"{town}{n}", "question": question, "answers": [{"text": text, "answer_start": passage.index(text)}]}
            for n, (question, text) in enumerate(asked)
        ]
        articles.append({"title": town, "paragraphs": [{"context": passage, "qas": answered}]})
    whole = json.dumps({"version": "1.1", "data": articles})
    for name in ("squad.json", "train-v1.1.json"):
        (folder / name).write_text(whole, encoding="utf-8")
    (folder / "dev-v1.1.json").write_text(json.dumps({"version": "1.1", "data": articles[:2]}), encoding="utf-8")
    (folder / "article.txt").write_text("Oslo won against Bergen. There were seven games.\n", encoding="utf-8")


def _series(folder: Path) -> None:
    months = [f"{1949 + n // 12}-{1 + n % 12:02},{100 + n + 10 * (n % 12)}" for n in range(168)]
    _write(folder / "passengers.csv", ["Month,Passengers", *months[:144]])
    _write(folder / "newer.csv", ["Month,Passengers", *months])
    hours = [f"2016-07-{1 + n // 24:02} {n % 24:02}:00,{n % 24 + n / 100},{(n * 7) % 11}" for n in range(31 * 24)]
    _write(folder / "hours.csv", ["date,load,OT", *hours])


def _music(folder: Path) -> None:
    (folder / "chorales").mkdir()
    for piece in range(10):
        roll = np.zeros((20, 88), np.float32)
        roll[np.arange(20), 30 + (np.arange(20) + piece) % 12] = 1
        write_midi(folder / "chorales" / f"{piece}.mid", roll)
    write_midi(folder / "opening.mid", roll)


def _photos(folder: Path) -> None:
    """Pictures of 16 × 16 pixels with captions beside them, in a table and as COCO has them."""
    photos, rows = folder / "photos", ["image,caption"]
    photos.mkdir()
    images, notes = [], []
    for number in range(24):
        colour, side = ("red", "blue")[number % 2], ("left", "right")[number // 2 % 2]
        picture = np.full((16, 16, 3), 230, np.uint8)
        picture[4:12, (0 if side == "left" else 8) + number % 5 :][:, :4] = (
            (200, 0, 0) if colour == "red" else (0, 0, 200)
        )
        Image.fromarray(picture).save(photos / f"{number}.png")
        for text in (f"a {colour} block on the {side}", f"on the {side} is a {colour} block"):
            rows.append(f"{number}.png,{text}")
            notes.append({"image_id": number, "caption": text})
        images.append({"id": number, "file_name": f"{number}.png"})
    Image.fromarray(picture).save(folder / "photo.png")
    _write(photos / "captions.csv", rows)
    annotations = {"images": images, "annotations": notes}
    (folder / "captions_val2017.json").write_text(json.dumps(annotations), encoding="utf-8")


def _images(folder: Path) -> None:
    """Pictures of 16 × 16 pixels, those of a label in a folder of its own, and a table of them."""
    rows = ["path,label,weight"]
    for number in range(24):
        label = ("bars", "dots")[number % 2]
        (folder / "images" / label).mkdir(parents=True, exist_ok=True)
        picture = np.full((16, 16, 3), 230, np.uint8)
        picture[2 + number % 3 :: 4, slice(None) if label == "bars" else slice(number % 2, None, 4)] = 40
        Image.fromarray(picture).save(folder / "images" / label / f"{number}.png")
        rows.append(f"images/{label}/{number}.png,{label},{3 + number / 10}")
    _write(folder / "pictures.csv", rows)
    Image.fromarray(picture).save(folder / "a.png")
    Image.fromarray(picture).resize((40, 30)).save(folder / "b.jpg")
