"""What tells two runs' fits apart, and what does not."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import time
import warnings
from functools import cache, partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from command_line import environment
from envs_for_tests import ConstantReward, Countdown
from ray import tune
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_rise import RISEPPOConfig
from rllib_rise.rllib.modules import PaperPPOModule
from rllib_rise.rllib.phase1.digest import UndescribableError, digest
from rllib_rise.rllib.phase1.key import fit_key


def config(**env_config):
    return RISEPPOConfig().environment(ConstantReward, env_config=env_config).debugging(seed=3)


def key(cfg, policy: str = "weights", shape: tuple[int, ...] = (3,)) -> str:
    return fit_key(cfg, shapes={"default_policy": shape}, policy=policy)


def connector(env, spaces, device):
    return None


def make_connector(number: int):
    return lambda env, spaces, device: number


def make_two(low: int | None, high: int | None):
    return lambda env, spaces, device: (low, high)


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
        config().env_runners(add_default_connectors_to_env_to_module_pipeline=False),
        config().env_runners(env_to_module_connector=make_two(1, None)),
        config().env_runners(env_to_module_connector=make_two(None, 1)),
        config().rl_module(rl_module_spec=RLModuleSpec(module_class=PaperPPOModule)),
        config().rl_module(model_config={"fcnet_activation": "tanh"}),
        config().rl_module(
            rl_module_spec=RLModuleSpec(module_class=PaperPPOModule, model_config={"a": 1})
        ),
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


def test_registered_environments_count_by_all_that_makes_them():
    def registered(**options) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of registering it again
            gym.register("tests/Key-v0", entry_point=ConstantReward, **options)
        return key(config().environment("tests/Key-v0"))

    wrapped = (gym.wrappers.TimeLimit.wrapper_spec(max_episode_steps=9),)
    names = [
        registered(),
        registered(max_episode_steps=50),
        registered(max_episode_steps=500),
        registered(kwargs={"config": {"kind": "a"}}),
        registered(additional_wrappers=wrapped),
    ]
    assert len(set(names)) == len(names)
    assert registered(max_episode_steps=50) == names[1]


def test_an_instance_that_was_copied_leaves_its_class_the_same():
    one = local_class(1)
    before = digest(one)
    copy.copy(one())
    assert digest(one) == before


def test_things_that_refer_to_each_other_are_described_once():
    functions: list = []
    for number in range(40):  # each refers to all before it
        functions.append(make_caller(list(functions), number))
    started = time.perf_counter()
    assert digest(functions[-1]) != digest(functions[-2])
    assert time.perf_counter() - started < 5


def make_caller(others: list, number: int):
    return lambda: [other() for other in others] + [number]


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
    assert digest({"a": 1}.get) != digest({"a": 2}.get)
    assert digest(cache(make_caller([], 1))) != digest(cache(make_caller([], 2)))
    looped: list = [1]
    looped.append(looped)
    assert digest(looped) == digest(looped)


def test_what_cannot_be_described_is_an_error():
    with pytest.raises(UndescribableError, match="lock"):
        key(config(handle=threading.Lock()))
    with pytest.raises(UndescribableError):
        key(config(weights=torch.ones(2, dtype=torch.bfloat16)))


def test_paths_of_files_are_absolute_where_they_are_given(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absolute = str(tmp_path / "a.st")

    def given(value):
        return config().rise(encoder_file=value).intrinsic_settings["encoder_file"]

    assert given("a.st") == given(Path("a.st")) == given(absolute) == absolute
    assert given("s3://bucket/a.st") == "s3://bucket/a.st"
    assert given(tune.grid_search(["a.st", None])) == {"grid_search": [absolute, None]}
    assert given(tune.choice(["a.st", absolute])).categories == [absolute, absolute]


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
