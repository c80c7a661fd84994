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
from seriatim.report.findings import (
    OF_ONE_RUN,
    WARNINGS,
    Facts,
    baseline_standing,
    best_is_last,
    chance,
    describe_findings,
    final_rise,
    format_difference,
    last_improvement,
    metrics_owner,
)
from seriatim.report.run_data import read_runs

RunMaker = Callable[..., RunFolder]
Prose = Callable[..., None]


def evaluated(step: int, loss: float) -> dict[str, Any]:
    return {"event": "evaluated", "step": step, "seconds": step / 10, "val_loss": loss, "best": False, "tokens": step}


def facts(folder: RunFolder) -> Facts:
    return Facts(read_runs([folder])[0])


def found(folder: RunFolder) -> list[str]:
    """Returns the claims that hold for a run by the rules for any task."""
    own = facts(folder)
    return [finding.claim for rule in (*WARNINGS, *OF_ONE_RUN) for finding in rule.apply(own)]


def test_one_run_is_described_by_itself(lineage: list[RunFolder], prose: Prose) -> None:
    texts = lessons([lineage[3]])
    norms = [event["grad_norm"] for event in lineage[3].history("stepped")]
    share = 100 * sum(norm > 1 for norm in norms) / len(norms)
    assert texts[-1].endswith(f"({share:.0f} %).")
    assert [len(found(run)) for run in (lineage[3], lineage[0])] == [1, 1]
    prose(texts)
    prose(lessons([lineage[0]]), "counted")


@pytest.mark.parametrize(
    ("losses", "best"), [([2.0, 1.8, 1.6], 3), ([2.0, 1.6, 1.599], 3), ([2.0, 1.599, 1.6], 2), ([2.0, 1.6, 1.9], 2)]
)
def test_how_a_training_ended(losses: list[float], best: int, make_run: RunMaker, prose: Prose, tmp_path: Path) -> None:
    """It still improved, may have improved, stopped improving, or overfitted: one of these, and one only."""
    events = [evaluated(step, loss) for step, loss in enumerate(losses, 1)]
    run = make_run(tmp_path, "lstm", min(losses), events=events, best_step=best, seconds=30.0)
    data = read_runs([run])[0]
    better, worse = losses[-2] - losses[-1], losses[-1] - min(losses)
    assert last_improvement(data) == pytest.approx(better if better > 0.01 else 0)
    assert final_rise(data) == pytest.approx(worse if worse > 0.01 else 0)
    assert Facts(data).overfitted == (worse > 0.01)
    assert len(found(run)) == 1
    prose(lessons([run]))


def test_among_equals_the_loss_decides_which_evaluation_was_best(make_classifier: RunMaker, tmp_path: Path) -> None:
    """As `best_step` does: the last one has the accuracy of the best, not its loss."""
    events = [evaluated(step, loss) | {"val_error": 0.2} for step, loss in enumerate([2.0, 1.6, 1.61], 1)]
    run = make_classifier(tmp_path, "lstm", 0.8, events=events, step=3, best_step=2)
    assert not best_is_last(read_runs([run])[0])
    assert any("step 2 of 3" in text for text in lessons([run]))


def test_a_class_that_is_never_predicted_is_named(make_classifier: RunMaker, prose: Prose, tmp_path: Path) -> None:
    counts = ((90, 10, 0), (20, 30, 0), (3, 4, 0))
    view = Confusion(title="Confusion matrix", labels=("good", "bad", "mixed"), counts=counts)
    views = {"evaluation": {"test": views_to_json([view])}}
    run, other = (
        make_classifier(tmp_path / "a", "lstm", 0.8, **views),
        make_classifier(tmp_path / "b", "gru", 0.84, **views),
    )
    assert facts(run).unpredicted == "mixed (7 of 157) on the test split"
    (text,) = (text for text in lessons([run, other]) if "mixed" in text)
    prose([text, *(text for text in lessons([run]) if "mixed" in text)])
    predicted = Confusion(title="Confusion matrix", labels=("good", "bad"), counts=((9, 1), (2, 3)))
    fine = make_classifier(tmp_path / "c", "lstm", 0.8, evaluation={"test": views_to_json([predicted])})
    assert facts(fine).unpredicted == ""


