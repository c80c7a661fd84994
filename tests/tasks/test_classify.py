"""Classify: labels of every form, text, two texts, numbers and images, from a table to predictions and charts."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from seriatim import api
from seriatim.core import registry
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.images import IMAGE
from seriatim.data.source import open_source
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.nn.loss import distillation_loss
from seriatim.report.charts import Confusion, Lines, Table
from seriatim.report.charts import Image as ChartImage
from seriatim.tasks import reading
from seriatim.tasks.batching import Batch
from seriatim.tasks.classify.task import ClassifyProcessor, ClassifyTask
from seriatim.tasks.codecs import ImageCodec, NumberCodec, TextCodec
from seriatim.tasks.processor import from_dict
from seriatim.tasks.reading import read_split
from seriatim.tasks.values import Splits
from seriatim.training.distillation import read_unlabeled
from seriatim.training.objective import TaskObjective
from task_helpers import fit_splits, make_config, prepare_splits, refused

FINE = ["a fine film", "warm and fine", "what a fine, warm day"]
DULL = ["a dull film", "dull and long", "so long, so dull"]
NO_SPLIT = {"fractions": (1.0, 0.0, 0.0)}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_rows(path: Path, records: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def labels_of(task: ClassifyTask, splits: Splits[Any]) -> list[str]:
    return task.describe_references(splits.train.items.labels)


# Labels


def test_labels_of_every_type(tmp_path: Path) -> None:
    values = [True, False, 3, 4.0, 4.5, " spaced ", "nan d'or"]
    path = write_rows(tmp_path / "a.jsonl", [{"text": f"t{i}", "label": value} for i, value in enumerate(values)])
    task, splits = prepare_splits("classify", path, **NO_SPLIT)
    assert labels_of(task, splits) == ["true", "false", "3", "4", "4.5", "spaced", "nan d'or"]
    assert task.processor.labels == ("3", "4", "4.5", "false", "nan d'or", "spaced", "true")  # numbers by value first


def test_several_labels(tmp_path: Path) -> None:
    expected = [("a", "b"), (), ("c",)]
    lists = write_rows(tmp_path / "a.jsonl", [{"text": f"t{i}", "label": row} for i, row in enumerate(expected)])
    cells = write(tmp_path / "b.csv", "text,label\nt0,a|b\nt1,\nt2,c\n")
    flags = write(tmp_path / "c.csv", "text,a,b,c\nt0,1,1,0\nt1,0,0,0\nt2,0,0,1\n")
    for path, options in (
        (lists, {}),
        (cells, {"label_separator": "|"}),
        (flags, {"columns": {"input": "text", "target": "a,b,c"}}),
        (flags, {"columns": {"input": "text", "target": "a..c"}}),
    ):
        diagnostics = Diagnostics()
        task, splits = prepare_splits("classify", path, diagnostics=diagnostics, **NO_SPLIT, **options)
        assert task.processor.multi_label
        assert labels_of(task, splits) == ["a, b", "none", "c"]
        assert "3 labels, 1 per row on average: a (33 %), b (33 %), c (33 %)" in diagnostics.notes
    bad = write(tmp_path / "d.csv", "text,a,b\nx,1,2\n")
    columns = {"input": "text", "target": "a,b"}
    refused("data.column", "line 2", '"b"', "neither 1 nor 0", name="classify", data=bad, columns=columns, **NO_SPLIT)


@pytest.mark.parametrize("separator", ["|", ".", ", ", " "])
def test_any_separator_of_labels(separator: str) -> None:
    frame = pd.DataFrame({"text": ["t0", "t1", "t2"], "label": [separator.join("ab"), "", "c"]})
    task, splits = prepare_splits("classify", frame, label_separator=separator, **NO_SPLIT)
    assert labels_of(task, splits) == ["a, b", "none", "c"]


def test_several_labels_are_learned_and_predicted(tmp_path: Path) -> None:
    words = {"x": "red", "y": "blue"}
    rows = [{"text": f"{' '.join(words[label] for label in labels)} {n}", "label": list(labels)}
            for n, labels in enumerate([(), ("x",), ("y",), ("x", "y")] * 15)]  # fmt: skip
    task, splits = prepare_splits("classify", write_rows(tmp_path / "a.jsonl", rows))
    predictor = fit_splits(task, splits, 60)
    predictions = predictor.call("classify", ["red blue", "red", ""], probabilities=True)
    assert predictions[0]["prediction"] == ["x", "y"]
    assert predictions[1]["prediction"] == ["x"]
    assert set(predictions[0]["probabilities"]) == {"x", "y"}
    assert task.evaluate(predictor.network, splits["test"]).metrics["micro_f1"] > 0.8
    baseline = task.baselines(splits, ["test"])["test"]["most frequent"]
    assert set(baseline) == {"loss", "accuracy", "micro_f1", "macro_f1", "error", "examples"}
    (table,) = task.views(task.evaluate(predictor.network, splits["test"]))
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["x", "y"]


def test_missing_and_unknown_labels(tmp_path: Path) -> None:
    for cell in ("", " ", "nan", "NaN"):
        path = write(tmp_path / "a.csv", f"text,label\nx,a\ny,{cell}\nz,b\n")
        refused("data.label", "a.csv, line 3", "missing", name="classify", data=path, **NO_SPLIT)
    path = write_rows(tmp_path / "a.jsonl", [{"text": "x", "label": "a"}, {"text": "y", "label": None}])
    refused("data.label", "a.jsonl, line 2", name="classify", data=path, **NO_SPLIT)
    train = write(tmp_path / "t.csv", "text,label\n" + "x,a\ny,b\n" * 10)
    other = write(tmp_path / "o.csv", "text,label\nx,a\ny,c\n")
    words = ("o.csv, line 3", 'the label "c" does not occur in the training split', "the labels are: a, b")
    for split in ("validation", "test"):
        refused("data.label", *words, name="classify", data=train, **{split: str(other)})
    column = write(tmp_path / "c.csv", "text,label,split\nx,a,train\ny,b,train\nz,c,test\nx,a,validation\n")
    refused("data.label", "c.csv, line 4", '"c"', name="classify", data=column)
    one = write(tmp_path / "e.csv", "text,label\n" + "x,a\n" * 20)
    refused("data.one-class", "16 training rows", '"a"', name="classify", data=one)


def test_numbers_are_no_labels() -> None:
    refused("data.target", "different numbers", "regress", name="classify", data="adding:20")
    frame = pd.DataFrame({"text": ["a", "b"] * 20, "label": [0.5, 1.5] * 20})
    assert prepare_splits("classify", frame)[0].processor.labels == ("0.5", "1.5")  # few are classes


def test_one_label_where_lists_were_trained(tmp_path: Path) -> None:
    lists = write_rows(tmp_path / "a.jsonl", [{"text": f"t{n}", "label": ["a", "b"][: 1 + n % 2]} for n in range(20)])
    single = write(tmp_path / "b.csv", "text,label\nx,a\ny,b\n")
    for train, other in ((lists, single), (single, lists)):
        task, _ = prepare_splits("classify", train, **NO_SPLIT)
        with pytest.raises(SeriatimError):  # a label "ab" must not become the labels a and b
            read_split(task, str(other))


def test_flip_validation_column(tmp_path: Path) -> None:
    rows = "AC,p,train,\nCA,q,train,True\nAA,p,test,\nCC,q,train,False\nGG,q,test,True\n"
    path = write(tmp_path / "a.csv", f"sequence,target,set,validation\n{rows}")
    _, splits = prepare_splits("classify", path)
    assert list(splits["train"].rows["input"]) == ["AC", "CC"]
    assert list(splits["validation"].rows["input"]) == ["CA"]
    assert list(splits["test"].rows["input"]) == ["AA", "GG"]


# Text


@pytest.fixture(name="films", scope="module")
def _films() -> pd.DataFrame:
    rows = [
        (f"{text} {n}", label) for n in range(12) for texts, label in ((FINE, "good"), (DULL, "bad")) for text in texts
    ]
    return pd.DataFrame(rows, columns=["text", "label"])


@pytest.fixture(name="splits", scope="module")
def _splits(films: pd.DataFrame) -> Any:
    return prepare_splits("classify", films, {"name": "gru", "width": 16})[1]


@pytest.fixture(name="trained", scope="module")
def _trained(films: pd.DataFrame) -> Any:
    return fit_splits(*prepare_splits("classify", films, {"name": "gru", "width": 16}), 40)


def test_predictions_do_not_depend_on_the_batch(trained: Any) -> None:
    (alone,) = trained.call("classify", ["a fine film"], probabilities=True)
    assert alone["prediction"] == "good"
    assert sum(alone["probabilities"].values()) == pytest.approx(1)
    several = trained.call("classify", ["dull", "", "a fine film", "a fine film and a warm and fine and warm day"])
    assert [record["prediction"] for record in several][::2] == ["bad", "good"]
    assert several[2]["confidence"] == pytest.approx(alone["confidence"], rel=1e-5)
    assert set(several[0]) == {"prediction", "confidence"}


def test_frame_in_frame_out(trained: Any) -> None:
    frame = pd.DataFrame({"note": ["x", "y"], "text": ["a fine, warm film", ""]}, index=[7, 9])
    result = trained.call("classify", frame).to_frame()
    assert list(result.columns) == ["note", "text", "prediction", "confidence"]
    assert list(result.index) == [7, 9]
    assert result["prediction"][7] == "good"


def test_a_row_for_each_row_and_line(trained: Any, tmp_path: Path) -> None:
    table = write(tmp_path / "new.csv", 'note,text\nx,"a fine, warm film"\ny,\nz,"dull\nand long"\n')
    assert [record["prediction"] for record in trained.call("classify", Path(table))][::2] == ["good", "bad"]
    lines = write(tmp_path / "lines.txt", "a fine film\n\nso dull\n")
    assert len(trained.call("classify", Path(lines))) == 3
    other = write(tmp_path / "o.csv", "title,opinion,stars\ndull,a fine film,good\nfine,so dull,bad\n")
    with pytest.raises(SeriatimError) as caught:
        trained.call("classify", Path(other))
    assert caught.value.code == "data.column"
    columns = {"input": "opinion", "target": "stars"}
    split = read_split(trained.task, str(other), columns)
    assert trained.task.evaluate(trained.network, split).metrics["accuracy"] == 1.0


def test_another_encoding_than_that_of_the_training_data(tmp_path: Path) -> None:
    for label, word in (("yes", "été"), ("no", "hiver")):
        (tmp_path / "old").mkdir(exist_ok=True)
        lines = "".join(f"{word} {number}\n" for number in range(30))
        (tmp_path / "old" / f"{label}.txt").write_bytes(lines.encode("cp1252"))
    predictor = fit_splits(*prepare_splits("classify", tmp_path / "old", encoding="cp1252"), 40)
    for encoding in ("utf-8", "cp1252"):
        (tmp_path / "new.txt").write_bytes("été 7\nhiver 7\n".encode(encoding))
        records = predictor.call("classify", Path(tmp_path / "new.txt"))
        assert [record["prediction"] for record in records] == ["yes", "no"]


def test_metrics_baseline_sample_and_views(trained: Any, splits: Any) -> None:
    task = trained.task
    metrics = task.evaluate(trained.network, splits["validation"]).metrics
    assert set(metrics) == {"loss", "accuracy", "macro_f1", "error", "examples"}
    assert task.evaluate(trained.network, task.sample_split(splits["train"], 100)).metrics["examples"] < 10
    assert task.baselines(splits, ["test"])["test"]["most frequent"]["accuracy"] == pytest.approx(0.5, abs=0.2)
    assert "(is " in task.sample(task.evaluate(trained.network, splits["validation"]))
    untrained = task.predictor(task.build(splits.train))
    views = task.views(task.evaluate(untrained.network, splits["test"]))
    assert [type(view) for view in views] == [Confusion, Table, Table]
    errors = views[2]
    assert errors.title == "Most confident errors"
    confidences = [row[-1] for row in errors.rows]
    assert confidences == sorted(confidences, reverse=True)
    assert np.array(views[0].counts).sum() == len(splits["test"].items)
    usage = trained.usage("run")
    assert usage[0].shell == 'seriatim classify run "a text"'


def test_many_labels_have_no_confusion_matrix(trained: Any, splits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.tasks.classify.task.MAX_CONFUSION", 1)
    views = trained.task.views(trained.task.evaluate(trained.network, splits["test"]))
    assert not any(isinstance(view, Confusion) for view in views)


def test_reach_of_the_gradient() -> None:
    rows = [(" ".join(f"w{(n + k) % 9}" for k in range(25)), "ab"[n % 2]) for n in range(40)]
    task, splits = prepare_splits(
        "classify", pd.DataFrame(rows, columns=["text", "label"]), {"name": "rnn", "width": 4}
    )
    network = task.build(splits.train)
    (reach,) = task.network_views(network, task.evaluate(network, splits["train"]))
    assert isinstance(reach, Lines)
    assert reach.series[0].y == pytest.approx(reach.series[1].y)  # nothing was trained
    assert reach.series[0].x[0] == 24


def test_processor_is_stored_and_restored(trained: Any, tmp_path: Path) -> None:
    values, tokenizers = trained.task.processor.to_dict()
    for name, tokenizer in tokenizers.items():
        tokenizer.save(tmp_path / name)
    processor = from_dict(json.loads(json.dumps(values)), tmp_path)
    restored = ClassifyTask(trained.task.config, processor, trained.task.layout)
    network = restored.network(restored.config.model)
    network.load_state_dict(trained.network.state_dict())
    texts = ["a fine film", "so dull"]
    assert restored.predictor(network).predict(texts) == trained.predict(texts)


def test_embeddings_of_texts(trained: Any) -> None:
    vectors = [record["vector"] for record in trained.call("embed", ["a fine film", "so dull"])]
    assert [len(vector) for vector in vectors] == [16, 16]


def test_causal_models_have_no_first_element(films: pd.DataFrame) -> None:
    task, splits = prepare_splits("classify", films, settings={"pooling": "first"})
    with pytest.raises(SeriatimError, match="causal") as caught:
        task.build(splits.train)
    assert caught.value.code == "task.pooling"


def test_truncation_is_noted(films: pd.DataFrame) -> None:
    diagnostics = Diagnostics()
    task, splits = prepare_splits("classify", films, settings={"context_length": 3}, diagnostics=diagnostics)
    assert task.processor.input.longest == 3
    assert splits["train"].items.lengths.max() == 3
    assert any("training sequences are truncated to 3 elements" in note for note in diagnostics.notes)


def test_truncation_outside_the_training_split_is_noted(films: pd.DataFrame, tmp_path: Path) -> None:
    """A model with learned positions is built for the longest training sequence."""
    films.to_csv(tmp_path / "train.csv", index=False)
    other = write(tmp_path / "other.csv", f"text,label\n{'fine ' * 40},good\nso dull,bad\n")
    diagnostics = Diagnostics()
    model = {"name": "gpt", "heads": 2, "layers": 1}
    files = {"validation": str(other), "test": str(other)}
    task, splits = prepare_splits("classify", tmp_path / "train.csv", model, diagnostics=diagnostics, **files)
    limit = task.processor.input.max_length
    assert limit == splits["train"].items.lengths.max() == splits["test"].items.lengths.max()
    for split in files:
        note = f"1 of 2 {split} sequences are truncated to {limit} elements (task.context_length)"
        assert note in diagnostics.notes
    assert not any("truncated" in note for note in trained_notes(films))  # a recurrent network reads any length


def trained_notes(films: pd.DataFrame) -> list[str]:
    diagnostics = Diagnostics()
    prepare_splits("classify", films, diagnostics=diagnostics)
    return diagnostics.notes


def test_pretrained_tokenizer_and_labels() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="word"), ["a fine film"])
    processor = ClassifyProcessor.from_pretrained({"tokenizer": tokenizer}, 12, ("neg", "pos"))
    assert (processor.input.max_length, processor.labels) == (12, ("neg", "pos"))
    frame = pd.DataFrame({"text": ["a fine film", "a film"] * 10, "label": ["x", "y"] * 10})
    config = make_config("classify", frame)
    task, _ = reading.prepare(ClassifyTask, config, frame, pretrained={"tokenizer": tokenizer})
    assert task.processor.input.tokenizer is tokenizer


def test_unlabeled_rows(trained: Any, splits: Any) -> None:
    diagnostics = Diagnostics()
    seen = list(splits["test"].rows["input"][:2])
    source = open_source(pd.DataFrame({"text": [*seen, "new", ""]}))
    rows = read_unlabeled(trained.task, splits, source, diagnostics)
    assert (len(rows), "target" in rows) == (3, False)
    assert any("2 of" in note and "unlabeled" in note for note in diagnostics.notes)


def test_teachers_must_have_the_same_labels(films: pd.DataFrame, trained: Any, splits: Any) -> None:
    other, _ = prepare_splits("classify", films.replace({"label": {"good": "great"}}))
    mismatches = other.teacher_mismatches(trained)
    assert mismatches == ['only this model has the label: "great"', 'only the teacher has the label: "good"']
    assert trained.task.teacher_mismatches(trained) == []
    batch = TaskObjective.of(trained.task, splits).batch(0, 0, 4, 4)
    output = trained.task.forward(trained.network, batch)
    assert output.features.shape == (4, 16)
    teacher = replace(output, scores=output.scores.detach() + torch.randn(4, 2))
    expected = distillation_loss(output.scores, teacher.scores, 2.0)
    assert torch.equal(trained.task.distillation_loss(output, teacher, 2.0), expected)


def test_label_smoothing(trained: Any, splits: Any) -> None:
    task, batch = trained.task, TaskObjective.of(trained.task, splits).batch(0, 0, 4, 4)
    output = task.forward(trained.network, batch)
    expected = torch.nn.functional.cross_entropy(output.scores, batch.targets, reduction="sum", label_smoothing=0.2)
    assert torch.equal(task.loss(output, batch, 0.2), expected)


# Two texts

WORDS = {"g": ["good", "warm", "fine"], "b": ["dull", "cold", "bad"]}


@pytest.fixture(name="pairs", scope="module")
def _pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The label tells what the first text is and what the second: their order counts."""
    rows = []
    for n, (first, second) in zip(range(240), list(product("gb", repeat=2)) * 60, strict=True):
        words = [WORDS[kind][(n // 4 + shift) % 3] for kind, shift in ((first, 0), (second, n % 5))]
        rows.append([f"it was {words[0]} {n % 7}", f"{words[1]} , they said", first + second, str("bg".index(first))])
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["premise", "hypothesis", "label", "n"], *rows])
    return path


@pytest.fixture(name="judge", scope="module")
def _judge(pairs: Path) -> Any:
    task, splits = prepare_splits("classify", pairs, {"name": "gru", "width": 24}, columns={"target": "label"})
    return fit_splits(task, splits, 100, lr=0.01), splits


def test_both_texts_and_their_order_count(judge: Any) -> None:
    judge, splits = judge
    task = judge.task
    assert task.layout.columns["input"] == "premise,hypothesis"
    assert task.evaluate(judge.network, splits["test"]).metrics["accuracy"] > 0.9
    pairs = [("it was good 1", "cold , they said"), ("it was cold 1", "good , they said")]
    assert [record["prediction"] for record in judge.call("classify", pairs)] == ["gb", "bg"]
    assert judge.call("classify", [list(pair) for pair in pairs]) == judge.call("classify", pairs)  # as from JSON
    assert judge.call("classify", ["\t".join(pair) for pair in pairs]) == judge.call("classify", pairs)
    assert len(judge.call("classify", [("", "x"), ("", "")])) == 2
    assert " ⇥ " in task.sample(task.evaluate(judge.network, splits["validation"]))
    assert "\\t" in judge.usage("run")[0].shell


def test_files_of_pairs(judge: Any, tmp_path: Path) -> None:
    judge, _ = judge
    rows = "x,cold they said,it was good 1,gb\nx,,,gg\nx,good,it was cold,bg\n"
    known = write(tmp_path / "a.csv", f"note,hypothesis,premise,label\n{rows}")
    predictions = judge.call("classify", Path(known))
    assert (len(predictions), predictions[0]["prediction"], predictions[2]["prediction"]) == (3, "gb", "bg")
    lines = write(tmp_path / "a.txt", "it was good 1\tcold they said\nit was cold\tgood\n")
    assert [record["prediction"] for record in judge.call("classify", Path(lines))] == ["gb", "bg"]
    for bad in (["it was good"], "no tab\n", ["a\tb\tc"]):
        source = bad if isinstance(bad, list) else str(write(tmp_path / "b.txt", bad))
        with pytest.raises(SeriatimError, match="two texts") as caught:
            judge.call("classify", source)
        assert caught.value.code == "data.pair"


def test_a_pair_for_a_model_of_single_texts(trained: Any) -> None:
    with pytest.raises(SeriatimError):
        read_split(trained.task, pd.DataFrame({"a": ["x"], "b": ["y"]}), {"input": "a,b"})


@pytest.mark.parametrize("names", ["sentence1,sentence2", "Sentence_A,Sentence_B", "text 1,text 2", "query,passage"])
def test_usual_names_of_two_texts(tmp_path: Path, names: str) -> None:
    path = write(tmp_path / "a.csv", f"{names},score\nx y,z,1\nu,v w,2\n")
    task, _ = prepare_splits("classify", path, columns={"target": "score"}, **NO_SPLIT)
    assert task.layout.columns["input"] == names
    assert task.processor.input.texts == 2


def test_one_empty_text_of_two_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'premise,hypothesis,y\na,b,p\n, ,q\nc,,q\n" ",d,p\n')
    diagnostics = Diagnostics()
    task, splits = prepare_splits("classify", path, diagnostics=diagnostics, **NO_SPLIT)
    assert labels_of(task, splits) == ["p", "q", "p"]
    assert "a.csv: 1 rows with an empty input are left out, the first at a.csv, line 3" in diagnostics.notes
    assert "a.csv: 2 rows have one of two texts, the first at a.csv, line 4" in diagnostics.notes


