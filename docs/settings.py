"""Writes tables of settings and metrics from the code: `python docs/settings.py`.

A page asks for one by `<!-- settings: NAME -->` and `<!-- end -->`. Settings come from their
pydantic models, metrics from what bonuses and runs say of them, sections of methods from their
modules' docstrings.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args, get_origin

from pydantic import BaseModel

from rllib_rise.bonuses import RISE, Bonus, BonusSettings, Need, parse_settings, resolve_bonus
from rllib_rise.experiments.run.rows import COLUMNS
from rllib_rise.experiments.schema import EnvSpec, Experiment, StopSpec
from rllib_rise.experiments.sweep.schema import Search
from rllib_rise.rllib.registration import ALGORITHMS
from rllib_rise.rllib.runtime import LOGGED

PAGES = sorted(Path(__file__).parent.glob("*.md"))
METHODS = ("re3", "max-renyi", "count", "rnd", "icm", "ride", "ngu", "sum")
_MARKERS = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PLAIN = {list: "list", dict: "mapping"}
_KINDS = {EnvSpec: "id, or mapping", StopSpec: "mapping"}
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
        default = field.get_default(call_default_factory=True)
        default = "" if field.is_required() else f"`{default}`"
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
        f"{table(bonus.Settings, BonusSettings)}\n"
        f"{meanings(logged(bonus))}"
    )


def logged(bonus: type[Bonus]) -> dict[str, str]:
    """The metrics that a method adds to those of every bonus."""
    return {name.format(name=bonus.name): text for name, text in bonus.logged.items()}


def meanings(names: Mapping[str, str], title: str = "metric") -> str:
    """Names, and what they mean, as a Markdown table."""
    rows = (f"| `{name}` | {text} |\n" for name, text in names.items())
    return f"| {title} | meaning |\n|---|---|\n{''.join(rows)}"


_MAKERS: dict[str, Callable[[], str]] = {
    "experiment": lambda: table(Experiment),
    "stop": lambda: table(StopSpec),
    "bonus": lambda: table(BonusSettings),
    "rise": lambda: table(RISE.Settings, BonusSettings),
    "methods": lambda: "\n" + "\n".join(map(section, METHODS)) + "\n",
    "search": lambda: table(Search),
    "logged": lambda: meanings({**LOGGED, **logged(RISE)}),
    "columns": lambda: meanings(COLUMNS, "column"),
}


def pages() -> dict[Path, str]:
    """The pages with fresh tables."""
    return {
        page: _MARKERS.sub(lambda match: match[1] + _MAKERS[match[2]]() + match[3], text)
        for page in PAGES
        if _MARKERS.search(text := page.read_text())
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
    kind = _KINDS.get(field.annotation, field.annotation.__name__)
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    limits = [
        f"{sign} {_limit(getattr(part, key))}"
        for part in field.metadata
        for key, sign in signs.items()
        if getattr(part, key, None) is not None
    ]
    return " ".join([kind, ", ".join(limits)]).strip()


def _limit(value: float) -> str:
    return "2^31" if value == 2**31 else f"{value:g}"


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
