"""Schemas: which columns play which role, as named or guessed, and errors that list the candidates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_schemas import INPUT, LABELED, LINES, PAIRS, SCORED, STREAM, read, refuse, values, write, write_jsonl
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.kinds import LABEL, NUMBER, TEXT
from seriatim.data.schema import Field, Header, Schema


def roles(schema: Schema, table: dict[str, list[Any]], **overrides: str) -> dict[str, tuple[str, ...]]:
    return schema.resolve(Header("t", table), overrides, Diagnostics())


# Guesses


def test_guesses_are_noted() -> None:
    diagnostics = Diagnostics()
    read({"id": [1, 2], "text": ["a b", "c"], "label": ["p", "q"]}, LABELED, diagnostics)
    assert diagnostics.notes == ['columns: column "label" is the target', 'columns: column "text" is the input']
    read({"input": ["a b", "c"], "target": ["p", "q"]}, LABELED, quiet := Diagnostics())
    assert quiet.notes == []  # nothing is guessed


def test_guesses_by_elimination() -> None:
    assert roles(SCORED, {"review": ["good", "bad"], "stars": ["5", "1"]}) == {
        "input": ("review",),
        "target": ("stars",),
    }
    assert roles(LABELED, {"a": ["x", "y"], "b": ["p", "q"]}, input="b") == {"input": ("b",), "target": ("a",)}
    assert roles(LABELED, {"x": [[1, 2], [3]], "y": ["p", "q"]}) == {"input": ("x",), "target": ("y",)}
    assert roles(LINES, {"n": ["1"], "body": ["x y"]}) == {"text": ("body",)}
    assert roles(PAIRS, {"n": ["1"], "left": ["a"], "right": ["b"]}) == {"source": ("left",), "target": ("right",)}
    assert roles(PAIRS, {"left": ["a"], "right": ["b"]}, target="left") == {"source": ("right",), "target": ("left",)}


def test_no_guess_where_there_is_doubt() -> None:
    for schema, table, words in (
        (LABELED, {"title": ["x y"], "body": ["y"], "label": ["p"]}, ("the input", "title, body", "--column title")),
        (LABELED, {"text": ["x"], "label": ["p"], "class": ["q"]}, ("the target", "label, class", "--target label")),
        (LABELED, {"a": ["x"], "b": ["y"]}, ("which column is the input", "a (text), b (text)")),
        (LABELED, {"a": ["1"], "b": ["2"], "label": ["p"]}, ("which column is the input", "a..b")),
        (PAIRS, {"a": ["x"], "b": ["y"], "c": ["z"]}, ("which column is the source", "data.columns.source=a")),
        (LINES, {"n": [1]}, ("no column holds text",)),
    ):
        with pytest.raises(SeriatimError) as caught:
            roles(schema, table)
        assert caught.value.code == "data.column"
        for word in words:
            assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "names", [("sentence1", "sentence2"), ("Sentence_1", "Sentence_2"), ("text 1", "text 2"), ("query", "passage")]
)
def test_columns_that_belong_together(names: tuple[str, str]) -> None:
    table = {names[0]: ["x y", "u"], names[1]: ["z", "v"], "score": [1.5, 2.0]}
    assert roles(SCORED, table) == {"input": names, "target": ("score",)}
    assert roles(SCORED, table | {"premise": ["a", "b"], "hypothesis": ["c", "d"], "sentence": ["e", "f"]})[
        "input"
    ] == ("sentence",)
    numbers = {"sentence": ["a", "b"], names[0]: [1, 2], names[1]: [3, 4], "label": ["x", "y"]}
    assert roles(LABELED, numbers)["input"] == ("sentence",)


def test_numbered_columns() -> None:
    schema = Schema(
        (
            Field("caption", (TEXT,), ("text",), max_columns=None, alias_pattern=r"captions?[ _-]?\d+"),
            Field("id", (LABEL,)),
        )
    )
    table = {"id": ["7"], "caption_1": ["a b"], "caption_2": ["c d"], "note": ["x"]}
    assert roles(schema, table)["caption"] == ("caption_1", "caption_2")


def test_inputs_of_prediction_avoid_the_columns_of_targets() -> None:
    inputs = LABELED.inputs()
    assert roles(inputs, {"comment": ["a b"], "sentiment": ["good"], "n": ["1"]}) == {"input": ("comment",)}
    assert roles(inputs, {"column 1": ["a"], "column 2": ["b"]}) == {"input": ("column 1", "column 2")}
    assert roles(PAIRS.inputs(), {"column 1": ["a"], "column 2": ["b"]}) == {"source": ("column 1",)}
    assert roles(inputs, {"label": ["only one"]}) == {"input": ("label",)}


# Names


def test_ranges_lists_and_numbers() -> None:
    table = {"y": ["a"], "t1": [1], "t2": [2], "t3": [3], "a,b": ["x"], "c..d": ["z"]}
    for names in ("t1,t2,t3", "t1..t3", "t1, t2..t3", "2..4"):
        assert roles(LABELED, table, input=names, target="y")["input"] == ("t1", "t2", "t3")
    assert roles(LABELED, table, input="a,b", target="y")["input"] == ("a,b",)
    assert roles(LABELED, table, input="c..d", target="1")["input"] == ("c..d",)
    for names, word in (
        ("t1..t9", 'no column "t9"'),
        ("t3..t1", "names no columns"),
        ("txt", 'no column "txt"'),
        ("9", '"9"'),
    ):
        with pytest.raises(SeriatimError, match=word):
            roles(LABELED, table, input=names, target="y")
    with pytest.raises(SeriatimError, match='"t1" cannot be input and target'):
        roles(LABELED, table, input="t1", target="t1")
    with pytest.raises(SeriatimError, match='no role "inputs"') as caught:
        roles(LABELED, table, inputs="t1")
    assert 'did you mean "input"?' in caught.value.remedy


def test_suggestions_for_misspelt_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,a\n")
    refuse(path, LABELED, "data.column", 'no column "txt"', 'did you mean "text"?', input="txt")
    refuse(path, LABELED, "data.column", 'no column "lable"', 'did you mean "label"?', target="lable")


def test_columns_inside_of_objects(tmp_path: Path) -> None:
    rows = [{"id": 1, "translation": {"en": "Go.", "fr": "Va !"}}, {"id": 2, "translation": {"en": "Hi."}}]
    path = write_jsonl(tmp_path / "a.jsonl", rows[:1])
    dataset = read(path, PAIRS, source="translation.en", target="translation.fr")
    assert (values(dataset, "source"), values(dataset, "target")) == (["Go."], ["Va !"])
    both = write_jsonl(tmp_path / "b.jsonl", rows)
    refuse(
        both,
        PAIRS,
        "data.column",
        'b.jsonl, line 2: has no column "translation.fr"',
        source="translation.en",
        target="translation.fr",
    )


# Roles of options, and the columns of splits


def test_roles_of_the_options() -> None:
    assert (LABELED.input_role, LABELED.target_role) == ("input", "target")
    assert (STREAM.input_role, STREAM.target_role) == ("text", None)
    schema = Schema(
        (Field("id", (LABEL,), required=False), Field("time", (NUMBER,)), Field("tags", (LABEL,), target=True))
    )
    assert (schema.input_role, schema.target_role) == ("time", "tags")


def test_split_columns_are_recognized_by_their_values() -> None:
    table: dict[str, list[Any]] = {
        "text": ["a b", "c"],
        "label": ["p", "q"],
        "set": ["train", "test"],
        "validation": ["", "True"],
    }
    assert roles(LABELED, table)["split"] == ("set",)
    assert roles(LABELED, table)["validation"] == ("validation",)
    assert "split" not in roles(LABELED, table | {"set": ["alpha", "beta"]})
    assert "validation" not in roles(LABELED, {name: table[name] for name in ("text", "label", "validation")})
    assert roles(LABELED, table, split="")["target"] == ("label",)
    assert "split" not in roles(LABELED, table, split="")
    assert "split" not in roles(LABELED.inputs(), table)
    assert roles(LABELED, {"set": ["train", "test"], "text": ["a b", "c"], "y": ["p", "q"]}, input="set,text")[
        "input"
    ] == ("set", "text")


def test_optional_fields_are_taken_by_name_only() -> None:
    schema = replace(LABELED, fields=(*LABELED.fields, Field("weight", (NUMBER,), ("importance",), required=False)))
    assert "weight" not in roles(schema, {"text": ["a"], "label": ["b"], "n": [1]})
    assert roles(schema, {"text": ["a"], "label": ["b"], "Importance": [1]})["weight"] == ("Importance",)


def test_headers_without_names_follow_the_positions() -> None:
    columns = {f"column {n}": [f"text {n}"] for n in (1, 2, 3)}
    assert roles(PAIRS, columns) == {"source": ("column 1",), "target": ("column 2",)}
    assert roles(PAIRS, columns, source="3") == {"source": ("column 3",), "target": ("column 1",)}
    assert roles(PAIRS, columns, target="1") == {"source": ("column 2",), "target": ("column 1",)}


def test_a_field_takes_all_columns_of_its_kind() -> None:
    schema = Schema((Field("value", (NUMBER,), max_columns=None, take_all=True), Field("id", (TEXT,))))
    assert roles(schema, {"id": ["a"], "x": [1], "y": [2]})["value"] == ("x", "y")
    assert INPUT.match_kind(Header("t", {"a": ["1 2"]}), ["a"]) is TEXT
    assert INPUT.match_kind(Header("t", {"a": ["1 2"]}), ["a"], explicit=True) is not TEXT
