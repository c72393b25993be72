"""Four ways to use a GPU, asked for by four namespaces at once; a policy allows two together.

The API server's audit log tells what each GPU was used for at every moment; it is read by code that has
nothing of ours.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e import inventory
from e2e.access import Object, stream
from e2e.audit import log_length, stored_claims
from e2e.bridge import bridged, doubly_held
from e2e.custom_kinds import wait_established
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from e2e.owned import AUDITED, Owned

TIMEOUT_S: Final = 300.0
ROOT: Final = Path(__file__).parent.parent
EXAMPLES: Final = ROOT / "examples" / "compatibility"
DEFINITION: Final = ROOT / "manifests" / "base" / "devicecompatibilitypolicies.yaml"
CRD: Final = "devicecompatibilitypolicies.drawbridge.internal"
NODES: Final = ("modes-0", "modes-1", "modes-2")
NAMESPACES: Final = tuple(f"bridge-modes-{number}" for number in range(4))
MODES: Final = ("whole", "fraction", "mig", "mps")
TOGETHER: Final = ({"whole"}, {"fraction", "mps"}, {"mig"})
PER_MODE: Final = 3

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


def documents(name: str, kind: str, node: str = NODES[0]) -> list[Object]:
    """Return the objects of a kind in an example, for one node."""
    text = (EXAMPLES / name).read_text().replace(NODES[0], node)
    return [
        document
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if document["kind"] == kind
    ]


@pytest.fixture
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    """Three nodes with two GPUs each, the policy of the example, and a template per mode and namespace."""
    cluster, bridge = owned_bridge.cluster, owned_bridge.bridge
    cluster.kubectl("apply", "--server-side", "-f", str(DEFINITION))
    wait_established(cluster, CRD)
    classes = documents("cluster.yaml", "DeviceClass")
    policies = documents("policy.yaml", "DeviceCompatibilityPolicy")
    cluster.apply([*classes, *policies])
    nodes = cluster.add_nodes(
        [inventory.kwok_node(name) for name in NODES],
        lambda node: documents("cluster.yaml", "ResourceSlice", node),
    )
    for namespace in NAMESPACES:
        cluster.kubectl("create", "namespace", namespace)
        cluster.wait_for("serviceaccounts", "default", namespace)
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    bridge.stop("a")  # So that it finds the definition when it starts.
    bridge.ensure()
    yield owned_bridge
    for namespace in NAMESPACES:
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    cluster.wait_until(
        lambda: (
            not {claim["metadata"]["namespace"] for claim in cluster.objects("resourceclaims")}
            & set(NAMESPACES)
        ),
        "all devices are released",
        timeout_s=TIMEOUT_S,
    )
    cluster.remove_nodes(nodes)
    for document in classes:
        cluster.kubectl("delete", "deviceclass", document["metadata"]["name"])
    cluster.kubectl("delete", "crd", CRD)


def test_namespaces_that_use_gpus_in_different_ways_keep_to_the_policy(stage: Owned) -> None:
    """Running pods are deleted, so that all modes take turns on all GPUs."""
    cluster = stage.cluster
    began = log_length(cluster)
    names = {
        (namespace, f"{mode}-{number}")
        for namespace in NAMESPACES
        for mode in MODES
        for number in range(PER_MODE)
    }
    with ThreadPoolExecutor(len(NAMESPACES)) as pool:
        list(pool.map(lambda namespace: _apply(stage, namespace), NAMESPACES))

    served: set[tuple[str, str]] = set()

    def all_have_run() -> bool:
        for namespace in NAMESPACES:
            running = _running(stage, namespace)
            served.update((namespace, name) for name in running)
            if running:
                cluster.kubectl(
                    "delete",
                    "pods",
                    *running,
                    "-n",
                    namespace,
                    "--wait=false",
                    "--ignore-not-found",
                )
        assert [] == doubly_held(cluster)
        return served == names

    cluster.wait_until(all_have_run, "every pod has had its turn", timeout_s=TIMEOUT_S)

    claims = [
        claim
        for claim in stored_claims(cluster, began)
        if claim["metadata"]["namespace"] in NAMESPACES
    ]
    assert {mode for uses in _uses_of(claims).values() for _, mode in uses} == set(MODES)
    assert [] == violations(claims)
    assert ["modes-0/gpu-0: fraction, whole"] == violations(_planted())


def _apply(stage: Owned, namespace: str) -> None:
    objects = [
        *(claim_template(mode, f"{mode}.{EXAMPLE}") for mode in MODES),
        *(
            bridged(pod(f"{mode}-{number}", claims={"gpu": mode}))
            for number in range(PER_MODE)
            for mode in MODES
        ),
    ]
    stage.cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))


def _running(stage: Owned, namespace: str) -> list[str]:
    return [
        document["metadata"]["name"]
        for document in stage.cluster.objects("pods", namespace)
        if document["status"].get("phase") == "Running"
        and "deletionTimestamp" not in document["metadata"]
    ]


# --- the audit log --------------------------------------------------------------------------------


def _uses_of(claims: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """Return the GPU and mode of each device that claims were given, by the claims' uid."""
    return {claim["metadata"]["uid"]: uses for claim in claims if (uses := _uses(claim))}


def _uses(claim: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the GPU and mode of each device of a claim: `gpu-0-mig-1` is in mode mig."""
    allocation = claim.get("status", {}).get("allocation") or {}
    uses = []
    for result in allocation.get("devices", {}).get("results", []):
        _, number, *mode = result["device"].split("-")
        uses.append((f"{result['pool']}/gpu-{number}", mode[0] if mode else "whole"))
    return uses


def violations(claims: Iterable[Mapping[str, Any]]) -> list[str]:
    """Replay writes of claims; return each GPU that was used in ways that exclude each other."""
    held: dict[str, list[tuple[str, str]]] = {}
    messages = []
    for claim in claims:
        held[claim["metadata"]["uid"]] = _uses(claim)
        for gpu in {gpu for gpu, _ in _uses(claim)}:
            modes = [mode for uses in held.values() for other, mode in uses if other == gpu]
            is_shared_whole = modes.count("whole") > 1
            if is_shared_whole or not any(set(modes) <= allowed for allowed in TOGETHER):
                messages.append(f"{gpu}: {', '.join(sorted(modes))}")
    return messages


def _planted() -> list[dict[str, Any]]:
    """Return the writes of three claims; the last got a GPU that is in use in another way."""
    return [
        {
            "metadata": {"uid": uid},
            "status": {
                "allocation": {"devices": {"results": [{"pool": "modes-0", "device": device}]}}
            },
        }
        for uid, device in (
            ("a", "gpu-0-fraction-1"),
            ("b", "gpu-1-mig-0"),
            ("c", "gpu-1-mig-1"),
            ("d", "gpu-0"),
        )
    ]
