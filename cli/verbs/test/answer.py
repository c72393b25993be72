"""Comparison of manifests' outcomes with those that a suite expects. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allocator.simulation.model import SimulationOptions, SimulationResult
from allocator.simulation.simulate import simulate_in_order
from answers.manifests.check import CheckReport, build_report, check_objects
from answers.manifests.scheduler_views import route_request
from answers.manifests.simulate import (
    SimulationRequest,
    build_request,
    is_fully_placed,
    with_rejections,
)
from answers.manifests.state_checks import check_state
from answers.manifests.translate import TranslatedObject, translate_objects
from answers.model.findings import finding_text
from answers.model.inputs import Inputs
from cli.reading.suites import Expectation
from findings.finding import Severity


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one test.

    Attributes:
        suite: Name of the suite.
        file: The file of the suite.
        failures: The expectations that failed, each with the actual value; none if it passed.
        error: The reason that it could not be run; empty if it was.
    """

    suite: str
    file: str
    test: str
    failures: tuple[str, ...] = ()
    error: str = ""

    @property
    def is_passed(self) -> bool:
        """Return True if everything is as expected."""
        return not self.failures and not self.error


class SuitesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge test`."""

    tests: tuple[CaseResult, ...]


def find_failures(expect: Expectation, inputs: Inputs) -> tuple[str, ...]:
    """Return the differences from the expected outcome."""
    failures: list[str] = []
    if expect.check is not None or expect.codes or expect.absent_codes:
        schedulers = inputs.validation.policy_aware_schedulers
        results = check_objects(inputs, inputs.features, schedulers)
        report = build_report(results, check_state(inputs))
        failures += _check_failures(expect, report)
    if expect.becomes or expect.classes:
        translated = translate_objects(
            inputs.manifests,
            snapshot=inputs.snapshot,
            options=inputs.options,
            namespace=inputs.namespace,
        )
        failures += _translation_failures(expect, translated)
    if expect.placed is not None or expect.nodes:
        failures += _placement_failures(expect, *_place(inputs))
    return tuple(failures)


def _check_failures(expect: Expectation, report: CheckReport) -> Iterator[str]:
    severity = next(
        (level for level in (Severity.ERROR, Severity.WARNING) if report.has(level)), Severity.INFO
    )
    outcome = {Severity.ERROR: "rejected", Severity.WARNING: "warned"}.get(severity, "accepted")
    if expect.check not in {None, outcome}:
        lines = [entry.described.line() for entry in report.findings]
        worst = f": {lines[0]}" if lines and outcome != "accepted" else ""
        yield f"check: expected {expect.check}, is {outcome}{worst}"
    codes = list(dict.fromkeys(entry.finding.code.value for entry in report.findings))
    for code in expect.codes:
        if code not in codes:
            yield f"codes: expected {code}, found {', '.join(codes) or 'none'}"
    for code in expect.absent_codes:
        if code in codes:
            line = next(
                entry.described.line() for entry in report.findings if entry.finding.code == code
            )
            yield f"absentCodes: found {line}"


def _translation_failures(
    expect: Expectation, results: Sequence[TranslatedObject]
) -> Iterator[str]:
    by_name = {name: result for result in results for name in _names(result.reference)}
    for name, expected in expect.becomes.items():
        result = by_name.get(name)
        if result is None:
            yield _unknown("becomes", name, [result.reference for result in results])
            continue
        outcome = _outcome(result)
        if outcome != expected:
            lines = [finding.message for finding in result.findings]
            why = f": {lines[0]}" if lines else ""
            yield f"becomes: expected {name} {expected}, is {outcome}{why}"
    for name, classes in expect.classes.items():
        result = by_name.get(name)
        if result is None:
            yield _unknown("classes", name, [result.reference for result in results])
            continue
        class_names = sorted({name for claim in result.claims for name in claim.class_names()})
        if class_names != sorted(set(classes)):
            yield (
                f"classes: expected {', '.join(sorted(classes)) or 'none'} of {name}, are "
                f"{', '.join(class_names) or 'none'}"
            )


def _outcome(result: TranslatedObject) -> str:
    if result.document is None:
        return "rejected"
    return "translated" if result.is_changed else "unchanged"


def _place(inputs: Inputs) -> tuple[SimulationResult, SimulationRequest]:
    """Return the placement of the manifests, as `drawbridge simulate` has it, and the request for it."""
    validation = inputs.validation
    request, _, views = route_request(
        build_request(inputs, inputs.features),
        inputs.features,
        validation.policy_aware_schedulers,
        validation.uniform_config_drivers,
    )
    options = SimulationOptions(
        pool_strategies=request.state.pool_strategies,
        weights=request.state.weights,
        explained_failures=3,
    )
    answer = simulate_in_order(views.cluster, request.question, options, views.other_views)
    return with_rejections(answer, request), request


def _placement_failures(
    expect: Expectation, answer: SimulationResult, request: SimulationRequest
) -> Iterator[str]:
    if expect.placed not in {None, is_fully_placed(answer, request)}:
        if expect.placed:
            names = ", ".join(dict.fromkeys(_unplaced_names(answer, request)))
            reason = next(_unplaced_reasons(answer, request), "")
            yield f"placed: expected all, without devices are {names}{reason and f': {reason}'}"
        else:
            yield "placed: expected that something finds no devices, and everything does"
    nodes: dict[str, str | None] = {}
    for claim in answer.claims:
        nodes[f"ResourceClaim/{claim.namespace}/{claim.name}"] = claim.node
    for pod in answer.pods:
        nodes[f"Pod/{pod.namespace}/{pod.name}"] = pod.node
    for name, expected in expect.nodes.items():
        full = _full_name(name, nodes)
        if full is None:
            yield _unknown("nodes", name, list(nodes))
        elif nodes[full] != expected:
            yield f"nodes: expected {name} on {expected or 'no node'}, is on {nodes[full] or 'none'}"


def _unplaced_names(answer: SimulationResult, request: SimulationRequest) -> Iterator[str]:
    """Yield the pods and claims without a place, and the objects that are rejected."""
    for pod in answer.pods:
        if pod.node is None:
            yield f"Pod/{pod.namespace}/{pod.name}"
    for claim in answer.claims:
        if claim.allocation is None:
            yield f"ResourceClaim/{claim.namespace}/{claim.name}"
    for entry in request.findings:
        if entry.finding.is_error:
            yield entry.object


def _unplaced_reasons(answer: SimulationResult, request: SimulationRequest) -> Iterator[str]:
    """Yield the reasons for missing places, those of rejections first."""
    yield from (finding_text(entry.finding) for entry in request.findings if entry.finding.is_error)
    yield from (str(pod.reason) for pod in answer.pods if pod.node is None and pod.reason)
    yield from (group.reason for group in answer.groups if group.reason)
    yield from (reason.message for node in answer.nodes for reason in node.reasons)


def _names(reference: str) -> tuple[str, ...]:
    """Return an object's name in full, and `Kind/name`."""
    kind, _, name = reference.split("/", 2)
    return reference, f"{kind}/{name}"


def _full_name(name: str, references: Mapping[str, object]) -> str | None:
    return next((full for full in references if name in _names(full)), None)


def _unknown(field: str, name: str, references: Sequence[str]) -> str:
    return f"{field}: there is no {name}; there are {', '.join(references) or 'none'}"
