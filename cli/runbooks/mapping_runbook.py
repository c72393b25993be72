"""The commands of `prepare.sh` that give resource names to DeviceClasses, and take them from others. Pure."""

from collections.abc import Iterator

from cli.runbooks.object_changes import FieldChange, change_lines
from cli.runbooks.opt_in_runbook import COMMIT_TIMEOUT
from cli.runbooks.shell import command, comment, quoted
from migration.plan.drivers.vendors import unmap_command
from migration.plan.facts.environment import chart_names, in_repository
from migration.plan.facts.repository_patches import commit_text
from migration.plan.model.plan import Plan


def chart_mapping_lines(driver: str, plan: Plan) -> Iterator[str]:
    """Yield the lines that take a foreign resource name from a driver's class if its chart maps one."""
    resource = chart_names(plan).get(driver)
    if resource is None:
        return
    yield comment(
        f"Its chart has DeviceClass {driver} map {resource}, too. Of two classes Kubernetes takes the younger, so pods"
    )
    yield "# for whole devices would get shares, or none. This takes the name back, after each upgrade of the chart, too:"
    yield from _unmap_lines(driver, resource, plan)


def wide_mapping_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines that take resource names from classes that give other devices, too.

    Those of a repository are taken from them there, and the script stops until that is done.
    """
    for mapping in plan.wide_mappings:
        name, resource = mapping.device_class, mapping.resource
        if chart_names(plan).get(name) == resource:
            continue
        yield ""
        yield comment(f"DeviceClass {name} maps {resource}, and {mapping.reason}.")
        yield "# Pods that have the key still would get any of its devices on switched nodes. Pods that run keep theirs."
        yield from _unmap_lines(name, resource, plan)


def _unmap_lines(name: str, resource: str, plan: Plan) -> Iterator[str]:
    """Yield the lines that take a resource name from a class, or wait for the repository that has the class."""
    yield f"if {_is_mapped(name, resource)}; then"
    if in_repository(plan, "DeviceClass", "", name):
        order = commit_text(plan, "prepare", f"DeviceClass//{name}")
        text = (
            f"held: DeviceClass {name} maps {resource} still: {order}, or without the class "
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
