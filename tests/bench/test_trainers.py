"""Stable-Baselines3 and ours train networks of the same sizes, with the same numbers."""

from __future__ import annotations

from typing import Any

import pytest

from rllib_rise.bench.trainers import OurTrainer, StableBaselinesTrainer, task
from rllib_rise.bench.training import NO_BONUS

pytest.importorskip("stable_baselines3")


@pytest.fixture(params=["Atari", "Hopper"])
def trainers(request: pytest.FixtureRequest, ray_cluster: Any):
    pytest.importorskip({"Atari": "ale_py", "Hopper": "pybullet"}[request.param])
    experiment = task(request.param, NO_BONUS)
    theirs, ours = StableBaselinesTrainer(experiment), OurTrainer(experiment)
    yield theirs._model, ours._algorithm
    theirs.close()
    ours.close()


@pytest.mark.slow
def test_the_networks_have_the_same_parameters(trainers: Any):
    theirs, ours = trainers
    module = ours.learner_group._learner.module["default_policy"]

    def shapes(network: Any) -> list[tuple[int, ...]]:
        # Two networks each, in whatever order.
        return sorted(tuple(one.shape) for one in network.parameters())

    assert shapes(theirs.policy) == shapes(module)


@pytest.mark.slow
def test_rollouts_and_epochs_are_the_same(trainers: Any):
    theirs, ours = trainers
    config = ours.config
    assert theirs.n_steps * theirs.n_envs == config.train_batch_size_per_learner
    assert theirs.batch_size == config.minibatch_size
    assert theirs.n_epochs == config.num_epochs
    assert (theirs.gamma, theirs.gae_lambda) == (config.gamma, config.lambda_)
    assert theirs.max_grad_norm == config.grad_clip
    assert theirs.clip_range(1.0) == config.clip_param
    assert theirs.lr_schedule(1.0) == config.lr
    assert theirs.ent_coef == config.entropy_coeff
    assert theirs.vf_coef == config.vf_loss_coeff
    (theirs_shape,) = {theirs.observation_space.shape}
    module = ours.learner_group._learner.module["default_policy"]
    assert sorted(theirs_shape) == sorted(module.observation_space.shape)
