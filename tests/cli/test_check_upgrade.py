"""Things that an upgrade of Kubernetes, or of Drawbridge, would break."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from answers.model.kubernetes_version import parse_version
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from migration.upgrade.kubernetes import (
    GATES,
    REMOVED,
    check_kubernetes,
    gates_after,
    parse_requested_apis,
)
from migration.upgrade.model import UpgradeCode
from testing import documents
from testing.builders import profiles
from testing.command import drawbridge
from testing.documents import Document, api_object, owned
from testing.slice_cases import MIXED_LAYOUT
from translation.compiling.claims import TRANSLATION_VERSION

ROOT = Path(__file__).parent.parent.parent
DRIVER = "gpu.nvidia.com"


def check(tmp_path: Path, *objects: Mapping[str, Any], flags: tuple[str, ...] = ()) -> Document:
    """Return the answer about a cluster with these objects."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("check-upgrade", "--snapshot", file, "-o", "json", *flags)
    answer: Document = json.loads(result.stdout)
    has_error = any(entry["severity"] == "error" for entry in answer["findings"])
    assert result.exit_code == int(has_error)
    return answer


def codes(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(entry["severity"], entry["code"]) for entry in answer["findings"]]


def claim(api_version: str = "resource.k8s.io/v1", **fields: Any) -> Document:
    exactly = {"deviceClassName": DRIVER, **fields}
    request = {"name": "r", "exactly": exactly}
    return {
        "apiVersion": api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": "share", "namespace": "team"},
        "spec": {"devices": {"requests": [request]}},
    }


def record(version: int = TRANSLATION_VERSION, hash_: str = "") -> str:
    used = {
        "vocabulary": "nvidia",
        "name": DRIVER,
        "hash": hash_ or profiles()[DRIVER].content_hash,
    }
    return json.dumps({"translationVersion": version, "profiles": [used], "containers": []})


def pod(text: str, *, waits: bool, signature: str = "v1.k.1.mac") -> Document:
    annotations = {REQUEST_ANNOTATION: text, SIGNATURE_ANNOTATION: signature}
    statuses = [] if waits else [{"name": "gpu", "resourceClaimName": "train-gpu"}]
    return api_object(
        "Pod",
        "train",
        "team",
        annotations=annotations,
        spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        status={"phase": "Pending", "resourceClaimStatuses": statuses},
    )


def deployment(text: str) -> Document:
    template = {"metadata": {"annotations": {REQUEST_ANNOTATION: text}}, "spec": {"containers": []}}
    return api_object("Deployment", "train", "team", spec={"template": template})


# --- Kubernetes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("1.33", [("error", "kubernetesTooOld")]),
        ("1.34", [("error", "featureGateOff")]),
        ("1.35", [("error", "featureGateOff")]),
        ("1.36", []),
        ("1.37", []),
        ("1.38", [("warning", "kubernetesNotTested")]),
    ],
)
def test_a_share_needs_a_version_that_keeps_it(
    tmp_path: Path, target: str, expected: list[tuple[str, str]]
) -> None:
    share = claim(capacity={"requests": {"memory": "8Gi"}})

    answer = check(tmp_path, share, flags=("--kubernetes", target))

    assert [entry for entry in codes(answer) if target != "1.33" or "Old" in entry[1]] == expected


@pytest.mark.parametrize(("version", "expected"), [((1, 34), ["gateDefective"]), ((1, 35), [])])
def test_a_gate_that_is_on_does_not_help_where_the_scheduler_mistakes_devices(
    version: tuple[int, int], expected: list[str]
) -> None:
    share = SourceObject(
        document=claim(capacity={"requests": {"memory": "8Gi"}}), source="", line=1
    )

    findings = check_kubernetes([share], version, {"DRAConsumableCapacity": True}, {}, "default")

    assert expected == [
        finding.code.value
        for finding in findings
        if finding.code is not UpgradeCode.KUBERNETES_NOT_TESTED
    ]


