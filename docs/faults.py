"""Writes the table of faults into cluster/README.md: `python docs/faults.py`.

The tests on a cluster of network namespaces measure what each fault costs:
`RISE_FAULTS=results/cluster/faults.json make test-cluster`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "cluster" / "README.md"
RESULTS = ROOT / "results" / "cluster" / "faults.json"
_MARKERS = re.compile(r"(<!-- faults -->\n).*?(<!-- end -->)", re.DOTALL)


def table() -> str:
    """What was measured, as a Markdown table."""
    found = json.loads(RESULTS.read_text())
    lines = [
        "| fault | seconds until it was training again | env steps lost |",
        "|---|---|---|",
        *(
            f"| {fault['fault']} | {fault['seconds']:.0f} | {fault['steps_lost']:,} |"
            for fault in found["faults"]
        ),
        "",
        f"Measured on {found['date']}, all hosts on one machine with {found['cores']} cores "
        f"({found['processor']}), Ray {found['packages']['ray']}.",
    ]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with this table."""
    return _MARKERS.sub(lambda match: match[1] + table() + match[2], PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
