"""The cases of the fuzzers are spread before they run, and counted afterwards, over all processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzzing import Tally, spread_cases


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spread_cases(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    cases, failures = Tally.cases, set(Tally.failures)
    try:
        return (yield)
    finally:
        if item.get_closest_marker("fuzz"):
            item.user_properties.append(("fuzz", (Tally.cases - cases, sorted(Tally.failures - failures))))
