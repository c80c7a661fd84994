"""Look inside a model: attention, gates, gradient flow, surprise and more, as text, pictures or figures.

seriatim inspect runs/x --attention "They are watching ."    seriatim inspect runs/x    (lists what it offers)
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.errors import SeriatimError
from ..inspect import VIEWS
from . import _options as o
from ._output import note, print_json, silent

OPTIONS: dict[str, tuple[Any, str]] = {
    "layer": (int, "Of this layer alone, counted from 0."),
    "head": (int, "Of this head alone, counted from 0."),
    "unit": (int, "Of this unit alone, counted from 0."),
    "position": (int, "At this token, counted from 0."),
    "top": (int, "So many of the best."),
    "target": (str, "The second text: a translation, or the label that is explained."),
    "part": (str, "Of a translator: encoder, decoder or cross."),
    "example": (int, "Without a text: this sequence of the run's own validation data, counted from 0."),
    "generate": (int, "So many tokens that the model writes behind the text, watched step by step."),
    "tokens": (bool, "Token by token, not word by word."),
    "word": (str, "The word that is looked at."),
    "lengths": (str, "Lengths of sequences, as 64,128,256."),
    "budget": (float, "Seconds for each curve of --growth."),
    "length": (int, "Elements of the windows that gradients are followed through."),
    "layers": (str, "Layers of the stacks of --depth, as 20,56."),
    "width": (int, "Units of the tiny network of --backpropagation."),
    "steps": (int, "Elements that it reads."),
    "scale": (float, "What its recurrent matrix is multiplied by: 0.5 vanishes, 2 may explode."),
    "seed": (int, "What it, or the stacks of --depth, are drawn by."),
}


def with_views(function: Any) -> Any:
    """An option for every view, and one for every option that views have."""
    flags = {name: (bool, view.help, False) for name, view in VIEWS.items()}
    values = {name: (kind | None, text, None) for name, (kind, text) in OPTIONS.items()}
    own = inspect.signature(function, eval_str=True)
    kept = [one for one in own.parameters.values() if one.kind != one.VAR_KEYWORD]
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, typer.Option(f"--{name}", help=text, show_default=False)],
        )
        for name, (kind, text, default) in (flags | values).items()
    ]
    setattr(function, "__signature__", own.replace(parameters=[*kept, *added]))  # noqa: B010
    return function


@with_views
def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run, a folder of runs, or names of models as rnn,gpt.", show_default=False
        ),
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]", help="What the model reads.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A picture: .html, .png or .svg; the figures: .json.")
    ] = None,
    plugin: o.Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
    quiet: o.Quiet = False,
    **chosen: Any,
) -> None:
    wanted = [name for name in VIEWS if chosen.pop(name)]
    options = {name: value for name, value in chosen.items() if value is not None}
    if out is not None:
        from ..report.looks import check_ending

        check_ending(out)
    if len(wanted) > 1:
        raise SeriatimError("inspect.view", f"one view at a time: {', '.join(wanted)}", "choose one")
    o.add_plugins(plugin)
    from ..inspect import Inspector

    inspector = Inspector(*_subjects(what))
    if not wanted:
        if texts or out is not None or options:
            raise SeriatimError("inspect.view", "no view is named", f"it offers: {', '.join(inspector.offered())}")
        _offers(inspector, json)
        return
    seen = inspector.look(wanted[0], *(texts or ()), notify=None if quiet else note, **options)
    if out is not None:
        seen.save(out)
        (silent if quiet else note)(f"wrote {out}")
    if json:
        print_json(seen.record())
    elif out is None:
        print("\n".join(seen.lines()))


def _subjects(what: str) -> list[str]:
    """A folder, or names of models."""
    return [what] if Path(what).exists() else [one.strip() for one in what.split(",") if one.strip()]


def _offers(inspector: Any, json: bool) -> None:
    offered = inspector.offered()
    if json:
        print_json({name: VIEWS[name].help for name in offered})
        return
    width = max(len(name) for name in VIEWS) + 2
    for name in offered:
        print(f"--{name:{width}}{VIEWS[name].help}")
