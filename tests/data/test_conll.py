"""CoNLL and CoNLL-U: what is a word, what is a column, and what is wrong with file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.check import check
from seriatim.data.dataset import Dataset
from seriatim.data.formats import ReadOptions, find_format
from seriatim.data.formats.conll import Conll, append_column
from seriatim.data.reader import read_dataset
from seriatim.data.source import open_source
from seriatim.tasks.tag.processor import choose_scheme, repair_dataset
from seriatim.tasks.tag.spec import SCHEMA

COLUMNS = "They PRP O\nare VBP O\n\nMary NNP B-per\nSmith NNP I-per\n"
GOOD_LINE = '{"tokens": ["a"], "tags": ["X"]}\n'
CONLLU = """# sent_id = 1
# text = I don't.
1\tI\tI\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

# sent_id = 2
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(
    folder: Path, text: str | bytes, name: str = "a.conll", notes: list[str] | None = None, **columns: str
) -> Dataset:
    """Returns the sentences of a file, read and checked as training does."""
    diagnostics = Diagnostics(None if notes is None else notes.append)
    source = open_source(write(folder / name, text))
    dataset = read_dataset(source, SCHEMA, columns, ReadOptions(), diagnostics)
    diagnostics.raise_problems()
    check(dataset, SCHEMA, diagnostics)
    diagnostics.raise_problems()
    return dataset


def words(dataset: Dataset) -> list[list[str]]:
    return [list(words) for words in dataset["tokens"]]


def tags(dataset: Dataset) -> list[list[str]]:
    return [list(tags) for tags in dataset["tags"]]


def raised(call: Any, *arguments: Any, **options: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        call(*arguments, **options)
    return caught.value


def test_first_column_holds_words_and_the_last_tags(tmp_path: Path) -> None:
    dataset = read(tmp_path, COLUMNS)
    assert words(dataset) == [["They", "are"], ["Mary", "Smith"]]
    assert tags(dataset) == [["O", "O"], ["B-per", "I-per"]]
    assert str(dataset.locations[1].element(1)) == "a.conll, line 5"


def test_other_columns_are_chosen_by_name_or_number(tmp_path: Path) -> None:
    assert tags(read(tmp_path, COLUMNS, tags="2")) == [["PRP", "VBP"], ["NNP", "NNP"]]
    assert tags(read(tmp_path, COLUMNS, tags="column 2")) == [["PRP", "VBP"], ["NNP", "NNP"]]
    assert words(read(tmp_path, COLUMNS, tokens="2")) == [["PRP", "VBP"], ["NNP", "NNP"]]


def test_conllu_skips_comments_ranges_and_empty_nodes(tmp_path: Path) -> None:
    dataset = read(tmp_path, CONLLU, "a.txt")
    assert words(dataset) == [["I", "do", "n't", "."], ["Yes"]]
    assert tags(dataset) == [["PRON", "AUX", "PART", "PUNCT"], ["INTJ"]]
    assert [location.lines for location in dataset.locations] == [(3, 5, 6, 8), (11,)]
    assert tags(read(tmp_path, CONLLU, tags="deprel"))[0] == ["nsubj", "root", "advmod", "punct"]
    assert tags(read(tmp_path, CONLLU, tags="5"))[1] == ["UH"]


def test_jsonl_holds_a_sentence_per_line(tmp_path: Path) -> None:
    lines = [{"tokens": ["a", "b c"], "labels": [7, 8]}, {"tokens": ["d"], "labels": [7]}]
    dataset = read(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "a.jsonl")
    assert (words(dataset), tags(dataset)) == ([["a", "b c"], ["d"]], [["7", "8"], ["7"]])


def test_compressed_files_and_windows_line_ends(tmp_path: Path) -> None:
    plain = read(tmp_path, COLUMNS)
    packed = read(tmp_path, gzip.compress(COLUMNS.replace("\n", "\r\n").encode()), "a.conll.gz")
    assert plain.fingerprint() == packed.fingerprint()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("5 000\tNUM\n\t\nyes\tX\n", [["5 000"], ["yes"]]),  # white space separates sentences; cells hold blanks
        ("{ PUNCT\n5\xa0000 NUM\n\xa0 X\n", [["{", "5\xa0000", "\xa0"]]),  # a no-break space separates nothing
        ("# id 7 of the file\n#ham\tO\n#\tO\n\n# id 8 of it\nx\tB-a\n", [["#ham", "#"], ["x"]]),
        ("-DOCSTART- -X- O\n\nEU NNP B-ORG\n", [["EU"]]),
    ],
)
def test_what_is_a_word(tmp_path: Path, text: str, sentences: list[list[str]]) -> None:
    assert words(read(tmp_path, text)) == sentences


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ("a X\nb\n", "data.columns", "a.conll, line 2: 1 column, but the first word has 2"),
        ("a X\nb Y Z\n", "data.columns", "a.conll, line 2: 3 columns"),
        ("a\tX\n\tY\n", "data.columns", "a.conll, line 2: the word is empty"),
        ("a\nb\n", "data.column", "which column is the tags?"),
        ("", "data.empty", "a.conll"),
        ("\n \n", "data.empty", "a.conll"),
        (b"a X\n\xff Y\n", "data.encoding", "a.conll, line 2"),
        (CONLLU + "1\tx\n", "data.columns", "a.conll, line 12: 2 columns, but CoNLL-U has 10"),
        (CONLLU.replace("4\t.", "x\t."), "data.conll", 'a.conll, line 8: "x" is not the number'),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str | bytes, code: str, cause: str) -> None:
    error = raised(read, tmp_path, text)
    assert error.code == code
    assert cause in error.cause


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ('{"tokens": ["a", "b"], "tags": ["X"]}\n', "data.tags", "a.jsonl, line 1: 2 words and 1 tags"),
        ('{"tokens": ["a"]}\n', "data.column", "which column is the tags?"),
        ('{"tokens": ["a"], "tags": ["X"]}\n{oops\n', "data.jsonl", "a.jsonl, line 2"),
        ('{"tokens": ["a", ""], "tags": ["X", "Y"]}\n', "data.columns", "a.jsonl, line 1: the word is empty"),
        (GOOD_LINE * 2 + '{"tokens": ["\\ud800"], "tags": ["X"]}\n', "data.binary", "a.jsonl, line 3"),
    ],
)
def test_errors_of_jsonl(tmp_path: Path, text: str, code: str, cause: str) -> None:
    error = raised(read, tmp_path, text, "a.jsonl")
    assert error.code == code
    assert cause in error.cause


