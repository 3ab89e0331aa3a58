from __future__ import annotations

import base64
import copy
import io
import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from browser import needs_browser, shown
from test_report import Page, floats, make_comparison, make_run, read_csv

from rllib_rise.experiments.report import write_report
from rllib_rise.experiments.report.panels import Panel
from rllib_rise.experiments.report.phase1_panels import Subject, subject_panels
from rllib_rise.experiments.run.phase1_files import read_phase1, write_phase1

RATIOS = [None, 2.6, 1.9, 1.5, 1.2, 1.4, 1.3]
MODULE = {
    "encoder": "vae",
    "embedding_size": 16,
    "observations": 900,
    "k": 5,
    "alpha": 0.1,
    "k_search": {"k_max": 7, "num_subsets": 8, "ratios": RATIOS},
    "history": [
        {"epoch": epoch, "train_loss": 90.0 - epoch, "heldout_loss": loss, **terms}
        for epoch, loss in ((1, 95.0), (2, 80.5), (3, 84.0))
        for terms in [{"reconstruction": loss - 7.25, "kl": 7.25}]
    ],
    "explained_variance": [0.31, 0.12],
}
SECONDS = {"collect": 12.5, "fit": 130.0, "embed": 2.0, "search_k": 0.25, "share": 0.25}
FIGURES = ["k_search", "encoder_loss", "pictures", "embedding", "seconds"]
ALONE = "default_policy"


