"""The certificates in their Secrets, and caBundles and rules in the configurations."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec
import pytest

from admission.webhook_configuration import (
    PODS_WEBHOOK,
    ROUTING_WEBHOOK,
    UPDATES_WEBHOOK,
    validating_configuration,
    webhook_rules,
)
from admission.webhook_configuration import (
    configuration as generated_configuration,
)
from certs.authority import Authority, CertificateError
from certs.rotation import Authorities, decode_authorities
from certs.serving import Listener, ServingCertificate, issue_serving_certificate
from controllers.certificates.__main__ import build_collectors
from controllers.certificates.controller import CertificateController
from controllers.certificates.drift_watch import ConfigurationWatch
from controllers.certificates.endpoint_check import check_endpoint
from controllers.certificates.metrics import (
    CertificateAuthorityCollector,
    ConfigurationCollector,
)
from controllers.certificates.patches import (
    Conditions,
    authority_document,
    ca_bundle_patch,
    conditions_patch,
    lacks_rules,
    rules_patch,
    serving_document,
)
from controllers.certificates.path_keys import PATHS
from controllers.certificates.serving import needs_renewal, seconds_to_check
from controllers.certificates.settings import CertificateControllerSettings, Settings
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    SECRETS,
    WEBHOOK_CONFIGURATIONS,
)
from kube.collections.backoff import Backoff
from kube.names import ROTATE_ANNOTATION
from process.certificates.certificates import (
    CertificateSettings,
    RegisteredWebhook,
    Secret,
    decode_serving_certificate,
    project_webhooks,
)
from process.certificates.webhook_paths import PathKey
from process.model.durations import PositiveDuration
from testing.documents import Document
from testing.fake_api_server import (
    FakeApiServer,
    quick_informers,
    quick_recorder,
    running,
    until,
)
from testing.webhook_paths import path_secret
from translation.reading.arbiter import VOCABULARIES, extended_vocabularies

NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
SETTINGS: Final = Settings(
    certificates=CertificateSettings(resync_period=PositiveDuration(0.02)),
    certificate_controller=CertificateControllerSettings(
        initial_backoff=PositiveDuration(0.01),
        max_backoff=PositiveDuration(0.02),
        endpoint_check_period=PositiveDuration(0.01),
    ),
)
CERTIFICATES: Final = SETTINGS.certificates
AUTHORITY: Final = Authority.create("test", now=NOW, life=100 * DAY)
BUNDLE: Final = AUTHORITY.certificate_pem
TRUSTED: Final = b64encode(BUNDLE).decode()
TRUST: Final = Authorities(
    signer=AUTHORITY, trusted=(AUTHORITY.certificate,), signing_since=NOW - timedelta(minutes=1)
)


def now() -> datetime:
    return NOW


def configuration(*bundles: str | None) -> Document:
    """A configuration with webhooks that have these caBundles."""
    return {
        "metadata": {"name": CERTIFICATES.webhook_configuration},
        "webhooks": [
            {
                "name": f"{number}.example.internal",
                "clientConfig": {"url": "https://127.0.0.1"}
                | ({} if bundle is None else {"caBundle": bundle}),
            }
            for number, bundle in enumerate(bundles)
        ],
    }


def bundles(document: Document | None) -> list[str | None]:
    return [webhook["clientConfig"].get("caBundle") for webhook in (document or {})["webhooks"]]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as fake_server:
        yield fake_server


def written(server: FakeApiServer) -> Document | None:
    return server.find(MUTATING_WEBHOOK_CONFIGURATIONS, CERTIFICATES.webhook_configuration)


def secret(server: FakeApiServer) -> Document | None:
    return server.find(SECRETS, CERTIFICATES.authority_secret, SETTINGS.namespace)


def stored(server: FakeApiServer) -> Authorities:
    stored_secret = secret(server)
    return (
        decode_authorities(msgspec.convert(stored_secret, Secret).values())[0]
        if stored_secret
        else Authorities()
    )


def event_notes(server: FakeApiServer) -> list[str | None]:
    """Return the caBundle that the Secret asks for, as often as there are webhooks."""
    return [b64encode(stored(server).ca_bundle).decode()] * len(bundles(written(server)))


def serving(server: FakeApiServer) -> ServingCertificate | None:
    """Return the certificate that the webhook gets."""
    stored_secret = server.find(SECRETS, CERTIFICATES.serving_secret, SETTINGS.namespace)
    return (
        decode_serving_certificate(msgspec.convert(stored_secret, Secret))
        if stored_secret
        else None
    )


def signer_of_webhook(server: FakeApiServer) -> bytes | None:
    """Return the certificate of the authority that signed for the webhook, as PEM."""
    certificate = serving(server)
    return certificate.authority if certificate else None


def issued(
    authority: Authority = AUTHORITY, names: tuple[str, ...] = (), life: timedelta = 7 * DAY
) -> ServingCertificate:
    names = names or CERTIFICATES.names(SETTINGS.namespace)
    return issue_serving_certificate(authority, names, now=NOW, life=life)


def put_serving(server: FakeApiServer, certificate: ServingCertificate, **fields: Any) -> None:
    document = msgspec.to_builtins(
        serving_document(
            certificate, namespace=SETTINGS.namespace, name=CERTIFICATES.serving_secret
        )
    )
    server.put(SECRETS, document | fields)


def put_path_keys(server: FakeApiServer) -> None:
    keys = (
        PathKey(path=path, created=NOW, key=f"{number}" * 32) for path in PATHS for number in (0, 1)
    )
    server.put(SECRETS, path_secret(*keys))


def put(server: FakeApiServer, trust: Authorities, **metadata: Any) -> None:
    document = msgspec.to_builtins(
        authority_document(trust, namespace=SETTINGS.namespace, name=CERTIFICATES.authority_secret)
    )
    document["metadata"] |= metadata
    server.put(SECRETS, document)


# --- the patch ------------------------------------------------------------------------------------


class Row(NamedTuple):
    name: str
    before: tuple[str | None, ...]
    steps: int


ROWS = (
    Row("nobody is trusted yet", (None,), 2),
    Row("somebody else is trusted", ("b3RoZXI=",), 2),
    Row("we are trusted", (TRUSTED,), 0),
    Row("one of two webhooks trusts us", (TRUSTED, None), 2),
    Row("a configuration without webhooks", (), 0),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_ca_bundle_patch(row: Row) -> None:
    document = configuration(*row.before)
    steps = ca_bundle_patch(project_webhooks(msgspec.json.encode(document)), BUNDLE)

    assert row.steps == len(steps)
    assert [TRUSTED] * len(row.before) == bundles(jsonpatch.apply_patch(document, steps))


def test_a_list_that_changed_in_between_is_not_damaged() -> None:
    steps = ca_bundle_patch(project_webhooks(msgspec.json.encode(configuration(None))), BUNDLE)
    changed = configuration(None)
    changed["webhooks"][0]["name"] = "other.example.internal"

    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(changed, steps)


# --- the Secret -----------------------------------------------------------------------------------


class Clock:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def keeping(
    server: FakeApiServer,
    clock: Callable[[], datetime] = now,
    *,
    settings: Settings = SETTINGS,
    answers: Callable[[], bool] = lambda: True,
    server_clock: Callable[[], datetime] | None = None,
    conditions: Callable[[], Conditions] = dict,
) -> AsyncIterator[CertificateController]:
    server.now = server_clock or clock

    async def check(_webhook: RegisteredWebhook) -> str:
        return "" if answers() else "nobody answers"

    async with server.client() as client:
        informers = quick_informers(client)
        keeper = CertificateController(
            client, informers, settings, clock, check, conditions=conditions
        )
        async with running(informers.run, *(controller.run for controller in keeper.controllers)):
            yield keeper


async def wait_reconciled(server: FakeApiServer) -> None:
    """Wait until the keeper knows that it has written the server's content."""
    before = server.counts["GET"]
    await until(lambda: server.counts["GET"] > before + 1)


