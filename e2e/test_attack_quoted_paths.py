"""Errors of the API server that quote the path of a webhook, to every creator of an object.

The rows are what docs/threat-model.md says of the secret paths. Every webhook here is one of its own, at a
server that fails in one way.
"""

import base64
import http.client
import json
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest

from e2e.access import Access, Object
from e2e.credentials import Authority
from e2e.objects import deployment, pod
from testing.documents import api_object
from testing.ports import free_ports

KEY: Final = "0123456789abcdef" * 2
PATH: Final = f"/mutate/{KEY}"
LABEL: Final = "fails"
CONFIGURATION: Final = "zzz-failing"
TIMEOUT_S: Final = 1
"""The timeout of a webhook whose URL is quoted anyway."""
ANSWER_S: Final = 30
"""The timeout of a webhook that answers, also on a busy machine, lest its URL be quoted."""

Behaviour = Callable[[ssl.SSLSocket, str], None]
"""Answers a review, given its uid."""


class Failure(NamedTuple):
    """A webhook that fails.

    Attributes:
        name: A label's value.
        is_quoted: Whether the API server quotes its URL.
        behave: None where nobody listens, or where TLS fails.
        tls: The server's context.
    """

    name: str
    is_quoted: bool
    behave: Behaviour | None = None
    tls: str = "good"


def status(line: str, *headers: str, body: str = "", cut: int = 0) -> Behaviour:
    """Answer with a status, headers and a body without its last bytes."""
    text = (f"HTTP/1.1 {line}", f"Content-Length: {len(body) + cut}", "Connection: close", *headers)
    head = "".join(f"{part}\r\n" for part in text)
    return lambda connection, _uid: connection.sendall(f"{head}\r\n{body}".encode())


def refusal(connection: ssl.SSLSocket, uid: str) -> None:
    """Answer with a review that refuses because there is no time."""
    response = {"uid": uid, "allowed": False, "status": {"code": 503, "message": "no time"}}
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }
    status("200 OK", JSON, body=json.dumps(review))(connection, uid)


def silence(_connection: ssl.SSLSocket, _uid: str) -> None:
    """Answer nothing while the API server waits."""
    time.sleep(2 * TIMEOUT_S)


JSON: Final = "Content-Type: application/json"
AGAIN: Final = "Retry-After: 1"
TOO_LARGE: Final = {
    "apiVersion": "v1",
    "kind": "Status",
    "status": "Failure",
    "message": "the review has more than",
    "code": 413,
}
"""Drawbridge's answer to a review that is too large."""
FAILURES: Final = (
    Failure("nobody-listens", is_quoted=True, tls="none"),
    Failure("no-such-service", is_quoted=True, tls="service"),
    Failure("untrusted-certificate", is_quoted=True, tls="untrusted"),
    Failure("client-certificate-required", is_quoted=True, tls="strict"),
    Failure("no-answer", is_quoted=True, behave=silence),
    Failure("closed-without-answer", is_quoted=True, behave=lambda *_: None),
    Failure("not-http", is_quoted=True, behave=lambda peer, _uid: peer.sendall(b"?\r\n\r\n")),
    # The API server tries these again until its time is over.
    Failure("503-later", is_quoted=True, behave=status("503 Later", AGAIN)),
    Failure("429-later", is_quoted=True, behave=status("429 Later", AGAIN)),
    Failure("503", is_quoted=False, behave=status("503 No", body="no")),
    Failure("500", is_quoted=False, behave=status("500 No", body="no")),
    Failure("404", is_quoted=False, behave=status("404 Not Found")),
    Failure("413", is_quoted=False, behave=status("413 Large", JSON, body=json.dumps(TOO_LARGE))),
    Failure("403", is_quoted=False, behave=status("403 Forbidden", body="no")),
    Failure("no-review", is_quoted=False, behave=status("200 OK", JSON, body="no")),
    Failure("cut-short", is_quoted=False, behave=status("200 OK", JSON, body="{", cut=9)),
    Failure("refusal", is_quoted=False, behave=refusal),
)


