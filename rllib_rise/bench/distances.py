"""The bonus alone, against what others do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rllib_rise.bench.measure import (
    STARTS,
    Figure,
    by_name,
    in_new_process,
    in_turn,
    ratio_over_starts,
    threads,
)
from rllib_rise.bench.rlexplore import INSTALL, rlexplore_re3
from rllib_rise.bonuses import Bonus, Transitions, parse_settings, resolve_bonus

_ENVS, _STEPS, _SIZE, _K = 8, 128, 128, 5
_LEAST_SECONDS = 0.05
_RLEXPLORE = "RLeXplore, per environment"
_TURNS = 15


def bonus_alone(
    num_threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """RE3's reward for 8 environments x 128 steps x 128 dimensions, against others' ways to it."""
    on_progress("the bonus alone")
    seconds = by_name(in_new_process(__name__, num_threads) for _ in range(STARTS[form]))
    ours, whole = seconds["ours, per environment"], seconds["ours, whole batch"]
    figures = [
        ratio_over_starts(
            "bonus alone: times as fast as batched cdist + topk",
            seconds["cdist + topk, per environment"],
            ours,
            ">= 1.2",
        ),
        ratio_over_starts(
            "bonus alone, whole batch: times the bare matrix product",
            whole,
            seconds["matrix product, whole batch"],
            "<= 2",
        ),
    ]
    raw: dict[str, Any] = {"seconds": seconds}
    times = seconds.get(_RLEXPLORE)
    if times is None:
        raw["skipped"] = f"RLeXplore is not installed: {INSTALL}"
    else:
        name = "bonus alone: times as fast as RLeXplore's RE3"
        figures.insert(0, ratio_over_starts(name, times, ours, ">= 10"))
        # No search of neighbours among such points goes without it.
        name = "bonus alone: a bare product, times as fast as RLeXplore's RE3"
        figures.append(ratio_over_starts(name, times, seconds["matrix product, per environment"]))
    return figures, raw


def _measure(num_threads: int) -> dict[str, list[float]]:
    """Seconds of each way in turn, by its name, after a check that they agree."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(_STEPS, _ENVS, _SIZE, generator=generator)
    flat = points.transpose(0, 1).reshape(-1, _SIZE).contiguous()
    apart = flat.view(_ENVS, _STEPS, _SIZE)
    batch = Transitions(obs=flat, episodes=torch.arange(_ENVS).repeat_interleave(_STEPS))
    within = searching_bonus("re3", particles="episode")
    over_all = searching_bonus("re3", particles="batch")
    calls: dict[str, Callable[[], Any]] = {
        "ours, per environment": lambda: within.reward(batch),
        "cdist + topk, per environment": lambda: _cdist(apart),
        "ours, whole batch": lambda: over_all.reward(batch),
        "matrix product, whole batch": lambda: flat @ flat.T,
        "matrix product, per environment": lambda: torch.bmm(apart, apart.mT),
    }
    theirs = rlexplore_re3(points, _K)
    if theirs is not None:
        calls[_RLEXPLORE] = theirs
        expected = theirs().transpose(0, 1).flatten()
        torch.testing.assert_close(within.reward(batch), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        within.reward(batch),
        _cdist(apart).flatten(),
        rtol=1e-4,
        atol=1e-4,
    )
    with threads(num_threads), torch.no_grad():
        return in_turn(calls, turns=_TURNS, least_seconds=_LEAST_SECONDS)


def searching_bonus(method: str, size: int = _SIZE, **settings: Any) -> Bonus:
    """A bonus whose embeddings are the observations."""
    cls = resolve_bonus(method)
    return cls(parse_settings(cls, {"k": _K, "encoder": "identity", **settings}), (size,))


def _cdist(points: Tensor) -> Tensor:
    """RE3's reward by torch's own functions, `[envs, steps]`."""
    distances = torch.cdist(points, points)
    return distances.topk(_K + 1, largest=False).values[..., -1].log1p()


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))
