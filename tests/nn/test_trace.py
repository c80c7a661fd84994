"""The contract of traces for every architecture: they record intermediate values and change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder_decoder_cases import AFTER, PAIRS, build_pair, tokens
from helpers import BIDIRECTIONAL, backbones, build, label, mask_of, sequence
from seriatim.nn.backbone import NamedTrace, element_axis
from seriatim.nn.network import Network, Pooling, VectorHead

CAUSAL = backbones()
ALL = CAUSAL + BIDIRECTIONAL
every = pytest.mark.parametrize("case", ALL, ids=label)
causal = pytest.mark.parametrize("case", CAUSAL, ids=label)
pairs = pytest.mark.parametrize("case", PAIRS + AFTER, ids=label)

# As large as it takes for every short cut: native attention and recurrence, weights in another order.
LARGE: dict[str, dict[str, Any]] = {
    "bert": {"width": 128, "context_length": 64},
    "gpt": {"width": 128, "context_length": 64},
}


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


def joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the traces of chunks as one; keys of attention grow from chunk to chunk and are padded."""
    names = list(dict.fromkeys(name for part in parts for name in part))
    values = {name: [part[name] for part in parts if name in part] for name in names}
    whole = {}
    for name, chunks in values.items():
        if name.endswith("attention") and not name.endswith("cross_attention"):
            keys = max(chunk.shape[-1] for chunk in chunks)
            chunks = [nn.functional.pad(chunk, (0, keys - chunk.shape[-1])) for chunk in chunks]
        whole[name] = torch.cat(chunks, dim=element_axis(chunks[0]))
    return whole


@every
@pytest.mark.parametrize("lengths", [None, [45, 3, 1]], ids=str)
def test_outputs_are_unchanged_bit_for_bit(case: Any, lengths: list[int] | None) -> None:
    """Whatever short cut is taken: few keys or many, much padding, little or none; learning or answering."""
    backbone = large(case)
    steps = 12 if lengths is None else max(lengths)
    x = sequence(3, steps, dtype=torch.float32)
    mask = None if lengths is None else mask_of(lengths, steps)
    before = left_behind(backbone)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            plain, after = backbone(x, mask)
            recorded, also = backbone(x, mask, None, {})
        assert torch.equal(plain, recorded)
        if backbone.causal and case[0] not in ("gpt",):
            pairs_of = zip(torch.utils._pytree.tree_leaves(after), torch.utils._pytree.tree_leaves(also), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs_of)
    assert left_behind(backbone) == before, "nothing is left on the module"


@every
def test_heads_that_use_one_element(case: Any) -> None:
    poolings: tuple[Pooling, ...] = ("last", "first", "mean")
    pooling = poolings[ALL.index(case) % 3]
    backbone = large(case)
    head = VectorHead(backbone.width, 3, pooling, 2 if case[1].get("bidirectional") else 1)
    network = Network(nn.Identity(), backbone, head).eval()
    x = sequence(2, 12, dtype=torch.float32)
    for mask in (None, mask_of([12, 5], 12)):
        with torch.inference_mode():
            plain = network(x, mask)[0]
        trace: dict[str, Tensor] = {}
        with torch.inference_mode():
            recorded = network(x, mask, None, trace)[0]
        assert torch.equal(plain, recorded)
        assert trace


@every
def test_padding_is_recorded_as_zeros(case: Any) -> None:
    backbone, lengths = build(case), [7, 2, 4]
    x, mask = sequence(3, 7), mask_of([7, 2, 4], 7)
    trace: dict[str, Tensor] = {}
    backbone(x, mask, None, trace)
    assert trace
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
def test_only_accepted_names_are_recorded(case: Any) -> None:
    backbone, x = build(case), sequence(2, 5)
    whole: dict[str, Tensor] = {}
    backbone(x, None, None, whole)
    for expected in {name.rpartition(".")[2] for name in whole} | set(list(whole)[:1]):
        trace = NamedTrace(expected)
        backbone(x, None, None, trace)
        assert trace.keys() == {name for name in whole if name == expected or name.endswith(f".{expected}")}
        assert all(torch.equal(value, whole[name]) for name, value in trace.items())


# Two sequences


@pairs
def test_encoder_decoders_are_unchanged_bit_for_bit(case: Any) -> None:
    width = {"width": 48} if case[1].get("width") is None else {}
    network = build_pair((case[0], case[1] | width)).float()
    source, target, lengths = tokens(3, 12, 11), tokens(3, 9, 9), [12, 5, 1]
    before = left_behind(network)
    for mask in (None, mask_of(lengths, 12)):
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                assert torch.equal(network(source, target, mask, {}), network(source, target, mask))
                memory = network.encode(source, mask)
                alone = network.decode(target, memory, None, NamedTrace("alignment"))[0]
                assert torch.equal(alone, network.decode(target, memory)[0])
    assert left_behind(network) == before, "nothing is left on it"


@pairs
def test_alignments(case: Any) -> None:
    """Where it looked: rows sum to one over real places and are zero on padding."""
    network, lengths = build_pair(case), [7, 2, 1]
    source, target, mask = tokens(3, 7, 11), tokens(3, 4, 9), mask_of(lengths, 7)
    trace: dict[str, Tensor] = {}
    network(source, target, mask, trace)
    assert trace
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
    only = NamedTrace("alignment")
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
