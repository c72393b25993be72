"""The driver profiles in force in a process: those of files, and those of the cluster over them.

The controllers decide which DeviceTranslationProfiles are in force, and write these into a ConfigMap.
Every process follows that, so all of them agree, and none but the controllers reads the objects.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kube.api.meta import ApiStruct, decode
from kube.api.urls import CONFIG_MAPS
from kube.logs import get_logger
from kube.runtime.informers import InformerFactory, Subscription
from translation.profiles.profile import Profile
from translation.profiles.published import PublishedProfiles, decode_published

Changed = Callable[[Mapping[str, Profile], Mapping[str, Profile]], None]
"""Called with driver to profile, and content hash to kept version."""

log = get_logger()


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: Mapping[str, str] | None = None


def project_published(raw: bytes) -> PublishedProfiles:
    """Project the ConfigMap to its profiles; invalid ones are left out."""
    return decode_published(decode(raw, _ConfigMap).data or {})


class ProfileCache:
    """The profiles in force, kept up to date.

    Attributes:
        published: The profiles that the cluster publishes.
        profiles: Driver to profile, of the cluster and of files; the same object while nothing
            changes.
        subscription: The subscription to the ConfigMap.
    """

    def __init__(
        self,
        informers: InformerFactory,
        files: Mapping[str, Profile],
        *,
        namespace: str,
        config_map: str,
    ) -> None:
        """Subscribe to the ConfigMap.

        Args:
            files: Driver to profile, of the package and of files.
            namespace: The ConfigMap's namespace.
            config_map: Its name.
        """
        self._files = files
        self._handlers: list[Changed] = []
        self.published = PublishedProfiles()
        self.profiles = files
        self.subscription: Final[Subscription[PublishedProfiles]] = informers.subscribe(
            CONFIG_MAPS,
            project_published,
            namespace=namespace,
            field_selector=f"metadata.name={config_map}",
            handlers=[self._replace],
        )

    def on_change(self, handler: Changed) -> None:
        """Call a handler whenever other profiles are in force, or other versions are kept."""
        self._handlers.append(handler)

    async def wait_first(self) -> None:
        """Return once the profiles of the cluster, or their absence, are known."""
        await self.subscription.synced.wait()

    def check(self) -> str:
        """Check for readiness that the profiles in force are known."""
        return (
            "" if self.subscription.synced.is_set() else "the profiles of the cluster are not known"
        )

    def _replace(self, _key: tuple[str, str], _old: object, new: PublishedProfiles | None) -> None:
        published_profiles = new or PublishedProfiles()
        if published_profiles.is_same(self.published):
            return
        in_force_changes = published_profiles.in_force != self.published.in_force
        self.published = published_profiles
        if in_force_changes:
            self.profiles = {**self._files, **published_profiles.profiles()}
        log.info(
            "profiles.replaced",
            in_force=dict(published_profiles.in_force),
            versions=len(published_profiles.versions),
            faults=list(published_profiles.faults),
        )
        for handler in self._handlers:
            handler(self.profiles, published_profiles.versions)
