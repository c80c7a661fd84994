"""Next words: equal to the enumeration of all token sequences, for characters, subwords and words, and every model."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.decode.words import END, search_words, split_units
from seriatim.models.ngram import NGram
from seriatim.models.ngram import Settings as NGramSettings
from seriatim.nn.network import token_network
from seriatim.tasks.base import DataSettings, TaskConfig
from seriatim.tasks.language.spec import LanguageSettings
from seriatim.tasks.language.stream import LanguageProcessor
from seriatim.tasks.language.task import LanguageModelPredictor, LanguageTask
from seriatim.tasks.predictor import Request
from seriatim.tasks.reading import Layout

MODELS = ["rnn", "lstm", "gru", "tcn", "mlp", "gpt"]
SIZES: dict[str, dict[str, Any]] = {"gpt": {"width": 8, "heads": 2, "layers": 2}, "tcn": {"width": 6, "levels": 2}}
TEXT = "ab a'b. a ab ab ba a ab. a ab b' a ab ab-b ab"
TOKENIZERS: dict[str, dict[str, Any]] = {
    "char": {"kind": "char"},
    "bpe": {"kind": "bpe", "vocab_size": 13},
    "byte-bpe": {"kind": "byte-bpe", "vocab_size": 264},
    "word": {"kind": "word", "vocab_size": 12},
    "wordpiece": {"kind": "wordpiece", "vocab_size": 14},
}


def make_tokenizer(kind: str) -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(**TOKENIZERS[kind]), [TEXT])


def make_predictor(name: str, tokenizer: Tokenizer, seed: int = 0) -> LanguageModelPredictor:
    """Returns a network with random weights, far from uniform."""
    settings = registry.models.load(name).Settings(name=name, **SIZES.get(name, {"width": 6}))
    config = TaskConfig(
        task=LanguageSettings(context_length=12), data=DataSettings(source="<memory>"), model=settings, seed=seed
    )
    task = LanguageTask(config, LanguageProcessor(tokenizer), Layout())
    torch.manual_seed(seed)
    network = token_network(settings, tokenizer.vocab_size, 12)
    with torch.no_grad():
        network.head.weight.mul_(6)
    return LanguageModelPredictor(task, network.eval())


# Units


def test_units_of_a_text() -> None:
    units = split_units("He said: don't--well-known  naïve\u0301\n'tis")
    assert units.words == ("He", "said", ":", "don't", "-", "-", "well-known", "naïve\u0301", "\n", "'")
    assert units.rest == "tis"
    for text, rest in (("a", "a"), ("a'", "a'"), ("a''", ""), ("a ", ""), ("a-b", "a-b"), ("", ""), ("'", "")):
        assert split_units(text).rest == rest


# Exactness


def enumerate_words(
    predictor: LanguageModelPredictor, head: str, prefix: str, partial: str, words: int, length: int
) -> tuple[dict[tuple[str, ...], float], float]:
    """Returns the probability of each result among all sequences of `length` tokens, and that of the prefix."""
    tokenizer = predictor.tokenizer
    before = predictor.encode_prompt(head)
    sequences = np.array(list(itertools.product(range(tokenizer.vocab_size), repeat=length)))
    rows = np.concatenate([np.tile(before, (len(sequences), 1)), sequences], axis=1)
    with torch.inference_mode():
        logits, _ = predictor.network(torch.from_numpy(rows))
    log_probs = logits.double().log_softmax(-1)[:, len(before) - 1 : -1]
    masses = log_probs.gather(2, torch.from_numpy(sequences)[:, :, None]).sum(dim=(1, 2)).exp().numpy()
    found: dict[tuple[str, ...], float] = defaultdict(float)
    total = 0.0
    for tokens, mass in zip(sequences.tolist(), masses.tolist(), strict=True):
        text = spell(tokenizer, tokens)
        if not text.startswith(prefix):
            total += mass if prefix == " " and text == UNKNOWN and tokenizer.drops_whitespace else 0.0
            continue
        total += mass
        units = closed_units(partial + text[len(prefix) :], tokenizer)
        if len(units) >= words or units[-1:] == [END]:
            found[tuple(units[:words])] += mass
    return found, total


UNKNOWN, ENDED = "\0", "\1"  # in a spelled text, after which it has nothing


def spell(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Returns the text of tokens up to the first that cannot be spelled, or that ends the text."""
    text = ""
    for token in tokens:
        name = tokenizer.names[token]
        if token == tokenizer.unk:
            return text + UNKNOWN
        if tokenizer.drops_whitespace:
            text += " \n" if token == tokenizer.eos else name[2:] if name.startswith("##") else f" {name}"
        elif token == tokenizer.eos:
            return text + ENDED
        else:
            text += tokenizer.decode([token])
    return text


