"""RoBERTa, XLM-RoBERTa, DistilBERT and ELECTRA from text to answer, beside transformers: tokenizers, training, export.

The tensors and outputs of all their architectures are compared in test_convert.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, ByteLevelBPETokenizer, SentencePieceUnigramTokenizer

import seriatim
from helpers import shaken
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.hub import reading
from seriatim.runs.exchange import export_model, import_model
from seriatim.tasks.pretrain.processor import EncodedDocuments, Passages, encode_groups

transformers: Any = pytest.importorskip("transformers")
TEXTS = [
    "The old cat saw a new hat, and the man wasn't amused at 17:45!",
    "über die Brücke läuft ein Hund; naïve Élan, e\u0301te\u0301",
    "Привет, мир! Γειά σου Κόσμε. İstanbul ΟΔΥΣΣΕΥΣ",
    "我想在apple工作，한국어도 日本語も。 नमस्ते दुनिया שלום עולם مرحبا",
    "😶‍🌫️ ✅ tabs\tand  blanks \n\n a line ",
    "a <mask> b<mask>  <mask>c <s> x </s> <pad>",
    "",
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
FAMILIES = {
    "roberta": ("Roberta", {"pad_token_id": 1, "type_vocab_size": 1}),
    "xlm-roberta": ("XLMRoberta", {"pad_token_id": 1, "type_vocab_size": 1}),
    "distilbert": ("DistilBert", {"hidden_dim": 24}),
    "electra": ("Electra", {"embedding_size": 8}),
}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
SIZES |= {"max_position_embeddings": 200}


def save_tokenizer(family: str, folder: Path) -> Any:
    """Returns a tokenizer of theirs, as the family has it, saved in a folder."""
    if family == "roberta":
        learner = ByteLevelBPETokenizer()
        mask = AddedToken("<mask>", lstrip=True)
        learner.train_from_iterator(TEXTS * 3, vocab_size=400, show_progress=False, special_tokens=[*SPECIAL, mask])
        model = json.loads(learner.to_str())["model"]
        merges = [tuple(pair) for pair in model["merges"]]
        peer = transformers.RobertaTokenizer(vocab=model["vocab"], merges=merges, mask_token=mask)
    elif family == "xlm-roberta":
        unigram = SentencePieceUnigramTokenizer()
        options = {"show_progress": False, "special_tokens": SPECIAL, "unk_token": "<unk>"}
        unigram.train_from_iterator([*TEXTS, "the old cat\n"] * 3, vocab_size=200, **options)
        pieces = [tuple(piece) for piece in json.loads(unigram.to_str())["model"]["vocab"]]
        mask = AddedToken("<mask>", lstrip=True)
        peer = transformers.XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)], mask_token=mask)
    else:
        settings = TokenizerSettings(kind="bert", vocab_size=200, lowercase=True)
        trained = Tokenizer.train(settings, [f"{text}\n" for text in TEXTS * 3])
        vocab = {name: index for index, name in enumerate(trained.names)}
        peer = {"distilbert": transformers.DistilBertTokenizer, "electra": transformers.ElectraTokenizer}[family](
            vocab=vocab
        )
    peer.save_pretrained(folder)
    return peer


def save_model(family: str, head: str, folder: Path, **options: Any) -> tuple[Any, Any]:
    """Returns a random model of theirs and its tokenizer, saved in a folder."""
    tokenizer = save_tokenizer(family, folder)
    name, extra = FAMILIES[family]
    model = getattr(transformers, f"{name}{head}")
    torch.manual_seed(1)
    peer = shaken(model(model.config_class(vocab_size=len(tokenizer), **SIZES, **extra, **options)), 0.3)
    peer.save_pretrained(folder)
    return peer, tokenizer


# Tokenizers


@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizers_give_the_same_ids(family: str, tmp_path: Path) -> None:
    peer = save_tokenizer(family, tmp_path)
    ours = Tokenizer.load(tmp_path)
    for name in ("cls", "sep", "pad", "mask", "unk"):
        assert getattr(ours, name) == getattr(peer, f"{name}_token_id"), name
    encoded = ours.encode_many(TEXTS, strict=False)
    assert len({len(ids) for ids in encoded}) > 3
    for text, ids in zip(TEXTS, encoded, strict=True):
        assert ours.frame(ids).tolist() == peer(text)["input_ids"], text
        assert ours.frame(ids, encoded[2]).tolist() == peer(text, TEXTS[2])["input_ids"], text
        assert ours.encode_spans(text)[0].tolist() == ids.tolist()


def test_roberta_without_tokenizer_json(tmp_path: Path) -> None:
    """Older folders have vocab.json and merges.txt; <mask> takes the blank before it."""
    peer = save_tokenizer("roberta", tmp_path)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = ["#version: 0.2", *map(" ".join, model["merges"])]
    (tmp_path / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    ours = Tokenizer.load(tmp_path)
    assert (ours.cls, ours.sep, ours.pad, ours.mask, ours.separators) == (0, 2, 1, 4, 2)
    for text in TEXTS:
        ids = ours.encode(text, strict=False)
        assert ours.frame(ids, ours.encode("a b")).tolist() == peer(text, "a b")["input_ids"], text


# Runs


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    pairs = [(first, second) for first in TEXTS[:5] for second in TEXTS[:5]]
    rows = [{"first": a, "second": b, "label": "same" if a == b else "other"} for a, b in pairs * 2]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_fine_tuned_here_and_opened_there(family: str, reviews: Path, tmp_path: Path) -> None:
    """From an encoder with a head of masked tokens to a classifier of pairs, and back to transformers."""
    peer, _ = save_model(family, "ForMaskedLM", tmp_path / "theirs")
    notes: list[str] = []
    settings = {"data": {"columns": {"input": "first,second"}}, "train": {"optimizer": {"lr": 1e-3}}}
    run = seriatim.train(
        "classify",
        str(reviews),
        settings=settings,
        start=str(tmp_path / "theirs"),
        steps=2,
        out=tmp_path / "run",
        notify=notes.append,
        report=False,
    )
    assert run.config.model.variant == family
    note = next(note for note in notes if "starting from" in note)
    assert note.endswith("new: head.pooler.weight, head.pooler.bias, head.output.weight, head.output.bias")
    folder = export_model(run.path)
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(model).__name__ == f"{FAMILIES[family][0]}ForSequenceClassification"
    assert model.config.pad_token_id == peer.config.pad_token_id
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pairs = [(TEXTS[0], TEXTS[3]), (TEXTS[1], TEXTS[1]), ("a hat", TEXTS[2])]
    inputs = tokenizer([a for a, _ in pairs], [b for _, b in pairs], padding=True, return_tensors="pt")
    expected = model.eval()(**inputs).logits.softmax(-1).tolist()
    for one in (run, import_model(folder, tmp_path / "again")):
        for answer, row in zip(one.predict(pairs, probabilities=True), expected, strict=True):
            named = {model.config.id2label[index]: value for index, value in enumerate(row)}
            assert answer["probabilities"] == pytest.approx(named, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_masks_are_filled_as_there(family: str, tmp_path: Path) -> None:
    peer, tokenizer = save_model(family, "ForMaskedLM", tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    mask = tokenizer.mask_token
    texts = [f"the old {mask} saw", f"{mask} мир and a new {mask}."]
    for text, record in zip(texts, run.fill(texts, top=3), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        probabilities = peer(**inputs).logits[0].softmax(-1)[inputs["input_ids"][0] == tokenizer.mask_token_id]
        values, ids = probabilities.topk(3)
        assert len(record["masks"]) == text.count(mask)
        for candidates, row, best in zip(record["masks"], values.tolist(), ids.tolist(), strict=True):
            assert [candidate["probability"] for candidate in candidates] == pytest.approx(row, abs=1e-5)
            names = [run.task.processor.tokenizer.piece(token) for token in best]
            assert [candidate["token"] for candidate in candidates] == names
        assert mask not in record["text"]
    out = export_model(run.path, tmp_path / "out")
    again = transformers.AutoModelForMaskedLM.from_pretrained(out).eval()
    torch.testing.assert_close(again(**inputs).logits, peer(**inputs).logits, rtol=0, atol=1e-6)


def test_a_filled_text_has_its_blanks(tmp_path: Path) -> None:
    """A token of RoBERTa has the blank before it, which <mask> takes."""
    save_model("roberta", "ForMaskedLM", tmp_path / "theirs")
    predictor = import_model(tmp_path / "theirs", tmp_path / "run").predictor

    def filled(text: str, *tokens: str) -> str:
        return str(predictor._fill_text((text,), [[{"token": token}] for token in tokens]))

    assert filled("the <mask> sat", " cat") == "the cat sat"
    assert filled("<mask> sat<mask>", " cat", ".") == "cat sat."
    assert predictor.tokenizer.piece(predictor.tokenizer.encode(" cat")[0]).startswith(" ")


def test_questions_of_roberta_are_framed_as_there(tmp_path: Path) -> None:
    """Two separators between question and passage; the best span of a random model is the same."""
    peer, tokenizer = save_model("roberta", "ForQuestionAnswering", tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    question, passage = "Where is the cat?", TEXTS[0]
    encoded = run.predictor.encode_inputs([{"question": question, "context": passage}])
    inputs = tokenizer(question, passage, return_tensors="pt")
    assert encoded.inputs[0].tolist() == inputs["input_ids"][0].tolist()
    scores = run.network(torch.from_numpy(encoded.inputs[0])[None])[0][0]
    result = peer(**inputs)
    torch.testing.assert_close(scores[:, 0], result.start_logits[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(scores[:, 1], result.end_logits[0], rtol=0, atol=1e-5)
    out = export_model(run.path, tmp_path / "out")
    again = transformers.AutoModelForQuestionAnswering.from_pretrained(out).eval()
    torch.testing.assert_close(again(**inputs).start_logits, result.start_logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_choices_are_those_made_there(family: str, tmp_path: Path) -> None:
    peer, tokenizer = save_model(family, "ForMultipleChoice", tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    question, answers = TEXTS[0], ["The man sat.", "über die Brücke läuft ein Hund", "мир!"]
    inputs = tokenizer([question] * 3, answers, return_tensors="pt", padding=True)
    expected = peer(**{name: tensor[None] for name, tensor in inputs.items()}).logits[0].softmax(dim=0)
    record = run.answer(question, choices=answers, probabilities=True)
    assert record["probabilities"] == pytest.approx(expected.tolist(), abs=1e-5)
    again = transformers.AutoModelForMultipleChoice.from_pretrained(export_model(run.path)).eval()
    logits = again(**{name: tensor[None] for name, tensor in inputs.items()}).logits[0]
    torch.testing.assert_close(logits.softmax(dim=0), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "distilbert"])
def test_words_are_tagged_as_there(family: str, tmp_path: Path) -> None:
    """The tag of a word is that of its first token; RoBERTa reads every word with a blank before it."""
    peer, tokenizer = save_model(family, "ForTokenClassification", tmp_path / "theirs", num_labels=4)
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    words = ["Dog", "и", "мир", "wasn't", "новый", "saw", "naïve", "hat"]
    if family == "roberta":
        tokenizer = transformers.RobertaTokenizer.from_pretrained(tmp_path / "theirs", add_prefix_space=True)
    inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    encoded = run.predictor.encode_inputs([words])
    assert encoded.inputs[0].tolist() == inputs["input_ids"][0].tolist()
    scores = peer(**inputs).logits[0]
    torch.testing.assert_close(run.network(inputs["input_ids"])[0][0], scores, rtol=0, atol=1e-5)
    first = [inputs.word_ids().index(word) for word in range(len(words))]
    tags = [peer.config.id2label[int(scores[position].argmax())] for position in first]
    assert run.tag([words])[0]["tags"] == tags


@pytest.mark.parametrize("paired", [False, True])
def test_passages_of_roberta(paired: bool, tmp_path: Path) -> None:
    """To train on: its frame around them, and blanks between their sentences."""
    peer = save_tokenizer("roberta", tmp_path)
    sentences = ["The old cat sat.", "The man saw it."]
    (tokens, lengths, counts) = next(encode_groups(iter([sentences, sentences]), Tokenizer.load(tmp_path)))
    assert tokens.tolist() == 2 * peer(" ".join(sentences), add_special_tokens=False)["input_ids"]
    documents = EncodedDocuments(tokens, np.cumsum(lengths), np.cumsum(counts))
    passages = Passages(documents, Tokenizer.load(tmp_path), 60, paired)
    batch = passages.draw(np.arange(len(passages)), np.random.default_rng(0))
    for row, size, unrelated in zip(batch.tokens, batch.lengths, batch.unrelated, strict=True):
        first, second = sentences
        expected = peer(first, f" {second}") if paired else peer(f"{first} {second}")
        assert row[:size].tolist() == expected["input_ids"] or unrelated


def test_a_discriminator_is_read_as_an_encoder(tmp_path: Path) -> None:
    """As ELECTRA is published: its head is left, which is noted, and the encoder is that of ElectraModel."""
    peer, tokenizer = save_model("electra", "ForPreTraining", tmp_path / "theirs")
    model = reading.read_model(tmp_path / "theirs")
    assert [note for note in model.notes if "discriminator_predictions.dense.weight" in note]
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    inputs = tokenizer(TEXTS[0], TEXTS[1], return_tensors="pt")
    expected = peer.electra(**inputs).last_hidden_state
    torch.testing.assert_close(run.network.hidden(inputs["input_ids"])[0], expected, rtol=0, atol=1e-5)
    out = export_model(run.path, tmp_path / "out")
    again = transformers.AutoModel.from_pretrained(out).eval()
    assert type(again).__name__ == "ElectraModel"
    torch.testing.assert_close(again(**inputs).last_hidden_state, expected, rtol=0, atol=1e-6)


SCRATCH = [*((family, "learned") for family in FAMILIES), ("xlm-roberta", "none")]
SCRATCH += [(family, "sinusoidal") for family in ("roberta", "electra", "distilbert")]


@pytest.mark.parametrize(("variant", "positions"), SCRATCH)
def test_trained_from_scratch_and_opened_there(variant: str, positions: str, book: Path, tmp_path: Path) -> None:
    """With a tokenizer of ours, whose padding has another id than that of the published models."""
    model = {"variant": variant, "positions": positions, "width": 16, "heads": 2, "layers": 1, "context_length": 40}
    model |= {"embedding": 8} if variant == "electra" else {}
    settings = {"model": model, "task": {"next": False, "context_length": 32, "tokenizer": {"vocab_size": 120}}}
    arguments = {"settings": settings, "steps": 1, "out": tmp_path / "run", "report": False}
    run = seriatim.train("pretrain", str(book), "bert", **arguments)
    folder = export_model(run.path)
    peer = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert type(peer).__name__ == f"{FAMILIES[variant][0]}ForMaskedLM"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(["the old [MASK]", "the old cat saw a hat"], padding=True, return_tensors="pt")
    mask = inputs["attention_mask"].bool()
    (masked, _), _ = run.network.eval()(inputs["input_ids"], mask)
    torch.testing.assert_close(masked[mask], peer(**inputs).logits[mask], rtol=0, atol=1e-5)


# What does not fit


def test_a_second_table_of_tokens(tmp_path: Path) -> None:
    """An output that is not tied to the input has no place here; it is not dropped silently."""
    peer, _ = save_model("roberta", "ForMaskedLM", tmp_path)
    tensors = {name: tensor for name, tensor in peer.state_dict().items() if name != "lm_head.decoder.bias"}
    tensors["lm_head.decoder.weight"] = tensors["lm_head.decoder.weight"] + 1
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with pytest.raises(SeriatimError) as caught:
        reading.read_model(tmp_path)
    assert caught.value.code == "hub.unfit"
    assert "lm_head.decoder.weight differ" in caught.value.cause


@pytest.mark.parametrize("padding", [None, -1, 199, "1", True])
def test_padding_that_is_no_id(padding: Any, tmp_path: Path) -> None:
    save_model("roberta", "Model", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"pad_token_id": padding}))
    with pytest.raises(SeriatimError) as caught:
        reading.read_model(tmp_path)
    assert (caught.value.code, "pad_token_id" in caught.value.cause) == ("hub.unfit", True)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"variant": "roberta", "position_offset": 2}, "padding token, 1; the tokenizer has 0"),
        ({"variant": "roberta", "position_offset": 0}, "model.position_offset"),
        ({"variant": "distilbert", "eps": 1e-5}, "model.eps"),
        ({"variant": "distilbert", "segments": 2}, "model.segments"),
        ({"variant": "bert", "segments": 0}, "model.segments"),
        ({"variant": "bert", "position_offset": 1}, "model.position_offset"),
    ],
)
def test_settings_that_have_no_place_there(changes: dict[str, Any], cause: str, book: Path, tmp_path: Path) -> None:
    model = {"width": 16, "heads": 2, "layers": 1, "context_length": 40} | changes
    settings = {"model": model, "task": {"next": False, "context_length": 32, "tokenizer": {"vocab_size": 120}}}
    arguments = {"settings": settings, "steps": 1, "out": tmp_path / "run", "report": False}
    run = seriatim.train("pretrain", str(book), "bert", **arguments)
    with pytest.raises(SeriatimError) as caught:
        export_model(run.path)
    assert caught.value.code == "hub.unfit"
    assert cause in caught.value.cause
