"""Translators in use: what they say does not depend on neighbours, scores are those of `score`, ensembles and means of
weights are what hand-made ones are, and every way in and out of the commands."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import seriatim
from seriatim.cli import run as cli
from seriatim.core.tensors import load_tensors
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.decode.options import TranslateSettings
from seriatim.nn.network import TokenHead
from seriatim.tasks._alignment import Looked, Side
from seriatim.tasks._pairs import PairCoder
from seriatim.tasks._translator import Interpreter
from seriatim.tasks.translate import network
from seriatim.training.config import make_config

PEOPLE = {"I": "je", "you": "tu", "he": "il", "we": "nous"}
DEEDS = {"see": ("vois", "vois", "voit", "voyons"), "eat": ("mange", "manges", "mange", "mangeons")}
THINGS = {"hat": "chapeau", "book": "livre", "cat": "chat"}
KINDS = {"red": "rouge", "big": "énorme", "green": "vert"}
ROWS = [
    (f"{who} {deed} the {kind} {thing} .", f"{qui} {DEEDS[deed][place]} le {chose} {sorte} .")
    for place, (who, qui) in enumerate(PEOPLE.items())
    for deed in DEEDS
    for thing, chose in THINGS.items()
    for kind, sorte in KINDS.items()
]
TEXTS = ["I see the red hat .", "we eat", "", "he see the big big big green cat .", "ßß Ж you"]
MODELS: dict[str, dict[str, Any]] = {
    "seq2seq": {"layers": 1},
    "bahdanau": {"cell": "lstm", "layers": 2},
    "transformer": {"heads": 2, "layers": 2, "feedforward": 32},
    "gru": {},
    "tcn": {},
    "gpt": {"heads": 2, "layers": 1},
    "mlp": {},
}


def coder_of(kind: str, longest: int = 60) -> PairCoder:
    """One vocabulary of words or parts of words for both sides."""
    settings = TokenizerSettings(kind=kind, size=90)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train(settings, (f"{text}\n" for row in ROWS for text in row))
    return PairCoder(tokenizer, tokenizer, longest)


def untrained(name: str, coder: PairCoder, seed: int = 0, **more: Any) -> Any:
    """A network that is sure of what it says, though it knows nothing."""
    values = {"name": name, "width": 16, **MODELS.get(name, {}), **more}
    config = make_config({"task": "translate", "data": "none", "model": values})
    torch.manual_seed(seed)
    made = network(config.model, coder, config.task)
    with torch.no_grad():
        made.head.bias.copy_(2 * torch.randn(coder.target.size))
        made.head.bias[coder.target.eos or 0] += 1
    return made


PARTS = coder_of("bpe")


@pytest.fixture(scope="module", params=MODELS)
def any_model(request: pytest.FixtureRequest) -> Interpreter:
    return Interpreter([untrained(request.param, PARTS)], PARTS)


@pytest.mark.parametrize("options", [{"beams": 4, "nbest": 2}, {"beams": 1}, {"top_k": 5, "nbest": 2}], ids=str)
def test_alone_as_among_others_and_scored_alike(any_model: Interpreter, options: dict[str, Any]) -> None:
    asked = TranslateSettings(**options, max_tokens=8)
    together = any_model.translate(TEXTS, asked)
    for text, answers in zip(TEXTS, together, strict=True):
        (alone,) = any_model.translate([text], asked)
        assert [one.text for one in answers] == [one.text for one in alone]
        assert [one.score for one in answers] == pytest.approx([one.score for one in alone], abs=1e-5)
        if not text:
            assert [one.text for one in answers] == [""]
            continue
        assert len(answers) == asked.nbest
        for one in answers:
            assert len(one.tokens) <= 8
            assert one.score == pytest.approx(any_model.score(text, one.text).log_probability, abs=1e-4)


def test_long_sources(any_model: Interpreter) -> None:
    """A thousand tokens for those that take any number; for the others a word with the input and both numbers."""
    texts = ["we eat", "", "we" + " we" * 999]
    count = len(PARTS.sources(texts)[2])
    assert count > 1000
    asked = TranslateSettings(beams=2, max_tokens=4)
    if any_model.context is None:
        assert len(any_model.translate(texts, asked)[2][0].tokens) <= 4
        return
    with pytest.raises(seriatim.SeriatimError, match=f"input 3 has {count:,} tokens, the model takes 60"):
        any_model.translate(texts, asked)
    with pytest.raises(seriatim.SeriatimError, match=r"in\.txt, line 3 has"):
        any_model.translate(texts, asked, ["", "", "in.txt, line 3"])


@pytest.mark.parametrize("beams", [1, 3])
def test_no_longer_than_the_positions(beams: int) -> None:
    coder = coder_of("bpe", longest=12)
    made = untrained("transformer", coder, positions="learned")
    with torch.no_grad():
        made.head.bias[coder.target.eos] = -50  # it never wants to end
    (answers,) = Interpreter([made], coder).translate(["we eat"], TranslateSettings(beams=beams))
    assert (len(answers[0].tokens), answers[0].finished) == (12, False)


def test_score_is_a_product_of_probabilities(any_model: Interpreter) -> None:
    """The chain rule, by the network as a whole."""
    source, target = PARTS.sources(["we eat"])[0], PARTS.targets(["le chat"])[0]
    given = torch.tensor([[PARTS.target.eos, *target[:-1]]])
    with torch.inference_mode():
        log_probs = any_model.model(torch.from_numpy(source)[None], given).log_softmax(dim=-1)[0]
    wanted = log_probs[torch.arange(len(target)), torch.from_numpy(target)]
    found = any_model.score("we eat", "le chat")
    assert [value for _, value in found.pieces] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert found.tokens == len(target)
    assert found.log_probability == pytest.approx(float(wanted.sum()), abs=1e-4)


def test_a_given_beginning() -> None:
    model = Interpreter([untrained("bahdanau", PARTS)], PARTS)
    for beams in (1, 3):
        (answers,) = model.translate(["we eat"], TranslateSettings(prefix="nous mange", beams=beams, max_tokens=20))
        assert answers[0].text.startswith("nous mange")
        assert answers[0].score == pytest.approx(model.score("we eat", answers[0].text).log_probability, abs=1e-4)
    with pytest.raises(seriatim.SeriatimError, match="prefix"):
        model.translate(["we eat"], TranslateSettings(prefix="nous mangeons", max_tokens=2))
    with pytest.raises(seriatim.SeriatimError, match="Ж"):
        model.translate(["we eat"], TranslateSettings(prefix="Ж"))


@pytest.mark.parametrize("name", ["bahdanau", "transformer", "gru"])
def test_coverage_by_hand(name: str) -> None:
    """What a hypothesis is ranked by: its score over its length, and β Σ log min(Σ weights, 1)."""
    model = Interpreter([untrained(name, PARTS)], PARTS)
    options = TranslateSettings(coverage_penalty=0.4, beams=3, nbest=3, max_tokens=8)
    texts = ["I see the red hat .", "we eat"]
    for answers in model.translate(texts, options):
        for one in answers:
            weights = one.alignment.weights
            if not one.finished or len(weights) != len(one.tokens):
                continue
            missed = np.log(np.minimum(weights.sum(axis=0), 1)).sum()
            assert one.value == pytest.approx(one.score / options.divisor(len(one.tokens)) + 0.4 * missed, abs=1e-4)


def test_without_attention() -> None:
    model = Interpreter([untrained("seq2seq", PARTS)], PARTS)
    for ask in (
        lambda: model.alignment("we eat", "nous"),
        lambda: model.translate(["we eat"], TranslateSettings(coverage_penalty=0.2)),
    ):
        with pytest.raises(seriatim.SeriatimError) as caught:
            ask()
        assert caught.value.code == "model.no-attention"
        assert "bahdanau" in caught.value.remedy
        assert "seq2seq" not in caught.value.remedy


# ── several networks ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("beams", [1, 3])
def test_an_ensemble_of_one_is_that_one(beams: int) -> None:
    made = untrained("transformer", PARTS)
    asked = TranslateSettings(beams=beams, max_tokens=8)
    alone = Interpreter([made], PARTS).translate(TEXTS, asked)
    twice = Interpreter([made, made], PARTS).translate(TEXTS, asked)
    assert [one[0].text for one in alone] == [one[0].text for one in twice]
    assert [one[0].score for one in alone] == pytest.approx([one[0].score for one in twice], abs=1e-5)


def test_probabilities_are_averaged() -> None:
    """Greedy, step by step, from the mean of what the two say by themselves."""
    networks = [untrained("bahdanau", PARTS), untrained("transformer", PARTS, seed=1)]
    both = Interpreter(networks, PARTS)
    source = torch.from_numpy(PARTS.sources(["I see"])[0])[None]
    tokens = [PARTS.target.eos]
    total = 0.0
    with torch.inference_mode():
        for _ in range(6):
            said = [one(source, torch.tensor([tokens])).softmax(dim=-1)[0, -1].double() for one in networks]
            probs = sum(said) / 2
            probs[PARTS.target.unk] = 0
            tokens.append(int(probs.argmax()))
            total += math.log(probs.max())
            if tokens[-1] == PARTS.target.eos:
                break
    ((found,),) = both.translate(["I see"], TranslateSettings(beams=1, max_tokens=6))
    assert found.tokens == tokens[1:]
    if found.finished:
        assert found.score == pytest.approx(total, abs=1e-4)
    pieces = [one.score("I see", "je vois").pieces for one in (Interpreter([n], PARTS) for n in networks)]
    wanted = [math.log((math.exp(a) + math.exp(b)) / 2) for (_, a), (_, b) in zip(*pieces, strict=True)]
    assert [value for _, value in both.score("I see", "je vois").pieces] == pytest.approx(wanted, abs=1e-5)


# ── alignment and unknown words ───────────────────────────────────────────────────────────────────────────────────


class Parrot(nn.Module):
    """Says the source token by token, and looks at the one it says."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.head = TokenHead(vocabulary, vocabulary)
        self.backbone = nn.Module()
        self.backbone.context = None  # type: ignore[assignment]
        with torch.no_grad():
            self.head.weight.copy_(10 * torch.eye(vocabulary))

    def blank(self) -> Tensor:
        return torch.zeros(1, 1, dtype=torch.long)

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Any = None) -> Any:
        return source

    def decode(self, target: Tensor, memory: Any, state: Any = None, trace: Any = None) -> tuple[Tensor, Any]:
        first = torch.zeros(len(target), dtype=torch.long) if state is None else state
        places = (first[:, None] + torch.arange(target.shape[1])).clamp(max=memory.shape[1] - 1)
        if trace is not None:
            trace["alignment"] = nn.functional.one_hot(places, memory.shape[1]).float()
        said = nn.functional.one_hot(memory.gather(1, places), self.head.weight.shape[0])
        return said.float(), first + target.shape[1]


