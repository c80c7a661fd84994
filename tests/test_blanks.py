"""Words by what stands between blanks: the same ids and the same vocabulary as by stretches and by the package."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, trainers

from seriatim.core.errors import SeriatimError
from seriatim.data import blanks, corpus, learning, vocabulary
from seriatim.data.corpus import Corpus, prepare
from seriatim.data.learning import TRAIN_WORD, count_words, learn
from seriatim.data.pieces import LIMIT
from seriatim.data.text import TextSettings
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings

ODD = ["the", "The", "it's", "<unk>", "<eos>", "word<unk>", "é", "Σ", ".", " ", "  ", "\n", "\t", "\u00a0", "\u2028"]
ODD += ["\x0b", "\x85", "\x1c", "[SEP]", "\u4e00", "a" * 100, "b" * 300, " " * 200]
TEXTS = st.lists(st.lists(st.sampled_from(ODD), max_size=30).map("".join), min_size=1, max_size=4)
LEARNT = "the word The it's . é Σ\n" * 20
MADE = [
    Tokenizer.train(TokenizerSettings(kind=kind, size=60, punctuation=punctuation, lowercase=lowercase), [LEARNT])
    for kind in ("word", "wordpiece", "bert")
    for punctuation in (True, False)
    for lowercase in (True, False)
]


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_ids_are_those_of_the_package(texts: list[str]) -> None:
    for tokenizer in MADE:
        with mock.patch.object(blanks, "LEAST", 1):
            found = tokenizer.encode_many(texts, strict=False)
        wanted = [tokenizer.backend.encode(text, add_special_tokens=False).ids for text in texts]
        assert [ids.tolist() for ids in found] == wanted


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.booleans(), st.booleans(), st.integers(1, 3))
def test_the_vocabulary_is_that_of_the_packages_trainer(texts, punctuation, lowercase, least) -> None:
    config = TokenizerSettings(kind="word", size=12, punctuation=punctuation, lowercase=lowercase, min_count=least)
    learner = vocabulary._words_apart(tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>")), config, lines=False)
    trainer = trainers.WordLevelTrainer(vocab_size=12, min_frequency=least, show_progress=False, special_tokens=[])
    learn(learner, trainer, texts)
    words = sorted(learner.get_vocab(), key=learner.get_vocab().__getitem__)
    with mock.patch.object(blanks, "LEAST", 1):
        made = Tokenizer.train(config, texts)
    assert made.names == ["<unk>", "<eos>", *words][:12]


def test_words_are_counted_over_many_pieces() -> None:
    splitter = vocabulary._words_apart(
        tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>")), TokenizerSettings(kind="word"), lines=False
    )
    long = "x" * (2 * TRAIN_WORD - 1)  # cut in two with the line end before it, by way of stretches
    found = count_words(splitter, ["one two\n"] * 200_000 + [f"{long} one."])
    cut = {"x" * (TRAIN_WORD - 1): 1, "x" * TRAIN_WORD: 1}
    assert found == {"one": 200_001, "two": 200_000, ".": 1, **cut}


@pytest.mark.parametrize(
    "text",
    [
        "a " * 5000 + "b" * (LIMIT + 1),
        "a " * 5000 + " " * LIMIT + "b",
        "a " * 5000 + "\n \t " * LIMIT + "b",
        "a " * 5000 + "b\x0b " * LIMIT,
    ],
)
def test_what_may_hold_a_long_stretch_is_left_to_stretches(text: str) -> None:
    assert blanks.parts([text], LIMIT) is None


def test_parts() -> None:
    with mock.patch.object(blanks, "LEAST", 1):
        found = blanks.parts(["a b  a\n", "", "b"], LIMIT)
        assert blanks.parts(["", ""], LIMIT) is None
    assert found is not None
    assert [found.different[i] for i in found.which] == ["a", "b", "", "a", "\n", "b"]
    assert found.sizes.tolist() == [5, 0, 1]
    assert found.counts() == {"a": 2, "b": 2, "": 1, "\n": 1}
    assert found.characters == 8


def test_too_many_different_parts_are_left_to_stretches() -> None:
    text = " ".join(map(str, range(2000)))
    assert blanks.parts([text], LIMIT) is not None
    with mock.patch.object(blanks, "MOST", 1999):
        assert blanks.parts([text], LIMIT) is None


@settings(max_examples=100, deadline=None)
@given(
    TEXTS.map("".join),
    st.sampled_from([(1.0, 0.0, 0.0), (0.5, 0.5, 0.0)]),
    st.sampled_from(["word", "bert"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([7, 12, 1000]),
)
def test_a_corpus_is_the_same_at_once_and_in_pieces(text, fractions, kind, punctuation, lowercase, least, size) -> None:
    words = TokenizerSettings(
        kind=kind, size=size, punctuation=punctuation, lowercase=lowercase, min_count=least if kind == "word" else 1
    )
    with mock.patch.object(blanks, "LEAST", 1):
        at_once = prepared(text, fractions, words)
    with mock.patch.object(corpus, "HELD", 0), mock.patch.object(blanks, "LEAST", 1 << 30):
        assert prepared(text, fractions, words) == at_once


def prepared(text: str, fractions: tuple[float, float, float], words: TokenizerSettings) -> list[object]:
    """All that a user has of a corpus, or the error."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, SERIATIM_CACHE=f"{folder}/cache"):
        path = Path(folder, "text.txt")
        path.write_bytes(text.encode())
        try:
            found = prepare(TextSettings(source=str(path), fractions=fractions, tokenizer=words))
        except SeriatimError as error:
            return [error.code, error.cause, error.remedy]
        ids = [(part.dtype, part.tolist()) for part in (found.train, found.valid, found.test)]
        told = [found.notes, found.fingerprint, found.characters, found.bytes, found.unknown]
        return [ids, told, found.tokenizer.to_json()]


def test_words_are_told_apart_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text(LEARNT * 100)
    told_apart = mock.Mock(wraps=blanks.told_apart)
    monkeypatch.setattr(corpus, "told_apart", told_apart)
    for owner, general in ((learning, "_count_parts"), (Tokenizer, "encode_many")):
        monkeypatch.setattr(owner, general, mock.Mock(side_effect=AssertionError))
    chosen = TextSettings(source=str(path), fractions=(1.0, 0.0, 0.0), tokenizer=TokenizerSettings(kind="word"))
    assert isinstance(prepare(chosen), Corpus)
    assert told_apart.call_count == 1
