"""Pages are functions of run folders: these are written by hand, so that every number is known."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report_examples import CHARTS
from seriatim import report
from seriatim.core import registry
from seriatim.core.run_folder import RunFolder
from seriatim.report.charts import (
    BinnedMetric,
    HeatmapGrid,
    Lines,
    Series,
    Span,
    SpanText,
    Table,
    TokenStrip,
    matrix,
    views_to_json,
)
from seriatim.report.comparison import distillation_page
from seriatim.report.run_charts import (
    clipped_steps,
    clipping_note,
    cost_charts,
    joined_charts,
    schedule_charts,
    training_curves,
)
from seriatim.report.run_data import RunData, read_runs
from seriatim.report.theme import LIGHT, series_colors

NASTY = "<script>alert('x')</script> & \"quoted\" \x00\x07\x1b[31m\r\x7f\x85 \ud800 </pre> ]]> \u202eevil"
LANGUAGE = ("perplex", "n-gram", "token", "nats", "the text")  # words that only a language model deserves
RunMaker = Callable[..., RunFolder]


@pytest.fixture(scope="module")
def comparison(lineage: list[RunFolder], read_page: Any) -> Any:
    folder = lineage[0].path.parent
    report.write_comparison_report(folder, lineage, {"mamba": "<b>too small</b>"})
    return read_page(folder / "report.html")


# Comparison


def test_the_page_of_a_comparison_is_sound(comparison: Any) -> None:
    comparison.check()
    assert len(comparison.charts()) == 4
    assert "<b>too small</b>" in comparison.text
    assert "65 different characters" in comparison.text
    assert "9f2c51e0a7" in comparison.text
    assert "model.window" in comparison.text
    assert "batch_size: 32" in comparison.text


def test_the_table_has_the_numbers_of_the_summaries_best_first(comparison: Any, lineage: list[RunFolder]) -> None:
    ordered = sorted(lineage, key=lambda run: run.summary["metrics"]["validation"]["loss"])
    assert [row for row in comparison.values if row in {run.path.name for run in lineage}] == [
        run.summary["model"] for run in ordered
    ]
    for run in lineage:
        summary = run.summary
        validation, test = summary["metrics"]["validation"], summary["metrics"]["test"]
        numbers = [validation["loss"], test["loss"], validation["perplexity"], validation["bits_per_character"]]
        numbers.append(validation["loss"])  # again beside the costs
        numbers += [summary[name] for name in ("parameters", "flops", "tokens_per_second", "memory", "seconds", "step")]
        shown = [value for value, _ in comparison.values[summary["model"]]]
        assert shown == [value for value in numbers if value is not None]
    texts = {text for _, text in comparison.values["gpt"]}
    assert {"1.470", "1.501", "4.35", "2.121", "996 k", "812 MB", "30 s"} <= texts
    assert 'class="badge"' not in comparison.source  # one seed names no winner
    assert 'class="top"' not in comparison.source


def test_the_first_screen_says_which_model_how_sure_and_at_what_cost(
    make_run: RunMaker, read_page: Any, tmp_path: Path
) -> None:
    losses = {"rnn": (1.70, 1.71, 1.69), "gru": (1.50, 1.52, 1.51), "ngram": (1.92,)}
    runs = [
        make_run(tmp_path / f"{model}-{seed}", model, loss, settings={"seed": seed})
        for model, own in losses.items()
        for seed, loss in enumerate(own)
    ]
    report.write_comparison_report(tmp_path, runs)
    page = read_page(tmp_path / "report.html")
    page.check()
    first_screen = page.text[: page.text.index("Results")]
    for text in (
        "Best modelGRUvalidation loss 1.510 ± 0.010 nats per token",
        "Ahead by0.19 natsof the plain RNN",
        "How surep < 0.001Welch's t-test over seeds",
        "Cost of GRU30 s996 k parameters, 1.45 TFLOP",
        "30 s of training each, evaluations not counted, seeds 0, 1, 2. 7 trainings, 3 min 01 s in total.",
        f"seriatim train --config {tmp_path}/gru-0/config.yaml --minutes 5",
    ):
        assert text in first_screen
    assert re.search(r'<tr class="best"><th scope="row">.{0,120}gru<span class="badge">', page.source)
    assert page.source.count('class="badge"') == page.source.count('class="top"') == 1
    assert page.values["ngram"][0] == (1.92, "1.920")
    assert "100 % of 30 s" in page.text
    assert "--seeds 0,1,2" in page.text
    (heads,) = re.findall(r"<caption><span><strong>Settings in which.*?</thead>", page.source, re.S)
    assert re.findall(r">([^<>\n]+)</th>", heads) == ["Setting", "Plain RNN", "GRU", "N-gram"]


def test_the_command_can_be_repeated(comparison: Any) -> None:
    command = comparison.text[comparison.text.index("seriatim compare") :].split("\n\n")[0]
    models = "ngram,mlp,rnn,lstm,gru,tcn,gpt,mamba"
    for part in (
        "language",
        "--data books/shakespeare.txt",
        models,
        "--params 1000000",
        "--minutes 0.5",
        "--batch-size 32",
    ):
        assert part in command


def registry_colors(names: list[str]) -> dict[str, list[str]]:
    return {name: info.color or [] for name, info in registry.models.infos(names).items()}


def test_every_model_keeps_its_color(lineage: list[RunFolder]) -> None:
    for runs in (lineage, lineage[3:5], lineage[::-1]):
        labels = [run.label for run in read_runs(runs)]
        assert series_colors(labels, LIGHT) == {label: colors[0] for label, colors in registry_colors(labels).items()}
    twins = read_runs([lineage[3], lineage[3], lineage[4]])
    labels = [run.label for run in twins]
    assert len(set(labels)) == len(set(series_colors(labels, LIGHT).values())) == 3


def test_odd_runs_make_a_sound_page_too(make_run: RunMaker, read_page: Any, tmp_path: Path) -> None:
    """Interrupted, without a test split, not finite, hostile: each has its row and breaks nothing."""
    shared = {
        "data": {"source": f"{NASTY}.txt", "fingerprint": "f"},
        "notes": [NASTY, *(f"note {n}" for n in range(99))],
    }
    runs = [
        make_run(tmp_path / "ngram", "ngram", sample=NASTY, **shared),
        make_run(tmp_path / "stopped", "lstm", reason="SIGTERM", metrics={}, sample="", **shared),
        make_run(tmp_path / "no-test", "gru", metrics={"validation": {"loss": 1.5, "perplexity": 4.5}}, **shared),
        make_run(tmp_path / "nan", "rnn", metrics={"validation": {"loss": math.nan, "perplexity": math.inf}}, **shared),
        make_run(tmp_path / "<i>own", "my<own>model", loss=1.7, sample=NASTY, **shared),
        make_run(tmp_path / "again", "gru", loss=1.9, **shared),
    ]
    (runs[1].path / "metrics.jsonl").write_text('{"event": "started", "step": 0, "secon')
    with open(runs[2].path / "metrics.jsonl", "a", encoding="utf-8") as out:
        out.write(json.dumps({"event": "stepped", "step": 300, "seconds": 31, "loss": math.nan, "tokens": 1}) + "\n")
    report.write_comparison_report(tmp_path, runs, {NASTY: NASTY})
    page = read_page(tmp_path / "report.html")
    page.check()
    for text in ("<script>alert('x')</script>", "␛[31m", "not a number", "gru (no-test)", "SIGTERM", "… and 60 more"):
        assert text in page.text
    rows = report.comparison_rows(runs[1:4])
    json.dumps(rows, allow_nan=False)
    assert [row["val_loss"] for row in rows] == [None, 1.5, None]
    assert [row["reason"] for row in rows] == ["SIGTERM", "minutes", "minutes"]
    assert len({tuple(row) for row in rows}) == 1


def test_a_comparison_of_nothing_but_an_interrupted_run(make_run: RunMaker, read_page: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "lstm", "lstm", reason="SIGINT", metrics={})
    report.write_comparison_report(tmp_path, [run])
    page = read_page(tmp_path / "report.html")
    page.check()
    assert 'class="badge"' not in page.source


def test_a_comparison_is_ranked_by_the_monitor_with_the_baselines_below(
    make_classifier: RunMaker, read_page: Any, tmp_path: Path
) -> None:
    accuracies = {"mlp": 0.48, "rnn": 0.80, "lstm": 0.84}
    runs = [make_classifier(tmp_path / name, name, value, lowest=0.5) for name, value in accuracies.items()]
    report.write_comparison_report(tmp_path, runs)
    page = read_page(tmp_path / "report.html")
    page.check()
    assert list(page.values) == ["lstm", "rnn", "mlp", "most frequent"]
    assert [text for _, text in page.values["lstm"]][:4] == ["84.0 %", "83.0 %", "0.400", "82.0 %"]
    assert [text for _, text in page.values["most frequent"]] == ["50.0 %", "50.0 %", "33.3 %"]
    assert "Higher is better" in page.text
    assert "What each model produces" in page.text
    assert not any(word in page.text.split("Settings")[0].lower() for word in LANGUAGE)
    row = report.comparison_rows(runs)[2]
    assert (row["val_loss"], row["test_loss"], row["val_accuracy"]) == (0.4, 0.4, 0.84)
    assert (row["val_macro_f1"], row["test_error"]) == (0.82, pytest.approx(0.17))
    assert not any("perplexity" in key or "examples" in key for key in row)


def test_a_model_is_not_its_own_baseline(make_classifier: RunMaker, read_page: Any, tmp_path: Path) -> None:
    """A row that is a model of the comparison is no baseline of the others there."""
    simple = {"most frequent": {"accuracy": 0.5, "error": 0.5}}
    counted = dict.fromkeys(("validation", "test"), simple)
    trained = {split: simple | {"5-gram": {"accuracy": 0.7, "error": 0.3}} for split in ("validation", "test")}
    network = make_classifier(tmp_path / "rnn", "rnn", 0.8, lowest=0.5, baselines=trained)
    ngram = make_classifier(tmp_path / "ngram", "ngram", 0.7, lowest=0.5, baselines=counted)
    for runs, rows in (([network, ngram], ["rnn", "ngram"]), ([network], ["rnn"])):
        report.write_comparison_report(tmp_path, runs)
        page = read_page(tmp_path / "report.html")
        alone = [] if ngram in runs else ["5-gram"]
        assert list(page.values) == [*rows, "most frequent", *alone]


def test_charts_with_one_name_become_one_chart(make_run: RunMaker, read_page: Any, tmp_path: Path) -> None:
    runs = []
    for model, rate in (("rnn", 0.5), ("lstm", 0.9)):
        series = (
            Series(model, tuple(range(20)), tuple(rate**n for n in range(20))),
            Series(f"{model}, before", tuple(range(20)), tuple(0.3**n for n in range(20)), dashed=True),
        )
        flow = Lines(title="How far back", series=series, x="distance", y="norm", log_y=True, join="gradients")
        binned = BinnedMetric(title="F1 by length", metric="f1", x="words", bins=("1", "2"), counts=(3, 4),
                              series={"": (rate, 0.1)}, join="f1")  # fmt: skip
        views = {"inspection": views_to_json([flow]), "evaluation": {"test": views_to_json([binned])}}
        runs.append(make_run(tmp_path / model, model, **views))
    report.write_comparison_report(tmp_path, runs)
    page = read_page(tmp_path / "report.html")
    page.check()
    (flow_text,) = (text for text in page.alt_texts if text.startswith("How far back"))
    assert all(f"{name} from 1 to " in flow_text for name in ("rnn", "rnn, before", "lstm", "lstm, before"))
    (binned_text,) = (text for text in page.alt_texts if text.startswith("F1 by length"))
    assert "lstm: 1 0.9, 2 0.1; rnn: 1 0.5, 2 0.1" in binned_text
    data = read_runs(runs)
    assert joined_charts(data[:1], [data[0].evaluation[1]]) == []
    other = BinnedMetric(
        title="t", metric="f1", x="words", bins=("3", "4"), counts=(3, 4), series={"": (1, 0)}, join="f1"
    )
    assert joined_charts(data, [data[0].evaluation[1], [other]]) == []


# One run


@pytest.mark.parametrize("model", ["lstm", "ngram"])
def test_the_page_of_a_run_is_sound(model: str, lineage: list[RunFolder], read_page: Any) -> None:
    run = next(run for run in lineage if run.summary["model"] == model)
    report.write_run_report(run)
    page = read_page(run.path / "report.html")
    page.check()
    assert len(page.charts()) == (0 if model == "ngram" else 4)
    assert f"{run.summary['metrics']['validation']['loss']:.3f}" in page.text
    assert "context_length: 128" in page.text
    assert len(page.named("article")) == (1 if model == "ngram" else 8)
    for text in (f"The {model} model, in a line", "in nats per token; lower is better", "nor used for selection"):
        assert page.text.count(text) == 1


@pytest.mark.parametrize("bare", [False, True])
def test_a_hostile_or_empty_run_makes_a_sound_page(
    bare: bool, make_run: RunMaker, read_page: Any, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "lstm", "lstm", reason="SIGINT", metrics={}, sample=NASTY)
    line = json.dumps({"step": 1, "tokens": 1, "text": NASTY}) + "\n"
    (run.path / "samples.jsonl").write_text(line, encoding="utf-8")
    if bare:
        for name in ("summary.json", "metrics.jsonl", "samples.jsonl"):
            (run.path / name).unlink()
    report.write_run_report(run)
    read_page(run.path / "report.html").check()


def test_a_run_of_another_task_has_its_own_words(make_classifier: RunMaker, read_page: Any, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    capabilities = {"classify": {"summary": "Predict the label of each input."}}
    (tmp_path / "a" / "capabilities.json").write_text(json.dumps(capabilities), encoding="utf-8")
    notes = {
        "task_summary": "",
        "signatures": {"bleu": "nrefs:1|case:mixed"},
        "evaluation_notes": ["Beam search with 2 beams."],
    }
    run = make_classifier(tmp_path / "a", "lstm", 0.84, **notes)
    report.write_run_report(run)
    page = read_page(run.path / "report.html")
    page.check()
    assert "Validation accuracy84.0 %most frequent 50.0 %" in page.text
    assert "Predict the label of each input. It made all its steps." in page.text
    assert "Examples read" in page.text
    assert "Signatures: BLEU nrefs:1|case:mixed." in page.text
    assert "Beam search with 2 beams." in page.text
    assert not any(word in page.text.split("Settings")[0].lower() for word in LANGUAGE)


def test_every_kind_of_view_is_shown_with_an_alt_text(make_run: RunMaker, read_page: Any, tmp_path: Path) -> None:
    views = views_to_json(list(CHARTS.values()))
    run = make_run(tmp_path / "a", "lstm", evaluation={"validation": [], "test": views}, inspection=views[:1])
    report.write_run_report(run)
    page = read_page(tmp_path / "a" / "report.html")
    page.check()
    assert "Predictions on the test split" in page.text
    assert "cannot be drawn" not in page.text
    assert f"seriatim inspect {tmp_path / 'a'}" in page.text
    drawn = [chart for chart in CHARTS.values() if chart.kind not in ("table", "image_grid")]
    assert len(page.charts()) == 4 + len(drawn) + 1
    for chart in drawn:
        assert " ".join(chart.alt_text.split()) in [" ".join(text.split()) for text in page.alt_texts]
    assert "seven" in page.text  # the images of a grid are on the page itself
    report.write_run_report(make_run(tmp_path / "b", "lstm"))
    assert "Inside the model" not in read_page(tmp_path / "b" / "report.html").text


def test_tables_are_formatted_and_escaped(make_run: RunMaker, read_page: Any, tmp_path: Path) -> None:
    entities = SpanText("<b>Ada</b> met Bob", (Span(3, 6, "PER"), Span(15, 18, "LOC", wrong=True)))
    table = Table(
        title="Label by label", note="On the whole split.", columns=("label", "precision", "F1", "number", "text"),
        rows=(("pos", 0.815, 0.8, 66.0, entities), ("<script>x()</script>", 0.5, None, 1_204, "b")),
    )  # fmt: skip
    long = Table(title="Long", columns=("a",), rows=tuple((n,) for n in range(250)))
    report.write_run_report(make_run(tmp_path / "a", "lstm", evaluation={"validation": views_to_json([table, long])}))
    page = read_page(tmp_path / "a" / "report.html")
    page.check()
    assert "Predictions on the validation split" in page.text
    assert page.values["pos"] == [(0.815, "81.5 %"), (0.8, "80.0 %"), (66.0, "66")]
    assert "<script>x" not in page.source
    assert "<mark>Ada<small>PER</small></mark>" in page.source
    assert '<mark class="wrong">Bob<small>LOC</small></mark>' in page.source
    assert "&lt;b&gt;" in page.source
    assert "The first 200 of 250 rows." in page.text


@pytest.mark.parametrize("kind", CHARTS)
def test_a_broken_view_is_named_and_breaks_nothing(
    kind: str, make_run: RunMaker, read_page: Any, tmp_path: Path
) -> None:
    whole = views_to_json([CHARTS[kind]])[0]
    lists = [key for key, value in whole.items() if isinstance(value, list)] or ["series", "image"]
    broken = [{"kind": kind}, whole | {lists[-1]: 7}, whole | {"more": 1}, {**whole, "kind": f"my {kind}"}]
    run = make_run(tmp_path / "a", "ngram", evaluation={"test": [*broken, "no view"]})
    report.write_run_report(run)
    page = read_page(tmp_path / "a" / "report.html")
    page.check()
    assert page.text.count("cannot be drawn") == len(broken)
    assert f"({kind}) cannot be drawn" in page.text


@pytest.mark.parametrize("name", ["evaluation", "inspection"])
def test_a_damaged_file_is_named(name: str, make_run: RunMaker, tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "lstm")
    (tmp_path / "a" / f"{name}.json").write_text('{"test": [', encoding="utf-8")
    text = report.write_run_report(run).read_text(encoding="utf-8")
    assert f"{name}.json is damaged" in text
    assert "cannot be drawn" in text


def test_a_page_stays_small_whatever_is_inside(
    make_run: RunMaker, read_page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.report.pages.MAX_SECTION", 100_000)
    names = tuple(f"t{n}" for n in range(40))
    panels = {f"head {n}": matrix(np.random.default_rng(n).random((40, 40))) for n in range(2)}
    large = HeatmapGrid(title="Large", rows=names, columns=names, panels=panels, x="", y="")
    small = TokenStrip(title="Small", tokens=("a",), values=(1.0,), label="bits")
    report.write_run_report(make_run(tmp_path / "a", "ngram", inspection=views_to_json([large, large, small])))
    page = read_page(tmp_path / "a" / "report.html")
    page.check()
    assert "2 more are in inspection.json." in page.text
    assert any(text.startswith("Small: bits of 1 tokens") for text in page.alt_texts)


# Curves


def test_the_curves_show_what_was_recorded(lineage: list[RunFolder]) -> None:
    chart = report.curves(lineage, "tokens")
    assert chart.log_x
    for run in lineage[1:]:
        last = run.history("evaluated")[-1]
        (line,) = (line for line in chart.series if line.name == run.summary["model"])
        assert (line.x[-1], line.y[-1]) == (last["tokens"], last["val_loss"])
        assert any(other.thin and other.group == line.group for other in chart.series)
    counted = next(line for line in chart.series if line.name == "ngram")
    assert counted.dashed
    assert set(counted.y) == {1.92}
    alone = report.curves(lineage[3:4])
    assert (alone.x, alone.log_x) == ("training time in seconds", False)
    assert report.curves(lineage[:1]).series[0].y == (1.92, 1.92)


def test_a_metric_where_more_is_better_is_drawn_so(make_classifier: RunMaker, tmp_path: Path) -> None:
    """The steep rise at the beginning may leave the chart, never the end; the baseline is in it if it is near."""
    runs = read_runs([make_classifier(tmp_path / name, name, value) for name, value in (("rnn", 0.7), ("lstm", 0.84))])
    chart = training_curves(runs, "seconds", "accuracy")
    assert chart.metric == "accuracy"
    assert chart.high is not None
    assert chart.high > 0.84
    assert chart.low is not None
    assert 0.4 < chart.low < 0.5
    assert [line.name for line in chart.series if line.dashed] == ["most frequent"]


def test_costs_show_models_without_a_cost_and_near_baselines_as_lines(
    lineage: list[RunFolder], make_classifier: RunMaker, tmp_path: Path
) -> None:
    compute, time = cost_charts(read_runs(lineage))
    assert "ngram" not in compute.labels
    assert [(note.text, note.y) for note in compute.annotations] == [("ngram", 1.92)]
    assert "ngram" in time.labels
    assert time.annotations == ()
    assert (compute.frontier, compute.log_x) == ("lowest", True)
    runs = [make_classifier(tmp_path / name, name, value) for name, value in (("rnn", 0.6), ("lstm", 0.75))]
    chart = cost_charts(read_runs(runs))[0]
    assert chart.frontier == "highest"
    assert [note.text for note in chart.annotations] == ["most frequent"]


def test_clipped_steps_are_counted(
    make_run: RunMaker, read_page: Any, prose: Callable[..., None], tmp_path: Path
) -> None:
    norms = [9.0 if n in (3, 1_001) else 0.5 for n in range(2_000)]
    steps = [
        {"event": "stepped", "step": n + 1, "seconds": n / 9, "tokens": n, "loss": 1.0, "lr": 1e-3, "grad_norm": norm}
        for n, norm in enumerate(norms)
    ]
    started = {"event": "started", "step": 0, "seconds": 0, "parameters": 9, "flops": 1}
    stopped = {"event": "stopped", "step": 2_000, "seconds": 300, "tokens": 9}
    run = make_run(tmp_path / "a", "lstm", events=[started, *steps, stopped])
    data = read_runs([run])[0]
    assert clipped_steps(data) == (2, 2_000, 1.0)
    rate, norm = schedule_charts(data)
    assert norm.points == ((4.0, 9.0), (1_002.0, 9.0))
    assert max(value for value in norm.series[0].y if value is not None) == 9.0
    assert len(rate.series[0].x) == 400
    report.write_run_report(run)
    assert clipping_note(data) in read_page(tmp_path / "a" / "report.html").text
    free = make_run(tmp_path / "b", "lstm", settings={"train": {"clip": None}})
    wide = make_run(tmp_path / "c", "lstm", settings={"train": {"clip": 99.0}})
    counted = make_run(tmp_path / "d", "ngram")
    texts = [clipping_note(data) for data in read_runs([free, wide, counted])]
    assert texts[2] == ""
    prose([clipping_note(data), *texts[:2]])
    assert schedule_charts(read_runs([counted])[0]) == []


# Distillation and other pages


def test_the_page_of_a_distillation(
    make_classifier: RunMaker, read_page: Any, prose: Callable[..., None], tmp_path: Path
) -> None:
    distill = {"distill": {"teacher": "runs/big", "weight": 0.5, "temperature": 2.0, "unlabeled_data": None}}
    folders = {
        "teacher": make_classifier(tmp_path / "big", "gpt", 0.9),
        "alone": make_classifier(tmp_path / "alone", "rnn", 0.8),
        "distilled": make_classifier(tmp_path / "distilled", "rnn", 0.84, settings=distill),
    }
    rows = [
        {
            "model": folder.summary["model"], "monitor": "error", "split": "test", "parameters": size,
            "metrics": folder.summary["metrics"]["test"], "seconds": 20.0, "speed": {"32": speed, "1": speed / 4},
            "bytes": 4 * size,
        }
        for folder, size, speed in zip(folders.values(), (900_000, 70_000, 70_000), (100.0, 700.0, 650.0), strict=True)
    ]  # fmt: skip
    report.write_distillation_report(tmp_path, folders, rows)
    page = read_page(tmp_path / "report.html")
    page.check()
    assert "rnn distilled from gpt on reviews.csv" in page.text
    labels = {run: RunData(folder, run) for run, folder in folders.items()}
    figures = distillation_page(list(labels.values()), rows).figures
    assert [figure.value for figure in figures if "×" in figure.value] == ["13 ×", "6.5 ×"]
    assert all(f"{figure.label}{figure.value}{figure.remark}" in page.text for figure in figures)
    prose([f"{figure.label}: {figure.value}. {figure.remark}" for figure in figures])
    assert [text for _, text in page.values["distilled"]][:1] == ["83.0 %"]
    assert "--teacher runs/big" in page.text
    assert "--distillation-weight 0.5" in page.text
    assert len(page.charts()) == 2 + 4


def test_a_page_of_any_charts_and_texts(read_page: Any, tmp_path: Path) -> None:
    sections = [("Published", ["A <remark>.", CHARTS["bars"], CHARTS["table"]]), ("Nothing", [])]
    path = report.write_page(tmp_path / "p.html", "A table", "Of a paper", sections, {"rnn: settings": "seed: 1"})
    page = read_page(path)
    page.check()
    assert page.text.index("A <remark>.") > page.text.index("Published")
    assert "Nothing" not in page.text
    assert "seed: 1" in page.text
    assert len(page.charts()) == 1
