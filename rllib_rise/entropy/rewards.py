"""Intrinsic rewards from nearest-neighbour distances."""

import torch
from torch import Tensor

from rllib_rise.entropy.estimators import SHANNON_WIDTH, check_order, is_finite_number
from rllib_rise.errors import ConfigError, NonFiniteError

REWARD_FORMS = ("paper", "box-cox", "intrinsic-dim")

FLOOR_FRACTION = 1e-3
"""Distances below this part of their mean are raised to it where a logarithm is taken."""

_MAX_EXPONENT = 22.0
"""A quarter of log(float32 max): not only a reward but the variance of a batch stays finite."""


def check_alpha(alpha: float, form: str = "paper") -> None:
    """Raises ConfigError unless the order `alpha` makes sense for the reward `form`.

    Args:
        alpha: Order of the Rényi entropy.
        form: One of `REWARD_FORMS`.
    """
    if form not in REWARD_FORMS:
        raise ConfigError(f"form={form!r} is unknown; use one of {', '.join(REWARD_FORMS)}")
    check_order(alpha)
    if form != "box-cox" and alpha >= 1:
        raise ConfigError(
            f"alpha={alpha!r} with form={form!r} would not reward distance; use 0 <= alpha < 1, or "
            'form="box-cox", which takes every order'
        )


def renyi_reward(
    distances: Tensor,
    *,
    alpha: float,
    form: str = "paper",
    floor: float | Tensor | None = None,
    dimension: float | Tensor | None = None,
    log_center: float | Tensor | None = None,
) -> Tensor:
    """One intrinsic reward per point, from rho_i, its distance to its k-th nearest other point.

    The forms, of which every one grows with rho:

    - `paper`: rho^(1 - alpha), 0 <= alpha < 1. A duplicate (rho = 0) earns 0.
    - `box-cox`: (rho^(1 - alpha) - 1) / (1 - alpha), log(rho) at alpha = 1, any alpha >= 0. rho is
      raised to `floor` first, so that a duplicate earns the least and never -inf.
    - `intrinsic-dim`: exp((1 - alpha) d (log rho - c)), 0 <= alpha < 1, and 0 where rho = 0. With
      d the data's intrinsic dimension this is the estimator's own term rho^(m (1 - alpha)) with
      the dimension of the data in place of that of the embedding. The exponent is cut off at 22
      (a reward of 3.6e9), so a point far off the data cannot overflow the reward, nor the
      variance of a batch that holds it.

    Args:
        distances: rho [N], or the distances to all neighbours [N, k], of which the last column is
            rho.
        alpha: Order of the entropy.
        form: One of `REWARD_FORMS`.
        floor: `box-cox` only: smallest rho, above 0. The default is 1e-3 of the mean of the
            positive distances in `distances`' last column, and 1e-3 if none is positive.
        dimension: `intrinsic-dim` only: d. The default is `intrinsic_dimension(distances)`, which
            needs [N, k] with k >= 2.
        log_center: `intrinsic-dim` only: c. The default is the mean of log rho over rho > 0; with
            a batch's own mean, spreading wider as a whole earns nothing, so pass a running one.

    Returns:
        Finite rewards [N] in the dtype of `distances` (at least float32), without gradient.

    Raises:
        ConfigError: An argument is out of its range.
        NonFiniteError: `distances` holds NaN or infinity.
    """
    check_alpha(alpha, form)
    distances = _checked_distances(distances)
    rho = distances[:, -1] if distances.ndim == 2 else distances
    if form == "paper":
        return rho.pow(1 - alpha)
    if form == "box-cox":
        lowest = _default_floor(rho) if floor is None else _positive("floor", floor)
        return _box_cox(rho, alpha, lowest)
    if dimension is None and distances.ndim != 2:
        raise ConfigError(
            "form='intrinsic-dim' with distances [N] needs dimension; pass it, or distances [N, k] "
            "with k >= 2 to estimate it from"
        )
    degree = (
        float(intrinsic_dimension(distances))
        if dimension is None
        else _positive("dimension", dimension)
    )
    seen = rho > 0
    log_rho = torch.where(seen, rho, 1.0).log()
    if log_center is None:
        center = float(log_rho.sum() / seen.sum().clamp(min=1))
    else:
        center = _finite("log_center", log_center)
    # The bounds on degree and centre keep infinity * 0 out.
    steepness, center = (1 - alpha) * min(degree, 1e30), min(max(center, -1e30), 1e30)
    exponent = (steepness * (log_rho - center)).clamp(max=_MAX_EXPONENT)
    return torch.where(seen, exponent.exp(), 0.0)


