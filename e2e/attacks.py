"""Attacks that several stories make: forged records, stolen tokens, callers without a key."""

import base64
import json
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from e2e.access import Access, Object, stream
from e2e.drawbridge import CERTIFICATES, Drawbridge
from kube.names import CONFIGURATION, REQUEST_ANNOTATION

MUTATING: Final = "mutatingwebhookconfigurations"
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"


def create(cluster: Access, namespace: str, document: Object, *flags: str) -> tuple[int, str]:
    """Exit status and words of `kubectl create`."""
    command = ("create", "-n", namespace, "-f", "-", *flags)
    output = cluster.kubectl(*command, input=stream(document), check=False)
    return output.returncode, output.stderr


def dry_run(cluster: Access, namespace: str, document: Object) -> Object:
    """The object as it would be created."""
    command = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
    shown: Object = json.loads(cluster.kubectl(*command, input=stream(document)).stdout)
    return shown


# --- forged records ---


class Forgery(NamedTuple):
    """A pod made of a translated one.

    Attributes:
        change: The change that its forger makes.
        words: Each stands in the refusal.
    """

    name: str
    change: Callable[[Object], None]
    words: tuple[str, ...]


def annotated(text: str) -> Callable[[Object], None]:
    def change(forged: Object) -> None:
        forged["metadata"]["annotations"][REQUEST_ANNOTATION] = text

    return change


def with_request(**fields: Any) -> Callable[[Object], None]:
    def change(forged: Object) -> None:
        request = json.loads(forged["metadata"]["annotations"][REQUEST_ANNOTATION])
        annotated(json.dumps({**request, **fields}))(forged)

    return change


def with_eight_gpus(forged: Object) -> None:
    with_request(containers=[{"name": "main", "limits": {GPU: "8", MEMORY: "3k"}}])(forged)


def with_own_template(forged: Object) -> None:
    (entry,) = forged["spec"]["resourceClaims"]
    entry["resourceClaimTemplateName"] = "everything"


def without_claims(forged: Object) -> None:
    del forged["spec"]["resourceClaims"]
    del forged["spec"]["containers"][0]["resources"]["claims"]


def without_use(forged: Object) -> None:
    del forged["spec"]["containers"][0]["resources"]["claims"]


def with_another_profile(forged: Object) -> None:
    request = json.loads(forged["metadata"]["annotations"][REQUEST_ANNOTATION])
    request["profiles"][0]["hash"] = "0" * 16
    annotated(json.dumps(request))(forged)


def with_keys(limits: Mapping[str, int]) -> Callable[[Object], None]:
    def change(forged: Object) -> None:
        forged["spec"]["containers"][0]["resources"]["limits"] = dict(limits)

    return change


def both(*changes: Callable[[Object], None]) -> Callable[[Object], None]:
    def change(forged: Object) -> None:
        for change in changes:
            change(forged)

    return change


PATH = f"metadata.annotations[{REQUEST_ANNOTATION}]"
FORGERIES = (
    Forgery("no JSON", annotated("please"), (f"{PATH}: ", "not what the webhook writes")),
    Forgery("an empty request", annotated("{}"), (f"{PATH}: ", "not what the webhook writes")),
    Forgery("a field that we do not write", with_request(spec={}), ("unknown field `spec`",)),
    Forgery(
        "a translation version of the future",
        with_request(translationVersion=99),
        ("translation version 99 is not supported",),
    ),
    Forgery("a profile that is not in force", with_another_profile, (f"{PATH}: ", "profile")),
    Forgery("more than the claims hold", with_eight_gpus, ("but the pod does not use it so",)),
    Forgery("a template of one's own", with_own_template, ("but the pod does not use it so",)),
    Forgery("no claims at all", without_claims, ("but the pod does not use it so",)),
    Forgery("a claim that no container uses", without_use, ("but the pod does not use it so",)),
    Forgery(
        "keys, and no claims",
        both(without_claims, with_keys({GPU: 1, MEMORY: 3000})),
        ("but the pod does not use it so",),
    ),
    Forgery(
        "keys beside claims of more",
        both(with_eight_gpus, with_keys({GPU: 1, MEMORY: 3000})),
        ("but the pod does not use it so",),
    ),
    Forgery(
        "keys of more beside good claims",
        with_keys({GPU: 8, MEMORY: 3000}),
        ("a pod's devices cannot change after its creation: recorded 1, found 8",),
    ),
)


