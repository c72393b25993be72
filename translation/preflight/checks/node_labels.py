"""Labels of nodes and their GPUs in a node selector."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import quote_text
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


def check_node_labels(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for each label of GPU feature discovery, or of GKE, in the node selector."""
    requests_whole_gpus = any(GPU in container.limits for container in inputs.legacy.containers)
    for key, text in inputs.legacy.node_selector.items():
        path = FieldPath.of("spec", "nodeSelector").key(key)
        mig_key = _mig_key(key, text)
        if _is_of_sharing(key, text):
            is_product = text.endswith(SHARED_PRODUCT)
            yield warning(
                Code.GPU_SHARING_NODE_LABEL,
                path,
                f"{quote_text(text)} is a label of nodes whose device plugin shares GPUs, where nvidia.com/gpu is a part "
                "of one; the claim gets a whole one, and nodes of a DRA driver do not have the label",
                f"select the product without {SHARED_PRODUCT}"
                if is_product
                else "remove the label",
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
            yield info(
                Code.GPU_DISCOVERY_NODE_LABEL,
                path,
                "set by GPU feature discovery, which must keep running",
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