async def test_the_first_authority_signs_and_is_trusted_at_once(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server) as trust:
        await until(lambda: bundles(written(server)) == event_notes(server))
        await until(trust.is_published)

    life = timedelta(seconds=CERTIFICATES.authority_duration)
    serving_life = timedelta(seconds=CERTIFICATES.serving_duration)
    assert trust.not_after() == {"ca": NOW + life, "serving": NOW + serving_life}
    assert signer_of_webhook(server) == stored(server).ca_bundle
    assert trust.trusted_count() == 1
    stored_secret = secret(server) or {}
    assert stored_secret["metadata"]["labels"] == {"app.kubernetes.io/name": "drawbridge"}


async def test_what_is_in_good_order_is_not_written(server: FakeApiServer) -> None:
    put(server, TRUST)
    put_serving(server, issued())
    put_path_keys(server)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED, TRUSTED))
    async with keeping(server):
        await until(lambda: server.counts["GET"] > 10)

    assert {"GET", "WATCH"} == set(server.counts)


async def test_a_rotation_takes_three_steps_and_leaves_one_authority(
    server: FakeApiServer,
) -> None:
    put(server, TRUST)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock, control = Clock(), CERTIFICATES
    async with keeping(server, clock):
        clock.now = NOW + 70 * DAY  # Of a hundred.
        await until(lambda: len(stored(server).trusted) == 2)
        await until(lambda: bundles(written(server)) == event_notes(server))
        await wait_reconciled(server)
        successor = stored(server).successor
        assert signer_of_webhook(server) == AUTHORITY.certificate_pem

        clock.now += timedelta(seconds=control.authority_publish_period)
        await until(lambda: stored(server).successor is None)
        await wait_reconciled(server)
        assert successor is not None
        assert signer_of_webhook(server) == successor.certificate_pem
        assert AUTHORITY.certificate in stored(server).trusted

        clock.now += timedelta(seconds=CERTIFICATES.serving_duration) + DAY
        await until(lambda: stored(server).trusted == (successor.certificate,))
        await until(lambda: bundles(written(server)) == event_notes(server))
        await wait_reconciled(server)

    # Three of the authorities, two of the configuration, two of the serving certificate, one of the
    # path keys.
    assert server.counts["PATCH"] == 8


