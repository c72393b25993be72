"""An upgrade and a downgrade between two versions of the translation, with pods in every state."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, ROOT, WEBHOOK, Drawbridge
from e2e.objects import deployment, pod
from e2e.translated import legacy_keys
from e2e.versions import copy_next_version, environment_of
from kube.names import REQUEST_ANNOTATION
from translation.compiling.claims import TRANSLATION_VERSION

pytestmark = pytest.mark.usefixtures("fleet")

TIMEOUT_S: Final = 90.0
GATE: Final = "story.internal/wait"
LATE: Final = "story.internal/late"
NODE: Final = "hami-2"
FINALIZER: Final = "story.internal/keep"
OWN: Final = TRANSLATION_VERSION
EVENTS: Final = {"DeviceRequestMismatch", "DriverProfileChanged", "TranslationNotSigned"}


class Programs:
    """The programs of this version and the next; one of them runs.

    Attributes:
        folders: Translation version to the folder with the program.
    """

    def __init__(self, drawbridge: Drawbridge, folder: Path) -> None:
        self._drawbridge = drawbridge
        self.folders = {OWN: ROOT, OWN + 1: copy_next_version(folder)}
        self._running = dict.fromkeys((WEBHOOK, CONTROLLER), OWN)

    def run(self, version: int) -> None:
        """Have all processes of a version, and return when they work."""
        for name, running in self._running.items():
            if running != version:
                self.start(name, version)
        self._drawbridge.wait_ready()

    def start(self, name: str, version: int) -> None:
        """Replace a process by one of a version."""
        self.stop(name)
        self._drawbridge.start(name, environment=environment_of(self.folders[version]))
        self._running[name] = version

    def stop(self, name: str) -> None:
        """End a process."""
        self._drawbridge.stop(name)
        self._running[name] = 0


@pytest.fixture(scope="module")
def programs(
    drawbridge: Drawbridge, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Programs]:
    running = Programs(drawbridge, tmp_path_factory.mktemp("next") / "version")
    yield running
    running.run(OWN)


def share(name: str, memory: int, **fields: Any) -> Object:
    return pod(name, limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}, **fields)


def record_version(document: Object) -> int:
    """The translation version of a pod."""
    record = json.loads(document["metadata"]["annotations"][REQUEST_ANNOTATION])
    return int(record["translationVersion"])


def template_of(document: Object) -> str:
    (entry,) = document["spec"]["resourceClaims"]
    return str(entry["resourceClaimTemplateName"])


def events_of(cluster: Access, namespace: str) -> dict[str, list[str]]:
    """Pod to the messages about its translation."""
    messages: dict[str, list[str]] = {}
    for event in cluster.objects("events", namespace):
        if event["reason"] in EVENTS:
            messages.setdefault(event["involvedObject"]["name"], []).append(event["message"])
    return messages


def names(cluster: Access, namespace: str) -> set[str]:
    """The names of the templates in a namespace."""
    stored = cluster.objects("resourceclaimtemplates", namespace)
    return {str(template["metadata"]["name"]) for template in stored}


def admitted_version(cluster: Access, namespace: str) -> int:
    """The translation version that a pod would get now; 0 while the webhook does not answer."""
    path = f"{cluster.kind('pods').path(namespace)}?dryRun=All"
    status, answer = cluster.request("POST", path, share("tried", 1007))
    return record_version(json.loads(answer)) if status == http.client.CREATED else 0


def wait_serving(cluster: Access, namespace: str, replicas: int) -> None:
    """Wait until so many pods of the Deployment run."""
    cluster.wait_for(
        "deployments",
        "serving",
        namespace,
        until=lambda stored: stored["status"].get("readyReplicas") == replicas,
        timeout_s=TIMEOUT_S,
    )


@pytest.mark.parametrize(
    ("old", "new"), [(OWN, OWN + 1), (OWN + 1, OWN)], ids=["upgrade", "downgrade"]
)
def test_pods_in_every_state_survive_another_version(
    *, cluster: Access, namespace: str, programs: Programs, old: int, new: int
) -> None:
    programs.run(old)
    target = ("-n", namespace)
    states = [
        share("running", 1000),
        share("gated", 1001, schedulingGates=[{"name": GATE}]),
        share("pending", 1002, nodeSelector={LATE: "yes"}),
        share("ending", 1003),
    ]
    states[3]["metadata"]["finalizers"] = [FINALIZER]
    serving = deployment("serving", share("pod", 1004), replicas=2)
    cluster.kubectl("create", *target, "-f", "-", input=stream([*states, serving]))
    for name in ("running", "ending"):
        cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    wait_serving(cluster, namespace, 2)
    before = {live["metadata"]["name"]: live for live in cluster.objects("pods", namespace)}
    assert {old} == set(map(record_version, before.values()))
    templates = {template_of(live) for live in before.values()}
    cluster.wait_until(lambda: templates <= names(cluster, namespace), "all templates are there")
    cluster.kubectl("delete", *target, "pod", "ending", "--wait=false")
    # A pod that no controller of its version sees any more.
    programs.stop(CONTROLLER)
    cluster.kubectl("create", *target, "-f", "-", input=stream(share("waiting", 1005)))
    waiting = cluster.get("pods", "waiting", namespace)

    # The webhook first, as docs/operations.md says. What it admits waits for its controller.
    programs.start(WEBHOOK, new)
    cluster.wait_until(
        lambda: admitted_version(cluster, namespace) == new,
        "the new webhook answers",
        timeout_s=TIMEOUT_S,
    )
    cluster.kubectl("create", *target, "-f", "-", input=stream(share("between", 1006)))
    programs.run(new)

    between = cluster.wait_running("between", namespace, timeout_s=TIMEOUT_S)
    ungate = json.dumps({"spec": {"schedulingGates": None}})
    cluster.kubectl("patch", *target, "pod", "gated", "--type=merge", "-p", ungate)
    cluster.kubectl("label", "node", NODE, f"{LATE}=yes")
    try:
        for name in ("running", "gated", "pending"):
            cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    finally:
        cluster.kubectl("label", "node", NODE, f"{LATE}-")
    unfinish = json.dumps({"metadata": {"finalizers": None}})
    cluster.kubectl("patch", *target, "pod", "ending", "--type=merge", "-p", unfinish)
    cluster.wait_gone("pods", "ending", namespace, timeout_s=TIMEOUT_S)
    cluster.kubectl("scale", *target, "deployment", "serving", "--replicas=3")
    wait_serving(cluster, namespace, 3)
    after = {live["metadata"]["name"]: live for live in cluster.objects("pods", namespace)}
    for name, live in after.items():
        assert not legacy_keys(live)
        if name in before:
            assert before[name]["spec"]["resourceClaims"] == live["spec"]["resourceClaims"]
        assert record_version(live) == (old if name in {*before, "waiting"} else new)
    # Templates of the other version stay as long as they are used, and no longer.
    unused = template_of(before["ending"])
    cluster.wait_until(
        lambda: unused not in names(cluster, namespace), "it is collected", timeout_s=TIMEOUT_S
    )
    served = {template_of(live) for name, live in after.items() if name != "waiting"}
    cluster.wait_until(
        lambda: served == names(cluster, namespace),
        "the templates of live pods are left, and no others",
        timeout_s=TIMEOUT_S,
    )
    assert template_of(between) not in templates
    assert_refused_with_words(cluster, waiting, old=old, new=new)


def assert_refused_with_words(cluster: Access, waiting: Object, *, old: int, new: int) -> None:
    """A pod of the old version without a template is told so, once, and can be created again."""
    namespace = waiting["metadata"]["namespace"]
    target = ("-n", namespace)
    words = f"translation version {old} is not supported, only {new}"
    cluster.wait_until(
        lambda: events_of(cluster, namespace), "an event says why", timeout_s=TIMEOUT_S
    )
    ((name, messages),) = events_of(cluster, namespace).items()
    assert (name, len(messages)) == ("waiting", 1)
    assert f"ResourceClaimTemplate {template_of(waiting)} is missing" in messages[0]
    assert f"{words}; a controller of that version creates it" in messages[0]
    copied = {
        **waiting,
        "metadata": {"name": "copied", "annotations": waiting["metadata"]["annotations"]},
    }
    refusal = cluster.kubectl("create", *target, "-f", "-", input=stream(copied), check=False)
    assert refusal.returncode == 1
    assert words in refusal.stderr
    assert "create the pod from its legacy manifest" in refusal.stderr

    cluster.kubectl("delete", *target, "pod", "waiting", "--now")
    cluster.kubectl("create", *target, "-f", "-", input=stream(share("waiting", 1005)))
    again = cluster.wait_running("waiting", namespace, timeout_s=TIMEOUT_S)
    assert record_version(again) == new
