"""Corpora: splits, document ends, the cache, given files and tokenizers, memory, and processes at the same time."""

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.data import corpus as corpus_module
from seriatim.data import decoded as decoded_module
from seriatim.data.corpus import Corpus, prepare, prepare_single
from seriatim.data.text import TextSettings
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings

LINES = "".join(f"line {i:04d} of the text\n" for i in range(1000))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERIATIM_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(LINES)
    return path


def texts(corpus: Corpus) -> list[str]:
    return [corpus.tokenizer.decode(part) for part in (corpus.train, corpus.valid, corpus.test)]


def same(one: Corpus, other: Corpus) -> bool:
    parts = [(one.train, other.train), (one.valid, other.valid), (one.test, other.test)]
    rest = [(c.fingerprint, c.notes, c.characters, c.bytes, c.unknown, c.tokenizer.to_json()) for c in (one, other)]
    return rest[0] == rest[1] and all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in parts)


def test_contiguous_split_at_line_starts(book: Path) -> None:
    told: list[str] = []
    corpus = prepare(TextSettings(source=str(book)), notify=told.append)
    train, valid, test = texts(corpus)
    assert train + valid + test == LINES
    assert [part.count("\n") for part in (train, valid, test)] == [900, 50, 50]
    assert isinstance(corpus.train, np.memmap)
    assert corpus.train.dtype == np.uint16
    assert corpus.characters == {"train": len(train), "valid": len(valid), "test": len(test)} == corpus.bytes
    assert corpus.unknown == {"train": 0, "valid": 0, "test": 0}
    assert told == corpus.notes
    assert corpus.notes == [
        "read 22,000 characters of UTF-8 from book.txt",
        "split 90 / 5 / 5 % by contiguous blocks",
        f"char tokenizer with {corpus.tokenizer.size} tokens, learnt from the training part",
        "tokens: 19,800 train, 1,100 valid, 1,100 test",
    ]


def test_split_without_lines_is_at_characters(tmp_path: Path) -> None:
    text = "é𝄞a" * 1000
    (tmp_path / "a.txt").write_text("x\n" + text)
    corpus = prepare(TextSettings(source=str(tmp_path / "a.txt"), fractions=(0.5, 0.25, 0.25)))
    assert "".join(texts(corpus)) == "x\n" + text
    assert len(corpus.train) == pytest.approx(1500, abs=2)
    assert corpus.bytes["train"] > corpus.characters["train"]


