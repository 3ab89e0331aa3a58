"""RISE on PPO with real Ray: rewards, metrics, checkpoints, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from envs_for_tests import EPISODE, DictObservations
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from small_algorithms import small_ppo

import rllib_rise
from rllib_rise import RISEPPOConfig
from rllib_rise.errors import ConfigError, NonFiniteError, RiseError
from rllib_rise.rllib.ppo_learner import FastPPOTorchLearner

pytestmark = pytest.mark.usefixtures("ray_cluster")


def config(*args, **kwargs):
    return small_ppo(*args, **kwargs).rise(k=5)


def learner_metrics(result: dict) -> dict:
    return result["learners"][DEFAULT_MODULE_ID]


def local_learner(algorithm: Algorithm):
    return algorithm.learner_group._learner


class Recorder(ConnectorV2):
    """Stands before and behind the bonus in the pipeline and keeps what passes."""

    def __init__(self, keep: dict, name: str) -> None:
        super().__init__()
        self.keep, self.name = keep, name

    def __call__(self, *, batch, **kwargs):
        part = batch[DEFAULT_MODULE_ID]
        self.keep[self.name] = {
            key: part[key].clone()
            for key in (
                Columns.OBS,
                Columns.REWARDS,
                Columns.LOSS_MASK,
                Columns.ACTION_DIST_INPUTS,
            )
        }
        return batch


def record(algorithm: Algorithm) -> dict:
    from rllib_rise.rllib.connector import IntrinsicRewardConnector

    keep: dict = {}
    pipeline = local_learner(algorithm)._learner_connector
    pipeline.insert_before(IntrinsicRewardConnector, Recorder(keep, "before"))
    pipeline.insert_before(GeneralAdvantageEstimation, Recorder(keep, "after"))
    return keep


def test_the_bonus_enters_the_batch_before_the_advantages_and_only_real_transitions(build):
    from sklearn.neighbors import NearestNeighbors

    algorithm = build(config().rise(alpha=0.1, lambda_0=0.5, k=3))
    keep = record(algorithm)
    result = algorithm.train()
    before, after = keep["before"], keep["after"]
    mask = before[Columns.LOSS_MASK]
    assert not mask.all()
    added = after[Columns.REWARDS] - before[Columns.REWARDS]
    assert torch.equal(added[~mask], torch.zeros(int((~mask).sum())))
    particles = before[Columns.OBS][mask].double().numpy()
    distances = NearestNeighbors(n_neighbors=3).fit(particles).kneighbors()[0][:, -1]
    np.testing.assert_allclose(added[mask], 0.5 * distances**0.9, rtol=1e-4, atol=1e-5)
    metrics = learner_metrics(result)
    assert metrics["intrinsic_reward_mean"] == pytest.approx((distances**0.9).mean(), rel=1e-4)
    assert metrics["intrinsic_lambda"] == 0.5
    assert metrics["rise_k"] == 3


def test_the_next_observation_is_that_of_the_transition(build):
    from rllib_rise.bonuses import Need
    from rllib_rise.rllib.transitions import select_transitions

    algorithm = build(config())
    keep = record(algorithm)
    algorithm.train()
    batch = keep["before"]
    view = select_transitions("m", batch, {Need.NEXT_OBS, Need.EPISODES})
    rows = batch[Columns.LOSS_MASK].nonzero().squeeze(1)
    assert torch.equal(view.next_obs, batch[Columns.OBS][rows + 1])
    inside = view.episodes[1:] == view.episodes[:-1]
    assert torch.equal(view.next_obs[:-1][inside], view.obs[1:][inside])
    moved = (view.next_obs - view.obs).abs().sum(1)
    assert (moved > 0).all(), "a phantom row was taken for a transition"


def test_reported_returns_stay_purely_extrinsic(build):
    cfg = config().rise(lambda_0=10.0, k=3)
    cfg.evaluation(evaluation_interval=1, evaluation_duration=2, evaluation_num_env_runners=0)
    algorithm = build(cfg)
    for _ in range(2):
        result = algorithm.train()
    assert result["env_runners"]["episode_return_mean"] == EPISODE
    assert result["evaluation"]["env_runners"]["episode_return_mean"] == EPISODE
    assert learner_metrics(result)["intrinsic_reward_mean"] > 0


def test_method_none_is_rllibs_own_algorithm(build):
    algorithm = build(config().intrinsic(method="none"))
    assert type(algorithm) is PPO
    assert type(local_learner(algorithm)) is FastPPOTorchLearner
    assert algorithm.train()["env_runners"]["episode_return_mean"] == EPISODE


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "rise"},
        {"method": "rise", "form": "box-cox", "alpha": 1.0},
        {"method": "rise", "form": "intrinsic-dim"},
        {"method": "re3"},
        {"method": "rnd"},
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_same_batch_same_bonus_bit_for_bit_after_restore(build, tmp_path: Path, settings: dict):
    cfg = config().intrinsic(**settings, lambda_0=0.3, kappa=1e-3)
    algorithm = build(cfg)
    keep = record(algorithm)
    for _ in range(3):
        algorithm.train()
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    restored = Algorithm.from_checkpoint(path)
    try:
        assert type(restored) is type(algorithm)
        batches = []
        for one in (algorithm, restored):
            runtime = local_learner(one).intrinsic
            module = local_learner(one).module[DEFAULT_MODULE_ID]
            runtime.clock.tick(512)
            batch = {key: value.clone() for key, value in keep["before"].items()}
            runtime.apply(DEFAULT_MODULE_ID, batch, module, None)
            batches.append(batch[Columns.REWARDS])
            assert runtime.clock.env_steps == 3 * 128
            assert runtime.clock.updates == 3
        assert torch.equal(*batches)
        assert not torch.equal(batches[0], keep["before"][Columns.REWARDS])
    finally:
        restored.stop()


def test_lambda_goes_on_after_a_restore(build, tmp_path: Path):
    cfg = config().rise(lambda_0=0.3, kappa=1e-3)
    algorithm = build(cfg)
    seen = [learner_metrics(algorithm.train())["intrinsic_lambda"] for _ in range(2)]
    algorithm.save_to_path(str(tmp_path))
    other = build(cfg)
    other.restore_from_path(str(tmp_path))
    seen.append(learner_metrics(other.train())["intrinsic_lambda"])
    assert seen == pytest.approx([0.3 * (1 - 1e-3) ** (128 * i) for i in range(3)])


def test_the_checkpoint_component_has_files_of_its_own_without_pickle(build, tmp_path: Path):
    algorithm = build(config().intrinsic(method="rnd"))
    algorithm.train()
    algorithm.save_to_path(str(tmp_path))
    folder = tmp_path / "learner_group" / "learner" / "intrinsic"
    assert sorted(path.name for path in folder.iterdir()) == ["state.json", "state.safetensors"]
    state = json.loads((folder / "state.json").read_text())
    assert state["methods"] == {DEFAULT_MODULE_ID: "rnd"}


def test_the_checkpoint_says_who_searches_neighbours(build, tmp_path: Path, caplog):
    algorithm = build(config().rise(k=3, knn_backend="torch"))
    algorithm.train()
    algorithm.save_to_path(str(tmp_path))
    file = tmp_path / "learner_group" / "learner" / "intrinsic" / "state.json"
    state = json.loads(file.read_text())
    assert state["choices"] == {DEFAULT_MODULE_ID: {"knn_backend": "torch"}}

    def chosen_after_restore() -> dict:
        other = build(config().rise(k=3))
        other.restore_from_path(str(tmp_path))
        other.train()
        return local_learner(other).intrinsic.get_state()["choices"][DEFAULT_MODULE_ID]

    assert chosen_after_restore() == {"knn_backend": "torch"}
    state["choices"][DEFAULT_MODULE_ID]["knn_backend"] = "faiss-gpu"
    file.write_text(json.dumps(state))
    assert chosen_after_restore()["knn_backend"] in ("torch", "torch+faiss")
    assert sum("and not faiss-gpu" in record.getMessage() for record in caplog.records) == 1
    del state["choices"]  # as checkpoints were before
    file.write_text(json.dumps(state))
    assert chosen_after_restore()["knn_backend"] in ("torch", "torch+faiss")


@pytest.mark.slow
def test_a_remote_learner_saves_and_restores_too(build, tmp_path: Path):
    def tensors(one: Algorithm) -> dict:
        return one.learner_group.get_state()["learner"]["intrinsic"]["tensors"]

    cfg = config(learners=1).intrinsic(method="rnd")
    algorithm = build(cfg)
    algorithm.train()
    algorithm.save_to_path(str(tmp_path))
    saved = tensors(algorithm)
    other = build(cfg)
    other.restore_from_path(str(tmp_path))
    loaded = tensors(other)
    assert saved.keys() == loaded.keys()
    assert any(key.startswith(f"{DEFAULT_MODULE_ID}/trainer.adam.") for key in saved)
    assert all(torch.equal(saved[key], loaded[key]) for key in saved)


def test_weight_syncs_do_not_carry_the_intrinsic_state(build):
    algorithm = build(config().intrinsic(method="rnd"))
    state = local_learner(algorithm).get_state(components="rl_module")
    assert "intrinsic" not in state


def test_settings_are_not_state(build, tmp_path: Path):
    algorithm = build(config().rise(lambda_0=0.3))
    algorithm.train()
    algorithm.save_to_path(str(tmp_path))
    other = build(config().rise(lambda_0=0.7, alpha=0.5))
    other.restore_from_path(str(tmp_path))
    assert learner_metrics(other.train())["intrinsic_lambda"] == 0.7


def test_a_checkpoint_of_another_method_is_refused(build, tmp_path: Path):
    algorithm = build(config().intrinsic(method="rise"))
    algorithm.save_to_path(str(tmp_path))
    other = build(config().intrinsic(method="rnd"))
    with pytest.raises(ConfigError, match=r"'rise'.*'rnd'"):
        other.restore_from_path(str(tmp_path))


def test_two_runs_with_one_seed_give_the_same_metrics(build):
    results = []
    for _ in range(2):
        algorithm = build(config().rise(k=3))
        for _ in range(2):
            result = algorithm.train()
        metrics = learner_metrics(result)
        results.append(
            {
                key: float(value)
                for key, value in metrics.items()
                if np.isscalar(value) and "seconds" not in key and "throughput" not in key
            }
        )
    assert len(results[0]) > 10
    assert results[0] == results[1]


def test_zeta_adds_the_policys_entropy(build):
    algorithm = build(config().rise(lambda_0=0.0, zeta=2.0))
    keep = record(algorithm)
    algorithm.train()
    mask = keep["before"][Columns.LOSS_MASK]
    added = (keep["after"][Columns.REWARDS] - keep["before"][Columns.REWARDS])[mask]
    logits = keep["before"][Columns.ACTION_DIST_INPUTS][mask].numpy()
    expected = 2 * scipy.stats.entropy(scipy.special.softmax(logits, axis=1), axis=1)
    np.testing.assert_allclose(added, expected, rtol=1e-4)


def test_constant_observations_train_without_a_bonus(build):
    result = build(config(kind="constant").rise()).train()
    assert learner_metrics(result)["intrinsic_reward_max"] == 0
    assert learner_metrics(result)["rise_duplicates"] == 1


@pytest.mark.parametrize("runners", [0, 1])
def test_nan_observations_are_a_named_error_with_module_and_count(build, runners: int):
    algorithm = build(config(kind="nan", runners=runners).rise())
    with pytest.raises(NonFiniteError, match=r"\d+ of \d+ .*default_policy"):
        algorithm.train()


def test_dict_observations_are_refused_with_advice(build):
    with pytest.raises(ConfigError, match="FlattenObservations"):
        build(config(DictObservations).rise())


def test_the_advice_for_dict_observations_works(build):
    from ray.rllib.connectors.env_to_module import FlattenObservations

    cfg = config(DictObservations).rise()
    cfg.env_runners(env_to_module_connector=lambda env, spaces, device: FlattenObservations())
    assert "intrinsic_reward_mean" in learner_metrics(build(cfg).train())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.rise(alpha=-1.0), "alpha"),
        (lambda c: c.rise(alpha=1.5), "box-cox"),
        (lambda c: c.rise(k=128), "k=128"),
        (lambda c: c.rise(kk=3), "did you mean 'k'"),
        (lambda c: c.intrinsic(method="rais"), "did you mean 'rise'"),
        (lambda c: c.intrinsic(method="none", alpha=0.1), "takes no settings"),
        (lambda c: c.learners(learner_class=PPOTorchLearner), "PPOTorchLearner"),
        (lambda c: c.rise(k="auto", warmup_steps=50), "warmup_steps"),
        (lambda c: c.rise(encoder="random", encoder_file="x"), "exclude each other"),
        (
            lambda c: c.rise(k="auto", particles="episode").env_runners(num_envs_per_env_runner=16),
            "up to 15",
        ),
    ],
)
def test_bad_configs_fail_in_validate(change, words: str):
    with pytest.raises(ConfigError, match=words):
        change(config()).validate()


def test_settings_add_up_and_a_new_method_starts_afresh():
    cfg = RISEPPOConfig().rise(alpha=0.3).rise(k=7)
    assert cfg.intrinsic_settings == {"method": "rise", "alpha": 0.3, "k": 7}
    assert cfg.intrinsic(lambda_0=1.0).intrinsic_settings["alpha"] == 0.3
    assert cfg.intrinsic(method="rnd").intrinsic_settings == {"method": "rnd"}


def test_the_config_survives_what_rllib_does_with_configs():
    import pickle

    cfg = config().rise(alpha=0.3, k=7)
    for other in (
        cfg.copy(copy_frozen=False),
        pickle.loads(pickle.dumps(cfg)),  # noqa: S301
        RISEPPOConfig.from_dict(cfg.to_dict()),
        RISEPPOConfig.from_state(cfg.get_state()),
    ):
        assert isinstance(other, RISEPPOConfig)
        assert other.intrinsic_settings == cfg.intrinsic_settings


@pytest.mark.parametrize("method", ["none", "rise", "rnd"])
def test_images_as_bytes_train(build, method: str):
    cfg = config("rise/Maze-v0", size=5, max_steps=20, observation="image")
    cfg.rl_module(model_config={"conv_filters": [[8, 8, 4], [16, 4, 2]], "head_fcnet_hiddens": []})
    phase_1 = {"warmup_steps": 200, "vae_epochs": 1} if method == "rise" else {}
    algorithm = build(cfg.intrinsic(method=method, **phase_1))
    result = algorithm.train()
    assert result["env_runners"]["num_env_steps_sampled_lifetime"] >= 128
    if method != "none":
        assert learner_metrics(result)["intrinsic_reward_max"] > 0


def test_particles_within_episodes_train(build):
    algorithm = build(config().rise(particles="episode", k=3, alpha=0.0, lambda_0=1.0))
    keep = record(algorithm)
    algorithm.train()
    mask = keep["before"][Columns.LOSS_MASK]
    ends = (~mask).nonzero().squeeze(1)
    first = keep["before"][Columns.OBS][: ends[0]].double()
    distances = torch.cdist(first, first).sort(1).values[:, min(3, len(first) - 1)]
    added = (keep["after"][Columns.REWARDS] - keep["before"][Columns.REWARDS])[: ends[0]]
    np.testing.assert_allclose(added, distances, rtol=1e-4, atol=1e-5)


def test_the_clock_may_count_updates(build):
    algorithm = build(config().rise(lambda_0=1.0, kappa=0.5, clock="updates"))
    seen = [learner_metrics(algorithm.train())["intrinsic_lambda"] for _ in range(3)]
    assert seen == [1.0, 0.5, 0.25]


def test_the_seed_reaches_the_bonus(build):
    weights = []
    for seed in (1, 1, 2):
        algorithm = build(config().intrinsic(method="re3").debugging(seed=seed))
        encoder = local_learner(algorithm).intrinsic.bonuses[DEFAULT_MODULE_ID].encoder
        weights.append(encoder.net[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_bonus_must_return_one_value_per_transition(build):
    from rllib_rise.bonuses import Bonus

    class Scalar(Bonus):
        name = "scalar"

        def reward(self, batch):
            return torch.ones(())

    with pytest.raises(ConfigError, match="one value each"):
        build(config().intrinsic(method=Scalar)).train()


def test_our_maze_runs_on_remote_env_runners_with_plain_ppo(build):
    rllib_rise.register()
    cfg = (
        PPOConfig()
        .environment("rise/Maze-v0", env_config={"size": 5, "max_steps": 20})
        .env_runners(num_env_runners=1)
        .training(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
    )
    algorithm = cfg.build_algo()
    try:
        assert algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 64
    finally:
        algorithm.stop()


@pytest.mark.timeout(120)
def test_an_error_on_one_of_two_learners_ends_both(build):
    # One in all: only one learner's part of the batch holds it.
    algorithm = build(config(kind="one nan", learners=2).rise())
    with pytest.raises(RiseError):
        algorithm.train()


def test_method_none_trains_where_tune_makes_the_algorithm_itself():
    algorithm = rllib_rise.rllib.RISEPPO(config=config().intrinsic(method="none"))
    try:
        assert algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 128
    finally:
        algorithm.stop()
