"""The contract of every task, for a covering set of architectures; the full product has the marker `slow`."""

from __future__ import annotations

import csv
import json
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import seriatim
from helpers import BIDIRECTIONAL, TINY, Case, backbones, encoder_decoder_models, image_models, label, settings_class
from seriatim import tasks
from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError
from seriatim.core.state import flatten, map_state
from seriatim.nn.network import weights
from seriatim.runs.configure import configure
from seriatim.tasks.capability import Capability
from seriatim.tasks.reading import prepare as prepare_task
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.cost import parameter_count, solve_width
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective

TEXT = "a fine film full of light and warm humor that dull people will not see twice"
WORDS = TEXT.split()
Write = Callable[[Path], Path]


# Data: each function writes a small file and returns its path


def write_table(path: Path, columns: list[str], rows: list[list[Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def labeled(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    texts = [draw.choice(WORDS, 1 + number % 9).tolist() for number in range(80)]
    rows = [[" ".join(text), "good" if {"fine", "warm"} & {*text} else "bad", len(text) / 3] for text in texts]
    return write_table(folder / "labeled.csv", ["text", "label", "value"], rows)


def many_labels(folder: Path) -> Path:
    draw = np.random.default_rng(1)
    texts = [draw.choice(WORDS, 2 + number % 5).tolist() for number in range(90)]
    rows = [[" ".join(text), "|".join(w for w in ("film", "light", "dull") if w in text)] for text in texts]
    return write_table(folder / "many.csv", ["text", "label"], [row for row in rows if row[1]])


def numbers(folder: Path) -> Path:
    draw = np.random.default_rng(2)
    rows = []
    for number in range(80):
        values = draw.normal(size=(1 + number % 8, 2)).round(3)
        total = float(values.sum())
        rows.append({"x": values.tolist(), "label": "up" if total > 0 else "down", "value": total})
    return write_lines(folder / "numbers.jsonl", rows)


def tagged(folder: Path) -> Path:
    draw = np.random.default_rng(3)
    lines = []
    for number in range(60):
        words = draw.choice(WORDS, 1 + number % 7).tolist()
        lines += [f"{word}\t{'LONG' if len(word) > 4 else 'SHORT'}" for word in words] + [""]
    (folder / "tagged.conll").write_text("\n".join(lines), encoding="utf-8")
    return folder / "tagged.conll"


def questions(folder: Path) -> Path:
    draw = np.random.default_rng(6)
    rows = []
    for number in range(60):
        words = draw.choice(WORDS, 4 + number % 9, replace=False).tolist()
        answers = [] if number % 5 == 0 else [words[2]]
        rows.append({"question": f"what follows {words[1]}?", "context": " ".join(words), "answers": answers})
    return write_lines(folder / "questions.jsonl", rows)


def choices(folder: Path) -> Path:
    """Two to four choices, of which the right one has a word of the context."""
    draw = np.random.default_rng(9)
    rows = []
    for number in range(60):
        words = draw.choice(WORDS, 6, replace=False).tolist()
        texts = [f"it is {word}" for word in words[1 : 3 + number % 3]]
        texts[label := number % len(texts)] = f"it is {words[0]} {words[0]}"
        rows.append({"context": " ".join(words[:2]), "choices": texts, "label": label})
    return write_lines(folder / "choices.jsonl", rows)


def series(folder: Path) -> Path:
    time = np.arange(200)
    wave = np.sin(time / 4) + 0.1 * np.random.default_rng(4).normal(size=200)
    return write_table(folder / "series.csv", ["time", "value"], [[t, f"{v:.4f}"] for t, v in enumerate(wave)])


def rolls(folder: Path) -> Path:
    draw = np.random.default_rng(5)
    np.save(folder / "rolls.npy", (draw.random((12, 9, 88)) < 0.05).astype(np.float32))
    return folder / "rolls.npy"


def documents(folder: Path) -> Path:
    draw = np.random.default_rng(6)
    texts = []
    for number in range(60):
        sentences = [" ".join(draw.choice(WORDS, 2 + number % 5)) for _ in range(2 + number % 4)]
        texts.append("\n".join(f"{sentence.capitalize()}." for sentence in sentences))
    (folder / "documents.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return folder / "documents.txt"


def pairs(folder: Path) -> Path:
    draw = np.random.default_rng(8)
    lines = [draw.choice(WORDS, 1 + number % 6).tolist() for number in range(60)]
    rows = [[" ".join(line), " ".join(reversed(line))] for line in lines]
    return write_table(folder / "pairs.csv", ["source", "target"], rows)


def write_images(folder: Path, count: int) -> list[tuple[str, bool, int]]:
    """Writes images with something bright on the left or right; returns name, whether left, and how bright."""
    draw = np.random.default_rng(7)
    rows = []
    for number in range(count):
        image, bright, left = (
            draw.integers(0, 60, (10, 12, 3), dtype=np.uint8),
            int(draw.integers(120, 250)),
            number % 2,
        )
        image[2:8, slice(1, 6) if left else slice(7, 11)] += np.uint8(bright - 60)
        Image.fromarray(image).save(folder / f"{number}.png")
        rows.append((f"{number}.png", bool(left), bright))
    return rows


def images(folder: Path) -> Path:
    rows = [[name, "left" if left else "right", b / 100] for name, left, b in write_images(folder, 30)]
    return write_table(folder / "images.csv", ["image", "label", "value"], rows)


def captions(folder: Path) -> Path:
    rows = [[name, f"a light on the {'left' if left else 'right'}"] for name, left, _ in write_images(folder, 24)]
    return write_table(folder / "captions.csv", ["image", "caption"], rows)


# Cases


@dataclass(frozen=True)
class TaskCase:
    task: str
    data: Write
    settings: dict[str, Any] = field(default_factory=dict)
    models: tuple[Case, ...] = (("gru", {}), ("gpt", {}))
    inputs: Any = None  # for the main capability; None: its own data, or the data file


def columns(**roles: str) -> dict[str, Any]:
    return {"columns": roles}


LSTM_BOTH: Case = ("lstm", {"bidirectional": True})
MANY_TEXTS = ["a fine film", "dull", "", "warm light and a dull film that people will see twice"]
QUESTION = [{"context": "a fine film full of light", "question": "what follows fine?"}]
CHOICES = [
    {"context": "a fine film", "choices": ["it is fine", "it is dull"]},
    {"context": "dull people", "choices": ["it is warm light", "it is dull dull", "it is a film"]},
]
CASES = {
    "classify": TaskCase(
        "classify",
        labeled,
        {"data": columns(input="text", target="label")},
        (("gru", {}), ("tcn", {}), ("bert", {})),
        MANY_TEXTS,
    ),
    "classify-several": TaskCase(
        "classify", many_labels, {"data": {"label_separator": "|"}}, (("mlp", {}),), MANY_TEXTS[:2]
    ),
    "classify-numbers": TaskCase(
        "classify", numbers, {"data": columns(input="x", target="label"), "task": {"pooling": "last"}}, (("rnn", {}),)
    ),
    "regress": TaskCase(
        "regress",
        labeled,
        {"data": columns(input="text", target="value"), "task": {"pooling": "max"}},
        (("gru", {}), ("gpt", {})),
        MANY_TEXTS,
    ),
    "regress-numbers": TaskCase(
        "regress", numbers, {"data": columns(input="x", target="value"), "task": {"pooling": "attention"}}, (LSTM_BOTH,)
    ),
    "tag": TaskCase(
        "tag", tagged, {"task": {"character_features": 8}}, (LSTM_BOTH, ("tcn", {})), ["a fine film", "dull"]
    ),
    "tag-crf": TaskCase("tag", tagged, {"task": {"crf": True}}, (LSTM_BOTH, ("bert", {})), ["a fine film", "dull"]),
    "answer": TaskCase(
        "answer",
        questions,
        {"task": {"context_length": 12, "stride": 3, "unanswerable": False, "question_length": 6}},
        (("gru", {}),),
        QUESTION,
    ),
    "answer-or-none": TaskCase("answer", questions, {}, (("bert", {}),), QUESTION),
    "choose": TaskCase("choose", choices, {}, (("gru", {}), ("gpt", {}), ("bert", {})), CHOICES),
    "forecast": TaskCase(
        "forecast", series, {"task": {"context_length": 12, "horizon": 3}}, (("gru", {}), ("mlp", {}))
    ),
    "music": TaskCase("music", rolls, {}, (("lstm", {}),)),
    "classify-images": TaskCase(
        "classify",
        images,
        {"data": columns(input="image", target="label"), "task": {"images": {"flip": False}}},
        (("vit", {}), ("gru", {})),
    ),
    "regress-images": TaskCase(
        "regress", images, {"data": columns(input="image", target="value"), "task": {"pooling": "last"}}, (("gru", {}),)
    ),
    "pretrain": TaskCase(
        "pretrain",
        documents,
        {"data": {"fractions": [0.8, 0.1, 0.1]}, "task": {"context_length": 24}},
        (("bert", {}), LSTM_BOTH),
        ["A fine [MASK]."],
    ),
    "language": TaskCase(
        "language",
        documents,
        {"data": {"fractions": [0.8, 0.1, 0.1]}, "task": {"context_length": 12}},
        (("lstm", {}), ("gpt", {})),
        ["a fine ", ""],
    ),
    "translate": TaskCase(
        "translate", pairs, {}, (("transformer", {}), ("bahdanau", {})), ["a fine film", "dull people"]
    ),
    "caption": TaskCase("caption", captions, {"task": {"encoder": "patches"}}, (("show_attend_tell", {}),)),
}
INPUT_COLUMNS = ("prompt", "question", "image")  # which records repeat, so that they can be told apart
SMALL: dict[str, dict[str, Any]] = {
    "vit": {"width": 8, "heads": 2, "layers": 1},
    "transformer": {"width": 8, "heads": 2, "layers": 1},
    "t5": {"width": 8, "heads": 2, "layers": 1},
    "resnet": {"width": 4},
}
ENCODER_DECODER = ("translate", "caption")
CAUSAL_ONLY = ("music", "forecast", "language")
BIDIRECTIONAL_ONLY = ("pretrain",)
WITH_IMAGES = ("classify-images", "regress-images")
every_case = pytest.mark.parametrize("name", CASES)


def combinations() -> list[Any]:
    """Returns the covering combinations, and all others with the marker `slow`."""
    covering = [(name, model) for name, case in CASES.items() for model in case.models]
    causal = [case for case in backbones() if case[1].get("reset") != "after"]
    plain = [name for name in CASES if name not in ENCODER_DECODER]
    others = [(name, model) for name in plain if name not in BIDIRECTIONAL_ONLY for model in causal]
    others += [(name, model) for name in plain if name not in CAUSAL_ONLY for model in BIDIRECTIONAL]
    others += [(name, (model, {})) for name in WITH_IMAGES for model in image_models()]
    others += [
        ("translate", (model, {})) for model in encoder_decoder_models() if settings_class(model).modality is None
    ]
    params = [pytest.param(name, model, id=f"{name}-{label(model)}") for name, model in covering]
    return params + [
        pytest.param(name, model, id=f"{name}-{label(model)}", marks=pytest.mark.slow)
        for name, model in others
        if (name, model) not in covering
    ]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns a function from the name of a case to its data file, which is written once."""
    paths: dict[Write, Path] = {}

    def path_of(name: str) -> Path:
        write = CASES[name].data
        if write not in paths:
            paths[write] = write(tmp_path_factory.mktemp(name))
        return paths[write]

    return path_of


def settings_of(name: str, model: Case) -> dict[str, Any]:
    sizes = {"width": 6} | (TINY | SMALL).get(model[0], {}) | {"name": model[0]} | model[1]
    sizes.pop("context_length", None)
    train = {"steps": 6, "batch_size": 4, "evaluate_steps": 3}
    return CASES[name].settings | {"model": sizes, "train": train}


@pytest.fixture(scope="session")
def prepared(files: Callable[[str], Path]) -> Callable[[str, Case], Any]:
    """Returns a function from a case and a model to (configuration, task, splits, objective), prepared once."""
    ready: dict[str, Any] = {}

    def prepare(name: str, model: Case) -> Any:
        key = f"{name}-{label(model)}"
        if key not in ready:
            config = configure(CASES[name].task, str(files(name)), None, settings_of(name, model))
            task, splits = prepare_task(tasks.load(config.task.name), config.task_config())
            ready[key] = config, task, splits, TaskObjective.of(task, splits)
        return ready[key]

    return prepare


# Training

Prepared = Callable[[str, Case], Any]
each_combination = pytest.mark.parametrize(("name", "model"), combinations())


@each_combination
def test_the_loss_falls_and_every_parameter_has_a_gradient(prepared: Prepared, name: str, model: Case) -> None:
    _, task, splits, objective = prepared(name, model)
    network, again = task.build(splits.train), task.build(splits.train)
    assert all(torch.equal(a, b) for a, b in zip(weights(network).values(), weights(again).values(), strict=True))
    batch = objective.batch(0, 0, 4, 4)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for step in range(12):
        optimizer.zero_grad()
        torch.manual_seed(0)  # the same dropout each time
        loss = task.loss(task.forward(network.train(), batch), batch)
        (loss / batch.count).backward()
        if step == 0:
            idle = [n for n, p in network.named_parameters() if p.grad is None and p.requires_grad]
            assert not idle, f"no gradient: {idle}"
        losses.append(loss.item() / batch.count)
        optimizer.step()
    assert losses[-1] < losses[0]


def double(batch: Any) -> Any:
    wider = lambda tensor: tensor.double() if tensor.is_floating_point() else tensor  # noqa: E731
    return replace(batch, inputs=map_state(wider, batch.inputs), targets=map_state(wider, batch.targets))


@each_combination
def test_rows_of_a_batch_are_independent(prepared: Prepared, name: str, model: Case) -> None:
    """Padding, batch size and neighbors do not change the loss: that of a batch is the sum over its rows."""
    _, task, splits, objective = prepared(name, model)
    network = task.build(splits.train).double().eval()
    together = objective.batch(0, 0, 5, 5)
    alone = [objective.batch(0, row, row + 1, 5) for row in range(5)]
    alone = [batch for batch in alone if batch.count]
    assert together.count == sum(batch.count for batch in alone)
    total = task.loss(task.forward(network, double(together)), double(together))
    parts = [task.loss(task.forward(network, double(batch)), double(batch)) for batch in alone]
    torch.testing.assert_close(total, torch.stack(parts).sum(), rtol=1e-9, atol=1e-9)


@every_case
def test_a_batch_is_a_function_of_its_step(prepared: Prepared, name: str) -> None:
    config, task, _, objective = prepared(name, CASES[name].models[0])
    other = TaskObjective.of(*prepare_task(tasks.load(task.name), config.task_config(), processor=task.processor))
    for step in (0, 3, 50):
        objective.batch(step + 1, 0, 4, 4)
        later, straight = objective.batch(step, 0, 4, 4), other.batch(step, 0, 4, 4)
        assert later.count == straight.count
        for a, b in ((later.inputs, straight.inputs), (later.targets, straight.targets)):
            assert all(torch.equal(x, y) for x, y in zip(flatten(a)[0], flatten(b)[0], strict=True))


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("forecast", "language")])
def test_an_epoch_has_every_example_once(prepared: Prepared, name: str) -> None:
    """Windows of series and texts start anywhere, so those two tasks are left out."""
    _, _, _, objective = prepared(name, CASES[name].models[0])
    steps, sampler = objective.steps_per_epoch(4), objective.sampler
    items = np.concatenate([sampler.items(step, 4) for step in range(steps)])
    assert len({*items.tolist()}) == len(items)
    assert len(items) > len(sampler.all_items) - 4, "what does not fill a batch is left out"


@every_case
def test_resumed_equals_uninterrupted(prepared: Prepared, name: str, tmp_path: Path) -> None:
    def make_loop(folder: str) -> Loop:
        config, task, splits, objective = prepared(name, CASES[name].models[0])
        return Loop(objective, task.build(splits.train), config.train, 1e-2, 0, Checkpoints(tmp_path / folder))

    whole, cut, resumed = make_loop("whole"), make_loop("cut"), make_loop("cut")
    list(whole.run())
    cut.stop_signal = lambda: "SIGINT" if cut.progress.step >= 4 else ""
    list(cut.run())
    resumed.resume()
    list(resumed.run())
    assert resumed.progress.step == 6
    expected, actual = weights(whole.network), weights(resumed.network)
    assert all(torch.equal(expected[key], actual[key]) for key in expected)


@every_case
def test_a_parameter_budget_is_met(prepared: Prepared, name: str) -> None:
    config, task, _, _ = prepared(name, CASES[name].models[0])
    budget = 4 * parameter_count(config.model, task.network)
    solved = solve_width(config.model, budget, task.network)
    assert parameter_count(solved, task.network) <= budget
    wider = solved.with_width(solved.width + max(solved.width_multiples()))
    assert parameter_count(wider, task.network) > budget


@every_case
def test_models_that_do_not_fit_are_refused(files: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    """A gradient-free model, and one with other inputs or outputs, before a folder is made."""
    case = CASES[name]
    wrong = ["nadaraya_watson" if case.task == "language" else "ngram"]
    wrong.append({"caption": "resnet", "translate": "show_tell"}.get(name, "transformer"))
    for model in wrong:
        settings = case.settings | {"train": {"steps": 1}}
        with pytest.raises(SeriatimError) as caught:
            seriatim.train(case.task, files(name), model, settings=settings, out=tmp_path / "run", report=False)
        assert caught.value.code in ("task.model", "task.not-causal", "task.images"), caught.value
        assert caught.value.remedy
        assert not (tmp_path / "run").exists()


# Runs


@pytest.fixture(scope="session")
def runs(files: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Returns a function from the name of a case to its run, which is trained once."""
    trained: dict[str, Any] = {}

    def run_of(name: str) -> Any:
        if name not in trained:
            settings = settings_of(name, CASES[name].models[0])
            settings["train"] |= {"steps": 3, "evaluate_steps": 3}
            folder = tmp_path_factory.mktemp("run") / name
            trained[name] = seriatim.train(CASES[name].task, files(name), settings=settings, out=folder, report=False)
        return trained[name]

    return run_of


Runs = Callable[[str], Any]


@every_case
def test_a_run_opens_with_the_metrics_of_the_training(runs: Runs, name: str) -> None:
    run = runs(name)
    written = run.summary["metrics"]["test"]
    measured = seriatim.evaluate(run.path)
    assert measured.keys() == written.keys()
    for key, value in written.items():
        assert math.isclose(measured[key], value, rel_tol=1e-6, abs_tol=1e-9), key
    assert next(iter(written)) == "loss" or name in ENCODER_DECODER
    assert run.summary["baselines"]["test"]
    assert run.summary["monitor"] in written
    kinds = {file.suffix for file in run.path.rglob("*") if file.is_file()}
    assert kinds <= {".json", ".jsonl", ".yaml", ".safetensors", ".md"}, "nothing that runs when it is read"


@every_case
def test_views_are_json_and_samples_strings(runs: Runs, name: str) -> None:
    run = runs(name)
    views = json.loads((run.path / "evaluation.json").read_text(encoding="utf-8"))
    assert views.keys() - {"findings"} == run.summary["metrics"].keys()
    for view in views["test"]:
        assert {"kind", "title"} <= view.keys()
    assert views["test"] or name == "language"
    samples = run.samples()
    assert samples
    assert all(isinstance(sample["text"], str) for sample in samples)
    assert isinstance(run.summary["sample"], str)


@every_case
def test_the_data_check_accepts_it(files: Callable[[str], Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    roles = case.settings.get("data", {}).get("columns", {})
    options = [
        part
        for role, option in (("input", "--column"), ("target", "--target"))
        if role in roles
        for part in (option, roles[role])
    ]
    assert cli(["data", "check", str(files(name)), "--task", case.task, "--json", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == [] or all(problem.get("level") != "error" for problem in report["problems"])


def inputs_of(name: str, declared: Capability, file: Path) -> Any:
    """Returns inputs for a capability, under the names of its roles."""
    roles = [field_.role for field_ in declared.inputs.fields if field_.required]
    if declared.own_data:
        return None
    if roles == ["text"] and declared.name != "fill":
        return ["a fine film", "dull people"]
    if declared.name == "score" and name == "translate":
        return [{"source": "a fine film", "target": "film fine a"}]
    return file if CASES[name].inputs is None else CASES[name].inputs


@every_case
def test_capabilities_return_the_declared_columns(runs: Runs, files: Callable[[str], Path], name: str) -> None:
    run = runs(name)
    for capability, declared in run.predictor.capabilities.items():
        options = {"words": {"word": "film", "strict": False}, "generate": {"max_tokens": 3}, "compose": {"frames": 3}}
        options |= {"answer": {"choices": ["film", "dull"]}} if name == "language" else {}
        inputs = inputs_of(name, declared, files(name))
        records = run.predictor.call(capability, inputs, **options.get(capability, {}))
        if declared.per_row and isinstance(inputs, list):
            assert len(records) == len(inputs)
        assert records
        first = next(iter(declared.outputs))
        for record in records:
            assert first in record, capability
            assert record.keys() <= {*declared.outputs, *INPUT_COLUMNS}, capability
        json.dumps(records, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if isinstance(case.inputs, list)])
def test_predictions_do_not_depend_on_the_batch(runs: Runs, name: str) -> None:
    """Alone or together, and from a run that was opened again: the same predictions."""
    run, inputs = runs(name), CASES[name].inputs
    inputs = [*inputs, *reversed(inputs)]
    together = run.predict(inputs) if name != "language" else run.score(inputs)
    opened = seriatim.load(run.path)
    alone = [(opened.predict if name != "language" else opened.score)([text])[0] for text in inputs]
    for first, second in zip(together, alone, strict=True):
        assert first.keys() == second.keys()
        for key, value in first.items():
            if isinstance(value, float):
                assert second[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
            elif isinstance(value, str):
                assert second[key] == value


@every_case
def test_usage_lines_run(
    runs: Runs,
    files: Callable[[str], Path],
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The lines of the model card, in the shell and in Python, as they are printed but for names of files."""
    run, file = runs(name), files(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a fine film\n")
    names = {
        "FILE": file,
        "new.conll": file,
        "questions.json": file,
        "new.csv": file,
        "photo.png": file.parent / "0.png",
    }
    assert run.summary["usage"]
    for usage in run.summary["usage"]:
        shell, python = usage["shell"], usage["python"]
        for example, path in names.items():
            shell, python = shell.replace(f" {example}", f" {path}"), python.replace(f'"{example}"', f'"{path}"')
        program, *arguments = shlex.split(shell.replace(" $'", " '").replace("\\t", "\t"))
        assert program == "seriatim"
        assert cli(arguments) == 0, (usage["shell"], capsys.readouterr().err)
        assert capsys.readouterr().out or len(list(tmp_path.iterdir())) > 1
        exec(python, {"seriatim": seriatim, "run": run, "Path": Path})
        capsys.readouterr()
