"""The contract of every encoder–decoder, and of attention after every causal architecture: what `nn.pair` promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seriatim
from helpers import TINY, backbones, label, mask_of, pair_models
from seriatim import api
from seriatim.core import registry
from seriatim.core.state import concat, flatten, rebuild, select, split
from seriatim.core.tensors import load_tensors, save_tensors
from seriatim.nn.network import count_parameters, load_weights, weights
from seriatim.nn.pair import Translator, pair_network
from seriatim.nn.scores import SCORES
from seriatim.training.budget import solve_width
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.events import Stepped
from seriatim.training.loop import Loop
from test_plugin import TOY

SMALL = {"transformer": {"width": 8, "heads": 2, "layers": 2, "feedforward": 10}} | TINY
SMALL |= {"gpt": {key: value for key, value in TINY["gpt"].items() if key != "context"}}
NAMES: list[tuple[str, dict[str, Any]]] = [
    (name, {}) for name in pair_models() if not registry.models.load(name).Settings.pictures
]
PAIRS = [
    *NAMES,
    ("seq2seq", {"cell": "gru", "layers": 1}),
    ("seq2seq", {"cell": "rnn"}),
    *(("bahdanau", {"score": score}) for score in SCORES if score != "additive"),
    ("bahdanau", {"cell": "lstm", "layers": 2}),
    ("bahdanau", {"cell": "rnn", "bidirectional": False}),
    ("bahdanau", {"reset": "after"}),
    ("transformer", {"norm": "after", "activation": "gelu"}),
    ("transformer", {"positions": "learned", "decoder_layers": 1, "activation": "silu"}),
    ("transformer", {"embedding": 5}),
]
TOYS = [("runningmean", {})]
AFTER = [case for case in backbones() if not case[1]] + [("gru", {"score": "dot", "width": 7}), *TOYS]
MAIN = NAMES + [case for case in AFTER if not case[1]]
every = pytest.mark.parametrize("case", PAIRS + AFTER, ids=label)
main = pytest.mark.parametrize("case", MAIN, ids=label)


@pytest.fixture(scope="module", autouse=True)
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A backbone in a file of the user's own."""
    file = tmp_path_factory.mktemp("own") / "runningmean.py"
    file.write_text(TOY, encoding="utf-8")
    registry.models.add_file(file)
    yield
    registry.models._files.clear()


def settings_of(case: tuple[str, dict[str, Any]], **more: Any) -> Any:
    name, extra = case
    extra = {key: value for key, value in extra.items() if name in pair_models() or key != "score"}
    kind = registry.models.load(name).Settings
    return kind(**({"width": 6} | SMALL.get(name, {}) | {"name": name} | extra | more))


def network_of(case: tuple[str, dict[str, Any]], length: int = 14, **more: Any) -> Translator:
    score = "general" if case[0] in pair_models() else case[1].get("score", "general")
    return pair_network(settings_of(case, **more), 11, 9, joint=False, length=length, score=score)


def build(case: tuple[str, dict[str, Any]], **more: Any) -> Translator:
    torch.manual_seed(0)
    network = network_of(case, **more).double().eval()
    for parameter in network.parameters():  # no zero biases: they would hide mistakes
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network


def tokens(batch: int, steps: int, vocabulary: int) -> Tensor:
    return torch.randint(0, vocabulary, (batch, steps), generator=torch.Generator().manual_seed(10 * batch + steps))


