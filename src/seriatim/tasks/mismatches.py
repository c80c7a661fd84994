"""Why another run cannot be the teacher of a distillation: its outputs do not correspond to those of the student."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.tokenizers import Tokenizer

MAX_LISTED = 8  # names in a sentence


def name_mismatches(names: Sequence[str], teacher_names: Sequence[str], noun: str) -> list[str]:
    """Returns sentences about the names that only one of two models has; their order does not matter.

    Args:
        names: The student's, such as labels or tokens.
        teacher_names: The teacher's.
        noun: What they name, in the singular.
    """
    sentences = []
    for owner, own, others in (("this model", names, set(teacher_names)), ("the teacher", teacher_names, set(names))):
        if only := [name for name in own if name not in others]:
            listed = ", ".join(f'"{name}"' for name in only[:MAX_LISTED]) + (" …" if len(only) > MAX_LISTED else "")
            count = f"the {noun}" if len(only) == 1 else f"{len(only)} {noun}s"
            sentences.append(f"only {owner} has {count}: {listed}")
    return sentences


def length_mismatches(noun: str, length: int, limit: int | None) -> list[str]:
    """Returns a sentence if sequences may be longer than the limit of the teacher.

    Args:
        noun: The sequences, in the plural.
        length: The longest that the student reads.
        limit: The longest that the teacher reads; None for any.
    """
    if limit is None or length <= limit:
        return []
    return [f"{noun} have up to {length} elements, the teacher reads {limit} (--context-length)"]


def tokenizer_mismatches(tokenizer: Tokenizer, teacher: Tokenizer, side: str = "") -> list[str]:
    """Returns sentences about two tokenizers, which must give every text the same ids.

    Args:
        tokenizer: The student's.
        teacher: The teacher's.
        side: "source" or "target" of an encoder–decoder, before each sentence.
    """
    if tokenizer.to_json() == teacher.to_json():
        return []
    sentences = name_mismatches(tokenizer.names, teacher.names, "token")
    if tokenizer.kind != teacher.kind:
        sentences.insert(0, f"its tokenizer is of kind {tokenizer.kind}, the teacher's of kind {teacher.kind}")
    prefix = f"{side}: " if side else ""
    return [prefix + text for text in sentences or ["the tokens are equal, but texts are tokenized differently"]]
