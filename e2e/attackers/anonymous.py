"""Attackers with access to the port of the webhook, and no rights in the cluster."""

import random
from collections.abc import Iterator

from e2e.attackers.target import Target, text
from e2e.objects import Object, pod


def strangers(target: Target, chance: random.Random) -> Iterator[int]:
    """Post reviews of pods to paths that are wrong (C1, H6): a bare 404 before the body is read."""
    with target.stranger() as caller:
        while True:
            yield caller.post(f"/mutate/{text(chance, 32)}", _review(chance))


def readers_of_the_path(target: Target, chance: random.Random) -> Iterator[int]:
    """Post reviews of 5 KB pods under invented users to the secret path, known to the attacker (S4, M6)."""
    with target.stranger() as caller:
        while True:
            yield caller.post(target.stolen_path, _review(chance))


def _review(chance: random.Random) -> Object:
    name = text(chance, 12)
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": chance.randrange(1000, 9000)}
    annotations = {"note": text(chance, 5_000)}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": name,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": name,
            "operation": "CREATE",
            "userInfo": {"username": name},
            "object": pod(name, limits=limits, annotations=annotations),
        },
    }
