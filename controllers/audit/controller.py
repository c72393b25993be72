"""The audit: validates stored objects, and keeps the high-water mark of the inventory.

It writes the ConfigMap of the mark, events, and reports of policies; a validated object is never changed.
Validation takes a fifth of a core at most, however much is stored.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from allocator.pods.duplicate_resources import (
    DuplicateResource,
    duplicate_resources,
    no_drivers,
)
from clusterstate.evaluator import RuleEvaluator
from clusterstate.high_water_config_map import config_map_document, once_published, seen_patch
from clusterstate.kinds import Kind
from clusterstate.rule_cache import RuleCache
from controllers.audit.claim_blind import (
    ClaimBlindObject,
    count_claim_blind_objects,
    list_claim_blind_objects,
    log_claim_blind_objects,
    report_claim_blind_object,
)
from controllers.audit.metrics import AuditMetrics
from controllers.audit.policy_report_writer import PolicyReportWriter
from controllers.audit.policy_reports import ReportedFinding, report_duplicate
from controllers.audit.report import (
    API_VERSION,
    AUDITED,
    Audited,
    count_duplicates,
    event_of,
    findings_of,
    tally,
)
from controllers.audit.uncounted_templates import list_evaded_quotas, summarize_templates
from controllers.audit.unsearched_kinds import UnsearchedKinds
from controllers.audit.untranslated import UntranslatedPods, count_findings
from controllers.model.evaluating_parts import EvaluatingParts
from controllers.model.settings import Settings
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from kube.api.events import Event
from kube.api.policy_reports import ReportSubject
from kube.api.urls import CONFIG_MAPS
from kube.cel.scope import AnswersPending, BudgetSpent, Meter, evaluating
from kube.client.client import Client, PatchType
from kube.collections.interleaving import interleave
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder, NewEventRecorder
from process.running.leader_election import Work
from rules.feasibility.high_water_mark import HighWaterMark, raise_mark
from translation.cluster.serving_drivers import serving_drivers
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile

AUDIT: Final = "audit"
EVADED_QUOTAS: Final = "evaded quotas"
HIGH_WATER_MARK: Final = "high-water-mark"
"""The only keys; both are reconciled from time to time."""
IDLE_FACTOR: Final = 4.0
"""Validation is followed by a pause of so many times what it took."""
BATCH: Final = 16
"""Objects that are validated at a time; a Lease has to be renewed meanwhile."""
MAX_STEPS: Final = 300_000
"""Steps of one object, evaluations of its selectors included: a second or two."""
NOT_EVALUATED: Final = warning(
    Code.NOT_EVALUATED,
    FieldPath.of("spec"),
    "it was not validated: its selectors take longer than the audit evaluates those of one object",
)
FAILED: Final = warning(
    Code.NOT_EVALUATED,
    FieldPath.of("spec"),
    "it was not validated: nothing evaluated its selectors, or a bug ended it; the log of the controllers says what",
)
MAX_LOGGED: Final = 100
"""Resources that nodes offer twice, in the log of one audit."""

log = get_logger()

Result = tuple[str, Audited, tuple[Finding, ...]]
"""Kind, object and findings."""


class AuditController:
    """Validates stored objects and raises the high-water mark; the leader runs it.

    Attributes:
        controllers: The controllers to be run.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        evaluator: RuleEvaluator,
        recorder: EventRecorder,
        metrics: AuditMetrics,
        *,
        pods: UntranslatedPods,
        reports: PolicyReportWriter,
        drivers_of: Callable[[str], Collection[str]] = no_drivers,
        profiles: Callable[[], Mapping[str, Profile]] = dict,
        options: TranslationOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Queue the first audit, and the first look at the inventory.

        Args:
            pods: The live pods with device keys that nothing translates.
            reports: Gets the findings about objects after each audit.
            drivers_of: Resource name to the drivers that serve it according to their profiles.
            profiles: Returns driver to the profile in force.
            options: The translation's options.
            clock: Monotonic seconds.
        """
        self._client = client
        self._namespace = settings.namespace
        self._config_map = settings.validation.inventory_config_map
        self._settings = settings.controllers
        self._evaluator = evaluator
        self._recorder = NewEventRecorder(recorder)
        self._metrics = metrics
        self._pods = pods
        self._reports = reports
        self._drivers_of = drivers_of
        self._profiles = profiles
        self._options = options or TranslationOptions()
        self._clock = clock
        self._unsearched_kinds = UnsearchedKinds()
        self._blind_objects: list[ClaimBlindObject] = []
        self._evaded_quotas: list[ClaimBlindObject] = []
        controller: Controller[str] = Controller(
            "audit", self._reconcile, backoff=settings.controllers.backoff(), workers=2
        )
        for key in (HIGH_WATER_MARK, AUDIT):
            controller.queue.add(key)
        self.controllers: Final = (controller,)

    async def _reconcile(self, key: str) -> float:
        await self._evaluator.wait_ready()
        if key == HIGH_WATER_MARK:
            await self._raise_mark()
            return self._settings.inventory_update_period
        await self._audit()
        return self._settings.audit_period

    # --- the high-water mark ----------------------------------------------------------------------

    async def _raise_mark(self) -> None:
        """Write the mark if the inventory is larger than ever before, or if there is none."""
        if not self._evaluator.changed.is_set():
            return
        self._evaluator.changed.clear()
        try:
            stocks = await self._evaluator.query(RuleCache.stocks)
            before = self._evaluator.high_water_marks.seen
            raised_mark = raise_mark(before, stocks)
            if raised_mark != before or not self._evaluator.has_high_water_marks:
                await self._write_mark(raised_mark)
        except Exception:
            self._evaluator.changed.set()  # So that it is tried again.
            raise

    async def _write_mark(self, raised_mark: HighWaterMark) -> None:
        try:
            raw = await self._client.patch(
                CONFIG_MAPS,
                self._config_map,
                seen_patch(raised_mark),
                PatchType.MERGE,
                msgspec.Raw,
                namespace=self._namespace,
            )
        except NotFound:
            document = config_map_document(
                raised_mark, namespace=self._namespace, name=self._config_map
            )
            raw = await self._client.create(
                CONFIG_MAPS, document, msgspec.Raw, namespace=self._namespace
            )
        self._evaluator.put_high_water_marks(bytes(raw))
        log.info("high_water_mark.raised", classes=len(raised_mark.classes))

    # --- stored objects ---------------------------------------------------------------------------

    async def _audit(self) -> None:
        """Validate all stored objects, and record an event for new findings."""
        began_s, max_events = self._clock(), self._settings.max_audit_events
        results: list[tuple[str, tuple[Finding, ...]]] = []
        reported: list[ReportedFinding] = []
        new_events: list[Event] = []
        counts: Counter[str] = Counter()
        for kind in AUDITED:
            objects = await self._evaluator.query(partial(_stored_objects, kind))
            for start in range(0, len(objects), BATCH):
                batch = objects[start : start + BATCH]
                for name, audited_name, findings in await self._validate(kind, batch):
                    results.append((name, findings))
                    reported += _reported(name, audited_name, findings)
                    event = event_of(name, audited_name, findings)
                    namespace = audited_name.metadata.namespace
                    # No namespace gets more than all events, so no more of it are kept.
                    if event is None or counts[namespace] == max_events:
                        continue
                    if self._recorder.is_new(event):
                        counts[namespace] += 1
                        new_events.append(event)
        self._record(new_events)
        families = self._pods.summarize(await self._evaluator.query(_mapped_resources))
        for family in families:
            log.info("device_keys.not_translated", **msgspec.structs.asdict(family))
        duplicates = await self._evaluator.query(self._duplicate_resources)
        for duplicate in duplicates[:MAX_LOGGED]:
            log.warning("resource.offered_twice", **msgspec.to_builtins(duplicate, enc_hook=str))
        self._blind_objects = await list_claim_blind_objects(
            self._client, self._pods.vocabularies, self._unsearched_kinds, self._blind_objects
        )
        blind = [*self._blind_objects, *await self._list_evaded_quotas()]
        log_claim_blind_objects(blind)
        others = {
            **count_findings(families),
            **count_duplicates(duplicates),
            **count_claim_blind_objects(blind),
        }
        took_s = self._clock() - began_s
        self._metrics.show(tally(results, others), took_s)
        reported += (*map(report_duplicate, duplicates), *map(report_claim_blind_object, blind))
        await self._reports.write(reported)
        log.info("audit.completed", objects=len(results), took_s=round(took_s, 3))

    def _record(self, new_events: Iterable[Event]) -> None:
        """Record as many events as one audit may; namespaces take turns, and so do all objects without one."""
        in_turns = interleave(new_events, lambda event: event.regarding.namespace)
        for event in islice(in_turns, self._settings.max_audit_events):
            self._recorder.record(event)

    async def _list_evaded_quotas(self) -> list[ClaimBlindObject]:
        marks = once_published(self._evaluator.high_water_marks.combined_mark)
        summarize = partial(summarize_templates, profiles=self._profiles(), once_published=marks)
        snapshot = await self._evaluator.query(summarize)
        try:
            self._evaded_quotas = await list_evaded_quotas(self._client, snapshot, self._options)
        except KubeError as fault:  # Those of the last audit count.
            if self._unsearched_kinds.needs_another_try(EVADED_QUOTAS):
                raise
            log.warning("quotas.not_searched", error=str(fault))
        else:
            self._unsearched_kinds.searched(EVADED_QUOTAS)
        return self._evaded_quotas

    def _duplicate_resources(self, cache: RuleCache) -> tuple[DuplicateResource, ...]:
        context = cache.context()
        cluster = context.current_cluster
        if cluster is None:
            return ()
        nodes = cluster.nodes.values()
        return duplicate_resources(nodes, cluster.node_devices, context.classes, self._drivers_of)

    async def _validate(self, kind: Kind, batch: tuple[Audited, ...]) -> list[Result]:
        facts = self._evaluator.facts()
        meters = [Meter(MAX_STEPS) for _ in batch]

        def validate(cache: RuleCache) -> list[Result]:
            context = cache.context(facts)
            results: list[Result] = []
            pending: AnswersPending | None = None
            for audited_object, meter in zip(batch, meters, strict=True):
                try:
                    with evaluating(tenant=audited_object.metadata.namespace, meter=meter):
                        findings = findings_of(audited_object, context)
                except AnswersPending as error:
                    pending = error  # So that the worker is asked for all of them at once.
                except BudgetSpent:
                    results.append((AUDITED[kind], audited_object, (NOT_EVALUATED,)))
                else:
                    results.append((AUDITED[kind], audited_object, findings))
            if pending is not None:
                raise pending
            return results

        namespaces = {audited_object.metadata.namespace for audited_object in batch}
        began_s = self._clock()
        try:
            results = await self._evaluator.query(
                validate, tenant=namespaces.pop() if len(namespaces) == 1 else ""
            )
        # A bug that one object meets must not cost the others their audit, nor count as cured.
        except Exception:
            log.exception(
                "audit.failed", objects=[audited_object.metadata.name for audited_object in batch]
            )
            if len(batch) == 1:
                results = [(AUDITED[kind], batch[0], (FAILED,))]
            else:
                parts = [await self._validate(kind, (audited_object,)) for audited_object in batch]
                return [result for part in parts for result in part]
        await asyncio.sleep((self._clock() - began_s) * IDLE_FACTOR)
        return results


def _reported(
    kind: str, audited_object: Audited, findings: tuple[Finding, ...]
) -> Iterator[ReportedFinding]:
    metadata = audited_object.metadata
    for finding in findings:
        subject = ReportSubject(
            api_version=API_VERSION,
            kind=kind,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
        )
        yield ReportedFinding(subject, finding)


def _mapped_resources(cache: RuleCache) -> Mapping[str, str]:
    return cache.context().extended_resources


def _stored_objects(kind: Kind, cache: RuleCache) -> tuple[Any, ...]:
    return tuple(cache.objects(kind))


def controller(parts: EvaluatingParts, metrics: AuditMetrics) -> Work:
    """Return the audit."""
    options, profiles = parts.options, parts.profiles
    audit = AuditController(
        parts.client,
        parts.settings,
        parts.evaluator,
        parts.recorder,
        metrics,
        pods=UntranslatedPods(parts.informers, parts.vocabularies, options.kept),
        reports=PolicyReportWriter(
            parts.client,
            parts.settings.controllers.audit_reports,
            metrics.show_reports,
            now=parts.now,
        ),
        drivers_of=lambda resource: serving_drivers(resource, options, profiles.profiles),
        profiles=lambda: profiles.profiles,
        options=options,
    )
    return Work(controllers=audit.controllers)