def test_cached_and_fresh_are_equal(book: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("char", "byte-bpe", "word"):
        settings = TextSettings(source=str(book), tokenizer=TokenizerSettings(kind=kind, size=300))
        fresh = prepare(settings)
        cached = prepare(settings)
        shutil.rmtree(cache)
        assert same(fresh, cached)
        assert same(prepare(settings), cached)
    settings = TextSettings(source=str(book))
    prepare(settings)
    monkeypatch.setattr(decoded_module, "sha256", lambda path: pytest.fail("an unchanged source was read again"))
    monkeypatch.setattr(corpus_module, "_write", lambda *_: pytest.fail("an unchanged source was encoded again"))
    prepare(settings)


def test_fingerprint_follows_content_not_place(book: Path, tmp_path: Path) -> None:
    first = prepare(TextSettings(source=str(book)))
    moved = tmp_path / "other" / "copy.txt"
    moved.parent.mkdir()
    shutil.copy(book, moved)
    assert prepare(TextSettings(source=str(moved))).fingerprint == first.fingerprint
    os.utime(book, ns=(1, 1))
    assert prepare(TextSettings(source=str(book))).fingerprint == first.fingerprint
    book.write_text(LINES.replace("0500", "9999"))
    changed = prepare(TextSettings(source=str(book)))
    assert changed.fingerprint != first.fingerprint
    assert "9999" in texts(changed)[0]
    assert prepare(TextSettings(source=str(book), fractions=(0.8, 0.1, 0.1))).fingerprint != changed.fingerprint


def test_tokenizer_learns_from_the_training_part_only(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("abcdefghi\n" * 90 + "abcdefghZ\n" * 10)
    corpus = prepare(TextSettings(source=str(path)))
    assert corpus.unknown == {"train": 0, "valid": 5, "test": 5}
    assert corpus.tokenizer.unknown("Z") == ["Z"]
    assert "valid: 5 of 50 tokens (10 %) are <unk>" in corpus.notes
    kept = prepare(TextSettings(source=str(path), tokenizer=TokenizerSettings(fallback=True)))
    assert texts(kept)[2] == "abcdefghZ\n" * 5
    assert kept.unknown["test"] == 0


def test_documents_are_separated(tmp_path: Path) -> None:
    rows = [f"row {i:02d}" for i in range(40)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    corpus = prepare(TextSettings(source=str(path), fractions=(0.5, 0.25, 0.25)))
    joined = np.concatenate([corpus.train, corpus.valid, corpus.test]).astype(np.int64)
    parts = np.split(joined, np.flatnonzero(joined == corpus.tokenizer.eos) + 1)
    assert [corpus.tokenizer.decode(part) for part in parts] == [*rows, ""]
    assert corpus.train[-1] == corpus.tokenizer.eos  # the cut is between documents
    assert corpus.characters["train"] == sum(map(len, rows[:20]))


def test_words_have_one_eos_a_line_also_at_the_end_of_a_document(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("a b\nb\n" * 20)
    (folder / "b").write_text("b a\nb")
    settings = TextSettings(
        source=str(folder), fractions=(1, 0, 0), tokenizer=TokenizerSettings(kind="word"), column=None
    )
    corpus = prepare(settings)
    assert corpus.tokenizer.decode(corpus.train) == "a b\nb\n" * 20 + "b a\nb\n"
    assert len(corpus.valid) == len(corpus.test) == 0


def test_given_files_are_used_as_they_are(book: Path, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("line 1\n")
    (tmp_path / "t.txt").write_text("text 2\n")
    files = {"valid": str(tmp_path / "v.txt"), "test": str(tmp_path / "t.txt")}
    assert texts(prepare(TextSettings(source=str(book), **files))) == [LINES, "line 1\n", "text 2\n"]
    for split in ("valid", "test"):
        corpus = prepare(TextSettings(source=str(book), **{split: files[split]}))
        other = {"valid": "test", "test": "valid"}[split]
        assert len(getattr(corpus, other)) == 0
        assert f"no {other} file is given, so the {other} part is empty" in corpus.notes


@pytest.mark.parametrize("text", ["a", "ab", "short", "a line\nand one\n"])
def test_too_short(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(SeriatimError, match="too short to split 90 / 5 / 5 %") as caught:
        prepare(TextSettings(source=str(tmp_path / "a.txt")))
    assert caught.value.code == "data.too-short"


def test_fractions_of_zero(book: Path) -> None:
    assert texts(prepare(TextSettings(source=str(book), fractions=(1, 0, 0)))) == [LINES, "", ""]
    train, valid, test = texts(prepare(TextSettings(source=str(book), fractions=(0.9, 0, 0.1))))
    assert (train + test, valid, test.count("\n")) == (LINES, "", 100)


def test_given_tokenizer(book: Path) -> None:
    first = prepare(TextSettings(source=str(book), tokenizer=TokenizerSettings(kind="byte-bpe", size=300)))
    again = prepare(TextSettings(source=str(book)), tokenizer=first.tokenizer)
    assert again.fingerprint == first.fingerprint  # what resuming with the run's own tokenizer finds
    assert np.array_equal(again.train, first.train)


def test_single_file(book: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(), [LINES])
    path = tmp_path / "new.txt"
    path.write_text("text ☃\n")
    encoded = prepare_single(path, tokenizer)
    assert tokenizer.decode(encoded.ids) == "text <unk>\n"
    assert (encoded.characters, encoded.bytes, encoded.unknown) == (7, 9, 1)
    assert "new.txt: 1 of 7 tokens (14 %) are <unk>" in encoded.notes
    assert prepare_single(path, tokenizer).fingerprint == encoded.fingerprint


def test_reader_blocks_do_not_change_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text(LINES + "x" * 100_000 + " é" * 60_000 + "\n")
    ids = []
    for block in (1 << 18, 1009):
        monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / f"cache{block}"))
        monkeypatch.setattr(decoded_module, "BLOCK", block)
        tokenizer = TokenizerSettings(kind="byte-bpe", size=300)
        ids.append(prepare(TextSettings(source=str(path), fractions=(1, 0, 0), tokenizer=tokenizer)).train)
    assert np.array_equal(ids[0], ids[1])
    whole = prepare(TextSettings(source=str(path), fractions=(1, 0, 0), tokenizer=tokenizer))
    assert np.array_equal(whole.tokenizer.encode(path.read_text()), ids[0])


def test_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    characters = [chr(code) for code in range(0x4E00, 0x9FFF)] + [
        chr(code) for code in range(0x20000, 0x20000 + 50_000)
    ]
    (tmp_path / "a.txt").write_text("".join(characters))
    corpus = prepare(TextSettings(source=str(tmp_path / "a.txt"), fractions=(1, 0, 0)))
    assert corpus.train.dtype == np.uint32
    assert corpus.tokenizer.decode(corpus.train) == "".join(characters)


def test_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    with open(path, "w") as file:
        for start in range(0, 20_000_000, 1_000_000):
            file.write("".join(f"{i:08d}\n" for i in range(start, start + 1_000_000, 9)))
    size = path.stat().st_size
    assert size > 19_000_000
    tracemalloc.start()
    try:
        corpus = prepare(TextSettings(source=str(path)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The table that counts characters has 9 MB; the rest are a few blocks.
    assert peak < 32_000_000
    assert len(corpus.train) + len(corpus.valid) + len(corpus.test) == size


def test_processes_at_the_same_time(book: Path, cache: Path) -> None:
    code = (
        "import sys\n"
        "from seriatim.data.corpus import prepare\n"
        "from seriatim.data.text import TextSettings\n"
        "c = prepare(TextSettings(source=sys.argv[1], tokenizer={'kind': 'unigram', 'size': 300}))\n"
        "print(c.fingerprint, len(c.train), int(c.train.astype('i8').sum()))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(book)], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    answers = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(answers) == 1
    assert not list(cache.rglob(".*"))


def test_cache_that_cannot_be_written(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus_module, "_write", full)
    with pytest.raises(SeriatimError, match="No space left") as caught:
        prepare(TextSettings(source=str(book)))
    assert caught.value.code == "data.cache"
    assert "SERIATIM_CACHE" in caught.value.remedy


@pytest.mark.skipif("SERIATIM_REAL_DATA" not in os.environ, reason="needs a local copy of the data sets")
def test_wikitext2_has_the_published_counts() -> None:
    words = TokenizerSettings(kind="word", size=40_000, punctuation=False)
    corpus = prepare(TextSettings(source="wikitext2", tokenizer=words), os.environ["SERIATIM_REAL_DATA"])
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [2_088_628, 217_646, 245_569]
    assert corpus.tokenizer.size == 33_278
