"""What a sweep varies: ranges of values at places of an experiment.

alpha: {grid: [0.0, 0.1, 0.5]}        # every value
lambda_0: {log_uniform: [0.001, 0.1]} # drawn, every order of magnitude as often as the next
kappa: {uniform: [0, 0.0001]}         # drawn
zeta: {quantized: [0, 0.1, 0.02]}     # low, high, step; whole numbers stay whole
k: {integers: [1, 15]}                # both ends count
rllib.lr: {choice: [0.001, 0.0003]}   # one of them
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray import tune

from rllib_rise.bonuses.registry import nearest
from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import full_path, number_or_text

_LISTS = ("grid", "choice")
_LENGTHS = {"uniform": 2, "log_uniform": 2, "integers": 2, "quantized": 3}
KINDS = (*_LISTS, *_LENGTHS)
# Where between its ends a range is tried. What wants whole numbers does not take this one.
_BETWEEN = 0.382


@dataclass(frozen=True)
class Dimension:
    """One thing that is varied.

    Attributes:
        path: Where it stands in the experiment.
        kind: One of `KINDS`.
        values: The list, or the ends (and the step).
    """

    path: str
    kind: str
    values: tuple[Any, ...]

    def domain(self) -> Any:
        """As Ray Tune wants it."""
        if self.kind in _LISTS:
            make = tune.grid_search if self.kind == "grid" else tune.choice
            return make(list(self.values))
        if self.kind == "integers":
            return tune.randint(self.values[0], self.values[1] + 1)
        if self.kind == "quantized":
            whole = all(isinstance(value, int) for value in self.values)
            return (tune.qrandint if whole else tune.quniform)(*self.values)
        return (tune.uniform if self.kind == "uniform" else tune.loguniform)(*self.values)

    def probes(self) -> tuple[Any, ...]:
        """Values that must all be valid, for the others to be."""
        if self.kind in _LISTS:
            return self.values
        low, high, *step = self.values
        if self.kind == "integers":
            return (low, high)
        if self.kind == "quantized":
            return (low, low + step[0], high)
        return (low + _BETWEEN * (high - low), float(low), float(high))

    def within(self, value: Any) -> Any:
        """The value of the range that is nearest to a number."""
        if self.kind in _LISTS:
            return value
        low, high, *step = self.values
        if step:
            value = round(value / step[0]) * step[0]
        return type(value)(min(max(value, low), high))


def label(values: Mapping[str, Any]) -> str:
    """Values by path as a name: `alpha 0.1, lambda_0 0.02`."""
    parts = []
    for path, value in values.items():
        number = f"{value:.3g}" if isinstance(value, float) else str(value)
        parts.append(f"{short(path)} {number}")
    return ", ".join(parts)


def short(path: str) -> str:
    """A path as --set takes it."""
    return path.removeprefix("intrinsic.")


def parse_dimension(name: str, given: Any) -> Dimension:
    """One entry of a space, checked."""
    place = f"search.space.{name}"
    if not isinstance(given, Mapping) or len(given) != 1:
        raise ConfigError(
            f"{place}={given!r}: say how it is varied, with one of {', '.join(KINDS)}; "
            f"e.g. {name}: {{grid: [0.1, 0.5]}}"
        )
    ((kind, values),) = given.items()
    if kind not in KINDS:
        raise ConfigError(f"{place}.{kind}: give one of {', '.join(KINDS)}{nearest(kind, KINDS)}")
    if not isinstance(values, list):
        raise ConfigError(f"{place}.{kind}={values!r}: give a list, e.g. [0.1, 0.5]")
    values = [number_or_text(value) for value in values]
    if kind in _LISTS:
        if not values or any(a == b for a, b in itertools.combinations(values, 2)):
            raise ConfigError(f"{place}.{kind}={values}: name each value once, and at least one")
    else:
        _check_range(f"{place}.{kind}", kind, values)
    return Dimension(full_path(name), kind, tuple(values))


def _check_range(place: str, kind: str, values: list[Any]) -> None:
    length = _LENGTHS[kind]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if len(values) != length or not numbers or not all(map(math.isfinite, values)):
        wanted = "low, high and step" if kind == "quantized" else "low and high"
        raise ConfigError(f"{place}={values}: give {length} numbers, {wanted}")
    if not values[0] < values[1]:
        raise ConfigError(f"{place}={values}: the first must be below the second")
    if kind == "log_uniform" and values[0] <= 0:
        raise ConfigError(f"{place}={values}: a logarithm needs numbers above 0")
    if kind == "integers" and not all(isinstance(value, int) for value in values):
        raise ConfigError(f"{place}={values}: give whole numbers")
    if kind == "quantized":
        _check_step(place, values)


def _check_step(place: str, values: list[Any]) -> None:
    low, high, step = values
    if not 0 < step <= high - low:
        raise ConfigError(f"{place}={values}: the step must be above 0 and fit between the ends")
    for end in (low, high):
        if not math.isclose(end / step, round(end / step), abs_tol=1e-9):
            raise ConfigError(
                f"{place}={values}: the ends must be multiples of the step, and {end} is none "
                f"of {step}"
            )
