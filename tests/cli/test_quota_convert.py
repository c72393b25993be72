"""`drawbridge quota convert --to`: quotas of every vocabulary, as each kind of quota that counts claims."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import Result

from kube.api.device_quota import DeviceQuota
from kube.api.meta import convert as typed
from kube.manifests.dump import dump_yaml
from migration.quotas.measures import Measures
from rules.context.context import Context
from testing.builders import profiles
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object, namespace, resource_quota
from testing.migration import SHARE, hami_node, workload
from testing.rule_cases import finding_lines
from translation.cluster.snapshot import TranslationOptions
from translation.model.dimensions import PERCENTAGE_FIX, amount_fix, counts_amounts
from translation.model.keys import ANY, KeyOutcome, Place

HAMI: Final = "hami-core-gpu.project-hami.io"
NVIDIA: Final = "gpu.nvidia.com"
QUEUE: Final = "scheduling.volcano.sh/queue-name"
FAIR: Final = "guarantees, weights and trees are of a queue: Kueue's or Volcano's"


def convert(
    tmp_path: Path, *objects: Mapping[str, Any], to: str = "", form: str = "json"
) -> Result:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    target = ("--to", to) if to else ()
    return drawbridge("quota", "convert", "--snapshot", file, "-o", form, *target)


def conversions(tmp_path: Path, *objects: Mapping[str, Any], to: str = "device") -> Any:
    result = convert(tmp_path, *objects, to=to)
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)["conversions"]


def elastic_quota(group: str = "scheduling.sigs.k8s.io", **metadata: Any) -> Document:
    return api_object(
        "ElasticQuota",
        "gpus",
        "team",
        api_version=f"{group}/v1alpha1",
        **metadata,
        spec={
            "min": {"koordinator.sh/gpu-memory": "40Gi", "cpu": "4"},
            "max": {
                "koordinator.sh/gpu-memory": "160Gi",
                "koordinator.sh/gpu-core": "200",
                "cpu": "8",
            },
        },
    )


def gpu_resource_quota(**spec: Any) -> Document:
    return api_object(
        "GPUResourceQuota", "gpus", "team", api_version="tensor-fusion.ai/v1", spec=spec
    )


def queue(**capability: str) -> Document:
    return api_object(
        "Queue",
        "training",
        api_version="scheduling.volcano.sh/v1beta1",
        spec={"capability": capability, "deserved": {"volcano.sh/vgpu-memory": "1024"}},
    )


def pod_in_queue(name: str, namespace: str = "team") -> Document:
    return api_object("Pod", name, namespace, annotations={QUEUE: name}, spec={"containers": []})


def only_limits(entry: Mapping[str, Any]) -> list[Document]:
    (document,) = entry["documents"]
    limits: list[Document] = document["spec"]["limits"]
    return limits


def described(limit: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return capacity, or `devices` or `claims`, then driver and amount."""
    measure = limit.get("capacity") or next(name for name in ("devices", "claims") if name in limit)
    return measure, limit["driver"], limit["max"]


@pytest.mark.parametrize(
    ("line", "amount", "limit"),
    [
        ("requests.nvidia.com/gpumem", "81920", ("memory", HAMI, "80Gi")),
        ("limits.nvidia.com/gpumem", "30000", ("memory", HAMI, "30000Mi")),
        ("requests.nvidia.com/gpucores", "300", ("cores", HAMI, "300")),
        ("requests.koordinator.sh/gpu-memory", "80Gi", ("memory", HAMI, "80Gi")),
        ("requests.koordinator.sh/gpu-core", "200", ("cores", HAMI, "200")),
        ("requests.volcano.sh/vgpu-memory", "1024", ("memory", HAMI, "1Gi")),
        ("requests.aliyun.com/gpu-mem", "8", ("memory", HAMI, "8Gi")),
        ("requests.tencent.com/vcuda-memory", "4", ("memory", HAMI, "1Gi")),
        ("requests.amd.com/gpu", "8", ("devices", "gpu.amd.com", "8")),
        ("requests.nvidia.com/mig-1g.5gb", "7", ("devices", NVIDIA, "7")),
    ],
)
def test_a_line_becomes_a_limit_in_the_unit_of_the_driver(
    line: str, amount: str, limit: tuple[str, str, str], tmp_path: Path
) -> None:
    (entry,) = conversions(tmp_path, resource_quota({line: amount}))

    assert limit in map(described, only_limits(entry))
    assert line in entry["converted"]
    assert entry["notConvertible"] == {}


