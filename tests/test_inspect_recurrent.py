"""Gates, units that track something, how far gradients reach, and back-propagation through time term by term."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seriatim.api import train
from seriatim.core.errors import SeriatimError
from seriatim.core.registry import models
from seriatim.inspect import Inspector, _clipping, _signals, backpropagation, cells, gates, gradients, own
from seriatim.inspect.subject import Subject
from seriatim.nn.network import token_network
from seriatim.runs import Run

TEXT = "The old man (who saw a cat) said: “the new dog bit”.\nTHE END 42\n"


@pytest.fixture(scope="module")
def runs(book: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Hardly trained, but of all kinds."""
    folder = tmp_path_factory.mktemp("runs")
    sizes: dict[str, dict[str, Any]] = {
        "lstm": {"layers": 2},
        "gru": {},
        "rnn": {},
        "gpt": {"heads": 2},
        "tcn": {"levels": 2},
    }
    return {
        name: train(
            "language", str(book), name, out=folder / name, steps=4, length=16, batch=2,
            settings={"model": {"width": 12} | more},
        )
        for name, more in sizes.items()
    }  # fmt: skip


# Back-propagation through time


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 6),
    steps=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    scale=st.floats(0, 2, allow_subnormal=False),
    activation=st.sampled_from(["tanh", "relu"]),
)
def test_the_sum_of_the_terms_is_the_gradient_of_autograd(
    width: int, steps: int, seed: int, scale: float, activation: str
) -> None:
    chain = backpropagation.unrolled(width, steps, seed, scale, activation=activation)
    for name, value in chain.gradients.items():
        torch.testing.assert_close(value, chain.autograd[name], rtol=1e-12, atol=1e-12)
    assert chain.terms["recurrent"].shape == (steps, width, width)


def test_the_terms_sum_to_the_gradient_of_torchs_own_rnn() -> None:
    chain = backpropagation.unrolled(3, 6, seed=5, scale=1.1)
    peer = nn.RNN(3, 3, batch_first=True).double()
    with torch.no_grad():
        peer.weight_ih_l0.copy_(chain.cell.input.weight)
        peer.weight_hh_l0.copy_(chain.cell.recurrent)
        peer.bias_ih_l0.copy_(chain.cell.input.bias)
        peer.bias_hh_l0.zero_()
    target = chain.states[-1] - chain.last
    loss = 0.5 * (peer(chain.x[None])[0][0, -1] - target).square().sum()
    loss.backward()
    assert float(loss.detach()) == pytest.approx(chain.loss, abs=1e-14)
    for name, parameter in (("recurrent", peer.weight_hh_l0), ("input", peer.weight_ih_l0), ("bias", peer.bias_ih_l0)):
        assert parameter.grad is not None
        torch.testing.assert_close(chain.gradients[name], parameter.grad, rtol=1e-12, atol=1e-13)


def test_the_products_are_the_jacobians_of_the_last_state() -> None:
    chain = backpropagation.unrolled(3, 5, seed=2)

    def onwards(state: torch.Tensor, first: int) -> torch.Tensor:
        for x in chain.x[first:]:
            state = torch.tanh(chain.cell.input(x) + chain.cell.recurrent @ state)
        return state

    for k in range(1, 6):
        jacobian = torch.func.jacrev(onwards)(chain.states[k], k)
        torch.testing.assert_close(chain.products[k - 1], jacobian.detach(), rtol=1e-12, atol=1e-13)


def test_back_propagation_tells_every_term_and_whether_it_vanishes() -> None:
    look = Inspector("rnn").backpropagation
    seen = look(width=2, steps=4)
    assert seen.arrays["terms_recurrent"].values.sum(axis=0) == pytest.approx(seen.arrays["autograd"].values, abs=1e-12)
    lines = seen.lines()
    assert sum(line.startswith("term ") for line in lines) == 4
    assert any("vanishes" in line for line in lines)
    assert any("grows" in line for line in look(scale=2.0).lines())
    given = look(width=2, steps=3, weights=[[0.0, 0.5], [0.25, 0.0]], scale=1.0)
    assert given.arrays["factors"].values[0] == pytest.approx(
        (1 - given.arrays["states"].values[1][:, None] ** 2) * np.array([[0.0, 0.5], [0.25, 0.0]])
    )
    json.dumps(seen.record(), allow_nan=False)
    assert {view["kind"] for view in seen.views} == {"heats", "lines", "table"}


