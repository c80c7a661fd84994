"""Data larger than memory, from files to batches: CPU seconds, wall seconds and peak memory of each stage.

    python -m benchmarks.data [--size 1] [--data-dir FOLDER] [CASE …]

Two data sets, repeated up to their size: at --size 1, 1 GB of text (WikiText-2) for the task language, and 5 million
pairs (fra-eng, with a running number, so that no two are equal) for the task translate. Each is read, checked, split
and encoded with a word and a BPE tokenizer, opened again from the cache, and read in batches in random order. Beside
it, `datasets` reads and encodes the same files with tokenizers of the same kind and size; it does not check or split.

Every competitor is a process of its own. Memory is the proportional set size of the process and its descendants,
sampled every 50 ms: anonymous memory alone, and with mapped files, which the system may drop at any time. It is
measured on Linux only. A cache folder is made beside the data in a temporary directory and removed at the end.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Measurement, Options, parse_options, report

TEXT_BYTES, PAIRS = 1_000_000_000, 5_000_000  # at --size 1
DEFAULT_SIZE = 0.1
QUICK_SIZES = {"text": 0.08, "pairs": 0.2}  # a little more than the 64 MB above which data is kept on disk
BATCH_SIZE, BATCHES = 96, 200
VOCAB_SIZES = {"word": 20_000, "bpe": 8_000}
TASKS = {"text": "language", "pairs": "translate"}
STAGES = {  # those that count, by the name of a case, and what they do
    "prepare": (("read", "check", "split", "fingerprint", "encode, bpe"), "read, checked, split and encoded with BPE"),
    "open": (("open again",), "opened again from the cache"),
    "batches": ((f"{BATCHES} batches of {BATCH_SIZE}",), f"{BATCHES} batches of {BATCH_SIZE} in random order"),
}
DATA = {"text": f"{TEXT_BYTES * DEFAULT_SIZE / 1e6:.0f} MB of text", "pairs": f"{PAIRS * DEFAULT_SIZE:,.0f} pairs"}
CASES = {f"data-{kind}-{name}": f"{DATA[kind]}: {what}" for kind in DATA for name, (_, what) in STAGES.items()}
INTERVAL = 0.05  # seconds between two samples of the memory


# Files


def find_file(data_dir: Path, folder: str, pattern: str) -> Path:
    for path in sorted(data_dir.glob(f"{folder}*/{pattern}")):
        return path
    raise SystemExit(f"{data_dir} has no {folder}/{pattern}: name a folder that has it, --data-dir FOLDER")


def read_wikitext(data_dir: Path) -> bytes:
    path = find_file(data_dir, "wikitext", "wiki.train*")
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_pairs(data_dir: Path) -> list[tuple[str, str]]:
    with zipfile.ZipFile(find_file(data_dir, "fra*eng", "*.zip")) as archive:
        name = next(name for name in archive.namelist() if name.endswith("fra.txt"))
        lines = archive.read(name).decode("utf-8").splitlines()
    return [(cells[0], cells[1]) for cells in (line.split("\t") for line in lines)]


def write_data(kind: str, data_dir: Path, path: Path, size: float) -> None:
    """Writes the text or the pairs, repeated up to their size."""
    with path.open("wb") as file:
        if kind == "text":
            text, remaining = read_wikitext(data_dir), int(TEXT_BYTES * size)
            while remaining > 0:
                remaining -= file.write(text[: text.rfind(b"\n", 0, remaining) + 1 or remaining])
            return
        pairs, count = read_pairs(data_dir), int(PAIRS * size)
        for start in range(0, count, len(pairs)):
            block = pairs[: count - start]
            numbered = (f"{start + n} {source}\t{start + n} {target}\n" for n, (source, target) in enumerate(block))
            file.write("".join(numbered).encode())


# Competitors, each in a process of its own


@contextmanager
def stage(name: str) -> Iterator[dict[str, Any]]:
    """Measures a stage, prints it as a line of JSON, and waits until the parent process has read it."""
    facts: dict[str, Any] = {"stage": name}
    began, cpu = time.perf_counter(), cpu_seconds()
    yield facts
    facts |= {"wall": time.perf_counter() - began, "cpu": cpu_seconds() - cpu}
    print(json.dumps(facts), flush=True)
    sys.stdin.readline()


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_seriatim(kind: str, path: Path) -> None:
    """Does what `tasks.reading.prepare` does, stage by stage, then once more as a whole."""
    with stage("import"):
        from seriatim.core.errors import Diagnostics
        from seriatim.data.check import check
        from seriatim.data.source import open_source
        from seriatim.data.split import split
        from seriatim.runs.configure import configure
        from seriatim.tasks import load
        from seriatim.tasks.reading import Layout, prepare, read_rows
        from seriatim.tasks.values import Split, Splits
        from seriatim.training.objective import TaskObjective

        task_class = load(TASKS[kind])
    tokenizers = {name: {"kind": name, "vocab_size": size} for name, size in VOCAB_SIZES.items()}
    configs = {
        name: configure(TASKS[kind], str(path), settings={"task": {"tokenizer": values}}).task_config()
        for name, values in tokenizers.items()
    }
    config, diagnostics = configs["word"], Diagnostics()
    with stage("read") as facts:
        source = open_source(str(path))
        rows = read_rows(task_class, config, source, diagnostics)
        facts["rows"] = len(rows)
    with stage("check"):
        check(rows, task_class.schema, diagnostics)
        diagnostics.raise_problems()
    with stage("split"):
        policy, fractions = task_class.choose_split(config, rows)
        datasets = split(rows, policy, fractions, diagnostics, {}, task_class.schema)
    with stage("fingerprint"):
        datasets["train"].fingerprint()
    layout = Layout(rows.column_names, task_class.stored_kinds(rows, source))
    for name, config in configs.items():
        with stage(f"train tokenizer, {name}"):
            processor = task_class.processor_type.fit(datasets["train"], config, {}, diagnostics)
        with stage(f"encode, {name}") as facts:
            task = task_class(config, processor, layout)
            parts = {
                name: Split(name, part, task.encode_split(name, part, diagnostics)) for name, part in datasets.items()
            }
            splits = task.link(Splits(parts), diagnostics)
            facts["tokens"] = sum(count_tokens(kind, splits[name].items) for name in splits)
    with stage("open again"):
        task, splits = prepare(task_class, config, processor=processor)
    with stage(f"{BATCHES} batches of {BATCH_SIZE}"):
        objective = TaskObjective(task, splits.train.items, splits["validation"], diagnostics)
        for step in range(BATCHES):
            objective.batch(step, 0, BATCH_SIZE, BATCH_SIZE)


def count_tokens(kind: str, items: Any) -> int:
    parts = [items.inputs, items.targets] if kind == "pairs" else [items.inputs]
    return sum(int(part.lengths.sum(dtype=np.int64)) for part in parts)


def run_datasets(kind: str, path: Path) -> None:
    """Reads and encodes with `datasets` and `tokenizers`, which are trained on the first 50 MB outside the stages."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    with stage("import"):
        import datasets
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    workers, cache = len(os.sched_getaffinity(0)), os.environ["SERIATIM_CACHE"]

    def read() -> Any:
        if kind == "text":
            return datasets.load_dataset("text", data_files=str(path), split="train", cache_dir=cache)
        columns = {"delimiter": "\t", "column_names": ["source", "target"], "quoting": 3}
        return datasets.load_dataset("csv", data_files=str(path), split="train", cache_dir=cache, **columns)

    with stage("read") as facts:
        rows = read()
        facts["rows"] = len(rows)
    with path.open("rb") as file:
        sample = file.read(50_000_000).decode("utf-8", "ignore").splitlines()
    encoders: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
    for name, size in VOCAB_SIZES.items():
        if name == "word":
            tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
            tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
            trainer: Any = trainers.WordLevelTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False)
        else:
            tokenizer = Tokenizer(models.BPE())
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
        tokenizer.train_from_iterator(sample, trainer)

        def encode(batch: dict[str, Any], tokenizer: Any = tokenizer) -> dict[str, Any]:
            encodings = {column: tokenizer.encode_batch(texts) for column, texts in batch.items()}
            return {f"{column}_ids": [encoding.ids for encoding in rows] for column, rows in encodings.items()}

        encoders[name] = encode
        with stage(f"encode, {name}"):
            encoded = rows.map(encode, batched=True, remove_columns=rows.column_names, num_proc=workers)
    del encoded
    with stage("open again"):
        rows = read()
        encoded = rows.map(encoders["bpe"], batched=True, remove_columns=rows.column_names, num_proc=workers)
    with stage(f"{BATCHES} batches of {BATCH_SIZE}"):
        generator = np.random.default_rng(0)
        for _ in range(BATCHES):
            encoded[generator.integers(0, len(encoded), BATCH_SIZE).tolist()]


