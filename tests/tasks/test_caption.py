"""Captions: the contract of every encoder–decoder on images, and the predictor in use."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seriatim.core import registry
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.core.state import flatten, select
from seriatim.decode.settings import BeamSettings
from seriatim.lab.synthetic import scenes
from seriatim.nn.network import weights
from seriatim.report.charts import ImageOverlay, Table
from seriatim.tasks import reading
from seriatim.tasks.base import DataSettings, Splits, TaskConfig
from seriatim.tasks.caption.processor import EncodedCaptions
from seriatim.tasks.caption.rows import point, pointing_metrics
from seriatim.tasks.caption.spec import SCHEMA, CaptionSettings, Region, parse_regions
from seriatim.tasks.caption.task import CaptionPredictor, CaptionTask, image_encoder, uneven_attention
from seriatim.tasks.metrics import caption_metrics
from seriatim.tasks.predictor import Request
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import TrainSettings
from seriatim.training.cost import parameter_count, solve_width
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective

Prepared = tuple[CaptionTask, Splits[EncodedCaptions]]

COLORS = {"red": (220, 30, 30), "green": (20, 160, 40), "blue": (30, 60, 220), "gray": (120, 120, 120)}
PLACES = {"above": (1, 4), "below": (9, 4), "to the left": (5, 1), "to the right": (5, 9)}
TINY: dict[str, dict[str, Any]] = {
    "transformer": {"width": 8, "heads": 2, "layers": 1, "feedforward": 10},
    "t5": {"width": 8, "heads": 2, "layers": 1, "feedforward": 10},
    "gpt": {"width": 8, "heads": 2, "layers": 2},
    "tcn": {"levels": 2, "kernel": 2},
    "mlp": {"window": 3, "layers": 2},
}
ENCODER_DECODERS: list[tuple[str, dict[str, Any]]] = [
    ("seq2seq", {}),
    ("bahdanau", {}),
    ("transformer", {}),
    ("t5", {}),
    ("show_tell", {}),
    ("show_attend_tell", {}),
]
CASES = [
    *ENCODER_DECODERS,
    ("show_attend_tell", {"cell": "gru", "layers": 2}),
    ("show_attend_tell", {"score": "general"}),
    ("show_tell", {"cell": "gru", "layers": 2}),
    ("gru", {}),
    ("lstm", {}),
    ("tcn", {}),
    ("gpt", {}),
    ("mlp", {}),
]


def case_id(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


every_case = pytest.mark.parametrize("case", CASES, ids=case_id)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 16 × 16 pixels with a square in each, and one or two captions for each."""
    folder = tmp_path_factory.mktemp("captions")
    rows = []
    for number in range(40):
        color, place = list(COLORS)[number % 4], list(PLACES)[number // 4 % 4]
        image = np.full((16, 16, 3), 230 + number % 20, np.uint8)
        top, left = PLACES[place]
        image[top : top + 6, left : left + 6] = COLORS[color]
        Image.fromarray(image).save(folder / f"{number}.png")
        rows.append([f"{number}.png", f"a {color} square {place}"])
        if number % 2:
            rows.append([f"{number}.png", f"{place} a {color} thing"])
    with open(folder / "captions.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "caption"], *rows])
    return folder


def prepare(
    folder: Path,
    case: tuple[str, dict[str, Any]] = ("show_tell", {}),
    diagnostics: Diagnostics | None = None,
    **task: Any,
) -> Prepared:
    name, settings = case
    model = registry.models.load(name).Settings(**({"width": 6} | TINY.get(name, {}) | {"name": name} | settings))
    config = TaskConfig(
        task=CaptionSettings(**({"channels": 4, "beams": 2} | task)),
        data=DataSettings(source=str(folder / "captions.csv")),
        model=model,
    )
    return reading.prepare(CaptionTask, config, diagnostics=diagnostics)


def loss_of(task: CaptionTask, network: Any, batch: Any) -> torch.Tensor:
    return task.loss(task.forward(network, batch), batch)


# The contract


@every_case
def test_learns_and_every_parameter_has_a_gradient(case: Any, folder: Path) -> None:
    task, splits = prepare(folder, case)
    network, again = task.build(splits.train), task.build(splits.train)
    assert all(torch.equal(a, b) for a, b in zip(weights(network).values(), weights(again).values(), strict=True))
    batch = TaskObjective.of(task, splits).batch(0, 0, 4, 4)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for step in range(25):
        optimizer.zero_grad()
        torch.manual_seed(0)
        loss = loss_of(task, network.train(), batch) / batch.count
        loss.backward()
        if step == 0:
            assert not [name for name, parameter in network.named_parameters() if parameter.grad is None]
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < losses[0]


@every_case
def test_a_caption_does_not_depend_on_its_neighbors(case: Any, folder: Path) -> None:
    """The loss of all captions is the sum over images; an image is described alone as among others."""
    task, splits = prepare(folder, case)
    network, objective = task.build(splits.train).double().eval(), TaskObjective.of(task, splits)
    together, alone = objective.batch(0, 0, 5, 5), [objective.batch(0, row, row + 1, 5) for row in range(5)]
    assert together.count == sum(batch.count for batch in alone)
    parts = sum(loss_of(task, network, batch) for batch in alone)
    torch.testing.assert_close(loss_of(task, network, together), parts, rtol=1e-9, atol=1e-9)
    captioner, images = CaptionPredictor(task, network).captioner, splits.train.items.inputs
    for options in (BeamSettings(beams=3, nbest=2), BeamSettings(beams=1, max_tokens=9)):
        for item, group in enumerate(captioner.caption(images.take(np.arange(7)), options)):
            (single,) = captioner.caption(images.take([item]), options)
            assert [one.text for one in group] == [one.text for one in single]
            assert [one.score for one in group] == pytest.approx([one.score for one in single], rel=1e-9)


@every_case
def test_token_by_token_as_all_at_once(case: Any, folder: Path) -> None:
    task, splits = prepare(folder, case)
    network = task.build(splits.train).double().eval()
    images, decoder_inputs, owners = TaskObjective.of(task, splits).batch(0, 0, 4, 4).inputs
    memory = select(network.encode(images), owners)
    whole, _ = network.decode(decoder_inputs, memory)
    state, parts = None, []
    for first, last in ((0, 2), (2, 3), (3, decoder_inputs.shape[1])):
        hidden, state = network.decode(decoder_inputs[:, first:last], memory, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=case_id)
def test_scores_and_attention(case: Any, folder: Path) -> None:
    task, splits = prepare(folder, case)
    predictor = CaptionPredictor(task, task.build(splits.train).double().eval())
    image, diagnostics = str(folder / "3.png"), Diagnostics()
    items = task.encode(task.read([{"image": image}], diagnostics, task.schema.inputs()), diagnostics)
    (group,) = predictor.captioner.caption(items.inputs, BeamSettings(beams=4, nbest=4, max_tokens=12))
    for one in group:
        if one.finished:
            record = predictor.call("score", [{"image": image, "caption": one.text}])[0]
            assert record["log_probability"] == pytest.approx(one.score, rel=1e-9)
    if not predictor.decoder.has_alignment:
        with pytest.raises(SeriatimError) as caught:
            predictor.call("align", [{"image": image}])
        assert caught.value.code == "model.no-attention"
        assert "show_attend_tell" in caught.value.remedy
        return
    (record,) = predictor.call("align", [{"image": image, "caption": "a red square above"}])
    assert record["words"] == ["a", "red", "square", "above"]
    assert np.shape(record["weights"]) == (4, record["grid"][0] * record["grid"][1])
    np.testing.assert_allclose(np.sum(record["weights"], axis=1), 1.0, atol=1e-5)


def test_a_batch_is_a_function_of_its_step(folder: Path) -> None:
    first, second = (TaskObjective.of(*prepare(folder)) for _ in range(2))
    for step in (0, 3, 50):
        first.batch(step + 1, 0, 4, 4)
        tensors = (
            flatten((batch.inputs, batch.targets))[0] for batch in (t.batch(step, 0, 4, 4) for t in (first, second))
        )
        assert all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))


