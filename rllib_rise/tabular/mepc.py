"""Maximum entropy policy computation (Algorithm 1 of the paper, after Hazan et al. 2019).

The objective is the smoothed one of the paper, for orders 0 < alpha < 1 and sigma > 0,

    J(d) = 1 / (1 - alpha) sum_s (d(s) + sigma)^alpha,

with gradient alpha / (1 - alpha) (d + sigma)^(alpha - 1), whose largest entry is not above
B = alpha / (1 - alpha) sigma^(alpha - 1), and smoothness beta = alpha sigma^(alpha - 2).

In the paper's listing the two oracles stand in each other's place; here, as in its text, the
distribution of the mixture is estimated and the policy is planned for the gradient there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rllib_rise.errors import ConfigError, RiseError
from rllib_rise.tabular.entropies import FloatArray
from rllib_rise.tabular.mdp import FiniteMDP, Policy


@dataclass(frozen=True)
class SmoothedEntropy:
    """J, its gradient, and the constants of the theorem.

    Attributes:
        alpha: The order, 0 < alpha < 1.
        sigma: The smoothing, above 0.
    """

    alpha: float
    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha={self.alpha} must lie between 0 and 1")
        if not self.sigma > 0:
            raise ConfigError(f"sigma={self.sigma} must be above 0: without it J is not smooth")

    def __call__(self, d: FloatArray) -> float:
        """J(d)."""
        return float(((d + self.sigma) ** self.alpha).sum() / (1 - self.alpha))

    def gradient(self, d: FloatArray) -> FloatArray:
        """Of J at d [S]."""
        return self.alpha / (1 - self.alpha) * (d + self.sigma) ** (self.alpha - 1)

    @property
    def smoothness(self) -> float:
        """beta: how fast the gradient may change, in the maximum norm."""
        return self.alpha * self.sigma ** (self.alpha - 2)

    @property
    def bound(self) -> float:
        """B: the largest entry that a gradient can have."""
        return self.alpha / (1 - self.alpha) * self.sigma ** (self.alpha - 1)

    def iterations(self, epsilon: float) -> float:
        """The theorem's T = 10 beta / epsilon log(10 B / epsilon)."""
        return 10 * self.smoothness / epsilon * max(0.0, math.log(10 * self.bound / epsilon))

    def smoothing_gap(self, num_states: int) -> float:
        """Most that J can exceed what it smooths, for any d: S sigma^alpha / (1 - alpha)."""
        return num_states * self.sigma**self.alpha / (1 - self.alpha)


def smoothing_for(alpha: float, gap: float, num_states: int) -> float:
    """The sigma at which the smoothing gap is `gap`."""
    return (gap * (1 - alpha) / num_states) ** (1 / alpha)


@dataclass(frozen=True)
class SmoothedShannon:
    """-sum_s (d + sigma) log(d + sigma), Shannon's entropy in the place of J.

    Attributes:
        sigma: The smoothing, above 0.
    """

    sigma: float

    def __call__(self, d: FloatArray) -> float:
        """Its value at d."""
        return -float(((d + self.sigma) * np.log(d + self.sigma)).sum())

    def gradient(self, d: FloatArray) -> FloatArray:
        """Its gradient at d [S]."""
        return -np.log(d + self.sigma) - 1


class Oracles:
    """Exact answers to the two questions that the algorithm asks."""

    def estimate(self, d: FloatArray) -> FloatArray:
        """What is believed of the distribution of a mixture."""
        return d

    def plan(self, mdp: FiniteMDP, reward: FloatArray, last: Policy) -> Policy:
        """A policy for a reward."""
        return mdp.best_policy(reward, last)


class PerturbedOracles(Oracles):
    """Answers that are wrong at random, by not more than they may be.

    Args:
        planning_error: epsilon_1: how far the planned <d, r> may be below the best.
        density_error: epsilon_2: how far an estimated probability may be off.
        seed: Of the errors.
    """

    def __init__(self, planning_error: float, density_error: float, *, seed: int = 0) -> None:
        self._planning_error, self._density_error = planning_error, density_error
        self._rng = np.random.default_rng(seed)

    def estimate(self, d: FloatArray) -> FloatArray:
        """Every probability is off by epsilon_2, up or down, but not below 0."""
        signs = self._rng.choice((-1.0, 1.0), size=d.shape)
        return np.maximum(d + signs * self._density_error, 0)

    def plan(self, mdp: FiniteMDP, reward: FloatArray, last: Policy) -> Policy:
        """The best policy with actions changed at random as long as the error allows it."""
        policy = mdp.best_policy(reward, last)
        least = mdp.state_distribution(policy) @ reward - self._planning_error
        for state in self._rng.permutation(mdp.num_states):
            worse = policy.copy()
            worse[state] = self._rng.integers(mdp.transitions.shape[1])
            if mdp.state_distribution(worse) @ reward >= least:
                policy = worse
        return policy


