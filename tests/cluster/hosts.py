"""A Ray cluster of real hosts on one machine.

Every host has an address, a list of processes, a shared memory and a name of its own, in namespaces
that are made here; a switch, in one more, joins them. Nothing outside of them is changed, and only
processes that were started here are ended. Needs root, iproute2 and util-linux.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

NETWORK = "10.77.0"
HEAD, CLIENT = 0, 9
_ROOT = Path(__file__).parents[2]
_UNDER_WAY = ("PENDING", "RUNNING")
_BIN = Path(sys.executable).parent
# A host that does not answer is given up after some ten seconds, instead of a minute.
_IMPATIENT = {
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_raylet_start_wait_time_s": "180",
    # Workers are nice to others by default; on a busy machine tests would wait for them.
    "RAY_worker_niceness": "0",
}


def missing() -> str | None:
    """Why such a cluster cannot be made here; None where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    tools = [tool for tool in ("ip", "unshare", "mount") if shutil.which(tool) is None]
    if tools:
        return f"{', '.join(tools)} not installed (Debian: iproute2, util-linux, mount)"
    name = f"rise-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


class Hosts:
    """The cluster: a head, workers, and a client from which jobs are submitted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.token = secrets.token_hex(32)
        self.address = f"http://{NETWORK}.{10 + HEAD}:8265"
        self._name = f"rise{os.getpid()}"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._workers, self._cut = 0, set[int]()
        self.storage.mkdir(parents=True)
        token_file = folder / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(self.token)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            **_IMPATIENT,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token_file),
            "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(_ROOT),
            "OMP_NUM_THREADS": "1",
        }

    def up(self, workers: int) -> None:
        """Switch, head, workers and client."""
        _ip("netns", "add", self._space("switch"))
        _ip("-n", self._space("switch"), "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._space("switch"), "link", "set", "bridge", "up")
        for number in (HEAD, CLIENT, *range(1, workers + 1)):
            self._wire(number)
        self._workers = workers
        self.start(HEAD)
        for number in range(1, workers + 1):
            self.start(number, wait=False)
        for number in range(1, workers + 1):
            self._wait_for(number)

    def start(self, number: int, *, wait: bool = True) -> None:
        """Switch a host on."""
        flags = ["--num-cpus=2", f'--resources={{"env_node": 1, "worker{number}": 1}}']
        if number == HEAD:
            flags = [
                *("--head", "--port=6379", "--num-cpus=1", '--resources={"learner_node": 1}'),
                *(f"--dashboard-host={_address(HEAD)}", "--include-dashboard=true"),
            ]
        else:
            flags.append(f"--address={_address(HEAD)}:6379")
        private = self.folder / f"host{number}"
        shutil.rmtree(private, ignore_errors=True)
        private.mkdir()
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            *(f"--node-ip-address={_address(number)}", "--disable-usage-stats"),
            *("--object-store-memory=200000000", *flags),
        ]
        # $0 is the folder that this host alone sees as /tmp/ray, $1 its name. The shell stays:
        # somebody has to be told of the end of processes that lost their parent.
        boot = (
            "mount -t tmpfs -o size=1g tmpfs /dev/shm && mkdir -p /tmp/ray && "
            'mount --bind "$0" /tmp/ray && hostname "$1" && shift && "$@" & wait $!'
        )
        with self._log(number).open("wb") as log:
            self._processes[number] = subprocess.Popen(
                [
                    *("ip", "netns", "exec", self._space(number)),
                    *("unshare", "--uts", "--pid", "--fork", "--kill-child=KILL"),
                    *("--mount", "--mount-proc"),
                    *("sh", "-c", boot, str(private), f"host{number}", *command),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
            )
        if wait:
            self._wait_for(number)

    def kill(self, number: int) -> None:
        """Pull a host's plug."""
        process = self._processes.pop(number, None)
        if process is None:
            return
        process.kill()
        process.wait()

    def cut(self, number: int) -> None:
        """Pull a host's cable; Ray does not take it back afterwards."""
        self._cut.add(number)
        _ip("-n", self._space("switch"), "link", "set", f"port{number}", "down")

    def repair(self) -> None:
        """Bring back the workers that were cut off or killed."""
        for number in sorted(self._cut):
            self.kill(number)
            _ip("-n", self._space("switch"), "link", "set", f"port{number}", "up")
        self._cut.clear()
        for number in range(1, self._workers + 1):
            process = self._processes.get(number)
            if process is None or process.poll() is not None:
                self.start(number)

    def down(self) -> None:
        """Switch everything off, and leave nothing behind."""
        for number in list(self._processes):
            self.kill(number)
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        for line in listed.splitlines():
            if line.startswith(f"{self._name}-"):
                _ip("netns", "del", line.split()[0])

    def processes(self, number: int, *words: str) -> list[psutil.Process]:
        """The processes of a host in whose command lines the words stand."""
        found = []
        for process in psutil.Process(self._processes[number].pid).children(recursive=True):
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words):
                found.append(process)
        return found

    def command(self, *arguments: str, **environment: str) -> dict[str, Any]:
        """What `subprocess` needs to run a program on the client."""
        return {
            "args": ["ip", "netns", "exec", self._space(CLIENT), *arguments],
            "env": {**self.environment, **environment},
        }

    def rise(
        self, *arguments: str, folder: Path, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `rise` on the client."""
        done = subprocess.run(
            **self.command(sys.executable, "-m", "rllib_rise.cli", *arguments, **environment),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check and done.returncode:
            raise AssertionError(f"rise {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}")
        return done

    def jobs(self) -> list[dict[str, Any]]:
        """What was submitted, as Ray tells of it."""
        return [job for job in self._ask("GET", "/api/jobs/") if job["type"] == "SUBMISSION"]

    def log(self, job_id: str) -> str:
        """A job's output."""
        return self._ask("GET", f"/api/jobs/{job_id}/logs")["logs"]

    def status(self, job_id: str) -> str:
        """A job's status."""
        return self._ask("GET", f"/api/jobs/{job_id}")["status"]

    def stop(self, job_id: str) -> None:
        """Ask a job to end."""
        self._ask("POST", f"/api/jobs/{job_id}/stop")

    def stop_jobs(self) -> None:
        """Stop what runs, and wait for its end."""
        deadline = time.monotonic() + 90
        asked: set[str] = set()
        while running := [j["submission_id"] for j in self.jobs() if j["status"] in _UNDER_WAY]:
            for job_id in {*running} - asked:
                self.stop(job_id)
                asked.add(job_id)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{running} do not end")
            time.sleep(0.5)

    def _ask(self, method: str, path: str) -> Any:
        """Ray's answer to a request from the client, in a process that starts at once."""
        script = (
            "import os, pathlib, sys, urllib.request as u; method, url = sys.argv[1:]; "
            "token = pathlib.Path(os.environ['RAY_AUTH_TOKEN_PATH']).read_text(); "
            "headers = {'Authorization': f'Bearer {token}'}; "
            "print(u.urlopen(u.Request(url, method=method, headers=headers)).read().decode())"
        )
        done = subprocess.run(
            **self.command(sys.executable, "-S", "-c", script, method, self.address + path),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{method} {path}: {done.stderr.strip().splitlines()[-1]}")
        return json.loads(done.stdout)

    def announce_end(self, number: int, *, seconds: int) -> None:
        """Tell Ray that a host will be taken away, as a cloud does of a spot instance."""
        script = (
            "import ray; ray.init(address='auto', logging_level='ERROR'); "
            f"print([n['NodeID'] for n in ray.nodes() if n['Alive'] and "
            f"n['NodeManagerAddress'] == {_address(number)!r}][0])"
        )
        inside = ["nsenter", "-t", str(self._inside(HEAD)), "-n", "-p", "-m", "-u"]
        node = subprocess.run(
            [*inside, sys.executable, "-c", script],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[-1]
        subprocess.run(
            [
                *(*inside, sys.executable, "-m", "ray.scripts.scripts", "drain-node"),
                *(f"--address={_address(HEAD)}:6379", "--node-id", node),
                *("--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test"),
                *("--deadline-remaining-seconds", str(seconds)),
            ],
            env=self.environment,
            check=True,
            capture_output=True,
        )

    def _inside(self, number: int) -> int:
        """A process within a host's namespaces."""
        return psutil.Process(self._processes[number].pid).children()[0].pid

    def _wire(self, number: int) -> None:
        space, switch = self._space(number), self._space("switch")
        _ip("netns", "add", space)
        _ip(
            *("link", "add", "eth0", "netns", space),
            *("type", "veth", "peer", "name", f"port{number}", "netns", switch),
        )
        _ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
        _ip("-n", space, "addr", "add", f"{_address(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", space, "link", "set", device, "up")

    def _wait_for(self, number: int, seconds: float = 120) -> None:
        log, deadline = self._log(number), time.monotonic() + seconds
        while "Ray runtime started" not in log.read_text(errors="replace"):
            over = self._processes[number].poll() is not None
            if over or time.monotonic() > deadline:
                raise RuntimeError(f"host {number} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)

    def _space(self, name: int | str) -> str:
        return f"{self._name}-{name}"

    def _log(self, number: int) -> Path:
        return self.folder / f"host{number}.log"


def _address(number: int) -> str:
    return f"{NETWORK}.{10 + number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
