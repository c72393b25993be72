"""`drawbridge simulate`: the placement of pods and claims, or the reasons for none."""

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final

import click
import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.nodes.scoring import ScoringProfile
from allocator.pods.claims import Name
from allocator.replay.scheduler import STOCK, STOCK_MOST_ALLOCATED
from allocator.simulation import simulate as simulation
from allocator.simulation.model import SimulationInput, SimulationOptions, SimulationResult
from allocator.strategies import registry
from allocator.strategies.strategy import Strategy
from answers.cluster.fits_in_keys import with_fits_in_keys
from answers.cluster.hints import hints
from answers.cluster.inventory import PluginResource, offers_without_drivers, plugin_notes
from answers.cluster.quota_status import unenforced_notes
from answers.cluster.why import with_advice
from answers.manifests.documents import simulation_answer
from answers.manifests.removal import RemovedPod, remove_pods
from answers.manifests.scheduler_views import (
    build_views,
    ignored_group_notes,
    route_request,
    shared_claim_notes,
)
from answers.manifests.second_check import find_denials
from answers.manifests.simulate import (
    SimulationRequest,
    build_request,
    contradiction_notes,
    decisive_notes,
    gate_notes,
    is_fully_placed,
    quota_findings,
    with_rejections,
    workload_parts,
)
from answers.manifests.trial_placements import template_advice, with_spared_devices
from answers.model.cluster_state import ClusterState
from answers.model.inputs import Inputs
from cli.flags.feature_gates import given_feature_gates
from cli.flags.scheduler_config import scheduler_config
from cli.flags.schedulers import policy_aware_schedulers
from cli.output import simulate_text
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.progress import INTERRUPTED, LongRun
from cli.output.standard_error import print_line
from cli.reading.options import NO_CLUSTER, with_allocation_inputs
from findings.finding import Severity
from findings.text import join_names
from kube.api.meta import encode
from kube.errors import FieldError

EXPLAINED: Final = 20
"""Failures whose reasons the text has, beside the last."""

TRACED: Final = 10
"""Pods and claims whose placement `-o json` has stage by stage."""

DENIED: Final = 10
"""Objects that `check` denies and that have a line each."""

DENIED_NODES: Final = 1_000
"""Nodes of a cluster up to which objects are checked, too: of 5,000 nodes that takes longer than to place a pod."""

NONE_DENIED: Final[Mapping[str, str]] = MappingProxyType({})
CLOSEST_FITS: Final = 3
"""Failures whose closest fit is computed by default; each may take a second."""

EXAMPLES: Final = """\
drawbridge simulate -f pod.yaml --snapshot cluster.json.gz
drawbridge simulate -f claim.yaml --live --strategy BestFit -o json
# would it fit if another pod were gone
drawbridge simulate -f pod.yaml --live --without pod/team/notebook
"""


