"""The benchmarks: how competitors take turns, what the table says of them, and that each of them runs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as runner  # noqa: E402
from benchmarks import summary  # noqa: E402
from benchmarks.timing import Competitors, Measurement, Options, count_flops, interleaved, report  # noqa: E402


def make_options(out: Path, repeats: int = 3) -> Options:
    what = {"first": "One", "second": "Two", "third": "Three"}
    return Options(list(what), what, False, repeats, 1e6, out, argparse.Namespace())


def test_competitors_take_turns_after_two_runs_each(tmp_path: Path) -> None:
    calls: list[str] = []
    competitors = Competitors({name: lambda name=name: calls.append(name) for name in ("seriatim", "peer")})
    measurement = interleaved(competitors, make_options(tmp_path))
    assert calls[:4] == ["seriatim"] * 2 + ["peer"] * 2
    turns = [name for name, _ in groupby(calls[4:])]
    assert turns == ["seriatim", "peer"] * 3
    assert len(calls) > 4 + len(turns), "a turn of a short run is the mean of several"
    assert {name: len(values) for name, values in measurement.seconds.items()} == {"seriatim": 3, "peer": 3}
    assert measurement.flops is not None
    assert measurement.flops > 1e8
    assert measurement.bandwidth is not None
    assert measurement.bandwidth > 1e8


def test_turns_end_with_the_seconds_but_not_before_seven(tmp_path: Path) -> None:
    options = make_options(tmp_path, repeats=9)
    hurried = Options(options.cases, options.what, False, 9, 0.0, tmp_path, options.own)
    assert len(interleaved({"seriatim": lambda: None}, hurried).seconds["seriatim"]) == 7
    assert len(interleaved({"seriatim": lambda: None}, options).seconds["seriatim"]) == 9


def test_a_peer_that_is_not_installed_or_fails_has_a_reason_and_ours_may_not_fail(tmp_path: Path) -> None:
    def make_absent() -> Any:
        raise ImportError("No module named 'absent'")

    def fail() -> None:
        raise RuntimeError("out of order\nand more")

    competitors = Competitors({"seriatim": lambda: None, "broken": fail})
    competitors.add("absent", make_absent)
    measurement = interleaved(competitors, make_options(tmp_path))
    assert measurement.missing == {"absent": "No module named 'absent'", "broken": "RuntimeError: out of order"}
    assert list(measurement.seconds) == ["seriatim"]
    with pytest.raises(RuntimeError):
        interleaved({"seriatim": fail}, make_options(tmp_path))


def test_flops_are_those_of_the_matmuls() -> None:
    import torch

    x = torch.randn(4, 8)
    assert count_flops(lambda: x @ x.T) == 2 * 4 * 8 * 4


def test_the_table_has_losses_ties_and_what_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = make_options(tmp_path)
    times = {"seriatim": [0.1, 0.1, 0.4], "slow": [0.3], "fast": [0.05], "seriatim, other": [0.01]}
    report("first", Measurement(times, {"absent": "not installed"}, 1e9, 1e9), options, flops=5e7, note="equal")
    report("second", Measurement({"seriatim": [20.0], "peer": [20.5]}), options)
    runner.write_result(tmp_path, "third", "Three", {"failure": "failed with code 1: ValueError: no"})
    summary.write_run(tmp_path, {"finished": True, "started": "today", "seconds": 60.0, "load": 0.0})
    summary.write(tmp_path)
    rows = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()[2:5]
    assert (
        rows[0]
        == "| One | 100 ms | 50 ms | fast | 0.50× slower | 50% (processor) | equal; without absent: not installed |"
    )
    assert rows[1] == "| Two | 20 s | 20.5 s | peer | 1.02× tie |  |  |"
    assert rows[2] == "| Three |  |  |  | not measured |  | failed with code 1: ValueError: no |"
    table = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert table["lines"][0] == "3 cases: 1 tie, 1 slower, 1 not measured."
    assert [case["verdict"] for case in table["cases"]] == ["slower", "tie", "not measured"]
    assert (tmp_path / "ratios.svg").exists()
    assert "failed with code 1" in capsys.readouterr().out


def test_a_case_that_fails_or_has_no_time_has_a_row_and_a_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One benchmark has a case that fails, one has no time, and one does not exist."""
    package = tmp_path / "benchmarks"
    package.mkdir()
    module = """
from benchmarks.timing import Measurement, parse_options, report
CASES = {"good": "Good", "bad": "Bad", "late": "Late"}
if __name__ == "__main__":
    options = parse_options(None, CASES)
    for name in options.cases:
        if name == "bad":
            raise ValueError("it is bad")
        report(name, Measurement({"seriatim": [1.0]}), options)
"""
    for path in (ROOT / "benchmarks").glob("*.py"):
        package.joinpath(path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    package.joinpath("odd.py").write_text(module, encoding="utf-8")
    package.joinpath("hasty.py").write_text('CASES = {"never": "Never"}\nwhile __name__ == "__main__": pass\n')
    monkeypatch.setattr(runner, "SECONDS", {"odd": 600, "hasty": 0, "absent": 1})
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--out", str(tmp_path / "out")])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["benchmarks"], "__path__", [str(package)])
    runner.main()
    results = {result["name"]: result for result in summary.read_results(tmp_path / "out")}
    assert results["good"]["rows"]["seriatim"]["median"] == results["late"]["rows"]["seriatim"]["median"] == 1.0
    assert results["bad"]["failure"] == "failed with code 1: ValueError: it is bad"
    assert results["never"]["failure"] == "left out: hasty has 0 s"
    assert "No module named 'benchmarks.absent'" in results["absent"]["failure"]
    run = json.loads((tmp_path / "out" / summary.RUN).read_text(encoding="utf-8"))
    assert run["finished"]
    summary.write_run(tmp_path / "out", run | {"finished": False})  # as if it had been interrupted
    (tmp_path / "out" / "late.json").unlink()
    capfd.readouterr()
    runner.main()
    assert "continues the run of" in capfd.readouterr().out
    assert "rows" in json.loads((tmp_path / "out" / "late.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(runner.SECONDS))
def test_every_benchmark_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    results = summary.read_results(tmp_path)
    assert results
    assert not [result for result in results if "rows" not in result]
