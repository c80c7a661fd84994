"""Tokenizers: texts are preserved, ids are those of the `tokenizers` package, and division of texts has no effect."""

from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings, default_kind

KINDS = ("char", "word", "bpe", "byte-bpe", "wordpiece", "unigram")
SUBWORDS = ("word", "bpe", "byte-bpe", "wordpiece", "unigram")
# Every code point except surrogates, which are not characters.
UNICODE = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
TEXT = (
    "The students opened their books. They didn't <unk> read, did they?\n"
    'In the beginning was the word (and 42 numbers): the students\' books\u2028are "open".\n\n'
) * 30


@cache
def trained(kind: str, **options: object) -> Tokenizer:
    vocab_size = 400 if kind in ("bpe", "byte-bpe", "unigram") else 200
    return Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=vocab_size, **options), [TEXT])


def package_ids(tokenizer: Tokenizer, text: str, folder: Path) -> list[int]:
    """Returns the ids of the saved file without our code."""
    tokenizer.save(folder / "tokenizer.json")
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids


@pytest.mark.parametrize("kind", KINDS)
def test_specials_sizes_and_saved_file(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    assert (tokenizer.unk, tokenizer.eos, tokenizer.kind) == (0, 1, kind)
    assert tokenizer.token(0) == "<unk>"
    assert tokenizer.token(1) == "<eos>"
    assert kind == "char" or tokenizer.vocab_size <= 400
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path)
    assert (again.kind, again.vocab_size, again.to_json()) == (kind, tokenizer.vocab_size, tokenizer.to_json())
    assert np.array_equal(again.encode(TEXT), tokenizer.encode(TEXT))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lowercase", [False, True])
def test_ids_are_those_of_the_package(kind: str, lowercase: bool, tmp_path: Path) -> None:
    tokenizer = trained(kind, lowercase=lowercase)
    for text in (
        TEXT,
        "Ὀδυσσεύς ΟΔΥΣΣΕΥΣ İstanbul\n",
        "  two  blanks \n\n\n tab\tend ",
        "\u00a0  b\x1cc !\x1c! \x85\n",
    ):
        assert package_ids(tokenizer, text, tmp_path) == tokenizer.encode(text, strict=False).tolist()


@settings(max_examples=60, deadline=None)
@given(UNICODE)
def test_char_preserves_the_text_it_was_trained_on(text: str) -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(), [text])
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.backend.encode(text).ids == ids.tolist()
    assert tokenizer.backend.decode(ids.tolist(), skip_special_tokens=False) == text


@settings(max_examples=200, deadline=None)
@given(UNICODE)
def test_byte_fallback_and_byte_bpe_preserve_all_of_unicode(text: str) -> None:
    for tokenizer in (trained("char", byte_fallback=True), trained("bpe", byte_fallback=True), trained("byte-bpe")):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.backend.encode(text).ids == ids.tolist()
        assert tokenizer.backend.decode(ids.tolist(), skip_special_tokens=False) == text


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from(sorted({*TEXT, "é", "\x1c", "\u00a0", "\t"})), max_size=60))
def test_segments_have_the_ids_of_the_whole_text(text: str) -> None:
    for kind in SUBWORDS:
        tokenizer = trained(kind)
        assert tokenizer.backend.encode(text).ids == tokenizer.encode(text, strict=False).tolist(), kind


@settings(deadline=None)
@given(st.lists(UNICODE, max_size=6))
def test_encode_many_equals_encode(texts: list[str]) -> None:
    for tokenizer in (trained("char"), trained("char", byte_fallback=True), trained("word"), trained("byte-bpe")):
        rows = tokenizer.encode_many(texts, strict=False)
        assert [ids.tolist() for ids in rows] == [tokenizer.encode(text, strict=False).tolist() for text in texts]


def test_char_vocabulary_is_sorted_by_code_point() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(), ["zaé", "𝄞a\n"])
    assert [tokenizer.decode([i]) for i in range(2, tokenizer.vocab_size)] == ["\n", "a", "z", "é", "𝄞"]
    assert Tokenizer.train(TokenizerSettings(min_count=2), ["zaé", "𝄞a\n"]).vocab_size == 3


def test_unknown_characters() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(), ["abc"])
    assert tokenizer.unknown("cab☃x☃") == ["☃", "x"]
    assert tokenizer.encode("a☃", strict=False).tolist() == [2, 0]
    assert tokenizer.decode([2, 0, 1]) == "a<unk>"
    with pytest.raises(SeriatimError, match="☃") as caught:
        tokenizer.encode("a☃\n")
    assert caught.value.code == "tokenizer.unknown"
    assert "byte_fallback" in caught.value.remedy
    assert trained("char", byte_fallback=True).unknown("☃") == []
    assert trained("bpe").unknown("the ☃☃é") == ["☃", "é"]
    assert Tokenizer.train(TokenizerSettings(), ["ab"]).encode_many(["a", "b"])[1].tolist() == [3]


