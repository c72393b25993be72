"""The scheduler of the pods of a group: one for all of them; and gangs that become PodGroups."""

from typing import Any

import pytest

from admission.group_routing import Groups, admit_member, is_group_unknown, route_member
from admission.match_conditions import GANG_ANNOTATIONS, GANG_LABELS
from admission.pods import Answer, Decision
from admission.routing import Bridge
from allocator.declarations.adopted import adopted_name
from allocator.declarations.model import Declaration, GroupName, GroupSystem
from allocator.declarations.pod_group import PodGroup
from allocator.declarations.read import (
    COSCHEDULING_LABEL,
    KAI_NAME,
    KOORDINATOR_LABELS,
    KOORDINATOR_NAME,
    VOLCANO_NAMES,
    read_gang,
)
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import DeviceClaim
from kube.jsonpatch import add
from kube.names import GROUP_SCHEDULER_ANNOTATION, SCHEDULER_NAME
from rules.context.context import Context
from testing.documents import EXAMPLE, NVIDIA, device, exactly, resource_slice
from testing.rule_contexts import GPUS, context, named_class

NAMESPACE = "team"
GROUP = "training"
NAME = "gang.scheduling.koordinator.sh/name"
MINIMUM = "gang.scheduling.koordinator.sh/min-available"
OTHER_DEVICE = resource_slice(
    device("nic-0"),
    name="nics",
    driver=NVIDIA,
    pool={"name": "nics", "generation": 1, "resourceSliceCount": 1},
)
CLASSES = {name: named_class(name, f"device.driver == '{name}'") for name in (EXAMPLE, NVIDIA)}
CLAIMS = {
    (NAMESPACE, name): convert({"requests": [exactly(deviceClassName=name)]}, DeviceClaim)
    for name in CLASSES
}
ADD_SCHEDULER = add("/spec/schedulerName", SCHEDULER_NAME)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1"}
ROUTED = Decision.ROUTED
LEFT = Decision.UNTOUCHED


def cluster(*owned: str, **more: Any) -> Context:
    return context(
        GPUS,
        OTHER_DEVICE,
        classes=CLASSES,
        templates=CLAIMS,
        claims=CLAIMS,
        owned_drivers=frozenset(owned or (EXAMPLE,)),
        **more,
    )


