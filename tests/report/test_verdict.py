"""Lessons of a comparison name a winner only where a test supports it."""

from __future__ import annotations

import json
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
from seriatim.report.run_data import SeededRun, read_runs
from seriatim.report.significance import MCNEMAR, RANDOMIZATION, SHARES, pair_test, two_shares
from seriatim.report.verdict import Verdict
from seriatim.tasks.metrics import mean_scores

RunMaker = Callable[..., RunFolder]
SPREAD = (-0.004, 0.0, 0.004)  # of three seeds around their mean
CLAIMS = ("beats", "does not beat", "Best on the validation split")


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
def pair(seeded: Callable[..., list[RunFolder]]) -> Callable[..., str]:
    """Returns what is said about a model and its predecessor, of three seeds each."""

    def compare(folder: Path, newer: str, older: str, new: float, old: float, **changes: Any) -> str:
        spreads = [(0.0,) if model == "ngram" else changes.get("spread", SPREAD) for model in (older, newer)]
        changes.pop("spread", None)
        runs = [*seeded(folder, older, old, spreads[0]), *seeded(folder, newer, new, spreads[1], **changes)]
        return " ".join(lessons(runs))

    return compare


@pytest.mark.parametrize(
    ("newer", "older", "idea"),
    [
        ("mlp", "ngram", "vectors"),
        ("rnn", "mlp", "sees 16 tokens"),
        ("lstm", "rnn", "gates keep the gradient alive"),
        ("gru", "lstm", "430 against 380"),
        ("tcn", "gru", "61 tokens at once"),
        ("gpt", "lstm", "last 128 tokens"),
    ],
)
def test_lessons_go_with_the_numbers(
    newer: str, older: str, idea: str, pair: Callable[..., str], tmp_path: Path
) -> None:
    won = pair(tmp_path / "won", newer, older, 1.50, 1.62)
    assert f"beats {'the best' if newer in ('tcn', 'gpt') else 'the'}" in won
    assert "by 0.12 nats (1.500 against 1.620, p < 0.001)" in won
    assert idea in won
    lost = pair(tmp_path / "lost", newer, older, 1.62, 1.50)
    assert "does not beat" in lost
    assert "0.12 nats behind (1.620 against 1.500, p < 0.001)" in lost
    assert "Likely: " in lost
    assert idea not in lost
    even = pair(tmp_path / "even", newer, older, 1.500, 1.504)
    assert "cannot be told from" in even
    assert not any(claim in even for claim in CLAIMS)
    assert idea not in even


def test_one_seed_names_no_winner(make_run: RunMaker, tmp_path: Path) -> None:
    """Not even by a difference that is large."""
    runs = [make_run(tmp_path / "a", "rnn", loss=2.5), make_run(tmp_path / "b", "lstm", loss=1.5)]
    texts = lessons(runs)
    assert texts[0] == (
        "The LSTM reached a loss of 1.500, 1 nats ahead of the plain RNN: one seed cannot tell whether that is chance. "
        "With --seeds 3 every model is trained three times."
    )
    assert not any(claim in text for text in texts for claim in CLAIMS)
    (step,) = (text for text in texts if "What was new" in text)
    assert step == (
        "The LSTM and the plain RNN: 1.500 against 2.500. What was new: its gates keep the gradient "
        "alive over many steps."
    )


def test_a_wide_spread_names_no_winner(pair: Callable[..., str], tmp_path: Path) -> None:
    text = pair(tmp_path, "lstm", "rnn", 1.50, 1.62, spread=(-0.3, 0.0, 0.3))
    assert text.startswith(
        "The LSTM reached a loss of 1.500 ± 0.300 over 3 seeds, but cannot be told from the plain RNN (0.12 nats "
        "behind, p = 0.65): the difference may be chance (p ≥ 0.05; Welch's t-test over seeds)."
    )
    assert not any(claim in text for claim in CLAIMS)


