"""Pods that wait behind the gate of DeviceQuotas: the policies, a namespace with a quota, and a record of its usage."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self

from e2e.access import Access, Object, stream
from e2e.drawbridge import ROOT, rendered
from e2e.objects import pod
from e2e.small_inventory import add_nodes, asking, gpu, template
from kube.api.core import FINISHED_PHASES
from kube.names import ENFORCEMENT_LABEL, QUOTA_GATE, SCHEDULER_NAME
from testing.documents import api_object

DRIVER: Final = "gates.quota.example.com"
GATES: Final = ROOT / "manifests" / "quota-gates"
GATE: Final = {"name": QUOTA_GATE}
DEVICES: Final = 8
OLD_KEY: Final = "example.com/old-gpu"


@contextmanager
def gates_of(cluster: Access) -> Iterator[None]:
    """Install the policies, and a node with eight devices."""
    added = add_nodes(
        cluster, DRIVER, {"gates-node": [gpu(f"gpu-{n}", "80Gi") for n in range(DEVICES)]}
    )
    cluster.apply(rendered(cluster, GATES))
    yield
    remove_gates(cluster)
    cluster.remove_nodes(added)


def remove_gates(cluster: Access) -> None:
    """Delete the policies, until the API server has forgotten them."""
    cluster.kubectl("delete", "-k", str(GATES), "--ignore-not-found")
    deletion = ("delete", "crd", "devicequotas.drawbridge.internal", "--dry-run=server")
    cluster.wait_until(
        lambda: cluster.kubectl(*deletion, "--ignore-not-found", check=False).returncode == 0,
        "the API server has forgotten the policies",
    )


def device_quota(namespace: str, driver: str, most: int) -> Object:
    """Return a quota of devices for a namespace, with its name."""
    limit = {"name": "devices", "driver": driver, "devices": {}, "max": str(most)}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return api_object(
        "DeviceQuota", namespace, spec={"namespaceSelector": selector, "limits": [limit]}
    )


class Team:
    """A namespace with a quota of its own."""

    def __init__(self, cluster: Access, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def limit(self, most: int, *legacy_keys: str, **spec: Any) -> None:
        """Create the quota, or change it."""
        quota = device_quota(self.namespace, DRIVER, most)
        if legacy_keys:
            (limit,) = quota["spec"]["limits"]
            limit["legacyKeys"] = [{"name": key} for key in legacy_keys]
        quota["spec"] |= spec
        self.cluster.apply(quota)

    def wait_enforced(self) -> None:
        """Wait until the quota of the namespace is enforced."""
        self.cluster.wait_for(
            "devicequotas",
            self.namespace,
            until=lambda stored: condition(stored, "Enforced") == "True",
        )
        self.wait_gates()

    def wait_gates(self) -> None:
        """Wait until the API server adds gates."""
        probe = self.pod("probe")

        def is_probe_gated() -> bool:
            # A new API server refuses pods until it has discovered the kind of the quotas.
            status, answer = self.post(probe, dry_run=True)
            return status == http.client.CREATED and is_gated(answer)

        self.cluster.wait_until(is_probe_gated, "the policies are in force")

    def pod(self, name: str, **spec: Any) -> Object:
        return pod(name, claims={"gpu": "wanted"}, **spec)

    def post(self, document: Object, *, dry_run: bool = False) -> tuple[int, Object]:
        """Create an object; return status and answer."""
        path = self.cluster.kind(document["kind"]).path(self.namespace)
        query = "?dryRun=All" if dry_run else ""
        status, answer = self.cluster.request("POST", f"{path}{query}", document)
        return status, json.loads(answer)

    def create(self, *names: str, **spec: Any) -> None:
        for name in names:
            self.add(self.pod(name, **spec))

    def add(self, document: Object) -> None:
        """Create an object."""
        status, answer = self.post(document)
        assert status == http.client.CREATED, answer

    def delete(self, name: str) -> None:
        """Delete a pod."""
        path = self.cluster.kind("pods").path(self.namespace, name)
        status, answer = self.cluster.request("DELETE", path)
        assert status == http.client.OK, answer

    def free(self) -> list[str]:
        """Return the pods without our gate."""
        pods = self.cluster.objects("pods", self.namespace)
        return [each["metadata"]["name"] for each in pods if not is_gated(each)]

    def has_another_free(self, name: str) -> bool:
        """Return True if a pod has no gate beside this one."""
        return self.free() not in ([], [name])

    def wait_free(self, count: int) -> list[str]:
        self.cluster.wait_until(lambda: len(self.free()) == count, f"{count} pods are let through")
        return self.free()

    def wait_events(self, name: str) -> list[str]:
        """Return the messages of a pod's events about quotas, as soon as there are any."""

        def messages() -> list[str]:
            events = self.cluster.objects("events", self.namespace)
            return [
                event["message"]
                for event in events
                if event["reason"] == "WaitingForDeviceQuota"
                and event["involvedObject"]["name"] == name
            ]

        self.cluster.wait_until(messages, f"pod {name} has an event")
        return messages()


