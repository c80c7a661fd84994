"""Gates and states of recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.report.charts import HeatmapGrid, Lines, Table, TokenStrip

TEXT = "a fine film full of light\nand warm humour"


def charts_of(result: Any, kind: type) -> list[Any]:
    return [chart for chart in result.charts if isinstance(chart, kind)]


def test_the_state_of_an_lstm_follows_from_its_cell_and_output_gate(make_subject: Any) -> None:
    subject = make_subject("lstm")
    text = TEXT[:20]
    result = Inspector(subject).gates(text)
    for layer in (0, 1):
        output, cell, hidden = (result.arrays[f"layer {layer}, {part}"].values for part in ("output", "cell", "hidden"))
        assert hidden == pytest.approx(output * np.tanh(cell), abs=1e-6)
    assert result.arrays["layer 0, forget"].axes["element"][0] == "↵", "texts are read behind a line end"
    hidden, _ = subject.network.hidden(subject.read(text).inputs)
    assert result.arrays["layer 1, hidden"].values == pytest.approx(hidden[0].detach().numpy(), abs=1e-6)


def test_an_open_update_gate_keeps_the_state_of_a_gru(make_subject: Any) -> None:
    subject = make_subject("gru")
    cell = subject.backbone.cells[0]
    with torch.no_grad():
        cell.input.bias[cell.width : 2 * cell.width] = 200.0
    result = Inspector(subject).gates("fine")
    assert (result.arrays["layer 0, update"].values == 1).all()
    assert (result.arrays["layer 0, hidden"].values == 0).all()


def test_means_over_units_and_the_order_of_units(make_subject: Any) -> None:
    result = Inspector(make_subject("lstm")).gates(TEXT, layer=1)
    forget = result.arrays["layer 1, forget"].values
    series = {line.name: line.y for line in charts_of(result, Lines)[0].series}
    assert series["forget gate"] == pytest.approx(forget.mean(axis=1), rel=1e-3)
    maps = charts_of(result, HeatmapGrid)[0]
    order = [int(name.removeprefix("unit ")) for name in maps.rows]
    assert sorted(order) == list(range(12))
    assert (np.diff(forget.mean(axis=0)[order]) <= 0).all()
    assert maps.panels["forget gate"][0] == pytest.approx(forget[:, order[0]], rel=1e-3)
    shares = {row[1]: row[3:] for row in charts_of(result, Table)[0].rows}
    assert shares["forget gate"] == pytest.approx([(forget < 0.1).mean(), (forget > 0.9).mean()], abs=1e-4)


def test_merged_elements_of_a_long_text_are_noted(make_subject: Any) -> None:
    for text, merged in ((TEXT, False), (TEXT * 5, True)):
        result = Inspector(make_subject("lstm")).gates(text, layer=1)
        count = len(result.arrays["layer 1, forget"].axes["element"])
        for chart in charts_of(result, HeatmapGrid):
            assert (len(chart.columns) < count) == merged
            assert (f"{count:,} elements, neighbors averaged" in chart.note) == merged


def test_one_unit_over_the_text_as_it_is_written(make_subject: Any) -> None:
    inspector = Inspector(make_subject("lstm"))
    text = "a film\nfull"
    whole, one = (inspector.gates(text, layer=1, unit=unit) for unit in (None, 7))
    strips = {chart.title: chart for chart in charts_of(one, TokenStrip)}
    expected = whole.arrays["layer 1, forget"].values[:, 7]
    assert strips["Forget gate: layer 1, unit 7"].values == pytest.approx(expected, rel=1e-3)
    assert list(strips["State: layer 1, unit 7"].tokens[1:]) == list(text)
    for options, code in (({"unit": 12}, "inspect.unit"), ({"layer": 2}, "inspect.layer")):
        with pytest.raises(SeriatimError) as caught:
            inspector.gates("a", **options)
        assert caught.value.code == code


def test_a_plain_rnn_shows_its_state_and_saturated_units(make_subject: Any) -> None:
    result = Inspector(make_subject("rnn")).gates(TEXT)
    hidden = result.arrays["layer 0, hidden"].values
    series = {line.name: line.y for line in charts_of(result, Lines)[0].series}
    assert series["saturated units"] == pytest.approx((np.abs(hidden) > 0.95).mean(axis=1), rel=1e-3)


@pytest.mark.parametrize("model", ["seq2seq", "bahdanau"])
def test_both_sides_of_an_encoder_decoder(model: str) -> None:
    names = Inspector(model).gates().arrays.keys()
    assert {name.split(",")[0] for name in names} == {"encoder", "decoder"}


@pytest.mark.parametrize("model", ["tcn", "gpt", "mlp"])
def test_networks_without_recurrent_layers(model: str) -> None:
    with pytest.raises(SeriatimError, match="no recurrent layers"):
        Inspector(model).gates()
