"""From an RLlib config to ours."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rllib_rise.errors import ConfigError
from rllib_rise.rllib.config import IntrinsicConfigMixin
from rllib_rise.rllib.registration import ALGORITHMS

# Not carried over: which algorithm it is, and whether it may still be changed.
_OWN = ("algo_class", "_is_frozen")


def with_rise(config: AlgorithmConfig, **settings: Any) -> Any:
    """The same training with an intrinsic reward.

    Args:
        config: Of RLlib's PPO, APPO, IMPALA, DQN or SAC; it stays as it is.
        **settings: As for `.intrinsic(...)`: `method` (RISE by default), `alpha`, `lambda_0`...

    Returns:
        A config of `RISEPPOConfig`, ..., with all settings of `config`.

    Raises:
        ConfigError: Where there is no such class.
    """
    if isinstance(config, IntrinsicConfigMixin):
        return config.copy(copy_frozen=False).intrinsic(**settings)  # type: ignore[attr-defined]
    if not isinstance(config, AlgorithmConfig):
        raise ConfigError(
            f"with_rise takes a config of RLlib's, as PPOConfig() gives it, not a {type(config)}"
        )
    ours = _class_for(config)()
    given = vars(config.copy(copy_frozen=False))
    vars(ours).update({name: value for name, value in given.items() if name not in _OWN})
    return ours.intrinsic(**settings)


def _class_for(config: AlgorithmConfig) -> type[Any]:
    """Our class beside RLlib's; a subclass may do anything, so it is not taken for its base."""
    classes: list[Any] = [type(a.get_default_config()) for a in ALGORITHMS.values()]
    for ours in classes:
        if type(config) is type(ours.plain_algo_class.get_default_config()):
            return ours
    # Of RLlib's own there are offline algorithms that derive from online ones.
    theirs = type(config).__module__.startswith("ray.rllib.")
    for ours in () if theirs else classes:
        if isinstance(config, type(ours.plain_algo_class.get_default_config())):
            raise ConfigError(
                f"{type(config).__name__} is a config of your own: derive it, and its algorithm "
                f"and learner, from rllib_rise's {ours.__name__} and its companions"
            )
    names = ", ".join(ours.plain_algo_class.__name__ for ours in classes)
    raise ConfigError(
        f"{type(config).__name__}: intrinsic rewards are for algorithms that learn online from "
        f"rewards in RLlib's new API stack: {names}. Offline algorithms do not explore, "
        "and others compute their rewards themselves"
    )
