"""Env runners that are counted, and what they are compared with."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_rise.bench import scaling


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_waiting_runners_are_as_fast_as_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scaling, "_RUNNERS", {"quick": (2,)})
    (efficiency, share), measured = scaling.scaling(1, "quick", lambda line: None)
    assert [row["runners"] for row in measured["rows"]] == [1, 2]
    waited = measured["step_seconds"] * measured["steps_per_runner"]
    for row in measured["rows"]:
        for seconds in (*row["seconds"], *row["seconds_of_one"]):
            assert len(seconds) == scaling._TURNS
            assert min(seconds) > waited
        assert 0 < row["bonus_seconds"] < row["learner_seconds"] < min(row["seconds"][0])
        assert 0 < row["driver_seconds"] < min(row["seconds"][0])
    one, two = measured["rows"]
    [pairs] = np.array(two["seconds_of_one"]) / np.array(two["seconds"])
    assert efficiency.ratio == two["efficiency"] == pytest.approx(np.median(pairs))
    assert 0.5 < efficiency.ratio < 1.5
    assert share.ratio == pytest.approx(two["bonus_share"] / one["bonus_share"], rel=0.5)
