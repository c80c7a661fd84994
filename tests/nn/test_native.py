"""The native steps of generation against the networks themselves, in float32.

Log-probabilities agree to 2e-5 (sums in another order); so do those of 8-bit weights with a quantized network.
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
from seriatim.decode.beam import beam_search
from seriatim.decode.sampling import sample
from seriatim.decode.settings import BeamSettings, GenerationSettings
from seriatim.kernels import load
from seriatim.nn import native
from seriatim.nn.encoder_decoder import EncoderDecoder, encoder_decoder_network
from seriatim.nn.layers import readable_equations
from seriatim.nn.native import (
    EncoderDecoderStepper,
    Stepper,
    TokenChoice,
    make_encoder_decoder_stepper,
    make_stepper,
    quantize_rows,
    quantize_weights,
)
from seriatim.nn.network import Network, token_network

pytestmark = pytest.mark.skipif(not load(), reason="no compiler here")
CLOSE = 2e-5


@pytest.fixture(autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The native steps have two threads, or as parametrized; the networks have one."""
    count = getattr(request, "param", 2)
    before = torch.get_num_threads()
    torch.set_num_threads(1)

    def with_threads(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            torch.set_num_threads(count)
            try:
                return function(*arguments)
            finally:
                torch.set_num_threads(1)

        return call

    for name in ("prefill", "step", "generate"):
        monkeypatch.setattr(native.NativeGenerator, name, with_threads(getattr(native.NativeGenerator, name)))
    yield
    torch.set_num_threads(before)


def network_of(name: str, vocab_size: int = 23, length: int = 12, **extra: Any) -> Network:
    torch.manual_seed(3)
    network = token_network(settings_of((name, extra)), vocab_size, length).eval()
    for parameter in network.parameters():
        parameter.data.normal_(std=0.3)
    return network


def equal(result: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=CLOSE, atol=CLOSE)


def plain(network: Network, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    logits, state = network(tokens[:, None], None, state)
    return logits[:, 0].log_softmax(dim=-1), state


FORMS = [
    ("gpt", {"width": 12, "heads": 3, "context_length": 40}),
    ("gpt", {"width": 64, "heads": 2, "layers": 3, "context_length": 40, "activation": "gelu"}),
    ("gpt", {"width": 40, "heads": 1, "context_length": 40, "norm": "after", "activation": "relu", "feedforward": 7}),
    ("gpt", {"width": 32, "heads": 4, "context_length": 40, "activation": "silu", "embedding": 5, "tie": False}),
    ("gpt", {"width": 12, "heads": 3, "positions": "sinusoidal", "context_length": None}),
    ("gpt", {"width": 12, "heads": 3, "positions": "none", "context_length": None}),
    ("rnn", {"width": 7}),
    ("rnn", {"width": 33, "activation": "relu", "layers": 2}),
    ("lstm", {"width": 6, "layers": 3}),
    ("lstm", {"width": 48, "embedding": 10}),
    ("gru", {"width": 21, "layers": 2}),
    ("gru", {"width": 16, "reset": "after", "layers": 2}),
]


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
@pytest.mark.parametrize(("name", "extra"), FORMS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_steps_and_reorders_are_the_networks_own(name: str, extra: dict[str, Any], data: st.DataObject) -> None:
    """Ragged prompts, steps, rows that change places, leave and are doubled; also from bytes."""
    network = network_of(name, **extra)
    int8 = data.draw(st.booleans())
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=9)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    if int8:
        network = quantize_weights(network)
    with torch.inference_mode():
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        tokens = torch.randint(0, 23, mask.shape, generator=generator)
        _, state = network(tokens, mask if data.draw(st.booleans()) or not bool(mask.all()) else None)
        own = Stepper(network, int8)
        native_state = own.from_state(state)
        for _ in range(data.draw(st.integers(1, 12))):
            rows = len(lengths)
            if data.draw(st.booleans()):
                order = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=9)))
                lengths, state, native_state = lengths[order], select(state, order), native_state.select(order)
                rows = len(order)
            given = torch.randint(0, 23, (rows,), generator=generator)
            expected, state = plain(network, given, state)
            result, native_state = own.step(given, native_state)
            equal(result, expected)


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_prefill(number: int) -> None:
    """Each form with one row or three, and with weights of 32 or 8 bits."""
    (name, extra), rows, int8 = FORMS[number], (1, 3)[number % 2], number % 3 == 0
    network = network_of(name, **extra)
    network = quantize_weights(network) if int8 else network
    tokens = torch.randint(0, 23, (rows, 7), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        logits, state = network(tokens[:, :6])
        own = Stepper(network, int8)
        result, native_state = own.prefill(tokens[:, :6])
        equal(result, logits[:, -1].log_softmax(dim=-1))
        expected, _ = plain(network, tokens[:, 6], state)
        equal(own.step(tokens[:, 6], native_state)[0], expected)


def test_long_prompts_are_read_by_the_network() -> None:
    own = Stepper(network_of("gpt", width=64, heads=2, layers=3, context_length=40))
    assert own.prefills_faster(100)
    assert not own.prefills_faster(1_000)


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize("name", ["gru", "lstm", "rnn"])
def test_large_vocabularies_and_widths(name: str, tables: bool) -> None:
    """Where the tokens' part of the first product is no table, and where threads share each product."""
    size = 260 if tables else 5_000
    network = network_of(name, vocab_size=size, width=300, layers=2)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.05)
    with torch.inference_mode():
        _, state = network(torch.arange(12).reshape(3, 4))
        own = Stepper(network)
        native_state = own.from_state(state)
        for step in range(5):
            tokens = torch.tensor([step, 7, size - 1])
            expected, state = plain(network, tokens, state)
            result, native_state = own.step(tokens, native_state)
            equal(result, expected)