def report(modules: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    told = {"format": 1, "env_steps": 1000, "cached": False, "seconds": SECONDS}
    return copy.deepcopy(told | {"modules": modules or {ALONE: MODULE}} | changes)


def module(**changes: Any) -> dict[str, Any]:
    return MODULE | changes


def pictures(count: int = 8, channels: int = 4) -> np.ndarray:
    """A bright square that is elsewhere in every frame of every picture."""
    frames = np.zeros((count, 12, 12, channels), np.uint8)
    for i in range(count):
        for c in range(channels):
            frames[i, i : i + 3, 2 * c : 2 * c + 3, c] = 200 + i
    return frames


def arrays(name: str = ALONE, **changes: Any) -> dict[str, np.ndarray]:
    """All that there can be; None takes something away."""
    rng = np.random.default_rng(0)
    frames = pictures()
    found = {
        "originals": frames,
        "reconstructions": frames // 2,
        "projection": rng.normal(size=(40, 2)).astype(np.float32),
        "bonus": rng.random(40).astype(np.float32),
    }
    return {f"{name}/{k}": v for k, v in (found | changes).items() if v is not None}


def run_with(path: Path, told: dict[str, Any], held: dict[str, np.ndarray], **kwargs: Any) -> Path:
    """A run directory with few other figures, so that its page is quickly drawn."""
    run = make_run(path, method="none", env="CartPole-v1", **kwargs)
    write_phase1(run, told, held)
    return run


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Page:
    """The page of a run that has everything; its data are in `full.data`."""
    run = run_with(tmp_path_factory.mktemp("full") / "run", report(), arrays())
    page = Page(write_report([run]))
    page.data = run / "report_data"
    return page


def only_panel(held: dict[str, np.ndarray] | None = None, **changes: Any) -> Panel:
    """The one panel of a module that has data for no other."""
    facts = module(**({"k_search": None, "history": []} | changes))
    names = {key.rpartition("/")[2]: array for key, array in (held or {}).items()}
    (panel,) = subject_panels(Subject("run", ALONE, "", 1, "#0072B2", facts, names))
    return panel


def phase1_figures(page: Page) -> list[str]:
    names = [name for name in page.figures if name.startswith("phase1_")]
    return [name.removeprefix("phase1_") for name in names]


def marks(svg: str, gid: str) -> list[tuple[float, float]]:
    """Where the markers of a line are."""
    group = re.search(rf'<g id="[\w-]*-{gid}">(.*?)</g>\s*</g>', svg, re.DOTALL)
    assert group is not None
    found = re.findall(r'<use [^>]*?x="([-\d.]+)" y="([-\d.]+)"', group.group(1))
    return [(float(x), float(y)) for x, y in found]


def embedded_images(svg: str) -> list[np.ndarray]:
    found = re.findall(r'href="data:image/png;base64,([^"]+)"', svg)
    return [
        matplotlib.image.imread(io.BytesIO(base64.b64decode(data)), format="png") for data in found
    ]


class TestFiles:
    def test_what_was_written_is_read(self, tmp_path):
        write_phase1(tmp_path, report(), arrays())
        told, held = read_phase1(tmp_path)
        assert told == report()
        assert list(told["seconds"]) == list(SECONDS)
        assert held.keys() == arrays().keys()
        for name, array in arrays().items():
            np.testing.assert_array_equal(held[name], array)
            assert held[name].dtype == array.dtype
        assert sorted(path.name for path in tmp_path.iterdir()) == ["phase1.json", "phase1.npz"]

    def test_no_phase1_is_no_warning(self, tmp_path, caplog):
        assert read_phase1(tmp_path) is None
        assert not caplog.records

    def test_without_arrays_no_file_of_an_earlier_start_is_left(self, tmp_path):
        write_phase1(tmp_path, report(), arrays())
        write_phase1(tmp_path, report(env_steps=7), {})
        told, held = read_phase1(tmp_path)
        assert (told["env_steps"], held) == (7, {})

    def test_numbers_of_numpy_and_infinite_ones_become_plain_json(self, tmp_path):
        search = {"k_max": 2, "num_subsets": 8, "ratios": np.array([np.inf, 1.5])}
        told = report({ALONE: module(k=np.int64(2), k_search=search)}, env_steps=np.int32(9))
        write_phase1(tmp_path, told, {})
        text = (tmp_path / "phase1.json").read_text()
        assert "Infinity" not in text
        found = json.loads(text)
        assert found["modules"][ALONE]["k_search"]["ratios"] == [None, 1.5]
        assert (found["modules"][ALONE]["k"], found["env_steps"]) == (2, 9)

    def test_what_is_left_out_has_defaults(self, tmp_path):
        told = {"format": 1, "env_steps": 5, "modules": {"a": {"encoder": "identity", "k": 3}}}
        write_phase1(tmp_path, told, {})
        found, _ = read_phase1(tmp_path)
        assert (found["cached"], found["seconds"]) == (False, {})
        assert found["modules"]["a"]["history"] == []
        assert found["modules"]["a"]["k_search"] is None

    @pytest.mark.parametrize("name", ["phase1.json", "phase1.npz"])
    @pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
    def test_torn_file_is_a_warning(self, tmp_path, caplog, name, share):
        write_phase1(tmp_path, report(), arrays())
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: int(share * len(content))])
        with caplog.at_level(logging.WARNING):
            assert read_phase1(tmp_path) is None
        assert name in caplog.text

    @pytest.mark.parametrize(
        "told",
        [
            [],
            {"format": 1},
            report(format=2),
            report(modules={"a": []}),
            report(seconds={"fit": "long"}),
            report({ALONE: module(k="seven")}),
            report({ALONE: module(k_search={"ratios": 3})}),
            report({ALONE: module(history=[{"train_loss": 1.0}])}),
        ],
    )
    def test_other_formats_are_a_warning(self, tmp_path, caplog, told):
        (tmp_path / "phase1.json").write_text(json.dumps(told))
        assert read_phase1(tmp_path) is None
        assert "not in our format" in caplog.text

    def test_pickles_are_not_opened(self, tmp_path, caplog):
        write_phase1(tmp_path, report(), {"a/bonus": np.array([print], dtype=object)})
        assert read_phase1(tmp_path) is None
        assert "allow_pickle=False" in caplog.text

    def test_a_failed_write_leaves_the_old_files(self, tmp_path, monkeypatch):
        write_phase1(tmp_path, report(), arrays())

        def fail(stream, **_):
            stream.write(b"half")
            raise OSError("disk full")

        monkeypatch.setattr(np, "savez_compressed", fail)
        with pytest.raises(OSError, match="disk full"):
            write_phase1(tmp_path, report(env_steps=2), arrays(bonus=None))
        told, held = read_phase1(tmp_path)
        assert told["env_steps"] == 1000
        assert f"{ALONE}/bonus" in held


