"""The page of a comparison: which model is best, what it cost, and why."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.config import dump_yaml, set_path
from ..core.measures import NONE, measure, phrase, shown, told
from . import charts
from .figures import Figures, ranked
from .glossary import glossary
from .lessons import lessons
from .numbers import scaled, seconds, whole
from .page import (
    block,
    bullets,
    dot,
    escape,
    folded,
    group,
    headline,
    noticed,
    page,
    paragraph,
    picture,
    sample,
    section,
    table,
)
from .results import results
from .text import cut
from .views import together
from .words import (
    along_the_way,
    data_name,
    data_notes,
    data_source,
    flat,
    made_by,
    setting_text,
    signatures_text,
    task_title,
)

# Settings that `seriatim compare` takes as options of their own.
OPTIONS = {
    "params": "params",
    "train.steps": "steps",
    "train.epochs": "epochs",
    "train.minutes": "minutes",
    "train.batch": "batch",
    "train.optimiser.rate": "rate",
    "task.length": "length",
    "data.tokenizer.kind": "tokenizer",
    "data.tokenizer.size": "vocabulary",
    "data.column": "column",
    "data.target": "target",
    "task.pooling": "pooling",
    "task.horizon": "horizon",
    "data.encoding": "encoding",
    "data.valid": "valid",
    "data.test": "test",
    "seed": "seed",
}


def comparison_page(figures: Sequence[Figures], failed: Mapping[str, str]) -> str:
    ordered = ranked(figures)
    one = ordered[0]
    common, different = settings_of(figures)
    runs = [each.run for each in figures]
    sections = [
        headline(_headline(ordered)),
        section("Results", results(ordered), _signatures(ordered)),
        _failures(failed),
        section("What to notice", noticed(lessons(runs))),
        together(ordered),
        learning(figures),
        _trade_off(ordered),
        samples(ordered),
        section("Data", paragraph(data_source(one), "note"), bullets(data_notes(one))),
        glossary(ordered),
        section(
            "Settings",
            differing(figures, different),
            folded("Settings that all models share", block(nested(common))),
            paragraph("The command for this comparison; what else was changed goes behind it with --set a.b=c:"),
            block(_command(figures, failed, common)),
        ),
    ]
    title = f"{len(figures)} model{'' if len(figures) == 1 else 's'} on {data_name(one)}"
    over = f"Seriatim {one.summary.get('version', '')} · comparison"
    return page(title, over, f"{task_title(one)}. {_terms(figures)}", sections, made_by(one))


def _terms(figures: Sequence[Figures]) -> str:
    """Under what terms the models were compared."""
    common, _ = settings_of(figures)
    params, minutes = common.get("params"), common.get("train.minutes")
    steps, epochs = common.get("train.steps"), common.get("train.epochs")
    lengths = [
        f"{seconds(60 * minutes)} of training each" if minutes else "",
        f"{whole(steps)} steps each" if steps else "",
        f"{epochs:g} passes over the data each" if epochs else "",
    ]
    terms = [
        f"about {scaled(params)} parameters each" if params else "",
        next((text for text in lengths if text), ""),
        "one seed",
    ]
    return f"Same data, same split; {', '.join(term for term in terms if term)}."


def _headline(ordered: Sequence[Figures]) -> list[tuple[str, str, str]]:
    best = ordered[0]
    learned = [one for one in ordered if not one.counts]
    spent = [one.number("seconds") or 0 for one in ordered]
    cards = []
    if best.reached() is not None:
        unit = f" {best.unit} per token" if best.unit and best.main == "loss" else ""
        cards.append(("Best model", best.label, f"validation {told(best.main, best.reached())}{unit}"))
    valid = best.measures("valid")
    others = [name for name in best.columns if name != best.main and name in valid]
    if others:
        first, *rest = others
        remark = ", ".join(told(name, valid[name]) for name in rest[:2])
        cards.append((f"Its {phrase(first)}", shown(first, valid[first]), remark))
    fast = max(learned, key=lambda one: one.number("tokens_per_second") or 0, default=None)
    if fast is not None and fast.number("tokens_per_second"):
        pace = scaled(fast.number("tokens_per_second"))
        cards.append(("Fastest to train", fast.label, f"{pace} {fast.element} a second"))
    cards.append(("Training in all", seconds(sum(spent)), f"{len(ordered)} models"))
    return cards


def _signatures(ordered: Sequence[Figures]) -> str:
    told = next((text for one in ordered if (text := signatures_text(one))), "")
    return paragraph(told, "note signature") if told else ""


# Pictures and texts


def learning(figures: Sequence[Figures]) -> str:
    """The main measure over time and over what was read; where it is not the loss, that too."""
    if not any(one.training or one.validation for one in figures):
        return ""
    main, many = ranked(figures)[0].main, figures[0].element
    wanted = [(name, axis) for name in dict.fromkeys([main, "loss"]) for axis in ("seconds", "tokens")]
    pictures = []
    for name, axis in wanted:
        found = [(one.label, one.evaluations(name)) for one in figures]
        ends = "; ".join(f"{label} ends at {shown(name, points[-1].value)}" for label, points in found if points)
        what = "Training and validation loss" if name == "loss" else f"Validation {phrase(name)}"
        over = many if axis == "tokens" else axis
        pictures.append(picture(charts.curves(figures, [axis], name), f"{what} over {over}. {ends}."))
    read = "how much text was read by then" if figures[0].speaks else f"how many {many} were read by then"
    what = phrase(main) if main == "loss" else f"{phrase(main)} and the same loss"
    text = f"The same {what} twice: against the time it took, and against {read}. {along_the_way(figures[0])}".strip()
    return section("Learning", paragraph(text, "note"), group("pair", pictures))


def _trade_off(ordered: Sequence[Figures]) -> str:
    scored = [one for one in ordered if one.reached() is not None]
    if len(scored) < 2:
        return ""
    main = scored[0].main
    costs = {
        "flops": [(one, scaled(one.number("flops"), "FLOP")) for one in scored],
        "seconds": [(one, seconds(one.number("seconds"))) for one in scored],
    }
    labels = {
        axis: "; ".join(f"{one.label} {cost}, {told(main, one.reached())}" for one, cost in found)
        for axis, found in costs.items()
    }
    pictures = [
        picture(
            charts.trade_off([one.run for one in scored], [axis]), f"Validation {phrase(main)} against {axis}: {label}."
        )
        for axis, label in labels.items()
    ]
    text = f"{measure(main).better.capitalize()} is better, further left is cheaper."
    return section("What quality costs", paragraph(text, "note"), group("pair", pictures))


def samples(ordered: Sequence[Figures]) -> str:
    pairs = charts.colours(ordered)
    cards = []
    for one in ordered:
        text = str(one.summary.get("sample") or next((s.get("text", "") for s in reversed(one.run.samples())), ""))
        remark = told(one.main, one.reached()) if one.reached() is not None else ""
        if text.strip() or one.speaks:
            cards.append(sample(one.label, remark, cut(text, 1_500), dot(pairs[one.label])))
    first = ordered[0]
    writes = first.speaks or first.task == "music"
    heading = "What they write" if writes else "How they translate" if first.task == "translate" else "What they answer"
    return section(heading, group("samples", cards)) if cards else ""


def _failures(failed: Mapping[str, str]) -> str:
    parts = [
        f'<div class="failed"><h3>{escape(name)}</h3><pre>{escape(why)}</pre></div>' for name, why in failed.items()
    ]
    return section("Not trained", *parts)


# Settings


def settings_of(figures: Sequence[Figures]) -> tuple[dict[str, Any], list[str]]:
    """Those that all have in common, and the names of those in which they differ."""
    flats = [flat(one.settings) for one in figures]
    names = list(dict.fromkeys(name for values in flats for name in values))
    absent = object()
    same = [name for name in names if all(values.get(name, absent) == flats[0].get(name, absent) for values in flats)]
    return {name: flats[0][name] for name in same}, [name for name in names if name not in same]


def differing(figures: Sequence[Figures], names: Sequence[str]) -> str:
    flats = [flat(one.settings) for one in figures]
    lines = [
        f'<tr><th scope="row"><code>{escape(name)}</code></th>'
        + "".join(f"<td>{escape(setting_text(values[name]) if name in values else NONE)}</td>" for values in flats)
        + "</tr>"
        for name in names
        if name != "model.name"
    ]
    heads = ["Setting", *(one.label for one in figures)]
    return table("Settings in which the models differ.", heads, lines, "settings") if lines else ""


def nested(common: Mapping[str, Any]) -> str:
    values: dict[str, Any] = {}
    for name, value in common.items():
        set_path(values, name, value)
    return dump_yaml(values)


def _command(figures: Sequence[Figures], failed: Mapping[str, str], common: Mapping[str, Any]) -> str:
    one = figures[0]
    models = dict.fromkeys([each.model for each in figures] + list(failed))
    lines = [["seriatim", "compare", one.task]]
    if common.get("data.source") is not None:
        lines.append(["--data", str(common["data.source"])])
    lines.append(["--models", ",".join(models)])
    lines += [[f"--{option}", str(common[name])] for name, option in OPTIONS.items() if common.get(name) is not None]
    return " \\\n    ".join(shlex.join(line) for line in lines)
