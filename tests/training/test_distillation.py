"""Distillation: the loss as a mixture, the same mathematics however a batch is split, and teachers that do not fit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import seriatim
from seriatim.core.config import merge
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.core.files import load_tensors, save_tensors
from seriatim.data.source import open_source
from seriatim.nn.loss import TokenScores
from seriatim.nn.network import weights
from seriatim.runs.configure import configure
from seriatim.runs.run import Run
from seriatim.tasks import load, reading
from seriatim.tasks.base import Output
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import Config
from seriatim.training.distillation import CachedTeacher, OnlineTeacher, Teacher, make_distillation, read_unlabeled
from seriatim.training.events import Event, Stepped
from seriatim.training.loop import Loop

SMALL: dict[str, Any] = {"model": {"width": 8}, "train": {"evaluate_steps": 100, "steps": 6, "batch_size": 8}}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "classify": ("gru", {"data": {"columns": {"input": "text", "target": "label"}}}),
    "regress": ("gru", {"data": {"columns": {"input": "text", "target": "value"}}}),
    "tag": ("gru", {}),
    "language": ("lstm", {"task": {"context_length": 12, "tokenizer": {"kind": "char"}}}),
    "translate": ("bahdanau", {"task": {"tokenizer": {"kind": "char"}}}),
}
CACHED = ("classify", "regress", "tag")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, book: Path) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    moods = {"good": ["fine", "lovely", "great"], "bad": ["dull", "awful", "poor"]}
    texts = [
        (" ".join(generator.choice([*moods[label], "the", "film", "was"], generator.integers(2, 9))), label)
        for label in ["good", "bad"] * 30
    ]
    reviews = [f"{text},{label},{len(text)}" for text, label in texts]
    (folder / "reviews.csv").write_text("text,label,value\n" + "\n".join(reviews) + "\n", encoding="utf-8")
    (folder / "more.csv").write_text("text\n" + "\n".join(text[::-1] for text, _ in texts) + "\n", encoding="utf-8")
    pairs = [f"{text}\t{' '.join(reversed(text.split()))}" for text, _ in texts]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    tags = {word: mood for mood, words in moods.items() for word in words}
    sentences = ["\n".join(f"{word} {tags.get(word, 'none')}" for word in text.split()) for text, _ in texts]
    (folder / "words.conll").write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    files = {"tag": "words.conll", "translate": "pairs.tsv"}
    sources = {task: str(folder / files.get(task, "reviews.csv")) for task in TASKS}
    return sources | {"language": str(book), "more": str(folder / "more.csv")}


def train(task: str, data: dict[str, str], out: Path, /, **settings: Any) -> Run:
    model, own = TASKS[task]
    return seriatim.train(task, data[task], model, settings=merge(merge(SMALL, own), settings), out=out, report=False)


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory, data: dict[str, str]) -> dict[str, Run]:
    """One for each task, with another width than its students."""
    folder = tmp_path_factory.mktemp("teachers")
    return {task: train(task, data, folder / task, model={"width": 12}, seed=5) for task in TASKS}


def make_loop(
    name: str, data: dict[str, str], teachers: dict[str, Run], folder: Path, /, double: bool = False, **settings: Any
) -> Any:
    """Returns the loop of a student, as a session makes it, and its data."""
    task = name
    model, own = TASKS[task]
    teacher_settings = {"distill": {"teacher": str(teachers[task].path)}}
    values = merge(merge(merge(SMALL, own), teacher_settings), settings)
    config: Config = configure(task, data[task], model, values)
    assert config.distill is not None
    teacher = Teacher(Run(config.distill.teacher))
    prepared, splits = reading.prepare(load(task), config.task_config())
    teacher.check_compatible(prepared, config)
    network = prepared.build(splits.train)
    if double:
        teacher.predictor.network.double()
        network.double()
    source = config.distill.unlabeled_data
    unlabeled = None if source is None else read_unlabeled(prepared, splits, open_source(source), Diagnostics())
    cpu = torch.device("cpu")
    notify = lambda note: None  # noqa: E731
    student = make_distillation(prepared, splits, config.distill, teacher, cpu, notify, unlabeled=unlabeled)
    loop: Any = Loop(student, network, config.train, 1e-2, config.seed, Checkpoints(folder / "checkpoints"))
    loop.splits = splits
    return loop


def losses(events: Iterable[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Stepped)]


@pytest.mark.parametrize("task", TASKS)
def test_the_loss_is_a_mixture(task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    """Its parts are computed from the outputs of student and teacher separately."""
    distill = {"weight": 0.3, "temperature": 3.0, "hidden_weight": 0.7}
    loop = make_loop(task, data, teachers, tmp_path, distill=distill)
    assert isinstance(loop.objective, CachedTeacher if task in CACHED else OnlineTeacher)
    inner, teacher, network = loop.objective.task, Run(teachers[task].path).network, loop.network.eval()
    batch = loop.objective.batch(0, 0, 8, 8)
    loss = loop.objective.loss(loop.objective.forward(network, batch), batch, 0.1)
    student_output, teacher_output = inner.forward(network, batch), inner.forward(teacher, batch)  # same tokens here
    targets = inner.loss(student_output, batch, 0.1)
    ours, theirs = student_output.scores, teacher_output.scores
    if task == "regress":
        scale = network.head.scale  # type: ignore[union-attr]
        distance = ((ours / scale - theirs / scale) ** 2).sum()
    else:
        ours, theirs = (F.linear(*scores) if isinstance(scores, TokenScores) else scores for scores in (ours, theirs))
        p = (theirs / 3).softmax(dim=-1)
        distance = 9 * (p * (p.log() - (ours / 3).log_softmax(dim=-1))).sum()
    features = (student_output.features, teacher_output.features)
    rows = torch.linspace(0, len(features[0]) - 1, min(len(features[0]), 256)).long()  # type: ignore[arg-type]
    cosines = [F.cosine_similarity(x[rows, None], x[None, rows], dim=-1) for x in features]  # type: ignore[index]
    similarity = batch.count * (cosines[0] - cosines[1]).square().mean()
    expected = 0.7 * targets + 0.3 * distance + 0.7 * similarity
    assert loss.item() == pytest.approx(expected.item(), rel=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_accumulation_changes_nothing(
    task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    still = {"model": {"dropout": 0.0}, "task": {"word_dropout": 0.0} if task == "tag" else {}}
    results = []
    for split in ({"batch_size": 8}, {"batch_size": 2, "accumulate": 4}):
        loop = make_loop(task, data, teachers, tmp_path, double=True, train=split, **still)
        results.append([loop._update()[0] for _ in range(3)])
    assert results[0] == pytest.approx(results[1], rel=1e-6)


@pytest.mark.parametrize("task", ["classify", "tag", "language"])
def test_resuming_is_exact(task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    """With the states of student and teacher carried from step to step, if rows continue."""
    settings = {"distill": {"hidden_weight": 0.5}, "model": {"dropout": 0.2}}
    whole = make_loop(task, data, teachers, tmp_path / "whole", **settings)
    expected = losses(whole.run())
    cut = make_loop(task, data, teachers, tmp_path / "cut", **settings)
    cut.stop_signal = lambda: "SIGINT" if cut.progress.step >= 3 else ""
    first = losses(cut.run())
    again = make_loop(task, data, teachers, tmp_path / "cut", **settings)
    again.resume()
    assert first + losses(again.run()) == expected
    for name, tensor in weights(whole.network).items():
        assert torch.equal(tensor, weights(again.network)[name]), name


@pytest.mark.parametrize("task", ["classify", "language"])
def test_a_teacher_without_weight_changes_nothing(
    task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    results = {}
    for weight in (0.0, 0.5):
        loop = make_loop(task, data, teachers, tmp_path, distill={"weight": weight})
        results[weight] = [loop._update()[0] for _ in range(3)]
    student = loop.objective.student
    network = student.task.build(loop.splits.train)
    plain = Loop(student, network, loop.settings, 1e-2, loop.seed, Checkpoints(tmp_path / "plain"))
    alone = [plain._update()[0] for _ in range(3)]
    assert results[0.0] == alone
    assert results[0.5] != alone


def test_the_order_of_labels_does_not_matter(data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    path = tmp_path / "reversed"
    shutil.copytree(teachers["classify"].path, path)
    values = json.loads((path / "data.json").read_text(encoding="utf-8"))
    values["processor"]["labels"].reverse()
    values.pop("sha256")
    (path / "data.json").write_text(json.dumps(values), encoding="utf-8")
    tensors = load_tensors(path / "model.safetensors")
    flipped = {name: t.flip(0).contiguous() if name.startswith("head.output") else t for name, t in tensors.items()}
    save_tensors(path / "model.safetensors", flipped)
    loops = [
        make_loop("classify", data, {"classify": run}, tmp_path / str(number))
        for number, run in enumerate([teachers["classify"], Run(path)])
    ]
    assert losses(loops[0].run()) == pytest.approx(losses(loops[1].run()), rel=1e-6)


@pytest.mark.parametrize("task", CACHED)
def test_a_teacher_may_read_other_tokens(
    task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    """The stored outputs are the teacher's predictions for the texts themselves."""
    own = {"task": {"tokenizer": {"kind": "char" if task != "tag" else "word", "vocab_size": 30}}}
    loop = make_loop(task, data, teachers, tmp_path, distill={"hidden_weight": 1.0}, **own)
    student = loop.objective
    assert isinstance(student, CachedTeacher)
    run = Run(teachers[task].path)
    predicted = run.predictor.scores(run.task.encode(loop.splits.train.rows, Diagnostics()))
    expected = np.concatenate(predicted) if task == "tag" else np.stack(predicted)
    np.testing.assert_allclose(student.scores, expected, rtol=1e-4, atol=1e-5)
    assert student.features is not None
    assert student.features.shape == (len(student.scores), 24 if task == "tag" else 12)


