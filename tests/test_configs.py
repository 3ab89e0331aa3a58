"""Every file under configs/ is valid, and those that need an extra train, or say which."""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import pytest
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rllib_rise.errors import ConfigError, MissingExtraError
from rllib_rise.experiments.run.train import train
from rllib_rise.experiments.schema import build_config, check, load_experiment

CONFIGS = Path(__file__).parents[1] / "configs"
FILES = sorted(CONFIGS.rglob("*.yaml"))
SPACE_INVADERS = CONFIGS / "atari" / "space_invaders.yaml"
HOPPER = CONFIGS / "bullet" / "hopper.yaml"


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_a_file_is_valid_for_every_method_that_it_names(path: Path):
    experiment = load_experiment(path)
    for method in ("none", experiment.method, *experiment.methods):
        check(experiment.with_method(method, seed=1))


@pytest.mark.parametrize(
    ("path", "package", "extra"),
    [(SPACE_INVADERS, "ale_py", "atari"), (HOPPER, "pybullet", "bullet")],
)
def test_a_missing_extra_is_named_before_anything_starts(monkeypatch, path, package, extra):
    # None in sys.modules is how Python marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install .*\[{extra}\]"):
        check(load_experiment(path))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("env.game=SpaceInvader", "did you mean 'space_invaders'"),
        ("env.gaem=Pong", "gaem is not an argument"),
        ("rllib.rl_module=PaperPPOModule", "package.module:ClassName"),
        ("rllib.rl_module=rllib_rise.rllib.modules:PaperModule", "cannot be imported"),
        ("rllib.rl_module=no_such_package:X", "cannot be imported"),
        ("rllib.rl_module=rllib_rise.errors:RiseError", "RLModule"),
        ("rllib.learner_class=rllib_rise.errors:RiseError", "no subclass of RLlib's Learner"),
        ("rllib.env_runner_cls=Fast", "package.module:ClassName"),
    ],
)
def test_wrong_values_are_refused_before_anything_starts(override: str, words: str):
    with pytest.raises(ConfigError, match=words):
        check(load_experiment(SPACE_INVADERS, [override]))


def test_the_named_module_is_built():
    from rllib_rise.rllib.modules import PaperPPOModule

    config = build_config(load_experiment(SPACE_INVADERS))
    assert config.rl_module_spec.module_class is PaperPPOModule
    config.validate()
    assert config.gym_env_vectorize_mode == "vector_entry_point"


def test_the_named_learner_and_env_runner_are_taken():
    env_runner = "ray.rllib.env.single_agent_env_runner:SingleAgentEnvRunner"
    learner = "rllib_rise.bench.trainers:RLlibPPOLearner"
    overrides = [f"rllib.env_runner_cls={env_runner}", f"rllib.learner_class={learner}"]
    config = build_config(load_experiment(SPACE_INVADERS, overrides))
    config.validate()
    assert config.env_runner_cls is SingleAgentEnvRunner
    assert config.learner_class.__name__ == "RLlibPPOLearner"


@pytest.mark.usefixtures("ray_cluster")
def test_space_invaders_trains_and_logs_unclipped_returns(tmp_path: Path):
    experiment = load_experiment(
        SPACE_INVADERS,
        [
            "k=5",
            "encoder=random",
            # A game that is cut after 200 frames: 50 steps in each environment.
            "env.max_frames=200",
            "env.image_size=36",
            "rllib.train_batch_size_per_learner=256",
            "rllib.rollout_fragment_length=32",
            "rllib.num_epochs=1",
            "stop.env_steps=500",
        ],
    )
    train(experiment, tmp_path / "run")
    first, *_, last = rows(tmp_path / "run")
    assert float(last["env_steps"]) >= 500
    assert float(last["intrinsic_reward_mean"]) > 0
    assert not first.get("one_life_return")
    assert float(last["game_return_count"]) == float(last["episodes"]) == 8
    assert float(last["game_return"]) == float(last["one_life_return"])
    assert float(last["one_life_return"]) >= 5 * float(last["episode_return_mean"])


@pytest.mark.usefixtures("ray_cluster")
def test_hopper_trains(tmp_path: Path):
    experiment = load_experiment(HOPPER, ["k=5", "stop.env_steps=1000"])
    result = train(experiment, tmp_path / "run")
    last = rows(tmp_path / "run")[-1]
    assert math.isfinite(result["return"])
    assert float(last["intrinsic_reward_mean"]) > 0
    assert float(last["episodes"]) > 0
