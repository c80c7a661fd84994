"""The model card: a README.md that says what a model is, how it was made and how to use it."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from ..core.measures import NONE, phrase, shown
from .figures import Figures
from .numbers import percent, scaled, seconds, whole
from .text import cut, visible
from .words import created, data_name, data_notes, ended, model_title, signatures_text, task_title


def card(one: Figures) -> str:
    parts = [
        f"# {_text(one.model)} on {_text(data_name(one))}",
        f"{_text(model_title(one))}.\nTask: {_text(task_title(one)).lower()}.",
        _size(one),
        "## Measures",
        _measures(one),
        "## How it was made",
        _made(one),
        "## How to use it",
        _use(one),
        _sample(one),
        "## Limits",
        "It repeats what its data says, right or wrong, and knows nothing else. The measures hold for "
        f"{'text' if one.speaks else 'data'} like that.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _size(one: Figures) -> str:
    size = one.number("parameters")
    what = "stored entries" if one.counts else "parameters"
    budget = f"; {percent(one.off_budget)} from the {whole(one.budget)} wanted" if one.off_budget is not None else ""
    return f"Size: {scaled(size)} {what} ({whole(size)}{budget})." if size is not None else ""


def _measures(one: Figures) -> str:
    """A line a measure; a column a part, and behind them the baselines."""
    if not one.splits:
        return f"None yet. {ended(one)}."
    heads = {split: {"valid": "validation"}.get(split, split) for split in one.splits}
    found = {heads[split]: one.measures(split) for split in one.splits}
    last = one.splits[-1]
    found |= {f"{who} ({heads[last]})": values for who, values in one.baselines(last).items()}
    names = list(dict.fromkeys(name for split in one.splits for name in one.measures(split)))
    lines = [_line("measure", *map(_text, found)), _line(*["---"] * (1 + len(found)))]
    for name in names:
        unit = f" ({one.unit} per token)" if name == "loss" and one.unit else ""
        values = [shown(name, part.get(name), 1) for part in found.values()]
        lines.append(_line(_text(phrase(name)) + unit, *values))
    return "\n".join(lines) + (f"\n\n{_text(signatures_text(one))}" if one.signatures else "")


def _teacher(one: Figures) -> str:
    """Whose answers it learnt, besides the true ones."""
    known, wanted = one.summary["teacher"], one.settings.get("distil") or {}
    size = f", {scaled(known['parameters'])} parameters" if known.get("parameters") else ""
    part = f"its part in the loss {wanted.get('alpha', NONE)}, temperature {wanted.get('temperature', NONE)}"
    return f"{_code(known.get('path', NONE))} ({_text(known.get('model', NONE))}{size}); {part}"


def _made(one: Figures) -> str:
    data = one.summary.get("data", {})
    step, best = one.number("step"), one.number("best_step")
    steps = "one pass" if one.counts else f"{whole(step)} (best weights: step {whole(best)})"
    facts: list[tuple[str, Any]] = [
        ("data", _code(data.get("source", NONE))),
        ("data fingerprint", _code(data.get("fingerprint", NONE))),
        *([("learnt from", _teacher(one))] if one.summary.get("teacher") else []),
        ("made with", f"Seriatim {_text(one.summary.get('version', NONE))}, {_text(created(one))}"),
        ("seed", _text(one.summary.get("seed", NONE))),
        ("steps", steps),
        (f"{one.element} read", scaled(one.number("tokens"))),
        ("training time", seconds(one.number("seconds"))),
        ("training compute", scaled(one.number("flops"), "FLOP")),
        ("peak memory", scaled(one.number("memory"), "B")),
        ("ended", _text(ended(one)[0].lower() + ended(one)[1:])),
    ]
    table = "\n".join([_line("", ""), _line("---", "---"), *(_line(name, value) for name, value in facts)])
    notes = "\n".join(f"* {_text(note)}" for note in data_notes(one))
    told = f"\n\nAbout the data:\n\n{notes}" if notes else ""
    return f"{table}{told}\n\nEvery setting is in `config.yaml`; pictures of the training are in `report.html`."


def _use(one: Figures) -> str:
    folder = str(one.run.path)
    quoted = shlex.quote(folder)
    shell, python = _asked(one, quoted)
    again = f"seriatim train --config {quoted}/config.yaml  # again"
    program = ["import seriatim", "", f"run = seriatim.load({folder!r})", *python]
    return _fence("\n".join([*shell, again]), "sh") + "\n\n" + _fence("\n".join(program), "python")


def _asked(one: Figures, folder: str) -> tuple[list[str], list[str]]:
    """What can be asked of a model of this task: as commands, and in Python."""
    if one.speaks:
        return (
            [
                f'seriatim generate {folder} --prompt "Once"',
                f'seriatim next {folder} "Once"',
                f'seriatim score {folder} "Once upon a time"',
            ],
            ['print(run.generate("Once", max_tokens=40))', 'print(run.next("Once"))'],
        )
    if one.task == "music":
        return [f"seriatim generate {folder} --out piece.mid --max-tokens 200"], [
            'run.compose("piece.mid", frames=200)'
        ]
    if one.task == "translate":
        shell = [
            f'seriatim translate {folder} "a text"',
            f"seriatim translate {folder} --file texts.txt --out translations.txt",
        ]
        return shell, ['print(run.translate("a text"))', 'print(run.translate(["a text", "another"]))']
    if one.task == "forecast":
        shell = [
            f"seriatim predict {folder}  # what comes next",
            f"seriatim predict {folder} --data new.csv --out next.csv",
        ]
        return shell, ['print(run.predict_file("new.csv").text(".csv"))']
    if one.task == "answer":
        shell = [
            f'seriatim answer {folder} --passage article.txt "Who …?"',
            f"seriatim answer {folder} --data questions.json --out predictions.json",
        ]
        return shell, ['print(run.answer("Oslo lies in Norway.", "Where is Oslo?"))']
    if one.task == "pretrain":
        fit = f"seriatim train classify --data labelled.csv --from {folder}"
        shell, python = [f'seriatim embed {folder} "a text"', fit], ['print(run.embed("a text"))']
        if one.setting("task", "masked"):
            gap = '"The capital of [MASK] is Paris."'
            shell, python = [f"seriatim predict {folder} {gap}", *shell], [f"print(run.predict({gap}))", *python]
        return shell, python
    shell, python = [], []
    if (one.run.path / "tokenizer.json").is_file():
        text, list_of = (
            ("$'one text\\tanother'", '("one text", "another")') if _pairs(one) else ('"a text"', '"a text", "another"')
        )
        shell, python = [f"seriatim predict {folder} {text}"], [f"print(run.predict([{list_of}]))"]
    shell.append(f"seriatim predict {folder} --data new.csv --out answers.csv")
    return shell, [*python, 'run.predict_file("new.csv").write("answers.csv")']


def _pairs(one: Figures) -> bool:
    """Whether an input is two texts."""
    file = one.run.path / "data.json"
    return file.is_file() and json.loads(file.read_text(encoding="utf-8")).get("pairs") is True


def _sample(one: Figures) -> str:
    text = str(one.summary.get("sample", ""))
    verb = "writes" if one.speaks or one.task == "music" else "translates" if one.task == "translate" else "answers"
    return f"It {verb} like this:\n\n{_fence(cut(text, 1_500), 'text')}" if text.strip() else ""


# Markdown that holds whatever the text says


def _text(value: Any) -> str:
    """One line of prose in which nothing is markup."""
    line = " ".join(visible(str(value)).split())
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", line)


def _code(value: Any) -> str:
    """Between more backticks than it holds; a bar would end the cell of a table even there."""
    line = " ".join(visible(str(value)).split()).replace("|", "\\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if len(ticks) > 1 else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def _fence(text: str, language: str) -> str:
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{visible(text)}\n{ticks}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
