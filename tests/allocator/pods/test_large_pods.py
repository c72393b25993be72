"""Pods with thousands of containers, each with a name of a resource of its own: users choose both numbers.

The sidecar, the controllers and the webhook sum up such a pod on the thread that serves everybody.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from allocator.nodes.pod_requests import pod_request
from allocator.pods.extended_resource_claim import extended_resource_claim
from kube.api.core import Pod
from kube.api.meta import convert
from quotas.resource_quotas.usage import pod_usage

CONTAINERS: Final = 12_000
"""More than fit into an object that etcd stores."""
MAX_CPU_S: Final = 1.5
"""Ten times as much as a slow machine needs; a sum that grows with the square takes more than three seconds."""
MAPPED: Final = "example.com/gpu"


def large_pod(key: Callable[[int], str], is_sidecar: Callable[[int], bool]) -> Pod:
    init: list[dict[str, Any]] = [
        {
            "name": f"c{number}",
            "resources": {"limits": {key(number): "1"}},
            **({"restartPolicy": "Always"} if is_sidecar(number) else {}),
        }
        for number in range(CONTAINERS)
    ]
    return convert({"spec": {"containers": [{"name": "main"}], "initContainers": init}}, Pod)


def claim(pod: Pod) -> None:
    extended_resource_claim(pod, {MAPPED}, {MAPPED: "gpu"})


@pytest.mark.parametrize(
    ("summed", "key", "is_sidecar"),
    [
        pytest.param(pod_request, "example.com/{}", lambda _: True, id="requests of sidecars"),
        pytest.param(
            pod_request, "example.com/{}", lambda n: n % 2 == 0, id="requests beside sidecars"
        ),
        pytest.param(pod_usage, "example.com/{}", lambda _: False, id="usage of init containers"),
        pytest.param(pod_usage, "example.com/{}", lambda n: n % 2 == 0, id="usage beside sidecars"),
        pytest.param(claim, MAPPED, lambda n: n > CONTAINERS // 2, id="devices of a class"),
    ],
)
def test_a_pod_is_summed_up_in_time_that_grows_with_its_length(
    summed: Callable[[Pod], object], key: str, is_sidecar: Callable[[int], bool]
) -> None:
    pod = large_pod(key.format, is_sidecar)
    began_s = time.process_time()

    summed(pod)

    assert time.process_time() - began_s < MAX_CPU_S
