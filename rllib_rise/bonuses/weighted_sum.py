"""A weighted sum of bonuses, each with its own weight and clock.

    r_hat = sum_i lambda_i(t) r_i,  lambda_i(t) = lambda_0,i (1 - kappa_i)^t_i

Each part is a method with its settings; `standardize` brings parts to the same scale before they
are weighed. The sum's own weight comes on top, and is 1 by default. With several learners all of
them get all observations, whatever the parts could do with. Phase 1 is that of the parts that have
one; the page about a run shows that of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

import gymnasium as gym
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rllib_rise.bonuses.moments import RunningMoments, standardized
from rllib_rise.bonuses.protocol import (
    Bonus,
    BonusSettings,
    Fit,
    FitReport,
    FitSteps,
    Need,
    Transitions,
)
from rllib_rise.bonuses.registry import (
    WITHOUT_BONUS,
    parse_settings,
    register_bonus,
    resolve_bonus,
)
from rllib_rise.errors import ConfigError

# They say what happens to the reward as a whole.
_OF_THE_SUM = ("zeta", "n_step_scaling", "modules", "state", "shuffle")


class SumSettings(BonusSettings):
    """Settings of a sum; those of a part are the ones of its method."""

    lambda_0: float = Field(1.0, ge=0, description="Weight of the sum at the start.")
    parts: list[dict[str, Any]] = Field(
        min_length=1, description="The summands: a mapping each, with `method` and its settings."
    )

    @model_validator(mode="after")
    def _check(self) -> SumSettings:
        for number, part in enumerate(self.parts):
            method = part.get("method")
            if method in WITHOUT_BONUS or not isinstance(method, (str, type)):
                raise ConfigError(
                    f"intrinsic.parts[{number}].method={method!r}: name a method with a bonus"
                )
            for key in _OF_THE_SUM:
                if key in part:
                    raise ConfigError(
                        f"intrinsic.parts[{number}].{key} belongs to the sum: intrinsic.{key}"
                    )
        self.summands  # noqa: B018 (errors come here, where the settings are read)
        return self

    @cached_property
    def summands(self) -> list[tuple[type[Bonus], BonusSettings]]:
        """Class and settings of each part."""
        found = []
        for number, part in enumerate(self.parts):
            bonus = resolve_bonus(part["method"])
            if issubclass(bonus, WeightedSum):
                raise ConfigError("intrinsic.parts: a sum of sums is a sum, write it as one")
            values = {key: value for key, value in part.items() if key != "method"}
            settings = parse_settings(bonus, values, place=f"intrinsic.parts[{number}].")
            found.append((bonus, settings))
        return found

    def needs(self) -> frozenset[Need]:
        """What the sum and its parts' settings need, whatever the methods."""
        return super().needs().union(*(settings.needs() for _, settings in self.summands))

    def clocks(self) -> frozenset[str]:
        """The parts' clocks as well."""
        return super().clocks().union(*(settings.clocks() for _, settings in self.summands))


