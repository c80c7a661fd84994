"""Where each element looks: the weights of every head of every layer, as they were used.

A row sums to one over the elements that could be seen, and is zero on padding and, in a causal model, on what comes
later. A translator has three of them: its encoder and its decoder look at their own sequence, and the decoder, across,
at the source. With `generate` the model writes on behind the text, and the weights are those of each step as it wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..core.errors import SeriatimError, did_you_mean
from ..nn.transformer import CrossAttention, SelfAttention
from .generation import generated
from .reading import Reading
from .seen import Array, Seen
from .sights import describes, glance
from .subject import Subject

WEIGHTS = re.compile(r"((?:encoder\.|decoder\.)?)layer(\d+)\.(attention|cross_attention)")
SIDES = {"": "", "encoder": "encoder.", "decoder": "decoder.", "cross": "decoder."}
PARTS = ("cross", "encoder", "decoder")  # of a translator, the first that it has by default
FIELDS = 120  # on a side of a picture
ACROSS = 16  # heads that stand beside each other
TOLD, BEST, LEAST = 40, 3, 0.005  # elements that are told in words, how many each looks at, and how much


@dataclass(frozen=True)
class Weights:
    """`values` (L,H,T,S), and the names of what looks and of what is looked at."""

    part: str  # "" where there is only one
    values: np.ndarray
    rows: list[str]
    columns: list[str]
    first: int = 0  # the layer that values begin with

    @property
    def layers(self) -> list[str]:
        return [f"layer {self.first + index}" for index in range(len(self.values))]

    @property
    def heads(self) -> list[str]:
        return [f"head {index}" for index in range(self.values.shape[1])]

    @property
    def backwards(self) -> bool:
        """Whether nothing is looked at that comes later, though there is something later."""
        return self.part != "cross" and not np.triu(self.values, 1).any() and len(self.rows) > 1


def suits(subject: Subject) -> str:
    if describes(subject):
        attends = subject.run.predictor.attends  # type: ignore[union-attr]
        return "" if attends else "sees a picture once, as one vector, and does not show where it looks"
    return "" if parts(subject) else "has no attention between the elements of a text"


def parts(subject: Subject) -> list[str]:
    """What can be looked at: [""] for a network over one sequence, some of PARTS for a translator, [] for nothing."""
    if subject.counts:
        return []
    backbone = subject.backbone
    if not subject.pairs:
        return [""] if _has(backbone, SelfAttention) else []
    halves = {name: getattr(backbone, name, None) for name in PARTS}
    found = [name for name in PARTS if _has(halves[name], SelfAttention)]
    return ["cross", *found] if _has(backbone, CrossAttention) else found


def _has(module: Any, kind: type[nn.Module]) -> bool:
    return isinstance(module, nn.Module) and any(isinstance(one, kind) for one in module.modules())


def look(
    subject: Subject,
    *texts: str,
    layer: int | None = None,
    head: int | None = None,
    part: str | None = None,
    target: str | None = None,
    example: int | None = None,
    generate: int | None = None,
) -> Seen:
    """All layers and heads, or one layer, or one head (of one layer or of each); counted from 0. Of a captioner, where
    each word looked in a picture, unless a part, a layer or a head is named."""
    if describes(subject) and layer is head is part is generate is None:
        return glance(subject, texts, target, example)
    reading, found = read(subject, *texts, layer=layer, part=part, target=target, example=example, generate=generate)
    heads = chosen("head", head, found.values.shape[1])
    values = found.values[:, heads]
    names = found.layers, [f"head {index}" for index in heads]
    axes = (("layer", names[0]), ("head", names[1]), ("from", found.rows), ("to", found.columns))
    title = f"Where each element looks: {subject.label}{f', {found.part}' if found.part else ''}"
    rows, columns, drawn = folded(found.rows, found.columns, values)
    panels = [
        [f"{first}, {second}", drawn[i, j].tolist()]
        for i, first in enumerate(names[0])
        for j, second in enumerate(names[1])
    ]
    notes = reading.notes
    less = [] if drawn.size == values.size else [f"{len(found.rows)} × {len(found.columns)}, neighbours put together"]
    view = {
        "title": title, "note": "; ".join(notes + less), "rows": rows, "columns": columns,
        "x": "looked at", "y": "looks", "high": 1.0,
    }  # fmt: skip
    if len(panels) == 1:
        views = [view | {"kind": "heat", "title": f"{title}, {panels[0][0]}", "values": panels[0][1]}]
    else:
        across = {"across": len(heads)} if 1 < len(heads) <= ACROSS and len(values) > 1 else {}  # a row for each layer
        views = [view | {"kind": "heats", "panels": panels, **across}]
    return Seen(title, {"attention": Array(values, axes)}, views, _told(found, values), notes)


def read(
    subject: Subject,
    *texts: str,
    layer: int | None = None,
    part: str | None = None,
    target: str | None = None,
    example: int | None = None,
    generate: int | None = None,
) -> tuple[Reading, Weights]:
    """What is read, and the weights of one part of a network: those of all layers, or of one."""
    one = _part(subject, part)
    kind = "cross_attention" if one == "cross" else "attention"
    side = SIDES[one]
    wanted = [kind] if layer is None else [f"{side}layer{layer}.{kind}"]
    trace: Mapping[str, Tensor]
    if generate is not None:
        if target is not None or example is not None or len(texts) != 1:
            raise SeriatimError("inspect.generate", "what is written goes on behind one text", "give a text alone")
        reading, trace = generated(subject, texts[0], generate, wanted)
    else:
        reading = subject.read(*texts, target=target, example=example)
        trace = subject.trace(reading, wanted)
    matches = [(WEIGHTS.fullmatch(name), value) for name, value in trace.items()]
    here = {int(match[2]): value for match, value in matches if match and match[1] == side}
    if not here:
        count = len(_layers(subject, one))
        raise SeriatimError("inspect.layer", f"there is no layer {layer}", f"choose from 0 to {count - 1}")
    values = np.stack([here[index][0].float().numpy() for index in sorted(here)])
    rows, columns = _names(reading, one)
    return reading, Weights(one, values, rows, columns, min(here))


def _layers(subject: Subject, part: str) -> list[nn.Module]:
    where: nn.Module = getattr(subject.backbone, part) if part in ("encoder", "decoder") else subject.backbone
    kind = CrossAttention if part == "cross" else SelfAttention
    return [one for one in where.modules() if isinstance(one, kind)]


def _names(reading: Reading, part: str) -> tuple[list[str], list[str]]:
    if reading.target is None or part == "encoder":
        return reading.names, reading.names
    if part == "decoder":
        return reading.target.names, reading.target.names
    return reading.target.said, reading.names


def _part(subject: Subject, wanted: str | None) -> str:
    there = parts(subject)
    if not there:
        raise subject.lacks("has neither layers nor heads of attention", "leave --part, --layer and --head away")
    if wanted is None or wanted in there:
        return there[0] if wanted is None else wanted
    if there == [""]:
        raise SeriatimError("inspect.part", f"{subject.label} is no translator", "leave --part away")
    raise SeriatimError("inspect.part", f'there is no part "{wanted}"', did_you_mean(wanted, there))


def chosen(what: str, wanted: int | None, count: int) -> list[int]:
    """All, or the one that is wanted."""
    if wanted is None:
        return list(range(count))
    if not 0 <= wanted < count:
        raise SeriatimError(f"inspect.{what}", f"there is no {what} {wanted}", f"choose from 0 to {count - 1}")
    return [wanted]


def _told(found: Weights, values: np.ndarray) -> list[str]:
    """For each element what it looks at most, over all that is shown."""
    mean = values.mean(axis=(0, 1))
    many = values.shape[0] * values.shape[1]
    lines = [f"what each looks at most{f', on average over {many} heads' if many > 1 else ''}:"]
    return lines + looks_at(found.rows, found.columns, mean)


def folded(
    rows: list[str], columns: list[str], values: np.ndarray, most: int = FIELDS
) -> tuple[list[str], list[str], np.ndarray]:
    """Weights (…,T,S) as many as a picture has room for: of neighbours that look the mean, of those that are looked at
    the sum, so that a row still sums to one; a group bears the name of its first."""
    down, across = (range(0, len(names), -(-len(names) // most)) for names in (rows, columns))
    added = np.add.reduceat(values, list(across), axis=-1)
    counts = np.diff([*down, len(rows)])
    means = np.add.reduceat(added, list(down), axis=-2) / counts[:, None]
    return [rows[place] for place in down], [columns[place] for place in across], means


def looks_at(rows: Sequence[str], columns: Sequence[str], values: np.ndarray) -> list[str]:
    """A line for each of the first rows."""
    wide = min(max((len(name) for name in rows[:TOLD]), default=0), 20)
    lines = []
    for name, row in zip(rows[:TOLD], values, strict=False):
        best = [place for place in np.argsort(-row, kind="stable")[:BEST].tolist() if row[place] >= LEAST]
        lines.append(f"  {name:<{wide}}  → " + ", ".join(f"{columns[place]} {row[place]:.2f}" for place in best))
    return lines + ([f"  … {len(rows) - TOLD} more"] if len(rows) > TOLD else [])
