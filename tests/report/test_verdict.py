"""Lessons of a comparison name a winner only where a test supports it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from seriatim import report
from seriatim.core.run_folder import RunFolder
from seriatim.report import lessons
from seriatim.report.charts import BinnedMetric, views_to_json
from seriatim.report.findings import final_rise, last_improvement
from seriatim.report.run_data import SeededRun, read_runs
from seriatim.report.significance import MCNEMAR, RANDOMIZATION, SHARES, Difference, pair_test, two_shares
from seriatim.report.verdict import (
    Verdict,
    architecture_lessons,
    best_of_each,
    compare_step,
    counting_lesson,
    explain,
    length_lesson,
    step_words,
    storage_lesson,
    throughput,
    time_to_match,
)
from seriatim.report.verdict import (
    lineage as declared_steps,
)
from seriatim.tasks.metrics import mean_scores

RunMaker = Callable[..., RunFolder]
SPREAD = (-0.004, 0.0, 0.004)  # of three seeds around their mean
Prose = Callable[..., None]


@pytest.fixture
def seeded(make_run: RunMaker) -> Callable[..., list[RunFolder]]:
    """Makes the runs of a model with several seeds, which differ from the mean loss by the spread."""

    def make(
        folder: Path, model: str, loss: float, spread: tuple[float, ...] = SPREAD, **changes: Any
    ) -> list[RunFolder]:
        return [
            make_run(folder / f"{model}-{seed}", model, loss + more, settings={"seed": seed}, **changes)
            for seed, more in enumerate(spread)
        ]

    return make


@pytest.fixture
def pair(seeded: Callable[..., list[RunFolder]]) -> Callable[..., list[RunFolder]]:
    """Makes the runs of a model and its predecessor, of three seeds each."""

    def make(folder: Path, newer: str, older: str, new: float, old: float, **changes: Any) -> list[RunFolder]:
        spreads = [(0.0,) if model == "ngram" else changes.get("spread", SPREAD) for model in (older, newer)]
        changes.pop("spread", None)
        return [*seeded(folder, older, old, spreads[0]), *seeded(folder, newer, new, spreads[1], **changes)]

    return make


def difference(runs: list[RunFolder]) -> Difference:
    """Returns the only difference that a comparison of two models tests: of the best and the other."""
    verdict = Verdict.of(read_runs(runs))
    first, second = verdict.ordered
    return verdict.difference(first, second)


PAIRS = [("mlp", "ngram"), ("rnn", "mlp"), ("lstm", "rnn"), ("gru", "lstm"), ("tcn", "gru"), ("gpt", "lstm")]


@pytest.mark.parametrize(("newer", "older"), PAIRS)
def test_lessons_go_with_the_numbers(
    newer: str, older: str, pair: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path
) -> None:
    outcomes = {"won": (1.50, 1.62, True), "lost": (1.62, 1.50, True), "even": (1.500, 1.504, False)}
    for name, (new, old, supported) in outcomes.items():
        runs = pair(tmp_path / name, newer, older, new, old)
        tested = difference(runs)
        assert (tested.supported, tested.gap) == (supported, pytest.approx(abs(new - old)))
        best = best_of_each(read_runs(runs))
        (step,) = (step for step in declared_steps(best) if step.newer == newer)
        text = compare_step(step, best, Verdict.of(read_runs(runs)))
        assert text in lessons(runs)
        words = step_words(best[newer], best[older])
        assert (step.novelty.format_map(words) in text) == (name == "won")  # the idea explains a success only
        assert f"({new:.3f} against {old:.3f}, p" in text
        prose(text, name)


def test_one_seed_names_no_winner(make_run: RunMaker, prose: Prose, tmp_path: Path) -> None:
    """Not even by a difference that is large."""
    runs = [make_run(tmp_path / "a", "rnn", loss=2.5), make_run(tmp_path / "b", "lstm", loss=1.5)]
    assert difference(runs).p is None
    prose(lessons(runs))


def test_a_wide_spread_names_no_winner(pair: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path) -> None:
    runs = pair(tmp_path, "lstm", "rnn", 1.50, 1.62, spread=(-0.3, 0.0, 0.3))
    assert not difference(runs).supported
    assert difference(runs).p == pytest.approx(0.65, abs=0.005)
    prose(report.comparison_verdict(runs))


def test_the_winner_and_how_sure_that_is(seeded: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path) -> None:
    runs = [run for model, loss in (("rnn", 1.7), ("lstm", 1.6), ("gru", 1.5)) for run in seeded(tmp_path, model, loss)]
    prose(lessons(runs)[0])
    assert report.comparison_verdict(runs) == lessons(runs)[0]
    rows = report.comparison_rows(runs)
    assert [(row["model"], row["seeds"]) for row in rows] == [(name, [0, 1, 2]) for name in ("rnn", "lstm", "gru")]
    assert [row["val_loss"] for row in rows] == pytest.approx([1.7, 1.6, 1.5])
    assert [row["val_loss_std"] for row in rows] == pytest.approx([0.004] * 3)
    assert rows[2]["p"] is None
    assert rows[1]["p"] == pytest.approx(Verdict.of(read_runs(runs)).differences["gru", "lstm"].p)


def test_a_partial_tie_is_one(seeded: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path) -> None:
    models = (("rnn", 1.9), ("lstm", 1.501), ("gru", 1.5))
    runs = [run for model, loss in models for run in seeded(tmp_path, model, loss)]
    verdict = Verdict.of(read_runs(runs))
    assert [run.model for run in verdict.tied] == ["lstm"]
    assert verdict.difference(verdict.ordered[0], verdict.tied[0]).p == pytest.approx(0.77, abs=0.005)
    prose(verdict.sentence())
    report.write_comparison_report(tmp_path, runs)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'class="badge"' not in page
    assert page.count('<td class="top">') == 2
    assert "GRU or LSTM" in page


def test_a_model_without_a_seed_is_a_constant(pair: Callable[..., list[RunFolder]], tmp_path: Path) -> None:
    assert difference(pair(tmp_path, "mlp", "ngram", 1.50, 1.62)).supported
    runs = read_runs([RunFolder(path) for path in sorted(tmp_path.iterdir())])
    assert [(run.model, run.spread("validation", "loss") is None) for run in runs] == [("mlp", False), ("ngram", True)]


def test_seeds_that_did_not_finish_are_named(
    seeded: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path
) -> None:
    runs = [*seeded(tmp_path, "rnn", 1.7), *seeded(tmp_path, "gru", 1.5)]
    runs[-1].write_results(runs[-1].results.replace(reason="SIGINT", metrics={}))
    assert "1.498 ± 0.003 over 2 seeds" in lessons(runs)[0]
    assert "seed 2 was stopped by SIGINT after 241 steps" in lessons(runs)[-1]
    prose([lessons(runs)[0], lessons(runs)[-1]])
    runs[-2].write_results(runs[-2].results.replace(reason="SIGINT", metrics={}))
    assert difference(runs).p is None
    prose(lessons(runs)[0], "too few")


def test_seeds_are_grouped_by_their_settings(
    seeded: Callable[..., list[RunFolder]], make_run: RunMaker, tmp_path: Path
) -> None:
    runs = [
        *seeded(tmp_path, "gru", 1.5),
        make_run(tmp_path / "wide", "gru", settings={"seed": 1, "params": 2_000_000}),
    ]
    first, second = read_runs(runs)
    assert isinstance(first, SeededRun)
    assert (first.label, second.label) == ("gru-0", "gru (wide)")
    assert first.reached() == pytest.approx(1.5)
    assert first.results.step == runs[0].results.step
    curves = [run.evaluations("loss") for run in first.runs]
    means = [sum(point.value for point in points) / 3 for points in zip(*curves, strict=True)]
    assert [point.value for point in first.evaluations("loss")] == pytest.approx(means)
    assert len(read_runs([runs[0], runs[0]])) == 2  # the same seed twice is no second seed


def test_curves_of_seeds_are_thin_and_their_mean_thick(seeded: Callable[..., list[RunFolder]], tmp_path: Path) -> None:
    chart = report.curves([*seeded(tmp_path, "gru", 1.5), *seeded(tmp_path, "lstm", 1.6)])
    assert [series.name for series in chart.series if not series.thin] == ["gru", "lstm"]
    thin = [series.name for series in chart.series if series.thin]
    assert thin == [f"{model} seed {seed}" for model in ("gru", "lstm") for seed in range(3)]
    assert "thick: mean of the seeds, thin: each seed" in chart.note


def test_curves_end_where_the_longest_network_ends(
    seeded: Callable[..., list[RunFolder]], make_run: RunMaker, tmp_path: Path
) -> None:
    runs = [make_run(tmp_path / "ngram", "ngram"), *seeded(tmp_path, "rnn", 1.5), *seeded(tmp_path, "lstm", 1.6)]
    longest = max(run.summary["tokens"] for run in runs)
    (counted,) = (series for series in report.curves(runs, "tokens").series if series.name == "ngram")
    assert counted.x[-1] == longest > runs[0].summary["tokens"]
    (slow,) = (series for series in report.curves([runs[0], *runs[4:]], "tokens").series if series.name == "ngram")
    assert slow.x[-1] == runs[-1].summary["tokens"] < runs[0].summary["tokens"]


def test_a_loss_is_explained_by_what_was_measured(
    pair: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path
) -> None:
    best = best_of_each(read_runs(pair(tmp_path, "rnn", "mlp", 1.9, 1.7)))
    reasons = explain(best["rnn"], best["mlp"])
    assert [re.findall(r"\d[\d.,]*", reason) for reason in reasons] == [["278"], ["1.14", "6.3", "38", "210"]]
    prose(reasons)


def test_overfitting_is_reported(pair: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path) -> None:
    worse = {"event": "evaluated", "step": 300, "seconds": 31.0, "val_loss": 1.9, "best": False, "tokens": 9}
    runs = pair(tmp_path, "lstm", "rnn", 1.62, 1.5, tail=[worse], best_step=227)
    best = best_of_each(read_runs(runs))
    assert final_rise(best["lstm"].runs[0]) == pytest.approx(0.284, abs=1e-3)
    assert last_improvement(best["lstm"]) == 0
    (text,) = (text for text in lessons(runs) if "(3 of 3 seeds)" in text and "227" in text)
    prose([text, *explain(best["lstm"], best["rnn"])])


def test_counting_is_compared_with_training(
    lineage: list[RunFolder], pair: Callable[..., list[RunFolder]], prose: Prose, tmp_path: Path
) -> None:
    best = best_of_each(read_runs(lineage))
    texts = [counting_lesson(best), throughput(list(best.values()))]
    assert all(text in lessons(lineage) for text in texts)
    assert [re.findall(r"\d[\d.]*(?: [km]s?)?", text) for text in texts] == [
        ["840 ms", "1.920", "17.9"],
        ["210 k", "6.8", "31 k"],
    ]
    prose(texts)
    prose(counting_lesson(best_of_each(read_runs(pair(tmp_path / "y", "mlp", "ngram", 2.5, 1.9)))), "never passed")


def test_storage_is_that_on_disk(make_run: RunMaker, prose: Prose, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("ngram", "gpt")]
    for run, size in zip(runs, (8_200_000, 4_010_000), strict=True):
        (run.path / "model.safetensors").write_bytes(bytes(size))
    text = storage_lesson(best_of_each(read_runs(runs)))
    assert text in lessons(runs)
    assert [size in text for size in ("1 M", "8.2 MB", "996 k", "4.01 MB")] == [True] * 4
    prose(text)


def test_what_cannot_be_compared_is_left_out(make_run: RunMaker, prose: Prose, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("rnn", "gru")]
    runs.append(make_run(tmp_path / "lstm", "lstm", loss=0.5, reason="SIGINT", metrics={}))
    assert [run.model for run in Verdict.of(read_runs(runs)).ordered] == ["gru", "rnn"]
    assert "SIGINT" in lessons(runs)[-1]
    prose(lessons(runs)[-1])
    other = make_run(tmp_path / "gpt", "gpt", data={"source": "other.txt", "fingerprint": "other"})
    assert Verdict.of(read_runs([runs[0], other])).ordered == ()
    prose(lessons([runs[0], other]), "other data")


def test_classifiers_are_tested_over_examples(make_classifier: RunMaker, prose: Prose, tmp_path: Path) -> None:
    accuracies = {"mlp": 0.48, "rnn": 0.80, "lstm": 0.84}
    runs = [make_classifier(tmp_path / name, name, value, lowest=0.5) for name, value in accuracies.items()]
    verdict = Verdict.of(read_runs(runs))
    assert [run.model for run in verdict.ordered] == ["lstm", "rnn", "mlp"]
    assert verdict.difference(*verdict.ordered[:2]).p == pytest.approx(0.020, abs=5e-4)
    assert verdict.tied == []
    assert declared_steps(best_of_each(read_runs(runs))) == []  # the history is one of language models
    prose(lessons(runs)[:2])
    near = make_classifier(tmp_path / "near", "gru", 0.8415, lowest=0.5)
    assert not difference([runs[2], near]).supported
    prose(lessons([runs[2], near])[0], "near")


def test_models_are_tested_on_the_same_examples(make_classifier: RunMaker, tmp_path: Path) -> None:
    """Thirty that only one has right, ten that only the other has: McNemar tells them apart, shares do not."""
    runs = [make_classifier(tmp_path / name, name, value) for name, value in (("rnn", 0.80), ("lstm", 0.82))]
    wrong = np.zeros((2, 1000))
    wrong[0, :200], wrong[1, :170], wrong[1, 200:210] = 1, 1, 1
    for run, row in zip(runs, wrong, strict=True):
        run.write_examples({"accuracy": mean_scores(1 - row)})
    a, b = read_runs(runs)
    assert pair_test(a, b) == (pytest.approx(binomtest(10, 40).pvalue), MCNEMAR)
    assert two_shares(0.80, 0.82, 1000) > 0.2
    assert f"(p = 0.002; {MCNEMAR})" in lessons(runs)[0]
    runs[0].write_examples({"accuracy": mean_scores(wrong[0, :999])})  # others: not the same examples
    assert pair_test(*read_runs(runs))[1] == SHARES
    (runs[0].path / "examples.json").write_text('{"accuracy": {"kind": "mean", "width": 7, "values": "AAAA"}}')
    assert pair_test(*read_runs(runs))[1] == SHARES
    runs[0].write_examples({"accuracy": mean_scores(wrong[0] + 0.5)})
    assert pair_test(*read_runs(runs))[1] == RANDOMIZATION
    runs[0].write_examples({"accuracy": mean_scores(wrong[0] * np.nan)})
    assert pair_test(*read_runs(runs)) == (None, "")


def test_a_model_that_is_not_behind_is_not_reached(make_classifier: RunMaker, tmp_path: Path) -> None:
    """Of equal models the one with the lower loss is first; that it was as good earlier says nothing."""
    runs = [make_classifier(tmp_path / name, name, 0.8) for name in ("rnn", "lstm")]
    summary = runs[1].summary
    summary["metrics"]["validation"]["loss"] = 0.3
    runs[1].write_results(runs[1].results.replace(metrics=summary["metrics"]))
    verdict = Verdict.of(read_runs(runs))
    assert [run.label for run in verdict.ordered] == ["lstm", "rnn"]
    assert verdict.reached_share(verdict.ordered[1]) is None
    assert time_to_match(verdict) == ""
    better = make_classifier(tmp_path / "gru", "gru", 0.9)
    verdict = Verdict.of(read_runs([runs[0], better]))
    assert verdict.reached_share(verdict.ordered[1]) is not None
    assert time_to_match(verdict) in lessons([runs[0], better])


def test_models_without_a_seed_are_tested_over_examples(make_classifier: RunMaker, tmp_path: Path) -> None:
    values = (("bayes", 0.84), ("trees", 0.70), ("rules", 0.70))
    runs = [make_classifier(tmp_path / name, name, share, gradient_free=True) for name, share in values]
    a, b, c = read_runs(runs)
    count = float(a.metrics("validation")["examples"])
    assert pair_test(a, b) == (two_shares(0.84, 0.70, count), SHARES)
    assert pair_test(b, c) == (1.0, SHARES)


def translator(make_run: RunMaker, folder: Path, model: str, bleu: float, values: tuple[float, ...]) -> RunFolder:
    metrics = {"bleu": bleu, "chrf": bleu + 15, "loss": 2.0, "perplexity": 7.4, "sentences": 2000.0}
    both = dict.fromkeys(("validation", "test"), metrics)
    view = BinnedMetric(
        title="BLEU by length of the source", metric="bleu", x="words of the source", unit="sentences",
        bins=("1–4", "5–9", "10–31"), counts=(700, 900, 400), series={"": values}, join="bleu by length",
    )  # fmt: skip
    return make_run(folder, model, 2.0, task="translate", monitor="loss", metrics=both,
                    evaluation={"test": views_to_json([view])})  # fmt: skip


def test_translators_are_ranked_by_bleu_and_compared_by_length(
    make_run: RunMaker, prose: Prose, tmp_path: Path
) -> None:
    plain = translator(make_run, tmp_path / "a", "seq2seq", 21.0, (30.0, 25.0, 9.0))
    attending = translator(make_run, tmp_path / "b", "bahdanau", 33.0, (35.0, 36.0, 30.0))
    runs = [plain, attending]
    assert [run.main for run in Verdict.of(read_runs(runs)).ordered] == ["bleu", "bleu"]
    length = length_lesson(best_of_each(read_runs(runs)))
    assert length in lessons(runs)
    assert [share in length for share in ("30 %", "83 %")] == [True, True]
    prose(lessons(runs))


def test_translators_that_lose_to_a_simple_method_teach_nothing(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [
        translator(make_run, tmp_path / "a", "seq2seq", 1.0, (1.0, 1.0, 1.0)),
        translator(make_run, tmp_path / "b", "transformer", 2.5, (3.0, 3.0, 3.0)),
    ]
    read = read_runs(runs)
    taught = [text for text in architecture_lessons(best_of_each(read), Verdict.of(read)) if text]
    assert taught
    assert {*taught} <= {*lessons(runs)}
    for run in runs:
        run.write_results(run.results.replace(baselines={"test": {"most similar source": {"bleu": 4.0}}}))
    texts = lessons(runs)
    assert "most similar source" in texts[1]
    assert not {*taught} & {*texts}


def test_equal_translators_are_equal(make_run: RunMaker, prose: Prose, tmp_path: Path) -> None:
    runs = [
        translator(make_run, tmp_path / "a", "seq2seq", 30.0, (30.0, 31.0, 29.0)),
        translator(make_run, tmp_path / "b", "transformer", 30.5, (31.0, 30.0, 30.0)),
    ]
    assert difference(runs).p is None
    prose(length_lesson(best_of_each(read_runs(runs))))
    json.dumps(lessons(runs))
