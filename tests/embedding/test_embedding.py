"""Vectors of texts and words: those of the network's outputs, alone and in a batch; neighbors and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.data.vectors import open_vectors
from seriatim.embedding import reader
from seriatim.nn.network import weights_digest
from seriatim.tasks import load
from seriatim.tasks.base import DataSettings, TaskConfig
from seriatim.tasks.language.spec import LanguageSettings
from seriatim.tasks.language.stream import LanguageProcessor
from seriatim.tasks.language.task import LanguageTask
from seriatim.tasks.predictor import Request
from seriatim.tasks.pretrain.task import PretrainProcessor, PretrainSettings, PretrainTask
from seriatim.tasks.reading import Layout, prepare
from seriatim.tasks.shared_spec import EmbedOptions, WordOptions
from seriatim.tasks.text_predictor import EmbeddingPredictor

RIVER = ["We sat on the river bank.", "The BANK of the river was muddy, so muddy."]
CASH = ["The bank, unreadable as ever, gave me cash.", "My bank has no cash"]
TEXTS = [*RIVER, "", "cash", *CASH, "Unreadable!  \n Muddy river; ever muddy river."]
WORDS = [
    *("we", "sat", "on", "the", "river", "bank", "of", "was", "muddy", "so", "un", "##read", "##able", "as", "ever"),
    *("gave", "me", "cash", "my", "has", "no", ",", ".", "!", ";"),
]
SENTENCES = [
    " ".join(np.random.default_rng(n).choice([word for word in WORDS if word[0] != "#"], 2 + n % 9)) for n in range(80)
]


def model(name: str, **sizes: Any) -> Any:
    return registry.models.load(name).Settings(name=name, **({"width": 12} | sizes))


def tokenizer(kind: Any) -> Tokenizer:
    settings = TokenizerSettings(kind=kind, vocab_size=120, lowercase=True)
    return Tokenizer.train(settings, [f"{text}\n" for text in SENTENCES])


def config(task: Any, settings: Any) -> TaskConfig:
    return TaskConfig(task=task, data=DataSettings(source=""), model=settings)


def language_model(settings: Any, length: int) -> EmbeddingPredictor:
    task = LanguageTask(
        config(LanguageSettings(context_length=length), settings), LanguageProcessor(tokenizer("char")), Layout()
    )
    return task.predictor(task.network(settings))


def encoder(length: int = 32) -> EmbeddingPredictor:
    """Returns a BERT whose words have several tokens."""
    settings = model("bert", heads=2, layers=2, context_length=length)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    backend = Backend(models.WordPiece({token: index for index, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(vocabulary[:5])
    processor = PretrainProcessor.from_pretrained({"tokenizer": Tokenizer(backend)}, length)
    task = PretrainTask(config(PretrainSettings(masked=False, next=False), settings), processor, Layout())
    return task.predictor(task.network(settings))


def classifier(settings: Any, kind: str = "word") -> EmbeddingPredictor:
    rows = [{"text": text, "label": "river" if "river" in text else "cash"} for text in SENTENCES]
    return prepared("classify", settings, rows, tokenizer={"kind": kind, "vocab_size": 120, "lowercase": True})


def prepared(name: str, settings: Any, rows: list[dict[str, Any]], **task_settings: Any) -> EmbeddingPredictor:
    """Returns the predictor of a task whose processor is fitted on rows, with random weights."""
    task_class = load(name)
    task, _ = prepare(task_class, config(task_class.settings_type(**task_settings), settings), data=rows)
    return task.predictor(task.network(settings))


def tagger(settings: Any, kind: str = "wordpiece", **task_settings: Any) -> EmbeddingPredictor:
    rows = [{"tokens": text.split(), "tags": ["AB"[len(word) % 2] for word in text.split()]} for text in SENTENCES]
    tokenizer_settings = {"kind": kind, "vocab_size": 120, "lowercase": True}
    return prepared("tag", settings, rows, tokenizer=tokenizer_settings, **task_settings)


def translator(settings: Any) -> EmbeddingPredictor:
    rows = [{"source": text, "target": text[::-1]} for text in SENTENCES]
    return prepared("translate", settings, rows, tokenizer={"kind": "bpe", "vocab_size": 120})


def answerer(settings: Any) -> EmbeddingPredictor:
    rows = [
        {"context": text, "question": "who?", "answers": {"text": [text.split()[0]], "answer_start": [0]}}
        for text in SENTENCES
    ]
    return prepared("answer", settings, rows)


PREDICTORS: dict[str, Any] = {
    "tag": lambda: tagger(model("gru", bidirectional=True)),
    "tag in windows": lambda: tagger(model("bert", heads=2, layers=1, context_length=64), "bert", context_length=32),
    "answer": lambda: answerer(model("gru", bidirectional=True)),
    "seq2seq": lambda: translator(model("seq2seq")),
    "bahdanau": lambda: translator(model("bahdanau")),
    "transformer": lambda: translator(model("transformer", heads=2, layers=1)),
    "attention after a GRU": lambda: translator(model("gru")),
    "classify lstm": lambda: classifier(model("lstm")),
    "classify bidirectional": lambda: classifier(model("lstm", bidirectional=True), "bpe"),
    "classify gpt": lambda: classifier(model("gpt", heads=2, layers=1, context_length=64), "unigram"),
    "language": lambda: language_model(model("lstm"), 16),
    "language, limited": lambda: language_model(model("gpt", heads=2, layers=1, context_length=16), 16),
    "encoder": encoder,
}


@pytest.fixture(scope="module", params=PREDICTORS)
def predictor(request: pytest.FixtureRequest) -> EmbeddingPredictor:
    torch.manual_seed(0)
    return PREDICTORS[request.param]()


@pytest.fixture(scope="module")
def bert() -> EmbeddingPredictor:
    torch.manual_seed(0)
    return encoder()


def embed(predictor: EmbeddingPredictor, texts: list[str], **options: Any) -> np.ndarray:
    return np.stack([record["vector"] for record in predictor.call("embed", texts, **options)])


def test_alone_as_in_a_batch(predictor: EmbeddingPredictor) -> None:
    for pooling in ("mean", "max", "last"):
        vectors = embed(predictor, TEXTS, pooling=pooling, normalize=False)
        assert vectors.dtype == np.float32
        assert len({vector.tobytes() for vector in vectors}) == len(TEXTS)
        for text, vector in zip(TEXTS, vectors, strict=True):
            assert embed(predictor, [text], pooling=pooling, normalize=False)[0] == pytest.approx(vector, abs=1e-6)
    assert predictor.embedder()([]).shape == (0, vectors.shape[1])
    unit = embed(predictor, TEXTS)
    mean = embed(predictor, TEXTS, normalize=False)
    assert unit == pytest.approx(mean / np.linalg.norm(mean, axis=1, keepdims=True), abs=1e-5)
    if not predictor.text_reader().cls_sep:
        with pytest.raises(SeriatimError, match=r"no \[CLS\]"):
            embed(predictor, TEXTS, pooling="cls")


def test_pooling_is_over_the_outputs_of_the_network(bert: EmbeddingPredictor) -> None:
    network, tokenizer = bert.network, bert.text_reader().tokenizer
    for text in TEXTS:
        ids = tokenizer.frame(tokenizer.encode(text, strict=False))
        hidden = network.hidden(torch.from_numpy(ids)[None])[0][0].detach().numpy()
        expected = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0), "last": hidden[-1]}
        for pooling, vector in expected.items():
            assert embed(bert, [text], pooling=pooling, normalize=False)[0] == pytest.approx(vector, abs=1e-5)


def test_a_language_model_does_not_pool_its_line_end() -> None:
    predictor = PREDICTORS["language"]()
    hidden = predictor.network.hidden(torch.from_numpy(predictor.encode_prompt("my bank"))[None])[0][0].detach()
    assert len(hidden) == 1 + len("my bank")
    assert embed(predictor, ["my bank"], normalize=False)[0] == pytest.approx(hidden[1:].mean(0).numpy(), abs=1e-6)
    result = predictor.word_vectors("bank", ["my bank"], normalize=False)
    assert result.contextual[0] == pytest.approx(hidden[4:].mean(0).numpy(), abs=1e-6)


def test_words_in_context(predictor: EmbeddingPredictor) -> None:
    """A static vector is the same everywhere, vectors in context differ; each belongs to its own span."""
    records = predictor.call("words", ["river bank", "the BANK", "cash bank", "my bank"], word="bank")
    assert [record["text"][record["start"] : record["end"]] for record in records] == ["bank", "BANK", "bank", "bank"]
    assert records[0]["static_vector"] @ records[2]["static_vector"] == pytest.approx(1, abs=1e-6)
    assert records[0]["vector"] @ records[2]["vector"] < 1 - 1e-6


def test_a_word_of_several_tokens_is_their_mean(bert: EmbeddingPredictor) -> None:
    result = bert.word_vectors("unreadable", [CASH[0], TEXTS[-1]], normalize=False)
    assert result.tokens == [["un", "##read", "##able"]] * 2
    tokenizer, table = bert.text_reader().tokenizer, bert.network.input.weight.detach()
    for text, span, contextual, static in zip(
        result.sentences, result.spans, result.contextual, result.static, strict=True
    ):
        assert text[slice(*span)].lower() == "unreadable"
        ids = tokenizer.frame(tokenizer.encode(text))
        first = ids.tolist().index(tokenizer.names.index("un"))
        hidden = bert.network.hidden(torch.from_numpy(ids)[None])[0][0].detach()
        assert contextual == pytest.approx(hidden[first : first + 3].mean(0).numpy(), abs=1e-5)
        assert static == pytest.approx(table[ids[first : first + 3]].mean(0).numpy(), abs=1e-6)


def test_long_texts_are_truncated_with_a_note(bert: EmbeddingPredictor) -> None:
    long = "river " * 40
    embedder = bert.embedder()
    vectors = embedder([long, "cash"])
    assert embedder.note == "1 text is truncated: longer than the 32 tokens that the model accepts"
    assert vectors[0] == pytest.approx(bert.embedder()(["river " * 30])[0], abs=1e-6), "and [CLS] and [SEP]"
    assert bert.word_vectors("river", [long]).truncated == 10
    with pytest.raises(SeriatimError, match="occurs only beyond the 32 tokens"):
        bert.word_vectors("bank", [long + "bank"])
    windows = PREDICTORS["tag in windows"]()
    assert windows.embedder()([long]) == pytest.approx(windows.embedder()(["river " * 30]), abs=1e-6)
    assert windows.word_vectors("river", [long]).truncated == 10
    limited = PREDICTORS["language, limited"]()
    assert limited.embedder()(["river " * 9]) == pytest.approx(limited.embedder()([("river " * 9)[:15]]), abs=1e-6)


@pytest.mark.parametrize(
    ("word", "text", "occurrences"),
    [
        ("bank", "a bank; banks, embank, BANK!", ["bank", "BANK"]),
        ("river bank", "the River bank", ["River bank"]),
        ("$5", "it is $5.", ["$5"]),
        ("我", "这我想", ["我"]),
    ],
)
def test_where_a_word_occurs(bert: EmbeddingPredictor, word: str, text: str, occurrences: list[str]) -> None:
    assert [text[slice(*span)] for span in bert.word_vectors(word, [text]).spans] == occurrences


def test_texts_without_the_word_are_reported_at_once(bert: EmbeddingPredictor) -> None:
    with pytest.raises(SeriatimError) as caught:
        bert.call("words", ["the river", RIVER[0], "cash"], word="bank")
    assert '"the river"; "cash"' in caught.value.cause
    assert len(bert.call("words", ["the river", RIVER[0]], word="bank", strict=False)) == 1
    with pytest.raises(SeriatimError, match="does not occur"):
        bert.word_vectors("bank", ["the river"], strict=False)
    with pytest.raises(SeriatimError, match="the word is empty"):
        bert.word_vectors(" ", ["the river"])


def test_fragments_show_a_word_with_its_surroundings(bert: EmbeddingPredictor) -> None:
    text = "so muddy was the bank of the river, and ever so muddy was the bank."
    assert bert.word_vectors("bank", [text]).fragments(12) == ["… was the [bank] of the …", "… was the [bank]."]


def test_what_has_no_vectors_raises_an_error(bert: EmbeddingPredictor) -> None:
    rows = {"x": [[float(n), 1.0] for n in range(30)], "label": ["a", "b"] * 15}
    task_class = load("classify")
    task, _ = prepare(task_class, config(task_class.settings_type(), model("gru")), data=rows)
    with pytest.raises(SeriatimError, match='has no capability "embed"'):
        task.predictor(task.network(task.config.model)).call("embed", ["a text"])
    with pytest.raises(SeriatimError, match="input 2 is 7, not a text"):
        bert.embedder()(["a text", 7])  # type: ignore[list-item]
    with pytest.raises(SeriatimError) as caught:
        bert.embedder("cls2")
    assert caught.value.code == "embed.pooling"


# Neighbors


def write_vectors(predictor: EmbeddingPredictor, path: Path, texts: list[str], options: EmbedOptions) -> None:
    writer = predictor.open_writer("embed", options, path, "runs/x")
    assert writer is not None
    with writer as write:
        for text in texts:
            write(list(predictor.call("embed", [text], **options.model_dump())))


def test_nearest_texts_of_a_list_a_file_and_stored_vectors(
    bert: EmbeddingPredictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BLOCK_TEXTS", 3)
    lines = [text.replace("\n", " ") for text in TEXTS]
    first, *_ = bert.call("nearest", ["my bank has no cash"], among=lines)
    assert (first["row"], first["text"]) == (5, CASH[1])
    assert first["similarity"] == pytest.approx(1, abs=1e-5)
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    write_vectors(bert, tmp_path / "v.parquet", lines, EmbedOptions())
    expected = bert.call("nearest", ["cash", "river"], among=lines, top=2)
    assert [record["query"] for record in expected] == ["cash", "cash", "river", "river"]
    for among in (str(tmp_path / "texts.txt"), str(tmp_path / "v.parquet")):
        records = bert.call("nearest", ["cash", "river"], among=among, top=2)
        assert [(r["row"], r["text"]) for r in records] == [(r["row"], r["text"]) for r in expected]
    own = bert.call("nearest", [*RIVER, *CASH], top=1)
    assert [record["query"] for record in own] == [*RIVER, *CASH]
    assert all(record["text"] != record["query"] for record in own)
    with pytest.raises(SeriatimError, match="holds vectors of runs/x"):
        PREDICTORS["language"]().call("nearest", ["cash"], among=str(tmp_path / "v.parquet"))


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_files_hold_the_vectors_of_embed(bert: EmbeddingPredictor, tmp_path: Path, name: str) -> None:
    """As the command line does: `seriatim embed RUN --data texts.txt --out v.parquet`."""
    texts, options = [*TEXTS, "river " * 40], EmbedOptions(pooling="max", normalize=False)
    write_vectors(bert, tmp_path / name, texts, options)
    stored = open_vectors(tmp_path / name)
    vectors = np.load(tmp_path / name) if stored is None else np.concatenate([block for _, block in stored])
    answer = bert.execute(Request("embed", texts, {"pooling": "max", "normalize": False}))
    assert vectors == pytest.approx(np.stack([row["vector"] for row in answer.predictions()]), abs=1e-6)
    assert any("1 text is truncated" in note for note in answer.notes)
    if stored is not None:
        assert (stored.description["pooling"], stored.description["run"]) == ("max", "runs/x")
        assert stored.check_model(weights_digest(bert.network), "max") == "max"
    assert bert.open_writer("embed", options, tmp_path / "v.csv", "runs/x") is None
    assert bert.open_writer("words", WordOptions(word="bank"), tmp_path / name, "runs/x") is None
