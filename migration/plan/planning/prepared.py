"""A cluster as plans and checks search it, and its quotas as a plan leaves them. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from kube.api.extended_resources import extended_resources
from kube.api.node_selector import NodeSelector
from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from migration.assessment.assess import assess_cluster
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.assumed import without_mappings
from migration.assessment.capacity import MAX_PODS, absent_classes
from migration.assessment.device_lines import DeviceLines, LinesQuestion, find_device_lines
from migration.assessment.device_needs import devices_in_use
from migration.assessment.outcomes import (
    AssessedWorkload,
    Outcome,
    claiming_namespaces,
    group_with_devices,
)
from migration.assessment.unmoved import read_kai_pods
from migration.cluster.evidence import Evidence, is_ready, mapping_at, read_evidence
from migration.cluster.node_devices import Source, doubled_nodes
from migration.cluster.reservations import held_gpus, without_reservations
from migration.cluster.volumes import Volumes, bound_pods, pinned_pods, pods_of_some_nodes
from migration.cluster.workloads import Workload
from migration.conversion.quota_conversion import ConvertedQuota, knows_use
from migration.conversion.replaced_lines import convert_plan_quotas, planned_objects
from migration.legacy.kai_webhook import KaiPods
from migration.plan.drivers.confirmed import Confirmation
from migration.plan.facts.colocation import AMOUNTS, Colocation
from migration.plan.facts.given_cards import read_cards
from migration.plan.facts.opted_in import (
    keeping_workloads,
    labelled_namespaces,
    namespaces_with_claims,
    opted_out_workloads,
    selected_workloads,
)
from migration.plan.facts.quota_files import (
    early_left,
    early_quota_namespaces,
    removable_lines,
    unclaimed_classes,
    with_lines_of_use,
)
from migration.plan.facts.ready_pods import node_of
from migration.plan.facts.rollouts import divisible_workloads
from migration.plan.facts.taken_back import TakenBack, read_taken_back
from migration.plan.facts.work import read_work, starts_pods
from migration.plan.model.parts import AwaitedNodes
from migration.plan.model.plan import PlannedNode, PlannedWork, Wave
from migration.plan.planning.daemon_sets import named_nodes
from migration.plan.planning.unpublished import Unpublished, find_unpublished, gpu_nodes
from migration.plan.planning.unrestarted import unrestarted_pods
from migration.plan.planning.volume_nodes import pods_of_one_node
from migration.plan.search.moments import Policy
from migration.plan.search.unmovable import pods_at_home, pods_on
from migration.plan.search.wave_pods import ending_pods, replaced_pods
from migration.plan.search.waves import Planner
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey, Stage, UnmovedPod
from translation.cluster.snapshot import (
    QuotaPolicy,
    TranslationOptions,
    WideMapping,
    vocabularies_in_force,
)
from translation.profiles.profile import Profile


class PlanQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that is to be moved.

    Attributes:
        profiles: Driver to profile.
        namespace: The namespace for objects that name none.
        version: The API server's version; empty if it is not known.
        gates: The feature gates for `has_gate`.
        unreadable: Resources that could not be read.
        confirmation: The facts about Helm releases that a person confirmed.
        server: The address of the API server; empty when it is not known.
        context: The context of the kubeconfig; empty where it is not known.
        taken_at: The time of the cluster's state in RFC 3339; empty where it is not known.
        plugin_label: The label that keeps the device plugin from a node, as in the plan.
        form: The plan's `format`.
        gives_whole: Each pod that has a part of a GPU today may get a whole one.
    """

    objects: tuple[SourceObject, ...]
    profiles: Mapping[str, Profile]
    options: TranslationOptions
    namespace: str
    version: str
    gates: Mapping[str, bool] = {}
    unreadable: tuple[str, ...] = ()
    confirmation: Confirmation = Confirmation()
    server: str = ""
    context: str = ""
    taken_at: str = ""
    plugin_label: str = ""
    form: str = ""
    gives_whole: bool = False


class PreparedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, assessed and ready to be placed.

    Attributes:
        bound_pods: Namespace and name of the pods with a volume of one node, or of one alone that has devices for them.
        reachable: The other pods with devices and volumes that some nodes do not reach, each with the nodes of its volumes.
        volume_nodes: Namespace and name of the running pods with such volumes, those without devices too, to their nodes.
        objects: The cluster's objects, without mappings that are too wide, and pods that hold a GPU for others.
        taken_back: The systems that take back changes of workloads.
        kai_pods: The pods of KAI beside shares that its webhook changes.
    """

    objects: tuple[SourceObject, ...]
    cluster: AssessedCluster
    evidence: Evidence
    groups: Mapping[str, Workload]
    bound_pods: frozenset[tuple[str, str]]
    reachable: Mapping[PodKey, Sequence[NodeSelector]]
    volume_nodes: Mapping[tuple[str, str], Sequence[NodeSelector]]
    work: Mapping[str, Sequence[PlannedWork]]
    ending: Mapping[PodKey, str]
    taken_back: TakenBack = TakenBack()
    kai_pods: KaiPods = KaiPods()

    @property
    def live_nodes(self) -> dict[str, list[str]]:
        """Workload to the nodes of its pods, in the order of their numbers."""
        references = [workload.key.reference for workload in self.cluster.workloads]
        return {reference: _nodes_of(self.groups[reference]) for reference in references}

    @property
    def unrestarted(self) -> frozenset[PodKey]:
        """Return the pods with device keys in spite of the opt-in of their namespace or workload."""
        return unrestarted_pods(self.cluster.workloads, self.live_nodes, self.groups, self.stage())

    @property
    def starting_workloads(self) -> frozenset[str]:
        """Return the workloads with pods to come, as `Kind/namespace/name`; those of DaemonSets belong to nodes."""
        return frozenset(
            name
            for name, group in self.groups.items()
            if starts_pods(group) and group.key.kind != DAEMON_SET
        )

    @property
    def namespaces_with_claims(self) -> frozenset[str]:
        """Return the namespaces with pods that have claims by their label."""
        with_keys = {workload.key.reference for workload in self.cluster.workloads}
        return namespaces_with_claims(self.groups.values(), with_keys)

    @property
    def _koordinator_nodes(self) -> frozenset[str]:
        """Return the nodes with devices that Koordinator hands out."""
        nodes = self.cluster.nodes
        return frozenset(node.node for node in nodes if node.source is Source.KOORDINATOR)

    @property
    def unready_nodes(self) -> frozenset[str]:
        """Return the nodes with devices that are not ready."""
        names = {node.node for node in self.cluster.nodes if node.legacy or node.published}
        return frozenset(
            source.name
            for source in self.objects
            if source.kind == "Node" and source.name in names and not is_ready(source.document)
        )

    @property
    def doubled_nodes(self) -> frozenset[str]:
        """Return the nodes with devices that a device plugin and a DRA driver both hand out."""
        return frozenset(doubled_nodes(self.cluster.nodes))

    @property
    def unknown_devices(self) -> dict[str, tuple[str, ...]]:
        """Node to the devices of its device plugins that are not known, without nodes of two systems."""
        doubled = self.doubled_nodes
        return {
            name: keys for name, keys in self.cluster.unknown_devices.items() if name not in doubled
        }

    def planner(
        self,
        policy: Policy,
        partial: Collection[str] = (),
        awaited: Mapping[str, AwaitedNodes] = {},
    ) -> Planner:
        """Return the planner of the cluster.

        Args:
            partial: The namespaces that are never opted in as a whole.
            awaited: The nodes for namespaces, as `Planner` takes them.
        """
        live_nodes = self.live_nodes
        read = read_cards(self.cluster.nodes, live_nodes, self.groups)
        cards = {PodKey(*key): names for key, names in read.items()}
        native = {
            workload.key.reference: live_nodes[workload.key.reference]
            for workload in self.cluster.workloads
            if workload.outcome is Outcome.NATIVE
        }
        left_out = {
            **pods_on(self.cluster.sliced, live_nodes, self.groups),
            **pods_on(
                {*self.cluster.remaining.nodes, *self.cluster.offering_none}, native, self.groups
            ),
        }
        placer = Placer(
            self.cluster,
            replaced_pods(self.evidence, self.cluster.workloads, self.work),
            left_out,
            ending=self.ending,
            homes=pods_at_home(self.bound_pods, live_nodes, self.groups),
            cards=cards,
            held_gpus={
                PodKey(reference, number): gpus
                for reference, group in self.groups.items()
                for number, gpus in held_gpus(group.pods).items()
            },
            reachable=self.reachable,
            volume_nodes=self.volume_nodes,
            named_nodes=named_nodes(self.groups.values()),
            unrestarted=self.unrestarted,
            unmoved=_unmoved_pods(self.cluster.workloads, live_nodes, self.groups),
            colocation=(AMOUNTS, Colocation(self.objects, self._koordinator_nodes).leaving),
        )
        divisible = divisible_workloads(self.groups.values())
        return Planner(
            *(self.cluster, live_nodes, placer, policy, self.bound_pods),
            divisible=divisible,
            taken_back=self.taken_back,
            partial=partial,
            awaited=awaited,
            starting=self.starting_workloads,
            kai_pods=self.kai_pods,
        )

    def unpublished(
        self,
        question: PlanQuestion,
        workloads: Iterable[AssessedWorkload],
        nodes: Sequence[PlannedNode],
    ) -> dict[str, Unpublished]:
        """Return the namespaces with pods that would get claims, since their driver publishes no GPUs.

        Args:
            question: The cluster.
            workloads: Its workloads, without the mappings of charts.
            nodes: The nodes that may be switched.
        """
        return find_unpublished(
            workloads,
            extended_resources(self.cluster.state.classes.values()),
            nodes,
            publishing_drivers=gpu_nodes(question.objects, question.profiles).keys(),
            profiles=question.profiles,
            opted_out=opted_out_workloads(self.groups.values()),
            starting=self.starting_workloads,
            removable_labels=self.stage().opted_in - self.namespaces_with_claims,
        )

    def stage(self) -> Stage:
        """Return the stage of the cluster as it is."""
        out_of_use = self.unready_nodes | self.doubled_nodes
        return Stage(
            switched=frozenset(
                node.node for node in self.cluster.nodes if node.source is Source.DRA
            ),
            closed=out_of_use,
            unready=out_of_use,
            opted_in=labelled_namespaces(self.objects, "true"),
            selected=selected_workloads(self.groups.values(), self.objects),
            labels={},
        )


def prepare_cluster(question: PlanQuestion) -> PreparedCluster:
    """Return a cluster as the search for waves needs it."""
    cluster = assess_cluster(
        question.objects,
        question.profiles,
        question.options,
        namespace=question.namespace,
        version=question.version,
        gates=question.gates,
        gives_whole=question.gives_whole,
    )
    objects = without_reservations(without_mappings(question.objects, cluster.wide_mappings))
    groups = {
        group.key.reference: group
        for group in group_with_devices(objects, cluster.workloads, question.namespace)
    }
    volumes = Volumes(objects, question.namespace)
    at_home = pods_of_one_node(cluster, groups, volumes)
    work = read_work(objects, question.namespace, at_home)
    bound = bound_pods(objects, question.namespace, volumes) | at_home
    pinned = pinned_pods(objects, question.namespace, volumes) | at_home
    evidence = read_evidence(objects, question.namespace, pinned)
    return PreparedCluster(
        objects=objects,
        cluster=cluster,
        evidence=evidence,
        bound_pods=bound,
        reachable=_reachable(groups.values(), volumes, bound),
        volume_nodes=pods_of_some_nodes(objects, question.namespace, volumes),
        work=work,
        groups=groups,
        ending=ending_pods(work, evidence, groups),
        taken_back=read_taken_back(objects, groups, question.namespace),
        kai_pods=read_kai_pods(objects, cluster.workloads, question.namespace),
    )


def planned_quotas(
    question: PlanQuestion,
    cluster: AssessedCluster,
    mappings: Mapping[str, str],
    wide_mappings: Collection[WideMapping],
    left_lines: Collection[tuple[str, str]] = (),
) -> tuple[ConvertedQuota, ...]:
    """Return the ResourceQuotas that count claims once a plan is prepared.

    Args:
        question: The cluster.
        cluster: The same, assessed.
        mappings: Resource name to the DeviceClass that the plan has map it.
        wide_mappings: The mappings that the plan takes back.
        left_lines: Namespaces, each with a line that the plan does not add to their quotas.
    """
    use = None
    opted_in = labelled_namespaces(question.objects, "true")
    if knows_use(question.objects, question.unreadable):
        use = devices_in_use(
            *(cluster, question.objects, question.namespace, mappings),
            taken_back={mapping.device_class for mapping in wide_mappings},
            rejects_uncounted=question.options.quota is QuotaPolicy.DENY,
        )
    return convert_plan_quotas(
        without_mappings(question.objects, wide_mappings),
        question.profiles,
        question.options,
        question.namespace,
        use,
        later_mappings={name: key for key, name in mappings.items()},
        replaced_lines=cluster.replaced_lines,
        namespaces=claiming_namespaces(cluster.workloads),
        absent=absent_classes(cluster.workloads, cluster.state, question.profiles.values()),
        left_lines=left_lines,
        unclaimed=unclaimed_classes(
            cluster,
            keeping_workloads(
                (entry for entry in cluster.workloads if entry.key.namespace not in opted_in),
                mappings,
                question.objects,
                vocabularies_in_force(question.options, question.profiles),
            ),
        ),
    )


def planned_changes(
    question: PlanQuestion,
    cluster: AssessedCluster,
    mappings: Mapping[str, str],
    wide_mappings: Collection[WideMapping],
    *,
    waves: Sequence[Wave],
    opted_in: Sequence[AssessedWorkload],
) -> tuple[tuple[ConvertedQuota, ...], tuple[str, ...], DeviceLines]:
    """Return the quotas that a plan changes, the namespaces opted in before with some of these, and the lines too low.

    Args:
        question: The cluster.
        cluster: The same, assessed.
        mappings: Resource name to the DeviceClass that the plan has map it.
        wide_mappings: The mappings that the plan takes back.
        waves: The waves.
        opted_in: The workloads with next pods that get claims by a label of today.
    """
    quotas = planned_quotas(question, cluster, mappings, wide_mappings)
    # Where the webhook only warns, it rejects no pods until a wave changes a quota.
    is_changed = question.options.quota is QuotaPolicy.DENY and waves
    early_workloads = tuple(opted_in if is_changed else ())
    replaced = removable_lines(cluster.replaced_lines)
    early = early_quota_namespaces(early_workloads, quotas, replaced)
    lines = planned_lines(question, cluster, mappings, wide_mappings, quotas)
    left = early_left(lines, waves, early)
    if not left:
        return quotas, early, lines
    remaining = with_lines_of_use(
        planned_quotas(question, cluster, mappings, wide_mappings, left), left, early_workloads
    )
    lines = planned_lines(question, cluster, mappings, wide_mappings, remaining)
    return remaining, early_quota_namespaces(early_workloads, remaining, replaced), lines


def planned_lines(
    question: PlanQuestion,
    cluster: AssessedCluster,
    mappings: Mapping[str, str],
    wide_mappings: Iterable[WideMapping],
    quotas: Iterable[ConvertedQuota],
) -> DeviceLines:
    """Return the lines of ResourceQuotas for devices that are too low once a plan is prepared.

    Args:
        question: The cluster.
        cluster: The same, assessed.
        mappings: Resource name to the DeviceClass that the plan has map it.
        wide_mappings: The mappings that the plan takes back.
        quotas: The quotas that count claims by then.
    """
    lines = LinesQuestion(
        objects=question.objects,
        planned=planned_objects(
            question.objects, quotas, cluster.replaced_lines, question.namespace
        ),
        namespace=question.namespace,
        mappings=mappings,
        taken_back={mapping.device_class for mapping in wide_mappings},
        version=question.version,
        converts_early=question.options.quota is QuotaPolicy.DENY,
        rejects_uncounted=question.options.quota is QuotaPolicy.DENY,
    )
    return find_device_lines(cluster, lines)


def _reachable(
    groups: Iterable[Workload], volumes: Volumes, bound: Collection[tuple[str, str]]
) -> dict[PodKey, tuple[NodeSelector, ...]]:
    """Return the pods with volumes that some nodes do not reach, each with the nodes of its volumes.

    Without a pod the volumes are those of the template. A pod that runs with a volume of its node stays at it.

    Args:
        groups: The workloads.
        volumes: The cluster's volumes.
        bound: Namespace and name of the pods with a volume of one node.
    """
    reachable: dict[PodKey, tuple[NodeSelector, ...]] = {}
    for group in groups:
        namespace = group.key.namespace
        specs = [mapping_at(pod.document, "spec") for pod in group.pods]
        if not specs and group.owner is not None:
            path = pod_path(group.owner.api_version, group.owner.kind)
            _, template = resolve_path(group.owner.document, path or ())
            specs = [mapping_at(template, "spec")] * min(group.pod_count, MAX_PODS)
        for number, spec in enumerate(specs):
            # A template may have the name of a node, too.
            is_at_home = (
                number < len(group.pods)
                and bool(spec.get("nodeName"))
                and (namespace, group.pods[number].name) in bound
            )
            selectors = () if is_at_home else volumes.selectors(namespace, spec)
            if selectors:
                reachable[PodKey(group.key.reference, number)] = selectors
    return reachable


def _unmoved_pods(
    workloads: Iterable[AssessedWorkload],
    nodes_of: Mapping[str, Sequence[str]],
    groups: Mapping[str, Workload],
) -> Iterator[UnmovedPod]:
    """Yield the running pods that nothing here moves, and that have a translation.

    Args:
        workloads: The cluster's workloads.
        nodes_of: Workload to the nodes of its pods, in the order of their numbers.
        groups: Workload, as `Kind/namespace/name`, to its pods in the same order.
    """
    for workload in workloads:
        reference = workload.key.reference
        pods = groups[reference].pods if workload.translations else ()
        for number, (pod, node) in enumerate(zip(pods, nodes_of[reference], strict=False)):
            name = (workload.key.namespace, pod.name)
            result = workload.translations.get(name)
            if node and result is not None and result.claims:
                own = msgspec.structs.replace(workload, result=result)
                yield UnmovedPod(PodKey(reference, number), name, own, node)


def _nodes_of(workload: Workload) -> list[str]:
    return [node if isinstance(node, str) else "" for node in map(node_of, workload.pods)]
