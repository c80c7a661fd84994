"""Pictures as a model knows them: all of one form, whatever comes in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core import registry
from ..core.errors import SeriatimError
from ..data import cells
from ..data.picture_files import Form, fitted, is_picture, read_picture
from ..data.picture_settings import PictureSettings
from ..data.pictures import Pictures

SHOWN = 10  # problems in an error


def form_of(pictures: Pictures, settings: PictureSettings) -> Form:
    """The form of some pictures that were read by some settings."""
    channels, height, width = pictures.shape
    return Form(height, width, channels, settings.fit, pictures.margin)


def read_pictures(inputs: Any, form: Form) -> Pictures:
    """Paths of files or arrays (H,W) or (H,W,C) of 8 bits, or pictures that are ready, in a form; what is wrong with
    them is told at once."""
    if isinstance(inputs, Pictures):
        return inputs if inputs.shape == form.shape else _refitted(inputs, form)
    wrong: list[SeriatimError] = []
    found = np.zeros((len(inputs), *form.stored), np.uint8)
    for index, one in enumerate(inputs):
        try:
            found[index] = _picture(one, index, form)
        except SeriatimError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        more = f"\n    … and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
        causes = "\n    ".join(error.cause for error in wrong[:SHOWN])
        cause = f"{len(wrong):,} of {len(inputs):,} pictures cannot be read:\n    {causes}{more}"
        alike = len({error.code for error in wrong}) == 1
        code, remedy = (wrong[0].code, wrong[0].remedy) if alike else ("predict.input", "mend these, or leave them out")
        raise SeriatimError(code, cause, remedy)
    return Pictures.of(found, form.margin)


def _picture(one: Any, index: int, form: Form) -> np.ndarray:
    if isinstance(one, str | Path):
        path = Path(one).expanduser()
        if isinstance(one, str) and not is_picture(path) and not path.exists():
            cause = f"input {index + 1} is {cells.shown(one)}, no file of a picture"
            raise SeriatimError("predict.input", cause, "give the path of a .png, .jpg or the like")
        return read_picture(path, PictureSettings(), form)
    block = np.asarray(one)
    if block.shape == (form.height, form.width) and form.channels == 1:
        block = block[..., None]
    return fitted(block, form)


def _refitted(pictures: Pictures, form: Form) -> Pictures:
    found = np.zeros((len(pictures), *form.stored), np.uint8)
    for row in range(len(pictures)):
        found[row] = fitted(pictures[row], form)
    return Pictures.of(found, form.margin)


def refuse_pictures(model: Any, inputs: Sequence[Any] | Any, limit: int | None) -> None:
    """A model that cannot read what there is to read, and a length where there are none."""
    name = model.name
    if not isinstance(inputs, Pictures):
        if getattr(model, "pictures", False):
            cause = f"{name} reads pictures, and the data holds none"
            raise SeriatimError("task.pictures", cause, f"choose another --model: {_others()}; or give pictures")
        return
    if model.counts or model.pairs:
        how = (
            "learns pairs of sequences" if model.pairs else "counts or keeps examples, and learns nothing by gradients"
        )
        raise SeriatimError("task.pictures", f"{name} {how}: it cannot read pictures", "choose resnet, vit or lstm")
    if limit is not None:
        cause = f"pictures have one size, not a length of at most {limit}"
        raise SeriatimError("task.pictures", cause, "leave task.length away, or choose data.pictures.side")


def refuse_only_pictures(model: Any, task: str) -> None:
    """For a task whose data never holds any."""
    if getattr(model, "pictures", False):
        remedy = f"choose another --model: {_others()}; or the task classify, regress or caption"
        raise SeriatimError("task.pictures", f"{model.name} reads nothing but pictures; {task} has none", remedy)


def _others() -> str:
    settings = {name: registry.models.load(name).Settings for name in registry.models.names()}
    fit = [name for name, one in settings.items() if not (one.pairs or one.counts or getattr(one, "pictures", False))]
    return ", ".join(fit)
