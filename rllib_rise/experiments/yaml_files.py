"""What YAML may hold here: text, numbers, true and false, nothing, lists and mappings of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rllib_rise.errors import ConfigError

# Data that hold themselves, by YAML's anchors, have no end.
_DEEPEST = 32


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which takes no key twice: the first one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, or an error that names the key and its line."""
        found = set[Any]()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in found:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key!r} appears twice", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                found.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The plain data of a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; ours are in configs/") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error}") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> Any:
    """The plain data of a text, or an error that names its source."""
    try:
        data = yaml.load(text, _Loader)  # a safe one
    except Exception as error:  # Python's own come through too: `!!int x`, `2001-13-13`, `[[[...`
        raise ConfigError(f"{source} is not valid YAML: {error}") from None
    check_plain(data, source)
    return data


def check_plain(data: Any, source: str, place: tuple[str, ...] = ()) -> None:
    """Refuse what cannot be written down again as it is: dates, bytes, sets, keys that are no text.

    Args:
        data: Anything.
        source: Where it stands, for errors.
        place: The keys that lead to it.
    """
    name = ".".join(place) or "the whole"
    if len(place) > _DEEPEST:
        raise ConfigError(
            f"{source}: {name:.80}... contains itself, or more than {_DEEPEST} levels"
        )
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise ConfigError(f"{source}: {name} has the key {key!r}: write it in quotes")
            check_plain(value, source, (*place, key))
    elif isinstance(data, list | tuple):
        for number, value in enumerate(data):
            check_plain(value, source, (*place, str(number)))
    elif not (data is None or isinstance(data, str | int | float)):
        raise ConfigError(
            f"{source}: {name}={data!r} is a {type(data).__name__}: use text (in quotes), numbers, "
            "true or false, lists and mappings"
        )