def test_an_imported_model_reads_one_text_and_two(tmp_path: Path) -> None:
    """As `transformers` does, from the texts on: tokens, special tokens, segments and probabilities."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    from seriatim.runs.exchange import import_model

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
    write(tmp_path / "vocab.txt", "\n".join(words))
    tokenizer = BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(words), num_labels=3, **sizes)).eval()
    for weight in model.parameters():
        weight.data.mul_(5)  # predictions that differ
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    run = import_model(tmp_path / "model", tmp_path / "run")
    firsts, seconds = ["A man sleeps.", "nobody is a man", ""], ["Nobody is awake.", "awake?", "a man sleeps"]
    pairs = list(zip(firsts, seconds, strict=True))
    for arguments, inputs in (((firsts, seconds), pairs), ((firsts,), firsts)):
        with torch.no_grad():
            expected = model(**tokenizer(*arguments, padding=True, return_tensors="pt")).logits.softmax(dim=-1)
        records = run.classify(inputs, probabilities=True)
        probabilities = torch.tensor([list(record["probabilities"].values()) for record in records])
        torch.testing.assert_close(probabilities, expected, atol=1e-6, rtol=0)
        assert expected.std(dim=0).min() > 1e-3
    assert run.classify(["\t".join(pair) for pair in pairs]) == run.classify(pairs)


def text_models() -> list[str]:
    settings = {name: registry.models.load(name).Settings for name in registry.models.names()}
    return [n for n, s in settings.items() if not (s.gradient_free or s.encoder_decoder or s.modality)]


@pytest.mark.parametrize("model", text_models())
def test_every_model_reads_two_texts(pairs: Path, model: str) -> None:
    """Also longer ones than it was built for, with the same prediction alone and in a batch."""
    task, splits = prepare_splits("classify", pairs, {"name": model, "width": 16}, columns={"target": "label"})
    predictor = task.predictor(task.build(splits.train))
    inputs = [("it was good 1", "cold , they said"), ("it was good " * 40, "cold , they said " * 40), ("", "cold")]
    together = predictor.call("classify", inputs, probabilities=True)
    for pair, record in zip(inputs, together, strict=True):
        (alone,) = predictor.call("classify", [pair], probabilities=True)
        assert alone["probabilities"] == pytest.approx(record["probabilities"], abs=1e-6)
    (swapped,) = predictor.call("classify", [inputs[0][::-1]], probabilities=True)
    assert swapped["probabilities"] != pytest.approx(together[0]["probabilities"], abs=1e-9)


# Numbers


def test_lists_of_numbers_in_every_form(tmp_path: Path) -> None:
    values, labels = [[1, 2.5], [3], [4, 5, 6]], ["a", "b", "a"]
    records = [{"series": row, "label": label} for row, label in zip(values, labels, strict=True)]
    spaced = "".join(f"{' '.join(map(str, record['series']))},{record['label']}\n" for record in records)
    quoted = "".join(f'"{record["series"]}",{record["label"]}\n' for record in records)
    sources = [
        write_rows(tmp_path / "a.jsonl", records),
        write(tmp_path / "b.csv", f"series,label\n{spaced}"),
        write(tmp_path / "c.csv", f"series,label\n{quoted}"),
    ]
    for path in sources:
        task, splits = prepare_splits("classify", path, columns={"input": "series"}, **NO_SPLIT)
        inputs = splits["train"].items.inputs
        assert [inputs[row][:, 0].tolist() for row in range(3)] == [[1.0, 2.5], [3.0], [4.0, 5.0, 6.0]]
        assert task.processor.input.features == ("series",)
    guessed, _ = prepare_splits("classify", sources[1], **NO_SPLIT)  # a column that nobody named is text
    assert isinstance(guessed.processor.input, TextCodec)
    as_text = {"settings": {"input_kind": "text"}, "columns": {"input": "series"}}
    named, _ = prepare_splits("classify", sources[1], **as_text, **NO_SPLIT)
    assert isinstance(named.processor.input, TextCodec)
    numbers, splits = prepare_splits("classify", sources[1], settings={"input_kind": "numbers"}, **NO_SPLIT)
    assert isinstance(numbers.processor.input, NumberCodec)
    predictor = numbers.predictor(numbers.build(splits.train))
    assert len(predictor.call("classify", ["0.5 1", "2,3", [4, 5.5]])) == 3
    with pytest.raises(SeriatimError):
        predictor.call("classify", ["one two"])


def test_columns_of_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,t1,t2,t3\na,1,2,3\nb,4,5,6\n")
    for columns in ("t1,t2,t3", "t1..t3"):
        diagnostics = Diagnostics()
        named = {"input": columns, "target": "y"}
        _, splits = prepare_splits("classify", path, columns=named, diagnostics=diagnostics, **NO_SPLIT)
        assert splits["train"].items.inputs[1][:, 0].tolist() == [4, 5, 6]
        assert "3 columns are a sequence of 3 numbers" in diagnostics.notes
    missing = write(tmp_path / "c.csv", "y,a,b\np,1,\nq,1,2\n")
    columns = {"input": "a,b", "target": "y"}
    refused("data.number", "line 2", '"b"', "missing", name="classify", data=missing, columns=columns, **NO_SPLIT)


def test_steps_of_another_width(tmp_path: Path) -> None:
    train = write_rows(tmp_path / "a.jsonl", [{"x": [[1, 2], [3, 4]], "y": "ab"[n % 2]} for n in range(20)])
    other = write_rows(tmp_path / "b.jsonl", [{"x": [[1, 2, 3]], "y": "a"}])
    refused("data.features", "b.jsonl, line 1", "3 numbers", name="classify", data=train, test=str(other))
    task, splits = prepare_splits("classify", train)
    assert task.processor.input.features == ("x.1", "x.2")
    predictor = task.predictor(task.build(splits.train))
    with pytest.raises(SeriatimError) as caught:
        predictor.call("classify", [np.zeros((4, 3))])
    assert caught.value.code == "data.features"


def test_scaling_by_the_training_split(tmp_path: Path) -> None:
    rows = [{"x": [float(n), float(n + 1)], "y": "ab"[n % 2]} for n in range(40)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    task, splits = prepare_splits("classify", path)
    standard, values = task.build(splits.train).input, splits.train.items.inputs.values
    assert float(standard.mean[0]) == pytest.approx(values.mean(), rel=1e-6)
    assert float(standard.std[0]) == pytest.approx(values.std(), rel=1e-6)
    task, splits = prepare_splits("classify", path, settings={"scaling": "none"})
    plain = task.build(splits.train).input
    assert (float(plain.mean[0]), float(plain.std[0])) == (0.0, 1.0)


# Images


def paint(kind: str, number: int, size: int = 20) -> Image.Image:
    """Returns a disc or bars at random, in a random color."""
    generator = np.random.default_rng(number)
    pixels = generator.integers(0, 50, (size, size, 3), dtype=np.uint8)
    y, x = np.mgrid[:size, :size]
    center = generator.integers(size // 3, 2 * size // 3, 2)
    disc = (y - center[0]) ** 2 + (x - center[1]) ** 2 < (size // 4) ** 2
    pixels[disc if kind == "disc" else x % 5 == number % 5] = generator.integers(120, 256, 3)
    return Image.fromarray(pixels)


@pytest.fixture(name="images", scope="module")
def _images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images") / "images"
    for number in range(60):
        kind = "disc" if number % 2 else "bars"
        (root / kind).mkdir(parents=True, exist_ok=True)
        paint(kind, number).save(root / kind / f"{number:02}.png")
    return root


@pytest.fixture(name="eye", scope="module")
def _eye(images: Path) -> Any:
    task, splits = prepare_splits("classify", images, {"name": "resnet", "width": 4})
    return fit_splits(task, splits, 40), splits


def test_images_are_learned(eye: Any) -> None:
    eye, splits = eye
    task = eye.task
    assert task.evaluate(eye.network, splits["test"]).metrics["accuracy"] >= 0.8
    assert task.processor.labels == ("bars", "disc")
    assert 0.05 < float(eye.network.input.mean[0]) < 0.6
    assert task.prefetch
    codec = task.processor.input
    assert isinstance(codec, ImageCodec)
    assert (codec.layout.shape, codec.margin, codec.flip) == ((3, 20, 20), 2, True)
    assert len(task.sample_split(splits["train"], 1000).items) == 10  # 100 elements for an image
    assert len(eye.element_names(splits["test"].items, 0)) == np.prod(eye.network.input.grid)


def test_predictions_for_files_arrays_and_folders(eye: Any, images: Path, tmp_path: Path) -> None:
    eye, _ = eye
    paths = [str(path) for path in sorted(images.rglob("*.png"))[::7]]
    together = eye.call("classify", paths)
    assert together[0]["image"] == paths[0]
    for path, record in zip(paths, together, strict=True):
        (alone,) = eye.call("classify", [path])
        assert alone["confidence"] == pytest.approx(record["confidence"], abs=1e-5)
    arrays = eye.call("classify", [np.asarray(Image.open(path)) for path in paths])
    assert [record["confidence"] for record in arrays] == [record["confidence"] for record in together]
    assert len(eye.call("classify", Path(images / "disc"))) == 30
    assert len(eye.call("classify", paths[0])) == 1
    table = write(tmp_path / "new.csv", f"file\n{paths[0]}\n")
    assert eye.call("classify", Path(table))[0]["confidence"] == pytest.approx(together[0]["confidence"], abs=1e-5)
    paint("disc", 7, 200).save(tmp_path / "large.jpg")
    Image.new("LA", (1, 1)).save(tmp_path / "dot.png")
    assert (
        len(eye.call("classify", [str(tmp_path / "large.jpg"), tmp_path / "dot.png", np.zeros((5, 9), np.uint8)])) == 3
    )
    (tmp_path / "bad.png").write_bytes(b"bad")
    with pytest.raises(SeriatimError, match=r"2 problems[\s\S]*bad\.png[\s\S]*none\.png"):
        eye.call("classify", [str(tmp_path / "bad.png"), str(tmp_path / "none.png"), str(tmp_path / "dot.png")])
    for bad in (["a fine film"], [np.zeros((4, 4))]):
        with pytest.raises(SeriatimError):
            eye.call("classify", bad)


def test_augmentation_is_a_function_of_the_step(eye: Any) -> None:
    eye, splits = eye
    objective = TaskObjective.of(eye.task, splits)
    whole = objective.batch(3, 0, 8, 8)
    halves = [objective.batch(3, first, first + 4, 8) for first in (0, 4)]
    assert torch.equal(whole.inputs, torch.cat([half.inputs for half in halves]))
    assert not torch.equal(whole.inputs, objective.batch(4, 0, 8, 8).inputs)
    assert torch.equal(whole.inputs, objective.batch(3, 0, 8, 8).inputs)


def test_the_report_shows_wrongly_classified_images(images: Path) -> None:
    task, splits = prepare_splits("classify", images, {"name": "vit", "width": 8, "heads": 2, "layers": 1})
    views = task.views(task.evaluate(task.build(splits.train), splits["test"]))
    errors = next(view for view in views if view.title == "Most confident errors")
    assert isinstance(errors.rows[0][1], ChartImage)


def test_broken_images_are_reported_or_left_out(tmp_path: Path) -> None:
    for number in range(24):
        (tmp_path / "set" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        paint("disc", number).save(tmp_path / "set" / "ab"[number % 2] / f"{number:02}.png")
    whole = (tmp_path / "set/a/02.png").read_bytes()
    (tmp_path / "set/a/02.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "set/b/05.png").write_bytes(b"")
    refused(
        "image.broken",
        "2 problems",
        "set/a/02.png",
        "set/b/05.png",
        "broken=skip",
        name="classify",
        data=tmp_path / "set",
    )
    diagnostics = Diagnostics()
    skip = {"images": {"broken": "skip"}}
    task, splits = prepare_splits("classify", tmp_path / "set", settings=skip, diagnostics=diagnostics)
    assert sum(len(split.items) for split in splits.parts.values()) == 22
    assert any("images are left out" in note for note in diagnostics.notes)
    assert TaskObjective.of(task, splits).batch(0, 0, 4, 4).inputs.shape == (4, 3, 20, 20)


def test_tables_of_paths(images: Path, tmp_path: Path) -> None:
    rows = [f"{path.parent.name}/{path.name},{path.parent.name}" for path in sorted(images.rglob("*.png"))]
    table = write(images.parent / "labels.csv", "\n".join(["path,kind", *(f"images/{row}" for row in rows)]) + "\n")
    task, _ = prepare_splits("classify", table, columns={"target": "kind"})
    assert task.layout.kinds["input"] is IMAGE
    assert task.layout.columns["input"] == "path"
    columns = {"input": "path", "target": "kind"}
    text, _ = prepare_splits("classify", table, settings={"input_kind": "text"}, columns=columns)
    assert isinstance(text.processor.input, TextCodec)
    missing = write(
        images.parent / "missing.csv",
        "path,kind\n" + "".join(f"images/{row}\n" for row in rows) + "images/x.png,disc\n",
    )
    refused("image.missing", "missing.csv, line 62", "x.png", name="classify", data=missing, columns={"target": "kind"})


def test_models_that_do_not_fit_the_input(images: Path, films: pd.DataFrame) -> None:
    for data in (films, pd.DataFrame({"x": [[1.0, 2.0]] * 20, "label": ["a", "b"] * 10})):
        with pytest.raises(SeriatimError) as caught:
            prepare_splits("classify", data, {"name": "resnet", "width": 4})
        assert caught.value.code in ("task.images", "data.column")
    refused("task.images", "context-length", name="classify", data=images, settings={"context_length": 5})
    numbers = pd.DataFrame({"x": [[1.0, 2.0]] * 20, "label": ["a", "b"] * 10})
    task, splits = prepare_splits("classify", numbers, "nadaraya_watson")
    with pytest.raises(SeriatimError) as caught:
        task.fit(task.config.model, splits.train, Diagnostics())
    assert caught.value.code == "task.model"


def test_batches_are_on_the_device_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """In evaluation and prediction, too: a network that was trained on a GPU is still there."""
    rows = [{"text": f"{word} film {n}", "label": word} for n in range(10) for word in ("fine", "dull")]
    task, splits = prepare_splits("classify", rows)
    network, moved = task.build(splits.train), []
    move = Batch.to
    monkeypatch.setattr(Batch, "to", lambda batch, device: (moved.append(device), move(batch, device))[1])
    task.evaluate(network, splits["validation"])
    task.predictor(network).scores(splits["test"].items)
    assert moved == [torch.device("cpu")] * 2


def test_integer_labels_in_memory_come_back_as_integers() -> None:
    model = {"name": "rnn", "width": 4}
    frame = pd.DataFrame({"text": ["a good film", "a bad film"] * 12, "label": [10, 9] * 12})
    task, splits = prepare_splits("classify", frame, model)
    predictor = task.predictor(task.build(splits.train))
    assert task.processor.labels == ("9", "10")
    records = predictor.call("classify", ["a good film"], probabilities=True)
    assert type(records[0]["prediction"]) is int
    assert set(records[0]["probabilities"]) == {"9", "10"}
    assert read_split(task, frame).items.labels.tolist() == [1, 0] * 12
    as_text, splits = prepare_splits("classify", frame.astype(str), model)
    prediction = as_text.predictor(as_text.build(splits.train)).call("classify", ["a good film"])[0]["prediction"]
    assert prediction == str(records[0]["prediction"])


def test_rows_with_empty_inputs_are_left_out_of_training_and_evaluation(tmp_path: Path) -> None:
    rows = "".join(f"{word} film {n},{word}\n" for n in range(20) for word in ("good", "bad"))
    (tmp_path / "a.csv").write_text(f"text,label\n{rows},good\n  ,bad\n", encoding="utf-8")
    (tmp_path / "empty.csv").write_text("text,label\n,good\n", encoding="utf-8")
    notes: list[str] = []
    run = api.train("classify", data=str(tmp_path / "a.csv"), steps=1, out=tmp_path / "run", report=False)
    metrics = run.evaluate(tmp_path / "a.csv", notify=notes.append)
    assert metrics["examples"] == 40
    expected = "a.csv: 2 rows with an empty input are left out, the first at a.csv, line 42"
    assert expected in notes
    assert expected in json.loads((tmp_path / "run" / "data.json").read_text(encoding="utf-8"))["notes"]
    with pytest.raises(SeriatimError, match=r"empty\.csv has no rows with an input"):
        run.evaluate(tmp_path / "empty.csv")
