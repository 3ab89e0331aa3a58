"""How a method's name becomes its class, and a dict its validated settings.

A name is looked up among (1) bonuses registered with `@register_bonus`, the package's own among
them, (2) entry points of the group `rllib_rise.bonuses`, (3) `"module.path:ClassName"`, imported
when it is needed: that is what works on every process of a cluster without installing anything. A
class may be given instead of a name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel, ValidationError

from rllib_rise.bonuses.protocol import Bonus, BonusSettings, import_object
from rllib_rise.errors import ConfigError, RiseError

ENTRY_POINT_GROUP = "rllib_rise.bonuses"
NONE = "none"
#: Methods without a bonus: RLlib's own algorithm, and a policy that acts at random.
RANDOM = "random"
WITHOUT_BONUS = (NONE, RANDOM)
_registered: dict[str, type[Bonus]] = {}


def register_bonus(cls: type[Bonus]) -> type[Bonus]:
    """Class decorator: make a bonus known by its `name` in this process."""
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or name in WITHOUT_BONUS or ":" in name:
        taken = " and ".join(map(repr, WITHOUT_BONUS))
        raise ConfigError(f"{cls.__name__}.name={name!r} must be a string other than {taken}")
    _registered[name] = cls
    return cls


def method_names() -> list[str]:
    """All names that a config takes, those without a bonus first."""
    plugins = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*WITHOUT_BONUS, *sorted({*_registered, *plugins})]


def resolve_bonus(method: str | type[Bonus]) -> type[Bonus]:
    """The class behind a method's name (not `none` and `random`, which have none)."""
    if isinstance(method, type):
        return _checked(method, method.__name__)
    if not isinstance(method, str):
        raise ConfigError(f"intrinsic.method={method!r} must be the name of a method, as text")
    if method in _registered:
        return _registered[method]
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == method:
            return _checked(point.load(), method)
    if ":" in method:
        return _checked(import_object(method, "intrinsic.method"), method)
    hint = nearest(method, method_names()) or "."
    raise ConfigError(
        f"intrinsic.method={method!r} is unknown{hint} Known: "
        f"{', '.join(method_names())}; or 'module.path:ClassName' for a bonus of your own"
    )


def parse_settings(
    bonus: type[Bonus], values: Mapping[str, Any], *, place: str = "intrinsic."
) -> BonusSettings:
    """Validate `values` with the bonus' own model; errors are `ConfigError`s in plain words."""
    try:
        return bonus.Settings(**values)
    except ValidationError as error:
        owner = f"the method {bonus.name!r}"
        raise ConfigError(explain(error, bonus.Settings, prefix=place, owner=owner)) from None


def explain(
    error: ValidationError,
    model: type[BaseModel],
    *,
    prefix: str = "",
    owner: str = "an experiment",
) -> str:
    """Pydantic's findings as one sentence each, with the nearest valid key for unknown ones."""
    sentences = []
    for finding in error.errors():
        key = prefix + ".".join(str(part) for part in finding["loc"])
        if finding["type"] == "extra_forbidden":
            hint = nearest(str(finding["loc"][-1]), _fields_at(model, finding["loc"][:-1]))
            sentences.append(f"{key} is not a setting of {owner}{hint}")
            continue
        if finding["type"] == "missing" and len(finding["loc"]) == 1:
            about = model.model_fields[str(finding["loc"][0])].description
            sentences.append(f"{key} is missing in {owner}" + (f": {about}" if about else ""))
            continue
        cause = finding.get("ctx", {}).get("error")
        if isinstance(cause, RiseError):
            sentences.append(str(cause))
            continue
        given = "" if finding["type"] == "missing" else f"={finding['input']!r}"
        sentences.append(f"{key}{given}: {finding['msg']}")
    return "; ".join(sentences)


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The keys that are valid at a place inside a model."""
    for part in place:
        inner = model.model_fields[str(part)].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint `; did you mean 'x'?`, or nothing."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {match[0]!r}?" if match else ""


def _checked(cls: Any, name: str) -> type[Bonus]:
    if not (isinstance(cls, type) and issubclass(cls, Bonus)):
        raise ConfigError(
            f"intrinsic.method={name!r} is no subclass of rllib_rise.bonuses.Bonus, "
            "which a bonus must derive from (docs/bonuses.md)"
        )
    return cls
