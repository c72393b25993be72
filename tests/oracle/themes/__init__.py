"""One function per feature of the allocator: each works its feature into a draft.

A theme changes what it finds, so several of them meet on the same devices and requests. Their order
in `THEMES` matters: the cluster first, then what is asked, then who holds what already.
"""

from collections.abc import Callable
from typing import Final

from tests.oracle.draft import Draft
from tests.oracle.themes import asked, cluster, held

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
    asked.selectors: 14,
    asked.broken_selectors: 6,
    asked.all_devices: 8,
    asked.alternatives: 12,
    asked.admin: 8,
    asked.matching: 12,
    asked.distinct: 8,
    asked.derived: 8,
    asked.configs: 8,
    asked.limits: 6,
    asked.missing_class: 1,
    asked.no_requests: 2,
    asked.gates_off: 5,
    held.held: 25,
}
"""Each theme, in the order of their turn, and how often it is taken."""
