"""Models that learn from every batch: Adam's steps, and what a checkpoint needs of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from rllib_rise.bonuses.protocol import BonusSettings

_ADAM = "adam."


class LearningSettings(BonusSettings):
    """Settings of bonuses with a model that learns at every update."""

    lr: float = Field(1e-4, gt=0, description="Adam's step size for the model.")
    epochs: int = Field(4, ge=1, description="Passes of the model over each batch.")
    minibatch_size: int = Field(256, ge=2, description="Transitions per step of the model.")


class Trainer(nn.Module):
    """Takes Adam's steps on minibatches of a batch.

    Adam's moments are saved and restored with the module that holds the trainer. The order of the
    rows comes from the seed and the number of the update alone, so that a restored run draws the
    same one.
    """

    updates: Tensor

    def __init__(self, parameters: Iterable[nn.Parameter], settings: Any, *, seed: int) -> None:
        super().__init__()
        self.optimizer = torch.optim.Adam(list(parameters), lr=settings.lr)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._settings, self._seed = settings, seed

    @torch.enable_grad()
    def learn(self, batch: Tensor, loss_of: Callable[[Tensor], Tensor]) -> float:
        """Pass over the rows of `batch`; `loss_of(rows)` is the mean loss of some of them.

        Steps whose gradient is not finite are left out: one of them would spoil the model for good.

        Returns:
            The mean loss of the last pass, over the rows that were learned from.
        """
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + int(self.updates))
        count, learned, total = len(batch), 0, torch.zeros(())
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for _ in range(self._settings.epochs):
            order = torch.randperm(count, generator=generator).to(batch.device)
            learned, total = 0, torch.zeros((), device=batch.device)
            # Parts of nearly equal size: a last one of a single row would count like all others.
            for rows in order.tensor_split(math.ceil(count / self._settings.minibatch_size) or 1):
                loss = loss_of(rows)
                self.optimizer.zero_grad()
                loss.backward()
                slopes = [p.grad for p in parameters if p.grad is not None]
                if not bool(nn.utils.get_total_norm(slopes).isfinite()):
                    continue
                self.optimizer.step()
                learned, total = learned + len(rows), total + loss.detach() * len(rows)
        self.updates += 1
        return float(total) / max(1, learned)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for index, values in self.optimizer.state_dict()["state"].items():
            for name, value in values.items():
                destination[f"{prefix}{_ADAM}{index}.{name}"] = value

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        adam: dict[int, dict[str, Tensor]] = {}
        for key in [key for key in state_dict if key.startswith(prefix + _ADAM)]:
            index, name = key.removeprefix(prefix + _ADAM).split(".")
            # The optimizer would keep the tensor it is given, and share it with the giver.
            adam.setdefault(int(index), {})[name] = state_dict.pop(key).clone()
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": adam, "param_groups": groups})
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
