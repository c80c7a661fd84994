"""Settings: each number has a range, and files and assignments give a mapping of valid values or an error."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example
from hypothesis import strategies as st

import seriatim
from fuzzing import fuzz, run_command
from seriatim.core.config import Settings, load_yaml, override, validate
from seriatim.core.errors import SeriatimError
from seriatim.training.config import make_config

EXTREMES = [math.nan, math.inf, -math.inf, 1e308, -1e308, 10**30, -(10**30), 10**400, 2**63, 2**64, -1, 0]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(EXTREMES),
    st.text(max_size=8),
    st.sampled_from(
        ["lstm", "gpt", "ngram", "transformer", "language", "classify", "translate", "1e400", "10k", "~", "1M"]
    ),
    st.dates(),
    st.binary(max_size=4),
)
KEYS = st.one_of(st.text(max_size=6), st.integers(), st.none(), st.booleans(), st.floats(allow_nan=False), st.dates())
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@cache
def settings_classes() -> list[type[Settings]]:
    """Returns every settings class of the package."""
    for module in pkgutil.walk_packages(seriatim.__path__, "seriatim."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes: list[type[Settings]] = [Settings]
    for known in classes:
        classes += [inner for inner in known.__subclasses__() if inner.__module__.startswith("seriatim.")]
    return classes[1:]


def numbers(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the numbers of a JSON schema with the place where they are."""
    if isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from numbers(inner, f"{path}.{index}")
    elif isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and "const" not in schema:
            yield path, schema
        for key, inner in schema.items():
            if key not in ("default", "enum", "const"):
                yield from numbers(inner, f"{path}.{key}")


def test_every_number_has_a_range() -> None:
    found = [
        (f"{known.__module__}.{known.__qualname__}{path}", schema)
        for known in settings_classes()
        for path, schema in numbers(known.model_json_schema())
    ]
    assert len(found) > 200
    endless = [
        path
        for path, schema in found
        if not ({"minimum", "exclusiveMinimum"} & schema.keys() and {"maximum", "exclusiveMaximum"} & schema.keys())
    ]
    assert endless == []


def test_extreme_numbers_are_errors_or_in_range() -> None:
    """Every field of every class, numeric or not, takes or refuses each extreme number."""
    refused = taken = 0
    for known in settings_classes():
        for name in known.model_fields:
            for value in [*EXTREMES, 1 << 20_000]:  # more digits than Python writes
                try:
                    setting = getattr(validate(known, {name: value}), name)
                except SeriatimError:
                    refused += 1
                else:
                    taken += 1
                    assert not isinstance(setting, float) or math.isfinite(setting)
    assert refused > 3_000
    assert taken > 50


def base_values() -> dict[str, Any]:
    return yaml.safe_load(
        "{task: {name: language, context_length: 16, tokenizer: {kind: bpe, vocab_size: 300}}, data: {source: x.txt, "
        "columns: {text: a}, fractions: [0.8, 0.1, 0.1]}, model: {name: gpt, width: 8, layers: 1}, train: {steps: 3, "
        "optimizer: {lr: 0.1, betas: [0.9, 0.99]}, schedule: {warmup: 0.1}, freeze: none}, seed: 1, params: 10k}"
    )


