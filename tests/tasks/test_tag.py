"""Tagging: words, sub-words and windows, metrics as seqeval computes them, files that come back line for line."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import seriatim
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.sequences import Sequences
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.nn.layers import PADDING, CharacterFeatures, WordInput
from seriatim.nn.network import load_weights, weights
from seriatim.report.charts import Confusion, Table, views_to_json
from seriatim.tasks import reading
from seriatim.tasks.base import DataSettings
from seriatim.tasks.capability import NoOptions
from seriatim.tasks.processor import from_dict
from seriatim.tasks.tag.processor import TagEncoded, TagProcessor, overlapping_windows
from seriatim.tasks.tag.task import TagPredictor, TagTask
from seriatim.training.objective import TaskObjective
from tag_cases import MODELS, configure, prepare, write_conll


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_conll(tmp_path_factory.mktemp("tagged"))


def item_scores(predictor: TagPredictor, encoded: TagEncoded, item: int) -> np.ndarray:
    """Returns the scores of an item that is alone in its batch."""
    with torch.inference_mode():
        batch = predictor.task.collate(encoded, np.array([item]))
        return predictor.task.unbatch(predictor.task.forward(predictor.network, batch), batch)[0]


# Batches


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["word", "bpe", "wordpiece"])
def test_neighbors_and_padding_change_nothing(data: Path, model: str, kind: str) -> None:
    settings = {} if kind == "word" else {"tokenizer": {"kind": kind, "vocab_size": 60}}
    _task, splits, predictor = prepare(data, model, task=settings)
    encoded = splits["validation"].items
    for item, scores in enumerate(predictor.scores(encoded)):
        np.testing.assert_allclose(scores, item_scores(predictor, encoded, item), rtol=1e-9)
    assert np.array_equal(encoded.item_words(np.arange(len(encoded))), np.arange(len(encoded.word_forms)))


def test_character_features_are_a_convolution() -> None:
    torch.manual_seed(0)
    features = CharacterFeatures(9, 5).double()
    characters = torch.tensor([[2, 4, 5, 6, 3], [2, 7, 3, PADDING, PADDING]])
    result = features(characters)
    weight, bias = features.convolve.weight, features.convolve.bias
    for row, length in ((0, 5), (1, 3)):
        vectors = features.embed(characters[row, :length])
        values = [torch.einsum("kc,ock->o", vectors[t : t + 3], weight) + bias for t in range(length - 2)]
        torch.testing.assert_close(result[row], torch.stack(values).amax(dim=0).relu())


def test_words_are_dropped_in_training_only() -> None:
    words = torch.nn.Embedding(4, 3)
    layer = WordInput(words, 5, 0, 0.999999, 1)
    x = torch.tensor([[2, 3]])
    torch.testing.assert_close(layer.train()(x), words.weight[[1, 1]][None])
    torch.testing.assert_close(layer.eval()(x), words.weight[[2, 3]][None])


def test_two_halves_of_a_batch_have_the_loss_of_the_whole(data: Path) -> None:
    task, splits, predictor = prepare(data)
    objective = TaskObjective.of(task, splits)
    batches = [objective.batch(3, *part, 8) for part in ((0, 8), (0, 4), (4, 8))]
    whole, first, second = (task.loss(task.forward(predictor.network, batch), batch).item() for batch in batches)
    assert first + second == pytest.approx(whole, rel=1e-9)
    assert batches[0].count == batches[1].count + batches[2].count


# Sub-words


@pytest.mark.parametrize("kind", ["word", "wordpiece", "bpe", "byte-bpe", "char", "unigram"])
def test_each_word_is_tagged_at_its_first_token(kind: str) -> None:
    sentences = [["walking", "Mary"], ["x"], ["Mary", "ing", "walk"]]
    texts = [" ".join(words) for words in sentences] * 20
    size = 280 if kind == "byte-bpe" else 24
    tokenizer = Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=size, split_punctuation=False), texts)
    encoded = TagProcessor(("A", "B"), tokenizer=tokenizer).encode_words(sentences)
    word = 0
    for row, words in enumerate(sentences):
        blank = "" if kind in ("word", "wordpiece") else " "
        tokens = [tokenizer.encode(blank + word, strict=False).tolist() for word in words]
        assert encoded.inputs[row].tolist() == [token for ids in tokens for token in ids]
        first = np.cumsum([0, *(len(ids) for ids in tokens[:-1])])
        tagged = encoded.tagged_words[encoded.inputs.starts[row] : encoded.inputs.ends[row]]
        assert np.flatnonzero(tagged >= 0).tolist() == first.tolist()
        assert tagged[first].tolist() == list(range(word, word + len(words)))
        word += len(words)


TEXT = "the students opened their books, didn't they? unbelievably naïve Äpfel cost 42 pounds"
SENTENCE = TEXT.split()
TEXTS = [" ".join(SENTENCE[start : start + length]) for start in range(6) for length in (1, 4, 7)]


@pytest.fixture(scope="module")
def bert_tokenizer() -> Tokenizer:
    settings = TokenizerSettings(kind="bert", vocab_size=90, lowercase=True)
    return Tokenizer.train(settings, [f"{text}\n" for text in TEXTS])


@pytest.fixture(scope="module")
def long_and_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [[f"{word}\t{'LONG' if len(word) > 4 else 'SHORT'}" for word in text.split()] + [""] for text in TEXTS * 4]
    file = tmp_path_factory.mktemp("bert") / "tagged.conll"
    file.write_text("\n".join(line for sentence in lines for line in sentence), encoding="utf-8")
    return file


def test_sub_words_equal_those_of_transformers(bert_tokenizer: Tokenizer, tmp_path: Path) -> None:
    bert_tokenizer.save(tmp_path / "tokenizer.json")
    names = {f"{use}_token": f"[{use.upper()}]" for use in ("pad", "unk", "cls", "sep", "mask")}
    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), **names)
    sentences = [text.split() for text in TEXTS] + [["\u200b", "books"], ["Äpfel", "[MASK]", "我想"]]
    processor = TagProcessor(("A", "B"), tokenizer=bert_tokenizer)
    encoded = processor.cut_windows(processor.encode_words(sentences))
    word = 0
    for row, words in enumerate(sentences):
        expected = peer(words, is_split_into_words=True)
        ids, owners = expected["input_ids"], [None, *expected.word_ids()]
        first = [now for before, now in pairwise(owners) if now is not None and now != before]
        if "\u200b" in words:  # a word without a visible character is a word all the same
            ids.insert(1, bert_tokenizer.unk)
            first = [0, 1]
        tagged = encoded.tagged_words[encoded.inputs.starts[row] : encoded.inputs.ends[row]]
        assert encoded.inputs[row].tolist() == ids
        assert (tagged[tagged >= 0] - word).tolist() == first == list(range(len(words)))
        word += len(words)


@pytest.mark.parametrize("model", ["lstm", "bert", "gpt"])
@pytest.mark.parametrize("length", [None, 6])
def test_cls_and_sep_around_every_window(
    model: str, length: int | None, bert_tokenizer: Tokenizer, long_and_short: Path
) -> None:
    _task, splits, predictor = prepare(long_and_short, model, tokenizer=bert_tokenizer, task={"context_length": length})
    encoded = splits["validation"].items
    assert not isinstance(predictor.network.input, WordInput)
    assert length is None or encoded.lengths.max() == length
    ends = [encoded.inputs[item][[0, -1]].tolist() for item in range(len(encoded))]
    assert ends == [[bert_tokenizer.cls, bert_tokenizer.sep]] * len(encoded)
    for item, scores in enumerate(predictor.scores(encoded)):
        np.testing.assert_allclose(scores, item_scores(predictor, encoded, item), rtol=1e-9)
    words = encoded.item_words(np.arange(len(encoded)))
    assert np.array_equal(np.sort(words), np.arange(len(encoded.word_forms)))


def test_what_does_not_go_with_sub_words(bert_tokenizer: Tokenizer, long_and_short: Path) -> None:
    with pytest.raises(SeriatimError, match="no character features"):
        prepare(long_and_short, tokenizer=bert_tokenizer, task={"character_features": 8})
    with pytest.raises(SeriatimError, match="a window of 2 has no room"):
        prepare(long_and_short, tokenizer=bert_tokenizer, task={"context_length": 2})
    task, _splits, predictor = prepare(long_and_short, "bert", task={"character_features": 8})  # which need words
    assert task.processor.tokenizer is not None
    assert task.processor.tokenizer.kind == "word"
    assert isinstance(predictor.network.input, WordInput)


def test_sentences_are_separate_texts_of_the_tokenizer(long_and_short: Path) -> None:
    task, _splits, _ = prepare(long_and_short)
    assert task.processor.tokenizer is not None
    names = set(task.processor.tokenizer.names)
    assert {"the", "books,", "they?"} <= names
    assert names <= {word.lower() for word in SENTENCE} | {"<unk>", "<eos>"}


# Windows


@pytest.mark.parametrize("size", [2, 3, 4, 7, 10])
def test_windows_tag_every_element_once(size: int) -> None:
    for length in range(1, 40):
        windows = overlapping_windows(length, size)
        tagged = [start + step for start, _, first, end in windows for step in range(first, end)]
        assert tagged == list(range(length))
        margin = (size // 2) // 2
        for start, count, first, end in windows:
            assert count == min(size, length)
            assert start + count <= length
            assert start == 0 or first >= margin
            assert start + count == length or count - end >= margin


def test_windows_equal_the_whole_if_they_cover_the_receptive_field() -> None:
    """A TCN with kernel 2 and 2 levels sees 3 elements back; the margin of a window of 32 is 8."""
    task, _splits, predictor = prepare("copy:5", "tcn")
    numbers = np.random.default_rng(0).integers(0, 2, 150)
    sentences = [[str(number) for number in part] for part in (numbers, numbers[:20], numbers[:64])]
    results = []
    for max_length in (None, 32):
        processor = replace(task.processor, max_length=max_length)
        encoded = processor.cut_windows(processor.encode_words(sentences))
        results.append(predictor.predict_words(encoded))
        assert (encoded.lengths.max() == 32) == (max_length == 32)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "sections"), [("gpt", {"model": {"context_length": 4}}), ("lstm", {"task": {"context_length": 4}})]
)
def test_long_sentences_are_read_in_windows(data: Path, model: str, sections: dict[str, Any]) -> None:
    notes: list[str] = []
    task, splits, predictor = prepare(data, model, notes, **sections)
    assert any("are read in windows of 4, which overlap by half" in note for note in notes)
    for encoded in (part.items for part in splits.parts.values()):
        assert encoded.lengths.max() == 4
        words = encoded.tagged_words[encoded.tagged_words >= 0]
        assert np.array_equal(np.sort(words), np.arange(len(encoded.word_forms)))
    assert task.evaluate(predictor.network, splits["test"]).metrics["words"] == len(splits["test"].items.word_forms)
    assert len(predictor.call("tag", [["the"] * 50])[0]["tags"]) == 50


def test_a_bounded_model_reads_longer_sentences_later(data: Path) -> None:
    task, _splits, predictor = prepare(data, "gpt")
    assert task.processor.max_length == task.processor.longest == predictor.network.backbone.context_length
    assert len(predictor.call("tag", [["the"] * 300])[0]["tags"]) == 300


# Metrics


def test_metrics_equal_seqeval_on_the_predicted_file(data: Path) -> None:
    from seqeval.metrics import f1_score, precision_score, recall_score

    task, splits, predictor = prepare(data)
    metrics = task.evaluate(predictor.network, splits["test"]).metrics
    assert list(metrics) == ["loss", "accuracy", "precision", "recall", "f1", "error", "words"]
    predictions = predictor.call("tag", data / "test.conll")
    blocks = predictor.format_file(".conll", predictions).split("\n\n")
    cells = [[line.split("\t") for line in block.split("\n") if line] for block in blocks]
    references, predicted = ([[row[column] for row in sentence] for sentence in cells] for column in (1, 2))
    assert metrics["f1"] == pytest.approx(f1_score(references, predicted), abs=1e-12)
    assert metrics["precision"] == pytest.approx(precision_score(references, predicted), abs=1e-12)
    assert metrics["recall"] == pytest.approx(recall_score(references, predicted), abs=1e-12)
    assert metrics["error"] == pytest.approx(1 - metrics["f1"])
    correct = [row[1] == row[2] for sentence in cells for row in sentence]
    assert metrics["accuracy"] == pytest.approx(np.mean(correct))


def test_the_loss_is_the_mean_over_words(data: Path) -> None:
    task, splits, predictor = prepare(data)
    encoded = splits["validation"].items
    batch = task.collate(encoded, np.arange(len(encoded)))
    scores, _ = predictor.network(batch.inputs, batch.mask)
    losses = -scores.log_softmax(-1).gather(-1, batch.targets.clamp(min=0)[..., None])[..., 0]
    expected = losses[batch.targets >= 0].mean().item()
    assert task.evaluate(predictor.network, splits["validation"]).metrics["loss"] == pytest.approx(expected, rel=1e-9)


def test_the_baseline_predicts_the_usual_tag_of_each_word(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("a X\na X\na Y\nb Y\n\nc X\nc Y\nd X\n", encoding="utf-8")
    for name in ("validation", "test"):
        (tmp_path / f"{name}.conll").write_text("a X\nb X\nc X\nnew X\nnew Y\n", encoding="utf-8")
    task, splits, _ = prepare(tmp_path)
    expected = {"accuracy": 0.6, "error": 0.4, "words": 5.0}
    assert task.baselines(splits, ["validation"]) == {"validation": {"most frequent tag of the word": expected}}


def test_other_data_is_evaluated_without_the_training_split(data: Path) -> None:
    task, splits, predictor = prepare(data)
    other = task.evaluate(predictor.network, reading.read_split(task, data / "test.conll"))
    assert other.metrics == task.evaluate(predictor.network, splits["test"]).metrics
    titles = [view.title for view in task.views(other)]
    assert "Most confident mistakes" in titles
    assert "Known and new words" not in titles


def test_views_add_up(data: Path) -> None:
    task, splits, predictor = prepare(data)
    evaluation = task.evaluate(predictor.network, splits["test"])
    views: dict[str, Any] = {view.title: view for view in task.views(evaluation)}
    json.dumps(views_to_json(list(views.values())), allow_nan=False)
    words = len(splits["test"].items.word_forms)
    confusion, tags, known = (views[title] for title in ("Confusion of tags", "Scores by tag", "Known and new words"))
    types, mistakes = views["Entities by type"], views["Most confident mistakes"]
    assert isinstance(confusion, Confusion)
    assert all(isinstance(view, Table) for view in (tags, known, types, mistakes))
    assert sum(map(sum, confusion.counts)) == words
    assert sum(row[-1] for row in tags.rows) == words
    assert sum(row[-1] for row in known.rows) == words
    assert types.rows[-1][3] == pytest.approx(evaluation.metrics["f1"])
    confidences = [row[-1] for row in mistakes.rows]
    assert confidences == sorted(confidences, reverse=True)


# Odd data


def test_empty_sentences_and_single_words(data: Path) -> None:
    _, _, predictor = prepare(data)
    records = predictor.call("tag", [[], ["Mary"], "", "the Mary.", []])
    assert [len(record["tags"]) for record in records] == [0, 1, 0, 3, 0]
    alone = predictor.call("tag", [["Mary"]])[0]
    assert alone["tags"] == records[1]["tags"]
    assert alone["confidence"] == pytest.approx(records[1]["confidence"])


def test_unseen_tags_are_noted_and_count_as_wrong(data: Path, tmp_path: Path) -> None:
    (tmp_path / "v.conll").write_text("Mary\tB-name\nfoo\tB-ship\n", encoding="utf-8")
    notes: list[str] = []
    task, splits, predictor = prepare(data, notes=notes, data={"validation": str(tmp_path / "v.conll")})
    expected = 'validation: 1 word has a tag that the training split does not have, such as "B-ship" (v.conll, line 2)'
    assert any(note.startswith(expected) for note in notes)
    evaluation = task.evaluate(predictor.network, splits["validation"])
    metrics = evaluation.metrics
    assert metrics["accuracy"] <= 0.5
    assert metrics["recall"] <= 0.5
    assert np.isfinite(metrics["loss"])
    json.dumps(views_to_json(task.views(evaluation)), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ("a X\nb X\n\nc X\n", "data.one-tag", 'every word of the training split has the tag "X"'),
        ("", "data.empty", "train.conll"),
        ("a X\nb\n", "data.columns", "train.conll, line 2"),
        ("a B-x\nb O\n\nc NOUN\n", "data.scheme", 'train.conll, line 4: "NOUN" is not a tag of BIO'),
    ],
)
def test_training_files_that_cannot_be_used(data: Path, tmp_path: Path, text: str, code: str, cause: str) -> None:
    (tmp_path / "train.conll").write_text(text, encoding="utf-8")
    with pytest.raises(SeriatimError) as caught:
        prepare(
            data, data={"source": str(tmp_path / "train.conll")}, task={"scheme": "bio" if "NOUN" in text else "auto"}
        )
    assert caught.value.code == code
    assert cause in caught.value.cause


def test_splits_are_consecutive(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("\n".join(f"w{n}\tX{n % 2}\n" for n in range(20)), encoding="utf-8")
    _task, splits, _ = prepare(tmp_path / "a.conll")
    words = {split: [words[0] for words in part.rows["tokens"]] for split, part in splits.parts.items()}
    assert words == {"train": [f"w{n}" for n in range(18)], "validation": ["w18"], "test": ["w19"]}


# Directions and symbols


def test_models_are_bidirectional_unless_the_user_says_otherwise(data: Path) -> None:
    def defaults(model: str, source: str = "a.conll", **settings: Any) -> dict[str, Any]:
        return dict(TagTask.model_defaults({"data": {"source": source}, "model": {"name": model, **settings}}))

    assert defaults("lstm") == {"bidirectional": True, "dropout": 0.2, "width": 128}
    assert "width" not in defaults("lstm", bidirectional=False)
    assert "width" not in defaults("mlp")
    assert defaults("lstm", "copy:10") == {}


def test_copy_memory_is_tagged_at_all_steps() -> None:
    task, splits, predictor = prepare("copy:30", "gru", model={"width": 4})
    assert task.processor.tags == task.processor.symbols == tuple("0123456789")

    class Blind(torch.nn.Module):
        """Predicts blanks, and at the end any symbol: a loss of 10 ln 8 / (T + 20)."""

        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Identity()

        def head_input(self, x: torch.Tensor, mask: Any) -> tuple[torch.Tensor, None, None]:
            scores = torch.full((*x.shape, 10), -1e4)
            scores[:, :-10, 0] = 1e4
            scores[:, -10:, 1:9] = 1e4
            return scores, None, None

    metrics = task.evaluate(Blind(), splits["test"]).metrics
    assert metrics["loss"] == pytest.approx(10 * np.log(8) / 50, rel=1e-5)
    assert metrics["words"] == 1000 * 50
    accuracy = task.baselines(splits, ["test"])["test"]["most frequent tag of the word"]["accuracy"]
    assert accuracy == pytest.approx(40.25 / 50, abs=0.005)
    assert len(predictor.call("tag", ["1 2 9"])[0]["tags"]) == 3
    with pytest.raises(SeriatimError, match='does not know the symbol "x"'):
        predictor.call("tag", ["1 x"])


@pytest.mark.parametrize("crf", [False, True])
def test_the_score_of_o_is_chosen_for_f1(data: Path, crf: bool) -> None:
    """A network that always prefers O has F1 0; its bias is corrected on the validation split, once, however far."""
    notes: list[str] = []
    task, splits, predictor = prepare(data, "tcn", task={"crf": crf})
    objective, diagnostics = TaskObjective.of(task, splits), Diagnostics(notes.append)
    network, outside = predictor.network, task.processor.tags.index("O")
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    network.train()
    for step in range(25):
        batch = objective.batch(step, 0, 32, 32)
        (task.loss(task.forward(network, batch), batch) / batch.count).backward()
        optimizer.step()
        optimizer.zero_grad()
    network.eval()
    with torch.no_grad():
        network.head.bias[outside] += 7.0
    validation, test = splits["validation"], splits["test"]
    before, in_training = task.evaluate(network, test).metrics, task.evaluate(network, validation).metrics
    bias = network.head.bias.detach().clone()
    _, adapted = task.calibrate(network, validation, diagnostics)
    assert torch.equal(network.head.bias, bias), "the network itself stays as it is"
    load_weights(network, {**weights(network), **adapted})
    moved = (network.head.bias - bias).tolist()
    tag = task.processor.tags.index("B-name") if crf else outside
    assert abs(moved[tag]) > 0.9
    assert sum(map(abs, moved)) == abs(moved[tag]) == (moved[tag] if crf else -moved[tag])
    assert "(task.calibrate)" in notes[-1]
    after = task.evaluate(network, validation).metrics
    assert {**after, "loss": 0} == {**in_training, "loss": 0}  # evaluations during training know it
    assert task.evaluate(network, test).metrics["f1"] > before["f1"] + 0.1
    assert task.calibrate(network, validation, diagnostics)[1] == {}
    settings = task.settings.model_copy(update={"calibrate": False})
    plain = replace(task, config=task.config.model_copy(update={"task": settings}))
    network.head.bias.data.copy_(bias)
    assert plain.evaluate(network, validation).metrics["f1"] < after["f1"]
    assert plain.calibrate(network, validation, diagnostics)[1] == {}


# Distillation, storing, files


def test_teachers_must_have_the_same_tags(data: Path, long_and_short: Path) -> None:
    task, splits, predictor = prepare(data)
    _, _, other = prepare(long_and_short)
    assert task.teacher_mismatches(predictor) == []
    assert len(task.teacher_mismatches(other)) == 2
    batch = TaskObjective.of(task, splits).batch(0, 0, 4, 4)
    output = task.forward(predictor.network, batch)
    assert output.features is not None
    assert output.features.shape == (batch.count, 16)
    assert task.distillation_loss(output, output, 2.0).item() == pytest.approx(0, abs=1e-9)


def test_the_processor_is_stored(data: Path, tmp_path: Path) -> None:
    task, splits, _ = prepare(data)
    values, tokenizers = task.processor.to_dict()
    for name, tokenizer in tokenizers.items():
        tokenizer.save(tmp_path / name)
    processor = from_dict(json.loads(json.dumps(values)), tmp_path)
    assert replace(processor, tokenizer=None) == replace(task.processor, tokenizer=None)
    encoded = processor.encode(splits["test"].rows, Diagnostics())
    assert np.array_equal(encoded.inputs.values, splits["test"].items.inputs.values)
    assert isinstance(encoded.inputs, Sequences)


def test_text_in_training_data_is_split_at_blanks() -> None:
    rows = [{"text": "don't go .", "tags": ["A", "B", "C"]}, {"text": "go", "tags": ["B"]}] * 10
    config = configure("a.jsonl").model_copy(update={"data": DataSettings(source="<list>")})
    task, splits = reading.prepare(TagTask, config, rows)
    assert [list(tags) for tags in splits.train.rows["tags"]][:2] == [["A", "B", "C"], ["B"]]
    assert splits.train.items.forms == ["don't", "go", "."]
    assert task.predictor(task.build(splits.train)).call("tag", ["don't go."])[0]["words"] == ["don't", "go."]


def test_a_model_trained_elsewhere(bert_tokenizer: Tokenizer) -> None:
    processor = TagProcessor.from_pretrained({"tokenizer": bert_tokenizer}, 12, ("O", "B-x", "I-x"))
    assert (processor.scheme, processor.longest, processor.framed) == ("bio", 12, True)
    assert processor.cut_windows(processor.encode_words([["books"] * 30])).lengths.max() == 12


def test_charts_of_predictions(data: Path, long_and_short: Path) -> None:
    for source, kind in ((data, "table"), (long_and_short, "token_strip")):
        _, _, predictor = prepare(source)
        dataset = predictor.task.read(["Mary Smith going", ""], Diagnostics(), predictor.task.schema.inputs())
        records = predictor.call("tag", ["Mary Smith going", ""])
        charts = predictor.charts("tag", dataset, NoOptions(), records)
        assert [chart.kind for chart in charts] == [kind]


CONLLU = "# text = Mary\n1\tMary{0}\n2-3\tdon't{0}\n\n1\tthe{0}\n".format("\t_" * 8)


def test_files_come_back_with_one_more_column(data: Path, tmp_path: Path) -> None:
    _, _, predictor = prepare(data)
    mary, the = (record["tags"][0] for record in predictor.call("tag", [["Mary"], ["the"]]))
    (tmp_path / "new.conllu").write_text(CONLLU, encoding="utf-8")
    for predictions in (predictor.call("tag", tmp_path / "new.conllu"), predictor.predict(tmp_path / "new.conllu")):
        lines = predictor.format_file(".conllu", predictions).splitlines()
        assert [line.split("\t")[:10] for line in lines] == [line.split("\t") for line in CONLLU.splitlines()]
        assert [line.split("\t")[10:] for line in lines] == [[], [mary], ["_"], [], [the]]
    words = predictor.format_file(".conll", predictor.call("tag", [["Mary", "the"], ["the"]]))
    assert [line.split("\t")[0] for line in words.splitlines()] == ["Mary", "the", "", "the"]
    (tmp_path / "new.jsonl").write_text('{"id": 7, "tokens": ["Mary"]}\n{"id": 8, "tokens": ["the"]}\n')
    assert [record["prediction"] for record in predictor.predict(tmp_path / "new.jsonl")] == [[mary], [the]]


def test_train_evaluate_and_tag(data: Path, tmp_path: Path) -> None:
    files = {name: str(data / f"{name}.conll") for name in ("validation", "test")}
    settings = {"data": files, "model": {"width": 24}, "train": {"evaluate_steps": 60}}
    source = str(data / "train.conll")
    run = seriatim.train(
        "tag", source, "lstm", out=tmp_path / "run", steps=60, batch_size=16, report=False, settings=settings
    )
    metrics = run.summary["metrics"]["test"]
    assert metrics["f1"] > 0.9
    assert run.evaluate() == pytest.approx(metrics)
    assert run.evaluate(data / "test.conll") == pytest.approx(metrics)
    text = "Mary  Smith going the 7"
    record = seriatim.load(tmp_path / "run").tag(text)
    assert record["tags"] == ["B-name", "I-name", "O", "O", "O"]
    entity = {"type": "name", "text": "Mary  Smith", "first": 0, "last": 1, "start": 0, "end": 11}
    assert record["entities"] == [entity]
