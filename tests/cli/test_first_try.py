"""Mistakes in manifests, mended at the first try by the words of `check` or `simulate`.

Each is a mistake that a person made; the fix is applied as its words say, and nothing else is changed.
"""

import json
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from testing.command import EXAMPLES, drawbridge

SHARED: Final = EXAMPLES / "cluster" / "cluster.yaml"
WITH_NICS: Final = EXAMPLES / "koordinator" / "cluster.yaml"

KOORDINATOR: Final = """
apiVersion: v1
kind: Pod
metadata: {name: tune}
spec:
  schedulerName: koord-scheduler
  containers:
  - name: main
    image: a
    resources:
      requests: {koordinator.sh/gpu-core: 150, koordinator.sh/gpu-memory-ratio: 150}
      limits: {koordinator.sh/gpu-core: 150, koordinator.sh/gpu-memory-ratio: 150}
"""
BOTH: Final = """
apiVersion: v1
kind: Pod
metadata: {name: tune}
spec:
  containers:
  - name: main
    image: a
    resources:
      requests: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi}
      limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi}
"""
VOLCANO: Final = """
apiVersion: v1
kind: Pod
metadata: {name: tune}
spec:
  schedulerName: volcano
  containers:
  - name: main
    image: a
    resources: {limits: {volcano.sh/vgpu-number: 2, volcano.sh/vgpu-memory: 16000, volcano.sh/vgpu-cores: 150}}
"""
JOINT: Final = """
apiVersion: batch/v1
kind: Job
metadata: {name: nccl}
spec:
  template:
    metadata:
      annotations:
        scheduling.koordinator.sh/device-joint-allocate: |
          {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SameNUMANode"}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: a
        resources: {limits: {koordinator.sh/gpu: 200, koordinator.sh/rdma: 200}}
"""
SCOPED: Final = "scheduling.koordinator.sh/device-joint-allocate"
ONE_OF_EACH: Final = """
apiVersion: v1
kind: Pod
metadata:
  name: nccl
  annotations:
    scheduling.koordinator.sh/device-joint-allocate: '{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}'
spec:
  containers:
  - name: main
    image: a
    resources: {limits: {koordinator.sh/gpu: 100, koordinator.sh/rdma: 100}}
"""
MODEL: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: big}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.nvidia.com
          selectors:
          - cel: {expression: 'CONDITION'}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: big}]
  containers:
  - name: main
    image: a
    resources: {claims: [{name: gpu}]}
"""
BY_NAME: Final = MODEL.replace(
    "CONDITION", 'device.attributes["gpu.nvidia.com"].productName == "H100"'
)
BY_SIZE: Final = MODEL.replace(
    "CONDITION", 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'
)
DEPLOYMENT: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: a
        resources: {requests: {cpu: 100}, limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 10000}}
"""
ONE_ROOT: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: direct}
spec:
  spec:
    devices:
      requests:
      - {name: gpus, exactly: {deviceClassName: hami-core-gpu.project-hami.io, count: 4}}
      - {name: nic, exactly: {deviceClassName: dranet}}
      constraints:
      - {requests: [gpus, nic], matchAttribute: resource.kubernetes.io/pcieRoot}
---
apiVersion: v1
kind: Pod
metadata: {name: reduce}
spec:
  resourceClaims: [{name: d, resourceClaimTemplateName: direct}]
  containers:
  - {name: main, image: a, resources: {claims: [{name: d}]}}
"""
LABELLED: Final = """
apiVersion: v1
kind: Pod
metadata: {name: ocr}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
  containers:
  - name: main
    image: a
    resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}}
"""
MIG_AND_SHARE: Final = """
apiVersion: v1
kind: Pod
metadata: {name: rank}
spec:
  containers:
  - name: main
    image: a
    resources: {limits: {nvidia.com/mig-1g.10gb: 1, nvidia.com/gpumem: 4000, nvidia.com/gpucores: 20}}
"""


SIDECAR: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  replicas: 1
  selector: {matchLabels: {app: serve}}
  template:
    metadata: {labels: {app: serve}}
    spec:
      initContainers:
      - name: syncer
        image: a
        restartPolicy: Always
        resources: {limits: {nvidia.com/gpu: 1}}
      containers:
      - name: server
        image: a
        resources: {limits: {nvidia.com/gpu: 4}}
"""


class Mistake(NamedTuple):
    """A manifest with a mistake.

    Attributes:
        fixes: The words of a fix in the output, with the text of the manifest that they replace and
            its replacement.
    """

    name: str
    snapshot: object
    manifest: str
    fixes: tuple[tuple[str, str, str], ...]


