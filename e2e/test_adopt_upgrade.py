"""An upgrade from an earlier version and the way back, as docs/operations.md tells, while pods are created.

The earlier version is a commit of this repository: its manifests are applied and its code runs. A clone
that lacks the commit, such as a shallow one, skips this story.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pytest
import yaml

from e2e.access import Access, Object, stream
from e2e.balancer import Balancer
from e2e.conftest import IMPATIENT
from e2e.drawbridge import (
    CERTIFICATES,
    CONTROLLER,
    RIGHT_DENIED,
    ROOT,
    WEBHOOK,
    Drawbridge,
    command_line,
    merged,
    rendered,
)
from e2e.fleet import accelerator_nodes
from e2e.inventory import HAMI
from e2e.load import Load
from e2e.objects import deployment, job, named_claim, pod
from kube.api.own_kinds import DEVICE_QUOTA
from kube.names import MANAGED_LABEL, REQUEST_ANNOTATION
from testing.earlier import extract

pytestmark = [
    pytest.mark.history,
    pytest.mark.parametrize("cluster", [{"client_qps": 560}], indirect=True),
]

COMMIT: Final = "5e8e21e0"
"""The end of the thirteenth part; the processes of the commit before it do not start."""
PROCESSES: Final = (WEBHOOK, CONTROLLER, CERTIFICATES)
TIMEOUT_S: Final = 60.0
KNOWN: Final = {
    "certificateController": ("leaderElection", "endpointCheckPeriod"),
    "controllers": (
        "leaderElection",
        "templateUnusedPeriod",
        "templateCollectPeriod",
        "maxBackoff",
        "policySyncPeriod",
        "policyCountsPeriod",
        "inventoryUpdatePeriod",
    ),
    "signing": ("keyPublishPeriod",),
}
"""Those of the stories' settings that the earlier version has, too."""
HASTY: Final = {
    **{
        section: {name: IMPATIENT[section][name] for name in names}
        for section, names in KNOWN.items()
    },
    "webhook": {"drain": "500ms", "maxDrain": "5s", "requestsPerConnection": 4},
}
"""Settings, all of the earlier version, so that the story does not wait for grace periods."""
DEFAULTS: Final = """
import json
from controllers.certificates.settings import Settings as Certificates
from controllers.model.settings import Settings as Controllers
from process.model.settings import to_document
from webhook.settings import Settings as Webhook

kinds = (Webhook, Controllers, Certificates)
print(json.dumps({name: value for kind in kinds for name, value in to_document(kind()).items()}))
"""
"""Program that prints all settings of a version."""
EXAMPLES: Final = (
    *(f"shares/{name}.yaml" for name in ("volcano", "tencent", "volcengine", "tensor-fusion")),
    *(f"accelerators/{name}.yaml" for name in ("ascend", "amd", "neuron", "tpu", "hygon")),
)
"""Pods of other vocabularies, in the examples of the earlier version."""
OWN_KINDS: Final = ("devicecompatibilitypolicies", "devicetranslationprofiles")
OWN_CLAIM: Final = "own"
"""The name of a claim that a user wrote."""
QUOTA: Final = "one-request"
PER_REQUEST: Final = "40Gi"
ENDED: Final = ("Succeeded", "Failed")
ADDRESSES: Final = ("bindAddress", "probePort", "metricsPort", "port", "extraNames")


def share(name: str, memory: int, **fields: Any) -> Object:
    return pod(name, limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}, **fields)


GREEDY: Final = share("greedy", 41_000)


