"""State-entropy exploration for Ray RLlib.

Importing the package imports neither Ray nor torch; names are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_rise.rllib import (
        RISEAPPOConfig,
        RISEDQNConfig,
        RISEIMPALAConfig,
        RISEPPOConfig,
        RISESACConfig,
        register,
        with_rise,
    )

__version__ = "0.1.0"
__all__ = [
    "RISEAPPOConfig",
    "RISEDQNConfig",
    "RISEIMPALAConfig",
    "RISEPPOConfig",
    "RISESACConfig",
    "register",
    "with_rise",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("rllib_rise.rllib"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
