"""Limits: each is declared once, is used, and is changed by its environment variable."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import seriatim
from seriatim.core.errors import SeriatimError
from seriatim.core.limits import LIMITS, Limit

COLUMNS = Limit("COLUMNS", 1_000, "columns", "a table")


def test_amounts_above_the_limit_are_errors_that_name_it() -> None:
    COLUMNS.check(1_000, "a.csv")
    with pytest.raises(SeriatimError) as caught:
        COLUMNS.check(1_001, "a.csv")
    assert caught.value.code == "limit.exceeded"
    assert caught.value.cause == "a.csv: 1,001 columns, but the limit is 1,000"
    assert "SERIATIM_MAX_COLUMNS" in caught.value.remedy


@pytest.mark.parametrize(("text", "value"), [("5", 5), (" 2k ", 2_000), ("1e30", round(1e30)), ("", 1_000)])
def test_the_environment_variable_changes_it(text: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_MAX_COLUMNS", text)
    assert COLUMNS.value == value


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "nan", "1e999", "1" * 5_000], ids=lambda text: text[:5])
def test_other_values_are_errors(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_MAX_COLUMNS", text)
    with pytest.raises(SeriatimError, match="SERIATIM_MAX_COLUMNS") as caught:
        COLUMNS.check(1, "a.csv")
    assert caught.value.code == "limit.value"


def test_any_amount_can_be_shown() -> None:
    for amount, text in ((10**15, "about 10^15"), (10**5_000, "about 10^5000"), (math.inf, "infinitely many columns")):
        assert text in COLUMNS.error(amount, "a.csv").cause


def test_every_limit_is_used() -> None:
    package = Path(seriatim.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "limits.py")
    assert [limit.name for limit in LIMITS if not re.search(rf"\b{limit.name}\.(check|value|error)\b", code)] == []
    assert len({limit.name for limit in LIMITS}) == len(LIMITS) > 3