@register_bonus
class WeightedSum(Bonus):
    """The sum of other bonuses."""

    name = "sum"
    Settings = SumSettings
    logged: ClassVar = {
        "sum_0_mean": "what the first part adds on average; `sum_1_mean` the second, and so on",
        "sum_0_*": "the first part's own figures, by their names; likewise the others'",
    }

    def __init__(
        self,
        settings: Any,
        obs_shape: tuple[int, ...],
        *,
        seed: int = 0,
        action_space: gym.Space | None = None,
    ) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        self.parts = nn.ModuleList()
        for number, (bonus, part) in enumerate(settings.summands):
            spaces = {"action_space": action_space} if Need.ACTIONS in bonus.needs(part) else {}
            self.parts.append(bonus(part, obs_shape, seed=seed + number, **spaces))
        self.moments = nn.ModuleList(RunningMoments() for _ in self.parts)
        self._rewards: list[Tensor] = []
        self._means: list[float] = []

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """All that the parts need."""
        return frozenset[Need]().union(*(bonus.needs(part) for bonus, part in settings.summands))

    @classmethod
    def check_batch(cls, settings: Any, *, batch_size: int, chunk_size: int | None) -> None:
        """Every part's check."""
        for bonus, part in settings.summands:
            bonus.check_batch(part, batch_size=batch_size, chunk_size=chunk_size)

    @classmethod
    def warmup_steps(cls, settings: Any, obs_shape: tuple[int, ...]) -> int:
        """As many as the part that wants most."""
        return max(bonus.warmup_steps(part, obs_shape) for bonus, part in settings.summands)

    @classmethod
    def fit_settings(cls, settings: Any, obs_shape: tuple[int, ...]) -> dict[str, Any]:
        """Those of the parts that have a Phase 1."""
        return {
            str(number): {"method": bonus.name, **bonus.fit_settings(part, obs_shape)}
            for number, (bonus, part) in enumerate(settings.summands)
            if bonus.warmup_steps(part, obs_shape) > 0
        }

    @property
    def fitted(self) -> bool:
        """Whether all parts are."""
        return all(part.fitted for part in self._bonuses())

    def fit(self, obs: Tensor) -> FitSteps:
        """Fit one part after the other."""
        tensors: dict[str, Tensor] = {}
        info: dict[str, Any] = {}
        for number, part in enumerate(self._bonuses()):
            if part.fitted:
                continue
            fit = yield from part.fit(obs)
            tensors |= {f"{number}.{name}": tensor for name, tensor in fit.tensors.items()}
            info[str(number)] = fit.info
        return Fit(tensors, info)

    def adopt(self, fit: Fit) -> FitReport:
        """Give each part its own; the report is that of the first."""
        reports = []
        parts = list(self._bonuses())
        for number, info in fit.info.items():
            own = {
                name.removeprefix(f"{number}."): tensor
                for name, tensor in fit.tensors.items()
                if name.startswith(f"{number}.")
            }
            reports.append(parts[int(number)].adopt(Fit(own, info)))
        return reports[0]

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """The weighted sum of the parts' rewards."""
        total = torch.zeros(len(batch), device=batch.obs.device)
        self._rewards, self._means = [], []
        for part, moments in zip(self._bonuses(), self.moments, strict=True):
            r_hat = part.reward(batch)
            self._rewards.append(r_hat)
            if part.settings.standardize:
                before = moments if part.settings.standardize is True else None
                r_hat = standardized(r_hat, before)  # type: ignore[arg-type]
            weighted = part.settings.weight(self.time) * r_hat
            self._means.append(float(weighted.mean()) if len(batch) else 0.0)
            total = total + weighted
        return total

    def update(self, batch: Transitions) -> None:
        """Every part's update."""
        for part, moments, r_hat in zip(self._bonuses(), self.moments, self._rewards, strict=True):
            if part.settings.standardize is True:
                moments.update(r_hat)  # type: ignore[operator]
            part.update(batch)

    def choices(self) -> dict[str, Any]:
        """Those of the parts that have any, by number."""
        chosen = {str(number): part.choices() for number, part in enumerate(self._bonuses())}
        return {number: choices for number, choices in chosen.items() if choices}

    def prefer(self, choices: Mapping[str, Any]) -> None:
        """To each part its own."""
        for number, part in enumerate(self._bonuses()):
            part.prefer(choices.get(str(number), {}))

    def nbytes(self) -> int:
        """Of all parts."""
        return sum(part.nbytes() for part in self._bonuses())

    def metrics(self) -> dict[str, float]:
        """What each part adds on average, and its own figures; parts are counted from 0."""
        figures = {}
        for number, (part, mean) in enumerate(zip(self._bonuses(), self._means, strict=False)):
            figures[f"sum_{number}_mean"] = mean
            own = part.metrics()
            figures |= {f"sum_{number}_{name}": value for name, value in own.items()}
        return figures

    def _bonuses(self) -> Iterator[Any]:
        return iter(self.parts)
