"""An n-gram model from a text file, and its answers: Seriatim beside KenLM and nltk.

Modified Kneser–Ney of orders 3 and 5 over WikiText-2 (the built-in pydoc where there is no local copy), a sentence a
line, words as they stand between blanks, all of them in the vocabulary. From the file to a model:

    seriatim            reads, decodes, learns the vocabulary, writes the ids to an empty cache, counts and estimates:
                        what `train language --model ngram --tokenizer word` does, but for starting Python
    seriatim, ARPA      the same, and writes an ARPA file
    lmplz               KenLM's, a process of its own that ends with an ARPA file; on PATH, or named by LMPLZ
    nltk                `KneserNeyInterpolated.fit`, which counts only and leaves the estimating to each question (how
                        many it answers in a second is told); over the first lines, because it is slow, with ours over
                        the same lines beside it: from the file, and from ids, which leaves the words out

Answers: log p of every word of the test part. KenLM's `full_scores` and `score` (the sum of a sentence only) are given
the sentences as text. Ours once from ids, once from the text. Before anything is measured the probabilities and the
orders are compared with KenLM's, of our ARPA file and of lmplz's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import interleaved, report
from seriatim.core.errors import SeriatimError
from seriatim.data import catalogue
from seriatim.data.corpus import Corpus, prepare
from seriatim.data.text import TextSettings, read_documents
from seriatim.models.ngram import NGram, Settings

FEW = 2_000  # lines that nltk counts
ASKED = 3  # questions to nltk
MEMORY = "200M"  # what lmplz may use; with more it is slower on texts of this size
WORDS = {"kind": "word", "size": 10_000_000, "punctuation": False}


def write_texts(folder: Path) -> str:
    """Training and test text with single blanks and without KenLM's own words, and the name of what they are from."""
    for name in ("wikitext2", "pydoc"):
        try:
            found = catalogue.get(name)
        except SeriatimError as error:
            print(f"{name}: {error.cause}")
            continue
        train = _lines(found.train)
        cut = len(train) if found.test is not None else len(train) * 9 // 10
        test = _lines(found.test) if found.test is not None else train[cut:]
        for part, lines in (("train", train[:cut]), ("few", train[:FEW]), ("test", test)):
            folder.joinpath(f"{part}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return name
    raise SystemExit(1)


def _lines(path: Path) -> list[str]:
    text = "".join(piece.text for piece in read_documents(path))
    for special in ("unk", "s", "/s", "eos"):
        text = text.replace(f"<{special}>", f"<{special}.>")
    return [" ".join(line.split()) for line in text.removesuffix("\n").split("\n")]


def estimated(path: Path, order: int) -> tuple[NGram, Corpus]:
    kept = os.environ.get("SERIATIM_CACHE")
    with tempfile.TemporaryDirectory(dir=path.parent) as cache:
        os.environ["SERIATIM_CACHE"] = cache
        try:
            corpus = prepare(TextSettings(source=str(path), fractions=(1.0, 0.0, 0.0), tokenizer=WORDS))
        finally:
            os.environ.pop("SERIATIM_CACHE")
            os.environ.update({} if kept is None else {"SERIATIM_CACHE": kept})
        return counted(corpus, order), corpus


def counted(corpus: Corpus, order: int) -> NGram:
    return NGram.fit(corpus.train, corpus.tokenizer.size, Settings(name="ngram", order=order), corpus.tokenizer.eos)


def written(path: Path, order: int, out: Path) -> tuple[NGram, Corpus]:
    model, corpus = estimated(path, order)
    model.write_arpa(out, corpus.tokenizer.names)
    return model, corpus


def lmplz() -> str | None:
    found = os.environ.get("LMPLZ") or shutil.which("lmplz")
    if found is None:
        print("without lmplz: it is not on PATH, and LMPLZ does not name it")
    return found


def by_lmplz(program: str, path: Path, order: int, out: Path) -> None:
    command = [program, "-o", str(order), "-S", MEMORY, "-T", str(path.parent), "--discount_fallback"]
    with open(path, "rb") as text, open(out, "wb") as arpa:
        subprocess.run(command, stdin=text, stdout=arpa, stderr=subprocess.DEVNULL, check=True)


def sentences_of(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def by_nltk(path: Path, order: int) -> Any:
    from nltk.lm import KneserNeyInterpolated
    from nltk.lm.preprocessing import padded_everygram_pipeline

    sentences = sentences_of(path)
    model = KneserNeyInterpolated(order)
    model.fit(*padded_everygram_pipeline(order, sentences))
    return model


def compare(model: NGram, ids: np.ndarray, lines: list[str], theirs: Any, whose: str, orders: bool) -> None:
    """Stops where the answers differ by more than what float32 and a few digits of a file explain."""
    found = [one for line in lines for one in theirs.full_scores(line)]
    apart = np.abs(model.log_probs(ids) / np.log(10) - [score for score, _, _ in found]).max()
    print(f"  log10 p beside {whose}: at most {apart:.1g} apart")
    if apart > 1e-4 or (orders and model.order_used(ids).tolist() != [length for _, length, _ in found]):
        raise SystemExit(f"the answers are not those of {whose}")


def estimate(folder: Path, order: int, repeats: int, name: str) -> None:
    train, few, program = folder / "train.txt", folder / "few.txt", lmplz()
    competitors: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: estimated(train, order),
        "seriatim, ARPA": lambda: written(train, order, folder / "ours.arpa"),
    }
    if program is not None:
        competitors["lmplz"] = lambda: by_lmplz(program, train, order, folder / "theirs.arpa")
    times = interleaved(competitors, repeats)
    report(f"ngram-estimate-{order}-{name}", times)
    tokens = _tokens(train)
    _told(times, tokens)
    try:
        import nltk.lm  # noqa: F401
    except ImportError as error:
        print(f"without nltk: {error}")
        return
    _, corpus = estimated(few, order)
    others: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: estimated(few, order),
        "seriatim, from ids": lambda: counted(corpus, order),
        "nltk": lambda: by_nltk(few, order),
    }
    short = interleaved(others, 3)
    report(f"ngram-estimate-{order}-{name}-few", short)
    _told(short, _tokens(few))
    whole, part = (statistics.median(some) for some in (times["seriatim"], short["nltk"]))
    print(f"  by tokens per second, ours of all lines: {tokens / whole / (_tokens(few) / part):.0f}×")
    model, words = by_nltk(few, order), max(sentences_of(few), key=len)
    began = time.perf_counter()
    for place in range(order, order + ASKED):
        model.score(words[place], words[place - order + 1 : place])
    print(f"  nltk answers {ASKED / (time.perf_counter() - began):,.0f} questions a second")


