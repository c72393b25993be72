"""Claims that select nothing: `check` and `why` name the class or the attribute to write."""

from typing import Final

import pytest

from testing.command import EXAMPLES, drawbridge

SHARED: Final = EXAMPLES / "cluster" / "cluster.yaml"
CLASS: Final = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: vfio.gpu.nvidia.com}
spec:
  selectors:
  - cel: {expression: 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "vfio"'}
---"""
JOB: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: whole}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: CLASS
          SELECTORS
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: train}
spec:
  replicas: 2
  selector: {matchLabels: {app: train}}
  template:
    metadata: {labels: {app: train}}
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: whole}]
      containers:
      - name: main
        image: a
        resources: {claims: [{name: gpu}]}
"""


def words(verb: str, manifest: str) -> str:
    target = () if verb == "check" else ("deploy/train",)
    result = drawbridge(
        verb, *target, "-f", "-", "--snapshot", SHARED, stdin=manifest, COLUMNS="2000"
    )
    return result.stdout


def job(of_class: str, selector: str = "") -> str:
    selectors = f"selectors: [{{cel: {{expression: '{selector}'}}}}]" if selector else "count: 1"
    return JOB.replace("CLASS", of_class).replace("SELECTORS", selectors)


@pytest.mark.parametrize("verb", ["check", "why"])
def test_a_class_without_devices_is_told_with_those_of_its_driver(verb: str) -> None:
    text = words(verb, CLASS + job("vfio.gpu.nvidia.com"))

    assert 'no published device is of class "vfio.gpu.nvidia.com"' in text
    assert "of the same driver, with devices that serve the request: write gpu.nvidia.com (" in text
    assert 'devices with type "gpu")' in text
    mended = words("why", CLASS + job("gpu.nvidia.com"))
    assert "all 2 pods get a place" in mended


@pytest.mark.parametrize("verb", ["check", "why"])
def test_a_class_whose_devices_do_not_serve_the_request_is_not_told(verb: str) -> None:
    text = words(verb, CLASS + job("vfio.gpu.nvidia.com", "false"))

    assert "write gpu.nvidia.com" not in text
    if verb == "check":
        assert "install its driver, or use a class with devices" in text


@pytest.mark.parametrize("verb", ["check", "why"])
def test_an_attribute_that_no_device_has_is_told_with_those_of_the_class(verb: str) -> None:
    text = words(verb, job("gpu.nvidia.com", 'device.attributes["gpu.nvidia.com"].position == 2'))

    names = text[text.index("known names: ") :].splitlines()[0]
    assert '"resource.kubernetes.io/numaNode"' in names
    assert '"uuid"' in names
    assert '"profile"' not in names, "only MIG devices have it"
    assert "..." not in names


def test_a_claim_has_one_name_in_all_of_an_answer() -> None:
    text = words("why", job("gpu.nvidia.com", 'device.attributes["gpu.nvidia.com"].position == 2'))

    assert "claim default/train-0-gpu, request gpu" in text
    assert "claim default/gpu, request gpu" not in text