def test_a_wide_gpt_whose_products_are_shared() -> None:
    network = network_of("gpt", vocab_size=700, width=256, heads=4, layers=3, context_length=200)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.05)
    with torch.inference_mode():
        _, state = network(torch.arange(80).reshape(1, 80).repeat(8, 1) % 600)
        own = Stepper(network)
        native_state = own.from_state(state)
        for step in range(70):  # over the end of a page
            tokens = torch.arange(8) + step
            expected, state = plain(network, tokens, state)
            result, native_state = own.step(tokens, native_state)
            equal(result, expected)


@pytest.mark.parametrize(("name", "extra"), [FORMS[0], FORMS[6], FORMS[8]])
def test_a_state_may_be_continued_twice(name: str, extra: dict[str, Any]) -> None:
    network = network_of(name, **extra)
    with torch.inference_mode():
        _, state = network(torch.arange(8).reshape(2, 4))
        own = Stepper(network)
        first = own.from_state(state)
        tokens = [torch.tensor([number, 22 - number]) for number in range(3)]
        _, second = own.step(tokens[0], first)
        _, state = plain(network, tokens[0], state)
        for token in (*tokens[1:], *tokens):
            equal(own.step(token, second)[0], plain(network, token, state)[0])
        swapped = second.select(torch.tensor([1, 0, 1]))
        equal(own.step(tokens[1], second)[0], plain(network, tokens[1], state)[0])
        twice = torch.tensor([4, 5, 6])
        order = torch.tensor([1, 0, 1])
        equal(own.step(twice, swapped)[0], plain(network, twice, select(state, order))[0])


OPTIONS = [
    (GenerationSettings(max_tokens=24, temperature=0), None),
    (GenerationSettings(max_tokens=24, temperature=0, min_tokens=10), 5),
    (GenerationSettings(max_tokens=24, seed=4), 5),
    (GenerationSettings(max_tokens=24, temperature=0.7, top_k=5, top_p=0.9), 5),
]


@pytest.mark.parametrize(("name", "extra"), [FORMS[0], ("lstm", {"width": 32}), ("gru", {"width": 16, "layers": 2})])
@pytest.mark.parametrize(("options", "eos"), OPTIONS, ids=str)
def test_many_tokens_at_once_are_those_of_single_steps(
    name: str, extra: dict[str, Any], options: GenerationSettings, eos: int | None
) -> None:
    """Greedy and sampled, ended by themselves and by limits."""
    network = network_of(name, **extra)
    network.head.weight.data.mul_(3.0)
    prompts = torch.randint(0, 23, (4, 5), generator=torch.Generator().manual_seed(0))
    own = Stepper(network)

    def multi_step(
        tokens: Tensor, state: Any, steps: int, limits: list[int], min_tokens: int, uniforms: Tensor | None
    ) -> tuple[Tensor, Tensor, Any]:
        choice = TokenChoice(eos, min_tokens, (), options.temperature, options.top_k, options.top_p)
        return own.generate(tokens, state, steps, torch.tensor(limits), choice, uniforms)

    def generate(native: bool, at_once: bool) -> list[Any]:
        streams = [np.random.default_rng(row) for row in range(4)]
        with torch.inference_mode():
            logits, state = network(prompts)
            log_probs = logits[:, -1].log_softmax(dim=-1)
            if not native:
                return sample(lambda *arguments: plain(network, *arguments), log_probs, state, options, streams, eos)
            many = multi_step if at_once else None
            return sample(own.step, log_probs, own.from_state(state), options, streams, eos, multi_step=many)

    expected = generate(native=False, at_once=False)
    for at_once in (False, True):
        result = generate(native=True, at_once=at_once)
        assert [text.tokens for text in result] == [text.tokens for text in expected]
        assert [text.finished for text in result] == [text.finished for text in expected]
        scores = [text.score for text in expected]
        assert [text.score for text in result] == pytest.approx(scores, abs=1e-3)


