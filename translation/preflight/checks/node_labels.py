"""Labels of GPU feature discovery in a node selector."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import quote_text
from translation.preflight.model.inputs import PreflightInput
from translation.vocabularies.nvidia import SHARED_PRODUCT


def check_node_labels(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for each label of GPU feature discovery in the node selector."""
    for key, text in inputs.legacy.node_selector.items():
        path = FieldPath.of("spec", "nodeSelector").key(key)
        if text.endswith(SHARED_PRODUCT):
            yield warning(
                Code.GPU_SHARING_NODE_LABEL,
                path,
                f"{quote_text(text)} is a label of nodes whose device plugin shares GPUs; nodes of a DRA "
                "driver do not have it",
                f"select the product without {SHARED_PRODUCT}",
            )
        else:
            yield info(
                Code.GPU_DISCOVERY_NODE_LABEL,
                path,
                "set by GPU feature discovery, which must keep running",
            )
