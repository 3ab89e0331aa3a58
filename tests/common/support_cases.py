"""The ways of training that are supported, and those that are refused: what the docs' table shows.

Every case is run for every algorithm, by `tests/rllib/test_support.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors_for_tests import Shift, shifted
from dict_modules import MODULES, first_two, place
from envs_for_tests import (
    ContinuousDictObservations,
    ContinuousNoise,
    DictObservations,
    Noise,
    TwoAgents,
    TwoContinuousAgents,
)
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from small_algorithms import ASYNCHRONOUS, NAMES, OFF_POLICY, small

WORKS = "yes"
REFUSED = "refused"
ABSENT = "-"
# Rows of tests of their own, which every algorithm passes.
FOR_ALL = {
    "test_after_a_restore_the_bonus_is_the_same": "save, restore, go on with the same bonus",
    "test_a_grid_over_alpha": "a Tune grid over alpha",
}


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: What it says in the table.
        make: From an algorithm's name to its config.
        refused: Algorithms for which our config refuses it, and words of the error.
        absent: Algorithms of which RLlib has no such thing, and words of RLlib's own error.
        modules: Those that get a bonus.
        plain: Modules that are trained without one.
        episode_return: The extrinsic one, where it is not the usual.
        restored: Whether to save, restore and go on.
        counted: Whether the bonus enters as it is, and so can be counted in the rewards.
        slow: Whether it has so many processes that it belongs to the slow tests everywhere.
    """

    name: str
    make: Callable[[str], Any]
    refused: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ("default_policy",)
    plain: tuple[str, ...] = ()
    episode_return: float = 20.0
    restored: bool = False
    counted: bool = True
    slow: bool = True

    def outcome(self, algorithm: str) -> str:
        """What the table says."""
        if algorithm in self.refused:
            return REFUSED
        return ABSENT if algorithm in self.absent else WORKS


def _two_agents(algorithm: str, policies: set[str], **kwargs: Any) -> Any:
    env = TwoContinuousAgents if algorithm == "SAC" else TwoAgents
    config = small(algorithm, env, **kwargs).multi_agent(
        policies=policies,
        policy_mapping_fn=lambda agent, *args, **kwargs: agent if agent in policies else "all",
    )
    if algorithm in OFF_POLICY:
        buffer = {"type": "MultiAgentPrioritizedEpisodeReplayBuffer", "capacity": 2000}
        config.training(replay_buffer_config={"alpha": 0.6, "beta": 0.4, **buffer})
    return config


def _images(algorithm: str) -> Any:
    config = small(algorithm, ContinuousNoise if algorithm == "SAC" else Noise)
    filters = {"conv_filters": [[4, 3, 2], [4, 3, 2]], "fcnet_hiddens": [16]}
    return config.rl_module(model_config=filters).rise(k=3, encoder="identity")


def _dicts(algorithm: str) -> Any:
    return small(algorithm, ContinuousDictObservations if algorithm == "SAC" else DictObservations)


def _flattened(algorithm: str) -> Any:
    return _dicts(algorithm).env_runners(
        env_to_module_connector=lambda env, spaces, device: FlattenObservations()
    )


def _state_function(algorithm: str) -> Any:
    spec = RLModuleSpec(module_class=MODULES[algorithm])
    return _dicts(algorithm).rl_module(rl_module_spec=spec).rise(state=place)


def _lstm(algorithm: str, **kwargs: Any) -> Any:
    config = small(algorithm, **kwargs)
    layers = {"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 6}
    if algorithm == "DQN":  # RLlib's works with one environment and uniform replay only
        config.env_runners(num_envs_per_env_runner=1)
        config.training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 2000})
    return config.rl_module(model_config=layers)


def _n_step(algorithm: str) -> Any:
    return small(algorithm).training(n_step=3)


def _scaled_n_step(algorithm: str) -> Any:
    return _n_step(algorithm).rise(n_step_scaling=True)


def _uniform_replay(algorithm: str) -> Any:
    return small(algorithm).training(
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 2000}
    )


def _connector(algorithm: str) -> Any:
    config = small(algorithm).rise(state=shifted)
    return config.env_runners(env_to_module_connector=lambda env, spaces, device: Shift())


