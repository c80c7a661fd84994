"""What a learner should notice in a run or in a comparison. Every sentence follows from figures that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.measures import better, finite, measure, phrase, shown, told
from ..runs import Run
from .figures import Figures, baselines_of, ranked, read
from .judging import (
    LOOPED,
    SLOWER,
    apart,
    draw,
    name,
    reached,
    risen,
    score,
    steps,
    still_falling,
    times,
    upper,
)
from .lineage import history, translators
from .numbers import scaled, seconds, whole


def lessons(runs: Sequence[Run]) -> list[str]:
    """Short sentences, most telling first. One run is looked at by itself, several are compared."""
    figures = read(runs)
    if len(figures) == 1:
        return _alone(figures[0])
    whole_ones = [one for one in figures if one.score is not None and not one.interrupted]
    left_out = [_left_out(one) for one in figures if one not in whole_ones]
    if len({str(one.summary.get("data", {}).get("fingerprint")) for one in whole_ones}) > 1:
        return ["These runs saw different data: their measures cannot be compared.", *left_out]
    if len(whole_ones) < 2:
        return left_out
    found = [_winner(whole_ones), _over_baselines(whole_ones)]
    if all(one.speaks for one in whole_ones):
        found += history(_best_of_each(whole_ones))
    if all(one.task == "translate" for one in whole_ones):
        found += translators(_best_of_each(whole_ones))
    found += [_throughput(whole_ones), _bargain(whole_ones)]
    found += [_overfitted(one) for one in whole_ones]
    found.append(_too_sure([one for one in whole_ones if not risen(one)]))
    return [text for text in found if text] + left_out


def _best_of_each(figures: Sequence[Figures]) -> dict[str, Figures]:
    best: dict[str, Figures] = {}
    for one in ranked(figures):
        best.setdefault(one.model, one)
    return best


# Quality


def _winner(figures: Sequence[Figures]) -> str:
    first, second = ranked(figures)[:2]
    gap = score(second) - score(first)
    near = gap < draw(first, first.main)
    close = f"; {name(second)} comes so near that another seed may turn it round" if near else ""
    return (
        f"Best on the validation data: {name(first)} with {reached(first)}, {apart(gap, first, first.main)} "
        f"ahead of {name(second)}{close}."
    )


def _over_baselines(figures: Sequence[Figures]) -> str:
    """How far the best model is ahead of the baselines, or that it is not."""
    for split in ("test", "valid"):
        scored = [one for one in ranked(figures) if one.measures(split)]
        baselines = baselines_of(figures, split)
        chosen = _common(scored, baselines, split)
        if chosen:
            break
    else:
        return ""
    values = {who: float(value) for who, found in baselines.items() if (value := finite(found.get(chosen))) is not None}
    sign = -1 if measure(chosen).better == "higher" else 1
    strongest = min(values, key=lambda who: sign * values[who])
    bar = values[strongest]
    mine = {one.label: float(one.measures(split)[chosen]) for one in scored}
    losers = [one for one in scored if not better(chosen, mine[one.label], bar)]
    part = {"test": "on the test data", "valid": "on the validation data"}[split]
    if len(losers) == len(scored):
        top = min(scored, key=lambda one: sign * mine[one.label])
        nobody = f"{upper(top)} does not beat" if len(scored) == 1 else "No model beats"
        whose = "" if len(scored) == 1 else f" of {name(top)}, the best of them"
        against = f"{told(chosen, bar)} against {shown(chosen, mine[top.label])}{whose}"
        return f"{nobody} the best baseline, {strongest}, {part}: {against}."
    top = next(one for one in scored if one not in losers)
    others = [f"{name(one)} ({shown(chosen, mine[one.label])})" for one in losers]
    rest = f"; not so {', '.join(others)}" if others else ""
    gain = apart(abs(mine[top.label] - bar), top, chosen)
    against = f"{told(chosen, mine[top.label])} against {shown(chosen, bar)}"
    return f"{upper(top)} beats the best baseline, {strongest}, by {gain} {part} ({against}){rest}."


def _common(figures: Sequence[Figures], baselines: dict[str, dict[str, Any]], split: str) -> str:
    """The first measure that all the models and some baseline have."""
    names = figures[0].columns if figures else []
    return next(
        (
            name
            for name in names
            if all(finite(one.measures(split).get(name)) is not None for one in figures)
            and any(finite(values.get(name)) is not None for values in baselines.values())
        ),
        "",
    )


def _overfitted(one: Figures) -> str:
    rise = risen(one)
    if one.counts or not rise or not _rises(one):
        return ""
    heart, more = ("the text", "text") if one.speaks else ("its examples", "data")
    return (
        f"{upper(one)} was at its best at step {whole(one.number('best_step'))} of {whole(one.number('step'))} and "
        f"{apart(rise, one)} worse at the end: it began to learn {heart} by heart. More {more}, dropout or fewer "
        "steps help; the best weights were kept."
    )


def _rises(one: Figures) -> bool:
    """Whether the loss, too, was lower at the step that was best by the objective than at the end."""
    losses = {point.step: point.value for point in one.validation}
    best, last = losses.get(int(one.number("best_step") or 0)), next(reversed(losses.values()), None)
    return best is not None and last is not None and last > best


def _too_sure(figures: Sequence[Figures]) -> str:
    """Where the objective holds, the loss may tell more: probabilities that are wrong and near one."""
    found = []
    for one in figures:
        losses = [point.value for point in one.validation]
        if one.objective != "loss" and len(losses) > 2 and losses[-1] > 1.1 * min(losses):
            found.append((losses[-1] / min(losses), one, min(losses), losses[-1]))
    if not found:
        return ""
    _, worst, low, high = max(found, key=lambda entry: entry[0])
    names = [name(one) for _, one, *_ in found]
    who = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    grow = "grows too sure of itself" if len(names) == 1 else "grow too sure of themselves"
    whose = "" if len(names) == 1 else f"that of {name(worst)} "
    return (
        f"{who[0].upper()}{who[1:]} {grow}: the validation loss rises at the end ({whose}from {shown('loss', low)} to "
        f"{shown('loss', high)}) while the {phrase(worst.main)} holds. More data or dropout helps."
    )


# Cost


def _throughput(figures: Sequence[Figures]) -> str:
    speeds = [(one.number("tokens_per_second") or 0, one) for one in figures if not one.counts]
    speeds = sorted(((speed, one) for speed, one in speeds if speed > 0), key=lambda pair: pair[0])
    if len(speeds) < 2:
        return ""
    (low, slow), (high, fast) = speeds[0], speeds[-1]
    many = fast.element
    if high / low < SLOWER:
        pace = scaled(low) if scaled(low) == scaled(high) else f"{scaled(low)} to {scaled(high)}"
        return f"All networks take in {many} at about the same pace, {pace} a second."
    looped = slow.model in LOOPED and fast.model not in LOOPED
    one = many.removesuffix("s")
    why = f": a recurrent network goes from {one} to {one}, the other takes a whole sequence at once" if looped else ""
    return (
        f"{upper(fast)} trains on {scaled(high)} {many} a second, {times(high / low)} as many as {name(slow)} "
        f"({scaled(low)}){why}."
    )


def _bargain(figures: Sequence[Figures]) -> str:
    """A much cheaper model that is nearly as good as the best."""
    ordered = [one for one in ranked(figures) if one.number("flops")]
    if len(ordered) < 2:
        return ""
    top, *others = ordered
    spent = top.number("flops") or 1
    near = 0.01 if measure(top.main).percent else 0.05 * abs(score(top))
    near = 0.1 if top.unit and top.main == "loss" else near
    cheaper = [one for one in others if (one.number("flops") or spent) * 2 <= spent and score(one) - score(top) <= near]
    if not cheaper:
        return ""
    one = min(cheaper, key=lambda other: other.number("flops") or 0)
    ratio = spent / (one.number("flops") or 1)
    return (
        f"{upper(one)} comes within {apart(score(one) - score(top), top, top.main)} of {name(top)} with "
        f"{scaled(one.number('flops'), 'FLOP')} of training; {name(top)} took {times(ratio)} as much."
    )


# Single runs


def _alone(one: Figures) -> list[str]:
    if one.interrupted:
        return [_left_out(one, compared=False)]
    sure = "" if risen(one) else _too_sure([one])
    found = (_over_baselines([one]), _progress(one), _overfitted(one), sure, _gap(one), _clipped(one))
    return [text for text in found if text]


def _progress(one: Figures) -> str:
    if one.counts:
        return (
            f"{upper(one)} was counted in {seconds(one.number('seconds'))}, in one pass over "
            f"{scaled(one.number('tokens'))} tokens and without any gradient."
        )
    if fall := still_falling(one):
        return (
            f"It was still improving when it stopped: the last evaluation was {apart(fall, one)} better than "
            "the one before. More steps would help."
        )
    if len(one.evaluations(one.objective)) > 1 and not risen(one):
        return f"It has settled: the last evaluation is no more than {apart(draw(one), one)} from the best."
    return ""


def _gap(one: Figures) -> str:
    loss = finite(one.measures("valid").get("loss"))
    if loss is None or not one.training:
        return ""
    tail = one.training[-max(len(one.training) // 20, 1) :]
    before = sum(point.value for point in tail) / len(tail)
    if one.unit and loss - before >= 0.1:
        return (
            f"The loss on new text is {apart(loss - before, one, 'loss')} above that of the last training steps: part "
            "of what it knows is learned by heart."
        )
    if not one.unit and before > 0 and loss >= 1.5 * before:
        return (
            f"The loss on new data is {times(loss / before)} that of the last training steps "
            f"({shown('loss', loss)} against {shown('loss', before)}): part of what it knows is learned by heart."
        )
    return ""


def _clipped(one: Figures) -> str:
    clip = one.setting("train", "clip")
    norms = [norm for event in one.events("stepped") if (norm := finite(event.get("norm"))) is not None]
    if not norms or not isinstance(clip, float | int):
        return ""
    share = sum(norm > clip for norm in norms) / len(norms)
    if not share:
        return ""
    return f"The gradient was clipped in {100 * share:.0f} % of the recorded steps (its norm was above {scaled(clip)})."


def _left_out(one: Figures, compared: bool = True) -> str:
    count = one.number("step")
    where = f" after {steps(count)}" if count else ""
    if one.interrupted:
        how = f"was stopped by {one.reason}" if one.reason.startswith("SIG") else "did not finish"
        behind = ": it is left out of what is said here. `seriatim resume` goes on with it." if compared else ""
        return f"{upper(one)} {how}{where}{behind or '; `seriatim resume` goes on with it.'}"
    return f"{upper(one)} has no finite validation {phrase(one.main)}{where}: it is left out of what is said here."