class TestRunPage:
    def test_has_a_section_after_the_curves(self, full):
        assert full.figures == ["episode_return", *(f"phase1_{name}" for name in FIGURES)]
        after = full.text[full.text.index("Phase 1") :]
        assert "Settings" in after
        for fact in ("vae", "900", "5 (of 1 to 7)", "1,000", "2:25"):
            assert fact in after[: after.index("search for k")]
        assert "cache" not in full.text

    def test_is_well_formed_and_self_contained(self, full):
        assert len(full.ids) == len(set(full.ids))
        assert "<script" not in full.source
        for link in full.links():
            if link.startswith("#"):
                assert link[1:] in full.ids
            elif not link.startswith("data:image/png;base64,"):
                assert (full.data.parent / link).exists()

    def test_run_without_phase1_has_no_section(self, tmp_path):
        page = Page(write_report([make_run(tmp_path / "run")]))
        assert "Phase 1" not in page.text
        assert phase1_figures(page) == []

    @pytest.mark.parametrize("name", ["phase1.json", "phase1.npz"])
    def test_torn_files_leave_the_rest_of_the_page(self, tmp_path, caplog, name):
        run = run_with(tmp_path / "run", report(), arrays())
        (run / name).write_bytes((run / name).read_bytes()[:50])
        page = Page(write_report([run]))
        assert "Phase 1" not in page.text
        assert "episode_return" in page.figures
        assert "left out" in caplog.text

    def test_same_input_gives_the_same_page(self, full):
        page = write_report([full.data.parent])
        assert page.read_text("utf-8") == full.source

    @pytest.mark.parametrize("missing", ["originals", "reconstructions", "projection"])
    def test_absent_arrays_take_their_figure_away(self, tmp_path, missing):
        told = report({ALONE: module(k_search=None, history=[])}, seconds={})
        run = run_with(tmp_path / "run", told, arrays(**{missing: None}))
        left = "pictures" if missing == "projection" else "embedding"
        assert phase1_figures(Page(write_report([run]))) == [left]

    def test_given_k_and_an_encoder_without_fit(self, tmp_path):
        told = report({ALONE: {"encoder": "random", "k": 3}}, seconds={})
        page = Page(write_report([run_with(tmp_path / "run", told, {})]))
        assert "3 (given)" in page.text
        assert phase1_figures(page) == []

    def test_arrays_that_do_not_fit_are_left_out(self, tmp_path):
        odd = arrays(
            reconstructions=np.zeros((2, 3)),
            projection=np.zeros((4, 3)),
            bonus=np.array(["a", "b"]),
        )
        run = run_with(tmp_path / "run", report(), odd)
        assert phase1_figures(Page(write_report([run]))) == ["k_search", "encoder_loss", "seconds"]

    def test_cached_says_so(self, tmp_path):
        run = run_with(tmp_path / "run", report(cached=True, seconds={"search_k": 0.25}), {})
        page = Page(write_report([run]))
        assert "from the cache" in page.text
        assert "come from an earlier run" in page.text


class TestKSearch:
    def panel(self, **changes: Any) -> Panel:
        return only_panel(**({"k_search": MODULE["k_search"]} | changes))

    @pytest.mark.parametrize("k", [2, 5, 7])
    def test_mark_is_on_the_curve_at_the_chosen_k(self, k):
        svg = self.panel(k=k).svg
        curve = marks(svg, "ratios")
        assert len(curve) == 6
        assert marks(svg, "chosen") == [curve[k - 2]]  # the curve begins at k = 2
        # Equal steps in k are equal steps on paper, and the infinite one is the step before.
        steps = np.diff([marks(svg, "infinite")[0][0], *(x for x, _ in curve)])
        np.testing.assert_allclose(steps, steps[0], atol=0.01)

    def test_heights_are_the_logarithms(self):
        heights = -np.array([y for _, y in marks(self.panel().svg, "ratios")])  # y goes down
        expected = np.log(RATIOS[1:])
        np.testing.assert_allclose(
            (heights - heights.min()) / np.ptp(heights),
            (expected - expected.min()) / np.ptp(expected),
            atol=1e-3,
        )

    def test_infinite_ratios_stand_above_all_others(self):
        svg = self.panel().svg
        (infinite,) = marks(svg, "infinite")
        assert infinite[1] < min(y for _, y in marks(svg, "ratios"))

    def test_only_infinite_ratios(self):
        panel = self.panel(k_search={"k_max": 7, "num_subsets": 8, "ratios": [None] * 7})
        assert len(marks(panel.svg, "infinite")) == 7
        assert marks(panel.svg, "chosen") == [marks(panel.svg, "infinite")[4]]
        assert "No k has a finite one, so k = 5" in panel.caption

    def test_ratios_beyond_any_axis(self):
        search = {"k_max": 3, "num_subsets": 8, "ratios": [1e307, 1e90, 1e80]}
        svg = self.panel(k_search=search, k=3).svg
        assert marks(svg, "chosen") == [marks(svg, "ratios")[-1]]
        assert len(marks(svg, "infinite")) == 1

    def test_k_outside_the_search_has_no_mark(self):
        assert "-chosen" not in self.panel(k=40).svg

    def test_data_equal_the_ratios(self, full):
        rows = read_csv(full.data / "phase1_k_search.csv")
        assert [int(row["k"]) for row in rows] == [1, 2, 3, 4, 5, 6, 7]
        assert floats(rows, "ratio") == [math.inf, *RATIOS[1:]]
        assert [row["chosen"] for row in rows] == ["0", "0", "0", "0", "1", "0", "0"]

    @pytest.mark.parametrize(
        ("k", "text"),
        [
            (5, "The smallest ratio wins: k = 5."),
            (7, "In use is k = 7; the ratio is smallest at k = 5."),
        ],
    )
    def test_caption_says_how_k_was_chosen(self, k, text):
        caption = self.panel(k=k).caption
        assert text in caption
        assert "leans to large k" in caption
        assert ("end of the range" in caption) == (k == 7)


