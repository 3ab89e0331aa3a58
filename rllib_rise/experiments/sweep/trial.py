"""One trial of a sweep: a run as of `rise train`, driven by Ray Tune."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT

from rllib_rise.experiments.resources import needed_cpus
from rllib_rise.experiments.run.drain_notices import DrainNotices
from rllib_rise.experiments.run.run_directory import RunDirectory, write_json
from rllib_rise.experiments.run.training import Training
from rllib_rise.experiments.schema import Experiment
from rllib_rise.experiments.session import silence_rllib
from rllib_rise.experiments.shared_storage import check_here
from rllib_rise.experiments.sweep.schema import Sweep
from rllib_rise.rllib.phase1.cache import CACHE_FOLDER

RUNS, SWEEP, TRIAL = "runs", "sweep.json", "trial.json"
REPEATED = "__trial_index__"
"""What Tune's `Repeater` calls the number of a repetition."""


class SweepTrial(tune.Trainable):
    """A run with the values that Tune has chosen; its files are in <sweep>/runs/<trial>.

    trial.json says which values and which seed, and behind which iterations it was restored.
    """

    def setup(self, config: dict[str, Any], sweep: dict[str, Any], out: str) -> None:
        """Build the algorithm. Phase 1 waits for the first step: it may come with a checkpoint."""
        silence_rllib()
        check_here(Path(out) / SWEEP)
        self._sweep, self._out = sweep, Path(out)
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take over another trial, in a process that has loaded everything already."""
        self.cleanup()
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._experiment = trial_experiment(self._sweep, config)
        self._run = RunDirectory(self._out / RUNS / self.trial_id)
        self._training: Training | None = None
        self._about: dict[str, Any] | None = None
        if self._run.finished:  # which Tune did not live to learn
            return
        self._training = Training(
            self._experiment, self._run, cache=self._out / CACHE_FOLDER, events=False
        )
        self._values = chosen_values(config)
        self._prepared, self._notices = False, DrainNotices()

    def _open(self) -> None:
        """Begin to write, where that was not done before.

        Not before the first step: Tune may give a trial whose process is still being built to one
        that is there already, and end the first when it is built. By then the other may be done.
        """
        if self._training is None or self._about is not None:
            return
        if self._run.finished:
            self.cleanup()
            return
        self._run.open(self._experiment.resolved())
        self._about = {"values": self._values, "seed": self._experiment.seed, "restored": []}
        file = self._run.path / TRIAL
        if file.exists():  # it was interrupted, or gets other values
            self._about["restored"] = json.loads(file.read_text())["restored"]
        write_json(file, self._about)

    def step(self) -> dict[str, Any]:
        """One iteration."""
        self._open()
        if self._training is None:
            last = self._run.read_metrics()[-1]
            return {**{k: v for k, v in last.items() if v is not None}, "done": True}
        if not self._prepared:
            self._training.prepare()
            self._prepared = True
        row = dict(self._training.iterate())
        if self._training.done:
            self._training.finish()
        # A node that is announced to go takes what was not saved with it.
        return {**row, "done": self._training.done, SHOULD_CHECKPOINT: self._notices.new()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """What a run needs to go on."""
        if self._training is not None:
            self._training.write(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from it, be it this trial's or, with population based training, another's."""
        self._open()
        if self._training is None or self._about is None:
            return
        self._training.restore(Path(checkpoint))
        self._about["restored"].append(self._training.progress.iteration)
        write_json(self._run.path / TRIAL, self._about)

    def cleanup(self) -> None:
        """End the algorithm's processes."""
        if self._training is not None:
            self._training.close()
            self._training = None


def largest_trial(sweep: Sweep) -> Experiment:
    """The one of the trials that takes most CPUs."""
    seed = sweep.experiment.seed
    trials = [sweep.with_values(values, seed) for values in sweep.extremes()]
    return max(trials, key=needed_cpus)


def chosen_values(config: dict[str, Any]) -> dict[str, Any]:
    """What Tune has chosen, by path, without the seed."""
    return {path: value for path, value in config.items() if path not in ("seed", REPEATED)}


def trial_experiment(sweep: dict[str, Any], config: dict[str, Any]) -> Experiment:
    """The experiment of a trial, from plain data and what Tune has chosen."""
    whole = Sweep.from_data(sweep)
    return whole.with_values(chosen_values(config), trial_seed(whole, config))


def trial_seed(sweep: Sweep, config: dict[str, Any]) -> int:
    """The seed that Tune has chosen, or that of a repetition."""
    return config.get("seed", sweep.experiment.seed + int(config.get(REPEATED, 0)))
