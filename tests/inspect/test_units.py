"""Units that track something: signals by rule, correlations and chance, and models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.subject import Subject
from seriatim.inspect.views import units
from seriatim.report.charts import Table, TokenStrip

# Words of the vocabulary in lines of random lengths: a text that repeats itself would fit shifted signals
COUNTS = np.random.default_rng(0).integers(0, 7, (60, 2)).tolist()
LINES = "".join(f"a {'film ' * first}{'light ' * second}twice\n" for first, second in COUNTS)


def test_signals_of_a_text() -> None:
    text = 'ab (c) "de"\nX1 YZ.'
    signals = {name: rule(text) for name, rule in units.SIGNALS.items()}
    assert signals["position in the line"] == [*range(12), *range(6)]
    assert signals["inside brackets"] == [0, 0, 0, 0, 1, 1, *[0] * 12]
    assert signals["inside quotes"] == [*[0] * 8, 1, 1, 1, *[0] * 7]
    assert signals["length of the previous line"] == [*[0] * 12, *[12] * 6]
    assert signals["upper case"] == [*[0] * 12, 1, 0, 0, 1, 1, 0]
    assert signals["a word in capitals"] == [*[0] * 12, 1, 1, 0, 1, 1, 0]
    assert signals["digits"] == [*[0] * 13, 1, *[0] * 4]
    assert signals["inside a word"] == [1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0]
    assert signals["position in the word"][12:] == [0, 1, 2, 0, 1, 2]
    assert signals["position in the sentence"] == [*range(18)]
    assert all(len(values) == len(text) for values in signals.values())


def test_quotes_of_other_kinds_and_unbalanced_brackets() -> None:
    assert units.inside_quotes("«a» b") == [0, 1, 1, 0, 0]
    assert units.inside_quotes('"a\n\nb') == [0, 1, 1, 0, 0]
    assert units.inside_brackets(")a((b)") == [0, 0, 0, 1, 2, 2]


def test_the_signal_of_a_token_is_the_mean_over_its_characters() -> None:
    signals = units.token_signals("aB C", [(0, 2), (2, 3), (3, 4)])
    assert signals["upper case"].tolist() == [0.5, 0, 1]
    assert "digits" not in signals, "a constant signal"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000))
def test_correlations_are_pearsons_and_chance_is_the_best_of_all_shifts(seed: int) -> None:
    random = np.random.default_rng(seed)
    activity, signals = random.normal(size=(80, 5)), random.normal(size=(3, 80))
    activity[:, 4] = 3.0  # a constant unit
    correlations = units.correlations(activity, signals)
    assert correlations[:, :4] == pytest.approx(np.corrcoef(signals, activity[:, :4].T)[:3, 3:])
    assert (correlations[:, 4] == 0).all()
    shifted = [np.abs(units.correlations(activity, np.roll(signals, by, axis=1))).max(axis=1) for by in range(4, 76)]
    expected = np.quantile(np.stack(shifted), units.CONFIDENCE, axis=0)
    assert units.chance_correlations(activity, signals) == pytest.approx(expected)


def test_chance_allows_for_units_that_change_slowly() -> None:
    random = np.random.default_rng(0)
    signal = np.sin(np.arange(400) / 40)[None]
    quick, slow = random.normal(size=(400, 50)), np.cumsum(random.normal(size=(400, 50)), axis=0)
    assert units.chance_correlations(quick, signal)[0] < 0.3 < units.chance_correlations(slow, signal)[0]


def test_networks_without_training_track_nothing(make_subject: Any) -> None:
    """With so few units luck may have it once in a while."""
    subject = make_subject("gru")
    rows = []
    for seed in range(100, 104):
        predictor = subject.task.predictor(subject.untrained_network(seed))
        fresh = Subject("fresh", subject.settings, lambda one=predictor: one, lambda: subject.data)
        rows += Inspector(fresh).units(LINES).charts[0].rows
    assert len(rows) >= 16
    assert sum(row[-1] == "yes" for row in rows) <= 1


def test_a_planted_unit_is_found(make_subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = make_subject("gru")
    parts = units.split_text(subject, LINES)
    signal = parts.signals()["length of the previous line"]
    unchanged = units.unit_activity

    def planted(network: Any, parts: units.TextParts) -> tuple[list[str], np.ndarray]:
        names, activity = unchanged(network, parts)
        if network is subject.network:
            activity[:, 5] = 2 - 3 * signal
        return names, activity

    monkeypatch.setattr(units, "unit_activity", planted)
    result = Inspector(subject).units(LINES, top=1)
    table, strip = result.charts
    assert isinstance(table, Table)
    row = next(row for row in table.rows if row[0] == "length of the previous line")
    assert row[1:3] == ("layer 0, unit 5", -1.0)
    assert row[-1] == "yes"
    assert isinstance(strip, TokenStrip)
    assert "".join(strip.tokens) == LINES[: units.MAX_STRIP]


def test_a_long_text_is_read_in_parts(make_subject: Any) -> None:
    subject = make_subject("gpt")
    text = "a fine film full of light.\n".replace(".", "") * 6
    parts = units.split_text(subject, text)
    assert len(parts.readings) > 1
    assert all(len(reading.names) <= 24 for reading in parts.readings)
    assert "".join(parts.names) == text
    assert Inspector(subject).units(text).arrays["correlation"].values.shape[1] == 8 * 2


@pytest.mark.parametrize("name", ["lstm", "tcn"])
def test_own_text_and_short_texts(name: str, make_subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "OWN_TOKENS", 300)
    inspector = Inspector(make_subject(name))
    assert inspector.units().arrays["correlation"].values.shape[1] == 24
    with pytest.raises(SeriatimError, match="has only 6 tokens"):
        inspector.units("a film")


def test_units_of_a_tagger_that_reads_spellings(make_subject: Any) -> None:
    inspector = Inspector(make_subject("tag"))
    result = inspector.units("a fine (film) full of light. " * 12)
    assert result.arrays["correlation"].values.shape[1] == 2 * 2 * 8
    with pytest.raises(SeriatimError, match="has no tokens"):
        inspector.units("   ")
    assert torch.is_grad_enabled()