def test_what_a_task_found_is_shown(make_run: RunMaker, prose: Prose, tmp_path: Path) -> None:
    """First of all warnings, once for all runs of one claim; `part` is what metrics are about."""
    narrow = Finding("gave narrow intervals", "31 of 80 %", "Widen them.")
    unused = Finding("did not help", "3.1 with it, 3.0 without", part="the anchor")
    found = {"gru": [narrow], "lstm": [narrow, unused]}
    baselines = {"test": {"naive": {"loss": 0.0}}}
    runs = []
    for name, findings in found.items():
        runs.append(make_run(tmp_path / name, name, 1.5, baselines=baselines, seconds=20.0))
        runs[-1].write_evaluation({}, findings)
    assert [finding.claim for finding in read_runs(runs)[1].findings] == [narrow.claim, unused.claim]
    alone, both = lessons([runs[1]]), lessons(runs)
    assert [any("31 of 80 %" in text for text in texts) for texts in (alone[1:2], both[2:3])] == [True, True]
    prose(alone)
    prose(both, "both")
    (runs[1].path / "evaluation.json").write_text('{"findings": [{"claim": 1}]}')
    assert metrics_owner(read_runs([RunFolder(runs[1].path)])[0]) == "The LSTM"


def test_a_note_is_not_read_as_a_finding(make_run: RunMaker, tmp_path: Path) -> None:
    """Runs of earlier versions have a note in place of a finding; it stands below the data."""
    note = "the anchor alone is the forecast: the network does not improve it"
    run = make_run(tmp_path, "gru", 0.1, task="forecast", notes=[note])
    assert not any("anchor" in text for text in lessons([run]))
    assert note in run.notes


def test_a_time_budget_that_was_not_used_is_named(make_run: RunMaker, prose: Prose, tmp_path: Path) -> None:
    early = make_run(tmp_path / "early", "gru", seconds=21.0)
    assert facts(early).ended_early
    prose([text for text in lessons([early]) if "21 s of 30 s (70 %)" in text])
    for changes in ({}, {"reason": "patience", "seconds": 21.0}, {"settings": {"train": {"steps": 9}}, "seconds": 2.0}):
        assert not facts(make_run(tmp_path / "fine", "gru", **changes)).ended_early


def test_a_baseline_called_like_a_model_is_marked_and_may_be_equal(
    make_classifier: RunMaker, prose: Prose, tmp_path: Path
) -> None:
    values = {"validation": {"mlp": {"accuracy": 0.7}}, "test": {"mlp": {"accuracy": 0.69}}}
    run = make_classifier(tmp_path / "a", "mlp", 0.7, baselines=values)
    prose(lessons([run])[0])
    names = {series.name for series in curves([run], metric="accuracy").series}
    assert {"mlp", "mlp (baseline)"} <= names


@pytest.mark.parametrize("accuracy", [0.48, 0.52, 0.84])
def test_a_run_is_compared_with_its_baseline(
    accuracy: float, make_classifier: RunMaker, prose: Prose, tmp_path: Path
) -> None:
    standing = baseline_standing(read_runs([make_classifier(tmp_path, "mlp", accuracy)]))
    assert standing is not None
    assert (standing.split, standing.metric, standing.baseline, standing.bar) == (
        "test", "accuracy", "most frequent", 0.5,
    )  # fmt: skip
    assert standing.reached == {"mlp": pytest.approx(accuracy - 0.01)}
    assert bool(standing.ahead) == (accuracy > 0.5)
    prose(lessons([RunFolder(tmp_path)])[0])


def test_a_loss_that_rises_while_the_accuracy_holds_is_overconfidence(
    make_classifier: RunMaker, prose: Prose, tmp_path: Path
) -> None:
    runs = [make_classifier(tmp_path / name, name, 0.8, lowest=0.5) for name in ("rnn", "lstm")]
    assert [facts(run).overconfident for run in runs] == [True, True]
    assert facts(runs[0]).loss_change == "from 0.400 to 0.650"
    prose([text for text in lessons(runs) if "0.650" in text])
    assert not facts(make_classifier(tmp_path / "c", "gru", 0.8)).overconfident


def test_of_several_seeds_most_must_agree(make_run: RunMaker, tmp_path: Path) -> None:
    def seeds(*losses: float) -> list[RunFolder]:
        events = [[evaluated(1, 2.0), evaluated(2, 1.6), evaluated(3, loss)] for loss in losses]
        return [
            make_run(
                tmp_path / f"{losses}-{n}", "lstm", 1.6, events=own, best_step=2, seconds=30.0, settings={"seed": n}
            )
            for n, own in enumerate(events)
        ]

    assert any("0.3 nats" in text and "(2 of 3 seeds)" in text for text in lessons(seeds(1.9, 1.9, 1.6)))
    assert describe_findings(read_runs(seeds(1.9, 1.6, 1.6)), WARNINGS) == []


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
