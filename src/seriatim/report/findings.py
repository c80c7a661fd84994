"""What a reader should notice in a run. Every sentence follows from measured numbers.

Findings that any task may have are declared as data: a condition on the values of a run (`Facts`), and the sentence
that it gives. Those of its task are stored in the run. What to notice in a comparison is in `verdict.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..core.files import Json
from ..core.findings import Finding
from ..core.metrics import (
    describe_metric,
    finite,
    format_metric,
    get_metric,
    is_better,
    label_in_sentence,
    metric_label,
)
from ..core.text import format_amount, format_decimals, format_duration, format_number, one_line, plural
from .charts import Confusion
from .run_charts import clipped_steps, clipping_note
from .run_data import RunData, ranked, shared_baselines
from .significance import ALPHA, format_p, p_value

CHANCE_IN_NATS = 0.01  # a difference between two evaluations of a loss that is noise
USED = 0.95  # a smaller share of the time budget is worth a sentence
MAX_NAMED = 5  # classes in a sentence


# Words


def noun_phrase(run: RunData) -> str:
    """Returns the run's name in a sentence."""
    return run.label if run.title == run.label else f"the {run.title}"


def sentence_start(run: RunData) -> str:
    """Returns the run's name at the start of a sentence."""
    text = noun_phrase(run)
    return f"T{text[1:]}" if text.startswith("the ") else text


def enumerated(names: Sequence[str]) -> str:
    """Returns "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def score(run: RunData) -> float:
    """Returns the number that ranks runs, NaN if there is none; lower is better."""
    return math.nan if run.score is None else float(run.score)


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


def format_spread(run: RunData, metric: str, split: str = "validation") -> str:
    """Returns the standard deviation of a metric over the seeds, "± 0.004" or of a share "± 0.6"; "" without one."""
    spread, declared = run.spread(split, metric), get_metric(metric)
    if spread is None:
        return ""
    return f"± {format_decimals(100 * spread if declared.percent else spread, declared.digits)}"


def format_reached(run: RunData) -> str:
    """Returns the main metric on the validation split: "a loss of 1.470", "an accuracy of 84 ± 0.4 % over 3 seeds"."""
    text = label_in_sentence(run.main)
    vowel = text[0] in "aeio" if text[1:2].islower() else text[0] in "AEFHILMNORSXs"
    value, spread = format_metric(run.main, run.reached()), format_spread(run, run.main)
    if spread:
        seeds = f" over {len(run.values('validation', run.main))} seeds"
        value = (f"{value[:-2]} {spread} %" if value.endswith(" %") else f"{value} {spread}") + seeds
    if text.startswith("bits per"):
        return f"{value} {text}"
    return f"a{'n' if vowel else ''} {text} of {value}"


def times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 9.95 else f"{ratio:.0f} times"


# Values of a run


def chance(run: RunData, metric: str = "") -> float:
    """Returns a difference of two evaluations of a run, by default in the monitored metric, that is noise.

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


def monitored(run: RunData) -> list[float]:
    """Returns the monitored metric of each evaluation, with a minus if higher is better: the best is the lowest."""
    sign = -1 if get_metric(run.monitor).direction == "higher" else 1
    return [sign * point.value for point in run.evaluations(run.monitor)]


def last_improvement(run: RunData) -> float:
    """Returns by how much the last evaluation was better than the one before, 0 if chance can explain it."""
    values = monitored(run)
    if len(values) < 2:
        return 0.0
    fall = values[-2] - values[-1]
    return fall if fall > chance(run) and best_is_last(run) else 0.0


def best_is_last(run: RunData) -> bool:
    """Returns whether the last evaluation was the best; among equals `best_step` decides."""
    values = monitored(run)
    if len(values) < 2 or values[-1] > min(values):
        return False
    return values.count(values[-1]) == 1 or run.evaluations(run.monitor)[-1].step == run.results.best_step


def final_rise(run: RunData) -> float:
    """Returns by how much the last evaluation was worse than the best, 0 if chance can explain it."""
    values = monitored(run)
    rise = values[-1] - min(values) if values else 0.0
    return rise if rise > chance(run) else 0.0


