"""Pretraining: pairs of passages, masked tokens, the loss of both, and what is filled in."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data import bulk
from seriatim.data.disk import TextValues
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.tasks import reading
from seriatim.tasks.base import DataSettings, Splits, TaskConfig
from seriatim.tasks.pretrain.masking import Masking
from seriatim.tasks.pretrain.processor import EncodedDocuments, EncodedPassages, Passages
from seriatim.tasks.pretrain.task import FillMaskPredictor, PretrainProcessor, PretrainSettings, PretrainTask
from seriatim.tasks.processor import from_dict
from seriatim.tasks.reading import Layout
from seriatim.training.objective import TaskObjective

TEXT = "the old new cat dog saw bit hat man ran far near a house was big small red"
WORDS = TEXT.split()
TINY = {"name": "bert", "width": 8, "layers": 2, "heads": 2, "dropout": 0.0}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=80), [" ".join(WORDS) + " unbelievably"] * 3)


# Pairs of passages


def documents_of(lengths: list[list[int]]) -> EncodedDocuments:
    """Returns documents of sentences of so many tokens. Each token is the number of its position, from 100 on."""
    flat = [length for document in lengths for length in document]
    return EncodedDocuments(
        np.arange(100, 100 + sum(flat)), np.cumsum(flat), np.cumsum([len(document) for document in lengths])
    )


def draw_pairs(passages: Passages, times: int) -> list[tuple[list[int], list[int], int]]:
    """Returns both passages of every span, drawn several times, and whether they are unrelated."""
    pairs = []
    for time in range(times):
        batch = passages.draw(np.arange(len(passages)), np.random.default_rng(time))
        for tokens, length, text, unrelated in zip(
            batch.tokens, batch.lengths, batch.text, batch.unrelated, strict=True
        ):
            cls, sep, pad = passages.frame
            row = tokens[:length].tolist()
            middle = row.index(sep)
            assert (row[0], row[-1], row.count(sep)) == (cls, sep, 2)
            assert set(tokens[length:].tolist()) <= {pad}
            assert (tokens[text] >= 100).all()
            assert text.sum() == length - 3
            pairs.append((row[1:middle], row[middle + 1 : -1], int(unrelated)))
    return pairs


def test_passages_are_whole_sentences_that_follow_or_are_of_another_document(tokenizer: Tokenizer) -> None:
    random = np.random.default_rng(0)
    documents = [random.integers(1, 25, random.integers(2, 12)).tolist() for _ in range(40)]
    length, half = 48, (48 - 3) // 2
    passages = Passages(documents_of(documents), tokenizer, length, paired=True)
    assert max(max(document) for document in documents) > half
    document_of = np.repeat(np.arange(len(documents)), [sum(document) for document in documents])
    begins = set(np.cumsum([0, *(sum(document) for document in documents)]).tolist())
    borders = {0, *passages.ends.tolist()}
    assert set(np.cumsum([n for document in documents for n in document]).tolist()) <= borders
    assert np.diff(passages.ends, prepend=0).max() <= half
    labels = Counter()
    for first, second, unrelated in draw_pairs(passages, 30):
        a, b = np.array(first) - 100, np.array(second) - 100
        assert len(a) + len(b) <= length - 3
        for passage in (a, b):
            assert (np.diff(passage) == 1).all()
            assert {int(passage[0]), int(passage[-1]) + 1} <= borders
            assert len(set(document_of[passage].tolist())) == 1
        assert int(b[0]) not in begins, "a passage that begins a document would give itself away"
        assert (document_of[a[0]] == document_of[b[0]]) == (not unrelated)
        assert unrelated or b[0] == a[-1] + 1
        following = int(b[-1]) + 1
        after = 10**9 if following in begins else int(passages.ends[np.searchsorted(passages.ends, following + 1)])
        assert len(a) + len(b) + after - following > length - 3, "another sentence would fit"
        labels[unrelated] += 1
    assert 0.45 < labels[1] / labels.total() < 0.55


def test_every_sentence_of_another_document_is_equally_likely(tokenizer: Tokenizer) -> None:
    passages = Passages(documents_of([[4, 4, 4], [4, 4], [4, 4, 4, 4]]), tokenizer, 32, paired=True)
    counts = Counter(passages.draw_followers(np.zeros(60_000, np.int64), np.random.default_rng(0)).tolist())
    assert set(counts) == {4, 6, 7, 8}, "those that follow another in the second and third document"
    assert all(abs(count - 15_000) < 600 for count in counts.values())


def test_borders_of_spans_move_and_everything_is_read(tokenizer: Tokenizer) -> None:
    documents = documents_of([[5] * 40, [5] * 3])
    paired = Passages(documents, tokenizer, 23, paired=True)
    assert len({first[0] for first, _, _ in draw_pairs(paired, 20)}) > len(paired)
    single = Passages(documents, tokenizer, 23, paired=False)
    assert not single.left_out
    batches = [single.draw(np.arange(len(single)), np.random.default_rng(time)) for time in range(10)]
    read = {token for batch in batches for token in batch.tokens[batch.text].tolist()}
    assert read == set(range(100, 100 + 43 * 5))


def test_a_single_document_is_divided_and_single_sentences_are_left_out(tokenizer: Tokenizer) -> None:
    assert len(set(Passages(documents_of([[4] * 70]), tokenizer, 32, paired=True).document.tolist())) > 1
    passages = Passages(documents_of([[4] * 6, [4], [4] * 6]), tokenizer, 32, paired=True)
    assert passages.left_out == 1
    assert not any(124 <= token < 128 for a, b, _ in draw_pairs(passages, 20) for token in a + b)
    with pytest.raises(SeriatimError, match="the training split has 1 documents of two sentences or more"):
        Passages(documents_of([[4] * 6, [4]]), tokenizer, 32, paired=True)
    with pytest.raises(SeriatimError, match="the test split has 1 sentences"):
        Passages(documents_of([[4]]), tokenizer, 32, paired=True, name="test")


# Masked tokens


def test_fifteen_percent_are_selected_eighty_ten_ten(tokenizer: Tokenizer) -> None:
    masking = Masking.of(tokenizer, 0.15, whole_word=False)
    random = np.random.default_rng(0)
    tokens = random.integers(0, tokenizer.vocab_size, (400, 100))
    text = np.ones(tokens.shape, dtype=bool)
    text[:, 90:] = False
    selected = masking.select(tokens, text, random)
    inputs = masking.replace(tokens, selected, random)
    specials = {tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk}
    ordinary = ~np.isin(tokens, list(specials))
    assert not (selected & ~(text & ordinary)).any()
    assert (selected.sum(axis=1) == np.rint(0.15 * (text & ordinary).sum(axis=1))).all()
    assert (inputs == tokens)[~selected].all()
    masked, same = inputs[selected] == tokenizer.mask, inputs[selected] == tokens[selected]
    replaced = inputs[selected][~masked & ~same]
    assert abs(masked.mean() - 0.8) < 0.02
    assert abs(len(replaced) / selected.sum() - 0.1) < 0.015
    assert not set(replaced.tolist()) & specials
    assert len(set(replaced.tolist())) > 0.9 * (tokenizer.vocab_size - 5)
    assert abs(selected[:, :90].mean(axis=0).std() / selected.mean()) < 0.2, "no position is preferred"


def test_a_sequence_of_unknown_tokens_has_a_target(tokenizer: Tokenizer) -> None:
    tokens = np.full((3, 9), tokenizer.unk)
    text = np.arange(9) > np.array([[0], [5], [7]])
    selected = Masking.of(tokenizer, 0.15, whole_word=True).select(tokens, text, np.random.default_rng(0))
    assert (selected.sum(axis=1) == 1).all()
    assert not (selected & ~text).any()


def test_whole_words_are_selected(tokenizer: Tokenizer) -> None:
    continuing = np.flatnonzero(tokenizer.continues_word)
    starting = np.flatnonzero(~tokenizer.continues_word)[5:]
    random = np.random.default_rng(1)
    tokens = np.where(
        random.random((300, 60)) < 0.5, *(random.choice(ids, (300, 60)) for ids in (continuing, starting))
    )
    tokens[:, 0] = starting[0]
    text = np.ones(tokens.shape, dtype=bool)
    text[:, -1] = False  # the position of [SEP]
    selected = Masking.of(tokenizer, 0.15, whole_word=True).select(tokens, text, random)
    same_word = tokenizer.continues_word[tokens[:, 1:-1]]
    assert (selected[:, 1:-1] == selected[:, :-2])[same_word].all()
    counts = selected.sum(axis=1)
    assert counts.min() >= 1
    assert counts.max() <= max(round(0.15 * 59), 20)
    assert 0.11 < selected[:, :-1].mean() < 0.15


# The task


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(3)
    texts = []
    for _ in range(120):
        count = random.integers(2, 7)
        sentences = (random.choice(WORDS, random.integers(2, 9)).tolist() for _ in range(count))
        texts.append("\n".join(" ".join(words) + " ." for words in sentences))
    path = tmp_path_factory.mktemp("library") / "library.txt"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


def prepare(
    library: Path, model: dict[str, Any] | None = None, **settings: Any
) -> tuple[PretrainTask, Splits[EncodedPassages], TaskObjective]:
    model = TINY if model is None else model
    task = PretrainSettings(**({"context_length": 32} | settings))
    settings_type = registry.models.load(model["name"]).Settings
    data = DataSettings(source=str(library))
    config = TaskConfig(task=task, data=data, model=settings_type(**model))
    prepared, splits = reading.prepare(PretrainTask, config)
    return prepared, splits, TaskObjective.of(prepared, splits)


def bert_for_pretraining(network: Any) -> Any:
    """Returns the same network in `transformers`."""
    from transformers import BertConfig, BertForPreTraining

    own = {name: tensor.detach() for name, tensor in network.named_parameters()}
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    inner, positions = (own[f"backbone.{name}"] for name in ("blocks.0.feedforward.hidden.bias", "positions.weight"))
    sizes |= {"intermediate_size": len(inner), "max_position_embeddings": len(positions)}
    config = BertConfig(vocab_size=len(own["input.weight"]), attn_implementation="eager", **sizes)
    names = {
        "input.": "bert.embeddings.word_embeddings.",
        "input.segments.": "bert.embeddings.token_type_embeddings.",
        "backbone.positions.": "bert.embeddings.position_embeddings.",
        "backbone.norm.": "bert.embeddings.LayerNorm.",
        "head.pooler.": "bert.pooler.dense.",
        "head.masked.dense.": "cls.predictions.transform.dense.",
        "head.masked.norm.": "cls.predictions.transform.LayerNorm.",
        "head.masked.": "cls.predictions.",
        "head.next.": "cls.seq_relationship.",
    }
    for index in range(2):
        block, layer = f"backbone.blocks.{index}.", f"bert.encoder.layer.{index}."
        names |= {
            f"{block}attention.inputs.": f"{layer}attention.self.",
            f"{block}attention.output.": f"{layer}attention.output.dense.",
            f"{block}attention_norm.": f"{layer}attention.output.LayerNorm.",
            f"{block}feedforward.hidden.": f"{layer}intermediate.dense.",
            f"{block}feedforward.output.": f"{layer}output.dense.",
            f"{block}feedforward_norm.": f"{layer}output.LayerNorm.",
        }
    tensors = {}
    for name, tensor in own.items():
        module, _, parameter = name.rpartition(".")
        target = names[f"{module}."]
        if target.endswith("self."):
            parts = zip(("query", "key", "value"), tensor.chunk(3), strict=True)
            tensors |= {f"{target}{part}.{parameter}": chunk for part, chunk in parts}
        else:
            tensors[f"{target}{parameter}"] = tensor
    model = BertForPreTraining(config).eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all("decoder" in name or "position_ids" in name for name in missing)
    model.tie_weights()
    return model


def test_loss_and_gradients_are_those_of_bert_for_pretraining(library: Path) -> None:
    task, splits, objective = prepare(library)
    network = task.build(splits.train).eval()
    batch = objective.batch(3, 0, 6, 6)
    loss = task.loss(task.forward(network, batch), batch)
    (loss / batch.count).backward()
    theirs = bert_for_pretraining(network)
    labels = torch.full(batch.inputs.shape, -100)
    labels.view(-1)[batch.targets["positions"]] = batch.targets["tokens"]
    segments = network.input.segments_of(batch.inputs)
    mask = torch.ones_like(batch.inputs) if batch.mask is None else batch.mask.long()
    unrelated = batch.targets["unrelated"]
    output = theirs(batch.inputs, mask, segments, labels=labels, next_sentence_label=unrelated)
    output.loss.backward()
    assert 0 < int(unrelated.sum()) < 6
    torch.testing.assert_close(loss / batch.count, output.loss, rtol=1e-5, atol=1e-6)
    named = dict(theirs.named_parameters())
    for own, other in {
        "input.weight": "bert.embeddings.word_embeddings.weight",
        "input.segments.weight": "bert.embeddings.token_type_embeddings.weight",
        "head.pooler.weight": "bert.pooler.dense.weight",
        "head.masked.dense.weight": "cls.predictions.transform.dense.weight",
        "head.masked.bias": "cls.predictions.bias",
        "head.next.weight": "cls.seq_relationship.weight",
    }.items():
        torch.testing.assert_close(network.get_parameter(own).grad, named[other].grad, rtol=1e-4, atol=1e-6)
    assert set(segments[0].tolist()) == {0, 1}


@pytest.mark.parametrize("settings", [{}, {"whole_word": True}, {"next": False}, {"masked": False}])
def test_dividing_a_step_changes_nothing(library: Path, settings: dict[str, Any]) -> None:
    """Gradients of a global batch at once, and in parts with different numbers of masked tokens."""
    task, splits, objective = prepare(library, **settings)
    network = task.build(splits.train).double().eval()

    def gradients(bounds: list[int]) -> list[torch.Tensor]:
        network.zero_grad()
        batches = [objective.batch(5, first, last, 12) for first, last in pairwise(bounds)]
        count = sum(batch.count for batch in batches)
        for batch in batches:
            (task.loss(task.forward(network, batch), batch) / count).backward()
        return [parameter.grad.clone() for parameter in network.parameters()]

    whole = gradients([0, 12])
    torch.testing.assert_close(whole, gradients([0, 1, 5, 12]), rtol=1e-9, atol=1e-12)
    assert all(gradient.abs().sum() > 0 for gradient in whole)
    assert task.unit == ("pairs" if settings == {"masked": False} else "masked tokens")


@pytest.mark.parametrize(
    ("settings", "loss"),
    [({}, 4.822848469922037), ({"whole_word": True, "next": False}, 4.08863451688186)],
)
def test_training_gives_the_recorded_losses(library: Path, settings: dict[str, Any], loss: float) -> None:
    task, splits, objective = prepare(library, **settings)
    network = task.build(splits.train).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(4):
        batch = objective.batch(step, 0, 6, 6)
        optimizer.zero_grad()
        (task.loss(task.forward(network, batch), batch) / batch.count).backward()
        optimizer.step()
    assert task.evaluate(network, splits["validation"]).metrics["loss"] == pytest.approx(loss, rel=1e-5)


def test_a_teacher_teaches_both(library: Path) -> None:
    task, splits, objective = prepare(library)
    network, batch = task.build(splits.train).eval(), objective.batch(0, 0, 6, 6)
    output = task.forward(network, batch)
    assert output.features is not None
    assert len(output.features) == batch.count
    assert task.distillation_loss(output, output, 2.0).item() == pytest.approx(0.0, abs=1e-4)
    scores = output.scores
    other = scores._replace(next=scores.next + torch.tensor([0.0, 1.0]))
    logs = [(pairs / 2.0).log_softmax(dim=-1) for pairs in (scores.next, other.next)]
    expected = 4.0 * batch.count / 6 * (logs[1].exp() * (logs[1] - logs[0])).sum()
    distance = task.distillation_loss(output, replace(output, scores=other), 2.0)
    torch.testing.assert_close(distance, expected, rtol=1e-3, atol=1e-4)
    assert task.teacher_mismatches(task.predictor(network)) == []
    single, parts, _ = prepare(library, next=False)
    assert task.teacher_mismatches(single.predictor(single.build(parts.train))) == ["it was not trained for pairs"]


def test_metrics_are_means_of_fixed_draws(library: Path) -> None:
    task, splits, _ = prepare(library)
    network = task.build(splits.train)
    metrics = task.evaluate(network, splits.train).metrics
    assert math.isclose(metrics["loss"], metrics["masked_loss"] + metrics["next_loss"])
    assert math.isclose(metrics["masked_perplexity"], math.exp(metrics["masked_loss"]))
    again, parts, _ = prepare(library)
    assert again.evaluate(network.train(), parts.train).metrics == metrics
    # During training fewer spans are evaluated: they are drawn as among all.
    spans, some = splits.train.items.numbers, task.sample_split(splits.train, 4_000).items.numbers
    assert 0 < len(some) < len(spans)
    whole = [row for rows in task.draw_evaluated(splits.train, spans) for row in rows.inputs.tolist()]
    few = [row for rows in task.draw_evaluated(splits.train, some) for row in rows.inputs.tolist()]
    without_padding = [[token for token in row if token] for row in (*few, *(whole[span] for span in some))]
    assert without_padding[: len(few)] == without_padding[len(few) :]


def test_the_baseline_is_the_entropy_of_single_tokens(library: Path) -> None:
    task, splits, _ = prepare(library)
    (metrics,) = task.baselines(splits, ["test"])["test"].values()
    counts = Counter(splits.train.items.passages.tokens.tolist())
    total = sum(counts.values()) + 0.5 * task.processor.tokenizer.vocab_size
    drawn = list(task.draw_evaluated(splits["test"], splits["test"].items.numbers))
    masked = [token for rows in drawn for token in rows.tokens[rows.selected].tolist()]
    expected = -sum(math.log((counts[token] + 0.5) / total) for token in masked) / len(masked)
    assert math.isclose(metrics["masked_loss"], expected)
    assert metrics["next_loss"] == pytest.approx(math.log(2))
    assert metrics["next_accuracy"] == 0.5


def test_masks_are_drawn_anew_in_every_epoch(library: Path) -> None:
    _, splits, objective = prepare(library)
    rows = len(splits.train.items) // 2 * 2
    inputs = [set(map(tuple, objective.batch(step, 0, rows, rows).inputs.tolist())) for step in (0, 1)]
    assert len(inputs[0] & inputs[1]) < rows / 10


def test_pairs_may_come_first(library: Path) -> None:
    task, splits, objective = prepare(library, pairs_first=2)
    masked = [len(objective.batch(step, 0, 4, 4).targets["positions"]) > 0 for step in range(4)]
    assert masked == [False, False, True, True]
    batch = objective.batch(0, 0, 4, 4)
    output = task.forward(task.build(splits.train), batch)
    expected = torch.nn.functional.cross_entropy(output.scores.next, batch.targets["unrelated"], reduction="sum")
    assert task.loss(output, batch).item() == expected.item()
    assert batch.count == 4


@pytest.mark.parametrize(
    ("values", "settings", "pairs_first"),
    [
        ({}, {}, 400),
        ({"train": {"steps": 50}}, {}, 10),
        ({"train": {"steps": 50_000}}, {}, 400),
        ({"start": "runs/x"}, {}, 0),
        ({}, {"next": False}, 0),
    ],
)
def test_pairs_first_is_limited(values: dict[str, Any], settings: dict[str, Any], pairs_first: int) -> None:
    resolved = PretrainTask.resolve_settings(PretrainSettings(pairs_first=400, **settings), values)
    assert resolved.model_dump()["pairs_first"] == pairs_first


@pytest.mark.parametrize(
    ("model", "settings", "code"),
    [
        ({"name": "gpt"}, {}, "task.causal"),
        ({"name": "lstm", "bidirectional": False}, {}, "task.causal"),
        ({"name": "ngram"}, {}, "task.model"),
        ({"name": "bert"}, {"masked": False, "next": False}, "task.heads"),
        ({"name": "bert"}, {"tokenizer": {"kind": "word"}}, "tokenizer.special"),
        ({"name": "bert", "context_length": 16}, {}, "model.context"),
    ],
)
def test_contradictions_are_refused(library: Path, model: dict[str, Any], settings: dict[str, Any], code: str) -> None:
    def build() -> None:
        task, splits, _ = prepare(library, model, **settings)
        task.build(splits.train)

    with pytest.raises(SeriatimError) as caught:
        build()
    assert caught.value.code == code


def test_a_vocabulary_size_alone_keeps_the_tokenizer_of_bert() -> None:
    settings = PretrainSettings.model_validate({"tokenizer": {"vocab_size": 100}})
    assert settings.tokenizer == TokenizerSettings(kind="bert", lowercase=True, vocab_size=100)


def test_documents_on_disk_are_those_in_memory(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "library.txt"
    source.write_text(library.read_text() + "\n\n" + "The end\nof it .\n" * 30)
    task, splits, objective = prepare(source)
    options = DataSettings.read_options
    monkeypatch.setattr(DataSettings, "read_options", lambda self: replace(options(self), memory_limit=100))
    monkeypatch.setattr(bulk, "BLOCK_BYTES", 2_000)
    for _ in range(2):  # written, then from the cache
        again, disk = reading.prepare(PretrainTask, task.config, processor=task.processor)
        assert isinstance(disk.train.rows["text"], TextValues)
        assert isinstance(disk.train.items.passages.tokens, np.memmap)
        for name in splits:
            own, other = splits[name].items.passages, disk[name].items.passages
            np.testing.assert_array_equal(own.tokens, other.tokens)
            np.testing.assert_array_equal(own.first, other.first)
        batches = (made.batch(1, 0, 4, 4).inputs for made in (objective, TaskObjective.of(again, disk)))
        assert torch.equal(*batches)


def test_the_processor_is_stored(library: Path, tmp_path: Path) -> None:
    task, _, _ = prepare(library)
    values, tokenizers = task.processor.to_dict()
    for name, tokenizer in tokenizers.items():
        tokenizer.save(tmp_path / name)
    stored = from_dict(json.loads(json.dumps(values)), tmp_path)
    assert (stored.max_length, stored.paired, stored.titled) == (32, True, False)
    assert stored.tokenizer.to_json() == task.processor.tokenizer.to_json()


def test_views_count_every_masked_token(library: Path) -> None:
    task, splits, _ = prepare(library)
    evaluation = task.evaluate(task.build(splits.train), splits.train)
    views: dict[str, Any] = {view.title: view for view in task.views(evaluation)}
    tokens = evaluation.metrics["tokens"]
    for title in (
        "Masked tokens by frequency",
        "Masked tokens by kind",
        "Masked tokens by what the model read instead",
    ):
        assert sum(row[-1] for row in views[title].rows) == tokens
    assert np.sum(views["Does the second passage follow?"].counts) == len(splits.train.items)
    assert len(views["Filled masks"].rows) == 10
    assert task.sample(evaluation).count("[") >= 3


# Filled masks


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> FillMaskPredictor:
    """An encoder of sentences that state four facts: trained in a moment."""
    folder = tmp_path_factory.mktemp("capitals")
    facts = {"france": "paris", "italy": "rome", "spain": "madrid", "greece": "athens"}
    lines = [f"The capital of {land.capitalize()} is {town.capitalize()} ." for land, town in facts.items()]
    random = np.random.default_rng(0)
    (folder / "text.txt").write_text("\n\n".join("\n".join(random.choice(lines, 4)) for _ in range(200)))
    model = {"name": "gru", "width": 32, "bidirectional": True}
    task, splits, objective = prepare(folder / "text.txt", model, context_length=20)
    network = task.build(splits.train).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for step in range(150):
        batch = objective.batch(step, 0, 16, 16)
        optimizer.zero_grad()
        (task.loss(task.forward(network, batch), batch) / batch.count).backward()
        optimizer.step()
    metrics = task.evaluate(network, splits["test"]).metrics
    (baseline,) = task.baselines(splits, ["test"])["test"].values()
    assert metrics["masked_loss"] < 0.5 * baseline["masked_loss"]
    filler = task.predictor(network)
    assert isinstance(filler, FillMaskPredictor)
    return filler


def test_masks_are_filled_with_what_was_learned(predictor: FillMaskPredictor) -> None:
    texts = ["The capital of [MASK] is Paris .", "The capital of Spain is [MASK] [MASK]"]
    first, second = predictor.call("fill", texts)
    assert first["text"] == "The capital of france is Paris ."
    assert second["text"] == "The capital of Spain is madrid ."
    assert [len(record["masks"]) for record in (first, second)] == [1, 2]
    probabilities = [candidate["probability"] for candidate in first["masks"][0]]
    assert len(probabilities) == 5
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] > 0.5
    (alone,) = predictor.call("fill", texts[:1], top=2)
    assert [candidate["probability"] for candidate in alone["masks"][0]] == pytest.approx(probabilities[:2], rel=1e-4)


def test_two_texts_are_judged(predictor: FillMaskPredictor, tmp_path: Path) -> None:
    pair = ("The capital of Spain is Madrid .", "The capital of [MASK] is Rome .")
    (record,) = predictor.call("fill", [pair])
    assert predictor.call("fill", ["\t".join(pair)]) == [record]
    assert 0 < record["follows"] < 1
    assert record["text"] == [pair[0], pair[1].replace("[MASK]", "italy")]
    (tmp_path / "new.csv").write_text("text\nThe capital of [MASK] is Rome .\n[MASK] capital\n")
    records = predictor.call("fill", tmp_path / "new.csv")
    assert [record["text"] for record in records] == ["The capital of italy is Rome .", "the capital"]
    assert "follows" not in records[0]


def test_texts_without_masks_are_reported_at_once(predictor: FillMaskPredictor) -> None:
    with pytest.raises(SeriatimError) as caught:
        predictor.call("fill", ["Nothing masked .", "The [MASK] of Spain", "Nor here ."])
    assert caught.value.code == "predict.input"
    assert "input 1" in caught.value.cause
    assert "input 3" in caught.value.cause
    assert "input 2" not in caught.value.cause
    with pytest.raises(SeriatimError, match="beyond the 20 tokens"):
        predictor.call("fill", ["capital " * 30 + "[MASK]"])


def test_model_input_and_usage(predictor: FillMaskPredictor) -> None:
    model_input = predictor.model_input(["The [MASK] of spain"])
    assert model_input.sequences == [{"element": ["[CLS]", "the", "[MASK]", "of", "spain", "[SEP]"]}]
    assert [usage.shell.split()[1] for usage in predictor.usage("runs/x")] == ["fill", "embed"]


def test_an_encoder_without_heads_only_embeds(tokenizer: Tokenizer) -> None:
    """What an imported encoder is: its processor has a tokenizer and a length, and its head only a pooler."""
    settings = PretrainSettings(masked=False, next=False)
    model = registry.models.load("bert").Settings(**TINY)
    processor = PretrainProcessor.from_pretrained({"tokenizer": tokenizer}, 32)
    task = PretrainTask(TaskConfig(task=settings, data=DataSettings(source=""), model=model), processor, Layout())
    network = task.network(model)
    assert {name.split(".")[1] for name, _ in network.named_parameters() if name.startswith("head.")} == {"pooler"}
    predictor = task.predictor(network)
    with pytest.raises(SeriatimError) as caught:
        predictor.call("fill", ["the [MASK] cat"])
    assert caught.value.code == "predict.capability"
    vectors = np.stack([record["vector"] for record in predictor.call("embed", ["the old cat", "a dog"])])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


# How a new network starts


@pytest.mark.parametrize("preset", ["tiny", "mini"])
def test_new_heads_attend_to_neighbors_and_to_the_same_word_of_the_other_text(preset: str) -> None:
    torch.manual_seed(0)
    settings = registry.models.load("bert").Settings(name="bert", preset=preset)
    inputs = settings.token_input(1_000, 3)
    bert = settings.build(inputs.embedding_dim, 128).eval()
    tokens = torch.randint(5, 1_000, (8, 101))
    tokens[:, 0], tokens[:, 50], tokens[:, 100] = 2, 3, 3  # [CLS] a [SEP] b [SEP]
    tokens[:, 20] = tokens[:, 80] = 4
    trace: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        bert(inputs(tokens), None, None, trace)
    positions = torch.arange(1, 100)
    first, second = trace["layer0.attention"], trace["layer1.attention"]
    assert first[:, 0, positions, positions - 1].mean() > 0.9
    assert second[:, 0, positions, positions + 1].mean() > 0.5
    same = first[:, 1, 80, 20]  # the one word of b that a has
    assert same.median() > 0.3
    assert first[:, 1, 80, 0].median() < 0.5 < 10 * first[:, 1, 60:79, 0].mean()
    assert (same > first[:, 1, 60:79, 20].mean(dim=1)).all()
