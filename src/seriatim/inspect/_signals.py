"""What one can say of each place of a text by rule: where it stands in its line, whether inside quotes, …

Each signal is a number for every character; that of a token is the mean over its characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

OPENING, CLOSING = "([{（「『【〔", ")]}）」』】〕"
QUOTES = {"“": "”", "«": "»", "„": "“", "‹": "›"}  # opening and closing; straight ones are both
STOPS = ".!?。！？؟"


def position_in_line(text: str) -> list[float]:
    return _since(text, lambda letter: letter == "\n")


def position_in_sentence(text: str) -> list[float]:
    return _since(text, lambda letter: letter in STOPS)


def position_in_word(text: str) -> list[float]:
    return _since(text, lambda letter: not letter.isalnum())


def length_of_line_before(text: str) -> list[float]:
    found: list[float] = []
    before = 0
    for line in text.splitlines(keepends=True):
        found += [before] * len(line)
        before = len(line)
    return found


def inside_quotes(text: str) -> list[float]:
    """Straight quotes open and close in turn, and none stays open over an empty line."""
    found: list[float] = []
    closing = ""
    for place, letter in enumerate(text):
        if closing and text[place - 1 : place + 1] == "\n\n":
            closing = ""
        found.append(float(bool(closing)))
        if closing and letter == closing:
            closing = ""
        elif not closing and (letter == '"' or letter in QUOTES):
            closing = QUOTES.get(letter, '"')
    return found


def inside_brackets(text: str) -> list[float]:
    """How many are open."""
    found: list[float] = []
    depth = 0
    for letter in text:
        found.append(float(depth))
        depth = depth + 1 if letter in OPENING else max(depth - 1, 0) if letter in CLOSING else depth
    return found


def inside_word(text: str) -> list[float]:
    return [float(letter.isalnum()) for letter in text]


def upper_case(text: str) -> list[float]:
    return [float(letter.isupper()) for letter in text]


def word_in_capitals(text: str) -> list[float]:
    """Whole words of two letters or more."""
    found: list[float] = []
    for word in _words(text):
        found += [float(len(word) > 1 and word.isupper())] * len(word)
    return found


def digit(text: str) -> list[float]:
    return [float(letter.isdigit()) for letter in text]


def punctuation(text: str) -> list[float]:
    return [float(not letter.isalnum() and not letter.isspace()) for letter in text]


SIGNALS: dict[str, Callable[[str], list[float]]] = {
    "position in the line": position_in_line,
    "position in the sentence": position_in_sentence,
    "position in the word": position_in_word,
    "length of the line before": length_of_line_before,
    "inside quotes": inside_quotes,
    "inside brackets": inside_brackets,
    "inside a word": inside_word,
    "upper case": upper_case,
    "a word in capitals": word_in_capitals,
    "digits": digit,
    "punctuation": punctuation,
}


def signals(text: str, spans: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    """For tokens that stand from `start` to `end` in a text; what does not vary over them says nothing and is left
    out."""
    found = {}
    for name, rule in SIGNALS.items():
        sums = np.concatenate([[0.0], np.cumsum(rule(text))])
        values = np.array([(sums[end] - sums[start]) / max(end - start, 1) for start, end in spans])
        if len(values) and values.std() > 0:
            found[name] = values
    return found


def _since(text: str, ends: Callable[[str], bool]) -> list[float]:
    """Characters since one that ends something."""
    found: list[float] = []
    count = 0
    for letter in text:
        found.append(float(count))
        count = 0 if ends(letter) else count + 1
    return found


def _words(text: str) -> list[str]:
    """A text cut where letters begin and end."""
    found: list[str] = []
    for letter in text:
        if found and found[-1][-1].isalnum() == letter.isalnum():
            found[-1] += letter
        else:
            found.append(letter)
    return found
