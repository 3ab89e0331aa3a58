"""A sweep file: an experiment, and under `search` what is varied.

base: ../configs/maze.yaml
search:
  space:                                  # paths as for --set: a bare name means intrinsic.<name>
    alpha: {grid: [0.0, 0.1, 0.5]}        # every value
    lambda_0: {log_uniform: [0.001, 0.1]} # drawn `samples` times
    k: {integers: [1, 15]}                # both ends count
    rllib.lr: {choice: [0.001, 0.0003]}   # one of them
    kappa: {uniform: [0, 0.0001]}
    zeta: {quantized: [0, 0.1, 0.02]}     # low, high, step
  samples: 4
  seeds: 3                                # every setting with each of them
  metric: return
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import tune

from rllib_rise.bonuses.registry import explain
from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import (
    Experiment,
    apply_overrides,
    check,
    full_path,
    parse_experiment,
    read_data,
    set_value,
)

METRICS = {"return": "episode_return_mean", "coverage": "coverage"}
"""What a sweep looks for: a final figure of a run, and the column of its rows."""

# What a checkpoint holds, or what a run is built from: it cannot change while the run goes on.
_FIXED = ("seed", "env", "algorithm", "method", "k", "encoder", "embedding_size", "warmup_steps")


_POPULATION = 4


@dataclass(frozen=True)
class Dimension:
    """One thing that is varied.

    Attributes:
        path: Where it stands in the experiment.
        kind: `grid`, `choice`, `uniform`, `log_uniform`, `integers` or `quantized`.
        values: The list, or the ends (and the step).
    """

    path: str
    kind: str
    values: tuple[Any, ...]

    def domain(self) -> Any:
        """As Ray Tune wants it."""
        if self.kind in ("grid", "choice"):
            make = tune.grid_search if self.kind == "grid" else tune.choice
            return make(list(self.values))
        if self.kind == "integers":
            return tune.randint(self.values[0], self.values[1] + 1)
        makers = {"uniform": tune.uniform, "log_uniform": tune.loguniform}
        return makers.get(self.kind, tune.quniform)(*self.values)

    def probes(self) -> tuple[Any, ...]:
        """Values that must all be valid, for the others to be."""
        return self.values if self.kind in ("grid", "choice") else self.values[:2]


class Search(BaseModel):
    """What is varied, how often, and what is looked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: dict[str, dict[str, list[Any]]] = Field(
        min_length=1, description="Paths as for --set, each with a kind of range."
    )
    seeds: int = Field(3, ge=1, description="Every setting is run with this many.")
    samples: int = Field(1, ge=1, description="Draws, where not everything is a grid.")
    metric: Literal["return", "coverage"] = Field("return", description="What is looked for.")
    searcher: Literal["random", "optuna"] = Field(
        "random", description="Who proposes what is not a grid."
    )
    scheduler: Literal["none", "asha", "pbt"] = Field(
        "none", description="Who ends bad trials early, or changes settings while they run."
    )
    patience: float = Field(
        0.25,
        gt=0,
        lt=1,
        description="Share of the budget before asha ends a trial, or between changes of pbt.",
    )

    def num_trials(self) -> int:
        """Seeds times draws times the points of the grid."""
        grids = (len(d.values) for d in self.dimensions() if d.kind == "grid")
        return self.seeds * self.samples * math.prod(grids)

    def dimensions(self) -> list[Dimension]:
        """The space, checked."""
        return [_dimension(full_path(path), given) for path, given in self.space.items()]


@dataclass(frozen=True)
class Sweep:
    """An experiment and what is varied of it."""

    experiment: Experiment
    search: Search

    def as_data(self) -> dict[str, Any]:
        """As plain data, for files and other processes."""
        return {
            "experiment": self.experiment.resolved(),
            "search": self.search.model_dump(mode="json"),
        }

    def with_values(self, values: Mapping[str, Any], seed: int) -> Experiment:
        """The experiment of one trial; values by their paths."""
        data = copy.deepcopy(self.experiment.resolved())
        data.pop("methods", None)
        for path, value in values.items():
            set_value(data, path, value)
        return parse_experiment({**data, "seed": seed})


