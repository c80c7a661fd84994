"""Run folders written by hand, so that every number of a report is known, and a strict reader of pages."""

from __future__ import annotations

import base64
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seriatim.core.config import merge
from seriatim.core.run_folder import RunFolder

LOSSES = {"ngram": 1.92, "mlp": 1.81, "rnn": 1.70, "lstm": 1.58, "gru": 1.55, "tcn": 1.62, "gpt": 1.47}
SPEEDS = {"mlp": 210_000, "rnn": 38_000, "lstm": 31_000, "gru": 33_000, "tcn": 96_000, "gpt": 88_000}
MODEL_SETTINGS = {
    "ngram": {"order": 5, "entries": 1_000_000},
    "mlp": {"width": 1_100, "window": 16},
    "lstm": {"width": 380},
    "gru": {"width": 430},
    "tcn": {"width": 170, "levels": 4, "kernel": 3},
    "gpt": {"width": 140, "layers": 4, "heads": 4, "context_length": None},
}
SAMPLE = "KING RICHARD:\nWhat say you, my lord? The morning is not so far as the\nhonour of thy father's house. " * 3
RunMaker = Callable[..., RunFolder]


def run_settings(model: str) -> dict[str, Any]:
    return {
        "task": {"name": "language", "context_length": 128},
        "data": {"source": "books/shakespeare.txt", "validation": None},
        "model": {"name": model, "dropout": 0.0} | MODEL_SETTINGS.get(model, {"width": 500}),
        "train": {
            "steps": None,
            "minutes": 0.5,
            "batch_size": 32,
            "clip": 1.0,
            "optimizer": {"name": "adamw", "lr": None},
        },
        "params": 1_000_000,
        "seed": 0,
    }


