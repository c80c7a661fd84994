"""The trained GRU of the package g2p-en, letters to phonemes, gives the same phonemes as our `seq2seq`."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seriatim.decode.sampling import sample
from seriatim.decode.seq2seq import DecodingStep
from seriatim.decode.settings import BeamSettings
from seriatim.models.seq2seq import Settings
from seriatim.nn.encoder_decoder import EncoderDecoder, encoder_decoder_network

DATA = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))
BOOK = DATA / "tinyshakespeare" / "input.txt"
PACKAGE = importlib.util.find_spec("g2p_en")
WORDS, MAX_TOKENS = 1_000, 20
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PACKAGE is None, reason="g2p-en is not installed: ./setup acceptance"),
    pytest.mark.skipif(not BOOK.exists(), reason="SERIATIM_REAL_DATA names no local copy of the data sets"),
]


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Returns an object of their class. Its module downloads a dictionary and a tagger of nltk, which the network does
    not need: nltk is replaced by a stand-in during the import."""
    assert PACKAGE is not None
    assert PACKAGE.submodule_search_locations is not None
    folder = Path(PACKAGE.submodule_search_locations[0])
    nltk, package, expand = (ModuleType(name) for name in ("nltk", "g2p_en", "g2p_en.expand"))
    nltk.pos_tag = nltk.data = nltk.corpus = nltk.tokenize = nltk  # type: ignore[attr-defined]
    nltk.find = nltk.cmudict = lambda name: None  # type: ignore[attr-defined]
    nltk.cmudict.dict = dict  # type: ignore[attr-defined]
    nltk.TweetTokenizer = lambda: type("Tokenizer", (), {"tokenize": str.split})  # type: ignore[attr-defined]
    expand.normalize_numbers = str  # type: ignore[attr-defined]
    package.__path__ = [str(folder)]
    stand_ins = dict.fromkeys(("nltk", "nltk.corpus", "nltk.tokenize"), nltk)
    stand_ins |= {"g2p_en": package, "g2p_en.expand": expand}
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        spec = importlib.util.spec_from_file_location("g2p_en.g2p", folder / "g2p.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.G2p()
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old


def convert_network(arrays: Any) -> EncoderDecoder:
    """Returns our network with their arrays, which have the layout of torch's GRU: of the two biases of a gate ours is
    the sum, except for the one inside the reset."""
    width, size = arrays["enc_w_hh"].shape[1], arrays["enc_emb"].shape[1]
    settings = Settings(
        name="seq2seq", cell="gru", layers=1, reset="after", width=width, embedding=size, tie=False, dropout=0.0
    )
    network = encoder_decoder_network(
        settings, len(arrays["enc_emb"]), len(arrays["dec_emb"]), joint=False, length=MAX_TOKENS
    )
    backbone: Any = network.backbone
    tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}

    def copy(parameter: nn.Parameter, tensor: Tensor) -> None:
        assert parameter.shape == tensor.shape
        parameter.copy_(tensor)

    with torch.no_grad():
        copy(network.source.weight, tensors["enc_emb"])
        copy(network.target.weight, tensors["dec_emb"])
        copy(network.head.weight, tensors["fc_w"])
        copy(network.head.bias, tensors["fc_b"])
        for side, cell in (("enc", backbone.encoder.cells[0]), ("dec", backbone.decoder.cells[0])):
            outside, inside = tensors[f"{side}_b_hh"].clone(), tensors[f"{side}_b_hh"][2 * width :]
            outside[2 * width :] = 0
            copy(cell.input.weight, tensors[f"{side}_w_ih"])
            copy(cell.input.bias, tensors[f"{side}_b_ih"] + outside)
            copy(cell.recurrent, tensors[f"{side}_w_hh"])
            copy(cell.bias, inside)
    return network.eval()


def phonemes(network: EncoderDecoder, theirs: Any, words: list[str]) -> list[list[str]]:
    """Returns the phonemes of words, greedily decoded in one batch by our code."""
    letters = [[theirs.g2idx.get(letter, theirs.g2idx["<unk>"]) for letter in [*word, "</s>"]] for word in words]
    source = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in letters], batch_first=True)
    mask = torch.arange(source.shape[1]) < torch.tensor([len(row) for row in letters])[:, None]
    first, end = theirs.p2idx["<s>"], theirs.p2idx["</s>"]
    options = BeamSettings(beams=1, temperature=0, max_tokens=MAX_TOKENS)
    with torch.inference_mode():
        decoding = DecodingStep([network], [network.encode(source, mask)], len(words))
        log_probs, state = decoding.start(first)
        hypotheses = sample(decoding.step, log_probs, state, options, [np.random.default_rng()] * len(words), end)
    return [[theirs.idx2p[token] for token in hypothesis.tokens if token != end] for hypothesis in hypotheses]


def test_the_same_phonemes_for_a_thousand_words(theirs: Any) -> None:
    vocabulary = sorted(set(re.findall(r"[a-z']+", BOOK.read_text(encoding="utf-8").lower())))
    words = [vocabulary[index] for index in np.linspace(0, len(vocabulary) - 1, WORDS).astype(int)]
    assert len(set(words)) == WORDS
    network = convert_network(theirs.variables)
    actual = [line for start in range(0, WORDS, 100) for line in phonemes(network, theirs, words[start : start + 100])]
    expected = [theirs.predict(word) for word in words]
    assert len({" ".join(line) for line in expected}) > 900  # not the same for all words
    wrong = [row for row in zip(words, actual, expected, strict=True) if row[1] != row[2]]
    assert not wrong, f"{WORDS - len(wrong)} of {WORDS} words are equal; others: {wrong[:5]}"


def test_the_same_scores(theirs: Any) -> None:
    network, word = convert_network(theirs.variables), "seriatim"
    encoded = theirs.encode(word)
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    h = theirs.gru(encoded, len(word) + 1, *(getattr(theirs, f"enc_{name}") for name in names))[:, -1]
    target = [theirs.p2idx["<s>"], *(theirs.p2idx[phoneme] for phoneme in theirs.predict(word))]
    weights = [getattr(theirs, f"dec_{name}") for name in names]
    hidden = theirs.gru(theirs.dec_emb[None, target], len(target), *weights, h0=h)
    source = torch.tensor([[theirs.g2idx[letter] for letter in [*word, "</s>"]]])
    with torch.inference_mode():
        scores = network(source, torch.tensor([target]))
    np.testing.assert_allclose(scores[0].numpy(), hidden[0] @ theirs.fc_w.T + theirs.fc_b, atol=2e-4)
