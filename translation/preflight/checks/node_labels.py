"""Labels of nodes and their GPUs in a node selector or a required node affinity."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, info, warning
from findings.text import quote_text
from translation.model.required_labels import IN, RequiredLabel
from translation.preflight.model.inputs import PreflightInput
from translation.vocabularies.nvidia import (
    DISCOVERY_PREFIX,
    GKE_CLIENTS,
    GKE_PARTITION,
    GKE_STRATEGY,
    GPU,
    MIG_PREFIX,
    MIG_PRODUCT,
    PRODUCT,
    REPLICAS_LABEL,
    SHARED_PRODUCT,
    SHARING_STRATEGY,
    mig_profile,
)

MAX_LABELS: Final = 64
"""Labels of a node selector or a term that are looked at: more than GPU feature discovery, and GKE, give a node."""
MAX_VALUES: Final = 32
"""Values of a requirement that are looked at."""
_TERMS: Final = (
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)


def check_node_labels(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for each label of GPU feature discovery, or of GKE, that the pod requires of its node."""
    legacy = inputs.legacy
    requests_whole_gpus = any(GPU in container.limits for container in legacy.containers)
    for key, text in islice(legacy.node_selector.items(), MAX_LABELS):
        path = FieldPath.of("spec", "nodeSelector").key(key)
        yield from _check_label(path, key, text, requests_whole_gpus=requests_whole_gpus)
    findings = [
        [
            finding
            for entry in term[:MAX_LABELS]
            for finding in _check_requirement(entry, requests_whole_gpus=requests_whole_gpus)
        ]
        for term in legacy.affinity_terms
    ]
    # One term suffices, so a pod can leave such nodes where another term has none of their labels.
    are_all_shared = all(any(_is_warning(finding) for finding in term) for term in findings)
    for term in findings:
        yield from (finding for finding in term if are_all_shared or not _is_warning(finding))


def _check_requirement(entry: RequiredLabel, *, requests_whole_gpus: bool) -> Iterator[Finding]:
    """Yield the finding on a requirement of a node affinity: the first value, if all of them have the same one."""
    path = FieldPath.of(*_TERMS, entry.term or 0, "matchExpressions", entry.position, "values")
    values = entry.values[:MAX_VALUES] if entry.operator == IN else ()
    by_value = [
        list(_check_label(path, entry.key, text, requests_whole_gpus=requests_whole_gpus))
        for text in values
    ]
    codes = {tuple(finding.code for finding in findings) for findings in by_value}
    if len(codes) == 1:
        yield from by_value[0]
    elif entry.key.startswith(DISCOVERY_PREFIX):
        yield _discovery_label(path)


def _check_label(
    path: FieldPath, key: str, text: str, *, requests_whole_gpus: bool
) -> Iterator[Finding]:
    """Yield the finding on a label with a value."""
    mig_key = _mig_key(key, text)
    if _is_of_sharing(key, text):
        is_product = text.endswith(SHARED_PRODUCT)
        yield warning(
            Code.GPU_SHARING_NODE_LABEL,
            path,
            f"{quote_text(text)} is a label of nodes whose device plugin shares GPUs, where nvidia.com/gpu is a part "
            "of one; the claim gets a whole one, and a node that shares none any more loses the label",
            f"select the product without {SHARED_PRODUCT}" if is_product else "remove the label",
        )
    elif mig_key and requests_whole_gpus:
        yield warning(
            Code.GPU_SHARING_NODE_LABEL,
            path,
            f"{quote_text(text)} is a label of nodes whose device plugin calls MIG devices {GPU}; the claim gets a "
            "whole GPU",
            f"request {mig_key} instead",
        )
    elif key.startswith(DISCOVERY_PREFIX):
        yield _discovery_label(path)


def _is_warning(finding: Finding) -> bool:
    return finding.severity is Severity.WARNING


def _discovery_label(path: FieldPath) -> Finding:
    return info(
        Code.GPU_DISCOVERY_NODE_LABEL, path, "set by GPU feature discovery, which must keep running"
    )


def _is_of_sharing(key: str, text: str) -> bool:
    """Return True for a label of nodes with a device plugin that hands out parts of devices."""
    if text.endswith(SHARED_PRODUCT) or (key == SHARING_STRATEGY and text != "none"):
        return True
    is_number = key.endswith(REPLICAS_LABEL) or key == GKE_CLIENTS
    return key == GKE_STRATEGY or (is_number and text not in {"", "0", "1"})


def _mig_key(label: str, text: str) -> str:
    """Return the key of the MIG devices that nodes with a label have; empty for other labels."""
    if label not in {GKE_PARTITION, PRODUCT}:
        return ""
    name = f"{MIG_PREFIX}{text if label == GKE_PARTITION else text.partition(MIG_PRODUCT)[2]}"
    return name if mig_profile(name) else ""
