"""Objects restored from a backup: without status, with other uids, or older than those that refer to them."""

import base64
import http.client
import json
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from admission.webhook_configuration import PODS_WEBHOOK, WEBHOOK_PATHS
from controllers.certificates.path_secret import create_key
from controllers.certificates.signing_keys import create_key as create_signing_key
from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.audit import conflicts, log_length, stored_claims
from e2e.bridge import LEASE, Bridge, bridged, doubly_held
from e2e.drawbridge import CONTROLLER, Drawbridge
from e2e.fleet import translation_profile
from e2e.inventory import EXAMPLE, HAMI
from e2e.objects import pod
from e2e.owned import AUDITED, SHORT_LEASE, TEAM, Owned, taker
from e2e.translated import devices, legacy_keys
from kube.names import FENCE, NAMESPACE, SIGNING_SECRET
from process.certificates.signing import KEYS
from process.certificates.webhook_paths import PATH_KEYS, PathKey, encode_path_keys, split_path
from testing.documents import api_object
from translation.profiles.published import PublishedProfiles, decode_published
from translation.record.signature import encode_keys

TIMEOUT_S: Final = 120.0
LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
DEVICES: Final = 8
PROFILES: Final = "drawbridge-profiles"
PROFILE_DRIVER: Final = "npu.restored.example.com"
OLDER: Final = timedelta(days=3)


API_VERSIONS: Final = {
    "Pod": "v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
}


def backups(cluster: Access, kind: str, namespace: str) -> list[Object]:
    """Return objects as a backup creates them again."""
    head = {"kind": kind, "apiVersion": API_VERSIONS[kind]}
    return [{**head, **backup(stored)} for stored in cluster.objects(f"{kind.lower()}s", namespace)]


def backup(stored: Object) -> Object:
    """Return an object without status, node, and the fields that the API server sets."""
    fields = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
    metadata = {key: value for key, value in stored["metadata"].items() if key not in fields}
    copy = {**stored, "metadata": metadata}
    copy.pop("status", None)
    copy["spec"] = {key: value for key, value in stored["spec"].items() if key != "nodeName"}
    return copy


def restore(cluster: Access, namespace: str, *documents: Object) -> None:
    """Create objects again; those that exist stay."""
    for document in documents:
        command = ("create", "-n", namespace, "--validate=false", "-f", "-")
        output = cluster.kubectl(*command, input=stream(document), check=False)
        assert output.returncode == 0 or "already exists" in output.stderr, output.stderr


def take_away(cluster: Access, namespace: str, *kinds: str) -> None:
    """Delete all objects of kinds, and wait until they are gone."""
    for kind in kinds:
        cluster.kubectl("delete", kind, "--all", "-n", namespace, "--wait=false")
    cluster.wait_until(
        lambda: not any(cluster.objects(kind, namespace) for kind in kinds),
        f"{kinds} are gone",
        timeout_s=TIMEOUT_S,
    )


def replace_data(
    cluster: Access, kind: str, name: str, data: Mapping[str, str], namespace: str
) -> None:
    """Replace the data of a Secret or ConfigMap."""
    step = {"op": "replace", "path": "/data", "value": dict(data)}
    target = (kind, name, "-n", namespace, "--type=json")
    cluster.kubectl("patch", *target, "-p", json.dumps([step]))


def base64_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


# --- webhook and controllers ----------------------------------------------------------------------


def run_pod(cluster: Access, namespace: str, name: str) -> None:
    """Have a pod get its devices; creations may fail for a moment."""
    command = ("create", "-n", namespace, "-f", "-")
    document = stream(pod(name, limits=LIMITS))
    cluster.wait_until(
        lambda: cluster.kubectl(*command, input=document, check=False).returncode == 0,
        f"{name} is admitted",
        timeout_s=TIMEOUT_S,
    )
    running = cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    assert legacy_keys(running) == set()


