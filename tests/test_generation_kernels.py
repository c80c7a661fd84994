"""The native steps of generation against the networks themselves, in float32.

Log-probabilities agree to 2e-5 (sums in another order); a network whose weights were rounded agrees as closely with the
step that keeps them as bytes. Texts are the same.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers import settings_of
from seriatim.core import registry
from seriatim.core.state import select
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.decode.beam import beam
from seriatim.decode.options import DecodeSettings, TranslateSettings
from seriatim.decode.sampling import sample
from seriatim.kernels import generation as kernels
from seriatim.nn import native
from seriatim.nn.backbone import readable_equations
from seriatim.nn.native import Choice, PairStepper, Stepper, pair_stepper, stepper
from seriatim.nn.network import Network, token_network
from seriatim.nn.pair import Translator, pair_network
from seriatim.nn.rounding import round_weights, rounded
from seriatim.tasks._engine import Neural
from seriatim.tasks._pair_engine import Engine
from seriatim.tasks._speak import Speaker

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no compiler here")
CLOSE = 2e-5


@pytest.fixture(autouse=True, params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For the native steps; what they are compared with has one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)

    def shared(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*given: Any) -> Any:
            torch.set_num_threads(request.param)
            try:
                return ask(*given)
            finally:
                torch.set_num_threads(1)

        return asked

    for name in ("read", "step", "go"):
        monkeypatch.setattr(kernels.Native, name, shared(getattr(kernels.Native, name)))
    yield
    torch.set_num_threads(before)


def network_of(name: str, vocabulary: int = 23, length: int = 12, **extra: Any) -> Network:
    torch.manual_seed(3)
    network = token_network(settings_of((name, extra)), vocabulary, length).eval()
    for parameter in network.parameters():
        parameter.data.normal_(std=0.3)
    return network


def equal(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=CLOSE, atol=CLOSE)


def plain(network: Network, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    logits, state = network(tokens[:, None], None, state)
    return logits[:, 0].log_softmax(dim=-1), state


FORMS = [
    ("gpt", {"width": 12, "heads": 3, "context": 40}),
    ("gpt", {"width": 64, "heads": 2, "layers": 3, "context": 40, "activation": "gelu"}),
    ("gpt", {"width": 40, "heads": 1, "context": 40, "norm": "after", "activation": "relu", "feedforward": 7}),
    ("gpt", {"width": 32, "heads": 4, "context": 40, "activation": "silu", "embedding": 5, "tie": False}),
    ("rnn", {"width": 7}),
    ("rnn", {"width": 33, "activation": "relu", "layers": 2}),
    ("lstm", {"width": 6, "layers": 3}),
    ("lstm", {"width": 48, "embedding": 10}),
    ("gru", {"width": 21, "layers": 2}),
    ("gru", {"width": 16, "reset": "after", "layers": 2}),
]


@pytest.mark.parametrize(("name", "extra"), FORMS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_steps_and_reorders_are_the_networks_own(name: str, extra: dict[str, Any], data: st.DataObject) -> None:
    """Ragged prompts, steps, rows that change places, leave and are doubled; also from bytes."""
    network = network_of(name, **extra)
    as_bytes = data.draw(st.booleans())
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=9)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    if as_bytes:
        network = round_weights(network)
    with torch.inference_mode():
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        tokens = torch.randint(0, 23, mask.shape, generator=generator)
        _, state = network(tokens, mask if data.draw(st.booleans()) or not bool(mask.all()) else None)
        own = Stepper(network, as_bytes)
        progress = own.begin(state)
        for _ in range(data.draw(st.integers(1, 12))):
            rows = len(lengths)
            if data.draw(st.booleans()):
                order = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=9)))
                lengths, state, progress = lengths[order], select(state, order), progress.select(order)
                rows = len(order)
            given = torch.randint(0, 23, (rows,), generator=generator)
            wanted, state = plain(network, given, state)
            found, progress = own.step(given, progress)
            equal(found, wanted)


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("name", "extra"), FORMS)
def test_short_prompts_are_read_step_by_step(name: str, extra: dict[str, Any], rows: int, as_bytes: bool) -> None:
    network = network_of(name, **extra)
    network = round_weights(network) if as_bytes else network
    tokens = torch.randint(0, 23, (rows, 7), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        logits, state = network(tokens[:, :6])
        own = Stepper(network, as_bytes)
        found, progress = own.read(tokens[:, :6])
        equal(found, logits[:, -1].log_softmax(dim=-1))
        wanted, _ = plain(network, tokens[:, 6], state)
        equal(own.step(tokens[:, 6], progress)[0], wanted)


def test_long_prompts_are_not() -> None:
    own = Stepper(network_of("gpt", width=64, heads=2, layers=3, context=40))
    assert own.quick(100)
    assert not own.quick(1_000)


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize("name", ["gru", "lstm", "rnn"])
def test_large_vocabularies_and_widths(name: str, tables: bool) -> None:
    """Where the tokens' part of the first product is no table, and where threads share each product."""
    size = 260 if tables else 5_000
    network = network_of(name, vocabulary=size, width=300, layers=2)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.05)
    with torch.inference_mode():
        _, state = network(torch.arange(12).reshape(3, 4))
        own = Stepper(network)
        progress = own.begin(state)
        for step in range(5):
            tokens = torch.tensor([step, 7, size - 1])
            wanted, state = plain(network, tokens, state)
            found, progress = own.step(tokens, progress)
            equal(found, wanted)


