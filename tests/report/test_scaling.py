"""Power laws of sizes, against scipy; which share of another model's time the best one needs; rankings by bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from seriatim.core.run_folder import RunFolder
from seriatim.report import lessons
from seriatim.report.run_data import read_runs
from seriatim.report.scaling import best_by_size, fit_power_law, scaling_curves, scaling_views
from seriatim.report.verdict import Verdict, reached_share, time_to_match

RunMaker = Callable[..., RunFolder]


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_is_that_of_scipy(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = 10 ** generator.uniform(3, 8, 7)
    y = 9 * x**-0.08 * np.exp(0.05 * generator.normal(size=7))
    expected = stats.linregress(np.log(x), np.log(y))
    law = fit_power_law(x.tolist(), y.tolist())
    assert law is not None
    assert law.exponent == pytest.approx(-expected.slope)
    assert law.error == pytest.approx(expected.stderr)
    assert law.factor == pytest.approx(math.exp(expected.intercept))
    assert law.r2 == pytest.approx(expected.rvalue**2)
    assert law.at(1e5) == pytest.approx(math.exp(expected.intercept + expected.slope * math.log(1e5)))


def test_what_has_no_power_law() -> None:
    assert fit_power_law([1e3, 1e3, 1e3], [1.0, 2.0, 3.0]) is None
    assert fit_power_law([1e3, 1e4], [1.0, -2.0]) is None
    two = fit_power_law([1e3, 1e5], [2.0, 1.0])
    assert two is not None
    assert two.error is None
    assert two.exponent == pytest.approx(math.log10(2) / 2)


@pytest.fixture
def sizes(make_run: RunMaker, tmp_path: Path) -> list[RunFolder]:
    """Two models at three sizes with two seeds each; the GRU is better at first, and the GPT falls faster."""
    runs = []
    for model, losses in (("gru", (2.0, 1.9, 1.8)), ("gpt", (2.2, 1.9, 1.6))):
        for size, loss in zip((10_000, 100_000, 1_000_000), losses, strict=True):
            for seed in (0, 1):
                changes: dict[str, Any] = {"parameters": size, "flops": 6.0 * size * 1e6}
                folder = tmp_path / f"{model}-{size // 1000}k{'-seed1' * seed}"
                settings = {"seed": seed, "params": size}
                runs.append(make_run(folder, model, loss + 0.02 * seed, settings=settings, **changes))
    return runs


def test_a_curve_has_a_point_per_size(sizes: list[RunFolder]) -> None:
    curves = scaling_curves(read_runs(sizes))
    by_axis = {(curve.model, curve.over): curve for curve in curves}
    curve = by_axis["gpt", "parameters"]
    assert curve.x == (1e4, 1e5, 1e6)
    assert curve.y == pytest.approx((2.21, 1.91, 1.61))  # means over the seeds
    assert curve.law is not None
    expected = stats.linregress(np.log(curve.x), np.log(curve.y))
    assert (curve.law.exponent, curve.law.error) == pytest.approx((-expected.slope, expected.stderr))
    assert by_axis["gru", "flops"].law is not None
    assert ("gru", "seconds") not in by_axis  # the time is the same for all
    *charts, table = scaling_views(curves)
    assert [chart.title for chart in charts] == [
        "Validation loss against parameters", "Validation loss against training compute"
    ]  # fmt: skip
    assert table.rows[0][:2] == ("gru", "parameters")


def test_the_best_model_of_each_size(sizes: list[RunFolder], prose: Callable[..., None]) -> None:
    text = best_by_size(read_runs(sizes))
    assert [best in text for best in ("10 k gru (2.010)", "100 k gru (1.910)", "1 M gpt (1.610)")] == [True] * 3
    prose(text)
    assert best_by_size(read_runs(sizes[:2])) == ""


def test_the_best_reaches_others_in_a_share_of_their_time(
    make_run: RunMaker, prose: Callable[..., None], tmp_path: Path
) -> None:
    """By the first evaluation that is as good as the best one of the other."""

    def events(*losses: float) -> list[dict[str, Any]]:
        moments = [{"step": n, "seconds": 10.0 * n, "tokens": n} for n in (1, 2, 3)]
        evaluated = zip(moments, losses, strict=True)
        return [
            {"event": "started", "step": 0, "seconds": 0.0, "parameters": 9, "flops": 6e9, "unit": "tokens"},
            *({"event": "evaluated", **now, "val_loss": loss, "best": True} for now, loss in evaluated),
            {"event": "stopped", **moments[-1], "reason": "minutes", "best_step": 3},
        ]

    curves = {"gpt": (2.0, 1.7, 1.4), "lstm": (2.2, 1.9, 1.7), "rnn": (2.5, 2.4, 2.3)}
    runs = [make_run(tmp_path / name, name, own[-1], events=events(*own)) for name, own in curves.items()]
    best, second, third = read_runs(runs)
    assert reached_share(best, second) == pytest.approx(20 / 30)
    assert reached_share(best, third) == pytest.approx(10 / 30)
    assert reached_share(third, best) is None
    text = time_to_match(Verdict.of([best, second, third]))
    assert [share in text for share in ("0.67", "0.33")] == [True, True]
    assert text in lessons(runs)
    prose(text)


def test_other_tokenizers_are_ranked_by_bits_per_byte(make_run: RunMaker, tmp_path: Path) -> None:
    runs = []
    for name, kind, loss, bits in (("gpt", "bpe", 3.5, 1.6), ("gru", "char", 1.4, 2.0)):
        run = make_run(
            tmp_path / name, name, loss, settings={"task": {"name": "language", "tokenizer": {"kind": kind}}}
        )
        summary = run.summary
        for metrics in summary["metrics"].values():
            metrics["bits_per_byte"] = bits
        run.write_results(run.results.replace(metrics=summary["metrics"]))
        runs.append(RunFolder(run.path))
    read = read_runs(runs)
    assert [run.main for run in read] == ["bits_per_byte"] * 2
    assert [run.label for run in Verdict.of(read).ordered] == ["gpt", "gru"]
    assert [run.main for run in read_runs(runs[:1])] == ["loss"]


def test_the_best_size_of_each_model_is_tested(sizes: list[RunFolder]) -> None:
    """Others are points of a curve: they need no correction, and no place in the sentence."""
    verdict = Verdict.of(read_runs(sizes))
    assert [run.label for run in verdict.rivals] == ["gru-1000k"]
    assert {frozenset(pair) for pair in verdict.differences} == {frozenset(("gpt-1000k", "gru-1000k"))}
    assert "1.610 ± 0.014" in verdict.sentence()
    assert "Holm" not in verdict.tests
    gpt, gru = (next(run for run in verdict.ordered if run.label == label) for label in ("gpt-1000k", "gru-10k"))
    assert verdict.difference(gpt, gru).p is None
    assert verdict.difference(gpt, gru).gap == pytest.approx(0.4)
    one_model = Verdict.of(read_runs(sizes[:6]))
    assert len(one_model.rivals) == 2
