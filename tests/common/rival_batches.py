"""Small bonuses, and batches for them."""

from __future__ import annotations

import gymnasium as gym
import torch

from rllib_rise.bonuses import ICM, NGU, RIDE, RND, Bonus, MaxRenyi, Transitions, parse_settings

MOVES = gym.spaces.Discrete(4)
LEARNED = (RND, ICM, RIDE, NGU, MaxRenyi)
ACTING = (ICM, RIDE, NGU)


def make(cls: type[Bonus], shape: tuple[int, ...] = (2,), seed: int = 0, **values) -> Bonus:
    spaces = {"action_space": values.pop("action_space", MOVES)} if cls in ACTING else {}
    return cls(parse_settings(cls, values), shape, seed=seed, **spaces)


def walk(*points: tuple[float, float], episode: int = 0, done: bool = False) -> Transitions:
    """A walk over the points, one step each, as one chunk of an episode."""
    path = torch.tensor(points, dtype=torch.float32)
    steps = len(path) - 1
    over = torch.zeros(steps, dtype=torch.bool)
    over[-1] = done
    return Transitions(
        obs=path[:-1],
        next_obs=path[1:],
        actions=torch.arange(steps) % 4,
        episode_ids=torch.full((steps,), episode),
        done=over,
    )


def wander(count: int, *, seed: int = 0, size: int = 2, episode: int = 0) -> Transitions:
    generator = torch.Generator().manual_seed(seed)
    path = torch.randn(count + 1, size, generator=generator)
    return Transitions(
        obs=path[:-1],
        next_obs=path[1:],
        actions=torch.randint(0, 4, (count,), generator=generator),
        episode_ids=torch.arange(count) // 16 + episode,
        done=torch.arange(count) % 16 == 15,
    )


def rewarded(bonus: Bonus, batch: Transitions) -> torch.Tensor:
    rewards = bonus.reward(batch)
    bonus.update(batch)
    return rewards