@pytest.mark.parametrize(
    ("options", "code"),
    [({"width": 0}, "inspect.width"), ({"steps": 100}, "inspect.steps"), ({"weights": [[1.0]]}, "inspect.weights")],
)
def test_a_network_that_cannot_be_shown_is_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        Inspector("rnn").backpropagation(**options)
    assert caught.value.code == code
    with pytest.raises(SeriatimError, match="is no plain RNN"):
        Inspector("lstm").backpropagation()


# Gates


def test_the_gates_of_an_lstm_make_its_state_from_its_cell(runs: dict[str, Run]) -> None:
    seen = runs["lstm"].inspect.gates(TEXT)
    for layer in (0, 1):
        output, cell, hidden = (seen.arrays[f"layer {layer}, {part}"].values for part in ("output", "cell", "hidden"))
        assert hidden == pytest.approx(output * np.tanh(cell), abs=1e-6)
    assert seen.arrays["layer 0, forget"].axes[0][1][0] == "\\n"  # what every text is read behind
    hidden, _ = runs["lstm"].model.hidden(runs["lstm"].inspect.subjects[0].read(TEXT).inputs)
    assert seen.arrays["layer 1, hidden"].values == pytest.approx(hidden[0].detach().numpy(), abs=1e-6)


def test_the_update_gate_of_a_gru_keeps_its_state(runs: dict[str, Run]) -> None:
    """With Z = 1 everywhere the state stays what it was at the beginning."""
    inspector = runs["gru"].inspect
    cell = inspector.subjects[0].backbone.cells[0]
    kept = cell.input.bias.detach().clone()
    with torch.no_grad():
        cell.input.bias[cell.width : 2 * cell.width] = 60.0
    try:
        seen = inspector.gates("the cat")
    finally:
        with torch.no_grad():
            cell.input.bias.copy_(kept)
    assert (seen.arrays["layer 0, update"].values == 1).all()
    assert (seen.arrays["layer 0, hidden"].values == 0).all()


def test_gates_are_averaged_and_units_are_sorted_by_what_they_keep(runs: dict[str, Run]) -> None:
    seen = runs["lstm"].inspect.gates(TEXT, layer=1)
    forget = seen.arrays["layer 1, forget"].values
    curves = next(view for view in seen.views if view["kind"] == "lines")
    series = dict(curves["series"])
    assert [y for _, y in series["forget gate"]] == pytest.approx(forget.mean(axis=1).tolist(), abs=1e-6)
    maps = next(view for view in seen.views if view["kind"] == "heats")
    order = [int(name.removeprefix("unit ")) for name in maps["rows"]]
    assert sorted(order) == list(range(12))
    means = forget.mean(axis=0)[order]
    assert (np.diff(means) <= 0).all()
    assert dict(maps["panels"])["forget gate"][0] == pytest.approx(forget[:, order[0]].tolist(), abs=1e-6)
    table = next(view for view in seen.views if view["kind"] == "table")
    shares = {row[1]: row[3:] for row in table["rows"]}
    assert shares["forget gate"] == pytest.approx([(forget < 0.1).mean(), (forget > 0.9).mean()], abs=1e-4)


def test_what_a_map_of_a_long_text_puts_together_is_told(runs: dict[str, Run]) -> None:
    for text, together in ((TEXT, False), (TEXT * 5, True)):
        seen = runs["lstm"].inspect.gates(text, layer=1)
        elements = len(seen.arrays["layer 1, forget"].axes[0][1])
        for view in (one for one in seen.views if one["kind"] == "heats"):
            assert (len(view["columns"]) < elements) == together
            assert (f"{elements:,} elements, neighbours put together" in view["note"]) == together


def test_one_unit_is_followed_over_the_text_as_it_stands(runs: dict[str, Run]) -> None:
    whole, one = (runs["lstm"].inspect.gates("a cat\nsat", layer=1, unit=unit) for unit in (None, 7))
    strips = {view["title"]: view for view in one.views}
    assert strips["Forget gate: layer 1, unit 7"]["values"] == pytest.approx(
        whole.arrays["layer 1, forget"].values[:, 7].tolist()
    )
    assert strips["State: layer 1, unit 7"]["tokens"][1:] == list("a cat\nsat")
    for options, code in (({"unit": 12}, "inspect.unit"), ({"layer": 2}, "inspect.layer")):
        with pytest.raises(SeriatimError) as caught:
            runs["lstm"].inspect.gates("a", **options)
        assert caught.value.code == code


