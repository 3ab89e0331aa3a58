"""Env runners that are counted, and what they are compared with."""

from __future__ import annotations

import pytest

from rllib_rise.bench import scaling


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_waiting_runners_are_as_fast_as_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scaling, "_RUNNERS", {"quick": (2,)})
    (figure,), measured = scaling.scaling(1, "quick", lambda line: None)
    (row,) = measured["rows"]
    waited = measured["step_seconds"] * measured["steps_per_runner"]
    for seconds in (*row["seconds"], *row["seconds_of_one"]):
        assert len(seconds) == scaling._TURNS
        assert min(seconds) > waited
    assert 0 < row["bonus_seconds"] < row["learner_seconds"] < min(row["seconds"][0])
    assert row["efficiency"] == figure.ratio
    assert 0.5 < figure.ratio < 1.5
