"""What is looked into: a run with the reader of its texts, or a fresh network of a named model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..core import registry
from ..core.errors import SeriatimError, did_you_mean
from ..core.random import derive
from ..nn.backbone import BackboneSettings
from ..nn.pair import PairBackbone
from ..nn.trace import Trace as AnyTrace
from .reading import NOISE, Reading, of_example, of_noise, of_texts
from .trace import MOST, Trace, traced

if TYPE_CHECKING:
    from ..runs import Run
    from ..tasks._readers import Reader

LENGTH = 512  # that a fresh network is made for


class Subject:
    """`run` is None for a fresh network; `model` is its name, `label` what it is called in pictures and errors."""

    def __init__(self, model: str, label: str, run: Run | None = None) -> None:
        self.model, self.label, self.run = model, label, run

    def __repr__(self) -> str:
        return f"Subject({self.label!r})"

    @property
    def trained(self) -> bool:
        return self.run is not None

    @cached_property
    def settings(self) -> BackboneSettings:
        """Of the model."""
        if self.run is not None:
            found: BackboneSettings = self.run.config.model
            return found
        made: BackboneSettings = registry.models.load(self.model).Settings(name=self.model)
        return made

    @property
    def counts(self) -> bool:
        """Whether it counts instead of learning, and has no network."""
        return bool(self.settings.counts)

    @property
    def pairs(self) -> bool:
        """Whether it reads one sequence and writes another; any model does where its task is to translate."""
        return isinstance(self.backbone, PairBackbone)

    @cached_property
    def network(self) -> nn.Module:
        """The whole network of a run."""
        if self.run is None or self.counts:
            raise self.lacks("has no network" if self.counts else "was never trained", "name a run")
        network: nn.Module = self.run.model
        return network.eval()

    @cached_property
    def backbone(self) -> Any:
        """The architecture alone; of a fresh network, with the settings that it has by default."""
        return self.network.get_submodule("backbone") if self.run is not None else self.fresh(0)

    def fresh(self, seed: int, inputs: int | None = None) -> Any:
        """The backbone as it is before training."""
        size = self.settings.input_width(tied=True) if inputs is None else inputs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "init"))
            single = self.settings.pictures and not self.settings.pairs  # takes one length alone
            return self.settings.build(size, NOISE if single else LENGTH)

    @cached_property
    def reader(self) -> Reader:
        if self.run is None:
            raise self.lacks("was never trained and knows no tokens", "name a run")
        return self.run._reader

    @cached_property
    def data(self) -> Any:
        """The task of a run with its data, as it was trained on them."""
        if self.run is None:
            raise self.lacks("was never trained and has no data", "name a run")
        return registry.tasks.load(self.run.config.task.name).reopen(self.run.path, self.run.config)

    def read(self, *texts: str, target: str | None = None, example: int | None = None) -> Reading:
        """Texts as the network reads them, or where none is given a sequence of its own data: the first, or that of
        the number `example`. `target` is the second text of a translator; by default what it says itself."""
        if texts and example is not None:
            raise SeriatimError("inspect.example", "a text and an example are two things", "give one of both")
        if texts:
            return of_texts(self, texts, target)
        if self.run is None and example is None:
            return of_noise(self)
        return of_example(self, 0 if example is None else example)

    def trace(self, reading: Reading, wanted: Iterable[str] = (), most: int = MOST) -> Trace:
        """What happens inside the network while it reads; `wanted` are names, or last parts of them (see trace.py)."""
        return self.answer(reading, wanted, most)[1]

    def answer(self, reading: Reading, wanted: Iterable[str] = (), most: int = MOST) -> tuple[Any, Trace]:
        """The same with what the network says."""
        network = self.network if self.run is not None else self.backbone.eval()
        if reading.target is None:
            return traced(network, reading.inputs, reading.mask, most=most, wanted=wanted)
        through = network if self.run is not None else _both(network)
        return traced(through, reading.inputs, reading.target.inputs, reading.mask, most=most, wanted=wanted)

    def lacks(self, why: str, remedy: str) -> SeriatimError:
        return SeriatimError("inspect.offer", f"{self.label} {why}", remedy)


def _both(backbone: Any) -> Callable[..., Any]:
    """An encoder and its decoder, without tokens before or behind them."""

    def through(source: Any, target: Any, mask: Any, trace: AnyTrace) -> Any:
        return backbone.decode(target, backbone.encode(source, mask, trace), None, trace)

    return through


def subjects(what: Iterable[Any]) -> list[Subject]:
    """Runs, folders of runs (a comparison) and names of models, each with a name of its own."""
    from ..runs import Run, list_runs

    found: list[Subject] = []
    for one in what:
        if isinstance(one, Subject):
            found.append(one)
        elif isinstance(one, Run):
            found.append(_of(one))
        elif isinstance(one, str) and one in registry.models.names() and not (Path(one) / "config.yaml").is_file():
            found.append(Subject(one, one))
        elif not (Path(one) / "config.yaml").is_file() and (runs := list_runs(one)):
            found += [_of(run) for run in reversed(runs)]
        elif isinstance(one, str) and not Path(one).exists() and Path(one).name == one:
            near = did_you_mean(one, registry.models.names())
            raise SeriatimError("inspect.subject", f"{one} is neither the folder of a run nor a model", near)
        else:
            found.append(_of(Run(one)))
    if not found:
        raise SeriatimError("inspect.subject", "there is nothing to look into", "name a run, or a model")
    return _told_apart(found)


def _of(run: Run) -> Subject:
    return Subject(run.config.model.name, run.path.name, run)


def _told_apart(found: Sequence[Subject]) -> list[Subject]:
    """Models by their names, where these are all different."""
    names = [one.model for one in found]
    if len(found) > 1 and len(set(names)) == len(names):
        for one in found:
            one.label = one.model
    return list(found)
