"""What a reader should notice in a run or a comparison. Every sentence follows from measured numbers.

Architectures are compared along their history, each with the one it replaced: where the newer one wins, the sentence
names the idea behind it; where it does not, what the numbers point to: too few steps, too little data, overfitting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.metrics import (
    describe_metric,
    finite,
    format_metric,
    get_metric,
    is_better,
    label_in_sentence,
    metric_label,
)
from .charts import BinnedMetric
from .formatting import format_duration, format_number, with_prefix
from .run_charts import clipped_steps, clipping_note
from .run_data import Json, RunData, ranked, shared_baselines

CHANCE_IN_NATS = 0.01  # a difference of losses that another seed may reverse
SLOWER = 1.3  # a speed smaller by this factor is worth a sentence
MODEL_NAMES = {
    "ngram": "the n-gram", "mlp": "the window MLP", "rnn": "the plain RNN", "lstm": "the LSTM", "gru": "the GRU",
    "tcn": "the TCN", "gpt": "the GPT", "seq2seq": "the seq2seq", "bahdanau": "the Bahdanau model",
    "transformer": "the Transformer",
}  # fmt: skip
RECURRENT = ("rnn", "lstm", "gru")
STEPWISE = (*RECURRENT, "seq2seq", "bahdanau")  # models that go from element to element
WITH_ATTENTION = ("mlp", *RECURRENT, "tcn", "gpt")  # as decoders they attend to the source (Luong et al., 2015)
ENCODER_DECODERS = ("seq2seq", "bahdanau", "transformer")


# What counts as a difference, and words for it


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


# Lessons


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
        end = ": it is not compared here." if compared else ";"
        return f"{capitalized(run)} {how}{after}{end} `seriatim resume` continues it."
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


def common_metric(runs: Sequence[RunData], baselines: dict[str, Json], split: str) -> str:
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
        pace = " to ".join(dict.fromkeys((with_prefix(low), with_prefix(high))))
        return f"All networks process {fast.unit} at about the same speed, {pace} per second."
    why, element = "", fast.unit.removesuffix("s")
    if slow.model in STEPWISE and fast.model not in STEPWISE:
        why = f": a recurrent network goes from {element} to {element}, the other processes a whole sequence at once"
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


# The history of architectures


@dataclass(frozen=True)
class Step:
    """A step of the history: a model, those of which it replaced the best, and what was new in it.

    `idea` explains that it won, `limit` that it lost if the numbers do not; both may hold names of `step_words`.
    """

    newer: str
    older: tuple[str, ...]
    idea: str
    limit: str


LANGUAGE_MODELS = (
    Step(
        "mlp",
        ("ngram",),
        "its tokens are vectors, so what it learns of one helps with similar ones",
        "exact counts are hard to beat where the same phrases come back",
    ),
    Step(
        "rnn",
        ("mlp",),
        "its state carries what it read, where the MLP sees {window}",
        "its gradient vanishes over many steps, so that it may use little more than a window does",
    ),
    Step(
        "lstm",
        ("rnn",),
        "its gates keep the gradient alive over many steps",
        "what the gates help to remember seems to matter little in this text at this size",
    ),
    Step(
        "gru",
        ("lstm",),
        "two gates are enough here{wider}",
        "the separate memory cell of the LSTM seems to be worth its weights here",
    ),
    Step(
        "tcn",
        RECURRENT,
        "it sees {field} at once, and its gradient has a short path",
        "it sees {field} and nothing before them, while a state has no such limit",
    ),
    Step(
        "gpt",
        ("ngram", "mlp", *RECURRENT, "tcn"),
        "attention reaches {context} in one step, wherever they are",
        "attention has to learn even the order of tokens, from {tokens} of them",
    ),
)
TRANSLATORS = (
    *(
        Step(
            model,
            ("seq2seq",),
            "it attends to the whole source before every word; the other has it in one state only",
            "one state holds sources as short as these, and where to attend has yet to be learned",
        )
        for model in ("bahdanau", *WITH_ATTENTION)
    ),
    Step(
        "transformer",
        ("seq2seq", "bahdanau", *WITH_ATTENTION),
        "every word reaches every other in one step, in several heads and layers",
        "it has to learn even the order of words, from {tokens} tokens",
    ),
)


def step_words(newer: RunData, older: RunData) -> dict[str, str]:
    """Returns what sentences about a step of the history may name."""
    width, before = newer.setting("model", "width"), older.setting("model", "width")
    wider = isinstance(width, int) and isinstance(before, int) and width > before
    levels, kernel = newer.setting("model", "levels"), newer.setting("model", "kernel")
    known = isinstance(levels, int) and isinstance(kernel, int)
    window = older.setting("model", "window")
    context = newer.setting("model", "context_length") or newer.setting("task", "context_length")
    return {
        "wider": f", and the weights they save make it wider ({width} against {before})" if wider else "",
        # every level of a TCN has two convolutions
        "field": f"{1 + 2 * (kernel - 1) * (2**levels - 1):,} tokens" if known else "a limited number of tokens",
        "window": f"{window} tokens" if isinstance(window, int) else "a few tokens",
        "context": f"all of the last {context:,} tokens" if isinstance(context, int) else "all previous tokens",
        "tokens": with_prefix(newer.number("tokens")),
    }


def architecture_lessons(best: Mapping[str, RunData]) -> list[str]:
    """Returns what the best run of each architecture, all on the same data, says about the steps of the history."""
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
        return (
            f"{capitalized(newer)} beats {rival} by {gain} {against}: {step.idea.format_map(step_words(newer, older))}."
        )
    reasons = explain(newer, older) or [step.limit.format_map(step_words(newer, older))]
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
        share = " to ".join(dict.fromkeys((f"{100 * least:.0f}", f"{100 * most:.0f}")))
        kept = f"each keeps {share} % of its best {metric}"
        return f"Length makes little difference: on the longest sources ({where}) {kept}."
    single = worst.model == "seq2seq"
    why = ": one state has to hold the whole source, while attention keeps all of it in view" if single else ""
    return (
        f"On the longest sources ({where}) {name(worst)} keeps {100 * least:.0f} % of its best {metric}, {name(top)} "
        f"{100 * most:.0f} %{why}."
    )
