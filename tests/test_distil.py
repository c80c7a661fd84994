"""Distillation: the losses by hand, the same mathematics however a batch is cut, and teachers that do not fit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import seriatim
from helpers import torchrun
from seriatim import distil, distilling
from seriatim.api import configure
from seriatim.cli import run as cli
from seriatim.core import registry
from seriatim.core.config import dump_yaml, merge
from seriatim.core.errors import SeriatimError
from seriatim.core.tensors import load_tensors, save_tensors
from seriatim.data.tokenizers import Tokenizer
from seriatim.distilling import ALONE, TAUGHT, speeds, students
from seriatim.nn.network import weights
from seriatim.nn.soft import TokenScores, likeness_loss, soft_choices_loss, soft_loss, soft_token_loss
from seriatim.runs import Run
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import Config
from seriatim.training.distil import Teacher, distilled
from seriatim.training.events import Event, Stepped
from seriatim.training.loop import Loop
from seriatim.training.settings import DistilSettings

# The losses


def scores(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_soft_losses_by_hand() -> None:
    s, t, T = scores(5, 3), scores(5, 3, seed=1), 2.5
    p, q = (t / T).exp() / (t / T).exp().sum(1, keepdim=True), (s / T).exp() / (s / T).exp().sum(1, keepdim=True)
    assert soft_loss(s, t, T).item() == pytest.approx(T**2 * float((p * (p / q).log()).sum()))
    p, q = 1 / (1 + (-t / T).exp()), 1 / (1 + (-s / T).exp())
    by_hand = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    assert soft_choices_loss(s, t, T).item() == pytest.approx(T**2 * float(by_hand.sum() / 3))
    for loss in (soft_loss, soft_choices_loss):
        assert loss(t, t, T).item() == pytest.approx(0, abs=1e-12)


def test_the_gradient_of_a_high_temperature_is_that_of_squared_scores() -> None:
    """Hinton et al., equation 4: for T → ∞ and scores of mean 0, T² times the gradient is (s − t)/C."""
    s, t = (one - one.mean(dim=1, keepdim=True) for one in (scores(4, 6), scores(4, 6, seed=1)))
    s.requires_grad_()
    soft_loss(s, t, 1e4).backward()
    assert torch.allclose(s.grad, (s.detach() - t) / 6, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
@pytest.mark.parametrize("bias", [True, False])
def test_chunks_of_a_vocabulary_change_nothing(chunk: int, bias: bool) -> None:
    def made(width: int, seed: int) -> TokenScores:
        return TokenScores(scores(7, width, seed=seed), scores(11, width, seed=seed + 1), scores(11) if bias else None)

    student, teacher = made(4, 1), made(6, 3)
    learning = [one.requires_grad_() for one in student if one is not None]
    wanted = soft_loss(F.linear(*student), F.linear(*teacher), 2.0)
    gradients = torch.autograd.grad(3 * wanted, learning)
    found = soft_token_loss(student, teacher, 2.0, chunk)
    assert found.item() == pytest.approx(wanted.item())
    for one, other in zip(torch.autograd.grad(3 * found, learning), gradients, strict=True):
        assert torch.allclose(one, other)


def test_likeness_asks_for_angles_alone() -> None:
    ours, turn = scores(6, 4), torch.linalg.qr(scores(4, 4, seed=1))[0]
    assert likeness_loss(ours, 7 * ours @ turn).item() == pytest.approx(0, abs=1e-12), "turned and stretched"
    wider = torch.cat([ours, torch.zeros(6, 5)], dim=1)
    assert likeness_loss(ours, wider).item() == pytest.approx(0, abs=1e-12)
    a, b = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert likeness_loss(a, b).item() == pytest.approx(2 * 0.5 / 4), "cos 45° for two of four pairs"
    many = scores(1000, 3)
    assert likeness_loss(many, -many).item() == pytest.approx(0, abs=1e-12)
    assert likeness_loss(many[:0], many[:0]).item() == 0


# Students and teachers

SMALL: dict[str, Any] = {"settings": {"model": {"width": 8}, "train": {"evaluate_steps": 100}}, "steps": 6, "batch": 8}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "classify": ("gru", {"column": "text", "target": "label"}),
    "regress": ("gru", {"column": "text", "target": "value"}),
    "tag": ("gru", {}),
    "language": ("lstm", {"length": 12, "tokenizer": "char"}),
    "translate": ("bahdanau", {"tokenizer": "char"}),
}


@pytest.fixture(scope="module", autouse=True)
def _without_pictures() -> Iterator[None]:
    """Those of single runs take most of the time, and are tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seriatim.report.write_run_report", lambda run: None)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, book: Path) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    moods = {"good": ["fine", "lovely", "great"], "bad": ["dull", "awful", "poor"]}
    texts = [
        (" ".join(draw.choice([*moods[label], "the", "film", "was"], draw.integers(2, 9))), label)
        for label in ["good", "bad"] * 30
    ]
    reviews = [f"{text},{label},{len(text)}" for text, label in texts]
    (folder / "reviews.csv").write_text("text,label,value\n" + "\n".join(reviews) + "\n", encoding="utf-8")
    (folder / "more.csv").write_text("text\n" + "\n".join(text[::-1] for text, _ in texts) + "\n", encoding="utf-8")
    pairs = [f"{text}\t{' '.join(reversed(text.split()))}" for text, _ in texts]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    tags = {word: mood for mood, words in moods.items() for word in words}
    sentences = ["\n".join(f"{word} {tags.get(word, 'none')}" for word in text.split()) for text, _ in texts]
    for name, some in {"train": sentences[:48], "valid": sentences[48:54], "test": sentences[54:]}.items():
        (folder / f"{name}.conll").write_text("\n\n".join(some) + "\n", encoding="utf-8")
    files = {"tag": "train.conll", "translate": "pairs.tsv"}
    sources = {task: str(folder / files.get(task, "reviews.csv")) for task in TASKS}
    return sources | {"language": str(book), "more": str(folder / "more.csv"), "folder": str(folder)}


