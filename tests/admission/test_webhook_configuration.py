"""The requests that the generated configuration lets the API server send us."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import pytest
from cel_expr_python import cel

from admission.match_conditions import (
    KEYS_BEGIN,
    KEYS_END,
    KEYS_PATTERN,
    differ_in_keys_only,
    match_conditions,
    object_match_conditions,
    routing_match_conditions,
    update_match_conditions,
    workload_match_conditions,
)
from admission.webhook_configuration import (
    OBJECTS_WEBHOOK,
    PODS_WEBHOOK,
    ROUTING_WEBHOOK,
    UPDATES_WEBHOOK,
    WORKLOADS_WEBHOOK,
    configuration,
    validating_configuration,
    webhook_rules,
)
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION, TRANSLATE_LABEL
from translation.cluster.snapshot import Mode
from translation.model.intents import Vocabulary
from translation.reading.arbiter import VOCABULARIES, extended_vocabularies

CONDITIONS: Final = match_conditions(VOCABULARIES.values())
UPDATE_CONDITIONS: Final = update_match_conditions(VOCABULARIES.values())
WORKLOAD_CONDITIONS: Final = workload_match_conditions(VOCABULARIES.values())
Document = Mapping[str, Any]
Generated = Callable[[Iterable[Vocabulary]], Document]


def pod(
    *containers: Document,
    init: tuple[Document, ...] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    scheduler: str = "default-scheduler",
    **fields: Any,
) -> Document:
    """Return a pod as the API server shows it: without empty fields, but with `containers`."""
    metadata = {"name": "a", "namespace": "default"}
    pod_metadata = {"annotations": annotations, "labels": labels}
    spec: dict[str, Any] = {"containers": list(containers) or None, "schedulerName": scheduler}
    spec |= fields
    if init:
        spec["initContainers"] = list(init)
    return {"metadata": {**metadata, **{k: v for k, v in pod_metadata.items() if v}}, "spec": spec}


def container(**resources: Mapping[str, str]) -> Document:
    return {"name": "c", "resources": resources}


GPU = container(limits={"nvidia.com/gpu": "1"})
IMPLICIT = container(limits={"deviceclass.resource.kubernetes.io/gpu.example.com": "1"})
MISSPELT = container(limits={"nvdia.com/gpu": "1"})
NATIVE = container(limits={"cpu": "1", "kubernetes.io/batch-cpu": "1", "hugepages-2Mi": "2Mi"})
PLAIN = container(limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "1"})
OURS = {REQUEST_ANNOTATION: "{}"}
OPTED_OUT = {TRANSLATE_LABEL: "false"}


class Row(NamedTuple):
    name: str
    object: Document
    old: Document | None
    subresource: str
    is_reviewed: bool


def created(name: str, document: Document, *, is_reviewed: bool) -> Row:
    return Row(name, document, None, "", is_reviewed)


def updated(
    name: str, old: Document, document: Document, *, is_reviewed: bool, subresource: str = ""
) -> Row:
    return Row(name, document, old, subresource, is_reviewed)


ROWS = (
    created("a pod without devices never depends on us", pod(PLAIN), is_reviewed=False),
    created("nor one without resources", pod({"name": "c", "resources": {}}), is_reviewed=False),
    created("nor one whose container says nothing", pod({"name": "c"}), is_reviewed=False),
    created("a pod without containers is the API server's to refuse", pod(), is_reviewed=False),
    created("a device key in limits", pod(PLAIN, GPU), is_reviewed=True),
    created(
        "a device key in requests alone",
        pod(container(requests={"nvidia.com/gpu": "1"})),
        is_reviewed=True,
    ),
    created("a device key in an init container", pod(PLAIN, init=(GPU,)), is_reviewed=True),
    created(
        "a key that only HAMi has",
        pod(container(limits={"nvidia.com/gpumem": "1"})),
        is_reviewed=True,
    ),
    created(
        "a key by its prefix",
        pod(container(limits={"nvidia.com/mig-1g.5gb": "1"})),
        is_reviewed=True,
    ),
    created(
        "a key that begins like one of ours",
        pod(container(limits={"nvidia.com/gpus": "1"})),
        is_reviewed=False,
    ),
    created("a pool of NICs", pod(container(limits={"rdma/hca_a": "1"})), is_reviewed=True),
    created("a GPU of AMD", pod(container(limits={"amd.com/gpu": "1"})), is_reviewed=True),
    created(
        "a device that nobody translates",
        pod(container(limits={"furiosa.ai/rngd": "1"})),
        is_reviewed=False,
    ),
    created("the implicit name of a DeviceClass", pod(PLAIN, IMPLICIT), is_reviewed=True),
    created("it in an init container", pod(PLAIN, init=(IMPLICIT,)), is_reviewed=True),
    created("it in a pod that opted out", pod(IMPLICIT, labels=OPTED_OUT), is_reviewed=True),
    created(
        "it in requests alone, in a pod that opted out",
        pod(container(requests=IMPLICIT["resources"]["limits"]), labels=OPTED_OUT),
        is_reviewed=True,
    ),
    created(
        "a name that begins like it",
        pod(container(limits={"deviceclass.resource.kubernetes.io.example/gpu": "1"})),
        is_reviewed=False,
    ),
    created("a pod that opted out, without devices", pod(labels=OPTED_OUT), is_reviewed=False),
    updated(
        "the implicit name stays in a translated pod",
        pod(IMPLICIT, annotations=OURS),
        pod(IMPLICIT, annotations=OURS, labels={"a": "b"}),
        is_reviewed=False,
    ),
    *(
        created(
            f"{name} makes others add keys", pod(PLAIN, annotations={name: "a"}), is_reviewed=True
        )
        for name in (
            "k8s.v1.cni.cncf.io/networks",
            "v1.multus-cni.io/default-network",
            "networking.gke.io/interfaces",
        )
    ),
    created(
        "not for a pod that opted out",
        pod(PLAIN, annotations={"k8s.v1.cni.cncf.io/networks": "a"}, labels=OPTED_OUT),
        is_reviewed=False,
    ),
    created(
        "a share that annotations request of KAI",
        pod(PLAIN, annotations={"gpu-fraction": "0.5"}, scheduler="kai-scheduler"),
        is_reviewed=True,
    ),
    created(
        "the same annotations for another scheduler",
        pod(PLAIN, annotations={"gpu-fraction": "0.5", "gpu-memory": "5"}),
        is_reviewed=False,
    ),
    created(
        "a pod of KAI without a share", pod(PLAIN, scheduler="kai-scheduler"), is_reviewed=False
    ),
    created("a pod that opted out", pod(GPU, labels=OPTED_OUT), is_reviewed=False),
    created(
        "a pod that opted out, with our annotation",
        pod(PLAIN, labels=OPTED_OUT, annotations=OURS),
        is_reviewed=True,
    ),
    created("other labels do not opt out", pod(GPU, labels={"app": "false"}), is_reviewed=True),
    created("our annotation without keys", pod(PLAIN, annotations=OURS), is_reviewed=True),
    created("other annotations", pod(PLAIN, annotations={"a": "b"}), is_reviewed=False),
    updated(
        "a finalizer on a translated pod",
        pod(annotations=OURS),
        pod(annotations=OURS),
        is_reviewed=False,
    ),
    updated("a plain pod", pod(PLAIN), pod(PLAIN, labels={"a": "b"}), is_reviewed=False),
    updated(
        "a plain pod with networks",
        pod(PLAIN, annotations={"k8s.v1.cni.cncf.io/networks": "a"}),
        pod(PLAIN, annotations={"k8s.v1.cni.cncf.io/networks": "a"}),
        is_reviewed=False,
    ),
    updated("a legacy pod that was never translated", pod(GPU), pod(GPU), is_reviewed=False),
    updated(
        "the legacy manifest applied again",
        pod(PLAIN, annotations=OURS),
        pod(GPU, annotations=OURS),
        is_reviewed=True,
    ),
    updated(
        "the scheduler of the manifest comes back",
        pod(PLAIN, annotations=OURS),
        pod(PLAIN, annotations=OURS, scheduler="kai-scheduler"),
        is_reviewed=True,
    ),
    updated(
        "the claims of the manifest come back",
        pod(
            {"name": "c", "resources": {"claims": [{"name": "own"}, {"name": "gpu"}]}},
            annotations=OURS,
        ),
        pod({"name": "c", "resources": {"claims": [{"name": "own"}]}}, annotations=OURS),
        is_reviewed=True,
    ),
    updated(
        "the tolerations of the manifest come back",
        pod(PLAIN, annotations=OURS, tolerations=[{"key": "a"}, {"key": "b"}]),
        pod(PLAIN, annotations=OURS, tolerations=[{"key": "a"}]),
        is_reviewed=True,
    ),
    updated(
        "another image of a translated pod",
        pod({**PLAIN, "image": "a"}, annotations=OURS, tolerations=[{"key": "a"}]),
        pod({**PLAIN, "image": "b"}, annotations=OURS, tolerations=[{"key": "a"}]),
        is_reviewed=False,
    ),
    updated("the annotation goes", pod(annotations=OURS), pod(PLAIN), is_reviewed=True),
    updated("the annotation comes", pod(PLAIN), pod(PLAIN, annotations=OURS), is_reviewed=True),
    updated(
        "the annotation comes empty",
        pod(PLAIN),
        pod(PLAIN, annotations={REQUEST_ANNOTATION: ""}),
        is_reviewed=True,
    ),
    updated(
        "the annotation changes",
        pod(annotations=OURS),
        pod(annotations={REQUEST_ANNOTATION: "[]"}),
        is_reviewed=True,
    ),
    updated(
        "the signature comes",
        pod(annotations=OURS),
        pod(annotations={**OURS, SIGNATURE_ANNOTATION: "v1"}),
        is_reviewed=True,
    ),
    updated(
        "a status that changes the signature",
        pod(annotations={**OURS, SIGNATURE_ANNOTATION: "v1"}),
        pod(annotations={**OURS, SIGNATURE_ANNOTATION: "v2"}),
        subresource="status",
        is_reviewed=True,
    ),
    updated(
        "a status",
        pod(PLAIN, annotations=OURS),
        pod(PLAIN, annotations=OURS),
        subresource="status",
        is_reviewed=False,
    ),
    updated(
        "a status of a legacy pod with keys",
        pod(GPU, annotations=OURS),
        pod(GPU, annotations=OURS),
        subresource="status",
        is_reviewed=False,
    ),
    updated(
        "a status that changes the annotation",
        pod(PLAIN),
        pod(PLAIN, annotations=OURS),
        subresource="status",
        is_reviewed=True,
    ),
)


@cache
def compiled(expression: str) -> Any:
    environment = cel.NewEnv(
        config=cel.NewEnvConfigFromYaml("name: conditions\nextensions:\n- name: optional\n"),
        variables=dict.fromkeys(("object", "oldObject", "request"), cel.Type.DYN),
    )
    return environment.compile(expression)


def verdicts(row: Row, conditions: Mapping[str, str] = CONDITIONS) -> Mapping[str, object]:
    is_dra = "devices" in (row.object.get("spec") or {})
    request: dict[str, object] = {
        "operation": "UPDATE" if row.old else "CREATE",
        "kind": {"group": "resource.k8s.io" if is_dra else "apps"},
    }
    if row.subresource:
        request |= {"subResource": row.subresource}
    data = {"object": row.object, "oldObject": row.old, "request": request}
    return {name: compiled(text).eval(data=data).value() for name, text in conditions.items()}


def conditions_of(row: Row) -> Mapping[str, str]:
    """Return the conditions of the webhook that has rules for a request."""
    return UPDATE_CONDITIONS if row.old else CONDITIONS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_match_conditions(row: Row) -> None:
    assert row.is_reviewed == all(verdicts(row, conditions_of(row)).values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_no_condition_ever_raises(row: Row) -> None:
    assert {bool} == {type(verdict) for verdict in verdicts(row, conditions_of(row)).values()}


@pytest.mark.parametrize("row", [row for row in ROWS if row.old], ids=lambda row: row.name)
def test_an_update_never_matches_where_pods_are_created(row: Row) -> None:
    assert not all(verdicts(row, CONDITIONS).values())


# --- workloads ------------------------------------------------------------------------------------


def template(*containers: Document, **metadata: Mapping[str, str]) -> Document:
    """Return a pod template as the API server shows it."""
    return {"metadata": metadata, "spec": {"containers": list(containers)}}


def workload(pods: Document, *, cron: bool = False, **metadata: Any) -> Document:
    """Return a workload that creates these pods."""
    spec: Document = {"template": pods}
    spec = {"jobTemplate": {"spec": spec}} if cron else spec
    return {"metadata": {"name": "a", **metadata}, "spec": {"replicas": 1, **spec}}


def owner(**fields: bool) -> list[Document]:
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "uid": "u", **fields}]


WORKLOAD_ROWS = (
    created(
        "pods without devices never depend on us", workload(template(PLAIN)), is_reviewed=False
    ),
    created("nor do those of a CronJob", workload(template(PLAIN), cron=True), is_reviewed=False),
    created("pods with devices", workload(template(PLAIN, GPU)), is_reviewed=True),
    created("those of a CronJob", workload(template(GPU), cron=True), is_reviewed=True),
    created(
        "a device key in requests alone",
        workload(template(container(requests={"nvidia.com/gpu": "1"}))),
        is_reviewed=True,
    ),
    created(
        "a device key in an init container",
        workload({"spec": {"initContainers": [GPU], "containers": [PLAIN]}}),
        is_reviewed=True,
    ),
    created(
        "containers that are null", workload({"spec": {"containers": None}}), is_reviewed=False
    ),
    created("no template at all", {"metadata": {"name": "a"}, "spec": {}}, is_reviewed=False),
    created("no spec at all", {"metadata": {"name": "a"}}, is_reviewed=False),
    created("pods that opt out", workload(template(GPU, labels=OPTED_OUT)), is_reviewed=False),
    created(
        "pods of a CronJob that opt out",
        workload(template(GPU, labels=OPTED_OUT), cron=True),
        is_reviewed=False,
    ),
    created("the implicit name of a DeviceClass", workload(template(IMPLICIT)), is_reviewed=True),
    created(
        "it in pods that opt out", workload(template(IMPLICIT, labels=OPTED_OUT)), is_reviewed=True
    ),
    created(
        "it in pods of a CronJob that opt out",
        workload(template(PLAIN, IMPLICIT, labels=OPTED_OUT), cron=True),
        is_reviewed=True,
    ),
    created(
        "a workload's own label is no matter of its pods",
        workload(template(GPU), labels=OPTED_OUT),
        is_reviewed=True,
    ),
    created(
        "our annotation without keys", workload(template(PLAIN, annotations=OURS)), is_reviewed=True
    ),
    created(
        "our annotation in a CronJob",
        workload(template(PLAIN, annotations=OURS), cron=True),
        is_reviewed=True,
    ),
    created(
        "our annotation on pods that opt out",
        workload(template(PLAIN, annotations=OURS, labels=OPTED_OUT)),
        is_reviewed=True,
    ),
    created(
        "our annotation on the workload itself means nothing",
        workload(template(PLAIN), annotations=OURS),
        is_reviewed=False,
    ),
    created(
        "what a controller made",
        workload(template(GPU), ownerReferences=owner(controller=True)),
        is_reviewed=False,
    ),
    created(
        "an owner that is no controller",
        workload(template(GPU), ownerReferences=owner(controller=False)),
        is_reviewed=True,
    ),
    created(
        "an owner that does not say",
        workload(template(GPU), ownerReferences=owner()),
        is_reviewed=True,
    ),
    created(
        "owners that are null", workload(template(GPU), ownerReferences=None), is_reviewed=True
    ),
    updated(
        "another number of replicas",
        workload(template(GPU)),
        {**workload(template(GPU)), "spec": {"replicas": 5, "template": template(GPU)}},
        is_reviewed=False,
    ),
    updated(
        "other labels of a CronJob",
        workload(template(GPU), cron=True),
        workload(template(GPU), cron=True, labels={"a": "b"}),
        is_reviewed=False,
    ),
    updated(
        "another template", workload(template(PLAIN)), workload(template(GPU)), is_reviewed=True
    ),
    updated(
        "another template of a CronJob",
        workload(template(PLAIN), cron=True),
        workload(template(GPU), cron=True),
        is_reviewed=True,
    ),
    created("a template with a misspelt key", workload(template(MISSPELT)), is_reviewed=True),
    created("a template with Kubernetes' own", workload(template(NATIVE)), is_reviewed=False),
    updated(
        "another template without devices",
        workload(template(GPU)),
        workload(template(PLAIN)),
        is_reviewed=False,
    ),
    updated(
        "another template of what a controller made",
        workload(template(PLAIN), ownerReferences=owner(controller=True)),
        workload(template(GPU), ownerReferences=owner(controller=True)),
        is_reviewed=False,
    ),
)


@pytest.mark.parametrize("row", WORKLOAD_ROWS, ids=lambda row: row.name)
def test_workload_match_conditions(row: Row) -> None:
    verdicts_ = verdicts(row, WORKLOAD_CONDITIONS)

    assert row.is_reviewed == all(verdicts_.values())
    assert {bool} == {type(verdict) for verdict in verdicts_.values()}


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "conditions",
    [CONDITIONS, UPDATE_CONDITIONS],
    ids=["pods", "updates"],
)
def test_every_key_of_every_vocabulary_is_asked_about(conditions: Mapping[str, str]) -> None:
    text = "".join(conditions.values())
    keys = {key for v in VOCABULARIES.values() for key in (*v.keys, *v.key_prefixes)}

    assert [key for key in sorted(keys) if f'"{key}"' not in text] == []


@pytest.mark.parametrize("generated", [configuration, validating_configuration])
def test_a_configuration_leaves_the_authority_to_the_controller(generated: Generated) -> None:
    for webhook in generated(VOCABULARIES.values())["webhooks"]:
        assert {"service"} == set(webhook["clientConfig"])


@pytest.mark.parametrize("generated", [configuration, validating_configuration])
def test_a_configuration_has_no_rules_before_the_webhook_answers(generated: Generated) -> None:
    for webhook in generated(VOCABULARIES.values())["webhooks"]:
        assert "rules" not in webhook
        assert webhook["name"] in webhook_rules(routes=True)


def test_an_unguarded_wildcard_is_nowhere() -> None:
    assert "*" not in {
        word
        for rules in webhook_rules(routes=True).values()
        for rule in rules
        for field in ("apiGroups", "apiVersions", "operations", "resources")
        for word in rule[field]
    }


def test_pods_wait_for_us_and_workloads_never_do() -> None:
    pods, routing, updates = configuration(VOCABULARIES.values())["webhooks"]
    workloads, objects = validating_configuration(VOCABULARIES.values())["webhooks"]

    assert {"Fail"} == {webhook["failurePolicy"] for webhook in (pods, routing, updates)}
    assert {"Ignore"} == {workloads["failurePolicy"], objects["failurePolicy"]}
    assert pods["namespaceSelector"] == workloads["namespaceSelector"]
    assert {"None"} == {pods["sideEffects"], workloads["sideEffects"], objects["sideEffects"]}


OPTED_IN: Final = {"key": TRANSLATE_LABEL, "operator": "In", "values": ["true", "selected"]}
NOT_OPTED_OUT: Final = {"key": TRANSLATE_LABEL, "operator": "NotIn", "values": ["false"]}


def requirements(mode: Mode) -> Mapping[str, list[Document]]:
    """Return webhook to the requirements on labels of its namespaces, without their names."""
    return {
        webhook["name"]: webhook["namespaceSelector"]["matchExpressions"][1:]
        for generate in (configuration, validating_configuration)
        for webhook in generate(VOCABULARIES.values(), mode=mode)["webhooks"]
    }


def test_in_mode_opt_in_only_labelled_namespaces_come_to_us() -> None:
    by_name = requirements(Mode.OPT_IN)

    assert [OPTED_IN] == by_name[PODS_WEBHOOK] == by_name[WORKLOADS_WEBHOOK]
    assert OPTED_IN in by_name[OBJECTS_WEBHOOK]


@pytest.mark.parametrize("mode", [Mode.OPT_OUT, Mode.SHADOW])
def test_in_other_modes_all_do_that_did_not_opt_out(mode: Mode) -> None:
    by_name = requirements(mode)

    assert [NOT_OPTED_OUT] == by_name[PODS_WEBHOOK] == by_name[WORKLOADS_WEBHOOK]


@pytest.mark.parametrize("mode", Mode)
def test_updates_of_translated_pods_depend_on_no_label(mode: Mode) -> None:
    assert requirements(mode)[UPDATES_WEBHOOK] == []


@pytest.mark.parametrize("mode", Mode)
def test_in_mode_shadow_no_pod_depends_on_us(mode: Mode) -> None:
    pods, _, updates = configuration(VOCABULARIES.values(), mode=mode)["webhooks"]

    expected = "Ignore" if mode is Mode.SHADOW else "Fail"
    assert {expected} == {pods["failurePolicy"], updates["failurePolicy"]}


def test_no_webhook_is_called_for_an_exempt_namespace() -> None:
    names = {
        tuple(webhook["namespaceSelector"]["matchExpressions"][0]["values"])
        for generate in (configuration, validating_configuration)
        for webhook in generate(VOCABULARIES.values(), "gpus", exempt=["a", "kube-system"])[
            "webhooks"
        ]
    }

    assert names == {("kube-system", "gpus", "a")}


def test_slices_never_come_to_us() -> None:
    rules = webhook_rules(routes=False)[OBJECTS_WEBHOOK]

    assert "resourceslices" not in {name for rule in rules for name in rule["resources"]}


CLAIM: Final[Document] = {"spec": {"devices": {}}}

NAMING: Final[Document] = {
    "spec": {"containers": [PLAIN], "resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}]}
}

OBJECT_ROWS: Final = (
    created("a new claim", CLAIM, is_reviewed=True),
    updated("a new spec", CLAIM, {"spec": {"devices": {"requests": []}}}, is_reviewed=True),
    updated("a new label", CLAIM, {"metadata": {"labels": {"a": "b"}}, **CLAIM}, is_reviewed=False),
    created(
        "a claim that a controller made of a template",
        {"metadata": {"ownerReferences": [{"kind": "Pod", "controller": True}]}, **CLAIM},
        is_reviewed=False,
    ),
    created(
        "an owner that made nothing",
        {"metadata": {"ownerReferences": [{}]}, **CLAIM},
        is_reviewed=True,
    ),
    created(
        "owners that are null", {"metadata": {"ownerReferences": None}, **CLAIM}, is_reviewed=True
    ),
    created("a pod with a claim", NAMING, is_reviewed=True),
    created("a pod without one", pod(PLAIN), is_reviewed=False),
    created("a pod that keeps a device key", pod(GPU), is_reviewed=True),
    created("a pod with a misspelt key", pod(MISSPELT), is_reviewed=True),
    created("a pod with the implicit name of a class", pod(IMPLICIT), is_reviewed=True),
    created(
        "a workload with one, which is asked about elsewhere", workload(pod(GPU)), is_reviewed=False
    ),
    created("a pod whose claims are null", {"spec": {"resourceClaims": None}}, is_reviewed=False),
    created(
        "a pod that a controller made",
        {"metadata": {"ownerReferences": [{"kind": "Job", "controller": True}]}, **NAMING},
        is_reviewed=False,
    ),
    created("a workload with a claim", workload(NAMING), is_reviewed=True),
    created("a CronJob with a claim", workload(NAMING, cron=True), is_reviewed=True),
    created("a workload without one", workload(pod(PLAIN)), is_reviewed=False),
    updated(
        "a workload that is scaled",
        workload(NAMING),
        {"spec": {"template": NAMING, "replicas": 0}},
        is_reviewed=False,
    ),
    updated(
        "a workload that gets a claim", workload(pod(PLAIN)), workload(NAMING), is_reviewed=True
    ),
    updated("a workload that loses it", workload(NAMING), workload(pod(PLAIN)), is_reviewed=False),
)


@pytest.mark.parametrize("row", OBJECT_ROWS, ids=lambda row: row.name)
def test_match_conditions_of_objects(row: Row) -> None:
    verdicts_ = verdicts(row, object_match_conditions())

    assert row.is_reviewed == all(verdicts_.values())
    assert {bool} == {type(verdict) for verdict in verdicts_.values()}


# --- routing --------------------------------------------------------------------------------------

ROUTING: Final = routing_match_conditions()


@pytest.mark.parametrize(
    ("name", "spec", "matches"),
    [
        ("claims and the default scheduler",
         {"resourceClaims": [{"name": "a"}], "schedulerName": "default-scheduler"}, True),
        ("claims and no scheduler", {"resourceClaims": [{"name": "a"}]}, True),
        ("claims and an empty scheduler",
         {"resourceClaims": [{"name": "a"}], "schedulerName": ""}, True),
        ("claims and a scheduler of its own",
         {"resourceClaims": [{"name": "a"}], "schedulerName": "volcano"}, False),
        ("no claims", {"containers": []}, False),
        ("an empty list of claims, as Go writes it", {"resourceClaims": None}, False),
        ("a null scheduler", {"resourceClaims": [{"name": "a"}], "schedulerName": None}, True),
    ],
)  # fmt: skip
def test_routing_match_conditions(name: str, spec: Document, *, matches: bool) -> None:
    data = {"object": {"spec": spec}, "oldObject": None, "request": {"operation": "CREATE"}}
    results = [compiled(text).eval(data=data).value() for text in ROUTING.values()]

    assert all(results) == matches, name
    assert {bool} == set(map(type, results))


def test_routing_is_for_all_namespaces_but_ours_and_comes_after_the_translation() -> None:
    pods, routing, _ = configuration(())["webhooks"]

    (expression,) = routing["namespaceSelector"]["matchExpressions"]
    assert expression == pods["namespaceSelector"]["matchExpressions"][0]


@pytest.mark.parametrize("routes", [True, False])
def test_routing_has_rules_only_while_a_driver_is_owned(*, routes: bool) -> None:
    assert bool(webhook_rules(routes=routes)[ROUTING_WEBHOOK]) is routes


# --- names of keys --------------------------------------------------------------------------------


def test_expressions_of_other_profiles_differ_in_keys_only() -> None:
    names = {"resources": ("vendor.example/npu", "vendor.example/npu-*")}
    vocabularies = extended_vocabularies(names.items()).values()
    present = {**CONDITIONS, **UPDATE_CONDITIONS}
    extended = {**match_conditions(vocabularies), **update_match_conditions(vocabularies)}

    changed = {name for name in present if present[name] != extended[name]}

    assert len(changed) == 2
    assert all(differ_in_keys_only(present[name], extended[name]) for name in present)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"nvidia.com/gpu"', '"a/b"] || true || key in ["a/b"'),
        ('"nvidia.com/gpu"', "string(object)"),
        (KEYS_END, f' || key.startsWith(""){KEYS_END}'),
        (KEYS_END, KEYS_END + KEYS_END),
        (KEYS_BEGIN, f"true) || ({KEYS_BEGIN}"),
        (".hasValue()", ".hasValue() || true"),
    ],
    ids=["the end of the list", "no name", "every name", "two ends", "two begins", "another part"],
)
def test_expressions_with_another_difference_do_not(old: str, new: str) -> None:
    expression = CONDITIONS["create-of-a-pod-with-devices"]
    assert old in expression

    assert not differ_in_keys_only(expression, expression.replace(old, new, 1))


def test_the_keys_of_all_conditions_are_of_the_form_that_the_policy_of_the_account_allows() -> None:
    expressions = [*CONDITIONS.values(), *UPDATE_CONDITIONS.values()]
    segments = [
        expression.partition(KEYS_BEGIN)[2].partition(KEYS_END)[0]
        for expression in expressions
        if KEYS_BEGIN in expression
    ]

    assert len(segments) == 2
    assert all(re.match(KEYS_PATTERN, segment) for segment in segments)
