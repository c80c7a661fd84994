"""Question answering: positions exact to the character, all spans compared, metrics as in the official programs."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import seriatim
from seriatim.core import registry
from seriatim.core.config import validate
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.dataset import Dataset
from seriatim.data.reader import read_dataset
from seriatim.data.source import open_source
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.report.charts import SpanText, Table, views_to_json
from seriatim.tasks import reading
from seriatim.tasks.answer.questions import answer_metrics, nearest_names, normalize_answer, score_answer
from seriatim.tasks.answer.spans import AnswerEncoded, AnswerProcessor, Passages, search_spans
from seriatim.tasks.answer.spec import ANSWERS, SCHEMA, AnswerOptions
from seriatim.tasks.answer.task import AnswerPredictor, AnswerTask, mask_scores, span_losses
from seriatim.tasks.base import IGNORED, DataSettings, Splits, TaskConfig
from seriatim.training.objective import TaskObjective

KINDS = ["word", "wordpiece", "bpe", "byte-bpe", "char", "unigram", "bert"]
SIZES: dict[str, dict[str, Any]] = {name: {"width": 8, "heads": 2, "layers": 1} for name in ("bert", "gpt")}

# Combining accents, CJK, emoji of several characters, text from right to left, line ends of all kinds
NASTY = [
    "Zu\u0308rich, Que\u0301bec\r\nund cafe\u0301 a\u0300 la carte.\u2028Ende",
    "東京は日本の首都です。 人口は 13,960,000 人。",
    "👩\u200d🚀 flew 🇳🇴 to the 🌕 (twice)!",
    "\u200fשָׁלוֹם עולם — مرحبا\u200f بالعالم.",
    "tab\tand  two blanks\u00a0and\u3000a wide one\r\n\r\n end ",
    "İstanbul ΣΊΣΥΦΟΣ ﬁne Straße ½ Ⅷ a\u0327\u0301b",
]


def train_tokenizer(kind: str, texts: list[str], lowercase: bool = True) -> Tokenizer:
    size = {"byte-bpe": 400, "bert": 120}.get(kind, 90)
    return Tokenizer.train(
        TokenizerSettings(kind=kind, vocab_size=size, lowercase=lowercase), [f"{t}\n" for t in texts] * 3
    )


TOKENIZERS = {kind: train_tokenizer(kind, NASTY) for kind in KINDS}


def make_dataset(*rows: tuple[str, str, list[tuple[str, int]]]) -> Dataset:
    """Returns a data set of passages, questions and answers."""
    records = [
        {"context": context, "question": question, "answers": [{"text": t, "answer_start": s} for t, s in answers]}
        for context, question, answers in rows
    ]
    return read_dataset(open_source(records), SCHEMA)


def make_processor(tokenizer: Tokenizer, max_length: int = 40, **values: Any) -> AnswerProcessor:
    defaults: dict[str, Any] = {"unanswerable": False, "stride": 8, "question_length": 6, "answer_length": 5}
    null_last = not tokenizer.has_cls_sep
    return AnswerProcessor(tokenizer=tokenizer, max_length=max_length, null_last=null_last, **(defaults | values))


def encode(processor: AnswerProcessor, *rows: tuple[str, str, list[tuple[str, int]]]) -> AnswerEncoded:
    return processor.encode(make_dataset(*rows), Diagnostics())


# Positions


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_give_back_the_words_they_stand_for(kind: str, lowercase: bool) -> None:
    """From any word to any other, the characters of its tokens are exactly the text between them."""
    passages = Passages.encode(train_tokenizer(kind, NASTY, lowercase), NASTY)
    tried = 0
    for index, text in enumerate(NASTY):
        words = [match.span() for match in re.finditer(r"\S+", text)]
        base = int(passages.tokens.starts[index])
        for position, (start, _) in enumerate(words):
            for _, end in words[position : position + 4]:
                if "\u200f" in (text[start], text[end - 1]):  # a mark of direction belongs to no token
                    continue
                first, last = passages.find_tokens(index, start, end)
                assert text[passages.starts[base + first] : passages.ends[base + last]] == text[start:end]
                tried += 1
    assert tried > 80


@settings(max_examples=100, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab Z\u0308é\u0301e東京🌕👩\u200d🚀ש\u05c1\t\r\n\u2028.,½İ\u3000"), max_size=40),
    st.sampled_from(KINDS),
)
def test_positions_are_in_order_without_white_space(text: str, kind: str) -> None:
    passages = Passages.encode(TOKENIZERS[kind], [text])
    assert (passages.starts <= passages.ends).all()
    assert (np.diff(passages.starts) >= 0).all()
    assert (np.diff(passages.ends) >= 0).all()
    spans = list(zip(passages.starts.tolist(), passages.ends.tolist(), strict=True))
    assert all(text[start:end] == text[start:end].strip() for start, end in spans)
    covered = {position for start, end in spans for position in range(start, end)}
    missing = {text[position] for position in range(len(text)) if position not in covered}
    assert {character for character in missing if not character.isspace()} <= set("\u200d\u0308\u0301\u05c1")


# Windows


@pytest.mark.parametrize("kind", ["word", "bert"])
def test_a_sequence_is_what_the_tokenizer_frames(kind: str) -> None:
    text = "the old man saw the sea and the sea saw the old man twice"
    tokenizer = train_tokenizer(kind, [text, "who saw the man"])
    rows = [(text, "who saw the man", []), (text, "the sea", []), ("man", "sea", [])]
    encoded = encode(make_processor(tokenizer), *rows)
    tokens, mask = encoded.inputs.padded(np.arange(3))
    assert (mask.sum(axis=1) == encoded.lengths).all()
    end = [] if tokenizer.has_cls_sep else [tokenizer.eos]
    for item, (passage, question, _) in enumerate(rows):
        expected = [*tokenizer.frame(tokenizer.encode(question), tokenizer.encode(passage)).tolist(), *end]
        assert encoded.inputs[item].tolist() == expected
        assert (tokens[item, len(expected) :] == 0).all()
        null = tokenizer.eos if tokenizer.cls is None else tokenizer.cls
        assert tokens[item, encoded.null[item]] == null


def test_numbers_are_no_answers() -> None:
    assert not ANSWERS.accepts([np.zeros((2, 2), np.uint8)])
    assert not ANSWERS.accepts([[1, 2]])
    assert ANSWERS.accepts([[{"text": "Oslo", "answer_start": 3}], "Oslo"])


def test_a_long_passage_is_read_in_windows_with_its_question() -> None:
    text = " ".join(f"w{number}" for number in range(50))
    tokenizer = train_tokenizer("word", [text])
    rows = [(text, "w1 w2", [("w20 w21", text.index("w20"))]), (text, "w3", [])]
    encoded = encode(make_processor(tokenizer, 16, stride=5), *rows)
    ids = tokenizer.encode(text).tolist()
    windows, tokens = encoded.inputs, encoded.inputs.padded(np.arange(len(encoded)))[0]
    covered: dict[int, set[int]] = {0: set(), 1: set()}
    for item in range(len(encoded)):
        offset, first, size = windows.offsets[item], windows.first[item], windows.size[item]
        assert encoded.lengths[item] == 16
        assert tokens[item, offset : offset + size].tolist() == ids[first : first + size]
        covered[int(encoded.rows[item])] |= set(range(first, first + size))
        start, end = encoded.targets[item]
        inside = encoded.rows[item] == 0 and first <= 20 and first + size > 21
        assert (start != IGNORED) == inside
        if inside:
            assert tokens[item, start : end + 1].tolist() == ids[20:22]
    assert covered == {0: set(range(50)), 1: set(range(50))}
    # If questions may have no answer, windows without the answer have the null element as their target.
    silent = encode(make_processor(tokenizer, 16, stride=5, unanswerable=True), *rows)
    assert (silent.targets != IGNORED).all()
    null = silent.targets[:, 0] == silent.null
    assert np.array_equal(null, encoded.targets[:, 0] == IGNORED)
    assert (silent.targets[null, 1] == silent.null[null]).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(0, 6), st.integers(9, 40), st.integers(1, 60))
def test_every_short_span_belongs_to_one_window(length: int, question: int, window: int, stride: int) -> None:
    processor = make_processor(TOKENIZERS["word"], window, stride=stride, question_length=(window - 2) // 2)
    question = min(question, processor.question_length)
    _, first, size, owned = processor.make_windows(np.array([question]), np.array([length]))
    room = window - question - 2
    assert (first >= 0).all()
    assert (first + size <= length).all()
    assert (size <= room).all()
    starts, ends = np.triu_indices(length)  # all spans
    inside = (first <= starts[:, None]) & (ends[:, None] < first + size)
    sums = (starts + ends)[:, None]
    mine = inside & (owned[:, 0] <= sums) & (sums < owned[:, 1])
    assert (mine.sum(axis=1) <= 1).all()
    short = ends - starts + 1 <= max(room // 2, 1)
    assert (mine[short].sum(axis=1) == 1).all()
    distance = np.abs(2 * first + size - 1 - sums)  # from the middle of each window
    assert (distance[short][mine[short]] == distance[short].min(axis=1)).all()


def test_inexact_answers_are_counted() -> None:
    text = "the 1970s were late"
    rows = [(text, "when", [("1970", 4)]), (text, "when", [("1970s", 4)]), (text, "who", [])]
    encoded = encode(make_processor(train_tokenizer("word", [text])), *rows)
    assert encoded.inexact == 1
    assert encoded.spans.tolist() == [[1, 1], [1, 1], [IGNORED, IGNORED]]


def test_the_first_answer_inside_of_the_window_is_the_target() -> None:
    text = " ".join(f"w{number}" for number in range(40))
    answers = [("w2", text.index("w2")), ("w38 w39", text.index("w38"))]
    encoded = encode(make_processor(train_tokenizer("word", [text]), 20, stride=6), (text, "w1", answers))
    targets = dict(zip(encoded.inputs.first.tolist(), encoded.targets.tolist(), strict=True))
    offset, last = int(encoded.inputs.offsets[0]), max(targets)
    assert targets[0] == [offset + 2, offset + 2]
    assert targets[last] == [offset + 38 - last, offset + 39 - last]
    assert [IGNORED, IGNORED] in targets.values()


# Scores and spans


@pytest.mark.parametrize("window", [60, 17])
@pytest.mark.parametrize("unanswerable", [True, False])
def test_the_best_spans_are_those_of_trying_all(window: int, unanswerable: bool) -> None:
    draw = random.Random(3)
    words = [f"w{number}" for number in range(30)]
    texts = [" ".join(draw.choice(words) for _ in range(draw.randint(1, 45))) for _ in range(12)]
    tokenizer = train_tokenizer("word", [" ".join(words)])
    processor = make_processor(tokenizer, window, unanswerable=unanswerable, answer_length=4)
    encoded = encode(processor, *((text, "w1 w2", []) for text in texts))
    start, end = np.random.default_rng(0).normal(size=(2, tokenizer.vocab_size))  # scores of each token
    items = np.arange(len(encoded))
    scores = []
    for item in items:
        tokens, choices = encoded.inputs[item], encoded.choices(np.array([item]))[0]
        scores.append(np.where(choices, np.stack([start[tokens], end[tokens]]), -np.inf))
    best = search_spans(encoded, items, scores, 4, count=7)
    null = start[tokenizer.eos] + end[tokenizer.eos]
    for row, text in enumerate(texts):
        ids = tokenizer.encode(text).tolist()
        spans = [(i, j) for i in range(len(ids)) for j in range(i, min(i + 4, len(ids)))]  # each fits into a window
        sums = np.sort([start[ids[i]] + end[ids[j]] for i, j in spans])[::-1]
        np.testing.assert_allclose(best.scores[row][: len(sums)], sums[:7], rtol=1e-12)
        assert (best.scores[row][len(sums) :] == -np.inf).all()
        total = np.logaddexp.reduce([*sums, null] if unanswerable else sums)
        np.testing.assert_allclose(best.total[row], total, rtol=1e-12)
        if unanswerable:
            np.testing.assert_allclose(best.null[row], null, rtol=1e-12)
        words_at = [match.span() for match in re.finditer(r"\S+", text)]
        first_character, last_character = best.characters(encoded)[row]
        first = [begin for begin, _ in words_at].index(first_character)
        last = [stop for _, stop in words_at].index(last_character)
        np.testing.assert_allclose(start[ids[first]] + end[ids[last]], sums[0], rtol=1e-12)


def test_the_loss_is_the_cross_entropy_over_the_choices() -> None:
    torch.manual_seed(0)
    scores = torch.randn(5, 9, 2, dtype=torch.float64)
    choices = torch.rand(5, 9) < 0.6
    targets = torch.tensor([[2, 4], [0, 0], [8, 8], [3, 7], [IGNORED, IGNORED]])
    for row, positions in enumerate(targets.tolist()[:4]):
        choices[row, positions] = True
    choices[4] = False  # nothing to choose from, and nothing to train on
    for smoothing in (0.0, 0.3):
        losses = span_losses(mask_scores(scores, choices), targets, choices, smoothing)
        assert losses[4] == 0
        for row in range(4):
            chosen = choices[row].nonzero()[:, 0]
            positions = torch.tensor([(chosen == target).nonzero().item() for target in targets[row]])
            expected = F.cross_entropy(scores[row, chosen].T, positions, label_smoothing=smoothing)
            torch.testing.assert_close(losses[row], expected)


def test_the_loss_equals_that_of_transformers() -> None:
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    peer = BertForQuestionAnswering(BertConfig(**sizes, intermediate_size=8)).double().eval()
    targets = torch.tensor([[2, 4], [0, 0], [6, 6]])
    output = peer(torch.randint(0, 20, (3, 7)), start_positions=targets[:, 0], end_positions=targets[:, 1])
    scores = torch.stack([output.start_logits, output.end_logits], dim=-1)
    everything = torch.ones(3, 7, dtype=torch.bool)
    torch.testing.assert_close(span_losses(mask_scores(scores, everything), targets, everything).mean(), output.loss)


# Metrics


def reference_words(text: str) -> list[str]:
    """Returns the words that count, found in another way: character by character, then word by word."""
    kept = [sign for sign in text.lower() if sign not in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"]
    words = re.findall(r"\w+|[^\w\s]+|\s+", "".join(kept))
    return "".join(" " if word in ("a", "an", "the") else word for word in words).split()


def reference_f1(prediction: str, reference: str, version2: bool) -> float:
    predicted, expected = reference_words(prediction), reference_words(reference)
    if version2 and (not predicted or not expected):
        return float(predicted == expected)
    remaining, same = list(expected), 0
    for word in predicted:
        if word in remaining:
            remaining.remove(word)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(expected)
    return 2 * precision * recall / (precision + recall)


PIECES = ["the", "a", "an", "A", "The", "Oslo", "oslo", "Bay", "bay,", "(Bay)", "3.5", "35", "it's", "its", "naïve"]
PIECES += ["—", "...", "$5", "a.", "the-a", "東京", "_x_", "…the"]
ANSWER = st.lists(st.sampled_from(PIECES), max_size=5).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(ANSWER, st.lists(ANSWER, min_size=1, max_size=3), st.booleans())
def test_scores_follow_the_official_rules(prediction: str, references: list[str], version2: bool) -> None:
    kept = [text for text in references if reference_words(text)] or [""] if version2 else references
    exact = max(float(reference_words(prediction) == reference_words(text)) for text in kept)
    f1 = max(reference_f1(prediction, text, version2) for text in kept)
    assert score_answer(prediction, references, version2) == (exact, pytest.approx(f1, abs=1e-12))


@pytest.mark.parametrize(
    ("prediction", "references", "exact", "f1"),
    [
        ("The Oslo!", ["oslo"], 1, 1),
        ("in Oslo", ["Oslo"], 0, 2 / 3),
        ("Oslo Bay", ["Bay of Oslo", "Oslo"], 0, 4 / 5),
        ("the the Bay", ["Bay Bay"], 0, 2 / 3),
        ("U.S.", ["US"], 1, 1),
        ("3.5", ["35"], 1, 1),  # punctuation goes, as in the official program
        ("theory", ["ory"], 0, 0),  # an article is a whole word
        ("left-hand side", ["lefthand side"], 1, 1),
        ("Tromsø", ["tromsø", "Tromso"], 1, 1),
        ("«Oslo»", ["Oslo"], 0, 0),  # only ASCII punctuation goes
    ],
)
def test_scores_by_hand(prediction: str, references: list[str], exact: float, f1: float) -> None:
    for version2 in (False, True):
        assert score_answer(prediction, references, version2) == (exact, pytest.approx(f1))


def test_versions_differ_in_empty_answers() -> None:
    assert score_answer("the", ["an"], unanswerable=False) == (1, 0)
    assert score_answer("the", ["an"], unanswerable=True) == (1, 1)
    assert score_answer("", [], unanswerable=True) == (1, 1)
    assert score_answer("Oslo", [], unanswerable=True) == (0, 0)
    assert score_answer("", ["Oslo"], unanswerable=True) == (0, 0)
    assert score_answer("Oslo", ["the", "Oslo"], unanswerable=True) == (1, 1)
    assert normalize_answer("A  cat,\tthe-cat!") == "cat thecat"


def test_metrics_of_questions_with_and_without_answers() -> None:
    predictions, references = ["Oslo", "", "Bay", "x"], [["Oslo"], [], ["Oslo Bay"], []]
    assert dict(answer_metrics(predictions, references, unanswerable=True)) == {
        "exact_match": 0.5,
        "f1": pytest.approx((1 + 1 + 2 / 3 + 0) / 4),
        "has_answer_exact_match": 0.5,
        "has_answer_f1": pytest.approx((1 + 2 / 3) / 2),
        "no_answer_exact_match": 0.5,
        "no_answer_f1": 0.5,
        "error": pytest.approx(1 - (1 + 1 + 2 / 3) / 4),
        "questions": 4.0,
    }


def test_the_baseline_by_hand() -> None:
    passage = "Mary lives in Bergen. Since 1999 the singer Anna Berg Lie, born in Oslo, teaches there. It rains."
    assert nearest_names("Where was the singer born?", passage) == "Anna Berg Lie"
    assert nearest_names("When did Anna Berg Lie begin to teach?", passage) == "1999"
    assert nearest_names("What does it do?", passage) == "It rains"
    assert nearest_names("?", "wort") == "wort"


# A small language: the question tells whether the name or the number is the answer


def make_stories(count: int, seed: int, unanswerable: bool = False) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    records = []
    for number in range(count):
        name, amount = draw.choice(["Mary", "John", "Anna", "Olav"]), str(draw.randint(1, 9))
        words = [draw.choice(["so", "then", "again", "there", "now"]) for _ in range(draw.randint(4, 9))]
        words.insert(draw.randint(0, len(words)), name)
        words.insert(draw.randint(0, len(words)), amount)
        passage = f"{' '.join(words)}."
        for question, text in {"who": name, "how many": amount, **({"why": ""} if unanswerable else {})}.items():
            answers = [{"text": text, "answer_start": passage.index(text)}] if text else []
            id = f"{number} {question}"
            records.append({"id": id, "question": f"{question}?", "context": passage, "answers": answers})
    return records


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def prepare_splits(
    source: Any,
    architecture: str = "gru",
    notes: list[str] | None = None,
    tokenizer: Tokenizer | None = None,
    **sections: Any,
) -> tuple[AnswerTask, Splits[AnswerEncoded]]:
    settings_type = registry.models.load(architecture).Settings
    values = {"name": architecture, "width": 8, **SIZES.get(architecture, {}), **sections.get("model", {})}
    defaults = AnswerTask.model_defaults({"model": values})
    config = TaskConfig(
        task=validate(AnswerTask.settings_type, {"name": "answer", **sections.get("task", {})}),
        data=validate(DataSettings, {"source": str(source), **sections.get("data", {})}),
        model=validate(settings_type, {**defaults, **values}),
    )
    diagnostics = Diagnostics(None if notes is None else notes.append)
    pretrained = {} if tokenizer is None else {"tokenizer": tokenizer}
    return reading.prepare(AnswerTask, config, pretrained=pretrained, diagnostics=diagnostics)


def prepare(*arguments: Any, **options: Any) -> AnswerTask:
    return prepare_splits(*arguments, **options)[0]


@pytest.fixture(scope="module", params=[False, True], ids=["1.1", "2.0"])
def learned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[AnswerPredictor, Splits[AnswerEncoded], bool]:
    """Returns a predictor that was trained for a few seconds, and its data."""
    source = write(tmp_path_factory.mktemp("stories") / "stories.jsonl", make_stories(200, 0, request.param))
    task, splits = prepare_splits(source, model={"width": 32, "dropout": 0.0})
    network, objective = task.build(splits.train), TaskObjective.of(task, splits)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for step in range(220):
        batch = objective.batch(step, 0, 32, 32)
        loss = task.loss(task.forward(network.train(), batch), batch) / batch.count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    predictor = task.predictor(network)
    assert isinstance(predictor, AnswerPredictor)
    return predictor, splits, request.param


@pytest.fixture(scope="module")
def trained(learned: tuple[AnswerPredictor, Splits[AnswerEncoded], bool]) -> tuple[AnswerPredictor, bool]:
    predictor, _, unanswerable = learned
    return predictor, unanswerable


def test_a_small_language_is_learned(learned: tuple[AnswerPredictor, Splits[AnswerEncoded], bool]) -> None:
    predictor, splits, unanswerable = learned
    task = predictor.task
    evaluation = task.evaluate(predictor.network, splits["test"])
    metrics, baselines = evaluation.metrics, task.baselines(splits, ["test"])["test"]
    assert metrics["f1"] > 0.95
    assert metrics["f1"] > baselines["names nearest to the question"]["f1"] + 0.2
    assert ("no_answer_f1" in metrics) == unanswerable
    if unanswerable:
        assert metrics["no_answer_f1"] > 0.95
        assert baselines["never an answer"]["no_answer_exact_match"] == 1
    views = task.views(evaluation)
    json.dumps(views_to_json(views), allow_nan=False)
    titles = [view.title for view in views]
    assert "Metrics by question word" in titles
    assert ("Metrics by threshold" in titles) == unanswerable
    assert task.sample(evaluation).count("\n") == 2


def test_answers_tell_their_positions(trained: tuple[AnswerPredictor, bool]) -> None:
    predictor, unanswerable = trained
    passage = "\r\n  then\u00a0so there Anna now\tagain 7 so. "
    best = predictor.call("answer", [(passage, "who?")])[0]
    assert (best["answer"], passage[best["start"] : best["end"]]) == ("Anna", "Anna")
    records = predictor.call("answer", [(passage, "who?"), (passage, "how many?")], nbest=5)
    assert [record["answer"] for record in records] == ["Anna", "7"]
    for record in records:
        answers = record["answers"]
        assert len(answers) == len({(answer["start"], answer["end"]) for answer in answers}) == 5
        assert [answer["score"] for answer in answers] == sorted((answer["score"] for answer in answers), reverse=True)
        assert 0 < sum(answer["probability"] for answer in answers) <= 1 + 1e-6
        assert all(passage[answer["start"] : answer["end"]] == answer["answer"] for answer in answers)
    everything = predictor.call("answer", [(passage, "who?")], nbest=1_024)[0]["answers"]
    assert sum(answer["probability"] for answer in everything) == pytest.approx(1, abs=1e-5)
    assert sum(answer["answer"] == "" for answer in everything) == int(unanswerable)


def test_the_threshold_decides_on_no_answer(trained: tuple[AnswerPredictor, bool]) -> None:
    predictor, unanswerable = trained
    passage = "then so there Anna now again 7 so."

    def answer(question: str, **options: Any) -> dict[str, Any]:
        return predictor.call("answer", [{"context": passage, "question": question}], **options)[0]

    why = answer("why?")
    assert (why["answer"] == "") == unanswerable
    assert not unanswerable or (why["start"], why["end"]) == (0, 0)
    silent, spoken = (answer("who?", threshold=threshold) for threshold in (-1e4, 1e4))
    assert (silent["answer"], spoken["answer"]) == ("", "Anna")
    difference = silent["score"] - spoken["score"]
    assert answer("who?", threshold=difference - 1e-3)["answer"] == ""
    assert answer("who?", threshold=difference + 1e-3)["answer"] == "Anna"


def test_files_are_answered_row_by_row(trained: tuple[AnswerPredictor, bool], tmp_path: Path) -> None:
    predictor, unanswerable = trained
    records = make_stories(30, 9, unanswerable)
    inputs = [{key: record[key] for key in ("id", "question", "context")} for record in records]
    predictions = predictor.call("answer", write(tmp_path / "new.jsonl", inputs))
    assert [row["id"] for row in predictions] == [record["id"] for record in records]
    official = json.loads(predictor.format_file(".json", predictions))
    assert list(official) == [record["id"] for record in records]
    # The metrics on the same file are those of the official predictions.
    known = reading.read_split(predictor.task, write(tmp_path / "known.jsonl", records))
    metrics = predictor.task.evaluate(predictor.network, known).metrics
    references = [[answer["text"] for answer in record["answers"]] for record in records]
    expected = dict(answer_metrics(list(official.values()), references, unanswerable))
    assert {name: metrics[name] for name in expected} == expected
    pairs = [(record["context"], record["question"]) for record in records]
    assert [row["prediction"] for row in predictor.predict(pairs)] == list(official.values())
    twice = predictor.call("answer", [inputs[0], inputs[0]])
    with pytest.raises(SeriatimError) as caught:
        predictor.format_file(".json", twice)
    assert caught.value.code == "output.ids"


@pytest.mark.parametrize(
    "inputs", [[("a text", " ")], [(" ", "who?")], [{"question": "who?"}], [("who?", 3)], ["who?"]]
)
def test_inputs_that_are_not_questions(trained: tuple[AnswerPredictor, bool], inputs: list[Any]) -> None:
    with pytest.raises(SeriatimError):
        trained[0].call("answer", inputs)


def test_charts_highlight_the_answers(trained: tuple[AnswerPredictor, bool]) -> None:
    predictor, _ = trained
    inputs = [("so " * 100 + "Anna now 7.", "who?")]
    dataset = predictor.task.read(inputs, Diagnostics(), SCHEMA.inputs())
    (chart,) = predictor.charts("answer", dataset, AnswerOptions(), predictor.call("answer", inputs, threshold=1e4))
    assert isinstance(chart, Table)
    text = chart.rows[0][2]
    assert isinstance(text, SpanText)
    assert [text.text[span.start : span.end] for span in text.spans] == [chart.rows[0][1]]


def test_options_are_checked(trained: tuple[AnswerPredictor, bool]) -> None:
    with pytest.raises(SeriatimError, match="nbest"):
        trained[0].call("answer", [("a text", "who?")], nbest=0)


def test_distillation(learned: tuple[AnswerPredictor, Splits[AnswerEncoded], bool]) -> None:
    predictor, splits, unanswerable = learned
    task, network = predictor.task, predictor.network
    batch = TaskObjective.of(task, splits).batch(0, 0, 6, 6)
    with torch.no_grad():
        output = task.forward(network, batch)
    assert output.scores.shape == (12, batch.inputs.shape[1])
    assert output.features is not None
    assert output.features.shape == (12, 64)
    assert task.distillation_loss(output, output, 2.0).item() == pytest.approx(0, abs=1e-6)
    scores = torch.where(output.scores == -torch.inf, output.scores, torch.randn_like(output.scores)).requires_grad_()
    distance = task.distillation_loss(replace(output, scores=scores), output, 2.0)
    distance.backward()
    assert distance > 0
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert task.teacher_mismatches(predictor) == []
    other = AnswerPredictor(task, network)
    other.processor = replace(
        task.processor, unanswerable=not unanswerable, tokenizer=train_tokenizer("word", ["other words"])
    )
    mismatches = task.teacher_mismatches(other)
    assert any("may predict that there is no answer" in text for text in mismatches)
    assert any("token" in text for text in mismatches)


# The task


def test_questions_without_an_answer_are_left_out_if_none_may_be(tmp_path: Path) -> None:
    source, notes = write(tmp_path / "a.jsonl", make_stories(40, 0, unanswerable=True)), []
    task, splits = prepare_splits(source, notes=notes, task={"unanswerable": False})
    assert not task.processor.unanswerable
    assert all(answers for part in splits.parts.values() for answers in part.items.answers)
    assert "train: 32 questions without an answer are left out (task.unanswerable)" in notes
    other, all_splits = prepare_splits(source)
    assert other.processor.unanswerable
    assert TaskObjective.of(other, all_splits).steps_per_epoch(1) == len(all_splits.train.items)


def test_what_does_not_fit_is_noted(tmp_path: Path) -> None:
    records, notes = make_stories(40, 0), []
    records[0]["question"] = "who " * 80
    short = {"context_length": 12, "stride": 3}
    _, splits = prepare_splits(write(tmp_path / "a.jsonl", records), notes=notes, task=short)
    assert any("the passages of" in note and "windows of 12" in note for note in notes)
    assert any("1 question of more than 5 tokens" in note for note in notes)
    assert max(int(part.items.lengths.max()) for part in splits.parts.values()) == 12


def test_passages_in_two_files_are_noted(tmp_path: Path) -> None:
    oslo = {"question": "Which?", "context": "Oslo lies in Norway.", "answers": ["Oslo"]}
    same = {"question": "Where?", "context": " oslo  lies in Norway.", "answers": ["Norway"]}
    other = {"question": "Which?", "context": "Bergen, too.", "answers": ["Bergen"]}
    notes: list[str] = []
    files = {"validation": str(write(tmp_path / "v.jsonl", [same, other]))}
    _, splits = prepare_splits(write(tmp_path / "t.jsonl", [oslo]), notes=notes, data=files)
    assert {name: len(part.rows) for name, part in splits.parts.items()} == {"train": 1, "validation": 2}
    assert "1 of 2 validation passages are in the training split, too" in notes


@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_a_bounded_model_reads_no_more_than_it_can(model: str, tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", make_stories(40, 0))
    task, splits = prepare_splits(source, model, model={"context_length": 12})
    assert task.processor.max_length == 12
    network = task.build(splits.train)
    assert task.evaluate(network, splits["validation"]).metrics["questions"] == 8
    records = task.predictor(network).call("answer", [("so then " * 60 + "Anna", "who?")], nbest=3)
    assert len(records[0]["answers"]) == 3
    with pytest.raises(SeriatimError) as caught:
        prepare(source, model, model={"context_length": 7})
    assert caught.value.code == "task.length"


def test_the_null_element_has_read_the_passage(tmp_path: Path) -> None:
    """It is [CLS] in models that read in both directions, else the last element."""
    source = write(tmp_path / "a.jsonl", make_stories(40, 0, unanswerable=True))
    bert = {"tokenizer": {"kind": "bert", "vocab_size": 100}}
    null_last = {
        model: [prepare(source, model, task=settings).processor.null_last for settings in ({}, bert)]
        for model in ("gru", "gpt", "bert")
    }
    assert null_last == {"gru": [True, False], "gpt": [True, True], "bert": [False, False]}


def test_a_pretrained_tokenizer_is_used(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("bert", ["then so there"])
    task = prepare(write(tmp_path / "a.jsonl", make_stories(40, 0)), tokenizer=tokenizer)
    assert task.processor.tokenizer is tokenizer


def test_answers_may_be_as_long_as_those_of_the_training(tmp_path: Path) -> None:
    records = [
        {"question": "what?", "context": f"{number} " + "word " * 60, "answers": [("word " * 45).strip()]}
        for number in range(30)
    ]
    source = write(tmp_path / "a.jsonl", records)
    assert prepare(source).processor.answer_length == 45
    assert prepare(source, task={"answer_length": 10}).processor.answer_length == 10
    assert prepare(write(tmp_path / "b.jsonl", make_stories(20, 0))).processor.answer_length == 30


def test_training_splits_that_cannot_be_used(tmp_path: Path) -> None:
    silent = [record | {"answers": []} for record in make_stories(20, 0)]
    with pytest.raises(SeriatimError, match="no question of the training split has an answer"):
        prepare(write(tmp_path / "a.jsonl", silent), task={"unanswerable": False})
    long = [{"question": "what?", "context": f"{n} " + "word " * 60, "answers": ["word " * 60]} for n in range(20)]
    with pytest.raises(SeriatimError, match="no answer of the training split lies inside of a window"):
        prepare(write(tmp_path / "b.jsonl", long), task={"context_length": 12})


def test_models_are_bidirectional_unless_the_user_says_otherwise() -> None:
    assert AnswerTask.model_defaults({"model": {"name": "gru"}}) == {
        "bidirectional": True,
        "dropout": 0.2,
        "width": 128,
    }
    assert "width" not in AnswerTask.model_defaults({"model": {"name": "gru", "bidirectional": False}})
    assert AnswerTask.model_defaults({"model": {"name": "bert"}}) == {}


def test_train_and_answer(tmp_path: Path) -> None:
    source = str(write(tmp_path / "stories.jsonl", make_stories(30, 0)))
    settings = {"model": {"width": 8}}
    run = seriatim.train(
        "answer", source, "gru", out=tmp_path / "run", steps=3, batch_size=8, report=False, settings=settings
    )
    assert run.evaluate() == pytest.approx(run.summary["metrics"]["test"])
    passage = "then so there Anna now again 7 so."
    record = seriatim.load(tmp_path / "run").answer((passage, "who?"))
    assert passage[record["start"] : record["end"]] == record["answer"]
