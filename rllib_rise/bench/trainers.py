"""Something that trains, an iteration at a time: our PPO, and Stable-Baselines3's."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from torch import Tensor, nn

from rllib_rise.bench.contestants import OURS, OURS_PROFILED, STABLE_BASELINES
from rllib_rise.bench.parts import Parts
from rllib_rise.errors import MissingExtraError, RiseError
from rllib_rise.experiments.schema import Experiment, build_config, load_experiment
from rllib_rise.rllib.learner import IntrinsicLearnerMixin

INSTALL = "pip install -c constraints.txt -e '.[bench]'"
CONFIGS = Path(__file__).parents[2] / "configs"
_FIGURES = ("intrinsic_seconds", "intrinsic_megabytes")
TASKS = {"Atari": "atari/space_invaders.yaml", "Hopper": "bullet/hopper.yaml"}


class Trainer(Protocol):
    """A training under way."""

    #: What is to be told of its beginning.
    started: dict[str, Any]

    def iterate(self) -> None:
        """Sample a batch and learn from it."""

    def figures(self) -> dict[str, Any]:
        """What is to be told of the last iteration."""

    def close(self) -> None:
        """End it."""


def make_trainer(task_name: str, kind: str, changes: dict[str, Any]) -> Trainer:
    """The trainer of an `Entry`."""
    experiment = task(task_name, changes)
    if kind == STABLE_BASELINES:
        return StableBaselinesTrainer(experiment)
    if kind not in (OURS, OURS_PROFILED):
        raise ValueError(f"{kind!r} is no trainer")
    return OurTrainer(experiment, profiled=kind == OURS_PROFILED)


def task(name: str, changes: dict[str, Any]) -> Experiment:
    """The experiment behind a task's name."""
    path = CONFIGS / TASKS[name]
    if not path.exists():
        raise RiseError(f"{path} is not there: benchmarks run in a checkout of the repository")
    return load_experiment(path, [f"{key}={value}" for key, value in changes.items()])


def steps_per_iteration(experiment: Experiment) -> int:
    """Environment steps of one iteration."""
    return int(experiment.rllib["train_batch_size_per_learner"])


class RLlibPPOLearner(IntrinsicLearnerMixin, PPOTorchLearner):
    """RLlib's own learner with a bonus, to be compared with ours."""


class OurTrainer:
    """What `rise train` would train, Phase 1 behind it."""

    def __init__(self, experiment: Experiment, *, profiled: bool = False) -> None:
        config = build_config(experiment)
        self._algorithm = config.build_algo()
        phase1 = self._algorithm.prepare_intrinsic(lambda line: None) if config.uses_bonus else None
        self.started = {"phase1": phase1.seconds if phase1 else {}}
        self._parts = Parts(self._algorithm) if profiled else None
        self._last: dict[str, Any] = {}

    def iterate(self) -> None:
        """One training iteration."""
        self._last = self._algorithm.train()

    def figures(self) -> dict[str, Any]:
        """What the bonus took and keeps, and the parts of an iteration where they are watched."""
        learner = self._last["learners"]["default_policy"]
        parts = {"parts": self._parts.take()} if self._parts else {}
        return {name: float(learner[name]) for name in _FIGURES if name in learner} | parts

    def close(self) -> None:
        """Stop the algorithm."""
        self._algorithm.stop()


class StableBaselinesTrainer:
    """Stable-Baselines3's PPO with the networks, batches and epochs of an experiment of ours."""

    started: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, experiment: Experiment) -> None:
        if find_spec("stable_baselines3") is None:
            raise MissingExtraError(f"Stable-Baselines3 is not installed: {INSTALL}")
        from stable_baselines3 import PPO

        rllib, images = experiment.rllib, experiment.env.id == "rise/Atari-v0"
        steps = rllib["rollout_fragment_length"]
        self._envs = _atari(experiment) if images else _vector(experiment)
        networks: dict[str, Any] = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
        if images:
            networks = {
                "net_arch": [],
                "features_extractor_class": _paper_convolutions(),
                "share_features_extractor": False,
            }
        self._model = PPO(
            "CnnPolicy" if images else "MlpPolicy",
            self._envs,
            learning_rate=rllib["lr"],
            n_steps=steps,
            batch_size=rllib["minibatch_size"],
            n_epochs=rllib["num_epochs"],
            gamma=rllib["gamma"],
            gae_lambda=rllib["lambda_"],
            clip_range=rllib["clip_param"],
            ent_coef=rllib["entropy_coeff"],
            vf_coef=rllib["vf_loss_coeff"],
            max_grad_norm=rllib["grad_clip"],
            policy_kwargs=networks,
            device="cpu",
            seed=experiment.seed,
        )
        _, self._callback = self._model._setup_learn(10**9)
        self._steps = steps

    def iterate(self) -> None:
        """A rollout and its epochs."""
        model = self._model
        model.collect_rollouts(
            model.env,  # which puts channels first where they are last
            self._callback,
            model.rollout_buffer,
            n_rollout_steps=self._steps,
        )
        model.train()

    def figures(self) -> dict[str, Any]:
        """Nothing: it has no bonus."""
        return {}

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


def _atari(experiment: Experiment) -> Any:
    import ale_py
    import gymnasium as gym
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gym.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    game = experiment.env.kwargs["game"]
    count = experiment.rllib["num_envs_per_env_runner"]
    return VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", n_envs=count, seed=0), 4)


def _vector(experiment: Experiment) -> Any:
    from stable_baselines3.common.env_util import make_vec_env

    from rllib_rise.envs import bullet

    count = experiment.rllib["num_envs_per_env_runner"]
    return make_vec_env(lambda: bullet.make(experiment.env.id), n_envs=count, seed=0)


def _paper_convolutions() -> type:
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    from rllib_rise.rllib.modules import paper_network

    class PaperConvolutions(BaseFeaturesExtractor):
        """The layers of `PaperPPOModule`, as Stable-Baselines3 wants them."""

        def __init__(self, observation_space: Any) -> None:
            network, size = paper_network(observation_space.shape)
            super().__init__(observation_space, size)
            # Its own layout of memory is what its users have.
            self.network: nn.Module = network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

        def forward(self, observations: Tensor) -> Tensor:
            return self.network(observations)

    return PaperConvolutions
