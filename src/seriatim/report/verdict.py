"""What a comparison says: which model is best and how sure that is, what it cost, and what the architectures teach.

Models are called different only if a test says so (`significance.py`). Architectures are compared along their history,
each with the one it replaced: where the newer one wins, the sentence names the idea behind it; where it does not, what
the numbers point to: too few steps, too little data, overfitting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.metrics import format_metric, get_metric, is_better, label_in_sentence
from ..core.model_info import History
from ..core.text import format_amount, format_duration
from .charts import BinnedMetric
from .findings import (
    WARNINGS,
    against_baselines,
    baseline_standing,
    describe_findings,
    enumerated,
    exclusion,
    final_rise,
    format_difference,
    format_reached,
    last_improvement,
    noun_phrase,
    run_lessons,
    score,
    sentence_start,
    times,
)
from .run_charts import best_value
from .run_data import RunData, model_info, ranked
from .significance import ALPHA, Difference, Pair, compare_pairs, format_p

MORE_SEEDS = " With --seeds 3 every model is trained three times."
EARLIER = 0.95  # a share of another model's time that is worth a sentence
MAX_SHARES = 4  # listed in one
MAX_TIED = 4  # models listed that do not differ significantly from the best
SLOWER = 1.3  # a speed smaller by this factor is worth a sentence


# Which model is best


@dataclass(frozen=True)
class Verdict:
    """What a comparison says: models that can be compared, best first, and which of their differences are supported."""

    ordered: tuple[RunData, ...]
    differences: Mapping[Pair, Difference]

    @classmethod
    def of(cls, runs: Sequence[RunData]) -> Verdict:
        """Returns the verdict on runs of the same data: each against the best, and along the history.

        Of models at several sizes only the best size of each is tested: the others are points of its curve.
        """
        complete = ranked([run for run in runs if run.score is not None and not run.interrupted])
        if len({run.fingerprint for run in complete}) > 1:
            complete = []
        best = best_of_each(complete)
        several_sizes = len(best) > 1 and len({run.budget for run in complete}) > 1
        tested = list(best.values()) if several_sizes else complete
        pairs = [(complete[0], run) for run in tested[1:]] + history_pairs(best)
        return cls(tuple(complete), compare_pairs(pairs))

    def difference(self, a: RunData, b: RunData) -> Difference:
        """Returns the difference of two models, without a test if they are no pair that was tested."""
        return self.differences.get((a.label, b.label)) or Difference((b.score or 0.0) - (a.score or 0.0))

    @property
    def rivals(self) -> list[RunData]:
        """The models that the best was compared with, best first."""
        return [run for run in self.ordered[1:] if (self.ordered[0].label, run.label) in self.differences]

    @property
    def tied(self) -> list[RunData]:
        """The models that do not differ significantly from the best."""
        return [run for run in self.rivals if not self.difference(self.ordered[0], run).supported]

    def reached_share(self, run: RunData) -> float | None:
        """Returns the share of a model's time in which the best one reached its result; None if it is not behind."""
        difference = self.difference(self.ordered[0], run)
        behind = difference.gap > 0 and (difference.p is None or difference.supported)
        return reached_share(self.ordered[0], run) if behind else None

    @property
    def tests(self) -> str:
        """The tests, in words; "" if there are none."""
        used = {difference.test for difference in self.differences.values() if difference.test}
        count = sum(difference.p is not None for difference in self.differences.values()) // 2
        holm = f", corrected by Holm's method for {count} pairs" if count > 1 else ""
        return f"{' and '.join(sorted(used, reverse=True))}{holm}" if used else ""

    def sentence(self) -> str:
        """Returns which model is best, by how much and how sure that is."""
        if len(self.ordered) < 2:
            return ""
        best, second, tied = self.ordered[0], self.rivals[0], self.tied
        reached = format_reached(best)
        ahead = (
            f"{format_difference(self.difference(best, second).gap, best, best.main)} ahead of {noun_phrase(second)}"
        )
        if not tied:
            highest = max(self.difference(best, run).p or 0.0 for run in self.rivals)
            sure = f"({format_p(highest)}; {self.tests})"
            return (
                f"Best on the validation split: {noun_phrase(best)} with {reached}, {ahead} {sure}.{self.other_seeds}"
            )
        if all(self.difference(best, run).p is None for run in tied):
            if all(run.gradient_free for run in self.ordered):
                return f"{sentence_start(best)} reached {reached}, {ahead}; models without a seed have no test."
            seeds = "one seed cannot tell" if len(best.runs) == 1 else "too few seeds finished to tell"
            return f"{sentence_start(best)} reached {reached}, {ahead}: {seeds} whether that is chance.{MORE_SEEDS}"
        names = [f"{noun_phrase(run)} ({self.describe(best, run)})" for run in tied]
        more = [f"{len(names) - MAX_TIED} others"] if len(names) > MAX_TIED + 1 else names[MAX_TIED:]
        equal = enumerated(names[:MAX_TIED] + more)
        return (
            f"{sentence_start(best)} reached {reached}, but does not differ significantly from {equal}: the difference "
            f"may be chance (p ≥ {ALPHA}; {self.tests}).{self.other_seeds}"
        )

    def describe(self, best: RunData, run: RunData) -> str:
        """Returns how far a run is behind the best, and how sure that is: "0.03 nats behind, p = 0.21"."""
        difference = self.difference(best, run)
        sure = "no test" if difference.p is None else format_p(difference.p)
        return f"{format_difference(difference.gap, best, best.main)} behind, {sure}"

    @property
    def other_seeds(self) -> str:
        """What a test over examples leaves open; "" if seeds were tested."""
        return f" The test is about other examples, not about other seeds.{MORE_SEEDS}" if self.one_seed else ""

    @property
    def one_seed(self) -> bool:
        return all(len(run.runs) == 1 for run in self.ordered)


