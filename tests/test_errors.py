"""What is told of errors that libraries wrap."""

from __future__ import annotations

from rllib_rise.errors import ConfigError, first_cause


def wrapped(first: Exception, then: Exception) -> Exception:
    then.__cause__ = first
    return then


def test_what_went_wrong_first_is_told():
    error = wrapped(ValueError("a long story\nno licence"), RuntimeError())
    assert first_cause(error) == "ValueError: no licence"


def test_errors_of_ours_speak_for_themselves():
    ours = wrapped(KeyError("k"), ConfigError("k=0 must be at least 1"))
    assert first_cause(wrapped(ours, RuntimeError())) == "ConfigError: k=0 must be at least 1"
