"""The page of one run."""

from __future__ import annotations

from ..core.measures import finite, phrase, shown, told
from . import charts
from .figures import Figures
from .glossary import glossary
from .lessons import lessons
from .numbers import percent, scaled, seconds, whole
from .page import block, bullets, folded, group, headline, noticed, page, paragraph, picture, sample, section
from .schedule import told as clipping
from .text import cut
from .views import evaluation, inside
from .words import (
    along_the_way,
    budget_text,
    data_name,
    data_notes,
    data_source,
    ended,
    made_by,
    settings_text,
    signatures_text,
    task_title,
)

SAMPLES = 8  # of those made along the way


def run_page(one: Figures) -> str:
    lead = f"{task_title(one)}. {ended(one)}. {budget_text(one)}"
    sections = [
        headline(_headline(one)),
        paragraph(signatures_text(one), "note signature") if one.signatures else "",
        section("What to notice", noticed(lessons([one.run]))),
        evaluation(one),
        _curves(one),
        _schedule(one),
        inside(one),
        _samples(one),
        section("Data", *_data(one)),
        glossary([one]),
        section("Settings", folded("config.yaml: every setting of this run", block(settings_text(one)))),
    ]
    over = f"Seriatim {one.summary.get('version', '')} · run"
    return page(f"{one.model} on {data_name(one)}", over, lead, sections, _foot(one))


def _headline(one: Figures) -> list[tuple[str, str, str]]:
    valid = one.measures("valid")
    figures = [
        (f"{part} {phrase(one.main)}", shown(one.main, one.measures(split).get(one.main)), _beside(one, split))
        for split, part in (("valid", "Validation"), ("test", "Test"))
        if one.measures(split) or split == "valid"
    ]
    others = [name for name in one.columns if name != one.main and name in valid]
    if others:
        first, *rest = others
        remark = ", ".join(told(name, valid[name]) for name in rest[:3])
        figures.append((f"Validation {phrase(first)}", shown(first, valid[first]), remark))
    size = "entries" if one.counts else "parameters"
    off = f"{percent(one.off_budget)} from the {scaled(one.budget)} wanted" if one.off_budget is not None else ""
    steps = one.number("step")
    work = "one pass" if one.counts else f"{whole(steps)} steps" if steps is not None else ""
    many = one.element.capitalize()
    figures += [
        (size.capitalize(), scaled(one.number("parameters")), off),
        ("Training time", seconds(one.number("seconds")), work),
        (f"{many} read", scaled(one.number("tokens")), f"{scaled(one.number('tokens_per_second'))} a second"),
        ("Training compute", scaled(one.number("flops"), "FLOP"), "nothing is multiplied" if one.counts else ""),
        ("Peak memory", scaled(one.number("memory"), "B"), ""),
    ]
    return figures


def _beside(one: Figures, split: str) -> str:
    """What the main measure is to be read against: its unit, or what the baselines reach."""
    if one.unit and one.main == "loss":
        return f"{one.unit} per token"
    found = [(who, finite(values.get(one.main))) for who, values in one.baselines(split).items()]
    return ", ".join(f"{who} {shown(one.main, value)}" for who, value in found[:3] if value is not None)


def _curves(one: Figures) -> str:
    """The loss over time and over what was read; where something else decides, that in place of the second."""
    if one.counts or not (one.training or one.validation):
        return ""
    wanted = [("loss", "seconds"), ("loss", "tokens") if one.main == "loss" else (one.main, "seconds")]
    pictures = []
    for name, axis in wanted:
        points = one.evaluations(name)
        over = one.element if axis == "tokens" else axis
        ends = f"; the last on the validation data is {shown(name, points[-1].value)}" if points else ""
        what = "Training and validation loss" if name == "loss" else f"Validation {phrase(name)}"
        pictures.append(picture(charts.curves([one.run], [axis], name), f"{what} of {one.label} over {over}{ends}."))
    note = along_the_way(one)
    return section("Learning", *([paragraph(note, "note")] if note else []), group("pair", pictures))


def _schedule(one: Figures) -> str:
    if not one.events("stepped"):
        return ""
    said = clipping(one)
    labels = {
        "rate": f"The learning rate of {one.label} over its steps.",
        "norm": f"The norm of the gradient of {one.label} over its steps. {said}".strip(),
    }
    pictures = [picture(charts.schedule(one, [part]), label) for part, label in labels.items()]
    return section("Schedule", paragraph(said, "note") if said else "", group("pair", pictures))


def _samples(one: Figures) -> str:
    """What it wrote as it learned: the first and the last, and some between at even distances."""
    found = [entry for entry in one.run.samples() if one.speaks or str(entry.get("text", "")).strip()]
    count = min(len(found), SAMPLES)
    chosen = [found[round(index * (len(found) - 1) / max(count - 1, 1))] for index in range(count)]
    values = {point.step: point.value for point in one.evaluations(one.main)}
    cards = [
        sample(
            "As counted" if one.counts else f"Step {whole(entry.get('step'))}",
            told(one.main, values[entry["step"]]) if entry.get("step") in values else "",
            cut(str(entry.get("text", "")), 1_500),
        )
        for entry in chosen
    ]
    if not cards:
        return ""
    writes = one.speaks or one.task == "music"
    verb = "wrote" if writes else "translated" if one.task == "translate" else "answered"
    learned = f"{'How' if verb == 'translated' else 'What'} it {verb} as it learned"
    made = "What it writes" if one.speaks else "What it answers"
    return section(made if one.counts else learned, group("samples", cards))


def _data(one: Figures) -> list[str]:
    return [paragraph(data_source(one), "note"), bullets(data_notes(one))]


def _foot(one: Figures) -> str:
    return f"{made_by(one)} Folder: {one.run.path}"
