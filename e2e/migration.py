"""A cluster before its migration: nodes of NVIDIA's device plugin, with MIG too, and of HAMi, and their workloads.

The same for the same size. One namespace has six of ten workloads, as `default` or `ml` often has. The small
size is for `make test`, the large one for `make rehearsal`.
"""

import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from e2e import inventory
from e2e.access import Object
from e2e.objects import cron_job, daemon_set, deployment, job, pod, stateful_set
from kube.quantity import Quantity
from testing.documents import api_object, resource_quota

GPU: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
CORES: Final = "nvidia.com/gpucores"
MIG_PROFILES: Final = ("1g.10gb", "3g.40gb")
PRODUCT: Final = "nvidia.com/gpu.product"
REGISTER: Final = "hami.io/node-nvidia-register"
HAMI_SCHEDULER: Final = "hami-scheduler"
BINPACK: Final = {"hami.io/gpu-scheduler-policy": "binpack"}
ENDS_LABEL: Final = "ends"
"""The label of Jobs' pods that do not end at once: `cordoned` end soon after their node is cordoned, others never."""

WHOLE_MODEL: Final = inventory.H100_80GB
SHARED_MODEL: Final = inventory.A100_40GB
MIG_MODEL: Final = inventory.A100_80GB
MIG_LAYOUT: Final = ("1g.10gb", "1g.10gb", "3g.40gb")
WHOLE_GPUS: Final = 8
SHARED_GPUS: Final = 4
MIG_GPUS: Final = 4
SPLIT: Final = 10
"""Shares of one GPU that HAMi's device plugin offers."""
BUDGETS: Final = 3
HEAD_ROOM: Final = 4
"""The devices that the quotas of all teams but one leave free."""
MEMORY_ROOM_MIB: Final = 32000
"""The memory that the limit of the metered team leaves free: that of four of its largest pods, for rollouts."""
_LARGE_OF_TEN: Final = 6


class NodeKind(StrEnum):
    """The form of a node's devices; its nodes are named after it."""

    WHOLE = "whole"
    SHARED = "shared"
    MIG = "mig"


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a cluster.

    Attributes:
        nodes: The number of nodes by kind.
        teams: Namespaces.
        whole: Deployments of whole GPUs.
        shares: Deployments of shares.
        mig: Deployments of MIG devices.
        stateful: StatefulSets of shares.
        nightly: CronJobs that are suspended.
        jobs: The number of Jobs of each kind.
    """

    nodes: Mapping[NodeKind, int]
    teams: int
    whole: int
    shares: int
    mig: int
    stateful: int
    nightly: int
    jobs: int

    @property
    def team_names(self) -> tuple[str, ...]:
        """Return the namespaces."""
        return tuple(f"team-{number:02}" for number in range(self.teams))

    @property
    def full(self) -> str:
        """Return the team without a whole GPU and with a full quota."""
        return self.team_names[0]

    @property
    def large(self) -> str:
        """Return the team with six of ten workloads."""
        return self.team_names[1]

    @property
    def metered(self) -> str:
        """Return the team with a limit of memory beside those of devices; it moves in parts."""
        return self.large

    def node_names(self, *kinds: NodeKind) -> tuple[str, ...]:
        """Return the nodes of some kinds; of all without any."""
        return tuple(
            f"{kind}-{number:02}"
            for kind in kinds or NodeKind
            for number in range(self.nodes[kind])
        )

    def team(self, number: int, *, is_share: bool) -> str:
        """Return the team of a workload; the full one has shares only."""
        if number % 10 in range(1, 1 + _LARGE_OF_TEN):
            return self.large
        others = [
            name
            for name in self.team_names
            if name != self.large and (is_share or name != self.full)
        ]
        return others[number % len(others)]


SMALL: Final = Fleet(
    nodes={NodeKind.WHOLE: 8, NodeKind.SHARED: 4, NodeKind.MIG: 3},
    teams=6,
    whole=24,
    shares=44,
    mig=6,
    stateful=4,
    nightly=3,
    jobs=1,
)
LARGE: Final = Fleet(
    nodes={NodeKind.WHOLE: 24, NodeKind.SHARED: 11, NodeKind.MIG: 6},
    teams=12,
    whole=72,
    shares=140,
    mig=20,
    stateful=9,
    nightly=6,
    jobs=3,
)


# --- nodes ------------------------------------------------------------------------------------------


def kind_of_node(name: str) -> NodeKind:
    """Return the kind of a node of this cluster, by its name."""
    return NodeKind(name.partition("-")[0])


def nodes(fleet: Fleet) -> list[Object]:
    """Return the nodes, each with the resources of its device plugin."""
    return [_node(name) for name in fleet.node_names()]


def offered_amounts(kind: NodeKind) -> dict[str, int]:
    """Return resource name to the amount that the device plugin of a node offers."""
    if kind is NodeKind.MIG:
        return {
            f"nvidia.com/mig-{profile}": MIG_GPUS * MIG_LAYOUT.count(profile)
            for profile in MIG_PROFILES
        }
    return {GPU: WHOLE_GPUS if kind is NodeKind.WHOLE else SHARED_GPUS * SPLIT}


def legacy_source(name: str) -> tuple[str, int]:
    """Return the source of a node's devices at first, and their number."""
    kind = kind_of_node(name)
    if kind is NodeKind.SHARED:
        return "hami", SHARED_GPUS
    return "devicePlugin", sum(offered_amounts(kind).values())


