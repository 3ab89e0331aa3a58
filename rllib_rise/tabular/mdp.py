"""Finite Markov decision processes, with exact answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rllib_rise.errors import ConfigError
from rllib_rise.tabular.entropies import FloatArray

Policy = NDArray[np.int64]
"""An action for every state."""

_IMPROVEMENT = 1e-12


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """States, actions and where they lead; rewards are functions of the state.

    Attributes:
        transitions: Probabilities [S, A, S].
        start: Distribution of the first state [S].
        gamma: Discount, in [0, 1).
    """

    transitions: FloatArray
    start: FloatArray
    gamma: float

    def __post_init__(self) -> None:
        shape = self.transitions.shape
        if len(shape) != 3 or shape[0] != shape[2] or self.start.shape != shape[:1]:
            raise ConfigError(
                f"transitions {shape} and start {self.start.shape} must be [S, A, S] and [S]"
            )
        for name, values in (("transitions", self.transitions), ("start", self.start)):
            if (values < 0).any() or not np.allclose(values.sum(axis=-1), 1):
                raise ConfigError(f"{name} must hold distributions along its last axis")
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"gamma={self.gamma} must be in [0, 1)")

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.start)

    def state_distribution(self, policy: Policy) -> FloatArray:
        """How much of its discounted time a policy spends in each state, [S]:

            d(s) = (1 - gamma) sum_t gamma^t P(s_t = s),

        the solution of (I - gamma P^T) d = (1 - gamma) start.
        """
        matrix = np.eye(self.num_states) - self.gamma * self._kernel(policy).T
        return np.asarray(np.linalg.solve(matrix, (1 - self.gamma) * self.start), np.float64)

    def best_policy(self, reward: FloatArray, first: Policy | None = None) -> Policy:
        """A policy that maximises the reward <d, r>, by policy iteration: exact, in few rounds.

        Args:
            reward: Of each state [S].
            first: Where to begin; a policy that is nearly the best saves rounds.
        """
        policy = np.zeros(self.num_states, dtype=np.int64) if first is None else first.copy()
        states = np.arange(self.num_states)
        while True:
            matrix = np.eye(self.num_states) - self.gamma * self._kernel(policy)
            ahead = self.transitions @ np.linalg.solve(matrix, reward)
            better = ahead.max(axis=1) - ahead[states, policy]
            # A gain within the rounding would let two equal policies alternate for ever.
            change = better > _IMPROVEMENT * (1 + abs(ahead).max())
            if not change.any():
                return policy
            policy[change] = ahead.argmax(axis=1)[change]

    def _kernel(self, policy: Policy) -> FloatArray:
        return self.transitions[np.arange(self.num_states), policy]


def random_mdp(num_states: int, num_actions: int, *, gamma: float, seed: int) -> FiniteMDP:
    """Each action leads to a few states, with probabilities drawn at random."""
    rng = np.random.default_rng(seed)
    transitions = np.zeros((num_states, num_actions, num_states))
    for state in range(num_states):
        for action in range(num_actions):
            reached = rng.choice(num_states, size=min(3, num_states), replace=False)
            transitions[state, action, reached] = rng.dirichlet(np.ones(len(reached)))
    start = np.zeros(num_states)
    start[0] = 1
    return FiniteMDP(transitions, start, gamma)


def deterministic_mdp(successors: NDArray[np.int64], *, start: int, gamma: float) -> FiniteMDP:
    """A process that is given by the state in which each action ends, `successors` [S, A]."""
    first = np.zeros(len(successors))
    first[start] = 1
    return FiniteMDP(np.eye(len(successors))[successors], first, gamma)
