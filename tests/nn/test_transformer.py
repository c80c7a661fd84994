"""The bias of attention's keys has no gradient, so that rounding never trains it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from helpers import settings_of
from seriatim.nn.layers import readable_equations
from seriatim.nn.network import token_network, weights
from seriatim.nn.transformer import Block, CrossAttention, Packing, Projection, SelfAttention

WIDTH, HEADS = 32, 2
LR = 1e-2
MASK = torch.arange(7) < torch.tensor([7, 3, 1, 5, 7])[:, None]


def forward_self(module: SelfAttention, x: Tensor) -> Tensor:
    return module(x, None, None, True, None)[0]


def forward_first(module: SelfAttention, x: Tensor) -> Tensor:
    return module.first_output(x, MASK[:, None, None])


def forward_cross(module: CrossAttention, x: Tensor) -> Tensor:
    return module(x[:, :3], module.keys_values(x), MASK[:, None, None], None)


def forward_packed(module: Block, x: Tensor) -> Tensor:
    packing = Packing(MASK)
    return module.forward_packed(packing.pack(x), packing, MASK[:, None, None])


CASES = {
    "self-attention": (lambda: SelfAttention(WIDTH, HEADS, 0.0), forward_self, "inputs"),
    "first output": (lambda: SelfAttention(WIDTH, HEADS, 0.0), forward_first, "inputs"),
    "cross-attention": (lambda: CrossAttention(WIDTH, HEADS, 0.0), forward_cross, "memory"),
    "without padding": (lambda: Block(WIDTH, HEADS, 40, 0.0), forward_packed, "attention.inputs"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("readable", [False, True])
def test_the_bias_of_keys_has_no_gradient(case: str, readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All other gradients are those of a plain linear layer."""
    torch.manual_seed(0)
    make, forward, name = CASES[case]
    module = make()
    x = torch.randn(5, 7, WIDTH)

    def gradients() -> dict[str, Tensor]:
        module.zero_grad()
        y = forward(module, x)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        return {key: parameter.grad.clone() for key, parameter in module.named_parameters()}  # type: ignore[union-attr]

    if readable:
        with readable_equations():
            ours = gradients()
    else:
        ours = gradients()
    *_, keys, values = ours[f"{name}.bias"].split(WIDTH)
    assert torch.equal(keys, torch.zeros(WIDTH))
    assert values.abs().min() > 0
    monkeypatch.setattr(Projection, "trained_bias", lambda self: self.bias)
    plain = gradients()
    assert plain[f"{name}.bias"].split(WIDTH)[-2].abs().max() < 1e-4  # rounding, of gradients about 1
    for key in ours:
        torch.testing.assert_close(ours[key], plain[key], rtol=1e-4, atol=1e-4, msg=key)


def test_no_gradient_at_inference_and_for_frozen_weights() -> None:
    layer = Projection(WIDTH, 3)
    with torch.no_grad():
        assert layer.trained_bias() is layer.bias
    layer.requires_grad_(False)
    assert not layer.trained_bias().requires_grad
    torch.testing.assert_close(layer(torch.ones(2, WIDTH)), F.linear(torch.ones(2, WIDTH), layer.weight, layer.bias))


def trained(threads: int) -> dict[str, Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)
        settings = settings_of(("gpt", {"width": 32, "layers": 2, "heads": 2, "context_length": 24}))
        network = token_network(settings, 20, 24)
        optimizer = torch.optim.AdamW(network.parameters(), lr=LR)
        for step in range(6):
            tokens = torch.randint(0, 20, (32, 25), generator=torch.Generator().manual_seed(step))
            scores, _ = network(tokens[:, :-1], None, None)
            optimizer.zero_grad()
            F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
        return weights(network)
    finally:
        torch.set_num_threads(before)


def test_the_number_of_threads_changes_only_the_rounding() -> None:
    """Sums have another order; after some steps of Adam weights differ by less than a hundredth of one step."""
    one, two, again = trained(1), trained(2), trained(2)
    for name in one:
        assert torch.equal(two[name], again[name]), name
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=0.01 * LR, msg=name)
