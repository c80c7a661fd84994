"""What depth does to gradients, and what skip connections are for: layer by layer, from the image to the output.

    size          ‖∂loss/∂W‖ of each convolution
    similarity    cos(∂loss/∂z(x), ∂loss/∂z(x′)), z the output of a convolution, x′ the image x with a little noise

With batch norm the gradients of a plain stack do not vanish. They grow on the way down, by a factor per layer, so that
a step that suits the last layers is far too long for the first; and the gradients of two nearly equal images have
nothing in common at a layer: they are shattered to noise. Skips slow both down. Yang et al., "A mean field theory of
batch normalization" (2019); Balduzzi et al., "The shattered gradients problem" (2017). Norms use the statistics of the
batch, as in training.
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

from ...core.device import global_stream, numpy_stream, torch_stream
from ...core.errors import SeriatimError
from ...core.text import format_number
from ...models.resnet import Settings
from ...nn.images import BatchNorm, Convolution, FeatureMapInput, ResNet
from ...nn.network import Network, VectorHead, as_float32, assemble
from ...report.charts import Lines, Series, Table, row
from ..catalog import Depth
from ..declare import Notify
from ..result import Arrays, Drawing, NamedArray
from ..subject import Subject
from . import Request, implement

DEFAULT_LAYERS = (20, 56)
MIN_LAYERS, MAX_LAYERS = 8, 1_202  # of a stack for small images
IMAGES = 32
SHAPE = (3, 16, 16)  # of random images
LABELS = 10  # of random images
NOISE = 0.01  # relative to the standard deviation of the pixels

Loss = Callable[[nn.Module, Tensor], Tensor]  # mean loss of a network over images (n,C,H,W)


@dataclass(frozen=True)
class Stack:
    """The gradients of a network's convolutions, the first layer first."""

    name: str
    skips: bool
    layers: int
    sizes: np.ndarray  # (L,) norms
    similarities: np.ndarray  # (L,) cosines
    before: bool  # of a trained model: before its training

    @property
    def growth(self) -> float:
        """The ratio of the gradients of the first layer and the last."""
        return float(self.sizes[0] / self.sizes[-1]) if self.sizes[-1] > 0 else float("nan")


@dataclass(frozen=True)
class DepthFacts:
    """The stacks without their figures, and the number of layers of each."""

    stacks: list[Stack]
    counts: list[int]


def depth_arrays(subjects: list[Subject], request: Request[Depth]) -> Arrays[DepthFacts]:
    """Returns for each network and layer (N,L) the size of the gradient and its similarity; NaN beyond its layers."""
    layers, seed = request.options.layers, request.options.seed
    if layers is not None and any(subject.trained for subject in subjects):
        raise SeriatimError("inspect.layers", "a run has the layers that it was trained with", "omit --layers")
    stacks: list[Stack] = []
    for subject in subjects:
        if subject.trained:
            stacks += trained_stacks(subject, request.notify)
        else:
            stacks += fresh_stacks(subject, parse_layers(layers), seed, request.notify)
    counts = [len(stack.sizes) for stack in stacks]
    axes = {"network": [stack.name for stack in stacks], "layer": [str(n + 1) for n in range(max(counts))]}

    def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([np.pad(line, (0, max(counts) - len(line)), constant_values=np.nan) for line in rows])

    arrays = {
        "size": NamedArray(padded([stack.sizes for stack in stacks]), axes),
        "similarity": NamedArray(padded([stack.similarities for stack in stacks]), axes),
    }
    notes = depth_notes(stacks)
    if not all(subject.trained for subject in subjects):
        size = f"{IMAGES} random images of {SHAPE[1]} × {SHAPE[2]} pixels"
        notes.append(f"fresh networks with the settings of their model read {size}")
    nothing = np.zeros(0)
    facts = DepthFacts([replace(stack, sizes=nothing, similarities=nothing) for stack in stacks], counts)
    return Arrays("What depth does to gradients", arrays, facts, notes)


