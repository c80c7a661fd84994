"""An answer without learning: the names and numbers of the sentence that is nearest to the question.

The sentence that has the most words in common with the question is looked for; of it, the longest run of words that
begin with a capital or a digit and are not in the question. Where there is none, it is the whole sentence.
"""

from __future__ import annotations

import re

SENTENCE = re.compile(r"\S.*?(?:[.!?…](?=\s|$)|[。！？]|$)", re.DOTALL)
WORD = re.compile(r"\w+")
EDGES = ".,;:!?()[]\"'“”„«»"


def nearest(question: str, passage: str) -> str:
    asked = _words(question)
    sentences = [match.group() for match in SENTENCE.finditer(passage)]
    sentence = max(sentences, key=lambda one: len(asked & _words(one)), default=passage)
    return max(_runs(asked, sentence), key=len, default=sentence.strip(EDGES))


def _words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def _runs(asked: set[str], sentence: str) -> list[str]:
    """Names and numbers that stand together; the capital of a first word says nothing."""
    found, begin = [], -1
    for match in re.finditer(r"\S+", sentence):
        core = match.group().strip(EDGES)
        named = core[:1].isdigit() or (core[:1].isupper() and match.start() > 0)
        if not named or core.lower() in asked:
            begin = -1
            continue
        begin = match.start() if begin < 0 else begin
        found.append(sentence[begin : match.end()].strip(EDGES))
        if match.group()[-1] in EDGES:  # a comma parts two names
            begin = -1
    return found