@pytest.mark.parametrize(
    ("line", "amount", "reason"),
    [
        (
            "requests.nvidia.com/gpumem",
            "80Gi",
            "nvidia.com/gpumem counts MiB; write 81920 for 80Gi",
        ),
        (
            "requests.volcano.sh/vgpu-memory",
            "1Gi",
            "volcano.sh/vgpu-memory counts MiB; write 1024 for 1Gi",
        ),
        ("requests.aliyun.com/gpu-mem", "8Gi", "aliyun.com/gpu-mem counts GiB; write 8 for 8Gi"),
        ("requests.tencent.com/vcuda-memory", "1Gi", "blocks of 256 MiB; write 4 for 1Gi"),
        ("requests.nvidia.com/gpumem", "-5", "-5 is negative"),
        ("requests.nvidia.com/gpumem", "500m", "500m is not a whole number"),
        ("requests.koordinator.sh/gpu-memory", "-80Gi", "-80Gi is negative"),
        ("requests.nvidia.com/gpumem", "banana", "'banana' is not a quantity"),
        ("requests.nvidia.com/mig-1g.5gb", "-1", "-1 is negative"),
    ],
)
def test_an_amount_that_no_pod_could_request_is_named(
    line: str, amount: str, reason: str, tmp_path: Path
) -> None:
    """80Gi became 80Pi, as many MiB as the bytes that were written."""
    subject = resource_quota({line: amount, "requests.nvidia.com/gpucores": "300"})

    for target in ("", "device", "kueue", "volcano"):
        result = convert(tmp_path, subject, to=target, form="yaml")
        assert result.exit_code == 1, target
        (note,) = (row for row in result.stderr.splitlines() if f": {line} " in row)
        assert reason in note
        assert "300" in result.stdout


def test_the_unit_is_that_of_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {hami: {memoryFactor: 10}}\n")
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([resource_quota({"requests.nvidia.com/gpumem": "80Gi"})]))

    result = drawbridge("quota", "convert", "--snapshot", file, "--settings", settings)

    assert result.exit_code == 1
    assert "nvidia.com/gpumem counts units of 10 MiB; write 8192 for 80Gi" in result.stderr


@pytest.mark.parametrize(
    ("subject", "line", "reason"),
    [
        (
            {**elastic_quota(), "spec": {"max": {"nvidia.com/gpu": "banana"}}},
            "max.nvidia.com/gpu",
            "'banana' is not a quantity",
        ),
        (
            {**elastic_quota(), "spec": {"max": {"nvidia.com/gpu": -1}}},
            "max.nvidia.com/gpu",
            "-1 is negative",
        ),
        (
            {
                **elastic_quota(),
                "spec": {"min": {"nvidia.com/gpu": []}, "max": {"nvidia.com/gpu": 1}},
            },
            "min.nvidia.com/gpu",
            "Kueue's or Volcano's",
        ),
        (
            gpu_resource_quota(total={"requests": {"vram": "much"}}),
            "total.requests.vram",
            "'much' is not a quantity",
        ),
        (gpu_resource_quota(total={"maxWorkers": -2}), "total.maxWorkers", "-2 is negative"),
        (gpu_resource_quota(total={"maxWorkers": True}), "total.maxWorkers", "true is not"),
        (queue(**{"volcano.sh/vgpu-number": "1.5"}), "capability.volcano.sh/vgpu-number", "whole"),
    ],
)
def test_invalid_amounts_of_other_schedulers_are_named(
    subject: Document, line: str, reason: str, tmp_path: Path
) -> None:
    (entry,) = conversions(tmp_path, subject, pod_in_queue("training"))

    assert reason in entry["notConvertible"][line]
    assert convert(tmp_path, subject).exit_code == 1


