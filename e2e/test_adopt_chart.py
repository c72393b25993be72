"""The Helm chart with the real Helm: equal to the manifests, in each mode, with wrong values refused."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from admission.fence import is_part_current
from admission.quota_gates import gate_documents
from admission.webhook_configuration import configuration, validating_configuration
from e2e.access import Access, Object, stream
from e2e.chart import CHART, DEFINITIONS, RELEASE, key_of, run_helm, template
from e2e.cluster import Cluster
from e2e.drawbridge import CERTIFICATES, ROOT, Drawbridge, rendered
from kube.names import CONFIGURATION, NAMESPACE
from translation.cluster.snapshot import Mode
from translation.reading.arbiter import VOCABULARIES

MANIFESTS: Final = ROOT / "manifests"
TIMEOUT_S: Final = 60.0
OPT_OUT: Final = ("--set", "mode=OptOut")
REINSTALL: Final = ("--server-side=false",)
"""Helm 4.0.0 cannot adopt definitions by server-side apply."""
OVERWRITE: Final = ("--server-side=true", "--force-conflicts")
"""Flags of Helm 4 for fields that the processes have written since."""
RENAMED: Final = "example.com/renamed-gpu"
_LABELS: Final = frozenset({"app.kubernetes.io/managed-by", "helm.sh/chart"})
_CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_SETTINGS: Final = ("ConfigMap", NAMESPACE, "drawbridge-settings")
_BRIDGE_SETTINGS: Final = ("ConfigMap", NAMESPACE, "drawbridge-bridge")
_DRIVER_SETTINGS: Final = ("ConfigMap", "drawbridge-driver", "drawbridge-settings")


def comparable(documents: Iterable[Object]) -> dict[tuple[str, str, str], Object]:
    """Return objects by kind and name, without the marks of the client that applied them."""
    return {key_of(document): _stripped(document) for document in documents}


def _stripped(document: Object) -> Object:
    stripped: Object = json.loads(json.dumps(document))
    metadata = stripped["metadata"]
    places = [metadata]
    if "template" in (stripped.get("spec") or {}):
        places.append(stripped["spec"]["template"]["metadata"])
        places[1].pop("annotations", None)
    for place in places:
        # The overlay of cert-manager labels nothing.
        labels = {} if "cert-manager" in stripped["apiVersion"] else place.get("labels", {})
        place["labels"] = {key: text for key, text in labels.items() if key not in _LABELS}
    annotations = metadata.get("annotations", {})
    annotations.pop("helm.sh/resource-policy", None)
    if not annotations:
        metadata.pop("annotations", None)
    return stripped


# --- equal to the manifests -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifests", "flags"),
    [
        (("base",), OPT_OUT),
        (("overlays/cert-manager",), ("--set", "certificates.mode=certManager")),
        (
            ("overlays/client-certificates",),
            ("--set", "webhook.clientAuthority=drawbridge-client-authority"),
        ),
        (
            ("base", "policies", "bridge", "driver"),
            (
                *OPT_OUT,
                *("--set", "policies.enabled=true"),
                *("--set", "bridge.enabled=true"),
                *("--set", "driver.enabled=true"),
            ),
        ),
    ],
    ids=["base", "cert-manager", "client-certificates", "everything"],
)
def test_the_chart_is_what_kustomize_applies(
    cluster: Access, manifests: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    expected = comparable(
        document for name in manifests for document in rendered(cluster, MANIFESTS / name)
    )
    # Helm makes the namespace with --create-namespace.
    del expected["Namespace", "", NAMESPACE]

    charted = comparable(template(*flags))

    charted.pop(_DRIVER_SETTINGS, None)
    settings = charted.pop(_SETTINGS)["data"]["settings.yaml"]
    if _SETTINGS in expected:  # An overlay says the mode there, and the base has no file.
        shipped = expected.pop(_SETTINGS)["data"]["settings.yaml"]
        assert yaml.load(settings, Loader=yaml.CSafeLoader) == yaml.load(
            shipped, Loader=yaml.CSafeLoader
        )
    if _BRIDGE_SETTINGS in expected:  # The manifest has the sidecar's settings alone.
        bridge = charted[_BRIDGE_SETTINGS]["data"]
        assert yaml.load(bridge["settings.yaml"], Loader=yaml.CSafeLoader) == yaml.load(
            settings, Loader=yaml.CSafeLoader
        )
        bridge["settings.yaml"] = expected[_BRIDGE_SETTINGS]["data"]["settings.yaml"]
    assert charted.keys() == expected.keys()
    for key, document in expected.items():
        assert charted[key] == document, key


def test_the_observer_alone_is_what_kustomize_applies(cluster: Access) -> None:
    namespace = "drawbridge-observer"
    flags = ("--set", "webhook.enabled=false", "--set", "observer.enabled=true")
    expected = comparable(rendered(cluster, MANIFESTS / "observer"))
    del expected["Namespace", "", namespace]

    charted = comparable(template(*flags, "--set", "crds.install=false", namespace=namespace))

    charted.pop(("ConfigMap", namespace, "drawbridge-settings"))
    assert charted == expected


@pytest.mark.parametrize("mode", Mode)
def test_the_mode_is_in_all_places(mode: Mode) -> None:
    objects = {key_of(document): document for document in template("--set", f"mode={mode}")}

    for kind, generate in zip(
        _CONFIGURATIONS, (configuration, validating_configuration), strict=True
    ):
        stored = objects[kind, "", CONFIGURATION]
        assert stored["webhooks"] == generate(VOCABULARIES.values(), mode=mode)["webhooks"]
    settings = yaml.load(objects[_SETTINGS]["data"]["settings.yaml"], Loader=yaml.CSafeLoader)
    assert settings == {"translation": {"mode": mode}}


def test_a_first_installation_is_for_labelled_namespaces() -> None:
    (settings,) = (document for document in template() if key_of(document) == _SETTINGS)

    assert "mode: OptIn" in settings["data"]["settings.yaml"]


def test_another_namespace_is_in_all_places() -> None:
    parts = ("--set", "quotaGates.enabled=true", "--set", "monitoring.enabled=true")
    objects = template(*OPT_OUT, *parts, namespace="gpu-system")

    assert NAMESPACE not in json.dumps(objects)
    charted = {key_of(document): document for document in objects}
    for document in gate_documents("gpu-system"):
        assert is_part_current(charted[key_of(document)], document), key_of(document)
    (stored,) = (document for document in objects if document["kind"] == _CONFIGURATIONS[0])
    expected = configuration(VOCABULARIES.values(), "gpu-system")
    assert stored["webhooks"] == expected["webhooks"]


def test_exempt_namespaces_are_in_all_places() -> None:
    exempt = ["team-a", "1"]
    values = json.dumps({"translation": {"exemptNamespaces": exempt}})
    objects = {
        key_of(document): document
        for document in template(*OPT_OUT, "--set-json", f"settings={values}")
    }

    for kind, generate in zip(
        _CONFIGURATIONS, (configuration, validating_configuration), strict=True
    ):
        expected = generate(VOCABULARIES.values(), exempt=exempt)
        assert objects[kind, "", CONFIGURATION]["webhooks"] == expected["webhooks"]
    settings = yaml.load(objects[_SETTINGS]["data"]["settings.yaml"], Loader=yaml.CSafeLoader)
    assert settings["translation"]["exemptNamespaces"] == exempt


_PODS: Final = ("webhook", "controller", "certificates", "observer")
_OBSERVER: Final = ("--set", "observer.enabled=true")


def _pods(*flags: str) -> dict[str, Object]:
    """Return component to its pod template."""
    return {
        document["metadata"]["name"].removeprefix("drawbridge-"): document["spec"]["template"]
        for document in template(*_OBSERVER, *flags)
        if document["kind"] == "Deployment"
    }


@pytest.mark.parametrize("component", _PODS)
def test_a_site_places_and_labels_pods_as_it_likes(component: str) -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spread = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    values = {
        "affinity": {"nodeAffinity": required},
        "topologySpreadConstraints": [spread],
        "podLabels": {"team": "infra"},
        "podAnnotations": {"example.com/note": "a: b\nc"},
        "podSecurityContext": {"runAsNonRoot": True},
        "securityContext": {"privileged": False},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    }
    flags = [
        part
        for key, value in values.items()
        for part in ("--set-json", f"{component}.{key}={json.dumps(value)}")
    ]
    shipped, pods = _pods(), _pods(*flags)

    pod = pods.pop(component)
    own = shipped.pop(component)
    assert pods == shipped, "another component has changed"
    assert pod["metadata"]["labels"] == own["metadata"]["labels"] | {"team": "infra"}
    assert pod["metadata"]["annotations"] == own["metadata"]["annotations"] | {
        "example.com/note": "a: b\nc"
    }
    assert pod["spec"]["affinity"] == {"nodeAffinity": required}
    assert pod["spec"]["topologySpreadConstraints"] == [spread]
    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True}
    (container,), (own_container,) = pod["spec"]["containers"], own["spec"]["containers"]
    assert container["securityContext"] == {"privileged": False}
    assert container["env"] == [*own_container.get("env", []), *values["extraEnv"]]


def test_monitoring_has_all_alerts_and_the_dashboard() -> None:
    runbooks = "https://docs.example.com/alerts"
    objects = template(
        *("--set", "monitoring.enabled=true", "--set", "bridge.enabled=true"),
        *("--set", "driver.enabled=true", "--set", f"monitoring.runbooks={runbooks}"),
        *("--set", "monitoring.labels.release=prometheus"),
    )

    rules = [rule for rule in objects if rule["kind"] == "PrometheusRule"]
    assert {rule["metadata"]["labels"]["release"] for rule in rules} == {"prometheus"}
    charted = [group for rule in rules for group in rule["spec"]["groups"]]
    expected = [
        group
        for file in (MANIFESTS / "alerts").glob("*.yaml")
        for group in yaml.load(
            file.read_text().replace("docs/alerts.md", runbooks), Loader=yaml.CSafeLoader
        )["groups"]
    ]
    assert sorted(charted, key=itemgetter("name")) == sorted(expected, key=itemgetter("name"))
    (dashboard,) = (
        object_ for object_ in objects if object_["metadata"]["name"] == "drawbridge-dashboard"
    )
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    stored = (MANIFESTS / "dashboards" / "drawbridge.json").read_text()
    assert json.loads(dashboard["data"]["drawbridge.json"]) == json.loads(stored)
    (monitor,) = (object_ for object_ in objects if object_["kind"] == "PodMonitor")
    assert "drawbridge-driver" in monitor["spec"]["namespaceSelector"]["matchNames"]


def test_the_observer_alone_has_no_alerts_on_what_is_not_there() -> None:
    flags = ("observer.enabled=true", "webhook.enabled=false", "monitoring.enabled=true")
    objects = template(*(word for flag in flags for word in ("--set", flag)))

    names = [
        object_["metadata"]["name"] for object_ in objects if object_["kind"] == "PrometheusRule"
    ]
    assert names == ["drawbridge-processes"]


def test_an_image_is_named_by_its_digest_where_there_is_one() -> None:
    digest = f"sha256:{'0' * 64}"
    text = json.dumps(template("--set", f"image.digest={digest}"))

    assert f'"image": "drawbridge-dra@{digest}"' in text
    assert '"image": "drawbridge-dra:' not in text


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("mode=optin", "mode"),
        ("settings.translation.mode=Shadow", "mode"),
        ("settings.webhok.port=1", "webhok"),
        ("settings.webhook.drain=ten", "drain"),
        ("webhook.replica=3", "replica"),
        ("certificates.mode=mine", "certificates"),
        ("webhook.enabled=false", "nothing is enabled"),
        (
            "webhook.enabled=false,observer.enabled=true,quotaGates.enabled=true",
            "quotaGates.enabled needs webhook.enabled",
        ),
        (
            "webhook.extraEnv[0].name=DRAWBRIDGE_PORT,webhook.extraEnv[0].value=10250",
            "webhook.extraEnv sets DRAWBRIDGE_PORT",
        ),
        ("settings.driver.name=gpu.example.com", "name"),
    ],
)
def test_a_wrong_value_is_refused_and_named(flag: str, words: str) -> None:
    where = ("--namespace", NAMESPACE, "--kube-version", "1.37.1")

    assert words in run_helm("template", RELEASE, CHART, *where, "--set", flag, fails=True)


def _shape(value: object) -> object:
    """Return a document without its texts."""
    if isinstance(value, dict):
        return {key: _shape(member) for key, member in value.items()}
    return [_shape(item) for item in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize(
    "text", ['a"\n        hostPID: true #', " a: b\u2028kind: Secret\n---\n", "1e3"]
)
def test_no_text_of_the_values_becomes_a_field(tmp_path: Path, text: str) -> None:
    def rendered_with(text: str) -> object:
        values = {
            "mode": "OptOut",
            "image": dict.fromkeys(("repository", "tag", "pullPolicy"), text),
            "priorityClass": {"name": text},
            "monitoring": {"enabled": True, "runbooks": text},
            "settings": {
                "translation": {"exemptNamespaces": [text]},
                "driver": dict.fromkeys(("kubeletDirectory", "cdiDirectory", "sysfs"), text),
            },
            "driver": {"enabled": True, "inventory": text},
            "bridge": {"enabled": True, "image": {"digest": text}},
        }
        (tmp_path / "values.json").write_text(json.dumps(values))
        return _shape(template("--values", str(tmp_path / "values.json")))

    assert rendered_with(text) == rendered_with("text")


@pytest.mark.parametrize(
    ("version", "flag", "words"),
    [
        ("1.33.4", "mode=OptIn", "incompatible with Kubernetes"),
        ("1.36.2", "bridge.enabled=true", "bridge.enabled needs Kubernetes 1.37"),
        ("1.35.3", "driver.enabled=true", "driver.enabled needs Kubernetes 1.36"),
    ],
)
def test_what_a_version_of_kubernetes_lacks_is_refused(version: str, flag: str, words: str) -> None:
    where = ("--namespace", NAMESPACE, "--kube-version", version)

    assert words in run_helm("template", RELEASE, CHART, *where, "--set", flag, fails=True)


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("1.34.0", "observer.enabled=true"),
        # As managed services name their builds.
        ("1.36.1-gke.1100", "driver.enabled=true"),
        ("1.37.0-eks-12345", "bridge.enabled=true"),
    ],
)
def test_what_a_version_of_kubernetes_serves_is_rendered(version: str, flag: str) -> None:
    where = ("--namespace", NAMESPACE, "--kube-version", version)

    assert "kind: Deployment" in run_helm("template", RELEASE, CHART, *where, "--set", flag)


def test_the_bridge_is_refused_where_its_fence_does_not_reach() -> None:
    where = ("--namespace", "gpu-system", "--kube-version", "1.37.1")
    output = run_helm(
        "template", RELEASE, CHART, *where, "--set", "bridge.enabled=true", fails=True
    )

    assert "drawbridge-system" in output


def test_the_chart_has_no_faults_that_helm_sees() -> None:
    assert "0 chart(s) failed" in run_helm("lint", CHART, "--strict")


# --- a life -----------------------------------------------------------------------------------------


@pytest.fixture
def release(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
    # The next story may have the same control plane, and what is applied while it goes is gone a moment later. The
    # definitions go after it: while the controller of namespaces still lists a kind that is gone, it waits ever longer.
    cluster.wait_gone("namespaces", NAMESPACE, timeout_s=TIMEOUT_S)
    cluster.kubectl("delete", "crd", "--ignore-not-found", *DEFINITIONS)


@pytest.mark.parametrize("cluster", [{}], indirect=True)
def test_install_upgrade_rollback_and_uninstall(release: Cluster) -> None:
    """Nothing runs the images here; the story shows that the API server takes it all."""

    def run(*arguments: str | Path) -> str:
        return run_helm(*arguments, "--namespace", NAMESPACE, kubeconfig=release.kubeconfig)

    def stored() -> Mapping[str, Any]:
        webhook: Mapping[str, Any] = release.get(_CONFIGURATIONS[0], CONFIGURATION)["webhooks"][0]
        return webhook

    output = run("install", RELEASE, CHART, "--create-namespace", "--set", "mode=Shadow")
    assert "in mode Shadow" in output
    assert stored()["failurePolicy"] == "Ignore"

    # What drawbridge-certificates writes is not the chart's, and stays.
    bundle = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
    patch = [
        {"op": "add", "path": "/webhooks/0/rules", "value": rules},
    ]
    release.kubectl(
        *("patch", "MutatingWebhookConfiguration", CONFIGURATION, "--type=json"),
        *("-p", json.dumps(patch), "--field-manager=drawbridge.certificates"),
    )
    release.kubectl(
        *("patch", "secret", "drawbridge-signing", "-n", NAMESPACE, "--type=merge"),
        *("-p", json.dumps({"data": {"key": bundle}})),
    )
    run("upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set", "mode=OptIn")
    assert stored()["failurePolicy"] == "Fail"
    assert stored()["rules"][0]["resources"] == ["pods"]
    assert release.get("secret", "drawbridge-signing", NAMESPACE)["data"] == {"key": bundle}

    run("rollback", RELEASE, "1")
    assert stored()["failurePolicy"] == "Ignore"
    assert stored()["rules"][0]["resources"] == ["pods"]

    run("uninstall", RELEASE)
    assert release.find("MutatingWebhookConfiguration", CONFIGURATION) is None
    assert release.find("deployments", "drawbridge-webhook", NAMESPACE) is None
    kept = {name: release.get("crd", name)["metadata"]["uid"] for name in DEFINITIONS}

    # The definitions that were kept are the next installation's.
    run("install", RELEASE, CHART, *REINSTALL)
    assert {name: release.get("crd", name)["metadata"]["uid"] for name in DEFINITIONS} == kept
    run("upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set", "mode=Shadow")
    run("uninstall", RELEASE)
    assert {name: release.get("crd", name)["metadata"]["uid"] for name in DEFINITIONS} == kept


@pytest.mark.parametrize("cluster", [{}], indirect=True)
@pytest.mark.parametrize("is_whole", [True, False])
def test_the_notes_say_what_to_unlock_before_an_uninstall(cluster: Cluster, is_whole: bool) -> None:
    flags = ("--set", f"bridge.enabled={is_whole},driver.enabled={is_whole}".lower())
    install = ("install", RELEASE, CHART, "--namespace", NAMESPACE, "--dry-run=server", *flags)

    notes = run_helm(*install, kubeconfig=cluster.kubeconfig).partition("\nNOTES:\n")[2]

    assert "in mode OptIn" in notes
    for command in (
        "kubectl drawbridge bridge release DRIVER --apply",
        "kubectl drain NODE --ignore-daemonsets",
    ):
        assert (f"\n   {command}\n" in f"{notes}\n") is is_whole


def _expressions(cluster: Cluster) -> str:
    """Return the match conditions of the webhook of pods, as text."""
    return json.dumps(
        cluster.get(_CONFIGURATIONS[0], CONFIGURATION)["webhooks"][0]["matchConditions"]
    )


@contextmanager
def _certificate_controller(cluster: Cluster, settings: Mapping[str, Any]) -> Iterator[None]:
    """Run the certificate controller of the chart beside a cluster, and wait for its keys."""
    wanted = ("Deployment", NAMESPACE, CERTIFICATES)
    (deployment,) = (document for document in template() if key_of(document) == wanted)
    processes = Drawbridge(cluster, [deployment], settings)
    processes.start(CERTIFICATES)
    try:
        cluster.wait_until(
            lambda: RENAMED in _expressions(cluster), "the keys are written", timeout_s=TIMEOUT_S
        )
        yield
    finally:
        processes.stop(CERTIFICATES)


@pytest.mark.parametrize("cluster", [{}], indirect=True)
def test_an_upgrade_of_helm_4_needs_a_flag_where_the_processes_wrote_keys(release: Cluster) -> None:
    """It applies on the server: a value of another manager is a conflict."""

    def run(*arguments: str | Path, fails: bool = False) -> str:
        where = ("--namespace", NAMESPACE)
        return run_helm(*arguments, *where, kubeconfig=release.kubeconfig, fails=fails)

    def failure_policy() -> str:
        stored = release.get(_CONFIGURATIONS[0], CONFIGURATION)
        policy: str = stored["webhooks"][0]["failurePolicy"]
        return policy

    settings = {"translation": {"renamedKeys": {RENAMED: "nvidia.com/gpu"}}}
    values = ("--set-json", f"settings={json.dumps(settings)}")
    upgrade = ("upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set")
    run("install", RELEASE, CHART, "--create-namespace", "--set", "mode=Shadow", *values)
    with _certificate_controller(release, settings):
        assert "conflict" in run(*upgrade, "mode=OptIn", fails=True)
        assert failure_policy() == "Ignore"

        for mode, flags, policy in (
            ("OptIn", OVERWRITE, "Fail"),
            ("Shadow", ("--server-side=false",), "Ignore"),
            # So it is from then on.
            ("OptIn", (), "Fail"),
            ("Shadow", OVERWRITE, "Ignore"),
        ):
            run(*upgrade, f"mode={mode}", *flags)
            assert failure_policy() == policy
            release.wait_until(
                lambda: RENAMED in _expressions(release), "the keys are back", timeout_s=TIMEOUT_S
            )
    run("uninstall", RELEASE)


@pytest.mark.parametrize("cluster", [{}], indirect=True)
def test_so_does_kubectl_that_applies_on_the_server(release: Cluster) -> None:
    settings = {"translation": {"renamedKeys": {RENAMED: "nvidia.com/gpu"}}}
    apply = ("apply", "--server-side", "-f", "-")
    objects = stream(rendered(release, MANIFESTS / "overlays" / "opt-in"))
    release.kubectl(*apply, input=objects)
    try:
        with _certificate_controller(release, settings):
            conflict = release.kubectl(*apply, input=objects, check=False)
            assert conflict.returncode
            assert "conflict" in conflict.stderr
            release.kubectl(*apply, "--force-conflicts", input=objects)
            release.wait_until(
                lambda: RENAMED in _expressions(release), "the keys are back", timeout_s=TIMEOUT_S
            )
    finally:
        release.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=objects)


@pytest.mark.parametrize("cluster", [{}], indirect=True)
def test_helm_takes_over_what_kustomize_installed(release: Cluster) -> None:
    release.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "opt-in"))
    uids = {name: release.get("crd", name)["metadata"]["uid"] for name in DEFINITIONS}
    install = ("install", RELEASE, CHART, "--namespace", NAMESPACE, "--set", "mode=OptIn")
    where = release.kubeconfig

    assert "cannot be imported" in run_helm(*install, kubeconfig=where, fails=True)
    run_helm(*install, "--take-ownership", *REINSTALL, kubeconfig=where)

    assert {name: release.get("crd", name)["metadata"]["uid"] for name in DEFINITIONS} == uids
    deployment = release.get("deployments", "drawbridge-webhook", NAMESPACE)
    assert deployment["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE
    run_helm(
        "upgrade",
        RELEASE,
        CHART,
        "--namespace",
        NAMESPACE,
        "--reset-then-reuse-values",
        kubeconfig=where,
    )
    run_helm("uninstall", RELEASE, "--namespace", NAMESPACE, kubeconfig=where)
    assert release.find("deployments", "drawbridge-webhook", NAMESPACE) is None
