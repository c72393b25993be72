"""Members of a group that are not tried with it, or get no place beside it, in `simulate` and `why`."""

from pathlib import Path
from typing import Final

from kube.manifests.dump import dump_yaml
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object

CLUSTER: Final = EXAMPLES / "groups" / "cluster.yaml"
"""Two nodes with four and three GPUs."""
TEMPLATE: Final = api_object(
    "ResourceClaimTemplate",
    "two",
    "default",
    spec={
        "spec": {
            "devices": {
                "requests": [
                    {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}
                ]
            }
        }
    },
)


def gang(minimum: int) -> Document:
    return api_object(
        "PodGroup",
        "ring",
        "default",
        api_version="scheduling.k8s.io/v1beta1",
        spec={"schedulingPolicy": {"gang": {"minCount": minimum}}},
    )


def member_spec(*, has_gpus: bool = True) -> Document:
    """The spec of a pod of the group, with two GPUs or without any."""
    entry = {"name": "gpus", "resourceClaimTemplateName": "two"}
    claims = {"claims": [{"name": "gpus"}]} if has_gpus else {}
    return {
        "schedulingGroup": {"podGroupName": "ring"},
        "restartPolicy": "Never",
        "resourceClaims": [entry] if has_gpus else [],
        "containers": [{"name": "main", "image": "a", "resources": claims}],
    }


def job(name: str, pods: int, **options: bool) -> Document:
    template = {"spec": member_spec(**options)}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return api_object("Job", name, "default", api_version="batch/v1", spec=spec)


def words(tmp_path: Path, verb: str, *arguments: str, of: list[Document]) -> str:
    """The words of a command about objects, on one line."""
    file = tmp_path / "objects.yaml"
    file.write_text(dump_yaml(of))
    result = drawbridge(verb, *arguments, "-f", file, "--snapshot", CLUSTER)
    assert result.exit_code == (verb == "simulate"), result.output
    return " ".join(result.stdout.split())


# --- quotas ---------------------------------------------------------------------------------------


def quota(gpus: int) -> list[Document]:
    labels = {"kubernetes.io/metadata.name": "default"}
    limit = {"name": "gpus", "driver": "gpu.example.com", "devices": {}, "max": str(gpus)}
    return [
        api_object("Namespace", "default", labels=labels),
        api_object(
            "DeviceQuota",
            "team",
            api_version="drawbridge.internal/v1alpha1",
            spec={"namespaceSelector": {"matchLabels": labels}, "limits": [limit]},
        ),
    ]


ABOVE: Final = (
    "PodGroup default/ring needs 3 pods, and a quota leaves too little for 1 of 3; request less, raise the "
    "quota, or write minCount: 2 in the group"
)


def test_a_pod_above_a_quota_is_still_one_of_its_group(tmp_path: Path) -> None:
    objects = [gang(3), TEMPLATE, job("train", 3)]

    assert f"because {ABOVE} [quota]" in words(tmp_path, "simulate", of=[*objects, *quota(4)])


def test_why_has_one_answer_on_a_group_above_a_quota(tmp_path: Path) -> None:
    text = words(tmp_path, "why", of=[gang(3), TEMPLATE, job("train", 3), *quota(4)])

    assert f"status not created yet: 0 of 3 pods get a place: {ABOVE} pending 3 pods" in text
    assert f"Pod default/train-0 status pending: {ABOVE}" in text
    assert "3 pods placed" not in text


def test_a_pod_above_a_quota_fails_no_group_that_is_complete_without_it(tmp_path: Path) -> None:
    objects = [gang(2), TEMPLATE, job("train", 3), *quota(4)]

    assert "PodGroup default/ring 2 pods placed; 2 needed" in words(
        tmp_path, "simulate", of=objects
    )


def test_pods_that_a_group_lacks_are_created_before_its_quota_is_raised(tmp_path: Path) -> None:
    text = words(tmp_path, "simulate", of=[gang(5), TEMPLATE, job("train", 3), *quota(4)])

    assert "PodGroup default/ring needs 5 pods, and 3 exist; create 5" in text


# --- several objects ------------------------------------------------------------------------------


def test_why_places_a_workload_with_the_others_of_its_group(tmp_path: Path) -> None:
    objects = [gang(4), TEMPLATE, job("launcher", 1, has_gpus=False), job("worker", 3)]
    text = words(tmp_path, "why", "job/worker", of=objects)

    assert "Job default/worker status not created yet: all 3 pods get a place" in text
    assert "Pod default/worker-0 status not created yet: it would be placed on node node-a" in text
    assert "PodGroup default/ring 4 pods placed; 4 needed" in text
    assert "Job default/launcher status not created yet: the 1 pod gets a place" in words(
        tmp_path, "why", "job/launcher", of=objects
    )


