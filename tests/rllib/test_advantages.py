"""Advantages on the learner's batch: the recursion, and what becomes of the phantom rows."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets
from small_algorithms import small_ppo

from rllib_rise.rllib.advantages import AdvantagesConnector, gae

GAMMA, LAMBDA = 0.9, 0.8


def batch_of(lengths: list[int], seed: int = 0) -> dict[str, np.ndarray]:
    """Random rows for chunks of these lengths, each with its phantom; every second one is over."""
    rng = np.random.default_rng(seed)
    real, terminated, truncated = [], [], []
    for number, length in enumerate(lengths):
        real += [True] * length + [False]
        terminated += [False] * (length - 1) + [number % 2 == 1, False]
        truncated += [False] * (length - 1) + [number % 2 == 0, False]
    return {
        "real": np.array(real),
        "terminated": np.array(terminated),
        "truncated": np.array(truncated),
        "rewards": rng.normal(size=len(real)).astype(np.float32),
        "values": rng.normal(size=len(real)).astype(np.float32),
    }


def by_definition(batch: dict[str, np.ndarray]) -> list[float]:
    """A_t as the sum of (gamma lambda)^i delta_{t+i} over the rest of the chunk."""
    real, rewards, values = batch["real"], batch["rewards"], batch["values"].astype(float)
    residuals = [
        rewards[t] + GAMMA * (0 if batch["terminated"][t] else values[t + 1]) - values[t]
        if real[t]
        else 0.0
        for t in range(len(real))
    ]
    advantages = []
    for t in np.flatnonzero(real):
        end = t + int(np.argmin(real[t:]))
        advantages.append(sum((GAMMA * LAMBDA) ** (s - t) * residuals[s] for s in range(t, end)))
    return advantages


@pytest.mark.parametrize("lengths", [[1], [5], [1, 1, 1], [3, 7, 2, 1, 5], [40, 1, 40]])
def test_advantages_are_discounted_sums_of_residuals(lengths: list[int]):
    batch = batch_of(lengths)
    arguments = {name: batch[name] for name in ("rewards", "values", "terminated", "real")}
    found = gae(**arguments, gamma=GAMMA, lambda_=LAMBDA)
    np.testing.assert_allclose(found, by_definition(batch), rtol=1e-12, atol=1e-12)


def test_value_targets_are_rllibs():
    batch = batch_of([6, 1, 9, 4])
    arguments = {name: batch[name] for name in ("rewards", "values", "terminated", "real")}
    found = gae(**arguments, gamma=GAMMA, lambda_=LAMBDA) + batch["values"][batch["real"]]
    theirs = compute_value_targets(
        batch["values"], batch["rewards"], batch["terminated"], batch["truncated"], GAMMA, LAMBDA
    )
    np.testing.assert_allclose(found, theirs[batch["real"]], rtol=1e-5, atol=1e-6)


def completed(algorithm, connector_class, episodes, **extra) -> dict[str, torch.Tensor]:
    """The batch that a learner makes of the episodes, with this connector at the end."""
    learner = algorithm.learner_group._learner
    pipeline = learner._learner_connector
    *others, last = pipeline.connectors
    pipeline.connectors = [*others, connector_class(gamma=last.gamma, lambda_=last.lambda_)]
    try:
        return pipeline(
            rl_module=learner.module,
            batch=dict(extra),
            episodes=copy.deepcopy(episodes),  # RLlib puts its phantom steps into them
            shared_data={},
            metrics=learner.metrics,
        )["default_policy"]
    finally:
        pipeline.connectors = [*others, last]


@pytest.fixture(scope="module")
def trained(ray_cluster):
    algorithm = small_ppo(batch=96).rise(k=3).build_algo()
    yield algorithm, algorithm.env_runner.sample(num_timesteps=96)
    algorithm.stop()


def test_a_learner_gets_rllibs_targets_and_real_rows_only(trained):
    theirs = completed(*trained[:1], GeneralAdvantageEstimation, trained[1])
    ours = completed(*trained[:1], AdvantagesConnector, trained[1])
    real = theirs[Columns.LOSS_MASK]
    assert not real.all()
    assert Columns.LOSS_MASK not in ours
    for name in (Columns.OBS, Columns.ACTIONS, Columns.REWARDS, Postprocessing.VALUE_TARGETS):
        torch.testing.assert_close(ours[name], theirs[name][real], rtol=1e-5, atol=1e-6)
    assert not ours[Postprocessing.VALUE_TARGETS].requires_grad


def test_advantages_are_standardised_over_real_transitions(trained):
    advantages = completed(*trained[:1], AdvantagesConnector, trained[1])[Postprocessing.ADVANTAGES]
    assert abs(float(advantages.mean())) < 1e-5
    assert float(advantages.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_a_minibatch_has_the_size_that_was_asked_for(trained):
    algorithm, episodes = trained
    learner, sizes = algorithm.learner_group._learner, []
    update = learner._update
    learner._update = lambda batch, **kw: (
        sizes.append(len(batch["default_policy"])),
        update(batch, **kw),
    )[1]
    try:
        learner.update(
            episodes=copy.deepcopy(episodes),
            training_data=None,
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 96},
            num_epochs=3,
            minibatch_size=32,
            shuffle_batch_per_epoch=True,
        )
    finally:
        learner._update = update
    assert sizes == [32] * 9


def test_values_of_large_observations_are_computed_in_parts(trained, monkeypatch):
    whole = completed(*trained[:1], AdvantagesConnector, trained[1])
    monkeypatch.setattr("rllib_rise.rllib.advantages._NUMBERS_AT_ONCE", 7)
    parts = completed(*trained[:1], AdvantagesConnector, trained[1])
    torch.testing.assert_close(
        parts[Postprocessing.VALUE_TARGETS], whole[Postprocessing.VALUE_TARGETS]
    )


def test_phantom_rows_stay_where_a_column_is_not_one_value_per_row(trained):
    class WithOneMore(AdvantagesConnector):
        def __call__(self, *, batch, **kwargs):
            batch["default_policy"]["of_the_batch"] = torch.zeros(3)
            return super().__call__(batch=batch, **kwargs)

    plain = completed(*trained[:1], AdvantagesConnector, trained[1])
    found = completed(*trained[:1], WithOneMore, trained[1])
    real = found[Columns.LOSS_MASK]
    for name in (Postprocessing.ADVANTAGES, Postprocessing.VALUE_TARGETS):
        torch.testing.assert_close(found[name][real], plain[name])
        assert not found[name][~real].any()