@dataclass(frozen=True, eq=False)
class Mixture:
    """What the algorithm returns.

    Attributes:
        policies: Distinct ones, in the order in which they came.
        weights: Of each [n]; they sum to 1.
        distribution: Of the mixture [S]: the weighted sum of theirs.
        objectives: J of every mixture [T + 1].
    """

    policies: list[Policy]
    weights: FloatArray
    distribution: FloatArray
    objectives: FloatArray


def mepc(
    mdp: FiniteMDP,
    *,
    alpha: float,
    sigma: float,
    epsilon: float,
    iterations: int | None = None,
    oracles: Oracles | None = None,
) -> Mixture:
    """Mix policies, each the best for the gradient of J at the mixture so far.

        d_t     the distribution of the mixture, by the first oracle
        r_t   = the gradient of J at d_t
        pi_t+1  the policy for r_t, by the second
        d_t+1 = (1 - eta) d_t + eta d(pi_t+1),   eta = 0.1 epsilon / beta

    Args:
        mdp: The process.
        alpha: Order of the entropy, 0 < alpha < 1.
        sigma: Smoothing.
        epsilon: How far the result may be from the best; it fixes eta and T.
        iterations: Another T than the theorem's.
        oracles: Exact ones by default.

    Returns:
        The mixture after T iterations.
    """
    objective = SmoothedEntropy(alpha, sigma)
    if not epsilon > 0:
        raise ConfigError(f"epsilon={epsilon} must be above 0")
    eta = min(1.0, 0.1 * epsilon / objective.smoothness)
    rounds = math.ceil(objective.iterations(epsilon)) if iterations is None else iterations
    oracles = oracles or Oracles()
    policy = np.zeros(mdp.num_states, dtype=np.int64)
    known = {policy.tobytes(): 0}
    policies, distributions, weights = [policy], [mdp.state_distribution(policy)], np.ones(1)
    mixed = distributions[0]
    objectives = [objective(mixed)]
    for _ in range(rounds):
        reward = objective.gradient(oracles.estimate(mixed))
        policy = oracles.plan(mdp, reward, policy)
        number = known.setdefault(policy.tobytes(), len(policies))
        if number == len(policies):
            policies.append(policy)
            distributions.append(mdp.state_distribution(policy))
            weights = np.append(weights, 0.0)
        mixed = (1 - eta) * mixed + eta * distributions[number]
        weights *= 1 - eta
        weights[number] += eta
        objectives.append(objective(mixed))
    return Mixture(policies, weights, mixed, np.array(objectives))


def largest_objective(
    mdp: FiniteMDP,
    objective: SmoothedEntropy | SmoothedShannon,
    *,
    tolerance: float,
    rounds: int = 20_000,
) -> tuple[FloatArray, float]:
    """A distribution whose J is within the tolerance of the best, and what no J is above.

    Pairwise Frank-Wolfe: weight goes from the policy that is worth least at the gradient to the
    one that is worth most, by a line search. J is concave, so its gradient bounds it:
    J(d') <= J(d) + max <gradient at d, d' - d>.

    Args:
        mdp: The process.
        objective: J, or another that is concave.
        tolerance: Where to stop.
        rounds: The most that are tried.

    Returns:
        The distribution [S], and the bound.

    Raises:
        RiseError: The rounds were not enough.
    """
    policy = np.zeros(mdp.num_states, dtype=np.int64)
    known = {policy.tobytes(): 0}
    corners, weights = [mdp.state_distribution(policy)], np.ones(1)
    upper = math.inf
    for _ in range(rounds):
        d = weights @ np.array(corners)
        gradient = objective.gradient(d)
        policy = mdp.best_policy(gradient, policy)
        best = known.setdefault(policy.tobytes(), len(corners))
        if best == len(corners):
            corners.append(mdp.state_distribution(policy))
            weights = np.append(weights, 0.0)
        upper = min(upper, objective(d) + float(gradient @ (corners[best] - d)))
        if upper - objective(d) <= tolerance:
            return d, upper
        values = np.where(weights > 0, np.array(corners) @ gradient, np.inf)
        worst = int(values.argmin())
        step = _line_search(objective, d, corners[best] - corners[worst], weights[worst])
        weights[best] += step
        weights[worst] -= step
    raise RiseError(f"{rounds} rounds did not come within {tolerance:g} of the largest objective")


def _line_search(
    objective: SmoothedEntropy | SmoothedShannon,
    d: FloatArray,
    direction: FloatArray,
    longest: float,
) -> float:
    """The step in [0, longest] at which J is largest, by bisection of its slope."""
    if objective.gradient(np.maximum(d + longest * direction, 0)) @ direction >= 0:
        return longest
    low, high = 0.0, longest
    for _ in range(60):
        middle = (low + high) / 2
        if objective.gradient(np.maximum(d + middle * direction, 0)) @ direction > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
