"""Muon: equal to torch's, matrix by matrix in stacked parameters, AdamW for the rest, exact state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim._muon import _zeropower_via_newtonschulz

from helpers import settings_of
from seriatim.core import registry
from seriatim.nn.network import token_network
from seriatim.training import muon
from seriatim.training.config import OptimizerSettings, learning_rates, make_config
from seriatim.training.muon import COEFFICIENTS, Muon, hidden_matrices, orthogonalize
from seriatim.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors, update

MUON = OptimizerSettings(name="muon", weight_decay=0.1)


@pytest.mark.parametrize("shape", [(6, 6), (12, 4), (4, 12), (4, 7)])
def test_orthogonalize_keeps_the_singular_vectors_and_levels_the_values(shape: tuple[int, int]) -> None:
    torch.manual_seed(3)
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    assert (values[:, -1] / values.pow(8).sum(dim=1).pow(1 / 8)).min() > 0.01  # what three iterations suffice for
    result = left.transpose(1, 2) @ orthogonalize(matrices) @ right.transpose(1, 2)
    diagonal = result.diagonal(dim1=1, dim2=2)
    assert torch.allclose(result, torch.diag_embed(diagonal), atol=1e-9)  # the iteration changes values alone
    assert diagonal.min() > 0.71
    assert diagonal.max() < 1.29


@pytest.mark.parametrize("scale", [0.0, 1e-18, 1e18])
def test_orthogonalize_any_scale(scale: float) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(2, 4, 4)
    expected = orthogonalize(matrices) if scale else torch.zeros(())
    assert torch.allclose(orthogonalize(scale * matrices), expected, atol=1e-2)


@pytest.mark.parametrize("shape", [(40, 40), (20, 80), (80, 20)])
def test_orthogonalize_in_bfloat16(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directions are those of float32; no rounding error grows beyond the interval of the polynomials."""
    torch.manual_seed(0)
    matrices = torch.randn(4, *shape) + 2 * torch.randn(4, shape[0], 2) @ torch.randn(4, 2, shape[1])
    results = []
    for native in (False, True):
        monkeypatch.setattr(muon, "_multiplies_bfloat16", lambda device, native=native: native)
        results.append(orthogonalize(matrices))
    assert all(result.dtype == torch.float32 for result in results)
    cosines = nn.functional.cosine_similarity(*(result.flatten(1) for result in results))
    assert cosines.min() > 0.995
    assert torch.linalg.matrix_norm(results[1], 2).max() < 1.35


def test_each_quintic_is_the_best_over_what_the_one_before_leads_to() -> None:
    """By Chebyshev's theorem: of three coefficients those are best whose error has four extrema of alternating sign."""
    low, high = 0.01, 1.02
    for a, b, c in COEFFICIENTS:
        x = torch.linspace(low, high, 100_001, dtype=torch.float64)
        error = a * x + b * x**3 + c * x**5 - 1
        inner = (error[1:-1] - error[:-2]) * (error[2:] - error[1:-1]) < 0
        extrema = torch.cat([error[:1], error[1:-1][inner], error[-1:]]).tolist()
        largest = float(error.abs().max())
        assert extrema == pytest.approx([-largest, largest, -largest, largest], abs=5e-3)
        low, high = 1 - largest, 1.02 * (1 + largest)
    assert largest == pytest.approx(0.29, abs=1e-2)


class Pair(nn.Module):
    """A network whose backbone has a stacked matrix, a convolution and a bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.input = nn.Embedding(5, 4)
        self.backbone = nn.ModuleDict({"gates": nn.Linear(4, 12), "taps": nn.Conv1d(4, 6, 3)})
        self.backbone.stacked = {"gates.weight": 3}  # type: ignore[assignment]
        self.head = nn.Linear(4, 5)

    def set_gradients(self, step: int) -> dict[str, Tensor]:
        torch.manual_seed(10 + step)
        for parameter in self.parameters():
            parameter.grad = torch.randn_like(parameter)
        return {name: p.grad.clone() for name, p in self.named_parameters() if p.grad is not None}


def test_equals_torch_matrix_by_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the iteration, which is torch's here."""

    def torch_iteration(matrices: Tensor) -> Tensor:
        return torch.stack(
            [_zeropower_via_newtonschulz(x, (3.4445, -4.775, 2.0315), 5, 1e-7) for x in matrices]
        ).float()

    monkeypatch.setattr(muon, "orthogonalize", torch_iteration)
    network = Pair()
    optimizer = make_optimizer(network, MUON.model_copy(update={"weight_decay": 0.0}), 1e-3, 0.02)
    assert isinstance(optimizer, Muon)
    gates = [nn.Parameter(block.clone()) for block in network.backbone["gates"].weight.detach().chunk(3)]
    taps = nn.Parameter(network.backbone["taps"].weight.detach().flatten(1).clone())
    theirs = torch.optim.Muon([*gates, taps], lr=0.02, weight_decay=0.0, momentum=0.9, adjust_lr_fn="original")
    for step in range(3):
        gradients = network.set_gradients(step)
        for gate, block in zip(gates, gradients["backbone.gates.weight"].chunk(3), strict=True):
            gate.grad = block.clone()
        taps.grad = gradients["backbone.taps.weight"].flatten(1)
        theirs.step()
        update(optimizer, 1e-3)
    # in bfloat16, differences of the last bit of the momentum may become differences of the third digit
    assert torch.allclose(network.backbone["gates"].weight, torch.cat(gates), atol=1e-4)
    assert torch.allclose(network.backbone["taps"].weight.flatten(1), taps, atol=1e-4)


