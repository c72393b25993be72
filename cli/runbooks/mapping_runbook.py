"""The commands of `prepare.sh` that give resource names to DeviceClasses, and take them from others. Pure."""

from collections.abc import Iterator

from cli.runbooks.object_changes import FieldChange, change_lines
from cli.runbooks.opt_in_runbook import COMMIT_TIMEOUT
from cli.runbooks.shell import command, comment, quoted
from migration.assessment.chart_names import CHART_MAPPINGS
from migration.plan.facts.environment import KUSTOMIZE, in_repository
from migration.plan.facts.vendors import unmap_command
from migration.plan.model.plan import Plan


def chart_mapping(driver: str, plan: Plan) -> str:
    """Return the foreign resource name of the class in a driver's chart; empty if the plan maps it to that class, too."""
    resource = CHART_MAPPINGS.get(driver, "")
    return "" if plan.mapped_classes.get(resource) == driver else resource


def chart_mapping_lines(driver: str, plan: Plan) -> Iterator[str]:
    """Yield the lines that take a foreign resource name from a driver's class if its chart maps one."""
    resource = chart_mapping(driver, plan)
    if not resource:
        return
    yield comment(
        f"Its chart has DeviceClass {driver} map {resource}, too. Of two classes Kubernetes takes the younger, so pods"
    )
    yield "# for whole devices would get shares, or none. This takes the name back, after each upgrade of the chart, too:"
    if plan.format == KUSTOMIZE:
        yield comment(
            f"remove spec.extendedResourceName of DeviceClass {driver} where the repository has it; without the class in a"
        )
        yield comment(f"repository: {unmap_command(driver)}")
        return
    yield f"if {_is_mapped(driver, resource)}; then"
    yield f"  {unmap_command(driver)}"
    yield "fi"


def wide_mapping_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines that take resource names from classes that give other devices, too.

    Those of a repository are taken from them there, and the script stops until that is done.
    """
    for mapping in plan.wide_mappings:
        name, resource = mapping.device_class, mapping.resource
        if name in plan.drivers and chart_mapping(name, plan) == resource:
            continue
        yield ""
        yield comment(f"DeviceClass {name} maps {resource}, and {mapping.reason}.")
        yield "# Pods that have the key still would get any of its devices on switched nodes. Pods that run keep theirs."
        yield f"if {_is_mapped(name, resource)}; then"
        if in_repository(plan, "DeviceClass", "", name):
            text = (
                f"held: DeviceClass {name} maps {resource} still: commit kustomize/prepare of the plan, or without the class "
                f"in a repository run {unmap_command(name)}; then run this again"
            )
            yield f"  echo {quoted(text)} >&2"
            yield "  exit 1"
        else:
            yield f"  {unmap_command(name)}"
        yield "fi"


def mapping_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines that have classes map resource names."""
    for resource, name in plan.mapped_classes.items():
        if in_repository(plan, "DeviceClass", "", name):
            yield command(
                *("kubectl", "wait", f"deviceclass/{name}", f"--timeout={COMMIT_TIMEOUT}"),
                f"--for=jsonpath={{.spec.extendedResourceName}}={resource}",
            )
            continue
        yield comment(
            f"Pods with {resource} are served by Kubernetes itself, on nodes with the plugin and with the driver."
        )
        mapping = FieldChange(path=("spec", "extendedResourceName"), before=None, after=resource)
        yield from change_lines(f"deviceclass/{name}", "", [mapping])


def _is_mapped(name: str, resource: str) -> str:
    """Return the test that a class has a resource name."""
    words = ("kubectl", "get", "deviceclass", name, "--ignore-not-found")
    mapped = command(*words, "--output=jsonpath={.spec.extendedResourceName}")
    return f'[ "$({mapped})" = {quoted(resource)} ]'
