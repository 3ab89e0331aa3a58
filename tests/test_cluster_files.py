"""The files of cluster/, as far as they can be checked without a cluster."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)
from ray.autoscaler._private.util import prepare_config, validate_config

from rllib_rise.cli import app
from rllib_rise.experiments import schema

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"
KUBERAY = CLUSTER / "kuberay"
SBATCH = CLUSTER / "slurm" / "rise.sbatch"
LAUNCHED = ("onprem.yaml", "aws.yaml")  # by `ray up`
MANIFESTS = ("base.yaml", "redis.yaml", "raycluster.yaml", "rayjob.yaml")
KUBERNETES = "1.30"
IMAGE_ROOT = "/opt/rllib_rise"  # where the image has what is at the root of the project
ENV_NODE = "env_node"

# KubeRay's ray.io/v1 as of version 1.6, as far as it concerns us. The API server drops what it does
# not know without a word.
FIELDS = {
    "RayJob": "entrypoint submissionMode backoffLimit activeDeadlineSeconds "
    "ttlSecondsAfterFinished shutdownAfterJobFinishes submitterConfig submitterPodTemplate "
    "rayClusterSpec clusterSelector runtimeEnvYAML metadata jobId suspend managedBy "
    "deletionStrategy entrypointNumCpus entrypointNumGpus entrypointResources",
    "RayCluster": "rayVersion authOptions enableInTreeAutoscaling autoscalerOptions headGroupSpec "
    "workerGroupSpecs gcsFaultToleranceOptions headServiceAnnotations suspend managedBy",
    "authOptions": "mode secretName enableK8sTokenAuth",
    "autoscalerOptions": "version idleTimeoutSeconds resources securityContext image "
    "imagePullPolicy upscalingMode env envFrom volumeMounts",
    "gcsFaultToleranceOptions": "redisAddress redisUsername redisPassword externalStorageNamespace",
    "headGroupSpec": "template headService enableIngress rayStartParams serviceType labels "
    "resources",
    "workerGroupSpec": "groupName template rayStartParams replicas minReplicas maxReplicas "
    "numOfHosts idleTimeoutSeconds scaleStrategy suspend labels resources",
    "submitterConfig": "backoffLimit",
}


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def launched(name: str) -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / name).read_text())


def commands(config: dict[str, Any]) -> list[str]:
    return [line for key, lines in config.items() if key.endswith("_commands") for line in lines]


@functools.cache
def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in MANIFESTS:
        for document in documents((KUBERAY / name).read_text()):
            yield f"{name}: {document['kind']} {document['metadata']['name']}", document


def manifest(kind: str) -> dict[str, Any]:
    [found] = [document for _, document in manifests() if document["kind"] == kind]
    return found


def ray_specs() -> dict[str, dict[str, Any]]:
    job = manifest("RayJob")["spec"]
    return {"RayCluster": manifest("RayCluster")["spec"], "RayJob": job["rayClusterSpec"]}


def ray_templates() -> dict[str, dict[str, Any]]:
    found = {}
    for kind, spec in ray_specs().items():
        found[f"{kind} head"] = spec["headGroupSpec"]["template"]
        for group in spec["workerGroupSpecs"]:
            found[f"{kind} {group['groupName']}"] = group["template"]
    return found


def pod_templates() -> dict[str, dict[str, Any]]:
    """All pods, also those which an operator makes."""
    return {
        **ray_templates(),
        "submitter": manifest("RayJob")["spec"]["submitterPodTemplate"],
        "redis": manifest("StatefulSet")["spec"]["template"],
    }


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for name, template in pod_templates().items():
        spec = template["spec"]
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            yield f"{name}: {container['name']}", spec, container


def parse_rise(words: list[str]) -> dict[str, Any]:
    """What `rise` makes of a command line, without running it; its errors are raised."""
    group: Any = typer.main.get_command(app)
    command = group.commands[words[0]]
    return command.make_context(words[0], list(words[1:])).params


def shellcheck(script: str) -> str:
    """What ShellCheck has to say about a Bash script."""
    program = shutil.which(
        "shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    )
    assert program, "shellcheck is part of the extra `dev`"
    done = subprocess.run(
        [program, "--shell=bash", "--format=gcc", "-"], input=script, capture_output=True, text=True
    )
    return done.stdout + done.stderr


# `ray up`


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_accepts_the_launcher_files(name: str) -> None:
    prepared = prepare_config(launched(name))
    validate_config(prepared)
    assert prepared["head_node_type"] in prepared["available_node_types"]


@pytest.mark.parametrize("name", LAUNCHED)
def test_shellcheck_has_nothing_to_say_about_launcher_commands(name: str) -> None:
    for command in commands(launched(name)):
        # Ray expands the tilde of --autoscaling-config=~/... by itself.
        assert shellcheck(f"# shellcheck disable=SC2088\n{command}\n") == "", command


@pytest.mark.parametrize("name", LAUNCHED)
def test_launched_nodes_ask_for_the_token_and_have_it_as_a_file(name: str) -> None:
    config = launched(name)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "chmod 600 ~/.ray/auth_token" in config["setup_commands"]
    starts = [line for line in commands(config) if "ray start" in line]
    assert len(starts) == 2
    for start in starts:
        before = start[: start.index("ray start")]
        assert "RAY_AUTH_MODE=token" in before
        assert "RAY_AUTH_TOKEN_PATH=$HOME/.ray/auth_token" in before


@pytest.mark.parametrize("name", LAUNCHED)
def test_launched_heads_open_nothing_and_run_no_actors(name: str) -> None:
    config = launched(name)
    [head] = [line for line in config["head_start_ray_commands"] if "ray start" in line]
    assert "--dashboard-host=127.0.0.1" in head
    assert "--num-cpus=0" in head
    assert "export RAY_JOB_STOP_WAIT_TIME_S=120;" in head
    assert "export PATH=$HOME/.rise/bin:" in head
    assert "0.0.0.0" not in (CLUSTER / name).read_text()


@pytest.mark.parametrize("name", LAUNCHED)
def test_launched_nodes_mount_the_storage_before_ray_starts(name: str) -> None:
    [mount] = [
        line for line in launched(name)["initialization_commands"] if " mount -t nfs" in line
    ]
    assert mount.startswith("mountpoint -q /shared || ")
    assert mount.split()[-1] == "/shared"


@pytest.mark.parametrize("name", LAUNCHED)
def test_launched_nodes_install_torch_first_and_what_is_tested(name: str) -> None:
    installs = [line for line in launched(name)["setup_commands"] if "pip install" in line]
    assert [("torch==" in line, "rllib_rise[$kind," in line) for line in installs] == [
        (True, False),
        (False, True),
    ]
    for line in installs:
        assert "-c ~/rllib_rise/constraints.txt" in line


def test_onprem_nodes_have_one_role_each() -> None:
    [start] = [
        line for line in launched("onprem.yaml")["worker_start_ray_commands"] if "start" in line
    ]
    assert f"role={ENV_NODE}; if test -e /dev/nvidiactl; then role=learner_node; fi;" in start
    assert '--resources="{\\"$role\\": 1}"' in start


def test_on_aws_only_env_runners_are_on_spot_instances() -> None:
    types = launched("aws.yaml")["available_node_types"]
    spot = {
        name
        for name, kind in types.items()
        if kind["node_config"].get("InstanceMarketOptions", {}).get("MarketType") == "spot"
    }
    assert spot == {name for name, kind in types.items() if ENV_NODE in kind["resources"]}
    assert len(spot) >= 2
    assert {name for name, kind in types.items() if "GPU" in kind["resources"]} == {"learner"}


def test_on_aws_ray_creates_no_security_group_and_no_role() -> None:
    config = launched("aws.yaml")
    assert config["provider"]["use_internal_ips"] is True
    assert "security_group" not in config["provider"]
    for name, kind in config["available_node_types"].items():
        node = kind["node_config"]
        for key in ("SecurityGroupIds", "SubnetIds", "ImageId"):
            assert node.get(key), (name, key)
        assert node["MetadataOptions"]["HttpTokens"] == "required"
        assert all(disk["Ebs"]["Encrypted"] for disk in node["BlockDeviceMappings"])
        assert ("IamInstanceProfile" in node) == (name == config["head_node_type"])


def test_on_aws_the_limits_of_the_node_types_fit_the_clusters() -> None:
    config = launched("aws.yaml")
    types = config["available_node_types"].values()
    assert sum(kind["max_workers"] for kind in types) == config["max_workers"]
    assert all(kind.get("min_workers", 0) <= kind["max_workers"] for kind in types)


# Kubernetes


def test_kubernetes_knows_every_field_of_its_own_objects() -> None:
    own = [
        (name, document) for name, document in manifests() if "ray.io" not in document["apiVersion"]
    ]
    assert {document["kind"] for _, document in own} == {
        *("Namespace", "PersistentVolumeClaim", "NetworkPolicy", "Service", "StatefulSet")
    }
    for _, document in own:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_kubernetes_knows_every_field_of_the_pods_that_ray_makes() -> None:
    for name, template in pod_templates().items():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", **template.get("metadata", {})},
            "spec": template["spec"],
        }
        try:
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            pytest.fail(f"{name}: {error.message}")


def test_kuberay_knows_every_field() -> None:
    job = manifest("RayJob")
    assert {document["apiVersion"] for document in (job, manifest("RayCluster"))} == {"ray.io/v1"}
    parts = [("RayJob", job["spec"]), ("submitterConfig", job["spec"]["submitterConfig"])]
    for spec in ray_specs().values():
        parts += [("RayCluster", spec), *((key, spec[key]) for key in FIELDS if key in spec)]
        parts += [("workerGroupSpec", group) for group in spec["workerGroupSpecs"]]
    for name, part in parts:
        assert set(part) <= set(FIELDS[name].split()), name


def test_rays_autoscaler_reads_the_groups_resources_and_limits() -> None:
    for kind, spec in ray_specs().items():
        read = _derive_autoscaling_config_from_ray_cr(
            {"metadata": {"name": "rise", "namespace": "rise"}, "spec": spec}
        )["available_node_types"]
        assert read["headgroup"]["resources"]["CPU"] == 0, kind
        assert read["learner"]["resources"]["GPU"] == 1, kind
        assert ENV_NODE not in read["learner"]["resources"], kind
        assert read["env"]["resources"][ENV_NODE] == 1, kind
        assert "GPU" not in read["env"]["resources"], kind
        assert spec["enableInTreeAutoscaling"] is True
        for group in spec["workerGroupSpecs"]:
            assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"], kind
            assert group["maxReplicas"] > 0


def test_a_job_gets_the_same_cluster_without_redis() -> None:
    cluster, job = ray_specs().values()
    kept = {key: value for key, value in cluster.items() if key != "gcsFaultToleranceOptions"}
    assert kept == job


def test_no_container_is_root_or_can_become_it() -> None:
    for name, pod, container in containers():
        outer, inner = pod["securityContext"], container["securityContext"]
        assert outer["runAsNonRoot"] is inner["runAsNonRoot"] is True, name
        assert outer["runAsUser"] > 0, name
        assert outer["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert inner["allowPrivilegeEscalation"] is False, name
        assert inner["capabilities"] == {"drop": ["ALL"]}, name
        assert not inner.get("privileged"), name
        assert not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), name
        assert not any("hostPath" in volume for volume in pod.get("volumes", [])), name
    for kind, spec in ray_specs().items():
        autoscaler = spec["autoscalerOptions"]["securityContext"]
        assert (
            autoscaler
            == spec["headGroupSpec"]["template"]["spec"]["containers"][0]["securityContext"]
        ), kind
    labels = manifest("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_only_the_head_may_talk_to_kubernetes() -> None:
    for name, template in pod_templates().items():
        if not name.endswith("head"):
            assert template["spec"]["automountServiceAccountToken"] is False, name


def test_every_container_has_requests_and_limits() -> None:
    bounds = [(name, container["resources"]) for name, _, container in containers()]
    bounds += [(kind, spec["autoscalerOptions"]["resources"]) for kind, spec in ray_specs().items()]
    for name, resources in bounds:
        for part in ("requests", "limits"):
            assert {"cpu", "memory"} <= set(resources[part]), name
        gpus = {resources[part].get("nvidia.com/gpu") for part in ("requests", "limits")}
        assert gpus == ({"1"} if "learner" in name else {None}), name


def test_images_are_pinned_and_ours_name_what_is_in_them() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ours = f"registry.example.com/rise:{version}-ray{constraints()['ray']}-"
    for name, _, container in containers():
        if name.startswith("redis"):
            assert re.fullmatch(r"redis:\d+\.\d+\.\d+(-\w+)?", container["image"]), name
        else:
            assert container["image"] == ours + ("gpu" if "learner" in name else "cpu"), name
    dockerfile = (KUBERAY / "Dockerfile").read_text()
    assert f"-t {ours}cpu ." in dockerfile
    assert f"-t {ours}gpu ." in dockerfile


def test_ray_and_redis_get_their_secrets_from_secrets() -> None:
    for kind, spec in ray_specs().items():
        assert spec["authOptions"] == {"mode": "token", "secretName": "rise-ray-token"}, kind
        assert spec["rayVersion"] == constraints()["ray"], kind
    redis = ray_specs()["RayCluster"]["gcsFaultToleranceOptions"]
    secret = {"secretKeyRef": {"name": "rise-redis", "key": "password"}}
    assert redis["redisPassword"] == {"valueFrom": secret}
    [container] = pod_templates()["redis"]["spec"]["containers"]
    [password] = container["env"]
    assert password["valueFrom"] == secret
    assert (
        f"rise-redis.{manifest('Service')['metadata']['namespace']}.svc:6379"
        in redis["redisAddress"]
    )
    for name, _, found in containers():
        for variable in found.get("env", []):
            assert not ("value" in variable and re.search("TOKEN|PASSWORD", variable["name"])), name


def test_pods_that_are_told_to_go_have_the_time_to_drain() -> None:
    for name, template in ray_templates().items():
        [container] = template["spec"]["containers"]
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        drain = int(env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert 30 <= drain <= template["spec"]["terminationGracePeriodSeconds"] - 20, name
        assert 60 <= int(env["RAY_JOB_STOP_WAIT_TIME_S"]) <= drain, name
        assert "lifecycle" not in container, name


def test_only_rays_pods_clients_and_the_operator_reach_ray() -> None:
    policies = {
        document["metadata"]["name"]: document["spec"]
        for _, document in manifests()
        if document["kind"] == "NetworkPolicy"
    }
    assert policies["deny-ingress"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    role = "rllib-rise/role"
    assert policies["ray"]["podSelector"]["matchLabels"] == {role: "ray"}
    among, others = policies["ray"]["ingress"]
    assert among == {"from": [{"podSelector": {"matchLabels": {role: "ray"}}}]}
    assert others["ports"] == [{"protocol": "TCP", "port": 8265}]
    client, operator = others["from"]
    assert client == {"podSelector": {"matchLabels": {role: "client"}}}
    assert set(operator) == {"namespaceSelector", "podSelector"}
    [redis] = policies["redis"]["ingress"]
    assert redis["from"] == [{"podSelector": {"matchLabels": {role: "ray"}}}]
    roles = {name: pod["metadata"]["labels"][role] for name, pod in pod_templates().items()}
    for name, found in roles.items():
        assert found == {"submitter": "client", "redis": "redis"}.get(name, "ray"), name
    for spec in ray_specs().values():
        assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
        assert not spec["headGroupSpec"].get("enableIngress")


def test_all_objects_are_in_one_namespace() -> None:
    for name, document in manifests():
        if document["kind"] != "Namespace":
            assert document["metadata"]["namespace"] == "rise", name


def test_the_job_is_a_command_that_rise_understands_and_its_storage_is_mounted() -> None:
    spec = manifest("RayJob")["spec"]
    words = shlex.split(spec["entrypoint"])
    assert words == spec["entrypoint"].split(), "quotes are lost on the way"
    assert not re.search(r"[$`\\\"'{}*?;&|<>()]", spec["entrypoint"])
    assert words[:2] == ["rise", "train"]
    asked = parse_rise(words[1:])
    assert asked["resume"] is True
    assert asked["restarts"] == 3
    assert asked["address"] == "auto"
    file = ROOT / asked["config"].relative_to(IMAGE_ROOT)
    experiment = schema.load_experiment(file, asked["set_"])
    schema.check(experiment)
    assert asked["out"].name == f"{file.stem}-{experiment.method}-seed{experiment.seed}"
    assert experiment.rllib["custom_resources_per_env_runner"] == {ENV_NODE: 0.001}
    assert experiment.rllib["num_gpus_per_learner"] == 1
    claim = manifest("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for name, template in ray_templates().items():
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        [container] = template["spec"]["containers"]
        [mount] = [
            mount
            for mount in container["volumeMounts"]
            if asked["out"].is_relative_to(mount["mountPath"])
        ]
        used = volumes[mount["name"]]["persistentVolumeClaim"]["claimName"]
        assert used == claim["metadata"]["name"], name


def test_the_cluster_has_room_for_the_job() -> None:
    spec = manifest("RayJob")["spec"]
    asked = parse_rise(shlex.split(spec["entrypoint"])[1:])
    file = ROOT / asked["config"].relative_to(IMAGE_ROOT)
    runners = schema.load_experiment(file, asked["set_"]).rllib["num_env_runners"]
    [group] = [
        group for group in spec["rayClusterSpec"]["workerGroupSpecs"] if group["groupName"] == "env"
    ]
    cpus = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert runners <= cpus * group["maxReplicas"]


def test_the_job_gives_up_sooner_or_later() -> None:
    spec = manifest("RayJob")["spec"]
    assert 0 < spec["backoffLimit"] <= 5
    assert 0 <= spec["submitterConfig"]["backoffLimit"] <= 5
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["submitterPodTemplate"]["spec"]["restartPolicy"] == "Never"
    assert "clusterSelector" not in spec, "its retries need clusters of their own"


# The image


def instructions() -> list[str]:
    text = re.sub(r"^\s*#.*\n", "", (KUBERAY / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def test_the_image_is_pinned_and_not_roots() -> None:
    lines = instructions()
    assert re.fullmatch(r"ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+", lines[0])
    assert lines[1] == "FROM ${PYTHON_IMAGE}"
    users = [line for line in lines if line.startswith("USER")]
    assert users == ["USER 1000:1000"]
    after = lines[lines.index(users[0]) + 1 :]
    assert not any(line.startswith(("RUN", "COPY", "ADD")) for line in after)
    assert not any(line.startswith("ADD") for line in lines)
    assert not any(re.match(r"(ENV|ARG).*(TOKEN|PASSWORD|SECRET|KEY)", line) for line in lines)
    for template in ray_templates().values():
        assert template["spec"]["securityContext"]["runAsUser"] == 1000


def test_the_image_gets_torch_first_and_what_is_tested() -> None:
    installs = [line for line in instructions() if "pip install" in line]
    assert [("torch==" in line, ".[${ACCELERATOR}" in line) for line in installs] == [
        (True, False),
        (False, True),
    ]
    assert all("-c constraints.txt" in line for line in installs)


def test_the_image_gets_what_exists_and_its_context_holds_it() -> None:
    rules = (KUBERAY / "Dockerfile.dockerignore").read_text().split("\n")
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    assert rules[0] == "*", "everything is left out but what is named"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        source
        for line in instructions()
        if line.startswith("COPY")
        for source in line.split()[1:-1]
    }
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)
    left_out = [rule for rule in rules if not rule.startswith("!")]
    assert any(fnmatch.fnmatch("rllib_rise/__pycache__", rule) for rule in left_out[1:])
    assert f"WORKDIR {IMAGE_ROOT}" in instructions()


@pytest.mark.parametrize("name", ["onprem.yaml", "aws.yaml", "kuberay/Dockerfile"])
def test_versions_are_those_of_the_constraints(name: str) -> None:
    known = constraints()
    known |= {"faiss": known["faiss-cpu"], "faiss-gpu": known["faiss-cpu"]}
    text = re.sub(r"^\s*#.*\n", "", (CLUSTER / name).read_text(), flags=re.MULTILINE)
    text = text.replace("faiss-$kind==", "faiss==").replace("faiss-${ACCELERATOR}==", "faiss==")
    pins = dict(re.findall(r"([\w-]+)==([\w.]+)", text))
    assert {"torch", "faiss"} <= set(pins)
    pins.pop("boto3", None)  # Ray's AWS launcher needs it, we do not
    assert pins == {package: known[package] for package in pins}


def test_faiss_gpu_may_have_the_version_that_is_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    [lowest] = [item.split(">=")[1] for item in extras["gpu"]]
    pinned = constraints()["faiss-cpu"]
    assert [int(part) for part in pinned.split(".")] >= [int(part) for part in lowest.split(".")]


# Slurm


def test_shellcheck_has_nothing_to_say_about_the_batch_script() -> None:
    assert shellcheck(SBATCH.read_text()) == ""


def test_the_batch_script_hears_of_its_end_and_is_queued_again() -> None:
    text = SBATCH.read_text()
    directives = re.findall(r"^#SBATCH (.+)$", text, flags=re.MULTILINE)
    assert {"--requeue", "--signal=B:TERM@120", "--open-mode=append", "--exclusive"} <= set(
        directives
    )
    assert not re.search(r"ray\"? stop|pkill|killall", text)


STUBS = {
    "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
    "scontrol": """
        case "$1" in
          show) echo first; echo second ;;
          requeue) echo "requeue $2" >> "$LOG" ;;
        esac""",
    "squeue": "echo RUNNING",
    "venv/bin/ray": """
        echo "ray $*" >> "$LOG"
        if [[ "$1" == start ]]; then
          trap 'echo "ray ended" >> "$LOG"; exit 0' TERM
          stat -c 'token %a %U' "$RAY_AUTH_TOKEN_PATH" >> "$LOG"
          while true; do sleep 0.05; done
        fi""",
    "venv/bin/python": """
        case "$1" in
          -c) echo 10.0.0.1 ;;
          -) [[ "$(grep -c '^token' "$LOG")" == "$2" ]] ;;
          -m)
            echo "driver $* at $RAY_ADDRESS" >> "$LOG"
            trap 'echo "driver told" >> "$LOG"; sleep 0.2; exit 130' TERM
            if [[ -n "${DONE:-}" ]]; then exit 0; fi
            while true; do sleep 0.05; done ;;
        esac""",
}


class Batch:
    """The batch script, with programs in Slurm's, Ray's and Python's place that take notes."""

    def __init__(self, folder: Path, **env: str) -> None:
        for name, body in STUBS.items():
            path = folder / "bin" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/usr/bin/env bash\n{body}\n")
            path.chmod(0o755)
        self.log = folder / "log"
        self.storage = folder / "storage"
        self.storage.mkdir()
        self.process = subprocess.Popen(
            ["bash", str(SBATCH), "train", "configs/maze.yaml", "--set", "alpha=0.5"],
            env={
                **{"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LOG": str(self.log)},
                **{"RISE_STORAGE": str(self.storage), "RISE_VENV": str(folder / "bin" / "venv")},
                **{"SLURM_JOB_ID": "123", "SLURM_JOB_NODELIST": "first,second"},
                **{"SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "4", **env},
            },
            cwd=folder,
            start_new_session=True,
        )

    def notes(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_for_driver(self) -> None:
        deadline = time.monotonic() + 60
        while not any(note.startswith("driver ") for note in self.notes()):
            assert time.monotonic() < deadline, self.notes()
            time.sleep(0.05)


@pytest.fixture
def start_batch(tmp_path: Path) -> Iterator[Callable[..., Batch]]:
    started = []

    def start(**env: str) -> Batch:
        started.append(Batch(tmp_path, **env))
        return started[-1]

    yield start
    for batch in started:
        with contextlib.suppress(ProcessLookupError):  # none is left, if all went well
            os.killpg(batch.process.pid, signal.SIGKILL)


def test_the_batch_script_at_its_time_limit_lets_the_run_end_and_queues_it_again(
    start_batch: Callable[..., Batch], tmp_path: Path
) -> None:
    batch = start_batch()
    batch.wait_for_driver()
    token = (batch.storage / ".ray-123" / "auth_token").read_text()
    assert re.fullmatch("[0-9a-f]{64}", token)
    batch.process.send_signal(signal.SIGTERM)
    assert batch.process.wait(timeout=60) == 130
    notes = batch.notes()
    assert notes.count("driver told") == 1
    assert notes.count("ray ended") == 2
    assert notes[-1] == "requeue 123"
    assert notes.count(f"token 600 {tmp_path.owner()}") == 2
    assert not any(token in note for note in notes)
    assert list(batch.storage.iterdir()) == []
    starts = [note for note in notes if note.startswith("ray start")]
    # Which of the two comes first is the operating system's affair.
    assert ["--head" in start for start in starts].count(True) == 1
    assert ["--address=10.0.0.1:20123" in start for start in starts].count(True) == 1
    [driver] = [note for note in notes if note.startswith("driver -m")]
    words = shlex.split(driver.removeprefix("driver -m rllib_rise.cli ").split(" at ")[0])
    asked = parse_rise(words)
    assert asked["out"] == batch.storage / "slurm-123"
    assert asked["set_"] == ["alpha=0.5"]
    assert (asked["resume"], asked["restarts"], asked["address"]) == (True, 3, "auto")
    assert driver.endswith(" at 10.0.0.1:20123")


def test_the_batch_script_of_a_run_that_is_done_ends_with_it(
    start_batch: Callable[..., Batch],
) -> None:
    batch = start_batch(DONE="yes")
    assert batch.process.wait(timeout=60) == 0
    notes = batch.notes()
    assert notes.count("ray ended") == 2
    assert not any(note.startswith("requeue") for note in notes)
    assert list(batch.storage.iterdir()) == []


def test_the_batch_script_is_not_queued_again_without_end(
    start_batch: Callable[..., Batch],
) -> None:
    batch = start_batch(SLURM_RESTART_COUNT="20")
    batch.wait_for_driver()
    batch.process.send_signal(signal.SIGTERM)
    assert batch.process.wait(timeout=60) == 130
    assert not any(note.startswith("requeue") for note in batch.notes())


# All of them

SECRETS = (
    r"-----BEGIN",
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\b[0-9a-fA-F]{32,}\b",
    r"\b(?=[A-Za-z0-9+/]*\d)(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])[A-Za-z0-9+]{32,}",
    r"RAY_AUTH_TOKEN=\S",
    r"(?i)(password|secret_key|api_key)[ \t]*[=:][ \t]*[\"']?[A-Za-z0-9]",
    r"(?m)^kind: Secret",
    r"--from-literal",
)


def test_no_file_holds_a_secret() -> None:
    files = [path for path in CLUSTER.rglob("*") if path.is_file()]
    assert len(files) >= 9
    for path in files:
        for pattern in SECRETS:
            found = re.search(pattern, path.read_text())
            assert not found, f"{path.relative_to(ROOT)}: {found and found[0]}"


def readme_lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (CLUSTER / "README.md").read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines]


def test_the_readmes_commands_are_those_that_rise_has() -> None:
    ours = [line for line in readme_lines() if re.search(r"(^|\s)rise (submit|train|tune)\b", line)]
    assert len(ours) >= 3
    for line in ours:
        words = shlex.split(line)
        asked = parse_rise(words[words.index("rise") + 1 :])
        file = asked.get("file") or asked.get("config") or asked["sweep"]
        assert (ROOT / file).is_file(), line


def test_the_readme_names_files_that_exist() -> None:
    text = (CLUSTER / "README.md").read_text()
    named = set(re.findall(r"\bcluster/[\w./-]*\w", text))
    named |= {f"cluster/{link}" for link in re.findall(r"\]\((?!http|\.\./)([\w./-]+)\)", text)}
    assert {"cluster/onprem.yaml", "cluster/aws.yaml", "cluster/slurm/rise.sbatch"} <= named
    for name in named:
        assert (ROOT / name).exists(), name
    assert text.index("<!-- faults -->") < text.index("<!-- end -->")


def test_the_readmes_placement_is_a_config_that_rllib_accepts() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", (CLUSTER / "README.md").read_text(), flags=re.DOTALL)
    placement = yaml.safe_load(block)["rllib"]
    overrides = [
        f"rllib.{key}={yaml.safe_dump(value, default_flow_style=True).split(chr(10))[0]}"
        for key, value in placement.items()
    ]
    experiment = schema.load_experiment(ROOT / "configs/atari/space_invaders.yaml", overrides)
    schema.check(experiment)
    assert placement.items() <= experiment.rllib.items()


def test_the_batch_script_may_be_executed() -> None:
    assert SBATCH.stat().st_mode & stat.S_IXUSR
