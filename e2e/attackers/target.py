"""The cluster as attackers see it: addresses, tokens, and connections that stay open."""

import base64
import http.client
import json
import random
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from e2e.access import Access
from e2e.drawbridge import Drawbridge
from testing.documents import api_object

TIMEOUT_S: Final = 60.0
DRY_RUN: Final = "?dryRun=All"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that an attack needs; they go to the process that attacks.

    Attributes:
        server: URL of the API server.
        authority: The authority of its certificate, PEM.
        tokens: Name of a user, as in `e2e.users`, or of an account of ours to a token.
        namespace: The namespace that the users have their rights in.
        webhook: URL of the webhook, without a path.
        webhook_authority: The authority of its certificate, PEM.
        stolen_path: The secret path of pods, as somebody has read it.
        device_class: The class of devices that pods with legacy keys get.
        driver: The driver of these devices; the bridge owns it if there is a bridge.
        mixed_class: The class of devices of this driver and of another.
        other_driver: The other one.
        node: A node with devices of both.
        node_files: Paths of certificate and key of its kubelet; empty without.
        devices: The number of devices of one driver on the node.
    """

    server: str
    authority: str
    tokens: Mapping[str, str]
    namespace: str
    webhook: str
    webhook_authority: str
    stolen_path: str
    device_class: str
    driver: str
    mixed_class: str
    other_driver: str
    node: str = ""
    node_files: tuple[str, str] | None = None
    devices: int = 0

    def caller(self, who: str) -> "Caller":
        """Return a connection to the API server for somebody."""
        return Caller(self.server, self.authority, token=self.tokens[who])

    def kubelet(self) -> "Caller":
        """Return a connection to the API server for the kubelet of the node."""
        return Caller(self.server, self.authority, files=self.node_files)

    def stranger(self) -> "Caller":
        """Return a connection to the webhook, possible for any client of its port."""
        return Caller(self.webhook, self.webhook_authority)

    def path(self, plural: str, name: str = "") -> str:
        """Return the URL's path of pods or claims in the users' namespace."""
        prefix = "/api/v1" if plural == "pods" else "/apis/resource.k8s.io/v1"
        path = f"{prefix}/namespaces/{self.namespace}/{plural}"
        return f"{path}/{name}" if name else path


def target_in(
    cluster: Access,
    drawbridge: Drawbridge,
    namespace: str,
    accounts: Mapping[str, tuple[str, str]],
    **fields: Any,
) -> Target:
    """Return the facts that attackers know of a cluster now.

    Args:
        namespace: The namespace that users have their rights in.
        accounts: Name of a user to namespace and name of the account.
        fields: More fields of the target.
    """
    config = drawbridge.client_config()
    return Target(
        server=cluster.entry()["server"],
        authority=_decoded(cluster.entry()["certificate-authority-data"]),
        tokens={who: cluster.token(*account) for who, account in accounts.items()},
        namespace=namespace,
        webhook=drawbridge.url(""),
        webhook_authority=_decoded(config["caBundle"]),
        stolen_path=urlsplit(config["url"]).path,
        **fields,
    )


class Caller:
    """A connection that stays open, `with ... as caller`; it is opened anew if it was lost."""

    def __init__(
        self, url: str, authority: str, *, token: str = "", files: tuple[str, str] | None = None
    ) -> None:
        """Connect with the first request.

        Args:
            authority: PEM.
            token: The caller's token; empty for nobody.
            files: Certificate and key of the one who asks.
        """
        address = urlsplit(url)
        context = ssl.create_default_context(cadata=authority)
        if files is not None:
            context.load_cert_chain(*files)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=TIMEOUT_S, context=context
        )
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, bytes]:
        """Return status and body of an answer; 0 and the reason if there is none."""
        data = None if body is None else json.dumps(body).encode()
        was_open = self._connection.sock is not None
        try:
            try:
                return self._ask(method, path, data, headers)
            except (ConnectionError, ssl.SSLError):
                if not was_open:
                    raise
                # Servers close connections on which nothing was sent for a while.
                self._connection.close()
                return self._ask(method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            with suppress(OSError):
                self._connection.close()
            return 0, repr(error).encode()

    def _ask(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        self._connection.request(method, path, body=data, headers={**self._headers, **headers})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def post(self, path: str, body: object) -> int:
        """Return the status of an answer; 0 if there is none."""
        return self.request("POST", path, body)[0]

    def patch(self, path: str, body: object) -> int:
        """Return the status of the answer to a merge patch; 0 if there is none."""
        content = {"Content-Type": "application/merge-patch+json"}
        return self.request("PATCH", path, body, **content)[0]


def _decoded(content: str) -> str:
    return base64.b64decode(content).decode()


def text(chance: random.Random, length: int) -> str:
    """Return letters that nobody sent before."""
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=length))


def claim(name: str, device_class: str, *requests: list[str]) -> dict[str, Any]:
    """Return a claim of several requests, each with its selectors."""
    return api_object(
        "ResourceClaim",
        name,
        spec={
            "devices": {
                "requests": [
                    {
                        "name": f"r{number}",
                        "exactly": {
                            "deviceClassName": device_class,
                            "selectors": [
                                {"cel": {"expression": expression}} for expression in selectors
                            ],
                        },
                    }
                    for number, selectors in enumerate(requests)
                ]
            }
        },
    )
