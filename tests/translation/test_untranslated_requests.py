"""Requests of resources that stay, and that the API server rejects after a translation."""

from typing import NamedTuple

import pytest

from testing.builders import container, finding_codes, pod, pod_view
from testing.documents import Document
from translation.reading.untranslated_keys import check_untranslated_requests


class Case(NamedTuple):
    name: str
    requests: Document
    limits: Document
    codes: tuple[str, ...]


CASES = (
    Case("no request", {}, {"example.com/card": 1}, ()),
    Case("equal", {"example.com/card": "1"}, {"example.com/card": 1}, ()),
    Case("fewer", {"example.com/card": 1}, {"example.com/card": 2}, ("error limitDiffers",)),
    Case("no limit", {"example.com/card": 1}, {}, ("error limitRequired",)),
    Case("huge pages", {"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "4Mi"}, ("error limitDiffers",)),
    Case("what may be overcommitted", {"cpu": 1, "kubernetes.io/batch": 1}, {"cpu": 2}, ()),
    Case("a name without a domain", {}, {"gpu": 1}, ("error invalidObject",)),
    Case("it in both", {"gpu": 1}, {"gpu": 1}, ("error invalidObject", "error invalidObject")),
    Case("what Kubernetes has", {"memory": 1}, {"ephemeral-storage": 1, "hugepages-1Gi": 0}, ()),
    Case("a key that is translated", {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}, ()),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request_of_a_resource_that_stays(case: Case) -> None:
    document = pod(
        {"name": "main", "resources": {"requests": case.requests, "limits": case.limits}}
    )

    assert finding_codes(tuple(check_untranslated_requests(pod_view(document)))) == list(case.codes)


def test_devices_of_the_whole_pod_are_rejected_as_the_api_server_does() -> None:
    document = pod(container("main"))
    document["spec"]["resources"] = {"limits": {"cpu": 1, "google.com/tpu": 4, "hugepages-2Mi": 0}}

    (finding,) = check_untranslated_requests(pod_view(document))

    assert "spec.resources.limits[google.com/tpu]" == str(finding.path)
    assert "Unsupported value" in finding.message
