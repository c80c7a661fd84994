"""Rows for a terminal, in columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..report.text import label, letters

LONGEST = 40  # letters of a cell, but of the last


def aligned(rows: Sequence[Sequence[object]], texts: Collection[int] = (0,)) -> list[str]:
    """Cells below each other; the columns that are `texts` stand left, the others right."""
    last = len(rows[0]) - 1
    cells = [[label(cell, LONGEST if index < last else 400) for index, cell in enumerate(row)] for row in rows]
    widths = [max(map(letters, column)) for column in zip(*cells, strict=True)]
    found = []
    for row in cells:
        gaps = [" " * (width - letters(cell)) for cell, width in zip(row, widths, strict=True)]
        found.append("  ".join(c + g if n in texts else g + c for n, (c, g) in enumerate(zip(row, gaps, strict=True))))
    return [line.rstrip() for line in found]
