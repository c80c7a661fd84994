"""The names of choices that settings offer, without torch: pooling, attention scores, activations of a pooler."""

from __future__ import annotations

from typing import Literal

Pooling = Literal["last", "mean", "max", "attention", "first"]
TextPooling = Literal["mean", "cls", "max", "last"]  # of the vectors of a text
Pooler = Literal["tanh", "relu", "gelu"]  # the activation of a head's layer on the first element
KernelName = Literal["gaussian", "boxcar", "epanechnikov"]
ScoreName = Literal["dot", "scaled_dot", "general", "additive", "concat", "distance", KernelName]
