"""Small environments whose truth is known."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from ray.rllib.env.multi_agent_env import MultiAgentEnv

EPISODE = 20


class ConstantReward(gym.Env):
    """Reward 1 at every step for 20 steps: the true return is 20. Observations walk at random.

    `kind` may change what is observed, or what happens where a process makes a second set of them.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    made: ClassVar[Counter[str]] = Counter()
    nan_shown = False

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.kind = (config or {}).get("kind", "walk")
        self.made[self.kind] += 1
        second = self.made[self.kind] > 3  # RLlib makes one to look at it, then two to step
        on_second_runner = getattr(config, "worker_index", 0) == 2
        fails = self.kind == "second fails" or (self.kind == "one fails" and on_second_runner)
        if fails and second:
            raise RuntimeError("no second environment here")
        self.hangs = self.kind == "second hangs" and second and on_second_runner

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.steps, self.position = 0, np.zeros(3, np.float32)
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        if self.hangs:
            time.sleep(3600)
        if self.kind == "echo":
            self.position = np.full(3, action, np.float32)
            return self._observe(), 1.0, self.steps >= EPISODE, False, {}
        self.position = self.position + self.np_random.normal(size=3).astype(np.float32)
        return self._observe(), 1.0, self.steps >= EPISODE, False, {}

    def _observe(self) -> np.ndarray:
        if self.kind == "constant":
            return np.zeros(3, np.float32)
        if self.kind == "nan" and self.steps == 7:
            return np.array([0, np.nan, np.inf], np.float32)
        if self.kind == "one nan" and self.steps == 7 and not ConstantReward.nan_shown:
            ConstantReward.nan_shown = True
            return np.full(3, np.nan, np.float32)
        return self.position.copy()


class ContinuousReward(ConstantReward):
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)


class DictObservations(ConstantReward):
    """The place twice, as a position and as noise around it that is larger than all distances."""

    observation_space = gym.spaces.Dict(
        {
            "noise": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "place": gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        }
    )

    def _observe(self):
        noise = 1000 * self.np_random.normal(size=2).astype(np.float32)
        return {"noise": noise, "place": self.position.copy()}


class ContinuousDictObservations(DictObservations):
    action_space = ContinuousReward.action_space


class Countdown(ConstantReward):
    """Images that show the number of the step: every pixel of `[6, 6, 1]` is it."""

    observation_space = gym.spaces.Box(0, 255, (6, 6, 1), np.uint8)

    def _observe(self) -> np.ndarray:
        return np.full((6, 6, 1), self.steps, np.uint8)


class Noise(ConstantReward):
    """Small images of which no two are alike."""

    observation_space = gym.spaces.Box(0, 255, (6, 6, 1), np.uint8)

    def _observe(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (6, 6, 1), dtype=np.uint8)


class ContinuousNoise(Noise):
    action_space = ContinuousReward.action_space


class RandomFrames(ConstantReward):
    """Bytes as Atari's stacked frames have them."""

    observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)

    def _observe(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (84, 84, 4), dtype=np.uint8)


class TwoAgents(MultiAgentEnv):
    """`often` acts at every step, `seldom` at every second; observations are noise."""

    possible_agents = agents = ["often", "seldom"]  # noqa: RUF012
    observation_spaces = dict.fromkeys(possible_agents, gym.spaces.Box(-9, 9, (2,), np.float32))
    action_spaces = dict.fromkeys(possible_agents, gym.spaces.Discrete(2))

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.random = np.random.default_rng((config or {}).get("seed", 0))

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.steps = 0
        return self._observe(), {}

    def step(self, actions):
        self.steps += 1
        over = self.steps >= EPISODE
        observed = self._observe(all_of_them=over)
        rewards = dict.fromkeys(observed, 1.0)
        return observed, rewards, {"__all__": over}, {"__all__": False}, {}

    def _observe(self, all_of_them: bool = False):
        acting = self.agents if all_of_them or self.steps % 2 == 0 else ["often"]
        return {agent: self.random.normal(size=2).astype(np.float32) for agent in acting}


class TwoContinuousAgents(TwoAgents):
    action_spaces = dict.fromkeys(TwoAgents.possible_agents, ContinuousReward.action_space)


class ActionReward(gym.Env):
    """Pays the number of the action for 10 steps."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), float(action), self.steps >= 10, False, {}


class DrawnActionReward(ActionReward):
    """The same with pictures, which are as gray as the number of the step times ten."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> np.ndarray:
        return np.full((20, 30, 3), 10 * self.steps, np.uint8)


gym.register(id="tests/ActionReward-v0", entry_point=ActionReward)
gym.register(id="tests/DrawnActionReward-v0", entry_point=DrawnActionReward)
