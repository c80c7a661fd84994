"""Why attention was invented: letters reversed, with attention and without it; minutes, so behind a marker."""

from __future__ import annotations

from pathlib import Path

import pytest

from seriatim.reproduce import reproduce

pytestmark = pytest.mark.slow


def test_attention_holds_as_the_source_grows(tmp_path: Path) -> None:
    outcome = reproduce("length", ["reverse"], ["seq2seq", "bahdanau"], out=tmp_path)
    curves = {}
    for one in outcome.reached:
        views = one.run.evaluation()["test"]
        curves[one.label] = next(view for view in views if view.get("measure") == "exact_match")["series"][0][1]
    assert outcome.reached[1].label == "bahdanau"
    assert outcome.reached[1].value >= 0.95
    assert curves["bahdanau"][-1] >= 0.85
    assert curves["seq2seq"][-1] < 0.5 * curves["bahdanau"][-1]
