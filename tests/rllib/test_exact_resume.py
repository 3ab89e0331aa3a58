"""A run that was interrupted and resumed in another process: the bonus cannot tell.

RLlib restores neither environments nor random generators, so that whole runs differ. Both learn
from the same recorded episodes, which begin anew where the run was interrupted, as RLlib's do.
"""

from __future__ import annotations

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch
from resuming import Rehearsal, resume

from rllib_rise.bonuses.registry import WITHOUT_BONUS, method_names

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

SHARED = {"lambda_0": 0.3, "kappa": 1e-3}
CASES = {
    "rise": {"method": "rise", "k": 3},
    "rise, intrinsic-dim": {"method": "rise", "form": "intrinsic-dim", "k": 4, "clock": "updates"},
    "rise, box-cox, standardize": {
        "method": "rise",
        "form": "box-cox",
        "k": 3,
        "standardize": True,
    },
    "rise, VAE, k found": {
        **{"method": "rise", "encoder": "vae", "k": "auto", "embedding_size": 4},
        **{"warmup_steps": 200, "vae_epochs": 2, "standardize": True},
    },
    "rise, shuffled": {"method": "rise", "k": 3, "shuffle": True},
    "re3": {"method": "re3", "k": 3},
    "rnd": {"method": "rnd"},
    "icm": {"method": "icm"},
    "ride": {"method": "ride", "standardize": True},
    "ngu": {"method": "ngu"},
    "count": {"method": "count"},
    "max-renyi": {"method": "max-renyi"},
    "sum": {
        "method": "sum",
        "parts": [
            {"method": "rise", "form": "intrinsic-dim", "k": 3, "standardize": True},
            {"method": "icm", "kappa": 0.1},
        ],
    },
}
UPDATES = 6


@pytest.fixture(scope="module")
def outcomes(ray_cluster, tmp_path_factory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Per case what a run comes to that goes through, and one that was interrupted."""
    folder, through, cases = tmp_path_factory.mktemp("runs"), {}, {}
    for name, settings in CASES.items():
        settings = {**({} if settings["method"] == "sum" else SHARED), **settings}
        interrupted = random.Random(name).randint(1, UPDATES - 1)
        run = Rehearsal(settings, folder / name)
        run.training.prepare()
        batches = [run.sample(anew=number == interrupted) for number in range(UPDATES + 1)]
        *learned, last = batches
        for number, episodes in enumerate(learned, start=1):
            run.learn(number, episodes)
            if number == interrupted:
                run.save()
        through[name] = run.outcome(len(batches), last)
        run.training.close()
        cases[name] = (settings, folder / name, interrupted, batches)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as another:
        return through, another.submit(resume, cases).result()


def test_every_bonus_is_tried():
    tried = {settings["method"] for settings in CASES.values()}
    assert tried == set(method_names()) - set(WITHOUT_BONUS)


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_has_the_same_intrinsic_state_to_the_last_bit(outcomes, name: str):
    through, resumed = (found[name] for found in outcomes)
    one, other = through["state"], resumed["state"]
    assert one["tensors"].keys() == other["tensors"].keys()
    for key, tensor in one["tensors"].items():
        assert torch.equal(tensor, other["tensors"][key]), key
    plain = [{k: v for k, v in state.items() if k != "tensors"} for state in (one, other)]
    assert plain[0] == plain[1]
    assert plain[0]["clock"]["updates"] == UPDATES - 1
    assert through["lambda"] == resumed["lambda"]


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_pays_the_same_bonus_to_the_last_bit(outcomes, name: str, record_property):
    through, resumed = (found[name]["bonus"] for found in outcomes)
    assert torch.equal(through, resumed)
    assert through.abs().max() > 0
    record_property("resumed", name)
