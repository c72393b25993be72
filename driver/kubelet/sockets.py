"""The sockets of the driver, and those that a predecessor left behind.

Several instances of the driver run on one node while it is updated, so names hold the uid of the pod. A
path of a socket has at most 107 bytes; what would be longer is shortened to a hash.

Source: k8s.io/dynamic-resource-allocation v0.37.1, kubeletplugin/draplugin.go and endpoint.go.
"""

import hashlib
import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from kube.errors import ConfigError

MAX_PATH: Final = 107
"""Bytes of sockaddr_un.sun_path but the null character at its end."""
_DIGEST: Final = 16
_TIMEOUT_S: Final = 1.0


class Sockets(msgspec.Struct, frozen=True, kw_only=True):
    """The sockets of one instance.

    Attributes:
        registration: The socket in the folder that the kubelet watches.
        service: The socket on which the kubelet calls the driver.
    """

    registration: Path
    service: Path


def sockets(driver: str, pod_uid: str, registry: Path, folder: Path) -> Sockets:
    """Return the sockets of an instance.

    Args:
        pod_uid: The UID of the instance's pod; empty for an instance outside a pod, which has no
            other beside it.
        registry: The kubelet's folder of registration sockets.
        folder: The driver's own.

    Raises:
        ConfigError: A folder's path is too long for any socket.
    """
    suffix = f"-{pod_uid}" if pod_uid else ""
    return Sockets(
        registration=_short(registry, f"{driver}{suffix}-reg.sock", f"{driver}-"),
        service=_short(folder, f"dra{suffix}.sock", "dra-"),
    )


def _short(folder: Path, name: str, prefix: str) -> Path:
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    for candidate in (name, f"{prefix}{digest}.sock", f"{digest}.sock"):
        path = folder / candidate
        if len(os.fsencode(path)) <= MAX_PATH:
            return path
    raise ConfigError(f"{folder}: sockets in it would have more than {MAX_PATH} bytes")


def abandoned_sockets(folder: Path, prefix: str) -> tuple[Path, ...]:
    """Return the sockets in a folder that no process listens on.

    Args:
        prefix: The prefix of the sockets' names, so that others' sockets are left alone.
    """
    paths = sorted(folder.glob(f"{prefix}*.sock")) if folder.is_dir() else []
    return tuple(path for path in paths if path.is_socket() and not _listens(path))


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # It cannot be known, so it is left alone.
    return True
