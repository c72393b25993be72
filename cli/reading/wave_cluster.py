"""The ConfigMap with the position of a migration, in a running cluster; every write is conditional."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar

from clusterstate.wave_record import WAVE_RECORD
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.urls import CONFIG_MAPS, NAMESPACES, Resource
from kube.errors import (
    AlreadyExists,
    ConfigError,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
)
from kube.names import NAME

if TYPE_CHECKING:
    from kube.client.client import Client

SELF_SUBJECT_REVIEWS: Final = Resource(
    group="authentication.k8s.io", version="v1", plural="selfsubjectreviews", namespaced=False
)
_RIGHTS: Final = "docs/plan.md lists the rights that drawbridge wave needs"

T = TypeVar("T")


class StoredRecord(NamedTuple):
    """The ConfigMap as it is config_map.

    Attributes:
        data: Its `data`; whoever may write it can write anything.
        version: Its resourceVersion.
    """

    data: Mapping[str, str]
    version: str


class ClusterView(NamedTuple):
    """The cluster that answers, and the user that it sees.

    Attributes:
        uid: The uid of the namespace kube-system.
        context: The kubeconfig's context.
        user: The user's name as the API server knows it; empty where it does not say.
    """

    uid: str
    context: str
    user: str


class RecordStore(Protocol):
    """The store of a migration's position."""

    def read(self) -> StoredRecord | None:
        """Return the stored record; None without one."""
        ...

    def write(self, data: Mapping[str, str], version: str) -> str:
        """Store a position in place of a version, or of nothing if that is empty; return its version.

        Raises:
            ConfigError: Something else is config_map.
        """
        ...


class ConfigMapData(ApiStruct, frozen=True, kw_only=True):
    """A ConfigMap, without binary data."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None


class _UserInfo(ApiStruct, frozen=True, kw_only=True):
    username: str = ""


class _ReviewStatus(ApiStruct, frozen=True, kw_only=True):
    user_info: _UserInfo = _UserInfo()


class _SelfSubjectReview(ApiStruct, frozen=True, kw_only=True):
    status: _ReviewStatus = _ReviewStatus()


class ClusterRecord:
    """The position of a migration in a ConfigMap of the kubeconfig's cluster."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str) -> None:
        """Prepare a connection; a `with` statement opens it."""
        self._kubeconfig = kubeconfig
        self._context = context
        self._namespace = namespace
        self._loop = asyncio.Runner()
        self._connection = AsyncExitStack()
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._loop.__enter__()
        self._loop.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._connection.aclose())
        finally:
            self._loop.close()

    def identify(self) -> ClusterView:
        """Return the cluster that answers.

        Raises:
            KubeError: It does not answer, or refuses to name its uid.
        """
        return self._call(_identify)

    def read(self) -> StoredRecord | None:
        """Return the stored record; None without one.

        Raises:
            KubeError: The cluster does not answer, or the user may not read it.
        """
        return self._call(self._read)

    def write(self, data: Mapping[str, str], version: str) -> str:
        """Store a position, and return its version.

        Raises:
            ConfigError: Something else was stored since, or there is no namespace for it.
            KubeError: The cluster does not answer, or the user may not write it.
        """
        return self._call(lambda client: self._write(client, data, version))

    async def _open(self) -> None:
        # The client takes twice as long to import as all the rest.
        from kube.client.client import Client  # noqa: PLC0415

        client = await Client.from_kubeconfig(self._kubeconfig, self._context)
        self._client = await self._connection.enter_async_context(client)

    def _call(self, ask: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
        assert self._client is not None, "ClusterRecord is used in a with statement"
        return self._loop.run(ask(self._client))

    async def _read(self, client: "Client") -> StoredRecord | None:
        try:
            config_map = await client.get(
                CONFIG_MAPS, WAVE_RECORD, ConfigMapData, namespace=self._namespace
            )
        except NotFound:
            return None
        except Forbidden as error:
            raise ConfigError(f"{error}; {_RIGHTS}") from error
        return StoredRecord(config_map.data or {}, config_map.metadata.resource_version)

    async def _write(self, client: "Client", data: Mapping[str, str], version: str) -> str:
        from kube.client.client import PatchType  # noqa: PLC0415

        try:
            if version:
                change = {"metadata": {"resourceVersion": version}, "data": data}
                config_map = await client.patch(
                    *(CONFIG_MAPS, WAVE_RECORD, change, PatchType.MERGE, ConfigMapData),
                    namespace=self._namespace,
                )
            else:
                document = self._document(data)
                config_map = await client.create(
                    CONFIG_MAPS, document, ConfigMapData, namespace=self._namespace
                )
        except (AlreadyExists, Conflict) as error:
            raise ConfigError(self._describe_conflict("was changed")) from error
        except NotFound as error:
            if version:
                raise ConfigError(self._describe_conflict("was deleted")) from error
            raise ConfigError(
                f"there is no namespace {self._namespace}, in which the position of the migration would be kept: "
                "install Drawbridge first, or name its namespace with -n"
            ) from error
        except Forbidden as error:
            raise ConfigError(f"{error}; {_RIGHTS}") from error
        return config_map.metadata.resource_version

    def _document(self, data: Mapping[str, str]) -> Mapping[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": WAVE_RECORD,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/name": NAME},
            },
            "data": data,
        }

    def _describe_conflict(self, change: str) -> str:
        return (
            f"ConfigMap {self._namespace}/{WAVE_RECORD} {change} since it was read, so somebody else is at work: "
            "see drawbridge wave status before you go on"
        )


async def _identify(client: "Client") -> ClusterView:
    system = await client.get(NAMESPACES, "kube-system", ConfigMapData)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.create(SELF_SUBJECT_REVIEWS, review, _SelfSubjectReview)
    except KubeError as error:
        if not isinstance(error, NotFound | Forbidden):
            raise
        return ClusterView(system.metadata.uid, client.context, "")
    return ClusterView(system.metadata.uid, client.context, answer.status.user_info.username)
