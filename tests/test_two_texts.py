"""Two texts as one input, from a table to answers: both count, in their order, with every model that reads text."""

from __future__ import annotations

import csv
import io
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim import api
from seriatim.cli import run as cli
from seriatim.core import registry
from seriatim.tasks import classify

WORDS = {"g": ["good", "warm", "fine"], "b": ["dull", "cold", "bad"]}


def rows_of(count: int) -> list[list[str]]:
    """The label says what the first text is and what the second: the same words, so that their order must count."""
    found = []
    for n, (first, second) in zip(range(count), list(product("gb", repeat=2)) * count, strict=False):
        words = [WORDS[kind][(n // 4 + shift) % 3] for kind, shift in ((first, 0), (second, n % 5))]
        found.append([f"it was {words[0]} {n % 7}", f"{words[1]} , they said", first + second, str("bg".index(first))])
    return found


def table(path: Path, rows: list[list[str]], heading: list[str]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([heading, *rows])
    return path


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    path = table(folder / "pairs.csv", rows_of(240), ["premise", "hypothesis", "label", "n"])
    small: dict[str, Any] = {"model": {"width": 24}, "train": {"batch": 16, "optimiser": {"rate": 0.01}}}
    short = {"steps": 120, "target": "label"}  # the columns have the usual names
    seriatim.train("classify", str(path), "gru", settings=small, out=folder / "run", **short)
    return folder


def test_both_texts_count_and_so_does_their_order(taught: Path) -> None:
    run = seriatim.load(taught / "run")
    assert run.summary["measures"]["test"]["accuracy"] > 0.95
    assert seriatim.evaluate(run.path)["accuracy"] == run.summary["measures"]["test"]["accuracy"]
    pairs = [("it was good 1", "cold , they said"), ("it was cold 1", "good , they said")]
    assert [answer["prediction"] for answer in run.predict(pairs)] == ["gb", "bg"]
    one = run.predict(pairs[0])
    assert one["prediction"] == "gb"
    many = run.predict([*pairs, ["it was good and warm and fine", "dull"], ("", "x"), ("", "")])  # lists as from JSON
    assert many[0]["confidence"] == pytest.approx(one["confidence"], rel=1e-5)
    assert len(many) == 5


def test_what_is_no_pair_is_refused_and_a_pair_by_a_model_of_single_texts(taught: Path, tmp_path: Path) -> None:
    run = seriatim.load(taught / "run")
    for bad in ("it was good", ["it was good"], [("a", "b", "c")], [("a", 1)]):
        with pytest.raises(seriatim.SeriatimError, match="no pair of texts"):
            run.predict(bad)
    short = {"steps": 2, "target": "label", "column": "premise"}
    single = seriatim.train("classify", str(taught / "pairs.csv"), "gru", out=tmp_path / "run", **short)
    assert len(single.predict(("one", "another"))) == 2  # two inputs
    assert single.predict("one\tanother") == single.predict("one another")
    with pytest.raises(seriatim.SeriatimError, match="a pair of texts"):
        single.predict([("one", "another")])
    with pytest.raises(seriatim.SeriatimError, match="two texts at once"):
        single.predict_file(taught / "pairs.csv", column="premise,hypothesis")


def test_texts_with_a_tab(taught: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = str(taught / "run")
    lines = ["it was good 1\tcold , they said", "it was cold 1\tgood , they said"]
    assert cli(["predict", run, *lines]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["prediction", "gb", "bg"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert cli(["predict", run, "-", "--json"]) == 0
    assert [answer["prediction"] for answer in json.loads(capsys.readouterr().out)] == ["gb", "bg"]
    assert cli(["predict", run, lines[0], "no tab", "a\tb\tc"]) == 2
    said = capsys.readouterr().err
    assert "data.pair" in said
    assert 'text 2: "no tab"; text 3: "a\\tb\\tc"' in said


def test_files_of_pairs(taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(taught / "run")
    rows = [["x", "cold , they said", "it was good 1", "gb"], ["x", "", "", "gg"], ["x", "good", "it was cold", "bg"]]
    known = table(tmp_path / "a.csv", rows, ["note", "hypothesis", "premise", "label"])
    assert cli(["predict", run, "--data", str(known)]) == 0
    answers = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert (len(answers), answers[0], answers[2]) == (3, "gb", "bg")  # row N in, row N out
    assert cli(["evaluate", run, "--data", str(known), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["accuracy"] == 1.0
    assert "left out 1 rows of two empty texts" in captured.err
    other = table(tmp_path / "b.csv", rows[:1], ["note", "second", "first", "gold"])
    assert cli(["predict", run, "--data", str(other)]) == 2
    assert "those that take their place with --column" in capsys.readouterr().err
    assert cli(["predict", run, "--data", str(other), "--column", "first,second"]) == 0
    assert cli(["evaluate", run, "--data", str(other), "--column", "first,second", "--target", "gold"]) == 0
    capsys.readouterr()
    assert cli(["evaluate", run, "--data", str(other), "--column", "first", "--target", "gold"]) == 2
    assert "trained on two texts at once" in capsys.readouterr().err


def test_the_report_shows_both_and_the_card_says_how_to_ask(taught: Path) -> None:
    run = seriatim.load(taught / "run")
    assert " ⇥ " in run.samples()[-1]["text"]
    card = (run.path / "README.md").read_text(encoding="utf-8")
    assert "$'one text\\tanother'" in card
    assert 'run.predict([("one text", "another")])' in card


def test_a_number_for_two_texts(taught: Path, tmp_path: Path) -> None:
    """The target follows from the first text alone, whatever the second is."""
    settings: dict[str, Any] = {"model": {"width": 24}, "train": {"batch": 16, "optimiser": {"rate": 0.01}}}
    short = {"steps": 80, "target": "n", "column": "premise,hypothesis"}
    run = seriatim.train("regress", str(taught / "pairs.csv"), "gru", settings=settings, out=tmp_path / "run", **short)
    assert run.summary["measures"]["test"]["r2"] > 0.9
    views = json.loads((run.path / "evaluation.json").read_text(encoding="utf-8"))["test"]
    farthest = next(view for view in views if view["title"] == "Farthest off")
    assert all(" ⇥ " in row[1] for row in farthest["rows"])


def names() -> list[str]:
    found = []
    for name in registry.models.names():
        settings = registry.models.load(name).Settings
        if not settings.counts and not settings.pairs and not settings.pictures:
            found.append(name)
    return found


@pytest.mark.parametrize("model", names())
def test_every_model_reads_two_texts(taught: Path, model: str) -> None:
    """Also longer ones than it was made for, with the same answer alone and among others, and both in their order."""
    config = api.configure("classify", str(taught / "pairs.csv"), model, {"model": {"width": 16}}, target="label")
    task = classify.prepare(config)
    predictor = classify.ClassifyPredictor(task.build(config.model).eval(), task.coder)
    long = ("it was good " * 40, "cold , they said " * 40)
    asked = [("it was good 1", "cold , they said"), long, ("", "cold")]
    together = predictor.predict(asked)
    for pair, answer in zip(asked, together, strict=True):
        alone = predictor.predict([pair])[0]
        assert alone["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    turned = predictor.predict([(asked[0][1], asked[0][0])])[0]
    assert turned["probabilities"] != pytest.approx(together[0]["probabilities"], abs=1e-9)


def test_a_model_trained_elsewhere_answers_for_one_text_and_for_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `transformers` does, from the texts on: pieces, marks, segments and scores."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "a",
        "man",
        "sleep",
        "##s",
        "no",
        "##body",
        "is",
        "awake",
        ".",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    assert tokenizer.tokenize("A man sleeps") == ["a", "man", "sleep", "##s"]
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(words), num_labels=3, **sizes)).eval()
    for weight in model.parameters():
        weight.data.mul_(5)  # answers that differ
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    assert cli(["import", str(tmp_path / "model"), "--out", str(tmp_path / "run")]) == 0
    run = seriatim.load(tmp_path / "run")
    firsts, seconds = ["A man sleeps.", "nobody is a man", ""], ["Nobody is awake.", "awake?", "a man sleeps"]
    for given, asked in (((firsts, seconds), list(zip(firsts, seconds, strict=True))), ((firsts,), firsts)):
        with torch.no_grad():
            wanted = model(**tokenizer(*given, padding=True, return_tensors="pt")).logits.softmax(dim=-1)
        found = torch.tensor([list(answer["probabilities"].values()) for answer in run.predict(asked)])
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
        assert wanted.std(dim=0).min() > 1e-3
    capsys.readouterr()
    assert cli(["predict", str(run.path), f"{firsts[0]}\t{seconds[0]}", "--json"]) == 0
    typed = json.loads(capsys.readouterr().out)[0]
    assert typed == run.predict((firsts[0], seconds[0])) != run.predict(firsts[0])
