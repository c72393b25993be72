"""A GPU of NVIDIA, from its slice to a program of CUDA inside a container: `pytest -m gpu`.

Only on a machine with one. The GPU is discovered, shared, reserved by kube-scheduler, and prepared for
containers of a real kubelet and containerd; a program in them uses it.
"""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from e2e.access import Access, Object
from e2e.node.claims import claim, pod_with, request
from e2e.node.cuda_image import CUDA_IMAGE, missing, write_cuda_image
from e2e.node.driver import NodeDriver
from e2e.node.node import Node, pod_on
from e2e.node.pods import TIMEOUT_S, apply, delete_pods
from kube.quantity import Quantity

pytestmark = pytest.mark.gpu
SUM: Final = "sum 7340032"
"""The line of the program about a GPU that works: 2**20 times 7."""


class RealGpu(NamedTuple):
    """A GPU as nvidia-smi tells it; its memory in MiB."""

    uuid: str
    name: str
    memory_mib: int


@pytest.fixture(scope="module")
def gpus() -> list[RealGpu]:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no GPU of NVIDIA on this machine: there is no nvidia-smi")
    query = ("--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")
    stdout = subprocess.run(
        ["nvidia-smi", *query], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(", ") for line in stdout.splitlines())
    return [RealGpu(uuid, name, int(memory)) for uuid, name, memory in rows]


@pytest.fixture(scope="module")
def cuda_image(
    gpus: list[RealGpu], real_node: Node, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if why := missing():
        pytest.skip(why)
    real_node.import_image(write_cuda_image(tmp_path_factory.mktemp("cuda")))


@pytest.fixture(scope="module")
def gpu_driver(cluster: Access, real_node: Node, gpus: list[RealGpu]) -> Iterator[NodeDriver]:
    """The driver with discovered GPUs, for shares of them."""
    settings = {"discover": ["gpus"], "shareGpus": True, "bootIdFile": str(real_node.boot_id)}
    driver = NodeDriver(cluster, real_node, settings=settings)
    driver.install()
    driver.declare(())
    driver.start()
    driver.wait_ready()
    cluster.wait_until(lambda: len(driver.published()) >= len(gpus), "the GPUs are published")
    yield driver
    driver.stop()
    driver.uninstall()


def probe(node: Node, name: str, *claims: str, stays: bool = False) -> Object:
    """A pod with the program that uses the GPUs of these claims; it ends, or stays until it is deleted."""
    arguments = ("stay",) if stays else ()
    pod = pod_with(node.name, name, claims, *arguments) if claims else pod_on(node.name, name)
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["containers"][0] |= {"image": CUDA_IMAGE, "args": list(arguments)}
    return pod


def lines(cluster: Access, namespace: str, pod: str, *, until: str) -> set[str]:
    """Return the output of the program in a pod, once it has a line with this beginning."""
    printed: set[str] = set()

    def is_there() -> bool:
        text = cluster.kubectl("logs", "-n", namespace, pod, check=False).stdout
        printed.update(text.splitlines())
        return any(line.startswith(until) for line in printed)

    cluster.wait_until(is_there, f"{pod} prints {until}", timeout_s=TIMEOUT_S)
    return printed


def share(memory: str) -> Any:
    return request(capacity={"memory": memory, "cores": "25"})


def test_its_slice_tells_what_the_vendor_tells(gpu_driver: NodeDriver, gpus: list[RealGpu]) -> None:
    published = {
        device["attributes"]["uuid"]["string"]: device for device in gpu_driver.published().values()
    }

    assert {gpu.uuid for gpu in gpus} == set(published)
    for gpu in gpus:
        device = published[gpu.uuid]
        memory = Quantity(device["capacity"]["memory"]["value"])
        assert gpu.name == device["attributes"]["productName"]["string"]
        assert Quantity(f"{gpu.memory_mib}Mi") <= memory < Quantity(f"{gpu.memory_mib + 1}Mi")
    assert {} == gpu_driver.taints()


@pytest.mark.usefixtures("cuda_image")
def test_two_containers_that_share_it_compute_and_one_without_a_claim_has_none(
    cluster: Access, namespace: str, real_node: Node, gpu_driver: NodeDriver, gpus: list[RealGpu]
) -> None:
    apply(
        cluster,
        namespace,
        *(claim(name, share("10Gi")) for name in ("a", "b")),
        *(probe(real_node, name, name, stays=True) for name in ("a", "b")),
        probe(real_node, "without"),
    )

    shares = [lines(cluster, namespace, name, until="sum") for name in ("a", "b")]
    nothing = lines(cluster, namespace, "without", until="cuInit")

    known = {f"gpu {gpu.uuid}" for gpu in gpus}
    for printed in shares:
        assert SUM in printed
        (used,) = (line for line in printed if line.startswith("gpu "))
        assert used in known
        assert {"node /dev/nvidiactl", "node /dev/nvidia-uvm"} <= printed
    assert not [line for line in nothing if line.startswith(("node", "gpu"))]
    assert 2 == len(gpu_driver.checkpoint())
    delete_pods(cluster, namespace, gpu_driver, "a", "b", "without")


@pytest.mark.usefixtures("cuda_image")
def test_a_program_that_fails_does_not_taint_the_gpu(
    cluster: Access, namespace: str, real_node: Node, gpu_driver: NodeDriver
) -> None:
    """A write outside its memory is an Xid of the program, not of the GPU."""
    pod = probe(real_node, "wild", "a")
    pod["spec"]["containers"][0]["args"] = ["wild"]
    apply(cluster, namespace, claim("a", share("10Gi")), pod)

    printed = lines(cluster, namespace, "wild", until="cuCtxSynchronize: error")

    assert {"cuCtxSynchronize: error 700"} <= printed
    assert {} == gpu_driver.taints()
    assert 0.0 == gpu_driver.metric("drawbridge_driver_inventory_broken")
    delete_pods(cluster, namespace, gpu_driver, "wild")
