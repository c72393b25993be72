"""The contract of `drawbridge translate`, sentence by sentence."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from admission.pods import admit_created
from kube.api.workloads import pod_path, resolve_path
from kube.jsonpatch import apply
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_objects
from kube.names import REQUEST_ANNOTATION
from testing import documents
from testing.builders import EXAMPLE, HAMI, NVIDIA, container, gpus, pod, pod_view, profiles
from testing.command import CLUSTER, EXAMPLES, answer, drawbridge, finding_lines, kinds, translate
from testing.documents import Document, api_object, resource_quota
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
SHARE = pod(gpus(1, mem=3000, cores=30), tolerations=TOLERATIONS)
WHOLE = pod(gpus(1))
SERVICE = api_object("Service", "web", spec={})


def named(document: Document, name: str, namespace: str | None = None) -> Document:
    metadata = {**document["metadata"], "name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {**document, "metadata": metadata}


def device_class(name: str, extended: str | None = None, **metadata: str) -> Document:
    spec: Document = {"selectors": [{"cel": {"expression": "true"}}]}
    if extended is not None:
        spec["extendedResourceName"] = extended
    return api_object("DeviceClass", name, **metadata, spec=spec)


def deployment(name: str = "web", containers: list[Document] | None = None) -> Document:
    template = {
        "spec": {"containers": containers or [gpus(1, mem=3000)], "tolerations": TOLERATIONS}
    }
    return api_object("Deployment", name, spec={"selector": {}, "template": template})


# --- what is read ---------------------------------------------------------------------------------


def test_files_directories_and_standard_input_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    (folder / "deeper").mkdir(parents=True)
    (folder / "b.yml").write_text(dump_yaml([named(SERVICE, "b")]))
    (folder / "a.json").write_text(json.dumps(named(SERVICE, "a")))
    (folder / "notes.txt").write_text("not a manifest")
    (folder / "deeper" / "c.yaml").write_text(dump_yaml([named(SERVICE, "c")]))
    file = tmp_path / "one.yaml"
    file.write_text(dump_yaml([named(SERVICE, "one")]))

    result = drawbridge(
        *("translate", "-f", file, "-f", folder, "-f", "-", "-o", "json"),
        stdin=dump_yaml([named(SERVICE, "piped")]),
    )

    assert [f"Service {name}" for name in ("one", "a", "b", "piped")] == kinds(
        json.loads(result.stdout)
    )


@pytest.mark.parametrize("form", ["yaml", "json", "diff", "text"])
@pytest.mark.parametrize("metadata", [3, [], None, {"name": 3}, {"generateName": ["a"]}])
def test_kinds_that_are_not_ours_may_look_like_anything(metadata: object, form: str) -> None:
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}

    assert 0 == translate(widget, SHARE, options=["-o", form]).exit_code


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "not YAML"),
        ("kind: Pod\n", "apiVersion is missing"),
        ("apiVersion: v1\n", "kind is missing"),
        ("just words\n", "expected an object"),
    ],
)
@pytest.mark.parametrize("form", ["yaml", "json", "diff", "text"])
def test_unreadable_text_ends_the_call_before_anything_is_printed(
    text: str, why: str, form: str, tmp_path: Path
) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(dump_yaml([SHARE]))

    result = drawbridge("translate", "-f", good, "-f", "-", "-o", form, stdin=text)

    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


@pytest.mark.parametrize(
    ("why", "call"),
    [
        ("Missing option '-f'", ()),
        ("nowhere.yaml: No such file", ("-f", "nowhere.yaml")),
        ("nowhere.yaml: No such file", ("-f", "-", "--snapshot", "nowhere.yaml")),
        ("known are: aliyun, ", ("-f", "-", "--profile", "nobody=gpu.nvidia.com")),
        (
            f"known are: {', '.join(sorted(profiles()))}",
            ("-f", "-", "--profile", "hami=gpu.nobody.example"),
        ),
        ("write VOCABULARY=DRIVER, not 'hami'", ("-f", "-", "--profile", "hami")),
        ("nowhere: No such file", ("-f", "-", "--profiles", "nowhere")),
        ("is not one of", ("-f", "-", "-o", "xml")),
        ("mutually exclusive", ("-f", "-", "--live", "--snapshot", "a.yaml")),
        ("require --live", ("-f", "-", "--context", "a")),
        ("read only once", ("-f", "-", "--snapshot", "-")),
        ("URLs are not supported: curl -L https://a.b/c.yaml |", ("-f", "https://a.b/c.yaml")),
        ("URLs are not supported", ("-f", "-", "--snapshot", "http://a.b/c.yaml")),
        ("--on-refusal requires -o yaml", ("-f", "-", "-o", "json", "--on-refusal", "skip")),
    ],
)
def test_a_wrong_call_exits_2_and_says_why(why: str, call: tuple[str, ...]) -> None:
    result = drawbridge("translate", *call, stdin=dump_yaml([SHARE]))

    assert (result.exit_code, result.stdout) == (2, "")
    assert why in " ".join(result.stderr.split())


def test_a_broken_profile_is_a_wrong_call(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("driver: gpu.mine.example\ndevicse: {}\n")

    result = drawbridge("translate", "-f", "-", "--profiles", tmp_path, stdin=dump_yaml([SHARE]))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "mine.yaml: not a driver profile" in result.stderr


# --- the state of the cluster ---------------------------------------------------------------------


def test_without_a_cluster_nothing_passes_through() -> None:
    assert kinds(answer(WHOLE)) == ["template", "Pod train"]


def test_a_mapped_resource_passes_through() -> None:
    answer_ = answer(WHOLE, snapshot=[device_class(NVIDIA, "nvidia.com/gpu")])

    assert answer_["objects"] == [WHOLE]
    path = "spec.containers[0].resources.limits[nvidia.com/gpu]"
    assert [f"info passedThrough Pod/default/train {path}"] == finding_lines(answer_)


def test_an_object_of_f_replaces_its_namesake_of_the_snapshot() -> None:
    answer_ = answer(
        device_class(NVIDIA), WHOLE, snapshot=[device_class(NVIDIA, extended="nvidia.com/gpu")]
    )

    assert [f"DeviceClass {NVIDIA}", "template", "Pod train"] == kinds(answer_)


@pytest.mark.parametrize(
    ("want", "classes"),
    [
        (
            "b",
            [
                device_class("a", "nvidia.com/gpu", creationTimestamp="2026-01-01T00:00:00Z"),
                device_class("b", "nvidia.com/gpu", creationTimestamp="2026-01-02T00:00:00Z"),
            ],
        ),
        ("a", [device_class("b", "nvidia.com/gpu"), device_class("a", "nvidia.com/gpu")]),
    ],
    ids=["the newest class wins", "of classes made together the smaller name"],
)
def test_who_serves_a_name_that_two_classes_map(want: str, classes: list[Document]) -> None:
    (finding,) = answer(WHOLE, snapshot=classes)["findings"]

    assert finding["message"].startswith(f"DeviceClass {want} maps nvidia.com/gpu")


def test_a_class_that_the_cluster_lacks_is_a_warning() -> None:
    answer_ = answer(SHARE, snapshot=[device_class(NVIDIA)])

    assert finding_lines(answer_) == [
        "warning deviceClassMissing Pod/default/train spec.resourceClaims"
    ]
    assert answer_["findings"][0]["fix"].endswith("--profile VOCABULARY=DRIVER")


def test_a_snapshot_of_other_kinds_does_not_say_that_there_is_no_class() -> None:
    answer_ = answer(SHARE, snapshot=[api_object("Node", "n")])

    assert finding_lines(answer_) == []


def test_a_namespace_that_opts_out() -> None:
    namespace = documents.namespace("old", {"drawbridge.internal/translate": "false"})

    answer_ = answer(named(SHARE, "a", "old"), named(SHARE, "b"), snapshot=[namespace])

    assert kinds(answer_) == ["Pod a", "template", "Pod b"]


def test_a_namespace_that_leaves_it_to_its_pods() -> None:
    labels = {"drawbridge.internal/translate": "selected"}
    namespace = documents.namespace("old", labels)
    chosen = named(SHARE, "b", "old")
    chosen["metadata"]["labels"] = {"drawbridge.internal/translate": "true"}

    answer_ = answer(named(SHARE, "a", "old"), chosen, snapshot=[namespace])

    assert kinds(answer_) == ["Pod a", "template", "Pod b"]


def test_a_quota_that_would_stop_counting_refuses() -> None:
    quota = resource_quota({"requests.nvidia.com/gpumem": "9000"})

    answer_ = answer(named(SHARE, "a", "team"), named(SHARE, "b"), snapshot=[quota])

    assert kinds(answer_) == ["template", "Pod b"]
    path = "spec.containers[0].resources.limits[nvidia.com/gpumem]"
    assert f"error quotaNotCounted Pod/team/a {path}" in finding_lines(answer_)


def test_a_wrong_value_in_the_snapshot_is_a_finding_and_counts_for_nothing() -> None:
    broken = device_class("broken") | {"spec": {"selectors": "all"}}

    answer_ = answer(SHARE, snapshot=[broken, device_class(HAMI)])

    assert kinds(answer_) == ["template", "Pod train"]
    assert finding_lines(answer_) == ["error invalidObject DeviceClass//broken spec.selectors"]


@pytest.mark.parametrize(
    ("namespace", "is_sent"),
    [("kube-system", False), ("gpus", False), ("drawbridge-system", True), ("team", True)],
)
def test_no_pod_is_translated_that_no_api_server_sends_to_the_webhook(
    namespace: str, is_sent: bool, tmp_path: Path
) -> None:
    """The webhook is installed in the namespace gpus."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("namespace: gpus\n")
    options = ("--settings", settings)

    translated = answer(named(SHARE, "a", namespace), options=options)

    assert (["template", "Pod a"] if is_sent else ["Pod a"]) == kinds(translated)
    exempt = f"info optedOut Pod/{namespace}/a metadata.namespace"
    assert is_sent == (exempt not in finding_lines(translated))
    assert [] == finding_lines(answer(named(pod(container()), "b", namespace), options=options))


