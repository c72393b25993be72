"""The fields of an object that a recording keeps, and those that make no change."""

import json
from typing import Any

from answers.recording.projection import project
from testing.documents import Document, api_object
from testing.live_pod import live_pod


def node(**status: Any) -> Document:
    return api_object(
        "Node",
        "a",
        resourceVersion="7",
        annotations={"seen": "8:00"},
        spec={"taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
        status={"allocatable": {"cpu": "8"}, **status},
    )


def test_a_node_has_no_heartbeats_and_images() -> None:
    assert project(node(conditions=[{"type": "Ready"}], images=[{"names": ["a"]}])) == {
        "metadata": {"name": "a"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "8"}},
    }


def test_a_pod_keeps_what_places_it_and_nothing_that_a_snapshot_leaves_out() -> None:
    pod = live_pod()
    pod["metadata"]["annotations"]["drawbridge.internal/strategy"] = "BestFit"
    pod["spec"] = {
        **pod["spec"],
        "nodeName": "node-a",
        "serviceAccountName": "hunter2",
        "volumes": [
            {"name": "a", "secret": {"secretName": "hunter2"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "b"}},
        ],
    }
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastProbeTime": "8:00", "message": "hunter2"},
        {"type": "Ready", "status": "True"},
    ]

    fields = project(pod)

    assert "hunter2" not in json.dumps(fields)
    assert fields == {
        "metadata": {
            "name": "train",
            "namespace": "team",
            "annotations": {
                "drawbridge.internal/strategy": "BestFit",
                "hami.io/gpu-scheduler-policy": "binpack",
            },
        },
        "spec": {
            "nodeName": "node-a",
            "schedulerName": "hami-scheduler",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            "volumes": [{"name": "b", "persistentVolumeClaim": {"claimName": "b"}}],
        },
        "status": {
            "phase": "Running",
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu"}],
            "conditions": [{"type": "PodScheduled", "status": "True"}],
        },
    }


def test_a_claim_keeps_spec_and_allocation() -> None:
    claim = api_object(
        "ResourceClaim",
        "a",
        spec={"devices": {}},
        status={"allocation": {"devices": {}}, "devices": [{"data": "much"}]},
    )

    assert project(claim) == {
        "metadata": {"name": "a"},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {}}},
    }


def test_the_status_of_others_is_no_change() -> None:
    policy = api_object("DeviceCompatibilityPolicy", "a", spec={"rules": []})

    assert project({**policy, "status": {"observedGeneration": 7}}) == project(policy)
