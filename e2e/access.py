"""Calls that a test or a person makes to a cluster started by anybody.

`kubectl` is what users have, so stories speak through it. What tests ask over and over (is it there
yet?) goes as plain HTTP through one `kubectl proxy`, so that any kubeconfig's way of logging in
works and no process is started per question.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from e2e.connections import UnixConnection, Watch
from e2e.credentials import kubeconfig, write_secret
from e2e.processes import (
    Child,
    Keeper,
    log_tails,
    run_afterwards,
    stop_all,
    write_afterwards,
    write_records,
)

Object = dict[str, Any]
"""A Kubernetes object as the API server gives it."""

MIN_POLL_S: Final = 0.05
MAX_POLL_S: Final = 0.5
TIMEOUT_S: Final = 90.0
PATIENCE: Final = 3
"""The number of its timeouts after which a wait ends: only a failure reaches it, and a busy machine is slow."""
READY_TIMEOUT_S: Final = 300.0
"""The timeout of a component that begins, which only a failure reaches, also on a busy machine."""
TOKEN_LIFE_S: Final = 24 * 60 * 60

_PROXY: Final = "kubectl-proxy"
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The path and the plural of a kind: `/apis/apps/v1`, `deployments`."""

    prefix: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """The path of one object, or of the list when there is no name."""
        inside = ("namespaces", namespace) if self.namespaced and namespace else ()
        return "/".join((self.prefix, *inside, self.plural, *((name,) if name else ())))


