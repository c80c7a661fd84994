"""Reports are made from run folders alone: these are written by hand, so that every figure is known."""

from __future__ import annotations

import ast
import itertools
import json
import math
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seriatim import report
from seriatim.core.config import dump_yaml, merge
from seriatim.core.errors import SeriatimError
from seriatim.report import axes, charts, figures, looks, numbers
from seriatim.report.lessons import lessons
from seriatim.runs import Run

NASTY = "<script>alert('x')</script> & \"quoted\" \x00\x07\x1b[31m\r\x7f\x85 \ud800 </pre> ]]> ‮evil"
LOSSES = {"ngram": 1.92, "mlp": 1.81, "rnn": 1.70, "lstm": 1.58, "gru": 1.55, "tcn": 1.62, "gpt": 1.47}
SPEEDS = {"mlp": 210_000, "rnn": 38_000, "lstm": 31_000, "gru": 33_000, "tcn": 96_000, "gpt": 88_000}
OWN = {
    "ngram": {"order": 5, "entries": 1_000_000},
    "mlp": {"width": 1_100, "window": 16},
    "lstm": {"width": 380},
    "gru": {"width": 430},
    "tcn": {"width": 170, "levels": 4, "kernel": 3},
    "gpt": {"width": 140, "layers": 4, "heads": 4, "context": None},
}
TEXT = (
    "KING RICHARD:\nWhat say you, my lord? The morning is not so far as the\nhonour of thy father's house, "
    "and we shall make\nThe people of the court to hear thee speak.\n\nGLOUCESTER:\nI thank your grace."
)


def make_run(folder: Path, model: str, loss: float | None = None, **changes: Any) -> Run:
    """A run folder as training leaves it. `changes` go into summary.json; `settings` into
    config.yaml, and the events of `tail` come last."""
    loss = LOSSES[model] if loss is None else loss
    settings = merge(_settings(model), changes.pop("settings", {}))
    tail = changes.pop("tail", [])
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_yaml(settings), encoding="utf-8")
    events = [*(_counted(loss) if model == "ngram" else _learned(model, loss)), *tail]
    samples = [
        {"step": e["step"], "tokens": e["tokens"], "text": f"{TEXT[: 20 + e['step'] // 4]}"}
        for e in events
        if e["event"] == "evaluated"
    ]
    _lines(folder / "metrics.jsonl", events)
    _lines(folder / "samples.jsonl", samples)
    (folder / "summary.json").write_text(json.dumps(_summary(model, loss, events) | changes), encoding="utf-8")
    return Run(folder)


def _settings(model: str) -> dict[str, Any]:
    return {
        "task": {"name": "language", "length": 128},
        "data": {"source": "books/shakespeare.txt", "valid": None, "tokenizer": {"kind": "characters", "size": None}},
        "model": {"name": model, "dropout": 0.0} | OWN.get(model, {"width": 500}),
        "train": {
            "steps": None,
            "minutes": 0.5,
            "batch": 32,
            "clip": 1.0,
            "optimiser": {"name": "adamw", "rate": None},
        },
        "params": 1_000_000,
        "seed": 0,
    }


