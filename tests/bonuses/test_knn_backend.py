"""Who searches neighbours: chosen once, kept in the checkpoint, replaced where it cannot be."""

from __future__ import annotations

import logging

import pytest
import torch

from rllib_rise.bonuses import RE3, Bonus, Transitions, parse_settings, resolve_bonus
from rllib_rise.bonuses import state_entropy as bonus_module
from rllib_rise.entropy import resolve_backend

pytest.importorskip("faiss")


def make(**settings) -> Bonus:
    return RE3(parse_settings(RE3, {"encoder": "identity", "k": 3, **settings}), (4,))


def batch(count: int) -> Transitions:
    obs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return Transitions(obs=obs, episodes=torch.arange(count) // 8)


@pytest.fixture
def chosen_by_size(monkeypatch):
    """As on a GPU, `auto` is another backend for many points: from 32 on, FAISS's own search."""

    def choose(backend, device, *, num_points):
        if backend == "auto" and num_points >= 32:
            return "faiss"
        return resolve_backend(backend, device, num_points=num_points)

    monkeypatch.setattr(bonus_module, "resolve_backend", choose)


@pytest.fixture
def searches(monkeypatch):
    """The backends that were searched with."""
    used, search = [], bonus_module.neighbor_distances

    def record(points, k, *, groups=None, backend):
        used.append(backend)
        return search(points, k, groups=groups, backend=backend)

    monkeypatch.setattr(bonus_module, "neighbor_distances", record)
    return used


@pytest.mark.parametrize(("first", "backend"), [(16, "torch+faiss"), (32, "faiss")])
def test_the_first_batch_decides_whatever_comes_later(chosen_by_size, searches, first, backend):
    bonus = make()
    assert bonus.choices() == {}
    for count in (first, 64, 16):
        bonus.reward(batch(count))
    assert searches == [backend] * 3
    assert bonus.choices() == {"knn_backend": backend}


def test_within_episodes_the_longest_one_counts(chosen_by_size, searches):
    make(particles="episode").reward(batch(64))
    assert searches == ["torch+faiss"]


def test_a_batch_without_transitions_decides_nothing(chosen_by_size, searches):
    bonus = make()
    assert bonus.reward(batch(0)).shape == (0,)
    assert bonus.choices() == {}
    bonus.reward(batch(40))
    assert bonus.choices() == {"knn_backend": "faiss"}


def test_a_checkpoint_decides_for_auto_and_settings_win_over_it(searches, caplog):
    for settings, used in (({}, "faiss"), ({"knn_backend": "torch"}, "torch")):
        bonus = make(**settings)
        bonus.prefer({"knn_backend": "faiss"})
        bonus.reward(batch(20))
        assert searches.pop() == used
        assert bonus.choices() == {"knn_backend": used}
    assert caplog.records == []


def test_what_a_checkpoint_says_is_passed_on_before_it_was_used():
    bonus = make()
    bonus.prefer({"knn_backend": "faiss-gpu"})
    assert bonus.choices() == {"knn_backend": "faiss-gpu"}
    bonus.prefer({})  # a checkpoint from before there were choices
    assert bonus.choices() == {"knn_backend": "faiss-gpu"}


@pytest.mark.parametrize("backend", ["faiss-gpu", "one that does not exist yet"])
def test_a_backend_that_cannot_be_used_here_is_replaced_with_one_line(searches, caplog, backend):
    data, bonus = batch(50), make()
    expected = make().reward(data)
    bonus.prefer({"knn_backend": backend})
    with caplog.at_level(logging.INFO):
        rewards = [bonus.reward(data) for _ in range(3)]
    (record,) = caplog.records
    assert f"torch+faiss searches neighbours, and not {backend}" in record.getMessage()
    assert searches[1:] == ["torch+faiss"] * 3
    assert all(torch.equal(reward, expected) for reward in rewards)
    assert bonus.choices() == {"knn_backend": "torch+faiss"}


def test_backends_differ_by_rounding_only():
    data = batch(300)
    expected = make(knn_backend="torch").reward(data)
    for backend in ("torch+faiss", "faiss"):
        found = make(knn_backend=backend).reward(data)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_another_device_is_another_choice(searches):
    bonus = make()
    bonus.reward(batch(20))
    bonus._knn_device = torch.device("cuda:0")  # as if the bonus had been there so far
    bonus._knn_backend = "faiss-gpu"
    bonus.reward(batch(20))
    assert searches == ["torch+faiss"] * 2


def test_the_parts_of_a_sum_choose_each_for_itself():
    cls = resolve_bonus("sum")
    parts = [
        {"method": "rnd"},
        {"method": "re3", "encoder": "identity"},
        {"method": "re3", "encoder": "identity", "knn_backend": "torch"},
    ]
    first, second = (cls(parse_settings(cls, {"parts": parts}), (4,)) for _ in range(2))
    data = batch(20)
    data = Transitions(obs=data.obs, next_obs=data.obs)
    assert first.choices() == {}
    first.prefer({"1": {"knn_backend": "faiss"}, "2": {"knn_backend": "faiss"}})
    first.reward(data)
    assert first.choices() == {"1": {"knn_backend": "faiss"}, "2": {"knn_backend": "torch"}}
    second.prefer(first.choices())
    assert second.choices() == first.choices()
