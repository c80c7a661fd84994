"""The page of a distillation: what a student gains from its teacher, and what it saves."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..core import measures
from ..core.measures import NONE, better, finite, measure, phrase, shown, told
from . import charts
from .comparison import OPTIONS, differing, learning, nested, samples, settings_of
from .figures import Figures
from .looks import colours
from .numbers import points, scaled, seconds
from .page import block, bullets, dot, escape, folded, group, headline, number, page, paragraph, picture, section, table
from .words import data_name, data_notes, data_source, flat, made_by, task_title

SPLITS = {"valid": "validation", "test": "test"}
Row = Mapping[str, Any]


def distillation_page(figures: Sequence[Figures], rows: Sequence[Row]) -> str:
    """`figures` and `rows` of teacher, student alone and student distilled, in this order."""
    teacher, *students = figures
    common, different = settings_of(students)
    sections = [
        headline(_headline(rows)),
        section("What distillation gains", _table(figures, rows), _pictures(figures, rows), paragraph(HOW, "note")),
        learning(students),
        paragraph(MIXED, "note"),
        samples([*students, teacher]),
        section("Data", paragraph(data_source(students[0]), "note"), bullets(data_notes(students[0]))),
        section(
            "Settings",
            differing(students, different),
            folded("Settings that both students share", block(nested(common))),
            paragraph("The command for this page; what else was changed goes behind it with --set a.b=c:"),
            block(_command(teacher, students[-1])),
        ),
    ]
    title = f"{students[-1].model} distilled from {teacher.model} on {data_name(students[-1])}"
    lead = f"{task_title(students[-1])}. Both students have the same data, budget and seed."
    return page(
        title,
        f"Seriatim {students[-1].summary.get('version', '')} · distillation",
        lead,
        sections,
        made_by(students[-1]),
    )


HOW = (
    "Speed is that of answering on the CPU, in examples a second, many at a time and one by one: the models take "
    "turns, and each has the median of its rounds. Size is that of the file of weights."
)
MIXED = "The training loss of the distilled student is partly its distance from the teacher: only validation compares."


def main_of(rows: Sequence[Row]) -> str:
    """The measure to judge by."""
    return measures.main(rows[0]["measures"], rows[0]["objective"])


def gain(rows: Sequence[Row]) -> str:
    """How much better the distilled student is than the one alone."""
    name = main_of(rows)
    _, alone, taught = (finite(row["measures"].get(name)) for row in rows)
    if alone is None or taught is None:
        return NONE
    if alone == taught:
        return "as good as alone"
    size = points(taught - alone) if measure(name).percent else shown(name, abs(taught - alone))
    return f"{size} {'better' if better(name, taught, alone) else 'worse'} than alone"


def _headline(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    teacher, _, taught = rows
    name = main_of(rows)
    many, one = (taught["speed"][size] / teacher["speed"][size] for size in ("32", "1"))
    sizes = f"{scaled(taught['parameters'])} parameters, the teacher has {scaled(teacher['parameters'])}"
    return [
        (f"{_part(taught)} {phrase(name)}", shown(name, taught["measures"].get(name)), gain(rows)),
        ("The teacher's", shown(name, teacher["measures"].get(name)), str(teacher["model"])),
        ("Smaller", _times(teacher["parameters"] / taught["parameters"]), sizes),
        ("Faster", _times(many), f"32 at a time; one by one {_times(one)}"),
    ]


def _part(row: Row) -> str:
    return SPLITS[row["split"]].capitalize()


def _times(factor: float) -> str:
    return f"{factor:.{1 if factor < 10 else 0}f} ×"


def _table(figures: Sequence[Figures], rows: Sequence[Row]) -> str:
    names = measures.telling(rows[0]["measures"], rows[0]["objective"])
    pairs = colours([*figures[1:], figures[0]])
    lines = []
    for one, row in zip(figures, rows, strict=True):
        label = f'<th scope="row">{dot(pairs[one.label])}{escape(one.label)}</th>'
        label += f'<td class="text">{escape(row["model"])}</td>'
        cells = [number(row["measures"].get(name), shown(name, row["measures"].get(name))) for name in names]
        cells += [
            number(row["parameters"], scaled(row["parameters"])),
            number(row["bytes"], scaled(row["bytes"], "B")),
            *(number(row["speed"][size], scaled(row["speed"][size])) for size in ("32", "1")),
            number(row["seconds"], seconds(row["seconds"])),
        ]
        lines.append(f"<tr>{label}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    heads = ["", "Model", *(measures.title(name) for name in names)]
    heads += ["Parameters", "Size", "Per second, 32 at a time", "Per second, one by one", "Training"]
    caption = f"Measures on the {SPLITS[rows[0]['split']]} part."
    return table(caption, heads, lines, texts=[1])


def _pictures(figures: Sequence[Figures], rows: Sequence[Row]) -> str:
    """Quality over size and over speed."""
    name = main_of(rows)
    values = [value for row in rows if (value := finite(row["measures"].get(name))) is not None]
    if len(values) < len(rows):
        return ""
    students_first = [*figures[1:], figures[0]]  # the order that gives them the colours of their curves
    costs = {"parameters": [row["parameters"] for row in rows], "speed": [row["speed"]["32"] for row in rows]}
    titles = {"parameters": "size", "speed": "speed"}
    pictures = []
    for kind, found in costs.items():
        chart = charts.points(
            students_first,
            [*found[1:], found[0]],
            [*values[1:], values[0]],
            kind,
            name,
            f"{_part(rows[0])} {phrase(name)} over {titles[kind]}",
        )
        each = zip(figures, found, values, strict=True)
        label = "; ".join(f"{one.label} {scaled(cost)}, {told(name, value)}" for one, cost, value in each)
        pictures.append(picture(chart, f"{measures.title(name)} against {titles[kind]}: {label}."))
    return group("pair", pictures)


def _command(teacher: Figures, taught: Figures) -> str:
    """Options whose values are not the teacher's own."""
    wanted = taught.settings.get("distil") or {}
    lines = [["seriatim", "distil", "--teacher", str(wanted.get("teacher"))], ["--model", taught.model]]
    ours, theirs = flat(taught.settings), flat(teacher.settings)
    options = {option: ours.get(name) for name, option in OPTIONS.items() if ours.get(name) != theirs.get(name)}
    options |= {name: wanted.get(name) for name in ("temperature", "alpha", "unlabelled")}
    lines += [[f"--{option}", str(value)] for option, value in options.items() if value is not None]
    lines += [["--set", f"distil.hidden={wanted['hidden']}"]] if wanted.get("hidden") else []
    return " \\\n    ".join(shlex.join(line) for line in lines)
