"""Traces of whole networks are bounded, keep no graph, and leave the network as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.inspect.trace import BoundedTrace, TraceName, run_traced
from seriatim.nn.network import token_network

TOKENS = torch.zeros(1, 200, dtype=torch.long)
LAYER_BYTES = 2 * 200 * 200 * 4  # of the weights of a layer


def gpt() -> Any:
    settings = registry.models.load("gpt").Settings(name="gpt", width=8, heads=2, layers=2, context_length=256)
    return token_network(settings, 11, 256).eval()


def test_a_trace_is_bounded() -> None:
    network = gpt()
    assert run_traced(network, TOKENS, names=["attention"], max_bytes=2 * LAYER_BYTES)[1].bytes == 2 * LAYER_BYTES
    with pytest.raises(SeriatimError) as caught:
        run_traced(network, TOKENS, names=["attention"], max_bytes=2 * LAYER_BYTES - 1)
    assert caught.value.code == "inspect.memory"
    assert "shorter text" in caught.value.remedy
    one_layer = run_traced(network, TOKENS, names=["layer1.attention"], max_bytes=LAYER_BYTES)[1]
    assert one_layer.keys() == {"layer1.attention"}


def test_it_refuses_before_it_uses_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("computed weights that are too large")

    monkeypatch.setattr("seriatim.nn.transformer.attention_weights", never)
    with pytest.raises(SeriatimError, match="needs more than"):
        run_traced(gpt(), TOKENS, names=["attention"], max_bytes=1000)


def test_traces_keep_no_graph() -> None:
    trace = BoundedTrace()
    with torch.enable_grad():
        gpt()(TOKENS[:, :5], None, None, trace)
    assert trace
    assert not any(value.requires_grad for value in trace.values())


def test_the_mode_of_each_module_is_restored() -> None:
    network = gpt().train()
    network.backbone.blocks[0].eval()
    before = [module.training for module in network.modules()]
    run_traced(network, TOKENS[:, :5])
    with pytest.raises(SeriatimError):
        run_traced(network, TOKENS[:, :5], max_bytes=1)
    assert [module.training for module in network.modules()] == before


def test_names_are_taken_apart() -> None:
    name = TraceName.parse("encoder.layer1.backward.forget_gate")
    assert (name.side, name.kind, name.index, name.direction, name.part) == (
        "encoder",
        "layer",
        1,
        "backward",
        "forget_gate",
    )
    assert name.location == "encoder, layer 1, backward"
    assert TraceName.parse("alignment") == TraceName("", "", None, "", "alignment")
