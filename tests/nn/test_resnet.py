"""Residual networks beside torch.nn and transformers: equal numbers, equal gradients; and what skips are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import registry_settings, shaken
from seriatim.core.errors import SeriatimError
from seriatim.hub import reading
from seriatim.nn.images import BatchNorm, FeatureMapInput, ResNet
from seriatim.nn.layers import readable_equations
from seriatim.nn.network import Network, VectorHead, count_parameters, load_weights
from seriatim.training.cost import parameter_count, solve_width


def images(count: int, *shape: int) -> Tensor:
    draw = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=draw)


def settings(**given: Any) -> Any:
    return registry_settings("resnet", given)


# Batch norm


@pytest.mark.parametrize("readable", [False, True])
@pytest.mark.parametrize("shape", [(6, 3, 4, 5), (5, 3, 1, 1)], ids=str)
def test_batch_norm_is_torchs(readable: bool, shape: tuple[int, ...]) -> None:
    """Outputs, gradients and what is remembered, while training and while answering."""
    torch.manual_seed(0)
    ours, theirs = BatchNorm(3).double(), nn.BatchNorm2d(3).double()
    shaken(theirs, 0.5)
    ours.load_state_dict(
        {"weight": theirs.weight, "bias": theirs.bias, "mean": torch.zeros(3), "variance": torch.ones(3)}
    )
    for training in (True, True, False, True):
        x = 3 + 2 * torch.randn(shape, dtype=torch.float64)
        change = torch.randn_like(x)
        result = []
        for one in (ours.train(training), theirs.train(training)):
            one.zero_grad()
            own = x.clone().requires_grad_()
            if readable and one is ours:
                with readable_equations():
                    y = one(own)
            else:
                y = one(own)
            (y * change).sum().backward()
            result.append([y, own.grad, one.weight.grad, one.bias.grad])
        for a, b in zip(*result, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(ours.mean, theirs.running_mean)
        torch.testing.assert_close(ours.variance, theirs.running_var)


def test_batch_norm_of_a_single_value() -> None:
    """Nothing is known of its std: it gives the shift, and what is remembered stays finite."""
    norm = BatchNorm(2)
    nn.init.constant_(norm.bias, 0.25)
    assert torch.equal(norm(torch.tensor([5.0, -3.0]).view(1, 2, 1, 1)).flatten(), torch.tensor([0.25, 0.25]))
    torch.testing.assert_close(norm.mean, torch.tensor([0.5, -0.3]))
    torch.testing.assert_close(norm.variance, torch.tensor([0.9, 0.9]))


def test_all_that_is_remembered_can_be_averaged() -> None:
    assert all(buffer.is_floating_point() for buffer in settings(width=4).image_input((1, 8, 8)).buffers())


# Beside transformers


@pytest.mark.parametrize(
    ("width", "depths", "side"),
    [(4, [1, 1, 1, 1], 40), (4, [3, 4, 6, 3], 33), (64, [2, 2, 2, 2], 64)],
    ids=["10", "34", "18"],
)
def test_resnet_is_that_of_transformers(width: int, depths: list[int], side: int, tmp_path: Path) -> None:
    """The grid, its mean and the scores of labels, answering and training, with the statistics that training leaves."""
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = [width * 2**stage for stage in range(4)]
    config = transformers.ResNetConfig(
        embedding_size=width, hidden_sizes=sizes, depths=depths, layer_type="basic", num_labels=5
    )
    theirs = shaken(transformers.ResNetForImageClassification(config), 0.02)
    for norm in theirs.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, std=0.1)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
    theirs.save_pretrained(tmp_path)
    foreign = reading.read_model(tmp_path)
    model = registry_settings("resnet", foreign.settings)
    inputs = model.image_input((3, side, side))
    ours = Network(inputs, model.build(inputs.width, 1), VectorHead(inputs.width, 5, "mean"))
    centre = {"input.mean": torch.tensor([0.4, 0.5, 0.6]), "input.std": torch.tensor([0.2, 0.3, 0.4])}
    load_weights(ours, foreign.tensors | centre)
    x = images(3, 3, side, side)
    pixels = (x / 255 - centre["input.mean"].view(3, 1, 1)) / centre["input.std"].view(3, 1, 1)
    for training in (False, True, False):
        ours.train(training)
        theirs.train(training)
        body = theirs.resnet(pixels) if not training else None
        if body is not None:
            grid = ours.input(x)
            torch.testing.assert_close(grid, body.last_hidden_state.flatten(2).mT, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(ours.head.pool(grid), body.pooler_output.flatten(1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours(x)[0], theirs(pixels).logits, rtol=1e-3, atol=1e-3)
    assert inputs.grid == tuple(theirs.resnet(pixels).last_hidden_state.shape[2:])


@pytest.mark.parametrize(("preset", "parameters"), [("18", 11_689_512), ("34", 21_797_672)])
def test_sizes_of_the_paper_for_photographs(preset: str, parameters: int) -> None:
    """With a thousand labels, as published."""

    def build(model: Any) -> nn.Module:
        inputs = model.image_input((3, 224, 224))
        assert inputs.grid == (7, 7)
        return nn.Sequential(inputs, VectorHead(inputs.width, 1000, "mean"))

    assert parameter_count(settings(preset=int(preset)), build) == parameters


@pytest.mark.parametrize("skips", [False, True])
def test_fifty_six_layers(skips: bool) -> None:
    """The paper's network for CIFAR-10: 0.85 million parameters where skips have none (its own are the identity)."""
    inputs = settings(layers=56, width=16, skips=skips).image_input((3, 32, 32))
    path = [name for name, _ in inputs.named_parameters() if "convolution" in name and "project" not in name]
    assert len(path) + 1 == 56, "convolutions one behind the other, and the layer of the head"
    projections = 2 * 1 * (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64) - (16 * 32 + 2 * 32) if skips else 0
    assert count_parameters(inputs) + 64 * 10 + 10 == 853_018 + projections


