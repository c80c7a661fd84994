"""Labels, directions and number formats of metrics, known and unknown."""

from __future__ import annotations

import math

import pytest

from seriatim.core import metrics
from seriatim.core.metrics import METRICS, Metric, displayed_metrics, format_metric, get_metric, metric_label


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("loss", 1.47, "1.470"),
        ("loss", 0.0014, "0.00140"),
        ("loss", 5.3e-5, "5.30·10^−5"),
        ("loss", 0.0, "0.000"),
        ("perplexity", 4.349, "4.35"),
        ("perplexity", 123.456, "123.5"),
        ("accuracy", 0.8432, "84.3 %"),
        ("accuracy", 1.0, "100.0 %"),
        ("error", 0.0004, "0.04 %"),
        ("mse", 412.345, "412.3"),
        ("mse", 12_439.38, "12,439"),
        ("mse", 3.2e9, "3.20·10^9"),
        ("r2", -1.178, "−1.178"),
        ("bleu4", 2.1e-11, "0.0"),
        ("bleu", 0.0695, "0.07"),
        ("cider", 3.3e-50, "0.000"),
        ("cider", 0.0642, "0.0642"),
        ("examples", 1066.0, "1,066"),
        ("accuracy", None, "–"),
        ("loss", math.nan, "not a number"),
        ("perplexity", math.inf, "∞"),
        ("examples", math.nan, "not a number"),
    ],
)
def test_format(name: str, value: float | None, text: str) -> None:
    assert format_metric(name, value) == text


def test_extra_digits() -> None:
    assert format_metric("loss", 1.47, 1) == "1.4700"
    assert format_metric("accuracy", 0.84321, 1) == "84.32 %"
    assert format_metric("mse", 412.345, 1) == "412.35"
    assert format_metric("examples", 1066.0, 1) == "1,066"


def test_every_metric_is_declared_completely() -> None:
    for name, metric in METRICS.items():
        assert metric.label
        assert metric.description
        assert name == name.lower()
    higher = {name for name, metric in METRICS.items() if metric.direction == "higher"}
    assert {"accuracy", "macro_f1", "micro_f1", "f1", "precision", "recall", "r2", "spearman"} <= higher
    assert {"loss", "perplexity", "error", "mse", "mae", "mase", "smape", "nll"} & higher == set()
    assert get_metric("coverage").direction == "neither"  # best at the nominal share
    assert not get_metric("coverage").is_count
    assert metrics.is_better("accuracy", 0.9, 0.8)
    assert metrics.is_better("mae", 0.8, 0.9)
    assert not metrics.is_better("mae", 0.9, 0.9)


def test_unknown_metrics_are_formatted_by_their_name() -> None:
    assert metric_label("regret") == "Regret"
    assert format_metric("regret", 0.5) == "0.500"
    assert get_metric("regret").direction == "lower"
    assert metric_label("top5_accuracy") == "Top5 accuracy"
    assert format_metric("top5_accuracy", 0.951) == "95.1 %"
    assert get_metric("top5_accuracy").direction == "higher"
    assert format_metric("macro_f1_known", 0.5) == "50.0 %"
    assert metric_label("") == ""


def test_registered_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "METRICS", dict(METRICS))
    metrics.register_metric("gain", Metric("Gain", "higher", 1, True, "share of the budget that is saved"))
    assert format_metric("gain", 0.25) == "25.0 %"
    assert metrics.is_better("gain", 2.0, 1.0)


@pytest.mark.parametrize(("name", "text"), [("loss", "loss"), ("mse", "MSE"), ("macro_f1", "macro F1"), ("r2", "R²")])
def test_labels_in_a_sentence(name: str, text: str) -> None:
    assert metrics.label_in_sentence(name) == text
    assert metrics.describe_metric(name, 0.5).startswith(f"{text} ")


def test_an_error_is_displayed_as_its_complement() -> None:
    """Which one that is follows from the values: of a tagger of entities it is F1, not the accuracy."""
    classes = {"loss": 0.4, "accuracy": 0.84, "macro_f1": 0.82, "error": 0.16, "examples": 100.0}
    assert displayed_metrics(classes, "error") == ["accuracy", "loss", "macro_f1"]
    entities = {"loss": 0.4, "accuracy": 0.92, "precision": 0.0, "recall": 0.0, "f1": 0.0, "error": 1.0, "words": 9.0}
    assert displayed_metrics(entities, "error") == ["f1", "loss", "accuracy", "precision", "recall"]
    for value in (0.0, 1.0):  # the log of a training names the same metric whatever its value
        assert metrics.main_metric(entities | {"accuracy": value, "f1": value, "error": 1 - value}, "error") == "f1"
        labels = {"accuracy": value, "micro_f1": value, "macro_f1": value, "error": 1 - value}
        assert metrics.main_metric(labels, "error") == "micro_f1"
        assert metrics.main_metric(classes | {"accuracy": value, "macro_f1": value, "error": 1 - value}, "error") == (
            "accuracy"
        )
    assert metrics.main_metric({"loss": 1.0, "error": 0.3}, "error") == "error"
    assert metrics.main_metric({"loss": 1.0, "error": math.nan, "accuracy": math.nan}, "error") == "error"


def test_duplicates_of_the_loss_are_not_displayed() -> None:
    assert displayed_metrics({"loss": 8.6, "nll": 8.6, "accuracy": 0.17, "examples": 4.0}) == ["loss", "accuracy"]
    assert displayed_metrics({"loss": 0.01, "mse": 2.0, "mae": 1.0}) == ["loss", "mse", "mae"]
    assert displayed_metrics({}) == []


def test_merged_metrics_and_signatures() -> None:
    values = metrics.Measured({"bleu": 20.0}, {"bleu": "nrefs:1"})
    assert ({"loss": 1.0, **values}, values.signatures) == ({"loss": 1.0, "bleu": 20.0}, {"bleu": "nrefs:1"})
    assert metrics.merge_metrics([{"loss": 1.0}, {"loss": 2.0, "bleu": 3.0}]) == {"loss": 1.0, "bleu": 3.0}
