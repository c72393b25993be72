"""Each account has the rights for its process' work, and no others, as the API server itself says."""

import itertools
import json
from collections.abc import Iterable

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import CERTIFICATES, CONTROLLER, RIGHT_DENIED, WEBHOOK, Drawbridge
from e2e.objects import pod

Right = tuple[str, str, str, str]
"""API group, resource, name (empty for all) and verb."""

ELSEWHERE = "default"
READ = {"get", "list", "watch"}


def flat(rules: Iterable[Object]) -> set[Right]:
    """Each right on its own."""
    return {
        right
        for rule in rules
        if "resources" in rule
        for right in itertools.product(
            rule.get("apiGroups", [""]),
            rule["resources"],
            rule.get("resourceNames") or [""],
            rule["verbs"],
        )
    }


def rights(cluster: Access, account: tuple[str, str], namespace: str) -> set[Right]:
    """Return the rights of an account in a namespace, by a review that it makes of itself."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    stdout = cluster.kubectl(
        *("create", "--validate=false", "-f", "-", "-o", "json"),
        input=json.dumps(review),
        kubeconfig=cluster.kubeconfig_for(*account),
    ).stdout
    status = json.loads(stdout)["status"]
    assert not status["incomplete"]
    return flat(status["resourceRules"])


def granted(drawbridge: Drawbridge, kind: str, account: str) -> set[Right]:
    return flat(
        rule
        for object_ in drawbridge.applied()
        if object_["kind"] == kind and object_["metadata"]["name"] == account
        for rule in object_["rules"]
    )


@pytest.mark.parametrize("account", [WEBHOOK, CONTROLLER, CERTIFICATES])
def test_an_account_has_the_rights_of_its_manifest_and_those_of_everybody(
    cluster: Access, drawbridge: Drawbridge, account: str
) -> None:
    here, ours = drawbridge.namespace, (drawbridge.namespace, account)
    everybodys = rights(cluster, (here, "default"), here)
    everywhere = granted(drawbridge, "ClusterRole", account)

    assert rights(cluster, ours, ELSEWHERE) - everybodys == everywhere
    assert rights(cluster, ours, here) - everybodys == everywhere | granted(
        drawbridge, "Role", account
    )


def test_the_webhook_can_write_nothing(cluster: Access, drawbridge: Drawbridge) -> None:
    account = (drawbridge.namespace, WEBHOOK)
    for namespace in (drawbridge.namespace, ELSEWHERE):
        everybodys = rights(cluster, (drawbridge.namespace, "default"), namespace)
        own_rights = rights(cluster, account, namespace) - everybodys

        assert {verb for *_, verb in own_rights} <= READ


@pytest.mark.parametrize(
    ("account", "command"),
    [
        (WEBHOOK, "create --validate=false -f -"),
        (WEBHOOK, "get secrets -n kube-system"),
        (WEBHOOK, "get secrets -n drawbridge-system"),
        (WEBHOOK, "get pods"),
        (WEBHOOK, "delete mutatingwebhookconfiguration zz-drawbridge"),
        (WEBHOOK, "annotate secret -n drawbridge-system drawbridge-webhook-tls a=b"),
        (WEBHOOK, "get secret -n drawbridge-system drawbridge-ca"),
        (CONTROLLER, "create --validate=false -f -"),
        (CONTROLLER, "get secrets -n drawbridge-system"),
        (CONTROLLER, "get secret -n kube-system any"),
        (CONTROLLER, "delete mutatingwebhookconfiguration zz-drawbridge"),
        (CERTIFICATES, "get pods"),
        (CERTIFICATES, "get secrets -n drawbridge-system"),
        (CERTIFICATES, "get secret -n kube-system any"),
        (CERTIFICATES, "delete mutatingwebhookconfiguration zz-drawbridge"),
        (CERTIFICATES, "delete secret -n drawbridge-system drawbridge-ca"),
        (CERTIFICATES, "create token -n drawbridge-system drawbridge-webhook"),
        (CONTROLLER, "create clusterrolebinding more --clusterrole=cluster-admin --user=a"),
        (CONTROLLER, "create token -n drawbridge-system drawbridge-webhook"),
    ],
)
def test_what_a_stolen_token_is_not_good_for(
    cluster: Access, drawbridge: Drawbridge, account: str, command: str
) -> None:
    output = cluster.kubectl(
        *command.split(),
        input=stream(pod("any")),
        check=False,
        kubeconfig=cluster.kubeconfig_for(drawbridge.namespace, account),
    )

    assert output.returncode == 1
    assert "forbidden: User" in output.stderr


def test_nothing_that_they_need_was_forbidden(cluster: Access, drawbridge: Drawbridge) -> None:
    """After all that stories before this one had them do."""
    for name in (WEBHOOK, CONTROLLER, CERTIFICATES):
        assert RIGHT_DENIED not in drawbridge.log(name)
