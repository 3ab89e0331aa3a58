"""Which runs share a fit, through real algorithms and Tune."""

from __future__ import annotations

import pytest
import torch
from phase1_helpers import WARMUP, assert_same, config, states, trace
from ray import tune
from ray.rllib.core import DEFAULT_MODULE_ID
from safetensors import safe_open

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_cached_fit_is_used_by_runs_that_differ_in_what_it_does_not_depend_on(build, tmp_path):
    cache = tmp_path / "cache"
    first = build(config().rise(cache=cache, alpha=0.1))
    report = first.prepare_intrinsic()
    assert not report.cached
    second = build(config().rise(cache=cache, alpha=0.7, lambda_0=3.0, kappa=0.1))
    found = second.prepare_intrinsic()
    assert found.cached
    assert found.env_steps == report.env_steps == second.warmup_env_steps()
    assert "collect" not in found.seconds
    one, other = states(first)[0]["tensors"], states(second)[0]["tensors"]
    for name, tensor in one.items():
        if "encoder" in name:
            assert torch.equal(tensor, other[name])
    assert found.modules[DEFAULT_MODULE_ID].figures["k_search"] is not None
    assert len(list(cache.glob("*.safetensors"))) == 1
    for other_run in (
        config().rise(cache=cache, vae_epochs=1),
        config().rise(cache=cache).debugging(seed=4),
        config(kind="other").rise(cache=cache),
    ):
        assert not build(other_run).prepare_intrinsic().cached
    assert len(list(cache.glob("*.safetensors"))) == 4


def test_a_cached_fit_of_another_network_is_made_again(build, tmp_path):
    from safetensors.torch import load_file, save_file

    build(config().rise(cache=tmp_path)).prepare_intrinsic()
    (entry,) = tmp_path.glob("*.safetensors")
    with safe_open(entry, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(entry)
    name = f"{DEFAULT_MODULE_ID}/encoder.trunk.0.weight"
    save_file({**tensors, name: tensors[name][:, :1].contiguous()}, entry, metadata)
    report = build(config().rise(cache=tmp_path)).prepare_intrinsic()
    assert not report.cached
    assert torch.equal(load_file(entry)[name], tensors[name])


@pytest.mark.slow
def test_remote_learners_begin_alike_and_share_their_fit(build, tmp_path):
    cfg = config(learners=1).rise(cache=tmp_path)
    assert not build(cfg.copy()).prepare_intrinsic().cached
    assert build(cfg.copy().rise(alpha=0.5)).prepare_intrinsic().cached


def test_a_run_from_the_cache_trains_like_the_one_that_made_it(build, tmp_path):
    cfg = config().rise(cache=tmp_path)
    first, second = build(cfg.copy()), build(cfg.copy())
    one, other = trace(first), trace(second)
    assert not first.phase1.cached
    assert second.phase1.cached
    assert one == other
    assert_same(states(first)[0], states(second)[0])


def test_tune_trials_share_one_fit_in_the_experiments_storage(tmp_path):
    space = config().rise(alpha=tune.grid_search([0.0, 0.3, 0.6]))
    tuner = tune.Tuner(
        "RISE-PPO",
        param_space=space,
        run_config=tune.RunConfig(
            storage_path=str(tmp_path),
            name="sweep",
            stop={"training_iteration": 2},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    )
    results = tuner.fit()
    assert not results.errors
    assert len(list((tmp_path / "sweep" / "phase1-cache").glob("*.safetensors"))) == 1
    for result in results:
        # Right after Phase 1, without being asked for, and not again.
        ((_, saved),) = result.best_checkpoints
        assert saved["training_iteration"] == 1
        assert result.metrics["learners"][DEFAULT_MODULE_ID]["intrinsic_warmup_steps"] >= WARMUP
