"""Marks of drawings that are written as SVG by hand, in the colours that a page turns for a dark ground."""

from __future__ import annotations

from .looks import ACCENT, GRID, GROUND, SECOND
from .page import escape
from .text import letters


def text(
    x: float, y: float, said: str, size: float, ink: tuple[str, str], weight: int = 400, anchor: str = "start"
) -> str:
    more = (f' font-weight="{weight}"' if weight != 400 else "") + (
        f' text-anchor="{anchor}"' if anchor != "start" else ""
    )
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{ink[0]}"{more}>{escape(said)}</text>'


def wrapped(said: str, room: float) -> list[str]:
    """A text as lines of so many letters; a word that is longer has its own."""
    lines = [""]
    for word in said.split():
        joined = f"{lines[-1]} {word}".strip()
        lines[-1:] = [joined] if letters(joined) <= room or not lines[-1] else [lines[-1], word]
    return lines


def image(name: str, x: float, y: float, wide: float, tall: float, mask: str = "") -> str:
    """What stands once among the definitions, one pixel large, at a place of its own."""
    shown = f'<use href="#{name}" transform="translate({x:g} {y:g}) scale({wide:g} {tall:g})"/>'
    return f'<g mask="url(#{mask})">{shown}</g>' if mask else shown


def frame(x: float, y: float, wide: float, tall: float) -> str:
    """A line along the rim of a picture."""
    size = f'x="{x + 0.5:g}" y="{y + 0.5:g}" width="{wide - 1:g}" height="{tall - 1:g}"'
    return f'<rect {size} fill="none" stroke="{GRID[0]}"/>'


def outline(x: float, y: float, wide: float, tall: float) -> str:
    """The box of a thing, seen on any ground."""
    size = f'x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" fill="none"'
    return (
        f'<rect {size} stroke="{GROUND[0]}" stroke-width="3" stroke-opacity="0.85"/>'
        f'<rect {size} stroke="{ACCENT[0]}" stroke-width="1.5" stroke-dasharray="4 2.5"/>'
    )


def ring(x: float, y: float, radius: float) -> str:
    """A point, seen on any ground."""
    size = f'cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="none"'
    return (
        f'<circle {size} stroke="{GROUND[0]}" stroke-width="4" stroke-opacity="0.85"/>'
        f'<circle {size} stroke="{SECOND[0]}" stroke-width="2"/>'
    )
