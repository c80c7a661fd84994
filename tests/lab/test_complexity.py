"""The complexity of one layer: counted operations by formula, chains of products, and paths by gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.subject import Subject
from seriatim.lab.views import complexity
from seriatim.lab.views.complexity import KINDS, Layer, ProductMeter
from seriatim.nn.layers import readable_equations
from seriatim.report.charts import Table


def layer_of(name: str) -> Layer:
    return Layer(name, Subject.fresh(name).settings)  # type: ignore[arg-type]


def test_products_and_chains_by_hand() -> None:
    x, weight = torch.randn(4, 3), torch.randn(3, 3)
    with torch.no_grad(), ProductMeter(x) as meter:
        y = torch.tanh(x @ weight)  # 2·4·3·3
        scores = y @ y.T  # 2·4·3·4, between activations
        torch.addmm(torch.zeros(3), scores @ x, weight)  # 2·4·4·3 between, then 2·4·3·3 with a weight
        torch.randn(5, 5) @ torch.randn(5, 5)  # depends on no input: not in the chain
    assert meter.chain == 4
    assert meter.flops[KINDS[0]] == 2 * 4 * 3 * 4 + 2 * 4 * 4 * 3
    assert meter.flops[KINDS[1]] == 2 * (2 * 4 * 3 * 3) + 2 * 5 * 5 * 5


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "tcn", "mlp", "gpt"])
def test_all_operations_are_those_of_torchs_counter(name: str) -> None:
    layer, sizes = layer_of(name), {"n": 16, "d": 8, "k": 3}
    meter, backbone = layer.measure(sizes), layer.build(sizes)
    with torch.no_grad(), readable_equations(), FlopCounterMode(display=False) as counter:
        backbone(torch.randn(1, 16, 8))
    assert sum(meter.flops.values()) == counter.get_total_flops() > 0


def test_operations_by_formula() -> None:
    n, d, k = 24, 16, 4
    sizes = {"n": n, "d": d, "k": k}
    gpt = layer_of("gpt").measure(sizes).flops
    assert gpt[KINDS[0]] == 2 * (2 * n * n * d), "q·k and α·v"
    assert gpt[KINDS[1]] == 2 * n * d * d * (3 + 1 + 4 + 4), "q, k, v, output and a feed-forward network of 4 d"
    assert layer_of("rnn").measure(sizes).flops == {KINDS[0]: 0, KINDS[1]: 2 * (2 * n * d * d)}
    assert layer_of("tcn").measure(sizes).flops == {KINDS[0]: 0, KINDS[1]: 2 * (2 * k * n * d * d)}


def test_the_table_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"n": (8, 16), "d": (8, 16), "k": (2, 4)}
    monkeypatch.setattr(complexity, "TIMED", small)
    result = Inspector("rnn", "tcn", "gpt").complexity()
    exponents = result.arrays["exponents"].values
    rnn, tcn, gpt = exponents
    np.testing.assert_allclose(rnn[1], [1, 2, np.nan], atol=1e-9)
    np.testing.assert_allclose(tcn[1], [1, 2, 1], atol=1e-9)
    np.testing.assert_allclose(gpt[0], [2, 1, np.nan], atol=1e-9)
    np.testing.assert_allclose(gpt[1], [1, 2, np.nan], atol=1e-9)
    assert np.isnan(rnn[0]).all()
    assert np.isfinite(exponents[:, 2, :2]).all(), "times are shown"
    chains = result.arrays["chain"].values
    assert chains[0].tolist() == [64, 128, 256]
    assert len(set(chains[1])) == len(set(chains[2])) == 1, "constant in n"
    paths = result.arrays["path"].values
    assert paths[0].tolist() == [8, 16, 32]
    assert paths[2].tolist() == [1, 1, 1]
    for levels, elements in zip(paths[1], complexity.PATH_ELEMENTS, strict=True):
        assert 1 + 2 * 2 * (2**levels - 1) >= elements > 1 + 2 * 2 * (2 ** (levels - 1) - 1), "the receptive field"
    table = result.charts[-1]
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["n·d²", "k·n·d²", "n²·d"]


def test_a_window_never_reaches_further() -> None:
    assert layer_of("mlp").path(8) is None
    assert layer_of("mlp").path(3) == 1
    with pytest.raises(SeriatimError, match="encoder–decoder"):
        Inspector("transformer").complexity()
