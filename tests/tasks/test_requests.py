"""The one executor of capabilities: what a request may name, what is refused before the first answer, and pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.runs.run import Run
from seriatim.tasks.predictor import Request, is_single

RUNS = Path(__file__).parents[1] / "golden" / "runs"


def run(name: str) -> Run:
    return Run(RUNS / name)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    from PIL import Image

    path = tmp_path / "photo.png"
    Image.fromarray(np.full((16, 16, 3), 90, np.uint8)).save(path)
    return path


@pytest.mark.parametrize("cell", ["text", "path", "bytes", "both"])
def test_no_cell_of_a_request_without_paths_opens_a_file(photo: Path, cell: str) -> None:
    named: Any = {
        "text": str(photo),
        "path": photo,
        "bytes": {"bytes": str(photo), "path": None},
        "both": {"bytes": None, "path": str(photo)},
    }[cell]
    with pytest.raises(SeriatimError) as caught:
        run("caption").execute(Request("caption", [{"image": named}], paths=False))
    assert caught.value.code == "input.path"
    sent = [{"image": {"bytes": photo.read_bytes(), "path": None}}]
    assert len(run("caption").execute(Request("caption", sent, paths=False)).predictions()) == 1


@pytest.mark.parametrize(
    "request_values",
    [
        {"inputs": Path("new.csv")},
        {"inputs": None},
        {"inputs": ["a"], "options": {"among": "new.csv"}},
    ],
)
def test_no_request_without_paths_names_a_file(request_values: dict[str, Any]) -> None:
    with pytest.raises(SeriatimError) as caught:
        run("classify").execute(Request("nearest", **request_values, paths=False))
    assert caught.value.code == "input.path"


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"name": "translate"}, "predict.capability"),
        ({"name": "classify", "options": {"probabilites": True}}, "config.invalid"),
        ({"name": "classify", "stream": True}, "predict.stream"),
    ],
)
def test_a_wrong_request_is_refused_before_the_first_answer(values: dict[str, Any], code: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        run("classify").execute(Request(inputs=["a film"], **values))
    assert caught.value.code == code


def test_pieces_join_to_the_answer() -> None:
    language, options = run("language"), {"max_tokens": 12, "temperature": 0}
    streamed = Request("generate", ["the ", "a "], options, stream=True)
    parts = list(language.execute(streamed))
    assert {part.first for part in parts} == {0, 1}
    assert not any(part.complete for part in parts)
    whole = language.execute(Request("generate", ["the ", "a "], options)).predictions()
    joined = language.execute(streamed).predictions()
    assert [record["text"] for record in joined] == [record["text"] for record in whole]
    assert [record["tokens"] for record in joined] == [record["tokens"] for record in whole]
    assert language.execute(Request("generate", "the ", options, stream=True)).value() == language.generate(
        "the ", **options
    )
    with pytest.raises(SeriatimError) as caught:
        language.execute(Request("generate", ["the "], {"beams": 3}, stream=True))
    assert caught.value.code == "generate.options"


def test_notes_belong_to_their_request() -> None:
    classify, heard = run("classify"), []
    first = classify.execute(Request("classify", [{"words": "a film"}], on_note=heard.append))
    second = classify.execute(Request("classify", ["a film"]))
    assert first.predictions() == second.predictions()
    assert first.notes == heard
    assert second.notes == []


def test_several_gray_images_are_several() -> None:
    assert not is_single(np.zeros((5, 28, 28), np.uint8))
    assert is_single(np.zeros((28, 28), np.uint8))
    assert is_single(np.zeros((28, 28, 3), np.uint8))


def test_a_long_text_is_no_file() -> None:
    with pytest.raises(SeriatimError):
        run("forecast").forecast("1, 2, x" * 1_000)
