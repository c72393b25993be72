"""Reviews as the API server sends them, all different, and the world that they are validated in."""

import json
from collections.abc import Sequence
from typing import Any

from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import TranslationSnapshot
from translation.model.intents import DeviceKind
from translation.profiles.device_facts import Facts, MemorySize

DRIVER = "hami-core-gpu.project-hami.io"


def snapshot_of_reviews() -> TranslationSnapshot:
    """Return a cluster with HAMi's driver on cards of 40 and 80 GiB."""
    step = Quantity("1Mi")
    sizes = tuple(MemorySize(size=Quantity(s), min=step, step=step) for s in ("40Gi", "80Gi"))
    return TranslationSnapshot(
        profiles=load_profiles(None),
        facts={DRIVER: {DeviceKind.GPU: Facts(sizes=sizes, shared=True)}},
        classes=frozenset({DRIVER, "gpu.nvidia.com", "mig.nvidia.com"}),
    )


def shares(count: int, first: int = 0, *, workloads: int = 0) -> Sequence[bytes]:
    """Return reviews of pods with nvidia.com/gpu, gpumem and gpucores, no two with one name.

    The keys that every HAMi user writes.

    Args:
        count: The number of reviews.
        first: The number of the first; its name has it.
        workloads: The number of workloads with replicas alike but for their names; 0 if no two pods are alike.
    """
    numbers = range(first, first + count)
    return [
        _review(_share(number % workloads if workloads else number), number) for number in numbers
    ]


def _share(number: int) -> dict[str, str]:
    again, mebibytes = divmod(number, 70_000)  # A card has 80 GiB; no two numbers get equal limits.
    return {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem": str(1000 + mebibytes),
        "nvidia.com/gpucores": str((number + again) % 100),
    }


def hostile() -> Sequence[bytes]:
    """Return reviews of one user that cost as much as they can: records that nobody wrote."""
    record = json.dumps({"v": 1, "containers": ["x" * 60] * 450})
    keys = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    many: list[dict[str, Any]] = [
        {"name": f"c{number}", "image": "a", "resources": {"limits": keys}} for number in range(200)
    ]
    return [
        _with_pod(_review(keys, number), annotations, containers)
        for number, (annotations, containers) in enumerate(
            [
                ({REQUEST_ANNOTATION: record}, many[:1]),
                ({}, many),
                ({REQUEST_ANNOTATION: "{}"}, many),
            ]
        )
    ]


def _with_pod(
    review: bytes, annotations: dict[str, str], containers: Sequence[dict[str, Any]]
) -> bytes:
    document: dict[str, Any] = json.loads(review)
    request = document["request"]
    request["userInfo"] = {"username": "mallory", "groups": ["system:authenticated"]}
    request["object"]["metadata"].setdefault("annotations", {}).update(annotations)
    request["object"]["spec"]["containers"] = list(containers)
    return json.dumps(document).encode()


def untouched(count: int) -> Sequence[bytes]:
    """Return reviews of pods without device keys."""
    return [_review({"cpu": "1", "memory": "1Gi"}, number) for number in range(count)]


def _review(limits: dict[str, str], number: int) -> bytes:
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": f"705ab4f5-6393-11e8-b7cc-{number:012d}",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                "requestResource": {"group": "", "version": "v1", "resource": "pods"},
                "name": f"train-{number}",
                "namespace": "team-a",
                "operation": "CREATE",
                "userInfo": {"username": "someone", "groups": ["system:authenticated"]},
                "object": pod(limits, f"train-{number}"),
                "oldObject": None,
                "dryRun": False,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            },
        }
    ).encode()


def pod(limits: dict[str, str], name: str) -> dict[str, Any]:
    """Return a pod as the API server has it after defaulting."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "team-a", "labels": {"app": "train"}},
        "spec": {
            "volumes": [
                {
                    "name": "kube-api-access-x",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": []}},
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "command": ["sleep", "infinity"],
                    "env": [{"name": "BATCH", "value": "32"}],
                    "resources": {"limits": limits, "requests": dict(limits)},
                    "volumeMounts": [
                        {
                            "name": "kube-api-access-x",
                            "readOnly": True,
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        }
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }
