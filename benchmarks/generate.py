"""Greedy generation: Seriatim's native step beside `transformers`, CTranslate2 and eager PyTorch; an LSTM beside the
loop over `nn.LSTMCell`. Once with the machine to ourselves, once beside a process that takes one of its cores.

All have the same weights, which are random: every text is as long as asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.timing import interleaved, report
from seriatim.decode.options import DecodeSettings
from seriatim.decode.sampling import sample
from seriatim.models.gpt import Settings
from seriatim.models.lstm import Settings as LSTMSettings
from seriatim.nn.network import Network, token_network
from seriatim.nn.rounding import round_weights
from seriatim.tasks._engine import Neural

SIZES = {  # layers, heads, width, context, vocabulary, tokens to generate
    "tiny": (4, 4, 128, 256, 512, 100),
    "gpt2-small": (12, 12, 768, 1024, 50_257, 20),
}
BATCHES = (1, 16)
PROMPT = 8
CELLS = {"lstm-64": (64, 1), "lstm-128": (128, 1), "lstm-128x2": (128, 2), "lstm-256": (256, 1)}  # width, layers
CHARACTERS = 67


@contextlib.contextmanager
def busy(yes: bool) -> Iterator[None]:
    """Beside a process that computes all the time, if so wanted."""
    if not yes:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def greedy(engine: Neural, prompts: list[np.ndarray], tokens: int) -> list[list[int]]:
    options = DecodeSettings(max_tokens=tokens, temperature=0)
    log_probs, state = engine.prompt(prompts)
    streams = [np.random.default_rng()] * len(prompts)
    found = sample(engine.step, log_probs, state, options, streams, ahead=engine.ahead(options, None, []))
    return [one.tokens for one in found]


def eager(network: Network, length: int) -> Neural:
    """Without the native step."""
    engine = Neural(network, length)
    engine.stepper = None
    return engine


def peer_of(network: Network, size: str) -> Any:
    """The same model in `transformers`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, heads, width, context, vocabulary, _ = SIZES[size]
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
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
            turned = isinstance(ours, nn.Linear)
            theirs.weight.copy_(ours.weight.T if turned else ours.weight)
            theirs.bias.copy_(ours.bias)
    return peer


def converted(peer: Any, kind: str, threads: int, folder: Path) -> Any:
    """The same in CTranslate2; of a copy, for to make bytes of weights it overwrites a table that is shared."""
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


def gpts(size: str, batch: int, folder: Path) -> dict[str, Callable[[], Any]]:
    layers, heads, width, context, vocabulary, tokens = SIZES[size]
    torch.manual_seed(0)
    settings = Settings(name="gpt", layers=layers, heads=heads, width=width, context=context)
    network = token_network(settings, vocabulary, context).eval()
    rows = np.random.default_rng(0).integers(1, vocabulary, (batch, PROMPT))
    prompts = list(rows)
    own, small, plain = Neural(network, context), Neural(round_weights(network), context, True), eager(network, context)
    runs: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: greedy(own, prompts, tokens),
        "seriatim int8": lambda: greedy(small, prompts, tokens),
        "eager PyTorch": lambda: greedy(plain, prompts, tokens),
    }
    if importlib.util.find_spec("transformers"):
        peer = peer_of(network, size)
        given = torch.from_numpy(rows)
        known = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}

        @torch.inference_mode()
        def generate() -> Any:
            return peer.generate(given, attention_mask=torch.ones_like(given), **known)

        runs["transformers"] = generate
        if importlib.util.find_spec("ctranslate2"):
            texts = [[str(token) for token in row] for row in rows]
            most = {"max_length": tokens, "min_length": tokens, "sampling_topk": 1, "include_prompt_in_result": False}
            for kind in ("float32", "int8"):
                for threads in sorted({1, torch.get_num_threads()}):  # one alone may be the faster setting
                    generator = converted(peer, kind, threads, folder / f"{size}-{batch}-{kind}-{threads}")
                    name = f"CTranslate2 {kind}, {threads}"
                    runs[name] = lambda generator=generator: generator.generate_batch(texts, **most)
        wanted = generate()[:, PROMPT:].tolist()
        agree = np.mean([a == b for a, b in zip(greedy(own, prompts, tokens), wanted, strict=True)])
        print(f"{size}, batch {batch}: {agree:.0%} of the texts are those of transformers")
    return runs


def cells(width: int, layers: int, tokens: int = 500) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    settings = LSTMSettings(name="lstm", width=width, layers=layers, embedding=width)
    network = token_network(settings, CHARACTERS, 64).eval()
    own = Neural(network, 64)
    prompts = [np.array([1])]
    loop = [nn.LSTMCell(width, width).eval() for _ in range(layers)]
    with torch.no_grad():
        for theirs, ours in zip(loop, network.backbone.get_submodule("cells"), strict=True):  # type: ignore[arg-type]
            theirs.weight_ih.copy_(ours.input.weight)
            theirs.weight_hh.copy_(ours.recurrent)
            theirs.bias_ih.copy_(ours.input.bias)
            theirs.bias_hh.zero_()

    @torch.inference_mode()
    def one_by_one() -> list[int]:
        states = [(torch.zeros(1, width), torch.zeros(1, width)) for _ in loop]
        token, found = torch.tensor([1]), []
        for _ in range(tokens):
            x = network.input(token)
            for index, cell in enumerate(loop):
                states[index] = cell(x, states[index])
                x = states[index][0]
            token = network.head(x).argmax(dim=-1)
            found.append(int(token))
        return found

    assert greedy(own, prompts, tokens)[0] == one_by_one()
    return {"seriatim": lambda: greedy(own, prompts, tokens), "nn.LSTMCell": one_by_one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted([*SIZES, *CELLS]), action="append")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quiet-only", action="store_true", help="not beside a busy process")
    arguments = parser.parse_args()
    sizes = arguments.size or [*SIZES, *CELLS]
    for taken in (False, True)[: 1 if arguments.quiet_only else 2]:
        beside = "-busy" if taken else ""
        with busy(taken), tempfile.TemporaryDirectory() as folder:
            for size in [size for size in sizes if size in SIZES]:
                for batch in BATCHES:
                    times = interleaved(gpts(size, batch, Path(folder)), arguments.repeats, rest=True)
                    report(f"generate-{size}-{batch}{beside}", times)
            for size in [size for size in sizes if size in CELLS]:
                report(f"generate-{size}{beside}", interleaved(cells(*CELLS[size]), arguments.repeats))


if __name__ == "__main__":
    main()