def test_all_problems_at_once(tmp_path: Path) -> None:
    cause = raised(read, tmp_path, "a X\nb\n\nc\nd Y Z\n").cause
    assert all(f"line {number}: " in cause for number in (2, 4, 5))


def test_missing_columns_and_columns_without_tags(tmp_path: Path) -> None:
    assert raised(read, tmp_path, COLUMNS, tags="9").code == "data.column"
    assert raised(read, tmp_path, CONLLU, tags="upso").remedy == 'did you mean "upos"?'
    assert raised(read, tmp_path, CONLLU, tags="misc").code == "data.no-tags"


@pytest.mark.parametrize(
    ("text", "is_conll"),
    [
        (COLUMNS * 3, True),
        (CONLLU, True),
        ("First Citizen:\nBefore we\n\nAll of\nthem speak\n", False),  # few words, all different
        ("a b\nc d\n", False),
        ('{"tokens": ["a"], "tags": ["X"]}\n', False),
    ],
)
def test_conll_is_recognized_by_its_lines(tmp_path: Path, text: str, is_conll: bool) -> None:
    source = open_source(write(tmp_path / "a.txt", text))
    assert Conll().sniff(source) == is_conll
    assert isinstance(find_format(source, ReadOptions()), Conll) == is_conll


def test_append_column_keeps_every_line(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "a.conllu", CONLLU))
    lines = append_column(source, ["A", "B", "C", "D", "E"], ReadOptions()).splitlines()
    assert [line.split("\t")[:10] for line in lines] == [line.split("\t") for line in CONLLU.splitlines()]
    assert [line.split("\t")[10:] for line in lines] == [
        [],
        [],
        ["A"],
        ["_"],
        ["B"],
        ["C"],
        ["_"],
        ["D"],
        [],
        [],
        ["E"],
    ]
    assert raised(append_column, source, ["A"] * 6, ReadOptions()).code == "output.words"


# Schemes


def repaired(folder: Path, text: str, scheme: str = "auto") -> tuple[list[list[str]], str, list[str]]:
    """Returns the repaired tags of a file, its scheme and the notes."""
    diagnostics = Diagnostics()
    dataset = read(folder, text)
    scheme = choose_scheme(scheme, dataset, diagnostics)
    tags = repair_dataset(dataset, scheme, diagnostics)
    diagnostics.raise_problems()
    return tags, scheme, diagnostics.notes


def test_iob1_is_recognized_and_written_as_bio(tmp_path: Path) -> None:
    tags, scheme, notes = repaired(tmp_path, "a O\nb I-x\n\nc I-x\nd I-x\n")
    assert (tags, scheme) == ([["O", "B-x"], ["B-x", "I-x"]], "iob1")
    assert "the tags mark entities, as IOB1" in notes
    assert any("2 tags of IOB1 are written as BIO" in note for note in notes)


def test_each_kind_of_repair_is_noted_once(tmp_path: Path) -> None:
    tags, _, notes = repaired(tmp_path, "a B-x\nb O\nc I-x\n\nd I-x\n")
    assert tags == [["B-x", "O", "B-x"], ["B-x"]]
    assert "2 tags I-x without a B- before: read as B-x (a.conll, line 3 and others)" in notes


def test_tags_outside_of_the_scheme(tmp_path: Path) -> None:
    error = raised(repaired, tmp_path, "a B-x\nb NOUN\n", "bio")
    assert (error.code, "a.conll, line 2" in error.cause) == ("data.scheme", True)
    _, scheme, notes = repaired(tmp_path, "a B-x\nb NOUN\n")
    assert scheme == "none"
    assert any('line 2: "NOUN" marks no entity' in note for note in notes)