def test_an_epoch_shows_every_image_once(folder: Path) -> None:
    task, splits = prepare(folder)
    objective, groups = TaskObjective.of(task, splits), splits.train.items.groups
    assert groups is not None
    items = np.concatenate([objective.sampler.items(step, 4) for step in range(objective.steps_per_epoch(4))])
    assert len(set(items.tolist())) == len(items) == len(groups) // 4 * 4
    owners = objective.batch(0, 0, 4, 4).inputs[2]
    assert owners.bincount().tolist() == groups.lengths[objective.sampler.items(0, 4)].tolist()
    assert set(groups.lengths.tolist()) == {1, 2}


def test_resumed_is_as_if_never_stopped(folder: Path, tmp_path: Path) -> None:
    def run(name: str, cut: bool) -> dict[str, torch.Tensor]:
        for resumed in (False, True) if cut else (False,):
            task, splits = prepare(folder, ("show_attend_tell", {}), penalty=0.1)
            settings = TrainSettings(batch_size=4, steps=6, evaluate_steps=2)
            objective, network = TaskObjective.of(task, splits), task.build(splits.train)
            loop = Loop(objective, network, settings, 1e-2, 0, Checkpoints(tmp_path / name))
            if resumed:
                loop.resume()
            for event in loop.run():
                if cut and not resumed and event.step == 5:
                    break
        return weights(loop.network)

    whole, resumed = run("whole", cut=False), run("cut", cut=True)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize("name", ["transformer", "show_tell", "show_attend_tell"])
