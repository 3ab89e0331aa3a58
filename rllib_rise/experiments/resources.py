"""What a run asks of a cluster, and whether it is there."""

from __future__ import annotations

import math

import ray
from ray import tune

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import Experiment, build_config


def requested(experiment: Experiment) -> tune.PlacementGroupFactory:
    """What a run's processes ask for: CPUs, GPUs and resources of your own, as RLlib has them."""
    config = build_config(experiment)
    return config.algo_class.default_resource_request(config)


def needed_cpus(experiment: Experiment) -> int:
    """CPUs that a run takes: its own process, env runners, learners and their aggregators."""
    return math.ceil(requested(experiment).required_resources.get("CPU", 1))


def lacking(experiment: Experiment, *, cluster: bool) -> list[str]:
    """What Ray does not have of it, as warnings: RLlib waits for it without a word.

    Args:
        experiment: What is to run.
        cluster: Whether nodes may still join; on one machine what is not there never comes.
    """
    there, request = ray.cluster_resources(), requested(experiment)
    asked = {**request.required_resources}
    # The driver runs anyway, and takes no CPU of Ray's.
    asked["CPU"] = asked.get("CPU", 0) - request.bundles[0].get("CPU", 0)
    short = [
        f"the run asks for {amount:g} {name}, Ray has {there.get(name, 0):g}"
        for name, amount in sorted(asked.items())
        if amount > there.get(name, 0)
    ]
    if short and not cluster:
        raise ConfigError(f"{'; '.join(short)}: change the settings under rllib, or use a cluster")
    return [f"{line}: it waits until nodes join" for line in short]
