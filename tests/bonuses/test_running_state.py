"""What the bonuses remember from batch to batch, and the figures they report."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from rllib_rise.bonuses import RE3, RISE, RND, Bonus, Transitions, parse_settings
from rllib_rise.entropy import renyi_entropy

EULER = 0.5772156649015329  # -psi(1)


def make(cls: type[Bonus], shape: tuple[int, ...] = (4,), seed: int = 0, **values) -> Bonus:
    if cls is RISE:
        values.setdefault("k", 5)
    return cls(parse_settings(cls, values), shape, seed=seed)


def normal(count: int, size: int = 4, seed: int = 0, scale: float = 1.0) -> Transitions:
    generator = torch.Generator().manual_seed(seed)
    obs = torch.randn(count + 1, size, generator=generator) * scale
    return Transitions(obs=obs[:-1], next_obs=obs[1:])


def line(*points: float) -> Transitions:
    return Transitions(obs=torch.tensor(points)[:, None])


def arrivals(obs: torch.Tensor) -> Transitions:
    return Transitions(obs=obs, next_obs=obs)


def take_in(bonus: Bonus, *batches: Transitions) -> None:
    for data in batches:
        bonus.reward(data)
        bonus.update(data)


def distances(x: torch.Tensor, k: int) -> np.ndarray:
    """To the 1st..k-th other point, [N, k]."""
    found = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x.double().numpy())
    return found.kneighbors()[0]


def log_ratios(near: np.ndarray) -> np.ndarray:
    """Of each row its estimate of 1/d (Levina and Bickel)."""
    return np.log(near[:, -1:] / near[:, :-1]).mean(1)


def intrinsic_reward(rho: np.ndarray, seen: list[np.ndarray], alpha: float) -> np.ndarray:
    """exp((1 - alpha) d (log rho - c)), d and c over all rows of `seen` with equal weight."""
    dimension = 1 / np.concatenate([log_ratios(near) for near in seen]).mean()
    center = np.concatenate([np.log(near[:, -1]) for near in seen]).mean()
    return np.exp((1 - alpha) * dimension * (np.log(rho) - center))


# box-cox: the floor


def test_on_the_first_batch_a_duplicate_is_floored_at_a_thousandth_of_its_mean_distance():
    bonus = make(RISE, shape=(1,), form="box-cox", alpha=1.0, k=1)
    rewards = bonus.reward(line(0.0, 0.0, 1.0, 3.0))  # distances 0, 0, 1, 2
    lowest = math.log(1e-3 * 0.75)
    np.testing.assert_allclose(rewards, [lowest, lowest, 0, math.log(2)], rtol=1e-6)


def test_later_a_duplicate_is_floored_at_a_thousandth_of_the_mean_over_the_batches_before():
    bonus = make(RISE, shape=(1,), form="box-cox", alpha=1.0, k=1)
    take_in(bonus, line(0.0, 1.0, 3.0, 7.0))  # distances 1, 1, 2, 4
    rewards = bonus.reward(line(5.0, 5.0, 100.0, 350.0))  # 0, 0, 95, 250
    lowest = math.log(1e-3 * 2)
    np.testing.assert_allclose(rewards, [lowest, lowest, math.log(95), math.log(250)], rtol=1e-6)
    take_in(bonus, line(0.0, 10.0))  # 10, 10: the mean of all six is 28 / 6
    rewards = bonus.reward(line(5.0, 5.0, 5.1))
    np.testing.assert_allclose(rewards, [*[math.log(1e-3 * 28 / 6)] * 2, math.log(0.1)], rtol=1e-5)


def test_the_floor_holds_for_other_orders_too():
    bonus = make(RISE, shape=(1,), form="box-cox", alpha=3.0, k=1)
    take_in(bonus, line(0.0, 1.0, 3.0, 7.0))
    rewards = bonus.reward(line(0.0, 0.0, 0.5))
    # (rho^-2 - 1) / -2
    lowest = (1 - (2e-3) ** -2) / 2
    np.testing.assert_allclose(rewards, [lowest, lowest, (1 - 4) / 2], rtol=1e-5)


# intrinsic-dim: dimension and centre


def test_the_first_batch_is_rewarded_by_its_own_dimension_and_centre():
    data = normal(100, size=3)
    near = distances(data.obs, 4)
    rewards = make(RISE, shape=(3,), form="intrinsic-dim", alpha=0.3, k=4).reward(data)
    np.testing.assert_allclose(rewards, intrinsic_reward(near[:, -1], [near], 0.3), rtol=1e-4)


def test_later_batches_are_rewarded_by_the_dimension_and_centre_of_those_before():
    # Of unequal size, spread and dimension, so that every weighting but by rows shows.
    first, second = normal(120, size=3), normal(40, size=3, seed=1, scale=5.0)
    second.obs[:, 1:] *= 0.01
    third = normal(80, size=3, seed=2, scale=0.5)
    bonus = make(RISE, shape=(3,), form="intrinsic-dim", alpha=0.3, k=4)
    take_in(bonus, first, second)
    seen = [distances(data.obs, 4) for data in (first, second)]
    rho = distances(third.obs, 4)[:, -1]
    np.testing.assert_allclose(bonus.reward(third), intrinsic_reward(rho, seen, 0.3), rtol=1e-4)
    dimension = 1 / np.concatenate([log_ratios(near) for near in seen]).mean()
    assert bonus.metrics()["rise_intrinsic_dimension"] == pytest.approx(dimension, rel=1e-5)


def chunks_of_which_two_tell_nothing() -> tuple[Transitions, list[np.ndarray]]:
    """Chunks of 10, 3, 4 equal, 4 and 8 points, and the distances of those that k = 3 can use."""
    obs = normal(29, size=2, seed=4).obs.clone()
    obs[10:13] *= 100
    obs[13:17] = obs[13]
    episodes = torch.repeat_interleave(torch.arange(5), torch.tensor([10, 3, 4, 4, 8]))
    seen = [distances(obs[rows], 3) for rows in (slice(0, 10), slice(17, 21), slice(21, 29))]
    return Transitions(obs=obs, episodes=episodes), seen


def test_chunks_with_too_few_points_and_duplicates_count_neither_for_dimension_nor_centre():
    data, seen = chunks_of_which_two_tell_nothing()
    bonus = make(RISE, shape=(2,), form="intrinsic-dim", alpha=0.3, k=3, particles="episode")
    # By its own dimension and centre first, then by the same as the running ones.
    for count in (0, 22, 44):
        assert bonus.log_distance.count == count
        assert bonus.inverse_dimension.count == count
        rewards = bonus.reward(data)
        rho = np.concatenate([near[:, -1] for near in seen])
        usable = [*range(10), *range(17, 29)]
        np.testing.assert_allclose(rewards[usable], intrinsic_reward(rho, seen, 0.3), rtol=1e-4)
        assert rewards[13:17].tolist() == [0.0] * 4
        bonus.update(data)


def test_a_batch_without_a_usable_row_leaves_dimension_and_centre_as_they_were():
    bonus = make(RISE, form="intrinsic-dim", alpha=0.3, k=3)
    take_in(bonus, normal(50))
    center, inverse = float(bonus.log_distance.mean), float(bonus.inverse_dimension.mean)
    take_in(bonus, normal(3, seed=1), Transitions(obs=torch.ones(20, 4)))
    assert bonus.log_distance.count == bonus.inverse_dimension.count == 50
    assert float(bonus.log_distance.mean) == center
    assert float(bonus.inverse_dimension.mean) == inverse


@pytest.mark.parametrize(
    "values", [{"form": "box-cox", "alpha": 1.0}, {"form": "intrinsic-dim", "alpha": 0.3}]
)
def test_a_restored_bonus_gives_the_same_rewards(values: dict):
    bonus, restored, fresh = (make(RISE, k=3, **values) for _ in range(3))
    take_in(bonus, normal(60), normal(30, seed=1, scale=3.0))
    restored.load_state_dict(bonus.state_dict())
    data = normal(40, seed=2)
    data.obs[:4] = data.obs[0]  # duplicates, which meet the floor
    rewards = bonus.reward(data)
    assert torch.equal(restored.reward(data), rewards)
    assert not torch.allclose(fresh.reward(data), rewards)
    for one in (bonus, restored):
        one.update(data)
    assert torch.equal(restored.reward(data), bonus.reward(data))


# metrics


def test_the_entropy_reported_is_of_the_bonus_own_order_and_k():
    data = normal(80)
    for values in (
        {"alpha": 0.5, "k": 4},
        {"alpha": 0.0, "k": 2},
        {"alpha": 1.0, "k": 3, "form": "box-cox"},
        {"alpha": 2.5, "k": 3, "form": "box-cox"},
    ):
        bonus = make(RISE, **values)
        take_in(bonus, data)
        expected = float(renyi_entropy(data.obs, alpha=values["alpha"], k=values["k"]))
        assert bonus.metrics()["rise_entropy"] == pytest.approx(expected, rel=1e-6)
        assert bonus.metrics()["rise_k"] == values["k"]


def test_re3_reports_the_shannon_entropy_of_its_embedding():
    data = normal(80)
    plain, embedded = make(RE3, encoder="identity"), make(RE3, embedding_size=6)
    for bonus, x in ((plain, data.obs), (embedded, embedded.encoder(data.obs))):
        take_in(bonus, data)
        expected = float(renyi_entropy(x, alpha=1.0, k=3))
        assert bonus.metrics()["re3_entropy"] == pytest.approx(expected, rel=1e-6)


def test_shannon_entropy_of_four_points_of_a_line_and_with_a_duplicate_at_the_floor():
    # Kozachenko and Leonenko: log(N - 1) + log 2 - psi(1) + mean log rho.
    bonus = make(RE3, shape=(1,), encoder="identity", k=1)
    bonus.reward(line(0.0, 1.0, 3.0, 7.0))
    expected = math.log(3) + math.log(2) + EULER + math.log(1 * 1 * 2 * 4) / 4
    assert bonus.metrics()["re3_entropy"] == pytest.approx(expected, rel=1e-6)
    bonus.reward(line(0.0, 0.0, 1.0, 3.0))
    expected = math.log(3) + math.log(2) + EULER + math.log(0.75e-3**2 * 1 * 2) / 4
    assert bonus.metrics()["re3_entropy"] == pytest.approx(expected, rel=1e-6)


def test_no_entropy_is_reported_where_it_is_undefined():
    data = normal(30)
    within = Transitions(obs=data.obs, episodes=torch.arange(30) // 10)
    for bonus in (
        make(RISE, particles="episode"),
        make(RISE, form="box-cox", alpha=3.0, k=2),
    ):
        bonus.reward(within)
        assert "rise_entropy" not in bonus.metrics()
    assert make(RISE).metrics() == {}


def test_duplicates_are_the_share_of_points_whose_kth_neighbour_is_at_no_distance():
    data = line(0.0, 0.0, 0.0, 1.0, 1.0, 4.0, 6.0, 9.0)
    for k, share in ((1, 5 / 8), (2, 3 / 8), (3, 0.0)):
        bonus = make(RISE, shape=(1,), k=k)
        bonus.reward(data)
        assert bonus.metrics()["rise_duplicates"] == share


def test_clipped_are_the_points_with_fewer_than_k_others_to_choose_from():
    data = normal(9, size=1)
    sizes = torch.tensor([4, 2, 3])
    data = Transitions(obs=data.obs, episodes=torch.repeat_interleave(torch.arange(3), sizes))
    for k, within, among_all in ((1, 0, 0), (2, 2, 0), (3, 5, 0), (8, 9, 0), (9, 9, 9)):
        for particles, clipped in (("episode", within), ("batch", among_all)):
            bonus = make(RISE, shape=(1,), k=k, particles=particles)
            bonus.reward(data)
            assert bonus.metrics()["intrinsic_clipped_k"] == clipped


# RND


@pytest.mark.parametrize("shape", [(6,), (5, 4, 3)])
def test_rnd_on_the_first_batch_is_the_error_on_whitened_observations_over_its_deviation(
    shape: tuple[int, ...],
):
    bonus = make(RND, shape=shape, minibatch_size=16)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(50, *shape)) * rng.uniform(1, 100, shape) + rng.normal(size=shape)
    obs = obs.astype(np.float32)
    white = ((obs - obs.mean(0)) / obs.std(0)).clip(-5, 5)
    if len(shape) == 3:
        white = np.ascontiguousarray(white.transpose(0, 3, 1, 2))
    with torch.no_grad():
        x = torch.from_numpy(white)
        errors = (bonus.predictor(x) - bonus.target(x)).numpy()
    errors = (errors**2).mean(1)
    rewards = bonus.reward(arrivals(torch.from_numpy(obs)))
    np.testing.assert_allclose(rewards, errors / errors.std(), rtol=1e-3)


def test_rnd_does_not_see_the_units_of_the_observations():
    # Per feature: the networks start without biases, where one factor for all would cancel.
    units, zero = torch.tensor([1000.0, 1.0, 0.03, 20.0]), torch.tensor([500.0, -3.0, 0.1, 0.0])
    one, other = make(RND), make(RND)
    for seed in range(3):
        obs = normal(200, seed=seed, scale=1 + seed).obs
        here, there = arrivals(obs), arrivals(obs * units + zero)
        np.testing.assert_allclose(one.reward(here), other.reward(there), rtol=1e-2)
        thousandfold = make(RND).reward(arrivals(obs * 1000))
        np.testing.assert_allclose(make(RND).reward(here), thousandfold, rtol=1e-3)
        one.update(here)
        other.update(there)


@pytest.mark.parametrize("sign", [1, -1])
def test_rnd_sees_no_farther_than_five_deviations(sign: int):
    data = normal(200, scale=3.0)
    bonus = make(RND)
    take_in(bonus, data)
    seen = data.next_obs.double()
    mean, std = seen.mean(0), seen.std(0, correction=0)

    def bonus_at(deviations: float) -> torch.Tensor:
        obs = data.next_obs.clone()
        obs[7, 2] = mean[2] + sign * deviations * std[2]
        return bonus.reward(arrivals(obs))

    assert torch.equal(bonus_at(10), bonus_at(1e6))
    assert torch.equal(bonus_at(10), bonus_at(5.1))
    near, far = bonus_at(4.5), bonus_at(10)
    assert not torch.isclose(near[7], far[7], rtol=1e-3)
    assert torch.equal(near[:7], far[:7])


def test_rnd_whitens_and_divides_by_the_moments_of_all_batches_before():
    bonus = make(RND)
    batches = [normal(200), normal(50, seed=1, scale=2.0), normal(80, seed=2)]
    errors: list[np.ndarray] = []
    for number, data in enumerate(batches):
        rewards = bonus.reward(data)
        seen = torch.cat([part.next_obs.double() for part in batches[: max(1, number)]])
        white = (data.next_obs - seen.mean(0)) / seen.std(0, correction=0)
        x = white.clamp(-5, 5).float()
        with torch.no_grad():
            errors.append((bonus.predictor(x) - bonus.target(x)).square().mean(1).numpy())
        deviation = np.concatenate(errors[: max(1, number)]).std()
        np.testing.assert_allclose(rewards, errors[-1] / deviation, rtol=1e-3)
        bonus.update(data)


def test_rnd_learns_a_batch_better_in_more_epochs():
    data = normal(128)
    left, losses = [], []
    for epochs in (1, 5, 25):
        bonus = make(RND, lr=1e-3, epochs=epochs, minibatch_size=128)
        take_in(bonus, data)
        left.append(float(bonus.reward(data).mean()))
        losses.append(bonus.metrics()["rnd_loss"])
    assert left[0] > 1.5 * left[1] > 2 * left[2]
    assert losses[0] > 1.5 * losses[1] > 2 * losses[2]


def test_rnd_takes_one_step_per_minibatch_and_epoch():
    bonus = make(RND, epochs=3, minibatch_size=32)
    take_in(bonus, normal(100), normal(64, seed=1))
    # 100 observations are 4 minibatches, 64 are 2.
    assert bonus.state_dict()["trainer.adam.0.step"] == 3 * 4 + 3 * 2


def test_rnd_draws_minibatches_from_its_seed_and_not_from_the_global_stream():
    data = [normal(100), normal(100, seed=1)]
    one, same = make(RND, minibatch_size=16), make(RND, minibatch_size=16)
    other = make(RND, minibatch_size=16, seed=1)
    other.load_state_dict(one.state_dict())
    for number, bonus in enumerate((one, same, other)):
        torch.manual_seed(number)
        before = torch.get_rng_state()
        take_in(bonus, *data)
        assert torch.equal(torch.get_rng_state(), before)
    for key, value in one.predictor.state_dict().items():
        assert torch.equal(value, same.predictor.state_dict()[key]), key
        # The same networks and data, in another order.
        assert not torch.equal(value, other.predictor.state_dict()[key]), key


def test_rnd_shuffles_each_update_anew():
    data = normal(100)
    one, later = make(RND, minibatch_size=16), make(RND, minibatch_size=16)
    later.load_state_dict(one.state_dict() | {"trainer.updates": torch.tensor(1)})
    for bonus in (one, later):
        take_in(bonus, data)
    pairs = zip(one.predictor.parameters(), later.predictor.parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in pairs)
