"""Intrinsic rewards behind one protocol: RISE and the methods it is compared with."""

from rllib_rise.bonuses.count import Count
from rllib_rise.bonuses.icm import ICM
from rllib_rise.bonuses.max_renyi import MaxRenyi
from rllib_rise.bonuses.ngu import NGU
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
from rllib_rise.bonuses.ride import RIDE
from rllib_rise.bonuses.rise import RISE
from rllib_rise.bonuses.rnd import RND
from rllib_rise.bonuses.weighted_sum import WeightedSum

__all__ = [
    "ICM",
    "NGU",
    "RE3",
    "RIDE",
    "RISE",
    "RND",
    "Bonus",
    "BonusSettings",
    "Count",
    "Fit",
    "FitReport",
    "FitSteps",
    "MaxRenyi",
    "Need",
    "Transitions",
    "WeightedSum",
    "method_names",
    "parse_settings",
    "register_bonus",
    "resolve_bonus",
]