def test_words() -> None:
    tokenizer = trained("word")
    ids = tokenizer.encode("The students didn't read (books), <unk>?\n\n")
    names = [tokenizer.token(int(index)) for index in ids]
    assert names == ["The", "students", "didn't", "read", "(", "books", ")", ",", "<unk>", "?", "<eos>", "<eos>"]
    assert tokenizer.decode(ids) == "The students didn't read (books), <unk>?\n\n"
    assert tokenizer.unknown("The zebra, <unk> the zebra") == ["zebra"]
    with pytest.raises(SeriatimError, match=r'words are not in .* vocabulary: "zebra"'):
        tokenizer.encode("The zebra")
    assert tokenizer.encode("The zebra", strict=False)[-1] == tokenizer.unk
    capped = Tokenizer.train(TokenizerSettings(kind="word", vocab_size=4), ["b a\nb b c a <eos>"])
    assert [capped.token(i) for i in range(capped.vocab_size)] == ["<unk>", "<eos>", "b", "a"]
    often = Tokenizer.train(TokenizerSettings(kind="word", min_count=3), ["b a b b a"])
    assert often.vocab_size == 3


def test_words_of_tokenized_text() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="word", split_punctuation=False), ["a @-@ b , n't <unk>\n"])
    text = "b @-@ a , <unk> n't\na"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == 7


def test_wordpiece_joins_its_pieces() -> None:
    tokenizer = trained("wordpiece")
    assert tokenizer.decode(tokenizer.encode("the booksopened, word\nthe")) == "the booksopened, word\nthe"


def test_literal_special_tokens_are_plain_text() -> None:
    text = "a <eos> b <unk> c <0x41>" * 20
    for kind in ("char", "bpe", "byte-bpe", "unigram"):
        tokenizer = Tokenizer.train(
            TokenizerSettings(kind=kind, vocab_size=600, byte_fallback=kind in ("char", "bpe")), [text]
        )
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text, kind
        assert not {0, 1} & set(ids.tolist()), kind


def test_printable_tokens() -> None:
    tokenizer = trained("byte-bpe")
    shown = {tokenizer.token(index) for index in range(tokenizer.vocab_size)}
    assert {"␣the", "↵", "<0xE2>", "a"} <= shown
    text = "\t\r\u2028\\\n"
    letters = Tokenizer.train(TokenizerSettings(kind="char"), [text])
    names = [letters.token(index) for index in letters.encode(text).tolist()]
    assert names == ["⇥", "␍", "<U+2028>", "\\", "↵"], "a backslash is the character itself"


@pytest.mark.parametrize("kind", ["char", *sorted(set(SUBWORDS) - {"unigram", "wordpiece"})])
def test_training_does_not_depend_on_the_division_of_the_text(kind: str) -> None:
    """The package's trainers of unigram and wordpiece give another vocabulary each time anyway."""
    config = TokenizerSettings(kind=kind, vocab_size=300)
    whole = Tokenizer.train(config, [TEXT])
    divided = Tokenizer.train(config, [TEXT[i : i + 7] for i in range(0, len(TEXT), 7)])
    assert whole.to_json() == divided.to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_texts(kind: str) -> None:
    for text in ("a", "ab\n", " "):
        tokenizer = Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=300), [text])
        tokenizer.encode(text, strict=False)
        assert len(tokenizer.encode("")) == 0
        assert tokenizer.decode([]) == ""


def test_alphabet_larger_than_the_vocabulary() -> None:
    text = "".join(chr(0x4E00 + i) for i in range(2000))
    assert Tokenizer.train(TokenizerSettings(kind="bpe", vocab_size=500), [text]).vocab_size == 500
    tokenizer = Tokenizer.train(TokenizerSettings(kind="bpe", vocab_size=500, byte_fallback=True), [text])
    assert tokenizer.vocab_size == 500
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_wrong_ids_and_texts() -> None:
    tokenizer = trained("char")
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(SeriatimError, match=f"no token {wrong}"):
            tokenizer.decode([wrong])
    with pytest.raises(SeriatimError, match="surrogate"):
        tokenizer.encode("a\ud800", strict=False)


def test_files_that_are_not_tokenizers(tmp_path: Path) -> None:
    with pytest.raises(SeriatimError, match="no tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SeriatimError, match=r"not a tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_external_tokenizer_of_no_known_kind(tmp_path: Path) -> None:
    vocab = {"[UNK]": 0, "the": 1, "[SEP]": 2}
    external = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    external.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    external.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.kind, tokenizer.unk, tokenizer.eos) == ("other", 0, 2)
    assert tokenizer.encode("the word", strict=False).tolist() == [1, 0]
    assert tokenizer.unknown("the word") == ["word"]


@pytest.mark.parametrize("kind", ["byte-bpe", "bpe", "bert", "word"])
def test_settings_that_do_not_go_together(kind: str) -> None:
    values: dict[str, object] = {"kind": kind, "byte_fallback": kind in ("bpe", "word"), "vocab_size": 5}
    with pytest.raises(ValidationError, match=r"at least|byte_fallback is for char and bpe"):
        TokenizerSettings.model_validate(values)


def test_default_kind_of_a_task() -> None:
    adapter = TypeAdapter(Annotated[dict[str, object] | None, default_kind(kind="bert", lowercase=True)])
    expected = {"kind": "bert", "lowercase": True, "vocab_size": 10}
    assert adapter.validate_python({"vocab_size": 10}) == expected
    assert adapter.validate_python({"kind": "word"}) == {"kind": "word"}
    assert adapter.validate_python(None) is None
