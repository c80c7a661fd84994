"""The task tag: every word its own answer, whatever stands beside it, however words are cut, long or short."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from helpers import TINY
from seriatim import api
from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data import entities
from seriatim.data.sequences import Sequences
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.nn.characters import PADDING, CharacterFeatures, WordInput
from seriatim.tasks._tagger import Tagger, tagging
from seriatim.tasks._words import WordCoder, windows

tag = registry.tasks.load("tag")
MODELS = ["lstm", "gru", "rnn", "tcn", "mlp", "gpt"]


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    """A little language: names are entities of one or two words, numbers and verbs by their spelling."""
    words = []
    for _ in range(draw.randint(1, 6)):
        kind = draw.choice(["name", "verb", "number", "the"])
        if kind == "name":
            words.append((draw.choice(["Mary", "John", "Oslo"]), "B-name"))
            if draw.random() < 0.5:
                words.append((draw.choice(["Smith", "Bay"]), "I-name"))
        else:
            word = {"verb": draw.choice(["go", "see", "run"]) + "ing", "number": str(draw.randint(0, 99)), "the": "the"}
            words.append((word[kind], "O"))
    return words


def conll(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return "\n".join("".join(f"{word}\t{label}\n" for word, label in sentence(draw)) for _ in range(count))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    (folder / "train.conll").write_text(conll(120, 1), encoding="utf-8")
    (folder / "valid.conll").write_text(conll(30, 2), encoding="utf-8")
    (folder / "test.conll").write_text(conll(30, 3), encoding="utf-8")
    return folder


def configured(folder: Path, architecture: str = "lstm", **sections: dict[str, Any]) -> Any:
    values = {
        "task": {"name": "tag", **sections.get("task", {})},
        "data": {
            "source": str(folder / "train.conll"),
            "valid": str(folder / "valid.conll"),
            "test": str(folder / "test.conll"),
            **sections.get("data", {}),
        },
        "model": {"name": architecture, "width": 8, **TINY.get(architecture, {}), **sections.get("model", {})},
    }
    if architecture == "gpt" and "context" not in sections.get("model", {}):
        values["model"]["context"] = None
    return api.make_config(values)


def prepared(folder: Path, architecture: str = "lstm", **sections: dict[str, Any]) -> tuple[Any, Any]:
    config = configured(folder, architecture, **sections)
    task = tag.prepare(config)
    network = task.build(config.model).double()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return task, network.eval()


# Alone or in company


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["words", "bpe", "wordpiece"])
def test_neighbours_and_padding_change_nothing(data: Path, model: str, kind: str) -> None:
    sections = {} if kind == "words" else {"data": {"tokenizer": {"kind": kind, "size": 60}}}
    task, network = prepared(data, model, **sections)
    part = task.parts["valid"]
    together = tagging(network, part, np.arange(len(part)))
    alone = [tagging(network, part, np.array([row])) for row in range(len(part))]
    assert np.array_equal(together.words, np.arange(len(part.forms)))
    np.testing.assert_allclose(together.sure, np.concatenate([one.sure for one in alone]), rtol=1e-9)
    np.testing.assert_allclose(together.loss, np.concatenate([one.loss for one in alone]), rtol=1e-9)
    assert np.array_equal(together.best, np.concatenate([one.best for one in alone]))


def test_the_features_of_a_spelling_are_the_convolution_by_hand() -> None:
    torch.manual_seed(0)
    features = CharacterFeatures(9, 5).double()
    spelled = torch.tensor([[2, 4, 5, 6, 3], [2, 7, 3, PADDING, PADDING]])
    found = features(spelled)
    weight, bias = features.convolve.weight, features.convolve.bias
    for row, length in ((0, 5), (1, 3)):
        vectors = features.embed(spelled[row, :length])
        values = [torch.einsum("kc,ock->o", vectors[t : t + 3], weight) + bias for t in range(length - 2)]
        torch.testing.assert_close(found[row], torch.stack(values).amax(dim=0).relu())


def test_hidden_words_are_hidden_in_training_only() -> None:
    words = torch.nn.Embedding(4, 3)
    layer = WordInput(words, 5, 0, hidden=0.999999, unknown=1)
    x = torch.tensor([[2, 3]])
    torch.testing.assert_close(layer.train()(x), words.weight[[1, 1]][None])
    torch.testing.assert_close(layer.eval()(x), words.weight[[2, 3]][None])


def test_a_batch_of_two_halves_has_the_loss_of_the_whole(data: Path) -> None:
    task, network = prepared(data)
    whole = task.batch(3, 0, 8, 8)
    halves = [task.batch(3, 0, 4, 8), task.batch(3, 4, 8, 8)]
    losses = [task.loss(network, one, None, 0.0)[0].item() for one in halves]
    assert sum(losses) == pytest.approx(task.loss(network, whole, None, 0.0)[0].item(), rel=1e-9)
    assert whole.count == sum(one.count for one in halves)


# Words and their pieces


@pytest.mark.parametrize("kind", ["word", "wordpiece", "bpe", "byte-bpe", "char", "unigram"])
def test_each_word_is_answered_at_its_first_piece(kind: str) -> None:
    sentences = [["walking", "Mary"], ["x"], ["Mary", "ing", "walk"]]
    texts = [" ".join(words) for words in sentences] * 20
    size = 280 if kind == "byte-bpe" else 24
    tokenizer = Tokenizer.train(TokenizerSettings(kind=kind, size=size, punctuation=False), texts)
    coder = WordCoder("words", labels=("A", "B"), tokenizer=tokenizer)
    part = coder.encode(sentences, [["A", "B"], ["B"], ["A", "B", "C"]])
    place = 0
    for row, words in enumerate(sentences):
        blank = "" if kind in ("word", "wordpiece") else " "
        wanted = [tokenizer.encode(blank + word, strict=False).tolist() for word in words]
        assert part.inputs[row].tolist() == [piece for pieces in wanted for piece in pieces]
        first = np.cumsum([0, *(len(pieces) for pieces in wanted[:-1])])
        steps = part.where[part.inputs.starts[row] :][: len(part.inputs[row])]
        assert np.flatnonzero(steps >= 0).tolist() == first.tolist()
        assert steps[first].tolist() == list(range(place, place + len(words)))
        place += len(words)
    assert part.targets.tolist() == [0, 1, 1, 0, 1, -1]  # C is no tag of the model


# Windows


@pytest.mark.parametrize("size", [2, 3, 4, 7, 10])
def test_windows_answer_for_every_step_once(size: int) -> None:
    for length in range(1, 40):
        found = windows(length, size)
        answered = [start + step for start, _, first, end in found for step in range(first, end)]
        assert answered == list(range(length))
        for start, count, first, end in found:
            assert count == min(size, length)
            assert start + count <= length
            quarter = (size // 2) // 2
            assert start == 0 or first >= quarter
            assert start + count == length or count - end >= quarter


def long_coder(window: int | None) -> WordCoder:
    return WordCoder("symbols", labels=("a", "b"), symbols=("a", "b"), longest=window or 64, window=window)


def test_windows_equal_the_whole_where_they_cover_what_a_model_sees() -> None:
    """A TCN of kernel 2 and levels 2 sees 3 steps back… a quarter of a window of 32 is 8."""
    numbers = np.random.default_rng(0).integers(0, 2, 150)
    sequences = Sequences.of([numbers, numbers[:20], numbers[:64]])
    config = api.configure("tag", "copy:5", "tcn", {"model": TINY["tcn"]})
    torch.manual_seed(0)
    network = tag.network(config.model, long_coder(None), config.task).double().eval()
    whole = long_coder(None).encode_symbols(sequences)
    pieces = long_coder(32).encode_symbols(sequences)
    assert pieces.inputs.lengths.max() == 32
    assert len(pieces) > len(whole)
    one, other = (tagging(network, part, np.arange(len(part))) for part in (whole, pieces))
    assert np.array_equal(one.words, other.words)
    np.testing.assert_allclose(one.sure, other.sure, rtol=1e-12)


def test_a_window_that_covers_the_sentence_is_the_sentence(data: Path) -> None:
    task, network = prepared(data)
    wide = tag.TagTask(task.settings, task.coder, task.parts, 0)
    longest = task.coder.longest
    part = task.parts["valid"]
    again = tag.WordCoder(**{**task.coder.__dict__, "window": longest}).cut(part)
    assert again is part
    assert wide.evaluate(network, "valid") == task.evaluate(network, "valid")


@pytest.mark.parametrize(("model", "sections"), [("gpt", {"model": {"context": 4}}), ("lstm", {"task": {"length": 4}})])
def test_long_sentences_are_windowed_and_told(data: Path, model: str, sections: dict[str, Any]) -> None:
    task, network = prepared(data, model, **sections)
    assert any("are read in windows of 4, which overlap by half" in note for note in task.notes)
    for split in ("train", "valid", "test"):
        part = task.parts[split]
        assert part.inputs.lengths.max() == 4
        assert np.array_equal(np.sort(part.where[part.where >= 0]), np.arange(len(part.forms)))
    assert task.evaluate(network, "test")["words"] == len(task.parts["test"].forms)
    answer = Tagger(network, task.coder).predict([["the"] * 50])[0]
    assert len(answer["prediction"]) == 50


def test_a_model_with_a_limit_reads_longer_sentences_later(data: Path) -> None:
    task, network = prepared(data, "gpt")
    assert task.coder.window == task.coder.longest == network.backbone.context
    assert len(Tagger(network, task.coder).predict([["the"] * 300])[0]["prediction"]) == 300


# Measures


def test_measures_are_those_of_seqeval_on_the_predicted_file(data: Path, tmp_path: Path) -> None:
    from seqeval.metrics import f1_score, precision_score, recall_score

    task, network = prepared(data)
    found = task.evaluate(network, "test")
    assert list(found) == ["loss", "accuracy", "precision", "recall", "f1", "error", "words"]
    tagger = Tagger(network, task.coder, configured(data).data)
    rows = tagger.predict_file(str(data / "test.conll")).rows
    sentences: list[list[Any]] = [[]]
    for row in rows:
        if row:
            sentences[-1].append(row)
        else:
            sentences.append([])
    true, given = ([[row[index] for row in one] for one in sentences] for index in (1, 2))
    assert found["f1"] == pytest.approx(f1_score(true, given), abs=1e-12)
    assert found["precision"] == pytest.approx(precision_score(true, given), abs=1e-12)
    assert found["recall"] == pytest.approx(recall_score(true, given), abs=1e-12)
    assert found["error"] == pytest.approx(1 - found["f1"])
    pairs = [(t, g) for one, other in zip(true, given, strict=True) for t, g in zip(one, other, strict=True)]
    assert found["accuracy"] == pytest.approx(np.mean([t == g for t, g in pairs]))


def test_the_loss_is_the_mean_over_words(data: Path) -> None:
    task, network = prepared(data)
    part = task.parts["valid"]
    batch = task.collate("valid", np.arange(len(part)))
    scores, _ = network(batch.inputs, batch.mask)
    picked = -scores.log_softmax(-1).gather(-1, batch.targets.clamp(min=0)[..., None])[..., 0]
    assert task.evaluate(network, "valid")["loss"] == pytest.approx(picked[batch.targets >= 0].mean().item(), rel=1e-9)


def test_the_baseline_gives_each_word_its_usual_tag(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("a X\na X\na Y\nb Y\n\nc X\nc Y\nd X\n", encoding="utf-8")
    for name in ("valid", "test"):
        (tmp_path / f"{name}.conll").write_text("a X\nb X\nc X\nnew X\nnew Y\n", encoding="utf-8")
    task = tag.prepare(configured(tmp_path))
    assert task.baselines("valid") == {"most frequent tag of the word": {"accuracy": 0.6, "error": 0.4, "words": 5.0}}


def test_another_file_is_evaluated_without_the_training_part(data: Path, tmp_path: Path) -> None:
    config = configured(data)
    task = tag.prepare(config)
    task.save(tmp_path)
    network = task.build(config.model)
    other = tag.reopen_on(tmp_path, config, str(data / "test.conll"))
    assert other.evaluate(network, "test") == task.evaluate(network, "test")
    assert other.baselines("test") == {}
    titles = [view["title"] for view in other.details(network, "test")]
    assert "The mistakes it was surest of" in titles
    assert "Known and new words" not in titles


def test_views_are_plain_json_and_add_up(data: Path) -> None:
    task, network = prepared(data)
    found = task.details(network, "test")
    json.dumps(found, allow_nan=False)
    by_title = {view["title"]: view for view in found}
    words = len(task.parts["test"].forms)
    assert sum(map(sum, by_title["What was taken for what"]["counts"])) == words
    assert sum(row[-1] for row in by_title["Tag by tag"]["rows"]) == words
    assert sum(row[-1] for row in by_title["Known and new words"]["rows"]) == words
    whole = by_title["Entities, type by type"]["rows"][-1]
    assert whole[3] == pytest.approx(task.evaluate(network, "test")["f1"], abs=1e-4)
    confidences = [row[-1] for row in by_title["The mistakes it was surest of"]["rows"]]
    assert confidences == sorted(confidences, reverse=True)


# Odd data


def test_an_empty_sentence_and_one_of_a_single_word(data: Path) -> None:
    task, network = prepared(data)
    tagger = Tagger(network, task.coder)
    found = tagger.predict([[], ["Mary"], "", "the Mary.", []])
    assert [len(one["prediction"]) for one in found] == [0, 1, 0, 3, 0]
    alone = tagger.predict([["Mary"]])[0]
    assert alone["prediction"] == found[1]["prediction"]
    assert alone["confidence"] == pytest.approx(found[1]["confidence"])
    assert tagger.predict([]) == []


def test_a_tag_never_seen_in_training_is_told_and_counts_as_wrong(data: Path, tmp_path: Path) -> None:
    (tmp_path / "valid.conll").write_text("Mary\tB-name\nfoo\tB-ship\n", encoding="utf-8")
    task, network = prepared(data, data={"valid": str(tmp_path / "valid.conll")})
    told = 'valid: 1 word has a tag that the training part does not have, such as "B-ship" (valid.conll, line 2)'
    assert any(note.startswith(told) for note in task.notes)
    measures = task.evaluate(network, "valid")
    assert measures["accuracy"] <= 0.5
    assert measures["recall"] <= 0.5
    assert np.isfinite(measures["loss"])
    json.dumps(task.details(network, "valid"), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("a X\nb X\n\nc X\n", "data.one-tag", 'every word of the training part has the tag "X"'),
        ("", "data.empty", "holds no sentences"),
        ("a X\nb\n", "data.columns", "train.conll, line 2"),
    ],
)
def test_training_files_that_cannot_be(data: Path, tmp_path: Path, text: str, code: str, words: str) -> None:
    (tmp_path / "train.conll").write_text(text, encoding="utf-8")
    with pytest.raises(SeriatimError) as caught:
        prepared(data, data={"source": str(tmp_path / "train.conll")})
    assert caught.value.code == code
    assert words in caught.value.cause


def test_models_that_count_are_refused(data: Path) -> None:
    with pytest.raises(SeriatimError, match="ngram learns nothing by gradients"):
        tag.prepare(api.configure("tag", str(data / "train.conll"), "ngram"))


# Directions, symbols


def test_two_directions_unless_the_user_says_one(data: Path) -> None:
    assert configured(data).model.bidirectional
    assert not configured(data, model={"bidirectional": False}).model.bidirectional
    assert not api.configure("tag", "copy:10", "lstm").model.bidirectional
    config = api.configure("tag", str(data / "train.conll"), "lstm")
    assert (config.model.width, config.model.dropout) == (128, 0.2)
    assert api.configure("tag", str(data / "train.conll"), "lstm", {"model": {"width": 32}}).model.width == 32
    one_way = api.configure("tag", str(data / "train.conll"), "lstm", {"model": {"bidirectional": False}})
    assert one_way.model.width == 256
    assert api.configure("tag", str(data / "train.conll"), "mlp").model.width == 256


def test_copy_memory_is_the_mean_over_all_steps() -> None:
    """Blanks and a blind guess at the end: 10 ln 8 / (T + 20)."""
    config = api.configure("tag", "copy:30", "gru", {"model": {"width": 4}})
    task = tag.prepare(config)
    assert task.coder.labels == tuple("0123456789")
    network = task.build(config.model)

    class Blind(torch.nn.Module):
        """Knows where the end is, and nothing else."""

        def __init__(self) -> None:
            super().__init__()
            self.input, self.backbone = network.input, network.backbone

        def forward(self, x: torch.Tensor, mask: Any) -> tuple[torch.Tensor, None]:
            scores = torch.full((*x.shape, 10), -1e4)
            scores[:, :-10, 0] = 1e4
            scores[:, -10:, 1:9] = 1e4
            return scores, None

    found = task.evaluate(Blind(), "test")
    assert found["loss"] == pytest.approx(10 * np.log(8) / 50, rel=1e-5)
    assert found["words"] == 1000 * 50
    assert task.baselines("test")["most frequent tag of the word"]["accuracy"] == pytest.approx(40.25 / 50, abs=0.005)


# As a user


def test_train_resume_evaluate_and_predict(data: Path, tmp_path: Path) -> None:
    files = {"valid": str(data / "valid.conll"), "test": str(data / "test.conll")}
    settings = {"data": files, "model": {"width": 24}, "train": {"evaluate_steps": 60}}
    short = {"steps": 60, "batch": 16, "settings": settings}
    run = seriatim.train("tag", str(data / "train.conll"), "lstm", out=tmp_path / "run", **short)
    measures = run.summary["measures"]["test"]
    assert measures["f1"] > 0.9
    assert seriatim.evaluate(tmp_path / "run") == pytest.approx(measures)
    assert seriatim.evaluate(tmp_path / "run", data=str(data / "test.conll")) == pytest.approx(measures)
    answer = seriatim.load(tmp_path / "run").predict(["Mary Smith going the 7", ["John"]])
    assert answer[0]["prediction"] == ["B-name", "I-name", "O", "O", "O"]
    assert answer[0]["entities"] == [{"type": "name", "text": "Mary Smith", "first": 0, "last": 1}]
    assert answer[1]["words"] == ["John"]
    again = seriatim.resume(tmp_path / "run", steps=70)
    assert again.summary["step"] == 70
    assert entities.recognise([answer[0]["prediction"]]) == "bio"


REST = "\t_" * 8
CONLLU = f"# text = Mary\n1\tMary{REST}\n2-3\tdon't{REST}\n\n1\tthe{REST}\n"


def test_files_come_back_line_by_line_with_one_more_column(data: Path, tmp_path: Path) -> None:
    task, network = prepared(data)
    tagger = Tagger(network, task.coder, configured(data).data)
    one, other = (answer["prediction"][0] for answer in tagger.predict([["Mary"], ["the"]]))
    source = tmp_path / "new"
    source.write_text(CONLLU, encoding="utf-8")
    table = tagger.predict_file(str(source))
    table.write(tmp_path / "answers.conllu")
    before, after = CONLLU.splitlines(), (tmp_path / "answers.conllu").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[:10] for line in after] == [line.split("\t")[:10] for line in before]
    assert [line.split("\t")[10:] for line in after] == [[], [one], ["_"], [], [other]]
    assert len(table.full) == 3
    source.write_text('{"id": 7, "tokens": ["Mary"]}\n{"id": 8, "tokens": [], "more": 1}\n', encoding="utf-8")
    found = tagger.predict_file(str(source))
    assert list(found.columns) == ["id", "tokens", "prediction", "more"]
    assert found.rows == [[7, ["Mary"], [one], None], [8, [], [], 1]]
    source.write_text("\n\n", encoding="utf-8")
    with pytest.raises(SeriatimError, match="holds no sentences"):
        tagger.predict_file(str(source))


def test_the_command_line_on_a_small_file(data: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "seriatim", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    files = ["--valid", str(data / "valid.conll"), "--test", str(data / "test.conll")]
    run("train", "tag", "--data", str(data / "train.conll"), *files, "--model", "gru", "--steps", "40", "--out", "r")
    source = tmp_path / "new.conll"
    source.write_text("Mary\tx\nSmith\tx\n\nthe\tx\n", encoding="utf-8")
    lines = run("predict", "r", "--data", str(source)).splitlines()
    assert lines == ["Mary\tx\tB-name", "Smith\tx\tI-name", "", "the\tx\tO"]
