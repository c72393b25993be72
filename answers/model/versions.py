"""Documents of older API versions as those that views are made of, and findings in their terms."""

from collections.abc import Iterable

from answers.model.kinds import Kinds
from answers.model.views import T, decode_view
from findings.field_path import FieldPath
from findings.finding import Finding
from kube.api.conversion import current_version, to_current_version, to_original_path
from kube.api.meta import ApiStruct
from kube.manifests.source import SourceObject, ViewedObject


def view_type(source: SourceObject | ViewedObject, kinds: Kinds) -> type[ApiStruct] | None:
    """Return the view of an object in any version; None for other kinds."""
    return kinds.get((current_version(source.api_version, source.kind), source.kind))


def decode_object(source: SourceObject, kind: type[T]) -> T | list[Finding]:
    """Return an object as a view, or a finding for every value of the wrong type."""
    value = decode_view(to_current_version(source.document), kind)
    return original_paths(value, source) if isinstance(value, list) else value


def original_paths(findings: Iterable[Finding], source: SourceObject) -> list[Finding]:
    """Return findings on the converted object with paths into the original one."""

    def original_path(path: FieldPath) -> FieldPath:
        return FieldPath(to_original_path(path.steps, source.api_version, source.kind))

    return [finding.relocated(original_path) for finding in findings]
