from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from rllib_rise.bonuses import (
    RE3,
    RISE,
    RND,
    Bonus,
    Need,
    Transitions,
    method_names,
    parse_settings,
    resolve_bonus,
)
from rllib_rise.errors import ConfigError


def make(cls: type[Bonus], shape: tuple[int, ...] = (4,), seed: int = 0, **values) -> Bonus:
    if cls is RISE:
        values.setdefault("k", 5)
    return cls(parse_settings(cls, values), shape, seed=seed)


def batch(count: int = 64, size: int = 4, seed: int = 0) -> Transitions:
    generator = torch.Generator().manual_seed(seed)
    obs = torch.randn(count + 1, size, generator=generator)
    return Transitions(obs=obs[:-1], next_obs=obs[1:], episodes=torch.arange(count) // 16)


def kth_distance(x: np.ndarray, k: int) -> np.ndarray:
    found = NearestNeighbors(n_neighbors=k).fit(x.astype(np.float64))
    return found.kneighbors()[0][:, k - 1]


def test_rise_is_the_distance_to_the_kth_other_point_to_the_power_1_minus_alpha():
    data = batch()
    expected = kth_distance(data.obs.numpy(), 3) ** (1 - 0.25)
    rewards = make(RISE, alpha=0.25, k=3).reward(data)
    np.testing.assert_allclose(rewards, expected, rtol=1e-5)


def test_rise_on_four_points_of_a_line():
    line = Transitions(obs=torch.tensor([[0.0], [1.0], [3.0], [7.0]]))
    assert make(RISE, shape=(1,), alpha=0.0, k=1).reward(line).tolist() == [1, 1, 2, 4]
    assert make(RISE, shape=(1,), alpha=0.0, k=2).reward(line).tolist() == [3, 2, 3, 6]
    halves = make(RISE, shape=(1,), alpha=0.5, k=1).reward(line)
    np.testing.assert_allclose(halves, [1, 1, math.sqrt(2), 2], rtol=1e-6)


def test_re3_equals_its_formula_on_hand_made_points():
    line = Transitions(obs=torch.tensor([[0.0], [1.0], [3.0], [7.0]]))
    for k, distances in {1: [1, 1, 2, 4], 2: [3, 2, 3, 6]}.items():
        rewards = make(RE3, shape=(1,), encoder="identity", k=k).reward(line)
        np.testing.assert_allclose(rewards, np.log1p(distances), rtol=1e-6)


def test_in_many_dimensions_the_papers_form_is_nearly_a_linear_function_of_re3s():
    gaussian = batch(512, size=128)
    ours = make(RISE, shape=(128,), alpha=0.1, k=5).reward(gaussian)
    theirs = make(RE3, shape=(128,), encoder="identity", k=5).reward(gaussian)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.999


def test_re3_embeds_with_a_random_network_by_default():
    data = batch()
    one, same, other = make(RE3, seed=1), make(RE3, seed=1), make(RE3, seed=2)
    assert torch.equal(one.reward(data), same.reward(data))
    assert not torch.allclose(one.reward(data), other.reward(data))


def test_re3s_random_network_does_not_change():
    data, bonus = batch(), make(RE3)
    before = bonus.reward(data)
    for seed in range(3):
        more = batch(seed=seed)
        bonus.reward(more)
        bonus.update(more)
    assert torch.equal(bonus.reward(data), before)


def test_particles_within_an_episode_do_not_see_other_episodes():
    data = batch()
    rewards = make(RISE, alpha=0.0, k=2, particles="episode").reward(data)
    first = kth_distance(data.obs[:16].numpy(), 2)
    np.testing.assert_allclose(rewards[:16], first, rtol=1e-5)


def test_box_cox_rewards_order_like_distances_for_every_alpha():
    data = batch()
    distances = kth_distance(data.obs.numpy(), 5)
    for alpha in (0.0, 0.5, 1.0, 2.0, 5.0):
        rewards = make(RISE, alpha=alpha, form="box-cox").reward(data).numpy()
        assert np.all(np.diff(rewards[np.argsort(distances)]) >= -1e-6)


def test_intrinsic_dim_pays_for_spreading_wider_than_before():
    bonus, data = make(RISE, form="intrinsic-dim", alpha=0.5), batch(256)
    before = bonus.reward(data).mean()
    bonus.update(data)
    wider = Transitions(obs=data.obs * 2)
    assert bonus.reward(wider).mean() > 1.5 * before


def test_reward_does_not_change_the_state():
    for cls, values in ((RISE, {"form": "box-cox"}), (RE3, {}), (RND, {})):
        bonus, data = make(cls, **values), batch()
        before = {key: value.clone() for key, value in bonus.state_dict().items()}
        first, second = bonus.reward(data), bonus.reward(data)
        assert torch.equal(first, second)
        assert all(torch.equal(value, before[key]) for key, value in bonus.state_dict().items())


@pytest.mark.parametrize("form", ["paper", "box-cox", "intrinsic-dim"])
def test_constant_observations_give_no_bonus_and_a_warning(form: str, caplog):
    same = Transitions(obs=torch.full((32, 4), 0.3))
    with caplog.at_level(logging.WARNING):
        rewards = make(RISE, form=form).reward(same)
    assert rewards.tolist() == [0.0] * 32
    assert "constant" in caplog.text


def test_one_step_batches_give_zero_and_count_the_clipped_k():
    one = Transitions(obs=torch.zeros(1, 4))
    bonus = make(RISE)
    assert bonus.reward(one).tolist() == [0.0]
    bonus.update(one)
    assert bonus.metrics()["intrinsic_clipped_k"] == 1


def test_image_observations_are_embedded_without_touching_them():
    frames = torch.randint(0, 256, (20, 84, 84, 4), dtype=torch.uint8)
    copy = frames.clone()
    rewards = make(RISE, shape=(84, 84, 4), encoder="random").reward(Transitions(obs=frames))
    assert rewards.shape == (20,)
    assert torch.isfinite(rewards).all()
    assert torch.equal(frames, copy)


def test_rnd_scores_the_next_observation():
    data = batch()
    bonus = make(RND)
    moved = Transitions(obs=data.obs + 1, next_obs=data.next_obs)
    assert torch.equal(bonus.reward(data), bonus.reward(moved))


def test_rnd_goes_on_learning_identically_after_a_restore():
    data = [batch(seed=seed) for seed in range(4)]
    one = make(RND)
    for part in data[:2]:
        one.reward(part)
        one.update(part)
    other = make(RND)
    other.load_state_dict(one.state_dict())
    for part in data[2:]:
        assert torch.equal(one.reward(part), other.reward(part))
        one.update(part)
        other.update(part)
    for (key, value), same in zip(
        one.state_dict().items(), other.state_dict().values(), strict=True
    ):
        assert torch.equal(value, same), key


def test_needs_are_declared_from_the_settings():
    assert RISE.needs(parse_settings(RISE, {})) == frozenset()
    assert RISE.needs(parse_settings(RISE, {"particles": "episode"})) == {Need.EPISODES}
    assert RND.needs(parse_settings(RND, {})) == {Need.NEXT_OBS, Need.LEARNING}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"alpha": -0.1}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"alpha": 1.0}, "box-cox"),
        ({"alpha": 3.0}, "box-cox"),
        ({"k": 0}, "k=0"),
        ({"k": 1, "form": "intrinsic-dim"}, "at least 2"),
        ({"lambda_0": -1.0}, "lambda_0"),
        ({"kappa": 1.0}, "kappa"),
        ({"clock": "days"}, "clock"),
        ({"lamda_0": 0.1}, "did you mean 'lambda_0'"),
    ],
)
def test_bad_settings_are_named(values: dict, words: str):
    with pytest.raises(ConfigError) as caught:
        parse_settings(RISE, values)
    assert words in str(caught.value)


