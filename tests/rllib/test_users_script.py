"""An existing RLlib script, with one line added."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("users_script.py")
PLACE = "# with_rise goes here\n"
LINE = "import rllib_rise; config = rllib_rise.with_rise(config, k=5, alpha=0.1)\n"


def run(text: str, folder: Path) -> dict[str, str]:
    path = folder / "script.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=folder,
        env={**os.environ, "RAY_DEDUP_LOGS": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return {name: value for name, _, value in lines}


@pytest.mark.slow
def test_it_trains_with_one_line_added(tmp_path: Path):
    text = SCRIPT.read_text()
    assert text.count(PLACE) == 1
    plain = run(text, tmp_path)
    rise = run(text.replace(PLACE, LINE), tmp_path)
    assert plain["bonus"] == "None"
    assert float(rise["bonus"]) > 0
    assert rise["module"] == plain["module"] == "Networks"
    assert float(rise["largest angle"]) > 0
    assert float(rise["return"]) >= 8
