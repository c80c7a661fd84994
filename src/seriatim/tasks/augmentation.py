"""Variants of training texts for distillation: a teacher predicts their targets, and a student learns from them.

A small data set shows a student too little of its teacher. Tang et al. (2019) mask words, replace them by others of the
same part of speech, and take n-grams. Here a variant is one of two, neither of which needs more than the texts:

    span            some consecutive words, so that phrases have predictions of their own
    replacement     the text, with some words replaced by others that follow the same word in another text
"""

from __future__ import annotations

import random
from collections.abc import Iterable

SPAN_SHARE = 0.5  # of the variants
MIN_SPAN = 2  # words
REPLACED_SHARE = 0.25  # of the words in the other variants
START = ""  # before the first word of a text


class TextVariants:
    """Draws variants of texts.

    Args:
        texts: The training texts, by which words are replaced.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.followers: dict[str, list[str]] = {}  # word → all that follow it, as often as they do
        for text in texts:
            previous = START
            for word in text.split():
                self.followers.setdefault(previous, []).append(word)
                previous = word

    def draw(self, text: str, generator: random.Random) -> str:
        """Returns a variant of a text; one of a single word stays as it is."""
        words = text.split()
        if len(words) > MIN_SPAN and generator.random() < SPAN_SHARE:
            length = generator.randint(MIN_SPAN, len(words) - 1)
            start = generator.randint(0, len(words) - length)
            return " ".join(words[start : start + length])
        previous = START
        for position, word in enumerate(words):
            if generator.random() < REPLACED_SHARE:
                words[position] = generator.choice(self.followers.get(previous) or [word])
            previous = word
        return " ".join(words)
