"""`drawbridge check` as a caller sees it: findings, forms, exit codes."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import Result

from answers.model.kinds import API_VERSION
from kube.manifests.dump import dump_yaml
from kube.names import ENFORCEMENT_LABEL
from testing import documents
from testing import rule_cases as cases
from testing.builders import container, gpus, pod, workload
from testing.command import CLUSTER, ROOT, drawbridge, finding_lines, translate
from testing.documents import Document, api_object, class_of_driver, namespace, resource_quota
from testing.migration import origin
from testing.questions import answer, check
from testing.slice_cases import MIXED_LAYOUT

RIGHT = documents.claim(documents.exactly())
WRONG = documents.claim(documents.exactly(count=33))
DOUBTFUL = documents.claim(
    documents.exactly(tolerations=[{"operator": "Exists", "effect": "None"}])
)


def snapshot_file(folder: Path, *unreadable: str, others: Iterable[Document] = ()) -> Path:
    """Write a snapshot that lacks these resources."""
    file = folder / "cluster.yaml"
    file.write_text(dump_yaml([origin(*unreadable), *others]))
    return file


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), (1, "error")),
        (("--kubernetes", "1.34"), (0, "warning")),
        (("--kubernetes", "v1.34.4"), (0, "warning")),
        (("--kubernetes", "1.35"), (1, "error")),
        (("--kubernetes", "1.37"), (1, "error")),
    ],
)
def test_devices_beside_counters_are_the_layout_of_1_34(
    flags: tuple[str, ...], expected: tuple[int, str]
) -> None:
    result = check(MIXED_LAYOUT, options=(*flags, "-o", "json"))
    (finding,) = (
        finding
        for finding in msgspec.json.decode(result.stdout)["findings"]
        if finding["code"] == "invalidSlice"
    )

    assert expected == (result.exit_code, finding["severity"])


def test_the_implicit_name_of_a_class_evades_no_quota(tmp_path: Path) -> None:
    """The class is no profile's, so its selectors tell the driver of its devices."""
    cluster = snapshot_file(
        tmp_path,
        others=(
            resource_quota({"requests.nvidia.com/gpu": "0"}),
            class_of_driver("gpu.nvidia.com", name="mine"),
        ),
    )
    amounts = {"deviceclass.resource.kubernetes.io/mine": "1"}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        **pod(container(resources={"limits": amounts})),
    }

    findings = answer(document, options=("--snapshot", cluster, "-n", "team"))["findings"]

    (finding,) = (finding for finding in findings if finding["code"] == "quotaNotCounted")
    assert finding["severity"] == "error"
    assert finding["path"] == (
        "spec.containers[0].resources.limits[deviceclass.resource.kubernetes.io/mine]"
    )


def uncounted_templates(*documents: Document, options: Iterable[object]) -> list[tuple[str, bool]]:
    """Return the objects with this finding, each with True if it is of a file."""
    return [
        (finding["object"], finding["file"] is not None)
        for finding in answer(*documents, options=options)["findings"]
        if finding["code"] == "templateNotCounted"
    ]


