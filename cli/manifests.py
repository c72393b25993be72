"""What becomes of each object of a manifest: the decisions of `drawbridge translate`, pure.

The decision about a pod is the webhook's own function; here is only what files add to it: pod templates inside
workloads, the templates of claims written out, and objects that are none of ours.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cli.reading import KINDS, viewed, viewed_pod
from cli.report import Reported, namespace_of, reference
from kube.api.core import Pod
from kube.api.meta import ObjectHead
from kube.files import SourceObject
from webhook.admission import Answer, admit_created
from webhook.claims import Claim
from webhook.findings import Finding
from webhook.jsonpatch import apply
from webhook.workloads import pod_path, reached, replaced
from webhook.world import Options, World

Document = Mapping[str, Any]

TEMPLATE_KIND: Final = ("resource.k8s.io/v1", "ResourceClaimTemplate")


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object.

    Attributes:
        reference: `Kind/namespace/name`.
        document: The object as it is now; None when it is refused, and so left out.
        templates: The ResourceClaimTemplates that this object is the first to need.
        answer: What the webhook would say of its pod; None where there is no pod to ask about.
        findings: With paths from the root of the object.
    """

    source: SourceObject
    reference: str
    document: Document | None
    templates: tuple[Document, ...] = ()
    answer: Answer | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether it is another object now."""
        return self.document is not None and self.document != self.source.document

    @property
    def is_template(self) -> bool:
        """Whether it is a ResourceClaimTemplate itself."""
        return (self.source.api_version, self.source.kind) == TEMPLATE_KIND

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims that its pods need since now; none where it is refused."""
        return self.answer.claims if self.answer and self.document is not None else ()


def translated(
    given: Sequence[SourceObject], *, world: World, options: Options, namespace: str
) -> list[Translated]:
    """Return what becomes of each object, in order.

    Args:
        namespace: Where objects go that do not say.
    """
    results = [_translated(found, world, options, namespace) for found in given]
    # Templates that the input brings along are in the output already.
    known = {
        (namespace_of(result.source, namespace), result.source.name)
        for result in results
        if result.is_template and result.document is not None
    }
    return [_with_templates(result, known, namespace) for result in results]


def _with_templates(result: Translated, known: set[tuple[str, str]], namespace: str) -> Translated:
    """Return the result with those templates that are not `known` yet, which it adds to."""
    place = namespace_of(result.source, namespace)
    templates = []
    for claim in result.claims:
        if (place, claim.template) not in known:
            known.add((place, claim.template))
            templates.append(template(claim, result.source.namespace))
    return msgspec.structs.replace(result, templates=tuple(templates))


def template(claim: Claim, namespace: str) -> Document:
    """Return the ResourceClaimTemplate of a claim.

    Args:
        namespace: As the object says that needs it: where it says none, `kubectl apply -n` decides
            for both.
    """
    api_version, kind = TEMPLATE_KIND
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": claim.template, **place},
        "spec": claim.spec,
    }


def reported(results: Sequence[Translated]) -> list[Reported]:
    """Return every finding with its object, in order."""
    return [
        Reported(object=result.reference, finding=finding)
        for result in results
        for finding in result.findings
    ]


def documents(results: Sequence[Translated]) -> Iterator[Document]:
    """Yield what to apply: each object after the templates that it is the first to need."""
    for result in results:
        yield from result.templates
        if result.document is not None:
            yield result.document


# --- one object -----------------------------------------------------------------------------------


def _translated(found: SourceObject, world: World, options: Options, namespace: str) -> Translated:
    unchanged = Translated(
        source=found, reference=reference(found, namespace), document=found.document
    )
    path = pod_path(found.api_version, found.kind)
    kind = KINDS.get((found.api_version, found.kind)) if path is None else ObjectHead
    head = viewed(found.document, kind) if kind else None
    if isinstance(head, Finding):
        return _refused(unchanged, head)
    where, before = reached(found.document, path or ())
    if path is None or before is None:
        return unchanged
    prefix = ".".join(where)
    pod = viewed_pod(before)
    if not isinstance(pod, Pod):
        return _refused(unchanged, *(fault.below(prefix) for fault in pod))
    answer = admit_created(
        before, pod, namespace=namespace_of(found, namespace), world=world, options=options
    )
    after = apply(copy.deepcopy(before), answer.operations)
    return msgspec.structs.replace(
        unchanged,
        document=replaced(found.document, path, after) if answer.allowed else None,
        answer=answer,
        findings=tuple(finding.below(prefix) for finding in answer.findings),
    )


def _refused(unchanged: Translated, *faults: Finding) -> Translated:
    return msgspec.structs.replace(unchanged, document=None, findings=faults)
