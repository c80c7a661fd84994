"""What names on a page mean, for those who were not there when it was made."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.measures import MEASURES, measure, title
from .figures import Figures, shared
from .page import definitions, section
from .words import model_title

BETTER = {"lower": "; lower is better", "higher": "; higher is better", "neither": ""}


def glossary(ordered: Sequence[Figures]) -> str:
    """Models, measures, and the parts of the data."""
    first = ordered[0]
    models = {one.model: model_title(one) for one in ordered}
    found = [(name, text) for name, text in models.items() if text != name]
    for name in shared(ordered):
        about = measure(name)
        hint = about.hint or (MEASURES["loss"].hint if name == "loss" else "")
        if hint:
            unit = f", in {first.unit} per token" if name == "loss" and first.unit else ""
            found.append((title(name), f"{hint}{unit}{BETTER[about.better]}"))
    splits = first.splits
    if "valid" in splits:
        found.append(("Validation", "on a part of the data that was not trained on, by which the weights were chosen"))
    if "test" in splits:
        found.append(
            ("Test", "on a part of the data that was neither trained on nor chosen by: what to expect elsewhere")
        )
    if any(one.baselines(split) for one in ordered for split in ("valid", "test")):
        found.append(("Baselines", "simple methods that learn next to nothing, to measure models by"))
    if any(one.number("flops") for one in ordered):
        found.append(("FLOP", "a multiplication or an addition; those of the whole training are counted"))
    return section("What the names mean", definitions(found))
