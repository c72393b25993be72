"""A tenant of a migration with a limit of memory: one budget for its pods with keys and those with claims.

The limit is what `drawbridge quota convert` makes of the tenant's ResourceQuota. At each moment of the waves it
leaves the same amount: a pod that asks for just as much comes through, and one that asks for more waits, or is
refused by the old quota as long as that counts.
"""

from collections.abc import Iterable
from typing import Any, Final

import yaml

from e2e.access import Object
from e2e.cluster import Cluster
from e2e.drawbridge import ROOT, command_line, rendered
from e2e.gated import condition, is_gated
from e2e.migration import CORES, GPU, HAMI_SCHEDULER, MEMORY, MEMORY_ROOM_MIB
from e2e.objects import pod
from kube.manifests.dump import dump_yaml

TIMEOUT_S: Final = 60.0
LINE: Final = f"requests.{MEMORY}"
WAITS: Final = "WaitingForDeviceQuota"


class MeteredTenant:
    """A namespace with a limit of memory, its DeviceQuota, and pods that probe it."""

    def __init__(self, cluster: Cluster, team: str) -> None:
        """Limit the team as `quota convert` says, with gates, before it has any pod."""
        self.cluster, self.team = cluster, team
        cluster.apply(rendered(cluster, ROOT / "manifests" / "quota-gates"))
        line = {LINE: cluster.get("resourcequotas", "gpus", team)["spec"]["hard"][LINE]}
        metadata = {"name": "gpus", "namespace": team}
        cluster.apply(device_quotas(cluster, [_resource_quota(metadata, line)]))
        self._probes = 0

    def wait_enforced(self) -> None:
        """Wait until the controllers hold pods back for the limit."""
        self.cluster.wait_for(
            "devicequotas",
            f"{self.team}-gpus",
            until=lambda stored: condition(stored, "Enforced") == "True",
            timeout_s=TIMEOUT_S,
        )

    def probe(self) -> None:
        """See that as much is left as before the migration: neither more nor less."""
        self._probes += 1
        more, fits = (f"{name}-{self._probes}" for name in ("more", "fits"))
        try:
            if self._is_created(more, MEMORY_ROOM_MIB + 1):
                self.cluster.wait_until(
                    lambda: self._waits(more), f"{more} waits for the budget", timeout_s=TIMEOUT_S
                )
            assert self._is_created(fits, MEMORY_ROOM_MIB), f"{fits} is refused"
            self.cluster.wait_for(
                *("pods", fits, self.team),
                until=lambda pod: not is_gated(pod),
                timeout_s=TIMEOUT_S,
            )
            gated = self.cluster.find("pods", more, self.team)
            assert gated is None or is_gated(gated), f"{more} has more than is left"
        finally:
            for name in (more, fits):
                self.cluster.delete("pods", name, self.team)
                self.cluster.wait_gone("pods", name, self.team)

    def assert_moved(self) -> None:
        """Assert that the old line is gone, and that the DeviceQuota counts the claims instead."""
        for quota in self.cluster.objects("resourcequotas", self.team):
            assert LINE not in quota["spec"]["hard"], quota["metadata"]["name"]
        quota = self.cluster.get("devicequotas", f"{self.team}-gpus")
        (limit,) = quota["status"]["limits"]
        assert (limit["available"], limit.get("promised", "0")) == (f"{MEMORY_ROOM_MIB}Mi", "0")

    def _is_created(self, name: str, memory_mib: int) -> bool:
        """Create a pod; return False if the old quota refuses it."""
        limits = {GPU: 1, MEMORY: memory_mib, CORES: 1}
        document = pod(name, limits=limits, schedulerName=HAMI_SCHEDULER)
        document["metadata"]["namespace"] = self.team
        created = self.cluster.kubectl(
            "create", "-f", "-", input=dump_yaml([document]), check=False
        )
        refused = "exceeded quota: gpus" in created.stderr and LINE in created.stderr
        assert refused or created.returncode == 0, created.stderr
        return not refused

    def _waits(self, name: str) -> bool:
        return any(
            event["reason"] == WAITS and event["regarding"]["name"] == name
            for event in self.cluster.objects("events.events.k8s.io", self.team)
        )


def device_quotas(cluster: Cluster, quotas: Iterable[Object]) -> list[Object]:
    """Return the DeviceQuotas that ResourceQuotas are converted to."""
    result = command_line(
        *(cluster, "quota", "convert", "--snapshot", "-", "--to", "device"),
        input=dump_yaml([*quotas]),
    )
    assert result.returncode == 0, result.stderr
    return [
        document for document in yaml.load_all(result.stdout, Loader=yaml.CSafeLoader) if document
    ]


def _resource_quota(metadata: Any, hard: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard},
    }
