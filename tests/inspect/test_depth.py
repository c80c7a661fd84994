"""What depth does to gradients, by hand, and paths of residual networks: they sum to autograd's gradient."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from helpers import settings_of
from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.subject import Subject
from seriatim.inspect.views import depth
from seriatim.inspect.views.paths import gradients_by_length, measure_paths
from seriatim.nn.network import weights


def tiny_subject() -> Subject:
    return Subject("resnet", settings_of(("resnet", {"width": 4})))


def network_of(skips: bool) -> Any:
    torch.manual_seed(0)
    return depth.make_classifier(settings_of(("resnet", {"width": 2, "layers": 8, "skips": skips}))).double()


def images(count: int = 6) -> Tensor:
    return torch.randint(0, 256, (count, *depth.SHAPE), generator=torch.Generator().manual_seed(1)).double()


def loss_of(network: Any, x: Tensor) -> Tensor:
    return F.cross_entropy(network(x.double())[0], torch.arange(len(x)))


def gradients_by_hand(network: Any, x: Tensor, skips: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Three blocks written out, with nothing of the package but the numbers of its weights."""
    values = dict(network.named_parameters())
    kernels: list[Tensor] = []
    outputs: list[Tensor] = []

    def normed(name: str, x: Tensor, stride: int, padding: int = 1, main: bool = True) -> Tensor:
        kernel = values[f"input.resnet.{name}.convolution.weight"]
        y = F.conv2d(x, kernel, stride=stride, padding=padding)
        if main:
            kernels.append(kernel)
            outputs.append(y)
        scale, shift = (values[f"input.resnet.{name}.norm.{part}"] for part in ("weight", "bias"))
        return F.batch_norm(y, None, None, scale, shift, training=True)

    h = normed("stem", (x / 255 - 0.5) / network.input.std[0], 1).relu()
    for block in range(3):
        stride = 2 if block else 1
        y = normed(f"blocks.{block}.second", normed(f"blocks.{block}.first", h, stride).relu(), 1)
        if skips:
            y = y + (normed(f"blocks.{block}.project", h, stride, 0, False) if block else h)
        h = y.relu()
    scores = F.linear(h.mean(dim=(2, 3)), values["head.output.weight"], values["head.output.bias"])
    gradients = torch.autograd.grad(F.cross_entropy(scores, torch.arange(len(x))), kernels + outputs)
    return list(gradients[: len(kernels)]), list(gradients[len(kernels) :])


@pytest.mark.parametrize("skips", [False, True])
def test_gradients_equal_autograd_by_hand(skips: bool) -> None:
    network, x = network_of(skips).train(), images()
    computed = depth.layer_gradients(network, x, loss_of)
    expected = gradients_by_hand(network, x, skips)
    assert [len(gradients) for gradients in computed] == [7, 7], "8 layers: all but the output"
    for ours, others in zip(computed, expected, strict=True):
        torch.testing.assert_close(ours, others, rtol=1e-6, atol=1e-12)


def test_sizes_and_similarities_are_of_these_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x = network_of(False), images()
    sizes, similarities = depth.measure_gradients(network, x, loss_of)
    kernels, outputs = gradients_by_hand(network, x.float().double(), False)
    np.testing.assert_allclose(sizes, [float(gradient.norm()) for gradient in kernels], rtol=1e-6)
    assert ((similarities > 0.5) & (similarities < 1)).all()
    monkeypatch.setattr(depth, "NOISE", 0.0)
    np.testing.assert_allclose(depth.measure_gradients(network, x, loss_of)[1], 1.0)
    one, other = outputs[3], outputs[3].flip(0)
    pairs = zip(one.flatten(1), other.flatten(1), strict=True)
    assert depth.mean_cosine(one, other) == pytest.approx(
        np.mean([float(a @ b / (a.norm() * b.norm())) for a, b in pairs])
    )
    assert depth.mean_cosine(one, 0 * other) == 0.0


def test_the_network_stays_as_it_is() -> None:
    network = network_of(True).train()
    before = {name: value.clone() for name, value in weights(network).items()}
    depth.measure_gradients(network, images(), loss_of)
    assert all(module.training for module in network.modules())
    assert not any(module._forward_hooks for module in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in weights(network).items())


def test_deep_stacks_with_and_without_skips() -> None:
    """Gradients of a plain stack do not vanish with batch norm; they grow on the way down, the more the deeper it is,
    and are noise there. With skips both is slower."""
    result = Inspector(tiny_subject()).depth(layers="20,56")
    assert list(result.arrays["size"].axes["network"]) == [
        "plain, 20 layers",
        "residual, 20 layers",
        "plain, 56 layers",
        "residual, 56 layers",
    ]
    sizes, similarities = result.arrays["size"].values, result.arrays["similarity"].values
    assert sizes.shape == similarities.shape == (4, 55)
    assert np.isnan(sizes[0, 19:]).all(), "20 layers have 19 convolutions"
    plain20, residual20, plain56, residual56 = (row[0] / row[~np.isnan(row)][-1] for row in sizes)
    assert plain56 > 30 * plain20
    assert plain56 > 30 * residual56
    assert plain56 > 1000
    assert residual20 < plain20
    assert abs(similarities[2, 0]) < 0.1 < similarities[3, 0] < similarities[1, 0]
    assert similarities[0, 0] < similarities[1, 0]
    assert "56 layers before training" in result.notes[0]
    last = result.charts[0].series[2]
    assert (last.x[0], last.x[-1]) == (0, 54), "from the output to the image"
    assert last.y[-1] == pytest.approx(sizes[2, 0], rel=1e-3)
    assert "32 random images" in result.notes[-1]


