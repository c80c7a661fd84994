"""Recurrent cells by name, for the models that are built on any of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from ..nn.recurrent import Cell
from . import gru, lstm, rnn
from .gru import Reset

__all__ = ["CellName", "Reset", "cell_maker", "cell_rate"]

CellName = Literal["rnn", "lstm", "gru"]


def cell_maker(name: CellName, reset: Reset = "before") -> Callable[[int, int], Cell]:
    """What makes a cell for a size of inputs and a width."""
    if name == "gru":
        return partial(gru.GRUCell, reset=reset)
    return lstm.LSTMCell if name == "lstm" else rnn.RNNCell


def cell_rate(name: CellName) -> float:
    """The learning rate that suits encoder–decoders of it."""
    return {"rnn": 1e-3, "lstm": 2e-3, "gru": 2e-3}[name]
