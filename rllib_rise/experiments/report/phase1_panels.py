"""Panels about the encoder and the k that Phase 1 found for one module of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rllib_rise.experiments.report.panels import Panel
from rllib_rise.experiments.report.phase1_charts import draw_k_search, draw_losses
from rllib_rise.experiments.report.phase1_pictures import draw_embedding, draw_pictures

_LONGEST_LABEL = 34
_MAX_PICTURES = 8


@dataclass(frozen=True)
class Subject:
    """One module of one run.

    Attributes:
        run: The run's label.
        module: The module's id.
        label: What tells it from the others on the page; empty if there are none.
        number: Its place on the page, from 1.
        color: The run's colour.
        facts: What phase1.json says about the module.
        arrays: What phase1.npz has of it, by name.
    """

    run: str
    module: str
    label: str
    number: int
    color: str
    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def panel(self, figure: str) -> str:
        """The name of a panel. Ids of modules are the user's, so they are no part of it."""
        return f"phase1_{figure}" + (f"_{self.number}" if self.number > 1 else "")

    def title(self, text: str) -> str:
        """A title that fits over a figure."""
        label = self.label
        if len(label) > _LONGEST_LABEL:
            half = _LONGEST_LABEL // 2
            label = f"{label[:half]}…{label[-half:]}"
        return f"{text} ({label})" if label else text

    def caption(self, *sentences: str) -> str:
        """A caption that begins with the whole label."""
        return " ".join(([f"{self.label}:"] if self.label else []) + [s for s in sentences if s])

    def row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A row of a panel's data."""
        return {"run": self.run, "module": self.module, **values}


def subject_panels(subject: Subject) -> list[Panel]:
    """The panels that there are data for."""
    makers = (_k_search_panel, _losses_panel, _pictures_panel, _embedding_panel)
    return [panel for make in makers if (panel := make(subject)) is not None]


def _k_search_panel(subject: Subject) -> Panel | None:
    search, chosen = subject.facts["k_search"], subject.facts["k"]
    if search is None or not search["ratios"]:
        return None
    ratios = [_finite(ratio) for ratio in search["ratios"]]
    at_the_end = chosen == len(ratios) and ratios[-1] is not None
    alpha = subject.facts["alpha"]
    estimate = "exp(H)" if alpha == 1 else "the integral of f^α"
    estimate += "" if alpha is None else f" with α = {alpha:g}"
    caption = subject.caption(
        f"{search['num_subsets']} subsets of the observations each give an estimate of {estimate}; "
        "the ratio is the largest of them over the smallest, so 1 is agreement.",
        _choice(ratios, chosen),
        "Triangles at the top are infinite: a subset had no estimate, mostly because its "
        "observations are equal."
        if None in ratios
        else "",
        "The ratio sees the variance of the estimate and not its bias, so it leans to large k"
        + (", and here it went to the end of the range." if at_the_end else "."),
    )
    data = [
        subject.row(
            {"k": k, "ratio": math.inf if ratio is None else ratio, "chosen": int(k == chosen)}
        )
        for k, ratio in enumerate(ratios, 1)
    ]
    name = subject.panel("k_search")
    svg = draw_k_search(name, ratios, chosen, subject.color, subject.title("search for k: ratio δ"))
    return Panel(name, svg, caption, data)


def _choice(ratios: Sequence[float | None], chosen: int) -> str:
    finite = {k: ratio for k, ratio in enumerate(ratios, 1) if ratio is not None}
    if not finite:
        return f"No k has a finite one, so k = {chosen} was taken without a search."
    best = min(finite, key=lambda k: finite[k])
    if finite.get(chosen) == finite[best]:
        return f"The smallest ratio wins: k = {chosen}."
    return f"In use is k = {chosen}; the ratio is smallest at k = {best}."


def _losses_panel(subject: Subject) -> Panel | None:
    history = subject.facts["history"]
    columns = {"held-out": "heldout_loss", "training": "train_loss"}
    lines: dict[str, dict[int, float]] = {}
    for label, column in columns.items():
        values = {epoch["epoch"]: _finite(epoch[column]) for epoch in history}
        line = {epoch: value for epoch, value in values.items() if value is not None}
        if line:
            lines[label] = line
    if not lines:
        return None
    leading, line = next(iter(lines.items()))
    best = min(line, key=lambda epoch: line[epoch])
    kl = next((_finite(e["kl"]) for e in history if e["epoch"] == best), None)
    caption = subject.caption(
        "Loss of the VAE whose encoder is used (minus the ELBO, in nats per observation).",
        f"The ring is the lowest point of the {leading} curve, epoch {best}.",
        "A held-out curve that rises while the other falls is overfitting."
        if len(lines) == 2
        else "",
        f"The KL term is {kl:.3g} there; near 0, the embedding says nothing about the observation."
        if kl is not None
        else "",
    )
    name = subject.panel("encoder_loss")
    svg = draw_losses(
        name, lines, best, subject.color, subject.title("training of the encoder: loss")
    )
    return Panel(name, svg, caption, [subject.row(epoch) for epoch in history])


