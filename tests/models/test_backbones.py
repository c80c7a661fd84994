"""The contract of every backbone, as `nn.backbone` states it, for each file in `models/`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import (
    BIDIRECTIONAL,
    backbones,
    build,
    label,
    mask_of,
    registry_settings,
    sequence,
    settings_class,
    settings_of,
)
from seriatim.core import registry
from seriatim.core.device import on_meta_device
from seriatim.core.state import concat, flatten, rebuild, select, split
from seriatim.nn.network import load_weights, token_network, weights
from seriatim.nn.settings import BackboneTraits

CAUSAL = backbones()
ALL = CAUSAL + BIDIRECTIONAL
causal = pytest.mark.parametrize("case", CAUSAL, ids=label)
every = pytest.mark.parametrize("case", ALL, ids=label)


def equal(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


VARIANTS: list[dict[str, Any]] = [{}, {"bidirectional": True}, {"context_length": 20}]
VARIANTS += [{"positions": kind} for kind in ("sinusoidal", "learned", "none")]
VARIANTS += [{"positions": "none", "context_length": 20}]


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        pytest.param(name, extra, id=f"{name}-{extra}")
        for name in registry.models.names()
        for extra in VARIANTS
        if not settings_class(name).gradient_free and extra.keys() <= settings_class(name).model_fields.keys()
    ],
)
def test_declared_traits_equal_those_of_the_module(name: str, extra: dict[str, Any]) -> None:
    fields = settings_class(name).model_fields
    settings = registry_settings(name, {"width": 8} | ({"heads": 2} if "heads" in fields else {}) | extra)
    with on_meta_device():
        module = settings.build(settings.input_width(tied=False), 6)
    traits = settings.traits
    assert traits.causal == module.causal
    assert traits.carries_state == module.carries_state
    assert traits.directions == module.directions
    assert traits.bounded == (module.context_length is not None)
    assert traits.context_length in (None, module.context_length)
    assert settings.causal or not traits.causal


def test_the_length_limit_follows_from_settings_and_data() -> None:
    assert BackboneTraits().max_length(None, 9) is None
    assert BackboneTraits(bounded=True).max_length(None, 9) == 9
    assert BackboneTraits(bounded=True, context_length=7).max_length(None, 9) == 7
    assert BackboneTraits(bounded=True, context_length=7).max_length(5, 9) == 5
    assert BackboneTraits().max_length(5, 9) == 5


@every
def test_padding_never_changes_an_answer(case: Any) -> None:
    """Each row of a ragged batch gives what it gives alone, whatever stands in the padding."""
    backbone = build(case)
    x, lengths = sequence(3, 8), [8, 5, 1]
    mask = mask_of(lengths, 8)
    y, state = backbone(x, mask)
    z, _ = backbone(torch.where(mask[:, :, None], x, 1e3), mask)
    for row, length in enumerate(lengths):
        alone, alone_state = backbone(x[row : row + 1, :length])
        equal(y[row, :length], alone[0])
        equal(z[row, :length], alone[0])
        if backbone.causal:  # the state is that of the real elements: the next element gives the same
            more = sequence(1, 1)
            equal(
                backbone(more, None, select(state, torch.tensor([row])))[0],
                backbone(more, None, alone_state)[0],
            )


@every
def test_neighbours_and_order_never_change_an_answer(case: Any) -> None:
    backbone = build(case)
    x = sequence(4, 6)
    order = torch.tensor([2, 0, 3, 1])
    equal(backbone(x[order])[0], backbone(x)[0][order])
    equal(backbone(x)[0][1:2], backbone(x[1:2])[0])


@causal
def test_causality_by_perturbation(case: Any) -> None:
    """A change at t changes nothing before t, and something at t."""
    backbone = build(case)
    x = sequence(2, 9)
    y, _ = backbone(x)
    for t in (0, 4, 8):
        changed = x.clone()
        changed[:, t] += 1.0
        z, _ = backbone(changed)
        equal(z[:, :t], y[:, :t])
        assert (z[:, t] - y[:, t]).abs().max() > 1e-6


@pytest.mark.parametrize("case", BIDIRECTIONAL, ids=label)
def test_bidirectional_sees_both_ways(case: Any) -> None:
    backbone = build(case)
    assert not backbone.causal
    x = sequence(2, 6)
    y, _ = backbone(x)
    x[:, 5, 0] += 1.0  # a norm cancels what is added to all numbers
    assert (backbone(x)[0][:, 0] - y[:, 0]).abs().max() > 1e-9


@causal
@settings(max_examples=12, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    lengths=st.lists(st.integers(1, 10), min_size=3, max_size=3),
)
def test_chunks_equal_whole(case: Any, cuts: list[int], lengths: list[int]) -> None:
    """Fed whole, in chunks or one by one, ragged or not: the same outputs."""
    backbone = build(case)
    x = sequence(3, 10)
    mask = mask_of(lengths, 10)
    for pad_rows in (None, mask):
        whole, _ = backbone(x, pad_rows)
        state, parts, place = None, [], 0
        sizes = [*cuts, *([1] * 10)]
        while place < 10:
            size = min(sizes.pop(0), 10 - place)
            part = slice(place, place + size)
            y, state = backbone(x[:, part], None if pad_rows is None else pad_rows[:, part], state)
            parts.append(y)
            place += size
        joined = torch.cat(parts, dim=1)
        valid = torch.ones(3, 10, dtype=torch.bool) if pad_rows is None else pad_rows
        equal(joined[valid], whole[valid])


@causal
def test_states_select_split_and_store(case: Any) -> None:
    """What beam search, accumulation and checkpoints do with a state."""
    backbone = build(case)
    x, more = sequence(4, 5), sequence(4, 2)
    _, state = backbone(x)
    rows = torch.tensor([3, 3, 0])
    equal(backbone(more[rows], None, select(state, rows))[0], backbone(more, None, state)[0][rows])
    tensors, form = flatten(state)
    assert all(len(tensor) == 4 for tensor in tensors), "the batch is the first dimension of every state tensor"
    equal(backbone(more, None, rebuild(form, tensors))[0], backbone(more, None, state)[0])
    equal(backbone(more, None, concat(split(state, 2)))[0], backbone(more, None, state)[0])


@every
def test_every_parameter_gets_a_gradient(case: Any) -> None:
    backbone = build(case)
    y, _ = backbone(sequence(3, 8).requires_grad_())  # the linear model has no parameters but the head's
    (y * torch.randn_like(y)).sum().backward()
    for name, parameter in backbone.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@every
def test_first_and_last_output_equal_forward(case: Any) -> None:
    """They may be computed at less cost."""
    backbone = build(case)
    x, mask = sequence(3, 8), mask_of([8, 5, 1], 8)
    equal(backbone.last_output(x), backbone(x)[0][:, -1])
    equal(backbone.first_output(x, mask), backbone(x, mask)[0][:, 0])


@every
def test_gradcheck(case: Any) -> None:
    """The derivatives are right, those of the inputs and those of every parameter, with padding in the batch."""
    backbone = build(case, inputs=3)
    names = [name for name, _ in backbone.named_parameters()]
    mask = mask_of([4, 2], 4)

    def run(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        y, _ = torch.func.functional_call(backbone, dict(zip(names, values, strict=True)), (x, mask))
        return y * mask[:, :, None]

    inputs = [sequence(2, 4, 3), *(parameter.detach().clone() for parameter in backbone.parameters())]
    assert torch.autograd.gradcheck(run, [value.requires_grad_() for value in inputs], atol=1e-6, fast_mode=True)


@causal
def test_same_seed_same_weights_and_a_round_trip(case: Any) -> None:
    def fresh(seed: int) -> Any:
        torch.manual_seed(seed)
        return token_network(settings_of(case), vocab_size=11, length=12)

    first, second, third = fresh(1), fresh(1), fresh(2)
    a, b, c = weights(first), weights(second), weights(third)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    load_weights(third, {name: tensor.clone() for name, tensor in a.items()})
    tokens = torch.arange(10).reshape(2, 5)
    assert torch.equal(third.eval()(tokens)[0], first.eval()(tokens)[0])


@causal
def test_overfits_one_batch(case: Any) -> None:
    """Learns sixteen tokens by heart: the whole way from tokens to gradients works."""
    torch.manual_seed(0)
    tie = CAUSAL.index(case) % 2 == 0  # half of the cases each
    model = settings_of(case).model_copy(update={"width": 32, "embedding": None, "tie": tie, "dropout": 0.0})
    network = token_network(model, vocab_size=9, length=12)
    pair = torch.randint(0, 9, (2, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(250):
        logits, _ = network(pair[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), pair[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # only what differs in the past can be told apart: the first token of a row cannot
    assert loss.item() < 0.25, loss.item()


@every
def test_dropout_only_while_training(case: Any) -> None:
    backbone = settings_of((case[0], case[1] | {"dropout": 0.5})).build(5, 12).double()
    x = sequence(3, 8)
    backbone.train()
    assert not torch.equal(backbone(x)[0], backbone(x)[0])
    backbone.eval()
    assert torch.equal(backbone(x)[0], backbone(x)[0])


@every
def test_deep_copies_are_apart(case: Any) -> None:
    backbone = build(case)
    twin = copy.deepcopy(backbone)
    x = sequence(1, 4)
    y, _ = backbone(x)
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert torch.equal(backbone(x)[0], y)
