"""One function per feature of the allocator: each works its feature into a draft.

A theme changes an existing draft, so several themes meet on the same devices and requests. Their
order in `THEMES` matters: the cluster first, then the claims, then the usage by allocated claims.
"""

from collections.abc import Callable
from typing import Final

from testing.oracle.draft import Draft
from testing.oracle.themes import cluster, requests, usage

Theme = Callable[[Draft], None]

THEMES: Final[dict[Theme, int]] = {
    cluster.several_hosts: 6,
    cluster.groups_over_hosts: 8,
    cluster.partitions: 10,
    cluster.groups: 8,
    cluster.capacity: 12,
    cluster.fractions: 10,
    cluster.lists: 8,
    cluster.tainted: 8,
    cluster.taint_rules: 7,
    cluster.binding: 8,
    cluster.node_operations: 8,
    cluster.generations: 7,
    cluster.incomplete: 5,
    cluster.invalid: 6,
    requests.selectors: 14,
    requests.broken_selectors: 6,
    requests.all_devices: 8,
    requests.alternatives: 12,
    requests.admin: 8,
    requests.matching: 12,
    requests.distinct: 8,
    requests.derived: 8,
    requests.configs: 8,
    requests.limits: 6,
    requests.missing_class: 1,
    requests.no_requests: 2,
    requests.gates_off: 5,
    usage.allocated: 25,
}
"""Each theme in order, with its weight."""
