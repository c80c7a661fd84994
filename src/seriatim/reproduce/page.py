"""A reproduced table as Markdown and as a page with a picture for each row."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..core.config import dump_yaml
from ..core.measures import measure, shown, title
from ..report import looks
from ..report.bins import bins
from ..report.lines import lines
from ..report.numbers import seconds
from ..report.page import block, bullets, escape, folded, group, page, paragraph, picture, section, table

if TYPE_CHECKING:
    from ..report.looks import Drawn
    from . import Outcome, Reached
    from .tables import Row

POINTS = 60  # of a training curve
LOG = 30  # values that lie further apart than this are drawn on a logarithmic axis


def cells(one: Reached, published: bool = True) -> dict[str, str]:
    """The columns of the table with what stands in them; `published` is left out where nothing was."""
    name, summary = one.row.measure, one.run.summary
    figure = one.row.models[one.label].published
    return {
        "row": one.row.name,
        "model": one.label,
        **({"published": "–" if figure is None else shown(name, figure)} if published else {}),
        "reached": shown(name, one.value),
        **({"training loss": shown("loss", one.learnt)} if one.row.learning else {}),
        "parameters": f"{summary['parameters']:,}",
        "steps": f"{summary['step']:,}",
        "time": seconds(summary["seconds"]),
        "seed": str(summary["seed"]),
    }


def markdown(outcome: Outcome) -> str:
    lines = [f"# {outcome.table.title}", "", f"{outcome.table.source}.", *_remarks(outcome), ""]
    found = [cells(one, outcome.table.published) for one in outcome.reached]
    if found:
        lines += ["| " + " | ".join(found[0]) + " |", "|" + "---|" * len(found[0])]
    lines += ["| " + " | ".join(one.values()) + " |" for one in found]
    lines += ["", *(f"- {row}: not run; {why}" for row, why in outcome.missing.items())]
    return "\n".join(lines).rstrip() + "\n"


def _remarks(outcome: Outcome) -> list[str]:
    return ["", *outcome.table.remarks] if outcome.table.remarks else []


def html(outcome: Outcome) -> str:
    published = outcome.table.published
    found = [cells(one, published) for one in outcome.reached]
    body = [_line(list(one.values())) for one in found]
    rows = [row for row in outcome.table.rows.values() if any(one.row is row for one in outcome.reached)]
    settings = [
        folded(f"{one.row.name}, {one.label}: every setting", block(dump_yaml(one.run.settings)))
        for one in outcome.reached
    ]
    sections = [
        section(
            "Published and reached" if published else "Reached",
            table("every model of every row", list(found[0]), body, texts=(0, 1)) if found else "",
        ),
        section("Row by row", group("pair", [_picture(row, outcome) for row in rows]) if published else ""),
        section("While training", *(_learning(row, outcome) for row in rows)),
        section("Over the length", *(_over_length(row, outcome) for row in rows)),
        section("How far back learning reaches", *(_reach(row, outcome) for row in rows)),
        section("Not run", bullets(f"{row}: {why}" for row, why in outcome.missing.items())),
        section("Remarks", *(paragraph(remark) for remark in outcome.table.remarks)),
        section("Settings", *settings),
    ]
    return page(outcome.table.title, f"Seriatim {__version__} · reproduction", outcome.table.source, sections, "")


def _line(texts: list[str]) -> str:
    marks = [' class="text"' if index < 2 else "" for index in range(len(texts))]
    return "<tr>" + "".join(f"<td{mark}>{escape(t)}</td>" for mark, t in zip(marks, texts, strict=True)) + "</tr>"


def _picture(row: Row, outcome: Outcome) -> str:
    """Open circles were published, full ones are reached here."""
    import altair as alt

    found = [one for one in outcome.reached if one.row is row]
    pairs = [(one.label, one.row.models[one.label].published, one.value) for one in found]
    points: list[dict[str, Any]] = [{"model": name, "value": value, "what": "reached"} for name, _, value in pairs]
    points += [{"model": name, "value": value, "what": "published"} for name, value, _ in pairs if value is not None]
    values: list[float] = [point["value"] for point in points]
    wide = min(values) > 0 and max(values) / min(values) > LOG
    x = alt.X(
        "value:Q",
        scale=alt.Scale(type="log") if wide else alt.Scale(zero=False, nice=True),
        axis=alt.Axis(title=f"{title(row.measure)}, {measure(row.measure).better} is better", tickCount=5),
    )
    y = alt.Y("model:N", sort=list(row.models), axis=alt.Axis(title=None))
    base = looks.data(points)
    line = base.mark_line(color=looks.FAINT[0], strokeWidth=1).encode(x, y, detail="model:N")
    published = base.transform_filter("datum.what == 'published'").mark_point(
        size=90, color=looks.FAINT[0], strokeWidth=2
    )
    reached = base.transform_filter("datum.what == 'reached'").mark_circle(size=110, color=looks.ACCENT[0], opacity=1)
    chart = alt.layer(line, published.encode(x, y), reached.encode(x, y)).properties(
        width=looks.HALF - 80,
        height=26 * len(found) + 20,
        title=looks.title(row.title, "open: published, full: reached here" + (f"; {scaled_params(row)}")),
    )
    told = "; ".join(f"{name} published {_text(row, old)}, reached {_text(row, new)}" for name, old, new in pairs)
    return picture(looks.row([chart]), f"{row.title}: {told}.")


def scaled_params(row: Row) -> str:
    return f"{row.params} parameters" if row.params else "sizes as published"


def _text(row: Row, value: float | None) -> str:
    return "nothing" if value is None else shown(row.measure, value)


def _reach(row: Row, outcome: Outcome) -> str:
    """The gradient over time of all models of a row, at the start and after training, where their reports have it."""
    found: dict[str, list[Any]] = {}
    for one in outcome.reached:
        views = one.run.evaluation().get(row.split, []) if one.row is row else []
        for name, points in (pair for view in views if view.get("kind") == "lines" for pair in view["series"]):
            found.setdefault(name, []).append([one.label, points])
    pictures = []
    for name, series in found.items():
        view = {
            "kind": "lines",
            "title": f"{row.name}, {name}",
            "x": "steps before the last",
            "y": "gradient of the loss by the input",
            "log": True,
            "series": series,
        }
        with contextlib.suppress(ValueError):  # every gradient may have vanished altogether
            pictures.append(picture(*lines(view, looks.HALF)))
    return group("pair", pictures) if pictures else ""


def _learning(row: Row, outcome: Outcome) -> str:
    view = learning(row, outcome)
    return "" if view is None else picture(*lines(view, looks.WHOLE), "wide")


def learning(row: Row, outcome: Outcome) -> dict[str, Any] | None:
    """The loss on the training part over the steps, a line a model, each point the mean of those since the one
    before."""
    found = {one.label: one.run.history("stepped") for one in outcome.reached if one.row is row and row.learning}
    if not found:
        return None
    series = []
    for name, steps in found.items():
        each = -(-len(steps) // POINTS)
        parts = [steps[first : first + each] for first in range(0, len(steps), each)]
        series.append([name, [[part[-1]["step"], sum(one["loss"] for one in part) / len(part)] for part in parts]])
    return {
        "kind": "lines",
        "title": f"{row.name}: the loss on the training part",
        "x": "steps",
        "y": "cross-entropy",
        "log": True,
        "series": series,
    }


def _over_length(row: Row, outcome: Outcome) -> str:
    """The row's measure over the length of the source, a line a model, where their reports have it."""
    drawn = over_length(row, outcome)
    return "" if drawn is None else picture(*drawn, "wide")


def over_length(row: Row, outcome: Outcome, width: int = looks.WHOLE) -> Drawn | None:
    found: dict[str, dict[str, Any]] = {}
    for one in outcome.reached:
        for view in one.run.evaluation().get(row.split, []) if one.row is row else []:
            if view.get("kind") == "bins" and view["measure"] == row.measure:
                found[one.label] = view
    if not found:
        return None
    first = next(iter(found.values()))  # all models of a row have the same test part, so the same ranges
    series = [[label, view["series"][0][1]] for label, view in found.items()]
    note = f"{row.params} parameters, on the {row.split} part" if row.params else f"on the {row.split} part"
    named = {"x": f"{row.counted} of the source", "of": "pairs"} if row.counted else {}
    return bins(first | named | {"title": row.title, "note": note, "series": series}, width)
