"""The overlay with cert-manager, as kubectl renders it; cert-manager itself is not here."""

import pytest

from e2e.access import Access, Object
from e2e.drawbridge import CERTIFICATES, CONTROLLER, MANIFESTS, WEBHOOK, rendered
from kube.names import SIGNING_SECRET
from process.certificates import CertificateSettings

OVERLAY = MANIFESTS.parent / "overlays" / "cert-manager"


@pytest.fixture(scope="module")
def objects(cluster: Access) -> list[Object]:
    return rendered(cluster, OVERLAY)


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    return {
        document["metadata"]["name"]: document for document in objects if document["kind"] == kind
    }


def test_nobody_of_ours_can_reach_a_secret_but_those_of_signatures_and_paths(
    objects: list[Object],
) -> None:
    names = {
        (role["metadata"]["name"], *rule["resourceNames"])
        for role in objects
        if role["kind"] in {"Role", "ClusterRole"}
        for rule in role["rules"]
        if "secrets" in rule["resources"]
    }
    path = CertificateSettings().path_secret
    assert names == {
        (WEBHOOK, SIGNING_SECRET, path),
        (CONTROLLER, SIGNING_SECRET),
        (CERTIFICATES, SIGNING_SECRET),
        (CERTIFICATES, path),
    }


def test_processes_know_whose_the_certificates_are(objects: list[Object]) -> None:
    for name in (CERTIFICATES, WEBHOOK):
        deployment = named(objects, "Deployment")[name]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        told = {each["name"]: each.get("value") for each in container["env"]}
        assert told["DRAWBRIDGE_CERTIFICATES"] == "/certificate"


def test_what_is_served_is_what_is_issued_and_believed(objects: list[Object]) -> None:
    certificate = named(objects, "Certificate")["drawbridge-webhook"]
    spec = named(objects, "Deployment")[WEBHOOK]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "certificate")
    (volume,) = (each for each in spec["volumes"] if each["name"] == "certificate")
    service = f"{WEBHOOK}.{certificate['metadata']['namespace']}.svc"

    assert (mount["mountPath"], mount["name"]) == ("/certificate", volume["name"])
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert service in certificate["spec"]["dnsNames"]
    for document in objects:
        if document["kind"].endswith("WebhookConfiguration"):
            (source,) = document["metadata"]["annotations"].values()
            assert source == f"{certificate['metadata']['namespace']}/drawbridge-webhook"
