"""The task answer: places exact to the character, all spans looked at, measures as the official programs count them."""

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
from torch import Tensor, nn
from torch.nn import functional as F

import seriatim
from helpers import TINY
from seriatim import api, cli
from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data.questions import Question, Questions
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.tasks._answer_baseline import nearest
from seriatim.tasks._answer_scores import measures, normalised, scored
from seriatim.tasks._answer_search import among, search, target_losses
from seriatim.tasks._answerer import Answerer
from seriatim.tasks._spans import UNKNOWN, SpanCoder, SpanPart
from seriatim.tasks._spans_text import Passages

answer = registry.tasks.load("answer")
KINDS = ["word", "wordpiece", "bpe", "byte-bpe", "char", "unigram", "bert"]

# Combining accents, CJK, emoji of several characters, text from right to left, line ends of all kinds
NASTY = [
    "Zu\u0308rich, Que\u0301bec\r\nund cafe\u0301 a\u0300 la carte.\u2028Ende",
    "東京は日本の首都です。 人口は 13,960,000 人。",
    "👩\u200d🚀 flew 🇳🇴 to the 🌕 (twice)!",
    "\u200fשָׁלוֹם עולם — مرحبا\u200f بالعالم.",
    "tab\tand  two blanks\u00a0and\u3000a wide one\r\n\r\n end ",
    "İstanbul ΣΊΣΥΦΟΣ ﬁne Straße ½ Ⅷ a\u0327\u0301b",
]


def tokenizer_of(kind: str, texts: list[str] | None = None, lowercase: bool = True) -> Tokenizer:
    size = {"byte-bpe": 400, "bert": 120}.get(kind, 90)
    chosen = TokenizerSettings(kind=kind, size=size, lowercase=lowercase)
    return Tokenizer.train(chosen, [text + "\n" for text in (NASTY if texts is None else texts)] * 3)


def asked_of(*records: tuple[str, str, list[tuple[str, int]]]) -> Questions:
    """From passages, questions and answers."""
    passages = list(dict.fromkeys(passage for passage, _, _ in records))
    return Questions(
        "made",
        passages,
        [
            Question(str(number), question, passages.index(passage), tuple(answers), f"question {number}")
            for number, (passage, question, answers) in enumerate(records)
        ],
    )


def coder_of(tokenizer: Tokenizer, window: int = 40, **values: Any) -> SpanCoder:
    usual = {"unanswerable": False, "stride": 8, "question": 6, "answer": 5, "closing": not tokenizer.framed}
    return SpanCoder(tokenizer=tokenizer, window=window, **(usual | values))


# Places


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_give_back_the_words_they_stand_for(kind: str, lowercase: bool) -> None:
    """From any word to any other: the characters of its tokens are the text between them, to the letter."""
    tokenizer = tokenizer_of(kind, lowercase=lowercase)
    passages = Passages.of(tokenizer, NASTY)
    tried = 0
    for index, text in enumerate(NASTY):
        words = [match.span() for match in re.finditer(r"\S+", text)]
        base = int(passages.tokens.starts[index])
        for place, (start, _) in enumerate(words):
            for _, end in words[place : place + 4]:
                if {text[start], text[end - 1]} & {"\u200f"}:  # a mark of direction is a token of nobody
                    continue
                first, last = passages.span(index, start, end)
                assert text[passages.starts[base + first] : passages.ends[base + last]] == text[start:end]
                tried += 1
    assert tried > 80


@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab Z\u0308é\u0301e東京🌕👩\u200d🚀ש\u05c1\t\r\n\u2028.,½İ\u3000"), max_size=40),
    st.sampled_from(KINDS),
)
def test_places_are_in_order_and_have_no_white_space_around_them(text: str, kind: str) -> None:
    passages = Passages.of(TOKENIZERS[kind], [text])
    assert (passages.starts <= passages.ends).all()
    assert (np.diff(passages.starts) >= 0).all()
    assert (np.diff(passages.ends) >= 0).all()
    for start, end in zip(passages.starts.tolist(), passages.ends.tolist(), strict=True):
        assert text[start:end] == text[start:end].strip()
    places = zip(passages.starts.tolist(), passages.ends.tolist(), strict=True)
    covered = {place for start, end in places for place in range(start, end)}
    missing = [text[place] for place in range(len(text)) if place not in covered and not text[place].isspace()]
    assert set(missing) <= {"\u200d", "\u0308", "\u0301", "\u05c1"}  # a tokenizer may leave out what has no letter