class TestEncoderLoss:
    def test_best_epoch_is_marked_and_told(self):
        panel = only_panel(history=MODULE["history"])
        assert "lowest point of the held-out curve, epoch 2." in panel.caption
        assert "The KL term is 7.25 there" in panel.caption
        paths = re.findall(r'<path d="(M [^"]*)" clip-path', panel.svg)
        points = [re.findall(r"[ML] ([\d.]+) ([\d.]+)", path) for path in paths]
        heldout, training = (np.array(line, float) for line in points if len(line) == 3)
        np.testing.assert_allclose(marks(panel.svg, "best"), heldout[1:2], atol=0.01)
        assert heldout[:, 1].argmax() == 1  # y goes down
        assert training[:, 1].argmax() == 2

    def test_data_equal_the_history(self, full):
        rows = read_csv(full.data / "phase1_encoder_loss.csv")
        for column in ("epoch", "train_loss", "heldout_loss", "reconstruction", "kl"):
            assert floats(rows, column) == [epoch[column] for epoch in MODULE["history"]]

    def test_losses_that_are_not_finite_leave_gaps(self):
        nothing = {"reconstruction": None, "kl": None}
        history = [
            {"epoch": 1, "train_loss": math.nan, "heldout_loss": None, **nothing},
            {"epoch": 2, "train_loss": 3.0, "heldout_loss": math.inf, **nothing},
        ]
        panel = only_panel(history=history)
        assert "lowest point of the training curve, epoch 2." in panel.caption
        assert "KL" not in panel.caption