def test_a_plain_rnn_shows_its_state_and_what_is_saturated(runs: dict[str, Run]) -> None:
    seen = runs["rnn"].inspect.gates(TEXT)
    hidden = seen.arrays["layer 0, hidden"].values
    series = dict(next(view for view in seen.views if view["kind"] == "lines")["series"])
    assert [y for _, y in series["saturated units"]] == pytest.approx((np.abs(hidden) > 0.95).mean(axis=1).tolist())


@pytest.mark.parametrize("model", ["seq2seq", "bahdanau"])
def test_both_sides_of_an_encoder_decoder_have_gates(model: str) -> None:
    names = Inspector(model).gates().arrays.keys()
    assert {name.split(",")[0] for name in names} == {"encoder", "decoder"}


def test_gates_are_not_offered_where_there_are_none(runs: dict[str, Run]) -> None:
    assert "gates" not in runs["gpt"].inspect.offered()
    assert {"gates", "cells", "gradients"} <= set(runs["lstm"].inspect.offered())


# Units that track something


def test_signals_are_what_the_text_says() -> None:
    text = 'ab (c) "de"\nX1 YZ.'
    found = {name: rule(text) for name, rule in _signals.SIGNALS.items()}
    assert found["position in the line"] == [*range(12), *range(6)]
    assert found["inside brackets"] == [0, 0, 0, 0, 1, 1, *[0] * 12]
    assert found["inside quotes"] == [*[0] * 8, 1, 1, 1, *[0] * 7]
    assert found["length of the line before"] == [*[0] * 12, *[12] * 6]
    assert found["upper case"] == [*[0] * 12, 1, 0, 0, 1, 1, 0]
    assert found["a word in capitals"] == [*[0] * 12, 1, 1, 0, 1, 1, 0]
    assert found["digits"] == [*[0] * 13, 1, *[0] * 4]
    assert found["inside a word"] == [1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0]
    assert found["position in the word"][12:] == [0, 1, 2, 0, 1, 2]
    assert found["position in the sentence"] == [*range(18)]
    assert all(len(values) == len(text) for values in found.values())


def test_quotes_of_other_kinds_open_and_close_and_end_with_a_paragraph() -> None:
    assert _signals.inside_quotes("«a» b") == [0, 1, 1, 0, 0]
    assert _signals.inside_quotes('"a\n\nb') == [0, 1, 1, 0, 0]
    assert _signals.inside_brackets(")a((b)") == [0, 0, 0, 1, 2, 2]


def test_the_signal_of_a_token_is_the_mean_over_its_characters() -> None:
    found = _signals.signals("aB C", [(0, 2), (2, 3), (3, 4)])
    assert found["upper case"].tolist() == [0.5, 0, 1]
    assert "digits" not in found  # there are none


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000))
def test_correlations_are_pearsons_and_chance_is_the_best_of_all_moves(seed: int) -> None:
    draw = np.random.default_rng(seed)
    activity, told = draw.normal(size=(80, 5)), draw.normal(size=(3, 80))
    activity[:, 4] = 3.0  # a unit that never changes
    found = cells.correlations(activity, told)
    assert found[:, :4] == pytest.approx(np.corrcoef(told, activity[:, :4].T)[:3, 3:])
    assert (found[:, 4] == 0).all()
    moved = [np.abs(cells.correlations(activity, np.roll(told, by, axis=1))).max(axis=1) for by in range(4, 76)]
    assert cells.chance(activity, told) == pytest.approx(np.quantile(np.stack(moved), cells.SURE, axis=0))


def test_chance_allows_for_units_that_change_slowly() -> None:
    draw = np.random.default_rng(0)
    told = np.sin(np.arange(400) / 40)[None]
    quick, slow = draw.normal(size=(400, 50)), np.cumsum(draw.normal(size=(400, 50)), axis=0)
    assert cells.chance(quick, told)[0] < 0.3 < cells.chance(slow, told)[0]


DRAWN = np.random.default_rng(0).integers(0, 7, (60, 2)).tolist()  # a text that repeats itself would fit moved signals
LINES = "".join(f"one {'two ' * first}({'x' * second})\n" for first, second in DRAWN)


def test_networks_without_training_track_nothing(runs: dict[str, Run]) -> None:
    """With so few units luck may have it once in a while."""
    subject = runs["gru"].inspect.subjects[0]
    told = []
    for seed in range(100, 104):
        fresh = Subject(subject.model, "fresh", subject.run)
        fresh.network = own.untrained(subject, None, seed)
        told += cells.look(fresh, LINES).views[0]["rows"]
    assert len(told) >= 20
    assert sum(row[-1] == "yes" for row in told) <= 1


