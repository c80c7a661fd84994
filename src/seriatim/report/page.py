"""The parts of a page: escaped text, tables, pictures for both grounds. One file, no script, nothing from outside."""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.measures import finite
from . import looks
from .text import LONGEST, cut, visible

if TYPE_CHECKING:
    import altair as alt

FULL = 1_300  # pixels of a picture from which on it is not made to fit, since its letters would be too small


def escape(text: Any) -> str:
    """Anything, safe to stand in a page and in an attribute."""
    return html.escape(visible(cut(str(text))), quote=True)


def number(value: Any, text: str) -> str:
    """What people read, with the exact value beside it for programs."""
    return text if finite(value) is None else f'<data value="{value!r}">{escape(text)}</data>'


def section(title: str, *parts: str) -> str:
    """Nothing where there is nothing to say."""
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    items = "\n".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="plain">\n{items}\n</ul>' if items else ""


def noticed(texts: Iterable[str]) -> str:
    """Sentences of which the first part, up to a bracket, colon or semicolon, can be read alone."""
    items = []
    for text in texts:
        end = re.search(r" \(|[:;] ", text)
        lead, rest = (text[: end.start()], text[end.start() :]) if end else ("", text)
        items.append(f"<li><strong>{escape(lead)}</strong>{escape(rest)}</li>" if lead else f"<li>{escape(rest)}</li>")
    return '<ul class="lessons">\n' + "\n".join(items) + "\n</ul>" if items else ""


def headline(figures: Sequence[tuple[str, str, str]]) -> str:
    """Large figures: name, value, remark."""
    cells = []
    for name, value, remark in figures:
        small = f"<small>{escape(remark)}</small>" if remark else ""
        cells.append(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{small}</dd></div>")
    return '<dl class="figures">\n' + "\n".join(cells) + "\n</dl>"


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and what they mean."""
    items = "\n".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs)
    return f'<dl class="words">\n{items}\n</dl>' if items else ""


def group(kind: str, parts: Iterable[str]) -> str:
    return f'<div class="{kind}">\n' + "\n".join(parts) + "\n</div>"


def table(
    caption: str, heads: Sequence[str], rows: Iterable[str], kind: str = "", title: str = "", texts: Sequence[int] = ()
) -> str:
    """`heads` are texts, `rows` ready lines, the columns of `texts` stand left; wide tables scroll by themselves, and
    by keyboard too."""
    marks = [' class="text"' if index in texts else "" for index in range(len(heads))]
    columns = "".join(f'<th scope="col"{mark}>{escape(head)}</th>' for head, mark in zip(heads, marks, strict=True))
    name = f' class="{kind}"' if kind else ""
    body = "\n".join(rows)
    strong = f"<strong>{escape(title)}</strong> " if title else ""
    return (
        f'<div class="scroll" role="region" aria-label="{escape(title or caption)}" tabindex="0">\n<table{name}>\n'
        f"<caption><span>{strong}{escape(caption)}</span></caption>\n<thead><tr>{columns}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def dot(colours: tuple[str, str]) -> str:
    return f'<span class="dot" style="--light:{colours[0]};--dark:{colours[1]}"></span>'


def sample(title: str, remark: str, text: str, mark: str = "") -> str:
    body = f"<pre>{escape(text)}</pre>" if text.strip() else '<p class="empty">nothing was produced</p>'
    return f"<article>\n<h3>{mark}{escape(title)} <span>{escape(remark)}</span></h3>\n{body}\n</article>"


def folded(title: str, body: str) -> str:
    return f"<details>\n<summary>{escape(title)}</summary>\n{body}\n</details>"


def block(text: str) -> str:
    return f'<pre class="block">{html.escape(visible(cut(text, 20 * LONGEST)))}</pre>'


def picture(chart: alt.TopLevelMixin, label: str, kind: str = "") -> str:
    """A chart in the colours for light grounds; where the reader's ground is dark, the style of the page puts others in
    their place, and paper has the light ones."""
    return figure(looks.svg(chart), label, kind)


def figure(svg: str, label: str, kind: str = "") -> str:
    """SVG in those colours, as a part of a page."""
    size = re.search(r'\bwidth="([\d.]+)"', svg)
    kinds = f"{kind} full" if kind and size and float(size[1]) > FULL else kind
    opening = f'<figure class="{kinds}" tabindex="0">' if kind else "<figure>"  # wide ones scroll, by keyboard too
    return f"{opening}\n{_inline(svg, label)}\n</figure>"


def _swaps() -> str:
    """Rules that turn the colours of pictures into those for a dark ground."""
    rules = [
        f'  figure [{part}="{light}"] {{ {part}: {dark}; }}'
        for light, dark in looks.PAIRS.items()
        for part in ("fill", "stroke")
    ]
    return "@media screen and (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}\n"


def _inline(svg: str, label: str) -> str:
    """SVG as a part of a page: no namespaces (HTML knows them), names of its own, and a text for those who listen."""
    prefix = f"p{zlib.crc32(svg.encode()):08x}-"
    svg = visible(svg[svg.index("<svg") :])
    opening, rest = svg[: svg.index(">") + 1], svg[svg.index(">") + 1 :]
    opening = re.sub(r'\s(xmlns(:\w+)?|version|class|role|aria-[\w-]+)="[^"]*"', "", opening)
    opening = opening.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    rest = re.sub(r'\s(role|aria-[\w-]+)="[^"]*"', "", rest)
    rest = re.sub(r'\bid="([^"]*)"', rf'id="{prefix}\1"', rest)
    rest = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}\1)", rest)
    rest = re.sub(r'\bhref="#([^"]*)"', rf'href="#{prefix}\1"', rest)
    return f"{opening}<title>{escape(label)}</title>{rest}"


def page(title: str, over: str, lead: str, sections: Sequence[str], foot: str) -> str:
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8") + _swaps()
    body = "\n".join(part for part in sections if part)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<p class="over">{escape(over)}</p>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
</header>
<main>
{body}
</main>
<footer><p>{escape(foot)}</p></footer>
</body>
</html>
"""
