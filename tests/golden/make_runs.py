"""Writes tests/golden/runs: a tiny run of every task in format 1, which must open for ever after.

    python tests/golden/make_runs.py NAME…        adds these; existing ones are never written again

A run is added when a task or a model is, or when a new format is introduced; old ones stay as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent
# name → task, data, model, settings of the model, the capability that is called, and its inputs
RUNS: dict[str, tuple[str, str, str, dict[str, Any], str, Any]] = {
    "classify": ("classify", "data/reviews.csv", "gru", {"width": 4}, "classify", ["a fine film", "dull"]),
    "regress": ("regress", "data/proteins.csv", "tcn", {"width": 4, "levels": 1}, "regress", ["MKV", "MKVMKV"]),
    "tag": ("tag", "data/words.conll", "lstm", {"width": 4}, "tag", ["Mary lives in Oslo ."]),
    "answer": ("answer", "data/squad.json", "gru", {"width": 4}, "answer", [("Oslo has hills.", "What has hills?")]),
    "choose": (
        "choose",
        "data/copa.jsonl",
        "gru",
        {"width": 4},
        "answer",
        [{"context": "Oslo is wet.", "question": "cause", "choices": ["It rained in Oslo.", "Rome is dry."]}],
    ),
    "translate": (
        "translate",
        "data/pairs.tsv",
        "transformer",
        {"width": 8, "heads": 2, "layers": 1},
        "translate",
        ["They see one and two ."],
    ),
    "caption": ("caption", "data/photos", "show_attend_tell", {"width": 4}, "caption", "data/photos"),
    "language": ("language", "data/book.txt", "gpt", {"width": 8, "heads": 2, "layers": 1}, "score", ["the old cat"]),
    "ngram": ("language", "data/book.txt", "ngram", {"order": 3}, "score", ["the old cat"]),
    "pretrain": (
        "pretrain",
        "data/more.txt",
        "bert",
        {"width": 8, "heads": 2, "layers": 1},
        "fill",
        ["the [MASK] saw"],
    ),
    "forecast": ("forecast", "data/passengers.csv", "lstm", {"width": 4}, "forecast", None),
    "music": ("music", "data/chorales", "gru", {"width": 4}, "score", "data/chorales"),
}
STEPS, RESUMED_STEPS = 4, 6


def plain(value: Any) -> Any:
    """Returns predictions as JSON values."""
    return json.loads(json.dumps(value, default=lambda item: item.tolist() if hasattr(item, "tolist") else str(item)))


def main(names: list[str]) -> None:
    """Trains the runs and writes what they predict to expected.json."""
    sys.path.insert(0, str(GOLDEN.parent))
    import seriatim
    from desk import write_files

    os.chdir(GOLDEN)
    if not Path("data").exists():
        Path("data").mkdir()
        lines = [
            f"the {a} {b} the {c}." for a in ("old", "new") for b in ("cat saw", "dog bit") for c in ("hat", "man")
        ]
        write_files(Path("data"), "\n".join(lines * 20) + "\n")
        used = {Path(run[1]).parts[1] for run in RUNS.values()}
        for path in Path("data").iterdir():
            if path.name not in used:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in names or RUNS:
        task, data, model, settings, capability, inputs = RUNS[name]
        out = Path("runs", name)
        if out.exists():
            print(f"{out} exists and stays as it is")
            continue
        train = {"batch_size": 4, "evaluate_steps": 2, "keep_checkpoints": 1}
        values = {"model": settings, "train": {} if model == "ngram" else train}
        ends = {} if model == "ngram" else {"steps": STEPS}
        run = seriatim.train(task, data, model, settings=values, out=out, report=False, **ends)
        predictions = run.call(capability, Path(inputs) if isinstance(inputs, str) else inputs)
        expected = {
            "capability": capability,
            "inputs": inputs,
            "predictions": plain(predictions),
            "metrics": run.metrics,
        }
        if model != "ngram":
            copy = Path("resumed")
            shutil.copytree(out, copy)
            resumed = seriatim.resume(copy, steps=RESUMED_STEPS, report=False)
            expected["resumed_losses"] = [event["loss"] for event in resumed.history("stepped")]
            shutil.rmtree(copy)
        (out / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(out, f"{sum(file.stat().st_size for file in out.rglob('*') if file.is_file()):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