def closed_units(text: str, tokenizer: Tokenizer) -> list[str]:
    """Returns the words and signs of a text that nothing can change that would follow."""
    known = text.rstrip(UNKNOWN)
    if tokenizer.drops_whitespace:
        units = re.findall(r"\n|[^ \n]+", known)
        is_open = tokenizer.kind != "word" and known == text and re.search(r"[^ \n]$", known)
        return units[:-1] if is_open else units
    if known.endswith(ENDED):
        return [*re.findall(r"\n|\w+(?:['’-]\w+)*|[^\w\s]", known[:-1]), END]
    finished = re.sub(r"\w+(?:['’-]\w+)*['’-]?$", "", known)  # without a word that may go on
    return re.findall(r"\n|\w+(?:['’-]\w+)*|[^\w\s]", finished)


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize(
    ("kind", "prompt", "head", "prefix", "partial", "length"),
    [
        ("char", "ab ", "ab ", "", "", 4),
        ("char", "b a", "b a", "", "a", 4),
        ("char", "b a'", "b a'", "", "a'", 4),
        ("char", "", "", "", "", 4),
        ("bpe", "ab ", "ab", " ", "", 3),
        ("bpe", "b a", "b", " a", "a", 3),
        ("bpe", "b.a", "", "b.a", "a", 3),
        ("word", "ab ", "ab ", " ", "", 3),
        ("word", "b a", "b ", " a", "a", 3),
        ("word", "b .", "b .", " ", "", 3),
        ("wordpiece", "ab ", "ab ", " ", "", 3),
        ("wordpiece", "b a", "b ", " a", "a", 3),
    ],
)
def test_equals_the_enumeration_of_all_sequences(
    kind: str, prompt: str, head: str, prefix: str, partial: str, length: int, words: int
) -> None:
    tokenizer = make_tokenizer(kind)
    predictor = make_predictor("gru", tokenizer)
    expected, total = enumerate_words(predictor, head, prefix, partial, words, length)
    log_probs, state = predictor.engine.prefill([predictor.encode_prompt(head)])
    results, unaccounted = search_words(
        predictor.engine.step,
        log_probs,
        state,
        predictor._pieces,
        partial,
        prefix.encode(),
        words,
        top=100_000,
        beams=100_000,
        max_tokens=length,
    )
    actual = {result.words: result.probability * total for result in results}
    assert actual == pytest.approx(dict(expected), rel=1e-4)
    assert unaccounted == pytest.approx(1 - sum(expected.values()) / total, abs=1e-5)
    # The predictor asks the same question, with fewer hypotheses and more tokens.
    for record in predictor.call("next", [prompt], words=words, top=5):
        text = record["text"].removesuffix(END).split() if words > 1 else [record["text"]]
        if (
            exact := {"".join(key).removesuffix(END): value for key, value in actual.items()}.get("".join(text))
        ) is None:
            continue
        assert record["probability"] <= exact / total + unaccounted + 1e-5
        assert exact / total <= record["probability"] + record["unaccounted"] + 1e-5


@pytest.mark.parametrize("model", [*MODELS, "ngram"])
def test_a_beam_finds_lower_bounds(model: str) -> None:
    """However few hypotheses there are, the exact probability is between the one found and that with the rest."""
    tokenizer = make_tokenizer("char")
    predictor = ngram_predictor(tokenizer) if model == "ngram" else make_predictor(model, tokenizer)
    for prompt, words in (("ab ", 1), ("b a", 1), ("b a", 3), ("a" * 30, 1)):
        wide = predictor.call("next", [prompt], words=words, top=200, beams=1000)
        exact = {record["text"]: record["probability"] for record in wide}
        narrow = predictor.call("next", [prompt], words=words, top=5, beams=8)
        least = 0.3 if prompt.endswith(" ") or words > 1 else 0.1  # without the word as it stands
        assert least < sum(exact.values()) + wide[0]["unaccounted"] <= 1 + 1e-9
        assert sum(record["probability"] for record in narrow) + narrow[0]["unaccounted"] <= 1 + 1e-9
        assert narrow[0]["text"] in exact
        for record in narrow:
            bound = exact.get(record["text"], 0.0)
            assert record["probability"] <= bound + wide[0]["unaccounted"] + 1e-6
            assert bound <= record["probability"] + narrow[0]["unaccounted"] + 1e-6


def ngram_predictor(tokenizer: Tokenizer, text: str = TEXT) -> LanguageModelPredictor:
    predictor = make_predictor("gru", tokenizer)
    settings = NGramSettings(name="ngram", order=8)
    return LanguageModelPredictor(predictor.task, NGram.fit(tokenizer.encode(text), tokenizer.vocab_size, settings))


# What a user sees

BOOK = "the students opened their books\nthe student opens the book\nthe studio was open. don't study!\n" * 20


@pytest.mark.parametrize("kind", ["char", "bpe", "word", "wordpiece", "unigram", "byte-bpe"])
def test_a_prompt_is_completed(kind: str) -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=300), [BOOK])
    predictor = ngram_predictor(tokenizer, BOOK)

    def answers(prompt: str, **options: Any) -> dict[str, str]:
        return {row["text"]: row["completion"] for row in predictor.call("next", [prompt], **options)}

    assert answers("the stud", top=3) == {"students": "ents", "student": "ent", "studio": "io"}
    assert list(answers("the students opened ", top=1).items()) == [("their", "their")]
    assert all(answers("the students opened the", top=3).values()), "each completion adds something"
    assert list(answers("the students opened their", words=2, top=1).items()) == [("their books", " books")]
    if not tokenizer.drops_whitespace:  # to which an apostrophe at the end is a word
        assert answers("was open. don'", top=1) == {"don't": "t"}
    assert "students opened their" in answers("the ", words=3, top=5)
    assert list(answers("the students opened their books\n", top=1)) == ["the"]
    assert len(answers("", top=3)) == 3


