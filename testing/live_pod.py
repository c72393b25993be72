"""A pod as a live cluster has it."""

from typing import Any

from testing.documents import api_object

SPEC = {
    "volumes": [{"name": "v", "secret": {"secretName": "password"}}],
    "imagePullSecrets": [{"name": "password"}],
    "schedulerName": "hami-scheduler",
    "containers": [
        {
            "name": "c",
            "image": "registry.example/app:1",
            "command": ["sh", "-c", "login --password=hunter2"],
            "args": ["hunter2"],
            "env": [
                {"name": "PASSWORD", "value": "hunter2"},
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            ],
            "envFrom": [{"secretRef": {"name": "password"}}],
            "livenessProbe": {"exec": {"command": ["hunter2"]}},
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "securityContext": {"privileged": True},
        }
    ],
}


def live_pod() -> dict[str, Any]:
    return api_object(
        "Pod",
        "train",
        "team",
        managedFields=[{"manager": "hunter2"}],
        annotations={
            "kubectl.kubernetes.io/last-applied-configuration": '{"hunter2": 1}',
            "hami.io/gpu-scheduler-policy": "binpack",
        },
        spec=SPEC,
        status={
            "phase": "Running",
            "containerStatuses": [{"state": {"terminated": {"message": "hunter2"}}}],
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu"}],
        },
    )
