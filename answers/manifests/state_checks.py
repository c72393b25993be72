"""The findings of `drawbridge check` on the state of the cluster, beside those on the manifests. Pure."""

from collections.abc import Collection, Iterator

from answers.cluster.quota_status import unenforced_notes
from answers.model.cluster_state import build_state
from answers.model.findings import ObjectFinding, namespace_of, reference
from answers.model.inputs import Inputs
from answers.model.kinds import FOREIGN_QUOTA_KINDS, STATE_KINDS
from answers.model.objects import decode_objects, merge_objects, of_kind
from kube.api.foreign_quotas import ForeignQuotaObject
from translation.cluster.snapshot import vocabularies_in_force
from translation.preflight.quotas.uncounted_templates import find_uncounted_templates
from translation.reading.claim_blind_objects import find_unseen_claims
from translation.reading.foreign_quotas import summarize_foreign_quota


def check_state(inputs: Inputs) -> tuple[ObjectFinding, ...]:
    """Return the wrong values in the state of the cluster, and the findings on quotas that see no claims.

    The quotas are those of the namespaces that objects of the manifests are in: built-in ones that
    templates evade, and those of other schedulers.
    """
    places = {namespace_of(source, inputs.namespace) for source in inputs.manifests}
    quotas_of_manifests = {
        (namespace_of(source, inputs.namespace), source.name)
        for source in inputs.manifests
        if source.kind == "ResourceQuota"
    }
    uncounted_templates = find_uncounted_templates(inputs.snapshot, inputs.options)
    return (
        *inputs.faults,
        *(
            ObjectFinding(object=f"ResourceQuota/{namespace}/{name}", finding=finding)
            for (namespace, name), finding in sorted(uncounted_templates.items())
            if namespace in places and (namespace, name) not in quotas_of_manifests
        ),
        *_foreign_quotas(inputs, places),
    )


def quota_notes(inputs: Inputs) -> Iterator[str]:
    """Yield the DeviceQuotas of the manifests' namespaces without anybody to enforce them, in sentences."""
    if inputs.knows_cluster:
        objects = merge_objects(inputs.state, inputs.manifests, inputs.namespace)
        state = build_state(decode_objects(objects, STATE_KINDS, inputs.namespace)[0])
        places = {namespace_of(source, inputs.namespace) for source in inputs.manifests}
        yield from unenforced_notes(state, places)


def _foreign_quotas(inputs: Inputs, places: Collection[str]) -> Iterator[ObjectFinding]:
    """Yield the findings on quotas of other schedulers that limit namespaces of the manifests."""
    vocabularies = vocabularies_in_force(inputs.options, inputs.snapshot.profiles)
    manifests = {reference(source, inputs.namespace) for source in inputs.manifests}
    views, _ = decode_objects(inputs.state, FOREIGN_QUOTA_KINDS, inputs.namespace)
    for place, quota in of_kind(views, ForeignQuotaObject):
        name = f"{quota.kind}/{place}/{quota.metadata.name}"
        summary = summarize_foreign_quota(quota)
        if summary is None or name in manifests or not {place, *summary.namespaces} & {*places}:
            continue
        document = {"apiVersion": quota.api_version, "kind": quota.kind, "spec": quota.spec}
        for finding in find_unseen_claims(document, vocabularies):
            yield ObjectFinding(object=name, finding=finding)