def published_slices(name: str) -> list[Object]:
    """Return the slices that the DRA driver of a node publishes."""
    kind = kind_of_node(name)
    if kind is NodeKind.WHOLE:
        return inventory.nvidia_gpus(name, gpus=WHOLE_GPUS, model=WHOLE_MODEL)
    if kind is NodeKind.MIG:
        return inventory.nvidia_mig(name, gpus=MIG_GPUS, model=MIG_MODEL, layout=MIG_LAYOUT)
    return inventory.hami_gpus(name, gpus=SHARED_GPUS, model=SHARED_MODEL)


def _node(name: str) -> Object:
    kind = kind_of_node(name)
    node = inventory.kwok_node(name)
    node["metadata"]["labels"] |= _labels(kind)
    if kind is NodeKind.SHARED:
        node["metadata"]["annotations"][REGISTER] = json.dumps(_registered(name))
    offers = {key: str(amount) for key, amount in offered_amounts(kind).items()}
    room = {**node["status"]["allocatable"], **offers}
    node["status"] = {"capacity": room, "allocatable": room}
    return node


def _labels(kind: NodeKind) -> dict[str, str]:
    driver = {"nvidia.com/cuda.driver-version.major": "580"}
    if kind is NodeKind.SHARED:
        return {"gpu": "on", **driver}
    model, gpus = (WHOLE_MODEL, WHOLE_GPUS) if kind is NodeKind.WHOLE else (MIG_MODEL, MIG_GPUS)
    return {
        PRODUCT: model.product_name.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(model.memory_mib),
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.deploy.device-plugin": "true",
        **driver,
    }


def _registered(name: str) -> list[Object]:
    return [
        {
            "id": inventory.gpu_uuid(name, minor),
            "count": SPLIT,
            "devmem": SHARED_MODEL.memory_mib,
            "devcore": 100,
            "type": SHARED_MODEL.product_name,
            "health": True,
        }
        for minor in range(SHARED_GPUS)
    ]


# --- workloads --------------------------------------------------------------------------------------


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload, and its expected outcome.

    Attributes:
        outcome: The outcome in the words of `drawbridge assess`.
        pods: The number of pods that run in the end.
        amounts: The amounts that a pod requests.
        runs: Pods that run at first only, and then have ended.
    """

    document: Object
    namespace: str
    outcome: str
    pods: int
    amounts: Mapping[str, int]
    runs: int = 0

    @property
    def reference(self) -> str:
        """`Kind/namespace/name`."""
        return f"{self.document['kind']}/{self.namespace}/{self.document['metadata']['name']}"

    @property
    def memory_mib(self) -> int:
        """The memory that a pod requests by HAMi's key."""
        template = self.document["spec"].get("template", {"spec": {"containers": []}})
        limits = [entry["resources"].get("limits", {}) for entry in template["spec"]["containers"]]
        return sum(int(Quantity(entry.get(MEMORY, 0))) for entry in limits)