def test_nobody_is_told_to_turn_on_a_gate_that_does_not_help(tmp_path: Path) -> None:
    share = claim(capacity={"requests": {"memory": "8Gi"}})

    finding, *_ = check(tmp_path, share, flags=("--kubernetes", "1.34"))["findings"]

    assert finding["code"] == "featureGateOff"
    assert finding["fix"].startswith("use a newer version of Kubernetes; with the gate, ")


def test_a_claim_of_whole_devices_needs_no_gate(tmp_path: Path) -> None:
    answer = check(tmp_path, claim(), flags=("--kubernetes", "1.35"))

    assert codes(answer) == []


@pytest.mark.parametrize(
    ("gate", "document"),
    [
        ("DRAExtendedResource", {"kind": "DeviceClass", "spec": {"extendedResourceName": "a/b"}}),
        (
            "DRAPartitionableDevices",
            {"kind": "ResourceSlice", "spec": {"devices": [{"consumesCounters": [{}]}]}},
        ),
        ("DRADeviceTaints", {"kind": "ResourceSlice", "spec": {"devices": [{"taints": [{}]}]}}),
        ("DRADeviceTaintRules", {"kind": "DeviceTaintRule", "spec": {}}),
        (
            "DRADeviceBindingConditions",
            {"kind": "ResourceSlice", "spec": {"devices": [{"bindingConditions": ["a"]}]}},
        ),
        (
            "DRADeviceCompatibilityGroups",
            {
                "kind": "ResourceSlice",
                "spec": {"devices": [{"consumesCounters": [{"compatibilityGroups": ["a"]}]}]},
            },
        ),
    ],
)
def test_fields_of_gates_that_are_off_are_found(
    tmp_path: Path, gate: str, document: Document
) -> None:
    head = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "a"}}

    answer = check(tmp_path, {**head, **document}, flags=("--kubernetes", "1.34"))

    (finding,) = (
        entry for entry in answer["findings"] if f"feature gate {gate} " in entry["message"]
    )
    assert (finding["severity"], finding["count"]) == ("error", 1)
    assert finding["objects"] == [f"{document['kind']}//a"]


@pytest.mark.parametrize(
    ("api_version", "target", "expected"),
    [
        ("resource.k8s.io/v1beta1", "1.38", ("error", "apiRemoved")),
        ("resource.k8s.io/v1beta1", "1.37", ("warning", "apiDeprecated")),
        ("resource.k8s.io/v1beta2", "1.39", ("error", "apiRemoved")),
    ],
)
def test_old_api_versions_are_found(
    tmp_path: Path, api_version: str, target: str, expected: tuple[str, str]
) -> None:
    answer = check(tmp_path, claim(api_version), flags=("--kubernetes", target))

    assert expected in codes(answer)


def test_the_bridge_runs_with_one_version(tmp_path: Path) -> None:
    ownership = documents.ownership(owned(name=DRIVER))

    assert codes(check(tmp_path, ownership, flags=("--kubernetes", "1.37"))) == []
    later = codes(check(tmp_path, ownership, flags=("--kubernetes", "1.38")))
    assert ("error", "componentNeedsKubernetes") in later


def test_gates_that_somebody_set_stay_set() -> None:
    gates = {"DRAConsumableCapacity": True, "DRADeviceTaints": False, "DRAAdminAccess": True}

    assert gates_after(gates, (1, 35), (1, 36)) == {"DRAConsumableCapacity": True}
    assert gates_after(gates, (1, 35), (1, 35)) == gates


def test_versions_in_the_documentation_are_those_of_the_check() -> None:
    """The table of docs/operations.md has the same defaults."""
    words = {"on": True, "off": False, "no": None}
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = {
        cells[0].strip(" `"): [words[cell.strip()] for cell in cells[1:5]]
        for line in text.splitlines()
        if line.startswith("| `DRA")
        for cells in [line.strip("|").split("|")]
    }

    assert {gate: list(defaults.values()) for gate, defaults in GATES.items()} == {
        gate: rows[gate] for gate in GATES
    }


