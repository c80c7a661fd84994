"""What is learnt from questions before a model learns: tokens, windows, how long answers are; and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.errors import SeriatimError
from ..core.tensors import without_contents
from ..data.notes import Notes
from ..data.questions import Questions
from ..data.tokenizers import Tokenizer
from ..nn.backbone import Backbone
from ._coder import context_of, learn_tokenizer
from ._spans import UNKNOWN, SpanCoder, SpanPart

USUAL = 30  # tokens of an answer at most, but where many answers of the training part are longer
LEAST = 8  # elements of a row in which question and passage both have some room


def may_be_silent(settings: Any, train: Questions, notes: Notes) -> bool:
    """Whether a question may have no answer: as the settings say, or the training part."""
    if settings.unanswerable is not None:
        return bool(settings.unanswerable)
    found = any(not one.answers for one in train.asked)
    if found:
        notes("questions may have no answer (task.unanswerable)")
    return found


def answerable(part: Questions, split: str, unanswerable: bool, notes: Notes) -> Questions:
    """Where every question is to have an answer, those that do."""
    there = [one for one in part.asked if one.answers]
    if unanswerable or len(there) == len(part.asked):
        return part
    notes(f"{split}: left out {len(part.asked) - len(there):,} questions without an answer (task.unanswerable)")
    return replace(part, asked=there)


def learn(config: Any, train: Questions, unanswerable: bool, tokenizer: Tokenizer | None, notes: Notes) -> SpanCoder:
    """The tokenizer of the training part, and what a row may hold."""
    if tokenizer is None:
        texts = [*train.used, *(one.text for one in train.asked)]
        tokenizer = learn_tokenizer(texts, config.data.tokenizer, config.model, notes)
    _, declared = context_of(config.model)
    window = config.task.length if declared is None else min(config.task.length, declared)
    if window < LEAST:
        cause = f"a model that takes {window} elements has no room for a question and a passage"
        raise SeriatimError("task.length", cause, f"raise model.context to {LEAST} or more")
    question = min(config.task.question, (window - 2) // 2)
    with without_contents():
        backbone: Backbone = config.model.build(config.model.input_width(tied=False), 1)
    closing = backbone.causal or not tokenizer.framed  # the first element of what looks back only has seen nothing
    return SpanCoder(tokenizer, unanswerable, window, config.task.stride, question, USUAL, closing)


def fitted(config: Any, coder: SpanCoder, parts: dict[str, SpanPart]) -> SpanCoder:
    """The same with what the parts say: the longest row, and how long answers are."""
    longest = max(int(part.inputs.lengths.max(initial=1)) for part in parts.values())
    limited, declared = context_of(config.model)
    open_ended = limited and declared is None  # the model is made for the longest row
    true = parts["train"].true
    sizes = (true[:, 1] - true[:, 0] + 1)[true[:, 0] != UNKNOWN]
    usual = max(USUAL, int(np.quantile(sizes, 0.99, method="higher"))) if len(sizes) else USUAL
    answer = usual if config.task.longest is None else config.task.longest
    return replace(coder, longest=longest, window=longest if open_ended else coder.window, answer=answer)


def tell(coder: SpanCoder, parts: dict[str, SpanPart], notes: Notes) -> None:
    """What of the data does not fit."""
    for split, part in parts.items():
        several = int(np.count_nonzero(np.bincount(part.inputs.question, minlength=1) > 1))
        if several:
            notes(f"{split}: the passages of {_count(several, 'question')} are read in windows of {coder.window}")
        if part.cut:
            cut = _count(part.cut, "question")
            notes(f"{split}: {cut} of over {coder.question} tokens, of which the first are read")
        if part.inexact:
            inexact = _count(part.inexact, "answer")
            notes(f"{split}: {inexact} with a begin or end within a token, which cannot be given to the letter")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
