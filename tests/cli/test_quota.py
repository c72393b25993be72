"""`drawbridge quota convert`: lines for the claims of translated pods, beside the old ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object

CORE = ("--to", "core")
SUFFIX = ".deviceclass.resource.k8s.io/devices"
HAMI = f"hami-core-gpu.project-hami.io{SUFFIX}"
NVIDIA = f"gpu.nvidia.com{SUFFIX}"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io/"
MIG = f"mig.nvidia.com{SUFFIX}"


def quota(hard: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return api_object(
        "ResourceQuota",
        "gpus",
        "team",
        uid="1",
        resourceVersion="7",
        spec={"hard": hard, **spec},
        status={"hard": hard},
    )


def convert(
    tmp_path: Path, *objects: Mapping[str, Any], output: str = "json", flags: Sequence[Any] = ()
) -> Result:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("quota", "convert", "--snapshot", file, "-o", output, *flags)


@pytest.mark.parametrize(
    ("hard", "added"),
    [
        ({"requests.nvidia.com/gpu": "64"}, {NVIDIA: "64", HAMI: "64"}),
        ({"limits.nvidia.com/gpu": "64"}, {NVIDIA: "64", HAMI: "64"}),
        ({"requests.nvidia.com/mig-1g.5gb": "7"}, {MIG: "7"}),
        ({"requests.amd.com/gpu": "8"}, {f"gpu.amd.com{SUFFIX}": "8"}),
        ({"requests.nvidia.com/gpu": "64", NVIDIA: "5"}, {HAMI: "64"}),
        ({f"{IMPLICIT}a.example.com": "3"}, {f"a.example.com{SUFFIX}": "3"}),
    ],
)
def test_numbers_of_devices_become_devices_of_classes(
    hard: Mapping[str, str], added: Mapping[str, str], tmp_path: Path
) -> None:
    result = convert(tmp_path, quota({**hard, "pods": "10"}))

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["object"] == "ResourceQuota/team/gpus"
    assert converted["added"] == added
    assert converted["notConvertible"] == {}
    assert converted["document"]["spec"]["hard"] == {**added, **hard, "pods": "10"}
    assert result.exit_code == 0


def test_a_class_that_maps_the_key_has_no_line_beside_that_of_the_key(tmp_path: Path) -> None:
    """Claims that Kubernetes makes for pods with the key counted twice, and waited above the smaller line."""
    mapped = api_object(
        "DeviceClass", "gpu.nvidia.com", spec={"extendedResourceName": "nvidia.com/gpu"}
    )

    result = convert(tmp_path, quota({"requests.nvidia.com/gpu": "64"}), mapped)

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["added"] == {HAMI: "64"}
    (effect,) = converted["effects"]
    assert effect["allows"].startswith(
        "pods with the key and claims of class gpu.nvidia.com together 64, claims 64 (64 of class hami"
    )


SMALL, LARGE = "requests.nvidia.com/mig-1g.5gb", "requests.nvidia.com/mig-3g.20gb"


@pytest.mark.parametrize(
    "hards",
    [
        [{SMALL: "50", LARGE: "16"}],
        [{SMALL: "50"}, {LARGE: "16"}],
        [{f"{IMPLICIT}mig.nvidia.com": "3", SMALL: "7"}],
    ],
    ids=["one quota", "two quotas", "the class itself"],
)
def test_limits_of_two_sizes_do_not_become_one(
    hards: Sequence[Mapping[str, str]], tmp_path: Path
) -> None:
    """16 large devices and 50 small ones became 66 of either."""
    quotas = [quota(hard) for hard in hards]
    for number, document in enumerate(quotas):
        document["metadata"] |= {"name": f"gpus-{number}"}

    result = convert(tmp_path, *quotas, flags=CORE)

    assert_not_converted(result, hards)


def test_limits_of_two_sizes_stay_where_a_class_maps_each(tmp_path: Path) -> None:
    classes = [
        api_object("DeviceClass", name, spec={"extendedResourceName": f"nvidia.com/{name}"})
        for name in ("mig-1g.5gb", "mig-3g.20gb")
    ]

    result = convert(tmp_path, quota({SMALL: "50", LARGE: "16"}), *classes, flags=CORE)
    (converted,) = json.loads(result.stdout)["quotas"]
    assert (converted["added"], converted["notConvertible"]) == ({}, {})

    result = convert(tmp_path, quota({SMALL: "50", LARGE: "16"}), classes[0], flags=CORE)
    (converted,) = json.loads(result.stdout)["quotas"]
    assert list(converted["notConvertible"]) == [LARGE]


def assert_not_converted(result: Result, hards: Sequence[Mapping[str, str]]) -> None:
    converted = json.loads(result.stdout)["quotas"]
    assert all(MIG not in entry["added"] for entry in converted)
    reasons = {line: why for entry in converted for line, why in entry["notConvertible"].items()}
    assert set(reasons) == {line for hard in hards for line in hard}
    assert all("counts devices of all sizes" in reason for reason in reasons.values())
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("key", "is_converted"), [("nvidia.com/mig-1g.5gb", True), ("nvidia.com/mig-3g.20gb", False)]
)
def test_a_limit_of_one_size_counts_no_pods_of_another(
    key: str, is_converted: bool, tmp_path: Path
) -> None:
    container = {"name": "c", "image": "a", "resources": {"limits": {key: 1}}}
    job = {"template": {"spec": {"containers": [container]}}}
    nightly = api_object(
        "CronJob", "nightly", "team", spec={"schedule": "0 1 * * *", "jobTemplate": {"spec": job}}
    )

    result = convert(tmp_path, quota({SMALL: "7"}), nightly, flags=CORE)

    if is_converted:
        assert json.loads(result.stdout)["quotas"][0]["added"] == {MIG: "7"}
    else:
        assert_not_converted(result, [{SMALL: "7"}])


def test_quotas_are_converted_before_their_namespace_is_opted_in(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {mode: OptIn}\n")

    result = convert(
        tmp_path, quota({"requests.nvidia.com/gpu": "64"}), flags=("--settings", settings)
    )

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["added"] == {NVIDIA: "64", HAMI: "64"}
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("subject", "line", "reason"),
    [
        (quota({"requests.nvidia.com/gpumem": "480000"}), "requests.nvidia.com/gpumem", "shares"),
        (
            quota({"requests.nvidia.com/gpu": "4"}, scopes=["NotTerminating"]),
            "requests.nvidia.com/gpu",
            "scopes counts no claims",
        ),
        (
            quota({f"{IMPLICIT}gpu.nvidia.com": "4"}, scopes=["NotTerminating"]),
            f"{IMPLICIT}gpu.nvidia.com",
            "scopes counts no claims",
        ),
    ],
    ids=["share", "scope", "implicit name"],
)
def test_what_no_quota_can_express_is_named(
    subject: Mapping[str, Any], line: str, reason: str, tmp_path: Path
) -> None:
    result = convert(tmp_path, subject, output="yaml", flags=CORE)

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"ResourceQuota/team/gpus: {line} stays as it is" in result.stderr
    assert reason in result.stderr


GPU = "requests.nvidia.com/gpu"


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        (-5, "-5 is negative; write 0 or more"),
        (1.5, "1500m is not a whole number"),
        ("500m", "500m is not a whole number"),
        ("80Gi", "80Gi is a number of bytes, and the key counts devices"),
        ("banana", "'banana' is not a quantity such as 500m, 3Gi or 1e3"),
        ("3 ", "'3 ' is not a quantity"),
        (None, "null is not a quantity"),
        (True, "true is not a quantity"),
        ([1], "a list is not a quantity"),
        ({"a": 1}, "an object is not a quantity"),
    ],
    ids=repr,
)
def test_a_line_without_a_number_of_devices_is_named(
    amount: Any, reason: str, tmp_path: Path
) -> None:
    """Such lines were copied, or left out without a word."""
    for flags in (CORE, (), ("--to", "device"), ("--to", "kueue"), ("--to", "volcano")):
        result = convert(tmp_path, quota({GPU: amount}), output="yaml", flags=flags)

        assert (result.exit_code, result.stdout) == (1, ""), flags
        assert f"note: ResourceQuota/team/gpus: {GPU} " in result.stderr
        assert reason in result.stderr


def test_an_invalid_line_does_not_keep_others_from_being_converted(tmp_path: Path) -> None:
    subject = quota({GPU: "banana", "requests.amd.com/gpu": "8"})

    result = convert(tmp_path, subject, flags=CORE)

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["added"] == {f"gpu.amd.com{SUFFIX}": "8"}
    assert set(converted["notConvertible"]) == {GPU}
    assert result.exit_code == 1


def test_the_yaml_can_be_applied_again(tmp_path: Path) -> None:
    result = convert(tmp_path, quota({"requests.nvidia.com/gpu": "64"}), output="yaml")

    (document,) = yaml.load_all(result.stdout, Loader=yaml.CSafeLoader)
    assert document["metadata"] == {"name": "gpus", "namespace": "team"}
    assert "status" not in document
    again = convert(tmp_path, document, output="yaml")
    assert again.stdout == ""
    assert "nothing to add" in again.stderr


@pytest.mark.parametrize(
    "document",
    [
        quota({"pods": "10"}),
        quota({IMPLICIT: "10"}),
        api_object("ResourceQuota", "a", spec=7),
        api_object("ResourceQuota", "a"),
    ],
)
def test_other_quotas_are_passed_over(document: Mapping[str, Any], tmp_path: Path) -> None:
    result = convert(tmp_path, document, output="yaml")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no ResourceQuota names a device key" in result.stderr


def test_quotas_that_a_snapshot_could_not_read_are_named(tmp_path: Path) -> None:
    snapshot = api_object("Snapshot", "cluster", unreadable=["resourcequotas", "\x1b[31m"])

    result = convert(tmp_path, snapshot)

    assert (
        "note: resourcequotas cannot be read, so the answer is as if there were none"
        in result.stderr
    )
    assert "\x1b" not in result.stderr


def deployment(name: str, amounts: Mapping[str, str], replicas: int) -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": amounts}}
    return api_object(
        "Deployment",
        name,
        "team",
        spec={"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    )


WHOLE = {"nvidia.com/gpu": "2"}
SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}


@pytest.mark.parametrize(
    ("workloads", "added"),
    [
        ((deployment("a", WHOLE, 3), deployment("b", SHARE, 2)), {NVIDIA: "34", HAMI: "30"}),
        ((deployment("a", SHARE, 1),), {NVIDIA: "31", HAMI: "33"}),
        ((), {NVIDIA: "32", HAMI: "32"}),
        ((deployment("a", WHOLE, 48), deployment("b", SHARE, 32)), {NVIDIA: "48", HAMI: "16"}),
    ],
    ids=["both", "one class", "nothing", "more than the line allows"],
)
def test_a_split_by_use_allows_no_more_than_the_old_line(
    workloads: Sequence[Mapping[str, Any]], added: Mapping[str, str], tmp_path: Path
) -> None:
    subject = quota({"requests.nvidia.com/gpu": "64"})

    result = convert(tmp_path, subject, *workloads, flags=("--split", "used"))

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["added"] == added
    assert "pods with the key 64, claims 64" in result.stderr


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        (1, ""),
        (2, "2, and the pods and claims of today use 2: a workload without pods needs 1"),
        (
            3,
            "2, and the pods and claims of today use 3: new pods wait for their claims until these",
        ),
    ],
    ids=["room", "all in use", "more than all in use"],
)
def test_a_line_that_is_full_says_why_pods_would_wait(
    tmp_path: Path, replicas: int, text: str
) -> None:
    """One that today's use fits exactly keeps only further pods waiting."""
    workloads = deployment("a", SHARE, replicas), deployment("b", SHARE, 0)

    result = convert(tmp_path, quota({GPU: "2"}), *workloads, flags=("--split", "used"))

    told = " ".join(result.stderr.split())
    assert text in told
    assert bool(text) is ("of today use" in told)


