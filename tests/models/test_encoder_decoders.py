"""The contract of encoder–decoders (`nn.encoder_decoder`), for every model and Luong's around every backbone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder_decoder_cases import AFTER, MAIN, NAMES, PAIRS, build_pair, pair_network, tokens
from helpers import RUNNING_MEAN, label, mask_of
from seriatim.core import registry
from seriatim.core.device import on_meta_device
from seriatim.core.files import load_tensors, save_tensors
from seriatim.core.state import concat, flatten, rebuild, select, split
from seriatim.nn.encoder_decoder import EncoderDecoder, encoder_decoder_network
from seriatim.nn.network import count_parameters, load_weights, weights
from seriatim.training.cost import solve_width

TOYS = [("runningmean", {})]
every = pytest.mark.parametrize("case", PAIRS + AFTER + TOYS, ids=label)
main = pytest.mark.parametrize("case", MAIN, ids=label)


@pytest.fixture(scope="module", autouse=True)
def _running_mean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A backbone in a user's own file."""
    file = tmp_path_factory.mktemp("own") / "runningmean.py"
    file.write_text(RUNNING_MEAN, encoding="utf-8")
    registry.models.add_file(file)
    yield
    registry.models._files.clear()


def equal(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@every
def test_padding_and_neighbors_never_change_an_answer(case: Any) -> None:
    """Each row of a ragged batch gives what it gives alone, whatever stands in the padding, in whatever order."""
    dtype = torch.float32 if case in NAMES else torch.float64  # the kernels differ
    network = build_pair(case).to(dtype)
    source, target, lengths = tokens(3, 8, 11), tokens(3, 6, 9), [8, 5, 1]
    mask, tolerance = mask_of(lengths, 8), 1e-10 if dtype == torch.float64 else 1e-5
    y = network(source, target, mask)
    equal(network(torch.where(mask, source, 10 - source), target, mask), y, tolerance)
    order = torch.tensor([2, 0, 1])
    equal(network(source[order], target[order], mask[order]), y[order], tolerance)
    for row, length in enumerate(lengths):
        equal(network(source[row : row + 1, :length], target[row : row + 1])[0], y[row], tolerance)


@every
def test_the_decoder_is_causal_and_hears_the_source(case: Any) -> None:
    """A change at t changes nothing before t, and something at t; a change of the source, all."""
    network = build_pair(case)
    source, target = tokens(2, 6, 11), tokens(2, 9, 9)
    y = network(source, target)
    for t in (0, 4, 8):
        changed = target.clone()
        changed[:, t] = (changed[:, t] + 1) % 9
        z = network(source, changed)
        equal(z[:, :t], y[:, :t])
        assert (z[:, t] - y[:, t]).abs().amax(dim=-1).min() > 1e-7
    z = network((source + 1) % 11, target)
    assert (z - y).abs().amax(dim=-1).min() > 1e-9


@every
def test_chunks_equal_whole(case: Any) -> None:
    network = build_pair(case)
    source, target, mask = tokens(3, 7, 11), tokens(3, 10, 9), mask_of([7, 3, 1], 7)
    for padding in (None, mask):
        memory = network.encode(source, padding)
        whole, _ = network.decode(target, memory)
        for sizes in ([1] * 10, [4, 1, 3, 2], [9, 1]):
            state, parts = None, []
            for piece in target.split(sizes, dim=1):
                y, state = network.decode(piece, memory, state)
                parts.append(y)
            equal(torch.cat(parts, dim=1), whole)


@every
def test_memories_and_states_select_split_and_store(case: Any) -> None:
    """What beam search does with them; the batch is the first dimension of every tensor."""
    network = build_pair(case)
    source, target, more = tokens(4, 5, 11), tokens(4, 3, 9), tokens(4, 2, 9)
    memory = network.encode(source, mask_of([5, 2, 1, 4], 5))
    _, state = network.decode(target, memory)
    expected, _ = network.decode(more, memory, state)
    rows = torch.tensor([3, 3, 0])
    equal(network.decode(more[rows], select(memory, rows), select(state, rows))[0], expected[rows])
    for tree in (memory, state):
        parts, form = flatten(tree)
        assert all(len(part) == 4 for part in parts)
        assert len(flatten(rebuild(form, parts))[0]) == len(parts)
    equal(network.decode(more, concat(split(memory, 2)), concat(split(state, 2)))[0], expected)


@every
def test_every_parameter_gets_a_gradient(case: Any) -> None:
    network = build_pair(case)
    y = network(tokens(3, 8, 11), tokens(3, 7, 9))
    (y * torch.randn_like(y)).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


class Both(nn.Module):
    """Vectors of a source and of a target in, the decoder's outputs out."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = self.backbone.decode(y, self.backbone.encode(x, mask))[0]
        return hidden


@every
def test_gradcheck(case: Any) -> None:
    """The derivatives are right, those of the inputs and those of every parameter, with padding in the batch."""
    network = build_pair(case)
    both = Both(network.backbone)
    names, size = [name for name, _ in both.named_parameters()], network.source.embedding_dim
    mask = mask_of([4, 2], 4)

    def run(x: Tensor, y: Tensor, *values: Tensor) -> Any:
        return torch.func.functional_call(both, dict(zip(names, values, strict=True)), (x, y, mask))

    vectors = [torch.randn(2, steps, size, dtype=torch.float64) for steps in (4, 3)]
    inputs = [*vectors, *(parameter.detach().clone() for parameter in both.parameters())]
    assert torch.autograd.gradcheck(run, [value.requires_grad_() for value in inputs], atol=1e-6, fast_mode=True)


@every
def test_same_seed_same_weights_and_a_round_trip(case: Any, tmp_path: Path) -> None:
    def fresh(seed: int) -> EncoderDecoder:
        torch.manual_seed(seed)
        return pair_network(case).eval()

    first, second, third = fresh(1), fresh(1), fresh(2)
    a, b, c = weights(first), weights(second), weights(third)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    source, target = tokens(2, 5, 11), tokens(2, 6, 9)
    expected = first(source, target)  # what a forward pass leaves behind must be no part of what is stored
    save_tensors(tmp_path / "model.safetensors", weights(first))
    load_weights(third, load_tensors(tmp_path / "model.safetensors"))
    assert torch.equal(third(source, target), expected)


@pytest.mark.parametrize("case", [*MAIN, ("transformer", {"norm": "after"}), ("bahdanau", {"score": "dot"})], ids=label)
def test_overfits_one_batch(case: Any) -> None:
    """Learns four pairs by heart. They begin alike, so that only the source tells them apart."""
    torch.manual_seed(0)
    network = pair_network(case, width=32, dropout=0.0)
    source, expected = tokens(4, 5, 11), tokens(4, 6, 9)
    inputs = torch.cat([torch.zeros(4, 1, dtype=torch.long), expected[:, :-1]], dim=1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
    for _ in range(120):
        loss = nn.functional.cross_entropy(network(source, inputs).flatten(0, 1), expected.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1, loss.item()


@main
def test_a_source_of_a_thousand_tokens(case: Any) -> None:
    torch.manual_seed(0)
    network = pair_network(case, length=1_000).eval()
    with torch.inference_mode():
        assert network(tokens(1, 1_000, 11), tokens(1, 5, 9)).isfinite().all()


@main
def test_a_budget_of_parameters_is_met(case: Any) -> None:
    expected = 300_000 if MAIN.index(case) % 2 else 2_000_000
    model = registry.models.load(case[0]).Settings(name=case[0])
    joint = MAIN.index(case) % 3 == 0
    build = lambda candidate: encoder_decoder_network(candidate, 500, 500, joint, 128, "general")  # noqa: E731
    solved = solve_width(model, expected, build)
    with on_meta_device():
        size = count_parameters(build(solved))
    share = 0.9 if case[0] == "linear" else 0.98  # a width of 1 more is 16 columns more, in products of two of them
    assert share * expected <= size <= expected, f"{size:,} of {expected:,}"


@pytest.mark.parametrize("score", ["dot", "distance"])
def test_a_budget_is_met_where_the_score_wants_one_length(score: str) -> None:
    model = registry.models.load("bahdanau").Settings(name="bahdanau", score=score)
    solved = solve_width(model, 300_000, lambda candidate: encoder_decoder_network(candidate, 200, 200, True, 128))
    assert 0.98 * 300_000 <= count_parameters(encoder_decoder_network(solved, 200, 200, True, 128)) <= 300_000
