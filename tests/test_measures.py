"""Measures are called and written the same everywhere, also those that nobody has heard of."""

from __future__ import annotations

import math

import pytest

from seriatim.core import measures
from seriatim.core.measures import MEASURES, measure, shown, telling, title


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
        ("cider", 3.3e-50, "0.000"),
        ("cider", 0.0642, "0.0642"),
        ("examples", 1066.0, "1,066"),
        ("accuracy", None, "–"),
        ("loss", math.nan, "not a number"),
        ("perplexity", math.inf, "∞"),
        ("examples", math.nan, "not a number"),
    ],
)
def test_values_are_written_as_people_read_them(name: str, value: float | None, text: str) -> None:
    assert shown(name, value) == text


def test_more_digits_where_they_are_asked_for() -> None:
    assert shown("loss", 1.47, 1) == "1.4700"
    assert shown("accuracy", 0.84321, 1) == "84.32 %"
    assert shown("mse", 412.345, 1) == "412.35"
    assert shown("examples", 1066.0, 1) == "1,066"


def test_every_measure_says_which_way_is_better() -> None:
    for name, about in MEASURES.items():
        assert about.title
        assert about.hint
        assert name == name.lower()
    higher = {name for name, about in MEASURES.items() if about.better == "higher"}
    assert {"accuracy", "macro_f1", "micro_f1", "f1", "precision", "recall", "r2", "spearman"} <= higher
    assert {"loss", "perplexity", "error", "mse", "mae", "mase", "smape", "nll"} & higher == set()
    assert measure("coverage").better == "neither"  # neither more nor less, but what was asked for
    assert not measure("coverage").counts
    assert measures.better("accuracy", 0.9, 0.8)
    assert measures.better("mae", 0.8, 0.9)
    assert not measures.better("mae", 0.9, 0.9)


def test_a_measure_of_ones_own_is_written_like_what_it_is_named_after() -> None:
    assert title("regret") == "Regret"
    assert shown("regret", 0.5) == "0.500"
    assert measure("regret").better == "lower"
    assert title("top5_accuracy") == "Top5 accuracy"
    assert shown("top5_accuracy", 0.951) == "95.1 %"
    assert measure("top5_accuracy").better == "higher"
    assert shown("macro_f1_known", 0.5) == "50.0 %"
    assert title("") == ""


@pytest.mark.parametrize(("name", "text"), [("loss", "loss"), ("mse", "MSE"), ("macro_f1", "macro F1"), ("r2", "R²")])
def test_titles_within_a_sentence(name: str, text: str) -> None:
    assert measures.phrase(name) == text
    assert measures.told(name, 0.5).startswith(f"{text} ")


def test_an_error_is_shown_as_the_share_that_is_right() -> None:
    """Which one that is, the values say: of a tagger of entities it is F1, not the accuracy."""
    classes = {"loss": 0.4, "accuracy": 0.84, "macro_f1": 0.82, "error": 0.16, "examples": 100.0}
    assert telling(classes, "error") == ["accuracy", "loss", "macro_f1"]
    entities = {"loss": 0.4, "accuracy": 0.92, "precision": 0.0, "recall": 0.0, "f1": 0.0, "error": 1.0, "words": 9.0}
    assert telling(entities, "error") == ["f1", "loss", "accuracy", "precision", "recall"]
    assert measures.main({"loss": 1.0, "error": 0.3}, "error") == "error"
    assert measures.main({"loss": 1.0, "error": math.nan, "accuracy": math.nan}, "error") == "error"


def test_what_says_the_same_twice_is_said_once() -> None:
    assert telling({"loss": 8.6, "nll": 8.6, "accuracy": 0.17, "examples": 4.0}) == ["loss", "accuracy"]
    assert telling({"loss": 0.01, "mse": 2.0, "mae": 1.0}) == ["loss", "mse", "mae"]
    assert telling({}) == []
