"""RLeXplore's RE3 (package `rllte-core`), for the benchmark only.

Its package imports everything that it has, so that it does not load without two dozen others. The
files of the reward itself need none of them: they are loaded without their packages' `__init__`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

INSTALL = "pip install --no-deps rllte-core"
_PACKAGES = (
    "rllte",
    "rllte.common",
    "rllte.common.prototype",
    "rllte.xplore",
    "rllte.xplore.reward",
)


def rlexplore_re3(points: Tensor, k: int) -> Callable[[], Tensor] | None:
    """RLeXplore's reward for embeddings `[steps, envs, m]`; None where the package is not there.

    The embeddings are observations, and the encoder passes them on: what is timed is the reward
    alone, as it is on our side.
    """
    spec = importlib.util.find_spec("rllte")
    if spec is None or spec.submodule_search_locations is None:
        return None
    steps, envs, m = points.shape
    reward = _load(Path(next(iter(spec.submodule_search_locations)))).RE3(
        _Spaces(envs, m),
        k=k,
        latent_dim=m,
        storage_size=steps,
        obs_norm_type="none",
        rwd_norm_type="none",
    )
    reward.random_encoder = nn.Identity()
    nothing = torch.zeros(envs)
    for row in points:
        reward.watch(row, nothing, nothing, nothing, nothing, row)
    names = ("actions", "rewards", "terminateds", "truncateds", "next_observations")
    samples = {"observations": points, **dict.fromkeys(names, points[..., 0])}
    return lambda: reward.compute(samples)


class _Spaces(gym.vector.VectorEnv):
    """All that the reward wants to know of the environments."""

    def __init__(self, num_envs: int, size: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)


def _load(root: Path) -> Any:
    """The module of the reward; what was loaded for it is not left behind."""
    before = dict(sys.modules)
    try:
        for name in _PACKAGES:
            package = ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = package
        base = importlib.import_module("rllte.common.prototype.base_reward")
        sys.modules["rllte.common.prototype"].BaseReward = base.BaseReward  # type: ignore[attr-defined]
        return importlib.import_module("rllte.xplore.reward.re3")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "rllte"]:
            if name not in before:
                del sys.modules[name]
