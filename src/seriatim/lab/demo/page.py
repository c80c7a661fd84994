"""The page of the demo: several comparisons, one after the other, in the form that shows what each is about."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...core.metrics import describe_metric, format_metric, metric_label
from ...core.text import format_amount, format_duration
from ...report.charts import Bars, Heatmap, Table, View, row
from ...report.comparison import comparison_terms, result_table, sample_section, split_settings
from ...report.findings import enumerated, noun_phrase, sentence_start
from ...report.pages import Figure, Page, Section, glossary, made_by
from ...report.run_charts import training_curves
from ...report.run_data import RunData, ranked
from ...report.verdict import Verdict, lessons

Part = tuple[str, str, Sequence[RunData]]  # heading, what it is about, and runs in the order of their history
SOLVED = 0.9  # R²; from here on a problem counts as solved
LIMITS = {
    "mlp": "the window MLP sees only the last {window} of the numbers",
    "rnn": "in the plain RNN the gradient vanishes on the way back to the first mark",
}


def demo_page(parts: Sequence[Part], commands: Mapping[str, str], load: float = 0.0) -> Page:
    """Returns the page of the demo.

    Args:
        parts: The comparisons.
        commands: Those to try next, by a sentence about each.
        load: The highest load of the machine when a training ended.
    """
    sections: list[Section] = []
    figures: list[Figure] = []
    for number, (title, text, runs) in enumerate(parts, 1):
        finished = [run for run in runs if run.score is not None]
        heading = f"{number}. {title}"
        if not finished:
            sections.append(Section(heading, paragraphs=[text, "It was interrupted before a model was trained."]))
        elif len(runs) == 1:
            split = finished[0].evaluation[0]
            value = format_metric("exact_match", finished[0].metrics(split).get("exact_match"))
            figures.append(Figure("Translations without a mistake", value, f"of the {split} split"))
            sections.append(translation_section(heading, text, finished[0]))
        elif finished[0].loss_unit:
            best = ranked(finished)[0]
            remark = f"validation {describe_metric(best.main, best.reached())}"
            figures.append(Figure("Best language model", best.title, remark))
            sections += language_sections(heading, text, finished)
        else:
            figures.append(
                Figure("Memory", f"{len(solved(finished))} of {len(finished)} models", f"R² of {SOLVED} or more")
            )
            sections.append(memory_section(heading, text, finished))
    runs = [run for _, _, own in parts for run in own]
    seconds = sum(run.results.seconds or 0 for run in runs)
    figures.append(Figure("Training", format_duration(seconds), f"{len(runs)} models, on this machine"))
    sections.append(Section("Try next", code=list(commands.items())))
    sections.append(glossary([run for run in runs if run.score is not None]))
    lead = "Three problems on built-in data, and models from counting to attention, trained one after the other."
    cores = os.cpu_count() or 1
    if load > cores + 1:
        lead += (
            f" Other programs kept the machine busy (load {load:.1f} on {cores} cores): in the same time the "
            "models made fewer steps than on an idle one. Run the demo again when it is idle."
        )
    reports = enumerated([str(own[0].folder.path.parent / "report.html") for _, _, own in parts])
    foot = f"{made_by(runs[0])} Each part has a page of its own, with every setting: {reports}."
    return Page(
        "demo",
        "Sequence models, generation by generation",
        lead,
        figures,
        sections,
        foot,
        runs[0].results.version,
    )


def language_sections(heading: str, text: str, runs: Sequence[RunData]) -> list[Section]:
    """Returns the table of a comparison, its curves, what to notice, and a sample of each model."""
    ordered, verdict = ranked(runs), Verdict.of(runs)
    terms = comparison_terms(runs, split_settings(runs)[0])
    curves = [training_curves(runs, "seconds"), training_curves(runs, "tokens")]
    return [
        Section(heading, [terms], result_table(ordered, verdict), curves, paragraphs=[text]),
        Section("What to notice", lessons=lessons(runs, verdict)),
        sample_section(ordered),
    ]


def solved(runs: Sequence[RunData]) -> list[RunData]:
    return [run for run in runs if (run.metrics("validation").get("r2") or 0.0) >= SOLVED]


def memory_section(heading: str, text: str, runs: Sequence[RunData]) -> Section:
    """Returns bars of R², its curves over time, and why models failed that did."""
    winners = solved(runs)
    failures = [
        LIMITS[run.model].format(window=run.setting("model", "window"))
        if run.model in LIMITS
        else f"{noun_phrase(run)} had not found it after {run.results.step or 0:,} steps"
        for run in runs
        if run not in winners
    ]
    outcome = (
        f"Solved, with an R² of {SOLVED} or more, by {enumerated([noun_phrase(run) for run in winners])}."
        if winners
        else ""
    )
    reasons = (
        f"Not by the others: {'; '.join(failures)}."
        if failures and winners
        else f"Nobody solved it: {'; '.join(failures)}."
    )
    bars = Bars(
        title="R² on the validation split",
        note="1: always right, 0: no better than a constant",
        labels=[run.label for run in runs],
        values=row([float(run.metrics("validation").get("r2") or 0.0) for run in runs]),
        x=metric_label("r2"),
        metric="r2",
    )
    terms = comparison_terms(runs, split_settings(runs)[0])
    views: list[View] = [bars, training_curves(runs, "seconds", "r2")]
    return Section(heading, [terms], views=views, paragraphs=[text, f"{outcome} {reasons}".strip()])


def translation_section(heading: str, text: str, run: RunData) -> Section:
    """Returns how many translations are right, the alignment of words, and translations of median quality."""
    split, views = run.evaluation
    metrics = run.metrics(split)
    values = ", ".join(describe_metric(name, metrics[name]) for name in ("exact_match", "bleu") if name in metrics)
    alignments = [view for view in views if isinstance(view, Heatmap)]
    tables = [view for view in views if isinstance(view, Table)][-1:]  # of median quality; the worst stand before them
    size = f"{format_amount(run.results.parameters)} parameters"
    time = f"{format_duration(run.results.seconds)} of training"
    terms = f"{sentence_start(run)}, {size}, {time}. On the {split} split: {values}."
    return Section(heading, [terms], views=[*alignments, *tables], paragraphs=[text])
