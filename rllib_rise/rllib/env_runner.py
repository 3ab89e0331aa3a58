"""RLlib's env runner with a faster way to the same episodes.

RLlib appends every step of every environment to lists, and sends each through two pipelines of
connectors, one small Python object at a time. Where the pipelines are the default ones, all of it
can be done for all environments at once: what comes out is equal to the last bit.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors import env_to_module, module_to_env
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.env_runner import ENV_STEP_FAILURE
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.metrics import RLMODULE_INFERENCE_TIMER, WEIGHTS_SEQ_NO
from ray.rllib.utils.numpy import convert_to_numpy
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action
from ray.rllib.utils.torch_utils import convert_to_torch_tensor

from rllib_rise.errors import ConfigError
from rllib_rise.rllib.callbacks import EpisodeFigures
from rllib_rise.rllib.connector import FiniteInputsConnector

# RLlib's pipelines where nobody has added a piece or taken one out; ours ends with one more.
_TO_MODULE = [
    env_to_module.AddObservationsFromEpisodesToBatch,
    env_to_module.AddTimeDimToBatchAndZeroPad,
    env_to_module.AddStatesFromEpisodesToBatch,
    env_to_module.BatchIndividualItems,
    env_to_module.NumpyToTensor,
]
_TO_ENV = [
    module_to_env.GetActions,
    module_to_env.TensorToNumpy,
    module_to_env.UnBatchToIndividualItems,
    module_to_env.RemoveSingleTsTimeRankFromBatch,
    module_to_env.NormalizeAndClipActions,
    module_to_env.ListifyDataForVectorEnv,
]
_EPISODE_EVENTS = (
    *("on_episode_created", "on_episode_start", "on_episode_step"),
    "on_episode_end",
)


class _NotPlainError(Exception):
    """A module says more about its actions than a row each of arrays."""


class ArrayEnvRunner(SingleAgentEnvRunner):
    """Samples by arrays where nothing of the user's wants to see single steps.

    Else, and with `config.env_runners(env_runner_cls=SingleAgentEnvRunner)`, RLlib's own way. Of
    RLlib's timers those of single connectors are absent.
    """

    _cached_to_module: Any
    _needs_initial_reset: bool

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[SingleAgentEpisode]:
        if not num_timesteps or random_actions or not self._plain:
            return super()._sample(
                num_timesteps=num_timesteps,
                num_episodes=num_episodes,
                explore=explore,
                random_actions=random_actions,
                force_reset=force_reset,
            )
        if force_reset or self._needs_initial_reset:
            self._reset_envs_and_episodes(explore)
        done: list[SingleAgentEpisode] = []
        steps = None
        # Else RLlib would switch all layers to evaluation and back for every step.
        was_training = self.module.training
        self.module.eval()
        try:
            while steps is None:  # an environment that failed was made anew, and all begin again
                record, steps = self._roll_out(num_timesteps, explore, done)
        except _NotPlainError:
            self._plain = False
            return super()._sample(num_timesteps=num_timesteps, explore=explore)
        except BaseException:
            # What was sampled is lost, and environments stand somewhere.
            self._needs_initial_reset = True
            raise
        finally:
            self.module.train(was_training)
        self._done_episodes_for_metrics.extend(done)
        going_on = []
        for index, episode in enumerate(self._ongoing_episodes):
            if not episode.is_reset and not record.begun[index]:
                continue
            record.fill(episode, index)
            self._ongoing_episodes[index] = _continued(
                episode, self.config.episode_lookback_horizon
            )
            if episode.t > 0:
                self._ongoing_episodes_for_metrics[episode.id_].append(_Sampled.of(episode))
                going_on.append(episode)
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=steps)
        self._increase_sampled_metrics(steps, len(done))
        return done + going_on

    @cached_property
    def _plain(self) -> bool:
        """Whether connectors, callbacks, module and spaces are such that steps may be batched."""
        to_module = [type(piece) for piece in self._env_to_module.connectors]
        to_env = [type(piece) for piece in self._module_to_env.connectors]
        others = {type(one) for one in self._callbacks} - {EpisodeFigures}
        watched = any(
            getattr(cls, event) is not getattr(RLlibCallback, event)
            for cls in others
            for event in _EPISODE_EVENTS
        )
        functions = any(getattr(self.config, f"callbacks_{event}") for event in _EPISODE_EVENTS)
        return (
            not watched
            and not functions
            and self.episodes_to_numpy
            and self.config.episode_lookback_horizon <= 1
            and isinstance(self.module, TorchRLModule)
            and not self.module.is_stateful()
            and isinstance(self.env.single_observation_space, gym.spaces.Box)
            and isinstance(self.env.single_action_space, (gym.spaces.Box, gym.spaces.Discrete))
            and to_module in (_TO_MODULE, [*_TO_MODULE, FiniteInputsConnector])
            and to_env == _TO_ENV
        )

    def _roll_out(
        self, num_timesteps: int, explore: bool, done: list[SingleAgentEpisode]
    ) -> tuple[_Record, int | None]:
        """Step all environments; the number of steps is None where one of them failed."""
        length = math.ceil(num_timesteps / self.num_envs)
        record = _Record(list(self._ongoing_episodes), length)
        waiting, names = ~record.begun, set[str]()
        to_module, steps, seconds = self._cached_to_module, 0, 0.0
        last, dtype = self._env_to_module.connectors[-1], self.env.single_observation_space.dtype
        finite = last if isinstance(last, FiniteInputsConnector) and dtype.kind == "f" else None
        while steps < num_timesteps:
            started = time.perf_counter()
            outputs = self._act(to_module, explore, steps)
            seconds += time.perf_counter() - started
            if record.steps == 0:
                names = set(outputs)
                if not all(_is_column(value, self.num_envs) for value in outputs.values()):
                    raise _NotPlainError
            elif set(outputs) != names:
                raise ConfigError(
                    f"{type(self.module).__name__} returned {sorted(outputs)} for one step and "
                    f"{sorted(names)} for another: always return the same, or set "
                    "env_runners(env_runner_cls=SingleAgentEnvRunner)"
                )
            actions = outputs.pop(Columns.ACTIONS)
            results = self._try_env_step(self._for_env(actions))
            if isinstance(results, str) and results == ENV_STEP_FAILURE:
                self._reset_envs_and_episodes(explore)
                return record, None
            observations, rewards, terminateds, truncateds, infos = results
            outputs[WEIGHTS_SEQ_NO] = np.full(self.num_envs, self._weights_seq_no)
            outputs |= {Columns.ACTIONS: actions, Columns.REWARDS: rewards}
            record.add(observations, infos, outputs)
            for index in np.flatnonzero(waiting).tolist():
                record.begin(index)
            over = (terminateds | truncateds) & ~waiting
            steps += int(self.num_envs - waiting.sum())
            for index in np.flatnonzero(over).tolist():
                episode = self._ongoing_episodes[index]
                record.fill(episode, index, terminateds[index], truncateds[index])
                self._make_on_episode_callback("on_episode_end", index, self._ongoing_episodes)
                done.append(episode)
                self._new_episode(index, self._ongoing_episodes)
                record.begun[index] = False
            waiting = over
            inputs = np.array(observations)
            to_module = {Columns.OBS: convert_to_torch_tensor(inputs, device=self._device)}
            # Where their sum is finite all are, and NumPy's calls are shorter than torch's.
            if finite is not None and not math.isfinite(inputs.sum()):
                to_module = finite(batch=to_module)
        self._cached_to_module = to_module
        self.metrics.log_value(RLMODULE_INFERENCE_TIMER, seconds / max(1, record.steps))
        return record, steps

    def _act(self, to_module: Mapping[str, Any], explore: bool, steps: int) -> dict[str, Any]:
        """Actions and what else the module says about them, as arrays."""
        module, runners = self.module, self.config.num_env_runners or 1
        if explore:
            lifetime = (self.num_env_steps_sampled_lifetime // runners + steps) * runners
            outputs = module.forward_exploration(to_module, t=lifetime)
        else:
            outputs = module.forward_inference(to_module)
        self._module_to_env.connectors[0](
            rl_module=module, batch=outputs, episodes=[None], explore=explore
        )
        return {name: _array(value) for name, value in outputs.items()}

    def _for_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The actions as the environment wants them."""
        piece = self._module_to_env.connectors[_TO_ENV.index(module_to_env.NormalizeAndClipActions)]
        if piece.normalize_actions:
            return unsquash_action(actions, self.env.single_action_space)
        if piece.clip_actions:
            return clip_action(actions, self.env.single_action_space)
        return actions


