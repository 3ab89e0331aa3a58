"""What a comparison found, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rllib_rise.experiments.compare import FIGURES
from rllib_rise.experiments.display import interval_text


def headline(summary: dict[str, Any], show: Callable[[str], str] = str) -> list[str]:
    """What a comparison found, in sentences that hold whichever method is ahead.

    Args:
        summary: What `compare.summarise` returns.
        show: How a method's name is written.
    """
    methods, baseline = summary["methods"], summary["baseline"]
    others = [method for method in methods if method != baseline]
    if not others:
        return [f"Only {show(baseline)} has finished runs: there is nothing to compare it with."]
    sentences = [_leader(methods, show)] if len(others) > 1 else []
    for method in others:
        parts = [_against(figure, method, summary, show) for figure in FIGURES]
        sentences.append(" ".join(filter(None, [*parts, _goals(method, summary, show)])))
    return [sentence for sentence in sentences if sentence]


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def _leader(methods: dict[str, Any], show: Callable[[str], str]) -> str:
    figure = next((f for f in FIGURES if any(f in m["figures"] for m in methods.values())), "")
    found = {name: m["figures"][figure] for name, m in methods.items() if figure in m["figures"]}
    if not found:
        return ""
    best = max(found, key=lambda name: found[name]["estimate"])
    rivals = [n for n in found if n != best and _overlap(found[n], found[best]) is not False]
    equal = [name for name in found if found[name]["estimate"] == found[best]["estimate"]]
    if len(equal) > 1:
        return f"{listed(map(show, equal))} have the same {figure}, {interval_text(found[best])}."
    text = f"{show(best)} has the highest {figure}, {interval_text(found[best])}"
    if not rivals:
        return f"{text}; its interval overlaps no other."
    return f"{text}, but not clearly above {listed(map(show, rivals))}."


def _against(figure: str, method: str, summary: dict[str, Any], show: Callable[[str], str]) -> str:
    baseline = summary["baseline"]
    ours = summary["methods"][method]["figures"].get(figure)
    theirs = summary["methods"][baseline]["figures"].get(figure)
    if not ours or not theirs:
        return ""
    one, other = interval_text(ours), interval_text(theirs)
    if figure == "coverage":
        text = f"{show(method)} visited {one} of the reachable cells, {show(baseline)} {other}"
        below, above = "less", "more"
    else:
        text = f"The return of {show(method)} was {one}, that of {show(baseline)} {other}"
        below, above = "lower", "higher"
    if ours["estimate"] == theirs["estimate"]:
        return f"{text}: no difference."
    direction = above if ours["estimate"] > theirs["estimate"] else below
    verdict = {
        True: "but the intervals overlap",
        False: "and the intervals do not overlap",
        None: "but there are too few runs for an interval",
    }[_overlap(ours, theirs)]
    return f"{text}: {direction}, {verdict}."


def _goals(method: str, summary: dict[str, Any], show: Callable[[str], str]) -> str:
    baseline = summary["baseline"]
    ours, theirs = summary["methods"][method], summary["methods"][baseline]
    if "goal" not in ours or "goal" not in theirs:
        return ""
    if ours["goal"]["reached"] == theirs["goal"]["reached"] == 0:
        return "Neither reached the goal in any run."
    return (
        f"{show(method)} reached the goal in {ours['goal']['reached']} of {ours['runs']} runs, "
        f"{show(baseline)} in {theirs['goal']['reached']} of {theirs['runs']}."
    )


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Whether two intervals overlap; None where there are no intervals."""
    if one["low"] is None or other["low"] is None:
        return None
    return bool(one["low"] <= other["high"] and other["low"] <= one["high"])
