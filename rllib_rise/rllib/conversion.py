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
        plain = ours.plain_algo_class
        if type(config) is type(plain.get_default_config()) and config.algo_class is plain:
            return ours
    # Of RLlib's own there are algorithms that derive from others.
    theirs = type(config).__module__.startswith("ray.rllib.")
    for ours in classes:
        plain = ours.plain_algo_class
        related = isinstance(config, type(plain.get_default_config()))
        if related and not (theirs and config.algo_class.__module__.startswith("ray.rllib.")):
            raise ConfigError(
                f"{type(config).__name__} of {config.algo_class.__name__} is your own: derive "
                f"config, algorithm and learner from {ours.__name__} and its companions"
            )
    names = ", ".join(ours.plain_algo_class.__name__ for ours in classes)
    raise ConfigError(
        f"{type(config).__name__}: intrinsic rewards are there for {names}. Offline algorithms do "
        "not explore, DreamerV3 learns from rewards that it dreams, and no other has been carried "
        "over"
    )
