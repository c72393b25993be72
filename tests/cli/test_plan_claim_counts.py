"""`drawbridge assess` and `plan`: ResourceQuotas that count ResourceClaims and their templates."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from answers.model.cluster_state import build_state
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from kube.quantity import Quantity
from migration.assessment.claim_counts import ClaimShortage, find_claim_shortages, surge_pods
from testing.command import drawbridge
from testing.documents import api_object, namespace, resource_quota
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import checks_before, held_objects, planned, waves

CLAIMS: Final = "count/resourceclaims.resource.k8s.io"
TEMPLATES: Final = "count/resourceclaimtemplates.resource.k8s.io"
WHOLE: Final = {GPU: "1"}
Objects = list[dict[str, Any]]


def cluster(limits: Mapping[str, str], pods: int, kind: str = "Deployment") -> Objects:
    """Two nodes, and a workload with pods on one of them."""
    make = plugin_node if limits == WHOLE else hami_node
    nodes = [make("node-0"), make("node-1")]
    return [*nodes, namespace("team"), *workload("web", limits, ["node-0"] * pods, kind=kind)]


def quota(hard: Mapping[str, str], **status: Mapping[str, str]) -> dict[str, Any]:
    own = resource_quota(hard)
    own.pop("status", None)
    return own | ({"status": {"hard": {**hard}, **status}} if status else {})


def blockers(tmp_path: Path, objects: Objects) -> list[dict[str, Any]]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return [entry for entry in answer["blockers"] if entry["code"] == "exceedsQuota"]


@pytest.mark.parametrize(
    ("limits", "kind", "hard", "amounts", "enough"),
    [
        (SHARE, "StatefulSet", {CLAIMS: "1"}, "needed 3, used by others 0, hard 1", 3),
        (
            SHARE,
            "Deployment",
            {CLAIMS: "2"},
            "needed 3 and 1 more for rollouts, used by others 0",
            4,
        ),
        (SHARE, "Deployment", {TEMPLATES: "0"}, "needed 1, used by others 0, hard 0", 1),
        # kube-scheduler creates a claim for each pod, and there is no template.
        (WHOLE, "StatefulSet", {CLAIMS: "2"}, "needed 3, used by others 0, hard 2", 3),
        (WHOLE, "StatefulSet", {TEMPLATES: "0"}, "", 0),
        (SHARE, "StatefulSet", {CLAIMS: "3"}, "", 0),
        (SHARE, "Deployment", {CLAIMS: "3"}, "", 0),
    ],
)
def test_a_quota_that_lets_too_few_claims_be_created_blocks(
    tmp_path: Path,
    limits: Mapping[str, str],
    kind: str,
    hard: Mapping[str, str],
    *,
    amounts: str,
    enough: int,
) -> None:
    """All pods were placed, and nothing blocked, though their claims could not be created."""
    found = blockers(tmp_path, [*cluster(limits, 3, kind), quota({**hard, "pods": "6"})])

    assert bool(amounts) == bool(found)
    (line,) = hard
    for blocker in found:
        assert f"{line} of ResourceQuota/team/gpus ({amounts}" in blocker["message"]
        assert f"raise {line} of ResourceQuota/team/gpus to {enough}" == blocker["fix"]
        assert [f"{kind}/team/web"] == blocker["objects"]


def test_one_amount_reads_alike_however_it_is_written() -> None:
    shortage = ClaimShortage(
        quota="ResourceQuota/team/gpus",
        line=CLAIMS,
        needed=900,
        used=Quantity("1e3"),
        hard=Quantity("1k"),
        workloads=("StatefulSet/team/web",),
    )

    assert "needed 900, used by others 1000, hard 1000" == shortage.amounts
    assert f"raise {CLAIMS} of ResourceQuota/team/gpus to 1900" == shortage.fix


def test_what_others_use_counts_and_what_the_pods_have_does_not(tmp_path: Path) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "controller": True}
    claims = [
        api_object("ResourceClaim", "own", "team", ownerReferences=[owner], spec={"devices": {}}),
        api_object("ResourceClaim", "another", "team", spec={"devices": {}}),
    ]
    objects = [*cluster(SHARE, 2, "StatefulSet"), *claims]

    assert [] == blockers(tmp_path, [*objects, quota({CLAIMS: "3"})])
    assert [] == blockers(tmp_path, [*objects, quota({CLAIMS: "7"}, used={CLAIMS: "6"})])
    for own in (quota({CLAIMS: "2"}), quota({CLAIMS: "6"}, used={CLAIMS: "6"})):
        (blocker,) = blockers(tmp_path, [*objects, own])
        others = 1 if own["spec"]["hard"] == {CLAIMS: "2"} else 5
        assert f"needed 2, used by others {others}, " in blocker["message"]
        assert blocker["fix"].endswith(f" to {others + 2}")


class _Walked(dict[tuple[str, str], Any]):
    """A mapping that counts the walks through all of it."""

    walks = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.walks += 1
        return super().__iter__()

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_all_claims_of_the_cluster_are_walked_through_once() -> None:
    """They were once for each line of each quota."""
    documents = [
        document
        for name in ("a", "b", "c")
        for document in (
            resource_quota({CLAIMS: "9", TEMPLATES: "9"}, namespace=name),
            api_object("ResourceClaim", "own", name, spec={"devices": {}}),
        )
    ]
    sources = [SourceObject(document=document, source="t", line=1) for document in documents]
    views, _ = decode_objects(sources, STATE_KINDS, "default")
    state = build_state(views)
    claims = _Walked(state.claims)

    assert [] == list(find_claim_shortages([], msgspec.structs.replace(state, claims=claims)))
    assert (3, 1) == (len(claims), claims.walks)


def test_a_quota_with_scopes_counts_no_claims(tmp_path: Path) -> None:
    own = quota({CLAIMS: "0"})
    own["spec"]["scopes"] = ["NotTerminating"]

    assert [] == blockers(tmp_path, [*cluster(SHARE, 2), own])


@pytest.mark.parametrize("limits", [SHARE, WHOLE], ids=["claims", "native"])
def test_pods_that_would_wait_for_their_claims_hold_their_nodes(
    tmp_path: Path, limits: Mapping[str, str]
) -> None:
    """The wave stopped in the middle of the rollout, and evicted native pods stayed pending."""
    plan = planned(tmp_path, [*cluster(limits, 2, "StatefulSet"), quota({CLAIMS: "1"})])

    held = held_objects(plan)
    text = "would wait for claims that are not created"
    assert text in held["StatefulSet/team/web"]
    assert (
        "a ResourceQuota would reject their next pods, or claims of these" in held["Node//node-0"]
    )
    if limits == SHARE:
        assert text in held["Namespace//team"]
    else:
        assert "Namespace//team" not in held
    switched = [name for nodes, namespaces in waves(plan) for name in [*nodes, *namespaces]]
    assert {"node-0", "team"}.isdisjoint(switched)


@pytest.mark.parametrize(
    ("kind", "hard", "noted"),
    [("Deployment", "2", True), ("Deployment", "3", False), ("StatefulSet", "2", False)],
)
def test_a_rollout_that_no_claim_is_left_for_is_noted(
    tmp_path: Path, kind: str, hard: str, *, noted: bool
) -> None:
    plan = planned(tmp_path, [*cluster(SHARE, 2, kind), quota({CLAIMS: hard})])

    notes = [note for wave in plan["waves"] for note in wave["notes"] if CLAIMS in note]
    assert [] == plan["held"]
    assert noted is bool(notes)
    for note in notes:
        assert note.startswith("once all have claims, rollouts of Deployment/team/web start a pod")
        fix = f"raise {CLAIMS} of ResourceQuota/team/gpus to 3, or set maxUnavailable: 1"
        assert note.endswith(f": {fix}")


@pytest.mark.parametrize("limits", [SHARE, WHOLE], ids=["claims", "native"])
def test_a_quota_that_was_lowered_since_the_plan_stops_the_wave(
    tmp_path: Path, limits: Mapping[str, str]
) -> None:
    objects = cluster(limits, 2, "StatefulSet")
    plan = planned(tmp_path, [*objects, quota({CLAIMS: "2"})])
    (number,) = (
        wave["wave"]
        for wave in plan["waves"]
        if (["team"] if limits == SHARE else []) == wave["namespaces"]
        and (limits == SHARE or "node-0" in [node["name"] for node in wave["nodes"]])
    )

    def failures(hard: str, wave: int) -> list[str]:
        return [
            check["message"]
            for check in checks_before(tmp_path, [*objects, quota({CLAIMS: hard})], wave)
            if check["state"] == "failed" and check["object"] == "ResourceQuota/team/gpus"
        ]

    assert [] == failures("2", number)
    (message,) = failures("1", number)
    assert f"{CLAIMS} of ResourceQuota/team/gpus (needed 2, used by others 0, hard 1)" in message
    assert message.endswith(" to 2")
    if limits == WHOLE:
        # The other wave evicts none of the pods.
        (another,) = {wave["wave"] for wave in plan["waves"]} - {number}
        assert [] == failures("1", another)


# --- rollouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 1),
        ({"replicas": 3}, 1),
        ({"replicas": 4}, 0),
        ({"replicas": 0}, 0),
        ({"replicas": 3, "strategy": {"type": "Recreate"}}, 0),
        ({"replicas": 8, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}, 2),
        ({"replicas": 9, "strategy": {"rollingUpdate": {"maxUnavailable": "0%"}}}, 3),
        (
            {
                "replicas": 9,
                "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "50%"}},
            },
            5,
        ),
        ({"replicas": 9, "strategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 3}}}, 0),
        ({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": "0%"}}}, 0),
        ({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": "00%"}}}, 0),
        ({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": 0}}}, 0),
        ({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": {}}}}, 0),
        ({"replicas": 3, "strategy": {"rollingUpdate": {"maxUnavailable": "0034%"}}}, 0),
        # No rollout creates more new pods than it needs.
        ({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": 5}}}, 3),
        ({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": "200%"}}}, 3),
    ],
    ids=str,
)
def test_the_pods_that_a_rollout_starts_first(spec: Mapping[str, Any], expected: int) -> None:
    assert expected == surge_pods(spec)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"maxUnavailable": 0, "maxSurge": "9" * 4400 + "%"}, 3),
        ({"maxUnavailable": "0" * 5000 + "%", "maxSurge": "0" * 5000 + "34%"}, 2),
        ({"maxUnavailable": "9" * 4400 + "%"}, 0),
    ],
    ids=["maxSurge", "zeros", "maxUnavailable"],
)
def test_percentages_of_many_digits_are_read(settings: Mapping[str, Any], expected: int) -> None:
    """The API server takes them, and `assess`, `plan` and `verify` ended in a traceback."""
    spec = {"replicas": 3, "strategy": {"rollingUpdate": settings}}

    assert expected == surge_pods(spec)