def lessons(runs: Sequence[RunData], verdict: Verdict | None = None) -> list[str]:
    """Returns short sentences, most important first; one run is described, several are compared."""
    if len(runs) == 1:
        return run_lessons(runs[0])
    complete = [run for run in runs if run.score is not None and not run.interrupted]
    left_out = [text for run in runs for one in run.runs if (text := exclusion(run, one))]
    if len({run.fingerprint for run in complete}) > 1:
        return ["These runs saw different data: their metrics cannot be compared.", *left_out]
    if len(complete) < 2:
        return left_out
    verdict = Verdict.of(runs) if verdict is None else verdict
    best = best_of_each(complete)
    compared = {run.label for run in (*verdict.ordered[:1], *verdict.rivals)}
    shown = [run for run in complete if run.label in compared]
    texts = [verdict.sentence(), against_baselines(shown, complete)]
    texts += describe_findings(shown, WARNINGS)
    texts += [time_to_match(verdict)]
    standing = baseline_standing(shown, complete)
    useless = history(best) == "pairs" and standing is not None and not standing.ahead
    texts += [] if useless else architecture_lessons(best, verdict)  # of models that are worse than a copied sentence
    texts += [throughput(shown), cheaper_alternative(verdict)]
    return [text for text in texts if text] + left_out


def best_of_each(runs: Sequence[RunData]) -> dict[str, RunData]:
    """Returns the best run of each architecture, best first."""
    best: dict[str, RunData] = {}
    for run in ranked(runs):
        best.setdefault(run.model, run)
    return best


# Cost


def reached_share(best: RunData, other: RunData) -> float | None:
    """Returns the share of another model's time in which the best one reached its best evaluation; None if never.

    An evaluation is the earliest moment at which that is known, so it is at most this share.
    """
    values = [point.value for point in other.evaluations(best.main)]
    total, target = other.results.seconds, best_value(best.main, values)
    if other.gradient_free or target is None or not total:
        return None
    curve = best.evaluations(best.main)
    reached = [point.seconds for point in curve if not is_better(best.main, target, point.value)]
    return min(reached) / total if reached else None