def test_a_wide_gpt_whose_products_are_shared() -> None:
    network = network_of("gpt", vocabulary=700, width=256, heads=4, layers=3, context=200)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.05)
    with torch.inference_mode():
        _, state = network(torch.arange(80).reshape(1, 80).repeat(8, 1) % 600)
        own = Stepper(network)
        progress = own.begin(state)
        for step in range(70):  # over the end of a page
            tokens = torch.arange(8) + step
            wanted, state = plain(network, tokens, state)
            found, progress = own.step(tokens, progress)
            equal(found, wanted)


@pytest.mark.parametrize(("name", "extra"), [FORMS[0], FORMS[6], FORMS[8]])
def test_a_state_may_be_gone_on_with_twice(name: str, extra: dict[str, Any]) -> None:
    network = network_of(name, **extra)
    with torch.inference_mode():
        _, state = network(torch.arange(8).reshape(2, 4))
        own = Stepper(network)
        first = own.begin(state)
        tokens = [torch.tensor([one, 22 - one]) for one in range(3)]
        _, second = own.step(tokens[0], first)
        _, state = plain(network, tokens[0], state)
        for token in (*tokens[1:], *tokens):
            equal(own.step(token, second)[0], plain(network, token, state)[0])
        swapped = second.select(torch.tensor([1, 0, 1]))
        equal(own.step(tokens[1], second)[0], plain(network, tokens[1], state)[0])
        twice = torch.tensor([4, 5, 6])
        order = torch.tensor([1, 0, 1])
        equal(own.step(twice, swapped)[0], plain(network, twice, select(state, order))[0])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="char"), ["abcdefghijklmnopq \n"])


OPTIONS = [
    DecodeSettings(max_tokens=70, temperature=0),
    DecodeSettings(max_tokens=70, temperature=0, min_tokens=40),
    DecodeSettings(max_tokens=40, seed=4),
    DecodeSettings(max_tokens=40, temperature=0.7, top_k=5, top_p=0.9, nbest=3),
    DecodeSettings(max_tokens=30, repetition_penalty=1.3, no_repeat_ngram=3),
    DecodeSettings(max_tokens=20, beams=4, nbest=2),
    DecodeSettings(max_tokens=40, stop=["ab", "cd"], seed=2),
]


