"""`drawbridge simulate`: where pods and claims would go, and why they would not."""

import shutil
import sys
from functools import partial
from typing import Final

import click
import msgspec

from allocator import simulate as simulation
from allocator.cluster import Cluster
from allocator.core.model import Features
from allocator.simulate import Answer, Ways
from allocator.strategies import registry
from allocator.strategies.strategy import Strategy
from cli import simulation_text
from cli.gates import feature_gates
from cli.hints import hints
from cli.inputs import Inputs, with_allocation_inputs
from cli.output import Output, indented, text_or_json
from cli.progress import Progress
from cli.question import Asked, asked_of
from cli.report import has_errors
from kube.api.meta import encode
from kube.errors import FieldError
from webhook.findings import Severity

TOLD: Final = 20
"""Failures of which a text gives the reasons, beside the last."""

MISSES: Final = 3
"""Failures of which a text says what would have to change; a search for that takes a second."""


@click.command("simulate")
@with_allocation_inputs
@feature_gates
@click.option(
    "--node",
    metavar="NAME",
    help="Place all claims together on this node, all or nothing, as the scheduler's Filter does.",
)
@click.option(
    "--strategy",
    type=click.Choice([each.name for each in registry.ALL]),
    help="Which nodes and devices are preferred; beats what pods and DeviceClasses say.",
)
@text_or_json("to read, with a map of the devices")
def simulate(
    inputs: Inputs, features: Features, node: str | None, strategy: str | None, output: str
) -> None:
    """Say where pods and claims would go.

    The unbound pods and unallocated claims of -f are placed, one after the other, pods first; what
    the snapshot holds is only counted. Legacy pods are translated first. Changes nothing anywhere.

    Exits 0 when all have a place, 1 when one has none, 2 when the call is wrong.

    \b
    drawbridge simulate -f pod.yaml --snapshot cluster.yaml
    drawbridge simulate -f claim.yaml --live --strategy BestFit -o json
    """  # noqa: D301 - click's mark for lines that are not wrapped is a real \b.
    asked = asked_of(inputs)
    cluster = asked.state.cluster(features)
    before = cluster.usage
    total = len(asked.question.pods) + len(asked.question.claims)
    ways = Ways(
        strategy=_strategy(strategy),
        told=0 if output == Output.JSON else TOLD,
        misses=0 if output == Output.JSON else MISSES,
        progress=Progress("placed", total),
    )
    if node is None:
        answer = simulation.one_by_one(cluster, asked.question, ways)
    else:
        answer = simulation.together(cluster, asked.question, ways, _known(cluster, node))
    answer = _with_refused(answer, asked)
    _tell(asked, answer)
    if output == Output.JSON:
        click.echo(as_json(answer))
    else:
        width = shutil.get_terminal_size().columns
        click.echo(simulation_text.rendered(answer, cluster, before, width))
    sys.exit(0 if answer.all_placed and not has_errors(asked.findings) else 1)


def as_json(answer: Answer) -> str:
    """Return the answer as scripts read it; claims as the API server would store them."""
    fields = ("claims", "pods", "nodes", "error")
    encoded = encode({name: getattr(answer, name) for name in fields})
    document = msgspec.json.decode(encoded)
    for claim in document["claims"]:
        if claim["allocation"] is not None:
            # An allocation of nothing has the member all the same.
            claim["allocation"].setdefault("devices", {})
    return indented(msgspec.json.encode(document))


def _strategy(name: str | None) -> Strategy | None:
    if name is None:
        return None
    found = registry.strategy(name)
    assert not isinstance(found, FieldError)  # click has looked.
    return found


def _known(cluster: Cluster, node: str) -> str:
    if node not in cluster.nodes:
        names = sorted(cluster.nodes)
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        raise click.BadParameter(
            f"no node is called {node!r}; known are: {', '.join(names[:10]) or 'none'}{more}",
            param_hint="'--node'",
        )
    return node


def _with_refused(answer: Answer, asked: Asked) -> Answer:
    return msgspec.structs.replace(
        answer,
        pods=(*answer.pods, *asked.refused.pods),
        claims=(*answer.claims, *asked.refused.claims),
    )


def _tell(asked: Asked, answer: Answer) -> None:
    """Say on standard error what is not part of the answer."""
    say = partial(click.echo, err=True)
    for one in asked.findings:
        if one.finding.severity is not Severity.INFO:
            say(one.line())
    for hint in hints(asked.state.classes, asked.question.claims, asked.state.templates.values()):
        say(f"hint: {hint}")
    for note in answer.notes:
        say(f"note: {note}")
    if not asked.state.nodes:
        say("note: no node is known; say what the cluster has with --snapshot FILE, or --live")
    elif not asked.state.has_nodes:
        say("note: there are no nodes; those that ResourceSlices name stand in, without labels")
    for reference in asked.bystanders:
        say(f"note: {reference} is not placed; only pods and claims are")
    for note in asked.unread:
        say(f"note: {note}")
