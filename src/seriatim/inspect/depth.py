"""What depth does to gradients, and what skips are for: layer by layer, from the picture to the answer.

    how large     ‖∂loss/∂W‖ of each convolution
    how alike     cos(∂loss/∂z(x), ∂loss/∂z(x′)), z what a convolution gives, x′ the picture x with a trace of noise

With batch norm the gradients of a plain stack do not vanish. They grow on the way down, by a factor for each layer, so
that a step that suits the last layers is far too long for the first ones; and what two nearly equal pictures ask of a
layer has nothing in common any more: they are shattered to noise, whatever their size. Skips slow both down.
Yang et al., "A mean field theory of batch normalization" (2019); Balduzzi et al., "The shattered gradients problem"
(2017). Norms take the statistics of the batch at hand, as in training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..core.measures import plain
from ..core.random import derive, numpy_stream, torch_stream
from ..models.resnet import Settings
from ..nn.heads import VectorHead
from ..nn.network import Network, assemble, full
from ..nn.norm import BatchNorm
from ..nn.pictures import Grid
from ..nn.resnet import Convolution
from .rows import aligned
from .seen import Array, Seen
from .subject import Subject

LAYERS = (20, 56)
FEWEST, MOST = 8, 1_202  # of a stack for small pictures
PICTURES = 32
SHAPE = (3, 16, 16)  # of random pictures
LABELS = 10  # of random pictures
NOISE = 0.01  # in units of the spread of the pixels: what makes x′ of x
READS = ("classify", "regress")  # the tasks of runs whose pictures can be taken

Loss = Callable[[Any, Tensor], Tensor]  # of a network over pictures (n,C,H,W): their mean


@dataclass(frozen=True)
class Stack:
    """One network, and what was measured of its convolutions, the first one first."""

    name: str
    skips: bool
    layers: int
    size: np.ndarray  # (L,) norms of gradients
    alike: np.ndarray  # (L,) from −1 to 1
    fresh: bool  # the twin of a trained one

    @property
    def growth(self) -> float:
        """How many times larger gradients are at the first layer than at the last."""
        return float(self.size[0] / self.size[-1]) if self.size[-1] > 0 else float("nan")


def suits(subject: Subject) -> str:
    if not isinstance(subject.settings, Settings):
        return "is no residual network"
    if subject.run is not None and subject.run.config.task.name not in READS:
        return f"does not {' or '.join(READS)}"
    return ""


def look(subjects: Sequence[Subject], *, layers: str | Sequence[int] | None = None, seed: int = 0) -> Seen:
    """A model's name stands for fresh stacks of so many `layers` (6n+2, as 20,56), plain and residual, which read
    random pictures; a run for its network before training and after, over pictures of its own validation part."""
    if layers is not None and any(subject.trained for subject in subjects):
        raise SeriatimError("inspect.layers", "a run has the layers that it was trained with", "leave --layers away")
    stacks: list[Stack] = []
    for subject in subjects:
        stacks += _trained(subject) if subject.trained else _fresh(subject, _layers(layers), seed)
    longest = max(len(one.size) for one in stacks)
    axes = ("network", [one.name for one in stacks]), ("layer", [str(place + 1) for place in range(longest)])
    arrays = {what: Array(_padded([getattr(one, what) for one in stacks], longest), axes) for what in ("size", "alike")}
    table = _table(stacks)
    shown = [[_figure(cell) for cell in row] for row in table["rows"]]
    views = [_sizes(stacks), _likeness(stacks), table]
    text = [*aligned([table["columns"], *shown]), ""]
    return Seen("What depth does to gradients", arrays, views, text, _notes(stacks, subjects))


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _fresh(subject: Subject, layers: Sequence[int], seed: int) -> list[Stack]:
    """All depths, plain and residual, over the same pictures, which mean nothing."""
    draw = numpy_stream(seed, "depth")
    pictures = torch.from_numpy(draw.integers(0, 256, (PICTURES, *SHAPE), dtype=np.uint8))
    targets = torch.from_numpy(draw.integers(0, LABELS, PICTURES))

    def loss(network: Any, x: Tensor) -> Tensor:
        return F.cross_entropy(full(network(x)[0]), targets)

    found = []
    for count in layers:
        for skips in (False, True):
            settings = subject.settings.model_copy(update={"layers": count, "skips": skips})
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive(seed, "init"))
                network = _classifier(settings)
            name = f"{'residual' if skips else 'plain'}, {count} layers"
            found.append(Stack(name, skips, count, *measured(network, pictures, loss), fresh=False))
    return found


def _classifier(settings: Any) -> Network:
    inputs: Grid = settings.picture_input(SHAPE)
    inputs.mean.fill_(0.5)
    inputs.deviation.fill_(12**-0.5)  # of numbers that are equally often anywhere from 0 to 1
    length = inputs.grid[0] * inputs.grid[1]
    return assemble(settings, inputs, inputs.width, length, lambda body: VectorHead(body.width, LABELS, "mean"))


def _trained(subject: Subject) -> list[Stack]:
    """Before training and after, over the first pictures of the validation part."""
    task: Any = subject.data
    settings: Any = subject.settings
    split = "valid" if task.has("valid") else "train"
    batch = task.collate(split, np.arange(min(PICTURES, len(task.parts[split]))))

    def loss(network: Any, x: Tensor) -> Tensor:
        given = replace(batch.to(x.device), inputs=x)
        summed: Tensor = task.loss(network, given, None, 0.0)[0]
        return summed / len(x)

    with torch.random.fork_rng(devices=[]):
        fresh = task.build(settings)
    device = next(subject.network.parameters()).device
    found, skips = [], bool(getattr(settings, "skips", True))
    for network, name in ((fresh.to(device), f"{subject.label}, fresh"), (subject.network, subject.label)):
        figures = measured(network, batch.inputs.to(device), loss)
        found.append(Stack(name, skips, len(figures[0]) + 1, *figures, fresh=network is fresh))
    return found


def measured(network: Any, pictures: Tensor, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """How large the gradients of each convolution's weights are, and how alike those of its outputs are for pictures
    and their neighbours. The network itself is left as it is: norms in training would remember what they saw."""
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, BatchNorm):
            module.train()
    x = pictures.float()
    noise = torch.randn(x.shape, generator=torch_stream(0, "neighbours")).to(x.device)
    near = x + NOISE * 255 * network.input.deviation.view(-1, 1, 1) * noise
    weights, outputs = gradients(network, x, loss)
    others = gradients(network, near, loss)[1]
    sizes = np.array([float(one.double().norm()) for one in weights])
    return sizes, np.array([_cosine(one, other) for one, other in zip(outputs, others, strict=True)])


def gradients(network: Any, x: Tensor, loss: Loss) -> tuple[list[Tensor], list[Tensor]]:
    """Of each convolution on the way from the picture to the answer (skips have theirs aside): by its weights, and by
    what it gives (n,C,h,w)."""
    layers = stacked(network.input.resnet)
    outputs: dict[int, Tensor] = {}

    def keep(place: int) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any, output: Tensor) -> None:
            outputs[place] = output

        return hook

    handles = [layer.register_forward_hook(keep(place)) for place, layer in enumerate(layers)]
    try:
        with torch.enable_grad():
            value = loss(network, x)
            by = [layer.weight for layer in layers] + [outputs[place] for place in range(len(layers))]
            found = list(torch.autograd.grad(value, by))
    finally:
        for handle in handles:
            handle.remove()
    return found[: len(layers)], found[len(layers) :]


def stacked(resnet: Any) -> list[Convolution]:
    inner = [part.convolution for block in resnet.blocks for part in (block.first, block.second)]
    return [resnet.stem.convolution, *inner]


def _cosine(one: Tensor, other: Tensor) -> float:
    """The mean over pictures; where there is no gradient at all, nothing is alike."""
    a, b = one.flatten(1).double(), other.flatten(1).double()
    lengths = a.norm(dim=1) * b.norm(dim=1)
    return float(((a * b).sum(dim=1) / lengths.clamp_min(1e-300)).mean())


def _layers(given: str | Sequence[int] | None) -> list[int]:
    parts = LAYERS if given is None else given.split(",") if isinstance(given, str) else given
    try:
        found = sorted({int(part) for part in parts})
    except ValueError:
        found = []
    if not found or any(not FEWEST <= one <= MOST or (one - 2) % 6 for one in found):
        cause = f"stacks have 6n+2 layers, {FEWEST} or more, and {given} are not such"
        raise SeriatimError("inspect.layers", cause, "as --layers 20,56")
    return found


def _padded(rows: Sequence[np.ndarray], longest: int) -> np.ndarray:
    return np.stack([np.pad(row, (0, longest - len(row)), constant_values=np.nan) for row in rows])


# ── showing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _sizes(stacks: Sequence[Stack]) -> dict[str, Any]:
    return _curves(stacks, "size", "How large the gradients of each layer are", "‖∂loss/∂W‖") | {"log_y": True}


def _likeness(stacks: Sequence[Stack]) -> dict[str, Any]:
    title, axis = "How alike they are for two nearly equal pictures", "cosine of ∂loss/∂z for both"
    return _curves(stacks, "alike", title, axis)


def _curves(stacks: Sequence[Stack], what: str, title: str, axis: str) -> dict[str, Any]:
    """From the last layer down to the first: there the curves lie apart, and have their names."""
    series = [
        [one.name, [[back, float(value)] for back, value in enumerate(getattr(one, what)[::-1])]] for one in stacks
    ]
    dashes = [one.name for one in stacks if one.fresh]
    note = "dashed: before training; solid: after" if dashes else "before training"
    return {"kind": "lines", "title": title, "x": "layers before the last", "y": axis,
            "series": series, "dashes": dashes, "note": note, "together": "depth"}  # fmt: skip


def _table(stacks: Sequence[Stack]) -> dict[str, Any]:
    columns = ["network", "at the first layer", "at the last", "times", "alike at the first", "at the last layer"]
    rows = [
        [one.name, *map(_short, (one.size[0], one.size[-1], one.growth, one.alike[0], one.alike[-1]))] for one in stacks
    ]
    return {"kind": "table", "title": "The same in figures", "columns": columns, "rows": rows}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _figure(value: Any) -> str:
    return value if isinstance(value, str) else plain(value, 2)


def _notes(stacks: Sequence[Stack], subjects: Sequence[Subject]) -> list[str]:
    notes = []
    if any(one.fresh for one in stacks):
        notes += _seen([one for one in stacks if one.fresh], "before training")
        notes += _seen([one for one in stacks if not one.fresh], "after it")
    else:
        notes += _seen(stacks, "before training")
    if not all(subject.trained for subject in subjects):
        pictures = f"{PICTURES} random pictures of {SHAPE[1]} × {SHAPE[2]} pixels"
        notes.append(f"Fresh networks with the settings of their model read {pictures}.")
    return notes


def _seen(stacks: Sequence[Stack], when: str) -> list[str]:
    """In the deepest two that differ in nothing but their skips."""
    by = {(one.layers, one.skips): one for one in stacks}
    both = [count for count, skips in by if skips and (count, False) in by]
    if not both:
        return []
    without, there = by[max(both), False], by[max(both), True]
    return [
        f"Of {max(both)} layers {when}: the gradients of the first are {_times(without)} those of the last without "
        f"skips, {_times(there)} with them; those of two nearly equal pictures are alike to {without.alike[0]:.2f} "
        f"there without skips, to {there.alike[0]:.2f} with them (1: the same, 0: nothing in common)."
    ]


def _times(one: Stack) -> str:
    return f"{plain(one.growth, 1 if one.growth < 10 else 0)} times"
