"""The fifth step of a translation: all findings about a pod and its claims."""

from findings.finding import Finding
from translation.pipeline.compile import Compilation
from translation.pipeline.read import PodReading
from translation.pipeline.record import Recording
from translation.pipeline.route import Routing
from translation.preflight.chain.checks import run_checks
from translation.preflight.model.inputs import PreflightInput


def check_pod(
    reading: PodReading, routing: Routing, compilation: Compilation, recording: Recording
) -> tuple[Finding, ...]:
    """Return the findings of all steps and preflight checks, each at its place in the pod."""
    derivation = compilation.derivation
    inputs = PreflightInput(
        legacy=reading.legacy,
        namespace=reading.namespace,
        snapshot=reading.snapshot,
        options=reading.options,
        vocabularies=reading.vocabularies,
        owners=reading.owners,
        readings=reading.readings,
        providers=routing.providers,
        claims=derivation.claims,
        variables=derivation.variables,
        scheduler=reading.scheduler,
    )
    findings = (
        *recording.findings,
        *routing.findings,
        *derivation.findings,
        *run_checks(inputs),
    )
    return (*reading.expanded.locate(findings), *reading.network_findings)
