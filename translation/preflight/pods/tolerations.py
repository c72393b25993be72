"""Tolerations that pods get for their device keys, and lose with them.

Source: kubernetes plugin/pkg/admission/extendedresourcetoleration/admission.go: one toleration for each
extended resource, with operator Exists and effect NoSchedule.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import printable
from kube.api.core import Pod
from kube.jsonpatch import Operation, add, pointer
from translation.cluster.node_taints import EXISTS, NO_SCHEDULE, tolerates, untolerated_keys
from translation.cluster.snapshot import TolerationPolicy, TranslationOptions, TranslationSnapshot

_PATH = FieldPath.of("spec", "tolerations")


def add_tolerations(
    pod: Pod,
    keys: Collection[str],
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> list[Operation]:
    """Return the operations that give a pod the tolerations of its keys.

    Args:
        keys: The resource names that the translation removes.
    """
    if not _are_added(snapshot, options):
        return []
    tolerations = [_toleration(key) for key in untolerated_keys(pod, keys)]
    if not tolerations:
        return []
    if not pod.spec.tolerations:
        return [add(pointer("spec", "tolerations"), tolerations)]
    return [add(pointer("spec", "tolerations", "-"), toleration) for toleration in tolerations]


def check_tolerations(
    pod: Pod,
    keys: Collection[str],
    drivers: Iterable[str],
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Iterator[Finding]:
    """Yield a finding if a pod lacks the toleration that the API server may add for a removed key.

    In the webhook nothing is missing: the API server adds tolerations before it calls webhooks.

    Args:
        keys: The resource names that the translation removes.
        drivers: The drivers that serve the keys.
    """
    node_taints = snapshot.node_taints
    if node_taints is None or _are_added(snapshot, options):
        return
    tolerations = pod.spec.tolerations or ()
    if not node_taints.is_known:
        untolerated = tuple(untolerated_keys(pod, keys))
        if untolerated and not any(toleration.key in {"", *keys} for toleration in tolerations):
            key = printable(untolerated[0])
            yield info(
                Code.TOLERATION_MISSING,
                _PATH,
                f"on nodes with a taint of a removed key, such as {key}, the pod waits: without the key "
                "the API server adds no toleration",
                _fix(untolerated[0]),
            )
        return
    missing_keys = sorted(
        {
            taint.key
            for taint in node_taints.of_drivers(drivers)
            if taint.key in keys and not any(tolerates(entry, taint) for entry in tolerations)
        }
    )
    if missing_keys:
        yield warning(
            Code.TOLERATION_MISSING,
            _PATH,
            f"nodes with the devices have the taint {' and '.join(map(printable, missing_keys))}, which "
            "the pod does not tolerate: without the key the API server adds no toleration",
            _fix(missing_keys[0]),
        )


def _fix(key: str) -> str:
    return (
        f"add a toleration of {printable(key)} with operator {EXISTS} and effect {NO_SCHEDULE}, or set "
        "translation.tolerations to always"
    )


def _are_added(snapshot: TranslationSnapshot, options: TranslationOptions) -> bool:
    if options.tolerations is TolerationPolicy.DETECTED:
        return snapshot.node_taints is not None and snapshot.node_taints.are_tolerations_added
    return options.tolerations is TolerationPolicy.ALWAYS


def _toleration(key: str) -> Mapping[str, str]:
    return {"key": key, "operator": EXISTS, "effect": NO_SCHEDULE}
