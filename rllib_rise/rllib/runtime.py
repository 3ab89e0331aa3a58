"""The intrinsic side of one learner: a bonus per module, the clock, and their checkpoint."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Any

import gymnasium as gym
import pyarrow.fs
import safetensors.torch
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from torch import Tensor

from rllib_rise.bonuses import Bonus, BonusSettings, Fit, FitReport, Need, Transitions
from rllib_rise.errors import ConfigError, NonFiniteError, RiseError
from rllib_rise.rllib.clock import Clock

_FORMAT = 2
Gather = Callable[[Tensor], tuple[Tensor, slice]]
_JSON = "state.json"
_TENSORS = "state.safetensors"


class IntrinsicRuntime(Checkpointable):
    """Adds the bonus to a module's batch: r_total = r + lambda_t r_hat + zeta H(pi).

    Knows bonuses by their protocol only. Identical on all learners.
    """

    def __init__(
        self,
        bonus_class: type[Bonus],
        settings: BonusSettings,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        gather: Gather | None = None,
        is_trained: Callable[[str], bool] = lambda module_id: True,
    ) -> None:
        self._bonus_class = bonus_class
        self._settings = settings
        self._needs = bonus_class.needs(settings)
        self._device = device
        self._seed = seed
        self._gather = gather
        self._is_trained = is_trained
        self.bonuses: dict[str, Bonus] = {}
        self.clock = Clock()
        #: Environment steps that Phase 1 took; not in the clock, but in every budget.
        self.warmup_env_steps = 0
        #: Whether a state was loaded.
        self.restored = False

    @property
    def intrinsic_lambda(self) -> float:
        """The bonus' weight at this update."""
        t = self.clock.read(self._settings.clock)
        return self._settings.lambda_0 * (1 - self._settings.kappa) ** t

    def add_module(self, module_id: str, observation_space: gym.Space) -> None:
        """Give a module its own bonus."""
        bonus = self._bonus_class(
            self._settings, observation_shape(module_id, observation_space), seed=self._seed
        )
        if self._gather is not None:
            bonus.gather = self._gather
        self.bonuses[module_id] = bonus.to(self._device)

    def unfitted(self) -> dict[str, Bonus]:
        """The bonuses that wait for Phase 1, in the same order on all learners.

        Modules that are not trained have no use for theirs.
        """
        return {
            module_id: bonus
            for module_id, bonus in sorted(self.bonuses.items())
            if self._is_trained(module_id) and not bonus.fitted
        }

    def adopt(self, fits: Mapping[str, Fit], *, env_steps: int) -> dict[str, FitReport]:
        """Give the bonuses what Phase 1 brought forth for them."""
        reports = {module_id: self.bonuses[module_id].adopt(fit) for module_id, fit in fits.items()}
        self.warmup_env_steps += env_steps
        return reports

    def remove_module(self, module_id: str) -> None:
        """Forget a module's bonus."""
        self.bonuses.pop(module_id, None)

    def apply(
        self,
        module_id: str,
        batch: MutableMapping[str, Any],
        rl_module: RLModule,
        metrics: MetricsLogger | None,
    ) -> None:
        """Replace the rewards of a batch by the total ones; phantom and padded rows keep theirs."""
        bonus = self.bonuses.get(module_id)
        if bonus is None or not self._is_trained(module_id):
            return
        if not bonus.fitted:
            raise RiseError(
                f"method {bonus.name!r} is not fitted for module {module_id!r}: Phase 1 runs in "
                "the training_step() of our algorithms (derive yours from one of them), for the "
                "modules that are trained then"
            )
        started = time.perf_counter()
        rewards, mask = batch[Columns.REWARDS], batch.get(Columns.LOSS_MASK)
        transitions = self._select(module_id, batch)
        if transitions is None:
            return
        with torch.no_grad():
            r_hat = bonus.reward(transitions).to(rewards.dtype)
        if r_hat.shape != (len(transitions),):
            raise ConfigError(
                f"method {bonus.name!r} returned rewards of shape {tuple(r_hat.shape)} for "
                f"{len(transitions)} transitions: return one value each, [N]"
            )
        if not bool(torch.isfinite(r_hat).all()):
            raise NonFiniteError(
                f"method {bonus.name!r} gave {_non_finite(r_hat)} NaN or infinite rewards for "
                f"module {module_id!r} at update {self.clock.updates}"
            )
        weight = self.intrinsic_lambda
        extra = weight * r_hat
        if self._settings.zeta > 0:
            extra = extra + self._settings.zeta * _policy_entropy(batch, rl_module, mask)
        # A new tensor: rewards may share memory with the episodes' arrays.
        total = rewards.clone()
        if mask is None:
            total += extra
        else:
            total[mask] += extra
        batch[Columns.REWARDS] = total
        bonus.update(transitions)
        if metrics is not None and len(transitions) > 0:
            figures = {
                "intrinsic_reward_mean": float(r_hat.mean()),
                "intrinsic_reward_std": float(r_hat.std(correction=0)),
                "intrinsic_reward_max": float(r_hat.max()),
                "intrinsic_lambda": weight,
                "intrinsic_seconds": time.perf_counter() - started,
                "intrinsic_warmup_steps": self.warmup_env_steps,
                **bonus.metrics(),
            }
            for name, value in figures.items():
                metrics.log_value((module_id, name), value, window=1)

    def _select(self, module_id: str, batch: Mapping[str, Any]) -> Transitions | None:
        """The batch's transitions, None where there are none to reward.

        Bonuses may gather rows from all learners, so these must do the same: one with nothing to
        reward goes on with no rows as long as another has some, and an error is one on all.
        """
        if self._gather is None:
            alone = select_transitions(module_id, batch, self._needs)
            return alone if len(alone) > 0 else None
        transitions, error = None, None
        try:
            transitions = select_transitions(module_id, batch, self._needs)
        except RiseError as found:
            error = found
        count = -1 if transitions is None else len(transitions)
        counts, _ = self._gather(torch.tensor([count], device=self._device))
        if error is None and bool((counts < 0).any()):
            error = RiseError(
                f"module {module_id!r}: another learner refused its part of the batch"
            )
        if error is not None:
            raise error
        return transitions if bool((counts > 0).any()) else None

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Bonus states as CPU tensors, clock, and what they belong to."""
        return {
            "format": _FORMAT,
            "clock": self.clock.get_state(),
            "warmup_env_steps": self.warmup_env_steps,
            "methods": {module_id: bonus.name for module_id, bonus in self.bonuses.items()},
            "tensors": {
                f"{module_id}/{name}": tensor.detach().cpu().clone()
                for module_id, bonus in self.bonuses.items()
                for name, tensor in bonus.state_dict().items()
            },
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over a state; settings are not part of it, so the present config's stay."""
        if state["format"] != _FORMAT:
            raise ConfigError(
                f"the checkpoint's intrinsic state has format {state['format']}, "
                f"this version reads {_FORMAT}"
            )
        self.restored = True
        self.clock.set_state(state["clock"])
        self.warmup_env_steps = state["warmup_env_steps"]
        for module_id, bonus in self.bonuses.items():
            method = state["methods"].get(module_id)
            if method is None:
                continue
            if method != bonus.name:
                raise ConfigError(
                    f"the checkpoint's module {module_id!r} was trained with intrinsic.method="
                    f"{method!r}, the config says {bonus.name!r}"
                )
            tensors = {
                key.rpartition("/")[2]: tensor
                for key, tensor in state["tensors"].items()
                if key.rpartition("/")[0] == module_id
            }
            try:
                bonus.load_state_dict(tensors)
            except RuntimeError as error:
                raise ConfigError(
                    f"the checkpoint's intrinsic state of module {module_id!r} does not fit the "
                    f"config (another encoder or size?): {error}"
                ) from error

    def save_to_path(
        self,
        path: str | pathlib.Path | None = None,
        *,
        state: dict[str, Any] | None = None,
        filesystem: pyarrow.fs.FileSystem | None = None,
        use_msgpack: bool = False,
    ) -> str:
        """Write `state.json` and `state.safetensors` into the folder `path`."""
        filesystem, folder = _folder(path, filesystem)
        filesystem.create_dir(folder, recursive=True)
        state = dict(state or self.get_state())
        tensors = {key: value.contiguous() for key, value in state.pop("tensors").items()}
        with filesystem.open_output_stream(f"{folder}/{_TENSORS}") as stream:
            stream.write(safetensors.torch.save(tensors))
        with filesystem.open_output_stream(f"{folder}/{_JSON}") as stream:
            stream.write(json.dumps(state, indent=2).encode())
        return folder

    def restore_from_path(
        self,
        path: str | pathlib.Path,
        *,
        component: str | None = None,
        filesystem: pyarrow.fs.FileSystem | None = None,
        **kwargs: Any,
    ) -> None:
        """Read what `save_to_path` wrote."""
        filesystem, folder = _folder(path, filesystem)
        with filesystem.open_input_stream(f"{folder}/{_JSON}") as stream:
            state = json.loads(stream.read())
        with filesystem.open_input_stream(f"{folder}/{_TENSORS}") as stream:
            state["tensors"] = safetensors.torch.load(stream.read())
        self.set_state(state)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """How to make another one."""
        return (self._bonus_class, self._settings), {
            "device": self._device,
            "seed": self._seed,
            "gather": self._gather,
            "is_trained": self._is_trained,
        }


