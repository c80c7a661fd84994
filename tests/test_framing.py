"""Texts and words between [CLS] and [SEP]: as `transformers` gives them to BERT, whole, cut, alone or in company."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import seriatim
from seriatim import api
from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data.sequences import Examples, Parts
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.nn.characters import WordInput
from seriatim.tasks._coder import Coder, learn_coder
from seriatim.tasks._tagger import Tagger, tagging
from seriatim.tasks._words import WordCoder

SENTENCE = "the students opened their books, didn't they? unbelievably naïve Äpfel cost 42 pounds"
WORDS = SENTENCE.split()
TEXTS = [" ".join(WORDS[start : start + length]) for start in range(6) for length in (1, 4, 7)]
LABELLED = ["good" if "books," in text else "bad" for text in TEXTS]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="bert", size=90, lowercase=True), [f"{one}\n" for one in TEXTS])


@pytest.fixture(scope="module")
def peer(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("peer") / "tokenizer.json"
    tokenizer.save(file)
    names = {f"{use}_token": f"[{use.upper()}]" for use in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **names)


def model_of(name: str, **settings: Any) -> Any:
    return registry.models.load(name).Settings(name=name, **({"width": 8} | settings))


def parts_of(inputs: list[Any]) -> Parts:
    return Parts(Examples(inputs, ["a"] * len(inputs)))


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_texts_as_transformers_gives_them_to_bert(tokenizer: Tokenizer, peer: Any) -> None:
    coder = Coder("text", 1, tokenizer=tokenizer)
    rows = coder.encode(["", *TEXTS])
    assert [row.tolist() for row in map(rows.__getitem__, range(len(rows)))] == peer(["", *TEXTS])["input_ids"]
    pairs = [(one, other) for one in TEXTS[:5] for other in TEXTS[:5]]
    for limit in (None, 5, 8):
        found = replace(coder, pairs=True, limit=limit).encode(pairs)
        cut = {"truncation": limit is not None, "max_length": limit}
        wanted = peer(*zip(*pairs, strict=True), **cut, return_token_type_ids=True)
        assert [found[row].tolist() for row in range(len(found))] == wanted["input_ids"]
        segments = model_of("bert", heads=2, layers=1).token_input(tokenizer.size, tokenizer.sep)
        for row, types in enumerate(wanted["token_type_ids"]):
            assert segments.segments_of(torch.from_numpy(found[row])[None])[0].tolist() == types


def test_pairs_of_every_tokenizer() -> None:
    told: list[str] = []
    pairs = [("a b", "c"), ("", ""), ("c", "a a a")]
    coder = learn_coder(parts_of(pairs), TokenizerSettings(kind="word"), 4, told.append, model_of("lstm"))
    a, b, c = (coder.tokenizer.names.index(name) for name in "abc")
    rows = coder.encode(pairs)
    assert [rows[row].tolist() for row in range(3)] == [[a, b, 1, c], [1], [c, 1, a, a]]
    assert coder.pairs
    assert coder.encode([["a", "b"]])[0].tolist() == [a, 1, b]  # as JSON has it
    assert told[1:] == ["1 sequences are longer than 4 and lose what stands behind"]


def test_one_text_is_not_two(tokenizer: Tokenizer) -> None:
    single = Coder("text", 1, tokenizer=tokenizer)
    pairs, either = replace(single, pairs=True), replace(single, pairs=None)
    for coder, wrong, cause in (
        (single, ["a text", ("one", "two")], "input 2 is .*, a pair of texts, where the model knows single ones"),
        (single, [7], "input 1 is 7, no text"),
        (pairs, [("one", "two"), "one"], 'input 2 is "one", no pair of texts'),
        (pairs, [("one", 2)], "input 1 is .*, no pair of texts"),
        (either, [("one", "two", "three")], "input 1 is .*, no text"),
    ):
        with pytest.raises(SeriatimError, match=cause) as caught:
            coder.encode(wrong)
        assert caught.value.code == "predict.input"
    assert len(either.encode(["one", ("one", "two")])) == 2


def test_longer_than_the_model_takes(tokenizer: Tokenizer) -> None:
    long = [" ".join(WORDS * 3), "books"]
    for name, context in (("bert", 9), ("gpt", 9)):
        told: list[str] = []
        model = model_of(name, heads=2, layers=1, context=context)
        coder = learn_coder(parts_of(long), None, None, told.append, model, tokenizer)
        rows = coder.encode(long)
        assert (coder.limit, coder.longest, rows.lengths.tolist()) == (9, 9, [9, 3])
        assert rows[0][[0, -1]].tolist() == [tokenizer.cls, tokenizer.sep]
        assert told == ["1 sequences are longer than 9 and lose what stands behind"]
    free = learn_coder(parts_of(long), None, None, told.append, model_of("gpt", heads=2, layers=1), tokenizer)
    assert free.limit == free.longest  # it is made for these, and a longer one keeps its end
    assert free.encode([" ".join(WORDS * 9)])[0][-1] == tokenizer.sep
    assert learn_coder(parts_of(long), None, None, told.append, model_of("lstm"), tokenizer).limit is None
    with pytest.raises(SeriatimError, match="1 elements have no room for the 2 that stand around a text"):
        learn_coder(parts_of(long), None, 1, told.append, model_of("lstm"), tokenizer)


def test_the_tokens_that_suit_a_model() -> None:
    told: list[str] = []
    made = {name: learn_coder(parts_of(TEXTS), None, None, told.append, model_of(name)) for name in ("lstm", "bert")}
    assert {name: coder.tokenizer.kind for name, coder in made.items()} == {"lstm": "word", "bert": "bert"}
    assert "Äpfel" not in made["bert"].tokenizer.names
    for model, kind in (("bert", "bert"), ("lstm", "word")):
        config = api.configure("classify", "reviews.csv", model, {"data": {"tokenizer": {"size": 500}}})
        assert (config.data.tokenizer.kind, config.data.tokenizer.size) == (kind, 500)


def test_what_a_run_kept_before_there_were_pairs(tokenizer: Tokenizer, tmp_path: Path) -> None:
    Coder("text", 5, ("a", "b"), tokenizer=tokenizer, pairs=True).save(tmp_path)
    assert Coder.load(tmp_path).pairs is True
    values = json.loads((tmp_path / "data.json").read_text())
    del values["pairs"]
    (tmp_path / "data.json").write_text(json.dumps(values))
    assert Coder.load(tmp_path).pairs is False


@pytest.mark.parametrize("model", ["lstm", "bert"])
def test_a_classifier_from_a_table_to_answers(model: str, tmp_path: Path) -> None:
    with open(tmp_path / "texts.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *zip(TEXTS * 3, LABELLED * 3, strict=True)])
    settings = {
        "data": {"tokenizer": {"kind": "bert", "size": 80}},
        "model": {"name": model, "width": 8},
        "train": {"steps": 3, "batch": 4},
    }
    run = seriatim.train("classify", str(tmp_path / "texts.csv"), settings=settings, out=tmp_path / "run")
    assert run.predictor.coder.tokenizer.framed
    together = seriatim.load(tmp_path / "run").predict(TEXTS)
    alone = [run.predict([text])[0] for text in TEXTS]
    for one, other in zip(together, alone, strict=True):
        assert one["prediction"] == other["prediction"]
        assert one["confidence"] == pytest.approx(other["confidence"], rel=1e-5)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def tagged(folder: Path) -> Path:
    sentences = [text.split() for text in TEXTS]
    lines = [[f"{word}\t{'LONG' if len(word) > 4 else 'SHORT'}" for word in words] + [""] for words in sentences]
    (folder / "tagged.conll").write_text("\n".join(line for some in lines * 4 for line in some), encoding="utf-8")
    return folder / "tagged.conll"


def prepared(folder: Path, model: dict[str, Any], tokenizer: Tokenizer | None = None, **task: Any) -> tuple[Any, Any]:
    values = {"task": {"name": "tag", **task}, "data": {"source": str(tagged(folder))}, "model": {"width": 8, **model}}
    config = api.make_config(values)
    made = registry.tasks.load("tag").prepare(config, tokenizer=tokenizer)
    network = made.build(config.model).double()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made, network.eval()


def test_words_as_transformers_pieces_them(tokenizer: Tokenizer, peer: Any) -> None:
    sentences = [text.split() for text in TEXTS] + [[], ["\u200b", "books"], ["Äpfel", "[MASK]", "我想"]]
    part = WordCoder("words", ("A", "B"), tokenizer=tokenizer).encode(sentences)
    word = 0
    for row, words in enumerate(sentences):
        wanted = peer(words, is_split_into_words=True)
        ids, owners = wanted["input_ids"], [None, *wanted.word_ids()]
        first = [now for before, now in pairwise(owners) if now is not None and now != before]
        where = part.where[part.inputs.starts[row] : part.inputs.ends[row]]
        if "\u200b" in words:  # a word of nothing is a word all the same
            ids.insert(1, tokenizer.unk)
            first = [0, 1]
        assert part.inputs[row].tolist() == ids
        assert (where[where >= 0] - word).tolist() == first == list(range(len(words)))
        word += len(words)


@pytest.mark.parametrize("model", [{"name": "lstm"}, {"name": "bert", "heads": 2}, {"name": "gpt", "heads": 2}])
def test_neighbours_padding_and_windows(model: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path) -> None:
    for length in (None, 6):
        task, network = prepared(tmp_path, model, tokenizer, length=length)
        part = task.parts["valid"]
        assert isinstance(network.input, torch.nn.Embedding)
        assert not isinstance(network.input, WordInput)
        assert length is None or part.inputs.lengths.max() == length
        assert all(part.inputs[row][[0, -1]].tolist() == [tokenizer.cls, tokenizer.sep] for row in range(len(part)))
        together = tagging(network, part, np.arange(len(part)))
        alone = [tagging(network, part, np.array([row])) for row in range(len(part))]
        order = np.argsort(np.concatenate([one.words for one in alone]))
        assert np.array_equal(together.words, np.arange(len(part.forms)))
        np.testing.assert_allclose(together.loss, np.concatenate([one.loss for one in alone])[order], rtol=1e-9)
        batch = task.batch(0, 0, 4, 4)
        assert batch.count == int((batch.targets >= 0).sum())


def test_each_window_says_what_it_says_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A word of a long sentence is answered from a window that is framed like a sentence of its own."""
    task, network = prepared(tmp_path, {"name": "bert", "heads": 2, "context": 8}, tokenizer)
    coder = task.coder
    assert (coder.window, coder.longest) == (8, 8)
    part = coder.encode([["books"] * 20])
    said = tagging(network, part, np.arange(len(part)))
    assert len(said.words) == 20
    assert len(part) > 1
    framed = tokenizer.frame(np.concatenate([tokenizer.encode("books")] * 6))
    assert all(part.inputs[row].tolist() == framed.tolist() for row in range(len(part)))
    scores = network(torch.from_numpy(framed)[None])[0].softmax(dim=-1)[0, 1:-1].amax(dim=-1)
    assert set(said.sure.round(9).tolist()) <= set(scores.detach().numpy().round(9).tolist())


