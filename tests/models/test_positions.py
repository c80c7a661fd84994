"""Sinusoidal, learned and no positions, in every Transformer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import build, mask_of, registry_settings, sequence, settings_of
from seriatim.core.errors import SeriatimError
from seriatim.nn import native
from seriatim.nn.layers import readable_equations, sinusoids
from seriatim.nn.native import TokenChoice, make_stepper
from seriatim.nn.network import Network, token_network

KINDS = ("sinusoidal", "learned", "none")
SIZES: dict[str, dict[str, Any]] = {
    "gpt": {"width": 16, "heads": 2, "layers": 2},
    "bert": {"width": 16, "heads": 2, "layers": 2, "dropout": 0.0},
    "vit": {"width": 16, "heads": 2, "layers": 2},
    "transformer": {"width": 16, "heads": 2, "layers": 2, "feedforward": 20, "dropout": 0.0},
}


def backbone(name: str, positions: str, length: int = 12, **more: Any) -> Any:
    torch.manual_seed(0)
    return registry_settings(name, SIZES[name] | {"positions": positions} | more).build(16, length)


def outputs(name: str, module: Any, x: Tensor) -> Tensor:
    """Returns one output for each input."""
    if name == "transformer":
        y: Tensor = module.encoder_outputs(x)
        return y
    y = module(x)[0]
    return y[:, 1:] if name == "vit" else y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["bert", "transformer", "vit"])
def test_without_positions_an_encoder_permutes_with_its_inputs(name: str, kind: str) -> None:
    module = backbone(name, kind).double().eval()
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    x, order = sequence(2, 12, 16), torch.tensor([5, 0, 11, 3, 1, 10, 2, 4, 9, 6, 8, 7])
    difference = (outputs(name, module, x[:, order]) - outputs(name, module, x)[:, order]).abs().max()
    assert difference < 1e-12 if kind == "none" else difference > 1e-3


@pytest.mark.parametrize(
    ("name", "scale"), [("gpt", 0.02 * 2**0.5), ("bert", 8**-0.5), ("vit", 1.0), ("transformer", 1.0)]
)
def test_sinusoids_are_those_of_the_paper(name: str, scale: float) -> None:
    """They have the scale of the token vectors where those are small at the start; there is nothing to train."""
    module = backbone(name, "sinusoidal")
    table = scale * sinusoids(0, 9, 16).float()
    torch.testing.assert_close(module.positions(0, torch.empty(1, 9, 16)), table)
    torch.testing.assert_close(module.positions(4, torch.empty(1, 5, 16)), table[4:])
    rows = module.positions(torch.tensor([0, 3]), torch.empty(2, 6, 16))
    torch.testing.assert_close(rows, torch.stack([table[:6], table[3:]]))
    assert not any("positions" in key for key in module.state_dict())
    assert not any("positions" in key for key in backbone(name, "none").state_dict())
    assert any("positions" in key for key in backbone(name, "learned").state_dict())


@pytest.mark.parametrize("kind", ["sinusoidal", "none"])
def test_fixed_positions_have_no_limit_unless_one_is_set(kind: str) -> None:
    x = sequence(2, 300, 16, torch.float32)
    for name in ("gpt", "transformer", "vit"):
        assert outputs(name, backbone(name, kind).eval(), x).shape == x.shape
    assert backbone("gpt", kind).context_length is None
    assert backbone("gpt", kind).stream_window(64) == 64  # its state grows: streams are read in windows
    assert backbone("gpt", kind, context_length=40).context_length == 40
    with pytest.raises(SeriatimError, match="context of 11"):
        backbone("gpt", kind, context_length=11)
    with pytest.raises(SeriatimError, match="accepts 20"):
        backbone("bert", kind, context_length=20)(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt", "bert", "vit", "transformer"])
def test_the_native_operator_trains_with_all_positions(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and gradients are those of the equations."""
    from seriatim.kernels import stack

    if not stack.is_faster(torch.empty(2, 3, 16)):
        pytest.skip("no native kernels")
    module = backbone(name, kind).double().train()
    x = sequence(3, 12, 16).requires_grad_()
    mask = None if name == "vit" else mask_of([12, 7, 1], 12)
    calls: list[None] = []
    operator = stack.block_stack
    monkeypatch.setattr(stack, "block_stack", lambda *arguments: calls.append(None) or operator(*arguments))

    def run() -> list[Tensor]:
        y = module.encoder_outputs(x, mask) if name == "transformer" else module.outputs(x, mask)
        y = y if mask is None else y[mask]
        weighted = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum()
        parameters = [p for key, p in module.named_parameters() if not key.startswith("decoder")]
        return [y, *torch.autograd.grad(weighted, [x, *parameters], allow_unused=True, materialize_grads=True)]

    native_results = run()
    assert calls
    with readable_equations():
        expected = run()
    for result, reference in zip(native_results, expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["sinusoidal", "none"])
def test_native_generation_goes_on_beyond_the_first_table(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By single steps, many tokens at once and long prompts, after rows of unequal length."""
    monkeypatch.setattr(native, "POSITIONS", 4)
    torch.manual_seed(0)
    network: Network = token_network(
        settings_of(("gpt", SIZES["gpt"] | {"positions": kind, "context_length": None})), 11, 8
    )
    for parameter in network.parameters():
        parameter.data.normal_(std=0.4)
    stepper = make_stepper(network.eval())
    if stepper is None:
        pytest.skip("no native kernels")
    tokens, mask = torch.randint(0, 11, (2, 3)), mask_of([3, 1], 3)
    with torch.inference_mode():
        _, state = network(tokens, mask)
        native_state = stepper.from_state(state)
        for step in range(6):
            token = torch.tensor([step, 10 - step])
            logits, state = network(token[:, None], None, state)
            log_probs, native_state = stepper.step(token, native_state)
            torch.testing.assert_close(log_probs, logits[:, 0].log_softmax(-1), rtol=1e-4, atol=1e-5)
        generated, _, _ = stepper.generate(token, native_state, 20, torch.tensor([20, 20]), TokenChoice(None), None)
        for column in generated.T:
            logits, state = network(token[:, None], None, state)
            token = logits[:, 0].argmax(-1)
            assert torch.equal(column, token)
        prompt = torch.randint(0, 11, (1, 77))
        expected = network(prompt)[0][:, -1].log_softmax(-1)
        torch.testing.assert_close(stepper.prefill(prompt)[0], expected, rtol=1e-4, atol=1e-5)


def test_positions_must_be_known() -> None:
    with pytest.raises(ValueError, match="sinusoidal"):
        settings_of(("gpt", {"positions": "rotary"}))
    assert build(("gpt", {"positions": "none"})).context_length == 12
