"""Errors that reach the user: a code to search for, the cause, and the remedy.

Exit codes: 0 all went well, 1 something failed that the user could not foresee, 2 the user's mistake,
130 and 143 stopped by Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SeriatimError(Exception):
    """Something the user can act on. `code` is stable, `cause` says what happened, `remedy` what to do."""

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
    """'did you mean "width"?', or the list of candidates where none is near."""
    names = sorted(candidates)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"choose from: {', '.join(names)}" if names else ""
