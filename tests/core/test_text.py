"""Text for people: one format of numbers, amounts, durations, counted nouns and lists."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seriatim.core.text import (
    clean_text,
    evenly_spaced,
    format_amount,
    format_change,
    format_decimals,
    format_duration,
    format_number,
    format_whole,
    listed,
    one_line,
    plural,
    text_width,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12_345, "12,345"), (996_413, "996 k"), (999_999, "1 M"), (1.2345e6, "1.23 M"), (0.0457, "0.0457"),
        (3.2e-5, "3.2·10^−5"), (-5, "−5"), (0.1 + 0.2, "0.3"), (0.0, "0"), (12.3456, "12.3"), (1e20, "1·10^20"),
        (-0.00123, "−0.00123"), (None, "–"), ("x", "x"), (True, "True"), (math.nan, "not a number"), (-math.inf, "−∞"),
        (np.float32(0.5), "0.5"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_people_read_them(value: object, text: str) -> None:
    assert format_number(value) == text


def test_units_times_and_changes() -> None:
    pairs = {
        (1_020_000, ""): "1.02 M",
        (950, ""): "950",
        (0, "B"): "0 B",
        (3.4e12, "FLOP"): "3.4 TFLOP",
        (None, "B"): "–",
    }
    assert {key: format_amount(*key) for key in pairs} == pairs
    assert format_amount(math.inf) == "∞"
    times = {
        0.042: "42 ms",
        0.84: "840 ms",
        35.0: "35 s",
        119: "119 s",
        119.7: "2 min 00 s",
        11_100: "3 h 05 min",
        0: "0 s",
    }
    assert {value: format_duration(value) for value in times} == times
    assert [format_change(share) for share in (0.031, -0.0036, 0.0001, None)] == ["+3.1 %", "−0.4 %", "±0.0 %", "–"]


def test_decimals_are_fixed_but_of_small_and_huge_numbers() -> None:
    numbers = {0.84321: "0.843", 1066.25: "1,066.250", -0.5: "−0.500", -0.0001: "−0.000", 2_500_000: "2.50·10^6"}
    numbers[-0.0001] = "−0.0001"
    assert {number: format_decimals(number) for number in numbers} == numbers
    assert format_decimals(0.012345, 2, digits=3) == "0.0123"
    assert format_decimals(-0.0004, 0) == "−0.0004"
    assert format_decimals(-0.0, 1) == "0.0"
    assert format_decimals(10**400) == format_decimals(None) == format_decimals("3") == "–"
    assert [format_decimals(number) for number in (math.nan, math.inf, -math.inf)] == ["not a number", "∞", "−∞"]


def test_integers_of_any_size() -> None:
    assert format_number(10**400) == "∞"
    assert [format_whole(number) for number in (1_000_000, 10**15, 10**5000, math.inf)] == [
        "1,000,000", "about 10^15", "about 10^5000", "infinitely many"
    ]  # fmt: skip


def test_counted_nouns_and_lists() -> None:
    assert [plural(count, "text") for count in (0, 1, 2000)] == ["0 texts", "1 text", "2,000 texts"]
    assert [plural(count, "entry is", "entries are") for count in (1, 2)] == ["1 entry is", "2 entries are"]
    names = [f"n{number}" for number in range(1200)]
    assert listed(names[:2]) == "n0, n1"
    assert listed([]) == ""
    assert listed(names, 1) == "n0 and 1,199 more"
    assert listed(names[:2], 2, "; ", total=5) == "n0; n1 and 3 more"
    assert listed(names[:3], 2, separator="\n  - ") == "n0\n  - n1\n  - and 1 more"


def test_evenly_spaced_has_first_and_last() -> None:
    assert evenly_spaced(10, 4).tolist() == [0, 3, 6, 9]
    assert evenly_spaced(3, 8).tolist() == [0, 1, 2]
    assert evenly_spaced(0, 8).tolist() == []


def test_text_from_data_is_made_visible_and_cut() -> None:
    assert clean_text("a\x00b\x1b[31m\x85\ud800\u202e\tc\n") == "a␀b␛[31m\ufffd\ufffd\ufffd\tc\n"
    assert clean_text("x" * 10, 4) == "xxxx …"
    assert [text_width(text) for text in ("abc", "我们", "e\u0301")] == [3, 4, 1]
    assert one_line("a\n  b\t" + "c" * 60, 8) == "a b ccc…"
