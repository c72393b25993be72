"""Webhook configurations that are absent or changed are told, once, and not repaired."""

from collections.abc import AsyncIterator, Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from admission.webhook_configuration import (
    PODS_WEBHOOK,
    ROUTING_WEBHOOK,
    UPDATES_WEBHOOK,
    configuration,
    validating_configuration,
    webhook_rules,
)
from controllers.certificates.drift import find_differences
from controllers.certificates.drift_watch import REASON, ConfigurationWatch
from kube.api.urls import EVENTS, MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS
from kube.collections.backoff import Backoff
from kube.names import CONFIGURATION
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until
from translation.cluster.snapshot import Mode
from translation.reading.arbiter import VOCABULARIES

RULES: Final = webhook_rules(routes=True)
KNOWN: Final = tuple(VOCABULARIES.values())
EXPECTED: Final = configuration(KNOWN)


def stored(kind: Callable[[Any], Mapping[str, Any]] = configuration) -> Document:
    """Return a configuration as the API server has it when all is well."""
    document = deepcopy(dict(kind(VOCABULARIES.values())))
    for webhook in document["webhooks"]:
        webhook |= {"rules": RULES[webhook["name"]], "objectSelector": {}}
        webhook["clientConfig"]["caBundle"] = "Y2E="
    return document


class Row(NamedTuple):
    name: str
    change: Mapping[str, Any]
    want: str


ROWS: Final = (
    Row("failures are ignored", {"failurePolicy": "Ignore"}, "failurePolicy is Ignore, not Fail"),
    Row("no rules", {"rules": []}, "it has no rules, so nothing is sent to it"),
    Row("without CREATE", {"rules": [{**RULES[PODS_WEBHOOK][0], "operations": ["UPDATE"]}]},
        "its rules are not those of this version"),
    Row("no matchConditions", {"matchConditions": []},
        "matchConditions lack create-of-a-pod-with-devices"),
    Row("one more matchCondition",
        {"matchConditions": [*EXPECTED["webhooks"][0]["matchConditions"],
                             {"name": "never", "expression": "false"}]},
        "matchConditions have never"),
    Row("an expression that is never true",
        {"matchConditions": [{**EXPECTED["webhooks"][0]["matchConditions"][0], "expression": "false"},
                             *EXPECTED["webhooks"][0]["matchConditions"][1:]]},
        "the expression of the matchCondition create-of-a-pod-with-devices is not that of this version "
        "and these settings"),
    Row("the expressions of other vocabularies",
        {"matchConditions": configuration(KNOWN[:1])["webhooks"][0]["matchConditions"]},
        "the expression of the matchCondition create-of-a-pod-with-devices is not that of this version "
        "and these settings"),
    Row("only some objects", {"objectSelector": {"matchLabels": {"a": "b"}}}, "objectSelector is set"),
    Row("a longer wait", {"timeoutSeconds": 30}, "timeoutSeconds is 30, not 5"),
    Row("no second call", {"reinvocationPolicy": "Never"}, "reinvocationPolicy is Never, not IfNeeded"),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_changed_webhook_differs(row: Row) -> None:
    document = stored()
    document["webhooks"][0] |= row.change

    assert find_differences(document, EXPECTED, RULES) == tuple(
        f"{PODS_WEBHOOK}: {want}" for want in row.want.split("; ")
    )


def test_a_configuration_as_it_has_to_be_does_not_differ() -> None:
    validating = stored(validating_configuration)

    assert find_differences(stored(), EXPECTED, RULES) == ()
    assert find_differences(validating, validating_configuration(KNOWN), RULES) == ()


def test_what_is_absent_differs() -> None:
    without = {**stored(), "webhooks": None}

    assert find_differences(None, EXPECTED, RULES) == ("it does not exist",)
    assert find_differences(without, EXPECTED, RULES) == (
        f"{PODS_WEBHOOK} is missing",
        f"{ROUTING_WEBHOOK} is missing",
        f"{UPDATES_WEBHOOK} is missing",
    )


def test_the_configuration_of_another_mode_differs() -> None:
    differences = find_differences(stored(), configuration(KNOWN, mode=Mode.SHADOW), RULES)

    assert differences == (
        f"{PODS_WEBHOOK}: failurePolicy is Fail, not Ignore",
        f"{UPDATES_WEBHOOK}: failurePolicy is Fail, not Ignore",
    )


def test_routing_may_have_no_rules_while_no_driver_is_owned() -> None:
    document = stored()
    document["webhooks"][1]["rules"] = []

    assert find_differences(document, EXPECTED, RULES) == ()


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as fake_server:
        yield fake_server


async def test_a_difference_that_lasts_is_reported_once_and_so_is_its_end(
    server: FakeApiServer,
) -> None:
    time = [0.0]
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, stored())
    server.put(VALIDATING_WEBHOOK_CONFIGURATIONS, stored(validating_configuration))
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        watch = ConfigurationWatch(
            informers,
            recorder,
            CONFIGURATION,
            lambda: KNOWN,
            Backoff(initial_s=0.01, max_s=0.01),
            clock=lambda: time[0],
            grace_s=0.01,
        )
        loops = [informers.run, recorder.run, *(controller.run for controller in watch.controllers)]
        async with running(*loops):
            await until(lambda: server.watching == 2)
            server.remove(MUTATING_WEBHOOK_CONFIGURATIONS, CONFIGURATION, "")
            await until(lambda: watch.is_current() == {
                "MutatingWebhookConfiguration": False, "ValidatingWebhookConfiguration": True})  # fmt: skip
            assert not server.objects(EVENTS)
            time[0] = 1.0
            await until(lambda: bool(server.objects(EVENTS)))
            server.put(MUTATING_WEBHOOK_CONFIGURATIONS, stored())
            await until(lambda: all(watch.is_current().values()))

    (event,) = server.objects(EVENTS)
    assert (event["reason"], event["metadata"]["namespace"]) == (REASON, "default")
    assert event["note"] == "It differs from what Drawbridge needs: it does not exist."
    assert not [call for call in server.calls if call.method == "PATCH"]


async def test_exempt_namespaces_are_expected(server: FakeApiServer) -> None:
    exempt = ("team-a",)

    def put(namespaces: tuple[str, ...]) -> None:
        for resource, generate in (
            (MUTATING_WEBHOOK_CONFIGURATIONS, configuration),
            (VALIDATING_WEBHOOK_CONFIGURATIONS, validating_configuration),
        ):
            server.put(resource, stored(partial(generate, exempt=namespaces)))

    put(())
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        watch = ConfigurationWatch(
            informers,
            recorder,
            CONFIGURATION,
            lambda: KNOWN,
            Backoff(initial_s=0.01, max_s=0.01),
            exempt=exempt,
            grace_s=0.01,
        )
        loops = [informers.run, recorder.run, *(controller.run for controller in watch.controllers)]
        async with running(*loops):
            await until(lambda: list(watch.is_current().values()) == [False, False])
            put(exempt)
            await until(lambda: list(watch.is_current().values()) == [True, True])
