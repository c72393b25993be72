"""The examples: the outcome of each, and laws that hold for every manifest."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from cli.output.layout import MARGIN
from kube.manifests.reader import read_objects
from testing.command import CLUSTER, EXAMPLES, drawbridge, finding_lines

HAMI = "of class hami-core-gpu.project-hami.io"
NVIDIA = "of class gpu.nvidia.com"
MIG = "of class mig.nvidia.com"
UNCAPPED = "cores 0 (none reserved)"

IN_THE_CLUSTER: dict[str, list[str]] = {
    "by-uuid.yaml": [
        (
            f"debug: 1 device {HAMI}, where uuid is GPU-e076a7fa-23e9-5f46-aff2-877c4c1b0e42 or "
            f"GPU-1a07e078-00e6-50fc-8c57-c1f3b6521a8b, with {UNCAPPED}, memory 2000Mi"
        )
    ],
    "daemonset.yaml": [f"probe: 1 device {HAMI}, with cores 1, memory 256Mi"],
    "exclusive-by-type.yaml": [
        (
            f"train: 1 device {HAMI}, where productName contains a100 or v100 and "
            "productName does not contain 40gb, with cores 100"
        )
    ],
    "half-of-each.yaml": [
        (
            f"serve: 2 devices {HAMI}, each with cores 20; the first that fits: "
            "memory 20Gi of a 40Gi device, or memory 40Gi of an 80Gi device; with different uuid"
        )
    ],
    "init-and-sidecar.yaml": [
        f"metrics: 1 device {HAMI}, with {UNCAPPED}, memory 500Mi",
        f"warm-up and serve: 1 device {HAMI}, with {UNCAPPED}, memory 4000Mi",
    ],
    "list.yaml": [f"serve: 1 device {HAMI}, with {UNCAPPED}, memory 5000Mi"] * 2,
    "mig-job.yaml": [f"batch: 2 devices {MIG}, where profile is 1g.5gb"],
    "mig-media.yaml": [f"transcode: 1 device {MIG}, where profile is 1g.10gb+me"],
    "mig-mode.yaml": [
        (
            f"serve: 1 device {MIG}; the first that fits: memory is 9728Mi, or memory is 9984Mi, or "
            "memory is 19968Mi, or memory is 20096Mi, or memory is 40192Mi"
        )
    ],
    "mps.yaml": [
        (
            f'serve: 1 device {NVIDIA}; GpuConfig {{"sharing":{{"strategy":"MPS","mpsConfig":'
            '{"defaultActiveThreadPercentage":40,"defaultPinnedDeviceMemoryLimit":"10000Mi"}}}'
        )
    ],
    "nightly.yaml": [f"evaluate: 1 device {HAMI}, with {UNCAPPED}, memory 6000Mi"],
    "numa-bind.yaml": [
        f"train: 2 devices {HAMI}, each with {UNCAPPED}, memory 4000Mi; with different uuid"
    ],
    "opted-out.yaml": [],
    "share.yaml": [f"notebook: 1 device {HAMI}, with cores 30, memory 3000Mi"],
    "two-containers.yaml": [
        f"encode: 1 device {HAMI}, with cores 25, memory 2000Mi",
        f"decode: 1 device {HAMI}, with cores 25, memory 2000Mi",
    ],
    "whole-gpu.yaml": [],
}
"""Example to its containers and their requests, in words, against the recorded cluster."""

ALONE: dict[str, list[str]] = IN_THE_CLUSTER | {
    "half-of-each.yaml": [],
    "mig-mode.yaml": [f"serve: 1 device {MIG}, where memory is at least 8000Mi"],
    "whole-gpu.yaml": [f"train: 1 device {NVIDIA}"],
}
"""The same without a cluster."""

FINDINGS: dict[str, list[str]] = {
    "by-uuid.yaml": ["info uncappedCores"],
    "half-of-each.yaml": ["warning equalMemorySizes"],
    "init-and-sidecar.yaml": [
        "info sidecarAdded",
        "warning initSharesDevice",
        "info uncappedCores",
    ],
    "list.yaml": ["info uncappedCores", "info uncappedCores"],
    "mig-mode.yaml": ["warning policyDropped"],
    "mps.yaml": ["warning sharedWithinPodOnly", "warning requiresFeatureGate"],
    "nightly.yaml": ["info uncappedCores"],
    "numa-bind.yaml": ["warning notPublishedByDriver", "info uncappedCores"],
    "opted-out.yaml": ["info optedOut"],
    "whole-gpu.yaml": ["info passedThrough"],
}
"""Example to what is said about it in the recorded cluster; nothing about the others."""

MISTAKES = {
    "bytes-for-mebibytes.yaml": ["error wrongUnit"],
    "half-a-gpu.yaml": ["error notAnInteger"],
    "more-than-all.yaml": ["error outOfRange"],
    "no-such-profile.yaml": ["error unknownMigProfile"],
    "requests-only.yaml": ["error limitRequired", "error limitRequired"],
}

STATES = frozenset({"cluster.yaml", "before.yaml", "after.yaml"})
"""Names of files that have the state of a cluster; the others are manifests to be translated."""
EVERY = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.name not in STATES)


def answer(*arguments: object, stdin: str | None = None) -> dict[str, Any]:
    result = drawbridge("translate", "-o", "json", *arguments, stdin=stdin)
    assert result.exit_code in (0, 1), result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def words(*arguments: object) -> list[str]:
    """The rows `becomes` of the text output: containers, and the request that they use."""
    result = drawbridge("translate", "-o", "text", *arguments, COLUMNS="2000")
    assert result.exit_code in (0, 1), result.stderr
    lines = []
    label = ""
    for line in result.stdout.splitlines():
        # A label that repeats the one above is left out.
        label = line[:MARGIN].strip() or label
        if label == "becomes":
            lines.append(line[MARGIN:])
    return lines


def codes(answer_document: dict[str, Any]) -> list[str]:
    return [" ".join(line.split()[:2]) for line in finding_lines(answer_document)]


def test_every_example_stands_in_the_tables() -> None:
    assert set(IN_THE_CLUSTER) == {path.name for path in EXAMPLES.glob("*.yaml")}
    assert set(MISTAKES) == {path.name for path in EXAMPLES.glob("mistakes/*.yaml")}


@pytest.mark.parametrize("name", IN_THE_CLUSTER)
def test_what_an_example_becomes_in_the_cluster(name: str) -> None:
    example = ("-f", EXAMPLES / name, "--snapshot", CLUSTER)

    assert IN_THE_CLUSTER[name] == words(*example)
    assert FINDINGS.get(name, []) == codes(answer(*example))


@pytest.mark.parametrize("name", ALONE)
def test_what_an_example_becomes_alone(name: str) -> None:
    assert ALONE[name] == words("-f", EXAMPLES / name)


@pytest.mark.parametrize("name", MISTAKES)
def test_what_a_mistake_says(name: str) -> None:
    answer_ = answer("-f", EXAMPLES / "mistakes" / name)

    assert (MISTAKES[name], []) == (codes(answer_), answer_["objects"])


def test_a_replica_needs_a_driver_that_publishes_shares() -> None:
    folder = EXAMPLES / "gpu-shared"

    with_shares = words("-f", folder / "pod.yaml", "--snapshot", folder / "cluster.yaml")
    without = ("-f", folder / "pod.yaml", "--snapshot", CLUSTER)

    assert [f"notebook: 1 device {NVIDIA}, with shares 1"] == with_shares
    assert ([], ["error unsupportedAsPublished"]) == (words(*without), codes(answer(*without)))


VF = "of class sriovnetwork.k8snetworkplumbingwg.io"
NICS: dict[str, tuple[list[str], list[str]]] = {
    "efa.yaml": (
        [f"nccl: 8 devices {NVIDIA}", "nccl: 4 devices of class efa.networking.k8s.aws"],
        [],
    ),
    "rdma-pool.yaml": (
        [
            f"train: 1 device {NVIDIA}",
            "train and watch: 1 device of class dranet, where rdma is true",
        ],
        ["warning clamped", "warning notPublishedByDriver", "warning oneOfPool"],
    ),
    "sriov.yaml": (
        [
            (
                f"serve: 2 devices {VF}, where resourceName is mlnx_rdma or "
                "resourceName is mellanox.com/mlnx_rdma; "
                'VfConfig {"netAttachDefName":"sriov-rdma"}'
            )
        ],
        ["warning envVarNotProvided", "info networkByClaim"],
    ),
}
"""Example of NICs to its requests and to what is said, against the cluster beside it."""


def test_every_example_of_nics_stands_in_the_table() -> None:
    assert {*NICS, "cluster.yaml"} == {path.name for path in (EXAMPLES / "nics").glob("*.yaml")}


@pytest.mark.parametrize("name", NICS)
def test_what_an_example_of_nics_becomes(name: str) -> None:
    folder = EXAMPLES / "nics"

    example = ("-f", folder / name, "--snapshot", folder / "cluster.yaml")

    assert NICS[name] == (words(*example), codes(answer(*example)))


ACCELERATOR_FOLDER = EXAMPLES / "accelerators"
ACCELERATORS: dict[str, tuple[list[str], list[str]]] = {
    "amd.yaml": (["train: 2 devices of class gpu.amd.com"], []),
    "amd-partition.yaml": (
        ["serve: 1 device of class gpu.amd.com, where partitionProfile is cpx_nps4"],
        [],
    ),
    "ascend.yaml": (
        [
            "serve: 1 device of class hami-vnpu-core.project-hami.io, with cores 20, memory 3Gi",
        ],
        ["warning notPublishedByDriver"],
    ),
    "hygon.yaml": (["train: 2 devices of class dra.hygon.com; with different uuid"], []),
    "intel.yaml": (
        [
            "render: 1 device of class gpu.intel.com, where driver is xe",
            "render: 1 device of class gaudi.intel.com",
        ],
        [],
    ),
    "neuron.yaml": (
        [
            "train: 8 devices of class neuron.aws.com; if possible with the same devicegroup8_id",
        ],
        [],
    ),
    "rebellions.yaml": (
        ["serve: 1 device of class npu.rebellions.ai"],
        ["warning notPublishedByDriver"],
    ),
    "tpu.yaml": (
        ["train: all devices of a node of class tpu.google.com, where chipCount is 4"],
        [],
    ),
}
"""Example of another vendor to the same, against the cluster beside it."""


def test_every_example_of_another_vendor_stands_in_the_table() -> None:
    example_names = {path.name for path in ACCELERATOR_FOLDER.glob("*.yaml")}

    assert {*ACCELERATORS, "cluster.yaml"} == example_names


@pytest.mark.parametrize("name", ACCELERATORS)
def test_what_an_example_of_another_vendor_becomes(name: str) -> None:
    folder = ACCELERATOR_FOLDER

    example = ("-f", folder / name, "--snapshot", folder / "cluster.yaml")

    assert ACCELERATORS[name] == (words(*example), codes(answer(*example)))


OTHER_SHARES: dict[str, list[str]] = {
    "aliyun.yaml": [f"serve and embed: 1 device {HAMI}, with cores 50, memory 6Gi"],
    "tencent.yaml": [f"serve: 1 device {HAMI}, with cores 30, memory 5Gi"],
    "tensor-fusion.yaml": [f"train: 1 device {HAMI}, with cores 0 (none reserved), memory 8Gi"],
    "volcano.yaml": [
        f"train: 2 devices {HAMI}, each with cores 50, memory 3000Mi; with different uuid"
    ],
    "volcengine.yaml": [
        f"train: 2 devices {HAMI}, each with cores 30, memory 4Gi; with different uuid"
    ],
}
"""Example of another system's shares to its requests."""