def test_why_counts_the_pods_of_the_workload_alone(tmp_path: Path) -> None:
    objects = [gang(5), TEMPLATE, job("launcher", 1, has_gpus=False), job("worker", 4)]
    text = words(tmp_path, "why", "job/launcher", of=objects)

    assert (
        "status not created yet: 0 of 1 pod gets a place: 4 of 5 pods fit, and 5 are needed" in text
    )
    assert "pending 1 pod: launcher-0" in text


def test_why_places_a_pod_with_a_workload_of_its_group(tmp_path: Path) -> None:
    launcher = api_object("Pod", "launcher", "default", spec=member_spec(has_gpus=False))
    text = words(
        tmp_path, "why", "pod/launcher", of=[gang(4), TEMPLATE, launcher, job("worker", 3)]
    )

    assert "Pod default/launcher status not created yet: it would be placed on node" in text


def test_a_workload_of_another_group_is_left_out(tmp_path: Path) -> None:
    """A pod of it would take the GPUs first."""
    other = job("another", 3)
    del other["spec"]["template"]["spec"]["schedulingGroup"]
    text = words(tmp_path, "why", "job/worker", of=[gang(3), TEMPLATE, other, job("worker", 3)])

    assert "PodGroup default/ring 3 pods placed; 3 needed" in text
    assert "all 3 pods get a place" in text


# --- pods beyond the minimum ----------------------------------------------------------------------

_FULL: Final = (
    "on node-a because 4/4 devices in use [allocated] on node-b because 2/3 devices in use [allocated] "
    "only 1 suitable device, 2 requested [tooFewDevices]"
)


def test_pods_beyond_the_minimum_have_reasons(tmp_path: Path) -> None:
    pods = [api_object("Pod", f"p{number}", "default", spec=member_spec()) for number in range(6)]
    objects = [gang(2), TEMPLATE, *pods]
    text = words(tmp_path, "simulate", of=objects)

    assert "PodGroup default/ring 3 pods placed; 2 needed" in text
    assert "Pod default/p3 not placed closest request 1 device to fit node node-b" in text
    assert text.count(_FULL) == 3
    assert (
        f"closest request 1 device to fit node node-b fits node node-a unchanged once its devices are free {_FULL}"
        in words(tmp_path, "why", "pod/p4", of=objects)
    )
    assert _FULL not in words(tmp_path, "why", "pod/p0", of=objects)


def test_equal_pods_beyond_the_minimum_are_shown_once(tmp_path: Path) -> None:
    text = words(tmp_path, "simulate", of=[gang(2), TEMPLATE, job("train", 6)])

    assert "Job default/train 3 pods not placed pods train-3, train-4, train-5 closest" in text
    assert text.count(_FULL) == 1


# --- one domain -----------------------------------------------------------------------------------


def racks() -> list[Document]:
    """The two nodes, each in a rack of its own."""
    limits = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return [
        {**api_object("Node", name, labels={"rack": rack}), "status": {"allocatable": limits}}
        for name, rack in (("node-a", "r1"), ("node-b", "r2"))
    ]


def of_one_rack(minimum: int) -> Document:
    group = gang(minimum)
    group["spec"]["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
    return group


def test_a_pod_beyond_the_minimum_keeps_its_own_node_selector(tmp_path: Path) -> None:
    """The rack of the group was written over it, so that the second pod was placed in the wrong rack."""
    pods = [
        api_object("Pod", name, "default", spec={**member_spec(), "nodeSelector": {"rack": rack}})
        for name, rack in (("a", "r1"), ("b", "r2"))
    ]
    text = words(tmp_path, "simulate", of=[of_one_rack(1), TEMPLATE, *pods, *racks()])

    assert "PodGroup default/ring 1 pod placed; 1 needed" in text
    assert "on node-a because nodeSelector requires rack=r2 [nodeNotEligible]" in text
    assert "on node-b because not in the group's rack r1 [nodeNotEligible]" in text
    assert "1 node(s) didn't match Pod's node affinity/selector." in text


def test_the_rack_of_its_group_is_no_node_selector_of_a_pod(tmp_path: Path) -> None:
    pods = [api_object("Pod", name, "default", spec=member_spec()) for name in "abc"]
    objects = [of_one_rack(2), TEMPLATE, *pods, *racks()]
    text = words(tmp_path, "simulate", of=objects)

    assert "on node-b because not in the group's rack r1 [nodeNotEligible]" in text
    assert "nodeSelector" not in text
    assert "not in the group's rack r1" in words(tmp_path, "why", "pod/c", of=objects)
