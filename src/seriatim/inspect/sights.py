"""Pictures as the network of a run reads them: a file of the user's, or one of the run's own data.

The elements of a picture are the places of its grid, named by row and column from 0; a captioner reads besides, as a
translator does, the caption that is given or its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..data.pictures import Pictures
from ..tasks._captioner import Captioner
from ..tasks._pairs import end_of
from ..tasks._picture_coder import read_pictures
from .reading import Reading, said_by, with_whole, within
from .seen import Array, Seen

if TYPE_CHECKING:
    from .subject import Subject


def describes(subject: Subject) -> bool:
    """Whether it is a run that gives captions to pictures."""
    return subject.run is not None and isinstance(subject.run.predictor, Captioner)


def reads_pictures(subject: Subject) -> bool:
    """Whether it is a run whose inputs are pictures."""
    if subject.run is None or subject.counts:
        return False
    return describes(subject) or getattr(getattr(subject.run.predictor, "coder", None), "kind", "") == "pictures"


def no_sequence(subject: Subject) -> str:
    """Why it reads nothing element by element, as the end of a sentence; "" where it does. A residual network sees the
    whole picture at once, and nothing comes behind it."""
    if subject.counts or subject.settings.pairs or not subject.settings.pictures:
        return ""
    backbone = subject.backbone
    return "" if any(True for _ in backbone.parameters()) else "reads no sequence: it sees a picture at once"


def of_files(subject: Subject, paths: Sequence[str], target: str | None) -> Reading:
    """The picture of a file, with a caption for those who write one."""
    predictor: Any = subject.run.predictor  # type: ignore[union-attr]
    if len(paths) != 1:
        raise SeriatimError(
            "inspect.text", f"{subject.label} reads one picture, and {len(paths)} are given", "give one"
        )
    if target is not None and not describes(subject):
        raise SeriatimError("inspect.target", f"{subject.label} writes no caption", "leave --target away")
    seen = read_pictures([paths[0]], predictor.coder.form)
    if not describes(subject):
        return _read(subject, seen)
    if target is None:
        said = predictor.caption(seen)[0][0].tokens or [end_of(predictor.coder.target)]
    else:
        said = predictor.coder.targets([target])[0].tolist()
    return _read(subject, seen, said)


def of_example(subject: Subject, split: str, number: int) -> Reading:
    """A picture of the run's own data, with its caption."""
    part = subject.data.parts[split]
    number = within(number, len(part.inputs), split)
    said = part.targets[number].tolist() if describes(subject) else None
    return replace(_read(subject, part.inputs.take([number]), said), note=f"picture {number} of the {split} part")


def _read(subject: Subject, seen: Pictures, said: Sequence[int] | None = None) -> Reading:
    network: Any = subject.network
    device = next(network.parameters()).device
    block = torch.from_numpy(seen.padded([0])[0]).to(device)
    rows, columns = (network.input if said is None else network.source.picture).grid
    names = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    if said is None:
        return Reading(block, with_whole(subject, names))
    coder = subject.run.predictor.coder  # type: ignore[union-attr]
    return Reading(block, names, target=said_by(coder, said, device))


def glance(subject: Subject, paths: Sequence[str], target: str | None, example: int | None) -> Seen:
    """Where each word of a caption looked: of a picture of the user's, or of the run's own data."""
    if paths and example is not None:
        raise SeriatimError("inspect.example", "a picture and an example are two things", "give one of both")
    captioner: Captioner = subject.run.predictor  # type: ignore[union-attr]
    reading = subject.read(*paths, target=target, example=example)
    tokens = reading.target.tokens.tolist()  # type: ignore[union-attr]
    text = captioner.coder.target.decode([one for one in tokens if one != end_of(captioner.coder.target)])
    found = captioner.attention(Pictures.of(reading.inputs.permute(0, 2, 3, 1).cpu().numpy()), target or text)
    rows, columns = found.grid
    places = [str(place) for place in range(rows)], [str(place) for place in range(columns)]
    weights = found.weights.reshape(len(found.words), rows, columns)
    axes = (("word", found.words), ("row", places[0]), ("column", places[1]))
    title = f"Where each word looked: {subject.label}"
    view = found.view(title) | ({"note": reading.notes[0]} if reading.notes else {})
    wide = max(map(len, found.words), default=0)
    lines = ["row and column of the place that each word looked at most:"]
    for word, one in zip(found.words, weights, strict=True):
        row, column = np.unravel_index(int(one.argmax()), one.shape)
        lines.append(f"  {word:<{wide}}  → {row},{column} {one.max():.2f}")
    return Seen(title, {"attention": Array(weights, axes)}, [view], lines, reading.notes)
