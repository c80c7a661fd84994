"""Errors for the user: a stable code, the cause and the remedy; and diagnostics, which collect several of them.

Exit codes: 0 success, 1 a failure the user could not foresee, 2 a user's mistake, 130 and 143 stopped by Ctrl-C and
SIGTERM.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .text import listed


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


@dataclass
class Diagnostics:
    """Collects notes and problems. Training calls `raise_problems` after each stage; `data check` lists them all.

    Args:
        on_note: Called with each note as it is made, such as a logger.
    """

    on_note: Callable[[str], None] | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[SeriatimError] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Records something the user should know, such as a guessed column."""
        self.notes.append(text)
        if self.on_note is not None:
            self.on_note(text)

    def guess(self, text: str) -> None:
        """Records a guess that may be wrong: a note, or a Python warning if there is no `on_note`."""
        self.note(text)
        if self.on_note is None:
            warnings.warn(text, UserWarning, stacklevel=3)

    def report(self, code: str, cause: str, remedy: str = "") -> None:
        """Records a problem without raising it, so that one run shows all of them."""
        self.problems.append(SeriatimError(code, cause, remedy))

    def raise_problems(self) -> None:
        """Raises the problems reported since the last call as one error; returns if there are none."""
        problems, self.problems = self.problems, []
        if len(problems) == 1:
            raise problems[0]
        if problems:
            remedies = dict.fromkeys(problem.remedy for problem in problems if problem.remedy)
            causes = listed([problem.cause for problem in problems], separator="\n    ")
            cause = f"{len(problems):,} problems\n    {causes}"
            raise SeriatimError(problems[0].code, cause, "; ".join(remedies))
