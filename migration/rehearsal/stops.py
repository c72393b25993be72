"""The stops of a plan's scripts that are known before any is run. Pure."""

from collections.abc import Iterable, Iterator

from findings.text import join_names, reference_text
from kube.manifests.source import SourceObject
from migration.plan.facts.device_plugins import DevicePlugins
from migration.plan.facts.environment import stopped_texts
from migration.plan.facts.kept_away import returning_texts
from migration.plan.model.plan import Plan


def known_stops(plan: Plan, objects: Iterable[SourceObject]) -> Iterator[str]:
    """Yield a sentence on each wave with a preflight check that fails, with the way out.

    Args:
        plan: The plan.
        objects: The cluster that it is of.
    """
    yield from stopped_texts(plan)
    yield from returning_texts(plan)
    plugins = DevicePlugins(objects)
    for wave in plan.waves:
        nodes_of: dict[str, list[str]] = {}
        for node in wave.nodes:
            if reason := plugins.misgiving(node, plan.plugin_label):
                nodes_of.setdefault(reason, []).append(reference_text(f"Node//{node.name}"))
        for reason, names in nodes_of.items():
            yield f"preflight.sh stops wave {wave.wave} at {join_names(names)}: {reason}."
