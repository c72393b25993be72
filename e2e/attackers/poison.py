"""Claims of an editor that the bridge cannot decide about soon, and their pods."""

from collections.abc import Callable
from random import Random
from typing import Any

from e2e.attackers import expressions
from e2e.attackers.target import claim
from e2e.bridge import bridged
from e2e.objects import pod

Poison = Callable[[str, str, Random], list[dict[str, Any]]]
"""Returns claims for devices of a class, whose driver it is told; a pod is created for each."""


def two_pods(device_class: str, driver: str, chance: Random) -> list[dict[str, Any]]:
    """Return two claims of six selectors of 9.7 KB: the bridge stood still for minutes (S2)."""
    return [
        claim(
            f"poison-{number}",
            device_class,
            *([expressions.patterns(driver, chance)] for _ in range(6)),
        )
        for number in range(2)
    ]


def thirty_lists(device_class: str, _driver: str, chance: Random) -> list[dict[str, Any]]:
    """Return thirty claims that end the worker: it switched off everybody's longer selectors (S3)."""
    return [
        claim(f"poison-{number}", device_class, [expressions.lists(chance)]) for number in range(30)
    ]


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that names a claim; it names its scheduler, so that routing does not hold it up."""
    naming = bridged(pod(document["metadata"]["name"]))
    source = {"name": "gpu", "resourceClaimName": document["metadata"]["name"]}
    naming["spec"]["resourceClaims"] = [source]
    return naming
