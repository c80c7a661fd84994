"""What a captioner sees of a picture, as a grid of vectors.

A place of a deep residual network sees far beyond itself: 47 pixels of 64 with the eight layers for small pictures. A
decoder can then read a thing from any place nearby, and where it looks says little. So the first choice for small
pictures is a network that stays near: full resolution to begin with, and at the end places that are means of four, of
which each sees 21 pixels. For photographs it is the first three stages of four.
"""

from __future__ import annotations

from typing import Literal

from ..core.errors import SeriatimError
from ..models.resnet import Settings as ResNetSettings
from ..nn.backbone import BackboneSettings
from ..nn.pictures import Grid, PictureInput, Shape
from ..nn.resnet import ResNet

EncoderName = Literal["local", "resnet", "patches"]
SMALL = 64  # pixels a side, at most, of a small picture
CHANNELS = {"local": (64, 16), "resnet": (64, 32)}  # of the first stage, for photographs and for small pictures


def encoder(
    name: EncoderName | None, model: BackboneSettings, shape: Shape, layers: int | None, channels: int | None
) -> PictureInput:
    if name == "patches":
        return model.picture_input(shape)
    small = max(shape[1:]) <= SMALL
    chosen = name or ("local" if small else "resnet")
    width = CHANNELS[chosen][small] if channels is None else channels
    if chosen == "resnet":
        return ResNetSettings(name="resnet", width=width, layers=layers).picture_input(shape)
    blocks = _blocks(8 if layers is None else layers) if small else (2, 2, 2)
    widths = [width * 2**stage for stage in range(3)]
    resnet = ResNet(shape[0], widths, blocks, "small" if small else "photographs", near=small)
    return Grid(shape, resnet, pool=2 if small else 1)


def _blocks(layers: int) -> tuple[int, int, int]:
    if (layers - 2) % 6:
        cause = f"{layers} layers cannot be shared evenly among three stages"
        raise SeriatimError("task.layers", cause, "choose 8, 14, 20 or another 6n+2")
    return ((layers - 2) // 6,) * 3
