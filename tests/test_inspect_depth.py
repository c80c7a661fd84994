"""What depth does to gradients: they are those that autograd gives by hand, and skips are seen in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

import seriatim
from helpers import settings_of
from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector, depth
from seriatim.inspect.subject import Subject
from seriatim.nn.network import weights


def tiny(**extra: object) -> Subject:
    subject = Subject("resnet", "resnet")
    subject.settings = settings_of(("resnet", {"width": 4, **extra}))
    return subject


def network_of(skips: bool, layers: int = 8) -> Any:
    torch.manual_seed(0)
    return depth._classifier(settings_of(("resnet", {"width": 2, "layers": layers, "skips": skips}))).double()


def pictures(count: int = 6) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, *depth.SHAPE), generator=draw).double()


def judged(network: Any, x: Tensor) -> Tensor:
    return F.cross_entropy(network(x)[0], torch.arange(len(x)))


def by_hand(network: Any, x: Tensor, skips: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Three blocks written out, with nothing of the package but the numbers of its weights."""
    values = dict(network.named_parameters())
    kernels: list[Tensor] = []
    outputs: list[Tensor] = []

    def normed(name: str, x: Tensor, stride: int, padding: int = 1, seen: bool = True) -> Tensor:
        kernel = values[f"input.resnet.{name}.convolution.weight"]
        y = F.conv2d(x, kernel, stride=stride, padding=padding)
        if seen:
            kernels.append(kernel)
            outputs.append(y)
        scale, shift = (values[f"input.resnet.{name}.norm.{part}"] for part in ("weight", "bias"))
        return F.batch_norm(y, None, None, scale, shift, training=True)

    h = normed("stem", (x / 255 - 0.5) / network.input.deviation[0], 1).relu()
    for block in range(3):
        stride = 2 if block else 1
        y = normed(f"blocks.{block}.second", normed(f"blocks.{block}.first", h, stride).relu(), 1)
        if skips:
            y = y + (normed(f"blocks.{block}.project", h, stride, 0, False) if block else h)
        h = y.relu()
    scores = F.linear(h.mean(dim=(2, 3)), values["head.output.weight"], values["head.output.bias"])
    found = torch.autograd.grad(F.cross_entropy(scores, torch.arange(len(x))), kernels + outputs)
    return list(found[: len(kernels)]), list(found[len(kernels) :])


@pytest.mark.parametrize("skips", [False, True])
def test_gradients_are_those_of_autograd_by_hand(skips: bool) -> None:
    network, x = network_of(skips).train(), pictures()
    found = depth.gradients(network, x, judged)
    expected = by_hand(network, x, skips)
    assert [len(some) for some in found] == [7, 7]  # 8 layers: all but the one that answers
    for some, others in zip(found, expected, strict=True):
        torch.testing.assert_close(some, others, rtol=1e-6, atol=1e-12)


def test_sizes_and_likeness_are_of_these_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x = network_of(False), pictures()
    size, alike = depth.measured(network, x, lambda net, y: judged(net, y.double()))
    kernels, outputs = by_hand(network, x.float().double(), False)
    np.testing.assert_allclose(size, [float(one.norm()) for one in kernels], rtol=1e-6)
    assert ((alike > 0.5) & (alike < 1)).all()
    monkeypatch.setattr(depth, "NOISE", 0.0)
    np.testing.assert_allclose(depth.measured(network, x, lambda net, y: judged(net, y.double()))[1], 1.0)
    one, other = outputs[3], outputs[3].flip(0)
    pairs = zip(one.flatten(1), other.flatten(1), strict=True)
    expected = np.mean([float(a @ b / (a.norm() * b.norm())) for a, b in pairs])
    assert depth._cosine(one, other) == pytest.approx(expected)
    assert depth._cosine(one, 0 * other) == 0.0


def test_looking_leaves_the_network_as_it_is() -> None:
    network = network_of(True).train()
    before = {name: value.clone() for name, value in weights(network).items()}
    depth.measured(network, pictures(), lambda net, y: judged(net, y.double()))
    assert all(module.training for module in network.modules())
    assert not any(module._forward_hooks for module in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in weights(network).items())