MISTAKES: Final = (
    Mistake(
        "a wrong unit in limits and requests",
        SHARED,
        BOTH,
        (("write 8192 for 8Gi; write the same in requests", "gpumem: 8Gi", "gpumem: 8192"),),
    ),
    Mistake(
        "the scheduler of a legacy system hides no other fault",
        WITH_NICS,
        KOORDINATOR,
        (
            ("set schedulerName to default-scheduler", "koord-scheduler\n", "default-scheduler\n"),
            (
                "write koordinator.sh/gpu-memory-ratio: 200 for 2 GPUs, in limits and requests",
                "gpu-memory-ratio: 150",
                "gpu-memory-ratio: 200",
            ),
        ),
    ),
    Mistake(
        "the scheduler of Volcano hides no other fault",
        SHARED,
        VOLCANO,
        (
            ("set schedulerName to default-scheduler", "volcano\n", "default-scheduler\n"),
            ("write 75 if 150 is the sum of all 2", "vgpu-cores: 150", "vgpu-cores: 75"),
        ),
    ),
    Mistake(
        "a scope that does not exist",
        WITH_NICS,
        JOINT,
        (('remove "requiredScope"', ', "requiredScope": "SameNUMANode"', ""),),
    ),
    Mistake(
        "more NICs than one PCIe root has",
        WITH_NICS,
        JOINT.replace("SameNUMANode", "SamePCIe"),
        (("write koordinator.sh/rdma: 100 to fit node", "rdma: 200", "rdma: 100"),),
    ),
    Mistake(
        "a model that is not the whole name",
        SHARED,
        BY_NAME,
        (
            (
                'published are productName: "NVIDIA H100 80GB HBM3" [',
                '"H100"',
                '"NVIDIA H100 80GB HBM3"',
            ),
        ),
    ),
    Mistake(
        "a bound in a selector",
        SHARED,
        BY_SIZE,
        (("write 81559Mi for 80Gi in selector", '"80Gi"', '"81559Mi"'),),
    ),
    Mistake(
        "CPU for fewer pods",
        SHARED,
        DEPLOYMENT,
        (("request cpu 28 or less to get node", "cpu: 100", "cpu: 28"),),
    ),
    Mistake(
        "a constraint that half of the devices satisfy",
        WITH_NICS,
        ONE_ROOT,
        (("request 2 devices in request gpus to fit node", "count: 4", "count: 2"),),
    ),
    Mistake(
        "a label that no node has",
        SHARED,
        LABELLED,
        (
            (
                "remove nvidia.com/gpu.product from nodeSelector",
                "  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}\n",
                "",
            ),
        ),
    ),
    Mistake(
        "a MIG device and a share, without the share",
        SHARED,
        MIG_AND_SHARE,
        (
            (
                "drop nvidia.com/gpucores and nvidia.com/gpumem, or drop nvidia.com/mig-1g.10gb",
                ", nvidia.com/gpumem: 4000, nvidia.com/gpucores: 20",
                "",
            ),
        ),
    ),
    Mistake(
        "a MIG device and a share, without the MIG device",
        SHARED,
        MIG_AND_SHARE,
        (("or drop nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb: 1, ", ""),),
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_mended_by_the_words_about_it(mistake: Mistake) -> None:
    outputs, _ = _outputs(mistake.snapshot, mistake.manifest)
    mended = mistake.manifest
    for words, old, new in mistake.fixes:
        assert words in outputs, outputs
        assert old in mended
        mended = mended.replace(old, new)

    outputs, exit_codes = _outputs(mistake.snapshot, mended)

    assert exit_codes == (0, 0), outputs
    assert "warning:" not in outputs


def _outputs(snapshot: object, manifest: str) -> tuple[str, tuple[int, int]]:
    """Return all words of check and simulate about a manifest, and their exit statuses."""
    call = ("-f", "-", "--snapshot", snapshot)
    check = drawbridge("check", *call, "--severity", "warning", stdin=manifest)
    simulate = drawbridge("simulate", *call, stdin=manifest, COLUMNS="500")
    words = f"{check.stdout}{simulate.stderr}{simulate.stdout}"
    return words, (check.exit_code, simulate.exit_code)


def test_of_two_containers_either_may_request_less(tmp_path: Path) -> None:
    """No class maps the key, so that it is translated."""
    snapshot = tmp_path / "cluster.yaml"
    lines = SHARED.read_text().splitlines(keepends=True)
    snapshot.write_text("".join(line for line in lines if "extendedResourceName" not in line))

    outputs, _ = _outputs(snapshot, SIDECAR)
    fixed = drawbridge("fix", "-f", "-", "--snapshot", snapshot, stdin=SIDECAR)

    assert (
        "nvidia.com/gpu is requested as 1 in container syncer + 4 in container server: no node"
        in outputs
    )
    assert (
        "write nvidia.com/gpu: 3 in container server to fit node nvidia-0, "
        "or drop nvidia.com/gpu in container syncer [" in outputs
    )
    assert (fixed.exit_code, fixed.stdout) == (1, ""), "people choose"
    dropped = "        resources: {limits: {nvidia.com/gpu: 1}}\n"
    for old, new in (("gpu: 4", "gpu: 3"), (dropped, "")):
        check = drawbridge(
            "check", "-f", "-", "--snapshot", snapshot, stdin=SIDECAR.replace(old, new)
        )
        assert check.exit_code == 0, check.stdout


def test_a_choice_of_devices_is_reported_in_the_key_that_made_it() -> None:
    pod = LABELLED.replace("  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}\n", "")
    keys = "nvidia.com/gpu: 1, nvidia.com/gpumem: 1000"
    outputs, _ = _outputs(SHARED, pod.replace(keys, "nvidia.com/mig-7g.80gb: 1"))

    words = "write another key for nvidia.com/mig-7g.80gb (published are 1g.5gb: 4, 2g.10gb: 2, 3g.20gb: 2)"
    assert f"{words} to fit node mig-0" in outputs
    assert "drop selector" not in outputs


def test_a_similar_mig_profile_is_reported_with_the_key_to_write() -> None:
    pod = LABELLED.replace("  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}\n", "")
    wrong = pod.replace("nvidia.com/gpu: 1, nvidia.com/gpumem: 1000", "nvidia.com/mig-4g.40gb: 1")
    outputs, _ = _outputs(SHARED, wrong)
    _, exit_codes = _outputs(SHARED, wrong.replace("4g.40gb", "3g.40gb"))

    assert "write nvidia.com/mig-3g.40gb for nvidia.com/mig-4g.40gb to fit node mig-1" in outputs
    assert "write nvidia.com/mig-3g.40gb: 1 [selectorMatchesNothing]" in outputs
    assert exit_codes == (0, 0)


def test_chips_that_a_node_gives_only_together_are_reported_with_their_number() -> None:
    snapshot = EXAMPLES / "accelerators" / "cluster.yaml"
    limits = VOLCANO[VOLCANO.index("{limits: ") :].strip()
    manifest = VOLCANO.replace("  schedulerName: volcano\n", "")
    three = manifest.replace(limits, "{limits: {google.com/tpu: 3}}")
    outputs, _ = _outputs(snapshot, three)
    _, exit_codes = _outputs(snapshot, three.replace("tpu: 3", "tpu: 4"))

    assert "write google.com/tpu: 4 to fit node tpu-1" in outputs
    assert "published numbers are 4, 8; write google.com/tpu: 4 [selectorMatchesNothing]" in outputs
    assert exit_codes == (0, 0)


@pytest.mark.parametrize(
    ("key", "count", "most"),
    [
        ("aws.amazon.com/neuron", 20, 16),
        ("aws.amazon.com/neuron", 40, 16),
        ("rebellions.ai/ATOM", 40, 2),
    ],
    ids=["of alternatives", "of several claims, one with alternatives", "of several claims"],
)
def test_devices_that_are_divided_are_reported_in_the_key(key: str, count: int, most: int) -> None:
    snapshot = EXAMPLES / "accelerators" / "cluster.yaml"
    limits = VOLCANO[VOLCANO.index("{limits: ") :].strip()
    manifest = VOLCANO.replace("  schedulerName: volcano\n", "")
    outputs, _ = _outputs(snapshot, manifest.replace(limits, f"{{limits: {{{key}: {count}}}}}"))
    _, exit_codes = _outputs(snapshot, manifest.replace(limits, f"{{limits: {{{key}: {most}}}}}"))

    assert f"write {key}: {most} to fit node" in outputs
    assert "in the claim's units" not in outputs
    assert exit_codes == (0, 0)


def test_a_constraint_of_an_annotation_is_dropped_where_it_was_written(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    head, *slices = WITH_NICS.read_text(encoding="utf-8").split("driver: dra.net")
    # Each NIC is below a PCIe root without GPUs.
    apart = (text.replace("string: pci0000:", "string: pci0001:", 4) for text in slices)
    cluster.write_text("driver: dra.net".join((head, *apart)), encoding="utf-8")

    outputs, _ = _outputs(cluster, ONE_OF_EACH)

    words = f"remove requiredScope from annotation {SCOPED} to fit node hami-rdma-0"
    assert outputs.count(words) == 3, outputs
    assert "drop matchAttribute" not in outputs


def test_a_scope_is_dropped_instead_of_smaller_requests(tmp_path: Path) -> None:
    # Below each PCIe root one GPU of two is in use.
    results = [
        {
            "request": "gpus",
            "driver": "hami-core-gpu.project-hami.io",
            "pool": node,
            "device": f"hami-gpu-{number}",
            "shareID": f"5f3c1d2e-0110-4000-8000-0000000000{number}{node[-1]}",
            "consumedCapacity": {"cores": "100", "memory": "80Gi"},
        }
        for node in ("hami-rdma-0", "hami-rdma-1")
        for number in range(0, 8, 2)
    ]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "used", "namespace": "default"},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    cluster = tmp_path / "cluster.yaml"
    text = WITH_NICS.read_text(encoding="utf-8")
    cluster.write_text(f"{text}\n---\n{json.dumps(claim)}\n", encoding="utf-8")
    two = ONE_OF_EACH.replace("gpu: 100", "gpu: 200")

    outputs, _ = _outputs(cluster, two)
    _, fewer = _outputs(cluster, two.replace("gpu: 200", "gpu: 100"))
    _, unscoped = _outputs(cluster, two.replace(', "requiredScope": "SamePCIe"', ""))

    smaller = "write koordinator.sh/gpu: 100 to fit node hami-rdma-0"
    scope = f"remove requiredScope from annotation {SCOPED} to fit node hami-rdma-0"
    assert outputs.count(f"{smaller}, or {scope}") == 2, outputs
    assert fewer == unscoped == (0, 0)


APART: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mix}
spec:
  spec:
    devices:
      requests:
      - {name: whole, exactly: {deviceClassName: gpu.nvidia.com}}
      - {name: slice, exactly: {deviceClassName: mig.nvidia.com}}
      - {name: other, exactly: {deviceClassName: mig.nvidia.com}}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: mix}]
  containers:
  - {name: main, image: a, resources: {claims: [{name: gpu}]}}
