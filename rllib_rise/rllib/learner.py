"""The mixin that gives an RLlib learner its intrinsic runtime."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from ray.rllib.connectors.learner import NumpyToTensor
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from rllib_rise.errors import ConfigError
from rllib_rise.rllib.connector import EpisodesConnector, IntrinsicRewardConnector
from rllib_rise.rllib.gather import Gather, gather_rows
from rllib_rise.rllib.memory import keep_freed_memory
from rllib_rise.rllib.runtime import IntrinsicRuntime

COMPONENT_INTRINSIC = "intrinsic"


class IntrinsicLearnerMixin:
    """Use as `class X(IntrinsicLearnerMixin, SomeTorchLearner)`."""

    intrinsic: IntrinsicRuntime
    _learner_connector: Any
    config: Any
    module: Any

    def build(self) -> None:
        """Build the learner, then its runtime, then put the connector behind `NumpyToTensor`."""
        already_built = getattr(self, "intrinsic", None) is not None
        keep_freed_memory()
        super().build()  # type: ignore[misc]
        if already_built:
            return
        bonus_class, settings = self.config.intrinsic_method()
        self.intrinsic = IntrinsicRuntime(
            bonus_class,
            settings,
            device=self._device,  # type: ignore[attr-defined]
            seed=self.config.seed or 0,
            gather=self._gather(),
            is_trained=self.should_module_be_updated,  # type: ignore[attr-defined]
            gamma=lambda module_id: self.config.get_config_for_module(module_id).gamma,
        )
        for module_id in self.module.keys():  # noqa: SIM118 (a MultiRLModule iterates otherwise)
            self._add_bonus(module_id)
        if self._learner_connector is None:
            return  # aggregator actors make the batches, and `update` rewards them
        # insert_after does not complain where the class is absent, it inserts somewhere else.
        if not self._learner_connector[NumpyToTensor]:
            raise ConfigError(
                "the learner connector pipeline has no NumpyToTensor, behind which the intrinsic "
                "reward belongs: leave add_default_connectors_to_learner_pipeline at True"
            )
        self._learner_connector.insert_after(
            NumpyToTensor, IntrinsicRewardConnector(self.intrinsic)
        )
        if self.intrinsic.tells_episodes_apart:
            self._learner_connector.prepend(EpisodesConnector())

    def _add_bonus(self, module_id: str) -> None:
        rl_module = self.module[module_id].unwrapped()
        self.intrinsic.add_module(module_id, rl_module.observation_space, rl_module.action_space)

    def _gather(self) -> Gather | None:
        """How learners exchange rows; asynchronous ones do not, each has batches of its own."""
        if self.config.num_learners < 2 or self.config.asynchronous:
            return None
        return partial(gather_rows, device=self._device)  # type: ignore[attr-defined]

    def update(
        self, training_data: Any, *, timesteps: dict[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Move the clock, then update."""
        self.intrinsic.clock.tick((timesteps or {}).get(NUM_ENV_STEPS_SAMPLED_LIFETIME))
        if self._learner_connector is None:
            self._reward_finished_batch(training_data)
        return super().update(  # type: ignore[misc]
            training_data=training_data, timesteps=timesteps, **kwargs
        )

    def _reward_finished_batch(self, training_data: Any) -> None:
        """Reward a batch that an aggregator actor made, before the learner's thread gets it."""
        training_data.solve_refs()
        # Onto the device, and out of the object store's memory, which cannot be written to.
        training_data.batch = self._convert_batch_type(training_data.batch)  # type: ignore[attr-defined]
        self.intrinsic.apply_all(training_data.batch.policy_batches, self.module, self.metrics)  # type: ignore[attr-defined]

    def add_module(self, *, module_id: str, **kwargs: Any) -> Any:
        """Add a module together with a bonus of its own."""
        spec = super().add_module(module_id=module_id, **kwargs)  # type: ignore[misc]
        self._add_bonus(module_id)
        return spec

    def remove_module(self, module_id: str, **kwargs: Any) -> Any:
        """Remove a module together with its bonus."""
        self.intrinsic.remove_module(module_id)
        return super().remove_module(module_id, **kwargs)  # type: ignore[misc]

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The learner's state with the component `intrinsic`, where it is asked for."""
        state = super().get_state(  # type: ignore[misc]
            components, not_components=not_components, **kwargs
        )
        if self._check_component(  # type: ignore[attr-defined]
            COMPONENT_INTRINSIC, components, not_components
        ):
            state[COMPONENT_INTRINSIC] = self.intrinsic.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the learner and, where the state has it, the intrinsic side."""
        super().set_state(state)  # type: ignore[misc]
        if COMPONENT_INTRINSIC in state:
            self.intrinsic.set_state(state[COMPONENT_INTRINSIC])

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """RLlib's components and ours, which has files of its own."""
        components = super().get_checkpointable_components()  # type: ignore[misc]
        return [*components, (COMPONENT_INTRINSIC, self.intrinsic)]
