"""Who asks the rules: keeps what they know by watches, and asks them on a thread of its own.

A review never calls anybody: it waits for its turn on the one thread that knows the cluster, which
first takes notice of what changed. What takes too long is answered without the inventory. Until the
first lists are complete, the inventory is not asked either; nobody waits for them, since pods are
translated without.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import structlog
from msgspec.structs import replace

from allocator.pod_claims import Name
from kube.api.core import Namespace
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.client import Client
from kube.informer import DEFAULTS, Handler, Informer, InformerSettings
from webhook.high_water import UNREADABLE, Marked, marked
from webhook.knowledge import Around, Knowledge
from webhook.observation import FOLLOWED, KEEP
from webhook.picture import Changes, Kind
from webhook.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
)
from webhook.rules.context import Context
from webhook.rules.enforcement import Configured, Enforcement
from webhook.settings import Settings

T = TypeVar("T")

OPTIONAL: Final = frozenset({Kind.TAINT_RULE, Kind.POLICY})
"""Of these there are none where they are not served."""
GROWERS: Final = {
    "a cluster autoscaler": (CONFIG_MAPS, "kube-system", "cluster-autoscaler-status"),
    "Karpenter": (CUSTOM_RESOURCE_DEFINITIONS, "", "nodepools.karpenter.sh"),
}
"""What may add nodes, in words, to resource, namespace and name of an object that is there then."""

TAKE_IN_S: Final = 1.0
"""Between two times at least that changes are taken in without a review that asks for it."""
IDLE_PART: Final = 9.0
"""After which a pause of so many times what it took follows."""

AFTER_BUG_S: Final = 30.0

log = structlog.get_logger()


class Judging:
    """What rules know of the cluster, and the thread that asks them.

    Attributes:
        informers: Resource to informer, for metrics.
        changed: Set when something did.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        informer_settings: InformerSettings = DEFAULTS,
    ) -> None:
        """Remember what to follow; nothing is asked before `run`.

        Args:
            clock: Monotonic seconds.
        """
        self._clock = clock
        self._settings = settings.judge
        self._configured = Configured(
            cluster=Enforcement(settings.judge.enforcement),
            drivers={name: Enforcement(one) for name, one in settings.judge.drivers.items()},
        )
        self._knowledge = Knowledge(settings.judge.features())
        self._changes: dict[Kind, dict[Name, Any]] = {}
        self._bundles: deque[Changes] = deque()
        self._around: Around | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judging")
        self._ready = asyncio.Event()
        self._waiting = 0
        self.changed = asyncio.Event()
        self._stale = asyncio.Event()
        self._kinds = {
            kind: Informer(
                client,
                resource,
                _kept(kind),
                handlers=(self._noted(kind),),
                settings=informer_settings,
            )
            for kind, resource in FOLLOWED.items()
        }
        self._namespaces = Informer(
            client,
            NAMESPACES,
            _labels,
            handlers=(self._surroundings_changed,),
            settings=informer_settings,
        )
        self._mark = Informer(
            client,
            CONFIG_MAPS,
            marked,
            namespace=settings.namespace,
            field_selector=f"metadata.name={settings.judge.inventory}",
            handlers=(self._mark_changed,),
            settings=informer_settings,
        )
        self._growers = {
            words: Informer(
                client,
                resource,
                _presence,
                namespace=namespace,
                field_selector=f"metadata.name={name}",
                handlers=(self._surroundings_changed,),
                settings=informer_settings,
            )
            for words, (resource, namespace, name) in GROWERS.items()
        }
        self.informers: Final[Mapping[str, Informer[Any]]] = {
            **{f"{kind.value} of rules": each for kind, each in self._kinds.items()},
            "namespaces of rules": self._namespaces,
            "high-water mark": self._mark,
        }

    @property
    def marked(self) -> Marked:
        """What the high-water mark says; nothing where there is none."""
        return next(iter(self._mark.store.values()), Marked())

    @property
    def is_marked(self) -> bool:
        """Whether there is a high-water mark."""
        return bool(self._mark.store)

    async def wait_ready(self) -> None:
        """Return once the inventory can be believed."""
        await self._ready.wait()

    async def run(self) -> None:
        """Follow the API server; ends only by cancellation."""
        try:
            async with asyncio.TaskGroup() as group:
                for informer in (
                    *self._kinds.values(),
                    self._namespaces,
                    self._mark,
                    *self._growers.values(),
                ):
                    group.create_task(informer.run())
                awaited = [each for kind, each in self._kinds.items() if kind not in OPTIONAL]
                for each in (*awaited, self._mark, self._namespaces):
                    await each.synced.wait()
                while True:
                    self._stale.clear()
                    await self._take_in()
                    await self._stale.wait()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _take_in(self) -> None:
        """Take notice of what came, so that no review has to wait for a crowd of it; then pause."""
        began = self._clock()
        try:
            classes = await self.asked(Knowledge.stocks, within_s=None)
        except Exception:  # A bug that the rules meet must not cost pods their translation.
            log.exception("judging.failed")
            await asyncio.sleep(AFTER_BUG_S)
            return
        took_s = self._clock() - began
        if not self._ready.is_set():
            self._ready.set()
            log.info("judging.synced", classes=len(classes), took_s=round(took_s, 3))
        await asyncio.sleep(max(TAKE_IN_S, IDLE_PART * took_s))

    def _begin_anew(self) -> None:
        """Forget what is known, of which nobody can tell how much is true, and take all in again."""
        self._ready.clear()
        self._knowledge = Knowledge(self._settings.features())
        self._bundles.clear()
        self._changes = {kind: dict(each.store) for kind, each in self._kinds.items()}
        self._stale.set()

    async def answered(self, question: Callable[[Context], T]) -> T:
        """Return the answer to a review.

        Raises:
            TimeoutError: It takes too long; `without_inventory` has a context to ask again with.
        """
        if not self._ready.is_set():
            return question(self.without_inventory())
        if self._waiting >= self._settings.max_waiting:
            raise TimeoutError
        around = self.around()
        self._waiting += 1
        try:
            return await self.asked(
                lambda knowledge: question(knowledge.context(around)),
                within_s=self._settings.wait_seconds,
            )
        finally:
            self._waiting -= 1

    async def asked(self, question: Callable[[Knowledge], T], *, within_s: float | None) -> T:
        """Return what is answered on the thread, after all changes so far.

        Args:
            within_s: None waits for as long as it takes.

        Raises:
            TimeoutError: It takes longer.
        """
        # The thread takes no part of a change; who is not waited for any more still brings his.
        self._bundles.append(self._changes)
        self._changes = {}

        loop = asyncio.get_running_loop()

        def answer() -> T:
            try:
                while self._bundles:
                    self._knowledge.apply(self._bundles.popleft())
            except Exception:
                loop.call_soon_threadsafe(self._begin_anew)
                raise
            return question(self._knowledge)

        async with asyncio.timeout(within_s):
            return await loop.run_in_executor(self._thread, answer)

    def around(self) -> Around:
        """Return what rules know besides devices and claims."""
        if self._around is None:
            found = self.marked
            growers = {words for words, each in self._growers.items() if each.store}
            self._around = Around(
                namespaces={name: labels for (_, name), labels in self._namespaces.store.items()},
                growers=growers | ({UNREADABLE} if found.problem else set()),
                mark=found.mark,
                configured=self._configured,
            )
        return self._around

    def without_inventory(self) -> Context:
        """Return a context in which nothing is known of devices and claims."""
        return Context(namespaces=self.around().namespaces, configured=self._configured)

    # --- inside ----------------------------------------------------------------------------------

    def _noted(self, kind: Kind) -> Handler[Any]:
        def note(key: tuple[str, str], old: object, new: object) -> None:
            if old != new:  # Most changes are of what is not kept.
                self._changes.setdefault(kind, {})[key] = new
                self.changed.set()
                self._stale.set()

        return note

    def _surroundings_changed(self, _key: Name, _old: object, _new: object) -> None:
        self._around = None

    def _mark_changed(self, _key: Name, _old: object, new: Marked | None) -> None:
        if new is not None and new.problem:
            log.warning("declaration.unreadable", error=new.problem)
        self._around = None
        self.changed.set()


# --- what is kept of an object --------------------------------------------------------------------


class _Head(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


def _kept(kind: Kind) -> Callable[[bytes], Any]:
    """Return what keeps an object of a kind, with what an event about it names."""

    def keep(raw: bytes) -> Any:
        found = KEEP[kind](raw)
        head = decode(raw, _Head).metadata
        owners = tuple(one for one in head.owner_references or () if one.controller) or None
        metadata = replace(found.metadata, uid=head.uid, owner_references=owners)
        return replace(found, metadata=metadata)

    return keep


def _labels(raw: bytes) -> Mapping[str, str]:
    return decode(raw, Namespace).metadata.labels or {}


def _presence(_raw: bytes) -> bool:
    return True
