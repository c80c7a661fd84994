"""How long `next` takes while somebody types: the time of a call after prompts that end anywhere in a text.

    python -m benchmarks.next_words --data book.txt runs/lstm runs/gpt runs/counts

Prompts are cut from a text at random, half of them within a word, with 80 characters before. The best of three calls
counts for each, since other programs only make them slower; with --cpu it is processor time, for a busy machine.
Printed are median and 95th percentile over the prompts, how probable the ten completions are together, and how often
the word that really follows is among them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import seriatim
from seriatim.decode.words import split_units

PROMPT, PROMPTS, REPEATS, TOP = 80, 100, 3, 10


def cut_prompts(text: str, count: int) -> list[tuple[str, str]]:
    """Returns prompts and the words that complete them."""
    draw, cuts = np.random.default_rng(0), list[tuple[str, str]]()
    while len(cuts) < count:
        end = int(draw.integers(PROMPT, len(text) - PROMPT))
        prompt, rest = text[end - PROMPT : end], text[end : end + PROMPT]
        inside = bool(split_units(prompt).rest)
        if inside != (len(cuts) % 2 == 0) or (not inside and prompt[-1] != " "):
            continue
        cuts.append((prompt, split_units(split_units(prompt).rest + rest).words[0]))
    return cuts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="a text that the models were not trained on")
    parser.add_argument("--words", type=int, default=1)
    parser.add_argument("--beams", type=int, default=None)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    cuts = cut_prompts(options.data.read_text(encoding="utf-8"), PROMPTS)
    beams = {} if options.beams is None else {"beams": options.beams}
    print(f"{'run':<24}{'parameters':>12}{'median':>10}{'95 %':>10}{'probability':>13}{'hits':>8}")
    for path in options.runs:
        run = seriatim.load(path)
        times, found, hits = [], [], 0
        for prompt, word in cuts:
            calls = []
            for _ in range(REPEATS):
                began = clock()
                records = run.next(prompt, top=TOP, words=options.words, **beams)
                calls.append(clock() - began)
            times.append(min(calls))
            found.append(sum(record["probability"] for record in records))
            hits += any(record["text"].startswith(word) for record in records)
        median, slow = (f"{1e3 * np.quantile(times, share):.1f} ms" for share in (0.5, 0.95))
        size = f"{run.summary.get('parameters') or 0:,}"
        print(f"{path.name:<24}{size:>12}{median:>10}{slow:>10}{np.mean(found):>13.3f}{hits / len(cuts):>8.0%}")


if __name__ == "__main__":
    main()