@pytest.mark.usefixtures("fleet", "drawbridge")
def test_a_namespace_of_translated_pods_is_restored(cluster: Access, namespace: str) -> None:
    """Its claims have owners that do not exist any more, and its templates may come after the pods."""
    run_pod(cluster, namespace, "share")
    copies = {kind: backups(cluster, kind, namespace) for kind in API_VERSIONS}
    take_away(cluster, namespace, "pods", "resourceclaims", "resourceclaimtemplates")

    for kind in ("ResourceClaim", "Pod", "ResourceClaimTemplate"):
        restore(cluster, namespace, *copies[kind])

    running = cluster.wait_running("share", namespace, timeout_s=TIMEOUT_S)
    (main,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert main.driver == HAMI
    (left,) = {claim["metadata"]["name"] for claim in copies["ResourceClaim"]}
    cluster.wait_gone("resourceclaims", left, namespace, timeout_s=TIMEOUT_S)
    assert [] == doubly_held(cluster)


@pytest.mark.usefixtures("fleet")
def test_older_keys_leases_and_config_maps_are_put_right(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    """Objects created since stay, and the next pod needs nobody's hand."""
    cluster.apply(translation_profile(PROFILE_DRIVER))
    cluster.wait_until(
        lambda: PROFILE_DRIVER in published_profiles(cluster, drawbridge.namespace).in_force,
        "the profile is in force",
        timeout_s=TIMEOUT_S,
    )
    run_pod(cluster, namespace, "before")
    then = datetime.now(UTC) - OLDER
    paths = dict.fromkeys(WEBHOOK_PATHS.values())
    older = [PathKey(path=path, created=then, key=create_key()) for path in paths for _ in range(2)]
    in_force = published_profiles(cluster, drawbridge.namespace).in_force

    signing = encode_keys([create_signing_key(then)])
    replace_data(
        cluster, "secret", SIGNING_SECRET, {KEYS: base64_of(signing)}, drawbridge.namespace
    )
    replace_data(
        cluster,
        *("secret", "drawbridge-webhook-path"),
        {PATH_KEYS: base64_of(encode_path_keys(older))},
        drawbridge.namespace,
    )
    replace_data(cluster, "configmap", PROFILES, {}, drawbridge.namespace)
    restore_lease(cluster, CONTROLLER, drawbridge.namespace)
    names = {key.key for key in older}
    cluster.wait_until(
        lambda: all(split_path(path)[1] in names for path in drawbridge.paths().values()),
        "the configurations name keys that exist",
        timeout_s=TIMEOUT_S,
    )

    run_pod(cluster, namespace, "after")
    drawbridge.wait_ready()
    before = cluster.get("pods", "before", namespace)
    assert before["status"]["phase"] == "Running"
    assert split_path(drawbridge.path(PODS_WEBHOOK))[0] == "/mutate"
    # Versions that nothing needs any more may be gone; those in force are there with their content.
    cluster.wait_until(
        lambda: published_profiles(cluster, drawbridge.namespace).in_force == in_force,
        "the profiles in force are published again",
        timeout_s=TIMEOUT_S,
    )
    cluster.kubectl("delete", "devicetranslationprofiles", PROFILE_DRIVER)


def published_profiles(cluster: Access, namespace: str) -> PublishedProfiles:
    """Return the profiles that the controllers have published."""
    stored = cluster.get("configmaps", PROFILES, namespace)
    return decode_published(stored.get("data") or {})


def restore_lease(cluster: Access, name: str, namespace: str) -> str:
    """Give a Lease the spec of an older copy; returns its holder just before."""
    holder = str(cluster.get("leases", name, namespace)["spec"]["holderIdentity"])
    then = (datetime.now(UTC) - OLDER).isoformat().replace("+00:00", "Z")
    spec = {
        "holderIdentity": f"gone_{secrets.token_hex(4)}",
        "acquireTime": then,
        "renewTime": then,
        "leaseTransitions": 0,
    }
    target = ("lease", name, "-n", namespace, "--type=merge")
    cluster.kubectl("patch", *target, "-p", json.dumps({"spec": spec}))
    return holder


# --- the bridge -----------------------------------------------------------------------------------


@pytest.fixture
def short_lease(owned_bridge: Owned) -> Iterator[Bridge]:
    """The bridge with a short Lease; one node with `DEVICES` devices."""
    cluster = owned_bridge.cluster
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(1, prefix="restored"),
        lambda node: inventory.example_gpus(node, gpus=DEVICES),
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.stop("a")
    bridge = Bridge(cluster, drivers=(), settings=SHORT_LEASE)
    bridge.wait_working("restored")
    yield bridge
    bridge.stop("restored")
    owned_bridge.bridge.ensure()
    cluster.kubectl("delete", "resourceclaims", "--all", "-n", TEAM, "--wait=false")
    owned_bridge.clear()
    cluster.remove_nodes(nodes)


def named_claim(name: str) -> Object:
    exactly = {"exactly": {"deviceClassName": EXAMPLE, "count": 1}, "name": "gpu"}
    return api_object("ResourceClaim", name, spec={"devices": {"requests": [exactly]}})


def user_of(claim: str, name: str) -> Object:
    """Return a pod that uses a claim by its name."""
    document: dict[str, Any] = bridged(taker(name))
    document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    return document


@pytest.mark.parametrize("cluster", [AUDITED], indirect=True)
def test_claims_and_the_lease_are_restored_and_no_device_is_given_twice(
    owned_bridge: Owned, short_lease: Bridge
) -> None:
    cluster, began = owned_bridge.cluster, log_length(owned_bridge.cluster)
    owned_bridge.apply(*(named_claim(f"named-{number}") for number in range(2)))
    users = [user_of(f"named-{number}", f"user-{number}") for number in range(2)]
    owned_bridge.apply(*users, *(bridged(taker(f"pod-{number}")) for number in range(2)))
    names = ("user-0", "user-1", "pod-0", "pod-1")
    owned_bridge.running(*names)
    stored = cluster.objects("resourceclaims", TEAM)
    claims, pods = (backups(cluster, kind, TEAM) for kind in ("ResourceClaim", "Pod"))
    take_away(cluster, TEAM, "pods", "resourceclaims")
    owned_bridge.apply(bridged(taker("newcomer")))
    owned_bridge.running("newcomer")

    restore(cluster, TEAM, *claims)
    holder = restore_lease(cluster, LEASE, NAMESPACE)
    # A tool that restores the status, too, is told that only the bridge allocates.
    refusals = [put_status(cluster, claim) for claim in stored]
    restore(cluster, TEAM, *pods)
    short_lease.wait_working("restored")

    for name in names:
        cluster.wait_until(
            lambda name=name: _is_running(cluster, short_lease, name),  # type: ignore[misc]
            f"{name} runs again",
            timeout_s=TIMEOUT_S,
        )
    words = {status: text for status, text in refusals if status != http.client.NOT_FOUND}
    assert words.keys() == {http.client.FORBIDDEN}, refusals
    assert FENCE in words[http.client.FORBIDDEN]
    assert cluster.get("leases", LEASE, NAMESPACE)["spec"]["holderIdentity"] != holder
    assert [] == doubly_held(cluster)
    assert [] == conflicts(stored_claims(cluster, began))


def _is_running(cluster: Access, bridge: Bridge, name: str) -> bool:
    bridge.tend("restored")
    return bool(cluster.get("pods", name, TEAM)["status"].get("phase") == "Running")


def put_status(cluster: Access, claim: Object) -> tuple[int, str]:
    """Write the status of an earlier claim to the one of its name; returns status and body of the answer."""
    kind, name = cluster.kind("resourceclaims"), claim["metadata"]["name"]
    stored = cluster.find("resourceclaims", name, TEAM)
    if stored is None:  # Its owner is gone, and so is it.
        return http.client.NOT_FOUND, ""
    status, body = cluster.request(
        "PUT", f"{kind.path(TEAM, name)}/status", {**stored, "status": claim["status"]}
    )
    return status, body.decode()
