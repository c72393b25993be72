"""`drawbridge why -f`: pods and workloads of manifests, translated as if they were created."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.builders import gpus, pod
from testing.command import CLUSTER, EXAMPLES, drawbridge
from testing.documents import api_object

PODS: Final = """
apiVersion: v1
kind: Pod
metadata: {name: big}
spec:
  containers:
  - {name: main, image: a, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 200000}}}
---
apiVersion: v1
kind: Pod
metadata: {name: bytes}
spec:
  containers:
  - {name: main, image: a, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: runs}
spec:
  nodeName: hami-0
  containers:
  - {name: main, image: a, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - {name: main, image: a, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8000}}}
"""


def why(*call: str) -> Any:
    result = drawbridge("why", *call, "-f", "-", "--snapshot", CLUSTER, stdin=PODS, COLUMNS="300")
    assert result.exit_code == 0, result.output
    return result


def test_a_pod_with_legacy_keys_is_translated_and_tried() -> None:
    output = why("pod", "big").stdout

    assert "requested main: nvidia.com/gpu 1, nvidia.com/gpumem 200000" in output
    assert "otherwise pending: no node can take it now" in output
    assert "closest   write nvidia.com/gpumem: 81920 to fit node hami-1" in output


def test_a_pod_that_check_denies_says_so_before_all_else() -> None:
    """It was called pending."""
    output = why("pod", "big").stdout

    (line,) = [line for line in output.splitlines() if line.startswith("  status")]
    assert (
        "rejected: spec.containers[0].resources.limits[nvidia.com/gpumem]: memory 200000Mi" in line
    )
    document = json.loads(why("pod", "big", "-o", "json").stdout)
    assert document["denial"].endswith("[exceedsLargestDevice]")
    assert not json.loads(why("deployment", "web", "-o", "json").stdout)["denial"]


def test_a_template_that_check_denies_keeps_its_pods_from_being_created() -> None:
    manifests = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: many}
spec:
  spec:
    devices:
      requests:
      - {name: gpus, exactly: {deviceClassName: gpu.example.com, count: 1, selectors: [{cel: {expression: "device.size"}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: both}
spec:
  resourceClaims: [{name: many, resourceClaimTemplateName: many}]
  containers:
  - {name: main, image: a, resources: {claims: [{name: many}]}}
"""
    call = ("why", "pod", "both", "-f", "-", "--snapshot", CLUSTER, "-o", "json")

    document = json.loads(drawbridge(*call, stdin=manifests).stdout)

    assert document["denial"].startswith(
        "ResourceClaimTemplate/default/many: spec.spec.devices.requests[0]"
    )


def test_a_pod_that_would_be_denied_has_the_words_of_check() -> None:
    output = why("pod", "bytes").stdout

    assert output.startswith(
        "Pod default/bytes\n  status    rejected: spec.containers[0].resources.limits"
    )
    assert "nvidia.com/gpumem counts MiB; write 8192 for 8Gi [wrongUnit]" in output
    document = json.loads(why("pod", "bytes", "-o", "json").stdout)
    assert document["condition"] == "rejected"
    assert document["rejection"].endswith("[wrongUnit]")


def test_a_pod_that_runs_is_as_it_is() -> None:
    assert "status    bound to node hami-0" in why("pod", "runs").stdout


def test_a_workload_stands_for_its_pods() -> None:
    output = why("deploy/web").stdout

    assert "status    not created yet: all 3 pods get a place\n" in output
    assert "status    not created yet: it would be placed on node hami-0" in output
    assert json.loads(why("deploy/web", "-o", "json").stdout)["together"] == {
        "pods": 3,
        "placed": 3,
        "reason": "",
    }


SIX: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: six}
spec:
  replicas: 6
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - {name: main, image: a, resources: {limits: {nvidia.com/gpu: 1}}}
"""
ONE_CLAIM: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: rank}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      resourceClaims: [{name: gpu, resourceClaimName: shared}]
      containers:
      - {name: main, image: a, resources: {claims: [{name: gpu}], requests: {cpu: 20}}}
"""
TWO_NODES: Final[list[dict[str, Any]]] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "10"}},
    }
    for name in ("one", "two")
]