def time_to_match(verdict: Verdict) -> str:
    """Returns in which share of their time the best model reached what others reached."""
    best = verdict.ordered[0]
    shares = [(share, run) for run in verdict.rivals if (share := verdict.reached_share(run)) is not None]
    shares = [(share, run) for share, run in shares if share < EARLIER][:MAX_SHARES]
    if best.gradient_free or not shares:
        return ""
    listed = enumerated([f"that of {noun_phrase(run)} in {share:.2g}" for share, run in shares])
    listed = listed.replace("that of", f"the best {label_in_sentence(best.main)} of", 1)
    return f"{sentence_start(best)} reaches {listed} of its time."


def throughput(runs: Sequence[RunData]) -> str:
    speeds = [(run.results.tokens_per_second or 0, run) for run in runs if not run.gradient_free]
    speeds = sorted(((speed, run) for speed, run in speeds if speed > 0), key=lambda pair: pair[0])
    if len(speeds) < 2:
        return ""
    (low, slow), (high, fast) = speeds[0], speeds[-1]
    if high / low < SLOWER:
        pace = " to ".join(dict.fromkeys((format_amount(low), format_amount(high))))
        return f"All networks process {fast.unit} at about the same speed, {pace} per second."
    why, element = "", "token" if fast.unit == "tokens" else "element"
    if slow.info.recurrent and not fast.info.recurrent:
        why = f": a recurrent network goes from {element} to {element}, the other processes a whole sequence at once"
    return (
        f"{sentence_start(fast)} trains on {format_amount(high)} {fast.unit} per second, {times(high / low)} as many "
        f"as {noun_phrase(slow)} ({format_amount(low)}){why}."
    )


def cheaper_alternative(verdict: Verdict) -> str:
    """Returns a sentence on a much cheaper model that does not differ significantly from the best; "" without one."""
    top, cost = verdict.ordered[0], verdict.ordered[0].results.flops
    cheaper = [run for run in verdict.tied if cost and 2 * (run.results.flops or cost) <= cost]
    near = [run for run in cheaper if score(run) - score(top) <= closeness(top)]
    if not cost or not near:
        return ""
    run = min(near, key=lambda other: other.results.flops or 0)
    flops, gap = run.results.flops or 1, format_difference(score(run) - score(top), top, top.main)
    return (
        f"{sentence_start(run)} comes within {gap} of {noun_phrase(top)} with "
        f"{format_amount(flops, 'FLOP')} of training; {noun_phrase(top)} took {times(cost / flops)} as much."
    )


def closeness(run: RunData) -> float:
    """Returns a difference in the main metric that few users would pay for."""
    if run.loss_unit and run.main == "loss":
        return 0.1
    return 0.01 if get_metric(run.main).percent else 0.05 * abs(score(run))


# The history of architectures


@dataclass(frozen=True)
class Step:
    """A step in the lineage: a model, its predecessors, and what it introduced.

    `novelty` explains that it won; `limitation` explains that it lost, if the numbers do not. Both may hold names of
    `step_words`.
    """

    newer: str
    older: tuple[str, ...]
    novelty: str
    limitation: str


def step_words(newer: RunData, older: RunData) -> dict[str, str]:
    """Returns the words that sentences about a step may hold, the `WORDS` of `core.model_info`."""
    width, before = newer.setting("model", "width"), older.setting("model", "width")
    wider = isinstance(width, int) and isinstance(before, int) and width > before
    levels, kernel = newer.setting("model", "levels"), newer.setting("model", "kernel")
    known = isinstance(levels, int) and isinstance(kernel, int)
    window = older.setting("model", "window")
    context = newer.setting("model", "context_length") or newer.setting("task", "context_length")
    return {
        "wider": f", and the weights that this saves make it wider ({width} against {before})" if wider else "",
        # every level of a TCN has two convolutions
        "field": f"{1 + 2 * (kernel - 1) * (2**levels - 1):,} tokens" if known else "a limited number of tokens",
        "window": f"{window} tokens" if isinstance(window, int) else "a few tokens",
        "context": f"all of the last {context:,} tokens" if isinstance(context, int) else "all previous tokens",
        "tokens": format_amount(newer.results.tokens),
    }


