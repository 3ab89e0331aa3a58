"""From RLlib's batches to what bonuses see."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import torch
import tree  # type: ignore[import-untyped]
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from torch import Tensor

from rllib_rise.bonuses import Need, Transitions
from rllib_rise.errors import ConfigError, NonFiniteError
from rllib_rise.rllib.gather import Gather

StateFunction = Callable[[Any], Tensor]


class Chunk(NamedTuple):
    """The part of an episode that a batch has.

    Attributes:
        episode: A number that all chunks of the episode have in common.
        start: The step of the episode with which it begins.
        done: Whether the episode ends with it.
    """

    episode: int
    start: int
    done: bool


def chunk_of(episode: SingleAgentEpisode) -> Chunk:
    """The identity of an episode's chunk, read before RLlib batches it."""
    digest = hashlib.blake2b(str(episode.id_).encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big", signed=True)
    return Chunk(number, int(episode.t_started), bool(episode.is_done))


def state_shape(
    module_id: str, space: gym.Space, state: StateFunction | None = None
) -> tuple[int, ...]:
    """The shape of what counts as a module's state, or an error that says what to do."""
    if state is not None:
        sample = tree.map_structure(lambda item: torch.as_tensor(item)[None], space.sample())
        return tuple(_state_of(module_id, sample, state).shape[1:])
    if isinstance(space, gym.spaces.Box):
        return tuple(space.shape)
    raise ConfigError(
        f"module {module_id!r} observes {space}: an intrinsic reward needs one array per step. "
        "Choose what counts as state with intrinsic.state, a function from such a batch to one "
        "tensor; or flatten the observations: env_runners(env_to_module_connector="
        "lambda env, spaces, device: FlattenObservations()), from "
        "ray.rllib.connectors.env_to_module"
    )


def _state_of(module_id: str, obs: Any, state: StateFunction | None) -> Tensor:
    """One tensor of a batch's observations, as many as there are."""
    chosen = obs if state is None else state(obs)
    if not isinstance(chosen, Tensor):
        what = "observations are nested" if state is None else f"state() gave a {type(chosen)}"
        raise ConfigError(f"module {module_id!r}: {what}, one tensor is needed")
    size = len(tree.flatten(obs)[0])
    if chosen.dim() == 0 or len(chosen) != size:
        raise ConfigError(
            f"module {module_id!r}: intrinsic.state gave a tensor of shape {tuple(chosen.shape)} "
            f"for {size} observations: keep their first dimension"
        )
    return chosen


def select_transitions(
    module_id: str,
    batch: Mapping[str, Any],
    needs: Collection[Need],
    state: StateFunction | None = None,
    chunks: Sequence[Chunk] = (),
) -> Transitions:
    """The real transitions of a batch, with what counts as state for observations.

    1. Replayed batches (DQN, SAC) hold transitions, and their next observations.
    2. On-policy batches hold, after the steps of each episode chunk, one phantom row with the
       chunk's last observation and `loss_mask` False. So the row after a transition holds its next
       observation, and the number of phantoms before a row tells its chunk from others.
    3. Batches of recurrent modules are `[B, T]`, chunks cut into rows of T and the last of them
       padded behind its phantom: read row by row they are as under 2.

    The state function gets observations `[N, ...]` in each of these cases.
    """
    mask: Any = batch.get(Columns.LOSS_MASK)
    following = batch.get(Columns.NEXT_OBS)
    dimensions = 1 if mask is None else mask.dim()

    def states(observations: Any) -> Tensor:
        flat = tree.map_structure(lambda leaf: leaf.flatten(0, dimensions - 1), observations)
        found = _state_of(module_id, flat, state)
        check_finite(module_id, found)
        return found

    obs = states(batch[Columns.OBS])
    # Without a mask all rows are real, and nothing is copied.
    rows: Any = slice(None) if mask is None else mask.flatten().nonzero().squeeze(1)
    given = {"obs": obs[rows]}
    if Need.NEXT_OBS in needs:
        if following is None and (mask is None or bool(mask.flatten()[-1:].any())):
            raise ConfigError(
                f"module {module_id!r}: the batch ends with a transition, and this bonus needs the "
                "observation behind it: a connector has removed the row that RLlib puts there"
            )
        given["next_obs"] = obs[rows + 1] if following is None else states(following)[rows]
    if Need.ACTIONS in needs:
        given["actions"] = batch[Columns.ACTIONS].flatten(0, dimensions - 1)[rows]
    if Need.EPISODES in needs:
        given["episodes"] = (~mask.flatten()).cumsum(0)[rows]
    if Need.WHOLE_EPISODES in needs:
        given |= _whole_episodes(module_id, (~mask.flatten()).cumsum(0)[rows], chunks)
    return Transitions(**given)


def _whole_episodes(module_id: str, phantoms: Tensor, chunks: Sequence[Chunk]) -> dict[str, Tensor]:
    """The episode of each transition, its step in it, and whether it is the last.

    Args:
        module_id: For errors.
        phantoms: How many phantom rows there are before each transition, `[N]`.
        chunks: Those that the batch was made of, in its order.
    """
    numbers = torch.unique_consecutive(phantoms, return_inverse=True)[1]
    found = int(numbers[-1]) + 1 if len(numbers) else 0
    if found != len(chunks):
        raise ConfigError(
            f"module {module_id!r}: the batch has {found} chunks of episodes, the learner was "
            f"given {len(chunks)}: a connector has removed or added some, and this bonus cannot "
            "tell which; take that connector out, or choose another method"
        )

    def column(values: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=phantoms.device)

    ids, starts = column([c.episode for c in chunks]), column([c.start for c in chunks])
    over = column([c.done for c in chunks], torch.bool)
    last = torch.ones_like(numbers, dtype=torch.bool)
    last[:-1] = numbers[1:] != numbers[:-1]
    rows = torch.arange(len(numbers), device=phantoms.device)
    begins = torch.where(last.roll(1), rows, 0).cummax(0).values
    return {
        "episode_ids": ids[numbers],
        "steps": starts[numbers] + rows - begins,
        "done": over[numbers] & last,
    }


def in_order(transitions: Transitions) -> Tensor | None:
    """Where the transitions belong for each episode's to be in their order; None if they are.

    RLlib cuts episodes to deal out equal numbers of steps to learners, the longest first.
    """
    ids, steps = transitions.episode_ids, transitions.steps
    if ids is None or steps is None:
        return None
    grouped = torch.argsort(ids, stable=True)
    same = ids[grouped][1:] == ids[grouped][:-1]
    if bool((steps[grouped].diff()[same] > 0).all()):
        return None
    by_step = torch.argsort(steps, stable=True)
    return by_step[torch.argsort(ids[by_step], stable=True)]


def no_transitions(
    obs_shape: tuple[int, ...], needs: Collection[Need], device: torch.device | str
) -> Transitions:
    """What a learner has of a module that is absent from its part of a batch."""
    nothing = torch.empty((0, *obs_shape), device=device)
    whole = {}
    if Need.WHOLE_EPISODES in needs:
        number = torch.empty((0,), dtype=torch.int64, device=device)
        whole = {"episode_ids": number, "steps": number, "done": number.bool()}
    return Transitions(
        obs=nothing,
        next_obs=nothing if Need.NEXT_OBS in needs else None,
        actions=torch.empty((0,), device=device) if Need.ACTIONS in needs else None,
        episodes=torch.empty((0,), dtype=torch.int64, device=device)
        if Need.EPISODES in needs
        else None,
        **whole,
    )


def gather_transitions(own: Transitions, gather: Gather) -> tuple[Transitions, slice]:
    """The transitions of all learners, and which of them are this one's."""
    tensors, gathered = own.tensors(), dict[str, Tensor]()
    obs = tensors.pop("obs")
    gathered["obs"], rows = gather(obs if len(own) else None)
    if "episodes" in tensors:
        # Numbers of their own for each learner's episodes: those of its rows.
        numbers = torch.unique(tensors["episodes"], return_inverse=True)[1]
        tensors["episodes"] = numbers + rows.start
    for name, tensor in tensors.items():
        gathered[name], _ = gather(tensor if len(own) else None)
    return Transitions(**gathered), rows


def check_finite(module_id: str, obs: Any) -> None:
    """Raise where observations hold NaN or infinity."""
    bad = count_non_finite(obs) if isinstance(obs, Tensor) else 0
    if bad:
        raise NonFiniteError(
            f"{bad} of {obs.numel()} observation values of module {module_id!r} are NaN or "
            "infinite; fix the environment or the connector that makes them"
        )


def count_non_finite(values: Tensor) -> int:
    """How many values are NaN or infinite."""
    if not values.is_floating_point():
        return 0
    finite = torch.isfinite(values)
    return 0 if bool(finite.all()) else int((~finite).sum())
