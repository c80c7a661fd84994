"""Inputs of another kind than a model was trained on, and cells at the edge of a kind: each has its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError

TINY: dict[str, Any] = {"model": {"width": 4}}


def train(task: str, data: Any, out: Path, **options: Any) -> Any:
    options = {"settings": TINY, "steps": 1, "report": False} | options
    return seriatim.train(task, data, "gru", out=out, **options)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A classifier of sequences of pairs of numbers."""
    draw = np.random.default_rng(0)
    rows = [{"x": draw.normal(size=(1 + n % 4, 2)).tolist(), "label": "ab"[n % 2]} for n in range(40)]
    return train("classify", rows, tmp_path_factory.mktemp("numbers") / "run")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows = [{"text": f"a {word} film {n}", "label": word} for n in range(20) for word in ("fine", "dull")]
    return train("classify", rows, tmp_path_factory.mktemp("texts") / "run")


def test_numbers_from_texts_lists_and_arrays(numbers: Any) -> None:
    same = ["[[1, 2], [3, 4]]", [[1.0, 2.0], [3.0, 4.0]], np.array([[1, 2], [3, 4]])]
    records = [numbers.classify([value])[0] for value in same]
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize("value", ["abc", 1.0, ["a"], [[1, 2], [3]], [[1, float("nan")]], [[1, 2, 3]], "1 2"])
def test_what_is_no_sequence_of_pairs(numbers: Any, value: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        numbers.classify([[[1, 2]], value])
    assert caught.value.code.startswith(("data.", "predict."))
    assert caught.value.remedy


def test_a_text_model_reads_texts(texts: Any) -> None:
    with pytest.raises(SeriatimError, match="row 1"):
        texts.classify(["a", 1.5])


def test_a_label_is_not_read_as_a_list_of_labels(tmp_path: Path) -> None:
    """A label "ab" must not become the labels a and b, and the other way round."""
    single = [{"text": f"t {n}", "label": "ab"[n % 2]} for n in range(20)]
    several = [{"text": f"t {n}", "label": [["a"], ["a", "b"]][n % 2]} for n in range(20)]
    runs = [train("classify", rows, tmp_path / str(n)) for n, rows in enumerate((single, several))]
    for run, other in zip(runs, (several, [row | {"label": "ab"} for row in single]), strict=True):
        with pytest.raises(SeriatimError) as caught:
            run.evaluate(other)
        assert "label" in caught.value.cause


def test_as_many_numbers_as_the_model_has(tmp_path: Path) -> None:
    rows = [{"text": f"t {n}", "a": float(n), "b": float(-n)} for n in range(20)]
    run = train("regress", rows, tmp_path / "run", settings=TINY | {"data": {"columns": {"target": "a"}}})
    with pytest.raises(SeriatimError):
        seriatim.evaluate(run.path, data=[{"text": "t", "a": [1.0, 2.0]}])


def test_a_number_that_single_precision_cannot_hold(tmp_path: Path) -> None:
    rows = [{"text": f"t {n}", "y": "1e39" if n == 7 else f"{n}"} for n in range(20)]
    with pytest.raises(SeriatimError, match="1e39") as caught:
        train("regress", rows, tmp_path / "run")
    assert "row 7" in caught.value.cause


def test_an_empty_list_of_words_is_an_empty_text(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", f"w{n}"] if n else [], "label": str(n % 2)} for n in range(21)]
    file = tmp_path / "words.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    notes: list[str] = []
    run = train("classify", file, tmp_path / "run", notify=notes.append)
    assert run.classify(["a w1"])[0]["prediction"] in ("0", "1")
    assert any(": 1 rows with" in note for note in notes), notes


def test_targets_of_the_training_file_are_not_those_of_another(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3)))
    np.save(tmp_path / "y.npy", np.arange(40) % 2)
    np.save(tmp_path / "other.npy", np.ones((4, 3)))
    np.savez(tmp_path / "both.npz", x=np.ones((2, 3)), y=np.array([1, 1]))
    run = train("classify", f"{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}", tmp_path / "run")
    assert run.evaluate(tmp_path / "both.npz")["examples"] == 2
    with pytest.raises(SeriatimError, match=r"other\.npy"):
        run.evaluate(tmp_path / "other.npy")


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("music")
    (folder / "rolls").mkdir()
    for number in range(10):
        np.save(folder / "rolls" / f"{number}.npy", np.eye(88, dtype=np.float32)[20 : 26 + number])
    train("music", folder / "rolls", folder / "run")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["score", "run", "do re mi"], "data."),
        (["compose", "run", "--out", "piece.xyz"], "output."),
        (["generate", "run", "do re mi"], "run.capability"),
    ],
)
def test_music_is_read_and_written_as_music(
    music: Path, arguments: list[str], code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(music)
    assert cli(arguments) == 2
    assert f"[{code}" in capsys.readouterr().err
    assert not list(music.glob("piece.*"))


def test_a_composed_piece_is_a_midi_file(music: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(music)
    assert cli(["compose", "run", "--frames", "4", "--out", "piece.mid", "--quiet"]) == 0
    assert (music / "piece.mid").read_bytes().startswith(b"MThd")
    (music / "piece.mid").unlink()


def test_a_file_that_does_not_exist_is_no_sequence(numbers: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        numbers.classify("new.csv")
    assert caught.value.code == "data.missing"


# Columns of other names than those of the training data


def test_a_column_that_is_guessed_is_named(texts: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guess = 'column "foo" is read as input, as there is no "text"'
    with pytest.warns(UserWarning, match=guess):
        texts.predict({"foo": ["a fine film"]})
    table = tmp_path / "foo.csv"
    table.write_text("foo\n" + "a fine film\n" * 600)  # more than are predicted at a time
    for quiet in (False, True):
        assert cli(["predict", str(texts.path), "--data", str(table), *(["--quiet"] if quiet else [])]) == 0
        assert capsys.readouterr().err.count(guess) == (not quiet)


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_column_with_the_name_of_training_is_no_guess(texts: Any, tmp_path: Path) -> None:
    records = [texts.predict("a fine film"), texts.predict(["a fine film"])[0], texts.predict({"input": "a fine film"})]
    records += [texts.predict([{"id": 1, name: "a fine film"}])[0] for name in ("text", "Text")]
    path = tmp_path / "lines.txt"
    path.write_text("a fine film\n")
    records += list(texts.predict(path))
    assert [record["prediction"] for record in records] == [records[0]["prediction"]] * 6


def test_evaluation_takes_no_column_for_the_target_by_its_kind(texts: Any, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text("id,text\n0,a fine film\n1,a dull film\n")
    with pytest.raises(SeriatimError) as caught:
        seriatim.evaluate(texts.path, data=table)
    assert caught.value.code == "data.column"
    assert 'new.csv: has no column "label"' in caught.value.cause
    assert caught.value.remedy == "name it: --target NAME; the columns are: id, text"
    table.write_text("kind,text\nfine,a fine film\ndull,a dull film\n")
    named = seriatim.evaluate(texts.path, data=table, target="kind")
    table.write_text("class,text\nfine,a fine film\ndull,a dull film\n")
    notes: list[str] = []
    assert seriatim.evaluate(texts.path, data=table, notify=notes.append) == named
    assert notes == ['new.csv: column "class" is read as target, as there is no "label"']


def test_translation_takes_no_other_text_for_the_target(tmp_path: Path) -> None:
    rows = [{"en": f"a house {n}", "fr": f"une maison {n}"} for n in range(20)]
    run = train("translate", rows, tmp_path / "run")
    with pytest.raises(SeriatimError, match='has no column "fr"'):
        seriatim.evaluate(run.path, data=[{"en": "a house", "comment": "checked"}] * 3)
