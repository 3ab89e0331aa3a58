"""Whether all nodes of a cluster see the same folder."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rllib_rise.errors import ClusterError

_TIMEOUT_SECONDS = 60.0
_WHY_SHARED = (
    "on several nodes a run needs storage that all of them mount (NFS, EFS, a ReadWriteMany "
    "volume), so that it finds its checkpoints wherever it goes on"
)


def check_shared(folder: Path) -> None:
    """Refuse a folder that some node of the running cluster does not see.

    A run that moves to another node finds its checkpoints there, or begins anew without a word.
    Nodes that join later are not asked: what writes on them asks again.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    place = folder.resolve().parent  # the folder itself may not exist yet
    place.mkdir(parents=True, exist_ok=True)
    mark = place / f".seen-{uuid.uuid4().hex}"
    mark.touch()
    try:
        answers = {
            _sees.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(str(mark)): node
            for node in nodes
        }
        ready, late = ray.wait(list(answers), num_returns=len(answers), timeout=_TIMEOUT_SECONDS)
        blind = [answers[answer] for answer in ready if not _answer(answer)]
    finally:
        mark.unlink()
    if blind:
        raise ClusterError(
            f"{place} is not there on {_names(blind)}: {_WHY_SHARED}. Choose such a folder"
        )
    if late:
        raise ClusterError(
            f"{_names([answers[answer] for answer in late])} did not answer within "
            f"{_TIMEOUT_SECONDS:.0f} seconds whether {place} is there: look after these nodes, or "
            "submit again"
        )


def check_here(file: Path) -> None:
    """Refuse to work where what the driver wrote is not to be seen: this node came later."""
    if not file.exists():
        raise ClusterError(
            f"{file} is not there on {ray.util.get_node_ip_address()}: {_WHY_SHARED}"
        )


@ray.remote(num_cpus=0, max_retries=0)
def _sees(path: str) -> bool:
    return Path(path).exists()


def _answer(reference: ray.ObjectRef) -> bool:
    try:
        return ray.get(reference)
    except ray.exceptions.RuntimeEnvSetupError:
        raise
    except ray.exceptions.RayError:
        return True  # the node is gone: whether it saw the folder does not matter


def _names(nodes: list[dict[str, Any]]) -> str:
    return ", ".join(sorted(node["NodeManagerAddress"] for node in nodes))