TOKENIZERS = {kind: tokenizer_of(kind) for kind in KINDS}


# Rows


@pytest.mark.parametrize("kind", ["word", "bert"])
def test_a_row_is_what_the_tokenizer_frames(kind: str) -> None:
    text = "the old man saw the sea and the sea saw the old man twice"
    tokenizer = tokenizer_of(kind, [text, "who saw the man"])
    part = coder_of(tokenizer).encode(
        asked_of((text, "who saw the man", []), (text, "the sea", []), ("man", "sea", []))
    )
    block, real = part.inputs.padded(np.arange(3))
    assert (real.sum(axis=1) == part.inputs.lengths).all()
    end = [] if tokenizer.framed else [tokenizer.eos]
    for row, length, question in zip(block, part.inputs.lengths, part.inputs.question, strict=True):
        one = part.asked.asked[question]
        both = tokenizer.encode(one.text), tokenizer.encode(part.asked.passages[one.passage])
        assert row[:length].tolist() == [*tokenizer.frame(*both).tolist(), *end]
        assert (row[length:] == 0).all()
        assert row[part.null[np.flatnonzero(part.inputs.question == question)[0]]] == (tokenizer.cls or tokenizer.eos)


def test_a_long_passage_is_read_in_windows_with_its_question() -> None:
    words = [f"w{number}" for number in range(50)]
    text = " ".join(words)
    tokenizer = tokenizer_of("word", [text])
    assert tokenizer.size < 60
    coder = coder_of(tokenizer, window=16, stride=5)
    part = coder.encode(asked_of((text, "w1 w2", [("w20 w21", text.index("w20"))]), (text, "w3", [])))
    ids = tokenizer.encode(text).tolist()
    block, _ = part.inputs.padded(np.arange(len(part)))
    covered = {0: set(), 1: set()}
    for row in range(len(part)):
        lead, first, size = part.inputs.lead[row], part.inputs.first[row], part.inputs.size[row]
        assert part.inputs.lengths[row] == 16
        assert block[row, lead : lead + size].tolist() == ids[first : first + size]
        covered[int(part.inputs.question[row])] |= set(range(first, first + size))
        begin, end = part.targets[row]
        inside = part.inputs.question[row] == 0 and first <= 20 and first + size > 21
        assert (begin != UNKNOWN) == inside
        if inside:
            assert block[row, begin : end + 1].tolist() == ids[20:22]
    assert covered == {0: set(range(50)), 1: set(range(50))}
    assert (part.targets[: part.learnt] != UNKNOWN).all()
    assert (part.targets[part.learnt :] == UNKNOWN).all()
    # with questions that have no answer, a window without the answer is taught to say so
    silent = coder_of(tokenizer, window=16, stride=5, unanswerable=True).encode(part.asked)
    assert silent.learnt == len(silent)
    rest = silent.targets[:, 0] == silent.null
    assert rest.sum() == len(part) - part.learnt
    assert (silent.targets[rest, 1] == silent.null[rest]).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 90), st.integers(0, 6), st.integers(9, 40), st.integers(1, 60))
