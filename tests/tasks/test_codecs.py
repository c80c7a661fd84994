"""Codecs: texts as `transformers` frames them, pairs, truncation, tokenizers by model and data."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.core import registry
from seriatim.core.config import validate
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.dataset import Column, Dataset
from seriatim.data.kinds import KINDS, MOST_SPECIFIC_FIRST, NUMBER, NUMBERS, TEXT, Kind
from seriatim.data.settings import DataSettings
from seriatim.data.stream import Location
from seriatim.data.tokenizers import BERT_SPECIAL_TOKENS, Tokenizer, TokenizerSettings
from seriatim.tasks.codecs import CODECS, NumberCodec, SequenceSettings, TextCodec
from seriatim.tasks.inputs import INPUT_KINDS, MODALITIES
from seriatim.tasks.processor import Stored, from_dict
from seriatim.tasks.spec import TaskConfig

WORDS = ["the", "old", "man", "read", "books", "and", "the", "new", "dog", "bit", "the", "old", "hat"]
TEXTS = ["The old man read books", "books", "Äpfel! und mehr", "the dog bit", "a hat , a man", "new new old"]


def dataset(kind: Kind, *columns: list[Any]) -> Dataset:
    locations = np.empty(len(columns[0]), object)
    locations[:] = [Location("data.csv", row + 2) for row in range(len(columns[0]))]
    values = tuple(
        Column(f"c{number}", kind, kind.store([kind.parse(cell) for cell in column]))
        for number, column in enumerate(columns)
    )
    return Dataset("data.csv", {"input": values}, locations)


def model_settings(name: str, **values: Any) -> Any:
    settings_class = registry.models.load(name).Settings
    size = {"heads": 2, "layers": 1} if name in ("bert", "gpt") else {}
    return validate(settings_class, {"name": name, "width": 8, **size, **values})


def config(model: Any = None, **settings: Any) -> TaskConfig:
    task = validate(SequenceSettings, settings)
    return TaskConfig(task=task, data=DataSettings(source="data.csv"), model=model or model_settings("lstm"))


def fit_texts(rows: Dataset, model: Any = None, tokenizer: Tokenizer | None = None, **settings: Any) -> Any:
    diagnostics = Diagnostics()
    pretrained = {} if tokenizer is None else {"tokenizer": tokenizer}
    codec = TextCodec.fit(rows, "input", config(model, **settings), pretrained, diagnostics)
    return codec, diagnostics.notes


@pytest.fixture(name="tokenizer", scope="module")
def _tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=90), [f"{text}\n" for text in TEXTS * 3])


@pytest.fixture(name="peer", scope="module")
def _peer(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("peer") / "tokenizer.json"
    tokenizer.save(path)
    names = dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), BERT_SPECIAL_TOKENS, strict=True)
    )
    return PreTrainedTokenizerFast(tokenizer_file=str(path), **names)


def test_texts_and_pairs_as_transformers_frames_them(tokenizer: Tokenizer, peer: Any) -> None:
    codec = TextCodec(tokenizer, 1)
    rows = codec.encode(dataset(TEXT, ["", *TEXTS]), "input")
    assert [rows[row].tolist() for row in range(len(rows))] == peer(["", *TEXTS])["input_ids"]
    firsts = [text for text in TEXTS[:5] for _ in range(5)]
    seconds = TEXTS[:5] * 5
    segments = model_settings("bert").token_input(tokenizer.vocab_size, tokenizer.sep)
    for limit in (None, 5, 8):
        encoded = replace(codec, max_length=limit).encode(dataset(TEXT, firsts, seconds), "input")
        truncation = {"truncation": limit is not None, "max_length": limit}
        expected = peer(firsts, seconds, **truncation, return_token_type_ids=True)
        assert [encoded[row].tolist() for row in range(len(encoded))] == expected["input_ids"]
        for row, types in enumerate(expected["token_type_ids"]):
            assert segments.segments_of(torch.from_numpy(encoded[row])[None])[0].tolist() == types


def test_pairs_by_words() -> None:
    rows = dataset(TEXT, ["a b", "", "c"], ["c", "", "a a a"])
    diagnostics = Diagnostics()
    codec = TextCodec.fit(rows, "input", config(tokenizer={"kind": "word"}, context_length=4), {}, diagnostics)
    a, b, c = (codec.tokenizer.names.index(name) for name in "abc")
    encoded = codec.encode(rows, "input")
    assert [encoded[row].tolist() for row in range(3)] == [[a, b, 1, c], [1], [c, 1, a, a]]
    assert codec.texts == 2
    assert diagnostics.notes[1:] == ["1 of 3 training sequences are truncated to 4 elements"]


def test_one_text_is_not_two(tokenizer: Tokenizer) -> None:
    single, pair = dataset(TEXT, ["a"]), dataset(TEXT, ["a"], ["b"])
    for texts, wrong in ((1, pair), (2, single)):
        with pytest.raises(SeriatimError, match="the model was trained on") as caught:
            TextCodec(tokenizer, 1, texts=texts).encode(wrong, "input")
        assert caught.value.code == "data.pair"
    either = TextCodec(tokenizer, 1)
    assert len(either.encode(single, "input")) == len(either.encode(pair, "input")) == 1
    with pytest.raises(SeriatimError, match="3 columns of text") as caught:
        fit_texts(dataset(TEXT, ["a"], ["b"], ["c"]))
    assert caught.value.code == "data.column"


def test_limits_of_settings_and_models(tokenizer: Tokenizer) -> None:
    rows = dataset(TEXT, [" ".join(WORDS * 3), "books"])
    for name in ("bert", "gpt"):
        codec, notes = fit_texts(rows, model_settings(name, context_length=9), tokenizer)
        encoded = codec.encode(rows, "input")
        assert (codec.max_length, codec.longest, encoded.lengths.tolist()) == (9, 9, [9, 3])
        assert encoded[0][[0, -1]].tolist() == [tokenizer.cls, tokenizer.sep]
        assert notes == ["1 of 2 training sequences are truncated to 9 elements"]
    built_for_the_data, _ = fit_texts(rows, model_settings("gpt"), tokenizer)
    assert built_for_the_data.max_length == built_for_the_data.longest
    longer = dataset(TEXT, [" ".join(WORDS * 9)])
    assert built_for_the_data.encode(longer, "input")[0][-1] == tokenizer.sep
    assert fit_texts(rows, model_settings("lstm"), tokenizer)[0].max_length is None
    with pytest.raises(SeriatimError, match="1 tokens have no room for the 2 special tokens"):
        fit_texts(rows, model_settings("lstm"), tokenizer, context_length=1)


def test_tokenizer_by_data_and_model() -> None:
    rows = dataset(TEXT, TEXTS)
    assert fit_texts(rows)[0].tokenizer.kind == "word"
    assert fit_texts(rows, model_settings("bert"))[0].tokenizer.kind == "bert"
    assert fit_texts(dataset(TEXT, ["emma", "olivia", "ava"]))[0].tokenizer.kind == "char"
    size_alone = validate(SequenceSettings, {"tokenizer": {"vocab_size": 500}}).tokenizer
    assert size_alone is not None
    assert (size_alone.kind, size_alone.vocab_size, size_alone.lowercase) == ("word", 500, True)


def test_words_of_neighboring_texts_stay_apart() -> None:
    codec, _ = fit_texts(dataset(TEXT, ["one two", "three four"] * 3))
    assert "twothree" not in codec.tokenizer.names


def test_numbers_of_lists_and_columns() -> None:
    lists = dataset(NUMBERS, ["[[1, 2], [3, 4]]", [[5.0, 6.0]], np.array([[7, 8]]), ""])
    codec = NumberCodec.fit(lists, "input", config(), {}, Diagnostics())
    encoded = codec.encode(lists, "input")
    assert encoded.values.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert encoded.lengths.tolist() == [2, 1, 1, 0]
    assert codec.features == ("c0.1", "c0.2")
    assert codec.encode(dataset(NUMBERS, [""]), "input").values.shape == (0, 2)
    with pytest.raises(SeriatimError, match=r"data\.csv, line 2: a step has 3 numbers, the model has 2"):
        codec.encode(dataset(NUMBERS, [[[1, 2, 3]]]), "input")
    columns = dataset(NUMBER, [1, 2], [3, 4])
    by_columns = NumberCodec.fit(columns, "input", config(), {}, Diagnostics())
    assert by_columns.encode(columns, "input")[1][:, 0].tolist() == [2, 4]
    assert by_columns.features == ("value",)
    both = by_columns.encode(dataset(NUMBERS, ["0.5 1", "2,3"]), "input")  # the same as lists
    assert both.values.ravel().tolist() == [0.5, 1, 2, 3]
    with pytest.raises(SeriatimError, match=r"c1.*missing"):
        by_columns.encode(dataset(NUMBER, [1], [""]), "input")


def test_numbers_are_truncated() -> None:
    rows = dataset(NUMBERS, [[1, 2, 3, 4], [5]])
    diagnostics = Diagnostics()
    codec = NumberCodec.fit(rows, "input", config(context_length=2), {}, diagnostics)
    assert codec.encode(rows, "input").values.ravel().tolist() == [1, 2, 5]
    assert diagnostics.notes == ["1 of 2 training sequences are truncated to 2 elements"]
    assert codec.mean[0] == pytest.approx(8 / 3)


def test_codecs_are_stored(tokenizer: Tokenizer, tmp_path: Path) -> None:
    codec = TextCodec(tokenizer, 5, 9, 2)
    values, tokenizers = codec.to_dict()
    for name, stored in tokenizers.items():
        stored.save(tmp_path / name)
    restored = from_dict(json.loads(json.dumps(values)), tmp_path)
    assert (restored.longest, restored.max_length, restored.texts) == (5, 9, 2)
    assert restored.tokenizer.to_json() == tokenizer.to_json()
    numbers = NumberCodec(("a", "b"), (1.0, 2.0), (0.5, 1.5), 7)
    assert from_dict(json.loads(json.dumps(numbers.to_dict()[0])), tmp_path) == numbers


# A modality of a user's own, in one file

DNA = Path(__file__).parents[1] / "plugins" / "dna.py"


@pytest.fixture(name="own_modality")
def _own_modality() -> Iterator[None]:
    """Takes back what a plug-in registers: later tests read DNA as text."""
    yield
    kind, codec = KINDS.pop("DNA"), Stored.classes.pop("DnaCodec")
    del MODALITIES["dna"]
    for registered in [key for key, value in CODECS.items() if value is codec]:
        del CODECS[registered]
    for order in (INPUT_KINDS, MOST_SPECIFIC_FIRST):
        order.remove(kind)
    classes = [SequenceSettings]
    for cls in classes:
        classes += cls.__subclasses__()
        del cls.model_fields["dna"]
        cls.__annotations__.pop("dna", None)
        cls.model_rebuild(force=True)
    sys.modules.pop("plugin_dna", None)


@pytest.mark.usefixtures("own_modality")
def test_a_plugin_adds_a_modality(tmp_path: Path) -> None:
    """Trained, stored, opened, evaluated, asked and inspected as any other, without an edit of a shared file."""
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("ACGT"), int(random.integers(6, 14)))) for _ in range(120)]
    lines = [f"{text},{'rich' if text.count('G') + text.count('C') > len(text) / 2 else 'poor'}" for text in texts]
    (tmp_path / "genes.csv").write_text("\n".join(["sequence,label", *lines]) + "\n", encoding="utf-8")
    small = {"model": {"width": 8}}
    train = {"report": False, "plugin": DNA}
    run = seriatim.train(
        "classify", tmp_path / "genes.csv", "gru", settings=small, steps=60, out=tmp_path / "run", **train
    )
    stored = json.loads((tmp_path / "run" / "data.json").read_text(encoding="utf-8"))
    assert stored["processor"]["input"]["type"] == "DnaCodec"
    opened = seriatim.load(tmp_path / "run")
    records = opened.classify(["GCGCGGCC", "ATATTAAT"], probabilities=True)
    assert records == run.classify(["GCGCGGCC", "ATATTAAT"], probabilities=True)
    assert [record["prediction"] for record in records] == ["rich", "poor"]
    assert opened.evaluate(tmp_path / "genes.csv")["accuracy"] > 0.7
    assert list(opened.predictor.capabilities) == ["classify"]  # embeddings are for text
    assert opened.predictor.model_input(["GATTACA"]).sequences == [{"element": list("GATTACA")}]
    assert opened.predictor.usage("run")[0].shell == "seriatim classify run ACGT"
    rows = [f"{text},{text.count('G')}" for text in texts]
    (tmp_path / "guanine.csv").write_text("\n".join(["sequence,count", *rows]) + "\n", encoding="utf-8")
    settings = {"task": {"input_kind": "dna", "dna": {"opposite": True}}, "model": {"width": 8}}
    columns = {"column": "sequence", "target": "count"}
    other = seriatim.train(
        "regress",
        tmp_path / "guanine.csv",
        "tcn",
        settings=settings,
        steps=2,
        out=tmp_path / "other",
        **columns,
        **train,
    )
    assert len(other.regress(["ACGT"])) == 1
    assert other.predictor.model_input(["ACGT"]).sequences == [{"element": list("TGCA")}]
    assert other.settings["task"]["dna"] == {"opposite": True}
    assert run.settings["task"]["dna"] == {"opposite": False}
    with pytest.raises(SeriatimError, match=r"dna\.oposite: unknown setting"):
        validate(SequenceSettings, {"dna": {"oposite": True}})
    with pytest.raises(SeriatimError) as caught:
        seriatim.train("classify", tmp_path / "genes.csv", "resnet", steps=1, out=tmp_path / "third")
    assert caught.value.code == "data.column"  # it reads images only


def test_an_input_kind_that_no_codec_has() -> None:
    with pytest.raises(SeriatimError, match="'auto', 'text', 'numbers' or 'image'") as caught:
        validate(SequenceSettings, {"input_kind": "smell"})
    assert caught.value.code == "config.invalid"
    assert SequenceSettings.model_json_schema()["properties"]["input_kind"]["enum"] == [
        "auto", "text", "numbers", "image",
    ]  # fmt: skip


def test_nobody_asks_what_kind_of_codec_it_is() -> None:
    """What differs between modalities is a method of `InputCodec`."""
    codecs = {"InputCodec", "SequenceCodec", *(codec.__name__ for codec in CODECS.values())}
    for file in Path(seriatim.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                assert not codecs & names, f"{file.name}, line {node.lineno}"
