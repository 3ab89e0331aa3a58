"""Writes the settings table of docs/rise.md from the pydantic models: `python docs/settings.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_origin

from rllib_rise.bonuses import RISE

PAGE = Path(__file__).parent / "rise.md"
_MARKERS = re.compile(r"(<!-- settings: [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)


def table() -> str:
    """The settings of RISE as a Markdown table."""
    lines = ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for name, field in RISE.Settings.model_fields.items():
        choices = [c for part in get_args(field.annotation) for c in _choices(part)]
        values = ", ".join(map(_choice, choices)) if choices else _bounds(field)
        lines.append(f"| `{name}` | `{field.default}` | {values} | {field.description} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with a fresh table."""
    return _MARKERS.sub(lambda match: match[1] + table() + match[2], PAGE.read_text())


def _choices(part) -> tuple:
    """The values of a `Literal`; of anything else, what it is."""
    names = {list: "list", Callable: "function"}
    origin = get_origin(part)
    return (names[origin],) if origin in names else get_args(part) or (part,)


def _choice(choice) -> str:
    if choice is type(None):
        return "none"
    if choice in ("list", "function"):
        return choice
    return choice.__name__ if isinstance(choice, type) else f"`{choice}`"


def _bounds(field) -> str:
    kind = field.annotation.__name__
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    limits = [
        f"{sign} {getattr(part, key):g}"
        for part in field.metadata
        for key, sign in signs.items()
        if getattr(part, key, None) is not None
    ]
    return " ".join([kind, ", ".join(limits)]).strip()


if __name__ == "__main__":
    PAGE.write_text(page())
