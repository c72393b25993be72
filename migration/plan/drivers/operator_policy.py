"""The changes of the GPU Operator's ClusterPolicy before the first wave. Pure.

Without them the Operator's driver manager leaves the pods of NVIDIA's DRA driver running while it replaces the GPU
driver of a node. `prepare.sh` does not make them: ClusterPolicy is often in a repository, or Helm's.
"""

from typing import Final

from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.drivers.vendors import NVIDIA_LABEL
from migration.plan.model.driver_charts import DriverValues
from migration.plan.model.plan import Plan

POLICY_CHANGES: Final = (
    "change two things in ClusterPolicy before prepare.sh, both at once: spec.driver.upgradePolicy.autoUpgrade: false, and in "
    f"spec.driver.manager.env NODE_LABEL_FOR_GPU_POD_EVICTION={NVIDIA_LABEL}; the comments of prepare.sh say why, and after the "
    "last wave autoUpgrade may be as it was"
)


def needs_policy_changes(plan: Plan) -> bool:
    """Return True if the Operator replaces GPU drivers on nodes that get NVIDIA's DRA driver."""
    values = plan.driver_values.get(NVIDIA, DriverValues())
    return bool(plan.gpu_operator) and NVIDIA in plan.drivers and not values.is_preinstalled