class TestPictures:
    def images(self, originals: np.ndarray, reconstructions: np.ndarray) -> list[np.ndarray]:
        svg = only_panel({"originals": originals, "reconstructions": reconstructions}).svg
        assert "pixelated" in svg
        return [np.round(255 * image[..., :3]).astype(np.uint8) for image in embedded_images(svg)]

    @staticmethod
    def assert_shown(images: list[np.ndarray], expected: list[np.ndarray]) -> None:
        """The pictures in the SVG are these, in this order, whatever way up they are stored."""
        assert len(images) == len(expected)
        for image, pixels in zip(images, expected, strict=True):
            rgb = np.broadcast_to(pixels[..., None], image.shape) if pixels.ndim == 2 else pixels
            assert any(np.array_equal(turned, rgb) for turned in (image, image[::-1]))

    @pytest.mark.parametrize("first", [False, True])
    def test_last_frame_of_a_stack_is_shown_pixel_by_pixel(self, first):
        frames = pictures()
        stacks = [np.moveaxis(part, 3, 1) if first else part for part in (frames, frames // 2)]
        shown, rebuilt = frames[..., -1], frames[..., -1] // 2
        expected = [*shown[:4], *rebuilt[:4], *shown[4:], *rebuilt[4:]]
        self.assert_shown(self.images(*stacks), expected)

    def test_coloured_pictures_keep_their_colours(self):
        frames = pictures(count=2, channels=3)
        self.assert_shown(self.images(frames, frames // 2), [*frames, *(frames // 2)])

    def test_numbers_share_the_scale_of_the_originals(self):
        originals = np.linspace(-2.0, 2.0, 36).reshape(1, 6, 6, 1)
        images = self.images(originals, np.zeros_like(originals))
        assert images[0].min() == 0
        assert images[0].max() == 255
        assert np.all(images[1] == 128)

    def test_numbers_from_0_to_1_are_not_stretched(self):
        originals = np.full((1, 6, 6, 1), 0.2, np.float32)
        images = self.images(originals, originals + 0.2)
        assert np.all(images[0] == 51)
        assert np.all(images[1] == 102)

    def test_errors_are_those_of_the_pixels(self, full):
        rows = read_csv(full.data / "phase1_pictures.csv")
        frames = pictures()[..., -1] / 255
        rebuilt = (pictures() // 2)[..., -1] / 255
        errors = [math.sqrt(np.mean((a - b) ** 2)) for a, b in zip(frames, rebuilt, strict=True)]
        np.testing.assert_allclose(floats(rows, "error"), errors)
        others = [np.delete(frames, i, axis=0).mean(0) for i in range(8)]
        naive = [math.sqrt(np.mean((a - b) ** 2)) for a, b in zip(frames, others, strict=True)]
        np.testing.assert_allclose(floats(rows, "error_of_mean"), naive)
        assert f"error {errors[0]:.3f}" in full.text
        assert "Of stacked frames the last one." in full.text


class TestEmbedding:
    def test_data_and_axes(self, full):
        rows = read_csv(full.data / "phase1_embedding.csv")
        points = np.array([floats(rows, "pc1"), floats(rows, "pc2")], np.float32).T
        np.testing.assert_array_equal(points, arrays()[f"{ALONE}/projection"])
        bonus = np.array(floats(rows, "bonus"), np.float32)
        np.testing.assert_array_equal(bonus, arrays()[f"{ALONE}/bonus"])
        assert "PC1 (31 %)" in full.text
        assert "PC2 (12 %)" in full.text
        assert "hold 43 % of its variance" in full.text
        assert "bonus" in full.texts

    def test_without_bonus_and_shares(self):
        panel = only_panel({"projection": np.ones((4, 2))}, explained_variance=None)
        assert ">PC1</text>" in panel.svg
        assert "bonus" not in panel.svg + panel.caption
        assert "variance" not in panel.caption

    def test_colours_follow_the_bonus(self):
        """Two dots: the one at the right is bright if, and only if, its bonus is high."""
        points = np.array([[0.0, 0.0], [1.0, 0.0]])
        bright = []
        for bonus in ([0.0, 1.0], [1.0, 0.0]):
            panel = only_panel({"projection": points, "bonus": np.array(bonus)})
            image = max(embedded_images(panel.svg), key=lambda picture: picture.shape[1])
            places = np.nonzero((image[..., 3] > 0.5) & (image[..., 0] > 0.9))[1]
            bright.append(places.mean() / image.shape[1])
        assert bright[0] > 0.6
        assert bright[1] < 0.4

    def test_what_is_not_finite_is_left_out(self):
        projection, bonus = np.ones((4, 2)), np.ones(4)
        projection[1, 0], bonus[2] = np.nan, np.inf
        assert len(only_panel({"projection": projection, "bonus": bonus}).data) == 2


class TestSeconds:
    def test_bars_are_as_long_as_the_seconds(self, full):
        rows = read_csv(full.data / "phase1_seconds.csv")
        assert {row["step"]: float(row["seconds"]) for row in rows} == SECONDS
        assert "130 s, 90 %" in full.text
        svg = (full.data / "phase1_seconds.svg").read_text()
        bars = re.findall(r'<g id="[\w-]*patch_\d+">\s*<path d="([^"]*)" clip-path', svg)
        widths = []
        for bar in bars:
            x = [float(x) for x in re.findall(r"[ML] ([-\d.]+) [-\d.]+", bar)]
            widths.append(max(x) - min(x))
        np.testing.assert_allclose(
            np.array(widths) / sum(widths), np.array(list(SECONDS.values())) / 145, atol=1e-3
        )

    def test_steps_of_other_names_are_shown(self, tmp_path):
        run = run_with(tmp_path / "run", report(seconds={"wait_for_lock": 3.0}), {})
        assert "wait for lock" in Page(write_report([run])).text


@needs_browser
def test_browser_shows_every_figure_without_complaint(tmp_path):
    run = make_run(tmp_path / "run")
    write_phase1(run, report(), arrays())
    page = write_report([run])
    found, drawn = shown(page), Page(page).figures
    assert len(found["figures"]) == len(drawn) > len(FIGURES)
    assert min(found["figures"]) > 200


def test_several_modules_have_figures_of_their_own(tmp_path):
    modules = {"left": module(), "right": module(k=3, history=[])}
    run = run_with(tmp_path / "run", report(modules), arrays("right"))
    page = Page(write_report([run]))
    assert phase1_figures(page) == [
        *("k_search", "encoder_loss"),
        *("k_search_2", "pictures_2", "embedding_2", "seconds"),
    ]
    assert "search for k: ratio δ (left)" in page.text
    assert "search for k: ratio δ (right)" in page.text
    rows = read_csv(run / "report_data" / "phase1_k_search_2.csv")
    assert {row["module"] for row in rows} == {"right"}
    assert [row["k"] for row in rows if row["chosen"] == "1"] == ["3"]


def test_ids_of_modules_can_do_no_harm(tmp_path):
    names = ['<script>alert("$x$")</script>', 'a" onload="x', "../../up"]
    modules = {name: module(history=[]) for name in names}
    run = run_with(tmp_path / "run", report(modules), arrays(names[2], originals=None))
    page = Page(write_report([run]))
    assert "<script" not in page.source
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert phase1_figures(page)[:3] == ["k_search", "k_search_2", "k_search_3"]
    assert "phase1_embedding_3" in page.figures  # its arrays were found
    for number, name in enumerate(names, 1):
        assert name in page.texts  # as text it is all there
        stem = "phase1_k_search" + (f"_{number}" if number > 1 else "")
        rows = read_csv(run / "report_data" / f"{stem}.csv")
        assert {row["module"] for row in rows} == {name}
    files = [file.name for file in (run / "report_data").iterdir()]
    assert all(re.fullmatch(r"[a-z0-9_]+\.(csv|svg)", file) for file in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_several_runs_have_tables_and_the_first_ones_figures(tmp_path):
    runs = [make_run(tmp_path / "other", method="re3", env="CartPole-v1")]
    for seed in range(4):
        told = report({ALONE: module(k=seed + 2, history=[])}, cached=seed > 0)
        runs.append(run_with(tmp_path / f"run{seed}", told, {}, seed=seed))
    page = Page(write_report(runs, tmp_path / "page.html"))
    section = page.text[page.text.index("Phase 1") : page.text.index("Settings")]
    for seed in range(4):
        assert f"{seed + 2} (of 1 to 7)" in section
    assert section.count("from the cache") == 3
    assert section.count("from this run") == 1
    assert "re3" not in section
    assert phase1_figures(page) == ["k_search", "k_search_2", "k_search_3"]
    assert "Figures of the first 3 of 4." in section
    assert "search for k: ratio δ (none, seed 2)" in section


class TestComparisonPage:
    def comparison(self, out: Path) -> Path:
        seeds: list[dict[str, Any]] = [{"env": "CartPole-v1"}] * 3
        return make_comparison(out, {"none": seeds, "rise": seeds})

    def test_has_a_line_per_method_with_a_phase1(self, tmp_path):
        out = self.comparison(tmp_path / "c")
        for seed, k in enumerate((7, 3, 5)):
            told = report(
                {ALONE: module(k=k)}, cached=seed == 2, seconds={"fit": 100.0 + 50 * seed}
            )
            write_phase1(out / "rise" / f"seed_{seed}", told, arrays())
        page = Page(write_report([out]))
        section = page.text[page.text.index("Phase 1") : page.text.index("Settings")]
        assert re.search(r"rise\s+7, 3, 5\s+2:30\s+1 of 3", section)
        assert "none" not in section
        assert phase1_figures(page) == []

    def test_seeds_without_files_keep_their_place(self, tmp_path):
        out = self.comparison(tmp_path / "c")
        write_phase1(out / "rise" / "seed_1", report({"a": module(k=4), "b": module(k=6)}), {})
        text = Page(write_report([out])).text
        assert re.search(r"a: –, 4, –; b: –, 6, –\s+2:25\s+no", text)

    def test_has_nothing_without_a_phase1(self, tmp_path):
        assert "Phase 1" not in Page(write_report([self.comparison(tmp_path / "c")])).text
