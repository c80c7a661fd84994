"""N-gram models from a text file, and their log-probabilities: Seriatim beside KenLM and nltk.

Modified Kneser–Ney of orders 3 and 5 over WikiText-2 (the built-in pydoc if there is no local copy), a sentence per
line, words separated by spaces, all of them in the vocabulary. From the file to a model:

    seriatim            reads and encodes the file, builds the vocabulary, counts, estimates and writes an ARPA file:
                        what `train language --model ngram --tokenizer word` and `export` do, without starting Python
    lmplz               KenLM's, a process of its own that writes an ARPA file; on PATH, or named by LMPLZ
    nltk                `KneserNeyInterpolated.fit`, which only counts, and estimates when a probability is requested
                        (how many per second is noted); over the first lines, because it is slow, with ours, which also
                        estimates, over the same lines beside it: from the file, and from token ids

Queries: log p of every word of the test split, read as text. `full_scores` and `score` (only the sum of a sentence) are
KenLM's. Before anything is measured, probabilities and orders are
compared with those of KenLM, for our ARPA file and for that of lmplz.
"""

from __future__ import annotations

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

from benchmarks.timing import Competitors, Options, interleaved, parse_options, report
from seriatim.core.errors import SeriatimError
from seriatim.data.source import Source, open_source
from seriatim.models.ngram import NGram, Settings
from seriatim.runs.configure import configure
from seriatim.tasks.language.task import LanguageTask
from seriatim.tasks.reading import prepare

FEW = 2_000  # lines that nltk counts
QUERIES = 3  # probabilities requested from nltk
MEMORY = "200M"  # of lmplz; with more it is slower on texts of this size
ORDERS = (3, 5)
KINDS = {
    "estimate": "from a text file to an ARPA file",
    "few": f"from the first {FEW:,} lines of a text file to counts",
    "queries": "log p of every word of the test split",
}
CASES = {
    f"ngram-{kind}-{order}": f"N-grams of order {order}, WikiText-2: {what}"
    for order in ORDERS
    for kind, what in KINDS.items()
}
TOKENIZER = {"kind": "word", "vocab_size": 10_000_000, "split_punctuation": False}


