"""What users get wrong, and what they are told: a code, the place, the remedy, and never a traceback.

A case is a command line, the files it meets, and what its error must say. `lstm` and `ngram` in a command line are
copies of two tiny runs. Commands run in this process, because importing torch for each would take minutes.
"""

from __future__ import annotations

import gzip
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from seriatim import cli
from seriatim.core import registry
from seriatim.data import catalogue

Prepare = Callable[[Path, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Case:
    name: str
    code: str
    says: tuple[str, ...]  # all of them, on the error stream
    arguments: tuple[str, ...]
    files: dict[str, str | bytes] = field(default_factory=dict)
    prepare: Prepare = lambda folder, patch: None
    status: int = 2
    prints: bool = False  # whether results were printed before


def train(*more: str, data: str = "book.txt", model: str = "lstm") -> tuple[str, ...]:
    return ("train", "language", "--data", data, "--model", model, "--steps", "2", "--quiet", *more)


def sets(*assignments: str, model: str = "lstm") -> tuple[str, ...]:
    return train(*(part for one in assignments for part in ("--set", one)), model=model)


def generate(*more: str) -> tuple[str, ...]:
    return ("generate", "lstm", "--max-tokens", "3", *more)


# ── the world of a case ───────────────────────────────────────────────────────────────────────────────────────────


def change(name: str, what: Callable[[bytes], bytes]) -> Prepare:
    """Rewrites a file that is there."""

    def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
        (path,) = folder.glob(name)
        path.write_bytes(what(path.read_bytes()))

    return prepare


def remove(name: str) -> Prepare:
    def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
        (path,) = folder.glob(name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return prepare


def flip_a_byte(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def no_network(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The catalogue points at a port on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/names.txt"
    entry = catalogue.entries()["names"]
    moved = tuple(replace(file, urls=(address,)) for file in entry.files)
    patch.setitem(catalogue.entries(), "names", replace(entry, files=moved))
    patch.setenv("no_proxy", "*")
    patch.setenv("SERIATIM_CACHE", str(folder / "cache"))


def no_cuda(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("torch.cuda.is_available", lambda: False)


def empty_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "texts").mkdir()


# ── the cases ─────────────────────────────────────────────────────────────────────────────────────────────────────

DATA = [
    Case("missing", "data.missing", ('"bok.txt"', 'did you mean "book.txt"?'), train(data="bok.txt")),
    Case("empty", "data.empty", ("a.txt has no rows",), train(data="a.txt"), {"a.txt": ""}),
    Case("blank", "data.empty", ("a.txt holds only white space",), train(data="a.txt"), {"a.txt": " \n\t\n" * 50}),
    Case(
        "broken-utf-8",
        "data.encoding",
        ("a.txt, line 3,", "0xe9", "--encoding cp1252"),
        train(data="a.txt"),
        {"a.txt": "one\ntwo\ncafé\n".encode("latin-1")},
    ),
    Case("nul", "data.binary", ("a.txt, line 2", "NUL"), train(data="a.txt"), {"a.txt": b"one\nt\0wo\n"}),
    Case("one-character", "data.too-short", ("1 bytes of text",), train(data="a.txt"), {"a.txt": "a"}),
    Case("encoding-name", "data.encoding-name", ('"uft-8"', 'did you mean "utf-8"?'), train("--encoding", "uft-8")),
    Case("empty-folder", "data.empty", ("the folder texts holds no files",), train(data="texts"), {}, empty_folder),
    Case("binary-folder", "data.binary", ("t: ", ".png"), train(data="t"), {"t/a.png": b"\x89PNG\0"}),
    Case("binary-ending", "data.binary", ("a.pdf", ".pdf"), train(data="a.pdf"), {"a.pdf": b"%PDF"}),
    Case(
        "no-such-column",
        "data.column",
        ("a.jsonl", '"txt"', 'did you mean "text"?'),
        train("--column", "txt", data="a.jsonl"),
        {"a.jsonl": '{"text": "hello"}\n'},
    ),
    Case(
        "no-such-csv-column",
        "data.column",
        ("a.csv", '"titel"', 'did you mean "title"?'),
        train("--column", "titel", data="a.csv"),
        {"a.csv": "id,title\n1,one\n"},
    ),
    Case(
        "two-columns",
        "data.column",
        ("a.csv", "title, remark", "--column"),
        train(data="a.csv"),
        {"a.csv": "title,remark\n" + "one word,two words\n" * 20},
    ),
    Case("column-of-text", "data.column", ("book.txt", "no columns", "omit --column"), train("--column", "text")),
    Case(
        "malformed-jsonl",
        "data.jsonl",
        ("a.jsonl, line 2: invalid JSON",),
        train(data="a.jsonl"),
        {"a.jsonl": '{"text": "one"}\n{"text": \n'},
    ),
    Case(
        "bad-csv-row",
        "data.csv",
        ("a.csv, line 3: 3 cells, but the header has 2",),
        train("--column", "text", data="a.csv"),
        {"a.csv": "id,text\n1,one\n2,two,three\n"},
    ),
    Case("not-parquet", "data.parquet", ("a.parquet",), train(data="a.parquet"), {"a.parquet": b"PAR1 no, it is not"}),
    Case(
        "broken-gzip",
        "data.broken",
        ("a.txt.gz", "damaged"),
        train(data="a.txt.gz"),
        {"a.txt.gz": gzip.compress(b"some text\n" * 500)[:-20]},
    ),
    Case("not-gzip", "data.broken", ("a.txt.gz", "damaged"), train(data="a.txt.gz"), {"a.txt.gz": "plain text"}),
    Case("not-zip", "data.broken", ("a.zip", "not a zip file"), train(data="a.zip"), {"a.zip": "plain text"}),
    Case(
        "too-short-for-length",
        "data.too-short",
        ("sequences of 9000", "--context-length"),
        train("--context-length", "9000"),
    ),
    Case("catalogue-misspelt", "data.missing", ('did you mean "wikitext2"?',), train(data="wikitex2")),
    Case("get-misspelt", "data.unknown", ('"nmes"', 'did you mean "names"?'), ("data", "get", "nmes")),
    Case("offline", "data.offline", ("cannot be reached", "SERIATIM_DATA"), train(data="names"), {}, no_network, 1),
    Case("no-data-dir", "data.missing", ("--data-dir",), train("--data-dir", "nowhere", data="names")),
    Case(
        "wrong-local-copy",
        "data.hash",
        ("mirror/names/names.txt", "sha256", "expected"),
        train("--data-dir", "mirror", data="names"),
        {"mirror/names/names.txt": "emma\n"},
    ),
    Case("no-valid-file", "data.missing", ('"valid.txt"',), train("--validation", "valid.txt")),
]

CONFIG = [
    Case("unknown-section", "config.invalid", ("modle: ", 'did you mean "model"?'), sets("modle.width=8")),
    Case("unknown-key", "config.invalid", ("model.widht: ", 'did you mean "width"?'), sets("model.widht=8")),
    Case(
        "unknown-deep-key",
        "config.invalid",
        ("train.optimizer.ltr: unknown setting", 'did you mean "lr"?'),
        sets("train.optimizer.ltr=1"),
    ),
    Case(
        "unknown-tokenizer-key",
        "config.invalid",
        ("task.tokenizer.vocab_szie: ", 'did you mean "vocab_size"?'),
        sets("task.tokenizer.vocab_szie=1"),
    ),
    Case(
        "unknown-key-in-yaml",
        "config.invalid",
        ("train.stpes: ", 'did you mean "steps"?'),
        train("--config", "a.yaml"),
        {"a.yaml": "train:\n  stpes: 3\n"},
    ),
    Case(
        "three-problems",
        "config.invalid",
        (
            "3 problems",
            "model.width: greater than or equal to 1 (got 0)",
            "train.batch_size: ",
            "train.schedule.nmae: ",
        ),
        sets("model.width=0", "train.batch_size=-1", "train.schedule.nmae=cosine"),
    ),
    Case("wrong-type", "config.invalid", ("model.width: ", "integer", "'wide'"), sets("model.width=wide")),
    Case(
        "section-of-number",
        "config.invalid",
        ("train: ", "(got 5)"),
        ("train", "language", "--data", "book.txt", "--model", "lstm", "--set", "train=5"),
    ),
    Case("out-of-range", "config.invalid", ("model.dropout: ", "less than 1", "1.5"), sets("model.dropout=1.5")),
    Case("not-a-choice", "config.invalid", ("train.schedule.name: ", "'cosine'"), sets("train.schedule.name=cosin")),
    Case("steps-in-words", "config.invalid", ("train.steps: ", "'many'"), train("--steps", "many")),
    Case("no-params", "config.invalid", ("params: ", "'1Q'"), train("--params", "1Q")),
    Case("fractions", "data.fractions", ("data.fractions: ", "add up to 1"), sets("data.fractions=[0.5, 0.1, 0.1]")),
    Case(
        "tokenizer-too-small",
        "config.invalid",
        ("task.tokenizer: ", "at least 260"),
        train("--tokenizer", "byte-bpe", "--vocab-size", "100"),
    ),
    Case("set-without-value", "config.assignment", ('"model.width"', "a.b=c"), sets("model.width")),
    Case("set-without-key", "config.assignment", ('"=3"',), sets("=3")),
    Case("no-yaml", "config.missing", ("a.yaml", "--config"), train("--config", "a.yaml")),
    Case(
        "yaml-syntax",
        "config.yaml",
        ("a.yaml, line 2",),
        train("--config", "a.yaml"),
        {"a.yaml": "model: lstm\n  train: 3\n"},
    ),
    Case("yaml-list", "config.yaml", ("a.yaml", "mapping"), train("--config", "a.yaml"), {"a.yaml": "- lstm\n- gpt\n"}),
    Case("yaml-latin-1", "config.yaml", ("a.yaml",), train("--config", "a.yaml"), {"a.yaml": b"# caf\xe9\n"}),
    Case(
        "model-of-number",
        "config.incomplete",
        ("model", "model.name"),
        ("train", "language", "--data", "book.txt", "--set", "model=5"),
    ),
    Case("no-data", "config.incomplete", ("data", "data.source"), ("train", "language", "--model", "lstm")),
    Case("no-task", "config.incomplete", ("task", "task.name"), ("train", "--data", "book.txt", "--model", "lstm")),
]

MODEL = [
    Case("unknown-model", "model.unknown", ('"lsmt"', 'did you mean "lstm"?'), train(model="lsmt")),
    Case(
        "unknown-model-of-several",
        "model.unknown",
        ('"gtp"', 'did you mean "gpt"?'),
        ("compare", "language", "--data", "book.txt", "--models", "ngram,gtp", "--quiet"),
    ),
    Case(
        "no-models",
        "compare.empty",
        ("no models", "--models"),
        ("compare", "language", "--data", "book.txt", "--models", ",", "--quiet"),
    ),
    Case(
        "unknown-task",
        "task.unknown",
        ('"langauge"', 'did you mean "language"?'),
        ("train", "langauge", "--data", "book.txt", "--model", "lstm"),
    ),
    Case("heads", "model.heads", ("30 ", "heads 4"), sets("model.width=30", model="gpt")),
    Case(
        "bidirectional", "task.not-causal", ("bidirectional", "model.bidirectional"), sets("model.bidirectional=true")
    ),
    Case(
        "bert-language", "task.not-causal", ("a bidirectional bert", "→ choose"), sets("model.width=32", model="bert")
    ),
    Case("budget", "budget.too-small", ('"lstm" of 10 parameters', "--params"), train("--params", "10")),
    Case("order", "config.invalid", ("model.order: ", "64", "65"), sets("model.order=65", model="ngram")),
    Case("no-plugin", "plugin.missing", ("mine.py",), train("--plugin", "mine.py")),
    Case("plugin-named-lstm", "plugin.name-taken", ('"lstm"', "rename"), train("--plugin", "lstm.py"), {"lstm.py": ""}),
    Case(
        "plugin-without-settings",
        "plugin.incomplete",
        ("bare.py", "Settings"),
        train("--plugin", "bare.py", model="bare"),
        {"bare.py": '"""A model without settings."""\n'},
    ),
    Case(
        "plugin-with-syntax-error",
        "plugin.broken",
        ("crooked.py", "line 2"),
        train("--plugin", "crooked.py", model="crooked"),
        {"crooked.py": '"""A model."""\nclass Settings(\n'},
    ),
    Case(
        "plugin-that-raises",
        "plugin.broken",
        ("raising.py, line 2", "no_such_package"),
        train("--plugin", "raising.py", model="raising"),
        {"raising.py": '"""A model."""\nimport no_such_package\n'},
    ),
    Case("device", "device.missing", ('"cuda"', "auto, cpu"), train("--device", "cuda"), {}, no_cuda),
    Case("device-misspelt", "device.missing", ('"cup"', "auto, cpu"), train("--device", "cup")),
]

RUNS = [
    Case("no-run", "run.missing", ("elsewhere is not the folder of a run",), ("generate", "elsewhere")),
    Case("run-misspelt", "run.missing", ("lsmt", 'did you mean "lstm"?'), ("resume", "lsmt")),
    Case("run-exists", "run.exists", ("lstm holds a run", "seriatim resume"), train("--out", "lstm")),
    Case("resume-backwards", "usage", ("--steps", "1"), ("resume", "lstm", "--steps", "-3", "--quiet")),
    Case("resume-counts", "run.gradient-free", ("ngram",), ("resume", "ngram", "--quiet")),
    Case(
        "resume-without-checkpoint",
        "checkpoint.missing",
        ("lstm has no checkpoint",),
        ("resume", "lstm", "--quiet", "--steps", "6"),
        {},
        remove("lstm/checkpoints"),
    ),
    Case(
        "damaged-checkpoint",
        "checkpoint.damaged",
        ("lstm/checkpoints/4: weights.safetensors", "there are: "),
        ("resume", "lstm", "--quiet", "--steps", "6"),
        {},
        change("lstm/checkpoints/4/weights.safetensors", flip_a_byte),
    ),
    Case(
        "checkpoint-without-file",
        "checkpoint.damaged",
        ("lstm/checkpoints/4",),
        ("resume", "lstm", "--quiet", "--steps", "6"),
        {},
        remove("lstm/checkpoints/4/optimizer.safetensors"),
    ),
    Case(
        "no-weights",
        "run.untrained",
        ("lstm has no weights", "seriatim resume lstm"),
        ("generate", "lstm"),
        {},
        remove("lstm/model.safetensors"),
    ),
    Case(
        "truncated-weights",
        "checkpoint.damaged",
        ("lstm/model.safetensors",),
        ("generate", "lstm"),
        {},
        change("lstm/model.safetensors", lambda data: data[:-100]),
    ),
    Case(
        "truncated-counts",
        "checkpoint.damaged",
        ("ngram/model.safetensors",),
        ("next", "ngram", "the"),
        {},
        change("ngram/model.safetensors", lambda data: data[:50]),
    ),
    Case(
        "edited-config",
        "run.damaged",
        ("lstm", "config.yaml"),
        ("generate", "lstm"),
        {},
        change("lstm/config.yaml", lambda data: data.replace(b"width: 8", b"width: 9")),
    ),
    Case(
        "resume-edited-config",
        "run.damaged",
        ("lstm", "config.yaml"),
        ("resume", "lstm", "--quiet", "--steps", "6"),
        {},
        change("lstm/config.yaml", lambda data: data.replace(b"width: 8", b"width: 9")),
    ),
    Case(
        "edited-order",
        "run.damaged",
        ("ngram", "config.yaml"),
        ("next", "ngram", "the"),
        {},
        change("ngram/config.yaml", lambda data: data.replace(b"order: 3", b"order: 5")),
    ),
    Case(
        "config-with-a-slip",
        "config.invalid",
        ("lstm/config.yaml", "model.widht"),
        ("generate", "lstm"),
        {},
        change("lstm/config.yaml", lambda data: data.replace(b"width: 8", b"widht: 8")),
    ),
    Case(
        "no-tokenizer",
        "tokenizer.missing",
        ("lstm/tokenizer.json",),
        ("score", "lstm", "the"),
        {},
        remove("lstm/tokenizer.json"),
    ),
    Case(
        "damaged-tokenizer",
        "run.damaged",
        ("lstm/tokenizer.json",),
        ("score", "lstm", "the"),
        {},
        change("lstm/tokenizer.json", lambda data: data[:100]),
    ),
    Case(
        "damaged-summary",
        "run.damaged",
        ("lstm/summary.json",),
        ("runs", "."),
        {},
        change("lstm/summary.json", lambda data: data[:100]),
        prints=True,  # the other runs
    ),
    Case(
        "data-changed",
        "data.changed",
        ("lstm", "restore the file"),
        ("resume", "lstm", "--quiet", "--steps", "6"),
        {},
        change("book.txt", lambda data: data.replace(b"cat", b"tac")),
    ),
    Case(
        "data-gone",
        "data.missing",
        ("book.txt",),
        ("resume", "lstm", "--quiet", "--steps", "6"),
        {},
        remove("book.txt"),
    ),
]

USE = [
    Case("unknown-character", "tokenizer.unknown", ('"Ω"',), generate("the Ω")),
    Case("unknown-character-next", "tokenizer.unknown", ('"Ω"',), ("next", "lstm", "Ω")),
    Case("unknown-character-score", "tokenizer.unknown", ('"Ω"',), ("score", "ngram", "Ω")),
    Case("temperature", "config.invalid", ("temperature: ", "-1"), generate("a", "--temperature", "-1")),
    Case("temperature-in-words", "usage", ("--temperature", "valid number"), generate("--temperature", "hot")),
    Case("top-p", "config.invalid", ("top_p: ", "1.5"), generate("a", "--top-p", "1.5")),
    Case("top-k", "config.invalid", ("top_k: ", "0"), generate("a", "--top-k", "0")),
    Case("max-tokens", "config.invalid", ("max_tokens: ", "0"), ("generate", "lstm", "a", "--max-tokens", "0")),
    Case("nbest", "config.invalid", ("nbest 3", "there are 2"), generate("a", "--nbest", "3", "--beams", "2")),
    Case("beams-sample", "config.invalid", ("top_k",), generate("a", "--top-k", "3", "--beams", "2")),
    Case("two-inputs", "input.two", ("--data",), generate("a", "--data", "b.txt")),
    Case("no-prompts", "data.missing", ('"a.txt"',), generate("--data", "a.txt")),
    Case(
        "prompts-latin-1",
        "data.encoding",
        ("a.txt, line 2",),
        generate("--data", "a.txt"),
        {"a.txt": b"the\ncaf\xe9\n"},
    ),
    Case("column-of-arguments", "data.column", ("omit --column",), generate("a", "--column", "text")),
    Case("other-capability", "run.capability", ("language", "which has no tag"), ("tag", "lstm", "the cat")),
    Case("output-format", "output.kind", ("a.xyz", ".csv"), generate("a", "--out", "a.xyz")),
    Case("chart-format", "chart.format", ("a.xyz",), generate("a", "--chart", "a.xyz")),
    Case("no-chart", "output.chart", ("no chart of generate",), generate("a", "--chart", "a.svg"), prints=True),
    Case("export-lstm", "export.format", ("lstm", "ARPA"), ("export", "lstm", "--format", "arpa")),
    Case("int8-ngram", "run.gradient-free", ("omit --int8",), ("next", "ngram", "the", "--int8")),
    Case("average-ngram", "run.gradient-free", ("ngram has no checkpoints",), ("average", "ngram", "-o", "a")),
    Case("average-few", "average.few", ("lstm has", "not 9"), ("average", "lstm", "--last", "9", "-o", "a")),
    Case("evaluate-no-file", "data.missing", ('"a.txt"',), ("evaluate", "lstm", "--data", "a.txt", "--quiet")),
    Case(
        "evaluate-one-character",
        "data.too-short",
        ("the test split has 1 tokens",),
        ("evaluate", "lstm", "--data", "a.txt", "--quiet"),
        {"a.txt": "a"},
    ),
]

USAGE = [
    Case("unknown-command", "usage", ('"trian"', 'did you mean "train"?'), ("trian",)),
    Case("unknown-data-command", "usage", ("'fetch'", "data --help"), ("data", "fetch")),
    Case("unknown-option", "usage", ("--modle", "--model", "train --help"), ("train", "language", "--modle", "lstm")),
    Case("option-without-value", "usage", ("--model", "--help"), ("train", "language", "--model")),
    Case("missing-run", "usage", ("'RUN'", "seriatim resume --help"), ("resume",)),
    Case("missing-verb-run", "usage", ("'RUN'", "next --help"), ("next",)),
    Case("one-too-many", "usage", ("unexpected", "list --help"), ("list", "models", "lstm")),
    Case("not-a-part", "usage", ("--split", "'dev'"), ("evaluate", "lstm", "--split", "dev")),
    Case("batch-in-words", "usage", ("--batch-size", "valid integer"), train("--batch-size", "big")),
]

CASES = [*DATA, *CONFIG, *MODEL, *RUNS, *USE, *USAGE]


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def trained(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with book.txt and the runs `lstm` and `ngram` trained on it."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(book, folder / "book.txt")
    tiny = {
        "lstm": ["--set", "model.width=8", "--context-length", "16", "--steps", "4", "--no-report"],
        "ngram": ["--set", "model.order=3"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for model, options in tiny.items():
            command = ["train", "language", "--data", "book.txt", "--model", model, "--out", model, "--quiet", *options]
            assert cli.run(command) == 0
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own for each test; plug-ins are forgotten afterwards."""
    shutil.copy(trained / "book.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry.models, "_files", {})
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("seriatim.models.") and "." in name:
            del sys.modules[name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_mistake(
    case: Case, here: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lstm", "ngram") if case in RUNS + USE else ():
        shutil.copytree(trained / name, here / name)
    for name, content in case.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content.encode() if isinstance(content, str) else content)
    case.prepare(here, monkeypatch)

    status = cli.run(list(case.arguments))

    out, err = capsys.readouterr()
    assert err.startswith(f"error [{case.code}] "), err
    for piece in case.says:
        assert piece in err, err
    assert "\n  → " in err, f"no remedy: {err}"
    assert "Traceback" not in err
    assert bool(out) == case.prints
    assert status == case.status


def test_no_two_cases_share_a_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 55


@pytest.mark.parametrize(
    "name",
    [
        "budget",
        "three-problems",
        "device-misspelt",
        "too-short-for-length",
        "bidirectional",
    ],
)
def test_a_training_that_cannot_start_leaves_nothing(name: str, here: Path) -> None:
    (case,) = (case for case in CASES if case.name == name)
    assert cli.run([*case.arguments, "--out", "mine"]) == 2
    assert not (here / "mine").exists()


def test_no_inputs_no_predictions(here: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without a line is no mistake: line N in, line N out, for N = 0."""
    (here / "a.txt").write_bytes(b"")
    for options in ([], ["--json"]):
        assert cli.run(["generate", str(trained / "lstm"), "--data", "a.txt", *options]) == 0
        assert capsys.readouterr() == ("", "")
