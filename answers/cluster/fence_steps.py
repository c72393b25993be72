"""The writes that bring the fence of the bridge up to date, as commands of a shell, too. Pure."""

import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from admission.fence import fence_documents, is_fence_of, is_part_current, part_patch
from answers.model.bridge import BridgeObjects
from kube.api.ownership import OPEN_CONDITION, FencePolicy
from kube.api.urls import VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS
from kube.cel.quoting import quote
from kube.manifests.dump import dump_yaml
from kube.names import FENCE

Document = Mapping[str, Any]

_POLICY: Final = f"ValidatingAdmissionPolicy/{FENCE}"
_END: Final = "END"
"""The end marker of here-documents. Drivers are names of DNS, so no line of a document is this one.
"""
_RESOURCES: Final = {
    "ValidatingAdmissionPolicy": VALIDATING_ADMISSION_POLICIES.plural,
    "ValidatingAdmissionPolicyBinding": VALIDATING_ADMISSION_POLICY_BINDINGS.plural,
}
_PARTS: Final[Mapping[str, Document]] = {
    f"{document['kind']}/{document['metadata']['name']}": document
    for document in fence_documents(())[1:]
}
"""`Kind/name` of each part but the first policy, which alone names drivers."""


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One write, or a pause.

    Attributes:
        title: The title of the step, for people.
        command: The shell command: a line, or a here-document.
        resource: Plural of the object that is written; empty for a pause.
        name: The object's name; empty if several objects are created.
        patch: A merge patch; None where documents are created, or where there are operations.
        operations: A JSON Patch. It changes nothing where the spec is not the one that was read.
        documents: The objects to create.
        pause_seconds: The pause in seconds.
    """

    title: str
    command: str
    resource: str = ""
    name: str = ""
    patch: Document | None = None
    operations: tuple[Document, ...] = ()
    documents: tuple[Document, ...] = ()
    pause_seconds: int = 0


def changed_parts(objects: BridgeObjects) -> tuple[str, ...]:
    """Return `Kind/name` of the stored parts, other than the first policy, with another text than ours."""
    return tuple(
        part
        for part, document in _PARTS.items()
        if part in objects.parts and not is_part_current(objects.parts[part], document)
    )


def fence_steps(drivers: Collection[str], objects: BridgeObjects) -> Iterator[Step]:
    """Yield the steps that create the missing parts of the fence and change the others.

    The parts besides the first policy name no driver: they change with the version of drawbridge only.
    """
    is_missing = objects.is_read and objects.fence is None
    missing_parts = {*objects.missing_parts, *([_POLICY] if is_missing else ())}
    documents = tuple(
        document
        for document in fence_documents(drivers)
        if f"{document['kind']}/{document['metadata']['name']}" in missing_parts
    )
    if documents:
        yield Step(
            title="create the fence" if is_missing else "create the missing parts of the fence",
            command=create_command(documents),
            resource="validatingadmissionpolicies",
            documents=documents,
        )
    for part in changed_parts(objects):
        kind, _, name = part.partition("/")
        patch = part_patch(_PARTS[part])
        yield Step(
            title=f"bring {part} up to date",
            command=patch_command(kind.lower(), name, patch),
            resource=_RESOURCES[kind],
            name=name,
            patch=patch,
        )
    if is_missing:
        return
    fence, *_ = fence_documents(drivers)
    metadata = (objects.fence or {}).get("metadata") or {}
    operations = (
        *spec_tests(metadata.get("generation", 0)),
        {"op": "replace", "path": "/spec", "value": fence["spec"]},
    )
    yield Step(
        title="change the fence in place",
        command=json_patch_command("validatingadmissionpolicy", FENCE, operations),
        resource="validatingadmissionpolicies",
        name=FENCE,
        operations=operations,
    )


def create_command(documents: Collection[Document]) -> str:
    """Return a here-document that every shell and a person can read."""
    return f"kubectl create -f - <<'{_END}'\n{dump_yaml(documents)}{_END}"


def patch_command(resource: str, name: str, patch: Document) -> str:
    """Return the command that makes a merge patch."""
    text = shlex.quote(msgspec.json.encode(patch).decode())
    return f"kubectl patch {resource} {name} --type=merge -p {text}"


def json_patch_command(resource: str, name: str, operations: Collection[Document]) -> str:
    """Return the command that makes a JSON Patch."""
    text = shlex.quote(msgspec.json.encode(operations).decode())
    return f"kubectl patch {resource} {name} --type=json -p {text}"


def spec_tests(generation: int) -> Iterator[Document]:
    """Yield the test of a JSON Patch that the spec is still as it was read.

    A resourceVersion would be too strict: the bridge writes the status of the ownership while it works, and
    Kubernetes that of a policy after each change.

    Args:
        generation: metadata.generation of the object that was read; 0 if it is not known, for no test.
    """
    if generation:
        yield {"op": "test", "path": "/metadata/generation", "value": generation}


def listed_drivers(drivers: Collection[str], objects: BridgeObjects) -> frozenset[str]:
    """Return those of some drivers that the stored fence lists, so that it keeps others from them."""
    if objects.fence is None:
        return frozenset()
    policy = msgspec.convert(objects.fence, FencePolicy)
    return frozenset(driver for driver in drivers if policy.lists(quote(driver)))


def fence_state(objects: BridgeObjects, drivers_of_bridge: Collection[str]) -> str:
    """Return the state of the fence, as `BridgeStatus` has it."""
    if not objects.is_read:
        return "unknown"
    if objects.fence is None:
        return "missing"
    conditions = (objects.fence.get("spec") or {}).get("matchConditions") or ()
    if any(condition.get("expression") == OPEN_CONDITION["expression"] for condition in conditions):
        return "open"
    if objects.missing_parts:
        return "incomplete"
    is_current = is_fence_of(objects.fence, drivers_of_bridge) and not changed_parts(objects)
    return "current" if is_current else "different"
