"""`drawbridge simulate --without`: the devices freed by the removal of a pod."""

import json
from typing import Any, Final

import pytest

from testing.simulated_cluster import STATE, claim, holding, simulate, using

FULL: Final = tuple(
    holding(f"held-{node}-{device}", device, node)
    for node in ("node-a", "node-b")
    for device in ("gpu-0", "gpu-1")
)
WANTED: Final = claim("wanted")


def reserved(claim_: dict[str, Any], *pods: str, owner: str = "") -> dict[str, Any]:
    references = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner}] if owner else []
    return {
        **claim_,
        "metadata": {**claim_["metadata"], "ownerReferences": owners},
        "status": {**claim_["status"], "reservedFor": references},
    }


def state(*pods: str, owner: str = "") -> list[dict[str, Any]]:
    """Four devices in use, the first of them by these pods."""
    first = reserved(FULL[0], *pods, owner=owner)
    return [*STATE, first, *FULL[1:], *(using(pod, first["metadata"]["name"]) for pod in pods)]


@pytest.mark.parametrize("owner", ["", "one"])
def test_a_removed_pod_leaves_its_devices_free(owner: str) -> None:
    objects = state("one", owner=owner)
    assert 1 == simulate(WANTED, snapshot=objects).exit_code

    result = simulate(WANTED, snapshot=objects, options=("--without", "pod/team/one", "-o", "json"))

    assert 0 == result.exit_code, result.stdout
    answer = json.loads(result.stdout)
    (placed,) = answer["claims"]
    (device,) = placed["allocation"]["devices"]["results"]
    assert ("node-a", "gpu-0") == (device["pool"], device["device"])
    assert answer["without"] == [
        {
            "object": "Pod/team/one",
            "claims": ["team/held-node-a-gpu-0"],
            "devices": ["gpu.example.com/node-a/gpu-0"],
        }
    ]
    assert "note: without Pod/team/one, which leaves free: gpu.example.com/node-a/gpu-0" in (
        result.stderr
    )


def test_a_claim_of_two_pods_is_free_without_both() -> None:
    objects = state("one", "two")
    first, second = ("--without", "pod/team/one"), ("--without", "po/team/two")

    assert 1 == simulate(WANTED, snapshot=objects, options=first).exit_code
    assert 1 == simulate(WANTED, snapshot=objects, options=second).exit_code
    assert 0 == simulate(WANTED, snapshot=objects, options=(*first, *second)).exit_code


def test_the_key_is_there_only_with_the_flag() -> None:
    assert "without" not in json.loads(simulate(WANTED, options=("-o", "json")).stdout)


def test_the_namespace_of_the_call_is_used() -> None:
    options = ("-n", "team", "--without", "pod/one")

    assert 0 == simulate(WANTED, snapshot=state("one"), options=options).exit_code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pod/gone", "there is no pod gone in namespace default"),
        ("pod/one", "namespace team has one"),
        ("one", "write pod/NAME or pod/NAMESPACE/NAME"),
        ("claim/one", "write pod/NAME"),
        ("pod/", "write pod/NAME"),
        ("pod/a/b/c", "write pod/NAME"),
    ],
)
def test_a_wrong_call(text: str, message: str) -> None:
    result = simulate(WANTED, snapshot=state("one"), options=("--without", text))

    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr
