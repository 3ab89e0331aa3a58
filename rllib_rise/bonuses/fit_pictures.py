"""Pictures of an embedding for the report on Phase 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rllib_rise.encoders import VAEEncoder
from rllib_rise.encoders.base import is_image
from rllib_rise.entropy import kth_neighbor_distance

_EXAMPLES = 8
_POINTS = 2000


def sample_reconstructions(encoder: VAEEncoder, obs: Tensor) -> dict[str, Tensor]:
    """A few observations, evenly from the whole set, and what the decoder makes of them."""
    if not is_image(encoder.obs_shape):
        return {}
    originals = obs[_evenly(len(obs), _EXAMPLES)]
    decoded = encoder.reconstruct(originals.to(encoder.center.device)).cpu()
    return {"originals": originals, "reconstructions": decoded}


def fit_pictures(
    embeddings: Tensor, k: int, reward: Callable[[Tensor], Tensor]
) -> dict[str, np.ndarray[Any, Any]]:
    """The two principal components of a part of the embeddings, and the bonus of each point.

    Args:
        embeddings: `[N, m]`, of any number type.
        k: The neighbour.
        reward: From distances to rewards.
    """
    points = embeddings[_evenly(len(embeddings), _POINTS)]
    bonus = reward(kth_neighbor_distance(points, k))
    centred = points.float()
    centred = centred - centred.mean(0)
    # With as few points as there may be, the smaller Gram matrix gives the same components.
    wide = centred.shape[1] > centred.shape[0]
    gram = centred @ centred.T if wide else centred.T @ centred
    variances, vectors = torch.linalg.eigh(gram.double())
    variances, vectors = variances.flip(0)[:2].clamp(min=0), vectors.flip(1)[:, :2]
    projection = vectors * variances.sqrt() if wide else centred.double() @ vectors
    if projection.shape[1] < 2:
        projection = torch.nn.functional.pad(projection, (0, 1))
        variances = torch.nn.functional.pad(variances, (0, 1))
    total = max(float(centred.square().sum()), torch.finfo(torch.float32).tiny)
    return {
        "projection": projection.float().numpy(),
        "bonus": bonus.float().numpy(),
        "explained_variance": (variances / total).numpy(),
    }


def _evenly(count: int, most: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, most)).round().long()
