"""Reward forms: values, limits, finiteness, and the intrinsic dimension they may use."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import boxcox

from rllib_rise.entropy import (
    REWARD_FORMS,
    check_alpha,
    intrinsic_dimension,
    neighbor_distances,
    renyi_reward,
)
from rllib_rise.errors import ConfigError, NonFiniteError


def distances(n: int = 200, k: int = 5, seed: int = 0) -> torch.Tensor:
    draws = torch.rand(n, k, generator=torch.Generator().manual_seed(seed)) + 0.05
    return draws.sort(dim=1).values


def flat_manifold(d: int, m: int = 128, n: int = 1024, seed: int = 0) -> torch.Tensor:
    """A Gaussian of dimension d, rotated into m dimensions [n, m]."""
    random = np.random.default_rng(seed)
    frame = np.linalg.qr(random.standard_normal((m, d)))[0]
    return torch.from_numpy(random.standard_normal((n, d)) @ frame.T).float()


def torus(d: int, n: int, seed: int = 0) -> torch.Tensor:
    """Uniform on a product of d circles [n, 2 d]: constant density and no border."""
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, size=(n, d))
    return torch.from_numpy(np.hstack((np.cos(angles), np.sin(angles))))


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.99])
def test_paper_form_is_the_power_of_the_last_column(alpha):
    rho = distances()
    expected = rho[:, -1].double() ** (1 - alpha)
    for given_distances in (rho, rho[:, -1]):
        found = renyi_reward(given_distances, alpha=alpha)
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


def test_paper_form_gives_duplicates_nothing():
    assert renyi_reward(torch.tensor([0.0, 1.0]), alpha=0.9).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.999, 1.0, 1.001, 2.0, 5.0])
def test_box_cox_form_is_scipys_transform(alpha):
    rho = distances().double()
    found = renyi_reward(rho, alpha=alpha, form="box-cox", floor=1e-6)
    np.testing.assert_allclose(found.numpy(), boxcox(rho[:, -1].numpy(), 1 - alpha), rtol=1e-10)


def test_box_cox_form_is_continuous_at_order_one():
    rho = distances()
    shannon = renyi_reward(rho, alpha=1.0, form="box-cox", floor=1e-6)
    torch.testing.assert_close(shannon, rho[:, -1].log())
    for gap in (1e-5, 2e-6, 5e-7):
        for alpha in (1 - gap, 1 + gap):
            near = renyi_reward(rho, alpha=alpha, form="box-cox", floor=1e-6)
            torch.testing.assert_close(near, shannon, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
def test_box_cox_form_floors_duplicates_at_a_fraction_of_the_mean(alpha):
    rho = torch.tensor([0.0, 2.0, 4.0, 6.0])
    found = renyi_reward(rho, alpha=alpha, form="box-cox")
    expected = boxcox(np.array([0.004, 2.0, 4.0, 6.0]), 1 - alpha)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("floor", [0.5, torch.tensor(0.5)])
def test_box_cox_floor_may_be_a_number_or_a_tensor(floor):
    found = renyi_reward(torch.tensor([0.1, 2.0]), alpha=1.0, form="box-cox", floor=floor)
    torch.testing.assert_close(found, torch.tensor([0.5, 2.0]).log())


@pytest.mark.parametrize("form", REWARD_FORMS)
def test_a_batch_of_duplicates_gets_equal_finite_rewards(form):
    found = renyi_reward(torch.zeros(6, 3), alpha=0.5, form=form)
    assert bool(found.isfinite().all())
    assert len(found.unique()) == 1


def test_intrinsic_dim_form_is_its_formula():
    rho = distances()
    found = renyi_reward(rho, alpha=0.2, form="intrinsic-dim", dimension=3.0, log_center=-1.0)
    expected = (0.8 * 3 * (rho[:, -1].double().log() + 1)).exp()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


def test_intrinsic_dim_defaults_come_from_the_distances_and_zeros_earn_zero():
    rho = distances()
    rho[3] = 0.0
    center = rho[rho[:, -1] > 0, -1].log().mean()
    explicit = renyi_reward(
        rho[:, -1],
        alpha=0.2,
        form="intrinsic-dim",
        dimension=intrinsic_dimension(rho),
        log_center=center,
    )
    found = renyi_reward(rho, alpha=0.2, form="intrinsic-dim")
    torch.testing.assert_close(found, explicit, rtol=1e-5, atol=0)
    assert found[3] == 0
    assert (found > 0).sum() == len(rho) - 1


def test_intrinsic_dim_reward_of_a_far_outlier_keeps_the_variance_finite():
    rho = torch.full((1000,), 1e-3)
    rho[0] = 1e30
    found = renyi_reward(rho, alpha=0.0, form="intrinsic-dim", dimension=50.0, log_center=0.0)
    assert bool(found.isfinite().all())
    assert math.isfinite(float(found.var()))
    assert found[0] == found.max()


# Single estimates over six seeds lay in 1.93-2.06, 4.92-5.13 and 7.44-8.03; the density varies
# within rho_k, and more so the higher the dimension, which the tolerances allow for.
@pytest.mark.parametrize(("d", "low", "high"), [(2, 1.9, 2.1), (5, 4.7, 5.3), (8, 7.2, 8.3)])
def test_intrinsic_dimension_of_manifolds_in_128_dimensions(d, low, high):
    estimates = [
        float(intrinsic_dimension(neighbor_distances(flat_manifold(d, seed=seed), 5)))
        for seed in range(3)
    ]
    assert low < np.mean(estimates) < high


@pytest.mark.parametrize("k", [2, 5, 10])
@pytest.mark.parametrize("d", [1, 2])
def test_intrinsic_dimension_is_unbiased_for_the_inverse_at_constant_density(d, k):
    inverses = [
        1 / float(intrinsic_dimension(neighbor_distances(torus(d, 1500, seed), k)))
        for seed in range(4)
    ]
    # Standard error of one mean is about (1/d) / sqrt(1500), 2.6 %, and less for more neighbours.
    assert np.mean(inverses) == pytest.approx(1 / d, rel=0.05)


@pytest.mark.parametrize("m", [8, 128, 512])
def test_intrinsic_dim_reward_spread_does_not_depend_on_the_embedding(m):
    rewards = renyi_reward(
        neighbor_distances(flat_manifold(2, m=m), 5), alpha=0.5, form="intrinsic-dim"
    )
    reference = renyi_reward(
        neighbor_distances(flat_manifold(2, m=32), 5), alpha=0.5, form="intrinsic-dim"
    )
    ratio = float((rewards.log().std()) / reference.log().std())
    assert ratio == pytest.approx(1, rel=0.2)


def test_intrinsic_dimension_of_degenerate_distances_is_one():
    assert intrinsic_dimension(torch.zeros(4, 3)) == 1
    assert intrinsic_dimension(torch.full((4, 3), 2.0)) == 1
    assert intrinsic_dimension(torch.empty(0, 3)) == 1


def test_intrinsic_dimension_leaves_zero_distances_out():
    rho = torch.tensor([[0.0, 1.0, math.e], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    assert float(intrinsic_dimension(rho)) == pytest.approx(1.0, rel=1e-6)
    assert float(intrinsic_dimension(rho[:1, 1:] ** 0.5)) == pytest.approx(2.0, rel=1e-6)


any_distance = st.floats(0, float(np.finfo(np.float32).max), width=32)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda k: st.lists(st.lists(any_distance, min_size=k, max_size=k), min_size=1, max_size=6)
    ),
    st.sampled_from(REWARD_FORMS),
    st.floats(0, 100),
)
def test_rewards_of_finite_distances_are_finite_and_grow_with_distance(rows, form, alpha):
    rho = torch.tensor(rows, dtype=torch.float32).sort(dim=1).values
    alpha = alpha if form == "box-cox" else alpha / 101
    extra = {"dimension": 4.0} if rho.shape[1] < 2 else {}
    found = renyi_reward(rho, alpha=alpha, form=form, **extra)
    assert bool(found.isfinite().all())
    order = rho[:, -1].argsort()
    assert bool((found[order].diff() >= 0).all())


def test_settings_beyond_the_range_of_float32_give_finite_rewards():
    rho = torch.tensor([[0.5, 0.5], [0.5, 1.0], [1.0, 4.0]])
    limits = torch.finfo(torch.float32)
    steep = renyi_reward(rho, alpha=1e300, form="box-cox")
    assert steep[:2].tolist() == [limits.min, 0.0]
    assert 0 < steep[2] < 1e-38
    floored = renyi_reward(rho, alpha=0.0, form="box-cox", floor=1e300)
    assert floored.tolist() == [limits.max] * 3
    options = {"alpha": 0.5, "form": "intrinsic-dim", "dimension": 1e-60}
    assert renyi_reward(rho, log_center=-1e40, **options).tolist() == [1.0] * 3


@pytest.mark.parametrize("form", REWARD_FORMS)
def test_rewards_keep_float64_and_raise_half_precision_to_float32(form):
    rho = distances()
    assert renyi_reward(rho.double(), alpha=0.5, form=form).dtype == torch.float64
    assert renyi_reward(rho.half(), alpha=0.5, form=form).dtype == torch.float32


@pytest.mark.parametrize("form", ["paper", "intrinsic-dim"])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_orders_from_one_on_are_refused_with_the_form_that_takes_them(form, alpha):
    with pytest.raises(ConfigError, match='form="box-cox"'):
        renyi_reward(distances(), alpha=alpha, form=form)
    check_alpha(alpha, "box-cox")


@pytest.mark.parametrize("form", REWARD_FORMS)
@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf, 10**400, None, "1"])
def test_orders_that_do_not_exist_are_refused(form, alpha):
    with pytest.raises(ConfigError, match="alpha="):
        check_alpha(alpha, form)


def test_unknown_form_is_refused():
    with pytest.raises(ConfigError, match="'tsallis'"):
        renyi_reward(distances(), alpha=0.5, form="tsallis")


@pytest.mark.parametrize(
    "settings_of_form",
    [
        {"form": "box-cox", "floor": 0.0},
        {"form": "box-cox", "floor": math.nan},
        {"form": "box-cox", "floor": "low"},
        {"form": "box-cox", "floor": torch.ones(2)},
        {"form": "intrinsic-dim", "dimension": 0.0},
        {"form": "intrinsic-dim", "dimension": 10**400},
        {"form": "intrinsic-dim", "dimension": 2.0, "log_center": math.inf},
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings_of_form):
    name = list(settings_of_form)[-1]
    with pytest.raises(ConfigError, match=name):
        renyi_reward(distances(), alpha=0.5, **settings_of_form)


def test_distances_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="negative"):
        renyi_reward(torch.tensor([-1.0, 1.0]), alpha=0.5)
    with pytest.raises(NonFiniteError, match="1 NaN"):
        renyi_reward(torch.tensor([math.nan, 1.0]), alpha=0.5)
    with pytest.raises(ConfigError, match="shape"):
        renyi_reward(torch.zeros(2, 2, 2), alpha=0.5)
    with pytest.raises(ConfigError, match="dimension"):
        renyi_reward(torch.ones(3), alpha=0.5, form="intrinsic-dim")
    for too_few in (torch.ones(3), torch.ones(3, 1)):
        with pytest.raises(ConfigError, match="k >= 2"):
            intrinsic_dimension(too_few)
