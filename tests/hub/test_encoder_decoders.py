"""T5 and BART of transformers with tokenizers of their own: read, asked, trained on and written, beside themselves.

The models are random, the rest is as in their folders: T5 reads pieces of a unigram model, BART bytes between <s> and
</s>.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from torch import nn

import seriatim
from helpers import shaken
from seriatim.decode.settings import BeamSettings
from seriatim.hub import reading
from seriatim.runs.exchange import export_model, import_model

transformers: Any = pytest.importorskip("transformers")
TEXTS = ["the old cat saw a new hat", "where is it?", "a dog bit the unhappy man; he wasn't amused!", "über"]
MORE_TEXTS = [*TEXTS, "unseen: zebra 😀", "<extra_id_1> hats", "the </s> cat", "two  blanks", ""]
T5 = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 6, "d_ff": 24}
FLAN = T5 | {"num_decoder_layers": 1, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
BART = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
BART |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
MAX_TOKENS = 12


def t5_tokenizer() -> Any:
    learner = Backend(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False, seed_size=500
    )
    learner.train_from_iterator(TEXTS * 3, trainer)
    pieces = [(piece, score) for piece, score in json.loads(learner.to_str())["model"]["vocab"]]
    return transformers.T5Tokenizer(vocab=pieces, extra_ids=4)


def bart_tokenizer() -> Any:
    learner = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    learner.train_from_iterator(TEXTS * 3, vocab_size=300, show_progress=False, special_tokens=special)
    merges = [tuple(pair) for pair in json.loads(learner._tokenizer.to_str())["model"]["merges"]]
    return transformers.BartTokenizer(vocab=learner.get_vocab(), merges=merges)


@dataclass(frozen=True)
class Peer:
    """A random model with its tokenizer, their folder, and the run that it became."""

    model: Any
    tokenizer: Any
    folder: Path
    run: Any

    def generate(self, beams: int, **options: Any) -> list[list[int]]:
        """What it says to the texts, token by token, without the first token and the padding."""
        batch = self.tokenizer(TEXTS, padding=True, return_tensors="pt")
        never = [[self.tokenizer.pad_token_id], [self.tokenizer.unk_token_id]]
        settings = {"num_beams": beams, "do_sample": False, "max_length": MAX_TOKENS + 1, "bad_words_ids": never}
        rows = self.model.generate(**batch, **settings | options)[:, 1:].tolist()
        ends = [
            row.index(self.tokenizer.eos_token_id) + 1 if self.tokenizer.eos_token_id in row else None for row in rows
        ]
        return [row[:end] for row, end in zip(rows, ends, strict=True)]


@pytest.fixture(scope="module", params=["t5", "flan-t5", "bart"])
def peer(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Peer:
    tokenizer = bart_tokenizer() if request.param == "bart" else t5_tokenizer()
    torch.manual_seed(2)
    if request.param == "bart":
        config = transformers.BartConfig(vocab_size=len(tokenizer), **BART)
        model = shaken(transformers.BartForConditionalGeneration(config), 0.4)
        model.generation_config.forced_bos_token_id = tokenizer.bos_token_id
        vary(model)
    else:
        config = transformers.T5Config(vocab_size=len(tokenizer), **(T5 if request.param == "t5" else FLAN))
        config.decoder_start_token_id = tokenizer.pad_token_id
        model = shaken(transformers.T5ForConditionalGeneration(config), 0.4)
        if request.param == "flan-t5":
            model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder / "theirs")
    tokenizer.save_pretrained(folder / "theirs")
    return Peer(model, tokenizer, folder, import_model(folder / "theirs", folder / "run"))


def vary(model: Any) -> None:
    """Makes a random BART say more than one word: the source counts, tokens are equally likely, the end more so."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter *= 4 if "encoder_attn." in name or name.endswith("fc2.weight") else 1
        for side in (model.model.encoder, model.model.decoder):
            side.embed_positions.weight[:2] = 0  # nothing reads them
        model.model.decoder.layers[-1].final_layer_norm.bias.zero_()
        model.model.shared.weight *= 2 / model.model.shared.weight.norm(dim=1, keepdim=True)
        model.final_logits_bias.zero_()[:, model.config.eos_token_id] = 6.0


def generated(run: Any, beams: int, **options: Any) -> list[list[int]]:
    processor = run.task.processor
    sources = processor.encode_texts(processor.source, TEXTS)
    given = {"beams": beams, "nbest": beams, "max_tokens": MAX_TOKENS, "length_norm": "power"}
    groups = run.predictor.translator.search(sources, BeamSettings(**given | options), lambda item: TEXTS[item])
    return [group[0].tokens for group in groups]


def test_tokens(peer: Peer) -> None:
    """With what stands around a text; also those that no vocabulary knows, and special tokens within a text."""
    processor = peer.run.task.processor
    ours = processor.encode_texts(processor.source, MORE_TEXTS)
    for row, text in enumerate(MORE_TEXTS):
        assert ours[row].tolist() == peer.tokenizer(text)["input_ids"], text
    assert processor.tokens.start == peer.model.config.decoder_start_token_id


@pytest.mark.parametrize("beams", [1, 4])
def test_generation(peer: Peer, beams: int) -> None:
    """Greedy and by beam search, from sources of different lengths."""
    theirs = peer.generate(beams)
    assert len({tuple(row) for row in theirs}) > 1
    assert generated(peer.run, beams) == theirs