def _learned(model: str, loss: float) -> Iterator[dict[str, Any]]:
    """Thirty seconds of steps: the loss falls along a power of the tokens to `loss`, with an evaluation each tenth."""
    noise = random.Random(model)
    per_step = 32 * 128
    steps = max(SPEEDS.get(model, 50_000) * 30 // per_step, 20)
    yield {
        "event": "started",
        "step": 0,
        "seconds": 0.0,
        "steps": None,
        "parameters": 990_000,
        "flops": 6e9,
        "ranks": 1,
    }
    for step in range(1, steps + 1):
        now = {"step": step, "seconds": 30 * step / steps}
        value = loss + 2.6 * ((step / steps) ** -0.25 - 1) if step > 1 else 4.17
        value = min(value, 4.17)
        rate = 2e-3 * min(step / 100, 0.55 + 0.45 * math.cos(math.pi * step / steps))
        norm = 0.4 + 3 * math.exp(-step / 30) + abs(noise.gauss(0, 0.2))
        told = {"loss": value - 0.05 + noise.gauss(0, 0.05), "rate": rate, "norm": norm, "tokens": step * per_step}
        yield {"event": "stepped", **now} | told
        if step % (steps // 10) == 0:
            measures = {"loss": value, "perplexity": math.exp(value)}
            yield {"event": "evaluated", **now, "measures": measures, "best": True, "tokens": step * per_step}
    last = {"step": steps, "seconds": 30.0}
    measures = {"loss": loss, "perplexity": math.exp(loss)}
    yield {"event": "evaluated", **last, "measures": measures, "best": True, "tokens": steps * per_step}
    yield {"event": "stopped", **last, "reason": "minutes", "best_step": steps, "tokens": steps * per_step}


def _counted(loss: float) -> Iterator[dict[str, Any]]:
    yield {"event": "started", "step": 0, "seconds": 0.0, "steps": 1, "parameters": 0, "flops": None, "ranks": 1}
    measures = {"loss": loss, "perplexity": math.exp(loss)}
    yield {"event": "evaluated", "step": 1, "seconds": 0.84, "measures": measures, "best": True, "tokens": 1_003_854}
    yield {"event": "stopped", "step": 1, "seconds": 0.84, "reason": "finished", "best_step": 1, "tokens": 1_003_854}


def _summary(model: str, loss: float, events: list[dict[str, Any]]) -> dict[str, Any]:
    end = events[-1]
    measures = {
        split: {
            "loss": loss + more,
            "perplexity": math.exp(min(loss + more, 700)),
            "bits_per_character": (loss + more) / math.log(2),
            "tokens": 55_769.0,
        }
        for split, more in (("valid", 0.0), ("test", 0.031))
    }
    return {
        "version": "0.1.0",
        "created": "2026-11-16T00:15:13+00:00",
        "task": "language",
        "model": model,
        "seed": 0,
        "data": {
            "source": "books/shakespeare.txt",
            "fingerprint": "9f2c51e0a7",
            "notes": ["65 different characters", "split into 1,003,854 / 55,770 / 55,770 tokens"],
        },
        "reason": end.get("reason", "minutes"),
        "step": end["step"],
        "best_step": end.get("best_step", end["step"]),
        "parameters": 1_000_000 if model == "ngram" else 996_413,
        "seconds": end["seconds"],
        "tokens": end["tokens"],
        "tokens_per_second": round(end["tokens"] / end["seconds"], 1),
        "flops": None if model == "ngram" else 6e9 * end["step"],
        "memory": 812_345_678,
        "measures": measures,
        "sample": TEXT,
    }


def _lines(file: Path, records: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


class Page(HTMLParser):
    """Checks that every element is closed in its turn, and keeps what tests ask for."""

    VOID = {"meta", "br", "hr", "img", "link", "input", "path", "line", "rect", "circle"}

    def __init__(self, file: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = file.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.values: dict[str, list[tuple[float, str]]] = {}  # the data elements of each table row, by its header
        self.row = ""
        self.value: float | None = None
        self.text = ""
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.row = ""
        if tag == "data":
            self.value = float(dict(attrs)["value"] or "nan")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag
        if tag == "data":
            self.value = None

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        self.text += data
        if "tbody" in self.open and self.open[-1] == "th":
            self.row = self.row or data
        if self.value is not None:
            self.values.setdefault(self.row, []).append((self.value, data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def check(self) -> None:
        """What holds for every page: alone, silent, accessible, small."""
        assert len(self.source.encode()) < 3_000_000
        assert not self.named("script")
        assert not self.named("link")
        assert not self.named("a")
        for _, attrs in self.tags:
            assert not any(name.startswith("on") or name == "src" for name in attrs)
            assert str(attrs.get("href") or "#").startswith(("#", "data:image/png;base64,")), "a picture is in the page"
            assert not any("http:" in str(value) or "https:" in str(value) for value in attrs.values())
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", self.source)
        assert all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in self.named("svg"))
        assert all(attrs.get("scope") in ("row", "col") for attrs in self.named("th"))
        assert len(self.named("caption")) == len(self.named("table"))
        parts = [attrs[part] for _, attrs in self.tags for part in ("fill", "stroke") if attrs.get(part)]
        plain = {part for part in parts if not str(part).startswith("url(#")}
        assert plain <= {*looks.PAIRS, "none", "transparent"}  # what the style can turn into dark colours
        assert all(f'[fill="{light}"] {{ fill: {dark}; }}' in self.source for light, dark in looks.PAIRS.items())
        assert all("tabindex" in attrs for attrs in self.named("figure") if "wide" in str(attrs.get("class")))
        identifiers = [attrs["id"] for _, attrs in self.tags if "id" in attrs]
        assert len(identifiers) == len(set(identifiers))
        used = set(re.findall(r"url\(#([^)]*)\)", self.source))
        assert used <= set(identifiers)


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("lineage")
    return [make_run(folder / name, name) for name in LOSSES]


@pytest.fixture(scope="module")
def comparison(lineage: list[Run]) -> Page:
    folder = lineage[0].path.parent
    report.write_comparison_report(folder, lineage, {"mamba": "[budget.too-small] <b>too small</b>\n  remedy: more"})
    return Page(folder / "report.html")


# Rows


def test_a_row_says_what_the_summary_says(lineage: list[Run]) -> None:
    for run in lineage:
        row, summary = report.row(run), run.summary
        assert row["model"] == summary["model"]
        for name in ("parameters", "flops", "tokens_per_second", "memory", "seconds", "reason"):
            assert row[name] == summary[name]
        assert row["steps"] == summary["step"]
        assert row["valid_loss"] == summary["measures"]["valid"]["loss"]
        assert row["test_loss"] == summary["measures"]["test"]["loss"]
        assert row["perplexity"] == summary["measures"]["valid"]["perplexity"]
        assert row["bits_per_character"] == summary["measures"]["valid"]["bits_per_character"]
        assert row["budget"] == 1_000_000
        assert row["off_budget"] == pytest.approx(summary["parameters"] / 1_000_000 - 1)


def test_a_row_of_what_is_missing_or_not_finite_is_still_json(tmp_path: Path) -> None:
    stopped = make_run(tmp_path / "a", "lstm", reason="SIGINT", measures={}, settings={"params": None})
    broken = make_run(tmp_path / "b", "rnn", measures={"valid": {"loss": math.nan, "perplexity": math.inf}})
    bare = make_run(tmp_path / "c", "gru")
    (bare.path / "summary.json").unlink()
    rows = [report.row(run) for run in (stopped, broken, bare)]
    json.dumps(rows, allow_nan=False)
    assert [row["valid_loss"] for row in rows] == [None, None, None]
    assert rows[0]["budget"] is None
    assert rows[0]["off_budget"] is None
    assert rows[1]["perplexity"] is None
    assert [row["reason"] for row in rows] == ["SIGINT", "minutes", "not finished"]
    assert len({tuple(row) for row in rows}) == 1


# Numbers


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_020_000, "", "1.02 M"),
        (996_413, "", "996 k"),
        (999_999, "", "1 M"),
        (950, "", "950"),
        (0, "B", "0 B"),
        (3.4e12, "FLOP", "3.4 TFLOP"),
        (812_345_678, "B", "812 MB"),
        (None, "B", "–"),
        (math.inf, "", "∞"),
        (math.nan, "", "not a number"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(value: float | None, unit: str, text: str) -> None:
    assert numbers.scaled(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.042, "42 ms"), (0.84, "840 ms"), (35.0, "35 s"), (119, "119 s"), (119.7, "2 min 00 s"), (11_100, "3 h 05 min")],
)
def test_times_are_told_as_people_do(value: float, text: str) -> None:
    assert numbers.seconds(value) == text


# The comparison


def test_the_page_of_a_comparison_is_sound(comparison: Page) -> None:
    comparison.check()
    assert len(comparison.named("svg")) == 4


def test_the_table_holds_the_figures_of_the_summaries_best_first(comparison: Page, lineage: list[Run]) -> None:
    ordered = sorted(lineage, key=lambda run: run.summary["measures"]["valid"]["loss"])
    assert list(comparison.values) == [run.summary["model"] for run in ordered]
    for run in lineage:
        summary = run.summary
        valid, test = summary["measures"]["valid"], summary["measures"]["test"]
        wanted = [valid["loss"], test["loss"], valid["perplexity"], valid["bits_per_character"], summary["parameters"]]
        wanted += [summary[name] for name in ("flops", "tokens_per_second", "memory", "seconds", "step")]
        found = [value for value, _ in comparison.values[summary["model"]]]
        assert found == [value for value in wanted if value is not None]
    shown = {text for _, text in comparison.values["gpt"]}
    assert {"1.470", "1.501", "4.35", "2.121", "996 k", "812 MB", "30 s"} <= shown
    assert comparison.source.count('class="badge"') == 1
    assert re.search(r'<tr class="best"><th scope="row">.{0,200}gpt<span class="badge">', comparison.source)


def test_the_page_tells_of_failures_settings_and_how_to_do_it_again(comparison: Page) -> None:
    assert "<b>too small</b>" in comparison.text
    assert "65 different characters" in comparison.text
    assert "9f2c51e0a7" in comparison.text
    command = comparison.text[comparison.text.index("seriatim compare") :].split("\n\n")[0]
    for part in (
        "language",
        "--data books/shakespeare.txt",
        "ngram,mlp,rnn,lstm,gru,tcn,gpt,mamba",
        "--params 1000000",
    ):
        assert part in command
    assert "model.window" in comparison.text
    assert "batch: 32" in comparison.text


def test_every_model_keeps_its_colour(lineage: list[Run]) -> None:
    for runs in (lineage, lineage[3:5], lineage[::-1]):
        found = charts.colours(figures.read(runs))
        assert found == {run.summary["model"]: looks.OWN[run.summary["model"]] for run in runs}
    twins = figures.read([lineage[3], lineage[3], lineage[4]])
    assert len({one.label for one in twins}) == 3
    assert len(set(charts.colours(twins).values())) == 3


def test_odd_runs_make_a_sound_page_too(tmp_path: Path) -> None:
    """Interrupted, without a test part, not finite, hostile: each has its row and breaks nothing."""
    notes = [NASTY, *(f"note {index}" for index in range(100))]
    data = {"source": f"{NASTY}.txt", "fingerprint": "f", "notes": notes}
    runs = [
        make_run(tmp_path / "ngram", "ngram", data=data, sample=NASTY),
        make_run(tmp_path / "stopped", "lstm", reason="SIGTERM", measures={}, sample="", data=data),
        make_run(tmp_path / "no-test", "gru", measures={"valid": {"loss": 1.5, "perplexity": 4.5}}, data=data),
        make_run(tmp_path / "nan", "rnn", measures={"valid": {"loss": math.nan, "perplexity": math.inf}}, data=data),
        make_run(tmp_path / "<i>own", "my<own>model", loss=1.7, data=data, sample=NASTY),
        make_run(tmp_path / "again", "gru", loss=1.9, data=data),
    ]
    (runs[1].path / "metrics.jsonl").write_text('{"event": "started", "step": 0, "secon')
    with open(runs[2].path / "metrics.jsonl", "a", encoding="utf-8") as out:
        out.write(json.dumps({"event": "stepped", "step": 300, "seconds": 31, "loss": math.nan, "tokens": 1}) + "\n")
    report.write_comparison_report(tmp_path, runs, {NASTY: NASTY})
    page = Page(tmp_path / "report.html")
    page.check()
    assert "<script>alert('x')</script>" in page.text
    assert "␛[31m" in page.text
    assert "not a number" in page.text
    assert "gru (no-test)" in page.text
    assert "SIGTERM" in page.text


def test_a_comparison_of_nothing_but_an_interrupted_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "lstm", "lstm", reason="SIGINT", measures={})
    report.write_comparison_report(tmp_path, [run], {})
    page = Page(tmp_path / "report.html")
    page.check()
    assert 'class="badge"' not in page.source


# One run


@pytest.mark.parametrize("model", ["lstm", "ngram"])
def test_the_page_of_a_run_is_sound(model: str, lineage: list[Run]) -> None:
    run = next(run for run in lineage if run.summary["model"] == model)
    report.write_run_report(run)
    page = Page(run.path / "report.html")
    page.check()
    assert len(page.named("svg")) == (0 if model == "ngram" else 4)
    assert f"{LOSSES[model]:.3f}" in page.text
    assert "length: 128" in page.text
    assert len(page.named("article")) == (1 if model == "ngram" else 8)


@pytest.mark.parametrize("bare", [False, True])
def test_a_hostile_or_empty_run_makes_a_sound_page_and_card(bare: bool, tmp_path: Path) -> None:
    run = make_run(tmp_path / "lstm", "lstm", reason="SIGINT", measures={}, sample=NASTY)
    _lines(run.path / "samples.jsonl", [{"step": 1, "tokens": 1, "text": NASTY + "```" * 4}])
    if bare:
        for name in ("summary.json", "metrics.jsonl", "samples.jsonl"):
            (run.path / name).unlink()
    report.write_run_report(run)
    report.write_card(run)
    Page(run.path / "report.html").check()
    text = (run.path / "README.md").read_text(encoding="utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_the_card_says_what_the_model_is_and_how_it_was_made(lineage: list[Run]) -> None:
    run = lineage[3]
    report.write_card(run)
    text = (run.path / "README.md").read_text(encoding="utf-8")
    for part in ("# lstm on shakespeare.txt", "Long short-term memory", "996,413", "−0.4 %", "`9f2c51e0a7`", "0.1.0"):
        assert part in text
    for part in ("| seed | 0 |", "| loss (nats per token) | 1.5800 | 1.6110 |", "seriatim generate", "seriatim.load("):
        assert part in text


def test_text_cannot_break_out_of_the_card(tmp_path: Path) -> None:
    sample = "a\n```\n# Not a heading\n````\nb"
    run = make_run(
        tmp_path / "lstm", "lstm", sample=sample, data={"source": "a|b`c\n# d", "fingerprint": "x", "notes": []}
    )
    report.write_card(run)
    text = (run.path / "README.md").read_text(encoding="utf-8")
    assert f"`````text\n{sample}\n`````" in text
    assert "| data | `` a\\|b`c # d `` |" in text


# Lessons


def pair(folder: Path, newer: str, older: str, new: float, old: float, **changes: Any) -> str:
    """What is said about a model and its predecessor."""
    runs = [make_run(folder / older, older, loss=old), make_run(folder / newer, newer, loss=new, **changes)]
    return " ".join(lessons(runs))


@pytest.mark.parametrize(
    ("newer", "older", "idea"),
    [
        ("mlp", "ngram", "vectors"),
        ("rnn", "mlp", "sees 16 tokens"),
        ("lstm", "rnn", "gates keep the gradient alive"),
        ("gru", "lstm", "430 against 380"),
        ("tcn", "gru", "61 tokens at once"),
        ("gpt", "lstm", "last 128 tokens"),
    ],
)
def test_lessons_go_with_the_figures_in_both_directions(newer: str, older: str, idea: str, tmp_path: Path) -> None:
    won = pair(tmp_path / "won", newer, older, 1.50, 1.62)
    assert f"beats {'the best' if newer in ('tcn', 'gpt') else 'the'}" in won
    assert "by 0.12 nats (1.500 against 1.620)" in won
    assert idea in won
    lost = pair(tmp_path / "lost", newer, older, 1.62, 1.50)
    assert "does not beat" in lost
    assert "0.12 nats behind (1.620 against 1.500)" in lost
    assert "Likely: " in lost
    assert idea not in lost
    even = pair(tmp_path / "even", newer, older, 1.500, 1.504)
    assert "draws level" in even
    assert "beats" not in even
    assert idea not in even


def test_a_loss_is_explained_by_what_was_measured(tmp_path: Path) -> None:
    slow = pair(tmp_path, "rnn", "mlp", 1.9, 1.7)
    assert "still improving when it stopped after 278 steps" in slow
    assert "it read 1.14 M tokens, the window MLP 6.3 M, at 38 k against 210 k a second" in slow


def test_learning_by_heart_is_told(tmp_path: Path) -> None:
    worse = {"event": "evaluated", "step": 300, "seconds": 31.0, "measures": {"loss": 1.9}, "best": False, "tokens": 9}
    told = pair(tmp_path, "lstm", "rnn", 1.62, 1.5, tail=[worse], best_step=227)
    assert "best at step 227 of 300 and 0.28 nats worse at the end" in told
    assert "it was at its best at step 227 and then learned by heart" in told
    assert "still improving" not in told


def test_counting_is_set_against_learning(lineage: list[Run], tmp_path: Path) -> None:
    told = " ".join(lessons(lineage))
    assert "counted in 840 ms, without any gradient; the first network to get below its 1.920 was the GPT" in told
    assert "6.8 times as many as the LSTM (31 k): a recurrent network goes from token to token" in told
    none = pair(tmp_path / "y", "mlp", "ngram", 2.5, 1.9)
    assert "no network got below its 1.900" in none


def test_storage_is_measured_on_disk(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("ngram", "gpt")]
    for run, size in zip(runs, (8_200_000, 4_010_000), strict=True):
        (run.path / "model.safetensors").write_bytes(bytes(size))
    told = " ".join(lessons(runs))
    assert "1 M entries, 8.2 MB on disk," in told
    assert "996 k parameters, 4.01 MB on disk," in told


def test_what_cannot_be_compared_is_left_out(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("rnn", "gru")]
    runs.append(make_run(tmp_path / "lstm", "lstm", loss=0.5, reason="SIGINT", measures={}))
    told = lessons(runs)
    assert any("The LSTM was stopped by SIGINT" in text for text in told)
    assert not any("LSTM beats" in text for text in told)
    other = {"source": "other.txt", "fingerprint": "other", "notes": []}
    runs = [runs[0], make_run(tmp_path / "gpt", "gpt", data=other)]
    assert lessons(runs) == ["These runs saw different data: their measures cannot be compared."]


def test_one_run_is_looked_at_by_itself(lineage: list[Run]) -> None:
    told = lessons([lineage[3]])
    norms = [event["norm"] for event in lineage[3].history("stepped")]
    share = 100 * sum(norm > 1 for norm in norms) / len(norms)
    assert told[0].startswith("It was still improving when it stopped")
    assert f"clipped in {share:.0f} % of the recorded steps" in told[-1]
    assert "one pass over 1 M tokens" in lessons([lineage[0]])[0]


# Charts


def test_charts_are_saved_in_every_format(lineage: list[Run], tmp_path: Path) -> None:
    made = {
        "curves": charts.curves(lineage),
        "trade-off": charts.trade_off(lineage),
        "schedule": charts.schedule(lineage[3]),
        "alone": lineage[3].plot(),
        "counted": charts.curves(lineage[:1]),
        "no-schedule": charts.schedule(lineage[0]),
    }
    for name, chart in made.items():
        charts.save(chart, tmp_path / f"{name}.png")
        data = (tmp_path / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert int.from_bytes(data[16:20], "big") > 800
    charts.save(made["curves"], tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_text(encoding="utf-8").startswith("<svg")
    charts.save(made["curves"], tmp_path / "c.json")
    assert "vega-lite" in json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["$schema"]
    charts.save(made["curves"], tmp_path / "c.html")
    html = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert len(html) > 500_000  # the library is inside
    assert not re.search(r"<script[^>]*\ssrc=|<link", html)
    with pytest.raises(SeriatimError, match="cannot be saved as"):
        charts.save(made["curves"], tmp_path / "c.gif")


def test_the_curves_show_what_was_recorded(lineage: list[Run], tmp_path: Path) -> None:
    charts.save(charts.curves(lineage, ["tokens"]), tmp_path / "c.json")
    spec = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    rows = [row for values in spec["datasets"].values() for row in values]
    for run in lineage:
        last = run.history("evaluated")[-1]
        wanted = {"run": run.summary["model"], "x": last["tokens"], "y": last["measures"]["loss"]}
        assert any(wanted.items() <= row.items() for row in rows)
    assert '"type": "log"' in json.dumps(spec)


def test_dark_and_light_differ_in_nothing_but_colours(lineage: list[Run]) -> None:
    chart = charts.curves(lineage[3:5])
    light, dark = charts.svg(chart), charts.svg(chart, dark=True)
    colour = re.compile(r"#[0-9a-f]{6}")
    assert light != dark
    assert colour.sub("", light) == colour.sub("", dark)
    assert not set(colour.findall(light)) & set(colour.findall(dark))


def test_names_beside_the_lines_never_cover_each_other() -> None:
    places = axes.spread([5.0, 4.99, 4.98, 3.0, 0.02, 0.01], gap=0.5, floor=0.0)
    assert all(above - below >= 0.5 - 1e-9 for above, below in itertools.pairwise(places))
    assert places[3] == 3.0
    assert places[-1] >= 0.0
    assert sum(places[:3]) / 3 == pytest.approx(4.99)
    below = axes.spread([5.0, 4.99, 4.98, 3.0, 0.02, 0.01], gap=0.5, floor=0.0, ceiling=5.0)
    assert below[:4] == pytest.approx([5.0, 4.5, 4.0, 3.0])


# Layering


def test_reports_need_no_torch_and_only_what_they_may_import() -> None:
    for file in Path(report.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                assert (node.module or "").split(".")[0] in ("core", "runs")
            if isinstance(node, ast.Import):
                assert not any(name.name.split(".")[0] == "torch" for name in node.names)
        top = [node for node in tree.body if isinstance(node, ast.Import)]
        assert not any(name.name in ("altair", "vl_convert") for node in top for name in node.names)
