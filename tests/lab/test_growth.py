"""Growth with the length: bytes are exact, and their exponents are those of the theory; time is measured."""

from __future__ import annotations

import math

import pytest
import torch

from helpers import build, settings_of
from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.subject import Subject
from seriatim.inspect.views import ignore
from seriatim.lab.views import growth
from seriatim.lab.views.growth import LiveMemory, Pass, fit_exponent, measure_curves
from seriatim.report.charts import Table

LENGTHS = [256, 512, 1024]


def tiny_subject(name: str, **more: object) -> Subject:
    return Subject(name, settings_of((name, dict(more))))


def tiny_backbone(name: str, inputs: int, **more: object) -> torch.nn.Module:
    torch.manual_seed(0)
    backbone: torch.nn.Module = settings_of((name, dict(more))).build(inputs, LENGTHS[-1])
    return backbone


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bytes_are_counted_while_tensors_live(device: str) -> None:
    x = torch.zeros(1000, device=device)
    with LiveMemory([x]) as memory:
        a = x * 2
        b = a.view(10, 100)[1:]  # of the same storage
        assert (memory.now, memory.peak) == (4000, 4000)
        del a
        assert memory.now == 4000
        c = b.double()  # 900 numbers of 8 bytes
        assert (memory.now, memory.peak) == (11_200, 11_200)
        del b
        x.add_(1)
        x[:10]
        assert (memory.now, memory.peak) == (7200, 11_200)
        del c
        assert (memory.now, memory.peak) == (0, 11_200)


def test_what_autograd_keeps_is_counted() -> None:
    weight = torch.ones(100, 100, requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    x = torch.ones(50, 100)
    with LiveMemory([x, weight, weight.grad]) as memory:
        y = (x @ weight).tanh().tanh()  # both results are kept for the backward pass, the product is not
        assert memory.now == 2 * 50 * 100 * 4
        y.sum().backward()
        del y
        assert memory.now == 0


def test_bytes_are_reproducible_also_without_contents() -> None:
    run = Pass(build(("gpt", {"context_length": 64}), dtype=torch.float32), 5, equations=True)
    meta = run.on_meta_device()
    for backward in (False, True):
        assert meta.bytes(48, backward) == run.bytes(48, backward) > 0
    recurrent = Pass(build(("lstm", {}), dtype=torch.float32), 5)
    assert recurrent.bytes(40, True) == recurrent.bytes(40, True)


def test_the_exponent_is_that_of_the_longer_half() -> None:
    assert fit_exponent([1, 2, 4, 8], [7.0, 1.0, 16.0, 64.0]) == pytest.approx(2)
    assert fit_exponent([10, 100, 1000], [1e3, 5.0, math.nan]) == pytest.approx(math.log10(5e-3))
    assert math.isnan(fit_exponent([10, 100], [1.0, math.nan]))


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "tcn", "mlp"])
def test_memory_grows_linearly(name: str) -> None:
    run = Pass(tiny_backbone(name, 5), 5)
    for backward in (False, True):
        assert 0.95 < fit_exponent(LENGTHS, [float(run.bytes(n, backward)) for n in LENGTHS]) < 1.05


@pytest.mark.parametrize("name", ["gpt", "bert", "transformer"])
def test_attention_that_stores_its_weights_grows_with_the_square(name: str) -> None:
    more = {"heads": 2} if name == "transformer" else {"context_length": LENGTHS[-1]}
    backbone = tiny_backbone(name, 8, **more)
    sizes = (8, 8) if name == "transformer" else (8,)
    stored, fast = Pass(backbone, *sizes, equations=True).on_meta_device(), Pass(backbone, *sizes)
    for backward in (False, True):
        assert 1.9 < fit_exponent(LENGTHS, [float(stored.bytes(n, backward)) for n in LENGTHS]) < 2.05
        assert 0.9 < fit_exponent(LENGTHS, [float(fast.bytes(n, backward)) for n in LENGTHS]) < 1.1


def test_every_kind_of_model_has_its_theory() -> None:
    theories = {
        "rnn": growth.RECURRENT,
        "seq2seq": growth.RECURRENT,
        "bahdanau": growth.ATTENDING,
        "tcn": growth.CONVOLUTION,
        "mlp": growth.WINDOW,
        "gpt": growth.ATTENTION,
        "bert": growth.ATTENTION,
    }
    for name, theory in theories.items():
        assert growth.find_theory(build((name, {}), inputs=6)) is theory


def test_the_view() -> None:
    messages: list[str] = []
    inspector = Inspector(tiny_subject("rnn"), tiny_subject("gpt"))
    result = inspector.show("growth", lengths="8,16,32", notify=messages.append)
    assert messages[0] == "length 8: rnn, gpt, gpt, weights stored"
    assert list(result.arrays["seconds"].axes["model"]) == ["rnn", "gpt", "gpt, weights stored"]
    assert result.arrays["seconds"].values.shape == result.arrays["bytes"].values.shape == (3, 2, 3)
    assert (result.arrays["seconds"].values > 0).all()
    sizes = result.arrays["bytes"].values
    assert (sizes[2, 1] > sizes[1, 1]).all(), "stored weights need memory"
    assert result.arrays["exponents"].values[1, 2, 1] == pytest.approx(fit_exponent([8, 16, 32], sizes[2, 1]))
    table = result.charts[2]
    assert isinstance(table, Table)
    assert [row[2] for row in table.rows] == ["n·d²", "n²·d", "n²·d"]
    assert "n²·heads" in result.text


def test_limits_end_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    (curve,) = measure_curves([tiny_subject("rnn")], [4, 8, 16], budget=0.0, notify=ignore)
    assert len(curve.seconds) == 1
    assert curve.stopped == "rnn is timed up to 4: 8 would take more than its 0 seconds"
    monkeypatch.setattr(growth, "MAX_MEMORY", 100_000)
    _, stored = measure_curves([tiny_subject("gpt")], [8, 16, 256], budget=60.0, notify=ignore)
    assert (len(stored.seconds), len(stored.bytes)) == (2, 3)
    assert "is timed up to 16: at 256 it needs" in stored.stopped
    _, stored = measure_curves([tiny_subject("gpt")], [256, 512], budget=60.0, notify=ignore)
    assert (len(stored.seconds), len(stored.bytes)) == (0, 2)
    assert "is timed at no length" in stored.stopped


@pytest.mark.parametrize("lengths", ["", "64", "a,b", "0,4", [7]])
def test_lengths_must_be_lengths(lengths: str | list[int]) -> None:
    with pytest.raises(SeriatimError, match="lengths"):
        Inspector(tiny_subject("rnn")).growth(lengths=lengths)


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "transformer", "show_tell", "show_attend_tell"])
def test_encoder_decoders_read_a_source_of_its_own_size(name: str) -> None:
    more = {"heads": 2} if name == "transformer" else {}
    result = Inspector(tiny_subject(name, **more)).growth(lengths="8,16")
    assert (result.arrays["seconds"].values > 0).all()
