"""Series: read from tables of every shape, put on a grid, checked, split and scaled."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.data._calendar import DAY, HOUR, Frequency, infer, parse, phase, phases
from seriatim.data.scaling import Scaler
from seriatim.data.series import SeriesSet, SeriesSettings, prepare, prepare_single


def read(path: Path | str, **settings: Any) -> SeriesSet:
    return prepare(SeriesSettings(source=str(path), **settings))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def days(count: int, first: str = "2024-01-01") -> list[str]:
    return [str(np.datetime64(first) + day) for day in range(count)]


def error(path: Path, **settings: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        read(path, **settings)
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    return caught.value


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    rows = [f"{day},{i},{i * i % 7},{i % 3}" for i, day in enumerate(days(40))]
    return write(tmp_path / "wide.csv", "\n".join(["day,a,b,c", *rows]) + "\n")


# Reading


def test_a_wide_table_has_a_series_for_each_column_or_one_of_all(wide: Path) -> None:
    apart, together = read(wide), read(wide, columns="together")
    assert [one.name for one in apart.series] == ["a", "b", "c"]
    assert together.roles.targets == ("a", "b", "c")
    assert np.array_equal(together.series[0].values, np.concatenate([one.values for one in apart.series], axis=1))
    assert apart.frequency.name == "daily"
    assert apart.frequency.season == 7
    assert 'wide.csv: the time is "day"' in apart.notes


def test_long_equals_wide(tmp_path: Path, wide: Path) -> None:
    table = [line.split(",") for line in wide.read_text().splitlines()]
    rows = [f"{name},{row[0]},{row[at]}" for at, name in ((1, "a"), (2, "b"), (3, "c")) for row in table[1:]]
    long = write(tmp_path / "long.csv", "\n".join(["name,when,value", *rows]))
    one, other = read(wide), read(long)
    assert other.roles.series == "name"
    assert [s.name for s in other.series] == [s.name for s in one.series]
    for mine, theirs in zip(one.series, other.series, strict=True):
        assert np.array_equal(mine.values, theirs.values)
        assert (mine.start, mine.spans) == (theirs.start, theirs.spans)
    assert one.fingerprint == other.fingerprint


def test_parquet_gzip_and_jsonl_hold_the_same(tmp_path: Path, wide: Path) -> None:
    lines = [line.split(",") for line in wide.read_text().splitlines()]
    columns: dict[str, Any] = {"day": pa.array([datetime.date.fromisoformat(row[0]) for row in lines[1:]])}
    columns |= {name: [float(row[at]) for row in lines[1:]] for at, name in ((1, "a"), (2, "b"), (3, "c"))}
    pq.write_table(pa.table(columns), tmp_path / "wide.parquet")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(wide.read_bytes()))
    rows = [f'{{"day": "{d}", "a": {a}, "b": {b}, "c": {c}}}' for d, a, b, c in lines[1:]]
    write(tmp_path / "wide.jsonl", "\n".join(rows))
    expected = read(wide).fingerprint
    for name in ("wide.parquet", "packed.csv.gz", "wide.jsonl"):
        assert read(tmp_path / name).fingerprint == expected


def test_roles_named_by_the_user(wide: Path) -> None:
    found = read(wide, target="a", future="c")
    assert (found.roles.targets, found.roles.past, found.roles.future) == (("a",), ("b",), ("c",))
    assert read(wide, target="a", past=()).roles.past == ()
    assert error(wide, target="d").cause == 'wide.csv: has no column "d"'


def test_without_a_time_column_rows_are_steps(tmp_path: Path) -> None:
    found = read(write(tmp_path / "plain.csv", "x\n" + "\n".join(map(str, range(30)))))
    assert found.frequency.kind == "rows"
    assert "plain.csv: no time, rows are steps" in found.notes
    assert np.array_equal(found.series[0].values[:, 0], np.arange(30.0))


def test_arrays_have_a_series_a_row(tmp_path: Path) -> None:
    block = np.random.default_rng(0).normal(size=(120, 20))
    np.save(tmp_path / "rows.npy", block)
    found = read(tmp_path / "rows.npy")
    assert found.split == "series"
    assert [list(one.spans) for one in found.series[83:85]] == [["train"], ["valid"]]
    assert np.array_equal(found.series[7].values[:, 0], block[7])
    block[3, 4] = np.inf
    np.save(tmp_path / "rows.npy", block)
    assert "an infinite value in row 3, step 4" in error(tmp_path / "rows.npy").cause


def test_sine_is_split_by_series() -> None:
    found = read("sine")
    counts = {part: sum(part in one.spans for one in found.series) for part in ("train", "valid", "test")}
    assert counts == {"train": 7000, "valid": 2000, "test": 1000}


# Time


def test_gaps_and_missing_values_are_told_for_each_series(tmp_path: Path) -> None:
    rows = []
    for name, holes, empty in (("A", (), ()), ("B", (5, 6, 9), (1,))):
        for i, day in enumerate(days(20)):
            if i not in holes:
                rows.append(f"{name},{day},{'' if i in empty else i}")
    found = read(write(tmp_path / "gaps.csv", "\n".join(["id,date,y", *rows])))
    assert "series B: 3 gaps, 4 missing values of 20" in found.notes
    assert not any("series A" in note for note in found.notes)
    assert np.flatnonzero(np.isnan(found.series[1].values[:, 0])).tolist() == [1, 5, 6, 9]


def test_unsorted_rows_are_sorted_and_told(tmp_path: Path, wide: Path) -> None:
    head, *rows = wide.read_text().splitlines()
    order = np.random.default_rng(0).permutation(len(rows))
    mixed = write(tmp_path / "mixed.csv", "\n".join([head, *(rows[i] for i in order)]))
    assert read(mixed).fingerprint == read(wide).fingerprint
    assert "mixed.csv: the rows sorted by time" in read(mixed).notes


def test_the_same_time_twice_names_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "twice.csv", "date,y\n2024-01-01,1\n2024-01-02,2\n2024-01-01,3\n")
    assert error(path).cause == 'twice.csv, line 4: the time "2024-01-01" is there twice (first on line 2)'
    path = write(tmp_path / "twice.csv", "s,date,y\nB,2024-01-01,1\nA,2024-01-01,2\nB,2024-01-01,3\n")
    assert "line 4" in error(path).cause
    assert "of series B" in error(path).cause


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
        (["20240101", "20240108", "20240115"], "weekly", 52),
        (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09", "2024-01-10", "2024-01-11"], "business days", 5),
        (["1", "3", "5"], "steps of 2", None),
    ],
)
def test_frequencies(cells: list[str], name: str, season: int | None) -> None:
    times, dates = parse(cells)
    found = infer([times], dates)
    assert (found.name, found.season) == (name, season)
    steps = np.rint(found.steps(times)).astype(int)
    assert np.array_equal(found.after(float(times[0]), steps), times)  # the grid gives the times back


def test_time_goes_on_beyond_the_end() -> None:
    monthly = Frequency("months", 1.0, month_end=True)
    start = parse(["2024-01-31"])[0][0]
    assert [monthly.text(t) for t in monthly.after(start, np.arange(3))] == ["2024-01-31", "2024-02-29", "2024-03-31"]
    friday = parse(["2024-01-05"])[0][0]
    business = Frequency("business")
    assert business.text(float(business.after(friday, 1))) == "2024-01-08"
    hourly = Frequency("time", float(HOUR))
    assert hourly.text(float(hourly.after(friday, 25))) == "2024-01-06 01:00"


def test_a_gap_of_years_does_not_become_millions_of_rows(tmp_path: Path) -> None:
    minutes = [f"2024-01-01 00:{m:02d}:00,{m}" for m in range(40)] + ["2034-01-01 00:00:00,1"]
    found = read(write(tmp_path / "late.csv", "\n".join(["time,y", *minutes])))
    assert len(found.series[0]) == 41
    assert any("not on a regular grid" in note for note in found.notes)


def test_phases_are_points_on_a_circle() -> None:
    times = parse(["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-01 12:00"])[0]
    assert np.allclose(phase(times, "day"), [[0, 1], [1, 0], [0, -1]], atol=1e-12)
    assert np.allclose(phase(times[:1], "week"), [[0, 1]], atol=1e-12)  # a Monday
    assert phases(Frequency("time", float(HOUR)), 30 * DAY) == ["day", "week"]
    assert phases(Frequency("rows"), 1e9) == []


# Errors


def test_cells_that_are_no_numbers_name_their_place(tmp_path: Path) -> None:
    text = "date,y\n" + "".join(f"{day},{i}\n" for i, day in enumerate(days(9)))
    assert error(write(tmp_path / "a.csv", text.replace(",7\n", ",seven\n"))).cause == (
        "a.csv, line 9, column \"y\": 'seven' is not a number"
    )
    assert error(write(tmp_path / "a.csv", text.replace(",3\n", ",inf\n"))).cause == (
        'a.csv, line 5, column "y": an infinite value'
    )
    assert (
        "'soon' is not a time"
        in error(write(tmp_path / "a.csv", text.replace("2024-01-04", "soon")), time="date").cause
    )
    found = read(write(tmp_path / "a.csv", text.replace(",3\n", ",NA\n")))
    assert np.isnan(found.series[0].values[3, 0])


def test_files_that_are_no_tables_of_series(tmp_path: Path) -> None:
    assert error(write(tmp_path / "a.txt", "1 2 3")).code == "data.series"
    assert error(write(tmp_path / "a.csv", "date,y\n")).code == "data.empty"
    assert error(write(tmp_path / "b.csv", "1,2\n3,4\n")).code == "data.header"
    assert error(write(tmp_path / "c.csv", "p,q,y\nu,v,1\nw,x,2\n")).code == "data.series"
    assert error(write(tmp_path / "d.csv", "date,word\n2024-01-01,a\n2024-01-02,b\n")).code == "data.column"


def test_a_future_that_leaks_or_lacks(tmp_path: Path) -> None:
    draw = np.random.default_rng(0).normal(size=40)
    rows = [f"{day},{y},{2 * y + 1},{i % 2}" for i, (day, y) in enumerate(zip(days(40), draw, strict=True))]
    path = write(tmp_path / "leak.csv", "\n".join(["date,y,copy,open", *rows]))
    assert error(path, target="y", future="copy").cause == (
        'the future column "copy" tells the target "y": a future that leaks'
    )
    assert "a future that leaks" in error(path, target="y", future="y").cause
    rows[4] = rows[4].rpartition(",")[0] + ","
    path = write(tmp_path / "lack.csv", "\n".join(["date,y,copy,open", *rows]))
    assert error(path, target="y", future="open").cause == (
        'the series: the future column "open" has no value at 2024-01-05'
    )


def test_rows_without_a_target_at_the_end_are_the_horizon(tmp_path: Path) -> None:
    rows = [f"{day},{i if i < 30 else ''},{i % 4}" for i, day in enumerate(days(34))]
    found = read(write(tmp_path / "ahead.csv", "\n".join(["date,y,price", *rows])), target="y", future="price")
    assert len(found.series[0]) == 30
    assert found.series[0].ahead[:, 0].tolist() == [2, 3, 0, 1]


# Parts


def test_parts_along_time_are_blocks(wide: Path) -> None:
    assert read(wide).series[0].spans == {"train": (0, 28), "valid": (28, 32), "test": (32, 40)}
    assert read(wide, fractions=(0.5, 0.25, 0.25)).series[0].spans["test"] == (30, 40)


def test_a_file_that_goes_on_where_another_ended_is_joined(tmp_path: Path, wide: Path) -> None:
    head, *rows = wide.read_text().splitlines()
    first = write(tmp_path / "first.csv", "\n".join([head, *rows[:30]]))
    later = write(tmp_path / "later.csv", "\n".join([head, *rows[30:]]))
    found = read(first, valid=str(later))
    assert found.series[0].spans == {"train": (0, 30), "valid": (30, 40)}
    assert np.array_equal(found.series[0].values, read(wide).series[0].values)
    apart = read(first, valid=str(first))  # not later: on its own, with the scaling of its namesake
    assert [(one.name, one.like, one.spans) for one in apart.series[3:4]] == [("a (valid)", "a", {"valid": (0, 30)})]


def test_another_file_needs_the_same_columns(tmp_path: Path, wide: Path) -> None:
    known = read(wide)
    other = write(tmp_path / "other.csv", "day,a,b\n2024-03-01,1,2\n2024-03-02,1,2\n")
    with pytest.raises(SeriatimError, match='has no column "c"'):
        prepare_single(str(other), SeriesSettings(source="x"), known.base, known.frequency)
    other = write(tmp_path / "other.csv", "day,a,b,c\n1,1,2,1\n2,1,2,2\n")
    with pytest.raises(SeriatimError, match="the times are numbers"):
        prepare_single(str(other), SeriesSettings(source="x"), known.base, known.frequency)


def test_a_series_without_any_value_is_left_out_and_told(tmp_path: Path) -> None:
    rows = [f"{day},{i}," for i, day in enumerate(days(20))]
    path = write(tmp_path / "half.csv", "\n".join(["date,a,b", *rows]))
    found = read(path, target="a,b")
    assert [one.name for one in found.series] == ["a"]
    assert "series b has no values: 1 such left out" in found.notes
    assert error(path, target="b").cause == "the series has no value of the target"


# Scaling


@pytest.mark.parametrize("kind", ["standard", "minmax", "none"])
@pytest.mark.parametrize("logs", [0, 2])
def test_the_inverse_of_scaling_is_the_identity(kind: str, logs: int) -> None:
    values = np.exp(np.random.default_rng(0).normal(size=(200, 3))) * [1e-3, 1, 1e6]
    scaler = Scaler.fit(values[:100], kind, logs)
    off = np.abs(scaler.invert(scaler.apply(values)) - values)
    assert (off <= 1e-14 * (values + 2 * values.mean(axis=0))).all()  # a few units in the last place of the sum
    again = Scaler.from_json(scaler.to_json())
    assert np.array_equal(again.apply(values), scaler.apply(values))


def test_scaling_by_hand() -> None:
    values = np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0]])
    standard, minmax = Scaler.fit(values, "standard"), Scaler.fit(values, "minmax")
    assert (standard.shift.tolist(), standard.scale.tolist()) == ([2.0, 5.0], [1.0, 1.0])  # a constant keeps scale 1
    assert (minmax.shift.tolist(), minmax.scale.tolist()) == ([1.0, 5.0], [2.0, 1.0])