async def test_who_asks_gets_one_new_authority(server: FakeApiServer) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: "", "team": "blue"})
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    async with keeping(server):
        await until(lambda: len(stored(server).trusted) == 2)
        await until(lambda: bundles(written(server)) == event_notes(server))

    assert (secret(server) or {})["metadata"]["annotations"] == {"team": "blue"}


async def test_a_successor_that_could_not_be_told_does_not_sign(server: FakeApiServer) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: ""})
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    is_configuration = "mutatingwebhookconfigurations/"
    server.fail(
        403,
        times=10**6,
        matches=lambda call: call.method == "PATCH" and is_configuration in call.path,
    )
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: stored(server).successor is not None)
        clock.now += DAY
        before = server.counts["GET"]
        await until(lambda: server.counts["GET"] > before + 5)

    assert stored(server).successor is not None


async def test_a_secret_that_was_deleted_leaves_served_leaves_trusted(
    server: FakeApiServer,
) -> None:
    put(server, TRUST)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: server.counts["GET"] > 3)
        server.remove(SECRETS, CERTIFICATES.authority_secret, SETTINGS.namespace)
        await until(lambda: stored(server).successor is not None)
        await until(lambda: bundles(written(server)) == event_notes(server))
        assert AUTHORITY.certificate in stored(server).trusted
        assert stored(server).signer is None
        await wait_reconciled(server)

        clock.now += timedelta(seconds=CERTIFICATES.authority_expedited_publish_period)
        await until(lambda: stored(server).signer is not None)

    assert AUTHORITY.certificate in stored(server).trusted


@pytest.mark.parametrize(
    "data",
    [None, {}, {"ca.crt": "", "ca.key": ""}, {"ca.crt": "%", "ca.key": "%", "bundle.crt": "%"}],
    ids=["no data", "nothing", "empty texts", "no base64"],
)
async def test_a_secret_of_ours_that_was_damaged_is_made_good(
    server: FakeApiServer, data: dict[str, str] | None
) -> None:
    server.put(
        SECRETS,
        {
            **authority_document(
                TRUST, namespace=SETTINGS.namespace, name=CERTIFICATES.authority_secret
            ),
            "data": data,
        },
    )
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: stored(server).successor is not None)
        await until(lambda: bundles(written(server)) == event_notes(server))
        await wait_reconciled(server)
        clock.now += DAY
        await until(lambda: stored(server).signer is not None)

    assert AUTHORITY.certificate in stored(server).trusted


async def test_a_secret_of_somebody_else_is_used_and_not_changed(server: FakeApiServer) -> None:
    put(server, TRUST, labels={}, annotations={ROTATE_ANNOTATION: ""})
    before = secret(server)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server):
        await until(lambda: bundles(written(server)) == [TRUSTED])

    assert before == secret(server)


async def test_a_secret_of_somebody_else_without_an_authority_is_left_alone(
    server: FakeApiServer,
) -> None:
    put(server, Authorities(), labels={})
    before = secret(server)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    async with keeping(server):
        await until(lambda: server.counts["GET"] > 5)

    assert before == secret(server)
    assert bundles(written(server)) == [TRUSTED]


