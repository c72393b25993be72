"""A plan as values; they are the document `plan.yaml`, read again by `verify --wave`."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kube.api.workloads import DAEMON_SET
from migration.cluster.owners import kind_of
from migration.conversion.replaced_lines import ReplacedLines
from migration.legacy.remaining import Remaining
from migration.plan.model.driver_charts import DriverNodes, DriverRelease, DriverValues
from migration.plan.model.stopped_workloads import StoppedWorkload
from translation.cluster.snapshot import WideMapping

KIND: Final = "PlanReport"
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


RESTARTED_KINDS: Final = frozenset(
    {"Deployment", "StatefulSet", DAEMON_SET, "ReplicaSet", "ReplicationController"}
)
"""Kinds whose pods a wave creates again at once; Jobs run out, and CronJobs change with their next run."""
RUN_OUT: Final = frozenset({"Job", "CronJob"})
"""Kinds whose pods of before a wave stay until they end; a Job of Volcano is one, too."""


def is_name(text: str) -> bool:
    """Return True if a text can be the name of an object in Kubernetes, a DNS subdomain.

    >>> is_name("gpu-a-00.example"), is_name("$(reboot)"), is_name("--all")
    (True, False, False)
    """
    return _NAME.fullmatch(text) is not None


def is_namespace(text: str) -> bool:
    """Return True if a text can be the name of a namespace, a DNS label."""
    return _NAMESPACE.fullmatch(text) is not None


class QuotaLines(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a ResourceQuota that gets lines for claims.

    Attributes:
        before: Line to amount as the plan saw it, without the lines that DeviceQuotas replace.
        added: Line to amount that a wave adds.
        name: The name of the ResourceQuota.
        doubled: The lines for keys beside which lines for claims allow more than before. Native pods, and claims of a class
            that maps the key, go on to need some of them.
    """

    before: Mapping[str, str]
    added: Mapping[str, str]
    name: str = ""
    doubled: tuple[str, ...] = ()


class PlannedDaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """A DaemonSet with devices; its pods stay on their node during a drain.

    Attributes:
        selector: The labels of its pods, as kubectl takes them.
        translated: Its pods get claims once its namespace is opted in; Kubernetes serves others wherever
            there are devices.
        ready: Its pods on the node were ready when the plan was made.
    """

    namespace: str
    name: str
    selector: str
    translated: bool = False
    ready: bool = True

    @property
    def reference(self) -> str:
        """Return `DaemonSet/namespace/name`."""
        return f"DaemonSet/{self.namespace}/{self.name}"


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node of a wave.

    Attributes:
        source: The system that hands out its devices today.
        devices: The number of devices that its DRA driver has to publish, by driver.
        resources: Resource name to the amount that its kubelet offers today; a renamed one as pods have it.
        uuids: The UUIDs of the devices, if the legacy system registers them.
        labels: The labels to set when the node is switched.
        former_labels: The values that these labels have today; null for a label that is not there.
        pool: The label of the pool that an autoscaler or a cloud grows, as `key=value`; empty without.
        annotations: The annotations to set while the node is drained, so that no autoscaler removes
            it.
        gpu_label: The label by which the Cluster Autoscaler takes the node for unready once it is switched;
            empty without.
        daemon_sets: The DaemonSets with devices that have pods there, which are deleted when the
            node has changed.
        drain_selector: The label selector of the pods that its drain evicts; empty for all.
    """

    name: str
    source: str
    devices: Mapping[str, int]
    resources: Mapping[str, str]
    uuids: tuple[str, ...]
    labels: Mapping[str, str]
    former_labels: Mapping[str, str | None]
    pool: str = ""
    annotations: tuple[str, ...] = ()
    gpu_label: str = ""
    daemon_sets: tuple[PlannedDaemonSet, ...] = ()
    drain_selector: str = ""


class PlannedWorkload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A workload with pods that change with a wave; `object` is `Kind/namespace/name`.

    Attributes:
        labelled: The template of its pods gets the label, since its namespace moves in parts.
        ends: Its pods run to their end as they are, and nothing creates more: a pod without a controller, or a Job
            with all completions under way.
        waiting: Nodes with a device plugin where pods of a DaemonSet stay as they are until their node is
            switched; so it is not restarted.
        losses: The losses of its pods when the wave restarts it.
        claim_losses: The requests of its pods that their claims do not have, each with the code of its finding.
        asks: Its pods ask not to be evicted, so a script asks before it restarts them.
        selector: The labels of its pods, as kubectl takes them; empty if they are not known.
        on_delete: Its controller replaces none of its pods by itself, as with the updateStrategy OnDelete, so a
            script deletes them one after another.
        ready_pods: The number of its pods that ran and were ready when the plan was made, without those on the nodes of
            `waiting`; no check waits for more. Null without a pod, as when it is scaled to 0, and in plans of earlier
            versions: checks wait for all.
    """

    object: str
    pods: int
    outcome: str
    labelled: bool = False
    ends: bool = False
    waiting: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    claim_losses: tuple[str, ...] = ()
    asks: bool = False
    selector: str = ""
    on_delete: bool = False
    ready_pods: int | None = None

    @property
    def is_translated(self) -> bool:
        """Return True if the workload's new pods have claims."""
        return self.outcome != "native"

    @property
    def is_restarted(self) -> bool:
        """Return True if a script of the wave restarts the workload, or changes its template."""
        is_rolled_out = self.object.partition("/")[0] in RESTARTED_KINDS
        return self.is_translated and is_rolled_out and not self.waiting

    @property
    def has_waited(self) -> bool:
        """Return True if the workload had pods when the plan was made, and none ran; those of a Job may begin later."""
        return self.ready_pods == 0 and kind_of(self.object) not in RUN_OUT

    @property
    def is_created_by_hand(self) -> bool:
        """Return True if it is a pod that a person has to delete, and to create again."""
        return self.is_translated and self.object.startswith("Pod/") and not self.ends


