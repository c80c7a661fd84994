"""Settings files and assignments: what they hold is a mapping of values, or an error."""

from __future__ import annotations

from hypothesis import strategies as st

from fuzzing import fuzz
from seriatim.core.config import override


@fuzz(text=st.text(alphabet="ab.=:{}[]&*!'\"\n -~|>%@0123456789e", max_size=40))
def test_assignment(text: str) -> None:
    assert isinstance(override({"a": {"b": 1}}, [text]), dict)
