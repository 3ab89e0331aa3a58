"""What a run survives, on a cluster of three hosts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from cluster_runs import DRIVER, ENDLESS, LEARNER, RUN, Submitted
from hosts import HEAD, Hosts


def iterations(run: Submitted) -> int:
    return len(run.rows())


def next_iteration(run: Submitted) -> float:
    """Seconds until the run has learned from one more batch."""
    now = iterations(run)
    return run.wait(lambda: iterations(run) > now + 1)


def assert_went_on(run: Submitted) -> None:
    """The same k all along, and a clock without a jump; Phase 1 is not in it."""
    rows, intrinsic = run.rows(), RUN["intrinsic"]
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert len({row["rise_k"] for row in rows}) == 1
    for before, row in pairwise(rows):
        t = before["env_steps"] - row["intrinsic_warmup_steps"]
        expected = intrinsic["lambda_0"] * (1 - intrinsic["kappa"]) ** t
        assert row["intrinsic_lambda"] == pytest.approx(expected, rel=1e-6)


def test_a_worker_host_dies_and_another_joins(hosts: Hosts, submit, record):
    run: Submitted = submit(11, "--set", ENDLESS)
    run.wait(lambda: run.runners() == 2 and iterations(run) > 4)
    steps = run.steps()
    hosts.kill(2)
    seconds = next_iteration(run)
    run.wait(lambda: run.runners() == 1)
    record("an env runner's host is switched off", seconds=seconds, steps_lost=0)
    assert run.steps() > steps
    started = time.monotonic()
    hosts.start(2)
    run.wait(lambda: run.runners() == 2)
    record(
        "a host joins: until its env runner takes part",
        seconds=time.monotonic() - started,
        steps_lost=0,
    )
    assert_went_on(run)


def test_a_cut_link_costs_a_bounded_stall(hosts: Hosts, submit, record):
    run: Submitted = submit(12, "--set", ENDLESS)
    run.wait(lambda: run.runners() == 2 and iterations(run) > 4)
    hosts.cut(2)
    seconds = next_iteration(run)
    assert seconds < 60
    run.wait(lambda: run.runners() == 1)
    record("a host's link is cut", seconds=seconds, steps_lost=0)
    next_iteration(run)
    assert_went_on(run)


def metrics_file(run: Submitted) -> int:
    """Which file it is: another one when it was written anew."""
    return (run.folder / "metrics.csv").stat().st_ino


@dataclass
class Begun:
    """A run that has a checkpoint and is about to lose something."""

    run: Submitted
    steps: float
    phase1: str
    file: int

    @classmethod
    def wait_for(cls, run: Submitted) -> Begun:
        run.wait(lambda: iterations(run) > 10)
        return cls(run, run.steps(), (run.folder / "phase1.log").read_text(), metrics_file(run))

    def goes_on(self, since: float) -> dict[str, float]:
        """Wait until it has learned beyond its last checkpoint: what that took, and steps lost."""
        run = self.run
        checkpoints = sorted((run.folder / "checkpoints").glob("iteration_*"))
        saved = json.loads((checkpoints[-1] / "progress.json").read_text())
        assert saved["iteration"] >= 4
        run.wait(lambda: "it goes on from its last checkpoint" in run.log())
        # A run that goes on writes metrics.csv anew, up to its checkpoint.
        run.wait(lambda: metrics_file(run) != self.file and run.steps() > saved["env_steps"])
        seconds = time.monotonic() - since
        next_iteration(run)
        assert (run.folder / "phase1.log").read_text() == self.phase1  # it was not repeated
        assert_went_on(run)
        return {"seconds": seconds, "steps_lost": self.steps - saved["env_steps"]}


@pytest.mark.parametrize(
    ("seed", "what", "words"),
    [(13, "the learner's process is killed", LEARNER), (14, "the driver is killed", DRIVER)],
)
def test_a_run_without_its_learner_or_driver_begins_again_from_its_checkpoint(
    hosts: Hosts, submit, record, seed: int, what: str, words: str
):
    begun = Begun.wait_for(submit(seed, "--set", ENDLESS))
    found = hosts.processes(HEAD, words)
    # Of the driver's processes the innermost: it does the work, the others wait for it.
    max(found, key=lambda process: process.create_time()).kill()
    record(what, **begun.goes_on(time.monotonic()))


def test_a_run_without_its_learners_host_goes_on_when_another_joins(hosts: Hosts, submit, record):
    on_the_second = (
        *("--set", "rllib.custom_resources_per_learner={worker2: 1}"),
        *("--set", "rllib.num_env_runners=1"),
        *("--set", "rllib.custom_resources_per_env_runner={worker1: 1}"),
    )
    begun = Begun.wait_for(submit(16, "--set", ENDLESS, *on_the_second))
    assert hosts.processes(2, LEARNER)
    hosts.kill(2)
    begun.run.wait(lambda: "the run asks for 1 worker2, Ray has 0" in begun.run.log())
    joins = time.monotonic()
    hosts.start(2)
    record("the learner's host is switched off; from when another joins", **begun.goes_on(joins))


def test_a_node_that_is_announced_to_go_leads_to_a_checkpoint(hosts: Hosts, submit):
    run: Submitted = submit(15, "--set", ENDLESS, "--checkpoint-every", "100000")
    run.wait(lambda: iterations(run) > 4)

    def saved() -> int:
        found = sorted((run.folder / "checkpoints").glob("iteration_*"))
        return int(found[-1].name.removeprefix("iteration_")) if found else -1

    assert saved() == 0  # that of Phase 1
    hosts.announce_end(2, seconds=60)
    run.wait(lambda: saved() > 4, seconds=60)
    hosts.kill(2)
    next_iteration(run)


def test_a_sweep_survives_one_of_its_two_hosts(hosts: Hosts, project: Path, record):
    done = hosts.rise(
        *("submit", "sweep.yaml", "--address", hosts.address, "--storage", str(hosts.storage)),
        *("--checkpoint-every", "4"),
        folder=project,
    )
    sweep = Submitted(hosts, hosts.storage / "tune-sweep", done.stdout)

    def trials() -> list[Submitted]:
        return [Submitted(hosts, path, "") for path in sorted((sweep.folder / "runs").glob("*"))]

    sweep.wait(lambda: len([one for one in trials() if len(one.rows()) > 12]) == 4)
    before = {one.folder.name: one.rows() for one in trials()}
    assert not any((one.folder / "result.json").exists() for one in trials())

    def moved() -> dict[str, list[int]]:
        """Behind which iterations trials were restored, by name: those of the dead host."""
        told = {
            one.folder.name: json.loads((one.folder / "trial.json").read_text())["restored"]
            for one in trials()
        }
        return {name: behind for name, behind in told.items() if behind}

    killed = time.monotonic()
    hosts.kill(2)
    sweep.wait(moved)
    (name, (iteration, *_)), *_ = moved().items()
    steps = {row["iteration"]: row["env_steps"] for row in before[name]}
    record(
        "one of a sweep's two hosts is switched off: until a trial of it goes on",
        seconds=time.monotonic() - killed,
        steps_lost=max(steps.values()) - steps.get(iteration, max(steps.values())),
    )
    sweep.wait(lambda: sum((one.folder / "result.json").exists() for one in trials()) == 4, 240)
    sweep.wait(lambda: hosts.status(sweep.id) == "SUCCEEDED")
    assert {one.folder.name for one in trials()} == set(before)
    assert all(min(behind) > 1 for behind in moved().values())