class PlannedWork(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that loses something when it is evicted.

    Attributes:
        pod: `Pod/namespace/name`, as it is called today.
        node: The node that the pod runs on when the wave begins.
        owner: Its controller as `Kind/namespace/name`; empty without one.
        since: The time at which the pod began, in RFC 3339; empty if it is not known.
        backoff_limit: The backoffLimit of its Job; null without one.
        pod_failure_policy: The action that the policy of its Job takes on an eviction; empty
            without a rule.
        reasons: The losses, each with its source.
        waits: A runbook waits for its end. Others are evicted.
        moved: An earlier wave has evicted or restarted it, so another pod of its owner is there then.
        never_ends: It does not run to an end, and asks not to be evicted, is in such a group, or is the server of a user
            of JupyterHub, so a wait for it is in vain.
        annotations: The keys of its annotations that ask not to evict it.
        in_group: Its owner has work in several pods, and creates none of that again, as a RayCluster.
        hub_server: It is the server of a user of JupyterHub.
        group: The workload, as `Kind/namespace/name`, whose other pods lose work with it, so that their nodes come together;
            empty without one.
        fails_job: Its Job fails when it is evicted.
        followed: Its Job creates another pod when it has ended.
        ending: The other pods of its Job, as `Pod/namespace/name`, that end then, to their nodes.
    """

    pod: str
    node: str
    owner: str
    since: str
    backoff_limit: int | None
    pod_failure_policy: str
    reasons: tuple[str, ...]
    waits: bool
    moved: bool = False
    never_ends: bool = False
    annotations: tuple[str, ...] = ()
    in_group: bool = False
    hub_server: bool = False
    group: str = ""
    fails_job: bool = False
    followed: bool = False
    ending: Mapping[str, str] = {}


class PartialNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace with the workloads that get claims with a wave, as `Kind/namespace/name`."""

    namespace: str
    workloads: tuple[str, ...]


class FreeDevicesReport(msgspec.Struct, frozen=True, kw_only=True):
    """The number of devices without a consumer before and after a wave."""

    before: int = 0
    after: int = 0


class FreeOfKind(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The free devices of the nodes with one kind of devices, by the pods that may use them."""

    kind: str
    for_keys: FreeDevicesReport
    for_claims: FreeDevicesReport


class Wave(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that are switched together, and then the namespaces that are opted in.

    Attributes:
        namespaces: The namespaces that are opted in as a whole, or with the rest of their
            workloads.
        partial_namespaces: The namespaces that are opted in with some of their workloads.
        formerly_selective: The namespaces, partial ones included, with workloads that an earlier
            wave has opted in.
        former_labels: Namespace that is opted in to the value of its label when the wave begins; null for a
            namespace without the label.
        workloads: The workloads of the namespaces, without those that have claims already.
        moved_pods: Pods with devices that leave the nodes: those that are evicted, waited for, asked about, of
            DaemonSets, and deleted by a person.
        evicted_pods: Those of them that the drains evict.
        free_before: Devices without a consumer, of all nodes.
        free_after: The devices without a consumer, of all nodes, when the wave is done.
        free_for_keys: The free devices of device plugins, for pods with device keys.
        free_for_claims: The free devices of DRA drivers, for pods with claims.
        free_by_kind: Both for each kind of node, such as a product; empty where there is one kind.
        split: It has fewer nodes than were asked for, since more did not fit.
        notes: The notes for a person.
        work: Pods of its nodes that lose something when they are evicted.
        deleted_by_hand: Pods that nothing creates again, and that a person deletes: those of its nodes that a drain stops
            at, and those of other nodes that have no claims before, though their namespace is opted in.
        evicted_others: The number of pods without devices that are evicted, and created again elsewhere.
        unplaced_pods: Those of them that no other node takes, or has the CPU and memory for, as
            `Pod/namespace/name`; they wait until a node that takes them is back.
        stranded_pods: Those of them that no node takes after the wave, which wait for ever.
        uncolocated_pods: Those of these that request amounts of Koordinator's colocation, which leave nodes with koordlet.
        coupled_until: The wave that ends what is half done after this one, so that a migration should not pause
            before it; 0 for a wave after which it may.
        stray_workloads: Workloads of whole GPUs, as `Kind/namespace/name`, whose evicted pods nothing keeps
            from nodes of HAMi.
        emptied_workloads: Workloads, as `Kind/namespace/name`, of which all pods are on its nodes when it begins, and
            no PodDisruptionBudget makes some wait.
        halved_workloads: Workloads with other pods, as `Kind/namespace/name`, that lose at least half of their pods by
            its drains, and no PodDisruptionBudget makes some wait, to the number of these.
        evicted_workloads: Workloads beside `workloads` with pods that its drains evict, and that come again with device
            keys or with claims; no script restarts them, and `verify` waits for them.
        kai_namespaces: The namespaces that it opts in, and that KAI's webhook has to leave alone right before.
    """

    wave: int
    nodes: tuple[PlannedNode, ...]
    namespaces: tuple[str, ...]
    workloads: tuple[PlannedWorkload, ...]
    moved_pods: int = 0
    free_before: int
    free_after: int
    split: bool
    notes: tuple[str, ...]
    work: tuple[PlannedWork, ...] = ()
    deleted_by_hand: tuple[PlannedWork, ...] = ()
    evicted_pods: int = 0
    evicted_others: int = 0
    unplaced_pods: tuple[str, ...] = ()
    stranded_pods: tuple[str, ...] = ()
    uncolocated_pods: tuple[str, ...] = ()
    stray_workloads: tuple[str, ...] = ()
    emptied_workloads: tuple[str, ...] = ()
    halved_workloads: Mapping[str, int] = {}
    evicted_workloads: tuple[PlannedWorkload, ...] = ()
    coupled_until: int = 0
    partial_namespaces: tuple[PartialNamespace, ...] = ()
    formerly_selective: tuple[str, ...] = ()
    former_labels: Mapping[str, str | None] = {}
    kai_namespaces: tuple[str, ...] = ()
    free_for_keys: FreeDevicesReport = FreeDevicesReport()
    free_for_claims: FreeDevicesReport = FreeDevicesReport()
    free_by_kind: tuple[FreeOfKind, ...] = ()

    @property
    def opted_in(self) -> tuple[str, ...]:
        """Return all namespaces with a label that the wave sets."""
        return (*self.namespaces, *(entry.namespace for entry in self.partial_namespaces))

    @property
    def labelled_workloads(self) -> frozenset[str]:
        """Return the workloads that the wave gives a label of their own, as `Kind/namespace/name`."""
        return frozenset(name for entry in self.partial_namespaces for name in entry.workloads)

    def nodes_sharing_work(self, name: str) -> frozenset[str]:
        """Return the other nodes that wait for pods of the same trainings or Jobs as a node."""
        groups = {item.group for item in self.work if item.group and item.node == name}
        waiting = {item.node for item in self.work if item.waits and item.group in groups}
        return frozenset(waiting - {name})


class Held(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object without a wave: `Node//name`, `Namespace//name`, or `Kind/namespace/name` of a workload.

    Attributes:
        stops_preparation: Its next pods would be rejected once `prepare.sh` has run.
    """

    object: str
    reason: str
    fix: str
    stops_preparation: bool = False


class PluginDaemonSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A DaemonSet of a legacy system that has to stay away from switched nodes.

    Attributes:
        labels: The labels of the nodes that it leaves, as `key=value`.
        node_selector_terms: Its required node affinity, with switched nodes left out.
        affinity: The whole affinity of its pods as the plan saw it; null for pods without one.
    """

    namespace: str
    name: str
    node_selector_terms: tuple[Mapping[str, object], ...]
    affinity: Mapping[str, object] | None = None
    labels: tuple[str, ...] = ()


class Proposal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that a snapshot shows, and only a person can confirm: tenants write such objects, too.

    Attributes:
        subject: `Driver//name` or `Operator//name`, whose preparation is held.
        source: The object that shows it, as `Kind/namespace/name`.
        flag: The flag of `drawbridge plan` that confirms it.
        value: The proposed value of the flag.
        namespace: The namespace of the Helm release.
        release: Its name.
    """

    subject: str
    source: str
    flag: str
    value: str
    namespace: str
    release: str


class ClusterIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster of a snapshot.

    Attributes:
        uid: The UID of the namespace kube-system; empty if it is not known.
        server: The address of its API server; empty where it is not known.
        context: The context of the kubeconfig that the snapshot was taken with; empty where it is not known.
        taken_at: The time of its state in RFC 3339; empty where it is not known.
    """

    uid: str = ""
    server: str = ""
    context: str = ""
    taken_at: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge plan`.

    Attributes:
        gpu_operator: Its version; empty where there is none. While `proposals` has one, it is only
            assumed.
        driver_release: The confirmed release of NVIDIA's DRA driver; null for a new one.
        drivers: DRA driver to the node label that has to choose the nodes of its DaemonSet.
        driver_values: DRA driver to the values that its chart needs.
        driver_nodes: DRA driver to the nodes that it has before the first wave.
        mapped_classes: Resource name to the DeviceClass that has to map it before the first wave.
        class_nodes: DeviceClass of these to the nodes that publish devices of its driver before the first wave.
        wide_mappings: DeviceClasses that lose the resource name before the first wave, since they give other
            devices than it means, too: pods that keep their device keys would get these on switched nodes.
        plugins: DaemonSets to keep from switched nodes before the first wave.
        quotas: Namespace to the files below `quotas/` with its quotas, of those that a wave changes.
        quota_effects: File below `quotas/` to what its lines allow together.
        quota_lines: File below `quotas/` to its lines before and after.
        replaced_lines: Lines of ResourceQuotas that DeviceQuotas with legacyKeys replace, and that a wave
            removes.
        held: Nodes, namespaces and workloads without a wave, and preparations that nobody confirmed.
        cluster: The cluster that the plan is for.
        format: `kustomize` if objects are changed by a repository; empty if by kubectl.
        plugin_label: The labels that keep device plugins from nodes, as `key=value` with commas between
            them; empty without one.
        managed: Object that is changed, as `Kind/namespace/name`, to what manages it.
        proposals: The proposals that a person has to confirm before anything is run.
        spare_nodes: The number of nodes of each side that may be lost after every wave, else something is held.
        tried_losses: The number of nodes of each side whose loss was tried after each wave; where nothing is held for
            it, a note names the waves that cannot have it.
        time_slicing: `whole` where each pod that has a part of a GPU may get a whole one; else empty.
        complete: The search for waves was not interrupted; a plan that is not may not be run.
        opted_in_before: Workloads whose pods run with device keys in spite of an opt-in from before the plan: their next
            pods get claims, and still do so when a wave is taken back. The template of `labelled` ones has the label.
        early_quotas: Namespaces with workloads that were opted in before the plan, and with quotas that the first wave
            changes for their pods. No way back takes that back, since these labels stay.
        early_rollouts: Notes on the rollouts of pods opted in before the plan, for which quotas have no room after `prepare.sh`.
        unready_nodes: The nodes with devices that were not ready, and whose devices do not count as free.
        remaining: The nodes and workloads that stay with their device plugin, as `translation.keep` says.
        stopped_workloads: Workloads of other projects without pods that request devices, to be started after the last wave.
        scheduled_pods: Workload with devices, as `Kind/namespace/name`, to the number of its pods that had a node when the
            plan was made; without those whose pods run to their end, and DaemonSets. Null in plans of earlier versions: pods
            that wait before a wave need no devices then.
        helm_releases: Object of `managed` that Flux renders from a HelmRelease, to that, as `namespace/name`.
    """

    kubernetes_version: str
    wave_nodes: int
    keep_free: int
    gpu_operator: str
    drivers: Mapping[str, str]
    mapped_classes: Mapping[str, str]
    plugins: tuple[PluginDaemonSet, ...]
    waves: tuple[Wave, ...]
    held: tuple[Held, ...]
    quotas: Mapping[str, tuple[str, ...]]
    driver_release: DriverRelease | None = None
    driver_values: Mapping[str, DriverValues] = {}
    driver_nodes: Mapping[str, DriverNodes] = {}
    class_nodes: Mapping[str, tuple[str, ...]] = {}
    proposals: tuple[Proposal, ...] = ()
    cluster: ClusterIdentity = ClusterIdentity()
    format: str = ""
    plugin_label: str = ""
    managed: Mapping[str, str] = {}
    spare_nodes: int = 0
    tried_losses: int = 0
    time_slicing: str = ""
    complete: bool = True
    quota_effects: Mapping[str, tuple[str, ...]] = {}
    quota_lines: Mapping[str, QuotaLines] = {}
    replaced_lines: tuple[ReplacedLines, ...] = ()
    wide_mappings: tuple[WideMapping, ...] = ()
    opted_in_before: tuple[PlannedWorkload, ...] = ()
    early_quotas: tuple[str, ...] = ()
    early_rollouts: tuple[str, ...] = ()
    unready_nodes: tuple[str, ...] = ()
    remaining: Remaining = Remaining()
    stopped_workloads: tuple[StoppedWorkload, ...] = ()
    scheduled_pods: Mapping[str, int] | None = None
    helm_releases: Mapping[str, str] = {}

    def quota_namespaces(self, wave: Wave) -> tuple[str, ...]:
        """Return the namespaces with quotas that a wave changes, before its first drain."""
        is_first = wave.wave == self.waves[0].wave
        early = self.early_quotas if is_first else ()
        return tuple(dict.fromkeys((*early, *wave.opted_in)))
