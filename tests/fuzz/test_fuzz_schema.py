"""Files of experiments and sweeps with anything in them: read to the same again, or refused."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from documents import JUNK, KEYS, ROOT, Document, documents, mutated, places
from hypothesis import strategies as st
from tiers import fuzz

from rllib_rise.bonuses import method_names, parse_settings, resolve_bonus
from rllib_rise.bonuses.registry import WITHOUT_BONUS
from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import (
    Experiment,
    apply_overrides,
    load_experiment,
    parse_experiment,
)
from rllib_rise.experiments.sweep.schema import load_sweep

METHODS = [name for name in method_names() if name not in WITHOUT_BONUS]
#: Values as they stand on a command line.
VALUES = (
    "", "1", "-1", "0.5", "1e-3", "1e400", ".nan", ".inf", "true", "null", "~", "x", "rise", "none",
    "[1, 2]", "[", "{a: 1}", "{1: 2}", "{", "!!python/object:os.system {}", "!!int x", "!!bool x",
    "!!set {a}", "!!binary /w==", "!!timestamp x", "2001-01-01", "2001-13-13", "&a [*a]", "*a", "=",
    "a=b", "'", "9" * 5_000, "[" * 3_000, "0x", "1:99:99", "0b", "? a", "- a", "\t", "%", "@", "`",
)  # fmt: skip
SNIPPETS = (
    *(value.encode() for value in VALUES),
    b"!!python/object/apply:os.getcwd []", b"<<: *a", b"<<: {a: 1}", b"a: &a {b: *a}", b"\tk: 1",
    b"---", b"...", b"\xff\xfe", b"\x00", b"base: x.yaml", b"base: [1]", b"base: .", b"base: '\\0'",
    b"search: 1", b"search: {space: {k: {grid: []}}}", b"search: {space: {alpha: 1}}", b"seed: 1",
    b"  x: {y: z}", b"? [a, b]", b"intrinsic:", b"methods: 1", b"rllib: []",
)  # fmt: skip
values = st.sampled_from(JUNK).map(lambda make: make())


def reads_back(experiment: Experiment) -> None:
    """What a run directory keeps means the same experiment."""
    resolved = experiment.resolved()
    again = parse_experiment(yaml.safe_load(yaml.safe_dump(resolved, sort_keys=False))).resolved()
    assert repr(again) == repr(resolved)


@contextlib.contextmanager
def naming(words: Iterable[str]) -> Any:
    """Refusals are errors of the configuration, and name one of these words."""
    try:
        yield
    except ConfigError as error:
        assert any(repr(word)[1:-1] in str(error) for word in words), f"{words} not in {error}"
        raise


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


@fuzz(
    slow=1000,
    data=st.sampled_from(documents("configs")),
    keys=st.lists(
        st.sampled_from(["env", "method", "intrinsic", "rllib", "seed", "stop"])
        | st.sampled_from([*KEYS, "intrinsic.method", "env.id", "stop.env_steps", "rllib.lr"]).map(
            str
        ),
        min_size=1,
        max_size=3,
    ),
    text=st.sampled_from(VALUES) | st.text(max_size=12),
)
def test_overrides_are_read_or_refused_by_key(data, keys, text):
    overrides = [f"{'.'.join(keys)}={text}"]
    with naming([*keys, "intrinsic", "--set"]):
        experiment = parse_experiment(apply_overrides(data, overrides))
    reads_back(experiment)


@cache
def originals(folder: str) -> list[bytes]:
    """Our files without those that stand on another one."""
    files = [path.read_bytes() for path in sorted((ROOT / folder).rglob("*.yaml"))]
    return [content for content in files if b"base:" not in content] or files


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


@fuzz(slow=1000, content=texts("configs"))
def test_any_bytes_are_read_or_refused(content):
    reads_back(from_file(content, load_experiment))


@fuzz(slow=300, content=texts("tune_experiments"))
def test_any_bytes_of_a_sweep_are_read_or_refused(content):
    sweep = from_file(content, load_sweep)
    assert sweep.search.num_trials() >= 1
    reads_back(sweep.experiment)


@fuzz(slow=300, document=mutated("tune_experiments"))
def test_changed_sweeps_are_read_or_refused(document):
    with contextlib.suppress(yaml.YAMLError, RecursionError, UnicodeEncodeError):
        content = yaml.dump(document.data).encode()
        sweep = from_file(content, load_sweep)
        assert sweep.search.num_trials() >= 1
        reads_back(sweep.experiment)


@fuzz(
    slow=1000,
    method=st.sampled_from(METHODS),
    data=st.data(),
)
def test_settings_are_read_or_refused_by_name(method, data):
    bonus = resolve_bonus(method)
    known = st.sampled_from(sorted(bonus.Settings.model_fields))
    given = data.draw(st.dictionaries(known | st.sampled_from(KEYS[:20]), values, max_size=3))
    with naming([*given, "parts"]):
        settings = parse_settings(bonus, given)
    plain = settings.model_dump(mode="json")
    assert parse_settings(bonus, plain).model_dump(mode="json") == plain
