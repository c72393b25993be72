"""The translation of a pod in five steps: read, route, compile, record, check.

The decision is pure, and the same for the webhook and the command line. It has two halves: this one
reads the pod and the snapshot and builds the translation record, with only the facts that matter;
`translation.record.derive` compiles claims from the record alone.
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from findings.finding import Code, Finding, has_errors, warning
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod, Variable
from translation.pipeline.check import check_pod
from translation.pipeline.compile import compile_pod
from translation.pipeline.read import read_pod
from translation.pipeline.record import record_pod
from translation.pipeline.route import route_pod
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading import arbiter
from translation.record.record import TranslationRecord, VocabularyDriver


class Untouched(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is left as it is."""

    findings: tuple[Finding, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is invalid, or a claim cannot express it; at least one finding is an error.

    Attributes:
        drivers: The vocabularies of its keys, with their drivers as far as they were chosen.
    """

    findings: tuple[Finding, ...]
    drivers: tuple[VocabularyDriver, ...] = ()


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The translation of a pod.

    Attributes:
        annotation: The record, encoded.
        claims: The claims, with the containers that use them.
        variables: The environment variables to add where a container does not set them.
        scheduler_name: The scheduler that gets the pod; None for no change.
    """

    record: TranslationRecord
    annotation: str
    claims: tuple[Claim, ...]
    variables: tuple[Variable, ...] = ()
    scheduler_name: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def drivers(self) -> tuple[VocabularyDriver, ...]:
        """The vocabularies of its keys, with their drivers."""
        return self.record.vocabulary_drivers()


Outcome = Untouched | Refused | Translated


def translate(
    legacy: LegacyPod,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    passes_through: bool = True,
) -> Outcome:
    """Translate a pod that carries no translation record.

    The snapshot's templates are not read: a name that is in use changes no translation.

    Args:
        namespace: The pod's namespace; at admission the pod's own field may be empty.
        passes_through: True if a pod stays as it is when Kubernetes itself can allocate its
            devices.
    """
    reading = read_pod(
        legacy,
        namespace=namespace,
        snapshot=snapshot,
        options=options,
        passes_through=passes_through,
    )
    if isinstance(reading, Stop):
        codes = {finding.code for finding in reading.findings}
        if not legacy.scheduler_name or Code.FOREIGN_SCHEDULER not in codes:
            inputs = PodInput(
                legacy=legacy, namespace=namespace, snapshot=snapshot, options=options
            )
            return _end(reading, inputs)
        # A person who removes the scheduler would meet the pod's other faults one denial later.
        moved = translate(
            replace(legacy, scheduler_name=""),
            namespace=namespace,
            snapshot=snapshot,
            options=options,
            passes_through=passes_through,
        )
        return Untouched(findings=(*reading.findings, *_later_denials(moved)))
    routing = route_pod(reading)
    compilation = compile_pod(reading, routing)
    recording = record_pod(reading, routing, compilation)
    findings = check_pod(reading, routing, compilation, recording)
    if has_errors(findings):
        return Refused(
            findings=findings,
            drivers=_with_unserved(recording.record.vocabulary_drivers(), reading.owned_keys),
        )
    derivation = compilation.derivation
    if not derivation.claims and not reading.has_amounts:
        return Untouched(findings=findings)
    is_moved = reading.scheduler != legacy.scheduler_name
    return Translated(
        record=recording.record,
        annotation=recording.annotation,
        claims=derivation.claims,
        variables=derivation.variables,
        scheduler_name=reading.scheduler if is_moved else None,
        findings=findings,
    )


def _end(stop: Stop, inputs: PodInput) -> Untouched | Refused:
    """Return the outcome of a pod that does not meet a precondition."""
    legacy = inputs.legacy
    if not has_errors(stop.findings):
        return Untouched(findings=stop.findings)
    owners = arbiter.owners(
        # A key may stand in the requests alone, which is one of the faults.
        replace(
            legacy,
            containers=tuple(
                replace(container, limits={**container.requests, **container.limits})
                for container in legacy.containers
            ),
        ),
        default_gpu_owner=inputs.default_gpu_owner,
        vocabularies=vocabularies_in_force(inputs.options, inputs.snapshot.profiles),
    )
    return Refused(findings=stop.findings, drivers=_with_unserved((), owners))


def _with_unserved(
    served: tuple[VocabularyDriver, ...], owners: Iterable[str]
) -> tuple[VocabularyDriver, ...]:
    """Return the vocabularies with a driver, and then the owners without one."""
    served_names = {vocabulary for vocabulary, _ in served}
    unserved = (VocabularyDriver(name, "") for name in owners if name not in served_names)
    return (*served, *unserved)


def _later_denials(outcome: Outcome) -> Iterator[Finding]:
    """Yield the errors of a pod that is to be translated later, as warnings about it now."""
    if isinstance(outcome, Refused):
        for finding in outcome.findings:
            if finding.is_error:
                detail = f"once the pod is translated, it is denied: {finding.detail}"
                yield warning(finding.code, finding.path, detail, finding.fix)
