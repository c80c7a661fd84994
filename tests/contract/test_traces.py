"""The contract of traces, for every architecture: they record what happens inside, and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder_decoder_cases import AFTER, PAIRS, build_pair, tokens
from helpers import BIDIRECTIONAL, backbones, build, label, mask_of, sequence
from seriatim.inspect.trace import NAMES, BoundedTrace, join_traces, run_traced
from seriatim.nn.backbone import NamedTrace, element_axis
from seriatim.nn.names import Pooling
from seriatim.nn.network import Network, VectorHead

CAUSAL = backbones()
ALL = CAUSAL + BIDIRECTIONAL
every = pytest.mark.parametrize("case", ALL, ids=label)
causal = pytest.mark.parametrize("case", CAUSAL, ids=label)
# Each cell, score, norm and kind of position once
COVERING = [case for case in PAIRS if "score" not in case[1] or case[1]["score"] in ("dot", "general")] + AFTER
pairs = pytest.mark.parametrize("case", COVERING, ids=label)

# As large as it takes for every shortcut: native attention and recurrence, weights in another order
LARGE = {name: {"width": 128, "context_length": 64} for name in ("bert", "gpt")}


def equal(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def large(case: Any) -> Any:
    return build((case[0], case[1] | LARGE.get(case[0], {"width": 48})), dtype=torch.float32)


def attributes(module: nn.Module) -> dict[str, int]:
    """Returns the identity, or the size, of everything that is stored on a module and its children."""
    return {
        f"{location}.{name}": len(value) if isinstance(value, dict) else id(value)
        for location, child in module.named_modules()
        for name, value in vars(child).items()
    }


def check_documented(trace: Mapping[str, Tensor], sizes: dict[str, set[int]]) -> None:
    """Asserts that each name is listed with its dimensions; `sizes` are those of B, T and S."""
    assert trace, "every model records something"
    for name, value in trace.items():
        letters = NAMES[name.rpartition(".")[2]][0]
        assert len(letters) == value.dim(), name
        for letter, size in zip(letters, value.shape, strict=True):
            assert size in sizes.get(letter, {size}), f"{name}: {tuple(value.shape)}"


@every
@pytest.mark.parametrize("lengths", [None, [45, 3, 1], [45, 44, 45]], ids=str)
def test_outputs_are_the_same_bit_for_bit(case: Any, lengths: list[int] | None) -> None:
    """With few keys or many, much padding, little or none, in training and prediction."""
    backbone = large(case)
    steps = 12 if lengths is None else max(lengths)
    x = sequence(3, steps, dtype=torch.float32)
    mask = None if lengths is None else mask_of(lengths, steps)
    before = attributes(backbone)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            plain, after = backbone(x, mask)
            traced, traced_after = backbone(x, mask, None, {})
        assert torch.equal(plain, traced)
        if backbone.causal and case[0] != "gpt":
            leaves = (torch.utils._pytree.tree_leaves(state) for state in (after, traced_after))
            assert all(torch.equal(a, b) for a, b in zip(*leaves, strict=True))
    assert attributes(backbone) == before, "nothing is left on the module"


@every
@pytest.mark.parametrize("pooling", ["last", "first", "mean"])
def test_also_if_the_head_uses_one_element_only(case: Any, pooling: Pooling) -> None:
    backbone = large(case)
    head = VectorHead(backbone.width, 3, pooling, 2 if case[1].get("bidirectional") else 1)
    network = Network(nn.Identity(), backbone, head).eval()
    x = sequence(2, 12, dtype=torch.float32)
    for mask in (None, mask_of([12, 5], 12)):
        with torch.inference_mode():
            plain = network(x, mask)[0]
        output, trace = run_traced(network, x, mask)
        assert torch.equal(plain, output[0])
        check_documented(trace, {"B": {2}, "T": {12}, "S": {12}})


@every
def test_values_are_documented_and_zero_on_padding(case: Any) -> None:
    backbone, lengths = build(case), [7, 2, 4]
    x, mask = sequence(3, 7), mask_of(lengths, 7)
    trace: dict[str, Tensor] = {}
    backbone(x, mask, None, trace)
    check_documented(trace, {"B": {3}, "T": {7}, "S": {7}})
    for row, length in enumerate(lengths):
        alone: dict[str, Tensor] = {}
        backbone(x[row : row + 1, :length], None, None, alone)
        assert alone.keys() == trace.keys()
        for name, value in trace.items():
            here = value[row].movedim(element_axis(value) - 1, 0)  # elements first
            assert not here[length:].any(), f"{name} has values on padding"
            if name.endswith("attention"):
                assert (value >= 0).all()
                assert not here[..., length:].any(), f"{name} attends to padding"
                equal(here[:length].sum(dim=-1), torch.ones_like(here[:length, :, 0]))
                here = here[..., :length]
            equal(here[:length], alone[name][0].movedim(element_axis(value) - 1, 0))


@causal
def test_step_by_step_is_as_the_whole(case: Any) -> None:
    backbone, x = build(case), sequence(2, 8)
    whole: dict[str, Tensor] = {}
    backbone(x, None, None, whole)
    for sizes in ([1] * 8, [3, 1, 4]):
        traces: list[dict[str, Tensor]] = []
        state = None
        for part in x.split(sizes, dim=1):
            traces.append({})
            _, state = backbone(part, None, state, traces[-1])
        joined = join_traces(traces)
        assert joined.keys() == whole.keys()
        for name, value in whole.items():
            equal(joined[name], value)


@every
def test_only_accepted_names_are_recorded(case: Any) -> None:
    backbone, x = build(case), sequence(2, 5)
    whole: dict[str, Tensor] = {}
    backbone(x, None, None, whole)
    for name in {key.rpartition(".")[2] for key in whole} | set(list(whole)[:1]):
        for trace in (NamedTrace(name), BoundedTrace([name])):
            backbone(x, None, None, trace)
            assert trace.keys() == {key for key in whole if key == name or key.endswith(f".{name}")}
            assert all(torch.equal(value, whole[key]) for key, value in trace.items())


# Two sequences


@pairs
def test_encoder_decoders_give_the_same_bit_for_bit(case: Any) -> None:
    more = {"width": 48} if case[1].get("width") is None else {}
    network = build_pair((case[0], case[1] | more)).float()
    source, target, lengths = tokens(3, 12, 11), tokens(3, 9, 9), [12, 5, 1]
    before = attributes(network)
    for mask in (None, mask_of(lengths, 12)):
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                assert torch.equal(network(source, target, mask, {}), network(source, target, mask))
                memory = network.encode(source, mask)
                aligned = network.decode(target, memory, None, NamedTrace("alignment"))[0]
                assert torch.equal(aligned, network.decode(target, memory)[0])
    assert attributes(network) == before, "nothing is left on it"


@pairs
def test_what_encoder_decoders_record(case: Any) -> None:
    """Rows of an alignment sum to one over source elements and are zero on padding."""
    network, lengths = build_pair(case), [7, 2, 1]
    source, target, mask = tokens(3, 7, 11), tokens(3, 4, 9), mask_of(lengths, 7)
    trace: dict[str, Tensor] = {}
    network(source, target, mask, trace)
    check_documented(trace, {"B": {3}, "T": {4, 7}, "S": {4, 7}})
    assert {name.partition(".")[0] for name in trace} >= {"encoder", "decoder"}
    for name, value in trace.items():
        if name.startswith("encoder"):
            assert not value.movedim(element_axis(value), 1)[~mask].any(), f"{name} has values on padding"
    if case[0] == "seq2seq":
        assert "alignment" not in trace
        return
    weights = trace["alignment"]
    assert weights.shape == (3, 4, 7)
    equal(weights.sum(dim=-1), torch.ones(3, 4, dtype=torch.float64))
    assert (weights >= 0).all()
    assert not weights.masked_select(~mask[:, None]).any()
    only = NamedTrace("alignment")
    network(source, target, mask, only)
    assert only.keys() == {"alignment"}
    assert torch.equal(only["alignment"], weights)
    if case[0] == "transformer":
        layers = [value for name, value in trace.items() if name.endswith("cross_attention")]
        assert len(layers) == len(network.backbone.get_submodule("decoder"))  # type: ignore[arg-type]
        equal(torch.stack(layers).mean(dim=(0, 2)), weights)


@pairs
def test_a_target_step_by_step_is_as_the_whole(case: Any) -> None:
    network = build_pair(case)
    source, target, mask = tokens(2, 6, 11), tokens(2, 5, 9), mask_of([6, 3], 6)
    whole: dict[str, Tensor] = {}
    network(source, target, mask, whole)
    traces: list[dict[str, Tensor]] = [{}]
    memory, state = network.encode(source, mask, traces[0]), None
    for token in target.split(1, dim=1):
        traces.append({})
        _, state = network.decode(token, memory, state, traces[-1])
    joined = join_traces(traces)
    assert joined.keys() == whole.keys()
    for name, value in whole.items():
        equal(joined[name], value)
