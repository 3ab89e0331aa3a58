"""The networks of PPO: layers, weights, and training with RLlib's PPO and ours."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import nn

import rllib_rise
from rllib_rise import RISEPPOConfig
from rllib_rise.errors import ConfigError
from rllib_rise.rllib.modules import PaperPPOModule, PPOModule

ATARI = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
ROBOT = gym.spaces.Box(-np.inf, np.inf, (15,), np.float32)
BUTTONS = gym.spaces.Discrete(6)
JOINTS = gym.spaces.Box(-1, 1, (3,), np.float32)


def module(
    obs=ATARI, actions=BUTTONS, *, inference_only: bool = False, cls=PaperPPOModule, **model
):
    return RLModuleSpec(
        module_class=cls,
        observation_space=obs,
        action_space=actions,
        inference_only=inference_only,
        model_config=model,
    ).build()


def observations(space: gym.spaces.Box, count: int = 3) -> dict[str, torch.Tensor]:
    space.seed(0)
    return {Columns.OBS: torch.from_numpy(np.stack([space.sample() for _ in range(count)]))}


def layers(network: nn.Module) -> list:
    found = []
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            found.append((layer.out_channels, layer.kernel_size[0], layer.stride[0]))
        elif isinstance(layer, nn.Linear):
            found.append((layer.in_features, layer.out_features))
        else:
            found.append(type(layer).__name__)
    return found


def test_images_go_through_the_papers_convolutions():
    net = module()
    expected = [(32, 8, 4), "ReLU", (64, 4, 2), "ReLU", (32, 3, 1), "ReLU", "Flatten"]
    expected += [(32 * 7 * 7, 512), "ReLU"]
    assert layers(net.policy) == layers(net.value) == expected
    assert (net.policy_head.out_features, net.value_head.out_features) == (6, 1)
    assert net.log_std is None


def test_vectors_go_through_two_layers_of_64_and_the_deviation_ignores_the_state():
    net = module(ROBOT, JOINTS)
    assert layers(net.policy) == layers(net.value) == [(15, 64), "Tanh", (64, 64), "Tanh"]
    with torch.no_grad():
        net.log_std.copy_(torch.tensor([-1.0, 0.0, 1.0]))
    inputs = net.forward_train(observations(ROBOT))[Columns.ACTION_DIST_INPUTS]
    assert inputs.shape == (3, 6)
    assert torch.equal(inputs[:, 3:], net.log_std.expand(3, 3))
    deviations = net.get_train_action_dist_cls().from_logits(inputs)._dist.stddev
    torch.testing.assert_close(deviations, net.log_std.exp().expand(3, 3))


@pytest.mark.parametrize(("obs", "actions"), [(ATARI, BUTTONS), (ROBOT, JOINTS)])
def test_weights_are_orthogonal_with_the_usual_gains(obs, actions):
    net = module(obs, actions)
    gains = dict.fromkeys([net.policy_head], 0.01) | dict.fromkeys([net.value_head], 1.0)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            values = torch.linalg.svdvals(layer.weight.detach().flatten(1))
            torch.testing.assert_close(values, torch.full_like(values, gains.get(layer, 2**0.5)))
            assert not layer.bias.any()


def test_bytes_and_floats_channels_first_and_last_give_the_same():
    net = module()
    first = observations(ATARI)
    floats = {Columns.OBS: first[Columns.OBS].float() / 255}
    last_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    other = module(last_space)
    other.load_state_dict(net.state_dict())
    last = {Columns.OBS: first[Columns.OBS].movedim(1, -1)}
    expected = net.forward_train(first)[Columns.ACTION_DIST_INPUTS]
    for found in (net.forward_train(floats), other.forward_train(last)):
        torch.testing.assert_close(found[Columns.ACTION_DIST_INPUTS], expected)
    assert first[Columns.OBS].dtype == torch.uint8, "the batch was changed"


def test_large_batches_in_parts_give_what_the_whole_gives():
    net = module(gym.spaces.Box(0, 255, (1, 36, 40), np.uint8))
    batch = observations(net.observation_space, 300)
    whole = net.value_head(net.value(batch[Columns.OBS].float() / 255)).squeeze(-1)
    torch.testing.assert_close(net.compute_values(batch), whole)


@pytest.mark.parametrize("shared", [False, True])
def test_policy_and_value_share_layers_by_option_only(shared: bool):
    net = module(ROBOT, JOINTS, vf_share_layers=shared)
    batch = observations(ROBOT)
    out = net.forward_train(batch)
    values = net.compute_values(batch, embeddings=out.get(Columns.EMBEDDINGS))
    assert values.shape == (3,)
    torch.testing.assert_close(values, net.compute_values(batch))
    values.sum().backward()
    assert (net.policy[0].weight.grad is not None) == shared
    assert (net.value is None) == shared


@pytest.mark.parametrize("shared", [False, True])
def test_env_runners_get_the_policy_alone_and_act_the_same(shared: bool):
    net = module(vf_share_layers=shared)
    runner = module(inference_only=True, vf_share_layers=shared)
    state = net.get_state(inference_only=True)
    assert not [key for key in state if key.startswith("value")]
    runner.set_state(state)
    batch = observations(ATARI)
    torch.testing.assert_close(
        runner.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS],
        net.forward_train(batch)[Columns.ACTION_DIST_INPUTS],
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"obs": gym.spaces.Box(0, 255, (20, 84, 3), np.uint8)}, r"36 x 36 .* 20 x 84"),
        ({"obs": gym.spaces.Dict({"a": ROBOT})}, "needs a Box"),
        ({"actions": gym.spaces.MultiDiscrete([2, 2])}, "MultiDiscrete"),
        ({"fcnet_hiddens": [8]}, "model_config.fcnet_hiddens"),
    ],
)
def test_what_the_papers_networks_cannot_do_is_said(arguments: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        module(**arguments)


def test_rllibs_networks_take_channels_first_too():
    model = {"conv_filters": [[8, 8, 4], [16, 4, 2]], "vf_share_layers": True}
    first = module(cls=PPOModule, **model)
    last = module(gym.spaces.Box(0, 255, (84, 84, 4), np.uint8), cls=PPOModule, **model)
    assert first.observation_space == ATARI
    last.load_state_dict(first.state_dict())
    batch = observations(ATARI)
    turned = {Columns.OBS: batch[Columns.OBS].movedim(1, -1)}
    torch.testing.assert_close(first.compute_values(batch), last.compute_values(turned))
    torch.testing.assert_close(
        first.forward_train(batch)[Columns.ACTION_DIST_INPUTS],
        last.forward_train(turned)[Columns.ACTION_DIST_INPUTS],
    )


def config(base, env: str, *, learners: int = 0, **env_config):
    rllib_rise.register()
    cfg = (
        base()
        .environment(env, env_config=env_config)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .learners(num_learners=learners)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=PaperPPOModule))
        .debugging(seed=3)
    )
    return cfg.rise(k=3, encoder="random") if base is RISEPPOConfig else cfg


IMAGES = {"size": 5, "max_steps": 20, "observation": "image", "image_size": 36}


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("base", "learners"), [(PPOConfig, 0), (RISEPPOConfig, 0), (RISEPPOConfig, 1)]
)
def test_they_train_and_come_back_from_a_checkpoint(base, learners: int, tmp_path: Path):
    algorithm = config(base, "rise/Maze-v0", learners=learners, **IMAGES).build_algo()
    before = algorithm.get_module().get_state()
    algorithm.train()
    after = algorithm.get_module().get_state()
    assert any((before[key] != after[key]).any() for key in before)
    algorithm.save_to_path(str(tmp_path))
    restored = Algorithm.from_checkpoint(str(tmp_path))

    def weights(one: Algorithm) -> dict:
        return one.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]

    try:
        saved, loaded = weights(algorithm), weights(restored)
        assert saved.keys() == loaded.keys()
        assert any(key.startswith("value.") for key in saved)
        for key, value in saved.items():
            np.testing.assert_array_equal(value, loaded[key])
        restored.train()
    finally:
        algorithm.stop()
        restored.stop()


@pytest.mark.usefixtures("ray_cluster")
def test_the_gaussians_deviation_learns():
    algorithm = config(RISEPPOConfig, "Pendulum-v1").build_algo()
    try:
        algorithm.train()
        assert algorithm.get_module().log_std.abs().sum() > 0
    finally:
        algorithm.stop()


def test_bfloat16_is_for_the_layers_below_the_heads():
    exact, reduced = module(), module(precision="bfloat16")
    reduced.load_state_dict(exact.state_dict())
    batch = observations(ATARI, 8)
    for name in ("forward_train", "forward_inference"):
        expected = getattr(exact, name)(batch)[Columns.ACTION_DIST_INPUTS]
        found = getattr(reduced, name)(batch)[Columns.ACTION_DIST_INPUTS]
        assert found.dtype == torch.float32
        assert not torch.equal(found, expected)
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02 * float(expected.std()))
    assert {parameter.dtype for parameter in reduced.parameters()} == {torch.float32}


def test_values_are_the_same_with_and_without_the_features_of_training():
    for share in (False, True):
        net = module(vf_share_layers=share)
        batch = observations(ATARI, 5)
        features = net.forward_train(batch)[Columns.EMBEDDINGS]
        torch.testing.assert_close(
            net.compute_values(batch, embeddings=features), net.compute_values(batch)
        )


def test_an_unknown_precision_is_an_error_that_names_the_known_ones():
    with pytest.raises(ConfigError, match="precision='half' is none of float32, bfloat16"):
        module(precision="half")