def equal(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@every
def test_shapes(case: Any) -> None:
    network = build(case)
    for batch, sources, targets in ((1, 1, 1), (1, 7, 1), (3, 1, 4), (3, 5, 9)):
        y = network(tokens(batch, sources, 11), tokens(batch, targets, 9))
        assert y.shape == (batch, targets, 9)
        assert y.isfinite().all()


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_padding_and_neighbours_never_change_an_answer(case: Any, dtype: torch.dtype) -> None:
    """Each row of a ragged batch gives what it gives alone, whatever stands in the padding, in whatever order."""
    network = build(case).to(dtype)
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
    network = build(case)
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
    network = build(case)
    source, target, mask = tokens(3, 7, 11), tokens(3, 10, 9), mask_of([7, 3, 1], 7)
    for padded in (None, mask):
        memory = network.encode(source, padded)
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
    network = build(case)
    source, target, more = tokens(4, 5, 11), tokens(4, 3, 9), tokens(4, 2, 9)
    memory = network.encode(source, mask_of([5, 2, 1, 4], 5))
    _, state = network.decode(target, memory)
    wanted, _ = network.decode(more, memory, state)
    rows = torch.tensor([3, 3, 0])
    equal(network.decode(more[rows], select(memory, rows), select(state, rows))[0], wanted[rows])
    for tree in (memory, state):
        parts, form = flatten(tree)
        assert all(len(part) == 4 for part in parts)
        assert len(flatten(rebuild(form, parts))[0]) == len(parts)
    equal(network.decode(more, concat(split(memory, 2)), concat(split(state, 2)))[0], wanted)


@every
def test_every_parameter_gets_a_gradient(case: Any) -> None:
    network = build(case)
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
    network = build(case)
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
    def fresh(seed: int) -> Translator:
        torch.manual_seed(seed)
        return network_of(case).eval()

    first, second, third = fresh(1), fresh(1), fresh(2)
    a, b, c = weights(first), weights(second), weights(third)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    source, target = tokens(2, 5, 11), tokens(2, 6, 9)
    wanted = first(source, target)  # what a forward pass leaves behind must be no part of what is stored
    save_tensors(tmp_path / "model.safetensors", weights(first))
    load_weights(third, load_tensors(tmp_path / "model.safetensors"))
    assert torch.equal(third(source, target), wanted)


@pytest.mark.parametrize("case", [*MAIN, ("transformer", {"norm": "after"}), ("bahdanau", {"score": "dot"})], ids=label)
def test_overfits_one_batch(case: Any) -> None:
    """Learns four pairs by heart. They begin alike, so that only the source tells them apart."""
    torch.manual_seed(0)
    network = network_of(case, width=32, dropout=0.0)
    source, wanted = tokens(4, 5, 11), tokens(4, 6, 9)
    given = torch.cat([torch.zeros(4, 1, dtype=torch.long), wanted[:, :-1]], dim=1)
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    for _ in range(120):
        loss = nn.functional.cross_entropy(network(source, given).flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1, loss.item()


@main
def test_a_source_of_a_thousand_tokens(case: Any) -> None:
    torch.manual_seed(0)
    network = network_of(case, length=1_000).eval()
    with torch.inference_mode():
        assert network(tokens(1, 1_000, 11), tokens(1, 5, 9)).isfinite().all()


@main
@pytest.mark.parametrize("wanted", [300_000, 2_000_000])
def test_a_budget_of_parameters_is_met(case: Any, wanted: int) -> None:
    model = registry.models.load(case[0]).Settings(name=case[0])
    for joint in (False, True):

        def shape(candidate: Any, joint: bool = joint) -> Translator:
            return pair_network(candidate, 500, 500, joint, 128, "general")

        solved = solve_width(model, wanted, shape)
        with torch.device("meta"):
            size = count_parameters(shape(solved))
        assert 0.98 * wanted <= size <= wanted, f"{size:,} of {wanted:,}"


@pytest.mark.parametrize("score", ["dot", "distance"])
def test_a_budget_is_met_where_the_score_wants_one_length(score: str) -> None:
    model = registry.models.load("bahdanau").Settings(name="bahdanau", score=score)
    solved = solve_width(model, 300_000, lambda candidate: pair_network(candidate, 200, 200, True, 128))
    assert 0.98 * 300_000 <= count_parameters(pair_network(solved, 200, 200, True, 128)) <= 300_000


# Within the task


def pairs(folder: Path, rows: int = 60) -> Path:
    """Words, and the same backwards: from one letter to thirteen."""
    letters = "abcdefghijklm"
    lines = [letters[: 1 + n % 13][n % 7 :] + letters[n % 11] * (1 + n // 13) for n in range(rows)]
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in dict.fromkeys(lines)), encoding="utf-8")
    return path


def prepared(case: Any, folder: Path, **train: Any) -> Any:
    model = SMALL.get(case[0], {"width": 6}) | {"name": case[0], "dropout": 0.0} | case[1]
    own = {"steps": 6, "batch": 4, "evaluate_steps": 3, **train}
    settings = {"model": model, "train": own, "data": {"tokenizer": {"kind": "char"}, "held_out": 6}}
    config = api.configure("translate", str(pairs(folder)), None, settings)
    return config, registry.tasks.load("translate").prepare(config)


def loop_of(case: Any, folder: Path, place: str, **train: Any) -> Loop:
    config, task = prepared(case, folder, **train)
    return Loop(task, task.build(config.model), config.train, 1e-2, 0, Checkpoints(folder / place))


@main
def test_resumed_is_as_if_never_stopped(case: Any, tmp_path: Path) -> None:
    whole = loop_of(case, tmp_path, "whole")
    for _ in whole.run():
        pass
    for event in loop_of(case, tmp_path, "cut").run():
        if isinstance(event, Stepped) and event.step == 5:
            break
    resumed = loop_of(case, tmp_path, "cut")
    resumed.resume()
    assert resumed.progress.step == 3
    for _ in resumed.run():
        pass
    a, b = weights(whole.network), weights(resumed.network)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("case", NAMES, ids=label)
def test_accumulation_changes_nothing(case: Any, tmp_path: Path) -> None:
    found = []
    for batch, accumulate in ((8, 1), (4, 2), (1, 8)):
        loop = loop_of(case, tmp_path, f"{batch}", batch=batch, accumulate=accumulate, steps=3, evaluate_steps=9)
        assert loop.progress.rows == 8
        loop.network.double()
        losses = [event.loss for event in loop.run() if isinstance(event, Stepped)]
        found.append((losses, loop.progress.tokens, weights(loop.network)))
    for losses, count, tensors in found[1:]:
        assert count == found[0][1]
        assert losses == pytest.approx(found[0][0], rel=1e-9)
        for name, tensor in tensors.items():
            equal(tensor, found[0][2][name], 1e-8)


@pytest.mark.parametrize("rows", [1, 3, 8, 40])
def test_the_rows_of_a_step_share_its_pairs(rows: int, tmp_path: Path) -> None:
    """Every pair is in one row of a step, whatever the number of rows; with more rows than pairs some have none, and
    their loss is 0, with gradients."""
    config, task = prepared(("bahdanau", {}), tmp_path)
    network = task.build(config.model).double()
    seen = []
    for step in range(3):
        whole = task.batch(step, 0, rows, rows)
        loss, _ = task.loss(network, whole, None, 0.1)
        for cut in {1, rows // 2, rows} - {0}:
            parts = [task.batch(step, first, min(first + cut, rows), rows) for first in range(0, rows, cut)]
            assert sum(part.count for part in parts) == whole.count == int((whole.targets >= 0).sum())
            assert sorted(pair for part in parts for pair in told(part)) == sorted(told(whole))
            equal(sum(task.loss(network, part, None, 0.1)[0] for part in parts), loss, 1e-9)
        seen += told(whole)
        if not told(task.batch(step, 0, 1, rows)):
            network.zero_grad(set_to_none=True)
            empty, _ = task.loss(network, task.batch(step, 0, 1, rows), None, 0.1)
            empty.backward()
            assert empty.item() == 0
            assert all(p.grad is not None and not p.grad.any() for p in network.parameters())
    assert seen


def told(batch: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The pairs of a batch, as tokens."""
    sources, _ = batch.inputs
    mask = torch.ones_like(sources, dtype=torch.bool) if batch.mask is None else batch.mask
    found = [
        (tuple(source[real].tolist()), tuple(target[target >= 0].tolist()))
        for source, real, target in zip(sources, mask, batch.targets, strict=True)
    ]
    return [one for one in found if one[1]]


def test_more_rows_than_pairs(tmp_path: Path) -> None:
    """A batch of long pairs has fewer than `train.batch`; a training part may have fewer altogether."""
    config, task = prepared(("seq2seq", {}), tmp_path)
    network = task.build(config.model)
    whole = task.batch(0, 0, 500, 500)
    assert len(told(whole)) == task.size < 500
    parts = [task.batch(0, first, first + 100, 500) for first in range(0, 500, 100)]
    assert sorted(pair for part in parts for pair in told(part)) == sorted(told(whole))
    assert sum(part.count for part in parts) == whole.count
    empty = next(part for part in (task.batch(0, row, row + 1, 500) for row in range(500)) if not told(part))
    assert empty.count == 0
    loss, _ = task.loss(network, empty, None, 0.0)
    loss.backward()
    assert loss.item() == 0
    idle = [name for name, p in network.named_parameters() if p.grad is None]
    assert not idle, f"another rank would wait for the gradient of {idle}"


def test_an_epoch_has_every_pair_once(tmp_path: Path) -> None:
    _, task = prepared(("seq2seq", {}), tmp_path)
    batches = []
    while len([pair for batch in batches for pair in batch]) < 2 * task.size:
        batches.append(told(task.batch(len(batches), 0, 4, 4)))
    first = [pair for batch in batches[: len(batches) // 2] for pair in batch]
    second = [pair for batch in batches[len(batches) // 2 :] for pair in batch]
    assert len(first) == task.size == len(set(first))
    assert set(first) == set(second)
    assert [sorted(batch) for batch in batches[: len(batches) // 2]] != [
        sorted(batch) for batch in batches[len(batches) // 2 :]
    ]


@pytest.mark.parametrize("case", [*NAMES, ("gru", {}), *TOYS], ids=label)
def test_a_run_answers_as_the_training_did(case: Any, tmp_path: Path) -> None:
    """Through the public door: what it measures opened again is what was written; no pickle in its folder."""
    out = tmp_path / "run"
    model = SMALL.get(case[0], {"width": 6}) | {"name": case[0]}
    settings = {"model": model, "data": {"held_out": 6}, "task": {"beams": 2}}
    run = seriatim.train("translate", str(pairs(tmp_path)), settings=settings, out=out, steps=2, batch=4)
    written, measured = run.summary["measures"]["test"], seriatim.evaluate(out)
    assert measured == pytest.approx(written, rel=1e-6)
    kinds = {file.suffix for file in out.rglob("*") if file.is_file()}
    assert kinds <= {".json", ".jsonl", ".yaml", ".safetensors", ".html", ".md"}
