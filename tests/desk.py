"""Small files with the names and formats that the documentation uses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from seriatim.data.formats.midi import write_midi

RANK = Path(__file__).parent / "plugins" / "rank.py"
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def write_files(folder: Path, book: str) -> None:
    """Writes all files into a folder."""
    write_texts(folder, book)
    write_tables(folder)
    write_words(folder)
    write_pairs(folder)
    write_questions(folder)
    write_series(folder)
    write_music(folder)
    write_photos(folder)
    write_images(folder)


def write_lines(path: Path, rows: list[str]) -> None:
    """Writes a line per row."""
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_texts(folder: Path, book: str) -> None:
    """Writes a book, lists of texts and a file of texts per class."""
    (folder / "book.txt").write_text(book + "the students opened their books.\n" * 40, encoding="utf-8")
    write_lines(
        folder / "more.txt", ["The dog saw the old man. The cat bit the hat. The new dog bit the man.", ""] * 60
    )
    texts = ["a touching love story", "a film about war", "they fall in love", "the bank gave me cash"]
    write_lines(folder / "texts.txt", texts)
    write_lines(folder / "texts.csv", ["review", *texts])
    write_lines(folder / "texts.jsonl", [json.dumps({"text": text}) for text in texts])
    for split in ("train", "test"):
        for word, label in (("fine", "pos"), ("dull", "neg")):
            reviews = folder / "aclImdb" / split / label
            reviews.mkdir(parents=True)
            for n in range(20):
                (reviews / f"{n}_{n % 10 + 1}.txt").write_text(f"a {word} film number {n}", encoding="utf-8")
    films = folder / "films"
    films.mkdir()
    for word, name in (("fine café", "pos"), ("dull café", "neg")):
        lines = [f"a {word} film number {n}" for n in range(30)]
        (films / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="cp1252")


def write_tables(folder: Path) -> None:
    """Writes tables with labels, numbers and two texts, and arrays."""
    texts = [f"a {word} film number {n}" for n in range(20) for word in ("fine", "dull")]
    write_lines(
        folder / "reviews.csv", ["text,label", *(f"{text},{'good' if 'fine' in text else 'bad'}" for text in texts)]
    )
    write_lines(folder / "new.csv", ["text", "a fine film"])
    write_lines(folder / "proteins.csv", ["sequence,fitness", *(f"{'MKV' * (1 + n % 5)},{n % 5}" for n in range(40))])
    write_lines(folder / "points.csv", ["x,y", *(f"{n / 10},{n % 7}" for n in range(60))])
    labels = ("entailment", "contradiction")
    pairs = [f"A man sees {n} dogs.,There are {n + k} dogs.,{labels[k]}" for n in range(30) for k in (0, 1)]
    write_lines(folder / "nli.csv", ["premise,hypothesis,label", *pairs])
    write_lines(folder / "new-pairs.csv", ["premise,hypothesis", "It rains.,It is wet."])
    write_lines(folder / "others.csv", ["a,b,gold", *(pairs[:6])])
    write_lines(folder / "lines.txt", ["It rains.\tIt is wet.", "A man sleeps.\tA man is awake."])
    similar = [{"sentence1": f"a dog {n}", "sentence2": f"a cat {n}", "score": n % 5} for n in range(40)]
    write_lines(folder / "sts.jsonl", [json.dumps(row) for row in similar])
    preferences = [f"a fine film {n},a dull film {n}" for n in range(30)]
    write_lines(folder / "preferences.csv", ["better,worse", *preferences])
    (folder / "rank.py").write_text(RANK.read_text(encoding="utf-8"), encoding="utf-8")
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.standard_normal((40, 12)).astype(np.float32))
    np.save(folder / "labels.npy", np.arange(40) % 2)


def write_words(folder: Path) -> None:
    """Writes words with tags, as CoNLL and CoNLL-U."""
    words = ["Mary\tB-PER", "Smith\tI-PER", "lives\tO", "in\tO", "Oslo\tB-LOC", ".\tO", ""]
    (folder / "words.conll").write_text("\n".join(words * 20), encoding="utf-8")
    (folder / "new.conll").write_text("Mary\nlives\n.\n\n", encoding="utf-8")
    classes = ("Mary PROPN", "sees NOUN", "Oslo PROPN", ". PUNCT")
    rows = [f"{n}\t{word}\t_\t{tag}" + "\t_" * 6 for n, (word, tag) in enumerate(map(str.split, classes), start=1)]
    for name, sentences in (("train", 30), ("dev", 5), ("test", 5)):
        (folder / f"{name}.conllu").write_text("\n".join([*rows, ""] * sentences) + "\n", encoding="utf-8")


def write_pairs(folder: Path) -> None:
    """Writes pairs of sentences, as a table and as aligned files."""
    pairs = [(f"They see {a} and {b} .", f"Ils voient {b} et {a} .") for a in NUMBERS for b in NUMBERS]
    write_lines(folder / "pairs.tsv", [f"{source}\t{target}" for source, target in pairs])
    write_lines(folder / "new.tsv", [f"{source}\t{target}" for source, target in pairs[:3]])
    write_lines(folder / "in.txt", [source for source, _ in pairs[:3]])
    write_lines(folder / "train.en", [source for source, _ in pairs])
    write_lines(folder / "train.fr", [target for _, target in pairs])


def write_questions(folder: Path) -> None:
    """Writes questions about passages, as SQuAD, with choices, as COPA, and about words, as WiC."""
    towns = ("Oslo", "Rome", "Paris", "Bonn", "Cairo", "Lima", "Bern", "Kyiv", "Riga", "Quito", "Delhi", "Seoul")
    articles = []
    for town in towns:
        passage = f"{town} is a town. {town} has a river, and {town} has seven hills."
        questions = [("What is a town?", town), ("How many hills are there?", "seven")]
        records = [
            {"id": f"{town}{n}", "question": question, "answers": [{"text": text, "answer_start": passage.index(text)}]}
            for n, (question, text) in enumerate(questions)
        ]
        articles.append({"title": town, "paragraphs": [{"context": passage, "qas": records}]})
    text = json.dumps({"version": "1.1", "data": articles})
    for name in ("squad.json", "train-v1.1.json"):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "dev-v1.1.json").write_text(json.dumps({"version": "1.1", "data": articles[:2]}), encoding="utf-8")
    pairs = [(town, towns[n - 1]) for n, town in enumerate(towns)] * 3
    causes = [
        {"premise": f"{a} is wet.", "question": "cause", "choice1": f"It rained in {a}.", "choice2": f"{b} is dry."}
        | {"label": 0}
        for a, b in pairs
    ]
    write_lines(folder / "copa.jsonl", [json.dumps(row) for row in causes])
    senses = [("She sat on the bank .", "The bank lent money ."), ("It is a bank .", "The bank is open .")] * 20
    words = [
        {"word": "bank", "sentence1": a, "start1": a.index("bank"), "end1": a.index("bank") + 4, "sentence2": b}
        | {"start2": b.index("bank"), "end2": b.index("bank") + 4, "label": n % 2 == 1}
        for n, (a, b) in enumerate(senses)
    ]
    write_lines(folder / "wic.jsonl", [json.dumps(row) for row in words])
    (folder / "article.txt").write_text("Oslo won against Bergen. There were seven games.\n", encoding="utf-8")


def write_series(folder: Path) -> None:
    """Writes a monthly series and hourly ones."""
    months = [f"{1949 + n // 12}-{1 + n % 12:02},{100 + n + 10 * (n % 12)}" for n in range(168)]
    write_lines(folder / "passengers.csv", ["Month,Passengers", *months[:144]])
    write_lines(folder / "newer.csv", ["Month,Passengers", *months])
    hours = [f"2016-07-{1 + n // 24:02} {n % 24:02}:00,{n % 24 + n / 100},{(n * 7) % 11}" for n in range(31 * 24)]
    write_lines(folder / "hours.csv", ["date,load,OT", *hours])


def write_music(folder: Path) -> None:
    """Writes ten pieces as MIDI files."""
    (folder / "chorales").mkdir()
    for piece in range(10):
        roll = np.zeros((20, 88), np.float32)
        roll[np.arange(20), 30 + (np.arange(20) + piece) % 12] = 1
        (folder / "chorales" / f"{piece}.mid").write_bytes(write_midi(roll))
    (folder / "opening.mid").write_bytes(write_midi(roll))


def write_photos(folder: Path) -> None:
    """Writes images of 16 × 16 pixels with captions: a table, and a COCO file."""
    photos, rows = folder / "photos", ["image,caption"]
    photos.mkdir()
    images, annotations = [], []
    for number in range(24):
        color, side = ("red", "blue")[number % 2], ("left", "right")[number // 2 % 2]
        image = np.full((16, 16, 3), 230, np.uint8)
        image[4:12, (0 if side == "left" else 8) + number % 5 :][:, :4] = (200, 0, 0) if color == "red" else (0, 0, 200)
        Image.fromarray(image).save(photos / f"{number}.png")
        for text in (f"a {color} block on the {side}", f"on the {side} is a {color} block"):
            rows.append(f"{number}.png,{text}")
            annotations.append({"image_id": number, "caption": text})
        images.append({"id": number, "file_name": f"{number}.png"})
    Image.fromarray(image).save(folder / "photo.png")
    write_lines(photos / "captions.csv", rows)
    coco = {"images": images, "annotations": annotations}
    (folder / "captions_val2017.json").write_text(json.dumps(coco), encoding="utf-8")


def write_images(folder: Path) -> None:
    """Writes images of 16 × 16 pixels: a folder per label, and a table of paths."""
    rows = ["path,label,weight"]
    for number in range(24):
        label = ("bars", "dots")[number % 2]
        (folder / "images" / label).mkdir(parents=True, exist_ok=True)
        image = np.full((16, 16, 3), 230, np.uint8)
        image[2 + number % 3 :: 4, slice(None) if label == "bars" else slice(number % 2, None, 4)] = 40
        Image.fromarray(image).save(folder / "images" / label / f"{number}.png")
        rows.append(f"images/{label}/{number}.png,{label},{3 + number / 10}")
    write_lines(folder / "images.csv", rows)
    Image.fromarray(image).save(folder / "a.png")
    Image.fromarray(image).resize((40, 30)).save(folder / "b.jpg")