def one_gpu_on(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpu"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}],
        },
    }


GPU_CLASS: Final[dict[str, Any]] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
}


def test_replicas_tied_by_one_claim_are_told_to_have_claims_of_a_template(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    slices = [one_gpu_on(name) for name in ("one", "two")]
    cluster.write_text(dump_yaml([GPU_CLASS, *TWO_NODES, *slices]), encoding="utf-8")
    call = ("-f", "-", "--snapshot", cluster)
    outputs = [
        drawbridge(verb, *call, stdin=ONE_CLAIM, COLUMNS="900").stdout
        for verb in ("why", "simulate")
    ]
    claim, pods = ONE_CLAIM.split("---")
    claim = claim.replace("ResourceClaim", "ResourceClaimTemplate").replace(
        "spec: {", "spec: {spec: {"
    )
    mended = (
        f"{claim.rstrip()}}}\n---{pods.replace('resourceClaimName', 'resourceClaimTemplateName')}"
    )
    simulated = drawbridge("simulate", *call, stdin=mended)

    advice = (
        "advice    claim shared is one claim, on one node, for 2 pods; give each pod its own: write kind"
        " ResourceClaimTemplate for it, with what one pod needs below spec.spec, and "
        "resourceClaimTemplateName: shared in the pods; all 2 pods get a place then\n"
    )
    for output in outputs:
        assert "Pod default/rank-1  not placed\n" in output
        assert advice in output
        assert "request cpu" not in output
    assert simulated.exit_code == 0
    assert "2 of 2 pods placed" in simulated.stdout


PARTS: Final = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: distill}
spec:
  replicatedJobs:
  - {name: trainer, template: {spec: {template: POD}}}
  - {name: rollout, template: {spec: {parallelism: 2, template: POD}}}
