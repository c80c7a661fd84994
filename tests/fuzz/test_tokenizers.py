"""Tokenizer files: one that is read encodes and decodes, or says why not; damaged and hostile ones are errors."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from fuzzing import dump_json, fuzz, mutated, mutated_bytes
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.data.tokenizers.external import byte_alphabet

TEXTS = ["the cat sat. the dog ran!\n", "a cat, a dog (and 3 birds)\n", "zébra <unk> <eos> [SEP]\n"]
PROBES = [
    "the cat",
    "",
    " ",
    "a\n\nb",
    "ΑΣ Σ",
    "\U0001f600",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "[CLS] <eos>",
    "x" * 300,
]
KINDS = ("char", "word", "bpe", "byte-bpe", "wordpiece", "unigram", "bert")


@cache
def descriptions() -> dict[str, dict[str, Any]]:
    """Returns a tokenizer.json of each kind, of ours and of others."""
    sizes = {"byte-bpe": 270, "bpe": 300}
    ours = {
        kind: Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=sizes.get(kind, 60)), TEXTS).backend  # type: ignore[arg-type]
        for kind in KINDS
    }
    settings = TokenizerSettings(kind="char", byte_fallback=True, lowercase=True)
    ours["bytes"] = Tokenizer.train(settings, TEXTS).backend
    gpt2 = Backend(models.BPE(vocab={name: index for index, name in enumerate(byte_alphabet())}, merges=[]))
    gpt2.pre_tokenizer, gpt2.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    gpt2.add_special_tokens(["<|endoftext|>"])
    pieces = [("<unk>", 0.0), ("▁the", -1.0), ("▁", -2.0), *((letter, -3.0) for letter in "abcdefghijklmno")]
    unigram = Backend(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    words = Backend(models.WordLevel(vocab={"the": 0, "cat": 1}, unk_token="?"))  # which it lacks
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    others = {"gpt2": gpt2, "sentencepiece": unigram, "words": words}
    return {name: json.loads(backend.to_str()) for name, backend in (ours | others).items()}


def use(tokenizer: Tokenizer, text: str) -> None:
    """Does everything with a tokenizer; what it refuses is refused as an error, call by call."""
    ids: list[int] = []
    for probe in (text, *PROBES):
        for call in (
            tokenizer.encode,
            tokenizer.unknown,
            tokenizer.encode_spans,
            lambda probe: tokenizer.encode(probe, False),
        ):
            try:
                result = call(probe)
            except SeriatimError:
                continue
            if call == tokenizer.encode:
                ids += result.tolist()
    assert all(0 <= index < tokenizer.vocab_size for index in ids)
    for index in (*ids[:20], 0, tokenizer.vocab_size - 1):
        assert isinstance(tokenizer.token(index), str)
    assert len(tokenizer.names) == len(tokenizer.continues_word) == tokenizer.vocab_size
    tokenizer.to_json()
    assert isinstance(tokenizer.decode(ids), str)
    tokenizer.frame(ids[:5], ids[5:9], limit=8)


@st.composite
def tokenizer_json(draw: Any) -> bytes:
    description = descriptions()[draw(st.sampled_from(sorted(descriptions())))]
    if draw(st.integers(0, 7)) == 0:
        return draw(mutated_bytes(json.dumps(description).encode()))
    other = descriptions()[draw(st.sampled_from(sorted(descriptions())))]
    parts = draw(st.sets(st.sampled_from(["normalizer", "pre_tokenizer", "decoder", "post_processor", "added_tokens"])))
    return dump_json(draw(mutated(description | {part: other[part] for part in parts})))


def with_ids(*ids: int) -> bytes:
    """Returns a word tokenizer with these ids."""
    description = json.loads(json.dumps(descriptions()["words"]))
    description["model"]["vocab"] = {f"w{number}": index for number, index in enumerate(ids)}
    return dump_json(description)


def with_step(part: str, step: dict[str, Any]) -> bytes:
    return dump_json(descriptions()["sentencepiece"] | {part: step})


DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BACKTRACKING = {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}


@fuzz(weight=2, data=tokenizer_json(), text=st.text(max_size=12))
@example(data=with_ids(0, 10**8), text="")
@example(data=with_ids(0, 2**32 - 1), text="")
@example(data=with_ids(0, 0), text="w1")
@example(data=with_ids(0, 7), text="w1")
@example(data=with_ids(), text="")
@example(data=with_step("pre_tokenizer", BACKTRACKING), text="a" * 50)
@example(data=with_step("normalizer", {"type": "Sequence", "normalizers": [DOUBLE] * 40}), text="a")
@example(data=with_step("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 5_000}), text="a")
@example(data=b"[" * 100_000, text="")
@example(data=b"", text="\ud800")
def test_tokenizer_json(data: bytes, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "tokenizer.json"
    file.write_bytes(data)
    use(Tokenizer.load(file), text)


def vocabularies() -> dict[str, dict[str, bytes]]:
    """Returns the files of valid folders with another layout."""
    bert = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "a"]).encode()
    letters = {name: index for index, name in enumerate([*byte_alphabet(), "th", "the", "<|endoftext|>"])}
    gpt = {name: index for index, name in enumerate(["t", "h", "e</w>", "th", "the</w>", "<unk>"])}
    options = {
        "do_lower_case": True,
        "strip_accents": None,
        "unk_token": "[UNK]",
        "eos_token": {"content": "<|endoftext|>"},
    }
    config = json.dumps(options).encode()
    return {
        "bert": {"vocab.txt": bert, "tokenizer_config.json": config},
        "gpt2": {
            "vocab.json": dump_json(letters),
            "merges.txt": b"#version: 0.2\nt h\nth e\n",
            "tokenizer_config.json": config,
        },
        "gpt": {"vocab.json": dump_json(gpt), "merges.txt": b"t h\nth e</w>\n"},
    }


@st.composite
def vocabulary_folder(draw: Any) -> dict[str, bytes]:
    files = dict(vocabularies()[draw(st.sampled_from(["bert", "gpt2", "gpt"]))])
    for name in draw(st.sets(st.sampled_from(sorted(files)), min_size=1)):
        how = draw(st.sampled_from(["bytes", "json", "gone"]))
        if how == "json" and name.endswith(".json"):
            files[name] = dump_json(draw(mutated(json.loads(files[name]))))
        elif how == "gone" and len(files) > 1:
            del files[name]
        else:
            files[name] = draw(mutated_bytes(files[name]))
    return files


@fuzz(files=vocabulary_folder(), text=st.text(max_size=12))
@example(files={"vocab.json": dump_json({"a": 0, "b": 2**32 - 1}), "merges.txt": b""}, text="")
@example(files={"vocab.json": b"[" * 100_000, "merges.txt": b""}, text="")
@example(files={"spiece.model": b"\x00"}, text="")
@example(files={"vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "tokenizer_config.json": b'{"strip_accents": "x"}'}, text="a")
def test_vocabulary_files(files: dict[str, bytes], text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "vocabulary"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    use(Tokenizer.load(folder), text)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (with_ids(0, 10**8), "100,000,001 token ids, but the limit is 10,000,000"),
        (with_ids(0, 2**32 - 1), "4,294,967,296 token ids, but the limit is 10,000,000"),
        (with_ids(), "has no tokens"),
        (with_step("normalizer", {"type": "Sequence", "normalizers": [DOUBLE] * 40}), "times as long a text"),
        (with_step("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 5_000}), "5,002 steps"),
    ],
)
def test_limits_name_the_file_and_the_setting(data: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(SeriatimError) as raised:
        Tokenizer.load(tmp_path / "tokenizer.json")
    assert problem in raised.value.cause
    assert str(tmp_path) in raised.value.cause
    assert "SERIATIM_MAX_" in raised.value.remedy or "no tokens" in problem


def test_a_panic_of_the_package_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(with_step("pre_tokenizer", BACKTRACKING))
    tokenizer = Tokenizer.load(tmp_path)
    for call in (tokenizer.encode, tokenizer.encode_spans):
        with pytest.raises(SeriatimError, match="cannot encode") as raised:
            call("a" * 50)
        assert raised.value.code == "tokenizer.failed"


def test_spans_beyond_a_text_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="char"), TEXTS)
    encoding = SimpleNamespace(ids=[0, 1, 2], offsets=[(0, 1), (1, 4), (3, 4)])
    monkeypatch.setattr(tokenizer, "encoding", lambda text: encoding)
    assert tokenizer.encode_spans("é ")[1].tolist() == [[0, 1], [1, 2], [2, 2]]