def workloads(fleet: Fleet) -> list[Workload]:
    """Return the workloads; one of them would be refused."""
    return [
        _monitor(fleet),  # First, since there is room for it on one node only.
        *(_whole(fleet, number) for number in range(fleet.whole)),
        *(_share(fleet, number) for number in range(fleet.shares)),
        *(_mig(fleet, number) for number in range(fleet.mig)),
        *(_stateful(fleet, number) for number in range(fleet.stateful)),
        *(_nightly(fleet, number) for number in range(fleet.nightly)),
        *(member for number in range(fleet.jobs) for member in _jobs(fleet, number)),
        _wrong(fleet),
    ]


def agent(fleet: Fleet) -> Object:
    """Return a DaemonSet without devices that every drain leaves alone."""
    manifest = daemon_set("agent", pod("pod"))
    manifest["metadata"]["namespace"] = fleet.team_names[-1]
    return manifest


def _monitor(fleet: Fleet) -> Workload:
    """Return a DaemonSet with a whole GPU of one node that every drain leaves there."""
    node = fleet.node_names(NodeKind.WHOLE)[0]
    template = pod("pod", limits={GPU: 1}, nodeSelector={"kubernetes.io/hostname": node})
    team = fleet.team(0, is_share=False)
    return _workload(daemon_set("monitor", template), team, "native", {GPU: 1})


def _whole(fleet: Fleet, number: int) -> Workload:
    """Return a Deployment with one or two whole GPUs."""
    amount = 2 if number % 12 == 0 else 1
    template = pod("pod", limits={GPU: amount}, nodeSelector=_product(WHOLE_MODEL))
    team = fleet.team(number, is_share=False)
    name = f"train-{number:03}"
    return _workload(deployment(name, template), team, "native", {GPU: amount})


def _share(fleet: Fleet, number: int) -> Workload:
    """Return a Deployment of shares; each eighth asks for a policy that a claim cannot express."""
    is_lossy = number % 8 == 7
    replicas = 2 if number % 6 == 0 else 1
    manifest = deployment(
        f"serve-{number:03}", _shared_pod(number, BINPACK if is_lossy else {}), replicas=replicas
    )
    outcome = "lossy" if is_lossy else "translated"
    return _workload(manifest, fleet.team(number, is_share=True), outcome, {GPU: 1}, pods=replicas)


def _mig(fleet: Fleet, number: int) -> Workload:
    """Return a Deployment of MIG devices; those of the large team are of the small profile.

    So each team has one size: a quota of their DeviceClass counts both, and two limits would become one.
    """
    team = fleet.team(number, is_share=False)
    key = f"nvidia.com/mig-{MIG_PROFILES[team != fleet.large]}"
    template = pod("pod", limits={key: 1}, nodeSelector=_product(MIG_MODEL))
    return _workload(deployment(f"infer-{number:03}", template), team, "translated", {key: 1})


def _stateful(fleet: Fleet, number: int) -> Workload:
    """Return a StatefulSet; the first has three pods and a budget that lets one go at a time."""
    replicas = 3 if number == 0 else 1
    manifest = stateful_set(f"notebook-{number:03}", _shared_pod(number, {}), replicas=replicas)
    team = fleet.team_names[(number + 1) % fleet.teams]
    return _workload(manifest, team, "translated", {GPU: 1}, pods=replicas)


def _nightly(fleet: Fleet, number: int) -> Workload:
    manifest = cron_job(f"nightly-{number:03}", _shared_pod(number, {}))
    return _workload(manifest, fleet.team_names[number], "translated", {GPU: 1}, pods=0)