# --- profiles -------------------------------------------------------------------------------------


def classes_of(answer_document: Document) -> list[str]:
    return [
        request["exactly"]["deviceClassName"]
        for document in answer_document["objects"]
        if document["kind"] == "ResourceClaimTemplate"
        for request in document["spec"]["spec"]["devices"]["requests"]
    ]


@pytest.mark.parametrize(
    ("want", "options", "document"),
    [
        ([NVIDIA], (), WHOLE),
        ([HAMI], (), SHARE),
        (["mig.nvidia.com"], (), pod(gpus(mig_1g_5gb=1))),
        ([EXAMPLE], ("--profile", f"nvidia={EXAMPLE}"), WHOLE),
        ([HAMI], ("--profile", f"nvidia={HAMI}"), WHOLE),
    ],
)
def test_profile_chooses_the_driver(
    want: list[str], options: tuple[str, ...], document: Document
) -> None:
    assert want == classes_of(answer(document, options=options))


def test_a_profile_of_a_directory_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "driver: gpu.mine.example\nclaims: pod\ndevices:\n  gpu: {class: mine}\n"
    )

    answer_ = answer(
        WHOLE, options=("--profiles", tmp_path, "--profile", "nvidia=gpu.mine.example")
    )

    assert classes_of(answer_) == ["mine"]


