"""Growth with the length: bytes are exact, and their exponents are what theory says; time is measured, never judged."""

from __future__ import annotations

import math

import pytest
import torch

from helpers import build, settings_of
from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.cost import Live, Pass
from seriatim.inspect.growth import ATTENTION, CONVOLUTION, LOOKING, RECURRENT, WINDOW, exponent, measured, theory
from seriatim.inspect.subject import Subject

LONG = [256, 512, 1024]


def tiny(name: str, **extra: object) -> Subject:
    subject = Subject(name, name)
    subject.settings = settings_of((name, dict(extra)))
    return subject


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bytes_are_counted_while_tensors_live(device: str) -> None:
    x = torch.zeros(1000, device=device)
    with Live([x]) as live:
        a = x * 2
        b = a.view(10, 100)[1:]  # a part of the same storage
        assert (live.now, live.peak) == (4000, 4000)
        del a
        assert live.now == 4000
        c = b.double()  # 900 numbers of 8 bytes
        assert (live.now, live.peak) == (11_200, 11_200)
        del b
        x.add_(1)
        x[:10]
        assert (live.now, live.peak) == (7200, 11_200)
        del c
        assert (live.now, live.peak) == (0, 11_200)


def test_what_autograd_keeps_is_counted() -> None:
    weight = torch.ones(100, 100, requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    x = torch.ones(50, 100)
    with Live([x, weight, weight.grad]) as live:
        y = (x @ weight).tanh().tanh()  # both results are kept for the way back, the product is not
        assert live.now == 2 * 50 * 100 * 4
        y.sum().backward()
        del y
        assert live.now == 0


def test_tensors_without_contents_count_the_same() -> None:
    go = Pass(build(("gpt", {"context": 64}), dtype=torch.float32), 5, visible=True)
    ghost = go.without_contents()
    for learns in (False, True):
        assert ghost.bytes(48, learns) == go.bytes(48, learns) > 0


def test_counting_gives_the_same_number_again() -> None:
    go = Pass(build(("lstm", {}), dtype=torch.float32), 5)
    assert go.bytes(40, True) == go.bytes(40, True)


# ── exponents ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_exponent_is_that_of_the_longer_half() -> None:
    assert exponent([1, 2, 4, 8], [7.0, 1.0, 16.0, 64.0]) == pytest.approx(2)
    assert exponent([10, 100, 1000], [1e3, 5.0, math.nan]) == pytest.approx(math.log10(5e-3))
    assert math.isnan(exponent([10, 100], [1.0, math.nan]))


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "tcn", "mlp"])
def test_memory_grows_with_the_length(name: str) -> None:
    go = Pass(tiny(name).fresh(0, inputs=5), 5)
    for learns in (False, True):
        found = exponent(LONG, [float(go.bytes(n, learns)) for n in LONG])
        assert 0.95 < found < 1.05


@pytest.mark.parametrize("name", ["gpt", "bert", "transformer"])
def test_attention_that_holds_its_weights_grows_with_the_square(name: str) -> None:
    backbone = tiny(name, **({"heads": 2} if name == "transformer" else {}) | {"context": LONG[-1]}).fresh(0, inputs=8)
    sizes = (8, 8) if name == "transformer" else (8,)
    visible, fast = Pass(backbone, *sizes, visible=True).without_contents(), Pass(backbone, *sizes)
    for learns in (False, True):
        assert 1.9 < exponent(LONG, [float(visible.bytes(n, learns)) for n in LONG]) < 2.05
        assert 0.9 < exponent(LONG, [float(fast.bytes(n, learns)) for n in LONG]) < 1.1


# ── the view ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_kind_of_model_has_its_theory() -> None:
    kinds = {"rnn": RECURRENT, "seq2seq": RECURRENT, "bahdanau": LOOKING, "tcn": CONVOLUTION, "mlp": WINDOW,
             "gpt": ATTENTION, "bert": ATTENTION}  # fmt: skip
    for name, kind in kinds.items():
        assert theory(build((name, {}), inputs=6)) is kind


def test_what_is_seen() -> None:
    said: list[str] = []
    seen = Inspector(tiny("rnn"), tiny("gpt")).growth(lengths="8,16,32", notify=said.append)
    assert said[0] == "length 8: rnn, gpt, gpt, visible"
    names = seen.arrays["seconds"].axes[0][1]
    assert list(names) == ["rnn", "gpt", "gpt, visible"]
    assert seen.arrays["seconds"].values.shape == seen.arrays["bytes"].values.shape == (3, 2, 3)
    assert (seen.arrays["seconds"].values > 0).all()
    held = seen.arrays["bytes"].values
    assert (held[2, 1] > held[1, 1]).all()  # weights that are held need their room
    exponents = seen.arrays["exponents"].values
    assert exponents[1, 2, 1] == pytest.approx(exponent([8, 16, 32], held[2, 1]))
    table = seen.views[2]
    assert [row[2] for row in table["rows"]] == ["n·d²", "n²·d", "n²·d"]
    assert [len(row) for row in table["rows"]] == [len(table["columns"])] * 3
    assert "n²·heads" in "\n".join(seen.lines())


def test_a_budget_ends_a_curve_and_says_so() -> None:
    curves = measured([tiny("rnn")], [4, 8, 16], budget=0.0)
    assert [len(curve.seconds) for curve in curves] == [1]
    assert curves[0].why == "rnn is timed up to 4: 8 would take more than its 0 seconds"


def test_memory_ends_a_curve_and_is_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from seriatim.inspect import growth

    monkeypatch.setattr(growth, "MEMORY", 100_000)
    _, visible = measured([tiny("gpt")], [8, 16, 256], budget=60.0)
    assert (len(visible.seconds), len(visible.bytes)) == (2, 3)
    assert "is timed up to 16: at 256 it holds" in visible.why
    _, visible = measured([tiny("gpt")], [256, 512], budget=60.0)
    assert (len(visible.seconds), len(visible.bytes)) == (0, 2)
    assert "is timed at no length: at 256 it holds" in visible.why


@pytest.mark.parametrize("lengths", ["", "64", "a,b", "0,4", [7]])
def test_lengths_must_be_lengths(lengths: str | list[int]) -> None:
    with pytest.raises(SeriatimError, match="lengths"):
        Inspector(tiny("rnn")).growth(lengths=lengths)


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "transformer", "showtell", "showattend"])
def test_pairs_read_a_source_of_its_own_size(name: str) -> None:
    seen = Inspector(tiny(name, **({"heads": 2} if name == "transformer" else {}))).growth(lengths="8,16")
    assert (seen.arrays["seconds"].values > 0).all()


def test_what_counts_has_no_growth() -> None:
    with pytest.raises(SeriatimError, match="ngram counts"):
        Inspector("ngram").growth()
