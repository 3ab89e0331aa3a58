"""The parts of an iteration are all of it, and none is counted twice."""

from __future__ import annotations

import time

import pytest

from rllib_rise.bench.parts import Parts
from rllib_rise.rllib.ppo import RISEPPOConfig


@pytest.mark.usefixtures("ray_cluster")
def test_parts_add_up_to_an_iteration():
    algorithm = (
        RISEPPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=4)
        .rise(k=3, encoder="identity")
        .build_algo()
    )
    try:
        algorithm.train()
        parts = Parts(algorithm)
        began = time.perf_counter()
        algorithm.train()
        elapsed = time.perf_counter() - began
        found = parts.take()
        assert all(seconds > 0 for seconds in found.values()), found
        assert 0.5 * elapsed < sum(found.values()) <= elapsed
        assert set(parts.take().values()) == {0.0}
    finally:
        algorithm.stop()