def test_what_a_profile_cannot_express_is_an_error() -> None:
    answer_ = answer(SHARE, options=("--profile", f"hami={NVIDIA}"))

    assert answer_["objects"] == []
    path = "spec.containers[0].resources.limits[nvidia.com/gpucores]"
    assert f"error cannotExpress Pod/default/train {path}" in finding_lines(answer_)


@pytest.mark.parametrize(("want", "percent"), [(1, 1), (1, 50), (1, 99), (0, 100), (0, 0)])
def test_a_percentage_needs_published_sizes(want: int, percent: int) -> None:
    result = translate(pod(gpus(1, pct=percent)))

    assert want == result.exit_code
    assert ("[memorySizesUnknown]" in result.stderr) is bool(want)


# --- what is printed ------------------------------------------------------------------------------


def test_yaml_is_a_stream_that_kubectl_takes() -> None:
    result = translate(SERVICE, SHARE, deployment())

    objects = read_objects(result.stdout.encode(), "stdout")
    assert [SERVICE["kind"], "ResourceClaimTemplate", "Pod", "ResourceClaimTemplate"] == [
        entry.kind for entry in objects
    ][:4]
    assert (result.exit_code, result.stderr) == (0, "")


def test_all_forms_are_the_same_objects() -> None:
    stream = read_objects(translate(SERVICE, SHARE).stdout.encode(), "stdout")

    assert [entry.document for entry in stream] == answer(SERVICE, SHARE)["objects"]