def history(best: Mapping[str, RunData]) -> History:
    """Returns the history that the architectures of a comparison belong to; "" if they have none in common."""
    if any(run.info.history == "pairs" for run in best.values()):
        return "pairs"
    return "sequences" if all(run.loss_unit and run.main == "loss" for run in best.values()) else ""


def lineage(best: Mapping[str, RunData]) -> list[Step]:
    """Returns the steps of their history that the architectures of a comparison declare, in its order.

    A model over sequences that is compared with models over pairs is a decoder that attends to the source: it replaced
    the models that do not. What was new in a model that declares no novelty is declared by those that it replaced.
    """
    known, steps = history(best), []
    unattended = tuple(model for model, run in best.items() if run.info.attention_novelty)
    for model, run in best.items():
        info = run.info
        if known and info.history == known and info.predecessors:
            steps.append(Step(model, tuple(info.predecessors), info.novelty, info.limitation))
        elif known == "pairs" and info.history == "sequences":
            steps.append(Step(model, unattended, "", ""))
    for index, step in enumerate(steps):
        declaring = next((best[model].info for model in step.older if model in best and not step.novelty), None)
        if declaring is not None:
            novelty, limitation = declaring.attention_novelty, declaring.attention_limitation
            steps[index] = replace(step, novelty=novelty, limitation=limitation)
    return sorted(steps, key=lambda step: (depth(step.newer), best[step.newer].info.history != known))


def depth(model: str, seen: frozenset[str] = frozenset()) -> int:
    """Returns the largest number of steps that lead to a model, as models declare their predecessors."""
    older = [name for name in model_info(model).predecessors if name not in seen]
    return 1 + max((depth(name, seen | {name}) for name in older), default=-1)


def rivals(step: Step, best: Mapping[str, RunData]) -> tuple[RunData, RunData] | None:
    """Returns the newer model of a step and the best of those it replaced, None if one of them was not trained."""
    older = ranked([best[model] for model in step.older if model in best])
    return (best[step.newer], older[0]) if step.newer in best and older else None


def history_pairs(best: Mapping[str, RunData]) -> list[tuple[RunData, RunData]]:
    """Returns the pairs of models that the lessons about the history compare."""
    return [pair for step in lineage(best) if (pair := rivals(step, best)) is not None]


def architecture_lessons(best: Mapping[str, RunData], verdict: Verdict) -> list[str]:
    """Returns what the best run of each architecture, all on the same data, says about the steps of the history."""
    texts = [compare_step(step, best, verdict) for step in lineage(best)]
    known = history(best)
    if known == "pairs":
        texts.append(length_lesson(best))
    return [*texts, counting_lesson(best), storage_lesson(best)] if known == "sequences" else texts