def pod(*templates: str, metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    entries = [{"name": name, "resourceClaimTemplateName": name} for name in templates]
    document = {
        "metadata": {"name": "pod", **(metadata or {})},
        "spec": {"resourceClaims": entries, **spec},
    }
    return convert(document, Pod)


def member(*templates: str, metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    group = {"podGroupName": GROUP}
    return pod(*templates, metadata=metadata, schedulingGroup=group, **spec)


def gang_pod(*templates: str, minimum: str | None = "2", name: str = "ring", **spec: Any) -> Pod:
    annotations = {NAME: name} | ({} if minimum is None else {MINIMUM: minimum})
    return pod(*templates, metadata={"annotations": annotations}, **spec)


def pod_group(
    name: str = GROUP, *, scheduler: str = "", minimum: int = 2, **more: Any
) -> dict[tuple[str, str], PodGroup]:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
    if scheduler:
        metadata["annotations"] = {GROUP_SCHEDULER_ANNOTATION: scheduler}
    if owners := more.pop("owners", None):
        metadata["ownerReferences"] = owners
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, **more}
    return {(NAMESPACE, name): convert({"metadata": metadata, "spec": spec}, PodGroup)}


def route(
    created_pod: Pod, groups: dict[tuple[str, str], PodGroup] | None = None, **facts: Any
) -> Answer:
    known = Groups(by_name=groups or {}, **{"is_served": True, **facts})
    return route_member(created_pod, NAMESPACE, cluster(), Bridge(SCHEDULER_NAME), groups=known)


def codes(answer: Answer) -> list[str]:
    return [finding.code.value for finding in answer.findings]


OURS = pod_group(scheduler=SCHEDULER_NAME)
OTHERS = pod_group(scheduler="default-scheduler")
WITH_CLAIM = pod_group(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": EXAMPLE}])
WITH_OTHER_CLAIM = pod_group(resourceClaims=[{"name": "n", "resourceClaimTemplateName": NVIDIA}])


@pytest.mark.parametrize(
    ("name", "created_pod", "groups", "expected"),
    [
        ("its own claims decide, before the PodGroup exists", member(EXAMPLE), {}, ROUTED),
        ("and where the PodGroup does not tell", member(EXAMPLE), pod_group(), ROUTED),
        ("without claims, the annotation decides", member(), OURS, ROUTED),
        ("as does one that names another scheduler", member(), OTHERS, LEFT),
        ("without claims, those of the PodGroup decide", member(), WITH_CLAIM, ROUTED),
        ("claims of other drivers, in a group that does not tell", member(NVIDIA), pod_group(), LEFT),
        ("one owner: its template decides",
         member(metadata={"ownerReferences": [OWNER | {"controller": True}]}),
         pod_group(owners=[OWNER]), LEFT),
        ("a scheduler of its own", member(schedulerName="volcano"), {}, LEFT),
        ("the bridge by name", member(schedulerName=SCHEDULER_NAME), pod_group(), LEFT),
        ("bound already", member(nodeName="node"), {}, LEFT),
    ],
    ids=str,
)  # fmt: skip
def test_all_pods_of_a_group_have_one_scheduler(
    name: str, created_pod: Pod, groups: dict[tuple[str, str], PodGroup], expected: Decision
) -> None:
    answer = route(created_pod, groups)

    assert (answer.decision, answer.findings) == (expected, ()), name
    assert answer.operations == ((ADD_SCHEDULER,) if expected is ROUTED else ())


@pytest.mark.parametrize(
    ("name", "created_pod", "groups", "code", "words"),
    [
        ("no PodGroup yet", member(), {}, "groupSchedulerUnknown",
         'PodGroup "training" does not exist yet'),
        ("a PodGroup that does not tell", member(), pod_group(), "groupSchedulerUnknown",
         "has neither claims nor annotation drawbridge.internal/scheduler"),
        ("claims of a driver that is not owned, in the PodGroup", member(), WITH_OTHER_CLAIM,
         "groupSchedulerUnknown", "has no devices of its own"),
        ("another owner",
         member(metadata={"ownerReferences": [OWNER | {"controller": True, "uid": "job-2"}]}),
         pod_group(owners=[OWNER]), "groupSchedulerUnknown", "and not the pod's owner"),
        ("owned devices in a group of another scheduler", member(EXAMPLE), OTHERS,
         "groupSchedulerDiffers", 'names "default-scheduler"'),
        ("the bridge by name, likewise", member(schedulerName=SCHEDULER_NAME), OTHERS,
         "groupSchedulerDiffers", "of two schedulers"),
        ("devices of another driver in a group of the bridge", member(NVIDIA), OURS,
         "mixedDriverOwnership", f'does not allocate "{NVIDIA}"'),
        ("another priority", member(EXAMPLE, priority=7), pod_group(priority=0),
         "groupPriorityDiffers", "the pod has priority 7, and PodGroup training has 0"),
        ("another priority of one that follows", member(priority=7),
         pod_group(scheduler=SCHEDULER_NAME, priority=0), "groupPriorityDiffers", "priority 7"),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_that_would_fail_its_group_is_denied(
    name: str,
    created_pod: Pod,
    groups: dict[tuple[str, str], PodGroup],
    code: str,
    words: str,
) -> None:
    answer = route(created_pod, groups)

    assert (answer.decision, codes(answer)) == (Decision.REFUSED, [code]), name
    assert words in answer.findings[0].message
    assert answer.findings[0].fix
    assert is_group_unknown(answer) is (code == "groupSchedulerUnknown")


SHARED: dict[str, Any] = {"resourceClaims": [{"name": "shared", "resourceClaimName": "shared"}]}
"""A claim that is allocated."""


@pytest.mark.parametrize(
    ("name", "created_pod", "groups", "expected"),
    [
        ("before the PodGroup exists", member(**SHARED), {}, ROUTED),
        ("in a PodGroup that does not tell", member(**SHARED), pod_group(), ROUTED),
        ("in a PodGroup of the bridge", member(**SHARED), OURS, ROUTED),
        ("in a PodGroup of another scheduler", member(**SHARED), OTHERS, LEFT),
        ("with another priority", member(**SHARED, priority=7), pod_group(priority=0), LEFT),
        ("in a gang", gang_pod(**SHARED), {}, ROUTED),
        ("in a gang without a number", gang_pod(**SHARED, minimum="many"), {}, LEFT),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_with_allocated_claims_alone_is_not_denied_for_its_group(
    name: str, created_pod: Pod, groups: dict[tuple[str, str], PodGroup], expected: Decision
) -> None:
    """kube-scheduler can bind it, too."""
    known = cluster(allocated_claims={(NAMESPACE, "shared"): frozenset({EXAMPLE})})
    bridge = Bridge(SCHEDULER_NAME)
    of_cluster = Groups(by_name=groups, is_served=True)

    answer = route_member(created_pod, NAMESPACE, known, bridge, groups=of_cluster)

    assert (answer.decision, answer.findings) == (expected, ()), name
    assert (ADD_SCHEDULER in answer.operations) is (expected is ROUTED)
    admitted = admit_member(created_pod, NAMESPACE, known, of_cluster)
    assert admitted.refusal is None
    assert (admitted.scheduler == SCHEDULER_NAME) is (expected is ROUTED)


def test_a_claim_that_is_not_that_of_the_group_is_a_warning() -> None:
    shared = {"name": EXAMPLE, "resourceClaimTemplateName": "fabric"}

    answer = route(member(EXAMPLE), pod_group(resourceClaims=[shared]))

    assert (answer.decision, codes(answer)) == (ROUTED, ["groupClaimDiffers"])
    assert f'"{EXAMPLE}" of template "{EXAMPLE}" is not' in answer.findings[0].message


def test_nothing_is_decided_where_nothing_is_owned() -> None:
    nothing_owned = context(GPUS, classes=CLASSES, owned_drivers=frozenset[str]())

    answer = route_member(
        member(), NAMESPACE, nothing_owned, Bridge(SCHEDULER_NAME), groups=Groups(is_served=True)
    )

    assert answer == Answer(decision=LEFT)


# --- gangs of other schedulers --------------------------------------------------------------------

ADOPTED = adopted_name(GroupName(GroupSystem.KOORDINATOR, NAMESPACE, "ring"))
ADD_GROUP = add("/spec/schedulingGroup", {"podGroupName": ADOPTED})


@pytest.mark.parametrize(
    ("name", "created_pod", "groups", "operations"),
    [
        ("the first pod", gang_pod(EXAMPLE), {}, (ADD_SCHEDULER, ADD_GROUP)),
        ("a further one", gang_pod(EXAMPLE), pod_group(ADOPTED, scheduler=SCHEDULER_NAME),
         (ADD_SCHEDULER, ADD_GROUP)),
        ("without a minimum of its own", gang_pod(EXAMPLE, minimum=None), pod_group(ADOPTED),
         (ADD_SCHEDULER, ADD_GROUP)),
        ("the bridge by name", gang_pod(EXAMPLE, schedulerName=SCHEDULER_NAME), {}, (ADD_GROUP,)),
        ("the bridge by name, without claims", gang_pod(schedulerName=SCHEDULER_NAME), {}, (ADD_GROUP,)),
        ("a launcher whose workers are there", gang_pod(),
         pod_group(ADOPTED, scheduler=SCHEDULER_NAME), (ADD_SCHEDULER, ADD_GROUP)),
        ("a pod without claims, and no PodGroup", gang_pod(), {}, ()),
        ("a pod of its own scheduler", gang_pod(EXAMPLE, schedulerName="koord-scheduler"), {}, None),
        ("a pod with devices of another driver", gang_pod(NVIDIA), {}, ()),
    ],
    ids=str,
)  # fmt: skip
def test_pods_of_a_gang_that_go_to_the_bridge_get_a_group(
    name: str,
    created_pod: Pod,
    groups: dict[tuple[str, str], PodGroup],
    operations: tuple[Any, ...] | None,
) -> None:
    answer = route(created_pod, groups)

    assert answer.allowed, name
    assert answer.operations == (operations or ()), name
    assert bool(answer.findings) is (operations is None)


def test_the_second_review_of_such_a_pod_changes_nothing() -> None:
    """The API server reviews a pod again after another webhook has changed it."""
    annotations = {NAME: "ring", MINIMUM: "2"}
    group = {"podGroupName": ADOPTED}
    reviewed = pod(
        EXAMPLE,
        metadata={"annotations": annotations},
        schedulingGroup=group,
        schedulerName=SCHEDULER_NAME,
    )

    assert route(reviewed).operations == ()


@pytest.mark.parametrize(
    ("name", "created_pod", "groups", "code"),
    [
        ("another minimum", gang_pod(EXAMPLE, minimum="3"), pod_group(ADOPTED), "groupMinimumDiffers"),
        ("another minimum of a launcher", gang_pod(minimum="3"),
         pod_group(ADOPTED, scheduler=SCHEDULER_NAME), "groupMinimumDiffers"),
        ("too many", gang_pod(EXAMPLE, minimum="513"), {}, "groupTooLarge"),
        ("no number", gang_pod(EXAMPLE, minimum="many"), {}, "invalidGroup"),
        ("a negative one", gang_pod(EXAMPLE, minimum="-1"), {}, "invalidGroup"),
        ("no name", gang_pod(EXAMPLE, name="Ring/../\n"), {}, "invalidGroup"),
        ("a name that is too long", gang_pod(EXAMPLE, name="a" * 300), {}, "invalidGroup"),
        ("another priority", gang_pod(EXAMPLE, priority=1), pod_group(ADOPTED, priority=0),
         "groupPriorityDiffers"),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_that_contradicts_its_gang_is_denied(
    name: str, created_pod: Pod, groups: dict[tuple[str, str], PodGroup], code: str
) -> None:
    answer = route(created_pod, groups)

    assert (answer.decision, codes(answer)) == (Decision.REFUSED, [code]), name


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"is_served": False}, "this API server has no PodGroups"),
        ({"adopts": False}, "adoptGangs is off"),
    ],
)
def test_a_gang_that_is_lost_is_a_warning(facts: dict[str, bool], words: str) -> None:
    answer = route(gang_pod(EXAMPLE), None, **facts)

    assert answer.operations == (ADD_SCHEDULER,)
    assert codes(answer) == ["gangNotAdopted"]
    assert words in answer.findings[0].message
    # It is not the bridge's to warn of.
    assert route(gang_pod(), None, **facts) == Answer(decision=LEFT)


def test_the_api_server_asks_about_every_pod_that_declares_a_gang() -> None:
    keys = {*GANG_ANNOTATIONS, *GANG_LABELS}
    declared = {
        *(KOORDINATOR_NAME, *KOORDINATOR_LABELS),
        *(*VOLCANO_NAMES, COSCHEDULING_LABEL, KAI_NAME),
    }

    assert keys == declared
    readings = [
        read_gang(convert({"metadata": {"annotations": {key: GROUP}, "labels": {key: GROUP}}}, Pod))
        for key in keys
    ]
    systems = {reading.group.system for reading in readings if isinstance(reading, Declaration)}
    assert systems == {*GroupSystem} - {GroupSystem.KUBERNETES}


@pytest.mark.parametrize("gang", ["a", "a..b", "a" * 253, "1.2-3"])
def test_a_derived_name_is_one_of_an_object(gang: str) -> None:
    names = {
        adopted_name(GroupName(system, namespace, gang))
        for system in GroupSystem
        for namespace in ("a", "b")
    }

    assert len(names) == 2 * len(GroupSystem)
    for name in names:
        assert len(name) <= 253
        assert name.replace("-", "a").isalnum()
