"""How much memory Phase 1 takes on Atari-sized observations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FRAMES = 10_000
COPY = FRAMES * 84 * 84 * 4

# In a process of its own: the highest memory of a process cannot be set back.
SCRIPT = """
import json, logging, re
import ray, torch
from envs_for_tests import RandomFrames
from rllib_rise import RISEPPOConfig

def memory(name):
    return int(re.search(rf"{name}:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

torch.set_num_threads(1)
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
config = (
    RISEPPOConfig()
    .environment(RandomFrames)
    .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
    .training(train_batch_size_per_learner=256, minibatch_size=128, num_epochs=1)
    .rl_module(model_config={"conv_filters": [[4, 8, 4], [4, 4, 2]]})
    .rise(warmup_steps=WARMUP, vae_epochs=1)
)
algorithm = config.build_algo()
before = memory("VmRSS")
report = algorithm.prepare_intrinsic()
figures = report.modules["default_policy"].figures
print(json.dumps({"peak": memory("VmHWM") - before, "observations": figures["observations"]}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_ten_thousand_frames_are_never_held_three_times():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1] / "common")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("WARMUP", str(FRAMES))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["observations"] == FRAMES
    # Once for the fit, and beside it episodes on their way, a second set of environments and the
    # VAE's own activations: all of them together less than another two copies.
    print(f"peak: {found['peak'] / 1e6:.0f} MB, {found['peak'] / COPY:.2f} copies")
    assert found["peak"] < 2.5 * COPY