def compare_step(step: Step, best: Mapping[str, RunData], verdict: Verdict) -> str:
    pair = rivals(step, best)
    if pair is None:
        return ""
    newer, older = pair
    main, difference = newer.main, verdict.difference(newer, older)
    gap, words = difference.gap, step_words(newer, older)
    values = f"{format_metric(main, newer.reached())} against {format_metric(main, older.reached())}"
    kind = "recurrent network" if all(model_info(model).recurrent for model in step.older) else "model"
    rival = noun_phrase(older) if len(step.older) == 1 else f"the best {kind} before it, {noun_phrase(older)},"
    novelty, limitation = step.novelty.format_map(words), step.limitation.format_map(words)
    reasons = "; ".join(explain(newer, older) or ([limitation] if limitation else []))
    if difference.p is None:  # numbers and the idea, no winner
        new = f" What was new: {novelty}." if novelty else ""
        behind = f" If it is behind by more than chance: {reasons}." if gap < 0 and reasons else ""
        return f"{sentence_start(newer)} and {rival.rstrip(',')}: {values}.{new}{behind}"
    against = f"({values}, {format_p(difference.p)})"
    if not difference.supported:
        return (
            f"{sentence_start(newer)} does not differ significantly from {rival.rstrip(',')} {against}: the difference "
            "may be chance."
        )
    if gap > 0:
        why = f": {novelty}" if novelty else ""
        return f"{sentence_start(newer)} beats {rival} by {format_difference(gap, newer, main)} {against}{why}."
    behind = f"{format_difference(-gap, newer, main)} behind {against}"
    likely = f" Likely: {reasons}." if reasons else ""
    return f"{sentence_start(newer)} does not beat {rival} here; it is {behind}.{likely}"


def explain(newer: RunData, older: RunData) -> list[str]:
    """Returns what the numbers say about why a model fell behind."""
    reasons = []
    if last_improvement(newer):
        reasons.append(f"it was still improving when it stopped after {newer.results.step or 0:,} steps")
    elif final_rise(newer):
        reasons.append(f"it was best at step {newer.results.best_step:,} and then overfitted")
    own, other = newer.results.tokens, older.results.tokens
    if own and other and other / own > SLOWER:
        own_speed, other_speed = newer.results.tokens_per_second, older.results.tokens_per_second
        speeds = ""
        if own_speed and other_speed and not older.gradient_free and other_speed / own_speed > SLOWER:
            speeds = f", at {format_amount(own_speed)} against {format_amount(other_speed)} per second"
        reasons.append(
            f"it read {format_amount(own)} {newer.unit}, {noun_phrase(older)} {format_amount(other)}{speeds}"
        )
    return reasons


def counting_lesson(best: Mapping[str, RunData]) -> str:
    """Returns how long gradient descent needs to pass a model that is counted at once."""
    counted = next((run for run in best.values() if run.gradient_free and run.score is not None), None)
    trained = [run for run in best.values() if not run.gradient_free]
    if counted is None or not trained:
        return ""
    took = format_duration(counted.results.seconds)
    loss, start = score(counted), f"{sentence_start(counted)} was counted in {took}, without gradients"
    passed = [(point.seconds, run) for run in trained for point in run.evaluations("loss") if point.value < loss]
    below = format_metric("loss", loss)
    if not passed:
        return f"{start}; no network got below its {below} in the time it had."
    moment, first = min(passed, key=lambda pair: pair[0])
    return f"{start}; the first network below its {below} was {noun_phrase(first)}, after {format_duration(moment)}."


def storage_lesson(best: Mapping[str, RunData]) -> str:
    """Returns what counts and shared weights take on disk."""
    counted = next((run for run in best.values() if run.gradient_free), None)
    trained = [run for run in ranked(list(best.values())) if not run.gradient_free]
    if counted is None or not trained:
        return ""
    stored = []
    for run in (counted, trained[0]):
        file = run.folder.path / "model.safetensors"
        stored.append(f", {format_amount(file.stat().st_size, 'B')} on disk," if file.is_file() else "")
    entries, weights = (format_amount(run.results.parameters) for run in (counted, trained[0]))
    return (
        f"{sentence_start(counted)} has {entries} entries{stored[0]} and each is about one sequence of tokens only; "
        f"{noun_phrase(trained[0])} has {weights} parameters{stored[1]} and every one serves many contexts."
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
    single = bool(worst.info.attention_novelty)
    why = ": one state has to hold the whole source, while attention keeps all of it in view" if single else ""
    return (
        f"On the longest sources ({where}) {noun_phrase(worst)} keeps {100 * least:.0f} % of its best {metric}, "
        f"{noun_phrase(top)} {100 * most:.0f} %{why}."
    )