def test_unknown_words_are_taken_from_the_source() -> None:
    coder = coder_of("word")
    model = Interpreter([Parrot(coder.target.size)], coder)  # type: ignore[list-item]
    texts = ["the Zebra sees Oslo .", "I see the red hat ."]
    said = model.translate(texts, TranslateSettings())
    assert [one[0].text for one in said] == ["the Zebra sees Oslo.", "I see the red hat."]
    assert said[0][0].score == pytest.approx(model.score(texts[0], "the <unk> <unk> <unk> .").log_probability, abs=1e-5)
    for beams in (1, 2):
        ((kept,),) = model.translate(texts[:1], TranslateSettings(beams=beams, replace_unknown=False))
        assert coder.target.unk not in kept.tokens
        assert "Zebra" not in kept.text
    assert model.unknown(texts) == ["Zebra", "sees", "Oslo"]
    parts = Interpreter([Parrot(PARTS.target.size)], PARTS)  # type: ignore[list-item]
    ((found,),) = parts.translate(["Ж see"], TranslateSettings())
    assert PARTS.target.unk not in found.tokens


def test_alignment_by_words() -> None:
    model = Interpreter([Parrot(PARTS.target.size)], PARTS)  # type: ignore[list-item]
    text = "we see the enormous hat."
    found = model.alignment(text, text)
    assert found.weights.shape == (len(found.target), len(found.source))
    assert found.weights.sum(axis=1) == pytest.approx(np.ones(len(found.target)))
    words = found.words()
    assert words.source == words.target == ["we", "see", "the", "enormous", "hat", ".", "<eos>"]
    for place, (word, looked) in enumerate(words.best()):
        assert looked[0][0] == word
        assert words.weights[place].sum() == pytest.approx(1)
    assert words.view()["values"] == words.weights.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("le petit chien", ["le", "petit", "chien", "<eos>"]),
        ("l'eau 12,5", ["l", "'", "eau", "12", ",", "5", "<eos>"]),
        ("שלום עולם", ["שלום", "עולם", "<eos>"]),
    ],
)
@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram"])
def test_words_of_parts(kind: str, text: str, words: list[str]) -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind=kind, size=300), [f"{text}\n"] * 3)  # type: ignore[arg-type]
    ids = [*tokenizer.encode(text).tolist(), tokenizer.eos]
    assert Side.of(tokenizer, ids, text).words == words