def observation_shape(module_id: str, space: gym.Space) -> tuple[int, ...]:
    """The shape of a module's observations, or an error that says what to do about Dict/Tuple."""
    if isinstance(space, gym.spaces.Box):
        return tuple(space.shape)
    raise ConfigError(
        f"module {module_id!r} observes {space}: an intrinsic reward needs one array per step. "
        "Flatten them: config.env_runners(env_to_module_connector=lambda env, spaces, device: "
        "FlattenObservations()), from ray.rllib.connectors.env_to_module; or use a wrapper"
    )


def select_transitions(
    module_id: str, batch: Mapping[str, Any], needs: Collection[Need]
) -> Transitions:
    """The real transitions of a batch.

    On-policy batches hold, after the steps of each episode chunk, one phantom row with the chunk's
    last observation and `loss_mask` False. So the row after a transition holds its next
    observation, and the number of phantoms before a row is the number of its chunk.
    """
    obs, mask = batch[Columns.OBS], batch.get(Columns.LOSS_MASK)
    if not isinstance(obs, Tensor):
        raise ConfigError(f"module {module_id!r}: observations are nested, one tensor is needed")
    check_finite(module_id, obs)
    if mask is None:
        return Transitions(
            obs=obs, next_obs=batch.get(Columns.NEXT_OBS), actions=batch.get(Columns.ACTIONS)
        )
    ordered = {Need.NEXT_OBS, Need.EPISODES} & set(needs)
    if mask.dim() > 1 and ordered:
        names = " and ".join(sorted(need.value for need in ordered))
        raise ConfigError(
            f"module {module_id!r} is recurrent: {names} cannot be told from its padded batch yet"
        )
    rows = mask.flatten().nonzero().squeeze(1)
    return Transitions(
        obs=obs[mask],
        next_obs=obs[rows + 1] if Need.NEXT_OBS in needs else None,
        actions=batch[Columns.ACTIONS][mask] if Need.ACTIONS in needs else None,
        episodes=(~mask).cumsum(0)[mask] if Need.EPISODES in needs else None,
    )