def options(task: str, data: dict[str, str]) -> dict[str, Any]:
    files = {"valid": data["folder"] + "/valid.conll", "test": data["folder"] + "/test.conll"} if task == "tag" else {}
    return SMALL | TASKS[task][1] | files


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory, data: dict[str, str]) -> dict[str, Run]:
    """One for each task, with another width than its students."""
    folder = tmp_path_factory.mktemp("teachers")
    return {
        task: seriatim.train(task, data[task], model, out=folder / task, **wide(options(task, data)))
        for task, (model, _) in TASKS.items()
    }


def wide(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"settings": merge(values["settings"], {"model": {"width": 12}}), "seed": 5}


def taught(task: str, data: dict[str, str], teachers: dict[str, Run], **changes: Any) -> Config:
    """The configuration of a student."""
    distil = {"teacher": str(teachers[task].path), **changes.pop("distil", {})}
    own = changes.pop("settings", {})
    values = options(task, data) | changes
    settings = merge(values.pop("settings"), {**own, "distil": distil})
    return configure(task, data[task], TASKS[task][0], settings, **values)


def loop(config: Config, folder: Path, teachers: dict[str, Run], halt: Any = lambda: "", double: bool = False) -> Loop:
    """The loop of a training with a teacher, as the session makes it."""
    teacher = Teacher(Run(config.distil.teacher))
    if double:
        teacher.predictor.model.double()
    task = registry.tasks.load(config.task.name).prepare(config)
    network = task.build(config.model)
    network = network.double() if double else network
    unlabelled = config.distil.unlabelled
    more = None if unlabelled is None else task.with_unlabelled(unlabelled, config, None, lambda note: None)
    learner = distilled(task, config.distil, teacher, torch.device("cpu"), lambda note: None, more)
    return Loop(learner, network, config.train, 1e-2, config.seed, Checkpoints(folder / "checkpoints"), halt=halt)


def losses(events: Iterable[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Stepped)]


