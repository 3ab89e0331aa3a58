"""Animated pictures: frames of an environment, and below them a curve that grows with them.

Drawn with Pillow, the curve once for all frames: figures of Matplotlib would take minutes.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from rllib_rise.errors import ConfigError, RiseError
from rllib_rise.experiments.report.canvas import FAINT, INK

FRAMES_PER_SECOND = 20
_LAST_SECONDS = 2.0
_LARGEST = 400  # side of an environment's picture
_MARGIN, _TEXT, _PLOT = 14, 22, 84  # pixels: around everything, of a line of text, of the plot
_SMOOTH = 4  # lines are drawn so many times larger, then scaled down
_COLORS = 255  # of a GIF's 256, one says that a pixel stays as it was
_PALETTE_FRAMES = 12
_PAPER = "#ffffff"


class Frame(NamedTuple):
    """A picture that waits to be drawn, packed: those of a long episode fill the memory."""

    size: tuple[int, int]
    packed: bytes

    def image(self) -> Image.Image:
        """As it was."""
        return Image.frombytes("RGB", self.size, zlib.decompress(self.packed))


@dataclass(frozen=True)
class Curve:
    """What is drawn below the frames.

    Attributes:
        label: What it shows.
        values: One per step, `[T]`.
        color: As in HTML.
        delay: How many frames after the one in which a step begins its value is shown.
    """

    label: str
    values: NDArray[np.float64]
    color: str
    delay: int = 0


def check_film(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is done."""
    if out.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"--out {out}: films are .gif or .mp4 files")
    if out.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise ConfigError(
            f"--out {out}: an .mp4 needs the program ffmpeg, which is not on the PATH; install it, "
            "or name a .gif"
        )


def small_frame(picture: NDArray[np.uint8]) -> Frame:
    """A picture `[H, W, 3]`, or gray `[H, W]`, in the size of a film: some hundred pixels."""
    image = Image.fromarray(picture).convert("RGB")
    side = max(image.size)
    if side > _LARGEST:
        share = _LARGEST / side
        size = (max(1, round(image.width * share)), max(1, round(image.height * share)))
        image = image.resize(size, Image.Resampling.BOX)
    elif side <= _LARGEST // 2:
        times = _LARGEST // side
        size = (image.width * times, image.height * times)
        image = image.resize(size, Image.Resampling.NEAREST)
    return Frame(image.size, zlib.compress(image.tobytes(), 1))


def draw_film(
    out: Path,
    frames: Sequence[Frame],
    rewards: NDArray[np.float64],
    curve: Curve,
    on_progress: Callable[[float], None],
) -> None:
    """Write a film of T + 1 frames of an episode of T steps.

    Args:
        out: A file that `check_film` did not refuse.
        frames: The environment before each step and behind the last one.
        rewards: Of each step, `[T]`.
        curve: To be drawn below.
        on_progress: Called with the share that is done.
    """
    sheet = _Sheet(frames[0].size, rewards, curve)

    def pages() -> Iterator[Image.Image]:
        for number, frame in enumerate(frames):
            on_progress(number / len(frames))
            yield sheet.page(number, frame.image())

    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".mp4":
        _write_mp4(out, pages(), sheet.size)
        return
    chosen = np.linspace(0, len(frames) - 1, _PALETTE_FRAMES).round().astype(int)
    samples = [np.asarray(sheet.page(i, frames[i].image())) for i in np.unique(chosen).tolist()]
    _write_gif(out, pages(), samples, len(frames))