def condition(stored: Object, type_: str) -> str:
    conditions = stored.get("status", {}).get("conditions", ())
    return next((entry["status"] for entry in conditions if entry["type"] == type_), "")


def is_gated(document: Object) -> bool:
    return GATE in (document["spec"].get("schedulingGates") or ())


def gated_pods(cluster: Access, namespace: str) -> list[str]:
    """Return the pods behind the gate of quotas."""
    return [
        entry["metadata"]["name"] for entry in cluster.objects("pods", namespace) if is_gated(entry)
    ]


def wait_policies(cluster: Access, namespace: str, document: Object, timeout_s: float) -> None:
    """Wait until a pod would get the gate."""
    dry = ("apply", "-n", namespace, "-f", "-", "--dry-run=server", "-o")
    gates = (*dry, "jsonpath={.spec.schedulingGates[*].name}")
    cluster.wait_until(
        lambda: QUOTA_GATE in cluster.kubectl(*gates, input=stream(document), check=False).stdout,
        "the policies are in force",
        timeout_s=timeout_s,
    )


class UsageRecord:
    """The claims of a team at every version of its pods and claims, while a block runs."""

    def __init__(self, team: Team, *, begins_empty: bool = True) -> None:
        self._team = team
        self._begins_empty = begins_empty
        self._watches = ExitStack()
        self._present: list[Object] = []
        self._events: list[list[Object]] = []

    def __enter__(self) -> Self:
        for kind in ("pods", "resourceclaims"):
            objects, events = self._watches.enter_context(self._team.cluster.watching(kind))
            present = [entry for entry in objects if self._is_of_team(entry)]
            assert not (present and self._begins_empty)
            self._present += present
            self._events.append(events)
        return self

    def __exit__(self, *_: object) -> None:
        self._watches.close()

    def most_at_a_time(self) -> int:
        """Return the largest number of claims that were allocated, or had a pod without a gate.

        Pods without a gate that have the key of the old days instead of a claim count, too.

        Versions are those of one store, so that pods and claims have one order.
        """
        pods = {
            entry["metadata"]["uid"]: entry
            for entry in self._present
            if "containers" in entry["spec"]
        }
        claims = {
            entry["metadata"]["uid"]: entry
            for entry in self._present
            if "containers" not in entry["spec"]
        }
        most = 0
        events = [event for of_kind in self._events for event in list(of_kind)]
        for event in sorted(events, key=_version):
            document = event["object"]
            if event["type"] == "BOOKMARK" or not self._is_of_team(document):
                continue
            objects = pods if document["kind"] == "Pod" else claims
            objects.pop(document["metadata"]["uid"], None)
            if event["type"] != "DELETED":
                objects[document["metadata"]["uid"]] = document
            by_claims = sum(_is_charged(claim, pods) for claim in claims.values())
            by_keys = sum(map(_has_key, pods.values()))
            most = max(most, by_claims + by_keys)
        return most

    def _is_of_team(self, document: Object) -> bool:
        return str(document["metadata"].get("namespace")) == self._team.namespace


def _version(event: Object) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


def _is_charged(claim: Object, pods: Mapping[str, Object]) -> bool:
    if claim.get("status", {}).get("allocation"):
        return True
    (owner,) = claim["metadata"]["ownerReferences"]
    pod = pods.get(owner["uid"])
    return (
        pod is not None
        and not is_gated(pod)
        # The bridge promises nothing to a pod that waits for it.
        and pod["spec"].get("schedulerName") != SCHEDULER_NAME
        # A pod that has ended is placed no more.
        and pod["status"]["phase"] not in FINISHED_PHASES
    )


def _has_key(pod: Object) -> bool:
    """Return True if a pod without a gate has a device by the key."""
    (container,) = pod["spec"]["containers"]
    return (
        OLD_KEY in container.get("resources", {}).get("limits", {})
        and not is_gated(pod)
        and pod["status"]["phase"] not in FINISHED_PHASES
    )


@contextmanager
def team_in(cluster: Access, namespace: str) -> Iterator[Team]:
    """Have a team in a namespace, with a template for one device."""
    # The webhook would deny at once what a limit of 0 never lets through; here the gates are tried.
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}=off")
    cluster.kubectl(
        "apply", "-n", namespace, "-f", "-", input=stream(template(asking(DRIVER), "wanted"))
    )
    yield Team(cluster, namespace)
    cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0")
    cluster.kubectl("delete", "devicequota", namespace, "--ignore-not-found")