async def test_of_two_that_write_one_does(server: FakeApiServer) -> None:
    """A leader that does not know yet that it is none any more loses, and reads again."""
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server) as first, keeping(server) as second:
        await until(lambda: first.trusted_count() == second.trusted_count() == 1)
        await until(lambda: first.is_published() and second.is_published())
        await until(lambda: first.not_after() == second.not_after())

    assert len(stored(server).trusted) == 1


async def test_an_older_copy_of_the_secret_is_published_before_it_signs(
    server: FakeApiServer,
) -> None:
    served = b64encode(OTHER.certificate_pem).decode()
    put(server, TRUST)
    put_serving(server, issued(OTHER))
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(served))
    clock = Clock()
    async with keeping(server, clock) as keeper:
        await until(lambda: stored(server).trusted == (OTHER.certificate, AUTHORITY.certificate))
        await until(keeper.is_published)
        await wait_reconciled(server)
        assert signer_of_webhook(server) == OTHER.certificate_pem

        clock.now += timedelta(seconds=CERTIFICATES.authority_expedited_publish_period)
        await until(lambda: signer_of_webhook(server) == AUTHORITY.certificate_pem)
        assert OTHER.certificate in stored(server).trusted


def deny_repairs(server: FakeApiServer) -> list[str]:
    """Deny writes of configurations while the returned list has an element."""
    locks: list[str] = []
    server.fail(
        403,
        times=10**6,
        matches=lambda call: (
            bool(locks) and call.method == "PATCH" and "webhookconfigurations/" in call.path
        ),
    )
    return locks


async def test_a_successor_waits_again_after_somebody_applied_an_older_bundle(
    server: FakeApiServer,
) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: ""})
    put_serving(server, issued())
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock, second = Clock(), timedelta(seconds=1)
    propagation = timedelta(seconds=CERTIFICATES.authority_publish_period)
    async with keeping(server, clock):
        await until(lambda: len(stored(server).trusted) == 2)
        await until(lambda: bundles(written(server)) == event_notes(server))
        await wait_reconciled(server)
        clock.now += propagation - second
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
        await until(lambda: bundles(written(server)) == event_notes(server))
        await wait_reconciled(server)

        clock.now += propagation - second
        await wait_reconciled(server)
        await wait_reconciled(server)
        assert stored(server).successor is not None
        assert signer_of_webhook(server) == AUTHORITY.certificate_pem

        clock.now += second
        await until(lambda: stored(server).successor is None)


async def test_an_older_bundle_applied_after_the_wait_lets_no_successor_sign(
    server: FakeApiServer,
) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: ""})
    put_serving(server, issued())
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock, locks = Clock(), deny_repairs(server)
    async with keeping(server, clock) as keeper:
        await until(lambda: len(stored(server).trusted) == 2)
        await until(lambda: bundles(written(server)) == event_notes(server))
        await wait_reconciled(server)
        locks.append("configuration")
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
        await until(lambda: not keeper.is_published())
        clock.now += timedelta(seconds=CERTIFICATES.authority_publish_period)
        await wait_reconciled(server)
        await wait_reconciled(server)
        locks.clear()
        await until(lambda: bundles(written(server)) == event_notes(server))
        await wait_reconciled(server)

    assert stored(server).successor is not None
    assert signer_of_webhook(server) == AUTHORITY.certificate_pem


async def test_a_signer_that_is_lost_from_the_bundles_signs_again_once_it_is_back(
    server: FakeApiServer,
) -> None:
    """The serving certificate is of an administrator, and so is the bundle that is applied again."""
    both = (OTHER.certificate, AUTHORITY.certificate)
    applied = b64encode(OTHER.certificate_pem).decode()
    put(server, Authorities(signer=AUTHORITY, trusted=both, signing_since=NOW))
    put_serving(server, issued(OTHER), metadata={
        "name": CERTIFICATES.serving_secret, "namespace": SETTINGS.namespace})  # fmt: skip
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(applied))
    clock, locks = Clock(), deny_repairs(server)
    wait = timedelta(seconds=CERTIFICATES.authority_expedited_publish_period)
    async with keeping(server, clock):
        for _ in range(2):
            await until(lambda: bundles(written(server)) == event_notes(server))
            await wait_reconciled(server)
            clock.now += wait
            await until(lambda: stored(server).signer is not None)
            clock.now += wait
            await wait_reconciled(server)
            locks.append("configuration")
            server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(applied))
            await until(lambda: stored(server).signer is None)
            locks.clear()

    assert stored(server).trusted == both
    assert signer_of_webhook(server) == OTHER.certificate_pem


