"""`drawbridge why deploy/NAME`: the pending pods of a workload, a block per reason."""

import json

import pytest

from testing.documents import Document
from testing.questions import run_why
from testing.simulated_cluster import claim, holding, using

HASH = "5d4f8"


def made_by(kind: str, name: str, pod: Document, **labels: str) -> Document:
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": "1", "controller": True}
    metadata = {**pod["metadata"], "labels": labels, "ownerReferences": [owner]}
    return {**pod, "metadata": metadata}


def of_deployment(pod: Document, name: str = "llm") -> Document:
    return made_by("ReplicaSet", f"{name}-{HASH}", pod, **{"pod-template-hash": HASH})


BOUND = (
    of_deployment(using("llm-0", "held", nodeName="node-a")),
    holding("held", "gpu-0", "node-a"),
)
BIG = tuple(
    document
    for number in range(1, 6)
    for document in (
        of_deployment(using(f"llm-{number}", f"big-{number}")),
        claim(f"big-{number}", 3),
    )
)
BIGGER = (of_deployment(using("llm-9", "bigger")), claim("bigger", 4))
OTHER = (of_deployment(using("other-1", "other"), "other"), claim("other", 5))
STATE = (*BOUND, *BIG, *BIGGER, *OTHER)


def test_equal_reasons_are_given_once_with_the_number_of_pods() -> None:
    result = run_why("deploy/llm", state=STATE)

    assert 0 == result.exit_code, result.output
    summary, *blocks = result.stdout.split("\n\n")
    assert summary.splitlines() == [
        "Deployment team/llm",
        "  status    6 of 7 pods pending",
        "  pending   5 pods: llm-1, llm-2, llm-3 and 2 more",
        "            1 pod: llm-9",
    ]
    explained = [block.splitlines()[0] for block in blocks if "not placed" in block]
    assert ["Pod team/llm-1  not placed", "Pod team/llm-9  not placed"] == explained
    assert "other-1" not in result.stdout


def test_the_document_has_each_reason_with_all_of_its_pods() -> None:
    result = run_why("deployment", "llm", "-o", "json", state=STATE)
    document = json.loads(result.stdout)

    assert ("Deployment", "llm", 7, 0) == tuple(
        document[key] for key in ("kind", "name", "pods", "notExplained")
    )
    assert [["llm-1", "llm-2", "llm-3", "llm-4", "llm-5"], ["llm-9"]] == [
        group["pods"] for group in document["pending"]
    ]
    assert ["llm-1", "llm-9"] == [group["answer"]["name"] for group in document["pending"]]
    assert ["request 2 devices to fit node node-b"] * 2 == [
        group["answer"]["simulation"]["closestFit"] for group in document["pending"]
    ]


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("sts/train", "StatefulSet"),
        ("jobs/train", "Job"),
        ("rs/train", "ReplicaSet"),
        ("pytorchjob/train", "PyTorchJob"),
    ],
)
def test_pods_of_any_workload_that_owns_them_are_found(target: str, kind: str) -> None:
    state = (made_by(kind, "train", using("train-0", "waits")), claim("waits", 3))

    result = run_why(target, state=state)

    assert f"{kind} team/train\n  status    1 of 1 pod pending" in result.stdout
    assert "Pod team/train-0  not placed" in result.stdout


def test_a_workload_without_pending_pods_has_no_block() -> None:
    result = run_why("deploy", "llm", state=BOUND)

    assert "Deployment team/llm\n  status    0 of 1 pod pending\n" == result.stdout


def test_a_pod_that_only_looks_like_one_of_the_workload_is_not_its_pod() -> None:
    imitation = using("llm-0", "held", nodeName="node-a")
    imitation["metadata"]["labels"] = {"pod-template-hash": HASH}

    assert 2 == run_why("deploy", "llm", state=(imitation,)).exit_code


def test_reasons_beyond_the_first_are_counted() -> None:
    state = tuple(
        document
        for number in range(1, 8)
        for document in (
            of_deployment(using(f"llm-{number}", f"claim-{number}")),
            claim(f"claim-{number}", number + 2),
        )
    )

    result = run_why("deploy", "llm", state=state)
    document = json.loads(run_why("deploy", "llm", "-o", "json", state=state).stdout)

    assert "            2 pods with other requests, not explained here" in result.stdout
    assert (5, 2) == (len(document["pending"]), document["notExplained"])