def test_a_quota_and_a_template_that_it_does_not_count_are_reported_where_they_meet(
    tmp_path: Path,
) -> None:
    """A pod without rights to claims keeps the template alive, and every pod that names it gets devices."""
    hard = {"requests.nvidia.com/gpu": "0"}
    kept = {
        **documents.template(documents.exactly()),
        "metadata": {"name": "kept", "namespace": "team"},
    }
    stored = ("--snapshot", snapshot_file(tmp_path, others=(resource_quota(hard), kept)))
    elsewhere = api_object("ConfigMap", "a")

    # Of the cluster, where something of the namespace is looked at.
    assert uncounted_templates(elsewhere, options=(*stored, "-n", "team")) == [
        ("ResourceQuota/team/gpus", False)
    ]
    assert uncounted_templates(elsewhere, options=(*stored, "-n", "other")) == []
    # Of a file, once.
    assert uncounted_templates(resource_quota(hard), options=(*stored, "-n", "team")) == [
        ("ResourceQuota/team/gpus", True)
    ]
    counted = resource_quota({**hard, "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "0"})
    assert uncounted_templates(counted, options=(*stored, "-n", "team")) == []


def as_json_list(*items: Document) -> str:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()


@pytest.mark.parametrize("write", [lambda *items: dump_yaml(items), as_json_list])
@pytest.mark.parametrize(
    ("versions", "flags", "severity"),
    [
        (["v1.34.4"], (), "warning"),
        (["v1.37.1"], (), "error"),
        (["v1.34.4"], ("--kubernetes", "1.35"), "error"),
        (["v1.37.1"], ("--kubernetes", "1.34"), "warning"),
        (["v1.37.1", "v1.34.4"], (), "warning"),
        (["v1.34.4", ""], (), "warning"),
        ([1.34], (), "error"),
        (["latest"], (), "error"),
    ],
)
def test_a_snapshot_is_validated_by_the_version_of_its_cluster(
    write: Callable[..., str],
    versions: list[object],
    flags: tuple[str, ...],
    severity: str,
    tmp_path: Path,
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(write(*(origin(version=version) for version in versions)))

    findings = answer(MIXED_LAYOUT, options=("--snapshot", file, *flags))["findings"]

    assert [severity] == [
        finding["severity"] for finding in findings if finding["code"] == "invalidSlice"
    ]


def test_a_version_that_is_none_is_a_wrong_call() -> None:
    result = check(MIXED_LAYOUT, options=("--kubernetes", "latest"))

    assert (2, "") == (result.exit_code, result.stdout)
    assert "'latest' is not a version such as 1.38" in result.stderr


def owned(document: Document) -> Document:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    metadata = {**document["metadata"], "ownerReferences": [owner]}
    return {**document, "metadata": metadata}


def deployment(template: Document) -> Document:
    return api_object(
        "Deployment", "workers", spec={"template": {"metadata": {}, "spec": template["spec"]}}
    )


@pytest.mark.parametrize(
    ("code", "documents"),
    [
        (0, (RIGHT,)),
        (0, (DOUBTFUL,)),
        (1, (WRONG,)),
        (1, (RIGHT, WRONG)),
        (0, (api_object("Service", "s"),)),
    ],
    ids=["right", "doubtful", "wrong", "one of two is wrong", "no kind of ours"],
)
def test_the_exit_code_says_whether_something_would_be_refused(
    code: int, documents: tuple[Document, ...]
) -> None:
    assert check(*documents).exit_code == code


def test_text_that_is_no_object_is_a_wrong_call_and_prints_nothing() -> None:
    result = drawbridge("check", "-f", "-", stdin="kind: ResourceClaim\n")

    assert (2, "") == (result.exit_code, result.stdout)


def test_text_says_where_what_and_how_many() -> None:
    lines = check(RIGHT, WRONG).stdout.splitlines()

    assert lines == [
        (
            "<stdin>:18: error: ResourceClaim/default/validated: spec.devices.requests: 33 devices requested,"
            " but a claim has at most 32; split it into several claims [tooManyDevices]"
        ),
        "2 objects checked: 1 error, 0 warnings",
        "more: drawbridge explain tooManyDevices",
    ]


def test_json_holds_findings_only() -> None:
    answer_ = answer(WRONG, DOUBTFUL)

    assert list(answer_) == ["apiVersion", "kind", "findings"]
    assert (answer_["apiVersion"], answer_["kind"]) == (API_VERSION, "CheckReport")
    assert finding_lines(answer_) == [
        "error tooManyDevices ResourceClaim/default/validated spec.devices.requests",
        (
            "warning noopToleration ResourceClaim/default/validated"
            " spec.devices.requests[0].exactly.tolerations[0].effect"
        ),
    ]
    assert [*answer_["findings"][0]] == [
        *("severity", "code", "message", "fix", "object", "path"),
        *("reasons", "file", "line"),
    ]


def test_a_wrong_value_of_a_known_kind_is_a_finding() -> None:
    wrong = documents.claim(documents.exactly(count="many"))

    assert finding_lines(answer(wrong)) == [
        "error invalidObject ResourceClaim/default/validated spec.devices.requests[0].exactly.count"
    ]


def test_legacy_pods_are_translated_and_validated() -> None:
    assert finding_lines(answer(pod(gpus(1, mem="8Gi")))) == [
        "error wrongUnit Pod/default/train spec.containers[0].resources.limits[nvidia.com/gpumem]"
    ]
    fits = answer(pod(gpus(1, mem=3000, cores=30)), options=["--snapshot", CLUSTER])
    assert fits["findings"] == []


def test_pods_of_a_controller_are_only_warned_of() -> None:
    (finding,) = answer(owned(pod(gpus(1, mem="8Gi"))))["findings"]

    assert finding["severity"] == "warning"


def test_pods_of_workloads_are_validated_in_their_place() -> None:
    wrong = cases.pod({"name": "gpu"})

    assert finding_lines(answer(deployment(wrong))) == [
        "error invalidClaimSource Deployment/default/workers spec.template.spec.resourceClaims[0]"
    ]


GPUS = (
    documents.device_class('device.driver == "gpu.nvidia.com"')
    | {"metadata": {"name": "gpu.nvidia.com"}},
    documents.resource_slice(documents.device(), driver="gpu.nvidia.com"),
)
"""A node with one GPU."""


def pod_with_gpus(count: int, name: str = "train") -> Document:
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    return pod(gpus(count), tolerations=tolerations) | {"metadata": {"name": name}}


def test_every_pod_has_findings_though_all_share_a_template() -> None:
    many = [owned(pod_with_gpus(9, "of-a-set")), pod_with_gpus(9, "one"), pod_with_gpus(9, "other")]

    assert finding_lines(answer(*GPUS, *many)) == [
        f"{severity} exceedsLargestNode Pod/default/{name}"
        " spec.containers[0].resources.limits[nvidia.com/gpu]"
        for severity, name in (("warning", "of-a-set"), ("error", "one"), ("error", "other"))
    ]


@pytest.mark.parametrize(
    ("path", "asking"),
    [
        (
            "spec.containers[1].resources.limits[nvidia.com/gpu]",
            pod(gpus(), gpus(9, name="greedy")),
        ),
        (
            "spec.initContainers[0].resources.limits[nvidia.com/gpu]",
            pod(gpus(1), init=[gpus(9, name="greedy")]),
        ),
        ("spec.containers", pod(gpus(1), gpus(1, name="other"))),
        (
            "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]",
            deployment(pod(gpus(9))),
        ),
    ],
    ids=[
        "one container asks for too many",
        "an init container asks for too many",
        "two containers ask for too many together",
        "the pods of a workload ask for too many",
    ],
)
def test_what_never_fits_is_reported_where_it_was_asked_for(path: str, asking: Document) -> None:
    finding = answer(*GPUS, asking)["findings"][0]

    assert ("error", path) == (finding["severity"], finding["path"])
    assert "requests" not in finding["message"].partition("(")[0]


def test_a_template_that_is_written_out_is_validated_in_its_place(tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    state.write_text(dump_yaml([documents.device_class()]))
    template, translated = yaml.load_all(
        translate(pod_with_gpus(1)).stdout, Loader=yaml.CSafeLoader
    )

    assert finding_lines(answer(template, translated, options=["--snapshot", state])) == [
        (
            "warning deviceClassMissing"
            f" ResourceClaimTemplate/default/{template['metadata']['name']}"
            " spec.spec.devices.requests[0].exactly.deviceClassName"
        )
    ]


def test_what_a_workloads_pods_would_be_rejected_for_is_an_error_as_in_translate() -> None:
    half = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}
    workload = deployment(pod({"name": "main", "resources": {"limits": half}}))

    (finding,) = answer(workload)["findings"]

    assert ("error", "memorySizesUnknown") == (finding["severity"], finding["code"])
    assert finding["message"].startswith("pods would be rejected now: ")
    assert finding["fix"] not in finding["message"]
    place = {"file": finding["file"], "line": finding["line"]}
    translated = msgspec.json.decode(translate(workload, options=("-o", "json")).stdout)
    assert [finding] == [entry | place for entry in translated["findings"]]
    assert (1, 1) == (check(workload).exit_code, translate(workload).exit_code)


def test_objects_of_the_same_call_know_each_other() -> None:
    template = documents.template(documents.exactly())
    use = {"name": "gpu", "request": "gup"}
    wrong = cases.pod({"name": "gpu", "resourceClaimTemplateName": "validated"}, uses=(use,))

    assert finding_lines(answer(template, wrong)) == [
        "error unknownRequest Pod/default/validated spec.containers[0].resources.claims[0].request"
    ]


def test_slices_of_the_same_call_are_the_inventory() -> None:
    device = documents.device(capacity={"memory": {"value": "80Gi"}})
    device_class = documents.device_class('device.driver == "gpu.example.com"')
    asking = documents.exactly(
        deviceClassName="validated.example.com", capacity={"requests": {"memroy": "1Gi"}}
    )
    claim = documents.claim(asking)

    assert answer(device_class, claim)["findings"] == []
    assert finding_lines(answer(device_class, claim, documents.resource_slice(device))) == [
        (
            "error capacityNotPublished ResourceClaim/default/validated"
            " spec.devices.requests[0].exactly.capacity.requests[memroy]"
        )
    ]


def test_a_namespace_of_the_same_call_says_what_happens_in_it() -> None:
    namespace = api_object("Namespace", "default", labels={ENFORCEMENT_LABEL: "warn"})

    assert check(namespace, WRONG).exit_code == 0


V1BETA1 = "resource.k8s.io/v1beta1"


def old_claim(**request: object) -> Document:
    fields = {"name": "gpu", "deviceClassName": "gpu.example.com", **request}
    return documents.claim() | {"apiVersion": V1BETA1, "spec": {"devices": {"requests": [fields]}}}


@pytest.mark.parametrize(
    ("want", "old"),
    [
        ([], old_claim()),
        (["error invalidObject spec.devices.requests[0].count"], old_claim(count="many")),
        (["error tooManyDevices spec.devices.requests"], old_claim(count=33)),
        (
            ["warning noopToleration spec.devices.requests[0].tolerations[0].effect"],
            old_claim(tolerations=[{"operator": "Exists", "effect": "None"}]),
        ),
        (["warning unknownField spec.devices.requests[0].nodeName"], old_claim(nodeName="a")),
        (
            ["error tooManyDevices spec.devices.requests"],
            {**WRONG, "apiVersion": "resource.k8s.io/v1beta2"},
        ),
    ],
    ids=["right", "wrong value", "wrong", "doubtful", "unknown field", "v1beta2"],
)
def test_an_old_version_is_validated_at_its_own_paths(want: list[str], old: Document) -> None:
    words = [
        line.replace(" ResourceClaim/default/validated", "") for line in finding_lines(answer(old))
    ]

    version = ["warning unservedVersion apiVersion"] * ("invalidObject" not in str(want))
    assert sorted([*want, *version]) == sorted(words)


def test_a_slice_of_an_old_version_is_the_inventory() -> None:
    device = {"name": "gpu-0", "basic": {"capacity": {"memory": {"value": "80Gi"}}}}
    published = documents.resource_slice(device) | {"apiVersion": V1BETA1}
    device_class = documents.device_class() | {"apiVersion": V1BETA1}
    large = documents.exactly(
        deviceClassName="validated.example.com", capacity={"requests": {"memory": "100Gi"}}
    )

    assert "error exceedsLargestDevice" in " ".join(
        finding_lines(answer(device_class, documents.claim(large), published))
    )


def test_what_is_wrong_with_the_snapshot_is_reported(tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    state.write_text(dump_yaml([documents.claim(documents.exactly(count="many"))]))

    result = check(RIGHT | {"metadata": {"name": "other"}}, options=["--snapshot", state])

    assert result.exit_code == 1
    assert "invalidObject" in result.stdout


# --- as a hook ------------------------------------------------------------------------------------


def test_the_hook_of_pre_commit_checks_the_files_that_it_is_given(tmp_path: Path) -> None:
    (hook,) = yaml.load((ROOT / ".pre-commit-hooks.yaml").read_text(), Loader=yaml.CSafeLoader)
    right, wrong = tmp_path / "right file.yaml", tmp_path / "wrong.yaml"
    right.write_text(dump_yaml([RIGHT]))
    wrong.write_text(dump_yaml([{**WRONG, "metadata": {"name": "other"}}]))

    def ran(*files: Path) -> subprocess.CompletedProcess[str]:
        # As pre-commit does: the words of entry and args, then the files.
        command = [*shlex.split(hook["entry"]), *hook["args"], *map(str, files)]
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        return subprocess.run(
            command, env={"PATH": path}, capture_output=True, text=True, check=False
        )

    assert ran(right).returncode == 0
    refused = ran(right, wrong)
    assert refused.returncode == 1
    assert f"{wrong}:7: error: " in refused.stdout
    assert "2 objects checked" in refused.stdout


# --- snapshots of users who may not list everything -----------------------------------------------


def notes(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return [line for line in result.stderr.splitlines() if line.startswith("note: ")]


def test_what_a_snapshot_could_not_read_is_named(tmp_path: Path) -> None:
    # Deployments and unknown words decide nothing here.
    file = snapshot_file(tmp_path, "resourcequotas", "deployments", "pods", "\x1b[31m")

    (note,) = notes(check(RIGHT, options=("--snapshot", file)))
    assert note == (
        "note: resourcequotas, pods cannot be read, so the answer is as if there were none: they "
        "could not be listed when the snapshot was taken"
    )
    (note,) = notes(
        drawbridge("translate", "-f", "-", "--snapshot", file, stdin=dump_yaml([RIGHT]))
    )
    assert note.startswith("note: resourcequotas cannot be read")


def test_a_snapshot_of_everything_has_no_note(tmp_path: Path) -> None:
    whole = snapshot_file(tmp_path)
    assert [] == notes(check(RIGHT, options=("--snapshot", whole)))

    # What another file has is there.
    added = snapshot_file(tmp_path, "namespaces", others=[namespace("team")])
    assert [] == notes(check(RIGHT, options=("--snapshot", added)))


@pytest.mark.parametrize(
    ("limits", "key", "value", "node"),
    [
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 200000}, "nvidia.com/gpumem", 81920, "hami-1"),
        ({"nvidia.com/gpu": 8, "nvidia.com/gpumem": 1000}, "nvidia.com/gpu", 2, "hami-0"),
        (
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 200000},
            *("volcano.sh/vgpu-memory", 81920, "hami-1"),
        ),
        ({"koordinator.sh/gpu": 800}, "koordinator.sh/gpu", 200, "hami-0"),
        ({"aliyun.com/gpu-mem": 200}, "aliyun.com/gpu-mem", 80, "hami-1"),
    ],
)
def test_the_fix_of_a_legacy_pod_is_in_its_own_key_and_fits(
    limits: Mapping[str, int], key: str, value: int, node: str
) -> None:
    fix = f"write {key}: {value} to fit node {node}; write the same in requests"

    assert [fix, fix] == _fixes_of_errors(limits)
    assert [] == _fixes_of_errors({**limits, key: value})


def _fixes_of_errors(limits: Mapping[str, int]) -> list[str]:
    """Return the fixes of the errors about a pod with these limits, and about a workload of it."""
    alone = pod(container("main", limits))
    findings = answer(alone, workload(alone), options=("--snapshot", CLUSTER))["findings"]
    return [entry["fix"] for entry in findings if entry["severity"] == "error"]


# --- DeviceQuotas ---------------------------------------------------------------------------------


def device_quota(**caps: str) -> Document:
    """A quota of the devices that HAMi's driver publishes, for the namespaces of a team."""
    driver = "hami-core-gpu.project-hami.io"
    memory = {"name": "memory", "driver": driver, "capacity": "memory", "max": "40Gi", **caps}
    document = documents.device_quota(memory)
    document["spec"]["namespaceSelector"] = {"matchLabels": {"team": "vision"}}
    return document


def share(mebibytes: int, namespace_: str = "vision") -> Document:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mebibytes}
    document = pod(container(amounts=limits))
    return {**document, "metadata": {"name": "share", "namespace": namespace_}}


SHARES = ("--snapshot", str(CLUSTER))


@pytest.mark.parametrize(
    ("caps", "mebibytes", "expected"),
    [
        ({}, 3000, []),
        ({"perRequest": "2Gi"}, 2048, []),
        (
            {"perRequest": "2Gi"},
            3000,
            [("exceedsPerRequestQuota", "write nvidia.com/gpumem: 2048")],
        ),
        ({"perDevice": "1Gi"}, 3000, [("exceedsPerRequestQuota", "write nvidia.com/gpumem: 1024")]),
        ({"max": "2Gi"}, 3000, [("exceedsDeviceQuota", "write nvidia.com/gpumem: 2048")]),
    ],
)
def test_a_quota_is_applied_to_legacy_pods_in_their_keys(
    caps: dict[str, str], mebibytes: int, expected: list[tuple[str, str]]
) -> None:
    team = namespace("vision", {"team": "vision"})

    report = answer(device_quota(**caps), team, share(mebibytes), options=SHARES)

    assert expected == [
        (finding["code"], finding["fix"].removesuffix("; write the same in requests"))
        for finding in report["findings"]
        if "Quota" in finding["code"]
    ]
    for finding in report["findings"]:
        if "Quota" in finding["code"]:
            assert finding["path"] == "spec.containers[0].resources.limits[nvidia.com/gpumem]"


def test_what_is_left_of_a_quota_is_reported_in_the_key() -> None:
    team = namespace("vision", {"team": "vision"})
    state = ("--snapshot", str(CLUSTER.parent.parent / "quota" / "cluster.yaml"))

    report = answer(device_quota(max="80Gi"), team, share(40_000), options=state)

    (finding,) = (entry for entry in report["findings"] if entry["code"] == "deviceQuotaFull")
    assert finding["path"] == "spec.containers[0].resources.limits[nvidia.com/gpumem]"
    assert finding["fix"] == (
        "write nvidia.com/gpumem: 24576 to fit what is left of DeviceQuota validated, wait, or raise the quota"
    )


def test_a_quota_of_another_tenant_says_nothing() -> None:
    report = answer(device_quota(max="0"), namespace("audio"), share(3000, "audio"), options=SHARES)

    assert not [finding for finding in report["findings"] if "Quota" in finding["code"]]


def mapped_pod(*amounts: str) -> Document:
    """A pod with containers that request GPUs by a key that a DeviceClass of the example maps."""
    containers = [
        {"name": f"c{index}", "image": "i", "resources": {"limits": {"nvidia.com/gpu": amount}}}
        for index, amount in enumerate(amounts)
    ]
    return api_object("Pod", "many", spec={"containers": containers})


def test_a_share_of_too_many_devices_is_reported_once_although_a_class_maps_the_key() -> None:
    document = mapped_pod("40")
    document["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = 4096

    report = answer(document, options=SHARES)

    errors = [entry for entry in report["findings"] if entry["severity"] == "error"]
    assert [("tooManyDevices", "spec.containers[0].resources.limits[nvidia.com/gpu]")] == [
        (entry["code"], entry["path"]) for entry in errors
    ]
    assert "these cannot be divided among claims" in errors[0]["message"]


@pytest.mark.parametrize(
    ("amounts", "code", "words"),
    [
        (("33",), "tooManyDevices", "33 devices by"),
        (("20", "20"), "tooManyDevices", "40 devices by"),
        (("100000000000000000000000",), "tooManyDevices", "a claim has at most 32 devices"),
        (("-64",), "negative", "-64 is negative"),
    ],
)
def test_amounts_of_a_mapped_key_that_kubernetes_never_serves_are_errors(
    amounts: tuple[str, ...], code: str, words: str
) -> None:
    """They passed, since Kubernetes allocates such a pod without translation."""
    found = answer(mapped_pod(*amounts), options=["--snapshot", CLUSTER])["findings"]
    errors = [finding for finding in found if finding["severity"] == "error"]

    assert [finding["code"] for finding in errors] == [code]
    assert words in errors[0]["message"]
    assert errors[0]["path"] == "spec.containers[0].resources.limits[nvidia.com/gpu]"