def test_a_tagger_from_a_file_to_answers(tmp_path: Path) -> None:
    settings = {"model": {"name": "bert", "width": 8, "heads": 2}, "train": {"steps": 3, "batch": 4}}
    run = seriatim.train("tag", str(tagged(tmp_path)), settings=settings, out=tmp_path / "run")
    assert run.predictor.coder.tokenizer.kind == "bert"
    measured = seriatim.evaluate(tmp_path / "run")
    assert measured["loss"] == pytest.approx(run.summary["measures"]["test"]["loss"], rel=1e-6)
    answer = seriatim.load(tmp_path / "run").predict([["unbelievably", "naïve"], "The books."])
    assert [len(one["prediction"]) for one in answer] == [2, 3]
    assert isinstance(run.predictor, Tagger)


def test_what_does_not_go_with_pieces(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match="no features of a word's spelling"):
        prepared(tmp_path, {"name": "lstm"}, tokenizer, characters=8)
    with pytest.raises(SeriatimError, match="a window of 2 has no room"):
        prepared(tmp_path, {"name": "lstm"}, tokenizer, length=2)
    task, network = prepared(tmp_path, {"name": "bert", "heads": 2}, characters=8)  # so words are what is wanted
    assert task.coder.tokenizer.kind == "word"
    assert isinstance(network.input, WordInput)


def test_sentences_are_learnt_apart(tmp_path: Path) -> None:
    """The last word of a sentence and the first of the next were once learnt as one."""
    task, _ = prepared(tmp_path, {"name": "lstm"})
    assert {"the", "books,", "they?"} <= set(task.coder.tokenizer.names)
    written = {word.lower() for text in TEXTS for word in text.split()}
    assert set(task.coder.tokenizer.names) <= written | {"<unk>", "<eos>"}