def test_tokens_that_end_words_as_in_the_first_gpt(tmp_path: Path) -> None:
    letters = sorted(set("the students opened their books"))
    names = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "st", "th", "the</w>", "stu"]
    (tmp_path / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\ns t\nt h\nth e</w>\nst u\n")
    tokenizer = Tokenizer.load(tmp_path / "vocab.json")
    predictor = ngram_predictor(tokenizer, "the students opened their books the students opened the books " * 20)
    (record,) = predictor.call("next", ["the stu"], top=1)
    assert (record["text"], record["completion"]) == ("students", "dents")
    assert record["probability"] > 0.4
    (record,) = predictor.call("next", ["the students "], words=2, top=1)
    assert (record["text"], record["completion"]) in (("opened the", "opened the"), ("opened their", "opened their"))
    assert record["probability"] > 0.4


def test_a_line_end_is_a_word() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="char"), [BOOK])
    predictor = ngram_predictor(tokenizer, BOOK)
    first = predictor.call("next", ["opened their books "], top=3)
    assert sum(row["probability"] for row in first) <= 1
    (record, *_) = predictor.call("next", ["don't study!"], top=1)
    assert (record["text"], record["completion"]) == ("↵", "\n")
    (token, *_) = predictor.call("next", ["don't study!"], top=1, unit="token")
    assert (token["text"], token["completion"]) == ("↵", "\n")


def test_characters_of_several_bytes() -> None:
    text = "größe grün größer über ärger grün\n" * 20
    tokenizer = Tokenizer.train(TokenizerSettings(kind="byte-bpe", vocab_size=262), [text])
    predictor = ngram_predictor(tokenizer, text)
    (record,) = predictor.call("next", ["über ärger gr"], top=1)
    assert (record["text"], record["completion"]) == ("grün", "ün")
    assert record["probability"] > 0.99, "the tokens of gr are not those that begin grün"


@pytest.fixture
def words() -> LanguageModelPredictor:
    return ngram_predictor(Tokenizer.train(TokenizerSettings(kind="word"), [BOOK]), BOOK)


def answer(predictor: LanguageModelPredictor, prompt: str, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the next words and the notes."""
    answer = predictor.execute(Request("next", [prompt], options))
    return answer.predictions(), answer.notes


def test_no_known_word_begins_like_that(words: LanguageModelPredictor) -> None:
    rows, notes = answer(words, "the xyz")
    assert rows == []
    assert [note.partition(";")[0] for note in notes] == ['no known word begins with "xyz"']
    rows, notes = answer(words, "the xyz ", top=1)
    assert (len(rows), notes) == (1, [])


def test_a_word_that_begins_no_other_is_followed_by_the_next(words: LanguageModelPredictor) -> None:
    predictor = words
    after = predictor.call("next", ["the students opened their "], top=4)
    rows, notes = answer(predictor, "the students opened their", top=4)
    assert [(row["text"], row["probability"]) for row in rows] == [(row["text"], row["probability"]) for row in after]
    assert rows[0]["completion"] == " books"
    assert len(notes) == 1
    (record,) = predictor.call("next", ["don't study"], top=1)
    assert (record["text"], record["completion"]) == ("!", "!"), "a sign has no space before it"
    rows = predictor.call("next", ["students opened their books"], top=1)
    assert [(row["text"], row["completion"]) for row in rows] == [("↵", "\n")]


def test_a_token_after_a_blank_adds_no_second_one(words: LanguageModelPredictor) -> None:
    for prompt, completion in (("students opened their ", "books"), ("students opened their", " books")):
        (row,) = words.call("next", [prompt], unit="token", top=1)
        assert (row["text"], row["completion"]) == ("books", completion)


def test_the_word_as_it_stands_is_not_listed(words: LanguageModelPredictor) -> None:
    """Others keep the probabilities they have beside it."""
    predictor = words
    rows, notes = answer(predictor, "the student opens the", top=2)
    log_probs, _ = predictor.engine.prefill([predictor.encode_prompt("the student opens")])
    probabilities = {word: float(log_probs[0, predictor.text_ids(word)[0]].exp()) for word in ("the", "their")}
    assert [row["text"] for row in rows] == ["their"]
    assert rows[0]["probability"] == pytest.approx(probabilities["their"] / sum(probabilities.values()), rel=1e-4)
    assert '"the" is a word as it stands' in notes[0]


def test_options_that_contradict() -> None:
    predictor = make_predictor("gru", make_tokenizer("char"))
    for options, message in (
        ({"words": 0}, "words"),
        ({"unit": "line"}, "unit"),
        ({"unit": "token", "words": 2}, "words"),
    ):
        with pytest.raises(SeriatimError, match=message):
            predictor.call("next", ["a"], **options)