# --- clocks ---------------------------------------------------------------------------------------


async def test_an_authority_of_a_clock_that_was_ahead_is_replaced(server: FakeApiServer) -> None:
    ahead = Authority.create("test", now=NOW + 6 * HOUR, life=100 * DAY)
    put(server, Authorities(signer=ahead, trusted=(ahead.certificate,), signing_since=NOW))
    bundle = b64encode(ahead.certificate_pem).decode()
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(bundle))
    async with keeping(server):
        await until(lambda: signer_of_webhook(server) not in {None, ahead.certificate_pem})
        await until(lambda: bundles(written(server)) == event_notes(server))

    signer = stored(server).signer
    assert signer is not None
    assert stored(server).trusted == (signer.certificate,)
    assert signer.certificate.not_valid_before_utc <= NOW


@pytest.mark.parametrize("error", [400 * DAY, 70 * DAY, -400 * DAY, 2 * HOUR], ids=str)
async def test_a_leader_whose_clock_is_wrong_throws_nothing_away_until_it_is_right(
    server: FakeApiServer, error: timedelta
) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: ""})
    put_serving(server, issued())
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    before, certificate = secret(server), serving(server)
    clock = Clock()
    clock.now = NOW + error
    async with keeping(server, clock, server_clock=now) as keeper:
        await until(lambda: bundles(written(server)) == [TRUSTED])
        await wait_reconciled(server)
        assert (secret(server), serving(server)) == (before, certificate)
        assert keeper.clock_skew() == error

        clock.now = NOW
        await until(lambda: stored(server).successor is not None)

    assert AUTHORITY.certificate in stored(server).trusted


async def test_a_jump_of_less_than_certificates_are_backdated_lets_no_successor_sign_early(
    server: FakeApiServer,
) -> None:
    put(server, TRUST, annotations={ROTATE_ANNOTATION: ""})
    put_serving(server, issued())
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    clock = Clock()
    async with keeping(server, clock, server_clock=now) as keeper:
        await until(lambda: stored(server).successor is not None)
        await until(keeper.is_published)
        clock.now = NOW + timedelta(minutes=50)
        await until(lambda: keeper.clock_skew() == timedelta(minutes=50))
        await wait_reconciled(server)
        await wait_reconciled(server)

    signer = stored(server).signer
    assert signer is not None
    assert signer.certificate == AUTHORITY.certificate
    assert signer_of_webhook(server) == AUTHORITY.certificate_pem


async def test_a_clock_that_is_set_back_after_it_was_compared_decides_nothing(
    server: FakeApiServer,
) -> None:
    put(server, TRUST)
    put_serving(server, issued())
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    before, certificate = secret(server), serving(server)
    readings = chain([NOW], repeat(NOW - 2 * HOUR))
    async with keeping(server, lambda: next(readings), server_clock=now) as keeper:
        await until(lambda: keeper.clock_skew() == -2 * HOUR)
        await wait_reconciled(server)
    assert (secret(server), serving(server)) == (before, certificate)


async def test_a_leader_whose_clock_is_wrong_creates_no_authority(server: FakeApiServer) -> None:
    clock = Clock()
    clock.now = NOW + 400 * DAY
    async with keeping(server, clock, server_clock=now):
        await until(lambda: server.counts["GET"] > 5)
        assert secret(server) is None
        clock.now = NOW
        await until(lambda: serving(server) is not None)


# --- the serving certificate ----------------------------------------------------------------------


class Renewal(NamedTuple):
    name: str
    want: bool
    later: timedelta = timedelta()
    signer: Authority = AUTHORITY
    names: tuple[str, ...] = ("a.example", "10.0.0.1")


OTHER: Final = Authority.create("test", now=NOW, life=100 * DAY)
RENEWALS: Final = (
    Renewal("a fresh certificate", want=False),
    Renewal("before two thirds of its life", want=False, later=1.9 * DAY),
    Renewal("after two thirds of its life", want=True, later=2.1 * DAY),
    Renewal("the authority is another one", want=True, signer=OTHER),
    Renewal("a name is missing", want=True, names=("a.example", "b.example")),
    Renewal("not valid yet", want=True, later=-2 * timedelta(hours=1)),
)


@pytest.mark.parametrize("row", RENEWALS, ids=lambda row: row.name)
def test_needs_renewal(row: Renewal) -> None:
    certificate = issued(names=("a.example", "10.0.0.1"), life=3 * DAY)

    assert row.want == needs_renewal(certificate, row.signer, row.names, NOW + row.later, 2 / 3)


