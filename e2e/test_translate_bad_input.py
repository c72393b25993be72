"""Bad input is refused with its cause, a lossy one is warned about, a right one is silent.

All of it in kubectl's own words, since these are what users see. Nothing here is persisted.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from e2e.access import Access, stream
from e2e.drawbridge import Drawbridge
from e2e.fleet import EXAMPLES
from e2e.objects import Object, container, deployment, pod
from testing.documents import resource_quota

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

GPU = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
PERCENT = "nvidia.com/gpumem-percentage"
CORES = "nvidia.com/gpucores"

LIMITS = "spec.containers[0].resources.limits"
BELOW_SPEC = "containers[0].resources.limits"
"""The path as warnings write it."""


def share(**spec: Any) -> Object:
    """A good share of a GPU, in a pod with something more."""
    return pod("pod", limits={GPU: 1, MEMORY: 3000}, **spec)


def asking(limits: Mapping[str, str | int], **more: Any) -> Object:
    return pod("pod", limits=limits, **more)


class Refusal(NamedTuple):
    """Attributes: words: Parts that must all be in the output of kubectl."""

    name: str
    pod: Object
    words: tuple[str, ...]


REFUSED = (
    Refusal(
        "half a GPU in milli-units",
        asking({GPU: "500m"}),
        (f"{LIMITS}[nvidia.com/gpu]: drawbridge[notAnInteger]: 500m is not a whole number",),
    ),
    Refusal(
        "one and a half GPUs",
        asking({GPU: "1.5"}),
        (f"{LIMITS}[nvidia.com/gpu]: drawbridge[notAnInteger]: 1500m is not a whole number",),
    ),
    Refusal(
        "a fraction of a MIG device",
        asking({"nvidia.com/mig-1g.5gb": "500m"}),
        (f"{LIMITS}[nvidia.com/mig-1g.5gb]: drawbridge[notAnInteger]: 500m is not a whole number",),
    ),
    Refusal(
        "fewer GPUs than none, which Kubernetes itself refuses where a class maps the name",
        asking({GPU: -1}),
        (f'{LIMITS}[nvidia.com/gpu]: Invalid value: "-1": must be greater than or equal to 0',),
    ),
    Refusal(
        "less memory than none",
        asking({GPU: 1, MEMORY: -1}),
        (f"{LIMITS}[nvidia.com/gpumem]: drawbridge[negative]: -1 is negative",),
    ),
    Refusal(
        "memory in bytes where the key counts MiB",
        asking({GPU: 1, MEMORY: "8Gi"}),
        (f"{LIMITS}[nvidia.com/gpumem]: drawbridge[wrongUnit]: 8Gi is", "write 8192 for 8Gi"),
    ),
    Refusal(
        "MiB that kubectl writes as a number of bytes",
        asking({GPU: 1, MEMORY: 3_000_000_000}),
        (f"{LIMITS}[nvidia.com/gpumem]: drawbridge[wrongUnit]: 3G is", "write 2862 for 3G"),
    ),
    Refusal(
        "more than all memory",
        asking({GPU: 1, PERCENT: 101}),
        (f"{LIMITS}[nvidia.com/gpumem-percentage]: drawbridge[outOfRange]: 101 percent",),
    ),
    Refusal(
        "less than no memory",
        asking({GPU: 1, PERCENT: -1}),
        (f"{LIMITS}[nvidia.com/gpumem-percentage]: drawbridge[negative]: -1",),
    ),
    Refusal(
        "a fraction of a percent of the cores",
        asking({GPU: 1, CORES: "0.5"}),
        (f"{LIMITS}[nvidia.com/gpucores]: drawbridge[notAnInteger]: 500m is not a whole number",),
    ),
    Refusal(
        "a replica where nobody publishes any",
        asking({"nvidia.com/gpu.shared": 1}),
        ("gpu.nvidia.com publishes no replicas of a GPU", "or request a whole GPU"),
    ),
    Refusal(
        "a MIG profile that does not exist",
        asking({"nvidia.com/mig-10gb": 1}),
        (
            f'{LIMITS}[nvidia.com/mig-10gb]: drawbridge[unknownMigProfile]: "10gb" is not a MIG profile',
            "nvidia.com/mig-1g.10gb",
        ),
    ),
    Refusal(
        "a replica of a MIG device",
        asking({"nvidia.com/mig-1g.5gb.shared": 1}),
        ("no driver publishes time-sliced replicas of a MIG device", "nvidia.com/mig-1g.5gb"),
    ),
    Refusal(
        "requests without limits",
        pod("pod", requests={GPU: 1}),
        (
            f"{LIMITS}[nvidia.com/gpu]: drawbridge[limitRequired]: Required value",
            "also set limits[nvidia.com/gpu] to 1",
        ),
    ),
    Refusal(
        "requests that differ from limits",
        asking({GPU: 2, MEMORY: 1000}, requests={GPU: 1}),
        (
            "spec.containers[0].resources.requests[nvidia.com/gpu]: drawbridge[limitDiffers]: Invalid value: 1",
            "must be equal to nvidia.com/gpu limit of 2",
        ),
    ),
    Refusal(
        "an init container is named as such",
        pod("pod", initContainers=[container("setup", limits={GPU: 1, MEMORY: "1Gi"})]),
        ("spec.initContainers[0].resources.limits[nvidia.com/gpumem]: drawbridge[wrongUnit]: 1Gi",),
    ),
    Refusal(
        "a share for a privileged container",
        share(
            containers=[
                {
                    **container("main", limits={GPU: 1, MEMORY: 3000}),
                    "securityContext": {"privileged": True},
                }
            ]
        ),
        (
            "spec.containers[0].securityContext.privileged: drawbridge[privilegedShare]: a privileged container sees every GPU",
        ),
    ),
    Refusal(
        "a mode that no card has",
        share(annotations={"nvidia.com/vgpu-mode": "timeslice"}),
        (
            'metadata.annotations[nvidia.com/vgpu-mode]: drawbridge[unknownMode]: "timeslice" contains no mode of a card',
            "write one of hami-core, mig, mps",
        ),
    ),
    Refusal(
        "mode mig without an amount that could choose the profile",
        asking({GPU: 1}, annotations={"nvidia.com/vgpu-mode": "mig"}),
        ("the memory selects the MIG profile", "nvidia.com/mig-<profile>"),
    ),
    Refusal(
        "mode mps with a percentage",
        asking({GPU: 1, PERCENT: 50}, annotations={"nvidia.com/vgpu-mode": "mps"}),
        ("50 percent is another amount on each type of GPU", "nvidia.com/gpumem"),
    ),
    Refusal(
        "a list of card types that holds nothing",
        share(annotations={"nvidia.com/use-gputype": " , "}),
        (
            "metadata.annotations[nvidia.com/use-gputype]",
            "contains only separators, so no GPU would match",
        ),
    ),
    Refusal(
        "a list of cards that no selector holds",
        share(annotations={"nvidia.com/use-gpuuuid": ",".join(f"GPU-{n:036}" for n in range(300))}),
        (
            "metadata.annotations[nvidia.com/use-gpuuuid]: drawbridge[tooLong]: the selector would have",
            "at most 10240",
        ),
    ),
    Refusal(
        "more devices than a claim holds",
        asking({GPU: 33, MEMORY: 100}),
        ("33 devices in one claim, Kubernetes allocates at most 32",),
    ),
    Refusal(
        "two faults are both told",
        asking({GPU: "0.5", MEMORY: "1Gi"}),
        (
            "* spec",
            "[nvidia.com/gpu]: drawbridge[notAnInteger]: 500m",
            "[nvidia.com/gpumem]: drawbridge[",
        ),
    ),
)


class Loss(NamedTuple):
    """Attributes: lost: One text per warning, in no order; each stands in a line of its own."""

    name: str
    pod: Object
    warnings: tuple[str, ...]


WARNED = (
    Loss(
        "more than all cores mean all, as in HAMi",
        asking({GPU: 1, CORES: 150}),
        (f"{BELOW_SPEC}[nvidia.com/gpucores]: 150 percent of a GPU's cores counts as 100",),
    ),
    Loss(
        "all cores keep nobody away who has no cap",
        asking({GPU: 1, MEMORY: 1000, CORES: 100}),
        (f"{BELOW_SPEC}[nvidia.com/gpucores]: all cores and an amount of memory",),
    ),
    Loss(
        "placement belongs to HAMi's scheduler",
        share(
            annotations={
                "hami.io/gpu-scheduler-policy": "binpack",
                "hami.io/node-scheduler-policy": "spread",
                "hami.io/device-scoring-weights": '{"memory": 2}',
            }
        ),
        (
            'a claim cannot express the GPU policy "binpack"',
            "hami.io/node-scheduler-policy configures HAMi's own scheduler",
            "hami.io/device-scoring-weights configures HAMi's own scheduler",
        ),
    ),
    Loss(
        "a policy with control characters stays one line",
        share(annotations={"hami.io/gpu-scheduler-policy": "bin\npack\x1b[31m"}),
        ('a claim cannot express the GPU policy "bin',),
    ),
    Loss(
        "policy mutex takes the whole GPU",
        share(annotations={"hami.io/gpu-scheduler-policy": "mutex"}),
        ("policy mutex requires an exclusive GPU",),
    ),
    Loss(
        "a NUMA node that the driver does not publish",
        asking({GPU: 2, MEMORY: 1000}, annotations={"nvidia.com/numa-bind": "true"}),
        (
            "hami-core-gpu.project-hami.io publishes no NUMA node; the devices may be on different ones",
        ),
    ),
    Loss(
        "mode mps is for this pod alone",
        share(annotations={"nvidia.com/vgpu-mode": "mps"}),
        ("the MPS server serves only this pod", "its feature gate MPSSupport"),
    ),
    Loss(
        "a MIG device brings its own cores",
        asking({GPU: 1, MEMORY: 4000, CORES: 50}, annotations={"nvidia.com/vgpu-mode": "mig"}),
        ("the cores of a MIG device are fixed",),
    ),
    Loss(
        "a MIG device larger than any that is published",
        asking({GPU: 1, MEMORY: 500_000}, annotations={"nvidia.com/vgpu-mode": "mig"}),
        ("no MIG device of 500000Mi or more is published yet",),
    ),
    Loss(
        "memory beside no GPU",
        asking({GPU: 0, MEMORY: 3000}),
        (
            f"{BELOW_SPEC}[nvidia.com/gpumem]: nvidia.com/gpumem has no effect, because nvidia.com/gpu is 0",
        ),
    ),
    Loss(
        "an init container sees the app's share",
        share(initContainers=[container("setup", limits={GPU: 1, MEMORY: 1000})]),
        ("initContainers[0].resources.limits[nvidia.com/gpu]: shares the device of container",),
    ),
    Loss(
        "an init container's devices stay with the pod",
        share(initContainers=[container("setup", limits={GPU: 2, MEMORY: 1000})]),
        ("the pod holds the init container's devices for its whole lifetime",),
    ),
    Loss(
        "an environment variable that may open every GPU",
        pod(
            "pod",
            containers=[
                {
                    **container("main", limits={"nvidia.com/mig-1g.5gb": 1}),
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                }
            ],
        ),
        ("NVIDIA_VISIBLE_DEVICES in the manifest may expose GPUs that are not in the claim",),
    ),
    Loss(
        "a misspelt key alone, which the webhook for pods does not see",
        asking({"nvidia.com/gpumems": 1000}),
        (f"{BELOW_SPEC}[nvidia.com/gpumems]: ",),
    ),
    Loss(
        "a key of a misspelt domain",
        asking({"nvdia.com/gpu": 1}),
        ("did you mean nvidia.com/gpu?",),
    ),
    Loss(
        "a node label of shared GPUs",
        share(nodeSelector={"nvidia.com/gpu.product": "A100-SHARED"}),
        ('nodeSelector[nvidia.com/gpu.product]: "A100-SHARED" is a label of nodes whose device',),
    ),
)

SILENT = (
    ("a share", share()),
    ("a share of two GPUs", asking({GPU: 2, MEMORY: 1000, CORES: 10})),
    ("half the memory", asking({GPU: 1, PERCENT: 50})),
    ("a MIG device", asking({"nvidia.com/mig-1g.5gb": 1})),
    ("requests that equal limits", asking({GPU: 1, MEMORY: 1000}, requests={GPU: 1, MEMORY: 1000})),
    ("an amount with a suffix that is no unit of bytes", asking({GPU: 1, MEMORY: "5k"})),
    ("a whole GPU, which Kubernetes serves", asking({GPU: 1})),
    ("a pod without devices", asking({"cpu": "1"})),
    (
        "a container with the longest name there is",
        pod("pod", containers=[container("c" * 63, limits={GPU: 1, MEMORY: 1000})]),
    ),
    (
        "as many containers as a share may have",
        pod(
            "pod",
            containers=[
                container(f"part-{number}", limits={GPU: 1, MEMORY: 1000}) for number in range(40)
            ],
        ),
    ),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_is_wrong_is_refused_with_its_cause(
    cluster: Access, workshop: str, case: Refusal
) -> None:
    output = cluster.kubectl(*_dry_run(workshop), input=stream(case.pod), check=False)

    assert output.returncode == 1
    assert output.stdout == ""
    assert 'The Pod "pod" is invalid:' in output.stderr
    for words in case.words:
        assert words in output.stderr


@pytest.mark.parametrize("case", WARNED, ids=lambda case: case.name)
def test_what_is_lost_is_reported_in_one_line_each(
    cluster: Access, workshop: str, case: Loss
) -> None:
    output = cluster.kubectl(*_dry_run(workshop), input=stream(case.pod))

    # A fix that does not fit is a warning of its own.
    lines = [line for line in output.stderr.splitlines() if "]: fix: " not in line]
    assert len(lines) == len(case.warnings), output.stderr
    assert all(line.startswith("Warning: drawbridge[") for line in lines)
    for text in case.warnings:
        assert any(text in line for line in lines), output.stderr


def test_a_workload_is_told_what_a_quota_has_left(cluster: Access, namespace: str) -> None:
    line = "requests.nvidia.com/gpu"
    quota = resource_quota({line: "2"}, namespace=namespace)
    cluster.apply([quota])
    cluster.wait_for(
        "resourcequotas",
        "gpus",
        namespace,
        until=lambda stored: line in stored.get("status", {}).get("used", {}),
    )
    workload = deployment("web", pod("pod", limits={GPU: 1}), replicas=3)

    def told() -> bool:
        output = cluster.kubectl(*_dry_run(namespace), input=stream(workload))
        return "requested 3 by 3 pods, used 0, hard 2" in output.stderr

    cluster.wait_until(told, "the webhook has seen the quota")


def test_what_is_right_is_silent(cluster: Access, workshop: str) -> None:
    pods = [
        {**spec, "metadata": {**spec["metadata"], "name": f"pod-{number}"}}
        for number, (_, spec) in enumerate(SILENT)
    ]

    output = cluster.kubectl(*_dry_run(workshop), input=stream(pods))

    assert output.stderr == ""
    assert len(output.stdout.splitlines()) == len(SILENT)


def test_every_mistake_among_the_examples_is_refused(cluster: Access, workshop: str) -> None:
    mistakes = sorted((EXAMPLES / "mistakes").glob("*.yaml"))

    command = ("apply", "-n", workshop, "--dry-run=server", "-f", EXAMPLES / "mistakes")
    output = cluster.kubectl(*command, check=False)

    assert output.returncode == 1
    assert output.stdout == ""
    assert mistakes
    # Of several faulty files kubectl prints messages, not causes.
    for mistake in mistakes:
        assert f'error when creating "{mistake}": admission webhook' in output.stderr
    for words in (
        "write 8192 for 8Gi",
        "is not a whole number",
        "also set limits[nvidia.com/gpumem] to 3000",
    ):
        assert words in output.stderr


def test_what_is_no_quantity_is_refused_by_the_api_server_itself(
    cluster: Access, workshop: str
) -> None:
    output = cluster.kubectl(*_dry_run(workshop), input=stream(asking({GPU: "one"})), check=False)

    assert output.returncode == 1
    assert "quantities must match the regular expression" in output.stderr


def test_the_cause_reaches_who_looks_at_what_makes_the_pods(
    cluster: Access, namespace: str, drawbridge: Drawbridge
) -> None:
    """As long as that is of a kind that is not validated itself."""
    wrong = deployment("wrong", asking({GPU: 1, MEMORY: "8Gi"}))
    wrong |= {"apiVersion": "v1", "kind": "ReplicationController"}
    wrong["spec"]["selector"] = wrong["spec"]["selector"]["matchLabels"]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(wrong))

    def causes() -> list[str]:
        events = cluster.objects("events", namespace)
        return [event["message"] for event in events if event["reason"] == "FailedCreate"]

    cluster.wait_until(causes, "the controller says why it makes no pod")

    assert (
        "8Gi is a number of bytes, and nvidia.com/gpumem counts MiB; write 8192 for 8Gi"
        in causes()[0]
    )


def _dry_run(namespace: str) -> tuple[str, ...]:
    return ("apply", "-n", namespace, "--dry-run=server", "-f", "-")
