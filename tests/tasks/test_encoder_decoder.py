"""The decoding engine: native and readable steps agree, ensembles average probabilities, forced scores follow the chain
rule whatever the batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core import registry
from seriatim.core.metrics import MetricValues
from seriatim.core.state import select
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.nn.layers import readable_equations
from seriatim.tasks import encoder_decoder
from seriatim.tasks.base import DataSettings, Encoded, TaskConfig, weights_digest
from seriatim.tasks.decoding import DecodingStep, mean_alignment, mean_probability, nbest_record
from seriatim.tasks.encoder_decoder import (
    encode_with_eos,
)
from seriatim.tasks.translate.task import TranslateSettings, TranslateTask, TranslationProcessor

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
    task = TranslateTask(config, TranslationProcessor(TOKENIZER, TOKENIZER, 30), {}, {})
    return task.predictor(task.build())


def encode(sources: list[str], targets: list[str] | None = None) -> Encoded:
    return Encoded(
        encode_with_eos(TOKENIZER, sources), None if targets is None else encode_with_eos(TOKENIZER, targets)
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_that_of_the_network(name: str) -> None:
    """Step by step as all at once, by the native step where there is one, and with rows selected in between."""
    predictor = make_predictor(name)
    batch = predictor.task.collate(encode(TEXTS), np.arange(4))
    targets = torch.tensor([[2, 3, 4], [3, 3, 2], [4, 2, 3], [2, 2, 2]])
    order = torch.tensor([2, 0, 1, 3, 3])
    with torch.inference_mode():
        memory = predictor.network.encode(batch.inputs[0], batch.mask)
        expected, _ = predictor.network.decode(targets, memory)
        expected = predictor.network.head(expected).log_softmax(dim=-1)
        for alignment in (False, True):
            step = DecodingStep([predictor.network], [memory], 4, alignment)
            state: Any = (torch.arange(4), [None], None)
            for position in range(3):
                log_probs, state = step.step(targets[:, position], state)
                torch.testing.assert_close(log_probs, expected[:, position], atol=1e-5, rtol=0)
            if alignment and predictor.has_alignment:
                assert step.last_weights(state).sum(dim=1).tolist() == pytest.approx([1.0] * 4, abs=1e-5)
            again, _ = step.step(targets[:, 0][order], select(state, order))
            straight, _ = step.step(targets[:, 0], state)
            torch.testing.assert_close(again, straight[order], atol=1e-5, rtol=0)


def test_the_native_step_agrees_with_the_readable_equations() -> None:
    predictor = make_predictor("transformer")
    native = predictor.call("translate", TEXTS, beams=3, max_tokens=6)
    with readable_equations():
        readable = predictor.call("translate", TEXTS, beams=3, max_tokens=6)
    assert [one["translation"] for one in native] == [one["translation"] for one in readable]
    assert [one["score"] for one in native] == pytest.approx([one["score"] for one in readable], abs=1e-4)


@pytest.mark.parametrize("max_elements", [1 << 15, 40])
def test_forced_scores_do_not_depend_on_batches(max_elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_decoder, "MAX_ELEMENTS", max_elements)
    predictor = make_predictor("bahdanau")
    encoded = encode(TEXTS, TEXTS[::-1])
    together = predictor.force(encoded, alignment=True)
    for item, forced in enumerate(together):
        (alone,) = predictor.force(encoded, np.array([item]), alignment=True)
        np.testing.assert_allclose(forced.log_probs, alone.log_probs, atol=1e-6)
        np.testing.assert_allclose(forced.weights, alone.weights, atol=1e-6)
        assert forced.correct.tolist() == alone.correct.tolist()
        assert forced.weights.shape == (encoded.targets.lengths[item], encoded.inputs.lengths[item])
        tokens, log_probs = predictor.token_distributions(encoded, item)
        np.testing.assert_allclose(forced.log_probs, log_probs[np.arange(len(tokens)), tokens].numpy(), atol=1e-5)
        assert forced.correct.tolist() == (log_probs.argmax(dim=1).numpy() == tokens).tolist()
    (short,) = predictor.force(encoded, np.array([0]), max_length=2)
    np.testing.assert_allclose(short.log_probs.shape, (2,))


def test_means() -> None:
    first, second = torch.tensor([[0.2, 0.8]]).log(), torch.tensor([[0.6, 0.4]]).log()
    torch.testing.assert_close(mean_probability([first, second]).exp(), torch.tensor([[0.4, 0.6]]))
    assert mean_probability([first]) is first
    traces: list[Any] = [{"alignment": torch.ones(1, 1, 2)}, None, {}, {"alignment": torch.zeros(1, 1, 2)}]
    mean = mean_alignment(traces)
    assert mean is not None
    assert mean.tolist() == [[[0.5, 0.5]]]
    assert mean_alignment([None, {}]) is None


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
    task = TranslateTask.prepare(config, rows)
    metrics = task.evaluate(task.build(), "validation")
    assert isinstance(metrics, MetricValues)
    assert "bleu" in metrics.signatures
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
