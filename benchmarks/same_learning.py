"""Does the faster code learn what RLlib's own learns? Writes results/same_learning.csv.

Each study trains two arms that differ in nothing but the code, the processes or the arithmetic,
over the same seeds, and asks whether their mean figures are equal within a margin: they are, at the
level of 5 %, if the 90 % interval of the difference (Welch) lies within it. Margins, budgets and
numbers of seeds were written down before the first run of a study, but for the seeds of
`precision`: they were raised from 8 to 20 when the float32 arm had shown how much runs differ (a
standard deviation of 21 %, with which 8 show equal arms to be equal once in five times), before any
run in bfloat16 was looked at.

- `maze`: RLlib's env runner and learner with the bonus, against ours.
- `hopper`, `space_invaders`: the same.
- `env_runners`: Hopper in one process, against two env runners.
- `precision`: SpaceInvaders in float32, against bfloat16.

Policies that learn nothing (a learning rate of 0) tell how much of a figure was learned at all.

How to run (three hours on two cores; runs that results/same_learning.csv has are not repeated):

    python benchmarks/same_learning.py
    python benchmarks/same_learning.py maze
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from scipy import stats

from rllib_rise.experiments.run.run_directory import versions

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "same_learning.csv"
PAGE = ROOT / "docs" / "performance.md"
COLUMNS = ("study", "arm", "seed", "figure", "value", "commit", "processor", "date")
_MARKERS = re.compile(r"(<!-- same learning: [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)
_RLLIB = (
    "rllib.env_runner_cls=ray.rllib.env.single_agent_env_runner:SingleAgentEnvRunner",
    "rllib.learner_class=rllib_rise.bench.trainers:RLlibPPOLearner",
)
_INTERVAL = 0.9
_UNTRAINED = "untrained"
_NOTHING_LEARNED = ("rllib.lr=0", "stop.env_steps=20000")
_UNTRAINED_SEEDS = 5


@dataclass(frozen=True)
class Study:
    """Two arms and a margin.

    Attributes:
        config: Of both.
        figure: A column of runs.csv.
        margin: Largest difference that counts as none, as a part of the first arm's mean.
        seeds: Runs per arm.
        common: Settings of both.
        arms: Their names and what each changes; or, if another study has trained it already, the
            name of that and of its arm.
    """

    config: str
    figure: str
    margin: float
    seeds: int
    common: tuple[str, ...]
    arms: dict[str, tuple[str, ...] | dict[str, str]]


_HOPPER = ("stop.env_steps=100000", "k=5")
_INVADERS = ("stop.env_steps=100000", "k=5")
STUDIES = {
    "maze": Study("maze.yaml", "coverage", 0.1, 20, (), {"RLlib's": _RLLIB, "ours": ()}),
    "hopper": Study(
        "bullet/hopper.yaml",
        "return",
        0.2,
        20,
        _HOPPER,
        {"RLlib's": _RLLIB, "ours": ()},
    ),
    "space_invaders": Study(
        "atari/space_invaders.yaml",
        "one_life_return",
        0.2,
        20,
        _INVADERS,
        {"RLlib's": _RLLIB, "ours": {"precision": "float32"}},
    ),
    "env_runners": Study(
        "bullet/hopper.yaml",
        "return",
        0.2,
        20,
        _HOPPER,
        {
            "one process": {"hopper": "ours"},
            "two env runners": ("rllib.num_env_runners=2", "rllib.num_envs_per_env_runner=4"),
        },
    ),
    "precision": Study(
        "atari/space_invaders.yaml",
        "one_life_return",
        0.2,
        20,
        _INVADERS,
        {"float32": (), "bfloat16": ("rllib.model_config.precision=bfloat16",)},
    ),
}


def run(name: str) -> None:
    """Train what is missing of a study, one arm after the other."""
    study = STUDIES[name]
    for arm, changes in {_UNTRAINED: _NOTHING_LEARNED, **study.arms}.items():
        if isinstance(changes, dict) or _home(name, arm)[0] != name:
            continue
        known = {int(row["seed"]) for row in _runs(name, arm)}
        seeds = _UNTRAINED_SEEDS if arm == _UNTRAINED else study.seeds
        missing = [seed for seed in range(seeds) if seed not in known]
        if not missing:
            continue
        first, count = missing[0], missing[-1] - missing[0] + 1
        letters = re.sub(r"\W", "", arm)
        folder = ROOT / "runs" / "same_learning" / name / f"{letters}-{first}"
        changes = (*study.common, *changes, f"seed={first}")
        subprocess.run(
            [
                *(sys.executable, "-m", "rllib_rise.cli", "compare"),
                str(ROOT / "configs" / study.config),
                *("--methods", "rise", "--seeds", str(count)),
                *("--out", str(folder), "--resume"),
                *(f"--set={change}" for change in changes),
            ],
            check=True,
        )
        about = versions()
        where = {"commit": about["commit"], "processor": about["processor"]}
        where["date"] = date.today().isoformat()
        with (folder / "runs.csv").open() as stream:
            found = {int(one["seed"]): one[study.figure] for one in csv.DictReader(stream)}
        told = {"study": name, "arm": arm, "figure": study.figure, **where}
        write([*read(), *({**told, "seed": seed, "value": found[seed]} for seed in missing)])


def write(rows: Iterable[Mapping[str, object]]) -> None:
    with RESULTS.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open() as stream:
        return list(csv.DictReader(stream))


def _home(study: str, arm: str) -> tuple[str, str]:
    """The study that trains an arm, and the arm's name there."""
    if arm == _UNTRAINED:  # once for a config
        config = STUDIES[study].config
        return next(name for name, one in STUDIES.items() if one.config == config), arm
    elsewhere = STUDIES[study].arms[arm]
    if isinstance(elsewhere, dict):
        [found] = elsewhere.items()
        return found
    return study, arm


def _runs(study: str, arm: str) -> list[dict[str, str]]:
    home = _home(study, arm)
    return [row for row in read() if (row["study"], row["arm"]) == home]


def _values(study: str, arm: str) -> np.ndarray:
    return np.array([float(row["value"]) for row in _runs(study, arm)])


def difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Second mean minus first, and its interval by Welch's t, as parts of the first mean."""
    found = stats.ttest_ind(second, first, equal_var=False)
    low, high = found.confidence_interval(_INTERVAL)
    scale = abs(first.mean())
    return (second.mean() - first.mean()) / scale, low / scale, high / scale


def table() -> str:
    lines = [
        "| study | figure | runs per arm | untrained | means | difference, 90 % interval | margin "
        "| equal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, study in STUDIES.items():
        arms = [_values(name, arm) for arm in study.arms]
        if any(len(values) < study.seeds for values in arms):
            continue
        middle, low, high = difference(*arms)
        means = ", ".join(
            f"{arm} {values.mean():.3g}" for arm, values in zip(study.arms, arms, strict=True)
        )
        equal = -study.margin < low and high < study.margin
        lines.append(
            f"| {name.replace('_', ' ')} | {study.figure.replace('_', ' ')} | {len(arms[0])} "
            f"| {_values(name, _UNTRAINED).mean():.3g} | {means} "
            f"| {middle:+.1%} [{low:+.1%}, {high:+.1%}] | {study.margin:.0%} "
            f"| {'yes' if equal else '**not shown**'} |"
        )
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with a fresh table."""
    return _MARKERS.sub(lambda match: match[1] + table() + match[2], PAGE.read_text())


def main() -> None:
    for name in sys.argv[1:] or STUDIES:
        run(name)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
