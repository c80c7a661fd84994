"""The history of language models, step by step: each architecture is set against the one it replaced.

Where it wins, the sentence names the idea that made it win; where it does not, it says by how much and what the
figures point to: too few steps, too little read, too much learned by heart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.measures import finite, phrase, plain, shown
from .figures import Figures, ranked
from .judging import DRAW, RECURRENT, SLOWER, apart, draw, name, risen, score, steps, still_falling, upper
from .numbers import scaled, seconds, whole


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


AFTER = ("mlp", *RECURRENT, "tcn", "gpt")  # any model with attention after it (Luong et al. 2015)

TRANSLATORS = (
    Step(
        "bahdanau",
        ("seq2seq",),
        lambda one, older: (
            "it looks back at all of the source before every word, which the other has in one state only"
        ),
        lambda one: "one state holds sources as short as these, and where to look has yet to be learned",
    ),
    *(
        Step(
            model,
            ("seq2seq",),
            lambda one, older: "it attends to the source, which the other has in one state only",
            lambda one: "one state holds sources as short as these, and where to look has yet to be learned",
        )
        for model in AFTER
    ),
    Step(
        "transformer",
        ("seq2seq", "bahdanau", *AFTER),
        lambda one, older: "every word reaches every other in one step, in several heads and layers",
        lambda one: f"it has to learn even the order of words, from {scaled(one.number('tokens'))} tokens",
    ),
)


def translators(best: dict[str, Figures]) -> list[str]:
    """The same for encoder–decoders, and what the length of the source does to them."""
    return [*(_step(step, best) for step in TRANSLATORS), _lengths(best)]


def _lengths(best: dict[str, Figures]) -> str:
    """How much of the best that a model reaches at any length is left at the longest."""
    found: dict[str, tuple[float, Figures, str, str]] = {}
    for model, one in best.items():
        view = next((view for view in one.views[1] if view.get("together") == "bleu by length"), None)
        values = [finite(value) or 0.0 for value in view["series"][0][1]] if view is not None else []
        if view is not None and max(values, default=0.0) > 0:
            where = f"{view['bins'][-1]} {view.get('x', '')}"
            found[model] = values[-1] / max(values), one, where, phrase(str(view["measure"]))
    if len(found) < 2 or len({where for _, _, where, _ in found.values()}) > 1:
        return ""
    (least, worst, where, main), *_, (most, top, *_) = sorted(found.values(), key=lambda entry: entry[0])
    shares = f"{100 * least:.0f} %", f"{100 * most:.0f} %"
    if most - least < 0.1:
        kept = shares[0] if shares[0] == shares[1] else f"{100 * least:.0f} to {shares[1]}"
        return f"Length tells them apart little: on the longest sources ({where}) each keeps {kept} of its best {main}."
    plain_one = worst.model == "seq2seq"
    why = ": one state has to hold the whole source, while attention keeps all of it in view" if plain_one else ""
    return (
        f"On the longest sources ({where}) {name(worst)} keeps {shares[0]} of its best {main}, {name(top)} "
        f"{shares[1]}{why}."
    )


def history(best: dict[str, Figures]) -> list[str]:
    """What the best of each architecture says about the steps, and about counting against learning."""
    return [*(_step(step, best) for step in LINEAGE), _counting(best), _storage(best)]


def _step(step: Step, best: dict[str, Figures]) -> str:
    newer = best.get(step.newer)
    rivals = ranked([best[name] for name in step.older if name in best])
    if newer is None or not rivals:
        return ""
    older = rivals[0]
    gap, main = score(older) - score(newer), newer.main
    against = f"({shown(main, newer.reached())} against {shown(main, older.reached())})"
    chance = draw(newer, main)
    rival = name(older) if len(step.older) == 1 else f"the best {_kind(step)} before it, {name(older)},"
    if abs(gap) < chance:
        verdict = f"draws level with {rival.rstrip(',')} {against}"
        less = DRAW if main == "loss" else apart(chance, newer, main)
        return f"{upper(newer)} {verdict}: less than {less} apart, which chance can do."
    if gap > 0:
        return f"{upper(newer)} beats {rival} by {apart(gap, newer, main)} {against}: {step.idea(newer, older)}."
    reasons = _reasons(newer, older) or [step.limit(newer)]
    return (
        f"{upper(newer)} does not beat {rival} here; it is {apart(-gap, newer, main)} behind {against}. "
        f"Likely: {'; '.join(reasons)}."
    )


def _kind(step: Step) -> str:
    return "recurrent network" if step.older == RECURRENT else "model"


def _reasons(newer: Figures, older: Figures) -> list[str]:
    """What the figures say about why a model fell behind."""
    reasons = []
    if still_falling(newer):
        reasons.append(f"it was still improving when it stopped after {steps(newer.number('step') or 0)}")
    elif risen(newer):
        reasons.append(f"it was at its best at step {whole(newer.number('best_step'))} and then learned by heart")
    mine, theirs = newer.number("tokens"), older.number("tokens")
    if mine and theirs and theirs / mine > SLOWER:
        reasons.append(f"it read {scaled(mine)} tokens, {name(older)} {scaled(theirs)}{_speeds(newer, older)}")
    return reasons


def _speeds(newer: Figures, older: Figures) -> str:
    mine, theirs = newer.number("tokens_per_second"), older.number("tokens_per_second")
    if mine and theirs and not older.counts and theirs / mine > SLOWER:
        return f", at {scaled(mine)} against {scaled(theirs)} a second"
    return ""


def _counting(best: dict[str, Figures]) -> str:
    """How long learning needs to pass what counting gives at once."""
    counted = best.get("ngram")
    if counted is None or counted.score is None:
        return ""
    took = seconds(counted.number("seconds"))
    loss = counted.score
    learned = [one for one in best.values() if not one.counts]
    passed = [(point.seconds, one) for one in learned for point in one.validation if point.value < loss]
    start = f"The n-gram was counted in {took}, without any gradient"
    if not passed:
        return f"{start}; no network got below its {plain(loss)} in the time it had."
    moment, one = min(passed, key=lambda pair: pair[0])
    return f"{start}; the first network to get below its {plain(loss)} was {name(one)}, after {seconds(moment)}."


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
        f"The n-gram holds {entries} entries{stored[0]} and each speaks of one sequence of tokens only; {name(other)} "
        f"has {weights} parameters{stored[1]} and every one serves many contexts."
    )


def _on_disk(one: Figures) -> int:
    file = one.run.path / "model.safetensors"
    return file.stat().st_size if file.is_file() else 0