def test_unlabeled_examples_have_the_teachers_targets_only(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    for task in ("classify", "regress"):
        distill = {"unlabeled_data": data["more"], "weight": 0.25}
        loop = make_loop(task, data, teachers, tmp_path / task, distill=distill)
        student, network = loop.objective, loop.network.eval()
        assert isinstance(student, CachedTeacher)
        count = len(loop.splits.train.items)
        assert (student.labeled, len(student.student.train)) == (count, count + 60)
        items = student.student.sampler.items(0, 60)
        batch = student.batch(0, 0, 60, 60)
        labeled = torch.from_numpy(items < count)
        assert 0 < labeled.sum() < 60
        output = student.task.forward(network, batch)
        targets = student.task.loss(Output(output.scores[labeled]), replace(batch, targets=batch.targets[labeled]), 0.0)
        teacher = Output(torch.from_numpy(student.scores[items]))
        distance = student.task.distillation_loss(output, teacher, 2.0)
        loss = student.loss(student.forward(network, batch), batch)
        assert loss.item() == pytest.approx((0.75 * targets + 0.25 * distance).item(), rel=1e-6)
        assert batch.count == 60
        assert len(losses(loop.run())) == 6


def test_a_run_stores_the_name_of_its_teacher(data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    """Resuming needs the same weights, wherever they are."""
    moved = tmp_path / "moved"
    shutil.copytree(teachers["classify"].path, moved)
    run = train("classify", data, tmp_path / "run", distill={"teacher": str(moved)})
    known = run.summary["teacher"]
    assert known["fingerprint"] == hashlib.sha256((moved / "model.safetensors").read_bytes()).hexdigest()
    assert known["metrics"] == teachers["classify"].summary["metrics"]
    tensors = load_tensors(moved / "model.safetensors")
    save_tensors(moved / "model.safetensors", {name: t + 1 for name, t in tensors.items()})
    with pytest.raises(SeriatimError) as caught:
        seriatim.resume(run.path, steps=10)
    assert caught.value.code == "distill.changed"


def test_teachers_that_do_not_fit(data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    def error(task: str, teacher: Run, **settings: Any) -> SeriatimError:
        with pytest.raises(SeriatimError) as caught:
            train(
                task,
                data | settings.pop("data", {}),
                tmp_path / "s",
                distill={"teacher": str(teacher.path)},
                **settings,
            )
        assert not (tmp_path / "s").exists(), "before the folder is made"
        return caught.value

    assert error("classify", teachers["regress"]).code == "distill.task"
    text = Path(data["classify"]).read_text(encoding="utf-8").replace(",good,", ",fair,")
    (tmp_path / "fair.csv").write_text(text, encoding="utf-8")
    other = error("classify", teachers["classify"], data={"classify": str(tmp_path / "fair.csv")})
    assert other.code == "distill.outputs"
    assert "fair" in other.cause
    ngram = seriatim.train("language", data["language"], "ngram", out=tmp_path / "ngram", report=False)
    assert error("language", ngram).code == "distill.teacher"