def test_a_size_of_devices_is_chosen_by_a_selector(tmp_path: Path) -> None:
    """No ResourceQuota tells two sizes of a class apart."""
    hard = {"requests.nvidia.com/mig-1g.5gb": "50", "requests.nvidia.com/mig-3g.20gb": "16"}

    (entry,) = conversions(tmp_path, resource_quota(hard))

    small, large = only_limits(entry)
    assert (small["max"], large["max"]) == ("50", "16")
    assert "1g.5gb" in small["selectors"][0]["cel"]["expression"]
    assert "3g.20gb" in large["selectors"][0]["cel"]["expression"]


def test_a_key_of_several_drivers_becomes_a_limit_of_each(tmp_path: Path) -> None:
    (entry,) = conversions(tmp_path, resource_quota({"requests.nvidia.com/gpu": "8"}))

    assert sorted(map(described, only_limits(entry))) == [
        ("devices", NVIDIA, "8"),
        ("devices", HAMI, "8"),
    ]
    # The last one alone was named.
    assert {"requests.nvidia.com/gpu": "limits gpu, gpu-2 of DeviceQuota team-gpus"} == (
        entry["converted"]
    )


@pytest.mark.parametrize(
    ("subject", "line", "reason"),
    [
        (
            resource_quota({"requests.nvidia.com/gpumem-percentage": "50"}),
            "requests.nvidia.com/gpumem-percentage",
            "depend on the device",
        ),
        (
            resource_quota({"requests.nvidia.com/gpumem": "5"}, scopes=["NotTerminating"]),
            "requests.nvidia.com/gpumem",
            "scopes",
        ),
        (elastic_quota(), "min.koordinator.sh/gpu-memory", "Kueue's or Volcano's"),
        (
            elastic_quota(labels={"quota.scheduling.koordinator.sh/tree-id": "a"}),
            "quota.scheduling.koordinator.sh/tree-id",
            "trees",
        ),
        (
            elastic_quota(labels={"quota.scheduling.koordinator.sh/is-parent": "true"}),
            "max.koordinator.sh/gpu-memory",
            "parent",
        ),
        (
            queue(**{"volcano.sh/vgpu-memory": "1024"}),
            "capability.volcano.sh/vgpu-memory",
            "no pod that was read",
        ),
        (
            api_object(
                "Queue",
                "research",
                api_version="scheduling.run.ai/v2",
                spec={"resources": {"gpu": {"limit": 4}}},
            ),
            "nvidia.com/gpu",
            "the Queue of KAI names no namespace",
        ),
        (
            api_object(
                "ElasticQuotaProfile",
                "gpus",
                "team",
                api_version="quota.koordinator.sh/v1alpha1",
                spec={"resourceKeys": ["koordinator.sh/gpu-memory"]},
            ),
            "koordinator.sh/gpu-memory",
            "names no namespace",
        ),
    ],
    ids=["percentage", "scope", "min", "tree", "parent", "queue of nobody", "KAI", "profile"],
)
def test_what_has_no_counterpart_is_listed(
    subject: Document, line: str, reason: str, tmp_path: Path
) -> None:
    (entry,) = conversions(tmp_path, subject)

    assert reason in entry["notConvertible"][line]
    assert convert(tmp_path, subject).exit_code == 1


