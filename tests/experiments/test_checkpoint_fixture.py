"""A checkpoint that was made once loads in this version, and means what it meant."""

from __future__ import annotations

import json
import pickletools
import sys
import tarfile
from pathlib import Path

import pytest
import safetensors.torch
import yaml

from rllib_rise.errors import CheckpointError, RunDirectoryError
from rllib_rise.experiments.evaluate import evaluate
from rllib_rise.experiments.run.checkpoints import verify
from rllib_rise.experiments.run.run_directory import RunDirectory, write_text
from rllib_rise.experiments.run.train import train
from rllib_rise.experiments.run.training import Training
from rllib_rise.experiments.schema import parse_experiment

FIXTURES = Path(__file__).parents[1] / "fixtures"
sys.path.insert(0, str(FIXTURES))

from make_checkpoint import ARCHIVES, BATCH, RECORDED, describe  # noqa: E402


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunDirectory:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path / "run", filter="data")
    return RunDirectory(tmp_path / "run")


def test_the_first_archive_is_there():
    assert "checkpoint-1.tar.xz" in [archive.name for archive in ARCHIVES]


@pytest.mark.usefixtures("ray_cluster")
def test_it_loads_and_pays_the_recorded_bonus(run: RunDirectory):
    recorded = json.loads((run.path / RECORDED).read_text())
    obs = safetensors.torch.load_file(run.path / BATCH)["obs"]
    training = Training(parse_experiment(run.read_config()), run, events=False)
    try:
        training.restore(run.latest_checkpoint())
        found = describe(training, obs)
        # Processors round differently; a wrong weight, k or mean is further off than that.
        assert found.pop("bonus") == pytest.approx(recorded.pop("bonus"), rel=1e-5, abs=1e-7)
        assert found.pop("sums") == pytest.approx(recorded.pop("sums"), rel=1e-12)
        assert found == recorded
        assert training.prepare() is False  # no second Phase 1
        assert training.iterate()["iteration"] == 4
    finally:
        training.close()


@pytest.mark.usefixtures("ray_cluster")
def test_a_resumed_run_does_not_begin_with_the_seed_that_it_began_with(run: RunDirectory):
    seeds = []
    for restored in (False, True, True):
        training = Training(parse_experiment(run.read_config()), run, events=False)
        if restored:
            training.restore(run.latest_checkpoint())
        seeds.append(training._algorithm.env_runner._seed)
        training.close()
    assert seeds[0] != seeds[1] == seeds[2]


@pytest.mark.usefixtures("ray_cluster")
def test_a_run_that_had_a_gpu_goes_on_and_is_evaluated_without(run: RunDirectory):
    config = run.read_config()
    here = parse_experiment(config | {"stop": {"env_steps": 500}})
    config["rllib"] |= {"num_gpus_per_learner": 1, "num_gpus_per_env_runner": 1}
    config["intrinsic"]["knn_backend"] = "faiss-gpu"
    write_text(run.config, yaml.safe_dump(config))
    assert evaluate(run.path, episodes=1)["length_mean"] > 0
    seen: list[float] = []
    train(here, run.path, resume=True, on_row=lambda row: seen.append(row["iteration"]))
    assert seen[0] == 4
    other = parse_experiment(here.resolved() | {"seed": 1})
    with pytest.raises(RunDirectoryError, match="other settings under seed"):
        train(other, run.path, resume=True)


def test_no_file_can_hold_a_tensor_of_a_device(run: RunDirectory):
    """Ours have no place for a device; RLlib's pickles hold numpy arrays, not tensors."""
    checkpoint = run.latest_checkpoint()
    (ours,) = checkpoint.rglob("*.safetensors")
    content = ours.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert {key for entry in header.values() for key in entry} == {"dtype", "shape", "data_offsets"}
    states = [path for path in checkpoint.rglob("*.pkl") if "state" in path.name]
    assert len(states) > 5
    for path in states:
        words = {arg for _, arg, _ in pickletools.genops(path.read_bytes()) if isinstance(arg, str)}
        assert not any(word.split(" ")[0].split(".")[0] == "torch" for word in words), path


def test_it_is_torn_by_a_change_of_one_bit(run: RunDirectory):
    checkpoint = run.latest_checkpoint()
    (ours,) = checkpoint.rglob("*.safetensors")
    content = bytearray(ours.read_bytes())
    content[-1] ^= 1
    ours.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state\.safetensors has changed"):
        verify(checkpoint)
