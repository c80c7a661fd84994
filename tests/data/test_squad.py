"""Questions about passages: SQuAD and tables, exact positions, all problems at once, no shared passage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.check import check
from seriatim.data.dataset import Dataset
from seriatim.data.formats import ReadOptions
from seriatim.data.reader import read_dataset
from seriatim.data.source import open_source
from seriatim.tasks.answer.questions import BY_ARTICLE, locate_answers
from seriatim.tasks.answer.spec import SCHEMA

NASTY = "Zu\u0308rich\r\nliegt 🇨🇭 in der Schweiz.\u2028東京は首都。 \u200fשלום עולם\u200f — 👩\u200d🚀 e\u0301te\u0301"


def squad(*articles: tuple[str, list[tuple[str, list[Any]]]]) -> dict[str, Any]:
    data = [
        {"title": title, "paragraphs": [{"context": context, "qas": questions} for context, questions in paragraphs]}
        for title, paragraphs in articles
    ]
    return {"version": "1.1", "data": data}


def question(text: str, *answers: tuple[str, int], id: str = "q", **more: Any) -> dict[str, Any]:
    return {"id": id, "question": text, "answers": [{"text": a, "answer_start": at} for a, at in answers], **more}


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def read(source: Any, notes: list[str] | None = None, inputs: bool = False, **columns: str) -> Dataset:
    """Returns the questions of a source, read and checked as training does."""
    schema = SCHEMA.inputs() if inputs else SCHEMA
    diagnostics = Diagnostics(None if notes is None else notes.append)
    dataset = read_dataset(open_source(source), schema, columns, ReadOptions(), diagnostics)
    diagnostics.raise_problems()
    check(dataset, schema, diagnostics)
    diagnostics.raise_problems()
    return dataset


def answers(dataset: Dataset) -> list[list[tuple[str, int]]]:
    return [locate_answers(dataset, row) for row in range(len(dataset))]


def raised(source: Any, **options: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        read(source, **options)
    return caught.value


def test_squad_of_both_versions(tmp_path: Path) -> None:
    impossible = question("Who?", id="b", is_impossible=True, plausible_answers=[{"text": "It"}])
    value = squad(
        ("Oslo", [("Oslo lies in Norway.", [question("Where?", ("Norway", 13), ("in Norway", 10), id="a")])]),
        ("Bergen", [("It rains.", [impossible])]),
    )
    notes: list[str] = []
    dataset = read(write(tmp_path / "dev.json", value), notes)
    assert list(dataset["id"]) == ["a", "b"]
    assert answers(dataset) == [[("Norway", 13), ("in Norway", 10)], []]
    assert str(dataset.locations[1]) == "dev.json, data[1].paragraphs[0].qas[0]"
    assert list(dataset["title"]) == ["Oslo", "Bergen"]
    assert "dev.json: 1 question without an answer" in notes
    packed = tmp_path / "dev.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "dev.json").read_bytes()))
    assert answers(read(packed)) == answers(dataset)


@pytest.mark.parametrize(
    "fields",
    [
        {"answers": ["Norway"]},
        {"answers": [{"text": "Norway", "answer_start": 13}]},
        {"answers": {"text": ["Norway"], "answer_start": [13]}},
        {"answers": {"text": ["Norway"]}},
        {"answer": "Norway"},
        {"answer": "Norway", "answer_start": 13},
        {"answers": [{"text": " Norway", "answer_start": 12}]},
        {"answers": '["Norway"]'},
    ],
)
def test_forms_of_answers(fields: dict[str, Any], tmp_path: Path) -> None:
    record = {"question": "Where?", "passage": "Oslo lies in Norway.", **fields}
    assert answers(read(write_lines(tmp_path / "a.jsonl", record, record))) == [[("Norway", 13)]] * 2
    assert answers(read([record, record])) == [[("Norway", 13)]] * 2


def test_csv_with_repeated_passages(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "context,question,answer,answer_start\n"
        '"Oslo lies in Norway, in Oslo.",Where?,Norway,13\n'
        '"Oslo lies in Norway, in Oslo.",What?,Oslo,24\n'
        '"Oslo lies in Norway, in Oslo.",Why?,,\n',
        encoding="utf-8",
    )
    assert answers(read(tmp_path / "a.csv")) == [[("Norway", 13)], [("Oslo", 24)], []]


def test_passages_are_kept_exactly(tmp_path: Path) -> None:
    texts = ["Zu\u0308rich", "🇨🇭", "東京", "שלום", "👩\u200d🚀", "e\u0301te\u0301"]
    questions = [question("Which?", (text, NASTY.index(text))) for text in texts]
    dataset = read(write(tmp_path / "a.json", squad(("t", [(NASTY, questions)]))))
    assert set(dataset["context"]) == {NASTY}
    assert [NASTY[start : start + len(text)] for ((text, start),) in answers(dataset)] == texts
    line = json.dumps({"question": "?", "context": "a\r\nb", "answers": ["b"]}).encode() + b"\r\n"
    (tmp_path / "b.jsonl").write_bytes(line)  # the line end of the file is not one of the passage
    assert list(read(tmp_path / "b.jsonl")["context"]) == ["a\r\nb"]


def test_a_text_without_a_start_is_searched(tmp_path: Path) -> None:
    passage = "The other theory: he then said the rest."
    records = [{"question": "Who?", "context": passage, "answers": [text]} for text in ("he", "the", "rest")]
    notes: list[str] = []
    dataset = read(write_lines(tmp_path / "a.jsonl", *records), notes)
    assert [start for ((_, start),) in answers(dataset)] == [passage.index(" he ") + 1, passage.index(" the ") + 1, 35]
    assert not any("several places" in note for note in notes)
    twice = {"question": "Which?", "context": "one two one", "answers": ["one"]}
    assert answers(read(write_lines(tmp_path / "b.jsonl", twice), notes)) == [[("one", 0)]]
    assert any("several places" in note and "b.jsonl, line 1, answers[0]" in note for note in notes)


def test_prediction_needs_no_answers(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", {"question": "Who?", "context": "He.", "id": 7})
    assert list(read(source, inputs=True)["id"]) == ["7"]
    assert "which column is the answers?" in raised(source).cause


def test_all_problems_of_a_squad_file_at_once(tmp_path: Path) -> None:
    questions = [
        question("Where?", ("Norway", 12)),
        question("Who?", ("Bergen", 0)),
        question("Fine?", ("Oslo", 0)),
        question("Both?", ("Oslo", 0), is_impossible=True),
    ]
    error = raised(write(tmp_path / "dev.json", squad(("a", [("Oslo lies in Norway.", questions)]))))
    assert error.code == "data.questions"
    path = "dev.json, data[0].paragraphs[0]"
    assert [line.strip() for line in error.cause.split("\n")][1:] == [
        f'{path}.qas[0].answers[0]: "Norway" is not at 12, where " Norwa" is, but at 13',
        f'{path}.qas[1].answers[0]: "Bergen" is not at 0, where "Oslo l" is, but nowhere in the passage',
        f"{path}.qas[3]: is_impossible is true, but there are answers",
    ]


def test_structure_of_a_squad_file(tmp_path: Path) -> None:
    questions = [{"id": "x", "answers": []}, "no question", question("Fine?", ("Oslo", 0))]
    value = squad(("a", [("Oslo lies in Norway.", questions)]))
    value["data"] += [{"title": "b"}, 3]
    error = raised(write(tmp_path / "dev.json", value))
    assert error.code == "data.questions"
    assert [line.strip() for line in error.cause.split("\n")][1:] == [
        'dev.json, data[0].paragraphs[0].qas[0]: has no "question"; it has: id, answers',
        'dev.json, data[0].paragraphs[0].qas[1]: "no question", not an object',
        'dev.json, data[1]: has no "paragraphs"; it has: title',
        "dev.json, data[2]: 3, not an object",
    ]


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        ({"question": "a", "context": "x", "answers": ["y"]}, 'line 2, answers[0]: "y" is not in the passage'),
        ({"question": "a", "context": "x", "answers": [3]}, "line 2"),
        ({"question": 5, "context": "x", "answers": ["x"]}, "line 2"),
        ({"question": "a", "context": "x", "answers": [{"answer_start": 0}]}, "line 2"),
        ({"question": "a", "context": "x", "answers": [{"text": "x", "answer_start": "0"}]}, "line 2"),
        ({"question": "a", "context": "x", "answers": [{"text": "x", "answer_start": -1}]}, "not a position"),
        ({"question": " ", "context": "x", "answers": ["x"]}, "line 2: the question is empty"),
        ({"question": "a", "context": " ", "answers": []}, "line 2: the context is empty"),
        ({"question": "a\ud800", "context": "x", "answers": ["x"]}, "half a surrogate pair"),
        ({"question": "a", "context": "b\0", "answers": []}, "a NUL character"),
    ],
)
def test_problems_of_a_line(record: dict[str, Any], cause: str, tmp_path: Path) -> None:
    good = {"question": "Who?", "context": "He.", "answers": ["He"]}
    error = raised(write_lines(tmp_path / "a.jsonl", good, record, good, good))
    assert "a.jsonl, line 2" in error.cause
    assert cause in error.cause
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ('{"data": [}', "data.json", "a.json, line 1, column 11"),
        ('{"data": []}', "data.empty", "a.json"),
        ('{"data": 3}', "data.questions", 'a.json: "data" is 3, not a list'),
        ('{"data": ' + "[" * 100_000, "data.json", "SERIATIM_MAX_JSON_DEPTH"),
    ],
)
def test_files_that_are_not_squad(text: str, code: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    error = raised(tmp_path / "a.json")
    assert error.code == code
    assert cause in error.cause


# Splits


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=25), st.booleans())
def test_no_passage_is_in_two_splits(articles: list[list[int]], titled: bool) -> None:
    """Articles that share passages stay together."""
    records = [
        {"question": f"Question {number}?", "context": f"Passage {passage}.", "answers": ["Passage"]}
        | ({"title": f"article {number}"} if titled else {})
        for number, passages in enumerate(articles)
        for passage in passages
    ]
    dataset = read(records)
    splits = BY_ARTICLE.divide(dataset, (0.8, 0.1, 0.1))
    for role in ["context", *(["title"] if titled and len(articles) >= 10 else [])]:
        values = [set(rows[role]) for rows in splits]
        assert sum(map(len, values)) == len(set.union(*values))
    assert sum(map(len, splits)) == len(records)
    again = BY_ARTICLE.divide(dataset, (0.8, 0.1, 0.1))
    assert [rows.fingerprint() for rows in again] == [rows.fingerprint() for rows in splits]


def test_splits_by_article_or_passage(tmp_path: Path) -> None:
    articles = [
        (f"t{a}", [(f"Passage {a} {p}.", [question("Which?", ("Passage", 0))]) for p in range(4)]) for a in range(20)
    ]
    splits = BY_ARTICLE.divide(read(write(tmp_path / "a.json", squad(*articles))), (0.8, 0.1, 0.1))
    assert [len(rows) for rows in splits] == [64, 8, 8]
    assert [len(set(rows["title"])) for rows in splits] == [16, 2, 2]
    few = BY_ARTICLE.divide(read(write(tmp_path / "b.json", squad(*articles[:5]))), (0.8, 0.1, 0.1))
    assert [len(rows) for rows in few] == [16, 2, 2]  # five articles are too few to be drawn


def test_the_fingerprint_follows_from_the_content(tmp_path: Path) -> None:
    records = [{"question": f"{n}?", "context": f"Passage {n}.", "answers": ["Passage"]} for n in range(5)]
    first = read(write_lines(tmp_path / "a.jsonl", *records)).fingerprint()
    assert read(write_lines(tmp_path / "b.jsonl", *records)).fingerprint() == first
    records[3]["answers"] = ["3"]
    assert read(write_lines(tmp_path / "c.jsonl", *records)).fingerprint() != first
