"""Let a model go on with a prompt, or with each line of a file; music goes on with a MIDI file and becomes one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.config import validate
from ..core.errors import SeriatimError
from . import _options as o
from ._output import note, one_line, print_json


def command(
    run: o.RunPath,
    prompt: Annotated[str | None, typer.Option("--prompt", help="What to go on with. [default: a new line]")] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="A file of prompts (- for stdin): line N in, line N out, line ends as \\n."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens to generate at most. [default: 200]")] = None,
    min_tokens: Annotated[int | None, typer.Option(help="Tokens before the end may come. [default: 0]")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Below 1 safer, above bolder. [default: 1]")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that make up this share.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1: avoid what occurred.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="Never the same so many tokens in a row twice.")] = None,
    beams: Annotated[int | None, typer.Option(help="Beam search with so many hypotheses.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Beam: score / length to this power.")] = None,
    nbest: Annotated[int | None, typer.Option(help="Answers for each prompt.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text. [default: 0]")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End where this appears; may be repeated.")] = None,
    int8: Annotated[bool, typer.Option("--int8", help="With weights of 8 bits: faster, nearly the same.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="music: the MIDI file to write; --max-tokens counts frames.")
    ] = None,
    plugin: o.Plugin = None,
    json: o.Json = False,
) -> None:
    from ..decode.options import DecodeSettings

    if prompt is not None and prompts is not None:
        raise SeriatimError("generate.input", "--prompt and --prompts exclude each other", "give one of them")
    if greedy and (temperature or beams):
        raise SeriatimError("generate.options", "--greedy goes with neither --temperature nor --beams", "choose one")
    given: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "temperature": 0.0 if greedy else temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram": no_repeat_ngram,
        "beams": beams,
        "length_penalty": length_penalty,
        "nbest": nbest,
        "seed": seed,
        "stop": stop,
    }
    options = validate(DecodeSettings, {k: v for k, v in given.items() if v is not None}, "the options of generate")
    o.add_plugins(plugin)
    from ..runs import Run

    opened = Run(run).int8 if int8 else Run(run)
    if out is None and "compose" in opened.predictor.questions:
        raise SeriatimError("generate.output", f"{run} writes music", "name a file for it: --out piece.mid")
    if out is not None:
        if prompts is not None:
            raise SeriatimError("generate.input", "--out writes one piece", "give a MIDI file with --prompt")
        opening = None if prompt is None else Path(prompt)
        opened.compose(out, options.max_tokens, options.temperature, options.seed, opening)
        note(f"wrote {out}")
        return
    lines = [prompt or ""] if prompts is None else read_lines(prompts)
    answers = opened.generations(lines, options)
    if json:
        print_json([[vars(one) for one in row] for row in answers])
    elif prompts is not None:
        for row in answers:
            print("\t".join(one_line(one.text) for one in row))
    else:
        for number, one in enumerate(answers[0], 1):
            label = f"[{number}] {one.score:.3f}  " if options.nbest > 1 else ""
            print(f"{label}{one.prompt}{one.text}")


def read_lines(path: Path | None) -> list[str]:
    """The lines of a file (or stdin for -), empty ones too: each has its answer."""
    if path is None or str(path) == "-":
        name, data = "stdin", sys.stdin.buffer.read()
    elif path.is_file():
        name, data = str(path), path.read_bytes()
    else:
        raise SeriatimError("file.missing", f"there is no file {path}", "check the path")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SeriatimError("file.encoding", f"{name}, line {line}: not UTF-8", "convert the file") from None
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines
