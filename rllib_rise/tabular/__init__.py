"""Exploration where everything can be computed: discrete entropies, cover times, MEPC, mazes."""

from rllib_rise.tabular.cover_time import expected_cover_time
from rllib_rise.tabular.entropies import discrete_renyi_entropy
from rllib_rise.tabular.mdp import FiniteMDP
from rllib_rise.tabular.mepc import mepc

__all__ = ["FiniteMDP", "discrete_renyi_entropy", "expected_cover_time", "mepc"]