@dataclass(frozen=True)
class _Sampled:
    """What RLlib's metrics ask of a chunk of an episode that goes on.

    RLlib keeps the chunk itself until the episode ends: all observations of a long game.
    """

    length: int
    total: float
    seconds: float

    @classmethod
    def of(cls, episode: SingleAgentEpisode) -> _Sampled:
        return cls(len(episode), episode.get_return(), episode.get_duration_s())

    def __len__(self) -> int:
        return self.length

    def get_return(self) -> float:
        return self.total

    def get_duration_s(self) -> float:
        return self.seconds


class _Record:
    """What happened to all environments since sampling began: arrays `[envs, slots, ...]`.

    Slot t holds an observation and what was done on it; the next observation is in slot t + 1. The
    first slots are for the lookback buffers of episodes that go on. Episodes become views of these
    arrays, which are never written to again.
    """

    def __init__(self, episodes: Sequence[SingleAgentEpisode], length: int) -> None:
        lookbacks = np.array([len(episode.actions.data) for episode in episodes])
        self._origin = self._now = int(lookbacks.max())
        self._size = self._origin + length + 2
        #: Which environments have an episode; the others wait for their reset.
        self.begun = np.array([episode.is_reset for episode in episodes])
        self._first = self._origin - lookbacks  # slots with the lookback buffer, and without
        self._start = np.full(len(episodes), self._origin)
        self._before = episodes
        self._columns: dict[str, NDArray[Any]] = {}
        self._infos: list[list[dict[str, Any]]] = []
        self._times: list[float] = []

    @property
    def steps(self) -> int:
        """How many were noted."""
        return len(self._infos)

    def add(
        self, obs: NDArray[Any], infos: list[dict[str, Any]], columns: Mapping[str, NDArray[Any]]
    ) -> None:
        """Note one step of all environments: what was done, and what came of it."""
        if not self._columns:
            self._open({Columns.OBS: obs, **columns})
        elif self._now + 2 > self._size:
            self._grow()
        for name, values in columns.items():
            self._columns[name][:, self._now] = values
        self._now += 1
        self._columns[Columns.OBS][:, self._now] = obs
        self._infos.append(infos)
        self._times.append(time.perf_counter())

    def begin(self, index: int) -> None:
        """The last step was a reset: an episode begins with what came of it."""
        self.begun[index] = True
        self._first[index] = self._start[index] = self._now

    def fill(self, episode: SingleAgentEpisode, index: int, *flags: bool) -> None:
        """Give an episode all that happened in its environment since it began."""
        first, start = int(self._first[index]), int(self._start[index])
        fresh = not episode.is_reset  # its reset was one of the steps noted here
        step = start - self._origin
        infos = [] if fresh else list(episode.infos.data)
        infos += [noted[index] or {} for noted in self._infos[step - fresh :]]
        episode.infos.data = infos
        self._set(episode.observations, Columns.OBS, index, first, self._now + 1)
        length = self._now - start
        if length == 0:
            return
        self._set(episode.actions, Columns.ACTIONS, index, first, self._now)
        self._set(episode.rewards, Columns.REWARDS, index, first, self._now)
        for name in self._columns.keys() - {Columns.OBS, Columns.ACTIONS, Columns.REWARDS}:
            buffer = episode.extra_model_outputs.setdefault(name, InfiniteLookbackBuffer())
            # A lookback buffer may lack what only this policy says.
            self._set(buffer, name, index, start - len(buffer.data), self._now)
        episode.t += length
        episode.is_terminated, episode.is_truncated = flags or (np.False_, np.False_)
        episode._start_time, episode._last_step_time = self._times[step], self._times[-1]

    def _set(
        self, buffer: InfiniteLookbackBuffer, name: str, index: int, first: int, end: int
    ) -> None:
        buffer.data, buffer.finalized = self._columns[name][index, first:end], True

    def _open(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Make the arrays, and put the lookback buffers and present observations into them."""
        for name, values in columns.items():
            shape = (values.shape[0], self._size, *values.shape[1:])
            self._columns[name] = np.empty(shape, dtype=values.dtype)
        for index, episode in enumerate(self._before):
            kept = {
                Columns.OBS: episode.observations,
                Columns.ACTIONS: episode.actions,
                Columns.REWARDS: episode.rewards,
                **episode.extra_model_outputs,
            }
            for name, buffer in kept.items():
                first = self._origin + (name == Columns.OBS) - len(buffer.data)
                for slot, value in enumerate(buffer.data, start=first):
                    if name in self._columns:
                        self._columns[name][index, slot] = value

    def _grow(self) -> None:
        """Twice the slots: resets take steps of their own."""
        for name, values in self._columns.items():
            self._columns[name] = np.concatenate((values, np.empty_like(values)), axis=1)
        self._size *= 2


def _array(value: Any) -> Any:
    """As RLlib converts it, without its search for nested values where there are none."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.dim() > 0:
        return value.numpy(force=True)
    return convert_to_numpy(value)


def _is_column(value: Any, num_envs: int) -> bool:
    return isinstance(value, np.ndarray) and value.shape[:1] == (num_envs,)


def _continued(episode: SingleAgentEpisode, lookback: int) -> SingleAgentEpisode:
    """The episode's next chunk, which begins where it was cut; in lists, as RLlib has it."""
    lookback = min(lookback, len(episode))
    following = SingleAgentEpisode(
        id_=episode.id_,
        observations=_last(episode.observations, lookback + 1),
        observation_space=episode.observation_space,
        infos=_last(episode.infos, lookback + 1),
        actions=_last(episode.actions, lookback),
        action_space=episode.action_space,
        rewards=_last(episode.rewards, lookback),
        extra_model_outputs={
            name: _last(buffer, lookback) for name, buffer in episode.extra_model_outputs.items()
        },
        t_started=episode.t,
        len_lookback_buffer="auto",
    )
    following._custom_data = copy.deepcopy(episode.custom_data)
    return following


def _last(buffer: InfiniteLookbackBuffer, number: int) -> list[Any]:
    """The last values; copies, for whoever gets the episode may write to it."""
    return list(buffer.data[len(buffer.data) - number :].copy())
