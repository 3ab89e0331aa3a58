"""Mathematics of state entropy on tensors: neighbours, estimators, rewards. Needs torch only."""

from rllib_rise.entropy.backends import (
    BACKENDS,
    FaissInstall,
    installed_faiss,
    resolve_backend,
)
from rllib_rise.entropy.estimators import renyi_entropy, renyi_entropy_from_distances
from rllib_rise.entropy.grouping import group_points
from rllib_rise.entropy.k_search import KSearch, search_k
from rllib_rise.entropy.neighbors import (
    has_k_others,
    kth_neighbor_distance,
    neighbor_distances,
)
from rllib_rise.entropy.rewards import (
    REWARD_FORMS,
    check_alpha,
    intrinsic_dimension,
    renyi_reward,
)

__all__ = [
    "BACKENDS",
    "REWARD_FORMS",
    "FaissInstall",
    "KSearch",
    "check_alpha",
    "group_points",
    "has_k_others",
    "installed_faiss",
    "intrinsic_dimension",
    "kth_neighbor_distance",
    "neighbor_distances",
    "renyi_entropy",
    "renyi_entropy_from_distances",
    "renyi_reward",
    "resolve_backend",
    "search_k",
]
