"""Words by what stands between blanks: the same ids and the same vocabulary as by stretches and by the package."""

from __future__ import annotations

from unittest import mock

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, trainers

from seriatim.data import blanks, vocabulary
from seriatim.data.learning import TRAIN_WORD, count_words, learn
from seriatim.data.pieces import LIMIT
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings

ODD = ["the", "The", "it's", "<unk>", "<eos>", "word<unk>", "é", "Σ", ".", " ", "  ", "\n", "\t", "\u00a0", "\u2028"]
ODD += ["\x0b", "\x85", "\x1c", "[SEP]", "\u4e00", "a" * 100, "b" * 300, " " * 200]
TEXTS = st.lists(st.lists(st.sampled_from(ODD), max_size=30).map("".join), min_size=1, max_size=4)
LEARNT = "the word The it's . é Σ\n" * 20
MADE = {
    kind: Tokenizer.train(TokenizerSettings(kind=kind, size=60), [LEARNT]) for kind in ("word", "wordpiece", "bert")
}


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_ids_are_those_of_the_package(texts: list[str]) -> None:
    for tokenizer in MADE.values():
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
    assert [found.different[i] for i in found.which] == ["a", "b", "", "a\n", "", "b"]
    assert found.sizes.tolist() == [4, 1, 1]
    assert found.counts() == {"a": 1, "b": 2, "": 2, "a\n": 1}
