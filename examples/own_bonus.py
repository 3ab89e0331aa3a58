"""A bonus of your own: novelty by linear regression, as in bandits.

Observations become random cosines phi. A matrix A = ridge + sum of phi phi^T remembers all that
were seen, and

    r_hat(s) = sqrt(phi(s)^T A^-1 phi(s))

is large in directions that A knows little of (LinUCB's bonus: Li et al. 2010). That is all there is
to write: the weight, several learners, checkpoints, metrics, sweeps and comparisons come from the
framework.

How to run:
    rise train configs/maze.yaml --set method=examples.own_bonus:Elliptic --set lambda_0=0.02
    rise compare configs/maze.yaml --methods none,rise,examples.own_bonus:Elliptic --seeds 5
In Python: RISEPPOConfig().intrinsic(method=Elliptic, lambda_0=0.02)

Results to expect: the run above, half a minute, visited 0.94 of the maze's cells; without a bonus
it is about 0.6. The bonus shrinks to a ninth, as A fills.
"""

import math

import torch
from pydantic import Field

from rllib_rise.bonuses import Bonus, BonusSettings


class EllipticSettings(BonusSettings):
    """What can be set; `lambda_0`, `kappa` and the like are there already."""

    features: int = Field(256, ge=1, description="Number of random cosines.")
    width: float = Field(0.05, gt=0, description="Distance at which observations look different.")
    ridge: float = Field(1.0, gt=0, description="What A is before anything was seen.")


class Elliptic(Bonus):
    """sqrt(phi^T A^-1 phi)."""

    name = "elliptic"
    Settings = EllipticSettings

    def __init__(self, settings, obs_shape, *, seed=0):
        super().__init__(settings, obs_shape, seed=seed)
        random, size = torch.Generator().manual_seed(seed), math.prod(obs_shape)
        # Buffers are the state: they are saved, restored, and moved to the learner's device.
        self.register_buffer(
            "waves", torch.randn(size, settings.features, generator=random) / settings.width
        )
        self.register_buffer(
            "phases", 2 * math.pi * torch.rand(settings.features, generator=random)
        )
        self.register_buffer(
            "seen", settings.ridge * torch.eye(settings.features, dtype=torch.float64)
        )

    def phi(self, batch):
        waves = batch.obs.flatten(1).float() @ self.waves + self.phases
        return math.sqrt(2 / self.settings.features) * waves.cos().double()

    def reward(self, batch):  # reads the state
        phi = self.phi(batch)
        return (phi * torch.linalg.solve(self.seen, phi.T).T).sum(1).clamp(min=0).sqrt().float()

    def update(self, batch):  # changes it
        phi = self.phi(batch)
        self.seen += phi.T @ phi