COMPETITORS = {"seriatim": run_seriatim, "datasets": run_datasets}


# Measuring


class MemorySampler(threading.Thread):
    """Keeps the peak memory of a process and its descendants, in bytes: anonymous, and with mapped files."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.ended = process, threading.Event()
        self.anonymous = self.total = 0

    def run(self) -> None:
        while not self.ended.wait(INTERVAL):
            self.sample()

    def sample(self) -> None:
        sizes = [memory_of(process) for process in descendants(self.process)]
        self.anonymous = max(self.anonymous, sum(anonymous for anonymous, _ in sizes))
        self.total = max(self.total, sum(total for _, total in sizes))

    def take_peak(self) -> tuple[int, int]:
        """Returns the peaks since the last call."""
        self.sample()
        peaks = self.anonymous, self.total
        self.anonymous = self.total = 0
        return peaks


def descendants(process: int) -> list[int]:
    """Returns a process and all those it has started."""
    result = [process]
    for number in result:
        for path in Path(f"/proc/{number}/task").glob("*/children"):
            with suppress(OSError):  # it has ended meanwhile
                result += [int(child) for child in path.read_text().split()]
    return result


def memory_of(process: int) -> tuple[int, int]:
    """Returns the anonymous and the whole proportional set size of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.partition(":")[0]: line.split()[-2] for line in lines[1:]}
    return 1024 * int(sizes["Pss_Anon"]), 1024 * int(sizes["Pss"])


