"""The pages of several runs: a comparison, and a distillation with its teacher and two students."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from ..core.config import dump_yaml, set_path
from ..core.files import Json
from ..core.metrics import (
    describe_metric,
    displayed_metrics,
    finite,
    format_metric,
    get_metric,
    is_better,
    label_in_sentence,
    main_metric,
    metric_label,
)
from ..core.text import MISSING, clean_text, format_amount, format_change, format_duration, format_number, plural
from .charts import Scatter, Table, View
from .findings import against_baselines, format_difference, format_spread, noun_phrase, sentence_start
from .pages import (
    MAX_SAMPLE,
    Figure,
    Page,
    ResultCell,
    ResultRow,
    ResultTable,
    Sample,
    Section,
    data_section,
    glossary,
    made_by,
    metric_notes,
)
from .run_charts import cost_charts, joined_charts, quality_scatter, training_curves
from .run_data import RunData, mapping, ranked, shared_baselines, shared_metrics
from .scaling import Curve, best_by_size, scaling_curves, scaling_views
from .significance import format_p
from .theme import DARK, LIGHT, series_colors
from .verdict import Verdict, best_of_each, lessons

# Settings that `compare` and `distill` have as options of their own.
OPTIONS = {
    "params": "params", "train.steps": "steps", "train.epochs": "epochs", "train.tokens": "tokens",
    "train.flops": "flops", "train.minutes": "minutes",
    "train.batch_size": "batch-size", "train.optimizer.lr": "lr", "task.context_length": "context-length",
    "task.tokenizer.kind": "tokenizer", "task.tokenizer.vocab_size": "vocab-size", "data.encoding": "encoding",
    "data.validation": "validation", "data.test": "test", "task.pooling": "pooling", "task.horizon": "horizon",
    "seed": "seed",
}  # fmt: skip
ENDS: dict[str, Callable[[float], str]] = {  # of a training without minutes, in words
    "epochs": lambda epochs: f"{epochs:g} epochs each",
    "tokens": lambda tokens: f"{format_amount(tokens)} tokens each",
    "flops": lambda flops: f"{format_amount(flops, 'FLOP')} each",
    "steps": lambda steps: f"{steps:,} steps each",
}
ENDINGS = {"finished": "finished", "minutes": "time limit", "patience": "no more gain", "eliminated": "left the search"}


def dots(runs: Sequence[RunData]) -> dict[str, tuple[str, str]]:
    """Returns the light and the dark color of each run, as charts draw it."""
    labels = [run.label for run in runs]
    light, dark = (series_colors(labels, theme) for theme in (LIGHT, DARK))
    return {label: (light[label], dark[label]) for label in labels}


# Comparison


def comparison_page(runs: Sequence[RunData], failed: Mapping[str, str], tuning: Mapping[str, Json]) -> Page:
    """Returns the page of a comparison: which model is best, what it cost, and why.

    Args:
        runs: A run per model, or several seeds of each.
        failed: Models that were not trained.
        tuning: Model → the search for its learning rate.
    """
    ordered, verdict = ranked(runs), Verdict.of(runs)
    first, curves = ordered[0], scaling_curves(runs)
    best = ranked(list(best_of_each(ordered).values())) if curves else ordered  # of each model its best size
    of_sizes = "Of each model its best size." if curves else ""
    common, different = split_settings(runs)
    splits = {run.evaluation[0] for run in best if run.evaluation[1]}
    joined = joined_charts(best, [run.evaluation[1] for run in best]) if len(splits) == 1 else []
    direction = get_metric(first.main).direction
    cost_note = f"{direction.capitalize()} is better, further left is cheaper."
    command = comparison_command(runs, failed, common, tuning)
    compared = [*verdict.ordered[:1], *verdict.rivals]
    answer = [text for text in (verdict.sentence(), against_baselines(compared, verdict.ordered)) if text]
    sections = [
        Section("", paragraphs=answer, code=longer_training(verdict)),
        Section("Results", metric_notes(first), result_table(ordered, verdict)),
        Section("Not trained", failures=list(failed.items())),
        Section("What to notice", lessons=[text for text in lessons(runs, verdict) if text not in answer]),
        scaling_section(runs, curves),
        learning_section([run for run in runs if run in best], ordered[0].main, of_sizes),
        Section("Quality and cost", [cost_note], cost_table(ordered), cost_charts(ordered)),
        tuning_section(tuning),
        sample_section(best),
        Section(f"Predictions on the {next(iter(splits), '')} split", views=joined),
        Section("Inside the models", views=joined_charts(best, [run.inspection for run in best])),
        data_section(first),
        glossary(ordered),
        Section(
            "Settings",
            views=settings_table(runs, different),
            details=[("Settings that all models share", dump_yaml(nested(common)))],
            code=[("The command of this comparison; other changes follow it as --set a.b=c:", command)],
        ),
    ]
    title = f"{plural(len(runs), 'model')} on {first.data_name}"
    lead = f"{first.task_summary}. {comparison_terms(runs, common)}"
    version = first.results.version
    return Page("comparison", title, lead, comparison_figures(ordered, verdict), sections, made_by(first), version)


def comparison_terms(runs: Sequence[RunData], common: Json) -> str:
    """Returns under which conditions the models were compared."""
    params, minutes = common.get("params"), common.get("train.minutes")
    length = next((form(common[f"train.{end}"]) for end, form in ENDS.items() if common.get(f"train.{end}")), "")
    if minutes:
        clock = "processor time" if common.get("train.clock") == "cpu" else "training"
        length = f"{format_duration(60 * minutes)} of {clock} each, evaluations not counted"
        if any(run.reason == "eliminated" for run in runs):
            best = f"the best to {format_duration(60 * minutes)}, evaluations not counted"
            length = f"a search in rounds, after each of which the better half of the models trained on, {best}"
    seeds = list(dict.fromkeys(one.setting("seed") for run in runs for one in run.runs))
    seeded = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else "one seed"
    sizes = sorted({run.budget for run in runs if run.budget is not None})
    size = f"about {', '.join(map(format_amount, sizes))} parameters{' each' if params else ''}" if sizes else ""
    threads = {one.results.threads for run in runs for one in run.runs if one.results.threads}
    on = "on one thread" if threads == {1} else "" if len(threads) < 2 else "on different numbers of threads"
    terms = [size, length, on, seeded]
    count = sum(len(run.runs) for run in runs)
    total = format_duration(sum(one.results.seconds or 0 for run in runs for one in run.runs))
    trainings = f"{plural(count, 'training')}, {total} in total"
    return f"Same data, same split; {', '.join(term for term in terms if term)}. {trainings}."


def comparison_figures(ordered: Sequence[RunData], verdict: Verdict) -> list[Figure]:
    """Returns what a reader wants to know first: which model, by how much, how sure, at what cost."""
    best = ordered[0]
    if best.reached() is None:
        return []
    unit = f" {best.loss_unit} per token" if best.loss_unit and best.main == "loss" else ""
    reached = f"validation {describe_metric(best.main, best.reached())} {format_spread(best, best.main)}".rstrip()
    tied = verdict.tied if verdict.ordered else []
    untested = bool(tied) and all(verdict.difference(best, run).p is None for run in tied)
    head = "Best model" if not tied else "Best so far" if untested else "Best models"
    models = [best] if untested or not tied else [best, *tied]
    value = " or ".join(run.title for run in models[:3]) + (f" or {len(models) - 3} others" if len(models) > 3 else "")
    figures = [Figure(head, value, f"{reached}{unit}" if len(models) == 1 else f"{best.title}: {reached}{unit}")]
    if len(verdict.ordered) > 1:
        second = next((run for run in verdict.rivals if run not in models), verdict.rivals[0])
        difference = verdict.difference(best, second)
        figures.append(
            Figure("Ahead by", format_difference(difference.gap, best, best.main), f"of {noun_phrase(second)}")
        )
        if difference.p is None:
            figures.append(Figure("How sure", "not tested", "one seed; --seeds 3 trains every model three times"))
        else:
            sure = format_p(difference.p) if difference.supported else f"may be chance, {format_p(difference.p)}"
            figures.append(Figure("How sure", sure, difference.test))
    cost = [f"{format_amount(best.results.parameters)} {'entries' if best.gradient_free else 'parameters'}"]
    cost += [format_amount(best.results.flops, "FLOP")] if best.results.flops else []
    cost += [f"{format_duration(best.results.cpu_seconds)} of processor time"] if best.results.cpu_seconds else []
    cost += [f"{format_amount(best.results.memory, 'B')} of memory"] if best.results.memory else []
    return [*figures, Figure(f"Cost of {best.title}", format_duration(best.results.seconds), ", ".join(cost))]


def longer_training(verdict: Verdict) -> list[tuple[str, str]]:
    """Returns the command that trains the best network ten times as long, with a sentence; empty if there is none."""
    best = next((run for run in verdict.ordered if not run.gradient_free), None)
    if best is None or str(best.setting("data", "source")).startswith("<"):  # data in memory
        return []
    ends = {end: finite(best.setting("train", end)) for end in ("minutes", *ENDS)}
    end, value = next(((end, value) for end, value in ends.items() if value), ("steps", best.results.step or 0))
    longer = f"{10 * value:g}" if end in ("minutes", "epochs", "flops") else f"{10 * value:.0f}"
    command = ["seriatim", "train", "--config", str(best.folder.path / "config.yaml"), f"--{end}", longer]
    which = ", the best network," if best is not verdict.ordered[0] else ""
    return [(f"{sentence_start(best)}{which} ten times as long, from the start:", shlex.join(command))]


def result_table(ordered: Sequence[RunData], verdict: Verdict) -> ResultTable:
    """Returns a row per model, best first, and below them the baselines; columns without numbers are left out."""
    main, *others = shared_metrics(ordered) or ["loss"]
    columns = [(f"{split.capitalize()} {label_in_sentence(main)}", main, split) for split in ("validation", "test")]
    columns += [(metric_label(name), name, "validation") for name in others]
    columns = [
        column for column in columns if any(run.metrics(column[2]).get(column[1]) is not None for run in ordered)
    ]
    best, several = (verdict.ordered or ordered)[0], len(verdict.ordered) > 1
    shares = {run.label: verdict.reached_share(run) for run in verdict.ordered[1:]}
    earlier = any(share is not None for share in shares.values())
    equal = [best, *verdict.tied] if several and len(verdict.tied) < len(verdict.rivals) else []
    colors = dots(ordered)
    rows = []
    for run in ordered:
        cells: list[ResultCell | None] = []
        for _, metric, split in columns:
            value = run.metrics(split).get(metric)
            top = run in equal and (metric, split) == (main, "validation")
            text = format_metric(metric, value)
            cells.append(ResultCell(finite(value), text, format_spread(run, metric, split), best=top))
        if several:
            behind = run in verdict.ordered and run is not best
            difference = verdict.difference(best, run) if behind else None
            cells.append(
                None
                if difference is None
                else ResultCell(
                    None,
                    format_difference(difference.gap, best, main),
                    "not tested" if difference.p is None else format_p(difference.p),
                )
            )
        if earlier:
            share = shares.get(run.label)
            cells.append(None if share is None else ResultCell(None, f"{share:.2g} of its time"))
        style = "best" if equal == [run] else ""
        rows.append(ResultRow(run.label, tuple(cells), style, colors[run.label]))
    baselines = {split: shared_baselines(ordered, split) for split in ("validation", "test")}
    for baseline in dict.fromkeys(name for own in baselines.values() for name in own):
        own = [(metric, baselines[split].get(baseline, {}).get(metric)) for _, metric, split in columns]
        cells = [ResultCell(finite(value), format_metric(metric, value)) for metric, value in own]
        rows.append(ResultRow(baseline, (*cells, *[None] * (several + earlier)), "baseline"))
    heads = (
        "Model",
        *(head for head, *_ in columns),
        *(["Behind the best"] if several else []),
        *(["Reached by the best in"] if earlier else []),
    )
    caption = result_caption(ordered, others, any(baselines.values()), verdict, bool(equal))
    return ResultTable(caption, heads, tuple(rows))


def cost_table(ordered: Sequence[RunData]) -> ResultTable:
    """Returns a row per model with what it cost; columns without numbers are left out."""
    main, colors = ordered[0].main, dots(ordered)
    quality = [ResultCell(finite(run.reached()), format_metric(main, run.reached())) for run in ordered]
    costs = {
        head: cells for head, cells in cost_cells(ordered).items() if any(cell.value is not None for cell in cells)
    }
    columns = {f"Validation {label_in_sentence(main)}": quality, **costs}
    rows = [
        ResultRow(run.label, tuple(cells[n] for cells in columns.values()), colors=colors[run.label])
        for n, run in enumerate(ordered)
    ]
    budgets = {run.budget for run in ordered if run.budget is not None}
    parts = ["What each model cost."]
    if len(budgets) == 1:
        parts.append(f"Below the parameters: their distance from the budget of {format_amount(budgets.pop())}.")
    parts += ["Time is that of training, evaluations not counted."] if any(run.time_budget for run in ordered) else []
    return ResultTable(" ".join(parts), ("Model", *columns), tuple(rows))


def result_caption(
    ordered: Sequence[RunData], others: Sequence[str], baselines: bool, verdict: Verdict, marked: bool
) -> str:
    """Returns what the columns are, and how differences were tested."""
    first = ordered[0]
    parts = [f"Best validation {label_in_sentence(first.main)} first."]
    if any(len(run.runs) > 1 for run in ordered):
        parts.append("Means over the seeds, below them the standard deviation; a model without one has no seed.")
    if verdict.tests:
        parts.append(f"Behind the best: in validation {label_in_sentence(first.main)}; {verdict.tests}.")
    parts += ["In bold: the best, and models that do not differ significantly from it."] if marked else []
    parts += [f"Losses in {first.loss_unit} per token."] if first.loss_unit else []
    parts += ["All other metrics are on the validation split."] if others else []
    parts += ["The last rows are baselines, simple methods to compare models with."] if baselines else []
    return " ".join(parts)


def cost_cells(runs: Sequence[RunData]) -> dict[str, list[ResultCell]]:
    """Returns the cells of each column of costs: size, compute, speed, memory, time and steps."""
    columns: dict[str, list[ResultCell]] = {}
    for run in runs:
        off = [format_change(run.off_budget)] if run.off_budget is not None else []
        remark = ", ".join((["entries"] if run.gradient_free else []) + off)
        step = run.results.step
        steps = "one pass" if run.gradient_free else format_number(step)
        cpu, threads = run.results.cpu_seconds, run.results.threads or 1
        spent = [f"{100 * run.time_used:.0f} % of {format_duration(run.time_budget)}"] if run.time_used else []
        spent += [f"{format_duration(cpu)} of processor time"] if cpu is not None and threads > 1 else []
        used = ", ".join(spent)
        cells = {
            "Parameters": ResultCell(run.results.parameters, format_amount(run.results.parameters), remark),
            "Training compute": ResultCell(run.results.flops, format_amount(run.results.flops, "FLOP")),
            f"{runs[0].unit.capitalize()} per second": ResultCell(
                run.results.tokens_per_second, format_amount(run.results.tokens_per_second)
            ),
            "Peak memory": ResultCell(run.results.memory, format_amount(run.results.memory, "B")),
            "Time": ResultCell(run.results.seconds, format_duration(run.results.seconds), used),
            "Steps": ResultCell(step, steps, ENDINGS.get(run.reason, run.reason)),
        }
        for head, cell in cells.items():
            columns.setdefault(head, []).append(cell)
    return columns


def scaling_section(runs: Sequence[RunData], curves: Sequence[Curve]) -> Section:
    """Returns how the loss falls with size and cost, if models were trained at several sizes."""
    if not curves:
        return Section("Scaling")
    exponent = (
        "α is the exponent of the power law L = a·x^−α, fitted by least squares to the logarithms, one point per size "
        "(the mean over its seeds); ± is the standard error of the slope. It describes these sizes, this data and this "
        "length of training."
    )
    same = "" if any(c.over == "seconds" for c in curves) else " All sizes took about the same time: no curve over it."
    return Section("Scaling", [best_by_size(runs), exponent + same], views=scaling_views(curves))


def tuning_section(tuning: Mapping[str, Json]) -> Section:
    """Returns the learning rates that were tried for each model, and the one that was taken."""
    if not tuning:
        return Section("Learning rates")
    rows = []
    for name, record in tuning.items():
        last = max(trial["round"] for trial in record["trials"])
        tried = [
            f"{trial['lr']:g}: {format_number(trial['score'])}"
            if trial["score"] is not None
            else f"{trial['lr']:g}: failed"
            for trial in sorted(record["trials"], key=lambda trial: (trial["round"], trial["lr"]))
            if trial["round"] == 1 or last == 1
        ]
        final = [f"{t['lr']:g}: {format_number(t['score'])}" for t in record["trials"] if t["round"] == last > 1]
        edge = " (at the edge)" if record["at_edge"] else ""
        best = f"{record['factor']:g} × the default, {record['trials'][0]['lr']:g} in its last trial{edge}"
        minutes = format_duration(60 * record["minutes"])
        rows.append((name, best, ", ".join(tried), ", ".join(final) or MISSING, minutes))
    columns = ("model", "learning rate", "first round", "second round", "time")
    text = (
        "Every model had the same time to find its learning rate: five around its default, then the best two for "
        "longer, by the monitored metric on the validation split, with the first seed. The default of a trial is "
        "higher if it makes fewer updates than the training. A learning rate at the edge of what was tried may not be "
        "the best one."
    )
    return Section("Learning rates", [text], views=[Table(title="Learning rates tried", columns=columns, rows=rows)])


def learning_section(runs: Sequence[RunData], main: str, note: str = "") -> Section:
    """Returns the main metric, and the loss if it is another, over time and over what was read."""
    if not any(run.training or run.evaluations("loss") for run in runs):
        return Section("Learning")
    charts = [
        training_curves(runs, axis, metric)
        for metric in dict.fromkeys([main, "loss"])
        for axis in ("seconds", "tokens")
    ]
    both = label_in_sentence(main) if main == "loss" else f"{label_in_sentence(main)} and loss"
    text = f"The {both} twice: against the time it took, and against the number of {runs[0].unit} read by then."
    return Section("Learning", [text, *([note] if note else [])], views=charts)


def sample_section(ordered: Sequence[RunData]) -> Section:
    """Returns the last sample of each model."""
    colors, samples = dots(ordered), []
    for run in ordered:
        stored = [str(sample.get("text", "")) for sample in run.samples()]
        text = run.results.sample or (stored[-1] if stored else "")
        remark = describe_metric(run.main, run.reached()) if run.reached() is not None else ""
        if text.strip():
            samples.append(Sample(run.label, remark, clean_text(text, MAX_SAMPLE), colors[run.label]))
    return Section("What each model produces", samples=samples)


# Settings


def flatten(values: Json, prefix: str = "") -> Json:
    """Returns nested settings under dotted names."""
    flat: Json = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def nested(flat: Json) -> Json:
    """Returns settings with dotted names as nested ones."""
    values: Json = {}
    for name, value in flat.items():
        set_path(values, name, value)
    return values


def split_settings(runs: Sequence[RunData]) -> tuple[Json, list[str]]:
    """Returns the settings that all runs share, and the names of those in which they differ."""
    flats = [flatten(run.settings) for run in runs]
    names = list(dict.fromkeys(name for values in flats for name in values))
    absent = object()
    same = [name for name in names if all(values.get(name, absent) == flats[0].get(name, absent) for values in flats)]
    return {name: flats[0][name] for name in same}, [name for name in names if name not in same]


def settings_table(runs: Sequence[RunData], names: Sequence[str]) -> list[View]:
    """Returns a table of the settings in which runs differ, if there are any."""
    flats = [flatten(run.settings) for run in runs]

    def text(value: object) -> str:
        return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    rows = [
        (name, *(text(values[name]) if name in values else MISSING for values in flats))
        for name in names
        if name != "model.name"
    ]
    columns = ("setting", *(run.title for run in runs))
    return [Table(title="Settings in which the models differ", columns=columns, rows=tuple(rows))] if rows else []


def comparison_command(
    runs: Sequence[RunData], failed: Mapping[str, str], common: Json, tuning: Mapping[str, Json]
) -> str:
    models = dict.fromkeys([run.model for run in runs] + [label.partition("-")[0] for label in failed])
    seeds = list(dict.fromkeys(one.setting("seed") for run in runs for one in run.runs))
    if len(seeds) > 1:
        common = common | {"seed": None}
    lines = [["seriatim", "compare", runs[0].task]]
    if common.get("data.source") is not None:
        lines.append(["--data", str(common["data.source"])])
    lines.append(["--models", ",".join(models)])
    lines += [[f"--{option}", str(common[name])] for name, option in OPTIONS.items() if common.get(name) is not None]
    lines += [["--seeds", ",".join(map(str, seeds))]] if len(seeds) > 1 else []
    for option, path in (("params", ["params"]), ("tokenizer", ["task", "tokenizer", "kind"])):
        values = list(dict.fromkeys(value for run in runs if (value := run.setting(*path)) is not None))
        lines += [[f"--{option}", ",".join(map(str, values))]] if len(values) > 1 else []
    lines += [["--tune-minutes", f"{max(record['budget'] for record in tuning.values()):g}"]] if tuning else []
    return " \\\n    ".join(shlex.join(line) for line in lines)


# Distillation


def distillation_page(runs: Sequence[RunData], rows: Sequence[Json]) -> Page:
    """Returns the page of a distillation: what a student gains from its teacher, and what it saves.

    For runs and rows see `write_distillation_report`; speed is in examples per second at batch sizes "32" and "1".
    """
    teacher, *students = runs
    student = students[-1]
    common, different = split_settings(students)
    metric = main_metric(rows[0]["metrics"], rows[0]["monitor"])
    mixed = "The training loss of the distilled student includes its distance from the teacher: compare by validation."
    one_seed = "Each student was trained with one seed, which cannot tell a small difference from chance."
    speed_note = (
        "Speed is that of prediction on the CPU, in examples per second, in batches of 32 and one by one: the models "
        "take turns, and each has the median of its rounds. Size is that of the file of weights."
    )
    sections = [
        Section(
            "What distillation gains",
            [one_seed, speed_note],
            distillation_table(runs, rows),
            distillation_charts(runs, rows),
        ),
        learning_section(students, students[0].main, mixed),
        sample_section([*students, teacher]),
        data_section(student),
        Section(
            "Settings",
            views=settings_table(students, different),
            details=[("Settings that both students share", dump_yaml(nested(common)))],
            code=[
                (
                    "The command of this page; other changes follow it as --set a.b=c:",
                    distillation_command(teacher, student),
                )
            ],
        ),
    ]
    own, other = rows[2], rows[0]
    many, single = (own["speed"][size] / other["speed"][size] for size in ("32", "1"))

    def factor(ratio: float) -> str:
        return f"{ratio:.{1 if ratio < 10 else 0}f} ×"

    sizes = f"{format_amount(own['parameters'])} parameters, the teacher has {format_amount(other['parameters'])}"
    split = str(own["split"]).capitalize()
    figures = [
        Figure(
            f"{split} {label_in_sentence(metric)}",
            format_metric(metric, own["metrics"].get(metric)),
            distillation_gain(rows, student),
        ),
        Figure("The teacher's", format_metric(metric, other["metrics"].get(metric)), str(other["model"])),
        Figure("Smaller", factor(other["parameters"] / own["parameters"]), sizes),
        Figure("Faster", factor(many), f"in batches of 32; one by one {factor(single)}"),
    ]
    title = f"{student.model} distilled from {teacher.model} on {student.data_name}"
    lead = f"{student.task_summary}. Both students have the same data, budget and seed."
    return Page("distillation", title, lead, figures, sections, made_by(student), student.results.version)


def distillation_gain(rows: Sequence[Json], student: RunData | None = None) -> str:
    """Returns how much better the distilled student is than the one alone: "1.2 points better than alone"."""
    metric = main_metric(rows[0]["metrics"], rows[0]["monitor"])
    _, alone, distilled = (finite(row["metrics"].get(metric)) for row in rows)
    if alone is None or distilled is None:
        return MISSING
    if alone == distilled:
        return "as good as alone"
    size = format_metric(metric, abs(distilled - alone))
    if get_metric(metric).percent and student is not None:
        size = format_difference(distilled - alone, student, metric)
    return f"{size} {'better' if is_better(metric, distilled, alone) else 'worse'} than alone"


def distillation_table(runs: Sequence[RunData], rows: Sequence[Json]) -> ResultTable:
    names = displayed_metrics(rows[0]["metrics"], rows[0]["monitor"])
    colors = dots([*runs[1:], runs[0]])
    lines = []
    for run, row in zip(runs, rows, strict=True):
        cells: list[ResultCell | str] = [str(row["model"])]
        cells += [ResultCell(finite(row["metrics"].get(n)), format_metric(n, row["metrics"].get(n))) for n in names]
        cells += [
            ResultCell(row[key], format_amount(row[key], unit)) for key, unit in (("parameters", ""), ("bytes", "B"))
        ]
        cells += [ResultCell(row["speed"][size], format_amount(row["speed"][size])) for size in ("32", "1")]
        cells.append(ResultCell(row["seconds"], format_duration(row["seconds"])))
        lines.append(ResultRow(run.label, tuple(cells), colors=colors[run.label]))
    heads = ["", "Model", *map(metric_label, names), "Parameters", "Size"]
    heads += ["Per second, batches of 32", "Per second, one by one", "Training"]
    return ResultTable(f"Metrics on the {rows[0]['split']} split.", tuple(heads), tuple(lines))


def distillation_charts(runs: Sequence[RunData], rows: Sequence[Json]) -> list[Scatter]:
    """Returns quality against size and against speed."""
    metric = main_metric(rows[0]["metrics"], rows[0]["monitor"])
    values = [value for row in rows if (value := finite(row["metrics"].get(metric))) is not None]
    if len(values) < len(rows):
        return []
    order = [1, 2, 0]  # students first, as in their curves: the order decides the colors
    costs = {
        "parameters": [float(row["parameters"]) for row in rows],
        "examples per second": [float(row["speed"]["32"]) for row in rows],
    }
    return [
        quality_scatter(
            [runs[n] for n in order],
            [numbers[n] for n in order],
            [float(values[n]) for n in order],
            metric,
            cost,
            str(rows[0]["split"]),
            frontier=False,
        )
        for cost, numbers in costs.items()
    ]


def distillation_command(teacher: RunData, student: RunData) -> str:
    """Returns the command, with the options whose values differ from the teacher's."""
    distill = mapping(student.settings.get("distill"))
    lines = [["seriatim", "distill", "--teacher", str(distill.get("teacher"))], ["--model", student.model]]
    own, other = flatten(student.settings), flatten(teacher.settings)
    options = {option: own.get(name) for name, option in OPTIONS.items() if own.get(name) != other.get(name)}
    renamed = {"temperature": "temperature", "weight": "distillation-weight", "unlabeled_data": "unlabeled-data"}
    options |= {option: distill.get(name) for name, option in renamed.items()}
    lines += [[f"--{option}", str(value)] for option, value in options.items() if value is not None]
    lines += [["--set", f"distill.hidden_weight={distill['hidden_weight']}"]] if distill.get("hidden_weight") else []
    return " \\\n    ".join(shlex.join(line) for line in lines)
