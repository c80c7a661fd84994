"""Findings of a run follow from its numbers, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seriatim.core.findings import Finding
from seriatim.core.run_folder import RunFolder
from seriatim.report import curves, lessons
from seriatim.report.charts import Confusion, views_to_json
from seriatim.report.findings import WARNINGS, chance, describe_findings, format_difference
from seriatim.report.run_data import read_runs

RunMaker = Callable[..., RunFolder]


def evaluated(step: int, loss: float) -> dict[str, Any]:
    return {"event": "evaluated", "step": step, "seconds": step / 10, "val_loss": loss, "best": False, "tokens": step}


def test_one_run_is_described_by_itself(lineage: list[RunFolder]) -> None:
    texts = lessons([lineage[3]])
    norms = [event["grad_norm"] for event in lineage[3].history("stepped")]
    share = 100 * sum(norm > 1 for norm in norms) / len(norms)
    assert texts[0].startswith("The LSTM stopped while still improving: the last evaluation was ")
    assert texts[-1].startswith("Gradients with a norm above 1 were clipped: at ")
    assert texts[-1].endswith(f"({share:.0f} %).")
    (counted,) = lessons([lineage[0]])
    assert counted == "The n-gram was fitted without gradients: 840 ms, one pass over 1 M tokens."


@pytest.mark.parametrize(
    ("losses", "best", "said"),
    [
        ([2.0, 1.8, 1.6], 3, "stopped while still improving: the last evaluation was 0.2 nats better"),
        ([2.0, 1.6, 1.599], 3, "was best at its last evaluation: step 3"),
        ([2.0, 1.599, 1.6], 2, "stopped improving: best at step 2 of 3, and within 0.01 nats of it at the end"),
        ([2.0, 1.6, 1.9], 2, "began to overfit: best at step 2 of 3, 0.3 nats worse at the end"),
    ],
)
def test_how_a_training_ended(losses: list[float], best: int, said: str, make_run: RunMaker, tmp_path: Path) -> None:
    events = [evaluated(step, loss) for step, loss in enumerate(losses, 1)]
    run = make_run(tmp_path, "lstm", min(losses), events=events, best_step=best)
    claims = ("still improving", "last evaluation:", "stopped improving", "overfit")
    texts = [text for text in lessons([run]) if any(claim in text for claim in claims)]
    assert len(texts) == 1
    assert texts[0].startswith(f"The LSTM {said}")


def test_among_equals_the_loss_decides_which_evaluation_was_best(make_classifier: RunMaker, tmp_path: Path) -> None:
    """As `best_step` does: the last one has the accuracy of the best, not its loss."""
    events = [evaluated(step, loss) | {"val_error": 0.2} for step, loss in enumerate([2.0, 1.6, 1.61], 1)]
    texts = lessons([make_classifier(tmp_path, "lstm", 0.8, events=events, step=3, best_step=2)])
    assert not any("last evaluation:" in text for text in texts)
    assert any(text.startswith("The LSTM stopped improving: best at step 2 of 3") for text in texts)


def test_a_class_that_is_never_predicted_is_named(make_classifier: RunMaker, tmp_path: Path) -> None:
    counts = ((90, 10, 0), (20, 30, 0), (3, 4, 0))
    view = Confusion(title="Confusion matrix", labels=("good", "bad", "mixed"), counts=counts)
    views = {"evaluation": {"test": views_to_json([view])}}
    run, other = (
        make_classifier(tmp_path / "a", "lstm", 0.8, **views),
        make_classifier(tmp_path / "b", "gru", 0.84, **views),
    )
    detail = "mixed (7 of 157) on the test split"
    assert any(text.startswith(f"The LSTM never predicted classes that occur: {detail}.") for text in lessons([run]))
    both = f"The LSTM and the GRU never predicted classes that occur: the LSTM: {detail}; the GRU: {detail}."
    assert any(text.startswith(both) for text in lessons([run, other]))
    predicted = Confusion(title="Confusion matrix", labels=("good", "bad"), counts=((9, 1), (2, 3)))
    fine = make_classifier(tmp_path / "c", "lstm", 0.8, evaluation={"test": views_to_json([predicted])})
    assert not any("never predicted" in text for text in lessons([fine]))


def test_what_a_task_found_is_shown(make_run: RunMaker, tmp_path: Path) -> None:
    """First of all warnings, once for all runs of one claim; `part` is what metrics are about."""
    narrow = Finding("gave narrow intervals", "31 of 80 %", "Widen them.")
    unused = Finding("did not help", "3.1 with it, 3.0 without", part="the anchor")
    found = {"gru": [narrow], "lstm": [narrow, unused]}
    baselines = {"test": {"naive": {"loss": 0.0}}}
    runs = []
    for name, findings in found.items():
        runs.append(make_run(tmp_path / name, name, 1.5, baselines=baselines, seconds=20.0))
        runs[-1].write_evaluation({}, findings)
    texts = lessons([runs[1]])
    assert texts[0].startswith("The anchor of the LSTM does not beat the best baseline, naive")
    assert texts[1:3] == [
        "The LSTM gave narrow intervals: 31 of 80 %. Widen them.",
        "The LSTM did not help: 3.1 with it, 3.0 without.",
    ]
    assert "unused" in texts[3]
    both = lessons(runs)
    assert "The GRU and the LSTM gave narrow intervals: the GRU: 31 of 80 %; the LSTM: 31 of 80 %. Widen them." in both
    (runs[1].path / "evaluation.json").write_text('{"findings": [{"claim": 1}]}')
    assert lessons([RunFolder(runs[1].path)])[0].startswith("The LSTM does not beat")


def test_a_note_is_not_read_as_a_finding(make_run: RunMaker, tmp_path: Path) -> None:
    """Runs of earlier versions have a note in place of a finding; it stands below the data."""
    note = "the anchor alone is the forecast: the network does not improve it"
    run = make_run(tmp_path, "gru", 0.1, task="forecast", notes=[note])
    assert not any("anchor" in text for text in lessons([run]))
    assert note in run.notes


def test_a_time_budget_that_was_not_used_is_named(make_run: RunMaker, tmp_path: Path) -> None:
    early = make_run(tmp_path / "early", "gru", seconds=21.0)
    (text,) = (text for text in lessons([early]) if "unused" in text)
    assert text.startswith("The GRU left part of its time unused: 21 s of 30 s (70 %).")
    for changes in ({}, {"reason": "patience", "seconds": 21.0}, {"settings": {"train": {"steps": 9}}, "seconds": 2.0}):
        assert not any("unused" in text for text in lessons([make_run(tmp_path / "fine", "gru", **changes)]))


def test_a_baseline_called_like_a_model_is_marked_and_may_be_equal(make_classifier: RunMaker, tmp_path: Path) -> None:
    values = {"validation": {"mlp": {"accuracy": 0.7}}, "test": {"mlp": {"accuracy": 0.69}}}
    run = make_classifier(tmp_path / "a", "mlp", 0.7, baselines=values)
    assert lessons([run])[0] == (
        "The window MLP equals the best baseline, mlp (baseline), on the test split: accuracy 69.0 %."
    )
    names = {series.name for series in curves([run], metric="accuracy").series}
    assert {"mlp", "mlp (baseline)"} <= names


def test_a_run_is_compared_with_its_baseline(make_classifier: RunMaker, tmp_path: Path) -> None:
    worse = lessons([make_classifier(tmp_path / "a", "mlp", 0.48)])[0]
    assert worse == (
        "The window MLP does not beat the best baseline, most frequent, on the test split: "
        "accuracy 50.0 % against 47.0 %."
    )
    near = lessons([make_classifier(tmp_path / "b", "mlp", 0.52)])[0]
    assert near == (
        "The window MLP is ahead of the best baseline, most frequent, by 1.0 points on the test split "
        "(accuracy 51.0 % against 50.0 %, p = 0.65), which may be chance."
    )
    better = lessons([make_classifier(tmp_path / "c", "mlp", 0.84)])[0]
    assert better.startswith("The window MLP beats the best baseline, most frequent, by 33.0 points on the test split")


def test_a_loss_that_rises_while_the_accuracy_holds_is_overconfidence(
    make_classifier: RunMaker, tmp_path: Path
) -> None:
    runs = [make_classifier(tmp_path / name, name, 0.8, lowest=0.5) for name in ("rnn", "lstm")]
    (text,) = (text for text in lessons(runs) if "overconfident" in text)
    change = "the validation loss rises from 0.400 to 0.650 while the metric holds"
    assert text.startswith(f"The plain RNN and the LSTM became overconfident: the plain RNN: {change}; the LSTM: ")
    assert not any("overconfident" in t for t in lessons([make_classifier(tmp_path / "c", "gru", 0.8)]))


def test_of_several_seeds_most_must_agree(make_run: RunMaker, tmp_path: Path) -> None:
    def seeds(*losses: float) -> list[RunFolder]:
        events = [[evaluated(1, 2.0), evaluated(2, 1.6), evaluated(3, loss)] for loss in losses]
        return [
            make_run(tmp_path / f"{losses}-{n}", "lstm", 1.6, events=own, best_step=2, settings={"seed": n})
            for n, own in enumerate(events)
        ]

    (text,) = (text for text in lessons(seeds(1.9, 1.9, 1.6)) if "overfit" in text)
    assert "0.3 nats worse at the end (2 of 3 seeds)." in text
    assert not any("overfit" in text for text in lessons(seeds(1.9, 1.6, 1.6)))


def test_no_warning_about_a_run_that_gives_no_reason(make_run: RunMaker, tmp_path: Path) -> None:
    events = [evaluated(1, 2.0), evaluated(2, 1.6), evaluated(3, 1.601)]
    runs = read_runs([make_run(tmp_path, "lstm", 1.6, events=events, best_step=2, seconds=30.0)])
    assert describe_findings(runs, WARNINGS) == []


def test_a_share_has_the_noise_of_its_examples(make_classifier: RunMaker, tmp_path: Path) -> None:
    run = read_runs([make_classifier(tmp_path / "a", "lstm", 0.84)])[0]
    assert chance(run, "accuracy") == pytest.approx((2 * 0.84 * 0.16 / 1000) ** 0.5)
    assert chance(run, "loss") == pytest.approx(0.03 * 0.4)
    assert format_difference(0.0312, run, "accuracy") == "3.1 points"
    assert format_difference(0.0031, run, "accuracy") == "0.31 points"
