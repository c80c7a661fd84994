"""Vectors of tokens and places, and weights of scores: equal to what others work out, and shown under their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import seriatim
from helpers import settings_of
from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector, scores
from seriatim.inspect.subject import Subject
from seriatim.inspect.tokens import tables
from seriatim.models.kernel import Kernel, Settings
from seriatim.nn.attention import KERNELS, SCORES

RIVER = ["we sat on the river bank", "the bank of the river"]
CASH = ["my bank gave me cash", "no cash in the bank"]
LINES = [*RIVER, *CASH, "cash on the river"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "book.txt").write_text("\n".join(LINES * 20), encoding="utf-8")
    words = {line: line.upper()[::-1] for line in LINES}
    pairs = [f"{line} {number}\t{words[line]} {number}" for number in range(20) for line in LINES]
    (folder / "pairs.tsv").write_text("\n".join(pairs), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> seriatim.Run:
    settings = {"model": {"width": 12, "heads": 2, "layers": 1}, "data": {"tokenizer": {"kind": "word"}}}
    settings |= {"task": {"length": 16}}
    return seriatim.train("language", str(folder / "book.txt"), "gpt", settings=settings, steps=2, out=folder / "gpt")


@pytest.fixture(scope="module")
def translator(folder: Path) -> seriatim.Run:
    settings = {"model": {"width": 10}, "data": {"tokenizer": {"kind": "word"}}}
    return seriatim.train(
        "translate", str(folder / "pairs.tsv"), "bahdanau", settings=settings, steps=1, out=folder / "bahdanau"
    )


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_neighbours_are_the_nearest_by_cosine(run: seriatim.Run) -> None:
    seen = run.inspect.neighbours("the bank , the cash", top=4)
    table, tokenizer = run.model.input.weight.detach(), run.predictor.tokenizer
    names, cosines = seen.arrays["neighbours"], seen.arrays["cosines"].values
    assert list(names.axes[0][1]) == ["the", "bank", "<unk>", "cash"]  # each once
    for row, token in enumerate(names.axes[0][1]):
        index = tokenizer.names.index(token)
        alike = torch.cosine_similarity(table, table[index : index + 1])
        alike[index] = -2
        wanted = alike.topk(4)
        assert names.values[row].tolist() == [tokenizer.token(other) for other in wanted.indices.tolist()]
        assert cosines[row] == pytest.approx(wanted.values.numpy(), abs=1e-6)
    assert seen.record()["arrays"]["neighbours"]["values"] == names.values.tolist()


def test_neighbours_of_both_sides_of_a_translator(translator: seriatim.Run) -> None:
    seen = translator.inspect.neighbours("the bank", target="EHT", top=2)
    assert list(seen.arrays) == ["source neighbours", "source cosines", "target neighbours", "target cosines"]
    source, target = tables(Subject("bahdanau", "x", translator))
    model = translator.model
    assert np.array_equal(source.vectors, model.source.weight.detach().numpy())
    assert np.array_equal(target.vectors, model.target.weight.detach().numpy())
    known = translator.predictor.coder.target.names
    assert set(seen.arrays["target neighbours"].values.ravel()) <= set(known)


def test_a_projection_keeps_the_largest_variances(run: seriatim.Run) -> None:
    text = " ".join(LINES)
    seen = run.inspect.projection(text)
    points, names = seen.arrays["points"].values, seen.arrays["points"].axes[0][1]
    assert list(names) == list(dict.fromkeys(text.split()))
    ids = [run.predictor.tokenizer.names.index(name) for name in names]
    vectors = run.model.input.weight.detach().double().numpy()[ids]
    largest = np.sort(np.linalg.eigvalsh(np.cov(vectors.T, bias=True)))[::-1][:2]
    assert points.var(axis=0) == pytest.approx(largest, rel=1e-6)
    assert np.cov(points.T)[0, 1] == pytest.approx(0, abs=1e-12)
    shares = largest / vectors.var(axis=0).sum()
    assert seen.views[0]["shares"] == pytest.approx(shares, rel=1e-6)


def test_few_tokens_are_drawn_among_their_neighbours(run: seriatim.Run) -> None:
    near = run.inspect.neighbours("bank", top=6).arrays["neighbours"].values[0].tolist()
    view = run.inspect.projection("bank").views[0]
    assert view["names"] == ["bank", *near]
    assert view["groups"] == ["of the text"] + ["nearest to them"] * 6


def test_without_a_text_words_of_the_vocabulary_are_drawn(run: seriatim.Run, translator: seriatim.Run) -> None:
    view = run.inspect.projection(top=5).views[0]
    assert len(view["names"]) == 5
    assert all(name.isalpha() and len(name) > 1 for name in view["names"])
    assert [view["title"].rpartition(", ")[2] for view in translator.inspect.projection().views] == ["source", "target"]


def test_a_word_in_its_sentences(run: seriatim.Run) -> None:
    seen = run.inspect.context(*RIVER, *CASH, word="bank")
    wanted = run.words("bank", [*RIVER, *CASH])
    assert np.array_equal(seen.arrays["contextual"].values, wanted.contextual)
    assert seen.arrays["contextual cosines"].values == pytest.approx(wanted.contextual @ wanted.contextual.T, abs=1e-6)
    assert seen.arrays["cosines by itself"].values == pytest.approx(np.ones((4, 4)), abs=1e-6)
    assert list(seen.arrays["by itself"].axes[0][1]) == [*RIVER, *CASH]
    assert "by itself 1.00 on average" in seen.views[1]["note"]
    with pytest.raises(SeriatimError, match="none is named"):
        run.inspect.context(*RIVER)


def test_what_has_no_vectors_says_so(run: seriatim.Run) -> None:
    for name in ("neighbours", "projection", "context"):
        with pytest.raises(SeriatimError, match="lstm was never trained and knows no tokens"):
            Inspector("lstm").look(name, "a text")
        with pytest.raises(SeriatimError, match="ngram counts, and has no vectors"):
            Inspector("ngram").look(name, "a text")
    for view, options in (("neighbours", {"top": 0}), ("neighbours", {"target": "x"}), ("projection", {"target": "x"})):
        with pytest.raises(SeriatimError):
            run.inspect.look(view, "the bank", **options)
    with pytest.raises(SeriatimError, match="no text"):
        run.inspect.neighbours()


# ── places ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_sinusoids_are_alike_by_distance_alone() -> None:
    subject = Subject("transformer", "transformer")
    subject.settings = settings_of(("transformer", {"width": 16, "heads": 2}))
    seen = Inspector(subject).positions()
    places, numbers = np.arange(512), np.arange(8)
    angles = places[:, None] / 10_000 ** (2 * numbers / 16)
    wanted = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(512, 16)
    assert seen.arrays["vectors"].values == pytest.approx(wanted, abs=1e-6)
    by_distance = np.cos(places[:, None] / 10_000 ** (2 * numbers / 16)).mean(axis=1)
    for row in seen.arrays["by distance"].values:  # the mean, and the tenths: all pairs are alike
        assert row == pytest.approx(by_distance, abs=1e-5)


def test_learned_places(run: seriatim.Run) -> None:
    seen = run.inspect.positions()
    table = run.model.backbone.positions.weight.detach()
    assert np.array_equal(seen.arrays["vectors"].values, table.numpy())
    cosines = torch.cosine_similarity(table[:, None], table[None], dim=2).numpy()
    assert seen.arrays["cosines"].values == pytest.approx(cosines, abs=1e-6)
    pairs = [cosines[i, j] for i in range(16) for j in range(16) if j - i == 3]
    assert seen.arrays["by distance"].values[0, 3] == pytest.approx(np.mean(pairs), abs=1e-6)
    assert seen.title.endswith("learned")
    assert Inspector("gpt").positions().title.endswith("before training")


def test_a_model_without_places_says_so() -> None:
    for name in ("lstm", "tcn", "mlp", "seq2seq"):
        with pytest.raises(SeriatimError, match=f"{name} has no vectors of places"):
            Inspector(name).positions()
    with pytest.raises(SeriatimError, match="ngram counts"):
        Inspector("ngram").positions()


# ── scores ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_weights_of_every_score() -> None:
    before = torch.get_rng_state()
    seen = Inspector("rnn").scores()
    assert torch.equal(torch.get_rng_state(), before)
    values = dict(zip(seen.arrays["weights"].axes[0][1], seen.arrays["weights"].values, strict=True))
    assert set(values) == {*SCORES, *KERNELS} == set(scores.FORMULAS)
    line = np.linspace(-3, 3, 49)
    for weights in values.values():
        assert weights.sum(axis=1) == pytest.approx(np.ones(49))
        assert (weights >= 0).all()
    for name in KERNELS:  # as the model that is nothing but a kernel
        peer = Kernel(Settings(name="kernel", kernel=name), line[:, None], line[:, None], np.ones(1), 1.0)
        assert values[name] == pytest.approx(peer.weights(line[:, None]), abs=1e-12)
    product = np.exp(np.outer(line, line))
    assert values["dot"] == pytest.approx(product / product.sum(axis=1, keepdims=True))
    softer = np.exp(np.outer(line, line) / 4)  # d = 16
    assert values["scaled_dot"] == pytest.approx(softer / softer.sum(axis=1, keepdims=True))
    assert values["distance"] == pytest.approx(values["gaussian"])
    assert values["concat"] == pytest.approx(values["additive"])


@pytest.mark.parametrize("view", ["neighbours", "projection", "context", "positions", "scores"])
def test_every_view_becomes_a_picture(view: str, run: seriatim.Run, tmp_path: Path) -> None:
    texts = {"neighbours": ["the bank"], "projection": ["the bank"], "context": RIVER}.get(view, [])
    seen = run.inspect.look(view, *texts, **({"word": "bank"} if view == "context" else {}))
    seen.save(tmp_path / "x.svg")
    assert seen.views[0]["title"].split(":")[0] in (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert seen.lines()[0] == seen.title
