"""Intrinsic rewards behind one protocol: RISE and the methods it is compared with."""

from rllib_rise.bonuses.protocol import (
    Bonus,
    BonusSettings,
    Fit,
    FitReport,
    FitSteps,
    Need,
    Transitions,
)
from rllib_rise.bonuses.re3 import RE3
from rllib_rise.bonuses.registry import (
    method_names,
    parse_settings,
    register_bonus,
    resolve_bonus,
)
from rllib_rise.bonuses.rise import RISE
from rllib_rise.bonuses.rnd import RND

__all__ = [
    "RE3",
    "RISE",
    "RND",
    "Bonus",
    "BonusSettings",
    "Fit",
    "FitReport",
    "FitSteps",
    "Need",
    "Transitions",
    "method_names",
    "parse_settings",
    "register_bonus",
    "resolve_bonus",
]
