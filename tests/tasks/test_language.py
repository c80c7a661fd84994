"""Language models: streams and their splits, batches, exact evaluation, n-grams, generation and scores."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seriatim.core import registry
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.core.state import detach
from seriatim.data import bulk, shards
from seriatim.data.disk import TextValues
from seriatim.data.sequences import Sequences
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.models.ngram import NGram
from seriatim.nn.network import load_weights, token_network, weights
from seriatim.tasks import reading
from seriatim.tasks.base import Batch, DataSettings, TaskConfig
from seriatim.tasks.language import engine
from seriatim.tasks.language import task as language_task
from seriatim.tasks.language.engine import NetworkEngine
from seriatim.tasks.language.spec import GenerateOptions, LanguageSettings
from seriatim.tasks.language.stream import LanguageProcessor, Stream
from seriatim.tasks.language.task import (
    LanguageModelPredictor,
    LanguageTask,
    read_arpa,
)
from seriatim.tasks.predictor import Predictor, Request
from seriatim.tasks.processor import from_dict
from seriatim.tasks.values import Splits
from seriatim.training.objective import TaskObjective

LINES = "".join(f"line {i:04d} of the text\n" for i in range(1000))
TINY: dict[str, dict[str, Any]] = {
    "gpt": {"width": 8, "heads": 2, "layers": 2, "context_length": 12},
    "tcn": {"width": 6, "levels": 2, "kernel": 2},
    "mlp": {"width": 6, "window": 3, "layers": 2},
}
BACKBONES = ["rnn", "lstm", "gru", "tcn", "mlp", "gpt"]


def model_settings(name: str, **settings: Any) -> Any:
    sizes = {} if name == "ngram" else TINY.get(name, {"width": 6})
    return registry.models.load(name).Settings(name=name, **(sizes | settings))


@dataclass
class Prepared:
    """A task with its data, and the notes of its preparation."""

    task: LanguageTask
    splits: Splits[Stream]
    diagnostics: Diagnostics

    @classmethod
    def of(cls, config: TaskConfig[Any], processor: LanguageProcessor | None = None) -> Prepared:
        diagnostics = Diagnostics()
        return cls(*reading.prepare(LanguageTask, config, processor=processor, diagnostics=diagnostics), diagnostics)

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        return TaskObjective.of(self.task, self.splits).batch(step, first, last, batch_size)

    def build(self) -> Any:
        return self.task.build(self.splits.train)

    def fit(self, model: Any = None, limit: int | None = None) -> NGram:
        return self.task.fit(model or self.task.config.model, self.splits.train, self.diagnostics, limit)

    def evaluate(self, network: Any, split: str, limit: int | None = None) -> dict[str, float]:
        part = self.splits[split]
        part = part if limit is None else self.task.sample_split(part, limit)
        return dict(self.task.evaluate(network, part).metrics)

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        return self.task.baselines(self.splits, [split])[split]


def prepare(source: Any, model: str = "lstm", data: Any = None, seed: int = 3, **settings: Any) -> Prepared:
    """Returns the task and the data of a source; keywords are settings of the task, and `model_…` of the model."""
    sizes = {key.removeprefix("model_"): settings.pop(key) for key in list(settings) if key.startswith("model_")}
    task = LanguageSettings(**({"context_length": 12} | settings))
    values = DataSettings(source=str(source), **(data or {}))
    return Prepared.of(TaskConfig(task=task, data=values, model=model_settings(model, **sizes), seed=seed))


def tokens(prepared: Prepared, split: str) -> np.ndarray:
    return np.asarray(prepared.splits[split].items.tokens[:]).astype(np.int64)


def texts(prepared: Prepared) -> list[str]:
    return [prepared.task.processor.tokenizer.decode(tokens(prepared, split)) for split in prepared.splits]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text(LINES)
    return tmp_path / "lines.txt"


# Streams and their splits


def test_contiguous_split_at_line_starts(lines: Path) -> None:
    config = TaskConfig(task=LanguageSettings(), data=DataSettings(source=str(lines)), model=model_settings("lstm"))
    prepared = Prepared.of(config)
    diagnostics, parts = prepared.diagnostics, texts(prepared)
    assert "".join(parts) == LINES
    assert [part.count("\n") for part in parts] == [900, 50, 50]
    assert any(note.startswith("split 90 / 5 / 5 % (contiguous)") for note in diagnostics.notes)
    assert {"train: 19,800 tokens", "validation: 1,100 tokens", "test: 1,100 tokens"} <= set(diagnostics.notes)


def test_split_without_lines_is_at_characters(tmp_path: Path) -> None:
    text = "é𝄞a" * 1000
    (tmp_path / "a.txt").write_text("x\n" + text)
    task = prepare(tmp_path / "a.txt", data={"fractions": (0.5, 0.25, 0.25)})
    assert "".join(texts(task)) == "x\n" + text
    assert len(tokens(task, "train")) == pytest.approx(1500, abs=2)


def test_the_tokenizer_is_trained_on_the_training_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefghi\n" * 90 + "abcdefghZ\n" * 10)
    task = prepare(tmp_path / "a.txt")
    assert task.task.processor.tokenizer.unknown("Z") == ["Z"]
    assert "validation: 50 tokens, 5 of them (10 %) <unk>" in task.diagnostics.notes
    fallback = prepare(tmp_path / "a.txt", tokenizer={"byte_fallback": True})
    assert texts(fallback)[2] == "abcdefghZ\n" * 5


def test_rows_of_a_table_are_documents(tmp_path: Path) -> None:
    rows = [f"row {i:02d}" for i in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    task = prepare(tmp_path / "a.jsonl", data={"fractions": (0.5, 0.25, 0.25)})
    eos = task.task.processor.tokenizer.eos
    joined = np.concatenate([tokens(task, split) for split in task.splits])
    documents = np.split(joined, np.flatnonzero(joined == eos) + 1)
    assert [task.task.processor.tokenizer.decode(part) for part in documents] == [*rows, ""]
    assert tokens(task, "train")[-1] == eos, "the cut is between documents"


def test_words_have_one_eos_per_line_also_at_the_end_of_a_document(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("a b\nb\n" * 20)
    (folder / "b.txt").write_text("b a\nb")
    task = prepare(folder, data={"fractions": (1, 0, 0)}, tokenizer={"kind": "word"})
    assert texts(task) == ["a b\nb\n" * 20 + "b a\nb\n"]


def test_named_files_and_fractions_of_zero(lines: Path, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("line 1\n")
    (tmp_path / "t.txt").write_text("text 2\n")
    named = {"validation": str(tmp_path / "v.txt"), "test": str(tmp_path / "t.txt")}
    assert texts(prepare(lines, data=named)) == [LINES, "line 1\n", "text 2\n"]
    assert texts(prepare(lines, data={"fractions": (1, 0, 0)})) == [LINES]
    train, test = texts(prepare(lines, data={"fractions": (0.9, 0, 0.1)}))
    assert (train + test, test.count("\n")) == (LINES, 100)


@pytest.mark.parametrize("text", ["a", "ab", "short", "a line\nand one\n"])
def test_too_short_to_split(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(SeriatimError) as caught:
        prepare(tmp_path / "a.txt")
    assert caught.value.code == "data.too-short"


def test_too_short_for_a_sequence(lines: Path) -> None:
    with pytest.raises(SeriatimError, match="sequences of 20000 need 20,001") as caught:
        prepare(lines, context_length=20_000).batch(0, 0, 1, 1)
    assert caught.value.code == "data.too-short"


def test_fingerprint_follows_the_content(lines: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_text(LINES)
    first = prepare(lines).splits.fingerprint
    assert prepare(copy).splits.fingerprint == first
    copy.write_text(LINES.replace("0500", "9999"))
    assert prepare(copy).splits.fingerprint != first


def test_other_data_with_the_tokenizer_of_the_run(lines: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("text ☃\n")
    task, diagnostics = prepare(lines).task, Diagnostics()
    split = reading.read_split(task, str(tmp_path / "new.txt"), diagnostics=diagnostics)
    other = Prepared(task, Splits({split.name: split}), diagnostics)
    assert texts(other) == ["text <unk>\n"]
    assert "test: 7 tokens, 1 of them (14 %) <unk>" in diagnostics.notes
    with pytest.raises(SeriatimError, match="there is no validation split"):
        other.evaluate(nn.Linear(1, 1), "validation")


GAPS = "".join(line + ("\n" if n % 3 else " \n \n\n  ") for n, line in enumerate(LINES.split("\n")[:300])) + "ende"


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "byte-bpe", "unigram"])
@pytest.mark.parametrize("form", ["file", "folder", "table"])
def test_tokens_on_disk_are_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, form: str
) -> None:
    """Tokens do not depend on the blocks, shards and batches in which a stream is read and encoded."""
    source = tmp_path / {"file": "a.txt", "folder": "folder", "table": "a.jsonl"}[form]
    if form == "file":
        source.write_text(GAPS)
    elif form == "folder":
        source.mkdir()
        for n in range(3):
            (source / f"{n}.txt").write_text(GAPS[n * 3000 : (n + 1) * 3000] + "\n" * (n % 2))
    else:
        source.write_text("".join(json.dumps({"text": GAPS[n : n + 500]}) + "\n" for n in range(0, 6000, 500)))
    settings = {"tokenizer": {"kind": kind, "vocab_size": 300}}
    memory = prepare(source, **settings)
    options = DataSettings.read_options
    monkeypatch.setattr(DataSettings, "read_options", lambda self: replace(options(self), memory_limit=100))
    monkeypatch.setattr(bulk, "BLOCK_BYTES", 2_000)
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 3_000)
    monkeypatch.setattr(shards, "BATCH_CHARACTERS", 1_000)
    disk = Prepared.of(memory.task.config, memory.task.processor)
    assert isinstance(disk.splits.train.rows["text"], TextValues)
    assert disk.splits.fingerprint == memory.splits.fingerprint
    for split in memory.splits:
        np.testing.assert_array_equal(tokens(memory, split), tokens(disk, split))
    sampled = [one.task.sample_split(one.splits.train, 800).items for one in (memory, disk)]
    np.testing.assert_array_equal(*[items.tokens for items in sampled])
    np.testing.assert_array_equal(*[items.spans for items in sampled])
    assert torch.equal(memory.batch(2, 0, 3, 4).inputs, disk.batch(2, 0, 3, 4).inputs)
    if form == "file":
        whole = memory.task.processor.tokenizer.encode("".join(memory.splits.train.rows["text"]), strict=False)
        np.testing.assert_array_equal(tokens(memory, "train"), whole)


# Batches and evaluation


@pytest.mark.parametrize("model", ["gpt", "lstm"])
def test_batches_are_pure_functions_of_the_step(book: Path, model: str) -> None:
    task = prepare(book, model)
    whole = task.batch(7, 0, 6, 6)
    parts = [task.batch(7, first, first + 2, 6) for first in (0, 2, 4)]
    assert torch.equal(whole.inputs, torch.cat([part.inputs for part in parts]))
    assert torch.equal(whole.inputs[:, 1:], whole.targets[:, :-1])
    first, second = (task.batch(step, 0, 4, 4) for step in (0, 1))
    assert first.fresh
    assert second.fresh == (model == "gpt")
    if model == "lstm":
        assert torch.equal(first.targets[:, -1], second.inputs[:, 0]), "sequences continue those of the step before"
    assert not torch.equal(task.batch(0, 0, 4, 4).inputs, prepare(book, model, seed=4).batch(0, 0, 4, 4).inputs)


def test_loss_is_a_sum_with_label_smoothing(book: Path) -> None:
    task = prepare(book, "gru")
    network, batch = task.build(), task.batch(0, 0, 4, 4)
    output = task.task.forward(network, batch)
    logits, _ = network(batch.inputs)
    expected = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), label_smoothing=0.1)
    assert task.task.loss(output, batch, 0.1).item() / batch.count == pytest.approx(expected.item(), rel=1e-5)
    assert task.task.distillation_loss(output, output, 2.0).item() == pytest.approx(0, abs=1e-3)
    assert output.features is not None
    assert len(output.features) == batch.count


@pytest.mark.parametrize("kind", ["char", "bpe", "word"])
def test_bits_per_byte_are_those_of_the_whole_text(kind: str, tmp_path: Path) -> None:
    """A uniform model spends log₂ V bits on each token, and 8 more for each byte of an unknown one."""
    text = "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.\n" * 40
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    held_out = tmp_path / "held_out.txt"
    held_out.write_text("Zwölf Ψ jagen den Deich.\n" * 4, encoding="utf-8")
    task = prepare(file, "gru", tokenizer={"kind": kind, "vocab_size": 64}, data={"validation": str(held_out)})
    network = task.build()
    for parameter in network.head.parameters():
        parameter.data.zero_()
    ids, tokenizer = tokens(task, "validation"), task.task.processor.tokenizer
    unknown = 0 if tokenizer.unk is None else int((ids == tokenizer.unk).sum())
    bits = math.log2(tokenizer.vocab_size) * len(ids)
    size = len(held_out.read_bytes())
    metrics = task.evaluate(network, "validation")
    assert metrics["bits_per_byte"] == pytest.approx((bits + 8 * unknown * size / len(ids)) / size)
    assert metrics["bits_per_character"] == pytest.approx(bits / len(held_out.read_text(encoding="utf-8")))
    assert unknown == (4 if kind in ("char", "word") else unknown)


@pytest.mark.parametrize("model", ["lstm", "gpt"])
def test_evaluation_is_the_mean_over_all_tokens(book: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, rows and padding of the evaluation against one pass over the whole split."""
    task = prepare(book, model)
    network = task.build().eval()
    stream = torch.from_numpy(tokens(task, "validation"))[None]
    chunk = stream.shape[1] if model == "lstm" else 12
    losses = []
    with torch.no_grad():
        for start in range(0, stream.shape[1] - 1, chunk):
            logits, _ = network(stream[:, start : start + chunk][:, : stream.shape[1] - 1 - start])
            targets = stream[0, start + 1 : start + chunk + 1]
            losses.append(F.cross_entropy(logits[0, : len(targets)], targets, reduction="sum").item())
    expected = sum(losses) / (stream.shape[1] - 1)
    monkeypatch.setattr(engine, "EVALUATION_ROWS", 1)
    metrics = task.evaluate(network, "validation")
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert metrics["bits_per_character"] == pytest.approx(expected / math.log(2), rel=0.01)
    assert metrics["bits_per_byte"] == pytest.approx(metrics["bits_per_character"])  # the book is ASCII
    assert metrics["tokens"] == stream.shape[1] - 1
    monkeypatch.undo()
    assert task.evaluate(network, "validation")["loss"] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("model", ["gru", "tcn", "gpt", "ngram"])
