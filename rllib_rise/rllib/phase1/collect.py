"""The env runner's part of Phase 1: steps that leave no trace.

A second env runner is made inside the first one's process, with environments, connectors, counters
and metrics of its own, and thrown away afterwards. The random streams of the process, which both
use, are put back. So training begins exactly as if nothing had happened.

RLlib sleeps a minute and ends an env runner whose function raises: these return errors as text.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import ray
import torch
from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_rise.errors import first_cause

# Phase 1 has episodes of its own, not those that training begins with.
_SEED_OFFSET = 500_000
_GUEST = "_rise_phase1_guest"


def collect(env_runner: Any, *, num_steps: int, round_number: int) -> dict[str, Any]:
    """Take about `num_steps` steps with the present policy, exploring.

    Successive calls go on with the same episodes.

    Args:
        env_runner: The env runner.
        num_steps: How many.
        round_number: Of the call: a guest that is made again has other episodes than before.

    Returns:
        The `runner`'s number, `steps` that were taken and their `episodes`, as a reference to the
        object store where the runner is remote; or `error`.
    """
    runner = env_runner.worker_index
    try:
        with _OwnRandomness(env_runner):
            guest = getattr(env_runner, _GUEST, None)
            if guest is None:
                guest = _make_guest(env_runner, seed_offset=_SEED_OFFSET + 1000 * round_number)
                setattr(env_runner, _GUEST, guest)
            episodes = guest.sample(num_timesteps=num_steps, explore=True)
            guest.get_metrics()
        steps = sum(episode.env_steps() for episode in episodes)
        kept = ray.put(episodes) if runner else episodes
        return {"runner": runner, "steps": steps, "episodes": kept}
    except Exception as error:
        dismiss(env_runner)  # or the next call would go on with what failed
        return {"runner": runner, "steps": 0, "error": first_cause(error)}


def dismiss(env_runner: Any) -> None:
    """Throw the second env runner away."""
    try:
        guest = getattr(env_runner, _GUEST, None)
        if guest is not None:
            delattr(env_runner, _GUEST)
            with _OwnRandomness(env_runner):
                guest.stop()
            delattr(env_runner, _OwnRandomness.ATTRIBUTE)
    except Exception:
        return


def _make_guest(env_runner: Any, seed_offset: int) -> Any:
    config = env_runner.config.copy(copy_frozen=False)
    config.callbacks_class = RLlibCallback
    for name in vars(config):
        if name.startswith("callbacks_on_"):
            setattr(config, name, None)
    if config.seed is not None:
        config.seed += seed_offset
    with warnings.catch_warnings():
        # RLlib registers the environment once more, under the same name.
        warnings.filterwarnings("ignore", message=".*already in registry.*")
        guest = type(env_runner)(
            config=config,
            worker_index=env_runner.worker_index,
            num_workers=env_runner.num_workers,
            spaces=env_runner.spaces,
        )
    guest.module.set_state(env_runner.module.get_state())
    # Statistics of stateful connectors, such as running means of observations.
    guest._env_to_module.set_state(env_runner._env_to_module.get_state())
    guest._module_to_env.set_state(env_runner._module_to_env.get_state())
    return guest


class _OwnRandomness:
    """Exchanges the process' random streams for the guest's, and back."""

    ATTRIBUTE = "_rise_phase1_randomness"

    def __init__(self, env_runner: Any) -> None:
        self._env_runner = env_runner

    def __enter__(self) -> None:
        self._host = _get_randomness()
        guest = getattr(self._env_runner, self.ATTRIBUTE, None)
        if guest is not None:
            _set_randomness(guest)

    def __exit__(self, *error: object) -> None:
        setattr(self._env_runner, self.ATTRIBUTE, _get_randomness())
        _set_randomness(self._host)


def _get_randomness() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
    }


def _set_randomness(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state_all(state["cuda"])
