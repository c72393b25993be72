"""`drawbridge plan`: text that a tenant can write proposes, and only a person decides."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import Result

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.command import drawbridge
from testing.documents import api_object
from testing.migration import daemon_set, plugin_node
from testing.plan import run_script

WAITING: Final = {"nvidia.com/dra-kubelet-plugin": "true"}
PLUGIN: Final = daemon_set("nvidia-device-plugin")
SCRIPTS: Final = ("prepare.sh", "wave-1/preflight.sh", "wave-1/switch.sh")

Objects = Sequence[Mapping[str, Any]]


def driver(namespace: str, name: str = "gpus") -> dict[str, Any]:
    """Return a DaemonSet with the labels of a release of the DRA driver."""
    document = daemon_set("kubelet-plugin", nodeSelector=WAITING)
    document["metadata"] |= {
        "namespace": namespace,
        "labels": {
            "helm.sh/chart": "nvidia-dra-driver-gpu-25.3.0",
            "app.kubernetes.io/instance": name,
        },
    }
    return document


def operator(namespace: str, version: str = "v26.7.0") -> dict[str, Any]:
    """Return a Deployment that looks like the GPU Operator."""
    return api_object(
        "Deployment",
        "gpu-operator",
        namespace,
        labels={"app.kubernetes.io/version": version},
        spec={"replicas": 0, "template": {"spec": {"containers": []}}},
    )


def call(tmp_path: Path, objects: Objects, *options: object) -> Result:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([plugin_node("gpu-0"), PLUGIN, *objects]))
    return drawbridge("plan", "--snapshot", file, "-o", tmp_path / "plan", *options)


def text(tmp_path: Path, name: str) -> str:
    return (tmp_path / "plan" / name).read_text()


def document(tmp_path: Path) -> dict[str, Any]:
    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])
    return source.document


def calls(tmp_path: Path) -> list[str]:
    path = tmp_path / "calls"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("objects", "subject", "flag"),
    [
        ([driver("ai-team")], "Driver//gpu.nvidia.com", "--driver-release ai-team/gpus"),
        ([operator("ai-team")], "Operator//gpu-operator", "--gpu-operator v26.7.0"),
        (
            [operator("ai-team", "v26.7.0;reboot")],
            "Operator//gpu-operator",
            "--gpu-operator VERSION",
        ),
    ],
    ids=["a DaemonSet", "a Deployment", "a Deployment with a hostile version"],
)
def test_what_a_tenant_wrote_runs_nothing(
    tmp_path: Path, objects: Objects, subject: str, flag: str
) -> None:
    result = call(tmp_path, objects)

    assert 1 == result.exit_code
    (held,) = [entry for entry in document(tmp_path)["held"] if entry["object"] == subject]
    assert "helm get values" in held["fix"]
    assert flag in held["fix"]
    assert "none" in held["fix"]
    for name in SCRIPTS:
        ran = run_script(tmp_path, name)
        assert 1 == ran.returncode
        assert f"held: {subject.replace('//', '/')}" in ran.stderr
        assert "helm get values" in ran.stderr
    assert [] == calls(tmp_path)
    before = drawbridge(
        *("verify", "--snapshot", tmp_path / "cluster.yaml", "--before"),
        *("--wave", tmp_path / "plan" / "wave-1"),
    )
    assert 1 == before.exit_code
    assert "is not confirmed: plan again with" in before.stdout


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing_in_scripts_that_are_held(tmp_path: Path) -> None:
    """They looked for their folder, and had no use for it."""
    call(tmp_path, [driver("ai-team")])

    ran = subprocess.run(
        ["shellcheck", *(tmp_path / "plan").rglob("*.sh")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == ran.returncode, ran.stdout


def test_all_candidates_are_proposed(tmp_path: Path) -> None:
    """The first namespace of the alphabet is not the one that is true."""
    call(tmp_path, [driver("ai-team"), driver("nvidia-dra-driver-gpu")])

    (held,) = document(tmp_path)["held"]
    assert "DaemonSet/ai-team/kubelet-plugin" in held["reason"]
    assert "--driver-release ai-team/gpus" in held["fix"]
    assert "--driver-release nvidia-dra-driver-gpu/gpus" in held["fix"]


def unlabelled_driver(folder: str = "/var/lib/kubelet/plugins_registry") -> dict[str, Any]:
    """A DaemonSet that runs the DRA driver, without labels of a chart."""
    document = daemon_set("gpus", nodeSelector=WAITING)
    pod = document["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = "registry.k8s.io/dra-driver-nvidia-gpu:v0.5.0"
    pod["volumes"] = [{"name": "registry", "hostPath": {"path": folder}}]
    document["metadata"]["namespace"] = "drivers"
    return document


def test_a_driver_without_labels_of_a_chart_is_proposed(tmp_path: Path) -> None:
    """A second driver was installed beside it."""
    call(tmp_path, [unlabelled_driver()])

    (held,) = document(tmp_path)["held"]
    assert "DaemonSet/drivers/gpus looks like" in held["reason"]
    assert "--driver-release repository:drivers/gpus (" in held["fix"]
    assert "helm upgrade" not in text(tmp_path, "prepare.sh")

    assert 0 == call(tmp_path, [unlabelled_driver()], "--driver-release", "none").exit_code
    in_repository = "repository:drivers/gpus"
    assert 0 == call(tmp_path, [unlabelled_driver()], "--driver-release", in_repository).exit_code
    assert "helm upgrade" not in text(tmp_path, "prepare.sh")
    refused = call(tmp_path, [unlabelled_driver()], "--driver-release", "drivers/gpus")
    assert "it shows repository:drivers/gpus" in refused.stderr


def test_pods_with_the_image_that_register_no_driver_are_no_driver(tmp_path: Path) -> None:
    """The daemons of a ComputeDomain have the image of the driver."""
    call(tmp_path, [unlabelled_driver("/var/run/domains")])

    assert [] == document(tmp_path)["held"]


def test_the_confirmed_release_is_upgraded_with_values_that_a_person_saved(tmp_path: Path) -> None:
    objects = [driver("ai-team"), driver("nvidia-dra-driver-gpu")]

    result = call(tmp_path, objects, "--driver-release", "nvidia-dra-driver-gpu/gpus")

    assert 0 == result.exit_code, result.stdout
    assert "ai-team" not in text(tmp_path, "prepare.sh")
    held = run_script(tmp_path, "prepare.sh")
    assert 1 == held.returncode
    assert ["helm get values gpus --namespace=nvidia-dra-driver-gpu --output=yaml"] == [
        line for line in calls(tmp_path) if line.startswith("helm")
    ]
    values = tmp_path / "plan" / "driver-values.yaml"
    values.write_text("image: mine\n")
    ran = run_script(tmp_path, "prepare.sh")
    assert 0 == ran.returncode, ran.stderr
    (upgrade,) = [line for line in calls(tmp_path) if line.startswith("helm upgrade")]
    assert upgrade.startswith("helm upgrade gpus nvidia/nvidia-dra-driver-gpu ")
    assert upgrade.endswith(f" --values={values}")
    assert "--reset-values" in upgrade
    # A plan that is made again keeps what a person wrote.
    call(tmp_path, objects, "--driver-release", "nvidia-dra-driver-gpu/gpus")
    assert "image: mine\n" == values.read_text()


def test_with_none_a_release_is_installed_and_the_plugin_is_kept_away(tmp_path: Path) -> None:
    flags = ("--driver-release", "none", "--gpu-operator", "none")
    plugin = daemon_set("nvidia-device-plugin-daemonset")

    result = call(tmp_path, [driver("ai-team"), operator("ai-team"), plugin], *flags)

    assert 0 == result.exit_code, result.stdout
    prepare = text(tmp_path, "prepare.sh")
    assert "helm upgrade --install dra-driver-nvidia-gpu" in prepare
    assert "change_object daemonset/nvidia-device-plugin-daemonset kube-system" in prepare
    assert "gpu.deploy.device-plugin" not in text(tmp_path, "wave-1/switch.sh")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--driver-release", "team/gpus"), "it shows ai-team/gpus"),
        (("--driver-release", "$(reboot)"), "repository:NAMESPACE/NAME or none, not"),
        (("--gpu-operator", "latest"), "is a version such as v26.3.1"),
    ],
)
def test_a_flag_that_confirms_nothing_is_refused(
    tmp_path: Path, flags: tuple[str, str], message: str
) -> None:
    result = call(tmp_path, [driver("ai-team")], *flags)

    assert 2 == result.exit_code
    assert message in result.stderr


def test_no_script_reuses_values(tmp_path: Path) -> None:
    call(tmp_path, [driver("gpus")], "--driver-release", "gpus/gpus")

    for path in (tmp_path / "plan").rglob("*.sh"):
        assert "--reuse-values" not in path.read_text()


def test_a_driver_whose_values_are_in_a_repository_is_awaited(tmp_path: Path) -> None:
    """Argo CD renders its chart, so helm knows no release of it: none would install a second driver."""
    proposed = call(tmp_path, [driver("dra")])
    assert "(repository:dra/gpus where its values are in a repository" in "".join(
        entry["fix"] for entry in document(tmp_path)["held"]
    )
    assert 1 == proposed.exit_code

    result = call(tmp_path, [driver("dra")], "--driver-release", "repository:dra/gpus")

    assert 0 == result.exit_code, result.stdout
    assert document(tmp_path)["driverRelease"]["inRepository"]
    assert "driver-values.yaml" not in text(tmp_path, "README.md")
    assert "DaemonSet of the DRA driver in dra has the values" in text(tmp_path, "README.md")
    assert '#   kubeletPlugin.nodeSelector: {"nvidia.com/dra-kubelet-plugin": "true"}' in text(
        tmp_path, "prepare.sh"
    )
    for shown in ("", "true compute-domains", "false gpus", " compute-domains gpus"):
        held = run_script(tmp_path, "prepare.sh", _shows(shown))
        assert 1 == held.returncode, shown
        assert "resources.gpus.enabled: true" in held.stderr
    for shown in ("\ntrue compute-domains gpus\n", "true gpus"):
        ran = run_script(tmp_path, "prepare.sh", _shows(shown))
        assert 0 == ran.returncode, ran.stderr
    assert [] == [line for line in calls(tmp_path) if line.startswith("helm")]
    looks = {line for line in calls(tmp_path) if "get daemonsets" in line}
    assert all("--namespace=dra" in line for line in looks)
    assert looks


def test_a_driver_of_another_namespace_is_not_the_one_of_the_repository(tmp_path: Path) -> None:
    result = call(tmp_path, [driver("dra")], "--driver-release", "repository:team/gpus")

    assert 2 == result.exit_code
    assert "it shows dra/gpus" in result.stderr


def _shows(line: str) -> dict[str, str]:
    return {"kubectl": f"""case "$*" in *"get daemonsets"*) printf '{line}' ;; esac"""}