class _StrategyName(click.Choice[str]):
    """The name of a strategy of the bridge; for those that replay knows beside them, the way to get them."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; click reports one that is not known."""
        if value in {STOCK, STOCK_MOST_ALLOCATED}:
            self.fail(
                f"{value!r} is kube-scheduler by itself, which replay compares with the strategies of the bridge; "
                "here leave --strategy out, and give its scores with --scheduler-config",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


@click.command("simulate", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@with_allocation_inputs
@given_feature_gates
@policy_aware_schedulers
@click.option(
    "--node",
    metavar="NAME",
    help="Place all claims together on this node, all or none, as the scheduler's Filter does.",
)
@click.option(
    "--strategy",
    type=_StrategyName([strategy.name for strategy in registry.ALL]),
    help="Order of nodes and devices, whatever pods and DeviceClasses choose.",
)
@click.option(
    "--without",
    "removed_names",
    multiple=True,
    metavar="pod/NAME",
    help="Leave a pod of the cluster out, with the claims that only it uses, as if it were deleted; "
    "pod/NAMESPACE/NAME for another namespace than -n. Repeatable.",
)
@click.option(
    "--closest-fits",
    type=click.IntRange(min=0),
    metavar="N",
    default=CLOSEST_FITS,
    show_default=True,
    help="With -o text, compute the closest fit of the first N failures; each may take a second.",
)
@scheduler_config(
    "A pod takes the node with the highest score of its scheduler's profile, the first by name of equal ones."
)
@text_or_document("to read, with a map of the devices")
def simulate(
    inputs: Inputs,
    features: Features,
    *,
    schedulers: tuple[str, ...],
    node: str | None,
    strategy: str | None,
    removed_names: tuple[str, ...],
    scoring_profiles: Mapping[str, ScoringProfile],
    closest_fits: int,
    output: str,
) -> None:
    """Simulate the placement of pods and claims, and explain those that find no node.

    The unbound pods and unallocated claims of -f are placed one after the other, pods first. A
    workload of -f stands for its pods. Pods with device keys are translated first. A pod is placed as
    its scheduler would: the bridge, with policies, where it owns the drivers of its claims. The
    snapshot is state only. Read-only.

    Exit status: 0 when everything is placed, 1 when something is not, 2 when the call is wrong, 130
    when ^C ended it before everything was tried; what was tried is printed.
    """
    request = build_request(inputs, features)
    if not (inputs.knows_cluster or request.state.nodes):
        raise click.UsageError(NO_CLUSTER)
    names = [_removed_name(text, inputs.namespace) for text in removed_names]
    _check_removed(names, request.state)
    state, removed_pods = remove_pods(request.state, names)
    # With --node the answer is that of one call of upstream's allocator.
    uniform_config_drivers = inputs.validation.uniform_config_drivers
    drivers = uniform_config_drivers if node is None else ()
    request, support, views = route_request(
        msgspec.structs.replace(request, state=state),
        features,
        schedulers,
        drivers,
        is_joint=node is not None,
    )
    cluster = views.cluster
    before = cluster.usage
    total = len(request.question.pods) + len(request.question.claims)
    with LongRun("tried", total) as run:
        options = SimulationOptions(
            strategy=_strategy(strategy),
            pool_strategies=request.state.pool_strategies,
            weights=request.state.weights,
            profiles=scoring_profiles,
            explained_failures=EXPLAINED if output == Output.TEXT else 0,
            closest_fits=closest_fits if output == Output.TEXT else 0,
            traces=0 if output == Output.TEXT else TRACED,
            progress=run,
            stops=run.stops,
        )
        if node is None:
            answer = simulation.simulate_in_order(
                cluster, request.question, options, views.other_views
            )
        else:
            answer = simulation.simulate_together(
                cluster, request.question, options, _known_node(cluster, node)
            )
    answer = with_fits_in_keys(answer, request.question.pods, request.state, inputs.snapshot)
    if output == Output.TEXT:
        again = msgspec.structs.replace(
            options, closest_fits=0, explained_failures=0, traces=0, progress=lambda _: None
        )

        def place(other: SimulationInput) -> SimulationResult:
            fresh = build_views(request.state, other, features, support, drivers)
            return simulation.simulate_in_order(fresh.cluster, other, again, fresh.other_views)

        advice = template_advice(request.question, answer, place) if node is None else {}
        answer = with_advice(answer, request.question.pods, request.state, cluster, advice)
        if node is None:
            answer = with_spared_devices(request.question, answer, place, request.workload_of)
    answer = with_rejections(answer, request)
    denials = _print_denials(inputs, features, schedulers, request, answer)
    state = request.state
    offers = offers_without_drivers(state.nodes, state.slices)
    lacks_devices = any(claim.allocation is None for claim in answer.claims)
    notes = (
        *(() if lacks_devices else plugin_notes(offers)),
        *gate_notes(state.slices, features),
        *shared_claim_notes(state),
        *ignored_group_notes(request.question.pods, state),
        *views.notes,
        *contradiction_notes(cluster.usage, uniform_config_drivers),
        *unenforced_notes(state, {pod.namespace for pod in answer.pods}),
    )
    _print_notes(request, answer, (*notes, *_removal_notes(removed_pods)))
    decisive = decisive_notes(request, compares=strategy is not None)
    for note in (*(plugin_notes(offers) if lacks_devices else ()), *decisive):
        if output == Output.TEXT:
            click.echo(f"{note}\n")  # Above what people compare.
        else:
            print_line(f"note: {note}")
    if output != Output.TEXT:
        click.echo(as_document(answer, output, removed_pods, denials, offers))
    else:
        width = shutil.get_terminal_size().columns
        click.echo(
            simulate_text.format_answer(
                answer,
                cluster,
                before,
                width,
                closest_fits=closest_fits,
                no_nodes=simulate_text.explain_no_nodes(inputs.unread),
                rejected_workloads=request.rejected_workloads,
                parts=workload_parts(request, answer),
            )
        )
    if run.is_interrupted:
        sys.exit(INTERRUPTED)
    sys.exit(0 if is_fully_placed(answer, request) else 1)


def as_document(
    answer: SimulationResult,
    output: str,
    removed_pods: Sequence[RemovedPod] = (),
    denials: Mapping[str, str] = NONE_DENIED,
    offers: Sequence[PluginResource] = (),
) -> str:
    """Return the answer for scripts, with claims as the API server would store them."""
    document = msgspec.json.decode(encode(simulation_answer(answer)))
    document["trace"] = msgspec.to_builtins(answer.traces)
    if removed_pods:
        document["without"] = msgspec.to_builtins(removed_pods)
    if denials:
        document["denials"] = [
            {"object": reference, "reason": reason} for reference, reason in denials.items()
        ]
    if offers:
        document["pluginResources"] = msgspec.json.decode(encode(offers))
    for claim in document["claims"]:
        if claim["allocation"] is not None:
            # An allocation without devices has this member as well.
            claim["allocation"].setdefault("devices", {})
    return format_document(output, msgspec.json.encode(document), Report.SIMULATE)


def _print_denials(
    inputs: Inputs,
    features: Features,
    schedulers: Collection[str],
    request: SimulationRequest,
    answer: SimulationResult,
) -> Mapping[str, str]:
    """Print a line for each of the first denied objects, and return the reasons of all."""
    if len(request.state.nodes) > DENIED_NODES:
        return NONE_DENIED
    findings = (*request.findings, *quota_findings(answer))
    reported = {entry.object for entry in findings if entry.finding.is_error}
    denials = find_denials(inputs, features, schedulers, reported)
    for reference, reason in islice(denials.items(), DENIED):
        print_line(f"denied: {reference}: {reason}")
    if len(denials) > DENIED:
        print_line(f"denied: {len(denials) - DENIED} more; drawbridge check tells them all")
    return denials


def _removed_name(text: str, namespace: str) -> Name:
    """Return namespace and name of `pod/NAME` or `pod/NAMESPACE/NAME`."""
    kind, *names = text.split("/")
    if kind.lower() not in {"pod", "pods", "po"} or not all(names) or len(names) not in {1, 2}:
        raise click.BadParameter(
            f"write pod/NAME or pod/NAMESPACE/NAME, not {text!r}", param_hint="'--without'"
        )
    return (namespace, names[0]) if len(names) == 1 else (names[0], names[1])


def _check_removed(names: Iterable[Name], state: ClusterState) -> None:
    for namespace, name in names:
        if (namespace, name) in state.pods:
            continue
        others = sorted({place for place, other in state.pods if other == name})
        where = f"; namespace {', '.join(others)} has one" if others else ""
        raise click.BadParameter(
            f"there is no pod {name} in namespace {namespace}{where}", param_hint="'--without'"
        )


def _removal_notes(removed_pods: Iterable[RemovedPod]) -> Iterator[str]:
    for removed in removed_pods:
        what = ", ".join(removed.devices) or "no devices"
        yield f"without {removed.object}, which leaves free: {what}"


def _strategy(name: str | None) -> Strategy | None:
    if name is None:
        return None
    strategy = registry.find_strategy(name)
    assert not isinstance(strategy, FieldError)  # click has checked the name.
    return strategy


def _known_node(cluster: Cluster, node: str) -> str:
    if node not in cluster.nodes:
        names = sorted(cluster.nodes)
        raise click.BadParameter(
            f"unknown node {node!r}; known are: {join_names(names, 10) or 'none'}",
            param_hint="'--node'",
        )
    return node


def _print_notes(request: SimulationRequest, answer: SimulationResult, more: Iterable[str]) -> None:
    """Print on standard error the notes that are not part of the answer."""
    for entry in (*request.findings, *quota_findings(answer)):
        if entry.finding.severity is not Severity.INFO:
            print_line(entry.line())
    state = request.state
    for hint in hints(state.classes, request.question.claims, state.templates.values()):
        print_line(f"hint: {hint}")
    for note in (*answer.notes, *request.workload_notes, *more):
        print_line(f"note: {note}")
    if not state.nodes:
        print_line("note: the given state of the cluster has neither nodes nor ResourceSlices")
    elif not state.has_nodes:
        print_line(
            "note: no Node objects are given; the nodes that ResourceSlices name have no labels"
        )
    if request.rejected_workloads:
        names = join_names(tuple(request.rejected_workloads))
        print_line(f"note: no pods of {names} are placed, for the errors above")
    if request.workloads:
        names = join_names(request.workloads)
        print_line(
            f"note: no pods of {names} are placed, since their number is not known; "
            "drawbridge check tells whether those could ever be placed"
        )