class Access:
    """A way into a cluster: kubectl and plain requests, both with one kubeconfig's rights.

    Attributes:
        kubeconfig: Full rights in a cluster that we started; in others, whatever was given.
        directory: The folder of kubeconfigs and logs of this access.
        children: The programs that were started through it, by name.
        tend: Called at each look of a wait; starts what has ended and is to run.
    """

    def __init__(self, *, kubectl: Path, kubeconfig: Path, directory: Path) -> None:
        self.kubeconfig = kubeconfig
        self.directory = directory
        self.kubectl_binary = kubectl
        self.children: dict[str, Child] = {}
        self.tend: Callable[[], object] = lambda: None
        self._afterwards: dict[str, tuple[str, ...]] = {}
        self._keeper: Keeper | None = None
        self._kinds: dict[str, Kind] = {}
        self._socket: Path | None = None
        self._entry: Mapping[str, Any] = {}

    # --- kubectl ---------------------------------------------------------------------------------

    def kubectl(
        self,
        *arguments: str | Path,
        input: str | None = None,  # noqa: A002 - named as subprocess names it
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return its output.

        Args:
            arguments: The command line after `kubectl`.
            input: The text on its standard input, for `-f -`.
            check: Whether a failure is the test's failure.
            kubeconfig: Somebody else's rights, such as what `kubeconfig_for` gives.
        """
        completed = subprocess.run(
            [self.kubectl_binary, *arguments],
            env=self.environment(kubeconfig),
            input=input,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and completed.returncode != 0:
            words = " ".join(str(argument) for argument in arguments)
            raise AssertionError(
                f"kubectl {words} ended with {completed.returncode}\n{completed.stdout}{completed.stderr}"
            )
        return completed

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """An environment that makes kubectl, and any other client, speak to this cluster."""
        # kubectl finds `kubectl drawbridge` where this environment has its commands.
        programs = (self.kubectl_binary.parent, Path(sys.executable).parent, os.environ["PATH"])
        return {
            **os.environ,
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
            "KUBERC": "off",
            "PATH": os.pathsep.join(str(program) for program in programs),
        }

    # --- plain requests --------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: str = "application/json",
        content_type: str = "application/json",
        user: str = "",
    ) -> tuple[int, bytes]:
        """Ask the API server for `path` and return any status and body.

        Args:
            body: An object, or the bytes of one.
            user: The user that asks; empty for the one of the kubeconfig.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = UnixConnection(self._proxy_socket())
        try:
            headers = {"Accept": accept, "Content-Type": content_type}
            if user:
                headers["Impersonate-User"] = user
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def raw(self, path: str, *, accept: str = "application/json") -> bytes:
        """The body at `path`; anything but 200 is the test's failure."""
        status, body = self.request("GET", path, accept=accept)
        assert status == http.client.OK, f"GET {path}: {status} {body.decode(errors='replace')}"
        return body

    def apply(self, objects: str | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """Apply YAML text, one object or several, as `kubectl apply --server-side --force-conflicts`.

        A refusal is the test's failure.
        """
        for document in _documents(objects):
            path, status, body = self.try_apply(document)
            applied = status in {http.client.OK, http.client.CREATED}
            assert applied, f"apply {path}: {status} {body.decode(errors='replace')}"

    def try_apply(self, document: Mapping[str, Any]) -> tuple[str, int, bytes]:
        """Apply an object as `apply` does, and return its path with the status and the body of the answer."""
        query = urllib.parse.urlencode(
            {"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"}
        )
        metadata = document["metadata"]
        path = self._kind_of(document).path(metadata.get("namespace", "default"), metadata["name"])
        status, body = self.request(
            "PATCH", f"{path}?{query}", document, content_type="application/apply-patch+yaml"
        )
        return path, status, body

    def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object, if there is one, and do not wait until it is gone."""
        path = self.kind(kind).path(namespace or "default", name)
        status, body = self.request("DELETE", path)
        known = (http.client.OK, http.client.ACCEPTED, http.client.NOT_FOUND)
        assert status in known, f"DELETE {path}: {status} {body.decode(errors='replace')}"

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """The object, or None when there is none.

        Args:
            kind: Any name that kubectl takes: `pod`, `pods`, `po`, `Pod`, `deployments.apps`.
            name: The object's name.
            namespace: The object's namespace; of no meaning for cluster-scoped kinds.
        """
        status, body = self.request("GET", self.kind(kind).path(namespace or "default", name))
        if status == http.client.NOT_FOUND:
            return None
        assert status == http.client.OK, f"{kind} {name}: {status} {body.decode(errors='replace')}"
        document: Object = json.loads(body)
        return document

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """The object; its absence is the test's failure."""
        stored = self.find(kind, name, namespace)
        assert stored is not None, f"there is no {kind} {namespace or 'default'}/{name}"
        return stored

    def objects(
        self, kind: str, namespace: str | None = None, *, selector: str = ""
    ) -> list[Object]:
        """The objects of a kind, by name; of all namespaces when none is given."""
        query = f"?labelSelector={urllib.parse.quote(selector)}" if selector else ""
        body = self.raw(self.kind(kind).path(namespace) + query)
        # A story may have stored what is not UTF-8, which stays until its namespace is gone.
        items: list[Object] = json.loads(body.decode(errors="replace"))["items"]
        return sorted(items, key=lambda item: (_namespace(item), item["metadata"]["name"]))

    @contextmanager
    def watching(self, kind: str) -> Iterator[tuple[list[Object], list[Object]]]:
        """Watch the objects of a kind in all namespaces while a block runs.

        Yields:
            The objects there are, and the list to which watch events are added.
        """
        path = self.kind(kind).path(None)
        first = json.loads(self.raw(path))
        version = first["metadata"]["resourceVersion"]
        with Watch(self._proxy_socket(), path, version) as watch:
            yield first["items"], watch.events

    def kind(self, name: str) -> Kind:
        """Return the path and the plural of a kind, by any name that kubectl takes."""

        def is_known() -> bool:
            if name.lower() not in self._kinds:
                self._kinds = self._discovered()  # A definition may have come since.
            return name.lower() in self._kinds

        self.wait_until(is_known, f"the API server serves the kind {name}")
        return self._kinds[name.lower()]

    def _kind_of(self, document: Mapping[str, Any]) -> Kind:
        """Return the path and the plural of an object's kind, in the version it is written in."""
        group, _, version = str(document["apiVersion"]).rpartition("/")
        kind = self.kind(".".join(filter(None, (document["kind"], group))))
        return msgspec.structs.replace(kind, prefix=f"{kind.prefix.rpartition('/')[0]}/{version}")

    # --- waiting ---------------------------------------------------------------------------------

    def wait_for(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        until: Callable[[Object], object] = lambda _: True,
        timeout_s: float = TIMEOUT_S,
    ) -> Object:
        """The object as soon as it exists and `until` is true of it; else a failure that shows it.

        Args:
            kind: Any name that kubectl takes.
            name: The object's name.
            namespace: The object's namespace.
            until: A question about the object; its truth ends the wait.
            timeout_s: The longest wait on a machine that is not busy.
        """
        began = time.monotonic()
        while True:
            stored = self.find(kind, name, namespace)
            if stored is not None and until(stored):
                return stored
            if time.monotonic() - began > PATIENCE * timeout_s:
                raise AssertionError(
                    f"{kind} {namespace or 'default'}/{name} is not as awaited after"
                    f" {PATIENCE * timeout_s:.0f} s:\n{json.dumps(stored, indent=1)}\n{self.complaints()}"
                )
            self.tend()
            _pause(began)

    def wait_running(
        self, name: str, namespace: str | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> Object:
        """The pod as soon as it is Running."""
        return self.wait_for(
            "pods", name, namespace, until=lambda pod: _phase(pod) == "Running", timeout_s=timeout_s
        )

    def wait_until(
        self, condition: Callable[[], object], description: str, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Wait until `condition` is true; `description` puts it into words."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > PATIENCE * timeout_s:
                raise AssertionError(
                    f"not after {PATIENCE * timeout_s:.0f} s: {description}\n{self.complaints()}"
                )
            self.tend()
            _pause(began)

    def wait_gone(
        self, kind: str, name: str, namespace: str | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Wait until the object does not exist any more."""
        self.wait_until(
            lambda: self.find(kind, name, namespace) is None,
            f"{kind} {namespace or 'default'}/{name} is gone",
            timeout_s=timeout_s,
        )

    # --- accounts --------------------------------------------------------------------------------

    def token(self, namespace: str, service_account: str) -> str:
        """A token of a service account, as the kubelet would mount one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LIFE_S},
        }
        status, body = self.request("POST", path, request)
        assert status == http.client.CREATED, f"POST {path}: {status} {body.decode()}"
        return str(json.loads(body)["status"]["token"])

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig with the rights of a service account, and no others."""
        user = {"token": self.token(namespace, service_account)}
        path = self.directory / f"{namespace}.{service_account}.kubeconfig"
        write_secret(path, kubeconfig(self.entry(), user))
        return path

    def entry(self) -> Mapping[str, Any]:
        """The entry of a kubeconfig that reaches the cluster."""
        if not self._entry:
            words = ("config", "view", "--raw", "--minify", "--flatten", "--output", "json")
            self._entry = json.loads(self.kubectl(*words).stdout)["clusters"][0]["cluster"]
        return self._entry

    # --- the inventory ---------------------------------------------------------------------------

    def add_nodes(
        self,
        nodes: Iterable[Mapping[str, Any]],
        slices: Callable[[str], Iterable[Mapping[str, Any]]] = lambda _: (),
    ) -> list[str]:
        """Make simulated nodes with their devices, wait until they are Ready; returns their names.

        Args:
            nodes: Node objects, see `e2e.inventory.kwok_nodes`.
            slices: The ResourceSlices by the name of a node.
        """
        objects = list(nodes)
        names = [str(node["metadata"]["name"]) for node in objects]
        self.apply([*objects, *(piece for name in names for piece in slices(name))])
        for name in names:
            self.wait_for("nodes", name, until=_is_ready)
        return names

    def remove_nodes(self, names: Iterable[str]) -> None:
        """Delete nodes and the slices published for them, once the pods that are ending there are gone.

        kwok ends the pods of nodes that exist. Those of a removed node are left to the pod garbage collector, which
        takes over a minute: longer than the next story waits for them.
        """
        removed = list(names)
        self.wait_until(
            lambda: not self._ending_on(removed), f"pods ended on {removed}", timeout_s=TIMEOUT_S
        )
        slices = self.kind("resourceslices").path("")
        for name in removed:
            self.delete("node", name)
            path = f"{slices}?fieldSelector=spec.nodeName%3D{name}"
            status, body = self.request("DELETE", path)
            assert status == http.client.OK, f"DELETE {path}: {status} {body.decode()}"

    def _ending_on(self, nodes: Collection[str]) -> list[str]:
        """The ending pods of some nodes: deleted themselves, or with their namespace."""
        ending = {
            entry["metadata"]["name"]
            for entry in self.objects("namespaces")
            if "deletionTimestamp" in entry["metadata"]
        }
        return [
            pod["metadata"]["name"]
            for pod in self.objects("pods")
            if pod["spec"].get("nodeName") in nodes
            and ("deletionTimestamp" in pod["metadata"] or pod["metadata"]["namespace"] in ending)
        ]

    # --- what the cluster says -------------------------------------------------------------------

    def api_metrics(self) -> str:
        """The API server's metrics, in Prometheus' text format."""
        return self.raw("/metrics", accept="*/*").decode()

    def complaints(self) -> str:
        """The latest warning events, for the message of a failed wait."""
        events = ("get", "events", "--all-namespaces", "--field-selector", "type=Warning")
        output = self.kubectl(*events, "--sort-by", ".lastTimestamp", check=False)
        return "\n".join(output.stdout.splitlines()[-12:])

    def log_tails(self) -> str:
        """The end of the log of everything that was started here."""
        return log_tails(self.children.values(), lines=8)

    # --- programs --------------------------------------------------------------------------------

    def run(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> Child:
        """Start a program that ends with this access; its log is `<name>.log` in `directory`.

        Args:
            name: The name of the process; one that ran under this name must have been stopped.
            command: Program and arguments.
            env: The variables to add to our environment.
        """
        child = Child(name, command, self.directory / f"{name}.log", env)
        self.children[name] = child
        child.start()
        self._record()
        return child

    def after_end(self, name: str, command: Sequence[str | Path]) -> None:
        """Have a command run when everything has ended, also when this process was killed.

        Args:
            name: The subject's name; a command of the same name is replaced.
            command: Program and arguments.
        """
        self._afterwards[name] = tuple(str(word) for word in command)
        write_afterwards(self.directory, self._afterwards)

    def close(self) -> None:
        """End everything that was started through this access; fine when nothing was."""
        self.end_proxy()
        stop_all(self.children.values())
        run_afterwards(self.directory)
        self._record()
        if self._keeper is not None:
            self._keeper.dismiss()
            self._keeper = None

    # --- inside ----------------------------------------------------------------------------------

    def _keep(self) -> None:
        """From now on, see that our children end when we do, however that is."""
        if self._keeper is None:
            self._keeper = Keeper(self.directory)
            self._keeper.start()

    def _record(self) -> None:
        write_records(self.directory, self.children.values())

    def _proxy_socket(self) -> Path:
        if self._socket is None:
            # A socket's path is limited to about 100 bytes, which a test's directory may exceed.
            self._socket = Path(tempfile.mkdtemp(prefix="drawbridge-")) / "api"
            command = (self.kubectl_binary, "proxy", "--unix-socket", self._socket)
            proxy = self.run(_PROXY, command, self.environment())
            deadline = time.monotonic() + PATIENCE * TIMEOUT_S
            while not _listens(self._socket):
                assert time.monotonic() < deadline, f"kubectl proxy:\n{proxy.tail()}"
                time.sleep(0.01)
        return self._socket

    def end_proxy(self) -> None:
        """End the proxy for plain requests; the next request starts it anew."""
        if self._socket is not None:
            self.children.pop(_PROXY).stop()
            self._record()
            shutil.rmtree(self._socket.parent, ignore_errors=True)
            self._socket = None

    def _discovered(self) -> dict[str, Kind]:
        kinds: dict[str, Kind] = {}
        for root in ("/api", "/apis"):
            for group in json.loads(self.raw(root, accept=_DISCOVERY))["items"]:
                for version in group["versions"]:
                    for resource in version["resources"]:
                        _remember(kinds, root, group["metadata"].get("name", ""), version, resource)
        return kinds


def _documents(
    objects: str | Mapping[str, Any] | Iterable[Mapping[str, Any]],
) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a text, of lists, or as they are."""
    if isinstance(objects, str):
        objects = [
            document for document in yaml.load_all(objects, Loader=yaml.CSafeLoader) if document
        ]
    for document in [objects] if isinstance(objects, Mapping) else objects:
        if document["kind"] == "List":
            yield from document["items"]
        else:
            yield document


def stream(objects: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str:
    """Objects as one document for `kubectl -f -`."""
    items = [objects] if isinstance(objects, Mapping) else list(objects)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _listens(path: Path) -> bool:
    """Return True if somebody accepts connections; the file is there a moment earlier."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _remember(
    kinds: dict[str, Kind], root: str, group: str, version: Object, resource: Object
) -> None:
    prefix = "/".join((root, *((group,) if group else ()), version["version"]))
    plural = resource["resource"]
    kind = Kind(prefix=prefix, plural=plural, namespaced=resource["scope"] == "Namespaced")
    singular = resource.get("singularResource", "")
    names = {plural, singular, resource["responseKind"]["kind"].lower()}
    names.update(resource.get("shortNames", ()))
    for name in names - {""}:
        # The API server lists the preferred version, and the most important group, first.
        kinds.setdefault(name, kind)
        kinds.setdefault(f"{name}.{group}", kind)


def _is_ready(node: Object) -> bool:
    """Return True if a node is ready, and has lost the taint that it was made with."""
    taints = node["spec"].get("taints", ())
    if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints):
        return False
    conditions = node.get("status", {}).get("conditions", ())
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _namespace(item: Object) -> str:
    return str(item["metadata"].get("namespace", ""))


def _pause(began: float) -> None:
    """Sleep for a tenth of the wait so far, so that long waits cost few questions and end hardly later.

    Args:
        began: The time when the wait began, of `time.monotonic`.
    """
    waited_s = time.monotonic() - began
    time.sleep(min(max(waited_s / 10, MIN_POLL_S), MAX_POLL_S))