def test_writing_without_blanks_stays_in_tokens() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="bpe", size=8), ["我喜欢书\n", "我喜欢你\n"] * 3)
    ids = tokenizer.encode("我喜欢书").tolist()
    side = Side.of(tokenizer, ids, "我喜欢书")
    assert len(side.words) == len(ids) > 1
    letters = Tokenizer.train(TokenizerSettings(kind="bpe", size=6), ["ab b\n"])
    ids_of = letters.encode("ab b").tolist()
    assert [letters.token(one) for one in ids_of] == ["a", "b", "␣", "b"]
    assert Side.of(letters, ids_of, "ab b").words == ["ab", "b"]  # a blank by itself belongs to what follows
    both = Looked.of(side, side, np.eye(len(ids)))
    assert both.words().source == side.tokens


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pairs.tsv with a third column, and two runs on it; the first keeps three checkpoints."""
    folder = tmp_path_factory.mktemp("translate")
    lines = [f"{source}\t{target}\tCC-BY {number}" for number, (source, target) in enumerate(ROWS)]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    values: dict[str, Any] = {
        "model": {"width": 32, "layers": 1},
        "data": {"tokenizer": {"kind": "word"}, "held_out": 6},
        "train": {"batch": 16, "evaluate_steps": 10, "keep": 3, "optimiser": {"rate": 0.01}},
    }
    for seed, steps in enumerate((60, 10)):
        seriatim.train(
            "translate", str(folder / "pairs.tsv"), "bahdanau", settings=values, steps=steps, seed=seed,
            out=folder / f"run{seed}",
        )  # fmt: skip
    return folder


Say = Callable[..., str]


@pytest.fixture
def say(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.chdir(desk)

    def ask(*arguments: str, status: int = 0, error: str = "") -> str:
        capsys.readouterr()
        assert cli(list(arguments)) == status, capsys.readouterr().err
        out, err = capsys.readouterr()
        assert error in err
        return out

    return ask


def test_texts_and_python(desk: Path, say: Say) -> None:
    run = seriatim.load(desk / "run0")
    texts = ["I see the red hat .", "we eat the big cat ."]
    said = run.translate(texts)
    assert said[0] == run.translate(texts[0]) == "je vois le chapeau rouge."
    assert say("translate", "run0", *texts) == f"{said[0]}\n{said[1]}\n"
    three = run.translate(texts[0], nbest=3)
    assert three[0] == said[0]
    assert len(set(three)) == 3
    rows = [line.split("\t") for line in say("translate", "run0", texts[0], "--nbest", "3").splitlines()]
    assert [(row[0], row[2]) for row in rows] == [(str(n), text) for n, text in enumerate(three, 1)]
    both = [line.split("\t")[:2] for line in say("translate", "run0", *texts, "--nbest", "2").splitlines()]
    assert both == [["1", "1"], ["1", "2"], ["2", "1"], ["2", "2"]]
    answers = run.translations(texts[:1])[0]
    assert float(rows[0][1]) == pytest.approx(answers[0].score, abs=1e-4)
    assert answers[0].score == pytest.approx(run.score(texts[0], said[0]).log_probability, abs=1e-4)
    with pytest.raises(seriatim.SeriatimError, match="a source and a target"):
        run.score(texts[0])


def test_the_alignment_crosses(desk: Path) -> None:
    """Adjectives come behind their nouns: from one to the next, what it looks at moves back in the source. (Which of
    the two it looks at most after so short a training differs from one processor to another.)"""
    words = seriatim.load(desk / "run0").alignment("I see the red hat .").words()
    chapeau, rouge = (words.weights[words.target.index(word)] for word in ("chapeau", "rouge"))
    hat, red = words.source.index("hat"), words.source.index("red")
    assert chapeau[hat] > rouge[hat]
    assert rouge[red] > chapeau[red]


def test_lines_of_a_file(desk: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["I see the red hat .", "", "we eat the big cat .", "  ", "you ßß"]
    data = "\ufeff" + "\r\n".join(lines)
    (desk / "in.txt").write_bytes(data.encode())
    wanted = [seriatim.load("run0").translate(line) for line in lines]
    assert wanted[1] == wanted[3] == ""
    monkeypatch.setattr("seriatim.cli.translate.LINES", 2)
    assert say("translate", "run0", "--file", "in.txt", error='read as <unk>: "ßß"').split("\n") == [*wanted, ""]
    assert say("translate", "run0", "--file", "in.txt", "--out", "out.txt", error="5 lines: out.txt") == ""
    assert (desk / "out.txt").read_text(encoding="utf-8").split("\n") == [*wanted, ""]
    for way in ([], ["-"], ["--file", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.encode()), encoding="ascii"))
        assert say("translate", "run0", *way, "--quiet").split("\n") == [*wanted, ""]
    records = [json.loads(line) for line in say("translate", "run0", "--file", "in.txt", "--json").splitlines()]
    assert [one["source"] for one in records] == lines
    assert [one["translations"][0]["text"] for one in records] == wanted
    (desk / "bad.txt").write_bytes(b"we\n\xff\n")
    say("translate", "run0", "--file", "bad.txt", "--out", "none.txt", status=2, error="bad.txt, line 2: not UTF-8")
    assert not (desk / "none.txt").exists()


def test_what_was_looked_at(desk: Path, say: Say) -> None:
    said = say("translate", "run0", "I see the red hat .", "--alignment").splitlines()
    assert said[0] == "je vois le chapeau rouge."
    ((looked, _), *_) = dict(seriatim.load("run0").alignment("I see the red hat .").words().best())["chapeau"]
    assert said[4].split()[:2] == ["chapeau", looked]
    say("translate", "run0", "I see the red hat .", "--alignment", "--out", "look.svg")
    picture = (desk / "look.svg").read_text(encoding="utf-8")
    assert all(f">{word}<" in picture for word in ("chapeau", "hat", "rouge", "red"))
    (record,) = say("translate", "run0", "I see the red hat .", "--alignment", "--json").splitlines()
    found = json.loads(record)["alignment"]
    assert found["source"] == ["I", "see", "the", "red", "hat", ".", "<eos>"]
    assert [sum(row) for row in found["weights"]] == pytest.approx([1] * len(found["target"]), abs=1e-4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_conversation(desk: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["I see the red hat .", "", "we eat the big cat ."])

    def typed(prompt: str = "") -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr(sys, "stdin", Terminal())
    texts = ["I see the red hat .", "we eat the big cat ."]
    assert say("translate", "run0", error="ctrl-D").split("\n")[:2] == seriatim.load("run0").translate(texts)


def test_together(desk: Path, say: Say) -> None:
    one, other = seriatim.load("run0"), seriatim.load("run1")
    both = one.together(other)
    pair = ("I see the red hat .", "je vois le chapeau rouge .")
    pieces = [run.score(*pair).pieces for run in (one, other)]
    wanted = sum(math.log((math.exp(a) + math.exp(b)) / 2) for (_, a), (_, b) in zip(*pieces, strict=True))
    assert both.score(*pair).log_probability == pytest.approx(wanted, abs=1e-4)
    assert say("translate", "run0", pair[0], "--with", "run1").strip() == both.translate(pair[0])
    assert one.together(one).translate(pair[0]) == one.translate(pair[0])
    (desk / "few.tsv").write_text("\n".join(f"{a} we\t{b}" for a, b in ROWS[:40]), encoding="utf-8")
    small = {"model": {"width": 8}, "data": {"tokenizer": {"kind": "word"}}}
    seriatim.train("translate", "few.tsv", "gru", settings=small, steps=1, out="few")
    say("translate", "run0", "a", "--with", "few", status=2, error="few has other vocabularies than run0")


def test_files_and_scores(desk: Path, say: Say) -> None:
    run = seriatim.load("run0")
    table = run.predict_file("pairs.tsv")
    assert table.columns == ["translation", "score"]
    assert len(table.rows) == len(ROWS)
    assert table.rows[5][0] == run.translate(ROWS[5][0])
    (desk / "two.tsv").write_text("I see\tje vois\nwe\tnous\tCC\n", encoding="utf-8")
    scores = json.loads(say("score", "run0", "--file", "two.tsv", "--json"))
    (alone,) = json.loads(say("score", "run0", "I see", "je vois", "--json"))
    assert scores[0] == alone
    assert alone["log_probability"] == pytest.approx(run.score("I see", "je vois").log_probability)
    (desk / "one.tsv").write_text("I see\tje vois\nwe\n", encoding="utf-8")
    say("score", "run0", "--file", "one.tsv", status=2, error="one.tsv, line 2: there is no tab")


def test_mistakes(desk: Path, say: Say) -> None:
    for arguments, error in (
        (["a", "--file", "in.txt"], "translate.input"),
        (["a", "--beams", "1", "--nbest", "3"], "nbest 3 needs beams"),
        (["a", "--beams", "3", "--temperature", "0.5"], "draws nothing"),
        (["a", "b", "--alignment", "--out", "x.svg"], "translate.picture"),
        (["--file", "nowhere.txt"], "file.missing"),
        (["a", "--with", "nowhere"], "run.missing"),
    ):
        say("translate", "run0", *arguments, status=2, error=error)


# ── the mean of weights ───────────────────────────────────────────────────────────────────────────────────────────


def test_mean_of_checkpoints(desk: Path, say: Say) -> None:
    steps = sorted(int(one.name) for one in (desk / "run0" / "checkpoints").iterdir())
    assert steps[-3:] == [40, 50, 60]
    say("average", "run0", "--last", "3", "--out", "mean", "--quiet")
    parts = [load_tensors(desk / "run0" / "checkpoints" / str(step) / "weights.safetensors") for step in steps[-3:]]
    found = load_tensors(desk / "mean" / "model.safetensors")
    assert found.keys() == parts[0].keys()
    for name, tensor in found.items():
        wanted = torch.stack([part[name].double() for part in parts]).mean(dim=0)
        torch.testing.assert_close(tensor, wanted.float(), rtol=0, atol=1e-7)
    mean = seriatim.load("mean")
    assert mean.translate("I see the red hat .") == "je vois le chapeau rouge."
    measured = mean.summary["measures"]["test"]
    assert seriatim.evaluate("mean")["loss"] == pytest.approx(measured["loss"])
    assert mean.summary["averaged"] == {"run": "run0", "steps": [40, 50, 60]}
    assert (desk / "mean" / "report.html").is_file()
    say("average", "run0", "--last", "9", "--out", "none", status=2, error="train.keep=9")
    say("average", "run0", "--out", "mean", status=2, error="run.exists")


def test_mean_of_runs(desk: Path, say: Say) -> None:
    say("average", "run0", "run1", "--out", "means", "--no-evaluate", "--quiet")
    one, other, both = (load_tensors(desk / name / "model.safetensors") for name in ("run0", "run1", "means"))
    for name, tensor in both.items():
        torch.testing.assert_close(tensor, (one[name] + other[name]) / 2)
    assert "measures" not in seriatim.load("means").summary
    assert isinstance(seriatim.load("means").translate("we eat"), str)


def test_mean_of_a_language_model(book: Path, tmp_path: Path) -> None:
    values = {"model": {"width": 8}, "train": {"batch": 4, "evaluate_steps": 2, "keep": 2, "ema": 0.5}}
    run = seriatim.train("language", str(book), "rnn", settings=values, steps=6, length=16, out=tmp_path / "run")
    mean = seriatim.average(run.path, last=2, out=tmp_path / "mean")
    parts = [load_tensors(run.path / "checkpoints" / str(step) / "average.safetensors") for step in (4, 6)]
    for name, tensor in load_tensors(mean.path / "model.safetensors").items():
        torch.testing.assert_close(tensor, (parts[0][name] + parts[1][name]) / 2)
    assert seriatim.evaluate(mean.path)["loss"] == pytest.approx(mean.summary["measures"]["test"]["loss"])
    assert mean.generate("the", max_tokens=3)
