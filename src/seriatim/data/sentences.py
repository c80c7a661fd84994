"""Where a sentence ends: good enough for English and its neighbours, and for Chinese and Japanese.

A sentence ends behind . ! ? … (and their kin in other scripts) with the quotes and brackets that close there, where
white space follows and then no small letter; and behind 。！？ wherever they stand. A full stop does not end a sentence
behind an initial ("H. gammarus", "U.S.") or a common abbreviation. Text whose punctuation stands apart, as WikiText's
does, is split by the same rules.
"""

from __future__ import annotations

import re

CLOSING = "\"'”’»)\\]}"
WIDE_CLOSING = "」』”’）】》"
# What may end a sentence: followed by white space, or of full width.
END = re.compile(rf"[.!?…؟۔।]+[{CLOSING}]*(?=\s)|[。！？．｡]+[{WIDE_CLOSING}]*")
WORD_BEFORE = re.compile(r"[^\s(\[{\"'“‘«—–-]*\Z")
INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
# fmt: off
ABBREVIATIONS = frozenset({
    "adm", "al", "approx", "assoc", "ave", "brig", "bros", "ca", "capt", "cf", "cmdr", "co", "col", "corp", "cpl",
    "dept", "dr", "ed", "eds", "esp", "est", "etc", "ff", "fr", "ft", "gen", "gov", "hon", "ibid", "inc", "jr", "lt",
    "ltd", "maj", "messrs", "mr", "mrs", "ms", "mt", "mts", "pres", "prof", "pt", "pvt", "rev", "sen", "sgt", "sr",
    "st", "ste", "univ", "viz", "vs",
})
# These only where a number follows: "No. 5", but not "She said no. He left."
NUMBERED = frozenset({
    "art", "ch", "eq", "fig", "figs", "no", "nos", "op", "p", "pp", "vol", "vols", "jan", "feb", "mar", "apr", "jun",
    "jul", "aug", "sep", "sept", "oct", "nov", "dec",
})
# fmt: on


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space between them."""
    found: list[str] = []
    begin = last = 0
    for end in [*(match.end() for match in END.finditer(text) if _ends(text, match)), len(text)]:
        sentence = text[begin:end].strip()
        if found and sentence and not any(character.isalnum() for character in sentence):
            found[-1] = text[last:end].strip()  # a quote or a bracket that closes apart from the full stop
        elif sentence:
            found.append(sentence)
            last = begin
        begin = end
    return found


def _ends(text: str, match: re.Match[str]) -> bool:
    if not match.end() < len(text) or not text[match.end()].isspace():
        return True  # of full width, or the last
    follows = _next(text, match.end())
    if follows.islower():
        return False
    full_stop = match[0][0] == "." and match[0][1:2] != "."
    return not (full_stop and _abbreviates(text, match.start(), follows))


def _next(text: str, place: int) -> str:
    """The first character that is neither white space nor opens a quote or a bracket."""
    while place < len(text) and (text[place].isspace() or text[place] in "\"'“‘«([{¿¡"):
        place += 1
    return text[place : place + 1]


def _abbreviates(text: str, stop: int, follows: str) -> bool:
    """Whether the full stop at this place belongs to the word before it."""
    found = WORD_BEFORE.search(text, max(stop - 20, 0), stop)
    word = found[0].lower() if found else ""
    if word in NUMBERED and follows.isdigit():
        return True
    return word in ABBREVIATIONS or INITIALS.fullmatch(word) is not None