class _Sheet:
    """What all pages of a film have in common."""

    def __init__(
        self, picture: tuple[int, int], rewards: NDArray[np.float64], curve: Curve
    ) -> None:
        self._curve = curve
        self._returns = np.concatenate(([0.0], rewards.cumsum()))
        self._font = ImageFont.load_default(size=14)
        self._small = ImageFont.load_default(size=11)
        low, high = _limits(curve.values)
        ticks = [_number(value) for value in (low, high)]
        self._left = _MARGIN + 6 + round(max(self._small.getlength(tick) for tick in ticks))
        content = max(_LARGEST, picture[0])
        width = content + 2 * _MARGIN
        self._picture = ((width - picture[0]) // 2, _MARGIN)
        self._line = _MARGIN + picture[1] + 10
        self._top = self._line + 2 * _TEXT + 6
        height = self._top + _PLOT + 18 + _MARGIN // 2
        self.size = (width + width % 2, height + height % 2)  # encoders ask for even sides

        share = np.arange(len(curve.values)) / max(1, len(curve.values) - 1)
        x = self._left + share * (width - _MARGIN - 5 - self._left)
        y = self._top + _PLOT * (1 - (curve.values - low) / (high - low))
        self._points = list(zip(x.tolist(), y.tolist(), strict=True))
        self._empty = self._axes(ticks)
        self._full = self._with_curve()
        self._dot = _disc(curve.color)

    def page(self, number: int, picture: Image.Image) -> Image.Image:
        """The page of a frame: the curve up to it, and its value."""
        page = self._empty.copy()
        page.paste(picture, self._picture)
        last = min(number - self._curve.delay, len(self._points) - 1)
        draw = ImageDraw.Draw(page)
        right = self.size[0] - _MARGIN
        steps = len(self._points)
        draw.text((_MARGIN, self._line), f"step {number:,} of {steps:,}", INK, self._font)
        text = f"return {_number(self._returns[number])}"
        draw.text((right, self._line), text, INK, self._font, anchor="ra")
        if last >= 0:
            x, y = self._points[last]
            seen = (0, self._top - 6, round(x) + 1, self.size[1])
            page.paste(self._full.crop(seen), seen[:2])
            corner = (round(x - self._dot.width / 2), round(y - self._dot.height / 2))
            page.paste(self._dot, corner, self._dot)
            value = _number(self._curve.values[last])
            place = (right, self._line + _TEXT)
            draw.text(place, value, self._curve.color, self._font, anchor="ra")
        return page

    def _axes(self, ticks: list[str]) -> Image.Image:
        sheet = Image.new("RGB", self.size, _PAPER)
        draw = ImageDraw.Draw(sheet)
        draw.text((_MARGIN, self._line + _TEXT), self._curve.label, self._curve.color, self._font)
        bottom, right = self._top + _PLOT, self.size[0] - _MARGIN
        for y, tick in zip((bottom, self._top), ticks, strict=True):
            draw.line((self._left, y, right, y), FAINT)
            draw.text((self._left - 6, y), tick, INK, self._small, anchor="rm")
        place = (right, bottom + 5)
        draw.text(place, f"{len(self._points) - 1:,}", INK, self._small, anchor="ra")
        draw.text((self._left, bottom + 5), "0", INK, self._small)
        return sheet

    def _with_curve(self) -> Image.Image:
        """The empty sheet with all of the curve on it, and a light area below."""
        bottom = self._top + _PLOT
        area = Image.new("L", (self.size[0] * _SMOOTH, self.size[1] * _SMOOTH), 0)
        line = area.copy()
        points = [(x * _SMOOTH, y * _SMOOTH) for x, y in self._points]
        ends = [(points[-1][0], bottom * _SMOOTH), (points[0][0], bottom * _SMOOTH)]
        if len(points) > 1:
            ImageDraw.Draw(area).polygon([*points, *ends], fill=40)
            ImageDraw.Draw(line).line(points, fill=255, width=2 * _SMOOTH, joint="curve")
        sheet = self._empty.copy()
        for mask in (area, line):
            small = mask.resize(self.size, Image.Resampling.BOX)
            sheet.paste(self._curve.color, (0, 0, *self.size), small)
        return sheet


def _limits(values: NDArray[np.float64]) -> tuple[float, float]:
    """Where the axis begins and ends; at 0 where nothing is below."""
    low, high = min(0.0, float(values.min())), float(values.max())
    return low, high if high > low else low + 1.0


def _number(value: float) -> str:
    """Short, and never `-0`."""
    return f"{value + 0.0:.3g}"


def _disc(color: str) -> Image.Image:
    """The mark of the present value, with a rim of paper."""
    side = 10
    disc = Image.new("RGBA", (side * _SMOOTH, side * _SMOOTH), (255, 255, 255, 0))
    draw = ImageDraw.Draw(disc)
    draw.ellipse((0, 0, disc.width - 1, disc.height - 1), _PAPER)
    rim = _SMOOTH
    draw.ellipse((rim, rim, disc.width - 1 - rim, disc.height - 1 - rim), color)
    return disc.resize((side, side), Image.Resampling.BOX)


def _write_gif(
    out: Path, pages: Iterator[Image.Image], samples: Sequence[NDArray[np.uint8]], count: int
) -> None:
    """One palette for all pages, found on some of them: pixels that stay cost next to nothing."""
    # An octree keeps colours that few pixels have: the agent's, the curve's.
    palette = Image.fromarray(np.concatenate(samples)).quantize(
        _COLORS, method=Image.Quantize.FASTOCTREE
    )
    reduced = (page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages)
    milliseconds = [1000 // FRAMES_PER_SECOND] * count
    milliseconds[-1] = round(1000 * _LAST_SECONDS)
    next(reduced).save(
        out,
        save_all=True,
        append_images=reduced,
        duration=milliseconds,
        loop=0,
        palette=bytes(palette.getpalette() or ()),
        optimize=True,
    )


def _write_mp4(out: Path, pages: Iterator[Image.Image], size: tuple[int, int]) -> None:
    """Through the program ffmpeg, which chooses the encoder that it has."""
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "{}x{}".format(*size)]
    command = ["ffmpeg", "-y", "-loglevel", "error", *given, "-r", str(FRAMES_PER_SECOND)]
    command += ["-i", "-", "-pix_fmt", "yuv420p", str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # it says itself why it went
            for page in pages:
                process.stdin.write(page.tobytes())
            process.stdin.close()
        complaint = process.stderr.read().decode(errors="replace").strip()
    if process.returncode != 0:
        raise RiseError(f"ffmpeg could not write {out}: {complaint}")
