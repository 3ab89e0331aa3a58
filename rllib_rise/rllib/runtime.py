"""The intrinsic side of one learner: a bonus per module, the clock, and their checkpoint."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

import gymnasium as gym
import pyarrow.fs
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from torch import Tensor

from rllib_rise.bonuses import Bonus, BonusSettings, Fit, FitReport, Need, Transitions
from rllib_rise.bonuses.moments import RunningMoments, standardized
from rllib_rise.errors import ConfigError, NonFiniteError, RiseError
from rllib_rise.rllib.clock import Clock
from rllib_rise.rllib.gather import Gather
from rllib_rise.rllib.state_files import read_state, write_state
from rllib_rise.rllib.transitions import (
    Chunk,
    count_non_finite,
    gather_transitions,
    in_order,
    no_transitions,
    select_transitions,
    state_shape,
)

LOGGED = {
    "intrinsic_reward_mean": "mean of r_hat over the batch, before lambda",
    "intrinsic_reward_std": "its deviation",
    "intrinsic_reward_max": "its largest value",
    "intrinsic_lambda": "lambda_t, the weight of the bonus at this update",
    "intrinsic_seconds": "time that the bonus took in this update",
    "intrinsic_megabytes": "what the bonus keeps from batch to batch",
    "intrinsic_warmup_steps": "environment steps that Phase 1 took",
}
"""What is logged of every bonus, per module; `Bonus.logged` has what each adds."""

_FORMAT = 2
_N_STEP = "n_step"
_STANDARD = "standardize:"


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
        gamma: Callable[[str], float] = lambda module_id: 1.0,
    ) -> None:
        self._bonus_class = bonus_class
        self._settings = settings
        self._needs = bonus_class.needs(settings)
        self._device = device
        self._seed = seed
        self._gather = gather
        self._is_trained = is_trained
        self._gamma = gamma
        self._moments: dict[str, RunningMoments] = {}
        self.bonuses: dict[str, Bonus] = {}
        self.clock = Clock()
        #: Environment steps that Phase 1 took; not in the clock, but in every budget.
        self.warmup_env_steps = 0
        #: Whether a state was loaded.
        self.restored = False

    @property
    def intrinsic_lambda(self) -> float:
        """The bonus' weight at this update."""
        return self._settings.weight(self.clock.read)

    def add_module(
        self,
        module_id: str,
        observation_space: gym.Space,
        action_space: gym.Space | None = None,
    ) -> None:
        """Give a module its own bonus, if it is among the chosen ones."""
        settings = self._settings
        if settings.modules is not None and module_id not in settings.modules:
            return
        shape = state_shape(module_id, observation_space, settings.state)
        spaces = {"action_space": action_space} if Need.ACTIONS in self._needs else {}
        bonus = self._bonus_class(settings, shape, seed=self._seed, **spaces)
        bonus.time = self.clock.read
        if self._gather is not None:
            bonus.gather = self._gather
        self.bonuses[module_id] = bonus.to(self._device)
        if self._settings.standardize is True:
            self._moments[module_id] = RunningMoments().to(self._device)

    @property
    def tells_episodes_apart(self) -> bool:
        """Whether the bonus must know which episodes a batch holds."""
        return Need.WHOLE_EPISODES in self._needs

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
        """Hand each bonus the fit that Phase 1 made for it."""
        reports = {module_id: self.bonuses[module_id].adopt(fit) for module_id, fit in fits.items()}
        self.warmup_env_steps += env_steps
        return reports

    def remove_module(self, module_id: str) -> None:
        """Forget a module's bonus."""
        self.bonuses.pop(module_id, None)
        self._moments.pop(module_id, None)

    def apply_all(
        self,
        batch: Mapping[str, MutableMapping[str, Any]],
        rl_module: Mapping[str, Any],
        metrics: MetricsLogger | None,
        chunks: Mapping[str, list[Chunk]] | None = None,
    ) -> None:
        """Reward every module's part of a batch.

        In the same order on all learners; where they gather from each other, also modules that
        this one has nothing of. `chunks` are those of each module's episodes, in the batch's order.
        """
        expected = set(self.bonuses) if self._gather is not None else set[str]()
        for module_id in sorted({*batch, *expected}):
            module = rl_module[module_id].unwrapped()
            own = (chunks or {}).get(module_id, [])
            self.apply(module_id, batch.get(module_id), module, metrics, own)

    def apply(
        self,
        module_id: str,
        batch: MutableMapping[str, Any] | None,
        rl_module: RLModule,
        metrics: MetricsLogger | None,
        chunks: Sequence[Chunk] = (),
    ) -> None:
        """Replace the rewards of a batch by the total ones; phantom and padded rows keep theirs."""
        bonus = self.bonuses.get(module_id)
        if bonus is None or not self._is_trained(module_id):
            return
        _check_fitted(module_id, bonus)
        started = time.perf_counter()
        own = self._select(module_id, bonus, batch, chunks)
        if own is None:
            return
        transitions, rows = own, slice(None)
        if self._gather is not None and not bonus.gathers:
            transitions, rows = gather_transitions(own, self._gather)
        order = in_order(transitions)
        if order is not None:
            transitions = transitions[order]
        r_hat = self._reward(module_id, bonus, transitions)
        bonus.update(transitions)
        if order is not None:
            r_hat = r_hat[torch.argsort(order)]
        r_hat = r_hat[rows]
        weight, given = self.intrinsic_lambda, r_hat
        if self._settings.shuffle:
            given = self._shuffled(given)
        if self._settings.standardize:
            given = self._standardized(module_id, given)
        self._add(module_id, batch if len(own) else None, given, weight, rl_module)
        if batch is None or len(own) == 0:
            return
        if metrics is not None:
            figures = {
                "intrinsic_reward_mean": float(r_hat.mean()),
                "intrinsic_reward_std": float(r_hat.std(correction=0)),
                "intrinsic_reward_max": float(r_hat.max()),
                "intrinsic_lambda": weight,
                "intrinsic_seconds": time.perf_counter() - started,
                "intrinsic_megabytes": bonus.nbytes() / 1e6,
                "intrinsic_warmup_steps": self.warmup_env_steps,
                **bonus.metrics(),
            }
            for name, value in figures.items():
                metrics.log_value((module_id, name), value, window=1)

    def bonus_of(
        self, module_id: str, batch: Mapping[str, Any], chunks: Sequence[Chunk] = ()
    ) -> Tensor:
        """The bonus r_hat of a batch's real transitions, `[N]`; nothing learns from them."""
        bonus = self.bonuses[module_id]
        _check_fitted(module_id, bonus)
        transitions = select_transitions(
            module_id, batch, self._needs, self._settings.state, chunks
        )
        return self._reward(module_id, bonus, transitions)

    def _add(
        self,
        module_id: str,
        batch: MutableMapping[str, Any] | None,
        given: Tensor,
        weight: float,
        rl_module: RLModule,
    ) -> None:
        """Give the batch new rewards: its tensor may share memory with the episodes' arrays."""
        error = None
        if batch is not None:
            total = self._total(module_id, batch, weight * given, rl_module)
            bad = count_non_finite(total)
            if bad:
                error = NonFiniteError(
                    f"{bad} rewards of module {module_id!r} are NaN or infinite at update "
                    f"{self.clock.updates}, with a bonus of up to {float(given.abs().max()):.3g} "
                    f"times lambda_t={weight:.3g}: lower intrinsic.lambda_0, or fix the "
                    "environment's rewards"
                )
            batch[Columns.REWARDS] = total
        self._raise_together(error, module_id)

    def _total(
        self, module_id: str, batch: Mapping[str, Any], extra: Tensor, rl_module: RLModule
    ) -> Tensor:
        rewards, mask = batch[Columns.REWARDS], batch.get(Columns.LOSS_MASK)
        steps = batch.get(_N_STEP)
        if steps is not None and self._settings.n_step_scaling:
            # The states between are not in the batch: the first one's bonus stands for all of them.
            gamma, n = self._gamma(module_id), steps if mask is None else steps[mask]
            extra = extra * (n if gamma == 1 else (1 - gamma**n) / (1 - gamma))
        if self._settings.zeta > 0:
            extra = extra + self._settings.zeta * _policy_entropy(batch, rl_module, mask)
        total = rewards.clone()
        if mask is None:
            total += extra.to(total.dtype)
        else:
            total[mask] += extra.to(total.dtype)
        return total

    def _reward(self, module_id: str, bonus: Bonus, transitions: Transitions) -> Tensor:
        """The bonus, checked; an error on one learner is one on all."""
        error: Exception | None = None
        try:
            with torch.no_grad():
                r_hat = bonus.reward(transitions)
            self._check_rewards(module_id, bonus, r_hat, len(transitions))
        except Exception as found:
            error = found
        self._raise_together(error, module_id)
        return r_hat

    def _raise_together(self, error: Exception | None, module_id: str) -> None:
        """Raise this learner's error, or one about another's: none waits for those that stopped."""
        if self._gather is not None:
            failed, _ = self._gather(torch.tensor([error is not None], device=self._device))
            if error is None and bool(failed.any()):
                error = RiseError(f"module {module_id!r}: the bonus failed on another learner")
        if error is not None:
            raise error

    def _check_rewards(self, module_id: str, bonus: Bonus, r_hat: Tensor, expected: int) -> None:
        if r_hat.shape != (expected,):
            raise ConfigError(
                f"method {bonus.name!r} returned rewards of shape {tuple(r_hat.shape)} for "
                f"{expected} transitions: return one value each, [N]"
            )
        if not bool(torch.isfinite(r_hat).all()):
            raise NonFiniteError(
                f"method {bonus.name!r} gave {count_non_finite(r_hat)} NaN or infinite rewards for "
                f"module {module_id!r} at update {self.clock.updates}: look for what is unusual in "
                "its observations, or report it, if the method is one of ours"
            )

    def _shuffled(self, r_hat: Tensor) -> Tensor:
        """The same values for other transitions; by seed and update, so that runs repeat."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self.clock.updates)
        return r_hat[torch.randperm(len(r_hat), generator=generator).to(r_hat.device)]

    def _standardized(self, module_id: str, r_hat: Tensor) -> Tensor:
        """Mean 0 and deviation 1 by those of the batches before, or of all learners' batch."""
        moments = self._moments.get(module_id)
        everyone = r_hat if self._gather is None else self._gather(r_hat)[0]
        standard = standardized(r_hat, moments, everyone=everyone)
        if moments is not None:
            moments.update(everyone)
        return standard

    def _select(
        self,
        module_id: str,
        bonus: Bonus,
        batch: Mapping[str, Any] | None,
        chunks: Sequence[Chunk],
    ) -> Transitions | None:
        """This learner's transitions; None where no learner has any to reward.

        Bonuses may gather rows from all learners, so these must do the same: one with nothing to
        reward goes on with no rows as long as another has some, and an error is one on all.
        """
        transitions = no_transitions(bonus.obs_shape, self._needs, self._device)
        error: Exception | None = None
        try:
            if batch is not None:
                transitions = select_transitions(
                    module_id, batch, self._needs, self._settings.state, chunks
                )
        except Exception as found:
            error = found
        counts = torch.tensor([-1 if error else len(transitions)], device=self._device)
        if self._gather is not None:
            counts, _ = self._gather(counts)
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
            "choices": {module_id: bonus.choices() for module_id, bonus in self.bonuses.items()},
            "tensors": {
                f"{module_id}/{name}": tensor.detach().cpu().clone()
                for module_id in self.bonuses
                for name, tensor in self._tensors(module_id).items()
            },
        }

    def _tensors(self, module_id: str) -> dict[str, Tensor]:
        """The state of a module's bonus and, beside it, of its standardisation."""
        found = dict(self.bonuses[module_id].state_dict())
        if module_id in self._moments:
            moments = self._moments[module_id].state_dict()
            found |= {_STANDARD + name: tensor for name, tensor in moments.items()}
        return found

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over a state; settings are not part of it, so the present config's stay."""
        if state["format"] != _FORMAT:
            raise ConfigError(
                f"the checkpoint's intrinsic state has format {state['format']}, this version "
                f"reads {_FORMAT}: load it with the version of rllib_rise that wrote it"
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
                    f"{method!r}, the config says {bonus.name!r}: set it to {method!r}, or train "
                    "anew"
                )
            tensors = {
                key.rpartition("/")[2]: tensor
                for key, tensor in state["tensors"].items()
                if key.rpartition("/")[0] == module_id
            }
            moments = {
                name.removeprefix(_STANDARD): tensors.pop(name)
                for name in list(tensors)
                if name.startswith(_STANDARD)
            }
            if moments and module_id in self._moments:
                self._moments[module_id].load_state_dict(moments)
            try:
                bonus.load_state_dict(tensors)
            except RuntimeError as error:
                raise ConfigError(
                    f"the checkpoint's intrinsic state of module {module_id!r} does not fit the "
                    f"config (another encoder or size?): {error}"
                ) from error
            bonus.prefer(state.get("choices", {}).get(module_id, {}))

    def save_to_path(
        self,
        path: str | pathlib.Path | None = None,
        *,
        state: dict[str, Any] | None = None,
        filesystem: pyarrow.fs.FileSystem | None = None,
        use_msgpack: bool = False,
    ) -> str:
        """Write `state.json` and `state.safetensors` into the folder `path`."""
        return write_state(state or self.get_state(), path, filesystem)

    def restore_from_path(
        self,
        path: str | pathlib.Path,
        *,
        component: str | None = None,
        filesystem: pyarrow.fs.FileSystem | None = None,
        **kwargs: Any,
    ) -> None:
        """Read what `save_to_path` wrote."""
        self.set_state(read_state(path, filesystem))

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """How to make another one."""
        return (self._bonus_class, self._settings), {
            "device": self._device,
            "seed": self._seed,
            "gather": self._gather,
            "is_trained": self._is_trained,
            "gamma": self._gamma,
        }


def _check_fitted(module_id: str, bonus: Bonus) -> None:
    if not bonus.fitted:
        raise RiseError(
            f"method {bonus.name!r} is not fitted for module {module_id!r}: Phase 1 runs in "
            "the training_step() of our algorithms (derive yours from one of them), for the "
            "modules that are trained then"
        )


def _policy_entropy(batch: Mapping[str, Any], rl_module: RLModule, mask: Tensor | None) -> Tensor:
    """H(pi(. | s_t)) of the policy that acted, `[N]`."""
    inputs = batch[Columns.ACTION_DIST_INPUTS]
    inputs = inputs if mask is None else inputs[mask]
    distribution = rl_module.get_exploration_action_dist_cls().from_logits(inputs)
    return distribution.entropy()
