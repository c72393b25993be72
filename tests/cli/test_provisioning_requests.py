"""PodTemplates of ProvisioningRequests, in `translate` and `check`."""

import json
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import TRANSLATE_LABEL
from testing.builders import gpus, pod
from testing.command import answer, drawbridge
from testing.documents import Document, api_object

CODE: Final = "noProvisionedCapacity"
PATH: Final = "template.spec.resourceClaims"
KEYS: Final = pod(gpus(2))["spec"]


def pod_template(spec: Any = KEYS, namespace: str = "team", **labels: str) -> Document:
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "l4", "namespace": namespace},
        "template": template,
    }


def request(
    name: Any = "l4",
    version: str = "autoscaling.x-k8s.io/v1",
    kind: str = "ProvisioningRequest",
    **spec: Any,
) -> Document:
    spec = spec or {"podSets": [{"count": 2, "podTemplateRef": {"name": name}}]}
    return api_object(kind, "job", "team", api_version=version, spec=spec)


def reported(answered: Any) -> list[tuple[str, str, str]]:
    return [
        (finding["object"], finding["severity"], finding["path"])
        for finding in answered["findings"]
        if finding["code"] == CODE
    ]


def checked(*documents: Document) -> list[tuple[str, str, str]]:
    result = drawbridge("check", "-f", "-", "-o", "json", stdin=dump_yaml(list(documents)))
    return reported(json.loads(result.stdout))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("request_is_first", [True, False])
def test_a_translated_template_of_a_request_is_a_warning(
    version: str, request_is_first: bool
) -> None:
    pair = [request(version=f"autoscaling.x-k8s.io/{version}"), pod_template()]

    answered = answer(*pair[:: 1 if request_is_first else -1])

    assert [("PodTemplate/team/l4", "warning", PATH)] == reported(answered)
    (finding,) = (entry for entry in answered["findings"] if entry["code"] == CODE)
    assert 'ProvisioningRequest "job" never gets its capacity' in finding["message"]
    assert f"{TRANSLATE_LABEL}=false" in finding["fix"]


def test_a_template_that_follows_the_advice_keeps_its_keys() -> None:
    template = pod_template(**{TRANSLATE_LABEL: "false"})

    answered = answer(request(), template)

    assert [] == reported(answered)
    assert template in answered["objects"]


@pytest.mark.parametrize(
    "other",
    [
        request(name="h100"),
        request(version="example.com/v1"),
        request(kind="CapacityRequest"),
        request(name=None),
        request(podSets=[None, {"podTemplateRef": "l4"}]),
        request(podSets="l4"),
    ],
    ids=["another name", "another group", "another kind", "no name", "no reference", "no list"],
)
def test_other_objects_name_no_template(other: Document) -> None:
    assert [] == reported(answer(other, pod_template()))


def test_a_request_names_templates_of_its_namespace() -> None:
    assert [] == reported(answer(request(), pod_template(namespace="other")))


def claims(**source: str) -> Document:
    uses = {"claims": [{"name": "gpu"}]}
    return {
        "resourceClaims": [{"name": "gpu", **source}],
        "containers": [{"name": "main", "image": "a", "resources": uses}],
    }


def test_check_reports_a_template_with_claims_as_it_is_applied() -> None:
    template = pod_template(claims(resourceClaimTemplateName="one"))

    assert [("PodTemplate/team/l4", "warning", PATH)] == checked(request(), template)


@pytest.mark.parametrize(
    "spec", [KEYS, claims(resourceClaimName="one")], ids=["keys", "a claim of its own"]
)
def test_check_reports_no_other_template(spec: Document) -> None:
    assert [] == checked(request(), pod_template(spec))