def test_a_parameter_budget_is_met(name: str, folder: Path) -> None:
    task, _ = prepare(folder, (name, {}))
    model = task.config.model.model_copy(update={"width": 8})
    solved = solve_width(model, 60_000, task.network)
    wider = solved.with_width(solved.width + max(solved.width_multiples()))
    assert parameter_count(solved, task.network) <= 60_000 < parameter_count(wider, task.network)


# Penalty, encoders, lengths


def test_the_penalty_by_hand() -> None:
    """Σ_i (1 − Σ_t α_{t,i})²; the weights of padding have no part in it."""
    attention = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]]])
    mask = torch.tensor([[True, True, False]])
    assert uneven_attention(attention, mask).tolist() == [pytest.approx((1 - 1.5) ** 2 + (1 - 0.5) ** 2)]
    even = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    assert uneven_attention(even, torch.ones(1, 2, dtype=torch.bool)).tolist() == [0.0]


def test_uneven_attention_is_penalized(folder: Path) -> None:
    (plain, splits), (penalized, _) = (
        prepare(folder, ("show_attend_tell", {}), penalty=penalty) for penalty in (0.0, 2.0)
    )
    network, batch = plain.build(splits.train).eval(), TaskObjective.of(plain, splits).batch(0, 0, 4, 4)
    images, decoder_inputs, owners = batch.inputs
    trace: dict[str, Any] = {}
    network.decode(decoder_inputs, select(network.encode(images), owners), None, trace)
    expected = 2.0 * uneven_attention(trace["alignment"], batch.targets >= 0).sum()
    difference = loss_of(penalized, network, batch) - loss_of(plain, network, batch)
    torch.testing.assert_close(difference, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "pixels"), [("local", 21), ("resnet", 47)])
