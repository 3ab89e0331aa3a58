"""Our own YAML files with something wrong in them."""

from __future__ import annotations

import contextlib
import copy
import datetime
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import read_data

ROOT = Path(__file__).parents[2]


def nested(depth: int) -> list[Any]:
    """Lists within lists."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def endless() -> dict[str, Any]:
    """A mapping that holds itself, as YAML's anchors allow."""
    found: dict[str, Any] = {"a": 1}
    found["b"] = found
    return found


#: What a value may be replaced by; made anew each time, because some hold themselves.
JUNK = (
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 1, lambda: 10**400,
    lambda: 0.5, lambda: 1e308, lambda: -0.0, lambda: float("nan"), lambda: float("inf"),
    lambda: "", lambda: "x", lambda: "rise", lambda: "none", lambda: "a:b", lambda: ":",
    lambda: "os:getcwd", lambda: "1e-3", lambda: "\x00", lambda: "\ud800", lambda: "x" * 10_000,
    list, dict, lambda: [1], lambda: [None], lambda: {"a": 1}, lambda: {1: 2}, lambda: {None: []},
    lambda: {"method": "rise"}, lambda: {"method": None}, lambda: {"method": ["rise"]},
    lambda: [{"method": "rnd"}], lambda: {"id": "CartPole-v1"}, lambda: {"id": 1},
    lambda: datetime.date(2001, 1, 1), lambda: b"\xff", lambda: {"a", "b"},
    lambda: (1, 2), lambda: nested(50), lambda: nested(5_000), endless,
)  # fmt: skip
KEYS = (
    "", "x", "method", "methods", "env", "id", "k", "alpha", "parts", "state", "encoder_file", "lr",
    "a.b", "a=b", "self", "cls", "__class__", "model_config", "seed", "env_config", "search",
    "base", 1, None, True, 0.5, ("a", "b"), datetime.date(2001, 1, 1),
)  # fmt: skip


@cache
def documents(folder: str) -> list[dict[str, Any]]:
    """The data of our files, with those of their bases."""
    return [read_data(path) for path in sorted((ROOT / folder).rglob("*.yaml"))]


@dataclass
class Document:
    """Data, what was done to them, and every key that it concerns."""

    data: dict[Any, Any] = field(repr=False)
    changes: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)


def places(node: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all that is in a document."""
    if not isinstance(node, dict) or len(above) > 5:
        return []
    return [
        path
        for key, value in node.items()
        for path in ((*above, key), *places(value, (*above, key)))
    ]


@st.composite
def mutated(draw: st.DrawFn, folder: str) -> Document:
    """One of our files after one to three changes: keys lost, renamed, added, other values."""
    document = Document(copy.deepcopy(draw(st.sampled_from(documents(folder)))))
    for _ in range(draw(st.integers(1, 3))):
        paths = places(document.data)
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        node: Any = document.data
        for key in path[:-1]:
            node = node[key]
        document.touched += [str(part) for part in path]
        change = draw(st.sampled_from(["drop", "rename", "replace", "replace", "add"]))
        junk = draw(st.sampled_from(JUNK))
        value = node.pop(path[-1]) if change in ("drop", "rename") else junk()
        document.changes.append(f"{change} {path}: {reprlib.repr(value)}")
        if change == "replace":
            node[path[-1]] = value
        elif change != "drop":
            key = draw(st.sampled_from(KEYS))
            node[key] = value
            document.touched.append(key if isinstance(key, str) else repr(key))
    return document


@contextlib.contextmanager
def naming(words: Iterable[str]) -> Iterator[None]:
    """Refusals are errors of the configuration, and name one of these words."""
    try:
        yield
    except ConfigError as error:
        if any(word in str(error) or repr(word)[1:-1] in str(error) for word in words):
            raise
        raise AssertionError(f"none of {list(words)} is in: {error}") from error
