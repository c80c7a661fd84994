"""What a tagger learns from its training part before training: tags, words and how many steps a row may have."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from ..core.errors import SeriatimError
from ..data.conll import Sentences
from ..data.notes import Notes
from ..data.tagged import Tagged
from ..data.tokenizers import Tokenizer, TokenizerSettings
from ._coder import context_of, fitting
from ._words import WordCoder, WordPart, alphabet, in_text

WORDS = 30_000  # of a vocabulary that was not asked for
MANY = 1_000  # sentences from which on a word that occurs once is better read as unknown


def learn(config: Any, data: Tagged, notes: Notes, tokenizer: Tokenizer | None = None) -> WordCoder:
    """The tags, the words and the characters of the training part."""
    labels = Counter(tag for tags in data.train.tags for tag in tags)
    if len(labels) < 2:
        raise SeriatimError(
            "data.one-tag",
            f'every word of the training part has the tag "{next(iter(labels))}": there is nothing to learn',
            "check the column of the tags: data.target",
        )
    if tokenizer is None:
        tokenizer = _learn_tokenizer(config, data.train)
        notes(f"{tokenizer.kind} tokenizer with {tokenizer.size:,} tokens, learnt from the training part")
    if tokenizer.framed and config.task.characters:
        cause = "BERT's tokenizer gives pieces of words, which have no features of a word's spelling"
        raise SeriatimError("task.characters", cause, "leave task.characters away, or --tokenizer bert")
    shown = ", ".join(tag for tag, _ in labels.most_common(20)) + (" …" if len(labels) > 20 else "")
    notes(f"{len(labels)} tags: {shown}")
    return WordCoder(
        "words", tuple(sorted(labels)), data.scheme, alphabet=alphabet(data.train.words), tokenizer=tokenizer
    )


def _learn_tokenizer(config: Any, train: Sentences) -> Tokenizer:
    texts = [" ".join(words) for words in train.words]
    chosen, least = config.data.tokenizer, config.data.min_count
    if chosen is None and not config.task.characters:  # whoever asks for spellings asks for words
        chosen = fitting(config.model, texts)
    if chosen is None:
        least = (2 if len(train) >= MANY else 1) if least is None else least
        chosen = TokenizerSettings(kind="word", size=WORDS, lowercase=True, min_count=least)
    if chosen.kind in ("word", "wordpiece"):  # the words are apart already
        chosen = chosen.model_copy(update={"punctuation": False})
    end = "" if chosen.kind == "char" else "\n"  # the last word of a sentence and the first of the next are two
    return Tokenizer.train(chosen, (in_text(text, chosen.kind) + end for text in texts))


def in_windows(
    config: Any, coder: WordCoder, parts: dict[str, WordPart], notes: Notes
) -> tuple[WordCoder, dict[str, WordPart]]:
    """The longest row that the model is made for, and windows over what is longer."""
    limited, declared = context_of(config.model)
    limits = [size for size in (config.task.length, declared) if size is not None]
    window = min(limits) if limits else None
    around = 2 if coder.framed else 0
    if window is not None and window <= around:
        cause = f"a window of {window} has no room for a word between [CLS] and [SEP]"
        raise SeriatimError("task.length", cause, "raise --length")
    longest = around + max(int(part.inputs.lengths.max(initial=1)) for part in parts.values())
    if window is not None and longest > window:
        count = sum(int((part.inputs.lengths > window - around).sum()) for part in parts.values())
        notes(f"{count:,} sequences of up to {longest:,} steps are read in windows of {window}, which overlap by half")
        longest = window
    coder = replace(coder, longest=longest, window=longest if limited and window is None else window)
    return coder, {split: coder.cut(part) for split, part in parts.items()}
