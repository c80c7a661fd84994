"""Errors for the user: a stable code, the cause and the remedy.

Exit codes: 0 success, 1 a failure the user could not foresee, 2 a user's mistake, 130 and 143 stopped by Ctrl-C and
SIGTERM.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SeriatimError(Exception):
    """An error the user can act on: `code` is stable, `cause` is what happened, `remedy` what to do."""

    def __init__(self, code: str, cause: str, remedy: str = "", *, exit_code: int = 2) -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause
        self.remedy = remedy
        self.exit_code = exit_code

    def __str__(self) -> str:
        remedy = f"\n  remedy: {self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.cause}{remedy}"


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Returns 'did you mean "width"?', or the list of candidates if none is similar."""
    names = sorted(candidates)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"choose from: {', '.join(names)}" if names else ""
