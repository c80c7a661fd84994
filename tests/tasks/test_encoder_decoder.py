"""The decoding engine: native and readable steps agree, ensembles average probabilities, forced scores follow the chain
rule whatever the batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core import registry
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.nn.layers import readable_equations
from seriatim.nn.network import weights_digest
from seriatim.tasks.base import DataSettings, TaskConfig
from seriatim.tasks.decoding import nbest_record
from seriatim.tasks.encoder_decoder import encode_with_eos
from seriatim.tasks.reading import Layout, prepare
from seriatim.tasks.translate.processor import Pairs
from seriatim.tasks.translate.spec import TranslateSettings
from seriatim.tasks.translate.task import TranslateTask, TranslationProcessor

TEXTS = ["a b c d", "d c", "b", "c c a d b a"]
TOKENIZER = Tokenizer.train(TokenizerSettings(kind="word", vocab_size=20), [f"{text}\n" for text in TEXTS])
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"heads": 2, "layers": 2, "feedforward": 16},
    "bahdanau": {},
    "seq2seq": {},
    "gru": {},
}


def make_predictor(name: str, seed: int = 0) -> Any:
    model = registry.models.load(name).Settings(name=name, width=8, **MODELS[name])
    config = TaskConfig(task=TranslateSettings(), data=DataSettings(source="none"), model=model, seed=seed)
    task = TranslateTask(config, TranslationProcessor(TOKENIZER, TOKENIZER, 30), Layout())
    torch.manual_seed(seed)
    return task.predictor(task.network(model))


def test_the_native_step_agrees_with_the_readable_equations() -> None:
    predictor = make_predictor("transformer")
    native = predictor.call("translate", TEXTS, beams=3, max_tokens=6)
    with readable_equations():
        readable = predictor.call("translate", TEXTS, beams=3, max_tokens=6)
    assert [one["translation"] for one in native] == [one["translation"] for one in readable]
    assert [one["score"] for one in native] == pytest.approx([one["score"] for one in readable], abs=1e-4)


@pytest.mark.parametrize("max_elements", [1 << 15, 40])
def test_scores_do_not_depend_on_batches(max_elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.tasks.decoding.MAX_ELEMENTS", max_elements)
    predictor = make_predictor("bahdanau")
    pairs = Pairs(encode_with_eos(TOKENIZER, TEXTS), encode_with_eos(TOKENIZER, TEXTS[::-1]))
    assert pairs.targets is not None
    for item, scores in enumerate(predictor.translator.score(pairs, alignment=True)):
        own = pairs.take(np.array([item]))
        (alone,) = predictor.translator.score(own, alignment=True)
        np.testing.assert_allclose(scores.log_probs, alone.log_probs, atol=1e-6)
        np.testing.assert_allclose(scores.weights, alone.weights, atol=1e-6)
        assert scores.correct.tolist() == alone.correct.tolist()
        assert scores.weights.shape == (pairs.targets.lengths[item], pairs.inputs.lengths[item])
        tokens = pairs.targets[item]
        log_probs = predictor.decoder.distributions(predictor.task.collate(pairs, np.array([item])))
        np.testing.assert_allclose(scores.log_probs, log_probs[np.arange(len(tokens)), tokens].numpy(), atol=1e-5)
        assert scores.correct.tolist() == (log_probs.argmax(dim=1).numpy() == tokens).tolist()
    (short,) = predictor.translator.score(pairs.take(np.array([0])), max_length=2)
    np.testing.assert_allclose(short.log_probs.shape, (2,))


def test_samples_depend_on_the_input_and_the_seed_alone() -> None:
    predictor = make_predictor("gru")

    def draw(texts: list[str], **options: Any) -> list[Any]:
        return [
            one["translation"] for one in predictor.call("translate", texts, temperature=1.0, max_tokens=6, **options)
        ]

    many = draw(TEXTS, seed=1)
    assert [draw([text], seed=1)[0] for text in TEXTS] == many
    assert draw(TEXTS, seed=2) != many
    assert draw([TEXTS[0]] * 2, seed=1)[0] == many[0]
    (several,) = draw(TEXTS[:1], nbest=4, seed=1)
    assert len(several) == 4


def test_limits_of_the_length() -> None:
    predictor = make_predictor("seq2seq")
    with torch.no_grad():
        predictor.network.head.bias[TOKENIZER.eos] = -50  # it never ends
    assert len(predictor.call("translate", ["b"], max_tokens=7)[0]["translation"].split()) == 7
    default = predictor.call("translate", ["b"])[0]["translation"].split()
    assert len(default) == 2 * 2 + 50  # two tokens, <eos> among them
    prefix = " ".join("abcd" * 18)
    text = predictor.call("translate", ["b"], prefix=prefix)[0]["translation"]
    assert text.startswith(prefix)
    assert len(predictor.call("translate", ["b"], min_tokens=80)[0]["translation"].split()) == 80


def test_quantized_weights_translate_nearly_alike() -> None:
    predictor = make_predictor("transformer")
    exact = predictor.call("score", [(TEXTS[0], TEXTS[1])])[0]["log_probability"]
    quantized = predictor.quantize().call("score", [(TEXTS[0], TEXTS[1])])[0]["log_probability"]
    assert quantized == pytest.approx(exact, rel=0.05)


def test_records_and_digests() -> None:
    rows = [{"text": "a", "score": 1.0}, {"text": "b", "score": 0.5}]
    assert nbest_record(rows, 1) == {"text": "a", "score": 1.0}
    assert nbest_record(rows, 2) == {"text": ["a", "b"], "score": [1.0, 0.5]}
    predictor = make_predictor("gru")
    digest = weights_digest(predictor.network)
    assert digest == weights_digest(make_predictor("gru").network) != weights_digest(make_predictor("gru", 1).network)


def test_metrics_of_an_evaluation_have_signatures() -> None:
    model = registry.models.load("gru").Settings(name="gru", width=8)
    settings = TranslateSettings(beams=1, tokenizer={"kind": "word"})  # type: ignore[arg-type]
    config = TaskConfig(task=settings, data=DataSettings(source="rows"), model=model)
    rows = [{"source": f"a b {n}", "target": f"{n} b a"} for n in range(40)]
    task, splits = prepare(TranslateTask, config, rows)
    evaluation = task.evaluate(task.build(splits.train), splits["validation"])
    assert set(evaluation.signatures) >= {"bleu", "chrf"}
    assert set(evaluation.examples) == {"bleu", "exact_match"}
    assert evaluation.metrics["perplexity"] == pytest.approx(math.exp(evaluation.metrics["loss"]))
