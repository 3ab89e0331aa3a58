"""The committed probe of the encoders is whole, and the docs print it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import statistics
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def probe() -> ModuleType:
    path = ROOT / "benchmarks" / "encoder_probe.py"
    spec = importlib.util.spec_from_file_location("encoder_probe", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules["encoder_probe"] = module
    spec.loader.exec_module(module)
    return module


def test_every_environment_encoder_and_seed_was_measured(probe: ModuleType):
    rows = probe.read_rows()
    assert tuple(rows[0]) == probe.COLUMNS
    measured = {(row["environment"], row["encoder"], int(row["seed"])) for row in rows}
    assert measured == set(itertools.product(probe.ENVIRONMENTS, probe.ENCODERS, probe.SEEDS))
    keys = [tuple(row[column] for column in probe.COLUMNS[:-1]) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        value = float(row["value"])
        assert np.isfinite(value)
        if row["measure"].endswith("_r2"):
            assert value <= 1
            assert row["quantity"]


def test_the_docs_print_the_results(probe: ModuleType):
    assert probe.page() == probe.PAGE.read_text(), "run: benchmarks/encoder_probe.py --outputs"
    assert "| Pong | ball_x | ridge |" in probe.PAGE.read_text()


def test_the_summary_is_that_of_the_rows(probe: ModuleType):
    summary = json.loads((probe.RESULTS / "summary.json").read_text())
    assert {"command", "date", "machine", "packages", "python", "settings"} <= set(summary)
    values = probe.means()
    assert len(summary["results"]) == len(values)
    for row in summary["results"]:
        key = row["environment"], row["encoder"], row["measure"], row["quantity"]
        assert row["mean"] == pytest.approx(statistics.fmean(values[key]), abs=1e-4)
        assert row["seeds"] == len(probe.SEEDS)
    assert (probe.RESULTS / "probe.svg").stat().st_size < 200_000


def test_the_vae_did_not_collapse(probe: ModuleType):
    for (_, encoder, measure, _), values in probe.means().items():
        if measure == "active_units" and encoder == "vae":
            assert min(values) >= 5


def test_probes_find_what_is_there_and_nothing_else(probe: ModuleType):
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor

    generator = np.random.default_rng(0)
    x = generator.normal(size=(600, 3)).astype(np.float32)
    part = np.repeat([0, 1, 2], 200)
    known = torch.from_numpy(x @ np.array([1.0, -2.0, 0.5]) + 7)
    unknown = torch.from_numpy(generator.normal(size=600))
    probes = probe.Probes(x, part)
    assert probes.ridge(known) > 0.999
    assert probes.ridge(unknown) < 0.05
    assert probes.neighbours(unknown) < 0.05
    nearest = KNeighborsRegressor(5).fit(x[:400], known[:400])
    assert probes.neighbours(known) == pytest.approx(nearest.score(x[400:], known[400:]), abs=1e-3)
    z = (x - x.mean(0)) / x.std(0)
    # The constant 1 of the kernel is a penalised intercept beside the mean: next to nothing.
    expected = Ridge(0.1 * 3).fit(z[:400], known[:400]).score(z[400:], known[400:])
    found = probes._ridge(known, torch.arange(400), torch.arange(400, 600), 0.1)
    assert found == pytest.approx(expected, abs=1e-4)


def test_unseen_values_are_left_out_of_both_probes(probe: ModuleType):
    x = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    part = np.repeat([0, 1, 2], 100)
    y = torch.from_numpy(x[:, 0].astype(float))
    y[::3] = torch.nan
    probes = probe.Probes(x, part)
    assert probes.ridge(y) > 0.999
    assert probes.neighbours(y) > 0.8


def test_parts_keep_groups_whole(probe: ModuleType):
    groups = np.repeat(np.arange(10), [1, 50, 3, 40, 9, 9, 9, 9, 9, 9])
    part = probe.split(groups, seed=3)
    assert [len(set(part[groups == name])) for name in range(10)] == [1] * 10
    assert [len(set(groups[part == i])) for i in range(3)] == [4, 2, 4]