@pytest.mark.parametrize(("name", "extra"), [FORMS[0], ("lstm", {"width": 32}), ("gru", {"width": 16, "layers": 2})])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_texts_are_the_same(
    name: str, extra: dict[str, Any], options: DecodeSettings, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy, drawn, searched for; ended by themselves, by strings and by limits; over the end of the context."""
    network = network_of(
        name, vocabulary=tokenizer.size, length=16, **extra | ({"context": 16} if name == "gpt" else {})
    )
    network.head.weight.data.mul_(3.0)
    prompts = ["abc", "", "a" * 20, "hgfedcba", "abc"]
    speaker = Speaker(Neural(network, 16), tokenizer)
    assert speaker.engine.stepper is not None
    found = speaker.generate(prompts, options)
    monkeypatch.setattr("seriatim.tasks._engine.stepper", lambda *_: None)
    wanted = Speaker(Neural(network, 16), tokenizer).generate(prompts, options)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [one.text for one in ours] == [one.text for one in theirs]
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        assert [one.finished for one in ours] == [one.finished for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-3)


def translator(**extra: Any) -> Translator:
    torch.manual_seed(1)
    kind = registry.models.load("transformer").Settings
    network = pair_network(kind(name="transformer", **{"width": 24, "heads": 2, "layers": 2} | extra), 19, 19, True, 30)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.4)
    return network.eval()


@pytest.mark.parametrize(
    "extra", [{}, {"norm": "after"}, {"positions": "learned", "context": 40, "activation": "gelu"}]
)
@pytest.mark.parametrize("options", [TranslateSettings(max_tokens=25), TranslateSettings(beams=1, max_tokens=25)])
def test_translations_are_the_same(
    extra: dict[str, Any], options: TranslateSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cross-attention over sources of different lengths, in beams and one by one."""
    network = translator(**extra)
    lengths = torch.tensor([7, 3, 1, 5])
    source = torch.randint(0, 19, (4, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(7) < lengths[:, None]

    @torch.inference_mode()
    def decoded() -> list[Any]:
        engine = Engine([network], source, mask)
        log_probs, state = engine.start(1)
        if options.beams > 1:
            return [one for row in beam(engine.step, log_probs, state, options, 2) for one in row]
        return sample(engine.step, log_probs, state, options, [np.random.default_rng(0)] * 4, 2)

    with torch.inference_mode():
        assert isinstance(pair_stepper(network, network.encode(source, mask)), PairStepper)
    found = decoded()
    monkeypatch.setattr("seriatim.tasks._pair_engine.pair_stepper", lambda *_: None)
    wanted = decoded()
    assert [one.tokens for one in found] == [one.tokens for one in wanted]
    assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-3)


def test_positions_without_an_end_are_made_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "PLACES", 4)
    monkeypatch.setattr("seriatim.models.transformer.PLACES", 4)
    network = translator()
    source = torch.arange(6)[None]
    with torch.inference_mode():
        memory = network.encode(source)
        own = pair_stepper(network, memory)
        assert own is not None
        state: Any = None
        progress: Any = None
        for step in range(20):
            token = torch.tensor([step % 19])
            hidden, state = network.decode(token[:, None], memory, state)
            found, progress = own.step(token, progress)
            equal(found, network.head(hidden[:, 0]).log_softmax(dim=-1))


def test_weights_that_change_are_packed_again() -> None:
    network = network_of("lstm")
    own = Stepper(network)
    with torch.inference_mode():
        _, state = network(torch.zeros(1, 2, dtype=torch.long))
        own.begin(state)
    with torch.no_grad():
        network.head.weight.mul_(2.0)
    token = torch.tensor([1])
    with torch.inference_mode():
        equal(own.step(token, own.begin(state))[0], plain(network, token, state)[0])


def test_rounding_by_hand() -> None:
    weight = torch.tensor([[1.27, -0.004, 0.006, 0.5], [0.0, 0.0, 0.0, 0.0], [-254.0, 3.0, 1.0, 0.0]])
    expected = torch.tensor([[1.27, 0.0, 0.01, 0.5], [0.0, 0.0, 0.0, 0.0], [-254.0, 4.0, 0.0, 0.0]])
    torch.testing.assert_close(rounded(weight), expected)
    network = network_of("gpt", tie=True)
    other = round_weights(network)
    assert other.input.weight is not other.head.weight
    assert torch.equal(other.input.weight, network.input.weight)
    twice = round_weights(other)
    for a, b in zip(twice.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=0)


def test_where_there_is_no_native_step() -> None:
    network = network_of("gpt")
    assert stepper(network) is not None
    assert stepper(copy.deepcopy(network).double()) is None
    assert stepper(copy.deepcopy(network).to("meta")) is None
    assert stepper(copy.deepcopy(network).train()) is None
    assert stepper(network_of("tcn")) is None
    assert stepper(network_of("mlp")) is None
    with readable_equations():
        assert stepper(network) is None
    code = "from seriatim.kernels.generation import available; print(available())"
    environment = os.environ | {"SERIATIM_KERNELS": "off"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "False"


def test_what_does_not_fit_is_refused() -> None:
    """Wrong kinds, places and sizes are errors with a reason; nothing is read or written where it should not be."""
    network = network_of("gpt", width=8, heads=2, layers=2, context=12)
    own = Stepper(network)
    with torch.inference_mode():
        _, state = network(torch.arange(6).reshape(2, 3))
        progress = own.begin(state)
        native_step = own._native
    assert native_step is not None
    caches = list(state[0])
    for tokens, error, words in [
        (torch.tensor([1.0, 2.0]), TypeError, "int64"),
        (torch.tensor([1]), ValueError, "shape"),
        (torch.tensor([1, 23]), IndexError, "23"),
        (torch.tensor([1, -1]), IndexError, "-1"),
        (torch.tensor([1, 2], device="meta"), ValueError, "CPU"),
    ]:
        with pytest.raises(error, match=words):
            native_step.step(tokens, progress)
        with pytest.raises(error, match=words):
            native_step.go(tokens, progress, 3, torch.tensor([9, 9]), Choice(None))
        with pytest.raises(error, match=words):
            native_step.read(tokens[:, None] if len(tokens) == 2 else tokens)
    for wrong, error, words in [
        ([cache.double() for cache in caches], TypeError, "float32"),
        (caches[:1], ValueError, "layers"),
        ([cache[:, :, :, :2] for cache in caches], ValueError, "shape"),
        ([cache[0] for cache in caches], ValueError, "2\\*heads"),
        ([cache.to("meta") for cache in caches], ValueError, "CPU"),
    ]:
        with pytest.raises(error, match=words):
            native_step.begin(wrong)
    with pytest.raises(ValueError, match="mask"):
        native_step.begin(caches, torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(TypeError, match="boolean"):
        native_step.begin(caches, torch.ones(2, 3))
    with pytest.raises(IndexError, match="2"):
        progress.select(torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="memory"):
        native_step.begin(caches, None, caches)
    with pytest.raises(ValueError, match="uniforms"):
        native_step.go(
            torch.tensor([1, 2]), progress, 3, torch.tensor([9, 9]), Choice(None), torch.zeros(2, 2).double()
        )
    tokens = torch.tensor([1, 2])
    for _ in range(9):
        _, progress = native_step.step(tokens, progress)
    with pytest.raises(ValueError, match="positions for 12"):
        native_step.step(tokens, progress)


@pytest.mark.parametrize("change", ["less", "more", "dtype", "shape", "kind", "sizes"])
def test_networks_that_do_not_fit_are_refused(change: str) -> None:
    parts = native.parts_of(network_of("gpt", width=8, heads=2))
    assert parts is not None
    tensors, sizes, kind = list(parts.tensors), list(parts.sizes), parts.kind
    if change == "less":
        tensors.pop()
    elif change == "more":
        tensors.append(tensors[-1])
    elif change == "dtype":
        tensors[6] = tensors[6].double()  # type: ignore[union-attr]
    elif change == "shape":
        tensors[8] = tensors[8][:, :-1]  # type: ignore[index]
    elif change == "kind":
        kind = "convolution"
    else:
        sizes[1] = 3
    with pytest.raises((ValueError, TypeError)):
        kernels.Native(kernels.Parts(kind, tensors, sizes, parts.numbers))


def test_a_process_that_forks_goes_on() -> None:
    """Threads do not survive a fork; the work is done all the same."""
    code = """
import os, torch
from seriatim.core import registry
from seriatim.nn.native import Stepper
from seriatim.nn.network import token_network
torch.set_num_threads(2)
settings = registry.models.load("lstm").Settings(name="lstm", width=400, layers=2)
network = token_network(settings, 50, 12).eval()
with torch.inference_mode():
    state = [(torch.zeros(1, 400), torch.zeros(1, 400))] * 2
    own = Stepper(network)
    progress = own.begin(state)
    before, _ = own.step(torch.tensor([1]), progress)
    child = os.fork()
    after, _ = own.step(torch.tensor([1]), progress)
    if child == 0:
        os._exit(0 if torch.equal(before, after) else 1)
    print(os.waitpid(child, 0)[1])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert out.stdout.strip() == "0"
