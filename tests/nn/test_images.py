"""Images as inputs: patches, feature maps, and sources of encoder–decoders."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seriatim.models.gru import Settings
from seriatim.nn.images import (
    FeatureMapInput,
    ImageSource,
    PatchInput,
    ResNet,
    default_patch_size,
    image_encoder_decoder_network,
)

SHAPE = (3, 12, 10)


def pixels(count: int = 2) -> torch.Tensor:
    return torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_patches_equal_a_convolution() -> None:
    """Missing pixels at the right and at the bottom are the mean."""
    torch.manual_seed(0)
    inputs = PatchInput(SHAPE, 4, 7)
    inputs.mean.copy_(torch.tensor([0.4, 0.5, 0.6]))
    inputs.std.copy_(torch.tensor([0.2, 0.3, 0.25]))
    x = pixels()
    normalized = (x / 255 - inputs.mean[:, None, None]) / inputs.std[:, None, None]
    torch.testing.assert_close(inputs.normalize(x), normalized)
    padded = F.pad(normalized, (0, 2, 0, 0))
    weight = inputs.project.weight.unflatten(1, (3, 4, 4))
    expected = F.conv2d(padded, weight, inputs.project.bias, stride=4)
    assert inputs.grid == (3, 3)
    torch.testing.assert_close(inputs(x), expected.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("pool", [1, 2])
def test_feature_maps_are_read_row_by_row(pool: int) -> None:
    torch.manual_seed(0)
    resnet = ResNet(3, [4, 8], [1, 1], "small").eval()
    inputs = FeatureMapInput(SHAPE, resnet, pool).eval()
    features = resnet(inputs.normalize(pixels()))
    expected = features if pool == 1 else F.avg_pool2d(features, pool, ceil_mode=True)
    assert inputs.grid == tuple(expected.shape[2:])
    torch.testing.assert_close(inputs(pixels()), expected.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("concatenate", [False, True])
def test_positions_of_a_source(concatenate: bool) -> None:
    """Content alone does not tell positions apart: a blank image has different vectors everywhere."""
    torch.manual_seed(0)
    source = ImageSource(PatchInput(SHAPE, 4, 7), SHAPE, 6, concatenate)
    vectors = source(torch.zeros(1, *SHAPE, dtype=torch.uint8))[0]
    assert vectors.shape == (9, 12 if concatenate else 6)
    distances = torch.cdist(vectors, vectors) + torch.eye(9)
    assert distances.min() > 1e-3


def test_a_network_reads_an_image_and_decodes_tokens() -> None:
    torch.manual_seed(0)
    network = image_encoder_decoder_network(Settings(name="gru", width=6), PatchInput(SHAPE, 4, 7), SHAPE, 9, 5)
    tokens = torch.randint(0, 9, (2, 5))
    scores = network(pixels(), tokens)
    assert scores.shape == (2, 5, 9)
    assert not torch.allclose(scores, network(255 - pixels(), tokens))
    assert network.encoder_outputs(pixels()).shape[:2] == (2, 9)
    network.decode(tokens[:1], network.encode(network.empty_source()))


def test_default_patches() -> None:
    assert default_patch_size((3, 64, 32)) == 8
    assert default_patch_size((1, 3, 2)) == 1
