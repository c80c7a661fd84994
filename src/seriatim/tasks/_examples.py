"""What tasks over examples share: inputs as numbers, batches by epoch and length, and evaluation in order.

An epoch visits every example once (but for what is left over from whole batches), in an order that follows from the
seed and the epoch's number alone. Examples of like length come together, so that little is padded: the shuffled order
is cut into pools of some batches, each pool is sorted by length, and its batches are shuffled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core import registry
from ..core.errors import SeriatimError
from ..core.random import derive, numpy_stream
from ..core.tensors import load_tensors
from ..data.picture_files import thumbnail
from ..data.pictures import Pictures
from ..data.sequences import Examples, Sequences
from ..nn.backbone import BackboneSettings
from ..nn.inputs import NumberInput
from ..nn.network import Network, full, load_weights, weights
from ..nn.pictures import PictureInput
from ._coder import Coder
from ._task import Batch

POOL = 64  # batches that are sorted by length together
ELEMENTS = 32_768  # that go through a network at once while evaluating
PIXELS = 1 << 19  # the same of pictures
PICTURE = 100  # elements that one counts for where only so many are evaluated on
REACHING = 32  # sequences whose gradients are looked at
NEAR = 20  # elements of a sequence that is too short for it
POINTS = 100  # of a curve


@dataclass(frozen=True)
class Part:
    """Encoded examples."""

    inputs: Any  # Sequences or Pictures
    targets: Any  # an array (n,…), or Sequences with one target for each step
    examples: Examples  # as they came

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass
class ExampleTask:
    """Batches over examples. A task adds its head, its loss and its measures."""

    settings: Any
    coder: Coder
    parts: dict[str, Part]
    seed: int
    notes: list[str] = field(default_factory=list)
    fingerprint: str = ""
    standardise: bool = True  # numbers are brought to mean 0 and deviation 1
    flips: bool = False  # every other picture is mirrored while training

    objective = "loss"
    unit = "examples"  # that a loss is divided by

    def __post_init__(self) -> None:
        self.begun: BackboneSettings | None = None  # what a training began with
        self._orders: dict[tuple[int, int], np.ndarray] = {}
        self._last: tuple[Any, tuple[np.ndarray, np.ndarray]] | None = None

    # What the loop and the run folder ask

    @property
    def size(self) -> int:
        return len(self.parts["train"])

    def has(self, split: str) -> bool:
        return split in self.parts and len(self.parts[split]) > 0

    def save(self, folder: Path) -> None:
        self.coder.save(folder)

    def build(self, model: BackboneSettings) -> Network:
        """The network with fresh weights, the same for the same seed."""
        self.begun = model
        torch.manual_seed(derive(self.seed, "init"))
        network = self.shape(model)
        if self.standardise and isinstance(network.input, NumberInput):
            mean, deviation = spread(self.parts["train"].inputs.values)
            network.input.mean.copy_(torch.from_numpy(mean))
            network.input.deviation.copy_(torch.from_numpy(deviation))
        if self.standardise and isinstance(network.input, PictureInput):
            mean, deviation = self.parts["train"].inputs.spread()
            network.input.mean.copy_(torch.from_numpy(mean))
            network.input.deviation.copy_(torch.from_numpy(deviation))
        return network

    def shape(self, model: BackboneSettings) -> Network:
        raise TypeError(f"{type(self).__name__} has no shape")

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        part, chosen = self.parts["train"], self.rows(step, rows)
        if not isinstance(part.inputs, Pictures):
            return self.collate("train", chosen[first:last])
        draw = numpy_stream(self.seed, "pictures", step)
        block = part.inputs.drawn(chosen, draw, self.flips, slice(first, last))
        return Batch(torch.from_numpy(block), torch.from_numpy(part.targets[chosen[first:last]]), count=last - first)

    @property
    def ahead(self) -> bool:
        """Whether to make the batch of the next step while this one is learnt from: pictures take their time."""
        return isinstance(self.parts["train"].inputs, Pictures)

    def steps_per_epoch(self, rows: int) -> int:
        """What is left over from whole batches waits for another epoch."""
        return max(self.size // rows, 1)

    def rows(self, step: int, rows: int) -> np.ndarray:
        """The examples of a step."""
        epoch, place = divmod(step, self.steps_per_epoch(rows))
        order = self._order(epoch, rows)[place * rows : (place + 1) * rows]
        return np.resize(order, rows)  # where there are fewer examples than rows, some come twice

    def _order(self, epoch: int, rows: int) -> np.ndarray:
        if (epoch, rows) not in self._orders:
            draw = numpy_stream(self.seed, "shuffle", epoch)
            order = draw.permutation(self.size)
            lengths = self.parts["train"].inputs.lengths
            if self.size >= 2 * rows and lengths.min() != lengths.max():
                order = _by_length(order[: self.size // rows * rows], lengths, rows, draw)
            self._orders = {(epoch, rows): order}
            return order
        return self._orders[epoch, rows]

    def collate(self, split: str, rows: np.ndarray) -> Batch:
        part = self.parts[split]
        block, real = part.inputs.padded(rows)
        mask = None if real.all() else torch.from_numpy(real)
        targets = torch.from_numpy(part.targets[rows])
        return Batch(torch.from_numpy(block), targets, count=len(rows), mask=mask)

    def answered(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of the targets that these rows of the training part have, in the order of a batch."""
        return rows

    # Evaluation

    def chosen(self, split: str, limit: int | None = None) -> np.ndarray:
        """The places of all examples of a part, or of some, spread evenly over it."""
        part = self.parts.get(split)
        if part is None or not len(part):
            there = [name for name in self.parts if self.has(name)]
            raise SeriatimError(
                "data.no-split", f"there is no {split} part to evaluate on", f"there is: {', '.join(there) or 'none'}"
            )
        elements = _elements(part.inputs)
        if limit is None or elements <= limit:
            return np.arange(len(part))
        kept = max(int(limit / elements * len(part)), 1)
        return np.unique(np.linspace(0, len(part) - 1, kept).astype(np.int64))

    def outputs(self, network: nn.Module, split: str, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """What the network gives for the examples of a part, one row for each, and their places.

        Measures and details ask for the same one after the other: the last answer is kept while the weights stay.
        """
        asked = (digest(network), split, limit)
        if self._last is not None and self._last[0] == asked:
            return self._last[1]
        rows = self.chosen(split, limit)
        found: list[np.ndarray] = [rows] * len(rows)
        order = {row: index for index, row in enumerate(rows.tolist())}
        for some, scores in through(network, self.parts[split].inputs, rows):
            for row, score in zip(some.tolist(), scores.numpy(), strict=True):
                found[order[row]] = score
        self._last = (asked, (np.stack(found), rows))
        return self._last[1]

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        return {}

    def details(self, model: Any, split: str) -> list[dict[str, Any]]:
        return []

    def reach(self, network: Network, split: str) -> list[dict[str, Any]]:
        """How strongly the loss depends on each element, over its distance from the end: learning reaches no further
        back than that. Sequences of one length are looked at, the longest that is frequent."""
        if isinstance(self.parts[split].inputs, Pictures):
            return []
        lengths = self.parts[split].inputs.lengths
        length = int(np.quantile(lengths, 0.75, method="nearest"))
        rows = np.flatnonzero(lengths == length)[:REACHING]
        if length < NEAR:
            return []
        batch = self.collate(split, rows)
        networks = {"at the start": None if self.begun is None else self.build(self.begun), "after training": network}
        series = [[name, self._gradient(one, batch)] for name, one in networks.items() if one is not None]
        return [
            {
                "kind": "lines",
                "title": "How far back learning reaches",
                "note": f"mean over {len(rows)} sequences of {length} elements"
                + ("; dashed: at the start" if len(series) > 1 else ""),
                "x": "steps before the last",
                "y": "gradient of the loss with respect to the input",
                "log": True,
                "series": series,
                "dashes": ["at the start"],
                "together": "reach",
            }
        ]

    def _gradient(self, network: Network, batch: Batch) -> list[list[float]]:
        """Distances from the end, with the norm of the gradient there; neighbours together."""
        batch = batch.to(next(network.parameters()).device)
        vectors = network.eval().input(batch.inputs).detach().requires_grad_()  # (B,T,D)
        behind = Network(nn.Identity(), network.backbone, network.head)
        loss, _ = self.loss(behind, replace(batch, inputs=vectors), None, 0.0)
        (gradient,) = torch.autograd.grad(loss, vectors)
        squares = gradient.cpu().double().square().sum(dim=-1).mean(dim=0).numpy()
        length = len(squares)
        bins = np.array_split(np.arange(length), min(length, POINTS))
        return [[length - 1 - float(some.mean()), float(np.sqrt(squares[some].mean()))] for some in bins]

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[torch.Tensor, Any]:
        raise TypeError(f"{type(self).__name__} has no loss")


def spread_over(items: Any, count: int) -> list[Any]:
    """Some of many, spread evenly; of few, some more than once."""
    return [items[place] for place in np.linspace(0, len(items) - 1, count).astype(np.int64).tolist()]


@torch.inference_mode()
def through(
    network: nn.Module, sequences: Sequences | Pictures, rows: np.ndarray
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Some sequences through a network, like lengths together: their places, and the outputs (n,…).

    A network with a limited context reads the beginning of a sequence that is longer. Of pictures it is made for all.
    """
    network.eval()
    device = next(network.parameters()).device
    shown = isinstance(sequences, Pictures)
    context: int | None = None if shown else network.get_submodule("backbone").context  # type: ignore[assignment]
    most = PIXELS if shown else ELEMENTS
    lengths = np.maximum(sequences.lengths, 1)
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    while len(rows):
        some = rows[: max(most // int(lengths[rows[0]]), 1)]
        rows = rows[len(some) :]
        block, real = (array[:, :context] for array in sequences.padded(some))
        mask = None if real.all() else torch.from_numpy(real).to(device)
        scores, _ = network(torch.from_numpy(block).to(device), mask)
        yield some, full(scores).cpu()


def _elements(inputs: Sequences | Pictures) -> int:
    """What evaluating costs: of pictures not their pixels, which would leave hardly any of them."""
    return len(inputs) * PICTURE if isinstance(inputs, Pictures) else int(inputs.lengths.sum())


def digest(network: nn.Module) -> str:
    """Of all weights. (Torch's own count of changes misses those of the fused optimisers.)"""
    found = hashlib.blake2b(digest_size=16)
    for tensor in weights(network).values():
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, in float32; a constant column has deviation 1."""
    mean = values.mean(axis=0, dtype=np.float64)
    deviation = np.sqrt(np.square(values - mean).mean(axis=0, dtype=np.float64))
    deviation = np.where(deviation > 1e-7 * np.maximum(np.abs(mean), 1e-30), deviation, 1.0)
    return mean.astype(np.float32), deviation.astype(np.float32)


def pictured(one: Any) -> Any:
    """An input for a table of a report: pictures as such, all else in a few words."""
    if isinstance(one, np.ndarray) and one.dtype == np.uint8 and one.ndim == 3:
        return {"png": thumbnail(one)}
    return shown(one)


def shown(one: Any, most: int = 200) -> str:
    """An input in a few words: of a text at most so many characters, of two texts half of them each."""
    if isinstance(one, tuple):
        return " ⇥ ".join(shown(text, most // 2) for text in one)
    if isinstance(one, str):
        return one if len(one) <= most else one[:most] + " …"
    block = np.asarray(one)
    if block.dtype == np.uint8 and block.ndim == 3:
        return f"a picture of {block.shape[1]} × {block.shape[0]} pixels"
    return f"{len(block)} steps: " + " ".join(f"{value:.3g}" for value in block.reshape(-1)[:12]) + " …"


def refuse_counting(model: Any, task: str) -> None:
    if model.counts:
        raise SeriatimError(
            "task.counts", f"{model.name} learns nothing by gradients, and what it keeps does not answer {task}",
            "choose another --model: `seriatim list models`",
        )  # fmt: skip


def refuse_pairs(model: Any, task: str) -> None:
    if model.pairs:
        names = registry.models.names()
        fit = [name for name in names if not (one := registry.models.load(name).Settings).pairs and not one.counts]
        raise SeriatimError(
            "task.pairs", f"{model.name} learns pairs of sequences; {task} asks for something else",
            f"choose another --model: {', '.join(fit)}; or the task {'caption' if model.pictures else 'translate'}",
        )  # fmt: skip


def _by_length(order: np.ndarray, lengths: np.ndarray, rows: int, draw: np.random.Generator) -> np.ndarray:
    found = []
    for start in range(0, len(order), POOL * rows):
        pool = order[start : start + POOL * rows]
        found.append(pool[np.argsort(lengths[pool], kind="stable")])
    batches = np.concatenate(found).reshape(-1, rows)
    return batches[draw.permutation(len(batches))].reshape(-1)


def restore(network: Network, path: Path) -> Network:
    """The trained weights of a run folder, or an error that says why not."""
    if not (path / "model.safetensors").exists():
        raise SeriatimError(
            "run.unfinished", f"{path} was stopped before its first evaluation", f"`seriatim resume {path}`"
        )
    try:
        load_weights(network, load_tensors(path / "model.safetensors"))
    except (KeyError, ValueError) as error:
        raise mismatch(path, error) from None
    return network.eval()


def mismatch(path: Path, error: Exception) -> SeriatimError:
    return SeriatimError("run.mismatch", f"{path}: weights and config.yaml do not fit: {error}", "restore config.yaml")