def test_every_removal_is_after_its_deprecation() -> None:
    assert all(deprecated < removed for deprecated, removed in REMOVED.values())


@pytest.mark.parametrize("text", ["latest", "1", "v1.x", ""])
def test_other_texts_are_no_versions(text: str) -> None:
    assert parse_version(text) is None


def test_other_metrics_tell_no_apis() -> None:
    assert parse_requested_apis('apiserver_request_total{code="200"} 7\n') == {}


# --- Drawbridge -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (record(TRANSLATION_VERSION + 1), "translationVersionDiffers"),
        (record(hash_="0" * 16), "profileDiffers"),
    ],
)
def test_translations_of_another_version_are_reported_by_what_becomes_of_them(
    tmp_path: Path, text: str, code: str
) -> None:
    assert codes(check(tmp_path, deployment(text))) == [("error", code)]
    assert codes(check(tmp_path, pod(text, waits=True))) == [("warning", code)]
    assert codes(check(tmp_path, pod(text, waits=False))) == [("info", code)]


def test_translations_of_this_version_are_no_finding(tmp_path: Path) -> None:
    assert codes(check(tmp_path, deployment(record()), pod(record(), waits=True))) == []


@pytest.mark.parametrize("signature", ["", "v0.k.1.mac"])
def test_a_pod_that_waits_needs_a_signature(tmp_path: Path, signature: str) -> None:
    waiting = pod(record(), waits=True, signature=signature)

    assert codes(check(tmp_path, waiting)) == [("warning", "notSigned")]
    assert codes(check(tmp_path, pod(record(), waits=False, signature=signature))) == []


def test_settings_that_this_version_does_not_have_are_reported(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {removedSetting: true}\n")

    answer = check(tmp_path, claim(), flags=("--settings", str(settings)))

    (finding,) = answer["findings"]
    assert (finding["severity"], finding["code"]) == ("error", "settingsInvalid")
    assert "removedSetting" in finding["message"]


def test_objects_that_make_no_sense_end_no_call(tmp_path: Path) -> None:
    odd = [
        {**claim(), "spec": None},
        {
            **claim(),
            "spec": {"devices": {"requests": [None, {"exactly": 1, "firstAvailable": "a"}]}},
        },
        {**pod("{", waits=True)},
        {**deployment("x"), "spec": {"template": []}},
    ]

    assert codes(check(tmp_path, *odd, flags=("--kubernetes", "1.37"))) == []


# --- the call -------------------------------------------------------------------------------------


def test_manifests_alone_need_a_version(tmp_path: Path) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(dump_yaml([claim("resource.k8s.io/v1beta1")]))

    assert drawbridge("check-upgrade", "-f", file).exit_code == 2
    result = drawbridge("check-upgrade", "-f", file, "--kubernetes", "1.38")
    assert (result.exit_code, "apiRemoved" in result.stdout) == (1, True)


@pytest.mark.parametrize("flags", [(), ("--kubernetes", "new", "--snapshot", "examples/cluster")])
def test_wrong_calls_end_with_two(flags: tuple[str, ...]) -> None:
    result = drawbridge("check-upgrade", *flags)

    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("target", "missing", "expected"),
    [
        ("1.34", (), False),
        ("1.35", (), True),
        ("1.37", (), True),
        ("1.37", ("devices",), False),
        ("1.37", ("sharedCounters",), False),
    ],
)
def test_devices_beside_counters_end_with_1_35(
    target: str, missing: tuple[str, ...], expected: bool, tmp_path: Path
) -> None:
    spec = {name: value for name, value in MIXED_LAYOUT["spec"].items() if name not in missing}

    answer = check(tmp_path, MIXED_LAYOUT | {"spec": spec}, flags=("--kubernetes", target))

    assert expected is (("error", "layoutRejected") in codes(answer))
