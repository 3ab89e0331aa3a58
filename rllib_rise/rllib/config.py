"""The mixin that gives an RLlib config `.rise(...)` and `.intrinsic(...)`."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Self

from ray import tune
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.utils import force_list
from ray.tune.registry import ENV_CREATOR, _global_registry

from rllib_rise.bonuses import Bonus, BonusSettings, Need, parse_settings, resolve_bonus
from rllib_rise.bonuses.registry import RANDOM, WITHOUT_BONUS
from rllib_rise.envs import IDS, VECTOR_ENTRY_POINTS
from rllib_rise.errors import ConfigError
from rllib_rise.rllib.callbacks import EpisodeFigures
from rllib_rise.rllib.connector import FiniteInputsConnector
from rllib_rise.rllib.env_runner import ArrayEnvRunner
from rllib_rise.rllib.learner import IntrinsicLearnerMixin
from rllib_rise.rllib.transitions import state_shape

_SIZES = {
    "num_env_runners": 0,
    "num_learners": 0,
    "num_envs_per_env_runner": 1,
    "rollout_fragment_length": 1,
    "train_batch_size_per_learner": 1,
}


class IntrinsicConfigMixin:
    """Use as `class XConfig(IntrinsicConfigMixin, SomeConfig)`.

    All settings live in one dict attribute, `intrinsic_settings`, which RLlib copies, pickles and
    hands to Tune like any other; Tune domains may stand anywhere in it. They are validated when the
    algorithm is built, by the method's own model.
    """

    #: RLlib's own algorithm, which `method="none"` runs.
    plain_algo_class: ClassVar[type[Algorithm]]
    #: Our learner for this algorithm.
    intrinsic_learner_class: ClassVar[type[IntrinsicLearnerMixin]]
    #: RLlib's default networks for it, which here take images as bytes too.
    module_class: ClassVar[type[RLModule]]
    #: What the algorithm's batches can give a bonus.
    supplies: ClassVar[frozenset[Need]]
    #: Whether each learner has batches of its own, at its own pace.
    asynchronous: ClassVar[bool] = False
    #: The environment for which `validate` chose a vector environment of ours.
    _vector_env: str | None = None

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class)  # type: ignore[call-arg]
        self.intrinsic_settings: dict[str, Any] = {"method": "rise"}
        self.intrinsic_cache: str | None = None

    def intrinsic(
        self,
        /,
        *,
        method: str | type[Bonus] | None = None,
        cache: str | Path | None = None,
        **settings: Any,
    ) -> Self:
        """Choose the intrinsic reward and its settings.

        Args:
            method: "rise", "re3", "rnd", ..., "none" for RLlib's own algorithm, "random"
                for a policy that acts at random and learns nothing, or "module.path:ClassName"
                (or the class) for a bonus of your own. A new method starts from its own defaults;
                without it, settings are added to those there are.
            cache: A folder (or URI) that keeps the fits of Phase 1 for runs that differ only in
                what the fit does not depend on. Needs a seed. Under Tune it is by default in the
                experiment's storage.
            **settings: The method's settings, see its `Settings` model. Values may be Tune domains.
                Those whose names end in `_file` are paths.

        Returns:
            This config.
        """
        if cache is not None:
            self.intrinsic_cache = str(_absolute(cache))
        current = self.intrinsic_settings
        if method is not None and method != current.get("method"):
            current = {}
        self.intrinsic_settings = {
            "method": method or current["method"],
            **{key: value for key, value in current.items() if key != "method"},
            **_located(settings),
        }
        return self

    def rise(self, /, **settings: Any) -> Self:
        """RISE with the given settings: `alpha`, `lambda_0`, `kappa`, `k`, `form`, `encoder`..."""
        return self.intrinsic(method="rise", **settings)

    def intrinsic_method(self) -> tuple[type[Bonus], BonusSettings]:
        """The chosen bonus class and its validated settings (not for `none`)."""
        settings = dict(self.intrinsic_settings)
        bonus_class = resolve_bonus(settings.pop("method", "rise"))
        return bonus_class, parse_settings(bonus_class, settings)

    @property
    def uses_bonus(self) -> bool:
        """False for the methods `none` and `random`."""
        return self.intrinsic_settings.get("method") not in WITHOUT_BONUS

    @property
    def acts_at_random(self) -> bool:
        """Whether nothing is learned, and actions are drawn from the action space."""
        return self.intrinsic_settings.get("method") == RANDOM

    def validate(self) -> None:
        """RLlib's own checks, then those of the intrinsic reward."""
        self._serve_environment()
        self._check_sizes()
        super().validate()  # type: ignore[misc]
        if not self.uses_bonus:
            extra = sorted(set(self.intrinsic_settings) - {"method"})
            if extra:
                method = self.intrinsic_settings["method"]
                raise ConfigError(f"intrinsic.method={method!r} takes no settings, got {extra}")
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
        needs = bonus_class.needs(settings) | settings.needs()
        missing = needs - self.supplies
        if missing:
            names = ", ".join(sorted(need.value for need in missing))
            raise ConfigError(
                f"method {bonus_class.name!r} with these settings needs {names}: "
                f"{self.plain_algo_class.__name__} cannot give it, PPO can"
            )
        self._check_learners(needs, settings)
        self._check_n_step(needs, settings)
        self._check_modules(settings)
        if self.in_evaluation:  # type: ignore[attr-defined]
            return  # where nothing is learned, and fragments are of one step
        if self.asynchronous:
            batch_size = self.train_batch_size_per_learner  # type: ignore[attr-defined]
        else:
            batch_size = self.total_train_batch_size  # type: ignore[attr-defined]
        # Steps of one environment that come in one piece.
        chunk_size = min(batch_size, self.get_rollout_fragment_length())  # type: ignore[attr-defined]
        bonus_class.check_batch(settings, batch_size=batch_size, chunk_size=chunk_size)

    def _check_sizes(self) -> None:
        """Refuse what RLlib would count up to for ever: it adds fragments until a batch is full."""
        for name, least in _SIZES.items():
            value = getattr(self, name)
            if name == "rollout_fragment_length" and value == "auto":
                continue
            if not isinstance(value, int) or not least <= value < 2**31:
                raise ConfigError(f"{name}={value!r} must be an integer of at least {least}")

    def _serve_environment(self) -> None:
        """Log what environments tell of episodes, and choose how they are stepped."""
        # Ours first: a callback of the user's then finds the means in the result.
        callbacks = force_list(self.callbacks_class)  # type: ignore[has-type]
        if EpisodeFigures not in callbacks:
            self.callbacks_class = [EpisodeFigures, *callbacks]
        by_arrays = not self.is_multi_agent and not self.output  # type: ignore[attr-defined]
        if self.env_runner_cls in (None, ArrayEnvRunner):  # type: ignore[has-type]
            self.env_runner_cls = ArrayEnvRunner if by_arrays else None
        mode = self.gym_env_vectorize_mode  # type: ignore[has-type]
        # An evaluation config is a copy of one that was served, and may have another environment.
        if mode == "vector_entry_point" and self._vector_env not in (None, self.env):  # type: ignore[attr-defined]
            mode = "sync"
        if mode == "sync" and _has_vector_env(self.env):  # type: ignore[attr-defined]
            mode, self._vector_env = "vector_entry_point", self.env  # type: ignore[attr-defined]
        self.gym_env_vectorize_mode = mode

    def _check_learners(self, needs: frozenset[Need], settings: BonusSettings) -> None:
        """Refuse what learners that go their own ways cannot keep in common."""
        aggregators = self.num_aggregator_actors_per_learner  # type: ignore[attr-defined]
        if aggregators and not self.asynchronous:
            raise ConfigError(
                f"num_aggregator_actors_per_learner={aggregators}: RLlib has aggregator actors for "
                "APPO and IMPALA only; set it to 0"
            )
        if aggregators and Need.WHOLE_EPISODES in needs:
            raise ConfigError(
                f"num_aggregator_actors_per_learner={aggregators}: this bonus needs "
                f"{Need.WHOLE_EPISODES.value}, and batches of aggregator actors do not say which "
                "episodes they hold; set it to 0"
            )
        if self.num_learners < 2 or not self.asynchronous:  # type: ignore[attr-defined]
            return
        shared = [need.value for need in (Need.LEARNING, Need.RUNNING) if need in needs]
        if "updates" in settings.clocks():
            shared.append("clock='updates'")
        if shared:
            raise ConfigError(
                f"num_learners={self.num_learners}: the learners of {type(self).__name__} update "  # type: ignore[attr-defined]
                f"asynchronously, and would not agree on {' and '.join(shared)}; set num_learners "
                "to 0 or 1, or do without"
            )

    def _check_modules(self, settings: BonusSettings) -> None:
        """The chosen modules must be there."""
        if settings.modules is None:
            return
        known = set(self.policies) if self.is_multi_agent else {DEFAULT_MODULE_ID}  # type: ignore[attr-defined]
        unknown = sorted(set(settings.modules) - known)
        if unknown or not settings.modules:
            raise ConfigError(f"intrinsic.modules={settings.modules}: choose among {sorted(known)}")
        trained = self.policies_to_train  # type: ignore[attr-defined]
        if isinstance(trained, Collection) and (idle := {*settings.modules} - {*trained}):
            raise ConfigError(
                f"intrinsic.modules={settings.modules}: {sorted(idle)} are not trained "
                f"(policies_to_train={sorted(trained)}), and would have no use for a bonus"
            )

    def _check_n_step(self, needs: frozenset[Need], settings: BonusSettings) -> None:
        """Of n steps, the batch has the first state and the last."""
        n_step = getattr(self, "n_step", 1)
        if n_step in (1, (1, 1), [1, 1]):
            return
        if Need.NEXT_OBS in needs:
            raise ConfigError(
                f"n_step={n_step}: this bonus needs the next observation, and replayed batches "
                "have the one n steps later. Set n_step=1"
            )
        if not settings.n_step_scaling:
            raise ConfigError(
                f"n_step={n_step}: replayed batches do not have the states between, so their bonus "
                "cannot be added. Set n_step=1, or intrinsic.n_step_scaling=true to give all n "
                "steps the bonus of the first"
            )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """RLlib's default networks, which here take images as bytes too."""
        return RLModuleSpec(module_class=self.module_class)

    def get_default_learner_class(self) -> Any:
        """Ours, or RLlib's own where there is no bonus."""
        if not self.uses_bonus:
            return super().get_default_learner_class()  # type: ignore[misc]
        return self.intrinsic_learner_class

    def build_algo(self, *args: Any, **kwargs: Any) -> Algorithm:
        """Build the algorithm; RLlib's own class for the method `none`."""
        if not self.uses_bonus and not self.acts_at_random:
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
        self._check_space(DEFAULT_MODULE_ID, spec)
        return spec

    def get_multi_rl_module_spec(self, *args: Any, **kwargs: Any) -> Any:
        """RLlib's spec, refused where observations cannot be embedded."""
        spec = super().get_multi_rl_module_spec(*args, **kwargs)  # type: ignore[misc]
        for module_id, module_spec in spec.rl_module_specs.items():
            self._check_space(module_id, module_spec)
        return spec

    def _check_space(self, module_id: str, spec: Any) -> None:
        space = getattr(spec, "observation_space", None)
        if not self.uses_bonus or space is None:
            return
        _, settings = self.intrinsic_method()
        if settings.modules is None or module_id in settings.modules:
            state_shape(module_id, space, settings.state)


def _has_vector_env(env: Any) -> bool:
    """Whether the name is one of ours still: a user's creator makes single environments."""
    if env not in VECTOR_ENTRY_POINTS:
        return False
    if not _global_registry.contains(ENV_CREATOR, env):
        return env in IDS
    creator = _global_registry.get(ENV_CREATOR, env)
    return getattr(creator, "__module__", None) == f"{__package__}.registration"


def _located(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with absolute paths, in the parts of a sum too."""
    found = {}
    for key, value in settings.items():
        if key.endswith("_file"):
            value = _absolute(value)
        elif key == "parts" and isinstance(value, list):
            value = [_located(part) if isinstance(part, dict) else part for part in value]
        found[key] = value
    return found


def _absolute(path: Any) -> Any:
    """Learners, and Tune's trials, run in folders of their own; a Tune domain may hold paths."""
    if isinstance(path, tune.search.sample.Categorical):
        return tune.choice([_absolute(one) for one in path.categories])
    if isinstance(path, dict):
        return {key: [_absolute(one) for one in values] for key, values in path.items()}
    if isinstance(path, (str, Path)) and "://" not in str(path):
        return os.path.abspath(os.path.expanduser(path))
    return path
