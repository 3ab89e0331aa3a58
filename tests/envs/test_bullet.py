"""PyBullet's robots under the package's own ids."""

from __future__ import annotations

import builtins
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import rllib_rise
from rllib_rise import RISEPPOConfig
from rllib_rise.envs import bullet
from rllib_rise.errors import MissingExtraError

package = pytest.importorskip("pybullet_envs_gymnasium")
HOPPER = "HopperBulletEnv-v0"


def test_our_ids_are_those_of_the_package():
    theirs = {
        env_id
        for env_id, spec in gym.registry.items()
        if str(spec.entry_point).startswith(package.__name__)
    }
    assert set(bullet.IDS) == theirs


def test_one_seed_gives_one_path():
    paths = []
    for _ in range(2):
        env = bullet.make(HOPPER)
        env.action_space.seed(1)
        obs, _ = env.reset(seed=3)
        path = [obs]
        for _ in range(50):
            obs, _, over, *_ = env.step(env.action_space.sample())
            path.append(obs)
            if over:
                path.append(env.reset()[0])
        paths.append(np.array(path))
        env.close()
    assert paths[0].shape[1:] == (15,)
    np.testing.assert_array_equal(*paths)


def test_nothing_is_printed_and_what_others_print_is_not_lost():
    code = (
        "from rllib_rise.envs import bullet\n"
        f"print('before'); env = bullet.make({HOPPER!r}); env.reset(); print('after')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["before", "after"]
    assert "pybullet" not in done.stderr


@pytest.mark.usefixtures("ray_cluster")
def test_an_id_alone_works_on_a_remote_env_runner():
    rllib_rise.register()
    cfg = (
        RISEPPOConfig()
        .environment(HOPPER)
        .env_runners(num_env_runners=1, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
        .rise(k=3)
    )
    algorithm = cfg.build_algo()
    try:
        assert algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 64
    finally:
        algorithm.stop()


def test_without_pybullet_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("pybullet"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[bullet\]"):
        bullet.make(HOPPER)
