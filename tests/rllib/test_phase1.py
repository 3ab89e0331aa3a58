"""Phase 1 in RLlib: what it leaves behind (a fitted bonus on all learners) and what not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from envs_for_tests import EPISODE, Countdown
from phase1_helpers import WARMUP, assert_same, config, keep_observations, states, trace, two_agents
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.core import DEFAULT_MODULE_ID

pytestmark = pytest.mark.usefixtures("ray_cluster")
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("runners", "learners"),
    [(0, 0), pytest.param(2, 1, marks=SLOW), pytest.param(2, 2, marks=SLOW)],
)
def test_training_goes_as_if_phase_1_had_not_run(build, runners: int, learners: int):
    shape = {"runners": runners, "learners": learners}
    algorithm = build(config(**shape).rise(kappa=1e-3))
    told: list[str] = []
    report = algorithm.prepare_intrinsic(told.append)
    assert report.env_steps >= WARMUP
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP
    assert any("collecting" in line for line in told)
    assert any("epoch" in line for line in told)
    found = states(algorithm)
    assert len(found) == max(1, learners)
    for state in found:
        assert bool(state["tensors"][f"{DEFAULT_MODULE_ID}/encoder.fitted"])
        assert_same(found[0], state)
    with_phase_1 = trace(algorithm)
    after = states(algorithm)
    for state in after:
        assert_same(after[0], state)
    without = trace(build(config(warmup=False, **shape).rise(kappa=1e-3)))
    assert with_phase_1 == without


def test_the_first_rollout_is_the_very_same(build):
    def first_batch(cfg) -> np.ndarray:
        algorithm = build(cfg)
        if cfg.intrinsic_settings["k"] == "auto":
            algorithm.prepare_intrinsic()
        episodes = algorithm.env_runner_group.local_env_runner.sample(num_timesteps=64)
        return np.concatenate([episode.get_observations() for episode in episodes])

    np.testing.assert_array_equal(first_batch(config()), first_batch(config(warmup=False)))


def test_phase_1_has_episodes_of_its_own(build):
    algorithm = build(config())
    kept = keep_observations(algorithm)
    algorithm.prepare_intrinsic()
    collected = kept[0].numpy()
    episodes = algorithm.env_runner_group.local_env_runner.sample(num_timesteps=64)
    training = np.concatenate([episode.get_observations() for episode in episodes])
    moving = training[np.abs(training).sum(1) > 0]  # episodes begin at the origin
    assert not (collected[:, None] == moving[None]).all(-1).any()
    # The parts in which it travels go on with the same episodes, they do not begin again.
    distinct = np.unique(collected[np.abs(collected).sum(1) > 0], axis=0)
    assert len(distinct) > 0.9 * WARMUP


@pytest.mark.parametrize("learners", [0, pytest.param(2, marks=SLOW)])
def test_a_restored_algorithm_has_the_encoder_and_does_not_begin_again(build, tmp_path, learners):
    algorithm = build(config(learners=learners))
    algorithm.train()
    before = states(algorithm)
    path = algorithm.save_to_path(str(tmp_path))
    algorithm.stop()
    restored = Algorithm.from_checkpoint(path)
    try:
        assert restored.prepare_intrinsic() is None
        assert restored.warmup_env_steps() == before[0]["warmup_env_steps"] >= WARMUP
        for state in states(restored):
            assert_same(state, before[0])
        restored.train()
        tensors = states(restored)[0]["tensors"]
        for name, tensor in before[0]["tensors"].items():
            if "encoder" in name or "searched_k" in name:
                assert torch.equal(tensors[name], tensor)
    finally:
        restored.stop()


def test_two_learners_reward_as_one_would(build):
    """The same observations in one set, whether one learner holds them or two."""
    from rllib_rise.bonuses import RISE, Transitions, parse_settings

    algorithm = build(config(learners=2, warmup=False))
    obs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))

    def reward(learner) -> torch.Tensor:
        import torch.distributed as dist

        own = obs[:20] if dist.get_rank() == 0 else obs[20:]
        return learner.intrinsic.bonuses["default_policy"].reward(Transitions(obs=own))

    parts = [r.get() for r in algorithm.learner_group.foreach_learner(reward)]
    parts.sort(key=len)
    alone = RISE(parse_settings(RISE, {"k": 4}), (3,)).reward(Transitions(obs=obs))
    torch.testing.assert_close(torch.cat(parts), alone)


def test_frame_stacking_of_the_user_reaches_the_encoder(build):
    cfg = config().environment(Countdown)
    cfg.rl_module(model_config={"conv_filters": [[4, 3, 2]]})
    cfg.env_runners(
        env_to_module_connector=lambda env, spaces, device: FrameStackingEnvToModule(num_frames=3),
        episode_lookback_horizon=3,
    )
    cfg.learners(learner_connector=lambda obs, act: FrameStackingLearner(num_frames=3))
    algorithm = build(cfg)
    kept = keep_observations(algorithm)
    algorithm.train()
    assert kept[0].shape == (WARMUP, 6, 6, 3)
    assert kept[0].dtype == torch.uint8
    numbers = kept[0][:, 0, 0].int()
    # Successive frames, also across the parts in which episodes travel; before the first, zeros.
    expected = torch.stack([(numbers[:, 2] - back).clamp(min=0) for back in (2, 1, 0)], dim=1)
    assert torch.equal(numbers, expected)
    assert set(numbers[:, 2].tolist()) == set(range(EPISODE))


class Counting(RLlibCallback):
    episodes = 0

    def on_episode_end(self, **kwargs) -> None:
        Counting.episodes += 1


def test_what_training_learns_is_untouched_but_for_the_bonus(build):
    """With lambda_0 = 0 the weights after two iterations are those of a run without Phase 1."""

    def weights(cfg) -> list[np.ndarray]:
        algorithm = build(cfg.rise(lambda_0=0.0).callbacks(Counting))
        before = Counting.episodes
        algorithm.prepare_intrinsic()
        assert Counting.episodes == before
        for _ in range(2):
            algorithm.train()
        assert Counting.episodes > before
        return list(algorithm.get_weights()[DEFAULT_MODULE_ID].values())

    for one, other in zip(weights(config()), weights(config(warmup=False)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_steps_are_taken_with_the_present_policy(build):
    """Whose weights were set by hand, so that it takes the second action only."""
    algorithm = build(config(kind="echo"))
    module = algorithm.learner_group._learner.module[DEFAULT_MODULE_ID]
    with torch.no_grad():
        dict(module.named_parameters())["pi.net.mlp.0.bias"].copy_(torch.tensor([-100.0, 100.0]))
    algorithm.env_runner_group.sync_weights(from_worker_or_learner_group=algorithm.learner_group)
    kept = keep_observations(algorithm)
    algorithm.prepare_intrinsic()
    resets = (kept[0][:, 0] == 0).sum()
    assert resets <= WARMUP / EPISODE + 4
    assert (kept[0][:, 0] == 1).sum() == WARMUP - resets


@pytest.mark.parametrize("trained", [True, False])
def test_k_is_searched_with_the_restored_encoder_policy_and_filters(build, tmp_path, trained):
    """A checkpoint of a run with k = 5, gone on with k = "auto"."""
    filtered = {"env_to_module_connector": lambda env, spaces, device: MeanStdFilter()}
    first = build(config().rise(k=5).env_runners(**filtered))
    first.train() if trained else first.prepare_intrinsic()
    encoder = states(first)[0]["tensors"]
    path = first.save_to_path(str(tmp_path / "checkpoint"))
    second = build(config().rise(k="auto", cache=tmp_path / "cache").env_runners(**filtered))
    second.restore_from_path(path)
    kept = keep_observations(second)
    report = second.prepare_intrinsic()
    assert report.modules[DEFAULT_MODULE_ID].figures["k_search"] is not None
    found = states(second)[0]["tensors"]
    for name, tensor in encoder.items():
        if "encoder" in name:
            assert torch.equal(found[name], tensor), name
    # A new filter would have taken the first observation for the mean of all.
    assert bool(kept[0][0].abs().min() > 0) == trained
    # Others begin with another policy, and without this encoder.
    assert not (tmp_path / "cache").exists()


def test_recurrent_modules(build):
    cfg = config().rl_module(model_config={"use_lstm": True, "max_seq_len": 8, "lstm_cell_size": 8})
    algorithm = build(cfg)
    kept = keep_observations(algorithm)
    algorithm.train()
    assert kept[0].shape == (WARMUP, 3)
    # Episodes begin at the origin; all other zeros would be padding.
    assert int((kept[0] == 0).all(1).sum()) <= WARMUP / EPISODE + 4


def test_every_trained_module_is_fitted_to_its_own_observations(build):
    algorithm = build(two_agents())
    report = algorithm.prepare_intrinsic()
    observations = {name: told.figures["observations"] for name, told in report.modules.items()}
    assert observations.keys() == {"often", "seldom"}
    assert observations["often"] == WARMUP
    assert observations["seldom"] == pytest.approx(WARMUP / 2, rel=0.1)
    found = states(algorithm)[0]["tensors"]
    assert not torch.equal(found["often/encoder.center"], found["seldom/encoder.center"])
    learners = algorithm.train()["learners"]
    assert "rise_k" in learners["often"]
    assert "rise_k" in learners["seldom"]
