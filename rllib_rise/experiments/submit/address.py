"""Where a cluster takes jobs, and whether it is safe to ask it there.

Whoever may submit a job may run any program on the cluster. Ray asks for a token; over plain HTTP
it can be read on the way.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from rllib_rise.errors import ConfigError

_TUNNEL = "open a tunnel (ssh -L 8265:localhost:8265 HEAD) and give http://localhost:8265"


def allow_token() -> bool:
    """Whether a token is at hand; if so, Ray is told to send it.

    Must be called before Ray is imported, which reads its settings once.
    """
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode is None and _token_exists():
        os.environ["RAY_AUTH_MODE"] = mode = "token"
    return mode == "token" and _token_exists()


def _token_exists() -> bool:
    if os.environ.get("RAY_AUTH_TOKEN"):
        return True
    name = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(name) if name else Path.home() / ".ray" / "auth_token"
    return path.is_file() and bool(path.read_text().strip())


def checked_address(address: str, *, token: bool) -> tuple[str, list[str]]:
    """The address as a URL, and what there is to warn of.

    Args:
        address: Of the cluster's dashboard, e.g. http://127.0.0.1:8265.
        token: Whether a token will be sent.
    """
    url = address if "://" in address else f"http://{address}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"--address {address}: give the address of the cluster's dashboard, which takes jobs, "
            "e.g. http://127.0.0.1:8265"
        )
    if parts.username or parts.password:
        raise ConfigError(
            "--address: no passwords in an address, everybody sees them in the list of processes; "
            "Ray's token is read from a file, see RAY_AUTH_TOKEN_PATH"
        )
    if parts.scheme == "https" or _is_loopback(parts.hostname):
        return url, []
    if not token:
        raise ConfigError(
            f"--address {address}: plain HTTP to another machine, and no token. Whoever reaches "
            f"that port can run anything there. Have the cluster ask for a token "
            f"(cluster/README.md) and set RAY_AUTH_TOKEN_PATH, or {_TUNNEL}"
        )
    return url, [
        f"{address} is plain HTTP: the token can be read on the way. Use https, or {_TUNNEL}"
    ]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
