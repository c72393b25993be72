"""DeviceQuotas as objects, and claims that one never allows: refusals by the API server and the webhook."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Access, Object
from e2e.small_inventory import Who, posted, refusing_party
from kube.api.device_quota import API_VERSION
from rules.context.rule import CRD_VALIDATION
from rules.engine.registry import RULES
from testing import documents
from testing.documents import device_quota, limit, resource_slice
from testing.rule_cases import QUOTAS as CASES
from testing.rule_cases import Case

DRIVER: Final = "quotas.example.com"
NODE: Final = "quotas-0"
NAMESPACE: Final = "default"
QUOTAS: Final = f"/apis/{API_VERSION}/devicequotas"

pytestmark = pytest.mark.usefixtures("drawbridge")


@pytest.fixture(autouse=True)
def _no_quota_stays(cluster: Access) -> Iterator[None]:
    yield
    cluster.kubectl("delete", "dq", "--all")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_definition_stands_for_is_refused_by_it(cluster: Access, case: Case) -> None:
    """Rules with a table that says that the definition says them, and no others."""
    from_schema = {rule_.code.value for rule_ in RULES if rule_.no_cel_reason == CRD_VALIDATION}
    errors = {line.split()[1] for line in case.expected_lines if line.startswith("error")}

    status, body = cluster.request("POST", f"{QUOTAS}?dryRun=All", case.document)

    # What else is wrong may be refused by our webhook, while it answers.
    by_itself = status == 422 and b"admission webhook" not in body
    assert by_itself == bool(errors & from_schema), body
    assert errors or status == 201, body


@pytest.fixture
def devices(cluster: Access) -> Iterator[None]:
    """A node with two devices, and their class."""
    slice_ = resource_slice(
        {"name": "gpu-0"}, {"name": "gpu-1"}, driver=DRIVER, node=NODE, name=f"{NODE}-{DRIVER}"
    )
    cluster.add_nodes([inventory.kwok_node(NODE)], lambda _: [slice_])
    cluster.apply([inventory.device_class(DRIVER, f"device.driver == '{DRIVER}'")])
    yield
    cluster.kubectl("delete", "deviceclass", DRIVER)
    cluster.remove_nodes([NODE])


def template(count: int) -> Object:
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    return documents.template({"name": "gpu", "exactly": exactly}, name="quotas")


@pytest.mark.usefixtures("devices")
def test_what_a_quota_never_allows_is_denied_until_it_is_raised(cluster: Access) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    devices = limit("4", name="devices", driver=DRIVER, devices={}, perRequest="1")
    cluster.apply([device_quota(devices, namespaceSelector=selector)])

    def answer(count: int) -> tuple[Who, str]:
        code, message = posted(cluster, template(count), NAMESPACE)
        return refusing_party(code, message), message

    cluster.wait_until(lambda: answer(2)[0] is Who.WEBHOOK, "the webhook knows the quota")
    _, message = answer(2)
    assert "exceedsPerRequestQuota" in message
    assert "2 devices for a request, at most 1 device allowed" in message
    assert answer(1)[0] is Who.NOBODY

    cluster.apply([device_quota({**devices, "perRequest": "2"}, namespaceSelector=selector)])
    cluster.wait_until(lambda: answer(2)[0] is Who.NOBODY, "the webhook knows that it was raised")