def test_deep_stacks_with_and_without_skips() -> None:
    """As it is, not as it is often told: gradients of a plain stack do not fade with batch norm; they grow on the way
    down, the more the deeper it is, and are noise there. With skips both is slower."""
    seen = Inspector(tiny()).depth(layers="20,56")
    names = list(seen.arrays["size"].axes[0][1])
    assert names == ["plain, 20 layers", "residual, 20 layers", "plain, 56 layers", "residual, 56 layers"]
    size, alike = seen.arrays["size"].values, seen.arrays["alike"].values
    assert size.shape == alike.shape == (4, 55)
    assert np.isnan(size[0, 19:]).all()  # 20 layers have 19 convolutions
    plain20, residual20, plain56, residual56 = (row[0] / row[~np.isnan(row)][-1] for row in size)
    assert plain56 > 30 * plain20
    assert plain56 > 30 * residual56
    assert plain56 > 1000
    assert residual20 < plain20
    assert abs(alike[2, 0]) < 0.1 < alike[3, 0] < alike[1, 0]
    assert alike[0, 0] < alike[1, 0]
    assert f"first are {plain56:,.0f} times those of the last without" in seen.notes[0]
    last = seen.views[0]["series"][2][1]
    assert last[0][0] == 0
    assert last[-1] == [54, size[2, 0]]  # curves go from the answer down to the picture
    assert "32 random pictures" in seen.lines()[-1]


def test_another_seed_is_another_network() -> None:
    one, same, other = (Inspector(tiny()).depth(layers=[8], seed=seed).arrays["size"].values for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> seriatim.Run:
    """Bright and dark pictures."""
    root = tmp_path_factory.mktemp("depth")
    draw = np.random.default_rng(0)
    for number in range(40):
        path = root / "images" / ("bright" if number % 2 else "dark") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = draw.integers(0, 100, (12, 12), dtype=np.uint8)
        Image.fromarray(noise + np.uint8(100 * (number % 2))).save(path)
    settings = {"model": {"name": "resnet", "width": 2}, "train": {"steps": 4, "batch": 8}}
    return seriatim.train("classify", str(root / "images"), settings=settings, out=root / "run")


def test_a_run_before_and_after_training(run: seriatim.Run) -> None:
    seen = run.inspect.depth()
    assert list(seen.arrays["size"].axes[0][1]) == ["run, fresh", "run"]
    assert seen.views[0]["dashes"] == ["run, fresh"]
    task = Subject("resnet", "run", run).data
    batch = task.collate("valid", np.arange(len(task.parts["valid"])))
    for place, network in enumerate((task.build(run.config.model), run.model)):
        network.train()
        (task.loss(network, batch, None, 0.0)[0] / batch.count).backward()
        expected = network.input.resnet.stem.convolution.weight.grad.norm()
        assert seen.arrays["size"].values[place, 0] == pytest.approx(float(expected), rel=1e-4)


def test_what_cannot_be_shown(run: seriatim.Run, capsys: pytest.CaptureFixture[str]) -> None:
    for layers in ("", "a", "7", "20,57", "2", "1208"):
        with pytest.raises(SeriatimError, match="6n"):
            Inspector(tiny()).depth(layers=layers)
    assert cli(["inspect", str(run.path), "--depth", "--layers", "20"]) == 2
    assert "inspect.layers" in capsys.readouterr().err
    assert cli(["inspect", "gpt", "--depth"]) == 2
    assert "gpt is no residual network" in capsys.readouterr().err


def test_on_the_command_line(run: seriatim.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["inspect", str(run.path), "--depth", "--out", str(tmp_path / "depth.svg")]) == 0
    assert "How large the gradients" in (tmp_path / "depth.svg").read_text(encoding="utf-8")
    assert cli(["inspect", str(run.path), "--depth"]) == 0
    assert "run, fresh" in capsys.readouterr().out