def measure(kind: str, competitor: str, path: Path, cache: Path) -> list[dict[str, Any]]:
    """Runs a competitor in a process of its own and returns its stages."""
    command = [sys.executable, "-m", "benchmarks.data", "--competitor", competitor, kind, str(path)]
    environment = os.environ | {"SERIATIM_CACHE": str(cache)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        sampler = MemorySampler(child.pid)
        if Path("/proc/self/smaps_rollup").exists():
            sampler.start()
        stages = []
        for line in child.stdout:
            if not line.startswith('{"stage"'):
                continue
            facts = json.loads(line)
            facts["anonymous"], facts["memory"] = sampler.take_peak()
            stages.append(facts)
            print_stage(facts)
            child.stdin.write("\n")
            child.stdin.flush()
        sampler.ended.set()
    if child.returncode:
        raise SystemExit(f"{competitor}, {kind}: ended with code {child.returncode}")
    return stages


def print_stage(facts: dict[str, Any]) -> None:
    seconds = f"{facts['cpu']:8.1f} s CPU {facts['wall']:8.1f} s"
    memory = f"{facts['anonymous'] / 1e6:8.0f} MB anonymous {facts['memory'] / 1e6:8.0f} MB"
    speed = f"  {facts['tokens'] / facts['cpu'] / 1e6:.1f} million tokens/s of CPU" if "tokens" in facts else ""
    print(f"  {facts['stage']:<24} {seconds} {memory}{speed}", flush=True)


def report_stages(kind: str, rows: dict[str, list[dict[str, Any]]], options: Options, missing: dict[str, str]) -> None:
    """Reports the stages of a data set in the groups of the cases; time is that of the clock."""
    for name, (stages, _) in STAGES.items():
        selected = {key: [facts for facts in row if facts["stage"] in stages] for key, row in rows.items()}
        seconds = {key: [sum(facts["wall"] for facts in row)] for key, row in selected.items()}
        memory = {key: max(facts["anonymous"] for facts in row) for key, row in selected.items()}
        cpu = ", ".join(f"{key} {sum(facts['cpu'] for facts in row):.1f} s" for key, row in selected.items())
        note = f"processor time: {cpu}"
        if options.own.size != DEFAULT_SIZE:
            note += f"; of size {options.own.size:g}, not {DEFAULT_SIZE:g}"
        report(f"data-{kind}-{name}", Measurement(seconds, missing), options, memory=memory, note=note)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    size_help = f"fraction of 1 GB of text and 5 million pairs (default: {DEFAULT_SIZE:g})"
    parser.add_argument("--size", type=float, default=DEFAULT_SIZE, help=size_help)
    parser.add_argument("--data-dir", type=Path, help="folder with wikitext2 and fra_eng (default: SERIATIM_DATA)")
    parser.add_argument("--competitor", nargs=3, help=argparse.SUPPRESS)  # its name, text or pairs, and the file
    options = parse_options(__doc__, CASES, own=[parser])
    if options.own.competitor:
        competitor, kind, file = options.own.competitor
        COMPETITORS[competitor](kind, Path(file))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the temporary directory is removed
    data_dir = options.own.data_dir or Path(os.environ.get("SERIATIM_DATA", "data"))
    competitors, missing = list(COMPETITORS), {}
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        competitors, missing = ["seriatim"], {"datasets": str(error)}
    with tempfile.TemporaryDirectory() as folder:
        for kind in [kind for kind in TASKS if any(name.startswith(f"data-{kind}-") for name in options.cases)]:
            path = Path(folder, f"{kind}.txt" if kind == "text" else f"{kind}.tsv")
            write_data(kind, data_dir, path, QUICK_SIZES[kind] if options.quick else options.own.size)
            rows: dict[str, list[dict[str, Any]]] = {}
            for competitor in competitors:
                print(f"{kind}, {competitor}: {path.stat().st_size / 1e6:,.0f} MB")
                with tempfile.TemporaryDirectory(dir=folder) as cache:
                    rows[competitor] = measure(kind, competitor, path, Path(cache))
            path.unlink()
            report_stages(kind, rows, options, missing)


if __name__ == "__main__":
    main()