def test_the_receptive_field_of_a_cell(name: Any, pixels: int) -> None:
    torch.manual_seed(0)
    model = registry.models.load("lstm").Settings(name="lstm")
    encoder = image_encoder(name, model, (3, 64, 64), None, None).double().eval()
    image = torch.rand(1, 3, 64, 64, dtype=torch.float64, requires_grad=True)
    assert encoder.grid == (8, 8)
    encoder(image)[0, 3 * 8 + 3].sum().backward()
    assert image.grad is not None
    reached = image.grad[0].abs().sum(dim=0) > 0
    for axis in (0, 1):
        positions = reached.any(dim=axis).nonzero()[:, 0]
        assert int(positions[-1] - positions[0]) + 1 == pixels


def test_encoders_of_photographs() -> None:
    model = registry.models.load("lstm").Settings(name="lstm")
    grids = {"resnet": (7, 7), None: (7, 7), "local": (14, 14), "patches": (8, 8)}
    for name, grid in grids.items():
        assert image_encoder(name, model, (3, 224, 224), None, 8).grid == grid  # type: ignore[arg-type]
    with pytest.raises(SeriatimError, match="6n\\+2"):
        image_encoder("local", model, (3, 32, 32), 9, None)


def test_long_captions_are_not_trained_on(folder: Path) -> None:
    diagnostics = Diagnostics()
    whole, short = (
        prepare(folder)[1].train.items,
        prepare(folder, diagnostics=diagnostics, context_length=6)[1].train.items,
    )
    assert whole.groups is not None
    assert short.groups is not None
    assert short.targets is not None
    assert 0 < len(short.groups.values) < len(whole.groups.values) == len(whole)
    assert any("have more than 6 tokens and are not trained on" in note for note in diagnostics.notes)
    assert short.targets.lengths[short.groups.values].max() <= 6
    with pytest.raises(SeriatimError, match="all captions have more than 1 tokens"):
        prepare(folder, context_length=1)


def test_images_are_mirrored_only_if_asked(folder: Path) -> None:
    for flip in (None, True):
        task, splits = prepare(folder, images={"flip": flip})
        objective, inputs, groups = TaskObjective.of(task, splits), splits.train.items.inputs, splits.train.items.groups
        assert groups is not None
        mirrored = False
        for step in range(6):
            shown = objective.batch(step, 0, 8, 8).inputs[0].numpy()
            for image, n in zip(shown, objective.sampler.items(step, 8).tolist(), strict=True):
                original = inputs[int(groups[n][0])]
                mirrored |= not np.array_equal(image.transpose(1, 2, 0), original)
                assert any(np.array_equal(image.transpose(1, 2, 0), one) for one in (original, original[:, ::-1]))
        assert mirrored == bool(flip)


# The predictor


@pytest.fixture(scope="module")
def predictor(folder: Path) -> CaptionPredictor:
    task, splits = prepare(folder, ("show_attend_tell", {}))
    torch.manual_seed(1)
    network = task.build(splits.train)
    with torch.no_grad():
        network.head.bias.normal_(std=2.0)
    return CaptionPredictor(task, network.eval())


