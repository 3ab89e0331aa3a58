"""Writes the support table of docs/algorithms.md: `python docs/support.py`.

Runs the tests of every case with every algorithm (a quarter of an hour) and writes down what they
showed. A cell whose test failed ends the program: there is no way to a table that is not true.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "common"))

from small_algorithms import NAMES  # noqa: E402
from support_cases import ABSENT, CASES, FOR_ALL, REFUSED, WORKS  # noqa: E402

PAGE = HERE / "algorithms.md"
TESTS = "tests/rllib/test_support.py"
_MARKERS = re.compile(r"(<!-- support: [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)
_CELL = re.compile(r"^(test_\w+)\[(?:(.*) \| )?(\w+)\]$")
_OUTCOMES = {
    "test_it_trains": WORKS,
    "test_it_is_refused": REFUSED,
    "test_rllib_itself_has_no_such_thing": ABSENT,
    "test_after_a_restore_the_bonus_is_the_same": WORKS,
    "test_a_grid_over_alpha": WORKS,
}


def run_tests() -> dict[tuple[str, str], str]:
    """What the tests that ran say, by case and algorithm."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-n", "2", TESTS, f"--junitxml={report}"]
        if subprocess.run(command, cwd=HERE.parent, check=False).returncode != 0:
            sys.exit("the table stays as it is: not all tests passed")
        return outcomes(report)


def outcomes(report: Path) -> dict[tuple[str, str], str]:
    """The cells of the table from a JUnit report."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        cell = _CELL.match(case.attrib["name"])
        if cell and cell[1] in _OUTCOMES:
            if any(part.tag in ("skipped", "failure", "error") for part in case):
                sys.exit(f"the table stays as it is: {case.attrib['name']} did not pass")
            found[cell[2] or FOR_ALL[cell[1]], cell[3]] = _OUTCOMES[cell[1]]
    return found


def table(cells: dict[tuple[str, str], str]) -> str:
    """The cells as a Markdown table."""
    lines = [f"| | {' | '.join(NAMES)} |", "|---" * (len(NAMES) + 1) + "|"]
    for row in (*(case.name for case in CASES), *FOR_ALL.values()):
        lines.append(f"| {row} | {' | '.join(cells[row, name] for name in NAMES)} |")
    return "\n".join(lines) + "\n"


def page(cells: dict[tuple[str, str], str]) -> str:
    """The page with this table."""
    return _MARKERS.sub(lambda match: match[1] + table(cells) + match[2], PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page(run_tests()))