_no_replay = dict.fromkeys(("PPO", "APPO", "IMPALA"), "unexpected keyword argument")
_no_order = dict.fromkeys(OFF_POLICY, "the order of transitions within episodes")
_no_episodes = dict.fromkeys(OFF_POLICY, "episodes that can be told apart across batches")
_no_policy = dict.fromkeys(OFF_POLICY, "the distributions that actions were drawn from")
_own_pace = dict.fromkeys(ASYNCHRONOUS, "num_learners=2")
_synchronous = dict.fromkeys(sorted({*NAMES} - {*ASYNCHRONOUS}), "APPO and IMPALA only")

CASES = (
    Case("one process: no actors", small, slow=False),
    Case(
        "2 env runners, 1 learner, as actors",
        lambda name: small(name, runners=2, learners=1),
        restored=True,
    ),
    Case("2 learners (DDP), 1 env runner", lambda name: small(name, runners=1, learners=2)),
    Case(
        "2 learners with `standardize` and `clock: updates`",
        lambda name: small(name, learners=2).rise(standardize=True, clock="updates", kappa=0.1),
        refused=dict.fromkeys(ASYNCHRONOUS, "running statistics.* and clock='updates'"),
        counted=False,
    ),
    Case(
        "2 learners with RND, or another model that learns",
        lambda name: small(name, learners=2).intrinsic(method="rnd"),
        refused=_own_pace,
        counted=False,
    ),
    Case(
        "an aggregator actor, 1 learner, 1 env runner",
        lambda name: small(name, runners=1, learners=1, aggregators=1),
        refused=_synchronous,
    ),
    Case(
        "an aggregator actor, several modules",
        lambda name: _two_agents(name, {"often", "seldom"}, learners=1, aggregators=1),
        refused=_synchronous,
        modules=("often", "seldom"),
        episode_return=30.0,
    ),
    Case(
        "an aggregator actor, recurrent modules",
        lambda name: _lstm(name, learners=1, aggregators=1),
        refused=_synchronous,
    ),
    Case(
        "several modules",
        lambda name: _two_agents(name, {"often", "seldom"}),
        modules=("often", "seldom"),
        episode_return=30.0,
        restored=True,
    ),
    Case(
        "several modules, 2 learners",
        lambda name: _two_agents(name, {"often", "seldom"}, learners=2),
        modules=("often", "seldom"),
        episode_return=30.0,
    ),
    Case(
        "agents that share a module",
        lambda name: _two_agents(name, {"all"}),
        modules=("all",),
        episode_return=30.0,
    ),
    Case(
        "chosen modules only (`modules`)",
        lambda name: _two_agents(name, {"often", "seldom"}).rise(modules=["seldom"]),
        modules=("seldom",),
        plain=("often",),
        episode_return=30.0,
    ),
    Case("images as bytes", _images),
    Case("dicts, flattened by a connector", _flattened),
    Case("dicts, with a function for the state", _state_function),
    Case(
        "dicts as they are",
        _dicts,
        refused=dict.fromkeys(NAMES, "FlattenObservations"),
        slow=False,
    ),
    Case("a user's connector", _connector),
    Case("recurrent modules (LSTM)", _lstm, absent={"SAC": "shapes"}, restored=True),
    Case(
        "recurrent modules, 2 learners",
        lambda name: _lstm(name, learners=2),
        absent={"SAC": "shapes"},
    ),
    Case(
        "recurrent modules with a function for the state",
        lambda name: _lstm(name).rise(state=first_two),
        absent={"SAC": "shapes"},
    ),
    Case("uniform replay", _uniform_replay, absent=_no_replay),
    Case(
        "n-step returns",
        _n_step,
        refused=dict.fromkeys(OFF_POLICY, "n_step_scaling"),
        absent=_no_replay,
        slow=False,
    ),
    Case("n-step returns with `n_step_scaling`", _scaled_n_step, absent=_no_replay, counted=False),
    Case(
        "neighbours within episodes (`particles: episode`)",
        lambda name: small(name).rise(particles="episode", k=3),
        refused=_no_order,
        slow=False,
    ),
    Case(
        "counts and memories per episode (RIDE, NGU)",
        lambda name: small(name).intrinsic(method="ride"),
        refused=_no_episodes,
        counted=False,
        slow=False,
    ),
    Case(
        "the policy's entropy as a reward (`zeta`)",
        lambda name: small(name).rise(zeta=0.5),
        refused=_no_policy,
        counted=False,
        slow=False,
    ),
)
