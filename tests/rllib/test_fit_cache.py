"""The cache of fits: entries that are whole or absent, and locks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pyarrow.fs
import pytest
import torch

from rllib_rise.bonuses import Fit
from rllib_rise.rllib.phase1.cache import FitCache

NAME = "0123abcd"


def fits() -> dict[str, Fit]:
    return {
        "a": Fit({"encoder.x": torch.arange(6.0).reshape(2, 3)}, {"seconds": {"fit": 1.5}}),
        "a/b": Fit({"encoder.x": torch.ones(2, dtype=torch.uint8)}, {"history": [1, 2]}),
    }


def test_what_is_stored_is_loaded(tmp_path: Path):
    cache = FitCache(str(tmp_path / "new"), NAME)
    assert cache.load() is None
    cache.store(fits(), env_steps=123)
    found = cache.load()
    assert found is not None
    assert found.env_steps == 123
    assert found.fits.keys() == {"a", "a/b"}
    for module_id, fit in fits().items():
        assert found.fits[module_id].info == fit.info
        assert found.fits[module_id].tensors.keys() == fit.tensors.keys()
        for name, tensor in fit.tensors.items():
            assert torch.equal(found.fits[module_id].tensors[name], tensor)
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".safetensors"]


def test_another_filesystem_and_uris_work(tmp_path: Path):
    filesystem = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    cache = FitCache("inside", NAME, filesystem)
    with cache.lock():
        cache.store(fits(), env_steps=1)
    assert cache.load() is not None
    assert FitCache(f"file://{tmp_path}/inside", NAME).load() is not None


@pytest.mark.parametrize("damage", [b"", b"nonsense", "torn"])
def test_a_damaged_entry_counts_as_none_and_is_made_again(tmp_path: Path, damage, caplog):
    cache = FitCache(str(tmp_path), NAME)
    cache.store(fits(), env_steps=1)
    (entry,) = tmp_path.glob("*.safetensors")
    entry.write_bytes(entry.read_bytes()[:-5] if damage == "torn" else damage)
    assert cache.load() is None
    assert "made again" in caplog.text
    cache.store(fits(), env_steps=1)
    assert cache.load() is not None


def test_a_place_that_cannot_be_written_costs_the_cache_not_the_run(tmp_path: Path, caplog):
    (tmp_path / "file").write_text("in the way")
    cache = FitCache(str(tmp_path / "file" / "cache"), NAME)
    with cache.lock():
        assert cache.load() is None
        cache.store(fits(), env_steps=1)
    assert "cannot be locked" in caplog.text
    assert "could not be cached" in caplog.text


def test_the_lock_excludes_others_until_it_is_let_go(tmp_path: Path):
    first, second = FitCache(str(tmp_path), NAME), FitCache(str(tmp_path), NAME)
    order: list[str] = []

    def wait() -> None:
        with second.lock(on_wait=lambda seconds: order.append("waiting")):
            order.append("second")

    with first.lock():
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["waiting", "first", "second"]
    with FitCache(str(tmp_path), "another").lock(on_wait=pytest.fail):
        pass


def _hold(folder: str, ready) -> None:
    with FitCache(folder, NAME).lock():
        ready.set()
        time.sleep(600)


def test_a_killed_process_lets_go_of_the_lock(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(str(tmp_path), ready))
    holder.start()
    assert ready.wait(120)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with FitCache(str(tmp_path), NAME).lock(on_wait=lambda seconds: pytest.fail("still locked")):
        pass
