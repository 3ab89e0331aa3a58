"""Running mean and variance as buffers of a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningMoments(nn.Module):
    """Mean and variance of everything seen, merged batch by batch (Chan, Golub, LeVeque 1979).

    With n_a, mu_a, M_a of what was seen, n_b, mu_b, M_b of the batch and delta = mu_b - mu_a:

        n  = n_a + n_b
        mu = mu_a + delta n_b / n
        M  = M_a + M_b + delta^2 n_a n_b / n

    Kept in float64: over millions of samples float32 counts stop moving.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(shape, dtype=torch.float64))

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Take in `values`, `[n, *shape]`."""
        if len(values) == 0:
            return
        values = values.to(torch.float64)
        batch_mean = values.mean(0)
        delta = batch_mean - self.mean
        total = self.count + len(values)
        self.squares += (values - batch_mean).square().sum(0)
        self.squares += delta.square() * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count.copy_(total)

    @property
    def var(self) -> Tensor:
        """The variance (divided by n); 0 before anything was seen."""
        return self.squares / self.count.clamp(min=1)

    @property
    def std(self) -> Tensor:
        """The standard deviation."""
        return self.var.sqrt()


def standardized(
    values: Tensor, moments: RunningMoments | None, *, everyone: Tensor | None = None
) -> Tensor:
    """`[n]` values at mean 0 and deviation 1 by the moments of what came before.

    Before anything came, and without moments, by those of `everyone` (of the values, if that is not
    given); a deviation of 0 counts as 1.
    """
    if moments is None or moments.count == 0:
        moments = RunningMoments().to(values.device)
        moments.update(values if everyone is None else everyone)
    deviation = moments.std if bool(moments.std > 0) else torch.ones_like(moments.std)
    return ((values.double() - moments.mean) / deviation).to(values.dtype)
