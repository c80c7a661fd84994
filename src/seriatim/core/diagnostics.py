"""Diagnostics: the notes and problems that the stages of reading and checking data collect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import SeriatimError

MAX_LISTED = 10


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

    def report(self, code: str, cause: str, remedy: str = "") -> None:
        """Records a problem without raising it, so that one run shows all of them."""
        self.problems.append(SeriatimError(code, cause, remedy))

    def raise_problems(self) -> None:
        """Raises the problems reported since the last call as one error; returns if there are none."""
        problems, self.problems = self.problems, []
        if len(problems) == 1:
            raise problems[0]
        if problems:
            lines = [f"    {problem.cause}" for problem in problems[:MAX_LISTED]]
            more = f"\n    and {len(problems) - MAX_LISTED:,} more" if len(problems) > MAX_LISTED else ""
            remedies = dict.fromkeys(problem.remedy for problem in problems if problem.remedy)
            cause = f"{len(problems):,} problems\n" + "\n".join(lines) + more
            raise SeriatimError(problems[0].code, cause, "; ".join(remedies))
