"""Writes words.txt and characters.txt, the texts of the golden models. Pure arithmetic: the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PATTERNS = "D N V D N, D A N V, D N V P D N, N V P D A N, D A N P D N V D N, Q D N V D N, D N C D N V, V"
WORDS = """
D the a their every no some
N student teacher book exam laptop mind river town winter window letter garden street horse song lamp \
ship stone bread paper field mountain market door clock bird child doctor farmer sailor kettle bridge \
orchard lantern harbour ladder candle meadow valley ferry anvil thimble
V opened closed saw found left kept lost sold carried painted mended crossed remembered praised feared
A old new small quiet bright cold heavy green open late broken patient narrow silver humble
P in near behind under over beside without
C and or
Q yesterday perhaps once then suddenly
"""


def numbers() -> Iterator[float]:
    """A linear congruential generator (Knuth's MMIX): uniform in [0, 1)."""
    state = 2026
    while True:
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        yield (state >> 11) / 2**53


def sentences(count: int) -> list[str]:
    """Cubed numbers favour the first words of a list, so that some n-grams are frequent and many come once."""
    words = {kind: words for kind, *words in map(str.split, WORDS.strip().splitlines())}
    words["N"] += [f"village{i}" for i in range(300)]
    source = numbers()

    def choose(options: list[str]) -> str:
        return options[int(len(options) * next(source) ** 3)]

    return [" ".join(choose(words[kind]) for kind in choose(PATTERNS.split(", ")).split()) for _ in range(count)]


def main() -> None:
    folder = Path(__file__).parent
    # The last new token of a text must come once: lmplz counts the n-grams that end in it by their plain counts.
    words = [*sentences(900), "", "finis"]
    characters = [*sentences(150), "", "finis!"]
    (folder / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    rows = [" ".join("\\s" if c == " " else c for c in line) for line in characters]
    (folder / "characters.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
