"""Whether all nodes of a cluster see the same folder."""

from __future__ import annotations

import uuid
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rllib_rise.errors import ClusterError

_TIMEOUT_SECONDS = 60.0


def check_shared(folder: Path) -> None:
    """Refuse a folder that some node of the running cluster does not see.

    A run that moves to another node finds its checkpoints there, or begins anew without a word.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".seen-{uuid.uuid4().hex}"
    mark.touch()
    try:
        answers = {
            _sees.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(str(mark.resolve())): node
            for node in nodes
        }
        ready, late = ray.wait(list(answers), num_returns=len(answers), timeout=_TIMEOUT_SECONDS)
        blind = [answers[answer] for answer in ready if not _answer(answer)]
        blind += [answers[answer] for answer in late]
    finally:
        mark.unlink()
    if blind:
        names = ", ".join(sorted(node["NodeManagerAddress"] for node in blind))
        raise ClusterError(
            f"{folder} is not there on {names}: on several nodes a run needs storage that all of "
            "them mount (NFS, EFS, a ReadWriteMany volume), so that it finds its checkpoints "
            "wherever it goes on. Choose such a folder"
        )


@ray.remote(num_cpus=0, max_retries=0)
def _sees(path: str) -> bool:
    return Path(path).exists()


def _answer(reference: ray.ObjectRef) -> bool:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return True  # the node is gone: whether it saw the folder does not matter