def test_images_as_files_arrays_and_folders(predictor: CaptionPredictor, folder: Path, tmp_path: Path) -> None:
    path = folder / "3.png"
    (record,) = predictor.call("caption", str(path))
    pixels = np.asarray(Image.open(path))
    large = np.repeat(np.repeat(pixels, 3, axis=0), 3, axis=1)  # brought to the size of the model
    records = predictor.call("caption", [path, pixels, large])
    assert [one["caption"] for one in records] == [record["caption"]] * 3
    (several,) = predictor.call("caption", [path], nbest=3)
    assert several["caption"][0] == record["caption"]
    assert len(several["caption"]) == len(several["score"]) == 3
    for name in ("b.png", "x/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(path.read_bytes())
    assert [one["caption"] for one in predictor.call("caption", str(tmp_path))] == [record["caption"]] * 2
    assert len(predictor.call("caption", str(folder / "captions.csv"))) == 60  # a row for each caption
    assert len(predictor.call("caption", str(folder))) == 40  # a row for each image


def test_options_are_those_of_decoding(predictor: CaptionPredictor, folder: Path) -> None:
    image = [str(folder / "0.png")]
    drawn = [predictor.call("caption", image, temperature=1, seed=1, max_tokens=3) for _ in range(2)]
    assert drawn[0] == drawn[1]
    images = predictor.load_images(predictor.task.read(image, Diagnostics(), SCHEMA.inputs()), Diagnostics())[0].inputs
    (long,) = predictor.captioner.caption(images, BeamSettings(min_tokens=4, max_tokens=5))
    assert 4 <= len(long[0].tokens) <= 5
    assert predictor.call("caption", image, prefix="a blue", max_tokens=6)[0]["caption"].startswith("a blue")


def test_attention_is_drawn(predictor: CaptionPredictor, folder: Path) -> None:
    dataset = predictor.task.read([{"image": str(folder / "0.png")}], Diagnostics(), SCHEMA.inputs())
    options = BeamSettings(prefix="a red")
    records = predictor.call("caption", [str(folder / "0.png")], prefix="a red")
    (chart,) = predictor.charts("caption", dataset, options, records)
    assert isinstance(chart, ImageOverlay)
    (expected,) = predictor.call("align", [{"image": str(folder / "0.png"), "caption": records[0]["caption"]}])
    assert list(chart.words) == expected["words"]
    assert chart.words[:2] == ("a", "red")
    np.testing.assert_allclose(chart.weights, expected["weights"], atol=1e-4)


def test_images_that_cannot_be_read(predictor: CaptionPredictor, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"nothing")
    paths = [str(folder / "0.png"), str(tmp_path / "broken.png"), str(tmp_path / "nowhere.png")]
    with pytest.raises(SeriatimError) as caught:
        predictor.call("caption", paths)
    for words in ("broken.png", "nowhere.png"):
        assert words in caught.value.cause
    assert "--skip-broken" in caught.value.remedy
    answer = predictor.execute(Request("caption", paths, {"skip_broken": True}))
    assert [record["caption"] is None for record in answer.predictions()] == [False, True, True]
    assert any("broken.png" in note for note in answer.notes)
    with pytest.raises(SeriatimError) as caught:
        predictor.call("caption", paths[1:], skip_broken=True)
    assert "--skip-broken" not in caught.value.remedy, "it is set already"


# Evaluation


def test_evaluation_views_and_samples(folder: Path) -> None:
    task, splits = prepare(folder, ("show_attend_tell", {}))
    network, test = task.build(splits.train), splits["test"]
    evaluation = task.evaluate(network, test)
    metrics, outputs = evaluation.metrics, evaluation.outputs
    assert {"cider", "bleu1", "bleu4", "exact_match", "loss", "perplexity"} <= set(metrics)
    assert set(evaluation.signatures) >= {"cider", "bleu4"}
    predictor = task.predictor(network)
    assert isinstance(predictor, CaptionPredictor)
    log_probs = np.concatenate([one.log_probs for one in predictor.captioner.score(test.items)])
    assert metrics["loss"] == pytest.approx(-log_probs.mean())
    assert len(outputs.hypotheses) == len(set(test.rows["image"])) == metrics["captions"]
    records = predictor.call("caption", list(dict.fromkeys(map(str, test.rows["image"]))), beams=2)
    assert outputs.hypotheses == [record["caption"] for record in records]
    references = [[test.rows["caption"][row] for row in rows.tolist()] for rows in test.rows.groups("image").values()]
    assert outputs.references == references
    assert metrics["bleu4"] == caption_metrics(outputs.hypotheses, references)["bleu4"]
    views = task.views(evaluation)
    assert isinstance(views[-1], Table)
    assert views[-1].columns == ("image", "name", "caption", "references")
    assert set(task.baselines(splits, ["test"])["test"]) == {"most frequent caption"}
    assert ".png\n  → " in task.sample(evaluation)
    usage = predictor.usage("runs/x", splits["validation"].rows)
    assert usage[0].shell.startswith("seriatim caption runs/x ")
    assert usage[0].shell.endswith(".png")
    result = predictor.model_input([str(folder / "0.png")])
    rows, columns = predictor.captioner.grid
    assert result.sequences[0]["source"][:2] == ["0,0", "0,1"]
    assert len(result.sequences[0]["source"]) == rows * columns


def test_a_sample_has_whole_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, splits = prepare(folder, ("show_attend_tell", {}))
    network, train = task.build(splits.train), splits.train
    images = train.rows.groups("image")
    assert task.sample_split(train).rows is train.rows
    sample = task.sample_split(train, 5_000)
    assert sample.items.groups is not None
    assert len(sample.items.groups) == 5
    assert [len(rows) for rows in sample.rows.groups("image").values()] == [
        len(images[image]) for image in sample.rows.groups("image")
    ]
    monkeypatch.setattr("seriatim.tasks.caption.task.SAMPLED_SOURCES", 2)
    evaluation = task.evaluate(network, task.sample_split(train, 5_000))
    assert evaluation.metrics["captions"] == 2
    assert evaluation.metrics["tokens"] == sample.items.targets.lengths.sum()  # type: ignore[union-attr]


def test_images_of_other_splits_are_left_out(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "captions.csv").read_text(encoding="utf-8").splitlines()
    for name, part in (("train", lines[1:]), ("validation", lines[1:8]), ("test", lines[4:6])):
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0], *part]) + "\n", encoding="utf-8")
    for path in folder.glob("*.png"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    files = {name: str(tmp_path / f"{name}.csv") for name in ("validation", "test")}
    model = registry.models.load("show_tell").Settings(name="show_tell", width=6)
    data, diagnostics = DataSettings(source=str(tmp_path / "train.csv"), **files), Diagnostics()
    config = TaskConfig(task=CaptionSettings(channels=4), data=data, model=model)
    task, splits = reading.prepare(CaptionTask, config, diagnostics=diagnostics)
    images = {name: {path.name for path in splits[name].rows["image"]} for name in splits}
    assert not images["train"] & images["validation"]
    assert not images["validation"] & images["test"]
    assert not images["train"] & images["test"]
    assert len(set.union(*images.values())) == 40
    assert sum("held out for evaluation" in note for note in diagnostics.notes) == 2
    for name in splits:
        split = splits[name]
        assert len(split.items) == len(split.rows)
        np.testing.assert_array_equal(
            split.items.inputs[0], np.asarray(Image.open(split.rows["image"][0]).convert("RGB"))
        )
    TaskObjective.of(task, splits).batch(0, 0, 4, 4)


def test_pointing_on_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "SPLIT_SIZES", dict.fromkeys(scenes.SPLIT_SIZES, 40))
    model = registry.models.load("show_attend_tell").Settings(name="show_attend_tell", width=6)
    config = TaskConfig(task=CaptionSettings(channels=4, beams=2), data=DataSettings(source="scenes"), model=model)
    task, splits = reading.prepare(CaptionTask, config)
    sample = task.sample_split(splits["validation"], 5_000)
    metrics = task.evaluate(task.build(splits.train), sample).metrics
    assert 0 <= metrics["pointing"] <= 1
    assert 0 < metrics["pointing_mass"] < 0.5
    assert sample.items.groups is not None
    assert sample.items.regions is not None
    assert len(sample.items.groups) == 5
    assert metrics["nouns"] == sum(map(len, sample.items.regions))


