"""Labels of GPU feature discovery in a node selector."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import quote_text
from translation.preflight.model.inputs import PreflightInput
from translation.vocabularies.nvidia import REPLICAS_LABEL, SHARED_PRODUCT, SHARING_STRATEGY


def check_node_labels(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for each label of GPU feature discovery in the node selector."""
    for key, text in inputs.legacy.node_selector.items():
        path = FieldPath.of("spec", "nodeSelector").key(key)
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
        else:
            yield info(
                Code.GPU_DISCOVERY_NODE_LABEL,
                path,
                "set by GPU feature discovery, which must keep running",
            )


def _is_of_sharing(key: str, text: str) -> bool:
    """Return True for a label of nodes with a device plugin that hands out parts of devices."""
    if text.endswith(SHARED_PRODUCT) or (key == SHARING_STRATEGY and text != "none"):
        return True
    return key.endswith(REPLICAS_LABEL) and text not in {"", "0", "1"}