def load_sweep(path: Path, overrides: Iterable[str] = ()) -> Sweep:
    """Read a sweep file, apply `key=value` overrides, and refuse what makes no sense."""
    data = read_data(path)
    if "search" not in data:
        raise ConfigError(f"{path} has no search: it is an experiment, try `rise train {path}`")
    given = data.pop("search")
    try:
        search = Search.model_validate(given)
    except ValidationError as error:
        found = explain(error, Search, prefix="search.", owner="a search")
        raise ConfigError(f"{path}: {found}") from None
    sweep = Sweep(parse_experiment(apply_overrides(data, overrides), source=str(path)), search)
    _check(sweep)
    return sweep


def _dimension(path: str, given: Mapping[str, list[Any]]) -> Dimension:
    lengths = {"grid": None, "choice": None, "uniform": 2, "log_uniform": 2, "integers": 2}
    lengths["quantized"] = 3
    if len(given) != 1 or next(iter(given)) not in lengths:
        raise ConfigError(
            f"search.space.{path}={dict(given)}: give one of {', '.join(lengths)}, with a list"
        )
    ((kind, values),) = given.items()
    name, length = f"search.space.{path}.{kind}", lengths[kind]
    if length is None:
        if not values or len({repr(value) for value in values}) != len(values):
            raise ConfigError(f"{name}={values}: name each value once, and at least one")
        return Dimension(path, kind, tuple(values))
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if len(values) != length or not numbers or not all(map(math.isfinite, values)):
        raise ConfigError(f"{name}={values}: give {length} numbers")
    if not values[0] < values[1]:
        raise ConfigError(f"{name}={values}: the first must be below the second")
    if kind == "log_uniform" and values[0] <= 0:
        raise ConfigError(f"{name}={values}: a logarithm needs numbers above 0")
    if kind == "integers" and not all(isinstance(value, int) for value in values):
        raise ConfigError(f"{name}={values}: give whole numbers")
    if kind == "quantized" and not 0 < values[2] <= values[1] - values[0]:
        raise ConfigError(f"{name}={values}: the step must fit between the ends")
    return Dimension(path, kind, tuple(values))


def _check(sweep: Sweep) -> None:
    search, dimensions = sweep.search, sweep.search.dimensions()
    paths = [dimension.path for dimension in dimensions]
    if len(set(paths)) != len(paths):
        raise ConfigError(f"search.space names {', '.join(paths)}: each may stand there once")
    if "seed" in paths:
        raise ConfigError("search.space.seed: seeds are a dimension of every sweep, search.seeds")
    drawn = [d.path for d in dimensions if d.kind != "grid"]
    if search.samples > 1 and not drawn:
        raise ConfigError(
            f"search.samples={search.samples}: a grid is run once, and all of the space is one"
        )
    _check_searcher(search, dimensions)
    first = {dimension.path: dimension.probes()[0] for dimension in dimensions}
    for dimension in dimensions:
        for value in dimension.probes():
            try:
                check(sweep.with_values({**first, dimension.path: value}, sweep.experiment.seed))
            except ConfigError as error:
                raise ConfigError(f"search.space.{dimension.path}, {value!r}: {error}") from error


def _check_searcher(search: Search, dimensions: list[Dimension]) -> None:
    grids = [dimension.path for dimension in dimensions if dimension.kind == "grid"]
    if search.searcher == "optuna" and grids:
        raise ConfigError(f"search.searcher=optuna draws {', '.join(grids)}: write choice for grid")
    if search.scheduler != "pbt":
        return
    if search.searcher != "random":
        raise ConfigError("search.scheduler=pbt proposes settings: leave search.searcher out")
    for dimension in dimensions:
        if dimension.path.removeprefix("intrinsic.").split(".")[0] in _FIXED:
            raise ConfigError(
                f"search.scheduler=pbt cannot change {dimension.path} in a run: it is in the "
                "checkpoint, or the run is built from it"
            )
    if search.num_trials() < _POPULATION:
        raise ConfigError(
            f"search.scheduler=pbt lets the worst of the trials copy the best: {_POPULATION} at "
            f"least, and these are {search.num_trials()} (seeds, samples, grids)"
        )