def write_texts(folder: Path, quick: bool) -> str:
    """Writes training and test text with single spaces and without KenLM's own words; returns their name."""
    for name in ("pydoc",) if quick else ("wikitext2", "pydoc"):
        try:
            source = open_source(name)
            train = read_lines(source.splits.get("train", source))
        except SeriatimError as error:
            print(f"{name}: {error.cause}")
            continue
        count = FEW if quick else len(train) if "test" in source.splits else len(train) * 9 // 10
        test = read_lines(source.splits["test"]) if "test" in source.splits else train[count:]
        for split, lines in (("train", train[:count]), ("few", train[: count // 4 if quick else FEW]), ("test", test)):
            folder.joinpath(f"{split}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return name
    raise SystemExit(1)


def read_lines(source: Source) -> list[str]:
    text = "".join(line for stream in source.streams for line in stream.lines("utf-8"))
    for special in ("unk", "s", "/s", "eos"):
        text = text.replace(f"<{special}>", f"<{special}.>")
    return [" ".join(line.split()) for line in text.removesuffix("\n").split("\n")]


def estimate_model(path: Path, order: int) -> tuple[NGram, LanguageTask, np.ndarray]:
    """Returns a model of a text file, the task, and the tokens of the file."""
    settings = {"task": {"tokenizer": TOKENIZER}, "data": {"fractions": [1.0, 0.0, 0.0]}, "model": {"order": order}}
    config = configure("language", str(path), "ngram", settings).task_config()
    task, splits = prepare(LanguageTask, config)
    tokens = splits.train.items.tokens[:]
    return count_tokens(task, tokens, order), task, tokens


def count_tokens(task: LanguageTask, tokens: np.ndarray, order: int) -> NGram:
    tokenizer = task.processor.tokenizer
    return NGram.fit(tokens, tokenizer.vocab_size, Settings(name="ngram", order=order), tokenizer.eos)


def write_arpa(path: Path, order: int, out: Path) -> tuple[NGram, LanguageTask]:
    model, task, _ = estimate_model(path, order)
    model.write_arpa(out, task.processor.tokenizer.names)
    return model, task


def find_lmplz() -> str:
    program = os.environ.get("LMPLZ") or shutil.which("lmplz")
    if program is None:
        raise ImportError("it is not on PATH, and LMPLZ does not name it")
    return program


def run_lmplz(program: str, path: Path, order: int, out: Path) -> None:
    command = [program, "-o", str(order), "-S", MEMORY, "-T", str(path.parent), "--discount_fallback"]
    with open(path, "rb") as text, open(out, "wb") as arpa:
        subprocess.run(command, stdin=text, stdout=arpa, stderr=subprocess.DEVNULL, check=True)


def read_sentences(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def fit_nltk(path: Path, order: int) -> Any:
    from nltk.lm import KneserNeyInterpolated
    from nltk.lm.preprocessing import padded_everygram_pipeline

    sentences = read_sentences(path)
    model = KneserNeyInterpolated(order)
    model.fit(*padded_everygram_pipeline(order, sentences))
    return model


def compare(model: NGram, ids: np.ndarray, lines: list[str], peer: Any, name: str, orders: bool) -> str:
    """Returns by how much log-probabilities differ; fails if float32 and the digits of a file do not explain it."""
    scores = [score for line in lines for score in peer.full_scores(line)]
    difference = np.abs(model.scorer.log_probs(ids) / np.log(10) - [score for score, _, _ in scores]).max()
    if difference > 1e-4 or (orders and model.scorer.order_used(ids).tolist() != [length for _, length, _ in scores]):
        raise SystemExit(f"the log-probabilities are not those of {name}: they differ by {difference:.1g}")
    return f"log10 p differs from that of {name} by at most {difference:.1g}"


def measure_estimation(name: str, folder: Path, order: int, options: Options, notes: list[str]) -> None:
    train = folder / "train.txt"
    competitors = Competitors(
        {
            "seriatim": lambda: write_arpa(train, order, folder / "ours.arpa"),
            "seriatim, no ARPA": lambda: estimate_model(train, order),
        }
    )

    def make_lmplz() -> Callable[[], None]:
        program = find_lmplz()
        return lambda: run_lmplz(program, train, order, folder / "theirs.arpa")

    competitors.add("lmplz", make_lmplz)
    measurement = interleaved(competitors, options)
    report(name, measurement, options, note="; ".join([speed(measurement.seconds, count_words(train)), *notes]))


def measure_counting(name: str, folder: Path, order: int, options: Options, notes: list[str]) -> None:
    few = folder / "few.txt"
    _, task, tokens = estimate_model(few, order)
    competitors = Competitors(
        {
            "seriatim": lambda: estimate_model(few, order),
            "seriatim, from ids": lambda: count_tokens(task, tokens, order),
        }
    )

    def make_nltk() -> Callable[[], Any]:
        import nltk.lm  # noqa: F401

        return lambda: fit_nltk(few, order)

    competitors.add("nltk", make_nltk)
    measurement = interleaved(competitors, options)
    notes = [speed(measurement.seconds, count_words(few)), *notes]
    if "nltk" in measurement.seconds:
        model, words = fit_nltk(few, order), max(read_sentences(few), key=len)
        began = time.perf_counter()
        for position in range(order, order + QUERIES):
            model.score(words[position], words[position - order + 1 : position])
        notes.append(f"nltk answers {QUERIES / (time.perf_counter() - began):,.0f} queries/s")
    report(name, measurement, options, note="; ".join(notes))


def measure_queries(name: str, folder: Path, order: int, options: Options, notes: list[str]) -> None:
    model, task = write_arpa(folder / "train.txt", order, folder / "ours.arpa")
    text = (folder / "test.txt").read_text(encoding="utf-8")
    lines, tokenizer = text.split("\n")[:-1], task.processor.tokenizer
    ids = tokenizer.encode(text, strict=False)
    competitors = Competitors(
        {
            "seriatim": lambda: model.scorer.log_probs(tokenizer.encode(text, strict=False)),
            "seriatim, from ids": lambda: model.scorer.log_probs(ids),
        }
    )
    try:
        import kenlm

        peer = kenlm.Model(str(folder / "ours.arpa"))
        notes = [*notes, compare(model, ids, lines, peer, "KenLM on the same ARPA file", orders=True)]
        competitors["KenLM full_scores"] = lambda: [list(peer.full_scores(line)) for line in lines]
        competitors["KenLM score"] = lambda: [peer.score(line) for line in lines]
        run_lmplz(find_lmplz(), folder / "train.txt", order, folder / "theirs.arpa")
        theirs = kenlm.Model(str(folder / "theirs.arpa"))
        notes.append(compare(model, ids, lines, theirs, "lmplz and KenLM", orders=False))
    except ImportError as error:
        competitors.missing["KenLM" if "KenLM score" not in competitors else "comparison with lmplz"] = str(error)
    measurement = interleaved(competitors, options)
    report(name, measurement, options, note="; ".join([speed(measurement.seconds, len(ids)), *notes]))


def count_words(path: Path) -> int:
    """Returns the number of words and line ends."""
    text = path.read_text(encoding="utf-8")
    return len(text.split()) + text.count("\n")


def speed(times: dict[str, list[float]], tokens: int) -> str:
    return f"{tokens / statistics.median(times['seriatim']) / 1e6:.1f} million tokens/s of {tokens:,}"


def main() -> None:
    options = parse_options(__doc__, CASES, quick=[f"ngram-{kind}-3" for kind in KINDS], repeats=5)
    measures = {"estimate": measure_estimation, "few": measure_counting, "queries": measure_queries}
    with tempfile.TemporaryDirectory() as folder:
        data = write_texts(Path(folder), options.quick)
        notes = [] if data == "wikitext2" else [f"with the built-in {data}"]
        for name in options.cases:
            _, kind, order = name.split("-")
            measures[kind](name, Path(folder), int(order), options, notes)


if __name__ == "__main__":
    main()