class Creations:
    """Pods that a person creates one after the other, each with a template of its own; old ones are deleted."""

    KEPT: Final = 8

    def __init__(self, cluster: Access, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.names: list[str] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def live(self) -> list[str]:
        """The names of the pods that are not deleted."""
        return self.names[-self.KEPT :]

    def _run(self) -> None:
        target = ("-n", self._namespace)
        while not self._ended.wait(0.3):
            number = len(self.names)
            document = share(f"steady-{number}", 100 + number)
            outcome = self._cluster.kubectl(
                "create", *target, "-f", "-", input=stream(document), check=False
            )
            if outcome.returncode:
                self.failures.append(outcome.stderr)
                continue
            self.names.append(document["metadata"]["name"])
            if number >= self.KEPT:
                self._cluster.delete("pod", self.names[number - self.KEPT], self._namespace)


class Versions:
    """The processes of two versions behind one balancer, in place of a Service.

    Attributes:
        both: The version's name to its processes.
    """

    def __init__(self, cluster: Access, folders: Mapping[str, Path], settings: Object) -> None:
        self._cluster = cluster
        self.both = {
            name: Drawbridge(
                cluster,
                rendered(cluster, folder / "manifests" / "base"),
                settings,
                folder=folder,
                suffix=f"-{name}",
            )
            for name, folder in folders.items()
        }
        endpoints = [drawbridge.endpoints for drawbridge in self.both.values()]
        self.balancer = Balancer(
            endpoints[0].host, {each.webhook: each.probes[WEBHOOK] for each in endpoints}
        )

    @contextmanager
    def reachable(self) -> Iterator[Self]:
        """Have the API server call the webhooks that are ready."""
        self._ports = {name: each.endpoints.webhook for name, each in self.both.items()}
        with self.balancer:
            for drawbridge in self.both.values():
                drawbridge.endpoints = msgspec.structs.replace(
                    drawbridge.endpoints, webhook=self.balancer.port
                )
            yield self

    def apply(self, name: str) -> None:
        """Apply the manifests of a version as `kubectl apply -k` does."""
        objects = [self._with_its_path(document) for document in self.both[name].applied()]
        self._cluster.kubectl("apply", "-f", "-", input=stream(objects))

    def _with_its_path(self, document: Object) -> Object:
        """Return an object with the stored `url` in place of its own.

        It stands for `service.path`, of which the manifests say nothing, so that an apply leaves it.
        """
        stored = self._cluster.find(document["kind"], document["metadata"]["name"])
        if stored is None or "webhooks" not in document:
            return document
        urls = {hook["name"]: hook["clientConfig"]["url"] for hook in stored["webhooks"]}
        for hook in document["webhooks"]:
            hook["clientConfig"]["url"] = urls.get(hook["name"], hook["clientConfig"]["url"])
        return document

    def start(self, name: str) -> None:
        """Start the processes of a version, and return when they work."""
        for process in PROCESSES:
            self.both[name].start(process)
        self.both[name].wait_ready()
        self._cluster.wait_until(
            lambda: self._ports[name] in self.balancer.ready(), f"{name} gets reviews"
        )

    def replace(self, before: str, after: str) -> None:
        """Have another version, while both answer beside each other for a while."""
        self.apply(after)
        self.start(after)
        answered = {name: self._answered(name) for name in self.both}
        self._cluster.wait_until(
            lambda: all(self._answered(name) > count + 3 for name, count in answered.items()),
            "both versions answer reviews",
        )
        log = self.stop(before)
        # Roles are those of the version that comes.
        assert after == "old" or RIGHT_DENIED not in log, log
        self.both[after].wait_ready()
        count = self._answered(after)
        self._cluster.wait_until(lambda: self._answered(after) > count + 3, f"{after} goes on")

    def _answered(self, name: str) -> int:
        """Return the number of reviews of pods that the webhook of a version has answered."""
        return self.both[name].decisions("translated")

    def stop(self, name: str) -> str:
        """End the processes of a version in good order, and return their logs."""
        logs = [self.both[name].log(process) for process in PROCESSES]
        for process in PROCESSES:
            self.both[name].stop(process)
        return "\n".join(logs)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    folder = tmp_path / "earlier"
    if why := extract(COMMIT, folder):
        pytest.skip(why)
    return folder


@pytest.fixture
def accelerators(cluster: Access) -> Iterator[None]:
    classes, nodes, slices = accelerator_nodes()
    cluster.apply(classes)
    nodes_added = cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    yield
    cluster.remove_nodes(nodes_added)


def settings_of(folder: Path) -> Object:
    """Return all settings of the version but its addresses, each with the value that it has by default."""
    output = subprocess.run(
        [sys.executable, "-c", DEFAULTS],
        env={"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    document: Object = json.loads(output.stdout)
    for section in document.values():
        if isinstance(section, dict):
            for name in ADDRESSES:
                section.pop(name, None)
    return document


class Objects:
    """The pods, claims and templates of a namespace."""

    def __init__(self, cluster: Access, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.pods = {document["metadata"]["name"]: document for document in self._read("pods")}
        self.claims = self._uids("resourceclaims")
        self.templates = self._uids("resourceclaimtemplates", f"{MANAGED_LABEL}=true")

    def of(self, names: Collection[str]) -> dict[str, tuple[str, str, list[Object]]]:
        """Return pod to its uid, its node and its claims."""
        return {name: _identity(self.pods[name]) for name in names}

    def misplaced(self) -> set[str]:
        """The names of claims and templates of no live pod, and of those that live pods lack."""
        held = {
            status["resourceClaimName"]
            for document in self._unfinished()
            for status in _claim_statuses(document)
        }
        return (self.claims.keys() ^ (held | {OWN_CLAIM})) | (
            self.templates.keys() ^ self.used_templates()
        )

    def used_templates(self) -> set[str]:
        """The names of the templates of translated pods that have not ended."""
        return {
            entry["resourceClaimTemplateName"]
            for document in self._unfinished()
            if REQUEST_ANNOTATION in document["metadata"].get("annotations", {})
            for entry in document["spec"].get("resourceClaims", ())
        }

    def _unfinished(self) -> Iterator[Object]:
        for document in self.pods.values():
            if document["status"].get("phase") not in ENDED:
                yield document

    def _read(self, kind: str, selector: str = "") -> list[Object]:
        return self._cluster.objects(kind, self._namespace, selector=selector)

    def _uids(self, kind: str, selector: str = "") -> dict[str, str]:
        return {
            document["metadata"]["name"]: document["metadata"]["uid"]
            for document in self._read(kind, selector)
        }


def _claim_statuses(document: Object) -> list[Object]:
    """Return the claims of a pod, with the scheduler's own claim for extended resources."""
    extended = document["status"].get("extendedResourceClaimStatus")
    statuses: list[Object] = document["status"].get("resourceClaimStatuses", [])
    return statuses if extended is None else [*statuses, extended]


def _identity(document: Object) -> tuple[str, str, list[Object]]:
    return document["metadata"]["uid"], document["spec"]["nodeName"], _claim_statuses(document)


class Story:
    """One namespace through the upgrade and back."""

    def __init__(self, cluster: Access, namespace: str, earlier: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._earlier = earlier
        self._target = ("-n", namespace)

    def kubectl(self, *words: str | Path, input: str | None = None) -> str:  # noqa: A002
        return self.cluster.kubectl(*words, *self._target, input=input).stdout

    def create(self, *documents: Object) -> None:
        self.kubectl("create", "-f", "-", input=stream(list(documents)))

    def objects(self) -> Objects:
        return Objects(self.cluster, self.namespace)

    def wait_running(self, names: Collection[str]) -> None:
        for name in names:
            self.cluster.wait_running(name, self.namespace, timeout_s=TIMEOUT_S)

    def wait_serving(self, name: str, replicas: int) -> None:
        self.cluster.wait_for(
            "deployments",
            name,
            self.namespace,
            until=lambda stored: stored["status"].get("readyReplicas") == replicas,
            timeout_s=TIMEOUT_S,
        )

    def wait_collected(self) -> None:
        """Wait until templates and claims are those of live pods."""
        try:
            self.cluster.wait_until(
                lambda: not self.objects().misplaced(), "they are collected", timeout_s=20
            )
        except AssertionError as error:
            error.add_note(f"misplaced: {self.objects().misplaced()}")
            raise

    def create_workloads(self) -> list[str]:
        """Create the workloads of users before the upgrade, and return their pods."""
        files = [word for name in EXAMPLES for word in ("-f", self._earlier / "examples" / name)]
        self.kubectl("create", *files)
        self.create(
            share("share", 1000),
            pod("whole", limits={"nvidia.com/gpu": 1}),
            share("doomed", 1001),
            named_claim(OWN_CLAIM, HAMI),
            pod("claimed", resourceClaims=[{"name": "gpu", "resourceClaimName": OWN_CLAIM}]),
            deployment("serving", share("pod", 1002), replicas=2),
            job("training", share("pod", 1003)),
            *self._example("compatibility/policy.yaml"),
            *self._example("profile/profile.yaml"),
        )
        self.wait_serving("serving", 2)
        alone = ["share", "whole", "doomed", "claimed", *(Path(name).stem for name in EXAMPLES)]
        self.wait_running(alone)
        return alone

    def _example(self, name: str) -> list[Object]:
        return list(
            yaml.load_all((self._earlier / "examples" / name).read_text(), Loader=yaml.CSafeLoader)
        )

    def use_the_new_version(self) -> None:
        """End some workloads of before, scale one, and create further ones."""
        self.kubectl("delete", "pod", "doomed", "--now")
        self.kubectl("scale", "deployment", "serving", "--replicas=3")
        self.wait_serving("serving", 3)
        self.create(share("after", 1004), deployment("late", share("pod", 1005)))
        self.wait_running(["after"])
        self.wait_serving("late", 1)
        self.create(quota(self.namespace))
        words = ("create", "--dry-run=server", "-n", self.namespace, "-f", "-")

        def is_denied() -> bool:
            outcome = self.cluster.kubectl(*words, input=stream(GREEDY), check=False)
            return f"DeviceQuota {QUOTA}" in outcome.stderr

        self.cluster.wait_until(is_denied, "the quota is in force", timeout_s=TIMEOUT_S)

    def assert_own_objects_are_served_and_valid(self) -> None:
        for kind in OWN_KINDS:
            stored = json.loads(self.cluster.kubectl("get", kind, "-o", "json").stdout)
            assert stored["items"], kind
            self.cluster.kubectl("replace", "--dry-run=server", "-f", "-", input=json.dumps(stored))


def quota(namespace: str) -> Object:
    """A limit of a kind that the earlier version does not have; of our pods `greedy` is above it."""
    limit = {"name": "memory", "driver": HAMI, "capacity": "memory"}
    return {
        "apiVersion": DEVICE_QUOTA.api_version,
        "kind": DEVICE_QUOTA.kind,
        "metadata": {"name": QUOTA},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "limits": [{**limit, "max": "300Gi", "perRequest": PER_REQUEST}],
        },
    }


@pytest.mark.long
@pytest.mark.usefixtures("fleet", "accelerators")
def test_an_upgrade_and_a_rollback_lose_nothing(
    *, cluster: Access, namespace: str, workshop: str, earlier: Path
) -> None:
    settings = merged(settings_of(earlier), HASTY)
    versions = Versions(cluster, {"old": earlier, "new": ROOT}, settings)
    story = Story(cluster, namespace, earlier)
    with versions.reachable():
        versions.apply("old")
        versions.start("old")
        alone = story.create_workloads()
        first = story.objects().of(alone)
        told = command_line(cluster, "check-upgrade", "--live")
        assert told.returncode == 0, told.stdout

        load = Load(cluster, workshop, share("share", 100), per_second=5)
        with load, Creations(cluster, namespace) as creations:
            versions.replace("old", "new")
            assert (creations.failures, load.failures) == ([], [])
            assert story.objects().of(alone) == first
            story.assert_own_objects_are_served_and_valid()
            story.use_the_new_version()

            versions.replace("new", "old")
        assert (creations.failures, load.failures) == ([], [])
        story.wait_running(creations.live)
        assert len(creations.names) > creations.KEPT
        # The quota is stored and has no effect.
        story.create(GREEDY)
        story.wait_running([GREEDY["metadata"]["name"]])
        stored = json.loads(cluster.kubectl("get", "devicequotas", QUOTA, "-o", "json").stdout)
        assert [limit["perRequest"] for limit in stored["spec"]["limits"]] == [PER_REQUEST]
        story.assert_own_objects_are_served_and_valid()
        story.wait_collected()
        back = story.objects()
        del first["doomed"]
        assert back.of(first) == first

        # What either version made is collected by this one, and used by it.
        story.kubectl("delete", "pod", "after", "share", "--now")
        story.kubectl("scale", "deployment", "late", "--replicas=2")
        story.wait_serving("late", 2)
        story.wait_collected()
        assert story.objects().templates.items() <= back.templates.items()