def test_last_words_are_those_of_lines_scored_alone(tmp_path: Path, model: str) -> None:
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "dogs"]
    lines = [" ".join(words[k % 7 :] + words[: k % 3]) for k in range(60)] + ["dogs"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    files = dict.fromkeys(("validation", "test"), str(tmp_path / "lines.txt"))
    task = prepare(tmp_path / "lines.txt", model, files, last_word=True, tokenizer={"kind": "word"})
    network = task.fit() if model == "ngram" else task.build()
    predictor = task.task.predictor(network)
    assert isinstance(predictor, LanguageModelPredictor)
    last = [predictor.engine.score(predictor.encode_scored(line))[-1] for line in lines]
    value = task.evaluate(network, "test")["last_word_perplexity"]
    assert value == pytest.approx(math.exp(-np.mean(last)), rel=1e-5)
    sampled = task.task.sample_split(task.splits["test"], 4 * 64)
    parts = list(sampled.items.parts())
    assert len(parts) == 4
    eos = task.task.processor.tokenizer.eos
    whole = [line for part in parts for line in task.task.processor.tokenizer.decode(part).split("\n")[:-1] if line]
    assert 4 < len(whole) < sum(1 + part.tolist().count(eos) for part in parts), "the rest of a last line is not read"
    last = [predictor.engine.score(predictor.encode_scored(line))[-1] for line in whole]
    value = task.evaluate(network, "test", limit=4 * 64)["last_word_perplexity"]
    assert value == pytest.approx(math.exp(-np.mean(last)), rel=1e-5)
    assert math.isfinite(task.evaluate(network, "test", limit=1)["loss"])


# Samples


@pytest.mark.parametrize("limit", [1, 100, 700, 3_000])
def test_a_sample_is_the_same_text_whatever_the_tokenizer(book: Path, limit: int) -> None:
    """Evenly spaced parts of it, counted in characters, that begin and end with a word."""
    texts, spans = [], []
    for kind in ("char", "byte-bpe", "word"):
        prepared = prepare(book, tokenizer={"kind": kind, "vocab_size": 300})
        sampled = prepared.task.sample_split(prepared.splits.train, limit).items
        decode = prepared.task.processor.tokenizer.decode
        texts.append([decode(part).split() for part in sampled.parts()])
        spans.append((sampled.characters, sampled.size, sum(map(len, sampled.parts())) - sampled.targets))
    assert texts[0] == texts[1] == texts[2]
    assert spans[0] == spans[1] == spans[2]
    characters, _, parts = spans[0]
    assert parts == len(texts[0]) == min(max(limit // 64, 1), 16)
    assert 0.5 * limit <= characters <= max(limit, 64)
    text = "".join(prepared.splits.train.rows["text"])
    words = text.split()
    assert all(word in words for part in texts[0] for word in part)
    whole = prepared.task.sample_split(prepared.splits.train, len(text))
    assert whole is prepared.splits.train, "a split that is small enough is its own sample"


@pytest.mark.parametrize("model", ["lstm", "gpt", "ngram"])
def test_the_loss_of_a_sample_is_the_mean_over_its_parts(book: Path, model: str) -> None:
    prepared = prepare(book, model)
    network = prepared.fit() if model == "ngram" else prepared.build()
    engine = prepared.task.predictor(network).engine
    sampled = prepared.task.sample_split(prepared.splits.train, 1_200)
    parts = [Stream(Sequences.of([part.astype(np.int64)])) for part in sampled.items.parts()]
    losses, targets = [engine.stream_loss(part) for part in parts], [part.targets for part in parts]
    metrics = prepared.task.evaluate(network, sampled).metrics
    assert metrics["loss"] == pytest.approx(np.average(losses, weights=targets), rel=1e-5)
    assert metrics["tokens"] == sum(targets)
    bits = metrics["loss"] / math.log(2) * len(sampled.items.tokens)
    assert metrics["bits_per_character"] == pytest.approx(bits / sampled.items.characters)


def test_last_words_need_tokens_that_are_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="last_word is for tokens that are words"):
        LanguageSettings(last_word=True)


def test_the_baseline_is_the_entropy_of_single_tokens(book: Path) -> None:
    task = prepare(book)
    counts = np.bincount(tokens(task, "train"), minlength=task.task.processor.tokenizer.vocab_size) + 0.5
    expected = -np.log(counts / counts.sum())[tokens(task, "test")[1:]].mean()
    assert task.baselines("test")["token frequencies"]["loss"] == pytest.approx(expected)


def test_an_ngram_model_stands_beside_networks(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bounded size; it is no baseline of itself."""
    task, counted = prepare(book), prepare(book, "ngram", model_order=5)
    expected = counted.evaluate(counted.fit(), "test")
    actual = task.baselines("test")["5-gram"]
    assert actual == {name: expected[name] for name in actual}
    assert actual["loss"] < task.baselines("test")["token frequencies"]["loss"]
    assert list(counted.baselines("test")) == ["token frequencies"]
    monkeypatch.setattr(language_task, "BASELINE_TOKENS", 500)
    limited = prepare(book).baselines("test")["5-gram of 500 tokens"]
    assert limited["loss"] == pytest.approx(counted.evaluate(counted.fit(limit=500), "test")["loss"])
    assert limited["loss"] > actual["loss"]


def test_a_bidirectional_model_is_refused(book: Path) -> None:
    with pytest.raises(SeriatimError, match="a bidirectional gru reads the token") as caught:
        prepare(book, "gru", model_bidirectional=True).build()
    assert caught.value.code == "task.not-causal"


def test_mismatches_of_a_teacher(book: Path) -> None:
    task = prepare(book, context_length=10)
    assert task.task.teacher_mismatches(task.task.predictor(task.build())) == []
    other = prepare(book, "gpt", context_length=6, model_context_length=6, tokenizer={"kind": "word"})
    sentences = task.task.teacher_mismatches(other.task.predictor(other.build()))
    assert sentences[0] == "its tokenizer is of kind char, the teacher's of kind word"
    assert sentences[-1] == "sequences have up to 10 elements, the teacher reads 6 (--context-length)"


def test_the_processor_is_stored(book: Path, tmp_path: Path) -> None:
    task = prepare(book, tokenizer={"kind": "word"})
    values, tokenizers = task.task.processor.to_dict()
    for name, tokenizer in tokenizers.items():
        tokenizer.save(tmp_path / name)
    stored = from_dict(json.loads(json.dumps(values)), tmp_path)
    assert stored.tokenizer.to_json() == task.task.processor.tokenizer.to_json()


# N-grams


@pytest.mark.parametrize("kind", ["char", "word"])
def test_an_ngram_model_is_fitted_restored_and_resized(book: Path, kind: str) -> None:
    task = prepare(book, "ngram", tokenizer={"kind": kind})
    model = task.fit()
    boundary = task.task.processor.tokenizer.eos if kind == "word" else None
    assert model.scorer.boundary == boundary
    assert task.evaluate(model, "test")["loss"] < 0.5 * task.baselines("test")["token frequencies"]["loss"]
    restored = task.task.network(task.task.config.model)
    load_weights(restored, weights(model))
    assert task.evaluate(restored, "test") == task.evaluate(model, "test")
    samples = [task.task.sample(task.task.evaluate(one, task.splits["validation"])) for one in (restored, model)]
    assert samples[0] == samples[1] != ""
    resized = task.task.resize(task.task.config.model, task.splits.train, 300)
    assert 200 < task.fit(resized).entries <= 300


def test_ngram_models_have_neither_weights_nor_vectors(book: Path) -> None:
    task = prepare(book, "ngram")
    predictor = task.task.predictor(task.fit())
    for call in (lambda: predictor.quantize(), lambda: predictor.call("embed", ["the"])):
        with pytest.raises(SeriatimError) as caught:
            call()
        assert caught.value.code in ("run.gradient-free", "predict.capability")


def test_without_smoothing_an_unknown_context_has_no_distribution(book: Path) -> None:
    task = prepare(book, "ngram", model_smoothing="none", model_order=4)
    predictor = task.task.predictor(task.fit())
    with pytest.raises(SeriatimError) as caught:
        predictor.call("next", ["ttttt"])
    assert caught.value.code == "model.no-distribution"
    assert predictor.call("generate", ["ttttt"])[0]["text"] == ""


@pytest.mark.parametrize("kind", ["char", "word"])
def test_arpa_files_are_models(book: Path, tmp_path: Path, kind: str) -> None:
    task = prepare(book, "ngram", tokenizer={"kind": kind, "split_punctuation": False}, model_order=3)
    model = task.fit()
    model.write_arpa(tmp_path / "model.arpa", task.task.processor.tokenizer.names)
    again, processor = read_arpa(tmp_path / "model.arpa")
    imported = Prepared.of(task.task.config.model_copy(update={"model": again.settings}), processor)
    assert imported.evaluate(again, "test")["loss"] == pytest.approx(task.evaluate(model, "test")["loss"], rel=1e-4)
    (score,) = imported.task.predictor(again).call("score", ["the old cat"])
    (expected,) = task.task.predictor(model).call("score", ["the old cat"])
    assert score["log_probability"] == pytest.approx(expected["log_probability"], rel=1e-4)


# Generation and scores


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="char"), ["abcdefgh \n"])


def random_predictor(model: str, tokenizer: Tokenizer, **settings: Any) -> LanguageModelPredictor:
    """Returns the predictor of a network with random double-precision weights that never ends a text."""
    torch.manual_seed(1)
    network = token_network(model_settings(model), tokenizer.vocab_size, 12).double()
    for parameter in network.parameters():
        parameter.data.normal_(std=0.5)
    bias = torch.randn(tokenizer.vocab_size).double()
    bias[tokenizer.eos] = -30.0
    network.head.bias = nn.Parameter(bias)
    task = LanguageSettings(context_length=12, **settings)
    config = TaskConfig(task=task, data=DataSettings(source=""), model=model_settings(model))
    return LanguageModelPredictor(LanguageTask(config, LanguageProcessor(tokenizer), reading.Layout()), network)


def generate(predictor: Predictor, prompts: list[str], **options: Any) -> list[dict[str, Any]]:
    return list(predictor.call("generate", prompts, **options))


@pytest.mark.parametrize("model", BACKBONES)
@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 30, "seed": 5},
        {"max_tokens": 30, "temperature": 0},
        {"max_tokens": 10, "top_k": 3, "top_p": 0.9, "repetition_penalty": 1.3},
        {"max_tokens": 6, "beams": 3, "nbest": 2},
        {"max_tokens": 6, "beams": 3, "min_tokens": 4, "no_repeat_ngram": 2},
    ],
)
def test_neighbors_never_change_a_text(model: str, options: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Ragged prompts in a batch against each alone, beyond the context of those that have one."""
    predictor = random_predictor(model, tokenizer)
    prompts = ["abc", "", "a" * 20, "hgfedcba", "abc"]
    together = generate(predictor, prompts, **options)
    for prompt, record in list(zip(prompts, together, strict=True))[:4]:
        (alone,) = generate(predictor, [prompt], **options)
        assert record["text"] == alone["text"]
        assert record["log_probability"] == pytest.approx(alone["log_probability"])


@pytest.mark.parametrize("model", BACKBONES)
def test_score_is_what_generation_reports(model: str, tokenizer: Tokenizer) -> None:
    """Also for texts longer than the model's context."""
    predictor = random_predictor(model, tokenizer)
    for prompt, options in (
        ("ab", {"max_tokens": 40, "seed": 2}),
        ("a" * 30, {"max_tokens": 9, "temperature": 0}),
        ("", {"max_tokens": 8, "beams": 3}),
    ):
        (record,) = generate(predictor, [prompt], **options)
        (score,) = predictor.call("score", [prompt + record["text"]])
        pieces = score["token_log_probabilities"]
        assert sum(value for _, value in pieces[len(prompt) :]) == pytest.approx(record["log_probability"], rel=1e-4)
        assert score["log_probability"] == pytest.approx(sum(value for _, value in pieces))
        assert score["perplexity"] == pytest.approx(math.exp(-score["log_probability"] / score["tokens"]))
        assert "".join(name for name, _ in pieces) == (prompt + record["text"]).replace(" ", "␣").replace("\n", "↵")


@pytest.mark.parametrize("model", BACKBONES)
def test_next_is_a_distribution(model: str, tokenizer: Tokenizer) -> None:
    records = random_predictor(model, tokenizer).call("next", ["abc"], top=1000, unit="token")
    probabilities = [record["probability"] for record in records]
    assert len(records) == tokenizer.vocab_size
    assert sum(probabilities) == pytest.approx(1)
    assert probabilities == sorted(probabilities, reverse=True)


@pytest.mark.parametrize("model", ["lstm", "gpt"])
@pytest.mark.parametrize("options", [{"seed": 1}, {"temperature": 0.0}, {"seed": 2, "stop": ["ab", "c"], "top_k": 5}])
def test_a_stream_has_the_text_of_generate(model: str, options: dict[str, Any], tokenizer: Tokenizer) -> None:
    predictor = random_predictor(model, tokenizer)
    (record,) = generate(predictor, ["abc"], max_tokens=40, **options)
    request = Request("generate", ["abc"], {"max_tokens": 40, **options}, stream=True)
    parts = [part.records[0] for part in predictor.execute(request)]
    pieces = [piece["text"] for piece in parts]
    assert "".join(pieces) == record["text"]
    assert {**parts[-1], "text": record["text"]} == pytest.approx(record)
    assert len(pieces) > 1 or len(record["text"]) <= 3
    with pytest.raises(SeriatimError, match="cannot be streamed"):
        next(iter(predictor.execute(Request("generate", ["abc"], {"beams": 2}, stream=True))))


def test_a_stream_yields_whole_characters() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="byte-bpe", vocab_size=300), ["é𝄞 ä\n" * 50])
    predictor = random_predictor("gru", tokenizer)
    (record,) = generate(predictor, ["é"], max_tokens=30, seed=3)
    pieces = predictor.stream("é", GenerateOptions(max_tokens=30, seed=3))
    assert "".join(piece["text"] for piece in pieces) == record["text"]


def test_stop_strings_end_a_text(tokenizer: Tokenizer) -> None:
    predictor = random_predictor("lstm", tokenizer)
    (free,) = generate(predictor, ["ab"], max_tokens=60, seed=1)
    stop = free["text"][20:22]
    (stopped,) = generate(predictor, ["ab"], max_tokens=60, seed=1, stop=[stop])
    assert stopped["text"] == free["text"][: free["text"].index(stop)]
    assert stopped["finished"]


def test_seeds_and_copies(tokenizer: Tokenizer) -> None:
    predictor = random_predictor("gru", tokenizer)
    (first,) = generate(predictor, ["ab"], nbest=3, max_tokens=20)
    assert len(set(first["text"])) == len(first["log_probability"]) == 3
    assert generate(predictor, ["ab"], nbest=3, max_tokens=20) == [first]
    assert generate(predictor, ["ab"], nbest=3, max_tokens=20, seed=1) != [first]
    twice = generate(predictor, ["ab", "ab"], max_tokens=20)
    assert twice[0]["text"] != twice[1]["text"], "the same prompt twice gives two samples"


def test_int8_is_nearly_the_same(book: Path) -> None:
    task = prepare(book, "lstm", model_width=32)
    predictor = task.task.predictor(task.build())
    text = "the old cat saw the hat."
    (exact,), (rounded,) = predictor.call("score", [text]), predictor.call("score", [text], int8=True)
    assert rounded["log_probability"] != exact["log_probability"]
    assert rounded["log_probability"] == pytest.approx(exact["log_probability"], rel=0.01)
    quantized = predictor.quantize()
    assert quantized.call("score", [text]) == [rounded]
    options = {"max_tokens": 20, "temperature": 0}
    assert quantized.call("generate", ["the"], **options) == predictor.call("generate", ["the"], int8=True, **options)


def test_a_text_is_read_behind_a_line_end_unless_the_settings_say_no(tokenizer: Tokenizer) -> None:
    line_end = tokenizer.encode("\n")
    predictor = random_predictor("lstm", tokenizer)
    np.testing.assert_array_equal(predictor.encode_prompt("ab"), [*line_end, *tokenizer.encode("ab")])
    plain = random_predictor("lstm", tokenizer, line_start=False)
    np.testing.assert_array_equal(plain.encode_prompt("ab"), tokenizer.encode("ab"))
    np.testing.assert_array_equal(plain.encode_prompt(""), line_end)
    (score,) = plain.call("score", ["ab"])
    assert score["tokens"] == 1
    (single,) = plain.call("score", ["a"])
    assert [name for name, _ in single["token_log_probabilities"]] == ["a"]


def test_unknown_characters_are_an_error_and_unknown_words_are_not(book: Path) -> None:
    task = prepare(book)
    with pytest.raises(SeriatimError) as caught:
        task.task.predictor(task.build()).call("score", ["the ☃"])
    assert caught.value.code == "tokenizer.unknown"
    words = prepare(book, tokenizer={"kind": "word"})
    (score,) = words.task.predictor(words.build()).call("score", ["the snowman"])
    assert score["token_log_probabilities"][-1][0] == "<unk>"


def test_words_of_a_continuation_are_separated(book: Path) -> None:
    task = prepare(book, "ngram", tokenizer={"kind": "word"})
    predictor = task.task.predictor(task.fit())
    (record,) = generate(predictor, ["the old"], max_tokens=3, temperature=0)
    assert record["text"].startswith(" ")
    assert ("the old" + record["text"]).split()[2] in ("cat", "dog")
    assert not {"<unk>"} & set(record["text"].split())


def test_model_input_is_what_the_network_reads(tokenizer: Tokenizer) -> None:
    predictor = random_predictor("gru", tokenizer)
    model_input = predictor.model_input(["ab c", "a"])
    assert model_input.sequences == [{"element": ["↵", "a", "b", "␣", "c"]}, {"element": ["↵", "a"]}]
    assert model_input.batch.inputs.shape == (2, 5)
    assert model_input.batch.mask is not None
    assert model_input.batch.mask.sum() == 7
    hidden = predictor.task.hidden_states(predictor.network, model_input.batch)
    assert hidden.shape == (2, 5, 6)


def test_capabilities_are_declared(tokenizer: Tokenizer) -> None:
    predictor = random_predictor("gru", tokenizer)
    assert list(predictor.capabilities)[:3] == ["generate", "next", "score"]
    assert predictor.capabilities["generate"].scalar
    assert {"embed", "nearest", "words"} <= predictor.capabilities.keys()
    assert isinstance(predictor.engine, NetworkEngine)
    usage = [(line.shell, line.python) for line in predictor.usage("runs/x")]
    assert usage[0] == ('seriatim generate runs/x "a"', 'print(run.generate("a"))'), "words of known characters only"


@pytest.mark.parametrize(
    ("model", "kind", "loss"),
    [
        ("lstm", "char", 3.0072729305531136),
        ("lstm", "bpe", 3.898410341521945),
        ("gpt", "char", 2.750393328935694),
        ("gpt", "bpe", 3.428381723391187),
    ],
)
def test_training_gives_the_recorded_losses(lines: Path, model: str, kind: str, loss: float) -> None:
    """Four steps of stochastic gradient descent, with carried states where there are some."""
    sizes = {"model_width": 16} if model == "lstm" else {"model_context_length": None}
    task = prepare(lines, model, tokenizer={"kind": kind, "vocab_size": 60}, **sizes)
    network = task.build().train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    state = None
    for step in range(4):
        batch = task.batch(step, 0, 8, 8)
        output = task.task.forward(network, batch, None if batch.fresh else state)
        optimizer.zero_grad()
        (task.task.loss(output, batch) / batch.count).backward()
        optimizer.step()
        state = detach(output.state)
    assert task.evaluate(network, "validation")["loss"] == pytest.approx(loss, rel=1e-6)


def test_the_settings_of_an_unknown_model_are_refused(book: Path) -> None:
    task = prepare(book, "gru")
    with pytest.raises(SeriatimError) as caught:
        task.fit()
    assert caught.value.code == "task.model"
    assert isinstance(prepare(book, "ngram").fit(model_settings("ngram")), NGram)


def test_a_named_file_replaces_only_its_split(tmp_path: Path) -> None:
    """The other splits of a folder are not trained on because a validation file is named."""
    folder, other = tmp_path / "texts", tmp_path / "other.txt"
    folder.mkdir()
    for name, word in (("train", "cat"), ("valid", "cow"), ("test", "dog")):
        (folder / f"{name}.txt").write_text(f"a {word} sat\n" * 40, encoding="utf-8")
    other.write_text("a cat\n" * 20, encoding="utf-8")
    task = prepare(folder, data={"validation": str(other)}, tokenizer={"kind": "word"})
    names = set(task.task.processor.tokenizer.names)
    assert "cat" in names
    assert not {"cow", "dog"} & names
    assert [len(task.splits[split].rows) > 0 for split in ("train", "validation", "test")] == [True] * 3