def answer(folder: Path, order: int, repeats: int, name: str) -> None:
    model, corpus = written(folder / "train.txt", order, folder / "ours.arpa")
    text = (folder / "test.txt").read_text(encoding="utf-8")
    lines, tokenizer = text.split("\n")[:-1], corpus.tokenizer
    ids = tokenizer.encode(text, strict=False)
    competitors: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: model.log_probs(ids),
        "seriatim, from text": lambda: model.log_probs(tokenizer.encode(text, strict=False)),
    }
    try:
        import kenlm

        theirs = kenlm.Model(str(folder / "ours.arpa"))
        compare(model, ids, lines, theirs, "KenLM on the same ARPA file", orders=True)
        if (program := lmplz()) is not None:
            by_lmplz(program, folder / "train.txt", order, folder / "theirs.arpa")
            compare(model, ids, lines, kenlm.Model(str(folder / "theirs.arpa")), "lmplz and KenLM", orders=False)
        competitors["KenLM full_scores"] = lambda: [list(theirs.full_scores(line)) for line in lines]
        competitors["KenLM score"] = lambda: [theirs.score(line) for line in lines]
    except ImportError as error:
        print(f"without KenLM: {error}")
    times = interleaved(competitors, repeats)
    report(f"ngram-answer-{order}-{name}", times)
    _told(times, len(ids))


def _tokens(path: Path) -> int:
    """Words and line ends."""
    text = path.read_text(encoding="utf-8")
    return len(text.split()) + text.count("\n")


def _told(times: dict[str, list[float]], tokens: int) -> None:
    for key, values in times.items():
        print(f"  {key:<24} {tokens / statistics.median(values):12,.0f} tokens/s of {tokens:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--order", type=int, action="append")
    parser.add_argument("--what", choices=("estimate", "answer"), action="append")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        name = write_texts(Path(folder))
        for order in chosen.order or (3, 5):
            for what in chosen.what or ("estimate", "answer"):
                {"estimate": estimate, "answer": answer}[what](Path(folder), order, chosen.repeats, name)


if __name__ == "__main__":
    main()