def test_a_processor_is_stored(folder: Path, tmp_path: Path) -> None:
    from seriatim.tasks.processor import from_dict

    processor = prepare(folder)[0].processor
    values, tokenizers = processor.to_dict()
    for name, tokenizer in tokenizers.items():
        tokenizer.save(tmp_path / name)
    restored = from_dict(values, tmp_path)
    assert restored.compatible(processor)
    assert restored.image == processor.image
    assert restored.context_length == processor.context_length


# Pointing: a grid of 2 × 3 cells over an image 40 high and 60 wide, so cells of 20 × 20 pixels.

GRID, SIZE = (2, 3), (40, 60)
TOP_LEFT = (5.0, 5.0, 15.0, 15.0)


def test_the_largest_weight_lies_in_the_box_or_not() -> None:
    weights = np.array([[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]])
    nouns = point(weights, [[0], [1]], GRID, SIZE, [Region(0, "dog", TOP_LEFT), Region(1, "cat", TOP_LEFT)])
    assert [noun.hit for noun in nouns] == [1.0, 0.0]
    assert [noun.mass for noun in nouns] == pytest.approx([0.5 / 4, 0.1 / 4])  # a quarter of the cell
    assert nouns[0].chance == 1 / 6
    assert pointing_metrics(nouns) == {"pointing": 0.5, "pointing_mass": pytest.approx(0.075), "nouns": 2.0}
    assert pointing_metrics([]) == {}


