"""Whether a run directory holds the experiment that it is to go on with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_rise.errors import ConfigError, RunDirectoryError
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.schema import Experiment, parse_experiment

_PROCESSES = ("learner", "env_runner")
_OF_THE_MACHINE = {
    *(f"num_{kind}_per_{process}" for kind in ("cpus", "gpus") for process in _PROCESSES),
    "knn_backend",
}


def check_same(experiment: Experiment, run: RunDirectory) -> dict[str, Any]:
    """A run may be resumed with another stop or on another machine; the saved experiment."""
    try:
        saved = parse_experiment(run.read_config()).resolved()
    except ConfigError as error:
        raise RunDirectoryError(f"{run.config} cannot be read any more: {error}") from error
    before, asked = _without_machine(saved), _without_machine(experiment.resolved())
    for unimportant in ("stop", "methods"):
        before.pop(unimportant, None)
        asked.pop(unimportant, None)
    refuse_changes(run.path, before, asked)
    return saved


def refuse_changes(path: Path, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise where a folder was begun with other settings, and say under which keys."""
    changed = sorted(key for key in {*before, *asked} if before.get(key) != asked.get(key))
    if changed:
        raise RunDirectoryError(
            f"{path} was started with other settings under {', '.join(changed)}: "
            "choose another place with --out, or undo the change"
        )


def _without_machine(resolved: dict[str, Any]) -> dict[str, Any]:
    """An experiment without what may differ between machines: it makes runs faster, not others."""
    return {
        section: {key: found for key, found in value.items() if key not in _OF_THE_MACHINE}
        if isinstance(value, dict)
        else value
        for section, value in resolved.items()
    }
