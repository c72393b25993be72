"""The strategy of a pod's claims: of the call, of the pod, of a class, or the default."""

from collections.abc import Iterable, Mapping

from allocator.pods.claims import pod_name
from allocator.simulation.attempt import class_names
from allocator.strategies import registry
from allocator.strategies.by_node_pool import PoolStrategies, by_node_pool
from allocator.strategies.capacity_weights import CapacityWeights
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.resource import DeviceClass, ResourceClaim
from kube.errors import FieldError


def named_strategy(
    pod: Pod | None,
    claims: Iterable[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    pools: PoolStrategies,
    weights: CapacityWeights,
) -> tuple[Strategy, str]:
    """Return the strategy of a pod, a class or pools of nodes, and a note; it is empty if all is well."""
    names = dict.fromkeys(name for claim in claims for name in class_names(claim))
    annotations = {
        name: classes[name].metadata.annotations or {} for name in names if name in classes
    }
    name = registry.requested_strategy(pod.annotations if pod is not None else {}, annotations)
    if name is None:
        return by_node_pool(FIRST_FIT, pools, weights), ""
    strategy = name if isinstance(name, FieldError) else registry.find_strategy(name)
    if not isinstance(strategy, FieldError):
        return registry.with_weights(strategy, weights), ""
    title = f"Pod {pod.metadata.namespace}/{pod_name(pod)}: " if pod is not None else ""
    note = (
        f"{title}{strategy.path}: {strategy.message}, so {registry.DEFAULT} is used; "
        f"use {strategy.fix}"
    )
    return FIRST_FIT, note
