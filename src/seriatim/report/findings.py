"""What a reader should notice in a run or a comparison. Every sentence follows from measured numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.metrics import describe_metric, finite, format_metric, get_metric, is_better, label_in_sentence
from .formatting import format_duration, with_prefix
from .lineage import RECURRENT, SLOWER, architecture_lessons
from .run_charts import clipped_steps, clipping_note
from .run_data import RunData, ranked, shared_baselines
from .significance import (
    capitalized,
    chance,
    final_rise,
    format_difference,
    format_reached,
    last_improvement,
    name,
    score,
    times,
)

STEPWISE = (*RECURRENT, "seq2seq", "bahdanau")  # models that go from element to element


def lessons(runs: Sequence[RunData]) -> list[str]:
    """Returns short sentences, most important first; one run is described, several are compared."""
    if len(runs) == 1:
        return run_lessons(runs[0])
    complete = [run for run in runs if run.score is not None and not run.interrupted]
    left_out = [exclusion(run) for run in runs if run not in complete]
    if len({run.fingerprint for run in complete}) > 1:
        return ["These runs saw different data: their metrics cannot be compared.", *left_out]
    if len(complete) < 2:
        return left_out
    best: dict[str, RunData] = {}
    for run in ranked(complete):
        best.setdefault(run.model, run)
    texts = [winner(complete), against_baselines(complete), *architecture_lessons(best)]
    texts += [throughput(complete), bargain(complete), *map(overfitting, complete)]
    texts.append(overconfidence([run for run in complete if not final_rise(run)]))
    return [text for text in texts if text] + left_out


def run_lessons(run: RunData) -> list[str]:
    """Returns what to notice in a single run."""
    if run.interrupted:
        return [exclusion(run, compared=False)]
    texts = [against_baselines([run]), progress(run), overfitting(run)]
    texts += ["" if final_rise(run) else overconfidence([run]), generalization_gap(run)]
    texts += [clipping_note(run)] if clipped_steps(run)[0] else []
    return [text for text in texts if text]


def exclusion(run: RunData, compared: bool = True) -> str:
    """Returns why a run is not compared."""
    step = run.number("step")
    after = f" after {step:,} step{'' if step == 1 else 's'}" if step else ""
    if run.interrupted:
        how = f"was stopped by {run.reason}" if run.reason.startswith("SIG") else "did not finish"
        end = (
            ": it is not compared here. `seriatim resume` continues it."
            if compared
            else "; `seriatim resume` continues it."
        )
        return f"{capitalized(run)} {how}{after}{end}"
    return f"{capitalized(run)} has no finite validation {label_in_sentence(run.main)}{after}: it is not compared here."


# Quality


def winner(runs: Sequence[RunData]) -> str:
    first, second = ranked(runs)[:2]
    gap = score(second) - score(first)
    near = gap < chance(first, first.main)
    close = f"; {name(second)} is so close that another seed may reverse the order" if near else ""
    ahead = f"{format_difference(gap, first, first.main)} ahead of {name(second)}"
    return f"Best on the validation split: {name(first)} with {format_reached(first)}, {ahead}{close}."


def against_baselines(runs: Sequence[RunData]) -> str:
    """Returns how far the best model is ahead of the baselines, or that it is not."""
    for split in ("test", "validation"):
        scored = [run for run in ranked(runs) if run.metrics(split)]
        baselines = shared_baselines(runs, split)
        metric = common_metric(scored, baselines, split)
        if metric:
            break
    else:
        return ""
    values = {key: float(value) for key, own in baselines.items() if (value := finite(own.get(metric))) is not None}
    sign = -1 if get_metric(metric).direction == "higher" else 1
    strongest = min(values, key=lambda key: sign * values[key])
    bar = values[strongest]
    reached = {run.label: float(run.metrics(split)[metric]) for run in scored}
    behind = [run for run in scored if not is_better(metric, reached[run.label], bar)]
    if len(behind) == len(scored):
        top = min(scored, key=lambda run: sign * reached[run.label])
        subject = f"{capitalized(top)} does not beat" if len(scored) == 1 else "No model beats"
        whose = "" if len(scored) == 1 else f" of {name(top)}, the best of them"
        against = f"{describe_metric(metric, bar)} against {format_metric(metric, reached[top.label])}{whose}"
        return f"{subject} the best baseline, {strongest}, on the {split} split: {against}."
    top = next(run for run in scored if run not in behind)
    others = [f"{name(run)} ({format_metric(metric, reached[run.label])})" for run in behind]
    gain = format_difference(abs(reached[top.label] - bar), top, metric)
    against = f"{describe_metric(metric, reached[top.label])} against {format_metric(metric, bar)}"
    rest = f"; these do not: {', '.join(others)}" if others else ""
    return f"{capitalized(top)} beats the best baseline, {strongest}, by {gain} on the {split} split ({against}){rest}."


def common_metric(runs: Sequence[RunData], baselines: dict[str, dict[str, Any]], split: str) -> str:
    """Returns the first metric that all runs and at least one baseline have."""
    for metric in runs[0].columns if runs else []:
        in_runs = all(finite(run.metrics(split).get(metric)) is not None for run in runs)
        if in_runs and any(finite(values.get(metric)) is not None for values in baselines.values()):
            return metric
    return ""


def overfitting(run: RunData) -> str:
    rise = final_rise(run)
    losses = {point.step: point.value for point in run.evaluations("loss")}
    best, last = losses.get(int(run.number("best_step") or 0)), next(reversed(losses.values()), None)
    if run.gradient_free or not rise or best is None or last is None or last <= best:
        return ""
    return (
        f"{capitalized(run)} was best at step {run.number('best_step'):,} of {run.number('step'):,} and "
        f"{format_difference(rise, run)} worse at the end: it began to overfit. More data, dropout or fewer "
        "steps help; the best weights were kept."
    )


def overconfidence(runs: Sequence[RunData]) -> str:
    """Returns which runs have a rising loss while the monitored metric holds: wrong and near-certain probabilities."""
    rising = []
    for run in runs:
        losses = [point.value for point in run.evaluations("loss")]
        if run.monitor != "loss" and len(losses) > 2 and losses[-1] > 1.1 * min(losses):
            rising.append((losses[-1] / min(losses), run, min(losses), losses[-1]))
    if not rising:
        return ""
    _, worst, low, high = max(rising, key=lambda entry: entry[0])
    names = [name(run) for _, run, *_ in rising]
    who = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    verb = "becomes" if len(names) == 1 else "become"
    whose = "" if len(names) == 1 else f"that of {name(worst)} "
    return (
        f"{who[0].upper()}{who[1:]} {verb} overconfident: the validation loss rises at the end ({whose}from "
        f"{format_metric('loss', low)} to {format_metric('loss', high)}) while the {label_in_sentence(worst.main)} "
        "holds. More data or dropout helps."
    )


# Cost


def throughput(runs: Sequence[RunData]) -> str:
    speeds = [(run.number("tokens_per_second") or 0, run) for run in runs if not run.gradient_free]
    speeds = sorted(((speed, run) for speed, run in speeds if speed > 0), key=lambda pair: pair[0])
    if len(speeds) < 2:
        return ""
    (low, slow), (high, fast) = speeds[0], speeds[-1]
    if high / low < SLOWER:
        pace = (
            with_prefix(low) if with_prefix(low) == with_prefix(high) else f"{with_prefix(low)} to {with_prefix(high)}"
        )
        return f"All networks process {fast.unit} at about the same speed, {pace} per second."
    recurrent = slow.model in STEPWISE and fast.model not in STEPWISE
    one = fast.unit.removesuffix("s")
    why = (
        f": a recurrent network goes from {one} to {one}, the other processes a whole sequence at once"
        if recurrent
        else ""
    )
    return (
        f"{capitalized(fast)} trains on {with_prefix(high)} {fast.unit} per second, {times(high / low)} as many as "
        f"{name(slow)} ({with_prefix(low)}){why}."
    )


def bargain(runs: Sequence[RunData]) -> str:
    """Returns a much cheaper model that is nearly as good as the best."""
    ordered = [run for run in ranked(runs) if run.number("flops")]
    if len(ordered) < 2:
        return ""
    top, *others = ordered
    cost = top.number("flops") or 1
    near = 0.01 if get_metric(top.main).percent else 0.05 * abs(score(top))
    near = 0.1 if top.loss_unit and top.main == "loss" else near
    cheaper = [run for run in others if 2 * (run.number("flops") or cost) <= cost and score(run) - score(top) <= near]
    if not cheaper:
        return ""
    run = min(cheaper, key=lambda other: other.number("flops") or 0)
    flops, gap = run.number("flops") or 1, format_difference(score(run) - score(top), top, top.main)
    return (
        f"{capitalized(run)} comes within {gap} of {name(top)} with "
        f"{with_prefix(flops, 'FLOP')} of training; {name(top)} took {times(cost / flops)} as much."
    )


# One run


def progress(run: RunData) -> str:
    if run.gradient_free:
        return (
            f"{capitalized(run)} was fitted in {format_duration(run.number('seconds'))}, in one pass over "
            f"{with_prefix(run.number('tokens'))} {run.unit} and without gradients."
        )
    if fall := last_improvement(run):
        return (
            f"It was still improving when it stopped: the last evaluation was {format_difference(fall, run)} better "
            "than the one before. More steps would help."
        )
    if len(run.evaluations(run.monitor)) > 1 and not final_rise(run):
        return f"It has converged: the last evaluation is within {format_difference(chance(run), run)} of the best."
    return ""


def generalization_gap(run: RunData) -> str:
    loss = finite(run.metrics("validation").get("loss"))
    if loss is None or not run.training:
        return ""
    tail = run.training[-max(len(run.training) // 20, 1) :]
    before = sum(point.value for point in tail) / len(tail)
    if run.loss_unit and loss - before >= 0.1:
        gap = f"{format_difference(loss - before, run, 'loss')} above"
    elif not run.loss_unit and before > 0 and loss >= 1.5 * before:
        gap = f"{times(loss / before)}"
    else:
        return ""
    against = f"({format_metric('loss', loss)} against {format_metric('loss', before)})"
    return (
        f"The validation loss is {gap} that of the last training steps {against}: part of what it knows is memorized."
    )
