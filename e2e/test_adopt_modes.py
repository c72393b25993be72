"""Installing without fear: a namespace at a time, or nothing at all, and always a way back.

The installation of the session is put into another mode for a while: its processes by their settings,
its configurations as the overlay of the mode has them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.access import Access, Object, stream
from e2e.binaries import binaries
from e2e.cluster import Cluster
from e2e.drawbridge import CERTIFICATES, ROOT, WEBHOOK, Drawbridge, command_line, rendered
from e2e.modes import GENERATED, reported_reasons, write_configurations
from e2e.objects import deployment, pod
from e2e.translated import legacy_keys
from kube.names import CONFIGURATION, REQUEST_ANNOTATION, TRANSLATE_LABEL
from testing.long_runs import beginning_with
from tools.install_manifest import IMAGE, install_manifest
from translation.cluster.snapshot import Mode
from translation.reading.arbiter import VOCABULARIES

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
LIMITS: Final = {GPU: 1, MEMORY: 100}
IN: Final = f"{TRANSLATE_LABEL}=true"
OVERLAYS: Final = ROOT / "manifests" / "overlays"
TIMEOUT_S: Final = 60.0


@contextmanager
def in_mode(cluster: Access, drawbridge: Drawbridge, mode: Mode) -> Iterator[None]:
    """Have the installation run in a mode for a while."""
    try:
        write_configurations(cluster, mode)
        with drawbridge.configured({"translation": {"mode": mode}}):
            yield
    finally:
        write_configurations(cluster, Mode.OPT_OUT)


@pytest.fixture(scope="module")
def opt_in(cluster: Access, drawbridge: Drawbridge, fleet: object) -> Iterator[None]:
    with in_mode(cluster, drawbridge, Mode.OPT_IN):
        yield


@pytest.fixture(scope="module")
def shadow(cluster: Access, drawbridge: Drawbridge, fleet: object) -> Iterator[None]:
    with in_mode(cluster, drawbridge, Mode.SHADOW):
        yield


def apply(cluster: Access, namespace: str, *objects: Object, **flags: bool) -> str:
    """Apply objects; return the output of kubectl."""
    dry = ("--dry-run=server",) if flags.get("dry_run") else ()
    output = cluster.kubectl("apply", "-n", namespace, *dry, "-f", "-", input=stream(objects))
    return output.stdout + output.stderr


def is_translated(cluster: Access, namespace: str, document: Object) -> bool:
    """Return True if the API server would have a pod translated; it and we learn of labels by watches."""
    command = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
    answer = json.loads(cluster.kubectl(*command, input=stream(document)).stdout)
    return REQUEST_ANNOTATION in answer["metadata"].get("annotations", {})


def label(cluster: Access, namespace: str, text: str) -> None:
    """Set or remove a label, and wait until creations obey it."""
    cluster.kubectl("label", "namespace", namespace, text, "--overwrite")
    probe = pod("probe", limits=LIMITS)
    cluster.wait_until(
        lambda: is_translated(cluster, namespace, probe) is (text == IN),
        f"pods of {namespace} are {'' if text == IN else 'not '}translated",
        timeout_s=TIMEOUT_S,
    )


# --- the way out ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fleet")
def test_the_emergency_stop_holds(cluster: Access, drawbridge: Drawbridge, namespace: str) -> None:
    """Every process restarts, and none of them brings the configurations back."""
    try:
        cluster.kubectl("delete", ",".join(GENERATED), CONFIGURATION)
        with drawbridge_restarted(drawbridge):
            cluster.wait_until(
                lambda: "it does not exist" in drawbridge.log(CERTIFICATES),
                "the certificate controller has seen that they are gone",
                timeout_s=TIMEOUT_S,
            )
            assert [cluster.find(kind, CONFIGURATION) for kind in GENERATED] == [None, None]
            apply(cluster, namespace, pod("share", limits=LIMITS))
            assert legacy_keys(cluster.get("pods", "share", namespace)) == set(LIMITS)
    finally:
        cluster.apply(drawbridge.webhook_configurations())
        drawbridge.wait_ready()


@contextmanager
def drawbridge_restarted(drawbridge: Drawbridge) -> Iterator[None]:
    """Certificates start again, without waiting for a readiness that cannot come."""
    drawbridge.stop(CERTIFICATES)
    drawbridge.start(CERTIFICATES)
    yield


# --- the mode OptIn ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("opt_in")
def test_only_pods_of_a_labelled_namespace_are_translated(cluster: Access, namespace: str) -> None:
    apply(cluster, namespace, pod("before", limits=LIMITS))
    assert legacy_keys(cluster.get("pods", "before", namespace)) == set(LIMITS)

    label(cluster, namespace, IN)
    apply(cluster, namespace, pod("after", limits=LIMITS))

    assert legacy_keys(cluster.wait_running("after", namespace)) == set()
    # What was there before is left as it was.
    assert legacy_keys(cluster.get("pods", "before", namespace)) == set(LIMITS)


@pytest.mark.usefixtures("opt_in")
@pytest.mark.parametrize("scheduler", ["default-scheduler", "hami-scheduler"])
def test_translated_pods_outlive_their_namespaces_label(
    cluster: Access, namespace: str, scheduler: str
) -> None:
    label(cluster, namespace, IN)
    manifest = pod("share", limits=LIMITS, schedulerName=scheduler)
    apply(cluster, namespace, manifest)
    before = cluster.wait_running("share", namespace)
    assert before["spec"]["schedulerName"] == "default-scheduler"

    label(cluster, namespace, f"{TRANSLATE_LABEL}-")
    manifest["metadata"]["labels"] = {"team": "blue"}
    apply(cluster, namespace, manifest)

    after = cluster.get("pods", "share", namespace)
    assert after["metadata"]["labels"] == {"team": "blue"}
    assert after["spec"] == before["spec"]
    assert cluster.wait_running("share", namespace)["metadata"]["uid"] == before["metadata"]["uid"]
    # Who comes now is left alone.
    apply(cluster, namespace, pod("late", limits=LIMITS))
    assert legacy_keys(cluster.get("pods", "late", namespace)) == set(LIMITS)


@pytest.mark.usefixtures("opt_in")
def test_hamis_label_does_not_keep_a_labelled_namespace(cluster: Access, namespace: str) -> None:
    cluster.kubectl("label", "namespace", namespace, "hami.io/webhook=ignore")

    label(cluster, namespace, IN)


def create_without_webhook(cluster: Access, drawbridge: Drawbridge, namespace: str) -> None:
    """Create a pod with device keys while no webhook answers."""
    drawbridge.stop(WEBHOOK)
    try:
        apply(cluster, namespace, pod("share", limits=LIMITS))
    finally:
        drawbridge.start(WEBHOOK)
        drawbridge.wait_ready()


@pytest.mark.usefixtures("opt_in")
def test_nobody_without_the_label_waits_for_us(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    create_without_webhook(cluster, drawbridge, namespace)


@pytest.mark.usefixtures("opt_in")
def test_the_command_line_knows_the_mode(cluster: Access, namespace: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {mode: OptIn}\n")
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(stream(pod("share", limits=LIMITS)))

    def keys() -> set[str]:
        flags = ("-n", namespace, "-f", manifest, "--settings", settings, "--live", "-o", "json")
        result = command_line(cluster, "translate", *flags)
        assert result.returncode == 0, result.stderr
        (printed,) = (
            object_ for object_ in json.loads(result.stdout)["objects"] if object_["kind"] == "Pod"
        )
        return legacy_keys(printed)

    assert keys() == set(LIMITS)
    label(cluster, namespace, IN)
    assert keys() == set()


# --- the mode Shadow --------------------------------------------------------------------------------


@pytest.mark.usefixtures("shadow")
def test_nothing_changes_and_everything_is_reported(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    share, wrong = pod("share", limits=LIMITS), pod("wrong", limits={GPU: 1, MEMORY: "8Gi"})

    output = apply(cluster, namespace, share, wrong, deployment("workers", share))

    assert "Warning" not in output
    for name, keys in (("share", set(LIMITS)), ("wrong", set(LIMITS))):
        assert legacy_keys(cluster.get("pods", name, namespace)) == keys
    assert cluster.objects("resourceclaimtemplates", namespace) == []
    warnings = apply(cluster, namespace, pod("dry", limits={GPU: 1, MEMORY: "8Gi"}), dry_run=True)
    assert "would be rejected" in warnings
    assert "drawbridge[wrongUnit]" in warnings
    cluster.wait_until(
        lambda: (
            reported_reasons(cluster, namespace)
            == {
                "Pod/share": ["WouldBeTranslated"],
                "Pod/wrong": ["WouldBeRejected"],
                "Deployment/workers": ["WouldBeTranslated"],
            }
        ),
        "each workload has one event",
        timeout_s=TIMEOUT_S,
    )
    shadowed = (
        'drawbridge_shadow_reviews_total{decision="translated",kind="Pod",operation="CREATE"}'
    )
    assert shadowed in drawbridge.metrics(WEBHOOK)


@pytest.mark.usefixtures("shadow")
def test_no_pod_waits_for_us_in_shadow(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    create_without_webhook(cluster, drawbridge, namespace)


# --- the overlays -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("overlay", "mode"), [("opt-in", Mode.OPT_IN), ("shadow", Mode.SHADOW)])
def test_an_overlay_is_of_its_mode_in_all_places(cluster: Access, overlay: str, mode: Mode) -> None:
    objects = rendered(cluster, OVERLAYS / overlay)

    for kind, generate in GENERATED.items():
        (configuration_,) = (object_ for object_ in objects if object_["kind"] == kind)
        # kustomize puts those that it patches first.
        assert by_name(configuration_) == by_name(generate(VOCABULARIES.values(), mode=mode))
    (settings,) = (object_ for object_ in objects if object_["kind"] == "ConfigMap")
    assert f"mode: {mode}\n" in settings["data"]["settings.yaml"]
    deployments = [object_ for object_ in objects if object_["kind"] == "Deployment"]
    assert {mode} == {
        deployment_["spec"]["template"]["metadata"]["annotations"]["drawbridge.internal/mode"]
        for deployment_ in deployments
    }


def test_the_manifest_of_a_release_is_the_overlay_with_its_image() -> None:
    kubectl, image = binaries().kubectl, f"registry.example.com/drawbridge@sha256:{'0' * 64}"

    text = install_manifest(kubectl, image)

    overlay = install_manifest(kubectl)
    assert text == overlay.replace(IMAGE, image)
    named = {
        container["image"]
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
    }
    assert named == {image}


def by_name(configuration_: Mapping[str, Any]) -> dict[str, Any]:
    return {webhook["name"]: webhook for webhook in configuration_["webhooks"]}


@pytest.mark.long
def test_the_overlay_with_the_observer_is_that_of_opt_in(cluster: Access) -> None:
    both = rendered(cluster, OVERLAYS / "observer")
    names = [(object_["kind"], object_["metadata"]["name"]) for object_ in both]

    assert all(object_ in both for object_ in rendered(cluster, OVERLAYS / "opt-in"))
    assert ("Deployment", "drawbridge-observer") in names


# --- a bad image ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", [{}], indirect=True)
@pytest.mark.parametrize(
    "manifests", beginning_with(1, ["base", "overlays/opt-in", "overlays/shadow"])
)
def test_an_image_that_does_not_start_blocks_nobody(cluster: Cluster, manifests: str) -> None:
    """Nothing of ours ever runs: pods with device keys are created as they are written."""
    objects = [
        object_
        for object_ in rendered(cluster, ROOT / "manifests" / manifests)
        if object_["kind"] not in {"Deployment", "PodDisruptionBudget"}
    ]
    cluster.apply(objects)
    try:
        cluster.kubectl("label", "namespace", "default", IN)
        cluster.wait_for("serviceaccounts", "default", "default")

        apply(
            cluster,
            "default",
            pod("share", limits=LIMITS),
            deployment("d", pod("a", limits=LIMITS)),
        )

        assert legacy_keys(cluster.get("pods", "share", "default")) == set(LIMITS)
        cluster.wait_until(
            lambda: any(
                pod_["metadata"]["name"].startswith("d-")
                for pod_ in cluster.objects("pods", "default")
            ),
            "the Deployment has its pod",
            timeout_s=TIMEOUT_S,
        )
    finally:
        cluster.kubectl("delete", "pod,deployment", "--all", "-n", "default", "--wait=false")
        cluster.kubectl("label", "namespace", "default", f"{TRANSLATE_LABEL}-")
        cluster.kubectl(
            "delete", "--ignore-not-found", "--wait=false", "-f", "-", input=stream(objects)
        )
        # The next story may have the same control plane.
        cluster.wait_gone("namespaces", "drawbridge-system", timeout_s=TIMEOUT_S)
