"""The view of the devices that answers are made from, and the one that is built to replace it.

Changes wait in a batch until the next answer, which applies them: claims at once, and of slices and nodes
a part, so that no answer waits for many. Policies and settings of drivers concern every verdict, and
slices of a pool that many nodes see all of these. In a large cluster the view with such changes is built
beside the one in use, which still gets all others.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from allocator.features.consumer_limits import consumer_limits
from allocator.model.feature_gates import Features
from allocator.pods.claims import Name
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Changes, Kind
from kube.api.ownership import OwnedDriver
from sidecar.state.change_feed import ChangeFeed

MAX_PART: Final = 64
"""Slices that change and nodes that are laid out for one answer; each takes a tenth of a millisecond."""
MAX_NODES: Final = 64
"""Nodes that see a pool whose slices change for one answer; where there are more, the pool waits for the
next view. Of a pool of many slices, each takes up to half a millisecond."""
MAX_QUICK_BUILD: Final = 256
"""Slices and nodes of a cluster whose view is built anew within tens of milliseconds."""


class NextView(msgspec.Struct, kw_only=True, eq=False):
    """A view that is built beside the one in use.

    Attributes:
        cache: The view.
        feed: Changes that it lacks.
        settings: The settings of the owned drivers that the view is built with.
        is_built: It can replace the one in use.
    """

    cache: ClusterCache
    feed: ChangeFeed
    settings: tuple[OwnedDriver, ...]
    is_built: bool = False


class DeviceView:
    """The view in use, the next one, and the changes that each lacks.

    Attributes:
        cache: The view in use.
        settings: The settings of the owned drivers that the view is built with.
        next_view: The view that is being built; None for none.
    """

    def __init__(
        self,
        features: Features,
        uniform_config_drivers: frozenset[str],
        everything: Callable[[], Changes],
    ) -> None:
        """Begin with an empty cluster.

        Args:
            everything: Returns all objects that a view is made of.
        """
        self.settings: tuple[OwnedDriver, ...] = ()
        self.next_view: NextView | None = None
        self._features = features
        self._uniform_config_drivers = uniform_config_drivers
        self._everything = everything
        self.cache = ClusterCache(
            features, uniform_config_drivers, max_part=MAX_PART, max_nodes=MAX_NODES
        )
        self._feed = ChangeFeed()
        self._feeds = [self._feed]
        self._is_outdated = False

    @property
    def is_behind(self) -> bool:
        """Return True if a further answer would apply changes that are known, without new ones."""
        return (
            self.cache.is_behind
            or self.cache.awaits_build
            or self.next_view is not None
            or self._is_outdated
        )

    @property
    def has_news(self) -> bool:
        """Return True if the next answer knows more than the last one, without new changes."""
        return self.cache.is_behind or (self.next_view is not None and self.next_view.is_built)

    def put(self, kind: Kind, name: Name, new: Any) -> None:
        """Queue a change."""
        for feed in self._feeds:
            feed.put(kind, name, new)

    def take_changes(self, settings: tuple[OwnedDriver, ...]) -> Changes:
        """Return the changes to apply for the next answer; called while the view is not in use.

        Args:
            settings: The present settings of the owned drivers.
        """
        if self.next_view is not None and self.next_view.is_built:
            self._adopt(self.next_view)
        changes = self._feed.take()
        is_another = settings != self.settings or self._is_outdated
        concerns_all = bool(changes.get(Kind.POLICY)) or is_another
        if not (concerns_all or self.cache.awaits_build):
            return changes
        if concerns_all and self.cache.size <= MAX_QUICK_BUILD:
            if is_another:
                self.settings, self._is_outdated = settings, False
                self.cache = self.cache.fork(consumer_limits(settings))
            return changes
        if self.next_view is None:
            self._is_outdated = False
            feed = self._new_feed(changes)
            cache = self.cache.fork(consumer_limits(settings))
            self.next_view = NextView(cache=cache, feed=feed, settings=settings)
        # While a view is being built, its feed has got changes of policies as well.
        return {kind: objects for kind, objects in changes.items() if kind is not Kind.POLICY}

    def renew(self) -> None:
        """Have another view of the same objects, since selectors may have other verdicts by now."""
        self._is_outdated = True

    def rebuild(self, settings: tuple[OwnedDriver, ...]) -> None:
        """Begin anew with everything."""
        if self.next_view is not None:
            self.end_view(self.next_view.feed)
            self.next_view = None
        self.settings = settings
        self.cache = self.cache.successor(
            consumer_limits(settings), max_part=MAX_PART, max_nodes=MAX_NODES
        )
        self._feed.replace(self._everything())

    def second_view(self) -> tuple[ClusterCache, ChangeFeed]:
        """Return a view that is the caller's, and the changes that bring it up to date.

        The options are those of now.
        """
        cache = self.cache.successor(consumer_limits(self.settings))
        return cache, self._new_feed(self._everything())

    def end_view(self, feed: ChangeFeed) -> None:
        """Keep no more changes for a view."""
        self._feeds.remove(feed)

    def _adopt(self, view: NextView) -> None:
        """Answer from the next view."""
        self._feeds.remove(self._feed)
        self.cache, self._feed, self.settings = view.cache, view.feed, view.settings
        self.next_view = None

    def _new_feed(self, changes: Changes) -> ChangeFeed:
        feed = ChangeFeed()
        feed.replace(changes)
        self._feeds.append(feed)
        return feed
