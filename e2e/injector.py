"""Another webhook that adds device resources to pods: a stand-in for a network resources injector.

It is called after ours, since configurations are called in the order of their names. Whatever pod
has the label `inject` gets its resource in its first container, once.
"""

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

from e2e.access import Access, Object
from e2e.credentials import Authority
from testing.documents import api_object

NAME: Final = "zzz-injector"
LABEL: Final = "inject"


class Injector:
    """`with Injector(cluster, namespace, "openshift.io/nic"): ...`; it serves one namespace."""

    def __init__(self, cluster: Access, namespace: str, resource: str, directory: Path) -> None:
        self._cluster = cluster
        self._namespace = namespace
        authority = Authority("injector")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue("injector").write(directory, "injector"))
        handler = type("Handler", (_Handler,), {"resource": resource})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="injector")
        self._bundle = base64.b64encode(authority.certificate).decode()

    def __enter__(self) -> Self:
        self._thread.start()
        self._cluster.apply(self._configuration())
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.kubectl("delete", "mutatingwebhookconfiguration", NAME)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _configuration(self) -> Object:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        url = f"https://127.0.0.1:{self._server.server_address[1]}/"
        return api_object(
            "MutatingWebhookConfiguration",
            NAME,
            api_version="admissionregistration.k8s.io/v1",
            webhooks=[
                {
                    "name": "injector.example.internal",
                    "clientConfig": {"url": url, "caBundle": self._bundle},
                    "rules": [{**rule, "operations": ["CREATE"]}],
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": self._namespace}
                    },
                    "reinvocationPolicy": "IfNeeded",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    resource = ""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(length))["request"]
        response = {"uid": request["uid"], "allowed": True, **self._patch(request["object"])}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _patch(self, pod: Object) -> dict[str, Any]:
        metadata = pod["metadata"]
        if LABEL not in metadata.get("labels", {}) or "injected" in metadata["labels"]:
            return {}
        resources = pod["spec"]["containers"][0].get("resources", {})
        amounts = {
            field: {**resources.get(field, {}), self.resource: "1"}
            for field in ("limits", "requests")
        }
        steps = [
            {"op": "add", "path": "/metadata/labels/injected", "value": "yes"},
            {
                "op": "add",
                "path": "/spec/containers/0/resources",
                "value": {**resources, **amounts},
            },
        ]
        patch = base64.b64encode(json.dumps(steps).encode()).decode()
        return {"patchType": "JSONPatch", "patch": patch}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  As it is called.
        """Say nothing."""
