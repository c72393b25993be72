"""Text of tenants and of nodes in the functions of the scripts: none of it becomes a line, a flag or a key."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from testing.plan_functions import CLUSTER, run_functions
from testing.programs import needs_kubectl

ALL: Final = "-Al!x"
"""Flags of kubectl for objects of all namespaces."""
FORGED: Final = {
    "print_pods team app=web StatefulSet/web": f"{ALL} StatefulSet/web claims True",
    "print_claimed": f"{ALL} StatefulSet/web other node-0 translated - - True",
}
# kubectl prints objects of a file alone, without the list of them.
REAL: Final = """kubectl() {
  local word
  for word in "$@"; do
    if [[ "$word" != --output=go-template=* ]]; then continue; fi
    word="${word/'{{range .items}}'/}"
    command kubectl annotate --local --filename=pod.json a=b "${word%'{{end}}'}"
  done
}"""


@needs_kubectl
@pytest.mark.parametrize("call", FORGED)
@pytest.mark.parametrize("place", ["kind", "name", "status"])
def test_no_text_of_a_pod_is_a_line_for_another_one(tmp_path: Path, call: str, place: str) -> None:
    """A tenant writes any kind and name of an owner, and a node any status: the script deleted pods of all namespaces."""
    odd = f"Pod\n{FORGED[call]}\n"
    owner = {"apiVersion": "v1", "kind": "StatefulSet", "name": "web", "uid": "1"}
    ready = {"type": "Ready", "status": "True"}
    (ready if place == "status" else owner)[place] = odd
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "team",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"containers": [], "resourceClaims": [{"name": "a"}], "nodeName": "node-0"},
        "status": {"conditions": [ready]},
    }
    (tmp_path / "pod.json").write_text(json.dumps(pod))

    ran = run_functions(tmp_path, f"{REAL}\n{call}")

    assert 0 == ran.returncode, ran.stderr
    assert [] == [line for line in ran.stdout.splitlines() if line.startswith(ALL)]


@pytest.mark.parametrize(
    "odd", ["@=2", "=5", "web", "\x1b[2J/team/web=1", "*", "a/b/c=x", "X/team/(=1", "x[$(id)]=3"]
)
def test_a_note_of_a_node_has_workloads_with_numbers_alone(tmp_path: Path, odd: str) -> None:
    """The kubelet writes annotations of its node: the last step stopped at some of them each time."""
    (tmp_path / "noted").write_text(f"{odd} Deployment/team/web=2")

    ran = run_functions(tmp_path, f"{CLUSTER}\nprint_noted hami-1\nwait_for_evicted hami-1")

    assert 0 == ran.returncode, ran.stderr
    assert "Deployment/team/web=2\n" == ran.stdout
    assert "" == ran.stderr


@pytest.mark.parametrize("name", ["..", ".", "-A", "a.", "a" * 300, ".a"])
def test_an_owner_has_a_name_that_kubernetes_allows(tmp_path: Path, name: str) -> None:
    """kubectl took it for a path and failed, so one tenant's pod stopped the way back of all."""
    (tmp_path / "noted").write_text(f"Job/team/{name}=1 Job/team/a.b-c=1")
    lines = [f"a-0 Job/{owner} team hami-1 translated - - True" for owner in (name, "a.b-c", "b")]
    (tmp_path / "pods").write_text("\n".join(lines))

    ran = run_functions(tmp_path, f"{CLUSTER}\nprint_claimed; print_noted hami-1")

    assert 0 == ran.returncode, ran.stderr
    assert [*lines[1:], "Job/team/a.b-c=1"] == ran.stdout.splitlines()


def test_a_drain_that_is_repeated_notes_workloads_once(tmp_path: Path) -> None:
    """The annotations of a node have a bound of 256 KiB."""
    (tmp_path / "noted").write_text("Deployment/team/web=1 Job/team/a=1")
    (tmp_path / "pods").write_text("web-7f-1 ReplicaSet/web-7f team hami-1 translated - 7f True\n")

    ran = run_functions(tmp_path, f"{CLUSTER}\nnote_evicted hami-1")

    assert 0 == ran.returncode, ran.stderr
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.endswith(" drawbridge.internal/evicted=Deployment/team/web=1 Job/team/a=1")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a-0 Crew/a native hami-1 translated - - True", ""),
        ("a-0 Crew/a team native translated - - True", ""),
        ("a-0 Crew/a team hami-1 native - - True", "manifest\n"),
    ],
)
def test_a_namespace_may_have_the_name_of_another_word(
    tmp_path: Path, line: str, reason: str
) -> None:
    """Its pods were asked about as if their manifest had claims."""
    namespace = line.split()[2]

    ran = run_functions(tmp_path, f"{CLUSTER}\nprint_reason Crew/{namespace}/a '{line}'")

    assert 0 == ran.returncode, ran.stderr
    assert reason == ran.stdout


