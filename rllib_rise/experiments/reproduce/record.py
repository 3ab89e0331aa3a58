"""What a reproduction leaves behind."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.report.panels import standalone
from rllib_rise.experiments.run.run_directory import versions, write_json

SCALES = ("small", "workstation", "paper")
"""Minutes; what one machine can do in hours; all that the paper ran."""


class OnProgress(Protocol):
    """Is told what is being done, and how much of it all is done."""

    def __call__(self, line: str, share: float | None = None, /) -> None:
        """Show it."""


def open_folder(out: Path, target: str, scale: str, *, keep: bool) -> None:
    """Make the folder, and say in it where its results come from.

    Args:
        out: The folder.
        target: What is made.
        scale: One of `SCALES`.
        keep: Whether the target goes on with what is there: then it must be of the same scale,
            and the results stay those of the commit that began them.
    """
    if scale not in SCALES:
        raise ConfigError(f"--scale {scale} is none of {', '.join(SCALES)}")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file")
    command, path = f"rise reproduce {target} --scale {scale}", out / "about.json"
    if keep and path.exists():
        before = json.loads(path.read_text())["command"]
        if before != command:
            raise ConfigError(f"{out} holds results of `{before}`: choose another place with --out")
        return
    out.mkdir(parents=True, exist_ok=True)
    about = {
        "command": command,
        "scale": scale,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
    }
    write_json(path, about)


def write_figure(path: Path, svg: str) -> None:
    """An SVG file of its own."""
    path.write_text(standalone(svg) + "\n")
