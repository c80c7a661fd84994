"""What models declare for reports is read from the source, stored in runs and checked, of plug-ins, too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.core.model_info import WORDS, ModelInfo
from seriatim.core.run_folder import RunFolder
from seriatim.report import lessons
from seriatim.report.run_data import read_runs
from seriatim.report.theme import DARK, LIGHT, series_colors
from seriatim.report.verdict import best_of_each, depth, lineage, step_words

RunMaker = Callable[..., RunFolder]
PLUGIN = """
from typing import ClassVar
from seriatim.models import lstm

class Settings(lstm.Settings):
    title: ClassVar[str] = "Minimal gated unit"
    history: ClassVar[str] = "sequences"
    color: ClassVar[tuple[str, str] | None] = ("#123456", "#abcdef")
    predecessors: ClassVar[tuple[str, ...]] = ("gru",)
    novelty: ClassVar[str] = "one gate does it all"
    limitation: ClassVar[str] = NOT_A_LITERAL
"""


@pytest.mark.parametrize("name", registry.models.names())
def test_what_is_read_from_the_source_is_what_the_class_declares(name: str) -> None:
    info = registry.models.infos([name])[name]
    assert info == registry.models.load(name).Settings.info()
    assert info.title
    assert all(older in registry.models.names() for older in info.predecessors)


def test_every_model_of_a_history_has_a_color_of_its_own() -> None:
    infos = registry.models.infos(registry.models.names())
    for history in ("sequences", "pairs"):
        colors = [info.color for info in infos.values() if info.history == history]
        assert len(colors) > 3
        assert all(colors)
        assert all(len({color[theme] for color in colors if color}) == len(colors) for theme in (0, 1))


def test_a_plug_in_declares_what_built_in_models_declare(make_run: RunMaker, tmp_path: Path) -> None:
    file = tmp_path / "mgu.py"
    file.write_text(PLUGIN.replace("NOT_A_LITERAL", '"it is behind"'))
    registry.models.add_file(file)
    assert series_colors(["gru", "mgu"], DARK)["mgu"] == "#abcdef"
    assert series_colors(["mgu", "other"], LIGHT)["mgu"] == "#123456"
    runs = [make_run(tmp_path / name, name, loss) for name, loss in (("gru", 1.5), ("mgu", 1.4))]
    assert any(
        "The Minimal gated unit and the GRU" in text and "one gate does it all" in text for text in lessons(runs)
    )
    registry.models._files.clear()
    assert not any("one gate does it all" in text for text in lessons(runs))
    info = ModelInfo(title="Minimal gated unit", history="sequences", predecessors=["gru"], novelty="one gate")
    runs[1].write_results(runs[1].results.replace(model_info=info))
    assert any("one gate" in text for text in lessons(runs))  # the run has stored it


@pytest.mark.parametrize(
    "declaration", ['color: ClassVar[object] = "red"', 'novelty: ClassVar[str] = "it sees {everything}"']
)
def test_a_wrong_declaration_is_an_error_of_the_file(declaration: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    imports = "from typing import ClassVar\nfrom seriatim.models import lstm\n"
    file.write_text(f"{imports}\n\nclass Settings(lstm.Settings):\n    {declaration}\n")
    registry.models.add_file(file)
    try:
        assert registry.models.infos(["wrong"]) == {"wrong": ModelInfo()}
        with pytest.raises(SeriatimError) as caught:
            registry.models.load("wrong")
    finally:
        registry.models._files.pop("wrong")
    assert caught.value.code == "plugin.broken"


def test_words_of_novelties_are_those_of_the_verdict(make_run: RunMaker, tmp_path: Path) -> None:
    older, newer = (read_runs([make_run(tmp_path / name, name)])[0] for name in ("mlp", "tcn"))
    assert step_words(newer, older).keys() == {*WORDS}
    with pytest.raises(ValidationError):
        ModelInfo(limitation="{older}")


def test_steps_come_in_the_order_of_history(lineage_names: list[str], make_run: RunMaker, tmp_path: Path) -> None:
    runs = read_runs([make_run(tmp_path / name, name, 1.5) for name in lineage_names])
    steps = lineage(best_of_each(runs))
    assert [step.newer for step in steps] == ["mlp", "rnn", "lstm", "gru", "tcn", "gpt"]
    assert [depth(name) for name in ("ngram", "mlp", "rnn", "unknown")] == [0, 1, 2, 0]


def test_models_over_sequences_are_decoders_among_models_over_pairs(make_run: RunMaker, tmp_path: Path) -> None:
    names = ("gpt", "transformer", "rnn", "bahdanau", "seq2seq", "t5", "show_tell")
    runs = read_runs([make_run(tmp_path / name, name, 1.5) for name in names])
    steps = lineage(best_of_each(runs))
    assert [step.newer for step in steps] == ["bahdanau", "rnn", "gpt", "transformer"]
    assert [step.older for step in steps[:3]] == [("seq2seq",)] * 3
    assert len({step.novelty for step in steps[:3]}) == 1
    assert all(step.novelty and step.limitation for step in steps)


def test_it_needs_no_torch(make_run: RunMaker, tmp_path: Path) -> None:
    run = make_run(tmp_path / "lstm", "lstm")
    code = (
        "import json, sys; from seriatim.report import lessons; from seriatim.core.run_folder import RunFolder\n"
        f"lessons([RunFolder({str(run.path)!r})]); print(json.dumps('torch' in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) is False


@pytest.fixture
def lineage_names() -> list[str]:
    return ["gpt", "tcn", "gru", "lstm", "rnn", "mlp", "ngram"]
