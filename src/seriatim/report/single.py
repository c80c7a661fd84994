"""The page of one run."""

from __future__ import annotations

from . import charts
from .figures import NONE, Figures, percent, plain, scaled, seconds, whole
from .lessons import lessons
from .page import block, bullets, cut, folded, group, headline, noticed, page, paragraph, picture, sample, section
from .words import budget_text, data_name, data_notes, data_source, ended, made_by, settings_text, task_title

SAMPLES = 8  # of those made along the way


def run_page(one: Figures) -> str:
    title = f"{one.model} on {data_name(one)}"
    lead = f"{task_title(one)}. {ended(one)}. {budget_text(one)}"
    sections = [
        headline(_headline(one)),
        section("What to notice", noticed(lessons([one.run]))),
        _curves(one),
        _schedule(one),
        _samples(one),
        section("Data", *_data(one)),
        section("Settings", folded("config.yaml: every setting of this run", block(settings_text(one)))),
    ]
    return page(title, f"Seriatim {one.summary.get('version', '')} · run", lead, sections, _foot(one))


def _headline(one: Figures) -> list[tuple[str, str, str]]:
    valid, test = one.measures("valid"), one.measures("test")
    unit = f"{one.unit} per token" if one.unit else ""
    figures = [("Validation loss", plain(valid.get("loss")), unit)]
    if test:
        figures.append(("Test loss", plain(test.get("loss")), unit))
    if "perplexity" in valid:
        bits = valid.get("bits_per_character")
        remark = "" if bits is None else f"{plain(bits)} bits per character"
        figures.append(("Validation perplexity", plain(valid["perplexity"], 2), remark))
    size = "entries" if one.counts else "parameters"
    off = f"{percent(one.off_budget)} from the {scaled(one.budget)} wanted" if one.off_budget is not None else ""
    steps, tokens = one.number("step"), one.number("tokens")
    work = "one pass" if one.counts else f"{whole(steps)} steps" if steps is not None else ""
    figures += [
        (size.capitalize(), scaled(one.number("parameters")), off),
        ("Training time", seconds(one.number("seconds")), work),
        ("Tokens read", scaled(tokens), f"{scaled(one.number('tokens_per_second'))} a second"),
        ("Training compute", scaled(one.number("flops"), "FLOP"), "nothing is multiplied" if one.counts else ""),
        ("Peak memory", scaled(one.number("memory"), "B"), ""),
    ]
    return figures


def _curves(one: Figures) -> str:
    if one.counts or not (one.training or one.validation):
        return ""
    last = one.validation[-1].loss if one.validation else None
    ends = f"; the last validation loss is {plain(last)}" if last is not None else ""
    pictures = [
        picture(charts.curves([one.run], [axis]), f"Training and validation loss of {one.label} over {axis}{ends}.")
        for axis in ("seconds", "tokens")
    ]
    return section("Learning", group("pair", pictures))


def _schedule(one: Figures) -> str:
    if not one.events("stepped"):
        return ""
    clip = one.setting("train", "clip")
    labels = {
        "rate": f"The learning rate of {one.label} over its steps.",
        "norm": f"The norm of the gradient of {one.label} over its steps; clipped above {clip or NONE}.",
    }
    pictures = [picture(charts.schedule(one.run, [part]), label) for part, label in labels.items()]
    return section("Schedule", group("pair", pictures))


def _samples(one: Figures) -> str:
    """What it wrote as it learned: the first and the last, and some between at even distances."""
    found = one.run.samples()
    count = min(len(found), SAMPLES)
    chosen = [found[round(index * (len(found) - 1) / max(count - 1, 1))] for index in range(count)]
    losses = {point.step: point.loss for point in one.validation}
    cards = [
        sample(
            "As counted" if one.counts else f"Step {whole(entry.get('step'))}",
            f"loss {plain(losses[entry['step']])}" if entry.get("step") in losses else "",
            cut(str(entry.get("text", "")), 1_500),
        )
        for entry in chosen
    ]
    if not cards:
        return ""
    title = "What it writes" if one.counts else "What it wrote as it learned"
    return section(title, group("samples", cards))


def _data(one: Figures) -> list[str]:
    return [paragraph(data_source(one), "note"), bullets(data_notes(one))]


def _foot(one: Figures) -> str:
    return f"{made_by(one)} Folder: {one.run.path}"