def test_every_example_of_other_shares_stands_in_the_table() -> None:
    names = {path.name for path in (EXAMPLES / "shares").glob("*.yaml")}
    assert {*OTHER_SHARES, "kai.yaml"} == names


def test_a_share_of_kai_needs_its_scheduler_adopted(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {adoptSchedulers: {kai-scheduler: default-scheduler}}")
    example = ("-f", EXAMPLES / "shares" / "kai.yaml", "--snapshot", CLUSTER)

    adopted = words(*example, "--settings", settings)

    assert ([], ["warning foreignScheduler"]) == (words(*example), codes(answer(*example)))
    (line,) = adopted
    assert HAMI in line


def test_tflops_go_to_a_driver_that_publishes_them() -> None:
    example = (
        *("-f", EXAMPLES / "shares" / "tensor-fusion.yaml"),
        *("--snapshot", EXAMPLES / "driver" / "cluster.yaml"),
    )

    allocation = "with cores 0 (none reserved), memory 8Gi, tflops 40"
    assert ([f"train: 1 device of class gpu.drawbridge.internal, {allocation}"], []) == (
        words(*example),
        codes(answer(*example)),
    )


@pytest.mark.parametrize("name", OTHER_SHARES)
def test_what_an_example_of_other_shares_becomes(name: str) -> None:
    assert OTHER_SHARES[name] == words("-f", EXAMPLES / "shares" / name, "--snapshot", CLUSTER)


def test_a_network_with_a_bandwidth_needs_a_driver_that_attaches_it() -> None:
    folder = EXAMPLES / "multus"
    example = ("-f", folder / "pod.yaml", "--snapshot", folder / "cluster.yaml")

    served = (*example, "--profile", "multus=cni.dra.networking.x-k8s.io")

    assert ([], ["info bandwidthNotReserved"]) == (words(*example), codes(answer(*example)))
    (line,) = words(*served)
    wanted = (
        "send: 1 device of class network-interface, where interfaceName is eth1, with bandwidth 4G"
    )
    assert line.startswith(wanted)
    assert ["warning networkByClaim"] == codes(answer(*served))


SHARE = f"train and watch: 2 devices {HAMI}, each with cores 50, memory 2Gi; with different uuid"
JOINT = [
    line
    for here, there in ((0, 1), (1, 0))
    for line in (
        (
            f"train: 2 devices {HAMI}, each with cores 100; "
            f"with the same pcieRoot as nic-{here}; "
            f"with different uuid, also from gpu-{there}"
        ),
        (
            f"train: 1 device of class dranet, where rdma is true; "
            f"with the same pcieRoot as gpu-{here}"
        ),
    )
]
KOORDINATOR: dict[str, tuple[list[str], list[str]]] = {
    "joint.yaml": (JOINT, []),
    "share.yaml": ([SHARE], ["warning notInjected"]),
}
"""Example of Koordinator to the same, against the cluster beside it."""


def test_every_example_of_koordinator_stands_in_the_table() -> None:
    example_names = {path.name for path in (EXAMPLES / "koordinator").glob("*.yaml")}

    assert {*KOORDINATOR, "cluster.yaml"} == example_names


@pytest.mark.parametrize("name", KOORDINATOR)
def test_what_an_example_of_koordinator_becomes(name: str) -> None:
    folder = EXAMPLES / "koordinator"

    example = ("-f", folder / name, "--snapshot", folder / "cluster.yaml")

    assert KOORDINATOR[name] == (words(*example), codes(answer(*example)))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_an_example_begins_with_what_it_shows(path: Path) -> None:
    comment = path.read_text().split("apiVersion", 1)[0]

    assert comment.startswith("# ")
    assert 1 <= comment.count("\n") <= 2


@pytest.mark.parametrize("state", [(), ("--snapshot", CLUSTER)], ids=["alone", "in the cluster"])
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_translating_the_output_again_changes_nothing(path: Path, state: tuple[object]) -> None:
    first = drawbridge("translate", "-f", path, *state, "--on-refusal", "keep")
    once = first.stdout

    # With the cluster and without it: the facts that counted are in the annotation.
    again = drawbridge("translate", "-f", "-", *state, "--on-refusal", "keep", stdin=once)
    elsewhere = drawbridge("translate", "-f", "-", "--on-refusal", "keep", stdin=once)

    assert once == again.stdout
    # Some are left to Kubernetes, or to a device plugin, in the cluster only; rejected ones stay.
    if first.exit_code == 0 and path.name != "whole-gpu.yaml" and path.parent != ACCELERATOR_FOLDER:
        assert once == elsewhere.stdout


def test_everything_that_is_not_about_devices_stays_as_it_is() -> None:
    for path in EVERY:
        before = {
            read_document.name: read_document.document
            for read_document in read_objects(path.read_bytes(), "")
        }
        for after in answer("-f", path)["objects"]:
            if after["kind"] != "ResourceClaimTemplate":
                assert _other_text(before[after["metadata"]["name"]]) == _other_text(after)


KEYS = (
    "nvidia.com/",
    "koordinator.sh/gpu",
    "koordinator.sh/rdma",
    ".rdma/",
    "vpc.amazonaws.com/",
    "mellanox.com/",
    "amd.com/",
    "gpu.intel.com/",
    "habana.ai/",
    "google.com/",
    "aws.amazon.com/",
    "volcano.sh/",
    "huawei.com/",
    "hygon.com/",
    "aliyun.com/",
    "tencent.com/",
    "vke.volcengine.com/mgpu",
    "rebellions.ai/",
)


def _other_text(document: dict[str, Any]) -> list[str]:
    """Everything that is said in an object and has nothing to do with devices."""
    return sorted(
        text
        for text in _leaves(document, ())
        if not any(word in text for word in (*KEYS, "drawbridge.internal", "laim"))
        and "CUDA_TASK_PRIORITY" not in text
        and ".env." not in text
    )


def _leaves(value: Any, path: tuple[str, ...]) -> list[str]:
    if isinstance(value, dict):
        return [
            leaf_text for key, child in value.items() for leaf_text in _leaves(child, (*path, key))
        ]
    if isinstance(value, list):
        return [
            leaf_text
            for n, child in enumerate(value)
            for leaf_text in _leaves(child, (*path, str(n)))
        ]
    return [f"{'.'.join(path)}={value}"]


FOLDER_COMMANDS = re.findall(
    r"^\| \[(\S+)/\].*\| `drawbridge (.+)` \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE
)
"""Each folder of examples, and the command that the README says it is for."""


def test_the_readme_says_what_each_folder_is_for() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}

    assert folders == {folder for folder, _ in FOLDER_COMMANDS}


@pytest.mark.parametrize(
    ("folder", "command"), FOLDER_COMMANDS, ids=[row[0] for row in FOLDER_COMMANDS]
)
def test_the_command_of_a_folder_works(
    folder: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parent)

    result = drawbridge(*shlex.split(command))

    rejecting = (
        "bridge",
        "busy",
        "check",
        "denied",
        "migration",
        "mistakes",
        "ownership",
        "upgrade",
    )
    rejects = folder in rejecting
    assert result.exit_code == (1 if rejects else 0), result.stderr
    assert result.stdout
