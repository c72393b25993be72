"""Names of sockets, and their owners."""

import socket
from pathlib import Path

import pytest

from driver.kubelet.sockets import MAX_PATH, abandoned_sockets, sockets
from kube.errors import ConfigError

UID = "7cd5f8fa-c1bf-4d19-b1fa-88c13677c5d9"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")


def test_sockets_are_called_after_the_pod() -> None:
    sockets_ = sockets("gpu.example.com", UID, REGISTRY, Path("/var/lib/kubelet/plugins/x"))

    assert REGISTRY / f"gpu.example.com-{UID}-reg.sock" == sockets_.registration
    assert Path(f"/var/lib/kubelet/plugins/x/dra-{UID}.sock") == sockets_.service


def test_without_a_pod_there_is_one_of_each() -> None:
    sockets_ = sockets("gpu.example.com", "", REGISTRY, Path("/x"))

    assert REGISTRY / "gpu.example.com-reg.sock" == sockets_.registration
    assert Path("/x/dra.sock") == sockets_.service


@pytest.mark.parametrize("length", range(1, 64, 7))
def test_a_path_is_never_too_long(length: int) -> None:
    driver = "d" * length
    folder = REGISTRY.parent / "plugins" / driver

    sockets_ = sockets(driver, UID, REGISTRY, folder)

    assert len(str(sockets_.registration)) <= MAX_PATH
    assert len(str(sockets_.service)) <= MAX_PATH
    assert sockets_.registration.name.startswith("d") or length > 50


def test_shortened_names_of_two_pods_differ() -> None:
    first, second = (sockets("d" * 63, f"{UID}{n}", REGISTRY, Path("/x")) for n in "ab")

    assert first.registration != second.registration


def test_a_folder_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 107 bytes"):
        sockets("gpu.example.com", UID, Path("/" + "x" * 100), Path("/x"))


def test_only_sockets_without_a_listener_are_abandoned(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as dead:
        listening.bind(str(tmp_path / "gpu-1.sock"))
        listening.listen()
        dead.bind(str(tmp_path / "gpu-2.sock"))
    # Of the first the file is still there, but nobody listens any more, either.
    with socket.socket(socket.AF_UNIX) as again:
        again.bind(str(tmp_path / "gpu-3.sock"))
        again.listen()
        (tmp_path / "gpu-4.sock").write_text("a file")

        socket_paths = abandoned_sockets(tmp_path, "gpu-")

    assert ["gpu-1.sock", "gpu-2.sock"] == [path.name for path in socket_paths]
    assert () == abandoned_sockets(tmp_path / "missing", "gpu-")
