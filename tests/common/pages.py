"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    page.stem: page for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
}
PAGES["cluster"] = ROOT / "cluster" / "README.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """A page's blocks in a language, in their order."""
    return [text for name, text in _BLOCK.findall(PAGES[page].read_text()) if name == language]


def languages(page: str) -> set[str]:
    """Those of all blocks of a page; empty for a block that names none."""
    return {name for name, _ in _BLOCK.findall(PAGES[page].read_text())}


def pages_with(language: str) -> list[str]:
    """The pages that have blocks in it."""
    return [page for page in PAGES if language in languages(page)]


def commands(page: str) -> list[str]:
    """The lines of a page's shell blocks."""
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip()]
