"""What may go wrong in Phase 1, and what the user reads then."""

from __future__ import annotations

import time

import pytest
import ray
import torch
from phase1_helpers import WARMUP, assert_same, config, states, two_agents
from ray import tune
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import DEFAULT_MODULE_ID

from rllib_rise.errors import ConfigError, NonFiniteError, RiseError
from rllib_rise.rllib.phase1 import drive

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_lost_env_runner_does_not_end_phase_1(build):
    algorithm = build(config(runners=2))
    killed: list[str] = []

    def kill_one(line: str) -> None:
        if not killed:
            killed.append(line)
            actors = algorithm.env_runner_group._worker_manager.actors()
            ray.kill(actors[next(iter(actors))])

    report = algorithm.prepare_intrinsic(kill_one)
    assert killed
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP
    assert bool(states(algorithm)[0]["tensors"][f"{DEFAULT_MODULE_ID}/encoder.fitted"])


def test_an_interrupted_phase_1_starts_again_cleanly(build, capsys):
    algorithm = build(config())

    def interrupt(line: str) -> None:
        if "epoch 1" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        algorithm.prepare_intrinsic(interrupt)
    assert algorithm.pending_warmup_steps() == WARMUP
    assert not capsys.readouterr().err
    report = algorithm.prepare_intrinsic()
    shown = capsys.readouterr().err
    assert "Phase 1: collecting: 300 of 300 steps" in shown
    assert "Phase 1: VAE: epoch 2 of 2" in shown
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP
    fresh = build(config())
    fresh.prepare_intrinsic()
    assert_same(states(algorithm)[0], states(fresh)[0])


def test_an_environment_that_fails_is_named(build):
    algorithm = build(config(kind="second fails"))
    with pytest.raises(RiseError, match="no second environment here"):
        algorithm.prepare_intrinsic()


@pytest.mark.parametrize("learners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_nan_observations_stop_phase_1_with_their_name(build, learners: int):
    algorithm = build(config(kind="nan", learners=learners))
    with pytest.raises(NonFiniteError, match="NaN or"):
        algorithm.train()


@pytest.mark.slow
def test_observations_that_are_lost_on_their_way_are_taken_again(build, monkeypatch):
    algorithm = build(config(runners=2))
    add, killed = drive.on_learner.add_observations, []

    def losing(learner, *, parts):
        if not killed:
            killed.append(parts)
            ray.kill(algorithm.env_runner_group._worker_manager.actors()[1])
            time.sleep(0.5)
        return add(learner, parts=parts)

    monkeypatch.setattr(drive.on_learner, "add_observations", losing)
    report = algorithm.prepare_intrinsic()
    assert killed
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP


@pytest.mark.slow
def test_a_runner_that_fails_is_done_without(build):
    report = build(config(runners=2, kind="one fails")).prepare_intrinsic()
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP


@pytest.mark.slow
def test_a_runner_that_does_not_answer_is_waited_for_once(build):
    patient = config(runners=2, kind="second hangs").env_runners(sample_timeout_s=0.8)
    algorithm = build(patient)
    started = time.monotonic()
    report = algorithm.prepare_intrinsic()
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP
    seconds = time.monotonic() - started
    # RLlib waits for a runner's end without a limit.
    ray.kill(algorithm.env_runner_group._worker_manager.actors()[2])
    assert 8 < seconds < 40


def test_an_interrupt_lets_go_of_the_observations(build):
    algorithm = build(config())

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        algorithm.prepare_intrinsic(interrupt)
    assert algorithm.learner_group._learner.phase1 is None
    assert not hasattr(algorithm.env_runner_group.local_env_runner, "_rise_phase1_guest")


def test_a_module_that_nobody_plays_is_named(build):
    algorithm = build(two_agents(trained=("often", "seldom", "idle")))
    with pytest.raises(ConfigError, match=r"module 'idle' did not act in any of .* 300 steps"):
        algorithm.prepare_intrinsic()


def test_a_learner_without_transitions_does_not_hold_up_the_other(build):
    algorithm = build(config(learners=2, warmup=False))

    def rewards(learner) -> list[torch.Tensor]:
        import torch.distributed as dist

        found = []
        for part in ("one learner has some", "none has any"):
            mask = torch.zeros(12, dtype=torch.bool)
            if part == "one learner has some" and dist.get_rank() == 1:
                mask[:-1] = True
            obs = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
            batch = {"obs": obs, "rewards": torch.zeros(12), "loss_mask": mask}
            learner.intrinsic.apply(DEFAULT_MODULE_ID, batch, None, None)
            found.append(batch["rewards"])
        return found

    results = algorithm.learner_group.foreach_learner(rewards, timeout_seconds=60)
    found = sorted((result.get() for result in results), key=lambda part: float(part[0].sum()))
    assert len(found) == 2
    assert float(found[0][0].abs().sum()) == 0
    assert (found[1][0][:-1] > 0).all()
    assert all(float(part[1].abs().sum()) == 0 for part in found)


@pytest.fixture
def encoder_file(build, tmp_path, monkeypatch) -> str:
    """A file in the working directory, by its relative name."""
    algorithm = build(config())
    report = algorithm.prepare_intrinsic()
    content = report.modules[DEFAULT_MODULE_ID].files["encoder.safetensors"]
    (tmp_path / "fitted.safetensors").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return "fitted.safetensors"


def with_file(path: str, **settings):
    return config(warmup=False, **settings).rise(encoder_file=path, k=3)


def test_an_encoder_of_a_file_is_needed_once(build, tmp_path, encoder_file):
    cfg = with_file(encoder_file)
    algorithm = build(cfg)
    report = algorithm.prepare_intrinsic()
    assert report.env_steps == 0
    assert report.modules[DEFAULT_MODULE_ID].figures["encoder"] == "file"
    algorithm.train()
    before = states(algorithm)[0]
    assert bool(before["tensors"][f"{DEFAULT_MODULE_ID}/encoder.fitted"])
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    (tmp_path / encoder_file).unlink()
    restored = Algorithm.from_checkpoint(path)
    try:
        assert_same(states(restored)[0], before)
        restored.train()
    finally:
        restored.stop()


def test_a_relative_path_means_the_same_in_tunes_trials(encoder_file, tmp_path):
    tuner = tune.Tuner(
        "RISE-PPO",
        param_space=with_file(encoder_file),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path / "results"), stop={"training_iteration": 1}, verbose=0
        ),
    )
    assert not tuner.fit().errors


@pytest.mark.parametrize("learners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_encoder_file_that_does_not_fit_is_named_before_any_step(build, encoder_file, learners):
    for cfg, message in (
        (with_file("nothing.safetensors", learners=learners), "nothing.safetensors.*not exist"),
        (with_file(encoder_file, learners=learners).rise(embedding_size=9), "128 dimensions"),
    ):
        algorithm = build(cfg.rise(k="auto"))
        with pytest.raises(ConfigError, match=message):
            algorithm.prepare_intrinsic(on_progress=pytest.fail)
