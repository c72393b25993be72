"""All rules, in the order of evaluation and of findings.

docs/findings.md and the policies for the API server (manifests/policies) are generated from this
table. A new file of rules is one line here.
"""

from typing import Any, Final

from rules.context.rule import Rule
from rules.names import claim_names
from rules.objects import (
    claim,
    claim_lists,
    co_tenant_config,
    config,
    costly_selectors,
    device_class,
    extended_resources,
    feasibility,
    fields,
    gated_fields,
    pod,
    published,
    resource_slice,
    selectors,
    strategy,
)
from rules.objects import compatibility_policy as compatibility
from rules.ownership import node_pools
from rules.quotas import device_quota, excesses, resource_quotas

RULES: Final[tuple[Rule[Any], ...]] = (
    *fields.RULES,
    *gated_fields.RULES,
    *claim_lists.RULES,
    *claim_names.RULES,
    *claim.RULES,
    *selectors.RULES,
    *config.RULES,
    *device_class.RULES,
    *resource_slice.RULES,
    *compatibility.RULES,
    *device_quota.RULES,
    *node_pools.RULES,
    *pod.RULES,
    *extended_resources.RULES,
    *strategy.RULES,
    *published.RULES,
    *feasibility.RULES,
    *excesses.RULES,
    *resource_quotas.RULES,
    *co_tenant_config.RULES,
    # Last, since only an evaluation shows that one takes too long.
    *costly_selectors.RULES,
)
