"""Every way of training, with every algorithm: the rows and columns of the docs' table."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from counting import LEAST, check_counts, counted
from phase1_helpers import assert_same, states
from ray import tune
from small_algorithms import ASYNCHRONOUS, NAMES, small
from support_cases import ABSENT, CASES, REFUSED, WORKS, Case

from rllib_rise.errors import ConfigError
from rllib_rise.rllib.registration import ALGORITHMS

pytestmark = pytest.mark.usefixtures("ray_cluster")

_SECONDS = 90


def cases(outcome: str) -> list[Any]:
    return [
        pytest.param(
            case,
            algorithm,
            id=f"{case.name} | {algorithm}",
            marks=[pytest.mark.slow] if case.slow and outcome != REFUSED else [],
        )
        for case in CASES
        for algorithm in NAMES
        if case.outcome(algorithm) == outcome
    ]


def train(algorithm: Any, modules: tuple[str, ...], least: float = -math.inf) -> dict[str, Any]:
    """Train until every module had a bonus above `least` in an update, and an episode has ended.

    The first batches of a replay buffer, which is not seeded, may be a few transitions many times.
    """
    learners: dict[str, Any] = {}
    returns = math.nan
    deadline = time.monotonic() + _SECONDS  # iterations of asynchronous algorithms may be empty
    while time.monotonic() < deadline:
        result = algorithm.train()
        for module_id, figures in result.get("learners", {}).items():
            # An iteration without an update tells NaN.
            numbers = {key: one for key, one in figures.items() if np.isscalar(one)}
            told = {key: one for key, one in numbers.items() if not math.isnan(one)}
            learners.setdefault(module_id, {}).update(told)
        largest = [learners.get(name, {}).get("intrinsic_reward_max") for name in modules]
        updated = all(value is not None and value > least for value in largest)
        told = result["env_runners"].get("episode_return_mean", math.nan)
        returns = returns if math.isnan(told) else told
        if updated and not math.isnan(returns):
            return {"learners": learners, "return": returns}
    raise AssertionError(f"no update of {modules} in {_SECONDS} seconds: {learners}")


@pytest.mark.parametrize(("case", "name"), cases(WORKS))
def test_it_trains(build, tmp_path: Path, case: Case, name: str):
    config = case.make(name)
    if case.counted:
        counted(config, name)
    algorithm = build(config)
    result = train(algorithm, case.modules, LEAST if case.counted else -math.inf)
    assert result["return"] == case.episode_return
    for module_id in case.modules if case.counted else ():
        check_counts(result["learners"][module_id])
    for module_id in case.plain:
        assert result["learners"][module_id]["counted_most"] == 0
    if config.num_learners > 1 and name not in ASYNCHRONOUS:
        one, other = states(algorithm)
        assert_same(one, other)
    if case.restored:
        check_restore(build, algorithm, config, case, tmp_path)


def check_restore(build, algorithm: Any, config: Any, case: Case, folder: Path) -> None:
    algorithm.save_to_path(str(folder))
    before = states(algorithm)[0]
    other = build(config)
    other.restore_from_path(str(folder))
    assert_same(before, states(other)[0])
    result = train(other, case.modules, LEAST)
    for module_id in case.modules:
        check_counts(result["learners"][module_id])
    assert states(other)[0]["clock"]["updates"] > before["clock"]["updates"]


@pytest.mark.parametrize(("case", "name"), cases(REFUSED))
def test_it_is_refused(build, case: Case, name: str):
    with pytest.raises(ConfigError, match=case.refused[name]):
        build(case.make(name))


@pytest.mark.parametrize(("case", "name"), cases(ABSENT))
def test_rllib_itself_has_no_such_thing(build, case: Case, name: str):
    with pytest.raises((TypeError, RuntimeError), match=case.absent[name]):
        build(case.make(name).intrinsic(method="none")).train()


@pytest.mark.parametrize("name", NAMES)
def test_after_a_restore_the_bonus_is_the_same(build, tmp_path: Path, name: str):
    config = small(name).rise(encoder="vae", vae_epochs=1, warmup_steps=200, k="auto", kappa=1e-3)
    algorithm = build(config)
    train(algorithm, ("default_policy",))
    algorithm.save_to_path(str(tmp_path))
    other = build(config)
    other.restore_from_path(str(tmp_path))
    assert_same(states(algorithm)[0], states(other)[0])
    from rllib_rise.bonuses import Transitions

    batch = Transitions(obs=torch.randn(50, 3))
    rewards = [
        one.learner_group._learner.intrinsic.bonuses["default_policy"].reward(batch)
        for one in (algorithm, other)
    ]
    assert torch.equal(*rewards)
    assert other.prepare_intrinsic() is None
    clock = states(algorithm)[0]["clock"]
    sampled = clock["offset"] + clock["counter"]
    assert sampled >= 64
    assert first_lambda(other) == pytest.approx(0.1 * (1 - 1e-3) ** sampled)


def first_lambda(algorithm: Any) -> float:
    while True:
        figures = algorithm.train().get("learners", {}).get("default_policy", {})
        if not math.isnan(figures.get("intrinsic_lambda", math.nan)):
            return figures["intrinsic_lambda"]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "PPO" else pytest.mark.slow) for n in NAMES]
)
def test_a_grid_over_alpha(tmp_path: Path, name: str):
    space = small(name).rise(alpha=tune.grid_search([0.0, 0.5]))
    results = tune.Tuner(
        f"RISE-{name}",
        param_space=space,
        run_config=tune.RunConfig(
            stop={"training_iteration": 12}, storage_path=str(tmp_path), verbose=0
        ),
    ).fit()
    assert not results.errors
    assert sorted(result.config["intrinsic_settings"]["alpha"] for result in results) == [0.0, 0.5]
    means = {
        result.metrics["learners"]["default_policy"]["intrinsic_reward_mean"] for result in results
    }
    assert len(means) == 2


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_the_counters_would_notice_a_second_bonus(build, name: str):
    from rllib_rise.rllib.connector import IntrinsicRewardConnector

    algorithm = build(counted(small(name), name))
    learner = algorithm.learner_group._learner
    again = IntrinsicRewardConnector(learner.intrinsic)
    learner._learner_connector.insert_after(IntrinsicRewardConnector, again)
    figures = train(algorithm, ("default_policy",))["learners"]["default_policy"]
    assert figures["counted_fewest"] == figures["counted_most"] == 2


def test_every_algorithm_is_registered():
    assert set(ALGORITHMS) == {f"RISE-{name}" for name in NAMES}
