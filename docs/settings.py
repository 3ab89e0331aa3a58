"""Writes tables of settings from their pydantic models: `python docs/settings.py`.

RISE's into rise.md; of the other methods, with what their modules' docstrings say, into methods.md;
of a sweep into sweeps.md.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_origin

from pydantic import BaseModel

from rllib_rise.bonuses import RISE, BonusSettings, Need, parse_settings, resolve_bonus
from rllib_rise.experiments.sweep.schema import Search
from rllib_rise.rllib.registration import ALGORITHMS

RISE_PAGE = Path(__file__).parent / "rise.md"
METHODS_PAGE = Path(__file__).parent / "methods.md"
SWEEPS_PAGE = Path(__file__).parent / "sweeps.md"
METHODS = ("re3", "max-renyi", "count", "rnd", "icm", "ride", "ngu", "sum")
_MARKERS = re.compile(r"(<!-- (?:settings|methods): [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)
_PLAIN = {list: "list", dict: "mapping"}
# Some values for settings without a default.
_EXAMPLES = {"sum": {"parts": [{"method": "re3"}, {"method": "rnd"}]}}


def table(settings: type[BaseModel], common: type[BaseModel] | None = None) -> str:
    """Settings as a Markdown table; those that are not as in `common`, if that is given."""
    shared = {} if common is None else common.model_fields
    lines = ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for name, field in settings.model_fields.items():
        if name in shared and field.default == shared[name].default:
            continue
        choices = [c for part in get_args(field.annotation) for c in _choices(part)]
        if get_origin(field.annotation) in _PLAIN:
            choices = [_PLAIN[get_origin(field.annotation)]]
        values = ", ".join(map(_choice, choices)) if choices else _bounds(field)
        default = "" if field.is_required() else f"`{field.default}`"
        lines.append(f"| `{name}` | {default} | {values} | {field.description} |")
    return "\n".join(lines) + "\n"


def section(name: str) -> str:
    """What a method is, what it needs, and its settings."""
    bonus = resolve_bonus(name)
    title, _, text = inspect.cleandoc(sys.modules[bonus.__module__].__doc__ or "").partition("\n\n")
    title = " ".join(title.split()).rstrip(".")
    needs = bonus.needs(parse_settings(bonus, _EXAMPLES.get(name, {})))
    trained = [
        algorithm.removeprefix("RISE-")
        for algorithm, cls in ALGORITHMS.items()
        if needs <= cls.get_default_config().supplies
    ]
    wanted = ", ".join(need.value for need in Need if need in needs) or "observations alone"
    if name == "sum":
        trained, wanted = ["as the parts"], "what its parts need"
    return (
        f"### `{name}`\n\n**{title}.**\n\n{text}\n\n"
        f"Needs: {wanted}. Algorithms: {', '.join(trained)}.\n\n"
        f"{table(bonus.Settings, BonusSettings)}"
    )


def pages() -> dict[Path, str]:
    """The pages with fresh tables."""
    sections = "\n".join(section(name) for name in METHODS)
    fresh = {
        RISE_PAGE: table(RISE.Settings),
        METHODS_PAGE: f"\n{sections}\n",
        SWEEPS_PAGE: table(Search),
    }
    return {
        page: _MARKERS.sub(lambda match, text=text: match[1] + text + match[2], page.read_text())
        for page, text in fresh.items()
    }


def _choices(part) -> tuple:
    """The values of a `Literal`; of anything else, what it is."""
    names = {**_PLAIN, Callable: "function"}
    origin = get_origin(part)
    return (names[origin],) if origin in names else get_args(part) or (part,)


def _choice(choice) -> str:
    if choice is type(None):
        return "none"
    if choice in (*_PLAIN.values(), "function"):
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
    for page, text in pages().items():
        page.write_text(text)
