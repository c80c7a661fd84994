"""The Vision Transformer beside that of transformers, and patches beside a convolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from helpers import registry_settings, shaken
from seriatim.core.errors import SeriatimError
from seriatim.hub import reading
from seriatim.nn.images import PatchInput
from seriatim.nn.network import Network, VectorHead, load_weights

SHAPE = (3, 12, 12)


def images(count: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("architecture", ["ViTForImageClassification", "ViTModel"])
def test_vit_is_that_of_transformers(architecture: str, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=4, intermediate_size=24, image_size=12, patch_size=4,
        num_labels=5, hidden_act="gelu_new",
    )  # fmt: skip
    theirs = shaken(getattr(transformers, architecture)(config))
    theirs.save_pretrained(tmp_path)
    hub_model = reading.read_model(tmp_path)
    model = registry_settings("vit", hub_model.settings)
    inputs = model.image_input(SHAPE)
    ours = Network(
        inputs, model.build(inputs.width, 9), VectorHead(model.width, 5, "first", pooler=model.pooler)
    ).eval()
    centre = {"input.mean": torch.tensor([0.4, 0.5, 0.6]), "input.std": torch.tensor([0.2, 0.3, 0.4])}
    load_weights(ours, hub_model.tensors | hub_model.new_tensors | centre)
    x = images(3, SHAPE)
    answer = theirs((x / 255 - centre["input.mean"].view(3, 1, 1)) / centre["input.std"].view(3, 1, 1))
    if architecture == "ViTModel":
        caught = [one.split(":")[0] for one in hub_model.notes]
        assert len(caught) == 2, caught
        assert caught[0].startswith("ViTModel"), "that a head begins anew"
        assert caught[1] == "there is no preprocessor_config.json"
        torch.testing.assert_close(ours.hidden(x)[0], answer.last_hidden_state, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            ours.backbone.first_output(ours.input(x)), answer.last_hidden_state[:, 0], rtol=1e-4, atol=1e-5
        )
    else:
        torch.testing.assert_close(ours(x)[0], answer.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 10, 7), (3, 1, 1)], ids=str)
def test_patches_are_a_convolution(shape: tuple[int, int, int]) -> None:
    """Of steps as long as its side, over pixels in units of their std; the mean stands where pixels are missing."""
    torch.manual_seed(0)
    patches = PatchInput(shape, 4, 6).double()
    patches.mean.uniform_()
    patches.std.uniform_(0.5, 1.5)
    x = images(2, shape)
    pixels = (x / 255 - patches.mean.view(-1, 1, 1)) / patches.std.view(-1, 1, 1)
    below, right = (-one % 4 for one in shape[1:])
    weight = patches.project.weight.unflatten(1, (shape[0], 4, 4))
    expected = F.conv2d(F.pad(pixels, (0, right, 0, below)), weight, patches.project.bias, stride=4)
    assert patches.grid == tuple(expected.shape[2:])
    torch.testing.assert_close(patches(x), expected.flatten(2).mT)


def test_images_of_another_size() -> None:
    model = registry_settings("vit", {"width": 8, "heads": 2, "patch": 4})
    vit = model.build(8, 9)
    with pytest.raises(SeriatimError, match="positions") as caught:
        vit(model.image_input((1, 8, 8))(images(1, (1, 8, 8))))
    assert caught.value.code == "model.context"
