"""`drawbridge why`: where a pod or claim of a cluster is, or what keeps it from getting there."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import click

from allocator.cluster import Cluster
from allocator.core.model import Features, Usage
from allocator.pod_claims import Name
from cli import simulation_text
from cli.device_map import device_map
from cli.gates import feature_gates
from cli.hints import hints, legacy_hints
from cli.inputs import Found, with_cluster
from cli.objects import placed
from cli.output import Output, indented, text_or_json
from cli.reading import STATE_KINDS
from cli.report import printable
from cli.standing import Condition, Standing, of_claim, of_pod
from cli.state import State, state_of
from cli.text import Paragraph, Row, laid_out, once_per_label
from kube.api.core import Pod
from kube.api.meta import encode
from kube.api.resource import ResourceClaim
from webhook.extended_resources import extended_resources

_CONSUMERS_SHOWN: Final = 5

T = TypeVar("T", Pod, ResourceClaim)


class _NotFound(click.ClickException):
    """The call is right, and what it asks about is not there."""

    exit_code = 2


@click.command("why")
@click.argument("kind", type=click.Choice(["pod", "claim"]))
@click.argument("name")
@with_cluster
@feature_gates
@text_or_json("to read, with a map of the devices")
def why(found: Found, features: Features, kind: str, name: str, output: str) -> None:
    """Say where a pod or claim is, or why it waits.

    What waits is tried on every node, alone, on the cluster as it is. Changes nothing anywhere.

    Exits 0 when printed, 2 when there is no such object or the call is wrong.

    \b
    drawbridge why pod trainer -n team --live
    drawbridge why claim shared-gpu --snapshot cluster.yaml
    """  # noqa: D301 - click's mark for lines that are not wrapped is a real \b.
    objects, faults = placed(found.objects, STATE_KINDS, found.namespace)
    for fault in faults:
        click.echo(fault.line(), err=True)
    state = state_of(objects)
    cluster = state.cluster(features)
    before = cluster.usage
    place = (found.namespace, name)
    if kind == "pod":
        pod = _looked_up("pod", state.pods, place)
        standing = of_pod(pod, state, cluster)
    else:
        standing = of_claim(_looked_up("claim", state.claims, place), state, cluster)
    for hint in (*hints(state.classes, _concerned(standing, state)), *_legacy(standing, state)):
        click.echo(f"hint: {hint}", err=True)
    if output == Output.JSON:
        click.echo(indented(encode(_document(standing))))
    else:
        width = shutil.get_terminal_size().columns
        click.echo("\n\n".join(_rendered(standing, cluster, before, width)))
    sys.exit(0)


def _concerned(standing: Standing, state: State) -> list[ResourceClaim]:
    """Return the claims that it is about, those that are still to be made left out."""
    names = {(each.namespace, each.name) for each in standing.claims}
    if standing.kind == "ResourceClaim":
        names.add((standing.namespace, standing.name))
    return [claim for name, claim in state.claims.items() if name in names]


def _legacy(standing: Standing, state: State) -> list[str]:
    """Return hints on a waiting pod that asks for devices in another way than by claims."""
    pod = state.pods.get((standing.namespace, standing.name))
    if standing.kind != "Pod" or standing.condition is not Condition.WAITING or pod is None:
        return []
    return legacy_hints(pod, extended_resources(state.classes.values()))


def _looked_up(kind: str, known: Mapping[Name, T], place: Name) -> T:
    found = known.get(place)
    if found is not None:
        return found
    namespace, name = place
    elsewhere = sorted(other for other, own in known if own == name)
    near = get_close_matches(name, [own for other, own in known if other == namespace])
    fix = ""
    if elsewhere:
        fix = f"; namespace {' and '.join(elsewhere)} has one"
    elif near:
        fix = f"; there is {' and '.join(near)}"
    raise _NotFound(f"There is no {kind} {name} in namespace {namespace}{fix}.")


def _document(standing: Standing) -> dict[str, Any]:
    fields = {name: getattr(standing, name) for name in standing.__struct_fields__}
    answer = standing.simulation
    if answer is not None:
        names = ("claims", "pods", "nodes", "error")
        fields["simulation"] = {name: getattr(answer, name) for name in names}
        failure = answer.failures[-1] if answer.failures else None
        misses = (failure.nearest, failure.nearest_when_empty) if failure else (None, None)
        now, empty = (miss.detail if miss is not None else None for miss in misses)
        fields["simulation"] |= {"nearest": now, "nearestWhenEmpty": empty}
    return fields


# --- words ----------------------------------------------------------------------------------------


def _rendered(standing: Standing, cluster: Cluster, before: Usage, width: int) -> Iterator[str]:
    yield laid_out(_paragraph(standing), width)
    if standing.simulation is not None:
        yield from simulation_text.told(standing.simulation, cluster, before, width)
        yield "\n".join(simulation_text.not_modelled(width))
    elif standing.node is not None and standing.node in cluster.nodes:
        lines = device_map([cluster.node_devices(standing.node)], before, before)
        yield "\n".join(map(printable, lines))


def _paragraph(standing: Standing) -> Paragraph:
    rows = [Row(label="is", text=_state(standing))]
    for claim in standing.claims:
        name = f"claim {claim.name}: " if standing.kind == "Pod" else ""
        if claim.allocation is not None:
            devices = simulation_text.devices(claim.allocation) or ("no devices",)
            rows += [Row(label="holds", text=f"{name}{words}") for words in devices]
    rows += [Row(label="lacks", text=each.message) for each in standing.missing]
    if standing.consumers:
        more = len(standing.consumers) - _CONSUMERS_SHOWN
        text = ", ".join(standing.consumers[:_CONSUMERS_SHOWN])
        rows.append(Row(label="used by", text=f"{text} and {more} more" if more > 0 else text))
    elif standing.kind == "ResourceClaim":
        rows.append(Row(label="used by", text="no pod"))
    return Paragraph(
        title=f"{standing.kind} {standing.namespace}/{standing.name}",
        place="",
        rows=tuple(once_per_label(rows)),
    )


def _state(standing: Standing) -> str:
    match standing.condition:
        case Condition.BOUND:
            return f"bound to node {standing.node}"
        case Condition.FINISHED:
            return "finished, so it needs nothing"
        case Condition.ALLOCATED if standing.node:
            return f"allocated on node {standing.node}"
        case Condition.ALLOCATED:
            return "allocated, usable on several nodes"
        case Condition.WAITING:
            return _waiting(standing)


def _waiting(standing: Standing) -> str:
    answer = standing.simulation
    if answer is not None and answer.all_placed:
        return "waiting, though there is a place for it now: it may wait for a scheduler, or for what is not modelled"
    return "waiting: there is no place for it now"
