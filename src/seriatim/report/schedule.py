"""Step by step: the learning rate, and the norm of the gradient with the steps at which it was clipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.measures import finite
from ..runs import Run
from .axes import horizontal, ticks
from .figures import Figures, read
from .looks import FAINT, INK, SECOND, colours, data, nothing, row, title
from .numbers import scaled, whole

if TYPE_CHECKING:
    import altair as alt

    from .looks import Panel

WIDTH, HEIGHT = 400, 190
COLUMNS = 400  # of a picture; of more steps, each column has the largest


def schedule(run: Run | Figures, parts: Sequence[str] = ("rate", "norm")) -> alt.HConcatChart:
    """The learning rate and the norm of the gradient."""
    one = run if isinstance(run, Figures) else read([run])[0]
    return row([_rate(one) if part == "rate" else _norm(one) for part in parts])


def clipped(one: Figures) -> tuple[int, int, float | None]:
    """At how many of how many recorded steps the gradient was clipped, and above which norm."""
    level = finite(one.setting("train", "clip"))
    norms = [step["value"] for step in _series(one, "norm")]
    return sum(level is not None and norm > level for norm in norms), len(norms), level


def told(one: Figures) -> str:
    """In words how often it was clipped."""
    times, count, level = clipped(one)
    if not count:
        return ""
    if level is None:
        return "Gradients were not clipped."
    steps = "the steps" if count == one.number("step") else f"{whole(count)} recorded steps"
    if not times:
        return f"Gradients would have been clipped above a norm of {scaled(level)}; at none of {steps} was one so long."
    share = 100 * times / count
    often = f"{share:.0f} %" if share >= 1 else f"{share:.1f} %"
    return (
        f"Gradients longer than {scaled(level)} were clipped to that length: at {whole(times)} of {whole(count)} "
        f"recorded steps ({often}), dots in the picture."
    )


def _rate(one: Figures) -> Panel:
    import altair as alt

    rows = _thinned(_series(one, "rate"))
    if not rows:
        return nothing("no learning rate: this model counts", WIDTH, HEIGHT)
    x = alt.X("step:Q", axis=horizontal("Step", "~s"), scale=alt.Scale(nice=False))
    y = alt.Y("value:Q", axis=alt.Axis(title=None, tickCount=5, format="~g", minExtent=44), scale=alt.Scale(zero=True))
    line = data(rows).mark_line(strokeWidth=2, color=_colour(one)).encode(x, y)
    return alt.layer(line).properties(width=WIDTH, height=HEIGHT, title=title("Learning rate"))


def _norm(one: Figures) -> Panel:
    import altair as alt

    rows = _thinned([step for step in _series(one, "norm") if step["value"] > 0])
    if not rows:
        return nothing("no gradient was recorded", WIDTH, HEIGHT)
    times, count, clip = clipped(one)
    x = alt.X("step:Q", axis=horizontal("Step", "~s"), scale=alt.Scale(nice=False))
    shown = [*(step["value"] for step in rows), *([clip] if clip is not None else [])]
    low, high = min(shown) / 1.3, max(shown) * 1.5
    y = alt.Y(
        "value:Q",
        axis=alt.Axis(title=None, values=ticks(low, high), format="~g", minExtent=44),
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
    )
    over = [step for step in rows if clip is not None and step["value"] > clip]
    faint = 0.45 if len(over) > 100 else 0.9
    layers = [
        data(rows).mark_line(strokeWidth=1, color=_colour(one)).encode(x, y),
        data(over).mark_circle(size=18, color=SECOND[0], opacity=faint).encode(x, y),
    ]
    if clip is not None:
        last = [{"step": rows[-1]["step"], "value": clip, "text": f"clipped above {scaled(clip)}"}]
        rule = data(last).mark_rule(strokeDash=[5, 4], strokeWidth=1.25, color=INK[0]).encode(y=y)
        beside = data(last).mark_text(align="right", dy=11 if over else -8, color=FAINT[0] if over else INK[0])
        layers += [rule, beside.encode(x, y, text="text:N")]
    hint = f"dots: clipped, {whole(times)} of {whole(count)} recorded steps" if over else ""
    heading = title("Norm of the gradient, log scale", hint)
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=heading)


def _series(one: Figures, name: str) -> list[dict[str, Any]]:
    """A quantity of the recorded steps."""
    steps = [{"step": event["step"], "value": finite(event.get(name))} for event in one.events("stepped")]
    return [step for step in steps if step["value"] is not None]


def _thinned(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as a picture has columns, each the largest of its neighbours: what was clipped stays in sight."""
    size = -(-len(steps) // COLUMNS) or 1
    return [max(steps[at : at + size], key=lambda step: float(step["value"])) for at in range(0, len(steps), size)]


def _colour(one: Figures) -> str:
    return next(iter(colours([one]).values()))[0]
