"""Special tokens: sequences between [CLS] and [SEP] as `transformers` builds and truncates them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st

from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.data.tokenizers.tokenizer import truncated_lengths

TEXT = "The students opened their books, didn't they? Élan, naïve Äpfel: 我想 42 books\n" * 20


@pytest.fixture(scope="module")
def bert() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=300, lowercase=True), [TEXT])


@pytest.fixture(scope="module")
def peer(bert: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> transformers.PreTrainedTokenizerFast:
    file = tmp_path_factory.mktemp("peer") / "tokenizer.json"
    bert.save(file)
    names = {f"{use}_token": f"[{use.upper()}]" for use in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **names)


def test_truncation_is_that_of_transformers(bert: Tokenizer, peer: transformers.PreTrainedTokenizerFast) -> None:
    texts = [" ", "books", "the books", "the students opened their books", TEXT[:300]]
    for first in texts:
        for limit in (2, 3, 4, 7, 12, 100):
            ids = bert.frame(bert.encode(first), limit=limit)
            assert ids.tolist() == peer(first, truncation=True, max_length=limit)["input_ids"]
        for second in texts:
            for limit in (3, 4, 5, 7, 8, 12, 13, 100):
                ids = bert.frame(bert.encode(first), bert.encode(second), limit)
                assert ids.tolist() == peer(first, second, truncation=True, max_length=limit)["input_ids"]
    for other, limit, texts_named in ((None, 1, "a text"), ([], 2, "two texts")):
        with pytest.raises(SeriatimError, match=f"no room for the [23] special tokens around {texts_named}") as caught:
            bert.frame([], other, limit)
        assert caught.value.code == "tokenizer.limit"


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 60))
def test_truncated_lengths_are_as_equal_as_possible(first: int, second: int, room: int) -> None:
    lengths = truncated_lengths(first, second, room)
    assert sum(lengths) == min(first + second, room)
    assert lengths[0] <= first
    assert lengths[1] <= second
    if sum(lengths) < first + second:  # only the longer one is truncated, unless both are equally long then
        assert abs(lengths[0] - lengths[1]) <= 1 or lengths[first > second] == min(first, second)


def test_frame_without_cls_and_sep() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="word"), [TEXT])
    assert (tokenizer.has_cls_sep, tokenizer.cls, tokenizer.mask, tokenizer.pad) == (False, None, None, None)
    assert tokenizer.frame([5, 6, 7]).tolist() == [5, 6, 7]
    assert tokenizer.frame([5, 6, 7], limit=2).tolist() == [5, 6]
    assert tokenizer.frame([5, 6, 7], [8]).tolist() == [5, 6, 7, 1, 8]
    assert tokenizer.frame([5, 6, 7], [8], limit=4).tolist() == [5, 6, 1, 8]
    # Words that look like special tokens are words.
    words = Tokenizer.train(TokenizerSettings(kind="word", split_punctuation=False), ["[CLS] a [SEP] [MASK] <pad>"])
    assert (words.has_cls_sep, words.mask, words.pad) == (False, None, None)


def test_two_texts_need_a_separator(tmp_path: Path) -> None:
    external = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="b"))
    external.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.frame([0, 1]).tolist() == [0, 1]
    with pytest.raises(SeriatimError, match="no token to separate two texts") as caught:
        tokenizer.frame([0], [1])
    assert caught.value.code == "tokenizer.eos"


def test_continues_word(bert: Tokenizer) -> None:
    continuing = [bert.names[index] for index in np.flatnonzero(bert.continues_word)]
    assert continuing == [name for name in bert.names if name.startswith("##")]
    assert bert.continues_word.shape == (bert.vocab_size,)
    spaced = Tokenizer.train(TokenizerSettings(kind="byte-bpe", vocab_size=400), [TEXT])
    ids = spaced.encode(" thestudents, 42")
    names = [spaced.token(int(index)) for index in ids]
    assert [name[0] not in "␣," for name in names] == spaced.continues_word[ids].tolist()
    assert not spaced.continues_word[[0, 1]].any()
    assert not Tokenizer.train(TokenizerSettings(), [TEXT]).continues_word.any()
