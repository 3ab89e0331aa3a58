"""RLlib's batches as they come, and as they should not: for bonuses of any method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from hypothesis import strategies as st
from ray.rllib.core.columns import Columns
from strategies import mostly, tensors
from torch import Tensor

from rllib_rise.bonuses import BonusSettings, Need, method_names, parse_settings, resolve_bonus
from rllib_rise.bonuses.registry import WITHOUT_BONUS
from rllib_rise.rllib.runtime import IntrinsicRuntime
from rllib_rise.rllib.transitions import Chunk

METHODS = [name for name in method_names() if name not in WITHOUT_BONUS]
SHAPES = [(), (1,), (3,), (2, 2), (6, 6, 1), (3, 5, 4)]
ACTIONS = [
    gym.spaces.Discrete(4, start=-1),
    gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.Box(-1, 1, (2,)),
]
LAYOUTS = ("chunks", "chunks", "sequences", "masked", "replayed")

_orders = st.sampled_from([0.0, 0.1, 0.5, 0.999999])
#: Weights of the bonus: those that make sense, and those with which it can be lost or overflow.
WEIGHTS = st.sampled_from([0.1, 0.0, 1.0])
ALL_WEIGHTS = WEIGHTS | st.sampled_from([1e-300, 1e30, 1e300])
_common = {
    "kappa": st.sampled_from([0.0, 0.5, 1 - 1e-16]),
    "standardize": st.sampled_from([False, True, "batch"]),
    "shuffle": st.booleans(),
}
_neighbors = {
    "k": st.integers(2, 5) | st.sampled_from([40]),
    "particles": st.sampled_from(["batch", "episode"]),
    "embedding_size": st.sampled_from([1, 8]),
}
_learning = {
    "lr": st.sampled_from([1e-3, 1e-30]),
    "epochs": st.just(1),
    "minibatch_size": st.sampled_from([2, 256]),
    "embedding_size": st.sampled_from([1, 8]),
}
_own: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "rise": {
        **_neighbors,
        "alpha": _orders,
        "form": st.sampled_from(["paper", "box-cox", "intrinsic-dim"]),
        "encoder": st.sampled_from(["identity", "random"]),
    },
    "re3": {**_neighbors, "encoder": st.sampled_from(["identity", "random"])},
    "count": {
        "hash": st.sampled_from(["auto", "cells", "simhash"]),
        "cell": st.sampled_from([0.05, 1e-30, 1e30]),
        "table_size": st.sampled_from([1, 64]),
    },
    "rnd": _learning,
    "icm": _learning,
    "ride": {**_learning, "cell": st.sampled_from([0.05, 1e-30, 1e30])},
    "ngu": {**_learning, "k": st.sampled_from([1, 10]), "memory_size": st.sampled_from([1, 50])},
    "max-renyi": {
        **_learning,
        "alpha": _orders,
        "over": st.sampled_from(["state", "state-action"]),
    },
}


def settings_of(
    method: str, weights: st.SearchStrategy[float] = ALL_WEIGHTS
) -> st.SearchStrategy[dict[str, Any]]:
    """Valid settings, also extreme ones; sums are of one or two other methods."""
    common = {**_common, "lambda_0": weights}
    if method != "sum":
        return st.fixed_dictionaries({**common, **_own[method]})
    part = st.sampled_from(sorted(_own)).flatmap(
        lambda name: settings_of(name, weights).map(
            lambda values: {"method": name, **{k: v for k, v in values.items() if k != "shuffle"}}
        )
    )
    return st.fixed_dictionaries({**common, "parts": st.lists(part, min_size=1, max_size=2)})


@dataclass(frozen=True)
class Case:
    """A runtime with one module, and what its batches are made of."""

    runtime: IntrinsicRuntime = field(repr=False)
    settings: BonusSettings
    shape: tuple[int, ...]
    in_bytes: bool
    space: gym.Space
    needs: frozenset[Need]


@st.composite
def cases(draw: st.DrawFn, weights: st.SearchStrategy[float] = ALL_WEIGHTS) -> Case:
    """Any method on observations of any shape, in bytes or not, with any kind of actions."""
    method = draw(st.sampled_from(METHODS))
    shape, in_bytes = draw(st.sampled_from(SHAPES)), draw(st.booleans())
    space = draw(st.sampled_from(ACTIONS))
    bonus = resolve_bonus(method)
    settings = parse_settings(bonus, draw(settings_of(method, weights)))
    runtime = IntrinsicRuntime(bonus, settings)
    observations = gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
    runtime.add_module("m", observations, space)
    needs = bonus.needs(settings) | settings.needs()
    return Case(runtime, settings, shape, in_bytes, space, needs)


def observations(case: Case, rows: int, *, ordinary: bool = False) -> st.SearchStrategy[Tensor]:
    """As many, of any value; or of such as environments give."""
    if ordinary:
        noise = torch.randn((rows, *case.shape), generator=torch.Generator().manual_seed(rows))
        return st.just((noise * 50).byte() if case.in_bytes else noise)
    dtype = torch.uint8 if case.in_bytes else torch.float32
    return tensors(st.just((rows, *case.shape)), dtypes=st.just(dtype))


@st.composite
def batches(
    draw: st.DrawFn, case: Case, *, ordinary: bool = False
) -> tuple[dict[str, Tensor], list[Chunk]]:
    """One batch in one of RLlib's layouts, and the chunks of episodes in it."""
    ordered = case.needs & {Need.EPISODES, Need.WHOLE_EPISODES}
    layout = draw(st.sampled_from(LAYOUTS[:-1] if ordered else LAYOUTS))
    if layout == "replayed":
        mask = torch.ones(draw(st.integers(0, 8)), dtype=torch.bool)
        chunks = []
    else:
        lengths = draw(st.lists(st.integers(1, 5), max_size=4))
        mask = torch.tensor(
            [row for n in lengths for row in [True] * n + [False]], dtype=torch.bool
        )
        numbers = draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
        chunks = [Chunk(n, draw(st.integers(0, 9)), draw(st.booleans())) for n in numbers]
    if layout == "masked":
        mask, chunks = torch.zeros(len(mask), dtype=torch.bool), []
    count = len(mask)
    values = tensors(st.just((count,)), dtypes=st.just(torch.float32))
    batch = {
        Columns.OBS: draw(observations(case, count, ordinary=ordinary)),
        Columns.ACTIONS: draw(actions(case.space, count, ordinary=ordinary)),
        Columns.REWARDS: torch.zeros(count)
        if ordinary
        else draw(mostly(st.just(torch.ones(count)), values)),
    }
    if layout == "replayed":
        batch[Columns.NEXT_OBS] = draw(observations(case, count, ordinary=ordinary))
        return batch, chunks
    batch[Columns.LOSS_MASK] = mask
    if layout == "sequences":
        return {name: in_sequences(value, 4) for name, value in batch.items()}, chunks
    return batch, chunks


def actions(space: gym.Space, rows: int, *, ordinary: bool = False) -> st.SearchStrategy[Tensor]:
    """Actions of the space; continuous ones may be anything."""
    if isinstance(space, gym.spaces.Box) and not ordinary:
        return tensors(st.just((rows, *space.shape)), dtypes=st.just(torch.float32))
    space.seed(rows)
    sampled = [torch.as_tensor(space.sample()) for _ in range(rows)]
    return st.just(torch.stack(sampled) if sampled else torch.empty((0, *space.shape)))


def in_sequences(rows: Tensor, length: int) -> Tensor:
    """`[N, ...]` as `[B, T, ...]`, padded with zeros as RLlib does it."""
    missing = -len(rows) % length
    padded = torch.cat([rows, rows.new_zeros((missing, *rows.shape[1:]))])
    return padded.unflatten(0, (len(padded) // length, length))
