"""A damaged file of a run is named, or does not matter: no traceback, and never other weights or predictions."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import seriatim
from seriatim import cli

ROWS = [(f"{word} {number % 5} {word}", word) for number in range(16) for word in ("red", "blue")]
TABLE = "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)
SETTINGS = {"model": {"width": 4, "heads": 2}, "train": {"evaluate_steps": 2, "batch_size": 4}}
PREDICT = ("predict", "run", "red 1 red", "blue", "blue 7 red", "--json")
EVALUATE = ("evaluate", "run", "--quiet")
RESUME = ("resume", "run", "--steps", "6")  # not quiet: it notes settings that were edited
COMMANDS = (("runs", "."), PREDICT, EVALUATE, ("report", "run"), ("inspect", "run"), RESUME)
KINDS = ("flipped", "truncated", "removed", "empty", "zeros")


@dataclass(frozen=True)
class Trained:
    folder: Path  # with the run as it was
    outputs: dict[tuple[str, ...], str]  # command → what it prints
    weights: bytes  # after resuming


def call(command: tuple[str, ...]) -> tuple[int, str, str]:
    """Returns the exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as monkeypatch:
        if command == RESUME:  # the report is made by its own command
            monkeypatch.setattr("seriatim.report.write_run_report", lambda run: None)
        code = cli.run(list(command))
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        Path("table.csv").write_text(TABLE, encoding="utf-8")
        seriatim.train("classify", folder / "table.csv", "bert", steps=4, out="run", settings=SETTINGS, report=False)
        seriatim.train("language", folder / "table.csv", "ngram", out="other", report=False)
        shutil.copytree("run", "whole/run")
        shutil.copytree("other", "whole/other")
        outputs = {command: call(command)[1] for command in COMMANDS}
        return Trained(folder / "whole", outputs, Path("run/model.safetensors").read_bytes())


def damage(file: Path, kind: str, seed: int) -> None:
    content, generator = bytearray(file.read_bytes()), random.Random(f"{file.name} {seed}")
    position = generator.randrange(len(content))
    if kind == "removed":
        file.unlink()
        return
    if kind == "flipped":
        content[position] ^= 1 << generator.randrange(8)
    elif kind == "zeros":
        content[position : position + 64] = bytes(len(content[position : position + 64]))
    file.write_bytes(b"" if kind == "empty" else content[:position] if kind == "truncated" else content)


def check_damage(trained: Trained, kinds: tuple[str, ...], seed: int, tmp_path: Path) -> None:
    for number, file in enumerate(sorted(trained.folder.joinpath("run").rglob("*.*"))):
        name = file.relative_to(trained.folder)
        kind = kinds[(number + seed) % len(kinds)]
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
        shutil.copytree(trained.folder, tmp_path, dirs_exist_ok=True)
        damage(tmp_path / name, kind, seed)
        for command in COMMANDS:
            if command[0] == "report" and "checkpoints" in name.parts:  # which it does not read
                continue
            code, out, err = call(command)
            told = f"{name} {kind} ({seed}), {command[0]}: {err}"
            assert code == 0 or "error [" in err, told
            assert "[internal]" not in err, told
            assert "[system]" not in err, told
            if code == 0 and command in (PREDICT, EVALUATE):
                assert out == trained.outputs[command], told
            if code == 0 and command == RESUME and "was edited" not in err:
                assert (tmp_path / "run" / "model.safetensors").read_bytes() == trained.weights, told
            if command[0] == "runs":
                assert "other" in out, told


def test_every_file_is_damaged(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    check_damage(trained, KINDS, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 20))
def test_every_file_is_damaged_in_many_ways(
    seed: int, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    check_damage(trained, ("flipped", *KINDS), seed, tmp_path)


def test_edited_settings_of_the_training_are_noted(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever edits config.yaml may continue with another batch size, but not with another model."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.folder / "run", "run")
    config = Path("run/config.yaml")
    config.write_text(config.read_text().replace("batch_size: 4", "batch_size: 2"))
    notes: list[str] = []
    seriatim.resume("run", steps=5, report=False, notify=notes.append)
    assert f"{config}: train was edited since the training started" in notes
    config.write_text(config.read_text().replace("heads: 2", "heads: 1"))
    with pytest.raises(seriatim.SeriatimError, match="model is not what the weights were trained with") as caught:
        seriatim.predict("run", "red")
    assert caught.value.code == "run.damaged"