def test_an_elastic_quota_limits_all_of_its_namespaces_together(tmp_path: Path) -> None:
    others = {"quota.scheduling.koordinator.sh/namespaces": '["team-b"]'}

    (entry,) = conversions(tmp_path, elastic_quota(annotations=others))

    (document,) = entry["documents"]
    (expression,) = document["spec"]["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["team", "team-b"]
    assert [described(limit) for limit in only_limits(entry)] == [
        ("memory", HAMI, "160Gi"),
        ("cores", HAMI, "200"),
    ]


def test_a_quota_of_tensor_fusion_keeps_caps_workers_and_threshold(tmp_path: Path) -> None:
    spec = {
        "total": {
            "requests": {"vram": "80Gi", "tflops": "300"},
            "maxWorkers": 8,
            "alertThresholdPercent": 80,
        },
        "single": {"maxRequests": {"vram": "40Gi"}, "defaultRequests": {"vram": "1Gi"}},
    }
    subject = gpu_resource_quota(**spec)

    (entry,) = conversions(tmp_path, subject)

    memory, claims = only_limits(entry)
    assert (memory["max"], memory["perDevice"], memory["alertThresholdPercent"]) == (
        "80Gi",
        "40Gi",
        80,
    )
    assert described(claims) == ("claims", HAMI, "8")
    assert set(entry["notConvertible"]) == {"total.requests.tflops", "single.defaultRequests"}


def test_a_queue_of_volcano_limits_the_namespaces_of_its_pods(tmp_path: Path) -> None:
    subject = queue(**{"volcano.sh/vgpu-memory": "163840"})

    (entry,) = conversions(tmp_path, subject, pod_in_queue("training"))
    assert [described(limit) for limit in only_limits(entry)] == [("memory", HAMI, "160Gi")]
    assert entry["notConvertible"] == {"deserved.volcano.sh/vgpu-memory": FAIR}

    (entry,) = conversions(tmp_path, subject, pod_in_queue("training"), pod_in_queue("other"))
    assert entry["documents"] == []


def test_every_device_quota_that_is_written_is_valid(tmp_path: Path) -> None:
    subjects = (
        resource_quota({"requests.nvidia.com/gpumem": "5", "requests.nvidia.com/mig-1g.5gb": "1"}),
        elastic_quota(),
    )

    entries = conversions(tmp_path, *subjects)

    names = [document["metadata"]["name"] for entry in entries for document in entry["documents"]]
    assert names == ["team-gpus", "team-gpus-2"]  # Of two namesakes none replaces the other.
    for entry in entries:
        for document in entry["documents"]:
            typed(document, DeviceQuota)
            assert finding_lines(document, Context()) == ()


def test_without_a_target_numbers_stay_resource_quotas_and_the_rest_become_device_quotas(
    tmp_path: Path,
) -> None:
    hard = {"requests.amd.com/gpu": "8", "requests.nvidia.com/gpumem": "1024"}

    result = convert(tmp_path, resource_quota(hard), form="yaml")

    core, device = yaml.load_all(result.stdout, Loader=yaml.CSafeLoader)
    assert result.exit_code == 0
    assert core["kind"] == "ResourceQuota"
    assert "gpu.amd.com.deviceclass.resource.k8s.io/devices" in core["spec"]["hard"]
    assert [described(limit) for limit in device["spec"]["limits"]] == [("memory", HAMI, "1Gi")]
    assert "stays as it is" not in result.stderr


def test_a_line_that_a_quota_of_the_cluster_counts_with_claims_is_not_converted_again(
    tmp_path: Path,
) -> None:
    """Claims got a line of their own beside the DeviceQuota, and the DeviceQuota lost a limit."""
    quota = resource_quota({"requests.nvidia.com/gpu": "8", "requests.nvidia.com/gpumem": "1024"})
    (entry,) = conversions(tmp_path, quota)

    result = convert(tmp_path, quota, *entry["documents"])
    again = json.loads(result.stdout)

    assert result.exit_code == 0, result.stderr
    assert (again["quotas"], again["conversions"]) == ([], [])
    assert [line["lines"] for line in again["replacedLines"]] == [sorted(entry["replaced"])]
    assert "counts requests.nvidia.com/gpu, requests.nvidia.com/gpumem and claims" in result.stderr
    assert conversions(tmp_path, quota, *entry["documents"]) == [entry]


def test_pods_that_only_their_quota_rejects_use_devices_by_which_a_line_is_divided(
    tmp_path: Path,
) -> None:
    """Their use was not counted, so the class of all their devices got half of their number."""
    quota = resource_quota({"requests.nvidia.com/gpu": "5", "requests.nvidia.com/gpumem": "40000"})
    pods = workload("web", SHARE, ["hami-0"] * 5)

    (entry,) = conversions(tmp_path, quota, hami_node("hami-0"), namespace("team"), *pods)

    (document,) = entry["documents"]
    amounts = {
        limit["driver"]: limit["max"] for limit in document["spec"]["limits"] if "devices" in limit
    }
    assert amounts == {NVIDIA: "0", HAMI: "5"}


# --- queues ---------------------------------------------------------------------------------------


def test_kueue_counts_a_class_in_one_way(tmp_path: Path) -> None:
    # The API server sorts lines by name.
    hard = {"requests.nvidia.com/gpucores": "100", "requests.nvidia.com/gpumem": "1024"}

    configuration, entry = conversions(tmp_path, resource_quota(hard), to="kueue")

    (document,) = configuration["documents"]
    (mapping,) = document["resources"]["deviceClassMappings"]
    resource = f"memory.{HAMI}"
    assert (mapping["name"], mapping["deviceClassNames"]) == (resource, [HAMI])
    assert mapping["sources"][0]["capacity"]["name"] == "memory"
    (cluster_queue,) = entry["documents"]
    (group,) = cluster_queue["spec"]["resourceGroups"]
    assert group["flavors"][0]["resources"] == [{"name": resource, "nominalQuota": "1Gi"}]
    assert set(entry["notConvertible"]) == {"requests.nvidia.com/gpucores"}


def test_kueue_has_one_configuration_for_all_quotas(tmp_path: Path) -> None:
    other = resource_quota({"requests.amd.com/gpu": "8"})
    other["metadata"]["namespace"] = "other"

    configuration, *entries = conversions(
        tmp_path, other, resource_quota({"requests.nvidia.com/gpumem": "1024"}), to="kueue"
    )

    (document,) = configuration["documents"]
    names = {mapping["name"] for mapping in document["resources"]["deviceClassMappings"]}
    assert names == {"amd.com/gpu", f"memory.{HAMI}"}
    assert all(entry["documents"][0]["kind"] == "ClusterQueue" for entry in entries)


def test_volcano_has_a_line_for_devices_and_one_for_each_capacity(tmp_path: Path) -> None:
    hard = {"requests.nvidia.com/gpumem": "1024", "requests.amd.com/gpu": "8"}

    (entry,) = conversions(tmp_path, resource_quota(hard), to="volcano")

    (document,) = entry["documents"]
    assert document["spec"]["capability"] == {
        f"memory.deviceclass/{HAMI}": "1Gi",
        "deviceclass/gpu.amd.com": "8",
    }


def test_a_queue_keeps_its_name(tmp_path: Path) -> None:
    (entry,) = conversions(tmp_path, queue(**{"volcano.sh/vgpu-number": "4"}), to="volcano")

    (document,) = entry["documents"]
    assert document["metadata"]["name"] == "training"


def test_another_schedulers_numbers_become_a_resource_quota(tmp_path: Path) -> None:
    subject = elastic_quota()
    subject["spec"] = {"max": {"amd.com/gpu": "4"}}

    (entry,) = conversions(tmp_path, subject, to="core")

    (document,) = entry["documents"]
    assert document["spec"]["hard"] == {"gpu.amd.com.deviceclass.resource.k8s.io/devices": "4"}


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "is_counted"),
    [
        ({"annotations": {"volcano.sh/queue-name": "training"}}, True),
        ({"labels": {"volcano.sh/queue-name": "training"}}, True),
        ({"annotations": {"scheduling.k8s.io/group-name": "train-1"}}, True),
        ({"annotations": {QUEUE: "other", "scheduling.k8s.io/group-name": "train-1"}}, True),
        ({"annotations": {QUEUE: "training", "scheduling.k8s.io/group-name": "other-1"}}, False),
        ({"annotations": {QUEUE: "training", "scheduling.k8s.io/group-name": "gone"}}, True),
    ],
    ids=str,
)
def test_the_queue_of_pods_by_volcanos_jobs_and_pod_groups(
    tmp_path: Path, metadata: Mapping[str, Any], is_counted: bool
) -> None:
    """Only pods that name their queue themselves were seen, and Volcano goes by the PodGroup."""
    subject = queue(**{"nvidia.com/gpu": "8"})
    groups = [
        api_object(
            "PodGroup",
            f"{name}-1",
            "team",
            api_version="scheduling.volcano.sh/v1beta1",
            spec={"minMember": 1, "queue": queue_name},
        )
        for name, queue_name in [("train", "training"), ("other", "other")]
    ]
    pod = api_object("Pod", "train-w-0", "team", **metadata, spec={"containers": []})

    (entry,) = conversions(tmp_path, subject, *groups, pod)

    assert is_counted == bool(entry["documents"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--to", "core"),
        ("status", "--split", "used"),
        ("convert", "-o", "text"),
        ("convert", "--to", "yarn"),
    ],
)
def test_a_wrong_call_is_rejected(arguments: tuple[str, ...]) -> None:
    result = drawbridge("quota", *arguments, "--snapshot", EXAMPLES / "quota" / "cluster.yaml")

    assert (result.exit_code, result.stdout) == (2, "")


