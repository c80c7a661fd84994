"""What is looked into: a run with the reader of its texts, or a fresh network of a named model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core import registry
from ..core.errors import SeriatimError
from ..core.random import derive
from ..nn.backbone import BackboneSettings
from .trace import Trace, traced

if TYPE_CHECKING:
    from ..runs import Run
    from ..tasks._readers import Reader

LENGTH = 512  # that a fresh network is made for


@dataclass(frozen=True)
class Reading:
    """A sequence as the network reads it."""

    inputs: Any  # (1,T) tokens, or whatever the network takes
    names: list[str]  # of its elements, fit to be shown
    mask: Tensor | None = None


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
            return self.settings.build(size, LENGTH)

    @cached_property
    def reader(self) -> Reader:
        if self.run is None:
            raise self.lacks("was never trained and knows no tokens", "name a run")
        return self.run._reader

    def read(self, text: str) -> Reading:
        """A text as the network reads it; one that is too long for it is refused."""
        reader = self.reader
        encoded = reader.encode([text])
        if encoded.cut:
            raise SeriatimError(
                "inspect.length", f"the text is longer than the {reader.limit} elements that {self.label} takes",
                "give a shorter one",
            )  # fmt: skip
        row = encoded.rows[0]
        names = [reader.tokenizer.token(index) for index in row.tolist()]
        return Reading(torch.from_numpy(row)[None].to(reader.device), names)

    def trace(self, reading: Reading) -> Trace:
        """What happens inside the network while it reads."""
        return traced(self.network, reading.inputs, reading.mask)[1]

    def lacks(self, why: str, remedy: str) -> SeriatimError:
        return SeriatimError("inspect.offer", f"{self.label} {why}", remedy)


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
