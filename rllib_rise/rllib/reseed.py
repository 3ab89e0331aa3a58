"""Other random numbers for a run that goes on.

RLlib keeps no state of random generators: env runners that are built again begin with the config's
seed, and so with the episodes that the run began with, after every restart the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from ray.rllib.utils.debug import update_global_seed_if_necessary


def reseed_env_runners(algorithm: Any, number: int) -> None:
    """Seed environments and exploration by the config's seed and a number, e.g. of steps so far.

    Before the first step. Runs that go on from one checkpoint still begin alike.
    """
    algorithm.env_runner_group.foreach_env_runner(partial(_reseed, number=number))


def _reseed(env_runner: Any, number: int) -> None:
    # Runs on the env runner. The environments get their seeds with the first reset.
    if env_runner._seed is None:
        return
    (drawn,) = np.random.SeedSequence([env_runner._seed, number]).generate_state(1)
    env_runner._seed = int(drawn) // 2  # environments add their number, and stay below 2^32
    update_global_seed_if_necessary("torch", env_runner._seed)
