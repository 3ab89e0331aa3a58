"""What a fit of Phase 1 depends on, as a digest: runs with the same key share one fit."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from ray.tune.registry import ENV_CREATOR, _global_registry

from rllib_rise.encoders.files import ENCODER_VERSION
from rllib_rise.rllib.phase1.digest import digest

_PACKAGES = ("rllib_rise", "torch", "ray", "gymnasium", "numpy", "ale-py", "pybullet")
# What of a config decides which steps are taken, besides the policy, which counts by its weights.
_SETTINGS = (
    "env_config",
    "seed",
    "env_runner_cls",
    "num_env_runners",
    "num_envs_per_env_runner",
    "gym_env_vectorize_mode",
    "episode_lookback_horizon",
    "normalize_actions",
    "clip_actions",
    "_env_to_module_connector",
    "_module_to_env_connector",
    "_learner_connector",
    "add_default_connectors_to_env_to_module_pipeline",
    "add_default_connectors_to_module_to_env_pipeline",
    "add_default_connectors_to_learner_pipeline",
    "model_config",
    "policy_mapping_fn",
    "policies_to_train",
    "epsilon",
)


def fit_key(config: Any, *, shapes: Mapping[str, tuple[int, ...]], policy: str) -> str:
    """The name of a run's fit among all others.

    Args:
        config: The algorithm's.
        shapes: Of the observations of the modules that are to be fitted.
        policy: A digest of the weights that the steps are taken with.

    Raises:
        UndescribableError: Where the config holds something that only this process can know.
    """
    bonus_class, settings = config.intrinsic_method()
    key = {
        "env": _describe_env(config.env),
        "config": {name: getattr(config, name, None) for name in _SETTINGS},
        "modules": _describe_modules(config.rl_module_spec),
        "policy": policy,
        "method": bonus_class,
        "fits": {
            module_id: [shape, bonus_class.fit_settings(settings, shape)]
            for module_id, shape in shapes.items()
        },
        "state": settings.state,
        "versions": _versions(),
    }
    return digest(key)


def _versions() -> dict[str, str | int | None]:
    found: dict[str, str | int | None] = {"encoders": ENCODER_VERSION}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _describe_env(env: Any) -> list[Any]:
    """An environment by its id and by all that makes it."""
    known: list[Any] = [env]
    if not isinstance(env, str):
        return known
    if _global_registry.contains(ENV_CREATOR, env):
        known.append(_global_registry.get(ENV_CREATOR, env))
    try:
        spec = gym.spec(env)
    except gym.error.Error:
        return known
    maker = spec.entry_point
    maker = load_env_creator(maker) if isinstance(maker, str) else maker
    return [*known, maker, spec.kwargs, spec.max_episode_steps, spec.additional_wrappers]


def _describe_modules(spec: Any) -> Any:
    """Classes and settings of the networks; weights do not show all of them (activations)."""
    parts = getattr(spec, "rl_module_specs", None) or spec
    parts = parts if isinstance(parts, Mapping) else {"": parts}
    return {
        module_id: [getattr(part, "module_class", None), getattr(part, "model_config", None)]
        for module_id, part in parts.items()
    }