@pytest.mark.parametrize(
    ("box", "hit"),
    [
        ((10, 10, 11, 11), 1),  # the center of the first cell is (10, 10)
        ((0, 0, 10, 20), 0),
        ((0, 0, 20, 10), 0),
        ((10.1, 0, 20, 20), 0),
        ((-5, -5, 100, 100), 1),
    ],
)
def test_edges_of_a_box(box: tuple[float, float, float, float], hit: float) -> None:
    weights = np.array([[1.0, 0, 0, 0, 0, 0]])
    assert point(weights, [[0]], GRID, SIZE, [Region(0, "dog", box)])[0].hit == hit


def test_the_tokens_of_a_noun_attend_together() -> None:
    """The first token attends to cell 0, the second and the second word to cell 2: with their mean it is that."""
    weights = np.eye(6)[[4, 0, 2, 2]]
    regions = [Region(1, "traffic light", (40, 0, 60, 20)), Region(0, "a", TOP_LEFT)]
    nouns = point(weights, [[0], [1, 2], [3]], GRID, SIZE, regions)
    assert [noun.hit for noun in nouns] == [1.0, 0.0]
    assert nouns[0].mass == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="2 × 3 cells"):
        point(np.ones((1, 5)), [[0]], GRID, SIZE, [])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.floats(0, 70), min_size=2, max_size=2, unique=True),
    st.lists(st.floats(0, 50), min_size=2, max_size=2, unique=True),
)
def test_uniform_weights_reach_chance(height: int, width: int, across: list[float], down: list[float]) -> None:
    (left, right), (top, bottom) = sorted(across), sorted(down)
    weights = np.full((1, height * width), 1 / (height * width))
    (noun,) = point(weights, [[0]], (height, width), SIZE, [Region(0, "dog", (left, top, right, bottom))])
    assert noun.hit == pytest.approx(noun.chance)
    area = (min(right, 60) - min(left, 60)) * (min(bottom, 40) - min(top, 40)) / 2400
    assert noun.mass == pytest.approx(area, abs=1e-12)


def test_regions_of_a_cell() -> None:
    expected = (Region(1, "dog", (4.0, 8.0, 30.0, 20.0)),)
    assert parse_regions([{"noun": "dog", "position": 1, "box": [4, 8, 30, 20]}]) == expected
    assert parse_regions([{"noun": "dog", "place": 1, "box": [4, 8, 30, 20]}]) == expected
    assert parse_regions([(1, "dog", (4, 8, 30, 20))]) == expected
    for wrong in ([{"noun": "dog"}], [{"noun": "dog", "position": 1, "box": [1, 2]}], 3):
        with pytest.raises((KeyError, ValueError, TypeError)):
            parse_regions(wrong)


def test_t5_scales_only_outputs_that_share_the_vectors_of_its_tokens(folder: Path) -> None:
    task, splits = prepare(folder, ("t5", {}))
    assert task.build(splits.train).backbone.decoder_norm.scale == 1.0
