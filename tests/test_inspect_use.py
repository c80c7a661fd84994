"""Looking inside by hand: what is typed amiss is told, what comes back says what it is."""

from __future__ import annotations

import inspect
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from seriatim import SeriatimError
from seriatim.cli import run as cli
from seriatim.inspect import VIEWS, Inspector
from seriatim.report.looks import GROUND

NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_what_is_seen_is_told_in_lines_not_in_all_its_figures() -> None:
    seen = Inspector("lstm").gates(layer=0)
    assert repr(seen).splitlines() == seen.lines()
    array = seen.arrays["layer 0, forget"]
    assert repr(array) == f"Array(element: {array.values.shape[0]}, unit: {array.values.shape[1]})"
    assert repr(Inspector("rnn", "gpt")) == "Inspector(rnn, gpt)"


def test_a_notebook_shows_a_picture_without_a_network() -> None:
    seen = Inspector("rnn").backpropagation(steps=2)
    shown = seen._repr_mimebundle_()
    assert shown.keys() == {"image/svg+xml", "text/plain"}
    picture = ElementTree.fromstring(shown["image/svg+xml"])
    assert "The terms in figures" in "".join(picture.itertext())
    assert set(re.findall(r"https?://[^\s\"']+", shown["image/svg+xml"])) <= NAMESPACES
    assert f'fill="{GROUND[0]}"' in shown["image/svg+xml"]  # legible on a dark page too


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_says_what_it_shows_and_takes(name: str) -> None:
    view = getattr(Inspector("gpt"), name)
    assert view.__name__ == name
    assert view.__doc__.startswith(VIEWS[name].help)
    assert not {"subject", "subjects"} & inspect.signature(view).parameters.keys()


def test_options_are_those_of_the_view() -> None:
    assert {"texts", "layer", "unit", "example"} <= inspect.signature(Inspector("lstm").gates).parameters.keys()


@pytest.mark.parametrize("text", [None, 5, ["a text"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(SeriatimError, match=f"{type(text).__name__} is none"):
        Inspector("lstm").gates(text)


def test_a_fresh_network_reads_no_text_and_says_what_to_do() -> None:
    with pytest.raises(SeriatimError, match="leave the text away"):
        Inspector("gpt").attention("a text")


def test_names_of_models_may_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["inspect", "rnn, mlp,", "--gradients", "--length", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["rnn", "mlp"]
    assert cli(["inspect", ",", "--gradients"]) == 2
    assert "nothing to look into" in capsys.readouterr().err
