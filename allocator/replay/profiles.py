"""The scores of nodes' resources by the schedulers of a replay."""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocator.nodes.scoring import DEFAULT_PROFILE, FitStrategy, ScoringProfile
from kube.names import DEFAULT_SCHEDULER_NAME

STRATEGY_WEIGHT: Final = 100
"""Weight of the bridge's plugin. Source: manifests/bridge/configuration.yaml."""


class SchedulerProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles of a replay.

    Attributes:
        stock: The stock scheduler's, which also places the bridge's pods without devices.
        bridge: The bridge's.
    """

    stock: ScoringProfile = DEFAULT_PROFILE
    bridge: ScoringProfile = DEFAULT_PROFILE

    @property
    def most_allocated(self) -> ScoringProfile:
        """The stock scheduler's with the strategy MostAllocated."""
        return msgspec.structs.replace(self.stock, strategy=FitStrategy.MOST_ALLOCATED)

    @property
    def strategy_weight(self) -> int:
        """The weight of a strategy's score beside that of other plugins."""
        weight = self.bridge.strategy_weight
        return STRATEGY_WEIGHT if weight is None else weight


DEFAULT_PROFILES: Final = SchedulerProfiles()


def choose_profiles(profiles: Mapping[str, ScoringProfile]) -> SchedulerProfiles:
    """Return the profiles of a configuration that a replay follows.

    The stock scheduler's is the default scheduler's, or else the first without the bridge's plugin; the bridge's
    is the first with it.

    Args:
        profiles: schedulerName to profile.

    >>> choose_profiles({"a": ScoringProfile(strategy_weight=7)}).strategy_weight
    7
    """
    stock = [profile for profile in profiles.values() if profile.strategy_weight is None]
    bridge = [profile for profile in profiles.values() if profile.strategy_weight is not None]
    default = profiles.get(DEFAULT_SCHEDULER_NAME)
    return SchedulerProfiles(
        stock=default or (stock[0] if stock else DEFAULT_PROFILE),
        bridge=bridge[0] if bridge else DEFAULT_PROFILE,
    )
