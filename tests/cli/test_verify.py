"""`drawbridge verify`: planted faults are found, and correct objects are left alone."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from answers.cluster.verify import VerifyAnswer, Violation, confirm_orphans
from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import Document, api_object
from testing.migration import origin
from testing.simulated_cluster import DRIVER, claim, device_class, holding, node, slice_of

SHARED = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}},
}


def cluster(*devices: Document, pool: Document | None = None) -> tuple[Document, ...]:
    spec = {"pool": pool} if pool else {}
    return node("node-a"), device_class(), slice_of("node-a", *devices, **spec)


def verify(documents: Iterable[Document], *words: object) -> Result:
    return drawbridge("verify", "--snapshot", "-", *words, stdin=dump_yaml(documents))


def verify_codes(documents: Iterable[Document]) -> list[tuple[str, str]]:
    """Return code and claim of each violation."""
    result = verify(documents, "-o", "json")
    violations = json.loads(result.stdout)["violations"]
    assert result.exit_code == (1 if violations else 0), result.stderr
    return [(violation["code"], violation["claim"]) for violation in violations]


def share(name: str, share_id: str, memory: str) -> Document:
    claim_document = holding(name, "gpu-0", "node-a")
    (result,) = claim_document["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": share_id, "consumedCapacity": {"memory": memory}}
    return claim_document


ID = "6c8f8f5e-0000-4000-8000-00000000000"


@pytest.mark.parametrize(
    ("name", "claims", "expected"),
    [
        ("different devices", [holding("a", "gpu-0", "node-a"), holding("b", "gpu-1", "node-a")], []),
        ("one device twice", [holding("a", "gpu-0", "node-a"), holding("b", "gpu-0", "node-a")],
         [("allocated", "team/b")]),
        ("an unpublished device once", [holding("a", "gone", "node-a")], []),
        ("an unpublished device twice", [holding("a", "gone", "node-a"), holding("b", "gone", "node-a")],
         [("allocated", "team/b")]),
        ("a pool that nobody publishes", [holding("a", "x", "gone"), holding("b", "x", "gone")],
         [("allocated", "team/b")]),
        ("a claim without an allocation", [claim("a")], []),
    ],
)  # fmt: skip
def test_devices(name: str, claims: list[Document], expected: list[tuple[str, str]]) -> None:
    assert verify_codes([*cluster(), *claims]) == expected, name


@pytest.mark.parametrize(
    ("name", "amounts", "expected"),
    [
        ("shares that fit", ["40Gi", "40Gi"], []),
        ("shares above the capacity", ["40Gi", "41Gi"], [("capacity", "team/c1")]),
        ("only the one too many", ["40Gi", "40Gi", "1Gi"], [("capacity", "team/c2")]),
    ],
)
def test_capacity(name: str, amounts: list[str], expected: list[tuple[str, str]]) -> None:
    shares = [share(f"c{n}", f"{ID}{n}", amount) for n, amount in enumerate(amounts)]

    assert verify_codes([*cluster(SHARED), *shares]) == expected, name


def test_one_share_twice() -> None:
    shares = [share("a", f"{ID}1", "1Gi"), share("b", f"{ID}1", "1Gi")]

    assert [("allocated", "team/b")] == verify_codes([*cluster(SHARED), *shares])


def test_tenants_that_a_policy_keeps_apart() -> None:
    modes = ["mig", "mps"]
    devices = [
        {
            "name": f"part-{mode}",
            "attributes": {"mode": {"string": mode}, "uuid": {"string": "one-gpu"}},
        }
        for mode in modes
    ]
    rules = [
        {
            "name": mode,
            "selectors": [
                {"cel": {"expression": f"device.attributes['{DRIVER}'].mode == '{mode}'"}}
            ],
            "compatibilityGroups": [mode],
        }
        for mode in modes
    ]
    policy = api_object(
        "DeviceCompatibilityPolicy", "modes", spec={"driver": DRIVER, "rules": rules}
    )
    claims = [holding("a", "part-mig", "node-a"), holding("b", "part-mps", "node-a")]

    assert verify_codes([*cluster(*devices), *claims]) == []
    assert [("compatibilityPolicy", "team/b")] == verify_codes(
        [*cluster(*devices), policy, *claims]
    )


@pytest.mark.parametrize(("device", "is_named"), [("gone", True), ("gpu-0", False)])
def test_an_allocated_device_that_nothing_publishes_is_named(
    device: str, *, is_named: bool
) -> None:
    documents = [*cluster({"name": "gpu-0"}), holding("a", device, "node-a")]

    result = verify(documents)
    answer = json.loads(verify(documents, "-o", "json").stdout)

    expected = f"note: claim team/a has {DRIVER}/node-a/{device}, which no complete pool"
    assert (0, is_named) == (result.exit_code, expected in result.stdout)
    assert [{"claim": "team/a", "device": f"{DRIVER}/node-a/gone"}][: int(is_named)] == (
        answer["unpublished"]
    )


def reserved(name: str, uid: str) -> Document:
    claim_document = holding("a", "gpu-0", "node-a")
    claim_document["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": uid}]
    return claim_document


def pod(name: str, uid: str) -> Document:
    return api_object("Pod", name, "team", uid=uid, spec={"containers": [{"name": "main"}]})


@pytest.mark.parametrize(
    ("name", "pods", "expected"),
    [
        ("its pod is there", [pod("a", "u-1")], []),
        ("no pod", [], [("orphanedReservation", "team/a")]),
        ("another pod of its name", [pod("a", "u-2")], [("orphanedReservation", "team/a")]),
    ],
)
def test_reservations(name: str, pods: list[Document], expected: list[tuple[str, str]]) -> None:
    assert verify_codes([*cluster(), reserved("a", "u-1"), *pods]) == expected, name


def test_an_orphan_counts_only_if_it_stays() -> None:
    def orphan(name: str) -> Violation:
        return Violation(code="orphanedReservation", claim=name, device="", others=(), message="m")

    double = Violation(code="allocated", claim="c", device="d", others=("e",), message="in use")
    first = VerifyAnswer(allocations=3, violations=(double, orphan("a"), orphan("b")))
    later = VerifyAnswer(allocations=3, violations=(orphan("b"),))

    assert confirm_orphans(first, later).violations == (double, orphan("b"))


# --- the audit log --------------------------------------------------------------------------------


def event(claim: Document, version: int, **fields: Any) -> Document:
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": "patch",
        "requestURI": "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/a/status",
        "user": {"username": "scheduler"},
        "objectRef": {"resource": "resourceclaims", "apiGroup": "resource.k8s.io"},
        "responseStatus": {"code": 200},
        "responseObject": {
            **claim,
            "metadata": {**claim["metadata"], "resourceVersion": str(version)},
        },
        "stageTimestamp": f"2026-11-21T00:00:{version:02d}.000000Z",
        **fields,
    }


def log(path: Path, *events: Document) -> Path:
    file = path / "audit.log"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in events))
    return file


A, B = holding("a", "gpu-0", "node-a"), holding("b", "gpu-0", "node-a")
FREE_A = claim("a")


@pytest.mark.parametrize(
    ("name", "events", "expected"),
    [
        ("one after the other", [event(A, 1), event(FREE_A, 2), event(B, 3)], []),
        ("for a moment both", [event(A, 1), event(B, 2), event(FREE_A, 3)], ["team/b"]),
        ("logged out of order", [event(B, 3), event(A, 1), event(FREE_A, 2)], []),
        ("written again unchanged", [event(A, 1), event(A, 2)], []),
        ("a refused write", [event(A, 1), event(B, 2, responseStatus={"code": 409})], []),
        ("a dry run", [event(A, 1), event(B, 2, requestURI="/x?dryRun=All")], []),
        ("another stage", [event(A, 1), event(B, 2, stage="RequestReceived")], []),
        ("another resource", [event(A, 1), event(B, 2, objectRef={"resource": "pods"})], []),
    ],
)
def test_every_moment_of_an_audit_log(
    tmp_path: Path, name: str, events: list[Document], expected: list[str]
) -> None:
    result = verify(cluster(), "--audit-log", log(tmp_path, *events), "-o", "json")

    violations = json.loads(result.stdout)["violations"]
    assert [violation["claim"] for violation in violations] == expected, name
    assert result.exit_code == (1 if expected else 0)


def test_a_violation_names_moment_user_and_the_other_claim(tmp_path: Path) -> None:
    result = verify(cluster(), "--audit-log", log(tmp_path, event(A, 1), event(B, 2)))

    line, total = result.stdout.splitlines()
    assert line == (
        f"2026-11-21T00:00:02.000000Z allocated: claim team/b has {DRIVER}/node-a/gpu-0: in use;"
        " used by team/a (written by scheduler)"
    )
    assert total == "2 allocations compared, 1 is wrong"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not json\n", "line 1 is no audit event"),
        (json.dumps({**event(A, 1), "responseObject": None}), "RequestResponse"),
    ],
)
def test_a_log_that_cannot_be_read_ends_with_2(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "audit.log"
    file.write_text(text)

    result = verify(cluster(), "--audit-log", file)

    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr


@pytest.mark.parametrize("resource", ["pods", "nodes"])
def test_allocations_of_a_snapshot_without_a_needed_kind_are_not_verified(resource: str) -> None:
    """Without nodes nobody sees those of a device plugin and a DRA driver, and nothing was wrong."""
    read = (entry for entry in cluster({"name": "gpu-0"}) if entry["kind"] != "Node")

    result = verify([*read, origin(resource, "jobs")])

    assert 2 == result.exit_code
    assert f"allocations cannot be verified without {resource}" in result.stderr
