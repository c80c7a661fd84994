"""The inspector: which views there are, what they take, and what comes back."""

from __future__ import annotations

import inspect
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.inspect import VIEWS, Inspector
from seriatim.inspect.result import Arrays, Drawing, NamedArray, Result
from seriatim.report.charts import Table, TokenStrip, View, views_to_json
from seriatim.runs.inspection import overview

NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def code_of(caught: Any) -> str:
    return str(caught.value.code)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_documents_itself(name: str) -> None:
    view, info = getattr(Inspector("gpt"), name), VIEWS[name]
    assert view.__name__ == name
    assert view.__doc__.startswith(info.summary)
    parameters = inspect.signature(view).parameters
    keywords = {key: one.default for key, one in parameters.items() if one.kind == one.KEYWORD_ONLY}
    assert keywords == {option.name: option.default for option in info.options.values()}
    assert info.text == any(one.kind != one.KEYWORD_ONLY for one in parameters.values())
    for text in (info.summary, *(option.help for option in info.options.values())):
        assert text[:1].isupper(), "a sentence"
        assert text.endswith((".", "…"))
        assert "--" not in text, "words for Python and for the command line alike"


def test_views_with_an_option_agree_on_its_type() -> None:
    types: dict[str, set[object]] = {}
    for info in VIEWS.values():
        for option in info.options.values():
            types.setdefault(option.name, set()).add(option.type)
    assert all(len(kinds) == 1 for kinds in types.values()), "the command line has one option of each name"


def test_a_result_prints_as_text_and_its_arrays_briefly() -> None:
    result = Inspector("lstm").gates(layer=0)
    assert repr(result) == result.text
    assert result.text.startswith("Gates: lstm\n\n")
    array = result.arrays["layer 0, forget"]
    assert repr(array) == f"NamedArray(element: {array.values.shape[0]}, unit: {array.values.shape[1]})"
    assert repr(Inspector("rnn", "gpt")) == "Inspector(rnn, gpt)"


def test_a_notebook_shows_a_drawing_without_a_connection() -> None:
    bundle = Inspector("rnn").backpropagation(steps=2)._repr_mimebundle_()
    assert bundle.keys() == {"image/svg+xml", "text/plain"}
    drawing = ElementTree.fromstring(bundle["image/svg+xml"])
    assert "Sizes of the terms" in "".join(drawing.itertext())
    assert set(re.findall(r"https?://[^\s\"']+", bundle["image/svg+xml"])) <= NAMESPACES


def test_arrays_and_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="axes of sizes"):
        NamedArray(np.zeros((2, 3)), {"row": ["a", "b"]})
    array = NamedArray(np.array([1 / 3, np.inf, np.nan]), {"token": list("abc")})
    table = Table(title="Numbers", columns=("name", "value"), rows=(("x", 1.5),))
    strip = TokenStrip(title="Strip", tokens=("a",), values=(1.0,), label="size")
    arrays = Arrays("Title", {"values": array}, None, ["a note"])
    result = Result(arrays, lambda arrays: Drawing([strip, table]))
    assert result.to_json()["arrays"]["values"] == {
        "axes": {"token": ["a", "b", "c"]},
        "values": [0.3333333, None, None],
    }
    assert result.text.splitlines()[-1] == "a note"
    assert "1.5" in result.text
    assert [chart["kind"] for chart in result.to_json(charts=True)["charts"]] == ["token_strip", "table"]
    assert "charts" not in result.to_json()
    assert Result(arrays, lambda arrays: Drawing([strip])).text.startswith(f"Title\n\n{strip.alt_text}")
    result.save(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text("utf-8"))["notes"] == ["a note"]
    result.save(tmp_path / "x.svg")
    assert "Strip" in (tmp_path / "x.svg").read_text("utf-8")
    with pytest.raises(SeriatimError) as caught:
        result.save(tmp_path / "x.doc")
    assert code_of(caught) == "chart.format"


def test_arrays_survive_packing() -> None:
    """Header and float32 one after another; NaN, infinities, texts, empty arrays and the order of names are kept."""
    named = {
        "values": NamedArray(np.array([[1 / 3, np.inf], [np.nan, -np.inf]]), {"row": ["ä", "b"], "column": ["1", "2"]}),
        "tokens": NamedArray(np.array([["␣a", "b"]]), {"token": ["x"], "rank": ["1", "2"]}),
        "none": NamedArray(np.zeros((0, 2)), {"token": [], "unit": ["1", "2"]}),
        "counts": NamedArray(np.array([3, 7]), {"token": ["x", "y"]}),
    }
    data = Arrays("Titel ß", named, None, ["a note"]).to_bytes()
    (size,) = struct.unpack_from("<I", data)
    assert size % 4 == 0
    header = json.loads(data[4 : 4 + size])
    assert [entry.get("offset") for entry in header["arrays"]] == [0, None, 4, 4]
    numbers = np.frombuffer(data, "<f4", offset=4 + size)
    np.testing.assert_array_equal(numbers, np.float32([1 / 3, np.inf, np.nan, -np.inf, 3, 7]))
    arrays = Arrays.from_bytes(data)
    assert (arrays.title, list(arrays.notes), list(arrays)) == ("Titel ß", ["a note"], list(named))
    for name, array in named.items():
        assert arrays[name].axes == array.axes
        expected = array.values if array.is_text else array.values.astype(np.float32)
        np.testing.assert_array_equal(arrays[name].values, expected)
    with pytest.raises(ValueError, match="incomplete"):
        Arrays.from_bytes(data[:-4])


@pytest.mark.parametrize(("model", "name"), [("gpt", "attention"), ("lstm", "gates"), ("gpt", "surprise")])
def test_arrays_alone_draw_nothing(model: str, name: str, make_subject: Any, monkeypatch: Any) -> None:
    inspector = Inspector(make_subject(model))
    expected = views_to_json(inspector.show(name, "a fine film").charts)
    for chart in View.__origin__.__args__:
        monkeypatch.setattr(chart, "__init__", lambda *arguments, **values: pytest.fail("a chart was made"))
    arrays = inspector.arrays(name, "a fine film")
    monkeypatch.undo()
    packed = Arrays.from_bytes(arrays.to_bytes())
    assert packed.keys() == arrays.keys()
    assert views_to_json(inspector.show(name, "a fine film").charts) == expected


def test_views_are_declared_without_torch() -> None:
    """Help and forms read the declarations; numpy, torch and altair come with the first view that is shown."""
    code = (
        "import sys; from seriatim.inspect import VIEWS; from seriatim.cli import understand;"
        "print([name for name in ('torch', 'numpy', 'altair') if name in sys.modules], len(VIEWS))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["[]", str(len(VIEWS))]


class StoppedError(Exception):
    """Raised by a callback to stop a view."""


@pytest.mark.parametrize(
    ("models", "name", "options"),
    [
        (["rnn"], "gradients", {"context_length": 4}),
        (["resnet"], "depth", {"layers": "8"}),
        (["resnet"], "paths", {"layers": "8"}),
        (["mlp"], "saturation", {"layers": 2}),
        (["rnn"], "growth", {"lengths": "4,8"}),
        (["rnn"], "complexity", {}),
    ],
)
def test_a_long_view_reports_progress_and_can_be_stopped(models: list[str], name: str, options: dict[str, Any]) -> None:
    lines: list[str] = []

    def stop(line: str) -> None:
        lines.append(line)
        raise StoppedError

    with pytest.raises(StoppedError):
        Inspector(*models).show(name, notify=stop, **options)
    assert len(lines) == 1


def test_views_of_runs_report_progress(make_subject: Any) -> None:
    lines: list[str] = []
    Inspector(make_subject("classify")).saliency("a fine film", notify=lines.append)
    assert lines
    lines.clear()
    Inspector(make_subject("lstm")).units(" ".join(["a fine film of light"] * 12), notify=lines.append)
    assert len(lines) > 3


@pytest.mark.parametrize("text", [None, 5, ["a text"]])
def test_texts_must_be_texts(text: Any) -> None:
    with pytest.raises(SeriatimError, match=f"not {type(text).__name__}"):
        Inspector("lstm").gates(text)


@pytest.mark.parametrize(
    ("model", "view", "texts", "options", "code"),
    [
        ("gpt", "attentoin", (), {}, "inspect.view"),
        ("gpt", "gates", (), {}, "inspect.unavailable"),
        ("gpt", "attention", ("a text",), {}, "inspect.unavailable"),
        ("gpt", "positions", ("a text",), {}, "inspect.text"),
        ("gpt", "attention", (), {"unit": 3}, "inspect.option"),
        ("gpt", "attention", (), {"layer": 99}, "inspect.layer"),
        ("gpt", "attention", (), {"head": 99}, "inspect.head"),
        ("gpt", "attention", (), {"part": "cross"}, "inspect.part"),
        ("transformer", "attention", (), {"part": "croos"}, "inspect.part"),
        ("gpt", "alignment", ("a",), {}, "inspect.unavailable"),
        ("ngram", "gradients", (), {}, "inspect.unavailable"),
    ],
)
def test_refusals(model: str, view: str, texts: Any, options: Any, code: str) -> None:
    with pytest.raises(SeriatimError) as caught:
        Inspector(model).show(view, *texts, **options)
    assert code_of(caught) == code
    assert caught.value.remedy


def test_unknown_models_and_views() -> None:
    with pytest.raises(SeriatimError) as caught:
        Inspector("lsmt")
    assert code_of(caught) == "inspect.subject"
    assert "lstm" in caught.value.remedy
    with pytest.raises(SeriatimError, match="no model is named"):
        Inspector()
    with pytest.raises(AttributeError, match="no view"):
        _ = Inspector("gpt").attentoin
    with pytest.raises(SeriatimError, match="shows one model, not 2"):
        Inspector("gpt", "bert").attention()


def test_numbers_of_texts(make_subject: Any) -> None:
    with pytest.raises(SeriatimError, match="takes one text, not 2"):
        Inspector(make_subject("lstm")).units("a cat", "a dog")
    with pytest.raises(SeriatimError, match="needs a text"):
        Inspector(make_subject("transformer")).alignment()


def test_anything_with_a_predictor_is_a_subject(make_subject: Any) -> None:
    class Model:
        predictor = make_subject("gpt").predictor

    inspector = Inspector(Model())
    assert inspector.subjects[0].label == "gpt"
    assert inspector.attention("a fine").arrays["attention"].values.shape[:2] == (2, 2)


VIEWS_BY_MODEL = {
    "classify": {"attention", "entropy", "units", "activations", "gradients", "saliency", "positions", "context"},
    "two": {"attention", "activations", "saliency"},
    "numbers": {"attention", "activations", "gradients"},
    "tag": {"gates", "units", "saliency", "context"},
    "forecast": {"attention", "gradients"},
    "lstm": {"gates", "units", "surprise", "gradients", "neighbors", "projection"},
    "gpt": {"attention", "lens", "surprise", "units"},
    "ngram": {"surprise", "backoff", "scores"},
    "transformer": {"attention", "alignment", "lens", "surprise"},
    "bahdanau": {"alignment", "gates", "surprise"},
    "luong": {"alignment", "gates", "surprise"},
    "seq2seq": {"gates", "surprise"},
    "resnet": {"depth", "activations"},
    "vit": {"attention", "activations", "gradients", "positions"},
}
MISSING_BY_MODEL = {
    "classify": {"surprise", "lens", "gates", "alignment", "backoff"},
    "two": {"units", "surprise"},
    "numbers": {"saliency", "units", "neighbors"},
    "forecast": {"saliency", "units", "surprise", "neighbors"},
    "lstm": {"attention", "lens", "positions", "saliency"},
    "ngram": {"attention", "gates", "gradients", "activations", "growth"},
    "bahdanau": {"attention", "lens", "gradients"},
    "seq2seq": {"alignment", "attention"},
    "resnet": {"attention", "gradients", "saliency"},
    "vit": {"saliency", "neighbors", "growth"},
}


@pytest.mark.parametrize("name", VIEWS_BY_MODEL)
def test_views_of_each_kind_of_model(name: str, make_subject: Any) -> None:
    inspector = Inspector(make_subject(name))
    available = set(inspector.available())
    assert available >= VIEWS_BY_MODEL[name]
    missing = MISSING_BY_MODEL.get(name, set())
    assert not available & missing
    for view in missing:
        with pytest.raises(SeriatimError, match=name) as caught:
            inspector.show(view, *(["a"] if VIEWS[view].text else []))
        assert code_of(caught) == "inspect.unavailable"


@pytest.mark.parametrize(
    "name", ["classify", "two", "tag", "answer", "forecast", "pretrain", "lstm", "gpt", "ngram", "transformer", "vit"]
)
def test_the_overview_of_a_report(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    charts = overview(subject.predictor, *subject.data)
    if name != "pretrain":
        assert charts
    json.dumps(views_to_json(charts), allow_nan=False)
    titles = " ".join(chart.title for chart in charts)
    if name in ("lstm", "gpt", "ngram"):
        assert "Surprise of each token" in titles
    if name in ("classify", "two", "answer"):
        assert "depends on" in titles


# Images


@pytest.mark.parametrize("name", ["show_attend_tell", "show_tell", "caption-transformer"])
def test_views_of_models_of_images(name: str, make_subject: Any, model_folder: Path) -> None:
    """Of an image of the user's and of the run's own; a text that is not an image is refused as such."""
    subject = make_subject(name)
    inspector = Inspector(subject)
    available = inspector.available()
    assert ("attention" in available) == (name != "show_tell")
    assert not {"saliency", "neighbors", "alignment"} & set(available)
    image = str(model_folder / "captions" / "0.png")
    for view in set(available) & {"activations", "attention", "gates", "entropy"}:
        assert inspector.show(view).charts
        assert inspector.show(view, image).charts
        with pytest.raises(SeriatimError):
            inspector.show(view, "some words")
    assert "image_overlay" not in [chart.kind for chart in overview(subject.predictor, *subject.data)]


def test_attention_of_words_to_an_image(make_subject: Any, model_folder: Path, tmp_path: Path) -> None:
    image = str(model_folder / "captions" / "3.png")
    for name in ("show_attend_tell", "caption-transformer"):
        subject = make_subject(name)
        result = Inspector(subject).attention(image, target="a red square")
        array = result.arrays["attention"]
        assert list(array.axes["word"]) == ["a", "red", "square"]
        encoded = subject.predictor.encode_inputs([image])
        expected = subject.predictor.captioner.attend(encoded.inputs, ["a red square"])[0]
        np.testing.assert_allclose(array.values.reshape(3, -1), expected.weights, atol=1e-6)
        result.save(tmp_path / f"{name}.html")
    heads = Inspector(subject).attention(image, target="a red square", part="cross").arrays["attention"].values
    assert heads.shape[1:] == (2, 4, int(np.prod(expected.grid)))
    with pytest.raises(SeriatimError, match="neither layers nor heads"):
        Inspector(make_subject("show_attend_tell")).attention(image, head=0)


def test_cells_of_an_image_are_named_by_row_and_column(make_subject: Any, model_folder: Path) -> None:
    image = str(model_folder / "classes" / "dark" / "0.png")
    array = Inspector(make_subject("vit")).attention(image).arrays["attention"]
    assert array.axes["key"][0] == "[image]"
    assert array.axes["key"][1] == "row 1, column 1"
    np.testing.assert_allclose(array.values.sum(axis=-1), 1, rtol=1e-5)
    with pytest.raises(SeriatimError, match="not 2"):
        Inspector(make_subject("vit")).attention(image, image)