"""


ONE_GPU_POD: Final = (
    "{spec: {containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
)


def gpu_quota() -> dict[str, Any]:
    devices = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": {devices: "5"}},
        "status": {"hard": {devices: "5"}, "used": {devices: "3"}},
    }


def test_pods_of_several_templates_are_named_after_their_parts_and_a_quota_after_its_usage(
    tmp_path: Path,
) -> None:
    cluster = tmp_path / "cluster.yaml"
    text = CLUSTER.read_text(encoding="utf-8")
    cluster.write_text(f"{text}\n---\n{dump_yaml([gpu_quota()])}", encoding="utf-8")
    output = drawbridge(
        "why",
        "-f",
        "-",
        "--snapshot",
        cluster,
        stdin=PARTS.replace("POD", ONE_GPU_POD),
        COLUMNS="900",
    ).stdout

    assert "Pod default/distill-rollout-1\n" in output
    assert "a quota leaves too little for it beside the other pods of the workload" in output
    assert (
        "requested 1, 5 - 3 used leaves 2; distill-trainer-0 takes 1, distill-rollout-0 takes 1; the pod waits "
        "for its claim; create fewer pods, delete" in output
    )


def test_pods_beyond_a_quota_are_told_at_the_field_with_their_number(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    text = CLUSTER.read_text(encoding="utf-8")
    cluster.write_text(f"{text}\n---\n{dump_yaml([gpu_quota()])}", encoding="utf-8")
    manifest = PARTS.replace("POD", ONE_GPU_POD)
    call = ("check", "-f", "-", "--snapshot", cluster)

    output = drawbridge(*call, stdin=manifest, COLUMNS="900").stdout
    mended = drawbridge(*call, stdin=manifest.replace("parallelism: 2", "parallelism: 1")).stdout

    assert "spec.replicatedJobs[1].template.spec.parallelism: exceeds ResourceQuota gpus" in output
    assert (
        "requested 2 by 2 pods, 5 - 3 used leaves 2; distill-trainer takes 1; some pods wait for their claims; "
        "create at most 1 pod here (write parallelism: 1, and in completions unless pods may run one after the "
        "other), request less" in output
    )
    assert "exceedsQuota" not in mended


@pytest.mark.parametrize("verb", ["check", "why", "simulate"])
def test_an_incomplete_pool_is_waited_for_rather_than_other_devices_taken(
    verb: str, tmp_path: Path
) -> None:
    """Its node has the wanted device; the other node has another one."""
    slices = [one_gpu_on(name) for name in ("one", "two")]
    slices[0]["spec"]["pool"]["resourceSliceCount"] = 2
    for slice_, model in zip(slices, ("large", "small"), strict=True):
        slice_["spec"]["devices"][0]["attributes"]["model"] = {"string": model}
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml([GPU_CLASS, *TWO_NODES, *slices]), encoding="utf-8")
    selector = "device.attributes['gpu.nvidia.com'].model == 'MODEL'"
    exactly = (
        f'{{deviceClassName: gpu.nvidia.com, selectors: [{{cel: {{expression: "{selector}"}}}}]}}'
    )
    pod = ELSEWHERE.split("---")[2].replace("NAMESPACE", "default")
    pod = pod.replace("SOURCE", "resourceClaimTemplateName: wanted")
    template = ELSEWHERE.split("---")[0].replace("one-gpu, namespace: research", "wanted")
    manifests = f"{template.replace('{deviceClassName: gpu.nvidia.com}', exactly)}---{pod}"

    def output(model: str) -> str:
        call = (verb, "-f", "-", "--snapshot", cluster)
        return str(drawbridge(*call, stdin=manifests.replace("MODEL", model), COLUMNS="900").stdout)

    wait = (
        "is incomplete: 1 of 2 slices of generation 1",
        "wait until its driver has published all of it, or ask an administrator to look at the driver on node one",
    )
    assert all(words in output("large") for words in wait)
    assert "small" not in output("large").replace('model "small"', "")
    assert wait[1] not in output("huge")


TOO_MUCH: Final = """
apiVersion: scheduling.k8s.io/v1alpha3
kind: PodGroup
metadata: {name: gang}
spec: {schedulingPolicy: {gang: {minCount: MINIMUM}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      schedulingGroup: {podGroupName: gang}
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
      initContainers:
      - {name: fetch, image: a, resources: {requests: {memory: AMOUNT}}}
      containers:
      - {name: main, image: a, resources: {claims: [{name: gpu}]}}
"""


def test_check_tells_groups_and_requests_that_can_never_have_a_node(tmp_path: Path) -> None:
    large = {"metadata": {"name": "without-devices"}, "status": {"allocatable": {"memory": "1Ti"}}}
    objects: list[dict[str, Any]] = [
        GPU_CLASS,
        *TWO_NODES,
        TWO_NODES[0] | large,
        one_gpu_on("one"),
        one_gpu_on("two"),
    ]
    template = ELSEWHERE.split("---")[0].replace(", namespace: research", "")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"{dump_yaml(objects)}---\n{template}", encoding="utf-8")

    def check(minimum: str, amount: str) -> str:
        manifests = TOO_MUCH.replace("MINIMUM", minimum).replace("AMOUNT", amount)
        return str(drawbridge("check", "-f", "-", "--snapshot", cluster, stdin=manifests).stdout)

    group = (
        "PodGroup/default/gang: PodGroup default/gang needs 3 pods, and 2 exist, so none is placed; create 3 "
        "(parallelism and completions of a Job, or replicas), or write minCount: 2 in the group [groupTooSmall]"
    )
    memory = (
        "initContainers[0].resources.requests[memory]: init container fetch requests memory 65Gi, and no node"
        " with the devices has more than 64Gi; request memory 64Gi or less (node one) [exceedsNodeResources]"
    )
    assert group in check("3", "1Gi")
    assert memory in check("2", "65Gi")
    assert "0 errors, 0 warnings" in check("2", "64Gi")


def test_the_advice_names_the_init_container_that_requests_too_much(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml([GPU_CLASS, TWO_NODES[0], one_gpu_on("one")]), encoding="utf-8")
    template, _, pod = ELSEWHERE.replace("NAMESPACE", "research").split("---")
    pod = pod.replace("SOURCE", "resourceClaimTemplateName: one-gpu")
    pod += "  initContainers: [{name: fetch, image: a, resources: {requests: {memory: 65Gi}}}]\n"

    output = drawbridge(
        "why", "-f", "-", "--snapshot", cluster, stdin=f"{template}---{pod}", COLUMNS="900"
    ).stdout

    assert "request memory 64Gi or less in init container fetch to get node one" in output


def test_a_toleration_of_the_pod_for_a_device_taint_is_told_to_be_in_the_wrong_place(
    tmp_path: Path,
) -> None:
    slice_ = one_gpu_on("one")
    taint = {"key": "gpu.nvidia.com/xid", "value": "63", "effect": "NoSchedule"}
    slice_["spec"]["devices"][0]["taints"] = [taint]
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml([GPU_CLASS, TWO_NODES[0], slice_]), encoding="utf-8")
    template, _, pod = ELSEWHERE.replace("NAMESPACE", "research").split("---")
    pod = pod.replace("SOURCE", "resourceClaimTemplateName: one-gpu")
    tolerating = f"{pod}  tolerations: [{{key: gpu.nvidia.com/xid, operator: Exists}}]\n"

    def why_pod(text: str) -> str:
        call = ("why", "-f", "-", "--snapshot", cluster)
        return str(drawbridge(*call, stdin=f"{template}---{text}", COLUMNS="900").stdout)

    words = "advice    the tolerations of the pod are for taints of nodes, not of devices; write this one in"
    assert words in why_pod(tolerating)
    assert words not in why_pod(pod)


def test_replicas_that_share_a_node_anyway_have_no_advice_about_templates(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml([GPU_CLASS, TWO_NODES[0], one_gpu_on("one")]), encoding="utf-8")

    output = drawbridge("why", "-f", "-", "--snapshot", cluster, stdin=ONE_CLAIM).stdout

    assert "ResourceClaimTemplate" not in output
    assert "Insufficient cpu" in output


SHARES: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shares, namespace: vision}
spec:
  replicas: 3
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - name: main
        image: a
        resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 12000, nvidia.com/gpucores: 30}}
"""


def test_pods_of_a_workload_are_placed_beside_each_other() -> None:
    call = ("-f", "-", "--snapshot", CLUSTER)
    output = drawbridge("why", "deploy/six", *call, stdin=SIX, COLUMNS="900").stdout

    assert (
        "status    not created yet: 4 of 6 pods get a place; 2 do not beside the others: 1 node: "
        "4/4 devices in use" in output
    )
    assert "Pod default/six-4\n  requested nvidia.com/gpu 1 of" in output
    assert "status    pending: no node can take it beside the other pods of the workload" in output
    assert "so waiting does not help: six-0 has 1" in output
    assert "would be placed" not in output
    assert "4 of 6 pods placed" in drawbridge("simulate", *call, stdin=SIX).stdout


def test_a_device_quota_counts_the_pods_of_a_workload_one_after_the_other() -> None:
    call = ("why", "deploy/shares", "-n", "vision", "-f", "-", "--snapshot")
    output = drawbridge(*call, "examples/quota/cluster.yaml", stdin=SHARES, COLUMNS="900").stdout

    assert "1 of 3 pods get a place; 2 do not beside the others: spec.containers[0]" in output
    assert "DeviceQuota vision, limit gpus: 1 device needed, 0 of 4 devices" in output


WHOLE: Final = """
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  containers:
  - {name: main, image: a, resources: {limits: {nvidia.com/gpu: 1}}}
"""
FULL_QUOTA: Final = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus, namespace: default}
spec: {hard: {requests.nvidia.com/gpu: "2"}}
status: {hard: {requests.nvidia.com/gpu: "2"}, used: {requests.nvidia.com/gpu: "2"}}
"""


@pytest.mark.parametrize("target", ["pod/whole", "deploy/six"])
def test_a_resource_quota_rejects_a_pod_and_the_pods_of_a_workload(
    target: str, tmp_path: Path
) -> None:
    state = tmp_path / "quota.yaml"
    state.write_text(FULL_QUOTA)
    output = drawbridge(
        *("why", target, "-f", "-", "--snapshot", CLUSTER, "--snapshot", str(state)),
        stdin=f"{WHOLE}---{SIX}",
        COLUMNS="900",
    ).stdout

    assert "status    rejected: spec." in output
    assert "exceeds ResourceQuota gpus: requests.nvidia.com/gpu: requested" in output
    assert "[exceedsQuota]" in output


def test_a_device_quota_rejects_a_pod_as_check_does() -> None:
    pods = EXAMPLES / "quota" / "pods.yaml"
    call = ("-f", pods, "--snapshot", EXAMPLES / "quota" / "cluster.yaml", "-n", "vision")

    output = drawbridge("why", "pod", "large", *call, COLUMNS="300").stdout
    within = drawbridge("why", "pod", "medium", *call, COLUMNS="300").stdout

    assert "status    rejected: spec.containers[0].resources.limits[nvidia.com/gpumem]: " in output
    assert "write nvidia.com/gpumem: 40960 [exceedsPerRequestQuota]" in output
    assert "rejected" not in within


ELSEWHERE: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: research}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared-gpu, namespace: research}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: NAMESPACE}
spec:
  resourceClaims: [{name: gpu, SOURCE}]
  containers:
  - {name: main, image: a, resources: {claims: [{name: gpu}]}}
"""


@pytest.mark.parametrize(
    ("namespace", "source", "words"),
    [
        (
            "default",
            "resourceClaimTemplateName: one-gpu",
            (
                "namespace research has it, but a pod gets claims of its own namespace only: "
                "create it in default, or the pod in research"
            ),
        ),
        (
            "research",
            "resourceClaimTemplateName: shared-gpu",
            'write resourceClaimName: "shared-gpu", which exists',
        ),
        (
            "research",
            "resourceClaimName: one-gpu",
            'write resourceClaimTemplateName: "one-gpu", which exists',
        ),
        ("research", "resourceClaimName: shraed-gpu", 'did you mean "shared-gpu"?'),
    ],
    ids=["another namespace", "a claim", "a template", "a misspelt name"],
)
def test_a_missing_claim_is_reported_with_what_was_meant(
    namespace: str, source: str, words: str, tmp_path: Path
) -> None:
    manifests = ELSEWHERE.replace("NAMESPACE", namespace).replace("SOURCE", source)
    objects = tmp_path / "objects.yaml"
    objects.write_text(manifests.rpartition("---")[0], encoding="utf-8")
    call = ("-f", "-", "--snapshot", CLUSTER, "--snapshot", objects)

    manifests = manifests.rpartition("---")[2]
    check = drawbridge("check", *call, stdin=manifests)
    why_pod = drawbridge(
        "why", "pod", "train", "-n", namespace, *call, stdin=manifests, COLUMNS="300"
    )

    assert f"and the pod waits for it; {words} [claimMissing]" in check.stdout
    assert f"advice    {words}" in why_pod.stdout


def test_a_claim_that_a_quota_refuses_is_not_told_as_allocated(tmp_path: Path) -> None:
    hard = {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "0"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "research"},
        "spec": {"hard": hard},
    }
    objects = tmp_path / "objects.yaml"
    objects.write_text(dump_yaml([quota]), encoding="utf-8")
    manifests = ELSEWHERE.replace("NAMESPACE", "research")
    manifests = manifests.replace("SOURCE", "resourceClaimTemplateName: one-gpu")
    call = ("-f", "-", "--snapshot", CLUSTER, "--snapshot", objects)

    output = drawbridge("why", "pod/train", "-n", "research", *call, stdin=manifests, COLUMNS="900")

    assert "a ResourceQuota refuses the claim of the pod" in output.stdout
    assert "then      once let through it would be placed on node nvidia-0" in output.stdout
    assert "allocated" not in output.stdout


