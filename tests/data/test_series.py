"""Series: read from tables of every shape, placed on a grid, checked, split and scaled."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.check import check
from seriatim.data.dataset import Dataset
from seriatim.data.reader import read_dataset
from seriatim.data.series.calendar import (
    DAY,
    HOUR,
    Frequency,
    TimeError,
    cycle_features,
    infer_frequency,
    parse_times,
    useful_cycles,
)
from seriatim.data.series.scaling import Scaler
from seriatim.data.series.schema import SCHEMA
from seriatim.data.series.split import AlongTime, BySeries
from seriatim.data.series.table import make_series
from seriatim.data.source import open_source


def read(
    source: Any,
    multivariate: bool = False,
    notes: list[str] | None = None,
    frequency: Frequency | None = None,
    **columns: str,
) -> Dataset:
    diagnostics = Diagnostics(notes=[] if notes is None else notes)
    rows = read_dataset(open_source(source), SCHEMA, columns, None, diagnostics)
    diagnostics.raise_problems()
    return make_series(rows, multivariate, diagnostics, frequency, columns)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def days(count: int, first: str = "2024-01-01") -> list[str]:
    return [str(np.datetime64(first) + day) for day in range(count)]


def error(source: Any, **options: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        read(source, **options)
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    return caught.value


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    rows = [f"{day},{i},{i * i % 7},{i % 3}" for i, day in enumerate(days(40))]
    return write(tmp_path / "wide.csv", "\n".join(["day,a,b,c", *rows]) + "\n")


# Tables


def test_a_wide_table_is_a_series_per_column_or_one_of_several_variables(wide: Path) -> None:
    notes: list[str] = []
    separate, joint = read(wide, notes=notes), read(wide, multivariate=True)
    assert separate["series"].tolist() == ["a", "b", "c"]
    assert len(joint) == 1
    assert joint.column_names["target"] == separate.column_names["target"] == "a,b,c"
    assert np.array_equal(joint["target"][0], np.concatenate(list(separate["target"]), axis=1))
    assert Frequency.parse(separate["frequency"][0]).name == "daily"
    assert 'wide.csv: column "day" is the time' in notes
    assert "frequency: daily" in notes
    assert "3 series of 40 steps" in notes


def test_long_equals_wide(tmp_path: Path, wide: Path) -> None:
    table = [line.split(",") for line in wide.read_text().splitlines()]
    rows = [f"{name},{row[0]},{row[at]}" for at, name in ((1, "a"), (2, "b"), (3, "c")) for row in table[1:]]
    long = read(write(tmp_path / "long.csv", "\n".join(["name,when,value", *rows])))
    assert long.column_names["series"] == "name"
    assert long.fingerprint() == read(wide).fingerprint()


def test_parquet_gzip_jsonl_and_tables_in_memory_hold_the_same(tmp_path: Path, wide: Path) -> None:
    import pandas as pd

    lines = [line.split(",") for line in wide.read_text().splitlines()]
    columns: dict[str, Any] = {"day": pa.array([datetime.date.fromisoformat(row[0]) for row in lines[1:]])}
    columns |= {name: [float(row[at]) for row in lines[1:]] for at, name in ((1, "a"), (2, "b"), (3, "c"))}
    pq.write_table(pa.table(columns), tmp_path / "wide.parquet")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(wide.read_bytes()))
    rows = [f'{{"day": "{d}", "a": {a}, "b": {b}, "c": {c}}}' for d, a, b, c in lines[1:]]
    write(tmp_path / "wide.jsonl", "\n".join(rows))
    frame = pd.read_csv(wide, parse_dates=["day"])
    expected = read(wide).fingerprint()
    for source in (tmp_path / "wide.parquet", tmp_path / "packed.csv.gz", tmp_path / "wide.jsonl", frame):
        assert read(source).fingerprint() == expected


def test_roles_named_by_the_user(wide: Path) -> None:
    series = read(wide, target="a", future="c")
    assert {role: series.column_names.get(role) for role in ("target", "past", "future")} == {
        "target": "a",
        "past": "b",
        "future": "c",
    }
    assert "past" not in read(wide, target="a", past="")
    assert error(wide, target="d").cause == 'wide.csv: there is no column "d"'
    assert error(wide, goal="d").code == "data.role"


def test_without_a_time_column_rows_are_steps(tmp_path: Path) -> None:
    notes: list[str] = []
    series = read(write(tmp_path / "plain.csv", "x\n" + "\n".join(map(str, range(30)))), notes=notes)
    assert series["frequency"][0] == str(Frequency("rows"))
    assert "plain.csv: there is no time column, so rows are steps" in notes
    assert np.array_equal(series["target"][0][:, 0], np.arange(30.0))


def test_arrays_and_lists_hold_a_series_per_row(tmp_path: Path) -> None:
    block = np.random.default_rng(0).normal(size=(120, 20))
    np.save(tmp_path / "rows.npy", block)
    series = read(tmp_path / "rows.npy")
    assert np.array_equal(series["target"][7][:, 0], block[7])
    assert series["series"][7] == "row 7"
    lists = read([[1.0, 2.0, 3.0], "4 5 6"])
    assert [values[:, 0].tolist() for values in lists["target"]] == [[1, 2, 3], [4, 5, 6]]
    block[3, 4] = np.inf
    np.save(tmp_path / "rows.npy", block)
    assert "row 4" in error(tmp_path / "rows.npy").cause
    assert "an infinite value at step 4" in error(tmp_path / "rows.npy").cause


def test_variables_of_an_array_have_roles(tmp_path: Path) -> None:
    block = np.random.default_rng(0).normal(size=(5, 20, 3))
    np.save(tmp_path / "rows.npy", block)
    assert read(tmp_path / "rows.npy")["target"][0].shape == (20, 3)
    series = read(tmp_path / "rows.npy", target="column 2", future="column 1")
    assert np.array_equal(series["target"][4][:, 0], block[4, :, 1])
    assert np.array_equal(series["future"][4][:, 0], block[4, :, 0])
    assert np.array_equal(series["past"][4][:, 0], block[4, :, 2])
    assert 'the array has no column "column 4"' in error(tmp_path / "rows.npy", target="column 4").cause


# Time


def test_gaps_and_missing_values_are_noted_by_series(tmp_path: Path) -> None:
    rows = []
    for name, gaps, empty in (("A", (), ()), ("B", (5, 6, 9), (1,))):
        for i, day in enumerate(days(20)):
            if i not in gaps:
                rows.append(f"{name},{day},{'NA' if i in empty else i}")
    notes: list[str] = []
    series = read(write(tmp_path / "gaps.csv", "\n".join(["id,date,y", *rows])), notes=notes)
    assert "series B: 3 gaps, 4 missing values of 20" in notes
    assert not any("series A" in note for note in notes)
    assert np.flatnonzero(np.isnan(series["target"][1][:, 0])).tolist() == [1, 5, 6, 9]


def test_unsorted_rows_are_sorted_with_a_note(tmp_path: Path, wide: Path) -> None:
    head, *rows = wide.read_text().splitlines()
    order = np.random.default_rng(0).permutation(len(rows))
    mixed = write(tmp_path / "mixed.csv", "\n".join([head, *(rows[i] for i in order)]))
    notes: list[str] = []
    assert read(mixed, notes=notes).fingerprint() == read(wide).fingerprint()
    assert "mixed.csv: the rows are sorted by time" in notes


def test_a_repeated_time_names_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "twice.csv", "date,y\n2024-01-01,1\n2024-01-02,2\n2024-01-01,3\n")
    assert error(path).cause == 'twice.csv, line 4: the time "2024-01-01" occurs twice (first on line 2)'
    path = write(tmp_path / "twice.csv", "s,date,y\nB,2024-01-01,1\nA,2024-01-01,2\nB,2024-01-01,3\n")
    assert error(path).code == "data.time-twice"
    assert 'line 4: the time "2024-01-01" of series B' in error(path).cause


def test_the_data_check_reports_what_training_would(tmp_path: Path) -> None:
    path = write(tmp_path / "twice.csv", "date,y\n2024-01-01,1\n2024-01-02,2\n2024-01-01,3\n")
    rows = read_dataset(open_source(path), SCHEMA)
    diagnostics = Diagnostics()
    check(rows, SCHEMA, diagnostics)
    assert [problem.code for problem in diagnostics.problems] == ["data.time-twice"]


@pytest.mark.parametrize(
    ("cells", "name", "season"),
    [
        (["1949-01", "1949-02", "1949-03", "1949-05"], "monthly", 12),
        (["2020-01-31", "2020-02-29", "2020-03-31", "2020-04-30"], "monthly", 12),
        (["2020-Q1", "2020-Q2", "2020-Q3"], "quarterly", 4),
        (["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00"], "hourly", 24),
        (["2024-01-01T00:00:00Z", "2024-01-01T00:15:00Z", "2024-01-01T00:30:00Z"], "every 15 minutes", 96),
        (["31.01.2024", "01.02.2024", "02.02.2024"], "daily", 7),
        (["01/31/2024", "02/01/2024", "02/02/2024"], "daily", 7),
        (["01/02/2024", "01/03/2024", "01/04/2024"], "daily", 7),
        (["20240101", "20240108", "20240115"], "weekly", 52),
        (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09", "2024-01-10", "2024-01-11"], "business days", 5),
        (["1", "3", "5"], "steps of 2", None),
    ],
)
def test_frequencies(cells: list[str], name: str, season: int | None) -> None:
    times = parse_times(cells)
    frequency = infer_frequency([times])
    assert (frequency.name, frequency.season) == (name, season)
    assert Frequency.parse(str(frequency)) == frequency
    steps = np.rint(frequency.steps(times)).astype(int)
    assert np.array_equal(frequency.after(times[0], steps), times)  # the grid gives the times back


def test_the_first_cell_unlike_the_others_is_named(tmp_path: Path) -> None:
    with pytest.raises(TimeError) as caught:
        parse_times(["2024-01-01", "2024-01-02", "soon"])
    assert caught.value.index == 2
    rows = [f"{d},1" for d in ("01/31/2024", "02/01/2024", "31/01/2024")]
    path = write(tmp_path / "mixed.csv", "\n".join(["date,y", *rows]))
    assert 'mixed.csv, line 4: column "date" holds "31/01/2024"' in error(path, time="date").cause


def test_time_goes_on_after_the_end() -> None:
    monthly = Frequency("months", 1.0, month_end=True)
    times = monthly.after(np.datetime64("2024-01-31"), np.arange(3))
    assert [monthly.format(time) for time in times] == ["2024-01-31", "2024-02-29", "2024-03-31"]
    friday, business, hourly = np.datetime64("2024-01-05"), Frequency("business"), Frequency("time", float(HOUR))
    assert business.format(business.after(friday, np.array([1]))[0]) == "2024-01-08"
    assert hourly.format(hourly.after(friday, np.array([25]))[0]) == "2024-01-06 01:00"


def test_a_gap_of_years_does_not_become_millions_of_rows(tmp_path: Path) -> None:
    minutes = [f"2024-01-01 00:{m:02d}:00,{m}" for m in range(40)] + ["2034-01-01 00:00:00,1"]
    notes: list[str] = []
    series = read(write(tmp_path / "late.csv", "\n".join(["time,y", *minutes])), notes=notes)
    assert len(series["target"][0]) == 41
    assert any("not on a regular grid" in note for note in notes)


def test_cycles_are_points_on_a_circle() -> None:
    times = parse_times(["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-01 12:00"])
    assert np.allclose(cycle_features(times, "day"), [[0, 1], [1, 0], [0, -1]], atol=1e-12)
    assert np.allclose(cycle_features(times[:1], "week"), [[0, 1]], atol=1e-12)  # a Monday
    assert np.allclose(cycle_features(times[:1], "year"), [[0, 1]], atol=1e-12)
    assert useful_cycles(Frequency("time", float(HOUR)), 30 * DAY) == ("day", "week")
    assert useful_cycles(Frequency("rows"), 1e9) == ()


# Errors


def test_cells_that_are_not_numbers_name_their_line(tmp_path: Path) -> None:
    text = "date,y\n" + "".join(f"{day},{i}\n" for i, day in enumerate(days(9)))
    wrong = error(write(tmp_path / "a.csv", text.replace(",7\n", ",seven\n")))
    assert wrong.cause == 'a.csv, line 9: column "y" holds "seven", not a number'
    infinite = error(write(tmp_path / "a.csv", text.replace(",3\n", ",inf\n")))
    assert (infinite.code, infinite.cause) == ("data.infinite", 'a.csv, line 5: column "y" holds an infinite value')
    late = error(write(tmp_path / "a.csv", text.replace("2024-01-04", "soon")), time="date")
    assert late.cause == 'a.csv, line 5: column "date" holds "soon", not a date or number'
    series = read(write(tmp_path / "a.csv", text.replace(",3\n", ",NA\n")))
    assert np.isnan(series["target"][0][3, 0])


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.txt", "one two three", "data.series"),
        ("a.csv", "date,y\n", "data.empty"),
        ("b.csv", "1,2\n3,4\n", "data.header"),
        ("c.csv", "p,q,y\nu,v,1\nw,x,2\n", "data.series"),
        ("d.csv", "date,word\n2024-01-01,a\n2024-01-02,b\n", "data.column"),
        ("e.csv", "id,date,y\n,2024-01-01,1\nA,2024-01-02,2\n", "data.series"),
    ],
)
def test_files_that_are_not_tables_of_series(name: str, text: str, code: str, tmp_path: Path) -> None:
    assert error(write(tmp_path / name, text)).code == code


def test_decimal_commas_are_recognized(tmp_path: Path) -> None:
    path = write(tmp_path / "d.tsv", "date\ty\n2024-01-01\t1,5\n2024-01-02\t2,5\n")
    assert error(path).remedy == "write decimals as 3.14"


def test_a_future_column_that_leaks_or_lacks_a_value(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=40)
    rows = [f"{day},{y},{2 * y + 1},{i % 2}" for i, (day, y) in enumerate(zip(days(40), values, strict=True))]
    path = write(tmp_path / "leak.csv", "\n".join(["date,y,copy,open", *rows]))
    assert error(path, target="y", future="copy").code == "data.leak"
    assert error(path, target="y", future="y").code == "data.leak"
    rows[4] = rows[4].rpartition(",")[0] + ","
    path = write(tmp_path / "lack.csv", "\n".join(["date,y,copy,open", *rows]))
    lacking = error(path, target="y", future="open")
    assert lacking.cause == 'the series: the future column "open" has no value at 2024-01-05'


def test_rows_without_a_target_at_the_end_are_the_horizon(tmp_path: Path) -> None:
    rows = [f"{day},{i if i < 30 else ''},{i % 4}" for i, day in enumerate(days(34))]
    series = read(write(tmp_path / "ahead.csv", "\n".join(["date,y,price", *rows])), target="y", future="price")
    assert len(series["target"][0]) == 30
    assert series["future"][0][30:, 0].tolist() == [2, 3, 0, 1]


def test_a_series_without_any_value_is_left_out_with_a_note(tmp_path: Path) -> None:
    rows = [f"{day},{i}," for i, day in enumerate(days(20))]
    path = write(tmp_path / "half.csv", "\n".join(["date,a,b", *rows]))
    notes: list[str] = []
    assert read(path, notes=notes, target="a,b")["series"].tolist() == ["a"]
    assert "series b has no values and is left out" in notes
    assert error(path, target="b").cause == "half.csv: the series has no value of the target"


def test_other_times_than_those_of_training_are_refused(tmp_path: Path, wide: Path) -> None:
    frequency = Frequency.parse(read(wide)["frequency"][0])
    path = write(tmp_path / "other.csv", "day,a,b,c\n1,1,2,1\n2,1,2,2\n")
    assert "the times are numbers, the model was trained on dates" in error(path, frequency=frequency).cause


# Splits


def spans(splits: list[Dataset], row: int = 0) -> list[tuple[int, int]]:
    history = [split["history"][row] if "history" in split else 0 for split in splits]
    return [(int(first), len(split["target"][row])) for first, split in zip(history, splits, strict=True)]


def test_splits_along_time_are_blocks_with_their_history(wide: Path) -> None:
    series = read(wide)
    assert spans(AlongTime().divide(series, (0.7, 0.1, 0.2))) == [(0, 28), (28, 32), (32, 40)]
    assert spans(AlongTime().divide(series, (0.5, 0.25, 0.25)))[2] == (30, 40)


def test_a_file_that_continues_another_is_joined_to_it(tmp_path: Path, wide: Path) -> None:
    head, *rows = wide.read_text().splitlines()
    train = read(write(tmp_path / "first.csv", "\n".join([head, *rows[:30]])))
    later = read(write(tmp_path / "later.csv", "\n".join([head, *rows[32:]])))
    joined = AlongTime().separate({"train": train, "validation": later}, Diagnostics())["validation"]
    assert (int(joined["history"][0]), len(joined["target"][0])) == (30, 40)
    whole = read(wide)["target"][0]
    assert np.array_equal(joined["target"][0][32:], whole[32:])
    assert np.isnan(joined["target"][0][30:32]).all()
    apart = AlongTime().separate({"train": train, "validation": train}, Diagnostics())["validation"]
    assert (int(apart["history"][0]), apart["series"][0]) == (0, "a")  # not later: on its own, with the same scaling


def test_short_series_are_split_by_series() -> None:
    sine = read("sine")
    splits = BySeries().divide(sine, (0.7, 0.2, 0.1))
    assert [len(split) for split in splits] == [7000, 2000, 1000]
    assert splits[1]["series"][0] == "row 7000"  # arrays in order


# Scaling


@pytest.mark.parametrize("kind", ["standard", "minmax", "none"])
@pytest.mark.parametrize("logs", [0, 2])
def test_the_inverse_of_scaling_is_the_identity(kind: Any, logs: int) -> None:
    values = np.exp(np.random.default_rng(0).normal(size=(200, 3))) * [1e-3, 1, 1e6]
    scaler = Scaler.fit(values[:100], kind, logs)
    errors = np.abs(scaler.invert(scaler.apply(values)) - values)
    assert (errors <= 1e-14 * (values + 2 * values.mean(axis=0))).all()  # a few units in the last place


def test_scaling_by_hand() -> None:
    values = np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0]])
    standard, minmax = Scaler.fit(values, "standard"), Scaler.fit(values, "minmax")
    assert (standard.shift.tolist(), standard.scale.tolist()) == ([2.0, 5.0], [1.0, 1.0])  # a constant keeps scale 1
    assert (minmax.shift.tolist(), minmax.scale.tolist()) == ([1.0, 5.0], [2.0, 1.0])
