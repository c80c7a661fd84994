"""Questions about passages: read to the letter, all that is wrong told at once, no passage in two parts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.core.errors import SeriatimError
from seriatim.data.questions import Questions, QuestionSettings, read, read_single

NASTY = "Zu\u0308rich\r\nliegt 🇨🇭 in der Schweiz.\u2028東京は首都。 \u200fשלום עולם\u200f — 👩\u200d🚀 e\u0301te\u0301"


def squad(*articles: tuple[str, list[tuple[str, list[dict[str, Any]]]]]) -> dict[str, Any]:
    data = [
        {"title": title, "paragraphs": [{"context": context, "qas": asked} for context, asked in paragraphs]}
        for title, paragraphs in articles
    ]
    return {"version": "1.1", "data": data}


def asked(text: str, *answers: tuple[str, int], key: str = "q", **more: Any) -> dict[str, Any]:
    return {"id": key, "question": text, "answers": [{"text": a, "answer_start": at} for a, at in answers], **more}


def write(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def lines(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def single(source: str, **options: Any) -> Questions:
    return read_single(source, "utf-8", **options)[0]


def refused(source: str, **options: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        single(source, **options)
    return caught.value


# What is read


def test_squad_of_both_versions(tmp_path: Path) -> None:
    value = squad(
        ("Oslo", [("Oslo lies in Norway.", [asked("Where?", ("Norway", 13), ("in Norway", 10), key="a")])]),
        ("Bergen", [("It rains.", [asked("Who?", key="b", is_impossible=True, plausible_answers=[{"text": "It"}])])]),
    )
    found = single(write(tmp_path / "dev.json", value))
    assert [one.key for one in found.asked] == ["a", "b"]
    assert found.asked[0].answers == (("Norway", 13), ("in Norway", 10))
    assert found.asked[1].answers == ()
    assert found.asked[1].place == "dev.json, data[1].paragraphs[0].qas[0]"
    assert [one.article for one in found.asked] == ["Oslo", "Bergen"]
    assert any("1 question without an answer" in note for note in found.notes)
    packed = tmp_path / "dev.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "dev.json").read_bytes()))
    assert single(str(packed)).asked[0].answers == found.asked[0].answers


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": ["Norway"]},
        {"answers": [{"text": "Norway", "answer_start": 13}]},
        {"answers": {"text": ["Norway"], "answer_start": [13]}},
        {"answers": {"text": ["Norway"]}},
        {"answer": "Norway"},
        {"answers": [{"text": " Norway", "answer_start": 12}]},
    ],
)
def test_the_forms_of_answers_in_jsonl(answers: dict[str, Any], tmp_path: Path) -> None:
    record = {"question": "Where?", "context": "Oslo lies in Norway.", **answers}
    for name in ("a.jsonl", "a.json", "a.txt"):  # the content decides, not the ending
        found = single(lines(tmp_path / name, record, record))
        assert [one.answers for one in found.asked] == [(("Norway", 13),)] * 2
        assert [one.key for one in found.asked] == ["1", "2"]
        assert len(found.passages) == 1  # the same passage is kept once


def test_passages_are_kept_to_the_letter(tmp_path: Path) -> None:
    answers = ["Zu\u0308rich", "🇨🇭", "東京", "שלום", "👩\u200d🚀", "e\u0301te\u0301"]
    source = write(tmp_path / "a.json", squad(("t", [(NASTY, [asked("?", (a, NASTY.index(a))) for a in answers])])))
    found = single(source)
    assert found.passages == [NASTY]
    for one in found.asked:
        (text, start), = one.answers  # fmt: skip
        assert NASTY[start : start + len(text)] == text
    # the line ends of the file itself are none of the passage
    (tmp_path / "b.jsonl").write_bytes(
        json.dumps({"question": "?", "context": "a\r\nb", "answers": ["b"]}).encode() + b"\r\n"
    )
    assert single(str(tmp_path / "b.jsonl")).passages == ["a\r\nb"]


def test_a_text_without_a_start_is_looked_for(tmp_path: Path) -> None:
    passage = "The other theory: he then said the rest."
    records = [{"question": "Who?", "context": passage, "answers": [text]} for text in ("he", "the", "rest")]
    found = single(lines(tmp_path / "a.jsonl", *records))
    # not within words where it stands by itself, too
    assert [one.answers[0][1] for one in found.asked] == [passage.index(" he ") + 1, passage.index(" the ") + 1, 35]
    twice = single(lines(tmp_path / "b.jsonl", {"question": "?", "context": "one two one", "answers": ["one"]}))
    assert twice.asked[0].answers == (("one", 0),)
    assert any("several places" in note and "b.jsonl, line 1, answers[0]" in note for note in twice.notes)
    assert not any("several places" in note for note in found.notes)


def test_only_what_is_asked(tmp_path: Path) -> None:
    source = lines(tmp_path / "a.jsonl", {"question": "Who?", "context": "He.", "id": 7})
    assert single(source, answers=False).asked[0].key == "7"
    assert 'has no "answers"' in refused(source).cause


# What is wrong


def test_all_problems_of_a_squad_file_at_once(tmp_path: Path) -> None:
    value = squad(
        ("a", [("Oslo lies in Norway.", [
            asked("Where?", ("Norway", 12)),
            {"id": "x", "answers": []},
            asked("Who?", ("Bergen", 0)),
            asked("Fine?", ("Oslo", 0)),
            asked("", ("Oslo", 0)),
            asked("Both?", ("Oslo", 0), is_impossible=True),
            {"question": "Text?", "answers": [{"answer_start": 0}]},
            {"question": "Start?", "answers": [{"text": "Oslo", "answer_start": "0"}]},
            "no question",
        ]), ("  ", [])]),
    )  # fmt: skip
    value["data"] += [{"title": "b"}, 3]
    error = refused(write(tmp_path / "dev.json", value))
    assert error.code == "data.questions"
    place = "dev.json, data[0].paragraphs"
    assert [line.strip() for line in error.cause.split("\n")] == [
        "dev.json: 11 problems",
        f'{place}[0].qas[0].answers[0]: "Norway" is not at 12, where " Norwa" stands, but at 13',
        f'{place}[0].qas[1]: has no "question"; it has: id, answers',
        f'{place}[0].qas[2].answers[0]: "Bergen" is not at 0, where "Oslo l" stands, but nowhere in the passage',
        f'{place}[0].qas[4]: "question" is empty',
        f"{place}[0].qas[5]: is_impossible is true, and yet there are answers",
        f'{place}[0].qas[6].answers[0]: has no "text"; it has: answer_start',
        f'{place}[0].qas[7].answers[0]: answer_start is "0", no place in the passage',
        f'{place}[0].qas[8]: "no question", not an object',
        f'{place}[1]: "context" is empty',
        'dev.json, data[1]: has no "paragraphs"; it has: title',
        "dev.json, data[2]: 3, not an object",
    ]


def test_all_problems_of_a_jsonl_file_at_once_but_not_too_many(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"question": "a"\n[]\n' + '{"question": 5, "context": "x", "answers": ["y"]}\n' * 30, encoding="utf-8"
    )
    found = refused(str(path)).cause.split("\n")
    assert found[0] == "a.jsonl: 62 problems"
    assert found[1].strip().startswith("a.jsonl, line 1: not JSON")
    assert found[2].strip() == "a.jsonl, line 2: [], not an object"
    assert found[3].strip() == 'a.jsonl, line 3: "question" is 5, not a text'
    assert found[4].strip() == 'a.jsonl, line 3, answers[0]: "y" is nowhere in the passage'
    assert found[-1].strip() == "and 42 more"
    assert len(found) == 22


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ('{"data": [}', "data.json", "a.json, line 1, column 11: not JSON"),
        ("", "data.json", "a.json, line 1, column 1"),
        ('{"data": []}', "data.empty", "holds no questions"),
        ('{"version": "1.1"}', "data.questions", 'a.json: has no "data"'),
        ('{"data": 3}', "data.questions", 'a.json: "data" is 3, not a list'),
        ("[1, 2]", "data.questions", "a.json: [1, 2], not an object"),
        ("[" * 100_000, "data.json", "nested too deeply"),
        ('{"question": "a\\ud800", "context": "b", "answers": []}', "data.questions", "half a surrogate pair"),
        ('{"question": "a", "context": "b\\u0000", "answers": []}', "data.questions", "a NUL character"),
    ],
)
def test_what_is_no_file_of_questions_is_refused(text: str, code: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    error = refused(str(tmp_path / "a.json"))
    assert error.code == code
    assert says in error.cause
    assert error.exit_code == 2


def test_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,context\na,b\n", encoding="utf-8")
    assert refused(str(tmp_path / "a.csv")).code == "data.kind"


# Parts


def parts_of(source: str, notes: list[str] | None = None, **options: Any) -> dict[str, Questions]:
    return read(QuestionSettings(source=source, **options), notify=None if notes is None else notes.append).parts


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=25),
    st.booleans(),
)
def test_no_passage_is_in_two_parts(tmp_path_factory: Any, articles: list[list[int]], titled: bool) -> None:
    """Articles share passages here and there: then they go together."""
    records = [
        {"question": f"Question {number}?", "context": f"Passage {passage}.", "answers": ["Passage"]}
        | ({"title": f"article {number}"} if titled else {})
        for number, passages in enumerate(articles)
        for passage in passages
    ]
    source = lines(tmp_path_factory.mktemp("parts") / "a.jsonl", *records)
    try:
        parts = parts_of(source)
    except SeriatimError:  # all hang together, or there are too few
        return
    by_article = titled and len(articles) >= 10
    for mark in (lambda one: one.passage, *([lambda one: one.article] if by_article else [])):
        seen = [{mark(question) for question in one.asked} for one in parts.values()]
        assert sum(map(len, seen)) == len(set.union(*seen))
    assert sum(map(len, parts.values())) == len(records)
    again = parts_of(source)
    assert [one.asked for one in again.values()] == [one.asked for one in parts.values()]


def test_whole_articles_where_there_are_enough_of_them(tmp_path: Path) -> None:
    articles = [(f"t{a}", [(f"Passage {a} {p}.", [asked("?", ("Passage", 0))]) for p in range(4)]) for a in range(20)]
    notes: list[str] = []
    parts = parts_of(write(tmp_path / "a.json", squad(*articles)), notes)
    titles = [{one.article for one in part.asked} for part in parts.values()]
    assert sum(map(len, titles)) == 20
    assert [len(part) for part in parts.values()] == [64, 8, 8]
    assert "parts drawn by article, none in two of them: 16 / 2 / 2 articles" in notes
    notes = []
    few = parts_of(write(tmp_path / "b.json", squad(*articles[:5])), notes)
    assert [len(part) for part in few.values()] == [16, 2, 2]
    assert "5 articles are too few to draw parts by article" in notes


def test_files_for_the_parts_and_what_they_share(tmp_path: Path) -> None:
    one = {"question": "?", "context": "Oslo lies in Norway.", "answers": ["Oslo"]}
    other = {"question": "?", "context": "Bergen, too.", "answers": ["Bergen"]}
    train = lines(tmp_path / "train.jsonl", one)
    valid = lines(
        tmp_path / "valid.jsonl", one | {"context": " oslo  lies in Norway."} | {"answers": ["Norway"]}, other
    )
    notes: list[str] = []
    found = read(QuestionSettings(source=train, valid=valid), notify=notes.append)
    assert [len(part) for part in found.parts.values()] == [1, 2, 0]
    assert "1 of 2 valid passages are in the training part too" in notes
    assert "no test file is given, so the test part is empty" in notes


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    records = [{"question": f"{n}?", "context": f"Passage {n}.", "answers": ["Passage"]} for n in range(20)]
    first = read(QuestionSettings(source=lines(tmp_path / "a.jsonl", *records))).fingerprint
    assert read(QuestionSettings(source=lines(tmp_path / "b.jsonl", *records))).fingerprint == first
    records[3]["answers"] = ["3"]
    assert read(QuestionSettings(source=lines(tmp_path / "c.jsonl", *records))).fingerprint != first