def depth_charts(arrays: Arrays[DepthFacts]) -> Drawing:
    sizes, similarities = arrays["size"].values, arrays["similarity"].values
    stacks = [
        replace(stack, sizes=sizes[n, :count], similarities=similarities[n, :count])
        for n, (stack, count) in enumerate(zip(arrays.facts.stacks, arrays.facts.counts, strict=True))
    ]
    curves = [
        depth_chart(stacks, [stack.sizes for stack in stacks], "Size of the gradients", "‖∂loss/∂W‖", log=True),
        depth_chart(
            stacks,
            [stack.similarities for stack in stacks],
            "Similarity of the gradients of two nearly equal images",
            "cosine of ∂loss/∂z of both",
        ),
    ]
    return Drawing([*curves, depth_table(stacks)])


implement(
    Depth,
    depth_arrays,
    depth_charts,
    {
        "is not a residual network": lambda subject: not isinstance(subject.settings, Settings),
        "has a decoder behind its residual network": lambda subject: subject.trained and subject.encoder_decoder,
    },
)


# Measuring


def fresh_stacks(subject: Subject, layers: Sequence[int], seed: int, notify: Notify) -> list[Stack]:
    """Returns stacks of all depths, plain and residual, over the same random images."""
    generator = numpy_stream(seed, "depth")
    images = torch.from_numpy(generator.integers(0, 256, (IMAGES, *SHAPE), dtype=np.uint8))
    targets = torch.from_numpy(generator.integers(0, LABELS, IMAGES))

    def loss(network: nn.Module, x: Tensor) -> Tensor:
        return F.cross_entropy(as_float32(network(x)[0]), targets)

    stacks = []
    for count in layers:
        for skips in (False, True):
            settings = subject.settings.model_copy(update={"layers": count, "skips": skips})
            with global_stream(seed, "init"):
                network = make_classifier(settings)
            name = f"{'residual' if skips else 'plain'}, {count} layers"
            notify(name)
            stacks.append(Stack(name, skips, count, *measure_gradients(network, images, loss), before=False))
    return stacks


def make_classifier(settings: Any) -> Network:
    """Returns a classifier of random images."""
    inputs: FeatureMapInput = settings.image_input(SHAPE)
    inputs.mean.fill_(0.5)
    inputs.std.fill_(12**-0.5)  # of the uniform distribution on [0, 1]
    length = inputs.grid[0] * inputs.grid[1]
    return assemble(settings, inputs, inputs.width, length, lambda backbone: VectorHead(backbone.width, LABELS, "mean"))


def trained_stacks(subject: Subject, notify: Notify) -> list[Stack]:
    """Returns the network before and after training, over the first images of the validation split."""
    task, split = subject.task, subject.split
    batch = task.collate(split.items, np.arange(min(IMAGES, len(split.items))))

    def loss(network: nn.Module, x: Tensor) -> Tensor:
        images = replace(batch.to(x.device), inputs=x)
        return task.loss(task.forward(network, images), images) / len(x)

    train = subject.data[1].train
    with global_stream(task.config.seed, "init"):
        fresh = task.build(train)
    device = next(subject.network.parameters()).device
    stacks, skips = [], bool(getattr(subject.settings, "skips", True))
    for network, before in ((fresh.to(device), True), (subject.network, False)):
        name = f"{subject.label}, before training" if before else subject.label
        notify(name)
        figures = measure_gradients(network, batch.inputs.to(device), loss)
        stacks.append(Stack(name, skips, len(figures[0]) + 1, *figures, before=before))
    return stacks


def measure_gradients(network: Any, images: Tensor, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """Returns the norms of the gradients of each convolution's weights, and the cosines of the gradients of its outputs
    for images and slightly changed ones. The network is copied: norms in training mode would store statistics."""
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, BatchNorm):
            module.train()
    x = images.float()
    noise = torch.randn(x.shape, generator=torch_stream(0, "neighbours")).to(x.device)
    changed = x + NOISE * 255 * network.input.std.view(-1, 1, 1) * noise
    weights, outputs = layer_gradients(network, x, loss)
    others = layer_gradients(network, changed, loss)[1]
    sizes = np.array([float(gradient.double().norm()) for gradient in weights])
    return sizes, np.array([mean_cosine(*pair) for pair in zip(outputs, others, strict=True)])


