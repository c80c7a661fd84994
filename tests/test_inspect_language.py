"""Surprise is what the run itself says of a text; back-off and saliency equal what is computed by hand."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from helpers import asked, tagged
from seriatim import SeriatimError
from seriatim.inspect._integrated import integrated

TEXT = "a fine film full of light and warm humour that dull people will not see twice"
WORDS = TEXT.split()
TINY = {"width": 8, "layers": 2}
HEADED = TINY | {"heads": 2}
CLASSIFIERS = {
    "bert": HEADED,
    "gpt": HEADED,
    "rnn": TINY,
    "lstm": TINY | {"bidirectional": True},
    "gru": TINY,
    "tcn": {"width": 8, "levels": 2},
    "mlp": TINY | {"window": 3},
}


def _table(path: Path, rows: list[list[Any]]) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def _book(folder: Path) -> str:
    (folder / "book.txt").write_text("\n".join(" ".join(WORDS[n % 7 : n % 7 + 2 + n % 9]) for n in range(300)), "utf-8")
    return str(folder / "book.txt")


def _documents(folder: Path) -> str:
    texts = ["\n".join(" ".join(WORDS[n % 4 : n % 4 + 5]) + "." for _ in range(3)) for n in range(40)]
    (folder / "documents.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return str(folder / "documents.txt")


def _pairs(folder: Path) -> str:
    rows = [WORDS[n % 6 : n % 6 + 2 + n % 5] for n in range(60)]
    lines = ["\t".join([" ".join(row), " ".join(word[::-1] for word in row)]) for row in rows]
    (folder / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "pairs.tsv")


def _labelled(folder: Path) -> str:
    rows = [[" ".join(WORDS[n % 5 : n % 5 + 2 + n % 6]), "good" if n % 5 < 2 else "bad"] for n in range(60)]
    return _table(folder / "labelled.csv", [["text", "label"], *rows])


def _several(folder: Path) -> str:
    rows = [[" ".join(WORDS[n % 5 : n % 5 + 4]), ("x", "y", "x|y")[n % 3]] for n in range(60)]
    return _table(folder / "several.csv", [["text", "label"], *rows])


def _two(folder: Path) -> str:
    rows = [[" ".join(WORDS[n % 5 : n % 5 + 3]), WORDS[n % 7], "abc"[n % 3]] for n in range(60)]
    return _table(folder / "two.csv", [["text1", "text2", "label"], *rows])


def _valued(folder: Path) -> str:
    rows = [[" ".join(WORDS[n % 5 : n % 5 + 3]), n % 5] for n in range(60)]
    return _table(folder / "valued.csv", [["text", "value"], *rows])


BY_WORDS = {"data": {"tokenizer": {"kind": "word"}}}
RUNS: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "gpt": ("language", _book, {"name": "gpt", **HEADED}, {"task": {"length": 24}}),
    "plain": ("language", _book, {"name": "gpt", **HEADED}, {"task": {"length": 24, "opening": False}}),
    "lstm": ("language", _book, {"name": "lstm", **TINY}, {"task": {"length": 24}}),
    "ngram": ("language", _book, {"name": "ngram", "order": 3}, BY_WORDS),
    "letters": ("language", _book, {"name": "ngram", "order": 2, "smoothing": "kneser-ney"}, {}),
    "single": ("language", _book, {"name": "ngram", "order": 1}, BY_WORDS),
    "none": ("language", _book, {"name": "ngram", "order": 3, "smoothing": "none"}, BY_WORDS),
    "add": ("language", _book, {"name": "ngram", "order": 3, "smoothing": "add-k"}, BY_WORDS),
    "transformer": ("translate", _pairs, {"name": "transformer", **HEADED}, {"data": {"held_out": 6}}),
    "bahdanau": ("translate", _pairs, {"name": "bahdanau", **TINY}, {"data": {"held_out": 6}}),
    "pretrain": ("pretrain", _documents, {"name": "bert", **HEADED}, {"task": {"length": 24}}),
    "several": ("classify", _several, {"name": "gru", **TINY}, {"data": {"separator": "|"}}),
    "two": ("classify", _two, {"name": "bert", **HEADED}, {"data": {"column": "text1,text2"}}),
    "two-gru": ("classify", _two, {"name": "gru", **TINY}, {"data": {"column": "text1,text2"}}),
    "regress": ("regress", _valued, {"name": "lstm", **TINY}, {}),
    "tag": ("tag", tagged, {"name": "lstm", "bidirectional": True, **TINY}, {"task": {"characters": 4}}),
    "answer": ("answer", asked, {"name": "bert", **HEADED}, {}),
    **{f"classify-{name}": ("classify", _labelled, {"name": name, **more}, {}) for name, more in CLASSIFIERS.items()},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run of a name, trained for two steps when it is asked for; its weights are then shaken, so that its answers
    depend on what it reads."""
    folder = tmp_path_factory.mktemp("runs")

    def make(name: str, shaken: float = 0.3) -> Any:
        if not (folder / name).exists():
            task, data, model, settings = RUNS[name]
            settings = settings | {"model": model, "train": {"steps": 2, "batch": 4}}
            seriatim.train(task, data(folder), settings=settings, out=folder / name)
        run = seriatim.load(folder / name)
        if isinstance(run.model, torch.nn.Module):
            torch.manual_seed(3)
            for parameter in run.model.parameters():
                parameter.data += shaken * torch.randn_like(parameter)
        return run

    return make


