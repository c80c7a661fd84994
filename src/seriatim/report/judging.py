"""What counts as a difference between models, and how it is told."""

from __future__ import annotations

import math

from ..core.measures import finite, measure, phrase, plain, shown, title
from .figures import Figures
from .numbers import points, whole

DRAW = 0.01  # nats: less than this a second seed may turn round
SLOWER = 1.3  # a throughput smaller by this factor explains something
RECURRENT = ("rnn", "lstm", "gru")
LOOPED = (*RECURRENT, "seq2seq", "bahdanau")  # those that go from step to step
NAMES = {
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


def score(one: Figures) -> float:
    """What models are ranked by, for sums; the lower, the better."""
    return math.nan if one.score is None else float(one.score)


def draw(one: Figures, measured: str = "") -> float:
    """A difference of a measure, the objective by default, that chance can make: for a share, the deviation of the
    difference of two such shares over so many examples; for any other measure, some hundredths of it."""
    about = measured or one.objective
    if one.unit and about == "loss":
        return DRAW
    valid = one.measures("valid")
    value = finite(valid.get(about))
    if measure(about).percent:
        counts = [number for name, found in valid.items() if (number := _count(name, found))]
        many = finite(valid.get("sentences")) or max(counts, default=0)
        if not many or value is None:
            return 0.01
        share = min(max(value, 0.5 / many), 1 - 0.5 / many)  # even of none wrong the next few may be
        return math.sqrt(2 * share * (1 - share) / many)
    return math.nan if value is None else 0.03 * abs(value)


def _count(name: str, value: object) -> float:
    return float(finite(value) or 0) if measure(name).counts else 0.0


def still_falling(one: Figures) -> float:
    """By how much the last evaluation was better than the one before, where that is more than chance."""
    values = [point.value for point in one.evaluations(one.objective)]
    if len(values) < 2:
        return 0.0
    fall = values[-2] - values[-1]
    return fall if fall > draw(one) and values[-1] <= min(values) else 0.0


def risen(one: Figures) -> float:
    """By how much the last evaluation was worse than the best, where that is more than chance."""
    values = [point.value for point in one.evaluations(one.objective)]
    rise = values[-1] - min(values) if values else 0.0
    return rise if rise > draw(one) else 0.0


# Words


def name(one: Figures) -> str:
    return NAMES.get(one.model, one.label) if one.label == one.model else one.label


def upper(one: Figures) -> str:
    text = name(one)
    return f"T{text[1:]}" if text.startswith("the ") else text


def apart(gap: float, one: Figures, measured: str = "") -> str:
    """A distance in the unit of a measure, the objective by default."""
    about = measured or one.objective
    if measure(about).percent:
        return points(gap)
    if about in ("bleu", "bleu_all", "chrf"):
        return f"{plain(gap, 1)} {title(about)}"
    unit = f" {one.unit}" if one.unit and about == "loss" else ""
    return f"{plain(gap, 2 if gap >= 0.1 else 3, 2)}{unit}"


def reached(one: Figures) -> str:
    """The main measure on the validation data: "a loss of 1.470", "an accuracy of 84.3 %"."""
    text = phrase(one.main)
    vowel = text[0] in "aeio" if text[1:2].islower() else text[0] in "AEFHILMNORSXs"
    return f"a{'n' if vowel else ''} {text} of {shown(one.main, one.reached())}"


def steps(count: float | int) -> str:
    return f"{whole(count)} step{'' if count == 1 else 's'}"


def times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 9.95 else f"{ratio:.0f} times"
