"""A network that others trained: the GRU of the package g2p-en, letters to phonemes, speaks the same as `seq2seq`."""

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

from seriatim.decode.options import DecodeSettings
from seriatim.decode.sampling import sample
from seriatim.models.seq2seq import Settings
from seriatim.nn.pair import Translator, pair_network
from seriatim.tasks._pair_engine import Engine

DATA = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))
BOOK = DATA / "tinyshakespeare" / "input.txt"
FOUND = importlib.util.find_spec("g2p_en")
WORDS, MOST = 1_000, 20
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOUND is None, reason="g2p-en is not installed: ./setup acceptance"),
    pytest.mark.skipif(not BOOK.exists(), reason="SERIATIM_REAL_DATA names no local copy of the data sets"),
]


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Their class as it is. Its module loads a dictionary and a tagger of nltk from the network, which its network has
    no need of: nltk is replaced while it is imported."""
    assert FOUND is not None
    assert FOUND.submodule_search_locations is not None
    folder = Path(FOUND.submodule_search_locations[0])
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


def loaded(arrays: Any) -> Translator:
    """Their arrays, as torch's GRU has them, in our network: of the two biases of a gate ours is the sum, but for the
    one within the reset."""
    width, size = arrays["enc_w_hh"].shape[1], arrays["enc_emb"].shape[1]
    settings = Settings(
        name="seq2seq", cell="gru", layers=1, reset="after", width=width, embedding=size, tie=False, dropout=0.0
    )
    ours = pair_network(settings, len(arrays["enc_emb"]), len(arrays["dec_emb"]), joint=False, length=MOST)
    backbone: Any = ours.backbone
    given = {name: torch.from_numpy(arrays[name]) for name in arrays.files}

    def copy(parameter: nn.Parameter, tensor: Tensor) -> None:
        assert parameter.shape == tensor.shape
        parameter.copy_(tensor)

    with torch.no_grad():
        copy(ours.source.weight, given["enc_emb"])
        copy(ours.target.weight, given["dec_emb"])
        copy(ours.head.weight, given["fc_w"])
        copy(ours.head.bias, given["fc_b"])
        for side, cell in (("enc", backbone.encoder.cells[0]), ("dec", backbone.decoder.cells[0])):
            outside, inside = given[f"{side}_b_hh"].clone(), given[f"{side}_b_hh"][2 * width :]
            outside[2 * width :] = 0
            copy(cell.input.weight, given[f"{side}_w_ih"])
            copy(cell.input.bias, given[f"{side}_b_ih"] + outside)
            copy(cell.recurrent, given[f"{side}_w_hh"])
            copy(cell.bias, inside)
    return ours.eval()


def spoken(network: Translator, theirs: Any, words: list[str]) -> list[list[str]]:
    """Phonemes of some words, all at once and greedily, by our decoding."""
    letters = [[theirs.g2idx.get(one, theirs.g2idx["<unk>"]) for one in [*word, "</s>"]] for word in words]
    source = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in letters], batch_first=True)
    mask = torch.arange(source.shape[1]) < torch.tensor([len(row) for row in letters])[:, None]
    first, end = theirs.p2idx["<s>"], theirs.p2idx["</s>"]
    options = DecodeSettings(temperature=0, max_tokens=MOST)
    with torch.inference_mode():
        engine = Engine([network], source, mask)
        log_probs, state = engine.start(first)
        said = sample(engine.step, log_probs, state, options, [np.random.default_rng()] * len(words), end)
    return [[theirs.idx2p[token] for token in one.tokens if token != end] for one in said]


def test_the_same_phonemes_for_a_thousand_words(theirs: Any) -> None:
    every = sorted(set(re.findall(r"[a-z']+", BOOK.read_text(encoding="utf-8").lower())))
    words = [every[place] for place in np.linspace(0, len(every) - 1, WORDS).astype(int)]
    assert len(set(words)) == WORDS
    network = loaded(theirs.variables)
    found = [one for start in range(0, WORDS, 100) for one in spoken(network, theirs, words[start : start + 100])]
    wanted = [theirs.predict(word) for word in words]
    assert len({" ".join(one) for one in wanted}) > 900  # not one answer for all
    wrong = [(word, mine, other) for word, mine, other in zip(words, found, wanted, strict=True) if mine != other]
    assert not wrong, f"{WORDS - len(wrong)} of {WORDS} words are equal; others: {wrong[:5]}"


def test_the_same_scores(theirs: Any) -> None:
    network, word = loaded(theirs.variables), "seriatim"
    encoded = theirs.encode(word)
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    h = theirs.gru(encoded, len(word) + 1, *(getattr(theirs, f"enc_{name}") for name in names))[:, -1]
    said = [theirs.p2idx["<s>"], *(theirs.p2idx[one] for one in theirs.predict(word))]
    rows = theirs.gru(theirs.dec_emb[None, said], len(said), *(getattr(theirs, f"dec_{name}") for name in names), h0=h)
    source = torch.tensor([[theirs.g2idx[one] for one in [*word, "</s>"]]])
    with torch.inference_mode():
        found = network(source, torch.tensor([said]))
    np.testing.assert_allclose(found[0].numpy(), rows[0] @ theirs.fc_w.T + theirs.fc_b, atol=2e-4)
