"""What a real browser makes of a page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), "")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--window-size=1100,2000", "--dump-dom"),
)
# A second page measures the first one, which has no scripts of its own.
_SCRIPT = """<script>addEventListener("load", () => {
  const box = e => e.getBoundingClientRect();
  document.body.dataset.found = JSON.stringify({
    figures: [...document.querySelectorAll("figure svg")].map(e => box(e).width),
    images: [...document.querySelectorAll("svg image")].map(e => box(e).width),
    overflow: document.documentElement.scrollWidth - innerWidth,
  });
});</script></body>"""

needs_browser = pytest.mark.skipif(not _CHROMIUM, reason="needs Chromium on the PATH")


def shown(page: Path) -> dict[str, Any]:
    """Widths of a page's figures and of images in them, as they are shown without a complaint."""
    probe = page.with_name("probe.html")
    probe.write_text(page.read_text("utf-8").replace("</body>", _SCRIPT), "utf-8")
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [_CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", probe.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    assert "CONSOLE" not in done.stderr
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stdout
    sizes = json.loads(found.group(1).replace("&quot;", '"'))
    assert sizes["overflow"] <= 0
    return sizes
