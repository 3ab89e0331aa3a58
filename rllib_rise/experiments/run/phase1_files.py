"""What Phase 1 of a run leaves in the run directory for people to look at.

phase1.json    steps, seconds, and per module the encoder, its training and the search for k
phase1.npz     per module pictures and a flat view of the embedding, where there are any

A run without a Phase 1 has neither. Nothing here is needed to go on with a run.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rllib_rise.experiments.run.run_directory import write_bytes, write_json

if TYPE_CHECKING:
    from rllib_rise.rllib.phase1 import Phase1Report

logger = logging.getLogger(__name__)

_REPORT, _ARRAYS = "phase1.json", "phase1.npz"


class _KSearch(BaseModel):
    model_config = ConfigDict(extra="allow")
    k_max: int
    num_subsets: int
    ratios: list[float | None]


class _Epoch(BaseModel):
    model_config = ConfigDict(extra="allow")
    epoch: int
    train_loss: float | None = None
    heldout_loss: float | None = None
    reconstruction: float | None = None
    kl: float | None = None


class _Module(BaseModel):
    model_config = ConfigDict(extra="allow")
    encoder: str
    embedding_size: int | None = None
    observations: int | None = None
    k: int
    alpha: float | None = None
    k_search: _KSearch | None = None
    history: list[_Epoch] = Field(default_factory=list)
    explained_variance: list[float | None] | None = None


class _Report(BaseModel):
    model_config = ConfigDict(extra="allow")
    format: Literal[1]
    env_steps: int
    cached: bool = False
    seconds: dict[str, float] = Field(default_factory=dict)
    modules: dict[str, _Module] = Field(min_length=1)


def write_phase1(
    directory: Path, report: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write both files, each in one piece; without arrays only the first.

    Args:
        directory: The run directory.
        report: Plain data: `format` (1), `env_steps`, `cached`, `seconds` per step of Phase 1, and
            `modules`, each with `encoder`, `embedding_size`, `observations`, `k`, `alpha`,
            `k_search` (None or `k_max`, `num_subsets` and `ratios`, from k = 1 on), `history`
            (a dict per epoch) and `explained_variance` (None or shares). Numbers that are not
            finite become null.
        arrays: By `<module>/<name>`, each optional. `originals` [n, H, W, C] or [n, C, H, W] and
            `reconstructions`, of the same shape and on the same scale; `projection` [n, 2] of the
            embeddings and `bonus` [n] of the same observations.
    """
    target = directory / _ARRAYS
    named: dict[str, Any] = dict(arrays)
    if named:
        partial = target.with_name(target.name + ".partial")
        with partial.open("wb") as stream:  # given a path, NumPy would append .npz to it
            np.savez_compressed(stream, **named)
        partial.replace(target)
    else:
        target.unlink(missing_ok=True)
    write_json(directory / _REPORT, _plain(report))


def write_report_of_phase1(directory: Path, report: Phase1Report) -> None:
    """Write what an algorithm tells of its Phase 1, with the files its bonuses give."""
    arrays: dict[str, NDArray[Any]] = {}
    modules: dict[str, Any] = {}
    for module_id, told in report.modules.items():
        modules[module_id] = told.figures
        arrays |= {f"{module_id}/{name}": array for name, array in told.arrays.items()}
        for name, content in told.files.items():
            prefix = "" if len(report.modules) == 1 else f"{module_id.replace('/', '_')}-"
            write_bytes(directory / f"{prefix}{name}", content)
    figures = {
        "format": 1,
        "env_steps": report.env_steps,
        "cached": report.cached,
        "seconds": report.seconds,
        "modules": modules,
    }
    write_phase1(directory, figures, arrays)


def read_phase1(directory: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """The report, what it leaves out filled with defaults, and the arrays.

    None if the run has no Phase 1, and, with a warning, if its files cannot be read: a page about
    the run is worth more than an error.
    """
    path = directory / _REPORT
    if not path.exists():
        return None
    try:
        report = _Report.model_validate(json.loads(path.read_text())).model_dump()
        path = directory / _ARRAYS
        return report, _read_arrays(path) if path.exists() else {}
    except ValidationError as error:
        places = ", ".join(".".join(map(str, e["loc"])) or "all" for e in error.errors()[:3])
        logger.warning("%s is left out of the report: not in our format (%s)", path, places)
    except Exception as error:  # torn archives raise nearly anything
        logger.warning("%s is left out of the report: it cannot be read (%s)", path, error)
    return None


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    return {name: array for name, array in arrays.items() if array.dtype.kind in "buif"}


def _plain(value: Any) -> Any:
    """The value without NumPy's scalars, and with None for what JSON has no number for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