def test_lists_are_flattened_in_order() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [named(SHARE, "b"), SERVICE]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [named(SERVICE, "a"), inner]}

    answer_ = answer(outer, named(SERVICE, "z"))

    assert kinds(answer_) == ["Service a", "template", "Pod b", "Service web", "Service z"]


def test_a_template_stands_before_the_first_object_that_needs_it() -> None:
    answer_ = answer(
        named(SHARE, "a"),
        named(SHARE, "b"),
        named(SHARE, "c", "default"),
        named(SHARE, "d", "team"),
        pod(gpus(1, mem=1)),
    )

    want = ["template", "Pod a", "Pod b", "Pod c", "template", "Pod d", "template", "Pod train"]
    assert want == kinds(answer_)


def test_a_template_is_in_the_namespace_that_its_object_writes() -> None:
    answer_ = answer(named(SHARE, "a"), named(SHARE, "b", "team"))

    templates = [
        document["metadata"] for document in answer_["objects"] if "Template" in document["kind"]
    ]
    name = templates[0]["name"]
    assert [{"name": name}, {"name": name, "namespace": "team"}] == templates


def test_a_template_is_not_ours_to_collect() -> None:
    template, _ = answer(SHARE)["objects"]

    assert (
        template["apiVersion"],
        template["kind"],
    ) == ("resource.k8s.io/v1", "ResourceClaimTemplate")
    assert {"name"} == set(template["metadata"])
    assert {"spec"} == set(template["spec"])


def test_a_template_that_is_given_is_not_repeated() -> None:
    template, _ = answer(SHARE)["objects"]

    assert kinds(answer(template, SHARE)) == ["template", "Pod train"]
    assert kinds(answer(SHARE, template)) == ["Pod train", "template"]


