"""The advice of `drawbridge why` for requests without a common node."""

import json
from pathlib import Path
from typing import Final

import pytest

from testing.command import CLUSTER, drawbridge

EFA: Final = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: efa.networking.k8s.aws}
spec: {selectors: [{cel: {expression: "device.driver == 'efa.networking.k8s.aws'"}}]}
---
apiVersion: v1
kind: Node
metadata: {name: efa-0}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: efa-0-nics}
spec:
  driver: efa.networking.k8s.aws
  nodeName: efa-0
  pool: {name: efa-0, generation: 1, resourceSliceCount: 1}
  devices: [{name: nic-0}]
"""
KEYS: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: both}
spec:
  containers:
  - {name: main, image: a, resources: {limits: {nvidia.com/mig-1g.5gb: 1, vpc.amazonaws.com/efa: 1}}}
"""
CLAIM: Final = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: two}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.example.com}}
    - {name: nic, exactly: {deviceClassName: efa.networking.k8s.aws}}
---
apiVersion: v1
kind: Pod
metadata: {name: both}
spec:
  resourceClaims: [{name: two, resourceClaimName: two}]
  containers:
  - {name: main, image: a, resources: {claims: [{name: two}]}}
"""


@pytest.mark.parametrize(
    ("manifest", "first", "second", "other_node"),
    [
        (KEYS, "nvidia.com/mig-1g.5gb", "vpc.amazonaws.com/efa", "mig-0"),
        (
            CLAIM,
            "request gpu of claim default/two",
            "request nic of claim default/two",
            "example-0",
        ),
    ],
    ids=["keys", "claims"],
)
def test_why_says_which_node_has_which_of_two_requests(
    manifest: str, first: str, second: str, other_node: str, tmp_path: Path
) -> None:
    snapshot = tmp_path / "efa.yaml"
    snapshot.write_text(EFA)
    call = ("why", "pod", "both", "-f", "-", "--snapshot", CLUSTER, "-o", "json")

    advice = json.loads(drawbridge(*call, "--snapshot", snapshot, stdin=manifest).stdout)["advice"]
    without_nodes = json.loads(drawbridge(*call, stdin=manifest).stdout)["advice"]

    assert [
        (
            f"drop {first}, or drop {second} (either is enough), or request them in pods of their own: no node has "
            f"both; node efa-0 lacks only {first}, node {other_node} lacks only {second}"
        )
    ] == [sentence for sentence in advice if sentence.startswith("drop ")]
    assert not [sentence for sentence in without_nodes if sentence.startswith("drop ")]


def test_why_names_the_key_whose_change_keeps_all_that_was_requested() -> None:
    manifest = """\
apiVersion: v1
kind: Pod
metadata: {name: slices}
spec:
  containers:
  - {name: tokenizer, image: a, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}
  - {name: model, image: a, resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}
"""
    call = ("why", "pod", "slices", "-f", "-", "--snapshot", CLUSTER, "-o", "json")

    answer = json.loads(drawbridge(*call, stdin=manifest).stdout)

    assert answer["simulation"]["closestFit"] == (
        "write nvidia.com/mig-1g.10gb for nvidia.com/mig-1g.5gb to fit node mig-1"
    )
