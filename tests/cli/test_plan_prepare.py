"""`prepare.sh` of `drawbridge plan`: charts to install first, and restarts."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    hami_node,
    plugin_node,
    resource_slice,
    workload,
)
from testing.plan import call, planned, prepare, run_script

HAMI: Final = "hami-core-gpu.project-hami.io"
NVIDIA: Final = "gpu.nvidia.com"
LABEL: Final = "nvidia.com/dra-kubelet-plugin"
PLUGIN: Final = daemon_set("nvidia-device-plugin")
NOTHING: Final = "# Once, before the first wave: it changes nothing for any pod that runs.\n"
NO_NODE: Final = "# Cluster: the labels that choose nodes for DRA drivers are on no node yet.\n"


def release() -> dict[str, Any]:
    """The DaemonSet of a release of NVIDIA's driver."""
    document = daemon_set("kubelet-plugin", nodeSelector={LABEL: "true"})
    labels = {"helm.sh/chart": "dra-driver-nvidia-gpu-0.5.0", "app.kubernetes.io/instance": "gpus"}
    document["metadata"] |= {"namespace": "dra", "labels": labels}
    return document


def claim(name: str, driver: str, *pods: str) -> dict[str, Any]:
    results = [{"request": "r", "driver": driver, "pool": "dra-0", "device": "gpu-0"}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"devices": {}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
        },
    }


# --- what a person installs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selected", "status"),
    [
        ("", 1),
        ("other.example", 1),
        (f"{HAMI}-2", 1),
        (HAMI.replace(".", "-"), 1),
        ('In ["a"]', 1),
        (f'In ["{HAMI}-2"]', 1),
        (f'NotIn ["{HAMI}"]', 1),
        ("DoesNotExist ", 1),
        (HAMI, 0),
        (f'In ["a","{HAMI}"]', 0),
        ("Exists ", 0),
    ],
    ids=[
        "no DaemonSet",
        "another driver",
        "a longer value",
        "a similar value",
        "an affinity for another driver",
        "an affinity for a longer value",
        "an affinity against it",
        "an affinity against the label",
        "node selector",
        "affinity",
        "affinity for any driver",
    ],
)
def test_prepare_stops_until_a_chart_that_a_person_installs_is_there(
    tmp_path: Path, selected: str, status: int
) -> None:
    """The page said to install it first, and the script asked for it at its end, and went on without it."""
    planned(tmp_path, [hami_node("h"), plugin_node("g"), PLUGIN, daemon_set("x")])
    answer = f"case \"$*\" in *daemonsets*) printf '%s\\n' '{selected}' ;; esac"

    ran = run_script(tmp_path, "prepare.sh", {"kubectl": answer})

    calls = (tmp_path / "calls").read_text()
    held = (
        f"held: no DaemonSet has the node selector drawbridge.internal/dra-driver={HAMI}: install"
    )
    assert (held in ran.stderr) is (status == 1)
    assert r"{.nodeSelector.drawbridge\.internal/dra-driver}" in prepare(tmp_path)
    assert '.matchExpressions[?(@.key=="drawbridge.internal/dra-driver")]}' in prepare(tmp_path)
    # Nothing has changed when it stops.
    assert ("helm upgrade" in calls) is (status == 0)
    assert "by hand" not in prepare(tmp_path)
    page = (tmp_path / "plan" / "README.md").read_text()
    assert page.index(f"Install the chart of {HAMI}") < page.index("Run `prepare.sh`, which")


