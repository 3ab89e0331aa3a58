"""What environments tell about their episodes, through real env runners, against a hand count."""

from __future__ import annotations

import math

import pytest
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from telling_env import Telling

from rllib_rise import RISEPPOConfig
from rllib_rise.rllib.callbacks import EpisodeFigures
from rllib_rise.rllib.modules import PaperPPOModule

pytestmark = pytest.mark.usefixtures("ray_cluster")


class Mine(RLlibCallback):
    """A user's: sees the episodes, and finds our means in the result."""

    def on_episode_end(self, *, metrics_logger, **kwargs) -> None:
        metrics_logger.log_value("mine", 1, reduce="sum")

    def on_train_result(self, *, result, **kwargs) -> None:
        result["seen"] = result["env_runners"].get("length")


def config(base=RISEPPOConfig, *, runners: int = 0):
    cfg = (
        base()
        .environment(Telling)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=1)
        .training(train_batch_size_per_learner=160, minibatch_size=160, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [8]})
    )
    # Without Phase 1.
    return cfg.rise(k=3) if base is RISEPPOConfig else cfg


def test_means_weigh_episodes_and_not_env_runners(build):
    result = build(config(runners=2)).train()
    figures = result["env_runners"]
    # 80 steps on each runner: 4 episodes of 20 on one, 20 of 4 on the other.
    assert figures["episode_figures"]["length"] == {"sum": 160, "count": 24}
    assert figures["length"] == pytest.approx(160 / 24)
    assert figures["even"] == 1


def test_an_iteration_without_episodes_has_no_mean(build):
    # Episodes of 20 steps, 5 steps per iteration.
    algorithm = build(config().training(train_batch_size_per_learner=5, minibatch_size=5))
    results = [algorithm.train()["env_runners"] for _ in range(5)]
    assert results[3]["length"] == 20
    assert math.isnan(results[4]["length"])
    assert results[4]["episode_figures"]["length"] == {"sum": 0, "count": 0}


@pytest.mark.parametrize("method", ["rise", "none"])
def test_a_users_callbacks_stay_and_ours_is_added_once(build, method: str, tmp_path):
    cfg = config().callbacks(Mine)
    if method == "none":
        cfg.intrinsic(method="none")
    cfg.validate()
    algorithm = build(cfg)
    assert algorithm.config.callbacks_class == [EpisodeFigures, Mine]
    algorithm.save_to_path(str(tmp_path))
    restored = Algorithm.from_checkpoint(str(tmp_path))
    for one in (algorithm, restored):
        result = one.train()
        assert result["env_runners"]["mine"] == 8
        assert result["env_runners"]["length"] == result["seen"] == 20
    restored.stop()


def test_evaluation_has_the_means_too(build):
    cfg = config().evaluation(
        evaluation_interval=1, evaluation_duration=2, evaluation_num_env_runners=0
    )
    assert build(cfg).train()["evaluation"]["env_runners"]["length"] == 20


def test_plain_ppo_takes_the_callback_by_hand(build):
    assert build(config(PPOConfig).callbacks(EpisodeFigures)).train()["env_runners"]["length"] == 20


@pytest.mark.parametrize("runners", [0, 1])
def test_atari_figures_and_native_environments_reach_rllib(build, runners: int):
    pytest.importorskip("ale_py")
    cfg = (
        RISEPPOConfig()
        .environment("rise/Atari-v0", env_config={"game": "SpaceInvaders", "image_size": 36})
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=2)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=PaperPPOModule))
        .training(train_batch_size_per_learner=800, minibatch_size=800, num_epochs=1)
        .intrinsic(method="none")
        .debugging(seed=1)
    )
    algorithm = build(cfg)
    names = algorithm.env_runner_group.foreach_env_runner(
        lambda runner: type(runner.env.unwrapped).__name__ if runner.env else None
    )
    assert "AtariVector" in names
    figures = algorithm.train()["env_runners"]
    lives = figures["episode_figures"]["one_life_return"]
    assert lives["count"] == figures["num_episodes"] >= 2
    assert figures["one_life_return"] == lives["sum"] / lives["count"]
    # SpaceInvaders pays 5 to 30 for what the agent gets 1 for.
    assert figures["one_life_return"] >= 5 * figures["episode_return_mean"] > 0