def _jobs(fleet: Fleet, number: int) -> list[Workload]:
    """Return Jobs that run when their node is cordoned: two that a drain would fail, one that it restarts."""
    team = fleet.team_names[-1]
    whole = pod("pod", limits={GPU: 1}, nodeSelector=_product(WHOLE_MODEL))
    last = _job(f"last-try-{number}", whole, "cordoned", backoffLimit=0)
    share = _job(f"sweep-{number}", _shared_pod(number, {}), "cordoned", backoffLimit=1)
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    policy = {"rules": [ignored]}
    again = _job(f"again-{number}", whole, "never", backoffLimit=0, podFailurePolicy=policy)
    return [
        _workload(last, team, "native", {GPU: 1}, pods=0, runs=1),
        _workload(share, team, "translated", {GPU: 1}, pods=0, runs=1),
        _workload(again, team, "native", {GPU: 1}),
    ]


def _job(name: str, template: Object, ends: str, **spec: Any) -> Object:
    manifest = job(name, template)
    inside = manifest["spec"]["template"]
    inside["metadata"] = {**inside["metadata"], "labels": {"app": name, ENDS_LABEL: ends}}
    manifest["spec"] |= spec
    return manifest


def _wrong(fleet: Fleet) -> Workload:
    """Return a workload with an amount in bytes that HAMi takes for mebibytes."""
    template = pod("pod", limits={GPU: 1, MEMORY: "4Gi"}, schedulerName=HAMI_SCHEDULER)
    return _workload(deployment("bytes", template), fleet.team_names[-1], "refused", {GPU: 1})


def _shared_pod(number: int, annotations: Mapping[str, str]) -> Object:
    limits = {GPU: 1, MEMORY: 4000 + 1000 * (number % 5), CORES: 10}
    return pod("pod", limits=limits, annotations=annotations, schedulerName=HAMI_SCHEDULER)


def _product(model: inventory.Model) -> dict[str, str]:
    return {PRODUCT: model.product_name.replace(" ", "-")}


def _workload(
    manifest: Object,
    namespace: str,
    outcome: str,
    amounts: Mapping[str, int],
    *,
    pods: int = 1,
    runs: int = 0,
) -> Workload:
    manifest["metadata"]["namespace"] = namespace
    return Workload(
        document=manifest,
        namespace=namespace,
        outcome=outcome,
        pods=pods,
        amounts=amounts,
        runs=runs,
    )


def quotas(fleet: Fleet, members: list[Workload]) -> list[Object]:
    """Return the quota of each team: its use, and a few more for all but the full one."""
    used = Counter[tuple[str, str]]()
    memory: Counter[str] = Counter({fleet.metered: MEMORY_ROOM_MIB})
    for workload in members:
        pods = workload.pods + workload.runs
        for key, amount in workload.amounts.items():
            used[workload.namespace, key] += pods * amount
        memory[workload.namespace] += pods * workload.memory_mib
    return [
        resource_quota(
            {
                f"requests.{key}": str(amount + (0 if team == fleet.full else HEAD_ROOM))
                for (namespace, key), amount in sorted(used.items())
                if namespace == team
            }
            | ({f"requests.{MEMORY}": str(memory[team])} if team == fleet.metered else {}),
            namespace=team,
        )
        for team in fleet.team_names
    ]


def budgets(members: list[Workload]) -> list[Object]:
    """Return a PodDisruptionBudget for some workloads of several pods, a StatefulSet among them."""
    several = [workload for workload in members if workload.pods > 1]
    stateful = [workload for workload in several if workload.document["kind"] == "StatefulSet"]
    return [
        api_object(
            "PodDisruptionBudget",
            workload.document["metadata"]["name"],
            workload.namespace,
            spec={"maxUnavailable": 1, "selector": workload.document["spec"]["selector"]},
        )
        for workload in (*several[:BUDGETS], *stateful)
    ]


def namespaces(fleet: Fleet) -> list[Object]:
    """Return the namespaces of the teams."""
    return [api_object("Namespace", team) for team in fleet.team_names]
