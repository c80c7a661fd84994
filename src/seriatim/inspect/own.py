"""What a run brings with it: text of its own validation part, and its network as it was before training."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..core.random import derive
from ..nn.network import Network, token_network
from .subject import LENGTH, Subject

TEXTS = "language"  # the task whose data are running text


def lacking(subject: Subject) -> str:
    """Why there is no network that reads texts, as the end of a sentence; "" where there is one."""
    if subject.counts:
        return "counts, and has no network"
    if subject.run is None:
        return "was never trained"
    try:
        subject.reader  # noqa: B018
    except SeriatimError:
        return "does not read text"
    return ""


def written(subject: Subject, texts: Sequence[str], names: list[str]) -> list[str]:
    """The elements of a text as they stand there, with its ends of lines; those that do not stand there, and those of
    anything else, by their names."""
    if len(texts) != 1 or subject.pairs or lacking(subject):
        return names
    text = subject.reader.read(texts[0])
    spans = subject.reader.spans(text)[1].tolist()
    if len(spans) != len(names):
        return names
    return [text[start:end] or name for (start, end), name in zip(spans, names, strict=True)]


def speaks(subject: Subject) -> bool:
    """Whether it is a run that predicts the next token of running text."""
    return subject.run is not None and subject.run.config.task.name == TEXTS


def tokens(subject: Subject, most: int) -> np.ndarray:
    """The first tokens of the validation part, which the network did not learn from."""
    if not speaks(subject):
        raise subject.lacks("has no running text of its own", "give a text")
    found: np.ndarray = np.asarray(subject.data.corpus.valid[:most]).astype(np.int64)
    return found


def text(subject: Subject, most: int) -> str:
    """The same as a text."""
    return subject.reader.tokenizer.decode(tokens(subject, most))


def untrained(subject: Subject, inputs: Any, seed: int | None = None) -> Any:
    """The network of a run with fresh weights: those it began with, or those of another seed. But for language models
    only the backbone is made anew, for the vectors of such `inputs`; what stands before and behind it stays."""
    run = subject.run
    if run is None:
        raise subject.lacks("was never trained", "name a run")
    settings = subject.settings
    device = next(subject.network.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(run.config.seed if seed is None else seed, "init"))
        if speaks(subject):
            made: Network = token_network(settings, subject.reader.tokenizer.size, run.config.task.length)
            return made.to(device).eval()
        network: Any = copy.deepcopy(subject.network)
        with torch.no_grad():
            width = network.input(inputs).shape[-1]
        length = subject.backbone.context
        network.backbone = settings.build(width, LENGTH if length is None else length).to(device)
    return network.eval()
