"""The times of the backends are those of searches that took place."""

import pytest
import torch

from rllib_rise.entropy import timing as timing_module
from rllib_rise.entropy.timing import backend_seconds


def test_every_backend_of_the_device_is_timed_as_often_as_asked(monkeypatch):
    pytest.importorskip("faiss")
    calls = []
    search = timing_module.neighbor_distances

    def record(points, k, *, backend):
        calls.append(backend)
        return search(points, k, backend=backend)

    monkeypatch.setattr(timing_module, "neighbor_distances", record)
    seconds = backend_seconds(64, 3, turns=3)
    assert list(seconds) == ["torch", "torch+faiss", "faiss"]
    assert all(0 < value < 10 for value in seconds.values())
    # In turn, after one of each that does not count.
    assert calls == ["torch", "torch+faiss", "faiss"] * 4


def test_more_points_take_longer():
    few, many = (backend_seconds(n, 8, backends=["torch"], turns=3)["torch"] for n in (64, 4096))
    assert many > few


def test_the_table_has_a_row_for_each_size(capsys):
    threads = torch.get_num_threads()
    try:
        timing_module.main(
            ["--points", "32", "64", "--dimensions", "2", "5", "--turns", "1", "--threads", "1"]
        )
    finally:
        torch.set_num_threads(threads)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["N", "m", "torch"]
    assert [row.split()[:2] for row in rows] == [
        ["32", "2"],
        ["32", "5"],
        ["64", "2"],
        ["64", "5"],
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_torch_is_timed_on_the_gpu():
    assert backend_seconds(256, 4, device="cuda", turns=1)["torch"] > 0