def layer_gradients(network: Any, x: Tensor, loss: Loss) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the gradients by the weights and by the outputs (n,C,h,w) of each convolution on the main path."""
    layers = main_convolutions(network.input.resnet)
    outputs: dict[int, Tensor] = {}

    def keep(index: int) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            outputs[index] = output

        return hook

    handles = [layer.register_forward_hook(keep(index)) for index, layer in enumerate(layers)]
    try:
        with torch.enable_grad():
            value = loss(network, x)
            variables = [layer.weight for layer in layers] + [outputs[index] for index in range(len(layers))]
            gradients = list(torch.autograd.grad(value, variables))
    finally:
        for handle in handles:
            handle.remove()
    return gradients[: len(layers)], gradients[len(layers) :]


def main_convolutions(resnet: ResNet) -> list[Convolution]:
    """Returns the convolutions between image and output, except in skip connections."""
    blocks: Any = resnet.blocks
    inner = [part.convolution for block in blocks for part in (block.first, block.second)]
    return [resnet.stem.convolution, *inner]


def mean_cosine(gradients: Tensor, others: Tensor) -> float:
    """Returns the mean over images of the cosine; 0 where a gradient is zero."""
    a, b = gradients.flatten(1).double(), others.flatten(1).double()
    lengths = a.norm(dim=1) * b.norm(dim=1)
    return float(((a * b).sum(dim=1) / lengths.clamp_min(1e-300)).mean())


def parse_layers(layers: str | Sequence[int] | None) -> list[int]:
    """Returns numbers of layers from a text such as "20,56"."""
    parts = DEFAULT_LAYERS if layers is None else layers.split(",") if isinstance(layers, str) else layers
    try:
        counts = sorted({int(part) for part in parts})
    except ValueError:
        counts = []
    if not counts or any(not MIN_LAYERS <= count <= MAX_LAYERS or (count - 2) % 6 for count in counts):
        cause = f"stacks have 6n+2 layers, {MIN_LAYERS} or more, not {layers}"
        raise SeriatimError("inspect.layers", cause, "such as --layers 20,56")
    return counts


# Showing


def depth_chart(
    stacks: Sequence[Stack], values: Sequence[np.ndarray], title: str, axis: str, log: bool = False
) -> Lines:
    """Returns curves from the last layer to the first, where they lie apart."""
    series = tuple(
        Series(stack.name, range(len(line)), row(line[::-1]), dashed=stack.before)
        for stack, line in zip(stacks, values, strict=True)
    )
    before = any(stack.before for stack in stacks)
    note = "dashed: before training; solid: after it" if before else "before training"
    return Lines(title=title, note=note, x="layers before the last", y=axis, series=series, log_y=log, join="depth")


def depth_table(stacks: Sequence[Stack]) -> Table:
    columns = ("network", "first size", "last size", "ratio", "first similarity", "last similarity")
    rows = []
    for stack in stacks:
        values = (stack.sizes[0], stack.sizes[-1], stack.growth, stack.similarities[0], stack.similarities[-1])
        rows.append((stack.name, *(format_number(float(value)) for value in values)))
    return Table(title="Gradients at the first layer and the last", columns=columns, rows=rows)


def depth_notes(stacks: Sequence[Stack]) -> list[str]:
    """Compares the deepest stacks that differ in their skips alone."""
    notes = []
    for before in (True, False):
        group = [stack for stack in stacks if stack.before == before]
        by_kind = {(stack.layers, stack.skips): stack for stack in group}
        depths = [count for count, skips in by_kind if skips and (count, False) in by_kind]
        if depths:
            plain, residual = by_kind[max(depths), False], by_kind[max(depths), True]
            when = "after training" if any(stack.before for stack in stacks) and not before else "before training"
            notes.append(
                f"{max(depths)} layers {when}: gradients of the first layer are {format_number(plain.growth)} times "
                f"those of the last without skips, {format_number(residual.growth)} times with them; those of two "
                f"nearly equal images have a cosine of {plain.similarities[0]:.2f} there without skips, of "
                f"{residual.similarities[0]:.2f} with them"
            )
    return notes