def test_a_planted_unit_is_found(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    subject, text = runs["gru"].inspect.subjects[0], LINES
    read = cells.parts_of(subject, text)
    told = read.signals()["length of the line before"]
    honest = cells._activity

    def planted(network: Any, given: cells.Read) -> tuple[list[str], np.ndarray]:
        units, activity = honest(network, given)
        if network is subject.network:
            activity[:, 5] = 2 - 3 * told
        return units, activity

    monkeypatch.setattr(cells, "_activity", planted)
    seen = cells.look(subject, text, top=1)
    row = next(row for row in seen.views[0]["rows"] if row[0] == "length of the line before")
    assert row[1:3] == ["layer 0, unit 5", -1.0]
    assert row[-1] == "yes"
    assert seen.views[1]["kind"] == "strip"
    assert "".join(seen.views[1]["tokens"]) == text[: cells.STRIP]


def test_a_text_that_is_too_long_is_read_in_parts(runs: dict[str, Run]) -> None:
    text = "the old cat saw the hat.\n" * 6
    read = cells.parts_of(runs["gpt"].inspect.subjects[0], text)
    assert len(read.readings) > 1
    assert all(len(reading.names) <= 16 for reading in read.readings)
    assert "".join(read.names) == text
    seen = runs["gpt"].inspect.cells(text)
    assert seen.arrays["correlation"].values.shape[1] == 12 * runs["gpt"].config.model.layers


@pytest.mark.parametrize("model", ["lstm", "tcn"])
def test_without_a_text_a_run_reads_its_own(runs: dict[str, Run], model: str) -> None:
    seen = runs[model].inspect.cells()
    assert seen.arrays["correlation"].values.shape[1] == 24
    with pytest.raises(SeriatimError, match="too few tokens"):
        runs[model].inspect.cells("a cat")
    with pytest.raises(SeriatimError, match="about one text, and 2 are given"):
        runs[model].inspect.cells("a cat", "a dog")


# How far gradients reach


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru", "tcn", "gpt"])
def test_gradients_are_those_of_central_differences(model: str) -> None:
    torch.manual_seed(0)
    made = models.load(model).Settings(name=model, width=8)
    network: Any = token_network(made, 7, 6).double().eval()
    tokens, target = torch.tensor([[1, 4, 2, 6, 0, 3]]), torch.tensor([5])
    x = network.input(tokens).detach()

    def loss(vectors: torch.Tensor) -> float:
        with torch.no_grad():
            scores = network.head(network.backbone(vectors)[0][:, -1:])[:, 0]
            return float(-scores.log_softmax(dim=-1)[0, target])

    size = 1e-5
    expected = torch.zeros_like(x[0])
    for place in range(x.shape[1]):
        for unit in range(x.shape[2]):
            step = torch.zeros_like(x)
            step[0, place, unit] = size
            expected[place, unit] = (loss(x + step) - loss(x - step)) / (2 * size)
    found = gradients.norms(network, tokens, target)[0]
    assert found == pytest.approx(expected.norm(dim=1).flip(0).numpy(), rel=1e-4, abs=1e-9)


def _curve(network: Any, size: int, tokens: int = 9) -> np.ndarray:
    rows = torch.randint(0, tokens, (4, size), generator=torch.Generator().manual_seed(1))
    return gradients.flow(network, [(rows, rows[:, 0])])


def _network(model: str, **more: Any) -> Any:
    torch.manual_seed(0)
    return token_network(models.load(model).Settings(name=model, width=16, **more), 9, 40).eval()


def test_it_vanishes_in_the_rnn_is_kept_in_the_lstm_and_is_one_step_away_in_attention() -> None:
    rnn, lstm, gpt, tcn = _network("rnn"), _network("lstm"), _network("gpt", heads=2), _network("tcn", levels=2)
    with torch.no_grad():
        rnn.backbone.cells[0].recurrent.mul_(0.5)
        rnn.backbone.cells[0].input.weight.copy_(torch.eye(16))
        rnn.input.weight.mul_(0.01)  # where tanh is straight a step multiplies by 0.5 · an orthogonal matrix
        cell = lstm.backbone.cells[0]
        cell.input.bias[16:32] = 20.0  # F = 1: the cell keeps for ever
        cell.recurrent.zero_()
    norms = _curve(rnn, 20)
    assert norms[1:] / norms[:-1] == pytest.approx([0.5] * 19, rel=1e-2)
    kept = gradients.Flow(Subject("lstm", "lstm"), True, _curve(lstm, 40), 4, True)
    assert kept.factor == pytest.approx(1, abs=0.02)
    lost = gradients.Flow(Subject("rnn", "rnn"), True, norms, 4, True)
    assert lost.factor == pytest.approx(0.5, rel=1e-2)
    attended = gradients.Flow(Subject("gpt", "gpt"), False, _curve(gpt, 40), 4, True)
    assert attended.factor == pytest.approx(1, abs=0.03)
    reached = gradients.Flow(Subject("tcn", "tcn"), False, _curve(tcn, 40), 4, True)
    assert reached.reach == tcn.backbone.receptive_field - 1


def test_fresh_and_trained_stand_in_one_picture(runs: dict[str, Run]) -> None:
    seen = Inspector(*runs.values()).gradients()
    names = list(seen.arrays["gradient"].axes[0][1])
    assert names == [name for model in runs for name in (f"{model}, fresh", model)]
    curves = seen.views[0]
    assert curves["dashes"] == [f"{model}, fresh" for model in runs]
    assert (seen.arrays["gradient"].values[:, 0] == 1).all()
    reach = dict(zip(names, np.isfinite(seen.arrays["gradient"].values).sum(axis=1), strict=True))
    assert (reach["gpt"], reach["rnn"]) == (16, 128)  # a GPT has no more context than it was trained with
    alone = Inspector("rnn", "gpt").gradients(length=8)
    assert list(alone.arrays["gradient"].axes[0][1]) == ["rnn", "gpt"]
    assert alone.views[0]["dashes"] == []
    json.dumps(seen.record(), allow_nan=False)


def test_what_is_called_fresh_is_what_training_began_with(runs: dict[str, Run]) -> None:
    for run in (runs["lstm"], runs["gpt"]):
        subject = run.inspect.subjects[0]
        began = subject.data.build(run.config.model).state_dict()
        fresh = own.untrained(subject, None).state_dict()
        assert began.keys() == fresh.keys()
        assert all(torch.equal(value, fresh[name]) for name, value in began.items())
        assert any(not torch.equal(value, fresh[name]) for name, value in subject.network.state_dict().items())


def test_a_text_of_the_user_is_what_gradients_are_followed_through(runs: dict[str, Run]) -> None:
    seen = runs["rnn"].inspect.gradients("the old cat")
    assert seen.arrays["gradient"].values.shape == (2, 10)  # the last token is what is to be predicted
    with pytest.raises(SeriatimError, match="no next one"):
        runs["rnn"].inspect.gradients("t")


def test_clipped_steps_are_counted_from_the_record(runs: dict[str, Run], tmp_path: Path) -> None:
    folder = tmp_path / "copied"
    shutil.copytree(runs["rnn"].path, folder)
    norms = [0.5, 1.5, 2.0, 0.9]
    lines = [json.dumps({"event": "stepped", "step": step, "norm": norm}) for step, norm in enumerate(norms, 1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = _clipping.recorded(Inspector(folder).subjects)
    assert _clipping.table(found)["rows"] == [["copied", 1.0, 4, 2, "50.0 %", 1.2, 2.0]]
    assert _clipping.curves(found)["annotations"] == [{"y": 1.0, "text": "clipped above 1"}]
    assert _clipping.recorded([Subject("rnn", "rnn")]) == []


def test_a_model_that_counts_is_left_away(runs: dict[str, Run]) -> None:
    seen = Inspector("ngram", "rnn").gradients(length=6)
    assert list(seen.arrays["gradient"].axes[0][1]) == ["rnn"]
    with pytest.raises(SeriatimError, match="counts"):
        Inspector("ngram").gradients()


def test_the_factor_of_a_straight_decay_is_its_own() -> None:
    norms = np.array([1.0, *(3 * 0.8**place for place in range(1, 30)), 0.0])
    flow = gradients.Flow(Subject("rnn", "rnn"), True, norms, 1, True)
    assert flow.factor == pytest.approx(0.8)
    assert flow.reach == 29
    assert gradients.Flow(Subject("rnn", "rnn"), True, np.array([1.0, 0.5]), 1, True).factor is None


def test_every_picture_can_be_drawn(runs: dict[str, Run]) -> None:
    seen = [
        Inspector("rnn").backpropagation(),
        runs["rnn"].inspect.gradients("the old cat"),
        runs["gru"].inspect.gates("a"),
        runs["lstm"].inspect.gates("שלום 你好\n", unit=3),
    ]
    for one in seen:
        assert one.chart().to_dict()["vconcat"]
        assert one.lines()[0] == one.title
    assert math.isfinite(seen[0].arrays["sum"].values.sum())
    assert gates.suits(Subject("tcn", "tcn")) == "keeps no gates"
