"""The preflight checks, in the order of their findings."""

from typing import Final

from findings.finding import Finding
from translation.preflight.checks.class_configs import check_class_configs
from translation.preflight.checks.device_classes import check_device_classes
from translation.preflight.checks.enforced_limits import check_enforced_limits
from translation.preflight.checks.environment import check_environment
from translation.preflight.checks.existing_variables import check_existing_variables
from translation.preflight.checks.foreign_groups import check_foreign_groups
from translation.preflight.checks.foreign_quotas import check_foreign_quotas
from translation.preflight.checks.limit_ranges import check_limit_ranges
from translation.preflight.checks.memory_units import check_memory_unit
from translation.preflight.checks.multus_networks import check_multus_networks
from translation.preflight.checks.node_labels import check_node_labels
from translation.preflight.checks.published_devices import check_published_devices
from translation.preflight.checks.published_models import check_published_models
from translation.preflight.checks.quotas import check_quotas
from translation.preflight.checks.replaced_scheduler import check_replaced_scheduler
from translation.preflight.checks.rounded_memory import check_rounded_memory
from translation.preflight.checks.shares_supported import check_shares_supported
from translation.preflight.checks.uncapped_cores import check_uncapped_cores
from translation.preflight.checks.wide_mappings import check_wide_mappings
from translation.preflight.model.inputs import Check, PreflightInput

PREFLIGHT: Final[tuple[Check, ...]] = (
    check_uncapped_cores,
    check_rounded_memory,
    check_memory_unit,
    check_enforced_limits,
    check_multus_networks,
    check_shares_supported,
    check_device_classes,
    check_published_devices,
    check_published_models,
    check_class_configs,
    check_quotas,
    check_limit_ranges,
    check_replaced_scheduler,
    check_foreign_groups,
    check_foreign_quotas,
    check_wide_mappings,
    check_node_labels,
    check_existing_variables,
    check_environment,
)


def run_checks(inputs: PreflightInput) -> tuple[Finding, ...]:
    """Return the findings of every preflight check."""
    findings: list[Finding] = []
    for check in PREFLIGHT:
        findings += check(inputs)
    return tuple(findings)
