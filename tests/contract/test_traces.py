"""The contract of traces, held for every architecture: they show what happens inside, and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from test_pairs import AFTER, PAIRS, tokens, toy
from test_pairs import build as build_pair
from torch import Tensor, nn

from helpers import BIDIRECTIONAL, backbones, build, label, mask_of, sequence
from seriatim.inspect.trace import NAMES, Trace, joined, traced
from seriatim.nn.heads import Pooling, VectorHead
from seriatim.nn.network import Network
from seriatim.nn.trace import Only, element_axis

__all__ = ["toy"]  # a backbone of the user's own, which some of the cases are

CAUSAL = backbones()
ALL = CAUSAL + BIDIRECTIONAL
every = pytest.mark.parametrize("case", ALL, ids=label)
causal = pytest.mark.parametrize("case", CAUSAL, ids=label)
pairs = pytest.mark.parametrize("case", PAIRS + AFTER, ids=label)
OWN = ("mean",)  # of the user's own backbone

# As large as it takes for every short cut: native attention and recurrence, weights in another order.
LARGE: dict[str, dict[str, Any]] = {"bert": {"width": 128, "context": 64}, "gpt": {"width": 128, "context": 64}}


def equal(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def large(case: Any) -> Any:
    return build((case[0], case[1] | LARGE.get(case[0], {"width": 48})), dtype=torch.float32)


def left_behind(module: nn.Module) -> dict[str, Any]:
    """All that stands on a module and on its parts."""
    return {
        f"{place}.{name}": id(value)
        for place, one in module.named_modules()
        for name, value in vars(one).items()
        if not isinstance(value, dict)
    } | {f"{place}.{name}": len(value) for place, one in module.named_modules() for name, value in vars(one).items()
         if isinstance(value, dict)}  # fmt: skip


def documented(trace: Mapping[str, Tensor], sizes: dict[str, set[int]]) -> None:
    """Each name is one of those that are told, and has the dimensions that are told: `sizes` of T and S."""
    assert trace, "every model has something to show"
    for name, value in trace.items():
        if (last := name.rpartition(".")[2]) not in OWN:
            letters = NAMES[last][0]
            assert len(letters) == value.dim(), name
            for letter, size in zip(letters, value.shape, strict=True):
                assert size in sizes.get(letter, {size}), f"{name}: {tuple(value.shape)}"


@every
@pytest.mark.parametrize("lengths", [None, [45, 3, 1], [9, 9, 2], [45, 44, 45]], ids=str)
def test_answers_are_the_same_bit_for_bit(case: Any, lengths: list[int] | None) -> None:
    """Whatever short cut is taken: few keys or many, much padding, little or none; learning or answering."""
    backbone = large(case)
    steps = 12 if lengths is None else max(lengths)
    x = sequence(3, steps, dtype=torch.float32)
    mask = None if lengths is None else mask_of(lengths, steps)
    before = left_behind(backbone)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            plain, after = backbone(x, mask)
            shown, also = backbone(x, mask, None, {})
        assert torch.equal(plain, shown)
        if backbone.causal and case[0] not in ("gpt",):
            pairs_of = zip(torch.utils._pytree.tree_leaves(after), torch.utils._pytree.tree_leaves(also), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs_of)
    assert left_behind(backbone) == before, "nothing is left on the module"


@every
@pytest.mark.parametrize("pooling", ["last", "first", "mean"])
def test_also_where_the_head_looks_at_one_element_alone(case: Any, pooling: Pooling) -> None:
    backbone = large(case)
    head = VectorHead(backbone.width, 3, pooling, 2 if case[1].get("bidirectional") else 1)
    network = Network(nn.Identity(), backbone, head).eval()
    x = sequence(2, 12, dtype=torch.float32)
    for mask in (None, mask_of([12, 5], 12)):
        with torch.inference_mode():
            plain = network(x, mask)[0]
        shown, trace = traced(network, x, mask)
        assert torch.equal(plain, shown[0])
        documented(trace, {"B": {2}, "T": {12}, "S": {12}})


@every
def test_all_that_is_shown_is_documented_and_zero_on_padding(case: Any) -> None:
    backbone, lengths = build(case), [7, 2, 4]
    x, mask = sequence(3, 7), mask_of([7, 2, 4], 7)
    trace: dict[str, Tensor] = {}
    backbone(x, mask, None, trace)
    documented(trace, {"B": {3}, "T": {7}, "S": {7}})
    for row, length in enumerate(lengths):
        alone: dict[str, Tensor] = {}
        backbone(x[row : row + 1, :length], None, None, alone)
        assert alone.keys() == trace.keys()
        for name, value in trace.items():
            here = value[row].movedim(element_axis(value) - 1, 0)  # elements first
            assert not here[length:].any(), f"{name} shows padding"
            if name.endswith("attention"):
                assert (value >= 0).all()
                assert not here[..., length:].any(), f"{name} looks at padding"
                equal(here[:length].sum(dim=-1), torch.ones_like(here[:length, :, 0]))
                here = here[..., :length]
            equal(here[:length], alone[name][0].movedim(element_axis(value) - 1, 0))


@causal
def test_step_by_step_is_as_the_whole(case: Any) -> None:
    backbone, x = build(case), sequence(2, 8)
    whole: dict[str, Tensor] = {}
    backbone(x, None, None, whole)
    for sizes in ([1] * 8, [3, 1, 4]):
        parts, state = [], None
        for part in x.split(sizes, dim=1):
            parts.append({})
            _, state = backbone(part, None, state, parts[-1])
        together = joined(parts)
        assert together.keys() == whole.keys()
        for name, value in whole.items():
            equal(together[name], value)


@every
def test_nothing_is_shown_that_is_not_wanted(case: Any) -> None:
    backbone, x = build(case), sequence(2, 5)
    whole: dict[str, Tensor] = {}
    backbone(x, None, None, whole)
    for wanted in {name.rpartition(".")[2] for name in whole} | set(list(whole)[:1]):
        some, bounded = Only(wanted), Trace(wanted=[wanted])
        for trace in (some, bounded):
            backbone(x, None, None, trace)
            assert trace.keys() == {name for name in whole if name == wanted or name.endswith(f".{wanted}")}
            assert all(torch.equal(value, whole[name]) for name, value in trace.items())


# Two sequences


@pairs
def test_translators_answer_the_same_bit_for_bit(case: Any) -> None:
    width = {"width": 48} if case[1].get("width") is None else {}
    network = build_pair((case[0], case[1] | width)).float()
    source, target, lengths = tokens(3, 12, 11), tokens(3, 9, 9), [12, 5, 1]
    before = left_behind(network)
    for mask in (None, mask_of(lengths, 12)):
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                assert torch.equal(network(source, target, mask, {}), network(source, target, mask))
                memory = network.encode(source, mask)
                alone = network.decode(target, memory, None, Only("alignment"))[0]
                assert torch.equal(alone, network.decode(target, memory)[0])
    assert left_behind(network) == before, "nothing is left on it"


@pairs
def test_what_translators_show(case: Any) -> None:
    """Where it looked: rows sum to one over real places and are zero on padding."""
    network, lengths = build_pair(case), [7, 2, 1]
    source, target, mask = tokens(3, 7, 11), tokens(3, 4, 9), mask_of(lengths, 7)
    trace: dict[str, Tensor] = {}
    network(source, target, mask, trace)
    documented(trace, {"B": {3}, "T": {4, 7}, "S": {4, 7}})
    assert {name.partition(".")[0] for name in trace} >= {"encoder", "decoder"}
    for name, value in trace.items():
        if name.startswith("encoder"):
            here = value.movedim(element_axis(value), 1)
            assert not here[~mask].any(), f"{name} shows padding"
    if case[0] == "seq2seq":
        assert "alignment" not in trace
        return
    weights = trace["alignment"]
    assert weights.shape == (3, 4, 7)
    equal(weights.sum(dim=-1), torch.ones(3, 4, dtype=torch.float64))
    assert (weights >= 0).all()
    assert not weights.masked_select(~mask[:, None]).any()
    only = Only("alignment")
    network(source, target, mask, only)
    assert only.keys() == {"alignment"}
    assert torch.equal(only["alignment"], weights)
    per_layer = [value for name, value in trace.items() if name.endswith("cross_attention")]
    if case[0] == "transformer":
        assert len(per_layer) == len(network.backbone.decoder)
        equal(torch.stack(per_layer).mean(dim=(0, 2)), weights)


@pairs
def test_a_target_step_by_step_is_as_the_whole(case: Any) -> None:
    network = build_pair(case)
    source, target, mask = tokens(2, 6, 11), tokens(2, 5, 9), mask_of([6, 3], 6)
    whole: dict[str, Tensor] = {}
    network(source, target, mask, whole)
    parts: list[dict[str, Tensor]] = [{}]
    memory, state = network.encode(source, mask, parts[0]), None
    for token in target.split(1, dim=1):
        parts.append({})
        _, state = network.decode(token, memory, state, parts[-1])
    together = joined(parts)
    assert together.keys() == whole.keys()
    for name, value in whole.items():
        equal(together[name], value)
