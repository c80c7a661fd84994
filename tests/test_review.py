"""Input of another kind than a model was trained on, answers that no file can hold, signals: each has its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim import api
from seriatim.api import Comparison
from seriatim.cli import run as cli
from seriatim.core import registry
from seriatim.core.device import keep_memory
from seriatim.core.errors import SeriatimError
from seriatim.data import cells, examples
from seriatim.data.sequences import Examples, Parts, Sequences
from seriatim.data.writing import Table
from seriatim.reproduce import reproduce
from seriatim.tasks._coder import Coder, learn_coder
from seriatim.tasks.classify import MATRIX, ClassifyTask, Settings
from seriatim.tasks.regress import RegressTask

PAIRS = Coder("numbers", 4, labels=("y",), features=("a", "b"))


def test_numbers_from_texts_lists_and_arrays() -> None:
    given = ["[[1, 2], [3, 4]]", [[5.0, 6.0]], np.array([[7, 8]]), ""]
    found = PAIRS.encode(given)
    assert found.values.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert found.lengths.tolist() == [2, 1, 1, 0]
    single = Coder("numbers", 4, features=("a",)).encode(["0.5 1", "2,3"])
    assert single.values.ravel().tolist() == [0.5, 1, 2, 3]


@pytest.mark.parametrize("strange", ["abc", None, 1.0, ["a"], [[1, 2], [3]], [[1, float("nan")]], [[1, 2, 3]], "1 2"])
def test_what_is_no_sequence_of_pairs(strange: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        PAIRS.encode([[[1, 2]], strange])
    assert caught.value.code in ("predict.input", "data.features")


def test_empty_sequences_alone_fit_every_width() -> None:
    alone = Sequences.of([np.zeros((0, 1))], width=1)
    assert PAIRS.encode(alone).values.shape == (0, 2)


def test_a_text_model_takes_texts() -> None:
    parts = Parts(train=Examples(["a b c", "a b c d e"], ["x", "y"]))
    told: list[str] = []
    model = registry.models.load("gru").Settings(name="gru")
    coder = learn_coder(parts, None, 4, told.append, model)
    assert coder.longest == 4
    assert coder.encode(["a b c d e"]).lengths.tolist() == [4]
    assert told[-1] == "1 sequences are longer than 4 and lose what stands behind"
    with pytest.raises(SeriatimError, match=r"input 2 is 1\.5, no text"):
        coder.encode(["a", 1.5])


def test_one_label_where_lists_were_learnt_and_the_other_way_round() -> None:
    """A label "ab" must not become the labels a and b."""
    several = Coder("text", 1, labels=("a", "b"), several=True)
    with pytest.raises(SeriatimError, match="one label, where the training part has lists of labels"):
        ClassifyTask.encode_targets(several, Examples(["t"], ["ab"]))
    with pytest.raises(SeriatimError, match="a list of labels, where the training part has one label"):
        ClassifyTask.encode_targets(Coder("text", 1, labels=("a", "b")), Examples(["t"], [("a",)]))


@pytest.mark.parametrize(("labels", "target"), [(("y",), (1.0, 2.0)), (("y", "z"), 1.0)])
def test_as_many_numbers_as_were_learnt(labels: tuple[str, ...], target: Any) -> None:
    with pytest.raises(SeriatimError, match="numbers to predict, the model has"):
        RegressTask.encode_targets(Coder("text", 1, labels=labels), Examples(["t"], [target]))


def test_many_labels_are_counted_without_a_matrix() -> None:
    labels = tuple(str(number) for number in range(MATRIX + 1))
    task = ClassifyTask(Settings(), Coder("text", 1, labels=labels), {}, 0)
    true, given = np.array([0, 1, 1, 500]), np.array([0, 1, 2, 500])
    hits, said, there = task._counts(true, given)
    assert [hits.sum(), said[2], there[1]] == [3, 1, 2]
    assert task._confusion(true, given) == []
    scores = np.eye(len(labels))[given] * 50
    assert task._measures(scores, true)["macro_f1"] == pytest.approx((1 + 2 / 3 + 0 + 1) / 4)


def test_a_number_that_single_precision_cannot_hold() -> None:
    assert cells.number("3e38", "here", "y", "") == 3e38
    with pytest.raises(SeriatimError, match="1e39"):
        cells.number("1e39", "here", "y", "")


def test_an_empty_list_of_words_is_an_empty_text(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", f"w{n}"] if n else [], "label": str(n % 2)} for n in range(21)]
    file = tmp_path / "words.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told: list[str] = []
    parts = examples.read(examples.ExampleSettings(source=str(file)), notify=told.append)
    assert parts.train.inputs[0].startswith("a w")
    assert any("left out 1 empty texts" in note for note in told)


def test_several_labels_are_not_said_to_be_drawn_alike(tmp_path: Path) -> None:
    file = tmp_path / "several.jsonl"
    rows = [{"text": f"t {n}", "label": ["a", "b"][: 1 + n % 2]} for n in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told: list[str] = []
    examples.read(examples.ExampleSettings(source=str(file)), notify=told.append)
    assert any("at random, in the same way" in note for note in told)


def test_labels_of_the_training_file_are_not_those_of_another(tmp_path: Path) -> None:
    for name in ("x", "other"):
        np.save(tmp_path / f"{name}.npy", np.ones((4, 3)))
    np.save(tmp_path / "y.npy", np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "both.npz", x=np.ones((2, 3)), y=np.array([1, 1]))
    settings = examples.ExampleSettings(source=str(tmp_path / "x.npy"), target=str(tmp_path / "y.npy"))
    assert examples.read_single(settings.source, settings).targets == ["0", "1", "0", "1"]
    assert examples.read_single(str(tmp_path / "both.npz"), settings).targets == ["1", "1"]
    with pytest.raises(SeriatimError, match=r"other\.npy: holds no targets"):
        examples.read_single(str(tmp_path / "other.npy"), settings)


def test_values_of_several_kinds_are_no_parquet(tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match="several kinds"):
        Table(["id"], [[1], ["x"]]).write(tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("music")
    for number in range(10):
        np.save(folder / f"{number}.npy", np.eye(88, dtype=np.float32)[20 : 26 + number])
    seriatim.train("music", str(folder), "gru", steps=1, settings={"model": {"width": 4}}, out=folder / "run")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["predict", "run", "do re mi"], "predict.input"),
        (["generate", "run", "--out", "piece.txt"], "output.kind"),
        (["generate", "run", "--out", "piece.mid", "--prompts", "0.npy"], "generate.input"),
    ],
)
def test_music_is_asked_for_music(
    music: Path, arguments: list[str], code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(music)
    assert cli(arguments) == 2
    assert code in capsys.readouterr().err
    assert not list(music.glob("piece.*"))


def test_a_signal_ends_a_table_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The rows behind are not begun, although an interrupted run has no measures to be listed by."""

    class Stopped:
        def __init__(self) -> None:
            self.summary = {"reason": "SIGINT", "measures": {}}

    begun: list[str] = []

    def compare(task: str, data: str, *rest: Any, **options: Any) -> Comparison:
        begun.append(data)
        return Comparison(tmp_path, [Stopped()], {})  # type: ignore[list-item]

    monkeypatch.setattr("seriatim.api.compare", compare)
    assert reproduce("bai2018", ["adding", "copy"], out=tmp_path).stopped == "SIGINT"
    assert begun == ["adding:600"]
    assert cli(["reproduce", "bai2018", "--rows", "adding", "--out", str(tmp_path), "-q"]) == 130