def test_the_winner_and_how_sure_that_is(seeded: Callable[..., list[RunFolder]], tmp_path: Path) -> None:
    runs = [run for model, loss in (("rnn", 1.7), ("lstm", 1.6), ("gru", 1.5)) for run in seeded(tmp_path, model, loss)]
    assert lessons(runs)[0] == (
        "Best on the validation split: the GRU with a loss of 1.500 ± 0.004 over 3 seeds, 0.1 nats ahead of the LSTM "
        "(p < 0.001; Welch's t-test over seeds, corrected by Holm's method for 3 pairs)."
    )
    assert report.comparison_verdict(runs) == lessons(runs)[0]
    rows = report.comparison_rows(runs)
    assert [(row["model"], row["seeds"]) for row in rows] == [(name, [0, 1, 2]) for name in ("rnn", "lstm", "gru")]
    assert [row["val_loss"] for row in rows] == pytest.approx([1.7, 1.6, 1.5])
    assert [row["val_loss_std"] for row in rows] == pytest.approx([0.004] * 3)
    assert rows[2]["p"] is None
    assert rows[1]["p"] == pytest.approx(Verdict.of(read_runs(runs)).differences["gru", "lstm"].p)


def test_a_partial_tie_is_one(seeded: Callable[..., list[RunFolder]], tmp_path: Path) -> None:
    models = (("rnn", 1.9), ("lstm", 1.501), ("gru", 1.5))
    runs = [run for model, loss in models for run in seeded(tmp_path, model, loss)]
    verdict = Verdict.of(read_runs(runs))
    assert [run.model for run in verdict.tied] == ["lstm"]
    assert "cannot be told from the LSTM (0.001 nats behind, p = 0.77)" in verdict.sentence()
    report.write_comparison_report(tmp_path, runs)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'class="badge"' not in page
    assert page.count('<td class="top">') == 2
    assert "GRU or LSTM" in page


def test_a_model_without_a_seed_is_a_constant(pair: Callable[..., str], tmp_path: Path) -> None:
    text = pair(tmp_path, "mlp", "ngram", 1.50, 1.62)
    assert "Best on the validation split: the window MLP" in text
    runs = read_runs([RunFolder(path) for path in sorted(tmp_path.iterdir())])
    assert [(run.model, run.spread("validation", "loss") is None) for run in runs] == [("mlp", False), ("ngram", True)]


def test_seeds_that_did_not_finish_are_named(seeded: Callable[..., list[RunFolder]], tmp_path: Path) -> None:
    runs = [*seeded(tmp_path, "rnn", 1.7), *seeded(tmp_path, "gru", 1.5)]
    runs[-1].write_results(runs[-1].results.replace(reason="SIGINT", metrics={}))
    texts = lessons(runs)
    assert "a loss of 1.498 ± 0.003 over 2 seeds" in texts[0]
    assert any(text.startswith("The GRU with seed 2 was stopped by SIGINT after 241 steps") for text in texts)
    runs[-2].write_results(runs[-2].results.replace(reason="SIGINT", metrics={}))
    assert "too few seeds finished to tell" in lessons(runs)[0]


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


def test_a_loss_is_explained_by_what_was_measured(pair: Callable[..., str], tmp_path: Path) -> None:
    slow = pair(tmp_path, "rnn", "mlp", 1.9, 1.7)
    assert "still improving when it stopped after 278 steps" in slow
    assert "it read 1.14 M tokens, the window MLP 6.3 M, at 38 k against 210 k per second" in slow


def test_overfitting_is_reported(pair: Callable[..., str], tmp_path: Path) -> None:
    worse = {"event": "evaluated", "step": 300, "seconds": 31.0, "val_loss": 1.9, "best": False, "tokens": 9}
    text = pair(tmp_path, "lstm", "rnn", 1.62, 1.5, tail=[worse], best_step=227)
    assert "began to overfit: best at step 227 of 300, 0.28 nats worse at the end (3 of 3 seeds)" in text
    assert "it was best at step 227 and then overfitted" in text
    assert "The LSTM stopped while still improving" not in text


def test_counting_is_compared_with_training(lineage: list[RunFolder], pair: Callable[..., str], tmp_path: Path) -> None:
    text = " ".join(lessons(lineage))
    assert "counted in 840 ms, without gradients; the first network below its 1.920 was the GPT" in text
    assert "6.8 times as many as the LSTM (31 k): a recurrent network goes from token to token" in text
    assert "no network got below its 1.900" in pair(tmp_path / "y", "mlp", "ngram", 2.5, 1.9)


def test_storage_is_that_on_disk(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("ngram", "gpt")]
    for run, size in zip(runs, (8_200_000, 4_010_000), strict=True):
        (run.path / "model.safetensors").write_bytes(bytes(size))
    text = " ".join(lessons(runs))
    assert "1 M entries, 8.2 MB on disk," in text
    assert "996 k parameters, 4.01 MB on disk," in text


