"""Residual networks as ensembles of shallow networks: paths, what reaches the input through them, deleted blocks.

A block with a skip computes y = relu(s(x) + F(x)), s the identity or a projection. The gradient therefore splits at
each of n blocks into two, through s and through F: 2ⁿ paths, of which C(n, k) pass through k branches F. Summed by k
they are exactly the gradient of the network:

    ∂L/∂x = Σ_k G_k        G_k = J_sᵀ G_k + J_Fᵀ G_{k−1}    block by block, from the last to the first

Path lengths are binomial, around n/2. Deleting a block of a residual network halves the number of paths; in a plain one
it cuts the only one. Veit et al., "Residual networks behave like ensembles of relatively shallow networks" (2016).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.device import global_stream, numpy_stream
from ...core.errors import SeriatimError
from ...core.text import format_number
from ...models.resnet import Settings
from ...nn.images import BatchNorm, Block
from ...report.charts import Bars, Lines, Series, Table, View, row
from ..catalog import PathOptions
from ..declare import Notify
from ..result import Arrays, Drawing, NamedArray
from ..subject import Subject
from . import Request, implement
from .depth import IMAGES, LABELS, SHAPE, Loss, make_classifier, parse_layers

LAYERS = (20,)
DELETED_IMAGES = 512  # of a trained model, for the loss after a deletion


@dataclass(frozen=True)
class Paths:
    """What the blocks of one network do.

    Args:
        name: Of the network.
        skips: Whether its blocks have skips.
        by_length: The norms of the gradients of all paths of each length (n+1,); empty without skips.
        loss: Of the whole network.
        deleted: The loss without each block (n,); NaN where a plain block changes the shape.
        changes: The change of the outputs without each block (n,), relative to their standard deviation.
    """

    name: str
    skips: bool
    by_length: np.ndarray
    loss: float
    deleted: np.ndarray
    changes: np.ndarray


@dataclass(frozen=True)
class PathFacts:
    """The networks without their figures, and whether any of them is trained."""

    networks: list[Paths]
    trained: bool


def path_arrays(subjects: list[Subject], request: Request[PathOptions]) -> Arrays[PathFacts]:
    """Returns for each network the figures without each block (n,), and paths and gradients by length (n+1,)."""
    layers, seed = request.options.layers, request.options.seed
    if layers is not None and any(subject.trained for subject in subjects):
        raise SeriatimError("inspect.layers", "a run has the layers that it was trained with", "omit --layers")
    networks: list[Paths] = []
    for subject in subjects:
        if subject.trained:
            request.notify(subject.label)
            networks.append(trained_paths(subject))
        else:
            counts = parse_layers(LAYERS if layers is None else layers)
            networks += fresh_paths(subject, counts, seed, request.notify)
    arrays: dict[str, NamedArray] = {}
    for paths in networks:
        count = len(paths.deleted)
        blocks = {"block": [str(n) for n in range(count)]}
        arrays[f"loss without, {paths.name}"] = NamedArray(paths.deleted, blocks)
        arrays[f"change without, {paths.name}"] = NamedArray(paths.changes, blocks)
        if paths.skips:
            lengths = {"branches": [str(n) for n in range(count + 1)]}
            arrays[f"gradient, {paths.name}"] = NamedArray(paths.by_length, lengths)
            arrays[f"paths, {paths.name}"] = NamedArray(path_counts(count), lengths)
    notes = ["a block of a plain network that changes the shape cannot be deleted"]
    if not all(subject.trained for subject in subjects):
        notes.append(f"fresh networks read {IMAGES} random images of {SHAPE[1]} × {SHAPE[2]} pixels")
    nothing = np.zeros(0)
    facts = PathFacts(
        [replace(paths, by_length=nothing, deleted=nothing, changes=nothing) for paths in networks],
        trained=any(subject.trained for subject in subjects),
    )
    return Arrays("Paths through a residual network", arrays, facts, notes)


def path_charts(arrays: Arrays[PathFacts]) -> Drawing:
    """Returns paths and gradients by length, and what changes without each block."""
    charts: list[View] = []
    gradient_series: list[Series] = []
    rows = []
    networks = [
        replace(
            paths,
            deleted=arrays[f"loss without, {paths.name}"].values,
            changes=arrays[f"change without, {paths.name}"].values,
            by_length=arrays[f"gradient, {paths.name}"].values if paths.skips else paths.by_length,
        )
        for paths in arrays.facts.networks
    ]
    for paths in networks:
        count = len(paths.deleted)
        if paths.skips:
            share = path_counts(count) / 2**count
            gradient = paths.by_length / paths.by_length.sum()
            gradient_series += [
                Series(f"{paths.name}: paths", range(count + 1), row(share), dashed=True, group=paths.name),
                Series(f"{paths.name}: gradient", range(count + 1), row(gradient), group=paths.name),
            ]
        worse, changes = np.nanmedian(paths.deleted) - paths.loss, float(np.nanmedian(paths.changes))
        mean = float((np.arange(count + 1) * paths.by_length).sum() / paths.by_length.sum()) if paths.skips else None
        rows.append(
            (
                paths.name, count, format_number(2**count if paths.skips else 1), count / 2 if paths.skips else count,
                None if mean is None else round(mean, 2), round(changes, 3), round(paths.loss, 4),
                round(float(worse), 4),
            )
        )  # fmt: skip
    if gradient_series:
        charts.append(
            Lines(
                title="Paths and gradient by the number of branches they pass",
                note="dashed: share of the paths, binomial; solid: share of the norm of the gradient through them",
                x="branches F on the path",
                y="share",
                series=gradient_series,
                markers=True,
                low=0.0,
            )
        )
    labels = [f"block {n}" for paths in networks for n in range(len(paths.deleted))]
    groups = [paths.name for paths in networks for _ in paths.deleted]
    charts.append(
        Bars(
            title="Change of the outputs without one block",
            note="relative to their standard deviation over the images",
            labels=labels,
            groups=groups,
            values=row(np.concatenate([paths.changes for paths in networks])),
            x="change",
        )
    )
    if arrays.facts.trained:  # before training every loss is one of chance
        charts.append(
            Bars(
                title="Loss without one block",
                note="; ".join(f"{paths.name}: {format_number(paths.loss)} with all blocks" for paths in networks),
                labels=labels,
                groups=groups,
                values=row(np.concatenate([paths.deleted for paths in networks])),
                x="loss",
            )
        )
    columns = ("network", "blocks", "paths", "mean length", "of the gradient", "change", "loss", "increase")
    note = "change of the outputs and increase of the loss: medians over the blocks, one deleted at a time"
    return Drawing([*charts, Table(title="Blocks and paths", note=note, columns=columns, rows=rows)])


implement(
    PathOptions,
    path_arrays,
    path_charts,
    {
        "is not a residual network": lambda subject: not isinstance(subject.settings, Settings),
        "has a decoder behind its residual network": lambda subject: subject.trained and subject.encoder_decoder,
    },
)


def path_counts(blocks: int) -> np.ndarray:
    """Returns the number of paths through 0 … n branches."""
    return np.array([math.comb(blocks, k) for k in range(blocks + 1)], np.float64)


def fresh_paths(subject: Subject, layers: Sequence[int], seed: int, notify: Notify) -> list[Paths]:
    generator = numpy_stream(seed, "paths")
    images = torch.from_numpy(generator.integers(0, 256, (IMAGES, *SHAPE), dtype=np.uint8)).float()
    targets = torch.from_numpy(generator.integers(0, LABELS, IMAGES))

    def loss(network: nn.Module, x: Tensor) -> Tensor:
        return F.cross_entropy(network(x)[0].float(), targets)

    networks = []
    for count in layers:
        for skips in (True, False):
            settings = subject.settings.model_copy(update={"layers": count, "skips": skips})
            with global_stream(seed, "init"):
                network = make_classifier(settings).eval()
            for module in network.modules():
                if isinstance(module, BatchNorm):
                    module.train()  # there are no running statistics yet
            name = f"{'residual' if skips else 'plain'}, {count} layers"
            notify(name)
            networks.append(measure_paths(name, skips, network, images, loss, images))
    return networks


def trained_paths(subject: Subject) -> Paths:
    task, items = subject.task, subject.split.items
    device = next(subject.network.parameters()).device
    batch = task.collate(items, np.arange(min(DELETED_IMAGES, len(items)))).to(device)

    def loss(network: nn.Module, x: Tensor) -> Tensor:
        images = replace(batch, inputs=x, targets=batch.targets[: len(x)], count=len(x))
        return task.loss(task.forward(network, images), images) / len(x)

    network = copy.deepcopy(subject.network).eval()
    skips = bool(getattr(subject.settings, "skips", True))
    images = batch.inputs.float()
    return measure_paths(subject.label, skips, network, images[:IMAGES], loss, images)


def measure_paths(name: str, skips: bool, network: nn.Module, images: Tensor, loss: Loss, judged: Tensor) -> Paths:
    """Returns the gradients by path length over `images`, and the losses without each block over those `judged`."""
    blocks: list[Block] = list(network.get_submodule("input.resnet.blocks").children())  # type: ignore[arg-type]
    by_length = np.zeros(0)
    if skips:
        sums = gradients_by_length(network, blocks, images, loss)
        by_length = np.array([float(gradient.double().norm()) for gradient in sums])
    with torch.inference_mode():
        outputs, whole = network(judged)[0], float(loss(network, judged))
        deleted, changes = [], []
        for block in blocks:
            plain_shape = block.first.convolution.weight.shape[0] == block.first.convolution.weight.shape[1]
            if not block.skips and not plain_shape:
                deleted.append(math.nan)
                changes.append(math.nan)
                continue
            handle = block.register_forward_hook(skip_only)
            try:
                deleted.append(float(loss(network, judged)))
                changes.append(float((network(judged)[0] - outputs).square().mean().sqrt() / outputs.std(dim=0).mean()))
            finally:
                handle.remove()
    return Paths(name, skips, by_length, whole, np.array(deleted), np.array(changes))


def gradients_by_length(network: nn.Module, blocks: Sequence[Block], images: Tensor, loss: Loss) -> list[Tensor]:
    """Returns G_0 … G_n with respect to the input of the first block; their sum is its gradient."""
    inputs: dict[int, Tensor] = {}
    handles = [
        block.register_forward_pre_hook(lambda module, arguments, n=n: inputs.__setitem__(n, arguments[0]))
        for n, block in enumerate(blocks)
    ]
    handles.append(blocks[-1].register_forward_hook(lambda module, arguments, y: inputs.__setitem__(len(blocks), y)))
    try:
        with torch.inference_mode(False), torch.enable_grad():
            (last,) = torch.autograd.grad(loss(network, images), inputs[len(blocks)])
    finally:
        for handle in handles:
            handle.remove()
    sums = [last]  # by the number of branches so far
    with torch.inference_mode(False), torch.enable_grad():
        for n in reversed(range(len(blocks))):
            block, x = blocks[n], inputs[n].detach().requires_grad_()
            branch = block.second(block.first(x).relu())
            skip = x * 1 if block.project is None else block.project(x)
            active = (branch + skip > 0).to(x.dtype)  # the slope of the relu at the end

            def pulled(output: Tensor, gradient: Tensor, x: Tensor = x, active: Tensor = active) -> Tensor:
                return torch.autograd.grad(output, x, gradient * active, retain_graph=True)[0]

            through_skip, through_branch = (
                [pulled(output, gradient) for gradient in sums] for output in (skip, branch)
            )
            zero = torch.zeros_like(x)
            sums = [a + b for a, b in zip([*through_skip, zero], [zero, *through_branch], strict=True)]
    return [gradient.detach() for gradient in sums]


def skip_only(block: nn.Module, arguments: tuple[Tensor], output: Tensor) -> Tensor:
    """Replaces the output of a block by the output of its skip; of a block without skip, by its input."""
    assert isinstance(block, Block)
    return arguments[0] if block.project is None else block.project(arguments[0]).relu()