def translator(**extra: Any) -> EncoderDecoder:
    torch.manual_seed(1)
    values = {"name": "transformer", "width": 24, "heads": 2, "layers": 2} | extra
    settings = registry.models.load(values["name"]).Settings(**values)
    network = encoder_decoder_network(settings, 19, 19, True, 30)
    for parameter in network.parameters():
        parameter.data.normal_(std=0.4)
    return network.eval()


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"norm": "after"},
        {"positions": "learned", "context_length": 40, "activation": "gelu"},
        {
            "norm": "after",
            "positions": "learned",
            "context_length": 40,
            "shared_positions": False,
            "embedding_norm": True,
        },
    ],
)
@pytest.mark.parametrize("beams", [1, 5])
def test_beams_of_an_encoder_decoder(extra: dict[str, Any], beams: int) -> None:
    """Cross-attention over sources of different lengths."""
    network, options = translator(**extra), BeamSettings(max_tokens=25, beams=beams)
    lengths = torch.tensor([7, 3, 1, 5])
    source = torch.randint(0, 19, (4, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(7) < lengths[:, None]

    def decode(native: bool) -> list[Any]:
        with torch.inference_mode():
            memory = network.encode(source, mask)
            stepper = make_encoder_decoder_stepper(network, memory)
            assert isinstance(stepper, EncoderDecoderStepper)

            def plain_step(tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
                rows, inner = state
                hidden, inner = network.decode(tokens[:, None], select(memory, rows), inner)
                return network.head(hidden[:, 0]).log_softmax(dim=-1), (rows, inner)

            first = torch.ones(4, dtype=torch.long)
            step = stepper.step if native else plain_step
            log_probs, state = step(first, None if native else (torch.arange(4), None))
            return [hypothesis for row in beam_search(step, log_probs, state, options, 2) for hypothesis in row]

    result, expected = decode(native=True), decode(native=False)
    assert [hypothesis.tokens for hypothesis in result] == [hypothesis.tokens for hypothesis in expected]
    scores = [hypothesis.score for hypothesis in expected]
    assert [hypothesis.score for hypothesis in result] == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize("extra", [{"name": "t5"}, {"embedding": 8}])
def test_decoders_that_are_not_native(extra: dict[str, Any]) -> None:
    """Scores with relative positions, projected tokens: the equations decode them."""
    network = translator(**extra)
    with torch.inference_mode():
        assert make_encoder_decoder_stepper(network, network.encode(torch.arange(6)[None])) is None


def test_unbounded_positions_are_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "POSITIONS", 4)
    network = translator()
    source = torch.arange(6)[None]
    with torch.inference_mode():
        memory = network.encode(source)
        own = make_encoder_decoder_stepper(network, memory)
        assert own is not None
        state: Any = None
        native_state: Any = None
        for step in range(20):
            token = torch.tensor([step % 19])
            hidden, state = network.decode(token[:, None], memory, state)
            result, native_state = own.step(token, native_state)
            equal(result, network.head(hidden[:, 0]).log_softmax(dim=-1))


def test_weights_that_change_are_packed_again() -> None:
    network = network_of("lstm")
    own = Stepper(network)
    with torch.inference_mode():
        _, state = network(torch.zeros(1, 2, dtype=torch.long))
        own.from_state(state)
    with torch.no_grad():
        network.head.weight.mul_(2.0)
    token = torch.tensor([1])
    with torch.inference_mode():
        equal(own.step(token, own.from_state(state))[0], plain(network, token, state)[0])


def test_weights_made_in_inference_mode_are_packed_each_time() -> None:
    with torch.inference_mode():
        network = network_of("gru").eval()
        stepper = make_stepper(network)
        assert stepper is not None
        for _ in range(2):
            result, _ = stepper.prefill(torch.tensor([[1, 2, 3]]))
            equal(result, network(torch.tensor([[1, 2, 3]]))[0][:, -1].log_softmax(-1))
            for parameter in network.parameters():
                parameter.mul_(0.5)


def test_quantization_by_hand() -> None:
    weight = torch.tensor([[1.27, -0.004, 0.006, 0.5], [0.0, 0.0, 0.0, 0.0], [-254.0, 3.0, 1.0, 0.0]])
    expected = torch.tensor([[1.27, 0.0, 0.01, 0.5], [0.0, 0.0, 0.0, 0.0], [-254.0, 4.0, 0.0, 0.0]])
    torch.testing.assert_close(quantize_rows(weight), expected)
    network = network_of("gpt", tie=True)
    other = quantize_weights(network)
    assert other.input.weight is not other.head.weight
    assert torch.equal(other.input.weight, network.input.weight)
    twice = quantize_weights(other)
    for a, b in zip(twice.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=0)


def test_where_there_is_no_native_step() -> None:
    network = network_of("gpt")
    assert make_stepper(network) is not None
    assert make_stepper(copy.deepcopy(network).double()) is None
    assert make_stepper(copy.deepcopy(network).to("meta")) is None
    assert make_stepper(copy.deepcopy(network).train()) is None
    assert make_stepper(network_of("tcn")) is None
    assert make_stepper(network_of("mlp")) is None
    with readable_equations():
        assert make_stepper(network) is None
    code = "from seriatim.kernels import load; print(load())"
    environment = os.environ | {"SERIATIM_KERNELS": "off"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "False"


def test_what_does_not_fit_is_refused() -> None:
    """Wrong kinds, places and sizes are errors with a reason; nothing is read or written where it should not be."""
    network = network_of("gpt", width=8, heads=2, layers=2, context_length=12)
    own = Stepper(network)
    with torch.inference_mode():
        _, state = network(torch.arange(6).reshape(2, 3))
        native_state = own.from_state(state)
        native_step = own._generator
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
            native_step.step(tokens, native_state)
        with pytest.raises(error, match=words):
            native_step.generate(tokens, native_state, 3, torch.tensor([9, 9]), TokenChoice(None))
        with pytest.raises(error, match=words):
            native_step.prefill(tokens[:, None] if len(tokens) == 2 else tokens)
    for wrong, error, words in [
        ([cache.double() for cache in caches], TypeError, "float32"),
        (caches[:1], ValueError, "layers"),
        ([cache[:, :, :, :2] for cache in caches], ValueError, "shape"),
        ([cache[0] for cache in caches], ValueError, "2\\*heads"),
        ([cache.to("meta") for cache in caches], ValueError, "CPU"),
    ]:
        with pytest.raises(error, match=words):
            native_step.from_state(wrong)
    with pytest.raises(ValueError, match="mask"):
        native_step.from_state(caches, torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(TypeError, match="boolean"):
        native_step.from_state(caches, torch.ones(2, 3))
    with pytest.raises(IndexError, match="2"):
        native_state.select(torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="memory"):
        native_step.from_state(caches, None, caches)
    with pytest.raises(ValueError, match="uniforms"):
        native_step.generate(
            torch.tensor([1, 2]), native_state, 3, torch.tensor([9, 9]), TokenChoice(None), torch.zeros(2, 2).double()
        )
    tokens = torch.tensor([1, 2])
    for _ in range(9):
        _, native_state = native_step.step(tokens, native_state)
    with pytest.raises(ValueError, match="positions for 12"):
        native_step.step(tokens, native_state)


@pytest.mark.parametrize("change", ["less", "more", "dtype", "shape", "kind", "sizes"])
def test_networks_that_do_not_fit_are_refused(change: str) -> None:
    parts = native.network_parts(network_of("gpt", width=8, heads=2))
    assert parts is not None
    tensors, sizes, kind = list(parts.tensors), list(parts.sizes), parts.kind
    if change == "less":
        tensors.pop()
    elif change == "more":
        tensors.append(tensors[-1])
    elif change == "dtype":
        tensors[8] = tensors[8].double()  # type: ignore[union-attr]
    elif change == "shape":
        tensors[10] = tensors[10][:, :-1]  # type: ignore[index]
    elif change == "kind":
        kind = "convolution"
    else:
        sizes[1] = 3
    with pytest.raises((ValueError, TypeError)):
        native.NativeGenerator(native.NetworkParts(kind, tensors, sizes, parts.numbers))


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
    native_state = own.from_state(state)
    before, _ = own.step(torch.tensor([1]), native_state)
    child = os.fork()
    after, _ = own.step(torch.tensor([1]), native_state)
    if child == 0:
        os._exit(0 if torch.equal(before, after) else 1)
    print(os.waitpid(child, 0)[1])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert out.stdout.strip() == "0"
