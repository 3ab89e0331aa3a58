"""The faster PPO learner: the same steps as RLlib's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from small_algorithms import small_ppo


@pytest.fixture
def learner(build):
    return build(small_ppo().rise(k=3)).learner_group._learner


def test_a_step_is_adams(learner):
    parameters = list(learner.module["default_policy"].parameters())
    copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    optimizer = torch.optim.Adam(copies, lr=learner.config.lr)
    for step in range(3):
        torch.manual_seed(step)
        gradients = {parameter: torch.randn_like(parameter) for parameter in parameters}
        for copy, gradient in zip(copies, gradients.values(), strict=True):
            copy.grad = gradient.clone()
        optimizer.step()
        learner.apply_gradients(gradients)
    for parameter, copy in zip(parameters, copies, strict=True):
        torch.testing.assert_close(parameter, copy, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_gradients_that_are_not_finite_do_not_reach_the_weights(learner, bad: float):
    parameters = list(learner.module["default_policy"].parameters())
    gradients = {parameter: torch.ones_like(parameter) for parameter in parameters}
    gradients[parameters[0]].view(-1)[0] = bad
    before = [parameter.detach().clone() for parameter in parameters]
    learner.apply_gradients(gradients)
    assert all(parameter.isfinite().all() for parameter in parameters)
    # RLlib's way: the number becomes 0 and all else is as it was.
    assert not torch.equal(parameters[1], before[1])


@pytest.mark.parametrize(
    ("variables", "expected"), [({}, "True"), ({"MALLOC_ARENA_MAX": "2"}, "False")]
)
def test_freed_memory_is_kept_unless_the_user_has_tuned_it(variables: dict, expected: str):
    if not sys.platform.startswith("linux"):
        pytest.skip("glibc's memory is Linux'")
    code = "from rllib_rise.rllib.memory import keep_freed_memory; print(keep_freed_memory())"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run(
        [sys.executable, "-c", code], env=clean | variables, capture_output=True, text=True
    )
    assert found.stdout.strip() == expected, found.stderr
