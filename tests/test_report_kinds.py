"""Kinds of pictures for what is inside a model: what is drawn is what was given, whatever its size and script."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seriatim import report
from seriatim.core.errors import SeriatimError
from seriatim.report import axes, fields, heats, lines, looks, places, schedule, strip
from seriatim.report.figures import read
from seriatim.report.views import drawn, stacked
from test_report import LOSSES, Page, make_run

HEBREW = ["התלמידים", " פתחו", " את", " הספרים", ".", " GPT"]
CHINESE = list("我们在图书馆里读书。")


def data_of(chart: Any, tmp_path: Path) -> list[list[dict[str, Any]]]:
    """What the layers of a picture show, in their order."""
    looks.save(chart, tmp_path / "c.json")
    spec = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    return list(spec["datasets"].values())


def rows_with(chart: Any, tmp_path: Path, *names: str) -> list[dict[str, Any]]:
    """Of the layer whose rows have these figures."""
    return next(rows for rows in data_of(chart, tmp_path) if rows and all(name in rows[0] for name in names))


# Strips


@pytest.mark.parametrize(
    "tokens",
    [["a"], [" the", "\n", " WOMEN,"] * 167, CHINESE * 50, HEBREW * 40, ["", "\t", "x" * 90, "e\u0301", "\x00"]],
    ids=["one", "501", "Chinese", "Hebrew", "odd"],
)
def test_tokens_of_a_strip_are_in_order_and_never_cover_each_other(tokens: list[str], tmp_path: Path) -> None:
    view = {"kind": "strip", "title": "t", "tokens": tokens, "values": list(range(len(tokens)))}
    chart, _ = drawn(view)
    boxes = rows_with(chart, tmp_path, "token", "place")
    assert [box["place"] for box in boxes] == list(range(len(tokens)))
    turned = strip.from_right(tokens)
    assert turned == (tokens[0] == HEBREW[0])
    for one, two in pairwise(boxes):
        if one["y"] == two["y"]:
            assert (two["end"] <= one["x"]) if turned else (one["end"] <= two["x"])
        else:
            assert two["y"] == one["y"] + strip.LINE
    assert all(0 <= box["x"] < box["end"] <= looks.WHOLE + 1e-6 for box in boxes)
    assert all(
        box["y"] > boxes[0]["y"] or not token.endswith("\n") for box, token in zip(boxes[1:], tokens, strict=False)
    )
    for box in boxes:
        bare = box["text"].replace(strip.TURNED, "")
        assert bare
        assert not re.search(r"[ \n\t\x00]", bare)  # all of it can be seen
        assert (box["end"] - box["x"]) >= strip.LETTER * fields.letters(bare)


def test_a_strip_is_as_deep_as_its_figures(tmp_path: Path) -> None:
    view: dict[str, Any] = {"kind": "strip", "title": "t", "tokens": list("abcd"), "values": [None, 2.0, 6.0, -4.0]}

    def shares(more: dict[str, Any]) -> list[float]:
        return [row["share"] for row in rows_with(drawn(view | more)[0], tmp_path, "token") if row["value"] is not None]

    assert shares({}) == [0.6, 1.0, 0.0]
    assert shares({"low": 0, "high": 12}) == [round(2 / 12, 3), 0.5, 0.0]
    assert shares({"diverging": True}) == [round(2 / 6, 3), 1.0, round(4 / 6, 3)]
    picture = looks.svg(drawn(view | {"diverging": True})[0])
    assert [picture.count(f'fill="{colour[0]}"') for colour in (looks.ACCENT, looks.SECOND)] == [2, 1]
    assert looks.svg(drawn(view)[0]).count(f'fill="{looks.SECOND[0]}"') == 0


# Heat maps


def test_fields_of_a_grid_stand_where_their_panel_is(tmp_path: Path) -> None:
    values = np.random.default_rng(0).dirichlet(np.ones(4), size=(6, 3))  # six panels of 3 × 4
    view = {"kind": "heats", "title": "t", "x": "to", "y": "from", "rows": list("abc"), "columns": list("wxyz")}
    view |= {"panels": [[f"head {h}", values[h].tolist()] for h in range(6)], "across": 3, "high": 1.0}
    chart, told = drawn(view)
    cells = rows_with(chart, tmp_path, "panel", "row", "column")
    found = {(cell["panel"], cell["row"], cell["column"]): cell["share"] for cell in cells}
    for place, value in np.ndenumerate(values):
        assert found.get(place, 0.0) == pytest.approx(value, abs=heats.FAINTEST)
    assert "6 panels of 3 × 4 fields" in told
    grid, _ = heats._fitted(view, list("abc"), list("wxyz"), ["head 0"] * 6, looks.WHOLE)
    assert [grid.x(panel) for panel in (0, 1, 2)] == [grid.x(panel) for panel in (3, 4, 5)]
    assert grid.y(0) == grid.y(2) < grid.y(3) == grid.y(5)
    assert grid.x(1) >= grid.x(0) + 4 * grid.wide
    assert grid.y(3) >= grid.y(0) + 3 * grid.tall


def test_ends_of_a_grid_are_told_in_signs_that_fonts_have() -> None:
    names = ["␣", *(f"t{index}" for index in range(88)), "␣the"]
    panels = [["head 0", np.eye(90).tolist()]] * 4
    picture = looks.svg(drawn({"kind": "heats", "title": "t", "rows": names, "columns": names, "panels": panels})[0])
    assert "rows from “·” to “·the”" in picture


@pytest.mark.parametrize(("panels", "size"), [(1, 1), (4, 18), (144, 24), (12, 500), (3, 90)])
def test_a_grid_of_any_size_fits_and_names_its_panels(panels: int, size: int) -> None:
    names = [f"t{index}" for index in range(size)]
    weights = (np.eye(size) * 0.5 + 0.5 / size).tolist()
    view = {"kind": "heats", "title": "t", "rows": names, "columns": names}
    view |= {"panels": [[f"layer {p // 12} head {p % 12}", weights] for p in range(panels)]}
    picture = looks.svg(drawn(view)[0])
    width = re.search(r'width="([\d.]+)"', picture)
    assert width is not None
    assert float(width[1]) <= looks.WHOLE + 30
    assert len(re.findall(r">(?:layer \d+ head \d+|L\d+H\d+)<", picture)) == panels
    grid, most = heats._fitted(view, names, names, [str(name) for name, _ in view["panels"]], looks.WHOLE)
    rows, columns, folded = fields.folded(names, names, weights, most)
    assert (len(rows), len(columns)) == (grid.rows, grid.columns)
    assert all(sum(row) == pytest.approx(1.0) for row in folded)
    across = min(grid.across, panels)
    written = set(re.findall(r">(t\d+)<", picture))
    assert written == (set(names) if grid.left else set())  # at the edges, or not at all
    assert all(picture.count(f">{name}<") == across + -(-panels // grid.across) for name in written)


def test_signs_are_shown_alike_on_both_sides(tmp_path: Path) -> None:
    view = {"kind": "signed", "title": "t", "rows": ["a", "b"], "columns": ["c", "d"], "values": [[-2, 1], [0.5, 0]]}
    cells = rows_with(drawn(view)[0], tmp_path, "share")
    assert [cell["share"] for cell in cells] == [1.0, 0.5, 0.25, 0.0]
    picture = looks.svg(drawn(view)[0])
    assert picture.count(f'fill="{looks.SECOND[0]}"') == 1
    wider = rows_with(drawn(view | {"low": -4, "high": 1})[0], tmp_path, "share")
    assert [cell["share"] for cell in wider] == [0.5, 0.25, 0.125, 0.0]
    same = rows_with(drawn(view | {"kind": "heat", "low": -4})[0], tmp_path, "share")
    assert same == wider  # a heat map that goes below 0 has a sign
    size = 2 * fields.FIELDS
    names = [str(index) for index in range(size)]
    large = {"kind": "signed", "title": "t", "rows": names, "columns": names}
    large["values"] = [[(-1.0) ** (i // 2) for _ in range(size)] for i in range(size)]
    cells = rows_with(drawn(large)[0], tmp_path, "share")
    assert {cell["value"] for cell in cells} == {-1.0, 1.0}  # the mean of neighbours, not their sum


# Curves


def test_curves_have_the_colours_of_their_models_and_dashed_twins() -> None:
    names = ["rnn", "rnn, fresh", "gpt", "theory", "rnn again"]
    found = lines.coloured(names, {"rnn, fresh"})
    assert found["rnn"] == found["rnn, fresh"] == looks.OWN["rnn"]
    assert found["gpt"] == looks.OWN["gpt"]
    assert found["theory"] not in looks.OWN.values()
    assert found["rnn again"] != looks.OWN["rnn"]
    view = {"kind": "lines", "title": "t", "series": [[name, [[0, 1], [1, 2]]] for name in names]}
    picture = looks.svg(drawn(view | {"dashes": ["rnn, fresh"]})[0])
    assert picture.count('stroke-dasharray="5,4"') == 1
    assert looks.svg(drawn(view)[0]).count("stroke-dasharray=") < picture.count("stroke-dasharray=") + 1


def test_a_name_stands_at_the_right_end_however_points_are_ordered(tmp_path: Path) -> None:
    view = {"kind": "lines", "title": "t", "series": [["a", [[9, 1], [0, 5]]], ["b", [[0, 5], [9, 2]]]]}
    chart, told = drawn(view)
    assert "a from 5.000 to 1.000; b from 5.000 to 2.000" in told
    ends = [(row["name"], row["x"], row["y"]) for rows in data_of(chart, tmp_path) for row in rows if row["x"] >= 9]
    assert {name for name, x, y in ends if x == 9 and y in (1, 2)} == {"a", "b"}


def test_what_a_logarithm_cannot_show_is_left_out(tmp_path: Path) -> None:
    view = {"kind": "lines", "title": "t", "log_x": True, "log_y": True, "annotations": [{"y": 0, "text": "none"}]}
    view["series"] = [["a", [[0, 1], [1, 0.0], [10, 1e-3], [100, None], [1000, 1e3], [2000, float("nan")]]]]
    chart, told = drawn(view)
    assert [(row["x"], row["y"]) for row in rows_with(chart, tmp_path, "x", "y")] == [(10, 1e-3), (1000, 1e3)]
    assert "a from 0.0010 to 1,000.000" in told
    scale = lines.Scale.of([1e-3, 1e3], True)
    assert [scale.share(value) for value in (1e-3, 1.0, 1e3)] == pytest.approx([0, 0.5, 1])
    assert scale.at(0.5) == pytest.approx(1.0)
    assert lines.Scale.of([5.0], True).share(5.0) == pytest.approx(0.5)


@pytest.mark.parametrize("count", [2, 16, 17, 80])
def test_many_curves_are_all_named_and_no_name_covers_another(count: int, tmp_path: Path) -> None:
    view = {"kind": "lines", "title": "t", "x": "x", "y": "y"}
    view["series"] = [[f"unit {index}", [[0, 0], [1, 1 + index * 1e-3]]] for index in range(count)]
    chart, _ = drawn(view)
    picture = looks.svg(chart)
    assert len(set(re.findall(r">(unit \d+)<", picture))) == min(count, lines.SERIES)
    assert (">20 curves are not shown<" in picture) == (count == 80)
    if count <= lines.NAMED:
        heights = [float(y) for y in re.findall(r'translate\([\d.]+,([\d.]+)\)"[^>]*>unit', picture)]
        assert len(heights) == count
        assert all(abs(one - two) >= lines.LINE - 0.5 for one, two in combinations(heights, 2))


def test_annotations_stand_where_they_are_told(tmp_path: Path) -> None:
    view = {"kind": "lines", "title": "t", "series": [["a", [[0, 0], [10, 10]]]], "marks": True}
    notes = [{"x": 5, "text": "trained so far"}, {"y": 4, "text": "chance"}, {"x": 2, "y": 20, "text": "here"}]
    chart, _ = drawn(view | {"annotations": notes})
    placed = {row["text"]: row for rows in data_of(chart, tmp_path) for row in rows if "text" in row}
    assert placed["trained so far"]["x"] == 5
    assert placed["chance"]["y"] == 4
    assert (placed["here"]["x"], placed["here"]["y"]) == (2, 20)
    picture = looks.svg(chart)
    assert all(f">{note['text']}<" in picture for note in notes)
    assert picture.count('stroke-dasharray="2,3"') == 2


# Planes, words, tables


def test_places_keep_their_distances_and_have_the_colour_of_their_group(tmp_path: Path) -> None:
    points = np.random.default_rng(1).normal(size=(30, 2))
    view = {"kind": "places", "title": "t", "points": points.tolist(), "names": [f"w{i}" for i in range(30)]}
    view["groups"] = ["verb" if i % 2 else "noun" for i in range(30)]
    chart, told = drawn(view)
    rows = rows_with(chart, tmp_path, "x", "y", "group")
    pixels = np.array([[row["x"], -row["y"]] for row in rows])
    ratio = np.linalg.norm(pixels[1:] - pixels[0], axis=1) / np.linalg.norm(points[1:] - points[0], axis=1)
    assert ratio == pytest.approx(ratio[0], rel=1e-3)
    picture = looks.svg(chart)
    for colour in (places.ACCENT, looks.OWN["transformer"]):
        assert picture.count(f'fill="{colour[0]}"') == 15 + 1  # and in the legend
    assert "30 points in 2 groups (noun, verb)" in told
    assert "alone" in drawn({"kind": "places", "title": "t", "points": [[1, 1]], "names": ["w"]})[1]


def test_words_stay_within_their_fields() -> None:
    words = [["·internationally", "我们我们我们", "of"]] * 2
    view = {"kind": "words", "title": "t", "rows": ["1", "2"], "columns": ["a", "b", "c"], "texts": words}
    narrow = looks.svg(drawn(view | {"values": [[1, 0.5, 0]] * 2}, 260)[0])
    shown = re.findall(r'font-size="11px"[^>]*>([^<]*)<', narrow)
    assert len(shown) == 6
    assert all(text.endswith("…") for text in shown if text[0] in "·我")
    assert max(map(fields.letters, shown)) <= 8
    assert "·internationally" in looks.svg(drawn(view | {"values": [[1, 0.5, 0]] * 2})[0])


def test_a_table_can_be_a_picture_too() -> None:
    view = {"kind": "table", "title": "Exponents", "note": "fitted", "columns": ["model", "n", "share"]}
    picture = looks.svg(drawn(view | {"rows": [["rnn", 1_000, 0.98765], ["gpt", None, 2.0]]})[0])
    for text in ("Exponents", "fitted", "Model", "rnn", "1,000", "0.988", "2"):
        assert f">{text}<" in picture
    with pytest.raises(ValueError, match="every column"):
        drawn(view | {"rows": [["rnn", 1]]})


# Several as one, and as files


def test_a_stack_holds_every_picture_with_its_own_scales(tmp_path: Path) -> None:
    heat = {"kind": "heat", "title": "Weights", "rows": ["a"], "columns": ["b"], "values": [[3.0]]}
    curve = {"kind": "lines", "title": "Curves", "series": [["rnn", [[0, 1], [1, 2]]], ["gpt", [[0, 2], [1, 1]]]]}
    token = {"kind": "strip", "title": "Tokens", "tokens": ["x", "y"], "values": [0, 1], "hints": ["one", "two"]}
    figures = {"kind": "table", "title": "Figures", "columns": ["a"], "rows": [[1]]}
    chart = stacked([heat, curve, token, figures])
    for ending in ("png", "svg", "html", "json"):
        looks.save(chart, tmp_path / f"c.{ending}")
    picture = (tmp_path / "c.svg").read_text(encoding="utf-8")
    assert all(f">{title}<" in picture for title in ("Weights", "Curves", "Tokens", "Figures"))
    spec = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert all("config" not in part and "background" not in part for part in spec["vconcat"])
    assert spec["config"]["font"]
    assert set(spec["resolve"]["scale"].values()) == {"independent"}
    opacities = re.findall(r'fill-opacity="([\d.]+)"', picture)
    assert {"1", "0.55"} <= set(opacities)  # the deepest field and the deepest token
    html = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert '"tooltip"' in html
    assert "<title>Weights</title>" in html
    assert 'renderer: "svg"' in html
    assert all(f'"{light}": "{dark}"' in html for light, dark in looks.PAIRS.items())  # for a dark ground
    assert not set(looks.PAIRS) & set(looks.PAIRS.values())
    assert not re.search(r"<script[^>]*\ssrc=|<link", html)
    with pytest.raises(ValueError, match="no picture of the kind"):
        stacked([{"kind": "cake"}])


def test_text_from_outside_stays_text_in_an_interactive_page(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script><!--"
    view = {"kind": "strip", "title": nasty, "tokens": [nasty], "values": [1], "hints": [nasty]}
    looks.save(drawn(view)[0], tmp_path / "c.html")
    html = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert len(re.findall(r"<script[ >]", html.split("<main")[-1])) == 1
    assert "&lt;/script&gt;" in html.split("</title>")[0]


def test_pictures_for_pages_hold_nothing_that_cannot_be_seen() -> None:
    view = {"kind": "lines", "title": "2.718281828", "series": [["a", [[i / 7, i / 3] for i in range(300)]]]}
    picture = looks.svg(drawn(view)[0])
    assert ">2.718281828<" in picture  # texts are left alone
    assert not re.search(r'="[^"]*\d\.\d{3,}', picture)
    assert ' opacity="0"' not in picture
    assert len(picture) < 12_000


# Pages


def inspected(folder: Path, model: str, views: Any) -> Any:
    run = make_run(folder, model)
    text = views if isinstance(views, str) else json.dumps(views)
    (folder / "inspection.json").write_text(text, encoding="utf-8")
    return run


def test_the_page_of_a_run_shows_what_is_inside(tmp_path: Path) -> None:
    tokens = {"kind": "strip", "title": "How surprised it is", "tokens": ["a", "b"], "values": [1, 2]}
    broken = {"kind": "heat", "title": "No figures"}
    report.write_run_report(inspected(tmp_path / "a", "lstm", [tokens, broken, "no view"]))
    page = Page(tmp_path / "a" / "report.html")
    page.check()
    assert "Inside the model" in page.text
    assert any("How surprised it is: 2 tokens" in str(attrs["aria-label"]) for attrs in page.named("svg"))
    assert "No figures (heat) cannot be drawn" in page.text
    assert f"seriatim inspect {tmp_path / 'a'}" in page.text
    report.write_run_report(make_run(tmp_path / "b", "lstm"))
    assert "Inside the model" not in Page(tmp_path / "b" / "report.html").text
    with pytest.raises(SeriatimError, match=r"inspection\.json is not whole"):
        report.write_run_report(inspected(tmp_path / "c", "lstm", "[{"))


def test_a_page_stays_small_whatever_is_inside(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"t{index}" for index in range(60)]
    large = {"kind": "heats", "title": "t", "rows": names, "columns": names}
    large["panels"] = [[f"head {h}", rng.random((60, 60)).round(3).tolist()] for h in range(4)]
    small = {"kind": "strip", "title": "Small", "tokens": ["a"], "values": [1]}
    report.write_run_report(inspected(tmp_path / "a", "lstm", [large, large, large, small]))
    page = Page(tmp_path / "a" / "report.html")
    page.check()
    assert re.search(r"[123] more (is|are) in inspection\.json\.", page.text)
    assert any("Small: 1 token" in str(attrs["aria-label"]) for attrs in page.named("svg"))


def test_what_belongs_into_one_picture_is_in_one_on_the_page_of_a_comparison(tmp_path: Path) -> None:
    runs = []
    for model, rate in (("rnn", 0.5), ("lstm", 0.9)):
        curves = [[model, [[t, rate**t] for t in range(20)]], [f"{model}, fresh", [[t, 0.3**t] for t in range(20)]]]
        view = {"kind": "lines", "title": "How far back", "log_y": True, "together": "gradients", "series": curves}
        runs.append(inspected(tmp_path / model, model, [view | {"dashes": [f"{model}, fresh"]}, {"kind": "table"}]))
    report.write_comparison_report(tmp_path, runs)
    page = Page(tmp_path / "report.html")
    page.check()
    assert "Inside the models" in page.text
    spoken = [str(attrs["aria-label"]) for attrs in page.named("svg") if "How far back" in str(attrs["aria-label"])]
    assert len(spoken) == 1
    assert all(f"{name} from 1.000 to " in spoken[0] for name in ("rnn", "rnn, fresh", "lstm", "lstm, fresh"))


def test_a_page_says_what_its_names_mean(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / model, model) for model in ("lstm", "ngram")]
    report.write_comparison_report(tmp_path, runs)
    text = Page(tmp_path / "report.html").text
    for told in (
        "Long short-term memory: a cell that is written, kept and read through gates",
        "The n-gram language model",
        "what training makes small, in nats per token; lower is better",
        "choices that the model hesitates between",
        "neither trained on nor chosen by",
    ):
        assert text.count(told) == 1


def test_axes_of_percentages_never_repeat_a_label() -> None:
    for values in ([0.5, 0.9], [0.991, 0.9914], [0.0, 0.0], [0.0188]):
        span = axes.Span.of(values, "accuracy")
        form = str(span.y()["axis"]["format"])
        places = int(form[1:-1])
        ticks = [span.low + (span.high - span.low) * part / 5 for part in range(6)]
        assert len({f"{100 * tick:.{places}f}" for tick in ticks}) == 6
        assert span.high - span.low < 1


# Clipping


def test_clipped_steps_are_counted_and_stay_in_sight(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "lstm")
    count = 5 * schedule.COLUMNS
    norms = [9.0 if index in (3, 1_001) else 0.5 for index in range(count)]
    events = [
        {"event": "stepped", "step": index + 1, "seconds": index / 9, "loss": 1.0, "rate": 1e-3, "norm": norm}
        for index, norm in enumerate(norms)
    ]
    started = {"event": "started", "step": 0, "seconds": 0, "steps": count, "parameters": 9, "flops": 1, "ranks": 1}
    lines_of = [json.dumps(event) + "\n" for event in [started, *events]]
    (tmp_path / "a" / "metrics.jsonl").write_text("".join(lines_of), encoding="utf-8")
    one = read([run])[0]
    assert schedule.clipped(one) == (2, count, 1.0)
    assert f"at 2 of {count:,} recorded steps (0.1 %)" in schedule.told(one)
    picture = looks.svg(schedule.schedule(run, ["norm"]))
    assert picture.count(f'fill="{looks.SECOND[0]}"') == 2
    assert f"clipped, 2 of {count:,} recorded steps" in picture
    report.write_run_report(run)
    assert schedule.told(one) in Page(tmp_path / "a" / "report.html").text


def test_a_training_that_was_never_clipped_says_so(tmp_path: Path) -> None:
    free = make_run(tmp_path / "a", "lstm", settings={"train": {"clip": None}})
    wide = make_run(tmp_path / "b", "lstm", settings={"train": {"clip": 99.0}})
    counted = make_run(tmp_path / "c", "ngram")
    assert schedule.told(read([free])[0]) == "Gradients were not clipped."
    assert "at none of" in schedule.told(read([wide])[0])
    assert schedule.told(read([counted])[0]) == ""
    assert set(LOSSES) >= {"lstm", "ngram"}
