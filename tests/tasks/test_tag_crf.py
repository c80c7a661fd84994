"""Tagging with a conditional random field: losses, decoding and confidences of whole sentences, with every model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.core.text import format_number
from seriatim.data.entities import repair_tags
from seriatim.inspect import Inspector
from seriatim.nn.crf import Chain, CrfHead, path_score
from seriatim.tasks.base import Output, Splits
from seriatim.tasks.batching import Batch
from seriatim.tasks.tag.processor import UNSEEN, TagEncoded
from seriatim.tasks.tag.task import TagPredictor, TagTask
from tag_cases import MODELS, prepare, write_conll

CRF = {"task": {"crf": True}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_conll(tmp_path_factory.mktemp("tagged"))


def random_crf(
    source: Path, model: str = "lstm", **sections: Any
) -> tuple[TagTask, Splits[TagEncoded], TagPredictor, CrfHead]:
    torch.manual_seed(0)
    task, splits, predictor = prepare(source, model, task=CRF["task"] | sections.pop("task", {}), **sections)
    head = predictor.network.head
    assert isinstance(head, CrfHead)
    for parameter in (head.start, head.transitions, head.end):
        parameter.data.normal_()
    head.weight.data.mul_(3)
    return task, splits, predictor, head


def encode_text(task: TagTask) -> TagEncoded:
    rows = task.read([["Mary", "Smith", "going"]], Diagnostics(), task.schema.inputs())
    return task.encode(rows, Diagnostics())


def batch_of(task: TagTask, splits: Splits[TagEncoded], split: str = "train", count: int = 9) -> Batch:
    return task.collate(splits[split].items, np.arange(count))


@pytest.mark.parametrize("model", [*MODELS, "bert"])
def test_tags_are_well_formed_and_the_likeliest_sequence(data: Path, model: str) -> None:
    """By enumeration of all sequences; each confidence is the probability of the tag."""
    task, splits, predictor, head = random_crf(data, model)
    encoded, tags = splits["validation"].items, task.processor.tags
    best, confidence = predictor.predict_words(encoded)
    scores = np.concatenate(predictor.scores(encoded))
    emissions = torch.from_numpy(scores)[np.argsort(encoded.item_words(np.arange(len(encoded))))]
    for first, end in encoded.bounds:
        words = [tags[index] for index in best[first:end].tolist()]
        assert repair_tags(words, "bio") == words
        if end - first > 5:
            continue
        paths = torch.tensor(list(itertools.product(range(len(tags)), repeat=end - first)))
        rows, lengths = emissions[None, first:end].expand(len(paths), -1, -1), torch.full((len(paths),), end - first)
        probabilities = path_score(head.chain(rows, lengths), paths).softmax(0)
        assert paths[probabilities.argmax()].tolist() == best[first:end].tolist()
        for word, tag in enumerate(best[first:end].tolist()):
            expected = probabilities[paths[:, word] == tag].sum().item()
            assert confidence[first + word] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("model", "length"), [("lstm", None), ("tcn", 4), ("gpt", 3), ("bert", 6)])
def test_the_loss_of_a_batch_is_that_of_its_rows(data: Path, model: str, length: int | None) -> None:
    """Windows that begin or end inside of a sentence have no score for that; continuations may come first there."""
    task, splits, predictor, _ = random_crf(data, model, task={"context_length": length, "character_features": 0})
    encoded = splits.train.items
    total = torch.zeros((), dtype=torch.float64)
    for item in range(30):
        batch = task.collate(encoded, np.array([item]))
        loss = task.loss(task.forward(predictor.network, batch), batch)
        assert loss.isfinite()
        total += loss
    batch = task.collate(encoded, np.arange(30))
    torch.testing.assert_close(task.loss(task.forward(predictor.network, batch), batch), total)
    cut = batch.targets[1]
    assert bool(cut.any()) == (length is not None)
    if length is not None:
        assert cut[:, 0].sum() == (cut[:, 1]).sum() > 0
        rows = encoded.rows[:30]  # type: ignore[index]
        begins = np.concatenate([[True], rows[1:] != rows[:-1]])
        assert cut[:, 0].tolist() == (~begins).tolist()


def test_tags_that_are_not_known_are_summed_over(data: Path) -> None:
    task, splits, predictor, _ = random_crf(data)
    batch = batch_of(task, splits)
    output = task.forward(predictor.network, batch)
    tags, cut = batch.targets
    row = int((tags >= 0).sum(1).argmax())
    losses = []
    for tag in range(len(task.processor.tags)):
        known = tags.clone()
        known[row, 1] = tag
        losses.append(task.loss(output, Batch(batch.inputs, (known, cut), batch.count, batch.mask)))
    unknown = tags.clone()
    unknown[row, 1] = UNSEEN
    loss = task.loss(output, Batch(batch.inputs, (unknown, cut), batch.count, batch.mask))
    torch.testing.assert_close(loss, -torch.stack(losses).neg().logsumexp(0))


def test_a_sentence_in_which_no_known_tag_is_allowed_is_left_out_of_the_loss(tmp_path: Path) -> None:
    """The middle of an entity of three words is not known if all of the training split have two."""
    pair, triple = "a B-x\nb E-x\nc O\n\n", "a B-x\nb I-x\nc E-x\n\n"
    (tmp_path / "train.conll").write_text(20 * pair)
    (tmp_path / "validation.conll").write_text(pair + triple)
    (tmp_path / "pair.conll").write_text(pair)
    losses = []
    for name in ("validation", "pair"):
        data = {"validation": str(tmp_path / f"{name}.conll")}
        task, splits, predictor, _ = random_crf(tmp_path / "train.conll", data=data)
        batch = task.collate(splits["validation"].items, np.arange(len(splits["validation"].items)))
        losses.append(task.loss(task.forward(predictor.network, batch), batch))
    torch.testing.assert_close(*losses)


def test_impossible_tags_are_not_explained(data: Path) -> None:
    task, splits, predictor, _ = random_crf(data)
    inside = next(tag for tag in task.processor.tags if tag.startswith("I-"))
    encoded = splits["validation"].items
    output = torch.randn(1, len(encoded.inputs[0]), len(task.processor.tags))
    impossible = pytest.raises(SeriatimError, match=f"no allowed sequence of tags has {inside} for word 0")
    with torch.no_grad(), impossible:
        predictor.explain_word(encoded, 0, output, inside, 0)


@pytest.mark.filterwarnings("error")
def test_explanations_with_gradients_do_not_warn(data: Path) -> None:
    task, _splits, predictor, _ = random_crf(data)
    encoded = encode_text(task)
    batch = task.collate(encoded, np.array([0]))
    output, _ = predictor.network(batch.inputs, batch.mask)
    assert output.requires_grad
    assert " %" in predictor.explain_word(encoded, 0, output, None, 1).prediction


def test_explanations_are_log_odds_of_the_marginals(data: Path) -> None:
    task, _splits, predictor, _ = random_crf(data)
    encoded = encode_text(task)
    batch = task.collate(encoded, np.array([0]))
    with torch.no_grad():
        output, _ = predictor.network(batch.inputs, batch.mask)
        chain = task.forward(predictor.network, batch).scores
        explained = predictor.explain_word(encoded, 0, output, "I-name", 1)
        paths = torch.tensor(list(itertools.product(range(3), repeat=3)))
        rows = chain._replace(emissions=chain.emissions.expand(27, -1, -1), lengths=chain.lengths.expand(27))
        chosen = paths[:, 1] == task.processor.tags.index("I-name")
        scores = path_score(rows._replace(start=chain.start[0], end=chain.end[0]), paths)
        expected = scores[chosen].logsumexp(0) - scores[~chosen].logsumexp(0)
        torch.testing.assert_close(explained.value(output)[0], expected)
    percent = 100 * float(scores[chosen].logsumexp(0).sub(scores.logsumexp(0)).exp())
    assert f"I-name {format_number(percent)} %" in explained.prediction


def test_distillation_between_chains_and_single_words(data: Path) -> None:
    """0 for a teacher of the same distribution; the gradient leads there."""
    task, splits, predictor, head = random_crf(data)
    plain, parts, words = prepare(data)
    batch, plain_batch = batch_of(task, splits), batch_of(plain, parts)
    chain, single = task.forward(predictor.network, batch), plain.forward(words.network, plain_batch)
    assert isinstance(chain.scores, Chain)
    probabilities = task.teacher_scores(chain).exp()
    assert probabilities.shape == (batch.count, 3)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(batch.count, dtype=torch.float64))
    student = Output(task.teacher_scores(chain).requires_grad_())
    assert plain.distillation_loss(student, Output(task.teacher_scores(chain)), 2.0).item() == pytest.approx(
        0, abs=1e-9
    )
    loss = task.distillation_loss(chain, single, 2.0)
    assert loss > 0.1
    for parameter in (head.start, head.transitions, head.end):
        parameter.data.zero_()
    copied = chain.scores._replace(emissions=chain.scores.emissions.detach().masked_scatter(
        chain.scores.mask[:, :, None], single.scores.detach()))  # fmt: skip
    same = head.chain(copied.emissions, copied.lengths, batch.targets[1])
    assert task.distillation_loss(Output(same), single, 1.0).item() == pytest.approx(0, abs=1e-9)


def test_label_smoothing_is_refused(data: Path) -> None:
    task, splits, predictor, _ = random_crf(data)
    batch = batch_of(task, splits)
    with pytest.raises(SeriatimError, match="no label smoothing"):
        task.loss(task.forward(predictor.network, batch), batch, smoothing=0.1)


def test_train_resume_evaluate_tag_inspect_and_export(data: Path, tmp_path: Path) -> None:
    files = {name: str(data / f"{name}.conll") for name in ("validation", "test")}
    settings = {"data": files, "model": {"width": 24}, "train": {"evaluate_steps": 20}} | CRF
    source = str(data / "train.conll")
    common = {"batch_size": 16, "report": False, "settings": settings}
    run = seriatim.train("tag", source, "lstm", out=tmp_path / "run", steps=60, **common)
    metrics = run.summary["metrics"]["test"]
    assert metrics["f1"] > 0.9
    assert run.evaluate() == pytest.approx(metrics)
    record = seriatim.load(tmp_path / "run").tag("Mary  Smith going the 7")
    assert record["tags"] == ["B-name", "I-name", "O", "O", "O"]
    assert all(0 < value <= 1 for value in record["confidence"])
    result = run.inspect.transitions()
    scores = result.arrays["scores"]
    assert scores.axes["tag"][0] == "start"
    forbidden = [(row, column) for row, column in np.argwhere(np.isnan(scores.values)).tolist()]
    names = [(scores.axes["tag"][row], scores.axes["next tag"][column]) for row, column in forbidden]
    assert names == [("start", "I-name"), ("start", "end"), ("O", "I-name")]
    distilled = seriatim.train("tag", source, "gru", out=tmp_path / "small", steps=3, teacher=str(run.path), **common)
    assert distilled.summary["metrics"]["validation"]["loss"] > 0


def test_other_taggers_have_no_transitions(data: Path) -> None:
    class Model:
        def __init__(self, predictor: TagPredictor) -> None:
            self.predictor = predictor
            predictor.network.float()

    with pytest.raises(SeriatimError, match=r"task\.crf"):
        Inspector(Model(prepare(data)[2])).transitions()
    assert "transitions" in Inspector(Model(random_crf(data)[2])).available()
