"""The model card says what a model is and how to use it; no text of the data becomes markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from seriatim.core.run_folder import RunFolder
from seriatim.report import write_card

RunMaker = Callable[..., RunFolder]


def read_card(run: RunFolder) -> str:
    return write_card(run).read_text(encoding="utf-8")


def test_the_card_says_what_the_model_is_and_how_it_was_made(lineage: list[RunFolder]) -> None:
    text = read_card(lineage[3])
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front) == {"library_name": "seriatim", "tags": ["seriatim", "language", "lstm"]}
    assert body.startswith("\n# lstm on shakespeare.txt\n\nThe lstm model, in a line.\nTask: Predict the next token.\n")
    for part in (
        "Size: 996 k parameters (996,413; −0.4 % from the budget of 1,000,000).",
        "| metric | validation | test |\n| --- | --- | --- |\n| loss (nats per token) | 1.5800 | 1.6110 |\n",
        "| data fingerprint | `9f2c51e0a7` |\n",
        "| seed | 0 |\n",
        "| made with | Seriatim 1.0.0, 2026-11-16 00:15:13 UTC |",
        "* 65 different characters\n",
        f'```sh\nseriatim generate runs/x "Once"\nseriatim train --config {lineage[3].path}/config.yaml',
        f'run = seriatim.load({str(lineage[3].path)!r})\nprint(run.generate("Once"))\n```',
    ):
        assert part in body
    assert "stored entries (1,000,000" in read_card(lineage[0])


def test_a_card_has_the_baselines_and_the_teacher(make_classifier: RunMaker, tmp_path: Path) -> None:
    teacher = {"path": "runs/a|b", "model": "gpt", "parameters": 1_500_000}
    settings = {"distill": {"teacher": "runs/a", "weight": 0.5, "temperature": 2.0}}
    text = read_card(
        make_classifier(tmp_path / "a", "lstm", 0.84, teacher=teacher, settings=settings, signatures={"bleu": "a|b"})
    )
    assert "| metric | validation | test | most frequent (test) |" in text
    assert "| accuracy | 84.00 % | 83.00 % | 50.00 % |" in text
    assert "| distilled from | `runs/a\\|b` (gpt, 1.5 M parameters); weight 0.5, temperature 2.0 |" in text
    assert "Signatures: BLEU a\\|b." in text
    assert not any(word in text.lower() for word in ("perplex", "n-gram", "token", "nats"))


@pytest.mark.parametrize("bare", [False, True])
def test_a_run_that_was_interrupted_has_a_card(bare: bool, make_run: RunMaker, tmp_path: Path) -> None:
    run = make_run(tmp_path / "lstm", "lstm", reason="SIGINT", metrics={}, sample="\x00\x1b\x85\ud800")
    if bare:
        (run.path / "summary.json").unlink()
    text = read_card(run)
    assert "None yet. It " in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_text_cannot_break_out_of_the_card(make_run: RunMaker, tmp_path: Path) -> None:
    sample = "a\n```\n# Not a heading\n````\nb"
    data = {"source": "a|b`c\n# d", "fingerprint": "x"}
    text = read_card(make_run(tmp_path / "lstm", "lstm", sample=sample, data=data, notes=["*bold* <b> [x](y)"]))
    assert f"`````text\n{sample}\n`````" in text
    assert "| data | `` a\\|b`c # d `` |" in text
    assert "* \\*bold\\* \\<b\\> \\[x\\](y)\n" in text
    assert "# lstm on a\\|b\\`c \\# d\n" in text
