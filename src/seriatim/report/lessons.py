"""What a learner should notice in a comparison. Every sentence follows from figures that were measured.

Each architecture is set against the one it replaced. Where it wins, the sentence names the idea that made it win;
where it does not, it says by how much and what the figures point to: too few steps, too little read, too much
learned by heart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..runs import Run
from .figures import Figures, finite, plain, ranked, read, scaled, seconds, whole

DRAW = 0.01  # nats: less than this a second seed may turn round
SLOWER = 1.3  # a throughput smaller by this factor explains something
RECURRENT = ("rnn", "lstm", "gru")
NAMES = {
    "ngram": "the n-gram",
    "mlp": "the window MLP",
    "rnn": "the plain RNN",
    "lstm": "the LSTM",
    "gru": "the GRU",
    "tcn": "the TCN",
    "gpt": "the GPT",
}


@dataclass(frozen=True)
class Step:
    """A step of the history: a model, those of which it replaced the best, and what was new in it."""

    newer: str
    older: tuple[str, ...]
    idea: Callable[[Figures, Figures], str]
    limit: Callable[[Figures], str]  # where nothing else explains that it lost


def _window(one: Figures) -> str:
    size = one.setting("model", "window")
    return f"{size} tokens" if isinstance(size, int) else "a few tokens"


def _field(one: Figures) -> str:
    """How far back a TCN sees: every level holds two convolutions."""
    levels, kernel = one.setting("model", "levels"), one.setting("model", "kernel")
    if not (isinstance(levels, int) and isinstance(kernel, int)):
        return "a limited number of tokens"
    return f"{1 + 2 * (kernel - 1) * (2**levels - 1):,} tokens"


def _wider(one: Figures, older: Figures) -> str:
    """What the weights of the gate that was left out were spent on."""
    width, before = one.setting("model", "width"), older.setting("model", "width")
    if isinstance(width, int) and isinstance(before, int) and width > before:
        return f", and the weights they save make it wider ({width} against {before})"
    return ""


def _context(one: Figures) -> str:
    size = one.setting("model", "context") or one.setting("task", "length")
    return f"all of the last {size:,} tokens" if isinstance(size, int) else "all the tokens before"


LINEAGE = (
    Step(
        "mlp",
        ("ngram",),
        lambda one, older: "its tokens are vectors, so what it learns of one helps with similar ones",
        lambda one: "exact counts are hard to beat where the same phrases come back",
    ),
    Step(
        "rnn",
        ("mlp",),
        lambda one, older: f"its state carries on what it read, where the MLP sees {_window(older)}",
        lambda one: "its gradient fades over many steps, so that it may use little more than a window does",
    ),
    Step(
        "lstm",
        ("rnn",),
        lambda one, older: "its gates keep the gradient alive over many steps",
        lambda one: "what the gates help to remember seems to matter little in this text at this size",
    ),
    Step(
        "gru",
        ("lstm",),
        lambda one, older: f"two gates are enough here{_wider(one, older)}",
        lambda one: "the separate memory cell of the LSTM seems to be worth its weights here",
    ),
    Step(
        "tcn",
        RECURRENT,
        lambda one, older: f"it sees {_field(one)} at once, and its gradient has a short way",
        lambda one: f"it sees {_field(one)} and nothing before them, while a state has no such edge",
    ),
    Step(
        "gpt",
        ("ngram", "mlp", *RECURRENT, "tcn"),
        lambda one, older: f"attention reaches {_context(one)} in one step, wherever they stand",
        lambda one: f"attention has to learn even the order of tokens, from {scaled(one.number('tokens'))} of them",
    ),
)


def lessons(runs: Sequence[Run]) -> list[str]:
    """Short sentences, most telling first. One run is looked at by itself, several are compared."""
    figures = read(runs)
    if len(figures) == 1:
        return _alone(figures[0])
    whole_ones = [one for one in figures if one.loss is not None and not one.interrupted]
    left_out = [_left_out(one) for one in figures if one not in whole_ones]
    if len({str(one.summary.get("data", {}).get("fingerprint")) for one in whole_ones}) > 1:
        return ["These runs saw different data: their losses cannot be compared.", *left_out]
    if len(whole_ones) < 2:
        return left_out
    best = _best_of_each(whole_ones)
    found = [_winner(whole_ones)]
    found += [_step(step, best) for step in LINEAGE]
    found += [_counting(best), _storage(best), _throughput(whole_ones), _bargain(whole_ones)]
    found += [_overfitted(one) for one in whole_ones]
    return [text for text in found if text] + left_out


def _best_of_each(figures: Sequence[Figures]) -> dict[str, Figures]:
    best: dict[str, Figures] = {}
    for one in ranked(figures):
        best.setdefault(one.model, one)
    return best


# The history, step by step


def _winner(figures: Sequence[Figures]) -> str:
    first, second = ranked(figures)[:2]
    gap = _loss(second) - _loss(first)
    close = f"; {_name(second)} comes so near that another seed may turn it round" if gap < DRAW else ""
    return (
        f"Best on the validation data: {_name(first)} with a loss of {plain(first.loss)}, {_apart(gap, first)} "
        f"ahead of {_name(second)}{close}."
    )


def _step(step: Step, best: dict[str, Figures]) -> str:
    newer = best.get(step.newer)
    rivals = ranked([best[name] for name in step.older if name in best])
    if newer is None or not rivals:
        return ""
    older = rivals[0]
    gap = _loss(older) - _loss(newer)
    against = f"({plain(newer.loss)} against {plain(older.loss)})"
    rival = _name(older) if len(step.older) == 1 else f"the best {_kind(step)} before it, {_name(older)},"
    if abs(gap) < DRAW:
        verdict = f"draws level with {rival.rstrip(',')} {against}"
        return f"{_upper(newer)} {verdict}: less than {DRAW} apart, which chance can do."
    if gap > 0:
        return f"{_upper(newer)} beats {rival} by {_apart(gap, newer)} {against}: {step.idea(newer, older)}."
    reasons = _reasons(newer, older) or [step.limit(newer)]
    return (
        f"{_upper(newer)} does not beat {rival} here; it is {_apart(-gap, newer)} behind {against}. "
        f"Likely: {'; '.join(reasons)}."
    )


def _kind(step: Step) -> str:
    return "recurrent network" if step.older == RECURRENT else "model"


def _reasons(newer: Figures, older: Figures) -> list[str]:
    """What the figures say about why a model fell behind."""
    reasons = []
    if _still_falling(newer):
        reasons.append(f"it was still improving when it stopped after {_steps(newer.number('step') or 0)}")
    elif _risen(newer):
        reasons.append(f"it was at its best at step {whole(newer.number('best_step'))} and then learned by heart")
    mine, theirs = newer.number("tokens"), older.number("tokens")
    if mine and theirs and theirs / mine > SLOWER:
        reasons.append(f"it read {scaled(mine)} tokens, {_name(older)} {scaled(theirs)}{_speeds(newer, older)}")
    return reasons


def _still_falling(one: Figures) -> float:
    """By how much the last evaluation was better than the one before, where that is more than chance."""
    if len(one.validation) < 2:
        return 0.0
    fall = one.validation[-2].loss - one.validation[-1].loss
    return fall if fall > DRAW and one.validation[-1].loss <= min(point.loss for point in one.validation) else 0.0


def _risen(one: Figures) -> float:
    """By how much the last evaluation was worse than the best, where that is more than chance."""
    losses = [point.loss for point in one.validation]
    rise = losses[-1] - min(losses) if losses else 0.0
    return rise if rise > DRAW else 0.0


def _speeds(newer: Figures, older: Figures) -> str:
    mine, theirs = newer.number("tokens_per_second"), older.number("tokens_per_second")
    if mine and theirs and not older.counts and theirs / mine > SLOWER:
        return f", at {scaled(mine)} against {scaled(theirs)} a second"
    return ""


# Cost


def _counting(best: dict[str, Figures]) -> str:
    """How long learning needs to pass what counting gives at once."""
    counted = best.get("ngram")
    if counted is None or counted.loss is None:
        return ""
    took = seconds(counted.number("seconds"))
    loss = counted.loss
    passed = [
        (point.seconds, one) for one in best.values() if not one.counts for point in one.validation if point.loss < loss
    ]
    start = f"The n-gram was counted in {took}, without any gradient"
    if not passed:
        return f"{start}; no network got below its {plain(loss)} in the time it had."
    moment, one = min(passed, key=lambda pair: pair[0])
    return f"{start}; the first network to get below its {plain(loss)} was {_name(one)}, after {seconds(moment)}."


def _storage(best: dict[str, Figures]) -> str:
    """What is stored to know so much: counts against shared weights."""
    counted = best.get("ngram")
    others = [one for one in ranked(list(best.values())) if not one.counts]
    if counted is None or not others:
        return ""
    other = others[0]
    sizes = [_on_disk(one) for one in (counted, other)]
    stored = [f", {scaled(size, 'B')} on disk," if size else "" for size in sizes]
    entries, weights = scaled(counted.number("parameters")), scaled(other.number("parameters"))
    return (
        f"The n-gram holds {entries} entries{stored[0]} and each speaks of one sequence of tokens only; {_name(other)} "
        f"has {weights} parameters{stored[1]} and every one serves many contexts."
    )


def _on_disk(one: Figures) -> int:
    file = one.run.path / "model.safetensors"
    return file.stat().st_size if file.is_file() else 0


def _throughput(figures: Sequence[Figures]) -> str:
    speeds = [(one.number("tokens_per_second") or 0, one) for one in figures if not one.counts]
    speeds = sorted(((speed, one) for speed, one in speeds if speed > 0), key=lambda pair: pair[0])
    if len(speeds) < 2:
        return ""
    (low, slow), (high, fast) = speeds[0], speeds[-1]
    if high / low < SLOWER:
        pace = scaled(low) if scaled(low) == scaled(high) else f"{scaled(low)} to {scaled(high)}"
        return f"All networks take in tokens at about the same pace, {pace} a second."
    looped = slow.model in RECURRENT and fast.model not in RECURRENT
    why = ": a recurrent network goes from token to token, the other takes a whole sequence at once" if looped else ""
    return (
        f"{_upper(fast)} trains on {scaled(high)} tokens a second, {_times(high / low)} as many as {_name(slow)} "
        f"({scaled(low)}){why}."
    )


def _bargain(figures: Sequence[Figures]) -> str:
    """A much cheaper model that is nearly as good as the best."""
    ordered = [one for one in ranked(figures) if one.number("flops")]
    if len(ordered) < 2:
        return ""
    top, *others = ordered
    spent = top.number("flops") or 1
    cheaper = [one for one in others if (one.number("flops") or spent) * 2 <= spent and _loss(one) - _loss(top) <= 0.1]
    if not cheaper:
        return ""
    one = min(cheaper, key=lambda other: other.number("flops") or 0)
    ratio = spent / (one.number("flops") or 1)
    return (
        f"{_upper(one)} comes within {_apart(_loss(one) - _loss(top), top)} of {_name(top)} with "
        f"{scaled(one.number('flops'), 'FLOP')} of training; {_name(top)} took {_times(ratio)} as much."
    )


# Single runs


def _alone(one: Figures) -> list[str]:
    if one.interrupted:
        return [_left_out(one, compared=False)]
    return [text for text in (_progress(one), _overfitted(one), _gap(one), _clipped(one)) if text]


def _progress(one: Figures) -> str:
    if one.counts:
        return (
            f"{_upper(one)} was counted in {seconds(one.number('seconds'))}, in one pass over "
            f"{scaled(one.number('tokens'))} tokens and without any gradient."
        )
    if fall := _still_falling(one):
        return (
            f"It was still improving when it stopped: the last evaluation was {_apart(fall, one)} better than "
            "the one before. More steps would help."
        )
    if len(one.validation) > 1 and not _risen(one):
        return f"It has settled: the last evaluation is no more than {DRAW} from the best."
    return ""


def _overfitted(one: Figures) -> str:
    rise = _risen(one)
    if one.counts or not rise:
        return ""
    return (
        f"{_upper(one)} was at its best at step {whole(one.number('best_step'))} of {whole(one.number('step'))} and "
        f"{_apart(rise, one)} worse at the end: it began to learn the text by heart. More text, dropout or fewer "
        "steps help; the best weights were kept."
    )


def _gap(one: Figures) -> str:
    if one.loss is None or not one.training:
        return ""
    tail = one.training[-max(len(one.training) // 20, 1) :]
    gap = _loss(one) - sum(point.loss for point in tail) / len(tail)
    if gap < 0.1:
        return ""
    return (
        f"The loss on new text is {_apart(gap, one)} above that of the last training steps: part of what it knows "
        "is learned by heart."
    )


def _clipped(one: Figures) -> str:
    clip = one.setting("train", "clip")
    norms = [norm for event in one.events("stepped") if (norm := finite(event.get("norm"))) is not None]
    if not norms or not isinstance(clip, float | int):
        return ""
    share = sum(norm > clip for norm in norms) / len(norms)
    return f"The gradient was clipped in {100 * share:.0f} % of the recorded steps (its norm was above {scaled(clip)})."


def _left_out(one: Figures, compared: bool = True) -> str:
    steps = one.number("step")
    where = f" after {_steps(steps)}" if steps else ""
    if one.interrupted:
        how = f"was stopped by {one.reason}" if one.reason.startswith("SIG") else "did not finish"
        behind = ": it is left out of what is said here. `seriatim resume` goes on with it." if compared else ""
        return f"{_upper(one)} {how}{where}{behind or '; `seriatim resume` goes on with it.'}"
    return f"{_upper(one)} has no finite validation loss{where}: it is left out of what is said here."


# Words


def _loss(one: Figures) -> float:
    return float("nan") if one.loss is None else float(one.loss)


def _name(one: Figures) -> str:
    return NAMES.get(one.model, one.label) if one.label == one.model else one.label


def _upper(one: Figures) -> str:
    name = _name(one)
    return f"T{name[1:]}" if name.startswith("the ") else name


def _apart(gap: float, one: Figures) -> str:
    unit = f" {one.unit}" if one.unit else ""
    return f"{plain(gap, 2 if gap >= 0.1 else 3)}{unit}"


def _steps(count: float | int) -> str:
    return f"{whole(count)} step{'' if count == 1 else 's'}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 9.95 else f"{ratio:.0f} times"
