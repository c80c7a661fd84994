"""Documents of a data set, and their sentences."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from seriatim.data.documents import TextLayout, document_ends, split_sentences
from seriatim.data.kinds import TEXT
from seriatim.data.reader import read_dataset
from seriatim.data.schema import Field, Schema
from seriatim.data.source import open_source

STREAM = Schema((Field("text", (TEXT,), ("block",)),), text_unit="block")


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith went to Washington.", "He met Dr. J. R. Brown at 3 p.m. on Monday!", '"Really?" she asked.'],
        ["Then they left...", "And so on"],
        ["The U.S. economy grew by 3.5 percent.", "She said no.", "It was No. 5.", "Vol. 3 came out in Jan. 1990."],
        ["Was it he?", "(No.)", "¿Cómo está?", "«Bien.»"],
        ["H. gammarus is found at 60 cm ( 24 in ) .", 'It is " big . "'],
        ["यह अच्छा है।", "और यह भी।"],
    ],
)
def test_sentences_are_divided(sentences: list[str]) -> None:
    assert split_sentences("  ".join(sentences) + " ") == sentences


def test_sentences_of_full_width_need_no_blanks() -> None:
    sentences = ["今天天气很好。", "我们去公园！", "「好吗？」", "他说。"]
    assert split_sentences("".join(sentences)) == sentences


def read(path: Path) -> tuple[list[list[str]], str]:
    """Returns the sentences of each document of a source, and the note on its layout."""
    dataset = read_dataset(open_source(str(path)), STREAM)
    layout = TextLayout.detect(dataset)
    return list(layout.documents(dataset["text"], document_ends(dataset).tolist())), layout.describe()


def test_titles_of_wikitext_begin_documents_and_its_marks_are_removed(tmp_path: Path) -> None:
    text = (
        " \n = First = \n \n It is 2 @.@ 5 m long . The <unk> is a well @-@ known one . \n \n = = Part = = \n \n"
        " Goals : A \n = Ties , L = \n none . \n \n = Second = \n \n It was last . \n"
    )
    (tmp_path / "wiki.txt").write_text(text, encoding="utf-8")
    documents, note = read(tmp_path / "wiki.txt")
    assert documents == [
        ["It is 2.5 m long .", "The [UNK] is a well-known one .", "Goals : A", "none ."],
        ["It was last ."],
    ]
    assert note.startswith("titles as in WikiText begin documents")


def test_blank_lines_or_files_or_rows_are_documents(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One. Two.\nThree.\n\n\nFour.", encoding="utf-8")
    assert read(tmp_path / "text.txt") == (
        [["One.", "Two.", "Three."], ["Four."]],
        "blank lines separate documents",
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("One.\n\nTwo.", encoding="utf-8")
    (folder / "b.txt").write_text("Three.", encoding="utf-8")
    assert read(folder) == ([["One.", "Two."], ["Three."]], "each text is a document")
    with open(tmp_path / "table.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "text"], ["1", "One.\n\nTwo."], ["2", "Three."]])
    assert read(tmp_path / "table.csv")[0] == [["One.", "Two."], ["Three."]]


def test_lines_broken_where_they_were_full_are_joined(tmp_path: Path) -> None:
    paragraph = "It was a long way\nto the town and\nback. They went\nall the same.\n\n"
    (tmp_path / "book.txt").write_text(paragraph * 10, encoding="utf-8")
    documents, note = read(tmp_path / "book.txt")
    assert documents == [["It was a long way to the town and back.", "They went all the same."]] * 10
    assert note.endswith("lines are joined, since most end within a sentence")
