"""A picture with what was said of it: for each word the same picture, bright where the model looked and grey elsewhere.

After the figures of Xu et al., "Show, attend and tell" (2015). Each panel has a scale of its own, from no weight to the
largest of its word, whose share is written beside it: so one sees where every word looked, and reads how sharply. The
drawing is SVG by hand: the picture is in it once, however many words there are.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.files import atomic_file, write_text
from ..core.measures import finite, plain
from ._pixels import Picture, light, opened
from ._shapes import frame, image, outline, ring, text, wrapped
from .looks import FAINT, FONT, GROUND, INK, WHOLE, check_ending, data, row
from .numbers import whole
from .page import escape, figure, page, section
from .text import label

if TYPE_CHECKING:
    from .looks import Drawn

WORDS = 60  # panels at most
ACROSS, MANY = 6, 7  # panels beside each other, where they are few and where they are many
PANEL, TALL = 190, 210  # pixels of a panel at most
NARROW = 92  # pixels from panel to panel at least: words want room
FIRST = 240  # pixels of the longer side of the picture as it is
GAP, HEAD, FOOT = 14, 20, 12  # between panels, above a panel for its word, below it
LINE, LARGE = 18, 25  # pixels of a line: of any text, and of the caption
BEST = 9  # captions that are listed
TOLD = 40
FOOT_NOTE = "Everything is in this file: it needs no network."


@dataclass(frozen=True)
class Looked:
    """A view, checked."""

    title: str
    note: str
    picture: Picture
    captions: list[tuple[str, float | None]]  # the best first, with their scores
    words: list[str]
    weights: np.ndarray | None  # (W,h,w) for each word; None where a model does not tell
    boxes: list[tuple[int, str, tuple[float, ...]]]

    @classmethod
    def of(cls, view: dict[str, Any]) -> Looked:
        words = [label(word) or "␣" for word in view.get("words") or ()]
        found = view.get("captions") or [(" ".join(words), None)]
        captions: list[tuple[str, float | None]] = [(label(said, 400), finite(score)) for said, score in found]
        weights = _weights(view, len(words)) if words and view.get("weights") is not None else None
        boxes = [(int(place), str(noun), tuple(map(float, box))) for place, noun, box in view.get("boxes") or ()]
        if any(len(box) != 4 for *_, box in boxes):
            raise ValueError("a box has a left, a top, a right and a bottom")
        title, note, picture = label(view["title"], 100), label(view.get("note") or "", 200), opened(view["picture"])
        return cls(title, note, picture, captions, words, weights, boxes)

    @property
    def caption(self) -> str:
        return self.captions[0][0]

    def spoken(self) -> str:
        """For those who listen: the caption, and where each word looked most."""
        said = f"{self.title}: a picture with the caption “{self.caption}”"
        if self.weights is None:
            return said + "."
        pairs = zip(self.words[:TOLD], self.weights, strict=False)
        parts = [f"{word} – {_region(one)} ({_share(one)})" for word, one in pairs]
        more = " …" if len(self.words) > TOLD else ""
        return f"{said}; where each word looked most: {'; '.join(parts)}{more}."


def _weights(view: dict[str, Any], words: int) -> np.ndarray:
    rows, columns = (int(side) for side in view["grid"])
    found = [[max(finite(value) or 0, 0) for value in row] for row in view["weights"]]
    if rows < 1 or columns < 1 or len(found) != words or any(len(one) != rows * columns for one in found):
        raise ValueError("a picture of attention has a weight for every word and every cell of its grid")
    return np.array(found, dtype=np.float64).reshape(words, rows, columns)


def _peak(one: np.ndarray) -> tuple[float, float] | None:
    """Where the centre of the cell with the largest weight lies, as shares of width and height; of several such cells
    none is the peak."""
    rows, columns = np.nonzero(one == one.max())
    if len(rows) > 1:
        return None
    return (float(columns[0]) + 0.5) / one.shape[1], (float(rows[0]) + 0.5) / one.shape[0]


def _share(one: np.ndarray) -> str:
    return f"{plain(100 * float(one.max()), 0)} %"


def _region(one: np.ndarray) -> str:
    """The peak in words."""
    peak = _peak(one)
    if peak is None:
        return "at several places alike"
    return f"{('upper', '', 'lower')[int(3 * peak[1])]} {('left', 'middle', 'right')[int(3 * peak[0])]}".strip()


def drawing(view: dict[str, Any], width: int = WHOLE, titled: bool = True) -> tuple[str, str]:
    """SVG, and a sentence for those who listen. `picture` is base64 of a PNG; `weights` has for each of `words` a
    weight for every cell of a `grid` of rows and columns; `boxes` are (place among the words, noun, (left, top, right,
    bottom) in pixels of the picture); `captions` are those that were found with their scores, the best first."""
    looked = Looked.of(view)
    kept = "".join(
        f'<image id="{name}" width="1" height="1" preserveAspectRatio="none" href="{found}"/>'
        for name, found in (("clear", looked.picture.shown), ("faded", looked.picture.faded))
    )
    head, top = _head(looked, width, titled)
    body, bottom = _body(looked, width, top) if looked.weights is not None else ("", top)
    spoken = looked.spoken()
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(spoken)}" width="{width}" '
        f'height="{bottom:.0f}" viewBox="0 0 {width} {bottom:.0f}" font-family="{FONT}">'
    )
    return f"{opening}<defs>{kept}</defs>{head}{body}</svg>", spoken


def _head(looked: Looked, width: int, titled: bool) -> tuple[str, float]:
    """The title, the picture as it is, and beside it the caption and the others that were found."""
    ratio = looked.picture.width / looked.picture.height
    wide, tall = min(FIRST, FIRST * ratio), min(FIRST, FIRST / ratio)
    parts = [text(0, 14, looked.title, 13, INK, weight=600)] if titled else []
    top = 30.0 if titled else 1.0
    parts += [image("clear", 0, top, wide, tall), frame(0, top, wide, tall)]
    x, y = wide + 26, top + 16
    for line in wrapped(looked.caption, (width - x) / 9.4):
        parts.append(text(x, y, line, 18, INK, weight=600))
        y += LARGE
    if looked.note:
        parts.append(text(x, y, looked.note, 11.5, FAINT))
        y += LINE
    if any(score is not None for _, score in looked.captions):
        y += 6
        parts.append(text(x, y, "log-probability", 11.5, FAINT))
        for said, score in looked.captions[:BEST]:
            y += LINE
            parts.append(text(x + 46, y, plain(score, 2), 12, FAINT, anchor="end"))
            parts.append(text(x + 58, y, label(said, int((width - x - 58) / 6.2)), 12, INK))
        y += LINE
    return "".join(parts), max(top + tall, y - LINE) + 22


def _body(looked: Looked, width: int, top: float) -> tuple[str, float]:
    """A panel for each word, below the lines that say how to read them."""
    assert looked.weights is not None  # the caller asked
    ratio, count = looked.picture.width / looked.picture.height, min(len(looked.words), WORDS)
    rows = -(-count // (ACROSS if count <= 2 * ACROSS else MANY))
    across = -(-count // rows)
    wide = min(PANEL, (width - (across - 1) * GAP) / across, TALL * ratio)
    tall = wide / ratio
    key, top = _key(looked, width, top)
    parts = [key]
    for place in range(count):
        x, y = place % across * max(wide + GAP, NARROW), top + place // across * (HEAD + tall + FOOT)
        parts.append(_panel(looked, place, (x, y, wide, tall)))
    return "".join(parts), top + rows * (HEAD + tall + FOOT)


def _key(looked: Looked, width: int, top: float) -> tuple[str, float]:
    """How to read the panels: signs first, then what they stand for."""
    assert looked.weights is not None
    cells = looked.weights[0].size
    even = f"{whole(cells)} cells, so {plain(100 / cells, 0)} % in each where it looks everywhere alike"
    hints = [f"beside each word: the share of its attention in the cell of the peak ({even})"]
    hints += [f"the first {WORDS} of {whole(len(looked.words))} words"] if len(looked.words) > WORDS else []
    band = 0.0, top, 84.0, 11.0
    fade = '<linearGradient id="fade"><stop stop-color="#000"/><stop offset="1" stop-color="#fff"/></linearGradient>'
    parts = [
        f'<defs>{fade}<mask id="key" maskUnits="userSpaceOnUse" x="0" y="{top:g}" width="84" height="11">'
        f'<rect y="{top:g}" width="84" height="11" fill="url(#fade)"/></mask></defs>',
        image("faded", *band) + image("clear", *band, mask="key") + frame(*band),
        text(92, top + 10, "not looked at … looked at most", 11.5, FAINT) + ring(280, top + 5.5, 4.5),
        text(291, top + 10, "the peak", 11.5, FAINT),
    ]
    if looked.boxes:
        parts.append(outline(358, top + 0.5, 15, 10) + text(380, top + 10, "what is named", 11.5, FAINT))
    for hint in hints:
        top += LINE
        parts.append(text(0, top + 10, label(hint, int(width / 5.6)), 11.5, FAINT))
    return "".join(parts), top + LINE + 8


def _panel(looked: Looked, place: int, where: tuple[float, float, float, float]) -> str:
    assert looked.weights is not None
    one, word = looked.weights[place], looked.words[place]
    x, y, wide, tall = where
    share, box = _share(one), (x, y + HEAD, wide, tall)
    peak = _peak(one)
    named = "".join(_named(looked.picture, found, box) for found in _boxes(looked, place))
    wider = max(wide, NARROW - GAP)
    room = max(int((wider - 6.5 * len(share) - 6) / 7), 3)
    size = f'x="{x:g}" y="{box[1]:g}" width="{wide:g}" height="{tall:g}"'
    lit = light(one, looked.picture.width / looked.picture.height)
    return (
        f"<g><title>{escape(word)}: {escape(share)} {escape(_region(one))}</title>"
        + text(x, y + 13, label(word, room), 12.5, INK, weight=600)
        + text(x + wider, y + 13, share, 11.5, FAINT, anchor="end")
        + f'<mask id="light{place}" maskUnits="userSpaceOnUse" {size}>'
        + f'<image {size} preserveAspectRatio="none" href="{lit}"/></mask>'
        + image("faded", *box)
        + image("clear", *box, mask=f"light{place}")
        + frame(*box)
        + named
        + (ring(x + peak[0] * wide, box[1] + peak[1] * tall, 4.5) if peak is not None else "")
        + "</g>"
    )


def _boxes(looked: Looked, place: int) -> list[tuple[float, ...]]:
    """Of what a word names: a noun may have several words."""
    return [box for first, noun, box in looked.boxes if first <= place < first + max(len(noun.split()), 1)]


def _named(picture: Picture, found: tuple[float, ...], box: tuple[float, float, float, float]) -> str:
    """A box of the picture, in a panel."""
    x, y, wide, tall = box
    left, right = (min(max(side / picture.width, 0), 1) * wide for side in (found[0], found[2]))
    top, bottom = (min(max(side / picture.height, 0), 1) * tall for side in (found[1], found[3]))
    return outline(x + left, y + top, max(right - left, 1), max(bottom - top, 1))


def overlay(view: dict[str, Any], width: int = WHOLE) -> Drawn:
    """The drawing as a chart, to stand below others."""
    import altair as alt

    svg, spoken = drawing(view, width)
    height = float(svg.partition('height="')[2].partition('"')[0])
    address = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")
    mark = data([{"url": address}]).mark_image(width=width, height=height, align="left", baseline="top")
    chart = alt.layer(mark.encode(x=alt.value(0), y=alt.value(0), url="url:N"))
    return row([chart.properties(width=width, height=height)]), spoken


def part(view: dict[str, Any]) -> str:
    """The drawing as a part of a page."""
    return figure(*drawing(view), "wide")


def save(view: dict[str, Any], path: str | Path) -> None:
    """A page of its own (.html), a picture (.png, .svg), or the figures (.json)."""
    import vl_convert

    path = Path(path)
    check_ending(path)
    ending = path.suffix.lower()
    if ending == ".json":
        kept = {name: value for name, value in view.items() if name not in ("kind", "picture")}
        write_text(path, json.dumps(kept, ensure_ascii=False) + "\n")
    elif ending == ".html":
        save_page([view], path)
    elif ending == ".svg":
        write_text(path, _grounded(drawing(view)[0]))
    else:
        with atomic_file(path) as aside:
            aside.write_bytes(vl_convert.svg_to_png(_grounded(drawing(view)[0]), scale=2))


def save_page(views: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Pictures one below the other, as a page."""
    titles = [label(view["title"], 100) for view in views]
    parts = [figure(*drawing(view, titled=False), "wide") for view in views]
    if len(views) == 1:
        title, sections = titles[0], parts
    else:
        title = f"{whole(len(views))} pictures"
        sections = [section(one, part) for one, part in zip(titles, parts, strict=True)]
    write_text(Path(path), page(title, "Seriatim · caption", "", sections, FOOT_NOTE))


def _grounded(svg: str) -> str:
    """With a ground and a margin, for a picture that stands alone."""
    opening, _, rest = svg.partition(">")
    size = opening.partition('viewBox="0 0 ')[2].partition('"')[0]
    width, height = map(int, size.split())
    for name, length in (("width", width), ("height", height)):
        opening = opening.replace(f'{name}="{length}"', f'{name}="{length + 24}"', 1)
    opening = opening.replace(f"0 0 {size}", f"-12 -12 {width + 24} {height + 24}", 1)
    ground = f'<rect x="-12" y="-12" width="{width + 24}" height="{height + 24}" fill="{GROUND[0]}"/>'
    return f"{opening}>{ground}{rest}"
