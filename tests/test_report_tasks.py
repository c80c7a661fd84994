"""Reports of tasks other than language: their measures, baselines and views, from run folders written by hand."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from seriatim import report
from seriatim.report import charts, fields, looks
from seriatim.report.confusion import CLASSES, folded, mistaken
from seriatim.report.figures import read
from seriatim.report.lessons import lessons
from seriatim.report.views import DRAWN
from seriatim.runs import Run
from test_overlay import VIEW as OVERLAY
from test_report import NASTY, Page, make_run

LANGUAGE = ("perplex", "n-gram", "token", "nats", "the text")  # words that only a language model deserves


def classifier(folder: Path, model: str, accuracy: float, **changes: Any) -> Run:
    """A run of `classify` whose accuracy rises to `accuracy`; the loss has its lowest point where `lowest` says."""
    views = changes.pop("views", None)
    lowest = changes.pop("lowest", 1.0)
    flops = changes.pop("flops", 6e9)
    shares = [index / 10 for index in range(1, 11)]
    events: list[dict[str, Any]] = [
        {"event": "started", "step": 0, "seconds": 0.0, "steps": 100, "parameters": 70_000, "flops": flops, "ranks": 1}
    ]
    for share in shares:
        now = {"step": round(100 * share), "seconds": 20 * share, "tokens": round(3200 * share)}
        right = accuracy * (1 - math.exp(-5 * share)) / (1 - math.exp(-5))
        measures = {"loss": 0.4 + (share - lowest) ** 2, "accuracy": right, "error": 1 - right}
        events.append({"event": "stepped", **now, "loss": 1.2 - share, "rate": 1e-3, "norm": 0.5})
        events.append({"event": "evaluated", **now, "measures": measures, "best": True})
    ends = {
        split: {
            "loss": 0.4,
            "accuracy": accuracy - less,
            "macro_f1": accuracy - less - 0.02,
            "error": 1 - accuracy + less,
            "examples": 1_000.0,
        }
        for split, less in (("valid", 0.0), ("test", 0.01))
    }
    simple = {"accuracy": 0.5, "macro_f1": 1 / 3, "error": 0.5}
    about = {
        "task": "classify",
        "objective": "error",
        "measures": ends,
        "baselines": {split: {"most frequent": simple} for split in ("valid", "test")},
        "data": {"source": "reviews.csv", "fingerprint": "f", "notes": ["1,000 examples, 2 labels"]},
        "sample": "a fine film → pos 0.93 (is pos)",
        "step": 100,
        "best_step": 100,
        "seconds": 20.0,
        "tokens": 3_200,
        "flops": 100 * flops,
        "reason": "finished",
    }
    settings = {"task": {"name": "classify", "length": None}, "data": {"source": "reviews.csv"}}
    run = make_run(folder, model, 1.0, **(about | {"settings": settings} | changes))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    (folder / "samples.jsonl").unlink()
    if views is not None:
        (folder / "evaluation.json").write_text(json.dumps(views), encoding="utf-8")
    return run


def path(first: int, values: list[float | None]) -> list[list[Any]]:
    return [[f"2024-01-{first + index:02}", value] for index, value in enumerate(values)]


VIEWS: dict[str, dict[str, Any]] = {
    "table": {
        "kind": "table",
        "title": "Label by label",
        "columns": ["label", "precision", "F1", "examples", "seconds"],
        "rows": [["pos", 0.815, 0.8, 66.0, 12.5], ["<script>x()</script>", 0.5, None, 1_204, 183.25]],
        "note": "On the whole part.",
    },
    "confusion": {"kind": "confusion", "title": "What was taken for what", "labels": ["neg", "pos", NASTY]}
    | {"counts": [[40, 9, 0], [3, 57, 0], [0, 1, 5]]},
    "scatter": {"kind": "scatter", "title": "True and predicted", "x": "true", "y": "predicted"}
    | {"points": [[0.0, 0.1], [1.0, 0.8], [2.0, 2.2], [None, 1.0], [1.0, math.nan]]},
    "forecast": {
        "kind": "forecast",
        "title": "Passengers",
        "name": "Passengers",
        "unit": "thousand",
        "history": path(1, [100.0, None, 120.0]),
        "actual": path(4, [130.0, 125.0]),
        "forecast": path(4, [128.0, 129.0]),
        "low": path(4, [120.0, 126.0]),
        "high": path(4, [136.0, 140.0]),
        "baseline": path(4, [120.0, 120.0]),
    },
    "bars": {"kind": "bars", "title": "Error by length", "measure": "mae"}
    | {"rows": [["short", 0.25], ["long", 0.75], ["long", None]]},
    "roll": {"kind": "roll", "title": "A piece", "frames": 8, "notes": [[0, 4, 60], [2, 8, 67]]},
    "lines": {"kind": "lines", "title": "How far back", "x": "steps", "y": "size", "log": True}
    | {"series": [["gradient", [[0, 1.0], [1, 0.01], [2, 0.0]]]]},
    "heat": {"kind": "heat", "title": "What it looked at", "x": "source", "y": "target", "note": "as translated"}
    | {"columns": ["the", NASTY, "<eos>"], "rows": ["le", "le"], "values": [[0.75, 0.25, 0.0], [0.0, None, 1.0]]},
    "bins": {"kind": "bins", "title": "BLEU by length", "measure": "bleu", "x": "words", "of": "sentences"}
    | {"bins": ["1–4", "5–9"], "counts": [12, 1_340], "series": [["one", [31.25, 20.0]], [NASTY, [None, 18.0]]]},
    "signed": {"kind": "signed", "title": "States", "x": "token", "y": "cell", "low": -1, "high": 1}
    | {"columns": ["the", NASTY], "rows": ["cell 7"], "values": [[-0.5, 0.25]]},
    "heats": {
        "kind": "heats",
        "title": "All heads",
        "x": "to",
        "y": "from",
        "rows": ["a", NASTY],
        "columns": ["a", "b"],
    }
    | {"panels": [["head 0", [[1.0, 0.0], [0.25, 0.75]]], [NASTY, [[0.5, 0.5], [0.0, 1.0]]]]},
    "strip": {"kind": "strip", "title": "Surprise", "hints": ["first", None, NASTY], "tokens": ["a", " b\n", NASTY]}
    | {"values": [None, 8.0, 2.0]},
    "words": {"kind": "words", "title": "Lens", "x": "token", "y": "layer", "rows": ["1", "2"], "columns": ["a", "b"]}
    | {"texts": [[" the", NASTY], ["of", "internationally"]], "values": [[0.5, 0.25], [0.0, 1.0]]},
    "places": {"kind": "places", "title": "Words", "names": ["king", "queen", NASTY], "groups": ["x", "x", NASTY]}
    | {"points": [[0.0, 1.0], [0.5, 1.0], [3.0, 0.0]]},
    "word": {"kind": "word", "title": "bank", "word": "bank", "fragments": ["river bank", NASTY, "bank of cash"]}
    | {"contextual": [[0.0, 1.0], [0.2, 1.0], [3.0, 0.0]], "plain": [[1.0, 1.0]] * 3},
    "overlay": {"kind": "overlay", "title": NASTY, "picture": OVERLAY["picture"], "words": ["a", "dog"]}
    | {"weights": [[0.5, 0.5], [0.25, 0.75]], "grid": [1, 2]},
}
TOLD = {
    "confusion": "102 of 115 are right; most often mistaken: neg taken for pos (9); pos taken for neg (3)",
    "scatter": "3 points from 0.000 to 2.200, on average 0.167 from the diagonal",
    "forecast": "on average 3.000 from what happened, the naive forecast 7.500, 1 of 2 values within the band",
    "bars": "MAE: short 0.250, long 0.750",
    "roll": "2 notes in 8 frames, from C4 to G4",
    "heat": "2 × 3 fields; the largest of each row: le – the (0.75), le – <eos> (1.00)",
    "bins": "one: 1–4 31.2, 5–9 20.0; ",
    "signed": "1 × 2 fields; the lowest is −0.500 (cell 7 – the), the highest 0.250",
    "heats": "2 panels of 2 × 2 fields; the largest of each: head 0: a – a (1.00); ",
    "strip": "3 tokens from 2.000 to 8.000; the furthest: ·b↵ 8.000, ",
    "words": "2 × 2 words; the deepest of each row: 1: ·the at a (0.50); 2: internationally at b (1.00)",
    "places": "3 points in 2 groups (x, ",
    "word": "bank in 3 places; the nearest to each: river bank – ",
    "overlay": "a – at several places alike (50 %); dog – right (75 %)",
}


# Views


def test_every_kind_of_view_has_a_picture_and_words(tmp_path: Path) -> None:
    run = classifier(tmp_path / "a", "lstm", 0.84, views={"valid": [], "test": list(VIEWS.values())})
    report.write_run_report(run)
    page = Page(tmp_path / "a" / "report.html")
    page.check()
    assert "On the test data" in page.text
    assert "cannot be drawn" not in page.text
    spoken = [str(attrs["aria-label"]) for attrs in page.named("svg")]
    for kind, text in TOLD.items():
        assert sum(text in label for label in spoken) == 1, kind
    assert set(VIEWS) == {*DRAWN, "table"}


def test_tables_are_written_as_measures_are(tmp_path: Path) -> None:
    run = classifier(tmp_path / "a", "lstm", 0.84, views={"valid": [VIEWS["table"]]})
    report.write_run_report(run)
    page = Page(tmp_path / "a" / "report.html")
    assert "On the validation data" in page.text
    assert page.values["pos"] == [(0.815, "81.5 %"), (0.8, "80.0 %"), (66.0, "66"), (12.5, "12.5")]
    assert "183.2" in page.text
    assert "<script>x" not in page.source


@pytest.mark.parametrize("kind", list(VIEWS))
def test_a_broken_view_is_told_and_breaks_nothing(kind: str, tmp_path: Path) -> None:
    whole = VIEWS[kind]
    lists = [key for key, value in whole.items() if isinstance(value, list)]
    broken = [
        {key: value for key, value in whole.items() if key != lists[-1]} if kind != "forecast" else {"kind": kind}
    ]
    broken += [
        whole | {lists[-1]: [[1, "x", []], "yz", 3]},
        whole | {lists[-1]: 7},
        {"kind": kind},
        {"kind": f"my {kind}"},
    ]
    run = classifier(tmp_path / "a", "lstm", 0.84, views={"test": [*broken, whole, "no view"]})
    report.write_run_report(run)
    page = Page(tmp_path / "a" / "report.html")
    page.check()
    assert page.text.count("cannot be drawn") == len(broken)


def test_many_classes_are_folded_and_none_is_lost() -> None:
    size = CLASSES + 20
    counts = [[(100 + i if i == j else (i + j) % 2) for j in range(size)] for i in range(size)]
    names, sums = folded([f"c{i}" for i in range(size)], counts)
    assert len(names) == len(sums) == CLASSES
    assert names[-1] == "21 others"
    assert names[0] == "c21"
    assert sum(map(sum, sums)) == sum(map(sum, counts))
    assert "of 2 are right" in mistaken(["a", "b"], [[1, 1], [0, 0]])
    assert mistaken(["a"], [[3]]) == "3 of 3 are right."


def test_a_large_heat_map_is_put_together_and_loses_nothing() -> None:
    size = 2 * fields.FIELDS + 1
    values = [[1.0 if i == j else 0.0 for j in range(size)] for i in range(size)]
    names = [str(index) for index in range(size)]
    rows, columns, means = fields.folded(names, names, values)
    assert rows == columns == [str(index) for index in range(0, size, 3)]
    assert len(rows) <= fields.FIELDS
    assert all(sum(row) == pytest.approx(1.0) for row in means)
    assert fields.folded(["a"], ["b", "c"], [[0.25, 0.75]]) == (["a"], ["b", "c"], [[0.25, 0.75]])


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 60), (60, 60), (61, 100), (500, 7)])
def test_heat_maps_of_every_size_name_their_rows(rows: int, columns: int) -> None:
    view = {"kind": "heat", "title": "t", "x": "source", "y": "target", "high": 1}
    view |= {"rows": [f"r{index}" for index in range(rows)], "columns": [f"c{index}" for index in range(columns)]}
    view |= {"values": [[1 / columns] * columns] * rows}
    picture = looks.svg(DRAWN["heat"](view, looks.WHOLE)[0])
    written = re.findall(r">([rc]\d+)<", picture)
    for letter, count in (("r", rows), ("c", columns)):
        names = [name for name in written if name.startswith(letter)]
        assert len(names) == count if count <= fields.LEGIBLE else 10 <= len(names) <= fields.LEGIBLE


@pytest.mark.parametrize("kind", [kind for kind in DRAWN if kind != "overlay"])  # a picture has colours of its own
def test_pictures_are_the_same_in_light_and_dark_but_for_colours(kind: str) -> None:
    chart, _ = DRAWN[kind](VIEWS[kind], looks.HALF)
    light, dark = looks.svg(chart), looks.svg(chart, dark=True)
    colour = re.compile(r"#[0-9a-f]{6}|rgb\([\d, ]+\)")
    assert colour.sub("", light) == colour.sub("", dark)
    assert not set(colour.findall(light)) & set(colour.findall(dark))


def test_a_file_of_views_that_is_not_whole_is_named(tmp_path: Path) -> None:
    from seriatim.core.errors import SeriatimError

    run = classifier(tmp_path / "a", "lstm", 0.84)
    (tmp_path / "a" / "evaluation.json").write_text('{"test": [', encoding="utf-8")
    with pytest.raises(SeriatimError, match=r"evaluation\.json is not whole"):
        report.write_run_report(run)


# Pages, card and row


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("classifiers")
    accuracies = {"mlp": 0.48, "rnn": 0.80, "lstm": 0.84, "tcn": 0.75}
    return [classifier(folder / name, name, value, lowest=0.5) for name, value in accuracies.items()]


def test_a_comparison_is_ranked_by_the_objective_with_the_baselines_below(classifiers: list[Run]) -> None:
    folder = classifiers[0].path.parent
    report.write_comparison_report(folder, classifiers)
    page = Page(folder / "report.html")
    page.check()
    assert list(page.values) == ["lstm", "rnn", "tcn", "mlp", "most frequent"]
    assert [text for _, text in page.values["lstm"]][:4] == ["84.0 %", "83.0 %", "0.400", "82.0 %"]
    assert [text for _, text in page.values["most frequent"]] == ["50.0 %", "50.0 %", "33.3 %"]
    assert "Higher is better" in page.text
    assert "What they answer" in page.text
    assert not any(word in page.text.split("Settings")[0].lower() for word in LANGUAGE)


def test_the_page_and_the_card_of_a_run_speak_of_its_task(classifiers: list[Run]) -> None:
    run = classifiers[2]
    report.write_run_report(run)
    report.write_card(run)
    page = Page(run.path / "report.html")
    page.check()
    assert "Validation accuracy84.0 %most frequent 50.0 %" in page.text
    assert "Elements read" in page.text
    text = (run.path / "README.md").read_text(encoding="utf-8")
    assert "| accuracy | 84.00 % | 83.00 % | 50.00 % |" in text
    assert "seriatim predict" in text
    for words in (page.text.split("Settings")[0].lower(), text.lower()):
        assert not any(word in words for word in LANGUAGE)


@pytest.mark.parametrize(
    ("task", "command"),
    [
        ("music", "--out piece.mid"),
        ("forecast", "# what comes next"),
        ("tag", "--data new.csv"),
        ("translate", "seriatim translate"),
    ],
)
def test_the_card_says_how_to_use_the_model(task: str, command: str, tmp_path: Path) -> None:
    run = classifier(tmp_path / task, "gru", 0.8, task=task)
    report.write_card(run)
    assert command in (run.path / "README.md").read_text(encoding="utf-8")


def test_a_row_has_all_measures_of_both_parts(classifiers: list[Run]) -> None:
    row = report.row(classifiers[2])
    assert (row["valid_loss"], row["test_loss"]) == (0.4, 0.4)
    assert (row["accuracy"], row["test_accuracy"]) == (0.84, pytest.approx(0.83))
    assert (row["macro_f1"], row["test_error"]) == (0.82, pytest.approx(0.17))
    assert "perplexity" not in row
    assert "examples" not in row
    json.dumps(row, allow_nan=False)


def test_a_measure_where_more_is_better_is_drawn_so(classifiers: list[Run], tmp_path: Path) -> None:
    """The best that so much buys goes up, and the first steep rise may leave the picture, never the end."""
    charts.save(charts.trade_off(classifiers, ["seconds"]), tmp_path / "t.json")
    spec = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    rows = [row for values in spec["datasets"].values() for row in values]
    assert {"run": "most frequent", "y": 0.5}.items() <= next(row for row in rows if "end" in row).items()
    front = next(values for values in spec["datasets"].values() if values and set(values[0]) == {"x", "y"})
    assert [point["y"] for point in front] == [0.84, 0.84]
    charts.save(charts.curves(classifiers, ["seconds"], "accuracy"), tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text(encoding="utf-8")
    high = max(one.evaluations("accuracy")[-1].value for one in read(classifiers))
    assert max(scale["domain"][1] for scale in _scales(json.loads(text)) if scale["domain"][1] < 2) > high


def _scales(spec: Any) -> list[dict[str, Any]]:
    inner = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    own = [spec["scale"]] if isinstance(spec, dict) and isinstance(spec.get("scale"), dict) else []
    found = own + [scale for value in inner for scale in _scales(value)]
    return [scale for scale in found if all(isinstance(end, float | int) for end in scale.get("domain", ["no"]))]


# Lessons


def test_lessons_of_other_tasks_name_winner_baseline_and_learning_by_heart(classifiers: list[Run]) -> None:
    told = lessons(classifiers)
    assert told[0].startswith("Best on the validation data: the LSTM with an accuracy of 84.0 %, 4.0 points ahead of")
    assert "The LSTM beats the best baseline, most frequent, by 33.0 points on the test data" in told[1]
    assert "(accuracy 83.0 % against 50.0 %); not so the window MLP (47.0 %)." in told[1]
    sure = next(text for text in told if "too sure" in text)
    assert "The window MLP, the plain RNN, the LSTM and the TCN grow too sure of themselves" in sure
    assert not any(word in text.lower() for text in told for word in LANGUAGE)


def test_a_baseline_that_nobody_beats_is_told(tmp_path: Path) -> None:
    runs = [classifier(tmp_path / name, name, value) for name, value in (("rnn", 0.45), ("gru", 0.47))]
    told = " ".join(lessons(runs))
    assert "No model beats the best baseline, most frequent, on the test data: accuracy 50.0 % against 46.0 %" in told
    assert "of the GRU, the best of them" in told
    assert "The GRU does not beat the best baseline" in " ".join(lessons(runs[1:]))


def test_what_chance_can_do_depends_on_how_many_were_asked(tmp_path: Path) -> None:
    """One point apart is a draw over a thousand examples, and is none over a million."""
    few = [classifier(tmp_path / f"few-{name}", name, value) for name, value in (("rnn", 0.79), ("gru", 0.80))]
    assert "another seed may turn it round" in lessons(few)[0]
    for run in few:
        values = run.summary
        values["measures"]["valid"]["examples"] = 1e6
        (run.path / "summary.json").write_text(json.dumps(values), encoding="utf-8")
    assert "another seed" not in lessons([Run(run.path) for run in few])[0]


def test_forecasts_are_set_against_the_measure_that_baselines_have(tmp_path: Path) -> None:
    measures = {split: {"loss": 0.05, "mse": 306.2, "mae": 14.6, "examples": 14.0} for split in ("valid", "test")}
    baselines = {"test": {"naive": {"mse": 12_439.4, "mae": 96.9}, "linear": {"mse": 426.8, "mae": 16.3}}}
    about = {"task": "forecast", "objective": "loss", "measures": measures, "baselines": baselines}
    told = lessons([classifier(tmp_path / "a", "gru", 0.8, **about)])
    assert told[0].startswith("The GRU beats the best baseline, linear, by 120.60 on the test data (MSE 306.2 against")