def test_what_cannot_be_compared_is_left_out(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("rnn", "gru")]
    runs.append(make_run(tmp_path / "lstm", "lstm", loss=0.5, reason="SIGINT", metrics={}))
    texts = lessons(runs)
    assert any("The LSTM was stopped by SIGINT" in text for text in texts)
    assert not any("LSTM beats" in text for text in texts)
    other = make_run(tmp_path / "gpt", "gpt", data={"source": "other.txt", "fingerprint": "other"})
    assert lessons([runs[0], other]) == ["These runs saw different data: their metrics cannot be compared."]


def test_classifiers_are_tested_over_examples(make_classifier: RunMaker, tmp_path: Path) -> None:
    accuracies = {"mlp": 0.48, "rnn": 0.80, "lstm": 0.84}
    runs = [make_classifier(tmp_path / name, name, value, lowest=0.5) for name, value in accuracies.items()]
    texts = lessons(runs)
    assert texts[0] == (
        "Best on the validation split: the LSTM with an accuracy of 84.0 %, 4.0 points ahead of the plain RNN "
        "(p = 0.020; two-proportion z-test over the examples, corrected by Holm's method for 2 pairs). The test is "
        "about other examples, not about other seeds. With --seeds 3 every model is trained three times."
    )
    assert texts[1] == (
        "The LSTM beats the best baseline, most frequent, by 33.0 points on the test split "
        "(accuracy 83.0 % against 50.0 %, p < 0.001); not clearly better than it: the window MLP (47.0 %)."
    )
    assert not any("gates" in text or "nats" in text for text in texts)
    near = make_classifier(tmp_path / "near", "gru", 0.8415, lowest=0.5)
    text = lessons([runs[2], near])[0]
    assert "cannot be told from the LSTM (0.15 points behind, p = 0.93)" in text
    assert not any(claim in text for claim in CLAIMS)


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
    assert "(p = 0.002; McNemar's exact test over the examples)" in lessons(runs)[0]
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
    assert not any("reaches the best" in text for text in lessons(runs))
    better = make_classifier(tmp_path / "gru", "gru", 0.9)
    verdict = Verdict.of(read_runs([runs[0], better]))
    assert verdict.reached_share(verdict.ordered[1]) is not None


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


def test_translators_are_ranked_by_bleu_and_compared_by_length(make_run: RunMaker, tmp_path: Path) -> None:
    plain = translator(make_run, tmp_path / "a", "seq2seq", 21.0, (30.0, 25.0, 9.0))
    attending = translator(make_run, tmp_path / "b", "bahdanau", 33.0, (35.0, 36.0, 30.0))
    texts = lessons([plain, attending])
    assert texts[0].startswith(
        "The Bahdanau model reached a BLEU of 33.0, 12.0 BLEU ahead of the seq2seq model: one seed"
    )
    step = "The Bahdanau model and the seq2seq model: 33.0 against 21.0. What was new: it attends"
    assert any(text.startswith(step) for text in texts)
    (length,) = (text for text in texts if "longest sources" in text)
    where = "(10–31 words of the source) the seq2seq model keeps 30 % of its best BLEU, the Bahdanau model 83 %"
    assert where in length
    assert "one state" in length


def test_translators_that_lose_to_a_simple_method_teach_nothing(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [
        translator(make_run, tmp_path / "a", "seq2seq", 1.0, (1.0, 1.0, 1.0)),
        translator(make_run, tmp_path / "b", "transformer", 2.5, (3.0, 3.0, 3.0)),
    ]
    assert any("What was new" in text for text in lessons(runs))
    for run in runs:
        run.write_results(run.results.replace(baselines={"test": {"most similar source": {"bleu": 4.0}}}))
    texts = lessons(runs)
    assert any(text.startswith("No model beats the best baseline, most similar source") for text in texts)
    assert not any("What was new" in text or "longest sources" in text for text in texts)


def test_equal_translators_are_equal(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [
        translator(make_run, tmp_path / "a", "seq2seq", 30.0, (30.0, 31.0, 29.0)),
        translator(make_run, tmp_path / "b", "transformer", 30.5, (31.0, 30.0, 30.0)),
    ]
    texts = lessons(runs)
    assert not any(claim in text for text in texts for claim in CLAIMS)
    assert any(text.startswith("Length makes little difference") for text in texts)
    json.dumps(texts)
