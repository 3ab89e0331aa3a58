"""Phase 1 in RLlib: what it leaves behind (a fitted bonus on all learners) and what not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from envs_for_tests import EPISODE, ConstantReward, Countdown
from ray import tune
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.core import DEFAULT_MODULE_ID
from safetensors import safe_open

from rllib_rise import RISEPPOConfig
from rllib_rise.errors import ConfigError, NonFiniteError, RiseError

pytestmark = pytest.mark.usefixtures("ray_cluster")

WARMUP = 300


def config(*, runners: int = 0, learners: int = 0, warmup: bool = True, **env_config):
    cfg = (
        RISEPPOConfig()
        .environment(ConstantReward, env_config=env_config)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=2)
        .learners(num_learners=learners)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .debugging(seed=3)
    )
    settings = {"encoder": "vae", "vae_epochs": 2, "warmup_steps": WARMUP, "k": "auto"}
    return cfg.rise(**(settings if warmup else {"k": 4}))


@pytest.fixture
def build():
    """Builds an algorithm; those with actors one at a time, for there are few cores."""
    built = []

    def _build(cfg) -> Algorithm:
        if cfg.num_env_runners or cfg.num_learners:
            while built:
                built.pop().stop()
        built.append(cfg.build_algo())
        return built[-1]

    yield _build
    while built:
        built.pop().stop()


def states(algorithm: Algorithm) -> list[dict]:
    found = algorithm.learner_group.foreach_learner(lambda learner: learner.intrinsic.get_state())
    return [result.get() for result in found]


def assert_same(one: dict, other: dict) -> None:
    assert one["clock"] == other["clock"]
    assert one["warmup_env_steps"] == other["warmup_env_steps"]
    assert one["tensors"].keys() == other["tensors"].keys()
    for name, tensor in one["tensors"].items():
        assert torch.equal(tensor, other["tensors"][name]), name


SCHEDULES = ("intrinsic_lambda",)
COUNTERS = (
    "num_env_steps_sampled",
    "num_env_steps_sampled_lifetime",
    "num_episodes",
    "num_episodes_lifetime",
    "num_module_steps_sampled",
    "episode_return_mean",
    "episode_return_max",
    "episode_len_mean",
)


def trace(algorithm: Algorithm, iterations: int = 2) -> list[dict]:
    """What RLlib counts and reports, and the observations that training saw."""
    seen = []
    for _ in range(iterations):
        result = algorithm.train()
        row = {name: result["env_runners"].get(name) for name in COUNTERS}
        row["timesteps"] = result["num_env_steps_sampled_lifetime"]
        row["iteration"] = result["training_iteration"]
        row["lambda"] = result["learners"][DEFAULT_MODULE_ID]["intrinsic_lambda"]
        seen.append(row)
    return seen


@pytest.mark.parametrize(("runners", "learners"), [(0, 0), (2, 1), (2, 2)])
def test_training_goes_as_if_phase_1_had_not_run(build, runners: int, learners: int):
    shape = {"runners": runners, "learners": learners}
    algorithm = build(config(**shape).rise(kappa=1e-3))
    told: list[str] = []
    report = algorithm.prepare_intrinsic(told.append)
    assert report.env_steps >= WARMUP
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP
    assert any("collecting" in line for line in told)
    assert any("epoch" in line for line in told)
    found = states(algorithm)
    assert len(found) == max(1, learners)
    for state in found:
        assert bool(state["tensors"][f"{DEFAULT_MODULE_ID}/encoder.fitted"])
        assert_same(found[0], state)
    with_phase_1 = trace(algorithm)
    after = states(algorithm)
    for state in after:
        assert_same(after[0], state)
    without = trace(build(config(warmup=False, **shape).rise(kappa=1e-3)))
    assert with_phase_1 == without


def test_the_first_rollout_is_the_very_same(build):
    def first_batch(cfg) -> np.ndarray:
        algorithm = build(cfg)
        if cfg.intrinsic_settings["k"] == "auto":
            algorithm.prepare_intrinsic()
        episodes = algorithm.env_runner_group.local_env_runner.sample(num_timesteps=64)
        return np.concatenate([episode.get_observations() for episode in episodes])

    np.testing.assert_array_equal(first_batch(config()), first_batch(config(warmup=False)))


def test_phase_1_has_episodes_of_its_own(build):
    algorithm = build(config())
    kept: list[np.ndarray] = []
    bonus = algorithm.learner_group._learner.intrinsic.bonuses[DEFAULT_MODULE_ID]
    fit = bonus.fit
    bonus.fit = lambda obs: kept.append(obs.numpy().copy()) or fit(obs)
    algorithm.prepare_intrinsic()
    episodes = algorithm.env_runner_group.local_env_runner.sample(num_timesteps=64)
    training = np.concatenate([episode.get_observations() for episode in episodes])
    moving = training[np.abs(training).sum(1) > 0]  # episodes begin at the origin
    assert not (kept[0][:, None] == moving[None]).all(-1).any()
    # The parts in which it travels go on with the same episodes, they do not begin again.
    distinct = np.unique(kept[0][np.abs(kept[0]).sum(1) > 0], axis=0)
    assert len(distinct) > 0.9 * WARMUP


@pytest.mark.parametrize("learners", [0, 2])
def test_a_restored_algorithm_has_the_encoder_and_does_not_begin_again(build, tmp_path, learners):
    algorithm = build(config(learners=learners))
    algorithm.train()
    before = states(algorithm)
    path = algorithm.save_to_path(str(tmp_path))
    algorithm.stop()
    restored = Algorithm.from_checkpoint(path)
    try:
        assert restored.prepare_intrinsic() is None
        assert restored.warmup_env_steps() == before[0]["warmup_env_steps"] >= WARMUP
        for state in states(restored):
            assert_same(state, before[0])
        restored.train()
        tensors = states(restored)[0]["tensors"]
        for name, tensor in before[0]["tensors"].items():
            if "encoder" in name or "searched_k" in name:
                assert torch.equal(tensors[name], tensor)
    finally:
        restored.stop()


def test_two_learners_reward_as_one_would(build):
    """The same observations in one set, whether one learner holds them or two."""
    from rllib_rise.bonuses import RISE, Transitions, parse_settings

    algorithm = build(config(learners=2, warmup=False))
    obs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))

    def reward(learner) -> torch.Tensor:
        import torch.distributed as dist

        own = obs[:20] if dist.get_rank() == 0 else obs[20:]
        return learner.intrinsic.bonuses["default_policy"].reward(Transitions(obs=own))

    parts = [r.get() for r in algorithm.learner_group.foreach_learner(reward)]
    parts.sort(key=len)
    alone = RISE(parse_settings(RISE, {"k": 4}), (3,)).reward(Transitions(obs=obs))
    torch.testing.assert_close(torch.cat(parts), alone)


def test_frame_stacking_of_the_user_reaches_the_encoder(build):
    cfg = config().environment(Countdown)
    cfg.rl_module(model_config={"conv_filters": [[4, 3, 2]]})
    cfg.env_runners(
        env_to_module_connector=lambda env, spaces, device: FrameStackingEnvToModule(num_frames=3),
        episode_lookback_horizon=3,
    )
    cfg.learners(learner_connector=lambda obs, act: FrameStackingLearner(num_frames=3))
    algorithm = build(cfg)
    kept: list[torch.Tensor] = []
    bonus = algorithm.learner_group._learner.intrinsic.bonuses[DEFAULT_MODULE_ID]
    fit = bonus.fit
    bonus.fit = lambda obs: kept.append(obs.clone()) or fit(obs)
    algorithm.train()
    assert bonus.obs_shape == (6, 6, 3)
    assert kept[0].shape == (WARMUP, 6, 6, 3)
    assert kept[0].dtype == torch.uint8
    numbers = kept[0][:, 0, 0].int()
    # Successive frames, also across the parts in which episodes travel; before the first, zeros.
    expected = torch.stack([(numbers[:, 2] - back).clamp(min=0) for back in (2, 1, 0)], dim=1)
    assert torch.equal(numbers, expected)
    assert set(numbers[:, 2].tolist()) == set(range(EPISODE))


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
            stop={"training_iteration": 1},
            verbose=0,
        ),
    )
    results = tuner.fit()
    assert not results.errors
    assert len(list((tmp_path / "sweep" / "phase1-cache").glob("*.safetensors"))) == 1
    for result in results:
        assert result.checkpoint is not None  # right after Phase 1, without being asked for
        assert result.metrics["learners"][DEFAULT_MODULE_ID]["intrinsic_warmup_steps"] >= WARMUP


def test_a_lost_env_runner_does_not_end_phase_1(build):
    import ray

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


def test_an_interrupted_phase_1_starts_again_cleanly(build):
    algorithm = build(config())

    def interrupt(line: str) -> None:
        if "epoch 1" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        algorithm.prepare_intrinsic(interrupt)
    assert algorithm.pending_warmup_steps() == WARMUP
    report = algorithm.prepare_intrinsic()
    assert report.modules[DEFAULT_MODULE_ID].figures["observations"] == WARMUP
    fresh = build(config())
    fresh.prepare_intrinsic()
    assert_same(states(algorithm)[0], states(fresh)[0])


def test_an_environment_that_fails_is_named(build):
    algorithm = build(config(kind="second fails"))
    with pytest.raises(RiseError, match="no second environment here"):
        algorithm.prepare_intrinsic()


@pytest.mark.parametrize("learners", [0, 1])
def test_nan_observations_stop_phase_1_with_their_name(build, learners: int):
    algorithm = build(config(kind="nan", learners=learners))
    with pytest.raises(NonFiniteError, match="NaN or"):
        algorithm.train()


def test_an_encoder_file_of_other_observations_is_refused(build, tmp_path):
    from rllib_rise.encoders import RandomEncoder, save_encoder

    path = tmp_path / "encoder.safetensors"
    save_encoder(RandomEncoder((5,), embedding_size=8, seed=0), path)
    cfg = config(warmup=False).rise(encoder_file=str(path), k=3)
    with pytest.raises(ConfigError, match=r"\(5,\).*\(3,\)"):
        build(cfg)