@pytest.mark.parametrize("task", TASKS)
def test_the_loss_is_a_mixture(task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    """Its parts are found by asking student and teacher for what they say, each by itself."""
    made = loop(
        taught(task, data, teachers, distil={"alpha": 0.3, "temperature": 3.0, "hidden": 0.7}), tmp_path, teachers
    )
    inner, teacher = made.task.task, Run(teachers[task].path).predictor
    network = made.network.eval()
    batch = made.task.batch(0, 0, 8, 8)
    loss, _ = made.task.loss(network, batch, None, 0.1)
    hard, _ = inner.loss(network, batch, None, 0.1)
    ours, vectors, _ = inner.read(network, batch, None)
    theirs, meant, _ = inner.read(teacher.model, batch, None)  # both have the same tokens here
    if task == "regress":
        scale = network.head.scale
        soft = ((ours / scale - theirs / scale) ** 2).sum()
    else:
        ours, theirs = (F.linear(*one) if isinstance(one, TokenScores) else one for one in (ours, theirs))
        p = (theirs / 3).softmax(dim=-1)
        soft = 9 * (p * (p.log() - (ours / 3).log_softmax(dim=-1))).sum()
    some = torch.linspace(0, len(vectors) - 1, min(len(vectors), 256)).long()
    cosines = [F.cosine_similarity(one[some, None], one[None, some], dim=-1) for one in (vectors, meant)]
    unlike = len(vectors) * (cosines[0] - cosines[1]).square().mean()
    assert batch.count == len(vectors)
    assert loss.item() == pytest.approx((0.7 * hard + 0.3 * soft + 0.7 * unlike).item(), rel=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_how_a_batch_is_cut_changes_nothing(
    task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    still = {"model": {"dropout": 0.0}, "task": {"word_dropout": 0.0} if task == "tag" else {}}
    found = []
    for train in ({"batch": 8}, {"batch": 2, "accumulate": 4}):
        config = taught(task, data, teachers, settings=still | {"train": train}, batch=None)
        made = loop(config, tmp_path, teachers, double=True)
        found.append([made._update()[0] for _ in range(4)])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("task", ["classify", "tag", "language"])
def test_resuming_is_exact(task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    """With the states of student and teacher carried from step to step, where rows go on."""
    config = taught(task, data, teachers, distil={"hidden": 0.5}, settings={"model": {"dropout": 0.2}})
    whole = loop(config, tmp_path / "whole", teachers)
    wanted = losses(whole.run())
    done: list[Event] = []
    for event in loop(config, tmp_path / "cut", teachers, lambda: "SIGINT" if len(losses(done)) >= 3 else "").run():
        done.append(event)
    again = loop(config, tmp_path / "cut", teachers)
    again.resume()
    assert losses(done) + losses(again.run()) == wanted
    for name, tensor in weights(whole.network).items():
        assert torch.equal(tensor, weights(again.network)[name]), name


def student(task: str, data: dict[str, str], out: Path, teacher: Run | None, **changes: Any) -> Run:
    values = options(task, data) | ({} if teacher is None else {"teacher": str(teacher.path)}) | changes
    return seriatim.train(task, data[task], TASKS[task][0], out=out, **values)


def curve(run: Run) -> list[float]:
    return [line["loss"] for line in run.history("stepped")]


@pytest.mark.parametrize("task", ["classify", "language"])
def test_without_a_part_in_the_loss_a_teacher_changes_nothing(
    task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    found = {}
    for alpha in (0.0, 0.5):
        config = taught(task, data, teachers, distil={"alpha": alpha})
        made = loop(config, tmp_path, teachers)
        found[alpha] = [made._update()[0] for _ in range(3)]
    inner = made.task.task
    plain = Loop(inner, inner.build(config.model), config.train, 1e-2, config.seed, Checkpoints(tmp_path / "plain"))
    alone = [plain._update()[0] for _ in range(3)]
    assert found[0.0] == alone
    assert found[0.5] != alone
    told: list[str] = []
    run = student(task, data, tmp_path / "run", teachers[task], alpha=0.0, notify=told.append)
    assert not [note for note in told if "teacher" in note], "it is not asked"
    assert "teacher" not in run.summary


def test_the_order_of_labels_does_not_matter(data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    """A teacher whose labels stand the other way round teaches the same."""
    shutil.copytree(teachers["classify"].path, tmp_path / "turned")
    about = json.loads((tmp_path / "turned/data.json").read_text(encoding="utf-8"))
    about["labels"] = about["labels"][::-1]
    (tmp_path / "turned/data.json").write_text(json.dumps(about), encoding="utf-8")
    tensors = load_tensors(tmp_path / "turned/model.safetensors")
    turned = {name: t.flip(0).contiguous() if name.startswith("head.output") else t for name, t in tensors.items()}
    save_tensors(tmp_path / "turned/model.safetensors", turned)
    runs = [
        student("classify", data, tmp_path / name, teacher)
        for name, teacher in {"a": teachers["classify"], "b": Run(tmp_path / "turned")}.items()
    ]
    assert curve(runs[0]) == pytest.approx(curve(runs[1]), rel=1e-6)


@pytest.mark.parametrize("task", ["classify", "regress", "tag"])
def test_a_teacher_may_read_other_tokens(
    task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    """What is recalled is what the teacher says to the texts themselves."""
    config = taught(task, data, teachers, tokenizer="char", distil={"hidden": 1.0})
    made = loop(config, tmp_path, teachers).task
    part = made.task.parts["train"]
    run = Run(teachers[task].path)
    if task == "tag":
        sure = [value for one in run.predict(part.words()) for value in one["confidence"]]
        assert torch.from_numpy(made.scores).softmax(dim=-1).amax(dim=-1).numpy() == pytest.approx(sure, abs=1e-5)
    elif task == "classify":
        said = [list(one["probabilities"].values()) for one in run.predict(part.examples.inputs)]
        assert torch.from_numpy(made.scores).softmax(dim=-1).numpy() == pytest.approx(np.array(said), abs=1e-5)
    else:
        said = [list(one.values()) for one in run.predict(part.examples.inputs)]
        assert made.scores == pytest.approx(np.array(said), rel=1e-5)
    assert made.vectors.shape == (len(made.scores), 24 if task == "tag" else 12)


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_bert_may_teach_a_model_of_words(task: str, data: dict[str, str], tmp_path: Path) -> None:
    """Its texts stand between [CLS] and [SEP], in pieces, and some are longer than it can take."""
    small = {"width": 8, "heads": 2, "layers": 1, "context": 12}
    values = options(task, data) | {"settings": {"model": small}, "steps": 1, "vocabulary": 60}
    bert = seriatim.train(task, data[task], "bert", out=tmp_path / "bert", **values, length=12)
    made = loop(taught(task, data, {task: bert}), tmp_path, {}).task
    part = made.task.parts["train"]
    if task == "tag":
        sure = [value for one in bert.predict(part.words()) for value in one["confidence"]]
    else:
        sure = [one["confidence"] for one in bert.predict(part.examples.inputs)]
    assert torch.from_numpy(made.scores).softmax(dim=-1).amax(dim=-1).numpy() == pytest.approx(sure, abs=1e-5)


# Unlabelled examples


def test_unlabelled_examples_have_a_soft_target_alone(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    for task in ("classify", "regress"):
        config = taught(task, data, teachers, distil={"unlabelled": data["more"], "alpha": 0.25})
        made = loop(config, tmp_path / task, teachers)
        inner, network = made.task.task, made.network.eval()
        assert (made.task.labelled, inner.size, made.task.steps_per_epoch(8)) == (48, 108, 13)
        assert len(made.task.evaluate(network, "valid")) > 0
        rows = inner.rows(0, 60)
        batch = made.task.batch(0, 0, 60, 60)
        known = torch.from_numpy(rows < 48)
        assert 0 < known.sum() < 60
        scores, _, _ = inner.read(network, batch, None)
        hard = inner.hard(network, scores[known], replace(batch, targets=batch.targets[known]), 0.0)
        soft = inner.soft(network, scores, torch.from_numpy(made.task.scores[rows]), 2.0)
        loss, _ = made.task.loss(network, batch, None, 0.0)
        assert loss.item() == pytest.approx((0.75 * hard + 0.25 * soft).item(), rel=1e-6)
        assert batch.count == 60
        assert len(losses(made.run())) == 6


def test_unlabelled_examples_that_are_measured_on_are_told(data: dict[str, str], teachers: dict[str, Run]) -> None:
    config = taught("classify", data, teachers)
    task, told = registry.tasks.load("classify").prepare(config), []
    again = task.with_unlabelled(data["regress"], config, None, told.append)
    assert (
        told[-1]
        == "6 of 6 valid examples and 6 of 6 test examples are among the unlabelled ones: measures on them flatter"
    )
    assert (again.size, task.size) == (108, 48)


def test_a_teacher_alone_needs_no_true_targets(data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    """With α = 1 the student learns the same from labels that were thrown among the examples."""
    lines = Path(data["classify"]).read_text(encoding="utf-8").splitlines()
    swapped = [line.replace(",good,", ",?,").replace(",bad,", ",good,").replace(",?,", ",bad,") for line in lines[1:]]
    (tmp_path / "wrong.csv").write_text("\n".join([lines[0], *swapped]) + "\n", encoding="utf-8")
    wrong = data | {"classify": str(tmp_path / "wrong.csv")}
    right = student("classify", data, tmp_path / "right", teachers["classify"], alpha=1.0, unlabelled=data["more"])
    other = student("classify", wrong, tmp_path / "other", teachers["classify"], alpha=1.0, unlabelled=data["more"])
    assert sorted(Run(right.path).settings["data"]) == sorted(Run(other.path).settings["data"])
    assert curve(right) == pytest.approx(curve(other), rel=1e-6)


# What a run knows of its teacher


def test_a_run_keeps_the_teachers_name_not_its_weights(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    run = student("classify", data, tmp_path / "s", teachers["classify"])
    known = run.summary["teacher"]
    weights_file = teachers["classify"].path / "model.safetensors"
    assert known["fingerprint"] == hashlib.sha256(weights_file.read_bytes()).hexdigest()
    assert known["measures"] == teachers["classify"].summary["measures"]
    assert run.summary["parameters"] == sum(tensor.numel() for tensor in run.model.parameters())
    shutil.copytree(teachers["classify"].path, tmp_path / "moved")
    config = (run.path / "config.yaml").read_text(encoding="utf-8")
    (run.path / "config.yaml").write_text(
        config.replace(str(teachers["classify"].path), str(tmp_path / "moved")), encoding="utf-8"
    )
    assert seriatim.resume(run.path, steps=8).summary["step"] == 8, "the same teacher at another place"
    tensors = load_tensors(tmp_path / "moved/model.safetensors")
    save_tensors(tmp_path / "moved/model.safetensors", {name: t + 1 for name, t in tensors.items()})
    with pytest.raises(SeriatimError) as caught:
        seriatim.resume(run.path, steps=10)
    assert caught.value.code == "distil.changed"
    shutil.rmtree(tmp_path / "moved")
    with pytest.raises(SeriatimError) as caught:
        seriatim.resume(run.path, steps=10)
    assert caught.value.code == "run.missing"


def test_a_language_student_takes_over_its_teachers_tokens(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    run = student("language", data, tmp_path / "s", teachers["language"], tokenizer=None)
    assert Tokenizer.load(run.path).to_json() == Tokenizer.load(teachers["language"].path).to_json()


# Teachers that do not fit


def refused(task: str, data: dict[str, str], teacher: Run, tmp_path: Path, **changes: Any) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        student(task, data, tmp_path / "s", teacher, **changes)
    assert not (tmp_path / "s").exists(), "found before the folder is made"
    return caught.value


def test_teachers_that_do_not_fit_are_refused(data: dict[str, str], teachers: dict[str, Run], tmp_path: Path) -> None:
    error = refused("classify", data, teachers["regress"], tmp_path)
    assert error.code == "distil.task"
    changed = Path(data["classify"]).read_text(encoding="utf-8").replace(",good,", ",fair,")
    (tmp_path / "fair.csv").write_text(changed, encoding="utf-8")
    error = refused("classify", data | {"classify": str(tmp_path / "fair.csv")}, teachers["classify"], tmp_path)
    assert error.code == "distil.outputs"
    assert 'only this model has the label: "fair"' in error.cause
    assert 'only the teacher has the label: "good"' in error.cause
    error = refused("language", data, teachers["language"], tmp_path, tokenizer="word")
    assert "its tokens are of the kind word, the teacher's char" in error.cause
    assert "only this model has" in error.cause
    error = refused("translate", data, teachers["translate"], tmp_path, tokenizer="word")
    assert error.cause.count("target: ") == 3
    error = refused("tag", data, teachers["tag"], tmp_path, unlabelled=data["more"])
    assert error.code == "distil.unlabelled"
    counted = seriatim.train("language", data["language"], "ngram", out=tmp_path / "ngram")
    assert refused("language", data, counted, tmp_path).code == "distil.teacher"
    narrow = {"model": {"width": 8, "heads": 2}, "train": {"evaluate_steps": 4}}
    short = seriatim.train(
        "language", data["language"], "gpt", out=tmp_path / "gpt", settings=narrow, steps=1, length=6
    )
    error = refused("language", data, short, tmp_path, tokenizer=None)
    assert "sequences have 12 tokens, the teacher takes 6" in error.cause
    with pytest.raises(SeriatimError, match=r"distil\.teacher: is required"):
        configure("classify", data["classify"], "gru", alpha=0.2)
    with pytest.raises(SeriatimError) as caught:
        seriatim.train(
            "language", data["language"], "ngram", out=tmp_path / "s", teacher=str(teachers["language"].path)
        )
    assert caught.value.code == "distil.student"


def test_two_processes_equal_one_with_the_doubled_batch(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    common = ["--data", data["classify"], "--model", "gru", "--set", "model.width=8", "--quiet", "--steps", "4"]
    common += ["--teacher", str(teachers["classify"].path), "--unlabelled", data["more"]]
    torchrun(2, "train", "classify", *common, "--batch", "4", "--out", "two", cwd=tmp_path)
    assert cli(["train", "classify", *common, "--batch", "8", "--out", str(tmp_path / "one")]) == 0
    assert curve(Run(tmp_path / "two")) == pytest.approx(curve(Run(tmp_path / "one")), rel=1e-5)


# What distillation gains


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distilling, "ROUNDS", 1)
    monkeypatch.setattr(distilling, "TURN", 0.0)


def test_students_take_over_task_data_and_budget(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path
) -> None:
    teacher = teachers["classify"]
    found = students(teacher, "lstm", None, {"model": {"width": 4}}, alpha=0.3)
    taught, alone = found[TAUGHT], found[ALONE]
    assert (taught.seed, taught.train.steps, taught.train.batch, taught.train.evaluate_steps) == (5, 6, 8, 100)
    assert taught.data.column == "text"
    assert taught.distil == DistilSettings(teacher=str(teacher.path), alpha=0.3)
    assert alone.model_dump() == taught.model_dump() | {"distil": None}
    other = students(teacher, "lstm", data["regress"], {}, epochs=2.0, target="label")[TAUGHT]
    assert (other.train.steps, other.train.epochs, other.data.column) == (None, 2.0, None), "other data is read afresh"
    first = {"task": {"pooling": "first"}, "model": {"name": "bert", "width": 8, "heads": 2}}
    config = configure("classify", data["classify"], None, first)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.yaml").write_text(dump_yaml(config), encoding="utf-8")
    assert students(Run(tmp_path / "bert"), "lstm", None, {})[TAUGHT].task.pooling == "mean", "what suits BERT alone"
    with pytest.raises(SeriatimError, match="no student is named"):
        students(teacher, None, None, {})
    language = students(teachers["language"], "gru", None, {})
    assert language[ALONE].distil == DistilSettings(teacher=str(teachers["language"].path), alpha=0.0)


def test_teacher_and_both_students_are_measured(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    hurry(monkeypatch)
    arguments = ["distil", "--teacher", str(teachers["classify"].path), "--model", "gru", "--set", "model.width=4"]
    arguments += ["--out", str(tmp_path / "d"), "--quiet"]
    assert cli([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["table"]
    assert [row["label"] for row in rows] == ["teacher", "student alone", "student distilled"]
    teacher, alone, taught = rows
    assert teacher["measures"] == pytest.approx(teachers["classify"].summary["measures"]["test"])
    assert alone["parameters"] == taught["parameters"] < teacher["parameters"]
    assert taught["bytes"] == (tmp_path / "d/distilled/model.safetensors").stat().st_size
    assert all(row["speed"][size] > 0 for row in rows for size in ("32", "1"))
    by_hand = student(
        "classify", data, tmp_path / "alone", None, seed=5, settings=SMALL["settings"] | {"model": {"width": 4}}
    )
    assert alone["measures"] == by_hand.summary["measures"]["test"], "trained as ever"
    before = (tmp_path / "d/distilled/model.safetensors").stat().st_mtime_ns
    assert cli(arguments) == 0
    assert (tmp_path / "d/distilled/model.safetensors").stat().st_mtime_ns == before, "nothing is trained twice"
    printed = capsys.readouterr().out
    assert "student distilled" in printed
    assert "one by one" in printed
    page = (tmp_path / "d/report.html").read_text(encoding="utf-8")
    assert "What distillation gains" in page
    assert page.count("over size") == 1
    assert cli([*arguments, "--alpha", "0.9"]) == 2, "another distillation is not mistaken for this one"
    assert cli(["distil", "--model", "gru"]) == 2
    assert "distil.teacher" in capsys.readouterr().err


def test_a_distillation_that_was_interrupted_goes_on(
    data: dict[str, str], teachers: dict[str, Run], tmp_path: Path, monkeypatch: Any
) -> None:
    hurry(monkeypatch)
    common: dict[str, Any] = {"model": "gru", "settings": {"model": {"width": 4}, "train": {"evaluate_steps": 2}}}
    whole = distil(teachers["tag"].path, out=tmp_path / "whole", **common)

    def power_cut(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distil(
            teachers["tag"].path,
            out=tmp_path / "cut",
            listeners=lambda label: [power_cut] if label == ALONE else [],
            **common,
        )
    again = distil(teachers["tag"].path, out=tmp_path / "cut", **common)
    assert [row["measures"] for row in again.table()] == [row["measures"] for row in whole.table()]


@pytest.mark.parametrize("task", ["regress", "language", "translate"])
def test_every_task_can_be_measured(
    task: str, data: dict[str, str], teachers: dict[str, Run], tmp_path: Path, monkeypatch: Any
) -> None:
    hurry(monkeypatch)
    settings = {"model": {"width": 4}}
    found = distil(teachers[task].path, TASKS[task][0], out=tmp_path / "d", settings=settings, steps=2)
    assert [row["measures"].keys() for row in found.table()] == [found.table()[0]["measures"].keys()] * 3
    if task == "language":
        wanted = Tokenizer.load(teachers[task].path).to_json()
        assert [Tokenizer.load(run.path).to_json() for run in found.runs.values()] == [wanted] * 3


def test_models_take_turns_and_have_the_median_of_their_rounds(monkeypatch: Any) -> None:
    clock, asked = [0.0], []
    pace = {"slow": [9.0, 2.0, 8.0, 2.0, 1.0], "quick": [9.0, 0.5, 0.5, 7.0, 0.0625]}  # the last for all that follow

    def asker(label: str) -> Any:
        def ask(first: int, count: int) -> None:
            asked.append((label, first, count))
            clock[0] += pace[label][0] if len(pace[label]) == 1 else pace[label].pop(0)

        return ask

    monkeypatch.setattr(distilling, "ROUNDS", 3)
    monkeypatch.setattr(distilling, "TURN", 0.25)
    monkeypatch.setattr(distilling.time, "perf_counter", lambda: clock[0])
    found = speeds({label: asker(label) for label in pace})
    assert asked[:4] == [("slow", 0, 32), ("quick", 0, 32)] * 2
    assert asked[8:13] == [("slow", 0, 1), *(("quick", first, 1) for first in range(4))], "a turn lasts a while"
    assert found == {"slow": {32: 16.0, 1: 1.0}, "quick": {32: 64.0, 1: 16.0}}, "without the first round"
