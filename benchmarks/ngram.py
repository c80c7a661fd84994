"""N-gram models from a text file, and their log-probabilities: Seriatim beside KenLM and nltk.

Modified Kneser–Ney of orders 3 and 5 over WikiText-2 (the built-in pydoc if there is no local copy), a sentence per
line, words separated by spaces, all of them in the vocabulary. From the file to a model:

    seriatim            reads and encodes the file, builds the vocabulary, counts and estimates: what
                        `train language --model ngram --tokenizer word` does, without starting Python
    seriatim, ARPA      the same, and writes an ARPA file
    lmplz               KenLM's, a process of its own that writes an ARPA file; on PATH, or named by LMPLZ
    nltk                `KneserNeyInterpolated.fit`, which only counts, and estimates when a probability is requested
                        (how many per second is printed); over the first lines, because it is slow, with ours over the
                        same lines beside it: from the file, and from token ids, which leaves out the words

Queries: log p of every word of the test split. `full_scores` and `score` (only the sum of a sentence) of KenLM read the
sentences as text, ours once token ids, once the text. Before anything is measured, probabilities and orders are
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

from benchmarks.timing import interleaved, make_parser, parse_arguments, report
from seriatim.core.errors import SeriatimError
from seriatim.data.source import Source, open_source
from seriatim.models.ngram import NGram, Settings
from seriatim.runs.configure import configure
from seriatim.tasks import load
from seriatim.tasks.base import Task

FEW = 2_000  # lines that nltk counts
QUERIES = 3  # probabilities requested from nltk
MEMORY = "200M"  # of lmplz; with more it is slower on texts of this size
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


def estimate_model(path: Path, order: int) -> tuple[NGram, Task[Any]]:
    """Returns a model of a text file, and the task with its tokens."""
    settings = {"task": {"tokenizer": TOKENIZER}, "data": {"fractions": [1.0, 0.0, 0.0]}, "model": {"order": order}}
    config = configure("language", str(path), "ngram", settings).task_config()
    task = load("language").prepare(config)
    return count_tokens(task, order), task


def count_tokens(task: Task[Any], order: int) -> NGram:
    tokens, tokenizer = task.encoded["train"].inputs.values[:], task.processor.tokenizer
    return NGram.fit(tokens, tokenizer.vocab_size, Settings(name="ngram", order=order), tokenizer.eos)


def write_arpa(path: Path, order: int, out: Path) -> tuple[NGram, Task[Any]]:
    model, task = estimate_model(path, order)
    model.write_arpa(out, task.processor.tokenizer.names)
    return model, task


def find_lmplz() -> str | None:
    program = os.environ.get("LMPLZ") or shutil.which("lmplz")
    if program is None:
        print("without lmplz: it is not on PATH, and LMPLZ does not name it")
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


def compare(model: NGram, ids: np.ndarray, lines: list[str], peer: Any, name: str, orders: bool) -> None:
    """Stops if log-probabilities differ by more than float32 and the digits of a file explain."""
    scores = [score for line in lines for score in peer.full_scores(line)]
    difference = np.abs(model.log_probs(ids) / np.log(10) - [score for score, _, _ in scores]).max()
    print(f"  log10 p beside {name}: differs by at most {difference:.1g}")
    if difference > 1e-4 or (orders and model.order_used(ids).tolist() != [length for _, length, _ in scores]):
        raise SystemExit(f"the log-probabilities are not those of {name}")


def measure_estimation(folder: Path, order: int, repeats: int, name: str, save: bool) -> None:
    train, few, program = folder / "train.txt", folder / "few.txt", find_lmplz()
    competitors: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: estimate_model(train, order),
        "seriatim, ARPA": lambda: write_arpa(train, order, folder / "ours.arpa"),
    }
    if program is not None:
        competitors["lmplz"] = lambda: run_lmplz(program, train, order, folder / "theirs.arpa")
    times = interleaved(competitors, repeats)
    report(f"ngram-estimate-{order}-{name}", times, save=save)
    tokens = count_words(train)
    print_speed(times, tokens)
    try:
        import nltk.lm  # noqa: F401
    except ImportError as error:
        print(f"without nltk: {error}")
        return
    _, task = estimate_model(few, order)
    others: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: estimate_model(few, order),
        "seriatim, from ids": lambda: count_tokens(task, order),
        "nltk": lambda: fit_nltk(few, order),
    }
    few_times = interleaved(others, 3)
    report(f"ngram-estimate-{order}-{name}-few", few_times, save=save)
    print_speed(few_times, count_words(few))
    ours, theirs = (statistics.median(values) for values in (times["seriatim"], few_times["nltk"]))
    print(f"  tokens per second, ours of all lines: {tokens / ours / (count_words(few) / theirs):.0f}×")
    model, words = fit_nltk(few, order), max(read_sentences(few), key=len)
    began = time.perf_counter()
    for position in range(order, order + QUERIES):
        model.score(words[position], words[position - order + 1 : position])
    print(f"  nltk: {QUERIES / (time.perf_counter() - began):,.0f} queries per second")


def measure_queries(folder: Path, order: int, repeats: int, name: str, save: bool) -> None:
    model, task = write_arpa(folder / "train.txt", order, folder / "ours.arpa")
    text = (folder / "test.txt").read_text(encoding="utf-8")
    lines, tokenizer = text.split("\n")[:-1], task.processor.tokenizer
    ids = tokenizer.encode(text, strict=False)
    competitors: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: model.log_probs(ids),
        "seriatim, from text": lambda: model.log_probs(tokenizer.encode(text, strict=False)),
    }
    try:
        import kenlm

        peer = kenlm.Model(str(folder / "ours.arpa"))
        compare(model, ids, lines, peer, "KenLM on the same ARPA file", orders=True)
        if (program := find_lmplz()) is not None:
            run_lmplz(program, folder / "train.txt", order, folder / "theirs.arpa")
            compare(model, ids, lines, kenlm.Model(str(folder / "theirs.arpa")), "lmplz and KenLM", orders=False)
        competitors["KenLM full_scores"] = lambda: [list(peer.full_scores(line)) for line in lines]
        competitors["KenLM score"] = lambda: [peer.score(line) for line in lines]
    except ImportError as error:
        print(f"without KenLM: {error}")
    times = interleaved(competitors, repeats)
    report(f"ngram-queries-{order}-{name}", times, save=save)
    print_speed(times, len(ids))


def count_words(path: Path) -> int:
    """Returns the number of words and line ends."""
    text = path.read_text(encoding="utf-8")
    return len(text.split()) + text.count("\n")


def print_speed(times: dict[str, list[float]], tokens: int) -> None:
    for key, values in times.items():
        print(f"  {key:<24} {tokens / statistics.median(values):12,.0f} tokens/s of {tokens:,}")


def main() -> None:
    parser = make_parser(__doc__, repeats=5)
    parser.add_argument("--order", type=int, action="append")
    parser.add_argument("--only", choices=("estimate", "queries"))
    arguments = parse_arguments(parser)
    with tempfile.TemporaryDirectory() as folder:
        name = write_texts(Path(folder), arguments.quick)
        for order in arguments.order or ((3,) if arguments.quick else (3, 5)):
            if arguments.only != "queries":
                measure_estimation(Path(folder), order, arguments.repeats, name, not arguments.quick)
            if arguments.only != "estimate":
                measure_queries(Path(folder), order, arguments.repeats, name, not arguments.quick)


if __name__ == "__main__":
    main()
