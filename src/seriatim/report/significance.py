"""What counts as a difference between runs, and words for it."""

from __future__ import annotations

import math

from ..core.metrics import finite, format_metric, get_metric, label_in_sentence, metric_label
from .formatting import format_number
from .run_data import RunData

CHANCE_IN_NATS = 0.01  # a difference of losses that another seed may reverse
MODEL_NAMES = {
    "ngram": "the n-gram",
    "mlp": "the window MLP",
    "rnn": "the plain RNN",
    "lstm": "the LSTM",
    "gru": "the GRU",
    "tcn": "the TCN",
    "gpt": "the GPT",
    "seq2seq": "the seq2seq",
    "bahdanau": "the Bahdanau model",
    "transformer": "the Transformer",
}


def score(run: RunData) -> float:
    """Returns the number that ranks runs, NaN if there is none; lower is better."""
    return math.nan if run.score is None else float(run.score)


def chance(run: RunData, metric: str = "") -> float:
    """Returns a difference of a metric, by default the monitored one, that chance can explain.

    For a share it is the standard deviation of the difference of two such shares over the evaluated examples, for a
    loss in nats `CHANCE_IN_NATS`, for any other metric three percent of it.
    """
    metric = metric or run.monitor
    if run.loss_unit and metric == "loss":
        return CHANCE_IN_NATS
    values = run.metrics("validation")
    value = finite(values.get(metric))
    if get_metric(metric).percent:
        counts = [float(finite(count) or 0) for name, count in values.items() if get_metric(name).is_count]
        count = finite(values.get("sentences")) or max(counts, default=0)
        if not count or value is None:
            return 0.01
        share = min(max(value, 0.5 / count), 1 - 0.5 / count)  # even without errors the next examples may have some
        return math.sqrt(2 * share * (1 - share) / count)
    return math.nan if value is None else 0.03 * abs(value)


def last_improvement(run: RunData) -> float:
    """Returns by how much the last evaluation was better than the one before, 0 if chance can explain it."""
    values = [point.value for point in run.evaluations(run.monitor)]
    if len(values) < 2:
        return 0.0
    fall = values[-2] - values[-1]
    return fall if fall > chance(run) and values[-1] <= min(values) else 0.0


def final_rise(run: RunData) -> float:
    """Returns by how much the last evaluation was worse than the best, 0 if chance can explain it."""
    values = [point.value for point in run.evaluations(run.monitor)]
    rise = values[-1] - min(values) if values else 0.0
    return rise if rise > chance(run) else 0.0


def name(run: RunData) -> str:
    """Returns the run's name in a sentence."""
    return MODEL_NAMES.get(run.model, run.label) if run.label == run.model else run.label


def capitalized(run: RunData) -> str:
    """Returns the run's name at the start of a sentence."""
    text = name(run)
    return f"T{text[1:]}" if text.startswith("the ") else text


def format_difference(gap: float, run: RunData, metric: str = "") -> str:
    """Returns a difference in the unit of a metric, by default the monitored one: "0.12 nats", "3.1 points"."""
    metric = metric or run.monitor
    if get_metric(metric).percent:
        size = abs(100 * gap)
        return f"{size:.{1 if size >= 0.95 else 2}f} points"
    if get_metric(metric).digits == 1:  # scores up to 100, such as BLEU
        return f"{gap:.1f} {metric_label(metric)}"
    unit = f" {run.loss_unit}" if run.loss_unit and metric == "loss" else ""
    return f"{format_number(gap, 2)}{unit}"


def format_reached(run: RunData) -> str:
    """Returns the main metric on the validation split: "a loss of 1.470", "an accuracy of 84.3 %"."""
    text = label_in_sentence(run.main)
    vowel = text[0] in "aeio" if text[1:2].islower() else text[0] in "AEFHILMNORSXs"
    return f"a{'n' if vowel else ''} {text} of {format_metric(run.main, run.reached())}"


def times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 9.95 else f"{ratio:.0f} times"
