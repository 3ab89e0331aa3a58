"""Does the faster code learn what RLlib's own learns? Writes results/same_learning.csv.

Each study trains two arms that differ in nothing but the code or the arithmetic, over the same
seeds, and asks whether their mean figures are equal within a margin: they are, at the level of
5 %, if the 90 % interval of the difference (Welch) lies within it. Margins, budgets and numbers of
seeds were written down before the first run, but for the seeds of `space_invaders`: they were
raised from 8 to 20 when the float32 arm had shown how much runs differ (a standard deviation of
21 %, with which 8 show equal arms to be equal once in five times), before any run in bfloat16 was
looked at.

- `maze`: RLlib's env runner and learner with the bonus, against ours.
- `hopper`: the same.
- `space_invaders`: our networks in float32, against bfloat16.

How to run (two hours on two cores; runs that results/same_learning.csv has are not repeated):

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

from rllib_rise.experiments.run_directory import versions

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


@dataclass(frozen=True)
class Study:
    """Two arms and a margin.

    Attributes:
        config: Of both.
        figure: A column of runs.csv.
        margin: Largest difference that counts as none, as a part of the first arm's mean.
        seeds: Runs per arm.
        common: Settings of both.
        arms: Their names and what each changes.
    """

    config: str
    figure: str
    margin: float
    seeds: int
    common: tuple[str, ...]
    arms: dict[str, tuple[str, ...]]


STUDIES = {
    "maze": Study("maze.yaml", "coverage", 0.1, 20, (), {"RLlib's": _RLLIB, "ours": ()}),
    "hopper": Study(
        "bullet/hopper.yaml",
        "return",
        0.2,
        20,
        ("stop.env_steps=100000", "k=5"),
        {"RLlib's": _RLLIB, "ours": ()},
    ),
    "space_invaders": Study(
        "atari/space_invaders.yaml",
        "one_life_return",
        0.2,
        20,
        ("stop.env_steps=100000", "k=5"),
        {"float32": (), "bfloat16": ("rllib.model_config.precision=bfloat16",)},
    ),
}


def run(name: str) -> None:
    """Train what is missing of a study, one arm after the other."""
    study = STUDIES[name]
    for arm, changes in study.arms.items():
        known = {int(r["seed"]) for r in read() if (r["study"], r["arm"]) == (name, arm)}
        missing = [seed for seed in range(study.seeds) if seed not in known]
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


def difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Second mean minus first, and its interval by Welch's t, as parts of the first mean."""
    found = stats.ttest_ind(second, first, equal_var=False)
    low, high = found.confidence_interval(_INTERVAL)
    scale = abs(first.mean())
    return (second.mean() - first.mean()) / scale, low / scale, high / scale


def table() -> str:
    rows = read()
    lines = [
        "| study | figure | runs per arm | means | difference, 90 % interval | margin | equal |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, study in STUDIES.items():
        arms = [
            np.array([float(r["value"]) for r in rows if (r["study"], r["arm"]) == (name, arm)])
            for arm in study.arms
        ]
        if any(len(values) < study.seeds for values in arms):
            continue
        middle, low, high = difference(*arms)
        means = ", ".join(
            f"{arm} {values.mean():.3g}" for arm, values in zip(study.arms, arms, strict=True)
        )
        equal = -study.margin < low and high < study.margin
        lines.append(
            f"| {name} | {study.figure.replace('_', ' ')} | {len(arms[0])} | {means} "
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