class Server(socketserver.ThreadingTCPServer):
    """A webhook that fails; `with Server(...)`."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext, behave: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self._tls = tls
        self._behave = behave
        self._thread = threading.Thread(target=self.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        return int(self.server_address[1])

    def finish_request(self, request: socket.socket, _client: object) -> None:  # type: ignore[override]
        """Read a review and fail."""
        try:
            with self._tls.wrap_socket(request, server_side=True) as connection:
                self._behave(connection, read_uid(connection))
        except (OSError, ValueError):
            pass  # The API server has given up, or sent nothing.


def read_uid(connection: ssl.SSLSocket) -> str:
    """Return the uid of the review that a client sends."""
    received = b""
    while b"\r\n\r\n" not in received and (piece := connection.recv(2**16)):
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(2**16)
    return str(json.loads(body)["request"]["uid"])


def contexts(directory: Path) -> dict[str, ssl.SSLContext]:
    """Return contexts of servers: one that is trusted, one that is not, one for known clients only."""
    ours, theirs = Authority("ours"), Authority("theirs")
    (directory / "ours.crt").write_bytes(ours.certificate)
    made = {}
    for name, authority in (("good", ours), ("untrusted", theirs), ("strict", ours)):
        made[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made[name].load_cert_chain(*authority.issue("localhost").write(directory, name))
    made["strict"].verify_mode = ssl.CERT_REQUIRED
    made["strict"].load_verify_locations(cadata=theirs.certificate.decode())
    return made


@pytest.fixture(scope="module")
def failing(cluster: Access, stage: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The namespace that makes each webhook fail for pods with its label."""
    directory = tmp_path_factory.mktemp("failing")
    served = contexts(directory)
    bundle = base64.b64encode((directory / "ours.crt").read_bytes()).decode()
    with ExitStack() as undo:
        webhooks = []
        for failure in FAILURES:
            if failure.tls in served:
                server = undo.enter_context(Server(served[failure.tls], failure.behave or silence))
                port = server.port
            else:
                (port,) = free_ports(1)
            config: Object = {"url": f"https://127.0.0.1:{port}{PATH}"}
            if failure.tls == "service":
                config = {"service": {"name": "absent", "namespace": stage, "path": PATH}}
            webhooks.append(webhook(failure, {**config, "caBundle": bundle}, stage))
        cluster.apply(
            api_object(
                "MutatingWebhookConfiguration",
                CONFIGURATION,
                api_version="admissionregistration.k8s.io/v1",
                webhooks=webhooks,
            )
        )
        undo.callback(cluster.delete, "mutatingwebhookconfiguration", CONFIGURATION)
        cluster.wait_until(
            lambda: create(cluster, stage, "404")[0] != http.client.CREATED,
            "the API server calls the webhooks",
        )
        yield stage


def webhook(failure: Failure, config: Object, namespace: str) -> Object:
    """A webhook for pods with a label."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return {
        "name": f"{failure.name}.example.internal",
        "clientConfig": config,
        "rules": [{**rule, "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchLabels": {LABEL: failure.name}},
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S if failure.is_quoted else ANSWER_S,
        "admissionReviewVersions": ["v1"],
    }


def labelled(name: str) -> Object:
    """A pod that a webhook is called for."""
    document = pod("plain")
    document["metadata"]["labels"] = {LABEL: name}
    return document


def create(cluster: Access, namespace: str, name: str) -> tuple[int, str]:
    """Create a pod in a dry run; returns status and message."""
    path = f"{cluster.kind('pods').path(namespace)}?dryRun=All"
    code, body = cluster.request("POST", path, labelled(name))
    return code, str(json.loads(body).get("message", ""))


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_a_call_that_fails_is_reported_with_its_path_unless_there_was_an_answer(
    cluster: Access, failing: str, failure: Failure
) -> None:
    code, message = create(cluster, failing, failure.name)

    assert code >= http.client.BAD_REQUEST
    assert (KEY in message) is failure.is_quoted, message


def test_controllers_tell_it_in_events(cluster: Access, failing: str) -> None:
    document = deployment("stuck", labelled("nobody-listens"))
    document["spec"]["template"]["metadata"]["labels"][LABEL] = "nobody-listens"
    cluster.kubectl("apply", "-n", failing, "-f", "-", input=json.dumps(document))

    def notes() -> list[str]:
        return [
            str(event.get("message", ""))
            for event in cluster.objects("events", failing)
            if event["reason"] == "FailedCreate"
        ]

    cluster.wait_until(lambda: any(KEY in note for note in notes()), "an event has the path")


def test_the_words_of_a_status_reach_the_user(cluster: Access, failing: str) -> None:
    _, message = create(cluster, failing, "413")

    assert str(TOO_LARGE["message"]) in message
