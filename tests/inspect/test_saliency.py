"""Integrated gradients sum to the difference they explain, for every backbone and every kind of prediction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector
from seriatim.inspect.views.saliency import integrate_gradients

CLASSIFIERS = ["classify", *(f"classify-{name}" for name in ("gpt", "rnn", "lstm", "gru", "tcn", "mlp"))]


def close(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64), rtol=rtol, atol=atol)


def test_integrals_that_are_known() -> None:
    """Of a linear function one point is exact; of squares the integral is x² − b²; of a step the sum is refined."""
    torch.manual_seed(0)
    x, b, w = torch.randn(3, 4, 5, dtype=torch.float64)
    linear = integrate_gradients(lambda inputs: (inputs * w).sum(dim=(1, 2)), x, b, steps=1)
    close(linear.values, ((x - b) * w).sum(dim=1))
    assert linear.steps == 1
    assert linear.gap < 1e-12
    squares = integrate_gradients(lambda inputs: inputs.square().sum(dim=(1, 2)), x, b, steps=1)
    close(squares.values, (x.square() - b.square()).sum(dim=1))
    steep = integrate_gradients(lambda inputs: torch.sigmoid(30 * (inputs * w).sum(dim=(1, 2)) - 9), w, 0 * w, steps=2)
    assert steep.complete
    assert steep.steps > 2
    hopeless = integrate_gradients(lambda inputs: torch.sin(1e5 * inputs.sum(dim=(1, 2))), x, b, steps=2)
    assert not hopeless.complete
    assert hopeless.steps == 512


def integrate_by_hand(
    network: Any, vectors: torch.Tensor, baseline: torch.Tensor, output: Any, points: int
) -> np.ndarray:
    """Integrated gradients by the midpoint rule, one point after the other, with nothing of the package."""
    total = torch.zeros_like(vectors)
    for point in range(points):
        at = (baseline + (point + 0.5) / points * (vectors - baseline))[None].requires_grad_()
        (gradient,) = torch.autograd.grad(output(network.head(network.backbone(at)[0], None)), at)
        total += gradient[0]
    values: np.ndarray = ((vectors - baseline) * total / points).sum(dim=1).numpy()
    return values


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_backbone_is_explained_completely(name: str, make_subject: Any) -> None:
    subject = make_subject(name, noise=0.5 if name == "classify" else 0.3)
    network, text = subject.network.double(), "a fine film full of dull people"
    before = {key: value.clone() for key, value in network.state_dict().items()}
    next(network.parameters()).requires_grad_(False)
    requested = [parameter.requires_grad for parameter in network.parameters()]
    network.train()
    result = Inspector(subject).saliency(text)
    assert all(module.training for module in network.modules())
    assert [parameter.requires_grad for parameter in network.parameters()] == requested
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    values = result.arrays["attribution"].values
    assert (values == Inspector(subject).saliency(text).arrays["attribution"].values).all()
    network.eval()
    tokens, labels = subject.read(text).inputs, subject.predictor.processor.labels
    tokenizer = subject.predictor.processor.input.tokenizer
    special = torch.isin(tokens[0], torch.tensor([n for n in (tokenizer.cls, tokenizer.sep) if n is not None]).long())
    vectors = network.input(tokens)[0].detach()
    table = network.input.weight.detach()
    baseline = torch.where(special[:, None], vectors, vectors - table[tokens[0]] + table.mean(dim=0))
    there, nowhere = (network.head(network.backbone(one[None])[0], None)[0].detach() for one in (vectors, baseline))
    label = int(there.argmax())
    difference = float((there - nowhere)[label] - (there - nowhere)[1 - label])
    assert abs(difference) > 0.02
    assert abs(values.sum() - difference) <= 0.01 * abs(difference)
    expected = integrate_by_hand(
        network, vectors, baseline, lambda scores: scores[0, label] - scores[0, 1 - label], 300
    )
    close(values, expected, atol=0.03 * np.abs(expected).max())
    assert (values[special.numpy()] == 0).all()
    share = 100 * abs(values.sum() - difference) / abs(difference)
    assert any(f"{share:.2f} % apart" in note for note in result.notes)
    other = Inspector(subject).saliency(text, target=labels[1 - label])
    close(other.arrays["attribution"].values, -values, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "texts", "options"),
    [
        ("several", ("a fine film",), {"target": "y"}),
        ("two", ("a fine film", "dull"), {}),
        ("two-gru", ("a fine film", "dull"), {}),
        ("regress", ("a fine film",), {}),
        ("tag", ("a fine film full",), {"position": 2}),
        ("answer", ("a fine film full", "what follows fine?"), {}),
    ],
)
def test_every_prediction_is_explained(name: str, texts: Any, options: Any, make_subject: Any) -> None:
    subject = make_subject(name)
    result = Inspector(subject).saliency(*texts, **options)
    values = result.arrays.get("words", result.arrays["attribution"])
    words = [word for word in next(iter(values.axes.values())) if word not in ("[CLS]", "[SEP]", "<eos>", "?")]
    ordered = texts[::-1] if name == "answer" else texts  # the question is read first
    assert words == " ".join(ordered).replace("?", "").split()
    assert "not exact" not in result.notes[-1]
    close(values.values.sum(), result.arrays["attribution"].values.sum(), atol=1e-6)
    output = float(result.charts[0].note.split(" ")[0].replace("−", "-"))
    predictor, row = subject.predictor, texts[0] if len(texts) == 1 else texts
    expected = None
    if name == "regress":
        expected = predictor.call("regress", [row])[0]["prediction"]
    elif name == "tag":
        p = predictor.call("tag", [row])[0]["confidence"][2]
        expected = math.log(p / (1 - p))
    elif name != "answer":
        probabilities = predictor.call("classify", [row], probabilities=True)[0]["probabilities"]
        p = probabilities["y"] if name == "several" else max(probabilities.values())
        expected = math.log(p / (1 - p))
    if expected is not None:
        assert output == pytest.approx(expected, rel=0.01, abs=0.006)


def test_an_example_of_the_data_is_explained_as_a_text(make_subject: Any) -> None:
    inspector = Inspector(make_subject("classify"))
    own = inspector.saliency(example=0)
    assert own.notes[0] == "sequence 0 of the validation split"
    names = list(own.arrays["attribution"].axes["token"])
    text = " ".join(name for name in names if not name.startswith("[")).replace(" ##", "")
    again = inspector.saliency(text)
    assert list(again.arrays["attribution"].axes["token"]) == names
    close(again.arrays["attribution"].values, own.arrays["attribution"].values, atol=1e-6)
    tagged = Inspector(make_subject("tag")).saliency(example=1, position=0)
    assert "for word 0" in tagged.title


def test_tokens_of_a_word_are_added(make_subject: Any) -> None:
    result = Inspector(make_subject("classify")).saliency("a humourless finefilm")
    tokens, words = result.arrays["attribution"], result.arrays["words"]
    names = list(tokens.axes["token"])
    assert list(words.axes["word"]) == ["[CLS]", "a", "humourless", "finefilm", "[SEP]"]
    assert any(name.startswith("##") for name in names)
    end = next(n for n in range(3, len(names)) if not names[n].startswith("##"))
    close(words.values[2:4], [tokens.values[2:end].sum(), tokens.values[end:-1].sum()], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "texts", "options", "code"),
    [
        ("classify", ("",), {}, "inspect.text"),
        ("classify-gru", (), {}, "inspect.text"),
        ("classify-gru", ("a fine",), {"target": "goood"}, "inspect.target"),
        ("classify-gru", ("a fine",), {"position": 0}, "inspect.position"),
        ("classify-gru", ("a fine",), {"steps": 0}, "inspect.steps"),
        ("tag", ("a fine",), {"position": 2}, "inspect.position"),
        ("lstm", ("a fine",), {}, "inspect.unavailable"),
        ("ngram", ("a fine",), {}, "inspect.unavailable"),
    ],
)
def test_what_cannot_be_explained(name: str, texts: Any, options: Any, code: str, make_subject: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        Inspector(make_subject(name)).saliency(*texts, **options)
    assert caught.value.code == code
