"""Does a run's memory grow while it trains, and its directory? Writes results/reliability/soak.*.

Trains the maze with RISE, whose Phase 1 fits a VAE and searches k, with two env runners and a
learner as processes of their own and a checkpoint every ten iterations. Every ten seconds it notes,
in bytes, the memory of each process that is not shared, that of Ray's object store and of Ray's
own processes together, and the size of what was written. In the end the run is asked to stop.

How to run (half an hour; the table is in docs/reliability.md):

    python benchmarks/soak.py
    python benchmarks/soak.py --minutes 2 --out /tmp/soak.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import psutil

from rllib_rise.experiments.run.run_directory import versions

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "reliability" / "soak.csv"
MEMORY = ("driver", "learner 1", "env runner 1", "env runner 2", "Ray's processes", "object store")
DISK = ("checkpoints", "metrics.csv", "events", "rest of the run", "Ray's session")
COLUMNS = ("seconds", "iterations", *MEMORY, *DISK)
_SECONDS = 10.0
_STOPPED = 130
# In the titles that Ray gives its workers; RLlib wraps learners into a class of Ray Train's.
_ROLES = {"EnvRunner": "env runner", "_WrappedExecutable": "learner"}
_SETTINGS = (
    *("stop.env_steps=1000000000", "encoder=vae", "k=auto"),
    *("rllib.num_env_runners=2", "rllib.num_envs_per_env_runner=32", "rllib.num_learners=1"),
    *("rllib.num_cpus_per_env_runner=0.5", "rllib.num_cpus_per_learner=0.5"),
)
_COMMAND = (
    *(sys.executable, "-m", "rllib_rise.cli", "train", str(ROOT / "configs" / "maze.yaml")),
    *(word for setting in _SETTINGS for word in ("--set", setting)),
    *("--checkpoint-every", "10"),
)


def memory(processes: Iterable[psutil.Process]) -> dict[str, int]:
    """Bytes per process that holds the run's state, of the object store, and of all else."""
    found = dict.fromkeys(("driver", "Ray's processes", "object store"), 0)
    roles = dict.fromkeys(_ROLES.values(), 0)
    for number, process in enumerate(sorted(processes, key=lambda process: process.pid)):
        try:
            title, maps = " ".join(process.cmdline()), process.memory_maps(grouped=True)
        except psutil.Error:  # it has just ended
            continue
        name = "driver" if number == 0 else "Ray's processes"
        for key, role in _ROLES.items():
            if title.startswith("ray::") and key in title:
                roles[role] += 1
                name = f"{role} {roles[role]}"
        stores = [one for one in maps if "plasma" in one.path]
        # A page that several processes have mapped counts in each by its share.
        found["object store"] += sum(one.pss for one in stores)
        own = sum(one.private_clean + one.private_dirty for one in maps)
        own -= sum(one.private_clean + one.private_dirty for one in stores)
        found[name] = found.get(name, 0) + own
    return found


def disk(run: Path, session: Path | None) -> dict[str, int]:
    """Bytes of what a run has written, and Ray for it."""
    found = {
        "checkpoints": size(run / "checkpoints"),
        "metrics.csv": size(run / "metrics.csv"),
        "events": sum(size(path) for path in run.glob("events.out.tfevents.*")),
    }
    found["rest of the run"] = size(run) - sum(found.values())
    return {**found, "Ray's session": size(session) if session else 0}


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    total = 0
    for file in (path, *path.rglob("*")):
        try:
            total += file.lstat().st_size if file.is_file() else 0
        except FileNotFoundError:  # of a checkpoint that was just removed
            continue
    return total


def session_folder(processes: Iterable[psutil.Process]) -> Path | None:
    """Where the run's Ray keeps its logs."""
    for process in processes:
        try:
            found = re.search(r"--session-dir=(\S+)", " ".join(process.cmdline()))
        except psutil.Error:
            continue
        if found:
            return Path(found[1])
    return None


def iterations(run: Path) -> int:
    """How many the run has written down."""
    metrics = run / "metrics.csv"
    return max(metrics.read_bytes().count(b"\n") - 1, 0) if metrics.exists() else 0


def soak(minutes: float, folder: Path) -> list[dict[str, int]]:
    """Train so long; what was seen on the way."""
    run, rows = folder / "run", list[dict[str, int]]()
    log = folder / "log.txt"
    with log.open("w") as stream:
        process = subprocess.Popen([*_COMMAND, "--out", str(run)], stdout=stream, stderr=stream)
    started, driver = time.monotonic(), psutil.Process(process.pid)
    try:
        while (seconds := time.monotonic() - started) < 60 * minutes:
            time.sleep(_SECONDS - seconds % _SECONDS)
            if process.poll() is not None:
                raise SystemExit(f"the run ended by itself: {log.read_text()}")
            family = [driver, *driver.children(recursive=True)]
            seen = {
                "seconds": round(time.monotonic() - started),
                "iterations": iterations(run),
                **memory(family),
                **disk(run, session_folder(family)),
            }
            rows.append(seen)
        process.send_signal(signal.SIGTERM)
        if process.wait(300) != _STOPPED:
            raise SystemExit(f"the run did not end as it was asked to: {log.read_text()}")
    finally:
        process.kill()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    about = {"date": date.today().isoformat(), "settings": _SETTINGS, "machine": versions()}
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        rows = soak(asked.minutes, Path(folder))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with asked.out.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    asked.out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