def intrinsic_dimension(distances: Tensor) -> Tensor:
    """Levina and Bickel's maximum-likelihood dimension, inverses averaged (MacKay, Ghahramani).

        1 / d = mean over i and j < k of log(rho_{i,k} / rho_{i,j})

    Where the density is locally constant, the (rho_{i,j} / rho_{i,k})^d for j < k are distributed
    as k - 1 independent uniform numbers, put in order. So each row's mean over its k - 1 terms has
    expectation 1/d exactly; what bias is left comes from curvature, borders and a density that is
    not constant within rho_k. Distances of 0 are left out.

    Args:
        distances: Ascending distances to the 1st..k-th neighbours [N, k], k >= 2. Rows clipped to
            fewer neighbours repeat distances and raise the estimate; leave them out.

    Returns:
        0-d tensor in the dtype of `distances` (at least float32), finite and above 0: 1.0 where
        there is nothing to estimate it from, because no pair of distances is positive or all of
        them are equal.

    Raises:
        ConfigError: `distances` is not [N, k] with k >= 2.
        NonFiniteError: `distances` holds NaN or infinity.
    """
    distances = _checked_distances(distances)
    if distances.ndim != 2 or distances.shape[1] < 2:
        raise ConfigError(
            f"distances has shape {tuple(distances.shape)}; an intrinsic dimension needs [N, k] "
            "with k >= 2"
        )
    nearer, rho = distances[:, :-1], distances[:, -1:]
    used = nearer > 0
    # A difference of logarithms, as the quotient of two distances can overflow.
    ratios = torch.where(used, rho.log() - nearer.log(), 0.0)
    inverse = ratios.sum() / used.sum().clamp(min=1)
    smallest = torch.finfo(inverse.dtype).tiny
    return torch.where(inverse > smallest, 1 / inverse.clamp(min=smallest), 1.0)


def _box_cox(rho: Tensor, alpha: float, floor: float) -> Tensor:
    limits = torch.finfo(rho.dtype)
    log_rho = rho.clamp(min=min(max(floor, limits.tiny), limits.max)).log()
    # Not beyond the dtype's range, where it would be infinity over infinity.
    order_gap = max(1 - alpha, limits.min)
    if abs(order_gap) < SHANNON_WIDTH:
        return log_rho
    # expm1 keeps the digits that `rho^(1 - alpha) - 1` loses near alpha = 1.
    reward = torch.expm1(order_gap * log_rho) / order_gap
    return reward.clamp(min=limits.min, max=limits.max)


def _default_floor(rho: Tensor) -> float:
    largest = float(rho.amax()) if rho.numel() else 0.0
    if largest == 0:
        return FLOOR_FRACTION
    # Relative to the largest, because a sum of huge distances can overflow.
    relative = rho / largest
    return FLOOR_FRACTION * largest * float(relative.sum() / (rho > 0).sum())


def _checked_distances(distances: Tensor) -> Tensor:
    if distances.ndim not in (1, 2) or (distances.ndim == 2 and distances.shape[1] == 0):
        raise ConfigError(
            f"distances has shape {tuple(distances.shape)}; pass [N] or [N, k] with k >= 1"
        )
    distances = distances.detach()
    if distances.dtype != torch.float64:
        distances = distances.float()
    finite = distances.isfinite()
    if not bool(finite.all()):
        raise NonFiniteError(
            f"distances holds {int((~finite).sum())} NaN or infinite values of "
            f"{distances.numel()}; check the points that they come from"
        )
    if bool((distances < 0).any()):
        raise ConfigError("distances holds negative values; pass distances, not their logarithms")
    return distances


def _finite(name: str, value: float | Tensor) -> float:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if not is_finite_number(number):
        raise ConfigError(f"{name}={number!r} must be a finite number")
    return float(number)


def _positive(name: str, value: float | Tensor) -> float:
    number = _finite(name, value)
    if number <= 0:
        raise ConfigError(f"{name}={number!r} must be a finite number above 0")
    return number