def test_scores(peer: Peer) -> None:
    """Of a given target, and of what was generated: both are the loss of transformers."""
    found = peer.run.translate(TEXTS, beams=4, max_tokens=MAX_TOKENS)
    targets = [*TEXTS[1:], *(row["translation"] for row in found)]
    for number, (source, target) in enumerate(zip([*TEXTS[:-1], *TEXTS], targets, strict=True)):
        batch = {
            **peer.tokenizer(source, return_tensors="pt"),
            "labels": peer.tokenizer(target, return_tensors="pt").input_ids,
        }
        expected = -peer.model(**batch).loss.item() * batch["labels"].shape[1]
        assert peer.run.score([(source, target)])[0]["log_probability"] == pytest.approx(expected, abs=1e-3)
        if number >= len(TEXTS) - 1:
            assert found[number - len(TEXTS) + 1]["score"] == pytest.approx(expected, abs=1e-3)


def test_there_and_back(peer: Peer) -> None:
    """Written, it is opened by the Auto classes, and says the same without being told how."""
    folder = export_model(peer.run.path, peer.folder / "back")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert type(model) is type(peer.model)
    assert [tokenizer(text)["input_ids"] for text in MORE_TEXTS] == [
        peer.tokenizer(text)["input_ids"] for text in MORE_TEXTS
    ]
    special = ("pad_token_id", "eos_token_id", "unk_token_id", "bos_token_id")
    assert [getattr(tokenizer, name) for name in special] == [getattr(peer.tokenizer, name) for name in special]
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    target = torch.randint(5, len(tokenizer), (len(TEXTS), 9), generator=torch.Generator().manual_seed(0))
    logits = [one(**batch, decoder_input_ids=target).logits for one in (model, peer.model)]
    assert torch.equal(*logits)
    again = Peer(model, tokenizer, folder, import_model(folder, peer.folder / "again"))
    rows = [row[1:] for row in model.generate(**batch, num_beams=4, max_length=MAX_TOKENS + 1).tolist()]
    theirs = peer.generate(4)
    assert [row[: len(other)] for row, other in zip(rows, theirs, strict=True)] == theirs
    assert generated(again.run, 4) == theirs


def test_fine_tuning(peer: Peer, tmp_path: Path) -> None:
    """From their folder and from the run: the weights, the tokens around a text, and those the decoder begins with."""
    draw = np.random.default_rng(0)
    words = ["the", "old", "cat", "saw", "a", "new", "hat", "where", "is", "it"]
    lines = [" ".join(draw.choice(words, draw.integers(1, 6))) for _ in range(60)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines), encoding="utf-8")
    target = torch.randint(5, len(peer.tokenizer), (len(TEXTS), 9), generator=torch.Generator().manual_seed(0))
    batch = peer.tokenizer(TEXTS, padding=True, return_tensors="pt")
    expected = peer.model(**batch, decoder_input_ids=target).logits
    for number, source in enumerate([peer.folder / "theirs", peer.run.path]):
        settings = {"start": str(source), "train": {"optimizer": {"lr": 1e-9}}}
        out = tmp_path / f"run{number}"
        run = seriatim.train(
            "translate", str(tmp_path / "pairs.tsv"), settings=settings, out=out, steps=1, report=False
        )
        processor = run.task.processor
        assert processor.tokens.start == peer.model.config.decoder_start_token_id
        assert processor.encode_texts(processor.target, TEXTS)[0].tolist() == peer.tokenizer(TEXTS[0])["input_ids"]
        logits = run.network(batch["input_ids"], target, batch["attention_mask"].bool())
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


# Folders as they are on the hub


def test_flan_as_older_versions_wrote_it(tmp_path: Path) -> None:
    """Its config.json says that nothing is tied, not that nothing is scaled; a tied one would store one matrix less."""
    torch.manual_seed(0)
    model = shaken(transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=30, **FLAN)))
    model.save_pretrained(tmp_path)
    tied = reading.read_model(tmp_path)
    assert torch.equal(tied.tensors["head.weight"], tied.tensors["source.weight"])
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    model.save_pretrained(tmp_path)
    expected = reading.read_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["scale_decoder_outputs"]
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    result = reading.read_model(tmp_path)
    assert result.settings == expected.settings
    assert not result.settings["tie"]
    assert result.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(tensor, expected.tensors[name]) for name, tensor in result.tensors.items())


def test_a_bare_bart_gets_a_bias_of_zeros(tmp_path: Path) -> None:
    """As bart-base and bart-large are stored: without the prefix of the body, and without the bias of the output."""
    tokenizer = bart_tokenizer()
    torch.manual_seed(0)
    body = shaken(transformers.BartModel(transformers.BartConfig(vocab_size=len(tokenizer), **BART)))
    body.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    model = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    notes: list[str] = []
    run = import_model(tmp_path / "theirs", tmp_path / "run", notes.append)
    assert any("final_logits_bias: these are initialized" in note for note in notes)
    assert not run.network.head.bias.any()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    target = torch.randint(5, len(tokenizer), (len(TEXTS), 9), generator=torch.Generator().manual_seed(0))
    logits = run.network(batch["input_ids"], target, batch["attention_mask"].bool())
    torch.testing.assert_close(logits, model(**batch, decoder_input_ids=target).logits, rtol=0, atol=1e-5)
