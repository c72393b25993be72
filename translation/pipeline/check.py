"""The fifth step of a translation: all findings about a pod and its claims."""

from findings.field_path import Key
from findings.finding import Code, Finding
from kube.api.resource import MAX_RESULTS
from kube.quantity import Quantity
from translation.model.keys import DEVICES, Place
from translation.pipeline.compile import Compilation
from translation.pipeline.published_sizes import holds_for_sizes, with_published_sizes
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
    findings = tuple(
        with_published_sizes(_with_most_devices(finding, reading), inputs)
        for finding in findings
        if holds_for_sizes(finding, inputs)
    )
    return (*reading.expanded.locate(findings), *reading.network_findings)


def _with_most_devices(finding: Finding, reading: PodReading) -> Finding:
    """Return a finding on too many devices with the most that one claim has, if a key counts devices.

    Not where several containers have the key, since nobody but the author can divide the devices.
    """
    step = finding.path.steps[-1] if finding.path.steps else None
    if finding.code is not Code.TOO_MANY_DEVICES or not isinstance(step, Key):
        return finding
    counts_devices = any(
        row.name == step.name and row.place is Place.LIMIT and row.unit == DEVICES
        for owner in reading.owners
        for row in owner.table
    )
    users = sum(step.name in container.limits for container in reading.legacy.containers)
    return finding.corrected_by(Quantity(MAX_RESULTS)) if counts_devices and users == 1 else finding
