"""The mixin that gives an RLlib config `.rise(...)` and `.intrinsic(...)`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from ray.rllib.algorithms.algorithm import Algorithm

from rllib_rise.bonuses import Bonus, BonusSettings, Need, parse_settings, resolve_bonus
from rllib_rise.bonuses.registry import NONE
from rllib_rise.errors import ConfigError
from rllib_rise.rllib.connector import FiniteInputsConnector
from rllib_rise.rllib.learner import IntrinsicLearnerMixin
from rllib_rise.rllib.runtime import observation_shape


class IntrinsicConfigMixin:
    """Use as `class XConfig(IntrinsicConfigMixin, SomeConfig)`.

    All settings live in one dict attribute, `intrinsic_settings`, which RLlib copies, pickles and
    hands to Tune like any other; Tune domains may stand anywhere in it. They are validated when the
    algorithm is built, by the method's own model.
    """

    #: The unmodified RLlib algorithm, which `method="none"` runs.
    plain_algo_class: ClassVar[type[Algorithm]]
    #: Our learner for this algorithm.
    intrinsic_learner_class: ClassVar[type[IntrinsicLearnerMixin]]
    #: What the algorithm's batches can give a bonus.
    supplies: ClassVar[frozenset[Need]]

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class)  # type: ignore[call-arg]
        self.intrinsic_settings: dict[str, Any] = {"method": "rise"}

    def intrinsic(self, *, method: str | type[Bonus] | None = None, **settings: Any) -> Self:
        """Choose the intrinsic reward and its settings.

        Args:
            method: "rise", "re3", "rnd", ..., "none" for RLlib's unmodified algorithm, or
                "module.path:ClassName" (or the class) for a bonus of your own. A new method
                starts from its own defaults; without it, settings are added to those there are.
            **settings: The method's settings, see its `Settings` model. Values may be Tune domains.

        Returns:
            This config.
        """
        current = self.intrinsic_settings
        if method is not None and method != current.get("method"):
            current = {}
        self.intrinsic_settings = {
            "method": method or current["method"],
            **{key: value for key, value in current.items() if key != "method"},
            **settings,
        }
        return self

    def rise(self, **settings: Any) -> Self:
        """RISE with the given settings: `alpha`, `lambda_0`, `kappa`, `k`, `form`, `encoder`..."""
        return self.intrinsic(method="rise", **settings)

    def intrinsic_method(self) -> tuple[type[Bonus], BonusSettings]:
        """The chosen bonus class and its validated settings (not for `none`)."""
        settings = dict(self.intrinsic_settings)
        bonus_class = resolve_bonus(settings.pop("method", "rise"))
        return bonus_class, parse_settings(bonus_class, settings)

    @property
    def uses_bonus(self) -> bool:
        """False for the method `none`."""
        return self.intrinsic_settings.get("method") != NONE

    def validate(self) -> None:
        """RLlib's own checks, then those of the intrinsic reward."""
        super().validate()  # type: ignore[misc]
        if not self.uses_bonus:
            extra = sorted(set(self.intrinsic_settings) - {"method"})
            if extra:
                raise ConfigError(f"intrinsic.method='none' takes no settings, got {extra}")
            return
        bonus_class, settings = self.intrinsic_method()
        if not self.enable_rl_module_and_learner:  # type: ignore[attr-defined]
            raise ConfigError("intrinsic rewards need RLlib's new API stack: leave api_stack()")
        if not issubclass(self.learner_class, IntrinsicLearnerMixin):  # type: ignore[attr-defined]
            ours = self.intrinsic_learner_class.__name__
            raise ConfigError(
                f"learner_class={self.learner_class.__name__} would drop the intrinsic reward: "  # type: ignore[attr-defined]
                f"derive yours from rllib_rise.rllib.{ours}, or choose intrinsic(method='none')"
            )
        missing = bonus_class.needs(settings) - self.supplies
        if missing:
            names = ", ".join(sorted(need.value for need in missing))
            raise ConfigError(
                f"method {bonus_class.name!r} needs {names}: {type(self).__name__} cannot give it"
            )
        if self.num_learners > 1:  # type: ignore[attr-defined]
            raise ConfigError(
                f"num_learners={self.num_learners}: intrinsic rewards run on one learner "  # type: ignore[attr-defined]
                "so far; set it to 0 or 1"
            )
        bonus_class.check_batch(
            settings,
            batch_size=self.total_train_batch_size,  # type: ignore[attr-defined]
            chunk_size=self._chunk_size(),
        )

    def _chunk_size(self) -> int | None:
        """Steps of one environment in one batch."""
        runners = max(1, self.num_env_runners)  # type: ignore[attr-defined]
        environments = runners * self.num_envs_per_env_runner  # type: ignore[attr-defined]
        return max(1, self.total_train_batch_size // environments)  # type: ignore[attr-defined]

    def get_default_learner_class(self) -> Any:
        """Ours, or RLlib's own for the method `none`."""
        if not self.uses_bonus:
            return super().get_default_learner_class()  # type: ignore[misc]
        return self.intrinsic_learner_class

    def build_algo(self, *args: Any, **kwargs: Any) -> Algorithm:
        """Build the algorithm; RLlib's unmodified class for the method `none`."""
        if not self.uses_bonus:
            plain = self.copy(copy_frozen=False)  # type: ignore[attr-defined]
            plain.algo_class = self.plain_algo_class
            return super(IntrinsicConfigMixin, plain).build_algo(  # type: ignore[misc]
                *args, **kwargs
            )
        return super().build_algo(*args, **kwargs)  # type: ignore[misc]

    def build_env_to_module_connector(self, *args: Any, **kwargs: Any) -> Any:
        """RLlib's pipeline; policies act on finite numbers even where the environment errs."""
        pipeline = super().build_env_to_module_connector(*args, **kwargs)  # type: ignore[misc]
        if self.uses_bonus:
            pipeline.append(FiniteInputsConnector())
        return pipeline

    def get_rl_module_spec(self, *args: Any, **kwargs: Any) -> Any:
        """RLlib's spec, refused where observations cannot be embedded."""
        spec = super().get_rl_module_spec(*args, **kwargs)  # type: ignore[misc]
        self._check_space("default_policy", spec)
        return spec

    def get_multi_rl_module_spec(self, *args: Any, **kwargs: Any) -> Any:
        """RLlib's spec, refused where observations cannot be embedded."""
        spec = super().get_multi_rl_module_spec(*args, **kwargs)  # type: ignore[misc]
        for module_id, module_spec in spec.rl_module_specs.items():
            self._check_space(module_id, module_spec)
        return spec

    def _check_space(self, module_id: str, spec: Any) -> None:
        space = getattr(spec, "observation_space", None)
        if self.uses_bonus and space is not None:
            observation_shape(module_id, space)