def check_finite(module_id: str, obs: Any) -> None:
    """Raise where observations hold NaN or infinity."""
    bad = _non_finite(obs) if isinstance(obs, Tensor) else 0
    if bad:
        raise NonFiniteError(
            f"{bad} of {obs.numel()} observation values of module {module_id!r} are NaN or "
            "infinite; mend the environment or the connector that makes them"
        )


def _policy_entropy(batch: Mapping[str, Any], rl_module: RLModule, mask: Tensor | None) -> Tensor:
    """H(pi(. | s_t)) of the policy that acted, `[N]`."""
    inputs = batch[Columns.ACTION_DIST_INPUTS]
    inputs = inputs if mask is None else inputs[mask]
    distribution = rl_module.get_exploration_action_dist_cls().from_logits(inputs)
    return distribution.entropy()


def _non_finite(values: Tensor) -> int:
    if not values.is_floating_point():
        return 0
    finite = torch.isfinite(values)
    return 0 if bool(finite.all()) else int((~finite).sum())


def _folder(
    path: str | pathlib.Path | None, filesystem: pyarrow.fs.FileSystem | None
) -> tuple[pyarrow.fs.FileSystem, str]:
    if path is None:
        raise ConfigError("path: say where to save the intrinsic state")
    folder = path if isinstance(path, str) else path.as_posix()
    if filesystem is None:
        filesystem, folder = pyarrow.fs.FileSystem.from_uri(folder)
    return filesystem, folder
