"""Why attention was invented: letters reversed, with attention and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seriatim.lab.reproduce import reproduce
from seriatim.report.charts import BinnedMetric, views_from_json

pytestmark = pytest.mark.slow


def test_attention_holds_as_the_source_grows(tmp_path: Path) -> None:
    reproduction = reproduce("length", ["reverse"], ["seq2seq", "bahdanau"], out=tmp_path)
    curves = {}
    for result in reproduction.results:
        charts = [view for view in views_from_json(result.run.evaluation()["test"]) if isinstance(view, BinnedMetric)]
        chart = next(chart for chart in charts if chart.metric == "exact_match")
        curves[result.label] = next(iter(chart.series.values()))
    values = {result.label: result.value for result in reproduction.results}
    assert values["bahdanau"] >= 0.95
    assert curves["bahdanau"][-1] >= 0.85
    assert curves["seq2seq"][-1] < 0.5 * curves["bahdanau"][-1]
