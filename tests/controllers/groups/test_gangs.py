"""The PodGroup of a gang, by its pods."""

from typing import Any

import pytest

from allocator.declarations.pod_group import PodGroup
from allocator.groups.model import MAX_MEMBERS
from controllers.groups.gangs import (
    GangPod,
    adopted_minimum,
    in_order,
    pod_group_document,
    project_gang_pod,
)
from kube.api.meta import convert, encode
from kube.names import GANG_ANNOTATION, GROUP_SCHEDULER_ANNOTATION, MANAGED_LABEL, SCHEDULER_NAME
from testing.documents import Document, api_object
from testing.gang_pods import ADOPTED, document

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1"}


def gang_pod(*arguments: Any, **fields: Any) -> GangPod:
    projected = project_gang_pod(encode(document(*arguments, **fields)))
    assert projected is not None
    return projected


def own_object(**spec: Any) -> PodGroup:
    return convert({"spec": spec}, PodGroup)


@pytest.mark.parametrize(
    ("name", "pod"),
    [
        ("no group", document(group="")),
        ("a PodGroup of somebody else", document(group="training")),
        ("a declaration that cannot be one", document(minimum="many")),
    ],
    ids=str,
)
def test_other_pods_are_not_followed(name: str, pod: Document) -> None:
    assert project_gang_pod(encode(pod)) is None, name


@pytest.mark.parametrize(
    ("expected", "minimums", "object_"),
    [
        (2, ["2"], None),
        (2, [None, "2", "3"], None),
        (2, ["2"], own_object(minMember=5)),
        (5, [None], own_object(minMember=5)),
        (1, [None], own_object()),
        (None, [None], None),
        (None, [None], own_object(minMember=0)),
        (None, [None], own_object(minMember=-3)),
        (None, [None], own_object(minMember=MAX_MEMBERS + 1)),
        (None, [str(MAX_MEMBERS + 1)], None),
    ],
)
def test_the_minimum_is_that_of_the_pods_or_of_their_own_pod_group(
    expected: int | None, minimums: list[str | None], object_: PodGroup | None
) -> None:
    pods = [gang_pod(f"ring-{index}", minimum=text) for index, text in enumerate(minimums)]

    assert adopted_minimum(pods, object_) == expected


def test_pods_are_ordered_by_creation() -> None:
    late, early = gang_pod("a", created="2026-11-20T10:00:05Z"), gang_pod("b")

    assert in_order([late, early]) == [early, late]


def test_the_pod_group_has_owner_priority_and_scheduler_of_the_pods() -> None:
    pods = [gang_pod(f"ring-{n}", owner=JOB, priorityClassName="high") for n in range(2)]

    assert pod_group_document(pods, 2) == api_object(
        "PodGroup",
        ADOPTED,
        "team",
        labels={MANAGED_LABEL: "true"},
        annotations={
            GROUP_SCHEDULER_ANNOTATION: SCHEDULER_NAME,
            GANG_ANNOTATION: "Koordinator gang ring",
        },
        ownerReferences=[JOB],
        spec={"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": "high"},
    )


@pytest.mark.parametrize("owners", [(None,), (JOB, None), (JOB, {**JOB, "uid": "job-2"})])
def test_a_gang_without_one_owner_is_owned_by_none(owners: tuple[Document | None, ...]) -> None:
    """It must not go with an owner of some of its pods."""
    pods = [gang_pod(f"ring-{index}", owner=owner) for index, owner in enumerate(owners)]

    assert "ownerReferences" not in pod_group_document(pods, 2)["metadata"]
