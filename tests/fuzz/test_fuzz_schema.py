"""Files of experiments and sweeps with anything in them: read to the same again, or refused."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from documents import KEYS, Document, documents, mutated, naming, places
from hypothesis import strategies as st
from strategies import mostly
from tiers import fuzz

from rllib_rise.experiments.schema import (
    Experiment,
    apply_overrides,
    load_experiment,
    parse_experiment,
)
from rllib_rise.experiments.sweep.schema import load_sweep

#: Values as they stand on a command line.
VALUES = (
    "", "1", "-1", "0.5", "1e-3", "1e400", ".nan", ".inf", "true", "null", "~", "x", "rise", "none",
    "[1, 2]", "[", "{a: 1}", "{1: 2}", "{", "!!python/object:os.system {}", "!!int x", "!!bool x",
    "!!set {a}", "!!binary /w==", "!!timestamp x", "2001-01-01", "2001-13-13", "&a [*a]", "*a", "=",
    "a=b", "'", "9" * 5_000, "[" * 500, "0x", "1:99:99", "0b", "? a", "- a", "\t", "%", "@", "`",
)  # fmt: skip
SNIPPETS = (
    *(value.encode() for value in VALUES),
    b"!!python/object/apply:os.getcwd []", b"<<: *a", b"<<: {a: 1}", b"a: &a {b: *a}", b"\tk: 1",
    b"---", b"...", b"\xff\xfe", b"\x00", b"base: x.yaml", b"base: [1]", b"base: .", b"base: '\\0'",
    b"search: 1", b"search: {space: {k: {grid: []}}}", b"search: {space: {alpha: 1}}", b"seed: 1",
    b"  x: {y: z}", b"? [a, b]", b"intrinsic:", b"methods: 1", b"rllib: []",
)  # fmt: skip


def reads_back(experiment: Experiment) -> None:
    """What a run directory keeps means the same experiment."""
    resolved = experiment.resolved()
    again = parse_experiment(yaml.safe_load(yaml.safe_dump(resolved, sort_keys=False))).resolved()
    assert repr(again) == repr(resolved)


def can_be_written(document: Document) -> bool:
    """Whether it can be a file at all."""
    try:
        yaml.dump(document.data).encode()
    except (yaml.YAMLError, RecursionError, UnicodeEncodeError):
        return False
    return True


def from_file(content: bytes, load: Any, *arguments: Any) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(content)
        file.flush()
        return load(Path(file.name), *arguments)


@fuzz(slow=2000, document=mutated("configs"))
def test_changed_data_are_read_or_refused_by_key(document: Document):
    with naming(keys_in_question(document)):
        experiment = parse_experiment(document.data)
    reads_back(experiment)


def keys_in_question(document: Document) -> list[str]:
    """Those that were touched; another algorithm or method makes others wrong."""
    chosen = {"algorithm", "method", "intrinsic", "methods"} & {*document.touched}
    others = [str(path[-1]) for path in places(document.data)] if chosen else []
    return [*document.touched, *others]


@st.composite
def overrides(draw: st.DrawFn) -> tuple[dict[str, Any], list[str]]:
    """A file's data, and what `--set` may say about them; mostly of keys that there are."""
    data = draw(st.sampled_from(documents("configs")))
    present = st.sampled_from(places(data)).map(".".join)
    keys = draw(st.lists(mostly(present, st.sampled_from(KEYS).map(str)), min_size=1, max_size=2))
    value = st.sampled_from(VALUES) | st.text(max_size=12)
    return data, [f"{key}={draw(value)}" for key in keys]


@fuzz(slow=1500, given=overrides())
def test_overrides_are_read_or_refused_by_key(given):
    data, said = given
    keys = [part for override in said for part in override.partition("=")[0].split(".")]
    others = [path[-1] for path in places(data)] if {"algorithm", "method"} & {*keys} else []
    with naming([*keys, *others, "--set"]):
        experiment = parse_experiment(apply_overrides(data, said))
    reads_back(experiment)


@cache
def originals(folder: str) -> list[bytes]:
    """Our files as they are without a base."""
    return [yaml.safe_dump(data).encode() for data in documents(folder)]


@st.composite
def texts(draw: st.DrawFn, folder: str) -> bytes:
    """A file of ours with something written into it, or something else entirely."""
    if draw(st.integers(0, 4)) == 3:
        return draw(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
    lines = draw(st.sampled_from(originals(folder))).split(b"\n")
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines) - 1))
        written = draw(st.sampled_from(SNIPPETS) | st.binary(max_size=8))
        key = lines[place].split(b":")[0]
        how = draw(st.sampled_from(["value", "line", "twice", "inside"]))
        if how == "value":
            lines[place] = key + b": " + written
        elif how == "inside":
            cut = draw(st.integers(0, len(lines[place])))
            lines[place] = lines[place][:cut] + written + lines[place][cut:]
        else:
            lines.insert(place, lines[place] if how == "twice" else written)
    return b"\n".join(lines)


@fuzz(slow=1000, accepted=0.02, content=texts("configs"))
def test_any_bytes_are_read_or_refused(content):
    reads_back(from_file(content, load_experiment))


@fuzz(slow=500, accepted=0.01, content=texts("tune_experiments"))
def test_any_bytes_of_a_sweep_are_read_or_refused(content):
    read_sweep(content)


@fuzz(slow=1000, document=mutated("tune_experiments").filter(can_be_written))
def test_changed_sweeps_are_read_or_refused(document):
    read_sweep(yaml.dump(document.data).encode())


def read_sweep(content: bytes) -> None:
    sweep = from_file(content, load_sweep)
    assert sweep.search.num_trials() >= 1
    reads_back(sweep.experiment)