def test_a_row_whose_data_cannot_be_fetched_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compare(*rest: Any, **options: Any) -> Comparison:
        raise SeriatimError("data.offline", "no network", "try again", exit_code=1)

    monkeypatch.setattr("seriatim.api.compare", compare)
    assert set(reproduce("bai2018", ["smnist", "jsb"], out=tmp_path).missing) == {"smnist", "jsb"}


def test_words_of_neighbouring_examples_are_not_glued(tmp_path: Path) -> None:
    """The vocabulary holds the words of the texts and nothing else."""
    texts = [f"{first} {last}" for first in ("red", "blue", "green") for last in ("sky", "sea", "tree")] * 4
    rows = [f"{text},{'a' if 'red' in text else 'b'}" for text in texts]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    config = api.configure("classify", str(tmp_path / "t.csv"), "gru")
    names = set(registry.tasks.load("classify").prepare(config).coder.tokenizer.names)
    assert names - {"red", "blue", "green", "sky", "sea", "tree"} <= {"<unk>", "<eos>"}


@pytest.mark.parametrize("separator", ["|", ">", "#", "-", ";"])
def test_any_sign_can_separate_labels(separator: str, tmp_path: Path) -> None:
    from seriatim.core.config import override

    assert override({}, [f"data.separator={separator}"]) == {"data": {"separator": separator}}


def test_a_column_that_is_not_there_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"a {word} film {n},{label}" for n in range(10) for word, label in (("fine", "good"), ("dull", "bad"))]
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    out = str(tmp_path / "run")
    small = ["--model", "gru", "--steps", "2", "--set", "model.width=4", "--quiet"]
    assert cli(["train", "classify", "--data", str(tmp_path / "films.csv"), "--out", out, *small]) == 0
    (tmp_path / "other.csv").write_text("id,sequence\n1,abc\n2,def\n", encoding="utf-8")
    capsys.readouterr()
    assert cli(["predict", out, "--data", str(tmp_path / "other.csv")]) == 2
    assert "--column" in capsys.readouterr().err
    (tmp_path / "alone.csv").write_text("sequence\na fine film\n", encoding="utf-8")
    assert cli(["predict", out, "--data", str(tmp_path / "alone.csv")]) == 0


def test_memory_is_kept_only_where_glibc_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows ctypes takes no name for a library with a TypeError: no training would begin."""

    def refuse(name: str | None) -> None:
        raise TypeError("argument of type 'NoneType' is not iterable")

    monkeypatch.setattr("seriatim.core.device.sys.platform", "win32")
    monkeypatch.setattr("seriatim.core.device.ctypes.CDLL", refuse)
    keep_memory()