async def test_a_certificate_is_renewed_when_it_is_due(server: FakeApiServer) -> None:
    put(server, TRUST)
    clock = Clock()
    async with keeping(server, clock):
        await until(lambda: serving(server) is not None)
        first = serving(server)
        clock.now += timedelta(seconds=CERTIFICATES.serving_duration) * 0.7
        await until(lambda: serving(server) != first)

    assert signer_of_webhook(server) == AUTHORITY.certificate_pem


@pytest.mark.parametrize(
    ("later_s", "seconds"),
    [(0, 20), (10, 10), (19, 1), (20, 60), (40, 60)],
    ids=["now", "half way", "just before", "due", "expired"],
)
def test_a_certificate_is_looked_at_when_it_is_due(later_s: float, seconds: float) -> None:
    certificate = issued(life=timedelta(seconds=30))
    then = NOW + timedelta(seconds=later_s)

    assert seconds_to_check(certificate, then, 2 / 3, 60) == pytest.approx(seconds)
    assert seconds_to_check(certificate, then, 2 / 3, 0.5) == 0.5
    assert seconds_to_check(None, then, 2 / 3, 60) == 60


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": "%", "tls.key": "%"}])
async def test_a_damaged_certificate_is_replaced(server: FakeApiServer, data: Any) -> None:
    put(server, TRUST)
    put_serving(server, issued(), data=data)
    async with keeping(server):
        await until(lambda: readable(server))

    assert signer_of_webhook(server) == AUTHORITY.certificate_pem


def readable(server: FakeApiServer) -> bool:
    try:
        return serving(server) is not None
    except CertificateError:
        return False


async def test_a_certificate_of_somebody_else_is_not_changed(server: FakeApiServer) -> None:
    put(server, TRUST)
    put_serving(server, issued(OTHER), metadata={
        "name": CERTIFICATES.serving_secret, "namespace": SETTINGS.namespace})  # fmt: skip
    async with keeping(server):
        await until(lambda: server.counts["GET"] > 8)

    assert signer_of_webhook(server) == OTHER.certificate_pem


async def test_a_secret_of_another_type_is_not_changed(server: FakeApiServer) -> None:
    put(server, TRUST)
    put_serving(server, issued(OTHER), type="Opaque")
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(TRUSTED))
    async with keeping(server) as keeper:
        (controller,) = keeper.controllers
        await until(lambda: controller.queue.retried > 0)

    assert signer_of_webhook(server) == OTHER.certificate_pem


# --- the rules ------------------------------------------------------------------------------------

RULES: Final = webhook_rules(routes=False)
FILLED: Final = {name: rules or None for name, rules in RULES.items()}
"""The rules as they are stored; the webhook that routes has none while no driver is owned."""


def put_generated(server: FakeApiServer) -> None:
    """Apply both configurations as the manifests have them."""
    for resource, document in zip(
        WEBHOOK_CONFIGURATIONS,
        (generated_configuration(VOCABULARIES.values()), validating_configuration([])),
        strict=True,
    ):
        server.put(resource, dict(document))


def rules_of(server: FakeApiServer) -> dict[str, Any]:
    return {
        webhook["name"]: webhook.get("rules")
        for resource in WEBHOOK_CONFIGURATIONS
        for webhook in (server.find(resource, CERTIFICATES.webhook_configuration) or {})["webhooks"]
    }


async def test_rules_are_filled_in_once_the_webhook_answers(server: FakeApiServer) -> None:
    put_generated(server)
    up: list[bool] = []
    async with keeping(server, answers=lambda: bool(up)):
        await until(lambda: serving(server) is not None)
        before = server.counts["GET"]
        await until(lambda: server.counts["GET"] > before + 6)
        assert set(rules_of(server).values()) == {None}
        up.append(True)
        await until(lambda: rules_of(server) == FILLED)


async def test_pods_are_routed_while_the_bridge_owns_a_driver(server: FakeApiServer) -> None:
    put_generated(server)
    routes = webhook_rules(routes=True)[ROUTING_WEBHOOK]
    up = [True]
    async with keeping(server, answers=lambda: bool(up)):
        await until(lambda: rules_of(server) == FILLED)
        own(server, "gpu.nvidia.com")
        await until(lambda: rules_of(server) == {**FILLED, ROUTING_WEBHOOK: routes})
        up.clear()  # To route nothing, the webhook need not answer.
        own(server)
        await until(lambda: rules_of(server) == {**FILLED, ROUTING_WEBHOOK: []})


