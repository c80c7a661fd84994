"""Beam search with an encoder–decoder of Marian's size: Seriatim beside `transformers` and CTranslate2.

All have the same weights, which are random, and may not end before the last token, so that every search takes as many
steps. The time includes the encoder.
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Competitors, interleaved, parse_options, report
from seriatim.core.device import retain_freed_memory
from seriatim.decode.beam import beam_search
from seriatim.decode.seq2seq import DecodingStep
from seriatim.decode.settings import GenerationSettings
from seriatim.hub.mappings import by_model_type
from seriatim.models.transformer import Settings
from seriatim.nn.encoder_decoder import EncoderDecoder, encoder_decoder_network
from seriatim.nn.native import make_encoder_decoder_stepper, quantize_weights
from seriatim.nn.network import load_weights

VOCAB_SIZE, WIDTH, LAYERS, HEADS, HIDDEN = 58_101, 512, 6, 8, 2_048  # of opus-mt
EOS, START = 0, VOCAB_SIZE - 1
BEAMS, SOURCE, TARGET = 4, 24, 24
BATCHES = (1, 8)
KINDS = {"float32": "", "int8": ", weights in 8 bits"}
CASES = {
    f"beam-{batch}-{kind}": f"Beam search, 4 beams, Transformer of Marian's size, batch {batch}, {TARGET} tokens{what}"
    for batch in BATCHES
    for kind, what in KINDS.items()
}
OPTIONS = GenerationSettings(beams=BEAMS, min_tokens=TARGET, max_tokens=TARGET)


def make_peer() -> Any:
    """Returns the model in `transformers`. Its weights are large enough for tokens to differ in probability."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCAB_SIZE, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, init_std=0.05,
        activation_function="swish", scale_embedding=True, max_position_embeddings=512, pad_token_id=START,
        decoder_start_token_id=START, eos_token_id=EOS, forced_eos_token_id=None,
    )  # fmt: skip
    return MarianMTModel(config).eval()


def make_network(peer: Any) -> EncoderDecoder:
    """Returns our network with the weights of the peer."""
    mapping = by_model_type()["marian"]
    problems: list[str] = []
    settings = Settings(**mapping.settings(peer.config.to_dict(), problems))
    assert not problems
    network = encoder_decoder_network(settings, VOCAB_SIZE, VOCAB_SIZE, True, 1)
    tensors = peer.state_dict()
    load_weights(network, {entry.name: entry.read(tensors) for entry in mapping.maps(settings, mapping.heads[0])})
    return network.eval()


@torch.inference_mode()
def search(network: EncoderDecoder, source: Tensor, quantized: EncoderDecoder | None = None) -> list[list[int]]:
    """Returns the best target of each source; with `quantized`, the decoder has its weights in 8 bits."""
    memory = network.encode(source, None)
    decoding = DecodingStep([network], [memory], len(source))
    if quantized is not None:
        decoding.steppers = [make_encoder_decoder_stepper(quantized, memory, int8=True)]
    log_probs, state = decoding.start(START)
    rows = beam_search(decoding.step, log_probs, state, OPTIONS, EOS, forbidden=[START])
    return [hypotheses[0].tokens for hypotheses in rows]


def make_ctranslate2(peer: Any, kind: str, threads: int, folder: Path) -> Any:
    """Returns the same model in CTranslate2, whose decoder starts with a vector of zeros: it has one token less."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(copy.deepcopy(peer))
    names = [str(token) for token in range(VOCAB_SIZE - 1)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.eos_token = spec.config.decoder_start_token = str(EOS)
    spec.config.unk_token = "1"
    spec.validate()
    spec.optimize(quantization=kind)
    folder.mkdir()
    spec.save(str(folder))
    return ctranslate2.Translator(str(folder), compute_type=kind, inter_threads=1, intra_threads=threads)


def agreement(rows: list[list[int]], expected: list[list[int]]) -> float:
    """Returns the share of tokens before the first that differs."""
    pairs = zip(rows, expected, strict=True)
    return float(np.mean([np.cumprod([a == b for a, b in zip(*pair, strict=True)]).mean() for pair in pairs]))


def make_competitors(peer: Any, batch: int, folder: Path) -> tuple[Competitors, dict[str, str]]:
    """Returns the competitors, and by kind of weights how far they agree with ours in float32."""
    network = make_network(peer)
    quantized = quantize_weights(network)
    source = torch.from_numpy(np.random.default_rng(0).integers(2, VOCAB_SIZE - 1, (batch, SOURCE)))
    options = {"num_beams": BEAMS, "max_new_tokens": TARGET, "min_new_tokens": TARGET, "bad_words_ids": [[START]]}

    @torch.inference_mode()
    def generate() -> list[list[int]]:
        tokens: Tensor = peer.generate(
            source, attention_mask=torch.ones_like(source), do_sample=False, early_stopping=False, **options
        )
        return tokens[:, 1:].tolist()

    runs = Competitors(
        {
            "seriatim": lambda: search(network, source),
            "seriatim int8": lambda: search(network, source, quantized),
            "transformers": generate,
        }
    )
    texts = [[str(token) for token in row] for row in source.tolist()]
    settings = {"beam_size": BEAMS, "min_decoding_length": TARGET, "max_decoding_length": TARGET}

    def make_run(kind: str, threads: int) -> Callable[[], Any]:
        translator = make_ctranslate2(peer, kind, threads, folder / f"{batch}-{kind}-{threads}")
        return lambda: [
            [int(token) for token in result.hypotheses[0]] for result in translator.translate_batch(texts, **settings)
        ]

    for kind in KINDS:
        for threads in sorted({1, torch.get_num_threads()}):  # one thread may be faster
            runs.add(f"CTranslate2 {kind}, {threads}", functools.partial(make_run, kind, threads))
    expected = search(network, source)
    notes = dict.fromkeys(KINDS, "")
    for name, run in runs.items():
        kind = "int8" if "int8" in name else "float32"
        if name.endswith(("transformers", "int8", ", 1")):
            notes[kind] += f"{', ' if notes[kind] else ''}{name.removesuffix(', 1')} {agreement(run(), expected):.0%}"
    return runs, {kind: f"first tokens as seriatim in float32: {text}" for kind, text in notes.items()}


def main() -> None:
    options = parse_options(__doc__, CASES, quick=["beam-1-float32", "beam-1-int8"])
    retain_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        peer = make_peer()
        for batch in BATCHES:
            names = {kind: f"beam-{batch}-{kind}" for kind in KINDS}
            if not set(names.values()) & set(options.cases):
                continue
            runs, notes = make_competitors(peer, batch, Path(folder))
            measurement = interleaved(runs, options, rest=True)  # both kinds of weights in the same turns
            for kind, name in names.items():
                selected, own = measurement.with_weights(kind)
                report(name, selected, options, own, note=notes[kind])


if __name__ == "__main__":
    main()
