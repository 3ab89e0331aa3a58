"""`with_rise`: an RLlib config becomes ours and loses nothing."""

from __future__ import annotations

import importlib

import pytest
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

import rllib_rise
from rllib_rise import with_rise
from rllib_rise.errors import ConfigError
from rllib_rise.rllib.modules import PaperPPOModule

PLAIN = {
    "PPO": PPOConfig,
    "APPO": APPOConfig,
    "IMPALA": IMPALAConfig,
    "DQN": DQNConfig,
    "SAC": SACConfig,
}


def settings(config) -> dict:
    own = ("algo_class", "_is_frozen", "intrinsic_settings", "intrinsic_cache")
    return {name: value for name, value in vars(config).items() if name not in own}


@pytest.mark.parametrize("name", PLAIN)
def test_all_settings_stay_and_the_original_too(name: str):
    plain = (
        PLAIN[name]()
        .environment("CartPole-v1", env_config={"a": 1})
        .env_runners(num_env_runners=3, num_envs_per_env_runner=5)
        .training(lr=1.25e-4, gamma=0.5, train_batch_size_per_learner=77)
        .rl_module(model_config={"fcnet_hiddens": [7]})
        .callbacks(on_train_result=print)
        .debugging(seed=9)
    )
    before = dict(vars(plain))
    ours = with_rise(plain, alpha=0.3, k=4)
    assert type(ours) is getattr(rllib_rise, f"RISE{name}Config")
    assert settings(ours) == settings(plain)
    assert ours.intrinsic_settings == {"method": "rise", "alpha": 0.3, "k": 4}
    assert vars(plain) == before
    assert ours.algo_class.__name__ == f"RISE{name}"


def test_lists_and_dicts_are_not_shared():
    plain = PPOConfig().environment("CartPole-v1", env_config={"a": 1})
    with_rise(plain).env_config["a"] = 2
    assert plain.env_config == {"a": 1}


def test_a_frozen_config_gives_one_that_can_be_changed():
    plain = PPOConfig().environment("CartPole-v1")
    plain.freeze()
    ours = with_rise(plain)
    assert ours.training(lr=0.5).lr == 0.5


def test_another_method_may_be_chosen():
    ours = with_rise(DQNConfig().environment("CartPole-v1"), method="rnd", lambda_0=0.5)
    assert ours.intrinsic_settings == {"method": "rnd", "lambda_0": 0.5}


def test_ours_stays_ours():
    first = with_rise(PPOConfig().environment("CartPole-v1"), alpha=0.3)
    second = with_rise(first, k=9)
    assert second.intrinsic_settings == {"method": "rise", "alpha": 0.3, "k": 9}
    assert first.intrinsic_settings == {"method": "rise", "alpha": 0.3}


@pytest.mark.parametrize(
    "path",
    ["bc.bc.BCConfig", "marwil.marwil.MARWILConfig", "cql.cql.CQLConfig", "tqc.tqc.TQCConfig"],
)
def test_other_algorithms_are_refused_with_the_reason(path: str):
    module, _, name = path.rpartition(".")
    other = getattr(importlib.import_module(f"ray.rllib.algorithms.{module}"), name)
    with pytest.raises(ConfigError, match="there for PPO, APPO, IMPALA, DQN, SAC"):
        with_rise(other())


def test_dreamer_is_refused_with_the_reason():
    from ray.rllib.algorithms.dreamerv3 import DreamerV3Config

    with pytest.raises(ConfigError, match="there for PPO, APPO, IMPALA, DQN, SAC"):
        with_rise(DreamerV3Config())


def test_a_config_of_the_users_own_is_told_what_to_derive_from():
    class Mine(PPOConfig):
        pass

    with pytest.raises(ConfigError, match=r"your own: derive .*RISEPPOConfig"):
        with_rise(Mine())


def test_so_is_an_algorithm_of_the_users_own():
    class Mine(PPO):
        pass

    with pytest.raises(ConfigError, match=r"PPOConfig of Mine is your own: derive .*RISEPPOConfig"):
        with_rise(PPOConfig(algo_class=Mine))


def test_the_users_pieces_stay():
    spec, connector = RLModuleSpec(module_class=PaperPPOModule), lambda *args: None
    plain = (
        PPOConfig()
        .rl_module(rl_module_spec=spec)
        .env_runners(env_to_module_connector=connector)
        .training(learner_connector=connector)
        .multi_agent(policies={"a", "b"}, policy_mapping_fn=connector, policies_to_train=["a"])
        .learners(learner_class=PPOTorchLearner)
    )
    ours = with_rise(plain)
    assert ours.rl_module_spec.module_class is PaperPPOModule
    assert ours._env_to_module_connector is ours._learner_connector is connector
    assert ours.policy_mapping_fn is connector
    assert (set(ours.policies), ours.policies_to_train) == ({"a", "b"}, ["a"])
    with pytest.raises(ConfigError, match="learner_class=PPOTorchLearner would drop"):
        ours.environment("CartPole-v1").validate()
    replayed = DQNConfig().training(replay_buffer_config={"capacity": 7})
    assert with_rise(replayed).replay_buffer_config["capacity"] == 7


def test_what_is_no_config_is_refused():
    with pytest.raises(ConfigError, match="with_rise"):
        with_rise({"env": "CartPole-v1"})  # type: ignore[arg-type]