# --- without a name -------------------------------------------------------------------------------

CLAIM: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
"""
BIG, BYTES, RUNS, WEB = (f"---{text}" for text in PODS.split("---"))


def unnamed(manifests: str, *options: str) -> Any:
    return drawbridge(
        *("why", "-f", "-", "--snapshot", CLUSTER, *options), stdin=manifests, COLUMNS="300"
    )


@pytest.mark.parametrize(
    ("manifests", "title"),
    [
        (BIG, "Pod default/big"),
        (BIG + BIG, "Pod default/big"),
        (WEB, "Deployment default/web"),
        (CLAIM, "ResourceClaim default/shared"),
        (BIG + "---" + CLAIM, "Pod default/big"),
    ],
    ids=["pod", "pod written twice", "workload", "claim", "pod and its claim"],
)
def test_the_only_object_of_manifests_needs_no_name(manifests: str, title: str) -> None:
    result = unnamed(manifests)

    assert (0, title) == (result.exit_code, result.stdout.splitlines()[0])


def test_of_several_objects_of_manifests_the_names_are_reported() -> None:
    result = unnamed(PODS)

    assert result.exit_code == 2
    assert "Which one of -f? pod/big, pod/bytes, pod/runs, deployment/web\n" in result.stderr
    assert "kubectl" not in result.stderr


def test_of_many_objects_of_manifests_few_names_are_reported() -> None:
    pods = "".join(BIG.replace("name: big", f"name: pod-{number:03}") for number in range(200))

    assert "pod/pod-009 and 190 more\n" in unnamed(pods).stderr


def test_hostile_names_of_manifests_are_reported_in_one_line() -> None:
    hostile = BIG.replace("name: big", f'name: "a\\n\\e[31m{"x" * 9999}"')

    (line,) = [line for line in unnamed(BYTES + hostile).stderr.splitlines() if "Which" in line]

    assert r"pod/a\n\x1b[31mxxx" in line
    assert len(line) < 400


def test_the_only_pod_of_manifests_needs_no_namespace() -> None:
    manifests = BIG.replace("name: big", "name: big, namespace: team")

    result = unnamed(manifests)

    assert result.exit_code == 0
    assert "Pod team/big" in result.stdout
    assert result.stdout == unnamed(manifests, "-n", "team").stdout


def test_objects_without_a_namespace_stay_in_that_of_the_call() -> None:
    *_, pod = ELSEWHERE.replace("NAMESPACE", "team").split("---")
    pod = pod.replace("SOURCE", "resourceClaimName: shared")
    claim = CLAIM.replace("name: shared", "name: shared, namespace: team")

    assert "namespace default has it, but" in unnamed(f"{CLAIM}---{pod}").stdout
    assert "would be placed on node" in unnamed(f"{claim}---{pod}").stdout


def test_pods_of_other_namespaces_are_told_with_them() -> None:
    manifests = "".join(
        BIG.replace("name: big", f"name: big, namespace: {namespace}") for namespace in ("a", "b")
    )

    result = unnamed(manifests)

    assert result.exit_code == 2
    assert (
        "-f has nothing to explain in namespace default; choose from pod/big -n a, pod/big -n b\n"
        in result.stderr
    )


def test_manifests_without_a_pod_are_told_as_such() -> None:
    result = unnamed("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")

    assert result.exit_code == 2
    assert (
        "-f has no pod, claim or workload with pods of its own, only ConfigMap; name a pod or claim"
        in result.stderr
    )


SPARE: Final = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: serve}
spec:
  headGroupSpec:
    template: {spec: {containers: [{name: head, image: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}
  workerGroupSpecs:
  - groupName: gpu
    replicas: 2
    template: {spec: {containers: [{name: worker, image: a, resources: {limits: {nvidia.com/gpu: 2}}}]}}
"""


