"""What a report shows of a translator: quality by the length of the source, where it looked, the worst and the median
sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.measures import title
from ..decode.options import TranslateSettings
from . import _bleu
from ._bleu import Manner, Wanted
from ._translator import Interpreter

# Of all sentences, up to which share each bin goes: many where most of them are, few where they become long and rare.
SHARES = (0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0)
LEAST = 20  # sentences of a bin
SHOWN = 10  # sentences of a table
REFERENCES = 3
LOOKED_AT = (0.5, 0.8)  # of all sentences that are looked at, how long, as a quantile
FIELDS = 30  # tokens of such a sentence at most


def views(said: Sequence[str], wanted: Wanted, manner: Manner, interpreter: Interpreter) -> list[dict[str, Any]]:
    measures = ["exact_match", "bleu"] if manner.closed else ["bleu"]
    found = [view for name in measures for view in by_length(said, wanted, manner, name)]
    return [*found, *_looks(said, wanted, interpreter), *_sentences(said, wanted)]


def answers(interpreter: Interpreter, texts: Sequence[str], options: TranslateSettings) -> list[str]:
    """The best translation of each text; a text that is longer than the model can read has none."""
    sizes, most = interpreter.coder.sources(texts).lengths, interpreter.context
    short = [text if most is None or size <= most else "" for text, size in zip(texts, sizes.tolist(), strict=True)]
    return [found[0].text for found in interpreter.translate(short, options)]


def lengths(sources: Sequence[str]) -> tuple[list[int], str]:
    """How long sources are, and in what."""
    if _bleu.unspaced(sources):
        return [len(source.strip()) for source in sources], "characters"
    return [len(source.split()) for source in sources], "words"


def bins(sizes: Sequence[int], least: int = LEAST) -> list[tuple[int, int]]:
    """Shortest and longest of each bin. All sentences of a length are in one; none has fewer than `least`."""
    values, counts = np.unique(np.asarray(sizes, dtype=np.int64), return_counts=True)
    found: list[tuple[int, int]] = []
    first, held, reached, share = 0, 0, 0, 0
    for place, (value, count) in enumerate(zip(values.tolist(), counts.tolist(), strict=True)):
        held, reached = held + count, reached + count
        rest = len(sizes) - reached
        if place + 1 == len(values) or (reached >= SHARES[share] * len(sizes) and held >= least and rest >= least):
            found.append((int(values[first]), value))
            first, held = place + 1, 0
            while share + 1 < len(SHARES) and SHARES[share] * len(sizes) <= reached:
                share += 1
    return found


def by_length(said: Sequence[str], wanted: Wanted, manner: Manner, name: str) -> list[dict[str, Any]]:
    """A measure over the length of the source, where there are sources of different length."""
    sizes, unit = lengths(wanted.sources)
    edges = bins(sizes)
    if len(edges) < 2:
        return []
    signature, values, counts = "share of translations that equal a reference", [], []
    for low, high in edges:
        rows = [row for row, size in enumerate(sizes) if low <= size <= high]
        texts, references = [said[row] for row in rows], [wanted.references[row] for row in rows]
        if name == "bleu":
            value, signature = _bleu.bleu(texts, [some[:1] for some in references], manner.split)
        else:
            value = float(np.mean(_bleu.right(texts, references)))
        values.append(round(value, 4))
        counts.append(len(rows))
    return [
        {
            "kind": "bins",
            "title": f"{title(name)} by length of the source",
            "note": f"sacreBLEU {signature}" if name == "bleu" else signature,
            "measure": name,
            "x": f"{unit} of the source",
            "of": "sentences",
            "bins": [_range(edge) for edge in edges],
            "counts": counts,
            "series": [["", values]],
            "together": f"{name} by length",
        }
    ]


def _range(edge: tuple[int, int]) -> str:
    return str(edge[0]) if edge[0] == edge[1] else f"{edge[0]}–{edge[1]}"


def _sentences(said: Sequence[str], wanted: Wanted) -> list[dict[str, Any]]:
    """The worst, and those in the middle of all from worst to best."""
    scores = _bleu.each_chrf(said, wanted.references)
    order = np.argsort(scores, kind="stable").tolist()
    start = max((len(order) - SHOWN) // 2, 0)
    parts = {"The worst translations": order[:SHOWN]}
    if len(order) > 2 * SHOWN:
        parts["Translations of middling quality"] = order[start : start + SHOWN]
    columns = ["source", "translation", "references" if wanted.several else "reference", "chrF"]
    note = f"chrF of each sentence{', against the nearest reference' if wanted.several else ''}, from 0 to 100."
    return [
        {
            "kind": "table",
            "title": name,
            "columns": columns,
            "rows": [
                [wanted.sources[row], said[row], _told(wanted.references[row]), round(scores[row], 1)] for row in rows
            ],
            "note": note,
        }
        for name, rows in parts.items()
    ]


def _told(references: Sequence[str]) -> str:
    if len(references) == 1:
        return references[0]
    more = [f"… and {len(references) - REFERENCES} more"] if len(references) > REFERENCES else []
    return "\n".join([*(f"• {one}" for one in references[:REFERENCES]), *more])


def _looks(said: Sequence[str], wanted: Wanted, interpreter: Interpreter) -> list[dict[str, Any]]:
    """Where the model looked while it wrote, of a sentence of middle length and of a longer one."""
    if not interpreter.attends:
        return []
    coder = interpreter.coder
    pairs = [(a, b) for a, b in zip(wanted.sources, said, strict=True) if b.strip()]
    sources, targets = coder.sources([a for a, _ in pairs]), coder.targets([b for _, b in pairs])
    sizes = np.maximum(sources.lengths, targets.lengths)
    most = sizes.max(initial=0) if interpreter.context is None else interpreter.context
    order = [row for row in np.argsort(sizes, kind="stable").tolist() if sizes[row] <= most]
    order = [row for row in order if sizes[row] <= FIELDS] or order[:1]
    chosen = dict.fromkeys(order[int(share * (len(order) - 1))] for share in LOOKED_AT) if order else {}
    heading = "Where it looked while it wrote"
    return [interpreter.alignment(*pairs[row]).words().view(heading) for row in chosen]
