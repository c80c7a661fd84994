"""Sentences and names that the card and the pages share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ..core import registry
from ..core.config import dump_yaml
from ..core.errors import SeriatimError
from ..core.measures import NONE, title
from .figures import Figures
from .numbers import percent, scaled

NOTES = 40  # lines about the data

REASONS = {
    "finished": "It made all its steps",
    "minutes": "It used up its time",
    "patience": "It stopped early, since it no longer improved",
    "SIGINT": "It was interrupted by Ctrl-C; `seriatim resume` goes on with it",
    "SIGTERM": "It was interrupted by the system; `seriatim resume` goes on with it",
    "averaged": "Its weights are the mean of several, made after the training",
    "not finished": "It has not finished",
}
ENDINGS = {"finished": "finished", "minutes": "time up", "patience": "no more gain"}


def ended(one: Figures) -> str:
    if one.counts and one.reason == "finished":
        return "It was counted in one pass" if one.speaks else "It was made in one pass, with nothing to learn"
    return REASONS.get(one.reason, one.reason)


def task_title(one: Figures) -> str:
    """What the task is, from its own file; a task of another version has just its name."""
    return _summary(registry.tasks, one.task) or one.task


def model_title(one: Figures) -> str:
    return _summary(registry.models, one.model) or one.model


def _summary(entries: registry.Registry, name: str) -> str:
    try:
        return entries.summary(name)
    except SeriatimError:
        return ""


def data_name(one: Figures) -> str:
    source = str(one.summary.get("data", {}).get("source") or one.setting("data", "source") or "unknown data")
    return PurePath(source).name or source


def data_notes(one: Figures) -> list[str]:
    notes = one.summary.get("data", {}).get("notes") or []
    texts = [str(note) for note in notes]
    more = [f"… and {len(texts) - NOTES} more"] if len(texts) > NOTES else []
    return texts[:NOTES] + more


def data_source(one: Figures) -> str:
    data = one.summary.get("data", {})
    return f"Source: {data.get('source', NONE)}. Fingerprint as the model saw it: {data.get('fingerprint', NONE)}"


def signatures_text(one: Figures) -> str:
    """How the figures came about that depend on it."""
    if not one.signatures:
        return ""
    told = "; ".join(f"{title(name)} {text}" for name, text in one.signatures.items())
    beams = one.setting("task", "beams")
    described = one.setting("task", "name") == "caption"
    found, by = ("Described", "as COCO does") if described else ("Translated", "by sacreBLEU")
    search = f" {found} by beam search with {beams} hypotheses." if isinstance(beams, int) and beams > 1 else ""
    return f"Measured {by}: {told}.{search}"


def along_the_way(one: Figures) -> str:
    """In what the figures of curves differ from those at the end."""
    if one.task != "translate":
        return ""
    return "Along the way up to 200 sentences of the validation data are translated, greedily; at the end all."


def made_by(one: Figures) -> str:
    version, seed = one.summary.get("version", ""), one.summary.get("seed", NONE)
    return f"Made by Seriatim {version}, {created(one)}; seed {seed}."


def created(one: Figures) -> str:
    return str(one.summary.get("created", "at an unknown time")).replace("T", " ").replace("+00:00", " UTC")


def budget_text(one: Figures) -> str:
    """How far the size is from what was wanted."""
    if one.budget is None or one.off_budget is None:
        return ""
    size = "entries" if one.counts else "parameters"
    return (
        f"Of {scaled(one.budget)} {size} wanted it has {scaled(one.number('parameters'))} ({percent(one.off_budget)})."
    )


def settings_text(one: Figures) -> str:
    return dump_yaml(one.settings)


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def setting_text(value: Any) -> str:
    """As it stands in config.yaml."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