def test_devices_that_another_part_of_a_workload_takes_are_told_as_its_own(tmp_path: Path) -> None:
    slices = [one_gpu_on(name) for name in ("one", "two")]
    for slice_ in slices:
        gpu = slice_["spec"]["devices"][0]
        slice_["spec"]["devices"] = [gpu, {**gpu, "name": "gpu-1"}]
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml([GPU_CLASS, *TWO_NODES, *slices]), encoding="utf-8")
    call = ("-f", "-", "--snapshot", cluster)
    outputs = [
        drawbridge(verb, *call, stdin=SPARE, COLUMNS="900").stdout for verb in ("why", "simulate")
    ]
    mended = SPARE.replace("nvidia.com/gpu: 1", "cpu: 1")

    for output in outputs:
        assert (
            "the devices in use on node one are those of the manifests' own pods, so waiting does "
            "not help: serve-head-0 has 1" in output
        )
        assert "without nvidia.com/gpu in head (1), all 3 pods fit" in output
        assert "once its devices are free" not in output
    assert "3 of 3 pods placed" in drawbridge("simulate", *call, stdin=mended).stdout


MISPLACED: Final = """
apiVersion: resource.k8s.io/v1
kind: KIND
metadata: {name: wanted}
spec: SPEC
---
apiVersion: v1
kind: Pod
metadata: {name: main}
spec:
  resourceClaims: [{name: gpu, SOURCE: wanted}]
  containers: [{name: main, image: a, resources: {claims: [{name: gpu}]}}]
"""
REQUESTS: Final = "requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]"


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("ResourceClaimTemplate", f"{{devices: {{{REQUESTS}}}}}", "spec.spec.devices"),
        ("ResourceClaimTemplate", f"{{{REQUESTS}}}", "spec.spec.devices.requests"),
        ("ResourceClaim", f"{{{REQUESTS}}}", "spec.devices.requests"),
        ("ResourceClaim", f"{{spec: {{devices: {{{REQUESTS}}}}}}}", ""),
    ],
)
def test_a_claim_that_loses_all_its_requests_is_an_error_and_its_lack_of_devices_is_told(
    kind: str, spec: str, path: str, tmp_path: Path
) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml([GPU_CLASS, *TWO_NODES, one_gpu_on("one")]), encoding="utf-8")
    source = "resourceClaimTemplateName" if kind.endswith("Template") else "resourceClaimName"
    manifest = MISPLACED.replace("KIND", kind).replace("SPEC", spec).replace("SOURCE", source)
    call = ("-f", "-", "--snapshot", cluster)

    checked = drawbridge("check", *call, stdin=manifest)
    simulated = drawbridge("simulate", *call, stdin=manifest, COLUMNS="900").stdout

    assert 1 == checked.exit_code
    assert "and drops it, so the claim requests no devices" in checked.stdout
    assert not path or f"; write it in {path} [unknownField]" in checked.stdout
    assert "no devices, since it has no requests" in simulated
    assert "1 of 1 claim placed, 1 claim without requests, so without devices" in simulated