def places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the paths of all values of a tree."""
    for key, inner in values.items() if isinstance(values, dict) else enumerate(values):
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


@fuzz(place=st.sampled_from(list(places(base_values()))), value=TREES, key=KEYS, how=st.sampled_from("sna"))
@example(place=("train", "schedule", "warmup"), value=10**400, key="", how="s")
def test_values(place: tuple[Any, ...], value: Any, key: Any, how: str) -> None:
    """A value of a valid configuration is set to another, or removed, or another is added beside it."""
    values = base_values()
    *parents, last = place
    section = values
    for name in parents:
        section = section[name]
    if how == "s":
        section[last] = value
    elif how == "n":
        del section[last]
    elif isinstance(section, dict):
        section[key] = value
    make_config(values)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
PIECES = [
    "task: language\n", "model: ", "gpt", "\n", " ", "- ", "? ", ": ", "&a ", "*a", "<<: ", "{", "}", "[", "]",
    "!!int ", "!!bool ", "!!timestamp ", "!!python/name:os.system ", "!!set ", "!!omap ", "!!binary ", "!x ", "'", '"',
    "|\n", ">\n", "%YAML 1.1\n", "---\n", "...\n", "#", "0x", "1", ":", "2001-99-99", ".inf", "\t", "\x00", "\ud800",
    "é", "seed: ",
]  # fmt: skip
YAML_TEXTS = st.one_of(
    st.builds(lambda values: yaml.safe_dump(values, allow_unicode=True), st.dictionaries(KEYS, TREES, max_size=4)),
    st.lists(
        st.sampled_from(PIECES),
        max_size=25,
    ).map("".join),
)


@fuzz(text=YAML_TEXTS)
@example(text=BOMB)
@example(text="a: &a [*a]")
@example(text="a: &a {b: *a}")
@example(text="[" * 3_000)
@example(text="{a: " * 3_000)
@example(text="a: 1\na: 2")
@example(text="task: {name: x, name: y}")
@example(text="a: 0x" + "f" * 9_000)
@example(text="a: " + "9" * 5_000)
@example(text="a: " + "1:" * 3_000 + "1")
@example(text="a: !!timestamp x")
@example(text="a: !!bool 7")
@example(text="a: !!int ''")
@example(text="a: 2001-99-99")
def test_file(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "settings.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    values = load_yaml(path)
    assert isinstance(values, dict)
    make_config({**values, "task": "language", "data": "x.txt"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOMB, "line 6: not valid YAML (more than 100,000 values, with aliases written out)"),
        ("seed: 1\ntrain: {steps: 1}\nseed: 2", 'line 1: not valid YAML (the key "seed" comes twice)'),
        ("[" * 3_000, "not valid YAML (nested more than 50 deep)"),
        ("a:\n b: 0x" + "f" * 9_000, "line 2: not valid YAML (a number of more than 100 digits)"),
    ],
)
def test_what_a_file_has_no_use_for(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    with pytest.raises(SeriatimError) as raised:
        load_yaml(tmp_path / "settings.yaml")
    assert problem in raised.value.cause


ASSIGNMENTS = st.one_of(
    st.text(alphabet="ab.=:{}[]&*!'\"\n -~|>%@0123456789e", max_size=40),
    st.builds(
        lambda place, value: f"{'.'.join(map(str, place))}={value}",
        st.sampled_from(list(places(base_values()))),
        st.one_of(SCALARS.map(str), YAML_TEXTS),
    ),
)


@fuzz(texts=st.lists(ASSIGNMENTS, max_size=3))
def test_assignments(texts: list[str]) -> None:
    make_config(override(base_values(), texts))


OPTIONS = [
    "steps", "epochs", "minutes", "batch-size", "lr", "context-length", "vocab-size", "params", "seed", "device",
    "from", "tokenizer", "encoding", "validation", "test", "column", "target", "model", "set", "config", "plugin",
    "data-dir", "pooling", "horizon", "print-config",
]  # fmt: skip


@fuzz(
    weight=0.1,
    pairs=st.lists(st.tuples(st.sampled_from(OPTIONS), st.one_of(SCALARS.map(str), ASSIGNMENTS)), max_size=3),
    task=st.sampled_from(["language", "classify", "forecast", "x", ""]),
)
@example(pairs=[("params", "1e15")], task="language")
@example(pairs=[("epochs", "inf")], task="language")
@example(pairs=[("minutes", "nan")], task="language")
@example(pairs=[("steps", str(10**30))], task="language")
@example(pairs=[("context-length", str(10**12))], task="language")
@example(pairs=[("seed", str(2**64))], task="language")
@example(pairs=[("lr", "inf")], task="language")
@example(pairs=[("plugin", "\x00")], task="language")
def test_short_options(pairs: list[tuple[str, str]], task: str) -> None:
    arguments = [argument for name, value in pairs for argument in (f"--{name}", value)]
    run_command("train", task, "--data", "missing.txt", "--print-config", *arguments)