def test_the_rest_is_updated_by_adamw() -> None:
    network, twin = Pair(), Pair()
    optimizer = make_optimizer(network, MUON, 1e-3)
    theirs = make_optimizer(twin, OptimizerSettings(name="adamw", weight_decay=0.1), 1e-3)
    for step in range(3):
        network.set_gradients(step)
        twin.set_gradients(step)
        update(optimizer, 1e-3)
        update(theirs, 1e-3)
    hidden = hidden_matrices(network)
    assert hidden == {"backbone.gates.weight": 3, "backbone.taps.weight": 1}
    for (name, parameter), other in zip(network.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(parameter, other) == (name not in hidden), name


def test_matrices_decay_as_with_adamw() -> None:
    network = Pair()
    weight = network.backbone["gates"].weight
    optimizer = make_optimizer(network, MUON, 1e-3)
    before = weight.detach().clone()
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    update(optimizer, 1e-3)
    assert torch.allclose(weight, before * (1 - 1e-3 * 0.1), rtol=1e-6)


def test_state_round_trip() -> None:
    network, twin = Pair(), Pair()
    optimizer, other = make_optimizer(network, MUON, 1e-3), make_optimizer(twin, MUON, 1e-3)
    network.set_gradients(0)
    update(optimizer, 1e-3)
    twin.load_state_dict(network.state_dict())
    load_optimizer(
        other, twin, {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, network).items()}
    )
    for one, its in ((network, optimizer), (twin, other)):
        one.set_gradients(1)
        update(its, 1e-3)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize("name", ["mlp", "rnn", "lstm", "gru", "tcn", "gpt", "bert"])
def test_hidden_matrices_of_models(name: str) -> None:
    """All matrices of the backbone but tables of positions; stacked ones as the layers declare them."""
    network = token_network(settings_of((name, {})), 11, 12)
    hidden = hidden_matrices(network)
    matrices = {key for key, p in network.named_parameters() if p.dim() > 1 and key.startswith("backbone.")}
    assert set(hidden) == {key for key in matrices if "positions" not in key}
    counts = {"lstm": 4, "gru": 3, "gpt": 3, "bert": 3}
    assert max(hidden.values()) == counts.get(name, 1)
    shapes = {key: tuple(p.shape) for key, p in network.named_parameters()}
    assert all(shapes[key][0] % count == 0 for key, count in hidden.items())


def test_auto_is_the_models_choice() -> None:
    def optimizer(model: str, **settings: Any) -> OptimizerSettings:
        return make_config({"task": "language", "data": "book.txt", "model": model, **settings}).train.optimizer

    assert optimizer("gpt").name == "muon"
    assert optimizer("gpt", start="pretrained").name == "adamw"
    assert optimizer("gpt", train={"optimizer": {"name": "sgd"}}).name == "sgd"
    assert optimizer("ngram").name == "adamw"
    translate = {"task": "translate", "data": "pairs.tsv"}
    assert make_config({**translate, "model": "transformer"}).train.optimizer.name == "muon"
    assert make_config({**translate, "model": "bahdanau"}).train.optimizer.name == "adamw"


def test_a_learning_rate_of_the_user_changes_both() -> None:
    def rates(**settings: Any) -> tuple[float, float]:
        values = {"task": "language", "data": "book.txt", "model": "lstm", "train": {"optimizer": settings}}
        return learning_rates(make_config(values))

    lr, muon_lr = rates()
    assert muon_lr == registry.models.load("lstm").Settings.muon_lr
    assert rates(lr=lr / 4) == pytest.approx((lr / 4, muon_lr / 4))
    assert rates(lr=lr / 4, muon_lr=0.3) == (lr / 4, 0.3)