def close(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64), rtol=rtol, atol=atol)


# Surprise


@pytest.mark.parametrize("name", ["gpt", "lstm", "ngram", "letters", "single", "plain"])
@pytest.mark.parametrize("times", [1, 12])
def test_the_surprise_of_a_text_is_its_score(name: str, times: int, trained: Any) -> None:
    run = trained(name)
    text = "\n".join(["a fine film", "dull people"] * times)  # 12 times: a GPT of 24 places has to forget
    seen = run.inspect.surprise(text, top=3)
    scored = run.score(text)
    surprise = seen.arrays["surprise"]
    assert list(surprise.axes[0][1]) == [piece for piece, _ in scored.pieces]
    assert (surprise.values == [-value / math.log(2) for _, value in scored.pieces]).all()
    assert surprise.values.sum() * math.log(2) == pytest.approx(-scored.log_probability)


@pytest.mark.parametrize("name", ["gpt", "lstm", "ngram", "letters", "single"])
def test_alternatives_are_what_would_come_next(name: str, trained: Any) -> None:
    run = trained(name)
    tokenizer = run.predictor.tokenizer
    text = "a fine film full of light\ndull people will not see"
    ids = run.predictor.row(text)[1:]
    for position in {0, 1, len(ids) // 2, len(ids) - 1}:
        before = tokenizer.decode(ids[:position])
        before += " " if name in ("ngram", "single") else ""
        expected = run.next(before, top=tokenizer.size)
        seen = run.inspect.surprise(text, position=position, top=4)
        found, there = seen.arrays["alternatives"], tokenizer.token(int(ids[position]))
        names, values = list(found.axes[0][1]), found.values
        likely = {one.token: one.probability for one in expected}
        close(values, [likely[one] for one in names], rtol=1e-4)
        close(values[:4], [one.probability for one in expected[:4]], rtol=1e-4)
        assert there in names
        assert len(names) in (4, 5)
        p = np.array(list(likely.values()))
        close(seen.arrays["expected surprise"].values[position], -(p * np.log2(p)).sum(), rtol=1e-4)


@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_a_target_is_judged_given_its_source(name: str, trained: Any) -> None:
    run = trained(name)
    source, target = "fine film full", "enif mlif lluf"
    seen = run.inspect.surprise(source, target=target, position=1, top=5)
    scored = run.score(source, target)
    assert (seen.arrays["surprise"].values == [-value / math.log(2) for _, value in scored.pieces]).all()
    coder, network = run.predictor.coder, run.model
    tokens = coder.targets([target])[0]
    with torch.inference_mode():
        sources = torch.from_numpy(coder.sources([source])[0])[None]
        given = torch.tensor([[coder.begin, int(tokens[0])]])
        likely = network(sources, given)[0, -1].softmax(dim=-1)
    close(seen.arrays["alternatives"].values[:5], likely.topk(5).values, rtol=1e-4)
    said = run.translate(source)
    own = run.inspect.surprise(source).arrays["surprise"].values
    close(own.sum(), -run.score(source, said).log_probability / math.log(2), rtol=1e-6)


def test_hidden_tokens_one_by_one(trained: Any) -> None:
    run = trained("pretrain")
    text = "a fine film full of light ."
    seen = run.inspect.surprise(text, position=2, top=5)
    names = list(seen.arrays["surprise"].axes[0][1])
    assert names == text.split()
    gap = run.predict("a fine [MASK] full of light .")["gaps"][0]
    found = seen.arrays["alternatives"]
    assert list(found.axes[0][1])[:5] == [one["token"] for one in gap]
    close(found.values[:5], [one["probability"] for one in gap])
    tokens = torch.from_numpy(run.predictor.coder.encode([text])[0])[None]
    expected = []
    with torch.inference_mode():
        for place in range(1, tokens.shape[1] - 1):
            hidden = tokens.clone()
            hidden[0, place] = run.predictor.coder.tokenizer.mask
            expected.append(-run.model(hidden)[0][0][0, place].log_softmax(dim=-1)[tokens[0, place]].item())
    close(seen.arrays["surprise"].values * math.log(2), expected)
    assert list(run.inspect.surprise("a [MASK] film").arrays["surprise"].axes[0][1]) == ["a", "film"]


def test_what_never_was_is_told_and_drawn(trained: Any, tmp_path: Path) -> None:
    seen = trained("none").inspect.surprise("a fine fine film")
    assert np.isinf(seen.arrays["surprise"].values).any()
    assert any("no probability at all" in note for note in seen.notes)
    seen.save(tmp_path / "x.json")
    assert None in json.loads((tmp_path / "x.json").read_text("utf-8"))["arrays"]["surprise"]["values"]
    seen.chart()


def test_unknown_words_are_told_and_own_text_is_read(trained: Any) -> None:
    run = trained("ngram")
    seen = run.inspect.surprise("a zebra")
    assert any("not in the vocabulary" in note for note in seen.notes)
    assert len(run.inspect.surprise().arrays["surprise"].values) > 20
    assert "the most surprising" in "\n".join(seen.lines())


@pytest.mark.parametrize(
    ("name", "texts", "options", "code"),
    [
        ("lstm", ("a fine",), {"position": 6}, "inspect.position"),
        ("lstm", ("a fine",), {"top": 0}, "inspect.top"),
        ("lstm", ("",), {}, "inspect.text"),
        ("lstm", ("a fine",), {"target": "x"}, "inspect.target"),
        ("transformer", (), {}, "inspect.text"),
        ("classify-gru", ("a fine",), {}, "inspect.offer"),
    ],
)
def test_what_cannot_be_judged(name: str, texts: Any, options: Any, code: str, trained: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        trained(name).inspect.surprise(*texts, **options)
    assert caught.value.code == code


# Back-off


def _seen_in_training(run: Any) -> Counter[tuple[int, ...]]:
    tokens = run.inspect.subjects[0].data.corpus.train.tolist()
    return Counter(tuple(tokens[start : start + n]) for n in (1, 2, 3) for start in range(len(tokens) - n + 1))


def test_the_order_is_that_of_the_longest_n_gram_that_was_seen(trained: Any) -> None:
    run = trained("ngram")
    known = _seen_in_training(run)
    text = "a fine film dull light\nfull of people and and warm humour zebra twice"
    ids = run.predictor.row(text).tolist()
    boundary = run.model.boundary
    expected = []
    for place in range(1, len(ids)):
        longest = 1
        for n in (2, 3):
            some = ids[place - n + 1 : place + 1]
            if place >= n - 1 and known[tuple(some)] and boundary not in some[1:-1]:
                longest = n
        expected.append(longest)
    seen = run.inspect.backoff(text)
    assert seen.arrays["order"].values.tolist() == expected
    assert {1, 2, 3} == set(expected)
    shares = seen.arrays["share"].values
    close(shares.sum(axis=1), 1.0)
    assert all((row[order:] == 0).all() for row, order in zip(shares, expected, strict=True))
    seen.chart()


def test_the_share_of_an_order_by_hand(trained: Any) -> None:
    """Kneser and Ney for pairs of letters: (count − D) / count of the first, of the probability of the second."""
    run = trained("letters")
    known = _seen_in_training(run)
    ids = run.predictor.row("fine film").tolist()
    discount = run.model.discounts[1][0]
    followed = Counter(pair[0] for pair in known.elements() if len(pair) == 2)
    shares = run.inspect.backoff("fine film").arrays["share"].values
    for place, (first, second) in enumerate(pairwise(ids)):
        own = max(known[first, second] - discount, 0) / followed[first]
        total = math.exp(run.predictor.engine.score(np.array(ids))[place])
        close(shares[place, 1], own / total, rtol=1e-4, atol=1e-6)


def test_smoothing_that_does_not_back_off_says_so(trained: Any) -> None:
    seen = trained("add").inspect.backoff("a fine zebra")
    assert "share" not in seen.arrays
    assert "add-k asks the longest known context" in seen.notes[0]
    with pytest.raises(SeriatimError, match="counts no n-grams"):
        trained("lstm").inspect.backoff("a fine")


# Saliency


def test_integrals_that_are_known() -> None:
    """Of a linear function one point is exact; of squares the integral is x² − b²; of a step the sum is refined."""
    torch.manual_seed(0)
    x, b, w = torch.randn(3, 4, 5, dtype=torch.float64)
    linear = integrated(lambda some: (some * w).sum(dim=(1, 2)), x, b, steps=1)
    close(linear.values, ((x - b) * w).sum(dim=1))
    assert linear.steps == 1
    assert linear.gap < 1e-12
    squares = integrated(lambda some: some.square().sum(dim=(1, 2)), x, b, steps=1)
    close(squares.values, (x.square() - b.square()).sum(dim=1))
    steep = integrated(lambda some: torch.sigmoid(30 * (some * w).sum(dim=(1, 2)) - 9), w, 0 * w, steps=2)
    assert steep.complete
    assert steep.steps > 2
    hopeless = integrated(lambda some: torch.sin(1e5 * some.sum(dim=(1, 2))), x, b, steps=2)
    assert not hopeless.complete
    assert hopeless.steps == 512


def _by_hand(network: Any, tokens: torch.Tensor, baseline: torch.Tensor, output: Any, points: int) -> np.ndarray:
    """Integrated gradients by the rule of the middle, one point after the other, with nothing of the package."""
    vectors = network.input(tokens)[0].detach()
    total = torch.zeros_like(vectors)
    for point in range(points):
        at = (baseline + (point + 0.5) / points * (vectors - baseline))[None].requires_grad_()
        output(network.head(network.backbone(at)[0], None)).backward(inputs=[at])
        total += at.grad[0]
    found: np.ndarray = ((vectors - baseline) * total / points).sum(dim=1).numpy()
    return found


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_backbone_is_explained_completely(name: str, trained: Any) -> None:
    run = trained(f"classify-{name}", shaken=1.0 if name == "bert" else 0.3)
    network, text = run.model, "a fine film full of dull people"
    network.double()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    next(network.parameters()).requires_grad_(False)
    asked = [parameter.requires_grad for parameter in network.parameters()]
    network.train()
    seen = run.inspect.saliency(text)
    assert all(module.training for module in network.modules())
    assert [parameter.requires_grad for parameter in network.parameters()] == asked
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    again = run.inspect.saliency(text)
    values = seen.arrays["attribution"].values
    assert (values == again.arrays["attribution"].values).all()

    network.eval()
    tokenizer, tokens = run.predictor.coder.tokenizer, torch.from_numpy(run.predictor.coder.encode([text])[0])[None]
    frame = torch.isin(
        tokens[0], torch.tensor([index for index in (tokenizer.cls, tokenizer.sep) if index is not None])
    )
    vectors = network.input(tokens)[0].detach()
    nothing = vectors - network.input.weight[tokens[0]].detach() + network.input.weight.detach().mean(dim=0)
    baseline = torch.where(frame[:, None], vectors, nothing)
    said = run.predict(text)
    label = run.predictor.coder.labels.index(said["prediction"])
    there, nowhere = (network.head(network.backbone(one[None])[0], None)[0].detach() for one in (vectors, baseline))
    difference = float((there - nowhere)[label] - (there - nowhere)[1 - label])
    assert abs(values.sum() - difference) <= 0.01 * abs(difference)
    expected = _by_hand(network, tokens, baseline, lambda scores: scores[0, label] - scores[0, 1 - label], 300)
    close(values, expected, atol=0.03 * np.abs(expected).max())
    assert abs(difference) > 0.02
    assert (values[frame.numpy()] == 0).all()
    assert any(f"{100 * abs(values.sum() - difference) / abs(difference):.2f} % apart" in note for note in seen.notes)
    other = run.inspect.saliency(text, target=run.predictor.coder.labels[1 - label])
    close(other.arrays["attribution"].values, -values, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "texts", "options"),
    [
        ("several", ("a fine film",), {"target": "y"}),
        ("two", ("a fine film", "dull"), {}),
        ("two-gru", ("a fine film", "dull"), {}),
        ("regress", ("a fine film",), {}),
        ("tag", ("a fine film full",), {"position": 2}),
        ("answer", ("what follows fine?", "a fine film full"), {}),
    ],
)
def test_whatever_answers_is_explained(name: str, texts: Any, options: Any, trained: Any) -> None:
    run = trained(name)
    seen = run.inspect.saliency(*texts, **options)
    values = seen.arrays.get("words", seen.arrays["attribution"])
    said = list(values.axes[0][1])
    assert [word for word in said if word not in ("[CLS]", "[SEP]", "<eos>", "?")] == " ".join(texts).replace(
        "?", ""
    ).split()
    told = next(note for note in seen.notes if "apart" in note)
    assert "take them with care" not in told
    close(values.values.sum(), seen.arrays["attribution"].values.sum(), atol=1e-6)
    line = next(line for line in seen.lines() if "for the text" in line)
    there = float(line.split(" ")[0].replace("−", "-"))
    if name == "regress":
        assert there == pytest.approx(run.predict(texts[0])["value"], abs=0.006)
    if name == "tag":
        sure = run.predict(texts[0])["confidence"][2]
        assert there == pytest.approx(math.log(sure / (1 - sure)), abs=0.006)
    if name == "several":
        p = run.predict(texts[0])["probabilities"]["y"]
        assert there == pytest.approx(math.log(p / (1 - p)), abs=0.006)
    if name.startswith("two"):  # three labels: the odds against both others
        p = max(run.predict([texts])[0]["probabilities"].values())
        assert there == pytest.approx(math.log(p / (1 - p)), abs=0.006)


def test_an_example_of_the_run_is_explained_as_a_text_is(trained: Any) -> None:
    run = trained("classify-bert")
    own = run.inspect.saliency(example=0)
    assert own.notes[0] == "sequence 0 of the valid part"
    names = own.arrays["attribution"].axes[0][1]
    text = " ".join(name for name in names if not name.startswith("[")).replace(" ##", "")
    again = run.inspect.saliency(text)
    assert list(again.arrays["attribution"].axes[0][1]) == list(names)
    close(again.arrays["attribution"].values, own.arrays["attribution"].values, atol=1e-6)


def test_pieces_of_a_word_are_added(trained: Any) -> None:
    seen = trained("classify-bert").inspect.saliency("a humourless finefilm")
    tokens, words = seen.arrays["attribution"], seen.arrays["words"]
    assert any(name.startswith("##") for name in tokens.axes[0][1])
    assert list(words.axes[0][1]) == ["[CLS]", "a", "humourless", "finefilm", "[SEP]"]
    pieces = [index for index, name in enumerate(tokens.axes[0][1]) if index > 2 and name.startswith("##")]
    first = [index for index in pieces if index == 3 or all(k in pieces for k in range(3, index))]
    close(words.values[2], tokens.values[[2, *first]].sum(), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "texts", "options", "code"),
    [
        ("classify-bert", ("",), {}, "inspect.text"),
        ("classify-gru", (), {}, "inspect.text"),
        ("classify-gru", ("a fine",), {"target": "goood"}, "inspect.target"),
        ("classify-gru", ("a fine",), {"position": 0}, "inspect.position"),
        ("classify-gru", ("a fine",), {"steps": 0}, "inspect.steps"),
        ("tag", ("a fine",), {"position": 2}, "inspect.position"),
        ("lstm", ("a fine",), {}, "inspect.offer"),
        ("ngram", ("a fine",), {}, "inspect.offer"),
    ],
)
def test_what_cannot_be_explained(name: str, texts: Any, options: Any, code: str, trained: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        trained(name).inspect.saliency(*texts, **options)
    assert caught.value.code == code