@pytest.mark.parametrize(("given", "shape", "word"), [({"layers": 18}, 32, "6n"), ({"layers": 20}, 128, "34")])
def test_layers_that_no_form_has(given: dict[str, Any], shape: int, word: str) -> None:
    with pytest.raises(SeriatimError, match="layers") as told:
        settings(**given).image_input((3, shape, shape))
    assert word in told.value.remedy


@pytest.mark.parametrize("side", [1, 2, 7, 28, 32, 33, 64, 65, 100])
def test_the_grid_is_known_before(side: int) -> None:
    inputs = settings(width=2).image_input((1, side, side + 3)).eval()
    assert inputs(images(1, 1, side, side + 3)).shape == (1, inputs.grid[0] * inputs.grid[1], inputs.width)


def test_a_budget_of_parameters() -> None:
    def build(model: Any) -> nn.Module:
        inputs = model.image_input((1, 28, 28))
        return nn.Sequential(inputs, VectorHead(inputs.width, 10, "mean"))

    solved = solve_width(settings(), 100_000, build)
    assert (
        parameter_count(solved, build)
        <= 100_000
        < parameter_count(solved.model_copy(update={"width": solved.width + 1}), build)
    )


# What skips are for


def norms(skips: bool) -> list[float]:
    """Of the gradients of each block's first convolution, from the first block to the last, of 56 fresh layers."""
    torch.manual_seed(0)
    inputs = settings(layers=56, width=4, skips=skips).image_input((3, 16, 16))
    inputs.mean.fill_(0.5)
    inputs.std.fill_(0.29)
    scores = nn.Linear(inputs.width, 10)(inputs(images(32, 3, 16, 16)).mean(dim=1))
    F.cross_entropy(scores, torch.arange(32) % 10).backward()
    return [float(block.first.convolution.weight.grad.norm()) for block in inputs.resnet.blocks]


def test_skips_keep_gradients_of_one_size() -> None:
    """Batch norm keeps them from fading; without skips they grow from layer to layer on the way down instead, and 56
    layers below nothing is left of their measure."""
    residual, plain = norms(True), norms(False)
    assert max(residual) / min(residual) < 100
    assert plain[0] / plain[-1] > 1000
    assert plain[0] / plain[-1] > 20 * residual[0] / residual[-1]


def test_a_block_without_weights_is_the_identity() -> None:
    """What is learned is what to add: with nothing to add, what comes in goes out, at any depth. A plain stack gives
    nothing at all."""
    x = torch.rand(2, 4, 8, 8)
    for skips in (True, False):
        net = ResNet(4, [4], [27], "small", skips=skips).eval()
        for block in net.blocks:
            nn.init.zeros_(block.second.convolution.weight)
        stem = net.stem(x).relu()
        assert torch.equal(net(x), stem if skips else torch.zeros_like(stem))


def test_gradcheck() -> None:
    torch.manual_seed(0)
    net = ResNet(2, [2, 4], [1, 1], "small").double()
    names = [name for name, _ in net.named_parameters()]

    def run(x: Tensor, *values: Tensor) -> Tensor:
        kept = {name: buffer.clone() for name, buffer in net.named_buffers()}
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)) | kept, (x,))

    values = [torch.randn(3, 2, 5, 4, dtype=torch.float64), *(p.detach().clone() for p in net.parameters())]
    assert torch.autograd.gradcheck(run, [value.requires_grad_() for value in values], atol=1e-6, fast_mode=True)


def test_pictures_in_either_order_of_memory() -> None:
    inputs = FeatureMapInput((3, 20, 20), settings(width=4).resnet((3, 20, 20))).eval()
    x = images(2, 3, 20, 20)
    turned = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(inputs(turned), inputs(x))
    torch.testing.assert_close(inputs(x.float()), inputs(x))
