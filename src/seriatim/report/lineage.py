"""The history of architectures, step by step: each is compared with the one it replaced.

Where the newer model wins, the sentence names the idea behind it; where it does not, it says by how much and what the
numbers point to: too few steps, too little data read, overfitting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..core.metrics import format_metric, label_in_sentence
from .charts import BinnedMetric
from .formatting import format_duration, with_prefix
from .run_data import RunData, ranked
from .significance import (
    CHANCE_IN_NATS,
    capitalized,
    chance,
    final_rise,
    format_difference,
    last_improvement,
    name,
    score,
)

RECURRENT = ("rnn", "lstm", "gru")
WITH_ATTENTION = ("mlp", *RECURRENT, "tcn", "gpt")  # as decoders they attend to the source (Luong et al., 2015)
ENCODER_DECODERS = ("seq2seq", "bahdanau", "transformer")
SLOWER = 1.3  # a speed smaller by this factor is worth a sentence


@dataclass(frozen=True)
class Step:
    """A step of the history: a model, those of which it replaced the best, and what was new in it."""

    newer: str
    older: tuple[str, ...]
    idea: Callable[[RunData, RunData], str]
    limit: Callable[[RunData], str]  # if nothing else explains that it lost


def window(run: RunData) -> str:
    size = run.setting("model", "window")
    return f"{size} tokens" if isinstance(size, int) else "a few tokens"


def receptive_field(run: RunData) -> str:
    """Returns how far back a TCN sees: every level has two convolutions."""
    levels, kernel = run.setting("model", "levels"), run.setting("model", "kernel")
    if not (isinstance(levels, int) and isinstance(kernel, int)):
        return "a limited number of tokens"
    return f"{1 + 2 * (kernel - 1) * (2**levels - 1):,} tokens"


def wider(run: RunData, older: RunData) -> str:
    width, before = run.setting("model", "width"), older.setting("model", "width")
    if isinstance(width, int) and isinstance(before, int) and width > before:
        return f", and the weights they save make it wider ({width} against {before})"
    return ""


def context(run: RunData) -> str:
    size = run.setting("model", "context_length") or run.setting("task", "context_length")
    return f"all of the last {size:,} tokens" if isinstance(size, int) else "all previous tokens"


LANGUAGE_MODELS = (
    Step(
        "mlp",
        ("ngram",),
        lambda run, older: "its tokens are vectors, so what it learns of one helps with similar ones",
        lambda run: "exact counts are hard to beat where the same phrases come back",
    ),
    Step(
        "rnn",
        ("mlp",),
        lambda run, older: f"its state carries what it read, where the MLP sees {window(older)}",
        lambda run: "its gradient vanishes over many steps, so that it may use little more than a window does",
    ),
    Step(
        "lstm",
        ("rnn",),
        lambda run, older: "its gates keep the gradient alive over many steps",
        lambda run: "what the gates help to remember seems to matter little in this text at this size",
    ),
    Step(
        "gru",
        ("lstm",),
        lambda run, older: f"two gates are enough here{wider(run, older)}",
        lambda run: "the separate memory cell of the LSTM seems to be worth its weights here",
    ),
    Step(
        "tcn",
        RECURRENT,
        lambda run, older: f"it sees {receptive_field(run)} at once, and its gradient has a short path",
        lambda run: f"it sees {receptive_field(run)} and nothing before them, while a state has no such limit",
    ),
    Step(
        "gpt",
        ("ngram", "mlp", *RECURRENT, "tcn"),
        lambda run, older: f"attention reaches {context(run)} in one step, wherever they are",
        lambda run: (
            f"attention has to learn even the order of tokens, from {with_prefix(run.number('tokens'))} of them"
        ),
    ),
)
TRANSLATORS = (
    *(
        Step(
            model,
            ("seq2seq",),
            lambda run, older: "it attends to the whole source before every word; the other has it in one state only",
            lambda run: "one state holds sources as short as these, and where to attend has yet to be learned",
        )
        for model in ("bahdanau", *WITH_ATTENTION)
    ),
    Step(
        "transformer",
        ("seq2seq", "bahdanau", *WITH_ATTENTION),
        lambda run, older: "every word reaches every other in one step, in several heads and layers",
        lambda run: f"it has to learn even the order of words, from {with_prefix(run.number('tokens'))} tokens",
    ),
)


def architecture_lessons(best: Mapping[str, RunData]) -> list[str]:
    """Returns what the best run of each architecture says about the steps of the history.

    Args:
        best: Architecture → its best run; all saw the same data.
    """
    if any(model in best for model in ENCODER_DECODERS):
        return [*(compare_step(step, best) for step in TRANSLATORS), length_lesson(best)]
    if all(run.loss_unit and run.main == "loss" for run in best.values()):
        steps = [compare_step(step, best) for step in LANGUAGE_MODELS]
        return [*steps, counting_lesson(best), storage_lesson(best)]
    return []


def compare_step(step: Step, best: Mapping[str, RunData]) -> str:
    newer = best.get(step.newer)
    rivals = ranked([best[model] for model in step.older if model in best])
    if newer is None or not rivals:
        return ""
    older, main = rivals[0], newer.main
    gap, noise = score(older) - score(newer), chance(newer, newer.main)
    against = f"({format_metric(main, newer.reached())} against {format_metric(main, older.reached())})"
    kind = "recurrent network" if step.older == RECURRENT else "model"
    rival = name(older) if len(step.older) == 1 else f"the best {kind} before it, {name(older)},"
    if abs(gap) < noise:
        less = CHANCE_IN_NATS if main == "loss" else format_difference(noise, newer, main)
        return (
            f"{capitalized(newer)} equals {rival.rstrip(',')} {against}: less than {less} apart, which may be chance."
        )
    if gap > 0:
        gain = format_difference(gap, newer, main)
        return f"{capitalized(newer)} beats {rival} by {gain} {against}: {step.idea(newer, older)}."
    reasons = explain(newer, older) or [step.limit(newer)]
    behind = f"{format_difference(-gap, newer, main)} behind {against}"
    return f"{capitalized(newer)} does not beat {rival} here; it is {behind}. Likely: {'; '.join(reasons)}."


def explain(newer: RunData, older: RunData) -> list[str]:
    """Returns what the numbers say about why a model fell behind."""
    reasons = []
    if last_improvement(newer):
        reasons.append(f"it was still improving when it stopped after {newer.number('step') or 0:,} steps")
    elif final_rise(newer):
        reasons.append(f"it was best at step {newer.number('best_step'):,} and then overfitted")
    own, other = newer.number("tokens"), older.number("tokens")
    if own and other and other / own > SLOWER:
        own_speed, other_speed = newer.number("tokens_per_second"), older.number("tokens_per_second")
        speeds = ""
        if own_speed and other_speed and not older.gradient_free and other_speed / own_speed > SLOWER:
            speeds = f", at {with_prefix(own_speed)} against {with_prefix(other_speed)} per second"
        reasons.append(f"it read {with_prefix(own)} {newer.unit}, {name(older)} {with_prefix(other)}{speeds}")
    return reasons


def counting_lesson(best: Mapping[str, RunData]) -> str:
    """Returns how long gradient descent needs to pass a model that is counted at once."""
    counted = next((run for run in best.values() if run.gradient_free and run.score is not None), None)
    trained = [run for run in best.values() if not run.gradient_free]
    if counted is None or not trained:
        return ""
    took = format_duration(counted.number("seconds"))
    loss, start = score(counted), f"{capitalized(counted)} was counted in {took}, without gradients"
    passed = [(point.seconds, run) for run in trained for point in run.evaluations("loss") if point.value < loss]
    below = format_metric("loss", loss)
    if not passed:
        return f"{start}; no network got below its {below} in the time it had."
    moment, first = min(passed, key=lambda pair: pair[0])
    return f"{start}; the first network below its {below} was {name(first)}, after {format_duration(moment)}."


def storage_lesson(best: Mapping[str, RunData]) -> str:
    """Returns what counts and shared weights take on disk."""
    counted = next((run for run in best.values() if run.gradient_free), None)
    trained = [run for run in ranked(list(best.values())) if not run.gradient_free]
    if counted is None or not trained:
        return ""
    stored = []
    for run in (counted, trained[0]):
        file = run.folder.path / "model.safetensors"
        stored.append(f", {with_prefix(file.stat().st_size, 'B')} on disk," if file.is_file() else "")
    entries, weights = (with_prefix(run.number("parameters")) for run in (counted, trained[0]))
    return (
        f"{capitalized(counted)} has {entries} entries{stored[0]} and each is about one sequence of tokens only; "
        f"{name(trained[0])} has {weights} parameters{stored[1]} and every one serves many contexts."
    )


def length_lesson(best: Mapping[str, RunData]) -> str:
    """Returns how much of its best quality a model keeps on the longest sources."""
    shares: list[tuple[float, RunData, BinnedMetric]] = []
    for run in best.values():
        for view in run.evaluation[1]:
            if isinstance(view, BinnedMetric) and view.join and view.metric == run.main:
                values = [value or 0.0 for value in next(iter(view.series.values()), ())]
                if max(values, default=0.0) > 0:
                    shares.append((values[-1] / max(values), run, view))
                break
    if len(shares) < 2 or len({view.bins for _, _, view in shares}) > 1:
        return ""
    (least, worst, view), *_, (most, top, _) = sorted(shares, key=lambda entry: entry[0])
    where, metric = f"{view.bins[-1]} {view.x}", label_in_sentence(view.metric)
    if most - least < 0.1:
        share = (
            f"{100 * least:.0f} %" if f"{least:.0%}" == f"{most:.0%}" else f"{100 * least:.0f} to {100 * most:.0f} %"
        )
        return (
            f"Length makes little difference: on the longest sources ({where}) each keeps {share} of its best {metric}."
        )
    single = worst.model == "seq2seq"
    why = ": one state has to hold the whole source, while attention keeps all of it in view" if single else ""
    return (
        f"On the longest sources ({where}) {name(worst)} keeps {100 * least:.0f} % of its best {metric}, {name(top)} "
        f"{100 * most:.0f} %{why}."
    )