async def test_an_ownership_of_another_name_routes_nothing(server: FakeApiServer) -> None:
    put_generated(server)
    own(server, "gpu.nvidia.com", name="stray")
    async with keeping(server):
        await until(lambda: rules_of(server) == FILLED)


def own(server: FakeApiServer, *drivers: str, name: str = "default") -> None:
    spec = {"drivers": [{"name": driver} for driver in drivers]}
    server.put(ALLOCATOR_OWNERSHIPS, {"metadata": {"name": name}, "spec": spec})


async def test_no_configuration_is_created(server: FakeApiServer) -> None:
    async with keeping(server):
        await until(lambda: server.counts["GET"] > 8)

    assert not any(server.objects(resource) for resource in WEBHOOK_CONFIGURATIONS)


async def test_rules_of_another_version_are_replaced_and_foreign_webhooks_are_left_alone(
    server: FakeApiServer,
) -> None:
    document = configuration(None, None)
    document["webhooks"][0] |= {"name": PODS_WEBHOOK, "rules": [{"resources": ["nodes"]}]}
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, document)
    async with keeping(server):
        await until(lambda: rules_of_mutating(server)[0] == RULES[PODS_WEBHOOK])

    assert rules_of_mutating(server)[1] is None


def rules_of_mutating(server: FakeApiServer) -> list[Any]:
    return [webhook.get("rules") for webhook in (written(server) or {})["webhooks"]]


async def test_with_certificates_of_others_only_paths_and_rules_are_written(
    server: FakeApiServer,
) -> None:
    put_generated(server)
    foreign = msgspec.structs.replace(
        SETTINGS,
        certificates=msgspec.structs.replace(SETTINGS.certificates, directory="/certificate"),
    )
    async with keeping(server, settings=foreign) as controller:
        await until(lambda: rules_of(server) == FILLED)
        assert not controller.keeps_authorities

    (secret,) = server.objects(SECRETS)
    assert secret["metadata"]["name"] == CERTIFICATES.path_secret
    assert set(bundles(written(server))) == {None}


@pytest.mark.parametrize("directory", [None, "/certificate"])
async def test_nothing_is_shown_of_authorities_that_others_keep(
    server: FakeApiServer, directory: str | None
) -> None:
    """With cert-manager every caBundle differs from the controller's own, and nothing is wrong."""
    certificates = msgspec.structs.replace(SETTINGS.certificates, directory=directory)
    settings = msgspec.structs.replace(SETTINGS, certificates=certificates)
    async with server.client() as client:
        informers = quick_informers(client)
        controller = CertificateController(client, informers, settings, now)
        watch = ConfigurationWatch(
            informers,
            quick_recorder(client),
            "drawbridge",
            list,
            Backoff(initial_s=0.01, max_s=0.01),
            grace_s=0.0,
        )

        shown = build_collectors(controller, watch)

    kinds = {type(collector) for collector in shown}
    assert (CertificateAuthorityCollector in kinds) is (directory is None)
    assert ConfigurationCollector in kinds


def test_a_patch_of_rules_does_not_damage_a_list_that_changed_in_between() -> None:
    document = dict(generated_configuration([]))
    webhooks = project_webhooks(msgspec.json.encode(document))
    steps = rules_patch(webhooks, RULES, {PODS_WEBHOOK, UPDATES_WEBHOOK})
    patched = jsonpatch.apply_patch(document, steps)

    assert not any(
        lacks_rules(webhook, RULES) for webhook in project_webhooks(msgspec.json.encode(patched))
    )
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(configuration(None), steps)


# --- where the webhook answers --------------------------------------------------------------------


async def test_an_endpoint_answers_if_the_ca_bundle_trusts_its_certificate(
    unused_tcp_port: int,
) -> None:
    today = datetime.now(UTC)  # noqa: TID251  TLS compares with the clock.
    authority = Authority.create("test", now=today, life=DAY)
    certificate = issue_serving_certificate(authority, ("127.0.0.1",), now=today, life=HOUR)
    context = Listener(certificate).context
    trusted = b64encode(authority.certificate_pem).decode()
    url = f"https://127.0.0.1:{unused_tcp_port}/mutate"

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    def registered(bundle: str) -> RegisteredWebhook:
        config = {"url": url, "caBundle": bundle}
        return msgspec.convert({"name": "a", "clientConfig": config}, RegisteredWebhook)

    foreign = b64encode(OTHER.certificate_pem).decode()
    assert str(unused_tcp_port) in await check_endpoint(registered(trusted))
    async with await asyncio.start_server(close, "127.0.0.1", unused_tcp_port, ssl=context):
        assert await check_endpoint(registered(trusted)) == ""
        assert "verify failed" in await check_endpoint(registered(foreign))
        assert await check_endpoint(registered(""))
        assert await check_endpoint(registered("%"))
        comment = b64encode("# Société\n".encode()).decode()
        assert "not the certificates" in await check_endpoint(registered(comment))


