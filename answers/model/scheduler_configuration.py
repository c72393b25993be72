"""The scores of nodes' resources by the profiles of a KubeSchedulerConfiguration. Pure.

Only what `ScoringProfile` has is read. Scores of other plugins, such as ImageLocality, are not modelled.

Source: k8s.io/kube-scheduler v0.37.1, config/v1/types.go and types_pluginargs.go; k8s.io/kubernetes v1.37.1,
pkg/scheduler/apis/config/v1/default_plugins.go, and framework/runtime/framework.go, expandMultiPointPlugins.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from allocator.nodes.scoring import (
    CPU_AND_MEMORY,
    MAX_SHAPE_SCORE,
    FitStrategy,
    ScoredResource,
    ScoringProfile,
    ShapePoint,
)
from kube.api.meta import ApiStruct, convert
from kube.errors import ConfigError
from kube.manifests.source import SourceObject
from kube.names import DEFAULT_SCHEDULER_NAME

KIND: Final = "KubeSchedulerConfiguration"
BRIDGE_PLUGIN: Final = "Drawbridge"
"""The name of the bridge's plugin. Source: bridge/plugin."""
MAX_PERCENTAGE: Final = 100

_FIT: Final = "NodeResourcesFit"
_BALANCED: Final = "NodeResourcesBalancedAllocation"
_ALL: Final = "*"


class _Plugin(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    weight: int = 0


class _PluginSet(ApiStruct, frozen=True, kw_only=True):
    enabled: tuple[_Plugin, ...] | None = None
    disabled: tuple[_Plugin, ...] | None = None


class _Plugins(ApiStruct, frozen=True, kw_only=True):
    multi_point: _PluginSet = _PluginSet()
    score: _PluginSet = _PluginSet()


class _PluginConfig(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    args: Mapping[str, Any] | None = None


class _Resource(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    weight: int = 0


class _Point(ApiStruct, frozen=True, kw_only=True):
    utilization: int = 0
    score: int = 0


class _Ratio(ApiStruct, frozen=True, kw_only=True):
    shape: tuple[_Point, ...] | None = None


class _Strategy(ApiStruct, frozen=True, kw_only=True):
    type: FitStrategy = FitStrategy.LEAST_ALLOCATED
    resources: tuple[_Resource, ...] | None = None
    requested_to_capacity_ratio: _Ratio | None = None


class _FitArgs(ApiStruct, frozen=True, kw_only=True):
    scoring_strategy: _Strategy = _Strategy()


class _BalancedArgs(ApiStruct, frozen=True, kw_only=True):
    resources: tuple[_Resource, ...] | None = None


class _Profile(ApiStruct, frozen=True, kw_only=True):
    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    plugins: _Plugins = _Plugins()
    plugin_config: tuple[_PluginConfig, ...] | None = None


class _Configuration(ApiStruct, frozen=True, kw_only=True):
    percentage_of_nodes_to_score: int | None = None
    profiles: tuple[_Profile, ...] | None = None


def scoring_profiles(objects: Iterable[SourceObject]) -> Mapping[str, ScoringProfile]:
    """Return schedulerName to the profile of each scheduler that a configuration describes.

    A configuration without profiles describes the default scheduler.

    Args:
        objects: The objects of a file; one of them is the configuration.

    Raises:
        ConfigError: There is no configuration, or several, or a field is wrong.
    """
    configurations = [source for source in objects if source.kind == KIND]
    if len(configurations) != 1:
        raise ConfigError(
            f"one object of kind {KIND} was expected, {len(configurations)} found; give the scheduler's --config"
        )
    source = configurations[0]
    try:
        configuration = convert(source.document, _Configuration)
        profiles = configuration.profiles or (_Profile(),)
        return {
            profile.scheduler_name or DEFAULT_SCHEDULER_NAME: _scoring_profile(
                profile, configuration.percentage_of_nodes_to_score
            )
            for profile in profiles
        }
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source.source}: line {source.line}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{source.source}: line {source.line}: {error}") from None


def _scoring_profile(profile: _Profile, percentage: int | None) -> ScoringProfile:
    args = {entry.name: entry.args or {} for entry in profile.plugin_config or ()}
    strategy = convert(args.get(_FIT, {}), _FitArgs).scoring_strategy
    balanced = convert(args.get(_BALANCED, {}), _BalancedArgs)
    if profile.percentage_of_nodes_to_score is not None:
        percentage = profile.percentage_of_nodes_to_score
    if not 0 <= (percentage or 0) <= MAX_PERCENTAGE:
        raise ConfigError(f"percentageOfNodesToScore: {percentage} is not a number from 0 to 100")
    return ScoringProfile(
        strategy=strategy.type,
        resources=_resources(strategy.resources),
        shape=_shape(strategy),
        fit_weight=_weight(profile.plugins, _FIT, 1) or 0,
        balanced_resources=_resources(balanced.resources),
        balanced_weight=_weight(profile.plugins, _BALANCED, 1) or 0,
        strategy_weight=_weight(profile.plugins, BRIDGE_PLUGIN, None),
        percentage_of_nodes=percentage or 0,
    )


def _weight(plugins: _Plugins, name: str, default: int | None) -> int | None:
    """Return the weight of a plugin's score; 0 if it is disabled, the default if it is not named."""
    weight = default
    for plugin_set in (plugins.multi_point, plugins.score):
        if {name, _ALL} & {plugin.name for plugin in plugin_set.disabled or ()}:
            weight = None if default is None else 0
        for plugin in plugin_set.enabled or ():
            if plugin.name == name:
                if plugin.weight < 0:
                    raise ConfigError(f"the weight of {name} is {plugin.weight}; write 1 or more")
                weight = plugin.weight or 1
    return weight


def _resources(resources: Iterable[_Resource] | None) -> tuple[ScoredResource, ...]:
    """Return the resources that count; CPU and memory alike if none are named."""
    scored = tuple(
        ScoredResource(name=resource.name, weight=resource.weight or 1)
        for resource in resources or ()
    )
    for resource in scored:
        if not 1 <= resource.weight <= MAX_PERCENTAGE:
            raise ConfigError(
                f"the weight of resource {resource.name!r} is {resource.weight}; write 1 to 100"
            )
    return scored or CPU_AND_MEMORY


def _shape(strategy: _Strategy) -> tuple[ShapePoint, ...]:
    if strategy.type is not FitStrategy.REQUESTED_TO_CAPACITY_RATIO:
        return ()
    ratio = strategy.requested_to_capacity_ratio
    points = (ratio.shape if ratio is not None else None) or ()
    if not points:
        raise ConfigError(f"{strategy.type} has no shape; write requestedToCapacityRatio.shape")
    before = -1
    for point in points:
        if not before < point.utilization <= MAX_PERCENTAGE:
            raise ConfigError(
                f"utilization {point.utilization} of a shape; write numbers from 0 to 100 that increase"
            )
        if not 0 <= point.score <= MAX_SHAPE_SCORE:
            raise ConfigError(
                f"score {point.score} of a shape; write a number from 0 to {MAX_SHAPE_SCORE}"
            )
        before = point.utilization
    return tuple(ShapePoint(utilization=point.utilization, score=point.score) for point in points)