@dataclass(frozen=True)
class Facts:
    """The values of one run that findings are about; those in the sentences are texts."""

    run: RunData

    @cached_property
    def losses(self) -> list[float]:
        return [point.value for point in self.run.evaluations("loss")]

    @property
    def step(self) -> str:
        return f"{self.run.results.step or 0:,}"

    @property
    def best_step(self) -> str:
        return f"{self.run.results.best_step or 0:,}"

    @property
    def gain(self) -> str:
        return format_difference(last_improvement(self.run), self.run)

    @property
    def rise(self) -> str:
        return format_difference(final_rise(self.run), self.run)

    @property
    def noise(self) -> str:
        return format_difference(chance(self.run), self.run)

    @property
    def overfitted(self) -> bool:
        """Whether the last evaluation is worse than the best, in the monitored metric and in the loss."""
        losses = {point.step: point.value for point in self.run.evaluations("loss")}
        best = losses.get(int(self.run.results.best_step or 0))
        return bool(not self.run.gradient_free and final_rise(self.run) and best is not None and self.losses[-1] > best)

    @property
    def overconfident(self) -> bool:
        """Whether the loss rises while the monitored metric holds: wrong and near-certain probabilities."""
        rising = len(self.losses) > 2 and self.losses[-1] > 1.1 * min(self.losses)
        return self.run.monitor != "loss" and rising and not final_rise(self.run)

    @property
    def loss_change(self) -> str:
        return f"from {format_metric('loss', min(self.losses))} to {format_metric('loss', self.losses[-1])}"

    @cached_property
    def unpredicted(self) -> str:
        """The classes that occur in the evaluated split and are never predicted, with their number; "" if none."""
        split, views = self.run.evaluation
        for view in views:
            if isinstance(view, Confusion):
                rows = [sum(line) for line in view.counts]
                columns = [sum(line[n] for line in view.counts) for n in range(len(rows))]
                never = [n for n, count in enumerate(rows) if count and not columns[n]]
                named = [f"{one_line(view.labels[n])} ({rows[n]:,} of {sum(rows):,})" for n in never[:MAX_NAMED]]
                named += [f"{len(never) - MAX_NAMED} others"] if len(never) > MAX_NAMED else []
                return f"{enumerated(named)} on the {split} split" if named else ""
        return ""

    @property
    def ended_early(self) -> bool:
        """Whether a training used less than its time budget, for another reason than that it no longer improved."""
        return (self.run.time_used or 1.0) < USED and self.run.reason not in ("patience", "eliminated")

    @property
    def time(self) -> str:
        limit = format_duration(self.run.time_budget)
        return f"{format_duration(self.run.results.seconds)} of {limit} ({100 * (self.run.time_used or 0):.0f} %)"

    @cached_property
    def memorized(self) -> str:
        """How far the validation loss is above the loss of the last training steps; "" if they are close."""
        loss = finite(self.run.metrics("validation").get("loss"))
        if loss is None or not self.run.training:
            return ""
        tail = self.run.training[-max(len(self.run.training) // 20, 1) :]
        before = sum(point.value for point in tail) / len(tail)
        if self.run.loss_unit and loss - before >= 0.1:
            gap = f"{format_difference(loss - before, self.run, 'loss')} above"
        elif not self.run.loss_unit and before > 0 and loss >= 1.5 * before:
            gap = times(loss / before)
        else:
            return ""
        against = f"({format_metric('loss', loss)} against {format_metric('loss', before)})"
        return f"its validation loss is {gap} that of the last training steps {against}"

    @property
    def fit(self) -> str:
        took = format_duration(self.run.results.seconds)
        return f"{took}, one pass over {format_amount(self.run.results.tokens)} {self.run.unit}"


# Findings about one run, as data


@dataclass(frozen=True)
class Rule:
    """A finding that any task may have.

    Args:
        when: Whether it holds, from the values of the run.
        claim: See `Finding`.
        detail: The numbers behind it, a format string with the names of `Facts`.
        advice: What follows from it.
    """

    when: Callable[[Facts], object]
    claim: str
    detail: str
    advice: str = ""

    def apply(self, facts: Facts) -> list[Finding]:
        """Returns the finding if it holds for a run."""
        return [Finding(self.claim, self.detail.format(facts), self.advice)] if self.when(facts) else []


WARNINGS = (
    Rule(
        lambda facts: facts.unpredicted,
        "never predicted classes that occur",
        "{0.unpredicted}",
        "Look at the metrics by label before you trust the total.",
    ),
    Rule(
        lambda facts: facts.ended_early,
        "did not use all of the time",
        "{0.time}",
        "More steps were possible.",
    ),
    Rule(
        lambda facts: facts.overfitted,
        "began to overfit",
        "best at step {0.best_step} of {0.step}, {0.rise} worse at the end",
        "More data, dropout or fewer steps help; the best weights were kept.",
    ),
    Rule(
        lambda facts: facts.overconfident,
        "became overconfident",
        "the validation loss rises {0.loss_change} while the metric holds",
        "More data or dropout helps.",
    ),
    Rule(
        lambda facts: facts.run.reason != "eliminated" and last_improvement(facts.run),
        "stopped while still improving",
        "the last evaluation was {0.gain} better than the one before",
        "A longer training is likely to help.",
    ),
)
OF_ONE_RUN = (
    Rule(lambda facts: facts.run.gradient_free, "was fitted without gradients", "{0.fit}"),
    Rule(
        lambda facts: best_is_last(facts.run) and not last_improvement(facts.run),
        "was best at its last evaluation",
        "step {0.step}",
        "Whether a longer training would help cannot be seen from here.",
    ),
    Rule(
        lambda facts: len(facts.losses) > 2 and not best_is_last(facts.run) and not final_rise(facts.run),
        "stopped improving",
        "best at step {0.best_step} of {0.step}, and within {0.noise} of it at the end",
    ),
    Rule(lambda facts: facts.memorized, "fits the training split better than the validation split", "{0.memorized}"),
)


# Sentences


def describe_findings(runs: Sequence[RunData], rules: Sequence[Rule]) -> list[str]:
    """Returns a sentence for each finding, about all runs that have it, those of the task first.

    A run of several seeds has a finding if most of its seeds have it; the details come from the first of these.
    """
    held: dict[str, list[tuple[RunData, Finding, str]]] = {}  # claim → run, finding, share of the seeds
    for run in runs:
        finished = [one for one in run.runs if not one.interrupted]
        own: dict[str, list[Finding]] = {}
        for one in finished:
            facts = Facts(one)
            for finding in [*one.findings, *(found for rule in rules for found in rule.apply(facts))]:
                own.setdefault(finding.claim, []).append(finding)
        for claim, findings in own.items():
            if 2 * len(findings) > len(finished):
                seeds = f" ({len(findings)} of {len(finished)} seeds)" if len(finished) > 1 else ""
                held.setdefault(claim, []).append((run, findings[0], seeds))
    order = [rule.claim for rule in rules]
    claims = sorted(held, key=lambda claim: order.index(claim) if claim in order else -1)
    return [describe_finding(held[claim]) for claim in claims]


def describe_finding(held: Sequence[tuple[RunData, Finding, str]]) -> str:
    """Returns the sentence about runs with findings of one claim; see `describe_findings`."""
    first, finding, _ = held[0]
    who = enumerated([noun_phrase(run) for run, *_ in held])
    who = sentence_start(first) + who[len(noun_phrase(first)) :]
    details = [f"{own.detail}{seeds}" for _, own, seeds in held]
    if len(held) > 1:
        details = [f"{noun_phrase(run)}: {detail}" for (run, *_), detail in zip(held, details, strict=True)]
    return f"{who} {finding.claim}: {'; '.join(details)}. {finding.advice}".strip()


def run_lessons(run: RunData) -> list[str]:
    """Returns what to notice in the runs of a single model."""
    if run.interrupted:
        return [exclusion(run, run, compared=False)]
    texts = [against_baselines([run]), *describe_findings([run], (*WARNINGS, *OF_ONE_RUN))]
    texts += [clipping_note(run)] if clipped_steps(run)[0] else []
    return [text for text in texts if text]


def exclusion(run: RunData, one: RunData, compared: bool = True) -> str:
    """Returns why a run, or one of its seeds, is not compared; "" if it is."""
    step = one.results.step
    after = f" after {plural(int(step), 'step')}" if step else ""
    who = sentence_start(run) + (f" with seed {one.setting('seed')}" if len(run.runs) > 1 else "")
    if one.interrupted:
        how = f"was stopped by {one.reason}" if one.reason.startswith("SIG") else "did not finish"
        end = ": it is not compared here." if compared else ";"
        return f"{who} {how}{after}{end} `seriatim resume` continues it."
    if one.score is None:
        return f"{who} has no finite validation {label_in_sentence(one.main)}{after}: it is not compared here."
    return ""


class Standing(NamedTuple):
    """How models stand against the best baseline."""

    split: str
    metric: str
    baseline: str
    bar: float  # what it reached
    scored: list[RunData]  # the best first
    reached: dict[str, float]  # by label

    @property
    def ahead(self) -> list[RunData]:
        return [run for run in self.scored if is_better(self.metric, self.reached[run.label], self.bar)]


def baseline_standing(runs: Sequence[RunData], compared: Sequence[RunData] = ()) -> Standing | None:
    """Returns how models stand against the best baseline of the test split, or else the validation split.

    Args:
        runs: The models to speak of.
        compared: All runs of the comparison, whose baselines count; by default the same.
    """
    for split in ("test", "validation"):
        scored = [run for run in ranked(runs) if run.metrics(split)]
        baselines = shared_baselines(compared or runs, split)
        metric = common_metric(scored, baselines, split)
        if metric:
            values = {key: value for key, own in baselines.items() if (value := finite(own.get(metric))) is not None}
            sign = -1 if get_metric(metric).direction == "higher" else 1
            strongest = min(values, key=lambda key: sign * values[key])
            reached = {run.label: finite(run.metrics(split)[metric]) or 0.0 for run in scored}
            return Standing(split, metric, strongest, float(values[strongest]), scored, reached)
    return None


def metrics_owner(run: RunData) -> str:
    """Returns the subject of a sentence about the metrics of a run: the model, or the part that they are about."""
    part = next((finding.part for finding in run.runs[0].findings if finding.part), "")
    return f"{part[0].upper()}{part[1:]} of {noun_phrase(run)}" if part else sentence_start(run)


def against_baselines(runs: Sequence[RunData], compared: Sequence[RunData] = ()) -> str:
    """Returns how far the best model is ahead of the baselines, or that it is not; see `baseline_standing`."""
    standing = baseline_standing(runs, compared)
    if standing is None:
        return ""
    split, metric, strongest, bar, scored, reached = standing
    ahead, sign = standing.ahead, -1 if get_metric(metric).direction == "higher" else 1
    p = {run.label: p_value(run, split, metric, bar) for run in scored}
    if not ahead:
        top = min(scored, key=lambda run: sign * reached[run.label])
        if math.isclose(reached[top.label], bar, rel_tol=1e-5):  # a model may contain the baseline
            equal = f"{metrics_owner(top)} equals the best baseline, {strongest}"
            return f"{equal}, on the {split} split: {describe_metric(metric, bar)}."
        subject = f"{metrics_owner(top)} does not beat" if len(scored) == 1 else "No model beats"
        whose = "" if len(scored) == 1 else f" of {noun_phrase(top)}, the nearest to it"
        against = f"{describe_metric(metric, bar)} against {format_metric(metric, reached[top.label])}{whose}"
        return f"{subject} the best baseline, {strongest}, on the {split} split: {against}."
    top = ahead[0]
    doubtful = [run for run in scored if run is not top and (run not in ahead or (p[run.label] or 0.0) >= ALPHA)]
    others = [f"{noun_phrase(run)} ({format_metric(metric, reached[run.label])})" for run in doubtful]
    gain = format_difference(abs(reached[top.label] - bar), top, metric)
    against = f"{describe_metric(metric, reached[top.label])} against {format_metric(metric, bar)}"
    rest = f"; not clearly better than it: {', '.join(others)}" if others else ""
    where = f"the best baseline, {strongest}, by {gain} on the {split} split"
    sure = p[top.label]
    if sure is not None and sure < ALPHA:
        return f"{metrics_owner(top)} beats {where} ({against}, {format_p(sure)}){rest}."
    if sure is None and abs(reached[top.label] - bar) < chance(top, metric):
        return f"{metrics_owner(top)} is ahead of {where} ({against}), which may be chance{rest}."
    if sure is None:  # no test: what was measured is said, and no more
        return f"{metrics_owner(top)} is ahead of {where} ({against}){rest}."
    return f"{metrics_owner(top)} is ahead of {where} ({against}, {format_p(sure)}), which may be chance{rest}."


def common_metric(runs: Sequence[RunData], baselines: dict[str, Json], split: str) -> str:
    """Returns the first metric that all runs and at least one baseline have."""
    for metric in runs[0].columns if runs else []:
        in_runs = all(finite(run.metrics(split).get(metric)) is not None for run in runs)
        if in_runs and any(finite(values.get(metric)) is not None for values in baselines.values()):
            return metric
    return ""
