"""The words about workloads that no node would serve after their move, and the fixes. Pure."""

from collections.abc import Collection, Mapping
from typing import Final

from findings.text import join_names
from kube.names import TRANSLATE_LABEL
from migration.assessment.capacity import class_names
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.node_devices import GPU
from translation.vocabularies.hami.keys import MEMORY_PERCENT, OWN_KEYS
from translation.vocabularies.nvidia import is_replica_name, keep_setting

_PUBLISH: Final = "have a driver publish devices of that class on nodes that these pods may use, "
_SELECT: Final = "or give them another node selector"
WHOLE_CARD: Final = f"beside {GPU}, {MEMORY_PERCENT}: 100 is a whole card of HAMi's driver"
_ANEW: Final = " (a Job has to be created anew with it, as its template cannot change)"
_UNSERVED: Final = "{} run, and after their move no node would serve them: none that they may use would have devices of {}"


def unserved_text(workload: AssessedWorkload, pods: str = "its pods") -> str:
    """Return the reason that a workload with running pods stays: after their move no node would serve them.

    Args:
        workload: The workload.
        pods: The words for its pods.
    """
    return _UNSERVED.format(pods, ", ".join(sorted(class_names(workload))))


def serve_fix(workload: AssessedWorkload, staying: Collection[str] = ()) -> str:
    """Return the fix for a workload that no node would serve after its move.

    Args:
        workload: The workload.
        staying: The nodes of its pods that stay with their device plugin.
    """
    names = sorted(filter(is_replica_name, workload.keys))
    is_whole = GPU in workload.keys and not set(OWN_KEYS).intersection(workload.keys)
    share = f"let them request a share ({WHOLE_CARD}), " if is_whole else ""
    serve = f"{_PUBLISH}{share}{_SELECT}"
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
    anew = _ANEW if any(name.startswith("Job/") for name in own) else ""
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
