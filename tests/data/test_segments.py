"""Segments and distinct words: ids and vocabularies are those of the package, however texts are divided."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, trainers

from seriatim.data.tokenizers import Tokenizer, TokenizerSettings, segments
from seriatim.data.tokenizers.segments import SEGMENT_LIMIT, TextBlock, align_blocks, batch_blocks, distinct_words
from seriatim.data.tokenizers.training import WORD_LIMIT, count_words, run_trainer, split_into_words

ODD = ["the", "The", "it's", "<unk>", "<eos>", "word<unk>", "é", "Σ", ".", " ", "  ", "\n", "\t", "\u00a0", "\u2028"]
ODD += ["\x0b", "\x85", "\x1c", "[SEP]", "\u4e00", "a" * 100, "b" * 300, " " * 200]
TEXTS = st.lists(st.lists(st.sampled_from(ODD), max_size=30).map("".join), min_size=1, max_size=4)
TRAINING = "the word The it's . é Σ\n" * 20
TOKENIZERS = [
    Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=60, split_punctuation=split, lowercase=lower), [TRAINING])
    for kind in ("word", "wordpiece", "bert")
    for split in (True, False)
    for lower in (True, False)
]


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_ids_are_those_of_the_package(texts: list[str]) -> None:
    for tokenizer in TOKENIZERS:
        with mock.patch.object(segments, "MIN_BYTES", 1):
            rows = tokenizer.encode_many(texts, strict=False)
        expected = [tokenizer.backend.encode(text, add_special_tokens=False).ids for text in texts]
        assert [ids.tolist() for ids in rows] == expected


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.booleans(), st.booleans(), st.integers(1, 3))
def test_vocabulary_is_that_of_the_package(texts: list[str], split: bool, lowercase: bool, min_count: int) -> None:
    config = TokenizerSettings(
        kind="word", vocab_size=12, split_punctuation=split, lowercase=lowercase, min_count=min_count
    )
    learner = split_into_words(tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>")), config, training=True)
    trainer = trainers.WordLevelTrainer(vocab_size=12, min_frequency=min_count, show_progress=False, special_tokens=[])
    run_trainer(learner, trainer, texts)
    words = sorted(learner.get_vocab(), key=learner.get_vocab().__getitem__)
    for min_bytes in (1, 1 << 30):  # by distinct words and by segments
        with mock.patch.object(segments, "MIN_BYTES", min_bytes):
            assert Tokenizer.train(config, texts).names == ["<unk>", "<eos>", *words][:12]


def test_words_are_counted_over_many_blocks() -> None:
    long = "x" * (2 * WORD_LIMIT - 1)  # cut in two with the line end before it, as a segment
    counts = count_words(TokenizerSettings(kind="word"), ["one two\n"] * 200_000 + [f"{long} one."])
    cut = {"x" * (WORD_LIMIT - 1): 1, "x" * WORD_LIMIT: 1}
    assert counts == {"one": 200_001, "two": 200_000, ".": 1, **cut}


@pytest.mark.parametrize(
    "text",
    [
        "a " * 5000 + "b" * (SEGMENT_LIMIT + 1),
        "a " * 5000 + " " * SEGMENT_LIMIT + "b",
        "a " * 5000 + "\n \t " * SEGMENT_LIMIT + "b",
        "a " * 5000 + "b\x0b " * SEGMENT_LIMIT,
        "short",
    ],
)
def test_texts_left_to_segments(text: str) -> None:
    assert distinct_words([text], SEGMENT_LIMIT) is None


def test_distinct_words() -> None:
    with mock.patch.object(segments, "MIN_BYTES", 1):
        distinct = distinct_words(["a b  a\n", "", "b"], SEGMENT_LIMIT)
        assert distinct_words(["", ""], SEGMENT_LIMIT) is None
    assert distinct is not None
    assert [distinct.words[i] for i in distinct.indices] == ["a", "b", "", "a", "\n", "b"]
    assert distinct.lengths.tolist() == [5, 0, 1]
    assert distinct.counts() == {"a": 2, "b": 2, "": 1, "\n": 1}
    text = " ".join(map(str, range(2000)))
    assert distinct_words([text], SEGMENT_LIMIT) is not None
    with mock.patch.object(segments, "MAX_DISTINCT", 1999):
        assert distinct_words([text], SEGMENT_LIMIT) is None


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(1, 40))
def test_aligned_blocks_have_the_tokens_of_the_document(texts: list[str], size: int) -> None:
    """However documents are divided into blocks, aligned blocks have the same segments."""
    texts = [text.replace("\x0b", "").replace("\x85", "") for text in texts]
    blocks = [
        TextBlock(text[i : i + size], i + size >= len(text))
        for text in texts
        for i in range(0, max(len(text), 1), size)
    ]
    with mock.patch.object(segments, "SEGMENT_LIMIT", 64):
        aligned = list(align_blocks(blocks))
        rows: list[list[str]] = [[]]
        for block in aligned:
            rows[-1] += segments.split_segments(block.text)
            rows += [[]] if block.ends_document else []
        assert rows[:-1] == [segments.split_segments(text) for text in texts]
    groups = list(batch_blocks(aligned, 64))
    assert [block for group in groups for block in group] == aligned
    assert all(len(group) <= 4 for group in groups)


def test_a_cache_that_is_full_is_emptied() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="bpe", vocab_size=100), [TRAINING])
    expected = tokenizer.encode_many(["the word", "word it's"], strict=False)
    with mock.patch("seriatim.data.tokenizers.tokenizer.CACHE_SIZE", 2):
        rows = tokenizer.encode_many(["the word", "word it's"], strict=False)
    assert all(map(np.array_equal, rows, expected))
