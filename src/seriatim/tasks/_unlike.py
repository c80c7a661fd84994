"""In what the outputs of two models differ: a student can only learn from a teacher that answers in the same terms."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.tokenizers import Tokenizer

FEW = 8  # names that a sentence lists


def unlike_names(ours: Sequence[str], theirs: Sequence[str], what: str) -> list[str]:
    """Sentences about names that only one of two models has; their order does not matter."""
    sides = (("this model", ours, theirs), ("the teacher", theirs, ours))
    found = []
    for who, own, others in sides:
        if only := [name for name in own if name not in set(others)]:
            found.append(f"only {who} has {'the' if len(only) == 1 else len(only)} {what}{_s(only)}: {listed(only)}")
    return found


def unlike_tokens(ours: Tokenizer, theirs: Tokenizer, whose: str = "") -> list[str]:
    """Sentences about two vocabularies, which must give the same numbers to the same texts."""
    if ours.to_json() == theirs.to_json():
        return []
    names = unlike_names(ours.names, theirs.names, "token")
    kinds = [f"its tokens are of the kind {ours.kind}, the teacher's {theirs.kind}"] if ours.kind != theirs.kind else []
    rest = [] if names or kinds else ["the tokens are the same, but texts are not cut into them in the same way"]
    of = f"{whose}: " if whose else ""
    return [of + text for text in (*kinds, *names, *rest)]


def listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names[:FEW]) + (" …" if len(names) > FEW else "")


def _s(names: Sequence[str]) -> str:
    return "" if len(names) == 1 else "s"