def test_k_must_be_below_the_number_of_particles():
    settings = parse_settings(RISE, {"k": 64})
    with pytest.raises(ConfigError, match="k=64"):
        RISE.check_batch(settings, batch_size=64, chunk_size=8)
    RISE.check_batch(settings, batch_size=65, chunk_size=8)
    within = parse_settings(RISE, {"k": 8, "particles": "episode"})
    with pytest.raises(ConfigError, match="steps per environment"):
        RISE.check_batch(within, batch_size=64, chunk_size=8)


def test_methods_are_found_by_name_path_and_class():
    assert resolve_bonus("rise") is RISE
    assert resolve_bonus("rllib_rise.bonuses.rnd:RND") is RND
    assert resolve_bonus(RE3) is RE3
    assert method_names()[0] == "none"


@pytest.mark.parametrize("name", ["rize", "no.such.module:Thing", "math:pi"])
def test_unknown_methods_are_refused_with_a_hint(name: str):
    with pytest.raises(ConfigError, match="method"):
        resolve_bonus(name)
    if name == "rize":
        with pytest.raises(ConfigError, match="did you mean 'rise'"):
            resolve_bonus(name)


def test_box_cox_does_not_pay_for_collapsing_to_one_point():
    bonus, spread = make(RISE, form="box-cox", alpha=1.0), batch()
    usual = bonus.reward(spread)
    bonus.update(spread)
    collapsed = bonus.reward(Transitions(obs=torch.zeros(32, 4)))
    assert collapsed.max() < usual.min()


def test_rnd_on_constant_batches_gives_no_bonus():
    bonus = make(RND)
    for value in (0.0, 1.0):
        same = Transitions(obs=torch.full((16, 4), value), next_obs=torch.full((16, 4), value))
        assert bonus.reward(same).tolist() == [0.0] * 16
        bonus.update(same)


@pytest.mark.parametrize("cls", [RISE, RE3, RND])
def test_scalar_observations_are_vectors_of_one(cls: type[Bonus]):
    obs = torch.randn(33)
    rewards = make(cls, shape=()).reward(Transitions(obs=obs[:-1], next_obs=obs[1:]))
    assert rewards.shape == (32,)


def test_building_rnd_leaves_the_global_random_stream_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make(RND)
    assert torch.equal(torch.rand(3), expected)