def test_amounts_are_divided_by_todays_use_wherever_it_is_known(tmp_path: Path) -> None:
    subject = quota({"requests.nvidia.com/gpu": "64"})

    result = convert(tmp_path, subject, deployment("a", WHOLE, 3), deployment("b", SHARE, 2))

    document = json.loads(result.stdout)
    assert document["split"] == "used"
    assert document["quotas"][0]["added"] == {NVIDIA: "34", HAMI: "30"}
    assert (
        "note: --split used: each class has what the namespace uses of it and needs"
        in result.stderr
    )


@pytest.mark.parametrize(
    ("has_whole", "mappings"), [(True, {"gpu.nvidia.com": "nvidia.com/gpu"}), (False, {})]
)
def test_a_class_that_a_plan_has_map_the_name_of_a_line_is_named(
    tmp_path: Path, mappings: Mapping[str, str], *, has_whole: bool
) -> None:
    """A plan's quota has no line of that class, since it would limit the same pods once more."""
    workloads = [deployment("share", SHARE, 3), *([deployment("whole", WHOLE, 3)] * has_whole)]

    result = convert(tmp_path, quota({"requests.nvidia.com/gpu": "64"}), *workloads)

    assert mappings == json.loads(result.stdout)["mappings"]
    assert bool(mappings) is ("prepare.sh of a plan has class gpu.nvidia.com map" in result.stderr)


