"""How a captioner does on captions that are known: their likelihood, whether it looked at what they name, and what a
report shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._alignment import Side
from ._captioner import Captioner
from ._captions import CaptionPart
from ._pointing import Pointed, pointed

SHOWN = 20  # captions of a table
LOOKED_AT = 4  # pictures that show where it looked
LONGEST = 20  # words of such a caption


@dataclass(frozen=True)
class Known:
    """`loss` is in nats for a token; `nouns` are those whose boxes the data knows, of a model that attends."""

    loss: float
    nouns: list[Pointed] = field(default_factory=list)

    @classmethod
    def of(cls, captioner: Captioner, part: CaptionPart, rows: np.ndarray) -> Known:
        """Some rows of a part, each as if the model had said it."""
        some = part.take(rows)
        boxes = some.examples.boxes if captioner.attends else None
        likely, looked = captioner.forced(some.inputs, some.targets, watched=boxes is not None)
        nouns: list[Pointed] = []
        texts: Any = some.examples.targets
        for row, named in enumerate(boxes or []):
            side = Side.of(captioner.coder.target, some.targets[row].tolist(), texts[row])
            size = captioner.coder.shape[1], captioner.coder.shape[2]
            nouns += pointed(looked[row], side.groups, captioner.grid, size, named)
        return cls(-float(np.concatenate(likely).mean(dtype=np.float64)), nouns)


def views(
    captioner: Captioner, part: CaptionPart, groups: Sequence[np.ndarray], said: Sequence[str]
) -> list[dict[str, Any]]:
    """Pictures with what was said of them: where it looked, and those that it did not get right."""
    return [*_looks(captioner, part, groups, said), *_wrong(part, groups, said)]


def _looks(
    captioner: Captioner, part: CaptionPart, groups: Sequence[np.ndarray], said: Sequence[str]
) -> list[dict[str, Any]]:
    if not captioner.attends:
        return []
    long = [place for place, text in enumerate(said) if 0 < len(text.split()) <= LONGEST]
    chosen = [long[place] for place in np.linspace(0, len(long) - 1, min(LOOKED_AT, len(long))).astype(int).tolist()]
    return [
        captioner.attention(part.inputs.take(groups[place][:1]), said[place]).view(f"Where it looked: {said[place]}")
        for place in chosen
    ]


def _wrong(part: CaptionPart, groups: Sequence[np.ndarray], said: Sequence[str]) -> list[dict[str, Any]]:
    """Captions that equal no reference, spread over the part."""
    references: Any = part.examples.targets
    wanted = [[references[row] for row in rows.tolist()] for rows in groups]
    wrong = [place for place, text in enumerate(said) if text not in wanted[place]]
    if not wrong:
        return []
    some = [wrong[place] for place in np.linspace(0, len(wrong) - 1, min(SHOWN, len(wrong))).astype(int).tolist()]
    rows = [[part.examples.place(int(groups[n][0])), said[n], "\n".join(dict.fromkeys(wanted[n]))] for n in some]
    note = f"{len(wrong):,} of {len(said):,} captions equal none that was given; these are spread over them."
    columns = ["picture", "said", "wanted"]
    return [{"kind": "table", "title": "Captions unlike those given", "columns": columns, "rows": rows, "note": note}]