def test_a_template_of_our_name_with_other_content_refuses() -> None:
    template, _ = answer(SHARE)["objects"]
    copy_ = copy.deepcopy(template)
    copy_["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2

    answer_ = answer(copy_, SHARE)

    assert kinds(answer_) == ["template"]
    assert finding_lines(answer_) == [
        "error templateConflict Pod/default/train spec.resourceClaims"
    ]


def test_pods_equal_what_the_webhook_makes() -> None:
    _, printed = answer(SHARE)["objects"]
    state = TranslationSnapshot(profiles=profiles())

    operations = admit_created(
        SHARE, pod_view(SHARE), namespace="default", snapshot=state, options=TranslationOptions()
    ).operations

    assert apply(copy.deepcopy(SHARE), operations) == printed
    assert REQUEST_ANNOTATION in printed["metadata"]["annotations"]


def test_the_same_call_prints_the_same_bytes() -> None:
    calls = [
        drawbridge("translate", "-f", EXAMPLES, "--snapshot", CLUSTER, "-o", form).stdout_bytes
        for form in ("yaml", "json", "diff", "text")
        for _ in range(2)
    ]

    assert calls[::2] == calls[1::2]


# --- workloads ------------------------------------------------------------------------------------

WORKLOADS = [
    ("v1", "Pod", "", lambda pod: pod),
    ("v1", "PodTemplate", "template.", lambda pod: {"template": pod}),
    ("v1", "ReplicationController", "spec.template.", lambda pod: {"spec": {"template": pod}}),
    ("apps/v1", "DaemonSet", "spec.template.", lambda pod: {"spec": {"template": pod}}),
    ("apps/v1", "Deployment", "spec.template.", lambda pod: {"spec": {"template": pod}}),
    ("apps/v1", "ReplicaSet", "spec.template.", lambda pod: {"spec": {"template": pod}}),
    ("apps/v1", "StatefulSet", "spec.template.", lambda pod: {"spec": {"template": pod}}),
    ("batch/v1", "Job", "spec.template.", lambda pod: {"spec": {"template": pod}}),
    (
        "batch/v1",
        "CronJob",
        "spec.jobTemplate.spec.template.",
        lambda pod: {"spec": {"jobTemplate": {"spec": {"template": pod}}}},
    ),
]


@pytest.mark.parametrize(
    ("version", "kind", "prefix", "workload"), WORKLOADS, ids=[kind for _, kind, _, _ in WORKLOADS]
)
def test_workloads_are_translated_inside_their_template(
    version: str, kind: str, prefix: str, workload: Any
) -> None:
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}}
    spec = {"containers": [gpus(1, mem=3000)], "tolerations": TOLERATIONS}
    good = {**workload({"spec": spec}), **head}
    bad = {**workload({"spec": {"containers": [gpus(1, mem="8Gi")]}}), **head}

    answer_ = answer(good, bad)

    assert ["template", f"{kind} w"] == kinds(answer_)
    _, pod_document = resolve_path(answer_["objects"][1], pod_path(version, kind) or ())
    assert pod_document["spec"]["containers"][0]["resources"] == {
        "claims": [{"name": "gpu-main", "request": "gpu"}]
    }
    path = f"{prefix}spec.containers[0].resources.limits[nvidia.com/gpumem]"
    assert [f"error wrongUnit {kind}/default/w {path}"] == finding_lines(answer_)


@pytest.mark.parametrize(
    "document",
    [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": 7}, "spec": "x"},
        api_object("Deployment", "empty"),
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": None},
    ],
)
def test_other_objects_pass_unchanged(document: Document) -> None:
    answer_ = answer(document)

    assert ([document], []) == (answer_["objects"], answer_["findings"])


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("batch.volcano.sh/v1alpha1", "Job"),
        ("kubeflow.org/v2beta1", "MPIJob"),
        ("extensions/v1beta1", "Deployment"),
    ],
)
def test_pod_templates_of_other_kinds_are_reported_and_pass_unchanged(
    version: str, kind: str
) -> None:
    document = deployment() | {"apiVersion": version, "kind": kind}

    answer_ = answer(document)

    assert [document] == answer_["objects"]
    assert [f"info podTemplateNotRead {kind}/default/web spec.template"] == finding_lines(answer_)


def test_keys_that_are_not_translated_are_reported() -> None:
    document = pod(container("main", {"mthreads.com/vgpu": 1}))

    answer_ = answer(document)

    assert [document] == answer_["objects"]
    path = "spec.containers[0].resources.limits[mthreads.com/vgpu]"
    assert [f"info untranslatedDeviceKey Pod/default/train {path}"] == finding_lines(answer_)


# --- findings -------------------------------------------------------------------------------------


def test_a_finding_has_seven_fields() -> None:
    (finding,) = answer(pod(gpus(1, mem="8Gi")))["findings"]

    assert finding == {
        "severity": "error",
        "code": "wrongUnit",
        "message": "8Gi is a number of bytes, and nvidia.com/gpumem counts MiB",
        "fix": "write 8192 for 8Gi; write the same in requests",
        "object": "Pod/default/train",
        "path": "spec.containers[0].resources.limits[nvidia.com/gpumem]",
        "reasons": [],
    }