def test_without_pods_each_class_has_the_whole_amount_and_it_is_reported(tmp_path: Path) -> None:
    subject = quota({"requests.nvidia.com/gpu": "64"})

    result = convert(tmp_path, subject)

    assert json.loads(result.stdout)["split"] == "whole"
    assert "what namespaces use today is not known, since no pods were read" in result.stderr


def test_pods_that_could_not_be_read_show_no_use(tmp_path: Path) -> None:
    snapshot = api_object("Snapshot", "cluster", unreadable=["pods"])
    subject = quota({"requests.nvidia.com/gpu": "64"})

    result = convert(tmp_path, snapshot, subject, deployment("a", WHOLE, 3))

    assert json.loads(result.stdout)["split"] == "whole"


def test_what_whole_amounts_allow_together_is_reported(tmp_path: Path) -> None:
    result = convert(tmp_path, quota({"requests.nvidia.com/gpu": "64"}))

    assert "requests.nvidia.com/gpu now allows pods with the key 64, claims 128" in result.stderr


@pytest.mark.parametrize("amount", ["1000", "1k", "1e3"])
def test_one_amount_reads_alike_however_it_is_written(tmp_path: Path, amount: str) -> None:
    """A line of 1e3 allowed claims of 1k, and 2e3 together."""
    objects = quota({GPU: amount}), deployment("a", WHOLE, 3), deployment("b", SHARE, 2)

    told = convert(tmp_path, *objects).stderr
    of_limits = convert(tmp_path, *objects, flags=("--to", "device", "--split", "whole")).stderr

    text = " ".join(told.split())
    assert "pods with the key 1000, claims 1000 (" in text
    assert "; together 2000, and 1000 before" in text
    assert "allows 1000 of all classes together, the limits allow 2000 once" in " ".join(
        of_limits.split()
    )


def test_a_percentage_is_no_number_of_devices(tmp_path: Path) -> None:
    result = convert(tmp_path, quota({"requests.koordinator.sh/rdma": "800"}))

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["added"] == {}
    assert result.exit_code == 1
