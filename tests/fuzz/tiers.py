"""One property, two tests: a few examples for every day, many in the slow tier.

A property is a function of drawn values that says whether they were accepted; it fails by an
assertion, or by any error that is not one of ours. Examples are the same in every run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from rllib_rise.errors import RiseError

FEW = 20


def fuzz(
    *, slow: int, accepted: float = 0.1, **strategies: SearchStrategy[Any]
) -> Callable[[Callable[..., Any]], Any]:
    """Make a test of a property: with `FEW` examples, and marked `slow` with as many as said.

    Of many examples at least the share `accepted` must be accepted: whoever refuses everything
    never makes a mistake.

    How many examples really ran, and how many of them were refused with one of our errors, goes
    into the JSON file that the environment variable RISE_RELIABILITY names.
    """

    def decorate(check: Callable[..., Any]) -> Any:
        @pytest.mark.parametrize("most", [FEW, pytest.param(slow, marks=pytest.mark.slow)])
        def test(most: int, record_property: Callable[[str, Any], None]) -> None:
            counts = {"accepted": 0, "rejected": 0}

            @functools.wraps(check)
            def counted(**drawn: Any) -> None:
                try:
                    check(**drawn)
                except RiseError:
                    counts["rejected"] += 1
                else:
                    counts["accepted"] += 1

            settings(
                max_examples=most,
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )(given(**strategies)(counted))()
            name = check.__name__.removeprefix("test_").replace("_", " ")
            if most > FEW:
                assert counts["accepted"] >= accepted * sum(counts.values()), counts
            record_property("fuzz", {"property": name, "examples": sum(counts.values()), **counts})

        test.__doc__ = check.__doc__
        return test

    return decorate
