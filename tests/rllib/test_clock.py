from __future__ import annotations

import pytest

from rllib_rise.rllib.clock import Clock


def test_the_first_update_is_at_time_zero():
    clock = Clock()
    clock.tick(1024)
    assert (clock.env_steps, clock.updates) == (0, 0)
    clock.tick(2048)
    assert (clock.env_steps, clock.updates) == (1024, 1)


def test_a_counter_that_starts_again_does_not_turn_time_back():
    clock = Clock()
    for counter in (1000, 2000, 500, 1500, 2500):
        clock.tick(counter)
    assert clock.env_steps == 2000 + 1500
    assert clock.updates == 4


def test_updates_without_a_count_leave_the_steps_alone():
    clock = Clock()
    for counter in (100, None, 200, None):
        clock.tick(counter)
    assert (clock.env_steps, clock.updates) == (200, 3)


def test_a_restored_clock_goes_on():
    clock, other = Clock(), Clock()
    for counter in (100, 200):
        clock.tick(counter)
    other.set_state(clock.get_state())
    clock.tick(300)
    other.tick(300)
    assert other.get_state() == clock.get_state()


@pytest.mark.parametrize("unit", ["env_steps", "updates"])
def test_units(unit: str):
    clock = Clock()
    clock.tick(10)
    clock.tick(20)
    assert clock.read(unit) == {"env_steps": 10, "updates": 1}[unit]