def _pictures_panel(subject: Subject) -> Panel | None:
    originals = subject.arrays.get("originals")
    reconstructions = subject.arrays.get("reconstructions")
    if originals is None or reconstructions is None:
        return None
    if originals.ndim != 4 or originals.size == 0 or originals.shape != reconstructions.shape:
        return None
    low, high = _scale(originals)
    shown = _visible(originals[:_MAX_PICTURES], low, high)
    rebuilt = _visible(reconstructions[:_MAX_PICTURES], low, high)
    errors = _root_mean_square(shown - rebuilt)
    count = len(shown)
    data = [subject.row({"picture": i, "error": error}) for i, error in enumerate(errors)]
    benchmark = ""
    if count > 1:
        # What an encoder that says nothing could reach: the mean of all the other originals.
        alike = _root_mean_square((shown - shown.mean(0)) * count / (count - 1))
        data = [{**row, "error_of_mean": value} for row, value in zip(data, alike, strict=True)]
        benchmark = (
            f"The error is the root mean square over pixels from 0 to 1, {np.mean(errors):.3f} on "
            f"average; the mean of the other originals would have {np.mean(alike):.3f}."
        )
    caption = subject.caption(
        "Observations, and what the VAE makes of their embeddings.",
        "Of stacked frames the last one." if _channels(originals) not in (1, 3) else "",
        "Blur is usual. Flat reconstructions, or the same one for all, mean a collapsed encoder.",
        benchmark,
    )
    name, title = subject.panel("pictures"), subject.title("reconstructions")
    svg = draw_pictures(name, _as_bytes(shown), _as_bytes(rebuilt), errors, title)
    return Panel(name, svg, caption, data, "tall")


def _embedding_panel(subject: Subject) -> Panel | None:
    points, bonus = subject.arrays.get("projection"), subject.arrays.get("bonus")
    if points is None or points.ndim != 2 or points.shape[1] != 2:
        return None
    if bonus is not None and bonus.shape != points.shape[:1]:
        bonus = None
    usable = np.isfinite(points).all(1)
    if bonus is not None:
        usable &= np.isfinite(bonus)
        bonus = bonus[usable]
    points = points[usable]
    if not len(points):
        return None
    shares = [_finite(share) for share in (subject.facts["explained_variance"] or [])][:2]
    labels = [
        f"PC{i + 1}" + (f" ({100 * share:.0f} %)" if share is not None else "")
        for i, share in enumerate([*shares, None, None][:2])
    ]
    kept = sum(share for share in shares if share is not None)
    caption = subject.caption(
        f"The embedding of {len(points):,} observations along its first two principal components"
        + (f", which hold {100 * kept:.0f} % of its variance." if kept else "."),
        "Colour is the bonus, its upper and lower 2 % cut off. Expect bright dots where there are "
        "few and dark ones where there are many; what looks dense here may be apart in the "
        "other dimensions."
        if bonus is not None
        else "",
        "All dots in one place mean a collapsed encoder.",
    )
    data = [subject.row({"pc1": float(x), "pc2": float(y)}) for x, y in points]
    if bonus is not None:
        data = [{**row, "bonus": float(value)} for row, value in zip(data, bonus, strict=True)]
    name, title = subject.panel("embedding"), subject.title("embedding")
    svg = draw_embedding(name, points, bonus, (labels[0], labels[1]), subject.color, title)
    shape: Literal["", "tall"] = "" if "originals" in subject.arrays else "tall"
    return Panel(name, svg, caption, data, shape)


def _scale(originals: NDArray[Any]) -> tuple[float, float]:
    """What is black and what is white, for originals and reconstructions alike."""
    if originals.dtype == np.uint8:
        return 0.0, 255.0
    seen = originals[np.isfinite(originals)]
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return low, high if high > low else low + 1.0


def _channel_axis(pictures: NDArray[Any]) -> int:
    return 1 if pictures.shape[1] < pictures.shape[3] else 3


def _channels(pictures: NDArray[Any]) -> int:
    return pictures.shape[_channel_axis(pictures)]


def _visible(pictures: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    """Coloured [n, H, W, 3], or gray [n, H, W], of a stack of frames the last; 0 is black."""
    pictures = np.moveaxis(pictures, _channel_axis(pictures), 3)
    pictures = pictures if pictures.shape[3] == 3 else pictures[..., -1]
    numbers = np.nan_to_num(pictures.astype(np.float64), nan=low, posinf=high, neginf=low)
    return (numbers - low) / (high - low)


def _as_bytes(pictures: NDArray[Any]) -> NDArray[np.uint8]:
    return (np.clip(pictures, 0, 1) * 255).round().astype(np.uint8)


def _root_mean_square(difference: NDArray[Any]) -> list[float]:
    return np.sqrt((difference.reshape(len(difference), -1) ** 2).mean(1)).tolist()


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