"""


def test_of_requests_that_no_node_has_together_those_are_named_that_can_be_dropped() -> None:
    whole = "      - {name: whole, exactly: {deviceClassName: gpu.nvidia.com}}\n"
    other = "      - {name: other, exactly: {deviceClassName: mig.nvidia.com}}\n"
    outputs, _ = _outputs(SHARED, APART)
    outputs_of_two, _ = _outputs(SHARED, APART.replace(other, ""))
    _, exit_codes = _outputs(SHARED, APART.replace(whole, ""))

    alone = "drop request whole, or request it in a pod of its own: no node has all of them"
    either = (
        "drop request whole, or drop request slice (either is enough), or request them in pods of"
    )
    assert f"all requested devices together; {alone} [jointlyInfeasible]" in outputs
    assert f"all requested devices together; {either}" in outputs_of_two
    assert exit_codes == (0, 0)


def test_a_mig_profile_of_another_node_is_reported_with_one_of_the_same_node() -> None:
    pod = LABELLED.replace("  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}\n", "")
    keys = "nvidia.com/gpu: 1, nvidia.com/gpumem: 1000"
    wrong = pod.replace(keys, "nvidia.com/mig-3g.40gb: 1, nvidia.com/mig-3g.20gb: 1")

    outputs, _ = _outputs(SHARED, wrong)
    _, exit_codes = _outputs(SHARED, wrong.replace("3g.20gb", "2g.20gb"))

    words = "write nvidia.com/mig-2g.20gb for nvidia.com/mig-3g.20gb to fit node mig-1"
    assert f"{words} [jointlyInfeasible]" in outputs
    assert exit_codes == (0, 0)


def test_devices_of_the_workload_itself_are_neither_waited_for_nor_replaced_by_another_kind() -> (
    None
):
    keys = "nvidia.com/gpu: 1, nvidia.com/gpumem: 10000"
    replicas = DEPLOYMENT.replace("requests: {cpu: 100}, ", "").replace(
        keys, "nvidia.com/mig-1g.5gb: 2"
    )

    outputs, _ = _outputs(SHARED, replicas)

    assert "so waiting does not help: web-0 has 2, web-1 has 2" in outputs
    assert "once its devices are free" not in outputs
    assert "another key" not in outputs
