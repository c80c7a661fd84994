"""What a run brings with it: text of its own validation part, and its network as it was before training."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core import registry
from ..core.errors import SeriatimError
from ..core.random import derive
from ..nn.network import Network, token_network
from .subject import LENGTH, Reading, Subject

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


def written(subject: Subject, text: str, reading: Reading) -> list[str]:
    """The elements as they stand in the text, with its ends of lines; those that do not stand there by their names."""
    text = subject.reader.read(text)
    spans = subject.reader.spans(text)[1].tolist()
    return [text[start:end] or name for (start, end), name in zip(spans, reading.names, strict=True)]


def tokens(subject: Subject, most: int) -> np.ndarray:
    """The first tokens of the validation part, which the network did not learn from."""
    run = subject.run
    if run is None or run.config.task.name != TEXTS:
        raise subject.lacks("has no running text of its own", "give a text")
    task = registry.tasks.load(TEXTS).reopen(run.path, run.config)
    found: np.ndarray = np.asarray(task.corpus.valid[:most]).astype(np.int64)
    return found


def text(subject: Subject, most: int) -> str:
    """The same as a text."""
    return subject.reader.tokenizer.decode(tokens(subject, most))


def untrained(subject: Subject, seed: int | None = None) -> Any:
    """The network of a run with fresh weights: those it began with, or those of another seed. Where its task has no
    such network at hand, the input and what follows the backbone stay as they are."""
    run = subject.run
    if run is None:
        raise subject.lacks("was never trained", "name a run")
    settings = subject.settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(run.config.seed if seed is None else seed, "init"))
        if run.config.task.name == TEXTS:
            made: Network = token_network(settings, subject.reader.tokenizer.size, run.config.task.length)
            return made.to(subject.reader.device).eval()
        network = copy.deepcopy(subject.network)
        width = subject.reader.table.embedding_dim
        length = getattr(subject.backbone, "context", None)
        backbone: nn.Module = settings.build(width, LENGTH if length is None else length)
        network.backbone = backbone.to(subject.reader.device)
    return network.eval()
