"""Greedy generation: Seriatim's native step beside `transformers`, CTranslate2 and eager PyTorch; an LSTM beside the
loop over `nn.LSTMCell`. Once on an idle machine, once beside a process that occupies one of its cores (not the largest,
which takes minutes).

All have the same weights, which are random, so that every text has the full length.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.timing import Competitors, interleaved, parse_options, report
from seriatim.decode.sampling import sample
from seriatim.decode.settings import GenerationSettings
from seriatim.models.gpt import Settings
from seriatim.models.lstm import Settings as LSTMSettings
from seriatim.nn.native import quantize_weights
from seriatim.nn.network import Network, token_network
from seriatim.tasks.language.engine import NetworkEngine

SIZES = {  # layers, heads, width, context length, vocabulary, tokens to generate
    "tiny": (4, 4, 128, 256, 512, 100),
    "gpt2-small": (12, 12, 768, 1024, 50_257, 20),
}
BATCHES = (1, 16)
PROMPT, TOKENS = 8, 500
CELLS = {"lstm-64": (64, 1), "lstm-128": (128, 1), "lstm-128x2": (128, 2), "lstm-256": (256, 1)}  # width, layers
CHARACTERS = 67
KINDS = {"float32": "", "int8": ", weights in 8 bits"}
CASES = {
    f"generate-{size}-{batch}-{kind}{suffix}": (
        f"Generation, GPT of {layers} × {width}, batch {batch}, {tokens} tokens{what}{beside}"
    )
    for suffix, beside in (("", ""), ("-busy", ", beside a busy process"))
    for size, (layers, _, width, _, _, tokens) in SIZES.items()
    for batch in BATCHES
    for kind, what in KINDS.items()
    if not (suffix and size == "gpt2-small" and batch > 1)  # minutes, for what the others show
} | {
    f"generate-{size}{suffix}": f"Generation, LSTM of {layers} × {width}, {TOKENS} tokens{beside}"
    for suffix, beside in (("", ""), ("-busy", ", beside a busy process"))
    for size, (width, layers) in CELLS.items()
}


@contextlib.contextmanager
def busy_core(enabled: bool) -> Iterator[None]:
    """Runs a process that computes all the time, if enabled."""
    if not enabled:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def generate_greedily(engine: NetworkEngine, prompts: list[np.ndarray], tokens: int) -> list[list[int]]:
    options = GenerationSettings(max_tokens=tokens, temperature=0)
    log_probs, state = engine.prefill(prompts)
    streams = [np.random.default_rng()] * len(prompts)
    multi_step = engine.multi_step(options, None, [])
    rows = sample(engine.step, log_probs, state, options, streams, multi_step=multi_step)
    return [hypothesis.tokens for hypothesis in rows]


def make_eager_engine(network: Network, length: int) -> NetworkEngine:
    """Returns an engine without the native step."""
    engine = NetworkEngine(network, length)
    engine.stepper = None
    return engine


def make_peer(network: Network, size: str) -> Any:
    """Returns the same model in `transformers`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, heads, width, context_length, vocab_size, _ = SIZES[size]
    config = GPT2Config(
        vocab_size=vocab_size, n_positions=context_length, n_embd=width, n_layer=layers, n_head=heads,
        bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    peer = GPT2LMHeadModel(config).eval()
    body = peer.transformer
    pairs: list[tuple[Any, Any]] = [(body.ln_f, network.backbone.get_submodule("norm"))]
    for theirs, ours in zip(body.h, network.backbone.get_submodule("blocks"), strict=True):  # type: ignore[arg-type]
        pairs += [(theirs.ln_1, ours.attention_norm), (theirs.ln_2, ours.feedforward_norm)]
        pairs += [(theirs.attn.c_attn, ours.attention.inputs), (theirs.attn.c_proj, ours.attention.output)]
        pairs += [(theirs.mlp.c_fc, ours.feedforward.hidden), (theirs.mlp.c_proj, ours.feedforward.output)]
    with torch.no_grad():
        body.wte.weight.copy_(network.input.weight)
        body.wpe.weight.copy_(network.backbone.get_submodule("positions").weight)
        for theirs, ours in pairs:
            transposed = isinstance(ours, nn.Linear)
            theirs.weight.copy_(ours.weight.T if transposed else ours.weight)
            theirs.bias.copy_(ours.bias)
    return peer


def make_ctranslate2(peer: Any, kind: str, threads: int, folder: Path) -> Any:
    """Returns the same model in CTranslate2, made from a copy: its int8 conversion overwrites tied embeddings."""
    import ctranslate2
    from ctranslate2.converters.transformers import GPT2Loader

    spec = GPT2Loader().get_model_spec(copy.deepcopy(peer))
    spec.register_vocabulary([str(token) for token in range(peer.config.vocab_size)])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
    spec.validate()
    spec.optimize(quantization=kind)
    folder.mkdir()
    spec.save(str(folder))
    return ctranslate2.Generator(str(folder), compute_type=kind, inter_threads=1, intra_threads=threads)


def make_gpts(size: str, batch: int, folder: Path) -> tuple[Competitors, str, dict[str, float]]:
    """Returns the competitors, how far they agree, and the bytes that they read if no cache holds the weights."""
    layers, heads, width, context_length, vocab_size, tokens = SIZES[size]
    torch.manual_seed(0)
    settings = Settings(name="gpt", layers=layers, heads=heads, width=width, context_length=context_length)
    network = token_network(settings, vocab_size, context_length).eval()
    rows = np.random.default_rng(0).integers(1, vocab_size, (batch, PROMPT))
    prompts = list(rows)
    own = NetworkEngine(network, context_length)
    int8 = NetworkEngine(quantize_weights(network), context_length, int8=True)
    eager = make_eager_engine(network, context_length)
    runs = Competitors(
        {
            "seriatim": lambda: generate_greedily(own, prompts, tokens),
            "seriatim int8": lambda: generate_greedily(int8, prompts, tokens),
            "eager PyTorch": lambda: generate_greedily(eager, prompts, tokens),
        }
    )
    note = ""
    inputs = torch.from_numpy(rows)
    texts = [[str(token) for token in row] for row in rows]
    try:
        peer = make_peer(network, size)
    except ImportError as error:
        runs.missing |= {"transformers": str(error), "CTranslate2": "it is made from the model of transformers"}
    else:
        settings = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}

        @torch.inference_mode()
        def generate() -> Any:
            return peer.generate(inputs, attention_mask=torch.ones_like(inputs), **settings)

        runs["transformers"] = generate
        limits = {"max_length": tokens, "min_length": tokens, "sampling_topk": 1, "include_prompt_in_result": False}

        def make_run(kind: str, threads: int) -> Callable[[], Any]:
            generator = make_ctranslate2(peer, kind, threads, folder / f"{size}-{batch}-{kind}-{threads}")
            return lambda: generator.generate_batch(texts, **limits)

        for kind in KINDS:
            for threads in sorted({1, torch.get_num_threads()}):  # one thread may be faster
                runs.add(f"CTranslate2 {kind}, {threads}", functools.partial(make_run, kind, threads))
        expected = generate()[:, PROMPT:].tolist()
        generated = generate_greedily(own, prompts, tokens)
        agreement = np.mean([a == b for a, b in zip(generated, expected, strict=True)])
        note = f"{agreement:.0%} of the texts are those of transformers"
    weights = sum(parameter.numel() for parameter in network.parameters()) - context_length * width
    return runs, note, {"float32": 4.0 * weights * tokens, "int8": 1.0 * weights * tokens} if weights > 5e7 else {}


def make_cells(width: int, layers: int, tokens: int = TOKENS) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    settings = LSTMSettings(name="lstm", width=width, layers=layers, embedding=width)
    network = token_network(settings, CHARACTERS, 64).eval()
    own = NetworkEngine(network, 64)
    prompts = [np.array([1])]
    loop = [nn.LSTMCell(width, width).eval() for _ in range(layers)]
    with torch.no_grad():
        for theirs, ours in zip(loop, network.backbone.get_submodule("cells"), strict=True):  # type: ignore[arg-type]
            theirs.weight_ih.copy_(ours.input.weight)
            theirs.weight_hh.copy_(ours.recurrent)
            theirs.bias_ih.copy_(ours.input.bias)
            theirs.bias_hh.zero_()

    @torch.inference_mode()
    def loop_over_cells() -> list[int]:
        states = [(torch.zeros(1, width), torch.zeros(1, width)) for _ in loop]
        token, tokens_so_far = torch.tensor([1]), []
        for _ in range(tokens):
            x = network.input(token)
            for index, cell in enumerate(loop):
                states[index] = cell(x, states[index])
                x = states[index][0]
            token = network.head(x).argmax(dim=-1)
            tokens_so_far.append(int(token))
        return tokens_so_far

    assert generate_greedily(own, prompts, tokens)[0] == loop_over_cells()
    return {"seriatim": lambda: generate_greedily(own, prompts, tokens), "nn.LSTMCell": loop_over_cells}


def main() -> None:
    quick = ["generate-tiny-1-float32", "generate-tiny-1-int8", "generate-lstm-64"]
    options = parse_options(__doc__, CASES, quick)
    for suffix in ("", "-busy"):
        with busy_core(suffix == "-busy"), tempfile.TemporaryDirectory() as folder:
            for size, batch in itertools.product(SIZES, BATCHES):
                names = {kind: f"generate-{size}-{batch}-{kind}{suffix}" for kind in KINDS}
                if set(names.values()) & set(options.cases):  # both kinds are measured in the same turns
                    runs, note, read = make_gpts(size, batch, Path(folder))
                    measurement = interleaved(runs, options, rest=True)
                    for kind, name in names.items():
                        selected, own = measurement.with_weights(kind)
                        report(
                            name, selected, options, own, read=read.get(kind), note=note if kind == "float32" else ""
                        )
            for size, values in CELLS.items():
                name = f"generate-{size}{suffix}"
                if name in options.cases:
                    report(name, interleaved(make_cells(*values), options), options)


if __name__ == "__main__":
    main()
