"""The rendered chart runs, and is attacked: its objects, arguments, rights and settings, not the manifests'.

The chart is in the mode of a first installation, so that only a labelled namespace is translated.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from admission.webhook_configuration import WEBHOOK_PATHS
from e2e.access import Access, Object
from e2e.attacks import (
    CONFIGURATION_CHANGES,
    FORGERIES,
    GPU,
    MEMORY,
    MUTATING,
    ConfigurationChange,
    Forgery,
    attempt,
    create,
    dry_run,
    forgeable,
    patched,
    raw_answer,
)
from e2e.chart import template
from e2e.cluster import Cluster
from e2e.conftest import IMPATIENT
from e2e.drawbridge import (
    CERTIFICATES,
    CONTROLLER,
    OBSERVER,
    RIGHT_DENIED,
    WEBHOOK,
    Drawbridge,
    merged,
)
from e2e.inventory import HAMI
from e2e.objects import claim_template, pod
from e2e.translated import devices, legacy_keys
from e2e.users import PODS_ONLY, add_user
from kube.names import CONFIGURATION, NAMESPACE, TRANSLATE_LABEL
from testing import documents
from testing.documents import api_object

pytestmark = [
    # Another installation would be the same objects.
    pytest.mark.parametrize("cluster", [{}], indirect=True),
    pytest.mark.usefixtures("fleet"),
]

TIMEOUT_S: Final = 90.0
FLAGS: Final = ("--set", "observer.enabled=true", "--set", "policies.enabled=true")
LIMITS: Final = {GPU: 1, MEMORY: 3000}
SHARE: Final = pod("share", limits=LIMITS)
TEAM: Final = "charted-team"
PROCESSES: Final = (WEBHOOK, CONTROLLER, CERTIFICATES, OBSERVER)
SECRETS: Final = (
    "drawbridge-ca",
    "drawbridge-webhook-tls",
    "drawbridge-webhook-path",
    "drawbridge-signing",
)


def charted_settings(objects: list[Object]) -> dict[str, Any]:
    """Return the settings in the ConfigMap that the chart's processes mount."""
    (text,) = (
        document["data"]["settings.yaml"]
        for document in objects
        if (document["kind"], document["metadata"]["name"]) == ("ConfigMap", "drawbridge-settings")
    )
    return dict(yaml.load(text, Loader=yaml.CSafeLoader))


@pytest.fixture(scope="module")
def charted(cluster: Cluster, fleet: list[str]) -> Iterator[Drawbridge]:
    """The chart's processes, each with the command of its Deployment and a token of its account."""
    objects = template(*FLAGS)
    namespaces = [
        documents.namespace(name, labels)
        for name, labels in ((NAMESPACE, {}), (TEAM, {TRANSLATE_LABEL: "true"}))
    ]
    cluster.apply(namespaces)
    cluster.wait_for("serviceaccounts", "default", TEAM)
    drawbridge = Drawbridge(cluster, objects, merged(charted_settings(objects), IMPATIENT))
    drawbridge.install()
    yield drawbridge
    drawbridge.uninstall()
    for name in (NAMESPACE, TEAM):
        cluster.kubectl("delete", "namespace", name, "--wait=false")
    for name in (NAMESPACE, TEAM):
        # The next story may have the same control plane.
        cluster.wait_gone("namespaces", name, timeout_s=TIMEOUT_S)


def test_pods_of_labelled_namespaces_get_devices_and_no_process_lacks_a_right(
    cluster: Cluster, charted: Drawbridge, namespace: str
) -> None:
    assert set(PROCESSES) <= cluster.children.keys()
    assert create(cluster, TEAM, pod("first", limits=LIMITS))[0] == 0
    running = cluster.wait_running("first", TEAM, timeout_s=TIMEOUT_S)

    assert legacy_keys(running) == set()
    (main,) = devices(running, cluster.objects("resourceclaims", TEAM))["main"]
    assert main.driver == HAMI
    assert legacy_keys(dry_run(cluster, namespace, SHARE)) == {GPU, MEMORY}
    for name in PROCESSES:
        assert RIGHT_DENIED not in charted.log(name), name


@pytest.fixture(scope="module")
def translated(cluster: Cluster, charted: Drawbridge) -> Object:
    """A translated pod, as a forger writes it again."""
    return forgeable(dry_run(cluster, TEAM, SHARE))


@pytest.mark.parametrize("row", FORGERIES, ids=lambda row: row.name)
def test_a_forged_record_is_refused(cluster: Cluster, translated: Object, row: Forgery) -> None:
    forged = copy.deepcopy(translated)
    row.change(forged)

    status, words = create(cluster, TEAM, forged, "--dry-run=server")

    assert status == 1
    for word in row.words:
        assert word in words


def test_no_path_without_its_key_is_answered(charted: Drawbridge) -> None:
    plain = "HTTP/1.1\r\nHost: a\r\n\r\n"
    paths = [*WEBHOOK_PATHS.values(), *(f"{path}/{'0' * 32}" for path in WEBHOOK_PATHS.values())]

    answers = {raw_answer(charted, f"POST {path} {plain}".encode()) for path in paths}

    (answer,) = answers
    assert answer.split()[1] == b"404"


def test_a_user_of_pods_reaches_nothing_of_ours(cluster: Access, charted: Drawbridge) -> None:
    user = add_user(cluster, TEAM, PODS_ONLY)
    attempts = [
        *(f"get secret -n {NAMESPACE} {name}" for name in SECRETS),
        f"get {MUTATING} {CONFIGURATION}",
        f"delete lease -n {NAMESPACE} drawbridge-certificates",
        f"delete configmap -n {NAMESPACE} drawbridge-settings",
        f"create token -n {NAMESPACE} {CONTROLLER}",
    ]

    for words in attempts:
        output = cluster.kubectl(*words.split(), check=False, kubeconfig=user)
        assert RIGHT_DENIED in output.stderr, words


@pytest.mark.parametrize("account", PROCESSES)
def test_a_stolen_token_reads_and_creates_no_more_than_its_work(
    cluster: Cluster, charted: Drawbridge, account: str
) -> None:
    readable = {
        CERTIFICATES: frozenset(SECRETS),
        WEBHOOK: frozenset({"drawbridge-webhook-tls"}),
    }.get(account, frozenset())
    tokens = {"kubernetes.io/service-account.name": CERTIFICATES}
    token = api_object(
        "Secret", "token", NAMESPACE, annotations=tokens, type="kubernetes.io/service-account-token"
    )
    template_ = claim_template("own", HAMI)
    template_["metadata"]["namespace"] = TEAM

    for name in SECRETS:
        words = ("get", "secret", "-n", NAMESPACE, name)
        refused = attempt(cluster, charted, account, *words)
        assert (not refused) is (name in readable), (account, name, refused)
    for document in (token, template_, pod("stolen")):
        text = json.dumps(document)
        assert attempt(cluster, charted, account, "create", "-f", "-", input=text), document


@pytest.mark.parametrize("change", CONFIGURATION_CHANGES, ids=lambda change: change.name)
def test_the_token_of_certificates_does_not_steer_the_webhooks(
    cluster: Cluster, charted: Drawbridge, change: ConfigurationChange
) -> None:
    before = cluster.get(MUTATING, CONFIGURATION)

    step = {"op": "add", "path": change.path, "value": change.value}
    status, refused = patched(cluster, charted, [step])

    assert (status, "ValidatingAdmissionPolicy" in refused) == (403, True), refused
    assert cluster.get(MUTATING, CONFIGURATION) == before
