"""The check that the pods of DRA drivers tolerate the taints of the nodes of a wave. Pure."""

import json
from collections.abc import Iterator

from findings.text import join_names
from kube.api.workloads import DAEMON_SET
from migration.assessment.evidence import list_at
from migration.plan.checks.checks import Check, ClusterView, failed_check
from migration.plan.facts.driver_daemon_sets import find_waiting
from migration.plan.facts.driver_values import toleration_for, untolerated_taints
from migration.plan.facts.vendors import NVIDIA
from migration.plan.model.plan import Plan, Wave


def check_tolerations(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for each driver with pods that a taint keeps from a node of the wave.

    Of several DaemonSets that wait for a driver's label, one has to tolerate the taints.
    """
    for driver in sorted({driver for node in wave.nodes for driver in node.devices}):
        release = plan.driver_release if driver == NVIDIA else None
        waiting = find_waiting(
            view.objects, plan.drivers.get(driver, ""), release.namespace if release else ""
        )
        names = waiting.drivers or waiting.named
        checks = [_check_daemon_set(driver, name, wave, view) for name in names]
        failed = [check for check in checks if check is not None]
        if len(failed) == len(checks):
            yield from failed


def _check_daemon_set(driver: str, name: str, wave: Wave, view: ClusterView) -> Check | None:
    """Return a failed check if the pods of a DaemonSet, given as `namespace/name`, would not come to a node."""
    namespace, _, own_name = name.partition("/")
    tolerations = next(
        (
            list_at(source.document, "spec", "template", "spec", "tolerations")
            for source in view.objects
            if (source.kind, source.namespace or "default", source.name)
            == (DAEMON_SET, namespace, own_name)
        ),
        (),
    )
    missing: dict[str, None] = {}
    tainted_nodes = []
    for node in wave.nodes:
        document = view.find("Node", node.name) if driver in node.devices else None
        taints = untolerated_taints([document], tolerations) if document is not None else []
        if taints:
            tainted_nodes.append(node.name)
            missing |= {json.dumps(toleration_for(taint)): None for taint in taints}
    if not missing:
        return None
    return failed_check(
        f"{DAEMON_SET}/{name}",
        f"its pods do not tolerate the taints of {join_names(tainted_nodes)}, so the driver would not come there: "
        f"add {', '.join(missing)} to its tolerations",
    )