PATCHED: Final = "kubectl patch {kind}/a --namespace=team --type=merge "
ANEW: Final = "Job/team/a has to be created anew without it, as the template of a Job cannot change"
TEMPLATE: Final = "drawbridge.internal/translate in the template for pods of {kind}/team/a"


@pytest.mark.parametrize(
    ("kind", "found", "label", "reason", "way"),
    [
        ("Deployment", "Deployment/true", "-", "template", PATCHED),
        ("DaemonSet", "DaemonSet/", "true", "", ""),
        ("StatefulSet", "", "true", "pods", TEMPLATE),
        ("StatefulSet", "", "-", "", ""),
        ("Job", "Job/true", "true", "template", ANEW),
        ("Job", "", "true", "pods", TEMPLATE),
        ("ReplicaSet", "ReplicaSet/true", "true", "template", TEMPLATE),
        ("LeaderWorkerSet", "", "true", "pods", TEMPLATE),
    ],
)
def test_a_kind_of_another_project_may_have_the_name_of_one_of_kubernetes(  # noqa: PLR0917
    tmp_path: Path, kind: str, found: str, label: str, reason: str, way: str
) -> None:
    """Pods of a StatefulSet of OpenKruise were evicted without a question, and a Job was to get another template."""
    (tmp_path / "found").write_text(found)
    line = f"a-0 {kind}/a team hami-1 translated {label} - True"
    text = f"selecting=' team '\nprint_reason {kind}/team/a '{line}'"

    ran = run_functions(tmp_path, f"{CLUSTER}\n{text}")
    told = run_functions(tmp_path, f"{CLUSTER}\nsay_way_to_keys {kind}/team/a '{reason}'")

    assert (0, reason) == (ran.returncode, ran.stdout.strip()), ran.stderr
    if reason:
        expected = way.format(kind=kind.lower() if way == PATCHED else kind)
        assert expected in told.stderr
        assert (way == PATCHED) is ("kubectl patch" in told.stderr)


@needs_kubectl
@pytest.mark.parametrize(
    ("conditions", "is_ready"),
    [
        ([("Ready", "True")], True),
        ([("Ready", "False")], False),
        ([("Ready", "True x")], False),
        ([("Ready", "True"), ("Ready", "True")], True),
        ([("Other", "True")], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("call", FORGED)
def test_a_pod_of_any_status_has_a_line(
    tmp_path: Path, call: str, conditions: Sequence[tuple[str, str]], *, is_ready: bool
) -> None:
    """A pod with two conditions of that type was not asked about."""
    owner = {"apiVersion": "v1", "kind": "StatefulSet", "name": "web", "uid": "1"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "team",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"containers": [], "resourceClaims": [{"name": "a"}], "nodeName": "node-0"},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions]},
    }
    (tmp_path / "pod.json").write_text(json.dumps(pod))

    ran = run_functions(tmp_path, f"{REAL}\n{call}")

    assert 0 == ran.returncode, ran.stderr
    (line,) = [text for text in ran.stdout.splitlines() if text.startswith("web-0 ")]
    assert is_ready is line.endswith(" True")


@needs_kubectl
@pytest.mark.parametrize(
    ("status", "lines"),
    [
        ({}, ["team gpu.nvidia.com web-0", "team dra.net web-0"]),
        ({"reservedFor": None}, []),
        ({"reservedFor": [{"resource": "podgroups", "name": "a", "uid": "1"}]}, []),
        ({"reservedFor": [{"resource": "pods", "name": "a\nteam dra.net web-0", "uid": "1"}]}, []),
        ({"allocation": None}, []),
        ({"allocation": {"devices": {}}}, []),
        (None, []),
    ],
    ids=["all", "no pod", "group", "odd name", "not allocated", "no device", "no status"],
)
def test_kubectl_prints_the_devices_of_pods(
    tmp_path: Path, status: Mapping[str, Any] | None, lines: Sequence[str]
) -> None:
    results = [{"driver": driver} for driver in ("gpu.nvidia.com", "dra.net")]
    allocated = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "web-0", "uid": "1"}],
    }
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "web", "namespace": "team"},
        **({} if status is None else {"status": {**allocated, **status}}),
    }
    (tmp_path / "pod.json").write_text(json.dumps(claim))

    ran = run_functions(tmp_path, f"{REAL}\nprint_devices")

    assert 0 == ran.returncode, ran.stderr
    assert lines == ran.stdout.splitlines()
