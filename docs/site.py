"""What the site (`make docs`) shows of files that are not in this folder; a hook of mkdocs.

Pages link to files of the repository, and are to work there as they are. On the site, README and
its like are pages, pictures and programs that a page links to are beside it, and links to folders
are plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
# Files of the repository that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "cluster/README.md": "cluster.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add what the pages link to."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    texts |= {source: (ROOT / source).read_text() for source in PAGES}
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=texts[source]))
    known = {file.src_uri for file in files}
    for source, text in texts.items():
        for _, _, target in _LINK.findall(text):
            path = _in_repository(source, target)
            if path is None or not (ROOT / path).is_file():
                continue
            if (place := _on_site(path)) not in known:
                known.add(place)
                files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where things are on the site."""
    own = page.file.src_uri
    source = next((path for path, name in PAGES.items() if name == own), f"docs/{own}")

    def changed(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path = _in_repository(source, target)
        if path is None:
            return match[0]
        if (ROOT / path).is_dir():
            return text
        anchor = target.partition("#")[2]
        place = posixpath.relpath(_on_site(path), posixpath.dirname(own) or ".")
        return f"{mark}[{text}]({place}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(changed, markdown)


def _in_repository(source: str, target: str) -> str | None:
    """A link's target as a path in the repository; None if it leads elsewhere, or within a page."""
    if re.match(r"\w+:|#", target):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target.partition("#")[0]))


def _on_site(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"
