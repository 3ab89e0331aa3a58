"""Generalised advantage estimation (Schulman et al. 2016) on the learner's batch.

Of a chunk of T steps, with the phantom row's observation as s_T,

    delta_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t)
    A_t     = delta_t + gamma lambda A_{t+1},   A_T = 0,
    value target_t = A_t + V(s_t).

Departures from RLlib's connector:

1. Values are computed without a graph for gradients that nobody asks for, and for images in parts.
2. All chunks take a step of the recursion at once.
3. Advantages are standardised over real transitions only. RLlib's mean and deviation include the
   phantom rows, whose advantages mean nothing.
4. Phantom rows are dropped when they have served, so that minibatches are as large as they are
   called, and a batch of n minibatches is n of them and not n + 1.

Batches of recurrent modules keep their padding and phantom rows, and RLlib's way of computing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import tree  # type: ignore[import-untyped]
from numpy.typing import NDArray
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.evaluation.postprocessing import Postprocessing
from torch import Tensor

# Numbers of observations that go through the value network at once.
_NUMBERS_AT_ONCE = 2**22
_LEAST_DEVIATION = 1e-4


class AdvantagesConnector(GeneralAdvantageEstimation):
    """Adds advantages and value targets to each module's tensors; the last of PPO's pipeline."""

    @torch.no_grad()
    def __call__(
        self, *, rl_module: MultiRLModule, episodes: list[Any], batch: dict[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        """Compute the advantages of every module that has a value function."""
        modules = {module_id: rl_module[module_id].unwrapped() for module_id in batch}
        if any(module.is_stateful() for module in modules.values()):
            return super().__call__(rl_module=rl_module, episodes=episodes, batch=batch, **kwargs)
        for module_id, module in modules.items():
            if isinstance(module, ValueFunctionAPI):
                batch[module_id] = self._complete(module, batch[module_id])
        return batch

    def _complete(self, module: RLModule, batch: dict[str, Any]) -> dict[str, Any]:
        real = batch[Columns.LOSS_MASK]
        values = _values(module, batch)
        advantages = gae(
            rewards=_array(batch[Columns.REWARDS]),
            values=_array(values),
            terminated=_array(batch[Columns.TERMINATEDS]),
            real=_array(real),
            gamma=self.gamma,
            lambda_=self.lambda_,
        )
        found = torch.from_numpy(advantages.astype(np.float32)).to(values.device)
        batch = _real_rows(batch, real)
        batch[Postprocessing.VALUE_TARGETS] = _like(batch, real, found + values[real])
        deviation = found.std(correction=0).clamp(min=_LEAST_DEVIATION)
        standardised = (found - found.mean()) / deviation
        batch[Postprocessing.ADVANTAGES] = _like(batch, real, standardised)
        return batch


def gae(
    *,
    rewards: NDArray[Any],
    values: NDArray[Any],
    terminated: NDArray[Any],
    real: NDArray[np.bool_],
    gamma: float,
    lambda_: float,
) -> NDArray[np.float64]:
    """Advantages of the real rows `[n]`; arguments are `[N]`, with a phantom row behind each chunk.

    Args:
        rewards: r_t.
        values: V(s_t), of a phantom row that of the chunk's last next observation.
        terminated: Whether s_{t+1} is not to be counted on.
        real: False for phantom rows.
        gamma: Discount.
        lambda_: Between one-step residuals (0) and whole returns (1).
    """
    rows = np.flatnonzero(real)
    following = gamma * np.where(terminated[rows], 0.0, values[rows + 1].astype(np.float64))
    residuals = rewards[rows] + following - values[rows]
    # Chunks stand side by side and end in the same row, from which all of them go back together.
    ends = np.flatnonzero(~real)
    lengths = np.diff(ends, prepend=-1) - 1
    chunk = np.repeat(np.arange(len(ends)), lengths)
    longest = int(lengths.max(initial=0))
    place = longest - ends[chunk] + rows
    table = np.zeros((longest, len(ends)))
    table[place, chunk] = residuals
    for step in range(longest - 2, -1, -1):
        table[step] += gamma * lambda_ * table[step + 1]
    return table[place, chunk]


def _values(module: RLModule, batch: Mapping[str, Any]) -> Tensor:
    """V of all rows, a part of them at a time."""
    numbers = sum(math.prod(leaf.shape[1:]) for leaf in tree.flatten(batch[Columns.OBS]))
    size = max(1, _NUMBERS_AT_ONCE // numbers)
    count = len(batch[Columns.LOSS_MASK])
    if count <= size or not _all_have_rows(batch, count):
        return module.compute_values(batch)
    parts = [
        module.compute_values(
            tree.map_structure(lambda leaf, first=first: leaf[first : first + size], dict(batch))
        )
        for first in range(0, count, size)
    ]
    return torch.cat(parts)


def _real_rows(batch: dict[str, Any], real: Tensor) -> dict[str, Any]:
    """The batch without its phantom rows, unless a column of it is not one value per row."""
    if not _all_have_rows(batch, len(real)):
        return batch
    rows = real.nonzero().squeeze(1)
    kept = tree.map_structure(lambda leaf: leaf[rows], dict(batch))
    del kept[Columns.LOSS_MASK]
    return kept


def _like(batch: Mapping[str, Any], real: Tensor, values: Tensor) -> Tensor:
    """The values of real rows, with zeros for phantom ones where the batch still has these."""
    if Columns.LOSS_MASK not in batch:
        return values
    return values.new_zeros(len(real)).masked_scatter_(real, values)


def _all_have_rows(batch: Mapping[str, Any], count: int) -> bool:
    return all(
        isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == count
        for leaf in tree.flatten(dict(batch))
    )


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()