def test_another_seed_is_another_network() -> None:
    one, same, other = (
        Inspector(tiny_subject()).depth(layers=[8], seed=seed).arrays["size"].values for seed in (0, 0, 1)
    )
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)


def test_a_model_before_and_after_training(make_subject: Any) -> None:
    subject = make_subject("resnet")
    result = Inspector(subject).depth()
    assert list(result.arrays["size"].axes["network"]) == ["resnet, before training", "resnet"]
    assert [series.dashed for series in result.charts[0].series] == [True, False]
    task = subject.task
    encoded = subject.data[1]["validation"].items
    batch = task.collate(encoded, np.arange(len(encoded)))
    for index, network in enumerate((task.build(subject.data[1].train), subject.network)):
        network.train()
        task.loss(task.forward(network, batch), batch).div(batch.count).backward()
        expected = network.input.resnet.stem.convolution.weight.grad.norm()
        assert result.arrays["size"].values[index, 0] == pytest.approx(float(expected), rel=1e-4)


def test_what_cannot_be_shown(make_subject: Any) -> None:
    for layers in ("", "a", "7", "20,57", "2", "1208"):
        with pytest.raises(SeriatimError, match="6n"):
            Inspector(tiny_subject()).depth(layers=layers)
    with pytest.raises(SeriatimError) as caught:
        Inspector(make_subject("resnet")).depth(layers="20")
    assert caught.value.code == "inspect.layers"
    with pytest.raises(SeriatimError, match="gpt is not a residual network"):
        Inspector("gpt").depth()


# Paths


def blocks_of(network: Any) -> list[Any]:
    return list(network.input.resnet.blocks)


def gradient_of_path(network: Any, x: Tensor, through: tuple[bool, ...]) -> Tensor:
    """The gradient by the output of the stem along one path: where it does not lead, values are constants."""
    resnet = network.input.resnet
    stem = resnet.stem((x / 255 - network.input.mean[0]) / network.input.std[0]).relu().detach().requires_grad_()
    y = stem
    for block, branch in zip(resnet.blocks, through, strict=True):
        inner = block.second(block.first(y).relu())
        skip = y if block.project is None else block.project(y)
        y = (inner + skip.detach() if branch else inner.detach() + skip).relu()
    scores = network.head.output(y.mean(dim=(2, 3)))
    loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(x)))
    (gradient,) = torch.autograd.grad(loss, stem)
    return gradient


def test_all_paths_of_a_length_and_all_lengths_sum_to_autograds_gradient() -> None:
    network, x = network_of(True).train(), images()
    sums = gradients_by_length(network, blocks_of(network), x, loss_of)
    assert len(sums) == 4, "three blocks"
    for length, total in enumerate(sums):
        paths = [choice for choice in itertools.product((False, True), repeat=3) if sum(choice) == length]
        assert len(paths) == math.comb(3, length)
        expected = sum((gradient_of_path(network, x, path) for path in paths), torch.zeros_like(total))
        torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-14)
    seen: list[Tensor] = []
    handle = network.input.resnet.blocks[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    loss = loss_of(network, x)
    handle.remove()
    (whole,) = torch.autograd.grad(loss, seen[0])
    torch.testing.assert_close(sum(sums), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("skips", [True, False])
def test_deleted_blocks(skips: bool) -> None:
    network, x = network_of(skips).train(), images()
    paths = measure_paths("a", skips, network, x, loss_of, x)
    assert paths.loss == pytest.approx(float(loss_of(network, x)))
    assert np.isnan(paths.deleted).tolist() == ([False] * 3 if skips else [False, True, True])
    resnet = network.input.resnet
    with torch.no_grad():
        y = resnet.stem((x / 255 - network.input.mean[0]) / network.input.std[0]).relu()
        for block in blocks_of(network)[1:]:  # without the first
            y = block(y)
        scores = network.head.output(y.mean(dim=(2, 3)))
        whole = network(x)[0]
    expected = float(torch.nn.functional.cross_entropy(scores, torch.arange(len(x))))
    assert paths.deleted[0] == pytest.approx(expected, rel=1e-6)
    change = float((scores - whole).square().mean().sqrt() / whole.std(dim=0).mean())
    assert paths.changes[0] == pytest.approx(change, rel=1e-5)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_the_view_of_fresh_networks() -> None:
    result = Inspector(tiny_subject()).paths(layers="20")
    counts = result.arrays["paths, residual, 20 layers"].values
    assert counts.tolist() == [math.comb(9, k) for k in range(10)]
    assert result.arrays["gradient, residual, 20 layers"].values.shape == (10,)
    assert [row[0] for row in result.charts[-1].rows] == ["residual, 20 layers", "plain, 20 layers"]
    assert len(result.charts) == 3
    with pytest.raises(SeriatimError, match="not a residual network"):
        Inspector("gpt").paths()


def test_the_view_of_a_trained_model(make_subject: Any) -> None:
    subject = make_subject("resnet")
    before = {name: value.clone() for name, value in subject.network.state_dict().items()}
    result = Inspector(subject).paths()
    task, encoded = subject.task, subject.data[1]["validation"].items
    batch = task.collate(encoded, np.arange(len(encoded)))
    with torch.no_grad():
        loss = task.loss(task.forward(subject.network.eval(), batch), batch) / len(encoded)
    (row,) = result.charts[-1].rows
    assert row[6] == pytest.approx(float(loss), abs=1e-3)
    assert [chart.title for chart in result.charts][2] == "Loss without one block"
    assert all(torch.equal(value, before[name]) for name, value in subject.network.state_dict().items())
    with pytest.raises(SeriatimError) as caught:
        Inspector(subject).paths(layers="20")
    assert caught.value.code == "inspect.layers"
