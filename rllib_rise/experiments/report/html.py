"""The pieces of HTML that a report is made of."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from rllib_rise.experiments.report.style import STYLE

_DOCUMENT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def escape(text: object) -> str:
    """Anything as text that can stand in an element or an attribute."""
    return html.escape(str(text), quote=True)


def document(title: str, body: str) -> str:
    """A whole page; the title is text, the body is HTML."""
    return _DOCUMENT.format(title=escape(title), style=STYLE, body=body)


def paragraph(kind: str, content: str) -> str:
    """A paragraph of a class in the style sheet; the content is HTML."""
    return f'<p class="{kind}">{content}</p>'


def table(
    rows: Sequence[Mapping[str, Any]], colors: Mapping[str, str], *, caption: str = ""
) -> str:
    """A table; a first cell that has a colour gets a swatch of it."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = []
    for row in rows:
        first, *rest = [str(row.get(name, "–")) for name in columns]
        color = colors.get(first)
        swatch = f'<span class="swatch" style="background:{color}"></span>' if color else ""
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{swatch}{escape(first)}</th>{cells}</tr>')
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "\n".join(lines)
    return (
        f'<div class="scroll"><table>{title}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def fact_list(facts: Mapping[str, str]) -> str:
    """Names and values side by side, large."""
    items = [f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items()]
    return f'<dl class="facts">{"".join(items)}</dl>'


def folded(summary: str, content: str, *, unfold: bool = False) -> str:
    """Content (HTML) that a click on its summary (text) shows."""
    opened = " open" if unfold else ""
    return f"<details{opened}><summary>{escape(summary)}</summary>{content}</details>"