# --- the caBundle ---------------------------------------------------------------------------------


async def test_a_bundle_is_written_once_and_healed_after_an_apply(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))
        assert bundles(written(server)) == event_notes(server)
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration("", None))

        await until(lambda: all(bundles(written(server))))

    assert server.counts["PATCH"] == 2


async def test_what_the_watch_tells_before_a_write_is_answered_counts(
    server: FakeApiServer,
) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    answered = server.delay(lambda call: call.method == "PATCH")
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
        await asyncio.sleep(0.05)  # The watch tells; if it is later, there is nothing to see.
        answered.set()

        await until(lambda: None not in bundles(written(server)))


async def test_a_configuration_that_comes_later_is_written(server: FakeApiServer) -> None:
    async with keeping(server):
        await until(lambda: server.watching == len(WEBHOOK_CONFIGURATIONS) + 2)
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))

        await until(lambda: None not in bundles(written(server)))


async def test_other_configurations_are_left_alone(server: FakeApiServer) -> None:
    other = configuration(None)
    other["metadata"]["name"] = "other"
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, other)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))

    assert bundles(server.find(MUTATING_WEBHOOK_CONFIGURATIONS, "other")) == [None]


async def test_both_configurations_trust_the_same_authority(server: FakeApiServer) -> None:
    for resource in WEBHOOK_CONFIGURATIONS:
        server.put(resource, configuration(None))

    def trusted() -> list[list[str | None]]:
        name = CERTIFICATES.webhook_configuration
        return [bundles(server.find(resource, name)) for resource in WEBHOOK_CONFIGURATIONS]

    async with keeping(server):
        await until(lambda: [None] not in trusted())

    assert [event_notes(server)] * 2 == trusted()


async def test_trouble_is_tried_again(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(None))
    server.fail(500, times=3, matches=lambda call: call.method in {"POST", "PATCH"})
    async with keeping(server):
        await until(lambda: None not in bundles(written(server)))


# --- names of keys in match conditions ------------------------------------------------------------


def _conditions(*names: str) -> dict[str, list[dict[str, str]]]:
    extended = extended_vocabularies([("resources", names)]).values()
    documents = (generated_configuration(extended), validating_configuration(extended))
    return {
        webhook["name"]: webhook["matchConditions"]
        for document in documents
        for webhook in document["webhooks"]
    }


def test_match_conditions_get_the_keys_of_the_profiles_in_force() -> None:
    document = generated_configuration(VOCABULARIES.values())
    webhooks = project_webhooks(msgspec.json.encode(document))
    expected = _conditions("vendor.example/npu")

    steps = conditions_patch(webhooks, expected)
    patched = jsonpatch.apply_patch(document, steps)

    assert all(
        webhook["matchConditions"] == expected[webhook["name"]] for webhook in patched["webhooks"]
    )
    assert len(steps) > 0
    assert conditions_patch(project_webhooks(msgspec.json.encode(patched)), expected) == []


@pytest.mark.parametrize("number", [0, 1])
def test_conditions_that_somebody_changed_on_purpose_are_left_alone(number: int) -> None:
    document = msgspec.json.decode(
        msgspec.json.encode(generated_configuration(VOCABULARIES.values()))
    )
    conditions = document["webhooks"][0]["matchConditions"]
    changed = [conditions[1:], [{**conditions[0], "expression": "false"}, *conditions[1:]]]
    document["webhooks"][0]["matchConditions"] = changed[number]

    webhooks = project_webhooks(msgspec.json.encode(document))[:1]

    assert conditions_patch(webhooks, _conditions("vendor.example/npu")) == []


async def test_the_controller_writes_the_keys_of_profiles(server: FakeApiServer) -> None:
    document = generated_configuration(VOCABULARIES.values())
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, msgspec.to_builtins(document))
    expected = _conditions("vendor.example/npu")
    async with keeping(server, conditions=lambda: expected):
        await until(
            lambda: (
                (written(server) or {})["webhooks"][0]["matchConditions"] == expected[PODS_WEBHOOK]
            )
        )
