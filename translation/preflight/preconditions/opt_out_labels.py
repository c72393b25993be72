"""Pods that a label of their own or of their namespace opts out are not translated."""

from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, info
from kube.names import TRANSLATE_LABEL
from translation.cluster.snapshot import vocabularies_in_force
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading import arbiter
from translation.reading.legacy_pod import HAMI_OPT_OUT_LABELS, OPT_OUT_LABELS, find_label
from translation.vocabularies import ascend, hygon
from translation.vocabularies.hami.translate import VOCABULARY as HAMI

_OF_HAMI: Final = frozenset({HAMI.name, ascend.VOCABULARY.name, hygon.VOCABULARY.name})
"""The vocabularies of the keys that HAMi's webhook reads."""
_HAMI_OPT_OUTS: Final = frozenset(f"{key}={value}" for key, value in HAMI_OPT_OUT_LABELS.items())


def stop_at_opt_out_labels(inputs: PodInput) -> Stop | None:
    """Stop at a pod with a label that opts it out, its own or its namespace's.

    HAMi's label counts where a key of the pod is one of HAMi's, of any vendor.
    """
    legacy, namespace = inputs.legacy, inputs.namespace
    for carrier, labels in (
        ("", legacy.labels),
        (f" of namespace {namespace}", inputs.snapshot.namespaces.get(namespace, {})),
    ):
        if not labels:
            continue
        opt_out = find_label(labels, OPT_OUT_LABELS)
        if opt_out is None:
            opt_out = find_label(labels, HAMI_OPT_OUT_LABELS)
            # The label of the namespace takes it away from HAMi, so HAMi's own labels do not count there.
            if opt_out is not None and (inputs.opted_in or not _is_of_hami(inputs)):
                opt_out = None
        if opt_out is not None:
            message = f"not translated: label {opt_out}{carrier}"
            fix = f"remove label {opt_out}{carrier} where it is to be translated"
            if opt_out in _HAMI_OPT_OUTS:
                # Without it HAMi's webhook would take the next pods, and nodes of others are not HAMi's.
                fix = (
                    f"label namespace {namespace} {TRANSLATE_LABEL}=true where it is to be translated: "
                    f"{opt_out} does not count there"
                )
            return Stop(
                (info(Code.OPTED_OUT, FieldPath.of("metadata", "labels"), message, fix=fix),)
            )
    return None


def _is_of_hami(inputs: PodInput) -> bool:
    """Return True if a key of the pod is one of HAMi's."""
    owners = arbiter.owners(
        inputs.legacy,
        default_gpu_owner=inputs.default_gpu_owner,
        vocabularies=vocabularies_in_force(inputs.options, inputs.snapshot.profiles),
    )
    return not _OF_HAMI.isdisjoint(owners)
