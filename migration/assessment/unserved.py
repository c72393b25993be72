"""The words about workloads that no node would serve after their move, and the fixes. Pure."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from findings.text import join_names
from kube.names import TRANSLATE_LABEL
from migration.assessment.capacity import class_names, nics_of
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.node_devices import GPU
from migration.cluster.owners import kind_of
from translation.reading.arbiter import is_nic
from translation.vocabularies.hami.keys import MEMORY_PERCENT, OWN_KEYS
from translation.vocabularies.koordinator.keys import RDMA
from translation.vocabularies.nvidia import is_replica_name, keep_setting

_KEEP: Final = "leave NICs with their device plugin by translation.keep of the settings"
_PUBLISH: Final = "have a driver publish devices of {} on nodes that these pods may use"
_ON_SWITCHED: Final = " (of NICs that Koordinator hands out on switched nodes only, as docs/migrate/koordinator.md says)"
_SELECT: Final = "give them another node selector"
WHOLE_CARD: Final = f"beside {GPU}, {MEMORY_PERCENT}: 100 is a whole card of HAMi's driver"
_ANEW: Final = " (a Job has to be created anew with it, as its template cannot change)"
_UNOFFERED: Final = (
    "{} run, and after their move no node would serve them: none that they may use would offer {}, which Koordinator takes "
    "from nodes without koordlet"
)
COLOCATE: Final = (
    "run a second DaemonSet of koordlet on switched nodes, without the feature gate Accelerators, as "
    "docs/migrate/koordinator.md says, or let them request cpu and memory in place of these"
)
"""The ways on for pods that request amounts of Koordinator's colocation."""
_UNSERVED: Final = "{} run, and after their move no node would serve them: none that they may use would have devices of {}"


class LackingClasses(NamedTuple):
    """The DeviceClasses of a workload's claims without devices on the nodes that its pods may use.

    Attributes:
        names: The classes; empty if each has some there, and yet no node serves a pod.
        are_elsewhere: Other nodes have devices of each of them.
        amounts: The amounts of Koordinator's colocation that its pods request, and that none of these nodes would offer.
    """

    names: frozenset[str]
    are_elsewhere: bool = False
    amounts: tuple[str, ...] = ()


def unserved_text(
    workload: AssessedWorkload, lacking: LackingClasses, pods: str = "its pods"
) -> str:
    """Return the reason that a workload with running pods stays: after their move no node would serve them.

    Args:
        workload: The workload.
        lacking: The classes that lack devices.
        pods: The words for its pods.
    """
    if lacking.amounts and not lacking.names:
        return _UNOFFERED.format(pods, join_names(lacking.amounts))
    return _UNSERVED.format(pods, ", ".join(sorted(lacking.names or class_names(workload))))


def serve_fix(
    workload: AssessedWorkload, lacking: LackingClasses, staying: Collection[str] = ()
) -> str:
    """Return the fix for a workload that no node would serve after its move, without ways that bring other devices.

    Args:
        workload: The workload.
        lacking: The classes that lack devices.
        staying: The nodes of its pods that stay with their device plugin.
    """
    if lacking.amounts and not lacking.names:
        return COLOCATE
    names = sorted(filter(is_replica_name, workload.keys))
    claims = workload.result.claims if workload.result is not None else ()
    classes = {entry for claim in claims for entry in claim.classes_by_key()}
    all_names = class_names(workload)
    lacking_names = lacking.names or all_names
    gpus = {name for key, name in classes if key == GPU}
    is_whole = not (gpus.isdisjoint(lacking_names) or set(OWN_KEYS).intersection(workload.keys))
    koordinator_nics = {name for key, name in classes if key == RDMA}
    # NICs that stay with their device plugin move the rest only where nothing else lacks devices.
    others = {name for key, name in classes if not is_nic(key)}
    is_rest_served = len(all_names) > 1 and lacking.names.isdisjoint(others)
    ways = [
        *([_KEEP] if is_rest_served and nics_of(workload) else []),
        _PUBLISH.format("that class" if len(lacking_names) == 1 else "these classes")
        + ("" if lacking_names.isdisjoint(koordinator_nics) else _ON_SWITCHED),
        *([f"let them request a share ({WHOLE_CARD})"] if is_whole else []),
        *([_SELECT] if lacking.are_elsewhere else []),
    ]
    serve = ", or ".join(filter(None, (", ".join(ways[:-1]), ways[-1])))
    if staying or not names:
        return stay_fix({workload.key.reference: staying}, serve, is_named=False)
    return f"{serve}; or leave it with its device plugin ({keep_setting(*names)} of the settings)"


def stay_fix(staying: Mapping[str, Collection[str]], other: str, *, is_named: bool = True) -> str:
    """Return another fix, after the label for pods on nodes of a staying device plugin.

    Args:
        staying: Workload, as `Kind/namespace/name`, to the nodes of its pods that stay with their device plugin.
        other: The fix without such nodes.
        is_named: The fix names the workloads; else it is that of one alone.
    """
    own = [name for name, nodes in staying.items() if nodes]
    if not own:
        return other
    nodes = join_names(sorted(frozenset[str]().union(*staying.values())))
    anew = _ANEW if any(kind_of(name) == "Job" for name in own) else ""
    pods = [name for name in own if name.startswith("Pod/")]
    templates = [name for name in own if name not in pods]
    if is_named:
        places = (f"in the pod template of {join_names(templates)}{anew}", f"on {join_names(pods)}")
    else:
        places = (f"in its pod template{anew}", "on the pod")
    where = join_names(
        [place for place, names in zip(places, (templates, pods), strict=True) if names]
    )
    return (
        f'set the label {TRANSLATE_LABEL}: "false" {where}, so that pods keep their keys: the device plugin serves them on '
        f"{nodes}, as translation.keep says; or {other}"
    )
