"""Lessons follow from the numbers, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seriatim.core.run_folder import RunFolder
from seriatim.report import lessons
from seriatim.report.charts import BinnedMetric, views_to_json
from seriatim.report.findings import chance, format_difference
from seriatim.report.run_data import read_runs

RunMaker = Callable[..., RunFolder]


@pytest.fixture
def pair(make_run: RunMaker) -> Callable[..., str]:
    """Returns what is said about a model and its predecessor."""

    def compare(folder: Path, newer: str, older: str, new: float, old: float, **changes: Any) -> str:
        runs = [make_run(folder / older, older, loss=old), make_run(folder / newer, newer, loss=new, **changes)]
        return " ".join(lessons(runs))

    return compare


@pytest.mark.parametrize(
    ("newer", "older", "idea"),
    [
        ("mlp", "ngram", "vectors"),
        ("rnn", "mlp", "sees 16 tokens"),
        ("lstm", "rnn", "gates keep the gradient alive"),
        ("gru", "lstm", "430 against 380"),
        ("tcn", "gru", "61 tokens at once"),
        ("gpt", "lstm", "last 128 tokens"),
    ],
)
def test_lessons_go_with_the_numbers(
    newer: str, older: str, idea: str, pair: Callable[..., str], tmp_path: Path
) -> None:
    won = pair(tmp_path / "won", newer, older, 1.50, 1.62)
    assert f"beats {'the best' if newer in ('tcn', 'gpt') else 'the'}" in won
    assert "by 0.12 nats (1.500 against 1.620)" in won
    assert idea in won
    lost = pair(tmp_path / "lost", newer, older, 1.62, 1.50)
    assert "does not beat" in lost
    assert "0.12 nats behind (1.620 against 1.500)" in lost
    assert "Likely: " in lost
    assert idea not in lost
    even = pair(tmp_path / "even", newer, older, 1.500, 1.504)
    assert "less than 0.01 apart, which may be chance" in even
    assert "beats" not in even
    assert idea not in even


def test_a_loss_is_explained_by_what_was_measured(pair: Callable[..., str], tmp_path: Path) -> None:
    slow = pair(tmp_path, "rnn", "mlp", 1.9, 1.7)
    assert "still improving when it stopped after 278 steps" in slow
    assert "it read 1.14 M tokens, the window MLP 6.3 M, at 38 k against 210 k per second" in slow


def test_overfitting_is_reported(pair: Callable[..., str], tmp_path: Path) -> None:
    worse = {"event": "evaluated", "step": 300, "seconds": 31.0, "val_loss": 1.9, "best": False, "tokens": 9}
    text = pair(tmp_path, "lstm", "rnn", 1.62, 1.5, tail=[worse], best_step=227)
    assert "best at step 227 of 300 and 0.28 nats worse at the end: it began to overfit" in text
    assert "it was best at step 227 and then overfitted" in text
    assert "still improving" not in text


def test_counting_is_compared_with_training(lineage: list[RunFolder], pair: Callable[..., str], tmp_path: Path) -> None:
    text = " ".join(lessons(lineage))
    assert "counted in 840 ms, without gradients; the first network below its 1.920 was the GPT" in text
    assert "6.8 times as many as the LSTM (31 k): a recurrent network goes from token to token" in text
    assert "no network got below its 1.900" in pair(tmp_path / "y", "mlp", "ngram", 2.5, 1.9)


def test_storage_is_that_on_disk(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("ngram", "gpt")]
    for run, size in zip(runs, (8_200_000, 4_010_000), strict=True):
        (run.path / "model.safetensors").write_bytes(bytes(size))
    text = " ".join(lessons(runs))
    assert "1 M entries, 8.2 MB on disk," in text
    assert "996 k parameters, 4.01 MB on disk," in text


def test_what_cannot_be_compared_is_left_out(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("rnn", "gru")]
    runs.append(make_run(tmp_path / "lstm", "lstm", loss=0.5, reason="SIGINT", metrics={}))
    texts = lessons(runs)
    assert any("The LSTM was stopped by SIGINT" in text for text in texts)
    assert not any("LSTM beats" in text for text in texts)
    other = make_run(tmp_path / "gpt", "gpt", data={"source": "other.txt", "fingerprint": "other"})
    assert lessons([runs[0], other]) == ["These runs saw different data: their metrics cannot be compared."]


def test_one_run_is_described_by_itself(lineage: list[RunFolder]) -> None:
    texts = lessons([lineage[3]])
    norms = [event["grad_norm"] for event in lineage[3].history("stepped")]
    share = 100 * sum(norm > 1 for norm in norms) / len(norms)
    assert texts[0].startswith("It was still improving when it stopped")
    assert texts[-1].startswith("Gradients with a norm above 1 were clipped: at ")
    assert texts[-1].endswith(f"({share:.0f} %).")
    assert "one pass over 1 M tokens" in lessons([lineage[0]])[0]


def test_classifiers_are_compared_with_baselines(make_classifier: RunMaker, tmp_path: Path) -> None:
    accuracies = {"mlp": 0.48, "rnn": 0.80, "lstm": 0.84}
    runs = [make_classifier(tmp_path / name, name, value, lowest=0.5) for name, value in accuracies.items()]
    texts = lessons(runs)
    assert texts[0] == (
        "Best on the validation split: the LSTM with an accuracy of 84.0 %, 4.0 points ahead of the plain RNN."
    )
    assert texts[1] == (
        "The LSTM beats the best baseline, most frequent, by 33.0 points on the test split "
        "(accuracy 83.0 % against 50.0 %); these do not: the window MLP (47.0 %)."
    )
    assert any("become overconfident: the validation loss rises at the end" in text for text in texts)
    assert not any("gates" in text or "nats" in text for text in texts)
    worst = lessons([runs[0]])[0]
    assert worst.startswith("The window MLP does not beat the best baseline, most frequent, on the test split")
    near = make_classifier(tmp_path / "near", "gru", 0.845, lowest=0.5)
    assert "so close that another seed may reverse the order" in lessons([runs[2], near])[0]


def test_a_share_has_the_noise_of_its_examples(make_classifier: RunMaker, tmp_path: Path) -> None:
    run = read_runs([make_classifier(tmp_path / "a", "lstm", 0.84)])[0]
    assert chance(run, "accuracy") == pytest.approx((2 * 0.84 * 0.16 / 1000) ** 0.5)
    assert chance(run, "loss") == pytest.approx(0.03 * 0.4)
    assert format_difference(0.0312, run, "accuracy") == "3.1 points"
    assert format_difference(0.0031, run, "accuracy") == "0.31 points"


def translator(make_run: RunMaker, folder: Path, model: str, bleu: float, values: tuple[float, ...]) -> RunFolder:
    metrics = {"bleu": bleu, "chrf": bleu + 15, "loss": 2.0, "perplexity": 7.4, "sentences": 2000.0}
    both = dict.fromkeys(("validation", "test"), metrics)
    view = BinnedMetric(
        title="BLEU by length of the source", metric="bleu", x="words of the source", unit="sentences",
        bins=("1–4", "5–9", "10–31"), counts=(700, 900, 400), series={"": values}, join="bleu by length",
    )  # fmt: skip
    return make_run(folder, model, 2.0, task="translate", monitor="loss", metrics=both,
                    evaluation={"test": views_to_json([view])})  # fmt: skip


def test_translators_are_ranked_by_bleu_and_compared_by_length(make_run: RunMaker, tmp_path: Path) -> None:
    plain = translator(make_run, tmp_path / "a", "seq2seq", 21.0, (30.0, 25.0, 9.0))
    attending = translator(make_run, tmp_path / "b", "bahdanau", 33.0, (35.0, 36.0, 30.0))
    texts = lessons([plain, attending])
    start = "Best on the validation split: the Bahdanau model with a BLEU of 33.0, 12.0 BLEU ahead of"
    assert texts[0].startswith(start)
    beats = "The Bahdanau model beats the seq2seq by 12.0 BLEU (33.0 against 21.0)"
    assert any(text.startswith(beats) for text in texts)
    (length,) = (text for text in texts if "longest sources" in text)
    assert "(10–31 words of the source) the seq2seq keeps 30 % of its best BLEU, the Bahdanau model 83 %" in length
    assert "one state" in length


def test_equal_translators_are_equal(make_run: RunMaker, tmp_path: Path) -> None:
    runs = [
        translator(make_run, tmp_path / "a", "seq2seq", 30.0, (30.0, 31.0, 29.0)),
        translator(make_run, tmp_path / "b", "transformer", 30.5, (31.0, 30.0, 30.0)),
    ]
    texts = lessons(runs)
    assert "another seed may reverse the order" in texts[0]
    assert any("equals" in text and "less than 0.9 BLEU apart" in text for text in texts)
    assert any(text.startswith("Length makes little difference") for text in texts)
    json.dumps(texts)
