"""A sweep file: an experiment, and under `search` what is varied.

base: ../configs/maze.yaml
search:
  space:                                  # paths as for --set: a bare name means intrinsic.<name>
    alpha: {grid: [0.0, 0.1, 0.5]}        # every value
    lambda_0: {log_uniform: [0.001, 0.1]} # drawn `samples` times; other ranges: see space.py
  samples: 4
  seeds: 3                                # every setting with each of them
  metric: return
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rllib_rise.bonuses import parse_settings, resolve_bonus
from rllib_rise.bonuses.registry import WITHOUT_BONUS, explain
from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import (
    Experiment,
    apply_overrides,
    check,
    check_warmup,
    parse_experiment,
    read_data,
    rllib_keys,
    set_value,
)
from rllib_rise.experiments.sweep.space import Dimension, label, parse_dimension, short

METRICS = {"return": "episode_return_mean", "coverage": "coverage"}
"""What a sweep looks for: a final figure of a run, and the column of its rows."""

# All else is in the checkpoint, or a run is built from it: it stays while the run goes on.
_CHANGEABLE = ("lambda_0", "kappa", "zeta", "alpha")
_POPULATION = 4
_EXAMPLE = "search: {space: {alpha: {grid: [0.1, 0.5]}}}"


class Search(BaseModel):
    """What is varied, how often, and what is looked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: dict[str, Any] = Field(description="Paths as for --set, each with a range.")
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

    @field_validator("space", mode="before")
    @classmethod
    def _ranges(cls, given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping) or not given:
            raise ConfigError(f"search.space={given!r}: name what is varied, e.g. {_EXAMPLE}")
        space = {str(name): values for name, values in given.items()}
        for name, values in space.items():
            parse_dimension(name, values)
        return space

    def num_trials(self) -> int:
        """Seeds times draws times the points of the grid."""
        grids = (len(d.values) for d in self.dimensions() if d.kind == "grid")
        return self.seeds * self.samples * math.prod(grids)

    def dimensions(self) -> list[Dimension]:
        """The space."""
        return [parse_dimension(name, given) for name, given in self.space.items()]


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

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Sweep:
        """What `as_data` gave."""
        return cls(parse_experiment(data["experiment"]), Search.model_validate(data["search"]))

    def with_values(self, values: Mapping[str, Any], seed: int) -> Experiment:
        """The experiment of one trial; values by their paths."""
        data = copy.deepcopy(self.experiment.resolved())
        # The method first: choosing another one drops the settings of the old.
        for path in sorted(values, key=lambda path: path != "intrinsic.method"):
            set_value(data, path, values[path])
        data.pop("methods", None)
        return parse_experiment({**data, "seed": seed})

    def extremes(self) -> Iterator[dict[str, Any]]:
        """Values that must all be valid, for the others to be: those of each two dimensions."""
        dimensions = self.search.dimensions()
        first = {dimension.path: dimension.probes()[0] for dimension in dimensions}
        for chosen in itertools.combinations(dimensions, min(2, len(dimensions))):
            paths = [dimension.path for dimension in chosen]
            for values in itertools.product(*(dimension.probes() for dimension in chosen)):
                yield first | dict(zip(paths, values, strict=True))


def load_sweep(path: Path, overrides: Iterable[str] = ()) -> Sweep:
    """Read a sweep file, apply `key=value` overrides, and refuse what makes no sense."""
    data = read_data(path)
    if "search" not in data:
        raise ConfigError(f"{path} has no search: it is an experiment, try `rise train {path}`")
    given = data.pop("search")
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: search={given!r}: say what is varied, e.g. {_EXAMPLE}")
    try:
        search = Search.model_validate(given)
    except ValidationError as error:
        found = explain(error, Search, prefix="search.", owner="a search")
        raise ConfigError(f"{path}: {found}") from None
    sweep = Sweep(parse_experiment(apply_overrides(data, overrides), source=str(path)), search)
    try:
        _check(sweep)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return sweep


def _check(sweep: Sweep) -> None:
    search, dimensions = sweep.search, sweep.search.dimensions()
    paths = [dimension.path for dimension in dimensions]
    if len(set(paths)) != len(paths):
        raise ConfigError(
            f"search.space names {', '.join(search.space)}: each may stand there once"
        )
    if "seed" in paths:
        raise ConfigError("search.space.seed: seeds are a dimension of every sweep, search.seeds")
    _check_budget(sweep, paths)
    _check_owners(sweep.experiment, paths)
    drawn = [d.path for d in dimensions if d.kind != "grid"]
    if search.samples > 1 and not drawn:
        raise ConfigError(
            f"search.samples={search.samples}: a grid is run once, and all of the space is one"
        )
    _check_searcher(search, dimensions)
    for values in sweep.extremes():
        try:
            trial = sweep.with_values(values, sweep.experiment.seed)
            check(trial)
            _check_phase1(trial)
        except ConfigError as error:
            raise ConfigError(f"search.space has {label(values)}: {error}") from error


def _check_phase1(trial: Experiment) -> None:
    """Phase 1 must leave something of the budget; images may want more than is known here."""
    if trial.method in WITHOUT_BONUS:
        return
    bonus, given = resolve_bonus(trial.method), trial.settings_of(trial.method)
    settings = parse_settings(bonus, {k: v for k, v in given.items() if k != "method"})
    check_warmup(bonus.warmup_steps(settings, (1,)), trial.stop.env_steps)


def _check_budget(sweep: Sweep, paths: list[str]) -> None:
    """All trials have the same number of steps."""
    for path in paths:
        if path.split(".")[0] == "stop":
            raise ConfigError(f"search.space.{path}: a sweep has one budget, set it under stop")
    if sweep.experiment.stop.episode_return is not None:
        raise ConfigError(
            "stop.episode_return would give the better setting fewer steps: a sweep has one "
            "budget, leave it out"
        )


def _check_owners(experiment: Experiment, paths: list[str]) -> None:
    """A bare name is a setting of the method."""
    for name in map(short, paths):
        theirs = name in rllib_keys(experiment.algorithm)
        if theirs and name not in experiment.settings_of(experiment.method):
            raise ConfigError(f"search.space.{name} is a setting of RLlib: write rllib.{name}")


def _check_searcher(search: Search, dimensions: list[Dimension]) -> None:
    grids = [short(dimension.path) for dimension in dimensions if dimension.kind == "grid"]
    if search.searcher == "optuna" and grids:
        raise ConfigError(f"search.searcher=optuna draws {', '.join(grids)}: write choice for grid")
    if search.scheduler != "pbt":
        return
    if search.searcher != "random":
        raise ConfigError("search.scheduler=pbt proposes settings: leave search.searcher out")
    for dimension in dimensions:
        if short(dimension.path) not in _CHANGEABLE:
            raise ConfigError(
                f"search.scheduler=pbt cannot change {short(dimension.path)} while a run goes on, "
                f"only {', '.join(_CHANGEABLE)}: try random or optuna with asha"
            )
    if search.num_trials() < _POPULATION:
        raise ConfigError(
            f"search.scheduler=pbt lets the worst of the trials copy the best: {_POPULATION} at "
            f"least, and these are {search.num_trials()} (seeds, samples, grids)"
        )
