"""The page of a comparison: which model is best, what it cost, and why."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.config import dump_yaml, set_path
from . import charts
from .figures import NONE, Figures, percent, plain, ranked, scaled, seconds, whole
from .lessons import lessons
from .page import (
    block,
    bullets,
    cut,
    dot,
    escape,
    folded,
    group,
    headline,
    noticed,
    number,
    page,
    paragraph,
    picture,
    sample,
    section,
    table,
)
from .words import ENDINGS, data_name, data_notes, data_source, flat, made_by, setting_text, task_title

# Settings that `seriatim compare` takes as options of their own.
OPTIONS = {
    "params": "params",
    "train.steps": "steps",
    "train.minutes": "minutes",
    "train.batch": "batch",
    "train.optimiser.rate": "rate",
    "task.length": "length",
    "data.tokenizer.kind": "tokenizer",
    "data.tokenizer.size": "vocabulary",
    "data.column": "column",
    "data.valid": "valid",
    "data.test": "test",
    "seed": "seed",
}


def comparison_page(figures: Sequence[Figures], failed: Mapping[str, str]) -> str:
    ordered = ranked(figures)
    one = ordered[0]
    common, different = _settings(figures)
    runs = [each.run for each in figures]
    sections = [
        headline(_headline(ordered)),
        section("Results", _table(ordered)),
        _failures(failed),
        section("What to notice", noticed(lessons(runs))),
        _curves(figures),
        _trade_off(ordered),
        _samples(ordered),
        section("Data", paragraph(data_source(one), "note"), bullets(data_notes(one))),
        section(
            "Settings",
            _different(figures, different),
            folded("Settings that all models share", block(_nested(common))),
            paragraph("The command for this comparison; what else was changed goes behind it with --set a.b=c:"),
            block(_command(figures, failed, common)),
        ),
    ]
    title = f"{len(figures)} model{'' if len(figures) == 1 else 's'} on {data_name(one)}"
    over = f"Seriatim {one.summary.get('version', '')} · comparison"
    return page(title, over, f"{task_title(one)}. {_terms(figures)}", sections, made_by(one))


def _terms(figures: Sequence[Figures]) -> str:
    """Under what terms the models were compared."""
    common, _ = _settings(figures)
    params, minutes, steps = common.get("params"), common.get("train.minutes"), common.get("train.steps")
    terms = [
        f"about {scaled(params)} parameters each" if params else "",
        f"{seconds(60 * minutes)} of training each" if minutes else f"{whole(steps)} steps each" if steps else "",
        "one seed",
    ]
    return f"Same data, same split; {', '.join(term for term in terms if term)}."


def _headline(ordered: Sequence[Figures]) -> list[tuple[str, str, str]]:
    best = ordered[0]
    learned = [one for one in ordered if not one.counts]
    spent = [one.number("seconds") or 0 for one in ordered]
    cards = []
    if best.loss is not None:
        unit = f" {best.unit} per token" if best.unit else ""
        cards.append(("Best model", best.label, f"validation loss {plain(best.loss)}{unit}"))
    perplexity, bits = best.measures("valid").get("perplexity"), best.measures("valid").get("bits_per_character")
    if perplexity is not None:
        cards.append(("Its perplexity", plain(perplexity, 2), f"{plain(bits)} bits per character" if bits else ""))
    fast = max(learned, key=lambda one: one.number("tokens_per_second") or 0, default=None)
    if fast is not None and fast.number("tokens_per_second"):
        cards.append(("Fastest to train", fast.label, f"{scaled(fast.number('tokens_per_second'))} tokens a second"))
    cards.append(("Training in all", seconds(sum(spent)), f"{len(ordered)} models"))
    return cards


# The table


def _table(ordered: Sequence[Figures]) -> str:
    """Columns that no model has a figure for are left out."""
    columns: list[tuple[str, Any]] = [
        ("Validation loss", lambda one: _measure(one, "valid", "loss", 3)),
        ("Test loss", lambda one: _measure(one, "test", "loss", 3)),
        ("Perplexity", lambda one: _measure(one, "valid", "perplexity", 2)),
        ("Bits per character", lambda one: _measure(one, "valid", "bits_per_character", 3)),
        ("Parameters", _size),
        ("Training compute", lambda one: _figure(one, "flops", "FLOP")),
        ("Tokens per second", lambda one: _figure(one, "tokens_per_second")),
        ("Peak memory", lambda one: _figure(one, "memory", "B")),
        ("Time", lambda one: number(one.summary.get("seconds"), seconds(one.summary.get("seconds")))),
        ("Steps", _steps),
    ]
    cells = {head: [cell(one) for one in ordered] for head, cell in columns}
    kept = [head for head, _ in columns if any(cell != NONE for cell in cells[head])]
    pairs = charts.colours(ordered)
    unit = f" Losses in {ordered[0].unit} per token." if ordered[0].unit else ""
    lines = []
    for index, one in enumerate(ordered):
        best = index == 0 and one.loss is not None
        badge = '<span class="badge">best</span>' if best else ""
        name = f'<th scope="row">{dot(pairs[one.label])}{escape(one.label)}{badge}</th>'
        line = "".join(f"<td>{cells[head][index]}</td>" for head in kept)
        opening = '<tr class="best">' if best else "<tr>"
        lines.append(f"{opening}{name}{line}</tr>")
    wanted = {one.budget for one in ordered if one.budget is not None}
    budget = (
        f" Below the parameters: how far they are from the {scaled(wanted.pop())} wanted." if len(wanted) == 1 else ""
    )
    other = " Perplexity and bits are those of the validation data." if "Perplexity" in kept else ""
    caption = f"Best validation loss first.{unit}{other}{budget}"
    return table(caption, ["Model", *kept], lines)


def _measure(one: Figures, split: str, name: str, digits: int) -> str:
    value = one.measures(split).get(name)
    return number(value, plain(value, digits))


def _figure(one: Figures, name: str, unit: str = "") -> str:
    value = one.summary.get(name)
    return number(value, scaled(value, unit))


def _size(one: Figures) -> str:
    value = one.summary.get("parameters")
    what = ["entries"] if one.counts else []
    off = [percent(one.off_budget)] if one.off_budget is not None else []
    remark = ", ".join(what + off)
    return number(value, scaled(value)) + (f"<small>{escape(remark)}</small>" if remark else "")


def _steps(one: Figures) -> str:
    value = one.summary.get("step")
    ending = ENDINGS.get(one.reason, one.reason)
    shown = "one pass" if one.counts else whole(value)
    return f"{number(value, shown)}<small>{escape(ending)}</small>"


# Pictures and texts


def _curves(figures: Sequence[Figures]) -> str:
    runs = [one.run for one in figures]
    if not any(one.training or one.validation for one in figures):
        return ""
    ends = "; ".join(f"{one.label} ends at {plain(one.validation[-1].loss)}" for one in figures if one.validation)
    pictures = [
        picture(charts.curves(runs, [axis]), f"Training and validation loss over {axis}. {ends}.")
        for axis in ("seconds", "tokens")
    ]
    text = "The same losses twice: against the time they took, and against how much text was read by then."
    return section("Learning", paragraph(text, "note"), group("pair", pictures))


def _trade_off(ordered: Sequence[Figures]) -> str:
    scored = [one for one in ordered if one.loss is not None]
    if len(scored) < 2:
        return ""
    labels = {
        "flops": "; ".join(
            f"{one.label} {scaled(one.number('flops'), 'FLOP')}, loss {plain(one.loss)}" for one in scored
        ),
        "seconds": "; ".join(f"{one.label} {seconds(one.number('seconds'))}, loss {plain(one.loss)}" for one in scored),
    }
    pictures = [
        picture(charts.trade_off([one.run for one in scored], [axis]), f"Validation loss against {axis}: {label}.")
        for axis, label in labels.items()
    ]
    text = "Lower is better, further left is cheaper."
    return section("What quality costs", paragraph(text, "note"), group("pair", pictures))


def _samples(ordered: Sequence[Figures]) -> str:
    pairs = charts.colours(ordered)
    cards = []
    for one in ordered:
        text = str(one.summary.get("sample") or next((s.get("text", "") for s in reversed(one.run.samples())), ""))
        remark = f"loss {plain(one.loss)}" if one.loss is not None else ""
        cards.append(sample(one.label, remark, cut(text, 1_500), dot(pairs[one.label])))
    return section("What they write", group("samples", cards))


def _failures(failed: Mapping[str, str]) -> str:
    parts = [
        f'<div class="failed"><h3>{escape(name)}</h3><pre>{escape(why)}</pre></div>' for name, why in failed.items()
    ]
    return section("Not trained", *parts)


# Settings


def _settings(figures: Sequence[Figures]) -> tuple[dict[str, Any], list[str]]:
    """Those that all have in common, and the names of those in which they differ."""
    flats = [flat(one.settings) for one in figures]
    names = list(dict.fromkeys(name for values in flats for name in values))
    absent = object()
    same = [name for name in names if all(values.get(name, absent) == flats[0].get(name, absent) for values in flats)]
    return {name: flats[0][name] for name in same}, [name for name in names if name not in same]


def _different(figures: Sequence[Figures], names: Sequence[str]) -> str:
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


def _nested(common: Mapping[str, Any]) -> str:
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
