"""Text from outside, made fit to stand in a page or a picture."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 4_000  # characters of a text from outside

# Control characters would vanish or break the page: those of ASCII have pictures of their own in Unicode. What no
# UTF-8 file can hold (lone surrogates), no page may (C1, non-characters), or what turns round the text beside it
# (overrides and isolates of direction) becomes the replacement character.
CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "␡"}
UNFIT = re.compile("[\u0080-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def visible(text: str) -> str:
    return UNFIT.sub("\ufffd", text.translate(CONTROLS))


def cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[:longest] + " …"


def label(text: object, longest: int = 40) -> str:
    """One short line for a picture."""
    line = " ".join(visible(str(text)).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def letters(text: str) -> int:
    """How wide a text is, in letters: those of Chinese, Japanese and Korean, and pictures, count two, marks upon others
    none."""
    return sum(
        0 if unicodedata.category(one) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )
