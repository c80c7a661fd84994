"""Beam search with an encoder–decoder of Marian's size: Seriatim beside `transformers` and CTranslate2.

All have the same weights, which are random, and may not end before the last token: every search takes as many steps.
The pass of the encoder is within the time.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import interleaved, report
from seriatim.core.device import keep_memory
from seriatim.decode.beam import beam
from seriatim.decode.options import DecodeSettings
from seriatim.models._marian import HUB
from seriatim.models.transformer import Settings
from seriatim.nn.native import pair_stepper
from seriatim.nn.network import load_weights
from seriatim.nn.pair import Translator, pair_network
from seriatim.nn.rounding import round_weights
from seriatim.tasks._pair_engine import Engine

VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN = 58_101, 512, 6, 8, 2_048  # of opus-mt
END, BEGIN = 0, VOCABULARY - 1
BEAMS, SOURCE, TARGET = 4, 24, 24
BATCHES = (1, 8)
OPTIONS = DecodeSettings(beams=BEAMS, min_tokens=TARGET, max_tokens=TARGET)


def peer() -> Any:
    """The model in `transformers`. Its vectors are large enough for tokens to differ in probability."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, init_std=0.05,
        activation_function="swish", scale_embedding=True, max_position_embeddings=512, pad_token_id=BEGIN,
        decoder_start_token_id=BEGIN, eos_token_id=END, forced_eos_token_id=None,
    )  # fmt: skip
    return MarianMTModel(config).eval()


def ours(theirs: Any) -> Translator:
    """The same weights."""
    form = HUB[0]
    problems: list[str] = []
    settings = Settings(**form.settings(theirs.config.to_dict(), problems))
    assert not problems
    network = pair_network(settings, VOCABULARY, VOCABULARY, True, 1)
    stored = theirs.state_dict()
    load_weights(network, {entry.ours: entry.read(stored) for entry in form.entries(settings, form.heads[0])})
    return network.eval()


@torch.inference_mode()
def searched(network: Translator, source: Tensor, small: Translator | None = None) -> list[list[int]]:
    """The best target of each source; with the weights of `small` in 8 bits in the decoder, if there are any."""
    engine = Engine([network], source, None)
    if small is not None:
        engine.steppers = [pair_stepper(small, engine.memories[0], bytes=True)]
    log_probs, state = engine.start(BEGIN)
    return [row[0].tokens for row in beam(engine.step, log_probs, state, OPTIONS, END, forbidden=[BEGIN])]


def converted(theirs: Any, kind: str, threads: int, folder: Path) -> Any:
    """The same in CTranslate2, which has no token to begin with but a vector of zeros, and so one token less."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(copy.deepcopy(theirs))
    names = [str(token) for token in range(VOCABULARY - 1)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.eos_token = spec.config.decoder_start_token = str(END)
    spec.config.unk_token = "1"
    spec.validate()
    spec.optimize(quantization=kind)
    folder.mkdir()
    spec.save(str(folder))
    return ctranslate2.Translator(str(folder), compute_type=kind, inter_threads=1, intra_threads=threads)


def agreement(found: list[list[int]], wanted: list[list[int]]) -> float:
    """The share of equal tokens up to the first that differs."""
    same = [np.cumprod([a == b for a, b in zip(*pair, strict=True)]).mean() for pair in zip(found, wanted, strict=True)]
    return float(np.mean(same))


def competitors(theirs: Any, batch: int, folder: Path) -> dict[str, Callable[[], Any]]:
    network = ours(theirs)
    small = round_weights(network)
    source = torch.from_numpy(np.random.default_rng(0).integers(2, VOCABULARY - 1, (batch, SOURCE)))
    known = {"num_beams": BEAMS, "max_new_tokens": TARGET, "min_new_tokens": TARGET, "bad_words_ids": [[BEGIN]]}

    @torch.inference_mode()
    def generate() -> list[list[int]]:
        found: Tensor = theirs.generate(
            source, attention_mask=torch.ones_like(source), do_sample=False, early_stopping=False, **known
        )
        return found[:, 1:].tolist()

    runs: dict[str, Callable[[], Any]] = {
        "seriatim": lambda: searched(network, source),
        "seriatim int8": lambda: searched(network, source, small),
        "transformers": generate,
    }
    wanted = runs["seriatim"]()
    print(f"batch {batch}: as transformers {agreement(generate(), wanted):.0%} of the tokens", end="")
    if importlib.util.find_spec("ctranslate2"):
        texts = [[str(token) for token in row] for row in source.tolist()]
        asked = {"beam_size": BEAMS, "min_decoding_length": TARGET, "max_decoding_length": TARGET}
        for kind in ("float32", "int8"):
            for threads in sorted({1, torch.get_num_threads()}):  # one alone may be the faster setting
                translator = converted(theirs, kind, threads, folder / f"{batch}-{kind}-{threads}")
                run = lambda translator=translator: [  # noqa: E731
                    [int(token) for token in one.hypotheses[0]] for one in translator.translate_batch(texts, **asked)
                ]
                runs[f"CTranslate2 {kind}, {threads}"] = run
            print(f", as CTranslate2 {kind} {agreement(run(), wanted):.0%}", end="")
    print()
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, choices=BATCHES, action="append")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    if not importlib.util.find_spec("transformers"):
        print("beam: left out, for the weights come from transformers, which is not installed")
        return
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        theirs = peer()
        for batch in arguments.batch or BATCHES:
            times = interleaved(competitors(theirs, batch, Path(folder)), arguments.repeats, rest=True)
            report(f"beam-{batch}", times)
            for name, seconds in times.items():
                print(f"  {name:<24} {batch * TARGET / np.median(seconds):9.1f} tokens/s")


if __name__ == "__main__":
    main()
