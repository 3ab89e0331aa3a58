"""What tells two runs' fits apart, and what does not."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import environment
from envs_for_tests import ConstantReward, Countdown
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_rise import RISEPPOConfig
from rllib_rise.rllib.modules import PaperPPOModule
from rllib_rise.rllib.phase1.key import UndescribableError, digest, fit_key


def config(**env_config):
    return RISEPPOConfig().environment(ConstantReward, env_config=env_config).debugging(seed=3)


def key(cfg, policy: str = "weights", shape: tuple[int, ...] = (3,)) -> str:
    return fit_key(cfg, shapes={"default_policy": shape}, policy=policy)


def connector(env, spaces, device):
    return None


def make_connector(number: int):
    return lambda env, spaces, device: number


def test_a_sweep_has_one_key():
    names = {
        key(cfg)
        for cfg in (
            config(),
            config().rise(alpha=0.7),
            config().rise(lambda_0=2.0, kappa=0.1, zeta=0.1),
            config().rise(k=3),
            config().training(lr=1e-5, gamma=0.5),
        )
    }
    assert len(names) == 1


def test_all_that_the_steps_and_the_fit_depend_on_is_in_it():
    large = np.zeros(10_000)
    changed = large.copy()
    changed[5000] = 1
    configs = [
        config(),
        config().debugging(seed=4),
        config().environment("CartPole-v1"),
        config().environment("rise/Maze-v0"),
        config().environment(Countdown),
        config(kind="other"),
        config(array=large),
        config(array=changed),
        config(array=large.astype(np.float32)),
        config(array=large.reshape(2, -1)),
        config(mixed={1: "a", "1": "b", (1, 2): "c"}),
        config(mixed={1: "b", "1": "a", (1, 2): "c"}),
        config().env_runners(num_env_runners=1),
        config().env_runners(num_envs_per_env_runner=3),
        config().env_runners(env_to_module_connector=connector),
        config().env_runners(module_to_env_connector=connector),
        config().learners(learner_connector=connector),
        config().env_runners(env_to_module_connector=lambda env, spaces, device: 1),
        config().env_runners(env_to_module_connector=lambda env, spaces, device: 2),
        config().env_runners(env_to_module_connector=make_connector(1)),
        config().env_runners(env_to_module_connector=make_connector(2)),
        config().env_runners(env_to_module_connector=partial(connector, 1)),
        config().env_runners(env_to_module_connector=partial(connector, 2)),
        config().rl_module(rl_module_spec=RLModuleSpec(module_class=PaperPPOModule)),
        config().multi_agent(policies={"a"}, policy_mapping_fn=lambda agent, *rest: "a"),
        config().multi_agent(policies={"a"}, policy_mapping_fn=lambda agent, *rest: "b"),
        config().rise(encoder="vae"),
        config().rise(warmup_steps=500),
        config().rise(vae_epochs=1),
        config().rise(embedding_size=7),
    ]
    names = [key(cfg) for cfg in configs]
    names += [key(config(), policy="others"), key(config(), shape=(4,))]
    assert len(set(names)) == len(names)


def local_class(step: int):
    class Local(ConstantReward):
        @property
        def number(self):
            return step

        @classmethod
        def make(cls):
            return cls()

        def act(self):
            return step

    return Local


def test_classes_count_by_their_code():
    assert digest(local_class(1)) == digest(local_class(1))
    assert digest(local_class(1)) != digest(local_class(2))
    assert digest(ConstantReward) != digest(Countdown)
    assert digest(ConstantReward({"kind": "a"})) != digest(ConstantReward({"kind": "b"}))


def test_values_count_by_their_content():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({3, 1, 2}) == digest({2, 3, 1})
    different = [1, 1.0, True, "1", [1], (1,), {1}, b"1", np.int64(1), np.ones(1), torch.ones(1)]
    assert len({digest(value) for value in different}) == len(different)
    looped: list = [1]
    looped.append(looped)
    assert digest(looped) == digest(looped)


def test_what_cannot_be_described_is_an_error():
    with pytest.raises(UndescribableError, match="lock"):
        key(config(handle=threading.Lock()))


SCRIPT = """
import numpy as np
from envs_for_tests import ConstantReward
from rllib_rise import RISEPPOConfig
from rllib_rise.rllib.phase1.key import fit_key
FRAMES = 3
class Mine(ConstantReward):
    names = {"a", "b", "c"}
    def act(self):
        return {1, 2, 3} | {FRAMES}
config = RISEPPOConfig().environment(Mine, env_config={"x": {"p", "q"}, "y": np.arange(3)})
config.debugging(seed=1).env_runners(env_to_module_connector=lambda *_: FRAMES in {"u", "v"})
for FRAMES in (3, 4):
    print(fit_key(config, shapes={"default_policy": (3,)}, policy=""))
"""


def test_other_processes_have_the_same_key(tmp_path: Path):
    keys = []
    for hash_seed in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**environment(), "PYTHONHASHSEED": str(hash_seed)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        keys.append(done.stdout.split())
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[0][1]