def test_the_page_says_to_install_drawbridge_first_where_pods_get_claims(tmp_path: Path) -> None:
    """`prepare.sh` stopped at the webhook first, and the page began with the chart of a driver."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {keep: [rdma]}\n")
    share = workload("web", SHARE, ["h"])

    planned(tmp_path, [hami_node("h"), hami_node("i"), namespace("team"), *share])
    page = (tmp_path / "plan" / "README.md").read_text()
    call(tmp_path, [plugin_node("g")], "--settings", settings, folder="native")
    native = (tmp_path / "native" / "README.md").read_text()
    shares = [hami_node("h"), hami_node("i"), namespace("team"), *share]
    call(tmp_path, shares, "--settings", settings, folder="with")

    first = "Install Drawbridge in mode `OptIn`"
    assert page.index(f"{first}: `prepare.sh` stops") < page.index("Install the chart of")
    assert (
        f"{first}, with what `settings.yaml` says: "
        in (tmp_path / "with" / "README.md").read_text()
    )
    assert first not in native


def test_the_page_says_what_no_rollback_takes_back(tmp_path: Path) -> None:
    """A reader looked for the way back of `prepare.sh`, and there is none."""
    pods = workload("train", {GPU: "1"}, ["g"])
    planned(tmp_path, [plugin_node("g"), plugin_node("i"), namespace("team"), *pods])

    page = (tmp_path / "plan" / "README.md").read_text()

    assert "No script takes `prepare.sh` back" in page
    assert f"DeviceClass gpu.nvidia.com goes on mapping {GPU}, so pods with it may use" in page
    assert "kubectl patch deviceclass gpu.nvidia.com --type=json" in page
    assert "driver-values.yaml" not in page


# --- what restarts --------------------------------------------------------------------------------


def test_nothing_restarts_where_nothing_runs_yet(tmp_path: Path) -> None:
    planned(tmp_path, [plugin_node("gpu-0")], "--plugin-label", "no-plugin=true")

    assert NOTHING in prepare(tmp_path)
    assert NO_NODE in prepare(tmp_path)


def test_the_upgrade_of_a_driver_that_serves_claims_says_what_restarts(tmp_path: Path) -> None:
    """It "changes nothing for any pod", and the label of its nodes was "on no node yet"."""
    switched = plugin_node("dra-0")
    switched["metadata"]["labels"][LABEL] = "true"
    switched["status"]["allocatable"] = {}
    objects = [
        *(switched, plugin_node("gpu-0"), PLUGIN, release(), namespace("team")),
        resource_slice("dra-0", NVIDIA, ["GPU-0"]),
        *(claim("a", NVIDIA, "p"), claim("b", NVIDIA), claim("c", "nic.example", "q")),
    ]

    planned(tmp_path, objects, "--driver-release", "dra/gpus")

    text = prepare(tmp_path)
    assert "it restarts pods of the DRA driver and device plugins, and changes nothing for" in text
    assert f"# Cluster: {LABEL}=true is on 1 node already: dra-0; {NVIDIA} runs there.\n" in text
    assert "# The upgrade restarts the driver on dra-0: pods there go on, and\n" in text
    assert "until its driver is back; 1 claim of pods has its devices.\n" in text
    assert NOTHING not in text
    assert NO_NODE not in text


def test_a_label_that_one_driver_has_is_not_that_of_another(tmp_path: Path) -> None:
    nodes = [hami_node("h"), plugin_node("gpu-0"), plugin_node("gpu-1")]
    nodes[1]["metadata"]["labels"][LABEL] = "true"

    planned(tmp_path, [*nodes, PLUGIN])

    assert f"{LABEL}=true is on 1 node already: gpu-0" in prepare(tmp_path)
    assert f"# No node has drawbridge.internal/dra-driver={HAMI} yet.\n" in prepare(tmp_path)


def test_a_patched_device_plugin_restarts(tmp_path: Path) -> None:
    planned(tmp_path, [plugin_node("gpu-0"), PLUGIN])

    text = prepare(tmp_path)
    assert "it restarts pods of device plugins, and changes nothing for pods" in text
    assert "# If a chart owns it, an upgrade takes the affinity back" in text
    assert "set the same affinity in its values" not in text
    assert "none gets devices on a node until its plugin is back" in prepare(tmp_path)
