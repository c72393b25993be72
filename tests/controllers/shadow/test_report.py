"""Mode Shadow writes one event about stored objects: for the object that a person applied."""

from typing import Any, NamedTuple

import msgspec
import pytest

from controllers.model.stored_objects import POD_KIND, key_texts, stored_object
from controllers.shadow.report import evaluate_stored, shadow_event
from kube.api.events import Event
from quotas.resource_quotas.scopes import Quota
from testing.builders import HAMI, container, gpus, pod, translation_snapshot, with_changes
from testing.builders import workload as make_workload
from testing.documents import Document
from translation.cluster.snapshot import Mode, TranslationOptions
from translation.reading.arbiter import VOCABULARIES

TEXTS = key_texts(VOCABULARIES.values())
SHADOW = TranslationOptions(mode=Mode.SHADOW)
DEPLOYMENT = ("apps/v1", "Deployment")


def workload(template: Document, **metadata: Any) -> Document:
    return make_workload(template, **{"namespace": "team", "uid": "u-1"} | metadata)


def owner(api_version: str, kind: str) -> list[Document]:
    return [
        {"apiVersion": api_version, "kind": kind, "name": "top", "uid": "u-9", "controller": True}
    ]


def event_about(
    document: Document, kind: tuple[str, str] = DEPLOYMENT, **cluster: Any
) -> Event | None:
    stored = stored_object(msgspec.json.encode(document), kind, TEXTS)
    if stored is None:
        return None
    answer = evaluate_stored(stored, translation_snapshot(**cluster), SHADOW)
    return None if answer is None else shadow_event(stored, answer)


class EventCase(NamedTuple):
    name: str
    document: Document
    kind: tuple[str, str]
    reason: str
    type: str
    regarding: str


RUNNING = with_changes(
    pod(gpus(1), nodeName="node-1"),
    metadata={"name": "a", "namespace": "team", "uid": "u-2"},
    status={"conditions": [{"type": "PodScheduled", "status": "True"}]},
)
EVENT_CASES = (
    EventCase(
        "a workload that would be translated",
        workload(pod(gpus(1))),
        DEPLOYMENT,
        "WouldBeTranslated",
        "Normal",
        "Deployment/team/train",
    ),
    EventCase(
        "one that would be rejected",
        workload(pod(gpus("500m"))),
        DEPLOYMENT,
        "WouldBeRejected",
        "Warning",
        "Deployment/team/train",
    ),
    EventCase(
        "one of a foreign scheduler",
        workload(pod(gpus(1), schedulerName="hami-scheduler")),
        DEPLOYMENT,
        "WouldBeLeftAlone",
        "Normal",
        "Deployment/team/train",
    ),
    EventCase(
        "a pod that runs, as it was created",
        RUNNING,
        POD_KIND,
        "WouldBeTranslated",
        "Normal",
        "Pod/team/a",
    ),
    EventCase(
        "a pod of another project's workload is told there",
        with_changes(RUNNING, metadata__ownerReferences=owner("ray.io/v1", "RayCluster")),
        POD_KIND,
        "WouldBeTranslated",
        "Normal",
        "RayCluster/team/top",
    ),
)


@pytest.mark.parametrize("case", EVENT_CASES, ids=lambda case: case.name)
def test_the_event_says_what_would_become_of_it(case: EventCase) -> None:
    event = event_about(case.document, case.kind)

    assert event is not None
    assert (event.reason, event.type) == (case.reason, case.type)
    assert str(event.regarding) == case.regarding
    assert "In mode Shadow nothing is changed" in event.note


def test_a_pod_that_evades_a_quota_would_be_rejected() -> None:
    amounts = {f"deviceclass.resource.kubernetes.io/{HAMI}": "1"}
    document = with_changes(
        pod(container(resources={"limits": amounts})),
        metadata={"name": "a", "namespace": "team", "uid": "u-2"},
    )
    quotas = {"team": {"q": Quota(names=frozenset({"requests.nvidia.com/gpu"}))}}

    event = event_about(document, POD_KIND, quotas=quotas)

    assert event is not None
    assert (event.reason, event.type) == ("WouldBeRejected", "Warning")
    assert event_about(document, POD_KIND) is None


def test_the_event_names_the_class_and_the_fix() -> None:
    translated, rejected = (event_about(EVENT_CASES[index].document) for index in (0, 1))

    assert translated is not None
    assert "claims of DeviceClass gpu.nvidia.com" in translated.note
    assert rejected is not None
    assert "write a whole number" in rejected.note


@pytest.mark.parametrize(
    ("name", "document", "kind"),
    [
        ("without device keys", workload(pod(container())), DEPLOYMENT),
        (
            "a ReplicaSet of a Deployment",
            workload(pod(gpus(1)), ownerReferences=owner("apps/v1", "Deployment")),
            ("apps/v1", "ReplicaSet"),
        ),
        (
            "a pod of a built-in workload",
            with_changes(RUNNING, metadata__ownerReferences=owner("batch/v1", "Job")),
            POD_KIND,
        ),
        (
            "a translated pod",
            with_changes(
                RUNNING, metadata__annotations={"drawbridge.internal/request": "nvidia.com/gpu"}
            ),
            POD_KIND,
        ),
        (
            "a pod that opted out",
            with_changes(RUNNING, metadata__labels={"drawbridge.internal/translate": "false"}),
            POD_KIND,
        ),
    ],
)
def test_no_event_where_nothing_would_change(
    name: str, document: Document, kind: tuple[str, str]
) -> None:
    assert event_about(document, kind) is None, name


def test_an_owner_whose_name_a_terminal_would_obey_is_in_no_event() -> None:
    hostile = owner("ray.io/v1", "RayCluster\x1b[2J")

    event = event_about(with_changes(RUNNING, metadata__ownerReferences=hostile), ("v1", "Pod"))

    assert event is not None
    assert event.regarding.kind == "Pod"


def test_replicas_of_one_answer_are_one_event() -> None:
    first, again = event_about(EVENT_CASES[0].document), event_about(EVENT_CASES[0].document)

    assert first is not None
    assert again is not None
    assert first.name == again.name


@pytest.mark.parametrize("raw", [b'{"nvidia.com/gpu"', b'["nvidia.com/gpu"]', b'"nvidia.com/gpu"'])
def test_what_cannot_be_read_is_left_out(raw: bytes) -> None:
    assert stored_object(raw, POD_KIND, TEXTS) is None


def test_an_amount_of_a_wrong_type_is_left_out() -> None:
    odd = workload(pod({"name": "a", "resources": {"limits": {"nvidia.com/gpu": []}}}))

    assert event_about(odd) is None