@pytest.mark.parametrize(
    ("want", "metadata", "options"),
    [
        ("Pod/default/a", {"name": "a"}, ()),
        ("Pod/team/a", {"name": "a", "namespace": "team"}, ()),
        ("Pod/default/a-", {"generateName": "a-"}, ()),
        ("Pod/team/a", {"name": "a"}, ("-n", "team")),
    ],
)
def test_what_a_finding_calls_its_object(
    want: str, metadata: dict[str, str], options: tuple[str, ...]
) -> None:
    (finding,) = answer(pod(gpus(1, mem="8Gi")) | {"metadata": metadata}, options=options)[
        "findings"
    ]

    assert want == finding["object"]


WRONG = pod(gpus(1, mem="8Gi"))
REJECTION = (
    "error: Pod/default/train: spec.containers[0].resources.limits[nvidia.com/gpumem]: "
    "8Gi is a number of bytes, and nvidia.com/gpumem counts MiB; write 8192 for 8Gi; write the same in requests "
    "[wrongUnit]\n"
)


@pytest.mark.parametrize(
    ("want", "choice"),
    [
        ([], "fail"),
        (["ResourceClaimTemplate", "Pod a", "Service"], "skip"),
        (["ResourceClaimTemplate", "Pod a", "Pod train", "Service"], "keep"),
    ],
)
def test_what_is_printed_where_an_object_would_be_rejected(want: list[str], choice: str) -> None:
    result = translate(named(SHARE, "a"), WRONG, SERVICE, options=("--on-refusal", choice))

    objects = list(read_objects(result.stdout.encode(), "stdout"))
    assert want == [
        f"{entry.kind} {entry.name}" if entry.kind == "Pod" else entry.kind for entry in objects
    ]
    assert [WRONG] * (choice == "keep") == [
        entry.document for entry in objects if entry.name == "train"
    ]
    assert (1, REJECTION) == (result.exit_code, result.stderr)


def test_nothing_is_printed_by_default_where_an_object_would_be_rejected() -> None:
    result = translate(named(SHARE, "a"), WRONG)

    assert (1, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith(f"{REJECTION}note: nothing is printed")


@pytest.mark.parametrize(
    "text", ["", "---\n", "# nothing\n", '{"kind": "List", "apiVersion": "v1"}']
)
@pytest.mark.parametrize("command", ["translate", "check", "simulate"])
def test_input_without_objects_is_a_wrong_call(command: str, text: str) -> None:
    result = drawbridge(command, "-f", "-", stdin=text)

    assert (2, "") == (result.exit_code, result.stdout)
    assert "no objects in standard input" in result.stderr


def test_a_warning_keeps_the_exit_code() -> None:
    result = translate(pod(gpus(1, mem=1, cores=150)))

    assert result.exit_code == 0
    assert result.stderr.startswith("warning: Pod/default/train: ")


AMOUNT = "spec.containers[0].resources.limits[nvidia.com/gpu]"

WRONG_VALUES: list[tuple[str, Document]] = [
    (
        "error invalidObject Pod/default/train spec.containers[0].resources.limits",
        pod({"name": "a", "resources": {"limits": ["nvidia.com/gpu"]}}),
    ),
    (
        f"error invalidQuantity Pod/default/train {AMOUNT}",
        pod({"name": "a", "resources": {"limits": {"nvidia.com/gpu": "abc"}}}),
    ),
    (
        "error invalidQuantity Pod/default/train spec.initContainers[0].resources.requests[cpu]",
        pod(init=[{"name": "a", "resources": {"requests": {"memory": "1Gi", "cpu": True}}}]),
    ),
    (
        f"error invalidQuantity Pod/default/train {AMOUNT}",
        pod({"name": "a", "resources": {"limits": {"nvidia.com/gpu": None}}}),
    ),
    ("error invalidObject Pod/default/train spec", pod() | {"spec": "x"}),
    ("error invalidObject Pod/default/train spec.containers", pod() | {"spec": {"containers": {}}}),
    (
        "error invalidObject Pod/default/train spec.containers[1]",
        pod({"name": "a"}, "b"),  # type: ignore[arg-type]
    ),
    (
        "error invalidObject Pod/default/train metadata.annotations[b/c]",
        pod(annotations={"a": "1", "b/c": 2}),  # type: ignore[dict-item]
    ),
    ("error invalidObject Pod/default/ metadata.name", pod() | {"metadata": {"name": 5}}),
    (
        "error invalidObject Pod/default/train spec.containers[0].env[1].value",
        pod({"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": 1}]}),
    ),
    (
        "error invalidObject Deployment/default/web spec",
        deployment() | {"spec": ["template"]},
    ),
    (
        "error invalidObject Deployment/default/web spec.template",
        deployment() | {"spec": {"template": "x"}},
    ),
    (
        f"error invalidQuantity Deployment/default/web spec.template.{AMOUNT}",
        deployment(containers=[{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "x"}}}]),
    ),
    (
        "error invalidQuantity ResourceSlice//s spec.devices[0].capacity[memory].value",
        api_object(
            "ResourceSlice",
            "s",
            spec={
                "driver": "d",
                "pool": {"name": "p"},
                "devices": [
                    {"name": "d", "capacity": {"a": {"value": "1"}, "memory": {"value": "lots"}}}
                ],
            },
        ),
    ),
    (
        "error invalidObject ResourceSlice//s spec",
        api_object("ResourceSlice", "s", spec={"driver": "d"}),
    ),
]


