"""A study of architectures: lineage, sizes, seeds and tuned learning rates on two corpora, one classification and one
translation set.

Every part is a `seriatim compare`, on one thread, with processor time as its clock, so that other work on the machine
does not decide. It stops after `--unit` seconds and continues when it is started again; the exit code is 0 once all is
done.

python -m benchmarks.study --out runs/study --pairs fra.txt [--unit 55] [--parts shakespeare,pydoc]
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from seriatim.core.files import write_text
from seriatim.runs.compare import compare

LINEAGE = ["ngram", "mlp", "rnn", "lstm", "gru", "tcn", "gpt"]
SIZES = "30k,100k,300k,1M"
PAIRS = 20_000  # of the translation set: its first, which are short
LANGUAGE: dict[str, Any] = {
    "task": "language", "models": LINEAGE, "params": SIZES, "seeds": 3, "seconds": 7.0, "tuning": 14.0,
    "batch_size": 16, "context_length": 64,
}  # fmt: skip
# Seconds of processor time: of each training, and of the search for the learning rate of each model and size.
PARTS: dict[str, dict[str, Any]] = {
    "shakespeare": {**LANGUAGE, "data": "tiny-shakespeare"},
    "polarity": {
        "task": "classify", "data": "rt-polarity", "models": ["mlp", "rnn", "lstm", "gru", "tcn", "bert"],
        "params": SIZES, "seeds": 3, "seconds": 5.0, "tuning": 10.0,
    },
    "translation": {
        "task": "translate", "data": "pairs.tsv", "models": ["seq2seq", "bahdanau", "transformer"],
        "params": SIZES, "seeds": 3, "seconds": 16.0, "tuning": 32.0, "batch_size": 64,
    },
    "pydoc": {**LANGUAGE, "data": "pydoc"},
}  # fmt: skip


def run_part(name: str, out: Path, data_dir: str | None) -> bool:
    """Continues a part, and returns whether it is complete."""
    part = dict(PARTS[name])
    data = str(out / part.pop("data")) if part["data"].endswith(".tsv") else part.pop("data")
    part.pop("data", None)
    train = {"clock": "cpu", "evaluate_limit": 20_000}
    comparison = compare(
        part.pop("task"),
        data,
        part.pop("models"),
        minutes=part.pop("seconds") / 60,
        tune_minutes=part.pop("tuning") / 60,
        settings={"train": train},
        report=False,
        out=out / name,
        data_dir=data_dir,
        notify=lambda text: print(text, file=sys.stderr) if "learning rate" in text or "failed" in text else None,
        **part,
    )
    print(f"{name}: {len(comparison.runs)} runs, {comparison.verdict()}", file=sys.stderr, flush=True)
    return not comparison.signal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, help="tab-separated sentences, of which the first are used")
    parser.add_argument("--unit", type=float, default=1e9, help="seconds after which to stop")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--data-dir", default=os.environ.get("SERIATIM_DATA"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pairs = arguments.out / "pairs.tsv"
    if arguments.pairs is not None and not pairs.exists():
        with arguments.pairs.open(encoding="utf-8") as lines:
            rows = ["\t".join(line.rstrip("\n").split("\t")[:2]) for line in islice(lines, PAIRS)]
        write_text(pairs, "\n".join(["english\tfrench", *rows]) + "\n")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in the background
    timer = threading.Timer(arguments.unit, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
    try:
        complete = all(run_part(name, arguments.out, arguments.data_dir) for name in arguments.parts.split(","))
    except KeyboardInterrupt:  # between two trainings
        complete = False
    sys.exit(0 if complete else 130)


if __name__ == "__main__":
    main()
