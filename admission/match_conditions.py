"""The matchConditions of the webhooks, generated from the vocabularies.

With failurePolicy Fail, requests that match fail while the webhook is down, and others are never
affected by it. An expression that raises would fail the request, or skip its validation. So every
optional field is optional in the expressions, and null, which Go writes for an empty list, is handled.

Pods, in the MutatingWebhookConfiguration:

* CREATE, where the mode translates pods of the namespace: a container has a device key, or another
  webhook may add one, unless the pod opted out; or the pod has a translation record. A webhook that is skipped in the first round of admission is not
  called in the second, so annotations for which other webhooks add keys must match, too. A pod with the
  implicit name of a DeviceClass matches even if it opted out: quotas of its namespace are compared with it.
* UPDATE, in a webhook of its own for all namespaces, since pods that were translated stay so
  whatever becomes of the namespace's label: a pod with a translation record gets device keys; or the
  record or its signature changes.
* UPDATE of the status: the record or its signature changes. Other status updates are many and
  never match.

Pods with claims or in a group, in a webhook of its own in the same configuration, which has rules only while the
bridge owns a driver: CREATE without a scheduler of their own. Its failurePolicy is Fail, too, because
schedulerName cannot be changed later, and a pod that was not routed would be pending for ever.

Workloads, in the ValidatingWebhookConfiguration, if all of these are true:

* No controller owns the object; the template of its owner was validated before.
* Its pods have an extended resource, which may be a misspelt device key, and did not opt out, or have a
  translation record; or its kind is one of another project, such as a PyTorchJob.
* The object or its pod template is new.

Objects of DRA that people write, and pods and workloads with claims, in the same configuration: if
the spec is new and no controller owns the object. ResourceSlices never depend on the webhook: the
policies in manifests/policies and the audit validate them.

The names of keys in these conditions are those of the vocabularies, and of the profiles of the cluster.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.workloads import VALIDATED_POD_PATHS
from kube.cel.quoting import quote
from kube.names import (
    DEFAULT_SCHEDULER_NAME,
    GROUP,
    REQUEST_ANNOTATION,
    SCHEDULER_NAME,
    SIGNATURE_ANNOTATION,
    TRANSLATE_LABEL,
)
from translation.model.intents import Vocabulary
from translation.reading.workload_kinds import CUSTOM_RESOURCES

GANG_ANNOTATIONS: Final = (
    "gang.scheduling.koordinator.sh/name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
)
GANG_LABELS: Final = (
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.x-k8s.io/pod-group",
)
"""The keys by which a pod belongs to a group of Koordinator, Volcano, KAI and the coscheduling plugin. They are
those of `allocator.declarations`, which the process of the certificates does not load."""
KEYS_BEGIN: Final = 'key.contains("/") && ('
KEYS_END: Final = ' || key == "/")'
"""The end of the part of an expression that lists the names of keys, which `KEYS_BEGIN` starts. No
resource is named "/". The keys follow the profiles of the cluster: controllers/certificates writes
them, and a policy keeps it from changing anything else of an expression."""
KEY_PATTERN: Final = r'"[A-Za-z0-9._-]+/[A-Za-z0-9._/-]*"'
"""A literal that a condition compares keys with, as a regular expression."""
KEYS_PATTERN: Final = (
    rf"^key in \[({KEY_PATTERN}(, {KEY_PATTERN})*)?\]( \|\| key\.startsWith\({KEY_PATTERN}\))*$"
)
"""The expression between `KEYS_BEGIN` and `KEYS_END`."""


def differ_in_keys_only(expression: str, other: str) -> bool:
    """Return True if two expressions of a match condition are the same but for the names of keys.

    >>> differ_in_keys_only('a' + KEYS_BEGIN + 'key in ["b/c"]' + KEYS_END, 'a')
    False
    """
    return expression == other or (
        (parts := _around_keys(expression)) is not None and parts == _around_keys(other)
    )


def _around_keys(expression: str) -> tuple[str, str] | None:
    """Return the text before and after the names of keys; None if there are none."""
    if expression.count(KEYS_BEGIN) != 1 or expression.count(KEYS_END) != 1:
        return None
    before, _, rest = expression.partition(KEYS_BEGIN)
    keys, end, after = rest.partition(KEYS_END)
    return (before, after) if end and re.match(KEYS_PATTERN, keys) else None


def match_conditions(vocabularies: Iterable[Vocabulary]) -> Mapping[str, str]:
    """Return name to CEL expression for creations; the API server calls the webhook if all are true."""
    all_vocabularies = tuple(vocabularies)
    has_keys = _has_device_keys(all_vocabularies, ["object"], IMPLICIT_PREFIX)
    triggers = [
        f"{_annotation('object', name)}.hasValue()"
        for name in sorted(
            {name for vocabulary in all_vocabularies for name in vocabulary.triggers}
        )
    ]
    requested_by_annotations = _requested_by_annotations(all_vocabularies, ["object"])
    not_opted_out = _not_opted_out("object")
    return {
        # Also where stored rules are older than this, and have updates.
        "create-of-a-pod-with-devices": 'request.operation == "CREATE"\n&& ('
        + _either(
            f"{_annotation('object')}.hasValue()",
            f"({not_opted_out}\n? ({_either(has_keys, *triggers, *requested_by_annotations)})\n"
            f": {_has_implicit_names(['object'])})",
        )
        + ")",
    }


def update_match_conditions(vocabularies: Iterable[Vocabulary]) -> Mapping[str, str]:
    """Return name to CEL expression for updates; the API server calls the webhook if all are true.

    Each is about one kind of request and true for the others.
    """
    is_status = 'has(request.subResource) && request.subResource == "status"'
    record_changes = _either(
        *(
            f"{_annotation('object', name)} != {_annotation('oldObject', name)}"
            for name in (REQUEST_ANNOTATION, SIGNATURE_ANNOTATION)
        )
    )
    record_exists = f"{_annotation('object')}.hasValue()"
    # Where annotations request the devices, an apply of the manifest puts no key back.
    applied_again = _either(
        _has_device_keys(vocabularies, ["object"]),
        *(
            f"object.?spec.?{field} != oldObject.?spec.?{field}"
            for field in ("schedulerName", "tolerations")
        ),
        *(
            f"{_claims_of('object', field)} != {_claims_of('oldObject', field)}"
            for field in ("containers", "initContainers")
        ),
    )
    return {
        "update-of-a-translated-pod": _either(
            f"({is_status})",
            record_changes,
            f"({record_exists}\n&& ({applied_again}))",
        ),
        "status-update-of-the-annotation": _either(f"!({is_status})", record_changes),
    }


def _claims_of(pod: str, field: str) -> str:
    """Return the expression for the claims of each container in a list, possibly missing or null."""
    claims = "containers.map(container, container.?resources.?claims)"
    containers = f"[{pod}.?spec.?{field}.orValue(null)]"
    return f"{containers}.map(containers, containers == null ? [] : {claims})"


def routing_match_conditions() -> Mapping[str, str]:
    """Return name to CEL expression; the API server calls the webhook if all are true."""
    scheduler = "object.?spec.?schedulerName.orValue(null)"
    names = f"[{', '.join(map(quote, ('', DEFAULT_SCHEDULER_NAME)))}]"
    gangs = (
        *(f"{_annotation('object', name)}.hasValue()" for name in GANG_ANNOTATIONS),
        *(f"object.?metadata.?labels[?{quote(name)}].hasValue()" for name in GANG_LABELS),
    )
    return {
        "pod-with-claims-or-group": _either(
            _exists_condition("claim", ["object.?spec.?resourceClaims"], "true"),
            "object.?spec.?schedulingGroup.hasValue()",
            *gangs,
        ),
        # Gangs of pods that name the bridge become PodGroups, too.
        "no-scheduler-of-its-own": _either(
            f"{scheduler} == null",
            f"{scheduler} in {names}",
            f"({scheduler} == {quote(SCHEDULER_NAME)}\n&& ({_either(*gangs)}))",
        ),
    }


def workload_match_conditions(vocabularies: Iterable[Vocabulary]) -> Mapping[str, str]:
    """Return name to CEL expression; the API server calls the webhook if all are true.

    A built-in workload has its pod template at one of a few paths; the others do not exist. One of
    another project matches whenever its spec is new.
    """
    templates = [".?".join(("object", *path)) for path in VALIDATED_POD_PATHS]
    olds = [".?".join(("oldObject", *path)) for path in VALIDATED_POD_PATHS]
    has_keys = _either(
        _has_extended_resource(templates), *_requested_by_annotations(vocabularies, templates)
    )
    not_opted_out = "\n&& ".join(map(_not_opted_out, templates))
    record_conditions = (f"{_annotation(template)}.hasValue()" for template in templates)
    template_changes = (
        f"{template} != {old}" for template, old in zip(templates, olds, strict=True)
    )
    return {
        "no-controller-owner": _NOT_OWNED,
        "pods-with-devices": _either(
            _IS_CUSTOM,
            *record_conditions,
            f"({not_opted_out}\n? ({has_keys})\n: {_has_implicit_names(templates)})",
        ),
        "new-pod-template": _either(
            'request.operation != "UPDATE"',
            f"({_IS_CUSTOM} && object.?spec != oldObject.?spec)",
            *template_changes,
        ),
    }


def object_match_conditions() -> Mapping[str, str]:
    """Return name to CEL expression; the API server calls the webhook if all are true.

    Workloads match only with claims, and if the spec of their pods is new: a Deployment that is scaled
    requests nothing new. Pods also match with an extended resource, because a class may map it, and then the
    scheduler creates a claim for it, as it does for the implicit name of a class; or because it is a device
    key that is misspelt, of which nobody else says so.
    """
    pods = ["object", *(".?".join(("object", *path)) for path in VALIDATED_POD_PATHS)]
    olds = ["oldObject", *(".?".join(("oldObject", *path)) for path in VALIDATED_POD_PATHS)]
    spec_changes = (
        f"{pod}.?spec != {old}.?spec" for pod, old in zip(pods[1:], olds[1:], strict=True)
    )
    keys = _has_extended_resource(["object"])
    claims = _exists_condition("claim", [f"{pod}.?spec.?resourceClaims" for pod in pods], "true")
    return {
        "no-controller-owner": _NOT_OWNED,
        "dra-object-or-pods-with-devices": _either(_IS_DRA, claims, keys),
        "new-spec": _either(
            'request.operation != "UPDATE"',
            f"({_IS_DRA} && object.?spec != oldObject.?spec)",
            f"(!({_IS_DRA}) && ({_either(*spec_changes)}))",
        ),
    }


_CUSTOM_GROUPS: Final = sorted({version.partition("/")[0] for version, _ in CUSTOM_RESOURCES})
_IS_CUSTOM: Final = f"request.kind.group in [{', '.join(map(quote, _CUSTOM_GROUPS))}]"
"""The templates of other projects' kinds are in lists and maps: to look into them would cost more than
the few requests that people make."""
_IS_DRA: Final = f"request.kind.group in [{quote('resource.k8s.io')}, {quote(GROUP)}]"


def _either(*expressions: str) -> str:
    return "\n|| ".join(expressions)


def _annotation(pod: str, name: str = REQUEST_ANNOTATION) -> str:
    return f"{pod}.?metadata.?annotations[?{quote(name)}]"


def _not_opted_out(pod: str) -> str:
    return f'{pod}.?metadata.?labels[?{quote(TRANSLATE_LABEL)}].orValue("") != "false"'


def _has_device_keys(
    vocabularies: Iterable[Vocabulary], pods: Iterable[str], *prefixes: str
) -> str:
    """Return the expression for: some container has a device key in its limits or requests.

    Args:
        pods: The possible paths of a pod or pod template.
        prefixes: The prefixes of further keys.
    """
    all_vocabularies = tuple(vocabularies)
    keys = sorted({key for vocabulary in all_vocabularies for key in vocabulary.keys})
    all_prefixes = sorted(
        {prefix for vocabulary in all_vocabularies for prefix in vocabulary.key_prefixes}.union(
            prefixes
        )
    )
    is_handled = " || ".join(
        [
            f"key in [{', '.join(map(quote, keys))}]",
            *(f"key.startsWith({quote(prefix)})" for prefix in all_prefixes),
        ]
    )
    # The API server bounds the cost of an expression, and every pod has amounts of cpu and memory.
    return _has_key(pods, f"{KEYS_BEGIN}{is_handled}{KEYS_END}")


def _has_extended_resource(pods: Iterable[str]) -> str:
    """Return the expression for: some container has an extended resource, or the implicit name of a DeviceClass.

    Few pods that people write have any, and these webhooks have failurePolicy Ignore.
    """
    is_extended = '(key.contains("/") && !key.contains("kubernetes.io/"))'
    return _has_key(pods, f"{is_extended} || key.startsWith({quote(IMPLICIT_PREFIX)})")


def _has_implicit_names(pods: Iterable[str]) -> str:
    """Return the expression for: some container has the implicit name of a DeviceClass."""
    return _has_key(pods, f"key.startsWith({quote(IMPLICIT_PREFIX)})")


def _has_key(pods: Iterable[str], condition: str) -> str:
    """Return the expression for: a condition is true for a key in limits or requests of some container.

    Ephemeral containers cannot have resources.
    """
    amounts = ("container.?resources.?limits", "container.?resources.?requests")
    fields = ("containers", "initContainers")
    containers = [f"{pod}.?spec.?{field}" for pod in pods for field in fields]
    return _exists_condition("container", containers, _exists_condition("key", amounts, condition))


def _requested_by_annotations(
    vocabularies: Iterable[Vocabulary], pods: Iterable[str]
) -> Sequence[str]:
    """Return expressions for: annotations request devices, in a pod of a scheduler that reads them.

    The names have no domain, so pods of other schedulers may mean anything by them. Where a label
    decides, it is enough.
    """
    all_vocabularies = tuple(vocabularies)
    by_label = [
        f'{pod}.?metadata.?labels[?{quote(name)}].orValue("") == {quote(value)}'
        for vocabulary in all_vocabularies
        if vocabulary.requesting_label is not None
        for name, value in (vocabulary.requesting_label,)
        for pod in pods
    ]
    return by_label + [
        f'({pod}.?spec.?schedulerName.orValue("") in '
        f"[{', '.join(map(quote, vocabulary.schedulers))}]\n&& "
        f"({_either(*(f'{_annotation(pod, name)}.hasValue()' for name in vocabulary.requesting))}))"
        for vocabulary in all_vocabularies
        if vocabulary.schedulers
        for pod in pods
    ]


def _exists_condition(item: str, paths: Iterable[str], condition: str) -> str:
    """Return the expression for: a condition is true for some list item or map key at the paths.

    A path may not exist, and is null where Go wrote an empty list.
    """
    values = ", ".join(f"{path}.orValue(null)" for path in paths)
    items = f"{item}s"
    inner = f"{items} != null && {items}.exists({item},\n  {condition})"
    return f"[{values}].exists({items},\n  {inner})"


_OWNED: Final = _exists_condition(
    "owner", ["object.?metadata.?ownerReferences"], "owner.?controller.orValue(false)"
)
_NOT_OWNED: Final = f"!{_OWNED}"