def forgeable(translated: Object) -> Object:
    """Return a translated pod as a forger writes it again, under the name `forged`."""
    return {
        **{field: translated[field] for field in ("apiVersion", "kind", "spec")},
        "metadata": {"name": "forged", "annotations": translated["metadata"]["annotations"]},
    }


# --- stolen tokens ---


def attempt(
    cluster: Access, drawbridge: Drawbridge, account: str, *words: str, **options: Any
) -> str:
    """Run kubectl with the token of an account; return the reason of a refusal, empty without one."""
    output = cluster.kubectl(
        *words,
        check=False,
        kubeconfig=cluster.kubeconfig_for(drawbridge.namespace, account),
        **options,
    )
    return str(output.stderr) if output.returncode else ""


def patched(cluster: Access, drawbridge: Drawbridge, steps: list[Object]) -> tuple[int, str]:
    """Patch our configuration as drawbridge-certificates; that account may not read it by name.

    Returns:
        Status and body of the response.
    """
    entry = cluster.entry()
    authority = base64.b64decode(entry["certificate-authority-data"]).decode()
    request = urllib.request.Request(
        f"{entry['server']}/apis/admissionregistration.k8s.io/v1/{MUTATING}/{CONFIGURATION}",
        data=json.dumps(steps).encode(),
        method="PATCH",
        headers={
            "Authorization": f"Bearer {cluster.token(drawbridge.namespace, CERTIFICATES)}",
            "Content-Type": "application/json-patch+json",
        },
    )
    context = ssl.create_default_context(cadata=authority)
    try:
        with urllib.request.urlopen(request, context=context) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class ConfigurationChange(NamedTuple):
    """A change of the first webhook of the MutatingWebhookConfiguration."""

    name: str
    path: str
    value: Any


EVERYTHING: Final = [
    {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
]
CONFIGURATION_CHANGES: Final = (
    ConfigurationChange("be asked about everything", "/webhooks/0/rules", EVERYTHING),
    ConfigurationChange("be asked about nothing", "/webhooks/0/rules", []),
    ConfigurationChange("have others asked", "/webhooks/0/clientConfig/url", "https://attacker.example/x"),
    ConfigurationChange("have others asked behind a key", "/webhooks/0/clientConfig/url",
        f"https://attacker.example/mutate/{'a' * 32}"),
    ConfigurationChange("have another path asked behind a key", "/webhooks/0/clientConfig/url",
        f"https://127.0.0.1:1/other/{'a' * 32}"),
    ConfigurationChange("have another path asked", "/webhooks/0/clientConfig/url", "https://127.0.0.1:1/other"),
    ConfigurationChange("look into every namespace", "/webhooks/0/namespaceSelector", {}),
    ConfigurationChange("look into no namespace", "/webhooks/0/objectSelector", {"matchLabels": {"a": "b"}}),
    ConfigurationChange("see pods without device keys", "/webhooks/0/matchConditions", []),
    ConfigurationChange("let pods pass unseen", "/webhooks/0/failurePolicy", "Ignore"),
    ConfigurationChange("hold up every pod", "/webhooks/0/timeoutSeconds", 30),
    ConfigurationChange("be asked again", "/webhooks/0/reinvocationPolicy", "Never"),
    ConfigurationChange("have cert-manager write", "/metadata/annotations", {"cert-manager.io/inject-ca-from": "a/b"}),
    ConfigurationChange("stay when it is deleted", "/metadata/finalizers", ["attacker.example/stay"]),
    ConfigurationChange("go when something goes", "/metadata/ownerReferences", [
        {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}]),
)  # fmt: skip


# --- callers without a key ---


def raw_answer(drawbridge: Drawbridge, request: bytes) -> bytes:
    """Return every byte of the response to a request, but for its date."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    address = (drawbridge.endpoints.host, drawbridge.endpoints.webhook)
    with (
        socket.create_connection(address, timeout=60) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(request)
        received = b""
        while piece := connection.recv(2**16):
            received += piece
    return re.sub(rb"Date: [^\r]*", b"Date:", received)
