"""Attackers with stolen credentials act within the roles of their accounts, and not beyond."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from e2e.attackers import compromised
from e2e.attackers.flood import ATTACKERS
from e2e.attackers.target import Caller, Target
from kube.names import BRIDGE_ACCOUNT

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("base", "bridge", "observer")
METHODS: Final = {"POST": "create", "PATCH": "patch"}
REQUESTS: Final = 12
"""A number of requests that shows each kind of an attacker's more than once."""

Attack = Callable[[Target, random.Random], Iterator[int]]


class Request(NamedTuple):
    """A request as a rule of RBAC sees it."""

    verb: str
    group: str
    resource: str
    name: str


class RecordingCaller(Caller):
    """Takes note of requests instead of sending them."""

    def __init__(self, who: str, requests: list[tuple[str, Request, object]]) -> None:
        super().__init__("https://127.0.0.1:1", "")
        self._who = who
        self._requests = requests

    def request(
        self, method: str, path: str, body: object = None, **_headers: str
    ) -> tuple[int, bytes]:
        self._requests.append((self._who, parse_request(method, path), body))
        return 200, b""


class RecordingTarget(Target, frozen=True, kw_only=True):
    """A cluster that is asked nothing."""

    requests: list[tuple[str, Request, object]]

    def caller(self, who: str) -> Caller:
        return RecordingCaller(who, self.requests)


def parse_request(method: str, path: str) -> Request:
    """Return the object of a request; a list of one name counts for that name, as in RBAC."""
    url = urlsplit(path)
    parts = url.path.strip("/").split("/")
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    plural, name, subresource = (*parts, "", "")[:3]
    resource = f"{plural}/{subresource}" if subresource else plural
    _, _, selected_name = url.query.partition("fieldSelector=metadata.name%3D")
    verb = METHODS.get(method) or ("get" if name else "list")
    return Request(verb, group, resource, name or selected_name)


def target() -> RecordingTarget:
    return RecordingTarget(
        server="",
        authority="",
        tokens={},
        namespace="hostile",
        webhook="",
        webhook_authority="",
        stolen_path="",
        device_class="",
        driver="",
        mixed_class="",
        other_driver="",
        requests=[],
    )


def rules_of(account: str) -> Sequence[dict[str, Any]]:
    """Return the rules of the roles of an account."""
    texts = (
        path.read_text()
        for folder in FOLDERS
        for path in sorted(ROOT.glob(f"manifests/{folder}/*.yaml"))
    )
    documents = [
        document
        for text in texts
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if document
    ]
    return [
        rule
        for document in documents
        if document["kind"] in {"ClusterRole", "Role"} and document["metadata"]["name"] == account
        for rule in document["rules"]
    ]


def is_allowed(request: Request, rules: Sequence[dict[str, Any]]) -> bool:
    return any(
        request.group in rule.get("apiGroups", ())
        and request.resource in rule.get("resources", ())
        and request.verb in rule["verbs"]
        and request.name in rule.get("resourceNames", (request.name,))
        for rule in rules
    )


def requests_of(attack: Attack) -> list[tuple[str, Request, object]]:
    recorded = target()
    statuses = list(islice(attack(recorded, random.Random(1)), REQUESTS))
    assert statuses == [200] * REQUESTS
    return recorded.requests


PROCESSES: Final = {
    compromised.OBSERVER: compromised.observer,
    compromised.WEBHOOK: compromised.webhook,
    compromised.CONTROLLERS: compromised.controllers,
    compromised.CERTIFICATES: compromised.certificate_controller,
    BRIDGE_ACCOUNT: compromised.bridge,
}


@pytest.mark.parametrize("account", PROCESSES)
def test_it_does_what_its_roles_allow(account: str) -> None:
    rules = rules_of(account)
    assert rules, "the manifests have a role of this name"

    for who, request, _ in requests_of(PROCESSES[account]):
        assert who == account
        assert is_allowed(request, rules), f"{account} may not {request}"


@pytest.mark.parametrize("account", sorted(PROCESSES.keys() - {compromised.WEBHOOK}))
def test_it_writes_what_nobody_wrote_before(account: str) -> None:
    """Equal writes change nothing, so no watcher would hear of them."""
    written = [repr(body) for _, request, body in requests_of(PROCESSES[account]) if body]

    assert len(written) > 1
    assert len(written) == len(set(written))


def test_every_account_of_a_process_is_stolen() -> None:
    assert compromised.ACCOUNTS.keys() == PROCESSES.keys()
    attacks = {attacker.attack for attacker in ATTACKERS if attacker.who == "compromised"}
    assert attacks == {*PROCESSES.values(), compromised.node}