def trained_events(model: str, loss: float) -> Iterator[dict[str, Any]]:
    """Thirty seconds of steps: the loss falls along a power of the tokens to `loss`, with ten evaluations."""
    noise, per_step = random.Random(model), 32 * 128
    steps = max(SPEEDS.get(model, 50_000) * 30 // per_step, 20)
    yield {"event": "started", "step": 0, "seconds": 0.0, "parameters": 990_000, "flops": 6e9, "unit": "tokens"}
    for step in range(1, steps + 1):
        now = {"step": step, "seconds": 30 * step / steps, "tokens": step * per_step}
        value = min(loss + 2.6 * ((step / steps) ** -0.25 - 1) if step > 1 else 4.17, 4.17)
        lr = 2e-3 * min(step / 100, 0.55 + 0.45 * math.cos(math.pi * step / steps))
        norm = 0.4 + 3 * math.exp(-step / 30) + abs(noise.gauss(0, 0.2))
        yield {"event": "stepped", **now, "loss": value - 0.05 + noise.gauss(0, 0.05), "lr": lr, "grad_norm": norm}
        if step % (steps // 10) == 0 or step == steps:
            value = loss if step == steps else value
            yield {"event": "evaluated", **now, "val_loss": value, "val_perplexity": math.exp(value), "best": True}
    yield {"event": "stopped", **now, "reason": "minutes", "best_step": steps}


def counted_events(loss: float) -> Iterator[dict[str, Any]]:
    now = {"step": 1, "seconds": 0.84, "tokens": 1_003_854}
    yield {"event": "started", "step": 0, "seconds": 0.0, "parameters": 0, "flops": None, "unit": "tokens"}
    yield {"event": "evaluated", **now, "val_loss": loss, "val_perplexity": math.exp(loss), "best": True}
    yield {"event": "stopped", **now, "reason": "finished", "best_step": 1}


def run_summary(model: str, loss: float, events: list[dict[str, Any]]) -> dict[str, Any]:
    end = events[-1]
    metrics = {
        split: {
            "loss": loss + more,
            "perplexity": math.exp(min(loss + more, 700)),
            "bits_per_character": (loss + more) / math.log(2),
            "tokens": 55_769.0,
        }
        for split, more in (("validation", 0.0), ("test", 0.031))
    }
    notes = ["65 different characters", "split into 1,003,854 / 55,770 / 55,770 tokens"]
    return {
        "version": "1.0.0",
        "created": "2026-11-16T00:15:13+00:00",
        "task": "language",
        "task_summary": "Predict the next token",
        "model": model,
        "model_summary": f"The {model} model, in a line",
        "unit": "tokens",
        "seed": 0,
        "data": {"source": "books/shakespeare.txt", "fingerprint": "9f2c51e0a7"},
        "notes": notes,
        "reason": end.get("reason", "minutes"),
        "step": end["step"],
        "best_step": end.get("best_step", end["step"]),
        "parameters": 1_000_000 if model == "ngram" else 996_413,
        "seconds": end["seconds"],
        "tokens": end["tokens"],
        "tokens_per_second": round(end["tokens"] / end["seconds"], 1),
        "flops": None if model == "ngram" else 6e9 * end["step"],
        "memory": 812_345_678,
        "metrics": metrics,
        "sample": SAMPLE,
        "usage": [{"shell": 'seriatim generate runs/x "Once"', "python": 'print(run.generate("Once"))'}],
    }


def write_lines(file: Path, records: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def language_run(path: Path, model: str, loss: float | None = None, **changes: Any) -> RunFolder:
    """Returns a run as training leaves it. `changes` go into summary.json, `settings` into config.yaml, the events of
    `tail` come last, `evaluation` and `inspection` are the views."""
    loss = LOSSES[model] if loss is None else loss
    run = RunFolder.create(path, merge(run_settings(model), changes.pop("settings", {})))
    tail, events = changes.pop("tail", []), changes.pop("events", None)
    for name in ("evaluation", "inspection"):
        if name in changes:
            (path / f"{name}.json").write_text(json.dumps(changes.pop(name)), encoding="utf-8")
    if events is None:
        events = [*(counted_events(loss) if model == "ngram" else trained_events(model, loss)), *tail]
    write_lines(path / "metrics.jsonl", events)
    evaluated = [event for event in events if event["event"] == "evaluated"]
    samples = [{"step": e["step"], "tokens": e["tokens"], "text": SAMPLE[: 20 + e["step"] // 4]} for e in evaluated]
    write_lines(path / "samples.jsonl", samples)
    (path / "summary.json").write_text(json.dumps(run_summary(model, loss, events) | changes), encoding="utf-8")
    return run


def classifier_run(path: Path, model: str, accuracy: float, **changes: Any) -> RunFolder:
    """Returns a run whose accuracy rises to `accuracy`; the loss is lowest at the share `lowest` of the steps."""
    lowest, flops = changes.pop("lowest", 1.0), changes.pop("flops", 6e9)
    events: list[dict[str, Any]] = [
        {"event": "started", "step": 0, "seconds": 0.0, "parameters": 70_000, "flops": flops}
    ]
    for share in (index / 10 for index in range(1, 11)):
        now = {"step": round(100 * share), "seconds": 20 * share, "tokens": round(3200 * share)}
        value = accuracy * (1 - math.exp(-5 * share)) / (1 - math.exp(-5))
        metrics = {"val_loss": 0.4 + (share - lowest) ** 2, "val_accuracy": value, "val_error": 1 - value}
        events.append({"event": "stepped", **now, "loss": 1.2 - share, "lr": 1e-3, "grad_norm": 0.5})
        events.append({"event": "evaluated", **now, **metrics, "best": True})
    summary = {
        "task": "classify",
        "task_summary": "Assign a label to each input",
        "model_summary": model,
        "unit": "examples",
        "monitor": "error",
        "metrics": {
            split: {
                "loss": 0.4,
                "accuracy": accuracy - less,
                "macro_f1": accuracy - less - 0.02,
                "error": 1 - accuracy + less,
                "examples": 1_000.0,
            }
            for split, less in (("validation", 0.0), ("test", 0.01))
        },
        "baselines": {
            split: {"most frequent": {"accuracy": 0.5, "macro_f1": 1 / 3, "error": 0.5}}
            for split in ("validation", "test")
        },
        "data": {"source": "reviews.csv", "fingerprint": "f"},
        "notes": ["1,000 examples, 2 labels"],
        "sample": "a fine film → pos 0.93 (is pos)",
        "step": 100,
        "best_step": 100,
        "seconds": 20.0,
        "tokens": 3_200,
        "flops": 100 * flops,
        "reason": "finished",
        "usage": [{"shell": "seriatim classify runs/x", "python": "run.predict()"}],
    }
    settings = {"task": {"name": "classify", "context_length": None}, "data": {"source": "reviews.csv"}}
    run = language_run(path, model, 1.0, **({"settings": settings, "events": events} | summary | changes))
    (path / "samples.jsonl").unlink()
    return run


class PageReader(HTMLParser):
    """Checks that every element is closed in its turn, and keeps what tests need."""

    VOID = {"meta", "br", "hr", "img", "link", "input", "source"}

    def __init__(self, file: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = file.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.values: dict[str, list[tuple[float, str]]] = {}  # the data elements of each table row, by its first cell
        self.row, self.text = "", ""
        self.value: float | None = None
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

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag
        if tag == "data":
            self.value = None

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        self.text += data
        if "tbody" in self.open and self.open[-1] in ("th", "td"):
            self.row = self.row or data.strip()
        if self.value is not None:
            self.values.setdefault(self.row, []).append((self.value, data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def alt_texts(self) -> list[str]:
        return [str(attrs["alt"]) for attrs in self.named("img")]

    def charts(self) -> list[str]:
        """Returns the light SVG of each chart."""
        sources = [str(attrs["src"]) for attrs in self.named("img")]
        prefix = "data:image/svg+xml;base64,"
        return [base64.b64decode(source[len(prefix) :]).decode() for source in sources if source.startswith(prefix)]

    def check(self) -> None:
        """Checks what holds for every page: one file, no script, accessible, small."""
        assert len(self.source.encode()) < 9_000_000
        assert not any(self.named(tag) for tag in ("script", "link", "a", "iframe", "svg"))
        policies = [attrs["content"] for attrs in self.named("meta") if "http-equiv" in attrs]
        assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
        for tag, attrs in self.tags:
            assert not any(name.startswith("on") or name == "href" for name in attrs)
            sources = [str(attrs[name]) for name in ("src", "srcset") if name in attrs]
            assert all(
                source.startswith(("data:image/svg+xml;base64,", "data:image/png;base64,")) for source in sources
            )
            assert tag != "img" or attrs["alt"]
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", self.source)
        assert all(attrs.get("scope") in ("row", "col") for attrs in self.named("th"))
        assert len(self.named("caption")) == len(self.named("table"))
        dark = [str(attrs["media"]) for attrs in self.named("source")]
        assert all(media == "screen and (prefers-color-scheme: dark)" for media in dark)
        assert len(dark) == len(self.named("picture")) == len(self.charts())


@pytest.fixture(scope="session")
def make_run() -> RunMaker:
    return language_run


@pytest.fixture(scope="session")
def make_classifier() -> RunMaker:
    return classifier_run


@pytest.fixture(scope="session")
def read_page() -> type[PageReader]:
    return PageReader


@pytest.fixture(scope="session")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """A run of each architecture."""
    folder = tmp_path_factory.mktemp("lineage")
    return [language_run(folder / name, name) for name in LOSSES]