def test_an_annotation_of_several_lines_is_told_in_one() -> None:
    hint = "scheduling.koordinator.sh/device-joint-allocate"
    value = '{\\n  \\"deviceTypes\\": [\\"gpu\\"]\\n}'
    pod = f"""
apiVersion: v1
kind: Pod
metadata: {{name: joint, annotations: {{{hint}: "{value}"}}}}
spec:
  containers:
  - {{name: main, image: a, resources: {{limits: {{koordinator.sh/gpu: 100}}}}}}
"""

    output = drawbridge("why", "-f", "-", "--snapshot", CLUSTER, stdin=pod, COLUMNS="900").stdout

    assert f'{hint}: {{ "deviceTypes": ["gpu"] }}' in output


def test_what_device_plugins_offer_is_told_of_new_pods_where_no_driver_publishes_devices(
    tmp_path: Path,
) -> None:
    cluster = tmp_path / "cluster.yaml"
    node = api_object("Node", "a", status={"allocatable": {"nvidia.com/gpu": "8"}})
    waiting = api_object("Pod", "waiting", "default", spec=pod(gpus(1))["spec"])
    cluster.write_text(dump_yaml([node, waiting]), encoding="utf-8")
    call = ("--snapshot", cluster)

    new = drawbridge("why", "-f", "-", *call, stdin=dump_yaml([pod(gpus(1))]))
    old = drawbridge("why", "pod", "waiting", *call)

    note = "note: no driver publishes devices; device plugins offer nvidia.com/gpu (8 on 1 node)"
    assert note in new.stderr
    assert note not in old.stderr