# --- pods that still have the keys ----------------------------------------------------------------

NVIDIA_GPU: Final = "nvidia.com/gpu"
SHARES: Final = [
    "nvidia.com/gpucores",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/priority",
]


def legacy_keys(tmp_path: Path, *objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return driver and measure of each limit to its legacyKeys."""
    (conversion,) = conversions(tmp_path, *objects)
    (quota,) = conversion["documents"]
    return {
        f"{limit['driver']} {limit.get('capacity', 'devices')}": limit.get("legacyKeys")
        for limit in quota["spec"]["limits"]
    }


def test_what_one_of_a_key_is_comes_from_the_translation(tmp_path: Path) -> None:
    """A container with two devices has the amount of HAMi's keys twice, and that of Koordinator's once."""
    hard = {"requests.nvidia.com/gpumem": "8192", "requests.nvidia.com/gpucores": "100"}
    assert legacy_keys(tmp_path, resource_quota(hard)) == {
        f"{HAMI} memory": [
            {"name": "nvidia.com/gpumem", "perUnit": "1Mi", "multipliedBy": NVIDIA_GPU}
        ],
        f"{HAMI} cores": [
            {"name": "nvidia.com/gpucores", "perUnit": "1", "multipliedBy": NVIDIA_GPU}
        ],
    }
    assert legacy_keys(tmp_path, elastic_quota()) == {
        f"{HAMI} memory": [{"name": "koordinator.sh/gpu-memory", "perUnit": "1"}],
        f"{HAMI} cores": [{"name": "koordinator.sh/gpu-core", "perUnit": "1"}],
    }


def test_other_keys_of_a_pod_tell_whose_devices_a_number_means(tmp_path: Path) -> None:
    assert legacy_keys(tmp_path, resource_quota({"requests.nvidia.com/gpu": "8"})) == {
        f"{NVIDIA} devices": [{"name": NVIDIA_GPU, "without": SHARES}],
        f"{HAMI} devices": [{"name": NVIDIA_GPU, "onlyWith": SHARES}],
    }


def test_annotations_are_no_keys_that_a_quota_sees(tmp_path: Path) -> None:
    quota = gpu_resource_quota(total={"requests": {"vram": "80Gi"}})

    assert set(legacy_keys(tmp_path, quota).values()) == {None}


def test_an_old_line_may_go_where_its_pods_are_counted(tmp_path: Path) -> None:
    result = convert(tmp_path, resource_quota({"requests.nvidia.com/gpu": "8"}), to="device")

    assert "remove an old line once the DeviceQuota says Enforced=True" in result.stderr
    assert "both may be used" not in result.stderr
    result = convert(tmp_path, resource_quota({"requests.nvidia.com/gpu": "8"}), to="volcano")
    assert "both may be used" in result.stderr


def test_the_fix_of_an_amount_is_its_conversion_where_it_has_one() -> None:
    """That of a percentage of memory was `quota convert`, too."""
    measures = Measures(profiles(), TranslationOptions())
    vocabularies = measures.vocabularies.values()
    rows = [row for vocabulary in vocabularies for row in vocabulary.table]
    keys = {
        row.name
        for row in rows
        if row.place is Place.LIMIT
        and ANY not in row.name
        and counts_amounts(row.name, vocabularies)
    }
    accepted = keys & {row.name for row in rows if row.outcome is not KeyOutcome.REFUSED}

    fixed_by_hand = {key for key in accepted if amount_fix(key, vocabularies) == PERCENTAGE_FIX}

    assert fixed_by_hand == {key for key in accepted if not measures.of_key(key)}
    assert {"nvidia.com/gpumem-percentage", "koordinator.sh/gpu-memory-ratio"} < fixed_by_hand