def test_every_span_that_fits_belongs_to_exactly_one_window(
    length: int, question: int, window: int, stride: int
) -> None:
    coder = coder_of(TOKENIZERS["word"], window=window, stride=stride, question=(window - 2) // 2)
    question = min(question, coder.question)
    row, first, size, owned = coder._windows(np.array([question]), np.array([length]))
    room = window - question - 2
    assert (first >= 0).all()
    assert (first + size <= length).all()
    assert (size <= room).all()
    for begin in range(length):
        for end in range(begin, length):
            inside = (first <= begin) & (end < first + size)
            mine = inside & (owned[:, 0] <= begin + end) & (begin + end < owned[:, 1])
            assert mine.sum() <= 1
            if end - begin + 1 <= max(room // 2, 1):
                assert mine.sum() == 1
                # where it stands nearest to the middle
                away = np.abs(2 * first + size - 1 - begin - end)
                assert away[mine][0] == away.min()
    assert len(row) == len(first)


def test_what_cannot_be_said_to_the_letter_is_counted() -> None:
    text = "the 1970s were late"
    part = coder_of(tokenizer_of("word", [text])).encode(
        asked_of((text, "when", [("1970", 4)]), (text, "when", [("1970s", 4)]), (text, "who", []))
    )
    assert part.inexact == 1
    assert part.true.tolist() == [[1, 1], [1, 1], [UNKNOWN, UNKNOWN]]


def test_the_first_answer_that_lies_within_the_window_is_learnt() -> None:
    text = " ".join(f"w{number}" for number in range(40))
    tokenizer = tokenizer_of("word", [text])
    answers = [("w2", text.index("w2")), ("w38 w39", text.index("w38"))]
    part = coder_of(tokenizer, window=20, stride=6).encode(asked_of((text, "w1", answers)))
    found = {int(first): target.tolist() for first, target in zip(part.inputs.first, part.targets, strict=True)}
    lead = int(part.inputs.lead[0])
    assert found[0] == [lead + 2, lead + 2]
    last = max(found)
    assert found[last] == [lead + 38 - last, lead + 39 - last]
    assert [UNKNOWN, UNKNOWN] in found.values()


# Scores and spans


class Told(nn.Module):
    """A network that says of each token what it was told."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(scores)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        return self.scores[tokens], None


@pytest.mark.parametrize("window", [60, 17])
@pytest.mark.parametrize("unanswerable", [True, False])
def test_the_best_spans_are_those_of_trying_all(window: int, unanswerable: bool) -> None:
    draw = random.Random(3)
    words = [f"w{number}" for number in range(30)]
    texts = [" ".join(draw.choice(words) for _ in range(draw.randint(1, 45))) for _ in range(12)]
    tokenizer = tokenizer_of("word", [" ".join(words)])
    coder = coder_of(tokenizer, window=window, unanswerable=unanswerable, answer=4)
    part = coder.encode(asked_of(*((text, "w1 w2", []) for text in texts)))
    torch.manual_seed(0)
    network = Told(torch.randn(tokenizer.size, 2, dtype=torch.float64))
    found = search(network, part, np.arange(len(part)), coder.answer, best=7)
    start, end = network.scores.detach().numpy().T
    null = start[tokenizer.eos] + end[tokenizer.eos]
    for index, text in enumerate(texts):
        ids = tokenizer.encode(text).tolist()
        spans = [(i, j) for i in range(len(ids)) for j in range(i, min(i + 4, len(ids)))]  # short: each fits a window
        spans.sort(key=lambda span: -(start[ids[span[0]]] + end[ids[span[1]]]))
        sums = np.array([start[ids[i]] + end[ids[j]] for i, j in spans])
        best = sums[:7]
        np.testing.assert_allclose(found.scores[index][: len(best)], best, rtol=1e-12)
        assert (found.scores[index][len(best) :] == -np.inf).all()
        total = np.logaddexp.reduce([*sums, null] if unanswerable else sums)
        np.testing.assert_allclose(found.total[index], total, rtol=1e-12)
        np.testing.assert_allclose(found.null[index], null, rtol=1e-12)
        places = [match.span() for match in re.finditer(r"\S+", text)]
        begin, stop = found.places(part)[index]
        first = next(i for i, (a, _) in enumerate(places) if a == begin)
        last = next(i for i, (_, b) in enumerate(places) if b == stop)
        np.testing.assert_allclose(start[ids[first]] + end[ids[last]], best[0], rtol=1e-12)


def test_the_loss_by_hand_and_beside_the_library() -> None:
    torch.manual_seed(0)
    scores = torch.randn(5, 9, 2, dtype=torch.float64)
    choice = torch.rand(5, 9) < 0.6
    targets = torch.tensor([[2, 4], [0, 0], [8, 8], [3, 7], [UNKNOWN, UNKNOWN]])
    for row, (begin, end) in enumerate(targets.tolist()[:4]):
        choice[row, [begin, end]] = True
    choice[4] = False  # nothing to choose from, and nothing to learn
    for smoothing in (0.0, 0.3):
        found = target_losses(among(scores, choice), targets, choice, smoothing)
        assert found[4] == 0
        for row in range(4):
            some = choice[row].nonzero()[:, 0]
            places = torch.tensor([(some == target).nonzero().item() for target in targets[row]])
            wanted = F.cross_entropy(scores[row, some].T, places, label_smoothing=smoothing)
            torch.testing.assert_close(found[row], wanted)


def test_the_loss_is_that_of_transformers() -> None:
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 20,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    peer = BertForQuestionAnswering(BertConfig(**sizes)).double().eval()
    targets = torch.tensor([[2, 4], [0, 0], [6, 6]])
    out = peer(torch.randint(0, 20, (3, 7)), start_positions=targets[:, 0], end_positions=targets[:, 1])
    scores = torch.stack([out.start_logits, out.end_logits], dim=-1)
    everything = torch.ones(3, 7, dtype=torch.bool)
    found = target_losses(among(scores, everything), targets, everything).mean()
    torch.testing.assert_close(found, out.loss)


# Measures


def by_the_book(text: str) -> list[str]:
    """The words that count, found in another way: sign by sign, then word by word."""
    kept = [sign for sign in text.lower() if sign not in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"]
    words = re.findall(r"\w+|[^\w\s]+|\s+", "".join(kept))
    return "".join(" " if word in ("a", "an", "the") else word for word in words).split()


def f1_by_the_book(given: str, true: str, second: bool) -> float:
    said, wanted = by_the_book(given), by_the_book(true)
    if second and (not said or not wanted):
        return float(said == wanted)
    left, same = list(wanted), 0
    for word in said:
        if word in left:
            left.remove(word)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / len(said), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


PIECES = ["the", "a", "an", "A", "The", "Oslo", "oslo", "Bay", "bay,", "(Bay)", "3.5", "35", "it's", "its", "naïve"]
PIECES += ["—", "...", "$5", "a.", "the-a", "東京", "_x_", "…the"]
WORDS = st.lists(st.sampled_from(PIECES), max_size=5).map(" ".join)


@settings(max_examples=400, deadline=None)
@given(WORDS, st.lists(WORDS, min_size=1, max_size=3), st.booleans())
def test_measures_are_those_of_the_rules(said: str, true: list[str], second: bool) -> None:
    kept = [one for one in true if by_the_book(one)] or [""] if second else true
    exact = max(float(by_the_book(said) == by_the_book(one)) for one in kept)
    f1 = max(f1_by_the_book(said, one, second) for one in kept)
    assert scored(said, true, second) == (exact, pytest.approx(f1, abs=1e-12))


@pytest.mark.parametrize(
    ("said", "true", "exact", "f1"),
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
        ("«Oslo»", ["Oslo"], 0, 0),  # only the punctuation of ASCII goes
    ],
)
def test_measures_by_hand(said: str, true: list[str], exact: float, f1: float) -> None:
    for second in (False, True):
        assert scored(said, true, second) == (exact, pytest.approx(f1))


def test_the_two_versions_differ_in_answers_of_nothing() -> None:
    assert scored("the", ["an"], unanswerable=False) == (1, 0)
    assert scored("the", ["an"], unanswerable=True) == (1, 1)
    assert scored("", [], unanswerable=True) == (1, 1)
    assert scored("Oslo", [], unanswerable=True) == (0, 0)
    assert scored("", ["Oslo"], unanswerable=True) == (0, 0)
    assert scored("Oslo", ["the", "Oslo"], unanswerable=True) == (1, 1)
    assert normalised("A  cat,\tthe-cat!") == "cat thecat"


def test_measures_of_questions_with_and_without_answers() -> None:
    given, wanted = ["Oslo", "", "Bay", "x"], [["Oslo"], [], ["Oslo Bay"], []]
    found = measures(given, wanted, unanswerable=True)
    assert found == {
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
    assert nearest("Where was the singer born?", passage) == "Anna Berg Lie"
    assert nearest("When did Anna Berg Lie begin to teach?", passage) == "1999"
    assert nearest("What does it do?", passage) == "It rains"
    assert nearest("?", "wort") == "wort"


# A little language: the question says whether the name or the number is wanted


def stories(count: int, seed: int, unanswerable: bool = False) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    found = []
    for number in range(count):
        name, amount = draw.choice(["Mary", "John", "Anna", "Olav"]), str(draw.randint(1, 9))
        words = [draw.choice(["so", "then", "again", "there", "now"]) for _ in range(draw.randint(4, 9))]
        words.insert(draw.randint(0, len(words)), name)
        words.insert(draw.randint(0, len(words)), amount)
        passage = f"{' '.join(words)}."
        asked = {"who": name, "how many": amount} | ({"why": None} if unanswerable else {})
        for question, text in asked.items():
            start = passage.index(text) if text else 0
            answers = [{"text": text, "answer_start": start}] if text else []
            found.append(
                {"id": f"{number} {question}", "question": f"{question}?", "context": passage, "answers": answers}
            )
    return found


def write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module", params=[False, True], ids=["1.1", "2.0"])
def trained(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, bool]:
    folder = tmp_path_factory.mktemp("stories")
    source = write(folder / "stories.jsonl", stories(200, 0, request.param))
    chosen = {"model": {"width": 32, "dropout": 0.0}, "train": {"optimiser": {"rate": 0.01}}}
    run = seriatim.train("answer", source, "gru", settings=chosen, steps=300, batch=32, out=folder / "run")
    return run, folder, request.param


def test_a_little_language_is_learnt(trained: Any) -> None:
    run, _, unanswerable = trained
    measured = run.summary["measures"]["test"]
    assert measured["f1"] > 0.95
    assert measured["f1"] > run.summary["baselines"]["test"]["names nearest to the question"]["f1"] + 0.2
    assert ("no_answer_f1" in measured) == unanswerable
    if unanswerable:
        assert measured["no_answer_f1"] > 0.95
        assert run.summary["baselines"]["test"]["never an answer"]["no_answer_exact_match"] == 1
    titles = [view["title"] for view in run.evaluation()["test"]]
    assert "By question word" in titles
    assert ("Other thresholds" in titles) == unanswerable


def test_an_answer_says_where_it_stands(trained: Any) -> None:
    run, _, unanswerable = trained
    passage = "\r\n  then\u00a0so there Anna now\tagain 7 so. "
    best = run.answer(passage, "who?")
    assert (best.text, passage[best.start : best.end]) == ("Anna", "Anna")
    many = run.answer(passage, ["who?", "how many?"], nbest=5)
    assert [some[0].text for some in many] == ["Anna", "7"]
    for some in many:
        assert len(some) == 5
        assert [one.score for one in some] == sorted((one.score for one in some), reverse=True)
        assert 0 < sum(one.probability for one in some) <= 1 + 1e-6
        assert all(passage[one.start : one.end] == one.text for one in some)
        assert len({(one.start, one.end) for one in some}) == 5
    everything = run.answer(passage, "who?", nbest=10_000)
    assert sum(one.probability for one in everything) == pytest.approx(1, abs=1e-5)
    assert sum(one.text == "" for one in everything) == int(unanswerable)


def test_no_answer_is_a_matter_of_the_threshold(trained: Any) -> None:
    run, _, unanswerable = trained
    passage = "then so there Anna now again 7 so."
    if unanswerable:
        none = run.answer(passage, "why?")
        assert (none.text, none.start, none.end) == ("", 0, 0)
    else:
        assert run.answer(passage, "why?").text  # it has not learnt to be silent
    silent, spoken = (run.answer(passage, "who?", threshold=one) for one in (-1e4, 1e4))
    assert silent.text == ""
    assert spoken.text == "Anna"
    difference = silent.score - spoken.score
    assert run.answer(passage, "who?", threshold=difference - 1e-3).text == ""
    assert run.answer(passage, "who?", threshold=difference + 1e-3).text == "Anna"


def test_files_are_answered_row_by_row(trained: Any) -> None:
    run, folder, unanswerable = trained
    records = stories(30, 9, unanswerable)
    plain = [{"id": one["id"], "question": one["question"], "context": one["context"]} for one in records]
    table = run.predict_file(write(folder / "new.jsonl", plain))
    assert [row[0] for row in table.rows] == [one["id"] for one in records]
    table.write(folder / "said.json")
    said = json.loads((folder / "said.json").read_text(encoding="utf-8"))
    assert list(said) == [one["id"] for one in records]
    # what the measures say of the same file is what the official rules say of the predictions
    source = write(folder / "known.jsonl", records)
    measured = seriatim.evaluate(run.path, data=source)
    true = [[one["text"] for one in record["answers"]] for record in records]
    by_hand = measures(list(said.values()), true, unanswerable)
    assert {name: measured[name] for name in by_hand} == by_hand
    pairs = [(one["question"], one["context"]) for one in records]
    assert [one["prediction"] for one in run.predict(pairs)] == list(said.values())
    assert [one["prediction"] for one in run.predict(records)] == list(said.values())
    twice = write(folder / "twice.jsonl", [records[0], records[0]])
    with pytest.raises(SeriatimError) as caught:
        run.predict_file(twice).write(folder / "twice.json")
    assert caught.value.code == "output.ids"


def test_the_answers_of_a_command(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run, folder, _ = trained
    (folder / "story.txt").write_bytes("\ufeffthen so\r\nthere Anna now again 7 so.".encode())
    assert (
        cli.run(["answer", str(run.path), "--passage", str(folder / "story.txt"), "who?", "how many?", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [(one["question"], one["answers"][0]["text"]) for one in found] == [("who?", "Anna"), ("how many?", "7")]
    assert found[0]["answers"][0]["start"] == len("then so\r\nthere ")
    assert cli.run(["answer", str(run.path), "--passage", "then Mary now 3 so there.", "who?", "--nbest", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["question", "answer", "characters", "probability"]
    assert lines[1].split()[:3] == ["who?", "Mary", "5–9"]
    assert len(lines) == 3
    out = folder / "command.json"
    assert (
        cli.run(["answer", str(run.path), "--data", write(folder / "a.jsonl", stories(3, 4)), "--out", str(out)]) == 0
    )
    assert set(json.loads(out.read_text(encoding="utf-8"))) == {one["id"] for one in stories(3, 4)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["who?"], "either a passage and questions, or --data"),
        (["--passage", "a text"], "either a passage and questions, or --data"),
        (["who?", "--passage", "stroy.txt"], "there is no file stroy.txt"),
        (["who?", "--passage", "some/where"], "there is no file some/where"),
        (["who?", "--passage", " "], "the passage of input 1 is empty"),
        ([" ", "--passage", "a text"], "the question of input 1 is empty"),
        (["who?", "--passage", "a text", "--out", "a.json"], "--out is for the answers to a file"),
        (["--data", "a.json", "--nbest", "2"], "--nbest and --threshold are for questions about one passage"),
    ],
)
def test_questions_that_cannot_be_asked(
    trained: Any, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["answer", str(trained[0].path), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_run_of_another_task_is_not_asked(tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = seriatim.train("language", str(book), "gru", steps=1, batch=2, length=4, out=tmp_path / "run")
    for arguments in (["--data", "a.json"], ["--passage", "a text", "who?"]):
        assert cli.run(["answer", str(run.path), *arguments]) == 2
        assert "a model of the task language cannot be asked to answer" in capsys.readouterr().err


def test_inputs_that_are_no_questions_are_refused(trained: Any) -> None:
    for wrong in (["who?"], [3], [{"question": "who?"}], [("who?", 3)]):
        with pytest.raises(SeriatimError) as caught:
            trained[0].predict(wrong)
        assert caught.value.code == "predict.input"
    with pytest.raises(SeriatimError) as caught:
        trained[0].answer("a text", "who?", nbest=0)
    assert caught.value.code == "answer.nbest"
    assert trained[0].answer("a text", []) == []


# The task


def prepared(folder: Path, architecture: str = "gru", **sections: Any) -> tuple[Any, list[str]]:
    values = {
        "task": {"name": "answer", **sections.get("task", {})},
        "data": {"source": str(folder), **sections.get("data", {})},
        "model": {"name": architecture, "width": 8, **TINY.get(architecture, {}), **sections.get("model", {})},
    }
    notes: list[str] = []
    return answer.prepare(api.make_config(values), notify=notes.append), notes


def test_questions_without_an_answer_are_left_out_where_there_is_to_be_none(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", stories(40, 0, unanswerable=True))
    task, notes = prepared(Path(source), task={"unanswerable": False})
    assert not task.coder.unanswerable
    assert all(one.answers for part in task.parts.values() for one in part.asked.asked)
    assert any(note.startswith("train: left out 32 questions") for note in notes)
    other, _ = prepared(Path(source))
    assert other.coder.unanswerable
    assert other.size == sum(len(part) for name, part in other.parts.items() if name == "train")


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    records = stories(40, 0)
    records[0]["question"] = "who " * 80
    task, notes = prepared(Path(write(tmp_path / "a.jsonl", records)), task={"length": 12, "stride": 3})
    assert any("the passages of" in note and "windows of 12" in note for note in notes)
    assert any("1 question of over 5 tokens" in note for note in notes)
    assert int(max(part.inputs.lengths.max() for part in task.parts.values())) == 12


@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_a_model_reads_no_more_than_it_can(model: str, tmp_path: Path) -> None:
    source = Path(write(tmp_path / "a.jsonl", stories(40, 0)))
    task, _ = prepared(source, model, model={"context": 12})
    assert task.coder.window == 12
    network = task.build(registry.models.load(model).Settings(name=model, **TINY[model]))
    assert task.evaluate(network, "valid")["questions"] == 8
    long = Answerer(network, task.coder, 0.0).answer("so then " * 60 + "Anna", ["who?"], nbest=3)
    assert len(long[0]) == 3
    with pytest.raises(SeriatimError) as caught:
        prepared(source, model, model={"context": 7})
    assert caught.value.code == "task.length"


def test_the_element_for_no_answer_has_seen_the_passage(tmp_path: Path) -> None:
    """[CLS] in what looks both ways; the last element in what has no [CLS], or looks back only."""
    source = Path(write(tmp_path / "a.jsonl", stories(40, 0, unanswerable=True)))
    bert = {"tokenizer": {"kind": "bert", "size": 100}}
    closing = {
        model: [prepared(source, model, data=data)[0].coder.closing for data in ({}, bert)]
        for model in ("gru", "gpt", "bert")
    }
    assert closing == {"gru": [True, False], "gpt": [True, True], "bert": [False, False]}


def test_a_tokenizer_that_is_ready_is_taken(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", stories(40, 0))
    tokenizer = tokenizer_of("bert", ["then so there"])
    config = api.make_config({"task": "answer", "data": source, "model": "gru"})
    assert answer.prepare(config, tokenizer=tokenizer).coder.tokenizer is tokenizer


def test_answers_may_be_longer_where_those_of_the_training_are(tmp_path: Path) -> None:
    records = [
        {"question": "what?", "context": f"{number} " + "word " * 60, "answers": [("word " * 45).strip()]}
        for number in range(30)
    ]
    source = Path(write(tmp_path / "a.jsonl", records))
    assert prepared(source)[0].coder.answer == 45
    assert prepared(source, task={"longest": 10})[0].coder.answer == 10
    assert prepared(Path(write(tmp_path / "b.jsonl", stories(20, 0))))[0].coder.answer == 30


def test_a_whole_question_is_measured_or_not_at_all(tmp_path: Path) -> None:
    task, _ = prepared(Path(write(tmp_path / "a.jsonl", stories(100, 0))), task={"length": 12, "stride": 3})
    part: SpanPart = task.parts["train"]
    some = task.chosen("train", 200)
    assert 0 < len(some) < len(part)
    for question in np.unique(part.inputs.question[some]):
        assert (part.inputs.question[some] == question).sum() == (part.inputs.question == question).sum()


def test_what_a_teacher_is_asked(trained: Any) -> None:
    """The loss is that of what is read; a teacher like the student is at distance 0, and others are told apart."""
    run, _, unanswerable = trained
    task = answer.reopen(run.path, run.config)
    batch = task.batch(0, 0, 6, 6)
    with torch.no_grad():
        scores, vectors, _ = task.read(run.model, batch)
    assert scores.shape == (12, batch.inputs.shape[1])
    assert vectors.shape == (12, 64)
    torch.testing.assert_close(task.hard(run.model, scores, batch, 0.1), task.loss(run.model, batch, None, 0.1)[0])
    assert task.soft(run.model, scores, scores, 2.0).item() == pytest.approx(0, abs=1e-6)
    other = torch.where(scores == -torch.inf, scores, torch.randn_like(scores)).requires_grad_()
    distance = task.soft(run.model, other, scores, 2.0)
    distance.backward()
    assert distance > 0
    assert other.grad is not None
    assert other.grad.isfinite().all()
    assert task.unlike(run.predictor) == []
    strange = replace(task.coder, unanswerable=not unanswerable, tokenizer=tokenizer_of("word"))
    found = task.unlike(Answerer(run.model, strange, 0.0))
    assert any("may say that there is no answer" in text for text in found)
    assert any("token" in text for text in found)


def test_a_damaged_coder_is_told(trained: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.yaml", "model.safetensors", "tokenizer.json"):
        (folder / name).write_bytes((trained[0].path / name).read_bytes())
    for text in ("", "[]", '{"kind": "spans"}'):
        (folder / "data.json").write_text(text, encoding="utf-8")
        with pytest.raises(SeriatimError) as caught:
            seriatim.load(folder).answer("a text", "who?")
        assert caught.value.code == "run.damaged"