@pytest.mark.parametrize(
    ("want", "document"), WRONG_VALUES, ids=[want.partition(" ")[2] for want, _ in WRONG_VALUES]
)
def test_a_wrong_value_in_a_known_kind_is_a_finding(want: str, document: Document) -> None:
    answer_ = answer(document, named(SHARE, "next"))

    assert kinds(answer_) == ["template", "Pod next"]
    assert [want] == finding_lines(answer_)


@pytest.mark.parametrize(
    ("want", "document"),
    [
        ('Invalid value: "x": must be an object', pod() | {"spec": "x"}),
        ("Invalid value: 5: must be a string", pod() | {"metadata": {"name": 5}}),
        (
            'Invalid value: {"driver":"d"}: pool is missing',
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {"driver": "d"}},
        ),
    ],
)
def test_a_wrong_value_is_reported_in_words_of_kubernetes(want: str, document: Document) -> None:
    (finding,) = answer(document)["findings"]

    assert finding["message"] == want


@pytest.mark.parametrize(("want", "word"), [("n, no and off are false", False), ("quotes", 5)])
def test_a_word_that_yaml_takes_for_something_else_wants_quotes(want: str, word: object) -> None:
    (finding,) = answer(pod() | {"metadata": {"name": word}})["findings"]

    assert finding["fix"].startswith("put it in quotes")
    assert want in finding["fix"]


def test_null_means_absent_as_for_the_api_server() -> None:
    document = pod(
        gpus(1, mem=3000),
        tolerations=TOLERATIONS,
        schedulerName=None,
        nodeName=None,
        initContainers=None,
    )
    document["metadata"] |= {"namespace": None, "labels": None, "annotations": None}

    answer_ = answer(document)

    assert kinds(answer_) == ["template", "Pod train"]
    assert answer_["findings"] == []


def test_a_container_without_a_name_stays_the_same_container() -> None:
    # The API server refuses it; until then it has to keep its claims.
    answer_ = answer(pod(gpus(1, mem=3000) | {"name": None}))

    assert answer_["objects"] == answer(*answer_["objects"])["objects"]


@pytest.mark.parametrize("amounts", [SHARE, WHOLE])
def test_a_pod_that_the_api_server_would_reject_for_another_resource_is_not_printed(
    amounts: Document, tmp_path: Path
) -> None:
    document = copy.deepcopy(amounts)
    container = document["spec"]["containers"][0]
    container["resources"]["requests"] = {"example.com/card": 1}
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([document]))

    result = drawbridge("translate", "-f", file, "--snapshot", CLUSTER)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "also set limits[example.com/card] to 1 [limitRequired]" in result.stderr
