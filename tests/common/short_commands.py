"""Commands that pages and examples show, with budgets of seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

STEPS = {"dqn_maze": 2_000, "image_maze": 2_048, "space_invaders": 2_048, "hopper": 2_048}
_OTHERS = 14_000  # on the maze: just enough for episodes to end
_WITH_PHASE1 = ("image_maze", "space_invaders", "hopper")
_SHORT_PHASE1 = ("--set", "warmup_steps=512", "--set", "vae_epochs=1")


def shortened(command: str, *arguments: str) -> list[str]:
    """The words behind `rise`, and a small budget: of an option given twice the last counts."""
    words = [command, *arguments]
    if command in ("train", "compare", "tune"):
        name = Path(arguments[0]).stem
        # A run goes on to a later end; a sweep has one.
        longer = command == "train" and "--resume" in arguments
        words += ["--set", f"stop.env_steps={STEPS.get(name, _OTHERS) * (2 if longer else 1)}"]
        words += _SHORT_PHASE1 if name in _WITH_PHASE1 else ()
    if command == "compare":
        words += ["--seeds", "1"]
    if shutil.which("ffmpeg") is None:  # without which there are no .mp4 files
        words = [word.replace(".mp4", ".gif") for word in words]
    return words
